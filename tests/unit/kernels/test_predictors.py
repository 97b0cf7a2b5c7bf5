"""Second stage: regularisation paths against one direct fit a regularisation."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC

from learnkernels import GaussianFamily, center_gram, learn_kernel
from learnkernels.kernels.centering import center_cross_gram
from learnkernels.kernels.predictors import (
    KRR,
    PREDICTORS,
    SVM,
    Auto,
    ConjugateGradients,
    KernelOnRows,
    KernelRidgePath,
    Nystrom,
    PredictorChoice,
    SupportVectorPath,
    as_predictor,
)
from learnkernels.kernels.predictors.base import DEFAULTS, ExactPredictor
from learnkernels.kernels.predictors.calibration import WORK_OF_FOLDS
from learnkernels.kernels.predictors.choice import DECIDED, Problem, choose_predictor
from learnkernels.kernels.targets import Target
from tests.reference import ridge_predictions
from tests.refusals import require_refusals

GRID = [1e-3, 0.1, 1.0, 30.0, 1e4]

ON_MATRICES = [name for name, predictor in PREDICTORS.items() if issubclass(predictor, ExactPredictor)]

# One factorisation against a solve each: rounding times the condition of K + I / Lambda, at most 1e6 here.
SOLVES = 1e-9


def centered_problem(seed: int = 0):
    """Return a centered matrix of 40 rows and mean diagonal one, that of 12 new rows with them, and the rows."""
    X, X_new = np.split(np.random.default_rng(seed).normal(size=(52, 3)), [40])
    K, K_cross = (np.exp(-0.3 * cdist(rows, X, "sqeuclidean")) for rows in (X, X_new))
    unit = np.trace(center_gram(K)) / 40
    return center_gram(K) / unit, center_cross_gram(K_cross, K) / unit, X


def labels(X: np.ndarray, names) -> np.ndarray:
    """Return as many classes as names, by the first feature."""
    return np.array(names)[np.digitize(X[:, 0], [-0.4, 0.4][: len(names) - 1])]


# Kernel ridge regression ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [None, 3])
def test_the_ridge_path_solves_each_system(outputs):
    K, K_cross, X = centered_problem()
    y = np.sin(X[:, 0]) + 5.0 if outputs is None else np.sin(X @ np.ones((3, outputs)) * [1, 2, 3]) + 5.0
    predicted = KernelRidgePath(K, Target.of(y), GRID).predict(K_cross)
    assert predicted.shape == ((5, 12) if outputs is None else (5, 12, outputs))
    for value, prediction in zip(GRID, predicted, strict=True):
        np.testing.assert_allclose(prediction, ridge_predictions(K, y, value, K_cross), rtol=SOLVES)
        model = KernelRidge(alpha=1 / value, kernel="precomputed").fit(K, y - y.mean(axis=0))
        np.testing.assert_allclose(prediction, model.predict(K_cross) + y.mean(axis=0), rtol=0, atol=SOLVES)


def test_the_strongest_regularisation_predicts_the_mean_and_the_weakest_interpolates():
    K, _, X = centered_problem(seed=3)
    y = X[:, 0] + 3.0
    strong, weak = KernelRidgePath(K, Target.of(y), [1e-12, 1e12]).predict(K)
    np.testing.assert_allclose(strong, y.mean(), rtol=1e-9)
    # 1 / Lambda against the smallest eigenvalue of K other than that of the constant, about 1e-6.
    np.testing.assert_allclose(weak, y, rtol=0, atol=1e-4)


@pytest.mark.parametrize("names", [["no", "yes"], ["a", "b", "c"]])
def test_ridge_classifies_by_the_sign_or_the_largest_score(names):
    K, K_cross, X = centered_problem(seed=4)
    target = Target.of(labels(X, names))
    predicted = KernelRidgePath(K, target, GRID).predict(K_cross)
    for value, prediction in zip(GRID, predicted, strict=True):
        scores = ridge_predictions(K, target.Y, value, K_cross)
        expected = (scores[:, 0] > 0).astype(int) if len(names) == 2 else scores.argmax(axis=1)
        np.testing.assert_array_equal(prediction, expected)
    weakest = KernelRidgePath(K, target, [1e6]).predict(K)[0]
    assert target.error(weakest) == 0.0


# Support vector machines ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["no", "yes"], ["a", "b", "c"]])
def test_the_support_vector_path_is_one_machine_a_regularisation(names):
    K, K_cross, X = centered_problem(seed=5)
    y = labels(X, names)
    target = Target.of(y)
    predicted = SupportVectorPath(K, target, GRID).predict(K_cross)
    assert predicted.shape == (5, 12)
    for value, prediction in zip(GRID, predicted, strict=True):
        expected = SVC(kernel="precomputed", C=value).fit(K, target.values).predict(K_cross)
        np.testing.assert_array_equal(prediction, expected)
    # Classes without training rows keep their positions.
    more = Target.of(np.array([names[0] + "bsent", *y])).take(np.arange(1, 41))
    positions = [more.classes.index(name) for name in names]
    np.testing.assert_array_equal(SupportVectorPath(K, more, GRID).predict(K_cross), np.array(positions)[predicted])


@pytest.mark.parametrize("weighted", [False, True])
def test_a_machine_that_no_c_binds_is_that_of_every_larger_c(weighted: bool):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 3))
    target = Target.of(labels(X, ["a", "b", "c"]))
    K, w = center_gram(np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2))), rng.uniform(0.5, 2.0, size=60)
    grid, weights = [0.1, 10.0, 1e4, 1e6], w if weighted else None
    path = SupportVectorPath(K, target, grid, weights, 1e-9)
    assert path.machines[3] is path.machines[2] is not path.machines[1]
    for position, C in enumerate(grid):
        alone = SupportVectorPath(K, target, [C], weights, 1e-9)
        for one, other in zip(path.coefficients(position), alone.coefficients(), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-6 * max(1.0, np.abs(other).max()))


# Every predictor -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ON_MATRICES)
def test_values_of_a_grid_are_independent_and_data_stay_as_they_are(name):
    K, K_cross, X = centered_problem(seed=7)
    target = Target.of(labels(X, ["no", "yes"]))
    given = K, K_cross, target.values
    before = [array.copy() for array in given]
    for array in given:
        array.flags.writeable = False
    whole = PREDICTORS[name]().fit(K, target, GRID).predict(K_cross)
    for now, then in zip(given, before, strict=True):
        np.testing.assert_array_equal(now, then)
    for value, prediction in zip(GRID, whole, strict=True):
        np.testing.assert_array_equal(PREDICTORS[name]().fit(K, target, [value]).predict(K_cross)[0], prediction)


def test_a_seed_that_is_left_out_is_zero():
    X = np.random.default_rng(3).normal(size=(200, 3))
    y = np.sin(X[:, 0]) + X[:, 1]
    kernel = learn_kernel("unif", GaussianFamily([0.1, 0.5]), X, y)
    on = KernelOnRows.of(kernel, None, kernel.rows)
    for given in (ConjugateGradients(), Nystrom(landmarks=20), Auto(landmarks=20, memory=1 << 18)):
        assert given.seed is None
        fits = [one.fit_on(on, Target.of(y), [1.0]) for one in (given, clone(given).set_params(seed=0))]
        np.testing.assert_array_equal(*(one.predict(X[:5]) for one in fits))


# The choice ----------------------------------------------------------------------------------------------------------


def choice(m, task="regression", own=None, predictor=None, **given):
    predictor = predictor or Auto(memory=4 << 30)
    return choose_predictor(predictor, Problem(task, own, n_rows=m, n_kernels=10, n_features=20, n_columns=21, **given))


def test_auto_takes_the_exact_one_while_it_fits_then_conjugate_gradients_then_landmarks():
    assert choice(800).predictor == KRR()
    assert choice(800, "classification").predictor == SVM()
    assert choice(800, "classification", "krr").predictor == KRR()
    assert DEFAULTS == {"regression": "krr", "classification": "svm"}
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


def test_exponentials_of_many_base_kernels_leave_no_time_for_all_pairs():
    shared = Problem("regression", None, n_rows=30_000, n_kernels=27, n_features=9, n_columns=1)
    assert Auto(memory=10**10).choose(shared).predictor.name == "krr-cg"
    choice = Auto(memory=10**10).choose(replace(shared, n_seeds=27))
    assert choice.predictor.name == "nystrom"
    assert "30 passes over all pairs of rows too long" in choice.reason


def test_auto_hands_its_options_on():
    auto = Auto(landmarks=50, memory=1 << 30, sampling="leverage", loss="hinge", tolerance=1e-7, seed=3)
    assert choice(200_000, "classification", predictor=auto).predictor == Nystrom(**auto.get_params())
    assert choice(15_000, "classification", "krr", auto).predictor == ConjugateGradients(tolerance=1e-7, seed=3)


def test_auto_minds_what_kernels_the_others_serve():
    # Landmarks serve no powers, and conjugate gradients no negative weights.
    for given, name in (({"power": True}, "krr"), ({"indefinite": True}, "nystrom"), ({}, "krr-cg")):
        chosen = choice(15_000, **given)
        assert chosen.predictor.name == name
        assert chosen.reason.startswith(name)


def test_the_problem_of_a_kernel_on_rows_says_what_a_choice_depends_on():
    X = np.random.default_rng(3).normal(size=(30, 4))
    y = np.column_stack([X[:, 0], X[:, 1] ** 2])
    kernel = learn_kernel("nkrr", GaussianFamily([0.1, 0.5]), X, y[:, 0])
    problem = Problem.of(KernelOnRows.of(kernel, None, kernel.rows), Target.of(y), 5, "krr")
    assert problem == Problem("regression", "krr", 30, 2, 4, 10, n_seeds=2, power=True, indefinite=False)


def test_a_predictor_is_known_by_its_name_and_options_or_is_one_already():
    given = Auto(seed=1)
    assert as_predictor("auto", seed=1) == given
    assert as_predictor(given) is given
    assert (as_predictor(given, seed=2), given) == (Auto(seed=2), Auto(seed=1))
    assert {name: predictor.name for name, predictor in PREDICTORS.items()} == {name: name for name in PREDICTORS}


def test_what_is_no_predictor_of_the_task_or_has_options_out_of_range_is_refused():
    table = [
        (Auto(), "regression", "svm", "own predictor must be krr for a regression, got 'svm'"),
        (Auto(), "regression", "kr", "own predictor must be krr for a regression, got 'kr'"),
        (Auto(), "classification", "kr", "own predictor must be krr or svm for a classification, got 'kr'"),
        (Nystrom(memory=None), "regression", None, "memory must be a positive, finite number, got None"),
        (Auto(memory=None), "regression", None, "memory must be a positive, finite number, got None"),
        (Auto(memory=0), "regression", None, "memory must be a positive, finite number, got 0"),
        (Auto(loss="zz", sampling="yy"), "classification", None, "sampling must be one of uniform, leverage, got 'yy'"),
        (Auto(loss="zz"), "classification", None, "loss must be one of squared, hinge, logistic, got 'zz'"),
        (Auto(loss="hinge"), "regression", None, "loss hinge serves classification, and this is a regression"),
        (Auto(seed=-1), "regression", None, "seed must be a whole number of at least 0, got -1"),
        (as_predictor("svm"), "regression", None, "predictor svm does not serve regression; use auto or krr"),
    ]
    named = [
        ("forest", {}, "predictor must be one of auto, krr, krr-cg, nystrom, svm, got 'forest'"),
        ("nystrom", {"landmark": 3}, "parameters of Nystrom must be among its own, landmarks, .*got 'landmark'"),
        ("krr", {"predictor": 0}, "parameters of KRR must be among its own, none, got 'predictor'"),
        ("krr", {"seed": 0}, "parameters of KRR must be among its own, none, got 'seed'"),
        (KernelRidgePath, {}, r"must be a name such as 'auto' or a Predictor such as Nystrom\(landmarks=1000\)"),
    ]
    require_refusals((partial(choice, 100, task, own, one), said) for one, task, own, said in table)
    require_refusals((partial(as_predictor, one, **options), said) for one, options, said in named)
