"""A full disk, a read-only folder, a limit: one sentence with its path, and nothing half-written."""

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dev.tools.mutations import fates, is_sentence
from learnkernels.conf.errors import InputError
from learnkernels.tasks import environment
from learnkernels.tasks.data import locations, tables
from tests.refusals import require_refusals


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    mounted = shutil.which("mount") and subprocess.run(mount, capture_output=True)
    if not mounted or mounted.returncode:
        pytest.skip("this user may not mount a disk in memory")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def write(path: Path) -> None:
    """Write a table of a megabyte or so, as predictions are written."""
    table = pa.table({"prediction": np.random.default_rng(0).normal(size=1 << 17)})
    location = locations.locate(str(path))
    with (
        locations.written(location) as temporary,
        tables.TableOutput(temporary, location, table.schema) as out,
    ):
        out.write(table)


def test_a_full_or_read_only_disk_is_one_sentence_and_leaves_nothing(small_disk: Path):
    for ending in (".parquet", ".csv", ".arrow"):
        said = (
            rf"out\{ending}: .*[Nn]o space left on device; free up space on that disk"
        )
        (sentence,) = require_refusals(
            [(partial(write, small_disk / f"out{ending}"), said)], error=InputError
        )
        assert is_sentence(sentence)
        assert list(small_disk.iterdir()) == []
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    said = r"out\.parquet: Read-only file system; give a place that can be written to"
    require_refusals(
        [(partial(write, small_disk / "out.parquet"), said)], error=InputError
    )
    assert list(small_disk.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_one_sentence(tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(
        InputError, match=r"out\.parquet: Permission denied; change its permissions"
    ):
        write(tmp_path / "out.parquet")


def test_a_limit_of_the_length_of_files_is_one_sentence(tmp_path: Path):
    def limited(case: Any) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        write(tmp_path / "out.parquet")

    (fate,) = fates([0], limited, (InputError,))
    assert fate.kind == "sentence", fate.text
    assert "File too large; raise the limit" in fate.text
    assert list(tmp_path.iterdir()) == []


def test_a_full_or_read_only_state_folder_is_refused_before_a_run(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(small_disk / "state"))
    with pytest.raises(
        InputError,
        match="MiB of its disk are free, and the databases of a run need 16; free up",
    ):
        environment.prepare_environment()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(
        InputError, match=r"state: cannot be written to; change its permissions"
    ):
        environment.prepare_environment()
