"""Starts interpreters as forks of a process that has imported torch and Vantage once. Linux; elsewhere as usual.

A fresh interpreter takes two seconds to import torch. A zygote forks one instead: a child of the caller, with the
arguments, folder, environment, signal mask and files that it would have, and nothing of the caller's memory. Each
command so started has a zygote of its own, for the processes that it starts with multiprocessing.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from importlib import import_module
from multiprocessing import spawn, util
from types import ModuleType
from typing import Any

MODULES = ("vantage.cli.entry", "vantage.runtimes.training", "vantage.runtimes.hogwild", "vantage.runtimes.ranks",
           "vantage.envs.workers", "vantage.envs.single", "vantage.envs.short_episodes", "vantage.agents.evaluate",
           "vantage.tools.display", "torch.distributed.run", "torch.utils.tensorboard", "torch.utils._device",
           "torch.utils.serialization.config", "multiprocessing.popen_spawn_posix",
           "multiprocessing.queues", "cloudpickle", "threadpoolctl", "numpy.ctypeslib", "rich.live",
           "rich.progress_bar", "gymnasium.envs.classic_control", "ale_py")
"""What most commands and processes import at some time."""
PDEATHSIG, SUBREAPER = 1, 36  # Linux's prctl.h
AVAILABLE = sys.platform.startswith("linux")
WORKER = "--multiprocessing-fork"

exec_passfds = util.spawnv_passfds
"""Multiprocessing's own, which starts a fresh interpreter."""


def prctl(option: int, value: int) -> None:
    """Linux's call of this name."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


class Zygote:
    """A process that forks on demand: of this one, or of a new interpreter."""

    def __init__(self, forks: bool) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.socket, there = socket.socketpair()
        parent = os.getpid()
        if not forks:
            words = [sys.executable, __file__, str(there.fileno()), str(parent)]
            self.process = subprocess.Popen(words, pass_fds=[there.fileno()])
        elif os.fork() == 0:
            self.socket.close()
            prctl(PDEATHSIG, signal.SIGKILL)  # processes that the parent has forked may keep its end open
            serve(there, parent)
        there.close()

    def start(self, words: Sequence[str], files: dict[int, int], *, folder: str | None = None,
              environment: dict[str, str] | None = None, new_session: bool = False) -> int:
        """The id of a new interpreter with the arguments `words`; `files` are its descriptors, by number."""
        request = json.dumps({"words": [os.fsdecode(word) for word in words], "folder": str(folder or os.getcwd()),
                              "environment": dict(os.environ if environment is None else environment),
                              "mask": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
                              "numbers": list(files), "new_session": new_session}).encode()
        with self.lock:
            prctl(SUBREAPER, 1)  # orphans of the zygote become children of this process
            socket.send_fds(self.socket, [len(request).to_bytes(8, "big")], list(files.values()))
            self.socket.sendall(request)
            pid = int.from_bytes(self.socket.recv(8, socket.MSG_WAITALL), "big")
            prctl(SUBREAPER, 0)
        return pid


def serve(connection: socket.socket, parent: int) -> None:
    """Fork whenever `connection` asks, until its other end is closed; does not return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
    while os.getppid() == parent:
        size, files, _, _ = socket.recv_fds(connection, 8, 250)
        if not size:
            break
        request = json.loads(connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
        here, there = os.pipe()
        gate, opened = os.pipe()
        if (between := os.fork()) == 0:
            if child := os.fork():
                os.write(there, child.to_bytes(8, "big"))
                os._exit(0)
            os.close(opened)
            os.read(gate, 1)  # until the process between has ended, and the parent is the caller
            become(request, files)
            leave(run_to_end(request["words"]))
        os.waitpid(between, 0)
        connection.sendall(os.read(here, 8))
        for file in (here, there, gate, opened, *files):
            os.close(file)
    os._exit(0)


def become(request: dict[str, Any], files: list[int]) -> None:
    """Make this fork what a new interpreter would be."""
    import numpy as np
    import torch

    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if request["new_session"]:
        os.setsid()
    first = max(*request["numbers"], *files) + 1
    for i, file in enumerate(files):
        os.dup2(file, first + i)
    os.closerange(3, first)
    for i, number in enumerate(request["numbers"]):
        os.dup2(first + i, number)
    os.closerange(first, first + len(files))
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        buffering = 1 if name == "stderr" or os.isatty(number) else -1
        errors = "backslashreplace" if name == "stderr" else None
        stream = open(number, mode, buffering, closefd=False, errors=errors)  # noqa: SIM115  to the end
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    np.random.seed()
    torch.seed()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, request["mask"])


def load() -> None:
    """Import what forks need, and fill the caches of the parser by one parse."""
    for module in MODULES:
        import_module(module)
    from vantage.cli.arguments import read
    from vantage.cli.entry import COMMANDS

    read(COMMANDS["train"], ["ppo", "--env=CartPole-v1"], "vantage train")


def run_to_end(words: list[str]) -> int:
    """The exit status after `run`."""
    try:
        run(words)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def leave(status: int) -> None:
    """As an interpreter at its end, which would also take half a second to free what torch has allocated."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def run(words: list[str]) -> None:
    """Run `python WORDS`, with -m, -c or a file, or a process of multiprocessing."""
    sys.modules["__main__"] = ModuleType("__main__")
    if words[-1] == WORKER:
        sys.argv = ["-c", WORKER]
        keys = dict(word.split("=") for word in words[-2].rpartition("(")[2].rstrip(")").split(", "))
        spawn.spawn_main(**{name: int(value) for name, value in keys.items()})
    OWN.append(Zygote(forks=True))
    use()
    main = sys.modules["__main__"].__dict__
    sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in sys.path]
    if words[0] == "-m":
        sys.argv = words[1:]
        sys.path.insert(0, os.getcwd())
        runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        sys.path.insert(0, "")
        exec(compile(words[1], "<string>", "exec"), main)
    else:
        sys.argv = words
        sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
        main["__file__"] = words[0]
        with open(words[0], "rb") as file:
            exec(compile(file.read(), words[0], "exec"), main)


OWN: list[Zygote] = []
"""The zygote of this process, if it has one."""


def of_this_process() -> Zygote:
    """The zygote of this process, which is a new interpreter if there is none or a test has killed it."""
    if not OWN or (OWN[0].process is not None and OWN[0].process.poll() is not None):
        close()
        OWN.append(Zygote(forks=False))
    return OWN[0]


def close() -> None:
    """End the zygote of this process."""
    while OWN:
        zygote = OWN.pop()
        zygote.socket.close()
        if zygote.process is not None:
            zygote.process.wait()


def use() -> None:
    """Have multiprocessing's spawn start processes by the zygote of this process."""
    def spawnv_passfds(path: bytes, words: Sequence[Any], files: Sequence[int]) -> int:
        if words[-1] != WORKER:  # the resource tracker
            return exec_passfds(path, words, files)
        return of_this_process().start(words[1:], {file: file for file in (0, 1, 2, *files)})

    if AVAILABLE:
        util.spawnv_passfds = spawnv_passfds


class Command(subprocess.Popen[str]):
    """`python WORDS` by a zygote, with the text of its streams."""

    def __init__(self, words: Sequence[object], **options: Any) -> None:
        self.new_session = options.get("start_new_session", False)
        super().__init__([sys.executable, *map(str, words)], text=True, **options)

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any,
                       env: Any, startupinfo: Any, creationflags: Any, shell: Any, *rest: Any) -> None:
        if not AVAILABLE:
            super()._execute_child(args, executable, preexec_fn, close_fds, pass_fds, cwd, env,  # type: ignore[misc]
                                   startupinfo, creationflags, shell, *rest)
            return
        inner = rest[0], rest[3], rest[5]  # the child's ends of stdin, stdout and stderr, or -1
        files = {number: number if file == -1 else file for number, file in enumerate(inner)}
        self.pid = of_this_process().start(args[1:], files, folder=cwd, environment=env, new_session=self.new_session)
        self._child_created = True
        self._close_pipe_fds(*rest[:6])  # type: ignore[attr-defined]


def call(words: Sequence[object], *, input: str | None = None, timeout: float = 100,
         **options: Any) -> subprocess.CompletedProcess[str]:
    """The streams and the exit status of `python WORDS`."""
    with Command(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        out, err = process.communicate(input, timeout)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


if __name__ == "__main__":
    del sys.path[0]
    sys.modules["zygote"] = sys.modules["__main__"]  # forks that import it have its zygote
    load()
    gc.freeze()  # collections in forks would copy all memory
    serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
