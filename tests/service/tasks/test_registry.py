"""A model in MLflow's registry: found by name, fetched unchanged, loaded and served where this project is not."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric

import learnkernels
from learnkernels.conf.errors import InputError
from learnkernels.kernels.model import Model
from learnkernels.tasks.models import registry
from learnkernels.tasks.models.registry import (
    ARTIFACT,
    CHAMPION,
    DIGEST,
    MODEL,
    ModelVersion,
    find_version,
    load_version,
    register,
    set_alias,
)
from learnkernels.tasks.operate.servers import free_port
from learnkernels.tasks.store import file_digest
from tests.elsewhere import served
from tests.refusals import require_refusals
from tests.unit.tasks.test_served_model import (
    COLUMNS,
    of_a_table,
    predictions,
    raw_rows,
    trained,
)
from tests.unit.test_architecture import THIRD_PARTY

# MLflow's about its own, on import
pytestmark = pytest.mark.filterwarnings("ignore:.*type hint.*:UserWarning")

WITHOUT_PROJECT = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if not finder.__module__.startswith("__editable__")]
"""
"""What Python runs on start in a folder of the path: the finder of an editable installation is taken out."""


def new_run() -> str:
    client = MlflowClient()
    found = client.get_experiment_by_name("training")
    if found is None:
        folder = (Path.cwd() / "mlartifacts").as_uri()
        found = client.get_experiment(
            client.create_experiment("training", artifact_location=folder)
        )
    return client.create_run(found.experiment_id).info.run_id


def logged(model: Model, path: Path, run_id: str) -> str:
    model.save(path)
    return registry.log_model(
        run_id, path, example=raw_rows(4, seed=2).assign(unused="text")
    )


def registered(model: Model, name: str = "m") -> ModelVersion:
    """Log a model to a new run and register it."""
    run_id = new_run()
    return register(
        logged(model, Path(MODEL).absolute(), run_id),
        name,
        run_id,
        tags={},
        description="",
    )


@pytest.fixture(scope="module")
def churn(module_folder: Path) -> SimpleNamespace:
    """One model that was logged to a run and registered, and the champion."""
    model, path, run_id = trained(probability=True), module_folder / MODEL, new_run()
    client = MlflowClient()
    client.log_metric(run_id, "test_error", 0.125)
    client.log_metric(run_id, "weight/k000", 0.5)
    client.log_param(run_id, "learner", "alignf")
    uri = logged(model, path, run_id)
    found = register(
        uri, "churn", run_id, tags={"dataset": "people"}, description="The first one."
    )
    set_alias("churn", CHAMPION, found.version)
    return SimpleNamespace(
        model=model, path=path, run_id=run_id, uri=uri, version=found
    )


def test_a_model_has_all_metrics_of_its_run(tmp_path: Path):
    client = MlflowClient()
    run_id = new_run()
    # More than one request to MLflow holds
    names = [f"metric{k}" for k in range(1001)]
    metrics = [Metric(name, float(k), 0, 0) for k, name in enumerate(names)]
    client.log_batch(run_id, metrics=metrics)
    uri = logged(trained(probability=True), tmp_path / MODEL, run_id)
    model = client.get_logged_model(uri.removeprefix("models:/"))
    assert {metric.key for metric in model.metrics} == set(names)


def test_the_folder_has_code_pinned_requirements_and_one_file_without_pickle(
    churn: Any,
):
    folder = Path(mlflow.artifacts.download_artifacts(churn.uri))
    files = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
    }
    package = Path(learnkernels.__file__).parent / "kernels"
    code = {
        f"code/learnkernels/kernels/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*.py")
    }
    assert {file for file in files if file.startswith("code/")} == {
        *code,
        "code/learnkernels/__init__.py",
    }
    assert {
        "served_model.py",
        ARTIFACT,
        "MLmodel",
        "requirements.txt",
        "input_example.json",
    } <= files
    assert not [
        file for file in files if file.endswith((".pkl", ".pickle", ".pyc", ".nbc"))
    ]
    assert (folder / ARTIFACT).read_bytes() == churn.path.read_bytes()
    pins = dict(
        line.split("==")
        for line in (folder / "requirements.txt").read_text().splitlines()
    )
    assert {
        "numpy",
        "scipy",
        "scikit-learn",
        "threadpoolctl",
        "numba",
        "mlflow",
    } <= set(pins)
    assert pins == {name: version(name) for name in pins}
    assert {
        {"sklearn": "scikit-learn"}.get(name, name) for name in THIRD_PARTY["kernels"]
    } <= set(pins)


def test_the_run_goes_on_and_shows_its_model_and_a_version_says_what_it_is_and_how_to_use_it(
    churn: Any,
):
    client = MlflowClient()
    run, model_id = client.get_run(churn.run_id), churn.uri.removeprefix("models:/")
    assert run.info.status == "RUNNING"
    assert mlflow.active_run() is None
    assert [output.model_id for output in run.outputs.model_outputs] == [model_id]
    kept = client.get_logged_model(model_id)
    assert (kept.experiment_id, kept.status.value) == (run.info.experiment_id, "READY")
    assert (kept.tags[DIGEST], kept.params) == (
        file_digest(churn.path),
        {"learner": "alignf"},
    )
    assert [(metric.key, metric.value) for metric in kept.metrics] == [
        ("test_error", 0.125)
    ]
    assert len(client.get_metric_history(churn.run_id, "test_error")) == 1
    page = client.get_registered_model("churn").description
    for line in (
        "learnkernels predict --model churn@champion --input new.parquet --output scored.parquet",
        'model = mlflow.pyfunc.load_model("models:/churn@champion")',
        "mlflow models serve -m models:/churn@champion --env-manager local --host 127.0.0.1 --port 5001",
    ):
        assert line in page.splitlines()
    of_version = client.get_model_version("churn", "1")
    assert of_version.description == "The first one."
    assert of_version.tags == {"dataset": "people", DIGEST: file_digest(churn.path)}
    assert (of_version.run_id, of_version.source) == (churn.run_id, churn.uri)
    assert churn.version == ModelVersion(
        "churn", 1, "models:/churn/1", churn.run_id, of_version.tags
    )


def test_the_file_that_is_fetched_is_the_one_that_was_trained(churn: Any):
    frame = raw_rows(20, seed=4)
    here, there = (
        predictions(model, frame)
        for model in (churn.model, load_version(find_version("churn@champion")))
    )
    pd.testing.assert_frame_equal(there, here, check_exact=True)


def test_wrong_names_runs_and_files_are_refused(churn: Any, tmp_path: Path):
    lookups = [
        ("turnover", r"^model 'turnover' not found in sqlite:.*; it has 'churn'\.$"),
        ("turnover@champion", "model 'turnover' not found"),
        ("o'brien", 'model "o.brien" not found'),
        ("churn@winner", "churn has aliases challenger, champion"),
        ("churn/7", "churn has versions 1"),
        ("churn/one", "expected 'name', 'name@alias' or 'name/version'"),
        ("churn@", "expected"),
        ("", "expected"),
        ("runs:/0123/model", "expected"),
    ]
    others = [
        (
            partial(registry.log_model, "0123", churn.path, example=raw_rows(2)),
            "Run with id=0123 not found",
        ),
        (
            partial(register, churn.uri, "a/b", churn.run_id, tags={}, description=""),
            "a/b",
        ),
    ]
    require_refusals(
        [(partial(find_version, text), said) for text, said in lookups] + others,
        error=InputError,
    )
    (tmp_path / MODEL).write_bytes(b"nothing")
    with pytest.raises(ValueError, match="is damaged, or is no file"):
        registry.log_model("no run", tmp_path / MODEL, example=raw_rows(2))


def test_a_store_that_cannot_be_reached_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv(
        "MLFLOW_TRACKING_URI", f"http://user:secret@127.0.0.1:{free_port()}"
    )
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    asks = partial(find_version, "churn"), partial(set_alias, "churn", CHAMPION, 1)
    sentence = r"^MLflow store http://127[^\n]*MLFLOW_TRACKING_URI[^\n]*\.$"
    assert "secret" not in "".join(
        require_refusals(((ask, sentence) for ask in asks), error=InputError)
    )


def test_a_store_that_is_missing_is_not_made_for_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    address = f"sqlite:///{tmp_path}/none.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    with pytest.raises(InputError) as caught:
        find_version("m")
    advice = "the registry is empty. Train it: learnkernels train CONFIG --model m."
    assert str(caught.value) == f"model 'm' not found in {address}; {advice}"
    assert not list(tmp_path.rglob("*.db"))


def test_versions_are_found_by_name_alias_and_number(
    working_folder: Path, capfd: pytest.CaptureFixture[str]
):
    sentence = r"^model 'm' not found in (sqlite:.*); the registry is empty\. Train it: learnkernels train CONFIG --"
    with pytest.raises(InputError, match=sentence):
        find_version("m")
    assert registry.newest_version("m") is None
    assert registry.alias_of("m", CHAMPION) is None
    first = trained()
    one, two = registered(first), registered(trained(predictor="krr"))
    load_version(one)
    assert capfd.readouterr() == ("", "")
    assert [(of.version, of.uri) for of in (one, two)] == [
        (1, "models:/m/1"),
        (2, "models:/m/2"),
    ]
    assert one.digest != two.digest
    assert (
        find_version("m")
        == registry.newest_version("m")
        == registry.alias_of("m", registry.CHALLENGER)
        == two
    )
    assert registry.alias_of("m", CHAMPION) is None
    set_alias("m", CHAMPION, 1)
    assert (
        find_version("m")
        == find_version("models:/m")
        == registry.alias_of("m", CHAMPION)
        == one
    )
    for text in ("m@champion", "models:/m@champion", "m/1", "models:/m/1"):
        assert find_version(text) == one
    assert find_version("m@challenger") == find_version("m/2") == two
    set_alias("m", CHAMPION, 2)
    assert find_version("m") == two
    registry.tag_version("m", 1, {"decision": "worse", "by": "us"})
    tags = MlflowClient().get_model_version("m", "1").tags
    assert tags == {"decision": "worse", "by": "us", DIGEST: one.digest}
    MlflowClient().update_registered_model("m", "Our own words.")
    three = registered(first)
    assert MlflowClient().get_registered_model("m").description == "Our own words."
    assert registry.newest_version("m") == find_version("m@challenger") == three
    assert three == replace(one, version=3, uri="models:/m/3", run_id=three.run_id)


def test_a_file_that_was_changed_or_lost_is_not_used(working_folder: Path):
    found = registered(trained())
    (kept,) = (working_folder / "mlartifacts").rglob(MODEL)
    # Another sound model in its place: only the digest of the version can tell.
    trained(predictor="krr").save(kept)
    with pytest.raises(
        InputError, match="m/1: its file is not the one that was registered"
    ):
        load_version(found)
    kept.unlink()
    with pytest.raises(
        InputError,
        match=r"m/1: its file artifacts/model.safetensors cannot be read[^\n]*\.$",
    ):
        load_version(find_version("m"))
    MlflowClient().delete_model_version_tag("m", "1", DIGEST)
    with pytest.raises(InputError, match="not registered by this program"):
        load_version(find_version("m"))
    assert not list((working_folder / "state").rglob(MODEL))


@pytest.fixture
def elsewhere(churn: Any, tmp_path: Path) -> dict[str, str]:
    """The environment of a process that can import MLflow but not this project."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_PROJECT)
    binaries = Path(
        sys.executable
    ).parent  # `mlflow models serve` looks for uvicorn on the path
    env = os.environ | {
        "PYTHONPATH": str(tmp_path),
        "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    }
    return env | {"PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}


LOADING = """
import importlib.util, json, sys
assert importlib.util.find_spec("learnkernels") is None, "the project can be imported"
import mlflow, pandas
load, predict = sys.argv[1:]
exec(load)
frames = [pandas.DataFrame(**one) for one in json.loads(sys.stdin.read())]
import learnkernels
names = [f"learnkernels.{name}" for name in ("kernels", "tasks", "conf", "flows")]
found = [importlib.util.find_spec(name) is not None for name in names]
print(json.dumps([learnkernels.__file__, found, [eval(predict).to_dict("split") for frame in frames]]))
"""


def test_the_model_loads_and_predicts_where_the_project_cannot_be_imported(
    churn, elsewhere, tmp_path
):
    page = MlflowClient().get_registered_model("churn").description
    (block,) = re.findall(r"```python\n(.*?)\n```", page, re.DOTALL)
    frame = raw_rows(30, seed=6)
    given = [frame, frame[list(COLUMNS[::-1])], frame.round().astype(int)]
    command, text = (
        [sys.executable, "-c", LOADING, *block.splitlines()],
        [one.to_dict("split") for one in given],
    )
    run = subprocess.run(
        command,
        input=json.dumps(text),
        env=elsewhere,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    place, found, got = json.loads(run.stdout.splitlines()[-1])
    assert place.endswith("/artifacts/code/learnkernels/__init__.py")
    assert found == [True, False, False, False]
    for answer, one in zip(got, given, strict=True):
        expected = predictions(churn.model, one[list(COLUMNS)].astype(float))
        pd.testing.assert_frame_equal(
            pd.DataFrame(**answer), expected, check_exact=True
        )


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).is_success
    except httpx.HTTPError:
        return False


def post(url: str, content: bytes, kind: str = "application/json") -> tuple[int, Any]:
    answer = httpx.post(
        f"{url}/invocations",
        content=content,
        headers={"Content-Type": kind},
        timeout=60,
    )
    return answer.status_code, answer.json()


def split(frame: pd.DataFrame) -> bytes:
    return json.dumps({"dataframe_split": frame.to_dict("split")}).encode()


def test_mlflows_server_answers_what_the_model_in_memory_says(
    churn, elsewhere, tmp_path
):
    frame = raw_rows(25, seed=7)
    whole = frame.round().astype(int)
    nulls = frame.astype(object).mask(
        frame.index.to_numpy()[:, None] == [3, 3, 99], None
    )
    refused = [
        (
            frame.drop(columns="height"),
            "the input lacks columns that the model reads: 'height'; rename a column.",
        ),
        (nulls, "column 'height' must hold finite numbers, got a missing value"),
    ]
    url = f"http://127.0.0.1:{(port := free_port())}"
    of_model = [
        "-m",
        "models:/churn@champion",
        "--env-manager",
        "local",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    command = [sys.executable, "-m", "mlflow", "models", "serve", *of_model]
    with served(command, elsewhere, tmp_path, lambda: answers(f"{url}/ping")):
        records = {"predictions": predictions(churn.model, frame).to_dict("records")}
        assert post(url, split(frame)) == (200, records)
        assert post(url, split(frame[list(COLUMNS[::-1])])) == (200, records)
        assert post(url, frame.to_csv(index=False).encode(), "text/csv") == (
            200,
            records,
        )
        integers = predictions(churn.model, whole.astype(float)).to_dict("records")
        assert post(url, split(whole)) == (200, {"predictions": integers})
        for one, sentence in refused:
            status, said = post(url, split(one))
            assert status == 400
            assert sentence in said["message"]


def test_the_code_of_the_page_runs_for_every_kind_of_table(module_folder: Path):
    i = np.arange(60)
    table = raw_rows(60).assign(
        whole=i % 7, truth=i % 3 > 0, plan=np.where(i % 3, "basic", "full")
    )
    table = table.assign(
        kind=pd.Categorical(table["plan"]),
        day=pd.date_range("2024-01-01", periods=60, freq="5D"),
    )
    y = np.where(
        (table["plan"] == "full") ^ (table["height"] > table["height"].mean()),
        "stays",
        "leaves",
    )
    new = table[::-1].reset_index(drop=True)
    new.loc[0, "plan"], new.loc[1, "plan"], new.loc[2, "height"] = "other", None, np.nan
    for kinds in (
        ["height"],
        ["whole", "truth"],
        ["plan"],
        ["kind", "height"],
        ["day", "whole"],
        list(table),
    ):
        model, path = of_a_table(table[kinds], y), module_folder / MODEL
        model.save(path)
        run_id = new_run()
        register(
            registry.log_model(run_id, path, example=table[:4]),
            "plans",
            run_id,
            tags={},
            description="",
        )
        set_alias("plans", CHAMPION, registry.newest_version("plans").version)
        page = MlflowClient().get_registered_model("plans").description
        (load, predict) = re.findall(r"```python\n(.*?)\n```", page, re.DOTALL)[
            0
        ].splitlines()
        names: dict[str, Any] = {"mlflow": mlflow, "frame": new.assign(other=1)}
        exec(load, names)
        pd.testing.assert_frame_equal(
            eval(predict, names), pd.DataFrame(model.columns(new)), obj=str(kinds)
        )


@pytest.mark.usefixtures("module_folder")  # the model is written into it
def test_damaged_files_of_a_training_run_are_one_sentence(tmp_path: Path):
    version = registered(trained(probability=True), "damaged")
    assert registry.stored_folds(version, "alignf") is None
    client = MlflowClient()
    for name in ("folds.parquet", registry.SCORED):
        (tmp_path / name).write_bytes(b"PAR1 damaged")
        client.log_artifact(version.run_id, tmp_path / name)
    require_refusals(
        [
            (
                partial(registry.stored_folds, version, "alignf"),
                r"^model models:/damaged/1: its results by fold .* are damaged .*; restore folds\.parquet",
            ),
            (
                partial(registry.last_scored, version),
                r"^model models:/damaged/1: scored\.json in run .* is damaged; restore it",
            ),
        ],
        error=InputError,
    )
