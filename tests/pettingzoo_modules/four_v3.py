"""Named as PettingZoo's modules of games in turns are."""

from functools import partial

from pettingzoo_envs import TicTacToe

raw_env = env = partial(TicTacToe)
