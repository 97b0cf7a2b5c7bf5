"""What the store and other outputs hold is whole: written so, found so, or made again."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from learnkernels.conf.errors import InputError
from learnkernels.kernels.targets import Target
from learnkernels.tasks import store
from learnkernels.tasks.data.dataset import Dataset, dataset_digest, load_dataset, store_dataset
from learnkernels.tasks.owner import Owner
from learnkernels.tasks.store import (
    atomic_path,
    checked,
    digest,
    keep,
    kept,
    leftovers,
    store_path,
    temporary_folder,
    versions,
    versions_of,
)

CONTENT = {"a.npy": bytes(range(200)), "b.json": b'{"b": 1}'}
NOW = versions()


def _write_half(path: Path) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        raise RuntimeError("half way")


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path: Path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="half way"):
        _write_half(path)
    assert path.read_text() == "old"
    assert [child.name for child in tmp_path.iterdir()] == ["file"]


def test_files_and_folders_are_replaced_whole(tmp_path: Path):
    for content in ("one", "two"):
        with atomic_path(tmp_path / "file") as temporary:
            temporary.write_text(content)
        with atomic_path(tmp_path / "folder") as temporary:
            temporary.mkdir()
            (temporary / content).write_text(content)
    assert (tmp_path / "file").read_text() == "two"
    assert [child.name for child in (tmp_path / "folder").iterdir()] == ["two"]
    assert len(list(tmp_path.iterdir())) == 2


def test_threads_that_replace_one_folder_leave_one_whole(tmp_path: Path):
    def write(content: str) -> None:
        for _ in range(20):
            with atomic_path(tmp_path / "folder") as temporary:
                temporary.mkdir()
                for name in ("x", "y"):
                    (temporary / name).write_text(content)

    threads = [threading.Thread(target=write, args=(content,)) for content in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [child.name for child in tmp_path.iterdir()] == ["folder"]
    assert len({file.read_text() for file in (tmp_path / "folder").iterdir()}) == 1


def test_digests_depend_on_values_and_not_on_the_order_of_keys():
    assert digest({"a": 1, "b": 2.0}) == digest({"b": 2.0, "a": 1})
    assert len({digest(1), digest("1"), digest([1]), digest(1, 1), digest(2)}) == 5


# Entries -------------------------------------------------------------------------------------------------------------


def entry(path: Path, content: dict[str, bytes] = CONTENT, made_from: tuple[Path, ...] = ()) -> Path:
    with keep(path, made_from) as folder:
        for name, text in content.items():
            (folder / name).write_bytes(text)
    return path


def refuse(sentence: str) -> None:
    raise AssertionError(sentence)


def test_an_entry_is_kept_whole_and_an_error_keeps_nothing(tmp_path: Path):
    path = tmp_path / "kind" / "key"
    assert not kept(path, refuse)
    with pytest.raises(TypeError):
        entry(path, {"a": b"a", "b": None})  # type: ignore[dict-item]
    assert list(path.parent.iterdir()) == []
    entry(path)
    assert kept(path, refuse)
    assert {file.name: file.read_bytes() for file in checked(path).iterdir() if file.name in CONTENT} == CONTENT
    assert [child.name for child in path.parent.iterdir()] == ["key"]


def test_an_entry_that_exists_is_never_replaced(tmp_path: Path):
    path = entry(tmp_path / "key")
    before = (path.stat().st_ino, (path / "a.npy").stat().st_ino)
    entry(path, {"a.npy": b"of the second"})
    assert (path.stat().st_ino, (path / "a.npy").stat().st_ino) == before
    assert [child.name for child in tmp_path.iterdir()] == ["key"]


def test_the_disk_holds_every_file_and_name_before_an_entry_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    synced, fsync = [], os.fsync

    def noting(file: int) -> None:
        synced.append((Path(os.readlink(f"/proc/self/fd/{file}")).name, (tmp_path / "key").exists()))
        fsync(file)

    if not Path("/proc/self/fd").exists():
        pytest.skip("this system does not tell the name of an open file")
    monkeypatch.setattr(os, "fsync", noting)
    entry(tmp_path / "key")
    before = {name for name, there in synced if not there}
    assert before == {"a.npy", "b.json", "entry.json", "key"}
    assert synced[-1] == (tmp_path.name, True)


@pytest.mark.parametrize("name", [*CONTENT, "entry.json"])
@pytest.mark.parametrize("how", ["flip", "cut", "empty", "longer", "missing", "folder", "unreadable"])
def test_any_damage_is_noticed_told_in_a_sentence_and_set_aside(tmp_path: Path, name: str, how: str):
    path, told, rng = entry(tmp_path / "key"), [], random.Random(f"{name} {how}")
    file = path / name
    for _ in range(20 if how in ("flip", "cut") else 1):
        damage(file, how, rng)
        if how == "unreadable" and os.access(file, os.R_OK):
            pytest.skip("nothing is hidden from this user")
        with pytest.raises(InputError, match=rf"{name} .*, since this run began; start again"):
            checked(path)
        told.clear()
        assert not kept(path, told.append)
        (sentence,) = told
        assert sentence.startswith(f"{path}: {name} ")
        assert sentence.count("\n") == 0
        assert not path.exists()
        entry(path)
        assert kept(path, refuse)
    assert all(child.name == "key" or child.name.startswith("damaged~key~") for child in tmp_path.iterdir())


def damage(file: Path, how: str, rng: random.Random) -> None:
    whole = file.read_bytes()
    at = rng.randrange(len(whole))
    changed = {
        "flip": whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :],
        "cut": whole[:at],
        "empty": b"",
        "longer": whole + b" ",
    }
    if how in changed:
        file.write_bytes(changed[how])
    elif how == "unreadable":
        file.chmod(0)
    else:
        file.unlink()
        if how == "folder":
            file.mkdir()


@pytest.mark.parametrize("how", ["surplus", "empty", "a file", "of another key"])
def test_an_entry_of_other_files_is_set_aside(tmp_path: Path, how: str):
    path, told = tmp_path / "key", []
    if how == "surplus":
        (entry(path) / "X.npz").write_bytes(b"x")
    elif how == "of another key":
        entry(tmp_path / "other").rename(path)
    elif how == "empty":
        path.mkdir()
    else:
        path.write_text("x")
    assert not kept(path, told.append)
    assert len(told) == 1
    assert kept(entry(path), refuse)


def test_a_whole_entry_that_took_the_place_of_a_damaged_one_stays(tmp_path: Path):
    """Two processes find the same damage; one of them has healed it when the other sets it aside."""
    path = entry(tmp_path / "key")
    assert store._set_aside(path, "a.npy was damaged a moment ago", refuse)
    assert kept(path, refuse)
    assert [child.name for child in tmp_path.iterdir()] == ["key"]


def test_a_damaged_entry_in_a_folder_that_is_read_only_is_one_sentence(tmp_path: Path):
    path = entry(tmp_path / "kind" / "key")
    (path / "a.npy").write_bytes(b"")
    path.parent.chmod(0o500)
    try:
        if os.access(path.parent, os.W_OK):
            pytest.skip("no folder is read-only for this user")
        with pytest.raises(InputError, match=r"a.npy is damaged, and it cannot be set aside \(Permission denied\)"):
            kept(path, refuse)
    finally:
        path.parent.chmod(0o700)


def test_use_is_noted_for_who_removes_what_is_old(tmp_path: Path):
    path = entry(tmp_path / "key")
    os.utime(path, (0, 0))
    assert kept(path, refuse)
    assert path.stat().st_mtime > 0


def test_an_entry_says_what_it_was_computed_with_and_its_sources_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    old = {**NOW, "numpy": "1.0"}
    monkeypatch.setattr(store, "versions", lambda: old)
    first = entry(tmp_path / "first")
    monkeypatch.setattr(store, "versions", lambda: NOW)
    second = entry(tmp_path / "second")
    both = entry(tmp_path / "both", made_from=(first, second, first))
    assert (versions_of(first), versions_of(second), versions_of(both)) == ([old], [NOW], [NOW, old])
    assert set(NOW) == {"learnkernels", "numpy", "scipy", "scikit-learn", "numba"}


# Data sets -----------------------------------------------------------------------------------------------------------


def people(kind: str = "dense") -> Dataset:
    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(60, 3)), np.where(rng.random(60) < 0.5, "yes", "no")
    low, spread = X.min(axis=0), np.ptp(X, axis=0)
    if kind == "raw":
        return Dataset(X, Target.of(y), ("a", "b", "c"))
    return Dataset((X - low) / spread, Target.of(y), ("a", "b", "c"), low, spread, rng.random(60) < 0.2)


def test_every_file_of_a_data_set_is_checked_and_healed(working_folder: Path):
    dataset, rng, told = people(), random.Random(3), []
    ref = store_dataset(dataset, "people", "here", refuse)
    whole = {file.name: file.read_bytes() for file in Path(ref.path).iterdir()}
    assert set(whole) == {"X.npy", "y.npy", "scaling.npy", "held_out.npy", "about.json", "entry.json"}
    for name in whole:
        for how in ["flip"] * 10 + ["cut"] * 3 + ["missing"]:
            damage(Path(ref.path) / name, how, rng)
            with pytest.raises(InputError, match=name):
                load_dataset(ref)
            assert store_dataset(dataset, "people", "here", told.append) == ref
            assert {file.name: file.read_bytes() for file in Path(ref.path).iterdir()} == whole
            assert dataset_digest(load_dataset(ref)) == ref.digest
    assert len(told) == 6 * 14


def store_often(home: str) -> list[str]:
    os.environ["LEARNKERNELS_HOME"] = home
    digests = []
    for number in range(40):
        dataset = people()
        dataset.X[0, 0] = number
        ref = store_dataset(dataset, "people", "here", refuse)
        digests.append(dataset_digest(load_dataset(ref)))
    return digests


def test_three_processes_that_store_the_same_data_sets_all_succeed(working_folder: Path):
    home = os.environ["LEARNKERNELS_HOME"]
    with ProcessPoolExecutor(3, mp_context=get_context("fork")) as pool:
        one, two, three = pool.map(store_often, [home] * 3)
    assert one == two == three
    assert {child.name for child in store_path("datasets").iterdir()} == set(one)


# What a kill leaves --------------------------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from learnkernels.tasks.store import atomic_path, keep

with {writer}(Path(sys.argv[1])) as temporary:
    print("writing", flush=True)
    input()
"""


@pytest.mark.parametrize("writer", ["keep", "atomic_path"])
def test_what_a_killed_writer_leaves_is_told_and_goes_with_the_next(tmp_path: Path, writer: str):
    command = [sys.executable, "-c", WRITER.format(writer=writer), str(tmp_path / "it")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        (left,) = tmp_path.iterdir()
        assert Owner.read(left.name) == Owner.of(process.pid)
        assert leftovers(tmp_path) == []
        process.send_signal(signal.SIGKILL)
    assert leftovers(tmp_path) == [left]
    foreign = tmp_path / f".learnkernels~{replace(Owner.of(os.getpid()), host='other.1', pid=process.pid)}~x"
    foreign.mkdir()
    with atomic_path(tmp_path / "file") as temporary:
        temporary.write_text("new")
    assert {child.name for child in tmp_path.iterdir()} == {"file", foreign.name}


ELSEWHERE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")
"""What runs a command where the processes of here cannot be seen, as in a container on the same folder."""


def test_a_container_on_the_same_folder_leaves_what_is_at_work_here_and_the_other_way_round(tmp_path: Path):
    if shutil.which("unshare") is None or subprocess.run([*ELSEWHERE, "true"], capture_output=True).returncode:
        pytest.skip("this system allows no namespace of processes")
    code = (
        "import os, sys; from pathlib import Path; from learnkernels.tasks.store import temporary_folder; "
        "folder = temporary_folder(Path(sys.argv[1])); os._exit(0)"
    )
    with temporary_folder(tmp_path) as ours:
        subprocess.run([*ELSEWHERE, sys.executable, "-c", code, str(tmp_path)], check=True)
        assert Path(ours).is_dir()
        (theirs,) = set(tmp_path.iterdir()) - {Path(ours)}
        with temporary_folder(tmp_path):
            assert theirs.is_dir()


def test_files_of_others_are_no_leftovers(tmp_path: Path):
    for name in ("run~host~1~2", f"notes~{replace(Owner.this(), started=1)}", ".learnkernels~mine", ".learnkernels"):
        (tmp_path / name).mkdir()
    assert leftovers(tmp_path) == []
    assert leftovers(tmp_path / "not there") == []
