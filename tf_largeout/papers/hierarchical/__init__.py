"""Two-level and binary trees of classes: exact log-probabilities without sampling.

Papers: Goodman 2001; Morin and Bengio 2005; Mikolov et al. 2013.
Notes: lab/vijayanarasimhan. Tests: tests/papers/hierarchical.
"""
