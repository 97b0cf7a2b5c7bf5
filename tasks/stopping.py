"""How a command ends by Ctrl-C or a signal: everything open has a last word, children go, and it never takes long."""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import FrameType, SimpleNamespace

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

PATIENCE = 8.0
"""Seconds that the main thread has to close what is open; then that is done without it."""

AGAIN = 0.7
"""Seconds until a main thread that shows no sign of ending is interrupted again: libraries swallow interrupts."""

WORD_SECONDS = 1.5
"""How long each last word may take that is spoken without the main thread."""


class Stopped(KeyboardInterrupt):
    """A signal has asked this process to end."""


_state = SimpleNamespace(received=None, code=None, kept="nothing was begun", last_words=[], over=threading.Lock())
"""What the parts of this process have to agree on: signal, exit code, sentence, last words, and who ends it."""


def requested() -> bool:
    """Return whether a signal has asked this process to end."""
    return bool(_state.received)


def keep(what: str) -> None:
    """Say what of this command is kept when it is stopped."""
    _state.kept = what


@contextmanager
def last_word(say: Callable[[], object]) -> Iterator[None]:
    """Within the context, have something said if this process is ended while the main thread does not respond."""
    _state.last_words.append(say)
    try:
        yield
    finally:
        _state.last_words.remove(say)


class StepStopped(BaseException):
    """A step ends early, as its run was stopped or another step of the run has failed."""

    def __init__(self) -> None:
        super().__init__("the run was stopped, or another step has failed")


_steps: ContextVar[list[int] | None] = ContextVar("steps", default=None)
"""Threads that run steps of this run."""

_entering = threading.Lock()
"""Held while a thread is stopped, or begins or ends a step: none is stopped that has ended its step."""


@contextmanager
def stopping_steps() -> Iterator[None]:
    """Within the context, steps in other threads end at their next instruction when an error ends this thread."""
    threads: list[int] = []
    token = _steps.set(threads)
    try:
        yield
    except BaseException:
        with _entering:
            for thread in set(threads) - {threading.get_ident()}:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(StepStopped))
        raise
    finally:
        _steps.reset(token)


@contextmanager
def stoppable() -> Iterator[None]:
    """Within the context, this thread is one that `stopping_steps` of its run stops."""
    threads, thread = _steps.get(), threading.get_ident()
    if threads is None:
        yield
        return
    with _entering:
        threads.append(thread)
    try:
        yield
    finally:
        with _entering:
            threads.remove(thread)


@contextmanager
def orderly_end() -> Iterator[None]:
    """Run a command so that SIGINT, SIGTERM and SIGHUP end it with a message and 128 plus the signal as exit code.

    A signal raises `Stopped` in the main thread, again if that was swallowed. When the stack is unwound, or after
    `PATIENCE` without it, remaining children are killed and the process ends, whatever its threads still do. A command
    that ends by itself does so when all is done that was registered for its end, and takes nothing apart in memory.
    """
    atexit.register(_leave)  # before all others, and so done after them
    receiving, sending = os.pipe()
    os.set_blocking(sending, False)
    sys.unraisablehook = _unraisable
    try:
        signal.set_wakeup_fd(sending, warn_on_full_buffer=False)  # told even while the main thread is in compiled code
        for number in SIGNALS:
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                signal.signal(number, _interrupt)
        threading.Thread(target=_watch, args=(receiving,), name="stopping", daemon=True).start()
        yield
    except BaseException as error:
        if not requested():
            _ignore()  # what is left to do takes no longer than a signal would
            if isinstance(error, SystemExit):
                _state.code = error.code if isinstance(error.code, int) else int(error.code is not None)
            raise
    else:
        _ignore()
        _state.code = 0
    if requested():
        _end()


def _leave() -> None:
    """End with the exit code of a command that has ended: freeing its memory bit by bit takes two seconds."""
    if _state.code is not None:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(_state.code)


def _unraisable(what: sys.UnraisableHookArgs) -> None:
    """Say nothing of a signal that came while Python was putting something away: it is raised again soon.

    Within a flow it is Prefect's own, which is no `Exception` either.
    """
    if what.exc_value is None or isinstance(what.exc_value, Exception):
        sys.__unraisablehook__(what)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise, unless the main thread is on its way out already."""
    _state.received = _state.received or number
    error = sys.exc_info()[1]
    while error is not None:
        if not isinstance(error, Exception):
            return
        error = error.__context__
    raise Stopped(signal.Signals(number).name)


def _watch(receiving: int) -> None:
    """Wait for a signal; see to it that the main thread notices, and end without it if it takes too long."""
    while (number := os.read(receiving, 1)[0]) not in SIGNALS:
        pass
    _state.received = _state.received or number
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE:
        time.sleep(AGAIN)
        with suppress(ProcessLookupError):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    for say in reversed(_state.last_words):
        speaking = threading.Thread(target=_say, args=(say,), daemon=True)
        speaking.start()
        speaking.join(WORD_SECONDS)
    _end()


def _say(word: Callable[[], object]) -> None:
    with suppress(BaseException):
        word()


def _end() -> None:
    """Kill what is left of the children, say the sentence, and end."""
    import psutil  # here, as help and errors come at once

    with _state.over:  # the first thread to come here ends them all
        children = psutil.Process().children(recursive=True)
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, timeout=1)
        shown = "\x1b[?25h" if sys.stderr.isatty() else ""  # the cursor, hidden beside a progress bar
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.write(f"{shown}stopped; {_state.kept}.\n")
            sys.stderr.flush()
        os._exit(128 + (_state.received or 0))


def _ignore() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
