"""The folder and the contents of the cache of compiled code."""

import importlib
import os
import sys
from pathlib import Path

from learnkernels.kernels import compiled


def test_a_temporary_folder_that_is_not_the_users_alone_is_not_used(tmp_path: Path, monkeypatch):
    def folder_in(name: str) -> Path:
        (tmp_path / name).mkdir()
        return tmp_path / name / f"learnkernels-{os.getuid()}"

    (tmp_path / "other").mkdir(0o700)
    folder_in("link").symlink_to(tmp_path / "other")
    folder_in("file").touch(0o700)
    opened = folder_in("open")
    opened.mkdir()
    opened.chmod(0o770)
    for name in ("link", "file", "open", "missing"):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / name))
        assert compiled._private_folder() is None, name
    folder_in("free")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "free"))
    assert compiled._private_folder() is not None


def test_code_that_was_compiled_for_a_class_of_another_name_is_not_read(tmp_path: Path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("Before", "After"):
        monkeypatch.delitem(sys.modules, "doubling", raising=False)
        (tmp_path / "doubling.py").write_text(
            "from typing import NamedTuple\nfrom learnkernels.kernels.compiled import compiled\n\n"
            f"class {name}(NamedTuple):\n    number: int\n\n"
            "@compiled()\ndef double(one):\n    return 2 * one.number\n"
        )
        importlib.invalidate_caches()
        module = importlib.import_module("doubling")
        assert module.double(getattr(module, name)(21)) == 42
