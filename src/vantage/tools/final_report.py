"""The end of `vantage train --report`: an evaluation, a curve, a video, and what to type next."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from vantage.agents.evaluate import evaluate
from vantage.errors import ConfigError, VantageError
from vantage.runs.checkpoint import load_latest
from vantage.runs.directory import RunDirectory
from vantage.runtimes.progress import goal_reached
from vantage.tools.display import say

_EPISODES = 20


def final_report(run: Path) -> None:
    """Evaluate the run, write its curve.png and game.mp4, and print what they show."""
    say(f"playing {_EPISODES} games with the trained policy ...")
    contents = []
    try:
        say(evaluate(run, episodes=_EPISODES, trust=True).sentence())
    except VantageError as error:  # such as for code that was edited meanwhile
        say(f"no evaluation: {error}")
    try:
        from vantage.tools.plot import plot

        plot([run], run / "curve.png", trust=True)
        contents.append("curve.png, the learning curve")
    except (ConfigError, OSError) as error:
        say(f"no curve: {error}")
    try:
        from vantage.tools.record import record

        say(record(run, run / "game.mp4", trust=True).sentence())
    except (VantageError, ImportError, OSError) as error:  # such as an environment without pictures
        say(f"no video: {error}")
    if (run / "best").exists():
        contents.append("best/")
    contents += ["checkpoints/", "metrics.jsonl, all metrics as JSON lines"]
    say(f"in {run}: {'; '.join(contents)}")
    say("Next:")
    for command in _next_commands(run):
        say(f"  vantage {command}")


def _next_commands(run: Path) -> list[str]:
    """What to type after a training; to resume it, if there is more to learn."""
    name = quote(str(run))
    commands = [f"evaluate {name} --episodes 100", f"plot {name} -o curve.png"]
    config = RunDirectory.open(run, trust=True).config
    latest = load_latest(run)
    if goal_reached(latest.state["progress"], config):
        return commands
    more = 2 * max(latest.step, config.run.steps)
    lr_ended = config.at("lr", latest.step) == 0
    if lr_ended:
        longer = config.change(steps=more, schedule_steps=0)
        if longer.at("lr", latest.step) == 0:
            return commands
    resume = f"resume {name}"
    if lr_ended or latest.step >= config.run.steps:
        resume += f" --steps {more}"
    if lr_ended:
        resume += " --extend-schedule"
    return [resume, *commands]
