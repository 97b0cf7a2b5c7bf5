"""An error of the machine: one sentence with its path, exit code 2, and no second try of what stays."""

import errno
import sqlite3
from itertools import product
from types import SimpleNamespace

import pytest
import typer
from prefect.states import Completed, Failed

from learnkernels.conf.errors import InputError
from learnkernels.flows.cli import BAD_INPUT, user_errors
from learnkernels.tasks import environment, stopping
from learnkernels.tasks.data.locations import TransferError, failed_in_transfer
from tools.mutations import is_sentence


def said(capsys: pytest.CaptureFixture[str], error: BaseException) -> tuple[int, str]:
    """Return the exit code, and what a command says that an error was raised in."""
    with pytest.raises(typer.Exit) as caught, user_errors("all is kept"):
        raise error
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert is_sentence(text.rstrip("\n").removeprefix("error: "), 500), text
    return caught.value.exit_code, text


def wrapped(error: Exception) -> Exception:
    outer = RuntimeError("the server answers with status 500\nand a second line")
    outer.__cause__ = error
    return outer


FULL = OSError(errno.ENOSPC, "No space left on device")
UNWRITTEN = OSError("128 requested and 64 written")
ERRORS = [
    (OSError(errno.ENOSPC, "No space left on device", "results/x"), "results/x: No space left on device; free up"),
    (FULL, "No space left on device; free up space on that disk."),
    (UNWRITTEN, "No space left on device; free up space on that disk."),
    (PermissionError(errno.EACCES, "Permission denied", "/x"), "/x: Permission denied; change its permissions"),
    (OSError(errno.EROFS, "Read-only file system", "/x"), "/x: Read-only file system; give a place"),
    (OSError(errno.EMFILE, "Too many open files"), "Too many open files; raise the limit of open files"),
    (sqlite3.OperationalError("database or disk is full"), "database or disk is full; free up space"),
    (sqlite3.OperationalError("attempt to write a readonly database"), "readonly database; change its permissions"),
    (MemoryError(), "there is not enough memory"),
]


def test_an_error_of_the_machine_is_one_sentence(state, capsys: pytest.CaptureFixture[str]):
    failures = []
    for (error, sentence), wrap in product(ERRORS, (False, True)):
        code, text = said(capsys, wrapped(error) if wrap else error)
        if code != BAD_INPUT or sentence not in text:
            failures.append((code, text, sentence, wrap))
    assert not failures
    assert not (state / "errors.log").exists()


def test_an_error_that_nobody_expected_is_one_sentence_and_a_traceback_in_a_file(state, capsys, monkeypatch):
    code, text = said(capsys, wrapped(KeyError("http://me:hidden@host/x\n" + "y" * 5000)))
    log = state / "errors.log"
    assert code == 1
    assert "unexpected internal error: RuntimeError: the server answers with status 500 and a second line" in text
    assert str(log) in text
    assert "Traceback (most recent call last)" in log.read_text()
    assert "hidden" not in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(environment.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    code, text = said(capsys, RuntimeError("timed out"))
    assert (code, "its disk is full; free up space" in text) == (BAD_INPUT, True)


def test_only_what_may_go_away_is_tried_again():
    again = {TransferError("it."): True, OSError(errno.ECONNRESET, "Connection reset"): True}
    again |= {FULL: False, UNWRITTEN: False, InputError("it."): False}
    assert {error: failed_in_transfer(None, None, Failed(data=error)) for error in again} == again
    assert not failed_in_transfer(None, None, Completed(data=1))


def test_a_signal_of_which_a_library_makes_an_error_is_no_error(monkeypatch, capsys):
    monkeypatch.setattr(stopping._state, "received", 15)
    with pytest.raises(stopping.Stopped), user_errors("all is kept"):
        raise ValueError("error calling a serializer: Stopped: SIGTERM")
    assert "error" not in capsys.readouterr().err
