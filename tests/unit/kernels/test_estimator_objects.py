"""Learners, predictors and families as parameters of the estimators, and what is said of many rows."""

from __future__ import annotations

import pickle
import threading
import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import learnkernels.kernels.estimators.base
from learnkernels import (
    FeatureFamily,
    GaussianFamily,
    KernelLearningClassifier,
    KernelLearningRegressor,
    LearnedKernelTransformer,
    learn_kernel,
)
from learnkernels.kernels.learners import L2KRR, LpKRR, Lq, Solution, TwoStageLearner
from learnkernels.kernels.predictors import Nystrom
from tests.unit.kernels.test_estimators import FAMILY, labels, numbers, rows


@dataclass(frozen=True, eq=False, repr=False)
class Powers(TwoStageLearner):
    """Weights that are powers of the products with the target."""

    power: float = 1.0

    def weigh(self, M, a):
        """Return the weights."""
        return Solution.of_direction(np.maximum(a, 0.0) ** self.power)


# Searched ------------------------------------------------------------------------------------------------------------


def test_a_search_reaches_the_parameters_of_learner_predictor_and_family():
    X = rows(90)
    model = KernelLearningRegressor(FAMILY, LpKRR(), 0.1, predictor=Nystrom(landmarks=20))
    grid = {
        "kernellearningregressor__learner__norm": [1.0, 3.0],
        "kernellearningregressor__predictor__landmarks": [20, 40],
        "kernellearningregressor__family__gammas": [[0.1, 0.4], [1.0]],
    }
    search = GridSearchCV(make_pipeline(StandardScaler(), model), grid, cv=3).fit(X, numbers(X))
    best, found = search.best_params_, search.best_estimator_[-1]
    assert found.learner == LpKRR(norm=best["kernellearningregressor__learner__norm"])
    assert len(found.landmarks_) == best["kernellearningregressor__predictor__landmarks"]
    assert found.family_.gammas == tuple(best["kernellearningregressor__family__gammas"])
    # What the search set, it set on clones.
    assert (model.learner, model.predictor, model.family) == (LpKRR(), Nystrom(landmarks=20), FAMILY)


def test_names_take_parameters_too():
    model = KernelLearningRegressor(FAMILY, "lp-krr").set_params(learner__norm=1.5, predictor__seed=3)
    assert model.learner == LpKRR(norm=1.5)
    assert model.predictor.get_params()["seed"] == 3
    model.set_params(learner="lq", learner__q=4.0)
    assert model.learner == Lq(q=4.0)
    with pytest.raises(ValueError, match="parameters of Lq must be among its own, q, got 'norm'"):
        model.set_params(learner__norm=1.0)


def test_a_parameter_that_is_refused_changes_nothing():
    model = KernelLearningRegressor(FAMILY, "lq")
    with pytest.raises(ValueError, match="got 'norm'"):
        model.set_params(learner__norm=1.0)
    assert model.learner == "lq"


def test_parameters_set_later_leave_what_was_fitted():
    X = rows()
    family = GaussianFamily([0.1, 0.4])
    model = KernelLearningRegressor(family).fit(X, numbers(X))
    before = model.predict(X)
    model.set_params(family__gammas=[3.0])
    assert model.kernel_.family.gammas == (0.1, 0.4)
    np.testing.assert_array_equal(model.predict(X), before)


def test_a_family_that_two_share_is_changed_for_neither():
    X, family = rows(), GaussianFamily([0.1, 0.4])
    kernel = learn_kernel("alignf", family, X, numbers(X))
    model = KernelLearningRegressor(family).fit_kernel(kernel, numbers(X))
    other = KernelLearningRegressor(family).set_params(family__gammas=[3.0])
    assert other.family == GaussianFamily([3.0])
    assert family == kernel.family == model.family_ == GaussianFamily([0.1, 0.4])


def test_predicting_imports_no_learner(tmp_path, monkeypatch):
    X = rows()
    model = KernelLearningRegressor(FAMILY).fit(X, numbers(X))
    (tmp_path / "not_asked_for.py").write_text("raise SystemExit('it was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    model.learner = "not_asked_for:Learner"
    assert model.predict(X).shape == (60,)
    assert model.__sklearn_tags__().input_tags.sparse


@pytest.mark.parametrize("learner", [Powers(2.0), L2KRR(radius=2.0)], ids=lambda learner: type(learner).__name__)
def test_an_object_is_cloned_pickled_and_shown(learner):
    X = rows()
    model = clone(KernelLearningRegressor(FAMILY, learner))
    assert model.learner == learner
    assert "\n" not in repr(learner)
    again = pickle.loads(pickle.dumps(model.fit(X, numbers(X))))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.learner == learner


# Classes that count more, draws, threads -----------------------------------------------------------------------------


@pytest.mark.parametrize("predictor", ["svm", "krr"])
def test_weights_of_classes_are_weights_of_their_rows(predictor):
    X = rows(70)
    y = labels(X, ("a", "b", "c"))
    w = np.random.default_rng(5).integers(0, 3, size=70).astype(float)
    of_classes = {"a": 1.0, "b": 4.0, "c": 0.5}
    weighted = KernelLearningClassifier(FAMILY, predictor=predictor, class_weight=of_classes)
    by_rows = KernelLearningClassifier(FAMILY, predictor=predictor)
    expected = by_rows.fit(X, y, sample_weight=w * np.vectorize(of_classes.get)(y)).decision_function(X)
    np.testing.assert_array_equal(weighted.fit(X, y, sample_weight=w).decision_function(X), expected)
    sizes = dict(zip(*np.unique(y, return_counts=True), strict=True))
    balanced = {label: 70 / (3 * size) for label, size in sizes.items()}
    expected = clone(weighted).set_params(class_weight=balanced).fit(X, y).decision_function(X)
    found = clone(weighted).set_params(class_weight="balanced").fit(X, y).decision_function(X)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_rows_of_weight_zero_do_not_count_in_balanced_classes():
    X = rows(80)
    y = labels(X)
    w = np.arange(80) % 2.0
    balanced = KernelLearningClassifier(FAMILY, class_weight="balanced")
    expected = clone(balanced).fit(X[w > 0], y[w > 0]).decision_function(X)
    np.testing.assert_array_equal(balanced.fit(X, y, sample_weight=w).decision_function(X), expected)


def test_random_state_draws_samples_and_landmarks():
    X = rows(700)
    by = {"sample": 300}, {"predictor": "nystrom"}, {"predictor": Nystrom(landmarks=20)}
    for option, drawn_by in zip(by, ("weights_", "landmarks_", "landmarks_"), strict=True):
        model = KernelLearningRegressor(FAMILY, **option)
        states = (0, 0, 1, np.random.RandomState(7))
        fits = [clone(model).set_params(random_state=state).fit(X, numbers(X)) for state in states]
        drawn = [getattr(fit, drawn_by).tolist() for fit in fits]
        assert drawn[0] == drawn[1]
        assert drawn[0] not in drawn[2:]


class Seen(GaussianFamily):
    """Gaussians that remember which threads asked for them."""

    threads: ClassVar[set[int]] = set()

    def tile(self, A, B, shift=None):
        Seen.threads.add(threading.get_ident())
        return super().tile(A, B, shift)

    def fill_seeds(self, A, B, shift, out):
        Seen.threads.add(threading.get_ident())
        super().fill_seeds(A, B, shift, out)


@pytest.mark.parametrize("model", [KernelLearningClassifier(), KernelLearningRegressor(), LearnedKernelTransformer()])
def test_n_jobs_bounds_the_threads_of_fits_and_predictions(model):
    X, many = rows(700), rows(6000)  # with n_jobs=2, three threads are seen in fits and two in predictions
    y = labels(X) if isinstance(model, KernelLearningClassifier) else numbers(X)
    Seen.threads = set()
    model = clone(model).set_params(family=Seen([0.1, 0.4]), n_jobs=1).fit(X, y)
    _ = model.transform(many) if hasattr(model, "transform") else model.predict(many)
    assert Seen.threads == {threading.get_ident()}
    with pytest.raises(ValueError, match="n_jobs must be a whole number but 0, or None, got 0"):
        clone(model).set_params(n_jobs=0).fit(X, y)


# Many rows -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(learnkernels.kernels.estimators.base, "MOST_ROWS", 500)


@pytest.mark.usefixtures("few_are_many")
def test_of_many_rows_a_sample_is_taken_and_it_is_said():
    X = rows(900)
    y = numbers(X)
    with pytest.warns(UserWarning, match="X has 900 rows, more than 500: the kernel is learned from a sample"):
        unasked = KernelLearningRegressor(FAMILY).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked = KernelLearningRegressor(FAMILY, sample="auto").fit(X, y)
        whole = KernelLearningRegressor(FAMILY, sample="all").fit(X, y)
        few = KernelLearningRegressor(FAMILY).fit(X[:500], y[:500])
        features = KernelLearningRegressor(FeatureFamily(3)).fit(X, y)
    np.testing.assert_array_equal(unasked.weights_, asked.weights_)
    assert unasked.kernel_.sampling is not None
    assert [model.kernel_.sampling for model in (whole, few, features)] == [None, None, None]


@pytest.mark.usefixtures("few_are_many")
def test_features_are_never_sampled_and_a_matrix_of_their_rows_is_told_of():
    X = rows(600)
    y = labels(X)
    with pytest.warns(UserWarning, match="a matrix of all pairs of them may be formed"):
        KernelLearningClassifier(FeatureFamily(3), "lp-svm").fit(X, y)
    asked = KernelLearningClassifier(FeatureFamily(3), sample="auto").fit(X, y)
    assert asked.kernel_.sampling is None
    with pytest.raises(ValueError, match="sample must be None where statistics of rank-one features cost less"):
        KernelLearningClassifier(FeatureFamily(3), sample=300).fit(X, y)


@pytest.mark.usefixtures("few_are_many")
def test_what_takes_no_sample_says_what_many_rows_cost():
    X = rows(600)
    y = numbers(X)
    w = np.full(600, 2.0)
    with pytest.warns(UserWarning, match="as rows have weights, a pass goes over all pairs of them"):
        weighted = KernelLearningRegressor(FAMILY).fit(X, y, sample_weight=w)
    assert weighted.kernel_.sampling is None


@pytest.mark.usefixtures("few_are_many")
def test_base_kernels_of_many_rows_are_found_on_some_and_all_train_the_predictor(monkeypatch):
    monkeypatch.setattr(learnkernels.kernels.estimators.base, "SEARCHED_ROWS", 300)
    X = rows(700)
    y = numbers(X)
    with pytest.warns(UserWarning, match="X has 600 rows, more than 500: the kernel is learned from a sample"):
        unasked = KernelLearningRegressor().fit(X[:600], y[:600])
    asked = KernelLearningRegressor(sample="auto").fit(X[:600], y[:600])
    np.testing.assert_array_equal(unasked.predict(X[600:]), asked.predict(X[600:]))
    assert unasked.learner_ == "rfm"
    assert len(unasked.dual_coef_) == 600
    assert unasked.score(X[600:], y[600:]) > 0.9 * KernelLearningRegressor(sample="all").fit(X[:600], y[:600]).score(
        X[600:], y[600:]
    )
    searched = KernelLearningRegressor(learner="ca", sample=256).fit(X[:400], y[:400])
    assert len(searched.dual_coef_) == 400


@pytest.mark.parametrize(
    ("family", "thin", "learner", "why"),
    [
        (None, False, "rfm", "no base kernels are given"),
        (FAMILY, False, "alignf", "base kernels are given"),
        (None, True, "alignf", "rows are sparse"),
    ],
)
def test_what_an_automatic_learner_stands_for_is_said(family, thin, learner, why):
    X = rows(60)
    given = sparse.csr_matrix(X) if thin else X
    model = KernelLearningRegressor(family).fit(given, numbers(X))
    assert model.learner_ == learner
    assert model.learner_reason_.startswith(why)
    named = KernelLearningRegressor(family, learner).fit(given, numbers(X))
    assert named.learner_reason_ == ""
    np.testing.assert_array_equal(named.predict(given), model.predict(given))
    again = KernelLearningRegressor(family).fit_kernel(model.kernel_, numbers(X))
    np.testing.assert_array_equal(again.predict(given), model.predict(given))


@pytest.mark.parametrize(
    "model", [KernelLearningClassifier(learner="l1-svm"), KernelLearningRegressor(FAMILY, "l2-krr")], ids=str
)
def test_learners_of_weights_and_predictor_take_what_suits_equal_weights(model):
    X = rows(60)
    y = labels(X) if hasattr(model, "C") else numbers(X)
    model.fit(X, y)
    equal = clone(model).set_params(learner="unif", predictor=model.predictor_).fit(X, y)
    assert model.regularisation_ == equal.regularisation_
