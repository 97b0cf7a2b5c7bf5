"""Scores of new rows without their centered kernel: equal to those with it, for every kind of kernel."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.svm import SVC

from learnkernels import (
    FamilyUnion,
    FeatureFamily,
    GaussianFamily,
    LaplacianFamily,
    LinearFamily,
)
from learnkernels.kernels.centering import center_gram
from learnkernels.kernels.compiled.distances import as_distance_sides
from learnkernels.kernels.engine import combination
from learnkernels.kernels.engine.combination import Combination, PackedRows, RightSide
from learnkernels.kernels.estimators import (
    KernelLearningClassifier,
    KernelLearningRegressor,
    keep_support,
    set_coefficients,
)
from learnkernels.kernels.families import (
    CategoricalFamily,
    MetricFamily,
    NormalScoresFamily,
)
from learnkernels.kernels.families.base import as_rows, mean_row, move
from learnkernels.kernels.families.composed import ComposedFamily
from learnkernels.kernels.files import from_bytes, to_bytes
from learnkernels.kernels.learned_kernel import LinearScores
from learnkernels.kernels.learners import NKRR, learn_kernel
from learnkernels.kernels.model import Model
from learnkernels.kernels.predictors import SVM, ridge_path
from learnkernels.kernels.predictors.krr import FACTORS
from learnkernels.kernels.statistics.gram import gram_statistics
from learnkernels.kernels.targets import Target
from tests.refusals import require_refusals
from tests.unit.kernels.conftest import CASES

GRID = GaussianFamily([2.0**g for g in range(-5, 2)])


def rows(n=60, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 4))


MAPPED = MetricFamily(GRID, np.arange(15.0).reshape(5, 3) / 9 - 0.7)
SCORES = [[-1.0, -0.5], [0.2, 0.1], [1.5, 2.0]]
SCORED = {case.name: (case.family, case.X) for case in CASES}
SCORED |= {
    "gaps in the grid": (
        GaussianFamily([0.25, 2.0, 0.3, 0.5, 0.6, 1.2, 2.4]),
        rows() + 2,
    ),
    "a bandwidth twice": (GaussianFamily([0.5, 1.0, 1.0, 2.0]), rows() + 2),
    "metric": (MetricFamily(GRID, np.arange(12.0).reshape(4, 3) / 6 - 1), rows() + 2),
    "normal scores": (
        NormalScoresFamily(MAPPED, [SCORES, None, None, None]),
        rows() + 2,
    ),
    "features": (FeatureFamily(4), rows() + 2),
    "categories": (CategoricalFamily([0.5, 1.0]), np.round(rows() + 2)),
}


def numbers(X):
    return np.sin(X[:, 0]) + X[:, 1] * X[:, 2]


def coefficients(n, q=2, total=0.0):
    """Coefficients of which half of the rows have none, and whose columns have a sum."""
    dual = np.random.default_rng(5).normal(size=(n, q))
    dual[::2] = 0
    dual[1] += total - dual.sum(axis=0)
    return dual


def assert_scores(linear: LinearScores, X_new, rtol=1e-12, **options):
    K = linear.kernel.cross_gram(X_new)
    expected = K @ linear.dual + linear.intercept
    # What is added up is of the size of the terms, not of their sum.
    whole = linear.kernel.combination.matrix(
        move(X_new, linear.kernel.origin), linear.kernel.X
    )
    size = (
        1
        + (np.abs(whole).max() + np.abs(K).max())
        * np.abs(linear.dual).sum(axis=0).max()
    )
    np.testing.assert_allclose(
        linear.of(X_new, **options), expected, rtol=0, atol=rtol * size
    )


@pytest.mark.parametrize("name", SCORED)
def test_scores_are_those_of_the_centered_kernel(name):
    family, X = SCORED[name]
    X = as_rows(X)
    X, X_new, rng = X[7:], X[:23], np.random.default_rng(2)
    for w in (None, rng.integers(1, 4, size=X.shape[0]).astype(float)):
        kernel = learn_kernel(
            X,
            rng.normal(size=X.shape[0]),
            learner="align",
            family=family,
            sample_weight=w,
        )
        for total in (0.0, 3.0):
            dual = coefficients(X.shape[0], total=total)
            linear = LinearScores(kernel, dual, np.array([0.5, -1.0]))
            assert_scores(linear, X_new)
            assert len(linear.support) == (
                X.shape[0] if total else np.count_nonzero(dual.any(axis=1))
            )
            assert linear.of(X_new[:0]).shape == (0, 2)


def test_scores_of_a_power_of_a_kernel_are_those_of_the_centered_kernel():
    X = rows()
    kernel = learn_kernel(
        X, numbers(X), learner=NKRR(degree=3, offset=0.7), family=GRID, C=2.0
    )
    linear = LinearScores(kernel, coefficients(len(X)), np.zeros(2))
    assert_scores(linear, rows(30, seed=1), strip=7)
    assert (len(linear.support), linear.of(X[:0]).shape) == (len(X), (0, 2))


def test_tiles_of_any_size_give_the_same_scores(monkeypatch):
    X, X_new = rows(300), rows(70, seed=1)
    union = FamilyUnion(
        [GRID, LinearFamily(), LaplacianFamily([0.5], norm=2)], [[0, 1], None, [2, 3]]
    )
    kernel = learn_kernel(X, numbers(X), learner="align", family=union)
    linear = LinearScores(kernel, coefficients(300), np.zeros(2))
    whole = linear.of(X_new)
    monkeypatch.setattr(combination, "TILE_BYTES", 1)
    monkeypatch.setattr(combination, "TASK_PAIRS", 3000)
    np.testing.assert_allclose(linear.of(X_new, strip=9), whole, rtol=0, atol=1e-12)
    # Of rows whose tiles begin at the same places the bits are the same.
    parts = [
        linear.of(X_new[start : start + 18], strip=9) for start in range(0, 70, 18)
    ]
    np.testing.assert_array_equal(np.concatenate(parts), linear.of(X_new, strip=9))


def test_a_tile_is_the_weighted_sum_of_its_kernels():
    (a, b), digits = (5, 130), {np.float64: 1e-14, np.float32: 1e-5}
    grids = [
        [1.0],
        [0.1] * 3,
        [2.0**g for g in (1, 0, -1, 3, 2, -2, 5, 4, -3)],
        [1, 2, 2, 4],
    ]
    for gammas, (dtype, atol) in product(grids, digits.items()):
        family, A, B = GaussianFamily(gammas), rows(a), rows(b, seed=1)
        c, shift = np.linspace(-1, 2, len(gammas)), np.linspace(0, 1, len(gammas))
        combination, expected = (
            Combination(family, c, shift),
            np.tensordot(c, family.tile(A, B, shift), 1),
        )
        packed = combination.side(B, dtype)
        by_seeds = RightSide(
            combination,
            B,
            family.operands(B, shift, mean_row(B), dtype),
            mean_row(B),
            dtype,
        )
        assert isinstance(packed, PackedRows)
        for right in packed, by_seeds:
            left, out = right.left(A), np.empty((a, b), dtype)
            right.fill(left, slice(0, a), slice(0, b), out)
            np.testing.assert_allclose(out, expected, rtol=0, atol=atol)
            # Beside what is asked for nothing is written
            part = np.zeros((a, 50), dtype)
            right.fill(left, slice(1, 4), slice(13, 40), part[1:4, 9:36])
            np.testing.assert_allclose(
                part[1:4, 9:36], expected[1:4, 13:40], rtol=0, atol=atol
            )
            part[1:4, 9:36] = 0
            assert not part.any()


class Wider:
    """Tiles at half of the bandwidths, for a class that inherits this beside a family."""

    def tile(self, A, B, shift=None):
        return self.above([gamma / 2 for gamma in self.gammas]).tile(A, B, shift)


class Mixed(Wider, GaussianFamily):
    """Gaussians with tiles from elsewhere."""

    above = GaussianFamily


class WiderGaussian(GaussianFamily):
    """Gaussians with tiles of their own."""

    above, tile = GaussianFamily, Wider.tile


class WiderLaplacian(LaplacianFamily):
    """The same of Laplacians."""

    above, tile = LaplacianFamily, Wider.tile


@pytest.mark.parametrize("own", [Mixed, WiderGaussian, WiderLaplacian])
def test_the_tiles_of_a_class_of_ones_own_count(own):
    X, new = rows(), rows(9, seed=1)
    assert as_distance_sides(own([1.0]).operands(X, np.ones(1))) is None
    kernel = learn_kernel(X, numbers(X), learner="align", family=own([0.5, 1.0, 3.0]))
    same = replace(kernel, family=own.above([0.25, 0.5, 1.5]))
    scores, expected = (
        LinearScores(of, coefficients(len(X)), np.zeros(2)).of(new)
        for of in (kernel, same)
    )
    np.testing.assert_allclose(scores, expected, atol=1e-12)
    ones = np.ones(3)
    tile, expected = (
        Combination(of.family, ones, 0 * ones).matrix(new, X) for of in (kernel, same)
    )
    np.testing.assert_allclose(tile, expected, rtol=0, atol=1e-14)


def test_a_view_of_nothing_is_taken():
    family = FamilyUnion(
        [GaussianFamily([1.0, 2.0]), GaussianFamily([1.0])], [[], [0, 1]]
    )
    A, B = rows(9), rows(30, seed=1)
    K = Combination(family, np.array([1.0, 2.0, 3.0]), np.zeros(3)).matrix(A, B)
    gaussian = Combination(GaussianFamily([1.0]), np.ones(1), np.zeros(1)).matrix(
        A[:, :2], B[:, :2]
    )
    np.testing.assert_allclose(K, 3 + 3 * gaussian, rtol=0, atol=1e-14)
    statistics = gram_statistics(family, A, A[:, 0])
    assert np.isfinite(statistics.block_products).all()


def test_single_precision_keeps_its_digits_far_from_the_origin():
    A, B = rows(20) + 1e5, rows(200, seed=1) + 1e5
    for family in (
        GaussianFamily([0.5, 1.0]),
        LaplacianFamily([0.5]),
        FamilyUnion([GaussianFamily([0.5])], [[0, 1]]),
    ):
        combination = Combination(
            family, np.ones(family.n_kernels), np.zeros(family.n_kernels)
        )
        right, K = combination.side(B, np.float32), np.empty((20, 200), np.float32)
        right.fill(right.left(A), slice(0, 20), slice(0, 200), K)
        # Single precision
        np.testing.assert_allclose(K, combination.matrix(A, B), rtol=0, atol=1e-5)


# Support vectors -----------------------------------------------------------------------------------------------------


def test_a_file_of_support_vectors_alone_predicts_the_same():
    X, y = load_breast_cancer(return_X_y=True)
    X, y = ((X - X.mean(axis=0)) / X.std(axis=0))[:250, :10], y[:250]
    model = KernelLearningClassifier(probability=True, predictor="svm", C=4.0).fit(X, y)
    few, used = keep_support(model), np.flatnonzero(model.dual_coef_[:, 0])
    assert 0 < len(used) < 125
    np.testing.assert_array_equal(few.kernel_.rows, model.kernel_.rows[used])
    assert (len(few.dual_coef_), len(model.dual_coef_)) == (len(used), len(X))
    for name in ("decision_function", "predict_proba"):
        np.testing.assert_allclose(
            getattr(few, name)(X), getattr(model, name)(X), rtol=0, atol=1e-9
        )
    linear = few.kernel_.cross_gram(X) @ few.dual_coef_ + few.intercept_
    np.testing.assert_allclose(
        linear[:, 0], model.decision_function(X), rtol=0, atol=1e-9
    )
    assert few.relevance_ == model.relevance_
    assert keep_support(few) is few
    K = few.kernel_.gram()
    np.testing.assert_allclose(K, center_gram(K), rtol=0, atol=1e-12 * np.abs(K).max())
    sizes, names = [], tuple(f"x{j}" for j in range(10))
    for one in (model, few):
        content = to_bytes(Model(one, names, np.zeros(10), np.ones(10), {}))
        sizes.append(len(content))
        back = from_bytes(content).estimator
        np.testing.assert_array_equal(
            back.decision_function(X), one.decision_function(X)
        )
        assert back.relevance_ == model.relevance_
    # What does not depend on the rows is the text and the metrics. The rows for
    # importances are two numbers per row; in their place are the importances of 10
    # columns and of 10 pairs.
    rows_for_importances = 8 * (2 * len(X) - 10 - 3 * 10)
    assert sizes[0] - sizes[1] - rows_for_importances == pytest.approx(
        8 * (len(X) - len(used)) * (10 + 3), rel=0.02
    )


def test_several_classes_keep_the_rows_of_any_pair():
    X, y = load_iris(return_X_y=True)
    model = KernelLearningClassifier(family=GRID, predictor="svm").fit(X, y)
    few = keep_support(model)
    assert (
        len(few.dual_coef_) == np.count_nonzero(model.dual_coef_.any(axis=1)) < len(X)
    )
    np.testing.assert_allclose(
        few.decision_function(X), model.decision_function(X), rtol=0, atol=1e-9
    )
    assert keep_support(
        KernelLearningClassifier(family=GRID, predictor="krr").fit(X, y)
    ).dual_coef_.shape == (150, 3)


def test_coefficients_that_are_replaced_count_and_nothing_prepared_is_pickled():
    X = rows()
    model = KernelLearningRegressor(family=GRID, alpha=0.1).fit(X, numbers(X))
    small, before = len(pickle.dumps(model)), model.predict(X)
    assert len(pickle.dumps(model)) == small
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), before)
    set_coefficients(model, model.kernel_, 2 * model.dual_coef_, model.intercept_)
    np.testing.assert_allclose(
        model.predict(X) - model.intercept_, 2 * (before - model.intercept_), atol=1e-11
    )


@pytest.mark.parametrize(
    "model",
    [
        KernelLearningRegressor(family=GRID, alpha=0.1),
        KernelLearningRegressor(alpha=0.1),
    ],
)
def test_single_precision_is_asked_for_and_errs_by_its_rounding(model):
    X, X_new = rows(200), rows(50, seed=1)
    values = model.fit(X, numbers(X)).predict(X_new)
    single = model.set_params(precision="float32").predict(X_new)
    assert single.dtype == np.float64
    error = np.abs(single - values).max()
    # Rounding of kernels' values, 6e-8 each and some times that after doublings, times
    # coefficients that cancel.
    assert 0 < error < 1e-4
    model.set_params(precision="float16")
    said = "precision must be one of float64, float32, got 'float16'"
    require_refusals(
        [
            (partial(model.predict, X_new), said),
            (partial(model.fit, X, numbers(X)), said),
        ]
    )
    model.set_params(precision="float64")


# Tables --------------------------------------------------------------------------------------------------------------

BANDWIDTHS = [0.02, 0.04, 0.16]
KINDS_OF_KERNELS = {
    "Gaussian": GaussianFamily(BANDWIDTHS),
    "Laplacian": LaplacianFamily(BANDWIDTHS),
    "Euclidean Laplacian": LaplacianFamily(BANDWIDTHS, norm=2),
    "all three": FamilyUnion(
        [
            GaussianFamily(BANDWIDTHS),
            LaplacianFamily(BANDWIDTHS, norm=2),
            LaplacianFamily(BANDWIDTHS),
        ]
    ),
    "categories": CategoricalFamily([0.3, 0.6, 1.0]),
}
N_FEATURES = 70


def table_rows(n, seed):
    """Return a code and numbers, followed by indicators that most rows share; the mean row is far from zero."""
    rng = np.random.default_rng(seed)
    X = 1.0 * (rng.random((n, N_FEATURES)) < 0.1)
    X[:, 0] = rng.integers(0, 5, size=n)
    X[:, 1:5] = rng.normal(size=(n, 4))
    X[:, 5:] += 100.0
    return X


def wrapped(family, wrapper):
    """Return base kernels on the whole table, in a metric, with normal scores, or beside kernels of a code."""
    weights = np.linspace(0.5, 1.5, N_FEATURES)
    if wrapper == "metrics":
        map_ = np.random.default_rng(3).normal(size=(N_FEATURES, 30)) / 8
        return FamilyUnion([MetricFamily(family, weights), MetricFamily(family, map_)])
    if wrapper == "normal scores":
        return NormalScoresFamily(
            family, [None, SCORES, SCORES] + [None] * (N_FEATURES - 3)
        )
    if wrapper == "linear":
        return FamilyUnion(
            [MetricFamily(LinearFamily(), weights), family, LinearFamily()]
        )
    if wrapper == "codes":
        union = FamilyUnion(
            [CategoricalFamily([64.0]), family, CategoricalFamily([1.0, 2.0, 5.0])],
            [[0], None, [0]],
        )
        return NormalScoresFamily(union, [None, SCORES] + [None] * (N_FEATURES - 2))
    return family


def obvious_kernels(family, A, B):
    """Return base kernels between the rows of two matrices by their definition, shape (p, a, b)."""
    if isinstance(family, ComposedFamily):
        return np.concatenate(
            [obvious_kernels(part, map_(A), map_(B)) for part, map_ in family.parts()]
        )
    if isinstance(family, LinearFamily):
        return (A @ B.T)[None]
    difference = A[:, None] - B
    if family.distance == "differing":
        D = (difference != 0).sum(axis=2)
    elif family.distance == "cityblock":
        D = np.abs(difference).sum(axis=2)
    else:
        D = np.square(difference).sum(axis=2)
    if family.distance == "euclidean":
        D = np.sqrt(D)
    return np.exp(-np.multiply.outer(family.gammas, D))


@pytest.mark.parametrize(
    "wrapper", ["table", "metrics", "normal scores", "codes", "linear"]
)
@pytest.mark.parametrize("kind", KINDS_OF_KERNELS)
def test_scores_of_a_table_are_the_obvious_sum(kind, wrapper):
    X = table_rows(130, seed=0)
    new = np.concatenate([table_rows(40, seed=1), X[:9], np.median(X, axis=0)[None]])
    new[0, 0] = 17.0  # a code that no training row has
    family = wrapped(KINDS_OF_KERNELS[kind], wrapper)
    for centering, w in product(("center", "none"), (None, np.arange(130.0) % 3 + 1)):
        kernel = learn_kernel(
            X,
            numbers(X),
            learner="align",
            family=family,
            sample_weight=w,
            centering=centering,
        )
        dual = coefficients(len(X), total=2.0)
        K, K_training = (
            np.tensordot(
                kernel.weights / kernel.scales, obvious_kernels(family, rows_, X), 1
            )
            for rows_ in (new, X)
        )
        size = np.abs(K).max() * np.abs(dual).sum(axis=0).max()
        if centering == "center":
            row_weights = np.ones(len(X)) if w is None else w
            row_weights = row_weights / row_weights.sum()
            training_means = K_training @ row_weights
            K = (
                K
                - (K @ row_weights)[:, None]
                - training_means
                + row_weights @ training_means
            )
        expected = K @ dual + 0.5
        linear = LinearScores(kernel, dual, np.array([0.5, 0.5]))
        np.testing.assert_allclose(linear.of(new), expected, rtol=0, atol=1e-12 * size)
        np.testing.assert_allclose(
            linear.of(new, np.float32), expected, rtol=0, atol=1e-4 * size
        )
        # Products with a matrix are rounded differently for one row
        if wrapper != "metrics":
            alone = np.concatenate([linear.of(new[i : i + 1]) for i in range(len(new))])
            np.testing.assert_array_equal(alone, linear.of(new))


@pytest.mark.parametrize("side", ["new", "training", "both"])
@pytest.mark.parametrize("value", [1e8, 1e200])
@pytest.mark.parametrize("kind", KINDS_OF_KERNELS)
def test_a_row_far_from_all_others_is_at_a_large_distance(kind, value, side):
    X = table_rows(60, seed=0)
    new = table_rows(9, seed=1)
    if side != "training":
        new[3, [2, 40]] = value
    if side != "new":
        X[3, [2, 40]] = value
    family = KINDS_OF_KERNELS[kind]
    ones = np.ones(family.n_kernels)
    with np.errstate(over="ignore"):
        K = Combination(family, ones, 0 * ones).matrix(new, X)
        expected = obvious_kernels(family, new, X).sum(axis=0)
    np.testing.assert_allclose(K, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["Gaussian", "Laplacian", "Euclidean Laplacian"])
def test_distances_from_a_reference_are_zero_for_equal_rows_alone(kind):
    X = table_rows(300, seed=0)
    family = KINDS_OF_KERNELS[kind].subset([1])
    side = Combination(family, np.ones(1), np.zeros(1)).side(X)
    assert side._columns.parts.has_reference.all()
    near = X.copy()
    near[:, 1] += 1e-9 * (1 + np.abs(X[:, 1]))
    for new, is_equal in ((X, True), (near, False)):
        K = np.empty((300, 300))
        side.fill(side.left(new), slice(0, 300), slice(0, 300), K)
        difference = 1.0 - np.diag(K)
        if is_equal:
            np.testing.assert_array_equal(difference, 0.0)
        expected = 1.0 - np.diag(obvious_kernels(family, new, X)[0])
        np.testing.assert_allclose(difference, expected, rtol=0, atol=1e-15)


# Paths ---------------------------------------------------------------------------------------------------------------


def test_ridges_by_factors_are_those_by_eigenvectors():
    X = rows(120)
    kernel = learn_kernel(X, numbers(X), learner="align", family=GRID)
    K, target = kernel.gram(), Target.of(numbers(X)[kernel.rows])
    values = [2.0**g for g in (3, -2, 10, 0)]
    few = ridge_path(K, target, values).dual
    many = ridge_path(
        K, target, values + [2.0**g for g in range(20, 20 + FACTORS)]
    ).dual[:4]
    np.testing.assert_allclose(few, many, rtol=0, atol=1e-9 * np.abs(many).max())
    # One eigenvalue above zero, others below, as rounding makes them
    K = np.ones((6, 6)) - np.eye(6) / 3
    # Ridges too small for a factor.
    assert np.isfinite(
        ridge_path(K, Target.of(np.arange(6.0)), [1.0, 2.0**40]).dual
    ).all()


@pytest.mark.parametrize("case", ["two classes", "three classes", "weights"])
def test_machines_along_a_grid_are_those_of_each_value_alone(case):
    X, y = load_iris(return_X_y=True)
    X, y = (X[50:], y[50:]) if case == "two classes" else (X, y)
    kernel = learn_kernel(
        X,
        y,
        learner="align",
        family=GaussianFamily([0.5, 1.0, 2.0]),
        task="classification",
    )
    K, target = kernel.gram(), Target.of(y[kernel.rows], "classification")
    K /= np.trace(K) / len(K)
    w = (
        np.random.default_rng(0).uniform(0.5, 2, size=len(K))
        if case == "weights"
        else None
    )
    grid = [4.0**g for g in range(-2, 11)]
    path = SVM(tol=1e-6).fit_matrix(K, target, grid, w)
    distinct = len({dual.tobytes() for dual in path.dual})
    # The last ones have no coefficient at its bound, and are one
    assert 1 < distinct < len(grid)
    for position, C in enumerate(grid):
        alone = SVC(kernel="precomputed", C=C, tol=1e-6).fit(K, target.values, w)
        own = SVM(tol=1e-6).fit_matrix(K, target, [C], w)
        for ours, theirs in zip(
            path.coefficients(position), own.coefficients(), strict=True
        ):
            # The root of the tolerance.
            np.testing.assert_allclose(
                ours, theirs, rtol=0, atol=1e-3 * np.abs(theirs).max()
            )
        np.testing.assert_array_equal(path.predict_from(K)[position], alone.predict(K))
