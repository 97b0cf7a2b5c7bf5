"""Checks of parameters and arrays, and the sentences of their errors."""

from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from .registry import did_you_mean

NAMED = 5
"""How many names a sentence lists before it only counts."""

INVERSE = {"C": "alpha", "alpha": "C"}
"""Parameters of regularization that are one over the other."""


def listed(names: Sequence[str]) -> str:
    """Return some names for a sentence, counted where they are many."""
    shown = ", ".join(repr(str(name)) for name in names[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"


def no_parameter(owner: str, name: str, known: Iterable[str]) -> str:
    """Return the sentence about a parameter that an object or a function does not have."""
    names = [*known]
    if not names:
        return f"{owner} takes no parameters, got {name!r}."
    inverse = INVERSE.get(name)
    if inverse in names:
        return f"{owner} has no parameter {name!r}. Use {inverse}, which is 1 / {name}."
    question = did_you_mean(name, names)
    meant = f"{question[0].upper()}{question[1:]}" if question else ""
    return f"{owner} has no parameter {name!r}. {meant}Its parameters are {', '.join(names)}."


def positive(name: str, value: Any) -> float:
    """Return a parameter that must be positive and finite.

    Raises
    ------
    ValueError
        It is not.
    """
    if isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < np.inf:
        return float(value)
    raise ValueError(f"{name} must be a positive, finite number, got {value!r}.")


def entries_of(name: str, values: Any, kind: str) -> list[Any]:
    """Return the entries of a parameter that must be a sequence; `kind` names them, for the sentence of an error.

    Raises
    ------
    ValueError
        It is a single number, a text or another object that is no sequence.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable) or getattr(values, "ndim", 1) != 1:
        raise ValueError(f"{name} must be a sequence of {kind}, got {values!r:.60}.")
    return list(values)


def numbers_of(name: str, values: Any, kind: str) -> list[Any]:
    """Return the entries of a parameter that must be a sequence of numbers; see `entries_of`."""
    if isinstance(values, Real):
        raise ValueError(f"{name} must be a sequence of {kind}, got {values}; write [{values}].")
    return entries_of(name, values, kind)


def positive_numbers(name: str, values: Any) -> tuple[float, ...]:
    """Return the numbers of a parameter; ValueError where there is none, or one is not positive and finite."""
    entries = numbers_of(name, values, "positive, finite numbers")
    if not entries:
        raise ValueError(f"{name} must hold at least one number, got an empty list.")
    for entry in entries:
        if not isinstance(entry, Real) or isinstance(entry, bool):
            raise ValueError(f"{name} must be positive, finite numbers, got {entry!r:.60}.")
        if not 0 < float(entry) < np.inf:
            raise ValueError(f"{name} must be positive and finite, got {float(entry):g}.")
    return tuple(float(entry) for entry in entries)


def as_numbers(name: str, values: Any) -> np.ndarray:
    """Return a new array of float64; ValueError for values that are no numbers."""
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold numbers, got {values!r:.60}.") from None


def whole_number(name: str, value: Any, least: int) -> int:
    """Return a parameter that must be a whole number of at least `least`; ValueError where it is none."""
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least:
        return int(value)
    raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")


def require_one_of(what: str, given: object, known: Iterable[str], others: str = "") -> None:
    """Raise ValueError, with the nearest name, for a value that is none of the known names."""
    names = [*known]
    if not (isinstance(given, str) and given in names):
        meant = f" ({question.strip()})" if (question := did_you_mean(given, names)) else ""
        allowed = f"one of {', '.join(names)}" if names else "left out"
        raise ValueError(f"{what} must be {allowed}{others}, got {given!r:.60}{meant}.")


def require_shape(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raise ValueError if an array has another shape than the other parts of its object say."""
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape} to fit the other parts, got {array.shape}; fit again.")


def require_numbers(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raise ValueError if an array has another shape, or values that are not finite."""
    require_shape(name, array, shape)
    if array.dtype != np.float64 or not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, an array of float64, got other values of {array.dtype}; fit again.")
