"""Warnings about an algorithm of the user's own: state that no checkpoint holds, and a max_kl without effect."""

from __future__ import annotations

import logging

from vantage.config.config import Config
from vantage.learning.learner import APPROX_KL
from vantage.learning.own_state import own_state
from vantage.runtimes.progress import Progress

log = logging.getLogger(__name__)


class OwnAlgorithm:
    """Logs each warning once."""

    def __init__(self, config: Config, progress: Progress) -> None:
        self._config, self._progress = config, progress
        self._known: set[str] = set()
        reuse = config.algorithm.needs.reuse
        self._awaits_kl = reuse is not None and reuse.max_kl is not None

    def note_unsaved(self) -> None:
        """Warn of state, in any process, that has appeared since the last call."""
        fresh = (own_state(self._config.algorithm) | self._progress.unsaved) - self._known
        self._known |= fresh
        if fresh:
            names = ", ".join(sorted(fresh))
            log.warning(f"algorithm={self._config.algo} holds {names:.400}, which no checkpoint "
                        "saves: a resume begins it anew. Return modules and tensors from build, "
                        "and draw from update.generator")

    def note_update(self) -> None:
        """After the first update: warn of a max_kl that nothing is compared with."""
        if self._awaits_kl and (logged := self._progress.logged):
            self._awaits_kl = False
            if APPROX_KL not in logged:
                log.warning(f"max_kl has no effect: algorithm={self._config.algo} logs no "
                            f"{APPROX_KL}, which is compared with it; return that from loss, or "
                            "leave max_kl out")
