"""Training, scoring and promotion: real Prefect, real MLflow registry, real data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient
from sklearn.datasets import load_diabetes, load_wine

from learnkernels import GaussianFamily, learn_kernel
from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import CompareConfig
from learnkernels.flows.promote import promote
from learnkernels.flows.train import train
from learnkernels.kernels.estimators import KernelLearningRegressor
from learnkernels.kernels.learners import L2KRR
from learnkernels.kernels.persistence.model import load_model
from learnkernels.tasks.models.registry import fetch, find_version
from learnkernels.tasks.models.training import recipe_of
from tests.service.flows.test_notifications import told_of
from tools.waiting import within

pytestmark = pytest.mark.usefixtures("prefect_server")
alone = pytest.mark.usefixtures("working_folder")

ROOT = Path(__file__).resolve().parents[3]
GAMMAS = {"base": 2, "from": -6, "to": -2}


def small(**keys: Any) -> CompareConfig:
    data = {
        "name": "small",
        "datasets": [{"source": "sklearn", "name": "wine", "scale": "standard"}],
        "kernels": [{"family": "gaussian", "gammas": GAMMAS}],
        "learners": ["unif", "alignf"],
        "protocol": {"grid": {"from": -2, "to": 4}},
        "dask": {"workers": 0},
    }
    return CompareConfig.model_validate(data | keys)


DIABETES = [{"source": "sklearn", "name": "diabetes", "scale": "standard"}]


@pytest.fixture(scope="module")
def trained(prefect_server: None, module_folder: Path) -> dict[str, Any]:
    """One finished training on wine; tests that use it share its working folder and registry."""
    return dict(train(small(), "wine"))


def test_a_training_registers_a_challenger_with_its_evidence(trained: dict[str, Any]):
    client = MlflowClient()
    version = client.get_model_version_by_alias("wine", "challenger")
    assert (trained["version"], int(version.version), trained["new"]) == (1, 1, True)
    assert version.tags["dataset"] == "wine"
    assert version.tags["learner"] == trained["learner"]
    run = client.get_run(trained["mlflow_run"])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["test_error"] == pytest.approx(trained["test_error"])
    assert run.data.metrics["alignment"] == pytest.approx(trained["alignment"])
    (used,) = run.inputs.dataset_inputs
    model = load_model(fetch(find_version("wine/1")))
    assert (used.dataset.name, used.dataset.digest) == ("wine", model.about["digest"])
    assert {path.name for path in Path(trained["results"]).iterdir()} == {
        "report.md", "about.json", "model.npz", "folds.parquet",
    }  # fmt: skip
    assert (Path(trained["results"]) / "model.npz").read_bytes() == fetch(find_version("wine/1")).read_bytes()
    loaded = mlflow.pyfunc.load_model("models:/wine@challenger")
    assert loaded.metadata.signature is not None
    assert loaded.metadata.saved_input_example_info is not None


def test_the_model_is_the_one_that_the_chosen_settings_give_on_all_rows(trained: dict[str, Any]):
    model = load_model(fetch(find_version("wine/1")))
    X, y = load_wine(return_X_y=True)
    raw, names = X, load_wine().target_names
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    kernel = learn_kernel(trained["learner"], GaussianFamily([2.0**g for g in range(-6, -1)]), X, names[y])
    # Rows are added up fold by fold there, and in the order of the file here.
    np.testing.assert_allclose(model.estimator.weights_, kernel.weights, atol=1e-9)
    assert model.estimator.alignment_ == pytest.approx(kernel.alignment, rel=1e-10)
    predicted = model.columns(raw)["prediction"]
    assert set(predicted) <= set(names)
    assert np.mean(predicted == names[y]) > 0.97


def test_another_process_gives_the_same_bits(trained: dict[str, Any], tmp_path: Path):
    X = load_wine().data
    expected = load_model(fetch(find_version("wine/1"))).columns(X)
    np.save(tmp_path / "X.npy", X)
    code = (
        "import sys, numpy as np; from learnkernels.kernels.persistence.model import load_model; "
        "columns = load_model(sys.argv[1]).columns(np.load(sys.argv[2])); "
        "np.savez(sys.argv[3], **columns)"
    )
    paths = [trained["results"] + "/model.npz", str(tmp_path / "X.npy"), str(tmp_path / "out.npz")]
    subprocess.run([sys.executable, "-c", code, *paths], check=True, env=os.environ | {"PYTHONPATH": os.fspath(ROOT)})
    with np.load(tmp_path / "out.npz") as columns:
        assert list(columns) == list(expected)
        for name in columns:
            np.testing.assert_array_equal(columns[name], expected[name])


def test_the_same_training_again_registers_nothing_and_computes_nothing(trained: dict[str, Any]):
    store = Path(os.environ["LEARNKERNELS_HOME"]) / "store"
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    again = train(small(), "wine")
    assert (again["version"], again["new"], again["digest"]) == (1, False, trained["digest"])
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()} == before
    assert len(MlflowClient().search_model_versions("name = 'wine'")) == 1


@alone
def test_the_same_model_from_another_place_is_no_new_version_and_promote_finds_it_there():
    done = []
    for number, folder in enumerate(("here", "there"), 1):
        Path(folder).mkdir()
        load_wine(as_frame=True).frame.to_parquet(f"{folder}/wine.parquet")
        datasets = [{"source": "file", "path": "wine.parquet", "scale": "standard"}]
        dask = {"workers": 0, "super_tile": 64 * number}
        place: dict[str, Any] = {"data_dir": folder, "tracking": {"experiment": folder}, "dask": dask}
        done.append(train(small(datasets=datasets, **place), "moved"))
    version = find_version("moved/1")
    assert [(one["version"], one["new"]) for one in done] == [(1, True), (1, False)]
    recipe = recipe_of(load_model(fetch(version)), version)
    assert (recipe.data_dir, recipe.tracking.experiment, recipe.dask.super_tile) == ("there", "there", 128)


@alone
def test_regression_with_a_tuned_one_stage_learner_and_a_split():
    config = small(
        datasets=DIABETES,
        learners=[{"name": "l2-krr", "tune": {"center": [0, 1]}}],
        protocol={"split": {"train": 150, "validation": 80, "test": 80}, "repeats": 2, "grid": {"from": -3, "to": 3}},
    )
    done = train(config, "diabetes")
    model = load_model(Path(done["results"]) / "model.npz")
    assert model.about["n_rows"] == 442
    assert len(model.estimator.kernel_.X) == 442  # all rows, and not those of a split alone
    recipe = model.about["config"]["learners"][0]
    assert recipe["tune"] == {}
    X, y = load_diabetes(return_X_y=True)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    fitted = KernelLearningRegressor(
        GaussianFamily([2.0**g for g in range(-6, -1)]), L2KRR(**recipe["params"]), 1 / done["regularisation"]
    ).fit(Z, y)
    np.testing.assert_allclose(model.columns(X)["prediction"], fitted.predict(Z), rtol=1e-6)


@alone
@pytest.mark.parametrize(
    ("name", "config", "sentence"),
    [
        ("a/b", small(), "a registered model's name has up to 64 letters"),
        ("wine", small(learners=["ensemble"]), "learns no kernel"),
        ("wine", small(datasets=[{"source": "file", "path": "gone.csv"}]), "there is no file gone.csv"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_a_sentence(name: str, config: CompareConfig, sentence: str):
    with pytest.raises(InputError, match=sentence):
        train(config, name)
    assert MlflowClient().search_registered_models() == []


# Promotion -----------------------------------------------------------------------------------------------------------


def champion(name: str) -> int:
    return int(MlflowClient().get_model_version_by_alias(name, "champion").version)


def noise_and_signal(path: Path) -> Path:
    """A table whose target needs a bandwidth that a wide Gaussian does not have."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(300, 2))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=300)
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": y}), path)
    return path


def recipe(path: Path, gammas: list[float], **data: Any) -> CompareConfig:
    return small(
        datasets=[{"source": "file", "path": str(path), "target": "y"} | data],
        kernels=[{"family": "gaussian", "gammas": gammas}],
        learners=["unif"],
    )


@pytest.fixture
def told() -> Iterator[list[dict[str, Any]]]:
    with told_of("sine") as received:
        yield received


@pytest.mark.slow(20)
def test_the_alias_moves_only_on_a_significant_win(working_folder: Path, told: list[dict[str, Any]]):
    path = noise_and_signal(working_folder / "rows.parquet")
    train(recipe(path, [0.001]), "sine")
    first = promote("sine")
    assert (first["moved"], first["champion"], champion("sine")) == (True, 1, 1)

    train(recipe(path, [1.0, 2.0]), "sine")
    better = promote("sine")
    assert (better["moved"], better["champion"], champion("sine")) == (True, 2, 2)
    assert better["p"] < 1e-3
    decision = json.loads((Path(better["results"]) / "decision.json").read_text())
    ours = pd.read_parquet(Path(better["results"]) / "folds_challenger.parquet")
    theirs = pd.read_parquet(Path(better["results"]) / "folds_champion.parquet")
    assert decision["challenger"]["errors"] == ours["error"].tolist()
    assert decision["defender"]["errors"] == theirs["error"].tolist()
    assert (ours["n_train"] == theirs["n_train"]).all()
    assert (ours["trivial_error"] == theirs["trivial_error"]).all()  # of the same test rows
    artifacts = {file.path for file in MlflowClient().list_artifacts(better["mlflow_run"])}
    assert {"decision.json", "report.md"} <= artifacts
    assert "significantly better" in MlflowClient().get_model_version("sine", "2").tags["decision"]

    train(recipe(path, [0.002]), "sine")
    worse = promote("sine")
    assert (worse["moved"], worse["champion"], worse["challenger"], champion("sine")) == (False, 2, 3, 2)
    assert worse["p"] > 0.9

    again = promote("sine", challenger=2)
    assert (again["moved"], champion("sine")) == (False, 2)
    assert "already" in again["reason"]
    assert within(lambda: len(told) >= 3, 60), told
    subjects = sorted(one["subject"].removeprefix("sine: challenger ") for one in told)
    assert subjects == ["promoted", "promoted", "rejected"]  # a champion that challenges itself is no news
    assert {one["text"] for one in told} == {f"sine: {each['reason']}." for each in (first, better, worse)}


def test_newer_rows_take_over_only_when_asked_for(working_folder: Path):
    path = noise_and_signal(working_folder / "rows.parquet")
    train(recipe(path, [1.0]), "sine")
    promote("sine")
    table = pq.read_table(path)
    pq.write_table(table.slice(0, 250), path)
    assert train(recipe(path, [1.0]), "sine")["version"] == 2
    assert (promote("sine")["moved"], champion("sine")) == (False, 1)
    assert (promote("sine", refresh=True)["moved"], champion("sine")) == (True, 2)


def test_recipes_of_other_columns_and_scaling_share_the_folds(working_folder: Path):
    path = noise_and_signal(working_folder / "rows.parquet")
    train(recipe(path, [1.0], scale="standard"), "sine")
    promote("sine")
    train(recipe(path, [1.0], drop=["b"]), "sine")
    done = promote("sine")
    assert (done["moved"], champion("sine")) == (True, 2)  # the dropped column is noise


@pytest.mark.slow(15)
@alone
def test_a_challenge_that_cannot_be_held_is_refused_in_a_sentence(tmp_path: Path):
    path = noise_and_signal(tmp_path / "rows.parquet")
    train(recipe(path, [1.0]), "sine")
    with pytest.raises(InputError, match=r"sine.*9"):
        promote("sine", challenger=9)
    with pytest.raises(InputError, match="cosine"):
        promote("cosine")
    promote("sine")
    train(recipe(path, [1.0], target="a"), "sine")
    with pytest.raises(InputError, match="share no folds"):
        promote("sine")
    assert champion("sine") == 1
