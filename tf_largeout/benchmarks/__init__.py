"""Benchmarks for users: `python -m tf_largeout.benchmarks NAME`. The notes are in lab/."""
