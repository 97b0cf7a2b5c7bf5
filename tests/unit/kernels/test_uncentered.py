"""Base kernels that are not centered: identities, and textbook formulas on matrices as oracles."""

from functools import partial

import numpy as np
import pytest
from scipy import sparse

from learnkernels import (
    KernelLearningClassifier,
    KernelLearningRegressor,
    LearnedKernelTransformer,
    learn_kernel,
)
from learnkernels.kernels.centering import Centering, centered_alignment
from learnkernels.kernels.families import (
    ConstantFamily,
    FamilyUnion,
    FeatureFamily,
    GaussianFamily,
    LinearFamily,
)
from learnkernels.kernels.files import from_bytes, to_bytes
from learnkernels.kernels.learned_kernel import LinearScores
from learnkernels.kernels.learners import LEARNERS, as_learner
from learnkernels.kernels.predictors import Nystroem, TrainingSet, as_predictor
from learnkernels.kernels.solvers import factor, svm
from learnkernels.kernels.targets import Target
from tests.refusals import require_refusals
from tests.unit.kernels.test_serialization import assert_same_kernel, changed

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
    return np.stack(
        [
            *(np.exp(-gamma * squared) for gamma in GAMMAS),
            A @ B.T,
            np.ones(squared.shape),
        ]
    )


def learned(learner, y, X, centering="none"):
    return learn_kernel(
        X, y, learner=learner, family=FAMILY, C=LAMBDA, centering=centering
    )


def on_rows(kernel):
    return TrainingSet.of(kernel, None, kernel.rows)


def scaled(kernel):
    """The base kernels of a kernel's own rows over their scales."""
    return matrices(kernel.X, kernel.X) / kernel.scales[:, None, None]


def combined(kernel, A, B):
    return (
        np.tensordot(kernel.weights / kernel.scales, matrices(A, B), axes=1)
        ** kernel.degree
    )


# Learners ------------------------------------------------------------------------------------------------------------


PREDICTED = [(learner, "target") for learner in ("unif", "l2-krr", "nkrr")]
PREDICTED += [
    (of, "none")
    for of in ("unif", "alignf-uncentered", "l1-krr", "l2-krr", "lp-krr", "nkrr")
]


@pytest.mark.parametrize(("learner", "centering"), PREDICTED)
def test_predictions_are_those_of_the_textbook(learner, centering):
    """Kernels are as they are; the mean of the targets is the intercept, or there is none."""
    (X, y), new = problem(), problem(7, seed=1)[0]
    mean = y.mean() if centering == "target" else 0.0
    kernel = learned(learner, y, X, centering)
    if centering == "target":
        np.testing.assert_allclose(
            kernel.weights, learned(learner, y - mean, X).weights, atol=1e-6
        )
    K, y = combined(kernel, kernel.X, kernel.X), y[kernel.rows]
    unit = np.trace(K) / len(K) if kernel.C is None else 1.0
    alpha = np.linalg.solve(K / unit + np.eye(len(K)) / LAMBDA, y - mean)
    expected = combined(kernel, new, kernel.X) / unit @ alpha + mean
    np.testing.assert_allclose(kernel.gram(), K, rtol=1e-10)
    for predictor in (
        ["krr"]
        if kernel.degree > 1
        else ["krr", "krr-cg", Nystroem(n_components=len(K))]
    ):
        fitted = as_predictor(predictor).fit(
            on_rows(kernel), Target.of(y, "regression"), [LAMBDA], fine=True
        )
        np.testing.assert_allclose(fitted.scores(new)[0, :, 0], expected, rtol=1e-6)
        dual, intercept = fitted.coefficients()
        if not isinstance(predictor, Nystroem):
            assert intercept == pytest.approx(mean)
            scores = combined(kernel, new, kernel.X) @ dual + intercept
            np.testing.assert_allclose(fitted.scores(new)[0], scores, rtol=1e-6)


def test_weights_of_l2_krr_are_the_fixed_point_of_theorem_1():
    X, y = problem()
    kernel = learned(as_learner("l2-krr", tol=FINE), y, X)
    K = scaled(kernel)
    alpha = np.linalg.solve(
        np.tensordot(kernel.weights, K, axes=1) + np.eye(len(X)) / LAMBDA,
        y[kernel.rows],
    )
    v = np.einsum("i,kij,j->k", alpha, K, alpha)
    np.testing.assert_allclose(kernel.weights, v / np.linalg.norm(v), atol=1e-6)
    # The constant carries some of what an intercept would
    assert kernel.weights[-1] > 0.05


def test_weights_of_nkrr_are_no_worse_than_others_in_their_ball():
    X, y = problem(30)
    kernel = learned("nkrr", y, X)
    K, y = scaled(kernel), y[kernel.rows]

    def objective(mu):
        return y @ np.linalg.solve(
            np.tensordot(mu, K, axes=1) ** 2 + np.eye(len(y)) / LAMBDA, y
        )

    steps = np.abs(np.random.default_rng(0).normal(size=(50, 5)))
    others = 5**-0.5 + steps / np.linalg.norm(steps, axis=1, keepdims=True)
    assert objective(kernel.weights) <= min(map(objective, others)) * (1 + 1e-6)
    assert kernel.certificate.objectives[-1] == pytest.approx(
        objective(kernel.weights), rel=1e-8
    )


@pytest.mark.parametrize(
    ("learner", "centering"),
    [("l1-svm", "none"), ("lp-svm", "none"), ("lp-svm", "target")],
)
def test_machines_meet_the_conditions_of_the_minimax_problem(learner, centering):
    X, y = problem()
    kernel = learned(as_learner(learner, tol=FINE), labels(y), X, centering)
    known, K = labels(y)[kernel.rows], combined(kernel, kernel.X, kernel.X)
    signs = np.where(known == "yes", 1.0, -1.0)
    fitted = as_predictor("svm").fit(
        on_rows(kernel), Target.of(known), [LAMBDA], fine=True
    )
    dual, intercept = fitted.coefficients()
    np.testing.assert_allclose(
        fitted.scores(X)[0], combined(kernel, X, kernel.X) @ dual + intercept, rtol=1e-6
    )
    a, margins = signs * dual[:, 0], signs * (K @ dual[:, 0] + intercept)
    assert intercept.any() == (centering == "target")
    assert (abs(a @ signs) < 1e-6) == (centering == "target")
    assert ((a > -1e-9) & (a < LAMBDA + 1e-9)).all()
    assert (margins[a < 1e-6] > 1 - 1e-6).all()
    assert (margins[a > LAMBDA - 1e-6] < 1 + 1e-6).all()
    v = np.einsum("i,kij,j->k", dual[:, 0], scaled(kernel), dual[:, 0])
    if learner == "l1-svm":
        assert (v <= v[kernel.weights > 1e-3].min() * (1 + 1e-3)).all()
    else:
        # The root of the gap, times the condition of the kernel on the support vectors.
        np.testing.assert_allclose(kernel.weights, v / np.linalg.norm(v), atol=1e-4)


@pytest.mark.parametrize("learner", ["l1-krr", "l2-krr", "nkrr", "l1-svm"])
def test_features_and_tiles_learn_the_same(learner):
    X, y = problem(40, 3)
    X = np.where(X > 1.5, X, 0.0)
    target, fine = (
        labels(y) if learner == "l1-svm" else y,
        as_learner(learner, tol=FINE),
    )
    for rows in (X, sparse.csr_matrix(X)):
        one, other = (
            learn_kernel(
                rows, target, learner=fine, family=family, C=LAMBDA, centering="none"
            )
            for family in (
                FeatureFamily.with_constant(3),
                FamilyUnion([FeatureFamily(3), ConstantFamily()]),
            )
        )
        # Weights within the root of the gap, times the condition of the kernels.
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-4)
        np.testing.assert_allclose(
            one.cross_gram(rows[:5]), other.cross_gram(rows[:5]), atol=1e-4
        )


def test_machines_on_more_features_than_newton_looks_at_agree_with_one_on_the_matrix():
    X = np.random.default_rng(2).normal(size=(30, 80)) + 0.5
    y, family = labels(X[:, 0] + X[:, 1]), FeatureFamily.with_constant(80)
    kernel = learn_kernel(
        X, y, learner="l1-svm", family=family, C=0.5, centering="none"
    )
    assert kernel.certificate.converged
    signs = np.where(y[kernel.rows] == "yes", 1.0, -1.0)
    a, _, _ = svm.solve_svm(kernel.gram(), signs, 0.5, intercept=False)
    value = 2 * a.sum() - (signs * a) @ kernel.gram() @ (signs * a)
    # Both are solved to about 1e-6
    assert value == pytest.approx(kernel.certificate.objectives[-1], rel=1e-5)


# Predictors ----------------------------------------------------------------------------------------------------------


def test_left_out_residuals_are_those_of_fits_without_the_row():
    X, y = problem(15)
    K, ridge = X @ X.T, 0.7
    for given in (None, np.arange(1.0, 16.0)):
        w = np.ones(15) if given is None else given
        path = factor.LeaveOneOut(K, y[:, None], given, Centering.NONE)
        fit = path.at(ridge)
        for i in range(15):
            others = np.delete(np.arange(15), i)
            alpha = np.linalg.solve(
                K[np.ix_(others, others)] + ridge * np.diag(1 / w[others]), y[others]
            )
            assert fit.residuals[i, 0] == pytest.approx(
                y[i] - K[i, others] @ alpha, rel=1e-8
            )


def test_landmarks_have_no_mean_and_rows_without_coefficient_take_no_part():
    X, y = problem()
    kernel = learned("l2-krr", y, X)
    new, some = problem(5, seed=3)[0], np.array([3, 8, 21])
    dual = np.zeros((len(X), 1))
    dual[some, 0] = [1.0, -2.0, 0.5]
    scores = LinearScores(kernel, dual, np.array([0.25]))
    expected = combined(kernel, new, kernel.X) @ dual + 0.25
    np.testing.assert_array_equal(scores.support, some)
    for of in (scores, scores.on_support()):
        np.testing.assert_allclose(of.of(new), expected, rtol=1e-10)
    np.testing.assert_allclose(
        kernel.over(some).gram(),
        combined(kernel, kernel.X[some], kernel.X[some]),
        rtol=1e-10,
    )


def test_a_few_landmarks_give_the_regression_on_their_columns():
    X, y = problem()
    kernel = learned("unif", y, X)
    target, nystroem = (
        Target.of(y[kernel.rows], "regression"),
        Nystroem(n_components=12),
    )
    path = nystroem.fit(on_rows(kernel), target, [LAMBDA], fine=True)
    Z = path.kernel.X
    G, among = combined(kernel, kernel.X, Z), combined(kernel, Z, Z)
    unit = np.trace(combined(kernel, kernel.X, kernel.X)) / len(y)
    beta = np.linalg.lstsq(
        G.T @ G + unit / LAMBDA * among, G.T @ y[kernel.rows], rcond=None
    )[0]
    expected = combined(kernel, X, Z) @ beta[:, None]
    # A residual of 1e-8, times the condition.
    np.testing.assert_allclose(
        path.kernel.cross_gram(X) @ path.dual[0], expected, rtol=1e-4
    )
    assert not path.intercept.any()


# Estimators, files and refusals --------------------------------------------------------------------------------------


def test_estimators_predict_what_the_kernel_and_its_coefficients_say():
    X, y = problem()
    model = KernelLearningRegressor(
        family=FAMILY, learner="l2-krr", centering="none"
    ).fit(X, y)
    expected = combined(model.kernel_, X, model.kernel_.X) @ model.dual_coef_
    np.testing.assert_allclose(model.predict(X), expected[:, 0], rtol=1e-6)
    assert not model.intercept_.any()
    back = from_bytes(to_bytes(model))
    assert back.centering == "none"
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    machine = KernelLearningClassifier(
        family=FAMILY, learner="l1-svm", C="auto", centering="none", probability=True
    )
    machine.fit(X, labels(y))
    assert not machine.intercept_.any()
    assert machine.score(X, labels(y)) > 0.9
    for method in ("nystroem", "eigen"):
        Z = LearnedKernelTransformer(
            family=FAMILY,
            learner="unif",
            n_components=len(X),
            method=method,
            centering="none",
        ).fit_transform(X, y)
        K = combined(kernel := learned("unif", y, X), X, X)
        np.testing.assert_allclose(Z @ Z.T, K * len(K) / np.trace(K), atol=1e-6)
    assert kernel.centering == "none"


def test_files_keep_it_and_are_refused_where_it_would_be_lost():
    kernel = learned("l2-krr", *problem()[::-1])
    assert_same_kernel(from_bytes(to_bytes(kernel)), kernel)
    require_refusals(
        (changed(kernel, ("centering", value)), "centering")
        for value in ("middle", ...)
    )


def test_align_as_printed_weighs_by_centered_alignments_and_predicts_with_kernels_as_they_are():
    X, y = problem(40)
    union = FamilyUnion([GaussianFamily([0.1, 1.0]), ConstantFamily()])
    kernel = learn_kernel(X, y, learner="align", family=union, centering="target")
    K = union.tile(X, X)
    target = np.outer(y - y.mean(), y - y.mean())
    aligned = [centered_alignment(k, target) for k in K[:2]]
    np.testing.assert_allclose(
        kernel.weights, [*aligned, 0.0] / np.linalg.norm(aligned), rtol=1e-10
    )
    combined = np.tensordot(aligned / np.trace(K[:2], axis1=1, axis2=2), K[:2], axes=1)
    gram = kernel.gram()
    np.testing.assert_allclose(
        gram / np.trace(gram), combined / np.trace(combined), rtol=0, atol=1e-12
    )
    model = KernelLearningRegressor(
        family=union, learner="align", alpha=0.5, centering="target"
    ).fit(X, y)
    K_scaled = gram * (len(X) / np.trace(gram))
    fitted = y.mean() + K_scaled @ np.linalg.solve(
        K_scaled + 0.5 * np.eye(len(X)), y - y.mean()
    )
    np.testing.assert_allclose(model.predict(X), fitted, rtol=1e-9)


def test_learners_say_whether_they_can_do_without_centering():
    X, y = problem(20)
    learn = partial(learn_kernel, centering="none")
    unknown = KernelLearningRegressor(family=FAMILY, learner="unif", centering="no")
    weighted = KernelLearningClassifier(
        family=FAMILY, learner="unif", centering="none", class_weight="balanced"
    )
    refused = [
        (
            partial(unknown.fit, X, y),
            "centering must be one of center, target, none, got 'no'",
        ),
        (
            partial(weighted.fit, X, y > 3),
            "SVMs without intercept do not support sample weights",
        ),
        (
            partial(learn_kernel, X, y, learner="unif", family=FAMILY),
            "constant is constant on the 20 training rows",
        ),
        (
            partial(learn, 0 * X, y, learner="unif", family=LinearFamily()),
            "every base kernel is zero on the 20 training rows",
        ),
    ]
    for name in ("alignf", "single-stage", "rfm", "easymkl"):
        said = f"^{name} requires centering='center', got .*l2-krr"
        refused.append(
            (
                partial(
                    learn,
                    X,
                    labels(y),
                    learner=name,
                    family=None if name == "rfm" else FAMILY,
                ),
                said,
            )
        )
    require_refusals(refused)
    from learnkernels.conf.schema.learners import UNCENTERED

    assert set(UNCENTERED) == {
        name for name, learner in LEARNERS.items() if learner.takes_uncentered
    }
