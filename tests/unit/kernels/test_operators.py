"""Base kernels as one-stage learners are given them: every form of them against explicitly centered matrices."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from scipy import sparse

from learnkernels import FamilyUnion, FeatureFamily, GaussianFamily, PrecomputedFamily, gram_moments
from learnkernels.kernels.engine import combination as combination_module
from learnkernels.kernels.engine import operators as operators_module
from learnkernels.kernels.engine.operators import (
    FeatureGrams,
    GramOperator,
    StackedGrams,
    TiledGrams,
    gram_operator,
    mirror,
)
from learnkernels.kernels.families.base import Rows, as_rows, move
from learnkernels.kernels.moments.base import Moments
from tests import reference
from tests.unit.kernels.conftest import CASES, Case, dense_rows, features, sparse_rows

# Relative to the largest value of each base kernel before it is centered: rounding of sums over some thousand pairs.
ROUNDING = 1e-13

FEATURE_CASES = [
    Case("features-dense", *features(5), dense_rows(38, 6, seed=20)),
    Case("features-csr", *features(7), sparse_rows(38, 7, seed=21)),
    Case("features-csr-array", *features(4), sparse_rows(36, 9, seed=22, kind=sparse.csr_array)),
]
CASES_BY_NAME = {case.name: case for case in CASES + FEATURE_CASES}


@dataclass(frozen=True)
class Problem:
    """One form of some centered and scaled base kernels, the same as explicit matrices, and what rounding is."""

    grams: GramOperator
    matrices: np.ndarray
    units: np.ndarray

    def numbers(self, *shape: int, seed: int = 0) -> np.ndarray:
        """Return random numbers, not centered, that nothing may write to."""
        values = np.random.default_rng(seed).normal(size=shape) + 0.3
        values.flags.writeable = False
        return values


@cache
def statistics_of(name: str) -> tuple[Rows, Moments, np.ndarray]:
    """Return rows, statistics and explicitly centered, scaled matrices of two of three fold groups of a case."""
    case = CASES_BY_NAME[name]
    X, rng = as_rows(case.X), np.random.default_rng(5)
    moments = gram_moments(case.family, X, rng.normal(size=X.shape[0]), rng.permutation(X.shape[0]) % 3)
    moments = moments.restrict([0, 2])
    held = np.ix_(moments.rows, moments.rows)
    pairs = zip(case.grams, moments.centered_traces, strict=True)
    matrices = np.stack([reference.centered(K[held]) / scale for K, scale in pairs])
    return move(X[moments.rows], moments.origin), moments, matrices


def problem_of(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> Problem:
    """Return a case in a form, ``name`` or ``name-rows of a block``."""
    case, (X, moments, matrices) = CASES_BY_NAME[name], statistics_of(name)
    kind, _, block = form.partition("-")
    if block:
        for module in (operators_module, combination_module):
            monkeypatch.setattr(module, "block_rows_for", lambda n_matrices: int(block))
        monkeypatch.setattr(operators_module, "FEATURE_BLOCK", int(block))
    family = (
        FamilyUnion([case.family]) if kind != "features" and isinstance(case.family, FeatureFamily) else case.family
    )
    grams = gram_operator(
        family,
        X,
        shift=moments.shift,
        scales=moments.centered_traces,
        in_memory=0 if kind == "tiled" else operators_module.IN_MEMORY,
    )
    assert type(grams) is {"stacked": StackedGrams, "tiled": TiledGrams, "features": FeatureGrams}[kind]
    return Problem(grams, matrices, case.sizes[:, 0, 0] / moments.centered_traces)


FORMS = [(name, form) for name in CASES_BY_NAME for form in ("stacked-11", "tiled-7")]
FORMS += [(name, form) for name in ("gaussian-powers", "union-csr-array") for form in ("stacked", "tiled")]
FORMS += [("gaussian-one", "tiled-1")]
FORMS += [(case.name, form) for case in FEATURE_CASES for form in ("features", "features-2")]


WEIGHTS = {"all": np.ones_like, "first, third, ...": lambda k: (k + 1) % 2, "none": np.zeros_like}
"""Which weights are not zero."""


@pytest.fixture(params=FORMS, ids="-".join)
def problem(request, monkeypatch) -> Problem:
    return problem_of(*request.param, monkeypatch)


def test_the_numbers_of_rows_and_kernels_are_those_of_the_matrices(problem):
    assert (problem.grams.n_kernels, problem.grams.n_rows, problem.grams.n_rows) == problem.matrices.shape


@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_weighted_sum_is_that_of_the_matrices_and_exactly_symmetric(problem, weights):
    mu = problem.numbers(problem.grams.n_kernels) * WEIGHTS[weights](np.arange(problem.grams.n_kernels))
    K = problem.grams.combine(mu)
    expected = np.tensordot(mu, problem.matrices, axes=1)
    np.testing.assert_allclose(K, expected.astype(float), rtol=0, atol=ROUNDING * (np.abs(mu) @ problem.units))
    np.testing.assert_array_equal(K, K.T)
    # A learner may write into it.
    again = K.copy()
    K[...] = np.nan
    np.testing.assert_array_equal(problem.grams.combine(mu), again)


@pytest.mark.parametrize("q", [1, 3])
def test_products_with_vectors_are_those_of_each_matrix(problem, q):
    alpha = problem.numbers(problem.grams.n_rows, q, seed=1)
    products = problem.grams.products(alpha)
    atol = ROUNDING * (problem.units.max() * np.abs(alpha).sum())
    np.testing.assert_allclose(products, (problem.matrices @ alpha).astype(float), rtol=0, atol=atol)
    forms = problem.grams.quadratic_forms(alpha)
    expected = np.einsum("iq,kij,jq->k", alpha, problem.matrices, alpha)
    np.testing.assert_allclose(forms, expected.astype(float), rtol=0, atol=atol * np.abs(alpha).sum())


def test_inner_products_with_a_symmetric_matrix_are_those_of_each_matrix(problem):
    W = problem.numbers(problem.grams.n_rows, problem.grams.n_rows, seed=2)
    W = W + W.T
    W.flags.writeable = False
    expected = np.array([reference.frobenius_product(K, W) for K in problem.matrices]).astype(float)
    atol = ROUNDING * (problem.units.max() * np.abs(W).sum())
    np.testing.assert_allclose(problem.grams.inner_products(W), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_weighted_sum_times_vectors_is_that_of_the_matrices(problem, weights):
    v = problem.numbers(problem.grams.n_rows, 2, seed=3)
    mu = problem.numbers(problem.grams.n_kernels, seed=4) * WEIGHTS[weights](np.arange(problem.grams.n_kernels))
    expected = np.tensordot(mu, problem.matrices, axes=1) @ v
    atol = ROUNDING * (np.abs(mu) @ problem.units) * np.abs(v).sum()
    np.testing.assert_allclose(problem.grams.matvec(mu, v), expected.astype(float), rtol=0, atol=atol)


# Forms ---------------------------------------------------------------------------------------------------------------

GAUSSIANS = GaussianFamily([0.1, 0.5, 2.0])


def gaussian_operator(m: int = 40, shift: float = 0.0, **given) -> GramOperator:
    X = dense_rows(m, 3, seed=6)
    return gram_operator(GAUSSIANS, X, shift=np.full(3, shift), scales=np.array([1.0, 2.0, 4.0]), **given)


def test_matrices_are_held_up_to_the_memory_given_and_not_beyond():
    needed = 8 * 3 * 40**2
    assert isinstance(gaussian_operator(in_memory=needed), StackedGrams)
    assert isinstance(gaussian_operator(in_memory=needed - 1), TiledGrams)


def test_held_matrices_are_exactly_symmetric_and_sum_to_zero(monkeypatch):
    monkeypatch.setattr(operators_module, "block_rows_for", lambda n_matrices: 16)
    grams = gaussian_operator().grams
    np.testing.assert_array_equal(grams, grams.transpose(0, 2, 1))
    np.testing.assert_allclose(grams.sum(axis=1), 0.0, rtol=0, atol=1e-14)


@pytest.mark.parametrize("in_memory", [0, 2**20])
def test_the_shift_changes_nothing(in_memory):
    mu = np.array([0.2, 0.5, 0.3])
    shifted, plain = (gaussian_operator(shift=shift, in_memory=in_memory).combine(mu) for shift in (1.0, 0.0))
    np.testing.assert_allclose(shifted, plain, rtol=0, atol=ROUNDING)


def test_matrices_of_zero_weight_are_not_read():
    held = gaussian_operator(in_memory=2**20).grams.copy()
    held[1] = np.nan
    assert np.isfinite(StackedGrams(held).combine(np.array([1.0, 0.0, 2.0]))).all()


def test_tiles_of_zero_weight_are_not_computed():
    m = 40
    matrices = np.stack([np.eye(m), np.eye(m), 2 * np.eye(m)])
    family = PrecomputedFamily(matrices)
    matrices[1, 5, 5] = np.nan
    grams = TiledGrams(family, family.X, np.zeros(3), np.ones(3))
    weights, v = np.array([1.0, 0.0, 2.0]), np.arange(float(m))[:, None]
    np.testing.assert_allclose(grams.combine(weights) @ v, grams.matvec(weights, v), rtol=0, atol=1e-11)
    with pytest.raises(ValueError, match="matrix 1"):
        grams.products(v)


@pytest.mark.parametrize(("m", "p"), [(254, 9), (258, 8), (502, 5)])
def test_the_weighted_sum_is_exactly_symmetric_where_threads_share_it(m, p):
    # Sizes at which an entry and its mirror image fell to different threads of BLAS, with different roundings.
    grams = np.stack([mirror(K) for K in np.random.default_rng(7).normal(size=(p, m, m))])
    K = StackedGrams(grams).combine(np.random.default_rng(8).random(p))
    np.testing.assert_array_equal(K, K.T)


@pytest.mark.parametrize("m", [1, 2, 63, 64, 65, 130])
def test_mirroring_copies_the_upper_triangle_in_place(m):
    given = np.random.default_rng(9).normal(size=(m, m))
    K = given.copy()
    assert mirror(K) is K
    np.testing.assert_array_equal(np.triu(K), np.triu(given))
    np.testing.assert_array_equal(K, K.T)
