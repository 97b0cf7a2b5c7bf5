"""Messages about a model: a real Prefect server sends them to a receiver on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
import yaml
from prefect.blocks.notifications import SlackWebhook
from prefect.client.orchestration import get_client
from prefect.events.schemas.automations import AutomationCore
from prefect.states import Failed

from learnkernels.flows.train import train
from learnkernels.tasks.operate.events import announce
from tests.user import ROOT
from tools.waiting import within

SECRET = "s3cret"

sends = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
"""What Prefect sends with imports it."""


@contextmanager
def receiving() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Give the host and port of a server on loopback, and what is sent there, with the path of each."""
    received: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            received.append({"path": self.path} | body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}", received
        finally:
            server.shutdown()


@contextmanager
def told_of() -> Iterator[list[dict[str, Any]]]:
    """Give what the automations of the shipped file send, made as by `prefect automation create`."""
    file = ROOT / "conf/operations/notifications.yaml"
    with receiving() as (host, received), get_client(sync_client=True) as prefect:
        block = SlackWebhook(url=f"json://{host}/hook/{SECRET}").save("ops", overwrite=True)
        wanted = yaml.safe_load(file.read_text(encoding="utf-8").replace("BLOCK_ID", str(block)))["automations"]
        made = [prefect.create_automation(AutomationCore.model_validate(one)) for one in wanted]
        yield received
        assert not any(SECRET in prefect.read_automation(one).model_dump_json() for one in made)
        for one in made:
            prefect.delete_automation(one)


@sends
def test_every_occasion_sends_a_message(prefect_server: None):
    with told_of() as received, get_client(sync_client=True) as prefect:
        run = prefect.create_flow_run(train, tags=["learnkernels"])
        prefect.set_flow_run_state(run.id, Failed(message='the column "x" is {{not}} there'), force=True)
        for event in ("trained", "promoted", "rejected", "empty", "drifted", "challenged"):
            announce(event, "told", f'told is "{event}".')
        assert within(lambda: len(received) >= 5, 60, 0.05), received
    texts = {one["title"]: one["message"].splitlines()[0] for one in received}
    assert texts == {
        f"{run.name} is Failed": 'the column "x" is {{not}} there',
        "told: challenger promoted": 'told is "promoted".',
        "told: challenger rejected": 'told is "rejected".',
        "told: input drifted": 'told is "drifted".',
        "told: input empty": 'told is "empty".',
    }
