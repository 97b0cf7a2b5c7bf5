"""Gaussians with one bandwidth a feature: values, derivatives, and where a search ends; and scaled families."""

from functools import partial

import numpy as np
import pytest
from scipy import sparse

from learnkernels import GaussianFamily, LinearFamily
from learnkernels.kernels.families import ScaledFamily
from learnkernels.kernels.search.pairs import FeaturePairs, scaled_gaussians
from tests.refusals import require_refusals

SHAPES = ((1, 2), (2, 1), (7, 3), (64, 5), (65, 4), (150, 2))

# Relative to the largest kernel value: some operations of rounding a feature, and the expanded squared distance.
UNIT = 1e-12


def problem(m: int, d: int, seed: int = 0):
    """Rows, a point, and a symmetric P that is not positive definite; kernels neither all zero nor all alike."""
    rng = np.random.default_rng([seed, m, d])
    X = rng.normal(size=(m, d)) * np.exp(rng.normal(size=d)) + 5
    u = rng.normal(scale=0.3, size=d) + np.log((X.std(axis=0) + (m == 1)) * d**0.5)
    P = rng.normal(size=(m, m))
    P = P + P.T
    for array in (X, u, P):
        array.flags.writeable = False
    return X, u, P


# Values and derivatives ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "d"), SHAPES)
def test_matrices_values_and_gradients_are_those_of_each_pair(m, d):
    X, u, P = problem(m, d)
    pairs = FeaturePairs(X)
    K, Z = pairs.matrix(u), (X[:, None] - X) * np.exp(-u)
    np.testing.assert_allclose(K, np.exp(-(Z**2).sum(axis=2)), rtol=0, atol=UNIT)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_array_equal(np.diag(K), 1.0)
    U, kept = np.stack([u, u + 0.1, u[::-1]]), K.copy()
    pairs.matrix(u)[...] = np.nan
    np.testing.assert_array_equal(K, kept)
    for tile, one in zip(scaled_gaussians(U).tile(X, X), U, strict=True):
        np.testing.assert_allclose(pairs.matrix(one), tile, rtol=0, atol=UNIT)
    for weights in (P, P @ P / m):
        value, gradient = pairs.value_and_gradient(u, weights)
        assert abs(value - np.vdot(weights, K)) <= UNIT * np.abs(weights).sum()
        terms = (weights * K)[:, :, None] * 2 * Z**2
        assert (np.abs(gradient - terms.sum(axis=(0, 1))) <= 1e-12 * np.abs(terms).sum(axis=(0, 1))).all()


def test_narrow_gaussians_keep_the_digits_of_their_gradient():
    rng = np.random.default_rng(1)
    near = np.repeat(rng.normal(size=(20, 2)), 2, axis=0)
    step, P = rng.normal(size=(20, 2)), np.ones((40, 40))
    for narrow in (1e-2, 1e-3):
        X, u = near.copy(), np.full(2, np.log(narrow))
        X[1::2] += narrow * step
        _, gradient = FeaturePairs(X).value_and_gradient(u, P)
        Z = (X[:, None] - X) / narrow
        expected = (2 * Z**2 * np.exp(-(Z**2).sum(axis=2))[:, :, None]).sum(axis=(0, 1))
        # Expanded squares of size narrow^-2 cancel to ones.
        np.testing.assert_allclose(gradient, expected, rtol=1e-14 / narrow**2)


# Invariances, and where a search ends --------------------------------------------------------------------------------


def test_features_and_rows_have_no_order_and_rows_no_origin():
    X, u, P = problem(90, 5)
    features, rows = np.array([3, 0, 4, 1, 2]), np.random.default_rng(2).permutation(90)
    pairs, every, all_rows = FeaturePairs(X), np.arange(5), np.arange(90)
    value, gradient = pairs.value_and_gradient(u, P)
    for Z, order, at in (
        (X[:, features], features, all_rows),
        (X[rows], every, rows),
        (X + np.array([30.0, -7.0, 11.0, 0.0, 2.0]), every, all_rows),  # rounds each feature to eps * 30 or so
    ):
        other, square = FeaturePairs(Z), np.ix_(at, at)
        np.testing.assert_allclose(other.matrix(u[order]), pairs.matrix(u)[square], rtol=0, atol=UNIT)
        now, slopes = other.value_and_gradient(u[order], P[square])
        found, expected = np.append(slopes, now), np.append(gradient[order], value)
        np.testing.assert_allclose(found, expected, rtol=0, atol=UNIT * np.abs(P).sum())
        np.testing.assert_allclose(other.bounds, np.stack(pairs.bounds)[:, order], rtol=1e-12)


def test_a_constant_feature_has_no_derivative_and_the_widest_range_and_nothing_is_modified():
    X, u, P = problem(61, 4)
    X = X.copy()
    X[:, 2] = 0.1  # the mean of 61 of these is not 0.1
    X.flags.writeable = False  # as those of the point and of P are
    pairs = FeaturePairs(X)
    _, gradient = pairs.value_and_gradient(u, P)
    assert gradient[2] == 0.0
    assert (gradient[[0, 1, 3]] != 0).all()
    low, high = pairs.bounds
    assert (low[2], high[2]) == (low.min(), high.max())
    pairs.matrix(u), scaled_gaussians(u[None])


def test_bounds_follow_units_and_hold_isotropic_bandwidths_around_the_median_distance():
    rows = problem(50, 4)[0]
    for spread in (1.0, 1e9):
        low, high = FeaturePairs(rows * np.array([1.0, 1.0 / spread, spread, 1.0])).bounds
        assert np.isfinite([low, high]).all()
        assert (low < high).all()
    X, factor = rows / rows.std(axis=0), np.array([1.0, 2.0, 4.0, 1.0])
    for one, two in zip(FeaturePairs(X).bounds, FeaturePairs(X * factor).bounds, strict=True):
        np.testing.assert_allclose(two - one, np.log(factor), rtol=0, atol=1e-12)
    # Distances are 0, 5, 5, 5, 5 and 10; ten thousand deviations of the second feature are fewer than four medians.
    X = np.array([[0.0, 0.0], [3.0, 4e-9], [3.0, 4e-9], [6.0, 8e-9]])
    assert np.exp(FeaturePairs(X).bounds[1][1]) == pytest.approx(12)


# Finite families -----------------------------------------------------------------------------------------------------


def test_kernels_found_have_different_names_of_the_range_of_their_parameters():
    U = np.log([[0.3, 1.0, 4.1], [2.0, 2.0, 2.0], [0.3, 4.1, 0.3]])
    family = scaled_gaussians(U)
    assert family.names == ("gaussian(sigma 0.3..4.1)", "gaussian(sigma 2)", "gaussian(sigma 0.3..4.1) (2)")
    assert family.subset([2, 1]).names == ("gaussian(sigma 0.3..4.1) (2)", "gaussian(sigma 2)")
    names = ScaledFamily(LinearFamily(), np.ones((5, 1)), ["a", "a", "a (2)", "a", "b"]).names
    assert names == ("a", "a (3)", "a (2)", "a (4)", "b")
    again = ScaledFamily(LinearFamily(), np.ones((2, 1)), ["a", "a (2)"]).subset([0, 0, 1, 1]).names
    assert len(set(again)) == 4


def test_a_nearly_constant_scaled_gaussian_less_one_keeps_its_digits_and_its_scales():
    X = np.random.default_rng(4).normal(size=(20, 3))
    scales = np.array([[1e-5, 3e-5, 2e-5]])
    D = (((X[:8, None] - X[8:]) * scales[0]) ** 2).sum(axis=2)
    family = ScaledFamily(GaussianFamily([1.0]), scales)
    scales[:] = 0.0
    np.testing.assert_allclose(family.tile(X[:8], X[8:], shift=np.ones(1))[0], np.expm1(-D), rtol=1e-12)


# Errors --------------------------------------------------------------------------------------------------------------

X = np.arange(12.0).reshape(4, 3)
CSR = sparse.csr_matrix(X)
ONE = GaussianFamily([1.0])


REFUSED = [
    (lambda: FeaturePairs(CSR), "needs dense rows, got sparse ones; give X.toarray(), or search one Gaussian"),
    (lambda: FeaturePairs(np.full((5, 3), 0.1)).bounds, "all 5 rows are equal, so no kernel varies"),
    (lambda: ScaledFamily(ONE, [[1.0, 0.0]]), "must be positive and finite, got 0 for feature 1 of kernel 0"),
    (lambda: ScaledFamily(ONE, [[1.0], [-2.0]]), "got -2 for feature 0 of kernel 1"),
    (lambda: ScaledFamily(ONE, [[np.inf]]), "scales must be positive and finite, got inf"),
    *((partial(ScaledFamily, ONE, np.ones(of)), f"kernels by features, got shape {of}.") for of in ((0, 2), (3,))),
    (lambda: ScaledFamily(GaussianFamily([1.0, 2.0]), [[1.0]]), "base must hold exactly one kernel, got 2"),
    (lambda: ScaledFamily(ONE, [[1.0]], ["a", "b"]), "names must have one entry a kernel, got 2 for 1."),
    (lambda: ScaledFamily(ONE, [[1.0, 1.0]]).tile(X, X), "X must have the 2 features that the kernels have scales"),
    (lambda: ScaledFamily(ONE, [[1.0, 1.0]]).diag(CSR), "X must have the 2 features that the kernels have scales"),
]


def test_bad_input_is_refused_in_one_sentence():
    require_refusals(REFUSED, literal=True)
