"""A package with modules named as PettingZoo's."""
