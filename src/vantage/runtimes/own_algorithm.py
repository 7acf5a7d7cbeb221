"""Warnings about a user's algorithm: state that no checkpoint holds, a max_kl without effect."""

from __future__ import annotations

import logging

from vantage.config.config import Config
from vantage.learning.adaptive_rate import APPROX_KL
from vantage.learning.own_state import own_state
from vantage.runtimes.progress import Progress

log = logging.getLogger(__name__)


class OwnAlgorithm:
    """Logs warnings about the algorithm of a run, each once."""

    def __init__(self, config: Config, progress: Progress) -> None:
        self._config = config
        self._progress = progress
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
        """After the first update, warn if it did not log the metric that max_kl bounds."""
        logged = self._progress.logged
        if not self._awaits_kl or not logged:
            return
        self._awaits_kl = False
        if APPROX_KL not in logged:
            log.warning(f"max_kl has no effect: algorithm={self._config.algo} logs no {APPROX_KL}, "
                        "which is compared with it; return that from loss, or leave max_kl out")
