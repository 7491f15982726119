"""Builds the C++ code of tf_largeout. Needs only the standard library, for setup.py."""
