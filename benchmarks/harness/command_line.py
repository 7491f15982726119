"""The common part of the benchmarks' command lines."""

import argparse


def new_parser(name, description, has_picture=True):
    """Returns a parser for `python -m benchmarks NAME`, with options for its files.

    Args:
        name: Name of the benchmark.
        description: Docstring of the benchmark.
        has_picture: Whether to add the option `--png`, in addition to `--json`.
    """
    parser = argparse.ArgumentParser(
        f"python -m benchmarks {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", help="file for the figures")
    if has_picture:
        parser.add_argument("--png", help="file for the picture")
    return parser
