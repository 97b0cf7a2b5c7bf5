"""The command `learnkernels`, with `papers`, where the libraries are installed that it runs on."""

import os
import sys


def without_working_directory(paths: list[str]) -> list[str]:
    """Return where modules are looked for without the working directory, unless it holds this package.

    Python adds it for `-m` and PYTHONPATH. A file of the user's there, such as logging.py, would replace a library's.
    """
    try:
        here = os.getcwd()
    except OSError:  # it is gone
        return paths
    if here == os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
        return paths
    return [path for path in paths if path and os.path.realpath(path) != here]


sys.path[:] = without_working_directory(sys.path)

from learnkernels.tasks.environment import collect_seldom, lacking_libraries, prepare_python  # noqa: E402
from learnkernels.tasks.stopping import orderly_end  # noqa: E402

collect_seldom()  # here, as workers that a command starts import this file, too

FOR_THE_USER_ALONE = 0o077
"""Permissions that files and folders of a command, and of the servers and workers that it starts, do not get."""


def main() -> None:
    """Run the command, or exit with the names of the libraries that it lacks."""
    prepare_python()
    os.umask(FOR_THE_USER_ALONE)
    with orderly_end():
        if lacking := lacking_libraries("the command learnkernels"):
            sys.exit(f"error: {lacking}")
        import learnkernels.reproduction.command  # noqa: F401
        from learnkernels.flows.cli import app

        app()


if __name__ == "__main__":
    main()
