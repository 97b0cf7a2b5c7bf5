"""The command `learnkernels`."""

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

collect_seldom()  # at import, as worker processes import this file, too

FOR_THE_USER_ALONE = 0o077
"""Permissions denied to files and folders of a command."""


def main() -> None:
    """Run the command `learnkernels`; if a library is missing, exit with a message."""
    prepare_python()
    os.umask(FOR_THE_USER_ALONE)
    # Otherwise Python would visit all objects once more, for two seconds
    atexit.register(gc.freeze)
    with orderly_end():
        if lacking := lacking_libraries("the command learnkernels"):
            sys.exit(f"error: {lacking}")
        import learnkernels.reproduction.command  # noqa: F401
        from learnkernels.flows.cli import app

        app()


if __name__ == "__main__":
    main()
