"""Faults that strike a process: kills, signals, pauses and errors of the system at a chosen or a drawn moment.

Each function draws what it does, does it, and returns the outcome. Those of disks, limits, damaged files and
environments are in `surroundings`.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable

import psutil
from case import Bad, Case
from commands import descendants
from saved import complete_checkpoints

Process = subprocess.Popen[bytes]


def _moment(case: Case, *, training: bool = False) -> Callable[[Process], bool]:
    """A wait to a drawn moment of the process's life, or of its training; it returns whether the process still runs."""
    whole, share = case.undisturbed, case.rng.random()
    begins = whole.saved_after if training else 0.3  # Python itself begins
    seconds = begins + share * (whole.ended.seconds - begins)
    case.tell(f"after {seconds:.2f} s of {whole.ended.seconds:.1f}")

    def wait(process: Process) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and process.poll() is None:
            if case.run.is_dir():  # a checkpoint that has its name is complete
                case.saved_step = max([case.saved_step, *(int(path.name[5:]) for path in
                                                          case.run.glob("checkpoints/step-*"))])
            time.sleep(0.02)
        return process.poll() is None

    return wait


def _to_one_or_all(case: Case) -> Callable[[Process, int], None]:
    """How a signal is sent, drawn: to the command alone, or as a terminal does to all its processes."""
    to_all = case.rng.random() < 0.5
    case.tell("to all" if to_all else "to the main process")

    def send(process: Process, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if to_all:
                # Not killpg: the tracker of shared memory is no part of Vantage and reports what a kill leaves.
                for each in [psutil.Process(process.pid), *descendants(process)]:
                    with contextlib.suppress(psutil.Error):
                        each.send_signal(number)
            else:
                process.send_signal(number)

    return send


def kill_at_any_moment(case: Case) -> str:
    """SIGKILL while it starts, trains or ends."""
    arguments, wait = case.begin(), _moment(case)
    case.deaths = {-signal.SIGKILL}
    case.call(arguments, lambda process: process.kill() if wait(process) else None)
    return case.go_on()


def kill_at_a_file(case: Case) -> str:
    """SIGKILL at one access to a file of the run: in a save, in the making of the directory, in the last summary."""
    arguments, at = case.begin(), case.rng.randrange(case.undisturbed.accesses)
    case.tell(f"at access {at} of {case.undisturbed.accesses}")
    case.deaths = {-signal.SIGKILL}
    case.call(arguments, fault={"how": "SIGKILL", "at": at})
    return case.go_on()


def kill_while_stopping(case: Case) -> str:
    """SIGTERM, and soon after it SIGKILL."""
    arguments, wait, pause = case.begin(), _moment(case, training=True), case.rng.uniform(0, 0.6)
    case.tell(f"killed {pause:.2f} s after SIGTERM")
    case.deaths = {-signal.SIGKILL, -signal.SIGTERM, 143}

    def during(process: Process) -> None:
        if wait(process):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(pause)
            process.kill()

    case.call(arguments, during)
    return case.go_on()


def _strike_a_child(case: Case, strike: Callable[[Process, psutil.Process], None]) -> str:
    """Strike a worker, a rank or an environment's process, drawn, at a drawn moment."""
    arguments, wait, which = case.begin(), _moment(case), case.rng.randrange(case.system.children)
    case.tell(f"child {which}")

    def during(process: Process) -> None:
        if wait(process) and (children := descendants(process)):
            with contextlib.suppress(psutil.Error):
                strike(process, children[which % len(children)])

    case.call(arguments, during)
    return case.go_on()


def kill_a_child(case: Case) -> str:
    """SIGKILL of a worker, of a rank or of an environment's process."""
    return _strike_a_child(case, lambda _, child: child.kill())


def send_signals(case: Case, count: int) -> str:
    """One of SIGINT, SIGTERM and SIGHUP, or several within a second each."""
    numbers = [case.rng.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)) for _ in range(count)]
    arguments, wait, send, pause = case.begin(), _moment(case), _to_one_or_all(case), case.rng.uniform(0, 1)
    case.tell(f"{' and '.join(number.name for number in numbers)}, {pause:.2f} s between")
    case.deaths = {128 + number for number in numbers} | {-number for number in numbers}

    def during(process: Process) -> None:
        if wait(process):
            send(process, numbers[0])
            for number in numbers[1:]:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(pause)
                if process.poll() is None:
                    send(process, number)

    ended = case.call(arguments, during)
    if ended.status == 128 + numbers[0] and count == 1 and "stopped by" in ended.output and not complete_checkpoints(
            case.run):
        raise Bad("lost", "it says that it has saved")
    return case.go_on()


def pause(case: Case) -> str:
    """SIGSTOP of one process or all, and SIGCONT up to four seconds later: longer than --env-timeout."""
    arguments, wait, send, seconds = case.begin(), _moment(case), _to_one_or_all(case), case.rng.uniform(0.1, 4)
    case.tell(f"stopped for {seconds:.1f} s")

    def during(process: Process) -> None:
        if wait(process):
            send(process, signal.SIGSTOP)
            time.sleep(seconds)
            send(process, signal.SIGCONT)

    if case.call(arguments, during).status != 0:
        raise Bad("lost", "it did not go on after the pause")
    return case.compare()


def pause_a_child(case: Case) -> str:
    """SIGSTOP of a worker, of a rank or of an environment's process, and SIGCONT."""
    seconds = case.rng.uniform(0.1, 5)
    case.tell(f"stopped for {seconds:.1f} s")

    def strike(process: Process, child: psutil.Process) -> None:
        child.suspend()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        child.resume()

    return _strike_a_child(case, strike)


def fail_at_a_file(case: Case) -> str:
    """An error of the system at one access to a file of the run, or from there on for a while or for ever."""
    how, times = case.rng.choice(("ENOSPC", "EROFS", "EIO", "EMFILE")), case.rng.choice((1, 5, 100, 10**9))
    arguments, at = case.begin(), case.rng.randrange(case.undisturbed.accesses)
    case.tell(f"{how} at access {at} of {case.undisturbed.accesses}, {times} times")
    case.call(arguments, fault={"how": how, "at": at, "times": times})
    return case.go_on()
