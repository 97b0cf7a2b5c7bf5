"""Schedules of a model: what is made in Prefect, and that it really runs, from the clock to the predictions."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import psutil
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
from tests.user import COMMAND, ROOT, environment, key_of, learnkernels
from tools.waiting import within

FLOWS = {"compare": compare, "train": train, "promote": promote, "predict": predict}
PLAN = Plan("demo", load_config(ROOT / "conf/quickstart.yaml"), "conf/quickstart.yaml")
WITH_FILES = replace(PLAN, input="in.csv", output="out.parquet", id=("row",))


@pytest.fixture
def home(used_home: Path) -> Path:
    return used_home


@pytest.fixture
def client(prefect_server: None) -> Iterator[SyncPrefectClient]:
    with get_client(sync_client=True) as client:
        yield client


def made(client: SyncPrefectClient, model: str) -> dict[str, Any]:
    found = client.read_deployments(deployment_filter=DeploymentFilter(name=DeploymentFilterName(any_=[model])))
    return {deployment.entrypoint.rsplit(".", 1)[1]: deployment for deployment in found}


def runs_of(client: SyncPrefectClient, deployment: Any) -> list[FlowRun]:
    return client.read_flow_runs(deployment_filter=DeploymentFilter(id={"any_": [deployment.id]}))


def test_deployments_run_the_flows_with_the_whole_plan(client: SyncPrefectClient, working_folder: Path):
    deployed = deploy(FLOWS, replace(WITH_FILES, model="whole", dataset="diabetes", learner="alignf", refresh=True))
    found = made(client, "whole")
    assert set(found) == set(FLOWS)
    assert [one.name for one in deployed] == [f"{flow.name}/whole" for flow in FLOWS.values()]
    assert [one.when for one in deployed] == [
        "by hand",
        "by hand",
        "after each completed 'train'",
        "after each completed 'promote'",
    ]
    for step, deployment in found.items():
        module, name = deployment.entrypoint.rsplit(".", 1)
        assert getattr(importlib.import_module(module), name) is FLOWS[step]
        assert FLOWS[step].validate_parameters(deployment.parameters)
        assert deployment.pull_steps == [
            {"prefect.deployments.steps.set_working_directory": {"directory": str(working_folder)}}
        ]
        assert (deployment.work_pool_name, deployment.work_queue_name) == (POOL, "whole")
        assert {"learnkernels", "whole"} <= set(deployment.tags)
        assert deployment.schedules == []
        assert f"`{working_folder}`" in deployment.description
    for step in ("compare", "train"):
        assert CompareConfig.model_validate(found[step].parameters["config"]) == PLAN.config
    assert found["train"].parameters.keys() >= {"model", "dataset", "learner"}
    assert found["promote"].parameters == {"model": "whole", "refresh": True}
    assert found["predict"].parameters == {
        "model": "whole@champion",
        "input": "in.csv",
        "output": "out.parquet",
        "id": ["row"],
    }
    assert client.read_work_queue_by_name("whole", work_pool_name=POOL).concurrency_limit == 1


def test_deployments_of_an_older_version_run_the_flows_of_this_one(client: SyncPrefectClient, working_folder: Path):
    deploy(FLOWS, replace(WITH_FILES, model="old"))
    before = made(client, "old")
    for step, deployment in before.items():
        client.update_deployment(deployment.id, DeploymentUpdate(entrypoint=f"flows.{step}.{step}"))
    (said,) = move_old_deployments(client)
    assert re.search(r"^old: .*older version.*deploy it again.*: learnkernels deploy CONF --register old$", said)
    after = made(client, "old")
    assert {step: one.entrypoint for step, one in after.items()} == {
        step: one.entrypoint for step, one in before.items()
    }
    assert {step: one.parameters for step, one in after.items()} == {
        step: one.parameters for step, one in before.items()
    }
    assert move_old_deployments(client) == []


def test_the_form_shows_what_is_changed_often_and_then_the_whole_configuration(
    client: SyncPrefectClient, working_folder: Path
):
    deploy(FLOWS, replace(PLAN, model="form"))
    schema = made(client, "form")["train"].parameter_openapi_schema
    assert set(schema["required"]) == {"config", "model"}
    fields = sorted(schema["properties"].items(), key=lambda field: field[1]["position"])
    names = [name for name, _ in fields]
    assert names == ["model", "dataset", "learner", "table", "target", "folds", "metric", "config"]
    assert fields[-1][1]["type"] == "object"
    assert "definitions" not in schema


def test_runs_take_along_quiet_settings_and_no_address(
    client: SyncPrefectClient, working_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:secret@db/mlflow")
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "me:secret")
    deploy(FLOWS, replace(WITH_FILES, model="quiet"))
    for deployment in made(client, "quiet").values():
        settings = deployment.job_variables
        assert settings["working_dir"] == str(working_folder)
        assert settings["env"]["PREFECT_RESULTS_DEFAULT_SERIALIZER"] == "json"
        assert settings["env"]["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] == "false"
        assert settings["env"]["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
        assert settings["env"]["PREFECT_RUNNER_AUTO_INSTALL_DEPENDENCIES"] == "false"
        assert "secret" not in deployment.model_dump_json()


def test_deploying_again_changes_in_place_and_removes_what_is_not_asked_for(
    client: SyncPrefectClient, working_folder: Path
):
    plan = replace(WITH_FILES, model="again")
    deploy(FLOWS, plan)
    before = made(client, "again")
    for learner in ("align", "unif"):
        deploy(FLOWS, replace(plan, learner=learner, input=None, output=None, id=()))
    after = made(client, "again")
    assert set(before) - set(after) == {"predict"}
    assert all(before[step].id == after[step].id for step in after)
    assert after["train"].parameters["learner"] == "unif"
    deploy(FLOWS, replace(plan, paused=True))
    assert all(deployment.paused for deployment in made(client, "again").values())
    assert len(made(client, "again")) == 4
    assert len(client.read_work_queues()) == len({queue.name for queue in client.read_work_queues()})


def test_a_scheduler_that_makes_no_run_is_an_error(
    client: SyncPrefectClient, working_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(deployments, "SCHEDULE_SECONDS", 0.0)
    with pytest.raises(InputError, match="Prefect has made no run for its schedule within 0 s"):
        deploy(FLOWS, replace(PLAN, model="silent", cron="0 3 * * *"))
    (schedule,) = made(client, "silent")["train"].schedules
    assert (schedule.schedule.cron, schedule.schedule.timezone) == ("0 3 * * *", "Etc/UTC")
    deploy(FLOWS, replace(PLAN, model="silent"))
    assert made(client, "silent")["train"].schedules == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
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
    ],
)
def test_a_plan_that_cannot_work_is_one_sentence(change: dict[str, Any], sentence: str):
    with pytest.raises(InputError, match=sentence):
        deploy(FLOWS, replace(PLAN, **change))


@pytest.mark.slow(20)
def test_deploying_without_a_server_says_what_to_start(home: Path):
    quickstart = str(ROOT / "conf/quickstart.yaml")
    run = learnkernels(home, "deploy", quickstart, "--register", "demo")
    assert run.returncode == 2
    assert run.stderr.startswith("error: there is no Prefect server to deploy to: start 'learnkernels up'")
    run = learnkernels(home, "deploy", quickstart, "--register", "demo", PREFECT_API_URL="http://127.0.0.1:9/api")
    assert run.returncode == 2
    assert "error: no Prefect server answers at http://127.0.0.1:9/api" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_completed_run_starts_what_follows_once(client: SyncPrefectClient, working_folder: Path):
    assert train.on_completion_hooks == [start_following]
    assert promote.on_completion_hooks == [start_following]
    for model, paused in (("chain", False), ("other", False), ("resting", True)):
        deploy(FLOWS, replace(WITH_FILES, model=model, paused=paused))
    chain, other, resting = (made(client, model) for model in ("chain", "other", "resting"))
    run = client.create_flow_run_from_deployment(chain["train"].id)
    for _ in range(2):
        start_following(train, run, Completed())
    assert len(runs_of(client, chain["promote"])) == 1
    assert runs_of(client, chain["predict"]) == runs_of(client, other["promote"]) == []
    start_following(promote, runs_of(client, chain["promote"])[0], Completed())
    assert len(runs_of(client, chain["predict"])) == 1
    start_following(train, client.create_flow_run_from_deployment(resting["train"].id), Completed())
    assert runs_of(client, resting["promote"]) == []
    before = len(client.read_flow_runs())
    start_following(train, run.model_copy(update={"deployment_id": None}), Completed())
    assert len(client.read_flow_runs()) == before


def test_what_follows_is_started_again_where_prefect_did_not_answer(
    client: SyncPrefectClient, working_folder: Path, caplog: pytest.LogCaptureFixture
):
    deploy(FLOWS, replace(WITH_FILES, model="missed-hook"))
    steps = made(client, "missed-hook")
    run = client.create_flow_run_from_deployment(steps["train"].id)
    client.set_flow_run_state(run.id, Completed(), force=True)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # taken and not listening: whoever asks there is refused
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}/api"
        with temporary_settings({PREFECT_API_URL: address, PREFECT_CLIENT_MAX_RETRIES: 0}):
            start_following(train, run, Completed())
    (said,) = [record.getMessage() for record in caplog.records if "could not be started" in record.getMessage()]
    assert re.fullmatch(
        r"what follows this run could not be started \(ConnectError\); 'learnkernels up' does so .*", said
    )
    assert runs_of(client, steps["promote"]) == []
    assert run.id in start_missed(client)
    assert len(runs_of(client, steps["promote"])) == 1
    client.delete_flow_run(runs_of(client, steps["promote"])[0].id)  # by hand: it does not come back
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


def test_runs_whose_process_is_gone_do_not_hold_their_queue(
    client: SyncPrefectClient, working_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    deploy(FLOWS, replace(PLAN, model="gone"))
    training = made(client, "gone")["train"]
    waiting = client.create_flow_run_from_deployment(training.id)
    command = [sys.executable, "-c", "input()"]
    dead = started_by(client, training, worker_name(), Running(), os.getpid())
    unsent = started_by(client, training, worker_name(), Pending(), None)
    alive = started_by(client, training, worker_name(), Running(), None)
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


@flow
def seen_by_prefect() -> list[FlowRun]:
    look()
    with get_client(sync_client=True) as client:
        return [client.read_flow_run(flow_run.id)]


@task
def look() -> None:
    """Have a run of a task, too."""


def test_a_run_is_never_without_a_process_that_it_belongs_to(client: SyncPrefectClient, working_folder: Path):
    with tags("kept"):
        (within_it,) = claimed(seen_by_prefect)()
    ours = str(Owner.this())
    assert (within_it.infrastructure_pid, within_it.tags) == (ours, ["kept"])
    (looked,) = client.read_task_runs(flow_run_filter=FlowRunFilter(id={"any_": [within_it.id]}))
    assert looked.tags == []  # for which Prefect would ask its server

    gone = Owner(Owner.this().host, 2**22 + 1, 1)
    made_by = [
        client.create_flow_run(seen_by_prefect, state=Running(), tags=[f"process~{owner}"])
        for owner in (gone, Owner.this())
    ]
    close_gone()  # as the next command does, of which one was killed before it could say more
    assert states_of(client, *made_by) == ["CRASHED", "RUNNING"]
    client.set_flow_run_state(made_by[1].id, Completed(), force=True)


def test_runs_of_another_host_are_left_to_it_while_its_worker_is_heard(
    client: SyncPrefectClient, working_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    deploy(FLOWS, replace(PLAN, model="far"))
    training = made(client, "far")["train"]
    beat = {"name": "elsewhere.1", "heartbeat_interval_seconds": 30}
    client.request("POST", f"/work_pools/{POOL}/workers/heartbeat", json=beat)
    theirs = [started_by(client, training, worker, Running(), 2**22 + 1) for worker in ("elsewhere.1", "forgotten")]
    assert close_abandoned(client) == []
    monkeypatch.setattr(recovery, "SILENT", timedelta(0))
    assert set(close_abandoned(client)) == {run.id for run in theirs}


def test_a_run_that_ends_while_it_is_looked_at_stays_completed(
    client: SyncPrefectClient, working_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    deploy(FLOWS, replace(PLAN, model="ends"))
    run = started_by(client, made(client, "ends")["train"], worker_name(), Running(), 2**22 + 1)

    def ends(found: FlowRun) -> bool:
        client.set_flow_run_state(run.id, Completed(), force=True)
        return False

    monkeypatch.setattr(recovery, "_runs_here", ends)
    assert close_abandoned(client) == []
    assert states_of(client, run) == ["COMPLETED"]


def test_of_missed_runs_the_latest_is_made_up_for(client: SyncPrefectClient, working_folder: Path):
    with suppress(InputError), pytest.MonkeyPatch.context() as patch:
        patch.setattr(deployments, "SCHEDULE_SECONDS", 0.0)
        deploy(FLOWS, replace(PLAN, model="missed", cron="0 3 * * *"))
    deployment = made(client, "missed")["train"]
    by_hand = client.create_flow_run_from_deployment(deployment.id)
    now = datetime.now().astimezone()
    first, last = (now + timedelta(days=days) for days in (-3, 2))
    span = {"start_time": first.isoformat(), "end_time": last.isoformat(), "min_runs": 5}
    client.request("POST", f"/deployments/{deployment.id}/schedule", json=span)
    planned = sorted(
        (run for run in runs_of(client, deployment) if run.auto_scheduled), key=lambda run: run.expected_start_time
    )
    missed = [run.id for run in planned if run.expected_start_time < now]
    assert len(missed) >= 2
    assert len(planned) > len(missed)
    assert sorted(cancel_missed(client)) == sorted(missed[:-1])
    waiting = FlowRunFilter(state={"type": {"any_": ["SCHEDULED"]}})
    kept = {run.id for run in client.read_flow_runs(flow_run_filter=waiting)}
    assert {missed[-1], by_hand.id, *(run.id for run in planned if run.expected_start_time > now)} <= kept


def write_inputs(folder: Path) -> None:
    """A small problem as tables come, with a category, dates and gaps; its configuration, and rows to predict."""
    draw = np.random.default_rng(0)
    rows = pd.DataFrame(draw.normal(size=(60, 2)).round(6), columns=["a", "b"])
    rows["city"] = draw.choice(["here", "there"], 60)
    rows["day"] = pd.date_range("2024-01-01", periods=60, freq="D").strftime("%Y-%m-%d")
    y = (rows["a"] + rows["b"] ** 2 + 2 * (rows["city"] == "here")).round(6)
    rows.loc[50, ["a", "city"]] = None
    rows.assign(y=y).to_csv(folder / "rows.csv", index=False)
    new = rows.head(7).assign(key=[f"row {i}" for i in range(7)])
    new.loc[6, ["b", "city"]] = None, "nowhere"  # a gap where no row had one, and a level that no row had
    new[["key", "city", "day", "b", "a"]].to_csv(folder / "new.csv", index=False)
    (folder / "small.yaml").write_text(
        "name: small\n"
        "datasets:\n"
        "  - {source: file, path: rows.csv, target: y, task: regression, missing: impute, scale: standard,\n"
        "     columns: {city: categorical, day: date}}\n"
        "kernels: [{family: gaussian, gammas: [0.1, 1.0]}]\n"
        "learners: [unif]\n"
        "protocol: {folds: 3}\n"
        "dask: {workers: 0}\n"
    )


@contextmanager
def up(home: Path, ports: tuple[int, int], **settings: str) -> Iterator[str]:
    """Run `learnkernels up` in a working folder, give the address of Prefect's API, and see that nothing is left."""
    options = ["--prefect-port", str(ports[0]), "--mlflow-port", str(ports[1])]
    log = home / "up.log"
    with log.open("w") as sink:
        process = subprocess.Popen(
            [*COMMAND, "up", *options], cwd=home / "work", env=environment(home) | settings, stdout=sink, stderr=sink
        )
    try:
        assert within(lambda: "the worker first" in log.read_text() or process.poll() is not None, 240), "never up"
        assert process.poll() is None, log.read_text()
        yield f"http://127.0.0.1:{ports[0]}/api"
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=120)
    assert code == 143, log.read_text()
    assert within(lambda: processes_in(home) == [], 20), processes_in(home)
    assert not (home / "work" / ".learnkernels" / "ui.json").exists()


def processes_in(folder: Path) -> list[str]:
    """The commands of all processes whose working folder is below a folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if Path(process.cwd()).is_relative_to(folder):
                found.append(" ".join(process.cmdline()))
    return found


def completed(api: str, key: tuple[str, str], flow: str, **wanted: bool) -> list[dict[str, Any]]:
    """The completed runs of a flow, the latest first; raises when one has failed."""
    body = {"flows": {"name": {"any_": [flow]}}, "sort": "END_TIME_DESC"}
    runs = httpx.post(f"{api}/flow_runs/filter", json=body, auth=key, timeout=30).json()
    failed = [(run["name"], run["state"]["message"]) for run in runs if run["state_type"] in ("FAILED", "CRASHED")]
    assert failed == []
    return [
        run
        for run in runs
        if run["state_type"] == "COMPLETED" and all(run[key] == value for key, value in wanted.items())
    ]


def result_of(work: Path, run: dict[str, Any]) -> dict[str, Any]:
    """The result of a flow run, as it lies on disk."""
    key = run["state"]["data"]["storage_key"]
    record = json.loads((work / ".learnkernels/prefect/storage" / key).read_text())
    result = record.get("result", record)
    return json.loads(result) if isinstance(result, str) else result


@pytest.mark.slow(150)
def test_from_the_clock_to_the_predictions(home: Path, ports: tuple[int, int]):
    work = home / "work"
    write_inputs(work)
    with up(home, ports) as api:
        key = key_of(work)
        options = ["--register", "demo", "--cron", "* * * * *"]
        files = ["--input", "new.csv", "--output", "out/scores.parquet", "--id", "key"]
        shown = learnkernels(home, "deploy", "small.yaml", *options, *files)
        assert shown.returncode == 0, shown.stderr
        names = [f"{flow.name}/demo" for flow in FLOWS.values()]
        assert all(name in shown.stdout for name in names)
        assert f"http://127.0.0.1:{ports[0]}/deployments/deployment/" in shown.stdout
        assert f"prefect deployment run '{train.name}/demo'" in shown.stdout

        assert within(lambda: bool(completed(api, key, train.name, auto_scheduled=True)), 300), "no scheduled training"
        # Deployed again without a clock, so that later runs do not stand in the way; the chain stays.
        assert learnkernels(home, "deploy", "small.yaml", "--register", "demo", *files).returncode == 0
        assert within(lambda: bool(completed(api, key, predict.name)), 300), "no prediction followed"

        # One that was asked for by hand runs the same way; without predictions, that deployment goes.
        assert learnkernels(home, "deploy", "small.yaml", "--register", "demo", "--paused").returncode == 0
        asked = subprocess.run(
            [sys.executable, "-m", "prefect", "deployment", "run", f"{compare.name}/demo"],
            env=environment(home)
            | {
                "PREFECT_API_URL": api,
                "PREFECT_API_AUTH_STRING": ":".join(key),
                "PREFECT_HOME": str(work / ".learnkernels/prefect"),
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert asked.returncode == 0, asked.stderr
        assert within(lambda: bool(completed(api, key, compare.name, auto_scheduled=False)), 300), "no run by hand"
        left = httpx.post(f"{api}/deployments/filter", json={}, auth=key).json()
        assert sorted(one["entrypoint"] for one in left) == [
            "learnkernels.flows.compare.compare",
            "learnkernels.flows.promote.promote",
            "learnkernels.flows.train.train",
        ]

        trained = result_of(work, completed(api, key, train.name, auto_scheduled=True)[-1])
        promoted = result_of(work, completed(api, key, promote.name)[-1])
        scored = result_of(work, completed(api, key, predict.name)[-1])
        mlflow = f"http://127.0.0.1:{ports[1]}/api/2.0/mlflow"
        run = httpx.get(f"{mlflow}/runs/get", params={"run_id": trained["mlflow_run"]}, auth=key).json()["run"]
        alias = {"name": "demo", "alias": "champion"}
        champion = httpx.get(f"{mlflow}/registered-models/alias", params=alias, auth=key).json()["model_version"]

    assert run["info"]["status"] == "FINISHED"
    assert (trained["model"], trained["version"]) == ("demo", 1)
    assert promoted["champion"] == scored["version"] == int(champion["version"]) == 1
    assert scored["digest"] == trained["digest"]
    scores = pd.read_parquet(work / "out/scores.parquet")
    assert scores["key"].tolist() == [f"row {i}" for i in range(7)]
    assert np.isfinite(scores["prediction"]).all()
    known = pd.read_csv(work / "rows.csv")["y"].head(6)
    assert np.corrcoef(scores["prediction"].head(6), known)[0, 1] > 0.8  # rows that the model has learned from
    assert list((home / "home").iterdir()) == []


@pytest.mark.slow(70)
def test_a_run_in_progress_is_crashed_and_not_left_running(home: Path, ports: tuple[int, int]):
    work = home / "work"
    write_inputs(work)
    long = (work / "small.yaml").read_text().replace("folds: 3", "folds: 3, repeats: 200")
    (work / "small.yaml").write_text(long)
    with up(home, ports) as api:
        key = key_of(work)
        assert learnkernels(home, "deploy", "small.yaml", "--register", "demo").returncode == 0
        (deployment,) = [
            one
            for one in httpx.post(f"{api}/deployments/filter", json={}, auth=key).json()
            if one["entrypoint"] == "learnkernels.flows.train.train"
        ]
        run = httpx.post(f"{api}/deployments/{deployment['id']}/create_flow_run", json={}, auth=key).json()

        def state() -> str:
            return str(httpx.get(f"{api}/flow_runs/{run['id']}", auth=key, timeout=30).json()["state_type"])

        assert within(lambda: state() == "RUNNING", 240), state()
    database = f"sqlite:///{work / '.learnkernels/prefect/prefect.db'}"
    found = pd.read_sql_query("SELECT state_type FROM flow_run", database)
    assert found["state_type"].tolist() == ["CRASHED"]
