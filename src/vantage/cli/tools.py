"""Commands around training: what to look at, measure and take away."""

from __future__ import annotations

import os
import sys
from json import dumps
from pathlib import Path
from typing import Annotated, Literal

from typing_extensions import Doc
from tyro.conf import Positional, arg

from vantage.cli.arguments import Settings
from vantage.errors import ConfigError

Run = Positional[Annotated[str, Doc("run directory"), arg(metavar="RUN")]]
Checkpoint = Annotated[str, Doc("latest, best or a step; auto: best if there is one")]
Deterministic = Annotated[bool, Doc("the most probable actions")]
Stochastic = Annotated[bool, Doc("sampled actions (the default on Atari)")]
Seed = Annotated[int, Doc("seed of the environments and actions")]
Trust = Annotated[bool, Doc("import the code that someone else's run names")]
Json = Annotated[bool, Doc("print one JSON object")]
SHORT = arg(aliases=("-o",))


def evaluate(run: Run, *, episodes: Annotated[int, Doc("whole games to play")] = 100, checkpoint: Checkpoint = "auto",
             deterministic: Deterministic = False, stochastic: Stochastic = False, seed: Seed = 0, trust: Trust = False,
             json: Json = False) -> None:
    """Play whole games with a run's policy."""
    mode = _mode(deterministic, stochastic)
    from vantage.tools.evaluate import evaluate

    result = evaluate(run, episodes=episodes, deterministic=mode, checkpoint=checkpoint, seed=seed, trust=trust)
    print(dumps(result.as_dict()) if json else result.sentence())


def record(run: Run, *, output: Annotated[Path, Doc("the video, .mp4"), SHORT],
           episodes: Annotated[int, Doc("whole games to record")] = 1, checkpoint: Checkpoint = "auto",
           deterministic: Deterministic = False, stochastic: Stochastic = False, seed: Seed = 0,
           trust: Trust = False) -> None:
    """Record whole games of a run's policy as a video."""
    mode = _mode(deterministic, stochastic, screen=False)
    from vantage.tools.record import record

    print(record(run, output, episodes=episodes, deterministic=mode, checkpoint=checkpoint, seed=seed,
                 trust=trust).sentence())


def watch(run: Run, *, checkpoint: Annotated[str, Doc("latest, best or a step; latest follows a training")] = "latest",
          deterministic: Deterministic = False, stochastic: Stochastic = False, seed: Seed = 0,
          trust: Trust = False) -> None:
    """Watch a run's policy play in a window, also while it trains."""
    mode = _mode(deterministic, stochastic, screen=True)
    from vantage.tools.watch import watch

    watch(run, deterministic=mode, checkpoint=checkpoint, seed=seed, trust=trust)


def _mode(deterministic: bool, stochastic: bool, *, screen: bool = False) -> bool | None:
    """Whether the policy is to act deterministically; None: as usual for the environment."""
    if deterministic and stochastic:
        raise ConfigError("--deterministic and --stochastic exclude each other; leave one of them out")
    _quiet_sdl(screen=screen)
    return deterministic if deterministic or stochastic else None


def _quiet_sdl(*, screen: bool) -> None:
    """Keep SDL, which many environments draw with, from looking for a sound card and a needless screen."""
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    if not screen:
        os.environ["SDL_VIDEODRIVER"] = "dummy"  # a driver that is named but missing would end the command


def preview(settings: Settings, *, output: Annotated[Path, Doc("the picture, .png"), SHORT]) -> None:
    """Draw what the network sees of an environment."""
    _quiet_sdl(screen=False)
    config = settings.config()
    from vantage.tools.preview import preview

    print(preview(config, output))


def play(settings: Settings) -> None:
    """Play an environment with the keyboard."""
    _quiet_sdl(screen=True)
    config = settings.config()
    from vantage.tools.play import play

    play(config, say=print)


def plot(runs: Positional[Annotated[list[str], Doc("runs; seeds of one setting become a band"), arg(metavar="RUN")]],
         *, output: Annotated[Path, Doc("the figure: .png, .svg or .pdf"), SHORT],
         x: Annotated[Literal["steps", "minutes", "frames"], Doc("horizontal axis")] = "steps",
         metric: Annotated[str, Doc("metric of metrics.jsonl")] = "rollout/ep_rew_mean",
         aggregate: Annotated[Literal["mean", "iqm"], Doc("mean of seeds, or interquartile mean")] = "mean",
         smooth: Annotated[float, Doc("weight of the past in a running mean, 0 to 1")] = 0.0,
         csv: Annotated[Path | None, Doc("write the drawn numbers too")] = None, trust: Trust = False) -> None:
    """Draw the curves of runs."""
    from vantage.tools.plot import plot, table

    groups = plot([Path(run) for run in runs], output, x=x, metric=metric, aggregate=aggregate, smooth=smooth, csv=csv,
                  trust=trust)
    rows = [(metric, "at the end", "highest"), *table(groups, x)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip())
    print(output)


def report(run: Run, *, output: Annotated[Path | None, Doc("the page; none: report.html in RUN"), SHORT] = None,
           episodes: Annotated[int, Doc("games of the evaluation")] = 20, checkpoint: Checkpoint = "auto",
           no_video: Annotated[bool, Doc("record no game")] = False, trust: Trust = False) -> None:
    """Write a run as one HTML page: scores, a game, curves, config."""
    _quiet_sdl(screen=False)
    from vantage.tools.report import report

    print(report(run, output, episodes=episodes, video=not no_video, checkpoint=checkpoint, trust=trust))


def export(run: Run, *, format: Annotated[Literal["onnx", "safetensors"], Doc("safetensors is for vantage.load")],
           output: Annotated[Path | None, Doc("none: policy.onnx or policy.safetensors in RUN"), SHORT] = None,
           checkpoint: Checkpoint = "auto", trust: Trust = False) -> None:
    """Write a run's policy to one file."""
    from vantage.tools.export import export

    print(export(run, format=format, output=output, checkpoint=checkpoint, trust=trust).sentence())


def bench(settings: Settings, *, seconds: Annotated[float, Doc("how long to measure")] = 30.0,
          json: Json = False) -> None:
    """Measure speed: the parts, what they allow, and the whole."""
    config = settings.config()
    if not 0 < seconds <= 86_400:
        raise ConfigError(f"--seconds {seconds:g} is not above 0 and at most 86,400, a day")
    from vantage.tools.bench import bench

    result = bench(config, seconds=seconds)
    print(dumps(result.as_dict()) if json else result.table())


def doctor(*, json: Json = False) -> int:
    """Try what this machine has, and say what to do about what is missing."""
    from vantage.tools.doctor import examine

    print("vantage: checking libraries and a short training, about ten seconds ...", file=sys.stderr)
    result = examine()
    print(dumps(result.as_dict()) if json else result.table())
    return 0 if result.works else 1


def list_() -> None:
    """List algorithms, networks, presets, and families of environments."""
    from vantage.presets import catalogue

    print(catalogue())
