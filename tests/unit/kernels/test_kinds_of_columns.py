"""Messy columns: what each is taken for, the same numbers as those of a clean column, and which cells are named."""

from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnkernels import KernelLearningRegressor
from learnkernels.kernels.tables import EncodingReport, TableEncoding, target_of
from learnkernels.kernels.tables.reading import number_in, read_columns
from tests.refusals import require_refusals

N = 120
RNG = np.random.default_rng(0)
NUMBERS = np.round(RNG.exponential(1500, N), 2)
DAYS = pd.date_range("2021-03-04 05:06:00", periods=N, freq="53h")


def european(value: float) -> str:
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def encoded(values: Any, said: Any = None, name: str = "x") -> tuple[TableEncoding, np.ndarray, EncodingReport]:
    """Return the encoding of a column beside one of numbers, the features and what was met."""
    table = pd.DataFrame({name: values, "beside": np.r_[0.5, RNG.normal(size=len(values) - 1)]})
    report = EncodingReport()
    encoding = TableEncoding.of(table, said)
    return encoding, encoding.encode(table, report)[:, :-1], report


def spoiled(values: Any, **cells: str) -> list[str]:
    """Return values as texts with other texts in some rows."""
    texts = [str(value) for value in values]
    for row, text in cells.items():
        texts[int(row[1:])] = text
    return texts


# Numbers -------------------------------------------------------------------------------------------------------------


WORDS = [(0.25, 1, True), (0.25, 2, True), (0.25, 3, False), (0.4, 1, False)]


@pytest.mark.parametrize(("share", "words", "is_number"), WORDS)
def test_one_or_two_words_among_many_numbers_stand_for_missing_values(share: float, words: int, is_number: bool):
    chosen = np.flatnonzero(np.arange(N) % 20 < 20 * share)
    texts = spoiled([f"{x} kg" for x in NUMBERS], **{f"r{row}": f"word {row % words}" for row in chosen})
    encoding, X, report = encoded(texts)
    assert encoding.columns[0].describe() == ("number (kg)" if is_number else "category of 31 and more levels")
    if is_number:
        assert report.unread["x"].rows == len(chosen)
        np.testing.assert_array_equal(X, encoded(pd.Series(NUMBERS).drop(chosen).reindex(range(N)).to_numpy())[1])


WRITTEN = [
    (lambda x: f"{x:.2f}".replace(".", ","), "number (decimal comma)"),
    (european, "number (decimal comma)"),
    (lambda x: european(x).replace(".", "\u202f"), "number (decimal comma)"),
    (lambda x: f"{x:,.2f}", "number"),
    (lambda x: f"{x:,.2f}".replace(",", "'"), "number"),
    (lambda x: f"${x:,.2f}", "number ($)"),
    (lambda x: f"{european(x)} \u20ac", "number (decimal comma, \u20ac)"),
    (lambda x: f"EUR {x:.2f}", "number (EUR)"),
    (lambda x: f"{x:.2f} kg", "number (kg)"),
    (lambda x: f"{x:.2f}mg/dL", "number (mg/dL)"),
    (lambda x: f"{x:.2f}%", "number (%)"),
    (lambda x: f" {x:.2f} ", "number"),
    (lambda x: f"+{x:.2f}", "number"),
    (lambda x: f"{x / 1000:.5f}k" if x > 500 else f"{x:.2f}", "number"),
    (lambda x: repr(float(x)), "number"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "described"), WRITTEN)
def test_numbers_as_people_write_them_are_those_numbers(written, described: str):
    encoding, X, report = encoded([written(x) for x in NUMBERS])
    assert encoding.columns[0].describe() == described
    np.testing.assert_array_equal(X, encoded(NUMBERS)[1])
    assert report == EncodingReport()
    again = TableEncoding.from_dict(encoding.to_dict())
    texts = again.decode(np.column_stack([X, np.zeros(N)]))["x"]  # an example of rows to predict
    assert again.columns[0].is_number == (described == "number")
    np.testing.assert_allclose(encoded(texts)[1], X, atol=1e-9)
    new = pd.DataFrame({"x": [written(20.63), "20.63" if "comma" not in described else "20,63"], "beside": 0.0})
    Z = again.encode(new)
    assert Z[0, 0] == Z[1, 0] == again.encode(pd.DataFrame({"x": [20.63], "beside": 0.0}))[0, 0]


def test_negative_numbers_of_accounts_are_negative():
    with_minus = [f"{1000 - x:.2f}".replace("-", "\u2212") for x in NUMBERS]
    with_minus_behind = [f"{abs(1000 - x):.2f}{'-' * bool(x > 1000)}" for x in NUMBERS]
    accounts = [f"({x - 1000:,.2f})" if x > 1000 else f"{1000 - x:,.2f}" for x in NUMBERS]
    for written in (accounts, with_minus, with_minus_behind):
        X = encoded(written)[1]
        np.testing.assert_allclose(X, encoded(np.round(1000 - NUMBERS, 2))[1], rtol=1e-12)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_what_programs_write_is_read_to_the_last_bit(value: float):
    assert number_in(repr(value), ".").value == value  # type: ignore[union-attr]
    assert number_in(repr(value).replace(".", ","), ",").value == value  # type: ignore[union-attr]


def test_codes_are_no_numbers():
    codes = ["1_0", "0x10", "1,2,3", "1.2.3", "v1", "2024-01-01", "12:30", "5-3", "1,23.4", "--5", "$5$", "\u0665"]
    for text in (*codes, "12 34", ""):
        assert number_in(text, ".") is number_in(text, ",") is None, text


UNREAD = [
    (spoiled(NUMBERS, r7="-"), ("-", 7, 1), None),
    (spoiled(NUMBERS, r7="see note", r9="broken"), ("see note", 7, 2), None),
    (spoiled([f"{x} kg" for x in NUMBERS], r3="155 lb"), ("155 lb", 3, 1), None),
    (spoiled(NUMBERS, r2="<0.5", r5="<0.5", r8="> 9000"), None, ("<0.5", 2, 3)),
    (spoiled(NUMBERS, r2="1_0"), ("1_0", 2, 1), None),
]  # fmt: skip


@pytest.mark.parametrize(("values", "unread", "limits"), UNREAD)
def test_a_few_other_cells_are_missing_and_named(values: list[str], unread: Any, limits: Any):
    encoding, X, report = encoded(values)
    assert encoding.columns[0].kind == "number"
    for found, expected in ((report.unread, unread), (report.limits, limits)):
        assert [(cells.value, cells.row, cells.rows) for cells in found.values()] == ([expected] if expected else [])
    assert X.shape[1] == (2 if unread else 1)
    if unread:
        assert X[unread[1], 1] == 1
        assert f"but {unread[0]!r} in row {unread[1]}" in report.sentences()[0]


TOKENS = ["#N/A", "NA", "n/a", "-NaN", "<NA>", "NULL", "(null)", "None", "?", "\\N", "#DIV/0!", "nan", "", "  ", " NA "]


@pytest.mark.parametrize("token", TOKENS)
def test_missing_values_are_the_same_in_features_and_targets_and_in_new_rows(token: str):
    values = spoiled(NUMBERS, r7=token, r30=token)
    encoding, X, report = encoded(values)
    assert (report.gaps, report.unread) == ({"x": 2}, {})
    np.testing.assert_array_equal(X, encoded(pd.Series(NUMBERS).mask(np.isin(np.arange(N), [7, 30])))[1])
    new = EncodingReport()
    encoding.encode(pd.DataFrame({"x": ["3", token], "beside": 0.0}), new)
    assert (new.gaps, new.unread) == ({"x": 1}, {})
    for of, kind in ((values, "f"), (spoiled(["yes", "no"] * 60, r7=token, r30=token), "O")):
        target = target_of(read_columns(pd.DataFrame({"y": of}))["y"], None, EncodingReport())
        assert target.dtype.kind == kind
        assert np.flatnonzero(pd.isna(target)).tolist() == [7, 30]


def test_whole_numbers_and_decimals_lose_nothing():
    users, beside = RNG.integers(0, 8, 300), RNG.normal(size=300)
    for of in (2**53 + users, np.uint64(2**63) + users.astype(np.uint64), (2**53 + users).astype(str)):
        for said in ({"u": "categorical"}, {}):
            encoding = TableEncoding.of(pd.DataFrame({"u": of, "b": beside}), said)
            assert encoding.columns[0].describe() == "category of 8 levels"
    gaps = pd.array([int(2**60 + i) if i % 7 else None for i in users], dtype="Int64")
    assert TableEncoding.of(pd.DataFrame({"u": gaps, "b": beside})).columns[0].describe().startswith("category of")
    exact = pa.array([Decimal(int(x * 100)) / 100 for x in NUMBERS], pa.decimal128(12, 2))
    table = pa.table({"x": exact, "beside": RNG.normal(size=N)})
    plain = table.set_column(0, "x", exact.cast(pa.float64()))
    np.testing.assert_array_equal(TableEncoding.of(table).encode(table), TableEncoding.of(plain).encode(plain))
    assert target_of(read_columns(table)["x"], None, EncodingReport()).dtype == np.float64


# Dates ---------------------------------------------------------------------------------------------------------------


FORMS = [
    *((form, "date (day first; ") for form in ("%d/%m/%y %H:%M", "%d.%m.%Y %H:%M")),
    ("%m/%d/%y %I:%M %p", "date (month first; "),
    *((f"%Y-%m-%d{time}", "date (t") for time in (" %H:%M:%S", " %H:%M:%S UTC", "T%H:%M:%SZ", " %H:%M:%S+00:00")),
    *((form, "date (t") for form in ("%Y/%m/%d %H:%M", "%d-%b-%Y %H:%M", "%d %B %Y %H:%M", "%b %d, %Y %I:%M %p")),
    *((form, "date (t") for form in ("%a, %d %b %Y %H:%M:%S GMT", "%Y%m%dT%H%M")),
]


@pytest.mark.parametrize(("form", "described"), FORMS)
def test_dates_in_common_forms_are_those_dates(form: str, described: str):
    encoding, X, _ = encoded(DAYS.strftime(form).tolist())
    assert encoding.columns[0].describe().startswith(described)
    np.testing.assert_array_equal(X, encoded(DAYS)[1])


@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M:%S", "%a, %d %b %Y %H:%M:%S "])
def test_a_time_with_an_offset_is_the_moment_in_utc(form: str):
    for zone, hours in (("+10:30", 10.5), ("-1130", -11.5)):
        local = (DAYS + pd.Timedelta(hours=hours)).strftime(form) + zone
        np.testing.assert_array_equal(encoded(local.tolist())[1], encoded(DAYS)[1])


def test_eight_digits_that_all_are_dates_are_these():
    for values in (DAYS.strftime("%Y%m%d"), DAYS.strftime("%Y%m%d").astype(int)):
        np.testing.assert_array_equal(encoded(values)[1], encoded(DAYS.normalize())[1])
    assert encoded(20_240_100 + np.arange(N))[0].columns[0].kind == "number"


@pytest.mark.parametrize("placeholder", ["0000-00-00", "9999-12-31", "0001-01-01 00:00:00"])
def test_what_stands_for_no_date_is_missing(placeholder: str):
    texts = spoiled(DAYS.strftime("%Y-%m-%d"), r3=placeholder, r50=placeholder)
    encoding, X, report = encoded(texts)
    assert encoding.columns[0].kind == "date"
    assert report.gaps == {"x": 2}
    dates = pd.Series(DAYS.normalize()).mask(np.isin(np.arange(N), [3, 50]))
    np.testing.assert_array_equal(X, encoded(dates)[1])
    stored = dates.astype("datetime64[us]").fillna(pd.Timestamp("9999-12-31").as_unit("us"))
    np.testing.assert_array_equal(X, encoded(stored)[1])


def test_a_cell_that_is_no_date_is_missing_and_named():
    encoding, _, report = encoded(spoiled(DAYS.strftime("%Y-%m-%d"), r5="2024-02-31"))
    assert encoding.columns[0].kind == "date"
    assert report.sentences() == ["column 'x' holds dates, but '2024-02-31' in row 5 (from 0); taken as missing"]


def test_times_of_day_go_round():
    for values in (DAYS.strftime("%H:%M:%S"), DAYS.strftime("%I:%M %p"), pd.Series(DAYS.time)):
        encoding, X, _ = encoded(values)
        assert encoding.columns[0].describe() == "time of day (time, day)"
        hours = DAYS.hour + DAYS.minute / 60
        np.testing.assert_allclose(X[:, 1], np.sin(2 * np.pi * hours / 24), atol=1e-12)


# Categories and identifiers ------------------------------------------------------------------------------------------


def test_what_a_table_says_is_categorical_is():
    doors = pd.DataFrame({"doors": RNG.choice(["2", "3", "4", "5more"], N)})
    assert TableEncoding.of(doors).columns[0].describe() == "category of 4 levels"
    codes = RNG.integers(100, 112, N)
    for frame in (
        pd.DataFrame({"x": pd.Categorical(codes)}),
        pd.DataFrame({"x": pd.Categorical(codes.astype(str))}),
        pl.DataFrame({"x": pl.Series(codes.astype(str)).cast(pl.Categorical)}),
        pa.table({"x": pa.array(codes).dictionary_encode()}),
    ):
        assert TableEncoding.of(frame).columns[0].describe() == "category of 12 levels"
    assert TableEncoding.of(pd.DataFrame({"h": ["1_0", "10"] * 60})).columns[0].describe() == "category of 2 levels"


LEFT_OUT = [
    ("id", np.arange(1000, 1000 + N), "it is a row index"),
    ("id", np.r_[1000, np.arange(1000, 1000 + N - 1)], "it is a row index"),
    ("customer_id", np.r_[np.nan, np.arange(1000, 1000 + N - 1)], "it is a row index"),
    ("", np.sort(RNG.choice(400, N, replace=False)), "it is a row index"),
    ("Unnamed: 0", np.sort(RNG.choice(400, N, replace=False)), "it is a row index"),
    ("x", RNG.permutation(N), "it is a row index"),
    ("x", 10**17 + RNG.permutation(N), "its whole numbers have more digits than a number keeps"),
    ("x", [f"{i:x}-{i * i:x}" for i in range(N)], "nearly all of its texts differ, as those of identifiers do"),
    ("x", [f"one of {i} long texts" for i in range(N)], "it is free text"),
    ("x", [b"bytes"] * N, "it holds lists, records or bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "values", "why"), LEFT_OUT)
def test_what_identifies_rows_is_left_out_with_a_word(name: str, values: Any, why: str):
    encoding = encoded(values, name=name)[0]
    assert encoding.left_out == {name: why}
    assert encoding.sentences() == [f"column {name!r} is left out, as {why}; say what it is with 'columns' to keep it"]


def test_other_whole_numbers_are_numbers():
    whole = [("id", RNG.integers(0, 40, N)), ("year", np.arange(1900, 1900 + N)), ("size", RNG.integers(0, 10**6, N))]
    for name, values in [*whole, ("id", NUMBERS)]:
        assert encoded(values, name=name)[0].columns[0].describe() == "number", name


# New rows ------------------------------------------------------------------------------------------------------------


def messy() -> pd.DataFrame:
    """One column of each kind, none of which lacks a value."""
    table = pd.DataFrame({"number": NUMBERS, "euro": [european(x) for x in NUMBERS], "day": DAYS})
    table = table.assign(hour=DAYS.strftime("%H:%M"), level=RNG.choice(list("abc"), N), truth=RNG.random(N) > 0.5)
    table["text day"] = DAYS.strftime("%d/%m/%y")
    table["many"] = [f"m{i}" for i in RNG.integers(0, 60, N)]
    return table.assign(order=pd.Categorical(RNG.choice(["low", "high"], N), ["low", "high"], ordered=True))


@pytest.mark.parametrize("gap", [None, np.nan, pd.NaT, pd.NA, ""])
def test_any_column_may_lack_all_values_in_new_rows(gap: Any):
    table = messy()
    encoding = TableEncoding.of(table)
    expected = None
    for kind in (object, None):
        report = EncodingReport()
        new = pd.DataFrame({name: pd.Series([gap] * 5, dtype=kind) for name in table})
        X = encoding.encode(new, report)
        assert report.gaps == dict.fromkeys(table, 5)
        expected = X if expected is None else expected
        np.testing.assert_array_equal(X, expected)


def test_a_column_of_digits_in_training_rows_takes_other_texts_as_missing_and_names_them():
    table = pd.DataFrame({"code": [str(i % 7) for i in range(N)], "x": NUMBERS})
    y = NUMBERS + np.arange(N) % 7
    model = KernelLearningRegressor().fit(table, y)
    new = table.assign(code=spoiled(table["code"], r11="A12"))
    with pytest.warns(UserWarning, match=r"'code' holds numbers, but 'A12' in row 11 \(from 0\); taken as missing"):
        predicted = model.predict(new)
    with_gap = new.assign(code=new["code"].replace("A12", None))
    np.testing.assert_array_equal(predicted, model.predict(with_gap))


def test_a_refusal_names_the_row_and_the_value():
    encoding = TableEncoding.of(messy())
    table = [
        ("number", [None, "-", None], "must hold numbers, as the training rows did, got text such as '-' in row 1"),
        ("day", ["x", "y", "z"], "must hold dates, as the training rows did, got text such as 'x' in row 0"),
        ("hour", [None, None, "noon"], "must hold times of day, .* such as 'noon' in row 2"),
        ("truth", [0.0, np.inf, 1.0], "must hold finite numbers or gaps, got infinity in 1 of 3 rows, .* in row 1"),
    ]
    given = ((messy()[:3].assign(**{name: values}), f"column '{name}' {said}") for name, values, said in table)
    require_refusals((partial(encoding.encode, rows), said) for rows, said in given)


# Targets -------------------------------------------------------------------------------------------------------------


TARGETS = [
    ([f"${x:,.2f}" for x in NUMBERS], None, NUMBERS),
    ([f"{x:.2f}".replace(".", ",") for x in NUMBERS], None, NUMBERS),
    (spoiled(NUMBERS, r4="-"), None, np.where(np.arange(N) == 4, np.nan, NUMBERS)),
    (["yes ", " no", "yes", "no"] * 30, None, np.array(["yes", "no"] * 60, dtype=object)),
    (["<=50K", ">50K"] * 60, None, np.array(["<=50K", ">50K"] * 60, dtype=object)),
    (["+", "-"] * 60, None, np.array(["+", "-"] * 60, dtype=object)),
    (["1", "2", "?"] * 40, "classification", np.array(["1", "2", None] * 40, dtype=object)),
]


@pytest.mark.parametrize(("values", "task", "expected"), TARGETS)
def test_targets_follow_the_rules_of_columns(values: list[str], task: Any, expected: np.ndarray):
    report = EncodingReport()
    found = target_of(read_columns(pd.DataFrame({"y": values}))["y"], task, report)
    np.testing.assert_array_equal(found, expected)
    assert len(report.unread) == ("-" in values and len(set(values)) > 2)
