"""Tries a wheel as a stranger does: python tests/wheel.py dist/NAME.whl --torch torch==2.13.0

Installs torch and the wheel alone into an empty environment, without constraints, and works from an empty folder:
CartPole is trained, evaluated and exported. Whatever needs an extra says so in one line, whose command is then run,
after which it works.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

LIMIT_MB = 150
"""Of all packages but torch and what only torch needs: 99 MB with numpy 2.4, which has 72."""
TORCHS = ("torch", "torchgen", "functorch", "nvidia", "triton", "sympy", "networkx", "mpmath", "jinja2")

WORKS = ("train a2c --env CartPole-v1 --steps 2k --run run", "evaluate run --episodes 5",
         "export run --format safetensors", "resume run --steps 3k --extend-schedule", "doctor")
SHORT = "--steps 200 --eval-every 0"
NEEDS = {  # commands by the package that the one line of the answer names
    "ale-py": f"train a2c --env PongNoFrameskip-v4 --image-norm-steps 200 {SHORT}",
    "gymnasium[box2d]": f"train a2c --env LunarLander-v3 {SHORT}",
    "gymnasium[mujoco]": f"train a2c --env HalfCheetah-v5 {SHORT}", "matplotlib": "plot run",
    "imageio-ffmpeg": "record run -o game.mp4", "onnx": "export run --format onnx",
    "optuna": f"search a2c --env CartPole-v1 --grid grid.json {SHORT}",
    "wandb": f"train a2c --env CartPole-v1 --track wandb {SHORT}",
    "mlflow-skinny": f"train a2c --env CartPole-v1 --track mlflow {SHORT}",
    "tensorboard": f"train a2c --env CartPole-v1 --log-weights {SHORT}",
    "huggingface_hub": "push run owner/name",
    "ray": f"train a2c --env CartPole-v1 --runtime ray --num-workers 1 {SHORT}"}


def call(command: list[str], folder: Path, *, status: int) -> str:
    """The output of a command that must end with `status`."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PIP_CONSTRAINT")}
    # Without a network or an account.
    environment |= {"WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": "sqlite:///mlflow.db", "HF_HUB_OFFLINE": "1"}
    ended = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                           text=True)
    output = ended.stdout + ended.stderr
    if ended.returncode != status:
        sys.exit(f"{' '.join(command)} ended with status {ended.returncode}, not {status}:\n{output}")
    return output


def megabytes(packages: Path) -> float:
    """The size of what is installed without torch and pip."""
    sizes = {part.name: sum(file.stat().st_size for file in part.rglob("*") if file.is_file()) / 1e6
             for part in packages.iterdir() if part.is_dir()}
    return sum(size for part, size in sizes.items() if part.split("-")[0] not in (*TORCHS, "pip", "setuptools"))


def main() -> None:
    """Try the wheel; exits with a message where it fails."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--torch", default="torch", help="what pip installs first")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, environment = Path(name) / "empty", Path(name) / "environment"
        folder.mkdir()
        venv.create(environment, with_pip=True)
        python, vantage = str(environment / "bin/python"), str(environment / "bin/vantage")
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        packages = next(environment.glob("lib/python*/site-packages"))
        call([*pip, given.torch], folder, status=0)
        call([*pip, str(given.wheel.resolve())], folder, status=0)
        core = megabytes(packages)
        print(f"the core without torch: {core:.0f} MB")
        if core > LIMIT_MB:
            sys.exit(f"more than {LIMIT_MB} MB")
        for arguments in WORKS:
            call([vantage, *arguments.split()], folder, status=0)
        (folder / "grid.json").write_text('{"lr": [1e-3]}')
        remedies = {}
        for package, arguments in NEEDS.items():
            lines = call([vantage, *arguments.split()], folder, status=2).strip().splitlines()
            _, found, remedy = lines[-1].partition("pip install ")
            if not lines[-1].startswith("vantage: ") or not found or package not in remedy.replace("-hub", "_hub"):
                sys.exit(f"vantage {arguments} does not say how to install {package}:\n" + "\n".join(lines))
            print(lines[-1], flush=True)
            remedies[package] = shlex.split(remedy.partition(", ")[0])
        for package, remedy in remedies.items():
            call([*pip, *remedy], folder, status=0)
            # The hub alone cannot be reached here.
            is_hub = package == "huggingface_hub"
            output = call([vantage, *NEEDS[package].split()], folder, status=1 if is_hub else 0)
            if is_hub and "not installed" in output:
                sys.exit(output)
        print(f"works with all extras: {megabytes(packages):,.0f} MB without torch")


if __name__ == "__main__":
    main()
