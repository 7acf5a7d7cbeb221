"""Warnings about an algorithm of the user's own: state that no checkpoint holds, and a max_kl without effect."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from vantage.config import Config
from vantage.learning.learner import APPROX_KL
from vantage.learning.own_state import own_state
from vantage.runtimes.progress import Progress

log = logging.getLogger(__name__)

UNSAVED = "unsaved"
"""Key of a checkpoint's state: what the algorithm held when it was saved, in words."""
_MOST_SHOWN = 8


class OwnAlgorithm:
    """Logs each warning once; `state` is that of the checkpoint from which the run resumes, if there is one."""

    def __init__(self, config: Config, progress: Progress, state: Mapping[str, Any] | None) -> None:
        self._config, self._progress = config, progress
        self._known: set[str] = set()
        reuse = config.algorithm.needs.reuse
        self._awaits_kl = reuse is not None and reuse.max_kl is not None
        if state is not None:
            self._note_lost(state)

    def unsaved(self) -> list[str]:
        """The state of the algorithm in all processes that no checkpoint holds, as "predictor (Linear)"."""
        return sorted(own_state(self._config.algorithm) | self._progress.unsaved)

    def note_unsaved(self) -> None:
        """Warn of state that has appeared since the last call."""
        fresh = [name for name in self.unsaved() if name not in self._known]
        self._known.update(fresh)
        if fresh:
            log.warning(f"algorithm={self._config.algo} holds {_listed(fresh)}: no checkpoint saves that, and a resume "
                        "begins it anew")

    def note_update(self) -> None:
        """After the first update: warn of a max_kl that nothing is compared with."""
        if self._awaits_kl and (logged := self._progress.logged):
            self._awaits_kl = False
            if APPROX_KL not in logged:
                log.warning(f"max_kl has no effect: algorithm={self._config.algo} logs no {APPROX_KL}, which is "
                            "compared with it; return that from loss, or leave max_kl out")

    def _note_lost(self, state: Mapping[str, Any]) -> None:
        saved = state.get(UNSAVED, [])
        names = {f"{name:.80}" for name in saved if isinstance(name, str)} if isinstance(saved, list) else set[str]()
        names |= own_state(self._config.algorithm)
        self._known |= names
        if names:
            log.warning(f"algorithm={self._config.algo} holds {_listed(sorted(names))}, which the checkpoint does not "
                        "have: this resume begins it anew")


def _listed(names: Iterable[str]) -> str:
    shown = list(names)
    more = f" and {len(shown) - _MOST_SHOWN} more" if len(shown) > _MOST_SHOWN else ""
    return ", ".join(shown[:_MOST_SHOWN]) + more
