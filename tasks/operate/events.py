"""Events that trigger Prefect's automations."""

from __future__ import annotations

from typing import Literal

from prefect.events import emit_event

Event = Literal["trained", "challenged", "promoted", "rejected", "empty", "drifted"]


def announce(event: Event, model: str, text: str) -> None:
    """Send Prefect an event named ``learnkernels.EVENT`` about a model."""
    emit_event(
        f"learnkernels.{event}",
        {"prefect.resource.id": resource(model), "prefect.resource.name": model},
        payload={"text": text},
    )


def resource(model: str) -> str:
    return f"learnkernels.model.{model}"
