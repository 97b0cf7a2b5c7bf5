"""Predictors of the second stage, one file each, and the table that lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from kernels.predictors.krr import KernelRidgePath
from kernels.predictors.svm import FINE_TOLERANCE, SupportVectorPath
from kernels.targets import Task


class RegularisationPath(Protocol):
    """Predictors fitted on one Gram matrix, one a regularisation."""

    def predict(self, K_cross: np.ndarray) -> np.ndarray:
        """Return predictions in the terms of the target, one row a regularisation."""
        ...

    def coefficients(self, position: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return dual, shape (m, r), and intercept, shape (r,), at a position of the grid: scores are linear in them.

        One column an output, a class, or a pair of classes; a single one for two classes, above zero for the second.
        """
        ...


@dataclass(frozen=True)
class Predictor:
    """One row of the table of predictors.

    Attributes
    ----------
    fit : callable
        ``fit(K, target, grid, sample_weight=None, **options) -> RegularisationPath`` on a centered Gram matrix of mean
        diagonal one.
    summary : str
        What it is, for help pages.
    tasks : tuple of str
        The tasks it serves.
    fine : mapping of str to float
        Options of `fit` under which scores have all digits that are read; a comparison asks for errors alone.
    """

    fit: Callable[..., RegularisationPath]
    summary: str
    tasks: tuple[Task, ...]
    fine: Mapping[str, float] = field(default_factory=dict)


PREDICTORS: dict[str, Predictor] = {
    "krr": Predictor(KernelRidgePath, "kernel ridge regression", ("classification", "regression")),
    "svm": Predictor(SupportVectorPath, "support vector machine", ("classification",), {"tolerance": FINE_TOLERANCE}),
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
    "KernelRidgePath",
    "Predictor",
    "RegularisationPath",
    "SupportVectorPath",
    "resolve_predictor",
]
