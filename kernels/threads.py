"""One BLAS thread for work that is made of many small products."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which BLAS uses one thread.

    The products of a tile take a fraction of a millisecond; BLAS threads then wait for each other longer than they
    work, and on a machine whose cores are busy a pass takes three to ten times as long as with one thread.
    """
    return _controller().limit(limits=1, user_api="blas")
