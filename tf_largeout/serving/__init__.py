"""Exports models to SavedModels that return the best classes."""

from tf_largeout.serving.class_scores import ClassScores, ListIndex
from tf_largeout.serving.saved_model import export

__all__ = ["ClassScores", "ListIndex", "export"]
