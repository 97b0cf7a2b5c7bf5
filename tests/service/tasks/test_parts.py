"""Tables in parts: the rows of the whole table, read where they are needed, and predictions in parts."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DaskConfig, DatasetConfig
from learnkernels.kernels.estimators import KernelLearningRegressor
from learnkernels.kernels.persistence.model import Model
from learnkernels.kernels.tables import summary
from learnkernels.tasks.data import parts as in_parts
from learnkernels.tasks.data import row_files
from learnkernels.tasks.data.dataset import Dataset, load_dataset, store_dataset
from learnkernels.tasks.data.ingest import ingest, load_source
from learnkernels.tasks.data.parts import TableParts
from learnkernels.tasks.models.scoring import score_parts_with, score_with
from learnkernels.tasks.workers.cluster import DaskPool, PartsElsewhere
from tests.elsewhere import another_machine

if TYPE_CHECKING:
    from tests.service.conftest import S3

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
    folder.mkdir()
    for i in range(4):
        piece = of.slice(i * M // 4, M // 4)
        path = folder / f"{i}{ending}"
        if ending == ".parquet":
            pq.write_table(piece, path, row_group_size=60)
        else:
            pa.feather.write_feather(piece, str(path), chunksize=60)
    return f"{folder}/"


def load(path: str, asked: bool | None = None, **keys: Any) -> Dataset:
    drop = [name for name in ("site", "day", "w") if name not in str(keys)]
    said = {"source": "file", "path": path, "target": "y", "missing": "drop", "in_parts": asked, "drop": drop}
    return load_source(DatasetConfig.model_validate(said | keys), tell=str)


@pytest.mark.parametrize("ending", [".parquet", ".feather"])
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"scale": "unit", "groups": "site", "weights": "w"},
        {"scale": "standard", "where": {"site": ["site 1", "site 2", "site 5"]}, "time": "day"},
        {"scale": "max", "features": ["x1", "whole"], "test": {"site": "site 3"}},
        {"scale": "quantile", "missing": "impute"},
        {"scale": "quantile", "features": ["x1", "x2"], "weights": "w"},
        {"task": "classification", "target": "whole", "class_weight": "balanced"},
    ],
)
def test_rows_in_parts_are_those_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, keys: dict[str, Any]
):
    monkeypatch.setattr(row_files, "BATCH_BYTES", 4 * 8 * 25)
    monkeypatch.setattr(in_parts, "BATCH_BYTES", 4 * 8 * 7)
    monkeypatch.setattr(summary, "POINTS", M)  # by fewer, ranks are told less exactly
    path = written(tmp_path / "table", table(), ending)
    ours, theirs = load(path, True, **keys), load(path, **keys)
    assert isinstance(ours.X, TableParts)
    assert len(ours.X.parts) == (12 if ending == ".parquet" else 4)
    whole = np.asarray(theirs.X)
    # Means and deviations are added up in another order.
    np.testing.assert_allclose(ours.X[:], whole, rtol=1e-12, atol=1e-12)
    some = np.random.default_rng(1).permutation(len(whole))[:40]
    np.testing.assert_array_equal(ours.X[some], ours.X[:][some])
    np.testing.assert_array_equal(ours.X[5:9], ours.X[:][5:9])
    np.testing.assert_array_equal(ours.X.max(axis=0), ours.X[:].max(axis=0))
    np.testing.assert_array_equal(ours.X.min(axis=0), ours.X[:].min(axis=0))
    np.testing.assert_array_equal(ours.target.values, theirs.target.values)
    assert (ours.features, ours.class_weight) == (theirs.features, theirs.class_weight)
    assert ours.beside.keys() == theirs.beside.keys()
    for name, of in theirs.beside.items():
        np.testing.assert_array_equal(ours.beside[name], of)


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


@pytest.mark.parametrize("ending", [".parquet", ".feather"])
@pytest.mark.parametrize(
    "keys",
    [
        {"scale": "standard"},
        {"scale": "unit", "where": {"whole": ["1", "2", "3", "5"]}, "weights": "w"},
        {"scale": "max", "missing": "drop", "drop": ["many", "w"], "columns": {"number": "number"}},
        {"scale": "none", "columns": ORDERED, "groups": "site"},
        {"features": ["number", "whole"]},
        {"features": ["number", "whole"], "columns": {"whole": ["0", "1", "2", "3", "4", "5", "6"]}},
    ],
)
def test_any_columns_in_parts_are_those_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, keys: dict[str, Any]
):
    monkeypatch.setattr(in_parts, "BATCH_BYTES", 17 * 8 * 90)
    monkeypatch.setattr(in_parts, "SUMMARY_BYTES", 17 * 8 * 40)
    monkeypatch.setattr(in_parts, "HELD_RESULTS", 3)
    monkeypatch.setattr(summary, "POINTS", 16)
    monkeypatch.setattr(summary, "MOST_COUNTED", 30)
    monkeypatch.setattr(summary, "KEPT", 29)
    path = written(tmp_path / "table", mixed(), ending)
    told: dict[bool | None, list[str]] = {True: [], None: []}
    ours, theirs = (
        load_source(
            DatasetConfig.model_validate(
                {"source": "file", "path": path, "target": "y", "in_parts": asked, "drop": ["w"], "missing": "impute"}
                | keys
            ),
            tell=told[asked].append,
        )
        for asked in (True, None)
    )
    assert isinstance(ours.X, TableParts)
    assert isinstance(theirs.X, np.ndarray)
    assert theirs.table is not None
    assert ours.table is not None
    assert sorted(told[None]) == sorted(told[True])
    assert tuple(ours.features) == tuple(theirs.features)
    assert ours.features.views == theirs.features.views  # type: ignore[attr-defined]
    for one, other in zip(ours.table.columns, theirs.table.columns, strict=True):
        for name, value in vars(other).items():
            if isinstance(value, float):  # means are added up in another order
                assert vars(one)[name] == pytest.approx(value, rel=1e-12, abs=1e-12), (other.name, name)
            elif name == "scales":
                np.testing.assert_allclose(vars(one)[name], value, rtol=1e-12)
            else:
                assert vars(one)[name] == value, other.name
    np.testing.assert_allclose(ours.X[:], theirs.X, rtol=1e-12, atol=1e-11)  # a date's cycle from days since 1970
    np.testing.assert_array_equal(ours.X.max(axis=0), ours.X[:].max(axis=0))
    np.testing.assert_array_equal(ours.target.values, theirs.target.values)
    assert ours.beside.keys() == theirs.beside.keys()
    for name, of in theirs.beside.items():
        np.testing.assert_array_equal(ours.beside[name], of)


@pytest.mark.usefixtures("working_folder")
def test_the_store_has_all_of_it_but_its_rows(tmp_path: Path):
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


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"missing": "refuse"}, r"missing values in column x0 \(\d+\), .* of \d+ rows; set 'missing: impute' for"),
        ({"missing": "refuse", "drop": []}, r"missing values in column x0 \(\d+\), .* of 700 rows; set 'missing: imp"),
        ({"columns": {"site": "number"}, "drop": []}, "'site' is said to be a number, but holds 'site 0'; correct it"),
        (
            {"drop": ["x0", "x1", "x2", "whole", "site", "day", "w"]},
            "0.parquet and 3 more leaves 700 rows and 0 feature columns; at",
        ),
        ({"scale": "unit", "scale_on": "training"}, "does not go with 'scale_on: training', which needs all rows"),
        ({"subsample": 100}, "'in_parts' does not go with 'subsample', which needs all rows at once; leave it out, or"),
        ({"features": ["x0", "z"]}, "features 'z' is not a column of 0.parquet and 3 more"),
    ],
)
def test_what_needs_the_whole_table_is_said(tmp_path: Path, keys: dict[str, Any], sentence: str):
    with pytest.raises(InputError, match=sentence):
        load(written(tmp_path / "table", table()), True, **keys)


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


def product(X: Any, V: np.ndarray, span: tuple[int, int]) -> np.ndarray:
    run = X[slice(*span)]
    return np.asarray(run.T @ (run @ V))


@pytest.mark.usefixtures("working_folder")
def test_workers_read_each_part_from_its_server_at_most_once_each(s3: S3, tmp_path: Path):
    written(tmp_path / "table", table())
    for i, file in enumerate(sorted((tmp_path / "table").iterdir())):
        folder = tmp_path / "table" / f"half={i // 2}"
        folder.mkdir(exist_ok=True)
        s3.put(f"table/{folder.name}/{file.name}", file.rename(folder / file.name))
    keys = {"source": "file", "path": "s3://rows/table/", "target": "y", "missing": "drop", "in_parts": True}
    config = DatasetConfig.model_validate(keys | {"drop": ["site", "day", "w"], "scale": "unit"})
    theirs = load(f"{tmp_path / 'table'}/", scale="unit")
    whole, some = np.asarray(theirs.X), np.random.default_rng(1).permutation(600)[:300]

    def times(dask_worker: Any) -> dict[str, float]:
        return {str(file): file.stat().st_mtime for file in Path(dask_worker.local_directory).rglob("*.arrow")}

    with another_machine(tmp_path / "machine") as address:
        with DaskPool(DaskConfig.model_validate({"scheduler": address})) as pool:
            dataset = load_dataset(ingest.fn(config, ".", 0, pool))
            read: Any = pool.workers.reading(dataset.X)
            assert isinstance(read, PartsElsewhere)
            copied: dict[str, dict[str, float]] = pool.client.run(times)
            assert sum(map(len, copied.values())) == 12  # one worker each
            np.testing.assert_array_equal(read[some], whole[some])
            np.testing.assert_array_equal(read[20:400], whole[20:400])
            held = pool.workers.hold(read, some, np.full(5, 0.5))
            found = pool.workers.total(product, pool.workers.share(held), np.eye(5), [(0, 90), (90, 200), (200, 300)])
            rows = whole[some] - 0.5
            np.testing.assert_allclose(found, rows.T @ rows, rtol=1e-12)  # sums of 300 rows in another order
            later = pool.client.run(times)
            for worker, files in copied.items():
                assert files.items() <= later[worker].items()  # none was read again
        assert not list((tmp_path / "machine").rglob("*.arrow"))  # copies go with the run, not with the workers
    assert not list(tmp_path.glob("state/**/parts-*"))  # nothing of it in this process


# Predictions ---------------------------------------------------------------------------------------------------------


def model() -> Model:
    X = np.random.default_rng(3).normal(size=(60, 3))
    zero, one = np.zeros(3), np.ones(3)
    fitted = KernelLearningRegressor(learner="unif").fit(X, X[:, 0])
    return Model(fitted, ("x0", "x1", "x2"), zero, one, {"target": "y", "drop": ["day"]})


@pytest.mark.usefixtures("working_folder")
def test_predictions_in_parts_are_those_of_one_file_and_complete_or_said_not_to_be(tmp_path: Path):
    of, about = model(), {"model": "models:/flowers/3", "digest": "ab"}
    new = table(gaps=False).select(["x0", "x1", "x2", "day"])
    source, scored = written(tmp_path / "new", new), tmp_path / "scored"
    whole = score_with(of, about, source, str(tmp_path / "whole.parquet"), ids=["day"])
    with DaskPool(DaskConfig.model_validate({"workers": 0})) as pool:
        ours = score_parts_with(of, about, source, f"{scored}/", pool, ids=["day"])
        assert sorted(path.name for path in scored.iterdir()) == [
            "_SUCCESS",
            *(f"part-{i:05d}.parquet" for i in range(4)),
        ]
        for i in range(4):
            score_with(of, about, f"{source}{i}.parquet", str(tmp_path / "one.parquet"), ids=["day"])
            assert pq.read_table(scored / f"part-{i:05d}.parquet").equals(pq.read_table(tmp_path / "one.parquet"))
        np.testing.assert_array_equal(pq.read_table(scored)["day"], pq.read_table(tmp_path / "whole.parquet")["day"])
        assert (ours.rows, ours.columns) == (whole.rows, whole.columns)
        for name, value in whole.distribution["prediction"].items():
            assert ours.distribution["prediction"][name] == pytest.approx(value, rel=1e-12)  # sums in another order
        said = json.loads((scored / "_SUCCESS").read_text())
        assert said["model"] == "models:/flowers/3"
        assert [one["rows"] for one in said["files"]] == [M // 4] * 4
        with pytest.raises(InputError, match="scored: holds a complete output, as _SUCCESS says; give another folder"):
            score_parts_with(of, about, source, f"{scored}/", pool)
        (scored / "_SUCCESS").unlink()
        numbered = score_parts_with(of, about, source, f"{scored}/", pool)  # what was left unfinished is done again
        assert numbered.rows == M
        np.testing.assert_array_equal(pq.read_table(scored)["row"], np.arange(M))
        (scored / "_SUCCESS").unlink()
        (scored / "notes.txt").touch()
        with pytest.raises(InputError, match=r"scored: holds 'notes\.txt', which this output would stand beside"):
            score_parts_with(of, about, source, f"{scored}/", pool)
        gaps = pa.table({**{name: new[name] for name in ("x0", "x1", "day")}, "x2": pa.array([None] * M, pa.float64())})
        half = written(tmp_path / "half", gaps)
        with pytest.raises(InputError, match=r"0\.parquet: column 'x2' is missing or not finite in row 0"):
            score_parts_with(of, about, half, f"{tmp_path / 'none'}/", pool)
        assert not (tmp_path / "none" / "_SUCCESS").exists()
