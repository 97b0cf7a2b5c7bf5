"""Columns of groups and of time: read, kept, digested, and what of them cannot be used."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import CompareConfig, DatasetConfig, ProtocolConfig
from learnkernels.kernels.targets import Target
from learnkernels.tasks.data.dataset import (
    Dataset,
    DatasetRef,
    dataset_digest,
    draw_folds,
    load_dataset,
    store_dataset,
)
from learnkernels.tasks.measure import fold_statistics, run_learner
from tests.refusals import require_refusals
from tests.sources import load, read, require_equal, require_refused, write


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=60).round(3),
            "patient": [f"p{i}" for i in (9, 1, 5, 3, 7, 2)] * 10,
        }
    )
    day = pd.date_range("2024-01-01", periods=60)[rng.permutation(60)]
    return frame.assign(day=day, target=rng.normal(size=60).round(3))


def compared(**keys: Any) -> CompareConfig:
    return CompareConfig.model_validate(
        {"name": "a", "datasets": [{"source": "file", "path": "a.csv"}]} | keys
    )


@pytest.mark.parametrize("ending", ["parquet", "csv", "feather"])
def test_groups_and_times_are_read_and_are_no_features(
    frame: pd.DataFrame, tmp_path, ending: str
):
    write(frame, tmp_path / f"data.{ending}")
    grouped = load(tmp_path, f"data.{ending}", groups="patient", drop=["day"])
    ordered = load(tmp_path, f"data.{ending}", time="day", drop=["patient"])
    np.testing.assert_array_equal(grouped.groups, np.arange(60) % 6)
    np.testing.assert_array_equal(ordered.times, frame["day"].rank().to_numpy() - 1)
    for dataset in (grouped, ordered):
        ref = store_dataset(dataset, "d", "here")
        assert dataset.features == ("a",)
        assert ref.ordered == (dataset is ordered)
        require_equal(load_dataset(ref), dataset)


def test_numbers_dates_and_iso_text_are_times(tmp_path):
    dates = ["2024-03-01", "2023-12-31", "2024-02-01", "2024-02-01"]
    kinds: list[Any] = [
        [3, 1, 2, 2],
        [2.5, -1.0, 0.5, 0.5],
        [2**60 + 2, 2**60, 2**60 + 1, 2**60 + 1],
    ]
    kinds.append(
        ["2024-03-01", "2023-12-31", "2024-01-31T12:00", "2024-01-31 14:00+02:00"]
    )
    kinds += [
        ["2024-03", "2023", "2024-02-01", "2024-02"],
        list(pd.to_datetime(dates).date),
        pd.Categorical(dates),
    ]
    for times in kinds:
        table = pd.DataFrame(
            {"x": [1.0, 2.0, 3.0, 4.0], "when": times, "target": [0.1, 0.4, 0.3, 0.2]}
        )
        np.testing.assert_array_equal(
            read(tmp_path, table, time="when").times, [2, 0, 1, 1], err_msg=str(times)
        )


BESIDE = [
    ("parquet", "groups", "patient"),
    ("parquet", "time", "day"),
    ("csv", "time", "day"),
    ("csv", "weights", "w"),
]


@pytest.mark.parametrize(("ending", "key", "column"), BESIDE)
def test_rows_without_values_beside_are_refused_or_dropped(
    frame, tmp_path, ending, key, column
):
    frame = frame.assign(day=frame["day"].astype(str), w=np.arange(60.0) % 4)
    frame.loc[[3, 7], column] = None
    frame.loc[11, "a"] = np.nan
    name, keys = f"data.{ending}", {key: column, "drop": ["patient", "day", "w"]}
    said = f"column '{column}' of '{key}' is missing in 2 of 60 rows; set 'missing: dr"
    require_refused(tmp_path, [(name, frame, keys, said)])
    dataset = read(tmp_path, frame, name, missing="drop", distinct=True, **keys)
    kept = frame.drop(index=[3, 7, 11])
    kept = kept[kept["w"] > 0] if key == "weights" else kept
    (values,) = dataset.sample_columns.values()
    assert dataset.features == ("a",)
    np.testing.assert_array_equal(
        np.column_stack([dataset.X, dataset.target.values]), kept[["a", "target"]]
    )
    np.testing.assert_array_equal(
        pd.factorize(values)[0], pd.factorize(kept[column])[0]
    )
    if key == "weights":
        np.testing.assert_allclose(values, kept["w"] / kept["w"].mean(), rtol=1e-14)
    ref = store_dataset(dataset, "d", "here")
    assert ref.weighted == (key == "weights")
    require_equal(load_dataset(ref), dataset)
    some = load(tmp_path, name, missing="drop", subsample=20, seed=1, **keys)
    rows = [int(np.flatnonzero(dataset.X[:, 0] == x)[0]) for x in some.X[:, 0]]
    (of_some,) = some.sample_columns.values()
    expected = values[rows] / values[rows].mean() if key == "weights" else values[rows]
    np.testing.assert_allclose(of_some, expected, rtol=1e-14)


@pytest.mark.parametrize("scale", [1e-12, 1e-300, 1e300])
def test_weights_are_the_same_at_any_scale_and_rows_of_too_little_are_left_out(
    frame, tmp_path, scale
):
    w, said = np.arange(60.0) % 4, list[str]()
    few = [2, 5, 17]
    keys = {"weights": "w", "drop": ["patient", "day", "w"], "scale": "none"}
    frame.assign(w=w).drop(index=few).to_csv(tmp_path / "plain.csv", index=False)
    w[few] = 1e-18
    frame.assign(w=scale * w).to_csv(tmp_path / "scaled.csv", index=False)
    plain, scaled = (
        load(tmp_path, "plain.csv", **keys),
        load(tmp_path, "scaled.csv", tell=said.append, **keys),
    )
    assert plain.weights.mean() == pytest.approx(1.0)
    np.testing.assert_array_equal(scaled.X, plain.X)
    np.testing.assert_allclose(scaled.weights, plain.weights, rtol=1e-14)
    (sentence,) = said
    assert (
        "column 'w' of 'weights' is too small to count in 3 of 60 rows, at most 2.2e-16 of the total"
        in sentence
    )


def test_keys_that_exclude_each_other_are_refused():
    named = "it goes with sources 'file' and 'openml'"
    for keys, sentence in (
        ({"groups": "a", "time": "b"}, "'groups' and 'time' exclude each other"),
        (
            {"time": "b", "test": {"part": "x"}},
            "with 'time' the last rows test, and 'test' names others",
        ),
        ({"groups": "target"}, "column 'target' of 'groups' is the target"),
        ({"groups": "a", "bytes": "a"}, "column 'a' of 'bytes' is in 'groups' as well"),
        (
            {"source": "sklearn", "name": "iris", "groups": "a"},
            f"unknown key 'groups'; {named}",
        ),
        (
            {"source": "synthetic", "name": "friedman", "time": "a"},
            f"unknown key 'time'; {named}",
        ),
    ):
        with pytest.raises(ValueError, match=sentence):
            DatasetConfig.of(
                ({} if "name" in keys else {"source": "file", "path": "a.csv"}) | keys
            )
    data = [{"source": "file", "path": "a.csv", "time": "day"}]
    with pytest.raises(
        ValueError, match="data set a: with 'time' folds are not drawn, so that repeats"
    ):
        compared(datasets=data, protocol={"repeats": 2})


@pytest.mark.parametrize(
    "split",
    [
        {"split": {"train": 20, "validation": 6, "test": 9}},
        {"split": {"train": 26, "test": 9}, "choose": {"folds": 3}},
    ],
)
def test_repeats_of_a_split_in_time_roll_back_by_the_rows_that_test(
    split: dict[str, Any],
):
    rng = np.random.default_rng(0)
    times = rng.permutation(np.repeat(np.arange(40), 2))
    dataset = Dataset(
        rng.normal(size=(80, 2)),
        Target.of(rng.normal(size=80)),
        ("a", "b"),
        times=times,
    )
    protocol = ProtocolConfig.model_validate(split | {"repeats": 4})
    tested: list[set[int]] = []
    end = 40
    for repeat in range(4):
        folds = draw_folds(dataset, protocol, repeat)
        test = folds == folds.max()
        # The newest of those before
        assert set(times[test]) == set(range(end - len(set(times[test])), end))
        assert times[(folds >= 0) & ~test].max() < times[test].min()
        end = times[test].min()
        tested.append(set(np.flatnonzero(test)))
    assert sum(map(len, tested)) == len(set.union(*tested)) >= 4 * 8
    with pytest.raises(ValueError, match="repeat 7 of a split in time: "):
        draw_folds(dataset, protocol, 9)


def test_what_takes_no_weights_is_refused_before_long_work():
    ref = DatasetRef("d", "0", "p", "regression", "s", 100, 3, weighted=True)
    refused = [
        (
            {"learners": ["l2-krr"]},
            "data set d: 'weights' gives rows weights, and learner l2-krr learns from rows th",
        ),
        (
            {"learners": ["ensemble"]},
            "and learner ensemble learns from rows that count once each; leave one of them",
        ),
        (
            {"statistics": {"sample": "auto"}},
            "and a sample counts each row once; leave 'weights' out, or set 'stat",
        ),
        (
            {"baseline": {"estimator": True}},
            "and the grid search of 'baseline' counts each row once; leave one of them out",
        ),
    ]

    def predictor(**keys: Any) -> Any:
        data = [{"source": "file", "path": "a.csv", "weights": "w"}]
        given = compared(
            **{
                "datasets": data,
                "kernels": [{"family": "linear"}],
                "learners": ["alignf"],
            }
            | keys
        )
        return run_learner.predictor_for(given, given.learners[0], ref)

    assert predictor().predictor.name == "krr"
    require_refusals(
        ((partial(predictor, **keys), said) for keys, said in refused), error=InputError
    )


def test_test_rows_groups_and_times_are_of_the_digest():
    X, target = np.arange(12.0).reshape(6, 2), Target.of(np.array(["a", "b"] * 3))
    plain, numbers = Dataset(X, target, ("x", "z")), np.arange(6)
    others = [
        replace(plain, **{name: numbers}) for name in ("held_out", "groups", "times")
    ]
    assert len(set(map(dataset_digest, [plain, *others]))) == 4


def stored(
    task: str, groups: np.ndarray | None = None, times: np.ndarray | None = None
) -> Dataset:
    rng = np.random.default_rng(2)
    y = (
        rng.normal(size=60)
        if task == "regression"
        else np.where(np.arange(60) < 20, "a", "b")
    )
    return Dataset(
        rng.normal(size=(60, 2)), Target.of(y), ("x", "z"), groups=groups, times=times
    )


def feasible(dataset: Dataset, protocol: dict[str, Any]) -> ProtocolConfig:
    given = compared(protocol=protocol)
    fold_statistics.require_feasible(
        store_dataset(dataset, "d", "here"), given.kernels, given.protocol
    )
    return given.protocol


def test_what_a_data_set_does_not_allow_is_said_before_long_work():
    row = np.arange(60)
    roc = "metric roc_auc needs both classes among the rows that (validate|test), and"
    refused: list[tuple[Dataset, dict[str, Any], str]] = [
        (
            stored("regression", row // 20),
            {},
            "there must be at least one group a fold, got 3 groups for 5 folds",
        ),
        (
            stored("regression", row // 20),
            {"folds": 3, "repeats": 9},
            "9 repeats divide its groups in . differ",
        ),
        (
            stored("classes", row // 10),
            {},
            "each class must have a group in at least 3 folds, .* got 2 for class",
        ),
        (
            stored("classes", times=row),
            {},
            "each class must have at least one row in the first b",
        ),
        (
            stored("regression"),
            {"metric": "f1"},
            "metric f1 is for classification, and this is a regressi",
        ),
        (stored("classes", times=row % 41), {"metric": "roc_auc"}, roc),
    ]
    asked = [
        (partial(feasible, of, keys), f"data set d: {said}")
        for of, keys, said in refused
    ]
    told = require_refusals(asked, error=InputError)
    assert max(map(len, told)) < 400


@pytest.mark.parametrize(
    "protocol", [{}, {"split": {"train": 30, "test": 12}, "choose": {"folds": 3}}]
)
def test_folds_of_groups_are_drawn_anew_in_each_repeat(protocol: Any):
    dataset = stored("regression", np.arange(60) // 3)
    given = feasible(dataset, {**protocol, "repeats": 4})
    drawn = [draw_folds(dataset, given, seed) for seed in range(4)]
    assert len({of.tobytes() for of in drawn}) == 4
    for of in drawn:
        assert all(len(set(of[dataset.groups == group])) == 1 for group in range(20))


YEARS = [f"{1850 + i % 30}0101" for i in range(60)]


@pytest.mark.parametrize(
    ("texts", "ranks"),
    [
        (YEARS, np.arange(60) % 30),
        (["2020", "20240101"] * 30, np.arange(60) % 2),
    ],
    ids=["before 1900", "years and days"],
)
def test_digits_that_are_all_dates_are_times(
    frame: pd.DataFrame, tmp_path, texts: list[str], ranks: np.ndarray
):
    dataset = read(tmp_path, frame[["a", "target"]].assign(when=texts), time="when")
    np.testing.assert_array_equal(dataset.times, ranks)


@pytest.mark.parametrize("role", ["groups", "time"])
@pytest.mark.parametrize("kind", ["float16", "period[M]"])
def test_types_that_few_functions_of_arrow_take_are_groups_and_times(
    frame: pd.DataFrame, tmp_path, kind: str, role: str
):
    months = pd.Series(np.arange(60) // 5)
    if kind == "float16":
        values = months.astype("float16")
    else:
        values = pd.Series(pd.period_range("2020-01", periods=12, freq="M")[months])
    rows = frame[["a", "target"]].assign(when=values)
    dataset = read(tmp_path, rows, **{role: "when"})
    numbers = dataset.groups if role == "groups" else dataset.times
    np.testing.assert_array_equal(numbers, np.arange(60) // 5)
