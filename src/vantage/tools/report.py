"""What a person wants at the end of a run: its score, its curve, where everything is, what to type next."""

from __future__ import annotations

from pathlib import Path

from vantage.tools.evaluate import evaluate
from vantage.tools.plot import plot


def final_report(run: Path, *, episodes: int = 20) -> None:
    """Evaluate the run, draw curve.png in its directory, and print where things are."""
    print(f"playing {episodes} games with the trained policy ...", flush=True)
    print(evaluate(run, episodes=episodes).sentence())
    curve = plot([run], run / "curve.png")
    print(f"""
  {curve}   the learning curve
  {run / 'checkpoints'}   the newest checkpoints; {run / 'best'}: the best
  {run / 'metrics.jsonl'}   every metric, one JSON object a line

Next:
  vantage resume {run}                    train on from here (after a time limit), or with --steps 20M
  vantage evaluate {run} --episodes 100   the score over 100 games
  vantage plot {run} -o curve.png         the curve again
  tensorboard --logdir {run / 'tensorboard'}""")
