"""Tables: what columns are taken for, what they become, and the same in every library and after a file."""

import io
import itertools
import sys
from collections.abc import Iterable
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from learnkernels import (
    CategoricalFamily,
    GaussianFamily,
    KernelLearningClassifier,
    KernelLearningRegressor,
)
from learnkernels.kernels.column_encoding import (
    EncodingReport,
    TableEncoding,
    columns,
    is_table,
    reading,
    summary,
)
from learnkernels.kernels.column_encoding.summary import (
    KNOTS,
    NumberSummary,
    added,
    estimated_n_distinct,
    smallest,
    summarize_table,
)
from learnkernels.kernels.estimators import fit_on_kernel
from learnkernels.kernels.files import from_bytes, to_bytes
from learnkernels.kernels.learners import RFM
from learnkernels.kernels.model import Model
from tests.refusals import refusal, require_refusals
from tests.unit.kernels.test_serialization import reread

M = 300


@pytest.fixture
def table() -> pd.DataFrame:
    """Each kind of column, with gaps."""
    rng = np.random.default_rng(0)
    grade = pd.Categorical(
        rng.choice(["low", "mid", "high"], M),
        categories=["low", "mid", "high"],
        ordered=True,
    )
    frame = pd.DataFrame({"key": np.arange(M), "size": rng.normal(3, 2, M)})
    frame["count"] = pd.array(rng.integers(0, 9, M), dtype="Int64")
    frame["vip"] = rng.random(M) > 0.5
    frame["color"] = rng.choice(["red", "green", "blue"], M)
    frame["shop"] = [f"shop {i}" for i in rng.integers(0, 50, M)]
    frame = frame.assign(
        grade=grade, day=pd.date_range("2024-01-01", periods=M, freq="31h"), one="same"
    )
    frame["comment"] = [f"words that differ in row {i}" for i in range(M)]
    frame.loc[[3, 7], "size"] = np.nan
    frame.loc[5, "count"] = pd.NA
    frame.loc[[1, 2], "color"] = None
    frame.loc[9, "day"] = pd.NaT
    return frame


def target_of(table: pd.DataFrame) -> np.ndarray:
    """Numbers that depend on a number, a category and many levels."""
    shop = table["shop"].str.slice(5).astype(int)
    effects = np.random.default_rng(1).normal(size=50)
    return np.asarray(
        np.sin(table["size"].fillna(0)) + (table["color"] == "red") + effects[shop]
    )


# What columns are ----------------------------------------------------------------------------------------------------


def test_columns_are_taken_for_what_the_rules_say(table: pd.DataFrame):
    encoding = TableEncoding.of(table)
    kinds = {column.name: column.describe() for column in encoding.columns}
    expected = dict.fromkeys(("size", "count", "vip"), "number")
    expected |= {
        "color": "category of 4 levels",
        "shop": f"category of {columns.MOST_LEVELS - 1} and more levels",
    }
    expected |= {
        "grade": "order of 3 levels",
        "day": "date (time, year, month, weekday, day)",
    }
    assert kinds == expected
    assert encoding.left_out == {
        "key": "it is a row index",
        "one": "it is constant",
        "comment": "it is free text",
    }


def test_texts_are_numbers_dates_or_levels():
    for values, kind in (
        (["1", "2.5", "?"], "number"),
        (["31/12/24", "30/12/24"], "date"),
        (["true", "False", ""], "number"),
        (["2024-01-01", "2024-02-01T10:00:00Z", "NA"], "date"),
        (["a", "b", "a"], "category"),
        ([1, "a", None], "category"),
        ([True, None, False], "number"),
        (["31/12/2024", "12/31/2024"], "category"),  # two orders in one column
        (["31/02/2024", "01/03/2024"], "category"),  # no such day
        (["1.2.2024", "3.4.2024"], "date"),
        (["31/12/2024 25:00", "30/12/2024 24:30"], "category"),
        (["2024-05", "2024-07"], "date"),
    ):
        (column,) = TableEncoding.of(
            pd.DataFrame({"x": pd.Series(values * 8, dtype=object)})
        ).columns
        assert column.kind == kind, values


def test_what_is_said_goes_before_the_rules(table: pd.DataFrame):
    said = {
        "key": "number",
        "count": "categorical",
        "shop": "code",
        "color": "drop",
        "comment": "drop",
    }
    said["grade"] = ["high", "mid", "low"]
    encoding = TableEncoding.of(table, said, "none")
    names = encoding.features
    column = dict(zip(names, encoding.encode(table).T, strict=True))
    assert column["key"].tolist() == list(range(M))
    assert [
        name for name, owner in zip(names, names.owners, strict=True) if owner == "shop"
    ] == ["shop code"]
    assert encoding.left_out["color"] == "as said"
    np.testing.assert_array_equal(
        column["grade"], 2.0 - np.asarray(table["grade"].cat.codes)
    )
    assert "count=3" in names


def test_what_cannot_be_is_refused_in_one_sentence(table: pd.DataFrame):
    used = ["key", "size", "count", "vip", "color", "shop", "grade", "day"]
    said: list[tuple[Any, str]] = [
        (
            {"colour": "categorical"},
            "columns: 'colour' is not a column of the table; did you mean 'color'\\? it has",
        ),
        (
            {"color": "number"},
            "columns: 'color' is said to be a number, but holds '(red|green|blue)'; correct it",
        ),
        ({"shop": "date"}, "columns: 'shop' is said to be a date, but holds 'shop"),
        (
            {"grade": ["low", "high"]},
            "columns: 'grade' holds 'mid', which is none of its levels; add it",
        ),
        (
            {"grade": "levels"},
            "columns: 'grade' must be one of number, categorical, code, date, text, drop or a list",
        ),
        (dict.fromkeys(used, "drop"), "leaves no column"),
    ]
    refused = [
        (partial(TableEncoding.of, table, of), sentence) for of, sentence in said
    ]
    encode, one = TableEncoding.of(table).encode, np.ones((2, 1))
    rows: list[tuple[Any, str]] = [
        (
            table.drop(columns="size"),
            "X lacks column 'size', which the model was fitted on. Add it; its cells may be empty.",
        ),
        (
            table.assign(size="big"),
            "'size' must hold numbers, as the training rows did, got .* as 'big' in row 0",
        ),
        (
            np.zeros((3, 7)),
            "must be a table with the columns that the model was fitted on",
        ),
        (
            {"size": [1.0]},
            r"must be a table with the columns .* got dict; give a DataFrame",
        ),
    ]
    refused += [(partial(encode, of), sentence) for of, sentence in rows]
    weighted, infinite = CategoricalFamily([0.7], [1.0, 2.5]), table.copy()
    infinite.loc[4, "size"] = np.inf
    said_of_infinity = "must hold finite numbers or gaps, got infinity in 1 of 300 rows, at first in row 4"
    refused += [
        (
            lambda: TableEncoding.of(infinite).encode(infinite),
            f"column 'size' {said_of_infinity}",
        ),
        (partial(weighted.tile, one, one), "X must have the 2 columns that have"),
    ]
    require_refusals(refused)


# What they become ----------------------------------------------------------------------------------------------------


def test_features_are_numbers_indicators_codes_and_parts(table: pd.DataFrame):
    encoding = TableEncoding.of(table, scale="none")
    X, names = encoding.encode(table), encoding.features
    column = dict(zip(names, X.T, strict=True))
    gaps = table["size"].isna().to_numpy()
    np.testing.assert_array_equal(
        column["size"], table["size"].fillna(table["size"].median())
    )
    np.testing.assert_array_equal(column["size missing"], gaps)
    for level in ("red", "green", "blue"):
        np.testing.assert_array_equal(column[f"color={level}"], table["color"] == level)
    np.testing.assert_array_equal(column["color=missing"], table["color"].isna())
    same = column["shop code"][:, None] == column["shop code"]
    np.testing.assert_array_equal(
        same, table["shop"].to_numpy()[:, None] == table["shop"].to_numpy()
    )
    seen = table["day"].notna().to_numpy()
    hours = (
        table["day"].dt.hour
        + table["day"].dt.minute / 60
        + table["day"].dt.second / 3600
    ).to_numpy()[seen]
    np.testing.assert_allclose(
        column["day sine of day"][seen], np.sin(2 * np.pi * hours / 24), atol=1e-6
    )
    assert names.codes == (names.index("shop code"),)


def test_names_of_features_have_at_most_80_characters():
    names = ["a" * 79, "b" * 80, "c" * 81]
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 3)), columns=names)
    *short, long = TableEncoding.of(table).features
    assert short == names[:2]
    assert (len(long), long.rstrip("."), long[-3:]) == (80, "c" * 77, "...")


@pytest.mark.parametrize("scale", ["none", "unit", "standard", "quantile"])
def test_scales_are_as_said_and_an_encoding_is_plain_data(
    table: pd.DataFrame, scale: Any
):
    encoding = TableEncoding.of(table, scale=scale)
    X, names = encoding.encode(table), encoding.features
    again = reread(encoding)
    assert again == encoding
    np.testing.assert_array_equal(again.encode(table), X)
    size = X[:, names.index("size")]
    colors = X[:, [j for j, owner in enumerate(names.owners) if owner == "color"]]
    raw = np.asarray(table["size"].fillna(table["size"].median()))
    assert (np.argsort(np.argsort(size)) == np.argsort(np.argsort(raw))).mean() > 0.95
    if scale == "unit":
        assert (size.min(), size.max()) == (0.0, 1.0)
    within = {"standard": 1e-12, "quantile": 0.06}  # of 101 knots and a median twice
    if scale in within:
        np.testing.assert_allclose(
            [size.mean(), size.std()], [0, 1], atol=within[scale]
        )
        shares = (colors > 0).mean(axis=0)
        variances = shares * (1 - shares)
        np.testing.assert_allclose(
            colors.max(axis=0), (variances.sum() * variances) ** -0.25
        )


def test_a_quantile_scale_does_not_mind_what_is_monotone():
    x = np.random.default_rng(3).normal(size=200)
    tables = [
        pd.DataFrame({"x": values, "c": ["a", "b"] * 100})
        for values in (x, np.exp(3 * x))
    ]
    first, second = (
        TableEncoding.of(table, scale="quantile").encode(table) for table in tables
    )
    # Between knots a line takes the place of the exponential
    np.testing.assert_allclose(first, second, atol=0.05)


def test_new_rows_in_any_order_with_new_levels_and_gaps(table: pd.DataFrame):
    encoding, report = TableEncoding.of(table), EncodingReport()
    new = table.iloc[:6, ::-1].copy()
    new["color"] = ["red", "violet", None, "red", "red", "red"]
    new["shop"] = ["shop 900"] * 6
    new["vip"] = None
    new["extra"] = 1
    X, names = encoding.encode(new, report), encoding.features
    colors = X[:, [j for j, owner in enumerate(names.owners) if owner == "color"]]
    assert not colors[1].any()
    assert colors[2].any()
    known = encoding.encode(table)[:, names.index("shop code")]
    assert not np.isin(X[:, names.index("shop code")], known).any()
    # Among these rows the third has a gap in color, and rows 3 and 5 their own in size
    # and count.
    assert (report.levels, report.gaps) == (
        {"color": 1},
        {"size": 1, "count": 1, "vip": 6, "color": 1},
    )


def test_every_library_and_columns_that_were_read_give_the_same_features(
    table: pd.DataFrame,
):
    plain = table.drop(columns="grade")
    encoding = TableEncoding.of(plain)
    X = encoding.encode(plain)
    for of in (pl.from_pandas, pa.Table.from_pandas, reading.read_columns):
        other = of(plain)
        assert is_table(other) == (of is not reading.read_columns)
        assert TableEncoding.of(other) == encoding
        np.testing.assert_array_equal(encoding.encode(other), X)


@pytest.mark.parametrize("of", [pd.DataFrame, pl.DataFrame, pa.table])
def test_names_are_listed_as_often_whatever_the_number_of_columns(of: Any):
    listed = []
    for d in (10, 200):
        wide = of({f"g{j}": [0.5, 1.5] for j in range(d)})
        calls: list[str] = []
        sys.setprofile(
            lambda frame, event, _: (
                calls.append(frame.f_code.co_name) if event == "call" else None  # noqa: B023
            )
        )
        try:
            reading.read_columns(wide)
        finally:
            sys.setprofile(None)
        listed.append(calls.count("columns"))
    assert listed[0] == listed[1]


def test_texts_of_a_file_give_the_features_of_what_they_stand_for(table: pd.DataFrame):
    encoding = TableEncoding.of(table, {"count": "categorical"})
    read = pd.read_csv(io.StringIO(table.to_csv(index=False)), dtype=str)
    np.testing.assert_allclose(
        encoding.encode(read), encoding.encode(table), atol=1e-12
    )


def test_values_come_back_from_features_and_trees_get_levels_and_gaps_as_such(
    table: pd.DataFrame,
):
    encoding = TableEncoding.of(table)
    X = encoding.encode(table)
    Z, categories = encoding.for_trees(X)
    assert encoding.features.owners[0] == "size"
    np.testing.assert_array_equal(np.isnan(Z[:, 0]), table["size"].isna())
    assert categories.sum() == 1  # color; levels of shops are numbers
    levels, text = Z[:, categories].ravel(), table["color"].fillna("").to_numpy()
    np.testing.assert_array_equal(levels[:, None] == levels, text[:, None] == text)
    whole = table.notna().all(axis=1).to_numpy()
    table, again = table[whole], pd.DataFrame(encoding.decode(X))[whole]
    np.testing.assert_allclose(again["size"], table["size"])
    for name in ("color", "grade"):
        assert again[name].tolist() == table[name].tolist()
    assert pd.to_datetime(again["day"]).tolist() == table["day"].dt.round("s").tolist()


@settings(max_examples=50)
@given(st.lists(st.one_of(st.none(), st.text(max_size=8)), min_size=2, max_size=12))
def test_codes_are_equal_where_levels_are(levels: list[str | None]):
    codes = reading.codes_of(levels)
    assert ((codes >= 0) & (codes < 1)).all()
    assert [[a == b for b in codes] for a in codes] == [
        [a == b for b in levels] for a in levels
    ]


# Kernels -------------------------------------------------------------------------------------------------------------


def test_a_categorical_kernel_is_a_gaussian_of_indicators_and_weights_of_columns_multiply():
    codes = np.random.default_rng(0).integers(0, 4, (40, 3)).astype(float)
    indicators = (codes[:, :, None] == np.arange(4)).reshape(40, 12).astype(float)
    gammas = [0.25, 0.5, 3.0]
    ours = CategoricalFamily(gammas).tile(codes[:15], codes[15:])
    oracle = GaussianFamily([gamma / 2 for gamma in gammas]).tile(
        indicators[:15], indicators[15:]
    )
    np.testing.assert_allclose(ours, oracle, rtol=1e-13)
    weights = [1.0, 2.5, 0.3]
    joint = CategoricalFamily([0.7], weights).tile(codes, codes)[0]
    apart = [
        CategoricalFamily([0.7 * w]).tile(codes[:, [j]], codes[:, [j]])[0]
        for j, w in enumerate(weights)
    ]
    np.testing.assert_allclose(joint, np.prod(apart, axis=0), rtol=1e-13)


def test_rfm_tells_levels_by_their_codes():
    rng = np.random.default_rng(0)
    level, x = rng.integers(0, 60, 500), rng.normal(size=500)
    effects = rng.normal(size=60)
    y = effects[level] + 0.2 * x
    X = np.column_stack([x, reading.codes_of([str(one) for one in level])])
    models = [
        KernelLearningRegressor(learner=RFM(codes=codes)).fit(X[:350], y[:350])
        for codes in ((1,), ())
    ]
    scores = [model.score(X[350:], y[350:]) for model in models]
    assert scores[0] > 0.9 > scores[1]
    said = refusal(KernelLearningRegressor(learner=RFM(codes=(0, 1))).fit, X, y)
    assert "codes must be some of the 2 columns of X and not all of them" in said


# Estimators ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "least"), [(KernelLearningClassifier, 0.6), (KernelLearningRegressor, 0.2)]
)
def test_estimators_read_tables_and_are_kept_in_files(
    table: pd.DataFrame, kind: Any, least: float
):
    y = target_of(table)
    y = np.where(y > 0.5, "yes", "no") if kind is KernelLearningClassifier else y
    model, rest = (
        kind(columns={"key": "drop", "comment": "drop"}).fit(table[:220], y[:220]),
        table[220:],
    )
    assert model.score(rest, y[220:]) > least
    assert model.feature_names_in_.tolist() == list(table.columns)
    assert model.n_features_in_ == len(table.columns)
    assert len(model.table_.names) == 7
    importances = dict(zip(table.columns, model.feature_importances_, strict=True))
    assert importances["key"] == importances["comment"] == 0.0
    assert set(model.relevance_) == set(model.table_.names)
    predicted = model.predict(rest)
    np.testing.assert_array_equal(
        model.predict(rest.sample(frac=1, axis=1, random_state=0)), predicted
    )
    np.testing.assert_array_equal(model.predict(pa.Table.from_pandas(rest)), predicted)
    kept, report = Model.of_table(model, {"name": "of a table"}), EncodingReport()
    again = from_bytes(to_bytes(kept))
    assert (again.table, again.features) == (kept.table, kept.features)
    told = again.columns(table, report)
    for name, column in kept.columns(table).items():
        np.testing.assert_array_equal(told[name], column)
    assert report.gaps == {"size": 2, "count": 1, "color": 2, "day": 1}


def test_numbers_without_gaps_are_rows_as_ever_and_a_kernel_of_numbers_takes_the_place_of_a_table(
    table: pd.DataFrame,
):
    table = table[:120]
    numbers, y = table[["size", "vip"]].fillna(0.0), target_of(table)
    model, X = KernelLearningRegressor().fit(numbers, y), numbers.to_numpy(float)
    plain = KernelLearningRegressor().fit(X, y)
    expected = plain.predict(X)
    np.testing.assert_array_equal(model.predict(numbers), expected)
    np.testing.assert_array_equal(
        model.predict(numbers[["vip", "size"]].assign(more=1)), expected
    )
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        np.testing.assert_array_equal(model.predict(X), expected)
    assert np.isfinite(model.predict(numbers.assign(size=np.nan))).all()
    model = KernelLearningRegressor(columns={"key": "drop", "comment": "drop"}).fit(
        table, y
    )
    fit_on_kernel(model, plain.kernel_, y)
    assert model.table_ is None
    assert model.predict(X[:40]).shape == (40,)


def test_what_columns_are_can_be_said_and_one_of_gaps_or_of_one_level_does_no_harm(
    table: pd.DataFrame,
):
    y = target_of(table)
    table = table.assign(empty=None, single=["x", None] * (M // 2))
    model = clone(
        KernelLearningRegressor(
            columns={"key": "number", "shop": "drop", "comment": "drop"}
        )
    ).fit(table, y)
    assert "key" in model.relevance_
    assert "shop" not in model.relevance_
    assert model.table_.left_out["empty"] == "it is empty"
    assert "single" in model.table_.names
    blank = table.assign(size=np.nan, color=None, shop=None, day=pd.NaT)
    assert np.isfinite(model.predict(blank)).all()
    said = refusal(model.fit, np.zeros((4, 2)), y[:4])
    assert "columns says what columns of a table are, got rows as ndarray" in said


def test_ordered_levels_of_numbers_are_those_of_texts_with_zero_decimals():
    numbers = pd.DataFrame({"rating": [1.0, 3.0, 2.0, np.nan] * 10})
    texts = pd.DataFrame({"rating": ["1.0", "3.0", "2.0", None] * 10})
    levels = {"rating": ["1", "2", "3"]}
    encoding = TableEncoding.of(numbers, levels)
    assert TableEncoding.of(texts, levels) == encoding
    report = EncodingReport()
    np.testing.assert_array_equal(
        encoding.encode(texts, report), encoding.encode(numbers)
    )
    assert not report.levels
    assert report.gaps == {"rating": 10}
    written: Any = {"rating": ["1.0", 2.0, "3."]}
    assert TableEncoding.of(texts, written) == encoding
    ordered = pd.Categorical(texts["rating"], ["1.0", "2.0", "3.0"], ordered=True)
    categories = pd.DataFrame({"rating": ordered})
    assert TableEncoding.of(categories) == encoding
    np.testing.assert_array_equal(encoding.encode(categories), encoding.encode(numbers))


def test_levels_of_dates_without_a_time_are_named_by_the_date():
    days = pd.date_range("2024-01-01", periods=3).repeat(10)
    dates = pd.DataFrame({"day": days})
    said: Any = {"day": ["2024-01-01", "2024-01-02", "2024-01-03"]}
    encoding: Any = TableEncoding.of(dates, said)
    assert encoding.columns[0].levels == tuple(said["day"])
    with_times: Any = {"day": [f"{day}T00:00:00" for day in said["day"]]}
    assert TableEncoding.of(dates, with_times) == encoding
    for cells in (
        days.date,
        days.strftime("%Y-%m-%d"),
        days.astype(str),
        days.astype("category"),
    ):
        same = pd.DataFrame({"day": cells})
        assert TableEncoding.of(same, said) == encoding
        np.testing.assert_array_equal(encoding.encode(same), encoding.encode(dates))
    hours = pd.DataFrame({"day": pd.date_range("2024-01-01", periods=3, freq="12h")})
    levels: Any = TableEncoding.of(hours, {"day": "categorical"}).columns[0]
    assert levels.levels == ("2024-01-01", "2024-01-01 12:00:00", "2024-01-02")


# What is known of a table from its blocks is what all of it tells ----------------------------------------------------


RNG = np.random.default_rng(0)

NUMBERS = {
    "sorted": np.sort(RNG.normal(size=20_001)),
    "even": RNG.normal(size=20_000),
    "ties": RNG.integers(0, 500, 20_000) * 1.0,
    "two halves": np.repeat([0.0, 1.0], 10_000)
    + np.r_[np.zeros(10_000), np.linspace(0, 1, 10_000)],
    "mostly one": np.where(RNG.random(20_000) < 0.7, 3.0, RNG.normal(size=20_000)),
    "heavy tails": RNG.standard_cauchy(20_000),
    "gaps": np.where(RNG.random(20_000) < 0.6, np.nan, RNG.exponential(size=20_000)),
    "few": np.array([2.0, np.nan, 1.0]),
}


def known(blocks: Iterable[np.ndarray], keep_all_numbers: bool) -> NumberSummary:
    """Return what is known of numbers from their blocks."""
    return reduce(
        add,
        (
            NumberSummary.of(block, keep_all_numbers=keep_all_numbers)
            for block in blocks
        ),
    )


@pytest.mark.parametrize("keep_all_numbers", [True, False])
@pytest.mark.parametrize("name", NUMBERS)
def test_medians_quantiles_and_units_of_blocks_are_those_of_all(
    name: str, keep_all_numbers: bool
):
    values = NUMBERS[name]
    held, found = (
        np.sort(values[~np.isnan(values)]),
        known(np.array_split(values, 13), keep_all_numbers),
    )
    assert (found.n, found.gaps) == (len(values), len(values) - len(held))
    assert (found.low, found.high) == (held[0], held[-1])
    knots, asked = np.array(found.knots()), np.linspace(0.0, 1.0, KNOTS)
    if keep_all_numbers:
        whole = NumberSummary.of(values)
        assert found.fill == np.median(held)
        for scale in ("unit", "max", "standard"):
            assert found.scaling(scale) == whole.scaling(scale)  # to the last bit
        np.testing.assert_array_equal(knots, np.quantile(held, asked))
    # What the points say is off by at most half a point in a block: 1 / 256 of the
    # numbers.
    within = 1 / 256 + 1 / len(held)
    below, above = (
        np.searchsorted(held, [found.fill, *knots], side) / len(held)
        for side in ("left", "right")
    )
    assert (
        (below <= np.r_[0.5, asked] + within) & (above >= np.r_[0.5, asked] - within)
    ).all()
    filled = np.where(np.isnan(values), found.fill, values)
    # Sums of 20,000 terms in another order.
    assert found.scaling("standard")[0] == pytest.approx(
        filled.mean(), rel=1e-11, abs=1e-12
    )
    assert found.scaling("standard")[1] == pytest.approx(filled.std(), rel=1e-11)


def test_quantiles_of_negated_numbers_are_the_negated_quantiles_in_reverse():
    values = np.random.default_rng(1).exponential(size=128 * 31)
    knots, of_negated = (
        np.array(NumberSummary.of(numbers, keep_all_numbers=False).knots())
        for numbers in (values, -values)
    )
    assert (knots[0], knots[-1]) == (values.min(), values.max())
    np.testing.assert_allclose(of_negated, -knots[::-1], rtol=1e-9)


@pytest.mark.parametrize("order", ["as they come", "ascending", "by parts"])
def test_of_very_many_blocks_few_numbers_are_held_and_no_quantile_drifts(
    monkeypatch: pytest.MonkeyPatch, order: str
):
    monkeypatch.setattr(summary, "MOST_MERGED", 8192)
    values = RNG.normal(size=180_000)
    held, sizes = np.sort(values), list[int]()
    blocks = np.split(held if order == "ascending" else values, 600)

    def together(one: NumberSummary, other: NumberSummary) -> NumberSummary:
        sizes.append(len((found := one + other).points))
        return found

    parts = [NumberSummary.of(block, keep_all_numbers=False) for block in blocks]
    if order == "by parts":
        parts = [
            reduce(together, parts[part : part + 70]) for part in range(0, 600, 70)
        ]
    found = reduce(together, parts)
    assert max(sizes) <= 8192
    assert found.weights.sum() == pytest.approx(180_000, rel=1e-12)
    asked = np.linspace(0.0, 1.0, KNOTS)
    np.testing.assert_allclose(
        np.searchsorted(held, found.knots()) / 180_000, asked, rtol=0, atol=1 / 256
    )
    assert abs(np.mean(held < found.fill) - 0.5) < 1 / 256


def test_counted_values_are_as_good_as_repeated_ones():
    values, counts = np.r_[RNG.normal(size=300), np.nan], RNG.integers(1, 40, 301)
    one, other = (
        NumberSummary.of(values, counts),
        NumberSummary.of(np.repeat(values, counts)),
    )
    for name in (
        "n",
        "gaps",
        "infinite",
        "low",
        "high",
        "fill",
        "are_integers",
        "exact",
    ):
        assert getattr(one, name) == getattr(other, name)
    # Sums in another order
    assert one.scaling("standard") == pytest.approx(
        other.scaling("standard"), rel=1e-12
    )


def test_statistics_of_blocks_are_those_of_all_rows():
    x = RNG.normal(1e6, 1.0, size=3000)  # a mean that would drown the squares
    x[RNG.random(3000) < 0.1] = np.nan
    found = reduce(
        add,
        (
            NumberSummary.of(x[rows])
            for rows in np.array_split(np.arange(3000), [0, 1, 40, 2000])
        ),
    )
    assert found.gaps == np.isnan(x).sum()
    assert found.mean == pytest.approx(np.nanmean(x), rel=1e-14)
    assert np.sqrt(found.squares / found.finite) == pytest.approx(
        np.nanstd(x), rel=1e-10
    )


def test_different_values_are_told_from_few_codes():
    codes = RNG.random(50_000)
    joined = partial(reduce, lambda one, other: smallest(np.append(one, other)))
    many, once = (joined(np.array_split(of, 20)) for of in (np.r_[codes, codes], codes))
    # Three deviations of 1,024 codes
    assert estimated_n_distinct(many) == pytest.approx(50_000, rel=0.1)
    np.testing.assert_array_equal(once, many)
    assert estimated_n_distinct(smallest(np.array([0.5, 0.25, 0.5]))) == 2


MESSY = {
    "id": [str(i) for i in range(600)],
    "user id": RNG.integers(0, 10**9, 600),
    "code": RNG.integers(10**17, 10**17 + 40, 600),
    "zip": RNG.integers(10_000, 10_060, 600),
    "town": [f"town {j}" for j in np.minimum(RNG.geometric(0.02, 600), 200)],
    "user": [f"user {i % 300}" for i in range(600)],
    "price": RNG.exponential(size=600),
    "paid": [
        f"{one:,.2f}".translate(str.maketrans(",.", ".,"))
        for one in RNG.exponential(500, 600)
    ],
    "cost": [
        f"${one:,.2f}" if i % 40 else "-"
        for i, one in enumerate(RNG.exponential(2000, 600))
    ],
    "weight": [f"{one} kg" for one in RNG.integers(40, 90, 600)],
    "day": [f"{1 + i % 28}/{1 + i % 12}/{20 + i % 5}" for i in range(600)],
    "hour": [f"{i % 24}:{i % 60:02d}" for i in range(600)],
    "founded": [
        str(1950 + i % 70) if i < 500 else f"{1950 + i % 70}-{1 + i % 12:02d}"
        for i in range(600)
    ],
    "open": ["2024-01-31" if i % 3 else "9999-12-31" for i in range(600)],
    "until": [f"202401{1 + i % 28:02d}" if i % 3 else "99991231" for i in range(600)],
    "paid on": [20_240_101 + i % 28 if i % 40 > 25 else 0 for i in range(600)],
}


@pytest.mark.parametrize("scale", ["standard", "quantile"])
@pytest.mark.parametrize(
    "said", [{}, {"zip": "categorical", "id": "number", "town": "code"}]
)
def test_a_table_in_blocks_is_encoded_as_the_whole_to_the_last_bit(
    said: Any, scale: Any
):
    table = pa.table(MESSY)
    levels = [name for name, kind in said.items() if kind != "number"]
    whole = TableEncoding.of(table, said, scale)
    for cuts in ([1, 2, 40, 333], range(25, 600, 25)):
        blocks = [table.slice(a, b - a) for a, b in itertools.pairwise([0, *cuts, 600])]
        encoding = TableEncoding.of(
            reduce(added, (summarize_table(block, levels) for block in blocks)),
            said,
            scale,
        )
        assert encoding == whole
    assert whole.left_out.keys() == {"user id"} | ({"id"} - said.keys())
    (founded,) = (column for column in whole.columns if column.name == "founded")
    assert founded.kind == "date"


@pytest.mark.parametrize("said", [{}, {"zip": "categorical"}])
def test_many_rows_in_blocks_are_known_by_quantiles_and_frequent_levels(
    monkeypatch: pytest.MonkeyPatch, said: Any
):
    for name, few in {
        "MOST_COUNTED": 50,
        "MOST_MERGED": 150,
        "MOST_KEPT_TEXTS": 45,
    }.items():
        monkeypatch.setattr(summary, name, few)
    n = 6000
    columns: dict[str, Any] = {
        "id": RNG.permutation(n),
        "zip": RNG.integers(0, 60, n) + 10_000,
    }
    columns["town"] = [f"town {j}" for j in np.minimum(RNG.geometric(0.02, n), 200)]
    table = pa.table(
        columns
        | {
            "name": [f"name {i % 5800}" for i in range(n)],
            "price": RNG.exponential(size=n),
        }
    )
    whole = TableEncoding.of(table, said)
    blocks = [
        summarize_table(table.slice(i, 250), said, keep_all_numbers=False)
        for i in range(0, n, 250)
    ]
    encoding = TableEncoding.of(reduce(added, blocks), said)
    assert (dict(encoding.left_out), encoding.names) == (
        dict(whole.left_out),
        whole.names,
    )
    ours, theirs = encoding.encode(table), whole.encode(table)
    exact = [name != "town" and name not in said for name in whole.features.owners]
    # Units of numbers: sums of 6,000 terms of 10,000 in another order, over deviations
    # of 17.
    np.testing.assert_allclose(ours[:, exact], theirs[:, exact], rtol=1e-12, atol=1e-12)


def test_blocks_of_different_kinds_are_refused_unless_one_has_gaps_alone():
    held: tuple[Any, ...] = pa.nulls(3), [1.0, 2.0, 4.0], ["a", "b"]
    gaps, numbers, texts = (summarize_table(pa.table({"x": values})) for values in held)
    for one in (added(gaps, numbers), added(numbers, gaps)):
        assert (one["x"].kind, one["x"].gaps) == ("number", 3)
        assert TableEncoding.of(one).columns[0].fill == 2.0  # type: ignore[attr-defined]
    said = refusal(added, numbers, texts)
    assert (
        "'x' must hold one kind of values, and levels in one order, in all its parts"
        in said
    )


def of_ordered(*dictionaries: list[str]) -> pa.Table:
    chunks = [
        pa.DictionaryArray.from_arrays(pa.array([0, 1] * 10), levels, ordered=True)
        for levels in dictionaries
    ]
    return pa.table({"size": pa.chunked_array(chunks)})


def test_an_order_that_differs_between_chunks_is_refused_unless_the_type_is_said():
    table = of_ordered(["low", "high"], ["low", "mid", "high"])
    assert "'size' must have its levels in one order" in refusal(
        TableEncoding.of, table
    )
    said: Any = {"size": "categorical"}
    whole = TableEncoding.of(table, said)
    blocks = [summarize_table(table.slice(start, 20), said) for start in (0, 20)]
    assert TableEncoding.of(reduce(added, blocks), said) == whole
    said = {"size": ["low", "mid", "high"]}
    encoding: Any = TableEncoding.of(table, said).columns[0]
    assert encoding.levels == ("low", "mid", "high")
    beside = table.append_column("x", [np.arange(40) * 0.5])
    assert TableEncoding.of(beside, {"size": "drop"}).names == ("x",)
    same: Any = TableEncoding.of(of_ordered(["low", "high"], ["low", "high"]))
    assert same.columns[0].levels == ("low", "high")


def test_integers_beyond_floats_in_some_blocks_make_levels_of_all_blocks():
    small, large = [1, 2, 3] * 20, [2**60 + i for i in (1, 2, 3)] * 20
    for values in (small + large, large + small):
        table = pa.table({"key": values, "x": np.arange(120) * 0.5})
        blocks = [
            summarize_table(table.slice(start, 30)) for start in range(0, 120, 30)
        ]
        assert TableEncoding.of(reduce(added, blocks)) == TableEncoding.of(table)


def test_a_block_may_lack_readable_cells_if_another_has_some():
    encoding = TableEncoding.of(pa.table({"x": ["1.5", "2.5", "4.5"] * 10}))
    blocks = [pa.table({"x": cells}) for cells in ([None, "unknown"], ["2.5", None])]
    assert "got text such as 'unknown' in row 1" in refusal(encoding.encode, blocks[0])
    report = EncodingReport(is_of_blocks=True)
    unread = encoding.encode(blocks[0], report)
    assert (unread == encoding.encode(pa.table({"x": [None, None]}))).all()
    assert "got text such as 'unknown' in row 1" in refusal(report.require_read)
    encoding.encode(blocks[1], report)
    report.require_read()
    (report + EncodingReport(is_of_blocks=True)).require_read()


def of_runs(column: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(
        pa.array(range(1, len(column) + 1), pa.int32()), column
    )


OF_ARROW = {
    "texts": (pa.array(["x", "y", "z"] * 20), [pa.large_string(), pa.string_view()]),
    "categories": (
        pa.array(["x", "y", "z"] * 20).dictionary_encode(),
        [pa.dictionary(pa.int32(), pa.string_view())],
    ),
    "numbers": (
        pa.array([1.5, 2.0, 4.25] * 20),
        [pa.float32(), pa.decimal128(7, 3), pa.decimal32(5, 2)],
    ),
    "bytes": (pa.array([b"x", b"y", b"z"] * 20), [pa.large_binary(), pa.binary_view()]),
    "lists": (
        pa.array([[1], [2, 3], [4]] * 20),
        [pa.large_list(pa.int64()), pa.list_view(pa.int64())],
    ),
}
"""Columns of Arrow, and other types of the same values."""


@pytest.mark.parametrize("column", OF_ARROW)
def test_types_of_arrow_that_hold_the_same_values_are_the_same_column(column: str):
    plain, kinds = OF_ARROW[column]
    others = [
        pa.array(plain.to_pylist(), kind)
        if pa.types.is_list_view(kind)
        else plain.cast(kind)
        for kind in kinds
    ]
    others += [of_runs(plain)] if column in ("texts", "numbers") else []
    b = np.random.default_rng(0).normal(size=len(plain))
    expected = TableEncoding.of(pa.table({"b": b, "c": plain}))
    for other in others:
        table = pa.table({"b": b, "c": other})
        encoding = TableEncoding.of(table)
        assert encoding.left_out == expected.left_out
        np.testing.assert_array_equal(
            encoding.encode(table), expected.encode(pa.table({"b": b, "c": plain}))
        )
