"""What `vantage train --report` does at the end: an evaluation, a curve, a video, and what to type next."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from vantage.agents.evaluate import evaluate
from vantage.errors import ConfigError, VantageError
from vantage.runs.checkpoint import load_latest
from vantage.runs.directory import RunDirectory
from vantage.runtimes.progress import goal_reached
from vantage.tools.display import say


def final_report(run: Path, *, episodes: int = 20) -> None:
    """Evaluate the run, draw curve.png and record game.mp4 in its directory, and print what they show."""
    say(f"playing {episodes} games with the trained policy ...")
    contents = []
    try:
        say(evaluate(run, episodes=episodes, trust=True).sentence())
    except ConfigError as error:  # such as for code that was edited meanwhile
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
    except (VantageError, ImportError, OSError) as error:  # nothing to see, as in a vector environment of one's own
        say(f"no video: {error}")
    contents += ["best/"] * (run / "best").exists() + ["checkpoints/", "metrics.jsonl, all metrics as JSON lines"]
    say(f"in {run}: {'; '.join(contents)}")
    say("Next:\n" + "\n".join(f"  vantage {command}" for command in _next_commands(run)))


def _next_commands(run: Path) -> list[str]:
    """What to type after a training; to resume it, if there is more to learn."""
    name = quote(str(run))
    commands = [f"evaluate {name} --episodes 100", f"plot {name} -o curve.png"]
    config, latest = RunDirectory.open(run, trust=True).config, load_latest(run)
    if goal_reached(latest.state["progress"], config):
        return commands
    ended = config.at("lr", latest.step) == 0
    more = 2 * max(latest.step, config.run.steps)
    if ended and config.change(steps=more, schedule_steps=0).at("lr", latest.step) == 0:
        return commands
    options = f" --steps {more}" * (ended or latest.step >= config.run.steps) + " --extend-schedule" * ended
    return [f"resume {name}{options}", *commands]
