"""Scoring: a registered model, a file, one command; real Prefect, real MLflow."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from mlflow import MlflowClient
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    ArtifactFilterKey,
)
from prefect.client.schemas.sorting import FlowRunSort
from prefect.settings import PREFECT_API_URL
from typer.testing import CliRunner, Result

from dev.tools.waiting import within
from learnkernels import GaussianFamily
from learnkernels.conf.errors import InputError
from learnkernels.flows import functions
from learnkernels.flows.cli import app
from learnkernels.flows.predict import predict
from learnkernels.kernels.estimators import KernelLearningClassifier
from learnkernels.kernels.model import Model
from learnkernels.tasks.data.locations import locate
from learnkernels.tasks.models import registry
from learnkernels.tasks.models.scoring import Drifted, ScoringOptions, score_table
from tests.refusals import require_refusals
from tests.service.conftest import S3
from tests.service.flows.test_notifications import sends, told_of


def rows_of(n: int, seed: int) -> pd.DataFrame:
    frame = pd.DataFrame(
        np.random.default_rng(seed).normal(size=(n, 2)), columns=["b", "a"]
    )
    return frame.assign(key=[f"k{i}" for i in range(n)])


@pytest.fixture(scope="module")
def registered(prefect_server: None, module_folder: Path) -> registry.ModelVersion:
    """A small model, learned and registered once; tests that use it share its working folder and MLflow store."""
    name = "flowers"
    train = rows_of(60, 0)
    y = np.where(train["a"] * train["b"] > 0, "yes", "no")
    X = train[["a", "b"]]
    estimator = KernelLearningClassifier(
        family=GaussianFamily([0.1, 1.0]), learner="align"
    ).fit(X, y)
    model = Model.of_table(estimator, {"target": "y", "drop": []})
    model.with_reference(X.to_numpy(), X.min().to_numpy(), X.max().to_numpy(), 0).save(
        "model.safetensors"
    )
    client = MlflowClient()
    run = client.create_run(
        client.create_experiment(
            name, artifact_location=Path("mlartifacts").absolute().as_uri()
        )
    )
    uri = registry.log_model(
        run.info.run_id, Path("model.safetensors"), example=train.head(3)
    )
    return registry.register(uri, name, run.info.run_id, tags={}, description="small")


def artifacts_of(model: str) -> tuple[Any, dict[str, Any]]:
    """Return the latest run of `predict` with a model, and the artifacts that it has left, by key."""
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(sort=FlowRunSort.EXPECTED_START_TIME_DESC)
        run = next(run for run in runs if run.name.startswith(f"predict-{model}-"))
        wanted = ArtifactFilter(
            key=ArtifactFilterKey(any_=["scoring", "scoring-progress"]),
            flow_run_id=ArtifactFilterFlowRunId(any_=[run.id]),
        )
        return run, {
            one.key: one.data for one in client.read_artifacts(artifact_filter=wanted)
        }


def test_a_flow_scores_with_the_version_that_is_named_and_reports_it(
    registered: registry.ModelVersion,
):
    version, rows = registered, rows_of(5000, 1)
    rows.loc[[2, 40], "a"] = np.nan
    rows.assign(y="?").to_parquet("in.parquet")
    result = predict("flowers/1", "in.parquet", "new/out.parquet", ["key"])
    assert json.loads(json.dumps(result)) == result
    assert result["columns"] == [
        "key",
        "prediction",
        "score",
        "probability no",
        "probability yes",
    ]
    assert (result["rows"], result["gaps"], result["output"]) == (
        5000,
        {"a": 2},
        "new/out.parquet",
    )
    assert (result["model"], result["version"]) == (
        "models:/flowers/1",
        version.version,
    )
    table = pyarrow.parquet.read_table("new/out.parquet")
    whole = registry.load_version(version).columns(
        rows.fillna({"a": rows_of(60, 0)["a"].median()})
    )
    scored = table.to_pandas()
    assert list(scored["key"]) == list(rows["key"])
    np.testing.assert_allclose(
        scored["score"].to_numpy(), whole["score"], rtol=1e-9, atol=1e-12
    )
    labels, counts = np.unique(whole["prediction"], return_counts=True)
    assert result["distribution"] == {
        "prediction": dict(zip(labels.tolist(), counts.tolist(), strict=True))
    }
    assert (
        table.schema.metadata[b"learnkernels.digest"].decode()
        == result["digest"]
        == version.digest
    )
    run, artifacts = artifacts_of("flowers/1")
    assert run.state.type.value == "COMPLETED"
    assert artifacts["scoring-progress"] == 100.0
    report = artifacts["scoring"]
    assert result["drift"]["warnings"] == []
    assert "No threshold is exceeded." in report
    assert (
        "5,000 rows scored with [flowers version 1](http://127.0.0.1:5000/#/models/flowers/versions/1)"
        in report
    )
    assert "| rows with missing values | `a` 2 |" in report
    for label, count in zip(labels, counts, strict=True):
        assert f"| {label} | {count:,} | {count / 5000:.1%} |" in report


def test_contributions_are_beside_the_predictions_in_python_and_in_the_report(
    registered: registry.ModelVersion,
):
    rows = rows_of(40, 1)
    rows.to_csv("in.csv", index=False)
    Path("folder").mkdir()
    rows.to_parquet("folder/a.parquet")
    done = command(
        *("--input", "in.csv", "--output", "out.csv", "--id", "key"),
        *("--explain", "--explain-rows", "30"),
    )
    assert done.exit_code == 0, done.output
    assert "contributions: out.contributions.csv (30 rows)" in done.output
    written = pd.read_csv("out.contributions.csv")
    report = artifacts_of("flowers")[1]["scoring"]
    assert "first 30 rows, in `out.contributions.csv`" in report
    assert "](data:image/png;base64," in report
    result = predict("flowers", "folder", "parts/", ["key"], explain=True)
    assert result["explained"] == 40
    in_parts = pd.read_parquet("parts.contributions.parquet")
    predictions, contributions = functions.predict(
        "flowers", rows, id="key", explain=True, explain_rows=30
    )
    assert list(predictions["key"]) == list(rows["key"])
    for other in (written, in_parts[:30]):
        pd.testing.assert_frame_equal(other, contributions, rtol=1e-9)
    with pytest.raises(InputError, match="explain_rows: must be at least 1, got 0"):
        functions.predict("flowers", rows, explain_rows=0)
    rows_of(0, 1).to_parquet("in.parquet")
    assert predict("flowers", "in.parquet", "o.parquet", explain=True)["explained"] == 0
    with pytest.raises(InputError, match="id 'base' has the name of a column"):
        predict.fn("flowers", "in.csv", "out.csv", ["base"], explain=True)


@sends
def test_a_table_without_rows_is_scored_and_told(registered: registry.ModelVersion):
    rows_of(0, 1).to_parquet("in.parquet")
    with told_of() as received:
        assert predict("flowers", "in.parquet", "out.parquet", ["key"])["rows"] == 0
        assert within(lambda: len(received) >= 1, 60)
    (message,) = received
    assert message["title"] == "flowers: input empty"
    assert message["message"].startswith(
        "in.parquet has no rows, and so out.parquet has none."
    )


@sends
@pytest.mark.slow(10)
def test_drift_is_said_everywhere_or_ends_the_run_without_an_output(
    registered: registry.ModelVersion,
):
    moved, drift = rows_of(300, 1), MlflowClient()
    moved["b"] += 9
    moved.assign(extra=1).to_parquet("in.parquet")
    with told_of() as received:
        done = predict("flowers", "in.parquet", "warned.parquet", ["key"])
        assert within(lambda: len(received) >= 1, 60)
    tested, outside = done["drift"]["warnings"]
    assert tested.startswith("the rows differ from the training rows (p = ")
    assert tested.endswith(": column 'b'")
    assert (
        outside
        == "rows are outside of the range of the training rows: column 'b' (100%); the limit is 10%"
    )
    assert done["ignored"] == ["extra"]
    assert received[0]["title"] == "flowers: input drifted"
    assert received[0]["message"].startswith(f"in.parquet: {tested}; {outside}.")
    report = artifacts_of("flowers")[1]["scoring"]
    assert "the rows differ from the training rows" in report
    assert "| columns that were ignored | `extra` |" in report
    points = drift.get_metric_history(registered.run_id, "drift/outside")
    assert [(point.value, point.step) for point in points[-1:]] == [
        (1.0, len(points) - 1)
    ]
    inputs = drift.get_run(registered.run_id).inputs.dataset_inputs
    (scored,) = [
        data.dataset
        for data in inputs
        if data.dataset.name == "in.parquet" and "extra" in data.dataset.schema
    ]
    assert json.loads(scored.profile) == {"num_rows": 300, "num_features": 4}
    assert mlflow.data.get_source(scored).load() == str(Path("in.parquet").resolve())

    registry.tag_version(
        "flowers",
        1,
        {registry.PLACE: json.dumps({"drift": {"on_drift": "fail", "missing": 0.2}})},
    )
    with pytest.raises(
        Drifted,
        match=r"^in\.parquet: the rows differ .* set 'drift\.on_drift: warn' and train again",
    ):
        predict("flowers", "in.parquet", "failed.parquet", ["key"])
    failed, left = artifacts_of("flowers")
    assert failed.state.type.value == "FAILED"
    assert "the rows differ from the training rows" in left["scoring"]
    refused = command(
        "--input", "in.parquet", "--output", "failed.parquet", "--id", "key"
    )
    assert refused.exit_code == 2
    moved[["a", "b"]] = np.nan
    moved.to_parquet("in.parquet")
    with pytest.raises(
        Drifted,
        match=r"more values are missing than at training: column 'a' \(100%\), 'b' \(100%\);",
    ):
        predict("flowers", "in.parquet", "failed/", ["key"])
    assert not list(Path().glob("*failed.parquet*"))
    assert not list(Path("failed").iterdir())
    moved.head(19).to_parquet("in.parquet")
    few = predict("flowers", "in.parquet", "few.parquet", ["key"])["drift"]
    assert (few["warnings"], few["note"]) == (
        [],
        "not tested, as 20 rows are needed and the input has 19",
    )
    registry.tag_version(
        "flowers", 1, {registry.PLACE: json.dumps({"drift": {"on_drift": "never"}})}
    )
    with pytest.raises(
        InputError,
        match="model models:/flowers/1: what it says of drift cannot be read",
    ):
        predict.fn("flowers", "in.parquet", "few.parquet", ["key"])
    registry.tag_version("flowers", 1, {registry.PLACE: "{}"})


def test_what_cannot_be_scored_is_refused(registered: registry.ModelVersion):
    asked = partial(predict.fn, "flowers", "in.parquet")
    table = [
        (
            partial(predict.fn, "roses", "in.parquet", "out"),
            "model 'roses' not found in sqlite:.*; it has 'flowers'",
        ),
        (
            partial(asked, "out/", scheduler="tls://me:hidden@a:1"),
            r"^scheduler: must be tcp://HOST.* credentials\.$",
        ),
        (
            partial(asked, "out", scheduler="tcp://a:1"),
            "^scheduler: its workers score into a folder, and the output ",
        ),
    ]
    require_refusals(table, error=InputError)


def test_reading_and_writing_are_tried_again_and_faults_are_not(
    registered: registry.ModelVersion, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(score_table, "retry_delay_seconds", 0)
    calls = []
    rows_of(50, 1).to_parquet("in.parquet")

    def tell(share: float, rows: int) -> None:
        calls.append(share)
        if len(calls) == 1:
            raise ConnectionResetError("gone for a moment")

    @flow(name="twice")
    def twice(*ids: str) -> int:
        asked = ScoringOptions(ids, strict=True)
        return score_table(
            registry.find_version(registered.uri),
            "in.parquet",
            "twice.parquet",
            asked,
            tell,
        ).rows

    assert twice("key") == 50
    assert calls == [1.0, 1.0]
    assert [path.name for path in Path().glob("*twice.parquet*")] == ["twice.parquet"]
    with pytest.raises(InputError, match="does not read: 'key'"):
        twice()
    assert len(calls) == 2


def command(*arguments: str) -> Result:
    server = {"PREFECT_API_URL": PREFECT_API_URL.value()}
    return CliRunner().invoke(
        app, ["predict", "--model", "flowers", *arguments], env=server
    )


def test_the_command_scores_and_from_server_to_server_is_from_disk_to_disk(
    registered: registry.ModelVersion, s3: S3
):
    rows_of(3000, 1).to_parquet("in.parquet")
    done = command("--input", "in.parquet", "--output", "disk.parquet", "--id", "key")
    assert done.exit_code == 0, done.output
    assert "3,000 rows scored with models:/flowers/1" in done.stdout
    source = s3.put("in.parquet", Path("in.parquet"))
    result = predict("flowers", source, "s3://rows/scores/out.parquet", ["key"])
    assert result["output"] == "s3://rows/scores/out.parquet"
    with locate(result["output"]).open_input() as file:
        assert file.read() == Path("disk.parquet").read_bytes()


def test_the_command_refuses_in_one_sentence_and_leaves_nothing(
    registered: registry.ModelVersion,
):
    rows_of(100, 1).to_csv("in.csv", index=False)
    wrong = command("--input", "in.csv", "--output", "none.csv", "--strict")
    assert wrong.exit_code == 2
    (said,) = [line for line in wrong.output.splitlines() if "error:" in line]
    assert (
        "in.csv: has columns that the model does not read: 'key'; remove them" in said
    )
    lenient = command("--input", "in.csv", "--output", "some.csv")
    assert "ignored, as the model does not read them: 'key'" in lenient.output
    assert not list(Path().glob("*none.csv*"))


@pytest.mark.parametrize(
    ("options", "written"), [([], "'=1+1"), (["--no-escape-formulas"], "=1+1")]
)
def test_the_command_escapes_formulas_in_csv_files_unless_it_is_not_to(
    registered: registry.ModelVersion, options: list[str], written: str
):
    rows_of(3, 1).assign(key="=1+1").to_parquet("in.parquet")
    done = command(
        "--input", "in.parquet", "--output", "out.csv", "--id", "key", *options
    )
    assert done.exit_code == 0, done.output
    assert pd.read_csv("out.csv")["key"].tolist() == [written] * 3


def test_every_parameter_is_described_in_the_form():
    properties = predict.parameters.properties
    assert list(properties) == [
        "model",
        "input",
        "output",
        "id",
        "scheduler",
        "strict",
        "escape_formulas",
        "explain",
        "explain_rows",
    ]
    assert all(len(one["description"]) > 20 for one in properties.values())
    assert predict.parameters.required == ["model", "input", "output"]
