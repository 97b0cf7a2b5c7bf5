"""Calls of functions in processes of their own: the memory of the libraries that they import goes with the process.

`learnkernels up` runs for weeks. It needs Prefect and MLflow for a second at its start, and MLflow once a day.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module

from learnkernels.conf.errors import InputError

from ..environment import explain

REFUSED = 2
"""Exit code of a call that has raised, after one sentence about it."""


def call_apart(module: str, function: str, *arguments: str | float) -> None:
    """Call a function of this project in a process of its own, and wait for its end.

    Raises
    ------
    InputError
        The function has raised, or the process was killed.
    """
    call = json.dumps([module, function, arguments])  # not on the command line: an address may hold a password
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=call,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,  # Ctrl-C in a terminal reaches the process that waits, which ends this one
    )
    if done.returncode == REFUSED:
        raise InputError(done.stdout.splitlines()[-1])
    if done.returncode != 0:
        raise InputError(f"{function} ended with exit code {done.returncode}; start again.")


def _answer() -> int:
    """Make the call that standard input describes; print one sentence if it raises."""
    module, function, arguments = json.load(sys.stdin)
    try:
        getattr(import_module(module), function)(*arguments)
    except InputError as error:
        print(error)  # noqa: T201
    except Exception as error:
        print(explain(error)[1])  # noqa: T201
    else:
        return 0
    return REFUSED


if __name__ == "__main__":
    sys.exit(_answer())
