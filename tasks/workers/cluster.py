"""Start or connect to the Dask workers of a run."""

from __future__ import annotations

import itertools
import logging
import math
import secrets
import shutil
import signal
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from pathlib import Path
from threading import RLock
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4

import dask
import numpy as np
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
from distributed.comm import CommClosedError
from joblib import cpu_count
from scipy import sparse

from learnkernels.conf.errors import InputError, cut
from learnkernels.conf.schema import DaskConfig
from learnkernels.kernels.base import warn_caller
from learnkernels.kernels.engine.workers import (
    SPANS,
    RowSource,
    SelectedRows,
    Step,
    Threads,
    Workers,
    spans,
)
from learnkernels.kernels.families.base import Rows

from ..data import row_files
from ..data.row_files import RowFiles
from ..processes.memory import free_memory
from ..store import LIBRARIES, store_path, temporary_folder

SETTINGS: dict[str, Any] = {
    # Workers whose libraries use 80 % of memory would pause forever
    "distributed.worker.memory.pause": False,
    # More deaths than by chance; exceeded memory ends a run in minutes
    "distributed.scheduler.allowed-failures": 20,
    # Closes nannies without a worker after this time
    "distributed.deploy.lost-worker-timeout": "1 day",
    # The pages have no authentication
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # The profiler uses a twentieth of the cores of a small machine
    "distributed.worker.profile.enabled": False,
}

LOOPBACK = "127.0.0.1"

SCHEDULER_ENDED = "the Dask scheduler ended; the results so far are kept: start the scheduler, and this run, again."

VERSIONED = (*LIBRARIES, "dask", "distributed", "pyarrow")
"""Packages whose versions must agree in all processes."""


def start_workers(n_workers: int, memory: str) -> LocalCluster:
    """Start local Dask workers with one thread each."""
    # Dask's default costs page faults after each tile
    freed_bytes_to_keep = min(256 * 2**20, parse_bytes(memory) // 16)
    environment = dask.config.get("distributed.nanny.pre-spawn-environ") | {
        "MALLOC_TRIM_THRESHOLD_": freed_bytes_to_keep,
        "MALLOC_MMAP_THRESHOLD_": freed_bytes_to_keep // 4,
        "NUMBA_NUM_THREADS": 1,
    }
    with (
        dask.config.set({"distributed.nanny.pre-spawn-environ": environment}),
        _interrupts_blocked(),
    ):
        return LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            memory_limit=memory,
            host=LOOPBACK,
            security=True,  # TLS, with keys in memory
            dashboard_address=f"{LOOPBACK}:0",
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,
        )


def running_scheduler() -> tuple[str | None, Security | None]:
    """Return address and TLS settings of the current Dask scheduler."""
    with suppress(ValueError):  # no client
        client = default_client()
        return client.scheduler.address, client.security
    return dask.config.get("scheduler-address", None), None


def connected(config: DaskConfig, security: Security | None = None) -> Client:
    """Return a client of a remote Dask scheduler; InputError if no worker answers."""
    address = config.scheduler
    security = security or _security(config)
    try:
        client = Client(
            address, timeout=config.timeout, set_as_default=False, security=security
        )
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"dask.scheduler: no Dask scheduler answers at {address} within {config.timeout:g} s "
            f"({type(error).__name__}); start one with 'dask scheduler', or leave the key out for a local cluster."
        ) from None
    try:
        _await_worker(client, config)
    except InputError:
        client.close()
        raise
    return client


def _await_worker(client: Client, config: DaskConfig) -> None:
    try:
        client.wait_for_workers(1, timeout=config.timeout)
    except TimeoutError:
        raise InputError(
            f"dask.scheduler: the scheduler at {config.scheduler} has no workers after {config.timeout:g} s; start "
            f"some with 'dask worker {config.scheduler}', or set dask.timeout higher."
        ) from None


def require_same_versions(client: Client) -> None:
    """Raise InputError if Dask client and workers differ in versions."""
    versions = client.get_versions(packages=list(VERSIONED))
    expected = _versions_of(versions["client"])
    for address, answer in sorted(versions["workers"].items()):
        if not isinstance(answer, dict):
            continue  # the worker has just ended
        installed = _versions_of(answer)
        differences = []
        for name, version in expected.items():
            if installed[name] != version:
                differences.append(
                    f"{name} {installed[name] or 'not at all'} and not {version}"
                )
        if differences:
            raise InputError(
                f"dask: the worker at {address} has {', '.join(differences[:4])}; install there what is installed "
                "here: the same Python, and learnkernels with its packaging/constraints.txt."
            )


def _versions_of(process: dict[str, Any]) -> dict[str, str | None]:
    packages = process["packages"]
    versions: dict[str, str | None] = {
        "Python": ".".join(packages["python"].split(".")[:2])
    }
    for name in VERSIONED:
        versions[name] = packages.get(name)
    return versions


def _security(config: DaskConfig) -> Security | None:
    files = config.certificates
    if files is None:
        return None
    for name, path in files.model_dump().items():
        try:
            text = Path(path).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not of PEM's format"
            raise InputError(
                f"dask.certificates.{name}: {path} cannot be read ({reason}); correct the path."
            ) from None
        if "-----BEGIN" not in text:
            raise InputError(
                f"dask.certificates.{name}: {path} is no file of PEM's format; correct the path."
            )
    return Security(
        require_encryption=True,
        tls_ca_file=files.ca,
        tls_client_cert=files.cert,
        tls_client_key=files.key,
    )


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    resource_tracker.ensure_running()  # its start would unblock Ctrl-C
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def worker_memory(setting: str, workers: int) -> str:
    """Return the memory limit of a worker; "auto" divides half the free memory."""
    if setting != "auto":
        return setting
    return str(format_bytes(free_memory() // (2 * workers)))


TASKS_PER_WORKER = 8

SUMS_PER_WORKER = 4

FAN_IN = 8
"""Sums per node of the tree."""

LIBRARY_BYTES = 320 << 20

Job = TypeVar("Job")
Result = TypeVar("Result")
Advance: TypeAlias = Callable[[float], None]
Caught: TypeAlias = tuple[type[Warning], str]


class DaskPool(AbstractContextManager["DaskPool"]):
    """Dask workers of a run, started when first needed.

    ``workers: 0`` uses none. Without `scheduler`, Dask's client in this process,
    `DASK_SCHEDULER_ADDRESS` or a local cluster is used.
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
        self._writes_rows = False
        self._most_workers = 0
        self._least_memory = math.inf
        self._run = f"learnkernels-{secrets.token_hex(6)}"
        self._starting = RLock()  # for simultaneous steps

    @property
    def in_process(self) -> bool:
        return not self.config.elsewhere and self.config.workers == 0

    @property
    def local(self) -> bool:
        """Whether all Dask workers are on this machine."""
        return not self.config.elsewhere and self.config.workers != 0

    def spare(self) -> None:
        """Use no workers, unless configured."""
        if self.local and self.config.workers is None and self._client is None:
            self.config = self.config.model_copy(update={"workers": 0})

    def require_usable(self) -> None:
        if self.config.elsewhere:
            require_same_versions(self.client)

    @property
    def client(self) -> Client:
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
        self._open.enter_context(
            dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TiB"})
        )
        if self.config.scheduler is not None:
            return connected(self.config, self._security)
        memory = worker_memory(self.config.memory, self.n_workers)
        self.memory = parse_bytes(memory)
        self._open.enter_context(dask.config.set(SETTINGS))
        cluster = self._open.enter_context(start_workers(self.n_workers, memory))
        return Client(cluster, set_as_default=False, direct_to_workers=True)

    def map(
        self,
        run: Callable[..., Result],
        jobs: Sequence[Job],
        advance: Advance = lambda share: None,
        **arguments: Any,
    ) -> list[Result]:
        """Run a function for each job on the workers; return results in order.

        `advance` receives the share of each job.
        """
        if self.in_process:
            return map_here(run, jobs, advance, **arguments)

        with self.computing("a job") as futures:
            sent = {name: self.send(value) for name, value in arguments.items()}
            futures += self.client.map(
                _with_warnings,
                [run] * len(jobs),
                jobs,
                key=_keys("job", len(jobs)),
                pure=False,
                **sent,
            )
            results = dict(self.collected(futures, advance))
        self.require_usable()
        in_order = [results[position] for position in range(len(jobs))]
        for _, caught in in_order:
            _warn(caught)
        return [result for result, _ in in_order]

    def send(self, value: Any) -> Future:
        """Send workers a value; return its future, which outlives workers."""
        (key,) = _keys("value", 1)
        return self.client.submit(_value, value, key=key, pure=False)

    def collected(
        self, futures: list[Future], advance: Advance | None
    ) -> Iterator[tuple[int, Any]]:
        """Yield positions and results of futures as they end, and empty the list."""
        n_futures = len(futures)
        for ended in as_completed(list(futures), self.client.loop).batches():
            results = self.client.gather(ended)  # with_results would hide errors
            for future in ended:
                futures.remove(future)
                future.release()
                yield future.key[1], results.pop(0)
                if advance is not None:
                    advance(1 / n_futures)

    @contextmanager
    def computing(self, task: str) -> Iterator[list[Future]]:
        """Yield a list to fill with futures; cancel these at the end."""
        futures: list[Future] = []
        try:
            yield futures
        except KilledWorker:
            raise InputError(
                f"{task} lost its worker processes, out of memory or killed; set dask.memory higher, or dask.workers "
                "to 1, and start again."
            ) from None
        except (CancelledError, CommClosedError):
            raise InputError(SCHEDULER_ENDED) from None
        except OSError:
            if self._running:
                raise
            raise InputError(SCHEDULER_ENDED) from None
        finally:
            if self._running:
                self.client.cancel(futures)

    @property
    def workers(self) -> Workers:
        return self.workers_telling(None)

    def workers_telling(self, advance: Advance | None) -> Workers:
        """Return workers that report their progress."""
        if self.in_process:
            return Threads()
        return DaskWorkers(self, advance)

    @property
    def n_workers(self) -> int:
        """The largest number so far."""
        if self.config.elsewhere:
            self._look_at_workers()
            return max(1, self._most_workers)
        if self.config.workers is None:
            return int(cpu_count())
        return self.config.workers

    def _look_at_workers(self) -> None:
        information = self.client.scheduler_info(n_workers=-1)
        if not information:
            raise InputError(SCHEDULER_ENDED)
        workers = information["workers"].values()
        self._most_workers = max(self._most_workers, len(workers))
        for worker in workers:
            limit = worker["memory_limit"] or math.inf
            self._least_memory = min(self._least_memory, limit)

    def least_memory(self) -> float:
        """Return the smallest memory limit so far."""
        self._look_at_workers()
        if not self._most_workers:
            _await_worker(self.client, self.config)
            self._look_at_workers()
        return self._least_memory

    def has_room_for(self, n_bytes: int) -> bool:
        """Return whether `n_bytes` fit into an eighth of each worker's memory."""
        if self.config.elsewhere:
            limit = self.least_memory()
        else:
            limit = self.memory or parse_bytes(
                worker_memory(self.config.memory, max(1, self.n_workers))
            )
        return bool(n_bytes <= limit / 8)

    @property
    def folder(self) -> str:
        if self.config.elsewhere:
            return self._run
        with self._starting:
            if self._folder is None:
                parent = store_path("rows")
                parent.mkdir(parents=True, exist_ok=True)
                self._folder = self._open.enter_context(temporary_folder(parent))
            return self._folder

    def write_rows(self, rows: RowSource) -> RowFiles:
        """Write dense rows to a folder that is deleted with the returned object."""
        blocks = RowFiles.write(
            str(Path(self.folder, f"rows-{next(self._numbers)}")), rows
        )
        weakref.finalize(blocks, shutil.rmtree, blocks.name, ignore_errors=True)
        return blocks

    def send_rows(self, X: RowSource) -> RowFiles:
        """Write dense rows, once per run, to files that remote workers can read."""
        digest = row_files.content_digest(X)
        with self._starting:
            if digest in self._sent:
                return self._sent[digest]
            self._writes_rows = True
            blocks = RowFiles.write(f"{self._place}/{digest}", X)
            is_first = not self._sent
            self._sent[digest] = blocks
            if is_first:
                self._require_seen(blocks)
            return blocks

    def _require_seen(self, blocks: RowFiles) -> None:
        sentences = self.client.run(blocks.sentence_if_unseen)
        for address, sentence in sorted(sentences.items()):
            if sentence:
                raise InputError(
                    f"dask.rows: the worker at {address} cannot read there ({cut(sentence.rstrip('.'), 240)}); give a "
                    "place that all workers see, and those of S3 its address and keys in their environment."
                )

    @property
    def _place(self) -> str:
        return f"{str(self.config.rows).rstrip('/')}/{self._run}"

    def __exit__(self, *_: object) -> None:
        with self._open:
            if self.config.elsewhere and self._running:
                with suppress(OSError):
                    self.client.run(
                        row_files.forget_copies, self._run, on_error="ignore"
                    )
            if self._writes_rows:
                with suppress(OSError, InputError):
                    row_files.remove(self._place)


@dataclass
class Shared:
    """Dask future with its value, whose row files are thereby kept."""

    future: Future
    value: Any


class DaskWorkers:
    """Dask workers as the package `kernels` expects."""

    def __init__(self, pool: DaskPool, advance: Advance | None = None) -> None:
        self._pool = pool
        self._advance = advance

    def scatter_rows(
        self, X: Rows, rows: np.ndarray | None, origin: np.ndarray
    ) -> RowSource:
        """Return selected rows for workers to read."""
        selects_all = rows is None
        if rows is None:
            rows = np.arange(X.shape[0])
        source = SelectedRows(X, rows, origin)
        if isinstance(X, RowFiles):
            return replace(source, X=replace(X, folder=self._pool.folder, readers=None))
        if sparse.issparse(X) or not (self._pool.local or self._pool.config.rows):
            in_memory: RowSource = source[:]
            return in_memory
        if self._pool.local:
            return self._pool.write_rows(source)
        blocks = self._pool.send_rows(X)
        if selects_all and not origin.any():
            return blocks
        return replace(source, X=blocks)

    def local_view(self, X: Rows) -> Rows:
        """Return rows that this process can read."""
        if not isinstance(X, RowFiles):
            return X
        readers = None
        if self._pool.config.elsewhere:
            readers = self._pool
        view: Any = replace(X, folder=self._pool.folder, readers=readers)
        return view

    def broadcast(self, value: Any) -> Shared:
        return Shared(self._pool.send(value), value)

    def super_tile(self, n_rows: int, row_bytes: int) -> int:
        """Return the rows of a task's Gram matrix block."""
        pool = self._pool
        n_spans = math.ceil(math.sqrt(2 * TASKS_PER_WORKER * pool.n_workers))
        size = min(pool.config.super_tile, math.ceil(n_rows / n_spans))
        if pool.memory is not None and row_bytes:
            size = min(size, pool.memory // 16 // row_bytes)
        return max(1, size)

    @property
    def memory(self) -> float:
        """Bytes for a task."""
        return max(0.0, self._pool.least_memory() - LIBRARY_BYTES)

    def spans(self, n_rows: int, min_rows: int) -> list[tuple[int, int]]:
        """Divide rows into ranges of at least `min_rows`, eight per worker."""
        n_spans = max(SPANS, TASKS_PER_WORKER * self._pool.n_workers)
        return spans(n_rows, max(min_rows, math.ceil(n_rows / n_spans)))

    def total(
        self, step: Step, shared: Shared, argument: Any, tasks: Sequence[Any]
    ) -> Any:
        """Add tasks' results in an order independent of timing."""
        pool = self._pool
        n_sums = len(tasks)
        if self._advance is None:
            n_sums = min(n_sums, SUMS_PER_WORKER * pool.n_workers)
        shares = [tasks[first::n_sums] for first in range(n_sums)]
        with pool.computing("a pass over rows") as futures:
            sent = {"shared": shared.future, "argument": pool.send(argument)}
            futures += pool.client.map(
                _with_warnings,
                [_sum_of] * n_sums,
                shares,
                key=_keys("share", n_sums),
                step=step,
                pure=False,
                **sent,
            )
            total = SumInGroups(n_sums)
            warned: dict[Caught, None] = {}
            for position, (result, caught) in pool.collected(futures, self._advance):
                if position % FAN_IN == 0:
                    result = deepcopy(result)  # Dask's arrays are read-only
                total.add(position, result)
                warned |= dict.fromkeys(caught)
        pool.require_usable()
        _warn(warned)
        return total.result


class SumInGroups:
    """Sum of results by position, in groups, as they arrive."""

    def __init__(self, n_results: int) -> None:
        self._n_results = n_results
        self._waiting: dict[int, Any] = {}
        self._next: dict[int, int] = {}
        self._totals: dict[int, Any] = {}
        self._groups: SumInGroups | None = None
        if n_results > FAN_IN:
            self._groups = SumInGroups(math.ceil(n_results / FAN_IN))

    @property
    def result(self) -> Any:
        if self._groups is None:
            return self._totals[0]
        return self._groups.result

    def add(self, position: int, result: Any) -> None:
        group = position // FAN_IN
        end = min(self._n_results, FAN_IN * (group + 1))
        self._waiting[position] = result
        following = self._next.get(group, FAN_IN * group)
        while following < end and following in self._waiting:
            self._add_to_group(group, self._waiting.pop(following))
            following += 1
        self._next[group] = following
        if following == end and self._groups is not None:
            self._groups.add(group, self._totals.pop(group))

    def _add_to_group(self, group: int, result: Any) -> None:
        if group in self._totals:
            self._totals[group] = self._totals[group] + result
        else:
            self._totals[group] = result


def _keys(name: str, n: int) -> list[tuple[str, int]]:
    """Return keys of a new task group, by whose size Dask queues."""
    group = f"{name}-{uuid4()}"
    return [(group, i) for i in range(n)]


def _value(value: Any) -> Any:
    return value


def _sum_of(tasks: Sequence[Any], step: Step, shared: Any, argument: Any) -> Any:
    return Threads(1).total(step, shared, argument, tasks)


def map_here(
    run: Callable[..., Result], jobs: Sequence[Job], advance: Advance, **arguments: Any
) -> list[Result]:
    results = []
    for job in jobs:
        results.append(run(job, **arguments))
        advance(1 / len(jobs))
    return results


def _with_warnings(
    run: Callable[..., Result], job: Job, **arguments: Any
) -> tuple[Result, list[Caught]]:
    with warnings.catch_warnings(record=True) as caught:
        result = run(job, **arguments)
    return result, [(warning.category, str(warning.message)) for warning in caught]


def _warn(caught: Iterable[Caught]) -> None:
    for category, text in caught:
        warn_caller(text, category)
