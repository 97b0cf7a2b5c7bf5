"""Several files of the same columns are one table: found by name, compared, joined, read piece by piece."""

import bz2
import gzip
import re
import tempfile
import uuid
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnkernels.conf.errors import InputError
from learnkernels.conf.files import (
    COMPRESSIONS,
    chosen,
    columns_in_folders,
    files_of,
    folder_of,
    matching,
)
from learnkernels.conf.loading import config_of_text, existing_files
from learnkernels.conf.schema import DatasetConfig
from learnkernels.kernels.column_encoding import TableEncoding
from learnkernels.kernels.estimators import (
    KernelLearningClassifier,
    KernelLearningRegressor,
)
from learnkernels.kernels.model import Model
from learnkernels.tasks.data import tables as table_files
from learnkernels.tasks.data.dataset import (
    Dataset,
    dataset_digest,
    load_dataset,
    store_dataset,
)
from learnkernels.tasks.data.infer_config import infer_config
from learnkernels.tasks.data.ingest import load_source
from learnkernels.tasks.data.locations import locate
from learnkernels.tasks.data.tables import (
    Table,
    columns_remembered,
    locations_of,
    with_folder_columns,
)
from learnkernels.tasks.models.scoring import ScoringOptions, score_with
from tests.refusals import require_refusals
from tests.sources import config, load, require_equal, write

by_ending = pytest.mark.parametrize("ending", [".csv", ".parquet", ".feather"])


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    a, n, c = rng.normal(size=120), rng.integers(0, 9, 120), rng.choice(["x", "y"], 120)
    return pd.DataFrame({"a": a, "n": n, "c": c, "y": rng.random(120)})


def divided(folder: Path, ending: str, frame: pd.DataFrame) -> None:
    """Write a table as three files, the middle one with its columns in another order."""
    for name, part in {
        "a": slice(0, 50),
        "b": slice(50, 80),
        "c": slice(80, 120),
    }.items():
        some = frame.iloc[part].reset_index(drop=True)
        write(
            some[some.columns[::-1]] if name == "b" else some,
            folder / f"{name}{ending}",
        )


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
    labels = {
        "": "data",
        "*.parquet": "data",
        "part-*.parquet": "part",
        "a.parquet": "a",
    }
    assert {path: config(f"data/{path}").label for path in labels} == labels
    assert config(["data/a.parquet", "data/b.parquet"]).label == "a"
    assert DatasetConfig.of("data/").path == "data/"


def test_types_of_a_column_that_go_together_are_joined(tmp_path: Path):
    frame = rows().assign(when="2024-01-01")
    other = frame[80:].assign(
        n=frame["n"] + 0.5, when="2024-01-01 12:00:00", a=frame["a"].astype(object)
    )
    other.loc[80, "a"] = "?"
    for name, part in {
        "a": frame[:50],
        "b": frame[50:80].replace({"c": {"x": "?"}}),
        "c": other,
    }.items():
        write(part, tmp_path / f"{name}.csv")
    dataset = quiet(tmp_path, "*.csv")
    assert {"a", "a missing", "n", "c=x", "c=missing", "when"} <= set(dataset.features)
    assert (
        dataset.X[80:, dataset.features.index("n")].tolist()
        == (frame["n"][80:] + 0.5).tolist()
    )
    for name, kind in {"d": pa.int64(), "e": pa.float64(), "f": pa.null()}.items():
        column = pa.array([None] * 20 if name == "f" else range(20), kind)
        write(
            pa.table({"a": column, "y": np.arange(20.0)}), tmp_path / f"{name}.parquet"
        )
    joined = quiet(tmp_path, "*.parquet")
    assert joined.X[:40, 0].tolist() == [*range(20), *range(20)]


def test_a_file_that_differs_or_is_damaged_is_named(tmp_path: Path):
    contents = [
        (
            rows().drop(columns="n"),
            "data set parts: b.parquet has no column 'n', which a.parquet has; give files",
        ),
        (
            rows().assign(m=1),
            "data set parts: b.parquet has the column 'm', which a.parquet does not have; give",
        ),
        (
            rows().assign(n="many"),
            "column 'n' is .*string in b.parquet and int64 in a.parquet; write it as",
        ),
        (
            "PAR1 nothing of a table",
            r"data set parts: b\.parquet cannot be read as parquet",
        ),
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
        (
            "none/*.csv",
            "data set none: .*none/.*csv: holds no table, whose endings are",
        ),
        (
            "both",
            r"both: holds files of several formats \(\.csv, \.parquet\), which may be copies",
        ),
        (
            ["both/a.csv"] * 2,
            "'.*a.csv' is in 'path' more than once; name each file once",
        ),
        (["both/a.csv", "both/a.parquet"], "'path' names files of several formats"),
        (["both/a.csv", "gone.csv"], "there is no file .*gone.csv"),
    ]
    asked = [
        (partial(existing_files, config(path), str(tmp_path)), said)
        for path, said in refused
    ]
    require_refusals(asked, error=InputError)


def parted(folder: Path, ending: str) -> pd.DataFrame:
    """Write a table into folders whose names tell three columns; return it with these."""
    told = {
        "site=north%20east/year=2023/share=0.5": (
            "north east",
            2023,
            0.5,
            slice(40, 80),
        ),
        "site=north%20east/year=2024/share=1": (
            "north east",
            2024,
            1.0,
            slice(80, 120),
        ),
        "site=__HIVE_DEFAULT_PARTITION__/year=2024/share=2": (
            None,
            2024,
            2.0,
            slice(0, 40),
        ),
    }
    pieces = []
    for place, (site, year, share, part) in told.items():
        piece = rows().iloc[part].reset_index(drop=True)
        write(
            piece[piece.columns[::-1]] if year == 2023 else piece,
            folder / place / f"rows{ending}",
        )
        pieces.append(piece.assign(site=site, year=year, share=share))
    # By name, _ comes before n
    return pd.concat([pieces[2], *pieces[:2]], ignore_index=True)


@by_ending
def test_names_of_folders_tell_columns(tmp_path: Path, ending: str):
    # What stands above the folder tells nothing
    whole = parted(tmp_path / "day=3" / "parted", ending)
    write(whole, tmp_path / f"whole{ending}")
    for keys in (
        {},
        {"groups": "site", "where": {"year": 2024}, "missing": "drop"},
        {"time": "share"},
    ):
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
    with pytest.raises(
        InputError,
        match=r"rows\.csv has the column 'k', which beside\.csv does not have",
    ):
        quiet(tmp_path, ".")


@by_ending
def test_several_files_are_scored_as_one_with_what_their_folders_tell(
    tmp_path, monkeypatch, ending
):
    monkeypatch.chdir(tmp_path)  # a sentence with the names of long folders is cut
    whole = parted(tmp_path / "new", ending)
    write(whole, tmp_path / f"whole{ending}")
    X = whole[["year", "a", "share"]]
    fitted = KernelLearningRegressor(learner="unif").fit(X.to_numpy(), whole["y"])
    model = Model(
        fitted,
        ("year", "a", "share"),
        np.zeros(3),
        np.ones(3),
        {"target": "y", "drop": ["n", "c", "site"]},
    )
    shares: list[float] = []

    def scored(source: str, output: str = "out.parquet") -> pd.DataFrame:
        score_with(
            model,
            {},
            source,
            output,
            ScoringOptions(("site",)),
            lambda share, n: shares.append(share),
        )
        return pd.read_parquet(output).fillna("")  # gaps of a CSV are empty texts

    expected, one = (
        scored(f"whole{ending}"),
        f"new/site=north%20east/year=2024/share=1/rows{ending}",
    )
    assert expected["prediction"].tolist() == fitted.predict(X.to_numpy()).tolist()
    assert scored("new").equals(expected)
    assert shares[-1] == 1.0
    assert scored(one)["prediction"].tolist() == expected["prediction"][80:].tolist()
    write(whole[["a", "n", "c"]], tmp_path / f"plain{ending}")
    with pytest.raises(InputError, match="year"):
        scored(f"plain{ending}")
    with pytest.raises(InputError, match="the output would replace the input"):
        scored("new", one)
    write(rows().drop(columns="n"), tmp_path / one)  # the model does not read n
    assert len(scored("new")) == len(whole) - 40 + len(rows())
    write(rows().drop(columns="a"), tmp_path / one)
    with pytest.raises(
        InputError, match=r"n 'a', which .*share=2/rows\.\w+ has; give files"
    ):
        scored("new")


def test_folders_on_a_server_are_searched_by_the_same_rules():
    files = [
        "s3://b/d/a.csv",
        "s3://b/d/e/b.csv",
        "s3://b/d/_log/c.csv",
        "s3://b/d/notes.txt",
    ]
    assert chosen(files, "s3://b/d/", "s3://b/d") == files[:2]
    assert matching(files, "s3://b/d/*.csv") == files[:1]
    assert matching(files, "s3://b/**/*.csv") == files[:3]
    assert existing_files(config("s3://b/d/*.csv"), ".") == ["s3://b/d/*.csv"]
    assert existing_files(config("d/"), "s3://b") == ["s3://b/d/"]
    assert columns_in_folders(
        "s3://b/x=1/d/y=2/a.csv", folder_of("s3://b/x=1/d/*/a.csv")
    ) == {"y": "2"}
    assert columns_in_folders("s3://b/x=1/d/y=2/a.csv") == {"x": "1", "y": "2"}
    assert files_of("nowhere.csv") is None


def test_libsvm_texts_of_different_widths_are_one(tmp_path: Path):
    write("0 1:1 2:2\n1 4:3\n", tmp_path / "a.svm")
    write("0 6:4\n1 5:1 6:2\n", tmp_path / "b.svm")
    expected = [
        [1, 2, 0, 0, 0, 0],
        [0, 0, 0, 3, 0, 0],
        [0, 0, 0, 0, 0, 4],
        [0, 0, 0, 0, 1, 2],
    ]
    np.testing.assert_array_equal(
        quiet(tmp_path, ["a.svm", "b.svm"]).X.toarray(), expected
    )


def test_libsvm_texts_are_numbered_from_zero_if_one_is(tmp_path: Path):
    write("0 0:1 3:5\n1 1:1\n", tmp_path / "a.svm")
    write("0 1:1 3:5\n1 2:1\n", tmp_path / "b.svm")
    write("1\n0\n", tmp_path / "none.svm")
    of_b = [[0, 1, 0, 5], [0, 0, 1, 0]]
    np.testing.assert_array_equal(
        quiet(tmp_path, ["a.svm", "b.svm"]).X.toarray(),
        [[1, 0, 0, 5], [0, 1, 0, 0], *of_b],
    )
    np.testing.assert_array_equal(
        quiet(tmp_path, ["none.svm", "b.svm"]).X.toarray(),
        [[0] * 3, [0] * 3, *np.delete(of_b, 0, axis=1)],
    )


@pytest.mark.parametrize("stem", ["_data", "x" * 70, "Ums\u00e4tze 2024", "-_."])
def test_the_configuration_of_a_table_of_any_name_is_valid(
    stem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    path = f"{stem}.csv"
    rows().to_csv(path, index=False)
    inferred = infer_config(f"./{path}", "y")
    config = config_of_text(inferred.text, Path("table.yaml"))
    assert config.name == config.datasets[0].label == inferred.label


def test_a_folder_and_several_targets_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    divided(tmp_path / "parts", ".csv", rows())
    found = infer_config("parts", ["y", "c"], metric=None)
    of = config_of_text(found.text, Path("parts.yaml"))
    labels = [(data.label, data.target, data.drop) for data in of.datasets]
    assert labels == [("parts y", "y", ("c",)), ("parts c", "c", ("y",))]
    assert [load_source(data, tell=str).target.task for data in of.datasets] == [
        "regression",
        "classification",
    ]
    tasks = [
        line
        for line in found.lines
        if line.startswith(("regression of y", "classification of c"))
    ]
    assert [line for line in found.lines if " of " in line][:2] == tasks
    several = infer_config(["parts/a.csv", "parts/c.csv"], "y").text
    assert config_of_text(several, Path("n.yaml")).datasets[0].path == (
        "parts/a.csv",
        "parts/c.csv",
    )
    with pytest.raises(
        InputError, match="parts: it has no column 'z'; its columns are a, n, c, y"
    ):
        infer_config("parts", ["y", "z"])


# Kinds of files and columns that other programs write ----------------------------------------------------------------


KEYS = {
    "whole numbers": [2023, 2024, None],
    "numbers": [0.5, 1.0, None],
    "texts": ["north east", "50%/a=b", None],
    "dates": ["2024-01-31", "2024-02-29", None],
    "Booleans": ["true", "false", None],
    "codes": ["01234", "98765", None],
    "padded numbers": ["01", "12", None],
    "hexadecimal numbers": ["0x10", "0x11", None],
    "nothing": [None, None, None],
}


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_folders_without_a_value_are_gaps_of_a_column_of_the_type_of_the_others(
    tmp_path: Path, keys: list, ending: str
):
    whole = rows().assign(
        key=np.array(keys, dtype=object)[np.arange(120) % 3], level=np.arange(120) % 2
    )
    table = pa.Table.from_pandas(whole)
    by = ds.partitioning(
        pa.schema([("key", table.schema.field("key").type), ("level", pa.int64())]),
        flavor="hive",
    )
    ds.write_dataset(table, tmp_path / "parted", format=ending[1:], partitioning=by)
    assert any(
        "__HIVE_DEFAULT_PARTITION__" in str(file)
        for file in (tmp_path / "parted").iterdir()
    )
    write(whole, tmp_path / "whole.csv")
    expected = quiet(tmp_path, "whole.csv")
    datasets = [quiet(tmp_path, "parted", features=["a", "n", "c", "key", "level"])]
    if ending == ".parquet":
        datasets.append(
            quiet(
                tmp_path,
                "parted",
                features=["a", "n", "c", "key", "level"],
                in_parts=True,
            )
        )
    for dataset in datasets:
        assert dataset.features == expected.features
        for X, y, Z, z in [
            (dataset.X[:], dataset.target.values, expected.X, expected.target.values)
        ]:
            np.testing.assert_array_equal(X[np.argsort(y)], Z[np.argsort(z)])
    assert (
        "key missing" in expected.features or "key=missing" in expected.features
    ) == (keys[0] is not None)
    model = Model.of_table(
        KernelLearningRegressor(learner="unif").fit(
            whole.drop(columns="y"), whole["y"]
        ),
        {"target": "y"},
    )
    scored = []
    for source in ("whole.csv", "parted"):
        score_with(
            model,
            {},
            str(tmp_path / source),
            str(tmp_path / "out.parquet"),
            ScoringOptions(("a",)),
        )
        scored.append(
            pd.read_parquet(tmp_path / "out.parquet").astype(float).sort_values("a")
        )
    np.testing.assert_allclose(*scored, rtol=1e-9)  # rows of other blocks


def test_folders_of_several_files_have_a_value_and_the_type_of_all():
    places = [locate(name) for name in ("a", "b", "c")]
    told = [
        {"k": "1", "m": None, "t": "01x"},
        {"k": None, "m": None, "t": None},
        {"k": "2.5"},
    ]
    expected = [("k", 1.0, "double"), ("m", None, "null"), ("t", "01x", "string")]
    found = with_folder_columns(places, told)
    assert found[0].folder_columns == tuple(expected)
    assert found[1].folder_columns == (
        ("k", None, "double"),
        ("m", None, "null"),
        ("t", None, "string"),
    )
    assert found[2].folder_columns == (("k", 2.5, "double"),)
    versions = with_folder_columns(places[:2], [{"k": "3.1"}, {"k": "3.10"}])
    assert versions[1].folder_columns == (("k", "3.10", "string"),)
    assert columns_in_folders("d/k=/x%20y=__HIVE_DEFAULT_PARTITION__/a.csv") == {
        "k": None,
        "x y": None,
    }


@by_ending
def test_padded_numbers_in_names_of_folders_are_times(tmp_path: Path, ending: str):
    for month in ("01", "02", "10"):
        write(rows(), tmp_path / "d" / f"month={month}" / f"rows{ending}")
    times = quiet(tmp_path, "d", time="month").times
    np.testing.assert_array_equal(times, np.repeat([0, 1, 2], 120))


def extended(kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    return lambda texts: pa.ExtensionArray.from_storage(
        kind, texts.cast(kind.storage_type)
    )


TEXTS = {
    "large_string": lambda texts: texts.cast(pa.large_string()),
    "string_view": lambda texts: texts.cast(pa.string_view()),
    "runs": pc.run_end_encode,
    "runs of views": lambda texts: pa.RunEndEncodedArray.from_arrays(
        pa.array(range(1, len(texts) + 1), pa.int32()), texts.cast(pa.string_view())
    ),
    "extension": extended(pa.opaque(pa.string(), "name", "vendor")),
    "extension of views": extended(pa.opaque(pa.string_view(), "name", "vendor")),
}
"""What makes texts of another type of texts."""

ROLES: list[dict[str, Any]] = [
    {},
    {"groups": "site"},
    {"time": "day"},
    {"weights": "w"},
    {"where": {"c": ["uu", "vv"]}},
    {"test": {"part": "held out"}},
    {"in_parts": True, "groups": "site", "weights": "w", "where": {"c": ["uu"]}},
    {"columns": {"day": "date", "c": ["uu", "vv", "ww"]}},
    {"missing": "drop"},
    {"ngrams": {"column": "c", "size": 1}},
]


def texts_of(kind: Callable[[pa.Array], pa.Array]) -> pa.Table:
    rng = np.random.default_rng(0)
    a, day = rng.normal(size=120), np.datetime64("2024-01-01") + np.arange(120) % 28
    columns = {
        "c": pa.array([*rng.choice(["uu", "vv", "ww"], 119), None]),
        "day": pa.array(day.astype(str)),
        "site": pa.array([f"s{i % 9}" for i in range(120)]),
        "part": pa.array(np.where(np.arange(120) % 5 == 0, "held out", "rest")),
        "w": pa.array([str(1 + i % 3) for i in range(120)]),
        "y": pa.array(np.where(a > 0, "p", "q")),
    }
    return pa.table(
        {"a": a, **{name: kind(column) for name, column in columns.items()}}
    )


@pytest.mark.parametrize("ending", [".arrow", ".feather", ".parquet"])
@pytest.mark.parametrize("kind", TEXTS)
def test_texts_of_every_type_are_texts_in_every_role(
    tmp_path: Path, kind: str, ending: str
):
    table = texts_of(TEXTS[kind])
    plain = texts_of(lambda texts: texts)
    if ending == ".parquet" and "runs" in kind:
        pytest.skip("pyarrow writes no runs into Parquet")
    write(plain, tmp_path / "plain.parquet")
    if ending == ".parquet":
        pa.parquet.write_table(table, tmp_path / "other.parquet")
    else:
        with pa.ipc.new_file(tmp_path / f"other{ending}", table.schema) as writer:
            writer.write_table(table)
    for role in ROLES:
        expected, dataset = (
            quiet(tmp_path, "plain.parquet", **role),
            quiet(tmp_path, f"other{ending}", **role),
        )
        require_equal(dataset, expected)
        X, Z = (
            one.X.toarray() if "ngrams" in role else one.X[:]
            for one in (dataset, expected)
        )
        np.testing.assert_array_equal(X, Z)
    frame = plain.drop_columns(["y"]).to_pandas()
    model = Model.of_table(
        KernelLearningClassifier(learner="unif").fit(frame, plain["y"].to_pylist()),
        {"target": "y"},
    )
    scored = []
    for source in ("plain.parquet", f"other{ending}"):
        score_with(
            model,
            {},
            str(tmp_path / source),
            str(tmp_path / "out.csv"),
            ScoringOptions(("site", "c")),
        )
        scored.append((tmp_path / "out.csv").read_text())
    assert scored[0] == scored[1]


def test_dictionaries_lists_and_extensions_of_new_types_are_those_of_old_ones(
    tmp_path: Path,
):
    n, rng = 40, np.random.default_rng(0)
    words = pa.array(rng.choice(["uu", "vv", "ww"], n))
    lists = pa.array([["aa", "bb"], ["bb"]] * (n // 2))
    ids = [uuid.UUID(int=i).bytes for i in range(n)]
    plain = {
        "category": words.dictionary_encode(),
        "tokens": lists,
        "truth": pa.array(rng.random(n) > 0.5),
        "id": pa.array([str(uuid.UUID(bytes=of)) for of in ids]),
        "text": words,
        "price": pa.array([Decimal(f"{i}.25") for i in range(n)], pa.decimal128(7, 2)),
        "blob": pa.array([b"x"] * n),
        "y": pa.array(np.arange(n) / 7),
    }
    view = pa.string_view()
    other = plain | {
        "category": plain["category"].cast(pa.dictionary(pa.int32(), view)),
        "tokens": pa.array(lists.to_pylist(), pa.list_view(view)),
        "truth": pa.ExtensionArray.from_storage(
            pa.bool8(), plain["truth"].cast(pa.int8())
        ),
        "id": pa.ExtensionArray.from_storage(pa.uuid(), pa.array(ids, pa.binary(16))),
        "text": pa.ExtensionArray.from_storage(pa.json_(view), words.cast(view)),
        "price": plain["price"].cast(pa.decimal32(7, 2)),
        "blob": plain["blob"].cast(pa.binary_view()),
    }
    for name, columns in {"plain": plain, "other": other}.items():
        with pa.ipc.new_file(
            tmp_path / f"{name}.arrow", (table := pa.table(columns)).schema
        ) as writer:
            writer.write_table(table)
    for keys in (
        {},
        {"in_parts": True},
        {"groups": "id"},
        {"weights": "price"},
        {"ngrams": {"column": "tokens", "size": 1}},
    ):
        expected, dataset = (
            quiet(tmp_path, "plain.arrow", **keys),
            quiet(tmp_path, "other.arrow", **keys),
        )
        require_equal(dataset, expected)
        X, Z = (
            one.X.toarray() if "ngrams" in keys else one.X[:]
            for one in (dataset, expected)
        )
        np.testing.assert_array_equal(X, Z)
    frame = pd.DataFrame({"truth": plain["truth"].to_pylist()})
    model = Model.of_table(
        KernelLearningRegressor(learner="unif").fit(frame, np.arange(n)),
        {"target": "y"},
    )
    scored = []
    for name in ("plain.arrow", "other.arrow"):
        score_with(
            model,
            {},
            str(tmp_path / name),
            str(tmp_path / "out.csv"),
            ScoringOptions(("id", "price", "text")),
        )
        scored.append((tmp_path / "out.csv").read_text())
    assert scored[0] == scored[1]


def levels_at(
    places: list[int | None], index: pa.DataType, levels: list[str], ordered: bool
) -> pa.Array:
    return pa.DictionaryArray.from_arrays(
        pa.array(places, index), pa.array(levels), ordered=ordered
    )


def write_codes(
    folder: Path, codes: Iterable[pa.Array], ending: str = ".feather"
) -> str:
    """Write a file per array of 120 codes, next to a target."""
    for name, column in zip("abc", codes, strict=False):
        table = pa.table({"code": column, "y": np.arange(120) / 7})
        write(table, folder / f"{name}{ending}", 50)
    return str(folder)


PLACES = [2, 0, None, 1] * 30


@pytest.mark.parametrize("keys", [{}, {"in_parts": True}], ids=["memory", "parts"])
@pytest.mark.parametrize("is_ordered", [True, False])
def test_levels_with_indices_of_several_types_are_one_category(
    tmp_path: Path, keys: dict[str, Any], is_ordered: bool
):
    levels = ["9", "10", "11"]
    whole = write_codes(
        tmp_path / "whole", [levels_at(PLACES, pa.int8(), levels, is_ordered)] * 2
    )
    parts = write_codes(
        tmp_path / "parts",
        [
            levels_at(PLACES, index, levels, is_ordered)
            for index in (pa.int8(), pa.int32())
        ],
    )
    expected = quiet(tmp_path, whole)
    dataset = quiet(tmp_path, parts, **keys)
    assert dataset.table == expected.table
    assert (dataset.table.columns[0].levels == tuple(levels)) == is_ordered
    np.testing.assert_array_equal(dataset.X[:], expected.X)


@pytest.mark.parametrize("keys", [{}, {"in_parts": True}], ids=["memory", "parts"])
def test_levels_that_one_file_orders_are_a_category(
    tmp_path: Path, keys: dict[str, Any]
):
    levels = ["9", "10", "11"]
    parts = [levels_at(PLACES, pa.int8(), levels, ordered) for ordered in (True, False)]
    dataset = quiet(tmp_path, write_codes(tmp_path / "parts", parts), **keys)
    assert dataset.features == ("code=10", "code=11", "code=9", "code=missing")


LEVEL_ROLES: dict[str, dict[str, Any]] = {
    "feature": {"columns": {"code": "categorical", "x": "number"}},
    "groups": {"groups": "code"},
    "where": {"where": {"code": ["a7", "b99"]}},
}


@pytest.mark.parametrize("keys", [{}, {"in_parts": True}], ids=["memory", "parts"])
@pytest.mark.parametrize("role", LEVEL_ROLES.values(), ids=LEVEL_ROLES)
def test_levels_of_several_files_may_exceed_the_indices_of_one(
    tmp_path: Path, keys: dict[str, Any], role: dict[str, Any]
):
    for name in "ab":
        levels = [f"{name}{i}" for i in range(100)]
        codes = levels_at(list(range(100)), pa.int8(), levels, False)
        numbers = np.arange(100) % 7 / 3
        table = pa.table({"code": codes, "x": numbers, "y": np.arange(100) / 7})
        write(table, tmp_path / "levels" / f"{name}.parquet")
        write(
            table.set_column(0, "code", codes.dictionary_decode()),
            tmp_path / "texts" / f"{name}.parquet",
        )
    expected = quiet(tmp_path, "texts", **role)
    dataset = quiet(tmp_path, "levels", **role, **keys)
    np.testing.assert_array_equal(dataset.X[:], expected.X)
    np.testing.assert_array_equal(dataset.groups, expected.groups)


@by_ending
@pytest.mark.parametrize("keys", [{"drop": ["note"]}, {"features": ["a", "n", "c"]}])
def test_columns_that_are_left_out_may_differ_between_files(
    tmp_path: Path, ending: str, keys: dict[str, Any]
):
    divided(tmp_path / "parts", ending, rows())
    expected = quiet(tmp_path, "parts")
    (first, second, third) = sorted((tmp_path / "parts").iterdir())
    for file, notes in ((first, "late"), (second, np.nan)):
        with Table(locations_of(str(file))) as table:
            frame = table.select(table.schema.names).to_pandas()
        write(frame.assign(note=notes), file)
    said = f"{third.name} has no column 'note'"
    with pytest.raises(InputError, match=said):
        quiet(tmp_path, "parts")
    dataset = quiet(tmp_path, "parts", **keys)
    np.testing.assert_array_equal(dataset.X, expected.X)


def test_a_name_that_no_file_has_is_refused_among_columns_left_out(tmp_path: Path):
    divided(tmp_path / "parts", ".csv", rows())
    with pytest.raises(
        InputError, match=r"drop 'note' is not a column of a\.csv and 2"
    ):
        quiet(tmp_path, "parts", drop=["note"])


def test_orders_that_differ_are_refused_with_indices_of_several_types(tmp_path: Path):
    parts = [
        levels_at(PLACES, pa.int8(), ["low", "mid", "high"], True),
        levels_at(PLACES, pa.int32(), ["low", "high", "mid"], True),
    ]
    said = "'code' must have its levels in one order in all files"
    with pytest.raises(InputError, match=said):
        quiet(tmp_path, write_codes(tmp_path / "parts", parts))


CODES = pa.array(["3", "1", None, "2"] * 30)


@pytest.mark.parametrize("ending", [".parquet", ".feather"])
@pytest.mark.parametrize("is_ordered", [False, True])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_parts_have_the_types_of_all_files(
    tmp_path: Path, state: Path, ending: str, is_ordered: bool, is_reversed: bool
):
    categories = levels_at(PLACES, pa.int8(), ["1", "2", "3"], is_ordered)
    columns = [categories, CODES, pa.nulls(120)]
    if is_reversed:
        columns.reverse()
    path = write_codes(tmp_path / "d", columns, ending)
    expected = quiet(tmp_path, path)
    dataset = quiet(tmp_path, path, in_parts=True)
    assert dataset.table == expected.table
    np.testing.assert_array_equal(dataset.X[:], expected.X)
    again = load_dataset(store_dataset(dataset, "d", path))
    np.testing.assert_array_equal(again.X[:], expected.X)


def test_integers_that_are_no_floats_in_parts_are_refused_as_in_memory(tmp_path: Path):
    columns = [pa.array([2**60 + 1, 2] * 60), pa.array([0.5, 2.0] * 60)]
    path = write_codes(tmp_path / "d", columns)
    said = "a.feather:? cannot be read as feather"
    require_refusals(
        [
            (partial(quiet, tmp_path, path, in_parts=in_parts), said)
            for in_parts in (None, True)
        ],
        error=InputError,
    )


def test_enums_of_polars_in_several_files_are_nominal(tmp_path: Path):
    levels = ["low", "mid", "high"]
    for name in "ab":
        size = pl.Series([levels[row % 3] for row in range(120)], dtype=pl.Enum(levels))
        frame = pl.DataFrame({"size": size, "y": np.arange(120) / 7})
        frame.write_parquet(tmp_path / f"{name}.parquet")
    for keys in ({}, {"in_parts": True}):
        dataset = quiet(tmp_path, "*.parquet", **keys)
        assert dataset.features == ("size=high", "size=low", "size=mid")


NUMBERS = {
    "decimals of other scales": (
        [(pa.decimal128(5, 2), "1.25"), (pa.decimal128(7, 3), "1.375")],
        pa.decimal128(7, 3),
    ),
    "decimals of other widths": (
        [(pa.decimal32(5, 2), "1.25"), (pa.decimal128(20, 0), "3")],
        pa.decimal128(22, 2),
    ),
    "a decimal and a whole number": (
        [(pa.int64(), str(2**62)), (pa.decimal128(5, 2), "1.25")],
        pa.decimal128(22, 2),
    ),
    "a decimal and a float": (
        [(pa.decimal128(5, 2), "1.25"), (pa.float32(), "1.5")],
        pa.float64(),
    ),
    "all kinds": (
        [
            (pa.int8(), "3"),
            (pa.float64(), "0.5"),
            (pa.decimal128(5, 2), "1.25"),
            (pa.null(), None),
        ],
        pa.float64(),
    ),
    "decimals that no type holds": (
        [(pa.decimal128(38, 0), "3"), (pa.decimal128(38, 30), "1.25")],
        pa.float64(),
    ),
    "whole numbers": ([(pa.int8(), "3"), (pa.int64(), "4")], pa.int64()),
    "whole numbers without a sign": (
        [(pa.int8(), "3"), (pa.uint64(), "4")],
        pa.float64(),
    ),
}


@pytest.mark.parametrize(("parts", "joined"), NUMBERS.values(), ids=NUMBERS)
def test_numbers_of_every_type_in_parts_are_one_column(
    tmp_path: Path, parts: list[tuple[Any, Any]], joined: Any
):
    expected = []
    for i, (kind, value) in enumerate(parts):
        numbers = (
            [value, None]
            if value is None
            else [Decimal(value), Decimal(int(Decimal(value)))]
        )
        cells = [None if number is None else float(number) for number in numbers * 10]
        text = pa.array(
            [None if number is None else str(number) for number in numbers * 10]
        )
        column = (
            text.cast(pa.decimal128(38, 6)).cast(kind)
            if value and not pa.types.is_decimal(kind)
            else text.cast(kind)
        )
        write(
            pa.table({"x": column, "y": np.arange(20.0), "w": np.ones(20)}),
            tmp_path / "d" / f"{i}.parquet",
        )
        expected += cells
    with Table(locations_of(str(tmp_path / "d"))) as table:
        assert table.schema.field("x").type == joined
    for keys in ({}, {"in_parts": True}):
        dataset = quiet(tmp_path, "d", columns={"x": "number"}, **keys)
        filled = np.nan_to_num(
            np.array(expected, dtype=float),
            nan=float(np.nanmedian(np.array(expected, dtype=float))),
        )
        np.testing.assert_array_equal(dataset.X[:][:, 0], filled)
    # Smaller weights do not count
    if None not in expected and max(expected) < 1e15 * min(expected):
        weights = np.array(expected) / np.mean(expected)
        np.testing.assert_allclose(
            quiet(tmp_path, "d", weights="x").weights, weights, rtol=1e-14
        )


def compressed(ending: str, content: bytes) -> bytes:
    if ending == ".gz":  # of two members, as programs write that work in parallel
        return gzip.compress(content[:99]) + gzip.compress(content[99:])
    if ending == ".bz2":
        return bz2.compress(content[:99]) + bz2.compress(content[99:])
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, COMPRESSIONS[ending]) as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def test_an_encoding_that_shows_late_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(table_files, "SAMPLE_BYTES", 1 << 10)
    monkeypatch.setattr(table_files, "BLOCK_BYTES", 1 << 12)
    names = [f"site {i}" for i in range(3000)] + ["Zoé"] * 500
    lines = [f"{i},{text},{i % 7}" for i, text in enumerate(names)]
    (tmp_path / "late.csv").write_bytes(
        "\n".join(["x,site,y", *lines]).encode("cp1252")
    )
    with Table(locations_of(str(tmp_path / "late.csv"))) as table:
        assert table.notes == []
        pieces = list(table.tables(["site", "x"], 100))
        assert table.notes == ["late.csv is not UTF-8, and is read as cp1252"]
        assert pa.concat_tables(pieces).to_pydict() == {
            "site": names,
            "x": [str(i) for i in range(3500)],
        }
        assert table.select(["site"])["site"].to_pylist() == names
    told: list[str] = []
    with columns_remembered():
        for _ in range(2):
            load(tmp_path, "late.csv", target="y", groups="site", tell=told.append)
    assert told == ["data set late: late.csv is not UTF-8, and is read as cp1252."] * 2


def test_empty_lines_above_a_late_encoding_repeat_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(table_files, "SAMPLE_BYTES", 1 << 10)
    monkeypatch.setattr(table_files, "BLOCK_BYTES", 1 << 12)
    lines = [f"{i},{'Zoé' if i >= 3000 else 'site'}" for i in range(3500)]
    lines[1000:1000] = [""] * 3
    (tmp_path / "late.csv").write_bytes(
        "\n".join(["x,site", "", "", *lines]).encode("cp1252")
    )
    with Table(locations_of(str(tmp_path / "late.csv"))) as table:
        for names in (["site", "x"], ["x"]):  # the second is read as cp1252
            numbers = table.select(names)["x"].to_pylist()
            assert numbers == [str(i) for i in range(3500)]


@pytest.mark.parametrize("ending", COMPRESSIONS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_compressed_texts_are_read_as_texts(tmp_path: Path, ending: str, encoding: str):
    whole = rows().assign(c=np.where(rows()["c"] == "x", "\u00e4", "y"))
    write(whole, tmp_path / "whole.csv")
    for name, part in {
        "1.csv": whole[:60],
        f"2.csv{ending}": whole[60:],
        f"all.CSV{ending}": whole,
    }.items():
        content = part.to_csv(index=False).encode(encoding)
        packed = compressed(ending, content) if name.endswith(ending) else content
        place = tmp_path / ("d" if name[0] in "12" else "") / name
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(packed)
    expected = quiet(tmp_path, "whole.csv")
    for path in ("d", f"all.CSV{ending}", "d/*.csv*"):
        dataset = quiet(tmp_path, path)
        require_equal(dataset, expected)
        np.testing.assert_array_equal(dataset.X, expected.X)
    cut = (tmp_path / f"all.CSV{ending}").read_bytes()[:-20]
    (tmp_path / f"cut.csv{ending}").write_bytes(cut)
    with pytest.raises(InputError, match=rf"cut\.csv\{ending} cannot be read as csv"):
        quiet(tmp_path, f"cut.csv{ending}")
    write("0 1:1 2:2\n1 4:3\n", tmp_path / "t.svm")
    (tmp_path / f"u.svm{ending}").write_bytes(compressed(ending, b"0 1:1 2:2\n1 4:3\n"))
    np.testing.assert_array_equal(
        quiet(tmp_path, f"u.svm{ending}").X.toarray(),
        quiet(tmp_path, "t.svm").X.toarray(),
    )


UNREAD = [
    "2.xlsx",
    "2.json",
    "2.tsv",
    "2.csv.zip",
    "2.csv.xz",
    "2.parquet.gz",
    "2.arrow.zst",
    "2.csv.bak",
    "2.PQ",
    "b/2.orc",
]
UNSAID = [
    "_SUCCESS",
    ".1.csv.crc",
    "1.csv.md5",
    "README",
    "README.md",
    "notes.txt",
    "folds.npy",
    "_old/2.csv",
    ".tmp/2.xlsx",
]


@pytest.mark.parametrize("name", UNREAD)
def test_files_that_look_like_parts_and_are_not_read_are_named(
    tmp_path: Path, name: str
):
    write(rows(), tmp_path / "d" / "1.csv")
    for other in UNSAID:
        write("", tmp_path / "d" / other)
    assert len(quiet(tmp_path, "d").target) == 120
    write("", tmp_path / "d" / name)
    said = rf"d: holds '{name.rpartition('/')[2]}', which cannot be read, next to 1\.csv; .* pattern such as \*\.csv"
    with pytest.raises(InputError, match=said):
        quiet(tmp_path, "d")
    assert len(quiet(tmp_path, "d/*.csv").target) == 120
    (tmp_path / "d" / "1.csv").unlink()
    with pytest.raises(
        InputError, match=rf"holds no table, .*convert '{name.rpartition('/')[2]}'"
    ):
        quiet(tmp_path, "d")


def test_a_file_with_and_without_compression_is_refused(tmp_path: Path):
    write(rows(), tmp_path / "d" / "1.csv")
    (tmp_path / "d" / "1.csv.gz").write_bytes(b"")
    with pytest.raises(
        InputError,
        match=r"holds '1\.csv', '1\.csv\.gz', which look like copies of each other",
    ):
        quiet(tmp_path, "d")


def as_lines(header: str, row_end: str) -> str:
    frame = rows()
    lines = [
        f"{a},{n},{c},{y}{row_end}" for a, n, c, y in frame.itertuples(index=False)
    ]
    return "\n".join([header, *lines, ""])


WIDER = {
    "one column": ("a,n,c,y,", ","),
    "three columns": ("a,n,c,y,,,", ",,,"),
    "blanks": ("a,n,c,y, ,", ", ,"),
    "words for missing values": ("a,n,c,y,,", ",NA,"),
    "as pandas writes them": ("a,n,c,y,Unnamed: 4,Unnamed: 5", ",,"),
    "of rows alone": ("a,n,c,y", ",,"),
    "of the header alone": ("a,n,c,y,,", ""),
}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize(("header", "row_end"), WIDER.values(), ids=WIDER)
def test_empty_columns_without_a_name_are_left_out_and_said(
    tmp_path: Path, header: str, row_end: str, delimiter: str
):
    write(as_lines("a,n,c,y", ""), tmp_path / "plain.csv")
    write(as_lines(header, row_end).replace(",", delimiter), tmp_path / "wider.csv")
    told: list[str] = []
    expected, dataset = (
        quiet(tmp_path, "plain.csv"),
        load(tmp_path, "wider.csv", tell=told.append, target="y"),
    )
    require_equal(dataset, expected)
    np.testing.assert_array_equal(dataset.X, expected.X)
    assert told == (
        ["data set wider: empty columns without a name are left out of wider.csv."]
        if row_end
        else []
    )
    parts = quiet(tmp_path, ["plain.csv", "wider.csv"])
    assert (parts.features, len(parts.target)) == (expected.features, 240)
    frame = rows()
    model = Model.of_table(
        KernelLearningRegressor(learner="unif").fit(frame[["a", "n", "c"]], frame["y"]),
        {"target": "y"},
    )
    scored = []
    for source in ("plain.csv", "wider.csv"):
        scores = score_with(
            model,
            {},
            str(tmp_path / source),
            str(tmp_path / "out.csv"),
            ScoringOptions(),
        )
        assert scores.ignored == []
        scored.append(((tmp_path / "out.csv").read_text(), scores.cells))
    assert scored[0][0] == scored[1][0]
    assert scored[1][1] == (
        ["empty columns without a name are left out of wider.csv"] if row_end else []
    )


NAMELESS = {
    "a,b,y,,\n"
    + "1,2,3,x,\n1,2,3,,z\n": "columns 4, 5 have values and no name in the header; name them",
    "a,b,y\n"
    + "0,1,2,3\n1,4,5,6\n": "its header has 3 cells, and the first row below 4",
    "a,b,y\n" + "1,2,3\n4,5,6,\n": "Row #3: Expected 3 columns, got 4",
    ",,\n,,\n": "it has no column with a name or a value",
    "\n": "it is empty",
}


def test_columns_with_values_and_no_name_are_named_by_number(tmp_path: Path):
    for text, said in NAMELESS.items():
        write(text, tmp_path / "t.csv")
        with pytest.raises(
            InputError,
            match=rf"data set t: t\.csv cannot be read as csv \(.*{re.escape(said)}",
        ):
            quiet(tmp_path, "t.csv")
    write(rows().to_csv(), tmp_path / "indexed.csv")  # one such column is an index
    assert quiet(tmp_path, "indexed.csv").features == quiet_features(tmp_path)


def quiet_features(folder: Path) -> Any:
    write(rows(), folder / "plain.csv")
    return quiet(folder, "plain.csv").features


# One table in every format, in Python, in parts and through a model has the same features to the last bit ------------


TEXT = {
    "encoding": ["utf-8", "utf-8-sig", "utf-16", "latin-1"],
    "lineterminator": ["\n", "\r\n"],
}
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
@given(
    frame=tables(),
    text=st.fixed_dictionaries(
        {name: st.sampled_from(of) for name, of in TEXT.items()}
    ),
)
def test_a_table_is_the_same_in_every_format(frame: pd.DataFrame, text: dict[str, str]):
    with tempfile.TemporaryDirectory() as name:
        folder, keys = (
            Path(name),
            {"target": "y", "scale": "standard", "tell": str, "columns": {}},
        )
        X = frame.drop(columns="y")
        encoding = TableEncoding.of(X)
        expected = encoding.encode(X)
        for native in (pl.from_pandas, pa.Table.from_pandas):
            for ours, theirs in zip(
                TableEncoding.of(native(X)).columns, encoding.columns, strict=True
            ):
                assert ours == theirs
            np.testing.assert_array_equal(encoding.encode(native(X)), expected)
        frame.to_csv(folder / "data.csv", index=False, **text)
        stored = pa.Table.from_pandas(frame, preserve_index=False)
        for ending in (".parquet", ".arrow", ".feather"):
            write(stored, folder / f"data{ending}", 11)
        for ending in (".csv", ".parquet", ".arrow", ".feather"):
            dataset = load(folder, f"data{ending}", **keys)
            for ours, theirs in zip(
                dataset.table.columns, encoding.columns, strict=True
            ):
                assert ours == theirs
            np.testing.assert_array_equal(dataset.X, expected)
            with Table(
                [locate(str(folder / f"data{ending}"))]
            ) as pieces:  # as rows to predict are read
                features = [
                    encoding.encode(piece)
                    for piece in pieces.tables(encoding.names, 17)
                ]
            np.testing.assert_array_equal(np.concatenate(features), expected)
        for rows in (7, 23):
            write(stored, folder / "parts" / "data.parquet", rows)
            np.testing.assert_array_equal(
                load(folder, "parts", **keys, in_parts=True).X[:], expected
            )
