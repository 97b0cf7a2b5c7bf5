"""Drift: the test by the kernel against double loops, and what it and the tests of columns see."""

from __future__ import annotations

import numpy as np
import pytest

from learnkernels import GaussianFamily, learn_kernel
from learnkernels.kernels.drift import REFERENCE_ROWS, Drift, NewRows, Reference, _holm, drift_of, kernel_test


def estimate(K: np.ndarray, first: list[int], second: list[int]) -> float:
    """The unbiased estimate of the squared discrepancy, term by term."""
    total = 0.0
    for some in (first, second):
        total += sum(K[i, j] for i in some for j in some if i != j) / (len(some) * (len(some) - 1))
    return total - 2 * sum(K[i, j] for i in first for j in second) / (len(first) * len(second))


def gram(rows: np.ndarray) -> np.ndarray:
    return np.exp(-0.3 * ((rows[:, None] - rows[None]) ** 2).sum(axis=2))


def test_the_estimate_and_its_permutations_are_those_of_double_loops():
    rng, n, m = np.random.default_rng(0), 5, 7
    K = gram(rng.normal(size=(n + m, 2)))
    everybody = list(range(n + m))
    draws = np.random.default_rng(3)
    divisions = [everybody, *(draws.permutation(n + m).tolist() for _ in range(30))]
    found = [estimate(K, of[:n], of[n:]) for of in divisions]
    mmd2, p = kernel_test(K, n, 30, seed=3)
    assert mmd2 == pytest.approx(found[0], rel=1e-12)
    assert p == np.mean(np.array(found) >= found[0])
    shifted = kernel_test(K + 5.0, n, 30, seed=3)
    assert shifted == pytest.approx((mmd2, p), abs=1e-12)


def test_p_values_are_even_where_nothing_differs_and_small_where_something_does():
    ps = []
    for seed in range(200):
        rows = np.random.default_rng(seed).normal(size=(40, 2))
        ps.append(kernel_test(gram(rows), 15, 99, seed)[1])
    # Kolmogorov's distance of 200 even numbers exceeds .115 in one of a hundred samples.
    assert np.abs(np.sort(ps) - np.arange(1, 201) / 200).max() < 0.115
    rows = np.random.default_rng(0).normal(size=(80, 2))
    rows[:40] += 1.0
    assert kernel_test(gram(rows), 40, 99)[1] == 0.01


def test_p_values_of_columns_are_adjusted_as_holm_says():
    assert _holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})


def test_what_moved_is_named_and_dates_and_ignored_columns_are_not_tested():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    X[:, 3] = X[:, 3] > 1
    kernel = learn_kernel("align", GaussianFamily([0.3, 1.0]), X, X[:, 0])
    columns = [("a", "numbers"), ("b", "numbers"), ("when", "dates"), ("b", "gaps")]
    reference = Reference.of(X, X.min(axis=0), X.max(axis=0), lambda rows: rows[:, :1], 0)
    assert reference.shares[3] == pytest.approx((X[:, 3] != 0).mean())

    new = rng.normal(size=(600, 4))
    new[:, 3] = new[:, 3] > 1

    def found(*moved: float, ignore: tuple[str, ...] = ()) -> Drift:
        """What is found of new rows whose columns have moved by so much."""
        parts = np.array_split(new + np.array(moved), 3)
        blocks = [NewRows.of(part, part[:, :1], reference, [i]) for i, part in enumerate(parts)]
        return drift_of(kernel, columns, reference, blocks[0] + blocks[1] + blocks[2], ignore)

    same = found(0, 0, 0, 0)
    assert same.rows == REFERENCE_ROWS
    assert same.p > 0.05
    assert set(same.p_columns) == {"a", "b"}
    later = found(0, 0, 100, 0)
    assert (later.p, later.outside["when"]) == (same.p, 1.0)
    moved = found(0, 20, 0, 0)
    assert (moved.p_kernel, moved.p) == (1 / 200, moved.p_columns["b"] * 2)
    assert moved.p_columns["a"] > 0.05
    assert moved.p_columns["b"] < 1e-9
    assert moved.outside["b"] == 1.0
    assert found(0, 20, 0, 0, ignore=("b",)).p > 0.05
    assert found(3, 0, 0, 0).scores[0] > 0.8
