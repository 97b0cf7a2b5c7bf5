"""A full disk, a read-only folder, limits: one sentence with its path, exit code 2, and nothing half-written."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import typer
from prefect.states import Completed, Failed

from learnkernels.conf.errors import InputError
from learnkernels.flows.cli import BAD_INPUT, _user_errors
from learnkernels.tasks import environment, stopping
from learnkernels.tasks.data.locations import TransferError, failed_in_transfer, locate, written
from learnkernels.tasks.data.streams import TableOutput
from tools.mutations import fates, is_sentence


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True
    )
    if not mounted or mounted.returncode:
        pytest.skip("this user may not mount a disk in memory")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def write(path: Path) -> None:
    """Write a table of a megabyte or so, as predictions are written."""
    table = pa.table({"prediction": np.random.default_rng(0).normal(size=1 << 17)})
    location = locate(str(path))
    with written(location) as temporary, TableOutput(temporary, location, table.schema) as out:
        out.write(table)


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".arrow"])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(small_disk: Path, ending: str):
    with pytest.raises(
        InputError, match=rf"out\{ending}: .*[Nn]o space left on device; make room on that disk"
    ) as caught:
        write(small_disk / f"out{ending}")
    assert is_sentence(str(caught.value))
    assert not isinstance(caught.value, TransferError)
    assert list(small_disk.iterdir()) == []


def test_a_read_only_folder_is_one_sentence(small_disk: Path):
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(InputError, match=r"out\.parquet: Read-only file system; give a place that can be written to"):
        write(small_disk / "out.parquet")
    assert list(small_disk.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_one_sentence(tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match=r"out\.parquet: Permission denied; change its permissions"):
        write(tmp_path / "out.parquet")


def test_a_limit_of_the_length_of_files_is_one_sentence(tmp_path: Path):
    def limited(case: Any) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        write(tmp_path / "out.parquet")

    (fate,) = fates([0], limited, (InputError,))
    assert fate.kind == "sentence", fate.text
    assert "File too large; raise the limit" in fate.text
    assert list(tmp_path.iterdir()) == []


# The command ---------------------------------------------------------------------------------------------------------


def said(capsys: pytest.CaptureFixture[str], error: BaseException) -> tuple[int, str]:
    """Return the exit code, and what a command says that an error was raised in."""
    with pytest.raises(typer.Exit) as caught, _user_errors("all is kept"):
        raise error
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert is_sentence(text.rstrip("\n").removeprefix("error: "), 500), text
    return caught.value.exit_code, text


def wrapped(error: Exception) -> Exception:
    try:
        try:
            raise error
        except Exception as inner:
            raise RuntimeError("the server answers with status 500\nand a second line") from inner
    except RuntimeError as outer:
        return outer


@pytest.mark.parametrize("around", [lambda error: error, wrapped])
@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "results/x"),
            "results/x: No space left on device; make room",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device; make room on that disk."),
        (OSError("128 requested and 64 written"), "No space left on device; make room on that disk."),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "/x: Permission denied; change its permissions"),
        (OSError(errno.EROFS, "Read-only file system", "/x"), "/x: Read-only file system; give a place"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files; raise the limit of open files"),
        (sqlite3.OperationalError("database or disk is full"), "database or disk is full; make room"),
        (sqlite3.OperationalError("attempt to write a readonly database"), "readonly database; change its permissions"),
        (MemoryError(), "there is not enough memory"),
    ],
    ids=str,
)
def test_an_error_of_the_machine_is_one_sentence(
    working_folder: Path, capsys: pytest.CaptureFixture[str], around: Any, error: Exception, sentence: str
):
    code, text = said(capsys, around(error))
    assert code == BAD_INPUT
    assert sentence in text
    assert not (working_folder / "state" / "errors.log").exists()


def test_an_error_that_nobody_expected_is_one_sentence_and_a_traceback_in_a_file(
    working_folder: Path, capsys: pytest.CaptureFixture[str]
):
    code, text = said(capsys, wrapped(KeyError("http://me:hidden@host/x\n" + "y" * 5000)))
    log = working_folder / "state" / "errors.log"
    assert code == 1
    assert "error: RuntimeError: the server answers with status 500 and a second line, which nobody expected" in text
    assert str(log) in text
    assert "Traceback (most recent call last)" in log.read_text()
    assert "hidden" not in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


def test_an_unexpected_error_on_a_full_disk_is_that_disks(
    working_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(environment.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    code, text = said(capsys, RuntimeError("timed out"))
    assert code == BAD_INPUT
    assert "its disk is full; make room" in text


def test_a_full_or_read_only_state_folder_is_refused_before_a_run(small_disk: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(small_disk / "state"))
    with pytest.raises(InputError, match="MiB of its disk are free, and the databases of a run need 16; make room"):
        environment.prepare_environment()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(InputError, match=r"state: cannot be written to; change its permissions"):
        environment.prepare_environment()


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (TransferError("it."), True),
        (OSError(errno.ECONNRESET, "Connection reset"), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (OSError("128 requested and 64 written"), False),
        (InputError("it."), False),
    ],
    ids=str,
)
def test_only_what_may_go_away_is_tried_again(error: Exception, again: bool):
    assert failed_in_transfer(None, None, Failed(data=error)) is again
    assert not failed_in_transfer(None, None, Completed(data=1))


def test_a_signal_of_which_a_library_makes_an_error_is_no_error(monkeypatch, capsys):
    monkeypatch.setattr(stopping._state, "received", 15)
    with pytest.raises(stopping.Stopped), _user_errors("all is kept"):
        raise ValueError("error calling a serializer: Stopped: SIGTERM")
    assert "error" not in capsys.readouterr().err
