"""Tables in parts: the rows of the whole table, read where they are needed."""

from __future__ import annotations

import os
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from learnkernels.conf.errors import InputError
from learnkernels.kernels.tables import summary
from learnkernels.tasks.data import parts as in_parts
from learnkernels.tasks.data import row_files
from learnkernels.tasks.data.dataset import Dataset, load_dataset, store_dataset
from learnkernels.tasks.data.parts import TableParts
from tests.sources import load as load_any
from tests.sources import require_equal, require_refusals, write

M = 700


def table(gaps: bool = True) -> pa.Table:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(M, 4)) * [1, 10, 0.1, 1] + [0, 100, 0, 0]
    y = X[:, 0] + rng.normal(size=M)
    if gaps:
        X[rng.random(X.shape) < 0.02] = np.nan
        y[rng.random(M) < 0.02] = np.nan
    sites = [f"site {i % 9}" for i in range(M)]
    columns = {f"x{j}": X[:, j] for j in range(3)} | {"whole": rng.integers(0, 5, M), "y": y, "site": sites}
    return pa.table(columns | {"day": rng.permutation(M), "w": rng.integers(0, 3, M)})


def written(folder: Path, of: pa.Table, ending: str = ".parquet") -> str:
    """Write a table into four files, those of Parquet of several row groups."""
    for i in range(4):
        write(of.slice(i * M // 4, M // 4), folder / f"{i}{ending}", 60)
    return f"{folder}/"


def load(path: str, asked: bool | None = None, **keys: Any) -> Dataset:
    drop = [name for name in ("site", "day", "w") if name not in str(keys)]
    given = {"target": "y", "missing": "drop", "in_parts": asked, "drop": drop, "tell": str}
    return load_any(Path(), path, **(given | keys))


def require_same_rows(ours: Dataset, theirs: Dataset, tolerance: float = 1e-12) -> None:
    """Fail unless a table in parts has the rows of the whole table, whose means are added up in another order."""
    assert isinstance(ours.X, TableParts)
    rows = ours.X[:]
    np.testing.assert_allclose(rows, np.asarray(theirs.X), rtol=1e-12, atol=tolerance)
    some = np.random.default_rng(1).permutation(len(rows))[:40]
    np.testing.assert_array_equal(ours.X[some], rows[some])
    np.testing.assert_array_equal(ours.X[5:9], rows[5:9])
    np.testing.assert_array_equal(ours.X.max(axis=0), rows.max(axis=0))
    np.testing.assert_array_equal(ours.X.min(axis=0), rows.min(axis=0))
    require_equal(ours, theirs)


@pytest.mark.parametrize(
    ("ending", "keys"),
    [
        (".parquet", {}),
        (".feather", {"scale": "unit", "groups": "site", "weights": "w"}),
        (".parquet", {"scale": "standard", "where": {"site": ["site 1", "site 2", "site 5"]}, "time": "day"}),
        (".feather", {"scale": "max", "features": ["x1", "whole"], "test": {"site": "site 3"}}),
        (".feather", {"scale": "quantile", "missing": "impute"}),
        (".parquet", {"scale": "quantile", "features": ["x1", "x2"], "weights": "w"}),
        (".parquet", {"task": "classification", "target": "whole", "class_weight": "balanced"}),
    ],
)
def test_rows_in_parts_are_those_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, keys: dict[str, Any]
):
    monkeypatch.setattr(row_files, "BATCH_BYTES", 4 * 8 * 25)
    monkeypatch.setattr(in_parts, "BATCH_BYTES", 4 * 8 * 7)
    monkeypatch.setattr(summary, "POINTS", M)  # by fewer, ranks are told less exactly
    path = written(tmp_path / "table", table(), ending)
    ours = load(path, True, **keys)
    require_same_rows(ours, load(path, **keys))
    assert len(ours.X.parts) == (12 if ending == ".parquet" else 4)


def mixed() -> pa.Table:
    """Return a table as people have them: gaps, many levels, dates of several kinds, numbers as text, identifiers."""
    rng = np.random.default_rng(5)

    def gappy(values: Any, share: float = 0.1) -> list[Any]:
        return [None if gap else value for value, gap in zip(values, rng.random(M) < share, strict=True)]

    days = np.datetime64("2020-01-01") + rng.integers(0, 2000, M)
    many = [f"level {int(j)}" for j in rng.geometric(0.03, M)]
    columns: dict[str, Any] = {
        "id": np.arange(M) + 10_000,
        "number": gappy(rng.normal(100, 1, M)),
        "whole": rng.integers(0, 7, M),
        "grade": gappy(rng.choice(["low", "middle", "high"], M)),
        "site": [f"site {i % 9}" for i in range(M)],
        "many": gappy(many),
        "as text": [f"{value:.3f}" for value in rng.exponential(size=M)],
        "day": pa.array(gappy(days.tolist())),
        "day first": [f"{d.day:02d}/{d.month:02d}/{d.year}" for d in days.tolist()],
        "iso": [f"{d}T10:{i % 60:02d}:00" for i, d in enumerate(days.tolist())],
        "comment": [f"a b c d {i}" for i in range(M)],
        "nothing": pa.nulls(M, pa.string()),
        "same": ["x"] * M,
        "flag": gappy(rng.random(M) < 0.3),
        "pairs": [[i, i] for i in range(M)],
        "coded": pa.array([f"c{i}" for i in rng.integers(0, 4, M)]).dictionary_encode(),
        "y": gappy(rng.normal(size=M), 0.03),
        "w": rng.integers(0, 3, M),
        "sometimes": gappy(["x"] * M),  # of complete rows alone it is constant
    }
    return pa.table(columns)


ORDERED = {"grade": ["low", "middle", "high"], "whole": "categorical", "many": "code", "same": "drop"}
LEVELS = {"whole": ["0", "1", "2", "3", "4", "5", "6"]}


@pytest.mark.parametrize(
    ("ending", "keys"),
    [
        (".parquet", {"scale": "standard"}),
        (".feather", {"scale": "unit", "where": {"whole": ["1", "2", "3", "5"]}, "weights": "w"}),
        (".parquet", {"scale": "max", "missing": "drop", "drop": ["many", "w"], "columns": {"number": "number"}}),
        (".feather", {"scale": "none", "columns": ORDERED, "groups": "site"}),
        (".feather", {"features": ["number", "whole"]}),
        (".parquet", {"features": ["number", "whole"], "columns": LEVELS}),
    ],
)
def test_any_columns_in_parts_are_those_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, keys: dict[str, Any]
):
    sizes = {"BATCH_BYTES": 17 * 8 * 90, "SUMMARY_BYTES": 17 * 8 * 40, "HELD_RESULTS": 3}
    for module, values in ((in_parts, sizes), (summary, {"POINTS": 16, "MOST_COUNTED": 30, "KEPT": 29})):
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    path = written(tmp_path / "table", mixed(), ending)
    given = {"missing": "impute", "drop": ["w"]} | keys
    parts, whole = [], []  # what is told
    ours, theirs = load(path, True, tell=parts.append, **given), load(path, tell=whole.append, **given)
    require_same_rows(ours, theirs, 1e-11)  # a date's cycle from days since 1970
    assert sorted(parts) == sorted(whole)
    assert ours.features.views == theirs.features.views  # type: ignore[attr-defined]
    assert ours.table is not None
    assert theirs.table is not None
    for one, other in zip(ours.table.columns, theirs.table.columns, strict=True):
        for name, value in vars(other).items():
            if isinstance(value, float):  # means are added up in another order
                assert vars(one)[name] == pytest.approx(value, rel=1e-12, abs=1e-12), (other.name, name)
            elif name == "scales":
                np.testing.assert_allclose(vars(one)[name], value, rtol=1e-12)
            else:
                assert vars(one)[name] == value, other.name


def test_the_store_has_all_of_it_but_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path / "state"))
    path = written(tmp_path / "table", table())
    dataset = load(path, True, scale="standard", weights="w")
    ref = store_dataset(dataset, "table", path)
    assert ref.in_parts
    again = load_dataset(ref)
    assert isinstance(again.X, TableParts)
    np.testing.assert_array_equal(again.X[:], dataset.X[:])
    np.testing.assert_array_equal(again.weights, dataset.weights)
    assert store_dataset(load(path, True, scale="standard", weights="w"), "table", path) == ref
    assert store_dataset(load(path, True, scale="unit", weights="w"), "table", path).digest != ref.digest
    sent = pickle.loads(pickle.dumps(again.X))
    np.testing.assert_array_equal(sent[3:5], dataset.X[3:5])
    assert sum(file.stat().st_size for file in Path(ref.path).iterdir()) < 40_000


def test_of_gaps_that_are_met_late_one_copy_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(in_parts, "copies", lambda: tmp_path / "copies")
    path = written(tmp_path / "table", table())
    ours, theirs = (load(path, asked, missing="impute") for asked in (True, False))
    assert isinstance(ours.X, TableParts)
    assert {file.parent.name for file in (tmp_path / "copies").rglob("*.arrow")} == {f"parts-{ours.X.digest}"}
    np.testing.assert_allclose(ours.X[:], theirs.X, rtol=1e-12)
    assert len(list((tmp_path / "copies").rglob("*.arrow"))) == 12


def test_a_file_that_has_changed_since_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    X: Any = load(written(tmp_path / "table", table()), True).X
    os.utime(tmp_path / "table" / "2.parquet")
    np.testing.assert_array_equal(X[:], X[:])  # of copies
    monkeypatch.setattr(row_files, "copies", lambda: tmp_path / "others")
    monkeypatch.setattr(in_parts, "copies", lambda: tmp_path / "others")
    assert len(X[:100]) == 100
    with pytest.raises(InputError, match=r"2\.parquet: has changed since the run began; start again"):
        X[:]


def test_what_needs_the_whole_table_is_said(tmp_path: Path):
    path = written(tmp_path / "table", table())
    at_once = "which needs all rows"
    refused: list[tuple[dict[str, Any], str]] = [
        ({"missing": "refuse"}, r"missing values in column x0 \(\d+\), .* of \d+ rows; set 'missing: impute' for"),
        ({"missing": "refuse", "drop": []}, r"missing values in column x0 \(\d+\), .* of 700 rows; set 'missing: imp"),
        ({"columns": {"site": "number"}, "drop": []}, "'site' is said to be a number, but holds 'site 0'; correct it"),
        ({"drop": [*table().column_names[:4], "site", "day", "w"]}, "0.parquet and 3 more leaves 700 rows and 0 f"),
        ({"scale": "unit", "scale_on": "training"}, f"does not go with 'scale_on: training', {at_once}"),
        ({"subsample": 100}, f"'in_parts' does not go with 'subsample', {at_once} at once; leave it out, or"),
        ({"features": ["x0", "z"]}, "features 'z' is not a column of 0.parquet and 3 more"),
    ]
    require_refusals((partial(load, path, True, **keys), said) for keys, said in refused)


def test_a_table_that_takes_much_memory_is_read_in_parts_where_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = written(tmp_path / "table", table(gaps=False))
    monkeypatch.setattr(in_parts, "BYTES_AS_NUMBERS", 8 * M * 8)
    assert isinstance(load(path).X, TableParts)
    assert isinstance(load(path, False).X, np.ndarray)
    assert isinstance(load(path, subsample=100).X, np.ndarray)
    monkeypatch.setattr(in_parts, "BYTES_AS_NUMBERS", 8 * M * 8 + 1)
    assert isinstance(load(path).X, np.ndarray)
