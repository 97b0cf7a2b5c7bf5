"""One-stage learners without a matrix of all pairs of rows: the weights of those with matrices."""

from functools import partial

import numpy as np
import pytest
from scipy import sparse

from learnkernels import GaussianFamily, gram_statistics, learn_kernel
from learnkernels.kernels import engine, learners, targets
from learnkernels.kernels.engine.operators import FeatureGrams, gram_operator
from learnkernels.kernels.families.base import drawn_rows, move
from learnkernels.kernels.learners.norm_ball import L1KRR, L1SVM, L2KRR, LpKRR, LpSVM, SingleStage, solve_on_ball
from learnkernels.kernels.solvers.conjugate_gradients import Preconditioner
from learnkernels.kernels.solvers.ridge import RidgeProblem, StreamedRidge, on_drawn_rows, ridge_problem

FAMILY = GaussianFamily([2.0**g for g in range(-6, 1)])


def problem(m=250, classes=2):
    X = np.random.default_rng(0).normal(size=(m, 5))
    f = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    return X, f if classes is None else np.digitize(f, np.linspace(-1, 1, classes + 1)[1:-1])


def inner(m, C, classes=2, in_memory=0):
    X, y = problem(m, classes)
    statistics = gram_statistics(FAMILY, X, targets.Target.of(y).Y)
    scales = statistics.traces() / m
    rows = move(X[statistics.rows], statistics.origin)
    grams = gram_operator(FAMILY, rows, shift=statistics.shift, scales=scales, in_memory=in_memory)
    return grams, targets.Target.of(y).take(statistics.rows), C


@pytest.mark.parametrize(("C", "classes"), [(0.25, 2), (8.0, 3), (512.0, 3), (0.25, None), (512.0, None)])
def test_solutions_are_those_with_a_matrix(C, classes):
    with_matrix = RidgeProblem(*inner(120, C, classes, in_memory=2**30))
    streamed = StreamedRidge(*inner(120, C, classes), tolerance=1e-8)
    for mu in np.full(7, 0.3), np.array([0.9, 0, 0.1, 0.2, 0, 0, 0.4]), np.array([0.88, 0, 0.1, 0.2, 0, 0, 0.42]):
        ours, theirs = streamed.at(mu), with_matrix.at(mu)
        # The value is above that of the solution by what its residual may add: a ten-thousandth of the gap.
        assert theirs.objective * (1 - 1e-11) <= ours.objective <= theirs.objective * (1 + 1e-11)
        np.testing.assert_allclose(ours.forms, theirs.forms, rtol=1e-5)
        some = np.array([0, 2, 6])
        H = theirs.hessian(some)
        # Residuals of a thousandth leave errors of about a millionth, however the equations are conditioned.
        np.testing.assert_allclose(ours.hessian(some), H, rtol=0, atol=2e-6 * H.max())


@pytest.mark.parametrize("C", [0.125, 512.0])
def test_steps_are_those_with_matrices(C):
    found = []
    for problem_of, in_memory in (RidgeProblem, 2**30), (partial(StreamedRidge, tolerance=1e-4), 0):
        inner_problem = problem_of(*inner(250, C, None, in_memory))
        outer = L2KRR().ball(inner_problem.grams.n_kernels)
        found.append(solve_on_ball(inner_problem, outer, None, 1e-4, 20))
    (expected, with_matrices), (streamed, without) = found
    assert without.iterations == with_matrices.iterations
    # Both end where the gap is within 1e-4, far from the minimum; Newton's steps there agree to six digits.
    np.testing.assert_allclose(streamed, expected, rtol=0, atol=1e-6 * expected.max())


OUTER = [L2KRR(), L2KRR(center=1.0), L2KRR(tolerance=1e-10), LpKRR(1.5), L1KRR(), SingleStage()]


@pytest.mark.parametrize("learner", OUTER, ids=repr)
def test_weights_are_those_with_matrices(learner, request):
    X, y = problem()
    options = {"task": "classification", "C": 8.0}
    expected = learn_kernel(learner, FAMILY, X, y, **options)
    request.getfixturevalue("no_matrices")
    kernel = learn_kernel(learner, FAMILY, X, y, **options)
    assert kernel.certificate.residual <= 1e-6
    assert kernel.certificate.objectives[-1] == pytest.approx(expected.certificate.objectives[-1], rel=1e-6)
    # Weights whose values are within a gap of each other differ by about its root.
    atol = learner.tolerance**0.5 * expected.weights.max()
    np.testing.assert_allclose(kernel.weights, expected.weights, rtol=0, atol=atol)


@pytest.mark.parametrize("norm", [1.0, 2.0])
def test_some_rows_give_weights_to_begin_with(norm, monkeypatch):
    monkeypatch.setattr(engine.operators, "LARGEST_MATRIX", 0)
    grams, target, C = inner(250, 8.0, None)
    found = []
    for most in 10**9, 60:
        monkeypatch.setattr(learners.norm_ball, "RIDGE_SAMPLE", most)
        found.append(LpKRR(norm, tolerance=1e-7).solve(grams, target, C).certificate)
    equal, sampled = found
    assert sampled.residual <= 1e-7
    assert sampled.objectives[-1] == pytest.approx(equal.objectives[-1], rel=2e-7)  # both within a gap of the minimum
    assert sampled.objectives[0] < equal.objectives[0]


@pytest.mark.parametrize("learner", [L1SVM(), LpSVM(1.5)], ids=repr)
@pytest.mark.parametrize("classes", [2, 3])
def test_machines_on_many_rows_learn_on_a_sample_that_counts_for_all(learner, classes, monkeypatch):
    monkeypatch.setattr(engine.operators, "LARGEST_MATRIX", 0)
    monkeypatch.setattr(learners.norm_ball, "SVM_SAMPLE", 125)
    grams, target, C = inner(250, 2.0, classes)
    solution = learner.solve(grams, target, C)
    assert solution.certificate.measure == "duality gap on a sample"
    assert solution.certificate.residual <= 1e-6
    monkeypatch.undo()
    np.testing.assert_array_equal(learner.solve(*on_drawn_rows(grams, target, 125), 2 * C).weights, solution.weights)


def test_base_kernels_on_drawn_rows_are_those_of_these_rows():
    rng = np.random.default_rng(0)
    Z = rng.poisson(0.5, size=(40, 6)) * 1.0
    some = drawn_rows(40, 15, 0)
    centered, mu = Z[some] - Z[some].mean(axis=0), rng.uniform(size=6)
    for grams in (FeatureGrams(Z - Z.mean(axis=0)), FeatureGrams(sparse.csr_matrix(Z))):
        part, target = on_drawn_rows(grams, targets.Target.of(np.arange(40.0)), 15)
        np.testing.assert_array_equal(target.values, some)
        np.testing.assert_allclose(part.combine(mu), (centered * mu) @ centered.T, rtol=0, atol=1e-12)
    grams, target, _ = inner(250, 1.0)
    part, _ = on_drawn_rows(grams, target, 60)
    # The mean diagonal of base kernels is about that of all rows, which scales make one; a root of 60 rows tells it.
    diagonals = [part.combine(one).trace() / 60 for one in np.eye(7)]
    np.testing.assert_allclose(diagonals, 1.0, atol=4 / np.sqrt(60))


def test_matrices_that_fit_are_formed():
    assert isinstance(ridge_problem(*inner(30, 1.0)), RidgeProblem)
    with pytest.raises(ValueError, match="C must be a positive, finite number, got 0"):
        ridge_problem(*inner(30, 0.0))


def test_a_preconditioner_from_all_columns_is_the_inverse():
    V = np.random.default_rng(0).normal(size=(9, 9))
    A, R = V @ V.T, np.random.default_rng(1).normal(size=(9, 2))
    shifts = np.array([0.1, 10.0])
    P = Preconditioner(A.copy(), A)
    expected = np.column_stack([np.linalg.solve(A + s * np.eye(9), r) for s, r in zip(shifts, R.T, strict=True)])
    np.testing.assert_allclose(P(R, shifts), expected, rtol=1e-7)
    # Without some rows and columns it is the inverse of what is left, for vectors that are zero there.
    kept, R[6:] = np.arange(6), 0.0
    left = [np.linalg.solve(A[:6, :6] + s * np.eye(6), r[:6]) for s, r in zip(shifts, R.T, strict=True)]
    np.testing.assert_allclose(P.without(np.arange(6, 9))(R, shifts)[kept], np.column_stack(left), rtol=1e-7)
