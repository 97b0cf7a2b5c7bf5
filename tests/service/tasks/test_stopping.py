"""What a process says when a signal ends it, and how a command ends by itself."""

import importlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextvars import Context, copy_context
from pathlib import Path

import pytest
from llvmlite import binding

from learnkernels.tasks.signals import StepStopped, stoppable, stopping_steps

RUN = """
import os, signal, time
from learnkernels.tasks.signals import orderly_end
import weakref
class Kept:
    pass
class PutAway:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        time.sleep(0)
def send():
    os.kill(os.getpid(), signal.{name})
    time.sleep(0)
def put_away_in_callback():
    kept = Kept()
    weakref.finalize(kept, send)
with orderly_end():
    {act}
    time.sleep(60)
"""

IN_FLOW = """from prefect.utilities.engine import capture_sigterm
    with capture_sigterm():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
"""
"""As Prefect has it while a flow runs: SIGTERM raises an error of its own."""

IN_FLOW_WHILE_PUT_AWAY = """from prefect.utilities.engine import capture_sigterm
    from learnkernels.tasks.signals import stopping_steps
    with capture_sigterm(), stopping_steps():
        PutAway()
        time.sleep(60)
"""

NEVER_ENDING_THREAD = """from learnkernels.tasks import signals
    signals.PATIENCE = 2.0
    import threading
    thread = threading.Thread(target=threading.Event().wait)
    thread.start()
    os.kill(os.getpid(), signal.SIGTERM)
"""

NEVER_ENDING_CLEANUP = """from learnkernels.tasks import signals
    import threading
    signals.PATIENCE = 2.0
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    finally:
        threading.Event().wait()
"""

SWALLOWED = """try:
        os.kill(os.getpid(), signal.{name})
        time.sleep(60)
    except BaseException:
        pass
"""
"""As libraries do with whatever is raised in a callback of theirs."""

WHILE_A_THREAD_STARTS = """import sys, threading
    from concurrent.futures import ThreadPoolExecutor
    def send_in_thread(frame, event, argument):
        threading.setprofile(None)
        sys.setprofile(None)
        send()
    def work():
        time.sleep(2)
        print("done")
    sys.setswitchinterval(1.0)
    try:
        with ThreadPoolExecutor() as pool:
            threading.setprofile(send_in_thread)
            pool.submit(work)
            time.sleep(60)
    finally:
        print("pool closed")
"""
"""The new thread sends the signal while the main thread waits for the start."""

END = """
import sys
from learnkernels.tasks.signals import orderly_end
with orderly_end():
    print("out")
    {end}
"""


def ends(*programs: str) -> list[tuple[int, str, str]]:
    """How programs end that run at the same time: exit code, output, errors."""
    pipe = subprocess.PIPE
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True
        )
        for code in programs
    ]
    said = [process.communicate(timeout=60) for process in running]
    return [
        (process.returncode, *streams)
        for process, streams in zip(running, said, strict=True)
    ]


def test_a_signal_is_one_sentence_wherever_it_comes():
    at_work, swallowed, in_flow = (
        RUN.replace("{act}", act)
        for act in ("os.kill(os.getpid(), signal.{name})", SWALLOWED, IN_FLOW)
    )
    rows = [
        (code, name)
        for code in (at_work, swallowed)
        for name in ("SIGINT", "SIGTERM", "SIGHUP")
    ]
    rows.append((in_flow, "SIGTERM"))
    ended = ends(*(code.replace("{name}", name) for code, name in rows))
    expected = [
        (128 + getattr(signal, name), "", "stopped; nothing was begun.\n")
        for _, name in rows
    ]
    failures = [
        (*row, found)
        for row, found, wanted in zip(rows, ended, expected, strict=True)
        if found != wanted
    ]
    assert not failures


@pytest.mark.parametrize("act", ["PutAway()", "put_away_in_callback()"])
def test_a_signal_while_python_puts_an_object_away_ends_the_command_too(act: str):
    rows = ("SIGINT", "SIGTERM")
    ended = ends(*(RUN.replace("{act}", act).replace("{name}", name) for name in rows))
    for name, outcome in zip(rows, ended, strict=True):
        code = 128 + getattr(signal, name)
        assert outcome == (code, "", "stopped; nothing was begun.\n")


def test_sigterm_ends_a_flow_while_python_puts_an_object_away():
    ((code, _, text),) = ends(
        RUN.replace("{act}", IN_FLOW_WHILE_PUT_AWAY).replace("{name}", "SIGTERM")
    )
    assert (code, text.splitlines()[-1]) == (
        128 + signal.SIGTERM,
        "stopped; nothing was begun.",
    )


def test_a_signal_while_a_thread_starts_leaves_no_thread_behind():
    code = RUN.replace("{act}", WHILE_A_THREAD_STARTS).replace("{name}", "SIGTERM")
    stopped = "stopped; nothing was begun.\n"
    assert ends(code) == [(128 + signal.SIGTERM, "done\npool closed\n", stopped)]


@pytest.mark.parametrize("act", [NEVER_ENDING_THREAD, NEVER_ENDING_CLEANUP])
def test_a_command_ends_though_a_thread_or_its_cleanup_never_ends(act: str):
    (ended,) = ends(RUN.replace("{act}", act).replace("{name}", "SIGTERM"))
    assert ended == (-signal.SIGTERM, "", "stopped; nothing was begun.\n")


def outcome_of_step(begin: Callable[[threading.Event], None]) -> list[str]:
    """Let another step fail after `begin` sets the event and before it returns."""
    begun = threading.Event()
    outcome: list[str] = []

    def step() -> None:
        try:
            with stoppable():
                begin(begun)
                for _ in range(500):
                    time.sleep(0.01)
        except StepStopped:
            outcome.append("stopped")

    threads: list[threading.Thread] = []

    def fail_after_begun() -> None:
        with stopping_steps():
            threads.append(threading.Thread(target=copy_context().run, args=(step,)))
            threads[0].start()
            begun.wait()
            raise ValueError("another step has failed")

    with pytest.raises(ValueError, match="another step"):
        fail_after_begun()
    threads[0].join(timeout=30)
    return outcome


def test_a_step_is_not_stopped_within_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "slow_module.py").write_text(
        "import time\nfor _ in range(50):\n    time.sleep(0.01)\ncomplete = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def begin(begun: threading.Event) -> None:
        begun.set()
        importlib.import_module("slow_module")

    assert outcome_of_step(begin) == ["stopped"]
    assert sys.modules.pop("slow_module").complete


def test_a_step_is_not_stopped_within_a_callback_of_llvm():
    completed: list[bool] = []

    def begin(begun: threading.Event) -> None:
        def notify(module: binding.ModuleRef, machine_code: bytes) -> None:
            begun.set()
            for _ in range(50):
                time.sleep(0.01)
            completed.append(True)

        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        module = binding.parse_assembly("define void @f() { ret void }")
        machine = binding.Target.from_default_triple().create_target_machine()
        engine = binding.create_mcjit_compiler(module, machine)
        engine.set_object_cache(notify)
        engine.finalize_object()

    assert outcome_of_step(begin) == ["stopped"]
    assert completed == [True]


def test_no_step_begins_after_the_run_was_stopped():
    contexts: list[Context] = []

    def fail() -> None:
        with stopping_steps():
            contexts.append(copy_context())
            raise ValueError("another step has failed")

    def step() -> None:
        with stoppable():
            raise AssertionError("the step has begun")

    with pytest.raises(ValueError, match="another step"):
        fail()
    with pytest.raises(StepStopped):
        contexts[0].run(step)


def test_a_command_that_ends_by_itself_keeps_its_exit_code():
    rows = {"pass": 0, "sys.exit()": 0, "sys.exit(3)": 3, "sys.exit('why')": 1}
    ended = ends(*(END.replace("{end}", end) for end in rows))
    assert ended == [
        (code, "out\n", "why\n" if code == 1 else "") for code in rows.values()
    ]


def test_an_error_of_a_command_is_a_traceback():
    ((code, _, said),) = ends(
        END.replace("{end}", "raise ValueError('of the program')")
    )
    assert code == 1
    assert "ValueError: of the program" in said
