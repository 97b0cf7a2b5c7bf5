"""Scoring as users start it: a registered model, a file, one command; real Prefect, real MLflow."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from mlflow import MlflowClient
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, ArtifactFilterKey
from prefect.client.schemas.sorting import FlowRunSort
from prefect.settings import PREFECT_API_URL

from learnkernels import GaussianFamily
from learnkernels.conf.errors import InputError
from learnkernels.flows.predict import predict
from learnkernels.kernels.estimators import KernelLearningClassifier
from learnkernels.kernels.persistence.model import Model, load_model, save_model
from learnkernels.tasks.data.locations import locate
from learnkernels.tasks.models.registry import ModelVersion, fetch, find_version, log_model, register
from learnkernels.tasks.models.scoring import score_table
from tests.service.conftest import S3
from tests.service.flows.test_notifications import told_of
from tests.user import learnkernels
from tools.waiting import within

in_process = pytest.mark.usefixtures("prefect_server", "working_folder")


def rows_of(n: int, seed: int) -> pd.DataFrame:
    frame = pd.DataFrame(np.random.default_rng(seed).normal(size=(n, 2)), columns=["b", "a"])
    return frame.assign(key=[f"k{i}" for i in range(n)])


def registered(name: str = "flowers") -> ModelVersion:
    """Learn and register a small model in the MLflow store of the working folder."""
    train = rows_of(60, 0)
    y = np.where(train["a"] * train["b"] > 0, "yes", "no")
    estimator = KernelLearningClassifier(GaussianFamily([0.1, 1.0]), "align").fit(train[["a", "b"]].to_numpy(), y)
    save_model(Model(estimator, ("a", "b"), np.zeros(2), np.ones(2), {"target": "y", "drop": []}), "model.npz")
    client = MlflowClient()
    run = client.create_run(client.create_experiment(name, artifact_location=Path("mlartifacts").absolute().as_uri()))
    uri = log_model(run.info.run_id, Path("model.npz"), example=train.head(3))
    return register(uri, name, run.info.run_id, tags={}, description="small")


@in_process
def test_a_flow_scores_with_the_version_that_is_named_and_reports_it():
    version, rows = registered(), rows_of(5000, 1)
    rows.loc[[2, 40], "a"] = np.nan
    rows.assign(y="?").to_parquet("in.parquet")
    result = predict("flowers/1", "in.parquet", "new/out.parquet", ["key"], "null")
    assert json.loads(json.dumps(result)) == result
    assert result["columns"] == ["key", "prediction", "score"]
    assert (result["rows"], result["missing"], result["output"]) == (5000, 2, "new/out.parquet")
    assert (result["model"], result["version"]) == ("models:/flowers/1", version.version)
    table = pyarrow.parquet.read_table("new/out.parquet")
    complete = rows.dropna()
    whole = load_model(fetch(version)).columns(complete[["a", "b"]].to_numpy())
    scored = table.to_pandas().dropna()
    assert list(scored["key"]) == list(complete["key"])
    # Rows without a prediction move the others within a product: not bit by bit.
    np.testing.assert_allclose(scored["score"].to_numpy(), whole["score"], rtol=1e-9, atol=1e-12)
    labels, counts = np.unique(whole["prediction"], return_counts=True)
    assert result["distribution"] == {"prediction": dict(zip(labels.tolist(), counts.tolist(), strict=True))}
    assert table.schema.metadata[b"learnkernels.digest"].decode() == result["digest"] == version.digest
    with get_client(sync_client=True) as client:
        (run,) = [
            run
            for run in client.read_flow_runs(sort=FlowRunSort.EXPECTED_START_TIME_DESC)
            if run.name.startswith("predict-flowers/1-")
        ]
        wanted = ArtifactFilter(
            key=ArtifactFilterKey(any_=["scoring", "scoring-progress"]),
            flow_run_id=ArtifactFilterFlowRunId(any_=[run.id]),
        )
        artifacts = {one.key: one.data for one in client.read_artifacts(artifact_filter=wanted)}
    assert run.state.type.value == "COMPLETED"
    assert artifacts["scoring-progress"] == 100.0
    report = artifacts["scoring"]
    assert "5,000 rows scored with [flowers version 1](http://127.0.0.1:5000/#/models/flowers/versions/1)" in report
    assert "| rows without a prediction, because a value is missing | 2 |" in report
    for label, count in zip(labels, counts, strict=True):
        assert f"| {label} | {count:,} | {count / 4998:.1%} |" in report


@in_process
def test_a_table_without_rows_is_scored_and_told():
    registered()
    rows_of(0, 1).to_parquet("in.parquet")
    with told_of("flowers") as received:
        assert predict("flowers/1", "in.parquet", "out.parquet", ["key"])["rows"] == 0
        assert within(lambda: len(received) >= 1, 60)
    (message,) = received
    assert message["subject"] == "flowers: input empty"
    assert message["text"] == "in.parquet has no rows, and so out.parquet has none."


@in_process
def test_what_cannot_be_scored_is_refused_and_leaves_nothing():
    registered()
    rows_of(50, 1).to_parquet("in.parquet")
    for model, keys, sentence in (
        ("roses", ["key"], "model 'roses': there is no registered model of that name"),
        ("flowers/7", ["key"], "model 'flowers/7': there is none"),
        ("flowers", [], "in.parquet: its columns are not those of the model: unknown 'key'"),
        ("flowers", ["key", "gone"], "in.parquet: its columns are not those of the model: missing 'gone'"),
    ):
        with pytest.raises(InputError, match=re.escape(sentence)):
            predict(model, "in.parquet", "out.parquet", keys)
    with pytest.raises(InputError, match=r"^scheduler: must be tcp://HOST:PORT or tls://HOST:PORT, .* credentials\.$"):
        predict("flowers", "in.parquet", "out/", scheduler="tls://me:hidden@a:1")
    assert not list(Path().glob("out*"))


@in_process
def test_reading_and_writing_are_tried_again_and_faults_are_not():
    version, calls = registered(), []
    rows_of(50, 1).to_parquet("in.parquet")

    def tell(share: float, rows: int) -> None:
        calls.append(share)
        if len(calls) == 1:
            raise ConnectionResetError("gone for a moment")

    @flow(name="twice")
    def twice(*ids: str) -> int:
        return score_table(find_version(version.uri), "in.parquet", "out.parquet", ids, "refuse", tell).rows

    assert twice("key") == 50
    assert calls == [1.0, 1.0]
    assert sorted(path.name for path in Path().glob("*out.parquet*")) == ["out.parquet"]
    with pytest.raises(InputError, match="unknown 'key'"):
        twice()
    assert len(calls) == 2


@in_process
def test_from_server_to_server_is_from_disk_to_disk(s3: S3):
    registered()
    rows_of(3000, 1).to_parquet("in.parquet")
    predict("flowers", "in.parquet", "out.parquet", ["key"])
    source = s3.put("in.parquet", Path("in.parquet"))
    result = predict("flowers", source, "s3://rows/scores/out.parquet", ["key"])
    assert result["output"] == "s3://rows/scores/out.parquet"
    with locate(result["output"]).open_input() as file:
        assert file.read() == Path("out.parquet").read_bytes()


def test_every_parameter_is_described_in_the_form():
    properties = predict.parameters.properties
    assert list(properties) == ["model", "input", "output", "id", "missing", "scheduler"]
    assert all(len(one["description"]) > 20 for one in properties.values())
    assert properties["missing"]["enum"] == ["refuse", "null"]
    assert predict.parameters.required == ["model", "input", "output"]


@pytest.mark.slow(25)
@in_process
def test_the_command_scores_and_refuses_in_one_sentence(working_folder: Path):
    registered()
    rows_of(100, 1).to_csv("in.csv", index=False)
    (working_folder / "work").mkdir()
    options = ["--model", "flowers", "--input", "../in.csv", "--output", "out.csv"]
    settings = {
        "PREFECT_API_URL": str(PREFECT_API_URL.value()),
        "MLFLOW_TRACKING_URI": f"sqlite:///{working_folder}/mlflow.db",
    }
    run = learnkernels(working_folder, "predict", *options, "--id", "key", **settings)
    assert run.returncode == 0, run.stderr
    assert "100 rows scored with models:/flowers/1" in run.stdout
    scored = pd.read_csv(working_folder / "work" / "out.csv")
    assert list(scored.columns) == ["key", "prediction", "score"]
    assert list(scored["key"]) == [f"k{i}" for i in range(100)]
    wrong = learnkernels(working_folder, "predict", *options, **settings)
    assert wrong.returncode == 2
    assert "Traceback" not in wrong.stderr
    assert "unknown 'key'" in wrong.stderr.strip().splitlines()[-1]
