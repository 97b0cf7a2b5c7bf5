"""Tables in the pipeline: read, taken for what they are, trained on, scored and served."""

import re
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from learnkernels.conf.errors import InputError
from learnkernels.conf.loading import config_of_text
from learnkernels.conf.schema import DatasetConfig, ProtocolConfig
from learnkernels.kernels.column_encoding import TableFeatures
from learnkernels.kernels.estimators import KernelLearningClassifier
from learnkernels.kernels.families import CategoricalFamily, FamilyUnion
from learnkernels.kernels.learners import learn_kernel
from learnkernels.kernels.model import Model
from learnkernels.kernels.model_selection.folds import assign_folds, assign_split
from learnkernels.tasks.data.dataset import (
    Dataset,
    dataset_digest,
    draw_folds,
    load_dataset,
    store_dataset,
)
from learnkernels.tasks.data.infer_config import LEAST_TRAIN, MOST_ROWS, infer_config
from learnkernels.tasks.data.ingest import load_source
from learnkernels.tasks.data.tables import columns_remembered
from learnkernels.tasks.measure.families import build_family
from learnkernels.tasks.measure.trials import _learned_columns
from learnkernels.tasks.models.scoring import ScoringOptions, score_with
from learnkernels.tasks.plugins import as_learner
from tests.refusals import require_refusals
from tests.sources import write

M = 200


@pytest.fixture
def frame() -> pd.DataFrame:
    """A table with an identifier, gaps, few and many levels, dates and a constant."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"customer id": rng.permutation(np.arange(1000, 1000 + M))})
    table["age"] = rng.integers(18, 80, M).astype(float)
    table["city"] = rng.choice(["York", "Bath", "Ely"], M)
    table["shop"] = [f"s{i}" for i in rng.integers(0, 50, M)]
    table["joined"] = pd.date_range("2023-01-01", periods=M, freq="D").strftime(
        "%Y-%m-%d"
    )
    table["site"] = "main"
    table["churn"] = np.where(
        (table["age"] > 50) ^ (table["city"] == "York"), "yes", "no"
    )
    table.loc[[3, 8], "age"] = np.nan
    table.loc[[5], "city"] = None
    return table


def config(path: str, **keys: Any) -> DatasetConfig:
    return DatasetConfig.of({"source": "file", "path": path, "target": "churn", **keys})


def read(folder: Path, path: str = "data.csv", **keys: Any) -> Dataset:
    return load_source(config(path, **keys), str(folder), tell=lambda sentence: None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def table(frame: pd.DataFrame, folder: Path) -> Path:
    """The working folder, with the table in it."""
    frame.to_csv("data.csv", index=False)
    return folder


@pytest.fixture
def model(frame: pd.DataFrame) -> Model:
    estimator = KernelLearningClassifier(columns={"customer id": "drop"})
    return Model.of_table(
        estimator.fit(frame.drop(columns="churn"), frame["churn"]), {"target": "churn"}
    )


def test_a_table_gives_features_and_comes_back_from_the_store(
    frame: pd.DataFrame, table: Path, state: Path
):
    said: list[str] = []
    dataset = load_source(config("data.csv", scale="standard"), ".", tell=said.append)
    assert isinstance(dataset.features, TableFeatures)
    assert {
        "age",
        "age missing",
        "city=York",
        "city=missing",
        "shop code",
        "joined",
    } <= set(dataset.features)
    left_out = [f"data set data: column '{name}'" for name in ("customer id", "site")]
    assert [sentence.split(" is left out")[0] for sentence in said] == left_out
    assert dataset.X.shape == (M, len(dataset.features))
    age = frame["age"].fillna(frame["age"].median())
    np.testing.assert_allclose(
        dataset.X[:, dataset.features.index("age")],
        (age - age.mean()) / age.std(ddof=0),
    )
    frame.to_parquet("data.parquet")
    frame.to_feather("data.feather")
    stored = load_dataset(store_dataset(dataset, "data", "data.csv"))
    for again in (
        stored,
        *(
            read(table, f"data.{ending}", scale="standard")
            for ending in ("parquet", "feather")
        ),
    ):
        assert (again.table, again.features) == (dataset.table, dataset.features)
        for kept in ("owners", "codes"):
            assert getattr(again.features, kept) == getattr(dataset.features, kept)
        np.testing.assert_array_equal(again.X, dataset.X)
        assert dataset_digest(again) == dataset_digest(dataset)


def test_columns_features_and_gaps_are_as_said(table: Path):
    said = {"shop": "code", "city": ["Bath", "Ely", "York"]}
    features = read(table, features=["age", "shop", "city"], columns=said).features
    assert features == ("age", "age missing", "shop code", "city", "city missing")
    dropped = read(table, missing="drop")
    assert len(dropped.X) == M - 3
    assert not [name for name in dropped.features if "missing" in name]
    refused = [
        (
            {"columns": {"zip": "categorical"}},
            r"columns 'zip' is not a column of data\.csv",
        ),
        (
            {"columns": {"city": "number"}},
            r"'city' is said to be a number, but holds '(York|Bath|Ely)'; correct it",
        ),
        (
            {"missing": "refuse"},
            r"missing values in column age \(2\), city \(1\) of 200 rows",
        ),
    ]
    require_refusals(
        ((partial(read, table, **keys), sentence) for keys, sentence in refused),
        error=InputError,
    )


def test_numbers_with_gaps_keep_all_their_columns(tmp_path: Path):
    numbers = pd.DataFrame(
        {"id": range(30), "a": np.arange(30.0) ** 2, "churn": [0, 1] * 15}
    )
    numbers.loc[4, "a"] = np.nan
    numbers.to_parquet(tmp_path / "data.parquet")
    dataset = load_source(config("data.parquet"), str(tmp_path))
    assert dataset.features == ("id", "a", "a missing")
    assert dataset.X[4].tolist() == [4.0, numbers["a"].median(), 1.0]


def test_families_see_columns_of_the_table(frame: pd.DataFrame, table: Path):
    text = (
        "{name: n, datasets: [{source: file, path: data.csv, target: churn}], learners: alignf, kernels: ["
        "{family: gaussian, gammas: 1, columns: [age, city]}, {family: categorical, gammas: 64, columns: shop}]}"
    )
    dataset = read(table, columns={"shop": "code"})
    family = build_family(
        config_of_text(text, Path("n.yaml")).kernels, dataset.features
    )
    assert isinstance(family, FamilyUnion)
    numbers, codes = ([dataset.features[c] for c in view] for view in family.columns)
    assert (numbers[:2], len(numbers), codes) == (
        ["age", "age missing"],
        6,
        ["shop code"],
    )
    shops = frame["shop"].to_numpy()
    X = dataset.X[:, family.columns[1]]
    equal = CategoricalFamily([64.0]).tile(X, X)[0]
    np.testing.assert_allclose(equal, shops[:, None] == shops, atol=1e-27)


def test_trials_on_a_table_name_the_column_of_a_kernel(table: Path):
    dataset = read(table, scale="standard")
    learner = as_learner("rfm", {"rounds": 0}, dataset.features)
    kernel = learn_kernel(dataset.X, dataset.target.values, learner=learner)
    columns = _learned_columns((kernel,), kernel.family, 0)
    assert columns["kernels"][-1].endswith("on shop")


# From a table to a configuration -------------------------------------------------------------------------------------


def test_a_table_and_a_target_are_enough(table: Path):
    found = infer_config("data.csv", "churn")
    said = "\n".join(found.lines)
    for part in (
        "200 rows, 4 columns", "numbers: age", "categories: city", "categories of many levels: shop", "dates: joined",
        "missing values, imputed, with an indicator feature: age, city", "dropped: customer id, as it ",
        "classification of churn, no (", "misclassification rate",
    ):  # fmt: skip
        assert part in said
    config = config_of_text(found.text, Path("data.csv"))
    assert [learner.name for learner in config.learners] == ["rfm", "alignf"]
    assert config.baseline.kinds == [
        "constant",
        "linear",
        "grid-search",
        "boosting",
        "estimator",
    ]
    told: list[str] = []
    dataset = load_source(config.datasets[0], ".", tell=told.append)
    assert dataset.table.left_out == {"customer id": "as said", "site": "as said"}
    # What is said needs no telling
    assert not any("is left out" in sentence for sentence in told)
    build_family(config.kernels, dataset.features)


def bytes_read() -> int:
    """Return how many bytes this process has read by system calls."""
    return int(re.search(r"rchar: (\d+)", Path("/proc/self/io").read_text())[1])  # type: ignore[index]


@pytest.mark.skipif(
    not Path("/proc/self/io").exists(), reason="only Linux counts what a process reads"
)
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_inferring_a_configuration_and_ingesting_read_the_table_once(
    folder: Path, ending: str
):
    rng = np.random.default_rng(0)

    def read(n: int) -> float:
        """Return how often a table of n rows, of two targets and a rare class, is read."""
        frame = pd.DataFrame(
            rng.normal(size=(n, 12)), columns=[f"x{j}" for j in range(12)]
        )
        frame["kind"] = ["a", "b", *["c", "d"] * (n // 2 - 1)]
        path = write(frame, folder / f"t{n}{ending}", rows=n)
        before = bytes_read()
        with columns_remembered():
            config = config_of_text(infer_config(path, "kind").text, Path(path))
            load_source(config.datasets[0], tell=str)
            load_source(config.datasets[0], tell=str)
        return (bytes_read() - before) / Path(path).stat().st_size

    read(100)  # what is imported is not read again
    # 9 MiB, of which a sample of 256 KiB is looked at before
    assert 1 <= read(40_000) < 1.4


def test_what_looks_odd_is_said(folder: Path):
    rng = np.random.default_rng(0)
    wage, x = rng.exponential(1000, 100).round(2) + 1, rng.normal(size=100)
    table = pd.DataFrame(
        {"logwage": np.log(wage), "x": x, "noisy": wage + 300 * x, "wage": wage}
    )
    bands = pd.qcut(table["wage"], 4, labels=list("abcd")).astype(str)
    table = table.assign(
        band=bands, code=bands.replace({"a": "p", "b": "q", "c": "r", "d": "s"})
    )
    pd.concat([table, table[:3]]).to_csv("data.csv", index=False)
    lines = infer_config("data.csv", "wage").lines
    assert [line for line in lines if line.startswith("check: ")] == [
        "check: logwage alone determines wage; drop columns that are unknown at prediction time",
        "check: 3 rows repeat others, with the same wage; 'distinct: true' keeps one of each",
    ]
    assert (
        f"numbers: logwage ({np.log(wage[0]):.6g}), x ({x[0]:.6g}), noisy ({wage[0] + 300 * x[0]:.6g})"
        in lines
    )
    assert f"categories: band ({bands[0]}), code (" in "\n".join(lines)
    odd = [
        line
        for line in infer_config("data.csv", "band").lines
        if line.startswith("check: ")
    ]
    said = "logwage, wage, code alone each determine band; drop columns that are unknown at prediction time"
    assert odd[0] == f"check: {said}"


def test_groups_time_and_metric_go_into_the_configuration(table: Path):
    grouped = yaml.safe_load(
        infer_config("data.csv", "churn", {"groups": "shop"}, "roc_auc").text
    )
    assert grouped["datasets"][0]["groups"] == "shop"
    assert grouped["protocol"] == {"folds": 5, "refit": True, "metric": "roc_auc"}
    dropped = config_of_text(
        infer_config("data.csv", "churn", without=["boosting", "linear"]).text,
        Path("data.csv"),
    )
    assert dropped.baseline.kinds == ["constant", "grid-search", "estimator"]
    dropped = config_of_text(
        infer_config("data.csv", "churn", without=["estimator"]).text, Path("data.csv")
    )
    assert dropped.baseline.kinds == ["constant", "linear", "grid-search", "boosting"]
    with pytest.raises(
        InputError,
        match=r"--without bosting: did you mean 'boosting'\? the baselines are constant",
    ):
        infer_config("data.csv", "churn", without=["bosting"])
    in_time = infer_config("data.csv", "churn", {"time": "joined", "groups": None})
    assert yaml.safe_load(in_time.text)["datasets"][0]["time"] == "joined"
    assert "earlier rows of joined are for training" in "\n".join(in_time.lines)
    assert "joined itself is no feature: copy it to another column" in "\n".join(
        in_time.lines
    )
    refused = [
        (
            ("churn", {"time": "joined", "groups": "shop"}),
            "'groups' and 'time' exclude each other",
        ),
        (
            (None,),
            "column to predict with --target; its columns are customer id, age, city",
        ),
        (("chrun",), "it has no column 'chrun'; did you mean 'churn'"),
    ]
    require_refusals(
        ((partial(infer_config, "data.csv", *given), said) for given, said in refused),
        error=InputError,
    )


def test_many_rows_are_drawn_in_repeats_and_as_many_as_the_minutes_that_there_are_allow(
    folder: Path,
):
    n = MOST_ROWS + 1
    columns = {
        "a": np.random.default_rng(0).normal(size=n),
        "b": np.arange(n),
        "y": np.arange(n) / 7,
    }
    pd.DataFrame(columns).to_parquet("many.parquet")
    many = {"split": {"train": 5000, "validation": 2000, "test": 3000}, "repeats": 3}
    assert yaml.safe_load(infer_config("many.parquet", "y").text)["protocol"] == many

    def protocol(minutes: float, **beside: str) -> dict[str, Any]:
        found = infer_config("many.parquet", "y", beside, minutes=minutes)
        drawn = yaml.safe_load(found.text)["protocol"]
        assert ("rows train" in "\n".join(found.lines)) == ("split" in drawn)
        return drawn

    least = {"train": LEAST_TRAIN, "validation": 20, "test": 30}
    assert protocol(0.0) == {"split": least, "repeats": 3}
    assert protocol(0.0, time="b") == {"split": least, "repeats": 3, "refit": True}
    rolling = yaml.safe_load(infer_config("many.parquet", "y", {"time": "b"}).text)[
        "protocol"
    ]
    # Per training row, 0.4 rows validate, and 0.6 rows in each of three repeats test.
    assert rolling["split"]["train"] == int(n / 3.2)
    assert protocol(1e6) == {"folds": 5, "refit": True}  # of all rows


@pytest.mark.parametrize(
    ("n", "rows"), [(200, (2, 3)), (2 * MOST_ROWS + 1, (2, 3)), (5 * MOST_ROWS, (5, 6))]
)
def test_classes_of_too_few_rows_are_left_out_and_said(
    folder: Path, n: int, rows: tuple[int, int]
):
    kind = np.array(["plain", "other"] * n)[:n]
    kind[: rows[0]], kind[-rows[1] :] = "odd", "rare"
    columns = {
        "id": np.arange(1000, 1000 + n),
        "a": np.random.default_rng(0).normal(size=n),
        "kind": kind,
    }
    # Of which the first is left out, and no warning is for
    pd.DataFrame(columns).to_parquet("kinds.parquet")
    found = infer_config("kinds.parquet", "kind")
    assert f"dropped: rows of kind 'odd' ({rows[0]}), too few for" in "\n".join(
        found.lines
    )
    assert sum(line.startswith("dropped: id, as") for line in found.lines) == 1
    config = config_of_text(found.text, Path("kinds.parquet"))
    dataset = load_source(config.datasets[0], tell=lambda sentence: None)
    assert (dataset.target.classes, len(dataset.target)) == (
        ("other", "plain", "rare"),
        n - rows[0],
    )
    split = config.protocol.split
    if split is None:
        assign_folds(dataset.target, config.protocol.folds, 0)
    else:
        assign_split(dataset.target, split.train, split.validation, split.test, 0)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_rare_class_of_numbers_with_zero_decimals_is_left_out(
    folder: Path, ending: str
):
    y = [*(np.arange(100) % 2), 2]
    frame = pd.DataFrame({"x": np.random.default_rng(0).normal(size=101)})
    if ending == "csv":
        frame.assign(y=np.array(y, dtype=float)).to_csv("decimals.csv", index=False)
    else:
        frame["y"] = [Decimal(f"{label}.00") for label in y]
        frame.to_parquet("decimals.parquet")
    lines = infer_config(f"decimals.{ending}", "y").lines
    assert "dropped: rows of y '2' (1), too few for" in "\n".join(lines)


def few(n: int = 90, **columns: Any) -> None:
    rng = np.random.default_rng(0)
    pd.DataFrame({"a": rng.normal(size=n), "y": rng.normal(size=n), **columns}).to_csv(
        "few.csv", index=False
    )


PLACES = np.arange(90)
CLASSES = np.where(PLACES < 4, "p", np.where(PLACES < 8, "q", "r"))
FEW = {
    "three groups": (
        {"k": PLACES % 3},
        {"groups": "k"},
        3,
        "3 folds, as k has 3 different values",
    ),
    "four groups": (
        {"k": PLACES % 4},
        {"groups": "k"},
        4,
        "4 folds, as k has 4 different values",
    ),
    "five groups": ({"k": PLACES % 5}, {"groups": "k"}, 5, ""),
    "three times": (
        {"k": PLACES // 30},
        {"time": "k"},
        3,
        "3 folds, as k has 3 different values",
    ),
    "four times": (
        {"k": np.char.add("2024-0", (1 + PLACES // 23).astype(str))},
        {"time": "k"},
        4,
        "4 folds, as k has",
    ),
    "four rows": (
        {"n": 4},
        {},
        4,
        "4 folds, as there must be at least one row a fold, got 4 rows for 5 folds",
    ),
    "few rows of a class": (
        {"n": 8, "y": list("ppppqqqq")},
        {},
        4,
        "4 folds, as a class must have as many rows as",
    ),
    "classes of four groups": (
        {"y": CLASSES, "k": PLACES % 4},
        {"groups": "k"},
        4,
        "4 folds, as k has 4 different values",
    ),
}


@pytest.mark.parametrize(("columns", "roles", "n_folds", "said"), FEW.values(), ids=FEW)
def test_folds_are_as_many_as_the_table_allows(
    folder: Path, columns: Any, roles: Any, n_folds: int, said: str
):
    few(**columns)
    found = infer_config("few.csv", "y", roles)
    config = config_of_text(found.text, Path("few.csv"))
    assert config.protocol.folds == n_folds
    folds = [line for line in found.lines if " folds, as " in line]
    assert len(folds) == bool(said)
    assert said in "".join(folds)
    dataset = load_source(config.datasets[0], tell=lambda sentence: None)
    for repeat in range(3):
        assert set(draw_folds(dataset, config.protocol, repeat)) == set(range(n_folds))


TOO_FEW = {
    "one group": (
        {"k": PLACES * 0},
        {"groups": "k"},
        "few.csv: k has 1 value, and rows of one value stay together",
    ),
    "two groups": (
        {"k": PLACES % 2},
        {"groups": "k"},
        "few.csv: k has 2 different values, .* at least 3 are needed",
    ),
    "two times": (
        {"k": PLACES % 2},
        {"time": "k"},
        "few.csv: k has 2 different values, .* name another column, or none",
    ),
    "two rows": (
        {"n": 2},
        {},
        "few.csv: there must be at least one row a fold, got 2 rows for 3 folds",
    ),
}


@pytest.mark.parametrize(("columns", "roles", "said"), TOO_FEW.values(), ids=TOO_FEW)
@pytest.mark.parametrize("minutes", [None, 0.0])
def test_too_few_values_for_any_protocol_are_refused(
    folder: Path, columns: Any, roles: Any, said: str, minutes: Any
):
    few(**columns)
    if "n" not in columns or minutes is None:
        with pytest.raises(InputError, match=said):
            infer_config("few.csv", "y", roles, minutes=minutes)


def test_a_class_of_too_few_groups_is_left_out_and_said(folder: Path):
    few(y=np.where(PLACES < 10, "rare", np.where(PLACES % 2, "p", "q")), k=PLACES // 5)
    found = infer_config("few.csv", "y", {"groups": "k"})
    assert (
        "dropped: rows of y 'rare' (2 of k), too few for training, validation and test"
        in found.lines
    )


def test_folds_that_a_configuration_asks_for_are_refused_with_the_way_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    ways = {
        (
            "groups",
            3,
        ): r"got 3 groups for 5 folds; set 'protocol.folds' to 3 \(--set protocol.folds=3\)",
        (
            "groups",
            2,
        ): "got 2 groups for 5 folds; at least 3 are needed: one to test, one to validate, one to train",
        (
            "time",
            4,
        ): r"got 4 for 5 folds; set 'protocol.folds' to 4 \(--set protocol.folds=4\)",
    }
    for (key, n), said in ways.items():
        few(k=PLACES * n // 90)
        dataset = load_source(
            DatasetConfig.of(
                {"source": "file", "path": "few.csv", "target": "y", key: "k"}
            )
        )
        with pytest.raises(ValueError, match=said):
            draw_folds(dataset, ProtocolConfig(), 0)
    # As Prefect's users test it
    monkeypatch.setenv("PREFECT__RUNTIME__DEPLOYMENT__ID", "that of a form")
    with pytest.raises(ValueError, match=r"set 'protocol\.folds' to 4\.$"):
        draw_folds(dataset, ProtocolConfig(), 0)


def test_names_that_yaml_reads_otherwise_are_quoted(folder: Path):
    names = ["no", "#1: x", "two\nlines"]
    table = pd.DataFrame(
        dict.fromkeys(names, ["1", "x"] * 20) | {"y": np.arange(40) % 3}
    )
    table.to_csv("a b.csv", index=False)
    config = config_of_text(infer_config("a b.csv", "y").text, Path("a b.csv"))
    assert config.datasets[0].columns == dict.fromkeys(names, "categorical")


# Models --------------------------------------------------------------------------------------------------------------


def test_raw_tables_are_scored_with_gaps_and_new_levels(
    frame: pd.DataFrame, folder: Path, model: Model
):
    new = frame.sample(frac=1, axis=1, random_state=1)
    new.loc[[0, 1], "city"] = "Rome"
    new.to_parquet("new.parquet")
    for delimiter in (",", ";", "\t", "|"):
        frame.rename(columns={"age": "age, in years"}).to_csv(
            "data.csv", index=False, sep=delimiter
        )
        assert "age, in years" in read(folder).features
        new.to_csv("new.csv", index=False, sep=delimiter)
        for ending in ("csv", "parquet"):
            scores = score_with(
                model,
                {},
                f"new.{ending}",
                f"out.{ending}",
                ScoringOptions(("customer id",)),
            )
            assert (scores.rows, scores.gaps, scores.new_levels) == (
                M,
                {"age": 2, "city": 1},
                {"city": 2},
            )
        told = pd.read_parquet("out.parquet")
        np.testing.assert_allclose(pd.read_csv("out.csv")["score"], told["score"])
        np.testing.assert_array_equal(
            told["prediction"], model.columns(new)["prediction"]
        )


def test_a_table_that_does_not_fit_is_refused(
    frame: pd.DataFrame, folder: Path, model: Model
):
    frame.drop(columns="age").to_csv("less.csv", index=False)
    frame.assign(age="old").to_csv("texts.csv", index=False)
    refused = {
        "less.csv": r"reads: 'age' \(without values: [0-9.]+, the median\); rename a column, or add"
    }
    refused["texts.csv"] = r"texts.csv: column 'age' must hold numbers.* such as 'old'"
    scored = (
        (partial(score_with, model, {}, name, "out.csv", ScoringOptions()), said)
        for name, said in refused.items()
    )
    require_refusals(scored, error=InputError)
    assert not Path("out.csv").exists()
