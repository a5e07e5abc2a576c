from __future__ import annotations

import math
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hostile_answers import share_of_a_core

from basis_rl import verifiers
from basis_rl.errors import BasisError, ConfigError
from basis_rl.train.rewards import ColumnReward
from basis_rl.verifiers import NamedVerifier, Verdict, trl_reward
from basis_rl.verifiers.worker import ended

pytest.importorskip("fcntl", reason="pools need POSIX")

LIMIT_S = 0.4
FUNCTIONS = r"""
import os, signal, subprocess, sys, time

seen = []

def judge(completion, pid_file=None):
    seen.append(completion)
    if completion == "sleep": time.sleep(1000)
    if completion == "spin":
        while True: pass
    if completion == "spin on":
        while True:
            try:
                while True: pass
            except BaseException: pass
    if completion == "compute in C": return 10 ** 10 ** 10
    if completion == "allocate":
        kept = []
        while True: kept.append(bytes(1 << 26))  # not written to: fast
    if completion == "allocate at once": return len(bytearray(1 << 45))
    if completion == "raise": raise KeyError("no")
    if completion == "exit": sys.exit(3)
    if completion == "exit at once": os._exit(3)
    if completion == "kill": os.kill(os.getpid(), signal.SIGKILL)
    if completion == "abort": os.abort()
    if completion == "print":
        for _ in range(10): print("x" * 1_000_000); os.write(1, b"y" * 1000); os.write(2, b"z")
    if completion == "child":
        child = subprocess.Popen(["sleep", "1000"])
        open(pid_file, "w").write(str(child.pid))
        child.wait()
    if completion == "forked child":
        child = os.fork()
        if child == 0: time.sleep(1000)
        open(pid_file, "w").write(str(child))
        os._exit(0)
    if completion == "close": os.closerange(3, 256)
    if completion == "recurse": return judge(completion, pid_file)
    if completion == "deeper": sys.setrecursionlimit(7000)
    if completion == "depth": return sys.getrecursionlimit() == 1000
    if completion == "seen": return len(seen)
    if completion == "pid": return os.getpid()
    if completion == "nap": time.sleep(0.5)
    if completion == "work":
        start = time.process_time()
        while time.process_time() - start < 0.3: pass
        return 1.0
    if completion == "stop the clock": time.monotonic = lambda: 0.0
    if completion == "answer twice":
        import json, socket, struct
        for number in range(3, 64):
            try: end = socket.socket(fileno=number)
            except OSError: continue
            reply = json.dumps({"reward": 1.0}).encode()
            try: end.sendall(struct.pack("!Q", len(reply)) + reply)
            except OSError: pass
            end.detach()
    if completion == "ignore signals":
        for number in (signal.SIGPROF, signal.SIGVTALRM): signal.signal(number, signal.SIG_IGN)
        while True: pass
    if completion == "kill the keeper":
        open(pid_file, "w").write(str(os.getpid()))
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)
    if completion == "fork": os.fork()
    if completion == "none": return None
    if completion == "nan": return float("nan")
    if completion == "text": return "yes"
    if completion == "huge": return 10 ** 5000
    return completion == "right"

def all_columns(completion, **columns): return len(columns)
def main_path(completion): return len(sys.argv) == 1
def broken_elsewhere(completion): return 1.0
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("functions")
    (folder / "pool_functions.py").write_text(FUNCTIONS)
    only_here = "import sys\nif 'pytest' not in sys.modules: raise OSError('not here')\n"
    (folder / "only_here.py").write_text(only_here + FUNCTIONS)
    sys.path.insert(0, str(folder))
    yield "pool_functions"
    sys.path.remove(str(folder))


Make = Callable[..., NamedVerifier]


@pytest.fixture
def make(module: str) -> Iterator[Make]:
    made = []

    def create(name: str = f"{module}:judge", **options: Any) -> NamedVerifier:
        made.append(verifiers.create(name, **{"processes": 1, "limit_s": LIMIT_S, **options}))
        return made[-1]

    yield create
    for verifier in made:
        verifier.close()


def verdict(verifier: NamedVerifier, text: str, columns: Any = None) -> Verdict:
    [found] = verifier.submit([text], columns or {}).result(timeout=20)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sleep", "time-out"),
        ("spin", "time-out"),
        ("spin on", "time-out"),
        ("compute in C", "time-out"),
        ("allocate", "memory"),
        ("allocate at once", "memory"),
        ("raise", "KeyError"),
        ("exit", "SystemExit"),
        ("exit at once", "process died (exit code 3)"),
        ("kill", "process died (SIGKILL)"),
        ("abort", "process died (SIGABRT)"),
        ("close", "process died (exit code 0)"),
        ("recurse", "RecursionError"),
    ],
)
def test_an_answer_costs_itself_alone(make: Make, text: str, expected: str) -> None:
    verifier = make()
    assert verdict(verifier, "right").reward == 1.0
    start = time.monotonic()
    assert verdict(verifier, text) == Verdict(0.0, expected)
    # Waiting may take 3 times the limit, computing 1.25 times.
    assert time.monotonic() - start < (3 * LIMIT_S + 1) / share_of_a_core()
    assert verdict(verifier, "right").reward == 1.0
    assert verdict(verifier, "wrong").reward == 0.0
    assert verifier.failures == {expected: 1}
    assert verifier.first_failure is not None
    assert verifier.first_failure.startswith(expected)


@pytest.mark.parametrize("text", ["stop the clock", "answer twice", "spin on", "close", "fork"])
def test_the_next_answers_get_verdicts_of_their_own(make: Make, text: str) -> None:
    verifier = make(limit_s=0.2)
    for _ in range(2):
        assert verdict(verifier, text).reward == 0.0
        assert rewards(verifier, ["right", "wrong"] * 5) == [1.0, 0.0] * 5


def test_code_that_puts_off_the_signals_is_ended_all_the_same(make: Make) -> None:
    verifier = make(limit_s=0.2)
    start = time.monotonic()
    assert verdict(verifier, "ignore signals") == Verdict(0.0, "time-out")
    assert time.monotonic() - start < 2.0 / share_of_a_core()
    assert rewards(verifier, ["right", "wrong"]) == [1.0, 0.0]


def test_a_worker_ends_with_its_keeper(make: Make, tmp_path: Path) -> None:
    verifier = make()
    row = {"pid_file": str(tmp_path / "pid")}
    assert verdict(verifier, "kill the keeper", row) == Verdict(0.0, "process died")
    assert gone(int((tmp_path / "pid").read_text()))
    assert verifier("right", {}) == 1.0


def test_the_end_of_a_worker_is_seen_without_waitid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "waitid", raising=False)  # macOS has it from Python 3.13 on
    child = os.fork()
    if child == 0:
        time.sleep(0.2)
        os._exit(7)
    status = ended(child)
    assert status is None
    while status is None:
        time.sleep(0.01)
        status = ended(child)
    assert os.waitstatus_to_exitcode(status) == 7


def test_where_there_are_no_worker_processes(
    make: Make, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pool", "slot"):
        monkeypatch.delitem(sys.modules, f"basis_rl.verifiers.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(ConfigError, match=r"need Linux or macOS .*'fcntl'.*give processes=0"):
        make()
    assert make(processes=0)("right", {}) == 1.0


@pytest.mark.parametrize("text", ["print", "none", "nan", "text", "huge"])
def test_what_a_function_returns(make: Make, text: str, capfd: Any) -> None:
    verifier = make(limit_s=5)
    if text in ("text", "huge"):
        words = "returned 'yes'" if text == "text" else "returned a int"
        with pytest.raises(ConfigError, match=words):
            verifier(text, {})
    elif text == "print":
        assert verifier(text, {}) == 0.0
    else:
        assert verdict(verifier, text) == Verdict(None)
        assert math.isnan(verifier(text, {}))
    assert not verifier.failures
    assert verifier("right", {}) == 1.0
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("text", ["child", "forked child"])
def test_processes_that_an_answer_starts_end_with_it(make: Make, text: str, tmp_path: Path) -> None:
    verifier = make()
    assert verdict(verifier, text, {"pid_file": str(tmp_path / "pid")}).failure is not None
    assert gone(int((tmp_path / "pid").read_text()))
    assert verifier("right", {}) == 1.0


def test_state_that_an_answer_leaves_behind(make: Make) -> None:
    verifier = make()
    assert verifier("deeper", {}) == 0.0
    assert verifier("depth", {}) == 1.0
    before = verifier("seen", {})
    assert verifier("seen", {}) == before + 1  # the module is loaded once
    assert verifier("recurse", {}) == 0.0
    assert verifier("seen", {}) == 1  # a fresh process


def test_verdicts_depend_on_neither_order_nor_workers(make: Make) -> None:
    texts = ["right", "wrong", "spin", "kill", "raise", "exit at once", "none", "recurse"]
    texts = [*texts, *(["right", "wrong"] * 10)]
    expected = None
    for processes in (1, 2, 4):
        verifier = make(processes=processes)
        order = random.Random(processes).sample(range(len(texts)), len(texts))
        found = verifier.submit([texts[i] for i in order], {}).result(timeout=60)
        by_text = dict(zip(order, found, strict=True))
        expected = expected or by_text
        assert by_text == expected
        assert verifier.calls == len(texts)
        assert verifier.failures.total() == 5
    assert expected is not None
    assert [expected[i].reward for i in range(8)] == [1, 0, 0, 0, 0, 0, None, 0]
    assert [expected[i].reward for i in range(8, 28)] == [1, 0] * 10


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
def test_verdicts_do_not_depend_on_the_load(make: Make) -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # the worker's too, and that of its rivals
    spin = [sys.executable, "-c", "while True: pass"]
    # Sessions of their own: some kernels share cores between sessions, not between processes.
    rivals = [subprocess.Popen(spin, start_new_session=True) for _ in range(6)]
    try:
        verifier = make()
        start = time.monotonic()
        assert verdict(verifier, "work") == Verdict(1.0)  # 0.3 of the 0.4 s that it may take
        assert time.monotonic() - start > 1.0
    finally:
        for rival in rivals:
            rival.kill()
            rival.wait()
        os.sched_setaffinity(0, cores)


def test_workers_are_as_many_as_asked_for_and_no_more_than_answers(make: Make) -> None:
    verifier = make(processes=3)
    assert len(set(rewards(verifier, ["pid"]))) == 1
    assert len(set(rewards(verifier, ["spin"] * 3 + ["pid"] * 20))) <= 4
    pids = {reward for reward in rewards(verifier, ["pid"] * 50) if reward}
    assert 1 <= len(pids) <= 3
    assert os.getpid() not in pids


def rewards(verifier: NamedVerifier, texts: list[str]) -> list[float | None]:
    return [found.reward for found in verifier.submit(texts, {}).result(timeout=30)]


@pytest.mark.parametrize("form", ["TRL", "basis-rl train"])
def test_trainers_judge_a_batch_at_the_same_time(make: Make, form: str) -> None:
    verifier = make(processes=4)
    texts = ["nap", "nap", "right", "nap", "none", "nap"]
    if form == "TRL":
        judge = partial(trl_reward(verifier), texts)
    else:
        reward = ColumnReward(verifier, {"a": {}, "b": {}})
        judge = partial(reward, texts, prompt_key=["a", "b"] * 3)
    judge()  # starts the workers
    start = time.monotonic()
    assert judge() == [0.0, 0.0, 1.0, 0.0, None, 0.0]
    assert time.monotonic() - start < 1.5  # one after the other it takes 2 seconds


def test_processes_0_is_this_process(make: Make) -> None:
    assert make(processes=0)("pid", {}) == os.getpid()
    assert make()("pid", {}) != os.getpid()


def test_from_many_threads(make: Make) -> None:
    verifier = make(processes=2)
    texts = ["right", "wrong", "raise"]
    found: list[list[float | None]] = []

    def ask() -> None:
        for _ in range(10):
            found.append(rewards(verifier, texts))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[1.0, 0.0, 0.0]] * 80
    assert verifier.calls == 240
    assert verifier.failures == {"KeyError": 80}


def test_what_is_being_judged_cannot_be_cancelled(make: Make) -> None:
    verifier = make()
    future = verifier.submit(["right"], {})
    assert not future.cancel()
    assert future.result(timeout=20) == [Verdict(1.0)]
    assert verifier("right", {}) == 1.0


def test_no_answers(make: Make) -> None:
    assert make().submit([], {}).result(timeout=1) == []


def test_closing_ends_the_processes_and_what_waits(make: Make) -> None:
    verifier = make(limit_s=20)
    pid = verifier("pid", {})
    slow = verifier.submit(["sleep", "right"], {})
    time.sleep(0.2)
    start = time.monotonic()
    verifier.close()
    with pytest.raises(BasisError, match="closed before its verdict"):
        slow.result(timeout=10)
    assert time.monotonic() - start < 10
    assert gone(int(pid))
    with pytest.raises(BasisError, match="is closed: make another one"):
        verifier("right", {})


def test_a_forgotten_verifier_ends_its_processes(module: str) -> None:
    verifier = verifiers.create(f"{module}:judge", processes=1)
    pid = verifier("pid", {})
    del verifier
    assert gone(int(pid))


@pytest.mark.parametrize("text", ["right", "sleep"])
def test_the_worker_ends_with_a_killed_parent(module: str, text: str) -> None:
    code = f"""
import sys; sys.path[:] = {sys.path!r}
from basis_rl import verifiers
verifier = verifiers.create("{module}:judge", processes=1, limit_s=60)
print(int(verifier("pid", {{}})), flush=True)
verifier("{text}", {{}})
input()
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(0.2)
        parent.send_signal(signal.SIGKILL)
    assert gone(pid)


def test_after_a_fork_the_child_has_workers_of_its_own(make: Make) -> None:
    verifier = make(processes=2)
    assert verifier("right", {}) == 1.0
    pid = verifier("pid", {})
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends it, whatever happens
        warnings.simplefilter("error")
        sys.unraisablehook = lambda _: os._exit(2)  # a process of the parent is not this one's
        is_right = verifier("right", {}) == 1.0 and verifier("pid", {}) != pid
        verifier.close()
        os._exit(0 if is_right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert verifier("right", {}) == 1.0
    assert verifier("pid", {}) == pid


def test_a_verifier_can_be_pickled(make: Make) -> None:
    copy = pickle.loads(pickle.dumps(make()))
    assert verdict(copy, "spin").failure == "time-out"  # the limit came along
    assert copy("right", {}) == 1.0
    copy.close()


def test_a_worker_that_cannot_start(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ConfigError) as caught:
        make()("right", {})
    assert "ended at its start (exit code 1, 3 times): see what `/bin/false -c" in str(caught.value)


def test_a_module_that_fails_in_the_worker_alone(make: Make) -> None:
    with pytest.raises(ConfigError, match=r"cannot be loaded in a worker process.*not here"):
        make("only_here:judge")("right", {})


def test_columns_that_cannot_be_sent(make: Make) -> None:
    verifier = make("pool_functions:all_columns")
    assert verifier("", {"a": 1, "b": [2]}) == 2
    with pytest.raises(ConfigError, match=r"cannot be sent to another process .* processes=0"):
        verifier("", {"lock": threading.Lock()})
    assert make()("right", {"lock": threading.Lock()}) == 1.0  # not a column that it takes
    with pytest.raises(ConfigError, match=r"cannot be loaded in a worker process .*processes=0"):
        verifier("", {"a": OnlyHere()})
    assert verifier("", {"a": 1}) == 1


class OnlyHere:
    """What no other process can load."""

    def __reduce__(self) -> tuple[type[int], tuple[str]]:
        return int, ("no number",)


def test_functions_of_the_script_itself(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "own", lambda completion: 1.0, raising=False)
    with pytest.raises(ConfigError, match="move it into a module, or give processes=0"):
        make("__main__:own")
    assert make("__main__:own", processes=0)("", {}) == 1.0


def test_the_worker_sees_no_arguments_of_its_own(make: Make) -> None:
    assert make("pool_functions:main_path")("", {}) == 1.0


@pytest.mark.parametrize(
    ("options", "words"), [({"processes": -1}, "processes is -1"), ({"limit_s": 0}, "limit_s is 0")]
)
def test_settings_that_make_no_pool(make: Make, options: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make(**options)


def gone(pid: int) -> bool:
    """Whether a process ends within 5 seconds (or waits for its parent to notice)."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False
