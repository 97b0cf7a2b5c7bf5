"""Base kernels as one-stage learners are given them: every form of them against explicitly centered matrices."""

from functools import cache
from itertools import product

import numpy as np
import pytest
from scipy import sparse

from learnkernels import (
    FamilyUnion,
    FeatureFamily,
    GaussianFamily,
    LinearFamily,
    PrecomputedFamily,
    gram_statistics,
)
from learnkernels.kernels.centering import Centering, mirror
from learnkernels.kernels.engine import combination as combination_module
from learnkernels.kernels.engine import operators as operators_module
from learnkernels.kernels.engine.combination import Combination, Expansion
from learnkernels.kernels.engine.operators import (
    FeatureGrams,
    GramOperator,
    StackedGrams,
    TiledGrams,
    gram_operator,
)
from learnkernels.kernels.families.base import Rows, as_rows, move
from tests import reference
from tests.unit.kernels.conftest import CASES, Case, dense_rows, features, sparse_rows

# Relative to the largest value of each base kernel before it is centered: rounding of
# sums over some thousand pairs.
ROUNDING = 1e-13

FEATURE_CASES = [
    Case("features-dense", *features(5), dense_rows(38, 6, seed=20)),
    Case("features-csr", *features(7), sparse_rows(38, 7, seed=21)),
    Case(
        "features-csr-array",
        *features(4),
        sparse_rows(36, 9, seed=22, kind=sparse.csr_array),
    ),
]
CASES_BY_NAME = {case.name: case for case in CASES + FEATURE_CASES}


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Return random numbers, not centered, that nothing may write to."""
    values = np.random.default_rng(seed).normal(size=shape) + 0.3
    values.flags.writeable = False
    return values


@cache
def statistics_of(
    name: str, centering: Centering
) -> tuple[Rows, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, shift, scales and explicit scaled matrices of two of three fold groups of a case."""
    case = CASES_BY_NAME[name]
    X, rng = as_rows(case.X), np.random.default_rng(5)
    y, groups = rng.normal(size=X.shape[0]), rng.permutation(X.shape[0]) % 3
    statistics = gram_statistics(
        case.family, X, y, groups, keep_origin=not centering.subtracts
    ).restrict([0, 2])
    grams = [K[np.ix_(statistics.rows, statistics.rows)] for K in case.grams]
    rows = X[statistics.rows]
    if not centering.subtracts:
        scales = np.array([float(np.trace(K)) for K in grams])
        return (
            rows,
            np.zeros(len(grams)),
            scales,
            np.stack(grams) / scales[:, None, None],
        )
    scales = statistics.traces()
    matrices = np.stack([reference.centered(K) for K in grams]) / scales[:, None, None]
    return move(rows, statistics.origin), statistics.shift, scales, matrices


def problem_of(
    name: str, form: str, centering: Centering, monkeypatch: pytest.MonkeyPatch
):
    """Return a case in a form, ``name`` or ``name-rows of a block``, as explicit matrices, and what rounding is."""
    case, (X, shift, scales, matrices) = (
        CASES_BY_NAME[name],
        statistics_of(name, centering),
    )
    kind, _, block = form.partition("-")
    if block:
        for module in (operators_module, combination_module):
            monkeypatch.setattr(module, "block_rows_for", lambda n_matrices: int(block))
    by_tiles = kind != "features" and isinstance(case.family, FeatureFamily)
    family, in_memory = (
        FamilyUnion([case.family]) if by_tiles else case.family,
        operators_module.IN_MEMORY,
    )
    options = {"in_memory": 0 if kind == "tiled" else in_memory, "centering": centering}
    grams = gram_operator(family, X, shift=shift, scales=scales, **options)
    assert (
        type(grams)
        is {"stacked": StackedGrams, "tiled": TiledGrams, "features": FeatureGrams}[
            kind
        ]
    )
    return grams, matrices, case.sizes[:, 0, 0] / scales


# Tiles of every family; the other forms read their matrices or features only.
FORMS = [(name, "tiled-7") for name in CASES_BY_NAME] + [("gaussian-one", "tiled-1")]
FORMS += [
    (name, "stacked-11")
    for name in ("polynomial", "union-with-features", "precomputed")
]
FORMS += product(
    ("gaussian-powers", "union-csr-array"), ("stacked", "stacked-11", "tiled")
)
FORMS += [(case.name, "features") for case in FEATURE_CASES]
CENTERED = [(*form, Centering.CENTER) for form in FORMS]
UNCENTERED = [
    ("union-on-columns", form, Centering.NONE) for form in ("stacked-11", "tiled-7")
]
UNCENTERED += [
    (name, "features", Centering.NONE) for name in ("features-dense", "features-csr")
]


@pytest.mark.parametrize(("name", "form", "centering"), CENTERED + UNCENTERED)
def test_every_form_does_what_the_matrices_do(name, form, centering, monkeypatch):
    grams, matrices, units = problem_of(name, form, centering, monkeypatch)
    p, m, _ = matrices.shape
    assert (grams.n_kernels, grams.n_rows) == (p, m)

    alpha = numbers(m, 3, seed=1)
    atol = ROUNDING * units.max() * np.abs(alpha).sum()
    for columns in (alpha[:, :1], alpha):
        expected = matrices @ columns
        np.testing.assert_allclose(
            grams.products(columns), expected.astype(float), rtol=0, atol=atol
        )
        forms = np.einsum("iq,kiq->k", columns, expected).astype(float)
        np.testing.assert_allclose(
            grams.quadratic_forms(columns),
            forms,
            rtol=0,
            atol=atol * np.abs(columns).sum(),
        )
    forms = np.array(
        [grams.quadratic_forms(columns) for columns in (alpha, alpha[::-1])]
    ).T
    several = grams.quadratic_forms(np.stack([alpha, alpha[::-1]], axis=1))
    np.testing.assert_allclose(several, forms, rtol=0, atol=atol * np.abs(alpha).sum())

    W = numbers(m, m, seed=2)
    W = W + W.T
    W.flags.writeable = False
    expected = np.einsum("kij,ij->k", matrices, W).astype(float)
    np.testing.assert_allclose(
        grams.inner_products(W),
        expected,
        rtol=0,
        atol=ROUNDING * units.max() * np.abs(W).sum(),
    )

    products = np.tensordot(matrices, matrices, axes=([1, 2], [1, 2])).astype(float)
    norms = np.sqrt(np.outer(np.diag(products), np.diag(products)))
    np.testing.assert_allclose(
        grams.kernel_products() / norms, products / norms, rtol=0, atol=1e-11
    )

    # All kernels, every other one, none
    for some in (
        np.ones(p),
        np.arange(1, p + 1) % 2,
        np.zeros(p),
    ):
        mu = numbers(p, seed=4) * some
        expected, atol = (
            np.tensordot(mu, matrices, axes=1),
            ROUNDING * (np.abs(mu) @ units),
        )
        K = grams.combine(mu)
        np.testing.assert_allclose(K, expected.astype(float), rtol=0, atol=atol)
        np.testing.assert_array_equal(K, K.T)
        again = K.copy()
        K[...] = np.nan  # as a learner may write into it
        np.testing.assert_array_equal(grams.combine(mu), again)
        if isinstance(grams, TiledGrams):
            of_columns = (expected @ alpha).astype(float)
            np.testing.assert_allclose(
                grams.matvec(mu, alpha),
                of_columns,
                rtol=0,
                atol=atol * np.abs(alpha).sum(),
            )


# Forms ---------------------------------------------------------------------------------------------------------------


def gaussian_operator(in_memory: int) -> GramOperator:
    X, scales = dense_rows(40, 3, seed=6), np.array([1.0, 2.0, 4.0])
    return gram_operator(
        GaussianFamily([0.1, 0.5, 2.0]),
        X,
        shift=np.zeros(3),
        scales=scales,
        in_memory=in_memory,
    )


def test_matrices_are_held_up_to_the_memory_given_exactly_symmetric_and_of_sum_zero(
    monkeypatch,
):
    monkeypatch.setattr(operators_module, "block_rows_for", lambda n_matrices: 16)
    needed = 8 * 3 * 40**2
    assert isinstance(gaussian_operator(in_memory=needed - 1), TiledGrams)
    operator = gaussian_operator(in_memory=needed)
    assert isinstance(operator, StackedGrams)
    np.testing.assert_array_equal(operator.grams, operator.grams.transpose(0, 2, 1))
    np.testing.assert_allclose(operator.grams.sum(axis=1), 0.0, rtol=0, atol=1e-14)


def test_matrices_and_tiles_of_zero_weight_are_not_read():
    held, weights = (
        gaussian_operator(in_memory=2**20).grams.copy(),
        np.array([1.0, 0.0, 2.0]),
    )
    held[1] = np.nan
    assert np.isfinite(StackedGrams(held).combine(weights)).all()
    matrices = np.stack([np.eye(40), np.eye(40), 2 * np.eye(40)])
    family = PrecomputedFamily(matrices)
    matrices[1, 5, 5] = np.nan
    grams, v = (
        TiledGrams(family, family.X, np.zeros(3), np.ones(3)),
        np.arange(40.0)[:, None],
    )
    np.testing.assert_allclose(
        grams.combine(weights) @ v, grams.matvec(weights, v), rtol=0, atol=1e-11
    )
    with pytest.raises(ValueError, match="matrix 1"):
        grams.products(v)


def test_the_weighted_sum_is_exactly_symmetric_where_threads_share_it():
    # Sizes at which an entry and its mirror image fell to different threads of BLAS,
    # with different roundings.
    for m, p in ((254, 9), (258, 8), (502, 5)):
        grams = np.stack(
            [mirror(K) for K in np.random.default_rng(7).normal(size=(p, m, m))]
        )
        K = StackedGrams(grams).combine(np.random.default_rng(8).random(p))
        np.testing.assert_array_equal(K, K.T)


def test_mirroring_copies_the_upper_triangle_in_place():
    for m in (1, 2, 63, 64, 65, 130):
        given = np.random.default_rng(9).normal(size=(m, m))
        K = given.copy()
        assert mirror(K) is K
        np.testing.assert_array_equal(np.triu(K), np.triu(given))
        np.testing.assert_array_equal(K, K.T)


class Cubic(LinearFamily):
    """A subclass with another kernel, which its base class does not compute."""

    translates = False

    def tile(self, A, B, shift=None):
        K = ((A @ B.T) ** 3)[None]
        return K if shift is None else K - shift[:, None, None]

    def diag(self, A):
        return super().diag(A) ** 3


@pytest.mark.parametrize("kind", [LinearFamily, Cubic])
def test_expansions_of_a_union_use_the_tiles_of_subclasses(kind):
    X = dense_rows(30, 4, seed=7)
    V = numbers(30, 2, seed=8)
    family = FamilyUnion([GaussianFamily([0.1]), kind()])
    combination = Combination(family, np.array([0.5, 2.0]), np.zeros(2))
    expansion = Expansion(combination, X, V, np.zeros(2), np.zeros(4))
    expected = combination.matrix(X, X) @ V
    np.testing.assert_allclose(
        expansion.values(X), expected, rtol=0, atol=1e-11 * np.abs(expected).max()
    )
