"""Functions of arrays that Numba compiles when they are first called, and keeps on disk for the next process."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from hashlib import sha256
from inspect import getsource, signature
from threading import RLock
from typing import Any, TypeVar, cast

from learnkernels.kernels.compiled.vectors import numba_settings, written

FAST = {"reassoc", "contract", "nsz"}
"""Sums may be reordered and fused; infinities, NaN and everything else stay as written."""

NOTICE = "learnkernels: compiling inner loops, which takes some seconds and is done once.\n"
"""Said on standard error by a process that finds nothing compiled."""

Function = TypeVar("Function", bound=Callable[..., Any])

_waiting: dict[str, dict[str, Callable[[], Any]]] = {}
"""By module and name, what makes each function of the modules of which none has been called."""

_lock, _said = RLock(), False


def compiled(**options: Any) -> Callable[[Function], Function]:
    """Return a decorator for a function of a module, to be compiled with these options of Numba and without its lock.

    Notes
    -----
    Nothing is loaded before the first call of a function of the module, which makes all of them, and those of other
    modules that it names.
    """

    def of(function: Function) -> Function:
        return _awaiting(function, lambda: _kept({"nogil": True, **options}, function))

    return of


def emitted(write: Callable[..., None]) -> Callable[..., None]:
    """Return a function of arrays and numbers, for those that are compiled, whose code the one given writes itself.

    That is given `Vectors` of the type of the first array, then each argument: of an array the place of its first
    value, of an array and a position in it the place of that value, of a number its value, and a literal as it is where
    ``int`` is declared.

    Notes
    -----
    Its loops are a function of their own in what is compiled: the registers are theirs alone.
    """

    def make() -> Any:
        from numba.extending import intrinsic

        def define(_: Any, *kinds: Any) -> Any:
            return written(write, kinds)

        define.__name__, define.__signature__ = write.__name__, signature(write)  # type: ignore[attr-defined]
        return intrinsic(prefer_literal=True)(define)

    return _awaiting(write, make)


def _awaiting(function: Function, make: Callable[[], Any]) -> Function:
    """Return a stub of a function, compiled when one of its module is called."""
    _waiting.setdefault(function.__module__, {})[function.__name__] = make
    made: Any = None

    @wraps(function)
    def call(*arguments: Any) -> Any:
        nonlocal made
        if made is None:
            made = _made(function.__globals__)[function.__name__]
        return made(*arguments)

    call.awaits = function.__globals__  # type: ignore[attr-defined]
    return cast(Function, call)


def _made(names: dict[str, Any]) -> dict[str, Any]:
    """Put what is compiled in the place of what waits in a module, as they call each other, and return its names.

    Functions are compiled for the types of their arguments when they are called.
    """
    with _lock:
        for name, make in _waiting.pop(names["__name__"], {}).items():
            names[name] = make()
        for name, waits in list(names.items()):
            if hasattr(waits, "awaits"):  # that of another module
                names[name] = _made(waits.awaits)[waits.__name__]
        return names


def _kept(options: dict[str, Any], function: Callable[..., Any]) -> Any:
    """Return a function that is kept next to the code, in the user's folder, in a temporary one, or nowhere."""
    settings = numba_settings()
    from numba import njit

    def kept() -> Any:
        """Return the function; what is on disk is not read where a module has changed whose names or code it has."""
        dispatcher = njit(cache=True, **options)(function)
        names = function.__globals__
        modules = {one.awaits["__name__"] for one in names.values() if hasattr(one, "awaits")}
        digest = sha256()
        for module in sorted(modules | {names["__name__"], written.__module__}):
            digest.update(getsource(sys.modules[module]).encode())
        index = dispatcher._cache._cache_file
        index._version = f"{index._version} {digest.hexdigest()}"  # compared before the rest is unpickled
        _tell(dispatcher.stats.cache_path)
        return dispatcher

    before = settings.CACHE_DIR
    try:
        with suppress(RuntimeError):  # Numba finds no folder that it may write to
            return kept()
        if (folder := _private_folder()) is not None:
            settings.CACHE_DIR = folder
            with suppress(RuntimeError):
                return kept()
        _tell(None)
        return njit(**options)(function)
    finally:
        settings.CACHE_DIR = before


def _private_folder() -> str | None:
    """Return a temporary folder for what is compiled, made if missing, in which no other user can write."""
    if not hasattr(os, "getuid"):
        return None
    try:
        folder = os.path.join(tempfile.gettempdir(), f"learnkernels-{os.getuid()}")
        if not os.path.lexists(folder):
            os.mkdir(folder, 0o700)
        about = os.lstat(folder)
    except OSError:
        return None
    ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and stat.S_IMODE(about.st_mode) == 0o700
    return folder if ours else None


def _tell(folder: str | None) -> None:
    """Say once why the first call takes so long, where nothing compiled is in the folder."""
    global _said
    kept = folder is not None and os.path.isdir(folder) and any(name.endswith(".nbi") for name in os.listdir(folder))
    if not (_said or kept or sys.stderr is None):
        sys.stderr.write(NOTICE)
    _said = True
