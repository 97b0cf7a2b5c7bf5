"""The commands of docs/operations.md, run as they stand there: on free ports, and on a problem that takes seconds."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pandas as pd
import pytest
import yaml
from prefect.settings import PREFECT_API_URL
from sqlalchemy import create_engine

from learnkernels.conf.schema import CompareConfig
from learnkernels.flows.train import train
from learnkernels.tasks.operate.children import free_port
from tests.commands import by_section, commands, not_covered
from tests.service.flows.test_notifications import receiving
from tests.system.test_deployments import home, processes_in, write_inputs  # noqa: F401
from tests.user import ROOT, environment, key_of
from tools.waiting import within

PAGE = ROOT / "docs" / "operations.md"
SECTIONS = by_section(PAGE)
PORTS = ("4200", "5000", "5432", "8786")
SERVERS = ("learnkernels up", "mlflow server", "dask scheduler", "dask worker")

RUN_HERE = {
    "On one machine",
    "Notifications",
    "PostgreSQL",
    "Authentication",
    "Dask elsewhere",
    "Back up and restore",
    "Upgrade",
    "Disk",
}
"""Sections whose commands the tests below run, all of them."""


def test_every_command_of_the_page_is_run():
    assert set(SECTIONS) == RUN_HERE
    run = [command for section in RUN_HERE for command in SECTIONS[section]]
    assert not_covered(PAGE, run) == []
    assert len(commands(PAGE)) > 30


def test_every_configuration_of_the_page_is_one():
    rest = yaml.safe_load((ROOT / "conf" / "quickstart.yaml").read_text(encoding="utf-8"))
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 5
    for block in blocks:
        assert CompareConfig.model_validate(rest | yaml.safe_load(block)).dask.elsewhere, block


def test_commands_are_read_as_a_shell_reads_them(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "```bash\nzero\n```\n# One\n```bash\n# a comment\none  --a \\\n    'b  # c'   # comment\n\n```\n"
        "```text\nnot this\n```\n## Two\n  ```bash\n  two '#'\n  ```\n"
    )
    assert by_section(page) == {"": ["zero"], "One": ["one --a 'b  # c'"], "Two": ["two '#'"]}
    assert not_covered(page, ["one --a \\\n 'b  # c'", "zero"]) == ["two '#'"]


class Operator:
    """Someone who follows the page in a working folder."""

    def __init__(self, home: Path, ports: dict[str, str]) -> None:  # noqa: F811
        self.folder = home / "work"
        self.ports = ports
        self.env = environment(home)
        self.env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self.env['PATH']}"
        self.servers: list[subprocess.Popen[bytes]] = []

    def follow(self, section: str, before: str = "") -> Iterator[str]:
        """Run the commands of a section, and give what each printed; stop in front of one that starts with a text."""
        for command in SECTIONS[section]:
            if before and command.startswith(before):
                return
            yield self.run(command)

    def run(self, command: str) -> str:
        command = re.sub(r"\b(4200|5000|5432|8786)\b", lambda port: self.ports[port.group()], command)
        command = command.replace("conf/quickstart.yaml", "small.yaml").replace(" --dataset diabetes", "")
        if command == "learnkernels up":
            command = f"{command} --prefect-port {self.ports['4200']} --mlflow-port {self.ports['5000']}"
        if command.startswith("prefect flow-run cancel"):
            return self._cancel(command)
        if "RUN_ID" in command:
            command = command.replace("RUN_ID", self._new_run())
        if command.startswith(SERVERS):
            return self._serve(command)
        if command.startswith("export "):
            shown = self._bash(f"{command}; env -0")
            self.env |= dict(line.split("=", 1) for line in shown.split("\0") if "=" in line)
            return ""
        return self._bash(command)

    def stop(self) -> None:
        while self.servers:
            process = self.servers.pop()
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=120)

    def _bash(self, command: str) -> str:
        run = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=300
        )
        assert run.returncode == 0, f"{command}\n{run.stdout}{run.stderr}"
        return run.stdout

    def _serve(self, command: str) -> str:
        log = self.folder.parent / f"server{len(self.servers)}.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(command.split(), cwd=self.folder, env=self.env, stdout=sink, stderr=sink)
        self.servers.append(process)

        def ready() -> bool:
            if command.startswith("learnkernels up"):
                return "the worker first" in log.read_text()
            if command.startswith("dask worker"):
                return "Registered to" in log.read_text()
            port = self.ports["5000" if command.startswith("mlflow") else "8786"]
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", int(port))) == 0

        assert within(lambda: ready() or process.poll() is not None, 240), log.read_text()
        assert process.poll() is None, log.read_text()
        return log.read_text()

    def _cancel(self, command: str) -> str:
        """Cancel a run that has worker processes, which go with it."""
        run_id = self._new_run(protocol={"folds": 3, "repeats": 1000}, dask={"workers": 2})
        workers = lambda: [one for one in processes_in(self.folder) if "spawn_main" in one]  # noqa: E731
        assert within(lambda: len(workers()) >= 2, 240), processes_in(self.folder)
        said = self._bash(command.replace("RUN_ID", run_id))
        state = lambda: httpx.get(f"{self.env['PREFECT_API_URL']}/flow_runs/{run_id}", auth=key_of(self.folder)).json()  # noqa: E731
        assert within(lambda: state()["state_type"] == "CANCELLED", 120), state()
        assert within(lambda: workers() == [], 30), workers()
        return said

    def _new_run(self, **changes: dict[str, int]) -> str:
        """A run of the training, just asked for, with other keys of the configuration."""
        api = self.env["PREFECT_API_URL"]
        user, _, password = self.env["PREFECT_API_AUTH_STRING"].partition(":")
        auth = (user, password)
        (found,) = [
            one
            for one in httpx.post(f"{api}/deployments/filter", json={}, auth=auth).json()
            if one["entrypoint"] == "learnkernels.flows.train.train"
        ]
        given = {"parameters": {"config": found["parameters"]["config"] | changes}} if changes else {}
        replies: list[httpx.Response] = []

        def accepted() -> bool:
            replies.append(httpx.post(f"{api}/deployments/{found['id']}/create_flow_run", json=given, auth=auth))
            return replies[-1].is_success

        # SQLite may be locked by another writer for a moment, and the server says so.
        assert within(accepted, 60), replies[-1].text if replies else "no answer"
        return str(replies[-1].json()["id"])

    def is_through(self) -> bool:
        """Whether all that deployments were asked for has ended, each training with what follows it."""
        asked = {"deployments": {"name": {"any_": ["demo"]}}}
        runs = httpx.post(f"{self.env['PREFECT_API_URL']}/flow_runs/filter", json=asked, auth=key_of(self.folder))
        if not runs.is_success:
            return False
        due = [run for run in runs.json() if not run["auto_scheduled"]]
        completed = Counter(run["name"].partition("-")[0] for run in due if run["state_type"] == "COMPLETED")
        ended = all(run["state_type"] in ("COMPLETED", "CANCELLED") for run in due)
        return ended and completed["train"] == completed["promote"] == completed["predict"] > 0


@pytest.fixture
def operator(home: Path) -> Iterator[Operator]:  # noqa: F811
    write_inputs(home / "work")
    operator = Operator(home, {name: str(free_port()) for name in PORTS})
    try:
        yield operator
    finally:
        operator.stop()
    assert within(lambda: processes_in(home) == [], 20), processes_in(home)


def tool(name: str) -> str:
    """The path of a program of PostgreSQL or SQLite, or a skip with the reason."""
    found = [shutil.which(name), *sorted(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), reverse=True)]
    paths = [path for path in found if path]
    if not paths:
        pytest.skip(f"{name} is not installed")
    return paths[0]


@pytest.mark.slow(180)
def test_one_machine_backup_restore_upgrade_and_disk(operator: Operator, prefect_server: None):
    tool("sqlite3")
    said = "".join(operator.follow("On one machine"))
    assert "train-kernel-model/demo" in said
    with receiving() as (host, received):
        for command in SECTIONS["Notifications"]:
            operator.env["ADDRESS"] = f"{'http' if 'blocks.webhook' in command else 'json'}://{host}/hook"
            operator.run(command)
        operator.run("learnkernels train small.yaml --register demo")
        operator.run("head -n 1 new.csv > none.csv")
        operator.run("learnkernels predict --model demo/1 --input none.csv --output none.parquet --id key")
        told = lambda: [one for one in received if "demo: input empty" in one.values()]  # noqa: E731
        assert within(lambda: len(told()) == 2, 60), received

    assert within(operator.is_through, 240)  # a run that the stop cuts off says so after the copy is made
    list(operator.follow("Back up and restore", before="rm -rf"))  # while everything runs
    operator.stop()
    before = tables(operator.folder / "mlflow.db")
    assert before["model_versions"] >= 1
    restore = SECTIONS["Back up and restore"]
    for command in restore[[command.startswith("rm -rf") for command in restore].index(True) :]:
        operator.run(command)
    assert tables(operator.folder / "mlflow.db") == before
    assert tables(operator.folder / ".learnkernels/prefect/prefect.db")["deployment"] == 4
    del operator.env["PREFECT_API_URL"]
    operator.run("learnkernels promote demo")  # on the database that was restored; what follows, on a server that runs
    operator.env["PREFECT_API_URL"] = str(PREFECT_API_URL.value())
    operator.run("learnkernels predict --model demo@champion --input new.csv --output restored.parquet --id key")
    assert len(pd.read_parquet(operator.folder / "restored.parquet")) == 7

    list(operator.follow("Upgrade"))
    assert tables(operator.folder / "mlflow.db")["model_versions"] == before["model_versions"]
    list(operator.follow("Disk"))
    operator.run("learnkernels predict --model demo@champion --input new.csv --output after.parquet --id key")
    pd.testing.assert_frame_equal(
        *(pd.read_parquet(operator.folder / name) for name in ("restored.parquet", "after.parquet"))
    )


def tables(database: Path) -> dict[str, int]:
    """The number of rows of each table of a SQLite file that is whole."""
    connection = sqlite3.connect(database)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names}
    finally:
        connection.close()


@pytest.fixture
def postgres(operator: Operator) -> Iterator[str]:
    """A PostgreSQL server on loopback, of a user other than root, in a folder of its own."""
    initdb, pg_ctl = tool("initdb"), tool("pg_ctl")
    for name in ("createuser", "createdb", "dropdb", "pg_dump", "pg_restore"):
        tool(name)
    as_user: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("PostgreSQL refuses to run as root, and there is no setpriv to become somebody else")
        as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    folder = tempfile.mkdtemp(prefix="learnkernels-postgres-")
    if as_user:
        os.chown(folder, 65534, 65534)
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    port = operator.ports["5432"]

    def run(*command: str) -> None:
        subprocess.run([*as_user, *command], cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL, timeout=120)

    try:
        run(initdb, "-D", f"{folder}/data", "-U", "operator", "--auth", "trust", "-E", "UTF8")
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1"
        run(pg_ctl, "-D", f"{folder}/data", "-l", f"{folder}/log", "-o", options, "-w", "start")
        try:
            operator.env["PGUSER"] = "operator"
            yield f"postgresql://learnkernels@127.0.0.1:{port}"
        finally:
            operator.stop()
            run(pg_ctl, "-D", f"{folder}/data", "-m", "fast", "-w", "stop")
    finally:
        shutil.rmtree(folder)


@pytest.mark.slow(35)
def test_postgresql_holds_both_stores_and_comes_back_from_a_dump(operator: Operator, postgres: str):
    local = operator.folder / "mlflow.db", operator.folder / ".learnkernels/prefect/prefect.db"
    for database in local:
        database.unlink()
    list(operator.follow("PostgreSQL", before="dropdb"))
    api = f"http://127.0.0.1:{operator.ports['4200']}/api"
    (run,) = httpx.post(f"{api}/flow_runs/filter", json={}, auth=key_of(operator.folder)).json()
    assert run["state_type"] == "COMPLETED"
    operator.stop()
    versions = "SELECT name, version, run_id FROM model_versions"
    stored = rows(f"{postgres}/mlflow", versions)
    assert stored["name"].tolist() == ["demo"]
    assert rows(f"{postgres}/prefect", "SELECT name FROM flow")["name"].tolist() == [train.name]
    assert not any(database.exists() for database in local)
    commands = SECTIONS["PostgreSQL"]
    for command in commands[[command.startswith("dropdb") for command in commands].index(True) :]:
        operator.run(command)
    pd.testing.assert_frame_equal(rows(f"{postgres}/mlflow", versions), stored)


def rows(database: str, query: str) -> pd.DataFrame:
    engine = create_engine(database)
    try:
        with engine.connect() as connection:
            return pd.read_sql_query(query, connection)
    finally:
        engine.dispose()


@pytest.mark.slow(90)
def test_authentication_keeps_strangers_out(operator: Operator):
    list(operator.follow("Authentication"))
    prefect, mlflow = (f"http://127.0.0.1:{operator.ports[port]}" for port in ("4200", "5000"))
    flows, models = f"{prefect}/api/flow_runs/filter", f"{mlflow}/api/2.0/mlflow/registered-models/get?name=demo"
    assert httpx.post(flows, json={}).status_code == 401
    assert httpx.post(flows, json={}, auth=("admin", "wrong")).status_code == 401
    (run,) = httpx.post(flows, json={}, auth=("admin", "change-me")).json()
    assert run["state_type"] == "COMPLETED"
    assert httpx.get(mlflow).status_code == 401
    assert httpx.get(models).status_code == 401
    assert httpx.get(models, auth=("admin", "wrong")).status_code == 401
    found = httpx.get(models, auth=("admin", "change-me-too"))
    assert found.json()["registered_model"]["name"] == "demo"
    assert httpx.get(f"{prefect}/api/health").status_code == 200
    deploy = "learnkernels deploy small.yaml --register demo"
    unknown = {key: value for key, value in operator.env.items() if not key.endswith("API_AUTH_STRING")}
    refused = subprocess.run(deploy.split(), cwd=operator.folder, env=unknown, capture_output=True, text=True)
    assert refused.returncode == 2, refused.stderr
    assert f"{train.name}/demo" in operator.run(deploy)


@pytest.mark.slow(40)
def test_tiles_go_to_a_dask_scheduler(operator: Operator, prefect_server: None):
    operator.env["PREFECT_API_URL"] = str(PREFECT_API_URL.value())
    *_, said = operator.follow("Dask elsewhere")
    results = operator.folder / said.strip().splitlines()[-1].removeprefix("results: ")
    assert (results / "report.md").exists()
    assert "Receive client connection" in (operator.folder.parent / "server0.log").read_text()


def test_the_unit_file_is_one_that_systemd_takes(tmp_path: Path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    (unit,) = re.findall(r"```ini\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert "/srv/learnkernels/.venv/bin/learnkernels up\n" in unit
    learnkernels = Path(sys.executable).parent / "learnkernels"
    here = unit.replace("/srv/learnkernels/.venv/bin/learnkernels", str(learnkernels)).replace(
        "User=learnkernels", "User=root"
    )
    (tmp_path / "learnkernels.service").write_text(here.replace("/srv/learnkernels", str(tmp_path)))
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "learnkernels.service")], capture_output=True, text=True
    )
    ours = [line for line in checked.stderr.splitlines() if "learnkernels" in line]
    assert ours == []
    assert checked.returncode == 0
