"""Comparison of measured numbers with the published ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from learnkernels.tasks.reporting.tables import ranks

from .item import CellConfig, PaperItem
from .trials import ranked_learners, values_by_trial

Unit = Literal["paper", "binomial", "here"]


@dataclass(frozen=True)
class Cell:
    """Number in a paper's table, with the number measured here.

    `apart` is ``here - paper`` in standard deviations of the source `unit`, None for
    ranks; `standard_errors` counts standard errors of the difference. `shared_by` are
    the learners of a number that the paper prints once.
    """

    dataset: str | None
    learner: str | None
    measure: str
    paper: float
    paper_sd: float | None
    here: float | None
    here_sd: float | None
    apart: float | None
    metric: str | None = None
    unit: Unit = "paper"
    standard_errors: float | None = None
    shared_by: tuple[str | None, ...] = ()

    def within(self, deviations: float) -> bool:
        """Return whether paper and measurement agree within `deviations` standard deviations."""
        return self.apart is not None and abs(self.apart) <= deviations

    def within_errors(self, standard_errors: float) -> bool:
        """Return whether paper and measurement agree within `standard_errors` standard errors."""
        return (
            self.standard_errors is not None
            and abs(self.standard_errors) <= standard_errors
        )


@dataclass(frozen=True)
class Measured:
    """Measured number: mean and standard deviation over splits."""

    mean: float | None = None
    sd: float | None = None
    trials: int | None = None


def compare_cells(
    item: PaperItem, folds: pd.DataFrame | None, values: Mapping[str, float]
) -> list[Cell]:
    """Return the numbers of a paper's table or figure, with the measured numbers."""
    rank_table = pd.DataFrame()
    metrics: dict[Any, Any] = {}
    if folds is not None:
        rank_table = ranks(folds, ranked_learners(item, folds))
        metrics = folds.groupby("dataset")["metric"].first().to_dict()
    cells = []
    for printed in item.printed:
        shared_by: tuple[str | None, ...] = ()
        if printed.also:
            shared_by = printed.learners
        for learner in printed.learners:
            for measure, numbers in printed.measures().items():
                measured = _measure(
                    printed, learner, measure, folds, values, rank_table
                )
                cell = _compare_number(item, measure, numbers, measured)
                metric = metrics.get(printed.dataset)
                cells.append(
                    replace(
                        cell,
                        dataset=printed.dataset,
                        learner=learner,
                        metric=metric,
                        shared_by=shared_by,
                    )
                )
    return cells


def _compare_number(
    item: PaperItem, measure: str, numbers: Sequence[float], measured: Measured
) -> Cell:
    """Return the cell of a number, without data set and learner."""
    paper = float(numbers[0])
    paper_sd = None
    if len(numbers) == 2:
        paper_sd = float(numbers[1])
    unit: Unit = "paper"
    deviation = paper_sd
    if paper_sd is None and item.test_rows is not None and measure == "error":
        unit = "binomial"
        deviation = binomial_deviation(paper, item.test_rows)
    elif not paper_sd:
        unit = "here"
        deviation = measured.sd
    apart = None
    standard_errors = None
    if measured.mean is not None and deviation and measure != "rank":
        distance = measured.mean - paper
        apart = distance / deviation
        standard_error = _standard_error(item, unit, deviation, measured)
        if standard_error:
            standard_errors = distance / standard_error
    return Cell(
        dataset=None,
        learner=None,
        measure=measure,
        paper=paper,
        paper_sd=paper_sd,
        here=measured.mean,
        here_sd=measured.sd,
        apart=apart,
        unit=unit,
        standard_errors=standard_errors,
    )


def binomial_deviation(rate: float, rows: int) -> float:
    """Return the standard deviation of an error rate on `rows` test rows."""
    return math.sqrt(rate * (1 - rate) / rows)


def _standard_error(
    item: PaperItem, unit: Unit, deviation: float, measured: Measured
) -> float | None:
    """Return the standard error of a difference, for independent trials."""
    if measured.trials is None or measured.sd is None:
        return None
    variance = measured.sd**2 / measured.trials
    if unit == "binomial":
        variance += deviation**2
    elif item.trials is not None:
        variance += deviation**2 / item.trials
    return math.sqrt(variance)


def _measure(
    printed: CellConfig,
    learner: str | None,
    measure: str,
    folds: pd.DataFrame | None,
    values: Mapping[str, float],
    rank_table: pd.DataFrame,
) -> Measured:
    if printed.name == measure:
        trials = None
        if "trials" in values:
            trials = int(values["trials"])
        return Measured(values.get(measure), values.get(f"{measure} sd"), trials)
    if measure == "rank":
        if learner not in rank_table:
            return Measured()
        return Measured(float(rank_table[learner].median()))
    if folds is None:
        return Measured()
    numbers = values_by_trial(folds, printed.dataset, learner, measure)
    if numbers.empty:
        return Measured()
    if len(numbers) == 1:
        return Measured(float(numbers.mean()))
    return Measured(float(numbers.mean()), float(numbers.std()), len(numbers))


def systematic_deviations(cells: Sequence[Cell]) -> list[str]:
    """Return sentences on learners or measures with all numbers above, or below, the paper's."""
    comparable = [
        cell
        for cell in cells
        if cell.apart is not None and cell.paper_sd and cell.learner
    ]
    if not comparable:
        return []
    table = pd.DataFrame(comparable)
    sentences = []
    for (dataset, measure), group in table.groupby(["dataset", "measure"], sort=False):
        deviations = group["apart"].tolist()
        side = _common_side(deviations)
        if side and len(deviations) >= 3 and abs(np.mean(deviations)) >= 1.0:
            sentences.append(
                _deviation_sentence(str(dataset), str(measure), side, deviations)
            )
    for (metric, measure), group in table.groupby(["metric", "measure"], sort=False):
        deviations = group["apart"].tolist()
        side = _common_side(deviations)
        if side and len(deviations) >= 8:
            sentences.append(
                _deviation_sentence(
                    f"Data sets measured by {metric}", str(measure), side, deviations
                )
            )
    return sentences


def _common_side(deviations: Sequence[float]) -> Literal["above", "below"] | None:
    rounded = [round(deviation, 1) for deviation in deviations]
    if min(rounded) > 0:
        return "above"
    if max(rounded) < 0:
        return "below"
    return None


def _deviation_sentence(
    place: str, measure: str, side: str, deviations: Sequence[float]
) -> str:
    sizes = [abs(deviation) for deviation in deviations]
    return (
        f"{place}: all {len(sizes)} values of {measure} are {side} the paper's, "
        f"by {min(sizes):.1f} to {max(sizes):.1f} deviations."
    )
