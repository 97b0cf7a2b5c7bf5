"""Several files of the same columns are one table: found by name, compared, joined, read piece by piece."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnkernels.conf.errors import InputError
from learnkernels.conf.files import chosen, files_of, folder_of, matching, told_by_folders
from learnkernels.conf.loading import config_of_text, existing_files
from learnkernels.conf.schema import DatasetConfig
from learnkernels.kernels.estimators import KernelLearningRegressor
from learnkernels.kernels.persistence.model import Model
from learnkernels.kernels.tables import TableEncoding
from learnkernels.tasks.data.dataset import Dataset, dataset_digest
from learnkernels.tasks.data.ingest import load_source
from learnkernels.tasks.data.locations import locate
from learnkernels.tasks.data.starting import start
from learnkernels.tasks.data.tables import Table
from learnkernels.tasks.models.scoring import Asked, score_with
from tests.refusals import require_refusals
from tests.sources import config, load, require_equal, write

by_ending = pytest.mark.parametrize("ending", [".csv", ".parquet", ".feather"])


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    a, n, c = rng.normal(size=120), rng.integers(0, 9, 120), rng.choice(["x", "y"], 120)
    return pd.DataFrame({"a": a, "n": n, "c": c, "y": rng.random(120)})


def divided(folder: Path, ending: str, frame: pd.DataFrame) -> None:
    """Write a table as three files, the middle one with its columns in another order."""
    for name, part in {"a": slice(0, 50), "b": slice(50, 80), "c": slice(80, 120)}.items():
        some = frame.iloc[part].reset_index(drop=True)
        write(some[some.columns[::-1]] if name == "b" else some, folder / f"{name}{ending}")


def quiet(folder: Path, path: Any, **keys: Any) -> Dataset:
    return load(folder, path, tell=str, target="y", **keys)


@by_ending
def test_files_in_pieces_are_the_file_as_a_whole(tmp_path: Path, ending: str):
    write(rows(), tmp_path / f"whole{ending}")
    divided(tmp_path / "parts", ending, rows())
    write(rows(), tmp_path / "parts" / ".hidden" / f"z{ending}")
    (tmp_path / "parts" / "README.txt").write_text("three parts")
    keys = {"weights": "n", "groups": "c", "columns": {"a": "number"}}
    whole = quiet(tmp_path, f"whole{ending}", **keys)
    names = [f"parts/{name}{ending}" for name in ("a", "b", "c")]
    for path in ("parts", f"parts/*{ending}", f"**/[abc]{ending}", names):
        dataset = quiet(tmp_path, path, **keys)
        assert dataset_digest(dataset) == dataset_digest(whole), path
    turned = quiet(tmp_path, names[::-1], **keys)
    assert dataset_digest(turned) != dataset_digest(whole)


def test_files_are_called_by_what_their_names_share():
    labels = {"": "data", "*.parquet": "data", "part-*.parquet": "part", "a.parquet": "a"}
    assert {path: config(f"data/{path}").label for path in labels} == labels
    assert config(["data/a.parquet", "data/b.parquet"]).label == "a"
    assert DatasetConfig.of("data/").path == "data/"


def test_types_of_a_column_that_go_together_are_joined(tmp_path: Path):
    frame = rows().assign(when="2024-01-01")
    other = frame[80:].assign(n=frame["n"] + 0.5, when="2024-01-01 12:00:00", a=frame["a"].astype(object))
    other.loc[80, "a"] = "?"
    for name, part in {"a": frame[:50], "b": frame[50:80].replace({"c": {"x": "?"}}), "c": other}.items():
        write(part, tmp_path / f"{name}.csv")
    dataset = quiet(tmp_path, "*.csv")
    assert {"a", "a missing", "n", "c=x", "c=missing", "when"} <= set(dataset.features)
    assert dataset.X[80:, dataset.features.index("n")].tolist() == (frame["n"][80:] + 0.5).tolist()
    for name, kind in {"d": pa.int64(), "e": pa.float64(), "f": pa.null()}.items():
        column = pa.array([None] * 20 if name == "f" else range(20), kind)
        write(pa.table({"a": column, "y": np.arange(20.0)}), tmp_path / f"{name}.parquet")
    joined = quiet(tmp_path, "*.parquet")
    assert joined.X[:40, 0].tolist() == [*range(20), *range(20)]


def test_a_file_that_differs_or_is_damaged_is_named(tmp_path: Path):
    contents = [
        (rows().drop(columns="n"), "data set parts: b.parquet has no column 'n', which a.parquet has; give files"),
        (rows().assign(m=1), "data set parts: b.parquet has the column 'm', which a.parquet does not have; give"),
        (rows().assign(n="many"), "column 'n' is .*string in b.parquet and int64 in a.parquet; write it as"),
        ("PAR1 nothing of a table", r"data set parts: b\.parquet cannot be read as parquet"),
    ]
    refused = []
    for i, (content, said) in enumerate(contents):
        folder = tmp_path / str(i)
        divided(folder / "parts", ".parquet", rows())
        write(content, folder / "parts" / "b.parquet")
        refused.append((partial(quiet, folder, "parts"), said))
    require_refusals(refused, error=InputError)


def test_what_stands_for_no_files_of_one_format_is_refused(tmp_path: Path):
    for name in ("both/a.csv", "both/a.parquet"):
        write(rows(), tmp_path / name)
    refused: list[tuple[Any, str]] = [
        ("none/*.csv", "data set none: .*none/.*csv: holds no table, whose endings are"),
        ("both", r"both: holds files of several formats \(\.csv, \.parquet\), which may be copies"),
        (["both/a.csv"] * 2, "'.*a.csv' is in 'path' more than once; name each file once"),
        (["both/a.csv", "both/a.parquet"], "'path' names files of several formats"),
        (["both/a.csv", "gone.csv"], "there is no file .*gone.csv"),
    ]
    asked = [(partial(existing_files, config(path), str(tmp_path)), said) for path, said in refused]
    require_refusals(asked, error=InputError)


def parted(folder: Path, ending: str) -> pd.DataFrame:
    """Write a table into folders whose names tell three columns; return it with these."""
    told = {
        "site=north%20east/year=2023/share=0.5": ("north east", 2023, 0.5, slice(40, 80)),
        "site=north%20east/year=2024/share=1": ("north east", 2024, 1.0, slice(80, 120)),
        "site=__HIVE_DEFAULT_PARTITION__/year=2024/share=2": (None, 2024, 2.0, slice(0, 40)),
    }
    pieces = []
    for place, (site, year, share, part) in told.items():
        piece = rows().iloc[part].reset_index(drop=True)
        write(piece[piece.columns[::-1]] if year == 2023 else piece, folder / place / f"rows{ending}")
        pieces.append(piece.assign(site=site, year=year, share=share))
    return pd.concat([pieces[2], *pieces[:2]], ignore_index=True)  # by name, _ comes before n


@by_ending
def test_names_of_folders_tell_columns(tmp_path: Path, ending: str):
    whole = parted(tmp_path / "day=3" / "parted", ending)  # what stands above the folder tells nothing
    write(whole, tmp_path / f"whole{ending}")
    for keys in ({}, {"groups": "site", "where": {"year": 2024}, "missing": "drop"}, {"time": "share"}):
        expected = quiet(tmp_path, f"whole{ending}", **keys)
        for path in ("day=3/parted", f"day=3/parted/site=*/**/*{ending}"):
            dataset = quiet(tmp_path, path, **keys)
            np.testing.assert_array_equal(dataset.X, expected.X)
            require_equal(dataset, expected)


def test_columns_of_files_go_before_those_of_their_folders(tmp_path: Path):
    write(rows(), tmp_path / "n=1" / "k=a" / "rows.csv")
    write(rows(), tmp_path / "n=2" / "k=3" / "rows.csv")
    dataset = quiet(tmp_path, ".")
    assert dataset.X[:120, dataset.features.index("n")].tolist() == rows()["n"].tolist()
    assert {"k=a", "k=3"} <= set(dataset.features)
    write(rows(), tmp_path / "beside.csv")
    with pytest.raises(InputError, match=r"rows\.csv has the column 'k', which beside\.csv does not have"):
        quiet(tmp_path, ".")


@by_ending
def test_several_files_are_scored_as_one_with_what_their_folders_tell(tmp_path, monkeypatch, ending):
    monkeypatch.chdir(tmp_path)  # a sentence with the names of long folders is cut
    whole = parted(tmp_path / "new", ending)
    write(whole, tmp_path / f"whole{ending}")
    X = whole[["year", "a", "share"]]
    fitted = KernelLearningRegressor(learner="unif").fit(X.to_numpy(), whole["y"])
    model = Model(fitted, ("year", "a", "share"), np.zeros(3), np.ones(3), {"target": "y", "drop": ["n", "c", "site"]})
    shares: list[float] = []

    def scored(source: str, output: str = "out.parquet") -> pd.DataFrame:
        score_with(model, {}, source, output, Asked(("site",)), lambda share, n: shares.append(share))
        return pd.read_parquet(output).fillna("")  # gaps of a CSV are empty texts

    expected, one = scored(f"whole{ending}"), f"new/site=north%20east/year=2024/share=1/rows{ending}"
    assert expected["prediction"].tolist() == fitted.predict(X.to_numpy()).tolist()
    assert scored("new").equals(expected)
    assert shares[-1] == 1.0
    assert scored(one)["prediction"].tolist() == expected["prediction"][80:].tolist()
    write(whole[["a", "n", "c"]], tmp_path / f"plain{ending}")
    with pytest.raises(InputError, match="year"):
        scored(f"plain{ending}")
    with pytest.raises(InputError, match="the output would replace the input"):
        scored("new", one)
    write(rows().drop(columns="n"), tmp_path / one)
    with pytest.raises(InputError, match=r"n 'n', which .*share=2/rows\.\w+ has; give files"):
        scored("new")


def test_folders_on_a_server_are_searched_by_the_same_rules():
    files = ["s3://b/d/a.csv", "s3://b/d/e/b.csv", "s3://b/d/_log/c.csv", "s3://b/d/notes.txt"]
    assert chosen(files, "s3://b/d/", "s3://b/d") == files[:2]
    assert matching(files, "s3://b/d/*.csv") == files[:1]
    assert matching(files, "s3://b/**/*.csv") == files[:3]
    assert existing_files(config("s3://b/d/*.csv"), ".") == ["s3://b/d/*.csv"]
    assert existing_files(config("d/"), "s3://b") == ["s3://b/d/"]
    assert told_by_folders("s3://b/x=1/d/y=2/a.csv", folder_of("s3://b/x=1/d/*/a.csv")) == {"y": "2"}
    assert told_by_folders("s3://b/x=1/d/y=2/a.csv") == {"x": "1", "y": "2"}
    assert files_of("nowhere.csv") is None


def test_libsvm_texts_of_different_widths_are_one(tmp_path: Path):
    write("0 1:1 2:2\n1 4:3\n", tmp_path / "a.svm")
    write("0 6:4\n1 5:1 6:2\n", tmp_path / "b.svm")
    expected = [[1, 2, 0, 0, 0, 0], [0, 0, 0, 3, 0, 0], [0, 0, 0, 0, 0, 4], [0, 0, 0, 0, 1, 2]]
    np.testing.assert_array_equal(quiet(tmp_path, ["a.svm", "b.svm"]).X.toarray(), expected)


def test_a_folder_and_several_targets_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    divided(tmp_path / "parts", ".csv", rows())
    found = start("parts", ["y", "c"], metric=None)
    of = config_of_text(found.text, Path("parts.yaml"))
    labels = [(data.label, data.target, data.drop) for data in of.datasets]
    assert labels == [("parts y", "y", ("c",)), ("parts c", "c", ("y",))]
    assert [load_source(data, tell=str).target.task for data in of.datasets] == ["regression", "classification"]
    tasks = [line for line in found.lines if line.startswith(("regression of y", "classification of c"))]
    assert [line for line in found.lines if " of " in line][:2] == tasks
    several = start(["parts/a.csv", "parts/c.csv"], "y").text
    assert config_of_text(several, Path("n.yaml")).datasets[0].path == ("parts/a.csv", "parts/c.csv")
    with pytest.raises(InputError, match="parts: it has no column 'z'; its columns are a, n, c, y"):
        start("parts", ["y", "z"])


# One table in every format, in Python, in parts and through a model has the same features to the last bit ------------


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
