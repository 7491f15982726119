"""Benchmarks for users: `python -m benchmarks NAME`. The notes are in lab/."""
