"""What goes of a folder that runs by the clock, what stays, and whether the process that wrote a file is gone."""

import os
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from prefect.settings import Settings
from typer.testing import CliRunner

from learnkernels.conf.errors import InputError
from learnkernels.flows.cli import app
from learnkernels.tasks.operate import upkeep
from learnkernels.tasks.operate.upkeep import clean, cut_logs, old_files, remove, retention, tend
from learnkernels.tasks.store import DAMAGED, TEMPORARY, Owner
from tools.waiting import within

DAY = 86_400
GONE = replace(Owner.this(), pid=2**22 + 1)
ELSEWHERE = replace(GONE, host="elsewhere.1")


def put(path: Path, days: float = 0.0, content: str = "x") -> Path:
    """A file, or a folder with one if the path ends in none, that was last used so many days ago."""
    target = path if path.suffix else path / "data.bin"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content)
    for each in {target, path}:
        os.utime(each, (time.time() - days * DAY,) * 2)
    return path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_is_old_left_or_damaged_goes_and_nothing_else(state: Path):
    new = [f"store/datasets/{TEMPORARY}{GONE}~x1", f"store/rows/run~{GONE}~x2", f"{TEMPORARY}{GONE}~x4"]
    new.append(f"store/moments/{DAMAGED}0123~x5")
    aged = ["store/datasets/0123", "store/folds/4567.parquet", "dask/spill/dask-scratch-space/worker-1", "tmp/left"]
    aged += ["prefect/storage/result.json", "worker.log.1", f"store/rows/run~{ELSEWHERE}~x3"]
    old = [*(put(state / name) for name in new), *(put(state / name, 40) for name in aged)]
    young = ["store/datasets/89ab", "prefect/storage/newer.json", f"store/rows/run~{ELSEWHERE}~x7"]
    lasting = ["prefect/prefect.db", "ui.json", "tmp/runner_storage", f"store/rows/run~{Owner.this()}~x6"]
    lasting.append("mlflow.log")  # a server that says nothing still has it open
    kept = [*(put(state / name, 20) for name in young), *(put(state / name, 400) for name in lasting)]
    kept += [put(state.parent / name, 400) for name in ("results/demo/run/report.md", "mlartifacts/run")]
    assert {found.path for found in old_files(30)} == set(old)
    assert clean(30, 0, yes=False) == old_files(30)
    assert all(path.exists() for path in old)
    clean(30, 0, yes=True)
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in kept)
    assert old_files(30) == []
    assert clean(0, 0, yes=True) == []  # for ever
    # What a link leads to stays.
    put(state.parent / "precious/data.bin", 400)
    link = state / "store/datasets/linked"
    link.symlink_to(state.parent / "precious")
    os.utime(link, (0, 0), follow_symlinks=False)
    (found,) = old_files(30)
    assert (found.path, found.bytes < 200) == (link, True)
    remove(found)
    assert not link.is_symlink()
    assert (state.parent / "precious/data.bin").exists()
    remove(found)  # another was faster


def test_the_command_shows_before_it_removes(state: Path):
    entry = put(state / "store/datasets/0123", 40, 5000 * "x")

    def said(*options: str) -> str:
        run = CliRunner().invoke(app, ["clean", *options])
        assert run.exit_code == 0, run.output
        return run.output

    shown = said()
    assert "not used for 30 days" in shown
    assert "remove it with --yes" in shown
    assert "nothing is old" in said("--keep-days", "50", "--yes")
    assert entry.exists()
    assert "removed: " in said("--yes")
    assert not entry.exists()


def test_prefect_reads_how_long_it_keeps_what(monkeypatch: pytest.MonkeyPatch):
    assert retention(0) == {}
    for days, runs, events in ((12, 12 * DAY, DAY), (0.01, 3601, 864)):
        for name, value in retention(days).items():
            monkeypatch.setenv(name, value)
        server = Settings().server
        vacuum = server.services.db_vacuum
        assert vacuum.enabled_vacuum_types == {"events", "flow_runs", "orphans"}
        kept = (vacuum.retention_period, server.events.retention_period)
        assert kept == (timedelta(seconds=runs), timedelta(seconds=events))


def test_a_long_log_is_begun_anew_while_it_is_written(state: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(upkeep, "LOG_BYTES", 1000)
    put(state / "short.log", content="short")
    with (state / "worker.log").open("ab", buffering=0) as log:
        log.write(b"early\n" * 500)
        cut_logs()
        log.write(b"late\n")
    assert (state / "worker.log").read_text() == "late\n"
    assert (state / "worker.log.1").read_text() == "early\n" * 500
    assert (state / "short.log").read_text() == "short"


def test_what_fails_once_is_said_once_and_tried_again(state: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(upkeep, "PERIOD", 0.01)
    monkeypatch.setattr(upkeep, "FIRST_CLEANING", 0.0)
    old = put(state / "store/datasets/0123", 40)
    said: list[str] = []
    tried: list[int] = []

    def cut() -> None:
        tried.append(1)
        if len(tried) < 4:
            raise InputError("a log cannot be read")

    monkeypatch.setattr(upkeep, "cut_logs", cut)
    stop = tend(30, 0, said.append)
    try:
        assert within(lambda: not old.exists(), 60, 0.02)
    finally:
        stop.set()
    assert said == ["upkeep: a log cannot be read"]


def test_this_process_is_here_and_not_gone(monkeypatch: pytest.MonkeyPatch):
    owner, start = Owner.this(), psutil.boot_time()
    assert (owner.pid, owner.here, owner.gone) == (os.getpid(), True, False)
    assert replace(owner, started=owner.started - 3600).gone  # another process has been given its number
    assert not ELSEWHERE.gone  # which is never known
    with monkeypatch.context() as patch:
        patch.setattr(psutil._psplatform, "boot_time", lambda: start - 3600)  # the clock was set
        assert not owner.gone

    def hidden(pid: int) -> psutil.Process:
        raise psutil.NoSuchProcess(pid)

    monkeypatch.setattr(psutil, "Process", hidden)  # a system that hides the processes of others
    assert not owner.gone


def test_an_owner_is_read_back_from_a_name():
    assert {Owner.read(text.format(Owner.this())) for text in ("{}", "run~{}~x8_3", ".name~{}.tmp")} == {Owner.this()}
    assert {Owner.read(text) for text in ("", "run-123-abc", "host~x~y", "host~1~2x")} == {None}
