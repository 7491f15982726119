"""Keras variables: initializers, shards, replicas, observers of updates, weights in files."""
