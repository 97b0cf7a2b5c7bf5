"""Check error messages of wrong input: a table of cases is one test that reports every failure."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def refusal(
    act: Callable[..., object], *args: Any, error: type[ValueError] = ValueError
) -> str:
    """Return the one-line message of a call that must raise exactly `error`."""
    # The exception is not kept, so that its frames close their files
    try:
        act(*args)
    except ValueError as raised:
        kind = type(raised)
        message = str(raised)
    else:
        pytest.fail("nothing was refused")
    assert kind is error, f"{kind.__name__}: {message}"
    assert re.fullmatch(r"[^\n]*\.", message), message
    return message


def require_refusals(
    table: Iterable[tuple[Callable[[], object], str]],
    literal: bool = False,
    by: Callable[[Callable[[], object]], str] | None = None,
    error: type[ValueError] = ValueError,
) -> list[str]:
    """Return the messages of calls that must fail; report every call that does not.

    Parameters
    ----------
    table : iterable of (callable, str)
        Calls, and a pattern that the message contains.
    literal : bool
        Whether the patterns are plain texts.
    by : callable, optional
        Function that returns the message of a call, by default `refusal`.
    error : type
        Exact type of the error.
    """
    messages = []
    failures = []
    n_rows = 0
    for act, pattern in table:
        n_rows += 1
        try:
            message = by(act) if by else refusal(act, error=error)
            expected = re.escape(pattern) if literal else pattern
            assert re.search(expected, message), message
            messages.append(message)
        except (Exception, pytest.fail.Exception) as wrong:
            failures.append(
                f"row {n_rows}, {pattern!r}: {type(wrong).__name__}: {wrong}"
            )
    assert n_rows, "the table has no rows"
    assert not failures, "\n".join(failures)
    return messages
