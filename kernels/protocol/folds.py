"""Which rows train, validate and test, in which trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from learnkernels.kernels.targets import Target


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
