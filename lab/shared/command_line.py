"""The common part of the command lines of the lab."""

import argparse


def new_parser(program, description):
    """Returns a parser for `python -m lab.PROGRAM`. Its help is the program's docstring."""
    return argparse.ArgumentParser(
        f"python -m lab.{program}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
