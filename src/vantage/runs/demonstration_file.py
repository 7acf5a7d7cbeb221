"""Demonstrations in a .safetensors file, or from Minari. No file is unpickled.

A file holds the tensors `lengths` [E], `actions` [N, ...], `observations` [N, ...] or
`observations/PART` for each part, and optionally `rewards` [N] and `action_masks` [N, A]; its
header has the environment's id and spec.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from vantage.config.config import Config
from vantage.envs.reader import WHOLE
from vantage.errors import ConfigError
from vantage.keys.json_text import parse
from vantage.keys.objects import is_object, shown_name, target_of
from vantage.learning.demonstrations import (
    Array,
    Demonstrations,
    action_rows,
    checked,
    of_episodes,
)
from vantage.runs.files import whole_file
from vantage.runs.spec_json import spec_to_json
from vantage.runs.validation import read_spec
from vantage.types import ArraySpec, EnvSpec

SUFFIX = ".safetensors"
FILE = f"demonstrations{SUFFIX}"
"""Name of the copy in a run's directory."""
MINARI = "minari:"
_KIND = "demonstrations 1"
_OBS = "observations"
_DTYPES = {"lengths": "i", "actions": "if", "rewards": "f", "action_masks": "u"}
"""Kinds of NumPy's types of the tensors that are no observations."""


def write_demonstrations(path: str | Path, demonstrations: Demonstrations, *, env: str,
                         spec: EnvSpec) -> None:
    """Write a file, replacing any other at `path`. ConfigError if it cannot be written."""
    tensors = {_name_in_file(name): array for name, array in demonstrations.obs.items()}
    tensors |= {"lengths": np.array(demonstrations.lengths), "actions": demonstrations.actions}
    if demonstrations.rewards is not None:
        tensors["rewards"] = demonstrations.rewards
    if demonstrations.masks is not None:
        tensors["action_masks"] = demonstrations.masks.astype(np.uint8)
    header = {"vantage": _KIND, "env": str(env), "spec": json.dumps(spec_to_json(spec))}
    with whole_file(path, SUFFIX) as temporary:
        # save_file has errors of its own for a full disk.
        temporary.write_bytes(save({name: np.ascontiguousarray(array)
                                    for name, array in tensors.items()}, header))


def read_source(config: Config, spec: EnvSpec) -> Demonstrations:
    """The demonstrations that `config` names; ConfigError if they do not fit the environment."""
    source = str(config.cloning.demonstrations)
    episodes = target_of(source)
    if episodes is None and source.startswith(MINARI):
        episodes = _minari_episodes(source.removeprefix(MINARI))
    elif is_object(source) and episodes is None:
        raise ConfigError(f"demonstrations={shown_name(source)} were given in Python, and a file "
                          "cannot name them; give a file, or the episodes again")
    if episodes is None:
        return read_demonstrations(Path(source), spec, env=config.env.id)
    return of_episodes(episodes, spec, config.env.kinds_of_parts)


def read_demonstrations(path: Path, spec: EnvSpec, *, env: str | None = None) -> Demonstrations:
    """The file at `path`, which anybody may have written.

    ConfigError if it is damaged, or of other spaces than `spec`, or of another environment than
    `env`, if that is given.
    """
    if not path.is_file():
        raise ConfigError(f"demonstrations={path}: no such file; write one with `vantage record "
                          "RUN --demonstrations FILE`, or give minari:ID")
    try:
        with safe_open(path, framework="np") as file:
            header = file.metadata() or {}
            if header.get("vantage") != _KIND:
                raise ConfigError(f"{path} holds no demonstrations; write them with `vantage "
                                  "record RUN --demonstrations FILE`")
            saved = read_spec(parse(header.get("spec", "null")))
            _check_same(path, header.get("env", ""), saved, env, spec)
            names = {_name_in_file(name): name for name in _parts(spec)}
            tensors = {name: file.get_tensor(name) for name in file.keys()  # noqa: SIM118
                       if name in names or name in _DTYPES}
        return _from_tensors(tensors, names, saved, spec)
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, MemoryError) as error:
        raise ConfigError(f"{path} is damaged: {error!s:.300}; write it again") from None


def _from_tensors(tensors: Mapping[str, Array], names: Mapping[str, str], saved: EnvSpec,
                  spec: EnvSpec) -> Demonstrations:
    """The demonstrations in a file's tensors. ValueError if these do not fit each other."""
    for name in ("lengths", "actions", *names):
        if name not in tensors:
            raise ValueError(f"it lacks {name}")
    for name, kinds in _DTYPES.items():
        if name in tensors and tensors[name].dtype.kind not in kinds:
            raise ValueError(f"{name} are {tensors[name].dtype}")
    lengths = tensors["lengths"]
    total = len(tensors["actions"])
    if lengths.ndim != 1 or not len(lengths) or lengths.min() < 1 or lengths.sum() != total:
        raise ValueError(f"lengths {lengths!s:.80} do not add up to {total:,} actions")
    obs = {}
    for name, part in names.items():
        array = tensors[name]
        mine = _parts(spec)[part]
        if array.shape != (total, *mine.shape) or array.dtype.name != mine.dtype:
            raise ValueError(f"{name} are {array.dtype} of shape {array.shape}, not {mine.dtype} "
                             f"of shape {(total, *mine.shape)}")
        obs[part] = _in_shift_of(mine, _parts(saved)[part], array)
    return checked(obs, action_rows(tensors["actions"], spec.action),
                   tuple(map(int, lengths)), tensors.get("action_masks"), tensors.get("rewards"),
                   spec)


def _check_same(path: Path, env_of_file: str, saved: EnvSpec, env: str | None,
                spec: EnvSpec) -> None:
    """ConfigError unless the file is of the environment `env`, with its spaces."""
    if env is not None and env_of_file != env:
        raise ConfigError(f"{path} has demonstrations of {shown_name(env_of_file)}, and the run is "
                          f"on {shown_name(env)}; give some of that environment")
    mine = spec.unshifted
    theirs = saved.unshifted
    same_actions = (mine.action.form == theirs.action.form
                    and np.allclose(mine.action.bounds, theirs.action.bounds))
    for what, here, there in mine.differences(theirs):
        if what != "actions" or not same_actions:
            raise ConfigError(f"{path} has demonstrations with {what} {there}, and the environment "
                              f"has {here}; record them in this environment, with its options")
    if not same_actions:
        raise ConfigError(f"{path} has demonstrations with actions in other bounds than the "
                          "environment's; record them in this environment")


def _parts(spec: EnvSpec) -> Mapping[str, ArraySpec]:
    return spec.obs if isinstance(spec.obs, Mapping) else {WHOLE: spec.obs}


def _in_shift_of(mine: ArraySpec, theirs: ArraySpec, array: Array) -> Array:
    """Observations of the part `theirs` with the offset of `mine`."""
    if mine.shift == theirs.shift:
        return array
    absolute = array.astype(np.float64) + (np.array(theirs.shift) if theirs.shift else 0.0)
    return np.asarray(absolute - (np.array(mine.shift) if mine.shift else 0.0), np.float32)


def _name_in_file(part: str) -> str:
    return _OBS if part == WHOLE else f"{_OBS}/{part}"


def _minari_episodes(dataset_id: str) -> list[Any]:
    """The episodes of a Minari dataset, which is downloaded if it is not on this machine."""
    try:
        minari = import_module("minari")
    except ModuleNotFoundError:
        raise ConfigError("minari is not installed: pip install minari") from None
    try:
        dataset = minari.load_dataset(dataset_id, download=True)
        return list(dataset.iterate_episodes())
    except Exception as error:  # of Minari, h5py or the network
        reason = " ".join(str(error).split())
        raise ConfigError(f"demonstrations={MINARI}{dataset_id}: {type(error).__name__}: "
                          f"{reason:.200}; `minari list remote` shows the datasets") from error
