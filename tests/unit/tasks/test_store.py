"""What the store and other outputs hold is whole: written so, found so, or made again."""

import hashlib
import os
import random
import re
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from itertools import product
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prefect.settings import Settings
from typer.testing import CliRunner

from dev.tools.waiting import within
from learnkernels.conf.errors import InputError
from learnkernels.flows.cli import app
from learnkernels.kernels.targets import Target
from learnkernels.tasks import store
from learnkernels.tasks.data.dataset import (
    Dataset,
    dataset_digest,
    load_dataset,
    store_dataset,
)
from learnkernels.tasks.naming import file_name
from learnkernels.tasks.operate import retention as retention_module
from learnkernels.tasks.operate.retention import (
    NotRemoved,
    clean,
    cut_logs,
    old_files,
    remove,
    retention,
    tend,
)
from learnkernels.tasks.processes.owner import Owner
from learnkernels.tasks.store import (
    DAMAGED,
    TEMPORARY,
    atomic_path,
    checked,
    digest,
    is_stored,
    keep,
    leftovers,
    result_key,
    versions,
    versions_of,
)

CONTENT = {"a.npy": bytes(range(200)), "b.json": b'{"b": 1}'}
NOW = versions()


def names_in(folder: Path) -> list[str]:
    return sorted(child.name for child in folder.iterdir())


def test_files_and_folders_are_replaced_whole_or_not_at_all(tmp_path: Path):
    for content in ("one", "two"):
        with atomic_path(tmp_path / "file") as temporary:
            temporary.write_text(content)
        with atomic_path(tmp_path / "folder") as temporary:
            temporary.mkdir()
            (temporary / content).write_text(content)
    with (  # noqa: PT012
        pytest.raises(RuntimeError, match="half way"),
        atomic_path(tmp_path / "file") as temporary,
    ):
        temporary.write_text("new")
        raise RuntimeError("half way")
    assert (tmp_path / "file").read_text() == "two"
    assert names_in(tmp_path / "folder") == ["two"]
    assert names_in(tmp_path) == ["file", "folder"]


def test_threads_that_replace_one_folder_leave_one_whole(tmp_path: Path):
    def write(content: str) -> None:
        for _ in range(20):
            with atomic_path(tmp_path / "folder") as temporary:
                temporary.mkdir()
                for name in ("x", "y"):
                    (temporary / name).write_text(content)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(write, "abc"))
    assert names_in(tmp_path) == ["folder"]
    assert len({file.read_text() for file in (tmp_path / "folder").iterdir()}) == 1


def test_digests_depend_on_values_and_not_on_the_order_of_keys():
    assert digest({"a": 1, "b": 2.0}) == digest({"b": 2.0, "a": 1})
    assert len({digest(1), digest("1"), digest([1]), digest(1, 1), digest(2)}) == 5


# Entries -------------------------------------------------------------------------------------------------------------


def entry(
    path: Path, content: dict[str, bytes] = CONTENT, made_from: tuple[Path, ...] = ()
) -> Path:
    with keep(path, made_from) as folder:
        for name, text in content.items():
            (folder / name).write_bytes(text)
    return path


def refuse(sentence: str) -> None:
    raise AssertionError(sentence)


def test_an_entry_is_kept_whole_and_never_replaced(tmp_path: Path):
    path = tmp_path / "kind" / "key"
    assert not is_stored(path, refuse)
    with pytest.raises(TypeError):
        entry(path, {"a": b"a", "b": None})  # type: ignore[dict-item]
    assert names_in(path.parent) == []
    entry(path)
    assert {
        file.name: file.read_bytes()
        for file in checked(path).iterdir()
        if file.name in CONTENT
    } == CONTENT
    before = (path.stat().st_ino, (path / "a.npy").stat().st_ino)
    entry(path, {"a.npy": b"of the second"})
    assert (path.stat().st_ino, (path / "a.npy").stat().st_ino) == before
    assert names_in(path.parent) == ["key"]
    # Two processes find the same damage; one of them has healed it when the other sets
    # it aside.
    assert store._set_aside(path, "a.npy was damaged a moment ago", refuse)
    assert names_in(path.parent) == ["key"]
    os.utime(path, (0, 0))
    assert is_stored(path, refuse)
    assert path.stat().st_mtime > 0  # its use is noted, for who removes what is old


def test_the_disk_holds_every_file_and_name_before_an_entry_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    synced, fsync = [], os.fsync

    def noting(file: int) -> None:
        synced.append(
            (
                Path(os.readlink(f"/proc/self/fd/{file}")).name,
                (tmp_path / "key").exists(),
            )
        )
        fsync(file)

    if not Path("/proc/self/fd").exists():
        pytest.skip("this system does not tell the name of an open file")
    monkeypatch.setattr(os, "fsync", noting)
    entry(tmp_path / "key")
    before = {name for name, there in synced if not there}
    assert before == {"a.npy", "b.json", "entry.json", "key"}
    assert synced[-1] == (tmp_path.name, True)


RNG = random.Random(0)


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[RNG.randrange(len(content))] ^= 1 << RNG.randrange(8)
    file.write_bytes(content)


def cut(file: Path) -> None:
    os.truncate(file, RNG.randrange(file.stat().st_size))


def replace_by_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "flip": flip,
    "cut": cut,
    "missing": Path.unlink,
}
DAMAGE |= {
    "longer": lambda file: file.write_bytes(file.read_bytes() + b" "),
    "folder": replace_by_folder,
}
if os.geteuid():  # nothing is hidden from root
    DAMAGE["unreadable"] = lambda file: file.chmod(0)


def require_set_aside(path: Path, name: str) -> None:
    """Fail unless an entry is found damaged in one file, set aside with a sentence, and can be made again."""
    with pytest.raises(
        InputError, match=rf"{name} .*, since this run began; start again"
    ):
        checked(path)
    told: list[str] = []
    assert not is_stored(path, told.append)
    (sentence,) = told
    assert re.fullmatch(rf"{path}: {name} .*", sentence)
    assert not path.exists()
    assert is_stored(entry(path), refuse)


def test_any_damage_is_noticed_told_in_a_sentence_and_set_aside(
    tmp_path: Path, subtests: pytest.Subtests
):
    # Where some of it is drawn
    path, often = (
        entry(tmp_path / "key"),
        {"flip": 12, "cut": 4},
    )
    for name, (how, damage) in product([*CONTENT, "entry.json"], DAMAGE.items()):
        with subtests.test(name=name, how=how):
            for _ in range(often.get(how, 1)):
                damage(path / name)
                require_set_aside(path, name)
    assert all(
        name == "key" or name.startswith("damaged~key~") for name in names_in(tmp_path)
    )
    for name, make in {
        "X.npz": lambda path: (entry(path) / "X.npz").write_bytes(
            b"x"
        ),  # too many files
        "entry.json": lambda path: entry(tmp_path / "other").rename(
            path
        ),  # of another key
        "entry.json cannot": Path.mkdir,
        "entry.json cannot be": lambda path: path.write_text("x"),  # no folder
    }.items():
        with subtests.test(name):
            path = tmp_path / name.replace(" ", "-")
            make(path)
            require_set_aside(path, name)


def test_an_entry_is_hashed_once_and_again_after_each_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, hashed = entry(tmp_path / "key"), list[str]()
    # The first check may follow within the tick of a clock
    monkeypatch.setattr(store, "SETTLED_SECONDS", -1.0)

    def counted(file: Path) -> str:
        hashed.append(file.name)
        return hashlib.sha256(file.read_bytes()).hexdigest()

    monkeypatch.setattr(store, "file_digest", counted)
    for _ in range(3):
        assert is_stored(path, refuse)
        checked(path)
    assert sorted(hashed) == sorted(CONTENT)
    time.sleep(0.05)  # a change of the same size needs another time
    os.utime(path / "a.npy")
    checked(path)
    assert len(hashed) == 2 * len(CONTENT)
    flip(path / "a.npy")
    with pytest.raises(InputError, match=r"a\.npy is damaged"):
        checked(path)


def test_a_damaged_entry_in_a_folder_that_is_read_only_is_one_sentence(tmp_path: Path):
    path = entry(tmp_path / "kind" / "key")
    (path / "a.npy").write_bytes(b"")
    path.parent.chmod(0o500)
    try:
        if os.access(path.parent, os.W_OK):
            pytest.skip("no folder is read-only for this user")
        with pytest.raises(
            InputError,
            match=r"a.npy is damaged, and it cannot be set aside \(Permission denied\)",
        ):
            is_stored(path, refuse)
    finally:
        path.parent.chmod(0o700)


def test_an_entry_says_what_it_was_computed_with_and_its_sources_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    old = {**NOW, "numpy": "1.0"}
    monkeypatch.setattr(store, "versions", lambda: old)
    first = entry(tmp_path / "first")
    monkeypatch.setattr(store, "versions", lambda: NOW)
    second = entry(tmp_path / "second")
    both = entry(tmp_path / "both", made_from=(first, second, first))
    assert (versions_of(first), versions_of(second), versions_of(both)) == (
        [old],
        [NOW],
        [NOW, old],
    )
    assert set(NOW) == {"learnkernels", "numpy", "scipy", "scikit-learn", "numba"}


def test_files_of_others_are_no_leftovers(tmp_path: Path):
    for name in (
        "run~host~1~2",
        f"notes~{replace(Owner.this(), started=1)}",
        ".learnkernels~mine",
        ".learnkernels",
    ):
        (tmp_path / name).mkdir()
    assert leftovers(tmp_path) == []
    assert leftovers(tmp_path / "not there") == []


def test_a_key_depends_on_the_step_all_settings_their_values_and_the_inputs(
    monkeypatch: pytest.MonkeyPatch,
):
    settings = {"grid": [1.0, 2.0], "refit": True}
    assert result_key("fit", settings, ["ab"]) == result_key(
        "fit", dict(reversed(settings.items())), iter(["ab"])
    )
    keys = [
        result_key("fit", settings, ["ab"]),
        result_key("score", settings, ["ab"]),
        result_key("fit", settings | {"grid": [1.0]}, ["ab"]),
        result_key("fit", settings | {"sample": None}, ["ab"]),
        result_key("fit", settings, ["ab", "c"]),
        result_key("fit", settings, ["abc"]),
    ]
    monkeypatch.setattr(store, "NUMERICS_VERSION", 0)
    keys.append(result_key("fit", settings, ["ab"]))
    assert len(set(keys)) == len(keys)


# Data sets -----------------------------------------------------------------------------------------------------------


def people() -> Dataset:
    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(60, 3)), np.where(rng.random(60) < 0.5, "yes", "no")
    low, spread = X.min(axis=0), np.ptp(X, axis=0)
    return Dataset(
        (X - low) / spread,
        Target.of(y),
        ("a", "b", "c"),
        low,
        spread,
        rng.random(60) < 0.2,
    )


def test_every_file_of_a_data_set_is_checked_and_healed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path))
    dataset, told = people(), []
    ref = store_dataset(dataset, "people", "here", refuse)
    whole = {file.name: file.read_bytes() for file in Path(ref.path).iterdir()}
    assert set(whole) == {
        "X.npy",
        "y.npy",
        "scaling.npy",
        "held_out.npy",
        "about.json",
        "entry.json",
    }
    for name, damage in product(whole, (flip, flip, cut, Path.unlink)):
        damage(Path(ref.path) / name)
        with pytest.raises(InputError, match=name):
            load_dataset(ref)
        assert store_dataset(dataset, "people", "here", told.append) == ref
        assert {
            file.name: file.read_bytes() for file in Path(ref.path).iterdir()
        } == whole
        assert dataset_digest(load_dataset(ref)) == ref.digest
    assert len(told) == 6 * 4


# Names that become files and folders ---------------------------------------------------------------------------------


def test_a_name_leads_nowhere_else():
    files = {
        "quickstart": "quickstart", "my experiment-1.0": "my experiment-1.0", "été": "été", "..": "%2E%2E",
        "../../x": "..%2F..%2Fx", "/etc/x": "%2Fetc%2Fx", "a\\b\n": "a%5Cb%0A",
    }  # fmt: skip
    assert {name: file_name(name) for name in files} == files


@given(st.text(min_size=1))
def test_any_name_is_one_of_a_file_in_the_folder(name: str):
    path = (Path("/folder") / file_name(name)).resolve()
    assert path.parent == Path("/folder")
    assert "\0" not in path.name


# What goes of a folder that runs by the clock, what stays, and whether the process that wrote a file is gone ---------


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
    new = [
        f"store/datasets/{TEMPORARY}{GONE}~x1",
        f"store/rows/run~{GONE}~x2",
        f"{TEMPORARY}{GONE}~x4",
    ]
    new.append(f"store/statistics/{DAMAGED}0123~x5")
    aged = [
        "store/datasets/0123",
        "store/folds/4567.parquet",
        "dask/spill/dask-scratch-space/worker-1",
        "tmp/left",
    ]
    aged += [
        "prefect/storage/result.json",
        "worker.log.1",
        f"store/rows/run~{ELSEWHERE}~x3",
    ]
    old = [
        *(put(state / name) for name in new),
        *(put(state / name, 40) for name in aged),
    ]
    young = [
        "store/datasets/89ab",
        "prefect/storage/newer.json",
        f"store/rows/run~{ELSEWHERE}~x7",
    ]
    lasting = [
        "prefect/prefect.db",
        "ui.json",
        "tmp/runner_storage",
        f"store/rows/run~{Owner.this()}~x6",
    ]
    lasting.append("mlflow.log")  # a server that says nothing still has it open
    kept = [
        *(put(state / name, 20) for name in young),
        *(put(state / name, 400) for name in lasting),
    ]
    kept += [
        put(state.parent / name, 400)
        for name in ("results/demo/run/report.md", "mlartifacts/run")
    ]
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


def fail_to_remove(monkeypatch: pytest.MonkeyPatch, renamed: str, content: str) -> None:
    """Let an entry of some name not be renamed, and the content of others not be deleted."""
    rename, rmtree = Path.rename, shutil.rmtree

    def failing_rename(path: Path, target: Path) -> Path:
        if path.name == renamed:
            raise PermissionError(f"Permission denied: {path}")
        return rename(path, target)

    def failing_rmtree(path: Path, ignore_errors: bool) -> None:
        if not (path / content).exists():
            rmtree(path, ignore_errors)

    monkeypatch.setattr(Path, "rename", failing_rename)
    monkeypatch.setattr(shutil, "rmtree", failing_rmtree)


def test_what_cannot_be_removed_is_named_and_the_rest_goes(
    state: Path, monkeypatch: pytest.MonkeyPatch
):
    fixed, stuck, last = (
        put(state / f"store/datasets/{name}", 40) for name in ("0", "1", "2")
    )
    put(stuck / "root.bin", 40)
    os.utime(stuck, (0, 0))
    left = state / f"store/rows/{TEMPORARY}{GONE}~0123"
    put(left / "root.bin", 40)
    fail_to_remove(monkeypatch, fixed.name, "root.bin")
    with pytest.raises(NotRemoved, match=f"cannot remove 3 entries.*{fixed}") as caught:
        clean(30, 0, yes=True)
    assert [old.path for old in caught.value.removed] == [last]
    (aside,) = (state / "store/datasets").glob(f"{TEMPORARY}*")
    assert all(path.exists() for path in (fixed, aside, left))
    assert not last.exists()


def test_a_folder_of_a_long_name_is_removed(state: Path):
    entry = put(state / "store/datasets" / ("a" * 250), 40)
    clean(30, 0, yes=True)
    assert not entry.exists()


def test_the_command_counts_what_was_removed_and_names_the_rest(
    state: Path, monkeypatch: pytest.MonkeyPatch
):
    put(state / "store/datasets/0", 40, 9_000_000 * "x")
    put(state / "store/datasets/1", 40, 5000 * "x")
    fail_to_remove(monkeypatch, "0", "none")
    run = CliRunner().invoke(app, ["clean", "--yes"])
    assert run.exit_code == 2
    assert "kiB" in run.output.partition("removed: ")[2]
    assert "error: cannot remove 1 entry; as their owner, delete " in run.output


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


def test_a_long_log_is_begun_anew_while_it_is_written(
    state: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(retention_module, "LOG_BYTES", 1000)
    put(state / "short.log", content="short")
    with (state / "worker.log").open("ab", buffering=0) as log:
        log.write(b"early\n" * 500)
        cut_logs()
        log.write(b"late\n")
    assert (state / "worker.log").read_text() == "late\n"
    assert (state / "worker.log.1").read_text() == "early\n" * 500
    assert (state / "short.log").read_text() == "short"


def test_what_fails_once_is_said_once_and_tried_again(
    state: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(retention_module, "PERIOD", 0.01)
    monkeypatch.setattr(retention_module, "FIRST_CLEANING", 0.0)
    old = put(state / "store/datasets/0123", 40)
    said: list[str] = []
    tried: list[int] = []

    def cut() -> None:
        tried.append(1)
        if len(tried) < 4:
            raise InputError("a log cannot be read")

    monkeypatch.setattr(retention_module, "cut_logs", cut)
    stop = tend(30, 0, said.append)
    try:
        assert within(lambda: not old.exists(), 60, 0.02)
    finally:
        stop.set()
    assert said == ["upkeep: a log cannot be read"]


def test_this_process_is_here_and_not_gone(monkeypatch: pytest.MonkeyPatch):
    owner, start = Owner.this(), psutil.boot_time()
    assert (owner.pid, owner.here, owner.gone) == (os.getpid(), True, False)
    assert replace(
        owner, started=owner.started - 3600
    ).gone  # another process has been given its number
    assert not ELSEWHERE.gone  # which is never known
    with monkeypatch.context() as patch:
        # The clock was set
        patch.setattr(psutil._psplatform, "boot_time", lambda: start - 3600)
        assert not owner.gone

    def hidden(pid: int) -> psutil.Process:
        raise psutil.NoSuchProcess(pid)

    # a system that hides the processes of others
    monkeypatch.setattr(psutil, "Process", hidden)
    assert not owner.gone


def test_an_owner_is_read_back_from_a_name():
    assert {
        Owner.read(text.format(Owner.this()))
        for text in ("{}", "run~{}~x8_3", ".name~{}.tmp")
    } == {Owner.this()}
    assert {
        Owner.read(text) for text in ("", "run-123-abc", "host~x~y", "host~1~2x")
    } == {None}
