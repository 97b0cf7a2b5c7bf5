"""Whether the process that wrote a file is gone."""

import os
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from learnkernels.tasks.owner import Owner


@pytest.fixture
def ended() -> Owner:
    """A process of this machine that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        owner = Owner.of(process.pid)
        assert not owner.gone
        process.communicate(b"\n")
    return owner


def test_this_process_is_here_and_not_gone():
    owner = Owner.this()
    assert owner.pid == os.getpid()
    assert owner.here
    assert not owner.gone


def test_a_process_that_has_ended_is_gone(ended: Owner):
    assert ended.gone


def test_a_number_that_was_given_again_is_another_process():
    assert replace(Owner.this(), started=Owner.this().started - 3600).gone


def test_a_clock_that_is_set_ends_no_process(monkeypatch: pytest.MonkeyPatch):
    owner, start = Owner.this(), psutil.boot_time()
    monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: start - 3600)  # it says when, by the clock of now
    assert not owner.gone


def test_a_process_that_cannot_be_looked_at_is_not_gone(monkeypatch: pytest.MonkeyPatch):
    def hidden(pid: int) -> psutil.Process:
        raise psutil.NoSuchProcess(pid)

    owner = Owner.this()
    monkeypatch.setattr(psutil, "Process", hidden)
    assert not owner.gone


def test_a_process_of_another_host_is_never_known_to_be_gone(ended: Owner):
    assert not replace(ended, host="elsewhere.1").gone


@pytest.mark.parametrize("text", ["{}", "run~{}~x8_3", ".name~{}.tmp"])
def test_an_owner_is_read_back_from_a_name(text: str):
    assert Owner.read(text.format(Owner.this())) == Owner.this()


@pytest.mark.parametrize("text", ["", "run-123-abc", "host~x~y", "host~1~2x"])
def test_a_text_without_an_owner_gives_none(text: str):
    assert Owner.read(text) is None
