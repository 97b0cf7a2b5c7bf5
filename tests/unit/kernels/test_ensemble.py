"""The ensemble: left-out predictions by really leaving rows out, the combination, and both ways of evaluating it."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris

from learnkernels import (
    FamilyUnion,
    FeatureFamily,
    GaussianFamily,
    LinearFamily,
    PolynomialFamily,
    center_gram,
    gram_moments,
)
from learnkernels.kernels.centering import center_cross_gram
from learnkernels.kernels.families import KernelFamily
from learnkernels.kernels.learners.ensemble import KernelEnsemble, leave_one_out
from learnkernels.kernels.learning import learn_from_moments
from learnkernels.kernels.moments.base import Moments
from learnkernels.kernels.predictors import KernelRidgePath
from learnkernels.kernels.targets import Target

GRID = np.array([1e-3, 0.1, 3.0, 100.0])

# One factorisation against one solve a row: rounding times the condition of K + I / Lambda, 1e4 or so here.
SOLVES = 1e-10

# The same by other sums; weights move with the condition of the hypotheses, which are alike: up to 1e5 here.
ALIKE = 1e-8


@dataclass(frozen=True)
class Data:
    """A data set of which two of three fold groups train."""

    family: KernelFamily
    X: object
    target: Target

    @property
    def moments(self) -> Moments:
        groups = np.random.default_rng(0).permutation(len(self.target)) % 3
        return gram_moments(self.family, self.X, self.target.Y, groups).restrict([0, 2])

    def fit(self, **given) -> KernelEnsemble:
        return KernelEnsemble.fit(self.family, self.X, self.moments, self.target, **{"grid": GRID, **given})


def numbers(m: int, d: int, seed: int, scale: float = 1.0) -> np.ndarray:
    values = scale * np.random.default_rng(seed).normal(size=(m, d)) + 0.7
    values.flags.writeable = False
    return values


X = numbers(48, 4, seed=1)
SIGNAL = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * numbers(48, 1, seed=2)[:, 0] + 5.0
THREE_CLASSES = Target.of(np.array(list("abc"))[np.digitize(SIGNAL, np.quantile(SIGNAL, [0.3, 0.6]))])
TARGETS = {
    "regression": Target.of(SIGNAL),
    "two-outputs": Target.of(np.column_stack([SIGNAL, X[:, 3] ** 2 - 9.0])),
    "two-classes": Target.of(np.array(["low", "high"])[np.argsort(np.argsort(SIGNAL)) // 24]),
    "three-classes": THREE_CLASSES,
}
FAMILIES = {
    "gaussian": GaussianFamily([0.05, 0.4, 2.0]),
    "union": FamilyUnion([LinearFamily(), PolynomialFamily([2, 3], gamma=0.5, coef0=1.0)], [[0, 2], None]),
    "features": FeatureFamily(4),
}


@pytest.fixture(params=TARGETS)
def target(request) -> Target:
    return TARGETS[request.param]


@pytest.fixture(params=FAMILIES)
def data(request, target) -> Data:
    return Data(FAMILIES[request.param], X, target)


def matrices(data: Data, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the base kernels between some rows of the data, neither centered nor scaled."""
    return data.family.tile(np.asarray(data.X[rows]), np.asarray(data.X[columns]))


def unit_scales(data: Data) -> np.ndarray:
    """Return the mean diagonals of the centered base kernels on the training rows, by explicit matrices."""
    rows = data.moments.rows
    return np.array([np.trace(center_gram(K)) / len(rows) for K in matrices(data, rows, rows)])


# Left-out rows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [1, 3])
@pytest.mark.parametrize("gamma", [0.05, 2.0])
def test_left_out_predictions_are_those_of_regressions_without_the_row(q, gamma):
    # The kernel of all rows, centered on them, stays as it is; a regression without a row has its own intercept, which
    # is solved for together with the coefficients.
    K = center_gram(GaussianFamily([gamma]).tile(X, X)[0])
    K *= len(K) / np.trace(K)
    Y = numbers(len(X), q, seed=3) + np.arange(q)
    left_out, _ = leave_one_out(K, Y, GRID)
    m = len(X) - 1
    for step, value in enumerate(GRID):
        for i in range(0, len(X), 5):
            others = np.delete(np.arange(len(X)), i)
            system = np.ones((m + 1, m + 1))
            system[:m, :m] = K[np.ix_(others, others)] + np.eye(m) / value
            system[m, m] = 0.0
            solved = np.linalg.solve(system, np.vstack([Y[others], np.zeros((1, q))]))
            expected = K[i, others] @ solved[:m] + solved[m]
            np.testing.assert_allclose(left_out[step, i] + Y[others].mean(axis=0), expected, rtol=0, atol=SOLVES)


def test_they_are_those_of_the_kernel_centered_on_the_other_rows():
    raw = GaussianFamily([0.4]).tile(X, X)[0]
    target = Target.of(SIGNAL)
    left_out, _ = leave_one_out(center_gram(raw), target.Y, GRID)
    for i in range(0, len(X), 5):
        others = np.delete(np.arange(len(X)), i)
        K = raw[np.ix_(others, others)]
        path = KernelRidgePath(center_gram(K), target.take(others), GRID)
        expected = path.predict(center_cross_gram(raw[[i]][:, others], K))[:, 0]
        np.testing.assert_allclose(left_out[:, i, 0] + SIGNAL[others].mean(), expected, rtol=0, atol=SOLVES)


def test_left_out_predictions_do_not_know_the_target_of_the_row():
    K = center_gram(GaussianFamily([0.4]).tile(X, X)[0])
    Y = numbers(len(X), 1, seed=4)
    changed = Y.copy()
    changed[7] += 1e3
    before, after = (leave_one_out(K, values, GRID)[0] for values in (Y, changed))
    # Relative to the target of a thousand that cancels.
    np.testing.assert_allclose(after[:, 7], before[:, 7], rtol=0, atol=1e3 * SOLVES)
    assert np.abs(after[:, 8] - before[:, 8]).min() > 1e-4


def test_the_coefficients_are_those_of_the_ridge_path():
    K = center_gram(GaussianFamily([0.4]).tile(X, X)[0])
    path = KernelRidgePath(K, TARGETS["two-outputs"], GRID)
    _, dual = leave_one_out(K, TARGETS["two-outputs"].Y, GRID)
    np.testing.assert_allclose(dual.transpose(1, 0, 2), path.dual, rtol=0, atol=SOLVES)


# The combination -----------------------------------------------------------------------------------------------------


def test_one_kernel_is_the_ridge_path_with_its_deviations_rescaled(target):
    data = Data(GaussianFamily([0.4]), X, Target("regression", target.Y))
    ensemble, rows = data.fit(), data.moments.rows
    others = np.setdiff1d(np.arange(len(X)), rows)
    (K,), (K_cross,) = matrices(data, rows, rows), matrices(data, others, rows)
    (scale,) = unit_scales(data)
    path = KernelRidgePath(center_gram(K) / scale, data.target.take(rows), GRID)
    deviations = path.predict(center_cross_gram(K_cross, K) / scale) - path.intercept
    expected = path.intercept + ensemble.weights[:, 0, None, None] * deviations
    np.testing.assert_allclose(ensemble.predict(X[others]), expected, rtol=0, atol=SOLVES)
    left_out, _ = leave_one_out(center_gram(K) / scale, data.target.take(rows).Y, GRID)
    Y = data.target.Y[rows]
    ahead = (Y - Y.mean(axis=0)) * len(Y) / (len(Y) - 1)
    best = np.einsum("lmq,mq->l", left_out, ahead) / np.einsum("lmq,lmq->l", left_out, left_out)
    np.testing.assert_allclose(ensemble.weights[:, 0], best, rtol=1e-9)


def test_predictions_are_the_weighted_sum_of_the_ridge_regressions(data):
    ensemble, rows = data.fit(), data.moments.rows
    others = np.setdiff1d(np.arange(len(X)), rows)
    as_numbers = Target("regression", data.target.Y).take(rows)
    scores = np.zeros((len(GRID), len(others), as_numbers.Y.shape[1])) + as_numbers.Y.mean(axis=0)
    parts = zip(
        matrices(data, rows, rows), matrices(data, others, rows), unit_scales(data), ensemble.weights.T, strict=True
    )
    for K, K_cross, scale, weight in parts:
        path = KernelRidgePath(center_gram(K) / scale, as_numbers, GRID)
        deviations = path.predict(center_cross_gram(K_cross, K) / scale) - path.intercept
        scores += weight[:, None, None] * deviations
    np.testing.assert_array_equal(ensemble.target.values, data.target.values[rows])
    predicted, expected = ensemble.predict(X[others]), data.target.decode(scores)
    assert predicted.shape == expected.shape
    np.testing.assert_allclose(predicted, expected, rtol=0, atol=ALIKE)


def test_no_hypothesis_alone_has_a_smaller_left_out_error(data):
    ensemble = data.fit()
    assert ensemble.single_errors.shape == ensemble.weights.shape == (len(GRID), data.family.n_kernels)
    assert (ensemble.errors[:, None] <= ensemble.single_errors * (1 + 1e-7)).all()
    assert (ensemble.errors < 0.999 * ensemble.single_errors.min(axis=1)).any()


def test_the_error_of_a_hypothesis_is_that_of_really_leaving_rows_out():
    data = Data(FAMILIES["gaussian"], X, TARGETS["two-outputs"])
    rows, Y = data.moments.rows, TARGETS["two-outputs"].Y
    K = center_gram(matrices(data, rows, rows)[1]) / unit_scales(data)[1]
    left_out, _ = leave_one_out(K, Y[rows], GRID)
    means = np.array([np.delete(Y[rows], i, axis=0).mean(axis=0) for i in range(len(rows))])
    expected = np.sqrt(((Y[rows] - means - left_out) ** 2).mean(axis=(1, 2)))
    np.testing.assert_allclose(data.fit().single_errors[:, 1], expected, rtol=1e-10)


@pytest.mark.parametrize("gammas", [[0.05, 0.4, 2.0], [0.4, 0.401]])
def test_weights_are_a_stationary_point_of_the_left_out_error(gammas):
    data = Data(GaussianFamily(gammas), X, THREE_CLASSES)
    rows = data.moments.rows
    parts = [
        leave_one_out(center_gram(K) / scale, THREE_CLASSES.Y[rows], GRID)[0]
        for K, scale in zip(matrices(data, rows, rows), unit_scales(data), strict=True)
    ]
    G = np.stack(parts, axis=-1)
    Y = THREE_CLASSES.Y[rows]
    residual = (Y - Y.mean(axis=0)) * len(Y) / (len(Y) - 1) - np.einsum("lmqk,lk->lmq", G, data.fit().weights)
    slopes = np.einsum("lmqk,lmq->lk", G, residual)
    sizes = np.linalg.norm(G, axis=(1, 2)) * np.linalg.norm(residual, axis=(1, 2))[:, None]
    np.testing.assert_allclose(slopes / sizes, 0.0, rtol=0, atol=ALIKE)


def test_strong_regularisation_does_not_turn_hypotheses_around():
    # The mean of the other rows falls as a row's own target rises. Least squares on predictions that hold that mean
    # would weigh a hypothesis by minus the number of rows, and predict the opposite.
    ensemble = Data(GaussianFamily([0.4]), X, TARGETS["regression"]).fit(grid=[1e-8])
    assert ensemble.weights[0, 0] > 0
    assert np.corrcoef(ensemble.predict(X)[0], SIGNAL)[0, 1] > 0.5


def test_a_kernel_given_twice_shares_its_weight():
    once = Data(GaussianFamily([0.05, 2.0]), X, TARGETS["regression"]).fit()
    twice = Data(GaussianFamily([0.05, 2.0, 2.0]), X, TARGETS["regression"]).fit()
    np.testing.assert_allclose(twice.weights[:, 1], once.weights[:, 1] / 2, rtol=0, atol=ALIKE)
    np.testing.assert_allclose(twice.weights[:, 1], twice.weights[:, 2], rtol=0, atol=ALIKE)
    np.testing.assert_allclose(twice.predict(X), once.predict(X), rtol=0, atol=ALIKE)


def test_kernels_that_differ_by_rounding_do_not_get_huge_weights():
    # The Gaussian of the doubled parameter comes from that of the single one by a square.
    twins = FamilyUnion([GaussianFamily([2.0]), GaussianFamily([1.0, 2.0]), GaussianFamily([1.0])])
    ensemble = Data(twins, X, TARGETS["regression"]).fit()
    once = Data(GaussianFamily([1.0, 2.0]), X, TARGETS["regression"]).fit()
    assert np.abs(ensemble.weights).max() <= np.abs(once.weights).max()
    np.testing.assert_allclose(ensemble.predict(X), once.predict(X), rtol=0, atol=ALIKE)


@pytest.mark.parametrize("normalise", ["frobenius", "none"])
def test_other_scalings_are_the_trace_scaling_at_other_regularisations(normalise):
    # Of one kernel all scalings are the same; of several, the mean of the mean diagonals is.
    one = Data(GaussianFamily([0.4]), X, TARGETS["regression"])
    np.testing.assert_allclose(one.fit(normalise=normalise).predict(X), one.fit().predict(X), rtol=0, atol=SOLVES)
    data = Data(FAMILIES["union"], X, TARGETS["regression"])
    moments = data.moments
    scales = {"frobenius": np.sqrt(np.diag(moments.frobenius)), "none": np.ones(3)}[normalise]
    sizes = moments.centered_traces / scales
    relative = sizes / sizes.mean()
    ensemble = data.fit(normalise=normalise)
    for k in range(3):
        single = data.fit(grid=GRID * relative[k])
        np.testing.assert_allclose(ensemble.single_errors[:, k], single.single_errors[:, k], rtol=1e-9)


# Tiles and features --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_given", [np.asarray, sparse.csr_matrix, sparse.csr_array])
def test_features_are_the_linear_kernels_of_their_columns(target, as_given):
    rng = np.random.default_rng(6)
    counts = rng.poisson(0.8, size=(len(X), 4)) * 1.0
    linear = FamilyUnion([LinearFamily()] * 4, [[k] for k in range(4)])
    features, tiles = Data(FeatureFamily(4), as_given(counts), target), Data(linear, counts, target)
    closed_form, by_tiles = features.fit(), tiles.fit()
    np.testing.assert_allclose(closed_form.weights, by_tiles.weights, rtol=0, atol=ALIKE)
    np.testing.assert_allclose(closed_form.errors, by_tiles.errors, rtol=0, atol=ALIKE)
    new = rng.poisson(0.8, size=(9, 4)) * 1.0
    np.testing.assert_allclose(closed_form.predict(as_given(new)), by_tiles.predict(new), rtol=0, atol=ALIKE)


def test_a_feature_that_is_constant_on_the_training_rows_gets_weight_zero():
    data = Data(FeatureFamily(5), np.column_stack([X, np.ones(len(X))]), TARGETS["regression"])
    rows = data.moments.rows
    with_constant = data.fit()
    without = Data(FeatureFamily(4), X, TARGETS["regression"]).fit()
    np.testing.assert_array_equal(with_constant.weights[:, 4], 0.0)
    np.testing.assert_allclose(with_constant.weights[:, :4], without.weights, rtol=0, atol=SOLVES)
    assert np.isfinite(with_constant.predict(data.X[rows] + 1.0)).all()


def test_more_features_than_rows_and_a_feature_of_one_row_are_no_trouble():
    rng = np.random.default_rng(7)
    counts = sparse.csr_matrix(rng.poisson(0.1, size=(30, 80)) * 1.0)
    ensemble = Data(FeatureFamily(80), counts, Target.of(rng.normal(size=30))).fit()
    assert np.isfinite(ensemble.weights).all()
    assert np.isfinite(ensemble.predict(counts)).all()
    # Without its only row a feature is constant, like one of no row, and predicts the mean of the others for that row.
    held, values = ensemble.X.toarray() != 0, ensemble.target.values
    ahead = (values - values.mean()) * 20 / 19
    np.testing.assert_allclose(ensemble.single_errors[:, held.sum(axis=0) == 0], np.sqrt(np.mean(ahead**2)), rtol=1e-12)
    for k in np.flatnonzero(held.sum(axis=0) == 1)[:5]:
        K = center_gram(np.outer(held[:, k], held[:, k]) * 1.0)
        left_out, _ = leave_one_out(20 * K / np.trace(K), values[:, None], GRID)
        np.testing.assert_allclose(left_out[:, held[:, k], 0], 0.0, rtol=0, atol=SOLVES)
        expected = np.sqrt(np.mean((ahead - left_out[..., 0]) ** 2, axis=1))
        np.testing.assert_allclose(ensemble.single_errors[:, k], expected, rtol=SOLVES)


@pytest.mark.parametrize("family", ["gaussian", "union"])
def test_the_size_of_the_tiles_changes_nothing(monkeypatch, family):
    data = Data(FAMILIES[family], X, THREE_CLASSES)
    whole = data.fit()
    scores = Data(FAMILIES[family], X, Target("regression", THREE_CLASSES.Y)).fit().predict(X)
    for module in ("learnkernels.kernels.learners.ensemble", "learnkernels.kernels.engine.combination"):
        monkeypatch.setattr(f"{module}.block_rows_for", lambda n_matrices: 7)
    np.testing.assert_allclose(data.fit().weights, whole.weights, rtol=0, atol=ALIKE)
    again = Data(FAMILIES[family], X, Target("regression", THREE_CLASSES.Y)).fit().predict(X)
    np.testing.assert_allclose(again, scores, rtol=0, atol=ALIKE)


# Use -----------------------------------------------------------------------------------------------------------------


def test_irises_are_told_apart():
    rows, labels = load_iris(return_X_y=True)
    data = Data(GaussianFamily([0.1, 0.5, 2.0]), rows, Target.of(labels, "classification"))
    held_out = np.setdiff1d(np.arange(150), data.moments.rows)
    predicted = data.fit(grid=[1.0, 10.0]).predict(rows[held_out])
    assert predicted.shape == (2, 50)
    for prediction in predicted:
        assert data.target.take(held_out).error(prediction) < 0.1


def test_training_rows_are_those_of_a_learned_kernel(data):
    ensemble = data.fit()
    kernel = learn_from_moments("unif", data.family, data.X, data.moments)
    np.testing.assert_array_equal(ensemble.X, kernel.X)
    np.testing.assert_array_equal(ensemble.origin, kernel.origin)


# Errors --------------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused():
    data = Data(FAMILIES["gaussian"], X, TARGETS["regression"])
    with pytest.raises(ValueError, match="normalise must be one of"):
        data.fit(normalise="length")
    with pytest.raises(ValueError, match="one entry a row of X, got 47 for 48 rows"):
        KernelEnsemble.fit(data.family, X, data.moments, data.target.take(np.arange(47)), GRID)
    with pytest.raises(ValueError, match="features of the training rows, got 3"):
        data.fit().predict(X[:, :3])


@pytest.mark.parametrize("grid", [[], [1.0, 0.0], [-1.0], [np.inf], [np.nan]])
def test_a_grid_without_positive_values_is_refused(grid):
    with pytest.raises(ValueError, match="grid must hold positive values"):
        Data(FAMILIES["gaussian"], X, TARGETS["regression"]).fit(grid=grid)
