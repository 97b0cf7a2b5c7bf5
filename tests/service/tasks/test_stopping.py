"""What a process says when a signal ends it, and how a command ends by itself."""

import signal
import subprocess
import sys

RUN = """
import os, signal, time
from learnkernels.tasks.stopping import orderly_end
class PutAway:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        time.sleep(0)
with orderly_end():
    {act}
    time.sleep(60)
"""

BEGINNING = """
import os, signal, threading
from learnkernels.tasks.stopping import orderly_end
begin = threading.Thread.start
threading.Thread.start = lambda thread: (os.kill(os.getpid(), signal.{name}), begin(thread))
with orderly_end():
    pass
"""
"""The signal comes while the command makes ready for it."""

IN_FLOW = """from prefect.utilities.engine import capture_sigterm
    with capture_sigterm():
        PutAway()
        time.sleep(60)
"""
"""As Prefect has it while a flow runs: SIGTERM raises an error of its own."""

END = """
import atexit, sys
from learnkernels.tasks.stopping import orderly_end
class Kept:
    def __del__(self):
        print("taken apart")
kept = Kept()
with orderly_end():
    atexit.register(print, "registered")
    print("out")
    {end}
"""


def ends(*programs: str) -> list[tuple[int, str, str]]:
    """How programs end that run at the same time: exit code, output, errors."""
    pipe = subprocess.PIPE
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True) for code in programs]
    said = [process.communicate(timeout=60) for process in running]
    return [(process.returncode, *streams) for process, streams in zip(running, said, strict=True)]


def test_a_signal_is_one_sentence_wherever_it_comes():
    acts = "os.kill(os.getpid(), signal.{name})", "PutAway()", IN_FLOW
    at_work, putting_away, in_flow = (RUN.replace("{act}", act) for act in acts)
    rows = [(code, name) for code in (BEGINNING, at_work, putting_away) for name in ("SIGINT", "SIGTERM")]
    rows.append((in_flow, "SIGTERM"))
    ended = ends(*(code.replace("{name}", name) for code, name in rows))
    expected = [(128 + getattr(signal, name), "", "stopped; nothing was begun.\n") for _, name in rows]
    failures = [(*row, found) for row, found, wanted in zip(rows, ended, expected, strict=True) if found != wanted]
    assert not failures


def test_a_command_ends_when_all_is_done_that_was_registered_and_takes_nothing_apart():
    rows = {"pass": 0, "sys.exit()": 0, "sys.exit(3)": 3, "sys.exit('why')": 1}
    ended = ends(*(END.replace("{end}", end) for end in rows))
    assert ended == [(code, "out\nregistered\n", "why\n" if code == 1 else "") for code in rows.values()]


def test_an_error_of_a_command_is_a_traceback():
    ((code, _, said),) = ends(END.replace("{end}", "raise ValueError('of the program')"))
    assert code == 1
    assert "ValueError: of the program" in said
