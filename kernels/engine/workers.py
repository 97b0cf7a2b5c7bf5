"""Who does the passes over rows, threads of this process or other workers; and the threads of BLAS beneath them."""

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

SMALL = 2048
"""Most rows of a Gram matrix whose factorizations leave BLAS one thread."""


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@dataclass
class _Process:
    """What the parts of this process that run at the same time have to agree on, as BLAS has one setting for all.

    Attributes
    ----------
    inside : int
        Contexts entered and not yet left in which BLAS has one thread.
    limit
        Knows what BLAS was set to before the first of them; None where a thread of the user's keeps it at its own.
    busy : int
        Threads that do passes.
    """

    inside: int = 0
    limit: Any = None
    busy: int = 0


_process, _lock = _Process(), Lock()


def _begin_anew() -> None:
    """Forget what other threads were doing, in a process that was forked while they did it."""
    global _process, _lock
    _process, _lock = _Process(), Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)

_most: ContextVar[float] = ContextVar("most", default=inf)
"""Threads that a pass of this thread may use at most."""


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Enter a context in which BLAS uses one thread, in all of this process.

    The products of a tile take a fraction of a millisecond; BLAS threads then wait for each other longer than they
    work, and on a machine whose cores are busy a pass takes three to ten times as long as with one thread.

    Notes
    -----
    Contexts may overlap in any way, as those of fits in several threads do: the first one to be entered remembers what
    the user has set, the last one to be left restores it.
    """
    with _lock:
        if not _process.inside:
            limit = _controller().limit(limits=1, user_api="blas")
            libraries = [one for one in _controller().info() if one["user_api"] == "blas"]
            _process.limit = limit if all(one["num_threads"] == 1 for one in libraries) else None
        _process.inside += 1
    try:
        yield
    finally:
        with _lock:
            _process.inside -= 1
            if not _process.inside and _process.limit is not None:
                _release_blas()  # the thread that entered first and took it may have left long ago
                _process.limit.restore_original_limits()
                _release_blas()


def _release_blas() -> None:
    """Let any thread set BLAS; in newer versions of threadpoolctl the first to do so keeps it from others."""
    release = getattr(OpenBLASController, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)


def blas_threads_for(n_rows: int) -> AbstractContextManager[None]:
    """Return a context in which BLAS uses one thread if the Gram matrices have few rows, or no more are allowed.

    A factor of a thousand rows takes ten milliseconds; a second thread saves four of them on an idle machine, and on a
    busy one the two wait for each other for a hundred times as long.
    """
    return one_blas_thread() if n_rows <= SMALL or _most.get() == 1 else nullcontext()


def available_threads(cores: int | None = None) -> int:
    """Return how many threads a pass may start now: the cores of this process that no other pass has, at least one.

    Notes
    -----
    Cores are those that joblib counts, by affinity and the limits of a container, and no more than Numba's
    ``NUMBA_NUM_THREADS``: where joblib runs several processes it sets that to the share of each. Within
    a pass there is one thread: that which asks.
    """
    cores = _cores() if cores is None else cores
    return int(max(1, min(_most.get(), cores - _process.busy)))


@contextmanager
def at_most_threads(n_jobs: int | None) -> Iterator[None]:
    """Enter a context in which each pass may use so many threads, as scikit-learn's `n_jobs` counts them.

    Parameters
    ----------
    n_jobs : int or None
        So many; -1 for all, -2 for all but one; None sets no limit. Of contexts around each other the least counts.
    """
    if n_jobs is not None and (not isinstance(n_jobs, Integral) or not n_jobs):
        raise ValueError(f"n_jobs must be a whole number but 0, or None, got {n_jobs!r}; -1 means all cores.")
    most = inf if n_jobs is None else n_jobs if n_jobs > 0 else max(1, _cores() + 1 + n_jobs)
    token = _most.set(min(_most.get(), most))
    try:
        yield
    finally:
        _most.reset(token)


def _cores() -> int:
    return int(min(joblib.cpu_count(), config.NUMBA_NUM_THREADS))


@contextmanager
def threads_of_a_pass(wanted: int | None, most: int) -> Iterator[int]:
    """Enter a context in which a pass may use as many threads as it is given here, and BLAS one.

    Parameters
    ----------
    wanted : int or None
        That many; None takes those that are available.
    most : int
        Tasks of the pass; none take one thread.
    """
    cores = 1 if most == 1 or wanted else _cores()
    with one_blas_thread():
        with _lock:
            n = max(1, min(most, wanted or available_threads(cores)))
            _process.busy += n
        try:
            with at_most_threads(1):  # for passes within this one
                yield n
        finally:
            with _lock:
                _process.busy -= n


SPANS = 16
"""Runs that many rows are cut into: 136 squares of pairs keep as many threads busy as most machines have."""

SUPER_TILES = 512, 4096
"""Fewest and most rows of the square of pairs that one thread takes at a time."""

SUPER_TILE_BYTES = 1 << 26
"""Most that the rows of such a side take, as a pass lays them out."""

Step = Callable[[Any, Any, Any], Any]
"""``step(shared, argument, task)`` is what one task adds to a total."""


class RowSource(Protocol):
    """Rows that are read a run at a time; an ndarray and a CSR matrix are such.

    Attributes
    ----------
    shape : tuple of int
        (m, d).
    dtype : numpy.dtype
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def __getitem__(self, rows: slice, /) -> Rows: ...


class Workers(Protocol):
    """Do independent tasks over rows and add up what they return."""

    def scatter_rows(self, X: Rows, rows: np.ndarray | None, origin: np.ndarray) -> RowSource:
        """Return ``X[rows] - origin`` such that tasks can read runs of it; all of `X` where `rows` is None."""

    def local_view(self, X: Rows) -> Rows:
        """Return `X` such that this process can read some of its rows."""

    def broadcast(self, value: Any) -> Any:
        """Return a handle of what every task of a pass needs, sent to the workers once."""

    def super_tile(self, n_rows: int, row_bytes: int) -> int:
        """Return how many of m rows, of so many bytes each, a side of the square of pairs of one task has."""

    def spans(self, n_rows: int, least: int) -> list[tuple[int, int]]:
        """Return runs that cover all rows, of at least so many rows where there are enough, for one task each."""

    def total(self, step: Step, shared: Any, argument: Any, tasks: Sequence[Any]) -> Any:
        """Return the sum of ``step(value of shared, argument, task)`` over at least one task.

        The order of additions does not depend on who is done first. What `step` returns may be written to by the sum.
        Around a step BLAS has one thread.
        """


@dataclass(frozen=True)
class SelectedRows:
    """Some rows of a data set, less one row, taken a run at a time; nothing is copied until it is requested.

    Attributes
    ----------
    X : ndarray or CSR matrix of shape (n, d), or what is indexed in the same way
        May be mapped from a file, or be files of another machine.
    rows : ndarray of int of shape (m,)
    origin : ndarray of shape (d,)
    """

    X: Rows
    rows: np.ndarray
    origin: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """(m, d)."""
        return (len(self.rows), self.X.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""
        return np.dtype(self.X.dtype)

    def __getitem__(self, rows: slice, /) -> Rows:
        return move(self.X[self.rows[rows]], self.origin)


@dataclass
class BlockResults:
    """Arrays by key, such as values of some runs of rows; adding two adds what is of the same key.

    Attributes
    ----------
    of : dict of object to ndarray
        Of a run of rows by its position, shape (rows of the run, c).
    """

    of: dict[Any, np.ndarray]

    def __add__(self, other: BlockResults) -> BlockResults:
        for key, values in other.of.items():
            self.of[key] = self.of[key] + values if key in self.of else values
        return self

    def joined(self) -> np.ndarray:
        """Return the values of all runs, in their order."""
        return np.concatenate([self.of[run] for run in sorted(self.of)])


class Threads:
    """Threads of this process, with BLAS at one thread while they work.

    Parameters
    ----------
    n_threads : int, optional
        By default `available_threads`, at the time of each pass.
    """

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = n_threads

    def scatter_rows(self, X: Rows, rows: np.ndarray | None, origin: np.ndarray) -> RowSource:
        """Return the rows where they are."""
        if rows is None and not origin.any():
            held: RowSource = X
            return held
        return SelectedRows(X, np.arange(X.shape[0]) if rows is None else rows, origin)

    def local_view(self, X: Rows) -> Rows:
        """Return the rows."""
        return X

    def broadcast(self, value: Any) -> Any:
        """Return the value."""
        return value

    def super_tile(self, n_rows: int, row_bytes: int) -> int:
        """Return a size that leaves some tasks for each thread, without many results to add.

        It follows from the rows and not from the threads, on which the last bits of a sum would then depend.
        """
        least, most = SUPER_TILES
        return max(1, min(most, max(least, -(-n_rows // SPANS)), SUPER_TILE_BYTES // max(1, row_bytes)))

    def spans(self, n_rows: int, least: int) -> list[tuple[int, int]]:
        """Return runs whose number follows from the rows and not from the threads, as do the last bits of a sum."""
        return spans(n_rows, max(least, -(-n_rows // SPANS)))

    def total(self, step: Step, shared: Any, argument: Any, tasks: Sequence[Any]) -> Any:
        """Return the sum, added here in the order of the tasks, whatever the number of threads."""
        with threads_of_a_pass(self.n_threads, len(tasks)) as n:
            if n == 1:
                return _sum(step(shared, argument, task) for task in tasks)
            with ThreadPoolExecutor(n) as threads:
                return _sum(_in_order(threads, n, lambda task: step(shared, argument, task), tasks))


def _in_order(threads: ThreadPoolExecutor, n: int, run: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
    """Yield the results of tasks in their order, with one more of them under way or waiting than there are threads."""
    waiting: deque[Future[Any]] = deque()
    for task in tasks:
        waiting.append(threads.submit(copy_context().run, run, task))
        if len(waiting) > n:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _sum(parts: Iterator[Any]) -> Any:
    """Return the sum of parts, in place where they can be added so."""
    total = next(parts)
    for part in parts:
        total += part
    return total


def over_tiles(run: Callable[[slice, slice], Any], n_rows: int, n_columns: int | None, step: int) -> Any:
    """Return the sum of what a function returns for each tile of a matrix, by threads here; None where there is none.

    Parameters
    ----------
    run : callable
        Of the rows and the columns of a tile.
    n_rows, n_columns : int
        Of the matrix; of a symmetric one, without a number of columns, the tiles on and above the diagonal.
    step : int
        Rows and columns of a tile at most.
    """
    m = n_rows if n_columns is None else n_columns
    starts = range(0, n_rows, step)
    columns = {i: range(i if n_columns is None else 0, m, step) for i in starts}
    tiles = [(slice(i, min(i + step, n_rows)), slice(j, min(j + step, m))) for i in starts for j in columns[i]]
    return Threads().total(lambda *task: run(*task[2]), None, None, tiles) if tiles else None


def spans(n_rows: int, size: int) -> list[tuple[int, int]]:
    """Return runs of at most `size` rows, of nearly equal length, that cover all rows."""
    pieces = max(1, -(-n_rows // size))
    return [(n_rows * i // pieces, n_rows * (i + 1) // pieces) for i in range(pieces)]
