"""Damage to a file of a run: what is done to it, and whether a command that reads the file can notice it."""

from __future__ import annotations

import json
import random
from pathlib import Path

from saved import complete_checkpoints

HOWS = ("flip", "truncate", "delete", "zero", "append")


def draw(run: Path, rng: random.Random, command: str) -> tuple[str, str]:
    """A file of the run and what to do to it; half of the time a file that the command reads."""
    files = names(run)
    read = [name for name in files if name.startswith(_read_by(command, run))]
    return rng.choice(rng.choice((read, files))), rng.choice(HOWS)


def names(run: Path) -> list[str]:
    """The files of a run, but the lock."""
    return sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file() and path.name != ".lock")


def _read_by(command: str, run: Path) -> tuple[str, ...]:
    newest = list(complete_checkpoints(run).values())[-1]
    best = (run / "best").exists() and command in ("evaluate", "report")
    tensors = {"plot": ()}.get(command, ("best/" if best else f"checkpoints/{newest.name}/",))
    others = {"resume": ("replay/",), "plot": ("metrics.jsonl",), "report": ("metrics.jsonl",)}.get(command, ())
    return (*tensors, *others, "config.json")


def inflict(run: Path, name: str, how: str, rng: random.Random, command: str) -> bool:
    """Damage a file; returns whether `command` reads it and can notice."""
    path, read = run / name, name.startswith(_read_by(command, run))
    before = path.read_bytes()
    _damage(path, how, rng)
    after = path.read_bytes() if path.exists() else None
    if name == "config.json" and after is not None:  # of a plot, it only names the curves
        return _json(before) != _json(after) and (command != "plot" or _json(after) is None)
    if name == "metrics.jsonl":  # its values have no hashes
        return read and after is not None and None in [_json(line) for line in after.splitlines()[:-1]]
    return read and after != before


def _damage(path: Path, how: str, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    place = rng.randrange(max(1, len(data)))
    match how:
        case "flip" if data:
            data[place] ^= 1 << rng.randrange(8)
        case "truncate":
            del data[place:]
        case "zero":
            data[place:place + 512] = bytes(len(data[place:place + 512]))
        case "append":
            data += rng.randbytes(1 + rng.randrange(100))
    if how == "delete":
        path.unlink()
    else:
        path.write_bytes(data)


def _json(data: bytes) -> object:
    try:
        return json.loads(data)
    except ValueError:
        return None


def noticed(output: str, name: str) -> bool:
    """Whether a message of the command names the file or its folder."""
    messages = "\n".join(line for line in output.splitlines() if "using the code of" not in line)
    return Path(name).name in messages or f"{Path(name).parent.name}: " in messages or (
        name.startswith("replay/") and "replay" in messages)
