"""The command line: every command with its flags."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NoReturn, get_args

from vantage.cli import tools, train
from vantage.config import Config
from vantage.errors import ConfigError
from vantage.keys import nearest

POSITIONAL = {"algo", "env"}


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line with the remedy."""

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong as a ConfigError."""
        raise ConfigError(f"{message}; see {self.prog} --help")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The parsed command line; ConfigError names the nearest flag for an unknown one."""
    parser = _parser(_own_algorithm(argv))
    arguments, unknown = parser.parse_known_args(_join(argv))
    if unknown:
        flag = unknown[0].partition("=")[0]
        known = arguments.parser._option_string_actions
        hint = nearest(flag, known) if flag.startswith("-") else ""
        raise ConfigError(f"unknown argument {flag!r}{hint}; see {arguments.parser.prog} --help")
    return arguments


def _own_algorithm(argv: Sequence[str]) -> str:
    """The import path of an algorithm that the command line names, whose keys are flags too; else a built-in one."""
    if not argv or argv[0] not in ("train", "search", "bench"):
        return "a2c"
    words = [word for before, word in pairwise(argv) if not before.startswith("--") and not word.startswith("-")]
    return next((word for word in words if re.fullmatch(r"[\w.]+:[\w.]+", word)), "a2c")


def _join(argv: Sequence[str]) -> list[str]:
    """`--flag -1e-3` as `--flag=-1e-3`, and `--switch WORD` as `--switch=true WORD`.

    argparse takes a number with an exponent for a flag, and what follows a switch for its value.
    """
    joined: list[str] = []
    switches = _switches()
    for word in argv:
        if joined and joined[-1] in switches:
            joined[-1] += f"={word}" if word.lower() in ("true", "false") else "=true"
            if joined[-1].endswith(f"={word}"):
                continue
        if joined and joined[-1].startswith("--") and "=" not in joined[-1] and re.match(r"-\.?\d", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _switches() -> set[str]:
    """Flags of config keys that are true or false, in both spellings."""
    return {name for key, (hint, _) in Config.every_key().items() if _is_switch(hint) for name in _spellings(key)}


def _is_switch(hint: Any) -> bool:
    """A key of this type is true or false, perhaps none."""
    return bool in (get_args(hint) or (hint,))


def _spellings(key: str) -> list[str]:
    """The flags of a config key, the usual one first."""
    return list(dict.fromkeys(["--" + key.replace("_", "-"), "--" + key]))


def _parser(algo: str = "a2c") -> Parser:
    parser = Parser(prog="vantage", description="Advantage actor-critic agents: train, resume, evaluate, watch, plot.",
                    allow_abbrev=False)
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)

    def command(name: str, help: str, run: Callable[[argparse.Namespace], int]) -> Parser:
        sub = commands.add_parser(name, help=help, description=help, allow_abbrev=False)
        sub.set_defaults(run_command=run, parser=sub)
        return sub

    _add_train(algo, command("train", "train an agent in a new run directory", train.run_train))
    _add_search(algo, command("search", "find good values for config keys by many short trainings", train.run_search))
    _add_resume(command("resume", "go on with a run from its newest good checkpoint", train.run_resume))
    _add_evaluate(command("evaluate", "play whole games with a run's policy", tools.run_evaluate))
    _add_record(command("record", "record whole games of a run's policy as a video", tools.run_record))
    _add_watch(command("watch", "watch a run's policy play in a window, also while it trains", tools.run_watch))
    _add_preview(command("preview", "draw what the network sees of an environment", tools.run_preview))
    _add_play(command("play", "play an environment with the keyboard", tools.run_play))
    _add_plot(command("plot", "draw the curves of runs", tools.run_plot))
    _add_report(command("report", "write a run as one HTML page: scores, a game, curves, config", tools.run_report))
    _add_export(command("export", "write a run's policy to one file: ONNX or safetensors", tools.run_export))
    _add_bench(algo, command("bench", "measure speed: the parts, what they allow, and the whole", tools.run_bench))
    _add_doctor(command("doctor", "try what this machine has, and say what to do about what is missing",
                        tools.run_doctor))
    command("list", "list algorithms, networks, families of environments and their defaults", tools.run_list)
    return parser


def _version() -> str:
    from importlib.metadata import version
    return f"vantage {version('vantage-rl')}"


def _add_config(algo: str, sub: Parser) -> None:
    sub.add_argument("algo", help="a2c, a3c, a3g, acer, or a preset that vantage list names")
    sub.add_argument("--env", help="Gymnasium id, short Atari name (Pong), or module:Class")
    _add_keys(sub, algo)


def _add_env_config(sub: Parser) -> None:
    sub.add_argument("env", metavar="ENV", help="Gymnasium id, short Atari name (Pong), or module:Class")
    sub.add_argument("--algo", default="a2c", help="algorithm or preset whose defaults the keys below have (a2c)")
    _add_keys(sub)


def _add_keys(sub: Parser, algo: str = "a2c") -> None:
    sub.add_argument("--config", metavar="FILE.json", help="config file; flags override it")
    keys = sub.add_argument_group("config keys (defaults depend on the environment: --dry-run prints them)")
    every = {**Config.every_key(algo), "runtime": (str, {"help": "sync or hogwild", "choices": ("sync", "hogwild")})}
    for key, (hint, metadata) in every.items():
        if key in POSITIONAL:
            continue
        names = _spellings(key)
        text = metadata.get("help", "").replace("%", "%%")
        if _is_switch(hint):
            keys.add_argument(*names, nargs="?", const="true", default=argparse.SUPPRESS, dest=f"key_{key}",
                              metavar="true|false", help=text)
            keys.add_argument(*[name.replace("--", "--no-", 1) for name in names], action="store_const", const="false",
                              default=argparse.SUPPRESS, dest=f"key_{key}", help=argparse.SUPPRESS)
        else:
            choices = metadata.get("choices") or ()
            keys.add_argument(*names, default=argparse.SUPPRESS, dest=f"key_{key}", help=text,
                              metavar="|".join(choices) if choices else key.upper())


def _add_train(algo: str, sub: Parser) -> None:
    sub.add_argument("algo", nargs="?", help="a2c, a3c, a3g, acer, or a preset that vantage list names")
    sub.add_argument("--env", help="Gymnasium id, short Atari name (Pong), or module:Class")
    sub.add_argument("--from-search", metavar="DIR", help="config of the best trial of a search; --config and flags "
                     "override it")
    _add_keys(sub, algo)
    sub.add_argument("--run", metavar="DIR", help="run directory to create; default runs/ENV/ALGO-N")
    sub.add_argument("--dry-run", action="store_true", help="print the resolved config as JSON and stop")
    sub.add_argument("--report", action="store_true", help="at the end evaluate, draw curve.png and say where all is")


def _add_search(algo: str, sub: Parser) -> None:
    sub.add_argument("--grid", metavar="FILE.json", help="keys with lists: their full product; an object of equally "
                     "long lists: these go together")
    sub.add_argument("--space", metavar="FILE.json", help="keys with ranges or choices, which Optuna draws from")
    sub.add_argument("--trials", help="trials of a --space, all told (30)")
    sub.add_argument("--seeds", default="1", help="seeds of each trial, from --seed on; their mean counts (1)")
    sub.add_argument("--jobs", default="1", help="runs at once, each in a process of its own (1)")
    sub.add_argument("--sampler", choices=("tpe", "random"), help="how a --space is drawn from (tpe)")
    sub.add_argument("--pruner", choices=("asha", "none"), help="asha: successive halving ends poor trials early, the "
                     "default for --space; none: the default for --grid")
    sub.add_argument("--reduction", help="asha goes on with one in so many, so many times as long (3)")
    sub.add_argument("--min-steps", help="agent steps before asha first compares; default steps / reduction^2")
    sub.add_argument("--storage", metavar="URL|FILE", help="Optuna storage that several machines share: a URL, or a "
                     "file ending in .db; default study.db in the search's directory")
    sub.add_argument("--run", metavar="DIR", help="search directory; default runs/search/ENV/ALGO-N, for the same "
                     "command the same")
    _add_config(algo, sub)


def _add_resume(sub: Parser) -> None:
    sub.add_argument("run", metavar="RUN", help="run directory")
    sub.add_argument("--steps", help="new total of agent steps")
    sub.add_argument("--extend-schedule", action="store_true", help="schedules run over the new total")
    sub.add_argument("--max-minutes", help="stop after this wall time; for this time alone")
    sub.add_argument("--device", help="cpu, cuda, cuda:0 or auto, from now on")
    sub.add_argument("--report", action="store_true", help="at the end evaluate, draw curve.png and say where all is")
    _add_trust(sub)


def _add_evaluate(sub: Parser) -> None:
    sub.add_argument("run", metavar="RUN", help="run directory")
    sub.add_argument("--episodes", default="100", help="whole games to play (100)")
    sub.add_argument("--checkpoint", default="auto", help="latest, best or a step; auto: best if there is one")
    _add_acting(sub)
    sub.add_argument("--json", action="store_true", help="print one JSON object")
    _add_trust(sub)


def _add_trust(sub: Parser) -> None:
    sub.add_argument("--trust", action="store_true", help="import the code that someone else's run names")


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
    _add_trust(sub)


def _add_watch(sub: Parser) -> None:
    sub.add_argument("run", metavar="RUN", help="run directory; of one that trains each game has the newest checkpoint")
    sub.add_argument("--checkpoint", default="latest", help="latest, best or a step; latest follows the training")
    _add_acting(sub)
    _add_trust(sub)


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
    _add_trust(sub)


def _add_report(sub: Parser) -> None:
    sub.add_argument("run", metavar="RUN", help="run directory")
    sub.add_argument("-o", "--output", metavar="FILE.html", help="default report.html in RUN")
    sub.add_argument("--episodes", default="20", metavar="N", help="games of the evaluation (20)")
    sub.add_argument("--no-video", action="store_true", help="record no game")
    sub.add_argument("--checkpoint", default="auto", help="latest, best or a step; auto: best if there is one")
    _add_trust(sub)


def _add_export(sub: Parser) -> None:
    sub.add_argument("run", metavar="RUN", help="run directory")
    sub.add_argument("--format", required=True, choices=("onnx", "safetensors"),
                     help="onnx: runs without Vantage and torch; safetensors: for vantage.load, with a model card")
    sub.add_argument("-o", "--output", metavar="FILE", help="default policy.onnx or policy.safetensors in RUN")
    sub.add_argument("--checkpoint", default="auto", help="latest, best or a step; auto: best if there is one")
    _add_trust(sub)


def _add_bench(algo: str, sub: Parser) -> None:
    _add_config(algo, sub)
    sub.add_argument("--seconds", default="30", help="how long to measure (30)")
    sub.add_argument("--json", action="store_true", help="print one JSON object")


def _add_doctor(sub: Parser) -> None:
    sub.add_argument("--json", action="store_true", help="print one JSON object")
