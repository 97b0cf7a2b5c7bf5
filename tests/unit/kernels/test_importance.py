"""Importances of columns come from predictions for rows that the models were not fitted on."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.feature_selection import SelectFromModel
from sklearn.inspection import permutation_importance

from learnkernels import (
    FamilyUnion,
    FeatureFamily,
    GaussianFamily,
    KernelLearningClassifier,
    KernelLearningRegressor,
    LearnedKernelTransformer,
)
from learnkernels.kernels.centering import center_gram
from learnkernels.kernels.estimators import importance, keep_support
from learnkernels.kernels.files import from_bytes, to_bytes

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4))
NUMBERS = np.sin(2 * X[:, 0]) + 0.5 * X[:, 2] + 0.1 * RNG.normal(size=300)
CLASSES = np.array(["low", "middle", "top"])[np.digitize(NUMBERS, [-0.5, 0.5])]
GRID = GaussianFamily([0.05, 0.2, 1.0])
ONE_GAUSSIAN = {"family": GaussianFamily([0.3]), "learner": "unif"}


# Values --------------------------------------------------------------------------------------------------------------


def ridge_predictions(
    X_train: np.ndarray, Y: np.ndarray, X_new: np.ndarray, C: float
) -> np.ndarray:
    """Return predictions of kernel ridge regression with a centered Gaussian kernel of unit mean diagonal."""
    K = np.exp(-0.3 * cdist(X_train, X_train, "sqeuclidean"))
    K_new = np.exp(-0.3 * cdist(X_new, X_train, "sqeuclidean"))
    centered_new = K_new - K_new.mean(axis=1, keepdims=True) - K.mean(axis=0) + K.mean()
    centered = center_gram(K)
    scale = np.trace(centered) / len(K)
    alpha = np.linalg.solve(centered / scale + np.eye(len(K)) / C, Y - Y.mean(axis=0))
    return centered_new / scale @ alpha + Y.mean(axis=0)


@pytest.mark.parametrize("q", [1, 2])
def test_the_relevance_is_the_loss_of_explicit_fits_without_the_tested_rows(q: int):
    rows, C = 60, 4.0
    Y = np.column_stack([NUMBERS, X[:, 1]])[:rows, :q]
    model = KernelLearningRegressor(**ONE_GAUSSIAN, alpha=1 / C).fit(X[:rows], Y)
    tested = model._importance_problem._tested_rows()
    # Each row is tested once; restoring the origin rounds.
    position = cdist(tested.X + model.kernel_.origin, X[:rows]).argmin(axis=1).tolist()
    assert sorted(position) == list(range(rows))
    expected = np.zeros(4)
    donors = tested._donors(importance.MOST_DONORS)
    for split in np.unique(tested.split_of_row):
        held_out = np.flatnonzero(tested.split_of_row == split)
        others = np.setdiff1d(np.arange(rows), np.array(position)[held_out])
        for i in held_out:
            row = X[position[i]]
            loss = np.square(
                Y[position[i]] - ridge_predictions(X[others], Y[others], row[None], C)
            ).sum()
            for j in range(4):
                for donor in donors[:, i]:
                    changed = row.copy()
                    changed[j] = X[position[donor], j]
                    prediction = ridge_predictions(
                        X[others], Y[others], changed[None], C
                    )
                    expected[j] += np.square(Y[position[i]] - prediction).sum() - loss
    expected /= importance.MOST_DONORS * np.square(Y - Y.mean(axis=0)).sum()
    found = [model.relevance_[f"x{j}"] for j in range(4)]
    # Conditions of some hundred
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_the_relevance_agrees_with_permutation_importance_on_new_rows():
    X_new = RNG.normal(size=(2000, 4))
    y_new = np.sin(2 * X_new[:, 0]) + 0.5 * X_new[:, 2]
    model = KernelLearningRegressor().fit(X, NUMBERS)
    expected = permutation_importance(
        model, X_new, y_new, n_repeats=3, random_state=0
    ).importances_mean
    found = np.array([model.relevance_[f"x{j}"] for j in range(4)])
    # The spread of a mean over 300 rows
    np.testing.assert_allclose(found, expected, rtol=0.15, atol=0.01)


@pytest.mark.parametrize("m", [100, 400, 1300])
def test_columns_of_noise_and_of_many_names_are_not_relevant(m: int):
    rng = np.random.default_rng(m)
    size = rng.normal(size=m)
    table = pd.DataFrame(
        {"name": [f"name {k}" for k in rng.integers(0, 300, m)], "size": size}
    )
    table["kind"] = rng.choice(["a", "b", "c"], m)
    table["noise"] = rng.normal(size=m)
    y = size + 2.0 * (table["kind"] == "a") + 0.5 * rng.normal(size=m)
    model = KernelLearningRegressor(columns={"name": "categorical"}).fit(table, y)
    assert set(list(model.relevance_)[:2]) == {"kind", "size"}
    # A difference of two losses of noise has a standard deviation below 1 / sqrt(m).
    assert max(abs(model.relevance_[name]) for name in ("name", "noise")) < 1 / np.sqrt(
        m
    )


def test_a_metric_that_has_learned_names_by_heart_does_not_make_them_relevant():
    table, y = load_diabetes(return_X_y=True, as_frame=True)
    table["name"] = [
        f"name {k}" for k in np.random.default_rng(0).integers(0, 300, len(table))
    ]
    model = KernelLearningRegressor(columns={"name": "categorical"}).fit(
        table[:294], y[:294] / y.std()
    )
    # A metric that has seen the tested rows gives names 0.04 of the variance.
    assert model.relevance_["name"] < 0.02
    assert set(list(model.relevance_)[:2]) == {"bmi", "s5"}


def test_permuted_columns_permute_the_importances():
    order = [2, 0, 3, 1]
    for task, y in (
        (KernelLearningRegressor, NUMBERS),
        (KernelLearningClassifier, CLASSES),
    ):
        model = task(family=GRID).fit(X, y)
        permuted = task(family=GRID).fit(X[:, order], y)
        # The order of the columns changes sums in the last digits only.
        np.testing.assert_allclose(
            permuted.feature_importances_,
            model.feature_importances_[order],
            rtol=1e-6,
            atol=1e-9,
        )


def test_rows_of_one_group_do_not_test_each_other():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(60), 5)
    # Of a group, without any relation to the target
    number = rng.normal(size=60)[groups]
    size = rng.normal(size=300)
    y = rng.normal(size=60)[groups] + size
    rows = np.column_stack([number, size])
    family = FamilyUnion(
        [GaussianFamily([5000.0]), GaussianFamily([1.0])], columns=[[0], [1]]
    )
    by_rows = KernelLearningRegressor(family=family, alpha=0.1).fit(rows, y)
    by_groups = clone(by_rows).fit(rows, y, groups=groups)
    by_time = clone(by_rows).fit(rows, y, time=groups)
    assert by_rows.relevance_["x0"] > 0.3
    assert by_groups.relevance_["x0"] < by_rows.relevance_["x0"] / 2
    assert by_time._importance_rows.target.row_groups.ordered
    assert by_time.relevance_["x1"] > 0


# Every estimator -----------------------------------------------------------------------------------------------------


FITTED = {
    "rfm": lambda: KernelLearningRegressor().fit(X, NUMBERS),
    "alignf": lambda: KernelLearningRegressor(family=GRID).fit(X, NUMBERS),
    "l2-krr": lambda: KernelLearningRegressor(family=GRID, learner="l2-krr").fit(
        X, NUMBERS
    ),
    "nkrr": lambda: KernelLearningRegressor(family=GRID, learner="nkrr").fit(
        X, NUMBERS
    ),
    "krr-cg": lambda: KernelLearningRegressor(family=GRID, predictor="krr-cg").fit(
        X, NUMBERS
    ),
    "nystroem": lambda: KernelLearningRegressor(family=GRID, predictor="nystroem").fit(
        X, NUMBERS
    ),
    "no intervals": lambda: KernelLearningRegressor(intervals=False).fit(X, NUMBERS),
    "outputs": lambda: KernelLearningRegressor(family=GRID).fit(
        X, np.column_stack([NUMBERS, NUMBERS**2])
    ),
    "weights": lambda: KernelLearningRegressor(family=GRID).fit(
        X, NUMBERS, sample_weight=np.arange(300) % 3
    ),
    "constant": lambda: KernelLearningRegressor(
        boost=HistGradientBoostingRegressor()
    ).fit(X, NUMBERS),
    "sparse": lambda: KernelLearningRegressor(family=GRID).fit(
        sparse.csr_matrix(X * (X > 0)), NUMBERS
    ),
    "classes": lambda: KernelLearningClassifier().fit(X, CLASSES),
    "two classes": lambda: KernelLearningClassifier().fit(X, CLASSES == "low"),
    "svm": lambda: KernelLearningClassifier(family=GRID, predictor="svm").fit(
        X, CLASSES
    ),
    "l1-svm": lambda: KernelLearningClassifier(family=GRID, learner="l1-svm").fit(
        X, CLASSES
    ),
    "hinge": lambda: KernelLearningClassifier(family=GRID, predictor="nystroem").fit(
        X, CLASSES
    ),
    "no probabilities": lambda: KernelLearningClassifier(
        family=GRID, probability=False
    ).fit(X, CLASSES),
    "balanced": lambda: KernelLearningClassifier(class_weight="balanced").fit(
        X, CLASSES
    ),
    "trees": lambda: KernelLearningClassifier(
        family=GRID, boost=HistGradientBoostingClassifier()
    ).fit(X, CLASSES),
    "table": lambda: KernelLearningClassifier().fit(
        pd.DataFrame(X, columns=list("abcd")), CLASSES
    ),
    "transformer": lambda: LearnedKernelTransformer(family=GRID).fit(X, CLASSES),
    "eigen": lambda: LearnedKernelTransformer(family=GRID, method="eigen").fit(
        X, NUMBERS
    ),
}


@pytest.mark.filterwarnings("ignore:a quarter or more")
@pytest.mark.parametrize("name", FITTED)
def test_every_fitted_estimator_has_importances_that_a_file_keeps(name: str):
    model = FITTED[name]()
    read = from_bytes(to_bytes(model))
    importances = model.feature_importances_
    assert importances.shape == (model.n_features_in_,)
    assert (importances >= 0).all()
    assert importances.sum() == pytest.approx(1, rel=1e-12)
    assert set(np.argsort(-importances)[:2]) == {0, 2}
    assert list(model.relevance_.values()) == sorted(
        model.relevance_.values(), reverse=True
    )
    assert len(model.interactions_) == 6
    np.testing.assert_array_equal(read.feature_importances_, importances)
    assert read.relevance_ == model.relevance_
    assert read.interactions_ == model.interactions_


def test_support_vectors_alone_keep_the_importances_of_all_rows():
    model = KernelLearningClassifier(family=GRID, predictor="svm").fit(
        X, CLASSES == "top"
    )
    few = keep_support(model)
    assert len(few.dual_coef_) < len(model.dual_coef_)
    for read in (few, from_bytes(to_bytes(few))):
        assert read.relevance_ == model.relevance_
        assert read.interactions_ == model.interactions_


def test_sparse_and_dense_rows_have_equal_importances():
    rows = np.where(np.random.default_rng(0).random((200, 30)) < 0.1, 1.0, 0.0)
    y = rows[:, 3] + rows[:, 8] + 0.1 * np.random.default_rng(1).normal(size=200)
    dense = KernelLearningRegressor(family=FeatureFamily(30)).fit(rows, y)
    compressed = KernelLearningRegressor(family=FeatureFamily(30)).fit(
        sparse.csr_array(rows), y
    )
    # Sparse rows are not moved to their mean, which changes rounding.
    np.testing.assert_allclose(
        compressed.feature_importances_,
        dense.feature_importances_,
        rtol=1e-6,
        atol=1e-9,
    )
    assert set(list(dense.relevance_)[:2]) == {"x3", "x8"}


def test_trees_that_use_a_column_make_it_relevant():
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=400), rng.normal(size=400)])
    # Too rough for the wide kernel
    y = rows[:, 0] + 2.0 * (np.floor(8 * rows[:, 1]) % 2)
    wide = {"family": GaussianFamily([0.01]), "learner": "unif"}
    with_trees = KernelLearningRegressor(
        **wide, boost=HistGradientBoostingRegressor()
    ).fit(rows, y)
    alone = KernelLearningRegressor(**wide).fit(rows, y)
    assert with_trees.boost_share_ > 0.5
    assert alone.relevance_["x1"] < 0.05
    assert with_trees.relevance_["x1"] > 0.2


def test_feature_selection_keeps_the_relevant_columns():
    selector = SelectFromModel(KernelLearningRegressor()).fit(X, NUMBERS)
    assert selector.get_support().tolist() == [True, False, True, False]
    selected = SelectFromModel(
        KernelLearningClassifier(), max_features=2, threshold=-np.inf
    ).fit(X, CLASSES)
    assert selected.get_support().tolist() == [True, False, True, False]


def test_more_rows_than_are_trained_on_are_drawn():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(importance.MOST_ROWS + 500, 3))
    model = KernelLearningRegressor(**ONE_GAUSSIAN, alpha=0.1).fit(rows, rows[:, 1])
    assert len(model._importance_rows.values) == importance.MOST_ROWS
    assert len(model._importance_problem._tested_rows()) == importance.MOST_TESTED
    assert model.feature_importances_[1] > 0.95


def test_a_new_fit_replaces_the_importances():
    model = KernelLearningRegressor(family=GRID).fit(X, X[:, 1])
    assert next(iter(model.relevance_)) == "x1"
    assert next(iter(model.fit(X, X[:, 3]).relevance_)) == "x3"


@pytest.mark.filterwarnings("ignore:y is constant")
def test_without_anything_to_predict_no_column_is_relevant():
    model = KernelLearningRegressor().fit(X, np.ones(300))
    assert set(model.relevance_.values()) == {0.0}
    assert model.feature_importances_.tolist() == [0.0] * 4
    single = KernelLearningClassifier(family=GRID, C=1.0, probability=False).fit(
        X[:2], ["a", "b"]
    )
    assert set(single.relevance_.values()) == {0.0}
    assert single.interactions_ == {}


def test_a_column_of_two_values_is_not_relevant():
    X = np.repeat([[0.0], [1.0]], 10, axis=0)
    model = KernelLearningRegressor().fit(X, np.sin(np.arange(20.0)))
    assert model.relevance_ == {"x0": 0.0}


def test_a_model_of_an_earlier_release_says_that_it_lacks_the_rows():
    model = KernelLearningRegressor(**ONE_GAUSSIAN).fit(X, NUMBERS)
    del model._importance_rows, model._stored_importance
    read = from_bytes(to_bytes(model))
    with pytest.raises(
        AttributeError,
        match="need the targets of training rows, which this model does not have",
    ):
        read.relevance_  # noqa: B018
    assert keep_support(read) is read


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"positions": np.full(300, 300)},
            "positions for importances must hold whole numbers from 0 to 300",
        ),
        ({"values": np.full(300, np.nan)}, "targets for importances must be finite"),
        ({"values": np.zeros(299)}, "positions for importances must have shape"),
        (
            {"groups": np.full(300, -1)},
            "groups for importances must hold whole numbers",
        ),
        ({"n_classes": 2}, "classes for importances must hold whole numbers"),
    ],
)
def test_rows_that_do_not_fit_the_model_are_refused(changes: dict, sentence: str):
    model = KernelLearningRegressor(**ONE_GAUSSIAN).fit(X, NUMBERS)
    rows = model._importance_rows
    model._importance_rows = importance.ImportanceRows(
        **{**rows._parameters(), **changes}
    )
    with pytest.raises(ValueError, match=sentence):
        from_bytes(to_bytes(model))


# Interactions --------------------------------------------------------------------------------------------------------


FUNCTIONS = {
    "product": lambda Z: Z[:, 0] * Z[:, 1] + Z[:, 2],
    "sine of a sum": lambda Z: np.sin(1.5 * (Z[:, 0] + Z[:, 1])) + Z[:, 2],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_columns_that_interact_are_found_with_the_share_of_their_interaction(
    name: str,
):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(500, 5))
    y = FUNCTIONS[name](Z) + 0.05 * rng.normal(size=500)
    many = rng.normal(size=(4, 100_000, 5))
    alone, other = many[0], many[1]
    first, second, both = alone.copy(), alone.copy(), alone.copy()
    first[:, 0] = both[:, 0] = other[:, 0]
    second[:, 1] = both[:, 1] = other[:, 1]
    function = FUNCTIONS[name]
    changes = function(alone) - function(first) - function(second) + function(both)
    expected = np.mean(changes**2) / 4 / np.var(function(alone))
    found = KernelLearningRegressor().fit(Z, y).interactions_
    pair, strength = next(iter(found.items()))
    assert pair == ("x0", "x1")
    # Products of normals have heavy tails
    assert strength == pytest.approx(expected, rel=0.3)
    assert max(list(found.values())[1:]) < 0.02


def test_exclusive_or_is_an_interaction_and_a_sum_is_none():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(500, 4))
    exclusive = (
        KernelLearningClassifier().fit(Z, (Z[:, 0] > 0) != (Z[:, 1] > 0)).interactions_
    )
    assert next(iter(exclusive)) == ("x0", "x1")
    assert max(exclusive.values()) > 0.5
    assert list(exclusive.values())[1] < 0.05
    additive = (
        KernelLearningRegressor()
        .fit(Z, Z[:, 0] + Z[:, 1] ** 2 + np.sin(Z[:, 2]))
        .interactions_
    )
    assert max(additive.values()) < 0.02


def test_interactions_are_those_of_columns_of_a_table():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"size": rng.normal(size=400), "kind": rng.choice(["a", "b"], 400)}
    )
    table["other"] = rng.normal(size=400)
    y = np.where(table["kind"] == "a", table["size"], -table["size"])
    model = KernelLearningRegressor().fit(table, y)
    assert next(iter(model.interactions_)) == ("size", "kind")
    assert len(model.interactions_) == 3


def test_a_list_of_attributes_measures_no_importance():
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = KernelLearningRegressor(learner="unif").fit(X, X[:, 0])
    assert "alignment_" in dir(model)
    assert "relevance_" not in dir(model)
    model._repr_html_()
    assert "_importance" not in vars(model)
    assert model.relevance_
    assert "relevance_" in dir(model)
    model.fit(X, X[:, 1]).set_params(normalize="unknown")
    model._repr_html_()


def test_columns_left_out_keep_their_places_in_importances_and_arrays():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": rng.normal(size=80), "same": 1.0, "b": rng.normal(size=80)}
    )
    y = 3 * frame["b"]
    model = KernelLearningRegressor(learner="unif").fit(frame, y)
    assert model.feature_names_in_.tolist() == ["a", "same", "b"]
    assert model.n_features_in_ == 3
    assert model.table_.names == ("a", "b")
    assert list(model.relevance_) == ["b", "a"]
    importances = model.feature_importances_
    assert importances[1] == 0.0
    assert importances[2] > 0.9
    predicted = model.predict(frame)
    np.testing.assert_array_equal(model.predict(frame.drop(columns="same")), predicted)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        of_array = model.predict(frame.to_numpy())
    np.testing.assert_array_equal(of_array, predicted)
    read = from_bytes(to_bytes(model))
    np.testing.assert_array_equal(read.feature_importances_, importances)
    selector = SelectFromModel(KernelLearningRegressor(learner="unif")).fit(frame, y)
    assert selector.transform(frame).shape == (80, 1)
