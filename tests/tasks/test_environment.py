"""What is shown of addresses."""

from __future__ import annotations

import pytest

from learnkernels.tasks.environment import without_passwords


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
