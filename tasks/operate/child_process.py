"""Call functions in a child process, to free the memory of libraries."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module

from learnkernels.conf.errors import InputError

from ..environment import explain

REFUSED = 2


def call_in_child_process(module: str, function: str, *arguments: str | float) -> None:
    """Call a module's function in a child process; raise its error here."""
    # Standard input, as an address may hold a password
    call = json.dumps([module, function, arguments])
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=call,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,  # Ctrl-C reaches only the parent
    )
    if done.returncode == REFUSED:
        raise InputError(done.stdout.splitlines()[-1])
    if done.returncode != 0:
        raise InputError(
            f"{function} ended with exit code {done.returncode}; start again."
        )


def _answer() -> int:
    """Make the call in standard input; print an error."""
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
