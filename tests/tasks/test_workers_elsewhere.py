"""Workers on other machines: what they get of the rows, which of them are refused, and what starts them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from distributed import Security, Worker

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DaskConfig
from learnkernels.kernels.engine.workers import SelectedRows, Threads, spans
from learnkernels.tasks.workers import row_files
from learnkernels.tasks.workers.cluster import DaskPool
from learnkernels.tasks.workers.row_files import RowFile, RowParts, content_digest
from tests.elsewhere import another_machine, hideable

if TYPE_CHECKING:
    from tests.tasks.conftest import S3


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows of five numbers 16 a part."""
    monkeypatch.setattr(row_files, "PART_BYTES", 16 * 5 * 8)


def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(90, 5))


# Rows ----------------------------------------------------------------------------------------------------------------


def product(X: Any, V: np.ndarray, span: tuple[int, int]) -> np.ndarray:
    run = X[slice(*span)]
    return np.asarray(run.T @ (run @ V))


@pytest.mark.usefixtures("small_parts")
def test_rows_in_parts_are_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(row_files, "BATCH_BYTES", 4 * 5 * 8)
    X = rows()
    parts = RowParts.write(str(tmp_path / "run" / "rows"), X)
    assert len(list((tmp_path / "run" / "rows").iterdir())) == 6
    some = np.random.default_rng(1).permutation(90)[:70]
    for at in (slice(0, 90), slice(15, 18), slice(4, 4), some, some[:0]):
        np.testing.assert_array_equal(parts[at], X[at])
    np.testing.assert_array_equal(SelectedRows(parts, some, X[3])[10:20], X[some[10:20]] - X[3])  # type: ignore[arg-type]
    file = RowFile.write(tmp_path / "one.arrow", X)
    np.testing.assert_array_equal(file[some], X[some])
    assert content_digest(X) == content_digest(file)
    assert content_digest(X) != content_digest(X[::-1])


@pytest.mark.usefixtures("small_parts")
def test_rows_reach_workers_elsewhere_once_and_are_gone_at_the_end(s3: S3, tmp_path: Path):
    hidden = hideable(tmp_path / "hidden")
    X, V, some = rows(), np.eye(5), np.random.default_rng(1).permutation(90)[:70]
    seen = tmp_path / "seen"

    def copies(dask_worker: Worker) -> int:
        return len(list(Path(dask_worker.local_directory).rglob("*.arrow")))

    with another_machine(tmp_path / "machine", hidden=hidden) as address:
        for where in (str(seen), "s3://rows/scratch"):
            with DaskPool(DaskConfig(scheduler=address, rows=where)) as pool:
                pool.require_usable()
                for origin in (np.zeros(5), np.full(5, 0.5)):
                    held = pool.workers.hold(X, some, origin)
                    assert isinstance(held, SelectedRows)
                    assert isinstance(held.X, RowParts)
                    found = pool.workers.total(product, pool.workers.share(held), V, spans(70, 7))
                    there = Threads(1).total(product, X[some] - origin, V, spans(70, 7))
                    np.testing.assert_allclose(found, there, rtol=1e-12)  # sums of 70 rows in another order
                assert isinstance(pool.workers.hold(X.copy(), None, np.zeros(5)), RowParts)
                written = [path.name for path in seen.rglob("*")] if where == str(seen) else s3.keys()
                assert len([name for name in written if name.endswith(".arrow")]) == 6  # of three times the same rows
                copied = pool.client.run(copies).values()
                assert max(copied) <= (0 if where == str(seen) else 6)
                assert sum(copied) >= (0 if where == str(seen) else 6)
            left = [*seen.rglob("*"), *(tmp_path / "machine").rglob("*.arrow")]
            assert not [name for name in (*map(str, left), *s3.keys()) if name.endswith(".arrow")]
        if hidden is None:
            pytest.skip("folders cannot be hidden from a process here, for want of the right to mount")
        sentence = r"^dask\.rows: the worker at tcp://.* cannot read there \(.*correct the path\); give a place"
        with (
            DaskPool(DaskConfig(scheduler=address, rows=str(hidden))) as pool,
            pytest.raises(InputError, match=sentence),
        ):
            pool.workers.hold(X, None, np.zeros(5))
    assert not list(hidden.rglob("*.arrow"))


@pytest.mark.usefixtures("small_parts")
def test_a_server_of_objects_may_be_away_for_a_while(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    X, waited = rows(), []
    parts = RowParts.write("s3://rows/run/rows", X)
    s3.server.stop()

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            s3.start()  # its objects are in this process

    monkeypatch.setattr(row_files.time, "sleep", wait)
    monkeypatch.setattr(row_files, "_copies", lambda: tmp_path)
    np.testing.assert_array_equal(parts[20:60], X[20:60])
    assert waited == [1, 2]


# Who they are --------------------------------------------------------------------------------------------------------


def test_a_worker_of_another_version_is_refused(tmp_path: Path):
    about = tmp_path / "other" / "numpy-1.0.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.0.0\n")
    sentence = rf"^dask: the worker at tcp://.* has numpy 1\.0\.0 and not {np.__version__}; install there"
    with (
        another_machine(tmp_path / "machine", path=tmp_path / "other") as address,
        pytest.warns(match="Mismatched versions found"),  # which Dask itself prints
        DaskPool(DaskConfig(scheduler=address)) as pool,
        pytest.raises(InputError, match=sentence),
    ):
        pool.require_usable()


def test_a_scheduler_is_used_with_its_certificates_alone(tmp_path: Path):
    keys = Security.temporary()
    files = {"ca": keys.tls_ca_file, "cert": keys.tls_client_cert, "key": keys.tls_client_key}
    paths = {name: str(tmp_path / f"{name}.pem") for name in files}
    for name, text in files.items():
        Path(paths[name]).write_text(text)
    with another_machine(tmp_path / "machine", *paths.values()) as address:
        assert address.startswith("tls://")
        config: dict[str, Any] = {"scheduler": address, "timeout": 5.0}
        with DaskPool(DaskConfig(**config, certificates=paths)) as pool:
            pool.require_usable()
            assert pool.workers.total(product, pool.workers.share(np.eye(3)), np.eye(3), [(0, 3)]).trace() == 3
        with pytest.raises(InputError, match=r"^dask\.scheduler: no Dask scheduler answers at tls://"):
            DaskPool(DaskConfig(**config)).require_usable()
        for name, sentence in (("gone", "No such file or directory"), ("machine", "Is a directory")):
            wrong = paths | {"key": str(tmp_path / name)}
            with pytest.raises(InputError, match=rf"^dask\.certificates\.key: .*{name} cannot be read \({sentence}\)"):
                DaskPool(DaskConfig(**config, certificates=wrong)).require_usable()
        (tmp_path / "key.pem").write_text("not that")
        with pytest.raises(InputError, match=r"key\.pem is no file of PEM's format; correct the path"):
            DaskPool(DaskConfig(**config, certificates=paths)).require_usable()


# Who starts them -----------------------------------------------------------------------------------------------------

SBATCH = """#!/bin/sh
for last; do :; done
sh "$last" >/dev/null 2>&1 &
echo $! >> "$JOBS"
echo "Submitted batch job $!"
"""


def test_slurm_is_asked_for_workers_and_told_that_they_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue, of the extra clusters, is not installed")
    for name, text in (("sbatch", SBATCH), ("scancel", '#!/bin/sh\nkill "$@"\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("JOBS", str(tmp_path / "jobs"))
    options = {"queue": "long", "cores": 1, "memory": "1GiB", "processes": 1, "interface": "lo"}
    options |= {"log_directory": str(tmp_path), "scheduler_options": {"dashboard_address": "127.0.0.1:0"}}
    config = DaskConfig(cluster="slurm", workers=2, options=options, timeout=60.0)
    with DaskPool(config) as pool:
        pool.require_usable()
        assert not pool.local
        total = pool.workers.total(product, pool.workers.share(np.eye(3)), np.eye(3), [(0, 1), (1, 3)])
        np.testing.assert_array_equal(total, np.eye(3))
    assert len((tmp_path / "jobs").read_text().split()) == 2


def without(package: str) -> Callable[[str], Any]:
    from importlib import import_module

    def imported(name: str) -> Any:
        if name.partition(".")[0].replace("_", "-") == package:
            raise ImportError(name)
        return import_module(name)

    return imported


@pytest.mark.parametrize(
    ("cluster", "package", "options"),
    [("kubernetes", "dask-kubernetes", {}), ("slurm", "dask-jobqueue", {}), ("ssh", "asyncssh", {"hosts": ["a", "b"]})],
)
def test_what_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, cluster: Any, package: str, options: dict[str, Any]
):
    monkeypatch.setattr("learnkernels.tasks.workers.connecting.import_module", without(package))
    sentence = rf"needs the package {package}, which is not installed; .* pip install 'learnkernels\[clusters\]'$"
    with pytest.raises(InputError, match=sentence):
        DaskPool(DaskConfig(cluster=cluster, workers=1, options=options)).require_usable()


@pytest.mark.filterwarnings("ignore:Exception ignored in. <function Cluster.__del__")  # of what Dask could not make
def test_options_that_a_cluster_does_not_take_are_named():
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue, of the extra clusters, is not installed")
    sentence = r"^dask\.cluster: SLURMCluster cannot start workers \(.*cores.*\); correct dask\.options"
    with pytest.raises(InputError, match=sentence):
        DaskPool(DaskConfig(cluster="slurm", workers=1, options={"queue": "long"})).require_usable()
