"""Tries a wheel as a stranger does: python tests/wheel.py dist/NAME.whl --torch torch==2.13.0

Installs torch and the wheel alone into an empty environment, without constraints, and works from an empty folder:
CartPole is trained, evaluated and exported, and whatever needs an extra says so in one line.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

LIMIT_MB = 200
"""Of all packages but torch and what only torch needs: 178 MB with numpy 2.4 (71) and TensorBoard 2.21 (80)."""
TORCHS = ("torch", "torchgen", "functorch", "nvidia", "triton", "sympy", "networkx", "mpmath", "jinja2")

WORKS = ("train a2c --env CartPole-v1 --steps 2k --run run", "evaluate run --episodes 5",
         "export run --format safetensors", "resume run --steps 3k", "doctor")
NEEDS = {  # commands by the package that the one line of the answer names
    "ale-py": "train a2c --env PongNoFrameskip-v4", "gymnasium[box2d]": "train a2c --env LunarLander-v3",
    "gymnasium[mujoco]": "train a2c --env HalfCheetah-v5", "matplotlib": "plot run",
    "imageio-ffmpeg": "record run -o game.mp4",
    "onnx": "export run --format onnx", "optuna": "search a2c --env CartPole-v1 --grid grid.json",
    "wandb": "train a2c --env CartPole-v1 --track wandb",
    "mlflow-skinny": "train a2c --env CartPole-v1 --track mlflow",
    "huggingface_hub": "push run owner/name", "ray": "train a2c --env CartPole-v1 --runtime ray"}


def call(command: list[str], folder: Path, *, status: int) -> str:
    """The output of a command that must end with `status`."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PIP_CONSTRAINT")}
    ended = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                           text=True)
    output = ended.stdout + ended.stderr
    if ended.returncode != status:
        sys.exit(f"{' '.join(command)} ended with status {ended.returncode}, not {status}:\n{output}")
    return output


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
        call([*pip, given.torch], folder, status=0)
        call([*pip, str(given.wheel.resolve())], folder, status=0)
        for arguments in WORKS:
            call([vantage, *arguments.split()], folder, status=0)
        (folder / "grid.json").write_text('{"lr": [1e-3]}')
        for package, arguments in NEEDS.items():
            lines = call([vantage, *arguments.split()], folder, status=2).strip().splitlines()
            if not lines[-1].startswith("vantage: ") or "pip install" not in lines[-1] or package not in lines[-1]:
                sys.exit(f"vantage {arguments} does not say how to install {package}:\n" + "\n".join(lines))
            print(lines[-1])
        packages = next(environment.glob("lib/python*/site-packages"))
        sizes = {part.name: sum(file.stat().st_size for file in part.rglob("*") if file.is_file()) / 1e6
                 for part in packages.iterdir() if part.is_dir()}
        core = sum(size for part, size in sizes.items() if part.split("-")[0] not in (*TORCHS, "pip", "setuptools"))
        print(f"the core without torch: {core:.0f} MB")
        if core > LIMIT_MB:
            large = ", ".join(f"{part} {size:.0f}" for part, size in sizes.items() if size > 5)
            sys.exit(f"more than {LIMIT_MB} MB: {large}")


if __name__ == "__main__":
    main()
