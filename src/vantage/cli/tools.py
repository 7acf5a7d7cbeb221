"""Commands that evaluate, show, measure and export. Each imports its tool when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from json import dumps
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

from typing_extensions import Doc
from tyro.conf import Positional, arg

from vantage._host.terminal import printable, write_line
from vantage.cli.arguments import Settings
from vantage.errors import ConfigError

Run = Positional[Annotated[str, Doc("run directory"), arg(metavar="RUN")]]
Policy = Positional[Annotated[str, Doc("run directory, policy file, zoo:NAME or hf://OWNER/NAME"),
                              arg(metavar="RUN")]]
Checkpoint = Annotated[str, Doc("latest, best or a step; auto: best if there is one")]
Trust = Annotated[bool, Doc("import the modules that the run's config names, which runs their "
                            "code")]
Json = Annotated[bool, Doc("print one JSON object")]
SHORT = arg(aliases=("-o",))


@dataclass(frozen=True)
class PolicyOptions:
    """How a run's policy plays."""

    checkpoint: Checkpoint = "auto"
    deterministic: Annotated[bool, Doc("take the most probable actions; default: as the run's "
                                       "evaluations")] = False
    stochastic: Annotated[bool, Doc("sample actions; the default with images and discrete "
                                    "actions")] = False
    seed: Annotated[int, Doc("seed of the environments and actions")] = 0
    trust: Trust = False

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of a tool that plays; `deterministic` is None for the run's default."""
        if self.deterministic and self.stochastic:
            raise ConfigError("--deterministic and --stochastic exclude each other; leave one of "
                              "them out")
        mode = None
        if self.deterministic or self.stochastic:
            mode = self.deterministic
        return {"deterministic": mode, "checkpoint": self.checkpoint, "seed": self.seed,
                "trust": self.trust}


MaxSteps = Annotated[int, Doc("cut games after this many steps; 0: as the run")]


def evaluate(run: Policy, *, episodes: Annotated[int, Doc("games to play")] = 100,
             play: PolicyOptions, max_episode_steps: MaxSteps = 0, json: Json = False) -> None:
    """Evaluate a run's policy on whole games."""
    arguments = play.arguments()
    from vantage.agents.evaluate import evaluate

    result = evaluate(run, episodes=episodes, max_episode_steps=max_episode_steps, **arguments)
    write_line(dumps(_plain(asdict(result))) if json else result.sentence())


def _plain(value: Any) -> Any:
    """`value`, as infos have it, for JSON: arrays as lists, numbers that are not finite as null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not isfinite(value):
        return None
    return value if isinstance(value, int | float | str | None) else str(value)


def record(run: Policy, *,
           output: Annotated[Path | None, Doc("the video, .mp4 or .gif"), SHORT] = None,
           demonstrations: Annotated[Path | None, Doc("write the games as demonstrations to this "
                                                      ".safetensors file")] = None,
           episodes: Annotated[int | None, Doc("games to record; none: 1, of demonstrations "
                                               "20")] = None, play: PolicyOptions) -> None:
    """Record games of a run's policy as a video, or as demonstrations."""
    arguments = play.arguments()
    if output is None and demonstrations is None:
        raise ConfigError("nothing to record; give -o VIDEO.mp4, or --demonstrations "
                          "FILE.safetensors")
    if demonstrations is not None:
        from vantage.tools.demonstrations import record_demonstrations

        number = 20 if episodes is None else episodes
        written = record_demonstrations(run, demonstrations, episodes=number, **arguments)
        write_line(f"{demonstrations}: {written}")
    if output is not None:
        from vantage.tools.record import record

        number = 1 if episodes is None else episodes
        write_line(record(run, output, episodes=number, **arguments).sentence())


_LATEST = PolicyOptions(checkpoint="latest")


def watch(run: Policy, *, play: PolicyOptions = _LATEST) -> None:
    """Watch a run's policy play in a window, also while it trains."""
    arguments = play.arguments()
    from vantage.tools.watch import watch

    watch(run, **arguments)


def preview(settings: Settings, *,
            output: Annotated[Path, Doc("the picture, .png"), SHORT]) -> None:
    """Draw the observations that the network receives from an environment."""
    config = settings.config()
    from vantage.tools.preview import preview

    write_line(preview(config, output))


def play(settings: Settings) -> None:
    """Play an environment with the keyboard."""
    config = settings.config()
    from vantage.tools.keyboard_play import play

    play(config, say=write_line)


Runs = Annotated[list[str], Doc("runs or folders of runs; seeds of one setting become a band"),
                 arg(metavar="RUN")]


def plot(runs: Positional[Runs], *,
         output: Annotated[Path, Doc("the figure: .png, .svg or .pdf"), SHORT] = Path("plot.png"),
         x: Annotated[Literal["steps", "minutes", "frames"], Doc("horizontal axis")] = "steps",
         metric: Annotated[str, Doc("metric of metrics.jsonl")] = "rollout/ep_rew_mean",
         aggregate: Annotated[Literal["mean", "iqm"],
                              Doc("mean of seeds, or interquartile mean")] = "mean",
         csv: Annotated[Path | None, Doc("also write the plotted numbers to this file")] = None,
         trust: Trust = False) -> None:
    """Draw the curves of runs."""
    from vantage.tools.plot import plot, summary_rows

    groups = plot(runs, output, x=x, metric=metric, aggregate=aggregate, csv=csv, trust=trust)
    rows = [(metric, "at the end", "highest"), *summary_rows(groups, x)]
    _write_columns([[printable(word).replace("\n", "\\n") for word in row] for row in rows])
    write_line(output)


def _write_columns(rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [word.ljust(width) for word, width in zip(row, widths, strict=True)]
        write_line("  ".join(cells).rstrip())


def report(run: Run, *,
           output: Annotated[Path | None, Doc("the page; none: report.html in RUN"), SHORT] = None,
           episodes: Annotated[int, Doc("games of the evaluation")] = 20,
           checkpoint: Checkpoint = "auto",
           no_video: Annotated[bool, Doc("do not record a game")] = False,
           trust: Trust = False) -> None:
    """Write a run as one HTML page: scores, a game, curves, config."""
    from vantage.tools.report import report

    write_line(report(run, output, episodes=episodes, video=not no_video, checkpoint=checkpoint,
                      trust=trust))


def export(run: Policy, *, format: Annotated[Literal["onnx", "safetensors"],
                                             Doc("safetensors is for vantage.load")],
           output: Annotated[Path | None, Doc("none: policy.onnx or policy.safetensors in RUN"),
                             SHORT] = None,
           checkpoint: Checkpoint = "auto", trust: Trust = False) -> None:
    """Write a run's policy to one file."""
    from vantage.tools.export import export

    exported = export(run, format=format, output=output, checkpoint=checkpoint, trust=trust)
    write_line(exported.sentence())


Repository = Annotated[str, Doc("repository of the hub: OWNER/NAME"), arg(metavar="REPO")]


def push(run: Run, repo: Positional[Repository], *,
         private: Annotated[bool, Doc("create the repository as a private one")] = False,
         episodes: Annotated[int, Doc("games of the evaluation in the model card")] = 20,
         checkpoint: Checkpoint = "auto", trust: Trust = False) -> None:
    """Upload a run's policy to the Hugging Face hub."""
    from vantage.tools.push import push

    write_line(push(run, repo, private=private, episodes=episodes, checkpoint=checkpoint,
                    trust=trust))


def bench(settings: Settings, *, seconds: Annotated[float, Doc("how long to measure")] = 30.0,
          json: Json = False) -> None:
    """Measure the speed of training and of its parts."""
    config = settings.config()
    if not 0 < seconds <= 86_400:
        raise ConfigError(f"--seconds {seconds:g} is not above 0 and at most 86,400, a day")
    from vantage.tools.bench import bench

    result = bench(config, seconds=seconds)
    write_line(dumps(asdict(result)) if json else result.table())


def doctor(*, json: Json = False) -> int:
    """Check libraries and devices, with a remedy for each problem."""
    from vantage.tools.doctor import examine

    findings = []
    for finding in examine():
        findings.append(finding)
        if not json:
            write_line(finding.lines())
    problems = [finding.name for finding in findings if finding.status == "problem"]
    if json:
        write_line(dumps({"works": not problems, "findings": list(map(asdict, findings))}))
    elif problems:
        write_line(f"\ntraining does not work: fix {', '.join(problems)}")
    else:
        write_line("\ntraining works on this machine")
    return 1 if problems else 0


What = Annotated[str, Doc("algorithms, networks, presets, defaults, environments, zoo or all"),
                 arg(metavar="WHAT")]


def list_(what: Positional[What] = "all") -> None:
    """List algorithms, networks, presets, defaults, environments, the zoo."""
    from vantage.config.catalogue import catalogue
    from vantage.runs.zoo import listing

    lists = catalogue() | {"zoo": listing()}
    lists["all"] = "\n\n".join(lists.values())
    if what not in lists:
        raise ConfigError(f"there is no list {what!r}; give {', '.join(lists)}")
    write_line(lists[what])
