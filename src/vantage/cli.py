"""The command `vantage`: arguments in, exit status out. Help and bad input are answered before torch is imported."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import fields, replace
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, get_args, get_type_hints

from vantage.config import Config, convert, nearest, read_json_object
from vantage.errors import ConfigError, EnvError, VantageError

if TYPE_CHECKING:
    from vantage.tools.display import Display
    from vantage.tools.search.show import SearchDisplay
    from vantage.types import Report

POSITIONAL = {"algo", "env"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 0 done, 1 failed, 2 bad usage, 130 and 143 stopped by a signal."""
    argv = sys.argv[1:] if argv is None else list(argv)
    _accept_any_output()
    try:
        arguments = parse(argv)
        status = int(arguments.run_command(arguments))
        sys.stdout.flush()
        return status
    except VantageError as error:
        if isinstance(error, EnvError) and error.__cause__ is not None:
            traceback.print_exception(error.__cause__)  # where in the user's own code
        print(f"vantage: {error}", file=sys.stderr)
        return error.status
    except Stopped as error:
        print("vantage: stopped before training began", file=sys.stderr)
        return 128 + error.number
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        if error.filename is not None:  # not standard output
            raise
        from vantage.tools.display import discard_output

        discard_output()
        if not isinstance(error, BrokenPipeError):
            print(f"vantage: cannot write to standard output: {error.strerror}", file=sys.stderr)
        return 1


def _accept_any_output() -> None:
    """Standard output that is closed, or whose encoding lacks a character, ends no command."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  stays open to the end
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line with the remedy."""

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong as a ConfigError."""
        raise ConfigError(f"{message}; see {self.prog} --help")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The parsed command line; ConfigError names the nearest flag for an unknown one."""
    parser = _parser()
    arguments, unknown = parser.parse_known_args(_join_negative(argv))
    if unknown:
        flag = unknown[0].partition("=")[0]
        known = arguments.parser._option_string_actions
        hint = nearest(flag, known) if flag.startswith("-") else ""
        raise ConfigError(f"unknown argument {flag!r}{hint}; see {arguments.parser.prog} --help")
    return arguments


def _join_negative(argv: Sequence[str]) -> list[str]:
    """`--flag -1e-3` as `--flag=-1e-3`: argparse takes a number with an exponent for a flag."""
    joined: list[str] = []
    for word in argv:
        if joined and joined[-1].startswith("--") and "=" not in joined[-1] and re.match(r"-\.?\d", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _parser() -> Parser:
    parser = Parser(prog="vantage", description="Advantage actor-critic agents: train, resume, evaluate, watch, plot.",
                    allow_abbrev=False)
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)

    def command(name: str, help: str, run: Callable[[argparse.Namespace], int]) -> Parser:
        sub = commands.add_parser(name, help=help, description=help, allow_abbrev=False)
        sub.set_defaults(run_command=run, parser=sub)
        return sub

    _add_train(command("train", "train an agent in a new run directory", run_train))
    _add_search(command("search", "find good values for config keys by many short trainings", run_search))
    _add_resume(command("resume", "go on with a run from its newest good checkpoint", run_resume))
    _add_evaluate(command("evaluate", "play whole games with a run's policy", run_evaluate))
    _add_record(command("record", "record whole games of a run's policy as a video", run_record))
    _add_watch(command("watch", "watch a run's policy play in a window, also while it trains", run_watch))
    _add_preview(command("preview", "draw what the network sees of an environment", run_preview))
    _add_play(command("play", "play an environment with the keyboard", run_play))
    _add_plot(command("plot", "draw the curves of runs", run_plot))
    _add_report(command("report", "write a run as one HTML page: scores, a game, curves, config", run_report))
    _add_export(command("export", "write a run's policy to one file: ONNX or safetensors", run_export))
    _add_bench(command("bench", "measure speed: the parts, what they allow, and the whole", run_bench))
    _add_doctor(command("doctor", "try what this machine has, and say what to do about what is missing", run_doctor))
    command("list", "list algorithms, networks, families of environments and their defaults", run_list)
    return parser


def _version() -> str:
    from importlib.metadata import version
    return f"vantage {version('vantage-rl')}"


def _add_config(sub: Parser) -> None:
    sub.add_argument("algo", help="a2c, a3c, a3g, acer, or a preset that vantage list names")
    sub.add_argument("--env", help="Gymnasium id, short Atari name (Pong), or module:Class")
    _add_keys(sub)


def _add_env_config(sub: Parser) -> None:
    sub.add_argument("env", metavar="ENV", help="Gymnasium id, short Atari name (Pong), or module:Class")
    sub.add_argument("--algo", default="a2c", help="whose defaults the keys below have (a2c)")
    _add_keys(sub)


def _add_keys(sub: Parser) -> None:
    sub.add_argument("--config", metavar="FILE.json", help="config file; flags override it")
    keys = sub.add_argument_group("config keys (defaults depend on the environment: --dry-run prints them)")
    hints = get_type_hints(Config)
    for f in fields(Config):
        if f.name in POSITIONAL:
            continue
        flag = "--" + f.name.replace("_", "-")
        names = [flag] if "_" not in f.name else [flag, "--" + f.name]
        text = f.metadata["help"].replace("%", "%%")
        if bool in (get_args(hints[f.name]) or (hints[f.name],)):
            keys.add_argument(*names, nargs="?", const="true", default=argparse.SUPPRESS, dest=f"key_{f.name}",
                              metavar="true|false", help=text)
            keys.add_argument(*[name.replace("--", "--no-", 1) for name in names], action="store_const", const="false",
                              default=argparse.SUPPRESS, dest=f"key_{f.name}", help=argparse.SUPPRESS)
        else:
            choices = f.metadata.get("choices") or ()
            keys.add_argument(*names, default=argparse.SUPPRESS, dest=f"key_{f.name}", help=text,
                              metavar="|".join(choices) if choices else f.name.upper())


def _add_train(sub: Parser) -> None:
    sub.add_argument("algo", nargs="?", help="algorithm: a2c, a3c, a3g or acer")
    sub.add_argument("--env", help="Gymnasium id, short Atari name (Pong), or module:Class")
    sub.add_argument("--from-search", metavar="DIR", help="config of the best trial of a search; --config and flags "
                     "override it")
    _add_keys(sub)
    sub.add_argument("--run", metavar="DIR", help="run directory to create; default runs/ENV/ALGO-N")
    sub.add_argument("--dry-run", action="store_true", help="print the resolved config as JSON and stop")
    sub.add_argument("--report", action="store_true", help="at the end evaluate, draw curve.png and say where all is")


def _add_search(sub: Parser) -> None:
    sub.add_argument("--grid", metavar="FILE.json", help="keys with lists: their full product; an object of equally "
                     "long lists: these go together")
    sub.add_argument("--space", metavar="FILE.json", help="keys with ranges or choices, which Optuna draws from")
    sub.add_argument("--trials", help="trials of a --space, all told (30)")
    sub.add_argument("--seeds", default="1", help="seeds of each trial, from --seed on; their mean counts (1)")
    sub.add_argument("--jobs", default="1", help="runs at once, each in a process of its own (1)")
    sub.add_argument("--sampler", default="tpe", choices=("tpe", "random"), help="how a --space is drawn from (tpe)")
    sub.add_argument("--pruner", choices=("asha", "none"), help="asha: successive halving ends poor trials early, the "
                     "default for --space; none: the default for --grid")
    sub.add_argument("--reduction", default="3", help="asha goes on with one in so many, so many times as long (3)")
    sub.add_argument("--min-steps", help="agent steps before asha first compares; default steps / reduction^2")
    sub.add_argument("--storage", metavar="URL|FILE", help="Optuna storage that several machines share: a URL, or a "
                     "file ending in .db or .journal; default study.db in the search's directory")
    sub.add_argument("--run", metavar="DIR", help="search directory; default runs/search/ENV/ALGO-N, for the same "
                     "command the same")
    _add_config(sub)


def _add_resume(sub: Parser) -> None:
    sub.add_argument("run", metavar="RUN", help="run directory")
    sub.add_argument("--steps", help="new total of agent steps")
    sub.add_argument("--extend-schedule", action="store_true", help="schedules run over the new total")
    sub.add_argument("--max-minutes", help="stop after this wall time; for this time alone")
    sub.add_argument("--device", help="cpu, cuda, cuda:0 or auto, from now on")
    sub.add_argument("--report", action="store_true", help="at the end evaluate, draw curve.png and say where all is")


def _add_evaluate(sub: Parser) -> None:
    sub.add_argument("run", metavar="RUN", help="run directory")
    sub.add_argument("--episodes", default="100", help="whole games to play (100)")
    sub.add_argument("--checkpoint", default="auto", help="latest, best or a step; auto: best if there is one")
    _add_acting(sub)
    sub.add_argument("--json", action="store_true", help="print one JSON object")


def _add_acting(sub: Parser) -> None:
    sub.add_argument("--seed", default="0", help="seed of the evaluation's environments and actions (0)")
    mode = sub.add_mutually_exclusive_group()
    mode.add_argument("--deterministic", action="store_true", help="the most probable actions")
    mode.add_argument("--stochastic", action="store_true", help="sampled actions (the default on Atari)")


def _add_record(sub: Parser) -> None:
    sub.add_argument("run", metavar="RUN", help="run directory")
    sub.add_argument("-o", "--output", required=True, metavar="FILE.mp4|.gif", help="the video")
    sub.add_argument("--episodes", default="1", help="whole games to record (1)")
    sub.add_argument("--checkpoint", default="auto", help="latest, best or a step; auto: best if there is one")
    _add_acting(sub)


def _add_watch(sub: Parser) -> None:
    sub.add_argument("run", metavar="RUN", help="run directory; of one that trains each game has the newest checkpoint")
    sub.add_argument("--checkpoint", default="latest", help="latest, best or a step; latest follows the training")
    _add_acting(sub)


def _add_preview(sub: Parser) -> None:
    sub.add_argument("-o", "--output", required=True, metavar="FILE.png", help="the picture")
    _add_env_config(sub)


def _add_play(sub: Parser) -> None:
    _add_env_config(sub)


def _add_plot(sub: Parser) -> None:
    sub.add_argument("runs", metavar="RUN", nargs="+", help="run directories; seeds of one setting are drawn as a band")
    sub.add_argument("-o", "--output", required=True, metavar="FILE.png", help="png, svg or pdf")
    sub.add_argument("--x", default="steps", choices=("steps", "minutes", "frames"), help="horizontal axis")
    sub.add_argument("--metric", default="rollout/ep_rew_mean", help="metric of metrics.jsonl")
    sub.add_argument("--aggregate", default="mean", choices=("mean", "iqm"),
                     help="what stands for several seeds: their mean or their interquartile mean")
    sub.add_argument("--smooth", default="0", metavar="WEIGHT", help="weight of the past in a running mean, 0 to 1 (0)")
    sub.add_argument("--csv", metavar="FILE.csv", help="write the drawn numbers too")


def _add_report(sub: Parser) -> None:
    sub.add_argument("run", metavar="RUN", help="run directory")
    sub.add_argument("-o", "--output", metavar="FILE.html", help="default report.html in RUN")
    sub.add_argument("--episodes", default="20", metavar="N", help="games of the evaluation (20)")
    sub.add_argument("--no-video", action="store_true", help="record no game")
    sub.add_argument("--checkpoint", default="auto", help="latest, best or a step; auto: best if there is one")


def _add_export(sub: Parser) -> None:
    sub.add_argument("run", metavar="RUN", help="run directory")
    sub.add_argument("--format", required=True, choices=("onnx", "safetensors"),
                     help="onnx: runs without Vantage and torch; safetensors: for vantage.load, with a model card")
    sub.add_argument("-o", "--output", metavar="FILE", help="default policy.onnx or policy.safetensors in RUN")
    sub.add_argument("--checkpoint", default="auto", help="latest, best or a step; auto: best if there is one")


def _add_bench(sub: Parser) -> None:
    _add_config(sub)
    sub.add_argument("--seconds", default="30", help="how long to measure (30)")
    sub.add_argument("--json", action="store_true", help="print one JSON object")


def _add_doctor(sub: Parser) -> None:
    sub.add_argument("--json", action="store_true", help="print one JSON object")


def resolve(arguments: argparse.Namespace) -> tuple[Config, str]:
    """The config of the command line: defaults of the environment, then the config file, then flags; and its source."""
    from vantage.presets import configure, defaults

    algo, env, values = _given(arguments)
    config = configure(algo, env=env, **values)
    return config, defaults(algo, env, config.atari_protocol).source


def _given(arguments: argparse.Namespace) -> tuple[str, str, dict[str, Any]]:
    """Algorithm, environment, and the keys that the config file and flags name."""
    values: dict[str, Any] = {}
    if arguments.config:
        try:
            text = Path(arguments.config).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read --config {arguments.config}: {error}") from None
        values = read_json_object(text, source=arguments.config)
    hints = get_type_hints(Config)
    for key, value in values.items():
        if key not in hints:
            raise ConfigError(f"{arguments.config}: unknown key {key!r}{nearest(key, hints)}")
        values[key] = convert(key, value, hints[key], source=arguments.config)
    for name, value in vars(arguments).items():
        if name.startswith("key_"):
            key = name.removeprefix("key_")
            values[key] = convert(key, value, hints[key], source="--" + key.replace("_", "-"))
    values.pop("algo", None)
    env = arguments.env or convert("env", values.get("env", ""), str, source=str(arguments.config))
    if not env:
        raise ConfigError("which environment? Give --env, for example --env CartPole-v1 or --env Pong")
    values.pop("env", None)
    return arguments.algo, env, values


def _resolve_search(arguments: argparse.Namespace) -> tuple[Config, str]:
    """The config of a search's best trial, which the config file and flags override; and its source."""
    from vantage.presets import configure
    from vantage.tools.search.directory import read_best

    best, source = read_best(Path(arguments.from_search))
    for name, given in (("algo", arguments.algo), ("env", arguments.env)):
        if given not in (None, best[name]):
            raise ConfigError(f"--from-search {arguments.from_search} is of {name}={best[name]}, not {given}; leave "
                              "one of them out")
    arguments.algo, arguments.env = best.pop("algo"), best.pop("env")
    algo, env, values = _given(arguments)
    return configure(algo, env=env, **{**best, **values}), source


def run_train(arguments: argparse.Namespace) -> int:
    """`vantage train`."""
    if arguments.algo is None and arguments.from_search is None:
        raise ConfigError("which algorithm? Give a2c, a3c, a3g or acer, or --from-search DIR; see vantage train --help")
    config, source = resolve(arguments) if arguments.from_search is None else _resolve_search(arguments)
    kind = "defaults" if arguments.from_search is None else "config"
    if arguments.dry_run:
        print(config.to_json())
        return 0
    from vantage.training import train

    stop = Stop()
    reports = train(config, run=arguments.run, argv=sys.argv, should_stop=stop.requested, notify=stop.note)
    return _follow(config, reports, stop, report=arguments.report, notes=[f"{kind}: {source}"])


def run_search(arguments: argparse.Namespace) -> int:
    """`vantage search`."""
    from vantage.tools.search.command import Options, check_libraries, search

    check_libraries()
    numbers = {name: convert(name, value, int, source="--" + name.replace("_", "-"))
               for name in ("trials", "seeds", "jobs", "reduction", "min_steps")
               if (value := getattr(arguments, name)) is not None}
    algo, env, given = _given(arguments)
    options = Options(grid=arguments.grid, space=arguments.space, sampler=arguments.sampler, pruner=arguments.pruner,
                      storage=arguments.storage, run=arguments.run, **numbers)
    stop = Stop()
    try:
        return search(algo, env, given, options, stop)
    finally:
        stop.over()


def run_resume(arguments: argparse.Namespace) -> int:
    """`vantage resume`."""
    from vantage.runs.directory import RunDirectory

    config = RunDirectory.open(Path(arguments.run)).config
    steps = None if arguments.steps is None else convert("steps", arguments.steps, int, source="--steps")
    minutes = None if arguments.max_minutes is None else convert("max_minutes", arguments.max_minutes, float,
                                                                 source="--max-minutes")
    from vantage.training import resume

    stop = Stop()
    reports = resume(arguments.run, steps=steps, extend_schedule=arguments.extend_schedule, max_minutes=minutes,
                     device=arguments.device, should_stop=stop.requested, notify=stop.note)
    shown = replace(config, steps=steps or config.steps, max_minutes=minutes or config.max_minutes)
    return _follow(shown, reports, stop, report=arguments.report, notes=[])


class Stopped(KeyboardInterrupt):
    """A signal came before training began, when there was nothing to save."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class Stop:
    """SIGINT, SIGTERM and SIGHUP ask the run to stop after its update; a second one exits at once."""

    def __init__(self) -> None:
        self.signal = 0
        self.display: Display | SearchDisplay | None = None
        self._training = False
        heard = [signal.SIGINT, signal.SIGTERM]
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup sets it
            heard.append(signal.SIGHUP)
        self._former = {number: signal.signal(number, self._handle) for number in heard}

    def note(self, text: str) -> None:
        """Say `text` where the person looks."""
        from vantage.tools.display import say

        if self.display is None:
            say(f"- {text}")
        else:
            self.display.note(text)

    def over(self) -> None:
        """The run has ended: signals do again what they did before it."""
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def requested(self) -> bool:
        """A signal has arrived. The first to ask is the run, before its first update."""
        self._training = True
        return self.signal != 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            self._leave(128 + number)
        self.signal = number
        if not self._training:
            raise Stopped(number)
        if self.display is not None:
            self.display.stopping("stopping after this update; once more to exit at once")

    def _leave(self, status: int) -> NoReturn:
        """Exit at once, with nothing left behind but what is in the last checkpoint."""
        import multiprocessing

        for worker in multiprocessing.active_children():
            worker.kill()
        if sys.stdout.isatty():
            os.write(1, b"\x1b[?25h\n")  # the live panel hides the cursor
        os._exit(status)


def _follow(config: Config, reports: Generator[Report], stop: Stop, *, report: bool, notes: Sequence[str]) -> int:
    """Show the reports until the last; returns the exit status."""
    from vantage.presets import expectation
    from vantage.tools.display import make_display, say

    last = None
    with ExitStack() as stack:
        stack.enter_context(closing(reports))
        display = stack.enter_context(make_display(config, expectation(config)))
        stop.display = display
        try:
            for note in notes:
                display.note(note)
            for last in reports:
                display.show(last)
        finally:
            stop.over()
    if last is None:
        return 1
    if stop.signal:
        say(f"stopped by {signal.Signals(stop.signal).name} at step {last.step:,}, saved; go on with: "
            f"vantage resume {last.run}")
        return 128 + stop.signal
    if report:
        from vantage.tools.finish import final_report
        final_report(Path(last.run))
    else:
        say(f"{last.run}: {last.step:,} steps in {last.seconds:,.0f} s. Next: vantage evaluate {last.run}")
    return 0


def run_evaluate(arguments: argparse.Namespace) -> int:
    """`vantage evaluate`."""
    episodes = convert("episodes", arguments.episodes, int, source="--episodes")
    seed = convert("seed", arguments.seed, int, source="--seed")
    from vantage.tools.evaluate import evaluate

    result = evaluate(arguments.run, episodes=episodes, deterministic=_deterministic(arguments),
                      checkpoint=arguments.checkpoint, seed=seed, notify=_warn)
    print(json.dumps(result.as_dict()) if arguments.json else result.sentence())
    return 0


def _deterministic(arguments: argparse.Namespace) -> bool | None:
    return True if arguments.deterministic else False if arguments.stochastic else None


def _warn(text: str) -> None:
    print(f"vantage: {text}", file=sys.stderr)


def _quiet_sdl(*, screen: bool) -> None:
    """SDL, which many environments draw with, looks for no sound card and no needless screen, nor complains of none."""
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    if not screen:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def run_record(arguments: argparse.Namespace) -> int:
    """`vantage record`."""
    episodes = convert("episodes", arguments.episodes, int, source="--episodes")
    seed = convert("seed", arguments.seed, int, source="--seed")
    _quiet_sdl(screen=False)
    from vantage.tools.record import record

    result = record(arguments.run, Path(arguments.output), episodes=episodes, deterministic=_deterministic(arguments),
                    checkpoint=arguments.checkpoint, seed=seed, notify=_warn)
    print(result.sentence())
    return 0


def run_watch(arguments: argparse.Namespace) -> int:
    """`vantage watch`."""
    seed = convert("seed", arguments.seed, int, source="--seed")
    _quiet_sdl(screen=True)
    from vantage.tools.watch import watch

    watch(arguments.run, deterministic=_deterministic(arguments), checkpoint=arguments.checkpoint, seed=seed,
          notify=_warn)
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
                  csv=None if arguments.csv is None else Path(arguments.csv))
    rows = [(arguments.metric, "at the end", "highest"), *table(groups, arguments.x)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip())
    print(arguments.output)
    return 0


def run_report(arguments: argparse.Namespace) -> int:
    """`vantage report`."""
    from vantage.tools.report import report

    print(report(arguments.run, None if arguments.output is None else Path(arguments.output),
                 episodes=convert("episodes", arguments.episodes, int, source="--episodes"),
                 video=not arguments.no_video, checkpoint=arguments.checkpoint,
                 notify=lambda text: print(f"vantage: {text}", file=sys.stderr)))
    return 0


def run_export(arguments: argparse.Namespace) -> int:
    """`vantage export`."""
    from vantage.tools.export import export

    output = None if arguments.output is None else Path(arguments.output)
    result = export(arguments.run, format=arguments.format, output=output, checkpoint=arguments.checkpoint,
                    notify=lambda text: print(f"vantage: {text}", file=sys.stderr))
    print(result.sentence())
    return 0


def run_bench(arguments: argparse.Namespace) -> int:
    """`vantage bench`."""
    config, _ = resolve(arguments)
    seconds = convert("seconds", arguments.seconds, float, source="--seconds")
    if seconds <= 0:
        raise ConfigError(f"--seconds {seconds:g} is not above 0")
    from vantage.tools.bench import bench

    result = bench(config, seconds=seconds)
    print(json.dumps(result.as_dict()) if arguments.json else result.table())
    return 0


def run_doctor(arguments: argparse.Namespace) -> int:
    """`vantage doctor`; status 1 where training does not work."""
    from vantage.tools.doctor import examine

    print("vantage: trying environments and a training, about ten seconds ...", file=sys.stderr)
    result = examine()
    print(json.dumps(result.as_dict()) if arguments.json else result.table())
    return 0 if result.works else 1


def run_list(arguments: argparse.Namespace) -> int:
    """`vantage list`."""
    from vantage.presets import catalogue

    print(catalogue())
    return 0


if __name__ == "__main__":
    sys.exit(main())
