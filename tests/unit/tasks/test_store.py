"""What the store and other outputs hold is whole: written so, found so, or made again."""

import os
import random
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from learnkernels.conf.errors import InputError
from learnkernels.kernels.targets import Target
from learnkernels.tasks import store
from learnkernels.tasks.data.dataset import Dataset, dataset_digest, load_dataset, store_dataset
from learnkernels.tasks.store import Owner, atomic_path, checked, digest, keep, kept, leftovers, versions, versions_of

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
    with pytest.raises(RuntimeError, match="half way"), atomic_path(tmp_path / "file") as temporary:  # noqa: PT012
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


def entry(path: Path, content: dict[str, bytes] = CONTENT, made_from: tuple[Path, ...] = ()) -> Path:
    with keep(path, made_from) as folder:
        for name, text in content.items():
            (folder / name).write_bytes(text)
    return path


def refuse(sentence: str) -> None:
    raise AssertionError(sentence)


def test_an_entry_is_kept_whole_and_never_replaced(tmp_path: Path):
    path = tmp_path / "kind" / "key"
    assert not kept(path, refuse)
    with pytest.raises(TypeError):
        entry(path, {"a": b"a", "b": None})  # type: ignore[dict-item]
    assert names_in(path.parent) == []
    entry(path)
    assert {file.name: file.read_bytes() for file in checked(path).iterdir() if file.name in CONTENT} == CONTENT
    before = (path.stat().st_ino, (path / "a.npy").stat().st_ino)
    entry(path, {"a.npy": b"of the second"})
    assert (path.stat().st_ino, (path / "a.npy").stat().st_ino) == before
    assert names_in(path.parent) == ["key"]
    # Two processes find the same damage; one of them has healed it when the other sets it aside.
    assert store._set_aside(path, "a.npy was damaged a moment ago", refuse)
    assert names_in(path.parent) == ["key"]
    os.utime(path, (0, 0))
    assert kept(path, refuse)
    assert path.stat().st_mtime > 0  # its use is noted, for who removes what is old


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


DAMAGE: dict[str, Callable[[Path], object]] = {"flip": flip, "cut": cut, "missing": Path.unlink}
DAMAGE |= {"longer": lambda file: file.write_bytes(file.read_bytes() + b" "), "folder": replace_by_folder}
if os.geteuid():  # nothing is hidden from root
    DAMAGE["unreadable"] = lambda file: file.chmod(0)


def require_set_aside(path: Path, name: str) -> None:
    """Fail unless an entry is found damaged in one file, set aside with a sentence, and can be made again."""
    with pytest.raises(InputError, match=rf"{name} .*, since this run began; start again"):
        checked(path)
    told: list[str] = []
    assert not kept(path, told.append)
    (sentence,) = told
    assert re.fullmatch(rf"{path}: {name} .*", sentence)
    assert not path.exists()
    assert kept(entry(path), refuse)


def test_any_damage_is_noticed_told_in_a_sentence_and_set_aside(tmp_path: Path, subtests: pytest.Subtests):
    path, often = entry(tmp_path / "key"), {"flip": 12, "cut": 4}  # where some of it is drawn
    for name, (how, damage) in product([*CONTENT, "entry.json"], DAMAGE.items()):
        with subtests.test(name=name, how=how):
            for _ in range(often.get(how, 1)):
                damage(path / name)
                require_set_aside(path, name)
    assert all(name == "key" or name.startswith("damaged~key~") for name in names_in(tmp_path))
    for name, make in {
        "X.npz": lambda path: (entry(path) / "X.npz").write_bytes(b"x"),  # too many files
        "entry.json": lambda path: entry(tmp_path / "other").rename(path),  # of another key
        "entry.json cannot": Path.mkdir,
        "entry.json cannot be": lambda path: path.write_text("x"),  # no folder
    }.items():
        with subtests.test(name):
            path = tmp_path / name.replace(" ", "-")
            make(path)
            require_set_aside(path, name)


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


def test_an_entry_says_what_it_was_computed_with_and_its_sources_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    old = {**NOW, "numpy": "1.0"}
    monkeypatch.setattr(store, "versions", lambda: old)
    first = entry(tmp_path / "first")
    monkeypatch.setattr(store, "versions", lambda: NOW)
    second = entry(tmp_path / "second")
    both = entry(tmp_path / "both", made_from=(first, second, first))
    assert (versions_of(first), versions_of(second), versions_of(both)) == ([old], [NOW], [NOW, old])
    assert set(NOW) == {"learnkernels", "numpy", "scipy", "scikit-learn", "numba"}


def test_files_of_others_are_no_leftovers(tmp_path: Path):
    for name in ("run~host~1~2", f"notes~{replace(Owner.this(), started=1)}", ".learnkernels~mine", ".learnkernels"):
        (tmp_path / name).mkdir()
    assert leftovers(tmp_path) == []
    assert leftovers(tmp_path / "not there") == []


# Data sets -----------------------------------------------------------------------------------------------------------


def people() -> Dataset:
    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(60, 3)), np.where(rng.random(60) < 0.5, "yes", "no")
    low, spread = X.min(axis=0), np.ptp(X, axis=0)
    return Dataset((X - low) / spread, Target.of(y), ("a", "b", "c"), low, spread, rng.random(60) < 0.2)


def test_every_file_of_a_data_set_is_checked_and_healed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path))
    dataset, told = people(), []
    ref = store_dataset(dataset, "people", "here", refuse)
    whole = {file.name: file.read_bytes() for file in Path(ref.path).iterdir()}
    assert set(whole) == {"X.npy", "y.npy", "scaling.npy", "held_out.npy", "about.json", "entry.json"}
    for name, damage in product(whole, (flip, flip, cut, Path.unlink)):
        damage(Path(ref.path) / name)
        with pytest.raises(InputError, match=name):
            load_dataset(ref)
        assert store_dataset(dataset, "people", "here", told.append) == ref
        assert {file.name: file.read_bytes() for file in Path(ref.path).iterdir()} == whole
        assert dataset_digest(load_dataset(ref)) == ref.digest
    assert len(told) == 6 * 4
