"""Replay: whole rollouts, sampled uniformly; ACER's average policy and burn-in; resumes that cannot be exact."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from rollouts import begun, random_rollout
from stopping import stop_after
from torch import Tensor

import vantage
from vantage.errors import ConfigError
from vantage.learning.learner import Learner
from vantage.learning.replay import Replay
from vantage.models.build import make_model
from vantage.runs.checkpoint import load_latest, save
from vantage.runtimes.acting_state import acting_tensors, restore_acting
from vantage.specs import ActionSpec, ArraySpec, EnvSpec
from vantage.types import Rollout

T, B, PLENTY = 5, 3, 10**12
SPEC = EnvSpec(ArraySpec("vector", (4,)), ActionSpec("discrete", (3,)))
QUIET: dict[str, Any] = {"threads": 1, "tensorboard": False, "log_every_seconds": 1000}


def numbered(number: int, *, num_envs: int = B, keys: bool = False) -> Rollout:
    """A rollout in which every entry of environment b is 10 * number + b; with `keys`, fractional actions."""
    who = (10 * number + torch.arange(num_envs)).float()

    def rows(length: int, *shape: int) -> Tensor:
        return who.view(1, -1, *(1,) * len(shape)).expand(length, -1, *shape).clone()

    images = rows(T + 1, 1, 4, 4).to(torch.uint8)
    return Rollout(
        obs={"image": images, "vector": rows(T + 1, 2)} if keys else images, is_first=rows(T + 1) % 2 == 0,
        actions=rows(T) + 0.5 if keys else rows(T).long(), rewards=rows(T), terminated=rows(T) % 3 == 0,
        valid=rows(T) >= 0, action_mask=rows(T + 1, 2) >= 0 if keys else None, behaviour=rows(T, 2),
        state=(who.view(-1, 1).clone(),))


def flat(rollout: Rollout) -> list[Tensor]:
    """All tensors of a rollout."""
    tensors: list[Tensor] = []
    for field in fields(rollout):
        if field.name == "current":
            continue
        value = getattr(rollout, field.name)
        tensors += value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else \
            [value] * (value is not None)
    return tensors


def filled(capacity: int, count: int, **options: Any) -> Replay:
    replay = Replay(capacity, numbered(0, **options), PLENTY)
    for number in range(count):
        replay.add(numbered(number, **options))
    return replay


@pytest.mark.parametrize(("count", "order"), [(1, [0]), (2, [0, 1]), (3, [2, 1])])
def test_all_rollouts_are_side_by_side_in_the_order_of_the_ring(count: int, order: list[int]) -> None:
    together = filled(2 * B, count).all(numbered(9))
    assert together.rewards[0].tolist() == [10 * number + b for number in order for b in range(B)]
    assert together.current == slice(order.index(count - 1) * B, (order.index(count - 1) + 1) * B)
    expected = [numbered(number) for number in order]
    for actual, *parts in zip(flat(together), *map(flat, expected), strict=True):
        axis = int(actual.shape[1:2] == (len(order) * B,))  # of the environments; the first one of a state
        torch.testing.assert_close(actual, torch.cat(parts, axis))
    assert together.values is None


@pytest.mark.parametrize("keys", [False, True], ids=["image", "dict with masks"])
def test_a_drawn_row_is_a_whole_rollout_as_it_was_stored(keys: bool) -> None:
    replay = filled(12, 3, keys=keys)
    drawn = replay.sample(numbered(0, keys=keys), torch.Generator().manual_seed(0))
    for b in range(B):
        number, env = divmod(int(drawn.rewards[0, b]), 10)
        for got, stored in zip(flat(drawn), flat(numbered(number, keys=keys)), strict=True):
            timed = got.dim() > 1 and got.shape[0] in (T, T + 1)
            assert torch.equal(got[:, b] if timed else got[b], stored[:, env] if timed else stored[env])


def test_the_oldest_rows_go_first() -> None:
    replay = filled(7, 4)  # twelve rows through seven places
    assert rows_drawn(replay) == {12, 20, 21, 22, 30, 31, 32}
    assert len(replay) == 7 and replay.steps == 7 * T


def test_all_rows_that_were_stored_are_drawn_and_no_others() -> None:
    assert rows_drawn(filled(7, 2)) == {0, 1, 2, 10, 11, 12}, "six rows in seven places"
    assert rows_drawn(filled(2, 1)) <= {1, 2}, "of more environments than rows the last remain"


def rows_drawn(replay: Replay) -> set[float]:
    generator = torch.Generator().manual_seed(1)
    return {row for _ in range(200) for row in replay.sample(numbered(0), generator).rewards[0].tolist()}


def test_environments_draw_uniformly_and_independently() -> None:
    replay, generator = filled(6, 2), torch.Generator().manual_seed(2)
    rows = torch.stack([replay.sample(numbered(0), generator).rewards[0] for _ in range(1_500)]).long()
    counts = torch.bincount(rows.flatten(), minlength=20)
    assert counts[[0, 1, 2, 10, 11, 12]].sub(750).abs().max() < 120
    assert len(rows[:, :2].unique(dim=0)) == 36


def test_a_replay_that_memory_cannot_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"half the free memory.* smaller replay_size"):
        Replay(10_000, numbered(0), 10_000)


def test_pong_in_the_replay_takes_single_frames() -> None:
    """600,000 frames of 84x84 in rollouts of 20 with stacks of 4 take at most 5.5 GB."""
    obs = torch.zeros(21, 1, 1, 84, 84, dtype=torch.uint8)
    rows = torch.zeros(20, 1)
    like = Rollout(obs, torch.zeros(21, 1, dtype=torch.bool), rows.long(), rows, rows.bool(), rows.bool(), None,
                   torch.zeros(20, 1, 6), (torch.zeros(1, 3, 1, 84, 84, dtype=torch.uint8),))
    assert 4.2e9 < Replay(30_000, like, PLENTY).nbytes < 5.5e9


def test_a_saved_replay_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vantage.learning.replay._SAVED_BYTES", 600)  # several groups
    replay = filled(7, 4)
    saved = replay.tensors()
    assert len(saved) > 2
    again = Replay(7, numbered(0), PLENTY)
    again.load(saved.items())
    for seed in range(5):
        first, second = (r.sample(numbered(0), torch.Generator().manual_seed(seed)) for r in (replay, again))
        assert all(torch.equal(a, b) for a, b in zip(flat(first), flat(second), strict=True))
    with pytest.raises((KeyError, RuntimeError, ValueError)):
        Replay(20, numbered(0), PLENTY).load([*saved.items(), ("count", {"rollouts": torch.tensor(15)})])
    with pytest.raises(ValueError, match="more than the 2 rollouts of this replay"):
        Replay(2, numbered(0), PLENTY).load(saved.items())


def acer(**options: Any) -> vantage.Config:
    return vantage.configure("acer", **(QUIET | {"env": "CartPole-v1", "num_envs": B} | options))


def test_the_average_policy_is_an_exponential_average_of_the_weights() -> None:
    """θ_a ← α θ_a + (1 - α) θ after every update."""
    model = make_model(acer().policy, SPEC, critic="action")
    learner = Learner(model, acer(average_decay=0.9))
    assert learner.average is not None
    expected = learner.flat.vector.clone()
    like = random_rollout(model, T, B)
    for step in range(5):
        learner.update(like, step)
        expected = 0.9 * expected + 0.1 * learner.flat.vector
    torch.testing.assert_close(learner.average.vector, expected)
    assert (learner.average.vector - learner.flat.vector).abs().max() > 1e-5
    parameter = next(learner.average.model.parameters())
    assert parameter.untyped_storage().data_ptr() == learner.average.vector.untyped_storage().data_ptr()


def test_burn_in_steps_do_not_enter_the_loss() -> None:
    config = acer(memory="lstm", memory_size=8, burn_in=T - 1)
    learner = Learner(make_model(config.policy, SPEC, critic="action"), config)
    like = random_rollout(learner.model, T, B)
    valid = like.valid.clone()
    fresh, warm = learner.loss(like, 0)[0], learner.loss(like, 0, replayed=True)[0]
    assert fresh != warm != 0 and torch.equal(like.valid, valid)
    like.rewards[:T - 1] = 100.0
    assert learner.loss(like, 0, replayed=True)[0] == warm


def test_a_resume_without_the_replay_logs_it_and_fills_the_replay_again(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = acer(steps=600, replay_start=500, eval_every=0, save_every=500)
    stop_after(8, tmp_path / "run", config)
    (tmp_path / "run" / "replay" / "rows_0.safetensors").write_bytes(b"cut")
    caplog.set_level("INFO", logger="vantage")
    list(vantage.Trainer.resume(tmp_path / "run"))
    assert any("rows_0.safetensors" in note and "filled again" in note for note in caplog.messages)


def test_an_older_replay_is_used_with_a_message(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = acer(steps=800, replay_start=100, eval_every=0, save_every=100, replay_save_every=480)
    stop_after(14, tmp_path / "other", config)
    replay = tmp_path / "other" / "replay" / "manifest.json"
    assert "rows_0" in replay.read_text()
    newest = f"step-{load_latest(tmp_path / 'other').step:012d}"
    shutil.rmtree(tmp_path / "other" / "checkpoints" / newest)  # the replay is now of a later step
    caplog.set_level("INFO", logger="vantage")
    list(vantage.Trainer.resume(tmp_path / "other"))
    assert any("good to learn from, but this resume is not exact" in note for note in caplog.messages)


def test_a_gpu_run_resumes_on_the_cpu_with_new_random_draws(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    list(vantage.Trainer(acer(steps=96, eval_every=0), run=tmp_path / "run"))
    saved = load_latest(tmp_path / "run")
    acting = dict(saved.tensors["acting"])
    acting["generator"] = torch.zeros(16, dtype=torch.uint8)  # a CUDA generator's state is seed and offset
    save(tmp_path / "run", saved.step, tensors={**saved.tensors, "acting": acting}, state=saved.state, keep=3,
         again=True)
    caplog.set_level("INFO", logger="vantage")
    list(vantage.Trainer.resume(tmp_path / "run", steps=192, extend_schedule=True))
    assert any("not of a run on cpu: random draws begin anew" in note for note in caplog.messages)
    assert load_latest(tmp_path / "run").step == 192


@pytest.mark.parametrize(("options", "message"), [
    ({"replay_size": 1_500}, "replay_start=2000 steps never fit in replay_size=1500"),
    ({"truncation": "inf"}, "truncation='inf' is not a number or none"),
    ({"burn_in": 4}, "burn_in=4 warms up a memory"),
    ({"burn_in": 16, "memory": "gru"}, "leaves nothing of a rollout of 16 steps"),
    ({"runtime": "hogwild", "replay_save_every": 100}, "does not save replays"),
])
def test_inconsistent_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        acer(**options)


def test_a_product_of_actions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"as acer's, is for Discrete and Box actions, not for multi_discrete; use "):
        list(vantage.Trainer(vantage.configure("acer", env="tiny:TwoSwitches", **QUIET), run=tmp_path / "run"))


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 2), (2, 1)])
def test_a_resume_with_other_past_rollouts_logs_it_and_collects_them_again(
        before: int, after: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = tmp_path / "run"
    stop_after(4, run, vantage.configure("ppo", env="CartPole-v1", num_envs=B, rollout_length=8, minibatch_size=8,
                                         steps=240, eval_every=0, past_rollouts=before, **QUIET))
    config = json.loads((run / "config.json").read_text())
    config["algorithm"]["past_rollouts"] = after
    (run / "config.json").write_text(json.dumps(config))
    *_, last = vantage.Trainer.resume(run)
    assert last.status == "done"
    assert any("past rollouts of the checkpoint do not fit" in note for note in caplog.messages)


@pytest.mark.parametrize("change", [
    {"past_rows_0": {"rewards": torch.full((2 * B, 8), torch.nan)}},
    {"past_rows_0": {"rewards": torch.zeros(2 * B, 1)}},
    {"past_rows_0": {"actions": torch.zeros(2 * B, 8)}}, {"past_count": {"rollouts": torch.tensor(2 * B + 1)}},
    {"past_count": {"rollouts": torch.tensor(2**62 // B * B)}}, {"past_count": {}}])
def test_crafted_past_rollouts_are_collected_again(change: dict[str, dict[str, Tensor]]) -> None:
    config = vantage.configure("ppo", env="CartPole-v1", num_envs=B, rollout_length=8, minibatch_size=8,
                               past_rollouts=1, **QUIET)
    with begun(config) as one:
        for _ in range(2):
            one.advance(lambda: 0)
        saved = acting_tensors(one)
    with begun(config) as other:
        assert not restore_acting(other, saved) and other.num_past == 2 * B
        (group, tensors), = change.items()
        (note,) = restore_acting(other, saved | {group: saved[group] | tensors if tensors else {}})
        assert "collected again" in note and other.num_past == 0
        other.advance(lambda: 0)


def test_past_rollouts_that_are_too_large_are_refused_by_their_own_key() -> None:
    with pytest.raises(ConfigError, match=r"rollouts of past_rollouts would take .* give a smaller past_rollouts"):
        Replay(10, numbered(0), 10, key="past_rollouts")
