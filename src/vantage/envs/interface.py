"""Data that environments exchange with training, and the interface of simulators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
from numpy.typing import NDArray

from vantage._host.seeding import episode_seed
from vantage.envs.outcomes import MASK as MASK
from vantage.specs import EnvSpec, Episode

Array = NDArray[Any]
Obs = Array | Mapping[str, Array]
Snapshot = Mapping[str, Array]
Info = dict[str, Any]
Outcome = tuple[Obs, Array, Array, Array, Info]
"""Observations, rewards, terminated, truncated and info of one step."""

# steps of an evaluation's game, unless the environment has a time limit of its own
LONGEST_GAME = 10_000
RESEED_STEPS = 20_000
"""Steps after which a reset is seeded again: seeded resets stay too rare to cost time, and replays
stay short. Atari's reload the ROM: 80-145 ms instead of 3-5 ms, below 1% of the time."""
IDLE = -1  # episode number of an environment that is not yet reset in a replay


@dataclass(frozen=True, slots=True)
class First:
    """Observations before the first step; tensors on the device of an environment in tensors."""

    obs: Obs
    is_first: Array  # [B] bool; False where a snapshot was restored in the middle of an episode
    action_mask: Array | None
    # environments that began anew: their replay did not reproduce the saved observation
    lost: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one action in each environment; tensors as for `First`."""

    obs: Obs
    """After the step: images [B, C, H, W] in uint8 or float32, vectors [B, N] in float32, or a
    mapping."""
    rewards: Array  # [B] float32 after clipping and scaling, else float64
    # [B] bool: the task (in classic Atari training: the life) ended; not at a time limit
    terminated: Array
    is_first: Array  # [B] bool: `obs` opens an episode, so this step only reset
    valid: Array  # [B] bool: False where the action was ignored (reset) or replaced (forced FIRE)
    action_mask: Array | None  # [B, A] bool, of `obs`
    episodes: tuple[Episode, ...]  # games that finished at this step, with raw scores
    time_outs: Array | None = None
    """[B] bool: a time limit ended the episode, and `obs` is already the next one's first
    (SAME_STEP). None where environments reset in the next step."""
    final_obs: Obs | None = None
    """With `time_outs`: the last observations of the episodes that ended, if they are known."""


@dataclass(slots=True)
class Seeds:
    """Seeds of the episodes of each environment of a run. `Environments.restart` changes `seed`."""

    name: str  # of the environment, for messages
    seed: int
    stream: int  # 0 trains, others evaluate
    first_env: int = 0  # index in the run of the first environment here; methods count from it
    agents: tuple[Any, ...] = ()
    """The ids of the agents of each environment, if these have several, with a row each."""

    def of(self, env: int, episode: int) -> int:
        return episode_seed(self.seed, self.stream, self.first_env + env, episode)

    def of_all(self, episodes: Array) -> list[int]:
        return [self.of(env, max(0, episode)) for env, episode in enumerate(episodes.tolist())]

    def place(self, env: int, episode: int, step: int) -> str:
        """Where an error happened, in words; step 0 is the reset."""
        number = self.first_env + env
        agent = ""
        seeded = env
        if self.agents:
            number, i = divmod(number, len(self.agents))
            agent = f"agent {self.agents[i]} of "
            seeded = env - i  # its first agent's row
        return (f"{agent}environment {number} of {self.name} (seed {self.of(seeded, episode)}, "
                f"episode {episode}, step {step})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulators:
    """B simulators in the policy's shapes, with NEXT_STEP autoreset."""

    spec: EnvSpec
    # how the environment is played, in words; the last says where the simulators run
    notes: tuple[str, ...]
    reset: Callable[[Any, Array], tuple[Obs, Info]]
    """reset(episodes, which): reset where `which` is True, with the seeds of `episodes`; returns
    observations of all. Atari's also accepts None: no seeds."""
    forgets_games: Callable[[], bool] = lambda: False
    """Whether the next game depends only on the number of resets since a seeded one."""
    step: Callable[[Array], Outcome]  # take these actions
    info: Callable[[], Info] = dict
    """What the first environment reported at its last reset or step, if this process knows it."""
    close: Callable[[], object]  # a second call does nothing
    bounds: Mapping[str, tuple[Array, Array]] = field(default_factory=dict)
    """Bounds of vector observations by the name of their part, "" for the whole observation."""
    cut_after: Callable[[int], float] | None = None
    """Cut later games after so many steps; returns `longest_game`. None if they have a limit."""
    is_endless: bool = False  # a game without a time limit, which an evaluation cuts
    why: Mapping[str, str] = field(default_factory=dict)
    """Why each part of the observation is read as it is, by name as in `bounds`."""
    # the first simulator, if it is an Env in this process
    single: Callable[[], gym.Env[Any, Any]] | None = None
    opponent: Any = None  # the `two_players.Opponent` of all rows, in self-play
    # seeds and actions reproduce the states; else nothing is seeded after the first reset
    exact: bool = True
    reseed_steps: int = 0
    """A reset at least this many steps after a seeded one is seeded again; 0: all are seeded."""
    frames_per_step: float = 1  # the mean if frame_skip is a range
    # steps after which a game is cut, if the environment does not end it before
    longest_game: float = LONGEST_GAME
    # agent steps per second in real time; None: the environment's metadata has it
    fps: float | None = None
    action_names: tuple[str, ...] = ()  # Atari's, such as UPFIRE
    fires: bool = False  # press FIRE after a reset and after a lost life
    life_signal: bool = False  # a lost life ends the bootstrap in training
