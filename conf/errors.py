"""The error of a user's input, and what its sentences share."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence


class InputError(ValueError):
    """Something that the user gave is wrong; the message is one sentence that says what, where and what to do."""


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """Return words that offer the known name that is nearest to a given one, and a space; nothing where none is."""
    close = difflib.get_close_matches(str(given), list(known), n=1)
    return f"did you mean {close[0]!r}? " if close else ""


def listed(names: Sequence[object], most: int = 12, show: Callable[[str], str] = repr) -> str:
    """Return names for a sentence, quoted unless `show` says otherwise, and counted where they are many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(show(str(name)) for name in names[:most]) + more
