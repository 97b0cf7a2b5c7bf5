"""Which servers a folder has."""

import errno
import io
import os
import stat
import sys
import warnings
from pathlib import Path
from urllib.request import proxy_bypass_environment

import httpx
import pytest

from learnkernels.conf.errors import InputError
from learnkernels.tasks import environment


def test_a_damaged_note_of_servers_names_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path))
    for note in ("", "{", "[]", '{"mlflow": 5}', '{"mlflow": "no address"}'):
        environment.servers_note().write_text(note)
        assert environment.running_server("mlflow") is None, note


def test_the_state_folder_is_made_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path / "work" / "state"))
    assert stat.S_IMODE(environment.prepare_environment().stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "work").stat().st_mode) != 0o700
    (tmp_path / "work" / "state").chmod(0o750)  # as its user has set it since
    assert stat.S_IMODE(environment.prepare_environment().stat().st_mode) == 0o750


def test_a_database_without_its_driver_is_one_sentence(state: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:secret@db/mlflow")
    environment.prepare_environment()  # it is here
    without = [one for one in sys.path if not (Path(one) / "psycopg2").is_dir()]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", without)
        patch.delitem(sys.modules, "psycopg2", raising=False)
        with pytest.raises(InputError, match=r"^MLFLOW_TRACKING_URI is .*: pip install 'psycopg2-binary>=2\.9,<3'\.$"):
            environment.prepare_environment()
    for begin in ("postgresql", "postgres", "postgresql+psycopg2"):
        monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", f"{begin}://me:secret@db/prefect")
        with pytest.raises(InputError, match=r"begin it with postgresql\+asyncpg://\.$") as refused:
            environment.prepare_environment()
        assert "secret" not in str(refused.value)


def test_proxies_are_not_asked_for_servers_of_this_machine(state: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("no_proxy", "NO_PROXY", "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    environment.prepare_environment()
    assert "no_proxy" not in os.environ
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "example.org, 127.0.0.1")
    environment.prepare_environment()
    assert os.environ["no_proxy"] == os.environ["NO_PROXY"] == "example.org,127.0.0.1,localhost,::1"
    assert all(proxy_bypass_environment(host) for host in ("localhost", "127.0.0.1", "example.org"))
    assert not proxy_bypass_environment("example.com")
    monkeypatch.setenv("no_proxy", "*")
    environment.prepare_environment()
    assert proxy_bypass_environment("example.com")


def test_proxies_that_no_client_speaks_to_are_forgotten(state: Path, monkeypatch: pytest.MonkeyPatch):
    spoken = {"http_proxy": "proxy.example:3128", "HTTPS_PROXY": "http://proxy.example:3128"}
    for name, value in {**spoken, "all_proxy": "socks5://proxy.example", "FTP_PROXY": "nonsense://x"}.items():
        monkeypatch.setenv(name, value)
    environment.prepare_environment()
    with httpx.Client():  # which refuses to be made for a proxy that it does not speak to
        left = {name: os.environ.get(name) for name in (*spoken, "all_proxy", "FTP_PROXY")}
        assert left == spoken | {"all_proxy": None, "FTP_PROXY": None}


def test_a_folder_for_what_is_temporary_is_there(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    environment.prepare_environment()
    assert os.environ["TMPDIR"] == str(state / "tmp")


SHOWN = [
    ("ascii", b"0.1 +- 0.2, Grosse, Cafe? -> ?? ... ?"),
    ("cp1252", "0.1 ± 0.2, Größe, Café? -> ?? … ?".encode("cp1252")),
    ("utf-8", "0.1 ± 0.2, Größe, Café\u0300 → 价格 … ?".encode()),
]


@pytest.mark.parametrize(("encoding", "shown"), SHOWN)
def test_output_replaces_characters_that_its_encoding_lacks(encoding, shown, monkeypatch):
    written = io.BytesIO()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(written, encoding=encoding))
    for name in ("PYTHONSAFEPATH", "PYTHONUTF8", "PYTHONWARNINGS"):
        monkeypatch.setenv(name, "error")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        environment.prepare_python()
        with pytest.warns(UserWarning, match="of a library"):
            warnings.warn("of a library", stacklevel=1)
    assert "PYTHONWARNINGS" not in os.environ
    assert environment.scheduled_settings()["PYTHONSAFEPATH"] == "1"  # of its processes, too
    for stream in (sys.stdout, sys.stderr):
        stream.write("0.1 ± 0.2, Größe, Café\u0300 → 价格 … \udcff")
        stream.flush()
    assert written.getvalue() == 2 * shown


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PREFECT_HOME", "LEARNKERNELS_HOME"])
def test_a_place_that_cannot_be_is_one_sentence(name: str, state: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(name, "/proc/missing")
    with pytest.raises(InputError, match=r"/proc/missing.* cannot be \w+ \(No such file or directory\); ") as refused:
        environment.prepare_environment()
    assert name in str(refused.value)


def test_an_error_that_speaks_of_a_setting_of_a_library_names_it(state: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PREFECT_LOGGING_LEVEL", "nonsense")
    monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", "http://me:secret@elsewhere")
    monkeypatch.setenv("DASK_LOGS", "file:/nowhere/log")
    for error, name, value in (
        (FileNotFoundError(errno.ENOENT, "No such file", "/nowhere"), "DASK_LOGS", "'file:/nowhere/log'"),
        (ValueError("input_value='NONSENSE', input_type=str"), "PREFECT_LOGGING_LEVEL", "'nonsense'"),
        (KeyError("MLFLOW_S3_ENDPOINT_URL"), "MLFLOW_S3_ENDPOINT_URL", "'http://elsewhere'"),
    ):
        blamed, sentence = environment.told(error)
        assert blamed
        assert sentence.startswith(f"{name} is {value} in the environment ({type(error).__name__}: ")
        assert sentence.endswith("); correct it, or unset it.")
    blamed, sentence = environment.told(ValueError("a fault of ours"))
    assert not blamed
    assert sentence.startswith("unexpected internal error: ")
