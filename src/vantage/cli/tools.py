"""Commands around training: what to look at, measure and take away."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from vantage.cli.given import resolve
from vantage.errors import ConfigError
from vantage.keys import convert

_DAY = 86_400
"""Seconds."""


def run_evaluate(arguments: argparse.Namespace) -> int:
    """`vantage evaluate`."""
    episodes = convert("episodes", arguments.episodes, int, source="--episodes")
    seed = convert("seed", arguments.seed, int, source="--seed")
    from vantage.tools.evaluate import evaluate

    result = evaluate(arguments.run, episodes=episodes, deterministic=_deterministic(arguments),
                      checkpoint=arguments.checkpoint, seed=seed, trust=arguments.trust)
    print(json.dumps(result.as_dict()) if arguments.json else result.sentence())
    return 0


def _deterministic(arguments: argparse.Namespace) -> bool | None:
    return True if arguments.deterministic else False if arguments.stochastic else None


def _quiet_sdl(*, screen: bool) -> None:
    """SDL, which many environments draw with, looks for no sound card and no needless screen, nor complains of none."""
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    if not screen:
        os.environ["SDL_VIDEODRIVER"] = "dummy"  # one that is named and not there would end the command


def run_record(arguments: argparse.Namespace) -> int:
    """`vantage record`."""
    episodes = convert("episodes", arguments.episodes, int, source="--episodes")
    seed = convert("seed", arguments.seed, int, source="--seed")
    _quiet_sdl(screen=False)
    from vantage.tools.record import record

    result = record(arguments.run, Path(arguments.output), episodes=episodes, deterministic=_deterministic(arguments),
                    checkpoint=arguments.checkpoint, seed=seed, trust=arguments.trust)
    print(result.sentence())
    return 0


def run_watch(arguments: argparse.Namespace) -> int:
    """`vantage watch`."""
    seed = convert("seed", arguments.seed, int, source="--seed")
    _quiet_sdl(screen=True)
    from vantage.tools.watch import watch

    watch(arguments.run, deterministic=_deterministic(arguments), checkpoint=arguments.checkpoint, seed=seed,
          trust=arguments.trust)
    return 0


def run_preview(arguments: argparse.Namespace) -> int:
    """`vantage preview`."""
    config, _ = resolve(arguments)
    _quiet_sdl(screen=False)
    from vantage.tools.preview import preview

    print(preview(config, Path(arguments.output)))
    return 0


def run_play(arguments: argparse.Namespace) -> int:
    """`vantage play`."""
    config, _ = resolve(arguments)
    _quiet_sdl(screen=True)
    from vantage.tools.play import play

    play(config, say=print)
    return 0


def run_plot(arguments: argparse.Namespace) -> int:
    """`vantage plot`."""
    from vantage.tools.plot import plot, table

    groups = plot([Path(run) for run in arguments.runs], Path(arguments.output), x=arguments.x,
                  metric=arguments.metric, aggregate=arguments.aggregate,
                  smooth=convert("smooth", arguments.smooth, float, source="--smooth"),
                  csv=None if arguments.csv is None else Path(arguments.csv), trust=arguments.trust)
    rows = [(arguments.metric, "at the end", "highest"), *table(groups, arguments.x)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip())
    print(arguments.output)
    return 0


def run_report(arguments: argparse.Namespace) -> int:
    """`vantage report`."""
    _quiet_sdl(screen=False)
    from vantage.tools.report import report

    print(report(arguments.run, None if arguments.output is None else Path(arguments.output),
                 episodes=convert("episodes", arguments.episodes, int, source="--episodes"),
                 video=not arguments.no_video, checkpoint=arguments.checkpoint, trust=arguments.trust))
    return 0


def run_export(arguments: argparse.Namespace) -> int:
    """`vantage export`."""
    from vantage.tools.export import export

    output = None if arguments.output is None else Path(arguments.output)
    result = export(arguments.run, format=arguments.format, output=output, checkpoint=arguments.checkpoint,
                    trust=arguments.trust)
    print(result.sentence())
    return 0


def run_bench(arguments: argparse.Namespace) -> int:
    """`vantage bench`."""
    config, _ = resolve(arguments)
    seconds = convert("seconds", arguments.seconds, float, source="--seconds")
    if not 0 < seconds <= _DAY:
        raise ConfigError(f"--seconds {seconds:g} is not above 0 and at most {_DAY:,}, a day")
    from vantage.tools.bench import bench

    result = bench(config, seconds=seconds)
    print(json.dumps(result.as_dict()) if arguments.json else result.table())
    return 0


def run_doctor(arguments: argparse.Namespace) -> int:
    """`vantage doctor`; status 1 where training does not work."""
    from vantage.tools.doctor import examine

    print("vantage: checking libraries and a short training, about ten seconds ...", file=sys.stderr)
    result = examine()
    print(json.dumps(result.as_dict()) if arguments.json else result.table())
    return 0 if result.works else 1


def run_list(arguments: argparse.Namespace) -> int:
    """`vantage list`."""
    from vantage.presets import catalogue

    print(catalogue())
    return 0
