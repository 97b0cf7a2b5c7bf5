"""One BLAS thread for work that is made of many small products."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache

from threadpoolctl import ThreadpoolController

SMALL = 2048
"""Most rows of a Gram matrix whose factorisations leave BLAS one thread."""


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which BLAS uses one thread.

    The products of a tile take a fraction of a millisecond; BLAS threads then wait for each other longer than they
    work, and on a machine whose cores are busy a pass takes three to ten times as long as with one thread.
    """
    return _controller().limit(limits=1, user_api="blas")


def blas_threads_for(n_rows: int) -> AbstractContextManager[object]:
    """Return a context in which BLAS uses one thread if the Gram matrices have few rows.

    A factor of a thousand rows takes ten milliseconds; a second thread saves four of them on an idle machine, and on a
    busy one the two wait for each other for a hundred times as long.
    """
    return one_blas_thread() if n_rows <= SMALL else nullcontext()
