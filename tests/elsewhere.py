"""Servers as processes: Dask workers as on another machine, which do not see some of our folders, and others."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.tools.waiting import within
from tests.user import ROOT

PROGRAM = """
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster:
        print(cluster.scheduler_address, flush=True)
        input()
"""


@contextmanager
def another_machine(folder: Path, *, hidden: Path | None = None) -> Iterator[str]:
    """Give the address of a scheduler with two workers that have a folder of their own, and do not see one of ours."""
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(folder / "program.py")]
    if hidden is not None:
        command = [
            "unshare",
            "--mount",
            "sh",
            "-c",
            f'mount -t tmpfs none "{hidden}" && exec "$@"',
            "sh",
            *command,
        ]
    env = os.environ | {
        "PYTHONPATH": str(ROOT),
        "LEARNKERNELS_HOME": str(folder / "state"),
    }
    env |= {"DASK_TEMPORARY_DIRECTORY": str(folder), "TMPDIR": str(folder)}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, env=env, cwd=folder, text=True
    ) as machine:
        try:
            yield machine.stdout.readline().strip()
        finally:
            machine.stdin.close()  # which ends it


@contextmanager
def served(
    command: list[str], env: dict[str, str], folder: Path, ready: Callable[[], bool]
) -> Iterator[None]:
    """Hold a server from when it is ready until the end of a block; if it is not, fail with its log."""
    with (
        (folder / "server.log").open("wb") as log,
        subprocess.Popen(
            command, env=env, cwd=folder, stdout=log, stderr=log, start_new_session=True
        ) as server,
    ):
        try:
            assert within(lambda: server.poll() is not None or ready(), 240), (
                folder / "server.log"
            ).read_text()
            assert server.poll() is None, (folder / "server.log").read_text()
            yield
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGTERM)


def hideable(folder: Path) -> Path | None:
    """Return a folder, made, if it can be hidden from a process; None where one may not mount."""
    folder.mkdir(exist_ok=True)
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", str(folder)]
    return None if subprocess.run(command, capture_output=True).returncode else folder
