"""Dates as people write them: which number is the day, what is read, and what is said where nothing decides."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnkernels.kernels.families import CategoricalFamily, GaussianFamily, LaplacianFamily
from learnkernels.kernels.tables import TableEncoding
from learnkernels.kernels.tables.dates import CIVIL, first_of, moment_of

DAYS = pd.date_range("2024-01-27", periods=40, freq="9D")


@pytest.mark.parametrize(
    "written", ["%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m/%d/%Y", "%m/%d/%Y %I:%M %p", "%d/%m/%Y %H:%M"]
)
def test_texts_in_an_order_that_a_column_decides_are_the_dates_they_stand_for(written: str):
    table, oracle = (pd.DataFrame({"when": column}) for column in (DAYS.strftime(written), DAYS))
    encoding, expected = TableEncoding.of(table), TableEncoding.of(oracle)
    assert encoding.features == expected.features
    np.testing.assert_array_equal(encoding.encode(table), expected.encode(oracle))
    read = TableEncoding.from_dict(encoding.to_dict())
    # New rows are read in the order of the training rows, whatever they would decide themselves, and ISO 8601 as well.
    one = pd.DataFrame({"when": [datetime(2024, 5, 4).strftime(written)]})
    np.testing.assert_array_equal(read.encode(one), read.encode(pd.DataFrame({"when": ["2024-05-04"]})))


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)), st.sampled_from("/.-"))
def test_both_orders_tell_the_same_day(moment: datetime, between: str):
    day, month = (moment.strftime(between.join(order)) for order in (("%d", "%m", "%Y"), ("%m", "%d", "%Y")))
    if CIVIL.fullmatch(day) is None:  # years below 1000 are not filled with zeros everywhere
        return
    expected = np.datetime64(moment.replace(hour=0, minute=0, second=0, microsecond=0), "us")
    assert moment_of(day, "day") == moment_of(month, "month") == expected
    assert first_of([day]) == ("day" if moment.day > 12 or between == "." else "month" if moment.month > 12 else None)


def test_a_column_that_can_be_read_both_ways_is_left_out_unless_it_is_said_to_be_dates():
    table = pd.DataFrame(
        {"x": np.arange(12.0) ** 2, "when": [f"{1 + i % 12}/{1 + (5 * i) % 12}/2024" for i in range(12)]}
    )
    encoding = TableEncoding.of(table)
    assert encoding.names == ("x",)
    assert encoding.left_out["when"].startswith("its dates may begin with the day or with the month; say")
    said = TableEncoding.of(table, {"when": "date"})
    assert dict(zip(said.names, (column.describe() for column in said.columns), strict=True))["when"].startswith(
        "date (day first; "
    )
    days = pd.to_datetime(table["when"], format="%d/%m/%Y")
    np.testing.assert_array_equal(
        said.encode(table), TableEncoding.of(table.assign(when=days)).encode(table.assign(when=days))
    )


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["31/12/2024", "12/31/2024"], "category"),  # two orders in one column
        (["31/02/2024", "01/03/2024"], "category"),  # no such day
        (["1.2.2024", "3.4.2024"], "date"),
        (["31/12/24", "30/12/24"], "category"),  # which century is not said
        (["31/12/2024 25:00", "30/12/2024 24:30"], "category"),
        (["2024-05", "2024-07"], "date"),
    ],
)
def test_what_is_a_date(texts: list[str], kind: str):
    (column,) = TableEncoding.of(pd.DataFrame({"x": texts * 8})).columns
    assert column.kind == kind


def test_new_rows_in_another_order_are_refused():
    encoding = TableEncoding.of(pd.DataFrame({"when": DAYS.strftime("%d/%m/%Y")}))
    with pytest.raises(ValueError, match="column 'when' must hold dates with the day first, as the training rows did"):
        encoding.encode(pd.DataFrame({"when": ["12/31/2024"]}))
    iso = TableEncoding.of(pd.DataFrame({"when": DAYS}))
    with pytest.raises(ValueError, match="column 'when' must hold dates, as the training rows did, got text"):
        iso.encode(pd.DataFrame({"when": ["31/12/2024"]}))


def test_a_level_that_stands_for_a_gap_is_refused_where_it_is_said_and_a_gap_elsewhere():
    texts = ["none", "some", "all"] * 10
    with pytest.raises(ValueError, match="columns: 'x' has the level 'none', a text that stands for a gap; rename it"):
        TableEncoding.of(pd.DataFrame({"x": texts}), {"x": ["none", "some", "all"]})
    ordered = pd.Categorical(texts, categories=["none", "some", "all"], ordered=True)
    (column,) = TableEncoding.of(pd.DataFrame({"x": ordered})).columns
    assert column.said == ("some", "all")
    assert column.has_gaps


def test_older_files_say_nothing_of_an_order():
    encoding = TableEncoding.of(pd.DataFrame({"when": DAYS}))
    data = encoding.to_dict()
    assert data["columns"][0].pop("first") == "year"
    assert TableEncoding.from_dict(data) == encoding


# Kernels on what columns become --------------------------------------------------------------------------------------


def encoded(table: pd.DataFrame, said: dict[str, object] | None = None) -> tuple[np.ndarray, TableEncoding]:
    """Return features in units of the columns' own, and the encoding."""
    encoding = TableEncoding.of(table, said, "none")
    return encoding.encode(table), encoding


def test_a_laplacian_of_an_order_falls_with_the_levels_between():
    levels = ["few", "some", "most", "all"]
    table = pd.DataFrame({"grade": np.random.default_rng(0).choice(levels, 30)})
    X, _ = encoded(table, {"grade": levels})
    place = table["grade"].map(levels.index).to_numpy()
    (K,) = LaplacianFamily([0.7]).tile(X, X)
    np.testing.assert_allclose(K, np.exp(-0.7 * np.abs(place[:, None] - place)), rtol=1e-13)


@pytest.mark.parametrize(("cycle", "days"), [("year", 365.2425), ("week", 7.0)])
def test_a_gaussian_of_sine_and_cosine_is_the_periodic_kernel(cycle: str, days: float):
    X, encoding = encoded(pd.DataFrame({"when": DAYS}))
    parts = [list(encoding.features).index(f"when {wave} of {cycle}") for wave in ("sine", "cosine")]
    (K,) = GaussianFamily([0.5]).tile(X[:, parts], X[:, parts])
    elapsed = (DAYS - pd.Timestamp("1970-01-01")).days.to_numpy(dtype=float)
    oracle = np.exp(-4 * 0.5 * np.sin(np.pi * (elapsed[:, None] - elapsed) / days) ** 2)
    np.testing.assert_allclose(K, oracle, rtol=1e-9)  # angles of 20,000 days have 1e-12 of rounding


def test_a_gaussian_with_gaps_is_one_of_filled_values_times_a_categorical_one_of_the_gaps():
    values = np.random.default_rng(0).normal(size=40)
    values[::5] = np.nan
    X, encoding = encoded(pd.DataFrame({"x": values}))
    assert tuple(encoding.features) == ("x", "x missing")
    filled = np.where(np.isnan(values), np.nanmedian(values), values)[:, None]
    gaps = np.isnan(values)[:, None].astype(float)
    (K,) = GaussianFamily([0.8]).tile(X, X)
    oracle = GaussianFamily([0.8]).tile(filled, filled)[0] * CategoricalFamily([0.8]).tile(gaps, gaps)[0]
    np.testing.assert_allclose(K, oracle, rtol=1e-13)
    assert (K[::5, ::5] == 1.0).all()  # rows that both lack the value are alike, whatever it is


def test_a_gaussian_of_a_category_in_units_tells_rare_levels_further_apart():
    table = pd.DataFrame({"c": ["a"] * 50 + ["b"] * 30 + ["rare"] * 2})
    encoding = TableEncoding.of(table)
    X = encoding.encode(table)
    (K,) = GaussianFamily([0.5]).tile(X, X)
    shares = np.array([50, 30, 2]) / 82
    variances = shares * (1 - shares)
    squared = 1.0 / np.sqrt(variances.sum() * variances)  # of each indicator where it holds
    level = np.repeat([0, 1, 2], [50, 30, 2])
    apart = np.where(level[:, None] == level, 0.0, squared[level][:, None] + squared[level])
    np.testing.assert_allclose(K, np.exp(-0.5 * apart), rtol=1e-12)
    assert K[0, 81] < K[0, 50]
