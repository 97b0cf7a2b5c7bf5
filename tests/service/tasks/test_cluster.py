"""Independent jobs and passes over rows on the workers of a pool: order, sums, memory, warnings, errors."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import httpx
import numpy as np
import psutil
import pytest
from dask.utils import parse_bytes
from distributed import get_worker
from scipy import sparse

from learnkernels import LinearFamily
from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DaskConfig
from learnkernels.kernels.engine.passes import RowBlocks, pass_over_tiles
from learnkernels.kernels.engine.workers import Threads, Workers, spans
from learnkernels.tasks.data.row_files import RowFile
from learnkernels.tasks.owner import Owner
from learnkernels.tasks.workers.cluster import SUMS_PER_WORKER, DaskPool, DaskWorkers
from tools.waiting import within


@pytest.fixture(scope="module")
def listening_before() -> set[int]:
    """Ports on which this process listens already, for a cluster of other tests that is open to all."""
    return {at.port for at in listening(os.getpid())}


def listening(pid: int) -> list[Any]:
    connections = psutil.Process(pid).net_connections("tcp")
    return [connection.laddr for connection in connections if connection.status == psutil.CONN_LISTEN]


@pytest.fixture(scope="module")
def pool(listening_before: set[int]) -> Iterator[DaskPool]:
    with DaskPool(DaskConfig(workers=2)) as pool:
        yield pool


def square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def grumble(number: int) -> int:
    if number == 2:
        warnings.warn("two is odd here", RuntimeWarning, stacklevel=1)
    return number


def refuse(number: int) -> int:
    if number == 3:
        raise InputError("three is refused; leave it out.")
    return number


def die(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_results_come_in_order_from_other_processes(pool: DaskPool):
    shares: list[float] = []
    results = pool.map(square, list(range(10)), shares.append)
    assert [number for number, _ in results] == [n * n for n in range(10)]
    assert os.getpid() not in {process for _, process in results}
    assert sum(shares) == pytest.approx(1)


def test_another_process_can_use_neither_the_scheduler_nor_a_worker(pool: DaskPool):
    addresses = [pool.client.scheduler.address, *pool.client.scheduler_info(n_workers=-1)["workers"]]
    assert all(address.startswith("tls://127.0.0.1:") for address in addresses)
    for address in addresses:
        for program in (
            f"Client({address.replace('tls', 'tcp')!r}, timeout=5)",  # without keys
            f"Client({address!r}, timeout=5, security=Security.temporary())",  # with others
        ):
            code = f"from distributed import Client, Security; print({program}.submit(abs, -7, pure=False).result())"
            stranger = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
            assert stranger.returncode != 0
            assert "7" not in stranger.stdout
    assert pool.map(square, [3], lambda share: None)[0][0] == 9


def codes_of_pages(ports: Iterable[Any]) -> set[int]:
    """What Dask's servers at some ports say where they would have pages."""
    said = set()
    for at in ports:
        for page in ("/", "/info/main/workers.html", "/json/identity.json", "/metrics", "/status", "/health"):
            with suppress(httpx.TransportError):  # one that does not speak HTTP, or TLS
                said.add(httpx.get(f"http://127.0.0.1:{at.port}{page}", timeout=30).status_code)
    return said


def test_no_page_tells_others_of_a_run(pool: DaskPool, listening_before: set[int]):
    assert pool.client is not None
    workers = pool.client.run(os.getpid)
    ports = {at for pid in (os.getpid(), *workers.values()) for at in listening(pid) if at.port not in listening_before}
    assert ports
    assert {at.ip for at in ports} == {"127.0.0.1"}
    assert codes_of_pages(ports) == {404}


def test_warnings_of_a_worker_are_heard_here(pool: DaskPool):
    with pytest.warns(RuntimeWarning, match="two is odd here"):
        assert pool.map(grumble, [1, 2, 3], lambda share: None) == [1, 2, 3]


def level_of_logs(number: int) -> int:
    return min(handler.level for handler in logging.getLogger("distributed").handlers)


def test_workers_print_nothing_of_their_own(pool: DaskPool):
    assert pool.map(level_of_logs, [1], lambda share: None) == [logging.CRITICAL]


def test_an_error_of_a_worker_is_raised_here_as_it_was(pool: DaskPool):
    with pytest.raises(InputError, match=r"^three is refused; leave it out\.$"):
        pool.map(refuse, [1, 2, 3, 4], lambda share: None)


def test_what_ends_its_worker_is_one_sentence_and_the_next_pass_works():
    sentence = r"ended its worker process, .* set dask\.memory higher"
    settings = {
        "distributed.scheduler.allowed-failures": 0,  # three by default, and seconds each
        "distributed.deploy.lost-worker-timeout": "1 ms",  # after which Dask would do away with what starts the next
    }
    with (
        dask.config.set(settings),
        DaskPool(DaskConfig(workers=1)) as pool,
    ):
        with pytest.raises(InputError, match=f"^a pass over rows {sentence}"):
            pool.workers.total(die_at, pool.workers.share(None), 3, range(5))
        assert pool.workers.total(die_at, pool.workers.share(None), 9, range(5)) == 10
        with pytest.raises(InputError, match=f"^a trial {sentence}"):
            pool.map(die, [0, 1], lambda share: None)


def test_a_pass_is_done_by_workers_that_end_before_a_share_of_it_is():
    settings = {"distributed.scheduler.allowed-failures": 0, "distributed.deploy.lost-worker-timeout": "1 ms"}
    with dask.config.set(settings), DaskPool(DaskConfig(workers=2)) as pool:
        tasks = range(6 * SUMS_PER_WORKER)  # three a share, so that none is done within the life of a worker
        assert pool.workers.total(live_for_two, pool.workers.share(None), None, tasks) == sum(tasks)


ELSEWHERE = """
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster:
        print(cluster.scheduler_address, flush=True)
        input()
"""


def linger(shared: None, start: float, position: int) -> float:
    time.sleep(0.3)
    return start


def test_a_scheduler_that_ends_in_the_middle_of_a_pass_is_one_sentence(tmp_path: Path):
    program = tmp_path / "elsewhere.py"
    program.write_text(ELSEWHERE)
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, str(program)], stdin=pipe, stdout=pipe, env=env, text=True) as elsewhere:
        assert elsewhere.stdout is not None
        with DaskPool(DaskConfig(scheduler=elsewhere.stdout.readline().strip())) as pool:
            workers = pool.workers
            assert workers.total(linger, workers.share(None), 1.0, range(1)) == 1.0
            threading.Timer(1.0, elsewhere.kill).start()
            with pytest.raises(InputError, match=r"^the Dask scheduler ended during a pass over rows; what was comput"):
                workers.total(linger, workers.share(None), 1.0, range(600))


# Passes over rows -----------------------------------------------------------------------------------------------------


def products(shared: tuple[object, float], V: np.ndarray, rows: tuple[int, int]) -> np.ndarray:
    """Scale X' X V, over some rows."""
    X, scale = shared
    run = X[slice(*rows)]
    return np.asarray(run.T @ (run @ V)) * scale


def die_at(shared: object, argument: int, task: int) -> int:
    return die(1) if task == argument else task


def live_for_two(shared: object, argument: int, task: int) -> int:
    """Return the task, unless it is the third of its share: machines come and go that fast."""
    share = get_worker().get_current_task()
    done[share] += 1
    return die(1) if done[share] == 3 else task


done: Counter[str] = Counter()
"""Tasks of each share that this process has done."""


def rows_of(kind: str) -> object:
    X = np.random.default_rng(0).normal(size=(90, 5))
    return sparse.csr_matrix(np.where(X > 0.5, X, 0.0)) if kind == "sparse" else X.astype(kind)


@pytest.mark.parametrize("kind", ["float64", "float32", "sparse"])
@pytest.mark.parametrize("where", ["local", "elsewhere"])
def test_totals_of_workers_are_those_of_threads(pool: DaskPool, scheduler_elsewhere: str, kind: str, where: str):
    X, V = rows_of(kind), np.random.default_rng(1).normal(size=(5, 2))
    origin = np.zeros(5) if kind == "sparse" else np.full(5, 0.5)
    rows = np.random.default_rng(2).permutation(90)[:70]

    def totals(workers: Workers) -> list[np.ndarray]:
        held = workers.hold(X, rows, origin)
        assert held.shape == (70, 5)
        shared = workers.share((held, 2.0))
        return [workers.total(products, shared, V * factor, spans(70, 3)) for factor in (1.0, -3.0)]

    with DaskPool(DaskConfig(scheduler=scheduler_elsewhere)) as other:
        there = totals((pool if where == "local" else other).workers)
    here = totals(Threads(1))
    # Sums of 70 rows in another order; rows of float32 are moved in float64 by threads and rounded in a file.
    np.testing.assert_allclose(there, here, rtol=1e-5 if kind == "float32" else 1e-13)


def test_a_pool_without_workers_has_threads():
    with DaskPool(DaskConfig(workers=0)) as pool:
        assert isinstance(pool.workers, Threads)


def test_hundreds_of_totals_leave_nothing_behind_and_files_go_with_their_rows(pool: DaskPool):
    workers = pool.workers
    assert isinstance(workers, DaskWorkers)
    held = workers.hold(rows_of("float64"), None, np.zeros(5))
    assert isinstance(held, RowFile)
    path = Path(held.path)
    shared = workers.share((held, 1.0))
    del held
    many = [(row, row + 1) for row in range(90)]
    assert len(many) > SUMS_PER_WORKER * pool.n_workers
    first = workers.total(products, shared, np.eye(5), many)
    for _ in range(30):
        np.testing.assert_array_equal(workers.total(products, shared, np.eye(5), many), first)
    gc.collect()
    held_key = shared.future.key
    assert within(lambda: list(pool.client.futures) == [held_key], 20), list(pool.client.futures)
    assert path.exists()
    del shared
    gc.collect()
    assert not path.exists()


def test_rows_of_a_run_that_was_killed_go_with_the_next_run(pool: DaskPool):
    ours = Path(pool.write_rows(rows_of("float64")).path).parent
    assert Owner.read(ours.name) == Owner.this()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        killed = Owner.of(process.pid)
        process.communicate(b"\n")
    left, elsewhere = (ours.parent / f".learnkernels~{of}~x" for of in (killed, replace(killed, host="other.1")))
    left.mkdir()
    elsewhere.mkdir()
    with DaskPool(DaskConfig(workers=1)) as other:
        theirs = Path(other.write_rows(rows_of("float64")).path).parent
        assert (ours.is_dir(), theirs.is_dir(), left.exists(), elsewhere.exists()) == (True, True, False, True)
    assert not theirs.exists()


def test_a_full_disk_is_one_sentence(pool: DaskPool, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RowFile, "write", full)
    with pytest.raises(InputError, match=r"90 rows .* cannot be written \(No space left on device\); make"):
        pool.workers.hold(rows_of("float64"), None, np.zeros(5))


@pytest.mark.slow(20)
def test_a_pass_over_rows_of_more_than_the_memory_of_a_worker(tmp_path: Path):
    limit, m, d = "450MiB", 400, 150_000
    X = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float64, (m, d))
    (tmp_path / "X.npy").unlink()  # pytest would keep it
    for start, stop in spans(m, 50):
        X[start:stop] = np.random.default_rng(start).random((stop - start, d)) - 0.5
    assert X.nbytes > parse_bytes(limit)
    Y, groups = np.random.default_rng(1).normal(size=(m, 1)), np.arange(m) * 2 // m
    blocks = RowBlocks.of(groups, 16)
    with DaskPool(DaskConfig(workers=2, memory=limit)) as pool:
        before = pool.client.run(os.getpid)
        paused_at = pool.client.run(dask.config.get, "distributed.worker.memory.pause")
        assert set(paused_at.values()) == {False}  # a worker that is paused seldom goes on
        part = pass_over_tiles(LinearFamily(), X, Y, blocks, np.zeros(1), pool.workers)
        assert pool.client.run(os.getpid) == before  # none was ended for want of memory
    assert within(lambda: not any(map(psutil.pid_exists, before.values())), 20)
    K, of = X @ X.T, np.eye(2)[groups]
    # Rounding of sums of m^2 terms, of which each is one of d.
    np.testing.assert_allclose(part.products[:, :, 0, 0], of.T @ K**2 @ of, rtol=1e-12)
    np.testing.assert_allclose(part.target_products[:, :, 0], of.T @ (K * (Y @ Y.T)) @ of, atol=1e-7)
    np.testing.assert_allclose(part.traces[:, 0], np.diag(K) @ of, rtol=1e-12)
    sums = [[part.row_sums[block, group][0] for block in range(len(blocks))] for group in range(2)]
    np.testing.assert_allclose([np.concatenate(of_group) for of_group in sums], (K @ of).T, atol=1e-8)


def test_trials_go_to_workers_that_have_room_for_their_rows():
    with DaskPool(DaskConfig(workers=2, memory="800MB")) as pool:
        assert pool.has_room_for(100_000_000)
        assert not pool.has_room_for(100_000_001)


def test_which_pools_have_workers_that_see_our_files():
    assert DaskPool(DaskConfig()).local
    assert not DaskPool(DaskConfig(workers=0)).local
    assert not DaskPool(DaskConfig(scheduler="tcp://127.0.0.1:1")).local


def plus(shared: np.ndarray, argument: Any, span: tuple[int, int]) -> np.ndarray:
    return np.asarray(shared[slice(*span)].sum(keepdims=True))


def test_what_workers_took_with_them_is_sent_again(pool: DaskPool):
    workers, values = pool.workers, np.arange(10.0)
    shared = workers.share(values)
    assert workers.total(plus, shared, None, [(0, 4), (4, 10)]) == values.sum()
    pool.client.cancel(shared.future, force=True)  # as when both that hold it end
    assert workers.total(plus, shared, None, [(0, 4), (4, 10)]) == values.sum()
