"""Workers that execute passes over rows, and numbers of threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import cache
from math import inf
from numbers import Integral
from threading import Lock
from typing import Any, Protocol

import joblib
import numpy as np
from numba import config
from threadpoolctl import OpenBLASController, ThreadpoolController

from ..families.base import Rows, move


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@dataclass
class _ThreadState:
    """BLAS threads and busy threads of this process."""

    single_threaded: int = 0
    limit: Any = None
    busy: int = 0


_state = _ThreadState()
_lock = Lock()


def _reset_state() -> None:
    global _state, _lock
    _state = _ThreadState()
    _lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_state)

_thread_limit: ContextVar[float] = ContextVar("thread_limit", default=inf)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Enter a context in which BLAS uses a single thread in the whole process.

    Contexts may overlap: the last restores the setting.
    """
    with _lock:
        if not _state.single_threaded:
            limit = _controller().limit(limits=1, user_api="blas")
            n_threads = [
                library["num_threads"]
                for library in _controller().info()
                if library["user_api"] == "blas"
            ]
            # Not if another thread of the user controls BLAS.
            is_limited = all(n == 1 for n in n_threads)
            _state.limit = limit if is_limited else None
        _state.single_threaded += 1
    try:
        yield
    finally:
        with _lock:
            _state.single_threaded -= 1
            if not _state.single_threaded and _state.limit is not None:
                _release_blas()  # the thread that set the limit may have ended
                _state.limit.restore_original_limits()
                _release_blas()


def _release_blas() -> None:
    """Let any thread set BLAS, not only the first (threadpoolctl)."""
    release = getattr(OpenBLASController, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)


def blas_threads_for(n_rows: int) -> AbstractContextManager[None]:
    """Return a context that limits BLAS to one thread, for at most 2,048 rows."""
    if n_rows <= 2048 or _thread_limit.get() == 1:
        return one_blas_thread()
    return nullcontext()


def available_threads(cores: int | None = None) -> int:
    """Return the number of threads to use: one per unused core.

    At most ``NUMBA_NUM_THREADS``; one within a pass.
    """
    if cores is None:
        cores = _cores()
    return int(max(1, min(_thread_limit.get(), cores - _state.busy)))


@contextmanager
def at_most_threads(n_jobs: int | None) -> Iterator[None]:
    """Enter a context that limits the threads of each computation.

    `n_jobs` -1 means all cores, -2 all but one, None no limit. The smallest limit
    holds.
    """
    if n_jobs is not None and (not isinstance(n_jobs, Integral) or not n_jobs):
        raise ValueError(
            f"n_jobs must be a whole number but 0, or None, got {n_jobs!r}; -1 means all cores."
        )
    limit: float = inf
    if n_jobs is not None:
        limit = n_jobs if n_jobs > 0 else max(1, _cores() + 1 + n_jobs)
    token = _thread_limit.set(min(_thread_limit.get(), limit))
    try:
        yield
    finally:
        _thread_limit.reset(token)


def _cores() -> int:
    return int(min(joblib.cpu_count(), config.NUMBA_NUM_THREADS))


@contextmanager
def threads_of_a_pass(n_threads: int | None, n_tasks: int) -> Iterator[int]:
    """Enter a context with one BLAS thread; yield the number of reserved cores."""
    needs_cores = n_tasks > 1 and not n_threads  # counting takes time
    cores = _cores() if needs_cores else 1
    with one_blas_thread():
        with _lock:
            n = max(1, min(n_tasks, n_threads or available_threads(cores)))
            _state.busy += n
        try:
            with at_most_threads(1):  # for passes within this one
                yield n
        finally:
            with _lock:
                _state.busy -= n


SPANS = 16
"""Number of spans of rows; their 136 pairs occupy most computers."""

Step = Callable[[Any, Any, Any], Any]
"""``step(shared, argument, task)`` returns the result of one task."""


class RowSource(Protocol):
    """Protocol of data sets whose rows are read by slices, such as an ndarray."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def __getitem__(self, rows: slice, /) -> Rows: ...


class Workers(Protocol):
    """Protocol of workers (threads, processes) that execute tasks over rows and add results."""

    @property
    def memory(self) -> float:
        """Bytes for a task."""

    def scatter_rows(
        self, X: Rows, rows: np.ndarray | None, origin: np.ndarray
    ) -> RowSource:
        """Give workers ``X[rows] - origin``, read by slices; None means all rows."""

    def local_view(self, X: Rows) -> Rows:
        """Return X in a form whose rows this process can read."""

    def broadcast(self, value: Any) -> Any:
        """Send a value to the workers; return its handle for tasks."""

    def super_tile(self, n_rows: int, row_bytes: int) -> int:
        """Return the side of a task's Gram-matrix block."""

    def spans(self, n_rows: int, min_rows: int) -> list[tuple[int, int]]:
        """Divide rows into ranges, one per task, of at least `min_rows`."""

    def total(
        self, step: Step, shared: Any, argument: Any, tasks: Sequence[Any]
    ) -> Any:
        """Call `step` for each task, and add the results in fixed order.

        The sum may change results in place.
        """


@dataclass(frozen=True)
class SelectedRows:
    """Selected rows minus an origin, computed when read."""

    X: Rows
    rows: np.ndarray
    origin: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.rows), self.X.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.X.dtype)

    def __getitem__(self, rows: slice, /) -> Rows:
        return move(self.X[self.rows[rows]], self.origin)


@dataclass
class BlockResults:
    """Dictionary of arrays; addition adds arrays of equal keys."""

    arrays: dict[Any, np.ndarray]

    def __add__(self, other: BlockResults) -> BlockResults:
        for key, array in other.arrays.items():
            self.arrays[key] = self.arrays[key] + array if key in self.arrays else array
        return self

    def joined(self) -> np.ndarray:
        """Concatenate the arrays in the order of their keys."""
        return np.concatenate([self.arrays[key] for key in sorted(self.arrays)])


class Threads:
    """Workers that are threads, with BLAS limited to one thread."""

    memory = inf

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = n_threads

    def scatter_rows(
        self, X: Rows, rows: np.ndarray | None, origin: np.ndarray
    ) -> RowSource:
        if rows is None:
            if not origin.any():
                unchanged: RowSource = X
                return unchanged
            rows = np.arange(X.shape[0])
        return SelectedRows(X, rows, origin)

    def local_view(self, X: Rows) -> Rows:
        return X

    def broadcast(self, value: Any) -> Any:
        return value

    def super_tile(self, n_rows: int, row_bytes: int) -> int:
        """Return the number of rows of a task's square Gram-matrix block, for any number of threads."""
        rows_in_memory = (1 << 26) // max(1, row_bytes)
        size = min(4096, max(512, -(-n_rows // SPANS)))
        return max(1, min(size, rows_in_memory))

    def spans(self, n_rows: int, min_rows: int) -> list[tuple[int, int]]:
        """Divide rows into ranges, one per task, equal for any number of threads."""
        return spans(n_rows, max(min_rows, -(-n_rows // SPANS)))

    def total(
        self, step: Step, shared: Any, argument: Any, tasks: Sequence[Any]
    ) -> Any:
        with threads_of_a_pass(self.n_threads, len(tasks)) as n:
            if n == 1:
                return _sum(step(shared, argument, task) for task in tasks)
            with ThreadPoolExecutor(n) as threads:
                return _sum(
                    _results_in_order(
                        threads, n, lambda task: step(shared, argument, task), tasks
                    )
                )


def _results_in_order(
    threads: ThreadPoolExecutor, n: int, run: Callable[[Any], Any], tasks: Sequence[Any]
) -> Iterator[Any]:
    submitted: deque[Future[Any]] = deque()
    for task in tasks:
        submitted.append(threads.submit(copy_context().run, run, task))
        if len(submitted) > n:
            yield submitted.popleft().result()
    while submitted:
        yield submitted.popleft().result()


def _sum(parts: Iterator[Any]) -> Any:
    total = next(parts)
    for part in parts:
        total += part
    return total


def over_tiles(
    run: Callable[[slice, slice], Any], n_rows: int, n_columns: int | None, step: int
) -> Any:
    """Return the sum of a function over the blocks of a matrix; None for an empty matrix.

    `n_columns` None denotes the upper tiles of a symmetric matrix.
    """
    tiles = []
    for row in range(0, n_rows, step):
        rows = slice(row, min(row + step, n_rows))
        first_column, end = (row, n_rows) if n_columns is None else (0, n_columns)
        for column in range(first_column, end, step):
            tiles.append((rows, slice(column, min(column + step, end))))
    if not tiles:
        return None
    return Threads().total(
        lambda _shared, _argument, tile: run(*tile), None, None, tiles
    )


def spans(n_rows: int, size: int) -> list[tuple[int, int]]:
    """Divide rows into nearly equal ranges of at most `size` rows."""
    pieces = max(1, -(-n_rows // size))
    return [(n_rows * i // pieces, n_rows * (i + 1) // pieces) for i in range(pieces)]
