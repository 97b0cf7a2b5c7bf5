"""Ingestion: every format gives the same data set, and every fault its own sentence."""

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
from sklearn.datasets import load_breast_cancer

from dev.tools.mutations import is_sentence
from learnkernels.conf.errors import InputError
from learnkernels.conf.files import ENDINGS as NAMED_ENDINGS
from learnkernels.conf.schema import DatasetConfig
from learnkernels.tasks.data import ingest, locations, tables
from learnkernels.tasks.data.dataset import (
    Dataset,
    copied_share,
    dataset_digest,
    load_dataset,
    store_dataset,
)
from learnkernels.tasks.data.infer_config import leaking_columns
from tests.refusals import require_refusals
from tests.sources import ENDINGS, load, read, require_equal, require_refused, write
from tests.unit.conftest import peak_of

ROOT = Path(__file__).resolve().parents[3]
FEATURES = ["a", "b", "c"]


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(30, 3)).round(3), columns=FEATURES)
    frame["b"] = rng.integers(0, 5, 30)
    frame["target"] = np.where(frame["a"] > 0, "yes", "no")
    return frame


def require_rows(dataset: Dataset, rows: pd.DataFrame, target: str = "target") -> None:
    """Fail unless the features and the target of a data set are those columns of a table."""
    X = dataset.X.toarray() if sparse.issparse(dataset.X) else dataset.X
    np.testing.assert_array_equal(X, rows[list(dataset.features)].to_numpy(float))
    values = dataset.target.values
    found = (
        [dataset.target.classes[value] for value in values]
        if dataset.target.classes
        else values
    )
    np.testing.assert_array_equal(
        found, rows[target].astype(str) if dataset.target.classes else rows[target]
    )


def test_every_table_format_gives_the_same_data_set_and_digest(
    frame: pd.DataFrame, tmp_path: Path
):
    assert (*tables.FORMATS, *locations.LIBSVM) == NAMED_ENDINGS
    digests = set()
    for ending in ENDINGS:
        dataset = read(tmp_path, frame, f"data{ending}")
        require_rows(dataset, frame)
        assert (dataset.features, dataset.target.classes) == (
            ("a", "b", "c"),
            ("no", "yes"),
        )
        digests.add(dataset_digest(dataset))
    assert len(digests) == 1
    frame.loc[0, "a"] += 1e-9
    assert dataset_digest(read(tmp_path, frame)) not in digests


@pytest.mark.parametrize("ending", [".parquet", ".libsvm"])
def test_a_data_set_is_stored_whole(
    frame: pd.DataFrame, tmp_path: Path, ending: str, state: Path
):
    frame["target"] = np.where(frame["target"] == "yes", 1, -1)
    dataset = read(tmp_path, frame, f"data{ending}")
    assert sparse.issparse(dataset.X) == (ending == ".libsvm")
    require_rows(
        dataset,
        frame.rename(
            columns={} if ending == ".parquet" else {"a": "f0", "b": "f1", "c": "f2"}
        ),
    )
    assert dataset.target.classes == ("-1", "1")
    ref = store_dataset(dataset, "data", "somewhere")
    back = load_dataset(ref)
    assert dataset_digest(back) == ref.digest
    require_equal(back, dataset)
    assert sorted(path.name[0] for path in Path(ref.path).parent.iterdir()) == [
        ref.digest[0]
    ]
    assert copied_share(ref) == 0
    twice = read(tmp_path, pd.concat([frame, frame]), f"twice{ending}")
    assert copied_share(store_dataset(twice, "twice", "somewhere")) == 0.5


def test_the_description_of_a_data_set_is_read_once(
    frame: pd.DataFrame, tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
):
    ref = store_dataset(read(tmp_path, frame), "data", "somewhere")
    names = []
    read_text = Path.read_text

    def noted(path: Path, *args: Any, **options: Any) -> str:
        names.append(path.name)
        return read_text(path, *args, **options)

    monkeypatch.setattr(Path, "read_text", noted)
    load_dataset(ref)
    assert names.count("about.json") == 1


def test_bundled_sets_keep_their_names():
    dataset = ingest.load_source(DatasetConfig.of("breast_cancer"))
    assert dataset.target.classes == ("benign", "malignant")
    np.testing.assert_array_equal(dataset.X, load_breast_cancer().data)
    assert dataset.features[0] == "mean radius"


def test_rows_of_several_outputs_are_copies_if_all_outputs_are_equal(state: Path):
    dataset = ingest.load_source(
        DatasetConfig.of({"source": "sklearn", "name": "linnerud"})
    )
    rows = np.r_[:20, :5]
    values = dataset.target.values[rows]
    values[20] += [1.0, 0.0, -1.0]
    repeated = replace(
        dataset, X=dataset.X[rows], target=replace(dataset.target, values=values)
    )
    assert copied_share(store_dataset(dataset, "linnerud", "sklearn")) == 0
    ref = store_dataset(repeated, "linnerud", "sklearn")
    assert copied_share(ref) == pytest.approx(4 / 25)
    assert leaking_columns(dataset) == []


def test_the_task_follows_from_the_target(tmp_path: Path):
    tasks = {}
    for values in (
        [0.1, 0.5, 0.9],
        [1, 2, 1],
        [1.0, -1.0, 1.0],
        range(40),
        ["x", "y", "x"],
        [True, False, True],
    ):
        table = pd.DataFrame({"a": np.arange(40.0), "target": ([*values] * 14)[:40]})
        tasks[str(values)] = read(tmp_path, table).target.task
    assert list(tasks.values()) == [
        "regression",
        *["classification"] * 2,
        "regression",
        *["classification"] * 2,
    ], tasks


def test_whole_numbers_beyond_integers_stay_numbers(tmp_path: Path):
    table = pd.DataFrame({"a": np.arange(30.0), "target": np.logspace(17, 21, 30)})
    target = read(tmp_path, table).target
    assert target.task == "regression"
    np.testing.assert_array_equal(target.values, table["target"])
    few = table.assign(target=[1e20, -1e20] * 15)
    assert read(tmp_path, few).target.classes == ("-1e+20", "1e+20")


def test_dates_and_long_codes_may_be_classes(tmp_path: Path):
    days = pd.date_range("2024-01-01", periods=30).repeat(2)
    table = pd.DataFrame({"a": np.arange(60.0), "target": days})
    codes = pa.array([10**18 + code for code in [*range(30)] * 2], pa.decimal128(20))
    for rows in (table, pa.table({"a": np.arange(60.0), "target": codes})):
        target = read(tmp_path, rows, task="classification").target
        assert len(target.classes) == 30
    encoding = read(
        tmp_path, table, target="a", columns={"target": "categorical"}
    ).table
    assert encoding.columns[0].describe() == "category of 30 levels"


def test_positive_codes_some_values_against_the_rest(
    frame: pd.DataFrame, tmp_path: Path
):
    signs = np.where(frame["target"] == "yes", 1.0, -1.0)
    np.testing.assert_array_equal(
        read(tmp_path, frame, positive="yes", task="regression").target.values, signs
    )
    classes = read(tmp_path, frame, positive="yes").target
    assert classes.classes == ("rest", "yes")
    np.testing.assert_array_equal(classes.Y[:, 0], signs)
    odd = read(
        tmp_path, frame.assign(target=np.arange(30) % 10), positive=[1, 3, 5, 7, 9]
    ).target
    assert odd.classes == ("rest", "1, 3, 5, 7, 9")
    np.testing.assert_array_equal(odd.values, np.arange(30) % 2)


def test_columns_are_scaled(frame: pd.DataFrame, tmp_path: Path):
    frame["constant"] = 7.0
    unit, largest, standard = (
        read(tmp_path, frame, scale=scale).X for scale in ("unit", "max", "standard")
    )
    np.testing.assert_allclose(
        [unit.min(axis=0), unit.max(axis=0)], [[0, 0, 0, 0], [1, 1, 1, 0]]
    )
    np.testing.assert_allclose(
        largest, frame.drop(columns="target") / frame.drop(columns="target").abs().max()
    )
    np.testing.assert_allclose(
        [standard.mean(axis=0), standard.std(axis=0)],
        [[0] * 4, [1, 1, 1, 0]],
        atol=1e-12,
    )
    assert (
        read(tmp_path, "0 2:1\n1 1:2\n0 2:3\n" * 4, "data.libsvm", scale="unit").X.max()
        == 1.0
    )


def test_a_subsample_is_drawn_by_the_seed(frame: pd.DataFrame, tmp_path: Path):
    few, again, other = (
        read(tmp_path, frame, seed=seed, subsample=12).X for seed in (3, 3, 4)
    )
    assert few.shape == (12, 3)
    np.testing.assert_array_equal(few, again)
    assert not np.array_equal(few, other)


# What is refused ------------------------------------------------------------------------------------------------------


def among(fill: Any, others: dict[int, Any]) -> list[Any]:
    """Return a column of 30 rows that holds one value but in some rows."""
    return [others.get(row, fill) for row in range(30)]


GAPS = {"a": among(0.5, {3: np.nan, 4: np.nan}), "c": among(0.5, {7: np.inf})}
LACK = {"target": among("yes", {0: "no", 5: None})}
PART = {"part": ["test", "train", "train"] * 10}
TWICE = {"b": lambda t: np.where(t["b"] > 1, "x", "y"), "a": GAPS["a"]}
ODD = {"b": ["p", "q"] * 15, "part": ["r", "s"] * 15}
DIGITS = {"target": np.arange(30) % 10}
NESTED = {"b": [[1.0]] * 30}
TRUTH = {"b": lambda t: t["a"] > 0}
BYTES = {"b": [b"ab"] * 30}
FILLED = r"missing values in column a .*set 'missing: impute'.*'missing: drop'"
NO_TARGET = "target 'target' is missing or not finite in 1 of 30 rows"
DAYS = {"target": pd.date_range("2024-01-01", periods=30)}
DATES = r"target 'target' holds dates such as '2024-01-01.*'; predict a number, such as days"
POSITIVE = "'positive' must be one of several values of the target"
NO_KIND = r"target 'target' is .*; name a column of text or numbers"
FAULTY = [
    (
        GAPS,
        {"missing": "refuse"},
        r"missing values in column a \(2\) of 30 rows; set 'missing: impute' or",
    ),
    (
        {"a": [1e200, -1e200] * 15},
        {"scale": "standard"},
        r"data set data: column 'a' holds -1e\+200, too large for",
    ),
    (
        GAPS,
        {},
        "data set data: column 'c' must hold finite numbers or gaps, got infinity in 1 of 30 rows",
    ),
    ({"a": GAPS["a"]}, {"missing": "refuse"}, FILLED),
    (TWICE, {"missing": "refuse"}, FILLED),
    (
        {"a": [np.nan, 1.0] * 15, "c": [1.0, np.nan] * 15},
        {"missing": "drop"},
        "no row is complete, so 'missing: dr",
    ),
    ({"target": "yes"}, {}, r"at least two classes, got only \['yes'\]"),
    (
        {"target": [["red"], ["red", "blue"]] * 15},
        {},
        f"{NO_KIND}; for several labels per row fit KernelLearningClassifier on a column of 0 and 1 per label",
    ),
    ({"target": [b"1", b"2"] * 15}, {}, NO_KIND),
    ({"target": [{"x": 1}, {"x": 2}] * 15}, {}, NO_KIND),
    (DAYS, {}, DATES),
    (DAYS, {"task": "regression"}, DATES),
    (LACK, {"missing": "refuse"}, NO_TARGET),
    (
        {"target": among(0.7, {0: 0.1, 1: 0.2, 2: np.nan})},
        {"missing": "refuse"},
        NO_TARGET,
    ),
    ({}, {"drop": FEATURES}, "leaves 30 rows and 0 feature columns"),
    (
        {},
        {"target": "zz"},
        "target 'zz' is not a column of data.parquet; it has a, b, c, target",
    ),
    ({}, {"drop": ["zz"]}, "drop 'zz' is not a column of data.parquet"),
    ({}, {"where": {"zz": 1}}, "where 'zz' is not a column of data.parquet"),
    (
        {},
        {"where": {"b": [1, 9]}},
        "no row has '9' in column 'b' of 'where'; it holds '0', '1', '2', '3', '4'",
    ),
    (
        {},
        {"where": {"a": "x"}},
        r"no row has 'x' in column 'a' of 'where'; it holds .* and 18 more",
    ),
    (
        ODD,
        {"where": {"b": "p", "part": "s"}},
        "no row has the values of 'where' in all its columns",
    ),
    (
        NESTED,
        {"where": {"b": 1}},
        "column 'b' of 'where' is list<.*>; name one of text or numbers",
    ),
    (
        {},
        {"where": {"a": 0.126, "b": 4, "c": 0.640}},
        "leaves 1 rows and 0 feature columns",
    ),
    (
        PART,
        {"test": {"part": "tset"}},
        "no row has 'tset' in column 'part' of 'test'; it holds 'test', 'train'",
    ),
    (
        PART,
        {"test": {"part": ["test", "train"]}},
        "every row has the values of 'test', so none is left to learn from",
    ),
    (PART, {"test": {"prat": "test"}}, "test 'prat' is not a column of data.parquet"),
    ({}, {"bytes": "zz"}, "bytes 'zz' is not a column of data.parquet"),
    ({}, {"bytes": "b"}, r"column 'b' of 'bytes' is not binary \(int"),
    (
        BYTES | {"b_1": 0},
        {"bytes": "b"},
        "column 'b_1' has the name of a feature that 'b' becomes; rename it",
    ),
    (
        {"b": [b"ab", b"a"] * 15},
        {"bytes": "b"},
        "'b' of 'bytes' holds values of 1 to 2 bytes; all must have one l",
    ),
    (
        {"b": [b""] * 30},
        {"bytes": "b"},
        "'b' of 'bytes' holds values of 0 to 0 bytes; all must have one length",
    ),
    (
        {"b": [None] + [b"ab"] * 29},
        {"bytes": "b"},
        "column 'b' of 'bytes' is missing in 1 of 30 rows",
    ),
    ({}, {"ngrams": {"column": "zz"}}, "ngrams 'zz' is not a column of data.parquet"),
    (
        {},
        {"groups": "zz"},
        "groups 'zz' is not a column of data.parquet; it has a, b, c, target",
    ),
    (
        PART,
        {"time": "part"},
        "column 'part' of 'time' has text that is no date or time, such as 't",
    ),
    (
        TRUTH,
        {"time": "b"},
        "column 'b' of 'time' is bool; name one of numbers, or of dates",
    ),
    (
        NESTED,
        {"groups": "b"},
        "column 'b' of 'groups' is list<.*; name one of text or numbers",
    ),
    (
        PART,
        {"weights": "part"},
        "column 'part' of 'weights' must hold numbers, got 'test' in row 0 ",
    ),
    (
        {"b": [-1, np.inf] * 15},
        {"weights": "b"},
        "'weights' must be finite and not negative, got -1 among 30 such",
    ),
    ({"b": 0}, {"weights": "b"}, "column 'b' of 'weights' has no weight above zero"),
    (
        {},
        {"task": "regression"},
        r"target 'target' is text \('no', 'yes'\), which a regression cannot use",
    ),
    ({}, {"positive": "maybe"}, f"{POSITIVE}, got 'maybe'.*'no', 'yes'"),
    (DIGITS, {"positive": [1, 11]}, f"{POSITIVE}, got '1', '11'; "),
    (DIGITS, {"positive": list(range(10))}, POSITIVE),
]
LONG = "a" * 500 + ',"b\nc",target\n' + "x" * 500 + ",1,2\ny,2,3\n"
NAMELESS = {
    "where": {"f0": 1},
    "bytes": "f0",
    "ngrams": {"column": "f0"},
    "drop": ["f0"],
    "features": "f0",
}
NAMELESS |= {"columns": {"f0": "categorical"}, "groups": "f0"}
FILES: list[tuple[str, str | None, dict[str, Any], str]] = [
    ("gone.csv", None, {}, r"there is no file .*gone\.csv"),
    ("data.parquet", "hello", {}, r"data\.parquet cannot be read as parquet"),
    (
        "data.xlsx",
        "hello",
        {},
        "cannot read data.xlsx; supported endings: .parquet, .csv",
    ),
    ("data.libsvm", "1 a:b", {}, "cannot be read as LIBSVM text"),
    (
        "data.libsvm",
        "0 2:-1\n1 1:2\n",
        {"scale": "standard"},
        "would fill this sparse data set's zeros",
    ),
    (
        "data.libsvm",
        "0 2:-1\n1 1:2\n",
        {"scale": "unit"},
        "would fill this sparse data set's zeros",
    ),
    (
        "data.csv",
        "a,day,target\n1,,x\n2,NA,y\n3,,x\n",
        {"time": "day"},
        "column 'day' of 'time' has no date or time in any row; name another column",
    ),
    ("data.csv", LONG, {"columns": {"a" * 500: "number"}}, ""),
    ("data.csv", LONG, {"target": "t" * 500}, ""),
    ("data.csv", LONG, {"where": {"a" * 500: "z" * 500}}, ""),
    ("data.csv", LONG, {"drop": ["q" * 500]}, ""),
]


def test_a_faulty_table_gets_one_sentence(frame: pd.DataFrame, tmp_path: Path):
    refused = [
        ("data.parquet", frame.assign(**columns), keys, said)
        for columns, keys, said in FAULTY
    ]
    pairs = pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string(), pa.int64()))
    refused += [
        ("data.parquet", frame[["target"]], {}, "leaves 30 rows and 0 feature columns"),
        ("data.parquet", pa.table({"a": [1.0, 2.0], "target": pairs}), {}, NO_KIND),
    ]
    for key, value in NAMELESS.items():
        said = f"'{key}' does not go with data.libsvm, whose columns have no names"
        refused.append(("data.libsvm", "1 1:2\n-1 1:3\n", {key: value}, said))
    for ending, twice in product(ENDINGS[:3], ["a", "target"]):
        columns = [*frame.columns, twice]
        table = pa.table([pa.array(frame[name]) for name in columns], names=columns)
        said = (
            f"data set data: data{ending} has column '{twice}' more than once; rename"
        )
        refused.append((f"data{ending}", table, {}, said))
    said = require_refused(tmp_path, [*refused, *FILES])
    assert not [sentence for sentence in said if not is_sentence(sentence)]


def test_arrays_of_different_lengths_are_refused(tmp_path: Path):
    np.savez(tmp_path / "data.npz", a=np.arange(30.0), target=np.arange(20) % 2)
    said = r"data\.npz has arrays of 30 and 20 rows; write equally many"
    with pytest.raises(InputError, match=said):
        load(tmp_path, "data.npz")


# Which rows are kept --------------------------------------------------------------------------------------------------


def test_rows_with_missing_values_are_dropped_where_that_is_asked_for(
    frame: pd.DataFrame, tmp_path: Path
):
    for target in (frame["target"], (frame["a"] > 0).astype("Int64")):
        # Whole numbers with nulls, as Parquet holds them
        table = frame.astype({"b": "Int64"})
        table.loc[[3, 4], "a"] = np.nan
        table.loc[[4, 9], "b"] = pd.NA
        table["target"] = target.mask(frame.index.isin([9, 20]))
        dataset = read(tmp_path, table, missing="drop")
        nulls = pyarrow.parquet.read_table(tmp_path / "data.parquet")
        assert [nulls[name].null_count for name in ("b", "target")] == [2, 2]
        assert dataset.features == ("a", "b", "c")
        require_rows(dataset, frame.assign(target=target).drop(index=[3, 4, 9, 20]))


def test_new_rows_of_a_table_of_numbers_may_lack_values(
    frame: pd.DataFrame, tmp_path: Path
):
    table = read(tmp_path, frame, scale="standard").table
    new = frame.astype({"a": float}).assign(a=np.nan)
    filled = frame.assign(a=frame["a"].median())
    np.testing.assert_array_equal(
        table.encode(new[[*FEATURES]]), table.encode(filled[[*FEATURES]])
    )


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("columns", [None, {"shop": "code", "a": "number"}])
def test_missing_values_beside_many_categories_count(
    tmp_path: Path, in_parts: bool, columns: dict[str, str] | None
):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=400), "target": rng.normal(size=400)})
    table["shop"] = [f"shop {row % 40}" for row in range(400)]
    table.loc[7, ["a", "shop"]] = [1e3, None]
    keys = {"in_parts": in_parts, "columns": columns, "scale": "standard"}
    with pytest.raises(InputError, match=r"missing values in column shop \(1\) of 400"):
        read(tmp_path, table, missing="refuse", **keys)
    dropped = load(tmp_path, "data.parquet", missing="drop", **keys)
    complete = table.drop(index=7).reset_index(drop=True)
    np.testing.assert_allclose(
        dropped.X[:], read(tmp_path, complete, "complete.parquet", **keys).X[:]
    )


def test_rows_with_missing_values_of_a_sparse_file_are_dropped(tmp_path: Path):
    text = "1 1:2 2:1\n-1 1:nan 3:1\n1\n-1 3:4\nnan 1:1\n-1 2:inf\n1 2:3"
    rows = pd.DataFrame(
        [[2, 1, 0], [0, 0, 0], [0, 0, 4], [0, 3, 0]], columns=["f0", "f1", "f2"]
    )
    require_rows(
        read(tmp_path, text, "data.libsvm", missing="drop"),
        rows.assign(target=[1, 1, -1, 1]),
    )
    with pytest.raises(
        InputError,
        match=r"target 'target' is missing .* in 1 of 7 rows; .*'missing: drop'",
    ):
        load(tmp_path, "data.libsvm", missing="refuse")


def test_rows_without_a_target_are_left_out_with_a_word(
    frame: pd.DataFrame, tmp_path: Path
):
    frame.loc[[3, 8], "target"] = None
    told: list[str] = []
    require_rows(read(tmp_path, frame, tell=told.append), frame.drop(index=[3, 8]))
    assert told == ["data set data: 2 of 30 rows have no target, and are left out."]


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".feather"])
def test_labels_of_a_boolean_target_stay_booleans_without_the_missing_ones(
    frame: pd.DataFrame, tmp_path: Path, ending: str
):
    frame["target"] = (frame["a"] > 0).astype("boolean")
    whole = read(tmp_path, frame[1:], f"whole{ending}").target
    frame.loc[0, "target"] = None
    write(frame, tmp_path / f"gap{ending}")
    target = load(tmp_path, f"gap{ending}", tell=lambda sentence: None).target
    assert (target.labels, target.classes) == ("boolean", whole.classes)
    assert target.given.dtype == bool
    np.testing.assert_array_equal(target.given, whole.given)


@pytest.mark.parametrize("ending", ENDINGS[:3])
def test_where_keeps_rows(frame: pd.DataFrame, tmp_path: Path, ending: str):
    b, kinds = frame["b"], ["x", "y", "z", None, "x"] * 6
    frame = frame.assign(
        part=["one", "two", None] * 10, half=b / 2, flag=frame["a"] > 0, kind=kinds
    )
    # As many as an int8 has codes for, and one more for what is missing
    names = [f"level {i}" for i in range(128)]
    frame["level"] = pd.Categorical.from_codes([-1, *range(99, 128)], names)
    drop = ["part", "flag", "target", "level", "kind"]
    write(frame, tmp_path / f"data{ending}")
    for where, kept in (
        ({"part": "one"}, frame["part"] == "one"),
        ({"b": [1, 3]}, b.isin([1, 3])),
        ({"b": "1", "half": [0.5, 2.0]}, b == 1),
        ({"half": [1, 1.5]}, b.isin([2, 3])),
        ({"flag": False}, ~frame["flag"]),
        (
            {"target": "yes", "part": ["one", "two"]},
            (frame["target"] == "yes") & frame["part"].notna(),
        ),
        ({"level": ["level 127", "level 120"]}, frame.index.isin([22, 29])),
    ):
        dataset = load(tmp_path, f"data{ending}", where=where, target="a", drop=drop)
        assert dataset.features == tuple(
            name for name in ("b", "c", "half") if name not in where
        )
        require_rows(dataset, frame[kept], "a")
    keys = {
        "where": {"kind": ["x", "y"], "part": "two"},
        "target": "kind",
        "drop": ["part", "target", "flag", "level"],
    }
    dataset = load(tmp_path, f"data{ending}", **keys)
    assert (dataset.features, dataset.target.classes) == (
        ("a", "b", "c", "half"),
        ("x", "y"),
    )
    require_rows(
        dataset,
        frame[frame["kind"].isin(["x", "y"]) & (frame["part"] == "two")],
        "kind",
    )


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize(
    "levels",
    [["3.1", "3.9", "3.10", "3.11"], ["100", "1E2", "1e2", "7"]],
    ids=["versions", "codes"],
)
def test_levels_that_are_equal_as_numbers_are_different(
    tmp_path: Path, levels: list[str], ending: str
):
    size = np.sin(np.arange(40.0))
    frame = pd.DataFrame({"level": levels * 10, "size": size, "target": size**2})
    name = f"data{ending}"
    write(frame, tmp_path / name)
    for column_type in ("categorical", "code", levels):
        dataset = load(
            tmp_path, name, columns={"level": column_type}, features=["level"]
        )
        assert len(np.unique(dataset.X, axis=0)) == 4
    selection = {"level": levels[0]}
    assert len(load(tmp_path, name, where=selection).target) == 10
    assert load(tmp_path, name, test=selection).held_out.sum() == 10
    assert len(np.unique(load(tmp_path, name, groups="level").groups)) == 4


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_rows_that_test_are_marked_and_follow_the_others(
    frame: pd.DataFrame, tmp_path: Path, ending: str
):
    frame["part"] = np.where(np.arange(30) % 3 == 0, "test", "train")
    frame.loc[[4, 9], "c"] = np.nan
    frame.loc[20] = frame.loc[10]
    keys = {
        "test": {"part": "test"},
        "where": {"b": [0, 1, 2, 3]},
        "missing": "drop",
        "distinct": True,
    }
    dataset = read(tmp_path, frame, f"data{ending}", **keys)
    kept = frame[frame["b"] < 4].dropna().drop_duplicates()
    assert dataset.features == ("a", "c")
    np.testing.assert_array_equal(dataset.held_out, kept["part"] == "test")
    require_equal(load_dataset(store_dataset(dataset, "marked", "here")), dataset)
    assert dataset_digest(dataset) != dataset_digest(replace(dataset, held_out=None))
    some = load(tmp_path, f"data{ending}", **keys, subsample=12)
    where = [int(np.flatnonzero((row == dataset.X).all(axis=1))[0]) for row in some.X]
    np.testing.assert_array_equal(some.held_out, dataset.held_out[where])


def test_of_rows_equal_but_for_dropped_columns_the_first_stays(
    frame: pd.DataFrame, tmp_path: Path
):
    names, rng = ["f0", "f1", "f2"], np.random.default_rng(1)
    rows = pd.DataFrame(rng.integers(-1, 2, (200, 3)).astype(float), columns=names)
    rows["target"] = rng.integers(0, 2, 200)
    signed = rows.copy()
    signed.loc[::3, names] = signed.loc[::3, names].replace(0.0, -0.0)
    for name, table in {"data.parquet": signed, "data.libsvm": rows}.items():
        require_rows(read(tmp_path, table, name, distinct=True), rows.drop_duplicates())
    twice = pd.concat([frame, frame], ignore_index=True).assign(row=np.arange(60))
    require_rows(read(tmp_path, twice, distinct=True, drop=["row"]), frame)
    assert read(tmp_path, twice, distinct=True).X.shape == (60, 4)


@pytest.mark.parametrize(
    "kind", [pa.binary(3), pa.binary(), pa.large_binary()], ids=str
)
def test_bytes_become_features_in_their_place(tmp_path: Path, kind: pa.DataType):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 3), dtype=np.uint8)
    image = pa.array([row.tobytes() for row in pixels], kind)
    table = pa.table(
        {"a": np.arange(20.0), "image": image, "b": np.ones(20), "target": [0, 1] * 10}
    )
    write(pa.concat_tables([table[:7], table[7:]]), tmp_path / "data.parquet", 6)
    dataset = load(
        tmp_path, "data.parquet", bytes="image", where={"target": 1}, target="a"
    )
    assert dataset.features == ("image_0", "image_1", "image_2", "b")
    np.testing.assert_array_equal(dataset.X[:, :3], pixels[1::2])


# Text from elsewhere --------------------------------------------------------------------------------------------------


def streamed(path: Path, *columns: str) -> list[pa.Table]:
    """Read a table as one to predict from is read."""
    with tables.Table([locations.locate(str(path))]) as table:
        return list(table.tables(columns, 100))


def test_columns_of_bytes_are_left_out_with_a_word(frame: pd.DataFrame, tmp_path: Path):
    told: list[str] = []
    assert read(tmp_path, frame.assign(**BYTES), tell=told.append).features == (
        "a",
        "c",
    )
    assert told == ["data set data: column 'b' is left out, as it holds lists, records or bytes; say what it is with "
                    "'columns' to keep it."]  # fmt: skip


UNICODE = ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-16-le"]


@pytest.mark.parametrize("encoding", [*UNICODE, "cp1252", "cp1251", "cp932"])
def test_a_csv_in_another_encoding_is_read(tmp_path: Path, encoding: str):
    words = {
        "cp1251": ["\u0414\u0430", "\u041d\u0435\u0442"],
        "cp932": ["\u6771\u4eac", "\u5927\u962a"],
    }
    words = words.get(encoding, ["Z\u00fcrich", "Gen\u00e8ve"])
    name = "ort" if encoding in ("cp1251", "cp932") else "Stra\u00dfe"
    text = f"x,{name},target\n" + "".join(
        f"{i / 7},{words[i % 2]},{i % 2}\n" for i in range(40)
    )
    (tmp_path / "data.csv").write_bytes(text.encode(encoding))
    sentences: list[str] = []
    dataset = load(tmp_path, "data.csv", tell=sentences.append)
    assert set(dataset.features) == {"x", *(f"{name}={word}" for word in words)}
    told = [f"{encoding}."] * (encoding not in UNICODE)
    assert [
        sentence.split(" is not UTF-8, and is read as ")[1] for sentence in sentences
    ] == told
    pieces = streamed(tmp_path / "data.csv", name)
    assert pieces[0].column(0).to_pylist()[:2] == words


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("line", ["\n", "\r\n"])
def test_what_separates_columns_is_what_all_lines_agree_on(
    tmp_path: Path, delimiter: str, line: str
):
    said = f"sep={delimiter}{line}" if delimiter == "|" else ""
    header = f'{said}"x (a,b,c;d)"{delimiter} z {delimiter}target'
    rows = [
        f'{i}{delimiter}"one, two; {i % 3}\nthree"{delimiter}{i % 2}' for i in range(60)
    ]
    (tmp_path / "data.csv").write_bytes(line.join([header, *rows, ""]).encode())
    dataset = load(tmp_path, "data.csv", columns={"x (a,b,c;d)": "number"})
    assert dataset.features[0] == "x (a,b,c;d)"
    assert [
        name for name in dataset.features[1:] if not name.startswith("z=one, two; ")
    ] == []
    assert len(dataset.features) == 4


def test_a_quoted_line_break_may_be_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("learnkernels.tasks.data.tables.BLOCK_BYTES", 1 << 12)
    rows = [f'{i},"line one {i % 5}\nline two",{i % 2}' for i in range(3000)]
    (tmp_path / "data.csv").write_text("\n".join(["x,note,target", *rows, ""]))
    assert load(tmp_path, "data.csv", columns={"x": "number"}).X.shape == (3000, 6)


def test_a_number_in_hexadecimal_is_text_in_training_and_in_prediction(tmp_path: Path):
    told: list[str] = []
    text = "a,b,target\n" + "".join(f"{i},{hex(i)},{i % 2}\n" for i in range(20))
    dataset = read(
        tmp_path, text, "data.csv", columns={"a": "number"}, tell=told.append
    )
    assert dataset.features == ("a",)
    assert "column 'b' is left out, as nearly all of its texts differ" in told[0]
    assert load(tmp_path, "data.csv", drop=["b"]).X[:, 0].tolist() == list(range(20))
    assert streamed(tmp_path / "data.csv", "b")[0].column(0)[0].as_py() == "0x0"


def encoded(number: int) -> bytes:
    """Return how the footer of Parquet writes a whole number of 64 to 8191."""
    return bytes([0x16, 2 * number & 127 | 128, number >> 6])


def test_rows_that_are_stated_and_not_there_are_refused(tmp_path: Path):
    path = tmp_path / "data.parquet"
    write(pa.table({"a": np.arange(1000.0), "target": np.arange(1000) % 2}), path, 500)
    whole = path.read_bytes()
    assert whole.count(encoded(1000)) == 1
    for stated in (1010, 990):
        path.write_bytes(whole.replace(encoded(1000), encoded(stated)))
        acts = partial(load, tmp_path, path.name), partial(streamed, path, "a")
        require_refusals(
            ((act, "cannot be read as parquet") for act in acts), error=InputError
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
    found = [
        (name, keys, load(shared_data, f"{name}.parquet", **keys).X.shape)
        for name, keys, _ in sizes
    ]
    assert found == sizes
    ionosphere = load(
        shared_data, "ionosphere.parquet", positive="g", task="regression"
    )
    assert (ionosphere.X.shape, ionosphere.target.values.sum()) == (
        (351, 34),
        225 - 126,
    )


def test_every_data_set_of_the_papers_can_be_read(shared_data: Path):
    catalogue = yaml.safe_load((ROOT / "conf" / "papers" / "datasets.yaml").read_text())
    titles = {"column": "title", "most_frequent": 50}
    for name, entry in catalogue["sets"].items():
        assert set(entry) <= {"file", "openml"}
        for source, keys in entry.items():
            texts = str(keys.get("path")) in (
                "sentiment.parquet",
                "reuters21578.parquet",
            )
            found = DatasetConfig.of(
                {"label": name, **keys, "ngrams": titles if texts else None}
            )
            assert (found.source, found.label) == (source, name)
            if source == "file" and name != "mnist":
                assert ingest.load_source(found, str(shared_data)).X.shape[0] >= 195


# Memory ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv"])
def test_batches_change_no_bit(frame: pd.DataFrame, tmp_path: Path, ending: str):
    frame.loc[[3, 17, 22], "a"] = np.nan
    frame["part"] = ["one", "two", "three"] * 10
    frame["raw"] = frame["b"].astype(str)
    write(frame, tmp_path / f"data{ending}", 11 if ending == ".parquet" else 1000)
    keys = {
        "where": {"part": ["one", "three"]},
        "drop": ["raw"],
        "missing": "drop",
        "scale": "standard",
    }
    pieces = load(tmp_path, f"data{ending}", **keys)
    write(frame, tmp_path / f"data{ending}", 1000)
    expected = np.ascontiguousarray(
        frame[frame["part"] != "two"].dropna()[FEATURES].to_numpy(float)
    )
    scaled = (expected - expected.mean(axis=0)) / expected.std(axis=0)
    # Sums go through the numbers in their order
    np.testing.assert_allclose(pieces.X, scaled, rtol=1e-14, atol=1e-15)
    assert dataset_digest(pieces) == dataset_digest(
        load(tmp_path, f"data{ending}", **keys)
    )


@pytest.mark.parametrize("scale", ["unit", "standard"])
def test_no_second_matrix_is_made_of_a_table(tmp_path: Path, scale: str):
    tables.forget_columns()
    X = np.random.default_rng(0).normal(size=(10_000, 50))
    table = pd.DataFrame(X).rename(columns=str).assign(target=X[:, 0] > 0)
    for name, rows in (("data.parquet", table), ("few.parquet", table[:100])):
        write(rows, tmp_path / name, len(X))
    held, before = [], pa.total_allocated_bytes()

    def work(name: str) -> None:
        held.append(load(tmp_path, name, scale=scale))
        store_dataset(held[-1], "data", "here")

    assert peak_of(work, "data.parquet", before=("few.parquet",)) < 1.5 * X.nbytes
    assert pa.total_allocated_bytes() - before < 0.1 * X.nbytes
