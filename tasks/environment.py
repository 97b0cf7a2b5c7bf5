"""Where this installation keeps its state, and the settings that keep its parts quiet, local and safe."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from pathlib import Path
from typing import Literal

STATE_DIR = ".learnkernels"
"""Folder below the working folder for everything that can be made again."""

QUIET = {
    "DO_NOT_TRACK": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_CLI_PROMPT": "false",
    "MLFLOW_UV_AUTO_DETECT": "false",
}
"""No telemetry, no pickle, no question in the middle of a run; the user's environment overrides each."""


def state_dir() -> Path:
    """Return the state folder: LEARNKERNELS_HOME, or `.learnkernels` below the working folder."""
    return Path(os.environ.get("LEARNKERNELS_HOME") or STATE_DIR).absolute()


def prepare_environment() -> Path:
    """Set the environment of this process and its children, and return the state folder, made if missing.

    Must run before prefect, mlflow, dask or matplotlib are imported: they read it then. What the user has set
    stays, so a run goes to the Prefect server and the MLflow store of the usual environment variables.
    """
    state = state_dir()
    homes = _homes(state)
    for folder in (state, *homes.values()):
        folder.mkdir(parents=True, exist_ok=True)
    for key, value in {**QUIET, **{key: str(folder) for key, folder in homes.items()}}.items():
        os.environ.setdefault(key, value)
    os.environ.setdefault("MPLBACKEND", "Agg")
    os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{Path.cwd() / 'mlflow.db'}")
    return state


def _homes(state: Path) -> dict[str, Path]:
    return {
        "PREFECT_HOME": state / "prefect",
        "DASK_CONFIG": state / "dask",
        "DASK_TEMPORARY_DIRECTORY": state / "dask" / "spill",
        "MPLCONFIGDIR": state / "matplotlib",
        "TMPDIR": state / "tmp",
    }


def scheduled_settings() -> dict[str, str]:
    """Return the settings that a scheduled run takes along wherever its worker was started; call after preparing.

    Not among them: addresses of servers and databases, which may hold passwords and are the worker's to know.
    """
    kept = (*QUIET, *_homes(state_dir()), "MPLBACKEND", "LEARNKERNELS_HOME")
    return {key: os.environ[key] for key in kept if key in os.environ}


def without_passwords(text: str) -> str:
    """Return a text whose addresses name no user and no password, to be shown."""
    return re.sub(r"//[^/@\s]*@", "//", text)


def servers_note() -> Path:
    """Return where `learnkernels ui` and `up` note the addresses of the servers that they have started."""
    return state_dir() / "ui.json"


def running_server(name: Literal["prefect_api", "mlflow"]) -> str | None:
    """Return the address of a server of this folder's `learnkernels ui` or `up`, if it answers."""
    try:
        noted = json.loads(servers_note().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # there is none, or its note is damaged
    address = noted.get(name) if isinstance(noted, dict) else None
    return address if isinstance(address, str) and answers(f"{address}/health") else None


def answers(url: str) -> bool:
    """Return whether a page on a server of this folder can be had."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (OSError, ValueError):
        return False
