"""What goes of a folder that runs by the clock, and what stays."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient

from learnkernels.conf.errors import InputError
from learnkernels.tasks.evidence.tracking import DEPLOYMENT, RESULTS, forget_runs, forgettable_runs
from learnkernels.tasks.operate import upkeep
from learnkernels.tasks.operate.upkeep import clean, cut_logs, old_files, remove, retention, tend
from learnkernels.tasks.owner import Owner
from learnkernels.tasks.store import DAMAGED, TEMPORARY
from tests.user import ROOT, learnkernels
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


@pytest.fixture
def state(working_folder: Path) -> Path:
    return working_folder / "state"


def test_what_is_old_left_or_damaged_goes_and_nothing_else(state: Path):
    old = [
        put(state / "store/datasets/0123", 40),
        put(state / "store/folds/4567.parquet", 40),
        put(state / f"store/datasets/{TEMPORARY}{GONE}~x1"),
        put(state / f"store/rows/run~{GONE}~x2"),
        put(state / f"store/rows/run~{ELSEWHERE}~x3", 40),
        put(state / f"{TEMPORARY}{GONE}~x4"),
        put(state / f"store/moments/{DAMAGED}0123~x5"),
        put(state / "dask/spill/dask-scratch-space/worker-1", 40),
        put(state / "tmp/left", 40),
        put(state / "prefect/storage/result.json", 40),
        put(state / "worker.log.1", 40),
    ]
    kept = [
        put(state / "store/datasets/89ab", 20),
        put(state / f"store/rows/run~{Owner.this()}~x6", 40),
        put(state / f"store/rows/run~{ELSEWHERE}~x7", 20),
        put(state / "prefect/prefect.db", 400),
        put(state / "prefect/storage/newer.json", 20),
        put(state / "ui.json", 400),
        put(state / "mlflow.log", 400),  # a server that says nothing still has it open
        put(state / "tmp/runner_storage", 400),
        put(state.parent / "results/demo/run/report.md", 400),
        put(state.parent / "mlartifacts/run", 400),
    ]
    assert {found.path for found in old_files(30)} == set(old)
    assert clean(30, 0, yes=False) == old_files(30)
    assert all(path.exists() for path in old)
    clean(30, 0, yes=True)
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in kept)
    assert old_files(30) == []
    assert clean(0, 0, yes=True) == []  # for ever


def test_what_is_read_again_while_it_is_looked_for_and_links_stay_whole(state: Path):
    put(state.parent / "precious/data.bin", 400)
    (state / "store/datasets").mkdir(parents=True)
    link = state / "store/datasets/linked"
    link.symlink_to(state.parent / "precious")
    os.utime(link, (0, 0), follow_symlinks=False)
    (found,) = old_files(30)
    assert (found.path, found.bytes < 200) == (link, True)
    remove(found)
    assert not link.is_symlink()
    assert (state.parent / "precious/data.bin").exists()
    remove(found)  # another was faster


def test_the_command_shows_before_it_removes(home: Path):
    entry = put(home / "work/.learnkernels/store/datasets/0123", 40, 5000 * "x")
    shown = learnkernels(home, "clean")
    assert shown.returncode == 0, shown.stderr
    assert "not used for 30 days" in shown.stdout
    assert "remove it with --yes" in shown.stdout
    assert entry.exists()
    assert "nothing is old" in learnkernels(home, "clean", "--keep-days", "50", "--yes").stdout
    assert entry.exists()
    removed = learnkernels(home, "clean", "--yes")
    assert (removed.returncode, "removed: " in removed.stdout) == (0, True), removed.stderr
    assert not entry.exists()


def test_runs_of_deployments_go_where_that_is_wanted_but_for_what_a_version_refers_to(working_folder: Path):
    client = MlflowClient()
    experiment = client.create_experiment("nightly", artifact_location=(working_folder / "mlartifacts").as_uri())
    ago = int((time.time() - 100 * DAY) * 1000)

    def run(name: str, ended: int = ago, **tags: str) -> str:
        folder = put(working_folder / "results" / "demo" / name)
        tags = {RESULTS: str(folder.relative_to(working_folder)), **tags}
        made = client.create_run(experiment, ended, tags, name).info.run_id
        client.log_text(made, "evidence", "report.md")
        client.set_terminated(made, end_time=ended)
        return str(made)

    by_clock = {"learnkernels.deployment": "demo"}
    assert set(by_clock) == {DEPLOYMENT}
    old, trained, decided, outside = (run(name, **by_clock) for name in ("old", "trained", "decided", "outside"))
    client.set_tag(outside, RESULTS, "../precious")
    precious = put(working_folder.parent / "precious")
    by_hand, young = run("by hand"), run("young", int(time.time() * 1000), **by_clock)
    client.create_registered_model("demo")
    version = client.create_model_version("demo", "source", trained)
    client.set_model_version_tag("demo", version.version, "decision_run", decided)

    assert clean(0, 0, yes=True) == []
    assert set(forgettable_runs(30)) == {old, outside}
    assert {found.path.name for found in clean(0, 30, yes=False)} == {"old", old, outside}
    client.delete_run(old)  # as a cleaning that was killed then
    clean(0, 30, yes=True)
    left = {found.info.run_id for found in client.search_runs([experiment], run_view_type=3)}
    assert left == {trained, decided, by_hand, young}
    assert not (working_folder / "results/demo/old").exists()
    assert not (working_folder / "mlartifacts" / old).exists()
    assert (working_folder / "mlartifacts" / trained).exists()
    assert (working_folder / "results/demo/outside").exists()
    assert precious.exists()
    forget_runs([])


def test_prefect_reads_how_long_it_keeps_what(monkeypatch: pytest.MonkeyPatch):
    assert retention(0) == {}
    code = (
        "from prefect.settings import get_current_settings; s = get_current_settings().server\n"
        "from datetime import timedelta; v = s.services.db_vacuum\n"
        "kept = v.retention_period, s.events.retention_period\n"
        "print(sorted(v.enabled_vacuum_types), *map(int, map(timedelta.total_seconds, kept)))"
    )
    for days, runs, events in ((12, 12 * DAY, DAY), (0.01, 3601, 864)):
        env = os.environ | retention(days)
        run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
        assert run.stdout.splitlines()[-1:] == [f"['events', 'flow_runs', 'orphans'] {runs} {events}"], run.stderr


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

    def mend() -> None:
        tried.append(1)
        if len(tried) < 4:
            raise InputError("no Prefect server answers")

    stop = tend(30, 0, mend, said.append)
    try:
        assert within(lambda: not old.exists(), 60, 0.02)
    finally:
        stop.set()
    assert said == ["upkeep: no Prefect server answers"]


def test_make_clean_keeps_what_cannot_be_made_again(tmp_path: Path):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    made_again = [
        put(tmp_path / name) for name in (".learnkernels/store/datasets/0123", ".learnkernels/tmp/x", "build")
    ]
    kept = [put(tmp_path / name) for name in (".learnkernels/prefect/prefect.db", "results/demo/run", "mlflow.db")]
    for _ in range(2):  # also where nothing is left
        subprocess.run(["make", "-f", ROOT / "Makefile", "clean"], cwd=tmp_path, check=True, capture_output=True)
    assert not any(path.exists() for path in made_again)
    assert all(path.exists() for path in kept)
