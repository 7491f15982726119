"""The command line of the comparison, its table and its JSON."""

import json

import pytest

from custom_ops.cuda.compare import __main__ as program
from custom_ops.cuda.compare import report
from custom_ops.cuda.compare.measure import Measurement
from tests.cuda_compare.host_functions import HostFunctions, host_blas, host_library

SMALL = "--classes 200 --dim 8 --batch 16 --sampled 32 --exact-batch 8 --top-k 5 --block 64"


def test_the_sizes_of_the_issue_are_the_defaults():
    sizes = program.sizes_of(program.parse([]))
    assert (sizes.batch, sizes.sampled, sizes.classes, sizes.dim) == (4096, 8192, 10**6, 128)


def test_sizes_are_options():
    sizes = program.sizes_of(program.parse(SMALL.split()))
    assert (sizes.classes, sizes.top_k, sizes.block) == (200, 5, 64)
    assert program.parse(["--classes", "2_000_000"]).classes == 2_000_000


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--batch 0", "0 is not positive"),
        ("--dim x", "invalid positive_number value: 'x'"),
        ("--sampled 600 --classes 1000", "more than half of the classes"),
        ("--top-k 3000", "expected at most 2048"),
        ("--top-k 101 --classes 100 --sampled 9", "expected at most 100"),
        ("--tasks other", "invalid choice: 'other'"),
    ],
)
def test_wrong_options_are_told_of(arguments, told, capsys):
    with pytest.raises(SystemExit) as ended:
        program.parse(arguments.split())
    assert ended.value.code == program.WRONG_ARGUMENTS
    assert told in capsys.readouterr().err


@pytest.fixture
def host(monkeypatch):
    """The program with launchers in numpy, without other frameworks."""
    functions = HostFunctions()
    monkeypatch.setattr(program.library, "load", lambda path: host_library(functions))
    monkeypatch.setattr(program.blas, "load", host_blas)
    monkeypatch.setattr(program, "frameworks", lambda compiled: ({"torch": "not compared"}, []))
    return functions


def test_the_program_measures_all_tasks_and_writes_them(host, tmp_path, capsys):
    path = tmp_path / "new" / "out.json"
    arguments = [*SMALL.split(), "--repetitions", "2", "--json", str(path)]
    assert program.main(arguments) == 0
    printed = capsys.readouterr().out
    for text in ("gpu: host", "cublas: 130100", "torch: not compared", "16 x 32 of 200"):
        assert text in printed
    told = json.loads(path.read_text())
    assert [one["task"] for one in told["results"]] == [
        *("sampled", "sampled", "loss", "softmax", "top_k")
    ]
    assert all(len(one["milliseconds"]) == 2 for one in told["results"])
    assert all(one["ratio"] == 1 for one in told["results"])
    assert told["sizes"]["exact_batch"] == 8


def test_a_wrong_result_of_ours_fails_the_program(host, capsys):
    host.class_top_k = lambda *arguments: 0
    assert program.main([*SMALL.split(), "--tasks", "top_k"]) == program.FAILED
    assert "wrong: scores by nan" in capsys.readouterr().out


def test_without_a_gpu_nothing_is_run(host, capsys):
    host.device_name = lambda *arguments: 100
    assert program.main([]) == program.NO_GPU
    assert capsys.readouterr().out.startswith("No GPU to run on: device_name: ")


def test_ratios_are_to_ours_in_the_same_precision_or_in_float32():
    rows = [
        Measurement("loss", "PyTorch", "", "TF32", milliseconds=[3.0]),
        Measurement("loss", "PyTorch", "", "float32", failure="out of memory"),
        Measurement("loss", "tf_largeout", "", "float32", milliseconds=[1.0, 2.0, 9.0]),
    ]
    assert [report.ratio(one, rows) for one in rows] == [1.5, None, 1]
    both = [*rows, Measurement("loss", "tf_largeout", "", "TF32", milliseconds=[1.0])]
    assert [report.ratio(one, both) for one in both] == [3, None, 1, 1]
    lines = report.table(rows, program.sizes_of(program.parse([]))).splitlines()
    assert lines[0] == "exact softmax loss: 512 x 1000000, 128 wide"
    assert lines[2].split() == ["tf_largeout", "float32", "2.000", "1.00", "-"]
    assert lines[3].split() == ["PyTorch", "TF32", "3.000", "1.50", "-"]
    assert lines[4].split() == ["PyTorch", "float32", *"---", "out", "of", "memory"]
