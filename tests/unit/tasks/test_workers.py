"""What is known of workers before any is started: memory, rows in files, and what is refused."""

import re
from pathlib import Path

import numpy as np
import pytest

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DaskConfig
from learnkernels.kernels.engine.workers import SelectedRows, Threads
from learnkernels.tasks.data import parts as in_parts
from learnkernels.tasks.data.parts import RowFile, RowParts, content_digest
from learnkernels.tasks.workers.cluster import DaskPool, worker_memory

X = np.random.default_rng(0).normal(size=(90, 5))


def test_which_pools_have_workers_and_which_of_these_see_our_files_and_have_room():
    assert DaskPool(DaskConfig()).local
    assert not DaskPool(DaskConfig(scheduler="tcp://127.0.0.1:1")).local
    with DaskPool(DaskConfig(workers=0)) as none:
        assert not none.local
        assert isinstance(none.workers, Threads)
    pool = DaskPool(DaskConfig(workers=2, memory="800MB"))
    assert pool.has_room_for(100_000_000)
    assert not pool.has_room_for(100_000_001)
    assert worker_memory("1GiB", 2) == "1GiB"
    assert worker_memory("auto", 2).endswith("iB")


def test_rows_in_parts_are_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(in_parts, "PART_BYTES", 16 * 5 * 8)
    monkeypatch.setattr(in_parts, "BATCH_BYTES", 4 * 5 * 8)
    parts = RowParts.write(str(tmp_path / "run" / "rows"), X)
    assert len(list((tmp_path / "run" / "rows").iterdir())) == 6
    some = np.random.default_rng(1).permutation(90)[:70]
    for at in (slice(0, 90), slice(15, 18), slice(4, 4), some, some[:0]):
        np.testing.assert_array_equal(parts[at], X[at])
    np.testing.assert_array_equal(SelectedRows(parts, some, X[3])[10:20], X[some[10:20]] - X[3])  # type: ignore[arg-type]
    file = RowFile.write(tmp_path / "one.arrow", X)
    np.testing.assert_array_equal(file[some], X[some])
    assert content_digest(X) == content_digest(file)
    for row in (0, 50, 89):
        changed = X.copy()
        changed[row, 2] += 1
        assert content_digest(X) != content_digest(changed)


def test_a_full_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RowFile, "write", full)
    sentence = r"90 rows .* cannot be written \(No space left on device\); free up disk space"
    with DaskPool(DaskConfig(workers=2)) as pool, pytest.raises(InputError, match=sentence):
        pool.workers.scatter_rows(X, None, np.zeros(5))


def test_certificates_are_read_before_anybody_is_asked(tmp_path: Path):
    (tmp_path / "cert.pem").write_text("-----BEGIN CERTIFICATE-----")
    (tmp_path / "text.pem").write_text("not that")
    cert = str(tmp_path / "cert.pem")
    told = {"gone.pem": "cannot be read (No such file or directory)"}
    told["text.pem"] = "is no file of PEM's format; correct the path"
    for name, sentence in told.items():
        key = str(tmp_path / name)
        config = DaskConfig(scheduler="tls://127.0.0.1:1", certificates={"ca": cert, "cert": cert, "key": key})
        with pytest.raises(InputError, match=rf"^dask\.certificates\.key: {key} {re.escape(sentence)}"):
            DaskPool(config).require_usable()
