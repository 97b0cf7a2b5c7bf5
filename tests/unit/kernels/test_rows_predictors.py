"""Predictors that never form the matrix of all rows: against factorisations of it, and what they say of themselves."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge

from learnkernels import (
    FeatureFamily,
    GaussianFamily,
    KernelLearningRegressor,
    LinearFamily,
    center_gram,
    learn_kernel,
)
from learnkernels.kernels.engine.combination import MOST_TOGETHER, BySeeds, Combination, LaidOut
from learnkernels.kernels.engine.combined_gram import CombinedGram
from learnkernels.kernels.engine.workers import SelectedRows, Threads, spans
from learnkernels.kernels.families import (
    CategoricalFamily,
    FamilyUnion,
    LaplacianFamily,
    MetricFamily,
    PolynomialFamily,
)
from learnkernels.kernels.learners import NKRR
from learnkernels.kernels.predictors import KRR, SVM, Auto, ConjugateGradients, Nystrom, PredictorChoice
from learnkernels.kernels.predictors.calibration import WORK_OF_FOLDS
from learnkernels.kernels.predictors.choice import DECIDED, Problem, choose_predictor
from learnkernels.kernels.predictors.landmarks import landmarks_for, leverage_landmarks, uniform_landmarks
from learnkernels.kernels.predictors.rows import KernelOnRows
from learnkernels.kernels.predictors.subspace import RowPass, Subspace, SubspacePasses, centered_products
from learnkernels.kernels.protocol.hypotheses import KernelPredictors
from learnkernels.kernels.solvers.conjugate_gradients import solve_shifted
from learnkernels.kernels.targets import Target

FAMILY = GaussianFamily([2.0**g for g in range(-5, 2)])
GRID = [0.25, 4.0, 64.0, 1024.0]

# Predictions against those of a factorisation, in units of the target's deviation of about one.
ITERATED = 1e-6


def problem(m=400, n=60, d=4, seed=0, task="regression"):
    """Return a learned kernel, its rows with their target, and new rows."""
    rng = np.random.default_rng(seed)
    X, X_new = rng.normal(size=(m, d)), rng.normal(size=(n, d))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=m)
    if task != "regression":
        y = np.digitize(y, [0.0] if task == "binary" else [-0.5, 0.5])
    target = Target.of(y, "regression" if task == "regression" else "classification")
    return learn_kernel("alignf", FAMILY, X, target.given, task=target.task), X, target, X_new


def named(predictor) -> str:
    return predictor.name


def predictors(kernel, target, predictor, grid=GRID, **given):
    return KernelPredictors((kernel,), target, predictor, grid, **given)


# Conjugate gradients -------------------------------------------------------------------------------------------------


def matrix(n=80, seed=0, decay=2.0):
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    return (Q * np.arange(1, n + 1) ** -decay) @ Q.T, rng.normal(size=(n, 6))


def identity(R, shifts):
    return R


def test_each_column_has_the_solution_of_its_own_shift():
    A, B = matrix()
    shifts = np.array([1e-6, 1e-4, 1e-2, 1.0, 1e2, 1e-3])
    found = solve_shifted(lambda V: A @ V, B, shifts, identity, tolerance=1e-12, most=2000)
    assert found.converged
    for j, shift in enumerate(shifts):
        exact = np.linalg.solve(A + shift * np.eye(len(A)), B[:, j])
        # The residual over the smallest eigenvalue: 1e-12 / 1e-6 at worst.
        np.testing.assert_allclose(found.solutions[:, j], exact, rtol=0, atol=1e-5 * np.abs(exact).max())


def test_residuals_are_those_of_the_solutions_and_columns_do_not_depend_on_each_other():
    A, B = matrix(seed=1)
    shifts = np.array([1e-5, 1.0, 1e-3, 1e-2, 1e-1, 10.0])
    found = solve_shifted(lambda V: A @ V, B, shifts, identity, tolerance=1e-8, most=500)
    R = B - A @ found.solutions - found.solutions * shifts
    np.testing.assert_allclose(
        found.residuals, np.linalg.norm(R, axis=0) / np.linalg.norm(B, axis=0), rtol=0, atol=1e-14
    )
    alone = solve_shifted(lambda V: A @ V, B[:, :1], shifts[:1], identity, tolerance=1e-8, most=500)
    np.testing.assert_allclose(alone.solutions[:, 0], found.solutions[:, 0], rtol=0, atol=1e-6)


def test_what_is_not_reached_is_said_and_zero_right_hand_sides_are_solved_at_once():
    A, B = matrix(n=200, seed=2, decay=4.0)
    B[:, 1] = 0.0
    steps = []
    found = solve_shifted(
        lambda V: A @ V, B, np.full(6, 1e-12), identity, tolerance=1e-13, most=7, progress=lambda *at: steps.append(at)
    )
    assert not found.converged
    assert found.iterations == 7 == steps[-1][0]
    assert found.residuals[1] == 0.0
    assert not found.solutions[:, 1].any()
    assert (found.residuals[[0, 2]] > 1e-13).all()


def test_a_good_preconditioner_saves_steps():
    A, B = matrix(seed=3, decay=3.0)
    s, Q = np.linalg.eigh(A)

    def precondition(R, shifts):
        return Q @ ((Q.T @ R) / (s[:, None] + shifts))

    shifts = np.full(6, 1e-7)
    plain = solve_shifted(lambda V: A @ V, B, shifts, identity, tolerance=1e-9, most=1000)
    found = solve_shifted(lambda V: A @ V, B, shifts, precondition, tolerance=1e-9, most=1000)
    assert found.converged
    assert found.iterations <= 3 < 20 < plain.iterations


# Weighted sums of base kernels by tiles ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "family",
    [
        GaussianFamily([0.5, 0.125, 0.25, 3.0]),
        LaplacianFamily([0.25, 0.5]),
        PolynomialFamily([1, 2, 3]),
        FamilyUnion([GaussianFamily([0.5, 1.0]), LinearFamily()], [None, [0, 2]]),
        FeatureFamily(3),
    ],
)
@pytest.mark.parametrize("zeros", [[], [1], [0, 1]])
def test_a_combination_is_the_weighted_sum_of_its_kernels(family, zeros):
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(37, 3)), rng.normal(size=(600, 3))
    c, shift = rng.uniform(0.5, 2, family.n_kernels), rng.uniform(0, 1, family.n_kernels)
    c[[k for k in zeros if k < family.n_kernels - 1]] = 0.0
    if isinstance(family, FeatureFamily):
        shift[:] = 0.0
    combination = Combination(family, c, shift)
    expected = np.tensordot(c, family.tile(A, B, shift), axes=1)
    np.testing.assert_allclose(combination.matrix(A, B), expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    K = combination.matrix(B, B, symmetric=True)
    np.testing.assert_allclose(K, np.tensordot(c, family.tile(B, B, shift), axes=1), rtol=0, atol=1e-12 * K.max())
    np.testing.assert_allclose(combination.diagonal(B), K.diagonal(), rtol=0, atol=1e-12 * K.max())
    assert (K == K.T).all() or isinstance(family, FeatureFamily)


METRIC = MetricFamily(GaussianFamily([0.05, 0.2, 0.8]), np.array([[1.0, 0.2], [0.0, 2.0], [0.5, 0.5]]), "map")


@pytest.mark.parametrize(
    "family",
    [
        GaussianFamily([0.5, 0.125, 0.25, 3.0]),
        LaplacianFamily([0.25, 1.0], 2),
        CategoricalFamily([0.5], [1.0, 2.0, 0.5]),
        FamilyUnion([LaplacianFamily([0.5]), METRIC, CategoricalFamily([2.0])], [[1], None, [0, 2]]),
    ],
    ids=["gaussian", "laplacian", "categorical", "union"],
)
@pytest.mark.parametrize(("a", "b", "n"), [(1, 1, 1), (6, 33, 2), (64, 100, MOST_TOGETHER)])
def test_products_with_a_kernel_that_is_not_kept_are_those_with_its_matrix(family, a, b, n):
    rng = np.random.default_rng(0)
    A, B = rng.integers(-2, 3, (a, 3)) / 2, rng.integers(-2, 3, (b, 3)) / 2  # of which some features are equal
    given, w, beta = rng.normal(size=(a, n)), rng.uniform(size=a), rng.normal(size=(b, n))
    combination = Combination(family, rng.uniform(0.5, 2, family.n_kernels), rng.uniform(size=family.n_kernels))
    K, laid_out = np.tensordot(combination.coefficients, family.tile(A, B, combination.shift), 1), combination.side(B)
    assert isinstance(laid_out, LaidOut)
    for weights, vectors, expected in (
        (w, beta, 1 + K.T @ (given + w[:, None] * (K @ beta))),
        (None, beta, 1 + K.T @ given),
        (None, None, 1 + K.T @ given),
    ):
        back = np.ones((b, n))
        forth = laid_out.products(A, vectors, given, back, weights)
        # K has a norm of some hundreds, and terms of either sign are added in another order
        np.testing.assert_allclose(back, expected, rtol=0, atol=1e-13 * max(1.0, np.abs(expected).max()) * b)
        assert forth.shape == (0 if vectors is None else a, n)
        np.testing.assert_allclose(forth, (K @ beta)[: len(forth)], rtol=0, atol=1e-12 * b)


@pytest.mark.parametrize(
    "family", [LinearFamily(), FeatureFamily(3), FamilyUnion([GaussianFamily([1.0]), LinearFamily()])]
)
def test_kernels_of_products_have_none_of_distances(family):
    ones = np.ones(family.n_kernels)
    assert family.differences(np.eye(3)) is None
    assert isinstance(Combination(family, ones, 0 * ones).side(np.eye(3)), BySeeds)


@pytest.mark.parametrize("family", [METRIC, FamilyUnion([METRIC, LinearFamily()]), GaussianFamily([1.0, 32.0, 4.0])])
def test_bandwidths_between_save_exponentials_and_change_nothing(family):
    more, at = family.filled_up()
    assert more.n_seeds < family.n_seeds
    X = np.random.default_rng(0).normal(size=(20, 3))
    np.testing.assert_allclose(more.tile(X, X)[at], family.tile(X, X), rtol=0, atol=1e-14)


class Own(LaplacianFamily):
    """A family that cannot be made of bandwidths alone."""

    def __init__(self, gammas, power):
        super().__init__(gammas)
        self.power = power

    def subset(self, kernels):
        return Own([self.gammas[k] for k in kernels], self.power)


@pytest.mark.parametrize("family", [GaussianFamily([1.0, 64.0, 3.0]), Own([1.0, 4.0], 2)])
def test_bandwidths_far_apart_and_families_of_ones_own_stay_alone(family):
    assert family.filled_up()[0] is family


def test_an_inactive_bandwidth_between_two_saves_an_exponential():
    family = GaussianFamily([1.0, 2.0, 4.0, 8.0, 16.0])
    evaluated, c, _ = Combination(family, np.array([0.0, 1.0, 0.0, 2.0, 0.0]), np.zeros(5)).evaluated
    assert evaluated.n_seeds == 1
    assert dict(zip(evaluated.gammas, c, strict=True)) == {2.0: 1.0, 4.0: 0.0, 8.0: 2.0}
    evaluated, c, _ = Combination(family, np.array([0.0, 0.0, 0.0, 0.0, 3.0]), np.zeros(5)).evaluated
    assert (evaluated.n_kernels, c.tolist()) == (1, [3.0])


@pytest.mark.parametrize("metric", [False, True])
@pytest.mark.parametrize(("threads", "n"), [(1, 3), (3, 3), (3, MOST_TOGETHER), (3, MOST_TOGETHER + 1)])
def test_the_matrix_of_all_rows_is_applied_without_being_formed(monkeypatch, threads, n, metric):
    import learnkernels.kernels.engine.combined_gram as module

    monkeypatch.setattr(module, "SPAN", 90)
    monkeypatch.setattr(module, "STRIP", 25)
    kernel, X, _, X_new = problem(m=250)
    if metric:
        map_ = np.random.default_rng(2).normal(size=(4, 2))
        kernel = replace(kernel, family=FamilyUnion([MetricFamily(kernel.family, map_)]))
    gram = CombinedGram(kernel.combination, X, Threads(threads))
    V = np.random.default_rng(1).normal(size=(250, n))
    K = kernel.combination.matrix(X, X, symmetric=True)
    np.testing.assert_allclose(gram.matvec(V), K @ V, rtol=0, atol=1e-12 * np.abs(K).sum())
    np.testing.assert_allclose(gram.columns(X_new), kernel.combination.matrix(X, X_new), rtol=0, atol=1e-12)
    np.testing.assert_allclose(gram.diagonal(), K.diagonal(), rtol=0, atol=1e-12)


def test_rows_of_a_data_set_are_selected_and_moved_a_run_at_a_time():
    X, rows, origin = np.arange(40.0).reshape(10, 4), np.array([7, 1, 5, 5]), np.ones(4)
    held = Threads().hold(X, rows, origin)
    assert isinstance(held, SelectedRows)
    assert held.shape == (4, 4)
    np.testing.assert_array_equal(held[1:3], X[[1, 5]] - 1)
    assert Threads().hold(X, None, np.zeros(4)) is X
    covered = [row for start, stop in spans(103, 10) for row in range(start, stop)]
    assert covered == list(range(103))
    assert max(stop - start for start, stop in spans(103, 10)) <= 10


# Conjugate gradients on all rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["regression", "binary", "classes"])
def test_conjugate_gradients_agree_with_the_factorisation(task):
    kernel, _, target, X_new = problem(task=task)
    exact = predictors(kernel, target, "krr")
    found = predictors(kernel, target, ConjugateGradients(tolerance=1e-9))
    direct, iterated = exact._fitted[0], found._fitted[0]
    K = kernel.cross_gram(X_new)
    for position in range(len(GRID)):
        dual, intercept = direct.path.coefficients(position)
        expected = (K * direct.new_rows) @ dual + intercept
        dual, intercept = iterated.path.coefficients(position)
        np.testing.assert_allclose(K @ dual + intercept, expected, rtol=0, atol=ITERATED)
    if task != "regression":
        assert (found.predict(X_new) == exact.predict(X_new)).mean() > 0.99


@pytest.mark.parametrize("predictor", ["krr-cg", Nystrom(landmarks=40)], ids=["krr-cg", "nystrom"])
def test_an_estimator_tells_of_each_step_of_its_predictor(predictor):
    kernel, X, target, _ = problem()
    told = []
    model = KernelLearningRegressor(FAMILY, "alignf", alpha=1e-3, predictor=predictor)
    model.fit_kernel(kernel, target.given, X=X, progress=lambda *at: told.append(at))
    steps, residuals = zip(*told, strict=True)
    assert steps == tuple(range(1, len(steps) + 1))
    assert residuals[-1] <= 1e-8


def test_one_stage_kernels_keep_their_own_scale():
    _, X, target, X_new = problem()
    kernel = learn_kernel("l2-krr", FAMILY, X, target.values, regularisation=16.0)
    exact, found = (predictors(kernel, target, name, [16.0]).predict(X_new) for name in ("krr", "krr-cg"))
    np.testing.assert_allclose(found, exact, rtol=0, atol=ITERATED)
    every_row = predictors(kernel, target, Nystrom(landmarks=400, tolerance=1e-9), [16.0])
    np.testing.assert_allclose(every_row.predict(X_new), exact, rtol=0, atol=ITERATED)


@pytest.mark.parametrize(
    "predictor", [ConjugateGradients(tolerance=1e-10), Nystrom(landmarks=1000, tolerance=1e-10)], ids=named
)
def test_weights_of_rows_are_copies_of_rows(predictor):
    _, X, target, X_new = problem(m=150)
    w = np.random.default_rng(3).integers(1, 4, 150)
    again = np.repeat(np.arange(150), w)
    weighted = learn_kernel("align", FAMILY, X, target.values, sample_weight=w.astype(float))
    repeated = learn_kernel("align", FAMILY, X[again], target.values[again])
    found = predictors(weighted, target, predictor).predict(X_new)
    expected = predictors(repeated, target.take(again), "krr").predict(X_new)
    np.testing.assert_allclose(found, expected, rtol=0, atol=ITERATED)


@pytest.mark.parametrize(
    "predictor", [ConjugateGradients(tolerance=1e-10), Nystrom(landmarks=500, tolerance=1e-10)], ids=named
)
def test_a_kernel_learned_on_some_rows_serves_all(predictor):
    _, X, target, X_new = problem(m=500)
    some = np.sort(np.random.default_rng(4).choice(500, 120, replace=False))
    learned = learn_kernel("alignf", FAMILY, X[some], target.values[some])
    kernel = replace(learned, rows=some[learned.rows])
    of_all = {"X": X, "training": np.arange(500)}
    found = predictors(kernel, target, predictor, **of_all).predict(X_new)
    # By hand: the same weighted sum of all rows, centered on them and of mean diagonal one.
    rows = np.vstack([X, X_new]) - kernel.origin
    K = kernel.combination.matrix(rows, rows, symmetric=True)
    K_c = center_gram(K[:500, :500])
    means = K[:500, :500].mean(axis=0)
    K_new = K[500:, :500] - K[500:, :500].mean(axis=1, keepdims=True) - means + means.mean()
    unit, y = K_c.trace() / 500, target.values
    for Lambda, prediction in zip(GRID, found, strict=True):
        dual = np.linalg.solve(K_c / unit + np.eye(500) / Lambda, y - y.mean())
        np.testing.assert_allclose(prediction, K_new / unit @ dual + y.mean(), rtol=0, atol=ITERATED)
    np.testing.assert_allclose(predictors(kernel, target, "krr", **of_all).predict(X_new), found, rtol=0, atol=ITERATED)
    with pytest.raises(ValueError, match="was learned on 120 rows, and 500 others train the predictor; give X"):
        predictors(kernel, target, predictor, training=np.arange(500))


def test_kernels_that_are_no_positive_sums_are_refused():
    _, X, target, _ = problem(m=100)
    power = learn_kernel(NKRR(degree=2), GaussianFamily([0.1, 1.0]), X, target.values)
    for name in ("krr-cg", "nystrom"):
        with pytest.raises(ValueError, match=f"predictor {name} serves .*degree 2"):
            predictors(power, target, name, [1.0])
    kernel = learn_kernel("align", FAMILY, X, target.values)
    negative = replace(kernel, weights=kernel.weights * np.array([1, 1, 1, 1, 1, 1, -0.1]))
    with pytest.raises(ValueError, match="negative weights; use krr"):
        predictors(negative, target, "krr-cg")


@pytest.mark.parametrize("name", ["krr-cg", "nystrom"])
def test_nearly_constant_kernels_converge_or_say_what_was_reached(name):
    rng = np.random.default_rng(5)
    X = rng.uniform(0, 3, size=(300, 3))
    target = Target.of(np.sin(3 * X[:, 0]) + X[:, 1])
    kernel = learn_kernel("unif", GaussianFamily([2.0**-12, 2.0**-11]), X, target.values)
    grid = [1.0, 2.0**10, 2.0**30]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = predictors(kernel, target, name, grid)
    solutions = found._fitted[0].path.solutions
    said = [str(one.message) for one in caught if issubclass(one.category, ConvergenceWarning)]
    assert bool(said) == (not solutions.converged)
    assert all(f"{solutions.residuals.max():.1e}" in note for note in [*said, found.notes[-1]])
    exact = predictors(kernel, target, "krr", grid).predict(X)
    # With moderate ridges both are exact; the third ridge is below the rounding of the matrix itself.
    np.testing.assert_allclose(found.predict(X)[:2], exact[:2], rtol=0, atol=1e-4)
    assert np.isfinite(found.predict(X)[2]).all()


def test_a_tolerance_below_rounding_is_answered_with_the_residual():
    kernel, _, target, _ = problem(m=120)
    with pytest.warns(ConvergenceWarning, match=r"at a relative residual of .*above the tolerance of 1e-30"):
        found = predictors(kernel, target, ConjugateGradients(tolerance=1e-30), [1e6])
    assert "relative residual" in found.notes[0]


# Landmarks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["regression", "binary", "classes"])
def test_all_rows_as_landmarks_give_the_ridge_regression_of_all_rows(task):
    kernel, _, target, X_new = problem(m=200, task=task)
    exact, found = predictors(kernel, target, "krr"), predictors(
        kernel, target, Nystrom(landmarks=200, tolerance=1e-10)
    )  # fmt: skip
    np.testing.assert_allclose(found.predict(X_new), exact.predict(X_new), rtol=0, atol=ITERATED)
    path = found._fitted[0].path
    assert path.unit == pytest.approx(1 / exact._fitted[0].new_rows, rel=1e-9)


@pytest.mark.parametrize("rows", [0, 3, 10])
def test_landmarks_solve_the_regression_within_their_span(monkeypatch, rows):
    import learnkernels.kernels.predictors.nystrom as module

    monkeypatch.setattr(module, "REFINING_ROWS", rows)
    monkeypatch.setattr(module, "_refining_pays", lambda *_: rows > 0)
    kernel, X, target, X_new = problem(m=300)
    found = predictors(kernel, target, Nystrom(landmarks=40, seed=2, tolerance=1e-11))
    path = found._fitted[0].path
    Z = path.kernel.rows
    np.testing.assert_array_equal(path.kernel.X, (X - kernel.origin)[Z])
    K_nZ, K_ZZ = path.kernel.cross_gram(X), path.kernel.gram()
    centered, y = K_nZ - K_nZ.mean(axis=0), target.values - target.values.mean()
    for position, Lambda in enumerate(GRID):
        A = centered.T @ centered + path.unit / Lambda * K_ZZ
        beta = np.linalg.lstsq(A, centered.T @ y, rcond=1e-13)[0]
        expected = target.values.mean() + (path.kernel.cross_gram(X_new) - K_nZ.mean(axis=0)) @ beta
        np.testing.assert_allclose(found.predict(X_new)[position], expected, rtol=0, atol=ITERATED)


def test_landmarks_agree_with_scikit_learn_on_the_same_ones():
    rng = np.random.default_rng(6)
    X, X_new = rng.normal(size=(600, 3)), rng.normal(size=(50, 3))
    target = Target.of(np.sin(X[:, 0]) + X[:, 1] ** 2)
    kernel = learn_kernel("unif", GaussianFamily([0.25]), X, target.values, normalise="none")
    path = predictors(kernel, target, Nystrom(landmarks=80), [64.0])._fitted[0].path
    found = path.predict(path.kernel.cross_gram(X_new))[0]
    features = Nystroem(gamma=0.25, n_components=80).fit(X[path.kernel.rows])
    model = Ridge(alpha=path.unit / 64.0 / kernel.combination.coefficients[0]).fit(features.transform(X), target.values)
    expected = model.predict(features.transform(X_new))
    # Theirs spans the landmarks, ours their differences: one dimension of eighty.
    assert np.sqrt(np.mean((found - expected) ** 2)) < 0.05 * expected.std()


def test_negative_weights_are_projected_away():
    kernel, _, target, X_new = problem(m=150)
    negative = replace(kernel, weights=np.array([0, 0, 0.2, 0, 0.7, 0, -0.2]))
    exact = predictors(negative, target, "krr").predict(X_new)
    found = predictors(negative, target, Nystrom(landmarks=150, tolerance=1e-10)).predict(X_new)
    # The projection of the training rows' matrix is the same; its extension to new rows is another.
    assert np.sqrt(np.mean((found[1] - exact[1]) ** 2)) < 0.1
    assert np.isfinite(found).all()


def test_leverage_scores_are_those_of_the_matrix_and_draw_the_rows_that_stand_alone():
    rng = np.random.default_rng(7)
    X = np.vstack([rng.normal(0, 0.1, size=(380, 2)), rng.uniform(-8, 8, size=(20, 2))])
    kernel = learn_kernel("unif", GaussianFamily([0.5]), X, X[:, 0] + rng.normal(size=400))
    on = KernelOnRows.of(kernel, X, np.arange(400), None)
    all_rows = uniform_landmarks(400, 400, rng)
    subspace = Subspace.of(kernel, *on.take(all_rows.positions), all_rows.counts)
    passes = SubspacePasses(on, subspace, np.zeros((400, 0)))
    mean, products = centered_products(subspace, passes.sums(products=True))
    K_c, ridge = kernel.gram(), 2.0
    theta, Q = np.linalg.eigh(products)
    np.testing.assert_allclose(np.sort(theta)[-5:], np.linalg.eigvalsh(K_c)[-5:], rtol=1e-8)
    scores = passes.scores(mean, Q / np.sqrt(np.maximum(theta, 0) + ridge), ridge)
    np.testing.assert_allclose(scores, np.diag(K_c @ np.linalg.inv(K_c + ridge * np.eye(400))), rtol=0, atol=1e-6)
    drawn = [leverage_landmarks(on, 40, np.random.default_rng(seed)).positions for seed in range(5)]
    assert min((positions >= 380).sum() for positions in drawn) >= 15  # of the twenty; uniform draws have two
    counts = leverage_landmarks(on, 40, rng).counts
    assert counts.sum() == pytest.approx(400)


@pytest.mark.parametrize("d", [3, 80])  # laid out, and by seeds
def test_a_pass_can_be_sent_on_after_it_was_used(d):
    X = np.random.default_rng(0).normal(size=(40, d))
    combination = Combination(GaussianFamily([0.01]), np.ones(1), np.ones(1))
    of = RowPass(combination, X, X, np.ones((40, 1)), np.zeros(1), None, None)
    block = of.block(slice(0, 10), np.empty((10, 40)))
    again = pickle.loads(pickle.dumps(of)).block(slice(0, 10), np.empty((10, 40)))
    np.testing.assert_array_equal(again, block)
    right = pickle.loads(pickle.dumps(combination.side(X)))
    right.fill(right.left(X[:10]), slice(0, 10), slice(0, 40), again)
    np.testing.assert_array_equal(again, block)


def test_a_kernel_with_landmarks_that_fits_the_memory_is_formed_once(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(700, 3)), rng.normal(size=700)
    target, anew, products = Target.of(y, "regression"), [], LaidOut.products
    kernel = learn_kernel("unif", GaussianFamily([0.1, 1.0]), X, y)

    def counted(self, A, beta, given, back, w=None):
        anew.append(len(A) * len(back))
        return products(self, A, beta, given, back, w)

    monkeypatch.setattr(LaidOut, "products", counted)
    on, paths, work = KernelOnRows.of(kernel, None, kernel.rows), [], []
    for memory in (1, 1 << 30):
        anew.clear()
        paths.append(Nystrom(landmarks=40, memory=memory).fit(on, target, [0.1, 10.0]))
        work.append(sum(anew))
    np.testing.assert_allclose(paths[0].dual, paths[1].dual, rtol=1e-6)  # sums in another order, up to the tolerance
    steps = paths[1].solutions.iterations + 2  # the targets, and the residual once more
    assert work == [steps * 700 * 40, 0]


def test_the_seed_draws_and_the_memory_counts_landmarks():
    kernel, _, target, X_new = problem(m=300)
    first, same, other = (predictors(kernel, target, Nystrom(landmarks=30, seed=seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.predict(X_new), same.predict(X_new))
    assert (first.predict(X_new) != other.predict(X_new)).any()
    assert first.notes[0] == "30 landmarks of 300 training rows, drawn uniformly"
    assert landmarks_for(12, 20, 21) == 9 + 1
    assert landmarks_for(5, 20, 21) == 5
    assert landmarks_for(1_000_000, 20, 21, 1 << 40) == int(np.ceil(1000 * np.log(1e6)))
    sizes = [landmarks_for(1_000_000, 20, 21, memory) for memory in (1 << 20, 1 << 28, 1 << 30, 4 << 30)]
    assert sizes == sorted(sizes)
    for memory, M in zip((1 << 28, 1 << 30, 4 << 30), sizes[1:], strict=True):
        assert 0.5 * memory < 8 * 8 * M**2 < memory


def test_products_of_more_rows_save_steps_and_change_nothing(monkeypatch):
    import learnkernels.kernels.predictors.nystrom as module

    kernel, _, target, X_new = problem(m=600)
    steps, predictions = [], []
    for rows in (0, 5, 10):
        monkeypatch.setattr(module, "REFINING_ROWS", rows)
        monkeypatch.setattr(module, "_refining_pays", lambda *_, rows=rows: rows > 0)
        found = predictors(kernel, target, Nystrom(landmarks=60, tolerance=1e-9))
        steps.append(found._fitted[0].path.solutions.iterations)
        predictions.append(found.predict(X_new))
    assert steps[0] > steps[1] > steps[2]
    assert steps[2] <= 3  # ten rows a landmark are all rows here
    np.testing.assert_allclose(predictions[1:], [predictions[0]] * 2, rtol=0, atol=ITERATED)


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize("task", ["binary", "classes"])
def test_linear_classifiers_on_the_features_of_landmarks(loss, task):
    kernel, _, target, X_new = problem(m=400, n=300, task=task)
    truth = np.sin(2 * X_new[:, 0]) + X_new[:, 1] * X_new[:, 2]
    truth = np.digitize(truth, [0.0] if task == "binary" else [-0.5, 0.5])
    found = predictors(kernel, target, Nystrom(landmarks=120, loss=loss), [4.0])
    assert np.mean(found.predict(X_new)[0] != truth) < (
        0.2 if task == "binary" else 0.3
    )  # the best constant: 0.5 and 0.65
    dual, intercept = found._fitted[0].path.coefficients(0)
    columns = 1 if task == "binary" else 3
    assert (dual.shape, intercept.shape) == ((120, columns), (columns,))


def test_a_class_without_training_rows_is_never_predicted():
    _, X, target, X_new = problem(m=200, task="classes")
    rows = np.flatnonzero(target.values != 1)
    for loss in ("hinge", "logistic", "squared"):
        learned = learn_kernel("unif", FAMILY, X[rows], target.values[rows], task="classification")
        two = predictors(
            replace(learned, rows=rows[learned.rows]), target, Nystrom(landmarks=60, loss=loss), [4.0],
            X=X, training=rows,
        )  # fmt: skip
        assert set(np.unique(two.predict(X_new))) == {0, 2}


def test_sparse_rows_and_rows_in_a_file_are_streamed_as_dense_ones(tmp_path):
    rng = np.random.default_rng(8)
    X = rng.normal(size=(200, 12)) * (rng.random((200, 12)) < 0.3)
    target = Target.of(X[:, 0] + X[:, 1] ** 2)
    predictor = Nystrom(landmarks=50, tolerance=1e-10)
    results = []
    np.save(tmp_path / "X.npy", X)
    for rows in (X, sparse.csr_matrix(X), np.load(tmp_path / "X.npy", mmap_mode="r")):
        kernel = learn_kernel("align", FAMILY, rows, target.values)
        results.append(predictors(kernel, target, predictor, X=rows).predict(rows[:20]))
    np.testing.assert_allclose(results[1], results[0], rtol=0, atol=ITERATED)
    np.testing.assert_allclose(results[2], results[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("predictor", "sentence"),
    [
        (Nystrom(landmarks=1), "landmarks must be at least 2, got 1"),
        (Nystrom(sampling="greedy"), "sampling must be one of uniform, leverage, got 'greedy'"),
        (Nystrom(loss="exponential"), "loss must be one of squared, hinge, logistic"),
        (Nystrom(loss="hinge"), "loss hinge serves classification, and this is a regression"),
        (Nystrom(tolerance=0.0), "tolerance must be between 0 and 1, got 0.0"),
        (ConjugateGradients(tolerance=2.0), "tolerance must be between 0 and 1, got 2.0"),
    ],
)
def test_options_out_of_their_range_are_refused(predictor, sentence):
    kernel, _, target, _ = problem(m=50)
    with pytest.raises(ValueError, match=sentence):
        predictors(kernel, target, predictor)


# The choice ----------------------------------------------------------------------------------------------------------


def choice(m, task="regression", own=None, predictor=None):
    predictor = predictor or Auto(memory=4 << 30)
    return choose_predictor(predictor, Problem(task, own, n_rows=m, n_kernels=10, n_features=20, n_columns=21))


def test_auto_takes_the_exact_one_while_it_fits_then_conjugate_gradients_then_landmarks():
    assert choice(800).predictor == KRR()
    assert choice(800, "classification").predictor == SVM()
    assert choice(800, "classification", "krr").predictor == KRR()
    assert choice(15_000).predictor == ConjugateGradients()
    assert choice(15_000, "classification").predictor == Nystrom(memory=4 << 30)
    assert choice(200_000).predictor == Nystrom(memory=4 << 30)
    assert choice(2_000, predictor=Auto(memory=1 << 26)).predictor.name in ("krr-cg", "nystrom")
    assert "800 training rows take 20.5 MB" in choice(800).reason
    assert "landmarks" in choice(200_000).reason
    for m in (100, 12_000, 10**6):
        assert len(choice(m).reason) < 200


def test_a_named_predictor_is_taken_at_any_size_and_says_nothing():
    assert choice(10**6, predictor=KRR()) == choice(5, predictor=KRR()) == PredictorChoice(KRR(), "")
    assert choice(100, predictor=Nystrom()).reason == ""
    with pytest.raises(ValueError, match="predictor svm does not serve regression"):
        choice(100, predictor=SVM())


def test_one_regularisation_has_up_to_twice_the_landmarks_that_fit_with_their_kernel():
    path, alone = (landmarks_for(36_584, 9, 1, 3 << 30, held_kernel=held) for held in (False, True))
    assert alone == 2 * path
    for m in (100_000, 10**6):  # of which the kernel with all rows does not fit
        assert landmarks_for(m, 9, 1, 3 << 30, held_kernel=True) == landmarks_for(m, 9, 1, 3 << 30)
    for memory in (1 << 24, 1 << 28, 1 << 30):
        M = landmarks_for(20_000, 9, 1, memory, held_kernel=True)
        assert memory >= 64 * M**2 + 8 * 20_000 * M or landmarks_for(20_000, 9, 1, memory) == M
    assert landmarks_for(50, 9, 1, held_kernel=True) == 50


def test_one_machine_alone_is_exact_on_more_rows_than_a_path_of_them():
    alone = Problem("classification", None, n_rows=16_000, n_kernels=27, n_features=16, n_columns=26, single=True)
    room = Auto(memory=3 << 30)
    assert choose_predictor(room, alone).predictor.name == "svm"
    assert choose_predictor(room, replace(alone, single=False)).predictor.name == "nystrom"
    assert choose_predictor(room, replace(alone, indefinite=True)).predictor.name == "nystrom"
    assert choose_predictor(Auto(memory=2 << 30), alone).predictor.name == "nystrom"
    assert choose_predictor(Auto(memory=8 << 30), replace(alone, n_rows=20_001)).predictor.name == "krr-cg"


def test_classes_of_more_rows_are_told_by_conjugate_gradients_of_indicators():
    many = Problem("classification", None, n_rows=23_000, n_kernels=5, n_features=6, n_columns=18, single=True)

    def chosen(options=(), **changes):
        return choose_predictor(Auto(memory=3 << 30, **dict(options)), replace(many, **changes)).predictor

    assert chosen() == ConjugateGradients(tolerance=DECIDED)
    assert chosen({"tolerance": 1e-5}) == ConjugateGradients(tolerance=1e-5)
    assert chosen(own="krr") == chosen(task="regression") == ConjugateGradients()
    assert chosen(n_rows=200_000).name == "nystrom"
    assert chosen(own="svm").name == "nystrom"  # a learner whose weights are those of machines
    assert chosen(single=False).name == "nystrom"
    for asked in ({"landmarks": 100}, {"loss": "hinge"}):
        assert chosen(asked).name == "nystrom"
    # Probabilities take five more fits, for which there is time on fewer rows.
    assert chosen(n_rows=70_000).name == "krr-cg"
    assert chosen(n_rows=70_000, fits=1.0 + WORK_OF_FOLDS).name == "nystrom"


def test_auto_hands_its_options_on():
    auto = Auto(landmarks=50, memory=1 << 30, sampling="leverage", loss="hinge", tolerance=1e-7, seed=3)
    assert choice(200_000, "classification", predictor=auto).predictor == Nystrom(**auto.get_params())
    assert choice(15_000, "classification", "krr", auto).predictor == ConjugateGradients(tolerance=1e-7, seed=3)
    with pytest.raises(ValueError, match="seed must be a whole number of at least 0, got -1"):
        choice(100, predictor=Auto(seed=-1))


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"power": True}, "krr"),  # which landmarks do not serve
        ({"indefinite": True}, "nystrom"),  # conjugate gradients do not
        ({}, "krr-cg"),
    ],
)
def test_auto_minds_what_kernels_the_others_serve(given, name):
    problem = Problem("regression", None, n_rows=15_000, n_kernels=10, n_features=20, n_columns=21, **given)
    chosen = choose_predictor(Auto(memory=4 << 30), problem)
    assert chosen.predictor.name == name
    assert chosen.reason.startswith(name)


@pytest.mark.parametrize(("task", "predictor"), [("regression", KRR()), ("classes", SVM())])
def test_auto_on_few_rows_is_the_exact_predictor(task, predictor):
    kernel, _, target, X_new = problem(m=100, task=task)
    found, expected = (predictors(kernel, target, one).predict(X_new) for one in (Auto(), predictor))
    np.testing.assert_array_equal(found, expected)
