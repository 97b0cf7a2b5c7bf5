"""Base kernels that are not centered: identities, and textbook formulas on matrices as oracles."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from learnkernels import (
    ConstantFamily,
    FamilyUnion,
    FeatureFamily,
    GaussianFamily,
    KernelLearningClassifier,
    KernelLearningRegressor,
    LearnedKernelTransformer,
    LinearFamily,
    gram_moments,
    learn_kernel,
    load_kernel,
    save_kernel,
)
from learnkernels.kernels.centering import Centering
from learnkernels.kernels.engine.operators import gram_operator
from learnkernels.kernels.fields import Fields
from learnkernels.kernels.learners import LEARNERS, as_learner
from learnkernels.kernels.moments.normalisation import Statistics
from learnkernels.kernels.persistence.estimator import (
    estimator_from,
    estimator_to_arrays,
    estimator_to_data,
    target_to_data,
)
from learnkernels.kernels.persistence.kernel import kernel_from_arrays, kernel_to_arrays
from learnkernels.kernels.predictors import KernelOnRows, Nystrom, as_predictor
from learnkernels.kernels.predictors.krr import KernelRidgePath
from learnkernels.kernels.predictors.scoring import LinearScores
from learnkernels.kernels.predictors.svm import SupportVectorPath
from learnkernels.kernels.solvers.leave_one_out import LeaveOneOut
from learnkernels.kernels.solvers.svm import solve_machine
from learnkernels.kernels.targets import Target

GAMMAS = [0.05, 0.3, 1.5]
FAMILY = FamilyUnion([GaussianFamily(GAMMAS), LinearFamily(), ConstantFamily()])
LAMBDA = 3.0

FINE = 1e-11
"""Duality gap at which weights are known to some five digits: their error is about its root."""


def problem(m=45, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, d)) + 2.0
    return X, X[:, 0] * X[:, 1] + 0.3 * X[:, 2]


def labels(y):
    return np.where(y > np.median(y), "yes", "no")


def matrices(A, B):
    """The base kernels of `FAMILY`, by their formulas."""
    squared = ((A[:, None] - B[None]) ** 2).sum(axis=-1)
    return np.stack([*(np.exp(-gamma * squared) for gamma in GAMMAS), A @ B.T, np.ones(squared.shape)])


def learned(learner, y, X, **options):
    return learn_kernel(learner, FAMILY, X, y, regularisation=LAMBDA, centering="none", **options)


def combined(kernel, A, B):
    return np.tensordot(kernel.weights / kernel.scales, matrices(A, B), axes=1) ** kernel.degree


# Learners ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", ["unif", "alignf-uncentered", "l1-krr", "l2-krr", "lp-krr", "nkrr"])
def test_predictions_are_those_of_the_textbook_without_means_or_intercept(learner):
    X, y = problem()
    kernel, new = learned(learner, y, X), problem(7, seed=1)[0]
    K, y = combined(kernel, X[kernel.rows], X[kernel.rows]), y[kernel.rows]
    unit = np.trace(K) / len(K) if kernel.regularisation is None else 1.0
    alpha = np.linalg.solve(K / unit + np.eye(len(K)) / LAMBDA, y)
    expected = combined(kernel, new, X[kernel.rows]) / unit @ alpha
    np.testing.assert_allclose(kernel.gram(), K, rtol=1e-10)
    for predictor in ["krr"] if kernel.degree > 1 else ["krr", "krr-cg", Nystrom(landmarks=len(K))]:
        on = KernelOnRows.of(kernel, None, kernel.rows)
        fitted = as_predictor(predictor).fit_on(on, Target.of(y, "regression"), [LAMBDA], fine=True)
        np.testing.assert_allclose(fitted.scores(new)[0, :, 0], expected, rtol=1e-6)
        assert not fitted.coefficients()[1].any() or isinstance(predictor, Nystrom)


def test_weights_of_l2_krr_are_the_fixed_point_of_theorem_1():
    X, y = problem()
    kernel = learned(as_learner("l2-krr", tolerance=FINE), y, X)
    K = matrices(X[kernel.rows], X[kernel.rows]) / kernel.scales[:, None, None]
    alpha = np.linalg.solve(np.tensordot(kernel.weights, K, axes=1) + np.eye(len(X)) / LAMBDA, y[kernel.rows])
    v = np.einsum("i,kij,j->k", alpha, K, alpha)
    np.testing.assert_allclose(kernel.weights, v / np.linalg.norm(v), atol=1e-6)
    assert kernel.weights[-1] > 0.05  # the constant carries some of what an intercept would


def test_weights_of_nkrr_are_no_worse_than_others_in_their_ball():
    X, y = problem(30)
    kernel = learned("nkrr", y, X)
    K, y = matrices(X[kernel.rows], X[kernel.rows]) / kernel.scales[:, None, None], y[kernel.rows]

    def objective(mu):
        return y @ np.linalg.solve(np.tensordot(mu, K, axes=1) ** 2 + np.eye(len(y)) / LAMBDA, y)

    rng, mu_0 = np.random.default_rng(0), np.full(5, 5**-0.5)
    others = [mu_0 + (u := np.abs(rng.normal(size=5))) / np.linalg.norm(u) for _ in range(50)]
    assert objective(kernel.weights) <= min(map(objective, others)) * (1 + 1e-6)
    assert kernel.certificate.objectives[-1] == pytest.approx(objective(kernel.weights), rel=1e-8)


@pytest.mark.parametrize("learner", ["l1-svm", "lp-svm"])
def test_machines_without_intercept_meet_the_conditions_of_the_minimax_problem(learner):
    X, y = problem()
    kernel = learned(as_learner(learner, tolerance=FINE), labels(y), X)
    rows = kernel.rows
    signs, K = np.where(labels(y)[rows] == "yes", 1.0, -1.0), combined(kernel, X[rows], X[rows])
    path = SupportVectorPath(K, Target.of(labels(y)[rows]), [LAMBDA], centering=Centering.NONE)
    dual, intercept = path.coefficients()
    a, margins = signs * dual[:, 0], signs * (K @ dual[:, 0])
    assert not intercept.any()
    assert abs(a @ signs) > 1e-3
    assert (a > -1e-9).all()
    assert (a < LAMBDA + 1e-9).all()
    assert (margins[a < 1e-6] > 1 - 1e-6).all()
    assert (margins[a > LAMBDA - 1e-6] < 1 + 1e-6).all()
    each = matrices(X[rows], X[rows]) / kernel.scales[:, None, None]
    v = np.einsum("i,kij,j->k", dual[:, 0], each, dual[:, 0])
    if learner == "l1-svm":
        assert (v <= v[kernel.weights > 1e-3].min() * (1 + 1e-3)).all()
    else:
        np.testing.assert_allclose(kernel.weights, v / np.linalg.norm(v), atol=1e-4)


@pytest.mark.parametrize("learner", ["l1-krr", "l2-krr", "nkrr", "l1-svm"])
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_features_and_tiles_learn_the_same(learner, form):
    X, y = problem(40, 3)
    X = np.where(X > 1.5, X, 0.0)
    target = labels(y) if learner == "l1-svm" else y
    rows = sparse.csr_matrix(X) if form == "sparse" else X
    tiles = FamilyUnion([FeatureFamily(3), ConstantFamily()])
    options = {"regularisation": LAMBDA, "centering": "none"}
    fine = as_learner(learner, tolerance=FINE)
    one = learn_kernel(fine, FeatureFamily.with_constant(3), rows, target, **options)
    other = learn_kernel(fine, tiles, rows, target, **options)
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-4)
    np.testing.assert_allclose(one.cross_gram(rows[:5]), other.cross_gram(rows[:5]), atol=1e-4)


def test_machines_on_more_features_than_newton_looks_at_agree_with_one_on_the_matrix():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(30, 80)) + 0.5
    y = labels(X[:, 0] + X[:, 1])
    family = FeatureFamily.with_constant(80)
    kernel = learn_kernel("l1-svm", family, X, y, regularisation=0.5, centering="none")
    assert kernel.certificate.converged
    signs = np.where(y[kernel.rows] == "yes", 1.0, -1.0)
    machine = solve_machine(kernel.gram(), signs, 0.5, intercept=False)
    value = 2 * machine.coefficients.sum() - (b := signs * machine.coefficients) @ kernel.gram() @ b
    assert value == pytest.approx(kernel.certificate.objectives[-1], rel=1e-5)


def test_products_by_tiles_are_those_of_the_matrices():
    X, y = problem(30)
    given = {"shift": np.zeros(5), "scales": np.arange(1.0, 6.0), "centering": Centering.NONE}
    held, tiled = (gram_operator(FAMILY, X, in_memory=bytes_, **given) for bytes_ in (2**30, 0))
    K = matrices(X, X) / given["scales"][:, None, None]
    mu, v = np.arange(5.0), np.column_stack([y, y**2])
    for grams in (held, tiled):
        np.testing.assert_allclose(grams.combine(mu), np.tensordot(mu, K, axes=1), rtol=1e-12)
        np.testing.assert_allclose(grams.products(v), K @ v, rtol=1e-10)
        np.testing.assert_allclose(grams.matvec(mu, v), np.tensordot(mu, K, axes=1) @ v, rtol=1e-10)
        np.testing.assert_allclose(grams.inner_products(K[3]), np.einsum("kij,ij->k", K, K[3]), rtol=1e-10)
        np.testing.assert_allclose(grams.frobenius(), np.einsum("kij,lij->kl", K, K), rtol=1e-10)


def test_of_centered_features_and_targets_the_constant_gets_nothing():
    X, y = problem()
    X, y = X - X.mean(axis=0), y - y.mean()
    fine = as_learner("l2-krr", tolerance=FINE)
    without = learn_kernel(fine, FeatureFamily(4), X, y, regularisation=LAMBDA)
    beside = learn_kernel(fine, FeatureFamily.with_constant(4), X, y, regularisation=LAMBDA, centering="none")
    assert beside.weights[-1] == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(beside.weights[:-1], without.weights, atol=1e-5)
    np.testing.assert_allclose(beside.cross_gram(X[:5]), without.cross_gram(X[:5]), atol=1e-5)


def test_statistics_without_centering_are_sums_over_the_matrices():
    X, y = problem(20)
    Y = np.column_stack([y])
    moments = gram_moments(FAMILY, X, Y, np.repeat([0, 1], 10), keep_origin=True).restrict([1])
    seen, K = Statistics(moments, Centering.NONE), matrices(X[10:], X[10:])
    np.testing.assert_allclose(seen.traces, np.einsum("kii->k", K), rtol=1e-12)
    np.testing.assert_allclose(seen.target, np.einsum("i,kij,j->k", y[10:], K, y[10:]), rtol=1e-10)
    assert not seen.vanishing.any()
    assert moments.alignment(np.array([0, 0, 0, 0, 1.0])) == 0.0
    features = gram_moments(FeatureFamily.with_constant(4), X, Y)
    np.testing.assert_allclose(Statistics(features, Centering.NONE).traces, [*(X**2).sum(axis=0), 20], rtol=1e-12)


# Predictors ----------------------------------------------------------------------------------------------------------


def test_a_heavy_constant_is_an_intercept():
    X, y = problem()
    K, heavy = np.exp(-0.1 * ((X[:, None] - X[None]) ** 2).sum(axis=-1)), 1e7
    with_constant = KernelRidgePath(K + heavy, Target.of(y, "regression"), [LAMBDA], None, Centering.NONE)
    center = np.eye(len(K)) - 1 / len(K)
    usual = KernelRidgePath(center @ K @ center, Target.of(y, "regression"), [LAMBDA])
    fits = [(K + heavy) @ with_constant.dual[0], center @ K @ center @ usual.dual[0] + usual.intercept]
    np.testing.assert_allclose(fits[0], fits[1], atol=1e-4)  # the constant is penalised by one part in ten millions


@pytest.mark.parametrize("weighted", [False, True])
def test_left_out_residuals_are_those_of_fits_without_the_row(weighted):
    X, y = problem(15)
    K, ridge = X @ X.T, 0.7
    w = np.arange(1.0, 16.0) if weighted else np.ones(15)
    fit = LeaveOneOut(K, y[:, None], w if weighted else None, Centering.NONE).at(ridge)
    for i in range(15):
        others = np.delete(np.arange(15), i)
        alpha = np.linalg.solve(K[np.ix_(others, others)] + ridge * np.diag(1 / w[others]), y[others])
        assert fit.residuals[i, 0] == pytest.approx(y[i] - K[i, others] @ alpha, rel=1e-8)
    path = LeaveOneOut(K, y[:, None], w if weighted else None, Centering.NONE)
    assert path.losses([ridge])[0] == pytest.approx(fit.loss)


def test_landmarks_have_no_mean_and_rows_without_coefficient_take_no_part():
    X, y = problem()
    kernel = learned("l2-krr", y, X)
    new, some = problem(5, seed=3)[0], np.array([3, 8, 21])
    dual = np.zeros((len(X), 1))
    dual[some, 0] = [1.0, -2.0, 0.5]
    scores = LinearScores(kernel, dual, np.array([0.25]))
    expected = combined(kernel, new, kernel.X) @ dual + 0.25
    np.testing.assert_array_equal(scores.support, some)
    np.testing.assert_allclose(scores.of(new), expected, rtol=1e-10)
    np.testing.assert_allclose(scores.on_support().of(new), expected, rtol=1e-10)
    np.testing.assert_allclose(kernel.over(some).gram(), combined(kernel, kernel.X[some], kernel.X[some]), rtol=1e-10)


@pytest.mark.parametrize("sampling", ["uniform", "leverage"])
def test_a_few_landmarks_give_the_regression_on_their_columns(sampling):
    X, y = problem()
    kernel = learned("unif", y, X)
    on = KernelOnRows.of(kernel, None, kernel.rows)
    y = y[kernel.rows]
    path = Nystrom(landmarks=12, sampling=sampling).fit(on, Target.of(y, "regression"), [LAMBDA], fine=True)
    Z = path.kernel.X
    G, among = combined(kernel, kernel.X, Z), combined(kernel, Z, Z)
    unit = np.trace(combined(kernel, kernel.X, kernel.X)) / len(y)
    beta = np.linalg.lstsq(G.T @ G + unit / LAMBDA * among, G.T @ y, rcond=None)[0]
    expected = combined(kernel, X, Z) @ beta[:, None]
    np.testing.assert_allclose(path.kernel.cross_gram(X) @ path.dual[0], expected, rtol=1e-4)
    assert not path.intercept.any()


@pytest.mark.parametrize("learner", ["unif", "l2-krr", "nkrr", "lp-svm"])
def test_with_the_mean_of_the_targets_for_intercept_kernels_stay_as_they_are(learner):
    X, y = problem()
    target = labels(y) if learner == "lp-svm" else y
    kernel = learn_kernel(learner, FAMILY, X, target, regularisation=LAMBDA, centering="target")
    on, values = KernelOnRows.of(kernel, None, kernel.rows), Target.of(target).take(kernel.rows)
    fitted = as_predictor("svm" if learner == "lp-svm" else "krr").fit_on(on, values, [LAMBDA], fine=True)
    K = combined(kernel, kernel.X, kernel.X)
    dual, intercept = fitted.coefficients()
    np.testing.assert_allclose(fitted.scores(X)[0], combined(kernel, X, kernel.X) @ dual + intercept, rtol=1e-6)
    if learner == "lp-svm":
        assert dual.sum() == pytest.approx(0.0, abs=1e-6)
        return
    without = learn_kernel(learner, FAMILY, X, y - y.mean(), regularisation=LAMBDA, centering="none")
    np.testing.assert_allclose(kernel.weights, without.weights, atol=1e-6)
    unit = np.trace(K) / len(K) if kernel.regularisation is None else 1.0
    alpha = np.linalg.solve(K / unit + np.eye(len(K)) / LAMBDA, y[kernel.rows] - y.mean())
    np.testing.assert_allclose(fitted.scores(kernel.X)[0, :, 0], K / unit @ alpha + y.mean(), rtol=1e-8)


# Estimators, files and refusals --------------------------------------------------------------------------------------


def test_estimators_predict_what_the_kernel_and_its_coefficients_say():
    X, y = problem()
    model = KernelLearningRegressor(FAMILY, "l2-krr", centering="none").fit(X, y)
    expected = combined(model.kernel_, X, model.kernel_.X) @ model.dual_coef_
    np.testing.assert_allclose(model.predict(X), expected[:, 0], rtol=1e-6)
    assert not model.intercept_.any()
    data, arrays = estimator_to_data(model) | target_to_data(model), estimator_to_arrays(model)
    back = estimator_from(Fields(json.loads(json.dumps(data)), "a model"), arrays)
    assert back.centering == "none"
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    del data["parameters"]["centering"]  # as files of an earlier release are
    assert estimator_from(Fields(data, "a model"), arrays).centering == "center"
    machine = KernelLearningClassifier(FAMILY, "l1-svm", C="auto", centering="none", probability=True)
    machine.fit(X, labels(y))
    assert not machine.intercept_.any()
    assert machine.score(X, labels(y)) > 0.9
    for method in ("nystroem", "eigen"):
        Z = LearnedKernelTransformer(FAMILY, "unif", len(X), method=method, centering="none").fit_transform(X, y)
        K = combined(kernel := learned("unif", y, X), X, X)
        np.testing.assert_allclose(Z @ Z.T, K * len(K) / np.trace(K), atol=1e-6)
    assert kernel.centering == "none"


def test_files_keep_it_and_are_refused_where_it_would_be_lost():
    X, y = problem()
    kernel, file = learned("l2-krr", y, X), io.BytesIO()
    save_kernel(kernel, file)
    file.seek(0)
    back = load_kernel(file)
    assert back.centering is Centering.NONE
    np.testing.assert_array_equal(back.cross_gram(X[:3]), kernel.cross_gram(X[:3]))
    arrays = kernel_to_arrays(kernel)
    text = bytes(arrays["description"]).decode()
    for wrong in (text.replace('"version": 2', '"version": 1'), text.replace('"centering": "none", ', "")):
        with pytest.raises(ValueError, match="centering"):
            kernel_from_arrays({**arrays, "description": np.frombuffer(wrong.encode(), dtype=np.uint8)})
    usual = kernel_to_arrays(replace(kernel, centering=Centering.CENTER))["description"]
    assert '"centering"' not in bytes(usual).decode()


def test_learners_say_whether_they_can_do_without_centering():
    X, y = problem(20)
    for name in ("alignf", "single-stage", "rfm", "easymkl"):
        with pytest.raises(ValueError, match=f"^{name} is defined by base kernels that are centered.*l2-krr"):
            learn_kernel(name, FAMILY if name != "rfm" else None, X, labels(y), centering="none")
    with pytest.raises(ValueError, match="centering must be one of center, target, none, got 'no'"):
        KernelLearningRegressor(FAMILY, "unif", centering="no").fit(X, y)
    with pytest.raises(ValueError, match="without intercept learn from rows that count once each"):
        KernelLearningClassifier(FAMILY, "unif", centering="none", class_weight="balanced").fit(X, y > 3)
    with pytest.raises(ValueError, match="constant is constant on the 20 training rows"):
        learn_kernel("unif", FAMILY, X, y)
    with pytest.raises(ValueError, match="every base kernel is zero on the 20 training rows"):
        learn_kernel("unif", LinearFamily(), 0 * X, y, centering="none")
    from learnkernels.conf.schema.learners import UNCENTERED

    assert set(UNCENTERED) == {name for name, learner in LEARNERS.items() if learner.takes_uncentered}
