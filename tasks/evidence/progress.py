"""How far a run is: a bar in a terminal, plain lines elsewhere, and a progress artifact in Prefect."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from threading import RLock
from typing import Any
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

ARTIFACT_KEY = "comparison-progress"
ARTIFACT_SECONDS = 2.0
"""Least time between two updates of the artifact; each is a call to the server."""


class StepProgress:
    """Progress of a step, which any thread of a run may make.

    Parameters
    ----------
    run : RunProgress
        That of the run.
    description : str
        What the step does.
    trials : int
        How many trials it has.
    """

    def __init__(self, run: RunProgress, description: str, trials: int) -> None:
        self.run, self.description, self.trials, self.share = run, description, trials, 0.0
        self.began = self.since = time.monotonic()  # since its last advance

    def advance(self, steps: float = 1.0) -> None:
        """Add a finished step, or a share of it."""
        self.run.advance_step(self, steps)

    @property
    def left(self) -> float:
        """Seconds that it may still take, by its own trials so far; 0 where nothing is known."""
        if not self.trials or not self.share:
            return 0.0
        return (self.since - self.began) / self.share * (1 - self.share)


class RunProgress(AbstractContextManager["RunProgress"]):
    """Progress of a run of a known number of steps.

    Parameters
    ----------
    steps : int
    key, of : str
        Key of the artifact, and what it is the progress of.
    timed : int, default 0
        How many steps have trials, whose time gives the estimate of the rest; 0 for no estimate.
    at_once : int, default 1
        How many of them run at once.
    """

    def __init__(
        self, steps: int, key: str = ARTIFACT_KEY, of: str = "the comparison", timed: int = 0, at_once: int = 1
    ) -> None:
        self._steps, self._waiting, self._at_once = steps, timed, at_once
        self._key, self._of = key, of
        self._done = 0.0
        self._step = StepProgress(self, "starting", 0)
        self._running: list[StepProgress] = []  # steps with trials
        self._timed, self._seconds = 0.0, 0.0  # steps with trials, and what they took
        self._lock = RLock()
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

    def start(self, description: str, trials: int = 0) -> StepProgress:
        """Say which step begins, and return its progress, for a step in another thread.

        Parameters
        ----------
        description : str
            What it does.
        trials : int, default 0
            How many trials it has.
        """
        self._step = StepProgress(self, description, trials)
        with self._lock:
            if trials:
                self._waiting -= 1
                self._running.append(self._step)
            self._say(self._step)
        return self._step

    def advance(self, steps: float = 1.0) -> None:
        """Add finished steps, or a share of the step that was started last."""
        self.advance_step(self._step, steps)

    def skip(self) -> None:
        """Count a step that has nothing to do."""
        with self._lock:
            self._done += 1

    def advance_step(self, step: StepProgress, steps: float) -> None:
        """Add finished steps, or a share of one that was started."""
        now = time.monotonic()
        with self._lock:
            if step.trials == 1 or steps < 1 <= step.trials:  # results in the store come all at once, in no time
                self._timed += steps
                self._seconds += now - step.since
            self._done += steps
            step.share += steps
            step.since = now
            if step in self._running and round(step.share * step.trials) >= step.trials:
                self._running.remove(step)
            self._bar.update(self._row, completed=self._done, description=self._said(step))
            if now - self._updated > ARTIFACT_SECONDS:
                if round(step.share * step.trials) < step.trials:
                    self._say(step)
                self._publish()

    def _said(self, step: StepProgress) -> str:
        """Return what is being done, how many of its trials are finished, and how long the run may still take."""
        text = step.description
        if step.trials:
            text += f", {round(step.share * step.trials)}/{step.trials} trials done"
        if self._timed and self._waiting >= 0 and (self._running or self._waiting):
            mean = self._seconds / self._timed
            left = mean * self._waiting + sum(one.left if one.share else mean for one in self._running)
            text += f", about {left / self._at_once:,.0f} s left"
        return text

    def _say(self, step: StepProgress) -> None:
        said = self._said(step)
        self._bar.update(self._row, description=said)
        if not self._console.is_terminal:
            number = round(self._done - step.share)
            self._console.print(f"[{number}/{self._steps}] {said}", highlight=False, markup=False, soft_wrap=True)

    def _publish(self) -> None:
        self._updated = time.monotonic()
        if self._artifact is not None:
            update_progress_artifact(self._artifact, progress=round(min(100.0, 100 * self._done / self._steps), 1))

    def __exit__(self, *_: Any) -> None:
        self._bar.stop()
        self._publish()
