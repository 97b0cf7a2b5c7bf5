"""Folds of rows, and their use as training, validation and test folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..row_groups import consecutive_blocks, cut_in_parts, draw_folds
from ..targets import Target


@dataclass(frozen=True)
class Trial:
    """One split of a cross-validation: folds for training, validation and test.

    With `validation` None, the training folds are cross-validated. `ordered` folds are
    consecutive blocks of time.
    """

    index: int
    training: tuple[int, ...]
    validation: int | None
    test: int
    ordered: bool = False
    refit: bool = False

    @property
    def final(self) -> tuple[int, ...]:
        """Folds on which the tested predictor is fitted."""
        if self.refit and self.validation is not None:
            return (*self.training, self.validation)
        return self.training


def rows_of(folds: np.ndarray, selected: Sequence[int]) -> np.ndarray:
    is_selected = np.zeros(len(folds), dtype=bool)
    for fold in selected:
        is_selected |= folds == fold
    return np.flatnonzero(is_selected)


def count_rows(folds: np.ndarray, selected: Sequence[int]) -> int:
    return sum(int(np.count_nonzero(folds == fold)) for fold in selected)


def assign_folds(
    target: Target, n_folds: int, seed: int, groups: np.ndarray | None = None
) -> np.ndarray:
    """Return a random, stratified fold for each row, without splitting groups.

    ValueError for too few rows or groups, or a class in fewer than three folds.
    """
    unit = "row"
    n_units = len(target)
    if groups is not None:
        unit = "group"
        n_units = len(np.unique(groups))
    if n_units < n_folds:
        raise ValueError(
            f"there must be at least one {unit} a fold, got {n_units} {unit}s for {n_folds} folds."
        )
    if target.task == "regression":
        return _draw_folds(target, n_folds, seed, groups)
    most_frequent = int(np.bincount(target.values).max())
    if most_frequent < n_folds:
        raise ValueError(
            f"a class must have as many rows as there are folds, got {most_frequent} for {n_folds}."
        )
    folds = _draw_folds(target, n_folds, seed, groups)
    is_in_fold = np.zeros((n_folds, len(target.classes)), dtype=bool)
    is_in_fold[folds, target.values] = True
    folds_of_class = is_in_fold.sum(axis=0)
    rarest = int(folds_of_class.argmin())
    if folds_of_class[rarest] < 3:
        advice = "" if unit == "row" else "use fewer folds, another seed, or "
        raise ValueError(
            f"each class must have a {unit} in at least 3 folds, one to train, one to validate and one to test, "
            f"got {folds_of_class[rarest]} for class {target.classes[rarest]!r}; {advice}leave that class out."
        )
    return folds


def _draw_folds(
    target: Target, n_folds: int, seed: int, groups: np.ndarray | None
) -> np.ndarray:
    classes = None
    if target.task == "classification":
        classes = target.values
    return draw_folds(len(target), n_folds, seed, groups, classes)


def given_folds(target: Target, folds: np.ndarray, n_folds: int) -> np.ndarray:
    """Check a user's folds of the rows; return them numbered from 0.

    ValueError for fewer than 3 folds, an empty fold, or a class without training rows.
    """
    if n_folds < 3:
        raise ValueError(
            f"folds must be at least 3 (one tests, one validates, the others train), got {n_folds}."
        )
    counts = np.bincount(folds, minlength=n_folds)
    if not counts.all():
        raise ValueError(
            f"each fold must have rows, got none in fold {counts.argmin()} of those given; leave it out."
        )
    for trial in trials(n_folds):
        _require_classes(
            target,
            rows_of(folds, trial.training),
            f"training row where fold {trial.test} tests",
        )
    return folds


def assign_blocks(target: Target, n_folds: int, times: np.ndarray) -> np.ndarray:
    """Return the block of time of each row; blocks have nearly equal sizes.

    ValueError for too few times, or a class missing in the first block.
    """
    n_times = len(np.unique(times))
    if n_times < n_folds:
        raise ValueError(
            f"rows of one time stay together, so there must be at least one time per fold, got {n_times} for "
            f"{n_folds} folds."
        )
    folds = consecutive_blocks(times, n_folds)
    _require_classes(
        target,
        np.flatnonzero(folds == 0),
        "row in the first block of time, which trains alone once",
    )
    return folds


def _require_classes(
    target: Target, training: np.ndarray, row: str = "training row"
) -> None:
    if target.task != "classification":
        return
    counts = np.bincount(target.values[training], minlength=len(target.classes))
    if not counts.all():
        missing = int(counts.argmin())
        raise ValueError(
            f"each class must have at least one {row}, got none of class {target.classes[missing]!r}, "
            f"{np.sum(target.values == missing)} of {len(target)} rows, among {len(training)}; train on more rows or "
            "leave that class out."
        )


def trials(n_folds: int) -> list[Trial]:
    """Return one split per fold: fold t tests, the next validates, others train."""
    plan = []
    for test in range(n_folds):
        validation = (test + 1) % n_folds
        training = tuple(
            fold for fold in range(n_folds) if fold not in (test, validation)
        )
        plan.append(Trial(test, training, validation, test))
    return plan


def trials_in_time(n_folds: int) -> list[Trial]:
    """Return splits in time: train on blocks up to t, validate on t + 1, test on t + 2."""
    return [
        Trial(t, training=tuple(range(t + 1)), validation=t + 1, test=t + 2)
        for t in range(n_folds - 2)
    ]


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
    """Return a random, stratified split into training, validation and test.

    Rows are 0 for training, 1 for validation, 2 for test (1 without `validation`), and
    -1 for unused rows. `held_out` masks possible test rows; with `times`, the last rows
    are the test rows. ValueError if a part would lack rows, groups, times or a class.
    """
    sizes = {"train": train}
    if validation is not None:
        sizes["validation"] = validation
    if times is not None and (held_out is not None or groups is not None):
        raise ValueError(
            "times say which rows train and test, got held_out or groups next to them; leave those out."
        )
    if held_out is None:
        if test is None:
            raise ValueError(
                "test must be a number of rows where the data set does not say which rows test."
            )
        return _draw_parts(target, {**sizes, "test": test}, seed, groups, times)
    free = np.flatnonzero(~held_out)
    testable = np.flatnonzero(held_out)
    if test is None:
        test = len(testable)
    if not 2 <= test <= len(testable):
        raise ValueError(
            f"test must be 2 to {len(testable)}, the rows that the data set holds out, got {test}."
        )
    groups_of_free = None
    groups_of_testable = None
    if groups is not None:
        groups_of_free = groups[free]
        groups_of_testable = groups[testable]
        n_divided = len(np.intersect1d(groups_of_free, groups_of_testable))
        if n_divided:
            raise ValueError(
                f"a group must be held out whole, got {n_divided} with rows that test and others; hold out whole "
                "groups."
            )
    parts = np.full(len(target), -1, dtype=np.intp)
    parts[free] = _draw_parts(target.take(free), sizes, seed, groups_of_free)
    units, unit_sizes = _units(len(testable), groups_of_testable)
    order = np.random.default_rng(seed).permutation(len(unit_sizes))
    part_of_unit = _cut_in_order(order, unit_sizes, [test])
    parts[testable[part_of_unit[units] == 0]] = len(sizes)
    return parts


def _units(m: int, groups: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the unit (row or group) of each row, and unit sizes."""
    if groups is None:
        return np.arange(m), np.ones(m, dtype=np.intp)
    _, units, unit_sizes = np.unique(groups, return_inverse=True, return_counts=True)
    return units, unit_sizes


def _cut_in_order(
    order: np.ndarray, unit_sizes: np.ndarray, ends: Sequence[float] | np.ndarray
) -> np.ndarray:
    """Cut ordered units into parts; return each unit's part."""
    parts = np.empty(len(unit_sizes), dtype=np.intp)
    parts[order] = cut_in_parts(unit_sizes[order], ends)
    return parts


def _draw_parts(
    target: Target,
    sizes: Mapping[str, int],
    seed: int,
    groups: np.ndarray | None,
    times: np.ndarray | None = None,
) -> np.ndarray:
    """Return the part of each row, or -1 for unused rows."""
    m = len(target)
    n_rows = list(sizes.values())
    if sum(n_rows) > m:
        raise ValueError(
            f"{', '.join(sizes)} must together be at most the {m} rows there are, got "
            f"{' + '.join(map(str, n_rows))} = {sum(n_rows)}; draw fewer."
        )
    if groups is None and times is None and target.task == "regression":
        return _draw_rows(m, n_rows, seed)
    units, unit_sizes = _units(m, groups if times is None else times)
    if len(unit_sizes) < len(sizes):
        unit = "group" if times is None else "time"
        raise ValueError(
            f"rows of one {unit} stay together, so {' and '.join(sizes)} need a {unit} each, got {len(unit_sizes)} in "
            f"all; draw rows of more {unit}s."
        )
    if times is not None:
        latest_first = np.arange(len(unit_sizes))[::-1]
        part_of_unit = _cut_in_order(latest_first, unit_sizes, np.cumsum(n_rows[::-1]))
        part_of_unit = np.where(part_of_unit < 0, -1, len(sizes) - 1 - part_of_unit)
    else:
        order = np.random.default_rng(seed).permutation(len(unit_sizes))
        if target.task == "classification":
            classes = target.values
            if groups is not None:
                classes = _most_frequent_classes(
                    units, classes, len(unit_sizes), len(target.classes)
                )
            order = order[_stratified_order(classes[order], unit_sizes[order])]
        part_of_unit = _cut_in_order(order, unit_sizes, np.cumsum(n_rows))
    parts = part_of_unit[units]
    _require_classes(target, np.flatnonzero(parts == 0))
    return parts


def _draw_rows(m: int, n_rows: Sequence[int], seed: int) -> np.ndarray:
    """Return the part of each row with little memory."""
    order = np.random.default_rng(seed).permutation(
        np.arange(m, dtype=np.int32 if m < 1 << 31 else np.intp)
    )
    parts = np.full(m, -1, dtype=np.int8)
    for part, rows in enumerate(np.split(order, np.cumsum(n_rows))[:-1]):
        parts[rows] = part
    return parts


def _most_frequent_classes(
    units: np.ndarray, classes: np.ndarray, n_units: int, n_classes: int
) -> np.ndarray:
    counts = np.bincount(units * n_classes + classes, minlength=n_units * n_classes)
    return counts.reshape(n_units, n_classes).argmax(axis=1)


def _stratified_order(classes: np.ndarray, unit_sizes: np.ndarray) -> np.ndarray:
    """Return an order of units that spreads each class evenly."""
    counts = np.bincount(classes, unit_sizes)
    place = np.empty(len(classes))
    for k in np.unique(classes):
        sizes = unit_sizes[classes == k]
        place[classes == k] = np.cumsum(sizes) - sizes / 2
    return np.lexsort((classes, counts[classes], place / counts[classes]))


def split_trial() -> Trial:
    """Return the training, validation and test folds of `assign_split`."""
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
    """Return a random split into training and test, with folds of the training rows.

    Training folds are 0 to ``n_folds - 1``, test rows `n_folds`, and unused rows -1.
    """
    parts = assign_split(target, train, None, test, seed, held_out, groups, times)
    training = np.flatnonzero(parts == 0)
    target_of_training = target.take(training)
    try:
        if times is not None:
            inner_folds = assign_blocks(target_of_training, n_folds, times[training])
        elif groups is not None:
            inner_folds = assign_folds(
                target_of_training, n_folds, seed, groups[training]
            )
        else:
            inner_folds = assign_folds(target_of_training, n_folds, seed)
    except ValueError as error:
        raise ValueError(f"of the {len(training)} training rows, {error}") from None
    folds = np.where(parts == 1, n_folds, -1)
    folds[training] = inner_folds
    return folds


def nested_split_trial(n_folds: int, ordered: bool = False) -> Trial:
    """Return the training and test folds of `assign_nested_split`."""
    return Trial(
        index=0,
        training=tuple(range(n_folds)),
        validation=None,
        test=n_folds,
        ordered=ordered,
    )


def inner_trials(trial: Trial) -> list[Trial]:
    """Return the splits of an inner cross-validation of the training folds.

    Ordered blocks are validated after training on earlier blocks.
    """
    folds = trial.training
    if trial.ordered:
        return [
            Trial(i, folds[: i + 1], validation=fold, test=fold)
            for i, fold in enumerate(folds[1:])
        ]
    inner = []
    for i, fold in enumerate(folds):
        others = tuple(other for other in folds if other != fold)
        inner.append(Trial(i, others, validation=fold, test=fold))
    return inner


def choosing_trials(trial: Trial) -> list[Trial]:
    """Return the splits that select settings: the split, or inner ones without validation fold."""
    if trial.validation is None:
        return inner_trials(trial)
    return [trial]
