"""Observation spaces: what a part is taken for, what its numbers become, and how those that cannot be read are refused."""

from __future__ import annotations
