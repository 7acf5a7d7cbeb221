"""Faults around a run: full and read-only disks, limits of the shell, damaged files, environments that misbehave."""

from __future__ import annotations

import functools
import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from case import Bad, Case
from damage import draw, inflict, noticed

KIB, MIB = 2**10, 2**20


@functools.cache
def can_mount() -> bool:
    """Whether this user may mount a tmpfs."""
    with tempfile.TemporaryDirectory() as folder:
        if _mount(Path(folder), "size=64k").returncode != 0:
            return False
        subprocess.run(["umount", folder], check=True)
    return True


def _mount(folder: Path, options: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "vantage-faults", str(folder)],
                              capture_output=True)
    except FileNotFoundError:
        return subprocess.CompletedProcess([], 127)


def _on_a_disk(case: Case, size: int, act: Callable[[], str]) -> str:
    """What `act` returns, with the run on a disk of its own of `size` bytes."""
    disk = case.folder / "disk"
    disk.mkdir()
    case.run = disk / "run"
    _mount(disk, f"size={size}").check_returncode()
    try:
        return act()
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _remount(case: Case, options: str) -> None:
    words = ["mount", "-o", f"remount,{options}", str(case.folder / "disk")]
    for _ in range(50):  # it is busy while a process that another fault forks still has a copy of an open file
        if subprocess.run(words, check=False, capture_output=True).returncode == 0:
            return
        time.sleep(0.1)
    subprocess.run(words, check=True)


def full_disk(case: Case) -> str:
    """A disk that the run fills, which is then enlarged."""
    content = sum(path.stat().st_size for path in case.undisturbed.whole.rglob("*") if path.is_file())
    size = int(content * case.rng.uniform(0.05, 1.6)) // (4 * KIB) * 4 * KIB + 16 * KIB
    case.tell(f"a disk of {size // KIB} KiB for a run of {content // KIB} KiB")

    def act() -> str:
        case.call(case.system.train(case.run))
        _remount(case, "size=256m")
        return case.go_on()

    return _on_a_disk(case, size, act)


def read_only_disk(case: Case) -> str:
    """A resume on a disk that is read-only, which is then writable again."""
    def act() -> str:
        arguments = case.stopped()
        _remount(case, "ro")
        if case.call(arguments).status not in (1, 2):
            raise Bad("silent", "it trains without being able to save")
        _remount(case, "rw")
        return case.go_on()

    return _on_a_disk(case, 256 * MIB, act)


def small_shared_memory(case: Case) -> str:
    """A /dev/shm of 0 to 256 KiB."""
    size = case.rng.choice((4, 4, 16, 64, 256))
    case.tell(f"/dev/shm of {size} KiB")
    before = ["unshare", "--mount", "sh", "-c",
              f'mount -t tmpfs -o size={size}k none /dev/shm && exec "$0" "$@"']
    case.deaths = {-signal.SIGBUS}  # not promised: nothing can tell a process that a page is missing
    case.call(case.begin(), before=before)
    return case.go_on()


def _limited(case: Case, limit: int, value: int, words: str) -> str:
    case.tell(words)
    case.call(case.begin(), limits=lambda: resource.setrlimit(limit, (value, value)))
    return case.go_on()


def few_files(case: Case) -> str:
    """`ulimit -n`."""
    number = case.rng.randrange(8, 64)
    return _limited(case, resource.RLIMIT_NOFILE, number, f"ulimit -n {number}")


def little_memory(case: Case) -> str:
    """`ulimit -v`."""
    mib = case.rng.randrange(400, 3000)
    return _limited(case, resource.RLIMIT_AS, mib * MIB, f"ulimit -v of {mib} MiB")


def small_files(case: Case) -> str:
    """`ulimit -f`."""
    kib = case.rng.choice((0, 1, 2, 8, 20, 40, 80))
    return _limited(case, resource.RLIMIT_FSIZE, kib * KIB, f"ulimit -f of {kib} KiB")


def damage(case: Case) -> str:
    """Flipped, lost, zeroed or further bytes in any file of a stopped run, before a command that may read it."""
    command = case.rng.choice(("resume", "resume", "evaluate", "plot", "report"))
    case.stopped()
    return damage_file(case, *draw(case.run, case.rng, command), command)


def damage_file(case: Case, name: str, how: str, command: str) -> str:
    """Damage a file of the run of `case`, before this command."""
    relevant = inflict(case.run, name, how, case.rng, command)
    case.tell(f"{how} {name}, {command}")
    arguments = {"evaluate": ["--episodes", "1"], "plot": ["-o", str(case.folder / "plot.png")],
                 "report": ["--no-video", "--episodes", "1"]}.get(command, [])
    ended = case.call([command, str(case.run), *arguments])
    if not noticed(ended.output, name) and (relevant or ended.status != 0):
        raise Bad("silent", f"{command} ends with status {ended.status} and does not name {name}")
    if name == "config.json":
        return "named and refused" if ended.status else "resumed"
    if command == "resume" and ended.status != 0:
        raise Bad("lost", f"{name} is damaged, and the run cannot be resumed from an earlier checkpoint")
    return case.compare(logged=name != "metrics.jsonl") if command == "resume" else case.go_on(damaged=name)


def environment(case: Case) -> str:
    """An environment that misbehaves once, at a drawn step."""
    how = case.rng.choice(("raise", "raise at reset", "raise at start", "nan", "reward", "shape", "hang", "exit", "die",
                           "slow", "raise at close", "hang at close"))
    at = case.rng.randrange(1, case.system.steps // 4 - 50)
    once = case.folder / "once"
    once.touch()
    case.tell(f"{how}, at step {at}")
    case.may_raise = True
    in_the_main_process = case.system.name in ("a2c", "ppo", "acer", "ranks")
    case.deaths = {7} if how == "die" and in_the_main_process else set()  # not promised
    fault = {"VANTAGE_FAULT": json.dumps({"how": how, "at": at, "once": str(once)})}
    others = ["--max-episode-steps", "500", "--env-timeout", "3" if how == "hang" else "30"]
    ended = case.call([*case.system.train(case.run, "task:Faulty"), *others], environment=fault)
    if once.exists():
        case.tell("(it did not come to that)")
    named = re.search("environment [0-9]|worker|process [0-9] of|task:Faulty", ended.output)
    if ended.status == 1 and not once.exists() and not named:
        raise Bad("silent", "the environment is not named")
    os.unlink(once) if once.exists() else None
    return case.go_on()
