"""The functions of c_api.h and of cuBLAS in numpy, over memory of the host.

What drives the launchers runs with these as it does on a GPU: with the same addresses,
sizes and orders of arguments, converted by the signatures of the header.
"""

import ctypes
import types

import numpy as np

from custom_ops.cuda.compare.blas import Blas
from custom_ops.cuda.compare.library import HEADER, PREFIX, Library, signatures

OUT_OF_MEMORY = 2
SCRATCH_BYTES = 64


def view(pointer, shape, dtype=np.float32):
    """The array at an address."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_byte * size).from_address(pointer), dtype).reshape(shape)


def ids_at(pointer, *shape):
    return view(pointer, shape, np.int64)


class HostFunctions:
    """What the functions do, by their names without the prefix.

    Args:
        most_bytes: allocations fail beyond this.
    """

    def __init__(self, most_bytes=2**30):
        self.most_bytes = most_bytes
        self.memory = {}

    def device_name(self, name, size):
        ctypes.memmove(name, b"host\0"[:size], 5)

    def allocate(self, size, pointer):
        if size + sum(one.size for one in self.memory.values()) > self.most_bytes:
            return OUT_OF_MEMORY
        buffer = np.full(max(size, 1), 0xFF, np.uint8)
        self.memory[buffer.ctypes.data] = buffer
        ctypes.c_void_p.from_address(pointer).value = buffer.ctypes.data

    def free(self, pointer):
        del self.memory[pointer]

    def copy_from_host(self, values, size, to):
        ctypes.memmove(to, values, size)

    def copy_to_host(self, values, size, to):
        ctypes.memmove(to, values, size)

    def wait(self):
        pass

    def gather_rows(self, w, classes, dim, ids, count, rows):
        view(rows, (count, dim))[:] = view(w, (classes, dim))[ids_at(ids, count)]

    def row_dots(self, w, classes, dim, features, ids, batch, width, logits):
        rows = view(w, (classes, dim))[ids_at(ids, batch, width)]
        found = np.einsum("bd,bwd->bw", view(features, (batch, dim)), rows)
        view(logits, (batch, width))[:] = found

    def row_dots_feature_gradient(
        self, w, classes, dim, ids, batch, width, d_logits, d_features
    ):
        rows = view(w, (classes, dim))[ids_at(ids, batch, width)]
        found = np.einsum("bw,bwd->bd", view(d_logits, (batch, width)), rows)
        view(d_features, (batch, dim))[:] = found

    def row_gradient_scratch_bytes(self, batch, width, shared, classes, dim):
        return SCRATCH_BYTES

    def row_gradient(
        self, own, batch, width, shared, num_shared, classes, dim, features, d_logits, d_shared,
        scratch, row_ids, d_rows,
    ):  # fmt: skip
        ids = np.concatenate([ids_at(own, batch * width), ids_at(shared, num_shared)])
        d_logits, features = view(d_logits, (batch, width, 1)), view(features, (batch, 1, dim))
        own_rows = (d_logits * features).reshape(-1, dim)
        rows = np.concatenate([own_rows, view(d_shared, (num_shared, dim))])
        touched, at = np.unique(ids, return_inverse=True)
        count = min(len(ids), classes)
        out_ids, out_rows = ids_at(row_ids, count), view(d_rows, (count, dim))
        out_ids[:], out_rows[:] = -1, 0
        out_ids[: len(touched)] = touched
        np.add.at(out_rows, at, rows)
        view(scratch, (SCRATCH_BYTES,), np.uint8)[:] = 1

    def row_adam_scratch_bytes(self, count, classes, dim):
        return SCRATCH_BYTES

    def row_adam(
        self, ids, count, values, classes, dim, step_size, betas, epsilon, decay, scratch, w, m,
        v,
    ):  # fmt: skip
        ids, values = ids_at(ids, count), view(values, (count, dim))
        values, ids = values[ids >= 0], ids[ids >= 0]
        w, m, v = (view(one, (classes, dim)) for one in (w, m, v))
        beta_1, beta_2 = view(betas, (2,), np.float64)
        step_size, epsilon, decay = (view(one, (1,))[0] for one in (step_size, epsilon, decay))
        assert decay == 0 and len(np.unique(ids)) == len(ids)
        m[ids] += (values - m[ids]) * (1 - beta_1)
        v[ids] += (values**2 - v[ids]) * (1 - beta_2)
        w[ids] -= step_size * m[ids] / (np.sqrt(v[ids]) + epsilon)
        view(scratch, (SCRATCH_BYTES,), np.uint8)[:] = 1

    def candidate_log_partition(self, labels, ids, batch, count, logits, offsets, out):
        shifted = self._shifted(labels, ids, batch, count, logits, offsets)
        view(out, (batch,))[:] = np.log(np.exp(shifted).sum(1))

    def candidate_gradient(
        self, labels, ids, batch, count, logits, offsets, log_partition, d_log, d_logits
    ):
        shifted = self._shifted(labels, ids, batch, count, logits, offsets)
        share = np.exp(shifted - view(log_partition, (batch, 1)))
        view(d_logits, (batch, count))[:] = view(d_log, (batch, 1)) * share

    def _shifted(self, labels, ids, batch, count, logits, offsets):
        shifted = view(logits, (batch, count)) + view(offsets, (count,))
        hits = ids_at(labels, batch, 1) == ids_at(ids, count)
        return np.where(hits, -np.inf, shifted)

    def label_loss(self, logits, offsets, log_partition, batch, losses, d_true, d_log):
        gap = view(log_partition, (batch,)) - view(logits, (batch,)) - view(offsets, (batch,))
        view(losses, (batch,))[:] = np.log1p(np.exp(gap))
        view(d_log, (batch,))[:] = 1 / (1 + np.exp(-gap)) / batch
        view(d_true, (batch,))[:] = -view(d_log, (batch,))

    def class_statistics_scratch_bytes(self, batch, classes):
        return SCRATCH_BYTES

    def class_statistics(
        self, w, classes, dim, features, batch, labels, scratch, log_partition, true, ranks
    ):
        logits = view(features, (batch, dim)) @ view(w, (classes, dim)).T
        labels = ids_at(labels, batch, 1)
        view(log_partition, (batch,))[:] = np.log(np.exp(logits).sum(1))
        view(true, (batch, 1))[:] = np.take_along_axis(logits, labels, 1)
        ids_at(ranks, batch)[:] = (logits > view(true, (batch, 1))).sum(1)
        view(scratch, (SCRATCH_BYTES,), np.uint8)[:] = 1

    def class_gradient_scratch_bytes(self, batch, classes, dim):
        return SCRATCH_BYTES

    def class_gradient(
        self, w, classes, dim, features, batch, labels, log_partition, weights, label_weights,
        scratch, d_features, d_w,
    ):  # fmt: skip
        features, w = view(features, (batch, dim)), view(w, (classes, dim))
        d_logits = np.exp(features @ w.T - view(log_partition, (batch, 1)))
        d_logits *= view(weights, (batch, 1))
        at = np.arange(batch), ids_at(labels, batch)
        d_logits[at] += view(label_weights, (batch,))
        view(d_features, (batch, dim))[:] = d_logits @ w
        view(d_w, (classes, dim))[:] = d_logits.T @ features
        view(scratch, (SCRATCH_BYTES,), np.uint8)[:] = 1

    def class_top_k_scratch_bytes(self, batch, classes, k):
        return SCRATCH_BYTES

    def class_top_k(self, w, classes, dim, features, batch, k, scratch, scores, ids):
        logits = view(features, (batch, dim)) @ view(w, (classes, dim)).T
        best = np.argsort(-logits, 1, kind="stable")[:, :k]
        ids_at(ids, batch, k)[:] = best
        view(scores, (batch, k))[:] = np.take_along_axis(logits, best, 1)
        view(scratch, (SCRATCH_BYTES,), np.uint8)[:] = 1


class HostBlas:
    """The functions of cuBLAS that the comparison calls: matrices stand by columns."""

    def __init__(self):
        self.math_modes = []

    def cublasCreate_v2(self, handle):
        return 0

    def cublasGetVersion_v2(self, handle, version):
        version._obj.value = 130100
        return 0

    def cublasSetMathMode(self, handle, mode):
        self.math_modes.append(mode)
        return 0

    def cublasSgemm_v2(self, handle, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        def by_columns(pointer, op, rows, columns, stride):
            rows, columns = (columns, rows) if op else (rows, columns)
            assert stride >= rows
            matrix = view(pointer.value, (columns, stride))[:, :rows].T
            return matrix.T if op else matrix

        out = by_columns(c, 0, m, n, ldc)
        product = by_columns(a, op_a, m, k, lda) @ by_columns(b, op_b, k, n, ldb)
        kept = beta._obj.value * out if beta._obj.value else 0  # NaN is not kept
        out[:] = alpha._obj.value * product + kept
        return 0


def _with_status(function):
    return lambda *given: function(*given) or 0


def host_library(functions):
    """A Library over HostFunctions, called by way of C."""
    table = types.SimpleNamespace(largeout_status_text=lambda status: b"out of memory")
    for name, (result, arguments) in signatures(HEADER.read_text()).items():
        if name != "largeout_status_text":
            made = _with_status(getattr(functions, name.removeprefix(PREFIX)))
            setattr(table, name, ctypes.CFUNCTYPE(result, *arguments)(made))
    return Library(table)


def host_blas():
    return Blas(HostBlas())
