"""Continuous families with one parameter a feature: values, derivatives, and where a search starts and ends."""

import re

import numpy as np
import pytest
from scipy import sparse

from learnkernels import GaussianFamily, LaplacianFamily, LinearFamily
from learnkernels.kernels.families import DirichletFamily, ScaledFamily
from learnkernels.kernels.search.per_feature import PerFeatureFamily
from learnkernels.kernels.search.radial import RadialFamily

KINDS = ("gaussian", "laplacian", "dirichlet")
KEYS = [(kind, m, d) for kind in KINDS for m, d in ((1, 2), (2, 1), (7, 3), (64, 5), (65, 4), (150, 2), (300, 6))]

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


def slow_kernel(kind: str, x, z, sigma) -> float:
    value = 1.0
    for a, b, s in zip(x, z, sigma, strict=True):
        if kind == "gaussian":
            value *= np.exp(-(((a - b) / s) ** 2))
        elif kind == "laplacian":
            value *= np.exp(-abs(a - b) / s)
        else:
            value *= 1 + 2 * np.cos(s * (a - b))
    return value


def size(kind: str, d: int) -> float:
    return 3.0**d if kind == "dirichlet" else 1.0


# Values --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "m", "d"), [key for key in KEYS if key[1] <= 65])
def test_the_matrix_is_the_kernel_of_each_pair(kind, m, d):
    X, u, _ = problem(kind, m, d)
    expected = np.array([[slow_kernel(kind, x, z, np.exp(u)) for z in X] for x in X])
    np.testing.assert_allclose(
        PerFeatureFamily(kind, d).objective(X).matrix(u), expected, rtol=0, atol=UNIT * size(kind, d)
    )


@pytest.mark.parametrize(("kind", "m", "d"), KEYS)
def test_the_matrix_is_that_of_the_finite_family(kind, m, d):
    X, u, _ = problem(kind, m, d)
    family = PerFeatureFamily(kind, d)
    U = np.stack([u, u + 0.1, u[::-1]])
    finite, pairs = family.finite(U), family.objective(X)
    for tile, one in zip(finite.tile(X, X), U, strict=True):
        np.testing.assert_allclose(pairs.matrix(one), tile, rtol=0, atol=UNIT * size(kind, d))


@pytest.mark.parametrize(("kind", "m", "d"), KEYS)
def test_the_matrix_is_exactly_symmetric_and_fresh(kind, m, d):
    X, u, _ = problem(kind, m, d)
    pairs = PerFeatureFamily(kind, d).objective(X)
    K = pairs.matrix(u)
    np.testing.assert_array_equal(K, K.T)
    if kind != "dirichlet":
        np.testing.assert_array_equal(np.diag(K), 1.0)
    kept = K.copy()
    pairs.matrix(u)[...] = np.nan
    np.testing.assert_array_equal(K, kept)


@pytest.mark.parametrize(("kind", "m", "d"), KEYS)
def test_the_value_is_the_product_with_the_matrix(kind, m, d):
    X, u, P = problem(kind, m, d)
    pairs = PerFeatureFamily(kind, d).objective(X)
    value, gradient = pairs.value_and_gradient(u, P)
    assert gradient.shape == (d,)
    assert abs(value - np.vdot(P, pairs.matrix(u))) <= UNIT * size(kind, d) * np.abs(P).sum()
    np.testing.assert_array_equal(pairs.values(np.stack([u, u]), P), [value, value])


# Derivatives ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize(("kind", "m", "d"), KEYS)
def test_the_gradient_is_that_of_central_differences(kind, m, d, positive):
    X, u, P = problem(kind, m, d)
    if positive:
        P = P @ P / m
    pairs = PerFeatureFamily(kind, d).objective(X)
    _, gradient = pairs.value_and_gradient(u, P)
    expected, h = np.zeros(d), 1e-3
    for k in range(d):
        step = h * np.eye(d)[k]
        near, far = (
            float(np.vdot(P, pairs.matrix(u + n * step) - pairs.matrix(u - n * step))) / (2 * n * h) for n in (1, 2)
        )
        expected[k] = (4 * near - far) / 3  # leaves an error of order h^4
    scale = np.abs(gradient).max()
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-6 * scale)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_the_sum_over_pairs_of_the_formula(kind):
    X, u, P = problem(kind, 70, 4)
    pairs, sigma = PerFeatureFamily(kind, 4).objective(X), np.exp(u)
    _, gradient = pairs.value_and_gradient(u, P)
    T = X[:, None] - X
    for k in range(4):
        if kind == "dirichlet":
            others = np.prod([1 + 2 * np.cos(sigma[i] * T[:, :, i]) for i in range(4) if i != k], axis=0)
            slope = -2 * sigma[k] * T[:, :, k] * np.sin(sigma[k] * T[:, :, k]) * others
        else:
            power = 2 if kind == "gaussian" else 1
            slope = power * (np.abs(T[:, :, k]) / sigma[k]) ** power * pairs.matrix(u)
        assert abs(gradient[k] - (P * slope).sum()) <= 1e-12 * np.abs(P * slope).sum()


def test_a_dirichlet_factor_of_zero_does_not_hide_the_derivative():
    # 1 + 2 cos(2 pi / 3) = 0 in both features: the value is zero, and so are both derivatives; in one, one is not.
    X = np.array([[0.0, 0.0], [2 * np.pi / 3, 0.7]])
    P = np.array([[0.0, 1.0], [1.0, 0.0]])
    value, gradient = PerFeatureFamily("dirichlet", 2).objective(X).value_and_gradient(np.zeros(2), P)
    assert abs(value) <= 1e-14
    expected = -4 * (2 * np.pi / 3) * np.sin(2 * np.pi / 3) * (1 + 2 * np.cos(0.7))
    np.testing.assert_allclose(gradient, [expected, 0.0], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("narrow", [1e-2, 1e-3])
def test_narrow_gaussians_keep_the_digits_of_their_gradient(narrow):
    rng = np.random.default_rng(1)
    X = np.repeat(rng.normal(size=(20, 2)), 2, axis=0)
    X[1::2] += narrow * rng.normal(size=(20, 2))
    P, u = np.ones((40, 40)), np.full(2, np.log(narrow))
    _, gradient = PerFeatureFamily("gaussian", 2).objective(X).value_and_gradient(u, P)
    Z = (X[:, None] - X) / narrow
    expected = (2 * Z**2 * np.exp(-(Z**2).sum(axis=2))[:, :, None]).sum(axis=(0, 1))
    # Expanded squares of size narrow^-2 cancel to ones.
    np.testing.assert_allclose(gradient, expected, rtol=1e-14 / narrow**2)


# Invariances ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_permuting_features_permutes_the_gradient(kind):
    X, u, P = problem(kind, 90, 5)
    order = np.array([3, 0, 4, 1, 2])
    family = PerFeatureFamily(kind, 5)
    value, gradient = family.objective(X).value_and_gradient(u, P)
    value_p, gradient_p = family.objective(X[:, order]).value_and_gradient(u[order], P)
    scale = size(kind, 5) * np.abs(P).sum()
    assert abs(value_p - value) <= UNIT * scale
    np.testing.assert_allclose(gradient_p, gradient[order], rtol=0, atol=UNIT * scale)
    for one, two in zip(family.bounds(X), family.bounds(X[:, order]), strict=True):
        np.testing.assert_allclose(two, one[order], rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_moving_all_rows_changes_nothing(kind):
    X, u, P = problem(kind, 90, 3)
    family, moved = PerFeatureFamily(kind, 3), X + np.array([30.0, -7.0, 11.0])
    one, two = family.objective(X), family.objective(moved)
    # Moving rounds each feature to eps * 30 or so.
    np.testing.assert_allclose(two.matrix(u), one.matrix(u), rtol=0, atol=UNIT * size(kind, 3))
    for before, after in zip(one.value_and_gradient(u, P), two.value_and_gradient(u, P), strict=True):
        np.testing.assert_allclose(after, before, rtol=0, atol=UNIT * size(kind, 3) * np.abs(P).sum())
    np.testing.assert_allclose(family.starts(moved), family.starts(X), rtol=1e-12)
    np.testing.assert_allclose(family.bounds(moved), family.bounds(X), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_shuffling_rows_changes_nothing(kind):
    X, u, P = problem(kind, 90, 3)
    family, order = PerFeatureFamily(kind, 3), np.random.default_rng(2).permutation(90)
    one = family.objective(X).value_and_gradient(u, P)
    two = family.objective(X[order]).value_and_gradient(u, P[np.ix_(order, order)])
    for before, after in zip(one, two, strict=True):
        np.testing.assert_allclose(after, before, rtol=0, atol=UNIT * size(kind, 3) * np.abs(P).sum())
    np.testing.assert_allclose(family.starts(X[order]), family.starts(X), rtol=1e-12)
    np.testing.assert_allclose(family.bounds(X[order]), family.bounds(X), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_constant_feature_has_no_derivative_and_the_widest_range(kind):
    X, u, P = problem(kind, 61, 4)
    X = X.copy()
    X[:, 2] = 0.1  # the mean of 61 of these is not 0.1
    family = PerFeatureFamily(kind, 4)
    _, gradient = family.objective(X).value_and_gradient(u, P)
    assert gradient[2] == 0.0
    assert (gradient[[0, 1, 3]] != 0).all()
    low, high = family.bounds(X)
    assert (low[2], high[2]) == (low.min(), high.max())


@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_p_are_not_modified(kind):
    X, u, P = problem(kind, 40, 3)
    before = X.copy(), u.copy(), P.copy()
    family = PerFeatureFamily(kind, 3)
    pairs = family.objective(X)
    pairs.value_and_gradient(u, P)
    pairs.matrix(u)
    family.starts(X), family.bounds(X), family.finite(u[None])
    for now, then in zip((X, u, P), before, strict=True):
        np.testing.assert_array_equal(now, then)


# Where a search starts and ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spread", [1.0, 1e9])
def test_starts_are_isotropic_ascending_and_within_bounds(kind, spread):
    X = problem(kind, 50, 4)[0] * np.array([1.0, 1.0 / spread, spread, 1.0])
    family = PerFeatureFamily(kind, 4)
    starts, (low, high) = family.starts(X), family.bounds(X)
    assert starts.shape == ({"dirichlet": 4}.get(kind, 3), 4)
    np.testing.assert_array_equal(starts, np.repeat(starts[:, :1], 4, axis=1))
    assert (np.diff(starts[:, 0]) > 0).all()
    assert (low < high).all()
    assert (low <= starts).all()
    assert (starts <= high).all()
    assert np.isfinite([low, high]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_range_follows_the_unit_of_each_feature(kind):
    X, family = problem(kind, 50, 3)[0], PerFeatureFamily(kind, 3)
    X = X / X.std(axis=0)
    factor = np.array([1.0, 2.0, 4.0])
    sign = -1 if kind == "dirichlet" else 1
    for one, two in zip(family.bounds(X), family.bounds(X * factor), strict=True):
        np.testing.assert_allclose(two - one, sign * np.log(factor), rtol=0, atol=1e-12)


def test_the_middle_start_is_the_median_distance():
    X = np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 4.0], [6.0, 8.0]])  # distances 0, 5, 5, 5, 5, 10
    assert np.exp(PerFeatureFamily("gaussian", 2).starts(X))[:, 0] == pytest.approx([1.25, 5, 20])
    assert np.exp(PerFeatureFamily("laplacian", 2).starts(X))[:, 1] == pytest.approx([1.75, 7, 28])
    assert np.exp(PerFeatureFamily("dirichlet", 2).starts(X))[:, 0] == pytest.approx(np.pi / 8 * np.array([1, 2, 4, 8]))


# Finite families -----------------------------------------------------------------------------------------------------


def test_kernels_found_are_named_after_the_range_of_their_parameters():
    U = np.log([[0.3, 1.0, 4.1], [2.0, 2.0, 2.0], [0.3, 4.1, 0.3]])
    family = PerFeatureFamily("gaussian", 3).finite(U)
    assert family.names == ("gaussian(sigma 0.3..4.1)", "gaussian(sigma 2)", "gaussian(sigma 0.3..4.1) (2)")
    assert family.subset([2, 1]).names == ("gaussian(sigma 0.3..4.1) (2)", "gaussian(sigma 2)")
    assert PerFeatureFamily("dirichlet", 3).finite(U).names[0] == "dirichlet(frequency 0.3..4.1)"


def test_numbers_of_names_do_not_clash_with_names():
    names = ScaledFamily(LinearFamily(), np.ones((5, 1)), ["a", "a", "a (2)", "a", "b"]).names
    assert names == ("a", "a (3)", "a (2)", "a (4)", "b")
    again = ScaledFamily(LinearFamily(), np.ones((2, 1)), ["a", "a (2)"]).subset([0, 0, 1, 1]).names
    assert len(set(again)) == 4


def test_a_scaled_family_is_the_family_of_one_bandwidth_where_scales_are_equal():
    X = np.random.default_rng(3).normal(size=(30, 4))
    U = np.log(np.array([[0.5], [2.0]])).repeat(4, axis=1)
    for kind, family in (
        ("gaussian", GaussianFamily([4.0, 0.25])),
        ("laplacian", LaplacianFamily([2.0, 0.5])),
        ("dirichlet", DirichletFamily([0.5, 2.0])),
    ):
        found = PerFeatureFamily(kind, 4).finite(U)
        np.testing.assert_allclose(
            found.tile(X[:9], X[9:]), family.tile(X[:9], X[9:]), rtol=0, atol=UNIT * size(kind, 4)
        )


def test_a_nearly_constant_scaled_gaussian_less_one_keeps_its_digits():
    X = np.random.default_rng(4).normal(size=(20, 3))
    scales = np.array([[1e-5, 3e-5, 2e-5]])
    E = ScaledFamily(GaussianFamily([1.0]), scales).tile(X[:8], X[8:], shift=np.ones(1))[0]
    D = (((X[:8, None] - X[8:]) * scales[0]) ** 2).sum(axis=2)
    np.testing.assert_allclose(E, np.expm1(-D), rtol=1e-12)


def test_sparse_rows_stay_as_they_are_under_scales():
    X = sparse.random(20, 6, density=0.3, random_state=5, format="csr")
    before = X.copy()
    family = ScaledFamily(LaplacianFamily([1.0]), np.arange(1.0, 13).reshape(2, 6))
    tile = family.tile(X, X)
    assert (before != X).nnz == 0
    np.testing.assert_allclose(tile, family.tile(X.toarray(), X.toarray()), rtol=0, atol=1e-13)


def test_scales_are_copied():
    scales = np.ones((1, 2))
    family = ScaledFamily(LinearFamily(), scales)
    scales[:] = 2.0
    np.testing.assert_array_equal(family.scales, 1.0)


# Errors --------------------------------------------------------------------------------------------------------------

X = np.arange(12.0).reshape(4, 3)
CSR = sparse.csr_matrix(X)
FAMILY = PerFeatureFamily("gaussian", 3)
ONE = GaussianFamily([1.0])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: PerFeatureFamily("cosine", 3), "kind must be one of gaussian, laplacian, dirichlet, got 'cosine'."),
        (lambda: PerFeatureFamily("gaussian", 0), "n_features must be a whole number of at least 1, got 0."),
        (lambda: PerFeatureFamily("gaussian", 1.5), "n_features must be a whole number of at least 1, got 1.5."),
        (lambda: PerFeatureFamily("dirichlet", 700), "at most 637 features"),
        (lambda: FAMILY.objective(X[:, :2]), "the 3 features of the family, got shape (4, 2)."),
        (lambda: FAMILY.starts(X[:0]), "at least one row, and the 3 features of the family, got shape (0, 3)."),
        (lambda: FAMILY.bounds(X[:, [0, 1, 2, 0]]), "the 3 features of the family, got shape (4, 4)."),
        (lambda: FAMILY.objective(CSR), "needs dense rows, got sparse ones; give X.toarray(), or search one Gaussian"),
        (lambda: FAMILY.starts(CSR), "needs dense rows, got sparse ones"),
        (lambda: FAMILY.bounds(CSR), "needs dense rows, got sparse ones"),
        (lambda: FAMILY.starts(np.ones((5, 3))), "all 5 rows are equal, so no gaussian kernel varies"),
        (lambda: FAMILY.bounds(np.full((5, 3), 0.1)), "all 5 rows are equal"),
        (lambda: FAMILY.finite(np.zeros((2, 2))), "U must be a matrix, kernels by 3 features, got shape (2, 2)."),
        (lambda: FAMILY.finite(np.zeros(3)), "U must be a matrix, kernels by 3 features, got shape (3,)."),
        (
            lambda: ScaledFamily(ONE, [[1.0, 0.0]]),
            "scales must be positive and finite, got 0 for feature 1 of kernel 0",
        ),
        (lambda: ScaledFamily(ONE, [[1.0], [-2.0]]), "got -2 for feature 0 of kernel 1"),
        (lambda: ScaledFamily(ONE, [[np.nan]]), "scales must be positive and finite, got nan"),
        (lambda: ScaledFamily(ONE, [[np.inf]]), "scales must be positive and finite, got inf"),
        (lambda: ScaledFamily(ONE, np.ones((0, 2))), "scales must be a matrix, kernels by features, got shape (0, 2)."),
        (lambda: ScaledFamily(ONE, np.ones(3)), "scales must be a matrix, kernels by features, got shape (3,)."),
        (lambda: ScaledFamily(GaussianFamily([1.0, 2.0]), [[1.0]]), "base must hold exactly one kernel, got 2"),
        (lambda: ScaledFamily(ONE, [[1.0]], ["a", "b"]), "names must have one entry a kernel, got 2 for 1."),
        (lambda: ScaledFamily(ONE, [[1.0, 1.0]]).tile(X, X), "X must have the 2 features that the kernels have scales"),
        (lambda: ScaledFamily(ONE, [[1.0, 1.0]]).diag(CSR), "X must have the 2 features that the kernels have scales"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(make, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        make()


def test_continuous_families_are_made_of_their_parameters():
    radial, per_feature = RadialFamily("gaussian"), PerFeatureFamily("laplacian", 3)
    assert radial.set_params(kind="dirichlet") == RadialFamily("dirichlet")
    assert repr(per_feature.set_params(n_features=5)) == "PerFeatureFamily('laplacian', n_features=5)"
    with pytest.raises(ValueError, match="n_features must be"):
        per_feature.set_params(n_features=0)
