"""What a study of a paper's item gives, whatever its kind, and how much of the paper it found again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import pandas as pd
from matplotlib.figure import Figure

from learnkernels.conf.papers.item import PaperItem
from learnkernels.tasks.papers.judge import Cell, Verdict, cells, claims, derived, without_unknown


@dataclass(frozen=True)
class StudyResult:
    """Numbers, tables and figures of one item.

    Attributes
    ----------
    folds : DataFrame or None
        The fold table, with the columns of `tasks.measure.evaluation.COLUMNS`, where learners were compared.
    values : dict of str to float
        Named numbers, such as ``"rho kinematics"``, that claims and printed cells speak of; ``"rho kinematics sd"`` is
        the deviation of that one.
    tables : list of (str, list of dict)
        Caption and rows of tables to show as they are; the columns are the keys, in order.
    figures : dict of str to Figure
        File name without its ending -> figure, drawn by `matplotlib.figure.Figure` alone.
    """

    folds: pd.DataFrame | None = None
    values: dict[str, float] = field(default_factory=dict)
    tables: list[tuple[str, list[dict[str, Any]]]] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)


class Summary(TypedDict):
    """How much of an item was found again: numbers near those of the paper, claims that hold, each of how many."""

    cells_near: int
    cells: int
    claims_hold: int
    claims: int
    seconds: float


@dataclass(frozen=True)
class Kept:
    """An item with results on disk.

    Attributes
    ----------
    item : PaperItem
    result : StudyResult
        Without figures.
    figures : tuple of str
        Their file names.
    facts : dict
        seconds, cores, data, date, quick, environment and the digest of the study.
    folder : Path
    """

    item: PaperItem
    result: StudyResult
    figures: tuple[str, ...]
    facts: dict[str, Any]
    folder: Path

    @property
    def heading(self) -> str:
        """Paper, place and title of the item."""
        return f"{self.item.paper}, {self.item.where}: {self.item.title}"

    @property
    def values(self) -> dict[str, float]:
        """The named numbers: those of a study, and those that follow from trials."""
        folds = self.result.folds if self.item.is_comparison else None
        return self.result.values | ({} if folds is None else derived(self.item, folds))

    def cells(self) -> list[Cell]:
        """Return the paper's numbers beside ours; of a reduced form those that it has."""
        found = cells(self.item, self.result.folds, self.values)
        return [cell for cell in found if cell.here is not None or not self.facts["quick"]]

    def claims(self) -> list[Verdict]:
        """Return the verdict on each claim; of a reduced form on what it can judge."""
        found = claims(self.item, self.result.folds, self.values)
        if not self.facts["quick"]:
            return found
        return [one for verdict in found if (one := without_unknown(verdict)) is not None]

    def summary(self) -> Summary:
        """Return how much of the paper's item was found again."""
        compared = [cell.near for cell in self.cells()]
        words = [verdict.word for verdict in self.claims()]
        return Summary(
            cells_near=sum(near is True for near in compared),
            cells=sum(near is not None for near in compared),
            claims_hold=words.count("holds"),
            claims=len(words),
            seconds=float(self.facts["seconds"]),
        )


def total(summaries: Sequence[Summary]) -> Summary:
    """Return the summary of several items."""
    return Summary(**{key: sum(one[key] for one in summaries) for key in Summary.__annotations__})  # type: ignore
