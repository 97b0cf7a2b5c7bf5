"""Metrics: scikit-learn's scores turned into errors, and what is told where one does not serve."""

from functools import partial
from typing import get_args

import numpy as np
import pytest
from sklearn import metrics as of_sklearn
from sklearn.metrics import get_scorer
from sklearn.utils import Tags, TargetTags

from learnkernels import GaussianFamily, gram_statistics
from learnkernels.conf.schema.base import MetricName
from learnkernels.kernels.learners import (
    LearningProblem,
    as_learner,
    learn_from_statistics,
)
from learnkernels.kernels.model_selection.evaluation import (
    Evaluation,
    KernelPredictors,
    keep_one_kernel,
)
from learnkernels.kernels.model_selection.folds import (
    assign_folds,
    assign_nested_split,
    inner_trials,
    nested_split_trial,
    trials,
)
from learnkernels.kernels.model_selection.metrics import METRICS, in_words, metric_for
from learnkernels.kernels.predictors.calibration import fit_sigmoid
from learnkernels.kernels.targets import Target
from tests.refusals import require_refusals

RNG = np.random.default_rng(0)
NUMBERS = Target.of(RNG.normal(size=40))
TWO = Target.of(np.where(RNG.random(40) < 0.3, "ill", "well"))
THREE = Target.of(np.array(["a", "b", "c"])[RNG.integers(0, 3, 40)])


class Told:
    """An estimator that predicts what it was told, for scikit-learn's scorers."""

    def __init__(self, predictions: np.ndarray, classes: int) -> None:
        self.predictions, self.classes_ = predictions, np.arange(classes)

    def __sklearn_tags__(self) -> Tags:
        kind = "classifier" if len(self.classes_) else "regressor"
        return Tags(estimator_type=kind, target_tags=TargetTags(required=True))

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.predictions

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        return self.predictions

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.predictions


def said(metric, target, rng):
    """Something that a metric can be measured on."""
    n, k = len(target), len(target.classes)
    if metric.response == "probabilities":
        odds = rng.random((n, k))
        return odds / odds.sum(axis=1, keepdims=True)
    return (
        rng.normal(size=n)
        if metric.task == "regression" or metric.response == "scores"
        else rng.integers(0, k, n)
    )


@pytest.mark.parametrize(
    "target", [NUMBERS, TWO, THREE], ids=["numbers", "two classes", "three classes"]
)
def test_an_error_is_what_the_score_of_scikit_learn_lacks(target):
    found, expected = {}, {}
    for seed, (name, metric) in enumerate(METRICS.items()):
        if metric.task != target.task or (metric.is_binary and len(target.classes) > 2):
            continue
        told = said(metric, target, np.random.default_rng(seed))
        score = get_scorer(name)(
            Told(told, len(target.classes)), np.zeros((40, 1)), target.values
        )
        found[name] = metric.measure(target, told, None)
        expected[name] = (0 if name.startswith("neg_") else 1) - score
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", METRICS)
def test_a_row_of_weight_three_is_three_rows(name):
    metric, rng = METRICS[name], np.random.default_rng(5)
    target = NUMBERS if metric.task == "regression" else TWO
    if not metric.weighable:
        with pytest.raises(
            ValueError,
            match=f"metric {name} counts each row once, and these have weights",
        ):
            metric_for(name, target, weighted=True)
        return
    told = said(metric, target, rng)
    w = rng.integers(1, 4, 40)
    rows = np.repeat(np.arange(40), w)
    # Between two values, or one of them
    near = {"rel": 0.1} if name == "neg_median_absolute_error" else {}
    expected = metric.measure(target.take(rows), told[rows], None)
    assert metric.measure(target, told, w.astype(float)) == pytest.approx(
        expected, **near
    )
    training, test = np.arange(25), np.arange(25, 40)
    weighed = metric.trivial_error(
        target.take(test), target.take(training), w[test], w[training]
    )
    repeated = [target.take(np.repeat(of, w[of])) for of in (test, training)]
    assert weighed == pytest.approx(
        metric.trivial_error(*repeated), rel=0.1 if "absolute" in name else 1e-12
    )


def test_balanced_accuracy_leaves_out_classes_without_test_rows_and_warns_of_nothing():
    some = THREE.take(np.flatnonzero(THREE.values != 2))
    predicted = np.full(len(some), 2)
    predicted[:5] = some.values[:5]
    expected = np.mean([np.mean(predicted[some.values == k] == k) for k in (0, 1)])
    assert METRICS["balanced_accuracy"].measure(some, predicted, None) == pytest.approx(
        1 - expected
    )


@pytest.mark.parametrize(
    "name", [name for name, metric in METRICS.items() if metric.task == "regression"]
)
def test_the_trivial_error_of_numbers_is_that_of_the_best_constant_of_the_training_rows(
    name,
):
    metric, training, test = (
        METRICS[name],
        NUMBERS.take(np.arange(25)),
        NUMBERS.take(np.arange(25, 40)),
    )
    own = metric.constant(training.values, None)
    # Not the best one, or one of many
    if name in (
        "neg_median_absolute_error",
        "explained_variance",
    ):
        assert own == (np.median if "median" in name else np.mean)(training.values)
    else:  # errors are convex in the constant, so the best one among its neighbors is the best of all
        apart = [
            sign * step for sign in (-1, 1) for step in (1e-4, 1e-3, 1e-2, 0.1, 1.0)
        ]
        near = [
            metric.measure(training, np.full(25, own + step), None) for step in apart
        ]
        assert metric.measure(training, np.full(25, own), None) < min(near)
    expected = metric.measure(test, np.full(15, own), None)
    assert metric.trivial_error(test, training) == pytest.approx(expected)


def test_the_trivial_error_of_classes_is_that_of_the_most_frequent_one_or_of_shares():
    training, test = TWO.take(np.arange(25)), TWO.take(np.arange(25, 40))
    # All metrics of predictions choose the second class
    assert training.values.mean() > 0.5
    shares = np.tile(np.bincount(training.values) / 25, (15, 1))
    told = {
        "predictions": np.ones(15, dtype=int),
        "scores": np.zeros(15),
        "probabilities": shares,
    }
    served = [metric for metric in METRICS.values() if metric.task == "classification"]
    found = {metric.name: metric.trivial_error(test, training) for metric in served}
    assert found == pytest.approx(
        {
            metric.name: metric.measure(test, told[metric.response], None)
            for metric in served
        }
    )
    share, p = test.values.mean(), shares[0]
    known = {
        "accuracy": 1 - share,
        "f1": 1 - 2 * share / (1 + share),
        "jaccard_macro": 1 - share / 2,
    }
    known |= {"recall": 0.0, "roc_auc": 0.5, "matthews_corrcoef": 1.0}
    known |= {
        "neg_log_loss": -np.log(p)[test.values].mean(),
        "neg_brier_score": np.mean((p[1] - test.values) ** 2),
    }
    assert {name: found[name] for name in known} == pytest.approx(known)


def test_trivial_errors_of_three_classes_and_two_outputs():
    three = Target.of(np.array(["b", "a", "c", "b", "b", "a"]))
    # Training means 1 and 20
    two = Target.of(np.array([[0.0, 10.0], [2.0, 30.0], [1.0, 24.0]]))
    for target, test, training, expected in (
        (three, [1, 4, 5], [0, 3, 2], 2 / 3),
        (two, [2], [0, 1], np.sqrt(16 / 2)),
    ):
        found = metric_for(None, target).trivial_error(
            target.take(test), target.take(training)
        )
        assert found == pytest.approx(expected)


def test_metrics_have_the_names_of_the_schema_and_errors_those_of_tables_and_of_people():
    assert get_args(MetricName) == tuple(METRICS)
    assert metric_for(None, TWO).name_in_tables(TWO) == "misclassification"
    assert metric_for(None, NUMBERS).name_in_tables(NUMBERS) == "rmse"
    assert metric_for("f1", TWO).name_in_tables(TWO) == "1 - f1 of well"
    assert in_words("1 - f1 of well") == "one minus the F1 score of well"
    assert in_words("1 - roc_auc") == "one minus the area under the ROC curve"
    assert in_words("rmse") == "root mean squared error"


def test_a_metric_that_does_not_serve_is_refused():
    serves = [
        (
            "r2",
            TWO,
            "metric r2 is for regression, and this is a classification; take accuracy, balanced_accuracy, ",
        ),
        (
            "roc_auc",
            NUMBERS,
            "metric roc_auc is for classification, and this is a regression; take neg_root_mean_sq",
        ),
        (
            "roc_auc",
            THREE,
            "metric roc_auc is for two classes, got 3; take accuracy, balanced_accuracy, roc_auc_ovr, ",
        ),
        ("f1_micro", TWO, "metric must be one of accuracy, .*, got 'f1_micro'"),
    ]
    require_refusals(
        (partial(metric_for, name, target), sentence)
        for name, target, sentence in serves
    )
    METRICS["accuracy"].check_rows(TWO.take([0]), "test")
    needy = [
        "roc_auc",
        "average_precision",
        "f1",
        "r2",
        "roc_auc_ovo",
        "explained_variance",
    ]
    table, lacking = (
        [],
        "metric {} needs .* among the rows that test, and 1 of one trial do not",
    )
    for name in needy:
        target = NUMBERS if METRICS[name].task == "regression" else TWO
        METRICS[name].check_rows(target, "test")
        table.append(
            (
                partial(METRICS[name].check_rows, target.take([0]), "test"),
                lacking.format(name),
            )
        )
    require_refusals(table)


FAMILY = GaussianFamily([0.1, 1.0])


def rare() -> tuple[np.ndarray, Target]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(150, 3))
    return X, Target.of(
        np.where(X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=150) > 0.8, "ill", "fine")
    )


def hypotheses(X, target: Target, name: str, grid: list[float]):
    """Return those of a learner of hypotheses, or of a predictor on the kernel of alignf."""
    statistics = gram_statistics(FAMILY, X, target.Y)
    if name in ("l2-krr", "ensemble"):
        found = as_learner(name).learn(
            LearningProblem(FAMILY, X, statistics, target, grid)
        )
        return (
            found
            if name == "ensemble"
            else KernelPredictors(found, target, "krr", grid)
        )
    kernel = learn_from_statistics("alignf", FAMILY, X, statistics)
    return KernelPredictors(
        [kernel], target, name, grid, X=X, training=np.arange(len(X))
    )


SCORED = [
    (name, 2) for name in ("svm", "krr", "krr-cg", "nystroem", "l2-krr", "ensemble")
]
SCORED += [(name, 3) for name in ("svm", "krr", "auto", "ensemble")]


@pytest.mark.parametrize(("name", "classes"), SCORED)
def test_scores_tell_the_classes_that_are_predicted(name, classes):
    X = np.random.default_rng(4).normal(size=(60, 2))
    target = Target.of(np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.5, 0.5][: classes - 1]))
    of = hypotheses(X, target, name, [0.5, 2.0, 8.0])
    scores = of.scores(X)
    assert scores.shape == ((3, 60) if classes == 2 else (3, 60, 3))
    np.testing.assert_array_equal(
        scores > 0 if classes == 2 else scores.argmax(axis=2), of.predict(X)
    )
    if name != "ensemble":
        share_a_kernel = len(of.kernels) == 1
        single, position = keep_one_kernel(of, 1)
        assert position == (1 if share_a_kernel else 0)
        np.testing.assert_array_equal(
            single.scores(X), scores if share_a_kernel else scores[1:2]
        )


def machines(
    X, target: Target, folds: np.ndarray, training: tuple[int, ...], grid: list[float]
):
    """Return SVMs on the kernel of alignf of some folds, and the rows of these."""
    statistics = gram_statistics(FAMILY, X, target.Y, folds).restrict(training)
    kernel = learn_from_statistics("alignf", FAMILY, X, statistics)
    return KernelPredictors([kernel], target, "svm", grid), kernel.rows


@pytest.mark.parametrize("nested", [False, True])
def test_probabilities_come_by_a_sigmoid_of_the_rows_that_choose(nested):
    X, target = rare()
    metric = METRICS["neg_log_loss"]
    folds = (
        assign_nested_split(target, 100, 50, 3, 0)
        if nested
        else assign_folds(target, 3, 0)
    )
    trial = nested_split_trial(3) if nested else trials(3)[0]
    fitted = partial(machines, X, target, folds, grid=[0.5, 2.0, 8.0])
    (of, training), evaluation = (
        fitted(trial.training),
        Evaluation(X, target, folds, metric),
    )
    if nested:
        choosing = [(inner, fitted(inner.training)[0]) for inner in inner_trials(trial)]
        selection = evaluation.select_by_cross_validation(
            (inner, [one]) for inner, one in choosing
        )
        result = evaluation.outcome(of, selection.position, selection, training, trial)
    else:
        choosing = [(trial, of)]
        result = evaluation.result([of], training, trial)
    told = [(one, np.flatnonzero(folds == inner.validation)) for inner, one in choosing]
    scores = np.concatenate([of.scores(X[rows])[result.position] for of, rows in told])
    labels = np.concatenate([target.values[rows] for _, rows in told])
    slope, offset = fit_sigmoid(scores, labels == 1, None)
    test = np.flatnonzero(folds == trial.test)
    p = 1 / (1 + np.exp(-(slope * of.scores(X[test])[result.position] + offset)))
    assert result.error == pytest.approx(
        of_sklearn.log_loss(target.values[test], p), rel=1e-9
    )
    assert result.error < result.trivial_error


def test_the_metric_chooses_and_is_measured():
    X, target = rare()
    folds, trial = assign_folds(target, 3, 0), trials(3)[0]
    of, rows = machines(
        X, target, folds, trial.training, [2.0**k for k in range(-8, 9, 2)]
    )
    scores, predictions = of.scores(X), of.predict(X)
    validation, test = folds == trial.validation, folds == trial.test
    for name, error, told in (
        ("roc_auc", lambda y, scores: 1 - of_sklearn.roc_auc_score(y, scores), scores),
        ("f1", lambda y, predicted: 1 - of_sklearn.f1_score(y, predicted), predictions),
        (None, lambda y, predicted: np.mean(y != predicted), predictions),
    ):
        result = Evaluation(X, target, folds, metric_for(name, target)).result(
            [of], rows, trial
        )
        expected = [error(target.values[validation], one[validation]) for one in told]
        np.testing.assert_allclose(result.validation_errors, expected, rtol=1e-12)
        assert result.position == int(np.argmin(expected))
        assert result.error == pytest.approx(
            error(target.values[test], told[result.position][test])
        )
