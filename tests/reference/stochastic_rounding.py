"""Stochastic rounding to bfloat16 (Gupta et al. 2015, section 3), one draw at a time.

The random bits are those of Philox4x32-10 (Salmon et al. 2011, section 3.3).
"""

import numpy as np

_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF


def philox(counter, key):
    """Returns four random words for a counter of four words and a key of two."""
    counter, key = list(counter), list(key)
    for _ in range(10):
        products = _MULTIPLIERS[0] * counter[0], _MULTIPLIERS[1] * counter[2]
        counter = [
            (products[1] >> 32) ^ counter[1] ^ key[0],
            products[1] & _LOW,
            (products[0] >> 32) ^ counter[3] ^ key[1],
            products[0] & _LOW,
        ]
        key = [(one + step) & _LOW for one, step in zip(key, _KEY_STEPS, strict=True)]
    return counter


def random_bits(seed, step, row, dim):
    """Returns a random number below 2^16 for each column of a row."""
    num_blocks = -(-dim // 64)
    bits = np.empty([num_blocks, 8, 8], np.uint32)
    for block in range(num_blocks):
        for i in range(8):
            draw = 8 * (row * num_blocks + block) + i
            counter = [draw & _LOW, draw >> 32, seed >> 32, step >> 32]
            words = philox(counter, [seed & _LOW, step & _LOW])
            bits[block, :, i] = [half for one in words for half in (one & 0xFFFF, one >> 16)]
    return bits.reshape(-1)[:dim]


def rounded(values, seed, step, row):
    """Rounds float32 `[dim]`, row `row` of a table, at random.

    The bits below bfloat16 and a random number of as many bits are added, and what is then
    below bfloat16 is dropped. So the probability that x is rounded up is
    (x - lower) / (upper - lower).
    """
    values = np.asarray(values, np.float32)
    bits = values.view(np.uint32)
    sums = (bits + random_bits(seed, step, row, len(values))) & 0xFFFF0000
    largest = np.float32(2.0**127 * (2 - 2**-7))
    found = np.where(np.abs(values) > largest, np.copysign(largest, values), sums.view("f4"))
    return np.where(np.isfinite(values), found, values).astype(np.float32)
