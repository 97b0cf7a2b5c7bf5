"""Classifiers of several labels per row: one kernel for all labels, and a score and a sigmoid for each."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import make_multilabel_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import hamming_loss, log_loss

from learnkernels import KernelLearningClassifier, KernelLearningRegressor, load
from learnkernels.kernels.estimators import fit_on_kernel
from learnkernels.kernels.families import GaussianFamily
from learnkernels.kernels.model import Model
from learnkernels.kernels.predictors import ConjugateGradients, Nystroem
from tests.refusals import require_refusals

FAMILY = GaussianFamily([0.1, 0.4, 1.6])

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3))
NOISE = 0.3 * RNG.normal(size=(400, 3))
# Of shares 0.5, 0.5 and 0.16
LABELS = np.column_stack([X[:, 0] * X[:, 1], X[:, 2], X[:, 1] - 1.0])
LABELS = (LABELS + NOISE > 0).astype(int)
for array in (X, LABELS):
    array.flags.writeable = False


def fitted(Y=LABELS, rows=X, weights=None, **params) -> KernelLearningClassifier:
    return KernelLearningClassifier(**{"family": FAMILY, "C": 1.0, **params}).fit(
        rows, Y, weights
    )


@pytest.mark.parametrize("learner", ["unif", "alignf"])
def test_a_label_is_predicted_as_two_classes_are(learner: str):
    y = LABELS[:, 2]
    alone = fitted(y, learner=learner, predictor="krr")
    # The opposite label has the same kernel, and the opposite scores.
    together = fitted(np.column_stack([y, 1 - y]), learner=learner)
    decisions = together.decision_function(X)
    np.testing.assert_allclose(
        decisions[:, 0], alone.decision_function(X), rtol=0, atol=1e-6
    )
    np.testing.assert_allclose(decisions[:, 1], -decisions[:, 0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(
        together.predict_proba(X), alone.predict_proba(X)[:, ::-1], rtol=0, atol=1e-6
    )


def test_landmarks_score_a_label_as_two_classes():
    y = LABELS[:, 2]
    options = {
        "learner": "alignf",
        "predictor": Nystroem(n_components=50),
        "probability": False,
    }
    decisions = fitted(np.column_stack([y, 1 - y]), **options).decision_function(X)
    np.testing.assert_allclose(
        decisions[:, 0], fitted(y, **options).decision_function(X), rtol=0, atol=1e-6
    )


def test_one_kernel_is_learned_from_the_columns_of_all_labels():
    model = fitted(probability=False)
    regressor = KernelLearningRegressor(family=FAMILY, alpha=1.0).fit(
        X, 2.0 * LABELS - 1.0
    )
    np.testing.assert_array_equal(model.weights_, regressor.weights_)
    np.testing.assert_allclose(
        model.decision_function(X), regressor.predict(X), rtol=0, atol=1e-9
    )
    np.testing.assert_array_equal(model.classes_, [0, 1, 2])
    assert model.multilabel_
    assert not hasattr(model, "predict_proba")
    assert not fitted(LABELS[:, 0]).multilabel_


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"family": None, "C": "auto"},
        {"predictor": ConjugateGradients(tol=1e-3)},
        {"predictor": "nystroem", "C": "auto"},
        {"learner": "l2-krr", "centering": "none"},
        {"precision": "float32"},
    ],
    ids=str,
)
def test_labels_of_new_rows_are_predicted_with_calibrated_probabilities(params):
    model = fitted(LABELS[:300], X[:300], **params)
    labels = model.predict(X[300:])
    P = model.predict_proba(X[300:])
    assert labels.shape == P.shape == model.decision_function(X[300:]).shape == (100, 3)
    np.testing.assert_array_equal(labels, P > 0.5)
    constant = np.minimum(LABELS.mean(axis=0), 1 - LABELS.mean(axis=0)).mean()
    assert hamming_loss(LABELS[300:], labels) < 0.6 * constant
    for label in range(3):
        share = np.full(100, LABELS[:300, label].mean())
        assert log_loss(LABELS[300:, label], P[:, label]) < 0.8 * log_loss(
            LABELS[300:, label], share
        )
    # Three standard errors of the mean of 100 labels.
    np.testing.assert_allclose(
        P.mean(axis=0), LABELS[300:].mean(axis=0), rtol=0, atol=0.15
    )
    assert (
        model.score(X[300:], LABELS[300:])
        == (labels == LABELS[300:]).all(axis=1).mean()
    )


def test_indicators_may_be_of_any_kind():
    expected = fitted().predict_proba(X)
    frame = pd.DataFrame(LABELS, columns=list("abc"))
    for Y in (
        LABELS.tolist(),
        LABELS.astype(float),
        LABELS == 1,
        frame,
        sparse.csr_matrix(LABELS),
    ):
        model = fitted(Y)
        np.testing.assert_array_equal(model.predict_proba(X), expected)
        assert model.predict(X).dtype == np.int64


def test_a_weight_counts_as_so_many_copies():
    weights = np.random.default_rng(1).integers(0, 3, size=400)
    copies = np.repeat(np.arange(400), weights)
    C = 2.0
    mean_weight = weights[weights > 0].mean()
    weighted = fitted(weights=weights, C=C * mean_weight, probability=False)
    copied = fitted(LABELS[copies], X[copies], C=C, probability=False)
    np.testing.assert_allclose(
        weighted.decision_function(X), copied.decision_function(X), rtol=0, atol=1e-6
    )
    with_probabilities = fitted(weights=weights)
    np.testing.assert_array_equal(
        with_probabilities.predict_proba(X) > 0.5, with_probabilities.predict(X)
    )


@pytest.mark.parametrize("name", ["groups", "time"])
def test_groups_and_times_are_respected(name: str):
    numbers = np.arange(400) // 5
    model = KernelLearningClassifier(family=FAMILY).fit(X, LABELS, **{name: numbers})
    assert model.n_groups_ == 80
    assert (model.predict(X) == LABELS).mean() > 0.8


def test_a_label_without_variation_is_predicted():
    Y = np.column_stack([LABELS[:, 0], np.zeros(400), np.ones(400)]).astype(int)
    model = fitted(Y)
    np.testing.assert_array_equal(model.predict(X)[:, 1:], Y[:, 1:])
    P = model.predict_proba(X)
    assert (P[:, 1] < 0.01).all()
    assert (P[:, 2] > 0.99).all()


def test_files_a_learned_kernel_and_tables_have_labels_too(tmp_path):
    model = fitted()
    model.save(tmp_path / "labels.safetensors")
    again = load(tmp_path / "labels.safetensors")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    on_kernel = fit_on_kernel(
        KernelLearningClassifier(C=1.0, family=FAMILY, predictor="krr"),
        model.kernel_,
        LABELS,
    )
    np.testing.assert_allclose(
        on_kernel.predict_proba(X), model.predict_proba(X), rtol=0, atol=1e-6
    )
    table = pd.DataFrame(X, columns=list("abc")).assign(
        d=np.where(LABELS[:, 0] == 1, "x", "y")
    )
    assert (fitted(rows=table).predict(table)[:, 0] == LABELS[:, 0]).mean() > 0.95
    # A refit on one label forgets the labels.
    y = LABELS[:, 0]
    np.testing.assert_array_equal(
        model.fit(X, y).predict_proba(X), fitted(y).predict_proba(X)
    )


def test_a_sample_under_a_time_limit_has_all_labels():
    Z, Y = make_multilabel_classification(700, 5, n_classes=3, random_state=0)
    with pytest.warns(UserWarning, match="fitted on a sample of 250 of 700 rows"):
        model = KernelLearningClassifier(family=FAMILY, time_limit=1e-9).fit(Z, Y)
    assert model.predict(Z).shape == (700, 3)


def test_options_that_do_not_serve_several_labels_are_refused():
    balanced = KernelLearningClassifier(class_weight="balanced")
    boosted = KernelLearningClassifier(
        family=FAMILY, boost=HistGradientBoostingClassifier()
    )
    labels_1_2 = LABELS + 1
    table = [
        (
            partial(balanced.fit, X, LABELS),
            "class_weight must be None for several labels per row, got 'balanced'",
        ),
        (
            partial(fitted, predictor="svm"),
            "predictor must have the squared loss for several labels per row, got SVM",
        ),
        (
            partial(fitted, predictor=Nystroem(loss="hinge")),
            "must have the squared loss .*; use krr, krr-cg or nyst",
        ),
        (
            partial(fitted, learner="l1-svm"),
            "learner must support regression for several labels per row, got 'l1-svm",
        ),
        (
            partial(boosted.fit, X, LABELS),
            "boost=.* cannot be used, as rows have several labels; use boost=False",
        ),
        (
            partial(fitted, labels_1_2),
            "y must hold only 0 and 1 in its 3 columns, one per label, got 2",
        ),
        (
            partial(fitted, np.add(LABELS, LABELS[:, ::-1])),
            r"got shape \(400, 3\); for several classes per column, use",
        ),
        (
            partial(fitted, np.where(LABELS == 1, "yes", "no")),
            "y must be one column of classes, or 0 and 1 in a column",
        ),
        (partial(fitted, np.zeros((400, 2), dtype=int)), "Y must vary|constant target"),
        (
            partial(Model, fitted(), tuple("abc"), np.zeros(3), np.ones(3), {}),
            "a classifier of several labels per row",
        ),
    ]
    require_refusals(table)
