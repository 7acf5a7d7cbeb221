"""`vantage push`: a run's policy on the Hugging Face hub, with card, config, metrics and video."""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from string import Template
from typing import Any

from vantage.agents.agent import Agent, load
from vantage.agents.evaluate import Evaluation, evaluate, load_player, single_game
from vantage.config.config import Config
from vantage.errors import ConfigError
from vantage.keys.objects import folder_name
from vantage.runs.directory import RunDirectory
from vantage.runs.files import open_file, read_small
from vantage.runs.handed_over import handed_over, objects_of, run_of, with_code_of
from vantage.runs.hub import POLICY, PREFIX, hub_api
from vantage.runs.metrics import FILE_NAME, LARGEST_FILE
from vantage.tools.export import export

VIDEO = "replay.mp4"
"""File name of the video that the hub plays on a model's page."""

_CARD = Template("""---
$metadata
---

# $algo on $env

A policy trained with Vantage $version, a library for advantage actor-critic agents.

## Scores

$scores

Training: $training.

## Use

With Vantage and its extra `hub`:

$evaluate

```python
import vantage

agent = vantage.load("$address"$objects)
action, state = agent.act(obs, agent.initial_state())
```

## Train it again

$train

`metrics.jsonl` holds the metrics of the run.

## Config

```json
$config
```
""")


def push(run: str | Path | Agent, repo: str, *, private: bool = False, episodes: int = 20,
         checkpoint: str | int = "auto", trust: bool = False, env: Any = None,
         network: Any = None, memory: Any = None, algorithm: Any = None) -> str:
    """Upload the policy of `run` to the repository `repo`, OWNER/NAME; returns its URL.

    The repository is created if needed. The model card has the scores of an evaluation over
    `episodes` games, the config and the command that trains the policy again. The newest .mp4 in
    the run's directory becomes the card's video. `checkpoint`, `trust`, `env`, `network`, `memory`
    and `algorithm` are those of `vantage.evaluate`. ConfigError for a repository or a token that
    the hub refuses.
    """
    repo = repo.removeprefix(PREFIX)
    given = {"env": env, "network": network, "memory": memory, "algorithm": algorithm}
    objects = with_code_of(run, given)
    directory = RunDirectory.open(Path(run_of(run)), trust=trust, runs_code=True,
                                  objects=handed_over(**objects), call="push")
    training = directory.summary_line()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        del given["env"]
        exported = export(run, format="safetensors", output=folder / POLICY, checkpoint=checkpoint,
                          trust=trust, **given)
        # Evaluate the exported file: the run may train on.
        agent = load(exported.path, trust=True, **objects)
        load_player(agent, "auto", None, episodes=episodes, seed=0, trust=trust, call="evaluate")
        single_game(agent.config, 0, draws=False).close()
        (folder / "config.json").write_text(directory.asked.to_json(), encoding="utf-8")
        _copy_metrics(directory.path, folder)
        _copy_newest_video(directory.path, folder)
        url = _create(repo, private)  # before the games, which take time
        result = evaluate(agent, episodes=episodes)
        card = model_card(directory.config, training, repo, result)
        (folder / "README.md").write_text(card, encoding="utf-8")
        message = f"Add {result.checkpoint} of {agent.config.algo} on {agent.config.env.id}"
        with hub_api(repo) as api:
            api.upload_folder(repo_id=repo, folder_path=folder, commit_message=message)
    return url


def _create(repo: str, private: bool) -> str:
    """Create the repository if needed; returns its URL."""
    with hub_api(repo) as api:
        url = str(api.create_repo(repo, private=private or None, exist_ok=True))
        exposed = private and not api.repo_info(repo).private
    if exposed:
        raise ConfigError(f"{repo} exists and is public; make it private on the hub, or leave "
                          "--private out")
    return url


def _copy_metrics(run: Path, folder: Path) -> None:
    metrics = run / FILE_NAME
    if os.path.lexists(metrics):
        with open(open_file(metrics, os.O_RDONLY), "rb") as file:
            (folder / FILE_NAME).write_bytes(read_small(file, str(metrics), LARGEST_FILE))


def _copy_newest_video(run: Path, folder: Path) -> None:
    videos = [path for path in run.glob("*.mp4") if path.is_file() and not path.is_symlink()]
    if videos:
        newest = max(videos, key=lambda path: path.stat().st_mtime)
        shutil.copyfile(newest, folder / VIDEO)


def model_card(config: Config, training: str, repo: str, result: Evaluation) -> str:
    """The README.md of the repository; its metadata lets the hub list the score."""
    from huggingface_hub import EvalResult, ModelCardData

    address = PREFIX + repo
    # Markdown would take the name of an object, such as <lambda>, for a tag.
    env = folder_name(config.env.id).strip("<>")
    scores = result.sentence().replace(config.env.id, env)
    score = EvalResult(
        task_type="reinforcement-learning",
        dataset_type=env,
        dataset_name=env,
        metric_type="mean_reward",
        metric_value=f"{result.return_mean:.2f} +/- {result.return_std:.2f}",
    )
    metadata = ModelCardData(
        library_name="vantage-rl",
        tags=["reinforcement-learning", "deep-reinforcement-learning", config.algo],
        pipeline_tag="reinforcement-learning",
        model_name=repo.partition("/")[2],
        eval_results=[score],
    )
    return _CARD.substitute(
        metadata=metadata.to_yaml(),
        algo=config.algo,
        env=env,
        version=version("vantage-rl"),
        scores="\n".join(f"- {line}" for line in scores.splitlines()),
        training=training or "unknown",
        evaluate=_evaluate(config, address),
        address=address,
        objects=_again(config),
        train=_train(config),
        config=config.to_json(),
    )


def _again(config: Config) -> str:
    """The arguments that hand over the objects of `config`."""
    return "".join(f", {name}=..." for name in objects_of(config))


def _evaluate(config: Config, address: str) -> str:
    """How the policy at `address` is evaluated, in Markdown."""
    if again := _again(config):
        return f'```python\nimport vantage\n\nvantage.evaluate("{address}"{again})\n```'
    return f"```\nvantage evaluate {address}\n```"


def _train(config: Config) -> str:
    """How the policy is trained again, in Markdown."""
    this = f"Vantage {version('vantage-rl')}"
    if objects := objects_of(config):
        return (f"In Python, with {this}, the keys of `config.json` and its "
                f"{' and '.join(objects)}, which a file cannot name.")
    return (f"With `config.json` of this repository, {this} and seed {config.run.seed}:\n\n"
            f"```\nvantage train {config.algo} --config config.json\n```")
