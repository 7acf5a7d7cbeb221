"""Which code the config of a run would import, and whether this user wrote that config.

A config may name a class as module:Class. Opening a run imports that module, so a run of someone
else could execute any file in the current folder. meta.json and the headers of exported files
therefore hold an HMAC of the config under a secret key of this user, by which the user's own runs
and files are known. The environment variable VANTAGE_KEY names the file of the key, for machines
without a lasting home directory, such as containers. No code is imported here.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from vantage._host.extras import version_of
from vantage.errors import ConfigError

log = logging.getLogger(__name__)

SIGNATURE = "config_hmac"
"""Key of the HMAC in meta.json and in the header of an exported file."""
KEY_VARIABLE = "VANTAGE_KEY"
"""Environment variable: the absolute path of the key's file."""
_KEY_BYTES = 32
_CLASS = re.compile(r"([\w-]+/)?[A-Z][\w-]*")
"""A class, or an env id such as ALE/Pong-v5. A dotted or lower-case attribute could name any
function, such as vantage.runs.directory:subprocess.Popen, which env_kwargs would give arguments."""
_CONNECTIONS = {"ray_address": "local|auto", "track": "none", "init_from": "(?!hf://).*"}
"""Config keys that connect to other machines, unless their value matches."""


def foreign_code(values: Mapping[str, Any], *, runs_code: bool = True,
                 given: Collection[str] = ()) -> list[str]:
    """Import paths outside Vantage, gymnasium and ale_py in the raw JSON `values` of a config.

    Reading a config imports the module of `algo`. With `runs_code`, those of the environment, the
    network and the memory count too, as do paths through these packages to anything but a class.
    Keys of `given` do not count, because an object replaces their names.
    """
    foreign: dict[str, None] = {}
    # Modules of environments are imported before the current folder is on sys.path, other code
    # after that. If ale_py is not installed, a folder of that name could replace it.
    env_packages = ["vantage", "gymnasium"]
    if version_of("ale-py") is not None:
        env_packages.append("ale_py")
    for group in _groups(values):
        for key in ("algo", "env", "id", "network", "memory") if runs_code else ("algo",):
            value = group.get(key)
            if ("env" if key == "id" else key) in given:
                continue
            if key == "env" and group is values and isinstance(value, Mapping):
                continue  # a group of keys
            path = value if isinstance(value, str) else json.dumps(value)
            module, colon, attribute = path.partition(":")
            packages = env_packages if key in ("env", "id") else ["vantage"]
            is_ours = module.partition(".")[0] in packages and _CLASS.fullmatch(attribute)
            if colon and not is_ours:
                foreign[path] = None
    return list(foreign)


def connections(values: Mapping[str, Any]) -> list[str]:
    """The keys in the raw JSON `values` of a config by which training connects to other machines.

    Processes of a Ray cluster exchange pickles, and a run may hold the id of any run in the user's
    tracker.
    """
    return [f"{key}={group[key]}"
            for key, pattern in _CONNECTIONS.items()
            for group in _groups(values)
            if key in group and not re.fullmatch(pattern, str(group[key]), re.DOTALL)]


def same_code(values: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether two configs, by flat key, name the same code, with its arguments, and connections."""
    code = ("algo", "env", "env_kwargs", "reset_options", "network", "memory")
    return all(values.get(key) == others.get(key) for key in (*code, *_CONNECTIONS))


def _groups(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The top level and every group: `Config.from_json` takes a key from any of them."""
    return [values, *(group for group in values.values() if isinstance(group, Mapping))]


def check_code(paths: Sequence[str], *, source: str, trusted: bool, connects: Sequence[str] = (),
               remedy: str = "give --trust") -> None:
    """Log a warning for each module that `source` lets Vantage import.

    ConfigError unless `source` is trusted.
    """
    uses = []
    if paths:
        uses.append(f"imports {', '.join(paths)}")
    if connects:
        uses.append(f"connects by {', '.join(connects)}")
    if uses and not trusted:
        what = "code" if paths else "connection"
        raise ConfigError(f"{source} was not written by you on this machine and "
                          f"{' and '.join(uses)}; if you trust that {what}, {remedy}, or set "
                          f"{KEY_VARIABLE} to the key that you wrote it with")
    for path in paths:
        if path.partition(":")[0] not in sys.modules:
            _announce(path, source)


@cache  # a command may open its run twice
def _announce(path: str, source: str) -> None:
    log.warning("using the code of %s, which %s names", path, source)


def signature(text: str) -> str | None:
    """The HMAC-SHA256 of `text` under this user's key, in hex; None if no key can be made.

    ConfigError if the file that `KEY_VARIABLE` names cannot be used.
    """
    path = given_key_path()
    try:
        _create_key(_home_key_path() if path is None else path)
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
        if path is not None:
            raise _unusable(getattr(error, "strerror", None) or str(error)) from None
    key = _read_key(path)
    return None if key is None else _sign(text, key)


def is_own(text: str, signed: object) -> bool:
    """Whether `signed` is the signature of `text` by the given key or the one at home."""
    keys = (_read_key(path) for path in {given_key_path(), None})
    return any(hmac.compare_digest(_sign(text, key).encode(), str(signed).encode(errors="replace"))
               for key in keys if key is not None)


def _sign(text: str, key: bytes) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _read_key(path: Path | None) -> bytes | None:
    """The key in the file `path`, or for None in the home directory; None if there is none yet."""
    try:
        key = (_home_key_path() if path is None else path).read_bytes()
    except (OSError, RuntimeError) as error:
        if path is not None and not isinstance(error, FileNotFoundError):
            raise _unusable(getattr(error, "strerror", None) or str(error)) from None
        return None
    if len(key) != _KEY_BYTES and path is not None:
        raise _unusable(f"it has {len(key)} bytes, a key has {_KEY_BYTES}")
    return key if len(key) == _KEY_BYTES else None


def given_key_path() -> Path | None:
    """The path that `KEY_VARIABLE` names; None without one."""
    path = os.environ.get(KEY_VARIABLE, "")
    if path and not os.path.isabs(path):  # a run of someone else could contain a key
        raise _unusable("the path is not absolute")
    return Path(path) if path else None


def _unusable(why: str) -> ConfigError:
    return ConfigError(f"{KEY_VARIABLE}={os.environ[KEY_VARIABLE]!r} cannot be used: {why}; name a "
                       "file by its absolute path, which Vantage creates if it is not there")


def _home_key_path() -> Path:
    """$XDG_STATE_HOME/vantage/key."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():
        state = Path.home() / ".local" / "state"
    return state / "vantage" / "key"


def _create_key(path: Path) -> None:
    """Write a key to `path` unless there is one."""
    if path.exists():
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)  # readable by its owner alone
    try:
        with open(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        os.link(temporary, path)  # unlike a rename, never replaces a key
    finally:
        os.unlink(temporary)
