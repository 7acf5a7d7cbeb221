"""Learning curves: which runs form one, what their mean is, and what cannot be plotted."""

from __future__ import annotations

import csv
import errno
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from vantage.config import Config
from vantage.errors import ConfigError
from vantage.runs.directory import RunDirectory
from vantage.runs.metrics import MetricWriter
from vantage.tools.curves import Curve, bootstrap_interval, group_curves, interquartile_mean
from vantage.tools.plot import plot, table


def curve(xs: Sequence[float], ys: Sequence[float], **config: Any) -> Curve:
    return Curve(Config().change(**config), np.array(xs, dtype=float), np.array(ys, dtype=float))


def make_run(root: Path, values: Sequence[float], every: int = 100, **config: Any) -> Path:
    chosen = Config().change(**config)
    run = RunDirectory.create(chosen, env_name=chosen.env, root=root, argv=())
    writer = MetricWriter(run.path, tensorboard=False)
    for i, value in enumerate(values):
        step = (i + 1) * every
        writer.write(step, (i + 1) * 30.0, {"rollout/ep_rew_mean": value, "time/frames": step * 4})
    writer.close()
    return run.path


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_runs_that_differ_only_in_the_seed_are_one_group(tmp_path: Path) -> None:
    curves = [curve([0, 10], [0, 1], seed=seed, lr=lr) for seed in (0, 1) for lr in ("1e-3", "1e-4")]
    groups = group_curves([*curves, curve([0, 10], [0, 1], env="Acrobot-v1")])
    assert [len(group.curves) for group in groups] == [2, 2, 1]
    assert groups[0].label == "a2c CartPole-v1 lr=1e-3 (2 seeds)"
    assert groups[2].label == "a2c Acrobot-v1 (1 seed)"


@pytest.mark.parametrize("watched", [{"eval_every": 500}, {"save_every": 7}, {"stop_at_return": 400.0},
                                     {"max_minutes": 3.0}])
def test_what_only_watches_or_ends_a_run_tells_no_runs_apart(watched: dict[str, Any]) -> None:
    group, = group_curves([curve([0, 10], [0, 1]), curve([0, 10], [0, 1], seed=1, **watched)])
    assert group.label == "a2c (2 seeds)"


def test_the_mean_stands_for_the_runs_on_their_common_range() -> None:
    group, = group_curves([curve([0, 10, 20], [0, 10, 20], seed=0), curve([4, 12], [8, 16], seed=1)])
    assert (group.x[0], group.x[-1]) == (4, 12)
    np.testing.assert_allclose(group.middle, group.x + 2)
    assert group.band is not None
    # Of two runs drawn twice, one in four samples holds the lower one alone, and one in four the higher one.
    np.testing.assert_allclose(group.band[0], group.x)
    np.testing.assert_allclose(group.band[1], group.x + 4)


def test_the_interquartile_mean_leaves_the_quarters_out() -> None:
    values = np.array([[100.0], [1.0], [2.0], [-50.0], [3.0]])
    np.testing.assert_allclose(interquartile_mean(values), [2.0])
    np.testing.assert_allclose(interquartile_mean(values[:3]), [103 / 3])
    group, = group_curves([curve([0, 1], [y, y], seed=i) for i, y in enumerate(values[:, 0])], "iqm")
    np.testing.assert_allclose(group.middle, 2.0)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    values = np.random.default_rng(5).normal(size=(20, 300))
    low, high = bootstrap_interval(values, "mean")
    assert 0.88 < ((low < 0) & (high > 0)).mean() < 0.97


def test_the_table_says_where_each_group_ends_and_peaks(tmp_path: Path) -> None:
    groups = plot([make_run(tmp_path, values, seed=seed) for seed, values in enumerate([(1, 5, 2), (1, 7, 4)])],
                  tmp_path / "curve.png", aggregate="iqm")
    (label, ending, peak), = table(groups, "steps")
    assert (label, ending) == ("a2c (2 seeds)", "3 (2 to 4)")
    assert peak.startswith("5.99") and peak.endswith("at 200")


def test_one_seed_twice_is_not_called_two_seeds() -> None:
    group, = group_curves([curve([0, 1], [0, 1]), curve([0, 1], [1, 2])])
    assert "2 runs" in group.label


def test_a_single_run_is_drawn_as_recorded(tmp_path: Path) -> None:
    run = make_run(tmp_path, [1.0, 5.0, 2.0])
    plot([run], tmp_path / "curve.png", csv=tmp_path / "curve.csv")
    rows = read_csv(tmp_path / "curve.csv")
    assert [(float(row["steps"]), float(row["value"])) for row in rows] == [(100, 1), (200, 5), (300, 2)]
    assert {row["low"] for row in rows} == {""}


@pytest.mark.parametrize(("x", "at"), [("steps", [100, 200]), ("minutes", [0.5, 1.0]), ("frames", [400, 800])])
def test_each_axis_has_its_unit(tmp_path: Path, x: Any, at: list[float]) -> None:
    plot([make_run(tmp_path, [1.0, 2.0])], tmp_path / "curve.svg", x=x, csv=tmp_path / "curve.csv")
    assert [float(row[x]) for row in read_csv(tmp_path / "curve.csv")] == at


@pytest.mark.parametrize(("suffix", "start"), [
    ("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")])
def test_the_name_gives_the_format(tmp_path: Path, suffix: str, start: bytes) -> None:
    output = tmp_path / f"new folder/curve.{suffix}"
    runs = [make_run(tmp_path, [1.0, 2.0, 3.0], seed=seed) for seed in (0, 1)]
    plot(runs, output)
    assert output.read_bytes().startswith(start)


def test_smoothing_is_the_running_mean_without_bias(tmp_path: Path) -> None:
    run = make_run(tmp_path, [1.0, 3.0])
    plot([run], tmp_path / "curve.png", smooth=0.5, csv=tmp_path / "curve.csv")
    means = [float(row["value"]) for row in read_csv(tmp_path / "curve.csv")]
    assert means == pytest.approx([1.0, (0.5 * 1 + 3) / 1.5], rel=1e-5)


def test_the_axes_say_their_unit_and_the_smoothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **_: drawn.append(figure) or path.write_text("x"))
    run = make_run(tmp_path, [1.0, 3.0])
    plot([run], tmp_path / "curve.png", x="minutes")
    plot([run], tmp_path / "curve.png", x="frames", smooth=0.5)
    plain, smoothed = (figure.axes[0] for figure in drawn)
    assert "minutes" in plain.get_xlabel() and "frames" in smoothed.get_xlabel()
    assert smoothed.get_ylabel() == f"{plain.get_ylabel()}\nrunning mean, smooth = 0.5"


def test_runs_without_a_common_range_are_drawn_without_a_mean(tmp_path: Path) -> None:
    group, = group_curves([curve([0, 1], [0, 1], seed=0), curve([5], [1], seed=1)])
    assert len(group.middle) == 0
    runs = [make_run(tmp_path, [1.0], every=every, seed=every) for every in (100, 500)]
    groups = plot(runs, tmp_path / "curve.png")
    assert table(groups, "steps") == [("a2c (2 seeds)", "no common range", "")]


def test_a_run_given_twice_counts_once(tmp_path: Path) -> None:
    run = make_run(tmp_path, [1.0, 2.0])
    plot([run, run / "../a2c-1"], tmp_path / "curve.png", csv=tmp_path / "curve.csv")
    assert {row["group"] for row in read_csv(tmp_path / "curve.csv")} == {"a2c (1 seed)"}


def test_values_that_were_not_finite_are_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path, [1.0, float("nan"), 2.0])
    plot([run], tmp_path / "curve.png", csv=tmp_path / "curve.csv")
    assert [row["steps"] for row in read_csv(tmp_path / "curve.csv")] == ["100", "300"]
    with pytest.raises(ConfigError, match="no finite value"):
        plot([make_run(tmp_path, [float("nan")])], tmp_path / "curve.png")


def test_what_cannot_be_plotted_is_an_error_with_words(tmp_path: Path) -> None:
    run, empty, output = make_run(tmp_path, [1.0]), make_run(tmp_path, []), tmp_path / "curve.png"
    with pytest.raises(ConfigError, match="no metrics yet"):
        plot([run, empty], output)
    with pytest.raises(ConfigError, match="did you mean rollout/ep_rew_mean"):
        plot([run], output, metric="rollout/ep_rew")
    with pytest.raises(ConfigError, match="no such run directory"):
        plot([tmp_path / "nothing"], output)
    with pytest.raises(ConfigError, match="at least one"):
        plot([], output)
    with pytest.raises(ConfigError, match="must end in"):
        plot([run], tmp_path / "curve.jpg")
    with pytest.raises(ConfigError, match="smooth=1"):
        plot([run], output, smooth=1.0)
    with pytest.raises(ConfigError, match="aggregate='median'"):
        plot([run], output, aggregate="median")  # type: ignore[arg-type]
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(ConfigError, match="choose another output"):
        plot([run], tmp_path / "folder.png")
    assert not output.exists()


@pytest.mark.parametrize("name", ["metrics.jsonl", "curve.png", "table"])
def test_a_table_replaces_neither_the_record_nor_the_picture(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path, [1.0])
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(ConfigError, match=f"{name}: the name of the table must end in .csv"):
        plot([run], run / "curve.png", csv=run / name)
    assert (run / "metrics.jsonl").read_bytes() == before and not (run / "curve.png").exists()


@pytest.mark.parametrize("wrong", ["NaN", "-Infinity", "1e308", "-1e308", "1" + "0" * 400])
def test_a_value_that_no_axis_can_show_is_missing(tmp_path: Path, wrong: str) -> None:
    run = make_run(tmp_path, [1e300, -1e300])
    with (run / "metrics.jsonl").open("a") as file:
        file.write(f'{{"step": 300, "seconds": 90, "rollout/ep_rew_mean": {wrong}}}\n')
        file.write(f'{{"step": 1{"0" * 400}, "seconds": 91, "rollout/ep_rew_mean": 1}}\n')
    plot([run], tmp_path / "curve.png", csv=tmp_path / "curve.csv")
    assert [row["value"] for row in read_csv(tmp_path / "curve.csv")] == ["1e+300", "-1e+300"]
    (run / "metrics.jsonl").write_text(f'{{"step": 300, "seconds": 90, "rollout/ep_rew_mean": {wrong}}}\n')
    with pytest.raises(ConfigError, match="no finite value of rollout/ep_rew_mean"):
        plot([run], tmp_path / "curve.png")


@pytest.mark.parametrize("table", [False, True])
def test_a_full_disk_leaves_the_former_picture(
        table: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    run, output = make_run(tmp_path / "runs", [1.0]), tmp_path / "curve.png"
    output.write_text("former")
    monkeypatch.setattr("vantage.tools.plot._write_csv" if table else "vantage.tools.plot.Figure.savefig", fail)
    with pytest.raises(ConfigError, match="No space left"):
        plot([run], output, csv=tmp_path / "curve.csv")
    assert output.read_text() == "former"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curve.png", "runs"]


def test_plotting_touches_no_pyplot_state() -> None:
    script = "import sys, vantage.tools.plot; sys.exit('matplotlib.pyplot' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
