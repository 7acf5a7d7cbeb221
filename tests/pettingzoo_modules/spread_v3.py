"""Named as PettingZoo's modules of parallel environments are."""

from functools import partial

from pettingzoo_envs import Relay

parallel_env = partial(Relay)
raw_env = env = partial(Relay)
