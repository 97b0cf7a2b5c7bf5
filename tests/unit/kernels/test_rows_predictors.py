"""Predictors that never form the matrix of all rows: against factorizations of it, and what they say of themselves."""

import pickle
import warnings
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from learnkernels import (
    FeatureFamily,
    GaussianFamily,
    KernelLearningRegressor,
    LinearFamily,
    PolynomialFamily,
    learn_kernel,
)
from learnkernels.kernels import centering, estimators, learners, targets
from learnkernels.kernels.compiled.distances import as_distance_sides
from learnkernels.kernels.engine import combination as combined
from learnkernels.kernels.engine import workers as worker_threads
from learnkernels.kernels.engine.combination import (
    MOST_TOGETHER,
    Combination,
    PackedRows,
    RightSide,
)
from learnkernels.kernels.engine.workers import SelectedRows, Threads, spans
from learnkernels.kernels.estimators import fit_on_kernel
from learnkernels.kernels.families import (
    CategoricalFamily,
    FamilyUnion,
    LaplacianFamily,
    MetricFamily,
)
from learnkernels.kernels.model_selection.evaluation import KernelPredictors
from learnkernels.kernels.predictors import (
    ConjugateGradients,
    Nystroem,
    TrainingSet,
    nystroem,
)
from learnkernels.kernels.predictors.krr_cg import convergence_note
from learnkernels.kernels.solvers.conjugate_gradients import solve_shifted
from tests.reference import ridge_predictions
from tests.refusals import require_refusals

FAMILY = GaussianFamily([2.0**g for g in range(-5, 2)])
GRID = [0.25, 4.0, 64.0, 1024.0]

# Predictions against those of a factorization, in units of the target's deviation of
# about one.
ITERATED = 1e-6

ON_ROWS = [ConjugateGradients(tol=1e-10), Nystroem(n_components=1000, tol=1e-10)]


def problem(m=400, n=60, d=4, seed=0, task="regression"):
    """Return a learned kernel, its rows with their target, and new rows."""
    rng = np.random.default_rng(seed)
    X, X_new = rng.normal(size=(m, d)), rng.normal(size=(n, d))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=m)
    if task != "regression":
        y = np.digitize(y, [0.0] if task == "binary" else [-0.5, 0.5])
    target = targets.Target.of(
        y, "regression" if task == "regression" else "classification"
    )
    return (
        learn_kernel(
            X, target.given, learner="alignf", family=FAMILY, task=target.task
        ),
        X,
        target,
        X_new,
    )


def predictors(kernel, target, predictor, grid=GRID, **given):
    return KernelPredictors((kernel,), target, predictor, grid, **given)


# Conjugate gradients -------------------------------------------------------------------------------------------------


def matrix(n=80, seed=0, decay=2.0):
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    return (Q * np.arange(1, n + 1) ** -decay) @ Q.T, rng.normal(size=(n, 6))


def solve(A, B, shifts, precondition=lambda R, shifts: R, **given):
    return solve_shifted(lambda V: A @ V, B, shifts, precondition, **given)


def test_each_column_has_the_solution_of_its_own_shift_and_its_residual():
    A, B = matrix()
    shifts = np.array([1e-6, 1e-4, 1e-2, 1.0, 1e2, 1e-3])
    found = solve(A, B, shifts, tolerance=1e-12, max_iter=2000)
    assert found.converged
    for j, shift in enumerate(shifts):
        exact = np.linalg.solve(A + shift * np.eye(len(A)), B[:, j])
        # The residual over the smallest eigenvalue: 1e-12 / 1e-6 at worst.
        np.testing.assert_allclose(
            found.solutions[:, j], exact, rtol=0, atol=1e-5 * np.abs(exact).max()
        )
    rough = solve(A, B, shifts, tolerance=1e-8, max_iter=500)
    R = B - A @ rough.solutions - rough.solutions * shifts
    expected = np.linalg.norm(R, axis=0) / np.linalg.norm(B, axis=0)
    np.testing.assert_allclose(rough.residuals, expected, rtol=0, atol=1e-14)


def test_what_is_not_reached_is_said_and_zero_right_hand_sides_are_solved_at_once():
    A, B = matrix(n=200, seed=2, decay=4.0)
    B[:, 1] = 0.0
    steps = []
    found = solve(
        A,
        B,
        np.full(6, 1e-12),
        tolerance=1e-13,
        max_iter=7,
        progress=lambda *at: steps.append(at),
    )
    assert not found.converged
    assert found.iterations == 7 == steps[-1][0]
    assert found.residuals[1] == 0.0
    assert not found.solutions[:, 1].any()
    assert (found.residuals[[0, 2]] > 1e-13).all()


def test_few_rows_have_as_many_steps_without_progress_as_there_are_rows():
    # At this condition, residuals rise for about 100 steps before they fall.
    rng = np.random.default_rng(0)
    Q, _ = np.linalg.qr(rng.normal(size=(200, 200)))
    A = (Q * np.logspace(-4, 0, 200)) @ Q.T
    B = rng.normal(size=(200, 1))
    found = solve(A, B, np.array([1e-4]), tolerance=1e-8, max_iter=1000)
    assert found.converged


def test_a_good_preconditioner_saves_steps():
    A, B = matrix(seed=3, decay=3.0)
    s, Q = np.linalg.eigh(A)

    def precondition(R, shifts):
        return Q @ ((Q.T @ R) / (s[:, None] + shifts))

    given = {"shifts": np.full(6, 1e-7), "tolerance": 1e-9, "max_iter": 1000}
    plain, found = solve(A, B, **given), solve(A, B, precondition=precondition, **given)
    assert found.converged
    assert found.iterations <= 3 < 20 < plain.iterations


# Weighted sums of base kernels by tiles ------------------------------------------------------------------------------


SUMMED = [
    GaussianFamily([0.5, 0.125, 0.25, 3.0]),
    LaplacianFamily([0.25, 0.5]),
    PolynomialFamily([1, 2, 3]),
]
SUMMED += [
    FamilyUnion([GaussianFamily([0.5, 1.0]), LinearFamily()], [None, [0, 2]]),
    FeatureFamily(3),
]


@pytest.mark.parametrize("family", SUMMED, ids=repr)
def test_a_combination_is_the_weighted_sum_of_its_kernels(family):
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(37, 3)), rng.normal(size=(600, 3))
    c, shift = (
        rng.uniform(0.5, 2, family.n_kernels),
        rng.uniform(0, 1, family.n_kernels),
    )
    of_features = isinstance(family, FeatureFamily)
    for zeros in ([], [1], [0, 1]):
        c[[k for k in zeros if k < family.n_kernels - 1]] = 0.0
        combination = Combination(family, c, 0.0 * shift if of_features else shift)
        expected, K = (
            np.tensordot(c, family.tile(rows, B, combination.shift), axes=1)
            for rows in (A, B)
        )
        np.testing.assert_allclose(
            combination.matrix(A, B),
            expected,
            rtol=0,
            atol=1e-12 * np.abs(expected).max(),
        )
        found = combination.matrix(B, B, symmetric=True)
        np.testing.assert_allclose(found, K, rtol=0, atol=1e-12 * K.max())
        np.testing.assert_allclose(
            combination.diagonal(B), K.diagonal(), rtol=0, atol=1e-12 * K.max()
        )
        assert (found == found.T).all() or of_features


METRIC = MetricFamily(
    GaussianFamily([0.05, 0.2, 0.8]),
    np.array([[1.0, 0.2], [0.0, 2.0], [0.5, 0.5]]),
    "map",
)


OF_DISTANCES = [
    SUMMED[0],
    LaplacianFamily([0.25, 1.0], 2),
    CategoricalFamily([0.5], [1.0, 2.0, 0.5]),
]
OF_DISTANCES += [
    FamilyUnion(
        [LaplacianFamily([0.5]), METRIC, CategoricalFamily([2.0])], [[1], None, [0, 2]]
    )
]


@pytest.mark.parametrize("family", OF_DISTANCES, ids=repr)
def test_products_with_a_kernel_that_is_not_kept_are_those_with_its_matrix(family):
    rng = np.random.default_rng(0)
    for a, b, n in (
        (1, 1, 1),
        (6, 33, 2),
        (64, 100, MOST_TOGETHER),
        (300, 100, MOST_TOGETHER + 1),
    ):
        # Of which some features are equal
        A, B = (
            rng.integers(-2, 3, (a, 3)) / 2,
            rng.integers(-2, 3, (b, 3)) / 2,
        )
        given, w, beta = (
            rng.normal(size=(a, n)),
            rng.uniform(size=a),
            rng.normal(size=(b, n)),
        )
        combination = Combination(
            family,
            rng.uniform(0.5, 2, family.n_kernels),
            rng.uniform(size=family.n_kernels),
        )
        K = np.tensordot(
            combination.coefficients, family.tile(A, B, combination.shift), 1
        )
        packed = combination.side(B)
        assert isinstance(packed, PackedRows)
        for weights, vectors in ((w, beta), (None, beta), (None, None)):
            expected = 1 + K.T @ (
                given + (0 if weights is None else w[:, None] * (K @ beta))
            )
            back = np.ones((b, n))
            forth = packed.products(A, vectors, given, back, weights)
            # K has a norm of some hundreds, and terms of either sign are added in
            # another order
            np.testing.assert_allclose(
                back,
                expected,
                rtol=0,
                atol=1e-13 * max(1.0, np.abs(expected).max()) * b,
            )
            there = K[: 0 if vectors is None else a] @ beta
            np.testing.assert_allclose(forth, there, rtol=0, atol=1e-12 * b)


def test_kernels_of_products_have_none_of_distances():
    for family in (
        LinearFamily(),
        FeatureFamily(3),
        FamilyUnion([GaussianFamily([1.0]), LinearFamily()]),
    ):
        ones = np.ones(family.n_kernels)
        assert as_distance_sides(family.operands(np.eye(3), ones)) is None
        assert type(Combination(family, ones, 0 * ones).side(np.eye(3))) is RightSide


class Own(LaplacianFamily):
    """A family that cannot be made of bandwidths alone."""

    def __init__(self, gammas, power):
        super().__init__(gammas)
        self.power = power

    def subset(self, kernels):
        return Own([self.gammas[k] for k in kernels], self.power)


def test_bandwidths_between_save_exponentials_and_change_nothing():
    X = np.random.default_rng(0).normal(size=(20, 3))
    for family in (
        METRIC,
        FamilyUnion([METRIC, LinearFamily()]),
        GaussianFamily([1.0, 32.0, 4.0]),
    ):
        more, at = family.completed_grid()
        assert more.n_seeds < family.n_seeds
        np.testing.assert_allclose(
            more.tile(X, X)[at], family.tile(X, X), rtol=0, atol=1e-14
        )
    # Bandwidths far apart, a family of one's own
    for alone in (
        GaussianFamily([1.0, 64.0, 3.0]),
        Own([1.0, 4.0], 2),
    ):
        assert alone.completed_grid()[0] is alone
    family = GaussianFamily([1.0, 2.0, 4.0, 8.0, 16.0])
    evaluated, c, _ = Combination(
        family, np.array([0.0, 1.0, 0.0, 2.0, 0.0]), np.zeros(5)
    ).evaluated
    assert evaluated.n_seeds == 1
    assert dict(zip(evaluated.gammas, c, strict=True)) == {2.0: 1.0, 4.0: 0.0, 8.0: 2.0}
    evaluated, c, _ = Combination(
        family, np.array([0.0, 0.0, 0.0, 0.0, 3.0]), np.zeros(5)
    ).evaluated
    assert (evaluated.n_kernels, c.tolist()) == (1, [3.0])


@pytest.mark.parametrize(
    ("threads", "n"), [(1, 3), (3, 3), (3, MOST_TOGETHER), (3, MOST_TOGETHER + 1)]
)
def test_the_matrix_of_all_rows_is_applied_without_being_formed(
    monkeypatch, threads, n
):
    monkeypatch.setattr(combined, "SPAN", 90)
    monkeypatch.setattr(combined, "STRIP", 25)
    kernel, X, _, X_new = problem(m=250)
    if (threads, n) in ((1, 3), (3, MOST_TOGETHER)):
        map_ = np.random.default_rng(2).normal(size=(4, 2))
        kernel = replace(
            kernel, family=FamilyUnion([MetricFamily(kernel.family, map_)])
        )
    gram = combined.CombinedGram(kernel.combination, X, Threads(threads))
    V = np.random.default_rng(1).normal(size=(250, n))
    K = kernel.combination.matrix(X, X, symmetric=True)
    np.testing.assert_allclose(
        gram.matvec(V), K @ V, rtol=0, atol=1e-12 * np.abs(K).sum()
    )
    np.testing.assert_allclose(
        gram.matvec(V, np.float32),
        K @ V,
        rtol=0,
        atol=1e-6 * np.abs(K).sum(axis=1).max(),
    )
    np.testing.assert_allclose(
        gram.columns(X_new), kernel.combination.matrix(X, X_new), rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(gram.diagonal(), K.diagonal(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("alpha", [1e-2, 1e-4, 1e-6])
def test_conjugate_gradients_converge_for_small_ridges(alpha):
    """Rounding to 16 or 32 bits would add eigenvalues below minus the ridge, so that they break down."""
    X = np.random.default_rng(0).normal(size=(3_000, 3))
    y = np.sin(2.0 * X).sum(axis=1)
    options = {"family": GaussianFamily([0.05, 0.2]), "alpha": alpha}
    rough = KernelLearningRegressor(
        predictor=ConjugateGradients(tol=0.01), **options
    ).fit(X, y)
    exact = KernelLearningRegressor(predictor="krr", **options).fit(X, y)
    deviations = rough.predict(X) - exact.predict(X)
    # Twice the residual, which bounds it for small ridges
    assert np.sqrt(np.mean(deviations**2)) < 0.02 * y.std()


@pytest.mark.parametrize("value_type", [np.int16, np.float32])
def test_stored_blocks_are_those_of_the_matrix_on_any_number_of_threads(
    monkeypatch, value_type
):
    monkeypatch.setattr(combined, "SPAN", 90)
    monkeypatch.setattr(combined, "STRIP", 25)
    kernel, X, _, _ = problem(m=250)  # three runs of rows, so six blocks
    V, K = (
        np.random.default_rng(1).normal(size=(250, 3)),
        kernel.combination.matrix(X, X, symmetric=True),
    )
    # Half of a step an entry, and as much for float32
    atol = np.ptp(K) / 2**16 * np.abs(V).sum(axis=0).max()
    products = []
    for threads, n_blocks in ((1, 6), (3, 6), (1, 4), (3, 0)):
        monkeypatch.setattr(
            combined, "STORED_BYTES", np.dtype(value_type).itemsize * 84**2 * n_blocks
        )
        gram = combined.CombinedGram(kernel.combination, X, Threads(threads))
        gram.store(value_type)
        first = gram.matvec(V, np.float32)
        assert sum(block is not None for block in gram._stored.values()) == n_blocks
        # Formed, and read
        np.testing.assert_array_equal(gram.matvec(V, np.float32), first)
        np.testing.assert_allclose(first, K @ V, rtol=0, atol=atol)
        np.testing.assert_allclose(
            gram.matvec(V), K @ V, rtol=0, atol=1e-12 * np.abs(K).sum()
        )
        products.append(first)
    np.testing.assert_array_equal(products[0], products[1])
    constant = combined.StoredBlock(np.full((2, 3), 0.5, dtype=np.float32))
    np.testing.assert_array_equal(
        constant.products(np.ones((3, 1), np.float32), np.ones((2, 1), np.float32))[0],
        1.5,
    )


def test_products_in_single_precision_of_many_features_are_those_of_the_matrix(
    monkeypatch,
):
    monkeypatch.setattr(combined, "SPAN", 90)
    # Distances of so many features come from products of matrices
    X = np.random.default_rng(0).normal(size=(250, 80))
    combination = Combination(
        GaussianFamily([0.01, 0.03]), np.array([1.0, 2.0]), np.zeros(2)
    )
    V, K = (
        np.random.default_rng(1).normal(size=(250, 3)),
        combination.matrix(X, X, symmetric=True),
    )
    found = combined.CombinedGram(combination, X, Threads(1)).matvec(V, np.float32)
    np.testing.assert_allclose(
        found, K @ V, rtol=0, atol=1e-6 * np.abs(K).sum(axis=1).max()
    )


def test_rows_of_a_data_set_are_selected_and_moved_a_run_at_a_time():
    X, rows, origin = np.arange(40.0).reshape(10, 4), np.array([7, 1, 5, 5]), np.ones(4)
    held = Threads().scatter_rows(X, rows, origin)
    assert isinstance(held, SelectedRows)
    assert held.shape == (4, 4)
    np.testing.assert_array_equal(held[1:3], X[[1, 5]] - 1)
    assert Threads().scatter_rows(X, None, np.zeros(4)) is X
    covered = [list(range(*span)) for span in spans(103, 10)]
    assert np.concatenate(covered).tolist() == list(range(103))
    assert max(map(len, covered)) <= 10


# Conjugate gradients on all rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["regression", "binary", "classes"])
def test_predictors_on_rows_agree_with_the_factorization(task):
    kernel, _, target, X_new = problem(m=200, task=task)
    exact = predictors(kernel, target, "krr")
    for predictor in ON_ROWS:
        found = predictors(kernel, target, predictor)
        np.testing.assert_allclose(
            found.predict(X_new), exact.predict(X_new), rtol=0, atol=ITERATED
        )
        if task != "regression":
            np.testing.assert_allclose(
                found.scores(X_new), exact.scores(X_new), rtol=0, atol=ITERATED
            )


@pytest.mark.parametrize(
    "predictor", ["krr-cg", Nystroem(n_components=40)], ids=["krr-cg", "nystroem"]
)
def test_an_estimator_tells_of_each_step_of_its_predictor(predictor):
    kernel, X, target, _ = problem()
    told = []
    model = estimators.KernelLearningRegressor(
        family=FAMILY, learner="alignf", alpha=1e-3, predictor=predictor
    )
    fit_on_kernel(
        model, kernel, target.given, X=X, progress=lambda *at: told.append(at)
    )
    first_steps = [i for i, (step, _) in enumerate(told) if step == 1]
    fits = [told[begin:end] for begin, end in pairwise([*first_steps, len(told)])]
    for fit in fits:
        steps, residuals = zip(*fit, strict=True)
        assert steps == tuple(range(1, len(fit) + 1))
        assert residuals[-1] <= 1e-8
    # The Nystroem predictor is fitted again for held-out scores
    assert (len(fits) > 1) == isinstance(predictor, Nystroem)


def test_a_kernel_learned_on_some_rows_serves_all():
    _, X, target, X_new = problem(m=250)
    some = np.sort(np.random.default_rng(4).choice(250, 80, replace=False))
    learned = learn_kernel(
        X[some], target.values[some], learner="alignf", family=FAMILY
    )
    kernel = replace(learned, rows=some[learned.rows])
    # By hand: the same weighted sum of all rows, centered on them and of mean diagonal
    # one.
    rows = np.vstack([X, X_new]) - kernel.origin
    K = kernel.combination.matrix(rows, rows, symmetric=True)
    K_c = centering.center_gram(K[:250, :250])
    unit, y = K_c.trace() / 250, target.values
    K_new = centering.center_cross_gram(K[250:, :250], K[:250, :250]) / unit
    expected = [ridge_predictions(K_c / unit, y, C, K_new) for C in GRID]
    refused = "was learned on 80 rows, and 250 others train the predictor; give X"
    for predictor in ("krr", *ON_ROWS):
        on_all = partial(predictors, kernel, target, predictor, training=np.arange(250))
        np.testing.assert_allclose(
            on_all(X=X).predict(X_new), expected, rtol=0, atol=ITERATED
        )
        if predictor != "krr":
            require_refusals([(on_all, refused)])


class Small(Threads):
    """Workers of little memory."""

    memory = 8 * nystroem.SQUARES * 30**2


def test_landmarks_and_preconditioner_fit_in_the_memory_of_workers(monkeypatch):
    refined = nystroem.refined
    numbers = []

    def count(training, subspace, *given):
        numbers.append(len(subspace.basis))
        return refined(training, subspace, *given)

    monkeypatch.setattr(nystroem, "refined", count)
    kernel, X, target, _ = problem(m=300)
    lowest = int(np.argmin(kernel.weights))
    negative = replace(
        kernel, weights=np.where(np.arange(7) == lowest, -1e-3, kernel.weights)
    )
    n_fitting = int(np.sqrt(Small.memory / (8 * nystroem.WORKER_SQUARES)))
    assert 30 < n_fitting < 99
    for learned, workers, n_components, n_landmarks, expected in (
        (kernel, Threads(), None, 99, [99]),
        (kernel, Small(), None, n_fitting, []),
        (kernel, Small(), 30, 30, [30]),
        (kernel, Small(), 31, 31, []),
        (negative, Small(), None, 30, [30]),
    ):
        training = TrainingSet.of(learned, X, np.arange(300), workers)
        numbers.clear()
        path = Nystroem(n_components=n_components).fit(training, target, GRID)
        assert len(path.kernel.rows) == n_landmarks
        assert numbers == expected


def test_products_of_features_keep_to_the_memory_on_many_cores(monkeypatch):
    held = set()
    most = []

    class Counted(nystroem._FeatureProducts):
        def __init__(self, subspace):
            super().__init__(subspace)
            held.add(id(self))
            most.append(len(held))

        def total(self):
            held.discard(id(self))
            return super().total()

    monkeypatch.setattr(nystroem, "_FeatureProducts", Counted)
    monkeypatch.setattr(worker_threads, "_cores", lambda: 16)
    kernel, X, target, _ = problem(m=7000, task="binary")
    training = TrainingSet.of(kernel, X, np.arange(7000), Threads())
    paths = []
    for memory in (1 << 25, 60_000_000):  # neither stores the kernel
        most.clear()
        predictor = Nystroem(n_components=650, memory=memory, tol=1e-2)
        paths.append(predictor.fit(training, target, GRID))
        n_values = max(most) * (2 * 650**2 + nystroem.PRODUCT_ROWS * 650)
        assert 8 * n_values < memory
    assert max(most) > 1  # with the larger memory
    np.testing.assert_array_equal(paths[0].dual, paths[1].dual)


def test_kernels_that_are_no_positive_sums_and_options_out_of_range_are_refused():
    _, X, target, _ = problem(m=100)
    power = learn_kernel(
        X,
        target.values,
        learner=learners.NKRR(degree=2),
        family=GaussianFamily([0.1, 1.0]),
    )
    shifted = learn_kernel(
        X,
        target.values,
        learner=learners.NKRR(degree=1, offset=2.0),
        family=GaussianFamily([0.1, 1.0]),
        centering="target",
    )
    kernel = learn_kernel(X, target.values, learner="align", family=FAMILY)
    negative = replace(
        kernel, weights=kernel.weights * np.array([1, 1, 1, 1, 1, 1, -0.1])
    )
    table = [
        (power, "krr-cg", "predictor krr-cg serves .*degree 2"),
        (power, "nystroem", "predictor nystroem serves .*degree 2"),
        (shifted, "krr-cg", "this kernel has an offset of 2; use krr"),
        (
            shifted,
            "nystroem",
            "got a kernel of degree 1 and offset 2; use predictor krr",
        ),
        (negative, "krr-cg", "negative weights; use krr"),
        (
            kernel,
            Nystroem(n_components=1),
            "n_components must be a whole number of at least 2, got 1",
        ),
        (kernel, Nystroem(tol=0.0), "tol must be between 0 and 1, got 0.0"),
        (kernel, ConjugateGradients(tol=2.0), "tol must be between 0 and 1, got 2.0"),
    ]
    require_refusals(
        (partial(predictors, one, target, predictor), said)
        for one, predictor, said in table
    )


@pytest.mark.parametrize("name", ["krr-cg", "nystroem"])
def test_nearly_constant_kernels_converge_or_say_what_was_reached(name):
    rng = np.random.default_rng(5)
    X = rng.uniform(0, 3, size=(300, 3))
    target = targets.Target.of(np.sin(3 * X[:, 0]) + X[:, 1])
    kernel = learn_kernel(
        X, target.values, learner="unif", family=GaussianFamily([2.0**-12, 2.0**-11])
    )
    grid = [1.0, 2.0**10, 2.0**30]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = predictors(kernel, target, name, grid)
    solutions = found.paths[0].solutions
    said = [
        str(one.message)
        for one in caught
        if issubclass(one.category, ConvergenceWarning)
    ]
    assert bool(said) == (not solutions.converged)
    assert all(
        f"{solutions.residuals.max():.1e}" in note for note in [*said, found.notes[-1]]
    )
    exact = predictors(kernel, target, "krr", grid).predict(X)
    # With moderate ridges both are exact; the third ridge is below the rounding of the
    # matrix itself.
    np.testing.assert_allclose(found.predict(X)[:2], exact[:2], rtol=0, atol=1e-4)
    assert np.isfinite(found.predict(X)[2]).all()


@pytest.mark.parametrize(("n", "steps"), [(1, "1 step"), (2, "2 steps")])
def test_a_note_has_as_many_steps_as_the_matrix_has_eigenvalues(n: int, steps: str):
    A = np.diag(np.arange(12) % n + 1.0)
    found = solve(A, np.ones((12, 1)), np.ones(1), tolerance=1e-10, max_iter=20)
    note = convergence_note(found, np.ones(1))
    assert note.startswith(f"conjugate gradients: {steps} to a relative residual")


def test_a_tolerance_below_rounding_is_answered_with_the_residual():
    kernel, _, target, _ = problem(m=120)
    with pytest.warns(
        ConvergenceWarning,
        match=r"at a relative residual of .*above the tolerance of 1e-30",
    ):
        found = predictors(kernel, target, ConjugateGradients(tol=1e-30), [1e6])
    assert "relative residual" in found.notes[0]


# Landmarks -----------------------------------------------------------------------------------------------------------


def test_landmarks_solve_the_regression_within_their_span(monkeypatch):
    kernel, X, target, X_new = problem(m=600)
    steps, rows_at = [], X - kernel.origin
    for rows in (0, 3, 10):
        monkeypatch.setattr(nystroem, "REFINING_ROWS", rows)
        monkeypatch.setattr(nystroem, "_refining_pays", lambda *_, rows=rows: rows > 0)
        found = predictors(
            kernel, target, Nystroem(n_components=60, random_state=2, tol=1e-11)
        )
        path = found.paths[0]
        steps.append(path.solutions.iterations)
        np.testing.assert_array_equal(
            path.kernel.X, (X - kernel.origin)[path.kernel.rows]
        )
        K_nZ, K_ZZ = path.kernel.cross_gram(X), path.kernel.gram()
        # The mean diagonal of the kernel that is centered on the landmarks, less the
        # square of the mean feature.
        C, mean = kernel.combination, K_nZ.mean(axis=0)
        own = C.diagonal(rows_at) - 2 * C.matrix(rows_at, path.kernel.X).mean(axis=1)
        own = own.mean() + C.matrix(path.kernel.X, path.kernel.X).mean()
        unit = own - mean @ np.linalg.lstsq(K_ZZ, mean, rcond=1e-13)[0]
        centered, y = K_nZ - K_nZ.mean(axis=0), target.values - target.values.mean()
        for position, C in enumerate(GRID):
            A = centered.T @ centered + unit / C * K_ZZ
            beta = np.linalg.lstsq(A, centered.T @ y, rcond=1e-13)[0]
            expected = (
                target.values.mean()
                + (path.kernel.cross_gram(X_new) - K_nZ.mean(axis=0)) @ beta
            )
            np.testing.assert_allclose(
                found.predict(X_new)[position], expected, rtol=0, atol=ITERATED
            )
    assert steps[0] > steps[1] > steps[2]
    assert steps[2] <= 3  # ten rows a landmark are all rows here


def test_a_pass_can_be_sent_on_after_it_was_used():
    for d in (3, 80):  # laid out, and by seeds
        X = np.random.default_rng(0).normal(size=(40, d))
        combination = Combination(GaussianFamily([0.01]), np.ones(1), np.ones(1))
        of = nystroem.RowPass(
            combination, X, X, np.ones((40, 1)), np.zeros(1), None, None
        )
        block = of.block(slice(0, 10), np.empty((10, 40)))
        again = pickle.loads(pickle.dumps(of)).block(slice(0, 10), np.empty((10, 40)))
        np.testing.assert_array_equal(again, block)


def test_a_kernel_with_landmarks_that_fits_the_memory_is_formed_once(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(700, 3)), rng.normal(size=700)
    target, anew, products = targets.Target.of(y, "regression"), [], PackedRows.products
    kernel = learn_kernel(X, y, learner="unif", family=GaussianFamily([0.1, 1.0]))

    def counted(self, A, beta, given, back, w=None):
        anew.append(len(A) * len(back))
        return products(self, A, beta, given, back, w)

    monkeypatch.setattr(PackedRows, "products", counted)
    on, paths, work = TrainingSet.of(kernel, None, kernel.rows), [], []
    for memory in (1, 1 << 30):
        anew.clear()
        paths.append(
            Nystroem(n_components=40, memory=memory).fit(on, target, [0.1, 10.0])
        )
        work.append(sum(anew))
    # Sums in another order, up to the tolerance
    np.testing.assert_allclose(paths[0].dual, paths[1].dual, rtol=1e-6)
    steps = paths[1].solutions.iterations + 2  # the targets, and the residual once more
    assert work == [steps * 700 * 40, 0]


def test_the_seed_draws_and_the_memory_counts_landmarks():
    kernel, _, target, X_new = problem(m=300)
    first, same, other = (
        predictors(kernel, target, Nystroem(n_components=30, random_state=seed))
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.predict(X_new), same.predict(X_new))
    assert (first.predict(X_new) != other.predict(X_new)).any()
    assert first.notes[0] == "30 landmarks of 300 training rows, drawn uniformly"
    assert (nystroem.landmarks_for(12, 20, 21), nystroem.landmarks_for(5, 20, 21)) == (
        9 + 1,
        5,
    )
    assert nystroem.landmarks_for(1_000_000, 20, 21, 1 << 40) == int(
        np.ceil(1000 * np.log(1e6))
    )
    sizes = [
        nystroem.landmarks_for(1_000_000, 20, 21, memory)
        for memory in (1 << 20, 1 << 28, 1 << 30, 4 << 30)
    ]
    assert sizes == sorted(sizes)
    for memory, M in zip((1 << 28, 1 << 30, 4 << 30), sizes[1:], strict=True):
        assert 0.5 * memory < 8 * 8 * M**2 < memory


def test_one_regularization_has_up_to_twice_the_landmarks_that_fit_with_their_kernel():
    path, alone = (
        nystroem.landmarks_for(36_584, 9, 1, 3 << 30, store_kernel=held)
        for held in (False, True)
    )
    assert alone == 2 * path
    for m in (100_000, 10**6):  # of which the kernel with all rows does not fit
        held, free = (
            nystroem.landmarks_for(m, 9, 1, 3 << 30, store_kernel=held)
            for held in (True, False)
        )
        assert held == free
    for memory in (1 << 24, 1 << 28, 1 << 30):
        M = nystroem.landmarks_for(20_000, 9, 1, memory, store_kernel=True)
        assert (
            memory >= 64 * M**2 + 8 * 20_000 * M
            or nystroem.landmarks_for(20_000, 9, 1, memory) == M
        )
    assert nystroem.landmarks_for(50, 9, 1, store_kernel=True) == 50


def test_a_class_without_training_rows_is_never_predicted():
    _, X, target, X_new = problem(m=200, task="classes")
    rows = np.flatnonzero(target.values != 1)
    for loss in ("hinge", "logistic", "squared"):
        learned = learn_kernel(
            X[rows],
            target.values[rows],
            learner="unif",
            family=FAMILY,
            task="classification",
        )
        kernel, predictor = (
            replace(learned, rows=rows[learned.rows]),
            Nystroem(n_components=60, loss=loss),
        )
        two = predictors(kernel, target, predictor, [4.0], X=X, training=rows)
        assert set(np.unique(two.predict(X_new))) == {0, 2}


def test_a_linear_classifier_on_landmarks_has_the_features_of_all_blocks_of_rows(
    monkeypatch,
):
    kernel, _, target, X_new = problem(m=300, task="classes")
    whole = predictors(
        kernel, target, Nystroem(n_components=60, loss="logistic"), [1.0]
    )
    monkeypatch.setattr(nystroem, "BLOCK", 70)
    blocks = predictors(
        kernel, target, Nystroem(n_components=60, loss="logistic"), [1.0]
    )
    # Of its optimizer
    np.testing.assert_allclose(blocks.scores(X_new), whole.scores(X_new), atol=1e-6)


def test_sparse_rows_and_rows_in_a_file_are_streamed_as_dense_ones(tmp_path):
    rng = np.random.default_rng(8)
    X = rng.normal(size=(200, 12)) * (rng.random((200, 12)) < 0.3)
    target = targets.Target.of(X[:, 0] + X[:, 1] ** 2)
    predictor = Nystroem(n_components=50, tol=1e-10)
    results = []
    np.save(tmp_path / "X.npy", X)
    for rows in (X, sparse.csr_matrix(X), np.load(tmp_path / "X.npy", mmap_mode="r")):
        kernel = learn_kernel(rows, target.values, learner="align", family=FAMILY)
        results.append(predictors(kernel, target, predictor, X=rows).predict(rows[:20]))
    np.testing.assert_allclose(results[1], results[0], rtol=0, atol=ITERATED)
    np.testing.assert_allclose(results[2], results[0], rtol=0, atol=1e-10)
