"""`python -m lab.daghaghi.package_files`: dependencies of Debian packages as `xmc` files.

Writes the problem `package_depends` of `lab.negatives.start_problems` in the format of the
Extreme Classification Repository, to the folder for manual downloads. It is then the task
`xmc/package_depends`, and `xmc/package_depends@COUNT` is a variant with nearly uniform labels.
Classes with few training examples are left out, and so are examples without other classes.
Features that do not occur are left out of the numbering.
"""

import pathlib

import numpy as np

from lab.negatives import start_problems
from lab.shared.command_line import new_parser
from tf_largeout.datasets.sources import Folders

NAME = "package_depends"


def main(arguments=None):
    """Writes the files and returns their folder."""
    options = _parser().parse_args(arguments)
    task, (features, labels) = start_problems.load(NAME, 1, 0, folder=options.problems)
    num_classes = int(np.count_nonzero(task.label_counts >= options.least))
    folder = pathlib.Path(options.folder or Folders.of_data_dir().manual / "xmc" / NAME)
    folder.mkdir(parents=True, exist_ok=True)
    known = np.unique(features[features > 0])  # 0 is padding
    for file, split in {"train.txt": (features, labels), "test.txt": task.test}.items():
        lines = list(_lines(*split, known, num_classes))
        sizes = f"{len(lines)} {len(known)} {num_classes}\n"
        (folder / file).write_text(sizes + "".join(lines))
        print(f"{folder / file}: {len(lines):,} examples of {num_classes:,} classes")
    return folder


def _lines(features, labels, known, num_classes):
    """Yields the examples with labels below `num_classes` as text, with weights of 1.

    Features are numbered by their place in `known`. Others are left out.
    """
    for ids, own in zip(features, labels, strict=True):
        own = own[(own >= 0) & (own < num_classes)]
        if len(own):
            places = np.searchsorted(known, np.intersect1d(ids, known))
            pairs = " ".join(f"{place}:1" for place in places)
            yield f"{','.join(map(str, own))} {pairs}\n"


def _parser():
    parser = new_parser("daghaghi.package_files", __doc__)
    add = parser.add_argument
    add("--least", type=int, default=3, help="training examples of the rarest class")
    add("--folder", help="of the files; default: that of `tasks.load`")
    add("--problems", default="benchmark-results/start-problems", help="see lab.negatives")
    return parser


if __name__ == "__main__":
    main()
