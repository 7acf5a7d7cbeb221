"""Files of demonstrations: what is written is read, and what does not fit is refused in one line."""

from __future__ import annotations

import errno
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from vantage.config.config import Config
from vantage.errors import ConfigError
from vantage.learning.demonstrations import of_episodes
from vantage.runs.demonstration_file import read_demonstrations, read_source, write_demonstrations
from vantage.types import ActionSpec, ArraySpec, EnvSpec

SPEC = EnvSpec({"a": ArraySpec("vector", (2,)), "b/c": ArraySpec("image", (1, 3, 3))},
               ActionSpec("box", (1,), (-2.0,), (2.0,)))
FILE = Path("demos.safetensors")


def episode(length: int) -> dict[str, Any]:
    rng = np.random.default_rng(length)
    obs = {"a": rng.normal(size=(length, 2)).astype(np.float32),
           "b/c": rng.integers(9, size=(length, 1, 3, 3)).astype(np.uint8)}
    return {"observations": obs, "actions": rng.uniform(-2, 2, (length, 1)), "rewards": np.ones(length)}


def write(env: str = "Some-v0", spec: EnvSpec = SPEC) -> None:
    write_demonstrations(FILE, of_episodes([episode(3), episode(2)], SPEC, {}), env=env, spec=spec)


def test_what_is_written_is_read() -> None:
    write()
    demos = read_demonstrations(FILE, SPEC, env="Some-v0")
    assert demos.digest == of_episodes([episode(3), episode(2)], SPEC, {}).digest
    assert demos.lengths == (3, 2)
    assert demos.rewards is not None and demos.rewards.sum() == 5


def test_a_full_disk_is_one_line_and_leaves_the_former_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    write()
    before = FILE.read_bytes()
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ConfigError, match="No space left on device"):
        write()
    assert FILE.read_bytes() == before and list(Path().iterdir()) == [FILE]


def test_offsets_of_observations_become_those_of_the_run() -> None:
    def shifted(*offsets: float) -> EnvSpec:
        return replace(SPEC, obs={**SPEC.obs, "a": ArraySpec("vector", (2,), shift=offsets)})

    write(spec=shifted(1e7, 0.0))
    demos = read_demonstrations(FILE, shifted(1e7 + 1, 2.0))
    np.testing.assert_allclose(demos.obs["a"][:3], episode(3)["observations"]["a"] - [1, 2], atol=1e-6)


def test_another_environment_or_other_spaces_are_refused() -> None:
    write()
    with pytest.raises(ConfigError, match="of Some-v0, and the run is on Other-v0"):
        read_demonstrations(FILE, SPEC, env="Other-v0")
    with pytest.raises(ConfigError, match="observations a: vector"):
        read_demonstrations(FILE, replace(SPEC, obs=ArraySpec("vector", (2,))))
    with pytest.raises(ConfigError, match="other bounds"):
        read_demonstrations(FILE, replace(SPEC, action=replace(SPEC.action, high=(3.0,))))
    with pytest.raises(ConfigError, match="actions box"):
        read_demonstrations(FILE, replace(SPEC, action=ActionSpec("discrete", (3,))))


@pytest.mark.parametrize(("change", "says"), [
    ({"lengths": np.array([3, 3])}, "do not add up"),
    ({"lengths": np.array([5, 0])}, "do not add up"),
    ({"lengths": np.array([2.0, 3.0])}, "lengths are float64"),
    ({"actions": None}, "lacks actions"),
    ({"actions": np.full((5, 1), 3.0)}, "not within -2 and 2"),
    ({"actions": np.full((5, 1), np.inf)}, "not finite"),
    ({"observations/a": np.zeros((4, 2), np.float32)}, "of shape"),
    ({"observations/a": np.full((5, 2), np.nan, np.float32)}, "not finite"),
    ({"observations/b/c": np.zeros((5, 1, 3, 3), np.int64)}, "int64"),
    ({"rewards": np.zeros(2)}, "rewards have shape"),
])
def test_a_file_whose_tensors_do_not_fit_is_damaged(change: dict[str, Any], says: str) -> None:
    write()
    from safetensors import safe_open
    with safe_open(FILE, framework="np") as file:
        header = file.metadata()
    tensors = {name: array for name, array in {**load_file(FILE), **change}.items() if array is not None}
    save_file(tensors, FILE, header)
    with pytest.raises(ConfigError, match=f"demos.safetensors is damaged: .*{says}"):
        read_demonstrations(FILE, SPEC)


def test_what_is_no_file_of_demonstrations_is_refused() -> None:
    with pytest.raises(ConfigError, match="no such file"):
        read_demonstrations(Path("missing.safetensors"), SPEC)
    write()
    FILE.write_bytes(FILE.read_bytes()[:-9])
    with pytest.raises(ConfigError, match="is damaged"):
        read_demonstrations(FILE, SPEC)
    save_file({"actions": np.zeros(3)}, FILE)
    with pytest.raises(ConfigError, match="holds no demonstrations"):
        read_demonstrations(FILE, SPEC)


def test_minari_datasets_are_read_by_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config().change(demonstrations="minari:some/set-v0", env="Some-v0")
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(ConfigError, match="pip install minari"):
        read_source(config, SPEC)
    asked = []

    def load_dataset(name: str, download: bool = False) -> Any:
        asked.append(name)
        if name != "some/set-v0":
            raise ValueError("no such set")
        return SimpleNamespace(iterate_episodes=lambda: (SimpleNamespace(**episode(n)) for n in (3, 2)))

    monkeypatch.setitem(sys.modules, "minari", SimpleNamespace(load_dataset=load_dataset))
    assert read_source(config, SPEC).lengths == (3, 2)
    with pytest.raises(ConfigError, match="minari:other: ValueError: no such set"):
        read_source(config.change(demonstrations="minari:other"), SPEC)
    assert asked == ["some/set-v0", "other"]
