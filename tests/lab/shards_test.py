import json

import pytest

from lab.distribution import shards

SMALL = "--num-classes 300 --dim 8 --batch-size 16 --num-sampled 20 --steps 8".split()


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["uniform", "inverted_file"])
def test_a_step_in_shards_is_timed(sampler):
    options = shards._parser().parse_args([*SMALL, "--sampler", sampler])
    figures = shards.train(options, 3, [])
    assert figures["ms"] > 0 and figures["steps"] == 8 and figures["trainer_mb"] > 100


@pytest.mark.slow
def test_servers_are_compared_with_one_process(tmp_path):
    shards.main([*SMALL, "--rounds", "1", "--json", f"{tmp_path}/shards.json"])
    report = json.loads((tmp_path / "shards.json").read_text())
    one, _, on_servers = report["rows"]
    assert one["server_mb"] == [] and len(on_servers["server_mb"]) == 2
    assert min(on_servers["server_mb"]) > 100
