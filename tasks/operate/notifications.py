"""Notifications: what Prefect sends when a run fails, a challenge is decided, or there was nothing to predict.

Each occasion is an automation of Prefect's, named after the model, which sends through *blocks* of Prefect's. Addresses
and passwords are in these blocks alone, encrypted on the server.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import BlockDocument
from prefect.events import emit_event
from prefect.events.actions import CallWebhook, SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger
from prefect.exceptions import ObjectNotFound

from learnkernels.conf.errors import InputError, listed

Decided = Literal["promoted", "rejected", "empty"]

WEBHOOK = "webhook"
"""The type of block that is given a payload; all others are given a subject and a text."""

FAILURES = {f"prefect.flow-run.{name}" for name in ("Failed", "Crashed", "TimedOut")}


@dataclass(frozen=True)
class Occasion:
    """What is worth a message: how its automation is called, by which events it is known, and what the message says.

    Parameters
    ----------
    title, meaning : str
        For people.
    events : set of str
    text : str
        An expression of Jinja's over the event and its flow run.
    """

    title: str
    meaning: str
    events: frozenset[str]
    text: str


def _own(name: Decided, title: str, meaning: str) -> Occasion:
    return Occasion(title, meaning, frozenset({f"learnkernels.{name}"}), "event.payload.text")


FAILED = Occasion(
    "run failed",
    "A run of one of the model's deployments has failed, crashed or taken too long.",
    frozenset(FAILURES),
    "flow_run.name ~ ' is ' ~ flow_run.state.name ~ ': ' ~ flow_run.state.message",
)

DECIDED: dict[Decided, Occasion] = {
    "promoted": _own("promoted", "challenger promoted", "Another version of the model is champion now."),
    "rejected": _own("rejected", "challenger rejected", "A challenger was not better, and the champion stays."),
    "empty": _own("empty", "input empty", "The table to predict had no rows, so the output has none."),
}


def announce(occasion: Decided, model: str, text: str) -> None:
    """Let Prefect know in a sentence what has come out for a model: an event, which becomes a message for who asked."""
    (event,) = DECIDED[occasion].events
    resource = {"prefect.resource.id": _resource(model), "prefect.resource.name": model}
    emit_event(event, resource, payload={"text": text})


def _resource(model: str) -> str:
    return f"learnkernels.model.{model}"


def find_block(client: SyncPrefectClient, name: str) -> BlockDocument:
    """Return the block of ``TYPE/NAME`` by which messages can be sent.

    Raises
    ------
    InputError
        There is none, or it sends nothing.
    """
    kind, _, own = name.partition("/")
    try:
        block = client.read_block_document_by_name(own, kind, include_secrets=False)
    except ObjectNotFound:
        found = f"; there are {listed(there)}" if (there := _names(client)) else ""
        raise InputError(
            f"--notify {name}: Prefect has no such block{found}; give TYPE/NAME of one, such as slack-webhook/ops, "
            "that was made on Prefect's page 'Blocks' or as docs/operations.md says."
        ) from None
    if not _sends(block):
        raise InputError(f"--notify {name}: a block of the type {kind} sends nothing; give one that does.")
    return block


def _sends(block: BlockDocument) -> bool:
    capabilities = [] if block.block_schema is None else block.block_schema.capabilities
    return _kind(block) == WEBHOOK or "notify" in capabilities


def _kind(block: BlockDocument) -> str:
    return "" if block.block_type is None else block.block_type.slug


def _names(client: SyncPrefectClient) -> list[str]:
    """Return all blocks that send, as `find_block` takes them."""
    return [
        f"{_kind(block)}/{block.name}"
        for block in client.read_block_documents(include_secrets=False)
        if block.name and _sends(block)
    ]


def set_notifications(
    client: SyncPrefectClient, model: str, deployments: Sequence[UUID], blocks: Sequence[BlockDocument], pages: str
) -> None:
    """Make the automations of a model, bring those that exist up to date, or without blocks remove them.

    Messages go through *blocks*, as `find_block` returns them, and also tell of failed runs of *deployments*; they link
    to *pages*, the address of Prefect's. An automation that was paused in Prefect stays so.
    """
    for occasion in (FAILED, *DECIDED.values()):
        name = f"{model}: {occasion.title}"
        there = client.read_automations_by_name(name)
        if not blocks:
            for automation in there:
                client.delete_automation(automation.id)
            continue
        if occasion is FAILED:
            ids = [f"prefect.deployment.{id}" for id in deployments]
            trigger = EventTrigger(
                expect=set(occasion.events),
                match_related={"prefect.resource.role": "deployment", "prefect.resource.id": ids},
            )
        else:
            trigger = EventTrigger(expect=set(occasion.events), match={"prefect.resource.id": _resource(model)})
        wanted = AutomationCore(
            name=name,
            description=f"{occasion.meaning} Made by `learnkernels deploy --notify`; change it there.",
            enabled=all(automation.enabled for automation in there),
            tags=["learnkernels", model],
            trigger=trigger,
            actions=[_action(block, model, name, occasion, pages) for block in blocks],
        )
        if there:  # the client sends what was set, and the server takes neither less nor the owner
            whole = AutomationCore.model_validate(wanted.model_dump(exclude={"owner_resource"}))
            client.update_automation(there[0].id, whole)
        else:
            client.create_automation(wanted)


def _action(block: BlockDocument, model: str, subject: str, occasion: Occasion, pages: str) -> Any:
    page = f"{pages}/runs/flow-run/{{{{ flow_run.id }}}}"
    if _kind(block) != WEBHOOK:
        body = f"{{{{ {occasion.text} }}}}\n\n{page}"
        return SendNotification(block_document_id=block.id, subject=subject, body=body)
    fixed = json.dumps({"model": model, "subject": subject, "run": page}).removesuffix("}")
    payload = f'{fixed}, "text": {{{{ ({occasion.text}) | tojson }}}}}}'
    return CallWebhook(block_document_id=block.id, payload=payload)
