"""Benchmarks: `python -m tf_largeout.benchmarks NAME`, with the methods in one table."""
