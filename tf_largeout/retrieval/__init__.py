"""Finds the best classes for many queries, with a model or an index, and with filters."""

from typing import TYPE_CHECKING, Any

from tf_largeout.lazy_names import papers_name
from tf_largeout.retrieval.brute_force_index import BruteForceIndex as BruteForceIndex
from tf_largeout.retrieval.build import build as build
from tf_largeout.retrieval.hnsw_index import HnswIndex as HnswIndex
from tf_largeout.retrieval.inverted_file_index import ClassLists as ClassLists
from tf_largeout.retrieval.inverted_file_index import InvertedFileIndex as InvertedFileIndex
from tf_largeout.retrieval.predict_top_k import predict_top_k as predict_top_k

if TYPE_CHECKING:
    from tf_largeout.papers.lsh.lsh_index import LSHIndex as LSHIndex

__all__ = [
    "BruteForceIndex",
    "ClassLists",
    "HnswIndex",
    "InvertedFileIndex",
    "LSHIndex",
    "predict_top_k",
    "build",
]


def __getattr__(name: str) -> Any:
    return papers_name(__name__, name)
