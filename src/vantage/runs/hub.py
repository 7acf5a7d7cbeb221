"""The Hugging Face hub: hf://OWNER/NAME[@REVISION] is the file policy.safetensors there.

Nothing else of a repository is downloaded. The token is that of the client: HF_TOKEN, or of
`hf auth login`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from vantage._host.extras import require
from vantage._host.terminal import quiet
from vantage.errors import ConfigError, VantageError
from vantage.runs import zoo

if TYPE_CHECKING:
    from huggingface_hub import HfApi

PREFIX = "hf://"
POLICY = "policy.safetensors"


def local_path(run: str | Path) -> Path:
    """`run` as a local path, also of zoo:NAME; downloads the policy file if it is on the hub.

    ConfigError for a name that the zoo does not have, and for a repository or revision that does
    not exist or that this user may not read; VantageError without a connection.
    """
    if str(run).startswith(zoo.PREFIX):
        return zoo.policy_path(str(run))
    if not str(run).startswith(PREFIX):
        return Path(run)
    repo, at, revision = str(run).removeprefix(PREFIX).partition("@")
    if at and not revision:
        raise ConfigError(f"{run} names no revision; give one after the @, or leave it out")
    with hub_api(repo) as api:
        return Path(api.hf_hub_download(repo, POLICY, revision=revision or None))


@contextlib.contextmanager
def hub_api(repo: str) -> Iterator[HfApi]:
    """The client of the hub; its errors about `repo` become VantageErrors of one line."""
    if repo.count("/") != 1:
        raise _no_repository(repo)
    require("hub", "huggingface_hub")
    from huggingface_hub import HfApi

    try:
        with quiet("huggingface_hub"):  # it warns at each attempt
            yield HfApi(library_name="vantage-rl", library_version=version("vantage-rl"))
    except Exception as error:  # of an HTTP library that differs between versions of the client
        raise _explained(error, repo) from None


def _explained(error: Exception, repo: str) -> VantageError:
    """The error of the hub's client in words, with a remedy."""
    from huggingface_hub import errors

    what = " ".join(str(error).split())
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.HFValidationError):
        return _no_repository(repo)
    if isinstance(error, errors.RevisionNotFoundError):
        return ConfigError(f"{PREFIX}{repo} has no such revision; give a branch, a tag or a commit "
                           "of it after the @")
    is_offline = isinstance(error, errors.LocalEntryNotFoundError)
    if isinstance(error, errors.EntryNotFoundError) and not is_offline:
        return ConfigError(f"{PREFIX}{repo} holds no {POLICY}; give a repository that `vantage "
                           "push` has filled")
    if status == 404:
        return ConfigError(f"the hub has no repository {repo}, or not for you; correct the name, "
                           "or log in with `hf auth login` if it is private")
    if status in (401, 403):
        return ConfigError(f"the hub refuses access to {repo} (status {status}); check the name, "
                           "and log in with `hf auth login`, or set HF_TOKEN to a token with the "
                           "right to it")
    if status is not None:
        return VantageError(f"the hub answers {status} for {repo}: {what:.200}; try again later")
    return VantageError(f"cannot reach the hub for {repo}: {type(error).__name__}: {what:.200}; "
                        "check the network connection and try again")


def _no_repository(repo: str) -> ConfigError:
    return ConfigError(f"{repo!r} is not a repository of the hub; give OWNER/NAME, such as "
                       "someone/cartpole-a2c")
