"""Schedules of a model: what is made in Prefect, what follows what, and what happens to runs missed or left."""

from __future__ import annotations

import importlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prefect import flow, tags, task
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName, FlowRunFilter
from prefect.client.schemas.objects import FlowRun
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Completed, Pending, Running

from learnkernels.conf.errors import InputError
from learnkernels.conf.loading import load_config
from learnkernels.conf.schema import CompareConfig
from learnkernels.flows.compare import compare
from learnkernels.flows.predict import predict
from learnkernels.flows.promote import promote
from learnkernels.flows.train import train
from learnkernels.tasks.operate import deployments, recovery
from learnkernels.tasks.operate.children import RUN_ID
from learnkernels.tasks.operate.deployments import Plan, deploy, move_old_deployments, start_following, start_missed
from learnkernels.tasks.operate.recovery import cancel_missed, claimed, close_abandoned, close_gone
from learnkernels.tasks.operate.servers import POOL, worker_name
from learnkernels.tasks.owner import Owner
from tests.user import ROOT

FLOWS = {"compare": compare, "train": train, "promote": promote, "predict": predict}
PLAN = Plan("demo", load_config(ROOT / "conf/quickstart.yaml"), "conf/quickstart.yaml")
WITH_FILES = replace(PLAN, input="in.csv", output="out.parquet", id=("row",))
NO_PROCESS = 2**22 + 1
"""A number that the system gives to no process."""


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


def test_deployments_of_an_older_version_run_the_flows_of_this_one(client: SyncPrefectClient):
    before = deployed(client, WITH_FILES, model="old")
    for step, deployment in before.items():
        client.update_deployment(deployment.id, DeploymentUpdate(entrypoint=f"flows.{step}.{step}"))
    (said,) = move_old_deployments(client)
    assert re.search(r"^old: .*older version.*deploy it again.*: learnkernels deploy CONF --register old$", said)
    after = made(client, "old")
    assert {step: (one.entrypoint, one.parameters) for step, one in after.items()} == {
        step: (one.entrypoint, one.parameters) for step, one in before.items()
    }
    assert move_old_deployments(client) == []


def test_deploying_again_changes_in_place_and_removes_what_is_not_asked_for(client: SyncPrefectClient):
    before = deployed(client, WITH_FILES, model="again")
    for learner in ("align", "unif"):
        after = deployed(client, PLAN, model="again", learner=learner)
    assert set(before) - set(after) == {"predict"}
    assert all(before[step].id == after[step].id for step in after)
    assert after["train"].parameters["learner"] == "unif"
    paused = deployed(client, WITH_FILES, model="again", paused=True)
    assert [deployment.paused for deployment in paused.values()] == [True] * 4
    assert len(client.read_work_queues()) == len({queue.name for queue in client.read_work_queues()})


def test_a_scheduler_that_makes_no_run_is_an_error(client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deployments, "SCHEDULE_SECONDS", 0.0)
    with pytest.raises(InputError, match="Prefect has made no run for its schedule within 0 s"):
        deploy(FLOWS, replace(PLAN, model="silent", cron="0 3 * * *"))
    (schedule,) = made(client, "silent")["train"].schedules
    assert (schedule.schedule.cron, schedule.schedule.timezone) == ("0 3 * * *", "Etc/UTC")
    assert deployed(client, model="silent")["train"].schedules == []


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
        deployed(client, WITH_FILES, model=model, paused=model == "resting") for model in ("chain", "other", "resting")
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


def test_what_follows_is_started_again_where_prefect_did_not_answer(
    client: SyncPrefectClient, caplog: pytest.LogCaptureFixture
):
    steps = deployed(client, WITH_FILES, model="missed-hook")
    run = client.create_flow_run_from_deployment(steps["train"].id)
    client.set_flow_run_state(run.id, Completed(), force=True)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # taken and not listening: whoever asks there is refused
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}/api"
        with temporary_settings({PREFECT_API_URL: address, PREFECT_CLIENT_MAX_RETRIES: 0}):
            start_following(train, run, Completed())
    (said,) = [record.getMessage() for record in caplog.records if "could not be started" in record.getMessage()]
    expected = r"what follows this run could not be started \(ConnectError\); 'learnkernels up' does so .*"
    assert re.fullmatch(expected, said)
    assert runs_of(client, steps["promote"]) == []
    assert run.id in start_missed(client)
    (following,) = runs_of(client, steps["promote"])
    client.delete_flow_run(following.id)  # by hand: it does not come back
    assert run.id not in start_missed(client)
    assert runs_of(client, steps["promote"]) == []


def started_by(client: SyncPrefectClient, deployment: Any, worker: str, state: Any, pid: int | None) -> FlowRun:
    """A run as a worker leaves it in Prefect."""
    run = client.create_flow_run_from_deployment(deployment.id)
    client.set_flow_run_state(run.id, state, force=True)
    client.update_flow_run_labels(run.id, {"prefect.worker.name": worker})
    if pid is not None:
        client.update_flow_run(run.id, infrastructure_pid=str(pid))
    return run


def states_of(client: SyncPrefectClient, *runs: FlowRun) -> list[str]:
    return [client.read_flow_run(run.id).state.type.value for run in runs]


def test_runs_whose_process_is_gone_do_not_hold_their_queue(client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch):
    training = deployed(client, model="gone")["train"]
    waiting = client.create_flow_run_from_deployment(training.id)
    dead = started_by(client, training, worker_name(), Running(), os.getpid())
    unsent = started_by(client, training, worker_name(), Pending(), None)
    alive = started_by(client, training, worker_name(), Running(), None)
    command = [sys.executable, "-c", "input()"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ | {RUN_ID: str(alive.id)})
    client.update_flow_run(alive.id, infrastructure_pid=str(process.pid))
    try:
        assert close_abandoned(client) == [dead.id]  # the other may be about to start
        monkeypatch.setattr(recovery, "STARTING", timedelta(0))
        assert close_abandoned(client) == [unsent.id]
    finally:
        process.communicate(b"\n")
    assert states_of(client, dead, unsent, alive, waiting) == ["CRASHED", "CRASHED", "RUNNING", "SCHEDULED"]
    assert "start the deployment again" in client.read_flow_run(dead.id).state.message
    assert close_abandoned(client) == [alive.id]


def test_runs_of_another_host_are_left_to_it_while_its_worker_is_heard(
    client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
):
    training = deployed(client, model="far")["train"]
    beat = {"name": "elsewhere.1", "heartbeat_interval_seconds": 30}
    client.request("POST", f"/work_pools/{POOL}/workers/heartbeat", json=beat)
    theirs = [started_by(client, training, worker, Running(), NO_PROCESS) for worker in ("elsewhere.1", "forgotten")]
    assert close_abandoned(client) == []
    monkeypatch.setattr(recovery, "SILENT", timedelta(0))
    assert set(close_abandoned(client)) == {run.id for run in theirs}


def test_a_run_that_ends_while_it_is_looked_at_stays_completed(
    client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
):
    run = started_by(client, deployed(client, model="ends")["train"], worker_name(), Running(), NO_PROCESS)

    def ends(found: FlowRun) -> bool:
        client.set_flow_run_state(run.id, Completed(), force=True)
        return False

    monkeypatch.setattr(recovery, "_runs_here", ends)
    assert close_abandoned(client) == []
    assert states_of(client, run) == ["COMPLETED"]


@flow
def seen_by_prefect() -> list[FlowRun]:
    look()
    with get_client(sync_client=True) as client:
        return [client.read_flow_run(flow_run.id)]


@task
def look() -> None:
    """Have a run of a task, too."""


def test_a_run_is_never_without_a_process_that_it_belongs_to(client: SyncPrefectClient):
    with tags("kept"):
        (within_it,) = claimed(seen_by_prefect)()
    ours = Owner.this()
    assert (within_it.infrastructure_pid, within_it.tags) == (str(ours), ["kept"])
    (looked,) = client.read_task_runs(flow_run_filter=FlowRunFilter(id={"any_": [within_it.id]}))
    assert looked.tags == []  # for which Prefect would ask its server

    made_by = [
        client.create_flow_run(seen_by_prefect, state=Running(), tags=[f"process~{owner}"])
        for owner in (replace(ours, pid=NO_PROCESS, started=1), ours)
    ]
    close_gone()  # as the next command does, of which one was killed before it could say more
    assert states_of(client, *made_by) == ["CRASHED", "RUNNING"]
    client.set_flow_run_state(made_by[1].id, Completed(), force=True)


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
