"""Jobs, passes over rows and matrices on real Dask workers: order, sums, memory, warnings, errors."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from itertools import product
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import httpx
import numpy as np
import psutil
import pytest
from dask.utils import parse_bytes
from distributed import Client, Security
from scipy import sparse

from dev.tools.waiting import within
from learnkernels import GaussianFamily, LinearFamily, gram_statistics
from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DaskConfig
from learnkernels.kernels.engine.passes import RowBlocks, pass_over_tiles
from learnkernels.kernels.engine.workers import BlockResults, Threads, Workers, spans
from learnkernels.tasks.data import row_files
from learnkernels.tasks.data.row_files import RowFiles
from learnkernels.tasks.processes.owner import Owner
from learnkernels.tasks.workers import cluster
from learnkernels.tasks.workers.cluster import (
    SUMS_PER_WORKER,
    DaskPool,
    DaskWorkers,
    SumInGroups,
)
from tests.elsewhere import another_machine
from tests.unit.tasks.test_matrices import files_of, make
from tests.unit.tasks.test_trials import require_statistics_of_training_rows

if TYPE_CHECKING:
    from tests.service.conftest import S3


@pytest.fixture(scope="module")
def listening_before(scheduler_elsewhere: str) -> set[int]:
    """Ports on which this process listens already, for the cluster that is open to all."""
    return {at.port for at in listening(os.getpid())}


def listening(pid: int) -> list[Any]:
    connections = psutil.Process(pid).net_connections("tcp")
    return [
        connection.laddr
        for connection in connections
        if connection.status == psutil.CONN_LISTEN
    ]


@pytest.fixture(scope="module")
def pool(listening_before: set[int]) -> Iterator[DaskPool]:
    with DaskPool(
        DaskConfig.model_validate({"workers": 2, "memory": "1GiB", "super_tile": 64})
    ) as pool:
        yield pool


@pytest.fixture(scope="module")
def elsewhere(scheduler_elsewhere: str) -> Iterator[DaskPool]:
    with DaskPool(DaskConfig(scheduler=scheduler_elsewhere)) as pool:
        pool.require_usable()
        assert pool.client.scheduler.address == scheduler_elsewhere
        yield pool


# Jobs ----------------------------------------------------------------------------------------------------------------


def square(number: int) -> tuple[int, int, int]:
    level = min(handler.level for handler in logging.getLogger("distributed").handlers)
    return number * number, os.getpid(), level


def grumble(number: int) -> int:
    if number == 2:
        warnings.warn("two is odd here", RuntimeWarning, stacklevel=1)
    if number == 4:
        raise InputError("four is refused; leave it out.")
    return number


def die(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_results_come_in_order_with_warnings_and_errors_from_processes_that_print_nothing(
    pool: DaskPool,
):
    shares: list[float] = []
    squares, processes, levels = zip(
        *pool.map(square, list(range(10)), shares.append), strict=True
    )
    assert list(squares) == [n * n for n in range(10)]
    assert os.getpid() not in processes
    assert set(levels) == {logging.CRITICAL}
    assert sum(shares) == pytest.approx(1)
    with pytest.warns(RuntimeWarning, match="two is odd here"):
        assert pool.map(grumble, [1, 2, 3]) == [1, 2, 3]
    with pytest.raises(InputError, match=r"^four is refused; leave it out\.$"):
        pool.map(grumble, [1, 3, 4, 5])


def test_a_client_of_this_process_and_an_address_in_the_environment_are_used(
    scheduler_elsewhere, monkeypatch
):
    with Client(scheduler_elsewhere), DaskPool(DaskConfig()) as pool:
        assert (pool.map(square, [3])[0][0], pool.client.scheduler.address) == (
            9,
            scheduler_elsewhere,
        )
    # From DASK_SCHEDULER_ADDRESS
    with dask.config.set({"scheduler-address": scheduler_elsewhere}):
        assert DaskPool(DaskConfig()).config.scheduler == scheduler_elsewhere
    assert DaskPool(DaskConfig()).local


async def used_by_strangers(open_to_all: str, closed: list[str]) -> list[int | None]:
    """Use one scheduler that is open to all, and try others without keys and with keys of its own."""

    async def used(address: str, security: Security | None = None) -> int | None:
        with suppress(Exception):
            async with Client(
                address,
                timeout=5,
                security=security,
                asynchronous=True,
                set_as_default=False,
            ) as client:
                return await client.submit(abs, -7, pure=False)
        return None

    tries = [used(open_to_all)]
    for address in closed:
        tries += [
            used(address.replace("tls", "tcp")),
            used(address, Security.temporary()),
        ]
    return await asyncio.gather(*tries)


def test_others_can_use_neither_the_scheduler_nor_a_worker_and_see_no_page(
    pool, scheduler_elsewhere, listening_before
):
    workers = pool.client.run(os.getpid)
    ports = {
        at
        for pid in (os.getpid(), *workers.values())
        for at in listening(pid)
        if at.port not in listening_before
    }
    assert {at.ip for at in ports} == {"127.0.0.1"}
    said, pages = (
        set(),
        (
            "/",
            "/info/main/workers.html",
            "/json/identity.json",
            "/metrics",
            "/status",
            "/health",
        ),
    )
    for at, page in product(ports, pages):
        with suppress(httpx.TransportError):  # one that does not speak HTTP, or TLS
            said.add(
                httpx.get(f"http://127.0.0.1:{at.port}{page}", timeout=30).status_code
            )
    assert said == {404}
    addresses = [pool.client.scheduler.address, *workers]
    assert all(address.startswith("tls://127.0.0.1:") for address in addresses)
    assert (
        asyncio.run(used_by_strangers(scheduler_elsewhere, addresses))
        == [7] + [None] * 6
    )
    assert pool.map(square, [3])[0][0] == 9


def die_at(shared: object, argument: int, task: int) -> int:
    return die(1) if task == argument else task


def test_what_ends_its_worker_is_one_sentence_and_the_next_pass_works(
    monkeypatch: pytest.MonkeyPatch,
):
    sentence = r"lost its worker processes, out of memory or killed; set dask\.memory"
    monkeypatch.setitem(cluster.SETTINGS, "distributed.scheduler.allowed-failures", 0)
    # After which Dask would do away with what starts the next
    settings = {"distributed.deploy.lost-worker-timeout": "1 ms"}
    with dask.config.set(settings), DaskPool(DaskConfig(workers=2)) as pool:
        workers = pool.workers
        with pytest.raises(InputError, match=f"^a pass over rows {sentence}"):
            workers.total(die_at, workers.broadcast(None), 3, range(5))
        assert workers.total(die_at, workers.broadcast(None), 9, range(5)) == 10
        # The one that ended is started anew
        pool.client.wait_for_workers(2, timeout=60)
        paused_at = pool.client.run(dask.config.get, "distributed.worker.memory.pause")
        assert set(paused_at.values()) == {False}  # with the settings of the first
        with pytest.raises(InputError, match=f"^a job {sentence}"):
            pool.map(die, [0, 1])


def die_at_first(shared: Path, argument: int, task: int) -> int:
    """Return the task; end the worker of the first try of one."""
    if task == argument and not shared.exists():
        shared.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def test_a_pass_ends_if_a_task_loses_more_workers_than_dask_allows(tmp_path: Path):
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        DaskPool(DaskConfig(workers=2)) as pool,
    ):
        workers = pool.workers
        shared = workers.broadcast(tmp_path / "died")
        assert workers.total(die_at_first, shared, 3, range(5)) == 10
    assert (tmp_path / "died").exists()


def nap(shared: None, seconds: float, task: int) -> int:
    time.sleep(seconds)
    return task


def test_passes_of_more_than_eight_sums_leave_the_scheduler_alive(
    pool: DaskPool,
):
    def collect(share: float) -> None:
        gc.collect()  # futures in cycles, which Dask then forgets

    workers = pool.workers_telling(collect)
    shared = workers.broadcast(None)
    for _ in range(2):
        assert workers.total(nap, shared, 0.01, range(9)) == 36


def number_of(shared: None, numbers: np.ndarray, task: int) -> Any:
    return numbers[task]


def test_results_are_added_in_groups_of_eight_by_position(pool: DaskPool):
    workers = pool.workers_telling(lambda share: None)
    shared = workers.broadcast(None)
    for n in (1, 2, 8, 9, 65):
        numbers = np.random.default_rng(0).normal(size=n) * 10.0 ** np.arange(n)
        expected = list(numbers)
        while len(expected) > 1:
            groups = [
                expected[first : first + 8] for first in range(0, len(expected), 8)
            ]
            expected = [reduce(add, group) for group in groups]
        assert workers.total(number_of, shared, numbers, range(n)) == expected[0]


def block_of(shared: None, argument: None, task: int) -> BlockResults:
    return BlockResults({task: np.array([task]), "sum": np.full(1000, task)})


def test_results_may_be_arrays_that_are_added_in_place(pool: DaskPool):
    total = pool.workers.total(block_of, pool.workers.broadcast(None), None, range(4))
    assert sorted(total.arrays, key=str) == [0, 1, 2, 3, "sum"]
    assert (total.arrays["sum"] == 6).all()


ALIVE: weakref.WeakSet[Any] = weakref.WeakSet()


class Addend:
    """Numbers that addition appends."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers
        ALIVE.add(self)

    def __add__(self, other: Addend) -> Addend:
        self.numbers = self.numbers + other.numbers
        return self


@pytest.mark.parametrize("n", [1, 2, 8, 9, 64, 65, 100])
def test_results_that_arrive_in_any_order_are_added_in_order(n: int):
    for seed in range(5):
        total = SumInGroups(n)
        for position in np.random.default_rng(seed).permutation(n).tolist():
            total.add(position, Addend([position]))
        assert total.result.numbers == list(range(n))


def test_few_results_wait_for_a_late_one():
    total = SumInGroups(64)
    for position in [*range(1, 64), 0]:
        total.add(position, Addend([position]))
        assert len(ALIVE) <= 8 + 8
    assert total.result.numbers == list(range(64))


def ones_of(shared: None, size: int, task: int) -> BlockResults:
    return BlockResults({task: np.ones(size)})


def test_results_of_a_pass_may_take_more_than_the_memory_of_a_worker(pool: DaskPool):
    workers = pool.workers_telling(lambda share: None)
    shared = workers.broadcast(None)
    total = workers.total(ones_of, shared, 5_000_000, range(32))
    assert sorted(total.arrays) == list(range(32))
    assert sum(array.nbytes for array in total.arrays.values()) > 1 << 30


def grumble_in_a_pass(shared: None, argument: int, task: int) -> int:
    return grumble(argument)


def test_warnings_in_a_pass_are_issued_once(pool: DaskPool):
    workers = pool.workers
    shared = workers.broadcast(None)
    with pytest.warns(RuntimeWarning, match="two is odd here") as caught:
        assert workers.total(grumble_in_a_pass, shared, 2, range(16)) == 32
    assert len(caught) == 1


def refuse_one(shared: Path, argument: int, task: int) -> int:
    (shared / str(task)).touch()
    if task == argument:
        raise InputError("three is refused; leave it out.")
    time.sleep(0.2)
    return task


def require_nothing_left(pool: DaskPool, started: Callable[[], int]) -> None:
    """Fail unless at most one more task of each worker starts."""
    n_started = started()
    assert within(lambda: not any(pool.client.processing().values()), 60)
    assert started() <= n_started + pool.n_workers


def test_an_error_in_a_pass_is_raised_and_cancels_its_other_tasks(
    pool: DaskPool, tmp_path: Path
):
    shares: list[float] = []
    workers = pool.workers_telling(shares.append)
    shared = workers.broadcast(tmp_path)
    with pytest.raises(InputError, match=r"^three is refused; leave it out\.$"):
        workers.total(refuse_one, shared, 3, range(40))
    require_nothing_left(pool, lambda: len(list(tmp_path.iterdir())))
    assert sum(shares) < 0.5
    shares.clear()
    assert workers.total(refuse_one, shared, 40, range(5)) == 10
    assert sum(shares) == pytest.approx(1)


def test_an_interrupt_in_a_pass_cancels_its_tasks(pool: DaskPool, tmp_path: Path):
    workers = pool.workers_telling(lambda share: None)
    shared = workers.broadcast(tmp_path)
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        workers.total(refuse_one, shared, 60, range(60))
    require_nothing_left(pool, lambda: len(list(tmp_path.iterdir())))
    assert workers.total(refuse_one, shared, 60, range(5)) == 10


class EndsWorker:
    """A result whose sending ends its worker."""

    def __reduce__(self) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


def refuse_second_try(shared: Path, argument: None, task: int) -> Any:
    if shared.exists():
        raise InputError("the second try is refused; leave it out.")
    shared.touch()
    return EndsWorker()


def test_an_error_when_a_lost_result_is_computed_again_is_raised(tmp_path: Path):
    with DaskPool(DaskConfig(workers=2)) as pool:
        workers = pool.workers
        shared = workers.broadcast(tmp_path / "tried")
        with pytest.raises(InputError, match=r"^the second try is refused"):
            workers.total(refuse_second_try, shared, None, range(1))


class Unreadable:
    """A result that cannot be read here."""

    def __reduce__(self) -> Any:
        return refuse_to_be_read, ()


def refuse_to_be_read() -> None:
    raise ValueError("it cannot be read.")


def unreadable(shared: None, argument: None, task: int) -> Unreadable:
    return Unreadable()


def test_a_result_that_cannot_be_read_is_an_error(pool: DaskPool):
    shared = pool.workers.broadcast(None)
    with pytest.raises(ValueError, match="it cannot be read"):
        pool.workers.total(unreadable, shared, None, range(1))


def die_after_the_others(shared: Path, argument: int, task: int) -> int:
    """Note the try of a task; end the worker of the last one when the others are collected."""
    with (shared / str(task)).open("a") as tries:
        tries.write("x")
    is_first = (shared / str(task)).stat().st_size == 1
    if task == argument and is_first:
        while (shared / "collected").stat().st_size < argument:
            time.sleep(0.05)
        time.sleep(1)  # until the last one is released
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def die_after_the_other_jobs(job: int, shared: Path) -> int:
    return die_after_the_others(shared, 7, job)


@pytest.mark.parametrize("kind", ["tasks", "jobs"])
def test_results_of_ended_tasks_and_jobs_are_not_lost_with_their_worker(
    tmp_path: Path, kind: str
):
    collected = tmp_path / "collected"
    collected.touch()

    def note(share: float) -> None:
        with collected.open("a") as notes:
            notes.write("x")

    with DaskPool(DaskConfig(workers=2)) as pool:
        if kind == "jobs":
            jobs = list(range(8))
            done = pool.map(die_after_the_other_jobs, jobs, note, shared=tmp_path)
            assert done == jobs
        else:
            workers = pool.workers_telling(note)
            shared = workers.broadcast(tmp_path)
            assert workers.total(die_after_the_others, shared, 7, range(8)) == 28
    tries = [(tmp_path / str(task)).stat().st_size for task in range(8)]
    assert tries == [1] * 7 + [2]


def test_waiting_tasks_are_on_no_worker_whose_death_would_count_for_them(
    pool: DaskPool,
):
    on_a_worker: list[int] = []

    def look(share: float) -> None:
        on_a_worker.extend(map(len, pool.client.processing().values()))

    workers = pool.workers_telling(look)
    shared = workers.broadcast(None)
    for _ in range(8):
        assert workers.total(nap, shared, 0.02, range(16)) == 120
    assert 0 < max(on_a_worker) <= 2
    on_a_worker.clear()
    assert pool.map(one_of_both, list(range(16)), look, shared=0.02) == list(range(16))
    assert 0 < max(on_a_worker) <= 2


def one_of_both(number: int, shared: float) -> int:
    time.sleep(shared)
    return number


def hoard(number: int) -> float:
    values = np.ones(number << 17)  # so many MiB
    time.sleep(60)
    return float(values[0])


def test_a_job_of_more_memory_than_a_worker_may_have_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(cluster.SETTINGS, "distributed.scheduler.allowed-failures", 0)
    with (
        DaskPool(DaskConfig(workers=1, memory="600MiB")) as pool,
        pytest.raises(
            InputError,
            match=r"^a job lost its worker processes, out of memory or killed; set dask\.memory",
        ),
    ):
        pool.map(hoard, [700])


def linger(shared: None, start: float, position: int) -> float:
    time.sleep(0.3)
    return start


@pytest.mark.parametrize(
    "moment", ["in a pass", "between passes", "long before a pass"]
)
def test_a_scheduler_that_ends_is_one_sentence(tmp_path: Path, moment: str):
    with (
        another_machine(tmp_path / "machine") as address,
        DaskPool(DaskConfig(scheduler=address, timeout=2)) as pool,
    ):
        workers = pool.workers
        assert workers.total(linger, workers.broadcast(None), 1.0, range(1)) == 1.0
        client = pool.client
        pid = client.run_on_scheduler(os.getpid)
        if moment == "in a pass":
            threading.Timer(1.0, os.kill, (pid, signal.SIGKILL)).start()
        else:
            os.kill(pid, signal.SIGKILL)
            status = "closed" if moment == "long before a pass" else "connecting"
            assert within(lambda: client.status == status, 60)
        with pytest.raises(
            InputError, match=r"^the Dask scheduler ended; the results so far are kept"
        ):
            workers.total(linger, workers.broadcast(None), 1.0, range(600))


class SentSlowly:
    """A result that notes when it is sent, for seconds."""

    def __init__(self, note: Path) -> None:
        self.note = note

    def __reduce__(self) -> Any:
        self.note.touch()
        time.sleep(3)
        return SentSlowly, (self.note,)


def sent_slowly(shared: Path, argument: None, task: int) -> SentSlowly:
    return SentSlowly(shared)


def test_a_scheduler_that_ends_while_a_result_is_sent_is_one_sentence(tmp_path: Path):
    note = tmp_path / "sent"

    def end_when_sent(pid: int) -> None:
        assert within(note.exists, 240)
        os.kill(pid, signal.SIGKILL)

    with (
        another_machine(tmp_path / "machine") as address,
        DaskPool(DaskConfig(scheduler=address, timeout=2)) as pool,
    ):
        shared = pool.workers.broadcast(note)
        pid = pool.client.run_on_scheduler(os.getpid)
        threading.Thread(target=end_when_sent, args=(pid,)).start()
        with pytest.raises(InputError, match=r"^the Dask scheduler ended; the results"):
            pool.workers.total(sent_slowly, shared, None, range(1))


def test_a_scheduler_that_is_not_there_is_named_within_the_time_limit():
    config = DaskConfig.model_validate(
        {"scheduler": "tcp://127.0.0.1:9", "timeout": 0.5}
    )
    with (
        DaskPool(config) as pool,
        pytest.raises(
            InputError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9"
        ),
    ):
        pool.require_usable()


def test_rows_whose_writing_is_interrupted_are_removed(
    scheduler_elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def write_a_block(name: str, rows: object) -> None:
        Path(name).mkdir(parents=True)
        Path(name, "block").write_bytes(b"rows")
        raise KeyboardInterrupt

    monkeypatch.setattr(RowFiles, "write", write_a_block)
    config = DaskConfig(scheduler=scheduler_elsewhere, rows=str(tmp_path))
    with (
        pytest.raises(KeyboardInterrupt),
        DaskPool(config) as pool,
    ):
        pool.send_rows(np.zeros((2, 2)))
    assert [*tmp_path.rglob("block")] == []


# Passes over rows -----------------------------------------------------------------------------------------------------


def products(
    shared: tuple[object, float], V: np.ndarray, rows: tuple[int, int]
) -> np.ndarray:
    """Scale X' X V, over some rows."""
    X, scale = shared
    run = X[slice(*rows)]
    return np.asarray(run.T @ (run @ V)) * scale


def rows_of(kind: str) -> object:
    X = np.random.default_rng(0).normal(size=(90, 5))
    return (
        sparse.csr_matrix(np.where(X > 0.5, X, 0.0))
        if kind == "sparse"
        else X.astype(kind)
    )


@pytest.mark.parametrize("kind", ["float64", "float32", "sparse"])
def test_totals_of_workers_are_those_of_threads(
    pool: DaskPool, elsewhere: DaskPool, kind: str
):
    X, V = rows_of(kind), np.random.default_rng(1).normal(size=(5, 2))
    origin = np.zeros(5) if kind == "sparse" else np.full(5, 0.5)
    rows = np.random.default_rng(2).permutation(90)[:70]

    def totals(workers: Workers) -> list[np.ndarray]:
        held = workers.scatter_rows(X, rows, origin)
        assert held.shape == (70, 5)
        shared = workers.broadcast((held, 2.0))
        return [
            workers.total(products, shared, V * factor, spans(70, 3))
            for factor in (1.0, -3.0)
        ]

    for there in (pool, elsewhere):
        # Sums of 70 rows in another order; rows of float32 are moved in float64 by
        # threads and rounded in a file.
        rtol = 1e-5 if kind == "float32" else 1e-13
        np.testing.assert_allclose(totals(there.workers), totals(Threads(1)), rtol=rtol)


def test_hundreds_of_totals_leave_nothing_behind_and_files_go_with_their_rows(
    pool: DaskPool,
):
    workers = pool.workers
    assert isinstance(workers, DaskWorkers)
    held = workers.scatter_rows(rows_of("float64"), None, np.zeros(5))
    assert isinstance(held, RowFiles)
    path, shared = Path(held.name), workers.broadcast((held, 1.0))
    del held
    many = [(row, row + 1) for row in range(90)]
    assert len(many) > SUMS_PER_WORKER * pool.n_workers
    first = workers.total(products, shared, np.eye(5), many)
    for _ in range(30):
        np.testing.assert_array_equal(
            workers.total(products, shared, np.eye(5), many), first
        )
    gc.collect()
    held_key = shared.future.key
    assert within(lambda: list(pool.client.futures) == [held_key], 20), list(
        pool.client.futures
    )
    for pid in pool.client.run(os.getpid).values():  # all that hold the value
        os.kill(pid, signal.SIGKILL)
    np.testing.assert_array_equal(
        workers.total(products, shared, np.eye(5), many), first
    )
    assert path.exists()
    del shared
    gc.collect()
    assert not path.exists()


def test_rows_of_a_run_that_was_killed_go_with_the_next_run(pool: DaskPool):
    ours = Path(pool.write_rows(rows_of("float64")).name).parent
    assert Owner.read(ours.name) == Owner.this()
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE
    ) as process:
        killed = Owner.of(process.pid)
        process.communicate(b"\n")
    left, foreign = (
        ours.parent / f".learnkernels~{of}~x"
        for of in (killed, replace(killed, host="other.1"))
    )
    left.mkdir()
    foreign.mkdir()
    with DaskPool(DaskConfig(workers=1)) as other:
        theirs = Path(other.write_rows(rows_of("float64")).name).parent
        assert (ours.is_dir(), theirs.is_dir(), left.exists(), foreign.exists()) == (
            True,
            True,
            False,
            True,
        )
    assert not theirs.exists()


def test_a_server_of_objects_may_be_away_for_a_while(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(row_files, "BLOCK_BYTES", 16 * 5 * 8)
    X, waited = np.random.default_rng(0).normal(size=(90, 5)), []
    parts = RowFiles.write("s3://rows/run/rows", X)
    s3.server.stop()

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            s3.start()  # its objects are in this process

    monkeypatch.setattr(row_files.time, "sleep", wait)
    monkeypatch.setattr(row_files, "folder_of_copies", lambda: tmp_path)
    np.testing.assert_array_equal(parts[20:60], X[20:60])
    assert waited == [1, 2]


@pytest.mark.slow(10)
def test_a_pass_over_rows_of_more_than_the_memory_of_a_worker(tmp_path: Path):
    limit, m, d = "500MiB", 100, 700_000
    X = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float64, (m, d))
    (tmp_path / "X.npy").unlink()  # pytest would keep it
    for start, stop in spans(m, 10):
        X[start:stop] = np.random.default_rng(start).random((stop - start, d)) - 0.5
    assert X.nbytes > parse_bytes(limit)
    Y, groups = np.random.default_rng(1).normal(size=(m, 1)), np.arange(m) * 2 // m
    blocks = RowBlocks.of(groups, 4)
    with DaskPool(DaskConfig(workers=2, memory=limit)) as pool:
        before = pool.client.run(os.getpid)
        family = LinearFamily()
        products, target_products, _, row_sums = pass_over_tiles(
            family, X, Y, blocks, np.zeros(1), pool.workers
        )
        assert pool.client.run(os.getpid) == before  # none was ended for want of memory
    assert within(lambda: not any(map(psutil.pid_exists, before.values())), 20)
    K, of = X @ X.T, np.eye(2)[groups]
    # Rounding of sums of m^2 terms, of which each is one of d.
    np.testing.assert_allclose(products[:, :, 0, 0], of.T @ K**2 @ of, rtol=1e-12)
    np.testing.assert_allclose(
        target_products[:, :, 0], of.T @ (K * (Y @ Y.T)) @ of, atol=1e-7
    )
    np.testing.assert_allclose(row_sums[:, 0], (K @ of).T, atol=1e-8)


# Moments --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_statistics_from_workers_equal_statistics_of_one_process(
    pool: DaskPool, kind: str
):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(301, 4))
    X = X if kind == "dense" else sparse.csr_matrix(np.where(X > 0.5, X, 0.0))
    Y, groups = rng.normal(size=(301, 2)), rng.integers(0, 5, 301)
    shares: list[float] = []
    here, one, two, telling = (
        gram_statistics(
            GaussianFamily([0.1, 0.2, 1.5]),
            X,
            Y,
            groups,
            block_rows=32,
            workers=workers,
        ).to_arrays()
        for workers in (
            Threads(),
            pool.workers,
            pool.workers,
            pool.workers_telling(shares.append),
        )
    )
    for name, value in here.items():
        np.testing.assert_array_equal(two[name], one[name])  # whoever finishes first
        for there in (one, telling):
            if value.dtype.kind == "f":  # sums of 301^2 terms in another order
                np.testing.assert_allclose(
                    there[name], value, rtol=1e-12, atol=1e-10, err_msg=name
                )
            else:
                np.testing.assert_array_equal(there[name], value)
    assert sum(shares) == pytest.approx(1.0)
    assert len(shares) > 8
    # Of a split
    require_statistics_of_training_rows(
        "gaussian" if kind == "dense" else "feature", pool
    )


def test_a_worker_killed_in_mid_run_changes_no_bit(
    pool: DaskPool, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.CRITICAL, "distributed")  # it complains of a dead worker
    rng = np.random.default_rng(2)
    X, Y, groups = (
        rng.normal(size=(1200, 5)),
        rng.normal(size=1200),
        rng.integers(0, 5, 1200),
    )
    family = GaussianFamily([2.0**g for g in range(-4, 4)])
    undisturbed = gram_statistics(
        family, X, Y, groups, workers=pool.workers_telling(lambda share: None)
    ).to_arrays()
    pid, killed = next(iter(pool.client.run(os.getpid).values())), []

    def kill_one(share: float) -> None:
        if not killed:
            killed.append(os.kill(pid, signal.SIGKILL))

    there = gram_statistics(
        family, X, Y, groups, workers=pool.workers_telling(kill_one)
    )
    assert pid not in pool.client.run(os.getpid).values()
    assert len(killed) == 1
    for name, value in there.to_arrays().items():
        np.testing.assert_array_equal(value, undisturbed[name], err_msg=name)


# Matrices -------------------------------------------------------------------------------------------------------------


def test_workers_make_the_same_files_and_read_them(
    tmp_path: Path, pool: DaskPool, elsewhere: DaskPool
):
    stored = make(tmp_path / "toy")
    for name, workers in {"here": pool, "elsewhere": elsewhere}.items():
        assert make(tmp_path / name, pool=workers).about == stored.about
        assert files_of(tmp_path / name) == files_of(stored.folder)
    family = stored.family()
    future = pool.client.submit(family.tile, family.X, family.X, pure=False)
    np.testing.assert_array_equal(future.result(timeout=60), np.stack(stored))
