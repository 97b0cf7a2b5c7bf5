"""Where compiled code is kept: in no folder that others may write to."""

import os
from pathlib import Path

from learnkernels.kernels.compiled import compiler


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
        assert compiler._private_folder() is None, name
    folder_in("free")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "free"))
    assert compiler._private_folder() is not None
