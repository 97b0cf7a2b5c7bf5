"""What users do first, from end to end: the README's commands, a table of one's own, a schedule that fires."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import psutil
import pytest
from prefect.settings import PREFECT_API_URL

from dev.tools.forked import Commands
from dev.tools.waiting import within
from learnkernels.flows.compare import compare
from learnkernels.flows.predict import predict
from learnkernels.flows.promote import promote
from learnkernels.flows.train import train
from learnkernels.tasks.reporting.report import verdicts
from learnkernels.tasks.reporting.tables import display_table
from tests.pages import by_section, commands
from tests.service.flows.test_deployments import FLOWS
from tests.user import COMMAND, ROOT, environment, key_of, learnkernels, open_to_others

README, START = ROOT / "README.md", ROOT / "docs" / "start.md"

QUICKSTART = "learnkernels compare conf/quickstart.yaml"
"""What `make run` runs."""

FIRST = [line for line in commands(README) if line.startswith("learnkernels")]
TABLE = by_section(START)["From a table"]
JOURNEY = [QUICKSTART, *FIRST, *TABLE]
"""Commands of the pages that the tests below run."""


@pytest.mark.slow(50)
def test_the_quickstart_runs_for_a_new_user_and_stays_in_its_folder(home: Path):
    """The main job as a process that finds nothing: no server, no database, an empty home."""
    done = learnkernels(home, "compare", "quickstart", LOKY_MAX_CPU_COUNT="2")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "INFO" not in done.stderr
    last = done.stdout.strip().splitlines()[-1]
    summary = pd.read_parquet(
        home / "work" / last.removeprefix("results: ") / "summary.parquet"
    )
    assert (set(summary["predictor"]), len(summary)) == ({"svm", "krr", "trees"}, 8)
    assert (summary["relative_error"] < 0.9).all()
    printed = [line.split() for line in done.stdout.splitlines()]
    assert all(
        " ".join(row.values()).split() in printed for row in display_table(summary)
    )
    assert all(
        sentence in START.read_text(encoding="utf-8") for sentence in verdicts(summary)
    )
    assert list((home / "home").iterdir()) == []
    assert {path.name for path in (home / "work").iterdir()} == {
        ".learnkernels",
        "mlartifacts",
        "mlflow.db",
        "results",
    }
    assert open_to_others(home / "work") == []


@pytest.mark.slow(40)
def test_a_newcomer_compares_a_table_and_predicts_with_it(
    newcomer: Path, prefect_server: None
):
    """The commands of the README and of the first page, in a process that is forked from one with the libraries."""
    server = {
        "PREFECT_API_URL": str(PREFECT_API_URL.value()),
        "MLFLOW_TRACKING_URI": f"sqlite:///{newcomer}/mlflow.db",
    }
    work, said = newcomer / "work", {}
    with closing(Commands(work, environment(newcomer) | server)) as commands:
        for command in [*FIRST, *(line for line in TABLE if line not in FIRST)]:
            done = commands.run(command)
            assert done.returncode == 0, (command, done.stderr)
            said[command] = done.stdout
    assert (
        "HistGradientBoosting" in said["learnkernels compare table.csv --target churn"]
    )
    assert (work / "table.yaml").is_file()
    written = [
        work / name
        for name in (
            "table.yaml",
            "scored.csv",
            "results",
            "mlartifacts",
            ".learnkernels",
        )
    ]
    assert [path for path in written if path.stat().st_mode & 0o077] == []
    truth, scored = pd.read_csv(work / "table.csv"), pd.read_csv(work / "scored.csv")
    assert set(scored["prediction"]) == {"yes", "no"}
    # The rows that it learned from
    assert np.mean(scored["prediction"] == truth["churn"]) > 0.8


# A schedule -----------------------------------------------------------------------------------------------------------


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
    # a gap where no row had one, and a level that no row had
    new.loc[6, ["b", "city"]] = (
        None,
        "nowhere",
    )
    new[["key", "city", "day", "b", "a"]].to_csv(folder / "new.csv", index=False)
    (folder / "small.yaml").write_text(
        "datasets:\n"
        "  - {source: file, path: rows.csv, target: y, task: regression, missing: impute, scale: standard,\n"
        "     columns: {city: categorical, day: date}}\n"
        "kernels: [{family: gaussian, gammas: [0.1, 1.0]}]\n"
        "name: small\nlearners: [unif]\nprotocol: {folds: 3}\ndask: {workers: 0}\n"
    )


@contextmanager
def up(home: Path, ports: tuple[int, int], **settings: str) -> Iterator[str]:
    """Run `learnkernels up` in a working folder, give the address of Prefect's API, and see that nothing is left."""
    options = ["--prefect-port", str(ports[0]), "--mlflow-port", str(ports[1])]
    log = home / "up.log"
    with log.open("w") as sink:
        process = subprocess.Popen(
            [*COMMAND, "up", *options], cwd=home / "work", env=environment(home) | settings, stdout=sink, stderr=sink,
            umask=0o022,
        )  # fmt: skip
    try:
        assert within(
            lambda: "the worker first" in log.read_text() or process.poll() is not None,
            240,
        ), "never up"
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


def completed(
    api: str, key: tuple[str, str], flow: str, **wanted: bool
) -> list[dict[str, Any]]:
    """The completed runs of a flow, the latest first; raises when one has failed."""
    body = {"flows": {"name": {"any_": [flow]}}, "sort": "END_TIME_DESC"}
    runs = httpx.post(f"{api}/flow_runs/filter", json=body, auth=key, timeout=30).json()
    failed = [
        (run["name"], run["state"]["message"])
        for run in runs
        if run["state_type"] in ("FAILED", "CRASHED")
    ]
    assert failed == []
    wanted["state_type"] = "COMPLETED"
    return [
        run for run in runs if all(run[key] == value for key, value in wanted.items())
    ]


def are_through(api: str, key: tuple[str, str]) -> bool:
    """Whether a prediction has followed each training and no run is left, as a clock may have started several."""
    waiting = {
        "flow_runs": {"state": {"type": {"any_": ["SCHEDULED", "PENDING", "RUNNING"]}}}
    }
    left = httpx.post(
        f"{api}/flow_runs/filter", json=waiting, auth=key, timeout=30
    ).json()
    followed = (
        len(completed(api, key, train.name))
        == len(completed(api, key, predict.name))
        > 0
    )
    return left == [] and followed


def result_of(work: Path, run: dict[str, Any]) -> dict[str, Any]:
    """The result of a flow run, as it lies on disk."""
    key = run["state"]["data"]["storage_key"]
    record = json.loads((work / ".learnkernels/prefect/storage" / key).read_text())
    result = record.get("result", record)
    return json.loads(result) if isinstance(result, str) else result


@pytest.mark.slow(150)
def test_from_the_clock_to_the_predictions(used_home: Path, ports: tuple[int, int]):
    home, work = used_home, used_home / "work"
    write_inputs(work)
    # Which nothing that is started takes up
    for name in (
        "logging.py",
        "numpy.py",
        "uvicorn.py",
    ):
        (work / name).write_text("raise SystemError('of the working folder')")
    with up(home, ports, PREFECT_WORKER_QUERY_SECONDS="1") as api:
        key = key_of(work)
        options = ["--model", "demo", "--cron", "* * * * *"]
        files = ["--input", "new.csv", "--output", "out/scores.parquet", "--id", "key"]
        shown = learnkernels(home, "deploy", "small.yaml", *options, *files)
        assert shown.returncode == 0, shown.stderr
        names = [f"{flow.name}/demo" for flow in FLOWS.values()]
        assert all(name in shown.stdout for name in names)
        assert f"http://127.0.0.1:{ports[0]}/deployments/deployment/" in shown.stdout
        assert f"prefect deployment run '{train.name}/demo'" in shown.stdout

        assert within(
            lambda: bool(completed(api, key, train.name, auto_scheduled=True)), 300
        ), "no scheduled training"
        # Paused and deployed again, so that later runs do not stand in the way; the
        # chain stays.
        for one in httpx.post(f"{api}/deployments/filter", json={}, auth=key).json():
            for schedule in one["schedules"]:
                its = f"{api}/deployments/{one['id']}/schedules/{schedule['id']}"
                # Prefect answers 503 while its SQLite file is locked; its own clients
                # ask again.
                assert within(
                    lambda its=its: (
                        httpx.patch(its, json={"active": False}, auth=key).is_success
                    ),
                    60,
                )
        assert (
            learnkernels(
                home, "deploy", "small.yaml", "--model", "demo", *files
            ).returncode
            == 0
        )
        assert within(lambda: are_through(api, key), 300), "no prediction followed"

        # One that was asked for by hand runs the same way; without predictions, that
        # deployment goes.
        assert (
            learnkernels(home, "deploy", "small.yaml", "--model", "demo").returncode
            == 0
        )
        env = environment(home) | {
            "PREFECT_API_URL": api,
            "PREFECT_API_AUTH_STRING": ":".join(key),
        }
        env["PREFECT_HOME"] = str(work / ".learnkernels/prefect")
        command = [
            sys.executable,
            "-m",
            "prefect",
            "deployment",
            "run",
            f"{compare.name}/demo",
        ]
        asked = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=120
        )
        assert asked.returncode == 0, asked.stderr
        assert within(
            lambda: bool(completed(api, key, compare.name, auto_scheduled=False)), 300
        ), "no run by hand"
        left = httpx.post(f"{api}/deployments/filter", json={}, auth=key).json()
        flows = [
            f"learnkernels.flows.{name}.{name}"
            for name in ("compare", "promote", "train")
        ]
        assert sorted(one["entrypoint"] for one in left) == flows

        trained = result_of(
            work, completed(api, key, train.name, auto_scheduled=True)[-1]
        )
        promoted = result_of(work, completed(api, key, promote.name)[-1])
        scored = result_of(work, completed(api, key, predict.name)[-1])
        mlflow = f"http://127.0.0.1:{ports[1]}/api/2.0/mlflow"
        run = httpx.get(
            f"{mlflow}/runs/get", params={"run_id": trained["mlflow_run"]}, auth=key
        ).json()["run"]
        shown = learnkernels(home, "open", trained["results"])
        assert shown.returncode == 0, shown.stderr
        of_mlflow, of_prefect = (line.split()[-1] for line in shown.stdout.splitlines())
        assert of_mlflow.startswith(
            f"http://127.0.0.1:{ports[1]}/#/experiments/{run['info']['experiment_id']}/runs/"
        )
        assert f"/runs/{trained['mlflow_run']}?" in of_mlflow
        assert of_prefect.startswith(f"http://127.0.0.1:{ports[0]}/v2/runs/flow-run/")
        alias = {"name": "demo", "alias": "champion"}
        champion = httpx.get(
            f"{mlflow}/registered-models/alias", params=alias, auth=key
        ).json()["model_version"]

    closed = learnkernels(home, "open", trained["results"])
    assert closed.returncode == 2
    assert (
        f"error: nothing shows {trained['results']} now; start 'learnkernels ui'"
        in closed.stderr
    )
    assert run["info"]["status"] == "FINISHED"
    assert (trained["model"], trained["version"]) == ("demo", 1)
    assert promoted["champion"] == scored["version"] == int(champion["version"]) == 1
    assert scored["digest"] == trained["digest"]
    scores = pd.read_parquet(work / "out/scores.parquet")
    assert scores["key"].tolist() == [f"row {i}" for i in range(7)]
    assert np.isfinite(scores["prediction"]).all()
    known = pd.read_csv(work / "rows.csv")["y"].head(6)
    # Rows that the model has learned from
    assert np.corrcoef(scores["prediction"].head(6), known)[0, 1] > 0.8
    assert list((home / "home").iterdir()) == []
