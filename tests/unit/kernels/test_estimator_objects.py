"""Learners, predictors and families as parameters of the estimators, and what is said of many rows."""

import copy
import re
import threading
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

import learnkernels.kernels.estimators.sampling
import learnkernels.kernels.estimators.supervised
from learnkernels import (
    KernelLearningClassifier,
    KernelLearningRegressor,
    LearnedKernelTransformer,
    learn_kernel,
)
from learnkernels.kernels.centering import center_cross_gram, center_gram
from learnkernels.kernels.estimators import fit_on_kernel
from learnkernels.kernels.estimators.sampling import FitSampling
from learnkernels.kernels.families import (
    FamilyUnion,
    FeatureFamily,
    GaussianFamily,
    LinearFamily,
)
from learnkernels.kernels.files import from_bytes, to_bytes
from learnkernels.kernels.learners import NKRR, RFM, LpKRR, Lq, learn_from_statistics
from learnkernels.kernels.predictors import Auto, Nystroem
from learnkernels.kernels.statistics.gram import gram_statistics
from learnkernels.kernels.targets import Target
from tests.reference import ridge_predictions
from tests.unit.kernels import test_estimators
from tests.unit.kernels.test_estimators import (
    FAMILY,
    FOUR,
    NUMBERS,
    X_NEW,
    X,
    labels,
    numbers,
    rows,
    target_for,
)

MANY = rows(700)


# Searched ------------------------------------------------------------------------------------------------------------


def test_a_search_reaches_the_parameters_of_learner_predictor_and_family():
    union = FamilyUnion([FAMILY, LinearFamily()])
    model = KernelLearningRegressor(
        family=union, learner=LpKRR(), alpha=0.1, predictor=Nystroem(n_components=20)
    )
    grid = {
        "kernellearningregressor__learner__norm": [1.0, 3.0],
        "kernellearningregressor__predictor__n_components": [20, 40],
        "kernellearningregressor__family__families__0__gammas": [[0.1, 0.4], [1.0]],
    }
    search = GridSearchCV(make_pipeline(StandardScaler(), model), grid, cv=2).fit(
        X, NUMBERS
    )
    best, found = search.best_params_, search.best_estimator_[-1]
    assert found.learner == LpKRR(norm=best["kernellearningregressor__learner__norm"])
    assert (
        len(found.landmarks_)
        == best["kernellearningregressor__predictor__n_components"]
    )
    gammas = best["kernellearningregressor__family__families__0__gammas"]
    assert found.family_ == FamilyUnion([GaussianFamily(gammas), LinearFamily()])
    # What the search set, it set on clones.
    assert (model.learner, model.predictor, model.family) == (
        LpKRR(),
        Nystroem(n_components=20),
        union,
    )
    assert union == FamilyUnion([FAMILY, LinearFamily()])


def test_names_take_parameters_too():
    model = KernelLearningRegressor(family=FAMILY, learner="lp-krr").set_params(
        learner__norm=1.5, predictor__random_state=3
    )
    assert (model.learner, model.predictor) == (LpKRR(norm=1.5), Auto(random_state=3))
    model.set_params(learner="lq")
    with pytest.raises(
        ValueError, match=r"Lq has no parameter 'norm'\. Did you mean 'q'"
    ):
        model.set_params(learner__norm=1.0)
    assert model.learner == "lq"
    assert model.set_params(learner="lq", learner__q=4.0).learner == Lq(q=4.0)


def test_parameters_set_later_leave_what_was_fitted_and_what_others_hold():
    family = GaussianFamily([0.1, 0.4])
    kernel = learn_kernel(X, NUMBERS, learner="alignf", family=family)
    model = fit_on_kernel(KernelLearningRegressor(family=family), kernel, NUMBERS)
    before = model.predict(X)
    model.set_params(family__gammas=[3.0])
    assert model.family == GaussianFamily([3.0])
    assert (
        family
        == kernel.family
        == model.family_
        == model.kernel_.family
        == GaussianFamily([0.1, 0.4])
    )
    np.testing.assert_array_equal(model.predict(X), before)
    assert model.fit(X, NUMBERS).weights_.shape == (1,)


def test_predicting_imports_no_learner(tmp_path, monkeypatch):
    model = KernelLearningRegressor(family=FAMILY).fit(X, NUMBERS)
    (tmp_path / "not_asked_for.py").write_text("raise SystemExit('it was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    model.learner = "not_asked_for:Learner"
    assert model.predict(X).shape == (60,)
    assert model.__sklearn_tags__().input_tags.sparse


# Classes that count more, draws, threads -----------------------------------------------------------------------------


@pytest.mark.parametrize("predictor", ["svm", "krr"])
def test_weights_of_classes_are_weights_of_their_rows(predictor):
    w = np.random.default_rng(5).integers(0, 3, size=60).astype(float)
    of_classes = {"a": 1.0, "b": 4.0, "c": 0.5, "d": 2.0}
    by_rows = KernelLearningClassifier(family=FAMILY, predictor=predictor)
    weighted = (
        clone(by_rows).set_params(class_weight=of_classes).fit(X, FOUR, sample_weight=w)
    )
    expected = by_rows.fit(
        X, FOUR, sample_weight=w * np.vectorize(of_classes.get)(FOUR)
    ).decision_function(X)
    np.testing.assert_array_equal(weighted.decision_function(X), expected)
    balanced = {label: 60 / (4 * (label == FOUR).sum()) for label in of_classes}
    models = [
        clone(by_rows).set_params(class_weight=given).fit(X, FOUR)
        for given in ("balanced", balanced)
    ]
    np.testing.assert_allclose(
        *(model.decision_function(X) for model in models), rtol=1e-12
    )
    some = np.arange(60) % 2 == 1  # rows of weight zero do not count
    with_zeros, alone = (
        clone(models[0]).fit(X, FOUR, sample_weight=some),
        clone(models[0]).fit(X[some], FOUR[some]),
    )
    np.testing.assert_array_equal(
        with_zeros.decision_function(X), alone.decision_function(X)
    )


def test_random_state_draws_samples_and_landmarks():
    by = (
        {"sample": 300},
        {"predictor": "nystroem"},
        {"predictor": Nystroem(n_components=20)},
    )
    for option, drawn_by in zip(
        by, ("weights_", "landmarks_", "landmarks_"), strict=True
    ):
        model = KernelLearningRegressor(family=FAMILY, alpha=0.1, **option)
        states = (0, 0, 1, np.random.RandomState(7))
        fits = [
            clone(model).set_params(random_state=state).fit(MANY, numbers(MANY))
            for state in states
        ]
        drawn = [getattr(fit, drawn_by).tolist() for fit in fits]
        assert drawn[0] == drawn[1]
        assert drawn[0] not in drawn[2:]


class Seen(GaussianFamily):
    """Gaussians that remember which threads asked for them."""

    threads: ClassVar[set[int]] = set()

    def tile(self, A, B, shift=None):
        Seen.threads.add(threading.get_ident())
        return super().tile(A, B, shift)


def test_n_jobs_bounds_the_threads_of_fits_and_predictions():
    # With n_jobs=2, three threads are seen in fits and two in predictions
    new = rows(6000)
    for kind in (
        KernelLearningClassifier,
        KernelLearningRegressor,
        LearnedKernelTransformer,
    ):
        y = labels(MANY) if kind is KernelLearningClassifier else numbers(MANY)
        Seen.threads = set()
        model = kind(family=Seen([0.1, 0.4]), n_jobs=1).fit(MANY, y)
        _ = model.transform(new) if hasattr(model, "transform") else model.predict(new)
        assert Seen.threads == {threading.get_ident()}
        with pytest.raises(
            ValueError, match="n_jobs must be a whole number but 0, or None, got 0"
        ):
            clone(model).set_params(n_jobs=0).fit(MANY, y)


# Many rows -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Rows that are more than the estimators learn a kernel from without being asked."""
    monkeypatch.setattr(learnkernels.kernels.estimators.sampling, "MOST_ROWS", 300)
    monkeypatch.setattr("learnkernels.kernels.estimators.sampling.SAMPLE_ROWS", 256)
    return rows(360)


def test_of_many_rows_a_sample_is_taken_and_it_is_said(many):
    y = numbers(many)
    model = KernelLearningRegressor(family=FAMILY, alpha=0.1)
    with pytest.warns(
        UserWarning,
        match="X has 360 rows, more than 300: the kernel is learned from a sample",
    ):
        unasked = clone(model).fit(many, y)
    asked, whole = (
        clone(model).set_params(sample=sample).fit(many, y)
        for sample in ("auto", "all")
    )
    np.testing.assert_array_equal(unasked.weights_, asked.weights_)
    assert unasked.kernel_.sampling is not None
    assert whole.kernel_.sampling is None
    with pytest.warns(
        UserWarning, match="as rows have weights, a pass goes over all pairs of them"
    ):
        assert (
            model.fit(many, y, sample_weight=1.0 + np.arange(360) % 2).kernel_.sampling
            is None
        )
    assert model.fit(many[:300], y[:300]).kernel_.sampling is None


def test_features_are_never_sampled_and_a_matrix_of_their_rows_is_told_of(many):
    y = labels(many)
    with pytest.warns(UserWarning, match="a matrix of all pairs of them may be formed"):
        KernelLearningClassifier(family=FeatureFamily(3), learner="lp-svm").fit(many, y)
    model = KernelLearningClassifier(family=FeatureFamily(3), C=1.0)
    for sample in (None, "auto"):
        assert (
            clone(model).set_params(sample=sample).fit(many, y).kernel_.sampling is None
        )
    with pytest.raises(
        ValueError,
        match="sample must be None where statistics of rank-one features cost less",
    ):
        model.set_params(sample=300).fit(many, y)


def test_base_kernels_of_many_rows_are_found_on_some_and_all_train_the_predictor(
    monkeypatch, many
):
    monkeypatch.setattr(learnkernels.kernels.estimators.sampling, "SEARCHED_ROWS", 260)
    y, new = numbers(many), rows(100, seed=1)
    # Without a word: rfm searches fewer rows yet
    unasked = KernelLearningRegressor(alpha=0.01).fit(many, y)
    asked, whole = (
        KernelLearningRegressor(alpha=0.01, sample=by).fit(many, y)
        for by in ("auto", "all")
    )
    np.testing.assert_array_equal(unasked.predict(new), asked.predict(new))
    assert (unasked.learner_, len(unasked.dual_coef_)) == ("rfm", 360)
    assert unasked.score(new, numbers(new)) > 0.9 * whole.score(new, numbers(new))
    searched = KernelLearningRegressor(learner="ca", alpha=0.01, sample=256).fit(
        many[:310], y[:310]
    )
    assert len(searched.dual_coef_) == 310


def test_a_fit_reports_the_rows_of_each_step(monkeypatch, many, capsys):
    monkeypatch.setattr(learnkernels.kernels.estimators.sampling, "SEARCHED_ROWS", 260)
    y = numbers(many)
    for model, expected in (
        (
            KernelLearningRegressor(learner=RFM(search_rows=100)),
            FitSampling(360, 260, 100, 100, 100, C=360),
        ),
        (
            KernelLearningRegressor(family=FAMILY, sample=300),
            FitSampling(360, 300, C=360),
        ),
        (
            KernelLearningRegressor(family=FAMILY, sample="all", alpha=0.1),
            FitSampling(360, 360),
        ),
        (
            KernelLearningRegressor(learner="l2-krr", sample="auto"),
            FitSampling(360, 256, medians=360, C=360),
        ),
    ):
        assert model.set_params(verbose=True).fit(many, y).sampling_ == expected
        assert str(expected) in capsys.readouterr().out
    assert (
        str(FitSampling(40_000, 5_000, C=1_500))
        == "40,000 rows, of which kernel 5,000, C 1,500"
    )
    kernel = learn_kernel(many[:50], y[:50], learner="unif", family=FAMILY)
    assert fit_on_kernel(
        KernelLearningRegressor(family=FAMILY, learner="unif", alpha=0.1),
        kernel,
        y,
        many,
    ).sampling_ == FitSampling(360, 50)


def test_what_an_automatic_learner_stands_for_is_said():
    for family, given, learner, why in (
        (None, X, "rfm", "no base kernels are given"),
        (FAMILY, X, "alignf", "base kernels are given"),
        (None, sparse.csr_matrix(X), "alignf", "rows are sparse"),
    ):
        model = KernelLearningRegressor(family=family).fit(given, NUMBERS)
        assert model.learner_ == learner
        assert model.learner_reason_.startswith(why)
        named = KernelLearningRegressor(family=family, learner=learner).fit(
            given, NUMBERS
        )
        assert named.learner_reason_ == ""
        again = fit_on_kernel(
            KernelLearningRegressor(family=family), model.kernel_, NUMBERS
        )
        for same in (named, again):
            np.testing.assert_array_equal(same.predict(given), model.predict(given))


def test_the_reason_for_a_learner_is_that_of_the_fit_whatever_is_set_since():
    automatic, named = (
        KernelLearningRegressor(family=FAMILY).fit(X, NUMBERS),
        KernelLearningRegressor(family=FAMILY, learner="lq"),
    )
    named.fit(X, NUMBERS)
    for model in (automatic, copy.copy(automatic), from_bytes(to_bytes(automatic))):
        model.set_params(family=None, learner="lq")
        assert (model.learner_, model.learner_reason_[:22]) == (
            "alignf",
            "base kernels are given",
        )
    named.set_params(learner="auto")
    assert (named.learner_, named.learner_reason_) == ("lq", "")
    constant = KernelLearningRegressor(family=FAMILY)
    with pytest.warns(UserWarning, match="y is constant"):
        assert constant.fit(X, np.ones(len(X))).learner_reason_ == ""


# Seeds ---------------------------------------------------------------------------------------------------------------


DRAWN = [
    KernelLearningRegressor(
        family=FAMILY, sample=256, predictor=Nystroem(n_components=20)
    ),
    KernelLearningClassifier(
        family=FAMILY, learner="l1-svm", predictor="nystroem", time_limit=1e6
    ),
    KernelLearningRegressor(learner="ca", sample=300, predictor="krr-cg"),
    LearnedKernelTransformer(family=FAMILY, n_components=20),
]


def state_of(source: np.random.RandomState) -> tuple[str, bytes, int, int, float]:
    """Return where a source of random numbers is."""
    kind, keys, *position = source.get_state()
    return kind, keys.tobytes(), *position


@pytest.mark.parametrize("model", DRAWN, ids=str)
def test_a_fit_draws_one_seed_and_the_next_fit_another(model):
    y = labels(MANY) if isinstance(model, KernelLearningClassifier) else numbers(MANY)
    source, expected = np.random.RandomState(0), np.random.RandomState(0)
    seeds = [int(expected.randint(2**31 - 1)) for _ in range(2)]
    drawing = clone(model)
    drawing.random_state = source  # a clone would get a copy

    def features_of(fitted) -> np.ndarray:
        return (
            fitted.transform(X_NEW)
            if hasattr(fitted, "transform")
            else fitted._scores(X_NEW)
        )

    fits = [features_of(drawing.fit(MANY, y)) for _ in seeds]
    assert state_of(source) == state_of(expected)
    for seed, values in zip(seeds, fits, strict=True):
        np.testing.assert_array_equal(
            values, features_of(clone(model).set_params(random_state=seed).fit(MANY, y))
        )
    assert not np.array_equal(*fits)
    again = clone(model).set_params(random_state=np.random.RandomState(0)).fit(MANY, y)
    np.testing.assert_array_equal(features_of(again), fits[0])


def test_without_a_seed_a_fit_draws_one_from_numpy():
    source, expected = check_random_state(None), np.random.RandomState(3)
    before = source.get_state()
    try:
        source.set_state(expected.get_state())
        clone(DRAWN[0]).set_params(random_state=None).fit(MANY, numbers(MANY))
        expected.randint(2**31 - 1)
        assert state_of(source) == state_of(expected)
    finally:
        source.set_state(before)


# Warnings ------------------------------------------------------------------------------------------------------------


TABLE = pd.DataFrame(
    {
        "a": X[:, 0],
        "b": X[:, 1],
        "id": [f"key {i}" for i in range(60)],
        "city": ["Rom", "Ulm"] * 30,
    }
)
NEVER = NKRR(max_iter=1, tol=1e-15)


def fit_in_a_pipeline(model, X, y):
    return make_pipeline(StandardScaler(), model).fit(X, y)


def fit_in_a_search(model, X, y):
    return GridSearchCV(
        model, {"precision": ["float64"]}, cv=2, error_score="raise"
    ).fit(X, y)


@pytest.mark.parametrize(
    "fit", [type(DRAWN[0]).fit, fit_in_a_pipeline, fit_in_a_search]
)
@pytest.mark.parametrize(
    ("model", "y", "said"),
    [
        (
            KernelLearningRegressor(family=FAMILY, learner=NEVER),
            NUMBERS,
            "nkrr stopped",
        ),
        (KernelLearningRegressor(family=FAMILY), np.ones(60), "y is constant"),
        (KernelLearningRegressor(family=FAMILY), NUMBERS, "more than 20"),
        (
            KernelLearningRegressor(family=FAMILY, sample="all", time_limit=1e-9),
            NUMBERS,
            "time_limit=1e-09",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_warnings_of_a_fit_point_to_the_caller(fit, model, y, said, monkeypatch):
    monkeypatch.setattr(learnkernels.kernels.estimators.supervised, "FIRST_ROWS", 20)
    if said == "more than 20":
        monkeypatch.setattr(learnkernels.kernels.estimators.sampling, "MOST_ROWS", 20)
        model = clone(model).set_params(
            family=FamilyUnion([FeatureFamily(3), FAMILY]), sample=None
        )
    with pytest.warns((UserWarning, ConvergenceWarning), match=said) as caught:
        fit(clone(model), X, y)
    assert {warning.filename for warning in caught} == {__file__}


def test_warnings_of_cells_point_to_the_caller():
    model = KernelLearningRegressor(family=FAMILY)
    for act, said in (
        (lambda: model.fit(TABLE, NUMBERS), "'id' is left out"),
        (
            lambda: model.predict(TABLE.assign(a=["<0.5", *["0.5"] * 59])),
            "column 'a' holds the limit '<0.5'",
        ),
    ):
        with pytest.warns(Warning, match=said) as caught:
            act()
        assert {warning.filename for warning in caught} == {__file__}


# Learners ------------------------------------------------------------------------------------------------------------


def test_learners_of_weights_and_predictor_take_what_suits_equal_weights():
    for model in (
        KernelLearningClassifier(learner="l1-svm"),
        KernelLearningRegressor(family=FAMILY, learner="l2-krr"),
    ):
        y = target_for(model)
        model.fit(X, y)
        equal = (
            clone(model)
            .set_params(learner="unif", predictor=model.predictor_)
            .fit(X, y)
        )
        assert model.C_ == equal.C_


def test_a_kernel_from_a_sample_serves_all_rows():
    y = numbers(MANY)
    model = KernelLearningRegressor(family=FAMILY, alpha=0.2, sample=300).fit(MANY, y)
    whole = KernelLearningRegressor(family=FAMILY, alpha=0.2).fit(MANY, y)
    assert model.kernel_.X.shape == (700, 3)
    # Error bars of the weights of 300 rows are a few hundredths.
    np.testing.assert_allclose(model.weights_, whole.weights_, rtol=0, atol=0.06)
    assert (model.weights_ != whole.weights_).any()
    with_all = KernelLearningRegressor(family=FAMILY, alpha=0.2, sample=700).fit(
        MANY, y
    )
    np.testing.assert_allclose(
        with_all.predict(X_NEW), whole.predict(X_NEW), rtol=0, atol=1e-8
    )


def test_features_of_a_kernel_from_a_sample_are_those_of_its_rows():
    model = LearnedKernelTransformer(family=FAMILY, n_components=300, sample=300).fit(
        MANY, labels(MANY)
    )
    Z, K = model.transform(MANY[model.kernel_.rows]), model.kernel_.gram()
    # Directions below rounding are dropped, whose roots are left.
    np.testing.assert_allclose(Z @ Z.T, K, rtol=0, atol=1e-7 * np.abs(K).max())


def test_a_kernel_of_some_rows_gets_the_predictor_of_all_rows():
    Y, folds = Target.of(FOUR).Y, np.arange(60) % 3
    kernel = learn_from_statistics(
        "alignf", FAMILY, X, gram_statistics(FAMILY, X, Y, folds).restrict([0, 2])
    )
    coefficients = kernel.weights / kernel.scales
    G, G_cross = (
        np.tensordot(coefficients, FAMILY.tile(of, X), axes=1) for of in (X, X_NEW)
    )
    K = center_gram(G)
    unit = np.trace(K) / len(K)
    expected = ridge_predictions(K / unit, Y, 4.0, center_cross_gram(G_cross, G) / unit)
    for predictor in ("krr", test_estimators.CG, test_estimators.ALL_ROWS):
        model = KernelLearningClassifier(
            family=FAMILY, C=4.0, predictor=predictor, probability=True
        )
        fit_on_kernel(model, kernel, FOUR, X=X)
        np.testing.assert_allclose(
            model.decision_function(X_NEW), expected, rtol=0, atol=1e-7
        )
        assert np.isfinite(model.calibration_).all()


# Predictors on rows ---------------------------------------------------------------------------------------------------


def test_auto_goes_by_rows_memory_and_kernel_and_says_why():
    X, y = test_estimators.masked_signal()
    classifier, regressor = (
        KernelLearningClassifier(family=FAMILY),
        KernelLearningRegressor(family=FAMILY),
    )
    indefinite = KernelLearningRegressor(
        family=test_estimators.DIFFERENCE, learner="alignf-linear"
    )
    table = [
        (classifier, 60, 10**9, "svm, exact: "),
        (classifier, 60, 10**5, "nystroem, .* the matrices of 60 training rows would"),
        (
            KernelLearningClassifier(family=FAMILY, learner="l2-krr"),
            60,
            10**4,
            "nystroem, ",
        ),
        (regressor, 60, 10**9, "krr, exact: "),
        (regressor, 600, 10**7, "krr-cg, conjugate gradients on all pairs of rows: "),
        (regressor, 600, 10**6, "nystroem, "),
        (indefinite, 600, 10**7, "nystroem, "),
        (
            KernelLearningRegressor(family=test_estimators.DIFFERENCE, learner="nkrr"),
            60,
            10**5,
            "krr, exact: the kernel is a power",
        ),
    ]
    for given, m, memory, reason in table:
        model = clone(given).set_params(
            predictor__memory=memory, predictor__random_state=3
        )
        model.fit(X[:m], y[:m] > 0 if hasattr(model, "C") else y[:m])
        assert model.predictor_ == reason.split(",")[0]
        assert re.match(reason, model.predictor_reason_), reason
        assert model.get_params()["predictor"] == Auto(memory=memory, random_state=3)


def test_the_kernel_of_landmarks_is_that_of_the_rows_they_stand_at():
    X = rows(200)
    model = KernelLearningRegressor(
        family=FAMILY, predictor=Nystroem(n_components=40)
    ).fit(X, numbers(X))
    assert model.dual_coef_.shape == (40, 1)
    np.testing.assert_allclose(
        model.kernel_.X + model.kernel_.origin, X[model.landmarks_], rtol=1e-12
    )
    again, other = (
        clone(model).set_params(predictor__random_state=seed).fit(X, numbers(X))
        for seed in (0, 1)
    )
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert other.landmarks_.tolist() != model.landmarks_.tolist()
    w = np.arange(200) % 2
    some = clone(model).fit(X, numbers(X), sample_weight=w)
    np.testing.assert_allclose(
        some.kernel_.X + some.kernel_.origin, X[w == 1][some.landmarks_], rtol=1e-12
    )
    with pytest.raises(
        AttributeError,
        match="landmarks_ is only available after a fit with predictor='nystroem'",
    ):
        _ = clone(model).set_params(predictor="krr").fit(X, numbers(X)).landmarks_


@pytest.mark.parametrize(
    "names", test_estimators.NAMES.values(), ids=test_estimators.NAMES
)
@pytest.mark.parametrize("loss", ["squared", "hinge", "logistic"])
def test_each_loss_tells_classes_from_few_landmarks(loss, names):
    X, X_new = rows(400), rows(400, seed=1)
    predictor = Nystroem(n_components=50, loss=loss)
    model = KernelLearningClassifier(
        family=FAMILY, C=5.0, predictor=predictor, probability=True
    )
    model.fit(X, labels(2 * X, names))  # of less noise
    assert model.dual_coef_.shape == (50, 1 if len(names) == 2 else 4)
    # The angle is noisy: the classes that its own sign has are found for nine rows of
    # ten.
    assert model.score(X_new, labels(2 * X_new, names, seed=1)) > 0.85
    P = model.predict_proba(X_new)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    if len(names) > 2:
        np.testing.assert_array_equal(
            model.classes_[P.argmax(axis=1)], model.predict(X_new)
        )
