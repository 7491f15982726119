import json
import subprocess

import pytest

from tf_largeout.benchmarks import traffic


def test_the_formula_adds_what_goes_to_each_server_and_back():
    dim, num_servers, batch, sampled = 16, 3, 10, 60
    of_server = 2 * 4 * dim * batch  # features, and their gradient
    of_server += 8 * batch + 4 * batch + 4 * batch + 8 * batch  # ids and logits, and back
    of_row = 2 * 4 * dim + 8 + 4 + 4  # the row and its gradient; its id, its bias, and back
    expected = num_servers * of_server + sampled * of_row
    assert traffic.formula(dim, num_servers, batch, sampled) == expected


def has_networks():
    """Whether this machine lets us have a network of our own."""
    command = ["unshare", "-rn", "ip", "link", "set", "lo", "up"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.skipif("not has_networks()", reason="no network of its own on this machine")
def test_what_is_counted_is_what_the_formula_says(tmp_path):
    path = tmp_path / "traffic.json"
    small = "--num-classes 20000 --steps 10 --servers 2 --batch-sizes 256 --json".split()
    traffic.main([*small, str(path)])
    (row,) = json.loads(path.read_text())["rows"]
    assert row["formula"] < row["bytes"] < 1.3 * row["formula"]
