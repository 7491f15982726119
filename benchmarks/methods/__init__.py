"""Models, samplers, optimizers and searches that the benchmarks compare."""
