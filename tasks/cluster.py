"""The Dask workers of a run: a local cluster, started when first needed, or a scheduler that runs elsewhere."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import dask
import psutil
from dask.utils import format_bytes, parse_bytes
from distributed import Client, KilledWorker, LocalCluster, as_completed

from conf.errors import InputError
from conf.schema import DaskConfig

ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": 1 << 28, "MALLOC_MMAP_THRESHOLD_": 1 << 28}
"""Workers keep what they have freed: by Dask's default they give it back after each tile, and pay in page faults."""

TASKS_PER_WORKER = 8
"""At least that many a worker, so that none waits long for the last one."""

LOOPBACK = "127.0.0.1"
"""A Dask scheduler runs whatever it is sent, so a local one listens here alone."""


Job = TypeVar("Job")
Result = TypeVar("Result")


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

    @property
    def in_process(self) -> bool:
        """Whether tiles are computed in this process."""
        return self.config.scheduler is None and self.config.workers == 0

    @property
    def local(self) -> bool:
        """Whether there are worker processes, all of them on this machine, which see its files."""
        return self.config.scheduler is None and self.config.workers != 0

    def require_usable(self) -> None:
        """Refuse, before any long work, a scheduler that does not answer or a memory limit that is no size.

        Raises
        ------
        InputError
            As `client` and `worker_memory`.
        """
        worker_memory(self.config.memory, 1)
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
            A job ended its worker three times, which is how too little memory looks.
        """
        futures = self.client.map(_with_warnings, [run] * len(jobs), jobs, pure=False)
        try:
            for future in as_completed(futures, loop=self.client.loop):
                if future.status == "error":
                    break
                advance(1 / len(jobs))
            results = self.client.gather(futures)
        except KilledWorker:
            raise InputError(
                "a trial ended its worker process three times, probably for want of memory; set dask.memory higher, or "
                "dask.workers to 1."
            ) from None
        finally:
            self.client.cancel(futures)
        for _, caught in results:
            for category, text in caught:
                warnings.warn(text, category, stacklevel=2)
        return [result for result, _ in results]

    def super_tile(self, n_rows: int) -> int:
        """Return the rows of the square of pairs of one task: at least eight tasks a worker, none above the setting."""
        workers = max(1, len(self.client.scheduler_info(n_workers=-1)["workers"]))
        spans = math.ceil(math.sqrt(TASKS_PER_WORKER * 2 * workers))
        return max(1, min(self.config.super_tile, -(-n_rows // spans)))

    def _connect(self) -> Client:
        if self.config.scheduler is not None:
            return self._connect_to(self.config.scheduler)
        workers = self.config.workers or os.cpu_count() or 1
        with dask.config.set({"distributed.nanny.pre-spawn-environ": ALLOCATOR | _one_thread()}):
            self._cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                memory_limit=worker_memory(self.config.memory, workers),
                host=LOOPBACK,
                dashboard_address=f"{LOOPBACK}:0",
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

    def __exit__(self, *_: Any) -> None:
        if self._client is not None:
            self._client.close()
        if self._cluster is not None:
            self._cluster.close()


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


def _one_thread() -> dict[str, int]:
    """Return the settings for one BLAS thread a worker."""
    return dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), 1)


def worker_memory(setting: str, workers: int) -> str:
    """Return the memory limit of one worker: as set, or half of what is free now shared among them.

    Raises
    ------
    InputError
        The setting is not a size.
    """
    if setting == "auto":
        return str(format_bytes(psutil.virtual_memory().available // (2 * workers)))
    try:
        parse_bytes(setting)
    except ValueError:
        raise InputError(f"dask.memory: {setting!r} is not a size; write one such as 4GiB, or auto.") from None
    return setting
