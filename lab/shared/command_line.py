"""The common part of the command lines of the lab."""

import argparse


def new_parser(program, description):
    """A parser for `python -m lab.PROGRAM`, whose help is the docstring of the program."""
    return argparse.ArgumentParser(
        f"python -m lab.{program}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
