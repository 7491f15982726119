"""Models as files for servers: the best classes, by operations that servers have."""

from tf_largeout.serving.class_scores import ClassScores
from tf_largeout.serving.list_scores import ListIndex
from tf_largeout.serving.saved_model import export

__all__ = ["ClassScores", "ListIndex", "export"]
