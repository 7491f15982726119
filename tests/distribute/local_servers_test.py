import pytest

from tf_largeout.distribute.local_servers import local_servers


def test_servers_are_started_with_the_given_command_and_host():
    said = r"did not start: .*python\S* -m tf_largeout.distribute.server --host 10.0.0.9 --port"
    with (
        pytest.raises(RuntimeError, match=said),
        local_servers(
            2, "10.0.0.9", ["echo"]
        ),  # `echo` prints the command instead of starting it
    ):
        pass
