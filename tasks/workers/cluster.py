"""The Dask workers of a run: a local cluster, started when first needed, or a scheduler that runs elsewhere."""

from __future__ import annotations

import itertools
import logging
import math
import os
import signal
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import reduce
from multiprocessing import resource_tracker
from operator import add
from pathlib import Path
from typing import Any, TypeVar

import dask
import numpy as np
import psutil
from dask.utils import format_bytes, parse_bytes
from distributed import CancelledError, Client, Future, KilledWorker, LocalCluster, Security, as_completed
from distributed.core import Status
from joblib import cpu_count
from scipy import sparse

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DaskConfig
from learnkernels.kernels.engine.workers import RowSource, SelectedRows, Step, Threads, Workers
from learnkernels.kernels.families.base import Rows
from learnkernels.tasks.store import store_path, temporary_folder
from learnkernels.tasks.workers.row_files import RowFile

KEPT_BYTES, KEPT_SHARE = 1 << 28, 16
"""Workers keep what they have freed, up to so many bytes and to this part of their memory.

By Dask's default they give it back after each tile, and pay in page faults. Single arrays of a quarter of that and more
are given back.
"""

TASKS_PER_WORKER = 8
"""At least that many a worker, so that none waits long for the last one."""

NEVER_PAUSED = {"distributed.worker.memory.pause": False}
"""A worker that Dask pauses, at 80 % of its memory, waits for that to fall; what libraries and the C library keep does
not, and the run would wait for ever. At 95 % it is ended, and a sentence says so."""

SUMS_PER_WORKER = 4
"""Into so many sums a worker the tasks of a total are gathered: enough to share out evenly, few enough to hold."""

FAN_IN = 8
"""Parts added by one task of the reduction."""

SPAN_SHARE = 16
"""A worker holds the rows of the two spans of a super-tile: each takes at most this part of its memory."""

LOOPBACK = "127.0.0.1"
"""A Dask scheduler runs whatever it is sent, so a local one listens here alone, and to who has the keys of the run."""

NO_PAGES: dict[str, list[str]] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
"""Dask's pages know no keys, and any user of the machine could read them."""


Job = TypeVar("Job")
Result = TypeVar("Result")


ROOM_SHARE = 8
"""A trial on a worker may read this part of its memory: it holds rows twice, and libraries take 320 MiB."""


class DaskPool(AbstractContextManager["DaskPool"]):
    """Workers for the tiles of one run.

    Parameters
    ----------
    config : DaskConfig
        With `scheduler`, that one; with ``workers: 0``, none; otherwise a local cluster.
    """

    def __init__(self, config: DaskConfig) -> None:
        self.config = config
        self._client: Client | None = None
        self._cluster: LocalCluster | None = None
        self._memory: int | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files = itertools.count()

    @property
    def in_process(self) -> bool:
        """Whether tiles are computed in this process."""
        return self.config.scheduler is None and self.config.workers == 0

    @property
    def local(self) -> bool:
        """Whether there are worker processes, all of them on this machine, which see its files."""
        return self.config.scheduler is None and self.config.workers != 0

    def require_usable(self) -> None:
        """Refuse, before any long work, a scheduler that does not answer.

        Raises
        ------
        InputError
            As `client`.
        """
        if self.config.scheduler is not None:
            self._client = self._connect()

    @property
    def client(self) -> Client:
        """The client, connected on first use.

        Raises
        ------
        InputError
            No scheduler answers at the given address, or it has no workers.
        """
        if self._client is None:
            self._client = self._connect()
        return self._client

    def map(self, run: Callable[[Job], Result], jobs: Sequence[Job], advance: Callable[[float], None]) -> list[Result]:
        """Return the results of independent jobs on the workers, in their order; `advance` adds up to one.

        Raises
        ------
        InputError
            A job ended its worker again and again, which is how too little memory looks.
        """
        futures = self.client.map(_with_warnings, [run] * len(jobs), jobs, pure=False)
        with self.finishing(futures, "a trial"):
            for future in as_completed(futures, loop=self.client.loop):
                if future.status == "error":
                    break
                advance(1 / len(jobs))
            results = self.client.gather(futures)
        for _, caught in results:
            for category, text in caught:
                warnings.warn(text, category, stacklevel=2)
        return [result for result, _ in results]

    @contextmanager
    def finishing(self, futures: list[Future], what: str) -> Iterator[None]:
        """Let go of futures at the end, and say in a sentence that workers ended, or took what they held with them."""
        try:
            yield
        except (KilledWorker, CancelledError):
            if self.client.status != "running":
                raise InputError(
                    f"the Dask scheduler ended during {what}; what was computed is kept: start it, and this run, again."
                ) from None
            raise InputError(
                f"{what} ended its worker process, probably for want of memory; set dask.memory higher, or "
                "dask.workers to 1."
            ) from None
        finally:
            if self.client.status == "running":
                self.client.cancel(futures)

    @property
    def workers(self) -> Workers:
        """Who does passes over rows: the Dask workers, or threads of this process where there are none."""
        return self.workers_telling(None)

    def workers_telling(self, advance: Callable[[float], None] | None) -> Workers:
        """Return `workers`; those of Dask give `advance` shares of each total that add up to one."""
        return Threads() if self.in_process else DaskWorkers(self, advance)

    @property
    def n_workers(self) -> int:
        """Worker processes: those of the local cluster, even while one is started anew, or those connected now."""
        if self.config.scheduler is None:
            return self._local_workers
        return max(1, len(self.client.scheduler_info(n_workers=-1)["workers"]))

    @property
    def _local_workers(self) -> int:
        return int(cpu_count()) if self.config.workers is None else self.config.workers

    def super_tile(self, n_rows: int, row_bytes: int = 0) -> int:
        """Return the rows of the square of pairs of one task.

        At least eight tasks a worker, none above the setting; rows of so many bytes leave a local worker most of its
        memory.
        """
        spans = math.ceil(math.sqrt(TASKS_PER_WORKER * 2 * self.n_workers))
        rows = min(self.config.super_tile, -(-n_rows // spans))
        if self._memory is not None and row_bytes:
            rows = min(rows, self._memory // SPAN_SHARE // row_bytes)
        return max(1, rows)

    def has_room_for(self, n_bytes: int) -> bool:
        """Return whether each local worker can hold so many bytes twice beside all else that it does."""
        limit = self._memory or parse_bytes(worker_memory(self.config.memory, max(1, self._local_workers)))
        return n_bytes <= int(limit) // ROOM_SHARE

    def write_rows(self, rows: RowSource) -> RowFile:
        """Write dense rows to a file of this run, which goes when nobody here refers to it any more.

        Raises
        ------
        InputError
            The disk does not take it.
        """
        if self._folder is None:
            parent = store_path("rows")
            parent.mkdir(parents=True, exist_ok=True)
            self._folder = temporary_folder(parent)
        path = Path(self._folder.name) / f"{next(self._files)}.arrow"
        try:
            file = RowFile.write(path, rows)
        except OSError as error:
            raise InputError(
                f"{path.parent}: {rows.shape[0]} rows for the workers cannot be written "
                f"({error.strerror or type(error).__name__}); make room, or set dask.workers to 0."
            ) from None
        weakref.finalize(file, path.unlink, missing_ok=True)
        return file

    def _connect(self) -> Client:
        if self.config.scheduler is not None:
            return self._connect_to(self.config.scheduler)
        workers, memory = self._local_workers, worker_memory(self.config.memory, self._local_workers)
        self._memory = parse_bytes(memory)
        environment = {"distributed.nanny.pre-spawn-environ": _allocator(self._memory) | _one_thread()}
        with dask.config.set(NEVER_PAUSED | NO_PAGES | environment), _deaf_to_interrupts():
            self._cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                memory_limit=memory,
                host=LOOPBACK,
                protocol="tls://",
                security=Security.temporary(),  # a pair of keys that goes with the run and is in no file
                dashboard_address=f"{LOOPBACK}:0",
                scheduler_kwargs={"dashboard": False},
                silence_logs=logging.CRITICAL,  # what ends a worker is a sentence; a heartbeat at the end is no error
            )
        return Client(self._cluster, set_as_default=False)

    def _connect_to(self, address: str) -> Client:
        try:
            client = Client(address, timeout=self.config.timeout, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(
                f"dask.scheduler: no Dask scheduler answers at {address} within {self.config.timeout:g} s "
                f"({type(error).__name__}); start one with 'dask scheduler', or leave the key out for a local cluster."
            ) from None
        try:
            client.wait_for_workers(1, timeout=self.config.timeout)
        except TimeoutError:
            client.close()
            raise InputError(
                f"dask.scheduler: the scheduler at {address} has no workers after {self.config.timeout:g} s; start "
                f"some with 'dask worker {address}'."
            ) from None
        return client

    def _kill_workers(self) -> None:
        for nanny in self._cluster.workers.values() if self._cluster is not None else ():
            nanny.status = Status.closing_gracefully  # it starts no other
            if nanny.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(nanny.pid, signal.SIGKILL)

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if self._cluster is not None and kind is not None and not issubclass(kind, Exception):
            self._kill_workers()  # which would end what they are at first
        if self._client is not None:
            self._client.close()
        if self._cluster is not None:
            self._cluster.close()
        if self._folder is not None:
            self._folder.cleanup()


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Have threads that start within, and the processes that these start, not notice Ctrl-C: they end with this one."""
    resource_tracker.ensure_running()  # the first to start a process would start that, and listen again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True)
class Shared:
    """What the workers were sent: the future of it, and the value, whose files stay as long as it is referred to."""

    future: Future
    value: Any


class DaskWorkers:
    """Passes over rows by the workers of a pool.

    Parameters
    ----------
    pool : DaskPool
        With workers.
    advance : callable, optional
        Is given shares of each total that add up to one.
    """

    def __init__(self, pool: DaskPool, advance: Callable[[float], None] | None = None) -> None:
        self._pool, self._advance = pool, advance

    def hold(self, X: Rows, rows: np.ndarray | None, origin: np.ndarray) -> RowSource:
        """Return the rows, dense ones in a file that local workers read in runs.

        Workers elsewhere, which do not see our files, and those that are given sparse rows hold all rows in memory.

        Raises
        ------
        InputError
            The disk does not take the file.
        """
        source = SelectedRows(X, np.arange(X.shape[0]) if rows is None else rows, origin)
        if sparse.issparse(X) or not self._pool.local:
            held: RowSource = source[:]
            return held
        return self._pool.write_rows(source)

    def share(self, value: Any) -> Shared:
        """Return the handle of a value that every worker is sent once."""
        (future,) = self._pool.client.scatter([value], broadcast=True, hash=False)
        return Shared(future, value)

    def super_tile(self, n_rows: int, row_bytes: int) -> int:
        """Return a size of which there are enough for each worker, and which its memory takes."""
        return self._pool.super_tile(n_rows, row_bytes)

    def total(self, step: Step, shared: Shared, argument: Any, tasks: Sequence[Any]) -> Any:
        """Return the sum, by a tree whose shape depends on the number of tasks and of workers alone.

        Each worker adds up some tasks as it goes, so that few results are held, unless each task is to be told of.

        Raises
        ------
        InputError
            A task ended its worker.
        """
        n = len(tasks) if self._advance else min(len(tasks), SUMS_PER_WORKER * self._pool.n_workers)
        client, shares = self._pool.client, [tasks[first::n] for first in range(n)]
        if argument is not None:
            (argument,) = client.scatter([argument], broadcast=True, hash=False)
        futures = client.map(_sum_of, shares, step=step, shared=shared.future, argument=argument, pure=False)
        leaves, tree = futures, list(futures)
        while len(futures) > 1:
            groups = [futures[i : i + FAN_IN] for i in range(0, len(futures), FAN_IN)]
            futures = [client.submit(_joined, *group, pure=False) for group in groups]
            tree += futures
        with self._pool.finishing(tree, "a pass over rows"):
            if self._advance is not None:
                for future in as_completed(leaves, loop=client.loop):
                    if future.status != "finished":
                        break
                    self._advance(1 / n)
            return futures[0].result()


def _sum_of(tasks: Sequence[Any], step: Step, shared: Any, argument: Any) -> Any:
    return Threads(1).total(step, shared, argument, tasks)


def _joined(*parts: Any) -> Any:
    return reduce(add, parts)


def run_all(
    run: Callable[[Job], Result], jobs: Sequence[Job], advance: Callable[[float], None], pool: DaskPool | None
) -> list[Result]:
    """Return the results of independent jobs in their order: from a pool's workers of this machine, or from here.

    Raises
    ------
    InputError
        As `DaskPool.map`.
    """
    if pool is not None and pool.local and len(jobs) > 1:
        return pool.map(run, jobs, advance)
    results = []
    for job in jobs:
        results.append(run(job))
        advance(1 / len(jobs))
    return results


def _with_warnings(run: Callable[[Job], Result], job: Job) -> tuple[Result, list[tuple[type[Warning], str]]]:
    """Return what a job returns, and its warnings, which nobody would see on a worker."""
    with warnings.catch_warnings(record=True) as caught:
        result = run(job)
    return result, [(of.category, str(of.message)) for of in caught]


def _allocator(memory: int) -> dict[str, int]:
    """Return the settings of the C library for a worker of so much memory."""
    kept = min(KEPT_BYTES, memory // KEPT_SHARE)
    return {"MALLOC_TRIM_THRESHOLD_": kept, "MALLOC_MMAP_THRESHOLD_": kept // 4}


def _one_thread() -> dict[str, int]:
    """Return the settings for one thread a worker, of BLAS and of all else."""
    return dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), 1)


def worker_memory(setting: str, workers: int) -> str:
    """Return the memory limit of one worker: as set, or half of what is free now shared among them."""
    return str(format_bytes(psutil.virtual_memory().available // (2 * workers))) if setting == "auto" else setting
