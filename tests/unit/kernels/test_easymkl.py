"""EasyMKL: the optimum of its quadratic program, what its weights are, and what they do not depend on."""

from itertools import combinations

import numpy as np
import pyarrow.parquet
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from learnkernels import FeatureFamily, GaussianFamily, gram_moments
from learnkernels.kernels.engine.operators import GramOperator, StackedGrams, gram_operator
from learnkernels.kernels.families import KernelFamily
from learnkernels.kernels.learners import LEARNERS, EasyMKL, easymkl
from learnkernels.kernels.solvers.svm import Machine
from learnkernels.kernels.targets import Target
from tests.reference import centered, gaussian, grams

TRADEOFFS = [0.0, 0.2, 0.5, 0.9, 1.0]

# The solution is exact to rounding times the condition of the support's kernel, 1e3 or so.
EXACT = 1e-10

# What a generic solver of quadratic programs reaches.
GENERIC = 1e-5


def operator_of(family: KernelFamily, X: np.ndarray, target: Target, **given) -> GramOperator:
    """Return base kernels of mean diagonal one each."""
    moments = gram_moments(family, X, target.Y)
    scales = moments.centered_traces / len(X)
    return gram_operator(family, X - moments.origin, shift=moments.shift, scales=scales, **given)


def problem(n_classes: int = 2, m: int = 21, seed: int = 0) -> tuple[np.ndarray, Target]:
    """Return three centered matrices of mean diagonal one, by an oracle, and classes that overlap."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 3))
    labels = np.arange(m) % n_classes
    X[:, 0] += labels
    X[:, 1] -= 0.4 * labels**2
    Ks = np.stack([centered(K).astype(float) for K in grams([gaussian(gamma) for gamma in (0.1, 0.6, 3.0)], X)])
    Ks = (Ks + Ks.transpose(0, 2, 1)) / 2
    return Ks / (np.trace(Ks, axis1=1, axis2=2) / m)[:, None, None], Target.of(np.array(list("abc"))[labels])


def generic_solution(K: np.ndarray, y: np.ndarray, tradeoff: float) -> tuple[np.ndarray, float]:
    """Return the minimiser over the two simplices and its value, by a solver that knows no machines."""
    Q = (1 - tradeoff) * np.outer(y, y) * K + tradeoff * np.eye(len(y))
    unit = np.trace(Q) / len(Q) / len(y)
    found = minimize(
        lambda gamma: gamma @ Q @ gamma / unit,
        np.where(y > 0, 1 / (y > 0).sum(), 1 / (y < 0).sum()),
        jac=lambda gamma: 2 * Q @ gamma / unit,
        bounds=[(0, 1)] * len(y),
        constraints=[
            {"type": "eq", "fun": lambda gamma, held=held: gamma[held].sum() - 1, "jac": lambda gamma, held=held: held}
            for held in (y > 0, y < 0)
        ],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert found.success
    return found.x, found.fun * unit


def generic_weights(Ks: np.ndarray, target: Target, tradeoff: float) -> tuple[np.ndarray, float]:
    """Return weights of sum one and the sum of the minima, over all pairs of classes."""
    forms, values = np.zeros(len(Ks)), 0.0
    for first, second in combinations(range(len(target.classes)), 2):
        rows = np.flatnonzero(np.isin(target.values, [first, second]))
        y = np.where(target.values[rows] == second, 1.0, -1.0)
        parts = Ks[:, rows][:, :, rows]
        gamma, value = generic_solution(parts.sum(axis=0), y, tradeoff)
        forms += np.einsum("i,kij,j->k", y * gamma, parts, y * gamma)
        values += value
    return forms / forms.sum(), values


# Optimum -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tradeoff", TRADEOFFS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_are_those_of_a_generic_solver(n_classes, tradeoff):
    Ks, target = problem(n_classes)
    solution = EasyMKL(tradeoff=tradeoff).solve(StackedGrams(Ks), target)
    weights, value = generic_weights(Ks, target, tradeoff)
    np.testing.assert_allclose(solution.weights, weights, rtol=0, atol=GENERIC)
    assert solution.certificate.objectives[-1] == pytest.approx(value, rel=GENERIC)


@pytest.mark.parametrize("tradeoff", TRADEOFFS)
def test_weights_sum_to_one_and_their_certificate_is_rounding(tradeoff):
    Ks, target = problem(3, m=40, seed=1)
    solution = EasyMKL(tradeoff=tradeoff).solve(StackedGrams(Ks), target)
    assert (solution.weights >= 0).all()
    assert solution.weights.sum() == pytest.approx(1.0, rel=1e-14)
    assert solution.certificate.measure == "duality gap"
    assert solution.certificate.residual <= EXACT
    assert solution.certificate.iterations >= 3


def test_the_certificate_bounds_how_far_a_wrong_solution_is_from_the_optimum(monkeypatch):
    Ks, target = problem(seed=2)
    best = EasyMKL().solve(StackedGrams(Ks), target).certificate.objectives[-1]

    def uniform(K, y, C, start=None):
        return Machine(np.where(y > 0, 1 / (y > 0).sum(), 1 / (y < 0).sum()), 0.0, np.arange(len(y)))

    monkeypatch.setattr(easymkl, "solve_machine", uniform)
    with pytest.warns(ConvergenceWarning, match="easymkl stopped after 1 .* duality gap"):
        certificate = EasyMKL().solve(StackedGrams(Ks), target).certificate
    excess = 1 - best / certificate.objectives[-1]
    assert 0.01 < excess <= certificate.residual
    assert not certificate.converged


@pytest.mark.parametrize("wrong_pair", [0, 1, 2])
def test_the_certificate_of_several_classes_is_that_of_the_worst_pair(monkeypatch, wrong_pair):
    Ks, target = problem(3, seed=2)
    solve, solved = easymkl.solve_machine, []

    def one_wrong(K, y, C, start=None):
        solved.append(y)
        right = solve(K, y, C, start)
        return right if len(solved) != wrong_pair + 1 else Machine(np.ones(len(y)), 0.0, np.arange(len(y)))

    monkeypatch.setattr(easymkl, "solve_machine", one_wrong)
    with pytest.warns(ConvergenceWarning):
        solution = EasyMKL().solve(StackedGrams(Ks), target)
    assert len(solved) == solution.certificate.iterations == 3
    assert solution.certificate.residual > 0.1


def test_a_machine_that_still_has_slack_is_solved_again_with_dearer_slack(monkeypatch):
    Ks, target = problem(seed=3)
    expected = EasyMKL(tradeoff=0.01).solve(StackedGrams(Ks), target)
    monkeypatch.setattr(easymkl, "FIRST_COST", 1e-3)
    solution = EasyMKL(tradeoff=0.01).solve(StackedGrams(Ks), target)
    assert solution.certificate.iterations > expected.certificate.iterations == 1
    np.testing.assert_allclose(solution.weights, expected.weights, rtol=0, atol=EXACT)


# Identities ----------------------------------------------------------------------------------------------------------


def test_at_a_tradeoff_of_one_weights_are_squared_distances_of_the_class_means():
    Ks, target = problem(seed=4)
    a, b = target.values == 0, target.values == 1
    distances = np.array([K[a][:, a].mean() - 2 * K[a][:, b].mean() + K[b][:, b].mean() for K in Ks])
    weights = EasyMKL(tradeoff=1.0).solve(StackedGrams(Ks), target).weights
    np.testing.assert_allclose(weights, distances / distances.sum(), rtol=1e-12)


@pytest.mark.parametrize("tradeoff", TRADEOFFS)
def test_one_kernel_gets_all_the_weight(tradeoff):
    Ks, target = problem(seed=5)
    np.testing.assert_array_equal(EasyMKL(tradeoff=tradeoff).solve(StackedGrams(Ks[:1]), target).weights, [1.0])


def test_equal_kernels_get_equal_weights_and_a_kernel_of_zeros_none():
    Ks, target = problem(3, seed=6)
    weights = EasyMKL().solve(StackedGrams(np.stack([Ks[0], Ks[1], Ks[0], np.zeros_like(Ks[0])])), target).weights
    assert weights[0] == pytest.approx(weights[2], rel=1e-14)
    assert weights[1] != pytest.approx(weights[0], rel=0.01)
    assert weights[3] == 0.0


def test_weights_follow_the_kernels_when_these_are_reordered():
    Ks, target = problem(3, seed=7)
    weights = EasyMKL().solve(StackedGrams(Ks), target).weights
    order = [2, 0, 1]
    np.testing.assert_allclose(EasyMKL().solve(StackedGrams(Ks[order]), target).weights, weights[order], rtol=EXACT)


def test_weights_do_not_depend_on_the_order_of_the_rows_or_on_the_names_of_the_classes():
    Ks, target = problem(3, seed=8)
    weights = EasyMKL().solve(StackedGrams(Ks), target).weights
    rows = np.random.default_rng(0).permutation(len(target))
    moved = Ks[:, rows][:, :, rows]
    renamed = Target.of(np.array(list("zyx"))[target.values[rows]])
    np.testing.assert_allclose(EasyMKL().solve(StackedGrams(moved), renamed).weights, weights, rtol=EXACT)


@pytest.mark.parametrize("tradeoff", TRADEOFFS)
def test_scaling_all_kernels_alike_is_changing_the_tradeoff(tradeoff):
    Ks, target = problem(seed=9)
    scale = 7.0
    # (1 - L') K against L' I as (1 - L) scale K against L I; none for L = 0 and L = 1.
    same = tradeoff / (tradeoff + (1 - tradeoff) * scale)
    expected = EasyMKL(tradeoff=same).solve(StackedGrams(Ks), target).weights
    np.testing.assert_allclose(
        EasyMKL(tradeoff=tradeoff).solve(StackedGrams(scale * Ks), target).weights, expected, rtol=1e-9
    )


def test_centering_does_not_matter_because_both_classes_weigh_the_same():
    _, target = problem(3, m=30, seed=10)
    X = np.random.default_rng(1).normal(size=(30, 2)) + target.values[:, None]
    uncentered = np.stack(grams([gaussian(0.1), gaussian(2.0)], X)).astype(float)
    weights = EasyMKL().solve(StackedGrams(np.stack([centered(K) for K in uncentered]).astype(float)), target).weights
    np.testing.assert_allclose(EasyMKL().solve(StackedGrams(uncentered), target).weights, weights, rtol=1e-9)


def test_regularisation_and_start_are_not_used():
    Ks, target = problem(seed=11)
    plain = EasyMKL().solve(StackedGrams(Ks), target)
    given = EasyMKL().solve(StackedGrams(Ks), target, regularisation=1e4, start=np.array([1.0, 0.0, 0.0]))
    np.testing.assert_array_equal(given.weights, plain.weights)


def test_a_class_without_rows_takes_no_part():
    Ks, target = problem(seed=12)
    with_third = Target("classification", target.values * 2, ("a", "b", "c"))
    expected = EasyMKL().solve(StackedGrams(Ks), target)
    np.testing.assert_array_equal(EasyMKL().solve(StackedGrams(Ks), with_third).weights, expected.weights)


# Errors --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tradeoff", [-0.1, 1.01, np.nan])
def test_a_tradeoff_outside_its_range_is_refused(tradeoff):
    Ks, target = problem()
    with pytest.raises(ValueError, match=r"tradeoff must be between 0 and 1, got"):
        EasyMKL(tradeoff=tradeoff).solve(StackedGrams(Ks), target)


def test_numbers_one_class_and_kernels_that_see_no_difference_are_refused():
    Ks, target = problem()
    with pytest.raises(ValueError, match="classes, got a regression"):
        EasyMKL().solve(StackedGrams(Ks), Target.of(np.arange(21.0)))
    with pytest.raises(ValueError, match="at least two classes, got 1"):
        EasyMKL().solve(StackedGrams(Ks), Target("classification", np.zeros(21, dtype=int), ("a", "b")))
    with pytest.raises(ValueError, match="no base kernel tells the classes apart"):
        EasyMKL().solve(StackedGrams(np.zeros_like(Ks)), target)


# Real data, and every form of the base kernels -----------------------------------------------------------------------


@pytest.fixture(params=["ionosphere", "iris"])
def data(request) -> tuple[np.ndarray, Target]:
    if request.param == "iris":
        X, y = load_iris(return_X_y=True)
        return X, Target.of(y, "classification")
    table = pyarrow.parquet.read_table(request.getfixturevalue("shared_data") / "ionosphere.parquet").to_pandas()
    return table.drop(columns="target").to_numpy(float), Target.of(table["target"].to_numpy(), "classification")


@pytest.mark.parametrize("tradeoff", [0.0, 0.5])
def test_real_data_are_solved_to_rounding(data, tradeoff):
    X, target = data
    grams = operator_of(GaussianFamily([2.0**g for g in (-6, -4, -2, 0)]), X, target)
    certificate = EasyMKL(tradeoff=tradeoff).solve(grams, target).certificate
    assert certificate.converged
    assert certificate.residual <= EXACT
    assert certificate.tolerance == 1e-6


def test_matrices_and_tiles_give_the_same_weights(data):
    X, target = data
    held, tiled = (
        operator_of(GaussianFamily([0.05, 0.3, 1.0]), X, target, in_memory=in_memory) for in_memory in (2**30, 0)
    )
    assert type(held) is not type(tiled)
    np.testing.assert_allclose(EasyMKL().solve(held, target).weights, EasyMKL().solve(tiled, target).weights, rtol=1e-9)


def test_features_get_the_weights_of_their_matrices():
    X, y = load_iris(return_X_y=True)
    target = Target.of(y, "classification")
    features = operator_of(FeatureFamily(4), X, target)
    matrices = StackedGrams(np.stack([features.combine(row) for row in np.eye(4)]))
    weights = EasyMKL().solve(features, target).weights
    np.testing.assert_allclose(weights, EasyMKL().solve(matrices, target).weights, rtol=1e-9)
    # Petals tell irises apart, sepals hardly.
    assert weights[2:].sum() > 0.8


def test_the_table_lists_it():
    assert LEARNERS["easymkl"] is EasyMKL
    assert (EasyMKL.tasks, EasyMKL.predictor) == (("classification",), "svm")
    assert EasyMKL().get_params() == {"tradeoff": 0.5, "tolerance": 1e-6}
