"""`vantage push`: a run's policy on the Hugging Face hub, with card, config, metrics and video."""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from string import Template

from vantage.agents.evaluate import Evaluation, evaluate
from vantage.errors import ConfigError
from vantage.runs.directory import RunDirectory
from vantage.runs.files import open_file, read_small
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

```
vantage evaluate $address
```

```python
import vantage

agent = vantage.load("$address")
action, state = agent.act(obs, agent.initial_state())
```

## Train it again

With `config.json` of this repository, Vantage $version and seed $seed:

```
vantage train $algo --config config.json
```

`metrics.jsonl` holds the metrics of the run.

## Config

```json
$config
```
""")


def push(run: str | Path, repo: str, *, private: bool = False, episodes: int = 20,
         checkpoint: str | int = "auto", trust: bool = False) -> str:
    """Upload the policy of `run` to the repository `repo`, OWNER/NAME; returns its URL.

    The repository is created if needed. The model card has the scores of an evaluation over
    `episodes` games, the config and the command that trains the policy again. The newest .mp4 in
    the run's directory becomes the card's video. `checkpoint` and `trust` are those of `evaluate`.
    ConfigError for a repository or a token that the hub refuses.
    """
    repo = repo.removeprefix(PREFIX)
    directory = RunDirectory.open(Path(run), trust=trust, runs_code=True)
    with hub_api(repo) as api:  # before the games, which take time
        url = str(api.create_repo(repo, private=private or None, exist_ok=True))
        exposed = private and not api.repo_info(repo).private
    if exposed:
        raise ConfigError(f"{repo} exists and is public; make it private on the hub, or leave "
                          "--private out")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        exported = export(run, format="safetensors", output=folder / POLICY, checkpoint=checkpoint,
                          trust=trust)
        # Evaluate the exported file: the run may train on.
        result = evaluate(exported.path, episodes=episodes, trust=trust)
        (folder / "README.md").write_text(model_card(directory, repo, result), encoding="utf-8")
        (folder / "config.json").write_text(directory.asked.to_json(), encoding="utf-8")
        _copy_metrics(directory.path, folder)
        _copy_newest_video(directory.path, folder)
        config = directory.config
        message = f"Add {result.checkpoint} of {config.algo} on {config.env.id}"
        with hub_api(repo) as api:
            api.upload_folder(repo_id=repo, folder_path=folder, commit_message=message)
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


def model_card(run: RunDirectory, repo: str, result: Evaluation) -> str:
    """The README.md of the repository; its metadata lets the hub list the score."""
    from huggingface_hub import EvalResult, ModelCardData

    config = run.config
    env = config.env.id
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
        scores="\n".join(f"- {line}" for line in result.sentence().splitlines()),
        training=run.summary_line() or "unknown",
        address=PREFIX + repo,
        seed=config.run.seed,
        config=config.to_json(),
    )
