"""Commands as processes of their own that are forked from one that has imported what commands need.

That saves each of them the seconds of the imports; `python -m tools.forked` waits for the commands of one folder, in
whose environment it has imported everything.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

LONGEST = 600
"""Seconds that a command may take."""


class Commands:
    """What runs the commands of a folder.

    Parameters
    ----------
    folder : Path
        Where commands work.
    env : mapping of str to str
        Their environment; this project must be importable in it.
    """

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._folder = folder
        self._waiting = subprocess.Popen(
            [sys.executable, "-m", "tools.forked"], cwd=folder, env=dict(env), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command line as a shell reads it, and return how it ended and what it printed."""
        program, *arguments = shlex.split(command)
        assert program == "learnkernels", command
        files = [self._folder.parent / f"forked.{name}" for name in ("out", "err")]
        assert self._waiting.stdin is not None
        assert self._waiting.stdout is not None
        self._waiting.stdin.write(json.dumps([arguments, *map(str, files)]) + "\n")
        self._waiting.stdin.flush()
        if not select.select([self._waiting.stdout], [], [], LONGEST)[0]:
            self._waiting.kill()  # and the command with it
        code = int(self._waiting.stdout.readline() or -signal.SIGKILL)
        said = [file.read_text(errors="replace") for file in files]
        return subprocess.CompletedProcess(command, code, *said)

    def close(self) -> None:
        """End the process from which commands are forked."""
        self._waiting.communicate(timeout=60)


def load() -> None:
    """Import all that commands import, in the environment of the folder that they work in."""
    from learnkernels.tasks.environment import prepare_environment

    os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "CRITICAL"  # as commands set before Prefect is imported
    prepare_environment()
    import learnkernels.flows.cli
    import learnkernels.flows.compare
    import learnkernels.flows.gram
    import learnkernels.flows.papers
    import learnkernels.flows.predict
    import learnkernels.flows.promote
    import learnkernels.flows.train
    import learnkernels.tasks.operate.deployments
    import learnkernels.tasks.operate.recovery
    import learnkernels.tasks.operate.servers  # noqa: F401

    if threading.active_count() > 1:
        raise RuntimeError(f"a fork would lose threads: {threading.enumerate()}")


def fork(arguments: Sequence[str], work: Path, out: Path, err: Path, env: Mapping[str, str]) -> int:
    """Start a command in a process that is forked from this one, with further variables, and return its number."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        die_with()
        os.environ.update(env)
        become(work, out, err)
        code = as_command(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def die_with() -> None:
    """End this child when its parent does, even by a kill."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def become(work: Path, out: Path, err: Path) -> None:
    """Let a forked process be one that a user has started in a folder: signals, input, output, working folder."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    for path, descriptor in ((os.devnull, 0), (out, 1), (err, 2)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC if descriptor else os.O_RDONLY, 0o644)
        os.dup2(file, descriptor)
        os.close(file)
    os.chdir(work)


def as_command(arguments: Sequence[str]) -> int:
    """Run the command in this process as Python would run it, to the end, and return the exit code."""
    import learnkernels.__main__ as program

    sys.argv = ["learnkernels", *arguments]
    sys.modules["__main__"] = program  # what processes import that this one spawns
    code: object = 0
    try:
        program.main()
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)  # noqa: T201
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    return code if isinstance(code, int) else 0


def _wait() -> None:
    """Run the commands that are asked for, one after the other, until there is no more input."""
    die_with()
    load()
    for line in sys.stdin:
        arguments, out, err = json.loads(line)
        _, status = os.waitpid(fork(arguments, Path.cwd(), Path(out), Path(err), {}), 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201


if __name__ == "__main__":
    _wait()
