"""Commands that are stopped or killed: one sentence, an exit code, nothing left running, and the next one goes on."""

import json
import os
import re
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from dev.tools.forked import Started
from dev.tools.waiting import within
from tests.user import COMMAND, User, environment

STOPPED = "stopped; what was computed is kept, the same command resumes from there."
TRACKER = re.compile(
    r"Traceback \(most recent call last\):\n(?: .*\n)*KeyError: '/loky-.*\n?"
)
"""Output of Python's tracker of semaphores, a process of its own, if a signal comes while Dask makes one."""

CONFIG = {
    "datasets": [
        {
            "source": "sklearn",
            "name": "diabetes",
            "task": "regression",
            "scale": "standard",
        }
    ],
    "kernels": [{"family": "gaussian", "gammas": {"base": 2, "from": -6, "to": -5}}],
}
CONFIG |= {
    "name": "small",
    "learners": ["unif", "alignf"],
    "protocol": {"folds": 3},
    "dask": {"workers": 1},
}


IGNORED = re.compile(
    r"Exception ignored (?:in|on calling ctypes callback function): .*\n"
    r"(?:(?:\w.*\n)?Traceback.*\n(?: .*\n)*[\w.]+(?:: .*)?\n)?"
)
"""Output of Python if a signal comes while it puts an object away, or LLVM calls Python.

Another thread may print a line in between.
"""


class Running:
    """A command in a session of its own, as a terminal starts one, and all that it has started."""

    def __init__(self, user: User, *arguments: str, forked: bool = True) -> None:
        self.state = user.work / ".learnkernels"
        self.process: Started | subprocess.Popen[bytes]
        if forked:
            self.process = user.start(*arguments)
            self.log = self.process.err
        else:
            self.log = user.home / "said"
            with self.log.open("wb") as said:
                self.process = subprocess.Popen(
                    [*COMMAND, *arguments], cwd=user.work, env=environment(user.home), stdout=said, stderr=said,
                    start_new_session=True,
                )  # fmt: skip
        self.children: set[psutil.Process] = set()

    @property
    def said(self) -> str:
        return self.log.read_text()

    def until(self, condition: Callable[[], bool]) -> None:
        def reached() -> bool:
            assert self.process.poll() is None, self.said
            self.children.update(
                psutil.Process(self.process.pid).children(recursive=True)
            )
            return condition()

        assert within(reached, 300, 0.02), self.said

    def has(self, pattern: str) -> None:
        self.until(lambda: any(self.state.glob(pattern)))

    def has_children(self) -> None:
        self.until(lambda: bool(self.children))

    def says(self, text: str) -> None:
        self.until(lambda: text in self.said)

    def end(self, number: signal.Signals, seconds: float = 5) -> int:
        """Send a signal to its session, see that nothing is left, and return the exit code."""
        self.children.update(psutil.Process(self.process.pid).children(recursive=True))
        os.killpg(self.process.pid, number)
        ended = self.process.wait()
        assert psutil.wait_procs(list(self.children), timeout=seconds)[1] == []
        return ended if isinstance(ended, int) else ended.returncode


def states(work: Path) -> tuple[list[str], list[str]]:
    """What Prefect and MLflow say of all runs, the first one first."""
    found = []
    for database, query in (
        (
            ".learnkernels/prefect/prefect.db",
            "SELECT state_type FROM flow_run ORDER BY created",
        ),
        (
            "mlflow.db",
            "SELECT status FROM runs WHERE name LIKE 'comparison %' ORDER BY start_time",
        ),
    ):
        with closing(sqlite3.connect(work / database)) as connection:
            found.append([state for (state,) in connection.execute(query)])
    return found[0], found[1]


@pytest.mark.slow(40)
def test_compare_ends_at_any_moment_and_the_next_goes_on(user: User):
    (user.work / "conf.yaml").write_text(json.dumps(CONFIG))
    moments: list[tuple[bool, signal.Signals, int, Callable[[Running], None]]] = [
        (
            False,
            signal.SIGINT,
            1,
            lambda running: running.has("tmp/prefect-*.log"),
        ),  # libraries are imported
        (
            True,
            signal.SIGTERM,
            1,
            lambda running: running.has_children(),
        ),  # Prefect's server starts
        (True, signal.SIGINT, 1, lambda running: running.says("[1/")),
        (True, signal.SIGTERM, 2, lambda running: running.says("[2/")),
        (True, signal.SIGINT, 2, lambda running: running.says("diabetes: alignf")),
    ]
    for forked, number, at_once, moment in moments:
        running = Running(
            user, "compare", "conf.yaml", "--set", f"parallel={at_once}", forked=forked
        )
        moment(running)
        assert running.end(number) == 128 + number
        said = IGNORED.sub("", TRACKER.sub("", running.said))
        assert said.splitlines()[-1] == STOPPED
        assert "Traceback" not in said
        assert "error" not in said
    assert states(user.work) == (["CRASHED"] * 3, ["KILLED"] * 3)

    running = Running(user, "compare", "conf.yaml")
    running.says("[1/")
    # The server ends with who started it
    assert running.end(signal.SIGKILL, 60) == -signal.SIGKILL
    assert states(user.work)[0][-1] == "RUNNING"

    again = user.run("compare", "conf.yaml")
    assert again.returncode == 0, again.stderr
    assert states(user.work) == (
        [*["CRASHED"] * 4, "COMPLETED"],
        [*["KILLED"] * 4, "FINISHED"],
    )


@pytest.mark.slow(15)
def test_two_first_commands_at_once_in_one_folder(user: User):
    (user.work / "conf.yaml").write_text(json.dumps(CONFIG | {"dask": {"workers": 0}}))
    both = [user.start("compare", "conf.yaml") for _ in range(2)]
    ended = [started.wait() for started in both]
    assert [one.returncode for one in ended] == [0, 0], [one.stderr for one in ended]
    assert states(user.work) == (["COMPLETED"] * 2, ["FINISHED"] * 2)


@pytest.mark.slow(5)
@pytest.mark.parametrize("command", ["ui SIGTERM", "up SIGTERM", "up SIGKILL"])
def test_servers_end_while_they_start(user: User, command: str):
    command, _, name = command.partition(" ")
    running, number = Running(user, command), signal.Signals[name]
    running.has("mlflow.log")
    killed = number == signal.SIGKILL
    assert running.end(number, 60 if killed else 5) == (
        -number if killed else 128 + number
    )
    assert killed or running.said.splitlines()[-1].startswith(
        "stopped; the runs are kept"
    )
