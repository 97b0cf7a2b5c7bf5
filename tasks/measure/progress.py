"""Progress of a run: a bar or lines, and an artifact in Prefect."""

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


class StepProgress:
    """Progress of a step of a run, which any thread can advance."""

    def __init__(self, run: RunProgress, description: str, trials: int) -> None:
        self.run = run
        self.description = description
        self.trials = trials
        self.share = 0.0
        self.start_time = time.monotonic()
        self.last_advance = self.start_time

    def advance(self, steps: float = 1.0) -> None:
        self.run.advance_step(self, steps)

    @property
    def remaining_trials(self) -> int:
        return max(0, self.trials - round(self.share * self.trials))

    def remaining_seconds(self, mean: float) -> float:
        """Return estimated seconds left; before any progress, the mean of a step."""
        if not self.share:
            return mean
        if not self.trials:
            return 0.0
        return (self.last_advance - self.start_time) / self.share * (1 - self.share)


class RunProgress(AbstractContextManager["RunProgress"]):
    """Progress of a run with a known number of steps.

    `timed` steps, those with trials, predict the remaining time.
    """

    def __init__(
        self,
        steps: int,
        key: str = "comparison-progress",
        subject: str = "the comparison",
        timed: int = 0,
        at_once: int = 1,
    ) -> None:
        self._n_steps = steps
        self._n_waiting = timed
        self._at_once = at_once
        self._key = key
        self._subject = subject
        self._done = 0.0
        self._step = StepProgress(self, "starting", 0)
        self._running: list[StepProgress] = []  # steps with trials
        self._timed_steps = 0.0
        self._timed_seconds = 0.0
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
        self._artifact = create_progress_artifact(
            0.0, key=self._key, description=f"Share of {self._subject} done"
        )  # type: ignore[assignment]
        self._bar.start()
        return self

    def start(self, description: str, trials: int = 0) -> StepProgress:
        self._step = StepProgress(self, description, trials)
        with self._lock:
            if trials:
                self._n_waiting -= 1
                self._running.append(self._step)
            self._show(self._step)
        return self._step

    def advance(self, steps: float = 1.0) -> None:
        """Record that steps of the run, or a share of a step, are done."""
        self.advance_step(self._step, steps)

    def skip(self) -> None:
        with self._lock:
            self._done += 1

    def advance_step(self, step: StepProgress, steps: float) -> None:
        now = time.monotonic()
        with self._lock:
            # Stored results come all at once
            if step.trials == 1 or steps < 1 <= step.trials:
                self._timed_steps += steps
                self._timed_seconds += now - step.last_advance
            self._done += steps
            step.share += steps
            step.last_advance = now
            if step in self._running and not step.remaining_trials:
                self._running.remove(step)
            self._bar.update(
                self._row, completed=self._done, description=self._text(step)
            )
            # Each update calls the server
            if now - self._updated > 2.0:
                if step.remaining_trials:
                    self._show(step)
                self._publish()

    def _text(self, step: StepProgress) -> str:
        text = step.description
        if step.trials:
            text += f", {round(step.share * step.trials)}/{step.trials} trials done"
        if (
            self._timed_steps
            and self._n_waiting >= 0
            and (self._running or self._n_waiting)
        ):
            mean = self._timed_seconds / self._timed_steps
            seconds = mean * self._n_waiting
            seconds += sum(running.remaining_seconds(mean) for running in self._running)
            text += f", about {seconds / self._at_once:,.0f} s left"
        return text

    def _show(self, step: StepProgress) -> None:
        text = self._text(step)
        self._bar.update(self._row, description=text)
        if not self._console.is_terminal:
            number = round(self._done - step.share)
            self._console.print(
                f"[{number}/{self._n_steps}] {text}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )

    def _publish(self) -> None:
        self._updated = time.monotonic()
        if self._artifact is not None:
            percent = round(min(100.0, 100 * self._done / self._n_steps), 1)
            update_progress_artifact(self._artifact, progress=percent)

    def __exit__(self, *_: Any) -> None:
        self._bar.stop()
        self._publish()
