"""`python -m lab.retrieval.row_kinds KIND PATH`: synthetic rows and queries.

It writes them in the format of `python -m benchmarks retrieval --weights PATH`.
"""

import numpy as np

from lab.shared.command_line import new_parser


def clusters(draws, num_classes, dim):
    """Returns clusters of power-law sizes, for inner products: few common, many rare topics."""
    centres = draws.standard_normal((num_classes // 50, dim))
    shares = 1 / np.arange(1, len(centres) + 1)
    members = draws.choice(len(centres), num_classes, p=shares / shares.sum())
    rows = centres[members] + 0.3 * draws.standard_normal((num_classes, dim))
    return rows, None, _near(draws, rows)


def uniform(draws, num_classes, dim):
    """Returns uniform rows, ranked by `-|q - x|^2` or, equally, `<q, x> - |x|^2 / 2`."""
    rows = draws.random((num_classes, dim))
    return rows, -0.5 * (rows**2).sum(axis=1), draws.random((4096, dim))


def duplicates(draws, num_classes, dim):
    """Returns rows that occur five times each, like classes with the same name."""
    rows = np.repeat(draws.standard_normal((-(-num_classes // 5), dim)), 5, axis=0)
    rows = draws.permutation(rows[:num_classes])
    return rows, None, _near(draws, rows)


ROW_KINDS = {"clusters": clusters, "uniform": uniform, "duplicates": duplicates}


def main(arguments=None):
    """Writes rows, biases and queries as the command line says."""
    parser = new_parser("retrieval.row_kinds", __doc__)
    parser.add_argument("kind", choices=ROW_KINDS)
    parser.add_argument("path", help="an .npz file")
    parser.add_argument("--classes", type=int, default=100_000, help="number of rows")
    parser.add_argument("--dim", type=int, default=64, help="their width")
    options = parser.parse_args(arguments)
    draws = np.random.default_rng(0)
    rows, bias, queries = ROW_KINDS[options.kind](draws, options.classes, options.dim)
    bias = np.zeros(options.classes) if bias is None else bias
    arrays = {"W": rows, "b": bias, "H": queries}
    np.savez(options.path, **{name: one.astype(np.float32) for name, one in arrays.items()})


def _near(draws, rows):
    """Returns queries near some of the rows."""
    queries = rows[draws.integers(0, len(rows), 4096)]
    return queries + 0.3 * draws.standard_normal(queries.shape)


if __name__ == "__main__":
    main()
