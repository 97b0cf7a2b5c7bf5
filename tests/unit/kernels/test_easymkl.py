"""EasyMKL: the optimum of its quadratic program, what its weights are, and what they do not depend on."""

from functools import partial
from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning

from learnkernels import GaussianFamily, gram_statistics
from learnkernels.kernels.engine.operators import (
    GramOperator,
    StackedGrams,
    gram_operator,
)
from learnkernels.kernels.families import KernelFamily
from learnkernels.kernels.learners import EasyMKL, Solution, easymkl
from learnkernels.kernels.targets import Target
from tests.reference import centered, gaussian, grams
from tests.refusals import require_refusals

TRADEOFFS = [0.0, 0.2, 0.5, 0.9, 1.0]

# The solution is exact to rounding times the condition of the support's kernel, 1e3 or
# so.
EXACT = 1e-10

# What a generic solver of quadratic programs reaches.
GENERIC = 1e-5


def solved(Ks: np.ndarray, target: Target, tradeoff: float = 0.5, **given) -> Solution:
    return EasyMKL(tradeoff=tradeoff).solve(StackedGrams(Ks), target, **given)


def operator_of(
    family: KernelFamily, X: np.ndarray, target: Target, **given
) -> GramOperator:
    """Return base kernels of mean diagonal one each."""
    statistics = gram_statistics(family, X, target.Y)
    scales = statistics.traces() / len(X)
    return gram_operator(
        family, X - statistics.origin, shift=statistics.shift, scales=scales, **given
    )


def problem(
    n_classes: int = 2, m: int = 21, seed: int = 0
) -> tuple[np.ndarray, Target]:
    """Return three centered matrices of mean diagonal one, by an oracle, and classes that overlap."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 3))
    labels = np.arange(m) % n_classes
    X[:, 0] += labels
    X[:, 1] -= 0.4 * labels**2
    Ks = np.stack(
        [
            centered(K).astype(float)
            for K in grams([gaussian(gamma) for gamma in (0.1, 0.6, 3.0)], X)
        ]
    )
    Ks = (Ks + Ks.transpose(0, 2, 1)) / 2
    return Ks / (np.trace(Ks, axis1=1, axis2=2) / m)[:, None, None], Target.of(
        np.array(list("abc"))[labels]
    )


def generic_solution(
    K: np.ndarray, y: np.ndarray, tradeoff: float
) -> tuple[np.ndarray, float]:
    """Return the minimizer over the two simplices and its value, by a solver that knows no machines."""
    Q = (1 - tradeoff) * np.outer(y, y) * K + tradeoff * np.eye(len(y))
    unit = np.trace(Q) / len(Q) / len(y)
    sides = np.stack([y > 0, y < 0]).astype(float)
    start = (1 / sides.sum(axis=1)) @ sides
    sums = {
        "type": "eq",
        "fun": lambda gamma: sides @ gamma - 1,
        "jac": lambda gamma: sides,
    }
    with_gradient = {
        "fun": lambda gamma: (gamma @ Q @ gamma / unit, 2 * Q @ gamma / unit),
        "jac": True,
    }
    options = {"ftol": 1e-14, "maxiter": 1000}
    found = minimize(
        x0=start,
        bounds=[(0, 1)] * len(y),
        constraints=sums,
        options=options,
        **with_gradient,
    )
    assert found.success
    return found.x, found.fun * unit


def generic_weights(
    Ks: np.ndarray, target: Target, tradeoff: float
) -> tuple[np.ndarray, float]:
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
def test_weights_are_those_of_a_generic_solver_and_their_certificate_is_rounding(
    tradeoff,
):
    for n_classes, n_pairs in ((2, 1), (3, 3)):
        Ks, target = problem(n_classes)
        solution = solved(Ks, target, tradeoff)
        weights, value = generic_weights(Ks, target, tradeoff)
        np.testing.assert_allclose(solution.weights, weights, rtol=0, atol=GENERIC)
        assert (solution.weights >= 0).all()
        assert solution.weights.sum() == pytest.approx(1.0, rel=1e-14)
        certificate = solution.certificate
        assert certificate.objectives[-1] == pytest.approx(value, rel=GENERIC)
        assert certificate.measure == "duality gap"
        assert certificate.residual <= EXACT
        assert certificate.iterations >= n_pairs
        np.testing.assert_array_equal(solved(Ks[:1], target, tradeoff).weights, [1.0])
        # (1 - L') K against L' I as (1 - L) 7 K against L I; none for L = 0 and L = 1.
        same = solved(Ks, target, tradeoff / (tradeoff + (1 - tradeoff) * 7.0))
        np.testing.assert_allclose(
            solved(7.0 * Ks, target, tradeoff).weights, same.weights, rtol=1e-9
        )


def test_the_certificate_bounds_how_far_a_wrong_solution_is_from_the_optimum(
    monkeypatch,
):
    Ks, target = problem(seed=2)
    best = solved(Ks, target).certificate.objectives[-1]

    def uniform(K, y, C, start=None):
        return (
            np.where(y > 0, 1 / (y > 0).sum(), 1 / (y < 0).sum()),
            0.0,
            np.arange(len(y)),
        )

    monkeypatch.setattr(easymkl, "solve_svm", uniform)
    with pytest.warns(
        ConvergenceWarning, match="easymkl stopped after 1 .* duality gap"
    ):
        certificate = solved(Ks, target).certificate
    excess = 1 - best / certificate.objectives[-1]
    assert 0.01 < excess <= certificate.residual
    assert not certificate.converged


@pytest.mark.parametrize("wrong_pair", [0, 1, 2])
def test_the_certificate_of_several_classes_is_that_of_the_worst_pair(
    monkeypatch, wrong_pair
):
    Ks, target = problem(3, seed=2)
    solve, pairs = easymkl.solve_svm, []

    def one_wrong(K, y, C, start=None):
        pairs.append(y)
        right = solve(K, y, C, start)
        return (
            right
            if len(pairs) != wrong_pair + 1
            else (np.ones(len(y)), 0.0, np.arange(len(y)))
        )

    monkeypatch.setattr(easymkl, "solve_svm", one_wrong)
    with pytest.warns(ConvergenceWarning):
        certificate = solved(Ks, target).certificate
    assert len(pairs) == certificate.iterations == 3
    assert certificate.residual > 0.1


def test_a_machine_that_still_has_slack_is_solved_again_with_dearer_slack(monkeypatch):
    Ks, target = problem(seed=3)
    expected = solved(Ks, target, 0.01)
    monkeypatch.setattr(easymkl, "FIRST_COST", 1e-3)
    solution = solved(Ks, target, 0.01)
    assert solution.certificate.iterations > expected.certificate.iterations == 1
    np.testing.assert_allclose(solution.weights, expected.weights, rtol=0, atol=EXACT)


# Identities ----------------------------------------------------------------------------------------------------------


def test_equal_kernels_get_equal_weights_and_a_kernel_of_zeros_none():
    Ks, target = problem(3, seed=7)
    weights = solved(
        np.stack([Ks[0], Ks[1], Ks[0], np.zeros_like(Ks[0])]), target
    ).weights
    assert weights[0] == pytest.approx(weights[2], rel=1e-14)
    assert weights[1] != pytest.approx(weights[0], rel=0.01)
    assert weights[3] == 0.0


def test_regularization_start_and_a_class_without_rows_take_no_part():
    Ks, target = problem(seed=11)
    weights = solved(Ks, target).weights
    given = solved(Ks, target, C=1e4, start=np.array([1.0, 0.0, 0.0]))
    np.testing.assert_array_equal(given.weights, weights)
    with_third = Target("classification", target.values * 2, ("a", "b", "c"))
    np.testing.assert_array_equal(solved(Ks, with_third).weights, weights)


def test_what_cannot_be_solved_is_refused():
    Ks, target = problem()
    one_class = Target("classification", np.zeros(21, dtype=int), ("a", "b"))
    between = "tradeoff must be between 0 and 1, got"
    table = [
        *(
            (EasyMKL(tradeoff=tradeoff).require, between)
            for tradeoff in (-0.1, 1.01, np.nan)
        ),
        (partial(solved, Ks, Target.of(np.arange(21.0))), "classes, got a regression"),
        (partial(solved, Ks, one_class), "at least two classes, got 1"),
        (
            partial(solved, np.zeros_like(Ks), target),
            "no base kernel separates the classes",
        ),
    ]
    require_refusals(table)


# Real data, and every form of the base kernels -----------------------------------------------------------------------


@pytest.mark.parametrize("load", [load_breast_cancer, load_iris])
def test_real_data_are_solved_to_rounding_from_matrices_and_from_tiles(load):
    X, y = (array[::2] for array in load(return_X_y=True))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    target, family = (
        Target.of(y, "classification"),
        GaussianFamily([2.0**g for g in (-6, -4, -2, 0)]),
    )
    held, tiled = (
        operator_of(family, X, target, in_memory=in_memory) for in_memory in (2**30, 0)
    )
    assert type(held) is not type(tiled)
    for tradeoff in (0.0, 0.5):
        solution, of_tiles = (
            EasyMKL(tradeoff=tradeoff).solve(operator, target)
            for operator in (held, tiled)
        )
        assert solution.certificate.converged
        assert solution.certificate.residual <= EXACT
        assert solution.certificate.tolerance == 1e-6
        np.testing.assert_allclose(of_tiles.weights, solution.weights, rtol=1e-9)
