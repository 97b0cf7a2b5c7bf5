"""Files and objects: where they are, what is said when they are not, and outputs that appear whole or not at all."""

from __future__ import annotations

import gzip
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from pyarrow.fs import FileType

from learnkernels.conf.errors import InputError
from learnkernels.tasks.data.dataset import dataset_digest
from learnkernels.tasks.data.ingest import ingest
from learnkernels.tasks.data.locations import (
    PART_BYTES,
    TransferError,
    locate,
    transferring,
    upload,
    written,
)
from tests.refusals import require_refusals
from tests.sources import ENDINGS, config, load, write

if TYPE_CHECKING:
    from tests.service.conftest import S3

ROOT = Path(__file__).resolve().parents[3]


def exists(text: str) -> bool:
    return bool(locate(text).info().type == FileType.File)


def test_a_file_and_an_object_answer_the_same(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    content = np.random.default_rng(0).bytes(2 * PART_BYTES + 17)
    path = tmp_path / "a b.bin"
    path.write_bytes(content)
    for text in (str(path), s3.put("folder/ü b+c.bin", path)):
        location = locate(text)
        assert (location.size(), location.suffix) == (len(content), ".bin")
        with location.open_input() as file:
            assert file.read() == content
            file.seek(5)
            assert file.read(3) == content[5:8]
    assert not exists(str(tmp_path / "gone"))
    assert not exists("s3://rows/gone")
    # The address of S3 alone goes before the common one
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert not exists("s3://rows/gone")


def test_an_address_that_is_none_gets_one_sentence():
    none = ("s3://rows/", "s3:///key", "s3://rows/folder/", "s3://rows/../key")
    refused = dict.fromkeys(none, "expected s3://bucket/key") | {
        "": "a path is empty",
        "gs://rows/key": r"gs://\.\.\.: files are those of local paths and of s3://bucket/key; download",
        "s3://rows": r"s3://rows: expected s3://bucket/key",
        "s3://me:hidden@rows/key": "an address holds a bucket and a key alone",
    }
    said = require_refusals(
        ((partial(locate, text), sentence) for text, sentence in refused.items()),
        error=InputError,
    )
    assert "hidden" not in str(said)


def test_what_is_not_there_is_named(s3: S3, tmp_path: Path):
    cases = {
        str(tmp_path / "gone.csv"): r"gone\.csv: there is no such file \(seen from",
        str(tmp_path): "is a folder; give one file",
        "s3://rows/gone.csv": r"s3://rows/gone\.csv: there is no such object in the bucket 'rows'",
        "s3://nowhere/gone.csv": r"there is no bucket 'nowhere' at http://127\.0\.0\.1:\d+; correct or create it",
    }
    asked = [
        (ask, said)
        for text, said in cases.items()
        for ask in (locate(text).size, locate(text).open_input)
    ]
    s3.put("data.parquet", Path(write("a,target\n1,2\n", tmp_path / "data.csv")))
    sets = {
        "gone.csv": "there is no such object",
        "../x.csv": "expected s3://bucket/key",
    }
    sets["data.parquet"] = r"data\.parquet cannot be read as parquet"
    for path, said in sets.items():
        asked.append(
            (
                partial(load, tmp_path, f"s3://rows/{path}"),
                f"data set {Path(path).stem}: .*{said}",
            )
        )
    require_refusals(asked, error=InputError)
    with (
        pytest.raises(InputError, match="there is no bucket 'nowhere'"),
        written(locate("s3://nowhere/a.csv")),
    ):
        pytest.fail("the bucket is looked for before anything is written")


def test_compressed_parts_of_a_folder_on_a_server_are_read(s3: S3, tmp_path: Path):
    rows = "".join(f"{i},{i % 7},\n" for i in range(40))
    (tmp_path / "1.csv").write_text(f"a,target,\n{rows}")
    (tmp_path / "2.csv.gz").write_bytes(gzip.compress(f"a,target,\n{rows}".encode()))
    for name in ("1.csv", "2.csv.gz"):
        s3.put(f"parts/{name}", tmp_path / name)
    told: list[str] = []
    dataset = load(tmp_path, "s3://rows/parts/", tell=told.append)
    assert (len(dataset.target), dataset.features) == (80, ("a",))
    assert told == [
        "data set parts: empty columns without a name are left out of 1.csv and 1 more."
    ]
    s3.put("parts/3.xlsx", tmp_path / "1.csv")
    with pytest.raises(
        InputError,
        match=r"s3://rows/parts/: holds '3\.xlsx', which cannot be read, next to 1\.csv",
    ):
        load(tmp_path, "s3://rows/parts/")


def test_a_server_that_refuses_or_is_not_there_is_named(
    s3: S3, monkeypatch: pytest.MonkeyPatch
):
    s3.authenticate(True)
    try:
        with pytest.raises(
            InputError, match="refuses access; check AWS_ACCESS_KEY_ID and"
        ) as caught:
            locate("s3://rows/a.csv").size()
    finally:
        s3.authenticate(False)
    assert not [
        secret
        for secret in ("not-to-be-shown", "somebody")
        if secret in str(caught.value)
    ]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound, but nobody listens
        monkeypatch.setenv(
            "AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}"
        )
        with pytest.raises(
            InputError,
            match=r"the server at http://127.* cannot be reached; check AWS_ENDPOINT_URL",
        ):
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
    text = (
        "s3://rows/new/folder/out.bin"
        if remote
        else str(tmp_path / "new" / "folder" / "out.bin")
    )

    for content, fail, left in (
        (b"half", True, None),
        (b"whole", False, b"whole"),
        (b"half", True, b"whole"),
    ):
        before = exists(text)
        with (
            pytest.raises(ZeroDivisionError) if fail else nullcontext(),
            written(locate(text)) as path,
        ):
            path.write_bytes(content)
            assert exists(text) == before
            if fail:
                raise ZeroDivisionError
        assert exists(text) == (left is not None)
        if left:
            assert locate(text).open_input().read() == left


def test_an_upload_that_loses_its_server_leaves_nothing(s3: S3, tmp_path: Path):
    lost: list[str] = []

    def lose(asked: str) -> None:
        if lost or "partNumber=2" in asked:
            lost.append(asked)
            raise ConnectionError

    s3.refuse = lose
    (tmp_path / "rows.bin").write_bytes(bytes(2 * PART_BYTES + 17))
    location = locate("s3://rows/out.bin")
    with (
        pytest.raises(TransferError, match="cannot be reached"),
        transferring(location, "written"),
    ):
        upload(tmp_path / "rows.bin", location)
    assert lost
    s3.refuse = None
    assert s3.keys() == []


SENDING = """
import signal, sys
from pathlib import Path
from learnkernels.conf.errors import InputError
from learnkernels.tasks.data.locations import locate, written
signal.signal(signal.SIGINT, signal.default_int_handler)
for name in sys.argv[2:]:
    try:
        with written(locate(f"s3://rows/{name}")) as path:
            path.write_bytes(Path(sys.argv[1]).read_bytes())
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
"""


def started(folder: Path, *names: str) -> subprocess.Popen[str]:
    """Start a process that sends two parts and some bytes to objects."""
    (folder / "rows.bin").write_bytes(bytes(2 * PART_BYTES + 17))
    command = [sys.executable, "-c", SENDING, str(folder / "rows.bin"), *names]
    return subprocess.Popen(command, cwd=ROOT, text=True, stderr=subprocess.PIPE)


def test_an_upload_that_is_refused_is_taken_back_and_ends(s3: S3, tmp_path: Path):
    """Its second part; in a process that must end by itself."""
    refused = {
        "AccessDenied": (403, "refuses access; check AWS_ACCESS_KEY_ID"),
        "NoSuchBucket": (404, "there is no bucket 'rows'"),
        "InternalError": (
            500,
            "InternalError.*check the address, AWS_REGION and the server",
        ),
        "InsufficientCapacity": (507, "InsufficientCapacity"),
    }

    def refuse(asked: str) -> str | None:
        code = asked.split("?")[0].rpartition("/")[2]
        return f"{refused[code][0]} {code}" if "partNumber=2" in asked else None

    s3.refuse = refuse
    process = started(tmp_path, *refused)
    _, said = process.communicate(timeout=240)
    assert process.returncode == 0, said
    for line, (code, (_, sentence)) in zip(
        said.splitlines(), refused.items(), strict=True
    ):
        assert re.fullmatch(rf"error: s3://rows/{code}: .*{sentence}.*\.", line), line
        assert any(one.startswith(f"DELETE /rows/{code}?") for one in s3.asked)
    assert (s3.unfinished(), s3.keys()) == ([], [])


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_upload_leaves_nothing(s3: S3, tmp_path: Path, how: signal.Signals):
    """Killed while its second part is under way; after Ctrl-C, its first part is taken back too."""
    arrived, go_on = threading.Event(), threading.Event()

    def hold(asked: str) -> None:
        if "partNumber=2" in asked:
            arrived.set()
            go_on.wait(60)

    s3.refuse = hold
    process = started(tmp_path, "out.bin")
    try:
        assert arrived.wait(60)
        process.send_signal(how)
        go_on.set()
        process.communicate(timeout=60)
        assert process.returncode != 0
    finally:
        go_on.set()
        process.kill()
    assert s3.keys() == []
    if how == signal.SIGINT:
        assert s3.unfinished() == []


# Data sets -----------------------------------------------------------------------------------------------------------


def test_a_data_set_on_a_server_is_the_local_one(s3: S3, tmp_path: Path):
    frame = pd.DataFrame(
        np.random.default_rng(0).normal(size=(40, 3)), columns=["a", "b", "c"]
    )
    frame["target"] = np.where(frame["a"] > 0, 1, 0)
    for ending in (*ENDINGS, ".libsvm"):
        address = s3.put(
            f"folder/data{ending}", Path(write(frame, tmp_path / f"data{ending}"))
        )
        local, remote = load(tmp_path, f"data{ending}"), load(tmp_path, address)
        assert dataset_digest(local) == dataset_digest(remote)
        assert config(address).label == "data"
        assert ingest.fn(
            config(f"data{ending}"), "s3://rows/folder/", 0
        ).digest == dataset_digest(local)
