"""What is shown of addresses, and which servers a folder has."""

from __future__ import annotations

from pathlib import Path

import pytest

from learnkernels.tasks.environment import running_server, servers_note, without_passwords


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://ann:secret@db:5432/mlflow", "postgresql://db:5432/mlflow"),
        ("http://ann:se:cret@host/path@x", "http://host/path@x"),
        ("cannot reach https://ann@host: refused", "cannot reach https://host: refused"),
        ("sqlite:////home/ann@work/mlflow.db", "sqlite:////home/ann@work/mlflow.db"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
    ],
)
def test_users_and_passwords_are_left_out(address: str, shown: str):
    assert without_passwords(address) == shown


@pytest.mark.parametrize("note", ["", "{", "[]", '{"mlflow": 5}', '{"mlflow": "no address"}'])
def test_a_damaged_note_of_servers_names_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, note: str):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path))
    servers_note().write_text(note)
    assert running_server("mlflow") is None
