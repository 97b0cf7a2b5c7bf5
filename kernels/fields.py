"""Plain data and their JSON text: what is written for values, and each field checked when it is read."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NoReturn, TypeVar

import numpy as np

ADVICE = "what was saved is damaged or not of this program; save it again"

NAMED = 5
"""How many names a sentence lists before it only counts."""

NOT_FINITE = ("inf", "-inf", "nan")
"""Numbers that JSON does not have, written as texts."""

T = TypeVar("T")


# Writing -------------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Return a value as plain data: arrays as lists, numbers that JSON does not have as texts, records as objects.

    Fields of a record that are None are left out; what knows how to be written, by `to_dict`, is.
    """
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        given = {field.name: getattr(value, field.name) for field in fields(value)}
        return {name: plain(one) for name, one in given.items() if one is not None}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value if not isinstance(value, float) or np.isfinite(value) else str(value)


def to_text(data: Mapping[str, Any], what: str) -> np.ndarray:
    """Return plain data as the bytes of a JSON text, or raise ValueError with what cannot be written."""
    try:
        text = json.dumps(data, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{what} must be plain data, as JSON holds it without NaN and infinity: {error}.") from None
    return np.frombuffer(text.encode(), dtype=np.uint8)


# Reading -------------------------------------------------------------------------------------------------------------


class Unfit(Exception):
    """A value is not what it must be."""

    def __init__(self, expected: str, value: object) -> None:
        super().__init__(expected)
        self.expected, self.value = expected, value


def of_type(kind: type[T], expected: str) -> Callable[[object], T]:
    """Return the check of a value of a type."""

    def check(value: object) -> T:
        if not isinstance(value, kind):
            raise Unfit(expected, value)
        return value

    return check


text, truth = of_type(str, "a text"), of_type(bool, "true or false")


def number(value: object) -> float:
    """Return a finite number."""
    # Compared as it is: an integer may be too large to become a float.
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= sys.float_info.max:
        raise Unfit("a finite number", value)
    return float(value)


def any_number(value: object) -> float:
    """Return a number that need not be finite."""
    return float(value) if isinstance(value, str) and value in NOT_FINITE else number(value)


def whole(value: object) -> int:
    """Return an integer that arrays can hold."""
    if not isinstance(value, int) or isinstance(value, bool) or not abs(value) <= np.iinfo(np.intp).max:
        raise Unfit("a whole number", value)
    return value


def one_of(choices: Sequence[str]) -> Callable[[object], str]:
    """Return the check of a text out of a few."""

    def check(value: object) -> str:
        if value not in choices:
            raise Unfit(f"one of {', '.join(choices)}", value)
        return str(value)

    return check


def list_of(check: Callable[[object], T]) -> Callable[[object], list[T]]:
    """Return the check of a list, every entry of which passes another one."""

    def check_all(value: object) -> list[T]:
        if not isinstance(value, list):
            raise Unfit("a list", value)
        return [check(one) for one in value]

    return check_all


def optional(check: Callable[[object], T]) -> Callable[[object], T | None]:
    """Return the check of something that may be missing."""
    return lambda value: None if value is None else check(value)


class Fields:
    """The fields of a JSON object, each taken as what it must be.

    Parameters
    ----------
    data : object
        What the JSON text held there.
    where : str
        What to call it.

    Raises
    ------
    ValueError
        The data are no object; in use, a field is missing or of another type.
    """

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, dict):
            refuse(f"{where} must be an object with named fields, got {shown(data)}")
        self.data: dict[str, Any] = data
        self.where = where

    @classmethod
    def of_text(cls, array: np.ndarray, where: str) -> Fields:
        """Return the fields of the JSON text that `to_text` wrote."""
        array = np.asarray(array)
        if array.dtype != np.uint8 or array.ndim != 1:
            refuse(f"{where} must be a line of bytes, uint8, got {array.dtype} of shape {array.shape}")
        try:
            data = json.loads(array.tobytes().decode(), parse_constant=refuse)
        except (ValueError, RecursionError):
            raise ValueError(f"{where} must be the bytes of a JSON text, got something else; {ADVICE}.") from None
        return cls(data, where)

    def require_format(self, name: str, *versions: int) -> Fields:
        """Return these fields, or raise ValueError where they are of another format or version."""
        if (given := self.data.get("format")) != name:
            refuse(f"format must be {name!r}, got {shown(given)}")
        if (given := self.data.get("version")) not in versions or isinstance(given, bool):
            known = " or ".join(map(str, versions))
            raise ValueError(
                f"version of a saved {name.split()[-1]} must be {known}, got {shown(given)}; read it with the release "
                "that wrote it, or make and save it again."
            )
        return self

    def get(self, name: str, check: Callable[[object], T]) -> T:
        """Return a field that passes a check, above all one of this module."""
        try:
            return check(self.data.get(name))
        except Unfit as unfit:
            self.refuse(name, unfit.expected, unfit.value)

    def take(self, checks: Mapping[str, Callable[[object], Any]]) -> dict[str, Any]:
        """Return several fields, each of which passes its check."""
        return {name: self.get(name, check) for name, check in checks.items()}

    def refuse(self, name: str, expected: str, got: object) -> NoReturn:
        """Raise ValueError about a field."""
        raise ValueError(f"{name} of {self.where} must be {expected}, got {shown(got)}; {ADVICE}.") from None


def record_of(
    kind: Callable[..., T], where: str, checks: Mapping[str, Callable[[object], Any]]
) -> Callable[[object], T]:
    """Return the check of a JSON object whose fields make a record."""
    return lambda value: kind(**Fields(value, where).take(checks))


def shown(value: object) -> str:
    """Return a value of unknown length for a message."""
    if value is None:
        return "nothing"
    said = repr(value)
    return said if len(said) <= 60 else f"{said[:57]}..."


def listed(names: Sequence[str]) -> str:
    """Return some names for a sentence, counted where they are many."""
    shown = ", ".join(repr(str(name)) for name in names[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"


def refuse(reason: str) -> NoReturn:
    """Raise ValueError about what was read."""
    raise ValueError(f"{reason}; {ADVICE}.")
