"""Functions of arrays that Numba compiles when they are first called, and keeps on disk for the next process."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, TypeVar, cast

FAST = {"reassoc", "contract", "nsz"}
"""Sums may be reordered and fused; infinities, NaN and everything else stay as written."""

NOTICE = "learnkernels: compiling inner loops, which takes some seconds and is done once.\n"
"""Said on standard error by a process that finds nothing compiled."""

Function = TypeVar("Function", bound=Callable[..., Any])

_waiting: dict[str, dict[str, tuple[Callable[..., Any], dict[str, Any]]]] = {}
"""By module and name, functions of modules of which none has been called."""

_lock, _said = RLock(), False


def compiled(**options: Any) -> Callable[[Function], Function]:
    """Return a decorator for a function of a module, to be compiled with these options of Numba and without its lock.

    Notes
    -----
    Nothing is loaded before the first call of a function of the module, which makes all of them.
    """

    def of(function: Function) -> Function:
        _waiting.setdefault(function.__module__, {})[function.__name__] = function, options
        made: Any = None

        @wraps(function)
        def call(*arguments: Any) -> Any:
            nonlocal made
            if made is None:
                made = _made(function)
            return made(*arguments)

        return cast(Function, call)

    return of


def _made(function: Callable[..., Any]) -> Any:
    """Put the compiled functions of a module in the place of those that wait, as they call each other, and return one.

    They are compiled for the types of their arguments when they are called.
    """
    with _lock:
        names = function.__globals__
        for name, (waiting, options) in _waiting.pop(function.__module__, {}).items():
            names[name] = _kept({"nogil": True, **options}, waiting)
            _tell(names[name].stats.cache_path)
        return names[function.__name__]


def _kept(options: dict[str, Any], function: Callable[..., Any]) -> Any:
    """Return a function that is kept beside the code, in the user's folder, in a temporary one, or nowhere."""
    from numba import config, njit

    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # Numba finds no folder that it may write to
        folder = _private_folder()
    if folder is None:
        return njit(**options)(function)
    before, config.CACHE_DIR = config.CACHE_DIR, folder
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:
        return njit(**options)(function)
    finally:
        config.CACHE_DIR = before


def _private_folder() -> str | None:
    """Return a temporary folder for what is compiled, made if missing, in which nobody else can put anything."""
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
