"""What tries of faults report, on prepared results."""

import sys
from pathlib import Path

import pytest

from dev.tools.chaos.__main__ import main
from dev.tools.chaos.journal import Attempt, Failure, report


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
