"""Columns of groups and of time: read, kept, digested, and what of them cannot be used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import CompareConfig, DatasetConfig
from learnkernels.kernels.targets import Target
from learnkernels.tasks.data.dataset import Dataset, DatasetRef, dataset_digest, load_dataset, store_dataset
from learnkernels.tasks.data.ingest import load_source
from learnkernels.tasks.measure.evaluation import predictor_for
from learnkernels.tasks.measure.moments import draw_folds, require_feasible


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "a": rng.normal(size=60).round(3),
            "patient": np.array(["p9", "p1", "p5", "p3", "p7", "p2", "p0", "p8", "p4", "p6"])[np.arange(60) % 10],
            "day": pd.date_range("2024-01-01", periods=60)[rng.permutation(60)],
            "target": rng.normal(size=60).round(3),
        }
    )


def config(path: str, **keys: Any) -> DatasetConfig:
    return DatasetConfig.model_validate({"source": "file", "path": path, "drop": [], **keys})


@pytest.mark.parametrize("ending", ["parquet", "csv", "feather"])
def test_groups_and_times_are_read_and_are_no_features(frame: pd.DataFrame, tmp_path: Path, ending: str):
    path = tmp_path / f"data.{ending}"
    frame.to_csv(path, index=False) if ending == "csv" else getattr(frame, f"to_{ending}")(path)
    grouped = load_source(config(path.name, groups="patient", drop=["day"]), str(tmp_path))
    assert grouped.features == ("a",)
    np.testing.assert_array_equal(grouped.groups, np.arange(60) % 10)
    ordered = load_source(config(path.name, time="day", drop=["patient"]), str(tmp_path))
    assert ordered.features == ("a",)
    np.testing.assert_array_equal(ordered.times, frame["day"].rank().to_numpy() - 1)
    for dataset in (grouped, ordered):
        ref = store_dataset(dataset, "d", "here")
        kept = load_dataset(ref)
        assert ref.ordered == (dataset is ordered)
        assert list(kept.beside) == list(dataset.beside)
        for name, values in kept.beside.items():
            np.testing.assert_array_equal(values, dataset.beside[name])


@pytest.mark.parametrize(
    "times",
    [
        [3, 1, 2, 2],
        [2.5, -1.0, 0.5, 0.5],
        [2**60 + 2, 2**60, 2**60 + 1, 2**60 + 1],
        ["2024-03-01", "2023-12-31", "2024-01-31T12:00", "2024-01-31 14:00+02:00"],
        ["2024-03", "2023", "2024-02-01", "2024-02"],
        list(pd.to_datetime(["2024-03-01", "2023-12-31", "2024-02-01", "2024-02-01"]).date),
        pd.Categorical(["2024-03-01", "2023-12-31", "2024-02-01", "2024-02-01"]),
    ],
)
def test_numbers_dates_and_iso_text_are_times(tmp_path: Path, times: Any):
    pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "when": times, "target": [0.1, 0.4, 0.3, 0.2]}).to_parquet(
        tmp_path / "t.parquet"
    )
    dataset = load_source(config("t.parquet", time="when"), str(tmp_path))
    np.testing.assert_array_equal(dataset.times, [2, 0, 1, 1])


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize(("key", "column"), [("groups", "patient"), ("time", "day")])
def test_rows_whose_group_or_time_is_missing_are_refused_or_dropped(
    frame: pd.DataFrame, tmp_path: Path, ending: str, key: str, column: str
):
    frame["day"] = frame["day"].astype(str)
    frame.loc[[3, 7], column] = None
    frame.loc[11, "a"] = np.nan
    path = tmp_path / f"data.{ending}"
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    keys = {key: column, "drop": ["patient", "day"]}
    with pytest.raises(InputError, match=f"column '{column}' of '{key}' is missing in 2 of 60 rows; set 'missing: dr"):
        load_source(config(path.name, **keys), str(tmp_path))
    dataset = load_source(config(path.name, **keys, missing="drop", distinct=True), str(tmp_path))
    kept = frame.drop(index=[3, 7, 11])
    (values,) = dataset.beside.values()
    assert len(dataset.target) == 57
    np.testing.assert_array_equal(pd.factorize(values)[0], pd.factorize(kept[column])[0])
    some = load_source(config(path.name, **keys, missing="drop", subsample=20), str(tmp_path), seed=1)
    rows = [int(np.flatnonzero(dataset.X[:, 0] == x)[0]) for x in some.X[:, 0]]
    np.testing.assert_array_equal(next(iter(some.beside.values())), values[rows])


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"groups": "patinet"}, "groups 'patinet' is not a column of data.parquet; it has a, patient, day, target"),
        ({"time": "patient"}, "column 'patient' of 'time' has text that is no date or time, such as 'p9'"),
        ({"time": "flag"}, "column 'flag' of 'time' is bool; name one of numbers, or of dates"),
        ({"groups": "list"}, "column 'list' of 'groups' is list<.*; name one of text or numbers"),
        ({"weights": "patient"}, "column 'patient' of 'weights' is large_string; name one of numbers"),
        ({"weights": "b"}, "column 'b' of 'weights' must be finite and not negative, got -1 among 2 such rows; corr"),
        ({"weights": "zero"}, "column 'zero' of 'weights' has no weight above zero"),
    ],
)
def test_columns_that_do_not_serve_are_refused(frame: pd.DataFrame, tmp_path: Path, keys: Any, sentence: str):
    frame["flag"], frame["list"] = frame["a"] > 0, [[1]] * 60
    frame["b"], frame["zero"] = [-1.0, np.inf] + [1.0] * 58, 0
    frame.to_parquet(tmp_path / "data.parquet")
    with pytest.raises(InputError, match=sentence):
        load_source(config("data.parquet", drop=["patient", "day", "flag", "list", "b", "zero"], **keys), str(tmp_path))


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"groups": "a", "time": "b"}, "'groups' and 'time' exclude each other"),
        ({"time": "b", "test": {"part": "x"}}, "with 'time' the last rows test, and 'test' names others"),
        ({"groups": "target"}, "column 'target' of 'groups' is the target"),
        ({"groups": "a", "bytes": "a"}, "column 'a' of 'bytes' is in 'groups' as well"),
        ({"source": "sklearn", "name": "iris", "groups": "a"}, "'groups' goes with sources 'file' and 'openml'"),
        ({"source": "synthetic", "name": "friedman", "time": "a"}, "'time' goes with sources 'file' and 'openml'"),
    ],
)
def test_keys_that_exclude_each_other_are_refused(keys: Any, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        DatasetConfig.model_validate({"source": "file", **({} if "name" in keys else {"path": "a.csv"}), **keys})


def test_a_data_set_in_time_is_not_repeated():
    keys = {"name": "a", "datasets": [{"source": "file", "path": "a.csv", "time": "day"}], "protocol": {"repeats": 2}}
    with pytest.raises(ValueError, match="data set a: with 'time' nothing is drawn, so that repeats are all the same"):
        CompareConfig.model_validate(keys)


def test_weights_are_read_and_rows_of_weight_zero_are_left_out(frame: pd.DataFrame, tmp_path: Path):
    frame["w"] = np.arange(60) % 4
    frame.loc[[5, 6], "w"] = np.nan
    frame.to_csv(tmp_path / "data.csv", index=False)
    given = config("data.csv", weights="w", groups="patient", drop=["day"], missing="drop")
    dataset = load_source(given, str(tmp_path))
    kept = frame[frame["w"] > 0]
    assert dataset.features == ("a",)
    np.testing.assert_array_equal(dataset.X[:, 0], kept["a"])
    np.testing.assert_array_equal(dataset.target.values, kept["target"])
    np.testing.assert_array_equal(dataset.weights, kept["w"])
    np.testing.assert_array_equal(pd.factorize(dataset.groups)[0], pd.factorize(kept["patient"])[0])
    ref = store_dataset(dataset, "d", "here")
    assert ref.weighted
    np.testing.assert_array_equal(load_dataset(ref).weights, dataset.weights)


def weighted(**keys: Any) -> CompareConfig:
    data = {"name": "a", "datasets": [{"source": "file", "path": "a.csv", "weights": "w"}]}
    return CompareConfig.model_validate(data | {"kernels": [{"family": "linear"}], "learners": ["alignf"]} | keys)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        (
            {"learners": ["l2-krr"]},
            "data set d: 'weights' gives rows weights, and learner l2-krr learns from rows that",
        ),
        (
            {"learners": ["ensemble"]},
            "and learner ensemble learns from rows that count once each; leave one of them ou",
        ),
        ({"moments": {"sample": "auto"}}, "and a sample counts each row once; leave 'weights' out, or set 'moments.sa"),
        ({"baseline": {}}, "and the grid search of 'baseline' counts each row once; leave one of them out"),
    ],
)
def test_what_takes_no_weights_is_refused_before_long_work(keys: Any, sentence: str):
    ref = DatasetRef("d", "0", "p", "regression", "s", 100, 3, weighted=True)
    assert predictor_for(weighted(), weighted().learners[0], ref).predictor.name == "krr"
    given = weighted(**keys)
    with pytest.raises(InputError, match=sentence):
        predictor_for(given, given.learners[0], ref)


def test_libsvm_files_have_no_columns_of_groups(tmp_path: Path):
    (tmp_path / "a.libsvm").write_text("1 1:2\n2 1:3\n")
    with pytest.raises(InputError, match=r"'groups' does not go with a.libsvm, whose columns have no names"):
        load_source(config("a.libsvm", groups="b"), str(tmp_path))


def test_what_is_stored_under_older_keys_is_found():
    """Digests and dumps of data sets and configurations that know nothing of groups, time or metrics."""
    X, target = np.arange(12.0).reshape(6, 2), Target.of(np.array(["a", "b"] * 3))
    plain = Dataset(X, target, ("x", "z"))
    assert dataset_digest(plain) == "8be4f2e29064dc26af76"
    assert dataset_digest(replace(plain, held_out=np.arange(6) > 3)) == "8acf8b3c34615b214ae9"
    numbers = np.arange(6)
    assert (
        len({dataset_digest(of) for of in (plain, replace(plain, groups=numbers), replace(plain, times=numbers))}) == 3
    )
    dump = CompareConfig.model_validate({"name": "a", "datasets": [{"source": "file", "path": "a.csv"}]}).model_dump()
    assert not {"groups", "time", "weights", "test"} & set(dump["datasets"][0])
    assert "metric" not in dump["protocol"]


def stored(task: str, groups: np.ndarray | None = None, times: np.ndarray | None = None) -> Dataset:
    rng = np.random.default_rng(2)
    y = rng.normal(size=60) if task == "regression" else np.where(np.arange(60) < 20, "a", "b")
    return Dataset(rng.normal(size=(60, 2)), Target.of(y), ("x", "z"), groups=groups, times=times)


def feasible(dataset: Dataset, **protocol: Any) -> None:
    keys = {"name": "a", "datasets": [{"source": "sklearn", "name": "iris"}], "protocol": protocol}
    given = CompareConfig.model_validate(keys)
    require_feasible(store_dataset(dataset, "d", "here"), given.kernels, given.protocol)


FEW = np.arange(60) // 20


@pytest.mark.parametrize(
    ("dataset", "protocol", "sentence"),
    [
        (
            stored("regression", FEW),
            {},
            "data set d: there must be at least one group a fold, got 3 groups for 5 folds",
        ),
        (stored("regression", FEW), {"folds": 3, "repeats": 9}, "data set d: 9 repeats divide its groups in . differ"),
        (
            stored("classes", np.arange(60) // 10),
            {},
            "each class must have a group in at least 3 folds, .* got 2 for class",
        ),
        (
            stored("classes", times=np.arange(60)),
            {},
            "data set d: each class must have at least one row in the first b",
        ),
        (stored("regression"), {"metric": "f1"}, "data set d: metric f1 is for classification, and this is a regressi"),
        (
            stored("classes", times=np.arange(60) % 41),
            {"metric": "roc_auc"},
            "data set d: metric roc_auc needs both classes among the rows that (validate|test), and",
        ),
    ],
)
def test_what_a_data_set_does_not_allow_is_said_before_long_work(dataset: Dataset, protocol: Any, sentence: str):
    with pytest.raises(InputError, match=sentence) as told:
        feasible(dataset, **protocol)
    assert len(str(told.value)) < 400


@pytest.mark.parametrize("protocol", [{}, {"split": {"train": 30, "test": 12}, "choose": {"folds": 3}}])
def test_folds_of_groups_are_drawn_anew_in_each_repeat(protocol: Any):
    dataset = stored("regression", np.arange(60) // 3)
    given = CompareConfig.model_validate(
        {"name": "a", "datasets": [{"source": "sklearn", "name": "iris"}], "protocol": {**protocol, "repeats": 4}}
    ).protocol
    drawn = [draw_folds(dataset, given, seed) for seed in range(4)]
    assert len({of.tobytes() for of in drawn}) == 4
    for of in drawn:
        assert all(len(set(of[dataset.groups == group])) == 1 for group in range(20))
    feasible(dataset, **protocol, repeats=4)
