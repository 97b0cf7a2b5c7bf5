"""Predictors of the second stage, one file each, and the table that lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from learnkernels.kernels.learned import LearnedKernel
from learnkernels.kernels.predictors.krr import KernelRidgePath
from learnkernels.kernels.predictors.krr_cg import TOLERANCE as CONJUGATE_TOLERANCE
from learnkernels.kernels.predictors.krr_cg import ConjugateRidgePath
from learnkernels.kernels.predictors.landmarks import MEMORY
from learnkernels.kernels.predictors.nystrom import FINE_TOLERANCE as NYSTROM_FINE
from learnkernels.kernels.predictors.nystrom import TOLERANCE as NYSTROM_TOLERANCE
from learnkernels.kernels.predictors.nystrom import NystromPath
from learnkernels.kernels.predictors.rows import KernelOnRows
from learnkernels.kernels.predictors.svm import FINE_TOLERANCE, SupportVectorPath
from learnkernels.kernels.targets import Task


class RegularisationPath(Protocol):
    """Predictors fitted on one kernel, one a regularisation."""

    def predict(self, K_cross: np.ndarray) -> np.ndarray:
        """Return predictions in the terms of the target, one row a regularisation."""
        ...

    def coefficients(self, position: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return dual, shape (m, r), and intercept, shape (r,), at a position of the grid: scores are linear in them.

        One column an output, a class, or a pair of classes; a single one for two classes, above zero for the second.
        """
        ...


class RowsPath(RegularisationPath, Protocol):
    """Predictors fitted on rows and never on their Gram matrix.

    Attributes
    ----------
    kernel : LearnedKernel
        Whose `cross_gram` they take: over all training rows, or over a few that stand for them.
    notes : tuple of str
        What was done, for a log.
    """

    kernel: LearnedKernel
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Predictor:
    """One row of the table of predictors.

    Attributes
    ----------
    fit : callable
        ``fit(K, target, grid, sample_weight=None, **options) -> RegularisationPath`` on a centered Gram matrix of mean
        diagonal one; with `by_rows` it is ``fit(on, target, grid, **options) -> RowsPath`` on a `KernelOnRows`.
    summary : str
        What it is, for help pages.
    tasks : tuple of str
        The tasks it serves.
    by_rows : bool
        Whether it is fitted on rows, and the matrix of all of them is never formed.
    options : mapping of str to value
        Names and defaults of its options.
    fine : mapping of str to float
        Options of `fit` under which scores have all digits that are read; a comparison asks for errors alone.
    """

    fit: Callable[..., Any]
    summary: str
    tasks: tuple[Task, ...]
    by_rows: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    fine: Mapping[str, float] = field(default_factory=dict)


PREDICTORS: dict[str, Predictor] = {
    "krr": Predictor(KernelRidgePath, "kernel ridge regression", ("classification", "regression")),
    "krr-cg": Predictor(
        ConjugateRidgePath,
        "kernel ridge regression by conjugate gradients",
        ("classification", "regression"),
        by_rows=True,
        options={"tolerance": CONJUGATE_TOLERANCE, "seed": 0},
    ),
    "nystrom": Predictor(
        NystromPath,
        "kernel ridge regression, or a linear classifier, on landmarks",
        ("classification", "regression"),
        by_rows=True,
        options={
            "landmarks": None,
            "memory": MEMORY,
            "sampling": "uniform",
            "loss": "squared",
            "tolerance": NYSTROM_TOLERANCE,
            "seed": 0,
        },
        fine={"tolerance": NYSTROM_FINE},
    ),
    "svm": Predictor(
        SupportVectorPath, "support vector machine", ("classification",), fine={"tolerance": FINE_TOLERANCE}
    ),
}
"""The predictors by name, as configurations and estimators call them."""

DEFAULT_PREDICTOR: dict[Task, str] = {"classification": "svm", "regression": "krr"}
"""What ``auto`` stands for."""


def resolve_predictor(name: str, task: Task, own: str | None = None) -> str:
    """Return the name of the predictor to use for a task.

    Parameters
    ----------
    name : str
        A predictor of the table, or ``auto``.
    task : {"classification", "regression"}
        What it is to serve.
    own : str, optional
        The predictor whose problem the learner solves; ``auto`` stands for it.

    Returns
    -------
    name : str

    Raises
    ------
    ValueError
        The name is unknown, or the predictor does not serve the task.
    """
    if name == "auto":
        return own or DEFAULT_PREDICTOR[task]
    if name not in PREDICTORS:
        raise ValueError(f"predictor must be one of auto, {', '.join(sorted(PREDICTORS))}, got {name!r}.")
    if task not in PREDICTORS[name].tasks:
        raise ValueError(f"predictor {name} does not serve {task}; use auto or {DEFAULT_PREDICTOR[task]}.")
    return name


__all__ = [
    "DEFAULT_PREDICTOR",
    "PREDICTORS",
    "ConjugateRidgePath",
    "KernelOnRows",
    "KernelRidgePath",
    "NystromPath",
    "Predictor",
    "RegularisationPath",
    "RowsPath",
    "SupportVectorPath",
    "resolve_predictor",
]
