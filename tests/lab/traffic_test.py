import json
import os
import subprocess
import sys

import pytest

from lab.distribution import traffic
from tests.lab.networks import UNSHARE, needs_network, needs_relay

SMALL = "--num-classes 20000 --steps 10 --servers 2 --batch-sizes 256".split()


def test_the_formula_adds_the_bytes_to_and_from_each_server():
    dim, num_servers, batch, sampled = 16, 3, 10, 60
    of_server = 2 * 4 * dim * batch  # features, and their gradient
    of_server += 8 * batch + 4 * batch + 4 * batch + 8 * batch  # ids and logits, and back
    of_row = 2 * 4 * dim + 8 + 4 + 4  # the row and its gradient; its id, its bias, and back
    expected = num_servers * of_server + sampled * of_row
    assert traffic.formula(dim, num_servers, batch, sampled) == expected


def row(servers, delay_ms, ms):
    trip = None if delay_ms is None else 2 * delay_ms + 0.1
    case = {"megabits": 0, "servers": servers, "batch_size": 8, "num_sampled": 9}
    figures = {"steps_per_execution": 1, "round_trip_ms": trip, "ms": ms}
    return {"delay_ms": delay_ms, **case, **figures}


def test_waits_are_the_slope_of_step_time_over_round_trip_time():
    of_two = [row(2, 0.5, 10.3), row(2, 1.0, 13.3), row(2, 5.0, 37.3)]
    of_four = [row(4, 1.0, 24.0), row(4, 2.0, 28.0)]
    others = [row(2, None, 99.0), row(2, 0.0, 0.0)]  # no delay
    others += [row(3, 1.0, 9.0), row(3, 1.0, 10.0)]  # one delay only
    two, four = traffic.waits_of([*of_two, *others, *of_four])
    assert (two["servers"], four["servers"]) == (2, 4)
    assert two["round_trips"] == pytest.approx(3) and four["round_trips"] == pytest.approx(2)


@pytest.mark.parametrize(
    "option, value, expected",
    [
        ("--delay-ms", "-1", "`none` or milliseconds from 0 to 1000"),
        ("--delay-ms", "nan", "`none` or milliseconds from 0 to 1000"),
        ("--delay-ms", "soon", "`none` or milliseconds from 0 to 1000"),
        ("--megabits", "-1", "a whole number from 0 on"),
        ("--steps-per-execution", "0", "a whole number from 1 on"),
        ("--servers", "two", "a whole number from 1 on"),
    ],
)
def test_impossible_options_raise_an_error(capsys, option, value, expected):
    with pytest.raises(SystemExit):
        traffic.main([f"{option}={value}"])
    said = capsys.readouterr().err
    assert f"expected {expected}; got {value!r}" in said


@pytest.mark.slow
@needs_network
def test_counted_bytes_match_the_formula(tmp_path):
    path = tmp_path / "traffic.json"
    traffic.main([*SMALL, "--json", str(path)])
    (found,) = json.loads(path.read_text())["rows"]
    assert found["formula"] < found["bytes"] < 1.3 * found["formula"]


@pytest.mark.slow
@needs_relay
def test_a_step_waits_for_delayed_packets(tmp_path):
    path = tmp_path / "traffic.json"
    delays = ["--steps-per-execution", "1", "2", "--delay-ms", "5", "20"]
    traffic.main([*SMALL, *delays, "--json", str(path)])
    report = json.loads(path.read_text())
    for found in report["rows"]:
        assert found["formula"] < found["bytes"] < 1.3 * found["formula"]
        assert found["round_trip_ms"] >= 2 * found["delay_ms"]
        # rows and the gradient of features come one after the other
        assert found["ms"] > 2 * found["round_trip_ms"]
    assert len(report["rows"]) == 4 and len(report["waits"]) == 2


@pytest.mark.slow
@needs_relay
def test_missing_rights_to_tun_devices_are_reported():
    module = "-m lab.distribution.traffic --inside --delay-ms 1".split()
    command = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"]
    program = [*UNSHARE, *command, sys.executable, *module]
    call = subprocess.run(program, capture_output=True, text=True, check=False, env=os.environ)
    assert call.returncode == 1 and "A delay needs /dev/net/tun" in call.stderr
