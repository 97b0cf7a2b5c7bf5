"""The commands of docs/operations.md and docs/stack.md, run on free ports and on a problem that takes seconds."""

from __future__ import annotations

import asyncio
import configparser
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL
from prefect.workers.process import ProcessJobConfiguration

from dev.tools.forked import PROGRAMS, Commands, Started
from dev.tools.waiting import within
from learnkernels.conf.schema import CompareConfig
from learnkernels.flows.train import train
from learnkernels.tasks.operate.servers import free_port
from tests.pages import by_section, commands
from tests.service.flows.test_notifications import receiving
from tests.system.test_journeys import processes_in, write_inputs
from tests.user import ROOT, environment, key_of

PAGE = ROOT / "docs" / "operations.md"
STACK = ROOT / "docs" / "stack.md"
SECTIONS = by_section(PAGE) | by_section(STACK)
UNIT = ROOT / "conf" / "operations" / "learnkernels.service"
PORTS = ("4200", "5000", "5432", "8786")
SERVERS = ("learnkernels up", "dask scheduler", "dask worker")
DEPLOYED = ".learnkernels/prefect/prefect.db"


def test_every_section_with_commands_is_followed():
    here = Path(__file__).read_text(encoding="utf-8")
    assert [section for section in SECTIONS if f'("{section}"' not in here] == []
    assert len(commands(PAGE)) > 30


def test_every_configuration_of_the_page_is_one():
    rest = yaml.safe_load(
        (ROOT / "conf" / "quickstart.yaml").read_text(encoding="utf-8")
    )
    blocks = re.findall(
        r"^```yaml\n(dask:.*?)^```",
        STACK.read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    assert len(blocks) == 2
    for block in blocks:
        assert CompareConfig.model_validate(
            rest | yaml.safe_load(block)
        ).dask.elsewhere, block


class Operator:
    """Someone who follows the page in a working folder."""

    def __init__(self, home: Path, forked: Commands) -> None:
        self.folder, self.forked = home / "work", forked
        self.ports = {name: str(free_port()) for name in PORTS}
        self.env = environment(home)
        self.env["PATH"] = (
            f"{Path(sys.executable).parent}{os.pathsep}{self.env['PATH']}"
        )
        self.env["PREFECT_WORKER_QUERY_SECONDS"] = (
            "1"  # not ten, from one run of a model to the next
        )
        self.env["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # eight processes more
        self.servers: list[subprocess.Popen[bytes] | Started] = []

    def follow(self, section: str, start: str = "", before: str = "") -> str:
        """Run the commands of a section and return what they print.

        Begin with the first one that starts with a text, or end in front of it.
        """
        chosen = SECTIONS[section]
        first, last = (
            next(i for i, one in enumerate(chosen) if one.startswith(text))
            for text in (start, before)
        )
        return "".join(map(self.run, chosen[first : last or None]))

    def run(self, command: str) -> str:
        command = re.sub(
            r"\b(4200|5000|5432|8786)\b", lambda port: self.ports[port.group()], command
        )
        command = command.replace("conf/quickstart.yaml", "small.yaml").replace(
            " --dataset diabetes", ""
        )
        command = command.replace(" conf/operations/", f" {UNIT.parent}/")
        if command == "learnkernels up":
            command = f"{command} --prefect-port {self.ports['4200']} --mlflow-port {self.ports['5000']}"
        if command.startswith("prefect flow-run cancel"):
            return self._cancel(command)
        if command.startswith(SERVERS):
            return self._serve(command)
        command = command.replace(
            "RUN_ID", self._last_run() if "RUN_ID" in command else ""
        )
        if command.startswith("export "):
            shown = self._shown(f"{command}; env -0")
            self.env |= dict(
                line.split("=", 1) for line in shown.split("\0") if "=" in line
            )
            return ""
        return self._shown(command)

    def stop(self) -> None:
        while self.servers:
            server = self.servers.pop()
            os.kill(server.pid, signal.SIGTERM)
            server.wait()

    def _shown(self, command: str) -> str:
        if command.split()[0] in PROGRAMS:
            run = self.forked.run(command, self.folder, self.env)
        else:
            bash = ["bash", "-c", command]
            run = subprocess.run(
                bash,
                cwd=self.folder,
                env=self.env,
                capture_output=True,
                text=True,
                timeout=300,
            )
        assert run.returncode == 0, f"{command}\n{run.stdout}{run.stderr}"
        return run.stdout

    def _serve(self, command: str) -> str:
        said = "Registered to" if command.startswith("dask worker") else None
        if command.startswith("learnkernels up"):
            said, server = (
                "the worker first",
                self.forked.start(command, self.folder, self.env),
            )
            log = server.err
        else:
            log = self.folder.parent / f"server{len(self.servers)}.log"
            with log.open("wb") as sink:
                server = subprocess.Popen(
                    command.split(),
                    cwd=self.folder,
                    env=self.env,
                    stdout=sink,
                    stderr=sink,
                )
        self.servers.append(server)

        def ready() -> bool:
            if said:
                return said in log.read_text()
            port = self.ports["8786"]
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", int(port))) == 0

        assert within(lambda: ready() or server.poll() is not None, 240, 0.1), (
            log.read_text()
        )
        assert server.poll() is None, log.read_text()
        return log.read_text()

    def _cancel(self, command: str) -> str:
        """Cancel a run that has worker processes, which go with it."""
        # A run that is created while another one of the deployment is in progress is
        # cancelled at once.
        assert within(self._has_trained, 240, 0.2), self._runs()
        run_id = self.new_run(
            protocol={"folds": 3, "repeats": 1000}, dask={"workers": 2}
        )
        workers = lambda: [  # noqa: E731
            one for one in processes_in(self.folder) if "spawn_main" in one
        ]
        assert within(lambda: len(workers()) >= 2, 240, 0.1), processes_in(self.folder)
        said = self._shown(command.replace("RUN_ID", run_id))
        assert within(lambda: self.state_of(run_id) == "CANCELLED", 120, 0.2), (
            self.state_of(run_id)
        )
        assert within(lambda: workers() == [], 30, 0.1), workers()
        return said

    def ask(self, path: str, **body: Any) -> httpx.Response:
        """Send a request to the Prefect server that the environment names."""
        user, _, password = self.env["PREFECT_API_AUTH_STRING"].partition(":")
        url = f"{self.env['PREFECT_API_URL']}/{path}"
        return httpx.post(url, json=body, auth=(user, password), timeout=30)

    def new_run(self, **changes: dict[str, int]) -> str:
        """Ask for a run of the training, with other keys of the configuration, and return its id."""
        (found,) = [
            one
            for one in self.ask("deployments/filter").json()
            if one["entrypoint"].endswith(".train")
        ]
        given = {"config": found["parameters"]["config"] | changes}
        replies: list[httpx.Response] = []

        def accepted() -> bool:
            replies.append(
                self.ask(f"deployments/{found['id']}/create_flow_run", parameters=given)
            )
            return replies[-1].is_success

        # SQLite may be locked by another writer for a moment, and the server says so.
        assert within(accepted, 60), replies[-1].text if replies else "no answer"
        return str(replies[-1].json()["id"])

    def state_of(self, run_id: str) -> str:
        return str(
            self.ask("flow_runs/filter", flow_runs={"id": {"any_": [run_id]}}).json()[
                0
            ]["state_type"]
        )

    def _runs(self) -> list[dict[str, Any]]:
        """All runs of the deployments that were asked for."""
        found = self.ask("flow_runs/filter", deployments={"name": {"any_": ["demo"]}})
        return (
            [run for run in found.json() if not run["auto_scheduled"]]
            if found.is_success
            else []
        )

    def _has_trained(self) -> bool:
        return any(
            run["state_type"] == "COMPLETED"
            for run in self._runs()
            if run["name"].startswith("train")
        )

    def _last_run(self) -> str:
        return str(max(self._runs(), key=lambda run: run["created"])["id"])

    def is_through(self) -> bool:
        """Whether all that deployments were asked for has ended, each training with what follows it."""
        due = self._runs()
        completed = Counter(
            run["name"].partition("-")[0]
            for run in due
            if run["state_type"] == "COMPLETED"
        )
        ended = all(run["state_type"] in ("COMPLETED", "CANCELLED") for run in due)
        return (
            ended
            and completed["train"] == completed["promote"] == completed["predict"] > 0
        )


@pytest.fixture
def operator(used_home: Path, commands: Commands) -> Iterator[Operator]:
    write_inputs(used_home / "work")
    operator = Operator(used_home, commands)
    try:
        yield operator
    finally:
        operator.stop()
    assert within(lambda: processes_in(used_home) == [], 20, 0.1), processes_in(
        used_home
    )


def tool(name: str) -> str:
    """The path of a program of PostgreSQL or SQLite, or a skip with the reason."""
    found = [
        shutil.which(name),
        *sorted(
            map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), reverse=True
        ),
    ]
    paths = [path for path in found if path]
    if not paths:
        pytest.skip(f"{name} is not installed")
    return paths[0]


@pytest.mark.slow(90)
def test_one_machine_backup_restore_upgrade_and_disk(
    operator: Operator, prefect_server: None
):
    tool("sqlite3")
    assert "train/demo" in operator.follow("Start and schedule")
    operator.follow("Watch the runs")
    with receiving() as (host, received):
        operator.env["ADDRESS"] = f"json://{host}/hook"
        operator.follow("Notifications")
        assert within(operator.is_through, 240, 0.2), operator.ask(
            "flow_runs/filter"
        ).text
        (listing,) = (
            one
            for one in SECTIONS["Watch the runs"]
            if one.startswith("prefect flow-run ls")
        )
        assert "Scheduled" not in operator.run(listing)
        operator.follow("Set the champion by hand")
        operator.run("head -n 1 new.csv > none.csv")
        operator.run(
            "learnkernels predict --model demo/1 --input none.csv --output none.parquet --id key"
        )
        told = lambda: [one for one in received if one["title"] == "demo: input empty"]  # noqa: E731
        assert within(lambda: len(told()) == 1, 60, 0.1), received
        link = told()[0]["message"].splitlines()[-1]
        assert link.startswith(
            f"http://127.0.0.1:{operator.ports['4200']}/runs/flow-run/"
        )
        # As a browser asks for it
        assert httpx.get(link, headers={"Accept": "text/html"}).status_code == 200
        assert operator.state_of(link.rpartition("/")[2]) == "COMPLETED"

    operator.follow("Back up and restore", before="rm -rf")  # while everything runs
    before = tables(operator.folder / "mlflow.db")
    assert before["model_versions"] >= 1
    interrupted = operator.new_run(protocol={"folds": 3, "repeats": 200})
    assert within(lambda: operator.state_of(interrupted) == "RUNNING", 240, 0.1), (
        operator.state_of(interrupted)
    )
    operator.stop()
    of_it = f"SELECT state_type FROM flow_run WHERE id = '{interrupted}'"
    found = pd.read_sql_query(of_it, f"sqlite:///{operator.folder / DEPLOYED}")
    assert found["state_type"].tolist() == ["CRASHED"]

    operator.follow("Back up and restore", start="rm -rf")
    assert tables(operator.folder / "mlflow.db") == before
    assert tables(operator.folder / DEPLOYED)["deployment"] == 4
    del operator.env["PREFECT_API_URL"]
    # On the database that was restored; what follows, on a server that runs
    operator.run("learnkernels promote demo")
    operator.env["PREFECT_API_URL"] = str(PREFECT_API_URL.value())
    operator.run(
        "learnkernels predict --model demo@champion --input new.csv --output restored.parquet --id key"
    )
    assert len(pd.read_parquet(operator.folder / "restored.parquet")) == 7

    operator.follow("Upgrade")
    assert (
        tables(operator.folder / "mlflow.db")["model_versions"]
        == before["model_versions"]
    )
    operator.follow("Disk")
    operator.run(
        "learnkernels predict --model demo@champion --input new.csv --output after.parquet --id key"
    )
    scores = [
        pd.read_parquet(operator.folder / name)
        for name in ("restored.parquet", "after.parquet")
    ]
    pd.testing.assert_frame_equal(*scores)


def tables(database: Path) -> dict[str, int]:
    """The number of rows of each table of a SQLite file that is whole."""
    url = f"sqlite:///{database}"
    assert pd.read_sql_query("PRAGMA integrity_check", url)[
        "integrity_check"
    ].tolist() == ["ok"]
    names = pd.read_sql_query(
        "SELECT name FROM sqlite_master WHERE type = 'table'", url
    )["name"]
    return {
        name: len(pd.read_sql_query(f'SELECT 1 FROM "{name}"', url)) for name in names
    }


@pytest.fixture
def postgres(operator: Operator) -> Iterator[str]:
    """A PostgreSQL server on loopback, of a user other than root, in a folder of its own."""
    initdb, pg_ctl, *_ = map(
        tool,
        (
            "initdb",
            "pg_ctl",
            "createuser",
            "createdb",
            "dropdb",
            "pg_dump",
            "pg_restore",
        ),
    )
    as_user: list[str] = []
    folder = tempfile.mkdtemp(prefix="learnkernels-postgres-")
    if os.geteuid() == 0:  # as which PostgreSQL refuses to run
        as_user = [tool("setpriv"), "--reuid=65534", "--regid=65534", "--clear-groups"]
        os.chown(folder, 65534, 65534)
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    port = operator.ports["5432"]

    def run(*command: str) -> None:
        subprocess.run(
            [*as_user, *command],
            cwd=folder,
            env=env,
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=120,
        )

    try:
        run(
            initdb,
            "-D",
            f"{folder}/data",
            "-U",
            "operator",
            "--auth",
            "trust",
            "-E",
            "UTF8",
        )
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1"
        run(
            pg_ctl,
            "-D",
            f"{folder}/data",
            "-l",
            f"{folder}/log",
            "-o",
            options,
            "-w",
            "start",
        )
        operator.env["PGUSER"] = "operator"
        yield f"postgresql://learnkernels@127.0.0.1:{port}"
        operator.stop()
        run(pg_ctl, "-D", f"{folder}/data", "-m", "fast", "-w", "stop")
    finally:
        shutil.rmtree(folder)


@pytest.mark.slow(30)
def test_postgresql_holds_both_stores_and_comes_back_from_a_dump(
    operator: Operator, postgres: str
):
    local = operator.folder / "mlflow.db", operator.folder / DEPLOYED
    for database in local:
        database.unlink()
    operator.follow("PostgreSQL", before="dropdb")
    flows = f"http://127.0.0.1:{operator.ports['4200']}/api/flow_runs/filter"
    (run,) = httpx.post(flows, json={}, auth=key_of(operator.folder)).json()
    assert run["state_type"] == "COMPLETED"
    operator.stop()
    versions = "SELECT name, version, run_id FROM model_versions"
    stored = pd.read_sql_query(versions, f"{postgres}/mlflow")
    assert stored["name"].tolist() == ["demo"]
    assert pd.read_sql_query("SELECT name FROM flow", f"{postgres}/prefect")[
        "name"
    ].tolist() == [train.name]
    assert not any(database.exists() for database in local)
    operator.follow("PostgreSQL", start="dropdb")
    pd.testing.assert_frame_equal(
        pd.read_sql_query(versions, f"{postgres}/mlflow"), stored
    )


@pytest.mark.slow(45)
def test_authentication_keeps_strangers_out(operator: Operator):
    operator.follow("Authentication")
    prefect, tracking = (
        f"http://127.0.0.1:{operator.ports[port]}" for port in ("4200", "5000")
    )
    flows, models = (
        f"{prefect}/api/flow_runs/filter",
        f"{tracking}/api/2.0/mlflow/registered-models/get?name=demo",
    )
    for stranger in (None, ("admin", "wrong")):
        asked = [httpx.post(flows, json={}, auth=stranger)]
        asked += [httpx.get(url, auth=stranger) for url in (tracking, models)]
        assert [answer.status_code for answer in asked] == [401] * 3
    (run,) = httpx.post(flows, json={}, auth=("admin", "change-me")).json()
    assert run["state_type"] == "COMPLETED"
    found = httpx.get(models, auth=("admin", "change-me-too"))
    assert found.json()["registered_model"]["name"] == "demo"
    assert httpx.get(f"{prefect}/api/health").status_code == 200
    deploy = "learnkernels deploy small.yaml --model demo"
    unknown = {
        key: value
        for key, value in operator.env.items()
        if not key.endswith("API_AUTH_STRING")
    }
    refused = operator.forked.run(deploy, operator.folder, unknown)
    assert refused.returncode == 2, refused.stderr
    assert f"{train.name}/demo" in operator.run(deploy)


@pytest.mark.slow(20)
def test_tiles_go_to_a_dask_scheduler(operator: Operator, prefect_server: None):
    operator.env["PREFECT_API_URL"] = str(PREFECT_API_URL.value())
    said = operator.follow("Dask elsewhere")
    results = operator.folder / said.strip().splitlines()[-1].removeprefix("results: ")
    assert (results / "report.md").exists()
    assert (
        "Receive client connection"
        in (operator.folder.parent / "server0.log").read_text()
    )


@pytest.mark.slow(60)
def test_a_plain_prefect_server_takes_the_file_of_the_repository(
    operator: Operator, prefect_server: None
):
    operator.env |= {"PWD": str(operator.folder)}
    operator.follow("Prefect", before="prefect work-pool")
    operator.env["PREFECT_API_URL"] = str(PREFECT_API_URL.value())
    said = operator.follow(
        "Prefect", start="prefect work-pool", before="prefect worker"
    )
    for name in ("train/demo", "papers/papers", "promote after", "predict after"):
        assert name in said
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name("train/demo")
        assert deployment.job_variables["working_dir"] == str(operator.folder)
        operator.run(SECTIONS["Prefect"][-1])
        operator.env["S3_KEY"] = "not-to-be-shown"
        operator.follow("Credentials")
        template = client.read_work_pool("learnkernels").base_job_template
        filled = asyncio.run(
            ProcessJobConfiguration.from_template_and_values(
                template, {"env": deployment.job_variables["env"]}
            )
        )
        assert (
            filled.env.items()
            >= {
                "AWS_SECRET_ACCESS_KEY": "not-to-be-shown",
                **deployment.job_variables["env"],
            }.items()
        )
        assert "not-to-be-shown" not in json.dumps([template, deployment.job_variables])
        operator.follow("Work pools")
        churn = client.read_deployment_by_name("train/churn")
    assert (churn.work_pool_name, churn.job_variables["image"]) == (
        "images",
        "registry/learnkernels:0.3.0",
    )
    printed = yaml.safe_load(
        operator.run(
            next(one for one in SECTIONS["Prefect"] if one.endswith("--print-yaml"))
        )
    )
    assert [one["entrypoint"].rpartition(".")[2] for one in printed["deployments"]] == [
        "compare",
        "train",
        "promote",
    ]


def test_the_unit_file_is_one_that_systemd_takes(tmp_path: Path):
    unit = UNIT.read_text(encoding="utf-8")
    installed = "/srv/learnkernels/.venv/bin/learnkernels"
    assert f"{installed} up\n" in unit
    read = configparser.ConfigParser(strict=False)
    read.read_string(unit)
    assert read["Service"].keys() >= {
        "user",
        "workingdirectory",
        "execstart",
        "restart",
    }
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    here = unit.replace(installed, str(Path(sys.executable).parent / "learnkernels"))
    here = here.replace("User=learnkernels", "User=root").replace(
        "/srv/learnkernels", str(tmp_path)
    )
    file = tmp_path / "learnkernels.service"
    file.write_text(here)
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(file)], capture_output=True, text=True
    )
    assert [
        line for line in checked.stderr.splitlines() if "learnkernels" in line
    ] == []
    assert checked.returncode == 0


def test_compose_takes_its_file():
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    file = ROOT / "packaging" / "compose.yaml"
    given = dict.fromkeys(
        re.findall(r"\$\{([A-Z_]+)", file.read_text(encoding="utf-8")), "x"
    )
    checking = ["docker", "compose", "--file", str(file), "config", "--quiet"]
    if subprocess.run([*checking[:2], "version"], capture_output=True).returncode != 0:
        pytest.skip("docker has no compose")
    checked = subprocess.run(
        checking, env=os.environ | given, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr
