"""Samplers that search, where each server searches its own rows."""

import pytest

from tests.distribute import trainer_process
from tf_largeout.distribute.local_servers import local_servers

# An entry of the sampler's health and its lowest value after a search.
SAMPLERS = {
    "inverted_file": ("fitted_at", 0),
    "inverted_file draws": ("fitted_at", 0),
    "lsh": ("fresh_share", 0.9),
    "lsh head": ("fresh_share", 0.9),
    "lsh walk": ("fresh_share", 0.9),
    "kernel_tree": ("built_at", 0),
    "kernel_tree own": ("built_at", 0),
    "kernel_tree cosine": ("built_at", 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_search_on_servers_is_bit_identical_to_one_process(sampler):
    """Bit-identical, with the state on the servers; the trainer never holds the matrix."""
    with local_servers(2) as servers:
        addresses = [one.address for one in servers]
        ended = trainer_process.run("searching_trainer", sampler, *addresses)
    found = trainer_process.found(ended)
    assert found["losses"] == found["expected"] and found["equal"]
    in_shards = {name: at for name, at in found["devices"].items() if "_of_3" in name}
    assert len(in_shards) >= 3 * 4
    for name, device in in_shards.items():
        assert f"ps/replica:0/task:{int(name[-len('0_of_3')]) % 2}/" in device
    name, least = SAMPLERS[sampler]
    assert found["health"][name] >= least
    assert found["grown_mb"] < found["matrix_mb"] / 2
