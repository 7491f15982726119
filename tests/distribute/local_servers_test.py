import pytest

from tf_largeout.distribute.local_servers import local_servers


def test_servers_are_started_by_a_command_at_an_address():
    said = r"did not start: .*python\S* -m tf_largeout.distribute.server --host 10.0.0.9 --port"
    with (
        pytest.raises(RuntimeError, match=said),
        local_servers(2, "10.0.0.9", ["echo"]),  # which starts nothing, but says what it was to
    ):
        pass
