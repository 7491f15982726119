"""The best classes of many queries, with filters."""

from tf_largeout.retrieval.predict_top_k import predict_top_k as predict_top_k

__all__ = ["predict_top_k"]
