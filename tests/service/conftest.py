"""A server of objects for tests that read and write there."""

import logging
import os
import re
import socket
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from learnkernels.tasks.data.locations import locate, upload

PATIENCE = 180
"""Seconds for an answer; the first request imports the server."""


def _request(request: str | urllib.request.Request) -> str:
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return str(answer.read().decode())


@dataclass
class S3:
    """A server that speaks S3, and a bucket."""

    port: int
    server: Any = None
    refuse: Callable[[str], str | None] | None = None
    """Function of a request that returns the status and code of an error or None."""
    asked: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        from moto.server import ThreadedMotoServer  # here: few tests need it

        self.server = ThreadedMotoServer(
            ip_address="127.0.0.1", port=self.port, verbose=False
        )
        self.server.start()
        self.port = int(self.server.get_host_and_port()[1])
        http_server = self.server._server
        answer = http_server.app
        http_server.app = lambda environ, start: self._answer(answer, environ, start)

    def _answer(self, answer: Any, environ: dict[str, Any], start: Any) -> Any:
        self.asked.append(f"{environ['REQUEST_METHOD']} {environ['RAW_URI']}")
        try:
            refused = self.refuse and self.refuse(self.asked[-1])
        except ConnectionError:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise
        if refused is None:
            return answer(environ, start)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start(refused, [])
        return [
            f"<Error><Code>{refused.split()[1]}</Code><Message>No.</Message></Error>".encode()
        ]

    def put(self, key: str, path: Path) -> str:
        location = locate(f"s3://rows/{key}")
        upload(path, location)
        return location.text

    def keys(self) -> list[str]:
        import pyarrow.fs

        infos = locate("s3://rows/any").filesystem.get_file_info(
            pyarrow.fs.FileSelector("rows", recursive=True)
        )
        return sorted(info.path for info in infos)

    def unfinished(self) -> list[str]:
        """Return the keys of incomplete uploads."""
        return re.findall(r"<Key>(.*?)</Key>", _request(f"{self.url}/rows?uploads"))

    def authenticate(self, on: bool) -> None:
        """Let the server check keys, or not."""
        request = urllib.request.Request(
            f"{self.url}/moto-api/reset-auth",
            b"0" if on else b"inf",
            {"Content-Type": "text/plain"},
            method="POST",
        )
        _request(request)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    level = logging.getLogger("werkzeug").level
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    s3 = S3(0)
    s3.start()
    yield s3
    s3.server.stop()
    logging.getLogger("werkzeug").setLevel(level)


@pytest.fixture
def s3(s3_server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3:
    """A server with the empty bucket ``rows``, named by the environment as users name theirs."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    settings = dict.fromkeys(
        ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), str(tmp_path / "none")
    )
    settings |= {
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "not-to-be-shown",
    }
    settings |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": s3_server.url}
    settings["AWS_EC2_METADATA_DISABLED"] = "true"
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    s3_server.refuse = None
    s3_server.asked.clear()
    for path, method in (("moto-api/reset", "POST"), ("rows", "PUT")):
        _request(urllib.request.Request(f"{s3_server.url}/{path}", b"", method=method))
    return s3_server
