"""Messages about a model: a real Prefect server sends them to a receiver on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from prefect.blocks.notifications import SlackWebhook
from prefect.blocks.system import Secret
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import PREFECT_API_URL
from prefect.states import Failed

from learnkernels.conf.errors import InputError
from learnkernels.tasks.operate.deployments import deploy
from learnkernels.tasks.operate.notifications import DECIDED, announce, find_block, set_notifications
from tests.service.flows.test_deployments import FLOWS, PLAN, client, deployed, made  # noqa: F401
from tools.waiting import within

SECRET = "s3cret"
TITLES = ["challenger promoted", "challenger rejected", "input empty", "run failed"]

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
def told_of(model: str) -> Iterator[list[dict[str, Any]]]:
    """Give what is sent about a model to somebody who asked."""
    with receiving() as (host, received), get_client(sync_client=True) as prefect:
        Webhook(url=f"http://{host}/").save(model.lower(), overwrite=True)
        block = find_block(prefect, f"webhook/{model.lower()}")
        set_notifications(prefect, model, [], [block], "")
        yield received
        set_notifications(prefect, model, [], [], "")


def automations_of(client: SyncPrefectClient, model: str) -> dict[str, Any]:  # noqa: F811
    """The automations of a model by the occasion."""
    found = {one.name: one for one in client.read_automations()}
    return {name.removeprefix(f"{model}: "): one for name, one in found.items() if name.startswith(f"{model}: ")}


@sends
def test_every_occasion_reaches_those_who_asked(client: SyncPrefectClient):  # noqa: F811
    with receiving() as (host, received):
        Webhook(url=f"http://{host}/hook/{SECRET}").save("told", overwrite=True)
        SlackWebhook(url=f"json://{host}/apprise/{SECRET}").save("told", overwrite=True)
        for _ in range(2):
            told = deployed(client, model="told", notify=("webhook/told", "slack-webhook/told"))
        untold = deployed(client, model="untold")
        shown = [*automations_of(client, "told").values(), *told.values()]
        assert not any(SECRET in one.model_dump_json() for one in shown)

        message = 'the column "x" is {{not}} there'
        runs = [client.create_flow_run_from_deployment(of["train"].id) for of in (told, untold)]
        for run, model in zip(runs, ("told", "untold"), strict=True):
            client.set_flow_run_state(run.id, Failed(message=message), force=True)
            for occasion in DECIDED:
                announce(occasion, model, f'{model} is "{occasion}".')
        assert within(lambda: len(received) >= 8, 60, 0.05), received

    hooks, others = ([one for one in received if one["path"] == f"/{of}/{SECRET}"] for of in ("hook", "apprise"))
    assert sorted(one["subject"] for one in hooks) == [f"told: {title}" for title in TITLES]
    texts = {one["subject"].removeprefix("told: "): one["text"] for one in hooks}
    assert texts == {
        "challenger promoted": 'told is "promoted".',
        "challenger rejected": 'told is "rejected".',
        "input empty": 'told is "empty".',
        "run failed": f"{runs[0].name} is Failed: {message}",
    }
    (about,) = [one for one in hooks if one["subject"] == "told: run failed"]
    pages = str(PREFECT_API_URL.value()).removesuffix("/api")
    assert (about["model"], about["run"]) == ("told", f"{pages}/runs/flow-run/{runs[0].id}")
    assert sorted(one["title"] for one in others) == [f"told: {title}" for title in TITLES]
    assert {one["message"].splitlines()[0] for one in others} == set(texts.values())
    assert len(received) == 8


@sends
def test_deploying_again_keeps_what_is_paused_and_removes_what_is_not_asked_for(client: SyncPrefectClient):  # noqa: F811
    Webhook(url="http://127.0.0.1:9/hook").save("twice", overwrite=True)
    plan = replace(PLAN, model="twice", notify=("webhook/twice",))
    deploy(FLOWS, plan)
    before = automations_of(client, "twice")
    assert sorted(before) == TITLES
    client.pause_automation(before["challenger rejected"].id)
    found = deployed(client, plan, input="in.csv", output="out.csv")
    after = automations_of(client, "twice")
    assert {name: one.id for name, one in after.items()} == {name: one.id for name, one in before.items()}
    assert [name for name, one in after.items() if not one.enabled] == ["challenger rejected"]
    watched = after["run failed"].trigger.match_related["prefect.resource.id"]
    assert sorted(watched) == sorted(f"prefect.deployment.{one.id}" for one in found.values())
    assert len(watched) == 4
    deploy(FLOWS, replace(plan, notify=()))
    assert automations_of(client, "twice") == {}


def test_a_block_that_cannot_send_is_one_sentence_and_nothing_is_deployed(client: SyncPrefectClient):  # noqa: F811
    Webhook(url="http://127.0.0.1:9/hook").save("here", overwrite=True)
    Secret(value="x").save("here", overwrite=True)
    missing = r": Prefect has no such block; there are .*'webhook/here'.*; give TYPE/N"
    for name, sentence in (
        ("webhook/there", missing),
        ("here", missing),
        ("secret/here", r": a block of the type secret sends nothing; give one that does\.$"),
    ):
        with pytest.raises(InputError, match=f"^--notify {name}{sentence}"):
            deploy(FLOWS, replace(PLAN, model="unsent", notify=("webhook/here", name)))
    assert made(client, "unsent") == {}
