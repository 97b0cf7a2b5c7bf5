"""The Dask workers of a run: a local cluster, started when first needed, or a scheduler that runs elsewhere."""

from __future__ import annotations

import itertools
import logging
import math
import secrets
import shutil
import signal
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import reduce
from multiprocessing import resource_tracker
from operator import add
from pathlib import Path
from threading import RLock
from typing import Any, TypeAlias, TypeVar

import dask
import numpy as np
import psutil
from dask.utils import format_bytes, parse_bytes
from distributed import (
    CancelledError,
    Client,
    Future,
    KilledWorker,
    LocalCluster,
    Security,
    as_completed,
    default_client,
)
from joblib import cpu_count
from scipy import sparse

from learnkernels.conf.errors import InputError, cut
from learnkernels.conf.schema import DaskConfig
from learnkernels.kernels.engine.workers import SPANS, RowSource, SelectedRows, Step, Threads, Workers, spans
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.parameters import warn_caller

from ..data import row_files
from ..data.row_files import RowFiles
from ..store import LIBRARIES, store_path, temporary_folder

KEPT_BYTES = 1 << 28
"""Freed memory that a worker keeps at most; Dask's default gives it back after each tile, and pays in page faults."""

KEPT_SHARE = 16
"""A worker keeps at most this part of its memory limit."""

SETTINGS: dict[str, Any] = {
    # At 80 % of its memory a worker would wait until that falls; what libraries hold does not fall.
    "distributed.worker.memory.pause": False,
    # A nanny starts its worker again; the cluster closes a nanny that has no worker for this long.
    "distributed.deploy.lost-worker-timeout": "1 day",
    # The pages have no authentication.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # The profiler takes a twentieth of the cores of a small machine.
    "distributed.worker.profile.enabled": False,
}
"""Settings of Dask while a local cluster runs."""

LOOPBACK = "127.0.0.1"

SCHEDULER_ENDED = "the Dask scheduler ended; the results so far are kept: start the scheduler, and this run, again."

VERSIONED = (*LIBRARIES, "dask", "distributed", "pyarrow")
"""Packages that have one version on all sides, since numbers or transfers depend on them."""


def start_workers(n_workers: int, memory: str) -> LocalCluster:
    """Start worker processes of one thread on this machine; only who holds the keys of the cluster can use them.

    Parameters
    ----------
    n_workers : int
        Number of processes.
    memory : str
        Limit of each worker, such as ``4GiB``.
    """
    kept_bytes = min(KEPT_BYTES, parse_bytes(memory) // KEPT_SHARE)
    environment = dask.config.get("distributed.nanny.pre-spawn-environ") | {
        "MALLOC_TRIM_THRESHOLD_": kept_bytes,
        "MALLOC_MMAP_THRESHOLD_": kept_bytes // 4,
        "NUMBA_NUM_THREADS": 1,
    }
    with dask.config.set({"distributed.nanny.pre-spawn-environ": environment}), _interrupts_blocked():
        return LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            memory_limit=memory,
            host=LOOPBACK,
            security=True,  # TLS, with keys that no file holds
            dashboard_address=f"{LOOPBACK}:0",
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,
        )


def running_scheduler() -> tuple[str | None, Security | None]:
    """Return address and keys of the scheduler that Dask's client in this process has, or `DASK_SCHEDULER_ADDRESS`."""
    with suppress(ValueError):  # there is no client
        client = default_client()
        return client.scheduler.address, client.security
    return dask.config.get("scheduler-address", None), None


def connected(config: DaskConfig, security: Security | None = None) -> Client:
    """Return a client of a scheduler that runs elsewhere.

    Raises
    ------
    InputError
        No scheduler answers at the address, it has no workers, or its certificates are not those given.
    """
    where, security = config.scheduler, security or _security(config)
    try:
        client = Client(where, timeout=config.timeout, set_as_default=False, security=security)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"dask.scheduler: no Dask scheduler answers at {where} within {config.timeout:g} s "
            f"({type(error).__name__}); start one with 'dask scheduler', or leave the key out for a local cluster."
        ) from None
    try:
        client.wait_for_workers(1, timeout=config.timeout)
    except TimeoutError:
        client.close()
        raise InputError(
            f"dask.scheduler: the scheduler at {where} has no workers after {config.timeout:g} s; start some with "
            f"'dask worker {where}', or set dask.timeout higher."
        ) from None
    return client


def require_same_versions(client: Client) -> None:
    """Raise InputError where a worker has another version of Python, or of a package, than this process."""
    versions = client.get_versions(packages=list(VERSIONED))
    expected = _versions_of(versions["client"])
    for address, answer in sorted(versions["workers"].items()):
        if not isinstance(answer, dict):
            continue  # the worker has just ended
        installed = _versions_of(answer)
        differences = [
            f"{name} {installed[name] or 'not at all'} and not {version}"
            for name, version in expected.items()
            if installed[name] != version
        ]
        if differences:
            raise InputError(
                f"dask: the worker at {address} has {', '.join(differences[:4])}; install there what is installed "
                "here: the same Python, and learnkernels with its packaging/constraints.txt."
            )


def _versions_of(process: dict[str, Any]) -> dict[str, str | None]:
    """Return major and minor version of Python, and the versions of packages, that a process has reported."""
    packages = process["packages"]
    python = ".".join(packages["python"].split(".")[:2])
    return {"Python": python} | {name: packages.get(name) for name in VERSIONED}


def _security(config: DaskConfig) -> Security | None:
    """Return the keys of this side; None where they are not said, and Dask's own configuration may have them.

    Raises
    ------
    InputError
        A file is missing, or none of PEM's.
    """
    if config.certificates is None:
        return None
    for name, path in config.certificates.model_dump().items():
        try:
            text = Path(path).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not of PEM's format"
            raise InputError(f"dask.certificates.{name}: {path} cannot be read ({reason}); correct the path.") from None
        if "-----BEGIN" not in text:
            raise InputError(f"dask.certificates.{name}: {path} is no file of PEM's format; correct the path.")
    files = config.certificates
    return Security(require_encryption=True, tls_ca_file=files.ca, tls_client_cert=files.cert, tls_client_key=files.key)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start threads and processes that do not receive Ctrl-C, which a terminal sends to all of them."""
    resource_tracker.ensure_running()  # the first to start a process would start that, and listen again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def worker_memory(setting: str, workers: int) -> str:
    """Return the memory limit of one worker: as set, or half of what is free now shared among them."""
    return str(format_bytes(psutil.virtual_memory().available // (2 * workers))) if setting == "auto" else setting


TASKS_PER_WORKER = 8
"""At least that many a worker, so that none waits long for the last one."""

SUMS_PER_WORKER = 4
"""Into so many sums a worker the tasks of a total are gathered: enough to share out evenly, few enough to hold."""

FAN_IN = 8
"""Parts added by one task of the reduction."""

SPAN_SHARE = 16
"""A worker holds the rows of the two spans of a super-tile: each takes at most this part of its memory."""

ROOM_SHARE = 8
"""A trial on a worker may read this part of its memory: it holds rows twice, and libraries take 320 MiB."""

Job = TypeVar("Job")
Result = TypeVar("Result")
Advance: TypeAlias = Callable[[float], None]


class DaskPool(AbstractContextManager["DaskPool"]):
    """Workers for the tiles of one run.

    Parameters
    ----------
    config : DaskConfig
        With `scheduler`, that one; with `cluster`, one that is started; with ``workers: 0``, none. Otherwise those of
        Dask's client in this process, or at `DASK_SCHEDULER_ADDRESS`, where there are such, and a local cluster where
        not.
    """

    def __init__(self, config: DaskConfig) -> None:
        self._security: Security | None = None
        if not config.elsewhere and config.workers is None:
            address, self._security = running_scheduler()
            config = config.model_copy(update={"scheduler": address})
        self.config = config
        self.memory: int | None = None
        self._open = ExitStack()
        self._client: Client | None = None
        self._folder: str | None = None
        self._numbers = itertools.count()
        self._sent: dict[str, RowFiles] = {}
        self._run = f"learnkernels-{secrets.token_hex(6)}"
        self._starting = RLock()  # steps that run at once share what the first of them starts

    @property
    def in_process(self) -> bool:
        """Whether tiles are computed in this process."""
        return not self.config.elsewhere and self.config.workers == 0

    @property
    def local(self) -> bool:
        """Whether there are worker processes, all of them on this machine, which see its files."""
        return not self.config.elsewhere and self.config.workers != 0

    def spare(self) -> None:
        """Use no local workers if their number is not configured and none are started: there is little to do."""
        if self.local and self.config.workers is None and self._client is None:
            self.config = self.config.model_copy(update={"workers": 0})

    def require_usable(self) -> None:
        """Refuse, before any long work, a scheduler that does not answer, or workers that would compute other numbers.

        Raises
        ------
        InputError
            As `client`.
        """
        if self.config.elsewhere:
            require_same_versions(self.client)

    @property
    def client(self) -> Client:
        """The client, connected on first use.

        Raises
        ------
        InputError
            No scheduler answers at the given address, it has no workers, or a cluster cannot be started.
        """
        if self._client is None:
            with self._starting:
                if self._client is None:
                    self._client = self._open.enter_context(self._connected())
        if self._client.status == "closed":
            raise InputError(SCHEDULER_ENDED)
        return self._client

    @property
    def _running(self) -> bool:
        return self._client is not None and self._client.status == "running"

    def _connected(self) -> Client:
        """Return a client of the scheduler that the configuration names, or of workers that are started here."""
        self._open.enter_context(dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TiB"}))
        if self.config.scheduler is not None:
            return connected(self.config, self._security)
        memory = worker_memory(self.config.memory, self.n_workers)
        self.memory = parse_bytes(memory)
        self._open.enter_context(dask.config.set(SETTINGS))
        cluster = self._open.enter_context(start_workers(self.n_workers, memory))
        return Client(cluster, set_as_default=False, direct_to_workers=True)

    def map(
        self, run: Callable[..., Result], jobs: Sequence[Job], advance: Advance = lambda share: None, **given: Any
    ) -> list[Result]:
        """Return the results of independent jobs in their order: from the workers, or from here where there are none.

        Parameters
        ----------
        run : callable
            Of a job.
        jobs : sequence
            What to run.
        advance : callable, optional
            Is given shares that add up to one.
        **given
            Further arguments of `run`, which every worker is sent once.

        Raises
        ------
        InputError
            A job ended its worker again and again, which is how too little memory looks.
        """
        if self.in_process:
            return map_here(run, jobs, advance, **given)

        with self.computing("a job") as futures:
            sent = {name: self.send(value) for name, value in given.items()}
            futures += self.client.map(_with_warnings, [run] * len(jobs), jobs, pure=False, **sent)
            self.follow(futures, advance)
            results = self.client.gather(futures)
        self.require_usable()
        for _, caught in results:
            for category, text in caught:
                warn_caller(text, category)
        return [result for result, _ in results]

    def send(self, value: Any) -> Future:
        """Return a future of a value, as a task: if the workers that hold it end, Dask sends it to others."""
        return self.client.submit(_value, value, pure=False)

    def follow(self, futures: list[Future], advance: Advance) -> None:
        """Tell of each future that is done, until all are or one has failed."""
        for future in as_completed(futures, loop=self.client.loop):
            if future.status != "finished":
                return
            advance(1 / len(futures))

    @contextmanager
    def computing(self, what: str) -> Iterator[list[Future]]:
        """Give a list for futures, which are canceled at the end; name in a sentence what ends workers or a scheduler.

        Raises
        ------
        InputError
            A task ended its workers, or the scheduler ended.
        """
        futures: list[Future] = []
        try:
            yield futures
        except KilledWorker:
            raise InputError(
                f"{what} ended its worker process, probably out of memory; set dask.memory higher, or dask.workers "
                "to 1."
            ) from None
        except CancelledError:
            raise InputError(SCHEDULER_ENDED) from None
        finally:
            if self._running:
                self.client.cancel(futures)

    @property
    def workers(self) -> Workers:
        """Who does passes over rows: the Dask workers, or threads of this process where there are none."""
        return self.workers_telling(None)

    def workers_telling(self, advance: Advance | None) -> Workers:
        """Return `workers`; those of Dask give `advance` shares of each total that add up to one."""
        return Threads() if self.in_process else DaskWorkers(self, advance)

    @property
    def n_workers(self) -> int:
        """Worker processes: those of the local cluster, even while one is started again, or those connected now."""
        if self.config.elsewhere:
            return max(1, len(self._connected_workers()))
        return int(cpu_count()) if self.config.workers is None else self.config.workers

    def _connected_workers(self) -> list[dict[str, Any]]:
        """Return the scheduler's knowledge of each worker elsewhere; raise InputError where the scheduler has ended."""
        known = self.client.scheduler_info(n_workers=-1)
        if not known:
            raise InputError(SCHEDULER_ENDED)
        return list(known["workers"].values())

    def has_room_for(self, n_bytes: int) -> bool:
        """Return whether each worker can hold so many bytes twice next to all else that it does."""
        if self.config.elsewhere:
            limits = [worker["memory_limit"] or math.inf for worker in self._connected_workers()]
            limit = min(limits, default=0)
        else:
            limit = self.memory or parse_bytes(worker_memory(self.config.memory, max(1, self.n_workers)))
        return bool(n_bytes <= limit / ROOM_SHARE)

    @property
    def folder(self) -> str:
        """Folder of this run, which all workers of this machine see; where they are elsewhere one below their own."""
        if self.config.elsewhere:
            return self._run
        with self._starting:
            if self._folder is None:
                parent = store_path("rows")
                parent.mkdir(parents=True, exist_ok=True)
                self._folder = self._open.enter_context(temporary_folder(parent))
            return self._folder

    def write_rows(self, rows: RowSource) -> RowFiles:
        """Write dense rows to a folder of this run, which is removed when nothing refers to it.

        Raises
        ------
        InputError
            The disk does not take it.
        """
        blocks = RowFiles.write(str(Path(self.folder, f"rows-{next(self._numbers)}")), rows)
        weakref.finalize(blocks, shutil.rmtree, blocks.name, ignore_errors=True)
        return blocks

    def send_rows(self, X: RowSource) -> RowFiles:
        """Return dense rows where workers on other machines find them; the same rows are written once per run.

        Raises
        ------
        InputError
            The place cannot be written to, or a worker does not see it.
        """
        digest = row_files.content_digest(X)
        with self._starting:
            if digest in self._sent:
                return self._sent[digest]
            blocks = RowFiles.write(f"{self._place}/{digest}", X)
            is_first = not self._sent
            self._sent[digest] = blocks
            if is_first:
                self._require_seen(blocks)
            return blocks

    def _require_seen(self, blocks: RowFiles) -> None:
        """Raise InputError if a worker cannot read the rows."""
        sentences = self.client.run(blocks.sentence_if_unseen)
        for address, sentence in sorted(sentences.items()):
            if sentence:
                raise InputError(
                    f"dask.rows: the worker at {address} cannot read there ({cut(sentence.rstrip('.'), 240)}); give a "
                    "place that all workers see, and those of S3 its address and keys in their environment."
                )

    @property
    def _place(self) -> str:
        """Where the rows of this run lie for workers on other machines."""
        return f"{str(self.config.rows).rstrip('/')}/{self._run}"

    def __exit__(self, *_: object) -> None:
        with self._open:
            if self.config.elsewhere and self._running:
                with suppress(OSError):
                    self.client.run(row_files.forget_copies, self._run, on_error="ignore")
            if self._sent:
                with suppress(OSError, InputError):
                    row_files.remove(self._place)


@dataclass
class Shared:
    """A value that workers hold, and its future; files of the value stay as long as this does."""

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

    def __init__(self, pool: DaskPool, advance: Advance | None = None) -> None:
        self._pool, self._advance = pool, advance

    def scatter_rows(self, X: Rows, rows: np.ndarray | None, origin: np.ndarray) -> RowSource:
        """Return the rows, dense ones in a file that local workers read in runs.

        Workers elsewhere, which do not see our files, get them through `dask.rows`, each those that its tasks need
        and all of them once. Without such a place they are sent all rows, as are all workers where rows are sparse.

        Raises
        ------
        InputError
            The disk does not take the file, or the place the rows.
        """
        source = SelectedRows(X, np.arange(X.shape[0]) if rows is None else rows, origin)
        if isinstance(X, RowFiles):
            return replace(source, X=replace(X, folder=self._pool.folder, readers=None))
        if sparse.issparse(X) or not (self._pool.local or self._pool.config.rows):
            in_memory: RowSource = source[:]
            return in_memory
        if self._pool.local:
            return self._pool.write_rows(source)
        blocks = self._pool.send_rows(X)
        return blocks if rows is None and not origin.any() else replace(source, X=blocks)

    def local_view(self, X: Rows) -> Rows:
        """Return rows of which this process reads some: of a table in parts from workers on other machines."""
        if not isinstance(X, RowFiles):
            return X
        readers = self._pool if self._pool.config.elsewhere else None
        view: Any = replace(X, folder=self._pool.folder, readers=readers)
        return view

    def broadcast(self, value: Any) -> Shared:
        """Return the handle of a value that every worker is sent once."""
        return Shared(self._pool.send(value), value)

    def super_tile(self, n_rows: int, row_bytes: int) -> int:
        """Return a size of which there are at least eight tasks a worker, and which leaves it most of its memory."""
        pool, spans = self._pool, math.ceil(math.sqrt(TASKS_PER_WORKER * 2 * self._pool.n_workers))
        rows = min(pool.config.super_tile, -(-n_rows // spans))
        if pool.memory is not None and row_bytes:
            rows = min(rows, pool.memory // SPAN_SHARE // row_bytes)
        return max(1, rows)

    def spans(self, n_rows: int, least: int) -> list[tuple[int, int]]:
        """Return runs of which there are some for each worker."""
        return spans(n_rows, max(least, -(-n_rows // max(SPANS, TASKS_PER_WORKER * self._pool.n_workers))))

    def total(self, step: Step, shared: Shared, argument: Any, tasks: Sequence[Any]) -> Any:
        """Return the sum, by a tree whose shape depends on the number of tasks and of workers alone.

        Each worker adds up some tasks as it goes, so that few results are held, unless each task is to be told of.

        Raises
        ------
        InputError
            A task ended its workers, or the scheduler ended.
        """
        pool = self._pool
        n_sums = len(tasks) if self._advance else min(len(tasks), SUMS_PER_WORKER * pool.n_workers)
        shares = [tasks[first::n_sums] for first in range(n_sums)]
        with pool.computing("a pass over rows") as sums:
            sent = {"shared": shared.future, "argument": pool.send(argument)}
            sums += pool.client.map(_sum_of, shares, step=step, pure=False, **sent)
            total = self._joined(sums)
            if self._advance is not None:
                pool.follow(sums, self._advance)
            result = total.result()
        pool.require_usable()
        return result

    def _joined(self, futures: list[Future]) -> Future:
        """Return the sum of the results of futures, of which each task adds a few."""
        while len(futures) > 1:
            groups = [futures[i : i + FAN_IN] for i in range(0, len(futures), FAN_IN)]
            futures = [self._pool.client.submit(_joined, *group, pure=False) for group in groups]
        return futures[0]


def _value(value: Any) -> Any:
    return value


def _sum_of(tasks: Sequence[Any], step: Step, shared: Any, argument: Any) -> Any:
    return Threads(1).total(step, shared, argument, tasks)


def _joined(*parts: Any) -> Any:
    return reduce(add, parts)


def map_here(run: Callable[..., Result], jobs: Sequence[Job], advance: Advance, **given: Any) -> list[Result]:
    """Return the results of independent jobs in their order, computed in this process, as `DaskPool.map` does."""
    results = []
    for job in jobs:
        results.append(run(job, **given))
        advance(1 / len(jobs))
    return results


def _with_warnings(
    run: Callable[..., Result], job: Job, **given: Any
) -> tuple[Result, list[tuple[type[Warning], str]]]:
    """Return the result of a job and its warnings, which a worker would not show."""
    with warnings.catch_warnings(record=True) as caught:
        result = run(job, **given)
    return result, [(of.category, str(of.message)) for of in caught]
