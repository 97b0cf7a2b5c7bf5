"""A model in MLflow's registry: found by name, fetched unchanged, loaded and served where this project is not."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient

import learnkernels
from learnkernels import GaussianFamily
from learnkernels.conf.errors import InputError
from learnkernels.kernels.estimators import KernelLearningClassifier, KernelLearningRegressor
from learnkernels.kernels.persistence.model import Model, load_model, save_model
from learnkernels.tasks.models.registry import (
    CHALLENGER,
    CHAMPION,
    DIGEST,
    ModelVersion,
    alias_of,
    fetch,
    find_version,
    log_model,
    newest_version,
    register,
    set_alias,
    signature_of,
    tag_version,
)
from learnkernels.tasks.operate.children import free_port
from learnkernels.tasks.store import file_digest

pytestmark = pytest.mark.filterwarnings("ignore:.*type hint.*:UserWarning")  # MLflow's about its own, on import

COLUMNS = ("height", "depth in m", "N \N{GREEK SMALL LETTER MU}")
LOW, SPREAD = np.array([150.0, -2.0, 0.0]), np.array([40.0, 0.25, 1.0])

WITHOUT_PROJECT = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if not finder.__module__.startswith("__editable__")]
"""
"""What Python runs on start in a folder of the path: the finder of an editable installation is taken out."""


def raw_rows(n: int, seed: int = 0) -> pd.DataFrame:
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return pd.DataFrame(X * SPREAD + LOW, columns=list(COLUMNS))


def trained(names: Any = ("stays", "leaves"), **params: Any) -> Model:
    X = raw_rows(60)
    features = ((X - LOW) / SPREAD).to_numpy()
    y = np.asarray(names)[(features[:, 0] * features[:, 1] > 0).astype(int) % len(names)]
    estimator = KernelLearningClassifier(GaussianFamily([0.1, 0.7]), C=10, **params).fit(features, y)
    return Model(estimator, COLUMNS, LOW, SPREAD, {"name": "churn"})


def predictions(model: Model, frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(model.columns(frame.to_numpy()))


@dataclass(frozen=True)
class Registered:
    """One model that was logged to a run and registered, and the champion."""

    model: Model
    path: Path
    run_id: str
    uri: str
    version: ModelVersion


def new_run() -> str:
    client = MlflowClient()
    found = client.get_experiment_by_name("training")
    if found is None:
        folder = (Path.cwd() / "mlartifacts").as_uri()
        found = client.get_experiment(client.create_experiment("training", artifact_location=folder))
    return client.create_run(found.experiment_id).info.run_id


def logged(model: Model, path: Path, run_id: str) -> str:
    save_model(model, path)
    return log_model(run_id, path, example=raw_rows(4, seed=2).assign(unused="text"))


@pytest.fixture(scope="module")
def churn(module_folder: Path) -> Registered:
    model, path, run_id = trained(probability=True), module_folder / "churn.npz", new_run()
    client = MlflowClient()
    client.log_metric(run_id, "test_error", 0.125)
    client.log_metric(run_id, "weight/k000", 0.5)
    client.log_param(run_id, "learner", "alignf")
    uri = logged(model, path, run_id)
    found = register(uri, "churn", run_id, tags={"dataset": "people"}, description="The first one.")
    set_alias("churn", CHAMPION, found.version)
    return Registered(model, path, run_id, uri, found)


@pytest.fixture
def folder_of(churn: Registered) -> Path:
    """The folder of the logged model."""
    return Path(mlflow.artifacts.download_artifacts(churn.uri))


# What is logged ------------------------------------------------------------------------------------------------------


def test_the_model_is_logged_as_code_and_one_file_without_pickle(churn: Registered, folder_of: Path):
    files = {path.relative_to(folder_of).as_posix() for path in folder_of.rglob("*") if path.is_file()}
    package = Path(learnkernels.__file__).parent / "kernels"
    code = {f"code/learnkernels/kernels/{path.relative_to(package).as_posix()}" for path in package.rglob("*.py")}
    assert {file for file in files if file.startswith("code/")} == {*code, "code/learnkernels/__init__.py"}
    assert {"served_model.py", "artifacts/model.npz", "MLmodel", "requirements.txt", "input_example.json"} <= files
    assert not [file for file in files if file.endswith((".pkl", ".pickle", ".pyc", ".nbc"))]
    assert (folder_of / "artifacts/model.npz").read_bytes() == churn.path.read_bytes()


def test_the_requirements_are_pinned_to_what_is_installed(folder_of: Path):
    lines = (folder_of / "requirements.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines)
    assert {"numpy", "scipy", "scikit-learn", "threadpoolctl", "numba", "mlflow"} <= set(pins)
    assert pins == {name: version(name) for name in pins}


def test_all_that_the_package_of_the_model_imports_is_required(folder_of: Path):
    from tests.unit.test_architecture import THIRD_PARTY

    names = {line.split("==")[0] for line in (folder_of / "requirements.txt").read_text().splitlines()}
    assert {{"sklearn": "scikit-learn"}.get(name, name) for name in THIRD_PARTY["kernels"]} <= names


def test_the_run_goes_on_and_shows_its_model(churn: Registered):
    client = MlflowClient()
    run, model_id = client.get_run(churn.run_id), churn.uri.removeprefix("models:/")
    assert run.info.status == "RUNNING"
    assert mlflow.active_run() is None
    assert [output.model_id for output in run.outputs.model_outputs] == [model_id]
    kept = client.get_logged_model(model_id)
    assert kept.experiment_id == run.info.experiment_id
    assert kept.status.value == "READY"
    assert kept.tags[DIGEST] == file_digest(churn.path)
    assert kept.params == {"learner": "alignf"}
    assert [(metric.key, metric.value) for metric in kept.metrics] == [("test_error", 0.125)]
    assert len(client.get_metric_history(churn.run_id, "test_error")) == 1


def test_nothing_is_printed(churn: Registered, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    uri = logged(churn.model, tmp_path / "again.npz", new_run())
    fetch(register(uri, "quiet", new_run(), tags={}, description=""))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("no", "yes"), "string"),
        (np.array(["no", "yes"], dtype=object), "string"),
        ((False, True), "boolean"),
        ((3, 2**40), "long"),
        (np.array([1, 2], dtype=np.int32), "integer"),
        (np.array([1, 2], dtype=np.uint32), "long"),
    ],
)
def test_the_signature_names_columns_and_types(names: Any, expected: str):
    signature = signature_of(trained(names, probability=True))
    inputs = [(column.name, column.type.name, column.required) for column in signature.inputs]
    assert inputs == [(name, "double", True) for name in COLUMNS]
    labels = np.unique(np.asarray(names)).tolist()
    outputs = [(column.name, column.type.name) for column in signature.outputs]
    numbers = ["score", *(f"probability {label}" for label in labels)]
    assert outputs == [("prediction", expected), *((name, "double") for name in numbers)]


def test_a_file_that_holds_no_model_is_not_logged(module_folder: Path, tmp_path: Path):
    path = tmp_path / "none.npz"
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="save_model"):
        log_model("no run", path, example=raw_rows(2))


def test_a_model_is_not_logged_to_a_run_that_is_not_there(churn: Registered):
    with pytest.raises(InputError, match="Run with id=0123 not found"):
        log_model("0123", churn.path, example=raw_rows(2))


# The registry --------------------------------------------------------------------------------------------------------


def test_a_version_says_what_it_is_and_how_to_use_it(churn: Registered):
    client = MlflowClient()
    page = client.get_registered_model("churn").description
    for line in (
        "learnkernels predict --model churn@champion --input new.parquet --output scored.parquet",
        'model = mlflow.pyfunc.load_model("models:/churn@champion")',
        "mlflow models serve -m models:/churn@champion --env-manager local --host 127.0.0.1 --port 5001",
    ):
        assert line in page.splitlines()
    kept = client.get_model_version("churn", "1")
    assert kept.description == "The first one."
    assert kept.tags == {"dataset": "people", DIGEST: file_digest(churn.path)}
    assert (kept.run_id, kept.source) == (churn.run_id, churn.uri)
    assert churn.version == ModelVersion("churn", 1, "models:/churn/1", churn.run_id, file_digest(churn.path))


def test_versions_are_found_by_name_alias_and_number(working_folder: Path):
    first, second = trained(), trained(predictor="krr")
    run_id = new_run()
    versions = [
        register(logged(model, working_folder / "m.npz", run_id), "m", run_id, tags={}, description="")
        for model in (first, second)
    ]
    one, two = versions
    assert [(of.version, of.uri) for of in versions] == [(1, "models:/m/1"), (2, "models:/m/2")]
    assert one.digest != two.digest
    assert find_version("m") == newest_version("m") == alias_of("m", CHALLENGER) == two
    assert alias_of("m", CHAMPION) is None
    set_alias("m", CHAMPION, 1)
    assert find_version("m") == find_version("models:/m") == alias_of("m", CHAMPION) == one
    for text in ("m@champion", "models:/m@champion", "m/1", "models:/m/1"):
        assert find_version(text) == one
    assert find_version("m@challenger") == find_version("m/2") == two
    set_alias("m", CHAMPION, 2)
    assert find_version("m") == two
    tag_version("m", 1, {"decision": "worse", "by": "us"})
    tags = MlflowClient().get_model_version("m", "1").tags
    assert tags == {"decision": "worse", "by": "us", DIGEST: one.digest}
    MlflowClient().update_registered_model("m", "Our own words.")
    register(logged(first, working_folder / "m.npz", run_id), "m", run_id, tags={}, description="")
    assert MlflowClient().get_registered_model("m").description == "Our own words."
    assert newest_version("m") == find_version("m@challenger") == replace(one, version=3, uri="models:/m/3")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("turnover", r"'turnover': there is no registered model .* there are 'churn'"),
        ("turnover@champion", "no registered model"),
        ("o'brien", "no registered model"),
        ("churn@winner", "churn has aliases challenger, champion"),
        ("churn/7", "churn has versions 1"),
        ("churn/one", "expected 'name', 'name@alias' or 'name/version'"),
        ("churn@", "expected"),
        ("", "expected"),
        ("runs:/0123/model", "expected"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(churn: Registered, text: str, said: str):
    with pytest.raises(InputError, match=rf"^[^\n]*{said}[^\n]*\.$"):
        find_version(text)


def test_an_empty_registry_says_so(working_folder: Path):
    with pytest.raises(InputError, match=r"the registry is empty; .*learnkernels train"):
        find_version("churn")
    assert newest_version("churn") is None
    assert alias_of("churn", CHAMPION) is None


def test_a_name_that_the_registry_refuses_is_one_sentence(churn: Registered):
    with pytest.raises(InputError, match="a/b"):
        register(churn.uri, "a/b", churn.run_id, tags={}, description="")


def test_a_store_that_cannot_be_reached_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://user:secret@127.0.0.1:{free_port()}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    asks: list[Callable[[], object]] = [lambda: find_version("churn"), lambda: set_alias("churn", CHAMPION, 1)]
    for ask in asks:
        with pytest.raises(InputError, match=r"^MLflow store http://127[^\n]*MLFLOW_TRACKING_URI[^\n]*\.$") as caught:
            ask()
        assert "secret" not in str(caught.value)


# Fetching ------------------------------------------------------------------------------------------------------------


def test_the_file_that_is_fetched_is_the_one_that_was_trained(churn: Registered):
    path = fetch("churn@champion")
    assert path.read_bytes() == churn.path.read_bytes()
    assert fetch(churn.version) == path
    frame = raw_rows(20, seed=4)
    pd.testing.assert_frame_equal(
        predictions(load_model(path), frame), predictions(churn.model, frame), check_exact=True
    )


def test_a_file_that_was_changed_or_lost_is_not_used(working_folder: Path):
    run_id = new_run()
    uri = logged(trained(), working_folder / "m.npz", run_id)
    found = register(uri, "m", run_id, tags={}, description="")
    (kept,) = (working_folder / "mlartifacts").rglob("model.npz")
    # Another sound model in its place: only the digest of the version can tell.
    save_model(trained(predictor="krr"), kept)
    with pytest.raises(InputError, match="m/1: its file is not the one that was registered"):
        fetch(found)
    kept.unlink()
    with pytest.raises(InputError, match=r"m/1: its file artifacts/model.npz cannot be read[^\n]*\.$"):
        fetch("m")
    MlflowClient().delete_model_version_tag("m", "1", DIGEST)
    with pytest.raises(InputError, match="not registered by this program"):
        fetch("m")
    assert not list((working_folder / "state").rglob("*.npz"))


# Served --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(churn: Registered, tmp_path: Path) -> dict[str, str]:
    """The environment of a process that can import MLflow but not this project."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_PROJECT)
    binaries = Path(sys.executable).parent  # `mlflow models serve` looks for uvicorn on the path
    return {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    }


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
    churn: Registered, elsewhere: dict[str, str], tmp_path: Path
):
    page = MlflowClient().get_registered_model("churn").description
    (block,) = re.findall(r"```python\n(.*?)\n```", page, re.DOTALL)
    frame = raw_rows(30, seed=6)
    given = [frame, frame[list(COLUMNS[::-1])], frame.round().astype(int)]
    run = subprocess.run(
        [sys.executable, "-c", LOADING, *block.splitlines()],
        input=json.dumps([one.to_dict("split") for one in given]),
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
        pd.testing.assert_frame_equal(pd.DataFrame(**answer), expected, check_exact=True)


@contextmanager
def serving(model: str, env: dict[str, str], folder: Path) -> Iterator[str]:
    """Hold MLflow's own server of a model, and give its address."""
    url, log = f"http://127.0.0.1:{(port := free_port())}", folder / "server.log"
    command = ["mlflow", "models", "serve", "-m", model, "--env-manager", "local", "--host", "127.0.0.1"]
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", *command, "--port", str(port)],
            env=env,
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            for _ in range(1200):
                assert server.poll() is None, log.read_text()
                if answers(f"{url}/ping"):
                    break
                with pytest.raises(subprocess.TimeoutExpired):
                    server.wait(0.1)
            else:
                pytest.fail(log.read_text())
            yield url
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(30)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def post(url: str, content: bytes, kind: str = "application/json") -> tuple[int, Any]:
    request = urllib.request.Request(f"{url}/invocations", data=content, headers={"Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def split(frame: pd.DataFrame) -> bytes:
    return json.dumps({"dataframe_split": frame.to_dict("split")}).encode()


def test_mlflows_server_answers_what_the_model_in_memory_says(
    churn: Registered, elsewhere: dict[str, str], tmp_path: Path
):
    frame = raw_rows(25, seed=7)
    expected = predictions(churn.model, frame).to_dict("records")
    whole = frame.round().astype(int)
    with serving("models:/churn@champion", elsewhere, tmp_path) as url:
        assert post(url, split(frame)) == (200, {"predictions": expected})
        assert post(url, split(frame[list(COLUMNS[::-1])])) == (200, {"predictions": expected})
        assert post(url, frame.to_csv(index=False).encode(), "text/csv") == (200, {"predictions": expected})
        integers = predictions(churn.model, whole.astype(float)).to_dict("records")
        assert post(url, split(whole)) == (200, {"predictions": integers})
        status, said = post(url, split(frame.drop(columns="height")))
        assert status == 400
        assert "missing inputs ['height']" in said["message"]
        status, said = post(url, split(frame.astype(object).mask(frame.index.to_numpy()[:, None] == [3, 3, 99], None)))
        assert status == 400
        assert "column 'height' must hold finite numbers, got null, NaN or infinity in 1 of 25 rows" in said["message"]


def test_a_model_of_a_table_takes_texts_gaps_and_new_levels(module_folder: Path):
    table = raw_rows(60).assign(plan=np.where(np.arange(60) % 3, "basic", "full"))
    y = np.where((table["plan"] == "full") ^ (table["height"] > table["height"].mean()), "stays", "leaves")
    model, path, run_id = (
        Model.of_table(KernelLearningClassifier().fit(table, y), {"name": "plans"}),
        module_folder / "plans.npz",
        new_run(),
    )
    save_model(model, path)
    uri = log_model(run_id, path, example=table[:4])
    new = table[::-1].reset_index(drop=True)
    new.loc[0, "plan"], new.loc[1, "plan"], new.loc[2, "height"] = "other", None, np.nan
    said = mlflow.pyfunc.load_model(uri).predict(new)
    pd.testing.assert_frame_equal(said, pd.DataFrame(model.columns(new)))


@pytest.fixture
def rows_of() -> Callable[[Any], np.ndarray]:
    from learnkernels.tasks.models.served_model import frame_rows

    return lambda frame: frame_rows(frame, COLUMNS)


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame,
        lambda frame: frame[list(COLUMNS[::-1])],
        lambda frame: frame.set_index(np.arange(4)[::-1]),
        lambda frame: frame.convert_dtypes(),
        lambda frame: frame.astype(object),
        lambda frame: pd.DataFrame(np.asfortranarray(frame.to_numpy()), columns=frame.columns),
    ],
)
def test_frames_of_many_kinds_give_the_same_rows(change: Any, rows_of: Callable[[Any], np.ndarray]):
    frame = raw_rows(4)
    rows = rows_of(change(frame.copy()))
    assert rows.flags.c_contiguous
    np.testing.assert_array_equal(rows, frame.to_numpy())


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint16", "float32", "Int64", "Float32", "bool", "boolean"])
def test_columns_of_other_numbers_are_taken(dtype: str, rows_of: Callable[[Any], np.ndarray]):
    frame = pd.DataFrame({name: pd.array([0, 1, 1], dtype=dtype) for name in COLUMNS})
    np.testing.assert_array_equal(rows_of(frame), np.repeat([[0.0], [1.0], [1.0]], 3, axis=1))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda frame: frame.drop(columns="height"), "got others: 'height' missing; give 'height', 'depth in m', "),
        (lambda frame: frame.assign(id=1), "'id' unknown"),
        (lambda frame: frame.rename(columns={"height": "Height"}), "'height' missing; 'Height' unknown"),
        (lambda frame: pd.concat([frame, frame[["height"]]], axis=1), "'height' more than once"),
        (lambda frame: frame.assign(height="tall"), "column 'height' must hold numbers, got str such as 'tall'"),
        (lambda frame: frame.assign(height=["1.5", "2", "3", "4"]), "must hold numbers, got str such as '1.5'"),
        (lambda frame: frame.assign(height=np.array([1.0, 2.0, "3", None], dtype=object)), "must hold numbers"),
        (lambda frame: frame.assign(height=[1, None, np.nan, 2]), "NaN or infinity in 2 of 4 rows"),
        (lambda frame: frame.assign(height=np.inf), "NaN or infinity in 4 of 4 rows"),
        (lambda frame: frame.assign(height=pd.array([1, None, 2, 3], dtype="Int64")), "in 1 of 4 rows"),
        (lambda frame: frame.assign(height=1j), "must hold numbers, got complex128"),
        (lambda frame: frame.assign(height=pd.Timestamp(0)), "must hold numbers, got datetime64"),
        (lambda frame: frame.to_numpy(), "got ndarray; give a pandas DataFrame"),
    ],
)
def test_frames_that_do_not_suit_are_refused(change: Any, said: str, rows_of: Callable[[Any], np.ndarray]):
    with pytest.raises(ValueError, match=r"^[^\n]*\.$") as caught:
        rows_of(change(raw_rows(4)))
    assert said in str(caught.value)


def test_several_outputs_are_served_as_several_columns(working_folder: Path):
    from learnkernels.tasks.models.served_model import ServedModel

    X = raw_rows(40)
    Y = np.column_stack([np.sin(X["height"]), X["depth in m"] ** 2])
    model = Model(
        KernelLearningRegressor(GaussianFamily([0.1])).fit((X - LOW).to_numpy() / SPREAD, Y), COLUMNS, LOW, SPREAD, {}
    )
    save_model(model, working_folder / "m.npz")
    served, frame = ServedModel(), raw_rows(5, seed=3).set_index(pd.Index(list("vwxyz")))
    served.load_context(type("Context", (), {"artifacts": {"model": str(working_folder / "m.npz")}}))
    got = served.predict(None, frame)
    assert list(got.columns) == ["prediction 0", "prediction 1"]
    assert list(got.index) == list("vwxyz")
    np.testing.assert_array_equal(got.to_numpy(), predictions(model, frame).to_numpy())
    assert [column.name for column in signature_of(model).outputs] == ["prediction 0", "prediction 1"]
