"""Numbers in texts, in common notations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from .units import (
    COUNT,
    CURRENCIES,
    HOURS_AND_MINUTES,
    TWO_PARTS,
    Conversion,
    conversion_between,
    degrees_in,
    seconds_in,
    sum_of_parts,
)

Mark: TypeAlias = Literal[".", ","]

PLAIN = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

CANONICAL_NUMBER = r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
"""A number without plus, leading zeros, or digits beyond float64."""

CANONICAL_INTEGER = r"-?(?:0|[1-9][0-9]{0,14})"

BOOLEAN = r"[tT]rue|TRUE|[fF]alse|FALSE"

ZERO_PADDED = re.compile(r"0[0-9]+")

MOST_DIGITS = 15

INFINITE = re.compile(r"[+-]?inf(?:inity)?", re.IGNORECASE)

SPACES = " \u00a0\u2009\u202f"

MULTIPLIERS = {
    "k": 3,
    "K": 3,
    "M": 6,
    "B": 9,
    "bn": 9,
    "thousand": 3,
    "million": 6,
    "billion": 9,
}
"""Words after the digits, and the zeros that they denote."""

MULTIPLIED = frozenset(MULTIPLIERS) - {"B"}
"""Units of multiplied numbers."""

MULTIPLES = {"m": 1e6, "b": 1e9, "B": 1e9, "G": 1e9, "T": 1e12}

WRITTEN = re.compile(
    rf"(?P<open>\()?(?P<limit>[<>]=?|[≤≥])?[{SPACES}]?(?P<sign>[+\-−–])?(?P<before>{CURRENCIES})?[{SPACES}]?"
    rf"(?P<inner>[+\-−–])?(?P<digits>[0-9.,][0-9.,'’{SPACES}]*?(?:[eE][+-]?[0-9]+)?)"
    rf"(?:[{SPACES}]?(?P<multiplier>{'|'.join(MULTIPLIERS)})(?![A-Za-z/]))?"
    rf"(?:[{SPACES}]?(?P<after>{CURRENCIES}|[%‰]|[°º][{SPACES}]?[NSEWO]|[°º]|['′’\"″”]|''"
    r"|[°º]?[A-Za-zµμΩ][A-Za-zµμΩ²³°/·*^%. -]{0,14}[23]?))?(?P<behind>-)?(?P<close>\))?"
)
"""A number with sign, parentheses, detection limit, currency or unit."""

GROUPED = re.compile(
    rf"[1-9][0-9]{{0,2}}(?:(?:,[0-9]{{3}})+|(?:['’{SPACES}][0-9]{{3}})+)(?:\.[0-9]*)?"
)

INDIAN = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{2})+,[0-9]{3}(?:\.[0-9]*)?")

NUMBER_OF_SEVERAL = r"[+-]?[0-9]+(?:\.[0-9]+)?"

UNIT_OF_SEVERAL = rf"(?:[{SPACES}]?[A-Za-zµμ°º²³'\"]{{1,6}})?"

SEVERAL_NUMBERS = re.compile(
    rf"(?:POINT ?)?[(\[]?{NUMBER_OF_SEVERAL}{UNIT_OF_SEVERAL}"
    rf"(?:[{SPACES}]*[,;/x×|][{SPACES}]*{NUMBER_OF_SEVERAL}{UNIT_OF_SEVERAL})+[)\]]?"
    rf"|(?:POINT ?)?[(\[]?[+-]?[0-9]+\.[0-9]+(?:[{SPACES}]+[+-]?[0-9]+\.[0-9]+)+[)\]]?"
)
"""Several numbers in a cell, such as latitude and longitude."""

SWAPPED_MARKS = str.maketrans(",.", ".,")

BOOLEANS = {"false": 0.0, "true": 1.0}

NOT_PLAIN = re.compile("[^0-9.eE+-]")

MAY_BEGIN_A_QUANTITY = frozenset("+-0123456789PNSEWO")
"""First characters of durations, angles and sums."""


class Written(NamedTuple):
    """Notation of numbers: decimal mark, and currency or unit."""

    mark: Mark = "."
    unit: str = ""


POINT = Written(".")
COMMA = Written(",")


class Quantity(NamedTuple):
    """Number and unit in a text; `is_limit` marks detection limits such as <0.5."""

    value: float
    unit: str = ""
    is_limit: bool = False


def quantity_in(text: str, mark: Mark) -> Quantity | None:
    """Parse a number, duration (s) or angle (°); None for any other text."""
    number = number_in(text, mark)
    if number is not None or text[:1] not in MAY_BEGIN_A_QUANTITY:
        return number
    seconds = seconds_in(text)
    if seconds is not None and TWO_PARTS.fullmatch(text):
        return Quantity(seconds, HOURS_AND_MINUTES)
    if seconds is not None:
        return Quantity(seconds, "s")
    angle_or_sum = degrees_in(text) or sum_of_parts(text)
    if angle_or_sum is None:
        return None
    value, unit = angle_or_sum
    return Quantity(value, unit)


def number_in(text: str, mark: Mark) -> Quantity | None:
    if PLAIN.fullmatch(text) and (mark == "." or "." not in text):
        return Quantity(float(text))
    boolean = BOOLEANS.get(text.lower())
    if boolean is not None:
        return Quantity(boolean)
    if INFINITE.fullmatch(text):
        return Quantity(float(text))
    match = WRITTEN.fullmatch(text)
    if (
        match is None
        or bool(match["open"]) != bool(match["close"])
        or (match["before"] and match["after"])
    ):
        return None
    currency_or_unit = match["before"] or match["after"] or ""
    multiplier = match["multiplier"]
    if multiplier and not currency_or_unit:
        currency_or_unit = multiplier
        if multiplier == "B":  # billions, or bytes
            multiplier = None
    magnitude = _magnitude(match["digits"], multiplier, mark)
    signs = [
        sign
        for sign in (match["sign"], match["inner"], match["behind"], match["open"])
        if sign
    ]
    if magnitude is None or len(signs) > 1:
        return None
    if signs and signs[0] != "+":
        magnitude = -magnitude
    return Quantity(magnitude, _unit(currency_or_unit), match["limit"] is not None)


def _magnitude(digits: str, multiplier: str | None, mark: Mark) -> float | None:
    if mark == ",":
        digits = digits.translate(SWAPPED_MARKS)
    is_grouped = GROUPED.fullmatch(digits) or (mark == "." and INDIAN.fullmatch(digits))
    if not (PLAIN.fullmatch(digits) or is_grouped):
        return None
    plain = NOT_PLAIN.sub("", digits)
    zeros = MULTIPLIERS.get(multiplier or "", 0)
    if zeros and "e" not in plain.lower():
        return float(f"{plain}e{zeros}")
    return float(plain)


def _unit(text: str) -> str:
    unit = text.strip()
    if unit[:1] in ("°", "º"):
        return "°" + unit[1:].strip()
    return unit


def conversion_for(unit: str, main_unit: str) -> Conversion | None:
    """Return the conversion to a column's main unit, in which bare numbers are."""
    if unit == "":
        return Conversion(1.0)
    if main_unit == COUNT and unit in MULTIPLES:
        return Conversion(MULTIPLES[unit])
    conversion = conversion_between(unit, main_unit)
    if unit not in MULTIPLIED:
        return conversion
    if conversion is None:
        return Conversion(1.0)
    factor = conversion.factor / 10.0 ** MULTIPLIERS[unit]  # such as K, for kelvin
    return Conversion(factor, conversion.offset)


def plain_numbers(texts: Sequence[str]) -> np.ndarray | None:
    """Convert texts to numbers; None unless all are plain numbers."""
    if not all(map(PLAIN.fullmatch, texts)):
        return None
    return np.array([float(text) for text in texts])
