"""What the benchmarks share: tasks, runs in separate processes, evaluation, pictures."""
