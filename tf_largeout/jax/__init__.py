"""The main job of the library for Keras on JAX."""
