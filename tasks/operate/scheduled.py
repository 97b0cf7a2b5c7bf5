"""Start a scheduled run in its own process.

``python -P -m learnkernels.tasks.operate.scheduled MODULE_OF_THE_FLOW`` imports the
flow before Prefect does, so that no file of the working directory shadows a module.
"""

from __future__ import annotations

import runpy
import sys
from importlib import import_module

from ..environment import prepare_python

ENGINE = "prefect.engine"


def command(module: str) -> list[str]:
    # -P: ignore modules of the working directory
    return [
        sys.executable,
        "-P",
        "-m",
        __name__,
        module,
    ]


def main(module: str) -> None:
    """Run the flow that Prefect's worker names in an environment variable."""
    prepare_python()
    import_module(module)
    sys.modules.pop(ENGINE, None)  # to run it again
    sys.argv = [ENGINE]
    runpy.run_module(ENGINE, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
