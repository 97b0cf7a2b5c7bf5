"""Support vector machines on a precomputed kernel."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from learnkernels.kernels.centering import Centering
from learnkernels.kernels.predictors.base import ExactPredictor
from learnkernels.kernels.solvers.svm import AT_BOUND, solve_svm
from learnkernels.kernels.targets import Target

if TYPE_CHECKING:
    from sklearn.svm import SVC

MAX_ITERATIONS = 200_000
"""Of scikit-learn's solver; kernels of low rank with a large C need more, and are solved by interior points instead."""

MAX_WEIGHTED_ITERATIONS = 10 * MAX_ITERATIONS
"""The same with sample weights, which interior points do not know."""

TOLERANCE = 1e-3
"""Of a comparison's machines, scikit-learn's own."""

FINE_TOLERANCE = 1e-9
"""Of machines whose scores are shown: then they do not depend on the order of the rows in any digit that is read."""


class ExactMachine:
    """A support vector classifier solved by active sets and interior points; several classes one against one.

    Attributes
    ----------
    C : float
    dual : ndarray of shape (m, n_pairs)
        Signed coefficients of each pair of classes.
    intercepts : ndarray of shape (n_pairs,)
    """

    def __init__(
        self, K: np.ndarray, labels: np.ndarray, C: float, start: ExactMachine | None = None, intercept: bool = True
    ) -> None:
        """Fit on a Gram matrix and the labels of its rows, at least two different ones, from a machine of another C."""
        pairs = list(combinations(np.unique(labels).tolist(), 2))
        self.C, self.dual, self.intercepts = C, np.zeros((len(K), len(pairs))), np.zeros(len(pairs))
        for j, (first, second) in enumerate(pairs):
            rows = np.flatnonzero((labels == first) | (labels == second))
            y = np.where(labels[rows] == second, 1.0, -1.0)
            # What counts of a start is which rows are at a bound, and that moves with C.
            guess = None if start is None else np.abs(start.dual[rows, j]) * (C / start.C)
            machine = solve_svm(K[np.ix_(rows, rows)], y, C, guess, intercept)
            self.dual[rows, j], self.intercepts[j] = y * machine.coefficients, machine.intercept


@dataclass(frozen=True, eq=False, repr=False)
class SVM(ExactPredictor):
    """Support vector machine; several classes one against one.

    Parameters
    ----------
    tolerance : float or None, default None
        Of the conditions of optimality, in units of the margin; None for 1e-3 where machines are compared, and 1e-9
        where their scores are shown.

    Notes
    -----
    O(m^2) to O(m^3) time and O(m^2) memory for m training rows; see `SupportVectorPath`.
    """

    name = "svm"
    summary = "support vector machine"
    tasks = ("classification",)
    one_vs_one = True
    loss: ClassVar[str] = "hinge"

    tolerance: float | None = None

    def fit(
        self,
        K: np.ndarray,
        target: Target,
        grid: Sequence[float],
        sample_weight: np.ndarray | None = None,
        fine: bool = False,
        centering: Centering = Centering.CENTER,
    ) -> SupportVectorPath:
        """Fit on a Gram matrix of mean diagonal one, centered or without intercept."""
        default = FINE_TOLERANCE if fine else TOLERANCE
        tolerance = default if self.tolerance is None else self.tolerance
        return SupportVectorPath(K, target, grid, sample_weight, tolerance, centering)


class SupportVectorPath:
    """Support vector classifiers, one a regularisation; several classes one against one.

    Attributes
    ----------
    machines : list of sklearn.svm.SVC or ExactMachine
        One fitted machine a regularisation.
    """

    def __init__(
        self,
        K: np.ndarray,
        target: Target,
        grid: Sequence[float],
        sample_weight: np.ndarray | None = None,
        tolerance: float = TOLERANCE,
        centering: Centering = Centering.CENTER,
    ) -> None:
        """Fit.

        Parameters
        ----------
        K : ndarray of shape (m, m)
            Gram matrix of the training rows. Not modified.
        target : Target
            Of the training rows; a classification with at least two classes among them.
        grid : sequence of float
            Values of Lambda, the scale of the kernel for C = 1, which is C for a kernel of scale one.
        sample_weight : ndarray of shape (m,), optional
            Positive; C of a row is multiplied by it. Not modified.
        tolerance : float, default 1e-3
            Of the conditions of optimality, in units of the margin.
        centering : Centering, default "center"
            Whether the matrix is centered, and machines have an intercept.

        Raises
        ------
        ValueError
            Rows of machines without intercept have weights.

        Warns
        -----
        ConvergenceWarning
            The solver ended before the tolerance, with sample weights; without them another solver takes over.

        References
        ----------
        Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5.

        Notes
        -----
        A machine none of whose coefficients is at its bound is that of every larger C as well, and is not fitted again.
        One that scikit-learn's solver does not end for is the start of the next, which does without that solver. So do
        machines without intercept, which it does not know.
        """
        intercept = centering.intercept
        if not intercept and sample_weight is not None:
            raise ValueError(
                "support vector machines without intercept learn from rows that count once each, got sample_weight or "
                "class_weight with centering='none'; leave one of them out, or take predictor krr."
            )
        self._rows, self._classes = len(K), np.unique(target.values)
        self.machines: list[SVC | ExactMachine] = []
        for value in grid:
            before = self.machines[-1] if self.machines else None
            if before is not None and value >= before.C and _is_free(before, sample_weight):
                self.machines.append(before)
            elif not intercept or (isinstance(before, ExactMachine) and value >= before.C):
                exact = before if isinstance(before, ExactMachine) else None
                self.machines.append(ExactMachine(K, target.values, value, exact, intercept))
            else:
                self.machines.append(_fitted(K, target.values, value, sample_weight, tolerance))

    def __len__(self) -> int:
        return len(self.machines)

    def coefficients(self, position: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return dual and intercept at a position of the grid, one column a pair of classes.

        Returns
        -------
        dual : ndarray of shape (m, n_pairs)
        intercept : ndarray of shape (n_pairs,)
            ``K_cross @ dual + intercept`` is above zero for the second class of a pair; pairs ascend.
        """
        machine = self.machines[position]
        if isinstance(machine, ExactMachine):
            return machine.dual, machine.intercepts
        return _expanded(machine, self._rows)

    def predict(self, K_cross: np.ndarray) -> np.ndarray:
        """Return predicted classes, as positions in the target's classes, shape (L, n)."""
        paths = [self.coefficients(position) for position in range(len(self))]
        return self.decode(np.stack([K_cross @ dual + intercept for dual, intercept in paths]))

    def decode(self, scores: np.ndarray) -> np.ndarray:
        """Return the classes that win most pairs, the first of equals, from scores of shape (L, n, n_pairs)."""
        if len(self._classes) == 2:
            return self._classes[(scores[..., 0] > 0).astype(np.intp)]
        votes = np.zeros((*scores.shape[:2], len(self._classes)), dtype=np.intp)
        for j, (first, second) in enumerate(combinations(range(len(self._classes)), 2)):
            votes[..., first] += scores[..., j] <= 0
            votes[..., second] += scores[..., j] > 0
        return self._classes[votes.argmax(axis=-1)]


def _is_free(machine: SVC | ExactMachine, sample_weight: np.ndarray | None) -> bool:
    """Return whether no coefficient of a machine is at its upper bound."""
    if isinstance(machine, ExactMachine):
        sizes, bounds = np.abs(machine.dual), np.asarray(machine.C)
    else:
        w = 1.0 if sample_weight is None else sample_weight[machine.support_]
        sizes, bounds = np.abs(machine.dual_coef_), machine.C * w
    return bool((sizes < (1 - AT_BOUND) * bounds).all())


def _fitted(
    K: np.ndarray, labels: np.ndarray, C: float, sample_weight: np.ndarray | None, tolerance: float
) -> SVC | ExactMachine:
    """Return a machine, from interior points where scikit-learn's solver takes too long."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import SVC  # here, because it brings pandas and pyarrow along where they are installed

    most = MAX_ITERATIONS if sample_weight is None else MAX_WEIGHTED_ITERATIONS
    machine = SVC(kernel="precomputed", C=C, tol=tolerance, max_iter=most)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(K, labels, sample_weight=sample_weight)
    if np.max(machine.n_iter_) < most:
        return machine
    if sample_weight is None:
        return ExactMachine(K, labels, C)
    warnings.warn(
        f"the support vector machine with sample weights ended after {most} iterations, before its tolerance of "
        f"{tolerance:g}; use a smaller C, or predictor krr.",
        ConvergenceWarning,
        stacklevel=2,
    )
    return machine


def _expanded(machine: SVC, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients of a machine of scikit-learn for all m rows, one column a pair of classes."""
    n_classes = len(machine.classes_)
    pairs = list(combinations(range(n_classes), 2))
    # Support vectors lie class by class; row l of their coefficients is against class l, or l + 1 from their own on.
    bounds = np.concatenate([[0], np.cumsum(machine.n_support_)])
    dual = np.zeros((m, len(pairs)))
    for column, (first, second) in enumerate(pairs):
        for own, row in ((first, second - 1), (second, first)):
            held = slice(bounds[own], bounds[own + 1])
            dual[machine.support_[held], column] = machine.dual_coef_[row, held]
    # Two classes have the sign of the second one already.
    sign = 1.0 if n_classes == 2 else -1.0
    return sign * dual, sign * machine.intercept_
