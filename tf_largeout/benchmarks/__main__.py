"""`python -m tf_largeout.benchmarks NAME`; a new benchmark is one line in `BENCHMARKS`."""

import importlib
import os
import sys

BENCHMARKS = {
    "demo": "four ways to train a model on 202,458 classes, and what it answers",
    "step": "time and memory of a training step against its shape",
    "factored": "time of a step of the output layer alone against the number of classes",
    "race": "precision against seconds of training, methods side by side",
    "epochs": "precision after as many epochs, methods side by side",
    "defaults": "what each optimizer learns with nothing said, at equal steps",
    "practice": "ours beside the libraries one would pick instead: precision and what it costs",
    "table": "finished runs of one task side by side, as table and picture",
    "tune": "the learning rate of each method, on a validation split",
    "starts": "precision after some seconds against the step in which the search begins",
    "search": "recall of the exact top k against milliseconds, search by search",
    "retrieval": "recall of indexes, exports and other libraries against time",
    "likelihood": "how near sampled losses come to exact maximum likelihood",
    "hashing": "rows a second of each locality-sensitive hash",
    "kernel_tree": "milliseconds to sample from a kernel tree, and to keep it up to date",
    "tied": "a language model's step with one table for input and output, and with two",
    "language_model": "exact perplexity of a language model against negatives a step",
    "exact_softmax": "time of exact softmax steps: float32, bfloat16, Keras Dense",
    "growth": "classes that are added to a trained model",
    "hardness": "what the negatives of each sampler are like, over training",
    "shards": "what it costs to cut the classes into shards, here and on servers",
    "replicas": "what a step costs on several replicas of this machine",
    "asynchronous": "examples a second and precision with several trainers",
    "kills": "what is lost when a server or the trainer ends, or a disk is full",
    "traffic": "bytes between trainer and servers in a step, and the round trips it waits for",
    "profile": "where the time of a training step goes",
}


def main(arguments):
    """Runs the benchmark that the first argument names; returns the exit code."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if not arguments or arguments[0] not in BENCHMARKS:
        lines = [f"  {name:16}{text}" for name, text in BENCHMARKS.items()]
        print("usage: python -m tf_largeout.benchmarks NAME [options]", *lines, sep="\n")
        return 0 if arguments in (["-h"], ["--help"]) else 2
    importlib.import_module(f"tf_largeout.benchmarks.{arguments[0]}").main(arguments[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
