"""Groups are never divided and time is never turned round, whatever the protocol."""

from collections.abc import Callable
from functools import partial

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from learnkernels.kernels.model_selection.folds import (
    Trial,
    assign_blocks,
    assign_folds,
    assign_nested_split,
    assign_split,
    inner_trials,
    nested_split_trial,
    split_trial,
    trials,
    trials_in_time,
)
from learnkernels.kernels.targets import Target
from tests.refusals import require_refusals


def drawn_or_refused(
    draw: Callable[[], np.ndarray], *sentences: str
) -> np.ndarray | None:
    """Return what is drawn, or None where it is refused in one of the sentences."""
    try:
        return draw()
    except ValueError as error:
        if not any(said in str(error) for said in sentences):
            raise
        return None


def undivided(groups: np.ndarray, folds: np.ndarray) -> bool:
    return all(
        len(np.unique(folds[groups == group])) == 1 for group in np.unique(groups)
    )


SIZES = st.lists(st.integers(1, 12), min_size=8, max_size=40)
TASKS = st.sampled_from(["regression", "two classes"])


@settings(max_examples=60)
@given(SIZES, TASKS, st.integers(3, 6), st.integers(0, 5), st.booleans())
def test_no_group_is_divided_and_parts_of_a_split_are_of_nearly_the_size_asked_for(
    sizes, task, n_folds, seed, hold
):
    # With gaps
    groups = np.random.default_rng(seed).permutation(
        np.repeat(3 * np.arange(len(sizes)), sizes)
    )
    m, numbers = len(groups), np.random.default_rng(seed).normal(size=len(groups))
    target = Target.of(
        numbers if task == "regression" else np.array(["a", "b"])[np.arange(m) % 2]
    )
    refused = (
        ["each class must have a group in", "a class must have"]
        if task != "regression"
        else []
    )
    folds = drawn_or_refused(
        lambda: assign_folds(target, n_folds, seed, groups), *refused
    )
    if folds is not None:
        assert undivided(groups, folds)
        assert set(folds) == set(range(n_folds))
    draw = partial(
        assign_nested_split, target, m // 2, max(2, m // 3), 3, seed, None, groups
    )
    nested = drawn_or_refused(draw, "each class", "one group a fold")
    assert nested is None or undivided(groups, nested)
    held_out = groups >= np.sort(groups)[m // 2] if hold else None
    free = m if held_out is None else int(np.sum(~held_out))
    wanted = [max(2, free // 2), max(2, free // 4)]
    test = None if hold else max(2, m // 5)
    draw = partial(assign_split, target, *wanted, test, seed, held_out, groups)
    folds = drawn_or_refused(
        draw, "each class", "need a group each", "2 to", "at most the"
    )
    if folds is None:
        return
    assert undivided(groups, folds)
    assert set(folds) >= {0, 1, 2}
    if held_out is not None:
        np.testing.assert_array_equal(held_out, folds == 2)
    ends = np.cumsum([np.sum(folds == part) for part in (0, 1)])
    # A part has a group at least, and ends nowhere further from where it should than a
    # group is large.
    assert np.all(np.abs(ends - np.cumsum(wanted)) <= 2 * max(sizes))


@settings(max_examples=60)
@given(st.lists(st.integers(0, 30), min_size=12, max_size=80), st.integers(3, 8))
def test_blocks_follow_time_and_nothing_later_ever_trains(times, n_folds):
    times, target = np.array(times), Target.of(np.linspace(0, 1, len(times)))
    said = "rows of one time stay together, so there must be at least one time per f"
    folds = drawn_or_refused(lambda: assign_blocks(target, n_folds, times), said)
    assert (folds is None) == (len(np.unique(times)) < n_folds)
    if folds is None:
        return
    assert undivided(times, folds)
    assert set(folds) == set(range(n_folds))
    plan = trials_in_time(n_folds)
    assert [trial.test for trial in plan] == list(range(2, n_folds))
    for trial in plan:
        in_order(times, folds, trial)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 200), min_size=20, max_size=80), st.booleans())
def test_the_last_rows_of_a_split_in_time_test(times, nested):
    times, m = np.array(times), len(times)
    target = Target.of(np.linspace(0, 1, m))

    sizes = (m // 2, m // 4, 3) if nested else (m // 2, m // 5, m // 5)
    draw = partial(
        assign_nested_split if nested else assign_split, target, *sizes, 0, times=times
    )
    if (folds := drawn_or_refused(draw, "rows of one time stay together")) is None:
        return
    assert undivided(times, folds)
    trial = nested_split_trial(3, True) if nested else split_trial()
    assert folds[times.argmax()] == trial.test
    for each in [trial, *(inner_trials(trial) if nested else ())]:
        in_order(times, folds, each)


def in_order(times: np.ndarray, folds: np.ndarray, trial: Trial) -> None:
    training, test = times[np.isin(folds, trial.training)], times[folds == trial.test]
    assert len(training)
    assert training.max() < test.min()
    if trial.validation is not None:
        validation = times[folds == trial.validation]
        assert training.max() < validation.min()
        assert trial.validation == trial.test or validation.max() < test.min()


def test_blocks_of_distinct_times_are_of_equal_size_and_a_split_takes_the_last_rows():
    times = np.random.default_rng(0).permutation(60)
    target = Target.of(np.linspace(0, 1, 60))
    np.testing.assert_array_equal(assign_blocks(target, 5, times), times // 12)
    folds = assign_split(target, 20, 8, 12, 0, times=times)
    np.testing.assert_array_equal(
        folds, np.where(times < 20, -1, np.digitize(times, [40, 48]))
    )


def test_classes_of_groups_are_spread_and_rows_are_too_where_each_is_a_group():
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(40), rng.integers(2, 9, 40))
    label = np.array(["low", "high"])[(np.arange(40) % 4 == 0).astype(int)]
    target = Target.of(label[groups])
    folds = assign_folds(target, 5, 0, groups)
    shares = [np.mean(target.values[folds == fold]) for fold in range(5)]
    assert np.ptp(shares) < 0.15
    drawn = assign_split(target, 100, 40, 40, 0, groups=groups)
    assert np.abs(np.bincount(drawn + 1)[1:] - [100, 40, 40]).max() <= 8
    assert (
        np.abs(
            [
                target.values[drawn == part].mean() - target.values.mean()
                for part in (0, 1)
            ]
        ).max()
        < 0.2
    )
    own = np.arange(len(groups))
    by_rows, alone = (
        assign_split(target, 100, 40, 40, 3, groups=of) for of in (own, None)
    )
    np.testing.assert_array_equal(by_rows, alone)


def test_a_seed_repeats_its_groups_and_another_draws_others():
    groups = np.repeat(np.arange(30), 4)
    for target in (
        Target.of(np.arange(120.0)),
        Target.of((np.arange(120) // 4 % 2).astype(str)),
    ):
        folds, split = (
            partial(assign_folds, target, 5),
            partial(assign_split, target, 60, 24, 24),
        )
        for draw in (folds, split):
            np.testing.assert_array_equal(
                draw(3, groups=groups), draw(3, groups=groups)
            )
            assert (draw(3, groups=groups) != draw(4, groups=groups)).any()


def test_what_groups_or_time_do_not_allow_is_refused():
    numbers, classes = (
        Target.of(np.arange(20.0), "regression"),
        Target.of(np.repeat(["a", "b"], 10)),
    )
    i, split = np.arange(20), partial(assign_split, numbers, 10, 4)
    refused = {
        "at least one group a fold, got 4 groups for 5 folds": partial(
            assign_folds, numbers, 5, 0, i // 5
        ),
        "each class must have a group in at least 3 folds, .* got 1 for class 'b'; use fewer folds": (
            partial(assign_folds, classes, 5, 0, np.minimum(i, 10))
        ),
        "train and validation and test need a group each, got 2 in all": partial(
            split, 4, 0, groups=i // 10
        ),
        "a group must be held out whole, got 1 with rows that test and": partial(
            split, None, 0, i > 11, i // 5
        ),
        "times say which rows train and test, got held_out or groups n": partial(
            split, 4, 0, i > 11, times=i
        ),
        "stay together, so .* test need a time each, got 2 in all": partial(
            split, 4, 0, times=i // 10
        ),
        r"at most the 20 rows there are, got 10 \+ 4 \+ 8 = 22": partial(
            split, 8, 0, times=i
        ),
        "one row in the first block of time, which trains alone once, got none of class 'b', 10 of 20 rows, among 4": (
            partial(assign_blocks, classes, 5, i)
        ),
        "each class must have at least one training row, got none of class 'a', 10 of 20 rows, among 4": (
            partial(assign_split, classes, 4, 3, 3, 0, times=i)
        ),
    }
    require_refusals((draw, sentence) for sentence, draw in refused.items())


def test_trials_without_time_are_as_they_were():
    assert [trial.ordered for trial in trials(5)] == [False] * 5
    assert inner_trials(nested_split_trial(3, True)) == [
        Trial(0, (0,), 1, 1),
        Trial(1, (0, 1), 2, 2),
    ]
