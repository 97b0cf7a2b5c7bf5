"""Base classes of objects that are equal if their parameters are."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from functools import cache, wraps
from importlib import import_module
from inspect import Parameter, currentframe, isabstract, signature
from typing import Any, Self, TypeVar, cast

import numpy as np

from .validation import no_parameter

MOST_VALUES_SHOWN = 24
"""Longest sequence or array that `repr` shows in full."""

_write_progress: ContextVar[Callable[[str], None] | None] = ContextVar(
    "write_progress", default=None
)
"""Function that receives the steps of a fit, or None."""

_signature = cache(signature)

Class = TypeVar("Class", bound=type)

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

Object = TypeVar("Object", bound="Parameterized")


class Value:
    """Base class of objects that are equal if their parameters are.

    Dataclasses need ``eq=False, repr=False`` to inherit both methods.
    """

    def _parameters(self) -> dict[str, Any]:
        """Return parameters by name; ValueError if one is not stored."""
        own_class: type = type(self)
        try:
            return {
                name: getattr(self, name) for name in _signature(own_class).parameters
            }
        except AttributeError as error:
            raise ValueError(
                f"{type(self).__name__} must keep each parameter of its __init__ under the same name, and has no "
                f"attribute {error.name!r}; keep it, as a dataclass does."
            ) from None

    def _values(self) -> Hashable:
        return _comparable(self._parameters())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Value) or type(self) is not type(other):
            return NotImplemented
        return self is other or self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        values = self._parameters()
        arguments = []
        for position, parameter in enumerate(signature(type(self)).parameters.values()):
            value = values[parameter.name]
            is_required = parameter.default is Parameter.empty
            if is_required and position == 0:
                arguments.append(self._brief(value))
            elif is_required or _comparable(value) != _comparable(parameter.default):
                arguments.append(f"{parameter.name}={self._brief(value)}")
        return f"{type(self).__name__}({', '.join(arguments)})"

    def _brief(self, value: Any) -> str:
        if hasattr(value, "tocsr"):
            return f"<array of shape {value.shape}>"
        if isinstance(value, np.ndarray):
            if value.size > MOST_VALUES_SHOWN:
                return f"<array of shape {value.shape}>"
            return self._brief(value.tolist())
        if isinstance(value, list | tuple):
            if len(value) > MOST_VALUES_SHOWN:
                return f"<{len(value)} values>"
            return f"[{', '.join(map(self._brief, value))}]"
        if isinstance(value, np.generic):
            value = value.item()
        return " ".join(line.strip() for line in repr(value).splitlines())


class Parameterized(Value):
    """Base class of objects whose parameters scikit-learn can read and set.

    Only `set_params` changes an object.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        With `deep`, nested parameters are included, as ``name__inner`` or
        ``name__0__inner`` for entries of a list.
        """
        params = self._parameters()
        if deep:
            return {**params, **_nested_parameters(params)}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, named as in `get_params`, and return this object.

        It is unchanged if a name or a value raises ValueError.
        """
        changed = type(self)(
            **_with_changes(self._parameters(), params, type(self).__name__)
        )
        vars(self).clear()  # includes values derived from the parameters
        vars(self).update(vars(changed))
        return self

    def __sklearn_clone__(self) -> Self:
        """Return a shallow copy, as `set_params` replaces inner objects."""
        return copy(self)


def explain_unknown_arguments(decorated: Decorated) -> Decorated:
    """Decorate a function or class to suggest parameter names in errors."""
    function: Callable[..., Any] = decorated
    if isinstance(decorated, type):
        function = decorated.__init__  # type: ignore[misc]
    parameter_names = list(signature(decorated).parameters)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name not in parameter_names:
                raise TypeError(no_parameter(decorated.__name__, name, parameter_names))
        return function(*args, **kwargs)

    if isinstance(decorated, type):
        decorated.__init__ = call  # type: ignore[misc]
        return decorated
    return cast(Decorated, call)


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the user's line that called this package."""
    frame = currentframe()
    while frame is not None and frame.f_back is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package not in ("learnkernels", "sklearn", "joblib", "importlib"):
            break
        frame = frame.f_back
    if frame is None:  # Python without frames
        warnings.warn(message, category, stacklevel=2)
        return
    module = frame.f_globals.get("__name__")
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(
        message, category, frame.f_code.co_filename, frame.f_lineno, module, registry
    )


def _comparable(value: Any) -> Hashable:
    """Return a hashable object, equal for equal values and arrays."""
    if isinstance(value, np.ndarray):
        entries = tuple(value.tolist()) if value.dtype == object else value.tobytes()
        return value.dtype.str, value.shape, entries
    if hasattr(value, "tocsr"):  # sparse
        rows = value.tocsr()
        return (
            type(value),
            rows.shape,
            _comparable([rows.data, rows.indices, rows.indptr]),
        )
    if isinstance(value, list | tuple):
        return tuple(map(_comparable, value))
    if isinstance(value, Mapping):
        return frozenset((key, _comparable(entry)) for key, entry in value.items())
    return value


def _by_position(entries: Sequence[Any]) -> dict[str, Any]:
    return {str(position): entry for position, entry in enumerate(entries)}


def _nested_parameters(params: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in params.items():
        inner: Mapping[str, Any] = {}
        if isinstance(value, list | tuple):
            inner = _nested_parameters(_by_position(value))
        elif hasattr(value, "get_params") and not isinstance(value, type):
            inner = value.get_params()
        for key, inner_value in inner.items():
            nested[f"{name}__{key}"] = inner_value
    return nested


def _with_changes(
    params: Mapping[str, Any], changes: Mapping[str, Any], owner: str
) -> dict[str, Any]:
    """Return changed parameters, with changed copies of nested objects."""
    changed = dict(params)
    nested_changes: dict[str, dict[str, Any]] = {}
    for key, value in changes.items():
        name, _, inner = key.partition("__")
        if name not in params:
            raise ValueError(no_parameter(owner, name, params))
        if inner:
            nested_changes.setdefault(name, {})[inner] = value
        else:
            changed[name] = value
    for name, inner_changes in nested_changes.items():
        value = changed[name]
        if hasattr(value, "set_params"):
            changed[name] = copy(value).set_params(**inner_changes)
            continue
        entries = _by_position(value) if isinstance(value, list | tuple) else {}
        changed[name] = type(value)(
            _with_changes(entries, inner_changes, f"{name} of {owner}").values()
        )
    return changed


def import_class(name: str, base: Class, kind: str) -> Class:
    """Import the subclass of `base` that is named ``module:Class``."""
    module, _, attribute = name.partition(":")
    try:
        imported = getattr(import_module(module), attribute)
    except Exception as error:  # the module may raise anything
        raise ValueError(
            f"{kind} {name} cannot be imported ({type(error).__name__}: {error}); correct it, put its file into the "
            "working directory, or install it."
        ) from None
    is_subclass = isinstance(imported, type) and issubclass(imported, base)
    if not is_subclass:
        raise ValueError(
            f"{kind} {name} must be a class below {base.__name__}, got {imported!r}; give one, and not an object."
        )
    if isabstract(imported):
        lacking = ", ".join(sorted(imported.__abstractmethods__))
        raise ValueError(
            f"{kind} {name} must have what every {base.__name__} has, and lacks {lacking}; define it."
        )
    return imported


def as_object(
    value: str | Object,
    params: Mapping[str, Any],
    base: type,
    class_of: Callable[[str], type[Object]],
    example: str,
) -> Object:
    """Return an object, possibly made from its name, with `params` set."""
    kind = base.__name__.lower()
    if isinstance(value, str):
        try:
            value = class_of(value)()
        except TypeError as error:
            raise ValueError(
                f"{kind} {value} cannot be made ({error}); give each parameter a default."
            ) from None
    if isinstance(value, type):
        raise ValueError(f"{kind} must be {example}, got the class {value.__name__}.")
    if not isinstance(value, base):
        raise ValueError(f"{kind} must be {example}, got {type(value).__name__}.")
    configured: Object = value
    configured.get_params(False)  # fails here rather than in a later step
    if params:
        return copy(configured).set_params(**params)
    return configured


@contextmanager
def progress_to(write: Callable[[str], None]) -> Iterator[None]:
    """Enter a context in which progress texts go to `write`."""
    token = _write_progress.set(write)
    try:
        yield
    finally:
        _write_progress.reset(token)


def report_progress(step: str) -> None:
    """Report a step of a fit to the enclosing `progress_to`, if any."""
    write = _write_progress.get()
    if write is not None:
        write(step)
