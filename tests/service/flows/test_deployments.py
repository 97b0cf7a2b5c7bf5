"""Schedules of a model: what is made in Prefect, what follows what, and what happens to runs missed or left."""

from __future__ import annotations

import importlib
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName, FlowRunFilter
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Completed

from learnkernels.conf.errors import InputError
from learnkernels.conf.loading import load_config
from learnkernels.conf.schema import CompareConfig
from learnkernels.flows.compare import compare
from learnkernels.flows.predict import predict
from learnkernels.flows.promote import promote
from learnkernels.flows.train import train
from learnkernels.tasks.environment import scheduled_settings
from learnkernels.tasks.operate import deployments
from learnkernels.tasks.operate.deployments import Plan, deploy, start_following
from learnkernels.tasks.operate.recovery import SILENCE, WITHOUT_LIFE, cancel_missed, set_up
from learnkernels.tasks.operate.servers import POOL
from tests.user import ROOT

FLOWS = {"compare": compare, "train": train, "promote": promote, "predict": predict}
PLAN = Plan("demo", load_config(ROOT / "conf/quickstart.yaml"), "conf/quickstart.yaml")
WITH_FILES = replace(PLAN, input="in.csv", output="out.parquet", id=("row",))


@pytest.fixture
def client(prefect_server: None, working_folder: Path) -> Iterator[SyncPrefectClient]:
    with get_client(sync_client=True) as client:
        yield client


def made(client: SyncPrefectClient, model: str) -> dict[str, Any]:
    """The deployments of a model by the flow."""
    found = client.read_deployments(deployment_filter=DeploymentFilter(name=DeploymentFilterName(any_=[model])))
    return {deployment.entrypoint.rsplit(".", 1)[1]: deployment for deployment in found}


def deployed(client: SyncPrefectClient, plan: Plan = PLAN, **changes: Any) -> dict[str, Any]:
    """Deploy a plan with changes, and return its deployments."""
    plan = replace(plan, **changes)
    deploy(FLOWS, plan)
    return made(client, plan.model)


def runs_of(client: SyncPrefectClient, deployment: Any) -> list[FlowRun]:
    return client.read_flow_runs(deployment_filter=DeploymentFilter(id={"any_": [deployment.id]}))


def test_deployments_run_the_flows_with_the_whole_plan(
    client: SyncPrefectClient, working_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:secret@db/mlflow")
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "me:secret")
    said = deploy(FLOWS, replace(WITH_FILES, model="whole", dataset="diabetes", learner="alignf", refresh=True))
    found = made(client, "whole")
    assert set(found) == set(FLOWS)
    assert [one.name for one in said] == [f"{flow.name}/whole" for flow in FLOWS.values()]
    after = ["after each completed 'train'", "after each completed 'promote'"]
    assert [one.when for one in said] == ["by hand", "by hand", *after]
    for step, deployment in found.items():
        module, name = deployment.entrypoint.rsplit(".", 1)
        assert getattr(importlib.import_module(module), name) is FLOWS[step]
        assert FLOWS[step].validate_parameters(deployment.parameters)
        into = {"prefect.deployments.steps.set_working_directory": {"directory": str(working_folder)}}
        assert deployment.pull_steps == [into]
        assert (deployment.work_pool_name, deployment.work_queue_name) == (POOL, "whole")
        assert {"learnkernels", "whole"} <= set(deployment.tags)
        assert deployment.schedules == []
        assert f"`{working_folder}`" in deployment.description
        settings = deployment.job_variables
        assert settings["working_dir"] == str(working_folder)
        assert settings["command"].endswith(f" -m learnkernels.tasks.operate.scheduled {module}")
        assert settings["env"]["PREFECT_RESULTS_DEFAULT_SERIALIZER"] == "json"
        assert settings["env"]["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] == "false"
        assert settings["env"]["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
        assert settings["env"]["PREFECT_RUNNER_AUTO_INSTALL_DEPENDENCIES"] == "false"
        assert "secret" not in deployment.model_dump_json()  # no address
    for step in ("compare", "train"):
        assert CompareConfig.model_validate(found[step].parameters["config"]) == PLAN.config
    assert found["train"].parameters.keys() >= {"model", "dataset", "learner"}
    assert found["promote"].parameters == {"model": "whole", "refresh": True}
    files = {"input": "in.csv", "output": "out.parquet", "id": ["row"]}
    assert found["predict"].parameters == {"model": "whole@champion"} | files
    assert client.read_work_queue_by_name("whole", work_pool_name=POOL).concurrency_limit == 1

    form = found["train"].parameter_openapi_schema  # what is changed often, then the whole configuration
    assert set(form["required"]) == {"config", "model"}
    fields = sorted(form["properties"].items(), key=lambda field: field[1]["position"])
    names = [name for name, _ in fields]
    assert names == ["model", "dataset", "learner", "table", "target", "folds", "metric", "config"]
    assert fields[-1][1]["type"] == "object"
    assert "definitions" not in form


def test_deploying_again_changes_in_place_and_removes_what_is_not_asked_for(client: SyncPrefectClient):
    before = deployed(client, WITH_FILES, model="again")
    for learner in ("align", "unif"):
        after = deployed(client, PLAN, model="again", learner=learner)
    assert set(before) - set(after) == {"predict"}
    assert all(before[step].id == after[step].id for step in after)
    assert after["train"].parameters["learner"] == "unif"
    for paused, expected in ((True, True), (None, True), (False, False), (None, False)):
        after = deployed(client, WITH_FILES, model="again", paused=paused)
        assert [deployment.paused for deployment in after.values()] == [expected] * 4, paused
    assert len(client.read_work_queues()) == len({queue.name for queue in client.read_work_queues()})


def test_a_scheduler_that_makes_no_run_is_an_error(client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deployments, "SCHEDULE_SECONDS", 0.0)
    with pytest.raises(InputError, match="Prefect has made no run for its schedule within 0 s"):
        deploy(FLOWS, replace(PLAN, model="silent", cron="0 3 * * *"))
    (schedule,) = made(client, "silent")["train"].schedules
    assert (schedule.schedule.cron, schedule.schedule.timezone) == ("0 3 * * *", "Etc/UTC")
    assert deployed(client, model="silent")["train"].schedules == []


def test_a_schedule_that_was_paused_on_prefects_page_stays_paused(
    client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(deployments, "_next_run", lambda *_: datetime.now())  # no scheduler runs beside this server
    cron = {"model": "resting", "cron": "0 3 * * *"}
    training = deployed(client, **cron)["train"]
    client.update_deployment_schedule(training.id, training.schedules[0].id, active=False)
    said = deploy(FLOWS, replace(PLAN, **cron | {"cron": "0 4 * * *"}))
    assert [one.when for one in said[1:]] == ["paused", "after each completed 'train'"]
    (schedule,) = made(client, "resting")["train"].schedules
    assert (schedule.schedule.cron, schedule.active) == ("0 4 * * *", False)
    assert [one.active for one in made(client, "resting")["compare"].schedules] == [True]
    deployed(client, paused=False, **cron)
    assert [one.active for one in made(client, "resting")["train"].schedules] == [True]


def test_a_plan_that_cannot_work_is_one_sentence():
    failures = []
    for change, sentence in (
        ({"model": "a/b"}, r"model 'a/b': a registered model's name has"),
        ({"model": ""}, r"model '': a registered model's name has"),
        ({"cron": "0 3 * *"}, r"--cron '0 3 \* \*': it has 4 fields; five are expected"),
        ({"cron": "0 25 * * *"}, r"--cron '0 25 \* \* \*': a field is out of range"),
        ({"cron": "@daily"}, r"it has 1 fields"),
        ({"timezone": "Mars/Olympus"}, r"--timezone Mars/Olympus: is not a time zone; give one such as Etc/UTC"),
        ({"input": "in.csv"}, r"--input is given and --output is not"),
        ({"output": "out.csv"}, r"--output is given and --input is not"),
        ({"id": ("row",)}, r"--id names columns of --input, which is missing"),
        ({"dataset": "iris"}, r"--dataset iris: conf/quickstart.yaml has breast_cancer, diabetes; choose"),
        ({"learner": "alingf"}, r"--learner alingf: conf/quickstart.yaml has unif, single, align, alignf; choose"),
    ):
        with pytest.raises(InputError) as refused:
            deploy(FLOWS, replace(PLAN, **change))
        if not re.search(sentence, str(refused.value)):
            failures.append((change, str(refused.value)))
    assert not failures


def test_a_completed_run_starts_what_follows_once(client: SyncPrefectClient):
    assert train.on_completion_hooks == promote.on_completion_hooks == [start_following]
    chain, other, resting = (
        deployed(client, WITH_FILES, model=model, paused=model == "at-rest") for model in ("chain", "other", "at-rest")
    )
    run = client.create_flow_run_from_deployment(chain["train"].id)
    for _ in range(2):
        start_following(train, run, Completed())
    (following,) = runs_of(client, chain["promote"])
    assert runs_of(client, chain["predict"]) == runs_of(client, other["promote"]) == []
    start_following(promote, following, Completed())
    assert len(runs_of(client, chain["predict"])) == 1
    start_following(train, client.create_flow_run_from_deployment(resting["train"].id), Completed())
    assert runs_of(client, resting["promote"]) == []
    before = len(client.read_flow_runs())
    start_following(train, run.model_copy(update={"deployment_id": None}), Completed())
    assert len(client.read_flow_runs()) == before


def test_a_run_says_where_what_follows_it_could_not_be_started(
    client: SyncPrefectClient, caplog: pytest.LogCaptureFixture
):
    steps = deployed(client, WITH_FILES, model="missed-hook")
    run = client.create_flow_run_from_deployment(steps["train"].id)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # taken and not listening: whoever asks there is refused
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}/api"
        with temporary_settings({PREFECT_API_URL: address, PREFECT_CLIENT_MAX_RETRIES: 0}):
            start_following(train, run, Completed())
    (said,) = [record.getMessage() for record in caplog.records if "could not be started" in record.getMessage()]
    assert re.fullmatch(r"what follows this run could not be started \(ConnectError\): .*; start it by hand\.", said)
    assert runs_of(client, steps["promote"]) == []


def test_runs_without_a_sign_of_life_are_marked_by_prefect(client: SyncPrefectClient):
    for _ in range(2):
        set_up(str(PREFECT_API_URL.value()), own=False)
    (automation,) = client.read_automations_by_name(WITHOUT_LIFE)
    (action,) = automation.actions
    assert (action.state.value, action.force, automation.trigger.posture.value) == ("CRASHED", False, "Proactive")
    assert automation.trigger.within == SILENCE
    beats = int(scheduled_settings()["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"])
    assert timedelta(seconds=4 * beats) < SILENCE


def test_of_missed_runs_the_latest_is_made_up_for(client: SyncPrefectClient):
    with suppress(InputError), pytest.MonkeyPatch.context() as patch:
        patch.setattr(deployments, "SCHEDULE_SECONDS", 0.0)
        deploy(FLOWS, replace(PLAN, model="missed", cron="0 3 * * *"))
    deployment = made(client, "missed")["train"]
    by_hand = client.create_flow_run_from_deployment(deployment.id)
    now = datetime.now().astimezone()
    first, last = (now + timedelta(days=days) for days in (-3, 2))
    span = {"start_time": first.isoformat(), "end_time": last.isoformat(), "min_runs": 5}
    client.request("POST", f"/deployments/{deployment.id}/schedule", json=span)
    planned = [run for run in runs_of(client, deployment) if run.auto_scheduled]
    planned.sort(key=lambda run: run.expected_start_time)
    missed = [run.id for run in planned if run.expected_start_time < now]
    assert 2 <= len(missed) < len(planned)
    assert sorted(cancel_missed(client)) == sorted(missed[:-1])
    waiting = FlowRunFilter(state={"type": {"any_": ["SCHEDULED"]}})
    kept = {run.id for run in client.read_flow_runs(flow_run_filter=waiting)}
    assert {missed[-1], by_hand.id, *(run.id for run in planned if run.expected_start_time > now)} <= kept
