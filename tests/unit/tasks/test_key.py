"""The key that the servers of a folder ask for, and to whom programs show it."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from learnkernels.conf.errors import InputError
from learnkernels.tasks.environment import folder_key, key_file, servers_note, show_key


def test_the_key_is_made_once_and_refused_where_it_is_damaged_or_others_have_a_hand_in_it(state, tmp_path):
    with ThreadPoolExecutor(16) as threads:
        keys = set(threads.map(lambda _: folder_key(), range(64)))
    assert keys == {key_file().read_text()}
    assert stat.S_IMODE(key_file().stat().st_mode) == 0o600
    assert [path.name for path in state.iterdir()] == ["key"]
    whole = folder_key()
    for damage in ("", "short", "no colon at all", "a:b", "learnkernels:" + "x" * 32 + "\n\n"):
        key_file().write_text(damage)
        with pytest.raises(InputError, match=r"^\S+/key: is no key [^\n]*this user alone[^\n]*remove it[^\n]*\.$"):
            folder_key()
    key_file().write_text(whole)
    assert folder_key() == whole
    key_file().chmod(0o644)
    with pytest.raises(InputError, match="this user alone"):
        folder_key()
    key_file().chmod(0o600)
    key_file().rename(tmp_path / "planted")
    key_file().symlink_to(tmp_path / "planted")
    with pytest.raises(InputError, match="this user alone"):
        folder_key()


KEY_SETTINGS = ("PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")


SERVERS = [
    (None, "sqlite:///mlflow.db", {"PREFECT_API_AUTH_STRING"}),
    ("http://127.0.0.1:1/api", "http://127.0.0.1:2", {*KEY_SETTINGS}),
    ("http://prefect.example/api", "http://mlflow.example", set()),
    ("http://127.0.0.1:3/api", "http://127.0.0.1:1", set()),
]


@pytest.mark.parametrize(("prefect", "mlflow", "shown"), SERVERS)
def test_the_key_is_shown_to_servers_of_this_folder_alone(state, monkeypatch, prefect, mlflow, shown):
    folder_key()
    servers_note().write_text('{"prefect_api": "http://127.0.0.1:1/api", "mlflow": "http://127.0.0.1:2"}')
    for name in (*KEY_SETTINGS, "MLFLOW_TRACKING_TOKEN", "PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_URL"):
        monkeypatch.setenv(name, "")  # and back to what it was, whatever is set meanwhile
        monkeypatch.delenv(name)
    if prefect:
        monkeypatch.setenv("PREFECT_API_URL", prefect)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow)
    show_key()
    assert {name for name in KEY_SETTINGS if name in os.environ} == shown
    assert os.environ.get("PREFECT_API_AUTH_STRING") in (folder_key(), None)
