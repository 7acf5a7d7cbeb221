"""The copy of a run at a URL of fsspec, such as s3://BUCKET/RUNS, to resume it elsewhere.

It holds the checkpoints, best/, demonstrations, config, metrics, summary and the tracker's id; no
replay and no TensorBoard files.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import fsspec

from vantage.errors import ConfigError
from vantage.keys.json_text import parse
from vantage.runs.checkpoint import newest_step
from vantage.runs.checkpoint_files import is_valid
from vantage.runs.demonstration_file import FILE as DEMONSTRATIONS
from vantage.runs.directory import RunDirectory
from vantage.runs.files import replacing, write_atomically
from vantage.runs.lock import locked
from vantage.runs.meta import meta_of, read_object
from vantage.runs.names import directory_name
from vantage.runs.tracking import FILE_NAME as TRACKER
from vantage.runs.trust import is_own, signature

log = logging.getLogger(__name__)

_FILES = ("meta.json", "metrics.jsonl", "summary.json", TRACKER, "config.json")
"""config.json comes last: a directory is a run once it has one."""
URL = "mirror"
"""Key of meta.json: where the copy is."""
URL_SIGNATURE = "mirror_hmac"
"""Key of meta.json: this user's HMAC of the URL. Nothing is written to a URL of someone else."""


class Mirror:
    """The copy of one run; ConfigError if its storage is unknown or, except in `push`, fails."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        with _explained(url):
            self._fs, self._root = fsspec.core.url_to_fs(self.url)

    @property
    def exists(self) -> bool:
        with _explained(self.url):
            return bool(self._fs.exists(f"{self._root}/config.json"))

    def push(self, run: Path) -> None:
        """Copy what is new or changed, and remove checkpoints that the run no longer has.

        Failures are logged. If the run has no checkpoint, the copy keeps its own: the disk of the
        run may be gone.
        """
        try:
            self._push(run)
        except Exception as error:  # each storage has its own; the local run is complete
            log.warning(f"{self.url} is not up to date: {type(error).__name__}: {error}; the next "
                        "save tries again")

    def _push(self, run: Path) -> None:
        paths = [run / "best", *(run / "checkpoints").glob("step-*")]
        local = [str(path.relative_to(run)) for path in paths
                 if (path / "manifest.json").exists()]
        self._push_demonstrations(run / DEMONSTRATIONS)
        for name in local:
            self._push_checkpoint(run / name, f"{self._root}/{name}")
        for name in _FILES:
            data = (run / name).read_bytes() if (run / name).exists() else None
            if data is not None and data != self._read(name):
                self._fs.pipe_file(f"{self._root}/.{name}.new", data)
                self._fs.mv(f"{self._root}/.{name}.new", f"{self._root}/{name}")
        if set(local) <= {"best"}:
            return
        for name in set(self._checkpoints()) - set(local):
            # The manifest first: a kill then leaves no partial checkpoint.
            self._remove(f"{self._root}/{name}/manifest.json")
            self._fs.rm(f"{self._root}/{name}", recursive=True)

    def _push_demonstrations(self, source: Path) -> None:
        """Copy the demonstrations, once: they no longer change after the first checkpoint."""
        if not source.exists():
            return
        target = f"{self._root}/{DEMONSTRATIONS}"
        if self._checkpoints() and self.exists and self._fs.exists(target):
            return
        self._fs.makedirs(self._root, exist_ok=True)
        self._fs.put_file(str(source), f"{self._root}/.{DEMONSTRATIONS}.new")
        self._fs.mv(f"{self._root}/.{DEMONSTRATIONS}.new", target)

    def _push_checkpoint(self, source: Path, target: str) -> None:
        """Copy a checkpoint unless it is there; its manifest, which completes it, comes last."""
        manifest = (source / "manifest.json").read_bytes()
        if manifest == self._read(f"{target.removeprefix(self._root + '/')}/manifest.json"):
            return
        self._fs.makedirs(target, exist_ok=True)
        self._remove(f"{target}/manifest.json")
        for name in [*parse(manifest)["files"], "manifest.json"]:
            self._fs.put_file(str(source / name), f"{target}/{name}")

    def pull(self, run: Path) -> None:
        """Make the local `run` equal to the copy. Checkpoints are verified when they are read."""
        with _explained(self.url):
            for name in ("best", *self._checkpoints()):
                self.pull_checkpoint(run, name)
            self._pull_demonstrations(run / DEMONSTRATIONS)
            for name in _FILES:
                data = self._read(name)
                if data is not None:
                    write_atomically(run / name, data.decode())

    def _pull_demonstrations(self, target: Path) -> None:
        with contextlib.suppress(FileNotFoundError), replacing(target) as temporary:
            self._fs.get_file(f"{self._root}/{DEMONSTRATIONS}", str(temporary))

    def pull_checkpoint(self, run: Path, name: str) -> None:
        """Fetch the checkpoint `name`, unless the same valid one is there."""
        target = run / name
        manifest = self._read(f"{name}/manifest.json")
        if manifest is None:
            return
        if is_valid(target) and (target / "manifest.json").read_bytes() == manifest:
            return
        temporary = target.with_name(f".{target.name}.new")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for file in [*parse(manifest)["files"], "manifest.json"]:
            local = temporary / PurePosixPath(file).name
            self._fs.get_file(f"{self._root}/{name}/{file}", str(local))
        shutil.rmtree(target, ignore_errors=True)
        temporary.rename(target)

    def newest_step(self) -> int:
        """The step of the newest complete checkpoint, -1 if there is none."""
        with _explained(self.url):
            whole = [name for name in self._checkpoints() if self._read(f"{name}/manifest.json")]
            return max((int(name.rpartition("-")[2]) for name in whole), default=-1)

    def _checkpoints(self) -> list[str]:
        self._fs.invalidate_cache()
        try:
            paths = self._fs.ls(f"{self._root}/checkpoints", detail=False)
        except FileNotFoundError:
            return []
        names = [PurePosixPath(path).name for path in paths]
        return [f"checkpoints/{name}" for name in names
                if name.startswith("step-") and name[5:].isdecimal()]

    def _remove(self, file: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(file)

    def _read(self, name: str) -> bytes | None:
        try:
            return bytes(self._fs.cat_file(f"{self._root}/{name}"))
        except (FileNotFoundError, KeyError):
            return None


@contextlib.contextmanager
def _explained(url: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # each storage raises others
        raise ConfigError(f"cannot use {url}: {' '.join(str(error).split()):.300}; give a URL of "
                          "fsspec whose package is installed and that this machine may use, such "
                          "as file:///mnt/runs or s3://BUCKET/RUNS") from None


def mirror_to(directory: RunDirectory, root: str) -> None:
    """Give a new run a copy under the URL `root`: ENV/ALGO-N of a run in runs/, else its name."""
    path = directory.path
    name = path.name
    if path.is_relative_to("runs"):
        name = path.relative_to("runs").as_posix()
    url = f"{root.rstrip('/')}/{name}"
    if Mirror(url).exists:
        raise ConfigError(f"{url} exists; continue it with `vantage resume {url}`, or choose "
                          "another --run")
    _remember(path, url)


def mirror_of(directory: RunDirectory) -> Mirror | None:
    """The copy that this user gave a run, or None."""
    meta = meta_of(directory.path)
    url = meta.get(URL)
    if not isinstance(url, str):
        return None
    if is_own(url, meta.get(URL_SIGNATURE)):
        return Mirror(url)
    log.warning(f"{url} no longer receives a copy: you have not named it on this machine; give "
                f"`vantage resume {url}`")
    return None


def fetch(url: str) -> Path:
    """The run at `url` as runs/ENV/NAME, which is kept if it is newer than the copy."""
    mirror = Mirror(url)
    run = Path("runs", *map(directory_name, url.rstrip("/").split("/")[-2:]))
    if not mirror.exists:
        raise ConfigError(f"{url}: no such run, it has no config.json; give the URL of a run, such "
                          "as URL/CartPole-v1/a2c-1")
    if (run / "config.json").exists() and read_object(run / "meta.json").get(URL) != mirror.url:
        raise ConfigError(f"{run} exists and is another run than {url}; call the command in "
                          "another directory")
    run.mkdir(parents=True, exist_ok=True)
    with locked(run):
        newest = newest_step(run, valid=True)
        if newest is None or newest < mirror.newest_step():
            mirror.pull(run)
            log.info(f"{run} is a copy of {url}")
        elif not is_valid(run / "best"):
            with _explained(mirror.url):
                mirror.pull_checkpoint(run, "best")
        _remember(run, mirror.url)
    return run


def _remember(run: Path, url: str) -> None:
    meta = read_object(run / "meta.json") | {URL: url, URL_SIGNATURE: signature(url)}
    write_atomically(run / "meta.json", json.dumps(meta, indent=2))
