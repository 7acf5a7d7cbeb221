"""Runs whose network, memory or algorithm has other code by the time that they are loaded or resumed."""

from __future__ import annotations

import importlib
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import Bandit
from torch import nn

import vantage
from vantage.config.code_digest import code_digest, has_changed
from vantage.keys.object_digest import digest

NET = '''
from torch import nn

def squash(x):
    return {squash}

class Base(nn.Module):
    """{doc}"""

    def forward(self, x):
        return squash(self.layer(x))

class Net(Base):
    calls = 0

    def __init__(self, shape):
        super().__init__()
        self.layer = nn.Linear(shape[0], 4)

    def forward(self, x):
        """{doc}"""
        Net.calls += 1
        return super().forward(x){after}
'''
ORIGINAL = {"squash": "x.tanh()", "doc": "One.", "after": ""}


def net(monkeypatch: pytest.MonkeyPatch, path: Path, **changes: str) -> Any:
    """The class Net of a module that has just been written."""
    (path / "porting_net.py").write_text(NET.format(**ORIGINAL | changes))
    monkeypatch.syspath_prepend(str(path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "porting_net", raising=False)
    return importlib.import_module("porting_net").Net


def unnamed(*, doubled: bool) -> Any:
    """A class of a function, as of a notebook."""
    class Net(nn.Module):
        def __init__(self, shape: tuple[int, ...]) -> None:
            super().__init__()
            self.layer = nn.Linear(shape[0], 4)

        if doubled:
            def forward(self, x: Any) -> Any:
                return self.layer(x) * 2
        else:
            def forward(self, x: Any) -> Any:
                return self.layer(x)

    return Net


def begun(run: Path, network: Any) -> Path:
    with vantage.Trainer("ppo", env=Bandit, network=network, run=run, steps=64, num_envs=2, rollout_length=8,
                         minibatch_size=16, threads=1, tensorboard=False, eval_every=0) as trainer:
        trainer.update()
    return run


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.message for record in caplog.records if "has changed" in record.message]
    caplog.clear()
    return found


def test_a_changed_forward_is_named_in_one_line_until_a_resume_has_saved_it(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    run = begun(tmp_path / "run", net(monkeypatch, tmp_path))
    vantage.load(run)
    net(monkeypatch, tmp_path, doc="Two.")
    vantage.load(run)
    assert not warnings_of(caplog), "a docstring, and a class attribute that counts"
    message = f"the code of network has changed since {run} was saved, so that its policy may act otherwise"
    for changes in ({"after": " * 2"}, {"squash": "x.sigmoid()"}):
        net(monkeypatch, tmp_path, **changes)
        vantage.load(run)
        [warning] = warnings_of(caplog)
        assert warning.startswith(message)
    with vantage.Trainer.resume(run) as trainer:
        trainer.update()
    assert len(warnings_of(caplog)) == 1
    vantage.load(run)
    assert not warnings_of(caplog)


def test_a_class_without_an_import_path_is_compared_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = begun(tmp_path / "run", unnamed(doubled=False))
    vantage.load(run, network=unnamed(doubled=False))
    assert not warnings_of(caplog)
    vantage.load(run, network=unnamed(doubled=True))
    assert len(warnings_of(caplog)) == 1


CELLS = ["import torch\nfrom torch import nn", """
class Net(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.layer = nn.Linear(shape[0], 4)
        self.tail = [lambda x: torch.tanh(y) for y in range(2)]

    def forward(self, x):
        for _ in range(2):
            x = torch.relu(self.layer(x)) if x.ndim else torch.tanh(x)
        return x{after}
"""]
"""A class as a notebook compiles it: after its imports, and not together with them."""


def compiled(*units: str) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "of_a_notebook"}
    for unit in units:
        exec(compile(unit, "<cell>", "exec"), space)
    return space


def test_the_cells_of_a_notebook_have_the_digests_of_the_same_text_in_a_script() -> None:
    cells = [CELLS[0], CELLS[1].format(after="")]
    notebook, script = compiled(*cells), compiled("\n\n".join(cells))
    assert notebook["Net"].forward.__code__.co_code != script["Net"].forward.__code__.co_code
    assert code_digest(notebook["Net"]) == code_digest(script["Net"])
    assert digest(notebook["Net"]) == digest(script["Net"])
    changed = compiled(cells[0], CELLS[1].format(after=" * 2"))
    assert code_digest(changed["Net"]) != code_digest(script["Net"])
    named = compiled(*cells, "def layer(x): return x")
    assert code_digest(named["Net"]) == code_digest(script["Net"]), "self.layer is not the function layer"
    other = compiled(cells[0], cells[1].replace("torch.relu", "torch.sigmoid"))
    assert len({code_digest(each["Net"]) for each in (other, changed, script)}) == 3


class Window(nn.Module):
    """A memory of the mean of the last inputs: its weights do not depend on the `window`."""

    def __init__(self, input_size: int, memory_size: int, window: int = 4) -> None:
        super().__init__()
        self.window = window
        self.layer = nn.Linear(input_size, memory_size)
        self.out_features = memory_size

    def initial_state(self, batch: int) -> Any:
        return (self.layer.weight.new_zeros(batch, self.window, self.layer.in_features),)

    def step(self, features: Any, is_first: Any, state: Any) -> Any:
        past = state[0] * ~is_first[:, None, None]
        past = torch.cat([past[:, 1:], features[:, None]], 1)
        return self.layer(past.mean(1)), (past,)


def test_a_memory_of_another_window_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = tmp_path / "run"
    with vantage.Trainer("a2c", env=Bandit, memory=partial(Window, window=4), run=run, steps=64, num_envs=2,
                         threads=1, tensorboard=False, eval_every=0) as trainer:
        trainer.update()
    vantage.load(run, memory=partial(Window, window=4))
    assert not warnings_of(caplog)
    vantage.load(run, memory=partial(Window, window=8))
    assert warnings_of(caplog)[0].startswith("the code of memory has changed")
    ways = (Window, partial(Window, window=4), partial(Window, window=8), Window(3, 4), Window(3, 4, 8))
    assert len({code_digest(way) for way in ways}) == 5
    assert code_digest(Window(3, 4).eval()) == code_digest(Window(3, 4))


def test_only_the_users_code_of_the_same_python_is_compared() -> None:
    assert code_digest(nn.Linear) is None and code_digest(vantage.PPO) is None
    saved = code_digest(unnamed(doubled=False))
    assert saved is not None and has_changed(saved, unnamed(doubled=True))
    assert not has_changed("3.1:" + saved.partition(":")[2], unnamed(doubled=True))
    for damaged in (None, 3, [], "x"):
        assert not has_changed(damaged, unnamed(doubled=True))
