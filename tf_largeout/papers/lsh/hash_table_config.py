"""`HashTableConfig`: the configuration of the hash tables of an `LSHSampler`."""

from typing import Any

from tf_largeout.arguments import one_of, whole_number
from tf_largeout.papers.lsh.hash_tables import DEFAULT_BIN_SIZE, HASHES, checked_bin_size
from tf_largeout.papers.lsh.rebuild_schedule import RebuildSchedule
from tf_largeout.types import Config


class HashTableConfig:
    """The hash tables of an `LSHSampler`: L tables of K hashes, and when they are rebuilt.

    Args:
        hash: "simhash", "dwta" or "wta".
        num_hashes: K. None chooses K such that the L buckets of a query contain about `8
            num_sampled` entries if all buckets have equal size.
        num_tables: L.
        rebuild_every: Steps between the first two builds.
        rebuild_growth: Growth factor g of this interval after each rebuild: rebuild i is
            at step `rebuild_every (g^i - 1) / (g - 1)`.
        bin_size: For "dwta" and "wta", how many numbers a hash value compares: a power of two
            from 2 to 256, 8 by default. A value has `log2(bin_size)` bits. "simhash" does not
            use it. Vijayanarasimhan et al. 2015 (section 4) use 16 with 1,000 tables of 3
            hashes: k = 16, M = 1,000 bands, P = 3,000 permutations.

    Raises:
        ValueError: If an argument is out of range.

    Example:
        LSHSampler(1024, tables=HashTableConfig(num_tables=20, rebuild_growth=2.0))
    """

    def __init__(
        self,
        hash: str = "simhash",
        num_hashes: int | None = None,
        num_tables: int = 50,
        rebuild_every: int = 50,
        rebuild_growth: float = 1.5,
        bin_size: int = DEFAULT_BIN_SIZE,
    ) -> None:
        self.hash = one_of("hash", hash, HASHES)
        self.num_hashes = whole_number("num_hashes", num_hashes, or_none=True)
        self.num_tables = whole_number("num_tables", num_tables)
        schedule = RebuildSchedule(rebuild_every, rebuild_growth)
        self.rebuild_every, self.rebuild_growth = schedule.every, schedule.growth
        self.bin_size = checked_bin_size(bin_size)

    def get_config(self) -> Config:
        """Returns the arguments as values that JSON supports."""
        return dict(vars(self))

    @classmethod
    def get(cls, identifier: Any) -> "HashTableConfig":
        """Returns the configuration for a `HashTableConfig`, a dict of its arguments, or None.

        Raises:
            ValueError: If it is something else, or a key is not an argument.
        """
        if isinstance(identifier, cls):
            return identifier
        names = list(vars(cls()))
        given = {} if identifier is None else identifier
        if not isinstance(given, dict) or given.keys() - set(names):
            raise ValueError(
                f"`tables` must be a HashTableConfig, or a dict with some of the keys {names}. "
                f"Received: tables={identifier!r}."
            )
        return cls(**given)
