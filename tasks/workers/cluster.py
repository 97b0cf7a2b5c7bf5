"""The Dask workers of a run: a local cluster, started when first needed, or a scheduler that runs elsewhere."""

from __future__ import annotations

import itertools
import logging
import math
import os
import secrets
import signal
import tempfile
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
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
from distributed.core import Status
from joblib import cpu_count
from scipy import sparse

from learnkernels.conf.errors import InputError, cut
from learnkernels.conf.schema import DaskConfig
from learnkernels.kernels.engine.workers import SPANS, RowSource, SelectedRows, Step, Threads, Workers, spans
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.parameters import warn_caller
from learnkernels.tasks.data import parts as in_parts
from learnkernels.tasks.data.parts import TableParts
from learnkernels.tasks.store import LIBRARIES, store_path, temporary_folder

KEPT_BYTES, KEPT_SHARE = 1 << 28, 16
"""Workers keep what they have freed, up to so many bytes and to this part of their memory.

By Dask's default they give it back after each tile, and pay in page faults. Single arrays of a quarter of that and more
are given back.
"""

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
"""Settings of BLAS and of all else that has threads, of which a worker has one."""

NEVER_PAUSED = {"distributed.worker.memory.pause": False}
"""A worker that Dask pauses, at 80 % of its memory, waits for that to fall; what libraries and the C library keep does
not, and the run would wait forever. At 95 % it is ended, and a sentence reports it."""

LEFT_TO_ITS_NANNY = {"distributed.deploy.lost-worker-timeout": "1 day"}
"""A worker of this machine that ends is started again by its nanny. Dask's cluster looks once, 15 s after an end, and
closes that nanny where no process of it is up at that moment, which may have ended like the one before."""

SELDOM_WATCHED: dict[str, str | bool] = {
    "distributed.admin.tick.interval": "1 s",
    "distributed.admin.system-monitor.interval": "10 s",
    "distributed.worker.profile.enabled": False,
}
"""What pages would show is not measured: all processes of this machine share its cores, and the figures, taken up to a
hundred times a second, cost two workers of two cores a twentieth of their pass."""

LOOPBACK = "127.0.0.1"
"""A Dask scheduler runs whatever it is sent, so a local one listens here alone, and to who has the keys of the run."""

NO_PAGES: dict[str, list[str]] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
"""Dask's pages have no authentication, and any user of the machine could read them."""

OURS = ("DASK_CONFIG", "DASK_TEMPORARY_DIRECTORY")
"""Settings of Dask that each process has from here."""

SAME = (*LIBRARIES, "dask", "distributed", "pyarrow")
"""What all sides need in one version: numbers, or what travels, depend on it."""


def workers_here(n_workers: int, memory: str) -> LocalCluster:
    """Start worker processes of this machine, of one thread each, that only who started them can use.

    Parameters
    ----------
    n_workers : int
        How many.
    memory : str
        Limit of each, such as ``4GiB``.

    Raises
    ------
    InputError
        Processes do not start, and the environment has settings of Dask.
    """
    kept = min(KEPT_BYTES, parse_bytes(memory) // KEPT_SHARE)
    spawned = {"MALLOC_TRIM_THRESHOLD_": kept, "MALLOC_MMAP_THRESHOLD_": kept // 4, **dict.fromkeys(THREADS, 1)}
    settings = {"distributed.nanny.pre-spawn-environ": spawned}
    given = [name for name in os.environ if name.startswith("DASK_") and name not in OURS]
    try:
        with dask.config.set(NO_PAGES | settings), _deaf_to_interrupts():
            return LocalCluster(
                n_workers=n_workers,
                threads_per_worker=1,
                memory_limit=memory,
                host=LOOPBACK,
                protocol="tls://",
                security=Security.temporary(),  # a pair of keys that goes with the run and is in no file
                dashboard_address=f"{LOOPBACK}:0",
                scheduler_kwargs={"dashboard": False},
                config=NEVER_PAUSED | NO_PAGES,  # also of those that Dask starts when one has ended
                silence_logs=logging.CRITICAL,  # what ends a worker is a sentence; a heartbeat at the end is no error
            )
    except RuntimeError as error:
        if not given:
            raise
        raise InputError(
            f"dask: workers of this machine do not start ({error}); unset {', '.join(given)} in the environment, or "
            "correct it."
        ) from error


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


def require_same_versions(client: Client, known: Collection[str]) -> set[str]:
    """Refuse workers that have other versions of what numbers depend on; return the addresses of all.

    Parameters
    ----------
    client : distributed.Client
        Of the scheduler.
    known : collection of str
        Addresses of workers that need not be asked again.

    Raises
    ------
    InputError
        Python, or a package, is of another version on a worker than here, or not there at all.
    """
    workers = set(client.scheduler_info(n_workers=-1)["workers"])
    if workers <= set(known):
        return workers
    of = client.get_versions(packages=list(SAME))
    ours = of["client"]["packages"]
    for address, theirs in sorted(of["workers"].items()):
        if not isinstance(theirs, dict) or address in known:
            continue  # one that has just ended has nothing to say
        packages = theirs["packages"]
        others = [
            f"{name} {packages.get(name) or 'not at all'} and not {ours[name]}"
            for name in SAME
            if packages.get(name) != ours[name]
        ]
        if _python(packages) != _python(ours):
            others.insert(0, f"Python {_python(packages)} and not {_python(ours)}")
        if others:
            raise InputError(
                f"dask: the worker at {address} has {', '.join(others[:4])}; install there what is installed here: the "
                "same Python, and learnkernels with its constraints.txt."
            )
    return workers


def _python(packages: dict[str, str]) -> str:
    return ".".join(packages["python"].split(".")[:2])


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
def _deaf_to_interrupts() -> Iterator[None]:
    """Have threads that start within, and the processes that these start, not notice Ctrl-C: they end with this one."""
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

FINER = 8
"""Into so many times as many sums, where one of them has ended too many workers: less is lost with each that ends."""

FAN_IN = 8
"""Parts added by one task of the reduction."""

TRIES = 5
"""How often a pass, or a batch of jobs, is begun where workers that ended took with them what was sent to them."""

SPAN_SHARE = 16
"""A worker holds the rows of the two spans of a super-tile: each takes at most this part of its memory."""

Job = TypeVar("Job")
Result = TypeVar("Result")
Advance: TypeAlias = Callable[[float], None]

ROOM_SHARE = 8
"""A trial on a worker may read this part of its memory: it holds rows twice, and libraries take 320 MiB."""


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
        self._client: Client | None = None
        self._cluster: LocalCluster | None = None
        self._known: set[str] = set()
        self._parts: dict[str, in_parts.RowParts] = {}
        self.memory: int | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files = itertools.count()
        self._settings = ExitStack()
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
            self._known = require_same_versions(self.client, self._known)

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
                    self._client = self._connected()
        return self._client

    def _connected(self) -> Client:
        """Return a client of the scheduler that the configuration names, or of workers that are started here."""
        if self.config.scheduler is not None:
            return connected(self.config, security=self._security)
        memory = worker_memory(self.config.memory, self.n_workers)
        self.memory = parse_bytes(memory)
        self._settings.enter_context(dask.config.set(LEFT_TO_ITS_NANNY | SELDOM_WATCHED))
        self._cluster = workers_here(self.n_workers, memory)
        return Client(self._cluster, set_as_default=False, direct_to_workers=True)  # results not by the scheduler

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

        def by_workers() -> Any:
            # Not the dict, whose keys would be those of the futures, and of the next call's, which this one cancels
            sent = dict(zip(given, self.sent(list(given.values())), strict=True)) if given else {}
            futures = self.client.map(_with_warnings, [run] * len(jobs), jobs, pure=False, **sent)
            with self.letting_go(futures):
                for future in as_completed(futures, loop=self.client.loop):
                    if future.status == "error":
                        break
                    advance(1 / len(jobs))
                return self.client.gather(futures)

        results = self.recovering(by_workers, "a job")
        for _, caught in results:
            for category, text in caught:
                warn_caller(text, category)
        return [result for result, _ in results]

    def sent(self, values: list[Any]) -> list[Future]:
        """Return the handles of values that every worker is sent once; again where workers end meanwhile.

        Raises
        ------
        InputError
            They end again and again.
        """
        for _ in range(TRIES):
            with suppress(OSError):  # of a connection, or as no worker is up
                return list(self.client.scatter(values, broadcast=True, hash=False))
        raise InputError(
            "workers ended again and again while they were sent rows, probably out of memory; set dask.memory "
            "higher, or dask.workers to 1."
        )

    def recovering(self, act: Callable[[], Result], what: str, raised: tuple[type[Exception], ...] = ()) -> Result:
        """Return what `act` returns, which is tried again where workers ended and took with them what they were sent.

        What workers elsewhere have done counts if none has joined meanwhile that has other versions.

        Parameters
        ----------
        act : callable
            Computes something on the workers.
        what : str
            What it is, for a sentence.
        raised : tuple of exception classes
            Errors that are raised as they are while the scheduler runs.

        Raises
        ------
        InputError
            The scheduler ended, or workers ended again and again.
        """
        for tries in range(TRIES, 0, -1):
            try:
                result = act()
                self.require_usable()
                return result
            except (KilledWorker, CancelledError) as error:
                if self.client.status != "running":
                    raise InputError(
                        f"the Dask scheduler ended during {what}; what was computed is kept: start it, and this run, "
                        "again."
                    ) from None
                if isinstance(error, raised):
                    raise
                if isinstance(error, KilledWorker) or tries == 1:
                    break
        raise InputError(
            f"{what} ended its worker process, probably out of memory; set dask.memory higher, or dask.workers to 1."
        )

    @contextmanager
    def letting_go(self, futures: list[Future]) -> Iterator[None]:
        """Cancel futures at the end, which may have become more by then."""
        try:
            yield
        finally:
            if self.client.status == "running":
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
        """Worker processes: those of the local cluster, even while one is started again, or those connected now.

        Raises
        ------
        InputError
            One that has joined since has other versions.
        """
        if not self.config.elsewhere:
            return int(cpu_count()) if self.config.workers is None else self.config.workers
        self.require_usable()
        return max(1, len(self._known))

    def has_room_for(self, n_bytes: int) -> bool:
        """Return whether each worker can hold so many bytes twice next to all else that it does."""
        if self.config.elsewhere:
            workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
            limit = min((worker["memory_limit"] or math.inf for worker in workers), default=0)
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
                self._folder = temporary_folder(parent)
            return self._folder.name

    def write_rows(self, rows: RowSource) -> in_parts.RowFile:
        """Write dense rows to a file of this run, which is removed when nothing refers to it.

        Raises
        ------
        InputError
            The disk does not take it.
        """
        path = Path(self.folder) / f"{next(self._files)}.arrow"
        try:
            file = in_parts.RowFile.write(path, rows)
        except OSError as error:
            raise InputError(
                f"{path.parent}: {rows.shape[0]} rows for the workers cannot be written "
                f"({error.strerror or type(error).__name__}); free up disk space, or set dask.workers to 0."
            ) from None
        weakref.finalize(file, path.unlink, missing_ok=True)
        return file

    def parts_of(self, X: RowSource) -> in_parts.RowParts:
        """Return dense rows where workers on other machines find them; the same rows are written once per run.

        Raises
        ------
        InputError
            The place cannot be written to, or a worker does not see it.
        """
        rows = in_parts.content_digest(X)
        with self._starting:
            if rows in self._parts:
                return self._parts[rows]
            first, self._parts[rows] = not self._parts, in_parts.RowParts.write(f"{self._place}/{rows}", X)
            unseen = self.client.run(self._parts[rows].unseen) if first else {}
            for address, why in sorted(unseen.items()):
                if why:
                    raise InputError(
                        f"dask.rows: the worker at {address} cannot read there ({cut(why.rstrip('.'), 240)}); give a "
                        "place that all workers see, and those of S3 its address and keys in their environment."
                    )
            return self._parts[rows]

    @property
    def _place(self) -> str:
        """Where the rows of this run lie for workers on other machines."""
        return f"{str(self.config.rows).rstrip('/')}/{self._run}"

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if isinstance(self._cluster, LocalCluster) and kind is not None and not issubclass(kind, Exception):
            for nanny in self._cluster.workers.values():  # whose processes would end what they are at first
                nanny.status = Status.closing_gracefully  # it starts no other
                if nanny.pid is not None:
                    with suppress(ProcessLookupError):
                        os.kill(nanny.pid, signal.SIGKILL)
        with suppress(OSError, InputError):
            if (self._parts or self._known) and self.client.status == "running":
                self.client.run(in_parts.forget_copies, self._run, on_error="ignore")
        with suppress(OSError, InputError):
            if self._parts:
                in_parts.remove(self._place)
        if self._client is not None:
            self._client.close()
        if self._cluster is not None:
            self._cluster.close()
        self._settings.close()
        if self._folder is not None:
            self._folder.cleanup()


@dataclass(frozen=True)
class PartsElsewhere:
    """The rows of a table in parts, of which this process gets those that it needs from workers on other machines.

    Attributes
    ----------
    parts : TableParts
    pool : DaskPool
    """

    parts: TableParts
    pool: DaskPool

    @property
    def shape(self) -> tuple[int, int]:
        """(m, d)."""
        return self.parts.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """float64."""
        return self.parts.dtype

    def __getitem__(self, rows: slice | np.ndarray, /) -> np.ndarray:
        """Return a run of rows, or those at some positions, shape (a, d); each part is requested by one task."""
        at = in_parts.positions(rows, self.shape[0])
        taken = np.empty((len(at), self.shape[1]))
        these = [some for _, some, _ in in_parts.by_chunk(at, self.parts.starts)]
        found = self.pool.map(_taken, [at[some] for some in these], X=self.parts)
        for some, values in zip(these, found, strict=True):
            taken[some] = values
        return taken


def _taken(at: np.ndarray, X: TableParts) -> np.ndarray:
    return X[at]


@dataclass
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
        if isinstance(X, PartsElsewhere | TableParts):
            return replace(source, X=self.readable(X))
        if sparse.issparse(X) or not (self._pool.local or self._pool.config.rows):
            held: RowSource = source[:]
            return held
        if self._pool.local:
            return self._pool.write_rows(source)
        parts = self._pool.parts_of(X)
        return parts if rows is None and not origin.any() else replace(source, X=parts)

    def readable(self, X: Any) -> TableParts:
        """Return the rows of a table in parts as the workers read them."""
        parts: TableParts = X.parts if isinstance(X, PartsElsewhere) else X
        return replace(parts, folder=self._pool.folder)

    def local_view(self, X: Rows) -> Rows:
        """Return rows of which this process reads some: those of a table in parts from workers on other machines."""
        if not isinstance(X, TableParts):
            return X
        readable = self.readable(X)
        held: Any = PartsElsewhere(readable, self._pool) if self._pool.config.elsewhere else readable
        return held

    def broadcast(self, value: Any) -> Shared:
        """Return the handle of a value that every worker is sent once."""
        (future,) = self._pool.sent([value])
        return Shared(future, value)

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
        Machines that come and go may end before such a sum is done: then it is tried by smaller ones, in another order
        of adding, and the result agrees with that of an undisturbed pass to rounding.

        Raises
        ------
        InputError
            A task ended its worker.
        """
        pool, n = self._pool, self._pool.n_workers
        sums = len(tasks) if self._advance else min(len(tasks), SUMS_PER_WORKER * n)
        finer = min(len(tasks), FINER * sums)
        total = partial(self._total, step, shared, argument, tasks)
        if finer > sums:
            with suppress(KilledWorker):
                return pool.recovering(partial(total, sums), "a pass over rows", raised=(KilledWorker,))
        return pool.recovering(partial(total, finer), "a pass over rows")

    def _total(self, step: Step, shared: Shared, argument: Any, tasks: Sequence[Any], n: int) -> Any:
        if shared.future.cancelled():
            shared.future = self.broadcast(shared.value).future
        client, shares = self._pool.client, [tasks[first::n] for first in range(n)]
        if argument is not None:
            (argument,) = self._pool.sent([argument])
        futures = client.map(_sum_of, shares, step=step, shared=shared.future, argument=argument, pure=False)
        leaves, tree = futures, list(futures)
        while len(futures) > 1:
            groups = [futures[i : i + FAN_IN] for i in range(0, len(futures), FAN_IN)]
            futures = [client.submit(_joined, *group, pure=False) for group in groups]
            tree += futures
        with self._pool.letting_go(tree):
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
