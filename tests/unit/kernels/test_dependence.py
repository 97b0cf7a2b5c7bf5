"""Debiased alignments, tests of dependence by permutation, and comparisons of representations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from learnkernels import (
    FeatureFamily,
    GaussianFamily,
    LinearFamily,
    alignment,
    center_gram,
    centered_alignment,
    learn_kernel,
)
from learnkernels.kernels.hypothesis_tests import bounds, dependence
from learnkernels.kernels.hypothesis_tests.dependence import (
    alignment_test,
    holm,
    independence_test,
    linear_cka,
)
from learnkernels.kernels.hypothesis_tests.drift import (
    PERMUTATIONS,
    REFERENCE_ROWS,
    Drift,
    NewRows,
    Reference,
    drift_of,
    kernel_test,
)
from tests.refusals import require_refusals


def dependent(m: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 4)) + 3.0
    return X, X[:, :2] @ rng.normal(size=(2, 3)) + rng.normal(size=(m, 3))


def hsic(K: np.ndarray, L: np.ndarray) -> float:
    """Return the unbiased estimate as Song et al. print it."""
    m, ones = len(K), np.ones(len(K))
    K, L = K - np.diag(np.diag(K)), L - np.diag(np.diag(L))
    means = (ones @ K @ ones) * (ones @ L @ ones) / ((m - 1) * (m - 2))
    return float(
        (np.trace(K @ L) + means - 2 / (m - 2) * (ones @ K @ L @ ones)) / (m * (m - 3))
    )


def debiased(K: np.ndarray, L: np.ndarray) -> float:
    return hsic(K, L) / np.sqrt(hsic(K, K) * hsic(L, L))


@pytest.mark.parametrize(
    ("m", "n_groups"), [(8, 2), (48, 12), (79, 19), (80, 20), (100, 20)]
)
def test_rows_make_as_many_groups_as_they_allow_up_to_twenty(m: int, n_groups: int):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, 2))
    test = partial(
        alignment_test,
        LinearFamily(),
        X,
        X[:, 0] + rng.normal(size=m),
        n_permutations=1,
    )
    for bound in ("low", "high"):
        np.testing.assert_array_equal(
            getattr(test(), bound), getattr(test(n_groups=n_groups), bound)
        )


def test_debiased_alignments_are_those_of_the_printed_estimator_however_kernels_are_given():
    X, Y = dependent()
    K, L = X @ X.T, Y @ Y.T
    assert independence_test(K, L, n_permutations=1).hsic == pytest.approx(
        hsic(K, L), rel=1e-10
    )
    assert centered_alignment(K, L, debiased=True) == pytest.approx(
        debiased(K, L), rel=1e-10
    )
    assert linear_cka(X, Y, debiased=True) == pytest.approx(debiased(K, L), rel=1e-10)
    assert linear_cka(X, Y) == pytest.approx(centered_alignment(K, L), rel=1e-10)
    assert alignment(K, L) == pytest.approx(
        np.vdot(K, L) / np.linalg.norm(K) / np.linalg.norm(L), rel=1e-12
    )
    Gaussian = GaussianFamily([0.1, 1.0])
    few = partial(alignment_test, n_permutations=1, n_groups=5)
    for family, grams, targets in (
        (Gaussian, Gaussian.tile(X, X), Y),
        (LinearFamily(), [K], Y),
        (FeatureFamily(range(4)), [np.outer(x, x) for x in X.T], Y[:, :1]),
    ):
        target, found = targets @ targets.T, few(family, X, targets)
        np.testing.assert_allclose(
            found.debiased, [debiased(G, target) for G in grams], atol=1e-10
        )
        np.testing.assert_allclose(
            found.alignments, [centered_alignment(G, target) for G in grams], atol=1e-10
        )


def test_cka_of_many_rows_adds_blocks_and_does_not_see_rotations_scales_or_origins():
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(20_000, 6)), rng.normal(size=(20_000, 5))
    Y[:, :2] += X[:, :2]
    X_c, Y_c = X - X.mean(axis=0), Y - Y.mean(axis=0)
    norms = np.linalg.norm(X_c.T @ X_c) * np.linalg.norm(Y_c.T @ Y_c)
    assert linear_cka(X, Y) == pytest.approx(
        np.linalg.norm(X_c.T @ Y_c) ** 2 / norms, rel=1e-10
    )
    Q = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    assert linear_cka(1e3 * X @ Q + 50.0, Y) == pytest.approx(
        linear_cka(X, Y), rel=1e-8
    )
    for scale in (1e-80, 1e80):
        for debiased in (True, False):
            expected = linear_cka(X, Y, debiased=debiased)
            found = linear_cka(scale * X, Y, debiased=debiased)
            assert found == pytest.approx(expected, rel=1e-10)
    few = X[:50], rng.normal(size=(50, 200))
    assert linear_cka(*few) > 0.2  # many features of few rows look alike
    assert abs(linear_cka(*few, debiased=True)) < 0.1


def test_p_values_hold_under_independence_and_find_dependence():
    """Of 500 draws 3 to 7 % are rejected at 5 %: two standard deviations of that share."""
    rng, by_features, by_matrices = np.random.default_rng(0), [], []
    for _ in range(500):
        X, y = rng.normal(size=(24, 2)), rng.normal(size=24)
        K = X @ X.T
        quick = {"n_permutations": 99, "random_state": int(rng.integers(2**31))}
        by_features.append(
            alignment_test(LinearFamily(), X, y, n_groups=2, **quick).p_values[0]
        )
        by_matrices.append(
            independence_test(K, np.exp(-((y[:, None] - y) ** 2)), **quick).p_value
        )
    for p in by_features, by_matrices:
        assert 0.03 <= np.mean(np.array(p) <= 0.05) <= 0.07
    X, Y = dependent()
    found = alignment_test(
        GaussianFamily([0.05, 1.0]), X, Y, n_permutations=199, n_groups=5
    )
    assert found.p_values[0] == 1 / 200
    assert found.low[0] <= found.debiased[0] <= found.high[0]
    assert independence_test(X @ X.T, Y @ Y.T, n_permutations=199).p_value == 1 / 200


def test_permutations_count_what_explicit_ones_reach(monkeypatch):
    monkeypatch.setattr(dependence, "PERMUTED_BYTES", 8 * 16 * 3 * 7)  # seven at once
    X, Y = dependent(16, seed=2)
    K, rng = (
        center_gram(np.exp(-0.1 * ((X[:, None] - X) ** 2).sum(axis=2))),
        np.random.default_rng(5),
    )
    rng.permutation(16)  # of the groups
    Y_c = Y - Y.mean(axis=0)
    forms = [
        np.vdot(Z, K @ Z) for Z in (Y_c, *(Y_c[rng.permutation(16)] for _ in range(50)))
    ]
    found = alignment_test(
        GaussianFamily([0.1]), X, Y, n_permutations=50, n_groups=2, random_state=5
    )
    assert found.p_values[0] == pytest.approx(np.mean(np.array(forms) >= forms[0]))


@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1e10), (np.float64, 1e100)])
def test_large_matrices_depend_as_those_of_another_unit(dtype, scale):
    X, Y = dependent()
    K = (X @ X.T * scale).astype(dtype)
    L = (Y @ Y.T * scale).astype(dtype)
    found = independence_test(K, L, n_permutations=99)
    expected = independence_test(
        K.astype(np.float64) / scale, L.astype(np.float64) / scale, n_permutations=99
    )
    assert found.p_value == expected.p_value == 1 / 100
    assert found.hsic == pytest.approx(expected.hsic * scale**2, rel=1e-9)


@pytest.mark.parametrize("kind", [LinearFamily, partial(FeatureFamily, 2)])
def test_permutations_that_tie_at_zero_up_to_rounding_count(kind):
    X = np.tile([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]], (2, 1)) * 0.3
    y = np.tile([-0.1, -0.1, 0.1, 0.1], 2)
    found = alignment_test(kind(), X, y, task="regression", n_permutations=199)
    np.testing.assert_array_equal(found.p_values, 1.0)


def test_intervals_cover_the_alignment_of_the_population():
    """Of 60 samples at least 85 % of the intervals of 95 % hold the alignment of 4,000 rows."""

    def draw(m, seed):
        X = np.random.default_rng(seed).normal(size=(m, 2))
        return X, X[:, 0] + np.random.default_rng(seed + 10_000).normal(size=m)

    family = GaussianFamily([0.3])
    X, y = draw(4000, 999)
    truth = alignment_test(family, X, y, n_permutations=1).debiased[0]
    held = [
        alignment_test(family, *draw(200, seed), n_permutations=1) for seed in range(60)
    ]
    assert np.mean([test.low[0] <= truth <= test.high[0] for test in held]) >= 0.85


def test_hypotheses_of_the_alignment_have_it_as_their_mean_and_err_within_the_bound():
    rng = np.random.default_rng(3)
    for seed, share in enumerate((0.5, 0.5, 0.3, 0.2)):
        X, _ = dependent(30, seed)
        y = np.where(X[:, 0] > np.quantile(X[:, 0], 1 - share), 1.0, -1.0)
        K = np.exp(-0.05 * ((X[:, None] - X) ** 2).sum(axis=2))
        z = (y - y.mean()) / y.std()
        h, g = (
            dependence.alignment_hypothesis(K, y, normalized=normalized)
            for normalized in (True, False)
        )
        assert (z * h).mean() == pytest.approx(
            centered_alignment(K, np.outer(y, y)), rel=1e-12
        )
        assert (z * g).mean() == pytest.approx(
            np.vdot(center_gram(K), np.outer(z, z)) / 900, rel=1e-12
        )
        for normalized in (True, False):
            assert (
                (z * h < 0).mean()
                <= dependence.alignment_error_bound(K, y, normalized=normalized)
                < 1
            )
        X_new = rng.normal(size=(5, 4)) + 3.0
        K_new = np.exp(-0.05 * ((X_new[:, None] - X) ** 2).sum(axis=2))
        by_rows = [
            sum(
                z[i] * (row[i] - row.mean() - K[:, i].mean() + K.mean())
                for i in range(30)
            )
            for row in K_new
        ]
        found = dependence.alignment_hypothesis(K, y, K_new, normalized=False)
        np.testing.assert_allclose(found, np.array(by_rows) / 30)


def population(n: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return probabilities of some points, and two kernels over them."""
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(n))
    x = rng.normal(size=n)
    return p, np.exp(-((x[:, None] - x) ** 2)), np.outer(x, x)


def centered_by(K: np.ndarray, p: np.ndarray) -> np.ndarray:
    return K - (K @ p)[:, None] - p @ K + p @ K @ p


def test_alignments_of_samples_are_within_the_bound_of_theorem_12():
    """A finite distribution, whose alignment is a sum. No deviation of 200 samples exceeds the bound."""
    p, K, L = population()
    K_c, L_c = centered_by(K, p), centered_by(L, p)
    weights = np.outer(p, p)
    squares = [float((weights * gram**2).sum()) for gram in (K_c, L_c)]
    alignment_of_all = float((weights * K_c * L_c).sum()) / np.sqrt(
        squares[0] * squares[1]
    )
    m, delta = 400, 0.05
    beta = max(np.diag(K).max() ** 2 / squares[0], np.diag(L).max() ** 2 / squares[1])
    bound = 18 * beta * (3 / m + 4 * np.sqrt(np.log(6 / delta) / (2 * m)))
    rng = np.random.default_rng(0)
    estimates = []
    for _ in range(200):
        rows = rng.choice(len(p), size=m, p=p)
        sample = np.ix_(rows, rows)
        assert abs(centered_alignment(K[sample], L[sample]) - alignment_of_all) <= bound
        estimates.append(
            bounds.alignment_deviation_bound(K[sample], L[sample], delta=delta)
        )
    # The bound of a sample has that sample's means of squares, which vary by some
    # percent.
    assert np.median(estimates) == pytest.approx(bound, rel=0.1)


def test_the_bound_of_theorem_12_has_no_units_and_falls_with_the_root_of_the_rows():
    p, K, L = population()
    rows = np.arange(len(p))
    once = bounds.alignment_deviation_bound(K, L)
    assert bounds.alignment_deviation_bound(1e6 * K, 1e-3 * L) == pytest.approx(
        once, rel=1e-12
    )
    assert bounds.alignment_deviation_bound(L, K) == pytest.approx(once, rel=1e-12)
    assert bounds.alignment_deviation_bound(K, L, delta=0.01) > once
    many = np.ix_(np.tile(rows, 100), np.tile(rows, 100))
    assert once / 100 < bounds.alignment_deviation_bound(K[many], L[many]) < once / 10


def test_the_example_of_the_page_on_bounds_has_its_numbers():
    """Theorem 13 as published fails for classes of unequal size; the corrected bound holds."""
    page = (
        Path(__file__)
        .parents[3]
        .joinpath("docs", "bounds.md")
        .read_text(encoding="utf-8")
    )
    q = 0.01
    s = 1 / np.sqrt(2 * q)
    nearly_zero = 1e-9
    # The rarer class, as much of the other, and the rest of it
    p = np.array([q, q, 1 - 2 * q])
    y = np.array([1.0, -1.0, -1.0])
    z = (y - p @ y) / np.sqrt(p @ y**2 - (p @ y) ** 2)
    f = np.array([s, -s, nearly_zero])
    f = f - p @ f
    h = f * (p @ (z * f)) / (p @ f**2)
    accuracy = p[z * h > 0].sum()
    rho = p @ (z * h)
    gamma = np.abs(f).max() / np.sqrt(p @ f**2)
    assert accuracy == pytest.approx(0.02)
    assert rho / gamma == pytest.approx(0.07, abs=0.005)
    assert "The accuracy is 0.02; the published bound" in " ".join(page.split())
    assert "bound is 0.07" in " ".join(page.split())
    assert rho / gamma / np.abs(z).max() <= accuracy < rho / gamma


def constant_data(K: np.ndarray) -> list[tuple[Callable[[], object], str]]:
    """Return calls with a constant target or matrix that rounding hides."""
    y = np.linspace(0.0, 1.0, 40)
    constant = np.full((40, 40), 0.1)
    table: list[tuple[Callable[[], object], str]] = []
    for function in (
        dependence.alignment_hypothesis,
        dependence.alignment_error_bound,
    ):
        for normalized in (True, False):
            call = partial(function, normalized=normalized)
            table += [
                (
                    partial(call, K[:3, :3], np.full(3, 0.1)),
                    "the target is constant",
                ),
                (partial(call, constant, y), "K is constant after centering"),
            ]
    table.append(
        (partial(bounds.alignment_deviation_bound, K, constant), "L is constant after")
    )
    return table


def test_bad_input_gets_one_sentence():
    X, Y = dependent()
    K, eye = X @ X.T, np.eye(5)
    table = [
        (
            partial(centered_alignment, eye[:3, :3], eye[:3, :3], debiased=True),
            "at least 4 samples",
        ),
        (
            partial(centered_alignment, K, K, np.ones(40), debiased=True),
            "without weights",
        ),
        (
            partial(centered_alignment, eye, eye, debiased=True),
            "K is constant after centering",
        ),
        (partial(alignment, K, 0 * K), "a matrix is zero"),
        (
            partial(linear_cka, X, Y[:-1]),
            r"one row a sample, got shapes \(40, 4\) and \(39, 3\)",
        ),
        (partial(linear_cka, X, np.full((40, 2), 0.1)), "Y is the same in all rows"),
        (partial(linear_cka, np.where(X > 3, np.nan, X), Y), "X must be finite"),
        (
            partial(alignment_test, LinearFamily(), X, Y, n_groups=11),
            "n_groups must be from 2 to a quarter",
        ),
        (
            partial(alignment_test, LinearFamily(), X[:7], Y[:7]),
            "takes at least 8 rows, got 7; give more rows",
        ),
        (
            partial(alignment_test, LinearFamily(), X, Y, n_groups=4, level=1.0),
            "level between 0 and 1",
        ),
        (
            partial(
                alignment_test,
                LinearFamily(),
                X,
                np.ones(40),
                task="regression",
                n_groups=4,
            ),
            "must vary",
        ),
        (partial(independence_test, K, eye), "same samples"),
        (
            partial(dependence.alignment_hypothesis, K, Y),
            r"one output per row of K, got shape \(40, 3\) for 40 rows",
        ),
        (
            partial(dependence.alignment_error_bound, K, np.ones(40)),
            "at least two classes",
        ),
        *constant_data(K),
        (
            partial(independence_test, K, K, n_permutations=0),
            "n_permutations must be positive",
        ),
        (
            partial(bounds.alignment_deviation_bound, K, K, delta=1.0),
            "delta must be between 0 and 1, got 1.0",
        ),
        (
            partial(bounds.alignment_deviation_bound, K, 0 * K),
            "constant after centering",
        ),
        (partial(bounds.alignment_deviation_bound, K, eye), "over the same samples"),
    ]
    require_refusals(table)


# Drift: the test by the kernel against double loops, and what it and the tests of columns see ------------------------


def estimate(K: np.ndarray, first: list[int], second: list[int]) -> float:
    """The unbiased estimate of the squared discrepancy, term by term."""
    total = 0.0
    for some in (first, second):
        total += sum(K[i, j] for i in some for j in some if i != j) / (
            len(some) * (len(some) - 1)
        )
    return total - 2 * sum(K[i, j] for i in first for j in second) / (
        len(first) * len(second)
    )


def gram(rows: np.ndarray) -> np.ndarray:
    return np.exp(-0.3 * ((rows[:, None] - rows[None]) ** 2).sum(axis=2))


def test_the_estimate_and_its_permutations_are_those_of_double_loops():
    rng, n, m = np.random.default_rng(0), 5, 7
    K = gram(rng.normal(size=(n + m, 2)))
    everybody = list(range(n + m))
    draws = np.random.default_rng(0)
    divisions = [
        everybody,
        *(draws.permutation(n + m).tolist() for _ in range(PERMUTATIONS)),
    ]
    found = [estimate(K, of[:n], of[n:]) for of in divisions]
    mmd2, p = kernel_test(K, n)
    assert mmd2 == pytest.approx(found[0], rel=1e-12)
    assert p == np.mean(np.array(found) >= found[0])
    shifted = kernel_test(K + 5.0, n)
    assert shifted == pytest.approx((mmd2, p), abs=1e-12)


def test_p_values_are_even_where_nothing_differs_and_small_where_something_does():
    ps = []
    for seed in range(200):
        rows = np.random.default_rng(seed).normal(size=(40, 2))
        ps.append(kernel_test(gram(rows), 15)[1])
    # Kolmogorov's distance of 200 even numbers exceeds .115 in one of a hundred
    # samples.
    assert np.abs(np.sort(ps) - np.arange(1, 201) / 200).max() < 0.115
    rows = np.random.default_rng(0).normal(size=(80, 2))
    rows[:40] += 1.0
    assert kernel_test(gram(rows), 40)[1] == 0.005


def test_p_values_are_adjusted_as_holm_says():
    np.testing.assert_allclose(
        holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02]
    )
    assert holm([0.6, 0.7]).tolist() == [1.0, 1.0]
    assert holm([]).tolist() == []


def test_what_moved_is_named_and_dates_and_ignored_columns_are_not_tested():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    X[:, 3] = X[:, 3] > 1
    kernel = learn_kernel(
        X, X[:, 0], learner="align", family=GaussianFamily([0.3, 1.0])
    )
    columns = [("a", "numbers"), ("b", "numbers"), ("when", "dates"), ("b", "gaps")]
    reference = Reference.of(
        X, X.min(axis=0), X.max(axis=0), lambda rows: rows[:, :1], 0
    )
    assert reference.shares[3] == pytest.approx((X[:, 3] != 0).mean())

    new = rng.normal(size=(600, 4))
    new[:, 3] = new[:, 3] > 1

    def found(*moved: float, ignore: tuple[str, ...] = ()) -> Drift:
        """What is found of new rows whose columns have moved by so much."""
        parts = np.array_split(new + np.array(moved), 3)
        blocks = [
            NewRows.of(part, part[:, :1], reference, [i])
            for i, part in enumerate(parts)
        ]
        return drift_of(
            kernel, columns, reference, blocks[0] + blocks[1] + blocks[2], ignore
        )

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
