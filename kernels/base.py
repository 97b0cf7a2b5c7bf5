"""Base classes of objects with parameters, and records that are equal if all their fields are equal."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping
from copy import copy
from functools import wraps
from importlib import import_module
from inspect import Parameter, currentframe, isabstract, signature
from typing import Any, Self, TypeVar, cast

import numpy as np

from .validation import no_parameter

PASSED_OVER = ("learnkernels", "sklearn", "joblib", "importlib")
"""Packages that warnings do not point to: this one, those that call its estimators, and that of imports."""

SHOWN = 24
"""Most values that `repr` shows; of more it shows the number."""

Class = TypeVar("Class", bound=type)

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

Made = TypeVar("Made", bound="Parameterized")


class Value:
    """An object that is what `__init__` took, kept under the same names: a plain class, or a dataclass.

    Notes
    -----
    Two of one class are equal where they hold the same, arrays included; `repr` is one line without what is as by
    default. A dataclass leaves both to this class: ``@dataclass(frozen=True, eq=False, repr=False)``.
    """

    def _parameters(self) -> dict[str, Any]:
        """Return what `__init__` takes, by name; ValueError where it is not kept under that name."""
        try:
            return {name: getattr(self, name) for name in signature(type(self)).parameters}
        except AttributeError as error:
            raise ValueError(
                f"{type(self).__name__} must keep each parameter of its __init__ under the same name, and has no "
                f"attribute {error.name!r}; keep it, as a dataclass does."
            ) from None

    def _values(self) -> Hashable:
        """Return the values that distinguish objects of this class."""
        return content(self._parameters())

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, Value)
        return self is other or self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        texts = []
        for position, (name, value) in enumerate(self._parameters().items()):
            default = signature(type(self)).parameters[name].default
            if default is Parameter.empty and not position:
                texts.append(self._brief(value))
            elif default is Parameter.empty or content(value) != content(default):
                texts.append(f"{name}={self._brief(value)}")
        return f"{type(self).__name__}({', '.join(texts)})"

    def _brief(self, value: Any) -> str:
        """Return a value as Python reads it, or what and how many it holds where that is long."""
        if isinstance(value, np.ndarray) and value.size <= SHOWN:
            return self._brief(value.tolist())
        if isinstance(value, np.ndarray) or hasattr(value, "tocsr"):
            return f"<array of shape {value.shape}>"
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(self._brief, value))}]" if len(value) <= SHOWN else f"<{len(value)} values>"
        said = repr(value.item() if isinstance(value, np.generic) else value)
        return " ".join(line.strip() for line in said.splitlines())


class Parameterized(Value):
    """An object whose parameters can be read, set and searched as those of scikit-learn's estimators.

    Notes
    -----
    It is treated as a value that never changes by all but `set_params`, which scikit-learn calls on clones.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep : bool, default True
            Whether to add, as ``name__inner``, the parameters of each parameter that has some, and as
            ``name__0__inner`` those of the first of several in a list.
        """
        params = self._parameters()
        return {**params, **_inner(params)} if deep else params

    def set_params(self, **params: Any) -> Self:
        """Set some parameters, as `get_params` names them, and return this object.

        Raises
        ------
        ValueError
            There is no such parameter, or a value is refused; the object is unchanged then.
        """
        made = type(self)(**_changed(self._parameters(), params, type(self).__name__))
        vars(self).clear()  # with what was derived from the parameters
        vars(self).update(vars(made))
        return self

    def __sklearn_clone__(self) -> Self:
        """Return a copy that can be given other parameters; inner objects are replaced then and never changed."""
        return copy(self)


def explain_unknown_arguments(decorated: Decorated) -> Decorated:
    """Return a function or class whose error for an unknown argument lists the parameters and offers the nearest."""
    function: Callable[..., Any] = decorated.__init__ if isinstance(decorated, type) else decorated  # type: ignore[misc]
    known = [*signature(decorated).parameters]

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name not in known:
                raise TypeError(no_parameter(decorated.__name__, name, known))
        return function(*args, **kwargs)

    if isinstance(decorated, type):
        decorated.__init__ = call  # type: ignore[misc]
        return decorated
    return cast(Decorated, call)


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the caller's code: that of the first frame outside of this package and scikit-learn."""
    frame = currentframe()
    while frame is not None and frame.f_back is not None:
        package, _, _ = frame.f_globals.get("__name__", "").partition(".")
        if package not in PASSED_OVER:
            break
        frame = frame.f_back
    if frame is None:  # of a Python that has no frames
        warnings.warn(message, category, stacklevel=2)
        return
    module, registry = frame.f_globals.get("__name__"), frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, module, registry)


def content(value: Any) -> Hashable:
    """Return something hashable that is equal for equal values: arrays by type, shape and bits, and lists as tuples."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, tuple(value.tolist()) if value.dtype == object else value.tobytes()
    if hasattr(value, "tocsr"):  # a sparse matrix or array
        rows = value.tocsr()
        return type(value), rows.shape, content([rows.data, rows.indices, rows.indptr])
    if isinstance(value, list | tuple):
        return tuple(map(content, value))
    if isinstance(value, Mapping):
        return frozenset((key, content(one)) for key, one in value.items())
    return value


def _entries(value: Any) -> dict[str, Any]:
    """Return the entries of a list by their positions."""
    return dict(zip(map(str, range(len(value))), value, strict=True))


def _inner(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of parameters, lists of them included, as ``name__inner``."""
    found: dict[str, Any] = {}
    for name, value in params.items():
        if isinstance(value, list | tuple):
            inner = _inner(_entries(value))
        else:
            inner = value.get_params() if hasattr(value, "get_params") and not isinstance(value, type) else {}
        found |= {f"{name}__{key}": one for key, one in inner.items()}
    return found


def _changed(params: Mapping[str, Any], changes: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """Return parameters with some replaced, those of copies of parameters after them all."""
    changed, nested = dict(params), dict[str, dict[str, Any]]()
    for key, value in changes.items():
        name, _, inner = key.partition("__")
        if name not in params:
            raise ValueError(no_parameter(owner, name, params))
        if inner:
            nested.setdefault(name, {})[inner] = value
        else:
            changed[name] = value
    for name, inner_changes in nested.items():
        value = changed[name]
        if hasattr(value, "set_params"):
            changed[name] = copy(value).set_params(**inner_changes)
            continue
        entries = _entries(value) if isinstance(value, list | tuple) else {}  # of which there is none by that name
        changed[name] = type(value)(_changed(entries, inner_changes, f"{name} of {owner}").values())
    return changed


def imported(name: str, base: Class, what: str) -> Class:
    """Return the class that ``module:Class`` names, which is one below `base`; `what` begins the sentence of an error.

    Raises
    ------
    ValueError
        It cannot be imported, for whatever its module does when it is run, is no such class, or lacks a method.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:
        raise ValueError(
            f"{what} {name} cannot be imported ({type(error).__name__}: {error}); correct it, put its file into the "
            "working directory, or install it."
        ) from None
    sound = isinstance(found, type) and issubclass(found, base)
    if not sound:
        raise ValueError(
            f"{what} {name} must be a class below {base.__name__}, got {found!r}; give one, and not an object."
        )
    if isabstract(found):
        lacking = ", ".join(sorted(found.__abstractmethods__))
        raise ValueError(f"{what} {name} must have what every {base.__name__} has, and lacks {lacking}; define it.")
    return found


def as_object(
    given: str | Made, params: Mapping[str, Any], base: type, class_of: Callable[[str], type[Made]], example: str
) -> Made:
    """Return an object by the name of its class and its parameters; one that is given is returned as it is.

    Parameters
    ----------
    given : str or object
        A name that `class_of` knows, or an object below `base`.
    params : mapping of str to object
        The parameters that differ from those of `given`.
    base : type
        What it must be below.
    class_of : callable
        Returns the class of a name, or raises ValueError.
    example : str
        A name and an object, for a sentence.

    Raises
    ------
    ValueError
        The name is unknown, there is no such object or parameter, or the class does not keep its parameters.
    """
    what = base.__name__.lower()
    if isinstance(given, str):
        try:
            given = class_of(given)()
        except TypeError as error:
            raise ValueError(f"{what} {given} cannot be made ({error}); give each parameter a default.") from None
    if isinstance(given, type):
        raise ValueError(f"{what} must be {example}, got the class {given.__name__}.")
    if not isinstance(given, base):
        raise ValueError(f"{what} must be {example}, got {type(given).__name__}.")
    made: Made = given
    made.get_params(False)  # which every later step reads
    return copy(made).set_params(**params) if params else made
