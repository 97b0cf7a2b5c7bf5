"""Tables in the pipeline: read, taken for what they are, trained on, scored and served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from learnkernels.conf.errors import InputError
from learnkernels.conf.loading import config_of_text
from learnkernels.conf.schema import DatasetConfig
from learnkernels.kernels.estimators import KernelLearningClassifier
from learnkernels.kernels.families import CategoricalFamily, FamilyUnion
from learnkernels.kernels.learning import learn_kernel
from learnkernels.kernels.persistence.model import Model
from learnkernels.kernels.protocol.folds import assign_folds, assign_split
from learnkernels.kernels.tables import TableFeatures
from learnkernels.tasks.data.dataset import dataset_digest, load_dataset, store_dataset
from learnkernels.tasks.data.ingest import load_source
from learnkernels.tasks.data.starting import MOST_ROWS, start
from learnkernels.tasks.measure.families import build_family
from learnkernels.tasks.measure.trials import _learned_columns
from learnkernels.tasks.models.registry import signature_of
from learnkernels.tasks.models.scoring import score_with
from learnkernels.tasks.own import as_learner, on_features

M = 200


@pytest.fixture
def frame() -> pd.DataFrame:
    """A table with an identifier, gaps, few and many levels, dates and a constant."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "customer id": rng.permutation(np.arange(1000, 1000 + M)),
            "age": rng.integers(18, 80, M).astype(float),
            "city": rng.choice(["York", "Bath", "Ely"], M),
            "shop": [f"s{i}" for i in rng.integers(0, 50, M)],
            "joined": pd.date_range("2023-01-01", periods=M, freq="D").strftime("%Y-%m-%d"),
            "site": "main",
        }
    )
    table["churn"] = np.where((table["age"] > 50) ^ (table["city"] == "York"), "yes", "no")
    table.loc[[3, 8], "age"] = np.nan
    table.loc[[5], "city"] = None
    return table


def config(path: str, **keys: Any) -> DatasetConfig:
    return DatasetConfig.model_validate({"source": "file", "path": path, "target": "churn", **keys})


# Reading -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".feather"])
def test_files_of_every_format_give_the_same_features(frame: pd.DataFrame, tmp_path: Path, ending: str):
    path = tmp_path / f"data{ending}"
    {".csv": lambda p: frame.to_csv(p, index=False), ".parquet": frame.to_parquet, ".feather": frame.to_feather}[
        ending
    ](path)
    said: list[str] = []
    dataset = load_source(config(path.name, scale="standard"), str(tmp_path), tell=said.append)
    assert isinstance(dataset.features, TableFeatures)
    assert {"age", "age missing", "city=York", "city=missing", "shop code", "joined"} <= set(dataset.features)
    assert [sentence.split(" is left out")[0] for sentence in said] == [
        "data set data: column 'customer id'", "data set data: column 'site'",
    ]  # fmt: skip
    assert dataset.X.shape == (M, len(dataset.features))
    age = frame["age"].fillna(frame["age"].median())
    np.testing.assert_allclose(dataset.X[:, dataset.features.index("age")], (age - age.mean()) / age.std(ddof=0))


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_a_csv_of_other_delimiters_is_read_and_scored(
    frame: pd.DataFrame, tmp_path: Path, model: Model, delimiter: str
):
    frame.rename(columns={"age": "age, in years"}).to_csv(tmp_path / "data.csv", index=False, sep=delimiter)
    assert "age, in years" in load_source(config("data.csv"), str(tmp_path), tell=lambda sentence: None).features
    frame.to_csv(tmp_path / "new.csv", index=False, sep=delimiter)
    assert score_with(model, {}, str(tmp_path / "new.csv"), str(tmp_path / "out.csv")).rows == M


def test_a_stored_table_comes_back(frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path / "state"))
    frame.to_csv(tmp_path / "data.csv", index=False)
    dataset = load_source(config("data.csv"), str(tmp_path), tell=lambda sentence: None)
    again = load_dataset(store_dataset(dataset, "data", "data.csv"))
    assert again.table == dataset.table
    assert (again.features.owners, again.features.codes) == (dataset.features.owners, dataset.features.codes)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(again.X, dataset.X)
    assert dataset_digest(again) == dataset_digest(dataset)


def test_columns_and_features_are_said(frame: pd.DataFrame, tmp_path: Path):
    frame.to_csv(tmp_path / "data.csv", index=False)
    keys = {"features": ["age", "shop", "city"], "columns": {"shop": "code", "city": ["Bath", "Ely", "York"]}}
    dataset = load_source(config("data.csv", **keys), str(tmp_path), tell=lambda sentence: None)
    assert dataset.features == ("age", "age missing", "shop code", "city", "city missing")
    with pytest.raises(InputError, match=r"columns 'zip' is not a column of data\.csv"):
        load_source(config("data.csv", columns={"zip": "categorical"}), str(tmp_path))
    with pytest.raises(InputError, match=r"'city' is said to be a number, but holds '(York|Bath|Ely)'; correct it"):
        load_source(config("data.csv", columns={"city": "number"}), str(tmp_path))


def test_gaps_of_a_table_are_dropped_or_refused(frame: pd.DataFrame, tmp_path: Path):
    frame.to_csv(tmp_path / "data.csv", index=False)
    dropped = load_source(config("data.csv", missing="drop"), str(tmp_path), tell=lambda sentence: None)
    assert len(dropped.X) == M - 3
    assert not [name for name in dropped.features if "missing" in name]
    with pytest.raises(InputError, match=r"missing values in column age \(2\), city \(1\) of 200 rows"):
        load_source(config("data.csv", missing="refuse"), str(tmp_path))


def test_numbers_with_gaps_keep_all_their_columns(tmp_path: Path):
    numbers = pd.DataFrame({"id": range(30), "a": np.arange(30.0) ** 2, "churn": [0, 1] * 15})
    numbers.loc[4, "a"] = np.nan
    numbers.to_parquet(tmp_path / "data.parquet")
    dataset = load_source(config("data.parquet"), str(tmp_path))
    assert dataset.features == ("id", "a", "a missing")
    assert dataset.X[4].tolist() == [4.0, numbers["a"].median(), 1.0]


def test_families_see_columns_of_the_table(frame: pd.DataFrame, tmp_path: Path):
    frame.to_csv(tmp_path / "data.csv", index=False)
    text = (
        "{name: n, datasets: [{source: file, path: data.csv, target: churn}], learners: alignf, kernels: ["
        "{family: gaussian, gammas: 1, columns: [age, city]}, {family: categorical, gammas: 64, columns: shop}]}"
    )
    kernels = config_of_text(text, Path("n.yaml")).kernels
    dataset = load_source(config("data.csv", columns={"shop": "code"}), str(tmp_path), tell=lambda sentence: None)
    family = build_family(kernels, dataset.features)
    assert isinstance(family, FamilyUnion)
    seen = [[dataset.features[c] for c in view] for view in family.columns]
    assert seen[0][:2] == ["age", "age missing"]
    assert len(seen[0]) == 6
    assert seen[1] == ["shop code"]
    shops = frame["shop"].to_numpy()
    X = dataset.X[:, family.columns[1]]
    equal = CategoricalFamily([64.0]).tile(X, X)[0]
    np.testing.assert_allclose(equal, shops[:, None] == shops, atol=1e-27)


@pytest.mark.parametrize("effects", ["joint", "additive"])
def test_trials_on_a_table_tell_what_its_views_have(frame: pd.DataFrame, tmp_path: Path, effects: str):
    frame.to_csv(tmp_path / "data.csv", index=False)
    dataset = load_source(config("data.csv", scale="standard"), str(tmp_path), tell=lambda sentence: None)
    params = on_features("rfm", {"effects": effects, "rounds": 0}, dataset.features)
    kernel = learn_kernel(as_learner("rfm", **params), None, dataset.X, dataset.target.values)
    told = _learned_columns((kernel,), kernel.family, 0, dataset.features)
    views = {"joint": {"all features", "shop"}, "additive": {"numbers", "gaps", "categories", "shop", "dates"}}[effects]
    assert set(told["views"]) <= views
    assert len(told["views"]) > 1
    assert sum(told["view_shares"]) == pytest.approx(1.0, rel=1e-12)
    assert set(told["features"]) == {"age", "city", "shop", "joined"}


# From a table to a configuration -------------------------------------------------------------------------------------


def test_a_table_and_a_target_are_enough(frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    frame.to_csv("customers.csv", index=False)
    found = start("customers.csv", "churn")
    said = "\n".join(found.lines)
    for part in (
        "200 rows, 4 columns", "numbers: age", "categories: city", "categories of many levels: shop", "dates: joined",
        "gaps, filled and told by a feature of their own: age, city", "left out: customer id, as it numbers the rows",
        "classification of churn, no (", "misclassified share",
    ):  # fmt: skip
        assert part in said
    config = config_of_text(found.text, Path("customers.csv"))
    assert [learner.name for learner in config.learners] == ["rfm", "alignf"]
    assert config.baseline is not None
    assert config.baseline.boosting
    told: list[str] = []
    dataset = load_source(config.datasets[0], ".", tell=told.append)
    assert dataset.table is not None
    assert dataset.table.left_out == {"customer id": "as said", "site": "as said"}
    assert not any("is left out" in sentence for sentence in told)  # what is said needs no telling
    build_family(config.kernels, dataset.features)


def test_groups_time_and_metric_go_into_the_configuration(
    frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    frame.to_csv("customers.csv", index=False)
    grouped = yaml.safe_load(start("customers.csv", "churn", {"groups": "shop"}, "roc_auc").text)
    assert grouped["datasets"][0]["groups"] == "shop"
    assert grouped["protocol"] == {"folds": 5, "refit": True, "metric": "roc_auc"}
    in_time = start("customers.csv", "churn", {"time": "joined", "groups": None})
    assert yaml.safe_load(in_time.text)["datasets"][0]["time"] == "joined"
    assert "earlier ones train" in "\n".join(in_time.lines)
    with pytest.raises(InputError, match="'groups' and 'time' exclude each other"):
        start("customers.csv", "churn", {"time": "joined", "groups": "shop"})


def test_many_rows_are_drawn_in_repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    n = MOST_ROWS + 1
    pd.DataFrame({"a": np.random.default_rng(0).normal(size=n), "y": np.arange(n) / 7}).to_parquet("many.parquet")
    protocol = yaml.safe_load(start("many.parquet", "y").text)["protocol"]
    assert protocol == {"split": {"train": 5000, "validation": 2000, "test": 3000}, "repeats": 3}


@pytest.mark.parametrize(("n", "rows"), [(200, (2, 3)), (2 * MOST_ROWS + 1, (2, 3)), (5 * MOST_ROWS, (5, 6))])
def test_classes_of_too_few_rows_are_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int, rows: tuple[int, int]
):
    monkeypatch.chdir(tmp_path)
    kind = np.array(["plain", "other"] * n)[:n]
    kind[: rows[0]], kind[-rows[1] :] = "odd", "rare"
    columns = {"id": np.arange(1000, 1000 + n), "a": np.random.default_rng(0).normal(size=n), "kind": kind}
    pd.DataFrame(columns).to_parquet("kinds.parquet")  # of which the first is left out, and no warning is for
    found = start("kinds.parquet", "kind")
    assert f"left out: rows of kind 'odd' ({rows[0]}), of which there are too few to" in "\n".join(found.lines)
    assert sum(line.startswith("left out: id, as") for line in found.lines) == 1
    config = config_of_text(found.text, Path("kinds.parquet"))
    dataset = load_source(config.datasets[0], tell=lambda sentence: None)
    assert dataset.target.classes == ("other", "plain", "rare")
    assert len(dataset.target) == n - rows[0]
    split = config.protocol.split
    if split is None:
        assign_folds(dataset.target, config.protocol.folds, 0)
    else:
        assign_split(dataset.target, split.train, split.validation, split.test, 0)


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        (None, "say which column to predict with --target; its columns are customer id, age, city"),
        ("chrun", "it has no column 'chrun'; did you mean 'churn'"),
    ],
)
def test_a_target_that_is_not_there_is_told_the_columns(
    frame: pd.DataFrame, tmp_path: Path, target: str | None, sentence: str
):
    frame.to_csv(tmp_path / "customers.csv", index=False)
    with pytest.raises(InputError, match=sentence):
        start(str(tmp_path / "customers.csv"), target)


def test_names_that_yaml_reads_otherwise_are_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame({"no": ["a", "b"] * 20, "#1: x": ["1", "x"] * 20, "y": np.arange(40) % 3})
    table.to_csv("a b.csv", index=False)
    config = config_of_text(start("a b.csv", "y").text, Path("a b.csv"))
    assert config.datasets[0].columns == {"no": "categorical", "#1: x": "categorical"}


# Models --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def model(frame: pd.DataFrame) -> Model:
    table = frame.drop(columns="churn")
    return Model.of_table(KernelLearningClassifier().fit(table, frame["churn"]), {"target": "churn"})


def test_raw_tables_are_scored_with_gaps_and_new_levels(frame: pd.DataFrame, tmp_path: Path, model: Model):
    new = frame.sample(frac=1, axis=1, random_state=1)
    new.loc[[0, 1], "city"] = "Rome"
    new.to_csv(tmp_path / "new.csv", index=False)
    new.to_parquet(tmp_path / "new.parquet")
    for ending in (".csv", ".parquet"):
        scores = score_with(
            model, {}, str(tmp_path / f"new{ending}"), str(tmp_path / f"out{ending}"), ids=["customer id"]
        )
        assert scores.rows == M
        assert scores.missing == 0
        assert scores.gaps == {"age": 2, "city": 1}
        assert scores.new_levels == {"city": 2}
    told = pd.read_parquet(tmp_path / "out.parquet")
    np.testing.assert_array_equal(told["prediction"], model.columns(new)["prediction"])
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv")["score"], told["score"])


def test_a_table_that_does_not_fit_is_refused(frame: pd.DataFrame, tmp_path: Path, model: Model):
    frame.drop(columns="age").to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(InputError, match="missing 'age'"):
        score_with(model, {}, str(tmp_path / "new.csv"), str(tmp_path / "out.csv"))
    frame.assign(age="old").to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(InputError, match=r"new.csv: rows 0 to 199: column 'age' must hold numbers.* such as 'old'"):
        score_with(model, {}, str(tmp_path / "new.csv"), str(tmp_path / "out.csv"))
    assert not (tmp_path / "out.csv").exists()


def test_a_served_model_says_which_columns_are_texts(frame: pd.DataFrame, model: Model):
    inputs = json.loads(signature_of(model).to_dict()["inputs"])
    assert {column["name"]: column["type"] for column in inputs} == {
        "age": "double", "city": "string", "shop": "string", "joined": "string",
    }  # fmt: skip
