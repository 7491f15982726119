"""Random calls of uniform and log-uniform draws."""

from tests.fuzz import checks
from tests.fuzz.draws import Call
from tf_largeout import ops


def uniform_sample(draws):
    return _sample_call(draws, ops.uniform_sample)


def log_uniform_sample(draws):
    return _sample_call(draws, ops.log_uniform_sample)


def _sample_call(draws, function):
    num_classes = draws.rows(1)
    if draws.chance(0.1):
        num_classes = draws.pick((10**6, 2**24 + 1, 2**31 - 1, 2**31, 2**40))
    num_sampled = draws.attribute(draws.random.integers(1, min(num_classes, 3000) + 1))
    num_classes = draws.attribute(num_classes)
    labels = draws.ids((draws.size(), draws.size() % 8), num_classes)
    unique = draws.chance(0.5)

    def check(draw):
        checks.is_draw(draw, labels, num_classes, num_sampled)
        if unique:
            checks.distinct(draw[0])

    arguments = (labels, draws.seed(), num_classes, num_sampled, unique)
    return Call(function, arguments, {}, check)
