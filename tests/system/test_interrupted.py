"""Commands that are stopped or killed: one sentence, an exit code, nothing left running, and the next one goes on."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from tests.user import COMMAND, environment, learnkernels
from tools.waiting import within

pytestmark = pytest.mark.slow(20)

STOPPED = "stopped; what was computed is kept, the same command goes on from there."
CONFIG = {
    "name": "small",
    "datasets": [{"source": "sklearn", "name": "diabetes", "task": "regression", "scale": "standard"}],
    "kernels": [{"family": "gaussian", "gammas": {"base": 2, "from": -6, "to": -5}}],
    "learners": ["unif", "alignf"],
    "protocol": {"folds": 3},
    "dask": {"workers": 1},
}


class Command:
    """A command in a session of its own, as a terminal starts one."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.work, self.said = home / "work", home / "said"
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(
                [*COMMAND, *arguments], cwd=self.work, env=environment(home), stdout=said, stderr=said,
                start_new_session=True,
            )  # fmt: skip
        self.children: set[psutil.Process] = set()

    def says(self, text: str) -> bool:
        return text in self.said.read_text()

    def has(self, pattern: str) -> bool:
        return any((self.work / ".learnkernels").glob(pattern))

    def until(self, condition: Callable[[], bool]) -> None:
        def reached() -> bool:
            assert self.process.poll() is None, self.said.read_text()
            self.children.update(psutil.Process(self.process.pid).children(recursive=True))
            return condition()

        assert within(reached, 300, 0.02), self.said.read_text()

    def end(self, number: signal.Signals) -> int:
        self.children.update(psutil.Process(self.process.pid).children(recursive=True))
        os.killpg(self.process.pid, number)
        return self.process.wait(timeout=60)

    def left(self, seconds: float = 5) -> list[psutil.Process]:
        return psutil.wait_procs(list(self.children), timeout=seconds)[1]


def states(work: Path) -> tuple[list[str], list[str]]:
    """What Prefect and MLflow say of all runs, the first one first."""
    found = []
    for database, query in (
        (".learnkernels/prefect/prefect.db", "SELECT state_type FROM flow_run ORDER BY created"),
        ("mlflow.db", "SELECT status FROM runs WHERE name LIKE 'sweep %' ORDER BY start_time"),
    ):
        with closing(sqlite3.connect(work / database)) as connection:
            found.append([state for (state,) in connection.execute(query)])
    return found[0], found[1]


def test_compare_ends_at_any_moment_and_the_next_goes_on(home: Path):
    (home / "work" / "conf.yaml").write_text(json.dumps(CONFIG))
    moments: list[tuple[signal.Signals, Callable[[Command], bool]]] = [
        (signal.SIGINT, lambda command: command.has("tmp/prefect-*.log")),  # libraries are imported
        (signal.SIGTERM, lambda command: command.has("databases.lock")),  # Prefect's server makes its database
        (signal.SIGINT, lambda command: command.says("[1/")),
        (signal.SIGTERM, lambda command: command.says("[2/")),
    ]
    for number, moment in moments:
        command = Command(home, "compare", "conf.yaml")
        command.until(lambda command=command, moment=moment: moment(command))
        assert command.end(number) == 128 + number
        assert command.left() == []
        assert command.said.read_text().splitlines()[-1] == STOPPED
        assert not command.says("Traceback")
        assert not command.says("error")
    assert states(home / "work") == (["CRASHED"] * 2, ["KILLED"] * 2)

    command = Command(home, "compare", "conf.yaml")
    command.until(lambda: command.says("[1/"))
    assert command.end(signal.SIGKILL) == -signal.SIGKILL
    assert command.left(60) == []  # the server ends with who started it
    assert states(home / "work")[0][-1] == "RUNNING"

    again = learnkernels(home, "compare", "conf.yaml")
    assert again.returncode == 0, again.stderr
    assert states(home / "work") == ([*["CRASHED"] * 3, "COMPLETED"], [*["KILLED"] * 3, "FINISHED"])


def test_two_first_commands_at_once_in_one_folder(home: Path):
    (home / "work" / "conf.yaml").write_text(json.dumps(CONFIG | {"dask": {"workers": 0}}))
    both = [
        subprocess.Popen(
            [*COMMAND, "compare", "conf.yaml"], cwd=home / "work", env=environment(home),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    said = [process.communicate(timeout=600)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert states(home / "work") == (["COMPLETED"] * 2, ["FINISHED"] * 2)


@pytest.mark.parametrize("command", ["ui", "up"])
def test_servers_end_while_they_start(home: Path, command: str):
    started = Command(home, command)
    started.until(lambda: started.has("mlflow.log"))
    assert started.end(signal.SIGTERM) == 143
    assert started.left() == []
    assert started.said.read_text().splitlines()[-1].startswith("stopped; the runs are kept")


def test_a_damaged_database_of_prefect_is_one_sentence(home: Path):
    (home / "work" / "conf.yaml").write_text(json.dumps(CONFIG))
    database = home / "work" / ".learnkernels" / "prefect" / "prefect.db"
    database.parent.mkdir(parents=True)
    database.write_bytes(b"no database " * 99)
    run = learnkernels(home, "compare", "conf.yaml")
    assert run.returncode == 2
    *_, sentence = run.stderr.splitlines()
    assert sentence.startswith(f"error: {database}: is no database of SQLite's")
    assert "Traceback" not in run.stderr


def test_a_prefect_that_does_not_answer_is_one_sentence(home: Path):
    (home / "work" / "conf.yaml").write_text(json.dumps(CONFIG))
    run = learnkernels(home, "compare", "conf.yaml", PREFECT_API_URL="http://127.0.0.1:9/api")
    assert run.returncode == 2
    *_, sentence = run.stderr.splitlines()
    assert sentence.startswith("error: no Prefect server answers at http://127.0.0.1:9/api (ConnectError);")
    assert "Traceback" not in run.stderr
