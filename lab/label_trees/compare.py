"""`python -m lab.label_trees.compare`: precision and cost compared with other libraries.

Trains label trees (Omikuji, napkinXC) and fastText on the same splits and feature ids as models
of `tf_largeout`. Prints one table per task: precision, the cost of training, and the cost of
the model and its answers. The trees get TF-IDF weights of the ids, fastText the ids as words.
They train to their end. Our models train for `--seconds` of computation each. All settings were
chosen on a validation split and are in `RIVALS` and `METHODS`. `pip install
'tf_largeout[rivals]'` installs the other libraries.

CPU seconds and milliseconds are the sum over all cores and do not depend on other programs.
`memory` is the growth of the process in training, data included.
"""

import argparse
import ast
import pathlib

from benchmarks.harness import machine
from benchmarks.harness.files import write_json
from benchmarks.harness.tasks import TASKS
from benchmarks.harness.training import TrainingRun
from benchmarks.race import race
from benchmarks.rivals.rival_run import RivalRun
from benchmarks.table import COSTS, comparison, text_table, write_markdown
from lab.label_trees.joined_run import JoinedRun
from lab.label_trees.rivals import RIVALS
from lab.shared.command_line import new_parser
from lab.shared.methods import METHODS

_JOINED = ["several_labels x3", "several_labels_bigrams x3"]
_OURS = ["inverted_file", "recommended", "nce"]
_SEVERAL_LABELS = [*_OURS, "several_labels", "several_labels_bigrams", *_JOINED]


def main(arguments=None):
    """Measures what the command line asks for and returns the report."""
    options = _parser().parse_args(arguments)
    out = pathlib.Path(
        options.out or f"benchmark-results/practice-{options.task.replace('/', '-')}"
    )
    out.mkdir(parents=True, exist_ok=True)
    ours = _SEVERAL_LABELS if options.task.startswith("linux_callees") else _OURS
    methods = options.methods or [*RIVALS, *ours]
    logs = race([_run(method, options, str(out)) for method in methods])
    rows = comparison(list(logs.values()))
    write_json(
        options.json or out / "practice.json",
        {"machine": machine.describe(), "task": options.task, "rows": rows},
    )
    write_markdown(options.markdown or out / "practice.md", rows, COSTS)
    print(text_table(rows, COSTS).to_string(index=False))
    return rows


def _run(method, options, out):
    shared = {"task": options.task, "method": method, "directory": out}
    if method in RIVALS:
        return RivalRun(
            **shared,
            sample=options.sample,
            overrides=dict(options.set),
            on_validation=options.validation,
            rivals=RIVALS,
        )
    shared |= {"seconds": options.seconds, "on_validation": options.validation}
    if method in _JOINED:
        return JoinedRun(**shared, sample=options.sample)
    return TrainingRun(
        **shared,
        every=options.seconds,
        final_sample=options.sample,
        resumable=False,
        by_cpu=True,
        methods=METHODS,
    )


def rival_setting(text):
    """Parses `NAME=VALUE`, with the library's name of the setting, as (name, value)."""
    name, _, value = text.partition("=")
    if not name or not value:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE; got {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _parser():
    parser = new_parser("label_trees.compare", __doc__)
    add = parser.add_argument
    add("--task", choices=TASKS, default="linux_callees")
    add(
        "--methods",
        nargs="+",
        choices=[*METHODS, *_JOINED, *RIVALS],
        help="default: the rivals and our models, joined ones for multi-label tasks",
    )
    add("--seconds", type=float, default=160.0, help="CPU seconds of training, of each model")
    add("--sample", type=int, default=10_000, help="test examples")
    add("--validation", action="store_true", help="test on a part of the training split")
    add(
        "--set",
        type=rival_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="for all rivals, with the library's names; use a separate --out",
    )
    add("--out", help="directory of the logs; what is finished there is not run again")
    add("--json", help="file for the figures (default: OUT/practice.json)")
    add("--markdown", help="file for the table (default: OUT/practice.md)")
    return parser


if __name__ == "__main__":
    main()
