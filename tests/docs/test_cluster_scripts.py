"""The Slurm scripts and the KubeRay job of docs/cluster-jobs.md: syntax, fields, and the commands in them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from vantage.cli import main

PAGE = "".join((Path(__file__).parents[2] / f"docs/{name}.md").read_text(encoding="utf-8")
               for name in ("cluster-jobs", "ray", "scaling"))
BLOCKS = re.findall(r"^```(bash|yaml)\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
SCRIPTS = [text for language, text in BLOCKS if language == "bash" and text.startswith("#!")]
BIN = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

SBATCH = {"job-name", "nodes", "ntasks-per-node", "cpus-per-task", "gpus-per-node", "time", "requeue", "open-mode",
          "signal"}


def commands() -> list[str]:
    """Each `vantage train` of the page, without its continuation lines and variables."""
    text = "\n".join(block for _, block in BLOCKS).replace("\\\n", " ")
    text = text.replace("\n    --root s3", " --root s3")  # folded in the YAML
    lines = re.findall(r"vantage train [^|&#\n]*", text)
    return [line.replace('"$run"', "runs/x").strip() for line in lines]


def test_the_page_has_what_is_checked_here() -> None:
    assert len(SCRIPTS) == 2 and len(commands()) == 8


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_slurm_script_is_sound(script: str, tmp_path: Path) -> None:
    path = tmp_path / "job.sbatch"
    path.write_text(script)
    shellcheck = shutil.which("shellcheck", path=BIN)
    assert shellcheck, "it comes with the extra dev"
    for command in (["bash", "-n"], [shellcheck, "--severity=style"]):
        done = subprocess.run([*command, str(path)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    options = [word.removeprefix("--").partition("=")[0] for line in re.findall("^#SBATCH (.*)", script, re.MULTILINE)
               for word in shlex.split(line)]
    assert options and set(options) <= SBATCH


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_page_is_one_that_vantage_takes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*shlex.split(command)[1:], "--dry-run"]) == 0, capsys.readouterr().err


def test_the_kubernetes_job_has_the_fields_of_a_ray_job() -> None:
    """As in KubeRay's API, ray.io/v1: a cluster with a head and groups of workers, which Ray's autoscaler may scale."""
    [text] = [text for language, text in BLOCKS if language == "yaml"]
    job: dict[str, Any] = yaml.safe_load(text)
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", job["metadata"]["name"])
    assert job["spec"].keys() == {"entrypoint", "backoffLimit", "shutdownAfterJobFinishes", "rayClusterSpec"}
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster.keys() == {"enableInTreeAutoscaling", "headGroupSpec", "workerGroupSpecs"}
    assert cluster["headGroupSpec"].keys() == {"rayStartParams", "template"}
    groups = cluster["workerGroupSpecs"]
    for group in groups:
        assert group.keys() == {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for part in (cluster["headGroupSpec"], *groups):
        assert all(isinstance(value, str) for value in part["rayStartParams"].values()), "KubeRay takes text alone"
        for container in part["template"]["spec"]["containers"]:
            assert container.keys() == {"name", "image", "resources"}
            assert container["resources"]["limits"] == container["resources"]["requests"]
    retry, train = job["spec"]["entrypoint"].split(" || ")
    assert retry.split()[-1] == "s3://BUCKET/runs/pong" and train.endswith("--root s3://BUCKET/runs --run runs/pong")
