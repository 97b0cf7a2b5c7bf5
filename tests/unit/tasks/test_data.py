"""Ingestion: every format gives the same data set, and every fault its own sentence."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import yaml
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_breast_cancer

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import ENDINGS, DatasetConfig
from learnkernels.tasks.data.dataset import dataset_digest, load_dataset, store_dataset
from learnkernels.tasks.data.ingest import load_source
from learnkernels.tasks.data.locations import LIBSVM
from learnkernels.tasks.data.opening import TABLES
from learnkernels.tasks.data.scaling import _deviations

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(30, 3)).round(3), columns=["a", "b", "c"])
    frame["b"] = rng.integers(0, 5, 30)
    frame["target"] = np.where(frame["a"] > 0, "yes", "no")
    return frame


def config(path: str, **keys: object) -> DatasetConfig:
    return DatasetConfig.model_validate({"source": "file", "path": path, **keys})


def write(frame: pd.DataFrame, path: Path) -> None:
    writers = {
        ".parquet": lambda: frame.to_parquet(path),
        ".csv": lambda: frame.to_csv(path, index=False),
        ".feather": lambda: frame.to_feather(path),
        ".arrow": lambda: pyarrow.feather.write_feather(
            pa.Table.from_pandas(frame), str(path), compression="uncompressed"
        ),
    }
    writers[path.suffix]()


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".feather", ".arrow"])
def test_every_table_format_gives_the_same_data_set(frame: pd.DataFrame, tmp_path: Path, ending: str):
    write(frame, tmp_path / f"data{ending}")
    dataset = load_source(config(f"data{ending}"), str(tmp_path))
    np.testing.assert_array_equal(dataset.X, frame[["a", "b", "c"]].to_numpy(float))
    assert dataset.features == ("a", "b", "c")
    assert dataset.target.classes == ("no", "yes")
    np.testing.assert_array_equal(dataset.target.values, (frame["target"] == "yes").to_numpy(int))


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".feather"])
@pytest.mark.parametrize("twice", ["a", "target"])
def test_a_column_that_is_there_twice_is_named(frame: pd.DataFrame, tmp_path: Path, ending: str, twice: str):
    path, columns = tmp_path / f"data{ending}", [*frame.columns, twice]
    if ending == ".csv":
        path.write_text("\n".join([",".join(columns), "1,2,3,4,5", "2,1,3,4,5"]))
    else:
        table = pa.table([pa.array(frame[name]) for name in columns], names=columns)
        {".parquet": pyarrow.parquet.write_table, ".feather": pyarrow.feather.write_feather}[ending](table, path)
    with pytest.raises(InputError, match=f"data set data: data{ending} has column '{twice}' more than once; rename"):
        load_source(config(path.name), str(tmp_path))


def test_libsvm_rows_stay_sparse(frame: pd.DataFrame, tmp_path: Path):
    X = frame[["a", "b", "c"]].to_numpy()
    dump_svmlight_file(X, np.where(frame["target"] == "yes", 1, -1), str(tmp_path / "data.libsvm"), zero_based=False)
    dataset = load_source(config("data.libsvm"), str(tmp_path))
    assert sparse.issparse(dataset.X)
    np.testing.assert_allclose(dataset.X.toarray(), X)
    assert dataset.target.classes == ("-1", "1")


def test_bundled_sets_keep_their_names():
    dataset = load_source(DatasetConfig(source="sklearn", name="breast_cancer"))
    raw = load_breast_cancer()
    assert dataset.target.classes == ("benign", "malignant")
    np.testing.assert_array_equal(dataset.X, raw.data)
    assert dataset.features[0] == "mean radius"


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ([0.1, 0.5, 0.9], "regression"),
        ([1, 2, 1], "classification"),
        ([1.0, -1.0, 1.0], "classification"),
        (list(range(40)), "regression"),
        (["x", "y", "x"], "classification"),
        ([True, False, True], "classification"),
    ],
)
def test_the_task_follows_from_the_target(tmp_path: Path, values: list, task: str):
    values = (values * 14)[:40]
    write(pd.DataFrame({"a": np.arange(40.0), "target": values}), tmp_path / "data.parquet")
    assert load_source(config("data.parquet"), str(tmp_path)).target.task == task


def test_positive_codes_one_value_against_the_rest(frame: pd.DataFrame, tmp_path: Path):
    write(frame, tmp_path / "data.parquet")
    signs = np.where(frame["target"] == "yes", 1.0, -1.0)
    regression = load_source(config("data.parquet", positive="yes", task="regression"), str(tmp_path)).target
    np.testing.assert_array_equal(regression.values, signs)
    classes = load_source(config("data.parquet", positive="yes"), str(tmp_path)).target
    assert classes.classes == ("rest", "yes")
    np.testing.assert_array_equal(classes.Y[:, 0], signs)


def test_several_values_may_be_positive(tmp_path: Path):
    frame = pd.DataFrame({"a": np.arange(20.0), "target": np.arange(20) % 10})
    write(frame, tmp_path / "data.parquet")
    odd = load_source(config("data.parquet", positive=[1, 3, 5, 7, 9]), str(tmp_path)).target
    assert odd.classes == ("rest", "1, 3, 5, 7, 9")
    np.testing.assert_array_equal(odd.values, frame["target"] % 2)
    with pytest.raises(InputError, match="'positive' must be one of several values of the target, got '1', '11'; "):
        load_source(config("data.parquet", positive=[1, 11]), str(tmp_path))
    with pytest.raises(InputError, match="'positive' must be one of several values of the target"):
        load_source(config("data.parquet", positive=list(range(10))), str(tmp_path))


def test_scaling_and_subsampling(frame: pd.DataFrame, tmp_path: Path):
    frame["constant"] = 7.0
    write(frame, tmp_path / "data.parquet")
    unit = load_source(config("data.parquet", scale="unit"), str(tmp_path)).X
    np.testing.assert_allclose([unit.min(axis=0), unit.max(axis=0)], [[0, 0, 0, 0], [1, 1, 1, 0]])
    largest = load_source(config("data.parquet", scale="max"), str(tmp_path)).X
    np.testing.assert_allclose(largest, frame.drop(columns="target") / frame.drop(columns="target").abs().max())
    standard = load_source(config("data.parquet", scale="standard"), str(tmp_path)).X
    np.testing.assert_allclose([standard.mean(axis=0), standard.std(axis=0)], [[0] * 4, [1, 1, 1, 0]], atol=1e-12)
    few = load_source(config("data.parquet", subsample=12), str(tmp_path), seed=3)
    again = load_source(config("data.parquet", subsample=12), str(tmp_path), seed=3)
    other = load_source(config("data.parquet", subsample=12), str(tmp_path), seed=4)
    assert few.X.shape == (12, 4)
    np.testing.assert_array_equal(few.X, again.X)
    assert not np.array_equal(few.X, other.X)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_stored_data_set_comes_back_as_it_was(frame: pd.DataFrame, tmp_path: Path, working_folder: Path, kind: str):
    X = frame[["a", "b", "c"]].to_numpy(float)
    if kind == "dense":
        write(frame, tmp_path / "data.parquet")
        dataset = load_source(config("data.parquet"), str(tmp_path))
    else:
        dump_svmlight_file(X, frame["b"].to_numpy() % 2, str(tmp_path / "data.libsvm"))
        dataset = load_source(config("data.libsvm"), str(tmp_path))
    ref = store_dataset(dataset, "data", "somewhere")
    back = load_dataset(ref)
    assert dataset_digest(back) == ref.digest
    assert (back.features, back.target.classes, back.target.task) == (
        dataset.features, dataset.target.classes, dataset.target.task,
    )  # fmt: skip
    assert sorted(path.name[0] for path in Path(ref.path).parent.iterdir()) == [ref.digest[0]]


def test_the_digest_sees_content_and_not_the_place(frame: pd.DataFrame, tmp_path: Path):
    write(frame, tmp_path / "one.parquet")
    write(frame, tmp_path / "two.csv")
    one, two = (load_source(config(name), str(tmp_path)) for name in ("one.parquet", "two.csv"))
    assert dataset_digest(one) == dataset_digest(two)
    frame.loc[0, "a"] += 1e-9
    write(frame, tmp_path / "one.parquet")
    assert dataset_digest(load_source(config("one.parquet"), str(tmp_path))) != dataset_digest(two)


REPLACED = {
    "text": ["red"] * 30,
    "lists": [[1.0]] * 30,
    "uneven": [b"ab", b"a"] * 15,
    "empty": [b""] * 30,
    "no bytes": [None] + [b"ab"] * 29,
}


def spoil(frame: pd.DataFrame, what: str) -> pd.DataFrame:
    if what == "nan":
        frame.loc[[3, 4], "a"] = np.nan
        frame.loc[7, "c"] = np.inf
    elif what == "one class":
        frame["target"] = "yes"
    elif what == "no label":
        frame.loc[5, "target"] = None
    elif what == "no feature":
        frame = frame[["target"]]
    elif what in REPLACED:
        frame["b"] = REPLACED[what]
    elif what == "apart":
        frame["part"] = np.where(frame["b"] == 1, "y", "x")
    elif what == "nan target":
        frame["target"] = np.arange(30) / 7
        frame.loc[2, "target"] = np.nan
    return frame


@pytest.mark.parametrize(
    ("what", "keys", "sentence"),
    [
        ("nan", {"missing": "refuse"}, r"NaN, infinity or missing values in column a \(2\), c \(1\) of 30 rows"),
        ("nan", {}, "data set data: column 'c' must hold finite numbers or gaps, got infinity in 1 of 30 rows"),
        ("one class", {}, r"at least two classes, got only \['yes'\]"),
        ("no label", {"missing": "refuse"}, "target 'target' is missing or not finite in 1 of 30 rows"),
        ("nan target", {"missing": "refuse"}, "target 'target' is missing or not finite in 1 of 30 rows"),
        ("no feature", {}, "leaves 30 rows and 0 feature columns"),
        ("", {"target": "zz"}, "target 'zz' is not a column of data.parquet; it has a, b, c, target"),
        ("", {"drop": ["zz"]}, "drop 'zz' is not a column of data.parquet"),
        ("", {"where": {"zz": 1}}, "where 'zz' is not a column of data.parquet"),
        ("", {"where": {"b": [1, 9]}}, "no row has '9' in column 'b' of 'where'; it holds '0', '1', '2', '3', '4'"),
        ("", {"where": {"a": "x"}}, r"no row has 'x' in column 'a' of 'where'; it holds .* and 18 more"),
        ("apart", {"where": {"b": 1, "part": "x"}}, "no row has the values of 'where' in all its columns"),
        ("lists", {"where": {"b": 1}}, "column 'b' of 'where' is list<.*>; name one of text or numbers"),
        ("", {"where": {"a": 0.126, "b": 4, "c": 0.640}}, "leaves 1 rows and 0 feature columns"),
        ("", {"bytes": "zz"}, "bytes 'zz' is not a column of data.parquet"),
        ("", {"bytes": "b"}, r"column 'b' of 'bytes' is not binary \(int"),
        ("uneven", {"bytes": "b"}, "column 'b' of 'bytes' holds values of 1 to 2 bytes; all must have one length"),
        ("empty", {"bytes": "b"}, "column 'b' of 'bytes' holds values of 0 to 0 bytes; all must have one length"),
        ("no bytes", {"bytes": "b"}, "column 'b' of 'bytes' is missing in 1 of 30 rows"),
        ("", {"ngrams": {"column": "zz"}}, "ngrams 'zz' is not a column of data.parquet"),
        ("", {"task": "regression"}, r"target 'target' is text \('no', 'yes'\), which a regression cannot use"),
        ("", {"positive": "maybe"}, "'positive' must be one of several values of the target, got 'maybe'.*'no', 'yes'"),
    ],
)
def test_a_faulty_file_gets_one_sentence(
    frame: pd.DataFrame, tmp_path: Path, what: str, keys: dict[str, object], sentence: str
):
    write(spoil(frame, what), tmp_path / "data.parquet")
    with pytest.raises(InputError, match=sentence) as caught:
        load_source(config("data.parquet", **keys), str(tmp_path))
    assert "\n" not in str(caught.value)


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
    dataset = load_source(config("data.parquet", missing="drop"), str(tmp_path))
    kept = frame.drop(index=[3, 4, 7, 9, 20])
    np.testing.assert_array_equal(dataset.X, kept[["a", "b", "c"]].to_numpy(float))
    np.testing.assert_array_equal(dataset.target.values, (kept["target"] == "yes").to_numpy(int))
    assert dataset.target.classes == (("no", "yes") if kind == "text" else ("0", "1"))


def test_rows_with_missing_values_of_a_sparse_file_are_dropped(tmp_path: Path):
    text = ["1 1:2 2:1", "-1 1:nan 3:1", "1", "-1 3:4", "nan 1:1", "-1 2:inf", "1 2:3"]
    (tmp_path / "data.libsvm").write_text("\n".join(text))
    dataset = load_source(config("data.libsvm", missing="drop"), str(tmp_path))
    assert sparse.issparse(dataset.X)
    np.testing.assert_array_equal(dataset.X.toarray(), [[2, 1, 0], [0, 0, 0], [0, 0, 4], [0, 3, 0]])
    assert [dataset.target.classes[value] for value in dataset.target.values] == ["1", "1", "-1", "1"]
    with pytest.raises(InputError, match=r"target 'target' is missing .* in 1 of 7 rows; .*'missing: drop'"):
        load_source(config("data.libsvm", missing="refuse"), str(tmp_path))


@pytest.mark.parametrize("text", [True, False])
def test_missing_values_are_refused_with_the_keys_that_fill_or_drop_them(
    frame: pd.DataFrame, tmp_path: Path, text: bool
):
    frame.loc[3, "a"] = np.nan
    if text:
        frame["b"] = np.where(frame["b"] > 1, "x", "y")
    write(frame, tmp_path / "data.parquet")
    with pytest.raises(InputError, match=r"missing values in column a .*set 'missing: impute'.*'missing: drop'"):
        load_source(config("data.parquet", missing="refuse"), str(tmp_path))


def test_rows_without_a_target_are_left_out_with_a_word(frame: pd.DataFrame, tmp_path: Path):
    frame.loc[[3, 8], "target"] = None
    write(frame, tmp_path / "data.parquet")
    said: list[str] = []
    dataset = load_source(config("data.parquet"), str(tmp_path), tell=said.append)
    assert len(dataset.X) == len(dataset.target) == 28
    assert said == ["data set data: 2 of 30 rows have no target, and are left out."]


def test_a_file_of_which_no_row_is_complete_is_refused(frame: pd.DataFrame, tmp_path: Path):
    frame["c"] = np.nan
    write(frame, tmp_path / "data.parquet")
    with pytest.raises(InputError, match="data set data: no row is complete, so 'missing: drop' leaves none"):
        load_source(config("data.parquet", missing="drop"), str(tmp_path))


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".feather"])
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
        dataset = load_source(
            config(f"data{ending}", where=where, target="a", drop=["part", "flag", "target"]), str(tmp_path)
        )
        assert dataset.features == tuple(left)
        np.testing.assert_array_equal(dataset.X, frame.loc[kept, left].to_numpy(float))
        np.testing.assert_array_equal(dataset.target.values, frame.loc[kept, "a"])


def test_where_may_choose_among_the_classes_and_leaves_out_what_is_missing(frame: pd.DataFrame, tmp_path: Path):
    frame["target"] = ["x", "y", "z", None, "x"] * 6
    frame["part"] = ["p", "p", None] * 10
    write(frame, tmp_path / "data.parquet")
    dataset = load_source(config("data.parquet", where={"target": ["x", "y"], "part": "p"}), str(tmp_path))
    kept = frame["target"].isin(["x", "y"]) & (frame["part"] == "p")
    assert dataset.features == ("a", "b", "c")
    assert dataset.target.classes == ("x", "y")
    np.testing.assert_array_equal(dataset.X, frame.loc[kept, ["a", "b", "c"]].to_numpy(float))


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_rows_that_test_are_marked_and_follow_the_others(frame: pd.DataFrame, tmp_path: Path, ending: str):
    frame["part"] = np.where(np.arange(30) % 3 == 0, "test", "train")
    frame.loc[[4, 9], "c"] = np.nan
    frame.loc[20] = frame.loc[10]
    write(frame, tmp_path / f"data{ending}")
    given = config(f"data{ending}", test={"part": "test"}, where={"b": [0, 1, 2, 3]}, missing="drop", distinct=True)
    dataset = load_source(given, str(tmp_path))
    kept = frame[frame["b"] < 4].dropna().drop_duplicates()
    assert dataset.features == ("a", "c")
    assert dataset.held_out is not None
    np.testing.assert_array_equal(dataset.held_out, kept["part"] == "test")
    ref = store_dataset(dataset, "marked", "here")
    np.testing.assert_array_equal(load_dataset(ref).held_out, dataset.held_out)  # type: ignore[arg-type]
    assert dataset_digest(dataset) != dataset_digest(replace(dataset, held_out=None))
    some = load_source(given.model_copy(update={"subsample": 12}), str(tmp_path))
    where = [int(np.flatnonzero((row == dataset.X).all(axis=1))[0]) for row in some.X]
    np.testing.assert_array_equal(some.held_out, dataset.held_out[where])


@pytest.mark.parametrize(
    ("test", "sentence"),
    [
        ({"part": "tset"}, "no row has 'tset' in column 'part' of 'test'; it holds 'test', 'train'"),
        ({"part": ["test", "train"]}, "every row has the values of 'test', so none is left to learn from"),
        ({"prat": "test"}, "test 'prat' is not a column of data.parquet"),
    ],
)
def test_marks_that_no_split_could_use_are_refused(
    frame: pd.DataFrame, tmp_path: Path, test: dict[str, object], sentence: str
):
    frame["part"] = np.where(np.arange(30) % 3 == 0, "test", "train")
    write(frame, tmp_path / "data.parquet")
    with pytest.raises(InputError, match=sentence):
        load_source(config("data.parquet", test=test), str(tmp_path))


def test_where_reads_dictionaries_as_what_they_hold(frame: pd.DataFrame, tmp_path: Path):
    names = [f"part {i}" for i in range(128)]  # as many as an int8 has codes for, and one more for what is missing
    frame["part"] = pd.Categorical.from_codes([-1, *range(99, 128)], names)
    write(frame, tmp_path / "data.parquet")
    dataset = load_source(
        config("data.parquet", where={"part": ["part 127", "part 120"]}, target="c", drop=["target"]), str(tmp_path)
    )
    np.testing.assert_array_equal(dataset.X, frame.loc[[22, 29], ["a", "b"]].to_numpy(float))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_of_equal_rows_the_first_stays(tmp_path: Path, kind: str):
    rng = np.random.default_rng(1)
    X, y = rng.integers(-1, 2, (200, 3)).astype(float), rng.integers(0, 2, 200)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(target=y)
    if kind == "dense":
        signed = frame.copy()
        signed.loc[::3, ["a", "b", "c"]] = signed.loc[::3, ["a", "b", "c"]].replace(0.0, -0.0)
        write(signed, tmp_path / "data.parquet")
        dataset = load_source(config("data.parquet", distinct=True), str(tmp_path))
    else:
        dump_svmlight_file(X, y, str(tmp_path / "data.libsvm"))
        dataset = load_source(config("data.libsvm", distinct=True), str(tmp_path))
    expected = frame.drop_duplicates()
    X = dataset.X.toarray() if sparse.issparse(dataset.X) else dataset.X
    np.testing.assert_array_equal(X, expected[["a", "b", "c"]].to_numpy())
    np.testing.assert_array_equal(dataset.target.values, expected["target"])


def test_rows_that_differ_in_a_dropped_column_alone_are_equal(frame: pd.DataFrame, tmp_path: Path):
    twice = pd.concat([frame, frame], ignore_index=True)
    twice["row"] = np.arange(60)
    write(twice, tmp_path / "data.parquet")
    dataset = load_source(config("data.parquet", distinct=True, drop=["row"]), str(tmp_path))
    np.testing.assert_array_equal(dataset.X, frame[["a", "b", "c"]].to_numpy(float))
    assert load_source(config("data.parquet", distinct=True), str(tmp_path)).X.shape == (60, 4)


@pytest.mark.parametrize("kind", [pa.binary(3), pa.binary(), pa.large_binary()])
def test_bytes_become_features_in_their_place(tmp_path: Path, kind: pa.DataType):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 3), dtype=np.uint8)
    columns = {
        "a": np.arange(20.0),
        "image": pa.array([row.tobytes() for row in pixels], kind),
        "b": np.ones(20),
        "target": [0, 1] * 10,
    }
    table = pa.table(columns)
    pyarrow.parquet.write_table(pa.concat_tables([table[:7], table[7:]]), tmp_path / "data.parquet", row_group_size=6)
    dataset = load_source(config("data.parquet", bytes="image", where={"target": 1}, target="a"), str(tmp_path))
    assert dataset.features == ("image_0", "image_1", "image_2", "b")
    np.testing.assert_array_equal(dataset.X[:, :3], pixels[1::2])
    with pytest.raises(InputError, match=r"column 'image' is not numeric .*'bytes: image'"):
        load_source(config("data.parquet"), str(tmp_path))
    pyarrow.parquet.write_table(table.append_column("image_1", table["a"]), tmp_path / "data.parquet")
    with pytest.raises(InputError, match="column 'image_1' has the name of a feature that 'image' becomes; rename it"):
        load_source(config("data.parquet", bytes="image"), str(tmp_path))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("where", {"f0": 1}),
        ("bytes", "f0"),
        ("ngrams", {"column": "f0"}),
        ("drop", ["f0"]),
        ("features", "f0"),
        ("columns", {"f0": "categorical"}),
    ],
)
def test_keys_that_name_columns_do_not_go_with_files_without_names(tmp_path: Path, key: str, value: object):
    (tmp_path / "data.libsvm").write_text("1 1:2\n-1 1:3\n")
    with pytest.raises(InputError, match=f"'{key}' does not go with data.libsvm, whose columns have no names"):
        load_source(config("data.libsvm", **{key: value}), str(tmp_path))


def test_the_schema_names_the_endings_of_all_readers():
    assert (*TABLES, *LIBSVM) == ENDINGS


def test_missing_unreadable_and_unknown_files_are_named(tmp_path: Path):
    with pytest.raises(InputError, match=r"there is no file .*gone\.csv"):
        load_source(config("gone.csv"), str(tmp_path))
    (tmp_path / "data.parquet").write_text("hello")
    with pytest.raises(InputError, match=r"data\.parquet cannot be read as parquet"):
        load_source(config("data.parquet"), str(tmp_path))
    (tmp_path / "data.xlsx").write_text("hello")
    with pytest.raises(InputError, match=r"cannot read data.xlsx; supported endings: .parquet, .csv"):
        load_source(config("data.xlsx"), str(tmp_path))
    (tmp_path / "data.libsvm").write_text("1 a:b")
    with pytest.raises(InputError, match="cannot be read as LIBSVM text"):
        load_source(config("data.libsvm"), str(tmp_path))


def test_sparse_rows_are_not_filled_by_scaling(tmp_path: Path):
    X = np.array([[0.0, -1.0], [2.0, 0.0], [0.0, 3.0]] * 4)
    dump_svmlight_file(X, [0, 1, 0] * 4, str(tmp_path / "data.libsvm"))
    for scale in ("standard", "unit"):
        with pytest.raises(InputError, match="would fill this sparse data set's zeros"):
            load_source(config("data.libsvm", scale=scale), str(tmp_path))
    dump_svmlight_file(np.abs(X), [0, 1, 0] * 4, str(tmp_path / "data.libsvm"))
    assert load_source(config("data.libsvm", scale="unit"), str(tmp_path)).X.max() == 1.0


@pytest.mark.parametrize(
    ("name", "keys", "shape"),
    [
        ("splice_libsvm", {"drop": ["part"]}, (3175, 60)),
        ("splice_libsvm", {"drop": ["part"], "distinct": True}, (2991, 60)),
        ("splice_libsvm", {"where": {"part": "train"}}, (1000, 60)),
        ("raetsch_breast-cancer", {}, (277, 9)),
        ("raetsch_breast-cancer", {"distinct": True}, (263, 9)),
        ("raetsch_image", {"distinct": True}, (2086, 18)),
        ("mnist", {"where": {"part": "test", "target": [3, 8]}, "bytes": "image"}, (1010 + 974, 784)),
    ],
)
def test_real_files_have_the_sizes_that_are_printed(
    shared_data: Path, name: str, keys: dict[str, object], shape: tuple[int, int]
):
    assert load_source(config(f"{name}.parquet", **keys), str(shared_data)).X.shape == shape


def test_every_data_set_of_the_papers_can_be_read(shared_data: Path):
    catalogue = yaml.safe_load((ROOT / "conf" / "papers" / "datasets.yaml").read_text())
    texts = {"sentiment": {"column": "tokens", "counts": "counts", "size": 2, "most_frequent": 50}}
    texts["reuters21578"] = {"column": "title", "most_frequent": 50}
    for name, entry in catalogue["sets"].items():
        assert set(entry) <= {"file", "openml"}
        for source, keys in entry.items():
            found = DatasetConfig.model_validate(
                {"label": name, **keys, "ngrams": texts.get(str(keys.get("path")).split(".")[0])}
            )
            assert (found.source, found.label) == (source, name)
            if source == "file" and name != "mnist":
                assert load_source(found, str(shared_data)).X.shape[0] >= 195


def test_real_ionosphere_file(shared_data: Path):
    dataset = load_source(config("ionosphere.parquet", positive="g", task="regression"), str(shared_data))
    assert dataset.X.shape == (351, 34)
    assert dataset.target.values.sum() == 225 - 126


# Memory ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv"])
def test_runs_of_rows_and_blocks_give_the_same_digest_as_all_at_once(
    frame: pd.DataFrame, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
):
    frame.loc[[3, 17, 22], "a"] = np.nan
    frame["part"] = ["one", "two", "three"] * 10
    frame["raw"] = frame["b"].astype(str)
    write(frame, tmp_path / f"data{ending}")
    if ending == ".parquet":
        frame.to_parquet(tmp_path / "data.parquet", row_group_size=11)
    of = config(f"data{ending}", where={"part": ["one", "three"]}, drop=["raw"], missing="drop", scale="standard")
    whole = load_source(of, str(tmp_path))
    monkeypatch.setattr("learnkernels.tasks.data.readers.BATCH_BYTES", 7 * 6 * 8)
    monkeypatch.setattr("learnkernels.tasks.data.ingest.BLOCK_BYTES", 64)
    pieces = load_source(of, str(tmp_path))
    kept = frame[frame["part"] != "two"].dropna()
    expected = np.ascontiguousarray(kept[["a", "b", "c"]].to_numpy(float))
    np.testing.assert_array_equal(pieces.X, (expected - expected.mean(axis=0)) / expected.std(axis=0))
    assert dataset_digest(pieces) == dataset_digest(whole)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("d", [1, 2, 3, 17, 64])
def test_deviations_by_blocks_are_those_of_numpy_to_the_last_bit(d: int, order: str, monkeypatch: pytest.MonkeyPatch):
    X = np.random.default_rng(d).normal(size=(3000, d)) * np.logspace(-5, 5, d)
    X = np.asarray(X + 3.0, order=order)
    monkeypatch.setattr("learnkernels.tasks.data.ingest.BLOCK_BYTES", 1 << 10)
    np.testing.assert_array_equal(_deviations(X), X.std(axis=0))


@pytest.mark.parametrize("scale", ["unit", "standard"])
def test_no_second_matrix_is_made_of_a_table(tmp_path: Path, scale: str, monkeypatch: pytest.MonkeyPatch):
    X = np.random.default_rng(0).normal(size=(20_000, 50))
    write(pd.DataFrame(X).rename(columns=str).assign(target=X[:, 0] > 0), tmp_path / "data.parquet")
    monkeypatch.setattr("learnkernels.tasks.data.readers.BATCH_BYTES", 1 << 18)
    monkeypatch.setattr("learnkernels.tasks.data.ingest.BLOCK_BYTES", 1 << 18)
    monkeypatch.setattr("learnkernels.tasks.data.scaling.BLOCK_BYTES", 1 << 18)
    of = config("data.parquet", scale=scale)
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    dataset = load_source(of, str(tmp_path))
    store_dataset(dataset, "data", "here")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * X.nbytes
    assert pa.total_allocated_bytes() - before < 0.1 * X.nbytes
