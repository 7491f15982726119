"""Approximate likelihoods and ranking, with Bernoulli and importance samples.

Papers: Barber and Botev 2016; Ji et al. 2016 (BlackOut).
Notes: lab/barber_botev. Tests: tests/papers/likelihood.
"""
