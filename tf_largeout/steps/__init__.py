"""Steps: what output layers pass to losses and metrics."""
