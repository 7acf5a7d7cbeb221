"""Measured defaults and presets, as data."""
