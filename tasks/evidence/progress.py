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
    """Progress of a run of a known number of steps.

    Parameters
    ----------
    steps : int
    key, of : str
        Key of the artifact, and what it is the progress of.
    timed : int, default 0
        How many steps have trials, whose time gives the estimate of the rest; 0 for no estimate.
    """

    def __init__(self, steps: int, key: str = ARTIFACT_KEY, of: str = "the comparison", timed: int = 0) -> None:
        self._steps, self._waiting = steps, timed
        self._key, self._of = key, of
        self._done = 0.0
        self._description, self._trials, self._share = "starting", 0, 0.0
        self._began, self._since = 0.0, 0.0  # the step, and its last advance
        self._timed, self._seconds = 0.0, 0.0  # steps with trials, and what they took
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

    def start(self, description: str, trials: int = 0) -> None:
        """Say which step begins.

        Parameters
        ----------
        description : str
            What it does.
        trials : int, default 0
            How many trials it has.
        """
        self._description, self._trials, self._share = description, trials, 0.0
        self._began = self._since = time.monotonic()
        self._waiting -= trials > 0
        self._say()

    def advance(self, steps: float = 1.0) -> None:
        """Add finished steps, or a share of one."""
        now = time.monotonic()
        if self._trials == 1 or steps < 1 <= self._trials:  # results in the store come all at once, in no time
            self._timed += steps
            self._seconds += now - self._since
        self._done, self._share, self._since = self._done + steps, self._share + steps, now
        self._bar.update(self._row, completed=self._done, description=self._said())
        if now - self._updated > ARTIFACT_SECONDS:
            if round(self._share * self._trials) < self._trials:
                self._say()
            self._publish()

    def _said(self) -> str:
        """Return what is being done, how many of its trials are finished, and how long the run may still take."""
        text = self._description
        if self._trials:
            text += f", {round(self._share * self._trials)}/{self._trials} trials done"
        if self._timed and self._waiting >= 0 and (self._trials or self._waiting):
            mean = self._seconds / self._timed
            own = (self._since - self._began) / self._share if self._share else mean
            left = mean * self._waiting + (own * (1 - self._share) if self._trials else 0.0)
            text += f", about {left:,.0f} s left"
        return text

    def _say(self) -> None:
        said = self._said()
        self._bar.update(self._row, description=said)
        if not self._console.is_terminal:
            step = round(self._done - self._share)
            self._console.print(f"[{step}/{self._steps}] {said}", highlight=False, markup=False, soft_wrap=True)

    def _publish(self) -> None:
        self._updated = time.monotonic()
        if self._artifact is not None:
            update_progress_artifact(self._artifact, progress=round(min(100.0, 100 * self._done / self._steps), 1))

    def __exit__(self, *_: Any) -> None:
        self._bar.stop()
        self._publish()
