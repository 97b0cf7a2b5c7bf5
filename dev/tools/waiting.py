"""Waiting for what real servers and processes do, without sleeping longer than they take."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import httpx


def within(condition: Callable[[], bool], seconds: float, step: float = 0.5) -> bool:
    """Return whether a condition comes true in time; a server that does not answer yet is no failure."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            if condition():
                return True
        time.sleep(step)
    return False
