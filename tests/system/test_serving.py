"""Both servers behind their guard: what programs of ours, strangers and pages of other places can do."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from sqlalchemy import text
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from learnkernels.conf.errors import InputError
from learnkernels.tasks.environment import folder_key, key_file, servers_note, show_key
from learnkernels.tasks.operate import serving
from learnkernels.tasks.operate.children import free_port
from learnkernels.tasks.operate.guard import Message, Receive, Send
from learnkernels.tasks.operate.serving import write_in_turn
from tests.system.test_screenshots import shots
from tests.user import environment
from tools.waiting import within

SERVING = [sys.executable, "-m", "learnkernels.tasks.operate.serving"]
KEY_SETTINGS = ("PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
READ = {"prefect": "/api/flows/filter", "mlflow": "/api/2.0/mlflow/experiments/search"}
WRITE = {
    "prefect": ("/api/flows/", {"name": "planted"}),
    "mlflow": ("/api/2.0/mlflow/experiments/create", {"name": "planted"}),
}


class Servers:
    """Prefect and MLflow of one folder."""

    def __init__(self, folder: Path) -> None:
        (folder / "home").mkdir()
        (folder / "work").mkdir()
        self.env = environment(folder) | {"MLFLOW_BACKEND_STORE_URI": f"sqlite:///{folder}/mlflow.db"}
        self.work = folder / "work"
        self.log = folder / "log"
        self.ports = {name: free_port() for name in ("prefect", "mlflow")}
        self.processes = {name: self.start(name) for name in self.ports}

    def start(self, name: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            command = [*SERVING, name, str(self.ports[name])]
            return subprocess.Popen(command, cwd=self.work, env=self.env, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    @property
    def key(self) -> tuple[str, str]:
        user, _, key = (self.work / ".learnkernels" / "key").read_text().partition(":")
        return user, key

    def names(self, name: str) -> list[str]:
        """What there is on a server: flows of Prefect, experiments of MLflow."""
        found = httpx.post(
            self.url(name) + READ[name], json={"max_results": 100} if name == "mlflow" else {}, auth=self.key
        )
        found.raise_for_status()
        return [one["name"] for one in (found.json() if name == "prefect" else found.json()["experiments"])]

    def healthy(self) -> bool:
        pages = {"prefect": "/api/health", "mlflow": "/health"}
        return all(httpx.get(self.url(name) + page).status_code == 200 for name, page in pages.items())


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    started = Servers(tmp_path_factory.mktemp("servers"))
    try:
        assert within(started.healthy, 240), started.log.read_text()
        yield started
    finally:
        for process in started.processes.values():
            process.kill()
            process.wait()


@pytest.mark.slow(10)
@pytest.mark.parametrize("name", ["prefect", "mlflow"])
def test_a_program_needs_the_key_and_the_name_of_the_server(servers: Servers, name: str):
    url, body = servers.url(name) + READ[name], {"max_results": 1}
    assert httpx.post(url, json=body).status_code == 401
    assert httpx.get(servers.url(name)).status_code == 401
    assert httpx.post(url, json=body, auth=("learnkernels", "x")).status_code == 401
    assert httpx.post(url, json=body, auth=servers.key, headers={"host": "evil.example"}).status_code == 403
    assert httpx.post(url, json=body, auth=servers.key, headers={"origin": "http://127.0.0.1:1"}).status_code == 403
    preflight = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    refused = httpx.options(url, headers=preflight)
    assert (refused.status_code, "access-control-allow-origin" in refused.headers) == (403, False)
    assert isinstance(servers.names(name), list)


@pytest.mark.slow(10)
def test_clients_of_prefect_and_mlflow_send_the_key_over_every_way(servers: Servers, tmp_path: Path):
    program = tmp_path / "client.py"
    program.write_text(
        "import asyncio, os\n"
        "from learnkernels.tasks.environment import prepare_environment\n"
        "prepare_environment()\n"
        "from prefect import flow, get_run_logger, task\n"
        "from prefect.events.clients import get_events_subscriber, get_events_client\n"
        "from prefect.events import Event, Resource\n"
        "from prefect.logging.clients import PrefectLogsSubscriber\n"
        "import mlflow\n"
        "@task\n"
        "def step(): get_run_logger().warning('said')\n"
        "@flow(name='ours')\n"
        "def ours(): step(); return 1\n"
        "async def events():\n"
        "    async with get_events_subscriber() as subscriber, get_events_client() as client:\n"
        "        await client.emit(Event(event='ours', resource=Resource({'prefect.resource.id': 'ours'})))\n"
        "        async for event in subscriber:\n"
        "            if event.event == 'ours': break\n"
        "    async with PrefectLogsSubscriber(): pass\n"
        "assert ours() == 1\n"
        "asyncio.run(asyncio.wait_for(events(), 60))\n"
        "mlflow.set_experiment('ours')\n"
        "with mlflow.start_run(): mlflow.log_text('text', 'artifact.txt')\n"
    )
    addresses = {"PREFECT_API_URL": f"{servers.url('prefect')}/api", "MLFLOW_TRACKING_URI": servers.url("mlflow")}
    run = [sys.executable, str(program)]
    options: dict[str, Any] = {"cwd": servers.work, "capture_output": True, "text": True, "timeout": 240}
    stranger = subprocess.run(run, env=servers.env | addresses, **options)
    assert stranger.returncode != 0  # the folder has not noted these servers, which might be anybody's
    note = servers.work / ".learnkernels" / "ui.json"
    note.write_text(
        f'{{"prefect_api": "{addresses["PREFECT_API_URL"]}", "mlflow": "{addresses["MLFLOW_TRACKING_URI"]}"}}'
    )
    known = subprocess.run(run, env=servers.env | addresses, **options)
    assert known.returncode == 0, known.stderr
    assert "Unable to" not in known.stderr
    assert "ours" in servers.names("prefect")
    assert "ours" in servers.names("mlflow")


@pytest.mark.slow(1)
@pytest.mark.parametrize("path", ["/api/events/out", "/api/events/in", "/api/logs/out"])
def test_web_sockets_of_prefect_are_closed_to_strangers(servers: Servers, path: str):
    address = f"ws://127.0.0.1:{servers.ports['prefect']}{path}"

    async def first_answer(token: str) -> str:
        async with connect(address, subprotocols=["prefect"]) as socket:  # type: ignore[list-item]
            await socket.send(f'{{"type": "auth", "token": "{token}"}}')
            return str(await socket.recv())

    assert "auth_success" in asyncio.run(first_answer(":".join(servers.key)))
    with pytest.raises(Exception, match="1008"):
        asyncio.run(first_answer("wrong"))

    async def foreign() -> None:
        async with connect(address, origin="http://evil.example"):  # type: ignore[arg-type]
            pass

    with pytest.raises(InvalidStatus, match="403"):
        asyncio.run(foreign())


HOSTILE = """<!doctype html><title>wait</title><body><script>
const servers = %s, read = [], tries = [];
async function attempt(what, promise) {
  tries.push(Promise.race([promise, new Promise((_, no) => setTimeout(no, 8000))])
    .then(found => { if (found) read.push(what + ": " + found) }, () => {}));
}
for (const server of servers) {
  for (const mode of ["cors", "no-cors"]) for (const credentials of ["include", "omit"]) {
    const name = `${server.name} ${mode} ${credentials}`;
    attempt(name, fetch(server.url + server.read, {mode, credentials}).then(r => r.ok && r.text()));
    for (const type of ["text/plain", "application/json"])
      attempt(name, fetch(server.url + server.write[0], {method: "POST", mode, credentials,
        headers: {"content-type": type}, body: JSON.stringify(server.write[1])}).then(r => r.ok && r.text()));
  }
  attempt("image", new Promise((yes, no) => { const i = new Image(); i.onload = () => yes("img"); i.onerror = no;
    i.src = server.url + server.image }));
  attempt("script", new Promise((yes, no) => { const s = document.createElement("script"); s.onload = () => yes("js");
    s.onerror = no; s.src = server.url + server.script; document.body.append(s) }));
  attempt("frame", new Promise((yes, no) => { const f = document.createElement("iframe"); document.body.append(f);
    f.onload = () => { try { yes(f.contentDocument.body.innerText) } catch { no() } }; f.src = server.url }));
  attempt("form", new Promise(yes => { const f = document.createElement("form"), f2 = document.createElement("iframe");
    f2.name = "to" + server.name; document.body.append(f2, f); f.target = f2.name; f.method = "POST";
    f.enctype = "text/plain"; f.action = server.url + server.write[0]; const i = document.createElement("input");
    i.name = '{"name": "planted", "x": "'; i.value = '"}'; f.append(i); f.submit(); setTimeout(() => yes(""), 2000) }));
  attempt("socket", new Promise((yes, no) => { const s = new WebSocket(server.url.replace("http", "ws") +
    "/api/events/out", ["prefect"]); s.onopen = () => yes("open"); s.onerror = no }));
  const opened = window.open(server.url);
  attempt("window", new Promise((yes, no) => setTimeout(() => { try { yes(opened.document.body.innerText) }
    catch { no() } }, 4000)));
}
setTimeout(() => Promise.all(tries).then(() => { window.found = read; document.title = "done" }), 100);
</script>"""


@pytest.fixture
def elsewhere(servers: Servers) -> Iterator[str]:
    """A page of another port of this machine that tries all it can, and what the browser sent to that port."""
    targets = [
        {
            "name": name, "url": servers.url(name), "read": path, "write": WRITE[name],
            "image": {"prefect": "/favicon.ico", "mlflow": "/static-files/favicon.ico"}[name],
            "script": {"prefect": "/ui-settings", "mlflow": "/version"}[name],
        }
        for name, path in (("prefect", "/api/flows/count"), ("mlflow", "/version"))
    ]  # fmt: skip
    page = (HOSTILE % json.dumps(targets)).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.slow(25)
def test_a_page_of_another_port_can_neither_read_nor_write(servers: Servers, elsewhere: str):
    if shots.chromium() is None:
        pytest.skip("there is no Chromium on the PATH")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        application = playwright.chromium.launch(executable_path=shots.chromium(), args=["--no-sandbox"])
        context = application.new_context()
        context.set_default_timeout(60_000)
        page = context.new_page()
        for name in servers.ports:
            page.goto(servers.url(name))
            if name == "prefect":  # cookies know no ports: the first one opens both
                assert "key of the working folder is missing" in page.inner_text("body")
            page.goto(f"{servers.url(name)}/?key={servers.key[1]}")  # from here on the browser has the cookie
            assert "key=" not in page.url
            page.wait_for_selector({"prefect": "text=Dashboard >> nth=0", "mlflow": "text=Experiments >> nth=0"}[name])
        for address in (elsewhere, elsewhere.replace("127.0.0.1", "localhost")):
            page.goto(address)
            page.wait_for_function("document.title == 'done'")
            assert page.evaluate("window.found") == []
        application.close()
    for name in servers.ports:
        assert "planted" not in servers.names(name)


@pytest.mark.slow(1)
def test_no_command_line_and_no_log_shows_the_key(servers: Servers):
    _, key = servers.key
    for name in servers.ports:
        httpx.get(f"{servers.url(name)}/?key={key}")
    said = [psutil.Process(process.pid).cmdline() for process in servers.processes.values()]
    assert not any(key in word or "sqlite" in word for line in said for word in line)
    assert key not in servers.log.read_text()


@pytest.mark.slow(5)
def test_a_server_ends_with_the_process_that_started_it(servers: Servers):
    for name, process in servers.processes.items():
        process.stdin.close()  # what the system does when that one is killed
        assert process.wait(timeout=60) in (0, -signal.SIGTERM), name


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_the_key_is_made_once_by_whoever_comes_first(state: Path):
    with ThreadPoolExecutor(16) as threads:
        keys = set(threads.map(lambda _: folder_key(), range(64)))
    assert keys == {key_file().read_text()}
    assert stat.S_IMODE(key_file().stat().st_mode) == 0o600
    assert [path.name for path in state.iterdir()] == ["key"]


@pytest.mark.parametrize("damage", ["", "short", "no colon at all", "a:b", "learnkernels:" + "x" * 32 + "\n\n"])
def test_a_damaged_key_is_one_sentence(state: Path, damage: str):
    folder_key()
    key_file().write_text(damage)
    with pytest.raises(InputError, match=r"^\S+/key: is no key [^\n]*remove it[^\n]*\.$"):
        folder_key()


def test_a_key_that_others_can_read_or_have_put_there_is_refused(state: Path, tmp_path: Path):
    folder_key()
    key_file().chmod(0o644)
    with pytest.raises(InputError, match="this user alone"):
        folder_key()
    planted = tmp_path / "planted"
    key_file().rename(planted)
    planted.chmod(0o600)
    key_file().symlink_to(planted)
    with pytest.raises(InputError, match="this user alone"):
        folder_key()


@pytest.mark.parametrize(
    ("prefect", "mlflow", "shown"),
    [
        (None, "sqlite:///mlflow.db", {"PREFECT_API_AUTH_STRING"}),
        ("http://127.0.0.1:1/api", "http://127.0.0.1:2", {*KEY_SETTINGS}),
        ("http://prefect.example/api", "http://mlflow.example", set()),
        ("http://127.0.0.1:3/api", "http://127.0.0.1:1", set()),
    ],
)
def test_the_key_is_shown_to_servers_of_this_folder_alone(
    state: Path, monkeypatch: pytest.MonkeyPatch, prefect: str | None, mlflow: str, shown: set[str]
):
    folder_key()
    servers_note().write_text('{"prefect_api": "http://127.0.0.1:1/api", "mlflow": "http://127.0.0.1:2"}')
    for name in (*KEY_SETTINGS, "MLFLOW_TRACKING_TOKEN", "PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_URL"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    if prefect:
        monkeypatch.setenv("PREFECT_API_URL", prefect)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow)
    show_key()
    assert {name for name in KEY_SETTINGS if name in os.environ} == shown
    assert os.environ.get("PREFECT_API_AUTH_STRING") in (folder_key(), None)


def test_transactions_that_read_before_they_write_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from prefect.server.database.configurations import AioSqliteConfiguration

    monkeypatch.setattr(AioSqliteConfiguration, "begin_transaction", AioSqliteConfiguration.begin_transaction)
    write_in_turn()

    async def add(database: AioSqliteConfiguration, started: asyncio.Event, pause: float) -> None:
        session = await database.session(await database.engine())
        async with session, database.begin_transaction(session):
            (count,) = (await session.execute(text("SELECT count(*) FROM t"))).one()
            started.set()
            await asyncio.sleep(pause)  # the other comes in between
            await session.execute(text(f"INSERT INTO t VALUES ({count})"))
            beside = await database.session(await database.engine())
            async with beside:  # as Prefect does for the status of a work queue
                assert (await beside.execute(text("SELECT count(*) FROM t"))).one() == (count,)

    async def both() -> list[int]:
        database = AioSqliteConfiguration(f"sqlite+aiosqlite:///{tmp_path / 'db'}")
        async with (await database.engine()).begin() as connection:
            await connection.execute(text("CREATE TABLE t (n INTEGER)"))
        started = asyncio.Event()
        first = asyncio.create_task(add(database, started, 0.2))
        await started.wait()
        await asyncio.gather(first, add(database, started, 0.0))
        async with (await database.engine()).connect() as connection:
            found = [n for (n,) in await connection.execute(text("SELECT n FROM t ORDER BY n"))]
        await (await database.engine()).dispose()
        return found

    assert asyncio.run(both()) == [0, 1]


@pytest.mark.parametrize("broken", [False, True])
def test_a_server_asks_itself_first_and_goes_on_whatever_comes_of_it(broken: bool):
    asked: list[tuple[str, str]] = []

    async def application(scope: Message, receive: Receive, send: Send) -> None:
        asked.append((scope["method"], scope["path"]))
        if broken:
            raise RuntimeError("no database")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    requests = [("POST", "/api/first"), ("GET", "/api/second")]
    asyncio.run(serving._ask(application, requests))
    assert asked == (requests[:1] if broken else requests)
