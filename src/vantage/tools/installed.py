"""Which libraries are installed, against what the distribution's own metadata asks for, optional extras included."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import Requirement

from vantage.tools.inspect_machine import Finding

DISTRIBUTION = "vantage-rl"

SHOWN = ("torch", "gymnasium", "ale-py", "numpy")
"""Whose versions are told though nothing is wrong with them."""


def versions() -> Iterator[Finding]:
    """Python, Vantage, and what it needs."""
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.platform()}")
    own = version_of(DISTRIBUTION)
    if own is None:
        yield Finding("vantage", "note", "used from its source without being installed", "pip install -e . there")
        return
    yield Finding("vantage", "ok", own)
    needed = {requirement.name: requirement for requirement in requirements(DISTRIBUTION, "")}
    for name in (*SHOWN, *sorted(needed.keys() - set(SHOWN))):
        requirement, found = needed.get(name, Requirement(name)), version_of(name)
        remedy = f"pip install '{name}{requirement.specifier}'"
        if found is None:
            yield Finding(name, "problem", "not installed", remedy)
        elif not requirement.specifier.contains(found, prereleases=True):
            yield Finding(name, "problem", f"{found}, and Vantage needs {requirement.specifier}", remedy)
        elif name in SHOWN:
            yield Finding(name, "ok", found)


def extras() -> Iterator[Finding]:
    """What each optional extra of Vantage lacks."""
    if version_of(DISTRIBUTION) is None:
        return
    for extra in metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or ():
        missing = sorted(set(_missing(DISTRIBUTION, extra)))
        if missing:
            yield Finding(f"[{extra}]", "note", f"optional, lacks {', '.join(missing)}",
                          f"pip install '{DISTRIBUTION}[{extra}]'")
        else:
            yield Finding(f"[{extra}]", "ok", "installed")


def version_of(distribution: str) -> str | None:
    """The version that is installed; None where there is none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def requirements(distribution: str, extra: str) -> Iterator[Requirement]:
    """What an installed distribution needs on this machine: for itself, or for one of its extras alone."""
    for requirement in map(Requirement, metadata.requires(distribution) or ()):
        always = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if always if not extra else not always and requirement.marker.evaluate({"extra": extra}):  # type: ignore[union-attr]
            yield requirement


def _missing(distribution: str, extra: str) -> Iterator[str]:
    """What an extra lacks, the extras of other libraries that it asks for included."""
    for requirement in requirements(distribution, extra):
        if version_of(requirement.name) is None:
            yield requirement.name
            continue
        for part in requirement.extras:
            yield from _missing(requirement.name, part)
