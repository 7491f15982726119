"""What the benchmarks share: tasks, runs in processes of their own, evaluation, plots."""
