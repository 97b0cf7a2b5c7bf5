"""Estimators whose predictor is fitted on rows, or whose kernel is learned from a sample: the same numbers, and parts.

Landmarks that are all training rows, and conjugate gradients, solve the problem that a factorisation solves; most tests
hold one against the other.
"""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import learnkernels.kernels.estimators.defaults
from learnkernels import (
    FamilyUnion,
    FeatureFamily,
    GaussianFamily,
    KernelLearningClassifier,
    KernelLearningRegressor,
    LearnedKernelTransformer,
    LinearFamily,
    center_gram,
    gram_moments,
    learn_kernel,
)
from learnkernels.kernels.centering import center_cross_gram
from learnkernels.kernels.learning import learn_from_moments
from learnkernels.kernels.predictors import Auto, ConjugateGradients, Nystrom
from learnkernels.kernels.predictors.calibration import assign_calibration_folds, fit_sigmoid
from learnkernels.kernels.predictors.choice import Problem
from learnkernels.kernels.targets import Target
from tests.reference import ridge_predictions

FAMILY = GaussianFamily([0.1, 0.4, 1.6])

ALL = {"landmarks": 10_000}
"""More landmarks than rows: all of them."""

BY_ROWS = {
    "krr-cg": {"predictor": ConjugateGradients(tolerance=1e-12)},
    "nystrom": {"predictor": Nystrom(**ALL, tolerance=1e-12)},
}

# Residuals of 1e-12 on systems of condition up to 1e4, and the directions of landmarks that count as rounding.
SOLVES = 1e-7

NAMES = {"two": ("no", "yes"), "four": ("a", "b", "c", "d")}


def rows(m: int = 60, d: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(m, d)) + 0.5


def labels(X: np.ndarray, names=("no", "yes"), seed: int = 0) -> np.ndarray:
    """Return as many classes as names, by noisy angle in the first two features."""
    noise = np.random.default_rng(seed).normal(scale=0.2, size=(2, len(X)))
    angle = np.arctan2(X[:, 1] - 0.5 + noise[0], X[:, 0] - 0.5 + noise[1]) + np.pi
    return np.array(names)[np.minimum(angle * len(names) / (2 * np.pi), len(names) - 1).astype(int)]


def numbers(X: np.ndarray, outputs: int | None = None) -> np.ndarray:
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 3.0
    return y if outputs is None else np.column_stack([y * (k + 1) + X[:, 2] for k in range(outputs)])


def scores(model, X: np.ndarray) -> np.ndarray:
    return model.decision_function(X) if hasattr(model, "C") else model.predict(X)


def masked_signal() -> tuple[np.ndarray, np.ndarray]:
    """Return rows and numbers for which alignf-linear gives the second feature a negative weight."""
    signal, noise = np.random.default_rng(11).normal(size=(2, 600))
    return np.column_stack([signal + noise, noise]), signal


DIFFERENCE = FamilyUnion([LinearFamily(), LinearFamily()], [[0], [1]])


# The same solutions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", BY_ROWS.values(), ids=BY_ROWS)
@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_a_classifier_on_rows_is_that_of_the_matrix(by, names):
    X, X_new = rows(), rows(20, seed=1)
    y = labels(X, names)
    exact, model = (KernelLearningClassifier(FAMILY, C=4.0, **how).fit(X, y) for how in ({"predictor": "krr"}, by))
    assert (model.predictor_, model.predictor_reason_) == (by["predictor"].name, "")
    np.testing.assert_array_equal(model.weights_, exact.weights_)
    assert model.alignment_ == exact.alignment_
    np.testing.assert_allclose(scores(model, X_new), scores(exact, X_new), rtol=0, atol=SOLVES)
    linear = model.kernel_.cross_gram(X_new) @ model.dual_coef_ + model.intercept_
    assert linear.shape == (20, 1 if len(names) == 2 else 4)
    np.testing.assert_allclose(linear.squeeze(), scores(model, X_new), rtol=0, atol=1e-12)
    assert model.predict(X_new).tolist() == exact.predict(X_new).tolist()


@pytest.mark.parametrize("by", BY_ROWS.values(), ids=BY_ROWS)
@pytest.mark.parametrize("outputs", [None, 1, 3])
@pytest.mark.parametrize("learner", ["alignf", "l2-krr"])
def test_a_regressor_on_rows_is_that_of_the_matrix(by, outputs, learner):
    X, X_new = rows(), rows(20, seed=1)
    exact, model = (
        KernelLearningRegressor(FAMILY, learner, 0.2, **how).fit(X, numbers(X, outputs)) for how in ({}, by)
    )
    assert exact.predictor_ == "krr"
    assert model.predict(X_new).shape == exact.predict(X_new).shape
    np.testing.assert_allclose(model.predict(X_new), exact.predict(X_new), rtol=0, atol=SOLVES)


def test_landmarks_of_a_kernel_with_negative_weights_give_its_positive_part():
    X, y = masked_signal()
    exact, model = (
        KernelLearningRegressor(DIFFERENCE, "alignf-linear", 0.3, **how).fit(X[:60], y[:60])
        for how in ({}, BY_ROWS["nystrom"])
    )
    assert exact.kernel_.indefinite
    np.testing.assert_allclose(model.predict(X), exact.predict(X), rtol=0, atol=SOLVES)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    "model",
    [
        KernelLearningClassifier(FAMILY, C=3.0, probability=True, **BY_ROWS["krr-cg"]),
        KernelLearningClassifier(probability=True, **BY_ROWS["nystrom"]),
        KernelLearningRegressor(FAMILY, "align", alpha=0.1, **BY_ROWS["krr-cg"]),
        KernelLearningRegressor(FAMILY, "align", alpha=0.1, **BY_ROWS["nystrom"]),
    ],
    ids=["krr-cg", "nystrom", "krr-cg-regression", "nystrom-regression"],
)
def test_a_weight_is_a_number_of_copies(model, kind):
    X = np.where(np.random.default_rng(5).random((50, 3)) < 0.7, rows(50), 0.0)
    y = labels(rows(50), NAMES["four"]) if hasattr(model, "C") else numbers(X)
    w = np.random.default_rng(1).integers(0, 4, size=50)
    order = np.random.default_rng(2).permutation(w.sum())
    weighted = clone(model).fit(kind(X), y, sample_weight=w)
    repeated = clone(model).fit(kind(np.repeat(X, w, axis=0)[order]), np.repeat(y, w)[order])
    X_new = kind(rows(20, seed=3))
    np.testing.assert_allclose(scores(weighted, X_new), scores(repeated, X_new), rtol=0, atol=10 * SOLVES)
    if hasattr(model, "C"):
        # Platt's slope of a few, times scores.
        P, P_repeated = (one.predict_proba(X_new) for one in (weighted, repeated))
        np.testing.assert_allclose(P, P_repeated, rtol=0, atol=100 * SOLVES)


# Landmarks -----------------------------------------------------------------------------------------------------------


def test_the_kernel_of_landmarks_is_that_of_the_rows_they_stand_at():
    X = rows(200)
    model = KernelLearningRegressor(FAMILY, predictor=Nystrom(landmarks=40)).fit(X, numbers(X))
    assert model.dual_coef_.shape == (40, 1)
    np.testing.assert_allclose(model.kernel_.X + model.kernel_.origin, X[model.landmarks_], rtol=1e-12)
    again, other = (clone(model).set_params(predictor__seed=seed).fit(X, numbers(X)) for seed in (0, 1))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert other.landmarks_.tolist() != model.landmarks_.tolist()
    w = np.arange(200) % 2
    some = clone(model).fit(X, numbers(X), sample_weight=w)
    np.testing.assert_allclose(some.kernel_.X + some.kernel_.origin, X[w == 1][some.landmarks_], rtol=1e-12)
    with pytest.raises(AttributeError, match="has landmarks_ once it is fitted with predictor nystrom"):
        _ = clone(model).set_params(predictor="krr").fit(X, numbers(X)).landmarks_


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("loss", ["squared", "hinge", "logistic"])
def test_each_loss_tells_classes_from_few_landmarks(loss, names):
    X, X_new = rows(400), rows(400, seed=1)
    predictor = Nystrom(landmarks=50, loss=loss, sampling="leverage")
    model = KernelLearningClassifier(FAMILY, C=5.0, predictor=predictor, probability=True)
    model.fit(X, labels(X, names))
    assert model.dual_coef_.shape == (50, 1 if len(names) == 2 else 4)
    # The angle is noisy: the classes that its own sign has are found for nine rows of ten.
    assert model.score(X_new, labels(X_new, names, seed=1)) > 0.85
    P = model.predict_proba(X_new)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    if len(names) > 2:
        np.testing.assert_array_equal(model.classes_[P.argmax(axis=1)], model.predict(X_new))


def test_batches_of_whole_chunks_have_the_bits_of_all_rows_at_once(monkeypatch):
    monkeypatch.setattr(learnkernels.kernels.estimators.defaults, "MOST_CHUNK_ROWS", 16)
    X, X_new = rows(), rows(83, seed=1)
    model = KernelLearningClassifier(FAMILY, predictor=Nystrom(landmarks=20)).fit(X, labels(X))
    whole = model.decision_function(X_new)
    parts = [model.decision_function(X_new[i : i + 32]) for i in range(0, 83, 32)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(again.decision_function(X_new), whole)
        np.testing.assert_array_equal(again.landmarks_, model.landmarks_)


@pytest.mark.parametrize("by", BY_ROWS.values(), ids=BY_ROWS)
@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_probabilities_follow_from_scores_of_rows_that_the_predictor_did_not_see(by, names):
    X = rows(80)
    y = labels(X, names)
    model = KernelLearningClassifier(FAMILY, C=2.0, probability=True, **by).fit(X, y)
    K, target = learn_kernel("alignf", FAMILY, X, y).gram(), Target.of(y)
    folds = assign_calibration_folds(X, target.values)
    held = np.empty((80, target.Y.shape[1]))
    for fold in np.unique(folds):
        own, others = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        among, across = K[np.ix_(others, others)], K[np.ix_(own, others)]
        centered = center_gram(among)
        unit = np.trace(centered) / len(centered)
        held[own] = ridge_predictions(
            centered / unit, target.Y[others], 2.0, center_cross_gram(across, among) / unit
        ).reshape(len(own), -1)
    expected = fit_sigmoid(held.ravel(), (target.Y > 0).ravel(), None)
    np.testing.assert_allclose(model.calibration_, expected, rtol=1e-5)


# What auto stands for ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "m", "memory", "predictor", "reason"),
    [
        (KernelLearningClassifier(FAMILY), 60, 10**9, "svm", "svm, exact: "),
        (KernelLearningClassifier(FAMILY), 60, 10**5, "nystrom", "nystrom, .* the matrices of 60 training rows would"),
        (KernelLearningClassifier(FAMILY, "l2-krr"), 60, 10**5, "nystrom", "nystrom, "),
        (KernelLearningRegressor(FAMILY), 60, 10**9, "krr", "krr, exact: "),
        (KernelLearningRegressor(FAMILY), 600, 10**7, "krr-cg", "krr-cg, conjugate gradients on all pairs of rows: "),
        (KernelLearningRegressor(FAMILY), 600, 10**6, "nystrom", "nystrom, "),
        (KernelLearningRegressor(DIFFERENCE, "alignf-linear"), 600, 10**7, "nystrom", "nystrom, "),
        (KernelLearningRegressor(DIFFERENCE, "nkrr"), 60, 10**5, "krr", "krr, exact: the kernel is a power"),
    ],
)
def test_auto_goes_by_rows_memory_and_kernel_and_says_why(model, m, memory, predictor, reason):
    X, y = masked_signal()
    X, y = X[:m], y[:m]
    model = (
        clone(model).set_params(predictor__memory=memory, predictor__seed=3).fit(X, y > 0 if hasattr(model, "C") else y)
    )
    assert model.predictor_ == predictor
    assert model.predictor_reason_.startswith(reason.split(" .*")[0])
    assert reason.split(".* ")[-1] in model.predictor_reason_
    assert model.get_params()["predictor"] == Auto(memory=memory, seed=3)


def test_exponentials_of_many_base_kernels_leave_no_time_for_all_pairs():
    shared = Problem("regression", None, n_rows=30_000, n_kernels=27, n_features=9, n_columns=1)
    assert Auto(memory=10**10).choose(shared).predictor.name == "krr-cg"
    choice = Auto(memory=10**10).choose(replace(shared, n_seeds=27))
    assert choice.predictor.name == "nystrom"
    assert "30 passes over all pairs of rows too long" in choice.reason


# Kernels that were learned on some rows ------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [{"predictor": "krr"}, *BY_ROWS.values()], ids=["krr", *BY_ROWS])
def test_a_kernel_of_some_rows_gets_the_predictor_of_all_rows(by):
    X, X_new = rows(), rows(20, seed=1)
    y = labels(X, NAMES["four"])
    Y, folds = Target.of(y).Y, np.arange(60) % 3
    kernel = learn_from_moments("alignf", FAMILY, X, gram_moments(FAMILY, X, Y, folds).restrict([0, 2]))
    model = KernelLearningClassifier(FAMILY, C=4.0, probability=True, **by).fit_kernel(kernel, y, X=X)
    coefficients = kernel.weights / kernel.scales
    G = np.tensordot(coefficients, FAMILY.tile(X, X), axes=1)
    G_cross = np.tensordot(coefficients, FAMILY.tile(X_new, X), axes=1)
    K = center_gram(G)
    unit = np.trace(K) / len(K)
    expected = ridge_predictions(K / unit, Y, 4.0, center_cross_gram(G_cross, G) / unit)
    np.testing.assert_allclose(model.decision_function(X_new), expected, rtol=0, atol=SOLVES)
    np.testing.assert_array_equal(model.weights_, kernel.weights)
    assert model.kernel_.X.shape == (60, 3)
    assert np.isfinite(model.calibration_).all()


@pytest.mark.parametrize(
    ("X", "y", "weights", "sentence"),
    [
        (
            rows(60, 4),
            labels(rows()),
            None,
            r"X must be the rows .* more than 59 of 3 features, got shape \(60, 4",
        ),
        (rows(50), labels(rows(50)), None, r"X must be the rows that the kernel was learned from, .* \(50, 3\)"),
        (rows()[0], labels(rows()), None, r"X must be the rows that the kernel was learned from, .* \(3,\)"),
        (rows(), labels(rows(50)), None, r"y must have one entry a training row in X, 60, got shape \(50,\)"),
        (None, labels(rows(50)), None, r"y must have one entry a training row of the kernel, 60, got shape \(50,\)"),
        (rows(80), labels(rows(80)), np.arange(60) % 2 + 1.0, "X must be left out for a kernel of 60 rows with weigh"),
    ],
)
def test_rows_that_are_not_those_of_the_kernel_are_refused(X, y, weights, sentence):
    kernel = replace(learn_kernel("alignf", FAMILY, rows(), labels(rows())), sample_weight=weights)
    with pytest.raises(ValueError, match=sentence):
        KernelLearningClassifier(FAMILY).fit_kernel(kernel, y, X=X)


# Kernels that are learned from a sample ------------------------------------------------------------------------------


def test_a_kernel_from_a_sample_serves_all_rows():
    X, X_new = rows(700), rows(20, seed=1)
    y = numbers(X)
    model = KernelLearningRegressor(FAMILY, alpha=0.2, sample=300).fit(X, y)
    whole = KernelLearningRegressor(FAMILY, alpha=0.2).fit(X, y)
    assert model.kernel_.X.shape == (700, 3)
    # Error bars of the weights of 300 rows are a few hundredths.
    np.testing.assert_allclose(model.weights_, whole.weights_, rtol=0, atol=0.2)
    assert (model.weights_ != whole.weights_).any()
    with_all = KernelLearningRegressor(FAMILY, alpha=0.2, sample=700).fit(X, y)
    np.testing.assert_allclose(with_all.predict(X_new), whole.predict(X_new), rtol=0, atol=1e-8)


def test_features_of_a_kernel_from_a_sample_are_those_of_its_rows():
    X = rows(700)
    model = LearnedKernelTransformer(FAMILY, n_components=300, sample=300).fit(X, labels(X))
    sampled = X[model.kernel_.rows]
    np.testing.assert_allclose(model.kernel_.X + model.kernel_.origin, sampled, rtol=1e-12)
    Z, K = model.transform(sampled), model.kernel_.gram()
    # Directions below rounding are dropped, whose roots are left.
    np.testing.assert_allclose(Z @ Z.T, K, rtol=0, atol=1e-7 * np.abs(K).max())


# Refusals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"predictor": "forest"}, "predictor must be one of auto, krr, krr-cg, nystrom, svm, got 'forest'"),
        ({"predictor": "svm"}, "predictor svm does not serve regression; use auto or krr"),
        (
            {"predictor__landmark": 9},
            "parameters of Auto must be among its own, .*, got 'landmark'",
        ),
        ({"predictor": "krr-cg", "predictor__landmarks": 9}, "parameters of ConjugateGradients must be among its own"),
        ({"predictor": [9]}, "predictor must be a name such as 'auto' or a Predictor such as .*, got list"),
        ({"predictor": Auto(landmarks="9")}, "landmarks must be a whole number of at least 2, got '9'"),
        ({"predictor": Auto(landmarks=1)}, "landmarks must be a whole number of at least 2, got 1"),
        ({"predictor": Auto(seed=-1)}, "seed must be a whole number of at least 0, got -1"),
        ({"predictor": Auto(memory="2GB")}, "memory must be a positive, finite number, got '2GB'"),
        ({"predictor": Nystrom(tolerance=2)}, "tolerance must be between 0 and 1, got 2"),
        ({"predictor": Nystrom(loss="hinge")}, "loss hinge serves classification"),
        (
            {"predictor": Nystrom(sampling="all")},
            "sampling must be one of uniform, ",
        ),
        ({"sample": 10}, "sample must be 'auto' or a number of rows of at least 256, got 10"),
        ({"sample": "some"}, "sample must be 'auto' or a number of rows of at least 256, got 'some'"),
        ({"sample": 256, "family": FeatureFamily(3)}, "sample must be None where statistics of rank-one features"),
        ({"sample": 10, "family": None, "learner": "ca"}, "sample must be 'auto' or a number of rows of at least 256"),
    ],
)
def test_a_parameter_out_of_its_range_is_refused_by_fit(params, sentence):
    with pytest.raises(ValueError, match=sentence):
        KernelLearningRegressor(FAMILY).set_params(**params).fit(rows(300), numbers(rows(300)))


def test_a_sample_of_rows_with_weights_is_refused():
    with pytest.raises(ValueError, match="sample must be None where rows have weights, got 'auto'; "):
        KernelLearningRegressor(FAMILY, sample="auto").fit(rows(), numbers(rows()), sample_weight=np.arange(60))
