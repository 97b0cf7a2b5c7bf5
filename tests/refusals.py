"""Sentences that refuse wrong input: a table of them is one test, which reports every row that fails."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def refusal(
    act: Callable[..., object], *args: Any, error: type[ValueError] = ValueError
) -> str:
    """Return the sentence, of one line, by which something is refused with an error of exactly this type."""
    try:
        act(*args)
    except (
        ValueError
    ) as refused:  # not kept, so that what its frames hold open is closed
        kind, said = type(refused), str(refused)
    else:
        pytest.fail("nothing was refused")
    assert kind is error, f"{kind.__name__}: {said}"
    assert re.fullmatch(r"[^\n]*\.", said), said
    return said


def require_refusals(
    table: Iterable[tuple[Callable[[], object], str]],
    literal: bool = False,
    by: Callable[[Callable[[], object]], str] | None = None,
    error: type[ValueError] = ValueError,
) -> list[str]:
    """Fail with every row of a table that is not refused as it says; return the
    sentences.

    Parameters
    ----------
    table : iterable of (callable, str)
        What is refused when it is called, and a pattern that its sentence contains.
    literal : bool
        Whether the patterns are plain texts.
    by : callable, optional
        Returns the sentence by which something is refused; by default `refusal` does.
    error : type
        The type of the error, and none of its kinds.
    """
    told, failures, n = [], [], 0
    for act, pattern in table:
        n += 1
        try:
            said = by(act) if by else refusal(act, error=error)
            assert re.search(re.escape(pattern) if literal else pattern, said), said
            told.append(said)
        except (Exception, pytest.fail.Exception) as wrong:
            failures.append(f"row {n}, {pattern!r}: {type(wrong).__name__}: {wrong}")
    assert n, "the table has no rows"
    assert not failures, "\n".join(failures)
    return told
