"""How many threads work: those of this process that do a pass, and those of BLAS beneath them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from math import inf
from numbers import Integral
from threading import Lock
from typing import Any

from threadpoolctl import OpenBLASController, ThreadpoolController

from learnkernels.kernels.compiled.vectors import numba_settings

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
    from joblib import cpu_count  # here, as it takes long to load, as Numba does

    return int(min(cpu_count(), numba_settings().NUMBA_NUM_THREADS))


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
