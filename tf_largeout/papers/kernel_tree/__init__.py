"""Sampling by a kernel of the model (Blanc & Rendle 2018)."""
