"""Folders and ports of new users. System tests start commands as processes, servers, browsers and builds."""

from __future__ import annotations

from pathlib import Path

import pytest

from learnkernels.tasks.operate.children import free_port


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home and an empty working folder of a new user."""
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    return tmp_path


@pytest.fixture
def ports() -> tuple[int, int]:
    """Two free ports of this machine."""
    return free_port(), free_port()
