"""What a process says when a signal ends it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

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

IN_FLOW = """from prefect.utilities.engine import capture_sigterm
    with capture_sigterm():
        PutAway()
        time.sleep(60)
"""
"""As Prefect has it while a flow runs: SIGTERM raises an error of its own."""

ACTS = {"at work": "os.kill(os.getpid(), signal.{name})", "putting away": "PutAway()", "within a flow": IN_FLOW}


BEGINNING = """
import os, signal, threading
from learnkernels.tasks.stopping import orderly_end

begin = threading.Thread.start
threading.Thread.start = lambda thread: (os.kill(os.getpid(), signal.{name}), begin(thread))
with orderly_end():
    pass
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_that_comes_while_the_command_makes_ready_for_it_is_one_sentence(name: str):
    code = BEGINNING.replace("{name}", name)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (128 + getattr(signal, name), "")
    assert run.stderr == "stopped; nothing was begun.\n"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_a_signal_is_one_sentence_wherever_it_comes(name: str, act: str):
    code = RUN.replace("{act}", act).replace("{name}", name)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (128 + getattr(signal, name), "")
    assert run.stderr == "stopped; nothing was begun.\n"


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


@pytest.mark.parametrize(("end", "code"), [("pass", 0), ("sys.exit()", 0), ("sys.exit(3)", 3), ("sys.exit('why')", 1)])
def test_a_command_ends_when_all_is_done_that_was_registered_and_takes_nothing_apart(end: str, code: int):
    run = subprocess.run([sys.executable, "-c", END.replace("{end}", end)], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (code, "out\nregistered\n")
    assert run.stderr == ("why\n" if code == 1 else "")


def test_an_error_of_a_command_is_a_traceback():
    code = END.replace("{end}", "raise ValueError('of the program')")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert "ValueError: of the program" in run.stderr
