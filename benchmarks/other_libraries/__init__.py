"""Training steps of PyTorch and JAX, in processes without TensorFlow."""
