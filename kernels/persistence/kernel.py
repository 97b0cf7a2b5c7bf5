"""A learned kernel as plain arrays and a JSON text in one sealed file: reading one imports nothing that it names."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from ..centering import Centering
from ..families import family_from_dict
from ..families.base import Rows
from ..learned import LearnedKernel
from ..parameters import (
    ADVICE,
    Fields,
    any_number,
    list_of,
    listed,
    one_of,
    optional,
    plain,
    record_of,
    refuse,
    shown,
    text,
    to_text,
    truth,
    whole,
)
from ..solvers.certificate import Certificate
from ..statistics.gram import NORMALIZATIONS
from ..statistics.sampled import Sampling
from ..weights import as_sample_weight

File: TypeAlias = Any
"""A binary file object that can seek, or a path, as `numpy.savez` takes them; they share no type to name here."""

SEAL = b"sha256 "
"""What the comment of the archive begins with; 64 hexadecimal digits of all bytes before the comment follow."""

SEAL_LENGTH = len(SEAL) + 64

WRITTEN = (1980, 1, 1, 0, 0, 0)
"""The date of every member: the first that an archive can hold, so that bytes do not depend on the clock."""


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
        refuse("file must be a model that save_model wrote, got one without its checksum")
    if seal != _seal(view[:-SEAL_LENGTH]):
        refuse("file must have the contents of its checksum, got others")
    return read_arrays(io.BytesIO(content), "save_model")


def read_arrays(file: File, writer: str) -> dict[str, np.ndarray]:
    """Return the arrays of an npz archive, without loading any object; `writer` is what should have written it.

    Raises
    ------
    ValueError
        The file is damaged, a member is no plain array, or a name comes twice.
    FileNotFoundError, IsADirectoryError, PermissionError
        The path leads to no file that can be opened.
    """
    try:
        archive = zipfile.ZipFile(file)
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except Exception as error:  # a damaged archive raises whatever its damage leads to
        raise ValueError(
            f"{name_of(file)} was not written by {writer}, or is damaged: it is no readable npz archive "
            f"({type(error).__name__})."
        ) from None
    with archive:
        # What would take more memory than the file is long: compressed members, and any that share its bytes.
        if any(one.compress_type != zipfile.ZIP_STORED for one in archive.infolist()):
            raise ValueError(f"{name_of(file)} was not written by {writer}: its arrays are compressed.")
        if sum(one.file_size for one in archive.infolist()) > archive.start_dir:
            refuse("file must hold each byte of its arrays once, got members that overlap")
        names = archive.namelist()
        if len(set(names)) < len(names):
            refuse(f"file must hold each array once, got {', '.join(sorted(names))}")
        arrays = {}
        for name in names:
            try:
                with archive.open(name) as member:
                    array = np.lib.format.read_array(member, allow_pickle=False)
            except Exception as error:  # zipfile, zlib and the header's parser each have their own
                raise ValueError(
                    f"{name!r} of the file must be a plain array of numbers, got one that is damaged or holds pickled "
                    f"objects, which are never loaded ({type(error).__name__}); {ADVICE}."
                ) from None
            arrays[name.removesuffix(".npy")] = np.asarray(array)
    return arrays


def name_of(file: File) -> str:
    """Return what a path or a file object is called in a sentence."""
    if isinstance(file, str) or hasattr(file, "__fspath__"):
        return str(file)
    return str(getattr(file, "name", "the file"))


def take(arrays: Mapping[str, np.ndarray], name: str, kind: str = "number") -> np.ndarray:
    """Return one of the arrays that were read, of float64 or, as `kind` says, of integers."""
    if name not in arrays:
        refuse(f"arrays must hold {name!r}, got {shown(sorted(arrays))}")
    array = np.asarray(arrays[name])
    if not (array.dtype == np.float64 if kind == "number" else array.dtype.kind == "i"):
        refuse(f"{name} must hold {'numbers, float64' if kind == 'number' else 'integers'}, got dtype {array.dtype}")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _seal(before: memoryview) -> bytes:
    return SEAL + hashlib.sha256(before).hexdigest().encode()


FORMAT = "learnkernels kernel"
"""Name of the format, in every description."""

VERSION = 1
"""Raised whenever what is written changes; what another version wrote is refused."""

DESCRIPTION = "description"
"""Name of the array that holds the bytes of the JSON text."""

VECTORS = ("weights", "scales", "alignments", "origin", "shift", "row_means")
"""Fields of a kernel that are arrays of float64; all but the alignments must be finite."""

OPTIONAL = ("parameters", "sample_weight", "traces", "spread")
"""The same of fields that may be None and are not written then."""

SHAPES = {name: "p" for name in ("weights", "scales", "alignments", "shift", "traces")} | {
    "rows": "m", "row_means": "m", "origin": "d", "spread": "d", "parameters": "pr",
}  # fmt: skip
"""Axes of fields: base kernels, training rows, features, and any number of parameters."""

PARTS = ("X_data", "X_indices", "X_indptr", "X_shape")
"""Arrays of training rows in CSR form."""

STORAGES: dict[str, type | None] = {"dense": None, "csr_matrix": sparse.csr_matrix, "csr_array": sparse.csr_array}
"""How the training rows may be held."""


CERTIFICATE: dict[str, Callable[[object], Any]] = {
    "measure": text,
    "residual": any_number,
    "tolerance": any_number,
    "iterations": whole,
    "objectives": lambda value: tuple(list_of(any_number)(value)),
}

DESCRIBED: dict[str, Callable[[object], Any]] = {
    "learner": text,
    "normalize": one_of(tuple(NORMALIZATIONS)),
    "centering": lambda value: Centering(one_of(tuple(map(str, Centering)))(value)),
    "alignment": any_number,
    "degree": whole,
    "offset": any_number,
    "C": optional(any_number),
    "history": lambda value: tuple(list_of(any_number)(value)),
    "sampling": optional(record_of(Sampling, "the sampling", {"n_rows": whole, "of_rows": whole})),
    "certificate": optional(record_of(Certificate, "the certificate", CERTIFICATE)),
}
"""Fields of a kernel that its description holds, and how each is checked."""

AGAIN = "learn and save the kernel again"

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
    if not isinstance(kernel, LearnedKernel):
        of_estimator = ". Save that of a fitted estimator by save_kernel(estimator.kernel_, file)"
        advice = of_estimator if hasattr(kernel, "fit") else ""
        raise ValueError(f"kernel must be a LearnedKernel, got {type(kernel).__name__}{advice}.")
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
        The file is damaged or compressed, is not of this format and version, or holds pickled objects, which are never
        loaded.
    FileNotFoundError, IsADirectoryError, PermissionError
        The path leads to no file that can be opened.

    Notes
    -----
    Reading a file from others runs nothing of it, and takes no more memory than it is long.
    """
    arrays = read_arrays(file, "save_kernel")
    if DESCRIPTION not in arrays:
        raise ValueError(
            f"{name_of(file)} is not a learnkernels kernel: it holds arrays {listed(sorted(arrays))}. Give a file that "
            "save_kernel wrote."
        )
    return kernel_from_arrays(arrays)


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
    data = {
        "format": FORMAT,
        "version": VERSION,
        "learner": kernel.learner,
        "normalize": kernel.normalize,
        "centering": kernel.centering.value,
        "alignment": plain(float(kernel.alignment)),
        "degree": int(kernel.degree),
        "offset": plain(float(kernel.offset)),
        "C": None if kernel.C is None else plain(float(kernel.C)),
        "certificate": None if kernel.certificate is None else plain(kernel.certificate),
        "storage": storage,
        "weighted": kernel.sample_weight is not None,
        "sampling": None if kernel.sampling is None else plain(kernel.sampling),
        "history": [plain(float(value)) for value in kernel.history],
        "family": kernel.family.to_dict(),
    }
    arrays = {name: np.asarray(getattr(kernel, name), dtype=np.float64) for name in VECTORS}
    arrays |= {DESCRIPTION: to_text(data, "what a kernel tells"), "rows": np.asarray(kernel.rows, dtype=np.intp)}
    optionals = {name: getattr(kernel, name) for name in OPTIONAL}
    arrays |= {name: np.asarray(value, dtype=np.float64) for name, value in optionals.items() if value is not None}
    X = kernel.X
    if storage == "dense":
        return {**arrays, "X": np.asarray(X, dtype=np.float64)}
    parts = (np.asarray(X.data, dtype=np.float64), X.indices, X.indptr, np.asarray(X.shape))
    return {**arrays, **dict(zip(PARTS, parts, strict=True))}


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
    if DESCRIPTION not in arrays:
        refuse(f"arrays must hold {DESCRIPTION!r}, got {shown(sorted(arrays))}")
    fields = Fields.of_text(arrays[DESCRIPTION], DESCRIPTION).require_format(FORMAT, VERSION)
    weighted = fields.get("weighted", truth)
    if "sample_weight" in arrays and not weighted:
        refuse("sample_weight must be there only where the description says weighted, got one that does not")
    try:
        family = fields.get("family", family_from_dict)
    except ValueError as error:
        raise ValueError(f"family of the saved kernel: {error}") from None
    except RecursionError:
        raise ValueError(
            f"family of the saved kernel must be flat, got unions in unions without end; {ADVICE}."
        ) from None
    make = STORAGES[fields.get("storage", one_of(tuple(STORAGES)))]
    if make is None:
        X: Rows = take(arrays, "X")
    else:
        data, *positions = (take(arrays, name, "number" if name == "X_data" else "integer") for name in PARTS)
        indices, indptr, shape = positions
        if shape.shape != (2,):
            refuse(f"X_shape must hold two numbers, rows and features, got shape {shape.shape}")
        try:
            X = make((data, indices, indptr), shape=tuple(shape.tolist()))
            X.check_format(full_check=True)  # an index outside would be read outside the memory of an array
        except (ValueError, OverflowError, TypeError, IndexError):
            names = ", ".join(PARTS)
            raise ValueError(f"{names} must be the parts of one CSR matrix, got others; {ADVICE}.") from None
    rows = take(arrays, "rows", "integer").astype(np.intp, copy=False)
    given = [name for name in OPTIONAL if name in arrays or (name == "sample_weight" and weighted)]
    values = fields.take(DESCRIBED) | {name: take(arrays, name) for name in (*VECTORS, *given)}
    kernel = LearnedKernel(family=family, X=X, rows=rows, **values)
    require_sound(kernel)
    return kernel


# Checks --------------------------------------------------------------------------------------------------------------


def require_sound(kernel: LearnedKernel) -> None:
    """Raise ValueError if the fields of a kernel do not fit each other, or it would not give finite values."""
    if sparse.issparse(kernel.X) and kernel.X.format != "csr":
        raise ValueError(f"X must be in CSR form, got {kernel.X.format}; learn the kernel on X.tocsr().")
    if len(kernel.X.shape) != 2 or not kernel.X.shape[0]:
        raise ValueError(f"X must be a matrix of at least one training row, got shape {kernel.X.shape}; {AGAIN}.")
    p, (m, d) = kernel.family.n_kernels, kernel.X.shape
    sizes = {"p": p, "m": m, "d": d}
    for name, axes in SHAPES.items():
        if (array := getattr(kernel, name)) is None:
            continue
        pairs = zip(axes, array.shape, strict=False)
        if array.ndim != len(axes) or any(sizes.get(axis, size) != size for axis, size in pairs):
            expected = ", ".join(str(sizes.get(axis, axis)) for axis in axes) + "," * (len(axes) == 1)
            raise ValueError(
                f"{name} must have shape ({expected}), for {p} base kernels and {m} training rows of {d} features, got "
                f"{array.shape}; {AGAIN}."
            )
    values = {name: getattr(kernel, name) for name in VECTORS if name != "alignments"}
    values |= {"X": kernel.X.data if sparse.issparse(kernel.X) else kernel.X, "offset": np.asarray(kernel.offset)}
    for name, array in values.items():
        if not np.isfinite(array).all():
            bad = array[~np.isfinite(array)].flat[0]
            raise ValueError(f"{name} must be finite, got {bad}; {AGAIN}.")
    if not (kernel.scales[kernel.weights != 0] > 0).all():
        raise ValueError(f"scales must be positive wherever a weight is not zero, got others; {AGAIN}.")
    as_sample_weight(kernel.sample_weight, kernel.X.shape[0])
    if kernel.degree < 1:
        raise ValueError(f"degree must be a whole number of at least 1, got {kernel.degree}; {AGAIN}.")
    try:
        with np.errstate(all="ignore"):
            kernel.family.diag(kernel.X[:1])
    except (ValueError, IndexError, ArithmeticError) as error:
        raise ValueError(
            f"the family must fit training rows of {kernel.X.shape[1]} features, got {error}; {AGAIN}."
        ) from None
