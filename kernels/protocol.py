"""The protocol of the papers: folds to train on, one to choose the regularisation, one to test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from learnkernels.kernels.engine.threads import blas_threads_for
from learnkernels.kernels.engine.workers import Workers
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.learned import LearnedKernel
from learnkernels.kernels.predictors import PREDICTORS, KernelOnRows, RegularisationPath
from learnkernels.kernels.solvers.conjugate_gradients import Progress
from learnkernels.kernels.targets import Target

CROSS_ENTRIES = 1 << 24
"""Entries of the kernel between new rows and training rows that are held at once, 128 MiB."""

EDGE_GAIN = 1e-3
"""Relative gain over the next value from which a choice at the edge of the grid asks for a wider one."""


@dataclass(frozen=True)
class Trial:
    """One trial of a cross-validation: which folds train, validate and test.

    Attributes
    ----------
    index : int
        Position among the trials.
    training : tuple of int
    validation : int or None
        None where the training folds validate each other, see `inner_trials`.
    test : int
        Folds; disjoint, together all that are used.
    """

    index: int
    training: tuple[int, ...]
    validation: int | None
    test: int


@dataclass(frozen=True)
class FoldResult:
    """Outcome of one learner and predictor in one trial.

    Attributes
    ----------
    error, trivial_error : float
        Test error of the predictor, and of the best constant; a share, or in units of y.
    candidate : int
        Position of the chosen candidate among those given.
    position : int
        Position of the chosen Lambda on the grid.
    validation_errors : ndarray of shape (L,)
        Of the chosen candidate, along the grid.
    candidate_errors : ndarray of shape (n_candidates, L)
        Validation errors of all candidates; NaN for those that were not compared by error.
    regularisation : float
        The chosen Lambda.
    edge : bool
        The choice lies on the grid's edge and the error was still falling there.
    n_train, n_test : int
    """

    error: float
    trivial_error: float
    candidate: int
    position: int
    validation_errors: np.ndarray
    candidate_errors: np.ndarray
    regularisation: float
    edge: bool
    n_train: int
    n_test: int


@dataclass(frozen=True)
class Selection:
    """What validation errors choose.

    Attributes
    ----------
    errors : ndarray of shape (n_candidates, L)
        Of each candidate along the grid; NaN for those that were not compared by error.
    candidate, position : int
        Of the lowest one; the first of equal ones along the grid, then along the candidates.
    regularisation : float
        Lambda at that position.
    """

    errors: np.ndarray
    candidate: int
    position: int
    regularisation: float

    @classmethod
    def of(cls, errors: np.ndarray, grid: Sequence[float]) -> Selection:
        """Return what a table of errors chooses."""
        comparable = np.where(np.isnan(errors), np.inf, errors)
        position, candidate = divmod(int(comparable.T.argmin()), len(errors))
        return cls(errors, candidate, position, float(grid[position]))

    @property
    def edge(self) -> bool:
        """Whether it lies on the grid's edge and the error was still falling there."""
        return _still_falling(self.errors[self.candidate], self.position)


class Hypotheses(Protocol):
    """Predictors of one learner, one a regularisation; `KernelPredictors` and `KernelEnsemble` are such.

    Attributes
    ----------
    grid : sequence of float
        Values of Lambda, ascending.
    """

    @property
    def grid(self) -> Sequence[float]: ...

    def predict(self, X_new: Rows) -> np.ndarray:
        """Return predictions for new rows in the terms of the target, one row a regularisation."""


@runtime_checkable
class AlignedHypotheses(Protocol):
    """Hypotheses on kernels, which can be compared by alignment; `KernelPredictors` are such."""

    def validation_alignment(self, X_new: Rows, target_new: Target) -> float:
        """Return the centered alignment of the kernel among new rows with the target kernel of these rows."""


class KernelPredictors:
    """Predictors on learned kernels, one a regularisation.

    Attributes
    ----------
    kernels : sequence of LearnedKernel
        One for the whole grid, or one a value of it, as `learn_path` gives them.
    grid : sequence of float
        Values of Lambda.
    notes : tuple of str
        What a predictor that is fitted on rows says of its fit: landmarks, residuals.
    """

    def __init__(
        self,
        kernels: Sequence[LearnedKernel],
        target: Target,
        predictor: str,
        grid: Sequence[float],
        *,
        X: Rows | None = None,
        training: np.ndarray | None = None,
        options: Mapping[str, Any] | None = None,
        workers: Workers | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Fit.

        Parameters
        ----------
        kernels : sequence of LearnedKernel
            All over the same training rows. A kernel that was learned for no regularisation in particular is first
            scaled to mean diagonal one, so that one grid suits all learners; one that was, has its own scale.
        target : Target
            Of all rows of the data set.
        predictor : str
            A predictor of the table that serves the task.
        grid : sequence of float
            Values of Lambda, ascending.
        X : ndarray or CSR matrix of shape (n, d), optional
            All rows of the data set, which may be mapped from a file: needed where the kernels were learned on some of
            the training rows. Not modified.
        training : ndarray of int, optional
            Positions of the training rows; by default those the kernels were learned on.
        options : mapping, optional
            Options of the predictor.
        workers : Workers, optional
            Who does the passes of a predictor that is fitted on rows; by default threads of this process.
        progress : callable, optional
            Told, by a predictor that is fitted on rows, the steps of its iterations and the largest residual.

        Notes
        -----
        Of exact predictors O(m^2) memory and, for kernel ridge regression, O(m^3) time in the number m of training
        rows, a kernel; of those fitted on rows see their own cost. A kernel with negative weights is replaced by its
        projection onto the positive semi-definite ones, new rows alike.
        """
        self.kernels, self.grid = kernels, grid
        rows = kernels[0].rows if training is None else training
        of_rows, row = target.take(rows), PREDICTORS[predictor]
        self._fitted: list[tuple[LearnedKernel, np.ndarray | float, RegularisationPath]] = []
        notes: list[str] = []
        with blas_threads_for(len(rows)):
            for kernel in kernels:
                values = grid if kernel.regularisation is None else [kernel.regularisation]
                on = KernelOnRows.of(kernel, X, rows, workers)
                if row.by_rows:
                    path = row.fit(on, of_rows, values, progress=progress, **(options or {}))
                    self._fitted.append((path.kernel, 1.0, path))
                    notes += path.notes
                    continue
                kernel = on.whole_kernel()
                K, new_rows = usable_gram(kernel)
                weighted = {} if kernel.sample_weight is None else {"sample_weight": kernel.sample_weight}
                path = row.fit(K, of_rows, values, **weighted, **(options or {}))
                self._fitted.append((kernel, new_rows, path))
        self.notes = tuple(dict.fromkeys(notes))

    def predict(self, X_new: Rows) -> np.ndarray:
        """Return predictions for new rows in the terms of the target, one row a regularisation."""
        predictions = [
            np.concatenate([_predicted(one, X_new[rows]) for rows in _chunks(X_new.shape[0], one[0])], axis=1)
            for one in self._fitted
        ]
        return np.concatenate(predictions)

    def only(self, position: int) -> KernelPredictors:
        """Return the predictor of one value of Lambda alone; of many kernels one, so that new rows cost one's."""
        if len(self.kernels) == 1:
            return self
        one = KernelPredictors.__new__(KernelPredictors)
        one.kernels, one.grid = self.kernels[position : position + 1], self.grid[position : position + 1]
        one._fitted, one.notes = self._fitted[position : position + 1], self.notes
        return one

    def validation_alignment(self, X_new: Rows, target_new: Target) -> float:
        """Return the centered alignment of the kernels among new rows with the target, their mean where they are many.

        Parameters
        ----------
        X_new : ndarray or CSR matrix of shape (n, d)
            New rows. Not modified.
        target_new : Target
            Of these rows.

        Returns
        -------
        alignment : float
            Centered on the new rows.

        Raises
        ------
        ValueError
            The target is constant on the new rows.
        """
        if not np.ptp(target_new.Y, axis=0).any():
            raise ValueError(
                f"the target is constant on the {len(target_new)} rows that a choice by alignment looks at; give more "
                "rows to validate, or choose by error."
            )
        return float(np.mean([kernel.alignment_with(X_new, target_new) for kernel in self.kernels]))


def _predicted(fitted: tuple[LearnedKernel, np.ndarray | float, RegularisationPath], X_new: Rows) -> np.ndarray:
    kernel, new_rows, path = fitted
    K = kernel.cross_gram(X_new)
    return path.predict(K @ new_rows if isinstance(new_rows, np.ndarray) else K * new_rows)


def _chunks(n_new: int, kernel: LearnedKernel) -> list[slice]:
    """Return runs of new rows whose kernel with the training rows is held at once."""
    step = max(1, CROSS_ENTRIES // kernel.X.shape[0])
    return [slice(start, start + step) for start in range(0, n_new, step)] or [slice(0, 0)]


def usable_gram(kernel: LearnedKernel) -> tuple[np.ndarray, np.ndarray | float]:
    r"""Return the Gram matrix that a predictor is fitted on, and what a cross-Gram matrix is multiplied by for it.

    Parameters
    ----------
    kernel : LearnedKernel
        Not modified.

    Returns
    -------
    K : ndarray of shape (m, m)
        Positive semi-definite and, of a kernel that was learned for no regularisation in particular, of mean diagonal
        one.
    new_rows : ndarray of shape (m, m) or float
        ``kernel.cross_gram(X) @ new_rows``, or times it, is the same kernel between new rows and the training rows.

    Notes
    -----
    With sample weights w, :math:`D = \operatorname{diag} \sqrt w` and U the eigenvectors of :math:`D K D` of positive
    eigenvalues, K becomes :math:`D^{-1} (D K D)_+ D^{-1}` and the matrix for new rows :math:`D U U^\top D^{-1}`: what
    rows that are repeated w times give. The mean diagonal is weighted likewise. O(m^3) for a kernel with negative
    weights, and O(m^2) for others.
    """
    K, weights = kernel.gram(), kernel.sample_weight
    projection = None
    if kernel.indefinite:
        root = np.ones(len(K)) if weights is None else np.sqrt(weights)
        eigenvalues, Q = np.linalg.eigh(K if weights is None else K * root * root[:, None])
        Q = Q[:, eigenvalues > 0]
        projection = (Q * root[:, None]) @ (Q / root[:, None]).T
        Q /= root[:, None]
        K = (Q * eigenvalues[eigenvalues > 0]) @ Q.T
    unit = 1.0
    if kernel.regularisation is None:
        unit = float(np.trace(K) / len(K) if weights is None else np.average(K.diagonal(), weights=weights))
    return K / unit, 1.0 / unit if projection is None else projection / unit


def assign_folds(target: Target, n_folds: int, seed: int) -> np.ndarray:
    """Return the fold of each row, drawn at random; for classification each class is spread evenly.

    Parameters
    ----------
    target : Target
        Of all m rows.
    n_folds : int
        At least 3: one to test, one to validate, the others to train.
    seed : int
        Of the shuffle.

    Returns
    -------
    folds : ndarray of int of shape (m,)

    Raises
    ------
    ValueError
        Fewer than 3 folds, fewer rows than folds, or a class with fewer rows than folds.
    """
    from sklearn.model_selection import KFold, StratifiedKFold  # here, because it brings pandas along

    if n_folds < 3:
        raise ValueError(f"folds must be at least 3 (one tests, one validates, the others train), got {n_folds}.")
    if len(target) < n_folds:
        raise ValueError(f"there must be at least one row a fold, got {len(target)} rows for {n_folds} folds.")
    splitter = KFold(n_folds, shuffle=True, random_state=seed)
    if target.task == "classification":
        counts = np.bincount(target.values, minlength=len(target.classes))
        rare = int(counts.argmin())
        if counts[rare] < n_folds:
            raise ValueError(
                f"each class must have at least one row a fold, got {counts[rare]} of class "
                f"{target.classes[rare]!r} for {n_folds} folds; use fewer folds or leave that class out."
            )
        splitter = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    folds = np.empty(len(target), dtype=np.intp)
    rows = np.zeros((len(target), 1))
    for fold, (_, test) in enumerate(splitter.split(rows, target.values if target.task == "classification" else None)):
        folds[test] = fold
    return folds


def trials(n_folds: int) -> list[Trial]:
    """Return one trial a fold: fold t tests, the next one validates, the others train.

    Parameters
    ----------
    n_folds : int
        At least 3.

    Returns
    -------
    trials : list of Trial

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2010), ICML, section 5; (2012), JMLR 13:795-828, section 5.
    """
    return [
        Trial(
            index=t,
            training=tuple(f for f in range(n_folds) if f not in (t, (t + 1) % n_folds)),
            validation=(t + 1) % n_folds,
            test=t,
        )
        for t in range(n_folds)
    ]


def assign_split(
    target: Target, train: int, validation: int, test: int | None, seed: int, held_out: np.ndarray | None = None
) -> np.ndarray:
    """Return what each row is drawn for, at random without replacement; for classification with the classes' shares.

    Parameters
    ----------
    target : Target
        Of all m rows.
    train, validation, test : int
        Rows to draw, each at least 2; `test` may be None with `held_out`, for all of these.
    seed : int
        Of the draw. How many rows of each class are drawn does not depend on it, but among rows that are held out.
    held_out : ndarray of bool of shape (m,), optional
        Rows that test and do nothing else, where the data set says which: those to test are drawn among them, the
        others among the rest.

    Returns
    -------
    folds : ndarray of int of shape (m,)
        0 for training rows, 1 for validation, 2 for test rows, -1 for rows that are not used.

    Raises
    ------
    ValueError
        A part of fewer than two rows, more rows than there are, or a class that would have no training row.

    Notes
    -----
    The rows of each class, in random order, are spread evenly over the line that the parts are cut from: row r of n at
    ``(r + 1/2) / n``.
    """
    return _drawn_beside(target, {"train": train, "validation": validation}, test, seed, held_out)


def _drawn_beside(
    target: Target, sizes: Mapping[str, int], test: int | None, seed: int, held_out: np.ndarray | None
) -> np.ndarray:
    """Return which part each row is drawn for, test rows last, from all rows or from those that are held out."""
    if held_out is None:
        if test is None:
            raise ValueError("test must be a number of rows where the data set does not say which rows test.")
        return _drawn(target, {**sizes, "test": test}, seed)
    free, held = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    wanted = len(held) if test is None else test
    if not 2 <= wanted <= len(held):
        raise ValueError(f"test must be 2 to {len(held)}, the rows that the data set holds out, got {wanted}.")
    parts = np.full(len(target), -1, dtype=np.intp)
    parts[free] = _drawn(target.take(free), sizes, seed)
    parts[np.random.default_rng(seed).permutation(held)[:wanted]] = len(sizes)
    return parts


def _drawn(target: Target, sizes: Mapping[str, int], seed: int) -> np.ndarray:
    """Return which part each row is drawn for, training rows first, or -1 for rows that are not used."""
    for name, size in sizes.items():
        if size < 2:
            raise ValueError(f"{name} must be at least 2 rows, got {size}.")
    *first, last = sizes
    wanted, train = sum(sizes.values()), sizes["train"]
    if wanted > len(target):
        raise ValueError(
            f"{' and '.join([', '.join(first), last] if first else [last])} must together be at most the "
            f"{len(target)} rows there are, got {' + '.join(map(str, sizes.values()))} = {wanted}; draw fewer."
        )
    order = np.random.default_rng(seed).permutation(len(target))
    if target.task == "classification":
        classes = target.values[order]
        counts = np.bincount(classes, minlength=len(target.classes))
        rank = np.empty(len(order), dtype=np.intp)
        for k in range(len(counts)):
            rank[classes == k] = np.arange(counts[k])
        # Of classes at one place the rarest goes first, and not a random one: the counts are those of every seed.
        order = order[np.lexsort((classes, counts[classes], (rank + 0.5) / counts[classes]))]
        learned = np.bincount(target.values[order[:train]], minlength=len(counts))
        if not learned.all():
            rare = int(learned.argmin())
            raise ValueError(
                f"each class must have at least one training row, got none of class {target.classes[rare]!r}, "
                f"{counts[rare]} of {len(target)} rows, among {train}; train on more rows or leave that class out."
            )
    parts = np.full(len(target), -1, dtype=np.intp)
    parts[order[:wanted]] = np.repeat(np.arange(len(sizes)), list(sizes.values()))
    return parts


def split_trial() -> Trial:
    """Return the one trial of `assign_split`: rows of 0 train, of 1 validate, of 2 test.

    References
    ----------
    Afkanpour, Szepesvari, Bowling (2013), Machine Learning 91:305-324, section 3.
    """
    return Trial(index=0, training=(0,), validation=1, test=2)


def assign_nested_split(
    target: Target, train: int, test: int | None, n_folds: int, seed: int, held_out: np.ndarray | None = None
) -> np.ndarray:
    """Return what each row is drawn for, where a cross-validation of the training rows chooses.

    Parameters
    ----------
    target : Target
        Of all m rows.
    train, test : int
        Rows to draw, each at least 2; `test` may be None with `held_out`.
    n_folds : int
        Folds of the training rows, at least 3.
    seed : int
        Of the draw and of the folds.
    held_out : ndarray of bool of shape (m,), optional
        As for `assign_split`.

    Returns
    -------
    folds : ndarray of int of shape (m,)
        0 to ``n_folds - 1`` for training rows, `n_folds` for test rows, -1 for rows that are not used.

    Raises
    ------
    ValueError
        As `assign_split`, and as `assign_folds` for the training rows.
    """
    drawn = _drawn_beside(target, {"train": train}, test, seed, held_out)
    training = np.flatnonzero(drawn == 0)
    try:
        inner = assign_folds(target.take(training), n_folds, seed)
    except ValueError as error:
        raise ValueError(f"of the {train} training rows, {error}") from None
    folds = np.where(drawn == 1, n_folds, -1)
    folds[training] = inner
    return folds


def nested_split_trial(n_folds: int) -> Trial:
    """Return the one trial of `assign_nested_split`: `n_folds` folds train and validate each other, the next one tests.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), NIPS 22, section 4.1; (2009), UAI, section 5.2.
    """
    return Trial(index=0, training=tuple(range(n_folds)), validation=None, test=n_folds)


def inner_trials(trial: Trial) -> list[Trial]:
    """Return the trials that choose for one without a validation fold: each training fold validates once.

    Parameters
    ----------
    trial : Trial
        One without a validation fold.

    Returns
    -------
    inner : list of Trial
        The validation fold is the one to test, too.
    """
    return [
        Trial(index=i, training=tuple(f for f in trial.training if f != fold), validation=fold, test=fold)
        for i, fold in enumerate(trial.training)
    ]


def evaluate(
    candidates: Sequence[Hypotheses],
    X: Rows,
    target: Target,
    training: np.ndarray,
    folds: np.ndarray,
    trial: Trial,
    by: Literal["error", "alignment"] = "error",
) -> FoldResult:
    """Return the test error in one trial, with candidate and regularisation chosen on the validation fold.

    Parameters
    ----------
    candidates : sequence of Hypotheses
        Fitted on the trial's training folds; one for each setting of the learner's parameters that is tried.
    X : ndarray or CSR matrix of shape (n, d)
        All rows. Not modified.
    target : Target
        Of all rows.
    training : ndarray of int
        Positions of the training rows.
    folds : ndarray of shape (n,)
        Fold of each row.
    trial : Trial
        Which folds train, validate and test.
    by : {"error", "alignment"}, default "error"
        What chooses the candidate on the validation fold: its error, together with the regularisation, or
        its `validation_alignment`, and the regularisation then by the error. The latter needs `AlignedHypotheses`.

    Returns
    -------
    result : FoldResult
        Ties go to the smallest Lambda, the strongest regularisation, and among those to the first candidate; ties of
        the alignment to the first candidate.

    Raises
    ------
    ValueError
        `by` is unknown, or asks for the alignment of candidates that have none.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5. Afkanpour, Szepesvari, Bowling (2013), Machine
    Learning 91:305-324, appendix B.2, for the choice by alignment.
    """
    if by not in ("error", "alignment"):
        raise ValueError(f"by must be error or alignment, got {by!r}.")
    if trial.validation is None:
        raise ValueError("a trial without a validation fold has nothing to choose by; use select_by_cross_validation.")
    with blas_threads_for(len(training)):
        validation = np.flatnonzero(folds == trial.validation)
        considered = list(range(len(candidates)))
        if by == "alignment":
            considered = [_most_aligned(candidates, X, target, validation)]
        errors = np.full((len(candidates), len(candidates[0].grid)), np.nan)
        for c in considered:
            errors[c] = _errors(candidates[c], X, target, validation)
    selection = Selection.of(errors, candidates[0].grid)
    return outcome(candidates[selection.candidate], selection.position, selection, X, target, training, folds, trial)


def select_by_cross_validation(
    fits: Iterable[tuple[Trial, Sequence[Hypotheses]]], X: Rows, target: Target, folds: np.ndarray
) -> Selection:
    """Return candidate and regularisation of the lowest mean error over the folds that validate each other.

    Parameters
    ----------
    fits : iterable of (Trial, sequence of Hypotheses)
        Each of `inner_trials` with the candidates that were fitted on its training folds, the same ones in the same
        order. Consumed one at a time, so that no more than one set of predictors need be alive.
    X : ndarray or CSR matrix of shape (n, d)
        All rows. Not modified.
    target : Target
        Of all rows.
    folds : ndarray of shape (n,)
        Fold of each row.

    Returns
    -------
    selection : Selection
        Of the means over the folds.
    """
    tables, grid = [], []
    for trial, candidates in fits:
        rows = np.flatnonzero(folds == trial.validation)
        grid = list(candidates[0].grid)
        with blas_threads_for(int(np.isin(folds, trial.training).sum())):
            tables.append(np.array([_errors(of, X, target, rows) for of in candidates]))
    return Selection.of(np.mean(tables, axis=0), grid)


def outcome(
    fitted: Hypotheses,
    position: int,
    selection: Selection,
    X: Rows,
    target: Target,
    training: np.ndarray,
    folds: np.ndarray,
    trial: Trial,
) -> FoldResult:
    """Return the test error of what was chosen.

    Parameters
    ----------
    fitted : Hypotheses
        The chosen candidate, fitted on the trial's training folds.
    position : int
        Of the chosen regularisation on the grid of `fitted`.
    selection : Selection
        What was chosen, and by which errors.
    X, target, training, folds, trial
        As for `evaluate`.
    """
    rows = np.flatnonzero(folds == trial.test)
    test = target.take(rows)
    if isinstance(fitted, KernelPredictors) and len(fitted.kernels) > 1:
        fitted, position = fitted.only(position), 0
    with blas_threads_for(len(training)):
        error = float(_errors(fitted, X, target, rows)[position])
    return FoldResult(
        error=error,
        trivial_error=test.trivial_error(target.take(training)),
        candidate=selection.candidate,
        position=selection.position,
        validation_errors=selection.errors[selection.candidate],
        candidate_errors=selection.errors,
        regularisation=selection.regularisation,
        edge=selection.edge,
        n_train=len(training),
        n_test=len(test),
    )


def _errors(of: Hypotheses, X: Rows, target: Target, rows: np.ndarray) -> np.ndarray:
    """Return the error on some rows along the grid, shape (L,)."""
    held_out = target.take(rows)
    return np.array([held_out.error(prediction) for prediction in of.predict(X[rows])])


def _most_aligned(candidates: Sequence[Hypotheses], X: Rows, target: Target, rows: np.ndarray) -> int:
    """Return the position of the first candidate of highest alignment on the rows; one without a number comes last."""
    alignments = []
    for position, of in enumerate(candidates):
        if not isinstance(of, AlignedHypotheses):
            raise ValueError(
                f"a choice by alignment needs candidates with a kernel, got {type(of).__name__} at {position}; "
                "choose by error."
            )
        alignments.append(of.validation_alignment(X[rows], target.take(rows)))
    return int(np.nan_to_num(alignments, nan=-np.inf).argmax())


def _still_falling(errors: np.ndarray, best: int) -> bool:
    """Return whether the best is at an edge of the grid and clearly better than its neighbour."""
    if len(errors) < 2 or 0 < best < len(errors) - 1:
        return False
    neighbour = errors[1 if best == 0 else -2]
    return bool(neighbour - errors[best] > EDGE_GAIN * neighbour)
