"""Shared code of the benchmarks: tasks, runs in separate processes, evaluation, pictures."""
