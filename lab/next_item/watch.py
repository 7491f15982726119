"""Stops training after CPU seconds, and evaluates on the way."""

import time

import numpy as np


class Watch:
    """Counts the CPU seconds of training, from the end of the first step.

    The first step compiles the model. The time of evaluations does not count.

    Args:
        seconds: CPU seconds of training.
        fractions: When to evaluate, as parts of `seconds`.
        data: The arrays of `data.write`.
    """

    def __init__(self, seconds, fractions, data):
        self.seconds, self.data = seconds, data
        self._due = [seconds * fraction for fraction in fractions]
        self._start = None
        self.num_steps = 0
        self.results = []

    def __deepcopy__(self, memo):
        return self  # Lightning copies its callbacks.

    @property
    def spent(self):
        return 0.0 if self._start is None else time.process_time() - self._start

    @property
    def progress(self):
        """The part of the time that is over, from 0 to 1."""
        return min(self.spent / self.seconds, 1.0)

    def start(self):
        """Starts to count, unless it has started before."""
        if self._start is None:
            self._start = time.process_time()

    def step(self, encode, table, known=None):
        """Is called after each step. Returns whether training is over.

        Args:
            encode: Function from histories `[n, length]` to features `[n, dim]`.
            table: Function without arguments that returns the rows `[num_classes, dim]`.
            known: bool `[num_classes]`, the classes that the model can rank. None for all.
        """
        self.num_steps += 1
        if self._start is None:
            self.start()
            return False
        spent = self.spent
        if not self._due or spent < self._due[0]:
            return not self._due
        while self._due and spent >= self._due[0]:
            self._due.pop(0)
        rows = table()
        result = {"seconds": spent, "steps": self.num_steps}
        for part in ("validation", "test"):
            result[part] = ranks_of(self.data, part, encode, rows, known)
        self.results.append(result)
        self._start = time.process_time() - spent
        return not self._due


def ranks_of(data, part, encode, table, known=None, batch=64):
    """Ranks all items, and returns NDCG@10 and HitRate@10, with and without seen items."""
    history, target = data[f"{part}_history"], data[f"{part}_target"]
    seen = data.get(f"{part}_seen")
    ranks = {"all": [], "unseen": []}
    for start in range(0, len(target), batch):
        rows = slice(start, start + batch)
        scores = encode(history[rows]) @ table.T
        scores[:, 0] = -np.inf
        if known is not None:
            scores[:, ~known] = -np.inf
        own = np.take_along_axis(scores, target[rows, None], 1)
        # An item that the model does not know, or NaN, is never found.
        is_found = np.isfinite(own[:, 0])
        ranks["all"].append(np.where(is_found, (scores > own).sum(1), 10**9))
        if seen is not None:
            np.put_along_axis(scores, seen[rows].astype(np.int64), -np.inf, 1)
            ranks["unseen"].append(np.where(is_found, (scores > own).sum(1), 10**9))
    return {kind: _metrics(np.concatenate(own)) for kind, own in ranks.items() if own}


def _metrics(ranks):
    is_hit = ranks < 10
    return {
        "ndcg": float(np.where(is_hit, 1 / np.log2(np.minimum(ranks, 10) + 2.0), 0).mean()),
        "hit_rate": float(is_hit.mean()),
    }
