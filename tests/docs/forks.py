"""Runs the blocks of a page and their `vantage` commands in forks of one process, which has imported torch once.

`python forks.py SOCKET SHORTER SHORT_SEEDS` listens; a client sends its arguments, folder and environment as JSON, with
its standard streams, and receives the exit status. The arguments are those of `vantage`, or BLOCKS: the blocks of a
page, as JSON on standard input.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from importlib import import_module
from typing import Any
from unittest.mock import patch

import zygote

MODULES = ("vantage.tools.plot", "matplotlib.pyplot", "optuna", "onnxscript", "torch.onnx")
"""What the forks need not import, besides what those of a zygote need not."""
BLOCKS = "blocks"
STEPS = 1_000
"""After so many steps more, each training ends with its next update."""
CLIENT = """#!{python} -S
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as there:
    there.connect({address!r})
    request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(there, [len(request).to_bytes(8, "big")], [0, 1, 2])
    there.sendall(request)
    sys.exit(int(there.recv(9) or 1))
"""


def run_blocks() -> int:
    """Run the blocks in standard input, `[language, code]` each; they are of this repository's own pages."""
    names = {"__name__": "__main__"}
    sys.path.insert(0, "")  # as at Python's prompt
    for language, code in json.loads(sys.stdin.read()):
        if language == "bash":
            subprocess.run(["bash", "-ec", code], check=True, stdin=subprocess.DEVNULL)
        else:
            exec(compile(code, "block", "exec"), names)
    return 0


def run_vantage(words: list[str], shorter: dict[str, str], short_seeds: str) -> int:
    """Run the command, cut short."""
    from vantage.cli.entry import main

    words = words + (shorter.get(words[0], "").split() if not {"--help", "--dry-run"} & {*words} else [])
    if words[0] == "train" and "--seeds" in words:
        words += short_seeds.split()
    if words[0] == "train" and "Pong" in words:
        words += ["--num-envs", "2", "--max-episode-steps", "100"]  # an emulator takes 0.1 s to start
    sys.argv = ["vantage", *words]
    return main(words)


def answer(here: socket.socket, shorter: dict[str, str], short_seeds: str) -> None:
    """Do what the client of `here` asks for. In a fork."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    zygote.OWN.append(zygote.Zygote(forks=True))
    zygote.use()
    size, streams, _, _ = socket.recv_fds(here, 8, 3)
    with here.makefile("rb") as file:
        words, folder, environment = json.loads(file.read(int.from_bytes(size, "big")))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode, closefd=False) for number, mode in enumerate("rww"))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = os.path.dirname(sys.executable)
    status: Any = 1
    try:
        status = run_blocks() if words == [BLOCKS] else run_vantage(words, shorter, short_seeds)
    except SystemExit as error:
        status = error.code or 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    here.sendall(str(int(status)).encode())


def end_trainings_early() -> None:
    """Have every training end `STEPS` after it began or was resumed, as if it had had a limit of minutes."""
    from vantage.runtimes.recorder import Recorder

    whole: Any = Recorder.finished
    begun = dict[Recorder, int]()

    def finished(recorder: Recorder) -> bool:
        step = recorder.progress.step
        return whole.fget(recorder) or step - begun.setdefault(recorder, step) >= STEPS

    patch.object(Recorder, "finished", property(finished)).start()


def serve(address: str, shorter: dict[str, str], short_seeds: str) -> None:
    """Answer until the parent ends this process."""
    patch("vantage._host.system.available_cores", lambda: 1).start()  # a worker or a rank would import torch for 2 s
    patch("vantage.tools.report._CURVES", ("rollout/ep_rew_mean",)).start()  # all of them take 2 s
    zygote.load()
    for module in MODULES:
        import_module(module)
    end_trainings_early()
    from vantage.config.presets.measured import MEASURED

    for defaults in MEASURED[""].values():
        assert isinstance(defaults.values, dict)
        defaults.values["eval_episodes"] = 1
        if "image_norm_steps" in defaults.values:
            defaults.values["image_norm_steps"] = 100
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps forks
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        while True:
            here, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                try:
                    answer(here, shorter, short_seeds)
                finally:
                    os._exit(0)
            here.close()


if __name__ == "__main__":
    serve(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3])
