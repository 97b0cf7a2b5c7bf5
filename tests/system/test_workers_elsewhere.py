"""Workers on other machines: what they get of the rows, which of them are refused, and what starts them."""

from __future__ import annotations

import gc
import inspect
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import httpx
import numpy as np
import psutil
import pytest
import yaml
from distributed import Worker

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DaskConfig
from learnkernels.kernels.engine.workers import SelectedRows, Threads, spans
from learnkernels.tasks.data import row_files
from learnkernels.tasks.data.row_files import RowFile, RowParts, content_digest
from learnkernels.tasks.environment import QUIET
from learnkernels.tasks.operate.children import free_port
from learnkernels.tasks.workers.cluster import DaskPool
from tests.elsewhere import ROOT, another_machine, hideable
from tests.service.tasks.test_cluster import codes_of_pages, listening
from tools.distributions import FILES, FOLDERS
from tools.waiting import within

if TYPE_CHECKING:
    from tests.service.conftest import S3


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows of five numbers 16 a part."""
    monkeypatch.setattr(row_files, "PART_BYTES", 16 * 5 * 8)


def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(90, 5))


# Rows ----------------------------------------------------------------------------------------------------------------


def product(X: Any, V: np.ndarray, span: tuple[int, int]) -> np.ndarray:
    run = X[slice(*span)]
    return np.asarray(run.T @ (run @ V))


@pytest.mark.usefixtures("small_parts")
def test_rows_in_parts_are_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(row_files, "BATCH_BYTES", 4 * 5 * 8)
    X = rows()
    parts = RowParts.write(str(tmp_path / "run" / "rows"), X)
    assert len(list((tmp_path / "run" / "rows").iterdir())) == 6
    some = np.random.default_rng(1).permutation(90)[:70]
    for at in (slice(0, 90), slice(15, 18), slice(4, 4), some, some[:0]):
        np.testing.assert_array_equal(parts[at], X[at])
    np.testing.assert_array_equal(SelectedRows(parts, some, X[3])[10:20], X[some[10:20]] - X[3])  # type: ignore[arg-type]
    file = RowFile.write(tmp_path / "one.arrow", X)
    np.testing.assert_array_equal(file[some], X[some])
    assert content_digest(X) == content_digest(file)
    assert content_digest(X) != content_digest(X[::-1])


@pytest.mark.usefixtures("small_parts")
def test_rows_reach_workers_elsewhere_once_and_are_gone_at_the_end(s3: S3, tmp_path: Path):
    hidden = hideable(tmp_path / "hidden")
    X, V, some = rows(), np.eye(5), np.random.default_rng(1).permutation(90)[:70]
    seen = tmp_path / "seen"

    def copies(dask_worker: Worker) -> int:
        return len(list(Path(dask_worker.local_directory).rglob("*.arrow")))

    with another_machine(tmp_path / "machine", hidden=hidden) as address:
        for where in (str(seen), "s3://rows/scratch"):
            with DaskPool(DaskConfig(scheduler=address, rows=where)) as pool:
                pool.require_usable()
                for origin in (np.zeros(5), np.full(5, 0.5)):
                    held = pool.workers.hold(X, some, origin)
                    assert isinstance(held, SelectedRows)
                    assert isinstance(held.X, RowParts)
                    found = pool.workers.total(product, pool.workers.share(held), V, spans(70, 7))
                    there = Threads(1).total(product, X[some] - origin, V, spans(70, 7))
                    np.testing.assert_allclose(found, there, rtol=1e-12)  # sums of 70 rows in another order
                assert isinstance(pool.workers.hold(X.copy(), None, np.zeros(5)), RowParts)
                written = [path.name for path in seen.rglob("*")] if where == str(seen) else s3.keys()
                assert len([name for name in written if name.endswith(".arrow")]) == 6  # of three times the same rows
                copied = pool.client.run(copies).values()
                assert max(copied) <= (0 if where == str(seen) else 6)
                assert sum(copied) >= (0 if where == str(seen) else 6)
            left = [*seen.rglob("*"), *(tmp_path / "machine").rglob("*.arrow")]
            assert not [name for name in (*map(str, left), *s3.keys()) if name.endswith(".arrow")]
        if hidden is None:
            pytest.skip("folders cannot be hidden from a process here, for want of the right to mount")
        sentence = r"^dask\.rows: the worker at tcp://.* cannot read there \(.*correct the path\); give a place"
        with (
            DaskPool(DaskConfig(scheduler=address, rows=str(hidden))) as pool,
            pytest.raises(InputError, match=sentence),
        ):
            pool.workers.hold(X, None, np.zeros(5))
    assert not list(hidden.rglob("*.arrow"))


@pytest.mark.usefixtures("small_parts")
def test_a_server_of_objects_may_be_away_for_a_while(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    X, waited = rows(), []
    parts = RowParts.write("s3://rows/run/rows", X)
    s3.server.stop()

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            s3.start()  # its objects are in this process

    monkeypatch.setattr(row_files.time, "sleep", wait)
    monkeypatch.setattr(row_files, "copies", lambda: tmp_path)
    np.testing.assert_array_equal(parts[20:60], X[20:60])
    assert waited == [1, 2]


# Who they are --------------------------------------------------------------------------------------------------------


OTHER = rf"^dask: the worker at tcp://.* has numpy 1\.0\.0 and not {np.__version__}; install there"


@pytest.fixture
def other_version(tmp_path: Path) -> Path:
    """A folder by which a process takes its NumPy for an old one."""
    about = tmp_path / "other" / "numpy-1.0.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.0.0\n")
    return about.parent


def test_a_worker_of_another_version_is_refused(tmp_path: Path, other_version: Path):
    with (
        another_machine(tmp_path / "machine", path=other_version) as address,
        pytest.warns(match="Mismatched versions found"),  # which Dask itself prints
        DaskPool(DaskConfig(scheduler=address)) as pool,
        pytest.raises(InputError, match=OTHER),
    ):
        pool.require_usable()


def test_a_worker_of_another_version_that_joins_during_trials_is_refused(tmp_path: Path, other_version: Path):
    newcomer: list[subprocess.Popen[bytes]] = []

    def join(share: float) -> None:
        if not newcomer:
            where = ["--host", "127.0.0.1", "--local-directory", str(tmp_path / "newcomer")]
            command = [sys.executable, "-m", "dask", "worker", address, "--no-nanny", *where]
            env = os.environ | {"PYTHONPATH": f"{other_version}:{ROOT}"}
            newcomer.append(subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL))
            assert within(lambda: len(pool.client.scheduler_info(n_workers=-1)["workers"]) == 3, 60)

    with another_machine(tmp_path / "machine") as address, DaskPool(DaskConfig(scheduler=address)) as pool:
        pool.require_usable()
        try:
            with pytest.raises(InputError, match=OTHER):
                pool.map(abs, [-1, -2], join)
        finally:
            for process in newcomer:
                process.terminate()
                process.wait(30)


SAID: dict[str, Any] = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": 300}

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
CONTAINERFILE = (ROOT / "Containerfile").read_text(encoding="utf-8")
SETTINGS = {
    name: value
    for line in re.findall(r"^ENV (.*?[^\\])$", CONTAINERFILE, re.MULTILINE | re.DOTALL)
    for name, value in (one.split("=") for one in line.replace("\\\n", " ").split())
    if name != "LEARNKERNELS_HOME"
}
"""What an image has in its environment."""


def dask_of(service: str) -> dict[str, str]:
    """What a container has of Dask's configuration in its environment."""
    return {k: v for k, v in COMPOSE["services"][service]["environment"].items() if k.startswith("DASK_")}


def command_of(service: str, folder: Path, port: int) -> list[str]:
    """Return the command of one of Dask's containers, with its keys and the scheduler at places of this machine."""
    container = COMPOSE["services"][service]
    words = [word.replace("/keys", str(folder)) for word in (*container["entrypoint"], *container["command"])]
    words = [word.replace("scheduler:8786", f"127.0.0.1:{port}").replace("/tmp/dask", str(folder)) for word in words]
    return [sys.executable, "-m", *(str(port) if word == "8786" else word for word in words), "--host", "127.0.0.1"]


def keys_in(folder: Path) -> dict[str, str]:
    """Make a pair of keys by the command of the page, and say where they are."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    (make,) = re.findall(r"openssl req .*?-out keys/cert\.pem", page, re.DOTALL)
    (folder / "keys").mkdir(parents=True)
    subprocess.run(["sh", "-c", make], cwd=folder, check=True, capture_output=True)
    cert, key = (str(folder / "keys" / name) for name in ("cert.pem", "key.pem"))
    return {"ca": cert, "cert": cert, "key": key}


TRACE = """
import sys
import numpy as np
from learnkernels.tasks.workers.cluster import DaskPool
from learnkernels.conf.schema import DaskConfig
with DaskPool(DaskConfig(scheduler=sys.argv[1], timeout=30.0)) as pool:
    pool.require_usable()
    print(pool.map(np.trace, [np.eye(3)], lambda share: None)[0])
"""


@pytest.mark.slow(30)
def test_containers_speak_with_who_has_their_key_and_nobody_else(tmp_path: Path):
    paths, others, port = keys_in(tmp_path), keys_in(tmp_path / "stranger"), free_port()
    config: dict[str, Any] = {"scheduler": f"tls://127.0.0.1:{port}", "timeout": 30.0}
    started = []
    try:
        for service in ("scheduler", "worker"):
            started.append(subprocess.Popen(command_of(service, tmp_path / "keys", port), stderr=subprocess.DEVNULL))
        with DaskPool(DaskConfig(**config, certificates=paths)) as pool:
            pool.require_usable()
            assert pool.workers.total(product, pool.workers.share(np.eye(3)), np.eye(3), [(0, 3)]).trace() == 3
        env = {name: value.replace("/keys", str(tmp_path / "keys")) for name, value in dask_of("flows").items()}
        ours = subprocess.run([sys.executable, "-c", TRACE, config["scheduler"]], env=os.environ | env, **SAID)
        assert ours.stdout == "3.0\n", ours.stderr
        for stranger in (others, others | {"ca": paths["ca"]}):  # who trusts the containers is not trusted by them
            with pytest.raises(InputError, match=r"^dask\.scheduler: no Dask scheduler answers at tls://"):
                DaskPool(DaskConfig(**config | {"timeout": 2.0}, certificates=stranger)).require_usable()
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read (No such file or directory)"),
        ("not that", "is no file of PEM's format; correct the path"),
    ],
)
def test_certificates_are_read_before_anybody_is_asked(tmp_path: Path, content: str | None, sentence: str):
    key = tmp_path / "key.pem"
    if content is not None:
        key.write_text(content)
    (tmp_path / "cert.pem").write_text("-----BEGIN CERTIFICATE-----")
    paths = {"ca": str(tmp_path / "cert.pem"), "cert": str(tmp_path / "cert.pem"), "key": str(key)}
    with pytest.raises(InputError, match=rf"^dask\.certificates\.key: {key} {re.escape(sentence)}"):
        DaskPool(DaskConfig(scheduler="tls://127.0.0.1:1", certificates=paths)).require_usable()


def test_containers_publish_on_this_machine_alone_and_have_no_password_by_default():
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    assert compose["networks"]["inner"] == {"internal": True}
    published = {name for name, container in compose["services"].items() if "outer" in container["networks"]}
    assert published == {"prefect", "mlflow"}
    for name, container in compose["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in container.get("ports", []))
        assert ("ports" in container) == (name in published)
        secrets = {
            k: v for k, v in container.get("environment", {}).items() if re.search("PASSWORD|SECRET|AUTH_STR", k)
        }
        assert all(re.search(r"\$\{[A-Z_]+:\?", value) for value in secrets.values()), secrets
        assert not [word for word in container.get("command", []) if "PASSWORD" in word]  # which ps shows
    asked = set(re.findall(r"\$\{([A-Z_]+)", (ROOT / "compose.yaml").read_text(encoding="utf-8")))
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    (loop,) = re.findall(r"for name in ([A-Z ]+); do", page)
    assert asked == {f"{name}_PASSWORD" for name in loop.split()} | {"MLFLOW_SECRET"}


@pytest.mark.slow(60)
@pytest.mark.parametrize("service", ["prefect", "mlflow"])
def test_servers_of_containers_start_are_healthy_and_ask_who_is_there(tmp_path: Path, service: str):
    """As they stand in the file, but for the host, the port, the database and the folder of this machine."""
    container, port = COMPOSE["services"][service], str(free_port())
    here = {container["ports"][0].rpartition(":")[2]: port, "0.0.0.0": "127.0.0.1", "/srv/learnkernels": str(tmp_path)}

    def at_home(text: str) -> str:
        return re.sub("|".join(map(re.escape, here)), lambda found: here[found.group()], text)

    program = str(Path(sys.executable).with_name(container["entrypoint"][0]))
    command = [program, *map(at_home, container["command"])]
    env = {name: re.sub(r"\$\{\w+:.*?\}", "hidden" * 5, value) for name, value in container["environment"].items()}
    database = "PREFECT_SERVER_DATABASE_CONNECTION_URL" if service == "prefect" else "MLFLOW_BACKEND_STORE_URI"
    assert env[database].startswith("postgresql")
    env[database] = f"sqlite{'+aiosqlite' * (service == 'prefect')}:///{tmp_path}/{service}.db"
    env |= SETTINGS | {"PREFECT_HOME": str(tmp_path), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    healthy = [at_home(word) for word in container["healthcheck"]["test"][1:]]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(command, env=env, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True) as server,
    ):
        try:
            answers = lambda: subprocess.run(healthy, capture_output=True).returncode == 0  # noqa: E731
            assert within(lambda: answers() or server.poll() is not None, 240), (tmp_path / "log").read_text()
            assert server.poll() is None, (tmp_path / "log").read_text()
            page = "/api/admin/version" if service == "prefect" else "/api/2.0/mlflow/experiments/get?experiment_id=0"
            for auth, code in ((None, 401), (("admin", "wrong"), 401), (("admin", "hidden" * 5), 200)):
                assert httpx.get(f"http://127.0.0.1:{port}{page}", auth=auth, timeout=60).status_code == code, auth
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGTERM)


def test_images_are_of_one_version():
    named = [container["image"] for container in COMPOSE["services"].values() if "build" not in container]
    named += re.findall(r"^FROM (\S+)", CONTAINERFILE, re.MULTILINE)
    assert len(named) == 4
    for image in named:
        assert re.fullmatch(r"[\w./-]+:(\d+\.\d+(\.\d+-slim-\w+)?|RELEASE\.[\dTZ-]+)", image), image


def test_an_image_is_made_of_what_the_package_is_made_of_and_has_no_layer_of_it():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    rules = [line for line in ignored if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule.removeprefix("!") for rule in rules if rule.startswith("!")} == {*FOLDERS, *FILES, "constraints.txt"}
    made, image = re.split(r"(?m)^FROM ", CONTAINERFILE)[1:]
    assert "COPY . " in made
    assert not re.search(r"^(COPY|ADD) ", image, re.MULTILINE)
    assert "--mount=type=bind,from=wheel" in image


def test_images_are_as_silent_as_the_command_and_workers_wait_for_no_memory():
    said = {name for name, value in SETTINGS.items() if QUIET.get(name) == value}
    assert {"DO_NOT_TRACK", "MLFLOW_DISABLE_TELEMETRY", "PREFECT_SERVER_ANALYTICS_ENABLED"} <= said
    assert "MLFLOW_SERVER_ENABLE_JOB_EXECUTION" in said
    read = dask.config.collect_env(SETTINGS)
    assert read == {"distributed": {"worker": {"memory": {"pause": False}}}}


def test_a_table_lies_where_its_container_looks_and_goes_to_the_cluster():
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").replace("\\\n", "")
    ((folder, changes),) = re.findall(r'"\$PWD/table\.csv:(\S+)/table\.csv:ro" flows compare table\.csv (.*)', page)
    assert re.search(r"^WORKDIR (\S+)$", CONTAINERFILE, re.MULTILINE)[1] == folder
    given = dict(change.removeprefix("dask.").split("=") for change in re.findall(r"--set (\S+)", changes))
    assert DaskConfig.model_validate(given).scheduler == COMPOSE["services"]["worker"]["command"][1]
    assert given["rows"].startswith("s3://rows/")
    assert COMPOSE["services"]["flows"]["entrypoint"] == ["learnkernels"]


def test_flows_wait_until_servers_are_healthy():
    for name, container in COMPOSE["services"].items():
        for other, on in container.get("depends_on", {}).items() if name in ("flows", "prefect", "mlflow") else ():
            healthy = "healthcheck" in COMPOSE["services"][other]
            assert on["condition"] == ("service_healthy" if healthy else "service_started"), (name, other)
    assert "127.0.0.1" in COMPOSE["services"]["database"]["healthcheck"]["test"]


# Pods ----------------------------------------------------------------------------------------------------------------


def test_an_image_has_the_commands_of_pods(tmp_path: Path):
    (make,) = re.findall(r"^RUN (for name in scheduler worker.*?done)$", CONTAINERFILE, re.MULTILINE | re.DOTALL)
    subprocess.run(["sh", "-c", make.replace("/usr/local/bin", str(tmp_path))], check=True)
    assert not re.search("^ENTRYPOINT", CONTAINERFILE, re.MULTILINE)  # which would be given them as arguments
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    for name in ("dask-scheduler", "dask-worker"):
        run = subprocess.run([str(tmp_path / name), "--help"], env=os.environ | {"PATH": path}, **SAID)
        assert f"Usage: dask {name.removeprefix('dask-')}" in run.stdout, run.stderr


def documented(cluster: str) -> dict[str, Any]:
    """The options of a kind of cluster on the page."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    (options,) = [block["dask"]["options"] for block in blocks if block["dask"].get("cluster") == cluster]
    return dict(options)


def test_the_options_of_pods_on_the_page_are_those_of_dask_kubernetes():
    kubernetes = pytest.importorskip(
        "dask_kubernetes.operator", reason="dask-kubernetes, of the extra, is not installed"
    )
    signature = inspect.signature(kubernetes.KubeCluster)
    options = documented("kubernetes")
    signature.bind(n_workers=8, **options)
    assert options.keys() <= signature.parameters.keys()
    called = kubernetes.make_cluster_spec(name="rows", image=options["image"], env=options["env"])["spec"]
    containers = [called[part]["spec"]["containers"][0] for part in ("scheduler", "worker")]
    for container in containers:
        assert "command" not in container
        assert container["args"][0] == f"dask-{container['name']}"  # which the image has
        assert options["env"][0] in container["env"]


# Who starts them -----------------------------------------------------------------------------------------------------

SBATCH = """#!/bin/sh
for last; do :; done
sh "$last" >/dev/null 2>&1 &
echo $! >> "$JOBS"
echo "Submitted batch job $!"
"""


@pytest.mark.filterwarnings("ignore:unclosed file.*dask-jobqueue:ResourceWarning")  # which it leaves to be collected
def test_slurm_is_asked_for_workers_and_told_that_they_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue, of the extra clusters, is not installed")
    for name, text in (("sbatch", SBATCH), ("scancel", '#!/bin/sh\nkill "$@"\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("JOBS", str(tmp_path / "jobs"))
    options = documented("slurm") | {"interface": "lo", "log_directory": str(tmp_path)}
    options |= {
        "memory": "1GiB",
        "shared_temp_directory": str(tmp_path),
        "scheduler_options": {"dashboard_address": ":0"},
    }
    config = DaskConfig(cluster="slurm", workers=2, options=options, timeout=60.0)
    before = set(listening(os.getpid()))
    with DaskPool(config) as pool:
        pool.require_usable()
        assert not pool.local
        pids = pool.client.run(os.getpid)
        assert all(address.startswith("tls://") for address in pids)
        assert set(pool.client.run(dask.config.get, "distributed.worker.memory.pause").values()) == {False}
        ports = {at for pid in (os.getpid(), *pids.values()) for at in listening(pid)} - before
        assert codes_of_pages(ports) == {404}
        total = pool.workers.total(product, pool.workers.share(np.eye(3)), np.eye(3), [(0, 1), (1, 3)])
        np.testing.assert_array_equal(total, np.eye(3))
    assert len((tmp_path / "jobs").read_text().split()) == 2
    assert within(lambda: not any(map(psutil.pid_exists, pids.values())), 20)
    del pool
    gc.collect()


SSHD = """
import asyncio, os, signal, subprocess, sys
import asyncssh

class NoPassword(asyncssh.SSHServer):
    def connection_made(self, connection):
        print("user", connection.get_extra_info("peername")[0], file=sys.stderr, flush=True)

async def run(process):
    child = await asyncio.create_subprocess_shell(
        process.command, stdin=None, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    await process.redirect(stdout=child.stdout, stderr=child.stderr)
    ended, left = asyncio.create_task(child.wait()), asyncio.create_task(process.wait_closed())
    await asyncio.wait([ended, left], return_when=asyncio.FIRST_COMPLETED)
    if child.returncode is None:
        os.killpg(child.pid, signal.SIGTERM)
    process.exit(await child.wait() or 0)

async def main(folder):
    server = await asyncssh.listen(
        "127.0.0.1", 0, server_factory=NoPassword, server_host_keys=[f"{folder}/host"], encoding=None,
        authorized_client_keys=f"{folder}/user.pub", process_factory=run,
    )
    print(server.get_port(), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until our end is closed

asyncio.run(main(sys.argv[1]))
"""
"""A server of SSH on loopback, which runs what it is told for who has the key."""


def test_workers_are_started_by_ssh_and_gone_afterwards(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    asyncssh = pytest.importorskip("asyncssh", reason="asyncssh, of the extra clusters, is not installed")
    for name in ("host", "user"):
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(tmp_path / name)
        key.write_public_key(tmp_path / f"{name}.pub")
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SSHD, str(tmp_path)], stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port = int(server.stdout.readline())
        (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {(tmp_path / 'host.pub').read_text()}")
        connect = {"port": port, "known_hosts": str(tmp_path / "known"), "client_keys": [str(tmp_path / "user")]}
        options = {"hosts": ["127.0.0.1"] * 3, "connect_options": connect, "worker_options": {"nthreads": 1}}
        options |= {"scheduler_options": {"port": 0}}
        with DaskPool(DaskConfig.model_validate({"cluster": "ssh", "options": options, "timeout": 60.0})) as pool:
            pool.require_usable()
            assert not pool.local
            pool.client.wait_for_workers(2, timeout=60)  # work begins with the first
            pids = [*pool.client.run(os.getpid).values(), pool.client.run_on_scheduler(os.getpid)]
            assert len(pids) == 3
            assert codes_of_pages(at for pid in pids for at in listening(pid)) == {404}
            total = pool.workers.total(product, pool.workers.share(np.eye(3)), np.eye(3), [(0, 1), (1, 3)])
            np.testing.assert_array_equal(total, np.eye(3))
        assert within(lambda: not any(map(psutil.pid_exists, pids)), 20)
        server.stdin.close()
    assert capfd.readouterr().err.count("user 127.0.0.1") >= 3


def without(package: str) -> Callable[[str], Any]:
    from importlib import import_module

    def imported(name: str) -> Any:
        if name.partition(".")[0].replace("_", "-") == package:
            raise ImportError(name)
        return import_module(name)

    return imported


@pytest.mark.parametrize(
    ("cluster", "package", "options"),
    [("kubernetes", "dask-kubernetes", {}), ("slurm", "dask-jobqueue", {}), ("ssh", "asyncssh", {"hosts": ["a", "b"]})],
)
def test_what_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, cluster: Any, package: str, options: dict[str, Any]
):
    monkeypatch.setattr("learnkernels.tasks.workers.connecting.import_module", without(package))
    sentence = rf"needs the package {package}, which is not installed; .* pip install 'learnkernels\[clusters\]'$"
    with pytest.raises(InputError, match=sentence):
        DaskPool(DaskConfig(cluster=cluster, workers=1, options=options)).require_usable()


@pytest.mark.filterwarnings("ignore:Exception ignored in. <function Cluster.__del__")  # of what Dask could not make
def test_options_that_a_cluster_does_not_take_are_named():
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue, of the extra clusters, is not installed")
    sentence = r"^dask\.cluster: SLURMCluster cannot start workers \(.*cores.*\); correct dask\.options"
    with pytest.raises(InputError, match=sentence):
        DaskPool(DaskConfig(cluster="slurm", workers=1, options={"queue": "long"})).require_usable()
