"""One-stage learners: weights and predictor in one convex problem, against generic solvers and known special cases."""

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC

from learnkernels import (
    LinearFamily,
    center_gram,
    centered_alignment,
    learn_kernel,
)
from learnkernels.kernels import learners
from learnkernels.kernels.centering import Centering
from learnkernels.kernels.engine.operators import FeatureGrams, StackedGrams
from learnkernels.kernels.families import PrecomputedFamily
from learnkernels.kernels.learners import (
    L1KRR,
    L1SVM,
    L2KRR,
    LEARNERS,
    JointLearner,
    LpKRR,
    LpSVM,
    SingleStage,
)
from learnkernels.kernels.solvers import logistic
from learnkernels.kernels.solvers.interior_point import weights_by_interior_point
from learnkernels.kernels.solvers.logistic import LogisticProblem
from learnkernels.kernels.solvers.minimax import (
    Ball,
    InnerSolution,
    extrapolated,
    solve_minimax,
)
from learnkernels.kernels.solvers.projected_gradient import minimize_linear, project
from learnkernels.kernels.solvers.ridge import RidgeProblem
from learnkernels.kernels.solvers.svm import SupportVectorProblem
from learnkernels.kernels.targets import Target
from tests.refusals import refusal, require_refusals

GAMMAS = [0.02, 0.1, 0.5, 2.0]
# What a generic solver's result is worth: SLSQP stops at about 1e-7 of the objective,
# 1e-4 of the weights.
GENERIC = 1e-5


def problem(
    seed: int = 0, m: int = 32, classes: int = 2, gammas=GAMMAS
) -> tuple[StackedGrams, Target]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 3))
    score = X[:, 0] * X[:, 1] + 0.5 * X[:, 2] + 0.3 * rng.normal(size=m)
    D = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    return classified(
        np.stack([center_gram(np.exp(-gamma * D)) for gamma in gammas]), score, classes
    )


def classified(
    K: np.ndarray, score: np.ndarray, classes: int
) -> tuple[StackedGrams, Target]:
    """Return base kernels of trace m, and classes of equal size."""
    K = (K + K.transpose(0, 2, 1)) / 2
    K /= np.trace(K, axis1=1, axis2=2)[:, None, None] / len(score)
    y = np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))
    return StackedGrams(K), Target("classification", y, tuple("abcde"[:classes]))


def ridge_value(
    K: np.ndarray, target: Target, mu: np.ndarray, C: float
) -> tuple[float, np.ndarray]:
    """Return the value of the ridge regression, and its slopes in the weights."""
    Y = target.Y - target.Y.mean(axis=0)
    alpha = np.linalg.solve(np.tensordot(mu, K, axes=1) + np.eye(len(Y)) / C, Y)
    return float(np.vdot(Y, alpha)), -np.einsum("iq,kij,jq->k", alpha, K, alpha)


def machine_value(
    K: np.ndarray, target: Target, mu: np.ndarray, C: float
) -> tuple[float, np.ndarray]:
    """Return the value of the SVM, by scikit-learn, to its tolerance, and its slopes in the weights."""
    machine = SVC(kernel="precomputed", C=C, tol=1e-10).fit(
        np.tensordot(mu, K, axes=1), target.values
    )
    beta = np.zeros(len(target))
    beta[machine.support_] = machine.dual_coef_[0]
    forms = np.einsum("i,kij,j->k", beta, K, beta)
    return float(2 * np.abs(beta).sum() - mu @ forms), -forms


ON_BALL = [
    L1KRR(),
    L2KRR(),
    LpKRR(norm=1.3),
    LpKRR(norm=3.0),
    L1SVM(),
    LpSVM(norm=1.5),
    LpSVM(norm=2.0),
]


@pytest.fixture(params=ON_BALL, ids=repr)
def on_ball(request) -> JointLearner:
    return request.param


# Optimality ----------------------------------------------------------------------------------------------------------


SOLVED = [
    (L1KRR(), 0.1),
    (L1KRR(), 100.0),
    (L2KRR(), 3.0),
    (LpKRR(norm=1.3), 100.0),
    (LpKRR(norm=3.0), 0.1),
]
SOLVED += [
    (L1SVM(), 0.1),
    (L1SVM(), 100.0),
    (LpSVM(norm=1.5), 3.0),
    (LpSVM(norm=2.0), 100.0),
]


@pytest.mark.parametrize(("learner", "C"), SOLVED, ids=str)
def test_weights_agree_with_a_generic_solver(learner, C):
    grams, target = problem(1)
    solution = learner.solve(grams, target, C)
    p, norm = grams.n_kernels, learner.norm

    def value(mu):
        of = ridge_value if learner.predictor == "krr" else machine_value
        return of(grams.grams, target, np.maximum(mu, 0), C)

    ball = {"type": "ineq", "fun": lambda mu: 1 - np.sum(np.maximum(mu, 0) ** norm)}
    given = {
        "bounds": [(0, None)] * p,
        "constraints": ball,
        "options": {"ftol": 1e-13, "maxiter": 500},
    }
    generic = minimize(value, np.full(p, 0.9 / p), jac=True, method="SLSQP", **given)
    found, _ = value(solution.weights)
    assert found == pytest.approx(generic.fun, rel=GENERIC)
    assert found <= generic.fun * (1 + 1e-6)  # the certified gap
    assert solution.certificate.objectives[-1] == pytest.approx(found, rel=1e-6)
    assert np.linalg.norm(solution.weights, norm) == pytest.approx(1.0, rel=1e-12)


def test_certificates_are_below_the_tolerance(on_ball):
    for C, classes in ((2.0**-6, 2), (1.0, 3), (2.0**14, 2), (2.0**14, 3)):
        grams, target = problem(3, m=60, classes=classes)
        certificate = on_ball.solve(grams, target, C).certificate
        assert certificate.measure == "duality gap"
        assert certificate.converged
        assert certificate.residual <= 1e-6
        assert certificate.iterations <= 25
        # Newton's steps never ascend.
        assert (np.diff(certificate.objectives) <= 0).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_gap_bounds_what_is_left_and_is_told_in_the_warning(on_ball):
    """Stopped anywhere, the value less the gap is below the minimum: the certificate is a proof."""
    grams, target = problem(4, m=60)
    exact = (
        replace(on_ball, tol=1e-8).solve(grams, target, 10.0).certificate.objectives[-1]
    )
    for most in (1, 2, 3):
        stopped = replace(on_ball, tol=1e-12, max_iter=most)
        certificate = stopped.solve(grams, target, 10.0).certificate
        value = certificate.objectives[-1]
        # The exact value is itself known to 1e-8.
        assert value * (1 - certificate.residual) <= exact
        assert exact <= value * (1 + 1e-8)
    sentence = r"stopped after 1 iterations at a relative duality gap of \d\.\de[-+]0\d"
    with pytest.warns(ConvergenceWarning, match=sentence):
        solution = replace(on_ball, max_iter=1).solve(grams, target, 10.0)
    assert not solution.certificate.converged


# Special cases -------------------------------------------------------------------------------------------------------


def test_one_kernel_leaves_the_plain_predictor():
    """p = 1: the only weight is on it, and the predictor is ridge regression or the machine on that kernel."""
    grams, target = problem(6, gammas=[0.3])
    names = [
        name for name, learner in LEARNERS.items() if issubclass(learner, JointLearner)
    ]
    found = {name: LEARNERS[name]().solve(grams, target, 3.0) for name in names}
    for name, solution in found.items():
        own_length = name.startswith("single-stage") or name == "nkrr"
        assert (
            solution.weights > 0
            if own_length
            else solution.weights == pytest.approx([1.0], rel=1e-12)
        ), name
    y = target.Y[:, 0] - target.Y[:, 0].mean()
    ridge = KernelRidge(kernel="precomputed", alpha=1 / 3.0).fit(grams.grams[0], y)
    assert found["l2-krr"].certificate.objectives[-1] == pytest.approx(
        y @ ridge.dual_coef_, rel=1e-10
    )
    machine, _ = machine_value(grams.grams, target, np.ones(1), 3.0)
    assert found["l1-svm"].certificate.objectives[-1] == pytest.approx(
        machine, rel=1e-8
    )


@pytest.mark.parametrize("learner", [LpKRR, LpSVM])
def test_a_large_norm_tends_to_equal_weights(learner):
    grams, target = problem(10)
    weights = [
        learner(norm=norm).solve(grams, target, 10.0).weights
        for norm in (2.0, 8.0, 64.0, 1024.0, np.inf)
    ]
    apart = [np.abs(mu / mu.sum() - 1 / grams.n_kernels).max() for mu in weights]
    assert (np.diff(apart) < 0).all()
    assert apart[-2] < 1e-2
    assert apart[-1] < 1e-15


# l2-krr --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("center", "radius", "C"), [(0.0, 1.0, 1000.0), (1.0, 0.5, 0.1), (2.0, 3.0, 4.0)]
)
def test_l2_krr_meets_theorem_1(center, radius, C):
    """mu = mu_0 + C v / |v|, with v from the ridge regression at mu itself."""
    grams, target = problem(13)
    mu = (
        L2KRR(center=center, radius=radius, tol=1e-12).solve(grams, target, C=C).weights
    )
    v = -ridge_value(grams.grams, target, mu, C)[1]
    expected = center / np.sqrt(grams.n_kernels) + radius * v / np.linalg.norm(v)
    # a gap of 1e-12 leaves the root of it to the weights
    np.testing.assert_allclose(mu, expected, rtol=1e-5)


# single-stage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gammas", [(1.0, 0.0, 1.0), (0.0, 0.3, 0.0), (2.0, 0.1, 0.5)])
def test_single_stage_agrees_with_a_generic_solver(gammas):
    grams, target = problem(16)
    gamma, gamma1, gamma2 = gammas
    K, m, p = grams.grams, grams.n_rows, grams.n_kernels
    Y = target.Y - target.Y.mean(axis=0)
    squared = (Y**2).sum()
    a = np.array([np.vdot(Y, k @ Y) for k in K]) / (m * squared)
    M = np.array([[np.vdot(k, other) for other in K] for k in K]) / m**2

    def value(mu):
        fit = ridge_value(K, target, mu, 5.0)[0] / (5.0 * squared)
        return fit - gamma * mu @ a + mu @ (gamma2 * M + gamma1 * np.eye(p)) @ mu

    learner = SingleStage(gamma=gamma, gamma1=gamma1, gamma2=gamma2, tol=1e-10)
    mu = learner.solve(grams, target, 5.0).weights
    generic = minimize(
        value,
        np.full(p, 0.1),
        bounds=[(0, None)] * p,
        method="L-BFGS-B",
        options={"ftol": 1e-15},
    )
    assert value(mu) == pytest.approx(generic.fun, rel=GENERIC)
    assert value(mu) <= generic.fun + 1e-9


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_the_single_stage_svm_agrees_with_a_generic_solver(C):
    grams, target = problem(16)
    K, m, p = grams.grams, grams.n_rows, grams.n_kernels
    Y, support = (
        target.Y - target.Y.mean(axis=0),
        SupportVectorProblem(grams, target, C),
    )
    a = np.array([np.vdot(Y, k @ Y) for k in K]) / (m * (Y**2).sum())
    M = np.array([[np.vdot(k, other) for other in K] for k in K]) / m**2

    def value(mu):  # both classes have half of the rows
        return support.at(mu).objective / (4 * C * m / 2) - 2.0 * mu @ a + mu @ M @ mu

    solution = learners.SingleStageSVM(gamma=2.0).solve(grams, target, C)
    assert solution.certificate.residual <= 1e-6
    generic = minimize(
        value, solution.weights + 0.05, bounds=[(1e-9, None)] * p, method="L-BFGS-B"
    )
    assert value(solution.weights) <= generic.fun + 1e-6


def logistic_value(
    K: np.ndarray, y: np.ndarray, C: float, intercept: bool = True
) -> float:
    """Return the optimal value of kernel logistic regression by a generic solver, over the roots of a kernel."""
    eigenvalues, U = np.linalg.eigh(K)
    Z = U * np.sqrt(np.maximum(eigenvalues, 0.0))

    def value_and_gradient(parameters):
        w, b = parameters[:-1], parameters[-1] * intercept
        margins = y * (Z @ w + b)
        slopes = -2 * C * y * expit(-margins)
        value = w @ w + 2 * C * np.logaddexp(0, -margins).sum()
        return value, np.append(2 * w + Z.T @ slopes, slopes.sum() * intercept)

    found = minimize(
        value_and_gradient,
        np.zeros(len(y) + 1),
        jac=True,
        method="BFGS",
        options={"gtol": 1e-9},
    )
    return float(found.fun)


@pytest.mark.parametrize("centering", ["center", "none"])
@pytest.mark.parametrize("C", [1e-3, 0.5, 30.0])
def test_logistic_regressions_have_the_values_and_derivatives_of_generic_solvers(
    C, centering
):
    stacked, target = problem(16, m=30)
    grams = StackedGrams(stacked.grams, Centering(centering))
    inner = LogisticProblem(grams, target, C)
    y, mu = target.Y[:, 0], np.array([0.3, 0.0, 0.5, 0.2])
    found = inner.at(mu)
    expected = logistic_value(grams.combine(mu), y, C, centering == "center")
    assert found.objective == pytest.approx(expected, rel=1e-7)
    assert found.constant - mu @ found.forms == pytest.approx(found.objective, rel=1e-9)
    if centering == "center":
        assert abs(found.dual.sum()) <= 1e-9 * C * len(y)
    h = 1e-5
    units = np.eye(4)
    moved = [
        [
            inner.at(mu + h * unit),
            inner.at(np.maximum(mu - h * unit, 0.0) if mu @ unit else mu),
        ]
        for unit in units
    ]
    H = found.hessian(np.arange(4))
    for k, unit in enumerate(units):
        width = 2 * h if mu @ unit else h
        slope = (moved[k][0].objective - moved[k][1].objective) / width
        assert slope == pytest.approx(-found.forms[k], rel=1e-3, abs=1e-8 * expected)
        change = -(moved[k][0].forms - moved[k][1].forms) / width
        np.testing.assert_allclose(change, H[k], rtol=1e-2, atol=1e-4 * np.abs(H).max())
    zero = logistic_value(np.zeros((30, 30)), y, C, centering == "center")
    assert inner.zero_value() == pytest.approx(zero, rel=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_the_single_stage_logistic_agrees_with_a_generic_solver(C, classes):
    grams, target = problem(16, classes=classes)
    K, m, p = grams.grams, grams.n_rows, grams.n_kernels
    Y = target.Y - target.Y.mean(axis=0)
    a = np.array([np.vdot(Y, k @ Y) for k in K]) / (m * (Y**2).sum())
    M = np.array([[np.vdot(k, other) for other in K] for k in K]) / m**2
    inner = LogisticProblem(grams, target, C)

    def value(mu):
        return inner.at(mu).objective / inner.zero_value() - 2.0 * mu @ a + mu @ M @ mu

    solution = learners.SingleStageLogistic(gamma=2.0).solve(grams, target, C)
    assert solution.certificate.residual <= 1e-6
    generic = minimize(
        value, solution.weights + 0.05, bounds=[(0, None)] * p, method="L-BFGS-B"
    )
    assert value(solution.weights) <= generic.fun + 1e-6


def test_logistic_regressions_bound_their_value_where_newtons_method_is_stopped(
    monkeypatch,
):
    """The dual point of a fit that did not converge is made feasible, so that its value is below the optimum."""
    grams, target = problem(16, m=30)
    y, K = target.Y[:, 0], grams.combine(np.full(4, 0.25))
    expected = logistic_value(K, y, 30.0)
    for steps in (1, 2, 3):
        monkeypatch.setattr(logistic, "MOST_STEPS", steps)
        fit = logistic.fit_logistic(K, y, 30.0, has_intercept=True)
        assert abs(fit.beta.sum()) <= 1e-9
        assert ((y * fit.beta >= 0) & (y * fit.beta <= 30.0)).all()
        assert fit.dual - fit.beta @ K @ fit.beta <= expected * (1 + 1e-9)
        assert fit.primal >= expected * (1 - 1e-9)


def test_logistic_regression_refuses_what_it_cannot_fit():
    grams, target = problem()
    numbers = Target("regression", np.arange(32.0))
    negative = StackedGrams(-10 * grams.grams)
    learner = learners.SingleStageLogistic()
    require_refusals(
        [
            (partial(learner.solve, grams, numbers, 1.0), "needs a classification"),
            (partial(learner.solve, grams, target, 0.0), "C must be a positive"),
        ]
    )
    with pytest.raises(ArithmeticError, match="far from positive semi-definite"):
        LogisticProblem(negative, target, 10.0).at(np.ones(4))


@pytest.mark.parametrize("learner", [SingleStage, learners.SingleStageSVM])
def test_constrained_kernels_align_as_much_as_is_asked_and_none_of_these_fits_better(
    learner,
):
    grams, target = problem(3, m=40)
    K, Y, p = grams.grams, target.Y, grams.n_kernels
    free = learner(least_alignment=0.0).solve(grams, target, 1.0)
    said = refusal(learner(least_alignment=1.0).solve, grams, target)
    highest = float(said.split("at most ")[1].split(",")[0])
    inner = RidgeProblem if learner is SingleStage else SupportVectorProblem

    def value(mu):
        return inner(grams, target, 1.0).at(np.maximum(mu, 0.0)).objective

    def alignment_of(mu):
        return centered_alignment(np.tensordot(mu, K, axes=1), Y @ Y.T)

    assert alignment_of(free.weights) < 0.97 * highest
    for share in (0.97, 0.995):
        found = learner(least_alignment=share * highest).solve(grams, target, 1.0)
        mu = found.weights
        assert found.certificate.residual <= 1e-6
        assert np.linalg.norm(mu) == pytest.approx(1.0, rel=1e-9)
        # The constraint is active
        assert alignment_of(mu) == pytest.approx(share * highest, rel=1e-6)
        aligned = {
            "type": "ineq",
            "fun": lambda mu, share=share: alignment_of(mu) - share * highest,
        }
        ball = {"type": "ineq", "fun": lambda mu: 1 - mu @ mu}
        generic = minimize(
            value,
            mu,
            bounds=[(0, None)] * p,
            method="SLSQP",
            constraints=[aligned, ball],
        )
        assert value(mu) <= generic.fun * (1 + 2e-6)
        assert value(mu) >= free.certificate.objectives[-1]


@pytest.mark.parametrize("center", [0.0, 1.0, (0.5, 0.0, 0.2, 1.0)])
def test_iterations_as_printed_end_where_newtons_method_does(center):
    grams, target = problem(5, m=40)
    for C in (0.1, 10.0):
        newton, printed = (
            L2KRR(center=center, radius=2.0, algorithm=algorithm, tol=1e-9).solve(
                grams, target, C
            )
            for algorithm in ("newton", "as-printed")
        )
        # Some roots of the gap
        np.testing.assert_allclose(printed.weights, newton.weights, rtol=0, atol=5e-4)
        assert printed.certificate.iterations <= 20  # the paper counts 10 to 15
        assert (printed.weights >= L2KRR(center=center).ball(4).center).all()


# Bad input -----------------------------------------------------------------------------------------------------------


def test_bad_parameters_and_targets_get_one_sentence():
    (grams, target), numbers = problem(), Target("regression", np.arange(32.0))
    wrong = [
        (L2KRR(), target, 0.0, "C must be a positive"),
        (L1SVM(), target, -1.0, "C must be a positive"),
    ]
    wrong.append((L1SVM(), numbers, 1.0, "needs a classification"))
    require_refusals(
        (partial(learner.solve, grams, of, C), said) for learner, of, C, said in wrong
    )


# Kernels of low rank -------------------------------------------------------------------------------------------------


def features(
    seed: int, m: int = 80, p: int = 6, classes: int = 2
) -> tuple[StackedGrams, Target]:
    """Rank-one kernels on which no machine has as many free rows as it needs, and classes that overlap."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, size=(m, p)) - 1.0
    score = X[:, 0] + X[:, 1] + 1.5 * rng.normal(size=m)
    Z = X - X.mean(axis=0)
    return classified(np.einsum("ik,jk->kij", Z, Z), score, classes)


LOW_RANK = [(L1SVM(), 2.0**-6, 3), (L1SVM(), 2.0**14, 2), (LpSVM(norm=1.5), 1.0, 2)]
LOW_RANK += [
    (LpSVM(norm=1.5), 2.0**14, 3),
    (LpSVM(norm=2.0), 64.0, 2),
    (LpSVM(norm=2.0), 2.0**14, 3),
]


@pytest.mark.parametrize(("learner", "C", "classes"), LOW_RANK, ids=str)
def test_machines_on_kernels_of_low_rank_are_certified_for_any_C(learner, C, classes):
    grams, target = features(18, classes=classes)
    solution = learner.solve(grams, target, C)
    assert solution.certificate.residual <= 1e-6
    assert solution.certificate.iterations <= 150


def test_interior_points_give_the_machine_of_scikit_learn():
    grams, target = problem(19, m=50)
    K, y = grams.combine(np.full(4, 0.25)), target.Y[:, 0]
    for C in (0.1, 3.0, 300.0):
        _, dual, _ = weights_by_interior_point(
            StackedGrams(K[None]), [(np.arange(50), y)], C, 1.0, np.arange(1), 1e-10
        )
        a = y * dual[:, 0]
        machine = SVC(kernel="precomputed", C=C, tol=1e-9).fit(K, y)
        expected = np.zeros(len(y))
        expected[machine.support_] = np.abs(machine.dual_coef_[0])
        assert (a >= 0).all()
        assert (a <= C * (1 + 1e-12)).all()
        assert abs(y @ a) <= 1e-9 * C
        # scikit-learn's tolerance times the condition of the kernel on the free rows.
        np.testing.assert_allclose(a, expected, rtol=0, atol=1e-5 * C)


def test_classes_that_no_weight_separates_have_a_machine_at_its_bounds():
    X = np.tile([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]], (5, 1))
    y = np.tile([-1.0, -1.0, 1.0, 1.0], 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for learner in ("lp-svm", "l1-svm"):
            kernel = learn_kernel(X, y, learner=learner, family=LinearFamily())
            assert kernel.certificate.residual <= 1e-12
    grams = StackedGrams(center_gram(X @ X.T)[None])
    _, dual, _ = weights_by_interior_point(
        grams, [(np.arange(20), y)], 2.0, 1.0, np.arange(1), 1e-10
    )
    np.testing.assert_allclose(dual[:, 0], 2.0 * y, rtol=1e-6)


def test_base_kernels_join_the_working_set_while_their_form_is_larger(monkeypatch):
    grams, target = features(21, p=9)
    whole = L1SVM().solve(grams, target, C=1.0)
    for module in ("learners.norm_ball", "solvers.minimax"):
        monkeypatch.setattr(f"learnkernels.kernels.{module}.WORKING_SET", 2)
    by_working_sets = L1SVM().solve(grams, target, C=1.0)
    assert by_working_sets.certificate.residual <= 1e-6
    assert by_working_sets.certificate.objectives[-1] == pytest.approx(
        whole.certificate.objectives[-1], rel=1e-6
    )


def test_an_extrapolation_of_a_linear_map_is_its_fixed_point():
    rng = np.random.default_rng(5)
    A = rng.normal(size=(3, 3)) / 4
    b = rng.normal(size=3)
    fixed_point = np.linalg.solve(np.eye(3) - A, b)
    points = [rng.normal(size=3)]
    for _ in range(3):
        points.append(A @ points[-1] + b)
    steps = [(x, A @ x + b) for x in points]
    np.testing.assert_allclose(extrapolated(steps), fixed_point, rtol=1e-8)
    # Equal steps say nothing of the map; the last image remains.
    np.testing.assert_array_equal(extrapolated([steps[0]] * 3), steps[0][1])


@pytest.mark.parametrize("norm", [1.5, 2.0, 3.0])
def test_extrapolated_steps_reach_the_same_weights_in_fewer_solutions(
    norm, monkeypatch
):
    rng = np.random.default_rng(6)
    Z = sparse.random(120, 300, density=0.1, random_state=rng, format="csr")
    grams = FeatureGrams(Z, Centering.NONE)
    y = Z @ np.where(np.arange(300) < 20, 1.0, 0.0) + rng.normal(size=120) / 10
    problem_at = RidgeProblem(grams, Target.of(y, "regression"), 10.0).at
    ball = Ball(np.full(300, 0.06), 2.0, norm)
    solved = {}
    for extrapolates in (True, False):
        if not extrapolates:
            monkeypatch.setattr(Ball, "extrapolates", False)
        assert ball.extrapolates == extrapolates
        start = ball.start(300)
        mu, certificate, _ = solve_minimax(problem_at, ball, start, 1e-9, 200)
        assert certificate.residual <= 1e-9
        assert (mu >= ball.center).all()
        assert np.linalg.norm(mu - ball.center, norm) <= 2.0 * (1 + 1e-12)
        solved[extrapolates] = mu, certificate
    with_steps, without_steps = solved[True], solved[False]
    assert with_steps[1].iterations < without_steps[1].iterations
    assert with_steps[1].objectives[-1] == pytest.approx(
        without_steps[1].objectives[-1], rel=1e-9
    )
    # Weights differ by the root of a gap, relative to the radius.
    np.testing.assert_allclose(with_steps[0], without_steps[0], atol=1e-3)


@pytest.mark.parametrize("learner", [L1KRR(), L2KRR()], ids=str)
def test_kernels_that_are_not_positive_semi_definite_are_named(learner):
    grams, target = problem(22)
    A = np.random.default_rng(0).normal(size=grams.grams.shape[1:])
    with_one = StackedGrams(np.stack([grams.grams[0], center_gram(A + A.T)]))
    named = "base kernel 2 of 2 is not positive semi-definite; leave it out."
    with pytest.warns(ConvergenceWarning, match=named):  # the gap stays
        learner.solve(with_one, target, 0.1)
    with pytest.raises(ValueError, match=named):  # there is no factor
        learner.solve(with_one, target, 1.0)


INDEFINITE = ("a gap below zero", "no sign", "the negative of a kernel")


@pytest.mark.parametrize("kind", INDEFINITE)
@pytest.mark.parametrize("normalize", ["trace", "frobenius"])
@pytest.mark.parametrize(
    "name",
    [name for name, learner in LEARNERS.items() if issubclass(learner, JointLearner)],
)
def test_one_stage_learners_solve_or_name_a_matrix_that_is_not_positive_semi_definite(
    name, normalize, kind
):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=60) > 0, "a", "b")
    squares = ((X[:, None] - X) ** 2).sum(axis=2)
    A = rng.normal(size=(60, 60))
    matrix = {
        "a gap below zero": np.exp(-0.5 * squares) - 0.02 * np.eye(60),
        "no sign": A + A.T,
        "the negative of a kernel": -np.exp(-0.5 * squares),
    }[kind]
    family = PrecomputedFamily(np.stack([np.exp(-0.1 * squares), matrix, X @ X.T]))
    learn = partial(
        learn_kernel,
        family.X,
        y,
        learner=name,
        family=family,
        C=1.0,
        normalize=normalize,
    )
    named = "base kernel 2 of 3 is not positive semi-definite; leave it out."
    sentences = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            assert np.isfinite(learn().weights).all()
        except ValueError as error:
            sentences.append(str(error))
    assert sentences in ([], [named])
    assert all(str(warning.message).endswith(named) for warning in caught)
    # No weights solve these problems
    if kind == "no sign" and name in (
        "easymkl",
        "l1-svm",
        "nkrr",
    ):
        assert sentences


def test_a_hessian_that_rounding_made_indefinite_gives_a_candidate_all_the_same():
    H, v = (
        np.array([[2.0, -1.0, 1.0], [-1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]),
        np.array([5.0, 8.0, 7.0]),
    )
    assert np.linalg.eigvalsh(H)[0] < 0
    inner = InnerSolution(
        0.0,
        0.0,
        v,
        np.zeros((4, 1)),
        lambda kernels: H[np.ix_(kernels, kernels)].copy(),
    )
    for candidate in Ball(np.zeros(3)).candidates(np.array([1.0, 0.0, 0.0]), inner):
        assert (candidate >= 0).all()
        # Of a linear system of four rows
        assert candidate.sum() == pytest.approx(1.0, rel=1e-12)


# Balls cut by the orthant: projections meet the conditions that single them out, and
# the linear minimum its bound ----


NORMS = [1, 2]
# Of the point's distance from the set: sums of a few squares, and a root.
ROUNDING = 1e-12


@st.composite
def problems(draw):
    """Return a point, a center and a radius; entries repeat, vanish, and differ by orders of magnitude."""
    p = draw(st.integers(1, 8))
    size = draw(st.sampled_from([1.0, 1e-3, 1e4]))
    entry = st.one_of(
        st.sampled_from([0.0, 1.0, -1.0, 0.5]), st.floats(-3, 3, allow_subnormal=False)
    )
    z = size * np.array(draw(st.lists(entry, min_size=p, max_size=p)))
    mu_0 = np.abs(draw(st.lists(entry, min_size=p, max_size=p)))
    return z, mu_0, draw(st.sampled_from([1e-3, 0.3, 1.0, 2.5, 40.0]))


@settings(max_examples=100)
@given(problems())
def test_projections_are_in_the_set_and_meet_the_optimality_conditions(problem):
    z, _, radius = problem
    z = np.abs(z)
    size = radius + z.max()
    for norm in NORMS:
        nu = project(z, radius, norm)
        assert (nu >= 0).all()
        assert np.linalg.norm(nu, norm) <= radius * (1 + ROUNDING)
        np.testing.assert_allclose(
            project(nu, radius, norm), nu, rtol=0, atol=ROUNDING * radius
        )
        # The largest product of a point of the set with what is left is that of the
        # projection itself.
        left = z - nu
        bound = radius * np.linalg.norm(np.maximum(left, 0), np.inf if norm == 1 else 2)
        assert bound - left @ nu <= ROUNDING * size**2


def test_far_points_keep_the_radius():
    z = np.array([3e150, 2e150, 0.0])
    # The 1-norm moves the largest entry alone; the 2-norm moves all in proportion.
    for norm, expected in ((1, [1.0, 0.0, 0.0]), (2, z / np.hypot(3e150, 2e150))):
        np.testing.assert_allclose(project(z, 1.0, norm), expected, rtol=0, atol=1e-14)


@settings(max_examples=60)
@given(problems())
def test_the_linear_minimum_meets_the_bound_of_hoelder(problem):
    z, mu_0, radius = problem
    g = -np.abs(z)
    for norm in NORMS:
        mu = minimize_linear(g, mu_0, radius, norm)
        assert (mu >= 0).all()
        assert (
            np.linalg.norm(mu - mu_0, norm)
            <= radius * (1 + 1e-13) + 1e-15 * np.abs(mu_0).max()
        )
        bound = g @ mu_0 - radius * np.linalg.norm(g, np.inf if norm == 1 else 2)
        assert g @ mu == pytest.approx(bound, rel=1e-13)
