"""Bounds hold where everything is known, and fail once what makes them true is taken away."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnkernels import center_gram, centered_alignment
from learnkernels.kernels.bounds import (
    alignment_concentration,
    alignment_failure_probability,
    alignment_sample_size,
    center_weighted,
    classification_bound,
    expected_product,
    generalisation_gap,
    largest_combined_diagonal,
    largest_relative_row_norm,
    learned_ridge_constants,
    learned_ridge_stability,
    learned_ridge_stability_any_kernels,
    population_alignment,
    population_predictor,
    product_concentration,
    product_failure_probability,
    product_sample_size,
    regression_bound,
    relative_row_norms,
    residual_bound,
    ridge_stability,
    sample_predictor,
    two_stage_generalisation_gap,
    two_stage_stability,
    unnormalised_classification_bound,
    unnormalised_predictor,
    weight_stability,
)
from learnkernels.kernels.learners import alignf
from tests import reference

SEEDS = range(40)
EXACT = 1e-10  # relative: sums of at most a few hundred products of numbers near one
BELOW = 1.0 + 1e-9  # a side of an inequality may be above the other by rounding, where both are equal


# Finite distributions ------------------------------------------------------------------------------------------------


def distribution(rng, n):
    return rng.dirichlet(np.ones(n))


def kernel_of(rng, n, d=3):
    """A kernel of random features, and the features."""
    Phi = rng.normal(size=(n, d)) + rng.normal(size=d)
    return Phi @ Phi.T, Phi


def standardised(y, p):
    y = y - p @ y
    return y / math.sqrt(p @ y**2)


def sample_products(K, L, frequencies):
    """<K_c, L_c> / m^2 for many samples, each a row of the atoms' frequencies, expanded by hand as in Lemma 18."""
    w = frequencies
    rows_K, rows_L = w @ K, w @ L
    plain = np.einsum("si,ij,sj->s", w, K * L, w, optimize=True)
    mixed = (w * rows_K * rows_L).sum(axis=1)
    return plain - 2 * mixed + (w * rows_K).sum(axis=1) * (w * rows_L).sum(axis=1)


@pytest.mark.parametrize("seed", SEEDS)
def test_weighted_centering_moves_the_features_to_their_mean(seed: int):
    rng = np.random.default_rng(seed)
    p = distribution(rng, 7)
    K, Phi = kernel_of(rng, 7)
    moved = Phi - p @ Phi
    K_c = center_weighted(K, p)
    np.testing.assert_allclose(K_c, moved @ moved.T, atol=EXACT * np.abs(K).max())
    np.testing.assert_allclose(K_c @ p, 0.0, atol=EXACT * np.abs(K).max())
    np.testing.assert_allclose(center_weighted(K, np.full(7, 1 / 7)), center_gram(K), atol=EXACT * np.abs(K).max())


def test_frequencies_of_atoms_give_the_samples_quantities():
    rng = np.random.default_rng(0)
    K, _ = kernel_of(rng, 5)
    L, _ = kernel_of(rng, 5)
    drawn = rng.integers(5, size=30)
    frequencies = np.bincount(drawn, minlength=5) / 30
    K_S, L_S = K[np.ix_(drawn, drawn)], L[np.ix_(drawn, drawn)]
    product = (center_gram(K_S) * center_gram(L_S)).sum() / 30**2
    assert expected_product(K, L, frequencies) == pytest.approx(product, rel=EXACT)
    assert sample_products(K, L, frequencies[None]) == pytest.approx(product, rel=EXACT)
    assert population_alignment(K, L, frequencies) == pytest.approx(centered_alignment(K_S, L_S), rel=EXACT)


@pytest.mark.parametrize("alpha", [0.02, 0.3, 0.5, 0.9])
def test_two_points_align_fully_however_unequal_the_classes(alpha: float):
    """JMLR 2012, section 2.3, Figure 1: (-1, 0) labelled -1 and (1, 0) labelled 1, K = x . x' + 1."""
    X, y, p = np.array([[-1.0, 0.0], [1.0, 0.0]]), np.array([-1.0, 1.0]), np.array([alpha, 1 - alpha])
    K, K_Y = X @ X.T + 1, np.outer(y, y)
    assert population_alignment(K, K_Y, p) == pytest.approx(1.0, rel=EXACT)
    uncentered = (p @ (K * K_Y) @ p) / math.sqrt((p @ K**2 @ p) * (p @ K_Y**2 @ p))
    assert uncentered == pytest.approx(math.sqrt(alpha**2 + (1 - alpha) ** 2), rel=EXACT)

    y = standardised(y, p)
    np.testing.assert_allclose(population_predictor(K, y, p), y, rtol=EXACT)
    np.testing.assert_allclose(relative_row_norms(K, p), np.abs(y), rtol=EXACT)
    assert largest_relative_row_norm(K, p) == pytest.approx(np.abs(y).max(), rel=EXACT)
    assert regression_bound(1.0) == 0.0
    if alpha == 0.5:
        assert classification_bound(1.0, largest_relative_row_norm(K, p)) == pytest.approx(0.0, abs=EXACT)


def test_atoms_of_no_probability_do_not_count_for_the_largest_row():
    x, p = np.array([1.0, -1.0, 50.0]), np.array([0.5, 0.5, 0.0])
    K = np.outer(x, x)
    assert relative_row_norms(K, p)[2] == pytest.approx(50.0)
    assert largest_relative_row_norm(K, p) == pytest.approx(1.0, rel=EXACT)


# Concentration -------------------------------------------------------------------------------------------------------


def expectation_over_samples(K, L, p, m):
    """E_S[<K_c, L_c>] / m^2 by going through all n^m samples."""
    total = 0.0
    for drawn in itertools.product(range(p.size), repeat=m):
        frequencies = np.bincount(drawn, minlength=p.size) / m
        total += math.prod(p[list(drawn)]) * sample_products(K, L, frequencies[None])[0]
    return total


@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_bias_of_the_product_is_within_a_quarter_of_what_lemma_19_allows(m: int):
    rng = np.random.default_rng(m)
    p = distribution(rng, 3)
    (K, _), (L, _) = kernel_of(rng, 3), kernel_of(rng, 3)
    K_c, L_c = center_weighted(K, p), center_weighted(L, p)
    k, l_ = np.diag(K_c), np.diag(L_c)
    expected = (
        (1 - 3 / m + 4 / m**2 - 2 / m**3) * expected_product(K, L, p)
        + (1 - 1 / m) ** 2 / m * (p @ (k * l_))
        + (m - 1) / m**3 * (p @ k) * (p @ l_)
    )
    by_enumeration = expectation_over_samples(K, L, p, m)
    assert by_enumeration == pytest.approx(expected, rel=1e-9, abs=1e-12)
    unit = np.diag(K).max() * np.diag(L).max()
    assert abs(by_enumeration - expected_product(K, L, p)) <= 4 * unit / m


@pytest.mark.parametrize(("pairs", "diagonal", "vanishes"), [(2, 1, False), (4, 2, True)])
def test_counts_in_the_proof_of_lemma_19(pairs: int, diagonal: int, vanishes: bool):
    """Constant kernels vanish when centered, so the coefficients sum to zero; with the printed counts they do not."""
    m = 7
    coefficients = [
        m * (m - 1) / m**2 - 2 * m * (m - 1) / m**3 + 2 * m * (m - 1) / m**4,
        -2 * m * (m - 1) * (m - 2) / m**3 + pairs * m * (m - 1) * (m - 2) / m**4,
        m * (m - 1) * (m - 2) * (m - 3) / m**4,
        m / m**2 - 2 * m / m**3 + m / m**4,
        2 * (-diagonal * m * (m - 1) / m**3 + 2 * m * (m - 1) / m**4),
        m * (m - 1) / m**4,
        2 * m * (m - 1) * (m - 2) / m**4,
    ]
    assert (abs(sum(coefficients)) < EXACT) == vanishes


@pytest.mark.parametrize("m", [10, 100, 1000])
@pytest.mark.parametrize("delta", [0.1, 0.5])
def test_products_deviate_by_more_than_proposition_11_less_often_than_delta(m: int, delta: float):
    rng = np.random.default_rng(m)
    p = np.array([0.35, 0.25, 0.4])
    x, y = np.array([-2.0, 0.0, 2.0]), np.array([-1.0, 1.0, 1.0])
    K, K_Y = np.outer(x, x), np.outer(y, y)
    frequencies = rng.multinomial(m, p, size=4000) / m
    for L, R2 in ((K, 4.0), (K_Y, 1.0)):
        deviations = np.abs(sample_products(K, L, frequencies) - expected_product(K, L, p))
        bound = product_concentration(m, delta, 4.0, R2)
        assert (deviations > bound).mean() <= delta
        # A hundredth of it is too small, so the samples do deviate.
        assert (deviations > bound / 100).mean() > delta


def test_alignments_deviate_by_more_than_theorem_12_less_often_than_delta():
    rng = np.random.default_rng(1)
    p = np.array([0.4, 0.1, 0.1, 0.4])
    x, y = np.array([-1.0, -1.0, 1.0, 1.0]), np.array([-1.0, 1.0, -1.0, 1.0])
    K, K_Y = np.outer(x, x), np.outer(y, y)
    a, a_Y, b = expected_product(K, K, p), expected_product(K_Y, K_Y, p), expected_product(K, K_Y, p)
    m, delta = 60_000, 0.5
    w = rng.multinomial(m, p, size=4000) / m
    of_samples = sample_products(K, K_Y, w) / np.sqrt(sample_products(K, K, w) * sample_products(K_Y, K_Y, w))
    deviations = np.abs(of_samples - b / math.sqrt(a * a_Y))
    bound = alignment_concentration(m, delta, 1.0, 1.0, a, a_Y)
    assert bound < 1.0
    assert (deviations > bound).mean() <= delta
    assert (deviations > bound / 200).mean() > delta


@pytest.mark.parametrize("seed", SEEDS)
def test_three_deviations_within_proposition_11_keep_the_alignment_within_theorem_12(seed: int):
    """The deterministic step of the proof, for kernels of any scale; with the printed beta the scales would matter."""
    rng = np.random.default_rng(seed)
    p, scale = distribution(rng, 6), 10.0 ** rng.uniform(-3, 3)
    (K, _), (L, _) = kernel_of(rng, 6), kernel_of(rng, 6)
    K *= scale
    w = rng.multinomial(50, p) / 50
    R2, R2_other = np.diag(K).max(), np.diag(L).max()
    pairs = ((K, K, R2 * R2), (L, L, R2_other * R2_other), (K, L, R2 * R2_other))
    relative = [abs(expected_product(A, B, w) - expected_product(A, B, p)) / unit for A, B, unit in pairs]
    beta = max(R2**2 / expected_product(K, K, p), R2_other**2 / expected_product(L, L, p))
    difference = abs(population_alignment(K, L, w) - population_alignment(K, L, p))
    assert difference <= 3 * beta * max(relative) * BELOW
    bound = alignment_concentration(50, 0.1, R2, R2_other, expected_product(K, K, p), expected_product(L, L, p))
    # 18 (3/m + 4 root) is three times the deviation of Proposition 11 at a third of delta.
    assert bound == pytest.approx(3 * beta * product_concentration(50, 0.1 / 3, 1.0, 1.0), rel=EXACT)


def test_the_bound_of_the_alignment_does_not_depend_on_scale():
    plain = alignment_concentration(1000, 0.05, 2.0, 3.0, 1.5, 4.0)
    assert alignment_concentration(1000, 0.05, 2.0e3, 3.0, 1.5e6, 4.0) == pytest.approx(plain, rel=EXACT)


positive = st.floats(1e-2, 1e2)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 10**7), st.floats(1e-6, 0.99), positive, positive, st.floats(0.01, 1.0), st.floats(0.01, 1.0))
def test_inverses_of_the_concentration_bounds(m, delta, R2, R2_other, fraction, fraction_other):
    kernels = (R2, R2_other, fraction * R2**2, fraction_other * R2_other**2)
    for bound, size, failure, of in (
        (product_concentration, product_sample_size, product_failure_probability, kernels[:2]),
        (alignment_concentration, alignment_sample_size, alignment_failure_probability, kernels),
    ):
        epsilon = bound(m, delta, *of)
        assert size(epsilon, delta, *of) == m
        # epsilon - 18/m cancels digits for few rows, and log delta multiplies what is left by at most 14.
        assert failure(m, epsilon, *of) == pytest.approx(delta, rel=1e-9)
        assert bound(m + 1, delta, *of) < epsilon < bound(m, delta * 0.99, *of)
        smaller = size(epsilon * 0.9, delta, *of)
        assert smaller > m or m == smaller == 1
        assert bound(smaller, delta, *of) <= epsilon * 0.9


def test_sample_sizes_are_exact_whichever_way_the_root_is_rounded():
    for m in range(1, 1000):
        assert product_sample_size(product_concentration(m, 0.05, 1.3, 0.7), 0.05, 1.3, 0.7) == m


def test_failure_probabilities_are_one_where_the_bounds_say_nothing():
    assert product_failure_probability(10, 1.0, 1.0, 1.0) == 1.0
    assert alignment_failure_probability(10, 1.0, 1.0, 1.0, 0.5, 0.5) == 1.0


# Predictors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(200))
def test_good_predictors_exist_where_the_alignment_is_high(seed: int):
    """Theorems 13, 14 and 15 over random distributions, with the identities that they rest on."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    p = distribution(rng, n)
    K, _ = kernel_of(rng, n, int(rng.integers(1, 5)))
    signs = np.where(np.arange(n) % 2, 1.0, -1.0)
    numbers = standardised(rng.normal(size=n), p)
    balanced = np.where(signs > 0, p / p[signs > 0].sum(), p / p[signs < 0].sum()) / 2

    for y, q in ((numbers, p), (standardised(signs, p), p), (signs, balanced)):
        rho = population_alignment(K, np.outer(y, y), q)
        h = population_predictor(K, y, q)
        assert q @ (y * h) == pytest.approx(rho, abs=EXACT)
        error = q @ (y - h) ** 2
        assert error <= regression_bound(rho) * BELOW + EXACT
        assert error <= regression_bound(rho) / 2 * BELOW + EXACT  # K is positive semi-definite
        gamma, Gamma = relative_row_norms(K, q), largest_relative_row_norm(K, q)
        assert q @ gamma**2 == pytest.approx(1.0, rel=EXACT)
        assert Gamma >= 1 - EXACT
        if y is not numbers:
            wrong = q @ (y * h < 0)
            assert wrong <= classification_bound(rho, Gamma, np.abs(y).max()) + EXACT
            if y is signs:
                assert wrong <= classification_bound(rho, Gamma) + EXACT

    product = expected_product(K, np.outer(signs, signs), p)
    g = unnormalised_predictor(K, signs, p)
    assert p @ (signs * g) == pytest.approx(product, rel=EXACT, abs=EXACT)
    R2 = np.diag(center_weighted(K, p)).max()
    assert p @ (signs * g < 0) <= unnormalised_classification_bound(product, R2) + EXACT


def test_theorem_13_needs_the_largest_label_where_classes_are_unequal():
    q, tiny = 0.01, 1e-4
    p = np.array([q, q, 1 - 2 * q])
    y = standardised(np.array([1.0, -1.0, -1.0]), p)
    s = 1 / math.sqrt(2 * q)
    f = np.array([s - tiny * (1 - 2 * q) / q, -s, tiny])
    K = np.outer(f, f)
    rho, Gamma = population_alignment(K, np.outer(y, y), p), largest_relative_row_norm(K, p)
    wrong = p @ (y * population_predictor(K, y, p) < 0)
    assert wrong == pytest.approx(0.98)
    assert wrong > classification_bound(rho, Gamma) + 0.04
    assert wrong <= classification_bound(rho, Gamma, np.abs(y).max())


def test_theorem_14_needs_its_factor_where_a_kernel_is_indefinite():
    y, p = np.array([1.0, -1.0]), np.array([0.5, 0.5])
    K = -np.outer(y, y)
    rho = population_alignment(K, np.outer(y, y), p)
    error = p @ (y - population_predictor(K, y, p)) ** 2
    assert rho == pytest.approx(-1.0)
    assert error == pytest.approx(4.0)
    assert error == pytest.approx(regression_bound(rho))


def test_theorem_15_needs_the_whole_of_the_diagonal():
    p = np.array([0.45, 0.05, 0.05, 0.45])
    x, y = np.array([-1.0, -1.0, 1.0, 1.0]), np.array([-1.0, 1.0, -1.0, 1.0])
    K = np.outer(x, x)
    product = expected_product(K, np.outer(y, y), p)
    wrong = p @ (y * unnormalised_predictor(K, y, p) < 0)
    assert wrong == pytest.approx(0.1)
    assert product == pytest.approx(0.64)
    assert unnormalised_classification_bound(product, 0.7) < wrong <= unnormalised_classification_bound(product, 1.0)


def test_unnormalised_alignment_grows_with_the_square_of_the_labels():
    y, p = np.array([1.0, -1.0]), np.array([0.5, 0.5])
    product = expected_product(np.outer(y, y), np.outer(3 * y, 3 * y), p)
    assert product == pytest.approx(3**2)  # M^2 R^2; M R^2, which Lemma 6 prints, would be 3


@pytest.mark.parametrize("seed", SEEDS)
def test_sample_predictor_aligns_and_tends_to_the_populations(seed: int):
    rng = np.random.default_rng(seed)
    p = distribution(rng, 6) / 2 + 1 / 12
    K, _ = kernel_of(rng, 6)
    y = standardised(rng.normal(size=6), p)
    m = 20_000
    drawn = np.repeat(np.arange(6), rng.multinomial(60, p))
    K_S, y_S = K[np.ix_(drawn, drawn)], y[drawn] - y[drawn].mean()
    h = sample_predictor(K_S, y_S)
    assert np.mean(y_S * h) == pytest.approx(centered_alignment(K_S, np.outer(y_S, y_S)), rel=EXACT)
    np.testing.assert_allclose(sample_predictor(K_S, y_S, K[:, drawn])[drawn], h, rtol=1e-9, atol=EXACT)
    # Frequencies stand for a large sample of repeated atoms; deviations of the atoms' means are some 1 / sqrt(m).
    w = rng.multinomial(m, p) / m
    in_large_sample = population_predictor(K, standardised(y, w), w)
    np.testing.assert_allclose(in_large_sample, population_predictor(K, y, p), atol=40 / math.sqrt(m))


def test_sample_predictor_by_its_definition():
    rng = np.random.default_rng(0)
    K, _ = kernel_of(rng, 9)
    y = rng.normal(size=9)
    y -= y.mean()
    K_c = reference.centered(K).astype(float)
    denominator = np.sqrt((K_c**2).sum() / 81) * np.sqrt(sum((u * v) ** 2 for u in y for v in y) / 81)
    expected = [sum(y[i] * K_c[j, i] for i in range(9)) / 9 / denominator for j in range(9)]
    np.testing.assert_allclose(sample_predictor(K, y), expected, rtol=1e-9)


# Stability of ridge regression ---------------------------------------------------------------------------------------


def ridge_values(K_all, y, rows, ridge):
    """Values, at all points, of the ridge regression on some of them, without an intercept."""
    m = len(rows)
    alpha = np.linalg.solve(K_all[np.ix_(rows, rows)] + ridge * m * np.eye(m), y[rows])
    return K_all[:, rows] @ alpha


def exchanged(n):
    """Rows of two samples out of n + 2 points: the last but one leaves, the last enters."""
    return np.arange(n + 1), np.append(np.arange(n), n + 1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ridge", [1e-3, 0.1, 10.0])
def test_an_exchanged_point_moves_a_ridge_regression_as_theorem_2_of_uai_allows(seed: int, ridge: float):
    rng = np.random.default_rng(seed)
    n = 25
    for d in (3, 60):
        Phi = rng.normal(size=(n + 2, d)) / math.sqrt(d)
        K, y = Phi @ Phi.T, rng.uniform(-1, 1, size=n + 2)
        S, S_other = exchanged(n)
        h, h_other = ridge_values(K, y, S, ridge), ridge_values(K, y, S_other, ridge)
        kappa, residual = np.diag(K).max(), np.abs(h - y)[-2:].max()
        lambda_min = max(0.0, np.linalg.eigvalsh(Phi[S_other].T @ Phi[S_other])[0]) if d < n else 0.0
        change = np.abs(h_other - h).max()
        assert change <= ridge_stability(n + 1, ridge, kappa, residual, lambda_min)
        assert ridge_stability(n + 1, ridge, kappa, residual, lambda_min) <= ridge_stability(
            n + 1, ridge, kappa, residual
        )
        largest = residual_bound(np.abs(y).max(), kappa, ridge)
        assert max(np.abs(h - y).max(), np.abs(h_other - y).max()) <= largest


def test_theorem_2_of_uai_needs_its_factor_two():
    K, y = np.ones((2, 2)), np.array([1.0, -1.0])
    change = np.abs(ridge_values(K, y, [1], 50.0) - ridge_values(K, y, [0], 50.0)).max()
    assert ridge_stability(1, 50.0, 1.0, 1.0) / 2 < change <= ridge_stability(1, 50.0, 1.0, 1.0)


CROWD = 400


def leverage_example(n=CROWD, share=0.15, factor=0.5):
    """n points with a common component and one of their own, a point against them, and one apart that replaces it."""
    ridge = 1 / (share * (n + 1))
    common = factor * (ridge * (n + 1) + 1) / n
    Phi = math.sqrt(1 - common) * np.eye(n + 2)
    Phi[:, n] = math.sqrt(common)
    Phi[n:] = np.eye(n + 2)[n:]
    y = np.ones(n + 2)
    y[n], y[n + 1] = -1.0, 0.0
    return Phi @ Phi.T, y, ridge


def test_a_bound_of_the_targets_is_no_bound_of_the_residuals():
    K, y, ridge = leverage_example()
    np.testing.assert_allclose(np.diag(K), 1.0)
    S, S_other = exchanged(CROWD)
    change = np.abs(ridge_values(K, y, S_other, ridge) - ridge_values(K, y, S, ridge)).max()
    assert change > 1.3 * ridge_stability(CROWD + 1, ridge, 1.0, np.abs(y).max())
    assert change <= ridge_stability(CROWD + 1, ridge, 1.0, residual_bound(np.abs(y).max(), 1.0, ridge))


# Stability of two-stage learners -------------------------------------------------------------------------------------


def printed_two_stage(m, ridge, R2, M, Lambda, change, norms, s, t):
    """Theorem 16 as the text has it."""
    product = np.linalg.norm(change, ord=s) * np.linalg.norm(norms, ord=t)
    return 2 * Lambda * R2 * M / (ridge * m) * (1 + product / (2 * ridge))


def moments(Ks, y):
    """M and a of some Gram matrices."""
    return reference.moment_matrix(Ks).astype(float), reference.moment_target(Ks, y).astype(float)


def alignf_solution(M, a):
    """The minimiser of v'Mv - 2v'a over v >= 0 from the unit-norm weights of alignf."""
    mu = alignf(M, a).weights
    return mu * (mu @ a) / (mu @ M @ mu)


def gaussians(X, gammas):
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=-1)
    return np.exp(-np.asarray(gammas)[:, None, None] * squares)


def two_samples(seed, n=14):
    """Base kernels over n + 2 points, targets, and (M, a, v) of both samples, which differ in one point."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + 2, 3))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=n + 2)
    Ks = gaussians(X, [0.1, 0.5, 2.0, 8.0])
    sides = []
    for rows in exchanged(n):
        M, a = moments(list(Ks[:, rows][:, :, rows]), y[rows] - y[rows].mean())
        sides.append((M, a, alignf_solution(M, a)))
    return Ks, y, sides


@pytest.mark.parametrize("seed", range(8))
def test_two_stage_regressions_move_as_theorem_16_allows(seed: int):
    Ks, y, sides = two_samples(seed)
    n = len(y) - 2
    S, S_other = exchanged(n)
    for ridge in (0.05, 1.0, 20.0):
        mu, mu_other = (2.0 * v / v.sum() for _, _, v in sides)
        change = mu_other - mu
        h = ridge_values(np.tensordot(mu, Ks, 1), y, S, ridge)
        h_other = ridge_values(np.tensordot(mu_other, Ks, 1), y, S_other, ridge)
        norms = np.array([np.linalg.norm(K[np.ix_(S, S)], ord=2) for K in Ks])
        for s in (1.0, 1.5, 2.0, math.inf):
            bound = two_stage_stability(n + 1, ridge, 1.0, np.abs(y).max(), 2.0, change, norms, s)
            assert np.abs(h_other - h).max() <= bound


def test_two_stage_stability_adds_up_for_every_order():
    change, norms = np.array([0.3, -0.4, 0.1]), np.array([5.0, 3.0, 8.0])
    m, ridge, R2, M, Lambda = 20, 0.5, 2.0, 3.0, 1.0
    exchanged_part = ridge_stability(m, ridge, Lambda * R2, residual_bound(M, Lambda * R2, ridge))
    last = M * R2 * 0.8 / ridge
    for s, gram_change in ((1.0, 0.8 * 8.0), (2.0, math.sqrt(0.26 * 98.0)), (math.inf, 0.4 * 16.0)):
        middle = Lambda * R2 * M / (ridge**2 * m) * gram_change
        value = two_stage_stability(m, ridge, R2, M, Lambda, change, norms, s)
        assert value == pytest.approx(exchanged_part + middle + last, rel=EXACT)


def test_theorem_16_as_printed_misses_what_a_new_kernel_changes_at_the_point():
    m, ridge = 400, 10.0
    x = np.where(np.arange(m) % 2, 1.0, -1.0)
    K_1 = np.outer(x, x)
    change, norms = np.array([-1.0, 1.0]), np.array([m, 0.0])
    rows = np.arange(m)
    h, h_other = ridge_values(K_1, x, rows, ridge), ridge_values(0 * K_1, x, rows, ridge)
    moved = np.abs(h_other - h).max()
    assert moved == pytest.approx(1 / 11)
    assert moved > 4 * printed_two_stage(m, ridge, 1.0, 1.0, 1.0, change, norms, 1.0, math.inf)
    assert moved <= two_stage_stability(m, ridge, 1.0, 1.0, 1.0, change, norms)


def test_theorem_16_as_printed_takes_the_targets_for_the_residuals():
    K, y, ridge = leverage_example()
    S, S_other = exchanged(CROWD)
    moved = np.abs(ridge_values(K, y, S_other, ridge) - ridge_values(K, y, S, ridge)).max()
    still, norms = np.zeros(1), np.array([np.trace(K)])
    assert moved > 1.3 * printed_two_stage(CROWD + 1, ridge, 1.0, 1.0, 1.0, still, norms, 1.0, math.inf)
    assert moved <= two_stage_stability(CROWD + 1, ridge, 1.0, 1.0, 1.0, still, norms)


@pytest.mark.parametrize("seed", range(8))
def test_weights_of_alignf_move_as_proposition_21_allows(seed: int):
    _, _, ((M, a, v), (M_other, a_other, v_other)) = two_samples(seed)
    for first, second in (((M, a, v), (M_other, a_other, v_other)), ((M_other, a_other, v_other), (M, a, v))):
        sides = weight_stability(*first, *second)
        unit = abs(a @ v)
        assert 0 <= sides.left <= sides.right + EXACT * unit
        if (v > 0).all() and (v_other > 0).all():
            assert sides.left == pytest.approx(sides.right, abs=EXACT * unit)


@pytest.mark.parametrize("seed", SEEDS)
def test_proposition_21_over_random_problems(seed: int):
    rng = np.random.default_rng(seed)
    problems = []
    for _ in range(2):
        A = rng.normal(size=(5, 5))
        M, a = A.T @ A + 0.1 * np.eye(5), rng.normal(size=5) + 0.5
        problems += [M, a, alignf_solution(M, a)]
    sides = weight_stability(*problems)
    assert sides.left <= sides.right * BELOW + EXACT


def test_the_last_line_of_the_proof_of_proposition_21_needs_the_other_solution():
    M, M_other, a = np.array([[2.0]]), np.array([[1.0]]), np.array([1.0])
    v, v_other = a / 2, a
    sides = weight_stability(M, a, v, M_other, a, v_other)
    assert sides == pytest.approx((0.5, 0.5))
    change = v_other - v
    assert sides.left > (0 - (M_other - M) @ v) @ change + 0.2


# Stability of learned ridge regression -------------------------------------------------------------------------------


def learned_ridge(Ks_all, y, rows, ridge, centre, radius):
    """Values at all points of l2-regularised kernel learning, by the interpolated fixed point of UAI 2009, slowly."""
    Ks = Ks_all[:, rows][:, :, rows]
    mu = centre + radius / math.sqrt(len(centre))
    for _ in range(500):
        alpha = np.linalg.solve(np.tensordot(mu, Ks, 1) + ridge * len(rows) * np.eye(len(rows)), y[rows])
        v = np.einsum("i,kij,j->k", alpha, Ks, alpha)
        solution = centre + radius * v / np.linalg.norm(v)
        if np.abs(solution - mu).max() < 1e-12 * mu.max():
            break
        mu = (mu + solution) / 2
    else:
        raise AssertionError("the fixed point was not reached")
    return np.tensordot(mu, Ks_all[:, :, rows], 1) @ alpha


def blocks(X, sizes):
    """Linear kernels of disjoint blocks of features: orthogonal."""
    columns = np.split(np.arange(X.shape[1]), np.cumsum(sizes)[:-1])
    return np.array([X[:, block] @ X[:, block].T for block in columns])


def printed_learned_ridge(m, ridge, kappa, M, Lambda, p):
    """Proposition 3 as the text has it."""
    C_0 = 2 * kappa * M + 4 * Lambda * M * math.sqrt(kappa) * (kappa / ridge + 1)
    return (C_0 + 16 * Lambda**2 * M * kappa**1.5 / ridge * math.sqrt(p)) / (ridge * m)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("radius", [0.0, 0.5, 4.0])
@pytest.mark.parametrize("ridge", [0.1, 5.0])
def test_learned_ridge_regressions_move_as_proposition_3_allows(seed: int, radius: float, ridge: float):
    rng = np.random.default_rng(seed)
    n = 20
    X, y = rng.normal(size=(n + 2, 6)), rng.normal(size=n + 2)
    centre = np.array([1.0, 1.0, 1.5])
    # The bound for any kernels is also tried on kernels that share features.
    for Ks, orthogonal in ((blocks(X, [1, 2, 3]), True), (gaussians(X, [0.1, 0.2, 1.0]), False)):
        kappa = largest_combined_diagonal(np.diagonal(Ks, axis1=1, axis2=2).T, centre, radius)
        h, h_other = (learned_ridge(Ks, y, rows, ridge, centre, radius) for rows in exchanged(n))
        M = max(np.abs(h - y).max(), np.abs(h_other - y).max())
        assert residual_bound(np.abs(y).max(), kappa, ridge) >= M
        moved = np.abs(h_other - h).max()
        any_kernels = learned_ridge_stability_any_kernels(n + 1, ridge, kappa, M, radius)
        assert moved <= any_kernels
        if orthogonal:
            bound = learned_ridge_stability(n + 1, ridge, kappa, M, radius, 3)
            assert moved <= bound
            squares = np.abs((h_other - y) ** 2 - (h - y) ** 2).max()
            assert squares <= 2 * M * bound


@settings(max_examples=200, deadline=None)
@given(positive, positive, positive, st.floats(0, 100), st.integers(1, 1000))
def test_the_bound_for_any_kernels_is_the_smaller_one(ridge, kappa, M, radius, p):
    any_kernels = learned_ridge_stability_any_kernels(10, ridge, kappa, M, radius)
    fixed = ridge_stability(10, ridge, kappa, M)
    assert fixed <= any_kernels * BELOW <= 3 * fixed * BELOW**2
    assert any_kernels <= learned_ridge_stability(10, ridge, kappa, M, radius, p) * BELOW


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_proposition_3_as_printed_fails_for_large_kernels(scale: float):
    """Scaling all kernels and the ridge changes no regression, yet the printed bound."""
    n, radius = 50, 1.0
    X = scale * np.vstack([np.ones((n, 2)), [[1.0, -1.0], [1.0, -1.0]]])
    y = np.append(np.ones(n), [-1.0, 1.0])
    ridge, centre, Ks = scale**2, np.ones(2), blocks(X, [1, 1])
    h, h_other = (learned_ridge(Ks, y, rows, ridge, centre, radius) for rows in exchanged(n))
    moved, M = np.abs(h_other - h).max(), max(np.abs(h - y).max(), np.abs(h_other - y).max())
    kappa = largest_combined_diagonal(X**2, centre, radius)
    assert kappa == pytest.approx(scale**2 * (2 + math.sqrt(2)))
    assert moved == pytest.approx(0.21604648, rel=1e-6)
    assert (moved > printed_learned_ridge(n + 1, ridge, kappa, M, radius, 2)) == (scale > 1)
    assert moved <= learned_ridge_stability(n + 1, ridge, kappa, M, radius, 2)
    assert moved <= learned_ridge_stability_any_kernels(n + 1, ridge, kappa, M, radius)
    # Learning the kernel does cost stability: the bound for a fixed kernel is exceeded.
    assert moved > ridge_stability(n + 1, ridge, kappa, M)


def test_constants_of_learned_ridge_scale_with_kernels_and_targets():
    plain = np.array(learned_ridge_constants(0.7, 2.0, 1.5, 0.8))
    np.testing.assert_allclose(learned_ridge_constants(0.7e4, 2.0e4, 3.0, 0.8), plain * 2e4, rtol=EXACT)
    assert plain == pytest.approx([6.0 + 8 * 0.8 * 3.0 * (2.0 / 0.7 + 1), 32 * 0.64 * 6.0 / 0.7])


def test_kappa_is_reached_by_weights_that_may_be_chosen():
    rng = np.random.default_rng(0)
    diagonals, centre = rng.uniform(size=(30, 4)), np.array([1.0, 2.0, 1.0, 3.0])
    kappa = largest_combined_diagonal(diagonals, centre, 1.5)
    directions = np.abs(rng.normal(size=(2000, 4)))
    weights = centre + 1.5 * directions / np.linalg.norm(directions, axis=1)[:, None]
    tried = (diagonals @ weights.T).max()
    assert 0.99 * kappa < tried <= kappa
    assert kappa <= np.linalg.norm(diagonals, axis=1).max() * (np.linalg.norm(centre) + 1.5)


# Generalisation ------------------------------------------------------------------------------------------------------


def test_theorem_17_is_the_general_bound_with_its_residuals():
    m, delta, ridge, R2, M, Lambda, change = 30, 0.1, 0.4, 2.0, 3.0, 1.5, 0.01
    M_1, M_2 = 2 * (1 + math.sqrt(Lambda * R2 / ridge)) * M, m * change
    root = math.sqrt(math.log(1 / delta) / (2 * m))
    expected = 2 * M_1 * M_2 / m + (1 + 16 * M_2 / M_1) * M_1**2 / 4 * root
    assert two_stage_generalisation_gap(m, delta, ridge, R2, M, Lambda, change) == pytest.approx(expected, rel=EXACT)


def gaps_of_ridge(ridge, m, repeats):
    """R(h) - R_hat(h) of ridge regressions on samples of a finite distribution, and what bounds them."""
    rng = np.random.default_rng(0)
    p, X = np.array([0.1, 0.2, 0.3, 0.4]), np.array([[1.0, 0.0], [-0.5, 0.5], [0.3, 0.9], [0.0, -1.0]])
    y = np.array([10.0, 0.0, 0.0, 0.0])
    gaps = []
    for _ in range(repeats):
        w = rng.multinomial(m, p) / m
        # The minimiser of ridge |u|^2 + sum_i w_i (u.x_i - y_i)^2.
        u = np.linalg.solve(X.T @ (w[:, None] * X) + ridge * np.eye(2), X.T @ (w * y))
        errors = (X @ u - y) ** 2
        gaps.append((p - w) @ errors)
    return np.array(gaps), (X**2).sum(axis=1).max(), np.abs(y).max()


@pytest.mark.parametrize("ridge", [0.5, 1e4])
def test_regressions_generalise_as_stability_promises(ridge: float):
    m, delta = 40, 0.1
    gaps, kappa, M = gaps_of_ridge(ridge, m, repeats=1000)
    residual = residual_bound(M, kappa, ridge)
    change = ridge_stability(m, ridge, kappa, residual)
    bound = two_stage_generalisation_gap(m, delta, ridge, kappa, M, 1.0, change)
    assert bound == pytest.approx(generalisation_gap(m, delta, change, residual), rel=EXACT)
    assert (gaps > bound).mean() <= delta


def test_generalisation_needs_the_bound_of_the_squared_error():
    """A large ridge keeps the regression at zero; the deviation of the mean of y^2 stays, in squared units."""
    m, delta, ridge = 40, 0.1, 1e4
    gaps, kappa, M = gaps_of_ridge(ridge, m, repeats=1000)
    residual = residual_bound(M, kappa, ridge)
    change = ridge_stability(m, ridge, kappa, residual)
    root, beta = math.sqrt(math.log(1 / delta) / (2 * m)), 2 * residual * change
    theorem_3_printed = 2 * beta + (4 * m * beta + residual) * root
    M_1, M_2 = 2 * residual, m * change
    theorem_17_printed = 2 * M_1 * M_2 / m + (1 + 16 * M_2 / M_1) * M_1 * M_2 / 4 * root
    assert (gaps > theorem_3_printed).mean() > 2 * delta
    assert (gaps > theorem_17_printed).mean() > 2 * delta


@pytest.mark.parametrize("argument", [0, 1])
def test_gaps_shrink_with_more_rows_and_less_confidence(argument: int):
    # What moves the hypothesis falls like 1 / m.
    smaller, larger = (100, 0.05), ((200, 0.05), (100, 0.2))[argument]
    assert generalisation_gap(*larger, 1 / larger[0], 2.0) < generalisation_gap(*smaller, 1 / smaller[0], 2.0)


# Broken assumptions --------------------------------------------------------------------------------------------------

EYE, FAIR, SIGNS = np.eye(2), np.array([0.5, 0.5]), np.array([-1.0, 1.0])
ONE = np.ones(1)

BROKEN = [
    ("sample_size must be a whole number", lambda: product_concentration(0, 0.1, 1.0, 1.0)),
    ("sample_size must be a whole number", lambda: ridge_stability(2.5, 1.0, 1.0, 1.0)),
    ("sample_size must be a whole number", lambda: generalisation_gap(math.nan, 0.1, 1.0, 1.0)),
    ("delta must be a probability", lambda: product_concentration(10, 1.0, 1.0, 1.0)),
    ("delta must be a probability", lambda: alignment_sample_size(0.1, 0.0, 1.0, 1.0, 0.5, 0.5)),
    ("radius_squared must be a positive", lambda: product_concentration(10, 0.1, -1.0, 1.0)),
    ("other_radius_squared must be a positive", lambda: product_sample_size(0.1, 0.1, 1.0, math.inf)),
    ("epsilon must be a positive", lambda: product_failure_probability(10, 0.0, 1.0, 1.0)),
    ("expected_square must be at most the square", lambda: alignment_concentration(10, 0.1, 1.0, 1.0, 2.0, 0.5)),
    ("other_expected_square must be at most", lambda: alignment_concentration(10, 0.1, 1.0, 1.0, 0.5, 2.0)),
    ("other_expected_square must be a pos", lambda: alignment_failure_probability(10, 0.1, 1.0, 1.0, 0.5, 0.0)),
    ("with the sum one", lambda: center_weighted(EYE, np.array([0.5, 0.6]))),
    ("with the sum one", lambda: center_weighted(EYE, np.array([1.5, -0.5]))),
    ("with the sum one", lambda: center_weighted(EYE, EYE / 2)),
    ("K must be square with one row", lambda: center_weighted(np.eye(3), FAIR)),
    ("L must be square with one row", lambda: population_alignment(EYE, np.eye(3), FAIR)),
    ("K must be finite", lambda: relative_row_norms(np.full((2, 2), np.nan), FAIR)),
    ("L is constant after centering", lambda: population_alignment(EYE, np.ones((2, 2)), FAIR)),
    ("y must have mean zero and mean square one", lambda: population_predictor(EYE, SIGNS + 0.1, FAIR)),
    ("y must have mean zero and mean square one", lambda: population_predictor(EYE, 2 * SIGNS, FAIR)),
    ("y must be one finite number", lambda: population_predictor(EYE, ONE, FAIR)),
    ("y must be one finite number", lambda: unnormalised_predictor(EYE, SIGNS * np.nan, FAIR)),
    ("y must have mean zero over the sample", lambda: sample_predictor(EYE, SIGNS + 0.1)),
    ("y must not be zero everywhere", lambda: sample_predictor(EYE, 0 * SIGNS)),
    ("K is constant after centering", lambda: sample_predictor(np.ones((2, 2)), SIGNS)),
    ("K must be square", lambda: sample_predictor(np.ones((2, 3)), SIGNS)),
    ("K_cross must have one column", lambda: sample_predictor(EYE, SIGNS, np.ones((4, 3)))),
    ("alignment must be in", lambda: regression_bound(1.1)),
    ("alignment must be in", lambda: classification_bound(math.nan, 1.0)),
    ("largest_row_norm must be a number of at least one", lambda: classification_bound(0.5, 0.9)),
    ("largest_label must be a number of at least one", lambda: classification_bound(0.5, 1.0, 0.5)),
    ("product must be at most radius_squared", lambda: unnormalised_classification_bound(2.0, 1.0)),
    ("ridge must be a positive", lambda: residual_bound(1.0, 1.0, 0.0)),
    ("smallest_eigenvalue must be a number of at least", lambda: ridge_stability(5, 1.0, 1.0, 1.0, -1.0)),
    ("must hold one number a base kernel", lambda: two_stage_stability(5, 1.0, 1.0, 1.0, 1.0, np.ones(2), ONE)),
    ("weight_change must be finite", lambda: two_stage_stability(5, 1.0, 1.0, 1.0, 1.0, ONE * np.nan, ONE)),
    ("at most twice weight_sum", lambda: two_stage_stability(5, 1.0, 1.0, 1.0, 1.0, 3 * ONE, ONE)),
    ("order must be at least one", lambda: two_stage_stability(5, 1.0, 1.0, 1.0, 1.0, ONE, ONE, 0.5)),
    ("M must have shape", lambda: weight_stability(EYE, ONE, ONE, EYE, ONE, ONE)),
    ("positive diagonal", lambda: weight_stability(0 * EYE, SIGNS, SIGNS, EYE, SIGNS, SIGNS)),
    ("v must minimise", lambda: weight_stability(EYE, SIGNS, SIGNS, EYE, SIGNS, np.array([0.0, 1.0]))),
    ("v_other must minimise", lambda: weight_stability(EYE, FAIR, FAIR, EYE, FAIR, 2 * FAIR)),
    ("diagonals must have one column", lambda: largest_combined_diagonal(EYE, ONE, 1.0)),
    ("diagonals must be non-negative", lambda: largest_combined_diagonal(-EYE, FAIR, 1.0)),
    ("centre must be positive", lambda: largest_combined_diagonal(EYE, SIGNS, 1.0)),
    ("radius must be a number of at least zero", lambda: learned_ridge_constants(1.0, 1.0, 1.0, -1.0)),
    ("kernels must be at least one", lambda: learned_ridge_stability(5, 1.0, 1.0, 1.0, 1.0, 0)),
    ("hypothesis_change must be a number of at least", lambda: generalisation_gap(5, 0.1, -1.0, 1.0)),
    ("weight_sum must be a positive", lambda: two_stage_generalisation_gap(5, 0.1, 1.0, 1.0, 1.0, 0.0, 1.0)),
]


@pytest.mark.parametrize(("sentence", "call"), BROKEN, ids=[str(i) for i in range(len(BROKEN))])
def test_broken_assumptions_get_one_sentence(sentence: str, call):
    with pytest.raises(ValueError, match=f"^.*{sentence}.*\\.$"):
        call()
