"""The methods that `retrieval` compares; a new one is one function and a line in `METHODS`.

A method takes a `Problem` and yields `(setting, search)`, where `search(queries, k)` takes
float32 `[n, dim]` and returns ids `[n, k]`, both NumPy.
"""

import dataclasses
import functools
import tempfile

import keras
import numpy as np
import tensorflow as tf

from tf_largeout import layers, retrieval, serving
from tf_largeout.retrieval import BruteForceIndex, HnswIndex, InvertedFileIndex, LSHIndex

_NUM_EXCLUDED, _SHARE_ALLOWED = 50, 0.1


@dataclasses.dataclass(frozen=True)
class Problem:
    """Rows to search in.

    Attributes:
        rows: float32 `[num_classes, dim]`.
        bias: float32 `[num_classes]`.
        queries: float32 `[n, dim]`, to choose settings. They are not used in the measurement.
        most_k: the largest k of the searches.
    """

    rows: np.ndarray
    bias: np.ndarray
    queries: np.ndarray
    most_k: int

    def with_bias_column(self):
        """Returns the rows with their biases as an additional number, for queries with a 1."""
        return np.concatenate([self.rows, self.bias[:, np.newaxis]], axis=1)


def with_ones(queries):
    """Returns queries that match rows `with_bias_column`."""
    return np.concatenate([queries, np.ones([len(queries), 1], np.float32)], axis=1)


def _of_index(index):
    return lambda queries, k: index.top_k(queries, k)[1].numpy()


def brute_force(problem):
    """Yields `BruteForceIndex`, without and with filters."""
    index = BruteForceIndex().build(problem.rows, problem.bias)
    yield "exact", _of_index(index)
    yield from _filtered(index, problem)


def _filtered(index, problem):
    """Searches with each filter. Their results differ from the best classes of all."""
    draws = np.random.default_rng(0)
    num_classes = len(problem.rows)
    allowed = np.flatnonzero(draws.random(num_classes) < _SHARE_ALLOWED)
    exclude = draws.integers(0, num_classes, [64, _NUM_EXCLUDED])
    yield (
        f"{_NUM_EXCLUDED} excluded",
        lambda queries, k: index.top_k(
            queries, k, exclude=exclude[np.arange(len(queries)) % len(exclude)]
        )[1].numpy(),
    )
    yield (
        f"{_SHARE_ALLOWED:.0%} allowed",
        lambda queries, k: index.top_k(queries, k, allowed=allowed)[1].numpy(),
    )


def inverted_file(problem):
    """Yields `InvertedFileIndex`, with defaults and other recalls, also with a filter."""
    yield "defaults", _of_index(InvertedFileIndex().build(problem.rows, problem.bias))
    for target in (0.8, 0.9, 0.95, 0.99):
        index = InvertedFileIndex(recall_target=target)
        index.build(problem.rows, problem.bias, queries=problem.queries)
        yield f"target {target}, {index.num_probes} lists", _of_index(index)
        if target == 0.9:
            setting, search = next(_filtered(index, problem))
            yield f"target {target}, {setting}", search


def hnsw(problem):
    """Yields `HnswIndex`, with several recalls."""
    for target in (0.95, 0.99):
        index = HnswIndex(recall_target=target)
        index.build(problem.rows, problem.bias, queries=problem.queries)
        yield f"target {target}, ef {index.ef_search}", _of_index(index)


def chosen(problem, recall):
    """Yields the index that `retrieval.build` chooses for single queries."""
    index = retrieval.build(problem.rows, problem.bias, recall, problem.queries, verbose=False)
    yield type(index).__name__, _of_index(index)


def lsh(problem, hash):
    """Yields `LSHIndex` with a hash."""
    for num_candidates in (256, 1024, 4096, 16384, 65536):
        index = LSHIndex(num_candidates, hash=hash).build(problem.rows, problem.bias)
        yield f"{num_candidates} candidates", _of_index(index)


def matmul(problem):
    """Scores all classes and finds the best of them, in TensorFlow."""
    rows, bias = tf.Variable(problem.rows), tf.Variable(problem.bias)

    specs = [tf.TensorSpec([None, problem.rows.shape[1]]), tf.TensorSpec([], tf.int32)]

    @tf.function(input_signature=specs)
    def search(queries, k):
        return tf.math.top_k(tf.matmul(queries, rows, transpose_b=True) + bias, k)[1]

    yield "exact", lambda queries, k: search(tf.constant(queries), tf.constant(k)).numpy()


def export(problem, ops, has_index):
    """Yields SavedModels of `serving.export`; queries call the signature `serving_default`."""
    model = keras.Sequential(
        [keras.Input([problem.rows.shape[1]]), layers.LargeOutput(len(problem.rows))]
    )
    model.layers[-1].embeddings.assign(problem.rows)
    model.layers[-1].bias.assign(problem.bias)
    for target in (0.8, 0.9, 0.95, 0.99) if has_index else (None,):
        index = None
        if has_index:
            index = InvertedFileIndex(recall_target=target)
            index.build(problem.rows, problem.bias, queries=problem.queries)
        with tempfile.TemporaryDirectory() as folder:
            serving.export(model, f"{folder}/1", k=problem.most_k, index=index, ops=ops)
            loaded = tf.saved_model.load(f"{folder}/1")
        name = f"target {target}, {index.num_probes} lists" if has_index else "exact"
        yield name, functools.partial(_ask, loaded)


def _ask(loaded, queries, k):
    # This signature has a fixed k. The first of its results are used.
    found = loaded.signatures["serving_default"](features=tf.constant(queries))
    return found["ids"].numpy()[:, :k]


def faiss_flat(problem):
    """Yields faiss's scan of all rows."""
    faiss = _faiss()
    rows = problem.with_bias_column()
    index = faiss.IndexFlatIP(rows.shape[1])
    index.add(rows)
    yield "exact", lambda queries, k: index.search(with_ones(queries), k)[1]


def faiss_ivf(problem, codes):
    """Yields faiss's inverted file with `codes`: "Flat", or "SQ8" for 8 bits per number."""
    faiss = _faiss()
    rows = problem.with_bias_column()
    num_lists = round(4 * len(rows) ** 0.5)
    index = faiss.index_factory(
        rows.shape[1], f"IVF{num_lists},{codes}", faiss.METRIC_INNER_PRODUCT
    )
    index.train(rows[np.random.default_rng(0).permutation(len(rows))[: 40 * num_lists]])
    index.add(rows)
    for num_probes in (4, 16, 64, 256, 1024):
        index.nprobe = num_probes
        yield f"{num_probes} lists", lambda queries, k: index.search(with_ones(queries), k)[1]


def hnswlib_graph(problem):
    """Yields hnswlib's neighbour graph."""
    import hnswlib

    rows = problem.with_bias_column()
    index = hnswlib.Index(space="ip", dim=rows.shape[1])
    index.init_index(max_elements=len(rows), M=16, ef_construction=100, random_seed=0)
    index.set_num_threads(1)
    index.add_items(rows, num_threads=1)

    def search(queries, k, effort):
        index.set_ef(max(effort, k))
        return index.knn_query(with_ones(queries), k=k, num_threads=1)[0]

    for effort in (16, 64, 256, 1024):
        yield f"ef {effort}", functools.partial(search, effort=effort)


def usearch_graph(problem):
    """Yields usearch's neighbour graph."""
    from usearch.index import Index

    rows = problem.with_bias_column()
    index = Index(
        ndim=rows.shape[1], metric="ip", dtype="f32", connectivity=16, expansion_add=100
    )
    index.add(np.arange(len(rows)), rows, threads=1)

    def search(queries, k, effort):
        index.expansion_search = max(effort, k)
        return np.reshape(index.search(with_ones(queries), k, threads=1).keys, [-1, k])

    for effort in (16, 64, 256, 1024):
        yield f"expansion {effort}", functools.partial(search, effort=effort)


def scann_tree(problem):
    """Yields ScaNN: a tree, scores of quantised rows, and exact scores of the best rows."""
    try:
        import scann
    except tf.errors.NotFoundError as error:
        raise ImportError(f"it was built for another TensorFlow: {error.message}") from error
    rows = problem.with_bias_column()
    num_leaves = round(len(rows) ** 0.5)
    builder = scann.scann_ops_pybind.builder(rows, problem.most_k, "dot_product")
    builder = builder.tree(num_leaves, num_leaves // 10, training_sample_size=100_000)
    builder = builder.score_ah(2, anisotropic_quantization_threshold=0.2)
    searcher = builder.reorder(10 * problem.most_k).build()

    def search(queries, k, leaves):
        return searcher.search_batched(
            with_ones(queries), final_num_neighbors=k, leaves_to_search=leaves
        )[0]

    for leaves in (4, 16, 64, 256):
        yield f"{leaves} leaves", functools.partial(search, leaves=leaves)


def _faiss():
    import faiss

    faiss.omp_set_num_threads(1)
    return faiss


METHODS = {
    "tf.matmul + tf.math.top_k": matmul,
    "BruteForceIndex": brute_force,
    "InvertedFileIndex": inverted_file,
    "HnswIndex": hnsw,
    "retrieval.build(recall=0.95)": functools.partial(chosen, recall=0.95),
    "retrieval.build(recall=0.99)": functools.partial(chosen, recall=0.99),
    "LSHIndex, SimHash": functools.partial(lsh, hash="simhash"),
    "LSHIndex, DWTA": functools.partial(lsh, hash="dwta"),
    "LSHIndex, WTA": functools.partial(lsh, hash="wta"),
    "core export": functools.partial(export, ops="core", has_index=False),
    "core export, InvertedFileIndex": functools.partial(export, ops="core", has_index=True),
    "custom export": functools.partial(export, ops="custom", has_index=False),
    "custom export, InvertedFileIndex": functools.partial(export, ops="custom", has_index=True),
    "faiss flat": faiss_flat,
    "faiss IVF": functools.partial(faiss_ivf, codes="Flat"),
    "faiss IVF, 8 bits": functools.partial(faiss_ivf, codes="SQ8"),
    "hnswlib": hnswlib_graph,
    "usearch": usearch_graph,
    "ScaNN": scann_tree,
}
