"""The model card of an exported policy: its origin, scores and config, and how to load it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version

from vantage.runs.policy_file import Description
from vantage.specs import ActionSpec, ArraySpec, EnvSpec

_MEANINGS = {"eval/mean_reward": "mean return of the evaluation that selected it",
             "rollout/ep_rew_mean": "mean return of the last 100 training games"}


def card(description: Description, file: str) -> str:
    """Markdown with the metadata header of model hubs."""
    config = description.config
    scores = [f"| `{name}` | {_MEANINGS.get(name, 'return')} | {value:,.2f} |"
              for name, value in description.scores.items()]
    table = ["| metric | | raw score |", "|---|---|---|", *scores] if scores else ["No game had ended yet."]
    return "\n".join([
        "---", "library_name: vantage-rl", "tags: [reinforcement-learning, actor-critic]", "---", "",
        f"# {config.algo} on {config.env.id}", "",
        f"A policy and its value function, trained with {config.algo} by Vantage {version('vantage-rl')}: checkpoint "
        f"`{description.checkpoint}` after {description.step:,} of {config.run.steps:,} agent steps, seed "
        f"{config.run.seed}. The weights in `{file}` are float32.", "",
        f"- Observations: {_observations(description.spec)}",
        f"- Actions: {_actions(description.spec.action)}{', masked' if description.spec.masked else ''}", "",
        "## Scores", "", *table, "",
        "## How to load it", "",
        "```python", "import vantage", "",
        f'agent = vantage.load("{file}"{description.trust_argument})  # needs no environment',
        "state = agent.initial_state(batch=1)", f"action, state = agent.act({_arguments(description.spec)})", "```", "",
        f"`vantage evaluate {file}` plays whole games with it where the environment is installed.", "",
        "## Config", "", "```json", config.to_json(), "```", ""])


def _observations(spec: EnvSpec) -> str:
    parts = spec.obs.items() if isinstance(spec.obs, Mapping) else [("", spec.obs)]
    return "; ".join(f"{f'`{key}` ' if key else ''}{_shape(part)}" for key, part in parts)


def _shape(part: ArraySpec) -> str:
    size = " x ".join(map(str, part.shape))
    return f"images [B, {size}] in uint8" if part.kind == "image" else f"vectors [B, {size}] in float32"


def _actions(action: ActionSpec) -> str:
    match action.kind:
        case "discrete":
            return f"one of {action.sizes[0]}"
        case "multi_discrete":
            return f"{len(action.sizes)} choices, of {', '.join(map(str, action.sizes))}"
        case "multi_binary":
            return f"{len(action.sizes)} of 0 or 1"
        case "box":
            low, high = json.dumps(action.low), json.dumps(action.high)
            return f"a vector of {action.sizes[0]}, to be clipped to {low} and {high}"


def _arguments(spec: EnvSpec) -> str:
    return "obs, state, action_mask=mask" if spec.masked else "obs, state"
