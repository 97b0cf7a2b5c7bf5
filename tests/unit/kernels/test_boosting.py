"""Boosted trees in addition to the learned kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.neighbors import KNeighborsClassifier

import learnkernels
from learnkernels import (
    GaussianFamily,
    KernelLearningClassifier,
    KernelLearningRegressor,
)
from learnkernels.kernels.column_encoding import TableEncoding
from learnkernels.kernels.column_encoding.reading import read_columns
from learnkernels.kernels.estimator_files import (
    estimator_from_array,
    estimator_to_array,
)
from learnkernels.kernels.estimators import FeaturePredictor, fit_on_features
from learnkernels.kernels.estimators.boosting import (
    LEAST_ROWS,
    MOST_CLASSES,
    BoostingProblem,
    share_of_classes,
    share_of_numbers,
)
from learnkernels.kernels.model import Model
from learnkernels.kernels.row_groups import RowGroups
from learnkernels.kernels.targets import Target
from tests.refusals import refusal

RNG = np.random.default_rng(0)
X = RNG.normal(size=(700, 4))
RULES = ((X[:, 0] > 0.3) & (X[:, 1] < 0.8)).astype(int) + (X[:, 2] > 1.0)
"""Three classes by rules, which trees tell better than smooth kernels."""
NUMBERS = (
    np.where(X[:, 0] > 0.3, 1.0, -1.0)
    + np.sin(2.0 * X[:, 1])
    + 0.1 * RNG.normal(size=700)
)
FAST = {"family": GaussianFamily([0.1, 1.0])}


def trees(task: str, **params):
    kind = (
        HistGradientBoostingClassifier
        if task == "classification"
        else HistGradientBoostingRegressor
    )
    return kind(max_iter=20, learning_rate=0.3, random_state=0, **params)


def fitted(task: str, X=X, **params):
    if task == "classification":
        return KernelLearningClassifier(boost=trees(task), **FAST, **params).fit(
            X[:400], RULES[:400]
        )
    return KernelLearningRegressor(boost=trees(task), **FAST, **params).fit(
        X[:400], NUMBERS[:400]
    )


def fitted_parts(task: str, y: np.ndarray, method: str):
    """Return a model with trees, the same with the kernel alone, and the weighted mean of kernel and trees."""
    model = fitted(task)
    alone = clone(model).set_params(boost=False).fit(X[:400], y[:400])
    by_trees = getattr(trees(task).fit(X[:400], y[:400]), method)(X)
    w = model.boost_share_
    assert 0.05 <= w <= 1.0
    return model, alone, (1.0 - w) * getattr(alone, method)(X) + w * by_trees


def test_shares_are_those_of_the_least_loss_on_a_grid():
    grid = np.linspace(0.0, 1.0, 1001)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        y = rng.normal(size=(50, 1))
        by_kernel = y + rng.normal(size=(50, 1)) * rng.uniform(0.1, 2.0)
        by_trees = y + rng.normal(size=(50, 1)) * rng.uniform(0.1, 2.0)
        weights = rng.uniform(0.1, 3.0, size=50)
        losses = [
            np.average(
                np.square(y - (1 - w) * by_kernel - w * by_trees)[:, 0], weights=weights
            )
            for w in grid
        ]
        share = share_of_numbers(y, by_kernel, by_trees, weights)
        # The step of the grid
        assert share == pytest.approx(grid[np.argmin(losses)], abs=1e-3)
        codes = rng.integers(3, size=50)
        P_kernel = rng.dirichlet(np.ones(3), size=50)
        P_trees = rng.dirichlet(np.ones(3), size=50)
        mixed = [((1 - w) * P_kernel + w * P_trees)[np.arange(50), codes] for w in grid]
        log_losses = [-np.average(np.log(p), weights=weights) for p in mixed]
        share = share_of_classes(codes, P_kernel, P_trees, weights)
        assert share == pytest.approx(grid[np.argmin(log_losses)], abs=3e-3)
    assert share_of_numbers(y, by_kernel, by_kernel, None) == 0.0


def test_probabilities_are_the_mean_of_those_of_kernel_and_trees():
    model, alone, expected = fitted_parts("classification", RULES, "predict_proba")
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(
        model.predict(X), model.classes_[expected.argmax(axis=1)]
    )
    np.testing.assert_allclose(
        model.decision_function(X), np.log(expected), rtol=1e-9, atol=1e-12
    )
    np.testing.assert_array_equal(model.dual_coef_, alone.dual_coef_)
    assert alone.boost_ is None
    assert alone.boost_share_ == 0.0


def test_two_classes_have_log_odds_whose_sign_is_the_class():
    y = RULES[:400] > 0
    model = KernelLearningClassifier(boost=trees("classification"), **FAST).fit(
        X[:400], y
    )
    P = model.predict_proba(X)
    np.testing.assert_allclose(
        model.decision_function(X), np.log(P[:, 1] / P[:, 0]), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_array_equal(model.predict(X), P[:, 1] > P[:, 0])


def test_numbers_and_intervals_are_those_of_the_mean():
    model, alone, expected = fitted_parts("regression", NUMBERS, "predict")
    np.testing.assert_allclose(model.predict(X), expected, rtol=0, atol=1e-12)
    bounds = model.predict_interval(X)
    np.testing.assert_allclose(bounds.mean(axis=1), expected, rtol=0, atol=1e-12)
    covered = (bounds[400:, 0] <= NUMBERS[400:]) & (NUMBERS[400:] <= bounds[400:, 1])
    assert 0.83 < covered.mean() < 0.97  # 0.9, and four standard errors of 300 rows
    new_error = np.mean((model.predict(X[400:]) - NUMBERS[400:]) ** 2)
    assert new_error < np.mean((alone.predict(X[400:]) - NUMBERS[400:]) ** 2)


def test_trees_that_do_not_help_are_dropped():
    smooth = np.sin(X[:, 0]) + X[:, 1]  # without noise
    model = KernelLearningRegressor(boost=trees("regression"), **FAST).fit(X, smooth)
    assert model.boost_ is None
    assert model.boost_share_ == 0.0
    alone = KernelLearningRegressor(boost=False, **FAST).fit(X, smooth)
    np.testing.assert_array_equal(model.predict(X), alone.predict(X))
    np.testing.assert_array_equal(model.residuals_, alone.residuals_)


@pytest.mark.parametrize(
    ("params", "n_rows", "expected"),
    [
        ({}, LEAST_ROWS, True),
        ({}, LEAST_ROWS - 1, False),
        ({"learner": "alignf"}, LEAST_ROWS, False),
    ],
)
def test_trees_are_added_by_default_to_many_rows_without_a_named_learner(
    params, n_rows, expected
):
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(n_rows, 2))
    y = np.where(Z[:, 0] > 0.2, 1.0, -1.0) * np.where(Z[:, 1] > 0.0, 1.0, 0.5)
    model = KernelLearningRegressor(**params).fit(Z, y)
    assert isinstance(model.boost_, HistGradientBoostingRegressor) == expected
    assert (model.boost_share_ > 0) == expected


def test_trees_of_rare_classes_do_not_diverge():
    rng = np.random.default_rng(1)
    scores = np.random.default_rng(7).normal(size=(6, 12))
    offsets = np.repeat([0.0, -3.0], 6)
    X = rng.normal(size=(6000, 6))
    codes = np.argmax(X @ scores + offsets, axis=1)
    assert np.bincount(codes[:4000]).min() == 6
    target = Target("classification", codes[:4000], tuple("abcdefghijkl"))
    trees = BoostingProblem.of("auto", None, X[:4000], target, None, 0).fit()
    loss = log_loss(codes[4000:], trees.predict_proba(X[4000:]), labels=range(12))
    assert loss < 1  # 0.3; 18 without a penalty of leaves


@pytest.mark.parametrize(
    ("params", "n_classes", "expected"),
    [
        ({}, MOST_CLASSES, True),
        ({}, MOST_CLASSES + 1, False),
        ({}, 2, True),
        (FAST, 2, False),
        ({"class_weight": "balanced"}, 2, False),
    ],
)
def test_trees_are_added_by_default_to_at_most_twenty_classes(
    params, n_classes, expected
):
    assert MOST_CLASSES == 20
    Z = np.random.default_rng(1).uniform(0.0, 5.0, size=(LEAST_ROWS, 2))
    cell = Z.astype(int) @ [1, 5]
    y = cell % n_classes
    model = KernelLearningClassifier(**params).fit(Z, y)
    assert len(model.classes_) == n_classes
    assert isinstance(model.boost_, HistGradientBoostingClassifier) == expected
    assert (model.boost_share_ > 0) == expected


@pytest.mark.parametrize(
    "n_rows", [5_000, 10_050]
)  # from 10,000 rows on, these trees hold out rows to stop early
@pytest.mark.parametrize("n_rare", [1, 4])
def test_trees_do_not_diverge_because_of_a_rare_class(n_rows: int, n_rare: int):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 3))
    codes = (X[:, 0] + 0.5 * rng.normal(size=n_rows) > 0).astype(int)
    without = BoostingProblem.of(
        "auto",
        None,
        X[n_rare:],
        Target("classification", codes[n_rare:], ("a", "b")),
        None,
        0,
    )
    expected = without.fit().predict_proba(X)
    codes[:n_rare] = 2
    problem = BoostingProblem.of(
        "auto", None, X, Target("classification", codes, ("a", "b", "c")), None, 0
    )
    np.testing.assert_array_equal(problem.fit().predict_proba(X), expected)
    rows, P = problem.held_out_predictions(np.arange(n_rows))
    assert P.shape == (len(rows), 3)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, rtol=0, atol=1e-9)


def test_the_two_largest_classes_are_always_predicted_by_the_trees():
    X = np.random.default_rng(0).normal(size=(1_000, 2))
    codes = np.zeros(1_000, dtype=int)
    codes[:3] = 1
    problem = BoostingProblem.of(
        "auto", None, X, Target("classification", codes, ("a", "b")), None, 0
    )
    np.testing.assert_array_equal(problem.fit().classes_, [0, 1])


@pytest.mark.parametrize("predictor", ["svm", "nystroem"])
@pytest.mark.parametrize("groups", [None, np.arange(400) % 8])
def test_a_class_of_one_row_leaves_the_other_rows_to_the_trees(predictor, groups):
    y = RULES[:400].copy()
    y[0] = 3
    model = KernelLearningClassifier(
        predictor=predictor, boost=trees("classification"), **FAST
    ).fit(X[:400], y, groups=groups)
    assert 0.05 <= model.boost_share_ < 1.0
    assert (model.predict(X[400:]) == RULES[400:]).mean() > 0.9


def test_trees_see_levels_and_missing_values_of_a_table():
    rng = np.random.default_rng(2)
    table = pd.DataFrame(
        {"size": rng.normal(size=500), "grade": rng.choice(list("abcd"), 500)}
    )
    y = np.where(table["grade"].isin(["a", "c"]), 1.0, -1.0) * np.where(
        table["size"] > 0, 1.0, 0.2
    )
    table.loc[::7, "size"] = np.nan
    table.loc[::11, "grade"] = None
    model = KernelLearningRegressor(boost=trees("regression"), **FAST).fit(table, y)
    assert model.boost_share_ > 0
    assert model.boost_.n_features_in_ == 2
    shuffled = table[["grade", "size"]].iloc[::-1]
    np.testing.assert_array_equal(model.predict(shuffled)[::-1], model.predict(table))


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_file_holds_the_trees(tmp_path, task):
    for rows in (
        X,
        pd.DataFrame(X, columns=list("abcd")).assign(e=RNG.choice(list("xy"), 700)),
    ):
        model = fitted(task, X=rows)
        path = tmp_path / "model.safetensors"
        model.save(path)
        content = path.read_bytes()
        restored = learnkernels.load(path)
        np.testing.assert_array_equal(restored.predict(rows), model.predict(rows))
        assert restored.boost_share_ == model.boost_share_
        model.save(path)
        assert path.read_bytes() == content


def test_an_estimator_that_compresses_much_can_be_loaded():
    zeros = Ridge().fit(np.zeros((1, 3 << 20)), [1.0])
    assert (estimator_from_array(estimator_to_array(zeros)).coef_ == zeros.coef_).all()


def test_a_registered_model_predicts_with_the_trees():
    model = fitted("regression")
    names = tuple("abcd")
    registered = Model(model, names, np.zeros(4), np.ones(4), {})
    columns = registered.columns(X)
    np.testing.assert_array_equal(columns["prediction"], model.predict(X))
    np.testing.assert_allclose(
        columns["lower"], model.predict_interval(X)[:, 0], rtol=0, atol=1e-12
    )
    classifier = Model(fitted("classification"), names, np.zeros(4), np.ones(4), {})
    probabilities = classifier.columns(X)["probability 1"]
    np.testing.assert_array_equal(
        probabilities, classifier.estimator.predict_proba(X)[:, 1]
    )


def test_refits_are_equal_to_the_last_bit():
    for task in ("classification", "regression"):
        first = fitted(task)
        second = fitted(task)
        np.testing.assert_array_equal(first.predict(X), second.predict(X))
        assert first.boost_share_ == second.boost_share_


def test_weights_and_groups_reach_the_trees():
    weights = RNG.integers(1, 3, size=400).astype(float)
    groups = np.arange(400) // 4
    model = KernelLearningRegressor(boost=trees("regression"), **FAST)
    model.fit(X[:400], NUMBERS[:400], sample_weight=weights, groups=groups)
    by_trees = trees("regression").fit(
        X[:400], NUMBERS[:400], sample_weight=weights / weights.mean()
    )
    np.testing.assert_array_equal(model.boost_.predict(X), by_trees.predict(X))
    model.fit(X[:400], NUMBERS[:400], time=np.arange(400))
    assert 0.0 < model.boost_share_ <= 1.0


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("ordered", [False, True])
def test_trees_of_rows_with_groups_or_times_hold_out_no_random_rows(
    task: str, ordered: bool
):
    # From 10,000 rows on, these trees hold out random rows, and stop early on noise.
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(10_050, 2))
    values = rng.normal(size=10_050) if task == "regression" else np.arange(10_050) % 2
    classes = () if task == "regression" else ("a", "b")
    alone = Target(task, values, classes)
    grouped = replace(alone, row_groups=RowGroups(np.arange(10_050) // 50, ordered))
    fitted = [
        BoostingProblem.of("auto", None, Z, target, None, 0).fit()
        for target in (alone, grouped)
    ]
    assert [trees.do_early_stopping_ for trees in fitted] == [True, False]
    assert fitted[0].n_iter_ < fitted[1].n_iter_ == fitted[1].max_iter


@pytest.mark.parametrize(
    ("boost", "changes", "sentence"),
    [
        (
            "yes",
            {},
            "boost must be 'auto', False or an estimator with the methods fit and predict_proba, got 'yes'",
        ),
        (True, {}, "boost must be 'auto', False or an estimator"),
        (
            HistGradientBoostingClassifier,
            {},
            "boost must be 'auto', False or an estimator",
        ),
        (HistGradientBoostingRegressor(), {}, "with the methods fit and predict_proba"),
        (
            LogisticRegression(),
            {"class_weight": "balanced"},
            "as class_weight is given; use boost=False",
        ),
        (
            LogisticRegression(),
            {"probability": False},
            "cannot be used, as probability is False",
        ),
        (
            LogisticRegression(),
            {"X": sparse.csr_array(np.abs(X[:60]))},
            "as rows are sparse",
        ),
        (
            KNeighborsClassifier(),
            {"sample_weight": np.arange(1.0, 61.0)},
            "rows have weights, which it does not take",
        ),
    ],
)
def test_trees_that_cannot_be_used_are_refused(boost, changes, sentence):
    params = {
        name: value
        for name, value in changes.items()
        if name in ("class_weight", "probability")
    }
    rows = changes.get("X", X[:60])
    model = KernelLearningClassifier(boost=boost, learner="alignf", **params)
    with pytest.raises(ValueError, match=sentence):
        model.fit(rows, RULES[:60], changes.get("sample_weight"))


def test_several_outputs_have_no_trees():
    with pytest.raises(ValueError, match="as there are several outputs"):
        KernelLearningRegressor(boost=GradientBoostingRegressor(), **FAST).fit(
            X, np.column_stack([NUMBERS, NUMBERS])
        )


def test_an_estimator_whose_types_are_not_trusted_is_not_saved(tmp_path):
    class OwnForest(RandomForestClassifier):
        pass

    model = KernelLearningClassifier(boost=OwnForest(5), **FAST).fit(
        X[:200], RULES[:200]
    )
    with pytest.raises(
        ValueError,
        match=r"a OwnForest cannot be saved, as its parts .*OwnForest are not trusted",
    ):
        model.save(tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_fit_on_encoded_features_is_that_on_the_table(task: str):
    gaps = np.where(RNG.random(400) < 0.2, np.nan, X[:400, 1])
    rows = pd.DataFrame(
        {"a": X[:400, 0], "b": gaps, "level": np.where(X[:400, 2] > 0.5, "high", "low")}
    )
    y = RULES[:400] if task == "classification" else NUMBERS[:400]
    weights = RNG.uniform(0.5, 2.0, 400)
    groups = np.arange(400) // 2
    kind = (
        KernelLearningClassifier
        if task == "classification"
        else KernelLearningRegressor
    )
    model = kind(boost=trees(task), **FAST).fit(rows, y, weights, groups)
    table = TableEncoding.of(read_columns(rows), None, "standard")
    features = table.encode(rows)
    same = fit_on_features(
        kind(boost=trees(task), **FAST), features, y, table, weights, groups
    )
    assert same.boost_share_ == model.boost_share_ > 0
    assert same.n_groups_ == model.n_groups_ == 200
    by_features = FeaturePredictor(same)
    np.testing.assert_array_equal(by_features.predict(features), model.predict(rows))
    np.testing.assert_array_equal(same.predict(rows), model.predict(rows))
    if task == "classification":
        np.testing.assert_array_equal(
            by_features.predict_proba(features), model.predict_proba(rows)
        )
        np.testing.assert_array_equal(
            by_features.decision_function(features), model.decision_function(rows)
        )
        np.testing.assert_array_equal(by_features.classes_, [0, 1, 2])
    else:
        with pytest.raises(AttributeError, match="only a classifier has classes"):
            by_features.decision_function(features)
    with pytest.raises(
        ValueError,
        match=r"features must have a column for each of the \d features of table",
    ):
        fit_on_features(same, features[:, 1:], y, table)


def test_a_fit_on_features_without_a_table_is_that_on_the_array():
    model = KernelLearningRegressor(**FAST).fit(X[:200], NUMBERS[:200])
    same = KernelLearningRegressor(**FAST).fit(
        pd.DataFrame(X[:50], columns=list("abcd")), NUMBERS[:50]
    )
    fit_on_features(same, X[:200], NUMBERS[:200])
    assert not hasattr(same, "feature_names_in_")
    np.testing.assert_array_equal(same.predict(X), model.predict(X))
    np.testing.assert_array_equal(FeaturePredictor(same).predict(X), model.predict(X))


def test_a_target_in_one_column_has_the_trees_of_a_vector():
    model = KernelLearningRegressor(boost=trees("regression"), **FAST)
    expected = clone(model).fit(X[:400], NUMBERS[:400]).predict(X)
    column = model.fit(X[:400], NUMBERS[:400, None])
    np.testing.assert_array_equal(column.predict(X), expected[:, None])


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_table_without_rows_has_no_predictions(task):
    table = pd.DataFrame(X, columns=list("abcd")).assign(e=np.where(RULES, "x", "y"))
    for boost in (trees(task), False):
        if task == "classification":
            model = KernelLearningClassifier(boost=boost, **FAST)
            model.fit(table[:400], RULES[:400])
        else:
            model = KernelLearningRegressor(boost=boost, **FAST)
            model.fit(table[:400], NUMBERS[:400])
        assert (model.boost_ is None) == (boost is False)
        assert model.predict(table[:0]).shape == (0,)
        if task == "classification":
            assert model.predict_proba(table[:0]).shape == (0, 3)
            assert model.decision_function(table[:0]).shape == (0, 3)
        else:
            assert model.predict_interval(table[:0]).shape == (0, 2)
            assert model.predict_quantiles(table[:0]).shape == (0, 3)


@pytest.mark.parametrize("predictor", ["auto", "krr-cg"])
def test_classes_of_equal_rows_are_learned_without_trees(predictor):
    codes = np.repeat([0, 1], LEAST_ROWS)
    model = KernelLearningClassifier(predictor=predictor).fit(codes[:, None], codes)
    assert model.boost_ is None
    np.testing.assert_array_equal(model.predict([[0], [1]]), [0, 1])


def test_a_machine_without_held_out_rows_is_refused():
    codes = np.repeat([0, 1], LEAST_ROWS)
    model = KernelLearningClassifier(predictor="svm")
    message = refusal(model.fit, codes[:, None], codes)
    assert "got only equal ones; set probability or intervals to False" in message
    model.set_params(probability=False).fit(codes[:, None], codes)
    np.testing.assert_array_equal(model.predict([[0], [1]]), [0, 1])
