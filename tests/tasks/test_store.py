"""Files appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from learnkernels.tasks.store import atomic_path, digest


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


def test_digests_depend_on_values_and_not_on_the_order_of_keys():
    assert digest({"a": 1, "b": 2.0}) == digest({"b": 2.0, "a": 1})
    assert len({digest(1), digest("1"), digest([1]), digest(1, 1), digest(2)}) == 5
