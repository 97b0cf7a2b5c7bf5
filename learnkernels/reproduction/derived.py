"""Numbers computed from the trials of an item, for its claims."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd

from learnkernels.tasks.reporting.tables import mean_shares

from .item import PaperItem


def weight_cosines(item: PaperItem, folds: pd.DataFrame) -> dict[str, float]:
    """Return the cosines between mean weights of learners, named ``"cosine of A and B on D"``."""
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
    """Return relative distances of learned from true parameters, named ``"found by A on D, apart"``.

    A trial compares the parameters of its heaviest base kernels, in ascending order; the largest distance counts.
    """
    true_values = np.sort(np.asarray(item.found))
    n_values = len(true_values)
    deviations = {}
    with_parameters = folds.dropna(subset=["parameters"])
    for (dataset, learner), group in with_parameters.groupby(["dataset", "learner"], sort=False):
        if group["parameters"].map(len).min() < n_values:
            continue
        learned = []
        for parameters, weights in zip(group["parameters"], group["weights"], strict=True):
            heaviest = np.argsort(weights)[-n_values:]
            learned.append(np.sort([parameters[k][0] for k in heaviest]))
        relative = np.abs(np.array(learned) - true_values) / true_values
        deviations[f"found by {learner} on {dataset}, apart"] = float(relative.max())
    return deviations


def derived_values(item: PaperItem, folds: pd.DataFrame) -> dict[str, float]:
    """Return numbers for claims: mean errors, named ``"error of A on D"``, cosines and distances of parameters."""
    means = folds.groupby(["dataset", "learner"], sort=False)["error"].mean()
    values = {}
    for (dataset, learner), error in means.items():
        values[f"error of {learner} on {dataset}"] = float(error)
    if item.figure.kind == "weights":
        values |= weight_cosines(item, folds)
    if item.found:
        values |= parameter_deviations(item, folds)
    return values
