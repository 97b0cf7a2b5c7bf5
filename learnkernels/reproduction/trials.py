"""Measures of a fold table by trial."""

from __future__ import annotations

import pandas as pd

from learnkernels.conf.schema import GRID_SEARCH_TITLE
from learnkernels.tasks.measure.t_tests import share_of_test

from .item import PaperItem


def values_by_trial(
    folds: pd.DataFrame, dataset: str | None, learner: str | None, measure: str
) -> pd.Series:
    """Return a learner's errors or other measure on a data set, by (repeat, fold), without NaN."""
    trials = folds[(folds["dataset"] == dataset) & (folds["learner"] == learner)]
    trials = trials.assign(seconds=seconds_by_trial(trials)).set_index(
        ["repeat", "fold"]
    )
    return trials[measure].astype(float).sort_index().dropna()


def seconds_by_trial(folds: pd.DataFrame) -> pd.Series:
    """Return the total seconds on each split: learning, fitting and shared steps."""
    seconds_pass = folds["seconds_pass"].astype(float).fillna(0.0)
    seconds: pd.Series = folds["seconds_weights"] + folds["seconds_fit"] + seconds_pass
    return seconds


def ranked_learners(item: PaperItem, folds: pd.DataFrame) -> list[str]:
    """Return the learners with ranks in the paper; if none, all but grid search."""
    with_rank = [str(cell.learner) for cell in item.printed if cell.rank is not None]
    if with_rank:
        return with_rank
    return [
        str(learner)
        for learner in folds["learner"].unique()
        if learner != GRID_SEARCH_TITLE
    ]


def share_of_test_rows(folds: pd.DataFrame, dataset: str) -> float:
    """Return the ratio of test rows to other rows, which the corrected t-test needs."""
    trials = folds[folds["dataset"] == dataset]
    return share_of_test(trials["n_test"].to_numpy(), trials["n_rows"].to_numpy())
