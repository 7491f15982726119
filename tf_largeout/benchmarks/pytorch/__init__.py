"""Training steps of PyTorch, in processes without TensorFlow."""
