"""Messy columns: what each is taken for, the same numbers as those of a clean column, and which cells are named."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnkernels import KernelLearningClassifier, KernelLearningRegressor
from learnkernels.kernels.column_encoding import (
    EncodingReport,
    TableEncoding,
    target_of,
)
from learnkernels.kernels.column_encoding.quantities import number_in
from learnkernels.kernels.column_encoding.reading import read_columns
from learnkernels.kernels.exporting import numpy_model
from learnkernels.kernels.exporting.module_file import text_of_parts
from tests.refusals import refusal, require_refusals
from tests.unit.kernels.test_serialization import reread

N = 120
RNG = np.random.default_rng(0)
NUMBERS = np.round(RNG.exponential(1500, N), 2)
DAYS = pd.date_range("2021-03-04 05:06:00", periods=N, freq="53h")


def european(value: float) -> str:
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def encoded(
    values: Any, said: Any = None, name: str = "x"
) -> tuple[TableEncoding, np.ndarray, EncodingReport]:
    """Return the encoding of a column beside one of numbers, the features and what was met."""
    table = pd.DataFrame(
        {name: values, "beside": np.r_[0.5, RNG.normal(size=len(values) - 1)]}
    )
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
def test_one_or_two_words_among_many_numbers_stand_for_missing_values(
    share: float, words: int, is_number: bool
):
    chosen = np.flatnonzero(np.arange(N) % 20 < 20 * share)
    texts = spoiled(
        [f"{x} kg" for x in NUMBERS],
        **{f"r{row}": f"word {row % words}" for row in chosen},
    )
    encoding, X, report = encoded(texts)
    assert encoding.columns[0].describe() == (
        "number (kg)" if is_number else "category of 31 and more levels"
    )
    if is_number:
        assert report.unread["x"].rows == len(chosen)
        np.testing.assert_array_equal(
            X, encoded(pd.Series(NUMBERS).drop(chosen).reindex(range(N)).to_numpy())[1]
        )


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
    again = reread(encoding)
    # An example of rows to predict
    texts = again.decode(np.column_stack([X, np.zeros(N)]))["x"]
    assert again.columns[0].is_number == (described == "number")
    np.testing.assert_allclose(encoded(texts)[1], X, atol=1e-9)
    new = pd.DataFrame(
        {
            "x": [written(20.63), "20.63" if "comma" not in described else "20,63"],
            "beside": 0.0,
        }
    )
    Z = again.encode(new)
    assert (
        Z[0, 0]
        == Z[1, 0]
        == again.encode(pd.DataFrame({"x": [20.63], "beside": 0.0}))[0, 0]
    )


def test_negative_numbers_of_accounts_are_negative():
    with_minus = [f"{1000 - x:.2f}".replace("-", "\u2212") for x in NUMBERS]
    with_minus_behind = [f"{abs(1000 - x):.2f}{'-' * bool(x > 1000)}" for x in NUMBERS]
    accounts = [
        f"({x - 1000:,.2f})" if x > 1000 else f"{1000 - x:,.2f}" for x in NUMBERS
    ]
    for written in (accounts, with_minus, with_minus_behind):
        X = encoded(written)[1]
        np.testing.assert_allclose(
            X, encoded(np.round(1000 - NUMBERS, 2))[1], rtol=1e-12
        )


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_what_programs_write_is_read_to_the_last_bit(value: float):
    assert number_in(repr(value), ".").value == value  # type: ignore[union-attr]
    assert number_in(repr(value).replace(".", ","), ",").value == value  # type: ignore[union-attr]


def test_codes_are_no_numbers():
    codes = [
        "1_0",
        "0x10",
        "1,2,3",
        "1.2.3",
        "v1",
        "2024-01-01",
        "12:30",
        "5-3",
        "1,23.4",
        "--5",
        "$5$",
        "\u0665",
    ]
    for text in (*codes, "12 34", ""):
        assert number_in(text, ".") is number_in(text, ",") is None, text


UNREAD = [
    (spoiled(NUMBERS, r7="-"), ("-", 7, 1), None),
    (spoiled(NUMBERS, r7="see note", r9="broken"), ("see note", 7, 2), None),
    (spoiled([f"{x} kg" for x in NUMBERS], r3="155 widgets"), ("155 widgets", 3, 1), None),
    (spoiled(NUMBERS, r2="<0.5", r5="<0.5", r8="> 9000"), None, ("<0.5", 2, 3)),
    (spoiled(NUMBERS, r2="1_0"), ("1_0", 2, 1), None),
]  # fmt: skip


@pytest.mark.parametrize(("values", "unread", "limits"), UNREAD)
def test_a_few_other_cells_are_missing_and_named(
    values: list[str], unread: Any, limits: Any
):
    encoding, X, report = encoded(values)
    assert encoding.columns[0].kind == "number"
    for found, expected in ((report.unread, unread), (report.limits, limits)):
        assert [(cells.value, cells.row, cells.rows) for cells in found.values()] == (
            [expected] if expected else []
        )
    assert X.shape[1] == (2 if unread else 1)
    if unread:
        assert X[unread[1], 1] == 1
        assert f"but {unread[0]!r} in row {unread[1]}" in report.sentences()[0]


TOKENS = [
    "#N/A",
    "NA",
    "n/a",
    "-NaN",
    "<NA>",
    "NULL",
    "(null)",
    "None",
    "?",
    "\\N",
    "#DIV/0!",
    "nan",
    "",
    "  ",
    " NA ",
]


@pytest.mark.parametrize("token", TOKENS)
def test_missing_values_are_the_same_in_features_and_targets_and_in_new_rows(
    token: str,
):
    values = spoiled(NUMBERS, r7=token, r30=token)
    encoding, X, report = encoded(values)
    assert (report.gaps, report.unread) == ({"x": 2}, {})
    np.testing.assert_array_equal(
        X, encoded(pd.Series(NUMBERS).mask(np.isin(np.arange(N), [7, 30])))[1]
    )
    new = EncodingReport()
    encoding.encode(pd.DataFrame({"x": ["3", token], "beside": 0.0}), new)
    assert (new.gaps, new.unread) == ({"x": 1}, {})
    for of, kind in (
        (values, "f"),
        (spoiled(["yes", "no"] * 60, r7=token, r30=token), "O"),
    ):
        target = target_of(
            read_columns(pd.DataFrame({"y": of}))["y"],
            None,
            EncodingReport(),
            is_typed=False,
        )
        assert target.dtype.kind == kind
        assert np.flatnonzero(pd.isna(target)).tolist() == [7, 30]


def alternating(*forms: str) -> list[str]:
    """Numbers of which each row has another form; a form holds the factor of its unit."""
    texts = []
    for row, number in enumerate(NUMBERS):
        form, _, factor = forms[row % len(forms)].partition("|")
        texts.append(form.format(number / float(factor or 1)))
    return texts


UNITS = [
    (alternating("{:.6f} cm", "{:.8f} m|100"), "number (m)", 0.01),
    (alternating("{:.6f}cm", "{:.8f}m|100", "{:.8f} cm"), "number (cm)", 1.0),
    (
        alternating("{:.6f} KB", "{:.9f} MB|1000", "{:.3f} B|0.001", "{:.6f} kB"),
        "number (kB)",
        1.0,
    ),
    (
        alternating("{:.6f} kg", "{:.6f} lbs|0.45359237", "{:.6f} kilograms"),
        "number (kilograms)",
        1.0,
    ),
    (
        alternating("{:.6f} minutes", "{:.6f} h|60", "{:.6f} min"),
        "number (minutes)",
        1.0,
    ),
    (alternating("{:.6f} mW", "{:.9f} W|1000", "{:.6f}mW"), "number (mW)", 1.0),
    (alternating("{:.6f} €", "EUR {:.6f}", "{:.6f}€"), "number (€)", 1.0),
    (alternating("{:.15f}B|1e9", "{:.12f}M|1e6", "{:.2f}"), "number", 1.0),
    (alternating("{:.4f}° N|20", "{:.4f}°N|20", "N {:.4f}|20"), "number (°N)", 1 / 20),
    (alternating("{:.2f}", "{:.2f}", "{:.2f} USD"), "number (USD)", 1.0),
    (
        alternating("{:.6f}° N|100", "{:.6f}° S|-100", "{:.6f}°N|100"),
        "number (°N)",
        1 / 100,
    ),
    (alternating("{:.6f} °C", "{:.6f} °C"), "number (°C)", 1.0),
]


@pytest.mark.parametrize(
    ("texts", "described", "factor"), UNITS, ids=lambda value: str(value)[:24]
)
def test_numbers_in_several_units_of_one_quantity_are_converted(
    texts: list[str], described: str, factor: float
):
    encoding, X, report = encoded(texts)
    assert encoding.columns[0].describe() == described
    # Texts have six decimals or more
    np.testing.assert_allclose(X, encoded(NUMBERS * factor)[1], atol=1e-6)
    for sentence, cells in zip(
        report.sentences(), report.converted.values(), strict=True
    ):
        assert 0 < cells.rows < N
        assert sentence.endswith(
            f"converted to {described.removeprefix('number (').rstrip(')')}"
        )
    read = reread(encoding)
    np.testing.assert_array_equal(
        read.encode(pd.DataFrame({"x": texts, "beside": 0.5}))[:, 0], X[:, 0]
    )


def test_new_rows_in_another_unit_are_converted():
    encoding, X, _ = encoded([f"{number:.2f} kg" for number in NUMBERS])
    report = EncodingReport()
    new = pd.DataFrame(
        {"x": [f"{1000 * number:.0f} g" for number in NUMBERS], "beside": 0.0}
    )
    np.testing.assert_allclose(encoding.encode(new, report)[:, 0], X[:, 0], atol=1e-9)
    assert report.sentences()[0].endswith(
        "in row 0 (from 0) and 119 more rows; converted to kg"
    )


def test_fahrenheit_is_converted_with_its_offset():
    texts = [
        f"{t:.1f} °C" if row % 3 else f"{1.8 * t + 32:.2f} °F"
        for row, t in enumerate(NUMBERS / 100)
    ]
    np.testing.assert_allclose(
        encoded(texts)[1], encoded(np.round(NUMBERS / 100, 1))[1], atol=2e-2
    )


COUNTS = [
    alternating("{:.9f}m|1e6", "{:.6f}k|1e3"),
    alternating("{:.12f}b|1e9", "{:.9f} m|1e6", "{:.6f}K|1e3", "{:.3f}"),
    alternating("{:.9f} million|1e6", "{:.9f}m|1e6"),
    alternating("{:.12f}G|1e9", "{:.15f}T|1e12"),
    alternating("{:.12f}G|1e9", "{:.9f}M|1e6", "{:.15f}T|1e12", "{:.3f}"),
]


@pytest.mark.parametrize("texts", COUNTS, ids=lambda texts: f"{texts[0]}, {texts[1]}")
def test_letters_next_to_thousands_or_millions_multiply(texts: list[str]):
    encoding, X, report = encoded(texts)
    assert encoding.columns[0].describe() == "number (count)"
    np.testing.assert_allclose(X, encoded(NUMBERS)[1], atol=1e-6)
    assert report.sentences()[0].endswith("converted to count")
    again = reread(encoding)
    decoded = pd.DataFrame(again.decode(np.column_stack([X, np.zeros(N)])))
    np.testing.assert_allclose(again.encode(decoded)[:, :1], X, atol=1e-6)


PHYSICAL = [
    (alternating("{:.6f} m", "{:.3f} cm|0.01", "{:.6f}k|1000"), "number (m)"),
    (alternating("{:.6f} m", "{:.6f}m", "{:.8f}M|1e6"), "number (m)"),
    (alternating("{:.6f} Ω", "{:.9f}K|1e3", "{:.9f} kΩ|1e3"), "number (Ω)"),
    (
        alternating("{:.6f} mM", "{:.9f} M|1e3", "{:.6f}mM", "{:.6f} mmol/L"),
        "number (mM)",
    ),
    (
        alternating(
            "{:.6f} h", "{:.6f} h", "{:.6f}H 0M", "{:.6f}M 0s|0.0166666666666666667"
        ),
        "number (h)",
    ),
    (alternating("{:.6f} kg", "{:.9f} T|1e3", "{:.3f} G|1e-3"), "number (kg)"),
]


@pytest.mark.parametrize(("texts", "described"), PHYSICAL)
def test_letters_next_to_units_are_units_or_multiply(texts: list[str], described: str):
    encoding, X, report = encoded(texts)
    assert encoding.columns[0].describe() == described
    np.testing.assert_allclose(X, encoded(NUMBERS)[1], atol=1e-6)
    assert report.unread == {}


@pytest.mark.parametrize("unit", ["°C", "°F"])
def test_kelvins_are_converted_to_other_temperatures(unit: str):
    celsius = np.round(NUMBERS / 100, 2)
    degrees = celsius if unit == "°C" else 1.8 * celsius + 32
    texts = [
        f"{degrees[row]:.3f} {unit}" if row % 3 else f"{celsius[row] + 273.15:.2f} K"
        for row in range(N)
    ]
    np.testing.assert_allclose(encoded(texts)[1], encoded(celsius)[1], atol=1e-9)


DIRECTIONS = [
    ("°W", "", "°E", -1, -1),
    ("°S", "", "°N", -1, -1),
    ("° O", "° W", "°O", 1, -1),
    ("° W", "° O", "°O", -1, 1),
    ("° O", "° E", "°E", -1, 1),
    ("° O", "", "°O", 1, 1),
]


@pytest.mark.parametrize(("first", "second", "main", "sign", "other"), DIRECTIONS)
def test_coordinates_are_positive_in_north_and_east(
    first: str, second: str, main: str, sign: int, other: int
):
    angles = np.round(NUMBERS / 100, 4)
    second_angles = angles if second else other * angles
    texts = [
        f"{angles[row]}{first}" if row % 4 else f"{second_angles[row]}{second}"
        for row in range(N)
    ]
    signed = np.where(np.arange(N) % 4 > 0, sign * angles, other * angles)
    encoding, X, report = encoded(texts)
    assert encoding.columns[0].describe() == f"number ({main})"
    np.testing.assert_allclose(X, encoded(signed)[1], atol=1e-9)
    assert report.unread == {}


def test_a_percentage_next_to_fractions_is_a_fraction():
    shares = np.round(NUMBERS / NUMBERS.max(), 4)
    encoding, X, report = encoded(spoiled(shares, r7="5%"))
    assert encoding.columns[0].describe() == "number (fraction)"
    shares[7] = 0.05
    np.testing.assert_allclose(X, encoded(shares)[1], atol=1e-12)
    assert report.sentences() == [
        "column 'x' holds '5%' in row 7 (from 0); converted to fraction"
    ]
    for texts in (spoiled(NUMBERS, r7="5%"), spoiled(shares, r7="0.5%")):
        assert encoded(texts)[0].columns[0].describe() == "number (%)"


def test_whole_meters_next_to_thousands_are_distances():
    meters = 50 + np.arange(N) % 1500
    thousands = 5 + np.arange(N) % 38
    is_short = np.arange(N) % 2 == 0
    texts = [
        f"{short}m" if is_m else f"{long}k"
        for short, long, is_m in zip(meters, thousands, is_short, strict=True)
    ]
    encoding, X, _ = encoded(texts)
    assert encoding.columns[0].describe() == "number (m)"
    expected = np.where(is_short, meters, 1000 * thousands)
    np.testing.assert_array_equal(X, encoded(expected)[1])


SECONDS = np.round(RNG.uniform(0, 200_000, N))


def on_a_clock(seconds: float) -> str:
    return f"{seconds // 3600:.0f}:{seconds // 60 % 60:02.0f}:{seconds % 60:02.0f}"


DURATIONS = [
    [on_a_clock(seconds) for seconds in SECONDS],
    [str(pd.Timedelta(seconds=seconds)) for seconds in SECONDS],
    [
        f"{seconds // 86400:.0f} day, {on_a_clock(seconds % 86400)}"
        for seconds in SECONDS
    ],
    [pd.Timedelta(seconds=seconds).isoformat() for seconds in SECONDS],
    [
        f"{seconds // 3600:.0f}h{seconds // 60 % 60:02.0f}:{seconds % 60:02.0f}"
        for seconds in SECONDS
    ],
    [
        f"{seconds // 3600:.0f}h {seconds // 60 % 60:.0f}m {seconds % 60:.0f}s"
        for seconds in SECONDS
    ],
    pd.to_timedelta(SECONDS, unit="s"),
]


NEGATIVE = [
    [str(pd.Timedelta(seconds=seconds)) for seconds in SECONDS - 100_000],
    [str(timedelta(seconds=seconds)) for seconds in SECONDS - 100_000],
    [
        f"{'-' * bool(seconds < 0)}{on_a_clock(abs(seconds))}"
        for seconds in SECONDS - 100_000
    ],
]


@pytest.mark.parametrize(
    "values", [*DURATIONS, *NEGATIVE], ids=lambda values: str(values[0])
)
def test_durations_are_numbers(values: Any):
    encoding, X, report = encoded(values)
    assert encoding.columns[0].kind == "number"
    np.testing.assert_allclose(X, encoded(SECONDS)[1], rtol=1e-9, atol=1e-12)
    assert report.unread == {}


def test_durations_of_two_parts_next_to_three_are_minutes():
    seconds = np.round(np.random.default_rng(1).uniform(24 * 60, 90 * 60, N))
    texts = [
        on_a_clock(total) if total >= 3600 else f"{total // 60:.0f}:{total % 60:02.0f}"
        for total in seconds
    ]
    encoding, X, report = encoded(texts)
    np.testing.assert_allclose(X, encoded(seconds)[1], atol=1e-9)
    assert report.sentences()[0].endswith("converted to min-s")
    decoded = pd.DataFrame(encoding.decode(np.column_stack([X, np.zeros(N)])))
    np.testing.assert_allclose(encoding.encode(decoded)[:, :1], X, atol=1e-9)


def test_durations_of_hours_and_minutes_stay_hours():
    minutes = np.round(np.random.default_rng(1).uniform(0, 90 * 60, N))
    texts = [
        f"{total // 60:.0f}:{total % 60:02.0f}{':00' * (row % 3 == 0)}"
        for row, total in enumerate(minutes)
    ]
    encoding, X, report = encoded(texts)
    assert encoding.columns[0].describe() == "number (s)"
    np.testing.assert_allclose(X, encoded(60 * minutes)[1], atol=1e-9)
    assert report.sentences() == []


def test_sums_of_parts_and_angles_are_numbers():
    inches = RNG.integers(55, 80, N)
    for form in ("{} ft {} in", "{}'{}\"", "{}ft, {}in"):
        texts = [form.format(*divmod(total, 12)) for total in inches.tolist()]
        np.testing.assert_allclose(encoded(texts)[1], encoded(inches)[1], atol=1e-9)
    seconds = RNG.integers(0, 180 * 3600, N)
    parts = [
        (total // 3600, total // 60 % 60, total % 60) for total in seconds.tolist()
    ]
    texts = ["{}°{:02d}'{:02d}\" E".format(*part) for part in parts]
    np.testing.assert_allclose(encoded(texts)[1], encoded(seconds)[1], atol=1e-9)


SEVERAL = [
    (
        [f"{'$€£'[row % 3]}{number:.2f}" for row, number in enumerate(NUMBERS)],
        "$ in 40 rows, £ in 40 rows, € in 40 rows",
    ),
    (
        [
            f"{number:.2f} {('CHF', 'USD')[row % 2]}"
            for row, number in enumerate(NUMBERS)
        ],
        "CHF in 60 rows, USD in 60",
    ),
    (
        [f"{number:.2f} {('kg', 'L')[row % 2]}" for row, number in enumerate(NUMBERS)],
        "L in 60 rows, kg in 60 rows",
    ),
    (
        [
            f"{number:.2f} {('bags', 'boxes')[row % 2]}"
            for row, number in enumerate(NUMBERS)
        ],
        "bags in 60 rows",
    ),
    (
        [f"{row % 40} {('kg', 'L', 'kg')[row % 3]}" for row in range(N)],
        "kg in 80 rows, L in 40 rows",
    ),
]


@pytest.mark.parametrize(("texts", "units"), SEVERAL)
def test_numbers_in_several_units_are_named_and_no_identifiers(
    texts: list[str], units: str
):
    encoding = encoded(texts)[0]
    assert encoding.left_out["x"].startswith(
        f"it holds numbers in several units ({units}"
    )
    assert (
        "; write one unit, or the unit as a column of its own"
        in encoding.sentences()[0]
    )


def test_few_amounts_with_units_are_levels():
    doses = ["5 mg", "10 ml", "2 tablets", "1 bag"]
    assert (
        encoded([doses[row % 4] for row in range(N)])[0].columns[0].describe()
        == "category of 4 levels"
    )
    seats = [f"{row % 16}{'ABCDEF'[row % 6]}" for row in range(N)]
    assert encoded(seats)[0].columns[0].describe() == "category of 31 and more levels"


@pytest.mark.parametrize(
    "form",
    [
        *(
            "{:.4f}, {:.4f}",
            "({:.4f} {:.4f})",
            "{:.0f}/{:.0f}",
            "{:.1f} x {:.1f}",
            "{:.2f};{:.2f}",
        ),
        *("{:.0f} x {:.0f} cm", "{:.1f} °C / {:.1f} °F", "POINT ({:.4f} {:.4f})"),
    ],
)
def test_several_numbers_in_one_cell_are_said(form: str):
    texts = [form.format(number, 0.31 * number) for number in NUMBERS]
    assert encoded(texts)[0].left_out == {
        "x": "it holds several numbers in one cell; write one column for each"
    }


CODES = [
    [f"{row % 25:03d}" for row in range(N)],
    [f"{(37 * row) % 90 + 5:05d}" for row in range(N)],
    [("01234", "10001", "00077", "99999")[row % 4] for row in range(N)],
    [
        f"{1000 + row % 50}" if row else "0077" for row in range(N)
    ],  # one in a hundred, of equally many digits
]


@pytest.mark.parametrize("texts", CODES, ids=lambda texts: texts[0])
def test_codes_with_leading_zeros_are_categories(texts: list[str]):
    encoding = encoded(texts)[0]
    (column, _) = encoding.columns
    assert column.describe().startswith("category of")
    assert encoded(texts, {"x": "number"})[0].columns[0].describe() == "number"
    # As a spreadsheet reads them
    as_numbers = pd.DataFrame({"x": [float(text) for text in texts], "beside": 0.5})
    as_texts = pd.DataFrame({"x": texts, "beside": 0.5})
    np.testing.assert_array_equal(
        encoding.encode(as_numbers), encoding.encode(as_texts)
    )


def test_codes_of_several_widths_with_leading_zeros_are_categories():
    (column, _) = encoded([f"0{row % 25}" for row in range(N)])[0].columns
    assert column.describe() == "category of 25 levels"


def test_a_leading_zero_in_one_of_many_numbers_is_a_number():
    values = spoiled(np.round(NUMBERS), r7="007.0", r9="042")
    assert (
        encoded([value.removesuffix(".0") for value in values])[0].columns[0].describe()
        == "number"
    )


def test_whole_numbers_and_decimals_lose_nothing():
    users, beside = RNG.integers(0, 8, 300), RNG.normal(size=300)
    for of in (
        2**53 + users,
        np.uint64(2**63) + users.astype(np.uint64),
        (2**53 + users).astype(str),
    ):
        for said in ({"u": "categorical"}, {}):
            encoding = TableEncoding.of(pd.DataFrame({"u": of, "b": beside}), said)
            assert encoding.columns[0].describe() == "category of 8 levels"
    gaps = pd.array([int(2**60 + i) if i % 7 else None for i in users], dtype="Int64")
    assert (
        TableEncoding.of(pd.DataFrame({"u": gaps, "b": beside}))
        .columns[0]
        .describe()
        .startswith("category of")
    )
    exact = pa.array(
        [Decimal(int(x * 100)) / 100 for x in NUMBERS], pa.decimal128(12, 2)
    )
    table = pa.table({"x": exact, "beside": RNG.normal(size=N)})
    plain = table.set_column(0, "x", exact.cast(pa.float64()))
    np.testing.assert_array_equal(
        TableEncoding.of(table).encode(table), TableEncoding.of(plain).encode(plain)
    )
    assert (
        target_of(read_columns(table)["x"], None, EncodingReport()).dtype == np.float64
    )


# Dates ---------------------------------------------------------------------------------------------------------------


FORMS = [
    *((form, "date (day first; ") for form in ("%d/%m/%y %H:%M", "%d.%m.%Y %H:%M")),
    ("%m/%d/%y %I:%M %p", "date (month first; "),
    *(
        (f"%Y-%m-%d{time}", "date (t")
        for time in (" %H:%M:%S", " %H:%M:%S UTC", "T%H:%M:%SZ", " %H:%M:%S+00:00")
    ),
    *(
        (form, "date (t")
        for form in (
            "%Y/%m/%d %H:%M",
            "%d-%b-%Y %H:%M",
            "%d %B %Y %H:%M",
            "%b %d, %Y %I:%M %p",
        )
    ),
    *((form, "date (t") for form in ("%a, %d %b %Y %H:%M:%S GMT", "%Y%m%dT%H%M")),
]


@pytest.mark.parametrize(("form", "described"), FORMS)
def test_dates_in_common_forms_are_those_dates(form: str, described: str):
    encoding, X, _ = encoded(DAYS.strftime(form).tolist())
    assert encoding.columns[0].describe().startswith(described)
    np.testing.assert_array_equal(X, encoded(DAYS)[1])


@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M:%S", "%a, %d %b %Y %H:%M:%S "])
def test_a_time_with_an_offset_is_the_moment_in_utc_and_the_hour_of_the_text(form: str):
    for zone, hours in (("+10:30", 10.5), ("-1130", -11.5)):
        local = DAYS + pd.Timedelta(hours=hours)
        X = encoded((local.strftime(form) + zone).tolist())[1]
        np.testing.assert_array_equal(X[:, 0], encoded(DAYS)[1][:, 0])
        np.testing.assert_array_equal(X[:, 1:], encoded(local)[1][:, 1:])


ZONES = [
    "America/New_York",
    "Europe/Berlin",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "UTC",
    "UTC-05:00",
]


def in_pandas(moments: pd.DatetimeIndex) -> pd.DataFrame:
    return pd.DataFrame({"x": moments})


def in_arrow(moments: pd.DatetimeIndex) -> pa.Table:
    zone = str(moments.tz).removeprefix("UTC") or "UTC"
    return pa.table(
        {
            "x": pa.array(moments.tz_convert(None).to_numpy()).cast(
                pa.timestamp("us", zone)
            )
        }
    )


@pytest.mark.parametrize("library", [in_pandas, in_arrow])
@pytest.mark.parametrize("zone", ZONES)
def test_hour_weekday_and_month_are_those_of_the_time_zone(zone: str, library: Any):
    instants = pd.date_range("2024-01-01 00:30", periods=400, freq="22h").tz_localize(
        "UTC"
    )
    zoned = instants.tz_convert(zone)
    table = library(zoned)
    encoding = TableEncoding.of(table)
    X = encoding.encode(table)
    local = in_pandas(zoned.tz_localize(None))
    np.testing.assert_array_equal(
        X[:, 1:], TableEncoding.of(local).encode(local)[:, 1:]
    )
    utc = in_pandas(instants.tz_localize(None))
    np.testing.assert_array_equal(X[:, 0], TableEncoding.of(utc).encode(utc)[:, 0])
    read = reread(encoding)
    texts = pd.DataFrame({"x": zoned.map(lambda moment: moment.isoformat())})
    for new in (
        texts,
        in_pandas(instants),
        in_arrow(instants.tz_convert("Asia/Tokyo")),
    ):
        np.testing.assert_array_equal(read.encode(new), X)
    # An hour of the autumn comes twice
    once = ~zoned.tz_localize(None).duplicated(keep=False)
    np.testing.assert_allclose(read.encode(local)[once], X[once], atol=1e-12)
    rows = pd.DataFrame(read.decode(X))  # an example of rows to predict
    np.testing.assert_allclose(read.encode(rows)[:, 0], X[:, 0], atol=1e-9)


@pytest.mark.parametrize("library", [in_pandas, in_arrow])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_rows_in_another_time_zone_may_lack_dates(zone: str, library: Any):
    moments = pd.date_range(
        "2024-01-01 00:30", periods=60, freq="22h", tz="Europe/Berlin"
    )
    encoding = TableEncoding.of(in_pandas(moments))
    rows = moments[:3].insert(1, pd.NaT)
    np.testing.assert_array_equal(
        encoding.encode(library(rows.tz_convert(zone))),
        encoding.encode(in_pandas(rows)),
    )


def test_an_unknown_time_zone_is_refused_where_rows_must_be_converted():
    encoding = TableEncoding.of(in_pandas(DAYS.tz_localize("Europe/Berlin")))
    encode = replace(
        encoding, columns=(replace(encoding.columns[0], zone="Mars/Olympus"),)
    ).encode
    said = "the time zone 'Mars/Olympus' is not known on this computer; install the package tzdata"
    require_refusals([(partial(encode, in_pandas(DAYS)), said)])


def test_eight_digits_that_all_are_dates_are_these():
    for values in (DAYS.strftime("%Y%m%d"), DAYS.strftime("%Y%m%d").astype(int)):
        np.testing.assert_array_equal(encoded(values)[1], encoded(DAYS.normalize())[1])
    assert encoded(20_240_100 + np.arange(N))[0].columns[0].kind == "number"


@pytest.mark.parametrize(
    "placeholder", ["0000-00-00", "9999-12-31", "0001-01-01 00:00:00"]
)
def test_what_stands_for_no_date_is_missing(placeholder: str):
    texts = spoiled(DAYS.strftime("%Y-%m-%d"), r3=placeholder, r50=placeholder)
    encoding, X, report = encoded(texts)
    assert encoding.columns[0].kind == "date"
    assert report.gaps == {"x": 2}
    dates = pd.Series(DAYS.normalize()).mask(np.isin(np.arange(N), [3, 50]))
    np.testing.assert_array_equal(X, encoded(dates)[1])
    stored = dates.astype("datetime64[us]").fillna(
        pd.Timestamp("9999-12-31").as_unit("us")
    )
    np.testing.assert_array_equal(X, encoded(stored)[1])


@pytest.mark.parametrize("kind", [str, int])
@pytest.mark.parametrize("placeholder", ["00000000", "00010101", "99991231"])
def test_digits_that_stand_for_no_date_are_missing(placeholder: str, kind: type):
    is_missing = np.arange(N) % 2 == 0
    dates = pd.Series(DAYS.normalize())
    digits = dates.dt.strftime("%Y%m%d").mask(is_missing, placeholder).astype(kind)
    encoding, X, report = encoded(digits)
    np.testing.assert_array_equal(X, encoded(dates.mask(is_missing))[1])
    assert report.sentences() == []
    assert report.gaps == {"x": is_missing.sum()}
    new, blank = (
        pd.DataFrame({"x": [cell] * 3, "beside": 0.5})
        for cell in (kind(placeholder), None)
    )
    np.testing.assert_array_equal(encoding.encode(new), encoding.encode(blank))
    assert encoding.gaps(new).all()


def test_a_cell_that_is_no_date_is_missing_and_named():
    encoding, _, report = encoded(spoiled(DAYS.strftime("%Y-%m-%d"), r5="2024-02-31"))
    assert encoding.columns[0].kind == "date"
    assert report.sentences() == [
        "column 'x' holds dates, but '2024-02-31' in row 5 (from 0); taken as missing"
    ]


@pytest.mark.parametrize("cell", ["99991231", "0", 0, 99_991_231])
def test_digits_are_no_times_of_day(cell: Any):
    encoding, _, report = encoded(spoiled(DAYS.strftime("%I:%M %p"), r5=str(cell)))
    assert encoding.columns[0].describe() == "time of day (time, day)"
    assert f"but '{cell}' in row 5" in report.sentences()[0]
    noon = TableEncoding.of(pd.DataFrame({"x": DAYS.strftime("%H:%M")}))
    assert "must hold times of day" in refusal(noon.encode, pd.DataFrame({"x": [cell]}))
    parts = numpy_model.read_parts(text_of_parts({"table": noon}))
    (read,) = parts.table.columns
    (column,) = numpy_model.columns_of_rows({"x": [cell]}, [read])
    assert "'x' must hold" in refusal(numpy_model.encode_column, read, column)


def test_times_of_day_go_round():
    for values in (
        DAYS.strftime("%H:%M:%S"),
        DAYS.strftime("%I:%M %p"),
        pd.Series(DAYS.time),
    ):
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
    assert (
        TableEncoding.of(pd.DataFrame({"h": ["1_0", "10"] * 60})).columns[0].describe()
        == "category of 2 levels"
    )


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
    remedy = "say what it is with 'columns' to keep it"
    if why == "it is free text":
        remedy = f'set columns={{"{name}": "text"}} to learn from it'
    assert encoding.sentences() == [f"column {name!r} is left out, as {why}; {remedy}"]


NAMES = {
    "amount_paid": False,
    "bid": False,
    "Grid": False,
    "COVID": False,
    "customer_id": True,
    "PassengerId": True,
    "orderID": True,
    "ID": True,
}


@pytest.mark.parametrize(("name", "is_index"), NAMES.items())
def test_only_names_with_id_as_a_word_are_those_of_row_indexes(name, is_index):
    values = np.random.default_rng(0).choice(10_000, N, replace=False)
    assert bool(encoded(values, name=name)[0].left_out) == is_index


def prose(row: int) -> str:
    words = ("steel", "small", "late", "broken", "box", "order", "fine", "again")
    return " ".join(
        words[int(digit, 8)] for digit in np.base_repr(8**9 + 7919 * row**2, 8)
    )


FREE_TEXTS = [
    [
        prose(row) if row % 3 else "no comment was given by the customer"
        for row in range(N)
    ],
    [
        prose(row)
        if row % 3
        else ("none given", "see the attached file", "n/a yet")[row % 9 // 3]
        for row in range(N)
    ],
    [prose(row // 2) for row in range(N)],  # each twice
    [" ".join(prose(row // 2).split()[:8]) for row in range(N)],  # the shortest
    [prose(row // 3) if row % 4 else "nothing" for row in range(N)],
]


@pytest.mark.parametrize("texts", FREE_TEXTS)
def test_free_text_with_placeholders_or_repeated_texts_is_free_text(texts: list[str]):
    assert encoded(texts)[0].left_out == {"x": "it is free text"}


def test_long_names_of_levels_are_levels():
    names = [
        f"bachelor of science in subject number {row % 40}" for row in range(4 * N)
    ]
    assert encoded(names)[0].columns[0].describe() == "category of 31 and more levels"


@pytest.mark.parametrize(
    "cell",
    [np.array, list, tuple, set, pd.Series, lambda values: dict(enumerate(values))],
)
def test_cells_that_hold_several_values_are_left_out(cell: Any):
    cells = pd.Series(
        [cell(row) for row in RNG.normal(size=(N, 3)).tolist()], dtype=object
    )
    for values in (cells, cells.where(np.arange(N) % 5 > 0, None)):
        assert encoded(values)[0].left_out == {"x": "it holds lists, records or bytes"}


def test_an_enum_of_polars_is_nominal_unless_an_order_is_said(tmp_path: Path):
    levels = ["low", "mid", "high"]
    frame = pl.DataFrame(
        {"x": pl.Series([levels[row % 3] for row in range(N)], dtype=pl.Enum(levels))}
    )
    frame = frame.with_columns(beside=pl.Series(RNG.normal(size=N)))
    frame.write_parquet(tmp_path / "t.parquet")
    frame.write_ipc(tmp_path / "t.arrow")
    tables = [frame, frame.to_arrow(), pa.parquet.read_table(tmp_path / "t.parquet")]
    with pa.ipc.open_file(tmp_path / "t.arrow") as file:
        tables.append(file.read_all())
    for table in tables:
        assert TableEncoding.of(table).columns[0].describe() == "category of 3 levels"
        assert (
            TableEncoding.of(table, {"x": levels}).columns[0].describe()
            == "order of 3 levels"
        )
    ordered = pa.DictionaryArray.from_arrays(
        pa.array(np.arange(N) % 3), levels, ordered=True
    )
    assert (
        TableEncoding.of(pa.table({"x": ordered})).columns[0].describe()
        == "order of 3 levels"
    )


def test_other_whole_numbers_are_numbers():
    whole = [
        ("id", RNG.integers(0, 40, N)),
        ("year", np.arange(1900, 1900 + N)),
        ("size", RNG.integers(0, 10**6, N)),
    ]
    for name, values in [*whole, ("id", NUMBERS)]:
        assert encoded(values, name=name)[0].columns[0].describe() == "number", name


# New rows ------------------------------------------------------------------------------------------------------------


def messy() -> pd.DataFrame:
    """One column of each kind, none of which lacks a value."""
    table = pd.DataFrame(
        {"number": NUMBERS, "euro": [european(x) for x in NUMBERS], "day": DAYS}
    )
    table = table.assign(
        hour=DAYS.strftime("%H:%M"),
        level=RNG.choice(list("abc"), N),
        truth=RNG.random(N) > 0.5,
    )
    table["text day"] = DAYS.strftime("%d/%m/%y")
    table["many"] = [f"m{i}" for i in RNG.integers(0, 60, N)]
    return table.assign(
        order=pd.Categorical(
            RNG.choice(["low", "high"], N), ["low", "high"], ordered=True
        )
    )


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
    with pytest.warns(
        UserWarning,
        match=r"'code' holds numbers, but 'A12' in row 11 \(from 0\); taken as missing",
    ):
        predicted = model.predict(new)
    with_gap = new.assign(code=new["code"].replace("A12", None))
    np.testing.assert_array_equal(predicted, model.predict(with_gap))


def test_a_refusal_names_the_row_and_the_value():
    encoding = TableEncoding.of(messy())
    table = [
        (
            "number",
            [None, "-", None],
            "must hold numbers, as the training rows did, got text such as '-' in row 1 "
            r"\(the first is row 0\); convert it, or leave it empty",
        ),
        (
            "day",
            ["x", "y", "z"],
            "must hold dates, as the training rows did, got text such as 'x' in row 0",
        ),
        (
            "hour",
            [None, None, "noon"],
            "must hold times of day, .* such as 'noon' in row 2",
        ),
        (
            "truth",
            [0.0, np.inf, 1.0],
            "must hold finite numbers or gaps, got infinity in 1 of 3 rows, .* in row 1",
        ),
    ]
    given = (
        (messy()[:3].assign(**{name: values}), f"column '{name}' {said}")
        for name, values, said in table
    )
    require_refusals((partial(encoding.encode, rows), said) for rows, said in given)


UNREADABLE = {
    "numbers": NUMBERS,
    "numbers with a unit": [f"{number} kg" for number in NUMBERS],
    "dates": DAYS.strftime("%Y-%m-%d"),
    "dates of digits": DAYS.strftime("%Y%m%d"),
    "times": DAYS.strftime("%H:%M"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_texts_that_were_missing_in_training_are_missing_in_a_new_row(kind: str):
    texts = spoiled(UNREADABLE[kind], r7="unknown", r9="2024-13")
    encoding, _, _ = encoded(texts)
    for rows in (pd.DataFrame({"x": texts, "beside": 0.5}), new_row(None)):
        encoding = reread(encoding.learned_on(rows, "standard"))
    for text in ("unknown", " 2024-13 "):
        report = EncodingReport(is_of_blocks=True)
        X = encoding.encode(new_row(text), report)
        report.require_read()
        np.testing.assert_array_equal(X, encoding.encode(new_row(None)))
        assert report.unread["x"].value == text.strip()
        encoding.encode(new_row(text))
    assert "must hold" in refusal(encoding.encode, new_row("another"))
    assert "must hold" in refusal(encoding.encode, new_row([1]))


def new_row(cell: Any) -> pd.DataFrame:
    return pd.DataFrame({"x": [cell], "beside": 0.5})


def test_only_the_most_frequent_missing_texts_are_kept():
    words = [f"word {number}" for number in range(40)]
    texts = [*words, *words[8:], *map(str, range(2000))]
    for cells in (texts, texts[::-1]):
        encoding: Any = encoded(cells)[0].columns[0]
        assert encoding.kind == "number"
        assert encoding.unreadable == tuple(sorted(words[8:]))


@pytest.mark.parametrize("cell", [b"a", ["a"], {"a": 1}])
@pytest.mark.parametrize("name", ["level", "many", "order"])
def test_lists_records_and_bytes_are_no_categories(name: str, cell: Any):
    encoding = TableEncoding.of(messy())
    expected = {"order": "ordered levels"}.get(name, "categories")
    new = messy()[:3].drop(columns=name)
    of_pandas = new.assign(**{name: pd.Series([cell] * 3)})
    of_arrow = pa.Table.from_pandas(new).append_column(name, pa.array([cell] * 3))
    for table in (of_pandas, of_arrow):
        for report in (EncodingReport(), EncodingReport(is_of_blocks=True)):
            said = refusal(encoding.encode, table, report)
            assert f"column '{name}' must hold {expected}, as the training" in said
            assert "got lists, records or bytes; convert it" in said


@pytest.mark.parametrize(
    "said", [None, {"account": "categorical"}, {"account": "code"}]
)
@pytest.mark.parametrize("is_text", [False, True])
def test_floats_that_rounded_long_integers_are_refused(said: Any, is_text: bool):
    accounts = 2**53 + np.arange(N) % 5
    cells = accounts.astype(str) if is_text else accounts
    encoding = TableEncoding.of(pd.DataFrame({"account": cells, "x": NUMBERS}), said)
    rounded = pd.DataFrame({"account": [None, 2**53 + 1.0], "x": 1.0})
    message = refusal(encoding.encode, rounded, EncodingReport(first=10))
    assert "'account' must hold all digits of its integers" in message
    assert "got the float 9007199254740992 in row 11 (the first is row 0)" in message
    exact = [[None, str(2**53 + 1)], pd.array([None, 2**53 + 1], dtype="Int64")]
    first, second = (encoding.encode(rounded.assign(account=of)) for of in exact)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("levels", [["York", "Bath"], ["007", "012"]])
def test_large_floats_are_new_levels_of_short_categories(levels: list[str]):
    table = pd.DataFrame({"level": levels * 60, "x": NUMBERS})
    report = EncodingReport()
    TableEncoding.of(table).encode(table[:2].assign(level=[1e17, np.nan]), report)
    assert (report.levels, report.gaps) == ({"level": 1}, {"level": 1})


# Targets -------------------------------------------------------------------------------------------------------------


TARGETS = [
    ([f"${x:,.2f}" for x in NUMBERS], None, NUMBERS),
    ([f"{x:.2f}".replace(".", ",") for x in NUMBERS], None, NUMBERS),
    (spoiled(NUMBERS, r4="-"), None, np.where(np.arange(N) == 4, np.nan, NUMBERS)),
    (
        ["yes ", " no", "yes", "no"] * 30,
        None,
        np.array(["yes", "no"] * 60, dtype=object),
    ),
    (["<=50K", ">50K"] * 60, None, np.array(["<=50K", ">50K"] * 60, dtype=object)),
    (["+", "-"] * 60, None, np.array(["+", "-"] * 60, dtype=object)),
    (
        ["1", "2", "?"] * 40,
        "classification",
        np.array(["1", "2", None] * 40, dtype=object),
    ),
]


@pytest.mark.parametrize(("values", "task", "expected"), TARGETS)
def test_targets_follow_the_rules_of_columns(
    values: list[str], task: Any, expected: np.ndarray
):
    report = EncodingReport()
    found = target_of(
        read_columns(pd.DataFrame({"y": values}))["y"], task, report, is_typed=False
    )
    np.testing.assert_array_equal(found, expected)
    assert len(report.unread) == ("-" in values and len(set(values)) > 2)


@pytest.mark.parametrize("is_ordered", [False, True])
def test_categories_of_arrow_in_pandas_are_categories(is_ordered: bool):
    levels = ["low", "middle", "high"]
    values = pd.Categorical(np.array(levels)[np.arange(N) % 3], levels, is_ordered)
    frame = pd.DataFrame({"grade": values, "x": NUMBERS})
    kind = pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string(), is_ordered))
    of_arrow = frame.assign(grade=frame["grade"].astype(kind))
    encoding = TableEncoding.of(frame)
    assert TableEncoding.of(of_arrow) == encoding
    np.testing.assert_array_equal(encoding.encode(of_arrow), encoding.encode(frame))


LEVELS = {"array": np.array, "index": pd.Index, "series": pl.Series, "list": list}


@pytest.mark.parametrize("make", LEVELS.values(), ids=LEVELS)
def test_levels_may_be_any_collection(make: Any):
    frame = pd.DataFrame({"g": list("uvw") * 40, "x": NUMBERS})
    expected = TableEncoding.of(frame, {"g": ("w", "u", "v")})
    assert TableEncoding.of(frame, {"g": make(["w", "u", "v"])}) == expected


def test_columns_without_a_name_of_text_have_types_by_number():
    frame = pd.DataFrame(np.column_stack([np.arange(N) % 3, NUMBERS]))
    assert TableEncoding.of(frame, {0: "categorical"}).describe() == [
        "category of 3 levels: 0",
        "number: 1",
    ]


@pytest.mark.parametrize("types", [["x"], 3, "number"])
def test_types_without_names_are_refused(types: Any):
    with pytest.raises(ValueError, match="columns must map names to types, such as"):
        TableEncoding.of(pd.DataFrame({"x": NUMBERS}), types)


@pytest.mark.parametrize("kind", [3, None])
def test_types_that_are_neither_text_nor_levels_are_refused(kind: Any):
    with pytest.raises(ValueError, match=r"'x' must be one of number, .* got"):
        TableEncoding.of(pd.DataFrame({"x": NUMBERS}), {"x": kind})


@pytest.mark.parametrize(
    "estimator", [KernelLearningRegressor, KernelLearningClassifier]
)
def test_rows_of_weight_zero_do_not_decide_the_encoding(estimator: Any):
    rng = np.random.default_rng(0)
    grades = rng.choice(["low", "high"], N)
    frame = pd.DataFrame({"x": rng.normal(size=N), "grade": grades})
    y = frame["x"] + (grades == "low") > 0.5
    weightless = pd.DataFrame({"x": [1e9, -1e9], "grade": ["unknown", "unknown"]})
    all_rows = pd.concat([weightless, frame], ignore_index=True)
    weights = np.r_[0.0, 0.0, np.ones(N)]
    model = estimator(learner="unif").fit(all_rows, np.r_[True, False, y], weights)
    expected = estimator(learner="unif").fit(frame, y, np.ones(N))
    assert model.table_ == expected.table_
    np.testing.assert_array_equal(model.predict(frame), expected.predict(frame))
