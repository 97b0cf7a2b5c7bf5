"""What tries of faults report, on prepared results."""

import itertools
import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from dev.tools.chaos import places
from dev.tools.chaos.__main__ import main
from dev.tools.chaos.journal import Attempt, Failure, report
from dev.tools.chaos.lane import Ended


def test_the_report_repeats_a_schedule_for_as_long_as_it_ran(tmp_path: Path):
    failed = Attempt("cron", 0, 7, failures=[Failure("grows", "x")], minutes=60.0)
    assert "--seed 7 --again cron:0 --cron 60`" in report([failed], tmp_path)


def test_a_schedule_is_not_repeated_without_watching_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    words = ["chaos", "--resume", str(tmp_path / "chaos"), "--again", "cron:0"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit, match="2"):
        main()
    sentence = "--again cron:0 watches nothing: add --cron MINUTES."
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "chaos").exists()


def test_a_schedule_whose_memory_and_descriptors_grow_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    moments = itertools.count(0, 20)
    clock = SimpleNamespace(monotonic=lambda: next(moments), sleep=lambda seconds: None)
    monkeypatch.setattr(places, "time", clock)
    looks = itertools.count(1)

    def measured(lane: object, marker: str) -> dict[str, float]:
        look = next(looks)
        growing = {"memory, MiB": 100.0 * look, "descriptors": 10.0 * look}
        return growing | dict.fromkeys(places.SIZES, 1.0)

    monkeypatch.setattr(places, "_measured", measured)
    monkeypatch.setattr(places, "_flow_runs", lambda lane: {"COMPLETED": 4})
    monkeypatch.setattr(places, "_let_pass", lambda database, ago: None)
    up = SimpleNamespace(ended=lambda: False, marker="")
    attempt = Attempt("cron", 0, 7)
    places._watch_schedule(SimpleNamespace(work=tmp_path), attempt, up, 4)
    grown = [failure.said.split(":")[0] for failure in attempt.failures]
    assert grown == ["memory, MiB", "descriptors"]


def test_skipped_tries_have_no_outcome(monkeypatch: pytest.MonkeyPatch):
    def skip(attempt: Attempt, act: object) -> None:
        attempt.skipped = "mounts are not permitted here"

    monkeypatch.setattr(places, "_in_own_mounts", skip)
    lane = SimpleNamespace(know=lambda *commands: None)
    for act in (places.full_disk, places.read_only):
        attempt = Attempt("", 0, 7)
        act(lane, attempt, Random(0))
        assert attempt.outcomes == {}


def test_a_missing_folder_is_skipped_and_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(places, "_in_own_mounts", lambda attempt, act: act(attempt))
    lane = SimpleNamespace(
        work=tmp_path / "missing",
        know=lambda *commands: None,
        reset=lambda state: None,
    )
    attempt = Attempt("read-only", 0, 7)
    places.read_only(lane, attempt, Random(0))
    assert attempt.skipped
    assert attempt.outcomes == {}


@pytest.mark.parametrize(
    ("command", "fault"), [("papers", ""), ("train", "no sentence")]
)
def test_only_papers_may_fail_without_an_error(command: str, fault: str):
    assert Ended(1, "", "item: failed", 1.0).fault(command) == fault
    assert Ended(0, "", "", 1.0).fault(command) == ""
