"""`require_memory`: an error instead of a process that the kernel kills."""

import os
import pathlib

_LIMIT = pathlib.Path("/sys/fs/cgroup/memory.max")  # of a container


def require_memory(needed: int, what: str, advice: str) -> None:
    """Raises an error for an array that does not fit into the memory of this machine.

    The check uses the whole memory, not the free one: other processes can end.

    Args:
        needed: The size of the array in bytes.
        what: The array and the verb of the message, such as "The tables take".
        advice: What the user can change, the last sentence of the message.

    Raises:
        ValueError: If `needed` exceeds the memory of the machine or of the container.
    """
    memory = memory_of_machine()
    if needed > memory:
        raise ValueError(
            f"{what} {needed / 2**30:.1f} GiB, and this machine has "
            f"{memory / 2**30:.1f} GiB. {advice}"
        )


def memory_of_machine() -> int:
    """Returns the memory in bytes that this process can use at most."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _LIMIT.read_text().strip() if _LIMIT.exists() else "max"
    return memory if limit == "max" else min(memory, int(limit))
