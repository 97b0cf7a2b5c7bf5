"""Sentences that refuse wrong input: a table of them is one test, which reports every row that fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def refusal(act: Callable[..., object], *args: Any) -> str:
    """Return the sentence, of one line, by which something is refused with a ValueError."""
    with pytest.raises(ValueError, match=r"^[^\n]*\.$") as caught:
        act(*args)
    assert type(caught.value) is ValueError
    return str(caught.value)


def require_refusals(
    table: Iterable[tuple[Callable[[], object], str]],
    literal: bool = False,
    by: Callable[[Callable[[], object]], str] = refusal,
) -> None:
    """Fail with every row of a table that is not refused as it says.

    Parameters
    ----------
    table : iterable of (callable, str)
        What is refused when it is called, and a pattern that its sentence contains.
    literal : bool
        Whether the patterns are plain texts.
    by : callable
        Returns the sentence by which something is refused.
    """
    failures, n = [], 0
    for act, pattern in table:
        n += 1
        try:
            said = by(act)
            assert re.search(re.escape(pattern) if literal else pattern, said), said
        except (Exception, pytest.fail.Exception) as error:
            failures.append(f"row {n}, {pattern!r}: {type(error).__name__}: {error}")
    assert n, "the table has no rows"
    assert not failures, "\n".join(failures)
