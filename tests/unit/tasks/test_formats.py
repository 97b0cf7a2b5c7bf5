"""One table in every format, in Python, in parts and through a model has the same features to the last bit."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from learnkernels.kernels.tables import TableEncoding
from learnkernels.tasks.data.locations import locate
from learnkernels.tasks.data.tables import Table
from tests.sources import load, write

TEXT = {"encoding": ["utf-8", "utf-8-sig", "utf-16", "latin-1"], "lineterminator": ["\n", "\r\n"]}
TEXT["sep"] = [",", ";", "\t", "|"]


@st.composite
def tables(draw: Any) -> pd.DataFrame:
    """Draw a table of columns of several kinds, with missing values."""
    n = draw(st.integers(25, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    word = st.text("aeiou\u00e9\u00fc ,;'\"\n", min_size=1, max_size=6)
    words = draw(st.lists(word, min_size=2, max_size=5, unique_by=str.strip))
    words = [f"w{word.strip()}" for word in words]
    numbers = rng.normal(size=n) * 10.0 ** rng.integers(-8, 9)
    columns: dict[str, Any] = {
        "number": numbers,
        "whole": rng.integers(-5, 10**6, n),
        "big": rng.integers(2**60, 2**60 + 5, n),
        "truth": rng.random(n) > 0.4,
        "word": rng.choice(words, n),
        "day": (np.datetime64("2001-02-03") + rng.integers(0, 5000, n)).astype(str),
        "money": [f"${value:,.2f}" for value in rng.exponential(10**4, n)],
    }
    frame = pd.DataFrame(columns)
    for name in draw(st.sets(st.sampled_from(["number", "word", "day", "money"]))):
        frame[name] = frame[name].mask(rng.random(n) < 0.2)
    frame["y"] = rng.normal(size=n)
    return frame


@settings(max_examples=25, deadline=None)
@given(frame=tables(), text=st.fixed_dictionaries({name: st.sampled_from(of) for name, of in TEXT.items()}))
def test_a_table_is_the_same_in_every_format(frame: pd.DataFrame, text: dict[str, str]):
    with tempfile.TemporaryDirectory() as name:
        folder, keys = Path(name), {"target": "y", "scale": "standard", "tell": str, "columns": {}}
        X = frame.drop(columns="y")
        encoding = TableEncoding.of(X)
        expected = encoding.encode(X)
        for native in (pl.from_pandas, pa.Table.from_pandas):
            for ours, theirs in zip(TableEncoding.of(native(X)).columns, encoding.columns, strict=True):
                assert ours.to_dict() == theirs.to_dict()
            np.testing.assert_array_equal(encoding.encode(native(X)), expected)
        frame.to_csv(folder / "data.csv", index=False, **text)
        stored = pa.Table.from_pandas(frame, preserve_index=False)
        for ending in (".parquet", ".arrow", ".feather"):
            write(stored, folder / f"data{ending}", 11)
        for ending in (".csv", ".parquet", ".arrow", ".feather"):
            dataset = load(folder, f"data{ending}", **keys)
            for ours, theirs in zip(dataset.table.columns, encoding.columns, strict=True):
                assert ours.to_dict() == theirs.to_dict()
            np.testing.assert_array_equal(dataset.X, expected)
            with Table([locate(str(folder / f"data{ending}"))]) as pieces:  # as rows to predict are read
                features = [encoding.encode(piece) for piece in pieces.tables(encoding.names, 17)]
            np.testing.assert_array_equal(np.concatenate(features), expected)
        for rows in (7, 23):
            write(stored, folder / "parts" / "data.parquet", rows)
            np.testing.assert_array_equal(load(folder, "parts", **keys, in_parts=True).X[:], expected)
