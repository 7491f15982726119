"""The servers that this process is connected to."""

JOB = "shards"
_addresses: list[str] = []


def addresses() -> tuple[str, ...]:
    """Addresses of the servers that this process is connected to; none without `connect`."""
    return tuple(_addresses)


def device_of(shard: int) -> str | None:
    """The device of shard `shard`, on server `shard` mod their number; None for this process."""
    if not _addresses:
        return None
    return f"/job:{JOB}/replica:0/task:{shard % len(_addresses)}/device:CPU:0"
