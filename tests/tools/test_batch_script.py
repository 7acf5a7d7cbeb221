"""The SLURM script of docs/slurm.md: the signal before the time limit saves, requeues, and the next job resumes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/slurm.md"

# Trains until SIGTERM, then saves its run, whose directory is the last argument.
VANTAGE = """#!/bin/bash
echo "$@" >> calls
trap 'mkdir -p "${@: -1}"; touch "${@: -1}/config.json"; exit 143' TERM
touch training
while true; do sleep 0.02; done
"""


def run_job(number: int) -> tuple[int, str]:
    """Run the script until it trains, and send it a signal; its exit status and what was called since."""
    for name in ("calls", "training"):
        Path(name).unlink(missing_ok=True)
    env = {**os.environ, "PATH": f"{Path.cwd()}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    with subprocess.Popen(["bash", "train.sbatch"], env=env) as job:
        end = time.monotonic() + 30
        while not Path("training").exists() and time.monotonic() < end:
            time.sleep(0.01)
        job.send_signal(number)
    return job.returncode, Path("calls").read_text()


def test_the_batch_script_requeues_before_the_time_limit_and_resumes() -> None:
    [script] = re.findall(r"<<'END'\n(.*?)^END$", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    Path("train.sbatch").write_text(script)
    for name, text in (("vantage", VANTAGE), ("scontrol", '#!/bin/bash\necho "scontrol $@" >> calls\n')):
        Path(name).write_text(text)
        Path(name).chmod(0o755)
    first = "train ppo --env Pong --steps 50M --run runs/pong-7\n"
    assert run_job(signal.SIGUSR1) == (143, first + "scontrol requeue 7\n")
    assert run_job(signal.SIGTERM) == (143, "resume runs/pong-7\n"), "scancel: no other job"
