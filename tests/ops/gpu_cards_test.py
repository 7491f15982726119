"""Which GPUs and drivers can run the GPU kernels of a library; needs no GPU."""

import os
import subprocess
import sys

import pytest

from tests import fake_cuda
from tf_largeout.ops import gpu_cards
from tf_largeout.ops.gpu_cards import Machine, why_unusable

CUDA_13 = b"75-real,80-real,86-real,90-real,90-virtual by cuda 13.0.88"
CUDA_12 = b"70-real,75-real,80-real,90-real,90-virtual by cuda 12.4"
ONE_CARD = b"86-real by cuda 12.4.1"
PLAIN = b"80 by cuda 12.4"  # CMake's short form of 80-real,80-virtual


def reason(built, driver, *cards):
    record = b"\0largeout built with kernels for gpus " + built + b"\0"
    named = [(f"card {number}", card) for number, card in enumerate(cards)]
    return why_unusable(record, Machine(driver, named))


@pytest.mark.parametrize(
    ("built", "driver", "card"),
    [
        (CUDA_13, (13, 0), (7, 5)),
        (CUDA_13, (13, 0), (8, 0)),
        (CUDA_13, (13, 0), (8, 9)),  # runs the code for 8.6
        (CUDA_13, (13, 1), (12, 0)),  # compiles the PTX
        (CUDA_12, (12, 0), (7, 0)),  # an older driver of the same major version
        (CUDA_12, (13, 0), (9, 0)),
        (ONE_CARD, (12, 4), (8, 6)),
        (PLAIN, (12, 4), (8, 6)),
        (PLAIN, (12, 4), (9, 0)),
        (b"emulated by cuda 0", (1, 0), (1, 0)),
    ],
)
def test_kernels_run_on_cards_and_drivers_that_cuda_supports(built, driver, card):
    assert reason(built, driver, card) is None


@pytest.mark.parametrize(
    ("built", "driver", "card", "parts"),
    [
        (
            CUDA_13,
            (13, 0),
            (7, 0),
            ["'card 0' has compute capability 7.0", "7.5, 8.0, 8.6, "],
        ),
        (ONE_CARD, (12, 4), (8, 0), ["capability 8.0", "compiled for 8.6."]),
        (ONE_CARD, (12, 4), (9, 0), ["capability 9.0", "CUDA_VISIBLE_DEVICES"]),
        (PLAIN, (12, 4), (7, 5), ["capability 7.5", "compiled for 8.0 and newer."]),
        (CUDA_13, (12, 8), (8, 0), ["supports CUDA 12.8", "with CUDA 13.0", "toolkit 12 ("]),
        (CUDA_12, (12, 3), (12, 0), ["supports CUDA 12.3", "toolkit that supports 'card 0'"]),
    ],
)
def test_the_reason_names_an_unsupported_card_or_driver_and_the_remedy(
    built, driver, card, parts
):
    text = reason(built, driver, card)
    for part in [*parts, "LARGEOUT_CUDA=1 NVCC=/path/to/nvcc pip install"]:
        assert part in text


def test_one_unsupported_card_is_a_reason():
    assert "'card 1' has compute capability 6.1" in reason(CUDA_13, (13, 0), (9, 0), (6, 1))


def test_a_machine_without_a_gpu_or_a_library_without_kernels_has_no_reason():
    assert why_unusable(b"largeout built with kernels for gpus " + CUDA_13, None) is None
    assert why_unusable(b"ELF", Machine((1, 0), [("old", (1, 0))])) is None


def find_machine(**environment):
    """Returns the machine that a new process finds."""
    code = f"import runpy; print(runpy.run_path({gpu_cards.__file__!r})['find_machine']())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_driver_and_cards_are_read_from_cuda(tmp_path):
    fake = fake_cuda.environment(tmp_path, driver=12080, card=121)
    expected = Machine((12, 8), [("Fake V100", (12, 1))])
    assert find_machine(**fake) == str(expected)
    assert find_machine(**fake, FAKE_CUDA_ERROR="1") == "None"


def test_cuda_is_not_loaded_without_a_driver_or_outside_python(monkeypatch):
    def run(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(gpu_cards.subprocess, "run", run)
    monkeypatch.setattr(gpu_cards, "_CUDA", "libcuda_that_nobody_has.so")
    assert gpu_cards.find_machine() is None
    monkeypatch.setattr(gpu_cards, "_CUDA", "libc.so.6")
    monkeypatch.setattr(sys, "executable", "/usr/bin/uwsgi")
    assert gpu_cards.find_machine() is None


def test_a_driver_that_does_not_answer_counts_as_no_gpu(monkeypatch):
    def run(*_, timeout, **__):
        raise subprocess.TimeoutExpired("python", timeout)

    monkeypatch.setattr(gpu_cards, "_CUDA", "libc.so.6")
    monkeypatch.setattr(gpu_cards.subprocess, "run", run)
    assert gpu_cards.find_machine() is None
