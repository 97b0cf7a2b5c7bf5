"""Contributions of columns: they add up to predictions, and agree with all subsets of the columns."""

from itertools import product
from math import comb
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.exceptions import NotFittedError

from learnkernels import (
    CategoricalFamily,
    FamilyUnion,
    GaussianFamily,
    KernelLearningClassifier,
    KernelLearningRegressor,
    LaplacianFamily,
    PolynomialFamily,
    load,
)
from learnkernels.kernels.families.composed import (
    MetricFamily,
    NormalScoresFamily,
    ScaledFamily,
    normal_scores,
)
from learnkernels.kernels.learners import RFM

RADIAL = LaplacianFamily([0.05, 0.2], norm=2)
TREES = {"max_iter": 20, "min_samples_leaf": 5, "random_state": 0}


def numbers(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def response(X: np.ndarray) -> np.ndarray:
    """A function in which three columns interact."""
    return (
        np.sin(2 * X[:, 0]) * (1 + X[:, 1]) * X[:, 2]
        + X[:, 1] * X[:, -1]
        + 0.3 * X[:, -1] ** 2
    )


def steps(X: np.ndarray) -> np.ndarray:
    """A function that trees represent better than smooth kernels."""
    return 2.0 * (X[:, 0] > 0.3) + (X[:, 1] > 0) * (X[:, 2] > -0.4) + 0.2 * X[:, 3]


def table(n: int, seed: int = 0) -> pd.DataFrame:
    """A table with a category, a date, and numbers with gaps."""
    rng = np.random.default_rng(seed)
    amount = rng.normal(size=n)
    amount[::7] = np.nan
    days = pd.to_datetime("2024-01-01") + pd.to_timedelta(
        rng.integers(0, 700, size=n), unit="D"
    )
    columns = {
        "amount": amount,
        "kind": rng.choice(["a", "b", "c"], size=n),
        "day": days,
        "size": rng.uniform(size=n),
    }
    return pd.DataFrame(columns)


def values_of(rows: pd.DataFrame) -> np.ndarray:
    season = np.cos(2 * np.pi * rows["day"].dt.day_of_year / 365)
    return np.asarray(
        rows["amount"].fillna(-2) * (rows["kind"] == "a") + season * rows["size"],
        dtype=np.float64,
    )


def oracle(predict, X, background, assign) -> np.ndarray:
    """Shapley values by their definition: the weighted sum over all subsets, one subset and one row at a time."""
    d = X.shape[1]
    explained = []
    for i in range(len(X)):
        values = {}
        for subset in product([0, 1], repeat=d):
            composites = background.copy()
            for column in np.flatnonzero(subset):
                assign(composites, column, X, i)
            values[subset] = predict(composites).mean(axis=0)
        contributions = []
        for column in range(d):
            total = 0.0
            for subset, value in values.items():
                if not subset[column]:
                    joined = (*subset[:column], 1, *subset[column + 1 :])
                    total = total + (values[joined] - value) / (
                        d * comb(d - 1, sum(subset))
                    )
            contributions.append(total)
        explained.append(contributions)
    return np.array(explained)


def assign_number(composites: np.ndarray, column: int, X: np.ndarray, i: int) -> None:
    composites[:, column] = X[i, column]


def assign_cell(composites: pd.DataFrame, column: int, X: pd.DataFrame, i: int) -> None:
    composites[X.columns[column]] = X.iloc[i, column]


def require_additive(explanation, predictions: np.ndarray) -> None:
    np.testing.assert_allclose(
        explanation.predictions, predictions, rtol=1e-12, atol=1e-12
    )
    total = explanation.base_values + explanation.contributions.sum(axis=1)
    np.testing.assert_allclose(total, predictions, rtol=0, atol=1e-8)


MODELS = {
    "default": KernelLearningRegressor(),
    "radial": KernelLearningRegressor(family=RADIAL),
    "outputs": KernelLearningRegressor(family=RADIAL),
    "landmarks": KernelLearningRegressor(family=RADIAL, predictor="nystroem"),
    "power": KernelLearningRegressor(family=RADIAL, learner="nkrr", alpha=0.1),
    "trees": KernelLearningRegressor(
        family=RADIAL, boost=HistGradientBoostingRegressor(**TREES)
    ),
    "two classes": KernelLearningClassifier(family=RADIAL),
    "classes": KernelLearningClassifier(family=RADIAL),
    "classes, trees": KernelLearningClassifier(
        family=RADIAL, boost=HistGradientBoostingClassifier(**TREES)
    ),
    "two classes, decisions": KernelLearningClassifier(
        family=RADIAL, probability=False
    ),
    "classes, svm": KernelLearningClassifier(
        family=RADIAL, probability=False, predictor="svm"
    ),
}


@pytest.fixture(scope="module", params=list(MODELS))
def model(request):
    """A fitted model, and the function that `explain` explains."""
    X = numbers(120, 5)
    estimator = MODELS[request.param]
    y = steps(X) if "trees" in request.param else response(X)
    if request.param == "outputs":
        y = np.column_stack([y, X[:, 0]])
    if "two classes" in request.param:
        y = y > np.median(y)
    elif "classes" in request.param:
        y = np.array(["low", "middle", "high"])[
            np.digitize(y, np.quantile(y, [0.3, 0.7]))
        ]
    estimator.fit(X, y)
    assert (estimator.boost_ is not None) == ("trees" in request.param)
    if hasattr(estimator, "calibration_"):
        return estimator, estimator.predict_proba
    return estimator, getattr(estimator, "decision_function", estimator.predict)


@pytest.mark.parametrize("permutations", [1, 5], ids=["orders", "subsets"])
def test_contributions_add_up_to_the_prediction(model, permutations: int):
    estimator, predict = model
    X = numbers(6, 5, seed=1)
    explanation = estimator.explain(X, background=15, permutations=permutations)
    require_additive(explanation, predict(X))
    assert explanation.columns == ("x0", "x1", "x2", "x3", "x4")
    assert explanation.contributions.shape == (6, 5, *predict(X).shape[1:])
    assert (explanation.standard_errors is None) == (permutations == 5)
    np.testing.assert_array_equal(explanation.data, X)


def test_all_subsets_agree_with_the_definition(model):
    estimator, predict = model
    X = numbers(2, 5, seed=1)
    background = numbers(4, 5, seed=2)
    explanation = estimator.explain(X, background=background, permutations=5)
    expected = oracle(predict, X, background, assign_number)
    np.testing.assert_allclose(explanation.contributions, expected, rtol=0, atol=1e-8)
    np.testing.assert_allclose(
        explanation.base_values, [predict(background).mean(axis=0)] * 2, rtol=1e-12
    )


def test_orders_agree_with_the_definition_within_their_standard_errors(model):
    estimator, predict = model
    X = numbers(4, 5, seed=1)
    background = numbers(100, 5, seed=2)
    explanation = estimator.explain(X, background=background)
    errors = np.abs(
        explanation.contributions - oracle(predict, X, background, assign_number)
    )
    # Standard errors are at least those of the orders, as they also contain the spread
    # of the background rows. Those of rare jumps, such as by trees, are uncertain
    # themselves.
    assert np.mean(errors <= 3 * explanation.standard_errors + 1e-6) >= 0.95
    assert np.sqrt((errors**2).mean()) <= np.sqrt(
        (explanation.standard_errors**2).mean()
    )


MIXED = np.random.default_rng(4).normal(size=(5, 5))

PRODUCTS = {
    "gaussians": GaussianFamily([0.05, 0.1, 0.4]),
    "laplacians": LaplacianFamily([0.1, 0.3]),
    "columns": FamilyUnion(
        [GaussianFamily([0.1]), LaplacianFamily([0.2])], columns=[[0, 3], [4, 1, 2]]
    ),
    "weights of columns": MetricFamily(
        GaussianFamily([0.1]), [0.5, 0.0, 1.0, 2.0, 1.0]
    ),
    "scales": ScaledFamily(
        GaussianFamily([0.2]), [[1.0, 2.0, 1.0, 0.5, 1.0], [0.3, 1.0, 1.0, 1.0, 2.0]]
    ),
    "scores": NormalScoresFamily(GaussianFamily([0.1]), normal_scores(numbers(120, 5))),
    "categories": FamilyUnion(
        [CategoricalFamily([0.5], [1.0, 2.0]), GaussianFamily([0.2])],
        [[0, 1], [2, 3, 4]],
    ),
}
OTHERS = {
    "turned": MetricFamily(GaussianFamily([0.1]), MIXED),
    "euclidean": LaplacianFamily([0.2], norm=2),
    "inner products": FamilyUnion([GaussianFamily([0.1]), PolynomialFamily([2])]),
}


def with_levels(X: np.ndarray) -> np.ndarray:
    """Rows whose first two columns hold a few whole numbers."""
    return np.column_stack([np.round(X[:, :2]), X[:, 2:]])


@pytest.mark.parametrize("name", [*PRODUCTS, *OTHERS])
@pytest.mark.parametrize("kind", ["number", "outputs", "two classes"])
def test_products_of_kernels_of_columns_agree_with_the_definition(name: str, kind: str):
    family = {**PRODUCTS, **OTHERS}[name]
    X = with_levels(numbers(90, 5))
    y = response(X) + X[:, 0]
    estimator = KernelLearningRegressor(family=family, learner="unif", alpha=0.1)
    if kind == "outputs":
        y = np.column_stack([y, X[:, 1] * X[:, 3]])
    elif kind == "two classes":
        y = y > np.median(y)
        estimator = KernelLearningClassifier(
            family=family, learner="unif", C=10, probability=False, predictor="svm"
        )
    estimator.fit(X, y)
    predict = getattr(estimator, "decision_function", estimator.predict)
    rows = with_levels(numbers(2, 5, seed=1))
    background = with_levels(numbers(6, 5, seed=2))
    explanation = estimator.explain(rows, background=background)
    require_additive(explanation, predict(rows))
    assert (explanation.standard_errors is None) == (name in PRODUCTS)
    if name in PRODUCTS:
        expected = oracle(predict, rows, background, assign_number)
        np.testing.assert_allclose(
            explanation.contributions, expected, rtol=0, atol=1e-8
        )


def test_products_in_a_learned_metric_of_a_table_agree_with_the_definition():
    train = table(150)
    learner = RFM(metric="diagonal", kernels="gaussian")
    model = KernelLearningRegressor(learner=learner).fit(train, values_of(train))
    rows = table(3, seed=1)
    background = table(7, seed=2)
    explanation = model.explain(rows, background=background)
    assert explanation.standard_errors is None
    expected = oracle(model.predict, rows, background, assign_cell)
    np.testing.assert_allclose(explanation.contributions, expected, rtol=0, atol=1e-8)


def test_orders_and_their_reverses_are_exact_for_interactions_of_two_columns():
    X = numbers(100, 6)
    gaussian = GaussianFamily([0.3])
    # No product, so that orders are drawn
    turned = MetricFamily(gaussian, [[0.5, 1.0], [1.0, -0.5]])
    pairs = FamilyUnion([turned, gaussian, gaussian], columns=[[0, 1], [2, 3], [1, 4]])
    model = KernelLearningRegressor(family=pairs).fit(
        X, X[:, 0] * X[:, 1] + np.sin(X[:, 2] + X[:, 3]) + X[:, 4]
    )
    rows = numbers(3, 6, seed=1)
    background = numbers(8, 6, seed=2)
    explanation = model.explain(rows, background=background, permutations=2)
    expected = oracle(model.predict, rows, background, assign_number)
    # Predictions of composite rows in single precision have errors of about 1e-6 of the
    # largest.
    np.testing.assert_allclose(
        explanation.contributions, expected, rtol=0, atol=1e-5 * np.abs(expected).max()
    )
    # No kernel sees this column
    np.testing.assert_allclose(expected[:, 5], 0.0, atol=1e-12)


@pytest.mark.parametrize("trees", [False, True])
def test_a_category_and_a_date_are_one_column_each(trees: bool):
    train = table(150)
    boost = HistGradientBoostingRegressor(**TREES) if trees else False
    model = KernelLearningRegressor(boost=boost).fit(train, values_of(train))
    rows = table(8, seed=1)
    background = table(9, seed=2)
    explanation = model.explain(rows, background=background, permutations=3)
    assert explanation.columns == tuple(train.columns)
    assert explanation.standard_errors is None
    require_additive(explanation, model.predict(rows))
    expected = oracle(model.predict, rows.iloc[:3], background, assign_cell)
    np.testing.assert_allclose(
        explanation.contributions[:3], expected, rtol=0, atol=1e-8
    )
    assert explanation.data[:, 1].tolist() == rows["kind"].tolist()
    assert np.isnan(explanation.data[0, 0])
    in_other_order = model.explain(
        rows[["size", "day", "amount", "kind"]], background=background, permutations=3
    )
    np.testing.assert_array_equal(
        in_other_order.contributions, explanation.contributions
    )


def test_a_column_with_the_values_of_the_background_contributes_nothing():
    train = table(120)
    model = KernelLearningRegressor(family=None).fit(train, values_of(train))
    rows = table(5, seed=1).assign(kind="b")
    background = table(6, seed=2).assign(kind="b")
    for permutations in (1, 3):
        explanation = model.explain(
            rows, background=background, permutations=permutations
        )
        np.testing.assert_allclose(explanation.contributions[:, 1], 0.0, atol=1e-12)
        require_additive(explanation, model.predict(rows))
    itself = model.explain(rows.iloc[:1], background=rows.iloc[[0, 0]])
    np.testing.assert_allclose(itself.contributions, 0.0, atol=1e-12)


@pytest.mark.parametrize("trees", [False, True])
def test_a_loaded_model_gives_the_same_explanation(tmp_path: Path, trees: bool):
    X = numbers(130, 6)
    boost = HistGradientBoostingClassifier(**TREES) if trees else False
    model = KernelLearningClassifier(random_state=3, boost=boost).fit(X, steps(X) > 1)
    model.save(tmp_path / "model.safetensors")
    rows = numbers(4, 6, seed=1)
    explanation = model.explain(rows)
    loaded = load(tmp_path / "model.safetensors").explain(rows)
    np.testing.assert_array_equal(loaded.contributions, explanation.contributions)
    np.testing.assert_array_equal(loaded.standard_errors, explanation.standard_errors)
    assert explanation.outputs == ("False", "True")
    assert explanation.n_background == 50


def test_an_explanation_depends_on_the_seed_and_not_on_the_other_rows():
    X = numbers(130, 5)
    model = KernelLearningRegressor(family=RADIAL).fit(X, response(X))
    rows = numbers(5, 5, seed=1)
    explanation = model.explain(rows, background=40)
    alone = model.explain(rows[2:3], background=40)
    # Rows in chunks of another size are rounded differently, in single precision.
    np.testing.assert_allclose(
        alone.contributions[0], explanation.contributions[2], rtol=0, atol=1e-5
    )
    reseeded = model.set_params(random_state=1).explain(rows, background=40)
    spread = np.hypot(explanation.standard_errors, reseeded.standard_errors)
    differences = np.abs(reseeded.contributions - explanation.contributions)
    assert differences.any()
    assert (differences <= 4.5 * spread).all()


def test_a_single_background_row_is_a_baseline_of_unknown_error():
    X = numbers(80, 5)
    model = KernelLearningRegressor(family=RADIAL).fit(X, response(X))
    explanation = model.explain(X[:3], background=X[5:6])
    require_additive(explanation, model.predict(X[:3]))
    np.testing.assert_allclose(
        explanation.base_values, model.predict(X[[5, 5, 5]]), rtol=1e-12
    )
    assert np.isnan(explanation.standard_errors).all()


def test_a_model_of_sparse_rows_explains_dense_ones():
    X = sparse.random(90, 6, density=0.5, format="csr", random_state=0)
    model = KernelLearningRegressor(family=RADIAL).fit(X, X.toarray() @ np.arange(6.0))
    require_additive(
        model.explain(X.toarray()[:5], background=20), model.predict(X[:5])
    )
    with pytest.raises(
        ValueError,
        match=r"^explain needs dense rows, got sparse ones\. Use X\.toarray\(\)\.$",
    ):
        model.explain(X[:5])


@pytest.mark.parametrize(
    ("X", "options", "sentence"),
    [
        (
            numbers(3, 4),
            {},
            "X has 4 features, but KernelLearningRegressor is expecting 5",
        ),
        (numbers(0, 5), {}, r"Found array with 0 sample\(s\)"),
        (
            numbers(3, 5),
            {"background": 0},
            "background must be a whole number of at least 1, got 0",
        ),
        (numbers(3, 5), {"background": numbers(3, 4)}, "X has 4 features"),
        (
            numbers(3, 5),
            {"background": numbers(0, 5)},
            r"Found array with 0 sample\(s\)",
        ),
        (
            numbers(3, 5),
            {"permutations": 0.5},
            "permutations must be a whole number of at least 1, got 0.5",
        ),
    ],
)
def test_rows_and_options_that_cannot_be_used_are_named(X, options, sentence: str):
    rows = numbers(60, 5)
    model = KernelLearningRegressor(family=RADIAL).fit(rows, response(rows))
    with pytest.raises(ValueError, match=sentence):
        model.explain(X, **options)


def test_tables_that_cannot_be_explained_are_named():
    with pytest.raises(NotFittedError):
        KernelLearningRegressor().explain(numbers(3, 5))
    train = table(80)
    model = KernelLearningRegressor(family=None).fit(train, values_of(train))
    with pytest.raises(ValueError, match="size"):
        model.explain(train.drop(columns="size"))
    with pytest.raises(ValueError, match=r"^X must hold at least one row, got none"):
        model.explain(train.iloc[:0])


def test_subsets_agree_with_shap():
    shap = pytest.importorskip(
        "shap", reason="shap is not installed", exc_type=ImportError
    )
    X = numbers(120, 6)
    model = KernelLearningRegressor(family=RADIAL).fit(X, response(X))
    rows = numbers(3, 6, seed=1)
    background = numbers(10, 6, seed=2)
    explainer = shap.explainers.Exact(
        model.predict, shap.maskers.Independent(background)
    )
    explanation = model.explain(rows, background=background, permutations=8)
    assert explanation.standard_errors is None
    np.testing.assert_allclose(
        explanation.contributions, explainer(rows).values, rtol=0, atol=1e-6
    )
