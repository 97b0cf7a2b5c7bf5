"""Named arrays in one file: npz without pickle, the same bytes for the same arrays, sealed by a checksum."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from learnkernels.kernels.families import KernelFamily
from learnkernels.kernels.learners import LEARNERS, Learner, as_learner
from learnkernels.kernels.persistence.serialisation import (
    NOT_FINITE,
    Fields,
    File,
    family_from_data,
    family_to_data,
    members,
)
from learnkernels.kernels.predictors import Predictor, as_predictor

SEAL = b"sha256 "
"""What the comment of the archive begins with; 64 hexadecimal digits of all bytes before the comment follow."""

SEAL_LENGTH = len(SEAL) + 64

WRITTEN = (1980, 1, 1, 0, 0, 0)
"""The date of every member: the first that an archive can hold, so that bytes do not depend on the clock."""

ADVICE = "it was changed, damaged or cut short; fetch it or save it again"


# Archives ------------------------------------------------------------------------------------------------------------


def pack(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return named arrays as the bytes of a sealed archive, the same for the same arrays in the same order.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        Of any dtype but object. Not modified.

    Returns
    -------
    content : bytes
        An npz archive, which `numpy.load` reads too. Its comment is the SHA-256 of every byte before it.

    Raises
    ------
    ValueError
        An array holds objects.

    Notes
    -----
    The whole content is in memory, next to the arrays.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            info = zipfile.ZipInfo(f"{name}.npy", WRITTEN)
            info.create_system = 3  # the default is that of the machine
            with archive.open(info, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
        archive.comment = bytes(SEAL_LENGTH)
    content = buffer.getbuffer()
    content[-SEAL_LENGTH:] = _seal(content[:-SEAL_LENGTH])
    return content.tobytes()


def unpack(content: bytes) -> dict[str, np.ndarray]:
    """Return the arrays that `pack` was called on.

    Parameters
    ----------
    content : bytes
        Of the whole file.

    Returns
    -------
    arrays : dict of str to ndarray

    Raises
    ------
    ValueError
        A byte was changed, something is cut off or added, or a member is no plain array. Pickled objects are never
        loaded.
    """
    view = memoryview(content)
    seal = bytes(view[-SEAL_LENGTH:])
    if not seal.startswith(SEAL):
        raise ValueError(f"file must be a model that save_model wrote, got one without its checksum; {ADVICE}.")
    if seal != _seal(view[:-SEAL_LENGTH]):
        raise ValueError(f"file must have the contents of its checksum, got others; {ADVICE}.")
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except Exception as error:  # a damaged archive raises whatever its damage leads to
        raise ValueError(
            f"file must be a model that save_model wrote, got no npz archive ({type(error).__name__}); {ADVICE}."
        ) from None
    with archive:
        names = archive.namelist()
        arrays = members(archive, "model")
    if len(arrays) < len(names):
        raise ValueError(f"file must hold each array once, got {', '.join(sorted(names))}; {ADVICE}.")
    return arrays


def read_content(file: File) -> bytes:
    """Return the bytes of a path, or what is left in an open binary file."""
    if hasattr(file, "read"):
        content = file.read()
    else:
        with open(file, "rb") as opened:
            content = opened.read()
    if not isinstance(content, bytes):
        raise ValueError(f"file must be opened for bytes, got {type(content).__name__} from it; open it with 'rb'.")
    return content


def write_content(content: bytes, file: File) -> None:
    """Write bytes to a path, or into an open binary file."""
    if hasattr(file, "write"):
        file.write(content)
    else:
        with open(file, "wb") as opened:
            opened.write(content)


def _seal(before: memoryview) -> bytes:
    return SEAL + hashlib.sha256(before).hexdigest().encode()


# Text ----------------------------------------------------------------------------------------------------------------


def text_array(data: Mapping[str, Any], what: str) -> np.ndarray:
    """Return plain data as the bytes of a JSON text, or raise ValueError with what cannot be written."""
    try:
        text = json.dumps(data, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{what} must be plain data, as JSON holds it without NaN and infinity: {error}.") from None
    return np.frombuffer(text.encode(), dtype=np.uint8)


def text_fields(array: np.ndarray, where: str) -> Fields:
    """Return the fields of the JSON object that `text_array` wrote."""
    if array.dtype != np.uint8 or array.ndim != 1:
        raise ValueError(f"{where} must be a line of bytes, got {array.dtype} of shape {array.shape}; {ADVICE}.")
    try:
        data = json.loads(array.tobytes().decode(), parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise ValueError(f"{where} must be the bytes of a JSON text, got something else; {ADVICE}.") from None
    return Fields(data, where)


def _no_number(name: str) -> None:
    raise ValueError(name)


# Parameters ----------------------------------------------------------------------------------------------------------


MADE: dict[str, Callable[..., Learner | Predictor]] = {"learner": as_learner, "predictor": as_predictor}
"""What is kept as a name and parameters, and what makes it of them."""


def parameter_to_data(value: object, where: str) -> Any:
    """Return a parameter of an estimator as plain data that `parameter_from_data` reads back to an equal one.

    Raises
    ------
    ValueError
        It is, or holds, something other than a family, a learner, a predictor, text, numbers, truth values, None,
        lists, tuples and dictionaries.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"number": str(value)}
    if isinstance(value, KernelFamily):
        return {"family": family_to_data(value)}
    if isinstance(value, Learner) and value.name not in LEARNERS:
        return value.name  # of one's own: what it was told is not kept, and nothing of it is needed to predict
    if isinstance(value, Learner | Predictor):
        return {
            "learner" if isinstance(value, Learner) else "predictor": {
                "name": value.name,
                "params": parameter_to_data(value.get_params(False), where),
            }
        }
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [parameter_to_data(one, where) for one in value]}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"dict": {key: parameter_to_data(one, where) for key, one in value.items()}}
    if isinstance(value, Mapping):
        return {"pairs": [[parameter_to_data(one, where) for one in pair] for pair in value.items()]}
    raise ValueError(
        f"{where} must be a family, text, numbers, truth values, lists, tuples or dictionaries of these to be saved, "
        f"got {type(value).__name__}; give it as one of them."
    )


def parameter_from_data(data: object, where: str) -> Any:
    """Return the parameter that `parameter_to_data` was called on; raise ValueError for data of none."""
    if data is None or isinstance(data, bool | int | float | str):
        return data
    fields = Fields(data, where)
    if len(fields.data) != 1:
        fields.refuse("value", f"one of number, family, list, tuple, dict, pairs, {', '.join(MADE)}", fields.data)
    [(kind, held)] = fields.data.items()
    if kind == "number":
        return float(fields.one_of("number", NOT_FINITE))
    if kind == "family":
        return family_from_data(held)
    if kind in MADE:
        named, made = Fields(held, where), MADE[kind]
        return made(named.text("name"), **parameter_from_data(named.data.get("params"), where))
    if kind == "pairs":
        pairs = [[parameter_from_data(one, where) for one in pair] for pair in fields.items_of(kind, held)]
        return {key: one for key, one in pairs}
    if kind in ("list", "tuple"):
        items = [parameter_from_data(one, where) for one in fields.items_of(kind, held)]
        return items if kind == "list" else tuple(items)
    if kind == "dict" and isinstance(held, dict):
        return {key: parameter_from_data(one, where) for key, one in held.items()}
    fields.refuse("value", f"one of number, family, list, tuple, dict, pairs, {', '.join(MADE)}", fields.data)


# Labels --------------------------------------------------------------------------------------------------------------

LABELS: dict[str, tuple[str, ...]] = {
    "boolean": ("b",),
    "integer": ("i", "u"),
    "number": ("f",),
    "text": ("U", "O"),
}
"""Kinds of class labels, and the kinds of dtype that hold them."""

DTYPES = re.compile(r"object|\|b1|[|<>](?:[iu][1248]|f[248]|U[1-9][0-9]{0,4})")
"""Names of the dtypes that labels may have."""


def labels_to_data(classes: np.ndarray) -> dict[str, Any]:
    """Return class labels as plain data that `labels_from_data` reads back, type and dtype included."""
    kind = next((kind for kind, held in LABELS.items() if classes.dtype.kind in held), None)
    values = classes.tolist()
    if kind is None or (kind == "text" and not all(type(value) is str for value in values)):
        raise ValueError(
            f"classes must be text, integers, numbers or truth values to be saved, got {classes.dtype} such as "
            f"{classes[0]!r}; convert y to one of these."
        )
    return {"kind": kind, "dtype": "object" if classes.dtype == object else classes.dtype.str, "values": values}


def labels_from_data(data: object) -> np.ndarray:
    """Return the labels that `labels_to_data` was called on; raise ValueError for data of none."""
    fields = Fields(data, "the classes")
    kind, items = fields.one_of("kind", tuple(LABELS)), fields.items("values")
    if kind == "boolean":
        if not all(isinstance(one, bool) for one in items):
            fields.refuse("values", "truth values", items)
        values: list[Any] = items
    else:
        read = {"integer": fields.whole_of, "number": fields.number_of, "text": fields.text_of}[kind]
        values = [read("values", one) for one in items]
    name = fields.text("dtype")
    if DTYPES.fullmatch(name) is None or np.dtype(name).kind not in LABELS[kind]:
        fields.refuse("dtype", f"one of {kind} labels", name)
    try:
        classes = np.array(values, dtype=name)
    except OverflowError:
        fields.refuse("values", f"labels that fit {name}", values)
    if classes.tolist() != values:
        fields.refuse("values", f"labels that fit {name}", values)
    if len(values) < 2 or len(set(values)) < len(values):
        fields.refuse("values", "at least two different labels", values)
    return classes
