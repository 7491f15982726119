"""Keras variables: shards of one table, replicas, observers of updates, initial values."""
