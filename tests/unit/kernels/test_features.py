"""Rank-one features: their statistics without tiles, their learned kernels, and thousands of them."""

import io
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from scipy import sparse

from learnkernels import FamilyUnion, FeatureFamily, center_gram, centered_alignment, gram_moments, learn_kernel
from learnkernels.kernels.learned import LearnedKernel
from learnkernels.kernels.learners import Align, Alignf, as_learner
from learnkernels.kernels.learning import learn_from_moments
from learnkernels.kernels.moments.features import FeatureMoments
from learnkernels.kernels.moments.gram import GramMoments
from learnkernels.kernels.moments.normalisation import NORMALISATIONS
from learnkernels.kernels.solvers.active_set import coordinate_descent, minimise_nonnegative
from tests import reference
from tests.unit.kernels.test_learners import PROBLEMS, TWO_STAGE

# Sums in another order than the oracle's, relative to the norms of the factors; centering cancels a digit or two.
TEXTBOOK = 1e-12


@dataclass(frozen=True)
class Features:
    """Rows whose columns are the base kernels, and the same kernels as matrices."""

    X: object

    @property
    def family(self) -> FeatureFamily:
        return FeatureFamily(self.X.shape[1])

    @cached_property
    def y(self) -> np.ndarray:
        dense = np.asarray(self.X.toarray() if sparse.issparse(self.X) else self.X)
        return np.tanh(dense[:, 0]) + 0.5 * dense[:, -1] + np.random.default_rng(0).normal(size=len(dense)) + 2.0

    @cached_property
    def grams(self) -> list[np.ndarray]:
        return reference.grams([reference.feature(k) for k in range(self.X.shape[1])], self.X)


def counts(m: int, p: int, seed: int) -> np.ndarray:
    """Return counts as of n-grams: mostly zero, some columns nearly always."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(rng.gamma(0.4, 1.0, size=p), size=(m, p)).astype(float)
    X[3 + np.arange(p) % (m - 3), np.arange(p)] += 1.0
    return X


FEATURES = {
    "dense": Features(np.random.default_rng(1).normal(size=(30, 5))),
    "dense-far": Features(np.random.default_rng(2).normal(size=(31, 4)) + np.array([0, 1e2, -1e3, 5])),
    "csr-counts": Features(sparse.csr_matrix(counts(34, 8, seed=3))),
    "csr-array": Features(sparse.csr_array(counts(29, 6, seed=4))),
    "more-features-than-rows": Features(sparse.csr_matrix(counts(12, 20, seed=5))),
    "dense-more-features-than-rows": Features(counts(11, 15, seed=6)),
}


@pytest.fixture(params=FEATURES.values(), ids=FEATURES)
def features(request) -> Features:
    return request.param


def assert_products(got: np.ndarray, expected: np.ndarray, tolerance: float = TEXTBOOK) -> None:
    """Compare M or a part of it, relative to the norms of the two kernels."""
    norms = np.sqrt(np.diag(expected).astype(float))
    np.testing.assert_allclose(
        got / np.outer(norms, norms), (expected / np.outer(norms, norms)).astype(float), rtol=0, atol=tolerance
    )


# Statistics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [1, 3])
def test_moments_of_features_are_those_of_explicitly_centered_matrices(features, q):
    Y = np.random.default_rng(7).normal(size=(features.X.shape[0], q)) + 0.8
    moments = gram_moments(features.family, features.X, Y)
    assert isinstance(moments, FeatureMoments)
    assert_products(moments.frobenius, reference.moment_matrix(features.grams))
    np.testing.assert_array_equal(moments.frobenius, moments.frobenius.T)
    np.testing.assert_array_equal(np.diag(moments.frobenius), moments.frobenius_diagonal)
    traces = np.array([float(np.trace(reference.centered(K))) for K in features.grams])
    np.testing.assert_allclose(moments.centered_traces, traces, rtol=1e-10)
    L = reference.centered(reference.target_kernel(Y))
    norm = float(np.sqrt(reference.frobenius_product(L, L)))
    assert moments.target_norm == pytest.approx(norm, rel=1e-12)
    a = reference.moment_target(features.grams, Y).astype(float)
    np.testing.assert_allclose(moments.target / (traces * norm), a / (traces * norm), rtol=0, atol=TEXTBOOK)
    np.testing.assert_allclose(moments.alignments, a / (traces * norm), rtol=0, atol=TEXTBOOK)


@pytest.mark.parametrize("kept", [[0], [17, 3], [0, 3, 17]])
def test_uncentered_moments_of_features_are_those_of_the_matrices_as_they_are(features, kept):
    m = features.X.shape[0]
    groups = np.array([0, 3, 17])[np.random.default_rng(26).permutation(np.arange(m) % 3)]
    Y = np.random.default_rng(27).normal(size=(m, 2)) + np.array([0.8, -3.0])
    held = np.isin(groups, kept)
    Ks, L = [K[np.ix_(held, held)] for K in features.grams], reference.target_kernel(Y[held])
    for keep_origin in (False, True):
        moments = gram_moments(features.family, features.X, Y, groups, keep_origin=keep_origin).restrict(kept)
        M = np.array([[reference.frobenius_product(K, K_) for K_ in Ks] for K in Ks]).astype(float)
        # A count that the rows held do not have makes a kernel of zeros.
        norms = np.sqrt(np.where(np.diag(M) > 0, np.diag(M), 1.0))
        products, aligned = moments.uncentered_frobenius, moments.uncentered_alignments
        np.testing.assert_allclose(products / np.outer(norms, norms), M / np.outer(norms, norms), rtol=0, atol=TEXTBOOK)
        np.testing.assert_array_equal(products, products.T)
        np.testing.assert_allclose(moments.uncentered_frobenius_diagonal, np.diag(products), rtol=TEXTBOOK)
        norm = float(np.sqrt(reference.frobenius_product(L, L)))
        assert moments.uncentered_target_norm == pytest.approx(norm, rel=TEXTBOOK)
        a = np.array([reference.frobenius_product(K, L) for K in Ks]).astype(float)
        found = moments.uncentered_target / (norms * norm)
        np.testing.assert_allclose(found, a / (norms * norm), rtol=0, atol=TEXTBOOK)
        np.testing.assert_allclose(aligned, a / (norms * norm), rtol=0, atol=TEXTBOOK)


def test_uncentered_moments_without_tiles_are_those_of_tiles(features):
    tiles = gram_moments(FamilyUnion([features.family]), features.X, features.y, block_rows=7)
    assert tiles.raw  # a family with features is not moved
    moments = gram_moments(features.family, features.X, features.y)
    norms = np.sqrt(tiles.uncentered_frobenius_diagonal)
    np.testing.assert_allclose(
        moments.uncentered_frobenius / np.outer(norms, norms),
        tiles.uncentered_frobenius / np.outer(norms, norms),
        rtol=0,
        atol=TEXTBOOK,
    )
    np.testing.assert_allclose(moments.uncentered_alignments, tiles.uncentered_alignments, rtol=0, atol=TEXTBOOK)


def test_uncentered_alignments_of_features_never_form_M():
    moments = gram_moments(FeatureFamily(60), sparse.csr_matrix(counts(25, 60, seed=28)), np.arange(25.0))
    assert ((moments.uncentered_alignments >= 0) & (moments.uncentered_alignments <= 1)).all()
    assert not {"frobenius", "uncentered_frobenius"} & set(vars(moments))


def test_a_family_of_other_columns_keeps_its_own_origin():
    X = counts(15, 5, seed=29) + 7.0
    family = FeatureFamily(["a", "b", "c"], columns=[4, 0, 2])
    moments = gram_moments(family, X, np.arange(15.0))
    squares = (X[:, [4, 0, 2]] ** 2).sum(axis=0) ** 2
    np.testing.assert_allclose(moments.uncentered_frobenius_diagonal, squares, rtol=1e-14)


def test_moments_without_tiles_are_those_of_tiles(features):
    tiles = gram_moments(FamilyUnion([features.family]), features.X, features.y, block_rows=7)
    assert isinstance(tiles, GramMoments)
    moments = gram_moments(features.family, features.X, features.y)
    # Tiles of features far from zero lose the square of their values, 1e12 here.
    loose = 1e-10 if features is not FEATURES["dense-far"] else 1e-6
    assert_products(moments.frobenius, tiles.frobenius, loose)
    np.testing.assert_allclose(moments.alignments, tiles.alignments, rtol=0, atol=loose)
    mu = np.random.default_rng(8).random(moments.n_kernels)
    assert moments.alignment(mu) == pytest.approx(tiles.alignment(mu), abs=loose)


def test_alignment_of_a_combination_of_features_is_that_of_the_combined_matrix(features):
    moments = gram_moments(features.family, features.X, features.y)
    few = np.zeros(moments.n_kernels)
    few[[1, -1]] = 0.3, 0.7
    for mu in (np.random.default_rng(9).random(moments.n_kernels), few):
        mu = mu / moments.centered_traces
        K = sum(weight * reference.centered(K) for weight, K in zip(mu, features.grams, strict=True))
        expected = reference.uncentered_alignment(K, reference.centered(reference.target_kernel(features.y)))
        assert moments.alignment(mu) == pytest.approx(expected, rel=1e-10)
    assert "frobenius" not in vars(moments)


def test_row_means_of_features_are_those_of_the_moved_kernels(features):
    moments = gram_moments(features.family, features.X, features.y)
    dense = features.X.toarray() if sparse.issparse(features.X) else features.X
    moved = dense - moments.origin
    means = np.array([np.outer(v, v).mean(axis=1) for v in moved.T])
    # Dense features have mean zero, up to rounding of their values.
    size = np.abs(moved).max() * np.abs(dense).max()
    np.testing.assert_allclose(moments.row_means, means, rtol=0, atol=1e-15 * size)
    mu = np.random.default_rng(10).random(moments.n_kernels)
    np.testing.assert_allclose(moments.combined_row_means(mu), mu @ means, rtol=0, atol=1e-15 * size * len(mu))


def test_combined_row_means_of_tiles_are_the_combination_of_the_row_means(case):
    moments = gram_moments(case.family, case.X, np.arange(case.X.shape[0]), block_rows=9)
    mu = np.random.default_rng(11).random(case.family.n_kernels)
    expected = mu @ moments.row_means
    np.testing.assert_allclose(moments.combined_row_means(mu), expected, rtol=0, atol=1e-13 * np.abs(expected).max())


@pytest.mark.parametrize("kept", [[0], [17, -4], [3, 0, 17], [-4, 0, 3, 17]])
def test_restricting_features_to_groups_gives_the_moments_of_their_rows_alone(features, kept):
    m = features.X.shape[0]
    groups = np.array([-4, 0, 3, 17])[np.random.default_rng(12).permutation(np.arange(m) % 4)]
    held = np.isin(groups, kept)
    restricted = gram_moments(features.family, features.X, features.y, groups).restrict(kept)
    alone = gram_moments(features.family, features.X[held], features.y[held])
    np.testing.assert_array_equal(np.sort(restricted.rows), np.flatnonzero(held))
    np.testing.assert_array_equal(np.array(restricted.labels)[restricted.group], groups[restricted.rows])
    np.testing.assert_array_equal(restricted.constant, alone.constant)
    scale = max(alone.centered_traces) ** 2
    np.testing.assert_allclose(restricted.frobenius, alone.frobenius, rtol=0, atol=1e-10 * scale)
    np.testing.assert_allclose(restricted.centered_traces, alone.centered_traces, rtol=1e-9)
    np.testing.assert_allclose(restricted.alignments, alone.alignments, rtol=0, atol=1e-9)
    mu = np.random.default_rng(13).random(alone.n_kernels)
    assert restricted.alignment(mu) == pytest.approx(alone.alignment(mu), rel=1e-9)


def test_sparse_features_give_the_moments_of_the_same_dense_features():
    X, groups = counts(40, 9, seed=14), np.arange(40) % 3
    y = np.random.default_rng(15).normal(size=(40, 2))
    for kept in ([0, 1, 2], [0, 2]):
        dense, csr = (
            gram_moments(FeatureFamily(9), rows, y, groups).restrict(kept) for rows in (X, sparse.csc_array(X))
        )
        assert sparse.issparse(csr.X)
        assert_products(csr.frobenius, dense.frobenius)
        np.testing.assert_allclose(csr.centered_traces, dense.centered_traces, rtol=1e-13)
        np.testing.assert_allclose(csr.target, dense.target, rtol=0, atol=1e-12 * dense.target.max())


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_features_far_from_zero_keep_the_digits_of_their_norms(kind):
    X = np.random.default_rng(16).normal(size=(50, 3)) + 1e6
    y = X[:, 0] + X[:, 1]
    moments = gram_moments(FeatureFamily(3), kind(X), y)
    wide = X.astype(np.longdouble) - X.astype(np.longdouble).mean(axis=0)
    products = ((wide.T @ wide) ** 2).astype(float)
    np.testing.assert_allclose(moments.frobenius_diagonal, np.diag(products), rtol=1e-13)
    # Products of different sparse features are corrected by m * 1e12, of which eps remains.
    assert_products(moments.frobenius, products, 1e-13 if kind is np.asarray else 1e-2)


def test_entries_given_in_parts_add_up():
    whole = sparse.csr_matrix(counts(20, 5, seed=17))
    parts = sparse.csr_matrix(
        (np.repeat(whole.data / 2, 2), np.repeat(whole.indices, 2), 2 * whole.indptr), shape=whole.shape
    )
    y = np.random.default_rng(18).normal(size=20)
    once, twice = (gram_moments(FeatureFamily(5), X, y) for X in (whole, parts))
    np.testing.assert_allclose(twice.frobenius, once.frobenius, rtol=1e-14)
    np.testing.assert_allclose(twice.centered_traces, once.centered_traces, rtol=1e-14)
    assert parts.nnz == 2 * whole.nnz


def test_moments_of_features_survive_a_file_without_pickle(features):
    moments = gram_moments(features.family, features.X, features.y, np.arange(features.X.shape[0]) % 3)
    file = io.BytesIO()
    np.savez(file, **moments.to_arrays())
    file.seek(0)
    with np.load(file, allow_pickle=False) as stored:
        assert FeatureMoments.wrote(stored)
        back = FeatureMoments.from_arrays(dict(stored))
    assert (back.names, back.labels) == (moments.names, moments.labels)
    np.testing.assert_array_equal(back.restrict([1, 2]).frobenius, moments.restrict([1, 2]).frobenius)
    np.testing.assert_array_equal(back.target, moments.target)
    np.testing.assert_array_equal(back.uncentered_frobenius, moments.uncentered_frobenius)
    np.testing.assert_array_equal(back.uncentered_target, moments.uncentered_target)
    tiles = gram_moments(FamilyUnion([features.family]), features.X, features.y)
    assert not FeatureMoments.wrote(tiles.to_arrays())


def test_features_are_not_modified(features):
    before = features.X.copy()
    kernel = learn_kernel("alignf", features.family, features.X, features.y)
    kernel.gram()
    assert abs(features.X - before).max() == 0


# Learned kernels -----------------------------------------------------------------------------------------------------


def params_of(learner: str) -> dict[str, str]:
    """Return what lets a learner take features that depend on each other."""
    return {"dependent": "subset"} if learner == "alignf-linear" else {}


@pytest.mark.parametrize("normalise", NORMALISATIONS)
@pytest.mark.parametrize("learner", TWO_STAGE)
def test_a_kernel_of_features_is_the_weighted_sum_of_their_matrices(features, learner, normalise):
    m = features.X.shape[0]
    train, new = np.arange(3, m), np.arange(3)
    X, X_new = features.X[train], features.X[new]
    kernel = learn_kernel(
        as_learner(learner, **params_of(learner)), features.family, X, features.y[train], normalise=normalise
    )
    Ks = [K[np.ix_(train, train)] for K in features.grams]
    crosses = [K[np.ix_(new, train)] for K in features.grams]
    expected = reference.combined(Ks, kernel.weights, normalise).astype(float)
    np.testing.assert_allclose(kernel.gram(), expected, rtol=0, atol=1e-10 * np.abs(expected).max())
    expected = reference.combined_cross(crosses, Ks, kernel.weights, normalise).astype(float)
    np.testing.assert_allclose(kernel.cross_gram(X_new), expected, rtol=0, atol=1e-10 * np.abs(expected).max())
    aligned = reference.alignment(kernel.gram(), reference.target_kernel(features.y[train]))
    assert kernel.alignment == pytest.approx(aligned, rel=1e-9)
    assert kernel.row_means.shape == (m - 3,)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("learner", TWO_STAGE)
def test_features_that_are_constant_on_the_training_rows_get_weight_zero(learner, kind):
    X = counts(40, 6, seed=19).astype(float)
    y = X[:, 1] + np.random.default_rng(20).normal(size=40)
    groups = (np.arange(40) >= 30).astype(int)
    varying = [0, 1, 3, 5]
    X[:30, 2], X[:30, 4] = 0.0, 1 / 3
    moments = gram_moments(FeatureFamily(6), kind(X), y, groups).restrict([0])
    kernel = learn_from_moments(learner, FeatureFamily(6), kind(X), moments)
    np.testing.assert_array_equal(kernel.weights[[2, 4]], 0.0)
    np.testing.assert_array_equal(moments.alignments[[2, 4]], 0.0)
    alone = learn_kernel(learner, FeatureFamily(4), kind(X[:30, varying]), y[:30])
    np.testing.assert_allclose(kernel.weights[varying], alone.weights, rtol=0, atol=1e-9)
    assert kernel.alignment == pytest.approx(alone.alignment, rel=1e-10)
    cross = alone.cross_gram(kind(X[30:, varying]))
    np.testing.assert_allclose(kernel.cross_gram(kind(X[30:])), cross, rtol=0, atol=1e-9 * np.abs(cross).max())


@pytest.mark.parametrize("learner", ["unif", "single", "align", "lq"])
def test_a_learner_that_asks_for_the_diagonal_alone_never_forms_M(learner, monkeypatch):
    monkeypatch.setattr(FeatureMoments, "frobenius", property(lambda self: pytest.fail("M was formed")))
    X = sparse.csr_matrix(counts(25, 60, seed=21))
    for normalise in NORMALISATIONS:
        kernel = learn_kernel(learner, FeatureFamily(60), X, np.arange(25.0), normalise=normalise)
        assert 0 < kernel.alignment <= 1
        assert (kernel.alignments <= 1).all()


def test_M_is_formed_once():
    moments = gram_moments(FeatureFamily(4), counts(20, 4, seed=22), np.arange(20.0))
    assert moments.frobenius is moments.frobenius


def test_all_features_alike_make_the_linear_kernel(features):
    kernel = learn_kernel("unif", features.family, features.X, features.y, normalise="none")
    dense = features.X.toarray() if sparse.issparse(features.X) else features.X
    Z = dense - dense.mean(axis=0)
    expected = center_gram(Z @ Z.T) / np.sqrt(Z.shape[1])
    np.testing.assert_allclose(kernel.gram(), expected, rtol=0, atol=1e-11 * np.abs(expected).max())


def test_no_new_rows_give_an_empty_cross_gram_of_features():
    X = sparse.csr_matrix(counts(20, 4, seed=23))
    assert learn_kernel("align", FeatureFamily(4), X, np.arange(20.0)).cross_gram(X[:0]).shape == (0, 20)


# The family ----------------------------------------------------------------------------------------------------------


def test_features_are_named_and_keep_their_columns_in_subsets():
    X = counts(15, 5, seed=24)
    family = FeatureFamily(["very_good", "not", "would"], columns=[4, 0, 2])
    part = family.subset([2, 0])
    assert part.names == ("would", "very_good")
    np.testing.assert_array_equal(part.columns, [2, 4])
    for rows in (X, sparse.csr_matrix(X)):
        np.testing.assert_array_equal(family.tile(rows[:4], rows[4:])[0], np.outer(X[:4, 4], X[4:, 4]))
        np.testing.assert_array_equal(part.tile(rows, rows), family.tile(rows, rows)[[2, 0]])
        np.testing.assert_array_equal(family.diag(rows), X[:, [4, 0, 2]].T ** 2)
        mu = np.array([0.5, 2.0, 1.0])
        combined = np.tensordot(mu, family.tile(rows[:4], rows), axes=1)
        np.testing.assert_allclose(family.combine(mu, rows[:4], rows), combined, rtol=1e-14, atol=1e-14)
    moments = gram_moments(family, X, np.arange(15.0))
    assert moments.names == family.names
    np.testing.assert_allclose(moments.centered_traces, 15 * X[:, [4, 0, 2]].var(axis=0), rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: FeatureFamily(0), "features must name at least one feature"),
        (lambda: FeatureFamily(["a", "b", "a"]), "features must have distinct names, got 'a' more than once"),
        (lambda: FeatureFamily(3, columns=[0, 1]), "columns must have one entry a feature, got 2 for 3"),
        (
            lambda: gram_moments(FeatureFamily(4), np.eye(3), np.arange(3.0)),
            "X must have the columns of the features, up to column 3, got 3 columns",
        ),
        (
            lambda: learn_kernel("align", FeatureFamily(2), np.ones((4, 2)), np.arange(4.0)),
            "every feature is constant on the 4 training rows",
        ),
        (
            lambda: gram_moments(FeatureFamily(3), np.eye(3), np.arange(3.0)).restrict([1]),
            r"groups must be some of \[0\]",
        ),
    ],
)
def test_features_that_do_not_fit_are_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_target_that_is_constant_on_the_training_rows_is_refused_for_features_too():
    groups = np.arange(9) // 6
    moments = gram_moments(FeatureFamily(2), counts(9, 2, seed=25), (groups == 0).astype(float), groups)
    with pytest.raises(ValueError, match="the target is constant on the training rows"):
        learn_from_moments("align", FeatureFamily(2), counts(9, 2, seed=25), moments.restrict([0]))


# Many kernels --------------------------------------------------------------------------------------------------------


@pytest.fixture
def warm(monkeypatch) -> None:
    """Let every problem, however small, start warm; the module's name is taken by the function."""
    monkeypatch.setattr(sys.modules["learnkernels.kernels.solvers.active_set"], "WARM_START", 1)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_warm_start_does_not_change_what_is_found(name, warm):
    M, a = PROBLEMS[name]
    solution = Alignf().weigh(M, a)
    assert solution.certificate.residual <= 1e-13
    assert reference.kkt_residual(M, a, solution.weights) <= 1e-10


def random_problem(seed: int, p: int, rank: int, copies: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return a problem whose M has no negative entry, unit diagonal and that rank, some kernels given twice."""
    rng = np.random.default_rng(seed)
    V = np.abs(rng.normal(size=(p, rank))) ** 3
    V[p - copies :] = V[:copies] * (1 + 1e-12 * rng.random((copies, rank)))
    V /= np.linalg.norm(V, axis=1)[:, None]
    return V @ V.T, V @ rng.normal(0.3, 1.0, size=rank)


@pytest.mark.parametrize(
    ("p", "rank", "copies"), [(40, 8, 0), (60, 200, 0), (60, 30, 20), (300, 60, 100), (400, 900, 0)]
)
@pytest.mark.parametrize("seed", range(3))
def test_warm_and_cold_starts_end_at_the_same_optimum(seed, p, rank, copies, monkeypatch):
    M, a = random_problem(seed, p, rank, copies)
    module, values = sys.modules["learnkernels.kernels.solvers.active_set"], []
    for start in (1, 10**9):
        monkeypatch.setattr(module, "WARM_START", start)
        v = minimise_nonnegative(M, a)
        assert (v >= 0).all()
        gradient = M @ v - a
        assert gradient.min() >= -1e-11 * np.abs(a).max()
        assert np.abs(v * gradient).max() <= 1e-11 * np.abs(a).max() * v.max()
        values.append(v @ M @ v - 2 * v @ a)
    assert values[0] == pytest.approx(values[1], rel=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_coordinate_descent_lowers_the_objective_to_the_optimum_of_well_conditioned_problems(seed):
    M, a = random_problem(seed, 50, 400)
    M = 0.9 * M + 0.1 * np.eye(50)
    v, exact = coordinate_descent(M, a), minimise_nonnegative(M, a)
    assert (v >= 0).all()
    # It ends when a sweep moves less than a millionth.
    np.testing.assert_allclose(v, exact, rtol=0, atol=1e-4 * exact.max())


@pytest.mark.parametrize("count", [300, 500])
def test_hundreds_of_nearly_equal_kernels_meet_the_optimality_conditions(count):
    V = np.exp(-np.linspace(0.01, 4, count)[:, None] * np.linspace(0, 3, 90))
    solution = Alignf().weigh(V @ V.T, V @ np.cos(np.linspace(0, 2, 90)))
    assert solution.certificate.residual <= 1e-13


def test_kernels_that_all_oppose_the_target_are_refused_after_a_warm_start_too():
    with pytest.raises(ValueError, match="no base kernel aligns with the target"):
        Alignf().weigh(np.eye(300), np.full(300, -1.0))


# Real n-grams --------------------------------------------------------------------------------------------------------


def bigrams(folder: Path, domain: str, p: int) -> tuple[sparse.csr_matrix, list[str], np.ndarray]:
    """Return the counts of the most frequent bigrams of a domain's reviews, their names, and the ratings."""
    columns = ["tokens", "counts", "rating"]
    table = pyarrow.parquet.read_table(
        folder / "sentiment.parquet", columns=columns, filters=[("domain", "==", domain)]
    )
    documents = [
        {token: count for token, count in zip(tokens, numbers, strict=True) if "_" in token}
        for tokens, numbers in zip(table["tokens"].to_pylist(), table["counts"].to_pylist(), strict=True)
    ]
    totals: Counter[str] = Counter()
    for document in documents:
        totals.update(document)
    names = [token for token, _ in totals.most_common(p)]
    position = {token: k for k, token in enumerate(names)}
    entries = [
        (i, position[token], count)
        for i, document in enumerate(documents)
        for token, count in document.items()
        if token in position
    ]
    rows, columns, values = (np.array(part) for part in zip(*entries, strict=True))
    X = sparse.csr_matrix((values.astype(float), (rows, columns)), shape=(len(documents), p))
    return X, names, table["rating"].to_numpy().astype(float)


def trace_one(X: sparse.csr_matrix) -> np.ndarray:
    """Return the centered features whose kernels have trace one, the textbook way."""
    Z = X.toarray() - X.toarray().mean(axis=0)
    return Z / np.linalg.norm(Z, axis=0)


def test_weights_of_real_bigrams_are_those_of_the_textbook(shared_data):
    X, names, y = bigrams(shared_data, "kitchen", 300)
    Z, y_c = trace_one(X), y - y.mean()
    M, a = np.array([[(z @ w) ** 2 for w in Z.T] for z in Z.T]), np.array([(z @ y_c) ** 2 for z in Z.T])
    learners = ("align", "alignf", "unif", "single")
    found = {name: learn_kernel(name, FeatureFamily(names), X, y, task="regression") for name in learners}
    np.testing.assert_allclose(found["align"].weights, a / np.linalg.norm(a), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(found["alignf"].weights, Alignf().weigh(M, a).weights, rtol=0, atol=1e-9)
    np.testing.assert_allclose(Align().weigh(M, a).weights, found["align"].weights, rtol=0, atol=1e-12)
    for kernel in found.values():
        K = (Z * kernel.weights) @ Z.T
        np.testing.assert_allclose(kernel.gram(), K, rtol=0, atol=1e-12)
        assert kernel.alignment == pytest.approx(centered_alignment(K, np.outer(y, y)), rel=1e-10)
        assert kernel.alignment <= found["alignf"].alignment
    assert names[found["single"].weights.argmax()] == names[a.argmax()]


def test_a_thousand_real_bigrams_meet_the_optimality_conditions(shared_data):
    X, names, y = bigrams(shared_data, "books", 1000)
    kernel: LearnedKernel = learn_kernel("alignf", FeatureFamily(names), X, y, task="regression")
    Z = trace_one(X)
    assert 100 < np.count_nonzero(kernel.weights) < 1000
    assert reference.kkt_residual((Z.T @ Z) ** 2, (Z.T @ (y - y.mean())) ** 2, kernel.weights) <= 1e-10
    assert kernel.certificate.residual <= 1e-10
