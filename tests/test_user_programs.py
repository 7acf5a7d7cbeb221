"""What the design promises runs in a script, in a notebook and in a REPL, with code that is defined right there."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from kernel import execute, notebook_of
from zygote import Command, call

from vantage.runs.checkpoint import load_latest

pytestmark = pytest.mark.integration

CLASSES = """
import sys
import gymnasium as gym
import numpy as np
import vantage
from torch import nn

class Maze(gym.Env):
    observation_space, action_space = gym.spaces.Box(0, 1, (2,)), gym.spaces.Discrete(2)
    def __init__(self, size=5):
        self.size = size
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = int(self.np_random.integers(self.size)), 0
        return self.observe(), {}
    def step(self, action):
        self.place, self.steps = max(0, self.place + 2 * int(action) - 1), self.steps + 1
        return self.observe(), -0.1, self.place >= self.size, self.steps == 30, {"place": self.place}
    def observe(self):
        return np.array([min(1.0, self.place / self.size), self.steps / 30], np.float32)

class MyTorso(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.layer, self.out_features = nn.Linear(shape[0], 8), 8
    def forward(self, x):
        return self.layer(x).relu()

"""
PROMISED = """
agent = vantage.train("ppo", env=lambda: Maze(size=9), steps=500)
obs, info = Maze(size=9).reset()
action, state = agent.act(obs)
agent.save("maze.safetensors"); agent = vantage.load("maze.safetensors")
trainer = vantage.Trainer(vantage.PPO(gamma=0.99, clip=0.1), env=Maze, network=MyTorso,
                          lr=lambda progress: 3e-4 * (1 - progress))
while trainer.step < 2_000:
    report = trainer.update()
    if report.metrics["train/approx_kl"] > 0.0:
        trainer.lr = trainer.lr / 2

result = trainer.evaluate(episodes=20); path = trainer.save()
for report in vantage.Trainer("a2c", env="CartPole-v1", steps=500):
    print(report.step, report.metrics.get("rollout/ep_rew_mean"))

agent = vantage.resume("runs/Maze/ppo-1", env=lambda: Maze(size=9), steps=3_000, extend_schedule=True)
config = vantage.configure("ppo", env="Pong"); print("double gamma", config.algorithm.gamma * 2)
"""
WORKERS = """
for algorithm, env, keys in (("ppo", lambda: Maze(size=9), {"num_workers": 2}), ("a3c", Maze, {"num_workers": 2}),
                             ("a2c", lambda: Maze(size=9), {"vector": "async"})):
    agent = vantage.train(algorithm, env=env, network=MyTorso, steps=200, num_envs=2, threads=1, eval_every=0,
                          tensorboard=False, progress=False, **keys)
    print(algorithm, agent.run, agent.act(obs)[0] in (0, 1))

"""
UNDER_RAY = """
class MyPPO(vantage.PPO):
    pass

agent = vantage.train(MyPPO, env=lambda: Maze(size=9), network=MyTorso, steps=500, runtime="ray", num_workers=2,
                      num_envs=4, device="cpu", threads=1, eval_every=0, tensorboard=False, progress=False)
print("ray", agent.act(Maze().reset()[0])[0] in (0, 1))
"""
KILLED = """
keys = {"steps": 3_000, "seed": 3, "num_envs": 2, "rollout_length": 16, "save_every": 64, "log_every_seconds": 0,
        "threads": 1, "tensorboard": False, "eval_every": 0}
if sys.argv[1] == "train":
    for report in vantage.Trainer("ppo", env=lambda: Maze(size=9), network=MyTorso, run="killed", **keys):
        print(report.step, flush=True)
else:
    vantage.resume("killed", env=lambda: Maze(size=9), network=MyTorso)
    vantage.train("ppo", env=lambda: Maze(size=9), network=MyTorso, run="whole", **keys)
"""
EXPECTED = ["double gamma", "ppo runs/Maze/ppo-3 True", "a3c runs/Maze/a3c-1 True", "a2c runs/Maze/a2c-1 True"]


def assert_ran(output: str, errors: str = "") -> None:
    assert [line for line in EXPECTED if line not in output] == [] and "Traceback" not in errors, output + errors


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["script", "repl"])
def test_the_promised_programs_run_in_a_script_and_in_a_repl(how: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(CLASSES + PROMISED + WORKERS, encoding="utf-8")
    if how == "repl":  # of a fresh interpreter, as its workers are
        done = subprocess.run([sys.executable, "-i"], input=script.read_text("utf-8"), cwd=tmp_path,
                              capture_output=True, text=True, check=False)
    else:
        done = call([script], cwd=tmp_path)
    assert_ran(done.stdout, done.stderr)
    assert done.returncode == 0


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")  # of jupyter_client
def test_the_promised_programs_run_in_a_notebook(tmp_path: Path) -> None:
    assert_ran("\n".join(execute(notebook_of(CLASSES, PROMISED, WORKERS), tmp_path)))


@pytest.mark.xdist_group("ray")
@pytest.mark.timeout(300)
def test_classes_of_a_script_train_under_ray(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    (tmp_path / "program.py").write_text(CLASSES + UNDER_RAY, encoding="utf-8")
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "ray True" in done.stdout, done.stderr


@pytest.mark.timeout(300)
def test_a_killed_script_is_resumed_exactly_with_its_code_handed_over(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(CLASSES + KILLED, encoding="utf-8")
    with Command(["program.py", "train"], cwd=tmp_path, stdout=subprocess.PIPE) as training:
        assert training.stdout is not None
        assert any(int(line) >= 500 for line in training.stdout)
        training.kill()
    assert training.returncode == -signal.SIGKILL
    stopped = load_latest(tmp_path / "killed").step
    assert call(["program.py", "resume"], cwd=tmp_path).returncode == 0
    killed, whole = (load_latest(tmp_path / name) for name in ("killed", "whole"))
    assert stopped < killed.step == whole.step
    assert killed.tensors["model"].keys() == whole.tensors["model"].keys()
    assert all(torch.equal(each, whole.tensors["model"][name]) for name, each in killed.tensors["model"].items())
