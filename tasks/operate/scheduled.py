"""A scheduled run as a process of its own: `python -m prefect.engine`, with the flow imported before.

    python -P -m learnkernels.tasks.operate.scheduled MODULE_OF_THE_FLOW

Prefect has Python look for modules in the working directory first while it imports a flow. Imported before, no file of
the user's there, such as logging.py, takes the place of another module.
"""

from __future__ import annotations

import runpy
import sys
from importlib import import_module

from ..environment import prepare_python

ENGINE = "prefect.engine"


def command(module: str) -> list[str]:
    """Return the command that runs a flow of a module."""
    return [sys.executable, "-P", "-m", __name__, module]  # -P: no module of the working directory comes first


def main(module: str) -> None:
    """Run the flow that Prefect's worker names in the environment."""
    prepare_python()
    import_module(module)
    sys.modules.pop(ENGINE, None)  # it is to run, and not to be what others have imported
    sys.argv = [ENGINE]
    runpy.run_module(ENGINE, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
