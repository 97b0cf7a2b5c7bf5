"""Seeded damage of files and texts, and what becomes of a process that meets it."""

from __future__ import annotations

import os
import pickle
import re
import resource
import signal
import struct
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

INTEGERS = (0, 1, -1, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63), 2**40, 255)
"""Numbers that sizes, offsets and counts in a file are replaced by."""

LONGEST = 400
"""Characters of a sentence, about."""


# Damage --------------------------------------------------------------------------------------------------------------


def mutated(content: bytes, random: Random) -> bytes:
    """Return a damaged copy of the content of a file: one to three changes, drawn from `CHANGES`."""
    damaged = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        if damaged:
            random.choice(CHANGES)(damaged, random)
    return bytes(damaged)


def _span(data: bytearray, random: Random) -> slice:
    """Return a run of bytes, short ones as likely as long ones."""
    length = min(len(data), 1 << random.randrange(1 + max(1, len(data)).bit_length()))
    start = random.randrange(len(data) - length + 1)
    return slice(start, start + length)


def flip(data: bytearray, random: Random) -> None:
    """Flip some bits, each anywhere."""
    for _ in range(1 << random.randrange(7)):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def truncate(data: bytearray, random: Random) -> None:
    """Cut off the end."""
    del data[random.randrange(len(data)) :]


def duplicate(data: bytearray, random: Random) -> None:
    """Repeat a run of bytes where it stands."""
    span = _span(data, random)
    data[span.stop : span.stop] = data[span]


def zero(data: bytearray, random: Random) -> None:
    """Overwrite a run of bytes by zeros, as a disk leaves them that was full or lost power."""
    span = _span(data, random)
    data[span] = bytes(span.stop - span.start)


def drop(data: bytearray, random: Random) -> None:
    """Leave a run of bytes out."""
    del data[_span(data, random)]


def splice(data: bytearray, random: Random) -> None:
    """Overwrite a run of bytes by one from elsewhere in the file."""
    span = _span(data, random)
    start = random.randrange(len(data) - (span.stop - span.start) + 1)
    data[span] = data[start : start + span.stop - span.start]


def integer(data: bytearray, random: Random) -> None:
    """Replace an integer of four or eight bytes by an extreme one, or by one that is near."""
    width = random.choice((4, 8))
    if len(data) < width:
        return
    # The footers of Parquet and Arrow are at the end
    tail = min(len(data) - width, 600)
    start = random.choice(
        (
            random.randrange(len(data) - width + 1),
            len(data) - width - random.randrange(tail + 1),
        )
    )
    old = int.from_bytes(data[start : start + width], "little", signed=True)
    new = random.choice((*INTEGERS, old + 1, old - 1, old * 2, -old)) % (1 << 8 * width)
    data[start : start + width] = struct.pack("<Q", new)[:width]


def swap(data: bytearray, random: Random) -> None:
    """Exchange two integers of four bytes."""
    if len(data) < 8:
        return
    one, other = sorted(random.randrange(len(data) - 3) for _ in range(2))
    if other - one >= 4:
        data[one : one + 4], data[other : other + 4] = (
            data[other : other + 4],
            data[one : one + 4],
        )


CHANGES: tuple[Callable[[bytearray, Random], None], ...] = (
    flip,
    truncate,
    duplicate,
    zero,
    drop,
    splice,
    integer,
    swap,
)

TOKENS = (
    *(
        "",
        "0",
        "-1",
        "1e999",
        "1e-999",
        ".nan",
        "-.inf",
        "0x10",
        "1_000",
        "9" * 400,
        "1000000000",
        "-1000000000",
    ),
    *(
        "null",
        "~",
        "true",
        "no",
        "''",
        "' '",
        "x",
        "é",
        "\u202e",
        "'\\n'",
        "a" * 5000,
        "2026-01-01",
        "!!binary aGk=",
    ),
    *(
        "[]",
        "{}",
        "[[]]",
        "[1, [2]]",
        "{a: {b: 1}}",
        "{1: 2}",
        "[null]",
        "&a [*a]",
        "!!python/object:os.system x",
    ),
    *(
        "../../x",
        "/dev/zero",
        "s3://",
        "http://x",
        "%s",
        "{}",
        "[bold]x[/bold]",
        "<b>",
        "|",
        "- - -",
    ),
)
"""What a word of a configuration is replaced by."""

WORD = re.compile(r"[\w./-]+")


def mutated_text(text: str, random: Random) -> str:
    """Return a changed copy of a text of YAML or key=value: one to three words or lines replaced, moved or left out."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        lines, words = text.splitlines(keepends=True) or [""], list(WORD.finditer(text))
        place = random.randrange(len(lines))
        way = random.randrange(8)
        if way <= 3 and words:
            word = random.choice(words)
            other = random.choice(TOKENS) if way <= 2 else random.choice(words)[0]
            text = text[: word.start()] + other + text[word.end() :]
            continue
        if way == 4:
            lines.insert(random.randrange(len(lines)), lines[place])
        elif way == 5:
            del lines[place]
        elif way == 6:
            lines[place] = (
                random.choice(("  ", "\t", "- ", "? ", ": ", "#", "\0", "\ufeff"))
                + lines[place]
            )
        else:
            lines[place] = mutated(lines[place].encode(), random).decode("latin-1")
        text = "".join(lines)
    return text


# Consequences --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fate:
    """What became of one case.

    Attributes
    ----------
    case : object
        What the act was called with.
    kind : str
        ``done``, ``sentence`` (an error of a user's input), ``long`` (such an error
        that is no sentence of one line), ``error`` (anything else that was raised),
        ``memory`` (more of it was taken than allowed), or ``died``.
    text : str
        The message, the traceback, or how the process died.
    """

    case: Any
    kind: str
    text: str = ""

    @property
    def fine(self) -> bool:
        """Whether it worked, or ended in one sentence."""
        return self.kind in ("done", "sentence")


def fates(
    cases: Sequence[Any],
    act: Callable[[Any], Any],
    errors: tuple[type[Exception], ...],
    seconds: int = 60,
    memory: int = 1 << 30,
    longest: int = LONGEST,
) -> Iterator[Fate]:
    """Give what becomes of each case in a forked process; a process that dies is
    replaced for the cases that are left.

    Parameters
    ----------
    cases : sequence
        What `act` is called with, one after the other.
    act : callable
    errors : tuple of exceptions
        Those that are sentences for a user.
    seconds : int
        How long a case may take until its process is killed.
    memory : int
        Bytes that a process may take beyond what it had; it is stopped near twice of
        that.
    longest : int
        Characters of a sentence.
    """
    done = 0
    while done < len(cases):
        reader, writer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            # a fork beside threads, which the child does not use
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            os.close(reader)
            _work(cases[done:], act, errors, seconds, memory, longest, writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as results:
            for fate in _results(results, cases[done:]):
                done += 1
                yield fate
        _, status = os.waitpid(pid, 0)
        # a child that took too much memory ends well after its case
        if done < len(cases) and status:
            how = (
                signal.Signals(os.WTERMSIG(status)).name
                if os.WIFSIGNALED(status)
                else f"status {status}"
            )
            yield Fate(cases[done], "died", how)
            done += 1


def _results(stream: Any, cases: Sequence[Any]) -> Iterator[Fate]:
    for case in cases:
        try:
            kind, text = pickle.load(stream)
        except EOFError:
            return
        yield Fate(case, kind, text)


def _work(
    cases: Iterable[Any],
    act: Callable[[Any], Any],
    errors: tuple[type[Exception], ...],
    seconds: int,
    memory: int,
    longest: int,
    writer: int,
) -> None:
    """Work on cases in a child, which never returns."""
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        taken = _peak()
        with open("/proc/self/statm") as held:
            pages = int(held.read().split()[0])
        resource.setrlimit(
            resource.RLIMIT_AS,
            (pages * resource.getpagesize() + 2 * memory + (4 << 30),) * 2,
        )
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with os.fdopen(writer, "wb") as results:
            for case in cases:
                signal.alarm(seconds)
                kind, text = _fate(case, act, errors, longest)
                if fat := _peak() - taken > memory:
                    kind, text = (
                        "memory",
                        f"{(_peak() - taken) >> 20} MiB; {kind}: {text}",
                    )
                pickle.dump((kind, text), results)
                results.flush()
                if fat:
                    break
        status = 0
    finally:
        os._exit(status)


def _fate(
    case: Any,
    act: Callable[[Any], Any],
    errors: tuple[type[Exception], ...],
    longest: int,
) -> tuple[str, str]:
    try:
        act(case)
    except errors as error:
        text = str(error)
        return ("sentence" if is_sentence(text, longest) else "long"), text
    except BaseException:
        return "error", traceback.format_exc()
    return "done", ""


def is_sentence(text: str, longest: int = LONGEST) -> bool:
    """Return whether a message is one line of a length that can be read, which ends as a sentence does."""
    return len(text) <= longest and text.isprintable() and text.endswith(".")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
