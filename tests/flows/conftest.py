"""A Prefect server of its own, on a temporary database, once for all flows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prefect.testing.utilities import prefect_test_harness


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    with prefect_test_harness(server_startup_timeout=120):
        yield
