"""Builds the C++ side of tf_largeout. Standard library only: setup.py runs it."""
