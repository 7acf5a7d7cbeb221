"""Training speed on Pong of A2C, A3C and PPO, Vantage against Stable-Baselines3 and PFRL, alternating. No scores.

    make bench                                                          A2C and A3C, about fifteen minutes
    make bench ARGS="--algo ppo"                                        PPO
    make bench ARGS="--rounds 2 --seconds 5"                            a quick look

or in an environment of its own:

    python3 -m venv .venv-bench
    .venv-bench/bin/pip install -c constraints.txt -e '.[bench]'
    .venv-bench/bin/python benchmarks/throughput.py

Each contestant trains in a process group of its own, which is stopped while another one runs. A round gives each the
same seconds, one after the other, so that a machine whose speed drifts slows all alike; what counts is the ratio within
a round.
benchmarks/README.md says what each contestant does.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import platform
import re
import signal
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from pfrl_a3c import train_pfrl

Segment = Callable[[float], int]
"""Trains for about so many seconds; returns the agent steps that it took."""

# The published A2C on Atari (OpenAI Baselines): Nature CNN, 16 environments, rollouts of 5, RMSProp as in TensorFlow.
SB3_BATCH = {"num_envs": 16, "rollout_length": 5}
SAME_WORK = {
    "network": "nature", "norm": "none", "memory": "none", "frame_stack": 4, "atari_protocol": "classic",
    "reward": "sign", "lr": 7e-4, "gamma": 0.99, "gae_lambda": 1.0, "entropy_coef": 0.01, "value_coef": 0.5,
    "max_grad_norm": 0.5, "optimizer": "rmsprop_tf", "optimizer_eps": 1e-5, "optimizer_decay": 0.99,
    "image_norm": "none",
}

# The PPO of Stable-Baselines3's model zoo on Atari.
PPO_WORK = {
    **{key: value for key, value in SAME_WORK.items() if key != "optimizer_decay"},
    "num_envs": 8, "rollout_length": 128, "epochs": 4, "minibatch_size": 256, "clip": 0.1, "lr": 2.5e-4,
    "gae_lambda": 0.95, "entropy_coef": 0.01, "value_coef": 0.5, "max_grad_norm": 0.5, "optimizer": "adam",
    "optimizer_eps": 1e-5, "screen_size": "84",
    "advantage_norm": True, "advantage_norm_over": "minibatch",
    "past_rollouts": 0, "action_subset": "all", "short_episode_steps": 0,
}

SB3 = {
    "sb3-dummy": "Stable-Baselines3, environments in its process",
    "sb3-subproc": "Stable-Baselines3, each environment in a process of its own",
}
SB3_PPO = {name.replace("sb3", "sb3-ppo"): title for name, title in SB3.items()}
CLASSIC_ROLLOUT = 20
LARGE_BATCH = {"num_envs": 32, "rollout_length": 20}
A3C_BATCH = {"envs_per_worker": 16, "rollout_length": 5}
LARGE_A3C_BATCH = {"envs_per_worker": 32, "rollout_length": 20}
VANTAGE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "vantage": ("a2c", "Vantage, the same work", {**SAME_WORK, **SB3_BATCH}),
    "vantage-batch": ("a2c", "Vantage, the same work but its own batch", SAME_WORK),
    "vantage-large": ("a2c", "Vantage, the same work in batches of 32 x 20", {**SAME_WORK, **LARGE_BATCH}),
    "vantage-default": ("a2c", "Vantage, all its own defaults", {}),
    "a3c": ("a3c", "Vantage's A3C, a worker a core, the same work", {**SAME_WORK, **A3C_BATCH}),
    "a3c-large": ("a3c", "Vantage's A3C, batches of 32 x 20", {**SAME_WORK, **LARGE_A3C_BATCH}),
    "a3c-classic": ("a3c", "Vantage's A3C, one environment a worker, rollouts of 20",
                    {**SAME_WORK, "envs_per_worker": 1, "rollout_length": CLASSIC_ROLLOUT}),
    "a3c-default": ("a3c", "Vantage's A3C, all its own defaults", {}),
}
VANTAGE_PPO: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": ("ppo", "Vantage, the same work", PPO_WORK),
    "ppo-ranks": ("ppo", "Vantage, the same work in two ranks", {**PPO_WORK, "num_workers": 2}),
    "ppo-bfloat16": ("ppo", "Vantage, the same work in bfloat16", {**PPO_WORK, "precision": "bfloat16"}),
    "ppo-ranks-bfloat16": ("ppo", "Vantage, the same work in two ranks and bfloat16",
                           {**PPO_WORK, "num_workers": 2, "precision": "bfloat16"}),
    "ppo-large": ("ppo", "Vantage, the same work in batches of 32 x 32", {**PPO_WORK, "num_envs": 32,
                                                                        "rollout_length": 32}),
    "pong-fast": ("pong-fast", "Vantage, its preset for Pong", {}),
}
PFRL = {"pfrl": "PFRL's A3C, one environment a worker, rollouts of 20"}
CONTESTANTS = {"a2c": {**SB3, **PFRL, **{name: title for name, (_, title, _) in VANTAGE.items()}},
               "ppo": {**SB3_PPO, **{name: title for name, (_, title, _) in VANTAGE_PPO.items()}}}


def train_sb3(name: str, cores: int) -> Segment:
    """Stable-Baselines3's A2C or PPO with the hyperparameters of its model zoo."""
    import ale_py
    import gymnasium
    import torch
    from deadline import StopAfter
    from stable_baselines3 import A2C, PPO
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    def make_pong(**options: Any) -> Any:
        # Here, in the process that steps the game.
        gymnasium.register_envs(ale_py)
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        return gymnasium.make("PongNoFrameskip-v4", **options)

    torch.set_num_threads(cores)
    work: dict[str, Any] = PPO_WORK if name in SB3_PPO else SB3_BATCH
    envs = make_atari_env(make_pong, n_envs=work["num_envs"], seed=0,
                          vec_env_cls=SubprocVecEnv if name.endswith("subproc") else DummyVecEnv)
    model: Any
    if name in SB3_PPO:
        model = PPO("CnnPolicy", VecFrameStack(envs, 4), n_steps=work["rollout_length"],
                    batch_size=work["minibatch_size"], n_epochs=work["epochs"], learning_rate=work["lr"],
                    clip_range=work["clip"], ent_coef=0.01, vf_coef=0.5, device="cpu")
    else:
        model = A2C("CnnPolicy", VecFrameStack(envs, 4), n_steps=work["rollout_length"], ent_coef=0.01,
                    vf_coef=0.25, device="cpu",
                    policy_kwargs={"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"eps": 1e-5}})

    def segment(seconds: float) -> int:
        before = model.num_timesteps
        model.learn(10**9, callback=StopAfter(seconds), reset_num_timesteps=False)
        return model.num_timesteps - before

    return segment


def train_vantage(algo: str, overrides: dict[str, Any], run: Path) -> Segment:
    """Vantage through its public API, with its metrics and checkpoints as always, and processes as it likes."""
    import vantage

    config = vantage.configure(algo, env="Pong", steps=10**9, seed=0, device="cpu", eval_every=0, log_every_seconds=0.5,
                               **overrides)
    reports = vantage.Trainer(config, run=run, argv=())
    reached = 0
    while reached == 0:  # workers need some seconds to start
        reached = next(reports).step

    def segment(seconds: float) -> int:
        nonlocal reached
        before, deadline = reached, perf_counter() + seconds
        while perf_counter() < deadline:
            reached = next(reports).step
        return reached - before

    return segment


def contest(name: str, cores: int, run: Path, pipe: Connection) -> None:
    """A contestant's process: a segment for each number of seconds received, until it receives None."""
    os.setpgrp()
    if name in SB3 or name in SB3_PPO:
        train = train_sb3(name, cores)
    elif name in PFRL:
        train = train_pfrl(cores, run, rollout_length=CLASSIC_ROLLOUT)
    else:
        algo, _, overrides = (VANTAGE | VANTAGE_PPO)[name]
        train = train_vantage(algo, overrides, run)
    pipe.send((0, 0.0))
    while (seconds := pipe.recv()) is not None:
        start = perf_counter()
        steps = train(seconds)
        pipe.send((steps, perf_counter() - start))
    os._exit(0)  # what it trained goes with the temporary directory; no last checkpoint is wanted


class Contestant:
    """A process that trains when it is told to."""

    def __init__(self, name: str, cores: int, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(target=contest, args=(name, cores, folder / name, theirs))
        self._process.start()
        theirs.close()
        self._receive()

    def rate(self, seconds: float) -> float:
        """Train for about `seconds`: agent steps per second. Its processes stand still before and after."""
        self._signal(signal.SIGCONT)
        self._pipe.send(seconds)
        steps, elapsed = self._receive()
        self._signal(signal.SIGSTOP)
        return steps / elapsed

    def close(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.join()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid or 0, number)

    def _receive(self) -> tuple[int, float]:
        try:
            steps, elapsed = self._pipe.recv()
        except EOFError:
            raise SystemExit("a contestant failed; its error is above") from None
        return steps, elapsed


def measure(names: list[str], *, rounds: int, seconds: float, warm_up: float, cores: int) -> Iterator[dict[str, float]]:
    """For each round, the agent steps per second of each contestant."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        contestants = {}
        for name in names:
            contestants[name] = Contestant(name, cores, folder)
            stack.callback(contestants[name].close)
            contestants[name].rate(warm_up)
        for _ in range(rounds):
            rates = {}
            for name, contestant in contestants.items():
                sleep(0.5)  # let the threads of the one before fall asleep
                rates[name] = contestant.rate(seconds)
            yield rates


def machine(cores: int) -> str:
    """Cores, processor, memory and versions: what the figures depend on."""
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        info = ""
    model = re.search(r"model name\s*: (.*)", info)
    clock = re.search(r"cpu MHz\s*: (.*)", info)
    processor = model[1] if model else platform.processor() or platform.machine()
    ghz = f" at {float(clock[1]) / 1000:.1f} GHz" if clock else ""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = []
    for package in ("vantage-rl", "stable-baselines3", "pfrl", "torch", "gymnasium", "ale-py", "numpy"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"{package} absent")
    return (f"{cores} cores, {processor}{ghz}, {memory:.0f} GiB; {platform.system()}, "
            f"Python {platform.python_version()}\n{', '.join(versions)}")


def table(rounds: list[dict[str, float]], titles: dict[str, str]) -> str:
    """Rates, and their ratios, round by round, to the faster form of Stable-Baselines3, else to PFRL; as Markdown."""
    medians = {name: statistics.median(rates[name] for rates in rounds) for name in rounds[0]}
    opponent = max((name for name in medians if name.startswith("sb3")), key=medians.__getitem__, default="pfrl")
    lines = [f"| contestant | steps/s, median | to {opponent}: min | median | max |", "|---|---|---|---|---|"]
    for name, rate in medians.items():
        ratios = [rates[name] / rates[opponent] for rates in rounds]
        lines.append(f"| {titles[name]} (`{name}`) | {rate:,.0f} | {min(ratios):.2f} | "
                     f"{statistics.median(ratios):.2f} | {max(ratios):.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often each contestant runs (default: 5)")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each time (default: 15)")
    parser.add_argument("--warm-up", type=float, default=5.0, help="seconds before the first round (default: 5)")
    parser.add_argument("--algo", choices=CONTESTANTS, default="a2c", help="a2c, with a3c, or ppo (default: a2c)")
    every = CONTESTANTS["a2c"] | CONTESTANTS["ppo"]
    parser.add_argument("--only", nargs="+", choices=every, metavar="CONTESTANT",
                        help="; ".join(f"{algo}: some of {', '.join(names)}" for algo, names in CONTESTANTS.items()))
    arguments = parser.parse_args()
    names = [name for name in CONTESTANTS[arguments.algo] if name in (arguments.only or every)]
    opponents = [name for name in CONTESTANTS[arguments.algo] if name.startswith("sb3") or name in PFRL]
    if not set(names) & set(opponents):
        parser.error(f"nothing to compare with: --only needs one of {', '.join(opponents)}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    print(machine(cores))
    print(f"{arguments.algo.upper()} on Pong: agent steps (4 frames each) per second of whole training; "
          f"{arguments.rounds} rounds of {arguments.seconds:g} s each\n", flush=True)
    rounds = []
    for rates in measure(names, rounds=arguments.rounds, seconds=arguments.seconds, warm_up=arguments.warm_up,
                         cores=cores):
        rounds.append(rates)
        print(f"round {len(rounds)}: " + ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items()), flush=True)
    print(f"\n{table(rounds, every)}")


if __name__ == "__main__":
    main()
