"""Functions that Numba compiles at their first call and caches on disk."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from hashlib import sha256
from inspect import getfile
from pathlib import Path
from typing import Any, TypeVar

from numba import njit
from numba.core import event

FAST = {"reassoc", "contract", "nsz"}
"""Sums may be reordered and fused; infinities, NaN and everything else stay as written."""

WITHOUT_SIMD = os.environ.get("LEARNKERNELS_SIMD") == "0"
"""Whether the environment requests plain loops in place of vector code."""

NOTICE = (
    "learnkernels: compiling inner loops, which takes some seconds and is done once.\n"
)
"""Written to standard error by a process that does not find its compiled code on disk."""

Function = TypeVar("Function", bound=Callable[..., Any])


def _version(path: str) -> str:
    """Return a digest of a file and of all files of this package, whose functions and classes it uses."""
    digest = sha256(str(WITHOUT_SIMD).encode())
    for source in [Path(path), *sorted(Path(__file__).parent.glob("*.py"))]:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def compiled(**options: Any) -> Callable[[Function], Function]:
    """Return a decorator for a function that Numba compiles with these options, without
    Python's lock.

    Numba names files of its cache after the function, and compares no other file than
    that of the function: the name gets a digest of all files that the code depends on.
    """

    def decorate(function: Function) -> Function:
        function.__qualname__ += f"-{_version(getfile(function))}"
        try:
            return njit(cache=True, nogil=True, **options)(function)
        except (
            RuntimeError
        ):  # there is no folder to write to, and NUMBA_CACHE_DIR names none
            return njit(nogil=True, **options)(function)

    return decorate


class _CompilationNotice(event.Listener):  # type: ignore[misc]
    """Writes `NOTICE` when the first function of this package is compiled, and not when one is read from disk."""

    is_written = False

    def on_start(self, event: Any) -> None:
        module = event.data["dispatcher"].py_func.__module__
        if (
            self.is_written
            or sys.stderr is None
            or not module.startswith("learnkernels.")
        ):
            return
        sys.stderr.write(NOTICE)
        self.is_written = True

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _CompilationNotice())
