"""Events in Prefect, by which its automations start what follows, and send messages."""

from __future__ import annotations

from typing import Literal

from prefect.events import emit_event

Event = Literal["trained", "challenged", "promoted", "rejected", "empty", "drifted"]
"""Registered or unchanged model; decided challenge, and its outcome; no rows; drifted rows."""


def announce(event: Event, model: str, text: str) -> None:
    """Send Prefect the event ``learnkernels.EVENT`` of a registered model, with one sentence about it."""
    emit_event(
        f"learnkernels.{event}",
        {"prefect.resource.id": resource(model), "prefect.resource.name": model},
        payload={"text": text},
    )


def resource(model: str) -> str:
    """Return the id of the resource in events of a registered model."""
    return f"learnkernels.model.{model}"
