"""Links from reports to the results of a run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from learnkernels.conf.errors import InputError, short

from ..databases import mlflow_address, mlflow_is_served
from ..environment import running_server
from .markdown import Markdown, link


def links_of_report(
    written: Path, target: Path, pages: Mapping[str, str]
) -> dict[str, str]:
    """Return links from a report to its files and web pages, by name."""
    names = sorted(path.name for path in written.iterdir() if path.is_file())
    links: dict[str, str] = {
        "files": Markdown(", ".join(link(name, name) for name in names))
    }
    if mlflow_is_served():
        return {**links, **pages}
    return {
        **links,
        "pages in MLflow and Prefect": f"learnkernels open {shlex.quote(str(target))}",
    }


def pages_of_run(place: str) -> dict[str, str]:
    """Return a run's addresses in MLflow and Prefect, if servers are running.

    `place` is a folder of results, a file in it, or the name of the run.
    """
    from .tracking import find_run  # MLflow and Prefect take a second to import

    path = Path(place)
    name = path.name
    if path.is_file():
        name = path.resolve().parent.name
    run = None
    if re.fullmatch(r"[\w.-]+", name):
        run = find_run(name)
    if run is None:
        raise InputError(
            f"there is no run {short(name)} in {mlflow_address()}; give a folder below results/NAME/, as commands "
            "print it, in the working directory of the run."
        )
    if not mlflow_is_served() and running_server("mlflow") is None:
        raise InputError(
            f"nothing shows {place} now; start 'learnkernels ui' in another terminal, and try again."
        )
    pages = {"MLflow run": run.url}
    if run.level == "comparison":
        pages["MLflow chart"] = run.chart_url
    return pages | {"Prefect": run.flow_run_url}
