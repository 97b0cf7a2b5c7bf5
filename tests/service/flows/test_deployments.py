"""Deployments of a model: what is made in Prefect, what follows what, and what happens to runs missed or left."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from subprocess import CompletedProcess
from time import sleep
from typing import Any

import pytest
import yaml
from prefect.cli.deploy._models import PrefectYamlModel
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterName,
    FlowRunFilter,
)
from prefect.client.schemas.objects import FlowRun
from prefect.events import emit_event
from prefect.events.schemas.automations import AutomationCore
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    temporary_settings,
)
from prefect.states import Completed, Pending, Running
from prefect.utilities.callables import parameter_schema

from dev.tools.waiting import within
from learnkernels.conf.errors import InputError
from learnkernels.conf.loading import load_config
from learnkernels.conf.schema import CompareConfig
from learnkernels.flows import cli
from learnkernels.flows.compare import compare
from learnkernels.flows.predict import predict
from learnkernels.flows.promote import promote
from learnkernels.flows.train import train
from learnkernels.tasks.environment import scheduled_settings
from learnkernels.tasks.operate import deployments, events, recovery, servers
from learnkernels.tasks.operate.deployments import (
    Plan,
    _parameters,
    deploy,
    job_variables,
    printed,
)
from tests.refusals import require_refusals
from tests.user import ROOT

FLOWS = {"compare": compare, "train": train, "promote": promote, "predict": predict}
PLAN = Plan("demo", load_config(ROOT / "conf/quickstart.yaml"), dataset="diabetes")
CRON = "0 3 * * *"
WITH_FILES = replace(PLAN, input="in.csv", output="out.parquet", id=("row",))


@pytest.fixture
def client(prefect_server: None, working_folder: Path) -> Iterator[SyncPrefectClient]:
    with get_client(sync_client=True) as client:
        yield client


def made(client: SyncPrefectClient, model: str) -> dict[str, Any]:
    """The deployments of a model by the flow."""
    found = client.read_deployments(
        deployment_filter=DeploymentFilter(name=DeploymentFilterName(any_=[model]))
    )
    return {deployment.entrypoint.rsplit(".", 1)[1]: deployment for deployment in found}


def deployed(
    client: SyncPrefectClient, plan: Plan = PLAN, **changes: Any
) -> dict[str, Any]:
    """Deploy a plan with changes, and return its deployments."""
    plan = replace(plan, **changes)
    deploy(plan)
    return made(client, plan.model)


def runs_of(client: SyncPrefectClient, deployment: Any) -> list[FlowRun]:
    return client.read_flow_runs(
        deployment_filter=DeploymentFilter(id={"any_": [deployment.id]})
    )


def test_deployments_run_the_flows_with_the_whole_plan(
    client, working_folder, monkeypatch
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:secret@db/mlflow")
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "me:secret")
    said = deploy(
        replace(WITH_FILES, model="whole", dataset="diabetes", refresh=False, cron=CRON)
    )
    found = made(client, "whole")
    assert set(found) == set(FLOWS) == set(deployments.STEPS)
    assert [one["deployment"] for one in said] == [
        f"{flow.name}/whole" for flow in FLOWS.values()
    ]
    assert [one["starts"] for one in said] == [
        f"{CRON} Etc/UTC",
        f"{CRON} Etc/UTC",
        "after train",
        "after promote",
    ]
    for step, deployment in found.items():
        module, name = deployment.entrypoint.rsplit(".", 1)
        assert getattr(importlib.import_module(module), name) is FLOWS[step]
        assert FLOWS[step].validate_parameters(deployment.parameters)
        assert not deployment.pull_steps
        assert (deployment.work_pool_name, deployment.work_queue_name) == (
            servers.POOL,
            "whole",
        )
        assert {"learnkernels", "whole"} <= set(deployment.tags)
        assert deployment.version == version("learnkernels")
        assert deployment.description.split()[0] in ("Compares", "Trains", "Scores")
        assert "demo" not in deployment.description
        once = deployment.global_concurrency_limit
        assert (once is not None and once.limit) == (step in ("compare", "train"))
        settings = deployment.job_variables
        assert settings["working_dir"] == str(working_folder)
        assert settings["command"].endswith(
            f" -m learnkernels.tasks.operate.scheduled {module}"
        )
        assert settings["env"]["PREFECT_RESULTS_DEFAULT_SERIALIZER"] == "json"
        assert settings["env"]["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] == "false"
        assert settings["env"]["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
        assert settings["env"]["PREFECT_RUNNER_AUTO_INSTALL_DEPENDENCIES"] == "false"
        assert "secret" not in deployment.model_dump_json()  # no address
    for step in ("compare", "train"):
        assert (
            CompareConfig.model_validate(found[step].parameters["config"])
            == PLAN.config
        )
    assert found["train"].parameters.keys() == {"config", "model", "dataset"}
    assert found["promote"].parameters == {"model": "whole", "refresh": False}
    files = {"input": "in.csv", "output": "out.parquet", "id": ["row"]}
    assert found["predict"].parameters == {"model": "whole@champion"} | files
    assert (
        client.read_work_queue_by_name(
            "whole", work_pool_name=servers.POOL
        ).concurrency_limit
        == 1
    )

    form = found["train"].parameter_openapi_schema
    assert (set(form["required"]), form["properties"]["config"]["type"]) == (
        {"config", "model"},
        "object",
    )
    assert "definitions" not in form


def test_deploying_shows_no_password_of_an_address(client):
    address = str(PREFECT_API_URL.value()).replace("://", "://me:secret@")
    with temporary_settings({PREFECT_API_URL: address}):
        said = deploy(replace(PLAN, model="discreet"))
        assert "secret" not in cli._access()
    assert all(row["page"].startswith("http://127.0.0.1:") for row in said)
    assert "secret" not in str(said)


def test_prefects_command_gets_the_password_of_prefects_own_settings(monkeypatch):
    found = {}

    def run(*_: Any, env: dict[str, str], **__: Any) -> CompletedProcess[str]:
        found.update(env)
        return CompletedProcess([], 0)

    monkeypatch.setattr(deployments.subprocess, "run", run)
    settings = {PREFECT_API_URL: "http://one.example", PREFECT_API_AUTH_STRING: "me:1"}
    with temporary_settings(settings):
        deployments._run_prefect_deploy("")
    for setting, value in settings.items():
        assert found[setting.name] == value


def test_deploying_again_changes_in_place_and_leaves_paused_what_was_paused(
    client: SyncPrefectClient,
):
    before = deployed(client, WITH_FILES, model="again", cron=CRON)
    training = before["train"]
    client.update_deployment_schedule(
        training.id, training.schedules[0].id, active=False
    )
    client.pause_deployment(before["promote"].id)
    (follows,) = client.read_automations_by_name("again: predict after promote")
    client.pause_automation(follows.id)
    said = deploy(replace(WITH_FILES, model="again", cron="0 4 * * *"))
    assert [one["starts"] for one in said] == [
        "0 4 * * * Etc/UTC",
        "paused",
        "paused",
        "after promote",
    ]
    after = made(client, "again")
    assert {step: one.id for step, one in after.items()} == {
        step: one.id for step, one in before.items()
    }
    (schedule,) = after["train"].schedules
    assert (schedule.schedule.cron, schedule.active) == ("0 4 * * *", False)
    (follows,) = client.read_automations_by_name("again: predict after promote")
    assert not follows.enabled
    (starts,) = client.read_automations_by_name("again: promote after train")
    assert starts.enabled
    assert starts.description.startswith(
        "Starts promote when train has registered a version of again"
    )
    assert set(deployed(client, PLAN, model="again")) == {"compare", "train", "promote"}
    assert [
        queue.name for queue in client.read_work_queues(work_pool_name=servers.POOL)
    ].count("again") == 1


def test_the_printed_file_is_one_that_prefect_takes(
    client, working_folder, monkeypatch
):
    client.create_work_pool(WorkPoolCreate(name="containers", type="docker"))
    given = job_variables(
        ["image=learnkernels:1", "env={MLFLOW_TRACKING_URI: 'http://mlflow:5000'}"]
    )
    with pytest.raises(
        InputError,
        match=r"^--pool containers: runs of a pool of type docker need an image",
    ):
        printed(replace(PLAN, pool="containers"))
    file = yaml.safe_load(
        printed(replace(WITH_FILES, pool="containers", cron=CRON, job_variables=given))
    )
    read = PrefectYamlModel.model_validate(file).deployments
    pools = {(one.work_pool.name, one.work_pool.job_variables["image"]) for one in read}
    assert (len(read), pools) == (4, {("containers", "learnkernels:1")})
    for one in read:
        # No folder of this computer
        assert set(one.work_pool.job_variables) == {
            "image",
            "env",
        }
        assert (
            one.work_pool.job_variables["env"]["MLFLOW_TRACKING_URI"]
            == "http://mlflow:5000"
        )
        assert str(working_folder) not in one.model_dump_json()
    with pytest.raises(
        InputError,
        match=r"^--pool none: Prefect has no such work pool; there are .*'containers'",
    ):
        deploy(replace(PLAN, model="nowhere", pool="none"))
    for wrong in ("image", "=x", "image="):
        with pytest.raises(
            InputError, match=rf"^--job-variable {wrong}: is not KEY=VALUE"
        ):
            job_variables([wrong])
    monkeypatch.setattr(
        deployments, "connected", lambda: pytest.fail("a server is asked")
    )
    ours = PrefectYamlModel.model_validate(
        yaml.safe_load(printed(WITH_FILES))
    ).deployments
    assert [one.work_pool.job_variables["working_dir"] for one in ours] == [
        str(working_folder)
    ] * 4


def test_the_file_of_the_repository_has_what_deploy_makes(working_folder: Path):
    shipped = yaml.safe_load(
        (ROOT / "conf" / "operations" / "prefect.yaml").read_text(encoding="utf-8")
    )
    made_here = yaml.safe_load(
        printed(replace(WITH_FILES, dataset="diabetes", cron=CRON))
    )
    of = {one["entrypoint"]: one for one in shipped["deployments"]}
    for one in made_here["deployments"]:
        other = of[one["entrypoint"]]
        assert other.get("schedules") == one.get("schedules")
        assert other.get("concurrency_limit") == one.get("concurrency_limit")
        assert other["parameters"].keys() >= one["parameters"].keys() - {"refresh"}
    for one in shipped["deployments"]:
        assert one["version"] == version("learnkernels")
        assert one["description"]
        module, name = one["entrypoint"].rsplit(".", 1)
        flow = getattr(importlib.import_module(module), name)
        assert flow.validate_parameters(one["parameters"])
        form = parameter_schema(flow).model_dump(exclude_unset=True)
        assert "definitions" not in form  # names are learners there, too


def with_learner(name: str) -> CompareConfig:
    return load_config(ROOT / "conf/quickstart.yaml", [f"learners=[{name}]"])


def test_a_deployed_configuration_is_the_configuration():
    linear = CompareConfig.model_validate(
        {
            "name": "linear",
            "datasets": ["diabetes"],
            "kernels": "linear",
            "learners": ["unif"],
        }
    )
    examples = [*(ROOT / "conf/examples").glob("*.yaml"), ROOT / "conf/quickstart.yaml"]
    assert len(examples) > 3
    for config in (linear, *map(load_config, examples)):
        label = config.datasets[0].label
        plan = replace(PLAN, config=config, dataset=label)
        parameters = _parameters(plan)["compare"]["config"]
        assert CompareConfig.model_validate(parameters) == config


def test_a_plan_that_cannot_work_is_one_sentence():
    table = (
        ({"model": ""}, r"model '': a registered model's name has"),
        ({"cron": "@daily"}, r"--cron '@daily': five fields are expected"),
        ({"cron": "0 25 * * *"}, r"--cron '0 25 \* \* \*': five fields are expected"),
        ({"timezone": "Etc/UTC"}, r"--timezone is that of --cron, which is missing"),
        (
            {"cron": CRON, "timezone": "Mars/Olympus"},
            r"--timezone Mars/Olympus: is not a time zone; give one such as Etc/UTC",
        ),
        ({"input": "in.csv"}, r"--input is given and --output is not"),
        ({"output": "out.csv"}, r"--output is given and --input is not"),
        ({"id": ("row",)}, r"--id names columns of --input, which is missing"),
        (
            {"cron": CRON, "dataset": None},
            r"got breast_cancer, diabetes; name one with --dataset",
        ),
        (
            {"config": with_learner("ensemble")},
            r"learners: ensemble learns no kernel",
        ),
        (
            {"input": "in.csv", "output": "out.csv.gz"},
            r"out.csv.gz: is written without compression",
        ),
        (
            {"input": "in.csv", "output": "out.xlsx"},
            r"out.xlsx: the ending says the format",
        ),
        (
            {"input": "in.csv", "output": "./in.csv"},
            r"\./in\.csv: the output would replace the input; give another name\.",
        ),
        (
            {"dataset": "iris"},
            r"--dataset iris: the configuration has breast_cancer, diabetes; choose",
        ),
    )
    require_refusals(
        ((partial(deploy, replace(PLAN, **change)), said) for change, said in table),
        error=InputError,
    )


def test_the_form_refuses_what_no_run_could_use(client: SyncPrefectClient):
    chain = deployed(client, WITH_FILES, model="form")
    refused: list[tuple[str, dict[str, Any]]] = [
        ("train", {"model": "of mine"}),
        *[("compare", {"folds": folds}) for folds in (1, 2, 101)],
        *[("compare", {key: "best"}) for key in ("metric", "baseline")],
        *[("promote", {"challenger": version}) for version in (0, "first")],
        *[("promote", {"level": level}) for level in (0, 1)],
        *[("predict", {place: ""}) for place in ("model", "input", "output")],
    ]
    for step, parameters in refused:
        with pytest.raises(PrefectHTTPStatusError) as caught:
            client.create_flow_run_from_deployment(
                chain[step].id, parameters=parameters
            )
        assert caught.value.response.status_code in (409, 422), parameters
    for step, parameters in (
        ("compare", {"folds": 3}),
        ("train", {"dataset": "", "learner": ""}),
        ("promote", {"challenger": None}),
    ):
        assert (
            client.create_flow_run_from_deployment(
                chain[step].id, parameters=parameters
            ).state.name
            == "Scheduled"
        )


def test_a_run_that_comes_due_while_another_one_runs_is_cancelled(
    client: SyncPrefectClient,
):
    chain = deployed(client, WITH_FILES, model="once")
    for step, state in (
        ("compare", "Cancelled"),
        ("train", "Cancelled"),
        ("promote", "Pending"),
    ):
        first, second = (
            client.create_flow_run_from_deployment(chain[step].id) for _ in range(2)
        )
        client.set_flow_run_state(first.id, Pending())
        client.set_flow_run_state(first.id, Running())
        client.set_flow_run_state(second.id, Pending())
        assert client.read_flow_run(second.id).state.name == state
        client.set_flow_run_state(first.id, Completed())
        third = client.create_flow_run_from_deployment(chain[step].id)
        client.set_flow_run_state(third.id, Pending())
        assert client.read_flow_run(third.id).state.name == "Pending"


def test_what_is_done_starts_what_follows_it(client: SyncPrefectClient):
    chain = deployed(client, WITH_FILES, model="chain")
    events.announce(
        "trained", "chain", "A run by hand, which has no deployment, starts nothing."
    )
    for event, before, step in (
        ("trained", "train", "promote"),
        ("challenged", "promote", "predict"),
    ):
        run_of = {
            "prefect.resource.id": f"prefect.deployment.{chain[before].id}",
            "prefect.resource.name": "chain",
        }
        of_model = {"prefect.resource.id": events.resource("chain")}
        emit_event(
            f"learnkernels.{event}",
            of_model,
            related=[run_of | {"prefect.resource.role": "deployment"}],
        )
        assert within(lambda step=step: bool(runs_of(client, chain[step])), 60, 0.05), (
            step
        )
    assert [len(runs_of(client, chain[step])) for step in FLOWS] == [0, 0, 1, 1]


def test_runs_without_a_sign_of_life_are_marked_by_prefect(client: SyncPrefectClient):
    for _ in range(2):
        recovery.set_up(str(PREFECT_API_URL.value()), started_here=False)
    (automation,) = client.read_automations_by_name(
        "learnkernels: run without a sign of life"
    )
    (action,) = automation.actions
    assert (action.state.value, action.force, automation.trigger.posture.value) == (
        "CRASHED",
        False,
        "Proactive",
    )
    beats = int(scheduled_settings()["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"])
    assert (
        timedelta(seconds=4 * beats) < automation.trigger.within < timedelta(minutes=3)
    )


@pytest.mark.slow(40)
def test_a_run_that_dies_in_any_state_is_marked(client: SyncPrefectClient):
    automation = yaml.safe_load(recovery.CRASHED_RUNS.read_text(encoding="utf-8"))
    automation["name"] = "marks soon"
    automation["trigger"]["within"] = 10  # the least that Prefect accepts
    automation_id = client.create_automation(AutomationCore.model_validate(automation))
    lives = [
        [Pending()],
        [Pending(), Pending(name="Submitting")],
        [Pending(), Pending(name="Submitting"), Running()],
        [Pending(), Running(), Running(name="Retrying")],
    ]
    runs = []
    for states in lives:
        run = client.create_flow_run(train, tags=["learnkernels"])
        for state in states:
            client.set_flow_run_state(run.id, state, force=True)
        runs.append(run.id)

    def states_of_runs() -> list[str]:
        return [client.read_flow_run(run).state.name for run in runs]

    try:
        assert within(lambda: states_of_runs() == ["Crashed"] * len(lives), 120, 0.5), (
            states_of_runs()
        )
    finally:
        client.delete_automation(automation_id)


@pytest.mark.slow(30)
def test_runs_whose_events_were_lost_are_watched_from_the_next_start_on(
    client: SyncPrefectClient,
):
    training = deployed(client, model="lost")["train"]
    runs = [client.create_flow_run_from_deployment(training.id) for _ in range(2)]
    lost, finished = runs
    client.set_flow_run_state(lost.id, Pending(name="Submitting"), force=True)
    client.set_flow_run_state(finished.id, Completed(), force=True)
    sleep(2)  # their events come before the automation
    automation = yaml.safe_load(recovery.CRASHED_RUNS.read_text(encoding="utf-8"))
    automation["name"] = "marks lost ones soon"
    automation["trigger"]["within"] = 10  # the least that Prefect accepts
    automation_id = client.create_automation(AutomationCore.model_validate(automation))
    try:
        watched = recovery.watch_unfinished(client)
        assert lost.id in watched
        assert finished.id not in watched
        for _ in range(3):  # Prefect loses events while SQLite is locked
            if within(
                lambda: client.read_flow_run(lost.id).state.name == "Crashed", 60, 0.5
            ):
                break
            recovery.watch_unfinished(client)
        assert client.read_flow_run(lost.id).state.name == "Crashed"
        assert client.read_flow_run(finished.id).state.name == "Completed"
    finally:
        client.delete_automation(automation_id)


def test_of_missed_runs_the_latest_is_made_up_for(client: SyncPrefectClient):
    deployment = deployed(client, model="missed", cron=CRON)["train"]
    by_hand = client.create_flow_run_from_deployment(deployment.id)
    now = datetime.now().astimezone()
    first, last = (now + timedelta(days=days) for days in (-3, 2))
    span = {
        "start_time": first.isoformat(),
        "end_time": last.isoformat(),
        "min_runs": 5,
    }
    client.request("POST", f"/deployments/{deployment.id}/schedule", json=span)
    planned = [run for run in runs_of(client, deployment) if run.auto_scheduled]
    planned.sort(key=lambda run: run.expected_start_time)
    missed = [run.id for run in planned if run.expected_start_time < now]
    assert 2 <= len(missed) < len(planned)
    assert sorted(recovery.cancel_missed(client)) == sorted(missed[:-1])
    waiting = FlowRunFilter(state={"type": {"any_": ["SCHEDULED"]}})
    kept = {run.id for run in client.read_flow_runs(flow_run_filter=waiting)}
    assert {
        missed[-1],
        by_hand.id,
        *(run.id for run in planned if run.expected_start_time > now),
    } <= kept
