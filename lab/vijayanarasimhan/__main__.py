"""`python -m lab.vijayanarasimhan`: all measurements of the note.

Inference on two tasks, training in equal time and in equal steps, and word vectors. The command
line is that of `lab.vijayanarasimhan.analogies`. Results are in
`benchmark-results/vijayanarasimhan/`.
"""

import sys

from lab.vijayanarasimhan import analogies, inference, training

_OUT = "benchmark-results/vijayanarasimhan"
_SEEDS = ["--seeds", "0", "1", "2"]
_RIVALS = ["uniform", "recommended"]
_LOGISTIC = ["wta_16_logistic", "wta_16_sigmoid"]
INFERENCE = {
    "inference": ["--task", "place_names"],
    "inference_linux_callees": ["--task", "linux_callees"],
}
TRAINING = {
    "equal_time": ["--methods", *training.COMPARED, *_RIVALS, *_SEEDS],
    "longer": ["--seconds", "100", "--methods", "wta_16", "huffman"],
    "logistic": ["--methods", *_LOGISTIC],
    "equal_steps": ["--steps", "400", *_SEEDS],
}


def main(arguments, of_inference=(), of_training=()):
    """Runs the three programs.

    Args:
        arguments: of `lab.vijayanarasimhan.analogies`.
        of_inference: added to the command lines of `inference`.
        of_training: added to those of `training`.
    """
    for name, own in INFERENCE.items():
        files = ["--json", f"{_OUT}/{name}.json", "--png", f"{_OUT}/{name}.png"]
        inference.main([*own, *files, *of_inference])
    for name, own in TRAINING.items():
        training.main([*own, "--json", f"{_OUT}/{name}.json", *of_training])
    analogies.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
