"""Memories between the torso and the heads: one file each. `interface` says what a memory is."""

from vantage.models.memory.build import make_memory, unroll
from vantage.models.memory.interface import Memory

__all__ = ["Memory", "make_memory", "unroll"]
