"""When a vector environment resets: in the step that ends an episode, or in the next one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vantage.envs.checks import reset_step_fault
from vantage.envs.descriptions import shown
from vantage.envs.other_interfaces import metadata_of
from vantage.envs.outcomes import OutcomeError

if TYPE_CHECKING:
    from torch import Tensor

    from vantage.envs.tensors import TensorObs

FINAL_OBS = ("final_obs", "final_observation")
"""Keys of `info` for the last observations of episodes, in new and old versions of Gymnasium."""
TIME_OUTS = "time_outs"
"""Key of `info` for the ends by a time limit, in Isaac Gym, Isaac Lab, rsl_rl and rl_games."""
_DECLARE = ("declare metadata = {'autoreset_mode': AutoresetMode.SAME_STEP}, from "
            "gymnasium.vector, if the environment resets in the step that ends an episode")


@dataclass(frozen=True, slots=True)
class Autoreset:
    """The autoreset mode of a vector environment in tensors, and how its steps are read."""

    mode: str | None
    """SAME_STEP, NEXT_STEP, or None, which is NEXT_STEP unless a step contradicts it."""

    @property
    def same_step(self) -> bool:
        """The step that ends an episode returns the next one's first observation."""
        return self.mode == "SAME_STEP"

    def check(self, info: Mapping[str, Any]) -> None:
        """OutcomeError for a step whose `info` does not fit the mode."""
        if not self.same_step:
            check_info_of_ends(info, self.mode)

    def check_reset_steps(self, resetting: Tensor, rewards: Tensor, over: Tensor) -> None:
        """OutcomeError where no mode is declared and steps that only reset pay or end again."""
        if self.mode is None and (fault := reset_step_fault(resetting, rewards, over)):
            raise OutcomeError(f"{fault.words}, although it only resets; {_DECLARE}, else let it "
                               "pay 0 and end nothing")

    def time_outs(self, info: Mapping[str, Any], over: Tensor,
                  terminated: Tensor) -> Tensor | None:
        """[B] bool where a time limit ended the episode; None unless in the same step.

        `time_outs` in `info` decides, if there are any: many such environments report one flag for
        all ends.
        """
        if not self.same_step:
            return None
        value = info.get(TIME_OUTS)
        if value is None:
            return over & ~terminated
        if getattr(value, "shape", None) != over.shape:
            raise OutcomeError(f"time_outs is {shown(value)}; return a tensor of shape "
                               f"{tuple(over.shape)}, True at time limits")
        is_limit: Tensor = over & (value != 0)
        return is_limit

    def final_obs(self, info: Mapping[str, Any],
                  observe: Callable[[Any], TensorObs]) -> TensorObs | None:
        """The last observations of episodes that ended, [B, ...], if `info` has them."""
        if not self.same_step:
            return None
        given = next((info[name] for name in FINAL_OBS if info.get(name) is not None), None)
        return None if given is None else observe(given)


def mode_of(vector: Any) -> str | None:
    """The name of the autoreset mode in the metadata of `vector`; None if it declares none."""
    mode = metadata_of(vector).get("autoreset_mode")
    return getattr(mode, "name", mode)


def check_info_of_ends(info: Mapping[str, Any], mode: str | None = "NEXT_STEP") -> None:
    """OutcomeError if `info` is that of an environment that resets in the same step."""
    # An environment that declares NEXT_STEP may report its time limits under any name.
    names = FINAL_OBS if mode == "NEXT_STEP" else (*FINAL_OBS, TIME_OUTS)
    for name in names:
        if name in info:
            other = ", NEXT_STEP if the next step only resets" if name == TIME_OUTS else ""
            raise OutcomeError(f"info has {name}, as of environments that reset in the step that "
                               f"ends an episode; {_DECLARE}{other}, or leave {name} out")
