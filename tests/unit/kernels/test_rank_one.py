"""Rank-one kernels with weights of bounded sum as a lasso: against the general solver, generic ones, and conditions."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog, minimize_scalar
from sklearn.exceptions import ConvergenceWarning

from learnkernels import FeatureFamily, learn_kernel
from learnkernels.kernels.engine.operators import FeatureGrams, StackedGrams
from learnkernels.kernels.learners import L1KRR, L1SVM, L2KRR, LpKRR, LpSVM
from learnkernels.kernels.solvers import lasso
from learnkernels.kernels.solvers.lasso import ridge_weights, svm_weights
from learnkernels.kernels.solvers.ridge import RidgeProblem
from learnkernels.kernels.solvers.svm import SupportVectorProblem
from learnkernels.kernels.targets import Target

TALL, WIDE = (70, 12), (40, 90)
CROSSED = [
    (TALL, "sparse", 1 / 64, True),
    (TALL, "dense", 1.0, False),
    (TALL, "sparse", 100.0, False),
]
CROSSED += [
    (WIDE, "dense", 1 / 64, False),
    (WIDE, "sparse", 1.0, True),
    (WIDE, "dense", 100.0, True),
]
"""Rows and features, kind of matrix, regularization, and whether the radius is one, or the classes of equal size."""


def features(seed: int, m: int, p: int, *, kind: str = "sparse") -> FeatureGrams:
    """Counts of few features a row, of mean diagonal one once centered."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.4, size=(m, p)).astype(np.float64)
    X[rng.integers(0, m, size=p), np.arange(p)] += 1.0  # no feature is constant
    Z = X / X.std(axis=0)
    return FeatureGrams(
        sparse.csr_matrix(Z) if kind == "sparse" else Z - Z.mean(axis=0)
    )


def centered(grams: FeatureGrams) -> np.ndarray:
    Z = grams.Z.toarray() if sparse.issparse(grams.Z) else grams.Z
    return Z - Z.mean(axis=0)


def numbers(grams: FeatureGrams, seed: int, noise: float = 0.5) -> Target:
    rng = np.random.default_rng(seed)
    Z = centered(grams)
    return Target(
        "regression",
        Z[:, :5] @ rng.normal(size=5) + noise * rng.normal(size=len(Z)) + 3.0,
    )


def labels(
    grams: FeatureGrams, seed: int, *, share: float = 0.5, noise: float = 1.0
) -> Target:
    y = numbers(grams, seed, noise).values
    return Target(
        "classification", (y > np.quantile(y, share)).astype(np.intp), ("no", "yes")
    )


def regression(seed: int, *shape: int, **options: str) -> tuple[FeatureGrams, Target]:
    grams = features(seed, *shape, **options)
    return grams, numbers(grams, seed + 1)


def classification(
    seed: int, *shape: int, **options: str
) -> tuple[FeatureGrams, Target]:
    grams = features(seed, *shape, **options)
    return grams, labels(grams, seed + 1)


def matrices(grams: FeatureGrams) -> StackedGrams:
    Z = centered(grams)
    K = np.einsum("ik,jk->kij", Z, Z)
    return StackedGrams((K + K.transpose(0, 2, 1)) / 2)


def ridge(grams: FeatureGrams, target: Target, C: float, radius: float = 1.0, **params):
    y = target.Y[:, 0] - target.Y[:, 0].mean()
    params = {"start": None, "tolerance": 1e-6, "max_iter": 200, **params}
    return ridge_weights(grams, y, 1 / C, radius, **params)


def machine(
    grams: FeatureGrams, target: Target, C: float, radius: float = 1.0, **params
):
    return svm_weights(
        grams,
        target.Y[:, 0],
        C,
        radius,
        **{"tolerance": 1e-6, "max_iter": 200, **params},
    )


# Ridge regression ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "kind", "C", "unit"), CROSSED)
def test_ridge_meets_the_conditions_of_the_minimax_problem(shape, kind, C, unit):
    """The forms of the dual are largest, and alike, where weights are not zero: with that the weights are optimal."""
    (grams, target), radius = regression(1, *shape, kind=kind), 1.0 if unit else 0.3
    mu, certificate = ridge(grams, target, C, radius)
    Z, y = centered(grams), target.Y[:, 0] - target.Y[:, 0].mean()
    alpha = np.linalg.solve((Z * mu) @ Z.T + np.eye(len(y)) / C, y)
    forms = (Z.T @ alpha) ** 2
    assert certificate.residual <= 1e-11  # the last step is exact
    assert mu.sum() == pytest.approx(radius, rel=1e-12)
    np.testing.assert_allclose(forms[mu > 1e-9 * radius], forms.max(), rtol=1e-6)
    assert certificate.objectives[-1] == pytest.approx(y @ alpha, rel=1e-9)
    assert (np.diff(certificate.objectives) <= 0).all()


@pytest.mark.parametrize("shape", [TALL, WIDE])
def test_central_path_and_active_sets_agree(monkeypatch, shape):
    grams, target = regression(7, *shape)
    found = []
    monkeypatch.setattr(lasso, "FEW_ACTIVE", np.inf)
    for passes in (200, 0):
        monkeypatch.setattr(lasso, "FEW_PASSES", passes)
        found.append(ridge(grams, target, 4.0))
    assert all(certificate.residual <= 1e-11 for _, certificate in found)
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=0, atol=1e-8)


def test_a_neighboring_solution_is_a_start_that_saves_passes():
    grams, target = regression(9, 120, 300)
    cold, before = ridge(grams, target, 0.1)
    warm, certificate = ridge(grams, target, 0.1, start=ridge(grams, target, 0.09)[0])
    np.testing.assert_allclose(warm, cold, rtol=0, atol=1e-8)
    assert certificate.iterations < before.iterations


@pytest.mark.parametrize("shape", [TALL, WIDE])
def test_a_gap_holds_wherever_the_solver_stops(shape):
    for solve, (grams, target) in (
        (ridge, regression(13, *shape)),
        (machine, classification(13, *shape)),
    ):
        minimum = solve(grams, target, 10.0)[1].objectives[-1]
        for most in (1, 2, 5, 9):
            _, certificate = solve(grams, target, 10.0, max_iter=most)
            value = certificate.objectives[-1]
            assert certificate.iterations <= most
            assert value * (1 - certificate.residual) <= minimum * (1 + 1e-9)
            assert minimum <= value * (1 + 1e-9)


# Machines ------------------------------------------------------------------------------------------------------------


def widest(Z: np.ndarray, y: np.ndarray, C: float) -> float:
    """The minimum of the machine's problem: a linear program for each 1-norm, and the best of those."""
    m, p = Z.shape

    def at(norm):
        # Unknown: the two parts of w, b, and the losses.
        rows = np.column_stack([-y[:, None] * Z, y[:, None] * Z, -y, -np.eye(m)])
        rows = np.vstack([rows, np.concatenate([np.ones(2 * p), np.zeros(m + 1)])])
        cost = np.concatenate([np.zeros(2 * p + 1), np.full(m, 2 * C)])
        bounds = [(0, None)] * (2 * p) + [(None, None)] + [(0, None)] * m
        result = linprog(
            cost,
            A_ub=rows,
            b_ub=np.append(-np.ones(m), norm),
            bounds=bounds,
            method="highs",
        )
        return norm**2 + result.fun

    most = np.sqrt(2 * C * m)
    return float(
        minimize_scalar(
            at, bounds=(0, most), method="bounded", options={"xatol": 1e-10 * most}
        ).fun
    )


@pytest.mark.parametrize(("shape", "kind", "C", "equal"), CROSSED)
def test_machines_agree_with_linear_programs(shape, kind, C, equal):
    grams = features(15, *shape, kind=kind)
    target = labels(grams, 16, share=0.5 if equal else 0.85)
    mu, certificate = machine(grams, target, C)
    expected = widest(centered(grams), target.Y[:, 0], C)
    assert certificate.residual <= 1e-8
    assert certificate.objectives[-1] == pytest.approx(expected, rel=1e-6)
    assert (np.diff(certificate.objectives) <= 0).all()
    # The weights themselves: the machine at mu has the value that the certificate is
    # of.
    own = SupportVectorProblem(matrices(grams), target, C).at(mu).objective
    assert own == pytest.approx(expected, rel=1e-6)
    assert mu.sum() == pytest.approx(1.0, rel=1e-12)
    assert (mu >= 0).all()


@pytest.mark.parametrize("shape", [TALL, WIDE])
def test_a_radius_scales_the_machine(shape):
    """With weights of sum r, kernels count r times: the same problem as features scaled by the root of r."""
    grams, target = classification(19, *shape)
    mu, certificate = machine(grams, target, 2.0, radius=0.25)
    scaled, other = machine(FeatureGrams(grams.Z * 0.5), target, 2.0)
    assert certificate.objectives[-1] == pytest.approx(other.objectives[-1], rel=1e-8)
    # The root of the gap
    np.testing.assert_allclose(mu, 0.25 * scaled, rtol=0, atol=1e-5)


def test_classes_that_features_separate_have_a_machine_for_any_C():
    for C in (100.0, 2.0**14):
        mu, certificate = machine(*classification(21, 60, 300), C)
        assert certificate.residual <= 1e-6
        assert np.count_nonzero(mu) <= 60  # a vertex: no more than rows


# Symmetries and special features -------------------------------------------------------------------------------------


SOLVED = [
    (ridge, 1 / 64, "dense"),
    (ridge, 100.0, "sparse"),
    (machine, 1 / 64, "sparse"),
    (machine, 100.0, "dense"),
]


@pytest.mark.parametrize(("solve", "C", "kind"), SOLVED)
def test_copies_and_constants_among_features_change_nothing_but_the_split(
    solve, C, kind
):
    grams, target = classification(25, 50, 20, kind=kind)
    plain, certificate = solve(grams, target, C)
    blocks = [grams.Z, grams.Z, np.full((50, 1), 0.0)]
    Z = sparse.hstack(blocks).tocsr() if kind == "sparse" else np.hstack(blocks)
    mu, other = solve(FeatureGrams(Z), target, C)
    assert other.residual <= 1e-8
    assert other.objectives[-1] == pytest.approx(certificate.objectives[-1], rel=1e-8)
    assert mu[40] == 0
    # The root of the gap
    np.testing.assert_allclose(mu[:20] + mu[20:40], plain, rtol=0, atol=1e-4)


def test_features_of_no_use_leave_equal_weights_and_are_certified():
    Z = np.array([[1.0, 1, -1, -1], [1, -1, 0, 0]]).T
    mu, certificate = ridge_weights(
        FeatureGrams(Z), np.zeros(4), 1.0, 1.0, None, 1e-6, 200
    )
    np.testing.assert_array_equal(mu, [0.5, 0.5])
    assert certificate.residual == 0
    # Exclusive or: no direction separates, and the best machine says the same of each
    # row.
    Z = np.tile([[1.0, 1], [1, -1], [-1, 1], [-1, -1]], (3, 1))
    mu, certificate = svm_weights(
        FeatureGrams(Z), np.tile([1.0, -1, -1, 1], 3), 2.0, 1.0, 1e-6, 200
    )
    assert certificate.residual <= 1e-6
    assert certificate.objectives[-1] == pytest.approx(2 * 2.0 * 12, rel=1e-6)
    assert mu.sum() == pytest.approx(1.0)


# Learners ------------------------------------------------------------------------------------------------------------


def test_norm_one_of_the_general_learners_is_the_same_problem():
    ridge, svm = regression(29, 40, 90), classification(29, 40, 90)
    for general, special, given in (
        (LpKRR(norm=1.0), L1KRR(), ridge),
        (LpSVM(norm=1.0), L1SVM(), svm),
    ):
        np.testing.assert_array_equal(
            general.solve(*given).weights, special.solve(*given).weights
        )


def test_several_targets_and_classes_are_solved_as_before():
    grams = features(31, 40, 8)
    rng = np.random.default_rng(32)
    target = Target(
        "regression",
        centered(grams)[:, :2] @ rng.normal(size=(2, 3)) + rng.normal(size=(40, 3)),
    )
    three = Target("classification", rng.integers(0, 3, size=40), ("a", "b", "c"))
    for learner, y in ((L1KRR(), target), (L1KRR(), three), (L1SVM(), three)):
        rank, general = (
            learner.solve(given, y).certificate for given in (grams, matrices(grams))
        )
        assert rank.objectives[-1] == pytest.approx(general.objectives[-1], rel=2e-6)


def test_stopping_short_warns_with_the_gap_reached():
    for learner, (grams, target) in (
        (L1KRR, regression(33, 60, 300)),
        (L1SVM, classification(33, 60, 300)),
    ):
        with pytest.warns(
            ConvergenceWarning,
            match="stopped after 2 iterations at a relative duality gap of",
        ):
            assert not learner(max_iter=2).solve(grams, target).certificate.converged


def test_a_learned_kernel_of_features_leaves_constant_ones_out():
    rng = np.random.default_rng(35)
    X = sparse.csr_matrix(rng.poisson(0.3, size=(60, 300)) * 1.0)
    X = sparse.hstack([X, sparse.csr_matrix(np.full((60, 1), 2.0))]).tocsr()
    y = np.where(np.asarray(X[:, :4].sum(axis=1)).ravel() > 1, "yes", "no")
    for learner in ("l1-krr", "l1-svm"):
        kernel = learn_kernel(X, y, learner=learner, family=FeatureFamily(301), C=1.0)
        assert kernel.weights[300] == 0
        assert kernel.certificate.residual <= 1e-6


# Ridge regression in balls of other norms -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("m", "p", "C"), [(60, 8, 30.0), (60, 40, 0.1), (30, 90, 30.0)]
)
def test_a_ridge_regression_on_features_is_that_on_matrices(m, p, C):
    target, mu = (
        numbers(features(1, m, p), 2),
        np.random.default_rng(1).uniform(0, 1, p),
    )
    mu[1] = 0.0
    expected = RidgeProblem(matrices(features(1, m, p)), target, C).at(mu)
    for kind in ("dense", "sparse"):
        found = RidgeProblem(features(1, m, p, kind=kind), target, C).at(mu)
        # Rounding, times a condition of at most 1e5.
        assert found.objective == pytest.approx(expected.objective, rel=1e-10)
        assert found.constant == pytest.approx(expected.constant, rel=1e-10)
        np.testing.assert_allclose(
            found.forms, expected.forms, rtol=1e-7, atol=1e-9 * expected.forms.max()
        )
        np.testing.assert_allclose(
            found.dual, expected.dual, rtol=0, atol=1e-9 * np.abs(expected.dual).max()
        )
        kernels = np.array([0, 3, 5])
        np.testing.assert_allclose(
            found.hessian(kernels), expected.hessian(kernels), rtol=1e-7, atol=1e-8
        )


BALLS = [
    (60, 8, 0.0, 10.0),
    (60, 40, 1.0, 0.1),
    (30, 90, 0.0, 0.1),
    (30, 90, 1.0, 10.0),
]


@pytest.mark.parametrize(("m", "p", "center", "C"), BALLS)
def test_l2_krr_on_features_has_the_weights_of_matrices(m, p, center, C):
    target, learner = numbers(features(3, m, p), 4), L2KRR(center=center, tol=1e-11)
    expected = learner.solve(matrices(features(3, m, p)), target, C)
    for kind in ("dense", "sparse"):
        found = learner.solve(features(3, m, p, kind=kind), target, C)
        assert found.certificate.converged
        # A gap of 1e-11 is a distance of its root.
        np.testing.assert_allclose(found.weights, expected.weights, rtol=0, atol=1e-5)
        assert found.certificate.objectives[-1] == pytest.approx(
            expected.certificate.objectives[-1], rel=1e-10
        )


@pytest.mark.parametrize("norm", [1.2, 1.5, 2.0, 4.0, np.inf])
def test_lp_krr_on_features_reaches_its_tolerance_in_few_factors(norm):
    for p, C in ((40, 10.0), (300, 0.1), (300, 10.0)):
        certificate = LpKRR(norm=norm).solve(*regression(5, 80, p), C).certificate
        assert certificate.converged
        assert certificate.residual <= 1e-6
        assert certificate.iterations <= 60
