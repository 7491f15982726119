"""The servers that this process is connected to, and which of them has a shard."""

from collections.abc import Sequence

JOB = "shards"
_addresses: list[str] = []


def addresses() -> tuple[str, ...]:
    """Addresses of the servers that this process is connected to; none without `connect`."""
    return tuple(_addresses)


def set_addresses(addresses: Sequence[str]) -> None:
    """Says to which servers this process is connected."""
    _addresses[:] = addresses


def device(server: int) -> str:
    """The device of a server, by its number."""
    return f"/job:{JOB}/replica:0/task:{server}/device:CPU:0"


def device_of(shard: int) -> str | None:
    """The device of a shard: on server `shard` modulo their number; None for this process."""
    return device(shard % len(_addresses)) if _addresses else None


def address_of(shard: int) -> str | None:
    """The address of the server of a shard; None for this process."""
    return _addresses[shard % len(_addresses)] if _addresses else None
