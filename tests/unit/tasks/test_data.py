"""Ingestion: every format gives the same data set, and every fault its own sentence."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_breast_cancer

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import ENDINGS as NAMED_ENDINGS
from learnkernels.conf.schema import DatasetConfig
from learnkernels.tasks.data.dataset import dataset_digest, load_dataset, store_dataset
from learnkernels.tasks.data.ingest import load_source
from learnkernels.tasks.data.locations import LIBSVM, locate
from learnkernels.tasks.data.opening import TABLES
from learnkernels.tasks.data.readers import NumberedNames
from learnkernels.tasks.data.scaling import _deviations
from learnkernels.tasks.data.streams import INPUTS
from tests.sources import ENDINGS, load, require_equal, require_refusals, write
from tools.mutations import is_sentence

ROOT = Path(__file__).resolve().parents[3]
FEATURES = ["a", "b", "c"]


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(30, 3)).round(3), columns=FEATURES)
    frame["b"] = rng.integers(0, 5, 30)
    frame["target"] = np.where(frame["a"] > 0, "yes", "no")
    return frame


def test_every_table_format_gives_the_same_data_set_and_digest(frame: pd.DataFrame, tmp_path: Path):
    assert (*TABLES, *LIBSVM) == NAMED_ENDINGS
    digests = set()
    for ending in ENDINGS:
        write(frame, tmp_path / f"data{ending}")
        dataset = load(tmp_path, f"data{ending}")
        np.testing.assert_array_equal(dataset.X, frame[FEATURES].to_numpy(float))
        assert (dataset.features, dataset.target.classes) == (("a", "b", "c"), ("no", "yes"))
        np.testing.assert_array_equal(dataset.target.values, (frame["target"] == "yes").to_numpy(int))
        digests.add(dataset_digest(dataset))
    assert len(digests) == 1
    frame.loc[0, "a"] += 1e-9
    write(frame, tmp_path / "data.parquet")
    assert dataset_digest(load(tmp_path, "data.parquet")) not in digests


def test_a_column_that_is_there_twice_is_named(frame: pd.DataFrame, tmp_path: Path):
    refused = []
    for ending, twice in product(ENDINGS[:3], ["a", "target"]):
        columns = [*frame.columns, twice]
        (tmp_path / twice).mkdir(exist_ok=True)
        if ending == ".csv":
            (tmp_path / twice / "data.csv").write_text("\n".join([",".join(columns), "1,2,3,4,5", "2,1,3,4,5"]))
        else:
            table = pa.table([pa.array(frame[name]) for name in columns], names=columns)
            write(table, tmp_path / twice / f"data{ending}")
        said = f"data set data: data{ending} has column '{twice}' more than once; rename"
        refused.append((partial(load, tmp_path / twice, f"data{ending}"), said))
    require_refusals(refused)


def test_libsvm_rows_stay_sparse(frame: pd.DataFrame, tmp_path: Path):
    X = frame[FEATURES].to_numpy()
    dump_svmlight_file(X, np.where(frame["target"] == "yes", 1, -1), str(tmp_path / "data.libsvm"), zero_based=False)
    dataset = load(tmp_path, "data.libsvm")
    assert sparse.issparse(dataset.X)
    np.testing.assert_allclose(dataset.X.toarray(), X)
    assert dataset.target.classes == ("-1", "1")


def test_numbered_names_are_those_of_a_tuple():
    names, plain = NumberedNames(12), tuple(f"f{i}" for i in range(12))
    assert names == plain
    assert plain == names
    assert list(names) == list(plain)
    assert (names[3:5], names[-1], names.index("f7")) == (plain[3:5], plain[-1], 7)
    assert not [name for name in ("f12", "f07", "g1", "f", "f-1", 3) if name in names]
    with pytest.raises(ValueError, match="is none of f0 to f11"):
        names.index("f12")


def test_bundled_sets_keep_their_names():
    dataset = load_source(DatasetConfig(source="sklearn", name="breast_cancer"))
    assert dataset.target.classes == ("benign", "malignant")
    np.testing.assert_array_equal(dataset.X, load_breast_cancer().data)
    assert dataset.features[0] == "mean radius"


def test_the_task_follows_from_the_target(tmp_path: Path):
    tasks = {}
    for values in ([0.1, 0.5, 0.9], [1, 2, 1], [1.0, -1.0, 1.0], range(40), ["x", "y", "x"], [True, False, True]):
        write(pd.DataFrame({"a": np.arange(40.0), "target": ([*values] * 14)[:40]}), tmp_path / "data.parquet")
        tasks[str(values)] = load(tmp_path, "data.parquet").target.task
    assert list(tasks.values()) == ["regression", *["classification"] * 2, "regression", *["classification"] * 2], tasks


def test_positive_codes_some_values_against_the_rest(frame: pd.DataFrame, tmp_path: Path):
    write(frame, tmp_path / "data.parquet")
    signs = np.where(frame["target"] == "yes", 1.0, -1.0)
    regression = load(tmp_path, "data.parquet", positive="yes", task="regression").target
    np.testing.assert_array_equal(regression.values, signs)
    classes = load(tmp_path, "data.parquet", positive="yes").target
    assert classes.classes == ("rest", "yes")
    np.testing.assert_array_equal(classes.Y[:, 0], signs)
    write(pd.DataFrame({"a": np.arange(20.0), "target": np.arange(20) % 10}), tmp_path / "digits.parquet")
    odd = load(tmp_path, "digits.parquet", positive=[1, 3, 5, 7, 9]).target
    assert odd.classes == ("rest", "1, 3, 5, 7, 9")
    np.testing.assert_array_equal(odd.values, np.arange(20) % 2)
    said = "'positive' must be one of several values of the target"
    refused = {(1, 11): f"{said}, got '1', '11'; ", tuple(range(10)): said}
    require_refusals((partial(load, tmp_path, "digits.parquet", positive=[*of]), said) for of, said in refused.items())


def test_columns_are_scaled(frame: pd.DataFrame, tmp_path: Path):
    frame["constant"] = 7.0
    write(frame, tmp_path / "data.parquet")
    unit, largest, standard = (load(tmp_path, "data.parquet", scale=scale).X for scale in ("unit", "max", "standard"))
    np.testing.assert_allclose([unit.min(axis=0), unit.max(axis=0)], [[0, 0, 0, 0], [1, 1, 1, 0]])
    np.testing.assert_allclose(largest, frame.drop(columns="target") / frame.drop(columns="target").abs().max())
    np.testing.assert_allclose([standard.mean(axis=0), standard.std(axis=0)], [[0] * 4, [1, 1, 1, 0]], atol=1e-12)


def test_sparse_rows_are_not_filled_by_scaling(tmp_path: Path):
    X = np.array([[0.0, -1.0], [2.0, 0.0], [0.0, 3.0]] * 4)
    dump_svmlight_file(X, [0, 1, 0] * 4, str(tmp_path / "data.libsvm"))
    said = "would fill this sparse data set's zeros"
    require_refusals((partial(load, tmp_path, "data.libsvm", scale=scale), said) for scale in ("standard", "unit"))
    dump_svmlight_file(np.abs(X), [0, 1, 0] * 4, str(tmp_path / "data.libsvm"))
    assert load(tmp_path, "data.libsvm", scale="unit").X.max() == 1.0


def test_a_subsample_is_drawn_by_the_seed(frame: pd.DataFrame, tmp_path: Path):
    write(frame, tmp_path / "data.parquet")
    few, again, other = (load(tmp_path, "data.parquet", seed, subsample=12).X for seed in (3, 3, 4))
    assert few.shape == (12, 3)
    np.testing.assert_array_equal(few, again)
    assert not np.array_equal(few, other)


@pytest.mark.parametrize("ending", [".parquet", ".libsvm"])
def test_a_stored_data_set_comes_back_as_it_was(
    frame: pd.DataFrame, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path / "state"))
    write(frame, tmp_path / "data.parquet")
    dump_svmlight_file(frame[FEATURES].to_numpy(), frame["b"].to_numpy() % 2, str(tmp_path / "data.libsvm"))
    dataset = load(tmp_path, f"data{ending}")
    ref = store_dataset(dataset, "data", "somewhere")
    back = load_dataset(ref)
    assert dataset_digest(back) == ref.digest
    require_equal(back, dataset)
    assert sorted(path.name[0] for path in Path(ref.path).parent.iterdir()) == [ref.digest[0]]


# What is refused ------------------------------------------------------------------------------------------------------


def among(fill: Any, others: dict[int, Any]) -> list[Any]:
    """Return a column of 30 rows that holds one value but in some rows."""
    return [others.get(row, fill) for row in range(30)]


GAPS = {"a": among(0.5, {3: np.nan, 4: np.nan}), "c": among(0.5, {7: np.inf})}
LACK = {"target": among("yes", {0: "no", 5: None})}
PART = {"part": ["test", "train", "train"] * 10}
TWICE = {"b": lambda t: np.where(t["b"] > 1, "x", "y"), "a": GAPS["a"]}
FILLED = r"missing values in column a .*set 'missing: impute'.*'missing: drop'"
NO_TARGET = "target 'target' is missing or not finite in 1 of 30 rows"
FAULTY = [
    (GAPS, {"missing": "refuse"}, r"NaN, infinity or missing values in column a \(2\), c \(1\) of 30 rows"),
    (GAPS, {}, "data set data: column 'c' must hold finite numbers or gaps, got infinity in 1 of 30 rows"),
    ({"a": GAPS["a"]}, {"missing": "refuse"}, FILLED),
    (TWICE, {"missing": "refuse"}, FILLED),
    ({"c": np.nan}, {"missing": "drop"}, "data set data: no row is complete, so 'missing: drop' leaves none"),
    ({"target": "yes"}, {}, r"at least two classes, got only \['yes'\]"),
    (LACK, {"missing": "refuse"}, NO_TARGET),
    ({"target": among(0.7, {0: 0.1, 1: 0.2, 2: np.nan})}, {"missing": "refuse"}, NO_TARGET),
    ({}, {"drop": FEATURES}, "leaves 30 rows and 0 feature columns"),
    ({}, {"target": "zz"}, "target 'zz' is not a column of data.parquet; it has a, b, c, target"),
    ({}, {"drop": ["zz"]}, "drop 'zz' is not a column of data.parquet"),
    ({}, {"where": {"zz": 1}}, "where 'zz' is not a column of data.parquet"),
    ({}, {"where": {"b": [1, 9]}}, "no row has '9' in column 'b' of 'where'; it holds '0', '1', '2', '3', '4'"),
    ({}, {"where": {"a": "x"}}, r"no row has 'x' in column 'a' of 'where'; it holds .* and 18 more"),
    (
        {"part": lambda t: np.where(t["b"] == 1, "y", "x")},
        {"where": {"b": 1, "part": "x"}},
        "no row has the values of 'where' in all its columns",
    ),
    ({"b": [[1.0]] * 30}, {"where": {"b": 1}}, "column 'b' of 'where' is list<.*>; name one of text or numbers"),
    ({}, {"where": {"a": 0.126, "b": 4, "c": 0.640}}, "leaves 1 rows and 0 feature columns"),
    (PART, {"test": {"part": "tset"}}, "no row has 'tset' in column 'part' of 'test'; it holds 'test', 'train'"),
    (PART, {"test": {"part": ["test", "train"]}}, "every row has the values of 'test', so none is left to learn from"),
    (PART, {"test": {"prat": "test"}}, "test 'prat' is not a column of data.parquet"),
    ({}, {"bytes": "zz"}, "bytes 'zz' is not a column of data.parquet"),
    ({}, {"bytes": "b"}, r"column 'b' of 'bytes' is not binary \(int"),
    ({"b": [b"ab", b"a"] * 15}, {"bytes": "b"}, "'b' of 'bytes' holds values of 1 to 2 bytes; all must have one l"),
    ({"b": [b""] * 30}, {"bytes": "b"}, "'b' of 'bytes' holds values of 0 to 0 bytes; all must have one length"),
    ({"b": [None] + [b"ab"] * 29}, {"bytes": "b"}, "column 'b' of 'bytes' is missing in 1 of 30 rows"),
    ({}, {"ngrams": {"column": "zz"}}, "ngrams 'zz' is not a column of data.parquet"),
    ({}, {"task": "regression"}, r"target 'target' is text \('no', 'yes'\), which a regression cannot use"),
    ({}, {"positive": "maybe"}, "'positive' must be one of several values of the target, got 'maybe'.*'no', 'yes'"),
]


def test_a_faulty_table_gets_one_sentence(frame: pd.DataFrame, tmp_path: Path):
    refused = []
    for row, (columns, keys, said) in enumerate(FAULTY):
        write(frame.assign(**columns), tmp_path / str(row) / "data.parquet")
        refused.append((partial(load, tmp_path / str(row), "data.parquet", **keys), said))
    write(frame[["target"]], tmp_path / "only" / "data.parquet")
    refused.append((partial(load, tmp_path / "only", "data.parquet"), "leaves 30 rows and 0 feature columns"))
    require_refusals(refused)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    texts = {
        "data.parquet": ("hello", r"data\.parquet cannot be read as parquet"),
        "data.xlsx": ("hello", r"cannot read data.xlsx; supported endings: .parquet, .csv"),
        "data.libsvm": ("1 a:b", "cannot be read as LIBSVM text"),
    }
    for name, (text, _) in texts.items():
        (tmp_path / name).write_text(text)
    refused = [("gone.csv", r"there is no file .*gone\.csv"), *((name, said) for name, (_, said) in texts.items())]
    require_refusals((partial(load, tmp_path, name), said) for name, said in refused)


def test_keys_that_name_columns_do_not_go_with_files_without_names(tmp_path: Path):
    (tmp_path / "data.libsvm").write_text("1 1:2\n-1 1:3\n")
    keys = {"where": {"f0": 1}, "bytes": "f0", "ngrams": {"column": "f0"}, "drop": ["f0"], "features": "f0"}
    keys |= {"columns": {"f0": "categorical"}, "groups": "f0"}
    said = "'{}' does not go with data.libsvm, whose columns have no names"
    require_refusals(
        (partial(load, tmp_path, "data.libsvm", **{key: value}), said.format(key)) for key, value in keys.items()
    )


# Which rows are kept --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text", "numbers"])
def test_rows_with_missing_values_are_dropped_where_that_is_asked_for(frame: pd.DataFrame, tmp_path: Path, kind: str):
    table = frame.astype({"b": "Int64"})  # whole numbers with nulls, as Parquet holds them
    if kind == "numbers":
        table["target"] = (frame["a"] > 0).astype("Int64")
    table.loc[[3, 4], "a"] = np.nan
    table.loc[7, "c"] = np.inf
    table.loc[[4, 9], "b"] = pd.NA
    table.loc[[9, 20], "target"] = pd.NA if kind == "numbers" else None
    write(table, tmp_path / "data.parquet")
    nulls = pyarrow.parquet.read_table(tmp_path / "data.parquet")
    assert [nulls[name].null_count for name in ("b", "target")] == [2, 2]
    dataset = load(tmp_path, "data.parquet", missing="drop")
    kept = frame.drop(index=[3, 4, 7, 9, 20])
    np.testing.assert_array_equal(dataset.X, kept[FEATURES].to_numpy(float))
    np.testing.assert_array_equal(dataset.target.values, (kept["target"] == "yes").to_numpy(int))
    assert dataset.target.classes == (("no", "yes") if kind == "text" else ("0", "1"))


def test_rows_with_missing_values_of_a_sparse_file_are_dropped(tmp_path: Path):
    text = ["1 1:2 2:1", "-1 1:nan 3:1", "1", "-1 3:4", "nan 1:1", "-1 2:inf", "1 2:3"]
    (tmp_path / "data.libsvm").write_text("\n".join(text))
    dataset = load(tmp_path, "data.libsvm", missing="drop")
    assert sparse.issparse(dataset.X)
    np.testing.assert_array_equal(dataset.X.toarray(), [[2, 1, 0], [0, 0, 0], [0, 0, 4], [0, 3, 0]])
    assert [dataset.target.classes[value] for value in dataset.target.values] == ["1", "1", "-1", "1"]
    with pytest.raises(InputError, match=r"target 'target' is missing .* in 1 of 7 rows; .*'missing: drop'"):
        load(tmp_path, "data.libsvm", missing="refuse")


def test_rows_without_a_target_are_left_out_with_a_word(frame: pd.DataFrame, tmp_path: Path):
    frame.loc[[3, 8], "target"] = None
    write(frame, tmp_path / "data.parquet")
    said: list[str] = []
    dataset = load(tmp_path, "data.parquet", tell=said.append)
    assert len(dataset.X) == len(dataset.target) == 28
    assert said == ["data set data: 2 of 30 rows have no target, and are left out."]


@pytest.mark.parametrize("ending", ENDINGS[:3])
def test_where_keeps_rows_by_text_and_numbers(frame: pd.DataFrame, tmp_path: Path, ending: str):
    frame["part"] = np.where(frame["c"] > 0, "one", "two")
    frame["half"] = frame["b"] / 2
    frame["flag"] = frame["a"] > -0.5
    write(frame, tmp_path / f"data{ending}")
    for where, kept in (
        ({"part": "one"}, frame["part"] == "one"),
        ({"b": [1, 3]}, frame["b"].isin([1, 3])),
        ({"b": "1", "half": [0.5, 2.0]}, frame["b"] == 1),
        ({"half": [1, 1.5]}, frame["b"].isin([2, 3])),
        ({"flag": False}, ~frame["flag"]),
        ({"target": "yes", "part": ["one", "two"]}, frame["target"] == "yes"),
    ):
        left = [name for name in ("b", "c", "half") if name not in where]
        dataset = load(tmp_path, f"data{ending}", where=where, target="a", drop=["part", "flag", "target"])
        assert dataset.features == tuple(left)
        np.testing.assert_array_equal(dataset.X, frame.loc[kept, left].to_numpy(float))
        np.testing.assert_array_equal(dataset.target.values, frame.loc[kept, "a"])


def test_where_may_choose_among_the_classes_and_leaves_out_what_is_missing(frame: pd.DataFrame, tmp_path: Path):
    frame["target"] = ["x", "y", "z", None, "x"] * 6
    frame["part"] = ["p", "p", None] * 10
    write(frame, tmp_path / "data.parquet")
    dataset = load(tmp_path, "data.parquet", where={"target": ["x", "y"], "part": "p"})
    kept = frame["target"].isin(["x", "y"]) & (frame["part"] == "p")
    assert (dataset.features, dataset.target.classes) == (("a", "b", "c"), ("x", "y"))
    np.testing.assert_array_equal(dataset.X, frame.loc[kept, FEATURES].to_numpy(float))


def test_where_reads_dictionaries_as_what_they_hold(frame: pd.DataFrame, tmp_path: Path):
    names = [f"part {i}" for i in range(128)]  # as many as an int8 has codes for, and one more for what is missing
    frame["part"] = pd.Categorical.from_codes([-1, *range(99, 128)], names)
    write(frame, tmp_path / "data.parquet")
    where = {"part": ["part 127", "part 120"]}
    dataset = load(tmp_path, "data.parquet", where=where, target="c", drop=["target"])
    np.testing.assert_array_equal(dataset.X, frame.loc[[22, 29], ["a", "b"]].to_numpy(float))


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_rows_that_test_are_marked_and_follow_the_others(frame: pd.DataFrame, tmp_path: Path, ending: str):
    frame["part"] = np.where(np.arange(30) % 3 == 0, "test", "train")
    frame.loc[[4, 9], "c"] = np.nan
    frame.loc[20] = frame.loc[10]
    write(frame, tmp_path / f"data{ending}")
    keys = {"test": {"part": "test"}, "where": {"b": [0, 1, 2, 3]}, "missing": "drop", "distinct": True}
    dataset = load(tmp_path, f"data{ending}", **keys)
    kept = frame[frame["b"] < 4].dropna().drop_duplicates()
    assert dataset.features == ("a", "c")
    assert dataset.held_out is not None
    np.testing.assert_array_equal(dataset.held_out, kept["part"] == "test")
    require_equal(load_dataset(store_dataset(dataset, "marked", "here")), dataset)
    assert dataset_digest(dataset) != dataset_digest(replace(dataset, held_out=None))
    some = load(tmp_path, f"data{ending}", **keys, subsample=12)
    where = [int(np.flatnonzero((row == dataset.X).all(axis=1))[0]) for row in some.X]
    np.testing.assert_array_equal(some.held_out, dataset.held_out[where])


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_of_equal_rows_the_first_stays(tmp_path: Path, kind: str):
    rng = np.random.default_rng(1)
    X, y = rng.integers(-1, 2, (200, 3)).astype(float), rng.integers(0, 2, 200)
    frame = pd.DataFrame(X, columns=FEATURES).assign(target=y)
    expected = frame.drop_duplicates()
    if kind == "dense":
        signed = frame.copy()
        signed.loc[::3, FEATURES] = signed.loc[::3, FEATURES].replace(0.0, -0.0)
        write(signed, tmp_path / "data.parquet")
        dataset = load(tmp_path, "data.parquet", distinct=True)
        np.testing.assert_array_equal(dataset.X, expected[FEATURES].to_numpy())
    else:
        dump_svmlight_file(X, y, str(tmp_path / "data.libsvm"))
        dataset = load(tmp_path, "data.libsvm", distinct=True)
        np.testing.assert_array_equal(dataset.X.toarray(), expected[FEATURES].to_numpy())
    np.testing.assert_array_equal(dataset.target.values, expected["target"])


def test_rows_that_differ_in_a_dropped_column_alone_are_equal(frame: pd.DataFrame, tmp_path: Path):
    write(pd.concat([frame, frame], ignore_index=True).assign(row=np.arange(60)), tmp_path / "data.parquet")
    dataset = load(tmp_path, "data.parquet", distinct=True, drop=["row"])
    np.testing.assert_array_equal(dataset.X, frame[FEATURES].to_numpy(float))
    assert load(tmp_path, "data.parquet", distinct=True).X.shape == (60, 4)


@pytest.mark.parametrize("kind", [pa.binary(3), pa.binary(), pa.large_binary()], ids=str)
def test_bytes_become_features_in_their_place(tmp_path: Path, kind: pa.DataType):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 3), dtype=np.uint8)
    image = pa.array([row.tobytes() for row in pixels], kind)
    table = pa.table({"a": np.arange(20.0), "image": image, "b": np.ones(20), "target": [0, 1] * 10})
    write(pa.concat_tables([table[:7], table[7:]]), tmp_path / "data.parquet", 6)
    dataset = load(tmp_path, "data.parquet", bytes="image", where={"target": 1}, target="a")
    assert dataset.features == ("image_0", "image_1", "image_2", "b")
    np.testing.assert_array_equal(dataset.X[:, :3], pixels[1::2])
    write(table.append_column("image_1", table["a"]), tmp_path / "more.parquet")
    said = "column 'image_1' has the name of a feature that 'image' becomes; rename it"
    refused = [
        (partial(load, tmp_path, "data.parquet"), r"column 'image' is not numeric .*'bytes: image'"),
        (partial(load, tmp_path, "more.parquet", bytes="image"), said),
    ]
    require_refusals(refused)


# Text from elsewhere --------------------------------------------------------------------------------------------------


def streamed(path: Path, *columns: str) -> list[pa.Table]:
    """Read a table as one to predict from is read."""
    return list(INPUTS[path.suffix](locate(str(path))).tables(columns, [], 100))


def test_text_that_is_not_utf8_is_refused(tmp_path: Path):
    path, refused = tmp_path / "data.csv", r"data\.csv"
    for content in (b"\xe9t\xe9,target\n1,2\n2,3\n", "été,target\n1,2\n2,3\n".encode("utf-16")):
        path.write_bytes(content)
        learned = r"data\.csv (cannot be read as csv|leaves|.* is not a column)"
        said = require_refusals(
            [(partial(load, tmp_path, "data.csv"), learned), (partial(streamed, path, "target"), refused)]
        )
        assert all(map(is_sentence, said))


def test_a_number_in_hexadecimal_is_text_in_training_and_in_prediction(tmp_path: Path):
    (tmp_path / "data.csv").write_text("a,b,target\n" + "".join(f"{i},{hex(i)},{i % 2}\n" for i in range(20)))
    said: list[str] = []
    dataset = load(tmp_path, "data.csv", columns={"a": "number"}, tell=said.append)
    assert dataset.features == ("a",)
    assert "column 'b' is left out, as nearly all of its texts differ" in said[0]
    assert load(tmp_path, "data.csv", drop=["b"]).X[:, 0].tolist() == list(range(20))
    with pytest.raises(InputError, match="invalid value '0x0'"):
        streamed(tmp_path / "data.csv", "b")


def test_long_names_and_values_are_cut(tmp_path: Path):
    (tmp_path / "data.csv").write_text("a" * 500 + ',"b\nc",target\n' + "x" * 500 + ",1,2\ny,2,3\n")
    keys = {"columns": {"a" * 500: "number"}, "target": "t" * 500, "where": {"a" * 500: "z" * 500}, "drop": ["q" * 500]}
    said = require_refusals((partial(load, tmp_path, "data.csv", **{key: of}), "") for key, of in keys.items())
    assert all(map(is_sentence, said)), said


def test_a_target_of_nested_or_binary_values_is_refused(tmp_path: Path):
    nested = {"list": ([[1], [2]], pa.list_(pa.int64())), "binary": ([b"1", b"2"], pa.binary())}
    nested["struct"] = [{"x": 1}, {"x": 2}], pa.struct([("x", pa.int64())])
    nested["map"] = [[("a", 1)], [("b", 2)]], pa.map_(pa.string(), pa.int64())
    for kind, (values, of) in nested.items():
        write(pa.table({"a": [1.0, 2.0], "target": pa.array(values, of)}), tmp_path / f"{kind}.parquet")
    said = r"target 'target' is .*; name a column of text or numbers"
    require_refusals((partial(load, tmp_path, f"{kind}.parquet"), said) for kind in nested)


def encoded(number: int) -> bytes:
    """Return how the footer of Parquet writes a whole number."""
    number, written = number << 1, bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    return b"\x16" + bytes(written) + bytes([number])


def test_rows_that_are_stated_and_not_there_are_refused(tmp_path: Path):
    path = tmp_path / "data.parquet"
    write(pa.table({"a": np.arange(1000.0), "target": np.arange(1000) % 2}), path, 500)
    whole = path.read_bytes()
    assert whole.count(encoded(1000)) == 1
    for stated in (1010, 990):
        path.write_bytes(whole.replace(encoded(1000), encoded(stated)))
        require_refusals(
            (act, "cannot be read as parquet")
            for act in (partial(load, tmp_path, path.name), partial(streamed, path, "a"))
        )


# Real files -----------------------------------------------------------------------------------------------------------


def test_real_files_have_the_sizes_that_are_printed(shared_data: Path):
    digits = {"where": {"part": "test", "target": [3, 8]}, "bytes": "image"}
    sizes = [
        ("splice_libsvm", {"drop": ["part"]}, (3175, 60)),
        ("splice_libsvm", {"drop": ["part"], "distinct": True}, (2991, 60)),
        ("splice_libsvm", {"where": {"part": "train"}}, (1000, 60)),
        ("raetsch_breast-cancer", {}, (277, 9)),
        ("raetsch_breast-cancer", {"distinct": True}, (263, 9)),
        ("raetsch_image", {"distinct": True}, (2086, 18)),
        ("mnist", digits, (1010 + 974, 784)),
    ]
    found = [(name, keys, load(shared_data, f"{name}.parquet", **keys).X.shape) for name, keys, _ in sizes]
    assert found == sizes
    ionosphere = load(shared_data, "ionosphere.parquet", positive="g", task="regression")
    assert ionosphere.X.shape == (351, 34)
    assert ionosphere.target.values.sum() == 225 - 126


def test_every_data_set_of_the_papers_can_be_read(shared_data: Path):
    catalogue = yaml.safe_load((ROOT / "conf" / "papers" / "datasets.yaml").read_text())
    titles = {"column": "title", "most_frequent": 50}
    for name, entry in catalogue["sets"].items():
        assert set(entry) <= {"file", "openml"}
        for source, keys in entry.items():
            texts = str(keys.get("path")) in ("sentiment.parquet", "reuters21578.parquet")
            found = DatasetConfig.model_validate({"label": name, **keys, "ngrams": titles if texts else None})
            assert (found.source, found.label) == (source, name)
            if source == "file" and name != "mnist":
                assert load_source(found, str(shared_data)).X.shape[0] >= 195


# Memory ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv"])
def test_runs_of_rows_and_blocks_give_the_same_digest_as_all_at_once(
    frame: pd.DataFrame, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
):
    frame.loc[[3, 17, 22], "a"] = np.nan
    frame["part"] = ["one", "two", "three"] * 10
    frame["raw"] = frame["b"].astype(str)
    write(frame, tmp_path / f"data{ending}", 11 if ending == ".parquet" else 1000)
    keys = {"where": {"part": ["one", "three"]}, "drop": ["raw"], "missing": "drop", "scale": "standard"}
    whole = load(tmp_path, f"data{ending}", **keys)
    monkeypatch.setattr("learnkernels.tasks.data.readers.BATCH_BYTES", 7 * 6 * 8)
    for module in ("ingest", "scaling"):
        monkeypatch.setattr(f"learnkernels.tasks.data.{module}.BLOCK_BYTES", 64)
    pieces = load(tmp_path, f"data{ending}", **keys)
    kept = frame[frame["part"] != "two"].dropna()
    expected = np.ascontiguousarray(kept[FEATURES].to_numpy(float))
    np.testing.assert_array_equal(pieces.X, (expected - expected.mean(axis=0)) / expected.std(axis=0))
    assert dataset_digest(pieces) == dataset_digest(whole)


def test_deviations_by_blocks_are_those_of_numpy_to_the_last_bit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("learnkernels.tasks.data.scaling.BLOCK_BYTES", 1 << 10)
    for d, order in product([1, 2, 3, 17, 64], "CF"):
        X = np.random.default_rng(d).normal(size=(3000, d)) * np.logspace(-5, 5, d)
        X = np.asarray(X + 3.0, order=order)  # type: ignore[call-overload]
        np.testing.assert_array_equal(_deviations(X), X.std(axis=0), err_msg=f"{d} {order}")


@pytest.mark.parametrize("scale", ["unit", "standard"])
def test_no_second_matrix_is_made_of_a_table(tmp_path: Path, scale: str, monkeypatch: pytest.MonkeyPatch):
    X = np.random.default_rng(0).normal(size=(10_000, 50))
    write(pd.DataFrame(X).rename(columns=str).assign(target=X[:, 0] > 0), tmp_path / "data.parquet", len(X))
    for name in ("readers.BATCH_BYTES", "ingest.BLOCK_BYTES", "scaling.BLOCK_BYTES"):
        monkeypatch.setattr(f"learnkernels.tasks.data.{name}", 1 << 17)
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    dataset = load(tmp_path, "data.parquet", scale=scale)
    store_dataset(dataset, "data", "here")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * X.nbytes
    assert pa.total_allocated_bytes() - before < 0.1 * X.nbytes
