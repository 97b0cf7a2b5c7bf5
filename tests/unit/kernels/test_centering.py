"""Centering in feature space and the alignment of two matrices."""

from functools import partial

import numpy as np
import pytest

from learnkernels import center_gram, centered_alignment
from learnkernels.kernels.centering import center_cross_gram
from tests import reference
from tests.refusals import require_refusals


def random_gram(m: int, seed: int) -> np.ndarray:
    """Return a positive semi-definite matrix that is far from centered."""
    V = np.random.default_rng(seed).normal(size=(m, 6)) + 1.5
    return V @ V.T


# Centering -----------------------------------------------------------------------------------------------------------

MATRICES = {"gram": random_gram(30, seed=0), "large-values": 1e8 * random_gram(20, seed=2)}
MATRICES["asymmetric"] = np.random.default_rng(1).normal(size=(25, 25))
MATRICES["two-rows"] = np.array([[2.0, 0.5], [0.5, 3.0]])


@pytest.mark.parametrize("name", MATRICES)
def test_centering_is_multiplication_by_H_on_both_sides(name):
    K = MATRICES[name].copy()
    Kc, size = center_gram(K), np.abs(K).max()
    np.testing.assert_allclose(Kc, reference.centered(K).astype(float), rtol=0, atol=1e-12 * size)
    np.testing.assert_allclose(center_gram(K + 3.0 * size), Kc, rtol=0, atol=3e-12 * size)
    np.testing.assert_allclose(center_cross_gram(K, K), Kc, rtol=0, atol=1e-12 * size)
    np.testing.assert_array_equal(K, MATRICES[name])


# New rows ------------------------------------------------------------------------------------------------------------


def test_new_rows_are_centered_by_the_training_rows_mean_feature_entry_by_entry():
    rng = np.random.default_rng(6)
    X, X_new = rng.normal(size=(20, 4)) + 1.0, rng.normal(size=(7, 4)) - 2.0
    expected = reference.centered_linear_features(X_new, X).astype(float)
    np.testing.assert_allclose(center_cross_gram(X_new @ X.T, X @ X.T), expected, rtol=0, atol=1e-12)
    K, K_cross = reference.gram(reference.gaussian(0.3), X), reference.gram(reference.gaussian(0.3), X_new, X)
    got = center_cross_gram(K_cross.astype(float), K.astype(float))
    np.testing.assert_allclose(got, reference.centered_cross(K_cross, K).astype(float), rtol=0, atol=1e-12)


# Alignment -----------------------------------------------------------------------------------------------------------


def test_alignment_is_that_of_explicitly_centered_matrices():
    pairs = [(random_gram(25, seed), random_gram(25, seed + 100)) for seed in range(12, 22)]
    own = random_gram(25, seed=31)
    for K, L in [*pairs, (own, own), (own, -own)]:
        assert centered_alignment(K, L) == pytest.approx(reference.alignment(K, L), rel=0, abs=1e-12)
        assert centered_alignment(L, K) == centered_alignment(K, L)
        assert abs(centered_alignment(K, L)) <= 1.0


def test_alignment_does_not_see_scale_an_added_constant_or_the_order_of_the_samples():
    K, L = random_gram(25, seed=14), random_gram(25, seed=15)
    order = np.random.default_rng(20).permutation(25)
    same = [(scale * K, L) for scale in (1e-300, 1e-150, 1e-8, 3.0, 1e8, 1e300)]
    same += [(K, scale * L) for scale in (1e-150, 1e8)]
    same += [(K + 70.0, L - 3.0), (K[np.ix_(order, order)], L[np.ix_(order, order)])]
    for A, B in same:
        assert centered_alignment(A, B) == pytest.approx(centered_alignment(K, L), rel=0, abs=1e-12)


def test_a_nearly_constant_matrix_still_has_an_alignment():
    X = np.random.default_rng(33).normal(size=(25, 3))
    K, L = (reference.gram(reference.gaussian(gamma), X) for gamma in (2.0**-26, 0.5))
    # K - 1 is about 1e-7, so double precision leaves 1e-9 of it.
    aligned = centered_alignment(K.astype(float), L.astype(float))
    assert aligned == pytest.approx(reference.alignment(K, L), rel=0, abs=1e-7)


# Errors --------------------------------------------------------------------------------------------------------------


def test_matrices_that_do_not_fit_or_have_no_alignment_are_refused():
    three, eye = np.ones((2, 3)), np.eye(3)
    said = r"K_cross must have one column a training row, got .* 3 training"
    refused = [(center_cross_gram, (np.ones(shape), eye), said) for shape in ((5, 4), (3,))]
    for shape in ((3, 4), (3,), (2, 2, 2)):
        K = np.ones(shape)
        refused += [
            (center_gram, (K,), r"K must be square, got shape .*; for test rows use center_cross_gram"),
            (center_cross_gram, (three, K), "K must be square"),
            (centered_alignment, (eye, K), "L must be square"),
            (centered_alignment, (K, eye), "K must be square"),
        ]
    samples = r"K and L must be over the same samples, got shapes \(3, 3\) and \(4, 4\)"
    refused += [(centered_alignment, (eye, np.eye(4)), samples)]
    for bad in (np.nan, np.inf):
        K = np.where(np.arange(9).reshape(3, 3) == 1, bad, eye)
        refused += [(centered_alignment, (K, eye), "K must be finite"), (centered_alignment, (eye, K), "L must be fin")]
    rows, columns = np.arange(20) / 3, np.arange(20) / 7
    constants = [np.full((20, 20), value) for value in (0.0, 0.1, 1e9 / 3)] + [np.add.outer(rows, columns)]
    for K in constants:
        other = np.diag(np.arange(1.0, 21.0))
        refused += [
            (centered_alignment, (K, other), "K is constant after centering, so its alignment is undefined"),
            (centered_alignment, (other, K), "L is constant after centering"),
        ]
    refused += [(centered_alignment, (np.ones((1, 1)), np.ones((1, 1))), "K is constant after centering")]
    require_refusals((partial(function, *given), sentence) for function, given, sentence in refused)
