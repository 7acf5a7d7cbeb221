"""Metrics of a run: whole lines, no step twice, and no failure that stops training."""

from __future__ import annotations

import json
import logging
import math
import os
import resource
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import vantage
from vantage._host import extras
from vantage.errors import ConfigError
from vantage.runs.metrics import MetricWriter, read_metrics
from vantage.runtimes.machine import prepare


def write(run: Path, steps: range, *, resume_step: int | None = None, tensorboard: bool = False) -> None:
    writer = MetricWriter(run, resume_step=resume_step, tensorboard=tensorboard)
    for step in steps:
        writer.write(step, step / 10, {"rollout/ep_rew_mean": float(step)})
    writer.close()
    writer.write(10**6, 1.0, {"a": 1.0})  # ignored


def steps(run: Path) -> list[int]:
    """The steps, where every line must be whole."""
    return [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_line_is_one_object_with_null_for_what_is_not_finite(tmp_path: Path) -> None:
    writer = MetricWriter(tmp_path, tensorboard=False)
    writer.write(10, 1.23456, {"a": 0.123456789, "b": 123_456_789, "c": 12_345_678.0, "d": math.nan, "e": -math.inf})
    assert (tmp_path / "metrics.jsonl").read_text() == (
        '{"step": 10, "seconds": 1.235, "a": 0.123457, "b": 123456789, "c": 12345678.0, "d": null, "e": null}\n')
    assert read_metrics(tmp_path)[0]["d"] is None, "a reader sees it before the writer is closed"
    writer.close()
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"], "without tensorboard no event file"


@pytest.mark.parametrize("torn", ["", '{"step": 3, "sec', '{"step": 3, "seconds": 0.3}', "\x00\x00"])
def test_resume_drops_torn_lines_and_those_after_its_step(tmp_path: Path, torn: str) -> None:
    write(tmp_path, range(5))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(torn)
    assert [record["step"] for record in read_metrics(tmp_path)][:5] == [0, 1, 2, 3, 4]
    write(tmp_path, range(5, 6), resume_step=4)
    assert steps(tmp_path) == [0, 1, 2, 3, 4, 5]
    write(tmp_path, range(3, 5), resume_step=2)
    assert steps(tmp_path) == [0, 1, 2, 3, 4]


def test_without_tensorboard_a_run_has_its_other_metrics(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "vantage")
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    write(tmp_path, range(3), tensorboard=True)
    assert len(read_metrics(tmp_path)) == 3 and not (tmp_path / "tensorboard").exists()
    assert [message.partition(": ")[2] for message in caplog.messages] == [
        f"tensorboard is not installed: {extras.install_command('tensorboard')}"]
    with pytest.raises(ConfigError, match="tensorboard is not installed: pip install "):
        prepare(vantage.configure("a2c", env="CartPole-v1", log_weights=True))


def test_tensorboard_shows_no_step_twice_after_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, range(0, 100, 10), tensorboard=True)
    # TensorBoard orders event files by the second in their name.
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 2)
    write(tmp_path, range(50, 130, 10), resume_step=40, tensorboard=True)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    scalars = events.Scalars("rollout/ep_rew_mean")
    assert [event.step for event in scalars] == list(range(0, 130, 10))
    assert [event.value for event in scalars] == [float(step) for step in range(0, 130, 10)]


def test_a_first_line_may_be_incomplete_and_a_file_without_one_is_damaged(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []
    path = tmp_path / "metrics.jsonl"
    for content in (b"", b'{"step": 1, "sec'):
        path.write_bytes(content)
        assert read_metrics(tmp_path) == []
    for content in (b"\0" * 100, b"[]\n", b'{"step": 1, "sec\n{"seconds": 2}\n', b"\n"):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=r"metrics.jsonl is damaged.*restore it.*or remove it"):
            read_metrics(tmp_path)


def test_damaged_lines_are_left_out_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n{"step": \xff2}\n[]\n{"step": 3}\n{"st')
    assert [record["step"] for record in read_metrics(tmp_path)] == [1, 3]
    assert caplog.messages == [
        f"{tmp_path / 'metrics.jsonl'} is damaged: lines 2, 3 are left out; restore it from a copy"]


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("room", [0, 20])
def test_a_line_that_a_full_disk_has_no_room_to_extend_stays(room: int, resumed: bool, tmp_path: Path,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    writer, original = MetricWriter(tmp_path, tensorboard=False), os.write
    writer.write(1, 0.1, {"a": 1.0})
    before = (tmp_path / "metrics.jsonl").read_bytes()
    if resumed:
        writer.close()
        writer = MetricWriter(tmp_path, resume_step=1, tensorboard=False)

    def full(file: int, data: bytes) -> int:
        if len(data) <= len(before):
            return original(file, data)
        if room:
            return original(file, data[:room])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        writer.write(1, 0.1, {"eval/mean_reward": 2.0})
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    writer.write(1, 0.1, {"eval/mean_reward": 2.0})
    assert read_metrics(tmp_path) == [{"step": 1, "seconds": 0.1, "a": 1.0, "eval/mean_reward": 2.0}]


def test_both_files_go_on_when_there_is_space_again_and_each_change_is_reported_once(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An error that a thread of TensorBoard prints would fail the test, as a warning of pytest."""
    writer, (soft, hard) = MetricWriter(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    for step, full in enumerate([False, True, True, False, False, True, False]):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 if full else soft, hard))
        try:
            writer.write(step, step / 10, {"a": float(step)})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    writer.close()
    assert [message.startswith("cannot write") for message in caplog.messages] == [True, False, True, False]
    assert "metrics.jsonl: File too large" in caplog.messages[0]
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    # Files of one second are read in the order of their names, where writer 10 is before writer 9.
    assert sorted(event.step for event in events.Scalars("a")) == steps(tmp_path) == [0, 3, 4, 6]


def test_metrics_of_one_step_are_one_line_and_one_event_also_across_a_resume(tmp_path: Path) -> None:
    parts = ({"time/fps": 9.0}, {"time/fps": 9.0, "eval/mean_reward": 1.0}, {"eval/mean_length": 2.0})
    for resume_step, metrics in zip((None, 5, 5), parts, strict=True):
        writer = MetricWriter(tmp_path, resume_step=resume_step)
        writer.write(5, 0.5, metrics)
        writer.close()
    assert read_metrics(tmp_path) == [
        {"step": 5, "seconds": 0.5, "time/fps": 9, "eval/mean_reward": 1, "eval/mean_length": 2}]
    (tmp_path / "whole").mkdir()
    writer = MetricWriter(tmp_path / "whole")
    for metrics in parts:
        writer.write(5, 0.5, metrics)
    writer.write(6, 0.6, {"time/fps": 8.0})
    writer.close()
    assert steps(tmp_path / "whole") == [5, 6]
    events = EventAccumulator(str(tmp_path / "whole" / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("time/fps")] == [5, 6]


def test_files_that_cannot_be_opened_do_not_stop_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    (tmp_path / "tensorboard").write_text("a file in the way")
    write(tmp_path, range(2), resume_step=0, tensorboard=True)
    assert len(caplog.messages) == 1
    with pytest.raises(ConfigError, match="cannot read"):
        read_metrics(tmp_path)


@pytest.mark.parametrize("algo", ["a2c", "a3c"])
def test_tensorboard_shows_the_network_its_weights_and_the_config_with_the_scores(algo: str, tmp_path: Path) -> None:
    workers = {"num_workers": 1} if algo == "a3c" else {}
    config = vantage.configure(algo, env="CartPole-v1", steps=600, hidden="8", separate=False, threads=1, eval_every=0,
                               log_weights=True, save_every=300, log_every_seconds=0, **workers)
    *_, last = vantage.Trainer(config, run=tmp_path / "run", argv=())
    board = EventAccumulator(str(tmp_path / "run" / "tensorboard"), size_guidance={"histograms": 0})
    board.Reload()
    names = board.Tags()["histograms"]
    assert "weights/actor/torsos/0/layers/0/weight" in names and "gradients/value_head/weight" in names
    gradients = board.Histograms("gradients/value_head/weight")
    assert gradients[-1].histogram_value.sum_squares > 0
    weights = board.Histograms("weights/value_head/weight")
    assert weights[0].histogram_value.sum != weights[-1].histogram_value.sum and weights[-1].step == last.step
    assert any("[value_head]" in node.name for node in board.Graph().node)
    assert board.summary_metadata["_hparams_/session_start_info"].plugin_data.plugin_name == "hparams"
    assert board.Scalars("final/return_mean")[0].value == pytest.approx(last.metrics["rollout/ep_rew_mean"])
