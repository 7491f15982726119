"""Approximate likelihoods and ranking (Barber & Botev 2016, Ji et al. 2016)."""
