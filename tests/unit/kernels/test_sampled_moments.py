"""First-stage statistics from a sample of rows: unbiased, exact of all rows, and with intervals that hold."""

import io
import json
from dataclasses import fields
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import t

from learnkernels import FeatureFamily, GaussianFamily, LinearFamily, gram_moments, load_kernel, save_kernel
from learnkernels.kernels.centering import center_gram
from learnkernels.kernels.learned import LearnedKernel
from learnkernels.kernels.learners import CA, Align, Alignf, as_learner
from learnkernels.kernels.learning import learn_from_moments
from learnkernels.kernels.moments.error_bars import CAUTION, Sampling, alignment_concentration, alignment_of, half_width
from learnkernels.kernels.moments.gram import GramMoments
from learnkernels.kernels.moments.sampled import SampledMoments, expectations
from learnkernels.kernels.moments.sampling import sample_moments
from learnkernels.kernels.persistence.kernel import DESCRIPTION, kernel_from_arrays, kernel_to_arrays
from learnkernels.kernels.targets import Target

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


def statistics(moments) -> dict[str, np.ndarray]:
    return {
        name: np.asarray(getattr(moments, name))
        for name in ("frobenius", "target", "target_norm", "centered_traces", "alignments", "constant")
    } | {
        name: np.asarray(getattr(moments, f"uncentered_{name}"))
        for name in ("frobenius", "target", "target_norm", "alignments")
    }


def assert_same(got, expected, rtol=REGROUPED) -> None:
    for name, value in statistics(expected).items():
        np.testing.assert_allclose(
            statistics(got)[name], value, rtol=rtol, atol=rtol * float(np.abs(value).max()), err_msg=name
        )


def sums(K: np.ndarray, L: np.ndarray) -> np.ndarray:
    """Of two kernels centered on their rows: the product, that of the diagonals and that of the traces."""
    K, L = center_gram(K), center_gram(L)
    return np.array([np.vdot(K, L), np.diag(K) @ np.diag(L), np.trace(K) * np.trace(L)])


# Estimates -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [4, 6, 8])
def test_the_mean_over_all_samples_is_what_all_rows_give(n):
    X, y = data("regression", 9)
    K, L = FAMILY.tile(X, X)[2], np.outer(y, y) + 2.0
    factors = np.linalg.solve(expectations(n).T, expectations(9)[0])
    samples = [np.ix_(rows, rows) for rows in combinations(range(9), n)]
    mean = np.mean([factors @ sums(K[rows], L[rows]) for rows in samples])
    assert mean == pytest.approx(sums(K, L)[0], rel=1e-11)


def test_estimates_are_those_of_explicitly_centered_matrices_of_the_sampled_rows():
    moments, X, y = drawn()
    n, m, rows = 400, 1200, moments.rows
    kernels = [*FAMILY.tile(X[rows], X[rows]), np.outer(y[rows], y[rows])]
    factors = np.linalg.solve(expectations(n).T, expectations(m)[0])
    M = np.array([[factors @ sums(K, L) for L in kernels] for K in kernels])
    np.testing.assert_allclose(moments.frobenius, M[:-1, :-1], rtol=REGROUPED)
    np.testing.assert_allclose(moments.target, M[-1, :-1], rtol=REGROUPED)
    assert moments.target_norm == pytest.approx(np.sqrt(M[-1, -1]), rel=REGROUPED)
    traces = np.array([np.trace(center_gram(K)) for K in kernels[:-1]]) * (m - 1) / (n - 1)
    np.testing.assert_allclose(moments.centered_traces, traces, rtol=REGROUPED)


def test_uncentered_estimates_count_pairs_of_two_rows_and_rows_alone_by_their_shares():
    moments, X, y = drawn(keep_origin=True)
    n, m, rows = 400, 1200, moments.rows
    kernels = [*FAMILY.tile(X[rows], X[rows]), np.outer(y[rows], y[rows])]
    share = np.full((n, n), m * (m - 1) / (n * (n - 1)))
    np.fill_diagonal(share, m / n)
    M = np.array([[(share * K * L).sum() for L in kernels] for K in kernels])
    np.testing.assert_allclose(moments.uncentered_frobenius, M[:-1, :-1], rtol=REGROUPED)
    np.testing.assert_allclose(moments.uncentered_target, M[-1, :-1], rtol=REGROUPED)
    assert moments.uncentered_target_norm == pytest.approx(np.sqrt(M[-1, -1]), rel=REGROUPED)


@pytest.mark.parametrize("n", [256, 700, 1199])
@pytest.mark.parametrize("kind", ["regression", "a rare class"])
def test_estimates_of_all_kernels_and_the_target_kernel_are_positive_semi_definite(n, kind):
    X, y = data(kind, 1200)
    moments = sample_moments(FAMILY, X, y, sample=n)
    M = np.block([[moments.frobenius, moments.target[:, None]], [moments.target, moments.target_norm**2]])
    scale = 1 / np.sqrt(np.diag(M))
    assert np.linalg.eigvalsh(scale[:, None] * M * scale).min() > -1e-12


@pytest.mark.parametrize("size", ["auto", 300, 10_000])
def test_of_all_rows_they_are_exact_and_their_error_bars_zero(size):
    X, y = data("several classes", 300)
    groups = np.arange(300) % 4
    moments = sample_moments(FAMILY, X, y, groups, sample=size, unions=[(0, 1, 2)])
    exact = gram_moments(FAMILY, X, y, groups)
    for union in ((0, 1, 2, 3), (0, 1, 2), (3,)):
        of = moments.restrict(union)
        assert_same(of, exact.restrict(union), rtol=1e-13)
        assert of.exact
        np.testing.assert_array_equal(of.rows, exact.restrict(union).rows)
        np.testing.assert_array_equal(half_width(of, lambda part: part.alignments), np.zeros(4))


def test_a_union_of_folds_is_sampled_as_it_would_be_on_its_own():
    X, y = data("regression", 1200)
    groups = np.arange(1200) % 4
    moments = sample_moments(FAMILY, X, y, groups, sample=800, unions=[(1, 3)])
    held = np.flatnonzero(np.isin(groups, (1, 3)))
    alone = sample_moments(FAMILY, X[held], y[held], groups[held], sample=400, unions=[(1, 3)])
    union = moments.restrict((1, 3))
    np.testing.assert_array_equal(union.rows, held[alone.rows])
    assert (union.labels, union.total_rows, union.total_weight) == ((1, 3), 600, 600.0)
    assert_same(union, alone)

    def shown(part):
        return part.alignments

    np.testing.assert_allclose(half_width(union, shown), half_width(alone, shown), rtol=1e-6)


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
    small, again, other = (sample_moments(FAMILY, X, y, groups, sample=500, seed=seed) for seed in (3, 3, 4))
    large = sample_moments(FAMILY, X, y, groups, sample=1000, seed=3)
    np.testing.assert_array_equal(small.rows, again.rows)
    np.testing.assert_array_equal(small.frobenius, again.frobenius)
    assert set(small.rows) < set(large.rows)
    assert set(small.rows) != set(other.rows)
    np.testing.assert_array_equal(np.bincount(groups[small.rows]), [250, 150, 100])
    np.testing.assert_array_equal(small.labels, [0, 1, 2])
    np.testing.assert_array_equal(groups[small.rows], small.group)


def test_alignments_and_error_bars_do_not_change_with_units_and_origins():
    X, y = data("several classes", 1500)
    family = LinearFamily()

    def shown(moments):
        return [moments.alignments, half_width(moments, lambda part: part.alignments)]

    expected = shown(sample_moments(family, X, y, sample=400))
    np.testing.assert_allclose(shown(sample_moments(family, 3 * X + 50, y, sample=400)), expected, rtol=REGROUPED)
    np.testing.assert_allclose(shown(sample_moments(family, X, 5 - 2 * y, sample=400)), expected, rtol=REGROUPED)


# Error bars ----------------------------------------------------------------------------------------------------------


def test_the_half_width_of_a_mean_is_the_one_of_the_textbook():
    moments, _, y = drawn(m=1200, n=396, folds=3)  # 33 parts of 12 rows
    means = [y[np.setdiff1d(moments.rows, part.rows)].mean() for part in moments.replicates()]
    variance = np.var(means, ddof=1) / 33 * (1 - 396 / 1200)
    expected = CAUTION * t.ppf(0.975, 32) * np.sqrt(variance)
    assert half_width(moments, lambda part: y[part.rows].mean()) == pytest.approx(expected, rel=1e-10)


def test_error_bars_shrink_with_the_sample_and_grow_with_the_confidence():
    X, y = data("regression", 4000)

    def width(sample, confidence=0.95):
        moments = sample_moments(FAMILY, X, y, sample=sample, confidence=confidence)
        return float(half_width(moments, lambda part: part.alignments).max())

    # The root of (1 / 512 - 1 / 4000) / (1 / 2048 - 1 / 4000) is 2.7; each is known to some 15 %.
    assert 1.8 < width(512) / width(2048) < 4
    assert width(512, 0.99) > 1.2 * width(512)


@pytest.mark.parametrize("kind", ["a rare class", "heavy tails"])
def test_intervals_contain_what_all_rows_give(kind):
    X, y = data(kind, 2000)
    finders = [Align().finder("trace"), ALIGNF]

    def shown(part):
        found = [alignment_of(part, find(part)[1]) for find in finders]
        return np.array([*part.alignments, *found])

    whole = sample_moments(FAMILY, X, y, sample=2000)
    assert whole.exact
    held = np.zeros(6)
    for seed in range(100):
        moments = sample_moments(FAMILY, X, y, sample=400, seed=seed)
        held += np.abs(shown(moments) - shown(whole)) <= half_width(moments, shown)
    assert held.min() >= 93


def test_a_sample_grows_until_every_error_bar_is_within_the_tolerance():
    X, y = data("regression", 6000)
    groups, unions, told = np.arange(6000) % 3, [(0, 1), (0, 2), (1, 2)], []
    moments = sample_moments(
        FAMILY,
        X,
        y,
        groups,
        unions=unions,
        learners=[("alignf", ALIGNF)],
        tolerance=0.015,
        tell=told.append,
    )
    assert 2048 < moments.n_rows < 6000
    assert len(told) > 1
    assert told[-1].startswith(f"{moments.n_rows} of 6000 rows: half widths of at most 0.01")
    for union in unions:
        part = moments.restrict(union)
        assert half_width(part, lambda of: of.alignments).max() <= 0.015
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
    np.testing.assert_array_equal(kernel.sampling.alignments, half_width(moments, lambda part: part.alignments))
    assert as_learner("l2-krr").finder("trace") is None
    found = learn_from_moments(CA(max_kernels=1), FAMILY, X, moments, target=target).sampling
    assert (found.n_rows, found.of_rows, found.alignments) == (300, 800, None)


def test_kernels_of_all_rows_have_no_error_bars():
    X, y = data("regression", 60)
    assert learn_from_moments("align", FAMILY, X, gram_moments(FAMILY, X, y)).sampling is None


# The bound for any distribution --------------------------------------------------------------------------------------


def products(K: np.ndarray, L: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """E[K_c L_c] of distributions over some atoms, each a row of the atoms' probabilities."""
    p = np.atleast_2d(shares)
    mixed = (p * (p @ K) * (p @ L)).sum(axis=1)
    means = [np.einsum("si,ij,sj->s", p, of, p, optimize=True) for of in (K * L, K, L)]
    return means[0] - 2 * mixed + means[1] * means[2]


def test_alignments_deviate_by_more_than_theorem_12_less_often_than_delta():
    rng = np.random.default_rng(1)
    p = np.array([0.4, 0.1, 0.1, 0.4])
    x, y = np.array([-1.0, -1.0, 1.0, 1.0]), np.array([-1.0, 1.0, -1.0, 1.0])
    K, K_Y = np.outer(x, x), np.outer(y, y)
    (a,), (a_Y,), (b,) = products(K, K, p), products(K_Y, K_Y, p), products(K, K_Y, p)
    m, delta = 60_000, 0.5
    w = rng.multinomial(m, p, size=4000) / m
    deviations = np.abs(products(K, K_Y, w) / np.sqrt(products(K, K, w) * products(K_Y, K_Y, w)) - b / np.sqrt(a * a_Y))
    bound = alignment_concentration(m, delta, 1.0, 1.0, a, a_Y)
    assert bound < 1.0
    assert (deviations > bound).mean() <= delta
    assert (deviations > bound / 200).mean() > delta


@pytest.mark.parametrize("seed", range(40))
def test_three_deviations_within_proposition_11_keep_the_alignment_within_theorem_12(seed: int):
    """The deterministic step of the proof, for kernels of any scale; with the printed beta the scales would matter."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(6))
    Phi, Psi = 10.0 ** rng.uniform(-1.5, 1.5) * rng.normal(size=(6, 3)), rng.normal(size=(6, 3)) + 1
    K, L = Phi @ Phi.T, Psi @ Psi.T
    w = rng.multinomial(50, p) / 50
    R2, R2_other = np.diag(K).max(), np.diag(L).max()
    (of_K, of_L, of_both), (in_K, in_L, in_both) = (
        [products(A, B, share)[0] for A, B in ((K, K), (L, L), (K, L))] for share in (p, w)
    )
    relative = abs(in_K - of_K) / R2**2, abs(in_L - of_L) / R2_other**2, abs(in_both - of_both) / (R2 * R2_other)
    beta = max(R2**2 / of_K, R2_other**2 / of_L)
    difference = abs(in_both / np.sqrt(in_K * in_L) - of_both / np.sqrt(of_K * of_L))
    assert difference <= 3 * beta * max(relative) * (1 + 1e-9)
    # 18 (3/m + 4 root) is three times the deviation of Proposition 11 at a third of delta.
    allowed = 18 / 50 + 24 * np.sqrt(np.log(2 / (0.1 / 3)) / 100)
    assert alignment_concentration(50, 0.1, R2, R2_other, of_K, of_L) == pytest.approx(3 * beta * allowed, rel=1e-10)


def test_the_bound_of_the_alignment_does_not_depend_on_scale():
    plain = alignment_concentration(1000, 0.05, 2.0, 3.0, 1.5, 4.0)
    assert alignment_concentration(1000, 0.05, 2.0e3, 3.0, 1.5e6, 4.0) == pytest.approx(plain, rel=1e-10)


# Files ---------------------------------------------------------------------------------------------------------------


def test_arrays_come_back():
    moments, _, _ = drawn(m=900, n=300, keep_origin=True)
    moments = moments.restrict((0, 2))
    file = io.BytesIO()
    np.savez(file, **moments.to_arrays(), folds=np.arange(3))
    file.seek(0)
    arrays = dict(np.load(file, allow_pickle=False))
    assert SampledMoments.wrote(arrays)
    assert not SampledMoments.wrote(moments.sample.to_arrays())
    again = SampledMoments.from_arrays(arrays)
    assert_same(again, moments, rtol=1e-13)  # products of the same numbers, in memory of another alignment
    for item in fields(GramMoments):
        np.testing.assert_array_equal(getattr(again.sample, item.name), getattr(moments.sample, item.name), item.name)
    for item in fields(SampledMoments):
        if item.name != "sample":
            np.testing.assert_array_equal(getattr(again, item.name), getattr(moments, item.name), item.name)
    assert_same(again.restrict((2,)), moments.restrict((2,)), rtol=1e-13)


def saved(kernel: LearnedKernel) -> LearnedKernel:
    file = io.BytesIO()
    save_kernel(kernel, file)
    file.seek(0)
    return load_kernel(file)


@pytest.mark.parametrize("learner", ["alignf", "alignf-linear", "l2-krr"])
def test_error_bars_are_saved_with_a_kernel(learner):
    moments, X, y = drawn(m=800, n=300)
    kernel = learn_from_moments(learner, FAMILY, X, moments, target=Target.of(y))
    again = saved(kernel).sampling
    for item in fields(Sampling):
        np.testing.assert_array_equal(getattr(again, item.name), getattr(kernel.sampling, item.name), item.name)


def test_infinite_error_bars_are_saved_and_wrong_ones_refused():
    moments, X, _ = drawn(m=800, n=300)
    arrays = kernel_to_arrays(learn_from_moments("align", FAMILY, X, moments))
    description = json.loads(arrays[DESCRIPTION].tobytes())

    def read(**changed):
        text = json.dumps({**description, "sampling": {**description["sampling"], **changed}})
        return kernel_from_arrays({**arrays, DESCRIPTION: np.frombuffer(text.encode(), dtype=np.uint8)}).sampling

    assert read(weights=["inf"] * 4).weights.tolist() == [np.inf] * 4
    with pytest.raises(ValueError, match=r"weights of the sampling must have shape \(4,\), .* got \(2,\)"):
        read(weights=[0.1, 0.2])
    with pytest.raises(ValueError, match="n_rows of the sampling must be a whole number, got 'many'"):
        read(n_rows="many")


# What it refuses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": 0.0}, r"tolerance must be between 0 and 1, got 0\.0"),
        ({"confidence": 1.0}, r"confidence must be between 0 and 1, got 1\.0"),
        ({"sample": 255}, "sample must be 'auto' or a number of rows of at least 256, got 255"),
        ({"sample": "all"}, "sample must be 'auto' or a number of rows of at least 256, got 'all'"),
        ({"sample": 300, "unions": [(0,)]}, "sample must be at least 512 rows for these fold groups"),
        ({"unions": [(0, 7)]}, r"unions must hold some of the fold groups \[0, 1, 2, 3\], got \[0, 7\]"),
        ({"groups": np.arange(600) % 4 - 1}, "groups must not be negative, got -1; leave those rows out"),
        ({"groups": np.zeros(5)}, "Y and groups must have one entry a row of X, got 600 and 5 for 600 rows"),
        ({"X": np.zeros((1, 5)), "Y": np.zeros(1), "groups": None}, "X must have at least two rows, got 1"),
        ({"family": FeatureFamily(["a"])}, "family must not be of rank-one features to be sampled; gram_moments takes"),
    ],
)
def test_what_cannot_be_sampled_is_refused_in_one_sentence(options, message):
    X, y = data("regression", 600)
    given = {"family": FAMILY, "X": X, "Y": y, "groups": np.arange(600) % 4} | options
    with pytest.raises(ValueError, match=message):
        sample_moments(**given)


def test_a_target_that_varies_on_few_rows_only_takes_a_larger_sample():
    X, _ = data("regression", 2500)
    sampled = sample_moments(FAMILY, X, X[:, 0], sample=300).rows
    outside = np.isin(np.arange(2500), np.setdiff1d(np.arange(2500), sampled)[:1]).astype(float)
    with pytest.raises(ValueError, match="the target is constant on the 300 sampled rows; take a larger sample"):
        sample_moments(FAMILY, X, outside, sample=300)
    inside = np.isin(np.arange(2500), sampled[:1]).astype(float)
    once = sample_moments(FAMILY, X, inside, sample=300)
    np.testing.assert_array_equal(half_width(once, lambda part: part.alignments), np.full(4, np.inf))
    assert sample_moments(FAMILY, X, inside).exact
