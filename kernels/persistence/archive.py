"""Named arrays in one file: npz without pickle, the same bytes for the same arrays, sealed by a checksum."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from learnkernels.kernels.parameters import ADVICE, refuse, shown

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
            f"file must be one that {writer} wrote, got no readable npz archive ({type(error).__name__}); {ADVICE}."
        ) from None
    with archive:
        # What would take more memory than the file is long: compressed members, and any that share its bytes.
        if any(one.compress_type != zipfile.ZIP_STORED for one in archive.infolist()):
            raise ValueError(f"file must hold arrays as they are, got compressed ones; write it by {writer}.")
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
