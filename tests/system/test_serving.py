"""Both servers of `ui`: what programs that know the key, strangers and pages of other places can do."""

import asyncio
import json
import os
import signal
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from websockets.asyncio.client import connect

from dev.tools.forked import Commands
from dev.tools.waiting import within
from learnkernels.flows.compare import compare
from learnkernels.tasks.operate.servers import free_port
from tests.system.test_screenshots import shots
from tests.user import ROOT, User, environment, key_of, new_home

READ = {"prefect": "/api/flows/filter", "mlflow": "/api/2.0/mlflow/experiments/search"}
PLANTED = {"name": "planted"}
TARGETS = [
    {"name": "prefect", "read": "/api/flows/count", "write": ["/api/flows/", PLANTED],
     "script": "/api/admin/version"},
    {"name": "mlflow", "read": "/version", "write": ["/api/2.0/mlflow/experiments/create", PLANTED],
     "script": "/version"},
]  # fmt: skip
"""What a page of another place tries on each server."""


class Servers(User):
    """A user who has started `ui` in a folder."""

    def __init__(self, home: Path, commands: Commands) -> None:
        super().__init__(home, commands)
        self.ports = {name: free_port() for name in ("prefect", "mlflow")}
        self.options = [
            part
            for name, port in self.ports.items()
            for part in (f"--{name}-port", str(port))
        ]
        self.note = self.work / ".learnkernels" / "ui.json"
        self.ui = self.start("ui", *self.options)
        assert within(
            lambda: self.note.exists() or self.ui.poll() is not None, 240, 0.1
        ), self.logs
        assert self.ui.poll() is None, self.logs

    @property
    def logs(self) -> str:
        """What `ui` and both servers have said."""
        return "".join(
            path.read_text() for path in (self.ui.err, *self.note.parent.glob("*.log"))
        )

    @property
    def key(self) -> tuple[str, str]:
        return key_of(self.work)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def names(self, name: str) -> list[str]:
        """What there is on a server: flows of Prefect, experiments of MLflow."""
        body = {"max_results": 100} if name == "mlflow" else {}
        found = httpx.post(self.url(name) + READ[name], json=body, auth=self.key)
        found.raise_for_status()
        return [
            one["name"]
            for one in (
                found.json() if name == "prefect" else found.json()["experiments"]
            )
        ]


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory, commands: Commands
) -> Iterator[Servers]:
    started = Servers(new_home(tmp_path_factory.mktemp("servers")), commands)
    yield started
    if started.ui.poll() is None:
        os.kill(started.ui.pid, signal.SIGKILL)
        started.ui.wait()


@pytest.mark.slow(20)
def test_ui_says_where_both_servers_are_and_takes_runs(servers: Servers):
    said = servers.ui.err.read_text()
    assert servers.key[1] not in said
    for shown in (
        servers.url("prefect"),
        servers.url("mlflow"),
        str(servers.work / ".learnkernels" / "key"),
    ):
        assert shown in said
    again = servers.run("ui", *servers.options)
    assert again.returncode == 0
    assert servers.url("prefect") in again.stderr
    assert "both run already" in again.stderr
    prefect, mlflow = map(str, servers.ports.values())
    other = servers.run("ui", "--prefect-port", mlflow, "--mlflow-port", prefect)
    assert other.returncode == 2
    assert "another 'ui' or 'up' of this folder has servers at" in other.stderr

    changes = [
        "--set",
        "learners=[unif]",
        "--set",
        "baseline=null",
        "--set",
        "dask.workers=0",
    ]
    assert (
        servers.run("compare", str(ROOT / "conf/quickstart.yaml"), *changes).returncode
        == 0
    )
    asked = {"flows": {"name": {"any_": [compare.name]}}}
    (run,) = httpx.post(
        f"{servers.url('prefect')}/api/flow_runs/filter", json=asked, auth=servers.key
    ).json()
    assert (run["state_type"], set(run["tags"])) == (
        "COMPLETED",
        {"learnkernels", "quickstart"},
    )


@pytest.mark.slow(1)
@pytest.mark.parametrize("name", ["prefect", "mlflow"])
def test_a_program_needs_the_key_and_pages_of_other_places_are_refused(
    servers: Servers, name: str
):
    url, body = servers.url(name) + READ[name], {"max_results": 1}
    assert httpx.post(url, json=body).status_code == 401
    # Prefect's page is empty
    assert (
        httpx.get(servers.url(name)).status_code
        == {"prefect": 200, "mlflow": 401}[name]
    )
    assert httpx.get(servers.url(name), auth=servers.key).status_code == 200
    assert httpx.post(url, json=body, auth=("learnkernels", "x")).status_code == 401
    preflight = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    for origin in ("http://evil.example", "http://127.0.0.1:1"):
        headers = httpx.options(url, headers=preflight | {"origin": origin}).headers
        assert headers.get("access-control-allow-origin", "*") == "*", origin
        # What a browser knows is not used
        assert "access-control-allow-credentials" not in headers, origin
        assert (name == "prefect") == ("access-control-allow-origin" not in headers), (
            origin
        )
    if name == "mlflow":
        assert (
            httpx.post(
                url, json=body, auth=servers.key, headers={"host": "evil.example"}
            ).status_code
            == 403
        )
    assert isinstance(servers.names(name), list)


PROGRAM = """
import asyncio
from learnkernels.tasks.environment import prepare_environment
from dev.tools.forked import renew
prepare_environment()
renew()
from prefect import flow, get_run_logger, task
from prefect.events.clients import get_events_subscriber, get_events_client
from prefect.events import Event, Resource
from prefect.logging.clients import PrefectLogsSubscriber
import mlflow
@task
def step(): get_run_logger().warning('said')
@flow(name='ours')
def ours(): step(); return 1
async def events():
    async with get_events_subscriber() as subscriber, get_events_client() as client:
        await client.emit(Event(event='ours', resource=Resource({'prefect.resource.id': 'ours'})))
        async for event in subscriber:
            if event.event == 'ours': break
    async with PrefectLogsSubscriber(): pass
assert ours() == 1
asyncio.run(asyncio.wait_for(events(), 60))
mlflow.set_experiment('ours')
with mlflow.start_run(): mlflow.log_text('text', 'artifact.txt')
"""


@pytest.mark.slow(10)
def test_clients_of_prefect_and_mlflow_send_the_key_over_every_way(servers: Servers):
    env = environment(servers.home)
    env |= {
        "PREFECT_API_URL": f"{servers.url('prefect')}/api",
        "MLFLOW_TRACKING_URI": servers.url("mlflow"),
    }
    command = ["python", "-c", PROGRAM]
    noted = servers.note.rename(servers.note.with_suffix(".aside"))
    stranger = servers.commands.run(command, servers.work, env)
    # To the folder these servers might be anybody's now
    assert stranger.returncode != 0
    noted.rename(servers.note)
    known = servers.commands.run(command, servers.work, env)
    assert known.returncode == 0, known.stderr
    assert "Unable to" not in known.stderr
    assert "ours" in servers.names("prefect")
    assert "ours" in servers.names("mlflow")


@pytest.mark.slow(1)
def test_web_sockets_of_prefect_are_closed_to_strangers(servers: Servers):
    async def first_answer(path: str, token: str, **options: Any) -> str:
        address = f"ws://127.0.0.1:{servers.ports['prefect']}{path}"
        async with connect(address, subprotocols=["prefect"], **options) as socket:  # type: ignore[list-item]
            await socket.send(json.dumps({"type": "auth", "token": token}))
            return str(await socket.recv())

    key = ":".join(servers.key)
    for path in ("/api/events/out", "/api/events/in", "/api/logs/out"):
        assert "auth_success" in asyncio.run(first_answer(path, key))
        with pytest.raises(Exception, match="1008"):
            asyncio.run(first_answer(path, "wrong"))


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
  attempt("script", new Promise((yes, no) => { const s = document.createElement("script"); s.onload = () => yes("js");
    s.onerror = no; s.src = server.url + server.script; document.body.append(s) }));
  attempt("frame", new Promise((yes, no) => { const f = document.createElement("iframe"); document.body.append(f);
    f.onload = () => { try { yes(f.contentDocument.body.innerText) } catch { no() } }; f.src = server.url }));
  attempt("form", new Promise(yes => { const f = document.createElement("form"), f2 = document.createElement("iframe");
    f2.name = "to" + server.name; document.body.append(f2, f); f.target = f2.name; f.method = "POST";
    f.enctype = "text/plain"; f.action = server.url + server.write[0]; const i = document.createElement("input");
    i.name = '{"name": "planted", "x": "'; i.value = '"}'; f.append(i); f.submit(); setTimeout(() => yes(""), 2000) }));
  attempt("socket", new Promise((yes, no) => { const s = new WebSocket(server.url.replace("http", "ws") +
    "/api/events/out", ["prefect"]); s.onopen = () => s.send('{"type": "auth", "token": "guess"}'); s.onerror = no;
    s.onmessage = event => event.data.includes("auth_failure") || yes(event.data) }));
  const opened = window.open(server.url);
  attempt("window", new Promise((yes, no) => setTimeout(() => { try { yes(opened.document.body.innerText) }
    catch { no() } }, 4000)));
}
setTimeout(() => Promise.all(tries).then(() => { window.found = read; document.title = "done" }), 100);
</script>"""


@pytest.fixture
def elsewhere(servers: Servers, tmp_path: Path) -> Iterator[str]:
    """A page of another port of this machine that tries all it can."""
    targets = [target | {"url": servers.url(str(target["name"]))} for target in TARGETS]
    (tmp_path / "index.html").write_text(HOSTILE % json.dumps(targets))
    pages = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.slow(25)
def test_a_page_of_another_port_can_neither_read_nor_write(
    servers: Servers, elsewhere: str
):
    if shots.chromium() is None:
        pytest.skip("there is no Chromium on the PATH")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Other machines are not reached. A route of the context would do that, too, but
        # answer preflights itself.
        offline = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"
        arguments = [
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            offline,
        ]
        application = playwright.chromium.launch(
            executable_path=shots.chromium(), args=arguments
        )
        user, key = servers.key
        credentials = {"username": user, "password": key}
        # What MLflow asks a browser for
        context = application.new_context(http_credentials=credentials)
        # Prefect's page takes a minute on a machine with other work
        context.set_default_timeout(180_000)
        # As Prefect's page keeps the password, and before its first script asks for it.
        origin = json.dumps(servers.url("prefect"))
        password = json.dumps(b64encode(":".join(servers.key).encode()).decode())
        context.add_init_script(
            f"if (location.origin === {origin}) localStorage.setItem('prefect-password', {password})"
        )
        page = context.new_page()
        page.goto(servers.url("prefect"))
        page.wait_for_selector("text=Dashboard >> nth=0")
        page.goto(servers.url("mlflow"))
        page.wait_for_selector("text=Experiments >> nth=0")
        for address in (elsewhere, elsewhere.replace("127.0.0.1", "localhost")):
            page.goto(address)
            page.wait_for_function("document.title == 'done'")
            assert page.evaluate("window.found") == []
        application.close()
    for name in servers.ports:
        assert "planted" not in servers.names(name)


@pytest.mark.slow(3)
def test_no_command_line_and_no_log_shows_the_key_and_ui_stops_both_servers(
    servers: Servers,
):
    _, key = servers.key
    said = [
        process.cmdline()
        for process in psutil.Process(servers.ui.pid).children(recursive=True)
    ]
    assert len(said) >= 2
    assert not any(key in word or "sqlite" in word for line in said for word in line)
    assert key not in servers.logs

    os.kill(servers.ui.pid, signal.SIGINT)
    assert servers.ui.wait().returncode == 130
    assert not servers.note.exists()
    for port in servers.ports.values():
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
