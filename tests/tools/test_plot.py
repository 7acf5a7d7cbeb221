"""Learning curves: how runs form groups, their mean and interval, and what cannot be plotted."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import results
from PIL import Image
from tiny import Bandit

from vantage.algorithms.a2c import A2C
from vantage.cli import main
from vantage.config.config import Config
from vantage.errors import ConfigError
from vantage.runs.directory import RunDirectory
from vantage.runs.metrics import MetricWriter
from vantage.tools.curves import Curve, bootstrap_interval, group_curves, make_curve, middle
from vantage.tools.plot import digest, draw, plot, summary_rows


def curve(xs: Sequence[float], ys: Sequence[float], **keys: Any) -> Curve:
    return Curve(Config().change(**keys), np.array(xs, dtype=float), np.array(ys, dtype=float))


def make_run(root: Path, values: Sequence[float], every: int = 100, **keys: Any) -> Path:
    config = Config().change(**keys)
    run = RunDirectory.create(config, root=root, argv=())
    writer = MetricWriter(run.path, tensorboard=False)
    for i, value in enumerate(values, 1):
        writer.write(i * every, i * 30.0, {"rollout/ep_rew_mean": value, "time/frames": i * every * 4})
    writer.close()
    return run.path


def test_runs_that_differ_only_in_the_seed_are_one_group() -> None:
    curves = [curve([0, 10], [0, 1], seed=seed, lr=lr) for seed in (0, 1) for lr in ("1e-3", "1e-4")]
    groups = group_curves([*curves, curve([0, 10], [0, 1], env="Acrobot-v1")])
    assert [group.label for group in groups] == [
        "a2c CartPole-v1 lr=0.001 (2 seeds)", "a2c CartPole-v1 lr=0.0001 (2 seeds)", "a2c Acrobot-v1 (1 seed)"]
    keys = {"threads": 2, "num_workers": 2, "vector": "async", "eval_every": 500, "save_every": 7, "max_minutes": 3.0}
    resumed = curve([0, 2], [1, 2], steps=2_000_000, schedule_steps=1_000_000)
    curves = [curve([0, 1], [0, 1]), curve([0, 1], [1, 2], **keys), resumed, curve([0], [0], steps=5)]
    same, shorter = group_curves(curves)
    assert same.label == "a2c steps=1000000 (3 runs)" and shorter.label == "a2c steps=5 (1 seed)"
    workers = [group.label for group in group_curves([curve([0], [0], algo="a3c", num_workers=n) for n in (1, 2)])]
    assert workers == ["a3c num_workers=1 (1 seed)", "a3c num_workers=2 (1 seed)"]


@pytest.mark.parametrize(("metric", "says"), [
    ("success_rate", "metric success_rate; did you mean rollout/success_rate?"),
    ("sucess_rate", "metric sucess_rate; did you mean rollout/success_rate?"),
    ("rollout/sucess_rate", "metric rollout/sucess_rate; did you mean rollout/success_rate?"),
    ("my/loss", "metric my/loss; it has rollout/success_rate, time/fps"),
    ("rollout/ep_rew_mean", "finite value of rollout/ep_rew_mean by steps yet; perhaps no game has ended; it has "
                            "rollout/success_rate, time/fps"),
    ("eval/success_rate", "finite value of eval/success_rate by steps yet; perhaps no game has ended with "
                          'info["is_success"]; did you mean rollout/success_rate?')])
def test_a_metric_that_a_run_lacks_is_answered_with_the_similar_one(metric: str, says: str) -> None:
    lines: Any = [{"step": 1, "seconds": 1.0, "rollout/success_rate": 0.5, "time/fps": 3.0}]
    with pytest.raises(ConfigError) as error:
        make_curve(Config(), lines, "steps", metric, source=Path("run"))
    assert str(error.value) == f"run has no {says}"


def test_a_folder_is_its_runs_and_what_has_no_curve_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [make_run(Path("runs"), values, seed=seed) for seed, values in enumerate([[1.0, 2.0], [], [3.0, 4.0]])]
    metrics = runs[2] / "metrics.jsonl"
    metrics.write_text(metrics.read_text() + '{"step": 300, "roll\nnothing\n{"step": 400, "rollout/ep_')
    assert main(["plot", "runs"]) == 0
    out, err = capsys.readouterr()
    assert "a2c (2 seeds)" in out and out.endswith("\nplot.png\n") and Path("plot.png").exists()
    assert f"left out: {runs[1]} has no finite value" in err and len(err.splitlines()) == 2
    assert f"{metrics} is damaged: lines 3, 4 are left out" in err
    assert main(["plot", str(runs[1])]) == main(["plot", "runs", "nothing"]) == 2
    Path("runs/killed-while-made").mkdir()
    capsys.readouterr()
    assert main(["plot", *map(str, Path("runs").rglob("a2c-*")), "runs/killed-while-made"]) == 0
    assert "left out: runs/killed-while-made: not a run directory" in capsys.readouterr().err
    assert main(["plot", "runs/killed-while-made"]) == 2


def test_the_mean_covers_the_range_that_all_runs_have() -> None:
    group, = group_curves([curve([0, 10, 20], [0, 10, 20], seed=0), curve([4, 12], [8, 16], seed=1)])
    assert (group.x[0], group.x[-1]) == (4, 12)
    np.testing.assert_allclose(group.middle, group.x + 2)
    assert group.band is not None
    # A bootstrap sample of two runs holds only the lower one, or only the higher one, with probability 1/4 each.
    np.testing.assert_allclose(group.band, [group.x, group.x + 4])


def test_the_interquartile_mean_leaves_out_the_outer_quarters() -> None:
    values = np.array([100.0, 90.0, 1.0, 2.0, 3.0, 6.0, -50.0, -60.0])
    np.testing.assert_allclose(middle(values[:3, None], "iqm"), [191 / 3])
    group, = group_curves([curve([0, 1], [y, y], seed=i) for i, y in enumerate(values)], "iqm")
    np.testing.assert_allclose(group.middle, 3.0)


def test_the_interval_covers_the_true_mean_as_often_as_it_claims() -> None:
    values = np.random.default_rng(5).normal(size=(20, 300))
    low, high = bootstrap_interval(values, "mean")
    assert 0.88 < ((low < 0) & (high > 0)).mean() < 0.97


def test_the_table_has_the_end_and_the_peak_of_each_group(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, values, seed=seed) for seed, values in enumerate([(1, 5, 2), (1, 7, 4)])]
    runs += [make_run(tmp_path, [1.0], every=every, seed=every, gamma=0.5) for every in (100, 500)]
    groups = plot(runs, tmp_path / "new folder/curve.SVG", aggregate="iqm")
    assert summary_rows(groups, "steps") == [("a2c gamma=0.99 (2 seeds)", "3 (2 to 4)", "5.994 at 200.2"),
                                      ("a2c gamma=0.5 (2 seeds)", "no common range", "")]
    assert (tmp_path / "new folder/curve.SVG").read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(("x", "at"), [("steps", [100, 200]), ("minutes", [0.5, 1.0]), ("frames", [400, 800])])
def test_a_single_run_counts_once_and_is_drawn_as_recorded_in_the_unit_of_the_axis(
        tmp_path: Path, x: Any, at: list[float]) -> None:
    run = make_run(tmp_path, [1.0, 5.0, float("nan")])
    plot([run, run / "../a2c-1"], x=x, csv="curve.csv")
    with Path("curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(float(row[x]), float(row["value"]), row["low"]) for row in rows] == [(at[0], 1, ""), (at[1], 5, "")]


def test_a_curve_of_one_evaluation_is_a_dot() -> None:
    once, often = (draw(group_curves([curve(xs, xs)]), "steps", "eval/mean_reward") for xs in ([5], [5, 6]))
    assert [figure.axes[0].lines[0].get_marker() for figure in (once, often)] == ["o", ""]


def test_what_cannot_be_plotted_is_an_error_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, output = make_run(tmp_path, [1.0]), tmp_path / "curve.png"
    (tmp_path / "folder.png").mkdir()
    output.write_text("previous")
    with pytest.raises(ConfigError, match="no metrics yet"):
        plot(make_run(tmp_path, []), output)
    with pytest.raises(ConfigError, match="aggregate='median'"):
        plot(run, output, aggregate="median")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="choose another output"):
        plot(run, tmp_path / "folder.png")
    monkeypatch.setattr("vantage.tools.plot._write_csv", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(ConfigError, match=r"cannot write .*No space left"):
        plot([run], output, csv=tmp_path / "curve.csv")
    assert output.read_text() == "previous"
    assert not list(tmp_path.glob("*.csv")) and not list(tmp_path.glob(".*"))


def test_a_picture_drawn_again_from_its_numbers_has_the_same_groups(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, values, seed=seed) for seed, values in enumerate([(1, 5, 2), (1, 7, 4)])]
    plot(runs, tmp_path / "a.png", csv=tmp_path / "a.csv")
    results.redraw(tmp_path / "a.csv", tmp_path / "b.png", env="CartPole-v1")
    with Image.open(tmp_path / "a.png") as first, Image.open(tmp_path / "b.png") as again:
        pass
    assert first.info["Source"] == again.info["Source"] == digest(tmp_path / "a.csv")
    assert first.info["Title"] == again.info["Title"] == "CartPole-v1" and first.size == again.size


class Grid(Bandit):
    """Of a size."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size


def make_grid(size: int) -> Any:
    return lambda: Grid(size)


def edited(pay: int) -> type[Bandit]:
    """A class whose source text is unknown, as in a notebook of Python 3.11."""
    names: dict[str, Any] = {"Bandit": Bandit, "__name__": "__main__"}
    exec(f"class Own(Bandit):\n    def play(self, action):\n        return {pay}, True", names)
    own: type[Bandit] = names["Own"]
    return own


@pytest.mark.parametrize(("first", "second", "number"), [
    (lambda: Grid(5), lambda: Grid(5), 1), (lambda: Grid(5), lambda: Grid(9), 2),
    (make_grid(5), make_grid(5), 1), (make_grid(5), make_grid(9), 2),
    (edited(1), edited(1), 1), (edited(1), edited(2), 2), (partial(Grid, 5), partial(Grid, 9), 2)])
def test_runs_of_unnamed_code_are_one_group_only_where_the_code_and_its_values_are_equal(
        first: Any, second: Any, number: int, tmp_path: Path) -> None:
    runs = [make_run(tmp_path, [1.0, 2.0], env=env, seed=seed) for seed, env in enumerate((first, second))]
    labels = [group.label for group in plot(runs, tmp_path / "curve.svg")]
    names = [run.name for run in runs]
    if len({*names}) < 2:
        names = [str(run) for run in runs]
    assert labels == (["a2c (2 seeds)"] if number == 1 else [f"a2c {name} (1 seed)" for name in names])
    for run in runs:  # as before digests were saved
        meta = json.loads((run / "meta.json").read_text())
        del meta["digests"]
        (run / "meta.json").write_text(json.dumps(meta | {"sources": {"env": "same"}}))
    assert len(plot(runs, tmp_path / "curve.svg")) == 1
    (runs[0] / "meta.json").unlink()
    assert len(plot(runs, tmp_path / "curve.svg")) == 2


@dataclass(frozen=True)
class Tabled(A2C):
    """Fields that cannot be hashed."""

    stages: list[int] = field(default_factory=lambda: [1, 2])
    weights: dict[str, float] = field(default_factory=lambda: {"a": 1.0})
    pairs: tuple[list[int], ...] = ()


def test_runs_whose_lists_and_tables_are_equal_are_one_group() -> None:
    own = "test_plot:Tabled"
    curves = [curve([0, 1], [0, 1], algo=own, seed=seed, stages=stages, weights={"a": 0.5}, pairs=[[1]])
              for seed, stages in enumerate(([1, 2], [1, 2], [3]))]
    assert [group.label for group in group_curves(curves)] == [
        f"{own} stages=[1, 2] (2 seeds)", f"{own} stages=[3] (1 seed)"]


def test_a_schedule_from_a_function_is_short_in_labels() -> None:
    def falling(progress: float) -> float:
        return 1e-3 * (1 - progress)

    groups = group_curves([curve([0, 1], [0, 1], lr=falling), curve([0, 1], [0, 1], lr=1e-3)])
    assert [group.label for group in groups] == ["a2c lr=curve from 0.001 to 0 (1 seed)", "a2c lr=0.001 (1 seed)"]
    assert repr(Config().change(lr=falling).optimizer.lr) == "<Schedule curve from 0.001 to 0>"
    bent = group_curves([Curve(Config().change(lr=function), np.zeros(1), np.zeros(1), run)
                         for run, function in (("runs/a", falling), ("runs/b", lambda x: 1e-3 * (1 - x) ** 2))])
    assert [group.label for group in bent] == [f"a2c lr=curve from 0.001 to 0 {run} (1 seed)" for run in "ab"]


def test_a_notebook_shows_the_figure_of_a_plot(tmp_path: Path) -> None:
    run = make_run(tmp_path, [1.0, 2.0])
    drawn = plot(run, tmp_path / "a.svg")
    assert repr(drawn).endswith("a.svg: 1 curve>") and len(repr(drawn)) < 80
    assert drawn._repr_svg_() == (tmp_path / "a.svg").read_text() and drawn._repr_png_() is None
    drawn = plot(run, tmp_path / "a.png")
    assert drawn._repr_png_() == (tmp_path / "a.png").read_bytes() and drawn._repr_svg_() is None
