"""What scoring a table gave: how far it is, what the predictions look like, and the report of it in Prefect."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import numpy as np
from prefect.artifacts import create_markdown_artifact

from learnkernels.kernels.tables import Met
from learnkernels.tasks.evidence.markdown import Markdown, code, link, markdown_table, plain
from learnkernels.tasks.evidence.mlflow_store import mlflow_ui
from learnkernels.tasks.evidence.progress import RunProgress
from learnkernels.tasks.models.registry import ModelVersion

LINE_SECONDS = 5.0
"""Least time between two lines of progress where there is no terminal."""

SHOWN = 20
"""How many labels the report shows before it only counts."""


@dataclass
class Distribution:
    """What one column of predictions looks like, kept up to date row by row.

    Attributes
    ----------
    counts : Counter
        Of labels: how often each was predicted.
    n, mean, squares, low, high
        Of numbers: how many, their mean, the sum of their squared distances from it, the smallest and the largest.
    """

    counts: Counter[str] = field(default_factory=Counter)
    n: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = np.inf
    high: float = -np.inf

    @classmethod
    def of(cls, values: np.ndarray, numbers: bool) -> Distribution:
        """Return the distribution of some numbers or labels, shape (n,)."""
        if not numbers:
            labels, counts = np.unique(values, return_counts=True)
            return cls(Counter({str(label): int(n) for label, n in zip(labels, counts, strict=True)}))
        if not len(values):
            return cls()
        mean = float(values.mean())
        return cls(Counter(), len(values), mean, float(((values - mean) ** 2).sum()), values.min(), values.max())

    def __add__(self, other: Distribution) -> Distribution:
        n, moved = self.n + other.n, other.mean - self.mean
        share = other.n / max(n, 1)
        return Distribution(
            self.counts + other.counts,
            n,
            self.mean + moved * share,
            self.squares + other.squares + moved**2 * self.n * share,
            min(self.low, other.low),
            max(self.high, other.high),
        )

    def summary(self) -> dict[str, float]:
        """Return counts by label, or mean, sd, min and max; nothing for no rows."""
        if self.counts or not self.n:
            return {label: self.counts[label] for label in sorted(self.counts)}
        sd = float(np.sqrt(self.squares / (self.n - 1))) if self.n > 1 else 0.0
        return {"mean": self.mean, "sd": sd, "min": self.low, "max": self.high}


@dataclass
class Tally:
    """What was counted of the rows that were scored; those of two parts of a table add up.

    Attributes
    ----------
    rows, missing : int
        How many there are, and how many have no prediction.
    distributions : dict of str to Distribution
        Of each column of predictions.
    met : Met
        Gaps and new levels of a table.
    """

    distributions: dict[str, Distribution]
    rows: int = 0
    missing: int = 0
    met: Met = field(default_factory=Met)

    def __add__(self, other: Tally) -> Tally:
        joined = {name: one + other.distributions[name] for name, one in self.distributions.items()}
        return Tally(joined, self.rows + other.rows, self.missing + other.missing, self.met + other.met)

    def scores(self, columns: Sequence[str], seconds: float) -> Scores:
        """Return it as plain data."""
        return Scores(
            rows=self.rows,
            missing=self.missing,
            columns=tuple(columns),
            distribution={name: one.summary() for name, one in self.distributions.items()},
            gaps=self.met.gaps,
            new_levels=self.met.levels,
            cells=tuple(self.met.sentences()),
            seconds=seconds,
        )


@dataclass(frozen=True)
class Scores:
    """What scoring a table gave, as plain data.

    Attributes
    ----------
    rows, missing : int
        How many rows there are, and how many of them have no prediction, because a feature is missing.
    columns : tuple of str
        Of the output.
    distribution : dict
        Of each column of predictions: counts by label, or mean, sd, min and max.
    seconds : float
    gaps, new_levels : dict of str to int
        Of each column of a table, rows with a gap that was filled, and with a level that no training row had.
    cells : tuple of str
        What is to be said of single cells that are none of what their column holds.
    """

    rows: int
    missing: int
    columns: tuple[str, ...]
    distribution: dict[str, dict[str, float]]
    seconds: float
    gaps: dict[str, int] = field(default_factory=dict)
    new_levels: dict[str, int] = field(default_factory=dict)
    cells: tuple[str, ...] = ()


class ProgressLines:
    """Shows how far a scoring is; after a second attempt began, it goes back with it.

    Parameters
    ----------
    progress : RunProgress
        Of 100 steps.
    """

    def __init__(self, progress: RunProgress) -> None:
        self._progress = progress
        self._share = 0.0
        self._said = time.monotonic()

    def __call__(self, share: float, rows: int) -> None:
        """Take note of the share that is done, and of how many rows that is; zero where nobody has counted them."""
        self._progress.advance(100 * (share - self._share))
        self._share = share
        if time.monotonic() - self._said > LINE_SECONDS:
            self._progress.start(f"{rows:,} rows scored" if rows else "scoring")
            self._said = time.monotonic()


def publish_scores(version: ModelVersion, source: str, output: str, scores: Scores) -> None:
    """Show in Prefect what was scored, with which version, and what the predictions look like."""
    page = f"{mlflow_ui()}/#/models/{quote(version.name, safe='')}/versions/{version.version}"
    facts: dict[str, Any] = {
        "input": code(source),
        "output": code(output),
        "columns": Markdown(", ".join(map(code, scores.columns))),
        "rows without a prediction, because a value is missing": f"{scores.missing:,}",
        **_counted("gaps that were filled", scores.gaps),
        **_counted("levels that no training row had", scores.new_levels),
        **{f"cell {i}": plain(sentence) for i, sentence in enumerate(scores.cells, 1)},
        "rows a second": f"{scores.rows / max(scores.seconds, 1e-9):,.0f}",
        "digest of the model": code(version.digest),
    }
    lines = [
        f"## {scores.rows:,} rows scored with {link(f'{version.name} version {version.version}', page)}",
        "",
        *markdown_table([{"": what, " ": fact} for what, fact in facts.items()]),
    ]
    for name, values in scores.distribution.items():
        table = markdown_table(_rows(values, scores.rows - scores.missing)) if values else ["There is none."]
        lines += ["", f"### {plain(name)}", "", *table]
    create_markdown_artifact("\n".join(lines), key="scoring", description=f"Scores of {code(source)}")


def _counted(what: str, columns: dict[str, int]) -> dict[str, Markdown]:
    """Return the rows of each column of which there are some, as a fact; nothing where there are none."""
    named = ", ".join(f"{code(name)} {count:,}" for name, count in columns.items())
    return {f"rows with {what}": Markdown(named)} if columns else {}


def _rows(values: dict[str, float], scored: int) -> list[dict[str, str]]:
    """Return what predictions look like as rows of a table: the most frequent labels, or the numbers in one row."""
    if not all(isinstance(value, int) for value in values.values()):
        return [{name: f"{value:.6g}" for name, value in values.items()}]
    most = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    if most[SHOWN:]:
        most[SHOWN:] = [(f"{len(most) - SHOWN} others", sum(count for _, count in most[SHOWN:]))]
    return [{"class": label, "rows": f"{count:,}", "share": f"{count / scored:.1%}"} for label, count in most]
