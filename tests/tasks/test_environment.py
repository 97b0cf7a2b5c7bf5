"""Which servers a folder has."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from learnkernels.tasks.environment import prepare_environment, running_server, servers_note


@pytest.mark.parametrize("note", ["", "{", "[]", '{"mlflow": 5}', '{"mlflow": "no address"}'])
def test_a_damaged_note_of_servers_names_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, note: str):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path))
    servers_note().write_text(note)
    assert running_server("mlflow") is None


def test_the_state_folder_is_made_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path / "work" / "state"))
    assert stat.S_IMODE(prepare_environment().stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "work").stat().st_mode) != 0o700
    (tmp_path / "work" / "state").chmod(0o750)  # as its user has set it since
    assert stat.S_IMODE(prepare_environment().stat().st_mode) == 0o750
