"""Centering in feature space and the alignment of two matrices."""

import numpy as np
import pytest

from learnkernels import center_gram, centered_alignment
from learnkernels.kernels.centering import center_cross_gram
from tests.reference import (
    alignment,
    centered,
    centered_cross,
    centered_linear_features,
    gaussian,
    gram,
    linear,
    target_kernel,
    uncentered_alignment,
)


def random_gram(m: int, seed: int) -> np.ndarray:
    """Return a positive semi-definite matrix that is far from centered."""
    V = np.random.default_rng(seed).normal(size=(m, 6)) + 1.5
    return V @ V.T


# Centering -----------------------------------------------------------------------------------------------------------

MATRICES = {
    "gram": random_gram(30, seed=0),
    "asymmetric": np.random.default_rng(1).normal(size=(25, 25)),
    "large-values": 1e8 * random_gram(20, seed=2),
    "two-rows": np.array([[2.0, 0.5], [0.5, 3.0]]),
}


@pytest.fixture(params=MATRICES.values(), ids=MATRICES)
def K(request) -> np.ndarray:
    return request.param.copy()


def test_centering_is_multiplication_by_H_on_both_sides(K):
    np.testing.assert_allclose(center_gram(K), centered(K).astype(float), rtol=0, atol=1e-12 * np.abs(K).max())


def test_rows_and_columns_of_a_centered_matrix_sum_to_zero(K):
    Kc = center_gram(K)
    atol = 1e-12 * np.abs(K).max()
    np.testing.assert_allclose(Kc.sum(axis=0), 0.0, atol=atol)
    np.testing.assert_allclose(Kc.sum(axis=1), 0.0, atol=atol)


def test_centering_is_idempotent(K):
    once = center_gram(K)
    np.testing.assert_allclose(center_gram(once), once, rtol=0, atol=1e-12 * np.abs(K).max())


def test_centering_does_not_see_an_added_constant(K):
    added = 3.0 * np.abs(K).max()
    np.testing.assert_allclose(center_gram(K + added), center_gram(K), rtol=0, atol=1e-12 * added)


def test_centering_leaves_its_input_alone(K):
    before = K.copy()
    center_gram(K)
    center_cross_gram(K[:1], K)
    np.testing.assert_array_equal(K, before)


def test_centering_one_factor_of_a_product_is_enough():
    K, L = random_gram(30, seed=3), random_gram(30, seed=4)
    both = np.vdot(center_gram(K), center_gram(L))
    # Rounding of a sum of 900 products, relative to the larger product before centering.
    atol = 1e-12 * np.vdot(K, L)
    assert np.vdot(center_gram(K), L) == pytest.approx(both, rel=0, abs=atol)
    assert np.vdot(K, center_gram(L)) == pytest.approx(both, rel=0, abs=atol)


def test_centering_the_linear_kernel_is_centering_the_features():
    X = np.random.default_rng(5).normal(size=(30, 4)) + 2.0
    Xc = X - X.mean(axis=0)
    np.testing.assert_allclose(center_gram(X @ X.T), Xc @ Xc.T, rtol=0, atol=1e-12 * np.abs(X @ X.T).max())


# New rows ------------------------------------------------------------------------------------------------------------


def test_new_rows_are_centered_by_the_training_rows_mean_feature():
    rng = np.random.default_rng(6)
    X, X_new = rng.normal(size=(20, 4)) + 1.0, rng.normal(size=(7, 4)) - 2.0
    expected = centered_linear_features(X_new, X).astype(float)
    np.testing.assert_allclose(center_cross_gram(X_new @ X.T, X @ X.T), expected, rtol=0, atol=1e-12)
    # The tempting mistake, new rows less their own mean, is far off.
    own = (X_new - X_new.mean(axis=0)) @ (X - X.mean(axis=0)).T
    assert np.abs(own - expected).max() > 0.1 * np.abs(expected).max()


def test_new_rows_are_centered_entry_by_entry_as_defined():
    rng = np.random.default_rng(7)
    X, X_new = rng.normal(size=(15, 3)), rng.normal(size=(6, 3))
    K, K_cross = gram(gaussian(0.3), X), gram(gaussian(0.3), X_new, X)
    got = center_cross_gram(K_cross.astype(float), K.astype(float))
    np.testing.assert_allclose(got, centered_cross(K_cross, K).astype(float), rtol=0, atol=1e-12)


def test_training_rows_taken_as_new_rows_give_the_centered_gram():
    K = random_gram(25, seed=8)
    np.testing.assert_allclose(center_cross_gram(K, K), center_gram(K), rtol=0, atol=1e-12 * np.abs(K).max())


def test_a_new_row_does_not_depend_on_which_others_come_with_it():
    K, K_cross = random_gram(20, seed=9), np.random.default_rng(10).normal(size=(8, 20))
    together = center_cross_gram(K_cross, K)
    for i in range(8):
        np.testing.assert_array_equal(center_cross_gram(K_cross[i : i + 1], K)[0], together[i])


@pytest.mark.parametrize("kernel", [linear(), gaussian(0.2)], ids=["linear", "gaussian"])
def test_held_out_rows_do_not_see_a_shift_of_all_features(kernel):
    rng = np.random.default_rng(11)
    X, X_new, move = rng.normal(size=(18, 3)), rng.normal(size=(6, 3)), np.array([30.0, -7.0, 11.0])

    def cross(rows, new):
        return center_cross_gram(gram(kernel, new, rows).astype(float), gram(kernel, rows).astype(float))

    # The moved linear kernel has values near 1e3, so centering it loses three digits of double precision.
    np.testing.assert_allclose(cross(X + move, X_new + move), cross(X, X_new), rtol=0, atol=1e-9)


# Alignment -----------------------------------------------------------------------------------------------------------


def test_alignment_is_that_of_explicitly_centered_matrices():
    K, L = random_gram(25, seed=12), random_gram(25, seed=13)
    assert centered_alignment(K, L) == pytest.approx(alignment(K, L), rel=0, abs=1e-12)


@pytest.mark.parametrize("scale", [1e-150, 1e-8, 3.0, 1e8])
def test_alignment_does_not_see_scale(scale):
    K, L = random_gram(25, seed=14), random_gram(25, seed=15)
    assert centered_alignment(scale * K, L) == pytest.approx(centered_alignment(K, L), rel=0, abs=1e-12)
    assert centered_alignment(L, scale * K) == pytest.approx(centered_alignment(L, K), rel=0, abs=1e-12)


def test_alignment_does_not_see_an_added_constant():
    K, L = random_gram(25, seed=16), random_gram(25, seed=17)
    assert centered_alignment(K + 70.0, L - 3.0) == pytest.approx(centered_alignment(K, L), rel=0, abs=1e-12)


def test_alignment_does_not_see_the_order_of_the_samples():
    K, L = random_gram(25, seed=18), random_gram(25, seed=19)
    order = np.random.default_rng(20).permutation(25)
    permuted = np.ix_(order, order)
    assert centered_alignment(K[permuted], L[permuted]) == pytest.approx(centered_alignment(K, L), rel=0, abs=1e-12)


def test_alignment_is_symmetric_and_between_zero_and_one_for_gram_matrices():
    for seed in range(20, 30):
        K, L = random_gram(12, seed), random_gram(12, seed + 100)
        assert centered_alignment(K, L) == centered_alignment(L, K)
        assert 0.0 <= centered_alignment(K, L) <= 1.0


def test_a_matrix_aligns_perfectly_with_itself_and_oppositely_with_its_negative():
    K = random_gram(25, seed=31)
    assert centered_alignment(K, K) == pytest.approx(1.0, rel=0, abs=1e-12)
    assert centered_alignment(K, -K) == pytest.approx(-1.0, rel=0, abs=1e-12)


@pytest.mark.parametrize("negative", [1, 10, 50, 73, 99])
def test_two_separated_points_align_perfectly_whatever_their_shares(negative):
    share = negative / 100
    y = np.repeat([-1.0, 1.0], [negative, 100 - negative])
    X = np.column_stack([y, np.zeros(100)])
    K, L = X @ X.T + 1.0, np.outer(y, y)
    assert centered_alignment(K, L) == pytest.approx(1.0, rel=0, abs=1e-12)
    assert uncentered_alignment(K, L) == pytest.approx(np.sqrt(share**2 + (1 - share) ** 2), rel=1e-12)


def test_an_offset_of_the_data_hides_the_signal_from_the_uncentered_alignment_only():
    rng = np.random.default_rng(32)
    X = rng.normal(size=(200, 5))
    y = np.sign(X[:, 0] + 0.5 * rng.normal(size=200))
    offset = X + 10.0
    K, L = offset @ offset.T, target_kernel(y).astype(float)
    assert uncentered_alignment(K, L) < 0.02
    assert centered_alignment(K, L) > 0.2
    assert centered_alignment(K, L) == pytest.approx(centered_alignment(X @ X.T, L), rel=0, abs=1e-9)


# Errors --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 4), (3,), (2, 2, 2)])
def test_only_square_matrices_are_centered(shape):
    K = np.ones(shape)
    with pytest.raises(ValueError, match=r"K must be square, got shape .*; for test rows use center_cross_gram"):
        center_gram(K)
    with pytest.raises(ValueError, match="K must be square"):
        center_cross_gram(np.ones((2, 3)), K)
    with pytest.raises(ValueError, match="L must be square"):
        centered_alignment(np.eye(3), K)


@pytest.mark.parametrize("shape", [(5, 4), (3,)])
def test_a_cross_gram_needs_one_column_a_training_row(shape):
    with pytest.raises(ValueError, match=r"K_cross must have one column a training row, got shape .* for 3 training"):
        center_cross_gram(np.ones(shape), np.eye(3))


def test_alignment_needs_the_same_samples():
    with pytest.raises(ValueError, match=r"K and L must be over the same samples, got shapes \(3, 3\) and \(4, 4\)"):
        centered_alignment(np.eye(3), np.eye(4))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_alignment_refuses_entries_that_are_not_finite(bad):
    K = np.eye(3)
    K[0, 1] = bad
    with pytest.raises(ValueError, match="K must be finite"):
        centered_alignment(K, np.eye(3))
    with pytest.raises(ValueError, match="L must be finite"):
        centered_alignment(np.eye(3), K)


CONSTANT_AFTER_CENTERING = {
    "zero": np.zeros((20, 20)),
    "constant": np.full((20, 20), 0.1),
    "large-constant": np.full((20, 20), 1e9 / 3),
    "rows-plus-columns": np.add.outer(np.arange(20) / 3, np.arange(20) / 7),
    "one-sample": np.ones((1, 1)),
}


@pytest.mark.parametrize("K", CONSTANT_AFTER_CENTERING.values(), ids=CONSTANT_AFTER_CENTERING)
def test_alignment_is_undefined_for_a_matrix_that_is_constant_after_centering(K):
    other = np.diag(np.arange(1.0, len(K) + 1))
    with pytest.raises(ValueError, match="K is constant after centering, so its alignment is undefined"):
        centered_alignment(K, other)
    if len(K) > 1:
        with pytest.raises(ValueError, match="L is constant after centering"):
            centered_alignment(other, K)


def test_a_nearly_constant_matrix_still_has_an_alignment():
    X = np.random.default_rng(33).normal(size=(25, 3))
    K, L = (gram(gaussian(gamma), X) for gamma in (2.0**-26, 0.5))
    # K - 1 is about 1e-7, so double precision leaves 1e-9 of it.
    assert centered_alignment(K.astype(float), L.astype(float)) == pytest.approx(alignment(K, L), rel=0, abs=1e-7)
