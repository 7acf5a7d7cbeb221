"""Policies on the Hugging Face hub: what is uploaded, what is read back, and what a user is answered."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import pytest
import torch

pytest.importorskip("huggingface_hub", reason="needs the extra hub")

from hub_stub import TOKEN, Hub, serving
from huggingface_hub import ModelCard, constants

import vantage
from vantage._host import extras
from vantage.cli import main
from vantage.errors import ConfigError, VantageError
from vantage.runs.files import LARGEST_TEXT_FILE
from vantage.runs.policy_file import read_weights, write_weights
from vantage.tools.push import push
from vantage.tools.window import Window


def direct_to(endpoint: str, patch: pytest.MonkeyPatch) -> None:
    """What the environment variable HF_ENDPOINT does when the client is imported."""
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE
    patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template.replace(constants.ENDPOINT, endpoint))
    patch.setattr(constants, "ENDPOINT", endpoint)


@contextmanager
def user_of(hub: Hub, cache: Path) -> Iterator[pytest.MonkeyPatch]:
    """A user who may write to `hub`."""
    with pytest.MonkeyPatch.context() as patch:
        direct_to(hub.endpoint, patch)
        patch.setattr(constants, "HF_HUB_CACHE", str(cache))
        patch.setenv("HF_TOKEN", TOKEN)
        yield patch


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """An empty hub, and a user who may write there."""
    with serving() as hub, user_of(hub, tmp_path / "cache"):
        yield hub


@pytest.fixture(scope="module")
def run(cartpole_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a video; to be left as it is."""
    run = Path(shutil.copytree(cartpole_run, tmp_path_factory.mktemp("pushed") / "run"))
    (run / "game.mp4").write_bytes(b"a video")
    return run


@pytest.fixture(scope="module")
def files(run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What `vantage push` uploads of the run."""
    with serving() as hub, user_of(hub, tmp_path_factory.mktemp("cache")):
        assert push(run, "someone/cartpole", episodes=3) == f"{hub.endpoint}/someone/cartpole"
        return hub.repos["someone/cartpole"]


@pytest.fixture
def pushed(hub: Hub, files: dict[str, bytes]) -> Hub:
    """The hub with the run's policy in someone/cartpole."""
    hub.repos["someone/cartpole"] = dict(files)
    return hub


def test_a_public_repository_does_not_receive_what_is_private(pushed: Hub, run: Path) -> None:
    with pytest.raises(ConfigError, match="someone/cartpole exists and is public"):
        push(run, "someone/cartpole", private=True)
    assert not any("/commit/" in request for request in pushed.requests)
    push(run, "someone/secret", private=True, episodes=1)
    assert "README.md" in pushed.repos["someone/secret"]


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    """Exit status and message of a command that fails with one line."""
    status = main(argv)
    [line] = capsys.readouterr().err.splitlines()
    return status, line


def test_a_repository_holds_card_policy_config_metrics_and_video(run: Path, files: dict[str, bytes]) -> None:
    assert files.keys() == {"README.md", "policy.safetensors", "config.json", "metrics.jsonl", "replay.mp4"}
    assert files["replay.mp4"] == b"a video"
    assert files["metrics.jsonl"] == (run / "metrics.jsonl").read_bytes()
    card = ModelCard(files["README.md"].decode())
    [score] = card.data.eval_results or []
    assert (score.dataset_name, score.metric_type) == ("CartPole-v1", "mean_reward")
    assert re.fullmatch(r"\d+\.\d\d \+/- \d+\.\d\d", score.metric_value)
    assert {"reinforcement-learning", "a2c"} <= set(card.data.tags or []) and card.data.library_name == "vantage-rl"
    assert "over 3 games" in card.text and 'vantage.load("hf://someone/cartpole")' in card.text
    weights = files["policy.safetensors"]
    header = weights[8:8 + int.from_bytes(weights[:8], "little")]  # a short name may occur in the numbers after it
    texts = [header, *(content for name, content in files.items() if name.endswith((".md", ".json", ".jsonl")))]
    assert len(texts) == 4 and not any(os.uname().nodename.encode() in content for content in texts)


def test_the_command_of_the_card_has_the_config_of_the_run(run: Path, files: dict[str, bytes],
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    Path("config.json").write_bytes(files["config.json"])
    [command] = re.findall("^vantage (train .*)$", files["README.md"].decode(), flags=re.MULTILINE)
    assert main([*command.split(), "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((run / "config.json").read_text())


@pytest.mark.parametrize("address", ["hf://someone/cartpole", "hf://someone/cartpole@v1"])
def test_a_repository_is_loaded_without_any_file_but_the_policy(pushed: Hub, run: Path, address: str) -> None:
    there, here = vantage.load(address), vantage.load(run)
    assert all(torch.equal(there.model.state_dict()[name], tensor) for name, tensor in here.model.state_dict().items())
    assert all("/resolve/" in path and path.endswith("/policy.safetensors") for path in pushed.requests)
    assert vantage.evaluate(address, episodes=2).returns == vantage.evaluate(run, episodes=2).returns


def test_commands_and_init_from_take_a_repository(pushed: Hub, capsys: pytest.CaptureFixture[str],
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["evaluate", "hf://someone/cartpole", "--episodes", "1"]) == 0
    assert "CartPole-v1: mean" in capsys.readouterr().out
    assert main(["train", "a2c", "--env", "CartPole-v1", "--init-from", "hf://someone/cartpole", "--dry-run"]) == 0
    monkeypatch.setattr(Window, "wait", lambda *_: False)  # closed after the first frame
    assert main(["watch", "hf://someone/cartpole"]) == 0


def test_code_that_only_a_repository_names_is_not_imported(pushed: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("stranger.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(Path.cwd())
    files, file = pushed.repos["someone/cartpole"], Path("policy.safetensors")
    file.write_bytes(files[file.name])
    tensors, about = read_weights(file)
    write_weights(file, tensors, replace(about, config=about.config.change(network="stranger:Net")))
    files[file.name] = file.read_bytes()
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("another user").resolve()))
    with pytest.raises(ConfigError, match="was not written by you on this machine and imports stranger"):
        vantage.load("hf://someone/cartpole")


def test_a_link_in_a_run_is_not_uploaded(hub: Hub, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = Path(shutil.copytree(run, "copy"))
    Path("secret").write_text("the key")
    for name in ("metrics.jsonl", "game.mp4"):
        (copy / name).unlink()
        (copy / name).symlink_to(Path("secret").absolute())
    status, line = refused(capsys, "push", "copy", "someone/copy")
    assert status == 2 and "metrics.jsonl is a symbolic link" in line
    (copy / "metrics.jsonl").unlink()
    summary = json.loads((copy / "summary.json").read_text())
    (copy / "summary.json").write_text(json.dumps(summary | {"status": "<script>\n# Injected"}))
    assert main(["push", "copy", "someone/copy", "--episodes", "1"]) == 0
    uploaded = hub.repos["someone/copy"]
    assert uploaded.keys() == {"README.md", "policy.safetensors", "config.json"}
    assert not any(b"the key" in content for content in uploaded.values())
    assert b"<script" not in uploaded["README.md"] and b"\n# Injected" not in uploaded["README.md"]


def test_metrics_of_a_long_run_are_uploaded(hub: Hub, run: Path) -> None:
    long = Path(shutil.copytree(run, "long"))
    line = json.dumps({"step": 1, "seconds": 1.0, "rollout/ep_rew_mean": 1.0}) + "\n"
    (long / "metrics.jsonl").write_text(line * (LARGEST_TEXT_FILE // len(line) + 1))
    push(long, "someone/long", episodes=1)
    assert hub.repos["someone/long"]["metrics.jsonl"] == (long / "metrics.jsonl").read_bytes()


def test_objects_of_a_run_are_given_again_before_a_repository_is_created(hub: Hub) -> None:
    agent = vantage.train("a2c", env=lambda: gym.make("CartPole-v1"), steps=100, threads=1, eval_every=0,
                          hidden="8", tensorboard=False, run="own")
    with pytest.raises(ConfigError, match=r'^own was trained on env=.*; push\("own", "OWNER/NAME", env=\.\.\.\)$'):
        push("own", "someone/own")
    with pytest.raises(VantageError, match="division by zero"):
        push("own", "someone/own", env=lambda: 1 / 0)
    with pytest.raises(ConfigError, match="has no run; give a run directory"):
        push(copy.copy(agent), "someone/own")
    assert not hub.requests
    push(agent, "someone/own", episodes=1)
    card = hub.repos["someone/own"]["README.md"].decode()
    assert 'vantage.evaluate("hf://someone/own", env=...)' in card and "vantage train" not in card


def test_a_pickle_under_the_name_of_a_policy_is_refused(pushed: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    pushed.repos["someone/cartpole"]["policy.safetensors"] = b"\x80\x04cos\nsystem\n(S'true'\ntR."
    status, line = refused(capsys, "evaluate", "hf://someone/cartpole")
    assert status == 1 and "is damaged: SafetensorError" in line


@pytest.mark.parametrize(("argv", "expected"), [
    ("evaluate hf://someone/nothing", "the hub has no repository someone/nothing, or not for you; correct the name"),
    ("evaluate hf://someone/cartpole@v9", "hf://someone/cartpole has no such revision; give a branch, a tag"),
    ("evaluate hf://someone/cartpole@", "hf://someone/cartpole@ names no revision"),
    ("evaluate hf://someone/empty", "hf://someone/empty holds no policy.safetensors; give a repository that"),
    ("evaluate hf://someone", "'someone' is not a repository of the hub; give OWNER/NAME"),
    ("evaluate hf://a/b/c", "'a/b/c' is not a repository of the hub; give OWNER/NAME"),
    ("evaluate hf://someone/..", "'someone/..' is not a repository of the hub; give OWNER/NAME"),
    ("train a2c --env CartPole-v1 --dry-run --init-from hf://someone/nothing", "the hub has no repository someone/no"),
    ("export hf://someone/cartpole --format onnx", "hf://someone/cartpole has no run directory on this machine"),
    ("push nowhere someone/cartpole", "nowhere: no such run directory"),
])
def test_a_wrong_address_is_answered_in_one_line(
        pushed: Hub, argv: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    pushed.repos["someone/empty"] = {}
    status, line = refused(capsys, *argv.split())
    assert status == 2 and expected in line


def test_a_wrong_token_is_answered_before_any_game(hub: Hub, run: Path, capsys: pytest.CaptureFixture[str],
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    status, line = refused(capsys, "push", str(run), "someone/cartpole")
    assert status == 2 and "the hub refuses access to someone/cartpole (status 401)" in line and "HF_TOKEN" in line
    assert "hf_wrong" not in line and not hub.repos


def test_no_connection_is_answered_in_one_line(hub: Hub, run: Path, capsys: pytest.CaptureFixture[str],
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    direct_to("http://127.0.0.1:9", monkeypatch)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)  # before it tries again
    for argv in (["push", str(run), "someone/cartpole"], ["evaluate", "hf://someone/cartpole"]):
        status, line = refused(capsys, *argv)
        assert status == 1 and "cannot reach the hub for someone/cartpole" in line and "check the network" in line


def test_a_missing_client_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    status, line = refused(capsys, "evaluate", "hf://someone/cartpole")
    assert status == 2 and "huggingface_hub is not installed: pip install " in line
