"""A module that was edited after its first import is refused: this process has the old code, new ones the new."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import train_shortly

import vantage

ENV = """
import gymnasium
import {helper}

class Paying(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.low, {{}}

    def step(self, action):
        return self.observation_space.low, {helper}.REWARD, True, False, {{}}

def make():
    return Paying()
"""
Modules = Callable[[str], tuple[Path, Path]]


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Modules:
    """Writes NAME.py, an environment, and NAME_helper.py, which it imports."""
    def write(name: str) -> tuple[Path, Path]:
        env, helper = tmp_path / f"{name}.py", tmp_path / f"{name}_helper.py"
        env.write_text(ENV.format(helper=helper.stem))
        helper.write_text("REWARD = 1.0\n")
        return env, helper

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return write


def edit(path: Path, before: str, after: str) -> None:
    content = path.read_text()
    assert before in content
    path.write_text(content.replace(before, after))
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 5 * 10**9))


def test_an_edited_environment_is_refused_in_one_line(modules: Modules) -> None:
    env, _ = modules("edited_env")
    vantage.configure("ppo", env="edited_env:Paying")
    edit(env, "True, False", "False, True")
    with pytest.raises(vantage.ConfigError, match=r"edited_env\.py has changed .* restart"):
        vantage.configure("ppo", env="edited_env:Paying")


@pytest.mark.parametrize("algo", ["ppo", "a3c"])
def test_a_training_of_an_edited_helper_is_refused_before_workers_start(algo: str, modules: Modules,
                                                                      tmp_path: Path) -> None:
    name = f"env_of_{algo}"
    _, helper = modules(name)
    config = vantage.configure(algo, env=f"{name}:make", num_workers=2)
    edit(helper, "1.0", "10.0")
    with pytest.raises(vantage.ConfigError, match=rf"{name}_helper\.py has changed"):
        next(vantage.Trainer(config, run=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_resume_and_an_evaluation_of_edited_code_are_refused(modules: Modules, tmp_path: Path) -> None:
    env, _ = modules("env_of_run")
    train_shortly(tmp_path / "run", "env_of_run:Paying")
    edit(env, "True, False", "False, True")
    with pytest.raises(vantage.ConfigError, match=r"env_of_run\.py has changed"):
        next(vantage.Trainer.resume(tmp_path / "run", steps=10_000))
    with pytest.raises(vantage.ConfigError, match=r"env_of_run\.py has changed"):
        vantage.evaluate(tmp_path / "run", episodes=1)


@pytest.mark.parametrize("change", [("True, False", "False, True"), ("low, {}", "high, {}"), ("(1,)", "(2,)")])
def test_an_edit_before_the_first_training_is_refused_too(
        change: tuple[str, str], modules: Modules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    name = f"early_{len(change[0])}"
    env, _ = modules(name)
    importlib.import_module(name)
    edit(env, *change)
    with pytest.raises(vantage.ConfigError, match=rf"{name}\.py has changed"):
        vantage.configure("ppo", env=sys.modules[name].Paying)


def test_a_reloaded_module_and_a_touched_file_are_used(modules: Modules) -> None:
    env, _ = modules("reloaded_env")
    vantage.configure("ppo", env="reloaded_env:Paying")
    os.utime(env)
    vantage.configure("ppo", env="reloaded_env:Paying")
    edit(env, "True, False", "False, True")
    importlib.reload(sys.modules["reloaded_env"])
    vantage.configure("ppo", env="reloaded_env:Paying")


def test_an_edit_of_an_unrelated_module_does_not_matter(modules: Modules) -> None:
    modules("stable_env")
    other, _ = modules("unrelated_env")
    importlib.import_module("unrelated_env")
    vantage.configure("ppo", env="stable_env:Paying")
    edit(other, "True, False", "False, True")
    vantage.configure("ppo", env="stable_env:Paying")


def in_notebook(source: str, **names: object) -> dict[str, object]:
    """The variables of a cell with `source`."""
    cell: dict[str, object] = {"__name__": "__main__", **names}
    exec(source, cell)
    return cell


@pytest.mark.parametrize("source", [
    "class Sub(module.Paying): pass\nenv = lambda: Sub()",
    "class Sub(module.Paying): pass\nenv = Sub",
    "def pick(): return [module.make() for _ in range(1)][0]\nclass Sub:\n  def __new__(cls): return pick()\nenv = Sub",
], ids=["lambda", "class", "global"])
def test_code_of_a_notebook_that_uses_an_edited_module_is_refused(source: str, modules: Modules) -> None:
    name = f"base_{len(source)}"
    env, _ = modules(name)
    cell = in_notebook(source, module=importlib.import_module(name))
    vantage.configure("ppo", env=cell["env"])
    edit(env, "True, False", "False, True")
    with pytest.raises(vantage.ConfigError, match=rf"{name}\.py has changed .*importlib\.reload"):
        vantage.configure("ppo", env=cell["env"])


def test_a_class_with_the_base_of_before_a_reload_is_refused(modules: Modules) -> None:
    env, _ = modules("reloaded_base")
    module = importlib.import_module("reloaded_base")
    source = "class Sub(module.Paying): pass"
    old = in_notebook(source, module=module)["Sub"]
    vantage.configure("ppo", env=old)
    edit(env, "True, False", "False, True")
    importlib.reload(module)
    with pytest.raises(vantage.ConfigError, match="class Paying is from before reloaded_base was reloaded"):
        vantage.configure("ppo", env=old)
    vantage.configure("ppo", env=in_notebook(source, module=module)["Sub"])


def test_an_agent_of_a_cell_that_was_run_again_still_plays(modules: Modules, tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    modules("cells")
    importlib.import_module("cells")
    cell = "import cells\nclass Sub(cells.Paying):\n    {}"
    for body in ("bonus = 1.0", "bonus = 2.0"):
        names = in_notebook(cell.format(body))
        monkeypatch.setattr("__main__.Sub", names["Sub"], raising=False)
        if body == "bonus = 1.0":
            first = names["Sub"]
            agent = vantage.train("ppo", env=first, steps=16, num_envs=2, rollout_length=8, minibatch_size=8,
                                  eval_every=0, run=tmp_path / "run", progress=False)
    assert vantage.evaluate(agent, episodes=1).episodes == 1
    vantage.configure("ppo", env=first)


@pytest.mark.parametrize("mode", ["2", "2 --full"])
def test_what_autoreload_has_loaded_again_is_used(mode: str, modules: Modules,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    IPython = pytest.importorskip("IPython")
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.extensions.autoreload import AutoreloadMagics

    name = f"autoreloaded_{len(mode)}"
    env, _ = modules(name)
    env.write_text(env.read_text().replace("    observation_space", "    GOAL = 7.0\n    observation_space", 1))
    module = importlib.import_module(name)
    kind = module.Paying
    sub = in_notebook("class Sub(module.Paying): pass", module=module)["Sub"]
    vantage.configure("ppo", env=kind)
    shell = InteractiveShell()
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    magics = AutoreloadMagics(shell=shell)
    shell.register_magics(magics)
    magics.autoreload(mode)
    edit(env, "True, False", "False, True")
    edit(env, "7.0", "70.0")
    with pytest.raises(vantage.ConfigError, match="has changed"):
        vantage.configure("ppo", env=sub)
    magics.pre_run_cell(None)
    assert kind.GOAL == 70.0 and kind().step(0)[2:4] == (False, True)
    for each in (module.Paying, kind, sub, lambda: module.Paying()):
        vantage.configure("ppo", env=each)
    edit(env, "False, True", "False, False")
    with pytest.raises(vantage.ConfigError, match="has changed"):
        vantage.configure("ppo", env=sub)
