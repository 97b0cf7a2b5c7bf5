"""The command `learnkernels`, with `papers`, where the libraries are installed that it runs on."""

import atexit
import gc
import os
import sys

from learnkernels.tasks.environment import (
    collect_seldom,
    lacking_libraries,
    prepare_python,
)
from learnkernels.tasks.signals import orderly_end

collect_seldom()  # here, as workers that a command starts import this file, too

FOR_THE_USER_ALONE = 0o077
"""Permissions that files and folders of a command, and of the servers and workers that it starts, do not get."""


def main() -> None:
    """Run the command, or exit with the names of the libraries that it lacks."""
    prepare_python()
    os.umask(FOR_THE_USER_ALONE)
    # Else Python would look once more through all objects, for two seconds
    atexit.register(gc.freeze)
    with orderly_end():
        if lacking := lacking_libraries("the command learnkernels"):
            sys.exit(f"error: {lacking}")
        import learnkernels.reproduction.command  # noqa: F401
        from learnkernels.flows.cli import app

        app()


if __name__ == "__main__":
    main()
