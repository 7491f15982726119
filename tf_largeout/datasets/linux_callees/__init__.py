"""Prediction of the functions that a C function calls, from its signature and path."""
