"""Second stage: regularisation paths against one direct fit a regularisation."""

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC

from learnkernels import GaussianFamily, center_gram, learn_kernel
from learnkernels.kernels.centering import center_cross_gram
from learnkernels.kernels.predictors import (
    PREDICTORS,
    ConjugateGradients,
    KernelOnRows,
    KernelRidgePath,
    Nystrom,
    SupportVectorPath,
    as_predictor,
)
from learnkernels.kernels.predictors.base import DEFAULTS, ExactPredictor
from learnkernels.kernels.predictors.choice import Auto, Problem, choose_predictor
from learnkernels.kernels.targets import Target
from tests.reference import gaussian, gram, ridge_predictions

GRID = [1e-3, 0.1, 1.0, 30.0, 1e4]

ON_MATRICES = [name for name, predictor in PREDICTORS.items() if issubclass(predictor, ExactPredictor)]

# One factorisation against a solve each: rounding times the condition of K + I / Lambda, at most 1e6 here.
SOLVES = 1e-9


def centered_problem(m: int = 40, n: int = 12, seed: int = 0):
    """Return a centered Gram matrix of mean diagonal one, the cross-Gram of new rows, and both sets of rows."""
    rng = np.random.default_rng(seed)
    X, X_new = rng.normal(size=(m, 3)), rng.normal(size=(n, 3))
    K = gram(gaussian(0.3), X).astype(float)
    Kc, K_cross = center_gram(K), center_cross_gram(gram(gaussian(0.3), X_new, X).astype(float), K)
    unit = np.trace(Kc) / m
    return Kc / unit, K_cross / unit, X, X_new


def labels(X: np.ndarray, names) -> np.ndarray:
    """Return as many classes as names, by angle in the first two features."""
    angle = np.arctan2(X[:, 1], X[:, 0]) + np.pi
    return np.array(names)[np.minimum(angle * len(names) / (2 * np.pi), len(names) - 1).astype(int)]


# Kernel ridge regression ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [None, 3])
def test_the_ridge_path_solves_each_system(outputs):
    K, K_cross, X, _ = centered_problem()
    y = np.sin(X[:, 0]) + 5.0 if outputs is None else np.sin(X @ np.ones((3, outputs)) * [1, 2, 3]) + 5.0
    predicted = KernelRidgePath(K, Target.of(y), GRID).predict(K_cross)
    assert predicted.shape == ((5, 12) if outputs is None else (5, 12, outputs))
    for value, prediction in zip(GRID, predicted, strict=True):
        np.testing.assert_allclose(prediction, ridge_predictions(K, y, value, K_cross), rtol=SOLVES)


def test_the_ridge_path_agrees_with_scikit_learn_on_the_centered_kernel():
    K, K_cross, X, _ = centered_problem(seed=1)
    y = X[:, 0] * X[:, 1] - 2.0
    predicted = KernelRidgePath(K, Target.of(y), GRID).predict(K_cross)
    for value, prediction in zip(GRID, predicted, strict=True):
        model = KernelRidge(alpha=1 / value, kernel="precomputed").fit(K, y - y.mean())
        np.testing.assert_allclose(prediction, model.predict(K_cross) + y.mean(), rtol=0, atol=SOLVES)


def test_ridge_on_a_centered_linear_kernel_is_ridge_regression_with_an_intercept():
    rng = np.random.default_rng(2)
    X, X_new = rng.normal(size=(30, 3)) + 4.0, rng.normal(size=(8, 3)) + 4.0
    y, ridge = X @ [1.0, -2.0, 0.5] + 7.0, 0.4
    predicted = KernelRidgePath(center_gram(X @ X.T), Target.of(y), [1 / ridge]).predict(
        center_cross_gram(X_new @ X.T, X @ X.T)
    )
    # Normal equations with a column of ones, whose coefficient is not penalised.
    design = np.column_stack([X, np.ones(30)])
    coefficients = np.linalg.solve(design.T @ design + ridge * np.diag([1, 1, 1, 0]), design.T @ y)
    np.testing.assert_allclose(predicted[0], X_new @ coefficients[:3] + coefficients[3], rtol=1e-9)


def test_the_strongest_regularisation_predicts_the_mean_and_the_weakest_interpolates():
    K, _, X, _ = centered_problem(seed=3)
    y = X[:, 0] + 3.0
    strong, weak = KernelRidgePath(K, Target.of(y), [1e-12, 1e12]).predict(K)
    np.testing.assert_allclose(strong, y.mean(), rtol=1e-9)
    # 1 / Lambda against the smallest eigenvalue of K other than that of the constant, about 1e-6.
    np.testing.assert_allclose(weak, y, rtol=0, atol=1e-4)


@pytest.mark.parametrize("names", [["no", "yes"], ["a", "b", "c"]])
def test_ridge_classifies_by_the_sign_or_the_largest_score(names):
    K, K_cross, X, _ = centered_problem(seed=4)
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
    K, K_cross, X, _ = centered_problem(seed=5)
    target = Target.of(labels(X, names))
    predicted = SupportVectorPath(K, target, GRID).predict(K_cross)
    assert predicted.shape == (5, 12)
    for value, prediction in zip(GRID, predicted, strict=True):
        expected = SVC(kernel="precomputed", C=value).fit(K, target.values).predict(K_cross)
        np.testing.assert_array_equal(prediction, expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_machine_that_no_c_binds_is_that_of_every_larger_c(weighted: bool):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 3))
    target = Target.of(np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.4, 0.4])])
    K, w = center_gram(np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2))), rng.uniform(0.5, 2.0, size=60)
    grid, weights = [0.1, 10.0, 1e4, 1e6], w if weighted else None
    path = SupportVectorPath(K, target, grid, weights, 1e-9)
    assert path.machines[3] is path.machines[2] is not path.machines[1]
    for position, C in enumerate(grid):
        alone = SupportVectorPath(K, target, [C], weights, 1e-9)
        for one, other in zip(path.coefficients(position), alone.coefficients(), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-6 * max(1.0, np.abs(other).max()))


def test_machines_trained_without_a_class_still_speak_of_positions_in_all_classes():
    K, K_cross, X, _ = centered_problem(seed=6)
    target = Target.of(np.array(["absent", *labels(X, ["no", "yes"])])).take(np.arange(1, 41))
    assert set(np.unique(SupportVectorPath(K, target, [1.0]).predict(K_cross))) <= {1, 2}


# Every predictor -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ON_MATRICES)
def test_training_data_are_not_modified(name):
    K, K_cross, X, _ = centered_problem(seed=7)
    target = Target.of(labels(X, ["no", "yes"]))
    before = K.copy(), K_cross.copy(), target.values.copy()
    for array in (K, K_cross, target.values):
        array.flags.writeable = False
    PREDICTORS[name]().fit(K, target, GRID).predict(K_cross)
    for now, then in zip((K, K_cross, target.values), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("name", ON_MATRICES)
def test_a_regularisation_does_not_depend_on_the_rest_of_the_grid(name):
    K, K_cross, X, _ = centered_problem(seed=8)
    target = Target.of(labels(X, ["no", "yes"]))
    whole = PREDICTORS[name]().fit(K, target, GRID).predict(K_cross)
    for value, prediction in zip(GRID, whole, strict=True):
        np.testing.assert_array_equal(PREDICTORS[name]().fit(K, target, [value]).predict(K_cross)[0], prediction)


def few_rows(task, own=None) -> Problem:
    return Problem(task, own, n_rows=100, n_kernels=3, n_features=4, n_columns=1)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_default_predictor_serves_its_task(task):
    chosen = choose_predictor(Auto(), few_rows(task)).predictor
    assert chosen.name == DEFAULTS[task]
    assert task in chosen.tasks
    assert choose_predictor(Auto(), few_rows(task, own="krr")).predictor == as_predictor("krr")
    assert choose_predictor(as_predictor("krr"), few_rows(task)).predictor == as_predictor("krr")


@pytest.mark.parametrize(
    ("own", "task", "said"),
    [
        ("svm", "regression", "own predictor must be krr for a regression, got 'svm'"),
        ("kr", "regression", "own predictor must be krr for a regression, got 'kr'"),
        ("kr", "classification", "own predictor must be krr or svm for a classification, got 'kr'"),
    ],
)
def test_a_learners_own_predictor_must_be_one_that_serves_the_task(own, task, said):
    with pytest.raises(ValueError, match=said):
        choose_predictor(Auto(), few_rows(task, own))


@pytest.mark.parametrize(
    ("predictor", "task", "said"),
    [
        (Nystrom(memory=None), "regression", "memory must be a positive, finite number, got None"),
        (Auto(memory=None), "regression", "memory must be a positive, finite number, got None"),
        (Auto(memory=0), "regression", "memory must be a positive, finite number, got 0"),
        (Auto(loss="zz", sampling="yy"), "classification", "sampling must be one of uniform, leverage, got 'yy'"),
        (Auto(loss="zz"), "classification", "loss must be one of squared, hinge, logistic, got 'zz'"),
        (Auto(loss="hinge"), "regression", "loss hinge serves classification, and this is a regression"),
        (Auto(seed=-1), "regression", "seed must be a whole number of at least 0, got -1"),
    ],
)
def test_an_option_out_of_its_range_is_refused_whatever_is_chosen(predictor, task, said):
    with pytest.raises(ValueError, match=said):
        choose_predictor(predictor, few_rows(task))


@pytest.mark.parametrize("kind", [ConjugateGradients, Nystrom, Auto])
def test_a_seed_that_is_left_out_is_the_callers_and_else_zero(kind):
    X = np.random.default_rng(3).normal(size=(200, 3))
    y = np.sin(X[:, 0]) + X[:, 1]
    kernel = learn_kernel("unif", GaussianFamily([0.1, 0.5]), X, y)
    few = {} if kind is ConjugateGradients else {"landmarks": 20}
    small = {"memory": 1 << 18} if kind is Auto else {}
    assert kind().seed is None
    on = KernelOnRows.of(kernel, None, kernel.rows)
    fits = [kind(**few, **small, seed=seed).fit_on(on, Target.of(y), [1.0]) for seed in (None, 0)]
    np.testing.assert_array_equal(*(one.predict(X[:5]) for one in fits))


def test_the_problem_of_a_kernel_on_rows_says_what_a_choice_depends_on():
    X = np.random.default_rng(3).normal(size=(30, 4))
    y = np.column_stack([X[:, 0], X[:, 1] ** 2])
    kernel = learn_kernel("nkrr", GaussianFamily([0.1, 0.5]), X, y[:, 0])
    problem = Problem.of(KernelOnRows.of(kernel, None, kernel.rows), Target.of(y), 5, "krr")
    assert problem == Problem("regression", "krr", 30, 2, 4, 10, n_seeds=2, power=True, indefinite=False)


@pytest.mark.parametrize(
    ("name", "task", "sentence"),
    [
        ("forest", "classification", "predictor must be one of auto, krr, krr-cg, nystrom, svm, got 'forest'"),
        ("svm", "regression", "predictor svm does not serve regression; use auto or krr"),
    ],
)
def test_a_predictor_that_cannot_serve_is_refused(name, task, sentence):
    with pytest.raises(ValueError, match=sentence):
        choose_predictor(as_predictor(name), few_rows(task))


@pytest.mark.parametrize(
    ("predictor", "options", "said"),
    [
        (
            "nystrom",
            {"landmark": 3},
            "parameters of Nystrom must be among its own, landmarks, .*got 'landmark'",
        ),
        ("krr", {"predictor": 0}, "parameters of KRR must be among its own, none, got 'predictor'"),
        ("krr", {"seed": 0}, "parameters of KRR must be among its own, none, got 'seed'"),
        (
            KernelRidgePath,
            {},
            r"predictor must be a name such as 'auto' or a Predictor such as Nystrom\(landmarks=1000\)",
        ),
    ],
)
def test_what_is_no_predictor_gets_one_sentence(predictor, options, said):
    with pytest.raises(ValueError, match=said) as refusal:
        as_predictor(predictor, **options)
    assert str(refusal.value).endswith(".")


def test_a_predictor_is_known_by_its_name_and_options_or_is_one_already():
    given = Auto(seed=1)
    assert as_predictor("auto", seed=1) == given
    assert as_predictor(given) is given
    assert (as_predictor(given, seed=2), given) == (Auto(seed=2), Auto(seed=1))
    assert {name: predictor.name for name, predictor in PREDICTORS.items()} == {name: name for name in PREDICTORS}
