"""Events in Prefect, by which its automations start what follows, and send messages."""

from __future__ import annotations

from typing import Literal

from prefect.events import emit_event

Event = Literal["trained", "challenged", "promoted", "rejected", "empty", "drifted"]
"""A run has registered a model or found it registered, has decided a challenge, how, or had no or drifted rows."""


def announce(event: Event, model: str, text: str) -> None:
    """Let Prefect know in a sentence what has come out for a registered model, as the event ``learnkernels.EVENT``."""
    emit_event(
        f"learnkernels.{event}",
        {"prefect.resource.id": resource(model), "prefect.resource.name": model},
        payload={"text": text},
    )


def resource(model: str) -> str:
    """Return what events of a registered model have as the id of their resource."""
    return f"learnkernels.model.{model}"
