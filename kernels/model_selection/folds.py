"""Which rows train, validate and test, in which trial."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..targets import Target


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
    ordered : bool
        Whether the training folds are blocks of time, so that only earlier ones train for one that validates.
    refit : bool
        Whether what the validation fold has chosen is fitted again on that fold and those of training.
    """

    index: int
    training: tuple[int, ...]
    validation: int | None
    test: int
    ordered: bool = False
    refit: bool = False

    @property
    def final(self) -> tuple[int, ...]:
        """Folds that train what is tested."""
        return (*self.training, self.validation) if self.refit and self.validation is not None else self.training


def rows_of(folds: np.ndarray, some: Sequence[int]) -> np.ndarray:
    """Return the positions of the rows of some folds, without arrays of numbers of all rows."""
    among = np.zeros(len(folds), dtype=bool)
    for fold in some:
        among |= folds == fold
    return np.flatnonzero(among)


def count_rows(folds: np.ndarray, some: Sequence[int]) -> int:
    """Return how many rows some folds have."""
    return sum(int(np.count_nonzero(folds == fold)) for fold in some)


def assign_folds(target: Target, n_folds: int, seed: int, groups: np.ndarray | None = None) -> np.ndarray:
    """Return the fold of each row, drawn at random; for classification each class is spread evenly.

    Parameters
    ----------
    target : Target
        Of all m rows.
    n_folds : int
        At least 3: one to test, one to validate, the others to train.
    seed : int
        Of the shuffle.
    groups : ndarray of int of shape (m,), optional
        Group of each row: no group is in two folds. Classes, or of a regression the number of groups, are then spread
        as evenly as whole groups allow.

    Returns
    -------
    folds : ndarray of int of shape (m,)

    Raises
    ------
    ValueError
        Fewer rows or groups than folds, no class of as many rows, or a class that is not in three
        folds, which those of a trial that train, all but one to validate and one to test, could lack.
    """
    from sklearn.model_selection import (  # here, because it brings pandas along
        GroupKFold,
        KFold,
        StratifiedGroupKFold,
        StratifiedKFold,
    )

    units, unit = (len(target), "row") if groups is None else (len(np.unique(groups)), "group")
    if units < n_folds:
        raise ValueError(f"there must be at least one {unit} a fold, got {units} {unit}s for {n_folds} folds.")
    by_class = target.task == "classification"
    if by_class:
        most = int(np.bincount(target.values).max())
        if most < n_folds:
            raise ValueError(f"a class must have as many rows as there are folds, got {most} for {n_folds}.")
        kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    else:
        kind = KFold if groups is None else GroupKFold
    folds = np.empty(len(target), dtype=np.intp)
    rows = np.zeros((len(target), 1))
    with warnings.catch_warnings():  # of a class of fewer rows than folds: what it takes is looked at below
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        splitter = kind(n_folds, shuffle=True, random_state=seed)
        for fold, (_, test) in enumerate(splitter.split(rows, target.values if by_class else None, groups)):
            folds[test] = fold
    if by_class:
        held = np.zeros((n_folds, len(target.classes)), dtype=bool)
        held[folds, target.values] = True
        of_class = held.sum(axis=0)
        rare = int(of_class.argmin())
        if of_class[rare] < 3:  # those that train may lack it
            ways = "" if unit == "row" else "use fewer folds, another seed, or "
            raise ValueError(
                f"each class must have a {unit} in at least 3 folds, one to train, one to validate and one to test, "
                f"got {of_class[rare]} for class {target.classes[rare]!r}; {ways}leave that class out."
            )
    return folds


def given_folds(target: Target, folds: np.ndarray, n_folds: int) -> np.ndarray:
    """Return folds that a user has drawn, of which each tests once.

    Parameters
    ----------
    target : Target
        Of all m rows.
    folds : ndarray of int of shape (m,)
        The fold of each row, numbered from 0.
    n_folds : int
        At least 3.

    Returns
    -------
    folds : ndarray of int of shape (m,)

    Raises
    ------
    ValueError
        Fewer than 3 folds, a fold without rows, or a class without training rows in a trial.
    """
    if n_folds < 3:
        raise ValueError(f"folds must be at least 3 (one tests, one validates, the others train), got {n_folds}.")
    counts = np.bincount(folds, minlength=n_folds)
    if not counts.all():
        raise ValueError(f"each fold must have rows, got none in fold {counts.argmin()} of those given; leave it out.")
    for trial in trials(n_folds):
        _require_classes(target, rows_of(folds, trial.training), f"training row where fold {trial.test} tests")
    return folds


def assign_blocks(target: Target, n_folds: int, times: np.ndarray) -> np.ndarray:
    """Return the block of time of each row: consecutive blocks, the earliest first, of nearly equal numbers of rows.

    Parameters
    ----------
    target : Target
        Of all m rows.
    n_folds : int
        Blocks; at least 3.
    times : ndarray of int of shape (m,)
        When each row was: rows of one time are in one block.

    Returns
    -------
    folds : ndarray of int of shape (m,)
        Not falling as times rise.

    Raises
    ------
    ValueError
        Fewer different times than blocks, or a class that the first block, which trains alone in
        one trial, lacks.
    """
    distinct, of_row, counts = np.unique(times, return_inverse=True, return_counts=True)
    if len(distinct) < n_folds:
        raise ValueError(
            f"rows of one time stay together, so there must be at least one time per fold, got {len(distinct)} for "
            f"{n_folds} folds."
        )
    folds = _parts(counts, len(target) * np.arange(1, n_folds + 1) / n_folds)[of_row]
    _require_classes(target, np.flatnonzero(folds == 0), "row in the first block of time, which trains alone once")
    return folds


def _parts(sizes: np.ndarray, ends: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the part of each unit on a line of units, which are not divided.

    Parameters
    ----------
    sizes : ndarray of int of shape (u,)
        Rows of each unit, at least as many units as parts.
    ends : sequence of float
        After how many rows each part is to end, ascending: each does so as near by as whole units allow, with one unit
        at least.

    Returns
    -------
    parts : ndarray of int of shape (u,)
        -1 for units behind the last part.
    """
    reached = np.cumsum(sizes)
    parts, start = np.full(len(sizes), -1, dtype=np.intp), 0
    for part, end in enumerate(ends):
        last = len(sizes) - (len(ends) - 1 - part)
        stop = start + 1 + int(np.abs(reached[start:last] - end).argmin())
        parts[start:stop], start = part, stop
    return parts


def _require_classes(target: Target, training: np.ndarray, row: str = "training row") -> None:
    """Raise ValueError if a class has none of the training rows."""
    if target.task == "classification":
        learned = np.bincount(target.values[training], minlength=len(target.classes))
        if not learned.all():
            rare = int(learned.argmin())
            raise ValueError(
                f"each class must have at least one {row}, got none of class {target.classes[rare]!r}, "
                f"{np.sum(target.values == rare)} of {len(target)} rows, among {len(training)}; train on more rows or "
                "leave that class out."
            )


def trials(n_folds: int) -> list[Trial]:
    """Return one trial per fold: fold t tests, the next one validates, the others train.

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


def trials_in_time(n_folds: int) -> list[Trial]:
    """Return the trials of blocks of time: block t + 2 tests, the one before it validates, all earlier ones train.

    Parameters
    ----------
    n_folds : int
        At least 3.

    Returns
    -------
    trials : list of Trial
        Two fewer than blocks.
    """
    return [Trial(index=t, training=tuple(range(t + 1)), validation=t + 1, test=t + 2) for t in range(n_folds - 2)]


def assign_split(
    target: Target,
    train: int,
    validation: int | None,
    test: int | None,
    seed: int,
    held_out: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    times: np.ndarray | None = None,
) -> np.ndarray:
    """Return what each row is drawn for, at random without replacement; for classification with the classes' shares.

    Parameters
    ----------
    target : Target
        Of all m rows.
    train, validation, test : int
        Rows to draw, each at least 2; `test` may be None with `held_out`, for all of these, and `validation` for none.
    seed : int
        Of the draw. How many rows of each class are drawn does not depend on it, but among rows that are held out.
    held_out : ndarray of bool of shape (m,), optional
        Rows that test and do nothing else, where the data set says which: those to test are drawn among them, the
        others among the rest.
    groups : ndarray of int of shape (m,), optional
        Group of each row: whole groups are drawn, and each part has as nearly the requested rows as they allow.
    times : ndarray of int of shape (m,), optional
        When each row was: nothing is drawn, the last rows test, those before them validate, those before these train,
        and earlier ones are not used. Rows of one time stay together. Not with `held_out` or `groups`.

    Returns
    -------
    folds : ndarray of int of shape (m,)
        0 for training rows, 1 for validation, 2 for test rows (1 without validation), -1 for rows that are not used.

    Raises
    ------
    ValueError
        More rows than there are, fewer groups or times than parts, a group with rows
        that are held out and others, or a class that would have no training row.

    Notes
    -----
    The rows of each class, in random order, are spread evenly over the line that the parts are cut from: row r of n at
    ``(r + 1/2) / n``. A group is at the place of its middle row among the groups of its most frequent class.
    """
    sizes = {"train": train} if validation is None else {"train": train, "validation": validation}
    if times is not None and (held_out is not None or groups is not None):
        raise ValueError("times say which rows train and test, got held_out or groups next to them; leave those out.")
    if held_out is None:
        if test is None:
            raise ValueError("test must be a number of rows where the data set does not say which rows test.")
        return _drawn(target, {**sizes, "test": test}, seed, groups, times)
    free, held = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    wanted = len(held) if test is None else test
    if not 2 <= wanted <= len(held):
        raise ValueError(f"test must be 2 to {len(held)}, the rows that the data set holds out, got {wanted}.")
    of_free = of_held = None
    if groups is not None:
        of_free, of_held = groups[free], groups[held]
        if both := len(np.intersect1d(of_free, of_held)):
            raise ValueError(
                f"a group must be held out whole, got {both} with rows that test and others; hold out whole groups."
            )
    parts = np.full(len(target), -1, dtype=np.intp)
    parts[free] = _drawn(target.take(free), sizes, seed, of_free)
    units, rows = _units(len(held), of_held)
    order = np.random.default_rng(seed).permutation(len(rows))
    drawn = np.empty(len(rows), dtype=np.intp)
    drawn[order] = _parts(rows[order], [wanted])
    parts[held[drawn[units] == 0]] = len(sizes)
    return parts


def _units(m: int, groups: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the unit of each of m rows, itself or its group, shape (m,), and how many rows each unit has."""
    if groups is None:
        return np.arange(m), np.ones(m, dtype=np.intp)
    _, units, rows = np.unique(groups, return_inverse=True, return_counts=True)
    return units, rows


def _drawn(
    target: Target, sizes: Mapping[str, int], seed: int, groups: np.ndarray | None, times: np.ndarray | None = None
) -> np.ndarray:
    """Return which part each row is drawn for, training rows first, or -1 for rows that are not used.

    Of times nothing is drawn: the last rows are of the last part.
    """
    if (wanted := sum(sizes.values())) > len(target):
        raise ValueError(
            f"{', '.join(sizes)} must together be at most the {len(target)} rows there are, got "
            f"{' + '.join(map(str, sizes.values()))} = {wanted}; draw fewer."
        )
    m, ends = len(target), np.cumsum(list(sizes.values()))
    if groups is None and times is None and target.task == "regression":  # of which there may be tens of millions
        order = np.random.default_rng(seed).permutation(np.arange(m, dtype=np.int32 if m < 1 << 31 else np.intp))
        parts = np.full(m, -1, dtype=np.int8)
        for part, some in enumerate(np.split(order, ends)[:-1]):
            parts[some] = part
        return parts
    units, rows = _units(m, groups if times is None else times)
    if len(rows) < len(sizes):
        unit = "group" if times is None else "time"
        raise ValueError(
            f"rows of one {unit} stay together, so {' and '.join(sizes)} need a {unit} each, got {len(rows)} in all; "
            f"draw rows of more {unit}s."
        )
    order = np.random.default_rng(seed).permutation(len(rows))
    if times is not None:
        order, ends = np.arange(len(rows))[::-1], np.cumsum(list(sizes.values())[::-1])
    elif target.task == "classification":
        n_classes, classes = len(target.classes), target.values
        if groups is not None:  # the most frequent class of each, the first of equally frequent ones
            held = np.bincount(units * n_classes + classes, minlength=len(rows) * n_classes)
            classes = held.reshape(len(rows), n_classes).argmax(axis=1)
        classes = classes[order]
        counts = np.bincount(classes, rows[order], minlength=n_classes)
        place = np.empty(len(order))
        for k in range(n_classes):
            of_class = rows[order][classes == k]
            place[classes == k] = np.cumsum(of_class) - of_class / 2
        # Of classes at one place the rarest goes first, and not a random one: the counts are those of every seed.
        order = order[np.lexsort((classes, counts[classes], place / counts[classes]))]
    drawn = np.empty(len(rows), dtype=np.intp)
    drawn[order] = _parts(rows[order], ends)
    if times is not None:
        drawn = np.where(drawn < 0, -1, len(sizes) - 1 - drawn)
    _require_classes(target, np.flatnonzero(drawn[units] == 0))
    return drawn[units]


def split_trial() -> Trial:
    """Return the one trial of `assign_split`: rows of 0 train, of 1 validate, of 2 test.

    References
    ----------
    Afkanpour, Szepesvari, Bowling (2013), Machine Learning 91:305-324, section 3.
    """
    return Trial(index=0, training=(0,), validation=1, test=2)


def assign_nested_split(
    target: Target,
    train: int,
    test: int | None,
    n_folds: int,
    seed: int,
    held_out: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    times: np.ndarray | None = None,
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
    held_out, groups, times
        As for `assign_split`. Of times the folds of the training rows are `assign_blocks`.

    Returns
    -------
    folds : ndarray of int of shape (m,)
        0 to ``n_folds - 1`` for training rows, `n_folds` for test rows, -1 for rows that are not used.

    Raises
    ------
    ValueError
        As `assign_split`, and as `assign_folds` or `assign_blocks` for the training rows.
    """
    drawn = assign_split(target, train, None, test, seed, held_out, groups, times)
    training = np.flatnonzero(drawn == 0)
    of_training = target.take(training)
    try:
        if times is None:
            inner = assign_folds(of_training, n_folds, seed, None if groups is None else groups[training])
        else:
            inner = assign_blocks(of_training, n_folds, times[training])
    except ValueError as error:
        raise ValueError(f"of the {len(training)} training rows, {error}") from None
    folds = np.where(drawn == 1, n_folds, -1)
    folds[training] = inner
    return folds


def nested_split_trial(n_folds: int, ordered: bool = False) -> Trial:
    """Return the one trial of `assign_nested_split`: `n_folds` folds train and validate each other, the next one tests.

    Parameters
    ----------
    n_folds : int
        Of the training rows.
    ordered : bool, default False
        Whether the folds are blocks of time.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), NIPS 22, section 4.1; (2009), UAI, section 5.2.
    """
    return Trial(index=0, training=tuple(range(n_folds)), validation=None, test=n_folds, ordered=ordered)


def inner_trials(trial: Trial) -> list[Trial]:
    """Return the trials that choose for one without a validation fold: each training fold validates once.

    Of blocks of time each but the first validates what was learned on those before it.

    Parameters
    ----------
    trial : Trial
        One without a validation fold.

    Returns
    -------
    inner : list of Trial
        The validation fold is the one to test, too.
    """
    if trial.ordered:
        later = enumerate(trial.training[1:])
        return [Trial(index=i, training=trial.training[: i + 1], validation=fold, test=fold) for i, fold in later]
    return [
        Trial(index=i, training=tuple(f for f in trial.training if f != fold), validation=fold, test=fold)
        for i, fold in enumerate(trial.training)
    ]
