"""What `vantage list` shows: algorithms, networks, presets, sources of defaults, environments."""

from __future__ import annotations

from textwrap import fill

from vantage.config.presets.games import GAMES
from vantage.config.presets.measured import MEASURED
from vantage.config.presets.systems import SYSTEMS
from vantage.envs.ids import known_names

_ALGORITHMS = """algorithms
  a2c        advantage actor-critic, which collects and learns in turn
  ppo        several epochs over each rollout with a clipped ratio (Schulman et al. 2017)
  a3c        a2c asynchronously: worker processes on shared weights (Mnih et al. 2016)
  a3g        a3c whose workers' networks are on GPUs
  acer       off-policy from a replay: Retrace, truncated weights, trust region (Wang et al. 2017)
"""

_NETWORKS = """networks, with --memory none, lstm, gru or gtrxl, and --frame-stack N
  mlp        for vectors: widths by --hidden
  a3c        2 convolutions of 16 and 32, 256 (Mnih et al. 2016)
  nature     3 convolutions of 32, 64, 64, then 512 (Mnih et al. 2015)
  minatar    1 convolution of 16, 128; for small images (Young and Tian 2019)
  universe   4 convolutions of 32, 3x3, stride 2
  impala     residual, 16, 32, 32, then 256; takes small images too (Espeholt et al. 2018)
  maxpool    4 convolutions of 32, 32, 64, 64, each with 2 x 2 maxima (rl_a3c_pytorch)
  conv4      3x3 convolutions of 16, 24, 32, 64, then 2000 (PyTorch-A2C)
  conv5      3x3 convolutions of 16, 24, 32, 48, 64, then 288 (PyTorch-A2C)
  conv1d     for vectors: 4 convolutions of 32, 32, 64, 64 along them (a3c_continuous)
"""


def catalogue() -> dict[str, str]:
    """The text of each subject that `vantage list` shows."""
    titles = {name: preset.title for name, preset in GAMES.items()}
    titles |= {name: system.title for name, system in SYSTEMS.items()}
    presets = [f"  {name:<20} {title}" for name, title in titles.items()]
    sources = []
    for algo, entries in MEASURED.items():
        for name, entry in entries.items():
            if entry.source:
                title = f"{name}, {algo}" if algo else name
                sources.append(_wrapped(f"{title}: {entry.source}", indent="      "))
    return {
        "algorithms": _ALGORITHMS.rstrip(),
        "networks": _NETWORKS.rstrip(),
        "presets": "\n".join(["presets", *presets]),
        "defaults": "\n".join([
            "defaults, whose values `vantage train ALGO --env ENV --help` shows", *sources]),
        "environments": "\n".join([
            "environments: any Gymnasium id, module:Id-v0, module:Class, and the Atari games", "",
            _wrapped(", ".join(known_names()))]),
    }


def _wrapped(text: str, indent: str = "  ") -> str:
    return fill(text, 118, initial_indent="  ", subsequent_indent=indent)
