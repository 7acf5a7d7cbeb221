"""Memory of this process, its scheduling, and how processes end with their parent."""

from __future__ import annotations

import math
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import assert_ends, wait_for

import vantage
from vantage._host import system, time_limit
from vantage._host.processes import ended_by
from vantage._host.system import available_cores, compute_for_long, used_memory
from vantage._host.time_limit import Interrupted, TimeLimit
from vantage.errors import ConfigError
from vantage.runtimes import machine

MIB = 2**20
HOLD = "import sys\nheld = b'x' * (64 << 20)\nprint(flush=True)\nsys.stdin.read()"
HAVE_A_CHILD_HOLD = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {HOLD!r}])"


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the control group's limits, on a machine of 64 cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(64), raising=False)
    monkeypatch.setattr(system, "CGROUP", tmp_path)
    return tmp_path


def test_semaphores_of_a_process_that_ends_at_once_are_removed_without_a_warning() -> None:
    code = ("import multiprocessing, os\nfrom vantage._host.processes import stop_signals_blocked\n"
            "with stop_signals_blocked():\n    lock = multiprocessing.get_context('spawn').Lock()\nos._exit(3)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="read from /proc")
def test_used_memory_counts_what_children_of_children_hold_while_they_live() -> None:
    before = used_memory()
    assert before is not None and before > 20 * MIB
    with subprocess.Popen([sys.executable, "-c", HAVE_A_CHILD_HOLD], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        during = used_memory()
        child.communicate()
    after = used_memory()
    assert during is not None and after is not None
    assert 60 * MIB < during - before < 120 * MIB and abs(after - before) < 20 * MIB


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_trim is of glibc")
def test_what_a_process_has_freed_between_what_it_holds_is_returned() -> None:
    program = """
import psutil, torch
from vantage._host import system
system.keep_freed_memory()
system._TRIM_EVERY_SECONDS = 0
blocks = [(torch.ones(250_000), torch.ones(2_000)) for _ in range(100)]
held = [small for _, small in blocks]
del blocks
before = psutil.Process().memory_info().rss
system.FreedMemory().return_if_due()
print((before - psutil.Process().memory_info().rss) // 2**20)
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert int(out) > 60, "of 95 MiB"


def test_the_cpu_quota_of_a_container_limits_the_cores(container: Path) -> None:
    assert available_cores() == 64
    for quota, cores in (("max", 64), ("250000", 2), ("50000", 1)):
        (container / "cpu.max").write_text(f"{quota} 100000\n")
        assert available_cores() == cores


def test_limits_of_version_1_count_as_those_of_version_2(container: Path) -> None:
    free = system.free_memory()
    for name, text in (("cpu/cpu.cfs_quota_us", "-1"), ("cpu/cpu.cfs_period_us", "100000"),
                       ("memory/memory.limit_in_bytes", str(2**63 - 4096)), ("memory/memory.usage_in_bytes", "900"),
                       ("memory/memory.stat", "inactive_file 9\ntotal_inactive_file 300\n")):
        (container / name).parent.mkdir(exist_ok=True)
        (container / name).write_text(text)
    assert available_cores() == 64 and system.free_memory() > free // 2
    (container / "cpu/cpu.cfs_quota_us").write_text("250000\n")
    (container / "memory/memory.limit_in_bytes").write_text("1000\n")
    assert (available_cores(), system.free_memory()) == (2, 400)


@pytest.mark.parametrize("options", [
    {"num_workers": 1000}, {"vector": "async", "num_envs": 5000}], ids=["workers", "environments"])
def test_more_processes_than_the_memory_holds_are_refused(
        options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "free_memory", lambda: 99_000 * 2**20)
    config = vantage.configure("a3c" if "num_workers" in options else "a2c", env="CartPole-v1", **options)
    with pytest.raises(ConfigError, match="need at least 100,000 MiB, and 99,000 MiB of memory are free; give at most"):
        machine.prepare(config)
    monkeypatch.setattr(machine, "free_memory", lambda: 100_000 * 2**20)
    machine.prepare(config)


@pytest.mark.parametrize(("code", "how"), [
    (-11, "killed by SIGSEGV"), (-9, "killed by SIGKILL"), (-99, "killed by signal 99"), (7, "with exit status 7")])
def test_the_end_of_a_process_is_named_by_its_signal_or_status(code: int, how: str) -> None:
    assert ended_by(code) == how


@pytest.mark.parametrize(("workers", "warns"), [(8, False), (9, True)])
def test_more_than_four_workers_per_core_are_warned_about(
        workers: int, warns: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(machine, "available_cores", lambda: 2)
    machine.prepare(vantage.configure("a3c", env="CartPole-v1", num_workers=workers))
    assert [record.message.partition(":")[0] for record in caplog.records] == ["num_workers=9 on 2 cores"] * warns


@pytest.mark.parametrize(("keys", "threads"), [
    ({"env": "CartPole-v1"}, 1), ({"env": "CartPole-v1", "vector": "async", "hidden": "1024,1024"}, 1),
    ({"env": "HalfCheetah-v5"}, 1), ({"env": "CartPole-v1", "hidden": "1024,1024"}, 4),
    ({"env": "vantage/Snake-v0"}, 4),
    ({"env": "tiny:Bandit", "network": "torch.nn:Identity"}, 1),
    ({"env": "CartPole-v1", "threads": 3}, 3)])  # as a resume has it
def test_a_small_network_has_one_thread(keys: dict[str, Any], threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_cores", lambda: 4)
    before = torch.random.get_rng_state()
    assert machine.prepare(vantage.configure("a2c", **keys)).runtime.threads == threads == torch.get_num_threads()
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(("env", "precision", "supported", "resolved"), [
    ("Pong", "auto", True, "bfloat16"), ("Pong", "auto", False, "float32"), ("CartPole-v1", "auto", True, "float32"),
    ("Pong", "bfloat16", False, "bfloat16")])
def test_precision_auto_is_bfloat16_for_atari_on_cpus_that_compute_in_it(
        env: str, precision: str, supported: bool, resolved: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: supported)
    config = vantage.configure("ppo", env=env, precision=precision, device="cpu", threads=1)
    assert machine.prepare(config).policy.precision == resolved


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="Linux")
@pytest.mark.parametrize(("before", "after"), [("SCHED_OTHER", "SCHED_BATCH"), ("SCHED_IDLE", "SCHED_IDLE")])
def test_a_thread_that_computes_for_long_keeps_a_policy_that_was_chosen_for_it(before: str, after: str) -> None:
    def policies() -> Iterator[int]:
        os.sched_setscheduler(0, getattr(os, before), os.sched_param(0))
        compute_for_long()
        yield os.sched_getscheduler(0)
        with ThreadPoolExecutor(1) as started_by_it:
            yield started_by_it.submit(os.sched_getscheduler, 0).result()

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(list, policies()).result() == [getattr(os, after)] * 2


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Looks of the watching thread at the calls under way: as many as a test wants, when it wants them."""
    monkeypatch.setattr(TimeLimit, "_watched", True)
    monkeypatch.setattr(TimeLimit, "_prepared", False)
    calls: dict[int, Any] = {}
    monkeypatch.setattr(TimeLimit, "_calls", calls)

    def look(count: int) -> None:
        for _ in range(count):
            time_limit._look()

    yield look
    TimeLimit.stop_after(math.inf)


def test_a_time_limit_counts_ticks_not_the_clock(looks: Callable[[int], None]) -> None:
    """A process that was stopped for an hour receives one."""
    message = r"no answer for 100 s, at .*\.py:\d+; .*--env-timeout"
    with pytest.raises(TimeoutError, match=message), TimeLimit(100):
        looks(400)  # the first may come at once
        reached = True
        looks(1)
    assert reached
    looks(1000)
    with TimeLimit(0):
        looks(1000)


def test_an_overdue_stop_interrupts_a_call_or_the_next_one_once(looks: Callable[[int], None]) -> None:
    with pytest.raises(Interrupted), TimeLimit(100):
        TimeLimit.stop_after(0)
        looks(1)
    TimeLimit.stop_after(0)
    with pytest.raises(Interrupted), TimeLimit(100):
        pytest.fail("entered")
    with TimeLimit(100):
        looks(1)


def test_an_interruption_that_comes_too_late_for_a_call_meets_the_next_one(
        looks: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "pthread_kill", lambda ident, number: None)
    with TimeLimit(100):
        TimeLimit.stop_after(0)
        looks(1)
    with pytest.raises(Interrupted), TimeLimit(100):
        pytest.fail("entered")
    with TimeLimit(1):
        looks(10)
    with TimeLimit(1):
        signal.raise_signal(signal.SIGURG)


@pytest.mark.parametrize(("seconds", "late"), [(0.0, False), (1.0, True)])
def test_native_code_is_late_only_where_there_is_a_limit(
        seconds: float, late: bool, looks: Callable[[int], None], monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(signal, "pthread_kill", lambda ident, number: None)
    with TimeLimit(seconds, "odd:Env"):
        looks(12)
        assert "in native code" not in capfd.readouterr().err
        looks(20)
    assert capfd.readouterr().err.count("no answer from odd:Env for 1 s in native code") == late


@pytest.mark.parametrize(("keys", "says"), [
    ({"runtime": "ray", "num_workers": 2}, "the learner of runtime=ray takes one device"),
    ({"num_workers": 1}, "a single process takes one device")])
def test_a_list_of_devices_is_for_processes_that_have_one_each(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        machine.resolve_device(vantage.configure("a2c", env="CartPole-v1", device="cpu,cpu", **keys))


def test_a_time_limit_leaves_a_handler_of_the_program_alone(looks: Callable[[int], None]) -> None:
    received: list[int] = []
    former = signal.signal(signal.SIGURG, lambda number, frame: received.append(number))
    try:
        with pytest.raises(TimeoutError), TimeLimit(1):
            looks(5)
            for _ in range(1000):
                pass
    finally:
        signal.signal(signal.SIGURG, former)
    assert not received


def test_a_process_ends_with_its_parent_where_the_system_does_not_see_to_it(tmp_path: Path) -> None:
    program = """
import multiprocessing, os, sys, time
from vantage._host.processes import die_with_parent

def work(parent):
    sys.platform = "darwin"
    die_with_parent(parent)
    print(os.getpid(), flush=True)
    time.sleep(60)

if __name__ == "__main__":
    multiprocessing.get_context("spawn").Process(target=work, args=(os.getpid(),)).start()
    time.sleep(60)
"""
    (tmp_path / "program.py").write_text(program)
    with subprocess.Popen([sys.executable, "program.py"], cwd=tmp_path, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    assert_ends(child, 10)


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_a_tied_process_ends_with_its_parent_while_it_imports_its_target(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("""
import multiprocessing, os, pathlib, time
if multiprocessing.current_process().name != "MainProcess":
    pathlib.Path("importing").write_text(str(os.getpid()))
    time.sleep(60)
def work(): pass
""")
    (tmp_path / "program.py").write_text("""
import multiprocessing, sys, time
from vantage._host.processes import tied_process
if __name__ == "__main__":
    import slow
    tied_process(multiprocessing.get_context("spawn"), "slow", slow.work).start()
    time.sleep(60)
""")
    marker = tmp_path / "importing"
    with subprocess.Popen([sys.executable, "program.py"], cwd=tmp_path) as parent:
        wait_for(lambda: marker.exists() and marker.read_text(), parent)
        parent.kill()
    assert_ends(int(marker.read_text()), 2)
