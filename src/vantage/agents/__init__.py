"""A trained policy that acts, and how it is evaluated."""
