"""Independent random streams from one seed, by NumPy's SeedSequence. No generator is global."""

from __future__ import annotations

import zlib

import numpy as np


def derive_seed(seed: int, *path: int | str) -> int:
    """A seed below 2^31 for the stream that `path` names; different paths and seeds give independent streams.

    Below 2^31 since ale-py takes larger ones as errors and negative ones as "no seed".
    """
    words = [zlib.crc32(part.encode()) if isinstance(part, str) else part for part in path]
    return int(np.random.SeedSequence((seed, *words)).generate_state(1)[0]) & 0x7FFFFFFF
