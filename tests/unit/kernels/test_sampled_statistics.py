"""First-stage statistics from a sample of rows: unbiased, and exact of all rows."""

import io
from dataclasses import fields
from functools import partial
from itertools import combinations

import numpy as np
import pytest

from learnkernels import FeatureFamily, GaussianFamily, center_gram, gram_statistics
from learnkernels.kernels.files import from_bytes, to_bytes
from learnkernels.kernels.learners import CA, learn_from_statistics, learn_path
from learnkernels.kernels.statistics import sampled
from learnkernels.kernels.statistics.gram import GramStatistics
from learnkernels.kernels.statistics.sampled import (
    SampledStatistics,
    Sampling,
    sample_statistics,
)
from learnkernels.kernels.targets import Target
from tests.refusals import refusal, require_refusals
from tests.unit.kernels.conftest import assert_same_statistics
from tests.unit.kernels.test_serialization import changed

# Two ways of adding the same numbers, and of centering them.
REGROUPED = 1e-9

FAMILY = GaussianFamily([2.0**-7, 2.0**-3, 0.5, 4.0])
"""From nearly constant to nearly the identity."""


def data(kind: str, m: int, d: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, d))
    f = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.5 * X[:, 3]
    if kind == "regression":
        return X, f + 0.5 * rng.normal(size=m)
    if kind == "heavy tails":
        return X, f + rng.standard_t(2.5, size=m)
    if kind == "several classes":
        return X, np.eye(3)[np.digitize(f, [-1.0, 1.0])]
    return X, np.where(f > np.quantile(f, 0.9), 1.0, -1.0)  # a rare class


def drawn(
    m: int = 1200, n: int = 400, folds: int = 3, **options
) -> tuple[SampledStatistics, np.ndarray, np.ndarray]:
    X, y = data("regression", m)
    groups = np.random.default_rng(1).permutation(m) % folds
    return sample_statistics(FAMILY, X, y, groups, sample=n, **options), X, y


assert_same = partial(assert_same_statistics, centered=(True, False))


def assert_equal_fields(got, expected, *without: str) -> None:
    for item in fields(expected):
        if item.name not in without:
            np.testing.assert_array_equal(
                getattr(got, item.name), getattr(expected, item.name), item.name
            )


def sums(K: np.ndarray, L: np.ndarray) -> np.ndarray:
    """Of two kernels centered on their rows: the product, that of the diagonals and that of the traces."""
    K, L = center_gram(K), center_gram(L)
    return np.array([np.vdot(K, L), np.diag(K) @ np.diag(L), np.trace(K) * np.trace(L)])


# Estimates -----------------------------------------------------------------------------------------------------------


def test_the_mean_over_all_samples_is_what_all_rows_give():
    X, y = data("regression", 9)
    K, L = FAMILY.tile(X, X)[2], np.outer(y, y) + 2.0
    for n in (4, 6, 8):
        factors = np.linalg.solve(
            sampled.factors_of_moments(n).T, sampled.factors_of_moments(9)[0]
        )
        samples = [np.ix_(rows, rows) for rows in combinations(range(9), n)]
        mean = np.mean([factors @ sums(K[rows], L[rows]) for rows in samples])
        assert mean == pytest.approx(sums(K, L)[0], rel=1e-11)


def test_estimates_are_those_of_matrices_of_the_sampled_rows():
    statistics, X, y = drawn(keep_origin=True)
    n, m, rows = 400, 1200, statistics.rows
    kernels = [*FAMILY.tile(X[rows], X[rows]), np.outer(y[rows], y[rows])]
    factors = np.linalg.solve(
        sampled.factors_of_moments(n).T, sampled.factors_of_moments(m)[0]
    )
    # As they are, pairs of two rows and rows alone count by their shares.
    share = np.where(np.eye(n), m / n, m * (m - 1) / (n * (n - 1)))
    for centered, estimate in (
        (True, lambda K, L: factors @ sums(K, L)),
        (False, lambda K, L: (share * K * L).sum()),
    ):
        M = np.array([[estimate(K, L) for L in kernels] for K in kernels])
        np.testing.assert_allclose(
            statistics.products(centered), M[:-1, :-1], rtol=REGROUPED
        )
        np.testing.assert_allclose(
            statistics.target_products(centered), M[-1, :-1], rtol=REGROUPED
        )
        assert statistics.target_norm(centered) == pytest.approx(
            np.sqrt(M[-1, -1]), rel=REGROUPED
        )
    traces = (
        np.array([np.trace(center_gram(K)) for K in kernels[:-1]]) * (m - 1) / (n - 1)
    )
    np.testing.assert_allclose(statistics.traces(), traces, rtol=REGROUPED)


def test_of_all_rows_they_are_exact():
    X, y = data("several classes", 300)
    groups = np.arange(300) % 4
    exact = gram_statistics(FAMILY, X, y, groups)
    for size in ("auto", 300, 10_000):
        statistics = sample_statistics(FAMILY, X, y, groups, sample=size)
        assert isinstance(statistics, GramStatistics)
        assert_equal_fields(statistics, exact)
    # A fold group that is sampled whole is exact, too.
    few = np.r_[np.zeros(297, dtype=int), 1, 1, 1]
    part = sample_statistics(FAMILY, X, y, few, sample=256, keep_origin=True).restrict(
        (1,)
    )
    assert_same(
        part,
        gram_statistics(FAMILY, X, y, few, keep_origin=True).restrict((1,)),
        REGROUPED,
    )


def test_auto_is_one_size_and_each_fold_group_has_its_share():
    groups = np.repeat([0, 1, 2], [9_000, 9_000, 2])
    X, y = np.arange(18_002.0)[:, None], np.sin(np.arange(18_002.0))
    statistics = sample_statistics(GaussianFamily([1e-6]), X, y, groups)
    np.testing.assert_array_equal(np.bincount(statistics.group), [4096, 4095, 2])


def test_a_union_of_folds_is_sampled_as_it_would_be_on_its_own():
    X, y = data("regression", 1200)
    groups = np.arange(1200) % 4
    held = np.flatnonzero(np.isin(groups, (1, 3)))
    union = sample_statistics(FAMILY, X, y, groups, sample=800).restrict((1, 3))
    alone = sample_statistics(FAMILY, X[held], y[held], groups[held], sample=400)
    np.testing.assert_array_equal(union.rows, held[alone.rows])
    assert (union.labels, union.total_rows, union.total_weight) == ((1, 3), 600, 600.0)
    assert_same(union, alone, REGROUPED)


def test_samples_of_a_seed_are_the_same_and_nested_and_spread_over_folds():
    X, y = data("regression", 2000)
    groups = np.repeat([0, 1, 2], [1000, 600, 400])
    drawn = partial(sample_statistics, FAMILY, X, y, groups)
    small, again, other, zero = (drawn(sample=500, seed=seed) for seed in (3, 3, 4, 0))
    np.testing.assert_array_equal(drawn(sample=500).rows, zero.rows)
    large = drawn(sample=1000, seed=3)
    np.testing.assert_array_equal(small.rows, again.rows)
    np.testing.assert_array_equal(small.products(), again.products())
    assert set(small.rows) < set(large.rows)
    assert set(small.rows) != set(other.rows)
    np.testing.assert_array_equal(np.bincount(groups[small.rows]), [250, 150, 100])
    np.testing.assert_array_equal(small.labels, [0, 1, 2])
    np.testing.assert_array_equal(groups[small.rows], small.group)


# Learned kernels -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "learner", ["unif", "alignf", "alignf-uncentered", "l2-krr", "ca"]
)
def test_a_kernel_of_a_sample_tells_how_many_rows_there_were(learner):
    statistics, X, y = drawn(m=800, n=300, keep_origin=True)
    given, learner = (None, CA(max_kernels=1)) if learner == "ca" else (FAMILY, learner)
    (kernel,) = learn_path(learner, given, X, statistics, Target.of(y), [1.0])
    assert (kernel.sampling, set(kernel.rows)) == (
        Sampling(300, 800),
        set(statistics.rows),
    )
    K = np.tensordot(
        kernel.combination.coefficients,
        kernel.family.tile(X[kernel.rows], X[kernel.rows]),
        axes=1,
    )
    np.testing.assert_allclose(
        kernel.gram(), center_gram(K), atol=1e-10 * np.abs(K).max()
    )
    assert from_bytes(to_bytes(kernel)).sampling == kernel.sampling
    # Kernels of all rows have none.
    (whole,) = learn_path(
        learner,
        given,
        X,
        gram_statistics(FAMILY, X, y, keep_origin=True),
        Target.of(y),
        [1.0],
    )
    assert whole.sampling is None


# Files ---------------------------------------------------------------------------------------------------------------


def test_arrays_come_back():
    statistics, _, _ = drawn(m=900, n=300, keep_origin=True)
    statistics, file = statistics.restrict((0, 2)), io.BytesIO()
    np.savez(file, **statistics.to_arrays(), folds=np.arange(3))
    file.seek(0)
    arrays = dict(np.load(file, allow_pickle=False))
    again = sampled.statistics_from_arrays(arrays)
    assert isinstance(again, SampledStatistics)
    # Products of the same numbers, in memory of another alignment
    assert_same(again, statistics, rtol=1e-13)
    assert_equal_fields(again.sample, statistics.sample)
    assert_equal_fields(again, statistics, "sample")
    assert_same(again.restrict((2,)), statistics.restrict((2,)), rtol=1e-13)


def test_a_file_with_a_wrong_sample_is_refused():
    statistics, X, _ = drawn(m=800, n=300)
    kernel = learn_from_statistics("align", FAMILY, X, statistics)
    assert from_bytes(to_bytes(kernel)).sampling == Sampling(300, 800)
    refused = changed(kernel, ("sampling.n_rows", "many"))
    require_refusals([(refused, "n_rows of Sampling cannot be 'many'")])


# What it refuses -----------------------------------------------------------------------------------------------------


def test_what_cannot_be_sampled_is_refused_in_one_sentence():
    (X, y), groups = data("regression", 600), np.arange(600) % 4
    refused = [
        (
            {"sample": 255},
            "sample must be 'auto' or a number of rows of at least 256, got 255",
        ),
        (
            {"sample": "all"},
            "sample must be 'auto' or a number of rows of at least 256, got 'all'",
        ),
        (
            {"groups": groups - 1},
            "groups must not be negative, got -1; leave those rows out",
        ),
        (
            {"groups": np.zeros(5)},
            "Y and groups must have one entry per row of X, got 600 and 5 for 600 rows",
        ),
        (
            {"X": np.zeros((1, 5)), "Y": np.zeros(1), "groups": None},
            "X must have at least two rows, got 1",
        ),
        (
            {"family": FeatureFamily(["a"])},
            "family must not be of rank-one features to be sampled; gram_statistics",
        ),
    ]
    given = {"family": FAMILY, "X": X, "Y": y, "groups": groups}
    require_refusals(
        (partial(sample_statistics, **given | options), message)
        for options, message in refused
    )


def test_a_target_that_varies_on_no_sampled_row_is_refused():
    X, _ = data("regression", 2500)
    sampled = sample_statistics(FAMILY, X, X[:, 0], sample=300).rows
    outside = np.isin(
        np.arange(2500), np.setdiff1d(np.arange(2500), sampled)[:1]
    ).astype(float)
    sample = partial(sample_statistics, FAMILY, X, sample=300)
    assert (
        "the target is constant on the 300 sampled rows; take a larger sample"
        in refusal(sample, outside)
    )
