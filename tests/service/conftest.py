"""A server of objects for tests that read and write there."""

from __future__ import annotations

import logging
import os
import re
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from learnkernels.tasks.data.locations import locate, upload

PATIENCE = 180
"""Seconds within which the server answers: its first requests import it, on a machine with other work to do."""


def _asked(request: str | urllib.request.Request) -> str:
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return str(answer.read().decode())


@dataclass
class S3:
    """A server that speaks S3, and a bucket."""

    port: int
    server: Any = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        from moto.server import ThreadedMotoServer  # here: few tests need it

        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self.server.start()
        self.port = int(self.server.get_host_and_port()[1])

    def put(self, key: str, path: Path) -> str:
        location = locate(f"s3://rows/{key}")
        upload(path, location)
        return location.text

    def keys(self) -> list[str]:
        import pyarrow.fs

        infos = locate("s3://rows/any").filesystem.get_file_info(pyarrow.fs.FileSelector("rows", recursive=True))
        return sorted(info.path for info in infos)

    def unfinished(self) -> list[str]:
        """Return the keys of uploads of which parts lie on the server."""
        return re.findall(r"<Key>(.*?)</Key>", _asked(f"{self.url}/rows?uploads"))

    def authenticate(self, on: bool) -> None:
        """Let the server check keys, or not."""
        request = urllib.request.Request(
            f"{self.url}/moto-api/reset-auth", b"0" if on else b"inf", {"Content-Type": "text/plain"}, method="POST"
        )
        _asked(request)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    level = logging.getLogger("werkzeug").level
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    one = S3(0)
    one.start()
    yield one
    one.server.stop()
    logging.getLogger("werkzeug").setLevel(level)


@pytest.fixture
def s3(s3_server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3:
    """A server with the empty bucket ``rows``, named by the environment as users name theirs."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    settings = {
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "not-to-be-shown",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": s3_server.url,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    for path, method in (("moto-api/reset", "POST"), ("rows", "PUT")):
        _asked(urllib.request.Request(f"{s3_server.url}/{path}", b"", method=method))
    return s3_server
