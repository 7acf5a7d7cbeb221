"""What `vantage train` prints at the end: an evaluation, the files of the run, and commands for what comes next."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from vantage.errors import ConfigError
from vantage.runs.checkpoint import load_latest
from vantage.runs.directory import RunDirectory
from vantage.runs.metrics import read_metrics
from vantage.runtimes.progress import goal_reached
from vantage.tools.evaluate import evaluate
from vantage.tools.plot import plot


def final_report(run: Path, *, episodes: int = 20) -> None:
    """Evaluate the run, draw curve.png in its directory, and print the result, the files and further commands."""
    print(f"playing {episodes} games with the trained policy ...", flush=True)
    print(evaluate(run, episodes=episodes, trust=True).sentence())
    files = [(run / "checkpoints", "the newest checkpoints"), (run / "metrics.jsonl", "all metrics as JSON lines")]
    if (run / "best").exists():
        files.insert(0, (run / "best", "the best checkpoint"))
    if all(line.get("rollout/ep_rew_mean") is None for line in read_metrics(run)):
        print("no game has ended in training yet, so there is no curve")
    else:
        try:
            plot([run], run / "curve.png", trust=True)
            files.insert(0, (run / "curve.png", "the learning curve"))
        except ConfigError as error:
            print(f"no curve: {error}")
    vantage = "vantage" if shutil.which("vantage") else sys.argv[0]
    commands = [f"evaluate {run} --episodes 100", f"plot {run} -o curve.png"]
    config, latest = RunDirectory.open(run, trust=True).config, load_latest(run)
    if not goal_reached(latest.state["progress"], config):
        commands.insert(0, f"resume {run}" + f" --steps {2 * config.run.steps}" * (latest.step >= config.run.steps))
    width = max(len(str(path)) for path, _ in files)
    print("\n" + "\n".join(f"  {path!s:<{width}}  {text}" for path, text in files))
    print("\nNext:\n" + "\n".join(f"  {vantage} {command}" for command in commands))
