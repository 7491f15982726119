"""Variances of estimates of a sum of positive terms (Barber & Botev 2016, section 2.1)."""

import numpy as np


def importance_variance(terms, q, num_draws):
    """Returns the variance of `mean_s z_s / q_s` over draws s from q (equation 18)."""
    return (np.sum(terms**2 / q) - np.sum(terms) ** 2) / num_draws


def bernoulli_variance(terms, b):
    """Returns the variance of `sum_c s_c z_c / b_c`, if each `s_c` is 1 with chance `b_c`.

    The `s_c` are independent and 0 or 1 (equation 21).
    """
    return np.sum((1 / b - 1) * terms**2)
