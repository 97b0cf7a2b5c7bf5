"""How far a run is: a bar in a terminal, plain lines elsewhere, and a progress artifact in Prefect."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from typing import Any
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

ARTIFACT_KEY = "comparison-progress"
ARTIFACT_SECONDS = 2.0
"""Least time between two updates of the artifact; each is a call to the server."""


class RunProgress(AbstractContextManager["RunProgress"]):
    """Progress of a run of a known number of steps."""

    def __init__(self, steps: int, key: str = ARTIFACT_KEY, of: str = "the comparison") -> None:
        self._steps = steps
        self._key, self._of = key, of
        self._done = 0.0
        self._console = Console(file=sys.stderr)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._row = self._bar.add_task("starting", total=steps)
        self._artifact: UUID | None = None
        self._updated = 0.0

    def __enter__(self) -> RunProgress:
        self._artifact = create_progress_artifact(0.0, key=self._key, description=f"Share of {self._of} done")  # type: ignore[assignment]
        self._bar.start()
        return self

    def start(self, description: str) -> None:
        """Say which step begins."""
        self._bar.update(self._row, description=description)
        if not self._console.is_terminal:
            self._console.print(f"[{round(self._done)}/{self._steps}] {description}", highlight=False, markup=False)

    def advance(self, steps: float = 1.0) -> None:
        """Add finished steps, or a share of one."""
        self._done += steps
        self._bar.update(self._row, completed=self._done)
        if time.monotonic() - self._updated > ARTIFACT_SECONDS:
            self._publish()

    def _publish(self) -> None:
        if self._artifact is not None:
            update_progress_artifact(self._artifact, progress=round(min(100.0, 100 * self._done / self._steps), 1))
            self._updated = time.monotonic()

    def __exit__(self, *_: Any) -> None:
        self._bar.stop()
        self._publish()
