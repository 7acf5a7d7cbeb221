"""`vantage doctor`: what this machine has, what of Vantage works on it, and what to do about what does not.

What it says of the machine is in `inspect_machine`, of installed libraries in `installed`. Here are the trials, each in
a process of its own, so that one that crashes is told of like the others, and what all findings come to.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from vantage.tools.inspect_machine import Finding, inspect_machine
from vantage.tools.installed import DISTRIBUTION, extras, version_of, versions

FAMILIES = {"classic": "CartPole-v1", "box2d": "LunarLander-v3", "mujoco": "HalfCheetah-v5", "atari": "Pong"}
"""The environment that is tried of each."""

LIBRARIES = {"classic": "pygame-ce", "box2d": "box2d", "mujoco": "mujoco", "atari": "ale-py"}

REMEDIES = {"classic": "pip install --force-reinstall 'gymnasium[classic-control]'",
            "box2d": "pip install 'gymnasium[box2d]'; where there is no wheel of it, that needs swig and a compiler",
            "mujoco": f"pip install '{DISTRIBUTION}[mujoco]'",
            "atari": "pip install --force-reinstall ale-py"}

TRIAL_STEPS = 200
TRIAL_SECONDS = 120
"""After this long a trial is taken for hung."""


@dataclass(frozen=True, slots=True)
class Examination:
    """All findings, in the order in which a person reads them."""

    findings: tuple[Finding, ...]

    @property
    def works(self) -> bool:
        """Training works, and so does every family of environments that is installed."""
        return not any(finding.status == "problem" for finding in self.findings)

    def as_dict(self) -> dict[str, object]:
        """As a JSON object."""
        return {"works": self.works, "findings": [asdict(finding) for finding in self.findings]}

    def table(self) -> str:
        """For a person: a line each, and below it what to do."""
        width = max(len(finding.name) for finding in self.findings)
        lines = []
        for finding in self.findings:
            lines.append(f"{finding.status:<8} {finding.name:<{width}}  {finding.text}")
            if finding.remedy:
                lines.append(f"{'':<8} {'':<{width}}  -> {finding.remedy}")
        problems = [finding.name for finding in self.findings if finding.status == "problem"]
        verdict = "training works on this machine" if self.works else f"to be put right: {', '.join(problems)}"
        return "\n".join([*lines, "", verdict])


def examine() -> Examination:
    """Look at everything and try it: about ten seconds."""
    training = try_training()
    torch_works, said = (True, "") if training.status == "ok" else attempt("import torch")
    broken = Finding("torch import", "problem", said, "pip install --force-reinstall torch")
    return Examination((*versions(), *(broken,) * (not torch_works), *inspect_machine(torch_works=torch_works),
                        *map(try_family, FAMILIES), training, *extras()))


def try_family(family: str) -> Finding:
    """Whether an environment of the family can be made and stepped."""
    env = FAMILIES[family]
    works, said = attempt(f"from vantage.tools.doctor import step_environment; step_environment({env!r})")
    if works:
        return Finding(family, "ok", f"{env}: {said}")
    if version_of(LIBRARIES[family]) is None and family in _optional():
        return Finding(family, "note", "optional, not installed", REMEDIES[family])
    return Finding(family, "problem", f"{env}: {said}", REMEDIES[family])


def try_training() -> Finding:
    """Whether a policy can be trained, saved and loaded again."""
    works, said = attempt("from vantage.tools.doctor import train_a_little; train_a_little()")
    if works:
        return Finding("training", "ok", said)
    return Finding("training", "problem", said, "put right what is named above; if nothing is, report this line")


def attempt(code: str) -> tuple[bool, str]:
    """Run Python code in a process of its own: whether it succeeded, and the last line that it said."""
    try:
        # -P: a file of the working directory called like a module is not taken for it.
        done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, timeout=TRIAL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False, f"no answer within {TRIAL_SECONDS} seconds"
    if done.returncode < 0:
        return False, f"the process was ended by {signal.Signals(-done.returncode).name}"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return done.returncode == 0, lines[-1] if lines else f"status {done.returncode} without a word"


def step_environment(env: str) -> None:
    """Make `env`, step it, and print how fast it was."""
    import numpy as np

    from vantage.envs import make_environments
    from vantage.presets import configure

    environments = make_environments(configure("a2c", env=env).env, seed=0, num_envs=1, stream=0, threads=1)
    try:
        environments.reset()
        action = environments.spec.action
        actions = np.zeros((1, *action.shape), np.float32 if action.kind == "box" else np.int64)
        start = perf_counter()
        for _ in range(TRIAL_STEPS):
            environments.step(actions)
        print(f"made and stepped, {TRIAL_STEPS / (perf_counter() - start):,.0f} steps/s")
    finally:
        environments.close()


def train_a_little() -> None:
    """Train A2C on CartPole in a directory that goes away again, act with what was saved, and print that it worked."""
    import numpy as np

    from vantage.presets import configure
    from vantage.training import load, train

    config = configure("a2c", env="CartPole-v1", steps=1024, eval_every=0, tensorboard=False)
    with tempfile.TemporaryDirectory() as folder:
        *_, last = train(config, run=Path(folder) / "run", argv=())
        agent = load(last.run)
        agent.act(np.zeros((1, 4), np.float32), agent.initial_state(1))
    print(f"{last.step:,} steps of A2C on CartPole-v1 trained, saved and loaded again")


def _optional() -> Iterator[str]:
    yield "mujoco"
    if sys.version_info >= (3, 14):  # as pyproject.toml says
        yield "box2d"
