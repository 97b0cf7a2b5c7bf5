"""Checks of parameters and arrays, with their error messages."""

from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from .registry import did_you_mean

NAMED = 5


def listed(names: Sequence[str]) -> str:
    """Return a text: the first five names, quoted, and the number of others."""
    quoted_names = ", ".join(repr(str(name)) for name in names[:NAMED])
    if len(names) > NAMED:
        return f"{quoted_names} and {len(names) - NAMED} more"
    return quoted_names


def no_parameter(owner: str, name: str, known_names: Iterable[str]) -> str:
    names = list(known_names)
    if not names:
        return f"{owner} takes no parameters, got {name!r}."
    inverse = {"C": "alpha", "alpha": "C"}.get(name)
    if inverse in names:
        return f"{owner} has no parameter {name!r}. Use {inverse}, which is 1 / {name}."
    suggestion = did_you_mean(name, names)
    suggestion = suggestion[:1].upper() + suggestion[1:]
    return f"{owner} has no parameter {name!r}. {suggestion}Its parameters are {', '.join(names)}."


def positive(name: str, value: Any) -> float:
    """Return the value as a float; ValueError unless positive and finite."""
    if (
        isinstance(value, Real)
        and not isinstance(value, bool)
        and 0 < float(value) < np.inf
    ):
        return float(value)
    raise ValueError(f"{name} must be a positive, finite number, got {value!r}.")


def entries_of(name: str, values: Any, kind: str) -> list[Any]:
    """Return the entries of a sequence; ValueError for other objects."""
    if (
        isinstance(values, str | bytes)
        or not isinstance(values, Iterable)
        or getattr(values, "ndim", 1) != 1
    ):
        raise ValueError(f"{name} must be a sequence of {kind}, got {values!r:.60}.")
    return list(values)


def numbers_of(name: str, values: Any, kind: str) -> list[Any]:
    """Return the entries of a sequence; ValueError for a number."""
    if isinstance(values, Real):
        raise ValueError(
            f"{name} must be a sequence of {kind}, got {values}; write [{values}]."
        )
    return entries_of(name, values, kind)


def positive_numbers(name: str, values: Any) -> tuple[float, ...]:
    """Return one or more positive, finite numbers; ValueError otherwise."""
    entries = numbers_of(name, values, "positive, finite numbers")
    if not entries:
        raise ValueError(f"{name} must hold at least one number, got an empty list.")
    for entry in entries:
        if not isinstance(entry, Real) or isinstance(entry, bool):
            raise ValueError(
                f"{name} must be positive, finite numbers, got {entry!r:.60}."
            )
        if not 0 < float(entry) < np.inf:
            raise ValueError(
                f"{name} must be positive and finite, got {float(entry):g}."
            )
    return tuple(float(entry) for entry in entries)


def as_numbers(name: str, values: Any) -> np.ndarray:
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold numbers, got {values!r:.60}.") from None


def whole_number(name: str, value: Any, minimum: int) -> int:
    """Return the value as an int; ValueError unless at least `minimum`."""
    if (
        isinstance(value, Integral)
        and not isinstance(value, bool)
        and int(value) >= minimum
    ):
        return int(value)
    raise ValueError(
        f"{name} must be a whole number of at least {minimum}, got {value!r}."
    )


def require_one_of(
    name: str, value: object, valid_names: Iterable[str], others: str = ""
) -> None:
    """Raise ValueError with the nearest name if a value is unknown."""
    names = list(valid_names)
    if isinstance(value, str) and value in names:
        return
    allowed = f"one of {', '.join(names)}" if names else "left out"
    suggestion = did_you_mean(value, names).strip()
    if suggestion:
        suggestion = f" ({suggestion})"
    raise ValueError(
        f"{name} must be {allowed}{others}, got {value!r:.60}{suggestion}."
    )


def require_shape(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless an array has the expected shape."""
    if array.shape != shape:
        raise ValueError(
            f"{name} must have shape {shape} to fit the other parts, got {array.shape}; fit again."
        )


def require_numbers(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless an array has the shape and finite float64 values."""
    require_shape(name, array, shape)
    if array.dtype != np.float64 or not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be finite, an array of float64, got other values of {array.dtype}; fit again."
        )
