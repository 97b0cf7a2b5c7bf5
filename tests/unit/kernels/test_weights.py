"""The scale of sample weights: whatever all are multiplied by, estimators and errors are the same."""

from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from learnkernels import (
    GaussianFamily,
    KernelLearningClassifier,
    KernelLearningRegressor,
    centered_alignment,
    gram_statistics,
    learn_kernel,
)
from learnkernels.kernels.centering import center_cross_gram, center_gram
from learnkernels.kernels.estimators import fit_on_kernel, supervised
from learnkernels.kernels.learners import LEARNERS, learn_from_statistics
from learnkernels.kernels.model_selection.evaluation import Evaluation, KernelPredictors
from learnkernels.kernels.model_selection.folds import trials
from learnkernels.kernels.model_selection.metrics import METRICS, metric_for
from learnkernels.kernels.predictors import ConjugateGradients, Nystroem
from learnkernels.kernels.targets import Target
from learnkernels.kernels.weights import (
    LEAST_SHARE,
    counting_rows,
    of_mean_one,
    relative_weights,
)
from tests.refusals import require_refusals

FAMILY = GaussianFamily([0.1, 0.4, 1.6])

# Weights of another scale are rounded once more each, and systems of condition up to
# 1e4 multiply that by theirs.
ROUNDED = 1e-9

# Of the spread of predictions with an automatic ridge, whose systems are of condition
# up to 1e8.
ILL_CONDITIONED = 1e-6

DECIMAL = (1e-300, 1e-12, 1e12, 1e300)

POWERS_OF_TWO = (2.0**-1000, 2.0**1000)
"""Scales by which no weight is rounded, so that no bit of a model changes."""


def data(m: int = 80) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Return rows, noisy targets of each kind, and weights over three decades."""
    rng = np.random.default_rng(9)
    X = rng.normal(size=(m, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=m)
    ranks = np.argsort(np.argsort(y))
    targets = {
        "numbers": y,
        "two classes": ranks * 2 // m,
        "three classes": ranks * 3 // m,
    }
    return X, targets, 10.0 ** rng.uniform(-1.5, 1.5, size=m)


X, TARGETS, WEIGHTS = data()
X_NEW = np.random.default_rng(1).normal(size=(25, 3))


def results(model, X_new: np.ndarray = X_NEW) -> dict[str, np.ndarray]:
    """Return all numbers that a fitted estimator says of new rows."""
    names = (
        ("predict_interval", "predict")
        if hasattr(model, "alpha")
        else ("decision_function", "predict_proba")
    )
    return {name: getattr(model, name)(X_new) for name in names if hasattr(model, name)}


def assert_same(
    got: dict[str, np.ndarray], expected: dict[str, np.ndarray], share: float
) -> None:
    """Compare relative to the spread of the predictions; bit by bit for a share of zero."""
    assert got.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(
            got[name], values, rtol=0, atol=share * np.ptp(values), err_msg=name
        )


def assert_scale_is_nothing(
    model, y: np.ndarray, w: np.ndarray = WEIGHTS, share: float = ROUNDED
) -> None:
    """Fit with the same weights at many scales, and compare all results with those at the scale one."""
    expected = clone(model).fit(X, y, sample_weight=w)
    for scales, allowed in ((DECIMAL, share), (POWERS_OF_TWO, 0.0)):
        for scale in scales:
            scaled = clone(model).fit(X, y, sample_weight=scale * w)
            assert scaled.C_ == expected.C_
            assert_same(results(scaled), results(expected), allowed)


# Estimators ----------------------------------------------------------------------------------------------------------


KNOWN = [name for name, learner in LEARNERS.items() if learner.takes_weights]


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("learner", KNOWN)
def test_every_learner_is_the_same_for_weights_of_any_scale(learner, kind):
    family = FAMILY if LEARNERS[learner].takes_family else None
    model = KernelLearningRegressor(family=family, learner=learner, alpha=1.0)
    if kind != "numbers":
        model = KernelLearningClassifier(family=family, learner=learner, C=1.0)
    assert_scale_is_nothing(model, TARGETS[kind])


CG = ConjugateGradients(tol=1e-12)
OF_NUMBERS = ["krr", CG, Nystroem(n_components=30)]
OF_CLASSES = [
    "svm",
    *OF_NUMBERS,
    Nystroem(n_components=30, loss="hinge"),
    Nystroem(n_components=30, loss="logistic"),
]


@pytest.mark.parametrize("kind", TARGETS)
def test_every_predictor_is_the_same_for_weights_of_any_scale(kind):
    for predictor in OF_NUMBERS if kind == "numbers" else OF_CLASSES:
        model = KernelLearningRegressor(family=FAMILY, alpha=1.0, predictor=predictor)
        if kind != "numbers":
            model = KernelLearningClassifier(family=FAMILY, C=1.0, predictor=predictor)
        # The solvers of scikit-learn end at a tolerance of their own.
        loss = getattr(predictor, "loss", "squared")
        assert_scale_is_nothing(
            model, TARGETS[kind], share=ROUNDED if loss == "squared" else 1e-3
        )


@pytest.mark.parametrize("kind", TARGETS)
def test_automatic_estimators_are_the_same_for_weights_of_any_scale(kind):
    for family in (FAMILY, None):
        model = (
            KernelLearningRegressor(family=family)
            if kind == "numbers"
            else KernelLearningClassifier(family=family)
        )
        assert_scale_is_nothing(model, TARGETS[kind], share=ILL_CONDITIONED)


def test_samples_of_a_time_limit_are_the_same_for_weights_of_any_scale(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(supervised, "FIRST_ROWS", 40)
    model = KernelLearningRegressor(family=FAMILY, time_limit=1e-9)
    with pytest.warns(UserWarning, match="fitted on a sample of 40 of 80 rows"):
        expected = clone(model).fit(X, TARGETS["numbers"], sample_weight=WEIGHTS)
    for scale in POWERS_OF_TWO:
        with pytest.warns(UserWarning, match="fitted on a sample of 40 of 80 rows"):
            scaled = clone(model).fit(
                X, TARGETS["numbers"], sample_weight=scale * WEIGHTS
            )
        assert_same(results(scaled), results(expected), 0.0)


AGES = np.random.default_rng(2).uniform(0, 20, size=len(X))


@settings(max_examples=25, deadline=None)
@example(720.0)
@example(-689.0)
@given(st.floats(-689.0, 720.0))
def test_the_origin_of_ages_is_nothing_to_weights_that_decay_with_them(origin):
    model = KernelLearningRegressor(family=FAMILY, learner="align", alpha=1.0)
    expected = clone(model).fit(X, TARGETS["numbers"], sample_weight=np.exp(-AGES))
    moved = model.fit(X, TARGETS["numbers"], sample_weight=np.exp(-(AGES + origin)))
    # The sum of an age and an origin is rounded to 1e-13, and weights below the normal
    # numbers to some digits fewer.
    assert_same(results(moved), results(expected), 1e-6 if origin > 680 else ROUNDED)


MEASURED = np.random.default_rng(9)
MEASURED_X = MEASURED.normal(size=(350, 2))
MEASURED_Y = np.sin(2 * MEASURED_X[:, 0]) + 0.2 * MEASURED.normal(size=350)
SHARES, DAYS = MEASURED.uniform(0.5, 1.5, size=250), MEASURED.uniform(0, 40, size=250)
CASES = {
    "all 1e300": [np.full(250, scale) for scale in (1.0, 1e300)],
    "survey weights over a population": [
        SHARES * scale for scale in (1.0, 1e-6, 1e-9, 1e-12)
    ],
    "decay with age": [np.exp(-(DAYS + days)) for days in (0, 10, 20, 700)],
    "smallest numbers": [np.full(250, scale) for scale in (1.0, 5e-324)],
    "smallest whole multiples": [
        (1 + np.arange(250) % 3) * scale for scale in (1.0, 5e-324)
    ],
    "sums that overflow": [SHARES * scale for scale in (1.0, 1.1e308)],
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:sample_weight is too small to count:UserWarning")
def test_held_out_rows_are_predicted_alike_for_weights_of_any_scale(case):
    known, unknown = slice(0, 250), slice(250, None)
    fits = [
        KernelLearningRegressor().fit(MEASURED_X[known], MEASURED_Y[known], w)
        for w in CASES[case]
    ]
    for fit in fits:
        assert fit.score(MEASURED_X[unknown], MEASURED_Y[unknown]) > 0.85
        assert_same(
            results(fit, MEASURED_X[unknown]),
            results(fits[0], MEASURED_X[unknown]),
            ILL_CONDITIONED,
        )


def test_weights_of_classes_are_the_same_at_any_scale():
    y = TARGETS["two classes"]
    for predictor in ("svm", "krr"):
        model = KernelLearningClassifier(family=FAMILY, C=1.0, predictor=predictor)
        expected = results(
            clone(model).set_params(class_weight={0: 1.0, 1: 3.0}).fit(X, y, WEIGHTS)
        )
        for scale in POWERS_OF_TWO:
            of_classes = {0: scale, 1: 3.0 * scale}
            # Beyond all numbers
            fit = (
                clone(model)
                .set_params(class_weight=of_classes)
                .fit(X, y, scale * WEIGHTS)
            )
            assert_same(results(fit), expected, ROUNDED)
        balanced = clone(model).set_params(class_weight="balanced")
        expected = results(clone(balanced).fit(X, y, WEIGHTS))
        assert_same(results(balanced.fit(X, y, 1e-300 * WEIGHTS)), expected, ROUNDED)
    zero = (
        clone(model)
        .set_params(class_weight={1: 0.0})
        .fit(X, TARGETS["three classes"], WEIGHTS)
    )
    assert zero.classes_.tolist() == [0, 2]
    # What classes weigh may undo what their rows do.
    w = np.where(y == 1, 2.0**-100, 1.0)
    undone = clone(model).set_params(class_weight={1: 2.0**100}).fit(X, y, w)
    np.testing.assert_array_equal(
        undone.decision_function(X_NEW), model.fit(X, y).decision_function(X_NEW)
    )


def test_a_kernel_of_statistics_is_fitted_the_same_at_any_scale():
    y = TARGETS["numbers"]
    fits = []
    for scale in (1.0, 2.0**-40, 2.0**200):
        statistics = gram_statistics(FAMILY, X, y, sample_weight=scale * WEIGHTS)
        kernel = learn_from_statistics("alignf", FAMILY, X, statistics)
        fits.append(
            fit_on_kernel(
                KernelLearningRegressor(family=FAMILY, learner="alignf", alpha=1.0),
                kernel,
                y[kernel.rows],
            )
        )
    for fit in fits[1:]:
        assert_same(results(fit), results(fits[0]), ROUNDED)


# Rows that do not count ----------------------------------------------------------------------------------------------


def with_others(
    w: np.ndarray, weight: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, targets and weights with other rows of some weight among them, and which are the first ones."""
    others = np.arange(0, 60, 3)
    many, y = (
        np.insert(X, others, 5.0, axis=0),
        np.insert(TARGETS["numbers"], others, 77.0),
    )
    first = np.insert(np.ones(len(X), dtype=bool), others, False)
    return many, y, np.insert(w, others, weight), np.flatnonzero(first)


@pytest.mark.parametrize("weight", [0.0, 1e-300, 1e-17])
@pytest.mark.filterwarnings(
    "ignore:sample_weight is too small to count in 20 of 100 rows:UserWarning"
)
def test_rows_that_do_not_count_change_nothing(weight):
    many, y, w, first = with_others(WEIGHTS, weight)
    for model in (
        KernelLearningRegressor(family=FAMILY),
        KernelLearningRegressor(),
        KernelLearningRegressor(family=FAMILY, alpha=1),
    ):
        expected = clone(model).fit(X, TARGETS["numbers"], sample_weight=WEIGHTS)
        fit = model.fit(many, y, sample_weight=w)
        assert_same(results(fit), results(expected), 0.0)
        assert fit.n_samples_fit_ == len(X)
    kernel = learn_kernel(many, y, learner="alignf", family=FAMILY, sample_weight=w)
    expected = learn_kernel(
        X, TARGETS["numbers"], learner="alignf", family=FAMILY, sample_weight=WEIGHTS
    )
    np.testing.assert_array_equal(kernel.rows, first[expected.rows])
    np.testing.assert_array_equal(kernel.cross_gram(X_NEW), expected.cross_gram(X_NEW))


def test_rows_whose_weight_is_too_small_are_counted_in_one_warning():
    many, y, w, _ = with_others(WEIGHTS, 1e-30)
    w[0] = 0.0  # which is no surprise
    said = "^sample_weight is too small to count in 19 of 100 rows, at most 2.2e-16 of the total, and these rows are"
    uses = [
        partial(learn_kernel, learner="align", family=FAMILY),
        KernelLearningRegressor(family=FAMILY).fit,
    ]
    uses.append(
        lambda many, y, sample_weight: KernelLearningClassifier(family=FAMILY).fit(
            many, y > 0.5, sample_weight
        )
    )
    for use in uses:
        with pytest.warns(UserWarning, match=said) as warned:
            use(many, y, sample_weight=w)
        assert len(warned) == 1
        assert warned[0].filename == __file__
    classes = KernelLearningClassifier(family=FAMILY, class_weight={2: 1e-30})
    with pytest.warns(
        UserWarning,
        match=r"^sample_weight times class_weight is too small to count in 2\d of 80 rows",
    ):
        assert classes.fit(X, TARGETS["three classes"], WEIGHTS).classes_.tolist() == [
            0,
            1,
        ]


def test_weights_that_leave_too_few_rows_are_refused():
    y, lone = TARGETS["two classes"], np.where(np.arange(len(X)) == 3, 1.0, 1e-40)
    classifier = KernelLearningClassifier(family=FAMILY)
    wrong = [
        (np.where(lone == 1, value, 1.0), f"not negative, got {value:g} for row 3")
        for value in (np.inf, -1e-300)
    ]
    refused = [
        (partial(classifier.fit, X, y, w), f"sample_weight must be finite and {said}")
        for w, said in wrong
    ]
    refused.append(
        (
            partial(classifier.fit, X, y, 0.0 * lone),
            "for at least 2 rows, got .* for all but 0 of 80",
        )
    )
    negative = KernelLearningClassifier(family=FAMILY, class_weight={0: -1.0})
    refused.append(
        (
            partial(negative.fit, X, y),
            "class_weight must be finite and not negative, got -1 for row",
        )
    )
    require_refusals(refused)
    with (
        pytest.warns(UserWarning, match="too small to count in 79 of 80 rows"),
        pytest.raises(
            ValueError,
            match="for at least 2 rows, got zero, or too little to count, for all but 1 of 80",
        ),
    ):
        classifier.fit(X, y, lone)


POSITIVE = st.floats(5e-324, 1.7e308)


@given(st.lists(st.one_of(st.just(0.0), POSITIVE), min_size=1, max_size=30))
def test_relative_weights_have_the_mean_one_whatever_they_are(weights):
    w = np.array(weights)
    relative = relative_weights(w)
    assert np.isfinite(relative).all()
    assert not relative[w == 0].any()
    counted = relative[relative > 0]
    assert len(counted) == 0 if not w.any() else counted.mean() == pytest.approx(1.0)
    if len(counted):
        assert counted.min() > 0.5 * LEAST_SHARE
        np.testing.assert_array_equal(relative_weights(relative) > 0, relative > 0)


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=2, max_size=30))
def test_products_of_weights_never_leave_the_range_of_numbers(pairs):
    first, second = np.array(pairs).T
    relative = relative_weights(first, second)
    logarithms = np.log(first) + np.log(second)
    counted = relative > 0
    shown = np.log(relative[counted])
    np.testing.assert_allclose(
        shown - shown.max(), logarithms[counted] - logarithms.max(), rtol=0, atol=1e-12
    )
    assert (
        logarithms[~counted] < logarithms.max() + np.log(2 * len(pairs) * LEAST_SHARE)
    ).all()


def test_equal_weights_are_none():
    for value in (5e-324, 0.7, 3.0, 1.7e308):
        rows, weights = counting_rows(np.array([value, 0.0, value, value]))
        assert rows.tolist() == [0, 2, 3]
        assert weights is None
    np.testing.assert_allclose(
        of_mean_one(np.array([1e308, 1.7e308, 0.3e308])), [1.0, 1.7, 0.3]
    )


# Matrices and errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [*DECIMAL, *POWERS_OF_TWO, 5e306])
def test_results_without_a_scale_are_the_same_for_weights_of_any_scale(scale):
    y, w = TARGETS["numbers"], WEIGHTS
    K, L = X @ X.T + 3.0, np.outer(y, y)
    kernel, target = learn_kernel(X, y, learner="align", family=FAMILY), Target.of(y)
    classes, guesses = Target.of(TARGETS["three classes"]), np.arange(len(X)) % 3
    functions = [
        lambda w: center_gram(K, w),
        lambda w: center_cross_gram(X_NEW @ X.T, K, w),
        lambda w: centered_alignment(K, L, w),
        lambda w: kernel.alignment_with(X, target, w),
        lambda w: kernel.gram_among(X, w),
        lambda w: target.error(y + X[:, 0], w),
        lambda w: classes.error(guesses, w),
        lambda w: learn_kernel(
            X, y, learner="alignf", family=FAMILY, sample_weight=w
        ).gram(),
    ]
    for function in functions:
        got, expected = function(scale * w), function(w)
        np.testing.assert_allclose(
            got, expected, rtol=0, atol=1e-12 * np.abs(expected).max()
        )


@pytest.mark.parametrize("kind", TARGETS)
def test_errors_of_every_metric_are_the_same_for_weights_of_any_scale(kind):
    target, folds = Target.of(TARGETS[kind]), np.arange(len(X)) % 4
    (trial, *_), task = (
        trials(4),
        "regression" if kind == "numbers" else "classification",
    )
    training = np.isin(folds, trial.training)
    kernel = learn_kernel(
        X[training], TARGETS[kind][training], learner="align", family=FAMILY
    )
    kernel = kernel.over(np.arange(len(kernel.rows)))
    predictors = KernelPredictors(
        [kernel], target.take(np.flatnonzero(training)), "krr", [1.0, 4.0]
    )
    for name, metric in METRICS.items():
        if (
            metric.task != task
            or (metric.is_binary and kind == "three classes")
            or not metric.weighable
        ):
            continue
        if (
            metric.response == "probabilities"
            and name.startswith("roc_auc_ov")
            and kind == "two classes"
        ):
            continue  # it is roc_auc
        evaluations = [
            Evaluation(
                X,
                target,
                folds,
                metric_for(name, target, weighted=True),
                scale * WEIGHTS,
            )
            for scale in (1.0, *DECIMAL, *POWERS_OF_TWO)
        ]
        found = [
            of.result([predictors], np.flatnonzero(training), trial)
            for of in evaluations
        ]
        for field in ("error", "trivial_error", "validation_errors"):
            values = np.array([getattr(result, field) for result in found])
            np.testing.assert_allclose(
                values, values[:1].repeat(len(values), axis=0), rtol=1e-9, err_msg=name
            )
