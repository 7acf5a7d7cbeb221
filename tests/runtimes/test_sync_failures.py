"""What the synchronous runtime keeps when numbers, environments, disks and config files fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from stopping import saved_tensors
from test_sync import CARTPOLE, configure, finish

import vantage
from vantage.errors import CheckpointError, ConfigError, EnvError, NonFiniteError
from vantage.runs import checkpoint
from vantage.runs.checkpoint import load_latest, load_named
from vantage.runtimes import best_policy, recorder


def test_a_non_finite_loss_never_reaches_the_weights(tmp_path: Path) -> None:
    config = configure(env="tiny:ContinuousTarget", steps=5_000, reward_scale=1e30, reward_norm=False, eval_every=0,
                       save_every=256, tensorboard=True, log_weights=True)
    with pytest.raises(NonFiniteError, match="weights were not changed"):
        list(vantage.Trainer(config, run=tmp_path / "run"))
    assert all(torch.isfinite(tensor).all() for name, tensor in saved_tensors(tmp_path / "run").items()
               if name.startswith("model/"))


@pytest.mark.parametrize(("how", "says"), [("raise", "the simulator broke"), ("nan", "finite"), ("shape", "shape"),
                                           ("reward", "finite")])
def test_an_environments_fault_is_named_and_the_run_is_kept(how: str, says: str, tmp_path: Path) -> None:
    config = configure(env="odd:Misbehaving", env_kwargs=json.dumps({"how": how}), steps=5_000, num_envs=2,
                       rollout_length=4, eval_every=0)
    with pytest.raises(EnvError, match=says) as caught:
        list(vantage.Trainer(config, run=tmp_path / "run"))
    assert "environment 0" in str(caught.value) and "seed" in str(caught.value) and "step" in str(caught.value)
    assert load_latest(tmp_path / "run").step > 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "failed"


def test_a_full_disk_does_not_stop_training_but_a_lost_end_is_an_error(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    real, outcomes = recorder.save, iter(["no space", "no space", "broken", "", *["no space"] * 3])

    def save(*arguments: Any, **options: Any) -> Path:
        if outcome := next(outcomes):
            raise CheckpointError(f"{outcome} at step {arguments[1]}") from OSError(len(outcome), outcome)
        return real(*arguments, **options)

    config = configure(**CARTPOLE, steps=2_560, save_every=512)
    monkeypatch.setattr(recorder, "save", save)
    with pytest.raises(CheckpointError, match="no space at step 2560"):
        list(vantage.Trainer(config, run=tmp_path / "run"))
    said = [note.partition(" at")[0] for note in caplog.messages if "at step" in note or "saved again" in note]
    assert said == ["no space", "broken", f"{tmp_path / 'run' / 'checkpoints'} is saved again", "no space"]


def test_a_lack_of_memory_while_saving_costs_that_checkpoint_alone(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    failures: list[Exception] = [*[RuntimeError("DefaultCPUAllocator: can't allocate memory")] * 2, MemoryError()]
    real = checkpoint.write

    def write(path: Path, step: int, *contents: Any) -> None:
        if step and failures:
            raise failures.pop()
        real(path, step, *contents)

    monkeypatch.setattr(checkpoint, "write", write)
    finish(configure(**CARTPOLE, steps=2_560, save_every=512), tmp_path / "run")
    assert not failures and sum("not enough memory" in note for note in caplog.messages) == 2, "once for each cause"


def test_a_best_that_could_not_be_written_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, failures = best_policy.save_as, [CheckpointError("no space left on the device")]

    def failing_once(*arguments: Any, **contents: Any) -> Path:
        if failures:
            raise failures.pop()
        return real(*arguments, **contents)

    monkeypatch.setattr(best_policy, "save_as", failing_once)
    finish(configure(env="tiny:Bandit", steps=1_024, eval_every=128, eval_episodes=2), tmp_path / "run")
    assert not failures
    assert {"model"} <= load_named(tmp_path / "run", "best").tensors.keys() <= {"model", "rewards"}


def test_an_edited_config_that_does_not_fit_the_checkpoint_is_named(tmp_path: Path) -> None:
    config = configure(**CARTPOLE, steps=256)
    finish(config, tmp_path / "run")
    file = tmp_path / "run" / "config.json"
    for key, value in (("optimizer", "rmsprop"), ("hidden", "32")):
        file.write_text(config.change(**{key: value}).to_json())
        with pytest.raises(ConfigError, match=r"does not fit .*config\.json"):
            next(vantage.Trainer.resume(tmp_path / "run", steps=512, extend_schedule=True))
    with pytest.raises(ConfigError, match=r"000000256 does not fit config\.json.*; restore it$") as error:
        vantage.load(tmp_path / "run")
    assert "\n" not in str(error.value)


def test_an_environment_that_cannot_be_closed_loses_nothing(tmp_path: Path) -> None:
    config = configure(env="odd:Misbehaving", env_kwargs={"how": "close"}, steps=256, num_envs=2, eval_every=0)
    assert finish(config, tmp_path / "run").step == 256
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "done"
