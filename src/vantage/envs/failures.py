"""Errors that environments raise: named by the environment and its step, or ignored at its end."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from vantage._host.time_limit import TimeLimit
from vantage.envs.descriptions import error_words
from vantage.envs.outcomes import OutcomeError, unpacking
from vantage.errors import EnvError, VantageError

CLOSE_SECONDS = 1.0
"""Time that environments may take to close before they are abandoned."""


@contextmanager
def named_errors(place: Callable[[], str]) -> Iterator[None]:
    """Turn errors other than Vantage's own into an EnvError whose text begins with `place`."""
    try:
        yield
    except VantageError:
        raise
    except BaseException as error:  # SystemExit and GeneratorExit would end a run without a word
        if is_interrupt(error):
            raise
        raise EnvError(failure(place(), error)) from cause(error)


def is_interrupt(error: BaseException) -> bool:
    """Whether a signal caused `error`, not an environment that raised KeyboardInterrupt itself."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    handler = signal.getsignal(signal.SIGINT)
    is_default_handler = handler is signal.default_int_handler
    if type(error) is not KeyboardInterrupt or not frames or is_default_handler:
        return True
    if frames[-1].f_code is getattr(handler, "__code__", None):
        return True
    return str(frames[-1].f_globals.get("__name__")).partition(".")[0] == "vantage"


def failure(place: str, error: BaseException) -> str:
    """`error` at `place`, in words."""
    if isinstance(error, OutcomeError):
        return f"{place}: {error}"
    return f"{place}: {unpacking(error) or error_words(error)}"


def cause(error: BaseException) -> BaseException | None:
    """`error` as the cause of an EnvError; None if the message already says everything."""
    return None if isinstance(error, OutcomeError) or unpacking(error) else error


def close_quietly(env: Any) -> None:
    """Close an environment; abandon it if that fails or takes too long."""
    with suppress(Exception, SystemExit), TimeLimit(CLOSE_SECONDS):
        env.close()
