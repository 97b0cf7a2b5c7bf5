"""Numbers computed from the trials of an item, for its claims."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from learnkernels.tasks.reporting.tables import mean_shares

from .item import CellConfig, PaperItem
from .trials import values_by_trial

N_RESAMPLES = 1000

INTERVAL = (0.05, 0.95)


def weight_cosines(item: PaperItem, folds: pd.DataFrame) -> dict[str, float]:
    """Return cosines between the mean kernel weights of two learners, by data set."""
    cosines = {}
    trials = folds[folds["learner"].isin(item.figure.learners)]
    for dataset, group in trials.groupby("dataset", sort=False):
        shares = {}
        for learner, rows in group.groupby("learner", sort=False):
            shares[str(learner)] = mean_shares(rows)
        for first, second in itertools.permutations(shares, 2):
            a = shares[first]
            b = shares[second]
            cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
            cosines[f"cosine of {first} and {second} on {dataset}"] = float(cosine)
    return cosines


def parameter_deviations(item: PaperItem, folds: pd.DataFrame) -> dict[str, float]:
    """Return relative errors of learned kernel parameters, by learner and data set.

    The largest error over trials and the heaviest base kernels counts.
    """
    true_values = np.sort(np.asarray(item.found))
    n_values = len(true_values)
    deviations = {}
    with_parameters = folds.dropna(subset=["parameters"])
    for (dataset, learner), group in with_parameters.groupby(
        ["dataset", "learner"], sort=False
    ):
        if group["parameters"].map(len).min() < n_values:
            continue
        learned = []
        for parameters, weights in zip(
            group["parameters"], group["weights"], strict=True
        ):
            heaviest = np.argsort(weights)[-n_values:]
            learned.append(np.sort([parameters[k][0] for k in heaviest]))
        relative = np.abs(np.array(learned) - true_values) / true_values
        deviations[f"found by {learner} on {dataset}, apart"] = float(relative.max())
    return deviations


def derived_values(item: PaperItem, folds: pd.DataFrame) -> dict[str, float]:
    """Compute the numbers that claims of the paper refer to, by name."""
    means = folds.groupby(["dataset", "learner"], sort=False)["error"].mean()
    values = {}
    for (dataset, learner), error in means.items():
        values[f"error of {learner} on {dataset}"] = float(error)
    values |= iteration_counts(folds)
    values |= correlation_values(alignment_correlations(item, folds))
    if item.figure.kind == "weights":
        values |= weight_cosines(item, folds)
    if item.found:
        values |= parameter_deviations(item, folds)
    return values


def iteration_counts(folds: pd.DataFrame) -> dict[str, float]:
    """Return mean, median and largest numbers of iterations of each learner.

    Names are such as ``"iterations of A, mean"``.
    """
    columns = {
        "iterations": folds["iterations"].astype(float),
        "additions": folds["history"].map(_length_or_missing).astype(float),
    }
    values = {}
    for name, column in columns.items():
        for learner, counts in column.groupby(folds["learner"], sort=False):
            if counts.notna().any():
                values[f"{name} of {learner}, mean"] = float(counts.mean())
                values[f"{name} of {learner}, median"] = float(counts.median())
                values[f"{name} of {learner}, most"] = float(counts.max())
    return values


def _length_or_missing(history: np.ndarray | list[float] | None) -> float:
    if history is None or np.isscalar(history):
        return np.nan
    return float(len(history))


@dataclass(frozen=True)
class AlignmentCorrelation:
    """Correlation of accuracy and alignment over the learners on one data set.

    `resampled` are correlations of means over trials drawn with replacement.
    """

    dataset: str
    n_learners: int
    paper: float
    reproduced: float
    resampled: np.ndarray


def alignment_correlations(
    item: PaperItem, folds: pd.DataFrame
) -> list[AlignmentCorrelation]:
    """Return correlations of alignment and accuracy over learners, by data set."""
    correlations_of_sets = []
    for dataset in dict.fromkeys(cell.dataset for cell in item.printed):
        for measure in ("alignment", "test_alignment"):
            cells = [
                cell
                for cell in item.printed
                if cell.dataset == dataset and cell.error and getattr(cell, measure)
            ]
            correlation_of_set = _correlate(cells, measure, folds)
            if correlation_of_set is not None:
                correlations_of_sets.append(correlation_of_set)
    return correlations_of_sets


def _correlate(
    cells: Sequence[CellConfig], measure: str, folds: pd.DataFrame
) -> AlignmentCorrelation | None:
    if len(cells) < 3:
        return None
    dataset = cells[0].dataset
    learners = [cell.learner for cell in cells]
    errors = pd.concat(
        [values_by_trial(folds, dataset, learner, "error") for learner in learners],
        axis=1,
    )
    alignments = pd.concat(
        [values_by_trial(folds, dataset, learner, measure) for learner in learners],
        axis=1,
    )
    trials = pd.concat([errors, alignments], axis=1, join="inner").dropna().to_numpy()
    if not len(trials):
        return None
    rng = np.random.default_rng(0)
    draws = rng.integers(len(trials), size=(N_RESAMPLES, len(trials)))
    means = np.vstack([trials.mean(axis=0), trials[draws].mean(axis=1)])
    correlations = _row_correlations(-means[:, : len(cells)], means[:, len(cells) :])
    paper_errors = [cell.error[0] for cell in cells if cell.error]
    paper_alignments = [getattr(cell, measure)[0] for cell in cells]
    paper = _row_correlations(-np.array([paper_errors]), np.array([paper_alignments]))
    return AlignmentCorrelation(
        str(dataset),
        len(cells),
        float(paper[0]),
        float(correlations[0]),
        correlations[1:],
    )


def _row_correlations(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return correlations of rows of two arrays; zero for constants."""
    a = a - a.mean(axis=1, keepdims=True)
    b = b - b.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    products = (a * b).sum(axis=1)
    return np.asarray(
        np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    )


def correlation_values(
    correlations: Sequence[AlignmentCorrelation],
) -> dict[str, float]:
    """Return correlations by name, with their minimum, and mean with a 90 % interval."""
    if not correlations:
        return {}
    values = {
        f"correlation on {correlation.dataset}": correlation.reproduced
        for correlation in correlations
    }
    values["correlation, least"] = min(
        correlation.reproduced for correlation in correlations
    )
    values["correlation, mean"] = float(
        np.mean([correlation.reproduced for correlation in correlations])
    )
    resampled_means = np.mean(
        [correlation.resampled for correlation in correlations], axis=0
    )
    low, high = np.quantile(resampled_means, INTERVAL)
    values["correlation, mean, lower end"] = float(low)
    values["correlation, mean, upper end"] = float(high)
    return values
