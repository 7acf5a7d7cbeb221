"""Which code a run's config would import, and whether this user wrote that config. Importing the code is not done here.

A config may name a class as module:Class. Opening a run imports that module, so a run from someone else could execute
whatever lies in the current folder. meta.json therefore holds an HMAC of config.json, made with a secret key of this
user: a run that carries it is the user's own.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vantage.errors import ConfigError

log = logging.getLogger(__name__)

_KEY_BYTES = 32
# A dotted or lower-case attribute could reach any function, such as vantage.runs.directory:subprocess.Popen or
# gymnasium:make, which env_kwargs would then call with arguments of the config's choice.
_CLASS = re.compile(r"([\w-]+/)?[A-Z][\w-]*")  # also an env id such as ALE/Pong-v5


def foreign_code(values: Mapping[str, Any], *, runs_code: bool = True) -> list[str]:
    """Modules outside Vantage, gymnasium and ale_py that the config with the raw JSON `values` would import.

    Reading the config imports the module of `algo`; with `runs_code`, those of the environment and the network count
    too. An import path that leads through a module of Vantage to something else than its classes is listed as a whole.
    Each key counts at the top level and in every group, because `Config.from_json` takes a key from any of them.
    """
    keys = ("algo", "env", "id", "network") if runs_code else ("algo",)
    groups = [values, *(group for group in values.values() if isinstance(group, Mapping))]
    names: dict[str, None] = {}
    for group in groups:
        for key in keys:
            value = group.get(key)
            if value is None or (group is values and key == "env" and isinstance(value, Mapping)):
                continue
            path = value if isinstance(value, str) else json.dumps(value)
            module, colon, attribute = path.partition(":")
            # The environments' modules are imported before the current folder is on sys.path, other code after that.
            own = ("vantage", "gymnasium", "ale_py") if key in ("env", "id") else ("vantage",)
            if not colon:
                continue
            if module.partition(".")[0] not in own:
                names[module] = None
            elif not _CLASS.fullmatch(attribute):
                names[path] = None
    return list(names)


def check_code(modules: Sequence[str], *, source: str, trusted: bool) -> None:
    """Log a warning that `source` names these modules for import; ConfigError unless it is trusted."""
    if not modules:
        return
    if not trusted:
        raise ConfigError(f"{source} was not written by you on this machine and imports {', '.join(modules)}; if you "
                          "trust that code, give --trust (in Python trust=True)")
    for module in modules:
        log.warning("imports module %s, named by %s", module, source)


def signature(text: str) -> str | None:
    """The HMAC-SHA256 of a config's text under this user's key, in hex; None if no key can be made."""
    key = _read_key() or _create_key()
    return None if key is None else _hmac(key, text)


def is_own(text: str, signed: object) -> bool:
    """Whether `signed` is the `signature` of `text`."""
    key = _read_key()
    if key is None or not isinstance(signed, str) or not signed.isascii():  # compare_digest takes ASCII only
        return False
    return hmac.compare_digest(_hmac(key, text), signed)


def _hmac(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _key_path() -> Path | None:
    """$XDG_STATE_HOME/vantage/key; None where the user has no home."""
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        folder = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return folder / "vantage" / "key"


def _read_key() -> bytes | None:
    path = _key_path()
    try:
        key = b"" if path is None else path.read_bytes()
    except OSError:
        return None
    return key if len(key) == _KEY_BYTES else None


def _create_key() -> bytes | None:
    """Write a new key, or read the one that another process wrote first; None if the folder is not writable."""
    path = _key_path()
    if path is None:
        return None
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent)  # readable by its owner alone
        try:
            with open(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
            os.link(temporary, path)  # unlike a rename, never replaces a key
        finally:
            os.unlink(temporary)
    return _read_key()
