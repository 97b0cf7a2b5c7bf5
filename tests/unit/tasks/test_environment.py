"""Which servers a folder has."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from urllib.request import proxy_bypass_environment

import pytest

from learnkernels.conf.errors import InputError
from learnkernels.tasks.environment import prepare_environment, running_server, servers_note


def test_a_damaged_note_of_servers_names_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path))
    for note in ("", "{", "[]", '{"mlflow": 5}', '{"mlflow": "no address"}'):
        servers_note().write_text(note)
        assert running_server("mlflow") is None, note


def test_the_state_folder_is_made_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path / "work" / "state"))
    assert stat.S_IMODE(prepare_environment().stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "work").stat().st_mode) != 0o700
    (tmp_path / "work" / "state").chmod(0o750)  # as its user has set it since
    assert stat.S_IMODE(prepare_environment().stat().st_mode) == 0o750


def test_a_database_without_its_driver_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:secret@db/mlflow")
    prepare_environment()  # it is here
    without = [one for one in sys.path if not (Path(one) / "psycopg2").is_dir()]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", without)
        patch.delitem(sys.modules, "psycopg2", raising=False)
        with pytest.raises(InputError, match=r"^MLFLOW_TRACKING_URI is .*: pip install 'psycopg2-binary>=2\.9,<3'\.$"):
            prepare_environment()
    for begin in ("postgresql", "postgres", "postgresql+psycopg2"):
        monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", f"{begin}://me:secret@db/prefect")
        with pytest.raises(InputError, match=r"begin it with postgresql\+asyncpg://\.$") as refused:
            prepare_environment()
        assert "secret" not in str(refused.value)


def test_proxies_are_not_asked_for_servers_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path / "state"))
    for name in ("no_proxy", "NO_PROXY", "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    prepare_environment()
    assert "no_proxy" not in os.environ
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "example.org, 127.0.0.1")
    prepare_environment()
    assert os.environ["no_proxy"] == os.environ["NO_PROXY"] == "example.org,127.0.0.1,localhost,::1"
    assert all(proxy_bypass_environment(host) for host in ("localhost", "127.0.0.1", "example.org"))
    assert not proxy_bypass_environment("example.com")
    monkeypatch.setenv("no_proxy", "*")
    prepare_environment()
    assert proxy_bypass_environment("example.com")
