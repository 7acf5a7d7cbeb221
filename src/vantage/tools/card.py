"""The model card of an exported policy: its origin, scores and config, and how to load it."""

from __future__ import annotations

import json
from importlib.metadata import version

from vantage.runs.policy_file import Description


def card(description: Description, file: str) -> str:
    """Markdown with the metadata header of model hubs."""
    config, spec = description.config, description.spec
    scores = "\n".join(f"| `{name}` | {value:,.2f} |" for name, value in description.scores.items())
    arguments = "obs, state, action_mask=mask" if spec.masked else "obs, state"
    return f"""---
library_name: vantage-rl
tags: [reinforcement-learning, actor-critic]
---

# {config.algo} on {config.env.id}

A policy and its value function, trained by Vantage {version('vantage-rl')}: checkpoint `{description.checkpoint}` after
{description.step:,} of {config.run.steps:,} agent steps, seed {config.run.seed}. The weights in `{file}` are float32.

| metric | raw score |
|---|---|
{scores}

## How to load it

```python
import vantage

agent = vantage.load("{file}"{description.trust_argument})  # needs no environment
state = agent.initial_state(batch=1)
action, state = agent.act({arguments})
```

Observations and actions: `{json.dumps(spec.to_json())}`

## Config

```json
{config.to_json()}
```
"""
