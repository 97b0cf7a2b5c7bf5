"""Dates as people write them: which number is the day, what is read, and what is said where nothing decides."""

from datetime import datetime
from functools import reduce

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnkernels.kernels.column_encoding import EncodingReport, TableEncoding
from learnkernels.kernels.column_encoding.dates import (
    NUMERIC_DATE,
    day_places,
    first_of,
    moment_of,
)
from learnkernels.kernels.column_encoding.summary import added, summarize_table
from learnkernels.kernels.families import GaussianFamily
from tests.refusals import require_refusals
from tests.unit.kernels.test_serialization import reread

DAYS = pd.date_range("2024-01-27", periods=40, freq="9D")


def test_texts_in_an_order_that_a_column_decides_are_the_dates_they_stand_for():
    oracle = pd.DataFrame({"when": DAYS})
    expected = TableEncoding.of(oracle)
    for written in (
        "%d/%m/%Y",
        "%d.%m.%Y",
        "%d-%m-%Y",
        "%m/%d/%Y",
        "%m/%d/%Y %I:%M %p",
        "%d/%m/%Y %H:%M",
    ):
        table = pd.DataFrame({"when": DAYS.strftime(written)})
        encoding = TableEncoding.of(table)
        assert encoding.features == expected.features
        np.testing.assert_array_equal(encoding.encode(table), expected.encode(oracle))
        read = reread(encoding)
        # New rows are read in the order of the training rows, whatever they would
        # decide themselves, and ISO 8601 too.
        one, iso = (
            pd.DataFrame({"when": [text]})
            for text in (datetime(2024, 5, 4).strftime(written), "2024-05-04")
        )
        np.testing.assert_array_equal(read.encode(one), read.encode(iso))


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)), st.sampled_from("/.-"))
def test_both_orders_tell_the_same_day(moment: datetime, between: str):
    day, month = (
        moment.strftime(between.join(order))
        for order in (("%d", "%m", "%Y"), ("%m", "%d", "%Y"))
    )
    # Which are not filled with zeros everywhere
    if NUMERIC_DATE.fullmatch(day) is None or moment.year < 1000:
        return
    expected = np.datetime64(
        moment.replace(hour=0, minute=0, second=0, microsecond=0), "us"
    )
    assert (
        moment_of(day, "day")
        == moment_of(month, "month")
        == (expected, expected, False)
    )
    first = (
        "day"
        if moment.day > 12 or between == "."
        else "month"
        if moment.month > 12
        else None
    )
    assert first_of(day_places([day])) == first


def test_a_column_that_can_be_read_both_ways_is_left_out_unless_it_is_said_to_be_dates():
    days = [f"{1 + i % 12}/{1 + (5 * i) % 12}/2024" for i in range(12)]
    table = pd.DataFrame({"x": np.arange(12.0) ** 2, "when": days})
    encoding = TableEncoding.of(table)
    assert encoding.names == ("x",)
    assert encoding.left_out["when"].startswith(
        "its dates may begin with the day or with the month; say"
    )
    said = TableEncoding.of(table, {"when": "date"})
    (when,) = (column for column in said.columns if column.name == "when")
    assert when.describe().startswith("date (day first; ")
    dated = table.assign(when=pd.to_datetime(table["when"], format="%d/%m/%Y"))
    np.testing.assert_array_equal(
        said.encode(table), TableEncoding.of(dated).encode(dated)
    )


@pytest.mark.parametrize(
    ("first", "written"), [("month", "{}/{}/2024"), ("day", "{1}/{0}/2024")]
)
def test_the_order_of_most_dates_goes_before_that_of_one(first: str, written: str):
    pairs = [(1 + i % 12, 1 + 7 * i % 12) for i in range(100)]
    pairs[3] = 3, 15
    pairs[40] = 8, 31
    pairs[70] = 15, 3
    texts = [written.format(*pair) for pair in pairs]
    table = pd.DataFrame({"when": texts})
    encoding = TableEncoding.of(table)
    assert encoding.columns[0].describe().startswith(f"date ({first} first; ")
    blocks = (summarize_table(table[rows : rows + 30]) for rows in range(0, 100, 30))
    assert TableEncoding.of(reduce(added, blocks)) == encoding
    report = EncodingReport()
    encoding.encode(table, report)
    assert report.sentences() == [
        f"column 'when' holds dates with the {first} first, but {texts[70]!r} in row 70 (from 0); taken as "
        "missing"
    ]
    table = table.drop(40)
    with pytest.raises(ValueError, match="may begin with the day or with the month"):
        TableEncoding.of(table)


def test_what_new_rows_and_levels_cannot_be_is_refused():
    day_first, iso = (
        TableEncoding.of(pd.DataFrame({"when": days}))
        for days in (DAYS.strftime("%d/%m/%Y"), DAYS)
    )
    texts = ["none", "some", "all"] * 10
    levels, other = pd.DataFrame({"x": texts}), pd.DataFrame({"when": ["12/31/2024"]})
    table = [
        (
            lambda: day_first.encode(other),
            "column 'when' must hold dates with the day first, as the training rows",
        ),
        (
            lambda: iso.encode(other),
            "column 'when' must hold dates, as the training rows did, got text",
        ),
        (
            lambda: TableEncoding.of(levels, {"x": texts[:3]}),
            "'x' has the level 'none', which denotes",
        ),
    ]
    require_refusals(table)
    ordered = pd.Categorical(texts, categories=texts[:3], ordered=True)
    (column,) = TableEncoding.of(pd.DataFrame({"x": ordered})).columns
    assert column.levels == ("some", "all")  # where it is not said, the text is a gap
    assert column.has_gaps


def test_a_gaussian_of_sine_and_cosine_is_the_periodic_kernel():
    table = pd.DataFrame(
        {"when": DAYS + pd.to_timedelta(np.arange(len(DAYS)) % 24, unit="h")}
    )
    encoding = TableEncoding.of(table, scale="none")
    assert reread(encoding) == encoding
    X = encoding.encode(table)
    elapsed = (
        table["when"] - pd.Timestamp("1970-01-01")
    ).dt.total_seconds().to_numpy() / 86_400
    for cycle, days in (("year", 365.2425), ("day", 1.0)):
        parts = [
            list(encoding.features).index(f"when {wave} of {cycle}")
            for wave in ("sine", "cosine")
        ]
        (K,) = GaussianFamily([0.5]).tile(X[:, parts], X[:, parts])
        oracle = np.exp(
            -4 * 0.5 * np.sin(np.pi * (elapsed[:, None] - elapsed) / days) ** 2
        )
        # Angles of 20,000 days have 1e-12 of rounding
        np.testing.assert_allclose(K, oracle, rtol=1e-9)


@pytest.mark.parametrize("scale", ["none", "standard"])
def test_months_and_weekdays_have_an_indicator_each_also_before_1970(scale: str):
    days = pd.date_range("1966-12-30 13:00", periods=60, freq="37D")
    table = pd.DataFrame({"when": [*days, None]})
    encoding = TableEncoding.of(table, scale=scale)
    X = encoding.encode(table)
    features = list(encoding.features)
    for names, levels in ((days.day_name(), 7), (days.month_name(), 12)):
        # Variances of equally frequent indicators add up to 1 - 1 / levels, and each
        # has its share of that.
        height = 1.0 if scale == "none" else ((1 - 1 / levels) ** 2 / levels) ** -0.25
        places = [features.index(f"when={name}") for name in sorted(set(names))]
        np.testing.assert_allclose(
            X[:-1, places], height * pd.get_dummies(names).to_numpy(float), rtol=1e-12
        )
    trees, of_levels = encoding.for_trees(X)
    assert not of_levels.any()
    np.testing.assert_array_equal(trees[:-1, -1], days.day_of_week)
    np.testing.assert_array_equal(trees[:-1, -2], days.month - 1)
    assert np.isnan(trees[-1]).all()
