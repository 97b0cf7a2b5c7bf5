"""First-stage statistics from a sample of rows: unbiased, exact of all rows, and with intervals that hold."""

import io
from dataclasses import fields
from functools import partial
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t

from learnkernels import FeatureFamily, GaussianFamily, LinearFamily, gram_moments
from learnkernels.kernels.centering import center_gram
from learnkernels.kernels.learners import CA, Align, Alignf, as_learner
from learnkernels.kernels.learning import learn_from_moments
from learnkernels.kernels.moments.error_bars import CAUTION, Sampling, alignment_concentration, alignment_of, half_width
from learnkernels.kernels.moments.sampled import SampledMoments, expectations
from learnkernels.kernels.moments.sampling import sample_moments
from learnkernels.kernels.persistence.kernel import kernel_to_arrays
from learnkernels.kernels.targets import Target
from tests.refusals import refusal, require_refusals
from tests.unit.kernels.conftest import STATISTICS, assert_same_statistics
from tests.unit.kernels.test_serialisation import changed, description, loaded, saved

# Two ways of adding the same numbers, and of centering them.
REGROUPED = 1e-9

FAMILY = GaussianFamily([2.0**-7, 2.0**-3, 0.5, 4.0])
"""From nearly constant to nearly the identity."""

ALIGNF = Alignf().finder("trace")


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


def drawn(m: int = 1200, n: int = 400, folds: int = 3, **options) -> tuple[SampledMoments, np.ndarray, np.ndarray]:
    X, y = data("regression", m)
    groups = np.random.default_rng(1).permutation(m) % folds
    return sample_moments(FAMILY, X, y, groups, sample=n, **options), X, y


RAW = [f"uncentered_{name}" for name in ("frobenius", "target", "target_norm", "traces", "alignments")]
assert_same = partial(assert_same_statistics, names=[*STATISTICS, *RAW])


def assert_equal_fields(got, expected, *without: str) -> None:
    for item in fields(expected):
        if item.name not in without:
            np.testing.assert_array_equal(getattr(got, item.name), getattr(expected, item.name), item.name)


def alignments(part) -> np.ndarray:
    return part.alignments


def sums(K: np.ndarray, L: np.ndarray) -> np.ndarray:
    """Of two kernels centered on their rows: the product, that of the diagonals and that of the traces."""
    K, L = center_gram(K), center_gram(L)
    return np.array([np.vdot(K, L), np.diag(K) @ np.diag(L), np.trace(K) * np.trace(L)])


# Estimates -----------------------------------------------------------------------------------------------------------


def test_the_mean_over_all_samples_is_what_all_rows_give():
    X, y = data("regression", 9)
    K, L = FAMILY.tile(X, X)[2], np.outer(y, y) + 2.0
    for n in (4, 6, 8):
        factors = np.linalg.solve(expectations(n).T, expectations(9)[0])
        samples = [np.ix_(rows, rows) for rows in combinations(range(9), n)]
        mean = np.mean([factors @ sums(K[rows], L[rows]) for rows in samples])
        assert mean == pytest.approx(sums(K, L)[0], rel=1e-11)


def test_estimates_are_those_of_matrices_of_the_sampled_rows():
    moments, X, y = drawn(keep_origin=True)
    n, m, rows = 400, 1200, moments.rows
    kernels = [*FAMILY.tile(X[rows], X[rows]), np.outer(y[rows], y[rows])]
    factors = np.linalg.solve(expectations(n).T, expectations(m)[0])
    # As they are, pairs of two rows and rows alone count by their shares.
    share = np.where(np.eye(n), m / n, m * (m - 1) / (n * (n - 1)))
    for prefix, estimate in (
        ("", lambda K, L: factors @ sums(K, L)),
        ("uncentered_", lambda K, L: (share * K * L).sum()),
    ):
        M = np.array([[estimate(K, L) for L in kernels] for K in kernels])
        np.testing.assert_allclose(getattr(moments, f"{prefix}frobenius"), M[:-1, :-1], rtol=REGROUPED)
        np.testing.assert_allclose(getattr(moments, f"{prefix}target"), M[-1, :-1], rtol=REGROUPED)
        assert getattr(moments, f"{prefix}target_norm") == pytest.approx(np.sqrt(M[-1, -1]), rel=REGROUPED)
    traces = np.array([np.trace(center_gram(K)) for K in kernels[:-1]]) * (m - 1) / (n - 1)
    np.testing.assert_allclose(moments.centered_traces, traces, rtol=REGROUPED)


def test_of_all_rows_they_are_exact_and_their_error_bars_zero():
    X, y = data("several classes", 300)
    groups = np.arange(300) % 4
    exact = gram_moments(FAMILY, X, y, groups)
    for size in ("auto", 300, 10_000):
        moments = sample_moments(FAMILY, X, y, groups, sample=size, unions=[(0, 1, 2)])
        for union in ((0, 1, 2, 3), (0, 1, 2), (3,)):
            of = moments.restrict(union)
            assert_same(of, exact.restrict(union), rtol=1e-13)
            assert of.exact
            np.testing.assert_array_equal(of.rows, exact.restrict(union).rows)
            np.testing.assert_array_equal(half_width(of, alignments), np.zeros(4))


def test_a_union_of_folds_is_sampled_as_it_would_be_on_its_own():
    X, y = data("regression", 1200)
    groups = np.arange(1200) % 4
    held = np.flatnonzero(np.isin(groups, (1, 3)))
    union = sample_moments(FAMILY, X, y, groups, sample=800, unions=[(1, 3)]).restrict((1, 3))
    alone = sample_moments(FAMILY, X[held], y[held], groups[held], sample=400, unions=[(1, 3)])
    np.testing.assert_array_equal(union.rows, held[alone.rows])
    assert (union.labels, union.total_rows, union.total_weight) == ((1, 3), 600, 600.0)
    assert_same(union, alone, REGROUPED)
    np.testing.assert_allclose(half_width(union, alignments), half_width(alone, alignments), rtol=1e-6)


def test_a_replicate_is_the_estimate_without_the_rows_of_one_part():
    moments, X, y = drawn(m=900, n=300, folds=2)
    parts = list(moments.replicates())
    assert len(parts) == 2 * 16
    left_out = np.concatenate([np.setdiff1d(moments.rows, part.rows) for part in parts])
    np.testing.assert_array_equal(np.sort(left_out), np.sort(moments.rows))
    part = parts[20]
    assert part.total_rows == 900
    exact = gram_moments(FAMILY, X[part.rows], y[part.rows])
    for name in ("frobenius", "target", "centered_traces"):
        np.testing.assert_allclose(getattr(part.sample, name), getattr(exact, name), rtol=REGROUPED)
    coefficients = np.array([0.5, 0.2, 1.0, 0.0])
    means = np.tensordot(coefficients, FAMILY.tile(X[part.rows], X[part.rows], part.shift).mean(axis=2), axes=1)
    np.testing.assert_allclose(part.combined_row_means(coefficients), means, rtol=REGROUPED, atol=1e-12)


def test_samples_of_a_seed_are_the_same_and_nested_and_spread_over_folds():
    X, y = data("regression", 2000)
    groups = np.repeat([0, 1, 2], [1000, 600, 400])
    small, again, other, zero = (sample_moments(FAMILY, X, y, groups, sample=500, seed=seed) for seed in (3, 3, 4, 0))
    np.testing.assert_array_equal(sample_moments(FAMILY, X, y, groups, sample=500).rows, zero.rows)
    large = sample_moments(FAMILY, X, y, groups, sample=1000, seed=3)
    np.testing.assert_array_equal(small.rows, again.rows)
    np.testing.assert_array_equal(small.frobenius, again.frobenius)
    assert set(small.rows) < set(large.rows)
    assert set(small.rows) != set(other.rows)
    np.testing.assert_array_equal(np.bincount(groups[small.rows]), [250, 150, 100])
    np.testing.assert_array_equal(small.labels, [0, 1, 2])
    np.testing.assert_array_equal(groups[small.rows], small.group)


def test_alignments_and_error_bars_do_not_change_with_units_and_origins():
    X, y = data("several classes", 900)
    given = ((X, y), (3 * X + 50, y), (X, 5 - 2 * y))
    drawn = [sample_moments(LinearFamily(), *of, sample=400) for of in given]
    shown = [[moments.alignments, half_width(moments, alignments)] for moments in drawn]
    np.testing.assert_allclose(shown[1:], [shown[0]] * 2, rtol=REGROUPED)


# Error bars ----------------------------------------------------------------------------------------------------------


def test_the_half_width_of_a_mean_is_the_one_of_the_textbook():
    moments, _, y = drawn(m=1200, n=396, folds=3)  # 33 parts of 12 rows
    means = [y[np.setdiff1d(moments.rows, part.rows)].mean() for part in moments.replicates()]
    variance = np.var(means, ddof=1) / 33 * (1 - 396 / 1200)
    expected = CAUTION * t.ppf(0.975, 32) * np.sqrt(variance)
    assert half_width(moments, lambda part: y[part.rows].mean()) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("kind", "find"), [("a rare class", Align().finder("trace")), ("heavy tails", ALIGNF)])
def test_intervals_contain_what_all_rows_give(kind, find):
    X, y = data(kind, 1200)

    def shown(part):
        return np.array([*part.alignments, alignment_of(part, find(part)[1])])

    whole = sample_moments(FAMILY, X, y, sample=1200)
    assert whole.exact
    held = np.zeros(5)
    for seed in range(100):
        moments = sample_moments(FAMILY, X, y, sample=300, seed=seed)
        held += np.abs(shown(moments) - shown(whole)) <= half_width(moments, shown)
    assert held.min() >= 93


def test_a_sample_grows_until_every_error_bar_is_within_the_tolerance():
    X, y = data("regression", 6000)
    groups, unions, told = np.arange(6000) % 3, [(0, 1), (0, 2), (1, 2)], []
    options = {"learners": [("alignf", ALIGNF)], "tolerance": 0.015, "tell": told.append}
    moments = sample_moments(FAMILY, X, y, groups, unions=unions, **options)
    assert 2048 < moments.n_rows < 6000
    assert len(told) > 1
    assert told[-1].startswith(f"{moments.n_rows} of 6000 rows: half widths of at most 0.01")
    for union in unions:
        part = moments.restrict(union)
        assert half_width(part, alignments).max() <= 0.015
        assert Sampling.of(part, ALIGNF).alignment <= 0.015


# Learned kernels -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", ["unif", "single", "align", "alignf", "alignf-linear", "lq", "alignf-uncentered"])
def test_a_kernel_of_a_sample_tells_its_error_bars(learner):
    moments, X, _ = drawn(keep_origin=True)
    kernel = learn_from_moments(learner, FAMILY, X, moments)
    sampling = kernel.sampling
    assert (sampling.n_rows, sampling.of_rows, sampling.confidence) == (400, 1200, 0.95)
    weights, coefficients = as_learner(learner).finder("trace")(moments)
    np.testing.assert_array_equal(weights, kernel.weights)
    assert kernel.alignment == alignment_of(moments, coefficients)
    assert 0 < sampling.alignment < 0.2
    assert sampling.alignments.shape == sampling.weights.shape == (4,)
    np.testing.assert_array_equal(kernel.rows, moments.rows)
    K = np.tensordot(coefficients, FAMILY.tile(X[kernel.rows], X[kernel.rows]), axes=1)
    np.testing.assert_allclose(kernel.gram(), center_gram(K), atol=1e-10 * np.abs(K).max())
    assert_equal_fields(loaded(saved(kernel)).sampling, sampling)
    if (kernel.weights < 0).any():
        assert sampling.bound is None
        return
    # The theorem covers any distribution, and is far above what this one shows.
    y = moments.targets - moments.targets.mean(axis=0)
    squares = (coefficients @ moments.frobenius @ coefficients, moments.target_norm**2)
    radius = float(np.diag(kernel.gram()).max()), float((y**2).max())
    expected = alignment_concentration(400, 0.05, *radius, *(square / 1200**2 for square in squares))
    assert sampling.bound == pytest.approx(expected, rel=1e-6)
    assert sampling.bound > 10 * sampling.alignment


def test_other_learners_learn_from_the_sampled_rows_and_have_error_bars_of_base_kernels_alone():
    moments, X, y = drawn(m=800, n=300)
    target = Target.of(y)
    kernel = learn_from_moments("l2-krr", FAMILY, X, moments, target=target)
    assert kernel.gram().shape == (300, 300)
    assert (kernel.sampling.alignment, kernel.sampling.weights, kernel.sampling.bound) == (None, None, None)
    np.testing.assert_array_equal(kernel.sampling.alignments, half_width(moments, alignments))
    assert as_learner("l2-krr").finder("trace") is None
    assert_equal_fields(loaded(saved(kernel)).sampling, kernel.sampling)
    found = learn_from_moments(CA(max_kernels=1), FAMILY, X, moments, target=target).sampling
    assert (found.n_rows, found.of_rows, found.alignments) == (300, 800, None)
    # Kernels of all rows have none.
    assert learn_from_moments("align", FAMILY, X, gram_moments(FAMILY, X, y)).sampling is None


# The bound for any distribution --------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(*[st.floats(0.1, 10.0)] * 4)
def test_the_bound_is_three_times_beta_times_the_deviation_of_proposition_11(R2, other_R2, square, other_square):
    # 18 (3/m + 4 root) is three times that deviation at a third of delta; kernels may have any scale.
    allowed = 18 / 50 + 24 * np.sqrt(np.log(2 / (0.1 / 3)) / 100)
    beta = max(R2**2 / square, other_R2**2 / other_square)
    bound = alignment_concentration(50, 0.1, R2, other_R2, square, other_square)
    assert bound == pytest.approx(3 * beta * allowed, rel=1e-10)


# Files ---------------------------------------------------------------------------------------------------------------


def test_arrays_come_back():
    moments, _, _ = drawn(m=900, n=300, keep_origin=True)
    moments, file = moments.restrict((0, 2)), io.BytesIO()
    np.savez(file, **moments.to_arrays(), folds=np.arange(3))
    file.seek(0)
    arrays = dict(np.load(file, allow_pickle=False))
    assert SampledMoments.wrote(arrays)
    assert not SampledMoments.wrote(moments.sample.to_arrays())
    again = SampledMoments.from_arrays(arrays)
    assert_same(again, moments, rtol=1e-13)  # products of the same numbers, in memory of another alignment
    assert_equal_fields(again.sample, moments.sample)
    assert_equal_fields(again, moments, "sample")
    assert_same(again.restrict((2,)), moments.restrict((2,)), rtol=1e-13)


def test_infinite_error_bars_are_saved_and_wrong_ones_refused():
    moments, X, _ = drawn(m=800, n=300)
    kernel = learn_from_moments("align", FAMILY, X, moments)
    sampling = description(kernel_to_arrays(kernel))["sampling"]

    def reading(**changes):
        return changed(kernel, sampling=sampling | changes)

    assert reading(weights=["inf"] * 4)().sampling.weights.tolist() == [np.inf] * 4
    shape = r"weights of the sampling must have shape \(4,\), .* got \(2,\)"
    many = "n_rows of the sampling must be a whole number, got 'many'"
    require_refusals([(reading(weights=[0.1, 0.2]), shape), (reading(n_rows="many"), many)])


# What it refuses -----------------------------------------------------------------------------------------------------


def test_what_cannot_be_sampled_is_refused_in_one_sentence():
    (X, y), groups = data("regression", 600), np.arange(600) % 4
    refused = [
        ({"tolerance": 0.0}, r"tolerance must be between 0 and 1, got 0\.0"),
        ({"confidence": 1.0}, r"confidence must be between 0 and 1, got 1\.0"),
        ({"sample": 255}, "sample must be 'auto' or a number of rows of at least 256, got 255"),
        ({"sample": "all"}, "sample must be 'auto' or a number of rows of at least 256, got 'all'"),
        ({"sample": 300, "unions": [(0,)]}, "sample must be at least 512 rows for these fold groups"),
        ({"unions": [(0, 7)]}, r"unions must hold some of the fold groups \[0, 1, 2, 3\], got \[0, 7\]"),
        ({"groups": groups - 1}, "groups must not be negative, got -1; leave those rows out"),
        ({"groups": np.zeros(5)}, "Y and groups must have one entry a row of X, got 600 and 5 for 600 rows"),
        ({"X": np.zeros((1, 5)), "Y": np.zeros(1), "groups": None}, "X must have at least two rows, got 1"),
        ({"family": FeatureFamily(["a"])}, "family must not be of rank-one features to be sampled; gram_moments takes"),
    ]
    given = {"family": FAMILY, "X": X, "Y": y, "groups": groups}
    require_refusals((partial(sample_moments, **given | options), message) for options, message in refused)


def test_a_target_that_varies_on_few_rows_only_takes_a_larger_sample():
    X, _ = data("regression", 2500)
    sampled = sample_moments(FAMILY, X, X[:, 0], sample=300).rows
    outside = np.isin(np.arange(2500), np.setdiff1d(np.arange(2500), sampled)[:1]).astype(float)
    sample = partial(sample_moments, FAMILY, X, sample=300)
    assert "the target is constant on the 300 sampled rows; take a larger sample" in refusal(sample, outside)
    inside = np.isin(np.arange(2500), sampled[:1]).astype(float)
    np.testing.assert_array_equal(half_width(sample(inside), alignments), np.full(4, np.inf))
    assert sample_moments(FAMILY, X, inside).exact
