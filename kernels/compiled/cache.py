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
"""Fast-math flags of LLVM that respect infinities and NaN."""

WITHOUT_SIMD = os.environ.get("LEARNKERNELS_SIMD") == "0"

NOTICE = (
    "learnkernels: compiling inner loops, which takes some seconds and is done once.\n"
)

Function = TypeVar("Function", bound=Callable[..., Any])


def _version(path: str) -> str:
    digest = sha256(f"{__name__} {WITHOUT_SIMD}".encode())
    for source in [Path(path), *sorted(Path(__file__).parent.glob("*.py"))]:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def compiled(**options: Any) -> Callable[[Function], Function]:
    """Return a decorator that compiles functions with Numba, without the GIL.

    Names of functions get a digest of this package, which Numba does not check.
    """

    def decorate(function: Function) -> Function:
        function.__qualname__ += f"-{_version(getfile(function))}"
        try:
            return njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:  # no writable folder; see NUMBA_CACHE_DIR
            return njit(nogil=True, **options)(function)

    return decorate


class _CompilationNotice(event.Listener):  # type: ignore[misc]
    """Writes `NOTICE` at the first compilation, not for cached functions."""

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
