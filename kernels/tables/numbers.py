"""Numbers from texts, as people and programs write them: decimal commas, separators of thousands, currencies, units."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

Mark: TypeAlias = Literal[".", ","]
"""What stands before the decimals."""

CURRENCIES = (
    r"[$€£¥₹₩₽₺₴₫฿₪₱]|(?:US|AU|CA|NZ|HK)\$|USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN|BRL|MXN|Rs\.?|R\$|kr"
)

PLAIN = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
"""A number as programs write it."""

INFINITE = re.compile(r"[+-]?inf(?:inity)?", re.IGNORECASE)

SPACES = " \u00a0\u2009\u202f"

TIMES = {"k": 3, "K": 3, "M": 6, "B": 9, "bn": 9, "thousand": 3, "million": 6, "billion": 9}
"""What may stand after digits, and how many zeros that means."""

WRITTEN = re.compile(
    rf"(?P<open>\()?(?P<limit>[<>]=?|[≤≥])?[{SPACES}]?(?P<sign>[+\-−–])?(?P<before>{CURRENCIES})?[{SPACES}]?"
    rf"(?P<inner>[+\-−–])?(?P<digits>[0-9.,][0-9.,'’{SPACES}]*?(?:[eE][+-]?[0-9]+)?)"
    rf"(?:[{SPACES}]?(?P<times>{'|'.join(TIMES)})(?![A-Za-z]))?"
    rf"(?:[{SPACES}]?(?P<after>{CURRENCIES}|[%‰°]|°?[A-Za-zµμΩ][A-Za-zµμΩ²³°/·*^%. -]{{0,14}}[23]?))?(?P<behind>-)?"
    r"(?P<close>\))?"
)
"""A number with a sign or parentheses, a limit of detection, a currency or a unit."""

GROUPED: dict[Mark, re.Pattern[str]] = {
    ".": re.compile(
        rf"[1-9][0-9]{{0,2}}(?:(?:,[0-9]{{3}})+|(?:(?:,[0-9]{{2}})+,[0-9]{{3}})|(?:['’{SPACES}][0-9]{{3}})+)(?:\.[0-9]*)?"
    ),
    ",": re.compile(rf"[1-9][0-9]{{0,2}}(?:(?:\.[0-9]{{3}})+|(?:['’{SPACES}][0-9]{{3}})+)(?:,[0-9]*)?"),
}
"""Thousands with something between them, by what stands before the decimals."""

UNGROUPED: dict[Mark, re.Pattern[str]] = {
    ".": PLAIN,
    ",": re.compile(r"[+-]?(?:[0-9]+(?:,[0-9]*)?|,[0-9]+)(?:[eE][+-]?[0-9]+)?"),
}

TRUTHS = {"false": 0.0, "true": 1.0}
"""Texts, in small letters, of truth values."""

NUMERALS = re.compile("[^0-9.,eE+-]")


class Written(NamedTuple):
    """How the numbers of a column are written.

    Attributes
    ----------
    mark : {".", ","}
        What stands before the decimals.
    unit : str
        Currency or unit that may stand beside a number; empty where none does.
    """

    mark: Mark = "."
    unit: str = ""


POINT, COMMA = Written("."), Written(",")


class Read(NamedTuple):
    """A number that a text holds.

    Attributes
    ----------
    value : float
    unit : str
        The currency or unit beside it.
    limit : bool
        Whether the text says that the number is below, or above, `value`.
    """

    value: float
    unit: str = ""
    limit: bool = False


def number_in(text: str, mark: Mark) -> Read | None:
    """Return the number that a text holds, None where it holds none."""
    if PLAIN.fullmatch(text) and (mark == "." or "." not in text):
        return Read(float(text))
    if (truth := TRUTHS.get(text.lower())) is not None:
        return Read(truth)
    if INFINITE.fullmatch(text):
        return Read(float(text))
    match = WRITTEN.fullmatch(text)
    if match is None or bool(match["open"]) != bool(match["close"]) or (match["before"] and match["after"]):
        return None
    signs = [sign for sign in (match["sign"], match["inner"], match["behind"], match["open"]) if sign]
    digits = match["digits"]
    if len(signs) > 1 or not (UNGROUPED[mark].fullmatch(digits) or GROUPED[mark].fullmatch(digits)):
        return None
    plain = NUMERALS.sub("", digits).replace("." if mark == "," else ",", "").replace(",", ".")
    zeros = TIMES.get(match["times"], 0)
    value = float(f"{plain}e{zeros}" if zeros and "e" not in plain.lower() else plain)
    unit = (match["before"] or match["after"] or "").strip()
    return Read(-value if signs and signs[0] != "+" else value, unit, match["limit"] is not None)


def plain_numbers(texts: Sequence[str]) -> np.ndarray | None:
    """Return texts as numbers where all of them are written as programs write them, None else."""
    return np.array([float(text) for text in texts]) if all(map(PLAIN.fullmatch, texts)) else None
