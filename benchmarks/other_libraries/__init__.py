"""Training steps of PyTorch, JAX and Keras on JAX, in processes without TensorFlow."""
