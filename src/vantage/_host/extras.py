"""Optional libraries: the extra that contains each, and the command that installs it.

All messages about missing libraries come from here.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from urllib.parse import unquote, urlparse

from packaging.requirements import Requirement

from vantage.errors import ConfigError

NAME = "vantage-rl"


def version_of(package: str) -> str | None:
    """The installed version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def install_command(extra: str) -> str:
    """The command that installs `extra`.

    From the clone if Vantage is installed from one, otherwise the packages by name.
    """
    try:
        vantage = distribution(NAME)
    except PackageNotFoundError:  # a source tree on PYTHONPATH
        return f"pip install -e '.[{extra}]', in a clone of Vantage"
    origin = json.loads(vantage.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        return f"pip install -e {shlex.quote(unquote(urlparse(origin['url']).path) + f'[{extra}]')}"
    packages = [requirement for requirement in map(Requirement, vantage.requires or ())
                if requirement.marker and requirement.marker.evaluate({"extra": extra})
                and not requirement.marker.evaluate({"extra": ""})]
    for package in packages:
        package.marker = None
    return shlex.join(["pip", "install", *map(str, packages)])


def missing(extra: str, module: str) -> ConfigError:
    """The error for a `module` of `extra` that is not installed."""
    return ConfigError(f"{module} is not installed: {install_command(extra)}")


def require(extra: str, *modules: str) -> None:
    """ConfigError unless `modules`, which `extra` contains, are installed. Imports none of them."""
    for module in modules:
        spec = find_spec(module)
        if spec is None or spec.origin is None:  # a folder of runs such as wandb/ is no package
            raise missing(extra, module)


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Context for imports of libraries in `extra`: ConfigError if one is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "vantage").partition(".")[0] == "vantage":
            raise
        raise missing(extra, str(error.name)) from error
