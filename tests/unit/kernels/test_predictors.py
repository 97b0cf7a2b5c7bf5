"""Second stage: regularization paths against one direct fit a regularization."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.svm import SVC

from learnkernels import GaussianFamily, center_gram, gram_statistics, learn_kernel
from learnkernels.kernels import engine, learners, predictors, targets
from learnkernels.kernels.centering import center_cross_gram
from learnkernels.kernels.engine.operators import FeatureGrams, gram_operator
from learnkernels.kernels.families.base import drawn_rows, move
from learnkernels.kernels.learners.norm_ball import (
    L1KRR,
    L1SVM,
    L2KRR,
    LpKRR,
    LpSVM,
    SingleStage,
    solve_on_ball,
)
from learnkernels.kernels.predictors import (
    KRR,
    SVM,
    Auto,
    ConjugateGradients,
    Nystroem,
    as_predictor,
    ridge_path,
)
from learnkernels.kernels.predictors.base import DEFAULTS, PredictorChoice, TrainingSet
from learnkernels.kernels.predictors.choice import ROUGH, PredictionProblem
from learnkernels.kernels.solvers.conjugate_gradients import Preconditioner
from learnkernels.kernels.solvers.ridge import (
    RidgeProblem,
    StreamedRidge,
    on_drawn_rows,
    ridge_problem,
)
from learnkernels.kernels.targets import Target
from tests.reference import ridge_predictions
from tests.refusals import require_refusals

GRID = [1e-3, 0.1, 1.0, 30.0, 1e4]

# One factorization against a solve each: rounding times the condition of K + I / C, at
# most 1e6 here.
SOLVES = 1e-9


def centered_problem(seed: int = 0):
    """Return a centered matrix of 40 rows and mean diagonal one, that of 12 new rows with them, and the rows."""
    X, X_new = np.split(np.random.default_rng(seed).normal(size=(52, 3)), [40])
    K, K_cross = (np.exp(-0.3 * cdist(rows, X, "sqeuclidean")) for rows in (X, X_new))
    unit = np.trace(center_gram(K)) / 40
    return center_gram(K) / unit, center_cross_gram(K_cross, K) / unit, X


# Paths ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [None, 3])
def test_the_ridge_path_solves_each_system_from_the_mean_to_interpolation(outputs):
    K, K_cross, X = centered_problem()
    y = (
        np.sin(X[:, 0]) + 5.0
        if outputs is None
        else np.sin(X @ np.ones((3, outputs)) * [1, 2, 3]) + 5.0
    )
    predicted = ridge_path(K, Target.of(y), GRID).predict_from(K_cross)
    for value, prediction in zip(GRID, predicted, strict=True):
        np.testing.assert_allclose(
            prediction, ridge_predictions(K, y, value, K_cross), rtol=SOLVES
        )

    strong, weak = ridge_path(K, Target.of(y), [1e-12, 1e12]).predict_from(K)
    np.testing.assert_allclose(
        strong - y.mean(axis=0), np.zeros(y.shape), rtol=0, atol=1e-9
    )
    # 1 / C against the smallest eigenvalue of K other than that of the constant, about
    # 1e-6.
    np.testing.assert_allclose(weak, y, rtol=0, atol=1e-4)


@pytest.mark.parametrize("names", [["no", "yes"], ["a", "b", "c"]])
def test_classes_along_a_path_are_those_of_one_fit_a_regularization(names):
    K, K_cross, X = centered_problem(seed=5)
    y = np.array(names)[np.digitize(X[:, 0], [-0.4, 0.4][: len(names) - 1])]
    target = Target.of(y)
    for array in (K, K_cross, target.values):
        array.flags.writeable = False
    ridges, machines = (
        one.fit_matrix(K, target, GRID).predict_from(K_cross) for one in (KRR(), SVM())
    )
    for value, by_ridge, by_machine in zip(GRID, ridges, machines, strict=True):
        scores = ridge_predictions(K, target.Y, value, K_cross)
        expected = (
            (scores[:, 0] > 0).astype(int) if len(names) == 2 else scores.argmax(axis=1)
        )
        np.testing.assert_array_equal(by_ridge, expected)
        expected = (
            SVC(kernel="precomputed", C=value).fit(K, target.values).predict(K_cross)
        )
        np.testing.assert_array_equal(by_machine, expected)
    assert target.error(ridge_path(K, target, [1e6]).predict_from(K)[0]) == 0.0
    # Classes without training rows keep their positions.
    more = Target.of(np.array([names[0] + "bsent", *y])).take(np.arange(1, 41))
    positions = [more.classes.index(name) for name in names]
    np.testing.assert_array_equal(
        SVM().fit_matrix(K, more, GRID).predict_from(K_cross),
        np.array(positions)[machines],
    )


# Every predictor -----------------------------------------------------------------------------------------------------


def test_a_seed_that_is_left_out_is_zero():
    X = np.random.default_rng(3).normal(size=(200, 3))
    y = np.sin(X[:, 0]) + X[:, 1]
    kernel = learn_kernel(X, y, learner="unif", family=GaussianFamily([0.1, 0.5]))
    on = TrainingSet.of(kernel, None, kernel.rows)
    for given in (
        ConjugateGradients(),
        Nystroem(n_components=20),
        Auto(n_components=20, memory=1 << 18),
    ):
        assert given.random_state is None
        fits = [
            one.fit(on, Target.of(y), [1.0])
            for one in (given, clone(given).set_params(random_state=0))
        ]
        np.testing.assert_array_equal(*(one.predict(X[:5]) for one in fits))


# The choice ----------------------------------------------------------------------------------------------------------


def choice(m, task="regression", own=None, predictor=None, **given):
    predictor = predictor or Auto(memory=4 << 30)
    return predictor.choose(
        PredictionProblem(
            task, own, n_rows=m, n_kernels=10, n_features=20, n_columns=21, **given
        )
    )


def test_auto_takes_the_exact_one_while_it_fits_then_conjugate_gradients_then_landmarks():
    exact = [
        (KRR(), 800),
        (SVM(), 800, "classification"),
        (KRR(), 800, "classification", "krr"),
    ]
    landmarks = [
        (Nystroem(memory=4 << 30), 15_000, "classification"),
        (Nystroem(memory=4 << 30), 200_000),
    ]
    for predictor, m, *given in [
        *exact,
        (ConjugateGradients(tol=ROUGH), 15_000),
        *landmarks,
    ]:
        assert choice(m, *given).predictor == predictor
    assert DEFAULTS == {"regression": "krr", "classification": "svm"}
    assert choice(2_000, predictor=Auto(memory=1 << 26)).predictor.name in (
        "krr-cg",
        "nystroem",
    )
    assert "800 training rows take 20.5 MB" in choice(800).reason
    assert "landmarks" in choice(200_000).reason
    assert max(len(choice(m).reason) for m in (100, 12_000, 10**6)) < 200
    # Landmarks serve no powers, and conjugate gradients no negative weights.
    for given, name in (
        ({"power": True}, "krr"),
        ({"indefinite": True}, "nystroem"),
        ({}, "krr-cg"),
    ):
        chosen = choice(15_000, **given)
        assert chosen.predictor.name == name
        assert chosen.reason.startswith(name)


def test_one_machine_alone_is_exact_on_more_rows_than_a_path_of_them():
    alone = PredictionProblem(
        "classification",
        None,
        16_000,
        n_kernels=27,
        n_features=16,
        n_columns=26,
        single=True,
    )
    kept = [
        ("nystroem", 3, {"single": False}),
        ("nystroem", 3, {"indefinite": True}),
        ("nystroem", 2, {}),
    ]
    for name, room, changes in [
        ("svm", 3, {}),
        *kept,
        ("krr-cg", 8, {"n_rows": 20_001}),
    ]:
        assert (
            Auto(memory=room << 30).choose(replace(alone, **changes)).predictor.name
            == name
        )


def test_classes_of_more_rows_are_told_by_conjugate_gradients_of_indicators():
    many = PredictionProblem(
        "classification",
        None,
        23_000,
        n_kernels=5,
        n_features=6,
        n_columns=18,
        single=True,
    )

    def chosen(options=(), **changes):
        return (
            Auto(memory=3 << 30, **dict(options))
            .choose(replace(many, **changes))
            .predictor
        )

    assert chosen(learner_predictor="krr", n_rows=4_000).name == "krr"
    assert chosen(learner_predictor="krr", n_rows=4_000, single=False).name == "krr-cg"
    assert chosen() == chosen(task="regression") == ConjugateGradients(tol=ROUGH)
    assert chosen(learner_predictor="krr") == ConjugateGradients(tol=ROUGH)
    assert chosen({"tol": 1e-5}) == ConjugateGradients(tol=1e-5)
    assert chosen(task="regression", n_rows=20_000, single=False) == ConjugateGradients(
        tol=ROUGH
    )
    assert chosen(n_rows=200_000).name == "nystroem"
    # a learner whose weights are those of machines
    assert chosen(learner_predictor="svm").name == "nystroem"
    assert chosen(single=False).name == "nystroem"
    for asked in ({"n_components": 100}, {"loss": "hinge"}):
        assert chosen(asked).name == "nystroem"
    # More fits take more time, which there is on fewer rows.
    assert chosen(n_rows=70_000).name == "krr-cg"
    assert chosen(n_rows=70_000, fits=4.0).name == "nystroem"


def test_exponentials_of_many_base_kernels_leave_no_time_for_all_pairs():
    shared = PredictionProblem(
        "regression", None, n_rows=40_000, n_kernels=27, n_features=9, n_columns=1
    )
    assert Auto(memory=10**10).choose(shared).predictor.name == "krr-cg"
    choice = Auto(memory=10**10).choose(replace(shared, n_seeds=27))
    assert choice.predictor.name == "nystroem"
    assert "passes over all pairs of rows too long" in choice.reason


def test_auto_hands_its_options_on_and_a_named_predictor_is_taken_at_any_size():
    auto = Auto(n_components=50, memory=1 << 30, loss="hinge", tol=1e-7, random_state=3)
    assert choice(200_000, "classification", predictor=auto).predictor == Nystroem(
        **auto.get_params()
    )
    assert choice(
        15_000, "classification", "krr", auto
    ).predictor == ConjugateGradients(tol=1e-7, random_state=3)
    assert (
        choice(10**6, predictor=KRR())
        == choice(5, predictor=KRR())
        == PredictorChoice(KRR(), "")
    )
    assert choice(100, predictor=Nystroem()).reason == ""


def test_the_problem_of_a_kernel_on_rows_says_what_a_choice_depends_on():
    X = np.random.default_rng(3).normal(size=(30, 4))
    y = np.column_stack([X[:, 0], X[:, 1] ** 2])
    kernel = learn_kernel(X, y[:, 0], learner="nkrr", family=GaussianFamily([0.1, 0.5]))
    problem = PredictionProblem.of(
        TrainingSet.of(kernel, None, kernel.rows), Target.of(y), 5, "krr"
    )
    assert problem == PredictionProblem(
        "regression", "krr", 30, 2, 4, 10, n_seeds=2, power=True, indefinite=False
    )


def test_a_predictor_is_known_by_its_name_and_options_or_is_one_already():
    given = Auto(random_state=1)
    assert as_predictor("auto", random_state=1) == given
    assert as_predictor(given) is given
    assert (as_predictor(given, random_state=2), given) == (
        Auto(random_state=2),
        Auto(random_state=1),
    )
    known = predictors.PREDICTORS
    assert {name: predictor.name for name, predictor in known.items()} == {
        name: name for name in known
    }


def test_what_is_no_predictor_of_the_task_or_has_options_out_of_range_is_refused():
    table = [
        (
            Auto(),
            "regression",
            "svm",
            "own predictor must be krr for a regression, got 'svm'",
        ),
        (
            Auto(),
            "classification",
            "kr",
            "own predictor must be krr or svm for a classification, got 'kr'",
        ),
        (
            Nystroem(memory=None),
            "regression",
            None,
            "memory must be a positive, finite number, got None",
        ),
        (
            Auto(memory=0),
            "regression",
            None,
            "memory must be a positive, finite number, got 0",
        ),
        (
            Auto(loss="zz"),
            "classification",
            None,
            "loss must be one of squared, hinge, logistic, got 'zz'",
        ),
        (
            Auto(loss="hinge"),
            "regression",
            None,
            "loss hinge serves classification, and this is a regression",
        ),
        (
            Auto(random_state=-1),
            "regression",
            None,
            "random_state must be a whole number of at least 0, got -1",
        ),
        (
            as_predictor("svm"),
            "regression",
            None,
            "predictor 'svm' does not support regression. Use one of auto, krr, krr-cg, nystroem.",
        ),
    ]
    named = [
        (
            "forest",
            {},
            "predictor must be one of auto, krr, krr-cg, nystroem, svm, got 'forest'",
        ),
        (
            "nystroem",
            {"n_component": 3},
            "Nystroem has no parameter 'n_component'. Did you mean 'n_components'",
        ),
        ("krr", {"predictor": 0}, "KRR takes no parameters, got 'predictor'."),
        (
            TrainingSet,
            {},
            r"must be a name such as 'auto' or a Predictor such as Nystroem\(n_components=1000\)",
        ),
    ]
    require_refusals(
        (partial(choice, 100, task, own, one), said) for one, task, own, said in table
    )
    require_refusals(
        (partial(as_predictor, one, **options), said) for one, options, said in named
    )


# One-stage learners without a matrix of all pairs of rows: the weights of those with matrices ------------------------


FAMILY = GaussianFamily([2.0**g for g in range(-6, 1)])


def problem(m=250, classes=2):
    X = np.random.default_rng(0).normal(size=(m, 5))
    f = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    return X, f if classes is None else np.digitize(
        f, np.linspace(-1, 1, classes + 1)[1:-1]
    )


def inner(m, C, classes=2, in_memory=0):
    X, y = problem(m, classes)
    statistics = gram_statistics(FAMILY, X, targets.Target.of(y).Y)
    scales = statistics.traces() / m
    rows = move(X[statistics.rows], statistics.origin)
    grams = gram_operator(
        FAMILY, rows, shift=statistics.shift, scales=scales, in_memory=in_memory
    )
    return grams, targets.Target.of(y).take(statistics.rows), C


@pytest.mark.parametrize(
    ("C", "classes"), [(0.25, 2), (8.0, 3), (512.0, 3), (0.25, None), (512.0, None)]
)
def test_solutions_are_those_with_a_matrix(C, classes):
    with_matrix = RidgeProblem(*inner(120, C, classes, in_memory=2**30))
    streamed = StreamedRidge(*inner(120, C, classes), tolerance=1e-8)
    for mu in (
        np.full(7, 0.3),
        np.array([0.9, 0, 0.1, 0.2, 0, 0, 0.4]),
        np.array([0.88, 0, 0.1, 0.2, 0, 0, 0.42]),
    ):
        ours, theirs = streamed.at(mu), with_matrix.at(mu)
        # The value is above that of the solution by what its residual may add: a
        # ten-thousandth of the gap.
        assert (
            theirs.objective * (1 - 1e-11)
            <= ours.objective
            <= theirs.objective * (1 + 1e-11)
        )
        np.testing.assert_allclose(ours.forms, theirs.forms, rtol=1e-5)
        some = np.array([0, 2, 6])
        H = theirs.hessian(some)
        # Residuals of a thousandth leave errors of about a millionth, however the
        # equations are conditioned.
        np.testing.assert_allclose(ours.hessian(some), H, rtol=0, atol=2e-6 * H.max())


@pytest.mark.parametrize("C", [0.125, 512.0])
def test_steps_are_those_with_matrices(C):
    found = []
    for problem_of, in_memory in (
        (RidgeProblem, 2**30),
        (partial(StreamedRidge, tolerance=1e-4), 0),
    ):
        inner_problem = problem_of(*inner(250, C, None, in_memory))
        outer = L2KRR().ball(inner_problem.grams.n_kernels)
        found.append(solve_on_ball(inner_problem, outer, None, 1e-4, 20))
    (expected, with_matrices), (streamed, without) = found
    assert without.iterations == with_matrices.iterations
    # Both end where the gap is within 1e-4, far from the minimum; Newton's steps there
    # agree to six digits.
    np.testing.assert_allclose(streamed, expected, rtol=0, atol=1e-6 * expected.max())


OUTER = [
    L2KRR(),
    L2KRR(center=1.0),
    L2KRR(tol=1e-10),
    LpKRR(1.5),
    L1KRR(),
    SingleStage(),
]


@pytest.mark.parametrize("learner", OUTER, ids=repr)
def test_weights_are_those_with_matrices(learner, request):
    X, y = problem()
    options = {"task": "classification", "C": 8.0}
    expected = learn_kernel(X, y, learner=learner, family=FAMILY, **options)
    request.getfixturevalue("no_matrices")
    kernel = learn_kernel(X, y, learner=learner, family=FAMILY, **options)
    assert kernel.certificate.residual <= 1e-6
    assert kernel.certificate.objectives[-1] == pytest.approx(
        expected.certificate.objectives[-1], rel=1e-6
    )
    # Weights whose values are within a gap of each other differ by about its root.
    atol = learner.tol**0.5 * expected.weights.max()
    np.testing.assert_allclose(kernel.weights, expected.weights, rtol=0, atol=atol)


@pytest.mark.parametrize("norm", [1.0, 2.0])
def test_some_rows_give_weights_to_begin_with(norm, monkeypatch):
    monkeypatch.setattr(engine.operators, "LARGEST_MATRIX", 0)
    grams, target, C = inner(250, 8.0, None)
    found = []
    for most in 10**9, 60:
        monkeypatch.setattr(learners.norm_ball, "RIDGE_SAMPLE", most)
        found.append(LpKRR(norm, tol=1e-7).solve(grams, target, C).certificate)
    equal, sampled = found
    assert sampled.residual <= 1e-7
    # Both within a gap of the minimum
    assert sampled.objectives[-1] == pytest.approx(equal.objectives[-1], rel=2e-7)
    assert sampled.objectives[0] < equal.objectives[0]


@pytest.mark.parametrize("learner", [L1SVM(), LpSVM(1.5)], ids=repr)
@pytest.mark.parametrize("classes", [2, 3])
def test_machines_on_many_rows_learn_on_a_sample_that_counts_for_all(
    learner, classes, monkeypatch
):
    monkeypatch.setattr(engine.operators, "LARGEST_MATRIX", 0)
    monkeypatch.setattr(learners.norm_ball, "SVM_SAMPLE", 125)
    grams, target, C = inner(250, 2.0, classes)
    solution = learner.solve(grams, target, C)
    assert solution.certificate.measure == "duality gap on a sample"
    assert solution.certificate.residual <= 1e-6
    monkeypatch.undo()
    np.testing.assert_array_equal(
        learner.solve(*on_drawn_rows(grams, target, 125), 2 * C).weights,
        solution.weights,
    )


def test_base_kernels_on_drawn_rows_are_those_of_these_rows():
    rng = np.random.default_rng(0)
    Z = rng.poisson(0.5, size=(40, 6)) * 1.0
    some = drawn_rows(40, 15, 0)
    centered, mu = Z[some] - Z[some].mean(axis=0), rng.uniform(size=6)
    for grams in (FeatureGrams(Z - Z.mean(axis=0)), FeatureGrams(sparse.csr_matrix(Z))):
        part, target = on_drawn_rows(grams, targets.Target.of(np.arange(40.0)), 15)
        np.testing.assert_array_equal(target.values, some)
        np.testing.assert_allclose(
            part.combine(mu), (centered * mu) @ centered.T, rtol=0, atol=1e-12
        )
    grams, target, _ = inner(250, 1.0)
    part, _ = on_drawn_rows(grams, target, 60)
    # The mean diagonal of base kernels is about that of all rows, which scales make
    # one; a root of 60 rows tells it.
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
    expected = np.column_stack(
        [
            np.linalg.solve(A + s * np.eye(9), r)
            for s, r in zip(shifts, R.T, strict=True)
        ]
    )
    np.testing.assert_allclose(P(R, shifts), expected, rtol=1e-7)
    # Without some rows and columns it is the inverse of what is left, for vectors that
    # are zero there.
    kept, R[6:] = np.arange(6), 0.0
    left = [
        np.linalg.solve(A[:6, :6] + s * np.eye(6), r[:6])
        for s, r in zip(shifts, R.T, strict=True)
    ]
    np.testing.assert_allclose(
        P.without(np.arange(6, 9))(R, shifts)[kept], np.column_stack(left), rtol=1e-7
    )
