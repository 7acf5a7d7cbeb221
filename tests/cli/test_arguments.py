"""The command line without a training: flags and help from the classes in use, and bad input of every kind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import vantage.cli
from vantage._host import extras
from vantage.algorithms.a2c import A2C as A2CAlgorithm
from vantage.cli import main
from vantage.cli.stop_signals import Stop
from vantage.keys.fields import key
from vantage.keys.typed_values import plain

A2C = ["train", "a2c"]
CARTPOLE = [*A2C, "--env", "CartPole-v1", "--threads", "1"]


def call(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    try:
        status = main(arguments)
    except SystemExit as exit:  # --help
        status = int(exit.code or 0)
    out, err = capsys.readouterr()
    return status, out, err


def resolved(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The flat keys of the config that --dry-run prints."""
    status, out, err = call([*arguments, "--dry-run"], capsys)
    assert status == 0, err
    groups = json.loads(out)
    return {name: value for group in groups.values() if isinstance(group, dict) for name, value in group.items()}


@pytest.mark.parametrize(("flags", "key", "value"), [
    (["--obs-norm"], "obs_norm", True), (["--no-obs-norm"], "obs_norm", False),
    (["--obs_norm=False"], "obs_norm", False),
    (["--obs-norm", "true"], "obs_norm", True), (["--obs-norm", "false"], "obs_norm", False),
    (["--grayscale", "none"], "grayscale", None), (["--no-grayscale"], "grayscale", False),
    (["--rollout_length", "7"], "rollout_length", 7), (["--rollout-length=7"], "rollout_length", 7),
    (["--steps", "10M"], "steps", 10_000_000), (["--steps", "1e4"], "steps", 10_000), (["--lr", "5e-4"], "lr", 5e-4),
    (["--entropy-coef", "-1e-3"], "entropy_coef", -1e-3), (["--log-std-init", "-.5"], "log_std_init", -0.5),
    (["--lr", "linear:1e-3:0"], "lr", "linear:1e-3:0"), (["--stop-at-return", "none"], "stop_at_return", None),
    (["--env-kwargs", '{"a": "--lr=1"}'], "env_kwargs", '{"a": "--lr=1"}'),
])
def test_flags_as_people_write_them(flags: list[str], key: str, value: object,
                                    capsys: pytest.CaptureFixture[str]) -> None:
    assert resolved([*CARTPOLE, *flags], capsys)[key] == value
    assert resolved(["train", *flags, "a2c", "--env", "CartPole-v1"], capsys)[key] == value


def test_a_flag_that_repeats_a_default_is_still_the_users(capsys: pytest.CaptureFixture[str]) -> None:
    assert resolved([*A2C, "--env", "Pong"], capsys)["frame_stack"] == 1
    assert resolved([*A2C, "--env", "Pong", "--memory", "gru", "--frame-stack", "1"], capsys)["frame_stack"] == 1
    assert resolved([*A2C, "--env", "Pong", "--frame-stack", "4"], capsys)["frame_stack"] == 4


@dataclass(frozen=True)
class Own(A2CAlgorithm):
    """An algorithm of a user's."""

    grade: float = key(2.0, "a number", low=0)
    harsh: bool = key(False, "a switch")
    plain: int = 1


def test_the_fields_of_an_algorithm_of_yours_are_flags(capsys: pytest.CaptureFixture[str]) -> None:
    own = ["train", f"{__name__}:Own", "--env", "CartPole-v1"]
    values = resolved([*own, "--harsh", "--grade", "3", "--plain", "2"], capsys)
    assert (values["grade"], values["harsh"], values["plain"]) == (3.0, True, 2)
    assert call([*own, "--grade", "-1"], capsys)[0] == 2
    assert "--grade" in call([*own, "--help"], capsys)[1]


def test_flags_override_the_file_which_overrides_the_defaults(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "my.json"
    path.write_text(json.dumps({"gamma": 0.9, "env": {"num_envs": 3}, "lr": "linear:1:0"}))
    values = resolved([*CARTPOLE, "--config", str(path), "--num-envs", "5"], capsys)
    assert [values[key] for key in ("gamma", "num_envs", "lr", "threads")] == [0.9, 5, "linear:1:0", 1]
    path.write_text(json.dumps({"env": "Pong", "memory": "none"}))
    assert resolved([*A2C, "--config", str(path)], capsys)["id"] == "Pong"
    assert resolved([*CARTPOLE, "--config", str(path)], capsys)["id"] == "CartPole-v1"
    path.write_text('{"algo": "ppo", "env": "CartPole-v1", "epochs": 3, "eval_every": -1}')
    values = resolved(["train", "--config", str(path)], capsys)
    assert [values[key] for key in ("id", "epochs", "max_eval_share")] == ["CartPole-v1", 3, 0.25]
    assert call([*A2C, "--config", str(path)], capsys)[0] == 2, "epochs are not A2C's"
    path.write_text('{"max_restarts": 3}')
    hogwild = ["train", "acer", "--env", "CartPole-v1", "--runtime", "hogwild", "--config", str(path)]
    assert resolved(hogwild, capsys)["max_restarts"] == 3
    for text, says in (('{"lr": 1e-3,}', "is not JSON"), ('{"lrr": 1}', "did you mean lr"), ('{"steps": "x"}', "'x'")):
        path.write_text(text)
        status, _, err = call([*CARTPOLE, "--config", str(path)], capsys)
        assert status == 2 and "my.json" in err and says in err and err.count("\n") == 1


def test_intervals_of_a_search_follow_other_steps_unless_they_were_chosen(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for chosen, evaluated in (({}, 50_000), ({"eval_every": 700}, 700)):
        config = vantage.configure("a2c", env="CartPole-v1", steps=20_000, **chosen).flat()
        config = {name: plain(value) for name, value in config.items()}
        best = {"trial": 1, "value": 1.0, "objective": "mean", "config": config}
        (tmp_path / "best.json").write_text(json.dumps(best))
        values = resolved(["train", "--from-search", str(tmp_path), "--steps", "1M"], capsys)
        assert (values["eval_every"], values["save_every"]) == (evaluated, 100_000)


def test_the_best_of_an_earlier_search_is_trained_as_it_was(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    former = {"scale_actions": False, "one_hot": "vector", "torsos": "separate", "obs_as": "bytes",
              "std_lr_scale": 1.0}
    config = vantage.configure("ppo", env="Pendulum-v1").flat()
    config = {name: plain(value) for name, value in config.items() if name not in former}
    best = {"trial": 1, "value": 1.0, "objective": "mean", "config": config}
    (tmp_path / "best.json").write_text(json.dumps(best))
    values = resolved(["train", "--from-search", str(tmp_path)], capsys)
    assert {name: values[name] for name in former} == former


def test_help_is_of_the_algorithm_also_behind_the_commands_own_switches(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--epochs" in call(["train", "--dry-run", "ppo", "--env", "CartPole-v1", "--help"], capsys)[1]


def test_help_and_bad_input_are_answered_before_torch_is_imported() -> None:
    lines = [["--help"], ["train", "--help"], ["evaluate", "--help"], ["list"], ["record", "x"], ["resume", "x"],
             [*CARTPOLE, "--dry-run"], [*CARTPOLE, "--lrr", "1"]]
    code = ("import sys\nfrom vantage.cli import main\n"
            f"for line in {lines}:\n    try:\n        main(line)\n    except SystemExit:\n        pass\n"
            "assert 'torch' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


def test_ctrl_c_while_the_command_is_imported_shows_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupting:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "vantage.cli.entry":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "vantage.cli.entry", raising=False)
    monkeypatch.delattr(vantage.cli, "entry", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert main(["list"]) == 130


# As torch, whose import calls Python from C++ code that no exception may leave. It takes longer than a signal that is
# sent again, so that more than one arrives.
FRAGILE = """
import os, signal, time
try:
    signal.raise_signal(signal.{name})
    time.sleep(0.2)
except BaseException:
    os.abort()
"""
LATE = """
import threading, odd

class Late(odd.Misbehaving):
    def __init__(self):
        import fragile
        threading.Event().wait(60)  # for the signal, which is sent again
"""


def call_with_library(module: str, source: str, words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """The command, which finds a library `module` of the given source before any other."""
    (folder / f"{module}.py").write_text(source)
    return subprocess.run([sys.executable, "-m", "vantage", *words], capture_output=True, text=True, check=False,
                          cwd=folder, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def test_a_command_that_is_interrupted_ends_without_the_clean_up_of_libraries(tmp_path: Path) -> None:
    done = call_with_library("matplotlib", "import atexit, os\natexit.register(os.abort)\nraise KeyboardInterrupt\n",
                             ["plot", "run"], tmp_path)
    assert (done.returncode, done.stderr) == (130, "")


def test_a_library_that_cannot_be_imported_is_one_line(tmp_path: Path) -> None:
    done = call_with_library("matplotlib", "raise ModuleNotFoundError('no matplotlib', name='matplotlib')",
                             ["plot", "run", "-o", "x.png"], tmp_path)
    assert (done.returncode, done.stderr) == (
        2, f"vantage: matplotlib is not installed: {extras.install_command('plot')}\n")


@pytest.mark.parametrize(("words", "name", "status", "message"), [
    (["preview", "late:Late", "-o", "x.png"], "SIGINT", 130, ""),
    ([*A2C, "--env", "late:Late", "--threads", "1"], "SIGTERM", 143, "vantage: stopped before training began\n"),
], ids=["preview", "train"])
def test_a_signal_amid_an_import_is_raised_after_its_end(
        words: list[str], name: str, status: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(LATE)
    done = call_with_library("fragile", FRAGILE.format(name=name), words, tmp_path)
    assert (done.returncode, done.stderr) == (status, message)
    assert not (tmp_path / "runs").exists()


def test_a_second_signal_amid_an_import_ends_the_command_at_once(tmp_path: Path) -> None:
    twice = "import signal, os\nfor _ in range(2):\n    signal.raise_signal(signal.SIGINT)\nos.abort()\n"
    done = call_with_library("matplotlib", twice, ["plot", "run"], tmp_path)
    assert (done.returncode, done.stderr) == (130, "")


def test_a_signal_that_waits_for_an_import_is_forgotten_with_the_run() -> None:
    signals: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
    try:
        with Stop() as stop:
            amid_an_import = compile("stop._handle(15, sys._getframe())", "<frozen importlib._bootstrap>", "exec")
            exec(amid_an_import, {"stop": stop, "sys": sys})
        threading.Event().wait(0.2)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not signals and stop.signal == 0


def test_a_path_that_the_system_refuses_is_one_line_and_no_other_error_is_blamed_on_the_output(
        capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    status, _, err = call(["plot", "x" * 5_000, "-o", "x.png"], capsys)
    assert status == 1 and err.startswith("vantage: cannot use xxx") and err.count("\n") == 1
    monkeypatch.setattr("vantage.config.catalogue.catalogue", lambda: os.kill(2**22, 0))  # an OSError without a file
    with pytest.raises(ProcessLookupError):
        main(["list"])


def test_the_lists_name_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(["list"], capsys)
    assert status == 0 and all(word in out for word in ("a2c", "nature", "atari", "lstm", "Breakout", "CartPole-v1"))
    status, out, _ = call(["--help"], capsys)
    assert status == 0 and all(f"\n  {name} " in out for name in ("train", "resume", "doctor", "list"))
    assert call(["--version"], capsys)[1].startswith("vantage ")
