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

from dev.tools.waiting import within
from learnkernels.flows.train import train
from learnkernels.tasks.operate.events import announce
from tests.user import ROOT

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
        block = SlackWebhook(url=f"json://{host}/hook/{SECRET}").save(
            "ops", overwrite=True
        )
        wanted = yaml.safe_load(
            file.read_text(encoding="utf-8").replace("BLOCK_ID", str(block))
        )["automations"]
        made = [
            prefect.create_automation(AutomationCore.model_validate(one))
            for one in wanted
        ]
        yield received
        assert not any(
            SECRET in prefect.read_automation(one).model_dump_json() for one in made
        )
        for one in made:
            prefect.delete_automation(one)


TRIES = 3
"""How often an event is repeated: a server on SQLite that has other work may lose one, and says that it does."""


@sends
def test_every_occasion_sends_a_message(prefect_server: None):
    messages = {
        "challenger promoted": "promoted",
        "challenger rejected": "rejected",
        "input drifted": "drifted",
        "input empty": "empty",
    }
    with told_of() as received, get_client(sync_client=True) as prefect:

        def arrives(title: str) -> bool:
            return within(
                lambda: any(message["title"].endswith(title) for message in received),
                30,
                0.05,
            )

        def fails() -> bool:
            run = prefect.create_flow_run(train, tags=["learnkernels"])
            prefect.set_flow_run_state(
                run.id, Failed(message='the column "x" is {{not}} there'), force=True
            )
            return arrives(f"{run.name} is Failed")

        def is_announced(title: str, event: str) -> bool:
            announce(event, "told", f'told is "{event}".')
            return arrives(f"told: {title}")

        assert any(fails() for _ in range(TRIES)), received
        for event in ("trained", "challenged"):
            announce(event, "told", f'told is "{event}".')
        for title, event in messages.items():
            assert any(is_announced(title, event) for _ in range(TRIES)), (
                title,
                received,
            )
    expected = {
        f"told: {title}": f'told is "{event}".' for title, event in messages.items()
    }
    texts = {
        message["title"]: message["message"].splitlines()[0] for message in received
    }
    failed = {
        title: text for title, text in texts.items() if title.endswith(" is Failed")
    }
    assert set(failed.values()) == {'the column "x" is {{not}} there'}
    assert texts == failed | expected
