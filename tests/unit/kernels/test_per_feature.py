"""Continuous families with one parameter a feature: values, derivatives, and where a search starts and ends."""

from functools import partial

import numpy as np
import pytest
from scipy import sparse

from learnkernels import GaussianFamily, LinearFamily
from learnkernels.kernels.families import ScaledFamily
from learnkernels.kernels.search.per_feature import PerFeatureFamily
from learnkernels.kernels.search.radial import RadialFamily
from tests.refusals import require_refusals

KINDS = ("gaussian", "laplacian", "dirichlet")
SHAPES = ((1, 2), (2, 1), (7, 3), (64, 5), (65, 4), (150, 2))

# Relative to the largest kernel value: some operations of rounding a feature, and the expanded squared distance.
UNIT = 1e-12


def problem(kind: str, m: int, d: int, seed: int = 0):
    """Rows, a point, and a symmetric P that is not positive definite; kernels neither all zero nor all alike."""
    rng = np.random.default_rng([seed, m, d, KINDS.index(kind)])
    X = rng.normal(size=(m, d)) * np.exp(rng.normal(size=d)) + 5
    scale = X.std(axis=0) + (m == 1)
    u = rng.normal(scale=0.3, size=d)
    u += -np.log(scale) if kind == "dirichlet" else np.log(scale * (d**0.5 if kind == "gaussian" else d))
    P = rng.normal(size=(m, m))
    P = P + P.T
    for array in (X, u, P):
        array.flags.writeable = False
    return X, u, P


FACTORS = {
    "gaussian": lambda z: (np.exp(-(z**2)), 2 * z**2 * np.exp(-(z**2))),
    "laplacian": lambda z: (np.exp(-abs(z)), abs(z) * np.exp(-abs(z))),
    "dirichlet": lambda z: (1 + 2 * np.cos(z), -2 * z * np.sin(z)),
}
"""The factor of one feature and its derivative by the logarithm of its parameter; z is in units of the parameter."""


def size(kind: str, d: int) -> float:
    return 3.0**d if kind == "dirichlet" else 1.0


# Values and derivatives ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "d"), SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_matrices_values_and_gradients_are_those_of_each_pair(kind, m, d):
    X, u, P = problem(kind, m, d)
    family = PerFeatureFamily(kind, d)
    pairs, rounding = family.objective(X), UNIT * size(kind, d)
    K = pairs.matrix(u)
    factors, slopes = FACTORS[kind]((X[:, None] - X) * np.exp(u if kind == "dirichlet" else -u))
    np.testing.assert_allclose(K, factors.prod(axis=2), rtol=0, atol=rounding)
    np.testing.assert_array_equal(K, K.T)
    if kind != "dirichlet":
        np.testing.assert_array_equal(np.diag(K), 1.0)
    U, kept = np.stack([u, u + 0.1, u[::-1]]), K.copy()
    pairs.matrix(u)[...] = np.nan
    np.testing.assert_array_equal(K, kept)
    for tile, one in zip(family.finite(U).tile(X, X), U, strict=True):
        np.testing.assert_allclose(pairs.matrix(one), tile, rtol=0, atol=rounding)
    for weights in (P, P @ P / m):
        value, gradient = pairs.value_and_gradient(u, weights)
        assert abs(value - np.vdot(weights, K)) <= rounding * np.abs(weights).sum()
        np.testing.assert_array_equal(pairs.values(np.stack([u, u]), weights), [value, value])
        for k in range(d):
            terms = weights * slopes[:, :, k] * np.delete(factors, k, axis=2).prod(axis=2)
            assert abs(gradient[k] - terms.sum()) <= 1e-12 * np.abs(terms).sum()


def test_a_dirichlet_factor_of_zero_does_not_hide_the_derivative():
    # 1 + 2 cos(2 pi / 3) = 0 in both features: the value is zero, and so are both derivatives; in one, one is not.
    X = np.array([[0.0, 0.0], [2 * np.pi / 3, 0.7]])
    P = np.array([[0.0, 1.0], [1.0, 0.0]])
    value, gradient = PerFeatureFamily("dirichlet", 2).objective(X).value_and_gradient(np.zeros(2), P)
    assert abs(value) <= 1e-14
    expected = -4 * (2 * np.pi / 3) * np.sin(2 * np.pi / 3) * (1 + 2 * np.cos(0.7))
    np.testing.assert_allclose(gradient, [expected, 0.0], rtol=1e-13, atol=1e-14)


def test_narrow_gaussians_keep_the_digits_of_their_gradient():
    rng = np.random.default_rng(1)
    near = np.repeat(rng.normal(size=(20, 2)), 2, axis=0)
    step, P = rng.normal(size=(20, 2)), np.ones((40, 40))
    for narrow in (1e-2, 1e-3):
        X, u = near.copy(), np.full(2, np.log(narrow))
        X[1::2] += narrow * step
        _, gradient = PerFeatureFamily("gaussian", 2).objective(X).value_and_gradient(u, P)
        Z = (X[:, None] - X) / narrow
        expected = (2 * Z**2 * np.exp(-(Z**2).sum(axis=2))[:, :, None]).sum(axis=(0, 1))
        # Expanded squares of size narrow^-2 cancel to ones.
        np.testing.assert_allclose(gradient, expected, rtol=1e-14 / narrow**2)


# Invariances, and where a search starts and ends ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_features_and_rows_have_no_order_and_rows_no_origin(kind):
    X, u, P = problem(kind, 90, 5)
    features, rows = np.array([3, 0, 4, 1, 2]), np.random.default_rng(2).permutation(90)
    family, every, all_rows = PerFeatureFamily(kind, 5), np.arange(5), np.arange(90)
    pairs, rounding = family.objective(X), UNIT * size(kind, 5)
    value, gradient = pairs.value_and_gradient(u, P)
    for Z, order, at in (
        (X[:, features], features, all_rows),
        (X[rows], every, rows),
        (X + np.array([30.0, -7.0, 11.0, 0.0, 2.0]), every, all_rows),  # rounds each feature to eps * 30 or so
    ):
        other, square = family.objective(Z), np.ix_(at, at)
        np.testing.assert_allclose(other.matrix(u[order]), pairs.matrix(u)[square], rtol=0, atol=rounding)
        now, slopes = other.value_and_gradient(u[order], P[square])
        found, expected = np.append(slopes, now), np.append(gradient[order], value)
        np.testing.assert_allclose(found, expected, rtol=0, atol=rounding * np.abs(P).sum())
        np.testing.assert_allclose(family.starts(Z), family.starts(X), rtol=1e-12)
        np.testing.assert_allclose(family.bounds(Z), np.stack(family.bounds(X))[:, order], rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_constant_feature_has_no_derivative_and_the_widest_range_and_nothing_is_modified(kind):
    X, u, P = problem(kind, 61, 4)
    X = X.copy()
    X[:, 2] = 0.1  # the mean of 61 of these is not 0.1
    X.flags.writeable = False  # as those of the point and of P are
    family = PerFeatureFamily(kind, 4)
    pairs = family.objective(X)
    _, gradient = pairs.value_and_gradient(u, P)
    assert gradient[2] == 0.0
    assert (gradient[[0, 1, 3]] != 0).all()
    low, high = family.bounds(X)
    assert (low[2], high[2]) == (low.min(), high.max())
    pairs.matrix(u), family.starts(X), family.finite(u[None])


@pytest.mark.parametrize("kind", KINDS)
def test_starts_are_isotropic_ascending_and_within_bounds_that_follow_units(kind):
    rows, family = problem(kind, 50, 4)[0], PerFeatureFamily(kind, 4)
    for spread in (1.0, 1e9):
        X = rows * np.array([1.0, 1.0 / spread, spread, 1.0])
        starts, (low, high) = family.starts(X), family.bounds(X)
        assert starts.shape == ({"dirichlet": 4}.get(kind, 3), 4)
        np.testing.assert_array_equal(starts, np.repeat(starts[:, :1], 4, axis=1))
        assert (np.diff(starts[:, 0]) > 0).all()
        assert np.isfinite([low, high]).all()
        assert ((low < high) & (low <= starts) & (starts <= high)).all()
    X, factor = rows / rows.std(axis=0), np.array([1.0, 2.0, 4.0, 1.0])
    sign = -1 if kind == "dirichlet" else 1
    for one, two in zip(family.bounds(X), family.bounds(X * factor), strict=True):
        np.testing.assert_allclose(two - one, sign * np.log(factor), rtol=0, atol=1e-12)


def test_the_middle_start_is_the_median_distance():
    X = np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 4.0], [6.0, 8.0]])  # distances 0, 5, 5, 5, 5, 10
    assert np.exp(PerFeatureFamily("gaussian", 2).starts(X))[:, 0] == pytest.approx([1.25, 5, 20])
    assert np.exp(PerFeatureFamily("laplacian", 2).starts(X))[:, 1] == pytest.approx([1.75, 7, 28])
    assert np.exp(PerFeatureFamily("dirichlet", 2).starts(X))[:, 0] == pytest.approx(np.pi / 8 * np.array([1, 2, 4, 8]))


# Finite families -----------------------------------------------------------------------------------------------------


def test_kernels_found_have_different_names_of_the_range_of_their_parameters():
    U = np.log([[0.3, 1.0, 4.1], [2.0, 2.0, 2.0], [0.3, 4.1, 0.3]])
    family = PerFeatureFamily("gaussian", 3).finite(U)
    assert family.names == ("gaussian(sigma 0.3..4.1)", "gaussian(sigma 2)", "gaussian(sigma 0.3..4.1) (2)")
    assert family.subset([2, 1]).names == ("gaussian(sigma 0.3..4.1) (2)", "gaussian(sigma 2)")
    assert PerFeatureFamily("dirichlet", 3).finite(U).names[0] == "dirichlet(frequency 0.3..4.1)"
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
FAMILY = PerFeatureFamily("gaussian", 3)
ONE = GaussianFamily([1.0])


REFUSED = [
    (lambda: PerFeatureFamily("cosine", 3), "kind must be one of gaussian, laplacian, dirichlet, got 'cosine'."),
    *((partial(PerFeatureFamily, "gaussian", n), f"whole number of at least 1, got {n}.") for n in (0, 1.5)),
    (lambda: PerFeatureFamily("dirichlet", 700), "at most 637 features"),
    (lambda: FAMILY.objective(X[:, :2]), "the 3 features of the family, got shape (4, 2)."),
    (lambda: FAMILY.starts(X[:0]), "at least one row, and the 3 features of the family, got shape (0, 3)."),
    (lambda: FAMILY.bounds(X[:, [0, 1, 2, 0]]), "the 3 features of the family, got shape (4, 4)."),
    (lambda: FAMILY.objective(CSR), "needs dense rows, got sparse ones; give X.toarray(), or search one Gaussian"),
    *((partial(ask, CSR), "needs dense rows, got sparse ones") for ask in (FAMILY.starts, FAMILY.bounds)),
    (lambda: FAMILY.starts(np.ones((5, 3))), "all 5 rows are equal, so no gaussian kernel varies"),
    (lambda: FAMILY.bounds(np.full((5, 3), 0.1)), "all 5 rows are equal"),
    *((partial(FAMILY.finite, np.zeros(of)), f"kernels by 3 features, got shape {of}.") for of in ((2, 2), (3,))),
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


def test_continuous_families_are_made_of_their_parameters():
    radial, per_feature = RadialFamily("gaussian"), PerFeatureFamily("laplacian", 3)
    assert radial.set_params(kind="dirichlet") == RadialFamily("dirichlet")
    assert repr(per_feature.set_params(n_features=5)) == "PerFeatureFamily('laplacian', n_features=5)"
    require_refusals([(lambda: per_feature.set_params(n_features=0), "n_features must be")])
