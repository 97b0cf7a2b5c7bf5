"""Rank-one features: their statistics without tiles, their learned kernels, and thousands of them."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from learnkernels import FeatureFamily, gram_statistics, learn_kernel
from learnkernels.kernels.learners import Alignf, as_learner, learn_from_statistics
from learnkernels.kernels.solvers.active_set import (
    coordinate_descent,
    minimize_nonnegative,
)
from learnkernels.kernels.statistics.gram import NORMALIZATIONS, FeatureStatistics
from tests import reference
from tests.refusals import require_refusals
from tests.unit.kernels.test_learners import TWO_STAGE

# Sums in another order than the oracle's, relative to the norms of the factors;
# centering cancels a digit or two.
TEXTBOOK = 1e-12


def counts(m: int, p: int, seed: int) -> np.ndarray:
    """Return counts as of n-grams: mostly zero, some columns nearly always."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(rng.gamma(0.4, 1.0, size=p), size=(m, p)).astype(float)
    X[3 + np.arange(p) % (m - 3), np.arange(p)] += 1.0
    return X


ONCE = sparse.csr_matrix(counts(34, 8, seed=3))
TWICE = np.repeat(ONCE.data / 2, 2), np.repeat(ONCE.indices, 2), 2 * ONCE.indptr
"""The same entries, each as the sum of two."""

FEATURES = {
    "dense": np.random.default_rng(1).normal(size=(30, 5)),
    "dense-far": np.random.default_rng(2).normal(size=(31, 4))
    + np.array([0, 1e2, -1e3, 5]),
    "csr-in-parts": sparse.csr_matrix(TWICE, shape=ONCE.shape),
    "csc-array": sparse.csc_array(counts(29, 6, seed=4)),
    "more-features-than-rows": sparse.csr_matrix(counts(12, 20, seed=5)),
    "dense-more-features-than-rows": counts(11, 15, seed=6),
}


def with_matrices(name: str) -> SimpleNamespace:
    """Return rows whose columns are the base kernels, and the same kernels as matrices."""
    X, p = FEATURES[name], FEATURES[name].shape[1]
    dense = X.toarray() if sparse.issparse(X) else X
    y = (
        np.tanh(dense[:, 0])
        + 0.5 * dense[:, -1]
        + np.random.default_rng(0).normal(size=len(dense))
        + 2.0
    )
    grams = reference.grams([reference.feature(k) for k in range(p)], X)
    return SimpleNamespace(X=X, family=FeatureFamily(p), dense=dense, y=y, grams=grams)


@pytest.fixture(params=FEATURES)
def features(request) -> SimpleNamespace:
    return with_matrices(request.param)


def assert_statistics(
    statistics: FeatureStatistics, centered: bool, Ks, Y: np.ndarray
) -> None:
    """Compare M, a and alignments, centered or not, with those of matrices, relative to the norms of the kernels."""
    L = reference.target_kernel(Y)
    if centered:
        Ks, L = [reference.centered(K) for K in Ks], reference.centered(L)
    M, diagonal = statistics.products(centered), statistics.squared_norms(centered)
    a, norm = statistics.target_products(centered), statistics.target_norm(centered)
    alignments = statistics.alignments if centered else statistics.uncentered_alignments
    products = np.array(
        [[reference.frobenius_product(K, other) for other in [*Ks, L]] for K in Ks]
    ).astype(float)
    expected = float(np.sqrt(reference.frobenius_product(L, L)))
    assert norm == pytest.approx(expected, rel=TEXTBOOK)
    assert_products(M, products[:, :-1])
    sizes = norms_of(products) * expected
    for aligned in (a / sizes, alignments):
        np.testing.assert_allclose(
            aligned, products[:, -1] / sizes, rtol=0, atol=TEXTBOOK
        )
    np.testing.assert_array_equal(M, M.T)
    np.testing.assert_allclose(diagonal, np.diag(M), rtol=TEXTBOOK)


def norms_of(M: np.ndarray) -> np.ndarray:
    """Return the norms of the kernels; a count that the rows held do not have makes a kernel of zeros."""
    return np.sqrt(np.where(np.diag(M) > 0, np.diag(M), 1.0))


def assert_products(
    got: np.ndarray, expected: np.ndarray, tolerance: float = TEXTBOOK
) -> None:
    """Compare M relative to the norms of the kernels."""
    sizes = np.outer(norms_of(expected), norms_of(expected))
    np.testing.assert_allclose(got / sizes, expected / sizes, rtol=0, atol=tolerance)


# Statistics ----------------------------------------------------------------------------------------------------------


def test_statistics_of_features_are_those_of_explicitly_centered_matrices(features):
    Y, before = (
        np.random.default_rng(7).normal(size=(features.X.shape[0], 3)) + 0.8,
        features.X.copy(),
    )
    statistics = gram_statistics(features.family, features.X, Y)
    assert isinstance(statistics, FeatureStatistics)
    assert abs(features.X - before).max() == 0
    assert getattr(features.X, "nnz", None) == getattr(before, "nnz", None)
    Ks, L = (
        [reference.centered(K) for K in features.grams],
        reference.centered(reference.target_kernel(Y)),
    )
    few = np.zeros(statistics.n_kernels)
    few[[1, -1]] = 0.3, 0.7
    for mu in (np.random.default_rng(9).random(statistics.n_kernels), few):
        mu = mu / statistics.traces()
        K = sum(weight * K for weight, K in zip(mu, Ks, strict=True))
        assert statistics.alignment(mu) == pytest.approx(
            reference.uncentered_alignment(K, L), rel=1e-10
        )
    assert_statistics(statistics, True, features.grams, Y)
    assert statistics.products() is statistics.products()
    np.testing.assert_array_equal(
        np.diag(statistics.products()), statistics.squared_norms()
    )
    np.testing.assert_allclose(
        statistics.traces(), [float(np.trace(K)) for K in Ks], rtol=1e-10
    )
    # Row means are those of the moved features, which have mean zero up to rounding
    # where they are dense.
    moved = features.dense - statistics.origin
    means = np.array([np.outer(v, v).mean(axis=1) for v in moved.T])
    size = np.abs(moved).max() * np.abs(features.dense).max()
    mu = np.random.default_rng(10).random(statistics.n_kernels)
    np.testing.assert_allclose(
        statistics.combined_row_means(mu),
        mu @ means,
        rtol=0,
        atol=1e-15 * size * len(mu),
    )


def test_uncentered_statistics_of_features_are_those_of_the_matrices_as_they_are(
    features,
):
    m = features.X.shape[0]
    groups = np.array([0, 3, 17])[
        np.random.default_rng(26).permutation(np.arange(m) % 3)
    ]
    Y = np.random.default_rng(27).normal(size=(m, 2)) + np.array([0.8, -3.0])
    for kept, keep_origin in (([0], False), ([17, 3], True), ([0, 3, 17], False)):
        held = np.isin(groups, kept)
        statistics = gram_statistics(
            features.family, features.X, Y, groups, keep_origin=keep_origin
        ).restrict(kept)
        assert_statistics(
            statistics, False, [K[np.ix_(held, held)] for K in features.grams], Y[held]
        )


def test_what_asks_for_the_diagonal_alone_never_forms_M(monkeypatch):
    monkeypatch.setattr(
        FeatureStatistics,
        "_products",
        lambda self, centered: pytest.fail("M was formed"),
    )
    family, X, y = (
        FeatureFamily(60),
        sparse.csr_matrix(counts(25, 60, seed=21)),
        np.arange(25.0),
    )
    for learner in ("unif", "single", "align", "lq"):
        for normalize in NORMALIZATIONS:
            kernel = learn_kernel(
                X, y, learner=learner, family=family, normalize=normalize
            )
            assert 0 < kernel.alignment <= 1
            assert (kernel.alignments <= 1).all()
    aligned = gram_statistics(family, X, y).uncentered_alignments
    assert ((aligned >= 0) & (aligned <= 1)).all()


def test_restricting_features_to_groups_gives_the_statistics_of_their_rows_alone(
    features,
):
    m = features.X.shape[0]
    groups = np.array([-4, 0, 3, 17])[
        np.random.default_rng(12).permutation(np.arange(m) % 4)
    ]
    whole = gram_statistics(features.family, features.X, features.y, groups)
    for kept in ([0], [17, -4], [3, 0, 17], [-4, 0, 3, 17]):
        held = np.isin(groups, kept)
        restricted = whole.restrict(kept)
        alone = gram_statistics(features.family, features.X[held], features.y[held])
        np.testing.assert_array_equal(np.sort(restricted.rows), np.flatnonzero(held))
        np.testing.assert_array_equal(
            np.array(restricted.labels)[restricted.group], groups[restricted.rows]
        )
        np.testing.assert_array_equal(restricted.constant, alone.constant)
        scale = max(alone.traces()) ** 2
        np.testing.assert_allclose(
            restricted.products(), alone.products(), rtol=0, atol=1e-10 * scale
        )
        np.testing.assert_allclose(restricted.traces(), alone.traces(), rtol=1e-9)
        np.testing.assert_allclose(
            restricted.alignments, alone.alignments, rtol=0, atol=1e-9
        )
        mu = np.random.default_rng(13).random(alone.n_kernels)
        assert restricted.alignment(mu) == pytest.approx(alone.alignment(mu), rel=1e-9)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_features_far_from_zero_keep_the_digits_of_their_norms(kind):
    X = np.random.default_rng(16).normal(size=(50, 3)) + 1e6
    statistics = gram_statistics(FeatureFamily(3), kind(X), X[:, 0] + X[:, 1])
    wide = X.astype(np.longdouble) - X.astype(np.longdouble).mean(axis=0)
    products = ((wide.T @ wide) ** 2).astype(float)
    np.testing.assert_allclose(
        statistics.squared_norms(), np.diag(products), rtol=1e-13
    )
    # Products of different sparse features are corrected by m * 1e12, of which eps
    # remains.
    assert_products(
        statistics.products(), products, tolerance=1e-13 if kind is np.asarray else 1e-2
    )


# Learned kernels -----------------------------------------------------------------------------------------------------

# Each learner on dense and on sparse features, and each kind of features with several
# learners.
PAIRS = [
    (learner, k + shift, k // 2 + shift)
    for k, learner in enumerate(TWO_STAGE)
    for shift in (0, 1, 3)
]
LEARNED = [
    (learner, list(FEATURES)[i % 6], list(NORMALIZATIONS)[j % 3])
    for learner, i, j in PAIRS
]


@pytest.mark.parametrize(("learner", "name", "normalize"), LEARNED)
def test_a_kernel_of_features_is_the_weighted_sum_of_their_matrices(
    learner, name, normalize
):
    features = with_matrices(name)
    m = features.X.shape[0]
    train, new = np.arange(3, m), np.arange(3)
    learner = as_learner(
        learner, **({"dependent": "subset"} if learner == "alignf-linear" else {})
    )
    y = features.y[train]
    kernel = learn_kernel(
        features.X[train],
        y,
        learner=learner,
        family=features.family,
        normalize=normalize,
    )
    Ks, crosses = (
        [K[np.ix_(rows, train)] for K in features.grams] for rows in (train, new)
    )
    expected = reference.combined(Ks, kernel.weights, normalize).astype(float)
    np.testing.assert_allclose(
        kernel.gram(), expected, rtol=0, atol=1e-10 * np.abs(expected).max()
    )
    expected = reference.combined_cross(crosses, Ks, kernel.weights, normalize).astype(
        float
    )
    cross = kernel.cross_gram(features.X[new])
    np.testing.assert_allclose(
        cross, expected, rtol=0, atol=1e-10 * np.abs(expected).max()
    )
    assert kernel.alignment == pytest.approx(
        reference.alignment(kernel.gram(), reference.target_kernel(y)), rel=1e-9
    )
    assert (kernel.row_means.shape, kernel.cross_gram(features.X[:0]).shape) == (
        (m - 3,),
        (0, m - 3),
    )


@pytest.mark.parametrize("learner", TWO_STAGE)
def test_features_that_are_constant_on_the_training_rows_get_weight_zero(learner):
    X = counts(40, 6, seed=19)
    y = X[:, 1] + np.random.default_rng(20).normal(size=40)
    groups = (np.arange(40) >= 30).astype(int)
    varying = [0, 1, 3, 5]
    X[:30, 2], X[:30, 4] = 0.0, 1 / 3
    for kind in (np.asarray, sparse.csr_matrix):
        statistics = gram_statistics(FeatureFamily(6), kind(X), y, groups).restrict([0])
        kernel = learn_from_statistics(learner, FeatureFamily(6), kind(X), statistics)
        np.testing.assert_array_equal(kernel.weights[[2, 4]], 0.0)
        np.testing.assert_array_equal(statistics.alignments[[2, 4]], 0.0)
        alone = learn_kernel(
            kind(X[:30, varying]), y[:30], learner=learner, family=FeatureFamily(4)
        )
        np.testing.assert_allclose(
            kernel.weights[varying], alone.weights, rtol=0, atol=1e-9
        )
        assert kernel.alignment == pytest.approx(alone.alignment, rel=1e-10)
        cross = alone.cross_gram(kind(X[30:, varying]))
        np.testing.assert_allclose(
            kernel.cross_gram(kind(X[30:])),
            cross,
            rtol=0,
            atol=1e-9 * np.abs(cross).max(),
        )


# The family ----------------------------------------------------------------------------------------------------------


def test_features_are_named_and_keep_their_columns_in_subsets():
    X = counts(15, 5, seed=24) + 7.0
    family = FeatureFamily(["very_good", "not", "would"], columns=[4, 0, 2])
    part = family.subset([2, 0])
    assert part.names == ("would", "very_good")
    np.testing.assert_array_equal(part.columns, [2, 4])
    for rows in (X, sparse.csr_matrix(X)):
        np.testing.assert_array_equal(
            family.tile(rows[:4], rows[4:])[0], np.outer(X[:4, 4], X[4:, 4])
        )
        np.testing.assert_array_equal(
            part.tile(rows, rows), family.tile(rows, rows)[[2, 0]]
        )
        np.testing.assert_array_equal(family.diag(rows), X[:, [4, 0, 2]].T ** 2)
        mu = np.array([0.5, 2.0, 1.0])
        combined = np.tensordot(mu, family.tile(rows[:4], rows), axes=1)
        np.testing.assert_allclose(
            family.combine(mu, rows[:4], rows), combined, rtol=1e-14, atol=1e-14
        )
    statistics = gram_statistics(family, X, np.arange(15.0))
    assert statistics.names == family.names
    np.testing.assert_allclose(
        statistics.traces(), 15 * X[:, [4, 0, 2]].var(axis=0), rtol=1e-12
    )
    squares = (X[:, [4, 0, 2]] ** 2).sum(axis=0) ** 2
    np.testing.assert_allclose(statistics.squared_norms(False), squares, rtol=1e-14)


def test_features_that_do_not_fit_are_refused():
    groups, y, X = np.arange(9) // 6, np.arange(3.0), counts(9, 2, seed=25)
    statistics = gram_statistics(
        FeatureFamily(2), X, (groups == 0).astype(float), groups
    )
    none = "every feature is constant on the 3 training rows"
    columns = "X must have the columns of the features, up to column 3, got 3 columns"
    same = "the target is constant on the training rows"
    table = [
        (lambda: FeatureFamily(0), "features must name at least one feature"),
        (
            lambda: FeatureFamily(["a", "b", "a"]),
            "features must have distinct names, got 'a' more than once",
        ),
        (
            lambda: FeatureFamily(3, columns=[0, 1]),
            "columns must have one entry per feature, got 2 for 3",
        ),
        (lambda: gram_statistics(FeatureFamily(4), np.eye(3), y), columns),
        (
            lambda: learn_kernel(
                np.ones((3, 2)), y, learner="align", family=FeatureFamily(2)
            ),
            none,
        ),
        (
            lambda: gram_statistics(FeatureFamily(3), np.eye(3), y).restrict([1]),
            "groups must be some of [0]",
        ),
        (
            lambda: learn_from_statistics(
                "align", FeatureFamily(2), X, statistics.restrict([0])
            ),
            same,
        ),
        (
            lambda: Alignf().fit_weights(np.eye(300), np.full(300, -1.0)),
            "no base kernel aligns with the target",
        ),
    ]
    require_refusals(table, literal=True)


# Many kernels --------------------------------------------------------------------------------------------------------


def random_problem(
    seed: int, p: int, rank: int, copies: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return a problem whose M has no negative entry, unit diagonal and that rank, some kernels given twice."""
    rng = np.random.default_rng(seed)
    V = np.abs(rng.normal(size=(p, rank))) ** 3
    V[p - copies :] = V[:copies] * (1 + 1e-12 * rng.random((copies, rank)))
    V /= np.linalg.norm(V, axis=1)[:, None]
    return V @ V.T, V @ rng.normal(0.3, 1.0, size=rank)


SIZES = [(40, 8, 0), (60, 200, 0), (60, 30, 20), (300, 60, 100), (400, 900, 0)]


@pytest.mark.parametrize(("p", "rank", "copies"), SIZES)
def test_warm_and_cold_starts_end_at_the_same_optimum(p, rank, copies, monkeypatch):
    # Whose name a function takes in its package
    module = sys.modules["learnkernels.kernels.solvers.active_set"]
    for seed in range(3):
        M, a = random_problem(seed, p, rank, copies)
        values = []
        for kernels in (1, 10**9):
            monkeypatch.setattr(module, "WARM_START", kernels)
            v = minimize_nonnegative(M, a)
            assert (v >= 0).all()
            gradient = M @ v - a
            assert gradient.min() >= -1e-11 * np.abs(a).max()
            assert np.abs(v * gradient).max() <= 1e-11 * np.abs(a).max() * v.max()
            values.append(v @ M @ v - 2 * v @ a)
        assert values[0] == pytest.approx(values[1], rel=1e-10)


def test_coordinate_descent_lowers_the_objective_to_the_optimum_of_well_conditioned_problems():
    for seed in range(3):
        M, a = random_problem(seed, 50, 400)
        M = 0.9 * M + 0.1 * np.eye(50)
        v, exact = coordinate_descent(M, a), minimize_nonnegative(M, a)
        assert (v >= 0).all()
        # It ends when a sweep moves less than a millionth.
        np.testing.assert_allclose(v, exact, rtol=0, atol=1e-4 * exact.max())


# Thousands of features -----------------------------------------------------------------------------------------------


def test_weights_of_a_thousand_features_meet_the_optimality_conditions():
    X = counts(700, 1000, seed=30)
    X[:, 900:] = X[:, :100]  # n-grams that occur together
    y = np.tanh(
        X[:, :300] @ np.random.default_rng(31).normal(size=300)
    ) + np.random.default_rng(32).normal(size=700)
    kernel = learn_kernel(
        sparse.csr_matrix(X),
        y,
        learner="alignf",
        family=FeatureFamily(1000),
        task="regression",
    )
    Z = (X - X.mean(axis=0)) / np.linalg.norm(X - X.mean(axis=0), axis=0)
    assert 100 < np.count_nonzero(kernel.weights) < 1000
    assert (
        reference.kkt_residual(
            (Z.T @ Z) ** 2, (Z.T @ (y - y.mean())) ** 2, kernel.weights
        )
        <= 1e-10
    )
    assert kernel.certificate.residual <= 1e-10
    np.testing.assert_allclose(
        kernel.gram(), (Z * kernel.weights) @ Z.T, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("scale", [1e-90, 1e90])
def test_alignments_of_features_do_not_depend_on_an_extreme_scale(scale):
    X = counts(30, 3, seed=8)
    y = X[:, 0] + np.arange(30.0)
    family = FeatureFamily(3)
    scales = np.array([1.0, scale, 1.0])
    expected = gram_statistics(family, X, y)
    for rows in (X * scales, sparse.csr_matrix(X * scales)):
        statistics = gram_statistics(family, rows, y)
        for name in ("alignments", "uncentered_alignments"):
            np.testing.assert_allclose(
                getattr(statistics, name), getattr(expected, name), rtol=1e-10
            )
        np.testing.assert_allclose(
            statistics.scales("frobenius"), expected.traces() * scales**2, rtol=1e-10
        )
