"""A learned kernel as plain data, arrays and a JSON text: reading one runs and imports nothing that is named in it."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import numpy as np
from scipy import sparse

from learnkernels.kernels.centering import as_sample_weight
from learnkernels.kernels.families import (
    CosineFamily,
    DirichletFamily,
    FamilyUnion,
    FeatureFamily,
    GaussianFamily,
    KernelFamily,
    LaplacianFamily,
    LinearFamily,
    PolynomialFamily,
    PrecomputedFamily,
    ScaledFamily,
)
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.learned import LearnedKernel
from learnkernels.kernels.moments.error_bars import Sampling
from learnkernels.kernels.moments.normalisation import NORMALISATIONS, Normalisation
from learnkernels.kernels.solvers.certificate import Certificate

File: TypeAlias = Any
"""A binary file object that can seek, or a path, as `numpy.savez` takes them; they share no type to name here."""

FORMAT = "learnkernels kernel"
"""Name of the format, in every description."""

VERSION = 1
"""Raised whenever what is written changes; what another version wrote is refused."""

DESCRIPTION = "description"
"""Name of the array that holds the bytes of the JSON text."""

VECTORS = ("weights", "scales", "alignments", "origin", "shift", "row_means")
"""Fields of a kernel that are arrays of float64; all but the alignments must be finite."""

OPTIONAL = ("parameters", "sample_weight")
"""The same of fields that may be None and are not written then."""

PARTS = ("X_data", "X_indices", "X_indptr", "X_shape")
"""Arrays of training rows in CSR form."""

STORAGES: dict[str, type | None] = {"dense": None, "csr_matrix": sparse.csr_matrix, "csr_array": sparse.csr_array}
"""How the training rows may be held."""

NOT_FINITE = ("inf", "-inf", "nan")
"""Numbers that JSON does not have, written as texts."""

ADVICE = "what was saved is damaged or not of this program; save the kernel again"


# Arrays --------------------------------------------------------------------------------------------------------------


def kernel_to_arrays(kernel: LearnedKernel) -> dict[str, np.ndarray]:
    """Return a kernel as plain arrays, without any object dtype, that `kernel_from_arrays` reads back bit by bit.

    Parameters
    ----------
    kernel : LearnedKernel
        Not modified.

    Returns
    -------
    arrays : dict of str to ndarray
        The numeric fields that the kernel has under their names, dense rows as ``X`` and sparse ones as ``X_data``,
        ``X_indices``, ``X_indptr`` and ``X_shape``; under ``description`` the UTF-8 bytes of a JSON text that holds all
        else. Not copied where they need not be.

    Raises
    ------
    ValueError
        A base kernel is given as a matrix or is of a class outside this package, or the kernel's fields do not fit
        each other.
    """
    require_sound(kernel)
    storage = "dense" if not sparse.issparse(kernel.X) else type(kernel.X).__name__
    if storage not in STORAGES:
        raise ValueError(f"X must be an array, csr_matrix or csr_array, got {storage}; learn the kernel on X.tocsr().")
    text = json.dumps(
        {
            "format": FORMAT,
            "version": VERSION,
            "learner": kernel.learner,
            "normalise": kernel.normalise,
            "alignment": _plain(kernel.alignment),
            "degree": int(kernel.degree),
            "offset": _plain(kernel.offset),
            "regularisation": None if kernel.regularisation is None else _plain(kernel.regularisation),
            "certificate": None if kernel.certificate is None else _certificate_to_data(kernel.certificate),
            "storage": storage,
            **({} if kernel.sample_weight is None else {"weighted": True}),
            **({} if kernel.sampling is None else {"sampling": _sampling_to_data(kernel.sampling)}),
            "family": family_to_data(kernel.family),
        },
        allow_nan=False,
    )
    arrays = {name: np.asarray(getattr(kernel, name), dtype=np.float64) for name in VECTORS}
    arrays |= {
        DESCRIPTION: np.frombuffer(text.encode(), dtype=np.uint8),
        "rows": np.asarray(kernel.rows, dtype=np.intp),
    }
    optional = {name: getattr(kernel, name) for name in OPTIONAL}
    arrays |= {name: np.asarray(value, dtype=np.float64) for name, value in optional.items() if value is not None}
    if storage == "dense":
        return {**arrays, "X": np.asarray(kernel.X, dtype=np.float64)}
    X = kernel.X
    return {**arrays, **dict(zip(PARTS, (X.data, X.indices, X.indptr, np.asarray(X.shape)), strict=True))}


def kernel_from_arrays(arrays: Mapping[str, np.ndarray]) -> LearnedKernel:
    """Return the kernel that `kernel_to_arrays` was called on.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        As `kernel_to_arrays` returns them; others are left alone. Not modified and not copied.

    Returns
    -------
    kernel : LearnedKernel

    Raises
    ------
    ValueError
        The format, its version or a family is unknown, something is missing or of another type, or shapes and values
        do not make a kernel.

    Notes
    -----
    Families are made by a fixed table of constructors; no name is looked up or imported, and no object is unpickled.
    """
    fields = _description(arrays)
    try:
        family = family_from_data(fields.data.get("family"))
    except ValueError as error:
        raise ValueError(f"family of the saved kernel: {error}") from None
    except RecursionError:
        raise ValueError(
            f"family of the saved kernel must be flat, got unions in unions without end; {ADVICE}."
        ) from None
    weighted = fields.flag("weighted")
    if "sample_weight" in arrays and not weighted:
        _refuse("sample_weight must be there only where the description says weighted, got one that does not")
    certificate, regularisation = fields.data.get("certificate"), fields.data.get("regularisation")
    sampling = fields.data.get("sampling")
    normalise: dict[str, Normalisation] = {name: name for name in NORMALISATIONS}
    kernel = LearnedKernel(
        family=family,
        learner=fields.text("learner"),
        normalise=normalise[fields.one_of("normalise", tuple(normalise))],
        alignment=fields.number("alignment", finite=False),
        certificate=None if certificate is None else _certificate_from_data(certificate),
        X=_rows_from(arrays, fields.one_of("storage", tuple(STORAGES))),
        rows=_numeric(arrays, "rows", "i").astype(np.intp, copy=False),
        degree=fields.whole("degree"),
        offset=fields.number("offset", finite=False),
        regularisation=None if regularisation is None else fields.number("regularisation", finite=False),
        parameters=_numeric(arrays, "parameters") if "parameters" in arrays else None,
        sample_weight=_numeric(arrays, "sample_weight") if weighted else None,
        sampling=None if sampling is None else _sampling_from_data(sampling),
        **{name: _numeric(arrays, name) for name in VECTORS},
    )
    require_sound(kernel)
    return kernel


def require_sound(kernel: LearnedKernel) -> None:
    """Raise ValueError if the fields of a kernel do not fit each other, or it would not give finite values."""
    if sparse.issparse(kernel.X) and kernel.X.format != "csr":
        raise ValueError(f"X must be in CSR form, got {kernel.X.format}; learn the kernel on X.tocsr().")
    if len(kernel.X.shape) != 2 or not kernel.X.shape[0]:
        raise ValueError(
            f"X must be a matrix of at least one training row, got shape {kernel.X.shape}; learn and save the kernel "
            "again."
        )
    p, (m, d) = kernel.family.n_kernels, kernel.X.shape
    shapes = {name: (p,) for name in ("weights", "scales", "alignments", "shift")}
    shapes |= {"rows": (m,), "row_means": (m,), "origin": (d,)}
    if kernel.parameters is not None:
        shapes["parameters"] = (p, *kernel.parameters.shape[1:2])
    for name, shape in shapes.items():
        got = getattr(kernel, name).shape
        if got != shape or len(got) != (2 if name == "parameters" else 1):
            expected = f"({p}, r)" if name == "parameters" else str(shape)
            raise ValueError(
                f"{name} must have shape {expected}, for {p} base kernels and {m} training rows of {d} features, got "
                f"{got}; learn and save the kernel again."
            )
    values = {name: getattr(kernel, name) for name in VECTORS if name != "alignments"}
    values |= {"X": kernel.X.data if sparse.issparse(kernel.X) else kernel.X, "offset": np.asarray(kernel.offset)}
    for name, array in values.items():
        if not np.isfinite(array).all():
            bad = array[~np.isfinite(array)].flat[0]
            raise ValueError(f"{name} must be finite, got {bad}; learn and save the kernel again.")
    if not (kernel.scales[kernel.weights != 0] > 0).all():
        raise ValueError(
            "scales must be positive wherever a weight is not zero, got others; learn and save the kernel again."
        )
    as_sample_weight(kernel.sample_weight, m)
    if kernel.sampling is not None:
        _require_error_bars(kernel.sampling, p)
    if kernel.degree < 1:
        raise ValueError(
            f"degree must be a whole number of at least 1, got {kernel.degree}; learn and save the kernel again."
        )
    try:
        with np.errstate(all="ignore"):
            kernel.family.diag(kernel.X[:1])
    except (ValueError, IndexError) as error:
        raise ValueError(
            f"the family must fit training rows of {d} features, got {error}; learn and save the kernel again."
        ) from None


def _require_error_bars(sampling: Sampling, p: int) -> None:
    for name, widths in (("alignments", sampling.alignments), ("weights", sampling.weights)):
        if widths is not None and widths.shape != (p,):
            raise ValueError(
                f"{name} of the sampling must have shape {(p,)}, one error bar a base kernel, got {widths.shape}; "
                "learn and save the kernel again."
            )


def _description(arrays: Mapping[str, np.ndarray]) -> Fields:
    """Return what the JSON text among some arrays says, of this format and version."""
    if DESCRIPTION not in arrays:
        _refuse(f"arrays must hold {DESCRIPTION!r}, got {_shown(sorted(arrays))}")
    raw = np.asarray(arrays[DESCRIPTION])
    if raw.dtype != np.uint8 or raw.ndim != 1:
        _refuse(f"{DESCRIPTION} must be a line of bytes, uint8, got {raw.dtype} of shape {raw.shape}")
    try:
        data = json.loads(raw.tobytes().decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise ValueError(f"{DESCRIPTION} must be the bytes of a JSON text, got something else; {ADVICE}.") from None
    fields = Fields(data, DESCRIPTION)
    if fields.data.get("format") != FORMAT:
        _refuse(f"format must be {FORMAT!r}, got {_shown(fields.data.get('format'))}")
    version = fields.data.get("version")
    if version != VERSION or isinstance(version, bool):
        raise ValueError(
            f"version of a saved kernel must be {VERSION}, got {_shown(version)}; read it with the release that wrote "
            "it, or learn and save the kernel again."
        )
    return fields


def _rows_from(arrays: Mapping[str, np.ndarray], storage: str) -> Rows:
    """Return the training rows as they were held."""
    make = STORAGES[storage]
    if make is None:
        return _numeric(arrays, "X")
    data, *positions = (_numeric(arrays, name, "f" if name == "X_data" else "i") for name in PARTS)
    indices, indptr, shape = positions
    if shape.shape != (2,):
        _refuse(f"X_shape must hold two numbers, rows and features, got shape {shape.shape}")
    try:
        X = make((data, indices, indptr), shape=tuple(shape.tolist()))
        X.check_format(full_check=True)  # an index outside would be read outside the memory of an array
    except (ValueError, OverflowError, TypeError, IndexError):
        raise ValueError(f"{', '.join(PARTS)} must be the parts of one CSR matrix, got others; {ADVICE}.") from None
    return X


def _numeric(arrays: Mapping[str, np.ndarray], name: str, kind: str = "f") -> np.ndarray:
    """Return an array of floats, as float64, or of integers."""
    if name not in arrays:
        _refuse(f"arrays must hold {name!r}, got {_shown(sorted(arrays))}")
    array = np.asarray(arrays[name])
    if array.dtype.kind != kind:
        _refuse(f"{name} must hold {'numbers' if kind == 'f' else 'integers'}, got dtype {array.dtype}")
    return array.astype(np.float64 if kind == "f" else array.dtype.newbyteorder("="), copy=False)


# Files ---------------------------------------------------------------------------------------------------------------


def save_kernel(kernel: LearnedKernel, file: File) -> None:
    """Write a learned kernel to a file of plain arrays (npz), without pickle.

    Parameters
    ----------
    kernel : LearnedKernel
        Not modified.
    file : binary file object or path
        A path that does not end in ``.npz`` gets that ending. Not written atomically.

    Raises
    ------
    ValueError
        As `kernel_to_arrays`; nothing is written then.
    """
    arrays = kernel_to_arrays(kernel)
    np.savez(file, allow_pickle=False, **arrays)


def load_kernel(file: File) -> LearnedKernel:
    """Return the learned kernel that `save_kernel` wrote to a file.

    Parameters
    ----------
    file : binary file object or path
        A file object must be able to seek, and stays open.

    Returns
    -------
    kernel : LearnedKernel
        Gives the same values as the one saved, bit by bit on the same machine.

    Raises
    ------
    ValueError
        The file is damaged, is not of this format and version, or holds pickled objects, which are never loaded.
    FileNotFoundError, IsADirectoryError, PermissionError
        The path leads to no file that can be opened.

    Notes
    -----
    Reading a file from others runs nothing of it, but memory follows the sizes that the file states.
    """
    try:
        archive = zipfile.ZipFile(file)
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except Exception as error:  # a damaged archive raises whatever its damage leads to
        raise ValueError(
            f"file must be one that save_kernel wrote, got no readable npz archive ({type(error).__name__}); {ADVICE}."
        ) from None
    with archive:
        return kernel_from_arrays(members(archive, "kernel"))


def members(archive: zipfile.ZipFile, what: str) -> dict[str, np.ndarray]:
    """Return the arrays of an npz archive, without loading any object; `what` is what to save again in an error."""
    return {name.removesuffix(".npy"): _member(archive, name, what) for name in archive.namelist()}


def _member(archive: zipfile.ZipFile, name: str, what: str) -> np.ndarray:
    try:
        with archive.open(name) as member:
            return np.asarray(np.lib.format.read_array(member, allow_pickle=False))
    except Exception as error:  # zipfile, zlib and the header's parser each have their own
        raise ValueError(
            f"{name!r} of the file must be a plain array of numbers, got one that is damaged or holds pickled objects, "
            f"which are never loaded ({type(error).__name__}); save the {what} again."
        ) from None


# Families ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """How the families of one class are written and made again.

    Attributes
    ----------
    family : type
        The class.
    write : callable
        ``write(family)`` returns what its constructor takes as plain data.
    read : callable
        ``read(fields)`` calls the constructor.
    """

    family: type[KernelFamily]
    write: Callable[[Any], dict[str, Any]]
    read: Callable[[Fields], KernelFamily]


def family_to_data(family: KernelFamily) -> dict[str, Any]:
    """Return a family as nested plain data, for JSON, that `family_from_data` reads back.

    Parameters
    ----------
    family : KernelFamily
        Of a class of this package.

    Returns
    -------
    data : dict
        Its ``kind`` and what its constructor takes; numbers are Python's, whose texts in JSON are exact.

    Raises
    ------
    ValueError
        The base kernels are matrices, or the class is another one.
    """
    if isinstance(family, PrecomputedFamily):
        raise ValueError(
            "family must be computed from rows to be saved, got matrices, which lie elsewhere; keep those, and the "
            "kernel's weights."
        )
    for kind, form in FORMS.items():
        if type(family) is form.family:
            return {"kind": kind, **form.write(family)}
    raise ValueError(
        f"family must be one of {', '.join(form.family.__name__ for form in FORMS.values())} to be saved, got "
        f"{type(family).__name__}; save its parameters and the kernel's weights yourself."
    )


def family_from_data(data: object) -> KernelFamily:
    """Return the family that `family_to_data` was called on.

    Parameters
    ----------
    data : dict
        Plain data, as `json.loads` returns them.

    Returns
    -------
    family : KernelFamily

    Raises
    ------
    ValueError
        The kind is unknown, or what its constructor takes is missing, of another type or out of range.
    """
    kind = Fields(data, "a family").one_of("kind", tuple(FORMS))
    return FORMS[kind].read(Fields(data, f"a {kind} family"))


def _union_to_data(union: FamilyUnion) -> dict[str, Any]:
    return {
        "families": [family_to_data(family) for family in union.families],
        "columns": [None if columns is None else columns.tolist() for columns in union.columns],
        "views": list(union.views),
    }


def _union_from_fields(fields: Fields) -> FamilyUnion:
    columns = [None if one is None else fields.wholes_of("columns", one) for one in fields.items("columns")]
    views = [None if one is None else fields.text_of("views", one) for one in fields.items("views")]
    return FamilyUnion([family_from_data(one) for one in fields.items("families")], columns, views)


def _scaled_from_fields(fields: Fields) -> ScaledFamily:
    scales = [fields.numbers_of("scales", row) for row in fields.items("scales")]
    if len({len(row) for row in scales}) > 1:
        fields.refuse("scales", "rows of one length", scales)
    return ScaledFamily(family_from_data(fields.data.get("base")), scales, fields.texts("names"))


FORMS: dict[str, Form] = {
    "cosine": Form(CosineFamily, lambda _: {}, lambda _: CosineFamily()),
    "dirichlet": Form(
        DirichletFamily,
        lambda family: {"frequencies": list(family.frequencies), "degree": family.degree},
        lambda fields: DirichletFamily(fields.numbers("frequencies"), fields.whole("degree")),
    ),
    "feature": Form(
        FeatureFamily,
        lambda family: {"features": list(family.names), "columns": family.columns.tolist()},
        lambda fields: FeatureFamily(fields.texts("features"), fields.wholes("columns")),
    ),
    "gaussian": Form(
        GaussianFamily,
        lambda family: {"gammas": list(family.gammas)},
        lambda fields: GaussianFamily(fields.numbers("gammas")),
    ),
    "laplacian": Form(
        LaplacianFamily,
        lambda family: {"gammas": list(family.gammas)},
        lambda fields: LaplacianFamily(fields.numbers("gammas")),
    ),
    "linear": Form(LinearFamily, lambda _: {}, lambda _: LinearFamily()),
    "polynomial": Form(
        PolynomialFamily,
        lambda family: {"degrees": list(family.degrees), "gamma": family.gamma, "coef0": family.coef0},
        lambda fields: PolynomialFamily(fields.wholes("degrees"), fields.number("gamma"), fields.number("coef0")),
    ),
    "scaled": Form(
        ScaledFamily,
        lambda family: {
            "base": family_to_data(family.base),
            "scales": family.scales.tolist(),
            "names": list(family.names),
        },
        _scaled_from_fields,
    ),
    "union": Form(FamilyUnion, _union_to_data, _union_from_fields),
}
"""The families that can be written, by the kind that is written for them."""


# Plain data ----------------------------------------------------------------------------------------------------------


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
            _refuse(f"{where} must be an object with named fields, got {_shown(data)}")
        self.data: dict[str, Any] = data
        self.where = where

    def refuse(self, name: str, expected: str, got: object) -> NoReturn:
        """Raise ValueError about a field."""
        _refuse(f"{name} of {self.where} must be {expected}, got {_shown(got)}")

    def text(self, name: str) -> str:
        """Return a text."""
        return self.text_of(name, self.data.get(name))

    def one_of(self, name: str, choices: Sequence[str]) -> str:
        """Return a text out of a few."""
        if (value := self.data.get(name)) not in choices:
            self.refuse(name, f"one of {', '.join(choices)}", value)
        return str(value)

    def number(self, name: str, *, finite: bool = True) -> float:
        """Return a number; where it need not be finite, that may be the text of one that is not."""
        value = self.data.get(name)
        if not finite and value in NOT_FINITE:
            return float(value)
        return self.number_of(name, value)

    def whole(self, name: str) -> int:
        """Return an integer."""
        return self.whole_of(name, self.data.get(name))

    def flag(self, name: str) -> bool:
        """Return whether something is so; where nothing is said it is not."""
        if not isinstance(value := self.data.get(name, False), bool):
            self.refuse(name, "true or false", value)
        return value

    def items(self, name: str) -> list[Any]:
        """Return a list."""
        return self.items_of(name, self.data.get(name))

    def texts(self, name: str) -> list[str]:
        """Return a list of texts."""
        return [self.text_of(name, one) for one in self.items(name)]

    def numbers(self, name: str) -> list[float]:
        """Return a list of finite numbers."""
        return self.numbers_of(name, self.data.get(name))

    def any_numbers(self, name: str) -> list[float]:
        """Return a list of numbers that need not be finite."""
        return [float(one) if one in NOT_FINITE else self.number_of(name, one) for one in self.items(name)]

    def wholes(self, name: str) -> list[int]:
        """Return a list of integers."""
        return self.wholes_of(name, self.data.get(name))

    def items_of(self, name: str, value: object) -> list[Any]:
        """Return a value of a field as a list."""
        if not isinstance(value, list):
            self.refuse(name, "a list", value)
        return value

    def text_of(self, name: str, value: object) -> str:
        """Return a value of a field as a text."""
        if not isinstance(value, str):
            self.refuse(name, "a text", value)
        return value

    def number_of(self, name: str, value: object) -> float:
        """Return a value of a field as a finite number."""
        # Compared as it is: an integer may be too large to become a float.
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= sys.float_info.max:
            self.refuse(name, "a finite number", value)
        return float(value)

    def whole_of(self, name: str, value: object) -> int:
        """Return a value of a field as an integer that arrays can hold."""
        if not isinstance(value, int) or isinstance(value, bool) or not abs(value) <= np.iinfo(np.intp).max:
            self.refuse(name, "a whole number", value)
        return value

    def numbers_of(self, name: str, value: object) -> list[float]:
        """Return a value of a field as a list of finite numbers."""
        return [self.number_of(name, one) for one in self.items_of(name, value)]

    def wholes_of(self, name: str, value: object) -> list[int]:
        """Return a value of a field as a list of integers."""
        return [self.whole_of(name, one) for one in self.items_of(name, value)]


def _certificate_to_data(certificate: Certificate) -> dict[str, Any]:
    return {
        "measure": certificate.measure,
        "residual": _plain(certificate.residual),
        "tolerance": _plain(certificate.tolerance),
        "iterations": int(certificate.iterations),
        "objectives": [_plain(value) for value in certificate.objectives],
    }


def _certificate_from_data(data: object) -> Certificate:
    fields = Fields(data, "the certificate")
    objectives = fields.any_numbers("objectives")
    return Certificate(
        measure=fields.text("measure"),
        residual=fields.number("residual", finite=False),
        tolerance=fields.number("tolerance", finite=False),
        iterations=fields.whole("iterations"),
        objectives=tuple(objectives),
    )


def _sampling_to_data(sampling: Sampling) -> dict[str, Any]:
    numbers = {"alignment": sampling.alignment, "bound": sampling.bound}
    lists = {"alignments": sampling.alignments, "weights": sampling.weights}
    return {
        "n_rows": int(sampling.n_rows),
        "of_rows": int(sampling.of_rows),
        "confidence": _plain(sampling.confidence),
        **{name: _plain(value) for name, value in numbers.items() if value is not None},
        **{name: [_plain(one) for one in value] for name, value in lists.items() if value is not None},
    }


def _sampling_from_data(data: object) -> Sampling:
    fields = Fields(data, "the sampling")
    given = fields.data
    return Sampling(
        n_rows=fields.whole("n_rows"),
        of_rows=fields.whole("of_rows"),
        confidence=fields.number("confidence"),
        alignment=fields.number("alignment", finite=False) if "alignment" in given else None,
        alignments=np.asarray(fields.any_numbers("alignments")) if "alignments" in given else None,
        weights=np.asarray(fields.any_numbers("weights")) if "weights" in given else None,
        bound=fields.number("bound", finite=False) if "bound" in given else None,
    )


def _plain(value: float) -> float | str:
    """Return a number as JSON can hold it."""
    value = float(value)
    return value if np.isfinite(value) else str(value)


def _shown(value: object) -> str:
    """Return a value of unknown length for a message."""
    if value is None:
        return "nothing"
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _refuse(reason: str) -> NoReturn:
    raise ValueError(f"{reason}; {ADVICE}.")
