"""Models in files: arrays as safetensors, and other parts as JSON.

Files name only classes of fixed tables; reading runs no code of the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import uuid4

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as read_arrays
from safetensors.numpy import save as write_arrays
from scipy import sparse

from .centering import Centering
from .estimator_files import estimator_from_array, estimator_to_array

FORMAT = "learnkernels"

VERSION = 2
"""Version of the format, raised if files of other releases cannot be read."""

ENDING = ".safetensors"

NO_SEAL = "0" * 64
"""Placeholder of the checksum while it is computed."""

MOST_CHARACTERS = 10_000_000
"""Largest array of texts of fixed width, in characters."""

TABLES = {
    "family": ("families.base", "KINDS"),
    "learner": ("learners", "LEARNERS"),
    "predictor": ("predictors", "PREDICTORS"),
}
"""Module and name of each table of classes."""

RECORDS = {
    "KernelLearningClassifier": "estimators",
    "KernelLearningRegressor": "estimators",
    "LearnedKernelTransformer": "estimators",
    "LearnedKernel": "learned_kernel",
    "FitSampling": "estimators.sampling",
    "Importance": "estimators.importance",
    "ImportanceRows": "estimators.importance",
    "ResidualScale": "predictors.residual_scale",
    "Certificate": "solvers.certificate",
    "Sampling": "statistics.sampled",
    "Model": "model",
    "Reference": "hypothesis_tests.drift",
    "TableEncoding": "column_encoding.encoding",
    "NumberColumn": "column_encoding.columns",
    "CategoryColumn": "column_encoding.columns",
    "DateColumn": "column_encoding.columns",
    "TextColumn": "column_encoding.text",
    "Written": "column_encoding.quantities",
}
"""Module of each other class that files name."""


class Savable:
    """Base class of objects that can be saved to a file."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the object to a file for `learnkernels.load`.

        Parameters
        ----------
        path : path
            File to write or replace, by convention ending in ``.safetensors``.

        Raises
        ------
        ValueError
            The object is not fitted or has a part that cannot be saved, such as
            precomputed matrices or a custom family without a `kind`.

        Notes
        -----
        The same object gives the same bytes.
        """
        self._require_sound()
        write_file(Path(path), to_bytes(self))

    def _require_sound(self) -> None:
        """Raise ValueError if parts are inconsistent or not finite."""
        raise NotImplementedError


def load(path: str | os.PathLike[str]) -> Any:
    """Return the estimator, model or learned kernel that `save` wrote to a file.

    Parameters
    ----------
    path : path
        File to read.

    Returns
    -------
    saved : estimator, Model or LearnedKernel
        Object with the same predictions, bit-for-bit on the same machine.

    Raises
    ------
    ValueError
        The file is damaged, of another version, or not written by `save`.
    OSError
        The file cannot be opened.

    Notes
    -----
    Files from others are safe: no code of the file is run. The checksum detects damage
    but is no signature.
    """
    content = Path(path).read_bytes()
    try:
        return from_bytes(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def write_file(path: Path, content: bytes) -> None:
    """Write or replace a file atomically."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def to_bytes(saved: Savable) -> bytes:
    arrays: dict[str, np.ndarray] = {}
    data = to_data(saved, arrays, "")
    text = json.dumps(
        {"format": FORMAT, "version": VERSION, "content": data}, allow_nan=False
    )
    unsealed = write_arrays(arrays, {FORMAT: NO_SEAL + text})
    return unsealed.replace(NO_SEAL.encode(), sha256(unsealed).hexdigest().encode(), 1)


def from_bytes(content: bytes) -> Any:
    """Return the object in the bytes of a file; ValueError if damaged."""
    try:
        arrays = read_arrays(content)
        header_end = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:header_end])["__metadata__"][FORMAT]
        seal = header[: len(NO_SEAL)]
        text = header[len(NO_SEAL) :]
        unsealed = content.replace(seal.encode(), NO_SEAL.encode(), 1)
    except (SafetensorError, ValueError, LookupError, TypeError, RecursionError):
        raise ValueError(
            "is damaged, or is no file that 'save' of a model wrote; save the model again."
        ) from None
    if sha256(unsealed).hexdigest() != seal:
        raise ValueError(
            "is damaged: its content does not have its checksum; save the model again."
        )
    try:
        description = json.loads(text)
        version = description["version"]
        if version == VERSION:
            saved = from_data(description["content"], arrays)
            if not isinstance(saved, Savable):
                raise ValueError(f"it is a {type(saved).__name__}")
            return saved
    except Exception as error:  # constructors may raise anything
        reason = str(error).rstrip(".").replace("\n", " ") or type(error).__name__
        raise ValueError(
            f"holds no sound model ({reason}); save the model again."
        ) from None
    raise ValueError(
        f"its format has version {version!r:.20}, and this release reads version {VERSION}; load it with the release "
        "that wrote it."
    )


def to_data(value: Any, arrays: dict[str, np.ndarray], where: str) -> Any:
    """Convert a value to JSON data, and add its arrays to `arrays`.

    Errors name the place `where`.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Centering):
        return {"centering": value.value}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if np.isfinite(value):
            return value
        return {"number": str(value)}
    if isinstance(value, np.ndarray):
        return _array_to_data(value, arrays, where)
    if isinstance(value, sparse.csr_matrix | sparse.csr_array):
        parts = [value.data, value.indices, value.indptr, value.shape]
        return {type(value).__name__: to_data(parts, arrays, where)}
    kind_and_name = _kind_and_name(type(value))
    if kind_and_name is not None:
        kind, name = kind_and_name
        return {kind: [name, *_object_to_data(value, arrays, where)]}
    if hasattr(value, "__sklearn_tags__"):
        return {"estimator": _array_to_data(estimator_to_array(value), arrays, where)}
    if isinstance(value, list | tuple | Mapping):
        return _container_to_data(value, arrays, where)
    raise ValueError(
        f"{where.strip('.') or 'the object'} must be numbers, texts, arrays, lists, dictionaries or objects of "
        f"learnkernels to be saved, got {type(value).__name__}, which no file can hold; a custom family needs a "
        "'kind', and precomputed matrices are kept elsewhere."
    )


def _container_to_data(
    container: Sequence[Any] | Mapping[Any, Any],
    arrays: dict[str, np.ndarray],
    where: str,
) -> list[Any] | dict[str, Any]:
    if isinstance(container, Mapping):
        pairs = []
        for key, entry in container.items():
            place = f"{where}.{key}"
            pairs.append([to_data(key, arrays, place), to_data(entry, arrays, place)])
        return {"dict": pairs}
    entries = [
        to_data(entry, arrays, f"{where}.{position}")
        for position, entry in enumerate(container)
    ]
    if isinstance(container, tuple):
        return {"tuple": entries}
    return entries


def _array_to_data(
    array: np.ndarray, arrays: dict[str, np.ndarray], where: str
) -> dict[str, Any]:
    if _holds_texts(array):
        width = None
        if array.dtype.kind == "U":
            width = array.dtype.itemsize // 4
        return {"texts": [width, array.tolist()]}
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise ValueError(
            f"{where.strip('.')} must hold texts, integers, numbers or Booleans to be saved, got {array.dtype}; "
            "convert it."
        )
    name = where.strip(".")
    while name in arrays:  # such as for keys 1 and "1" of a dictionary
        name += "'"
    # Rounding of products depends on the memory order
    if array.flags.f_contiguous and not array.flags.c_contiguous:
        arrays[name] = _in_native_order(array.T)
        return {"transposed": name}
    arrays[name] = _in_native_order(array)
    return {"array": name}


def _holds_texts(array: np.ndarray) -> bool:
    if array.dtype.kind not in "UO" or array.ndim != 1:
        return False
    return all(type(text) is str for text in array.tolist())


def _in_native_order(array: np.ndarray) -> np.ndarray:
    return np.asarray(array, array.dtype.newbyteorder("="), order="C")


def _object_to_data(
    value: Any, arrays: dict[str, np.ndarray], where: str
) -> list[dict[str, Any]]:
    if hasattr(value, "_parameters"):
        states = [value._parameters()]
    else:
        states = [
            {name: getattr(value, name) for name in signature(type(value)).parameters}
        ]
    if hasattr(value, "_fitted"):
        states.append(value._fitted())
    return [
        {name: to_data(part, arrays, f"{where}.{name}") for name, part in state.items()}
        for state in states
    ]


@cache
def _classes() -> dict[str, Mapping[str, Any]]:
    """Return the savable classes, by kind and name."""
    package = __name__.rpartition(".")[0]
    tables = {
        kind: getattr(import_module(f"{package}.{place}"), name)
        for kind, (place, name) in TABLES.items()
    }
    records = {
        name: getattr(import_module(f"{package}.{place}"), name)
        for name, place in RECORDS.items()
    }
    return {**tables, "record": records}


def _kind_and_name(value_type: type) -> tuple[str, str] | None:
    for kind, table in _classes().items():
        for name, known_class in table.items():
            if value_type is known_class:
                return kind, name
    return None


def from_data(data: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Restore the value that `to_data` converted to JSON data."""
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if isinstance(data, list):
        return [from_data(entry, arrays) for entry in data]
    ((kind, content),) = data.items()
    match kind, content:
        case "number", "inf" | "-inf" | "nan":
            return float(content)
        case "centering", str():
            return Centering(content)
        case "array" | "transposed", str():
            return _array_from_data(kind, arrays[content])
        case "estimator", {"array": str(name)}:
            return estimator_from_array(arrays[name])
        case "texts", [width, list(texts)]:
            return _texts_from_data(width, texts)
        case "tuple", list():
            return tuple(from_data(content, arrays))
        case "dict", list():
            return dict(from_data(content, arrays))
        case "csr_matrix" | "csr_array", list():
            return _sparse_from_data(kind, *from_data(content, arrays))
        case "family" | "learner" | "predictor" | "record", [str(name), *states]:
            values = [
                {key: from_data(part, arrays) for key, part in state.items()}
                for state in states
            ]
            return _restored_object(kind, name, *values)
    raise ValueError(f"a value must be of a known kind, got {kind!r:.40}")


def _array_from_data(kind: str, array: np.ndarray) -> np.ndarray:
    if kind == "transposed":
        return array.T
    return array


def _texts_from_data(width: int | None, texts: list[str]) -> np.ndarray:
    if not all(type(text) is str for text in texts):
        raise ValueError("labels must be texts")
    if width is None:
        return np.array(texts, dtype=object)
    longest = max(map(len, texts), default=0)
    if not longest <= width or width * len(texts) > MOST_CHARACTERS:
        raise ValueError(
            f"labels of up to {longest} characters do not fit {width!r:.20}"
        )
    return np.array(texts, dtype=f"U{width}")


def _sparse_from_data(
    kind: str,
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    shape: tuple[int, int],
) -> Any:
    rows_class = getattr(sparse, kind)
    rows = rows_class((data, indices, indptr), shape=shape)
    # SciPy would read outside of its arrays for a wrong index
    rows.check_format(full_check=True)
    return rows


def _restored_object(
    kind: str,
    name: str,
    parameters: dict[str, Any],
    fitted: dict[str, Any] | None = None,
) -> Any:
    known_class = _classes()[kind][name]
    expected = list(signature(known_class).parameters)
    if sorted(parameters) != sorted(expected):
        raise ValueError(
            f"{name} must have the parameters {', '.join(expected)}, got {', '.join(parameters)}"
        )
    if kind == "record" and fitted is None:
        _require_types(known_class, parameters)
    restored = known_class(**parameters)
    if fitted is not None:
        _require_types(known_class, fitted)
        restored._restore(fitted)
    if isinstance(restored, Savable):
        restored._require_sound()
    return restored


def _require_types(known_class: type, values: Mapping[str, Any]) -> None:
    """Raise ValueError if a value lacks the declared type."""
    types = get_type_hints(known_class)
    for name, value in values.items():
        if not _is_of_type(value, types.get(name, np.ndarray)):
            raise ValueError(
                f"{name} of {known_class.__name__} cannot be {value!r:.60}"
            )


def _is_of_type(value: object, expected: Any) -> bool:
    origin = get_origin(expected)
    arguments = get_args(expected)
    if expected is Any:
        return True
    if origin in (Union, UnionType):
        return any(_is_of_type(value, choice) for choice in arguments)
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin is tuple:
        return isinstance(value, tuple) and all(
            _is_of_type(entry, arguments[0]) for entry in value
        )
    if origin is Mapping or expected is Mapping:
        return isinstance(value, dict) and all(isinstance(key, str) for key in value)
    if origin is Sequence:
        return isinstance(value, list | tuple)
    if isinstance(value, bool) and expected in (int, float):
        return False
    if expected is float:
        return isinstance(value, int | float)
    return isinstance(value, origin or expected)
