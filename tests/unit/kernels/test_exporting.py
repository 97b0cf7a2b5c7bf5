"""Exported models: the same predictions by NumPy alone, one file that is replaced as a whole, and clear refusals."""

import ast
import importlib.util
import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.exceptions import NotFittedError

from learnkernels import (
    BlockFamily,
    FeatureFamily,
    GaussianFamily,
    KernelLearningClassifier,
    KernelLearningRegressor,
    LaplacianFamily,
    PrecomputedFamily,
    load,
)
from learnkernels.kernels.column_encoding import TableEncoding
from learnkernels.kernels.exporting import numpy_model
from learnkernels.kernels.exporting.definitions import (
    Definition,
    copied_source,
    source_of,
)
from learnkernels.kernels.exporting.module_file import text_of_parts
from learnkernels.kernels.exporting.trees import trees_as_parts
from tests.unit.kernels.conftest import CASES, Case

CLOSE = {"rtol": 1e-6, "atol": 1e-6}
"""Required equality. Rounding is about 1e-13, more where large coefficients cancel."""

Estimator = KernelLearningClassifier | KernelLearningRegressor


def table_of_rows(m: int, seed: int = 0) -> pd.DataFrame:
    """Return a table of numbers with gaps, categories, codes, texts with units, and dates in several notations."""
    rng = np.random.default_rng(seed)
    days = pd.Timestamp("2023-01-01") + pd.to_timedelta(
        rng.integers(0, 900, m), unit="D"
    )
    hours = days + pd.to_timedelta(rng.integers(0, 24, m), unit="h")
    table = pd.DataFrame(
        {
            "size": rng.normal(size=m),
            "age": rng.uniform(20, 80, m),
            "color": rng.choice(["red", "green", "blue", None], m),
            "street": [f"street {number}" for number in rng.integers(0, 60, m)],
            "code": [f"{number:03d}" for number in rng.integers(0, 9, m)],
            "grade": pd.Categorical(
                rng.choice(["low", "mid", "high"], m),
                ["low", "mid", "high"],
                ordered=True,
            ),
            "weight": [f"{value:.2f} kg" for value in rng.uniform(1, 9, m)],
            "price": [
                f"{value:.2f}".replace(".", ",") for value in rng.uniform(1, 9, m)
            ],
            "day": days,
            "moment": hours.tz_localize(
                "Europe/Berlin", ambiguous="NaT", nonexistent="NaT"
            ),
            "written": [moment.strftime("%d.%m.%Y %H:%M") for moment in hours],
            "member": rng.random(m) < 0.4,
        }
    )
    table.loc[::7, ["size", "weight", "day"]] = None
    return table


def response_to(table: pd.DataFrame, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=len(table)) / 10
    return (
        np.sin(table["age"] / 5)
        + 2 * (table["color"] == "red")
        + table["size"].fillna(0) ** 2 / 2
        + noise
    )


def new_rows(m: int = 60) -> pd.DataFrame:
    """Return other rows, with new levels and gaps in other places."""
    table = table_of_rows(m, seed=1)
    table.loc[0, ["color", "street"]] = "new"
    table.loc[1:3, ["age", "street", "moment"]] = None
    return table


def array_of_rows(m: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(m, 4)) + 1.0


def target_of_rows(X: np.ndarray) -> np.ndarray:
    return np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + X[:, 3] / 4


def labels(y: np.ndarray, n_classes: int) -> np.ndarray:
    """Return classes of about the same size, as texts."""
    bounds = np.quantile(y, np.arange(1, n_classes) / n_classes)
    return np.array([f"class {number}" for number in np.digitize(y, bounds)])


def exported(model: Estimator, folder: Path) -> ModuleType:
    """Return the imported module that a model is exported to."""
    path = folder / "exported_model.py"
    model.export(path)
    return imported(path)


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[path.stem]
    return module


def assert_same_predictions(
    module: ModuleType, model: Estimator, rows: Any, read: Any = None
) -> None:
    """Compare all methods; `read` are the rows as the module gets them."""
    read = rows if read is None else read
    if isinstance(model, KernelLearningRegressor):
        np.testing.assert_allclose(module.predict(read), model.predict(rows), **CLOSE)
        if model.intervals:
            np.testing.assert_allclose(
                module.predict_interval(read), model.predict_interval(rows), **CLOSE
            )
        return
    np.testing.assert_allclose(
        module.decision_function(read), model.decision_function(rows), **CLOSE
    )
    predicted = module.predict(read)
    assert predicted.dtype == model.classes_.dtype
    assert (
        predicted == model.predict(rows)
    ).mean() > 0.95  # a row whose decision is a tie may be rounded either way
    if model.probability:
        np.testing.assert_allclose(
            module.predict_proba(read), model.predict_proba(rows), **CLOSE
        )


# Each pair of learner, task, predictor and kind of rows is in one line at least.
KINDS_OF_MODELS = [
    ("rfm", 1, "krr", "array"),
    ("rfm", 2, "krr-cg", "table"),
    ("rfm", 3, "svm", "array"),
    ("rfm", 4, "nystroem", "table"),
    ("alignf", 1, "krr-cg", "table"),
    ("alignf", 2, "svm", "array"),
    ("alignf", 3, "nystroem", "array"),
    ("alignf", 4, "krr", "table"),
    ("l1-svm", 2, "svm", "table"),
    ("l2-krr", 1, "krr", "table"),
    ("nkrr", 1, "krr", "array"),
    ("nkrr", 2, "krr", "table"),
    ("ca", 1, "nystroem", "array"),
    ("ca", 3, "krr", "table"),
    ("cr", 2, "krr", "array"),
    ("unif", 3, "krr-cg", "array"),
]


@pytest.mark.parametrize(("learner", "n_classes", "predictor", "kind"), KINDS_OF_MODELS)
def test_exported_models_predict_the_same(
    learner: str, n_classes: int, predictor: str, kind: str, tmp_path: Path
):
    if kind == "table":
        rows, other_rows = table_of_rows(150), new_rows()
        y = response_to(rows)
    else:
        rows, other_rows = array_of_rows(150), array_of_rows(40, seed=1)
        y = target_of_rows(rows)
    model: Estimator
    if n_classes == 1:
        model = KernelLearningRegressor(learner=learner, predictor=predictor).fit(
            rows, y
        )
    else:
        model = KernelLearningClassifier(learner=learner, predictor=predictor).fit(
            rows, labels(y, n_classes)
        )
    assert_same_predictions(exported(model, tmp_path), model, other_rows)


DENSE = [case for case in CASES if isinstance(case.X, np.ndarray)]
REFUSED = (BlockFamily, PrecomputedFamily)


def model_of_case(case: Case) -> KernelLearningRegressor:
    y = np.random.default_rng(0).normal(size=len(case.X))
    return KernelLearningRegressor(learner="align", family=case.family).fit(case.X, y)


@pytest.mark.parametrize(
    "case",
    [case for case in DENSE if not isinstance(case.family, REFUSED)],
    ids=lambda case: case.name,
)
def test_all_families_on_dense_rows_are_exported(case: Case, tmp_path: Path):
    model = model_of_case(case)
    assert_same_predictions(exported(model, tmp_path), model, np.asarray(case.X) * 0.9)


@pytest.mark.parametrize(
    "case",
    [case for case in DENSE if isinstance(case.family, REFUSED)],
    ids=lambda case: case.name,
)
def test_families_of_blocks_and_matrices_are_refused(case: Case, tmp_path: Path):
    model = model_of_case(case)
    sentence = f"base kernels {type(case.family).__name__} cannot be exported"
    with pytest.raises(ValueError, match=sentence):
        model.export(tmp_path / "model.py")


@pytest.mark.parametrize(
    "parameters",
    [
        {"centering": "none", "learner": "unif"},
        {"centering": "target", "learner": "align"},
        {"normalize": "none"},
        {
            "family": FeatureFamily.with_constant(4),
            "learner": "l2-krr",
            "centering": "none",
        },
        {"family": LaplacianFamily([0.3], norm=2)},
        {"family": GaussianFamily([0.03, 0.3, 0.5])},
    ],
    ids=str,
)
def test_models_with_other_options_are_exported(
    parameters: dict[str, Any], tmp_path: Path
):
    X = array_of_rows(80)
    options = {"learner": "alignf"} | parameters
    model = KernelLearningRegressor(**options).fit(X, target_of_rows(X))
    assert_same_predictions(
        exported(model, tmp_path), model, np.vstack([X, array_of_rows(30, seed=1)])
    )


@pytest.mark.parametrize("norm", [1, 2])
def test_wide_rows_and_rows_of_the_training_are_predicted_the_same(
    norm: int, tmp_path: Path
):
    # More features than sums of differences are used for
    X = np.random.default_rng(0).normal(size=(60, 90)) + 3.0
    family = LaplacianFamily([0.02, 0.04], norm=norm)
    model = KernelLearningRegressor(learner="unif", family=family, alpha=1e-6).fit(
        X, X[:, 0]
    )
    assert_same_predictions(
        exported(model, tmp_path), model, np.vstack([X, X[:5] + 1e-3])
    )


def test_weights_outputs_class_weights_and_integer_classes_are_kept(tmp_path: Path):
    X = array_of_rows(90)
    y = target_of_rows(X)
    weights = np.random.default_rng(0).uniform(0.5, 2, len(y))
    regressor = KernelLearningRegressor(learner="alignf").fit(
        X, np.column_stack([y, X[:, 0]]), sample_weight=weights
    )
    assert_same_predictions(exported(regressor, tmp_path), regressor, X[:20])
    classifier = KernelLearningClassifier(
        class_weight="balanced", probability=False
    ).fit(X, (y > 1).astype(int))
    module = exported(classifier, tmp_path)
    assert_same_predictions(module, classifier, X[:20])
    with pytest.raises(ValueError, match="probability=True"):
        module.predict_proba(X[:20])


def test_models_of_low_precision_are_exported_in_float64(tmp_path: Path):
    X = array_of_rows(80)
    model = KernelLearningRegressor(
        learner="alignf", alpha=1e-7, precision="float32"
    ).fit(X, target_of_rows(X))
    in_float64 = KernelLearningRegressor(learner="alignf", alpha=1e-7).fit(
        X, target_of_rows(X)
    )
    assert np.abs(model.predict(X) - in_float64.predict(X)).max() > 1e-5
    assert_same_predictions(exported(model, tmp_path), in_float64, X)


def test_votes_that_are_ties_are_exported(tmp_path: Path):
    X = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0]] * 6)
    # The rows of the third class are ties of the first two
    y = np.tile([0, 1, 2, 2], 6)
    model = KernelLearningClassifier(learner="unif", predictor="svm", C=1.0).fit(X, y)
    module = exported(model, tmp_path)
    assert (module.predict(X) == y).all()


@pytest.mark.filterwarnings("ignore:y is constant")
def test_a_constant_is_exported(tmp_path: Path):
    X = array_of_rows(30)
    model = KernelLearningRegressor().fit(X, np.full(30, 7.0))
    assert (exported(model, tmp_path).predict(X) == 7.0).all()


def boosted_model(table: pd.DataFrame, n_classes: int) -> Estimator:
    """Return a model with trees that see the categories of a table; the kernel alone is poor."""
    encoding = TableEncoding.of(table)
    _, is_level = encoding.for_trees(encoding.encode(table))
    assert 0 < is_level.sum() < len(is_level)
    options = {
        "max_iter": 20,
        "min_samples_leaf": 5,
        "categorical_features": is_level,
        "random_state": 0,
    }
    family = GaussianFamily([1e-3])
    y = response_to(table)
    model: Estimator
    if n_classes == 1:
        model = KernelLearningRegressor(
            family=family, boost=HistGradientBoostingRegressor(**options)
        ).fit(table, y)
    else:
        model = KernelLearningClassifier(
            family=family, boost=HistGradientBoostingClassifier(**options)
        )
        model.fit(table, labels(y, n_classes))
    assert model.boost_share_ > 0
    return model


@pytest.mark.parametrize("n_classes", [1, 2, 3])
def test_boosted_trees_are_exported(n_classes: int, tmp_path: Path):
    model = boosted_model(table_of_rows(300), n_classes)
    trees = trees_as_parts(model.boost_, n_classes if n_classes > 2 else 1)
    assert (trees["bitset"] >= 0).any()
    assert_same_predictions(exported(model, tmp_path), model, new_rows(300))


def test_boosted_trees_on_arrays_are_exported(tmp_path: Path):
    X = array_of_rows(300)
    trees = HistGradientBoostingRegressor(max_iter=20)
    model = KernelLearningRegressor(family=GaussianFamily([1e-3]), boost=trees).fit(
        X, np.floor(X[:, 0])
    )
    assert model.boost_share_ > 0
    assert_same_predictions(
        exported(model, tmp_path), model, array_of_rows(300, seed=1)
    )


@pytest.mark.parametrize("read", ["dictionary", "polars", "other order"])
def test_rows_may_be_dictionaries_of_lists_and_tables_of_polars(
    read: str, tmp_path: Path
):
    table = table_of_rows(100).drop(columns="moment")
    model = KernelLearningRegressor(learner="alignf").fit(table, response_to(table))
    rows = new_rows().drop(columns="moment")
    given: Any = rows[rows.columns[::-1]].assign(other=1)
    if read == "dictionary":
        given = {name: rows[name].tolist() for name in rows}
    elif read == "polars":
        given = pl.from_pandas(rows)
    assert_same_predictions(exported(model, tmp_path), model, rows, given)


def test_names_of_columns_may_be_integers(tmp_path: Path):
    table = table_of_rows(60)[["size", "age"]].set_axis([0, 1], axis=1)
    model = KernelLearningRegressor(learner="alignf").fit(table, table[1])
    assert_same_predictions(exported(model, tmp_path), model, table)


def test_no_rows_have_no_predictions(tmp_path: Path):
    table = table_of_rows(60)[["size", "color", "day"]]
    module = exported(
        KernelLearningClassifier(learner="alignf").fit(table, table["size"] > 0),
        tmp_path,
    )
    assert module.predict(table[:0]).shape == (0,)
    assert module.predict_proba({"size": [], "color": [], "day": []}).shape == (0, 2)
    assert module.predict_proba(table[:1]).shape == (1, 2)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC", "America/New_York"])
def test_dates_in_other_time_zones_are_converted(zone: str, tmp_path: Path):
    table = table_of_rows(100)[["age", "moment"]]
    model = KernelLearningRegressor(learner="alignf").fit(table, table["age"])
    rows = new_rows()[["age", "moment"]]
    rows["moment"] = rows["moment"].dt.tz_convert(zone)
    module = exported(model, tmp_path)
    assert_same_predictions(module, model, rows)
    in_utc = pl.DataFrame(
        {
            "age": rows["age"].to_numpy(),
            "moment": rows["moment"].dt.tz_convert(None).to_numpy(),
        }
    )
    converted = in_utc.with_columns(
        pl.col("moment").dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    )
    assert_same_predictions(module, model, rows, converted)


@pytest.mark.parametrize("kind", ["category", "category of texts", "text"])
def test_booleans_match_the_levels_true_and_false(kind: str, tmp_path: Path):
    flag = np.random.default_rng(0).random(60) < 0.4
    rows = pd.DataFrame({"flag": flag, "size": np.sin(np.arange(60.0))})
    levels = rows["flag"].astype("category")
    if kind == "text":
        levels = rows["flag"].astype(str)
    elif kind == "category of texts":
        levels = rows["flag"].astype(str).str.lower().astype("category")
    in_words = rows.assign(flag=levels)
    model = KernelLearningRegressor(learner="unif").fit(
        in_words, flag * 5.0 + rows["size"]
    )
    expected = model.predict(in_words)
    np.testing.assert_array_equal(model.predict(rows), expected)
    module = exported(model, tmp_path)
    for read in (rows, rows.astype({"flag": "boolean"}), pl.from_pandas(rows)):
        np.testing.assert_allclose(module.predict(read), expected, **CLOSE)


def test_levels_of_numbers_precede_the_levels_true_and_false():
    table = pd.DataFrame({"x": ["True", "1", "False", "007"] * 10})
    encoding = TableEncoding.of(table, {"x": "categorical"})
    (column,) = encoding.columns
    features = encoding.encode(pd.DataFrame({"x": [1.0, 0.0, 7.0, 5.0]}))
    places = [column.levels.index(level) for level in ("1", "False", "007")]
    assert features[:3].argmax(axis=1).tolist() == places
    assert not features[3].any()


def test_numbers_with_gaps_are_read_from_arrays(tmp_path: Path):
    columns = ["same", "size", "age"]  # the first is left out
    table = table_of_rows(100).assign(same=1.0)[columns]
    model = KernelLearningRegressor(learner="alignf").fit(table, table["age"])
    rows = new_rows().assign(same=1.0)[columns]
    assert_same_predictions(exported(model, tmp_path), model, rows, rows.to_numpy())


def test_cells_of_another_kind_are_missing_with_a_warning(tmp_path: Path):
    table = table_of_rows(100)[["size", "age", "day"]]
    module = exported(
        KernelLearningRegressor(learner="alignf").fit(table, table["age"]), tmp_path
    )
    rows = {name: new_rows()[name].astype(object).tolist() for name in table}
    expected = module.predict(rows | {"age": [None, *rows["age"][1:]]})
    rows["age"] = ["unknown to us", *map(str, rows["age"][1:])]
    with pytest.warns(
        UserWarning, match="'age' holds numbers, but 'unknown to us' in row 0"
    ):
        assert np.array_equal(module.predict(rows), expected)


@pytest.mark.filterwarnings("ignore:column 'x' holds")
@pytest.mark.parametrize("cell", ["0.5", "2024-05-06", "15:29"])
def test_texts_that_were_missing_in_training_are_missing_in_an_export(cell: str):
    encoding = TableEncoding.of(
        pd.DataFrame({"x": [cell[:-1] + "1", cell, "?!"] + [cell] * 50})
    )
    parts = numpy_model.read_parts(text_of_parts({"table": encoding}))
    (read,) = parts.table.columns
    (column,) = numpy_model.columns_of_rows({"x": ["?!"]}, [read])
    features = numpy_model.encode_column(read, column)
    np.testing.assert_allclose(features, encoding.encode(pd.DataFrame({"x": ["?!"]})))
    (column,) = numpy_model.columns_of_rows({"x": ["!?"]}, [read])
    with pytest.raises(ValueError, match="'x' must hold"):
        numpy_model.encode_column(read, column)


DAYS = pd.date_range("2024-01-27 05:40", periods=40, freq="33h")

ODD_COLUMNS: dict[str, tuple[Any, Any]] = {
    "large integers": (np.arange(40) % 7 + 2**60, None),
    "nullable integers": (pd.array([None, *range(1, 40)], dtype="Int64"), None),
    "nullable booleans": (
        pd.array([None, *(number % 2 == 0 for number in range(39))], dtype="boolean"),
        None,
    ),
    "categories of integers": (pd.Categorical(np.arange(40) % 5 + 1), None),
    "numbers as categories": (np.arange(40) % 5 + 1.0, "categorical"),
    "codes with zeros": ([f"{number % 12:04d}" for number in range(40)], None),
    "codes alone": ([f"level {number}" for number in range(40)], "code"),
    "ordered levels": (["mid", "low", "high", None] * 10, ["low", "mid", "high"]),
    "ordered numbers": (["1.0", "3.0", "2.0", None] * 10, ["1", "2", "3"]),
    "ordered decimals": (
        pd.Categorical(["0.5", "2.0", "1.0", None] * 10, ["0.5", "1.0", "2.0"], True),
        None,
    ),
    "texts of numbers": ([f"{number}.5" for number in range(39)] + ["?"], None),
    "decimal commas": ([f"{number},25" for number in range(40)], None),
    "units": ([f"{number} km" for number in range(39)] + ["700 m"], None),
    "counts": ([f"{number}.7m" for number in range(39)] + ["623.8k"], None),
    "longitudes": (
        [f"{number}.5° W" for number in range(39)] + ["13.4° O"],
        None,
    ),
    "kelvins": ([f"{number} °C" for number in range(39)] + ["298.15 K"], None),
    "percentages": ([f"0.{number:02d}" for number in range(39)] + ["5%"], None),
    "currencies": ([f"$ {number},100.50" for number in range(1, 41)], None),
    "limits": (["<0.5", *(str(number / 7) for number in range(39))], None),
    "decimals": ([Decimal(number) / 4 for number in range(40)], None),
    "durations": (
        pd.to_timedelta(np.arange(40) ** 2, unit="min")
        .to_series()
        .where(np.arange(40) != 3),
        None,
    ),
    "durations as texts": (
        [f"{number}:{number + 10}:05" for number in range(40)],
        None,
    ),
    "dates": ([None, *DAYS[1:].date], None),
    "dates with offsets": (
        [
            f"{moment.isoformat()}+0{number % 4}:00"
            for number, moment in enumerate(DAYS)
        ],
        None,
    ),
    "dates with months": (DAYS.strftime("%d %B %Y"), None),
    "times of day": (DAYS.strftime("%I:%M %p"), None),
    "dates and placeholders": (["9999-12-31", *DAYS[1:].strftime("%Y-%m-%d")], None),
    "digits and placeholders": (
        [99_991_231, *map(int, DAYS[1:].strftime("%Y%m%d"))],
        None,
    ),
}


@pytest.mark.parametrize(
    "cells",
    [
        DAYS[:5].normalize().as_unit("ns"),
        DAYS[:5].as_unit("ns").tz_localize("Europe/Berlin"),
        pd.to_timedelta([1, 20, 300, 4_000, 50_000], unit="s").as_unit("ns"),
    ],
    ids=["dates", "moments", "durations"],
)
@pytest.mark.parametrize("column_type", [None, "categorical"])
def test_categories_of_dates_and_durations_are_read_as_by_the_estimator(
    cells: pd.Index, column_type: str | None, tmp_path: Path
):
    place = np.arange(60) % 5
    column = cells[place].to_series(index=range(60))
    column[:2] = pd.NaT
    size = np.sin(np.arange(60.0))
    table = pd.DataFrame({"x": column.astype("category"), "size": size})
    columns = None if column_type is None else {"x": column_type}
    model = KernelLearningRegressor(learner="unif", columns=columns).fit(
        table, place**2 + size
    )
    module = exported(model, tmp_path)
    assert_same_predictions(module, model, table)
    assert_same_predictions(module, model, table, {name: table[name] for name in table})


LARGE_CODES = [None, *(2**60 + number % 5 for number in range(59))]


@pytest.mark.parametrize(
    "codes",
    [
        pl.Series(LARGE_CODES, dtype=pl.Int64),
        pl.Series(LARGE_CODES, dtype=pl.UInt64),
        pd.Series(LARGE_CODES, dtype="Int64"),
        pd.Series(LARGE_CODES, dtype="int64[pyarrow]"),
    ],
    ids=["polars", "polars, unsigned", "pandas", "pandas with Arrow"],
)
def test_large_integers_keep_their_digits_next_to_missing_ones(
    codes: Any, tmp_path: Path
):
    frame = pl.DataFrame if isinstance(codes, pl.Series) else pd.DataFrame
    size = np.sin(np.arange(60.0))
    table = frame({"x": codes, "size": size})
    model = KernelLearningRegressor(learner="unif", columns={"x": "categorical"})
    module = exported(model.fit(table, np.arange(60) % 5 + size), tmp_path)
    assert_same_predictions(module, model, table)


@pytest.mark.filterwarnings("ignore:column 'x' holds")
@pytest.mark.parametrize("scale", ["standard", "quantile", "unit"])
@pytest.mark.parametrize("kind", ODD_COLUMNS)
def test_columns_of_all_kinds_have_the_same_features(kind: str, scale: Any):
    values, column_type = ODD_COLUMNS[kind]
    table = pd.DataFrame({"x": pd.Series(values).reset_index(drop=True)})
    encoding = TableEncoding.of(
        table, None if column_type is None else {"x": column_type}, scale
    )
    parts = numpy_model.read_parts(text_of_parts({"table": encoding}))
    expected = encoding.encode(table)
    (read,) = parts.table.columns
    trees, _ = encoding.for_trees(expected)
    for rows in (table, {"x": table["x"].tolist()}):
        (column,) = numpy_model.columns_of_rows(rows, parts.table.columns)
        features = numpy_model.encode_column(read, column)
        # Scores of ranks take another function
        np.testing.assert_allclose(features, expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(
            numpy_model.features_for_trees(read, features), trees, rtol=1e-9, atol=1e-12
        )


REFUSED_CELLS = [
    (np.array([2.0**60, np.nan]), "all digits of its integers"),
    ([b"17", "18"], "lists, records or bytes"),
    ([{"code": 17}, None], "lists, records or bytes"),
]


@pytest.mark.parametrize(("cells", "sentence"), REFUSED_CELLS)
def test_cells_that_the_estimator_refuses_are_refused(cells: Any, sentence: str):
    codes = [str(2**60 + number % 5) for number in range(40)]
    encoding = TableEncoding.of(pd.DataFrame({"x": codes}), {"x": "categorical"})
    with pytest.raises(ValueError, match=sentence):
        encoding.encode(pd.DataFrame({"x": cells}))
    parts = numpy_model.read_parts(text_of_parts({"table": encoding}))
    (read,) = parts.table.columns
    (column,) = numpy_model.columns_of_rows({"x": cells}, [read])
    with pytest.raises(ValueError, match=sentence):
        numpy_model.encode_column(read, column)


@pytest.mark.parametrize("levels", [["low", "high"], None])
def test_lists_are_no_numbers_and_no_ordered_levels(levels: Any):
    values = levels or [1.5, 2.5]
    types = {"x": levels or "number"}
    encoding = TableEncoding.of(pd.DataFrame({"x": values * 20}), types)
    parts = numpy_model.read_parts(text_of_parts({"table": encoding}))
    (read,) = parts.table.columns
    cells = pd.Series([[1, 2], values[0]], dtype=object)
    (column,) = numpy_model.columns_of_rows({"x": cells}, [read])
    for encode in (
        lambda: encoding.encode(pd.DataFrame({"x": cells})),
        lambda: numpy_model.encode_column(read, column),
    ):
        with pytest.raises(ValueError, match="got lists, records or bytes"):
            encode()


def test_durations_of_numpy_are_seconds():
    cells = [np.timedelta64(5, "h"), None, np.timedelta64("NaT"), timedelta(hours=1)]
    column = numpy_model.column_of("x", cells)
    np.testing.assert_array_equal(column.values, [18_000.0, np.nan, np.nan, 3_600.0])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda rows: rows.drop(columns="age"), "lack the columns"),
        (lambda rows: rows.assign(age="text"), "'age' must hold numbers"),
        (lambda rows: rows.assign(day="text"), "'day' must hold dates"),
        (lambda rows: rows.assign(age=np.inf), "'age' must hold finite numbers"),
        (lambda rows: dict(rows) | {"age": [1.0]}, "one length"),
        (lambda rows: rows.to_numpy(), "DataFrame or a dictionary"),
    ],
)
def test_unsuitable_rows_of_tables_are_refused(change, sentence: str, tmp_path: Path):
    table = table_of_rows(60)[["size", "age", "color", "day"]]
    module = exported(
        KernelLearningRegressor(learner="alignf").fit(table, table["age"]), tmp_path
    )
    with pytest.raises(ValueError, match=sentence):
        module.predict(change(table))


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (np.zeros((2, 3)), "4 columns"),
        (np.full((2, 4), np.nan), "must be finite"),
        ([["a"] * 4], "must hold numbers"),
    ],
)
def test_unsuitable_arrays_are_refused(rows: Any, sentence: str, tmp_path: Path):
    X = array_of_rows(40)
    module = exported(KernelLearningRegressor(learner="unif").fit(X, X[:, 0]), tmp_path)
    with pytest.raises(ValueError, match=sentence):
        module.predict(rows)


def test_the_copied_source_imports_only_numpy_and_the_standard_library():
    name = "learnkernels.kernels.exporting.numpy_model"
    roots = [Definition(name, root) for root in source_of(name).statements]
    tree = ast.parse(copied_source(roots))
    modules = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    modules |= {
        str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
    }
    assert {name.partition(".")[0] for name in modules} - set(
        sys.stdlib_module_names
    ) == {"numpy"}


def test_definitions_of_one_name_in_two_modules_are_refused():
    modules = (
        "learnkernels.kernels.families.feature",
        "learnkernels.kernels.column_encoding.encoding",
    )
    with pytest.raises(ValueError, match=r"'CONSTANT' is defined in .*; rename one\.$"):
        copied_source([Definition(module, "CONSTANT") for module in modules])


class OwnGaussians(GaussianFamily):
    """A subclass, whose kernels may be other ones."""


def model_of_own_family() -> Estimator:
    X = array_of_rows(40)
    return KernelLearningRegressor(family=OwnGaussians([0.1])).fit(X, X[:, 0])


def model_of_matrices() -> Estimator:
    X = array_of_rows(40)
    family = PrecomputedFamily([X @ X.T])
    return KernelLearningRegressor(family=family).fit(np.arange(40.0)[:, None], X[:, 0])


def model_of_sparse_rows() -> Estimator:
    X = array_of_rows(40)
    return KernelLearningRegressor(learner="unif").fit(sparse.csr_matrix(X), X[:, 0])


def model_of_labels() -> Estimator:
    X = array_of_rows(40)
    return KernelLearningClassifier(learner="unif").fit(X, (X[:, :3] > 1).astype(int))


def model_of_texts() -> Estimator:
    notes = ["red wine", "white wine", "dark beer", "pale beer"] * 10
    table = pd.DataFrame({"note": notes, "size": np.sin(np.arange(40.0))})
    return KernelLearningRegressor(learner="unif", columns={"note": "text"}).fit(
        table, table["size"]
    )


def model_with_trees(trees: Any) -> Estimator:
    """Return a model of steps, which trees predict better than the smooth kernel."""
    X = array_of_rows(300)
    model = KernelLearningRegressor(family=GaussianFamily([1e-3]), boost=trees).fit(
        X, 1.0 + (X[:, 0] > 1)
    )
    assert model.boost_share_ > 0.5
    return model


def model_with_a_forest() -> Estimator:
    return model_with_trees(RandomForestRegressor(n_estimators=20, random_state=0))


def model_with_a_logarithmic_link() -> Estimator:
    return model_with_trees(HistGradientBoostingRegressor(loss="poisson", max_iter=30))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (model_of_own_family, "base kernels OwnGaussians cannot be exported"),
        (model_of_matrices, "base kernels PrecomputedFamily cannot be exported"),
        (model_of_sparse_rows, "sparse rows cannot be exported"),
        (
            model_of_labels,
            "several labels per row cannot be exported; use save, or export one",
        ),
        (model_of_texts, "text column 'note' cannot be exported; use save, or drop"),
        (
            model_with_a_forest,
            "RandomForestRegressor cannot be exported; fit it with boost=False",
        ),
        (
            model_with_a_logarithmic_link,
            "does not predict the training rows .* boost=False",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_models_that_cannot_be_exported_are_refused(
    make, sentence: str, tmp_path: Path
):
    with pytest.raises(ValueError, match=sentence):
        make().export(tmp_path / "model.py")
    assert list(tmp_path.iterdir()) == []


def test_an_unfitted_model_is_refused(tmp_path: Path):
    with pytest.raises(NotFittedError):
        KernelLearningRegressor().export(tmp_path / "model.py")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["model.npz", "model", "my-model.py", "2models.py"])
def test_a_path_must_name_a_module(name: str, tmp_path: Path):
    X = array_of_rows(40)
    model = KernelLearningRegressor(learner="unif").fit(X, X[:, 0])
    with pytest.raises(ValueError, match="path must name a Python module"):
        model.export(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_export_is_replaced_and_another_file_is_kept(tmp_path: Path):
    X = array_of_rows(40)
    path = tmp_path / "model.py"
    KernelLearningRegressor(learner="unif").fit(X, X[:, 0]).export(path)
    model = KernelLearningRegressor(learner="unif").fit(X, X[:, 1])
    model.export(str(path))
    assert_same_predictions(imported(path), model, X)
    content = path.read_bytes()
    model.export(path)
    assert path.read_bytes() == content
    script = tmp_path / "script.py"
    script.write_text("print('mine')\n")
    with pytest.raises(ValueError, match=r"exists and is no exported model"):
        model.export(script)
    assert script.read_text() == "print('mine')\n"
    assert sorted(file.name for file in tmp_path.iterdir() if file.is_file()) == [
        "model.py",
        "script.py",
    ]


def test_a_loaded_model_is_exported(tmp_path: Path):
    table = table_of_rows(80)
    model = KernelLearningClassifier().fit(table, table["color"].fillna("none"))
    model.save(tmp_path / "model.safetensors")
    reread = load(tmp_path / "model.safetensors")
    assert_same_predictions(exported(reread, tmp_path), model, new_rows())


def changed_byte(text: str, share: float) -> str:
    """Return the text with another character at a place in the content."""
    start = text.index("CONTENT")
    place = start + int(share * (text.index('"""', start + 15) - start))
    while not text[place].isalnum():
        place += 1
    return text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_damaged_content_is_refused_in_a_sentence(share: float, tmp_path: Path):
    X = array_of_rows(40)
    path = tmp_path / "model.py"
    KernelLearningRegressor(learner="unif").fit(X, X[:, 0]).export(path)
    path.write_text(changed_byte(path.read_text(), share))
    with pytest.raises(
        ValueError, match=r"^this file is damaged: .*; export the model again\.$"
    ):
        imported(path)


def test_a_file_cut_short_is_refused(tmp_path: Path):
    X = array_of_rows(40)
    path = tmp_path / "model.py"
    KernelLearningRegressor(learner="unif").fit(X, X[:, 0]).export(path)
    path.write_text(path.read_text()[:-2000])
    with pytest.raises(SyntaxError):
        imported(path)
