"""Commands as processes of their own that are forked from one that has imported what
commands need.

That saves each of them the seconds of the imports; `python -m dev.tools.forked` waits
for the commands of one folder, in whose environment it has imported everything.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

LONGEST = 600
"""Seconds that a command may take."""

PROGRAMS = ("learnkernels", "prefect", "mlflow", "python")
"""Commands that are forked; of Python only ``python -c``."""


class Started:
    """A command that runs in a session of its own, and writes what it says to two files."""

    def __init__(
        self, commands: Commands, command: object, pid: int, out: Path, err: Path
    ) -> None:
        self.pid, self.out, self.err = pid, out, err
        self._commands, self._command = commands, command
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return how it ended, or None while it runs."""
        if self._code is None:
            self._code = self._commands.ask(poll=self.pid)
        return self._code

    def wait(self) -> subprocess.CompletedProcess[str]:
        """Wait for its end, and return how it ended and what it printed."""
        if self._code is None:
            self._code = self._commands.ask(wait=self.pid)
        said = (file.read_text(errors="replace") for file in (self.out, self.err))
        return subprocess.CompletedProcess(
            self._command, -signal.SIGKILL if self._code is None else self._code, *said
        )


class Commands:
    """What runs commands.

    Parameters
    ----------
    folder : Path
        Where commands work; what they print goes beside it.
    env : mapping of str to str
        Their environment; this project must be importable in it.
    """

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._folder, self._count = folder, 0
        self._waiting = subprocess.Popen(
            [sys.executable, "-m", "dev.tools.forked"], cwd=folder, env=dict(env), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, **what: object) -> int | None:
        """Send a request to the process from which commands are forked, and return its answer."""
        assert self._waiting.stdin is not None
        assert self._waiting.stdout is not None
        self._waiting.stdin.write(json.dumps(what) + "\n")
        self._waiting.stdin.flush()
        if not select.select([self._waiting.stdout], [], [], LONGEST)[0]:
            self._waiting.kill()  # and the commands with it
        found: int | None = json.loads(self._waiting.stdout.readline() or "null")
        return found

    def start(
        self,
        command: str | Sequence[str],
        folder: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Started:
        """Start a command, one line as a shell reads it or its words, in another folder and environment if given."""
        program, *arguments = (
            shlex.split(command) if isinstance(command, str) else command
        )
        assert program in PROGRAMS, command
        self._count += 1
        out, err = (
            self._folder.parent / f"forked.{self._count}.{name}"
            for name in ("out", "err")
        )
        for file in (out, err):
            file.touch()  # who reads it may be faster than the command
        pid = self.ask(
            start=[program, *arguments], folder=str(folder or self._folder), out=str(out), err=str(err),
            env=None if env is None else dict(env),
        )  # fmt: skip
        assert pid is not None, "the process from which commands are forked has ended"
        return Started(self, command, pid, out, err)

    def run(
        self,
        command: str | Sequence[str],
        folder: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as `start` does, to its end."""
        return self.start(command, folder, env).wait()

    def close(self) -> None:
        """End the process from which commands are forked."""
        self._waiting.communicate(timeout=60)


def load() -> None:
    """Import all that commands import, in the environment of the folder that they work in."""
    from learnkernels.tasks.environment import prepare_environment

    os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = (
        "CRITICAL"  # as commands set before Prefect is imported
    )
    prepare_environment()
    import learnkernels.flows.cli
    import learnkernels.flows.compare
    import learnkernels.flows.gram
    import learnkernels.flows.predict
    import learnkernels.flows.promote
    import learnkernels.flows.train
    import learnkernels.reproduction.command
    import learnkernels.reproduction.flow
    import learnkernels.tasks.operate.deployments
    import learnkernels.tasks.operate.recovery
    import learnkernels.tasks.operate.servers  # noqa: F401

    if threading.active_count() > 1:
        raise RuntimeError(f"a fork would lose threads: {threading.enumerate()}")


def fork(
    arguments: Sequence[str],
    work: Path,
    out: Path,
    err: Path,
    env: Mapping[str, str],
    run: Callable[[Sequence[str]], int] | None = None,
) -> int:
    """Start a command in a process that is forked from this one, with further
    variables, and return its number.

    The process leads a session of its own when this function returns, so that its group
    can be sent signals.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    leads, has_session = os.pipe()
    pid = os.fork()
    if pid:
        os.close(has_session)
        os.read(leads, 1)
        os.close(leads)
        return pid
    code = 1
    try:
        os.close(leads)
        os.setsid()
        os.close(has_session)
        die_with()
        os.environ.update(env)
        become(work, out, err)
        code = (run or as_command)(arguments)
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
        file = os.open(
            path,
            os.O_WRONLY | os.O_CREAT | os.O_TRUNC if descriptor else os.O_RDONLY,
            0o644,
        )
        os.dup2(file, descriptor)
        os.close(file)
    os.chdir(work)


def as_command(arguments: Sequence[str]) -> int:
    """Run the command in this process as Python would run it, to the end, and return the exit code."""
    import learnkernels.__main__ as program

    sys.argv = ["learnkernels", *arguments]
    sys.modules["__main__"] = program  # what processes import that this one spawns
    return _run_to_the_end(program.main)


def _run_to_the_end(main: Callable[[], object]) -> int:
    code: object = 0
    try:
        main()
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


def as_program(words: Sequence[str], env: Mapping[str, str] | None) -> int:
    """Run a command in this process, in another environment as if libraries had been imported there."""
    from learnkernels.flows import cli, functions
    from learnkernels.reproduction import command

    program, *arguments = words
    if env is not None:
        os.environ.clear()
        os.environ.update(env)
        for module, name in (
            (cli, "prepare_environment"),
            (functions, "set_up"),
            (command, "set_up"),
        ):
            # They set variables that libraries read
            setattr(module, name, _then_renew(getattr(module, name)))
    if program == "learnkernels":
        return as_command(arguments)
    renew()
    if program == "python":
        option, code = arguments
        assert option == "-c", words
        return _run_to_the_end(lambda: exec(code, {"__name__": "__main__"}))
    script, *_ = entry_points(group="console_scripts", name=program)
    sys.argv = list(words)
    return _run_to_the_end(script.load())


def _then_renew(function: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(function)
    def renewed(*arguments: object, **options: object) -> object:
        result = function(*arguments, **options)
        renew()
        return result

    return renewed


def renew() -> None:
    """Have libraries read the environment again, which they have read when they were imported."""
    import dask
    from prefect.context import refresh_global_settings_context

    tempfile.tempdir = None
    dask.config.refresh()
    refresh_global_settings_context()


def _wait() -> None:
    """Start the commands that are asked for, and tell how they end, until there is no more input."""
    die_with()
    load()
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), flush=True)  # noqa: T201


def _answer(asked: dict[str, Any]) -> int | None:
    if words := asked.get("start"):
        folder, out, err = (Path(asked[name]) for name in ("folder", "out", "err"))
        return fork(
            words, folder, out, err, {}, lambda words: as_program(words, asked["env"])
        )
    pid, status = os.waitpid(
        asked.get("wait") or asked["poll"], 0 if "wait" in asked else os.WNOHANG
    )
    return os.waitstatus_to_exitcode(status) if pid else None


if __name__ == "__main__":
    _wait()
