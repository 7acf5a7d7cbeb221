"""Independent random streams from one seed, by NumPy's SeedSequence. No generator is global.

All seeds are below 2^31: ale-py takes larger ones as errors and negative ones as "no seed".
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Generator, Tensor


def derive_seed(seed: int, *path: int | str) -> int:
    """The seed of the stream that `path` names; different paths and seeds give independent streams.

    Exception: trailing zeros of a path have no effect if seed and path have at most four 32-bit
    words.
    """
    words = [zlib.crc32(part.encode()) if isinstance(part, str) else part for part in path]
    return _draw(seed, *words) & 0x7FFFFFFF


def episode_seed(seed: int, stream: int, env: int, episode: int) -> int:
    """The seed of one episode of one environment. `stream` is 0 for training, else evaluations."""
    # Not the bits of `derive_seed`: saved runs replay these.
    return _draw(seed, stream, env, episode) >> 1


def _draw(*words: int) -> int:
    """32 random bits."""
    return int(np.random.SeedSequence(words).generate_state(1)[0])


def restore_generator(generator: Generator, state: Tensor) -> bool:
    """Set the generator's state; returns False if `state` is of another kind of device."""
    if state.shape != generator.get_state().shape:
        return False
    generator.set_state(state)
    return True
