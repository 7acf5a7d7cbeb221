"""The means over data-parallel ranks of an update's gradients and metrics.

Metrics are numbers to exchange; ranks may log different ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from vantage.learning.step_metrics import Number

AllGather = Callable[[Tensor], Tensor]

CHUNK = 32
"""Characters of a text that are exchanged at once; ranks on one CPU have room for more numbers."""


def weighted_mean(rows: Sequence[Tensor], counts: Sequence[float]) -> Tensor:
    """The mean of all ranks' gradients, written to the first row.

    g = Σ nᵢ gᵢ / Σ nᵢ over the nᵢ valid steps of each rank, added in the order of ranks
    """
    total = max(1.0, sum(counts))
    mean = rows[0].mul_(counts[0] / total)
    for row, count in zip(rows[1:], counts[1:], strict=True):
        mean.add_(row, alpha=count / total)
    return mean


class SharedMetrics:
    """Averages the loss and the metrics of ranks, each metric over the ranks that have logged it.

    Ranks agree on the names when one of them logs a new one, which costs a few exchanges in the
    first update.
    """

    def __init__(self) -> None:
        self._names: list[str] = []

    def row(self, num_valid: Number, loss: Number, metrics: Mapping[str, Number]) -> Tensor:
        """This rank's numbers, [3 + 2N] float64.

        They are its number of valid steps, its loss, whether it has new names, then value and
        presence of each name. Loss and values are multiplied by the number of valid steps.
        """
        count = float(num_valid)
        numbers = [count, count * float(loss), float(not metrics.keys() <= set(self._names))]
        for name in self._names:
            numbers += [count * float(metrics[name]), 1.0] if name in metrics else [0.0, 0.0]
        return torch.tensor(numbers, dtype=torch.float64)

    def learn_names(self, rows: Tensor, metrics: Mapping[str, Number],
                    all_gather: AllGather) -> bool:
        """Agree on the names of all ranks if a row has new ones; returns whether one has.

        `rows` are [num_ranks, 3 + 2N].
        """
        if not rows[:, 2].any():
            return False
        own = [name for name in metrics if name not in self._names]
        for text in gather_text(json.dumps(own), all_gather):
            self._names += [name for name in json.loads(text) if name not in self._names]
        return True

    def means(self, rows: Tensor) -> tuple[list[float], float, dict[str, float]]:
        """The valid steps of each rank, mean loss and mean metrics, from the `rows` of all."""
        counts = rows[:, 0]
        loss = rows[:, 1].sum().item() / max(1.0, counts.sum().item())
        values = rows[:, 3::2].sum(0).tolist()
        present = rows[:, 4::2]
        is_logged = present.any(0).tolist()
        weights = (present * counts[:, None]).sum(0).tolist()
        means: dict[str, float] = {}
        for i, name in enumerate(self._names):
            if is_logged[i]:
                means[name] = values[i] / max(1.0, weights[i])
        return counts.tolist(), loss, means


def gather_text(text: str, all_gather: AllGather) -> list[str]:
    """The texts of all ranks, which are ASCII, in the order of ranks."""
    lengths = all_gather(torch.tensor([float(len(text))], dtype=torch.float64))[:, 0].tolist()
    texts = [""] * len(lengths)
    for start in range(0, int(max(lengths)), CHUNK):
        codes = list(text[start:start + CHUNK].encode())
        row = torch.tensor([*codes, *[0] * (CHUNK - len(codes))], dtype=torch.float64)
        for rank, part in enumerate(all_gather(row).tolist()):
            texts[rank] += bytes(int(code) for code in part if code).decode()
    return texts
