"""Files and objects: where they are, what is said when they are not, and outputs that appear whole or not at all."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import dump_svmlight_file

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DatasetConfig
from learnkernels.tasks.data.dataset import dataset_digest
from learnkernels.tasks.data.ingest import ingest, load_source
from learnkernels.tasks.data.locations import PART_BYTES, TransferError, locate, transferring, upload, written

if TYPE_CHECKING:
    from tests.service.conftest import S3

ROOT = Path(__file__).resolve().parents[3]


def test_a_file_and_an_object_answer_the_same(s3: S3, tmp_path: Path):
    content = np.random.default_rng(0).bytes(2 * PART_BYTES + 17)
    path = tmp_path / "a b.bin"
    path.write_bytes(content)
    for text in (str(path), s3.put("folder/ü b+c.bin", path)):
        location = locate(text)
        assert location.exists()
        assert location.size() == len(content)
        with location.open_input() as file:
            assert file.read() == content
            file.seek(5)
            assert file.read(3) == content[5:8]
        assert location.suffix == ".bin"
    assert not locate(str(tmp_path / "gone")).exists()
    assert not locate("s3://rows/gone").exists()


def test_the_address_of_s3_alone_goes_before_the_common_one(s3: S3, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert not locate("s3://rows/gone").exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "a path is empty"),
        ("gs://rows/key", r"gs://\.\.\.: files are those of local paths and of s3://bucket/key; download"),
        ("s3://rows", r"s3://rows: expected s3://bucket/key"),
        ("s3://rows/", "expected s3://bucket/key"),
        ("s3:///key", "expected s3://bucket/key"),
        ("s3://rows/folder/", "expected s3://bucket/key"),
        ("s3://rows/../key", "expected s3://bucket/key"),
        ("s3://me:hidden@rows/key", "an address holds a bucket and a key alone"),
    ],
)
def test_an_address_that_is_none_gets_one_sentence(text: str, sentence: str):
    with pytest.raises(InputError, match=sentence) as caught:
        locate(text)
    assert "hidden" not in str(caught.value)


def test_what_is_not_there_is_named(s3: S3, tmp_path: Path):
    cases = [
        (str(tmp_path / "gone.csv"), r"gone\.csv: there is no such file \(seen from"),
        (str(tmp_path), "is a folder; give one file"),
        ("s3://rows/gone.csv", r"s3://rows/gone\.csv: there is no such object in the bucket 'rows'"),
        ("s3://nowhere/gone.csv", r"there is no bucket 'nowhere' at http://127\.0\.0\.1:\d+; correct or create it"),
    ]
    for text, sentence in cases:
        for ask in (lambda text=text: locate(text).size(), lambda text=text: locate(text).open_input()):
            with pytest.raises(InputError, match=sentence):
                ask()
    with pytest.raises(InputError, match="there is no bucket 'nowhere'"), written(locate("s3://nowhere/a.csv")):
        pytest.fail("the bucket is looked for before anything is written")


def test_wrong_keys_are_named_and_never_shown(s3: S3):
    s3.authenticate(True)
    try:
        with pytest.raises(InputError, match="refuses access; check AWS_ACCESS_KEY_ID and") as caught:
            locate("s3://rows/a.csv").size()
    finally:
        s3.authenticate(False)
    assert "not-to-be-shown" not in str(caught.value)
    assert "somebody" not in str(caught.value)


def test_a_server_that_is_not_there_is_named(s3: S3, monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound, but nobody listens
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(InputError, match=r"the server at http://127.* cannot be reached; check AWS_ENDPOINT_URL"):
            locate("s3://rows/a.csv").size()


def test_one_file_under_two_names_is_the_same(tmp_path: Path, s3: S3):
    path = tmp_path / "a.csv"
    path.write_text("x")
    (tmp_path / "link.csv").symlink_to(path)
    os.link(path, tmp_path / "hard.csv")
    ours = locate(str(path))
    for name in ("a.csv", "link.csv", "hard.csv", "../" + tmp_path.name + "/a.csv"):
        assert ours.is_same(locate(f"{tmp_path}/{name}"))
    assert not ours.is_same(locate(f"{tmp_path}/b.csv"))
    assert locate("s3://rows/a.csv").is_same(locate("S3://rows/a.csv"))
    assert not locate("s3://rows/a.csv").is_same(locate("s3://rows/b.csv"))
    assert not ours.is_same(locate("s3://rows/a.csv"))


# Output --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("remote", [False, True])
def test_an_output_appears_whole_or_not_at_all(s3: S3, tmp_path: Path, remote: bool):
    text = "s3://rows/new/folder/out.bin" if remote else str(tmp_path / "new" / "folder" / "out.bin")

    def write(content: bytes, fail: bool) -> None:
        before = locate(text).exists()
        with written(locate(text)) as path:
            path.write_bytes(content)
            assert locate(text).exists() == before
            if fail:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write(b"half", True)
    assert not locate(text).exists()
    write(b"whole", False)
    with pytest.raises(ZeroDivisionError):
        write(b"half", True)
    with locate(text).open_input() as file:
        assert file.read() == b"whole"


def fed(pipe: Path) -> threading.Thread:
    """Write one part and the beginning of the next into a pipe that stays open; done when the first part was sent.

    A pipe holds 64 KiB. That 256 KiB more than a part went into it shows that the reader asked for its second part.
    """

    def feed() -> None:
        with suppress(BrokenPipeError), pipe.open("wb", buffering=0) as into:
            into.write(bytes(PART_BYTES + 2**18))
            sent.set()
            go_on.wait(60)
            for _ in range(4):
                into.write(bytes(PART_BYTES // 2))

    sent, go_on = threading.Event(), threading.Event()
    thread = threading.Thread(target=feed, daemon=True)
    thread.sent, thread.go_on = sent, go_on  # type: ignore[attr-defined]
    thread.start()
    return thread


def test_an_upload_that_loses_its_server_leaves_nothing(s3: S3, tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    location, errors, feeder = locate("s3://rows/out.bin"), [], fed(pipe)

    def send() -> None:
        try:
            with transferring(location, "written"):
                upload(pipe, location)
        except OSError as error:
            errors.append(error)

    sender = threading.Thread(target=send)
    sender.start()
    assert feeder.sent.wait(60)
    s3.server.stop()
    try:
        feeder.go_on.set()
        sender.join(60)
    finally:
        s3.start()
    assert isinstance(errors[0], TransferError)
    assert "cannot be reached" in str(errors[0])
    assert s3.keys() == []


class Refusing:
    """A server between, which answers some requests by an error of S3."""

    def __init__(self, s3: S3, refuse: Callable[[str, str], tuple[int, str] | None]) -> None:
        outer = self
        outer.requests = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                if self.headers.get("Expect") == "100-continue":
                    self.send_response_only(100)
                    self.end_headers()
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.requests.append(f"{self.command} {self.path}")
                answer = refuse(self.command, self.path)
                if answer is None:
                    headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
                    request = urllib.request.Request(s3.url + self.path, body or None, headers, method=self.command)
                    try:
                        with urllib.request.urlopen(request, timeout=30) as got:
                            status, said, held = got.status, got.read(), got.headers
                    except urllib.error.HTTPError as error:
                        status, said, held = error.code, error.read(), error.headers
                else:
                    status, code = answer
                    said, held = f"<Error><Code>{code}</Code><Message>No.</Message></Error>".encode(), {}
                self.send_response(status)
                for name in ("ETag", "Content-Type", "Last-Modified"):
                    if held.get(name):
                        self.send_header(name, held[name])
                length = held.get("Content-Length") if self.command == "HEAD" else len(said)
                self.send_header("Content-Length", str(length or 0))
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else said)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.mark.parametrize(
    ("status", "code", "sentence"),
    [
        (403, "AccessDenied", "refuses access; check AWS_ACCESS_KEY_ID"),
        (404, "NoSuchBucket", "there is no bucket 'rows'"),
        (500, "InternalError", "InternalError.*check the address, AWS_REGION and the server"),
        (507, "InsufficientCapacity", "InsufficientCapacity"),
    ],
)
def test_an_upload_that_is_refused_is_taken_back_and_ends(
    s3: S3, tmp_path: Path, status: int, code: str, sentence: str
):
    """Its second part; in a process that must end by itself."""

    def refuse(command: str, path: str) -> tuple[int, str] | None:
        return (status, code) if "partNumber=2" in path else None

    between = Refusing(s3, refuse)
    (tmp_path / "rows.bin").write_bytes(bytes(2 * PART_BYTES + 17))
    code_ = (
        "import sys; from pathlib import Path\n"
        "from learnkernels.conf.errors import InputError\n"
        "from learnkernels.tasks.data.locations import locate, written\n"
        "try:\n"
        "    with written(locate('s3://rows/out.bin')) as path: path.write_bytes(Path(sys.argv[1]).read_bytes())\n"
        "except InputError as error: sys.exit(f'error: {error}')"
    )
    try:
        run = subprocess.run(
            [sys.executable, "-c", code_, str(tmp_path / "rows.bin")],
            cwd=ROOT,
            env={**os.environ, "AWS_ENDPOINT_URL": between.url},
            capture_output=True,
            text=True,
            timeout=120,
        )
    finally:
        between.close()
    assert run.returncode == 1, run.stderr
    assert re.fullmatch(rf"error: s3://rows/out.bin: .*{sentence}.*\.\n", run.stderr), run.stderr
    assert any(one.startswith("DELETE ") for one in between.requests)
    assert s3.unfinished() == []
    assert s3.keys() == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_upload_leaves_nothing(s3: S3, tmp_path: Path, how: signal.Signals):
    """Killed while its second part is under way; after Ctrl-C, its first part is taken back too."""
    arrived, go_on = threading.Event(), threading.Event()

    def hold(command: str, path: str) -> None:
        if "partNumber=2" in path:
            arrived.set()
            go_on.wait(60)

    between = Refusing(s3, hold)
    (tmp_path / "rows.bin").write_bytes(bytes(2 * PART_BYTES + 17))
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from pathlib import Path; "
        "from learnkernels.tasks.data.locations import locate, upload; "
        "upload(Path(sys.argv[1]), locate('s3://rows/out.bin'))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "rows.bin")],
        cwd=ROOT,
        env={**os.environ, "AWS_ENDPOINT_URL": between.url},
        stderr=subprocess.DEVNULL,
    )
    try:
        assert arrived.wait(60)
        process.send_signal(how)
        go_on.set()
        assert process.wait(60) != 0
    finally:
        go_on.set()
        process.kill()
        between.close()
    assert s3.keys() == []
    if how == signal.SIGINT:
        assert s3.unfinished() == []


# Data sets -----------------------------------------------------------------------------------------------------------


def config(path: str, **keys: object) -> DatasetConfig:
    return DatasetConfig.model_validate({"source": "file", "path": path, **keys})


@pytest.fixture
def table(tmp_path: Path) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(40, 3)), columns=["a", "b", "c"])
    frame["target"] = np.where(frame["a"] > 0, "yes", "no")
    frame.to_parquet(tmp_path / "data.parquet")
    frame.to_csv(tmp_path / "data.csv", index=False)
    frame.to_feather(tmp_path / "data.feather")
    frame.to_feather(tmp_path / "data.arrow")
    dump_svmlight_file(frame[["a", "b", "c"]].to_numpy(), frame["target"] == "yes", str(tmp_path / "data.libsvm"))
    return frame


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".feather", ".arrow", ".libsvm"])
def test_a_data_set_on_a_server_is_the_local_one(s3: S3, tmp_path: Path, table: pd.DataFrame, ending: str):
    address = s3.put(f"folder/data{ending}", tmp_path / f"data{ending}")
    local, remote = load_source(config(f"data{ending}"), str(tmp_path)), load_source(config(address), str(tmp_path))
    assert dataset_digest(local) == dataset_digest(remote)
    assert config(address).label == "data"
    relative = ingest.fn(config(f"data{ending}"), "s3://rows/folder/", 0)
    assert relative.digest == dataset_digest(local)


def test_a_data_set_that_is_not_on_the_server_is_named(s3: S3, tmp_path: Path, table: pd.DataFrame):
    cases = [
        ("s3://rows/gone.csv", "data set gone: s3://rows/gone.csv: there is no such object"),
        ("s3://nowhere/gone.csv", "data set gone: s3://nowhere/gone.csv: there is no bucket 'nowhere'"),
        ("s3://rows/../x.csv", "data set x: s3://rows/../x.csv: expected s3://bucket/key"),
        ("s3://rows/data.xlsx", "data set data: cannot read data.xlsx; supported endings"),
    ]
    for path, sentence in cases:
        with pytest.raises(InputError, match=sentence):
            load_source(config(path))
    s3.put("data.parquet", tmp_path / "data.csv")
    with pytest.raises(InputError, match=r"data set data: data\.parquet cannot be read as parquet"):
        load_source(config("s3://rows/data.parquet"))
