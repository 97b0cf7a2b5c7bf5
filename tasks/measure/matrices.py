"""Base kernels as matrices on disk: written by strips of rows on the workers, mapped into memory where they are read.

A folder holds one NumPy file for each base kernel and an index; docs/tile-store.md describes both.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from dask.utils import format_bytes
from pydantic import BaseModel, Field, PositiveInt

from learnkernels.conf.errors import WAYS_OUT, InputError, cut, input_errors, one_line
from learnkernels.conf.schema import CompareConfig, PrecomputedConfig
from learnkernels.kernels import NUMERICS_VERSION
from learnkernels.kernels.engine.workers import one_blas_thread
from learnkernels.kernels.families import KernelFamily, PrecomputedFamily
from learnkernels.kernels.families.base import Rows
from learnkernels.tasks.data.dataset import DatasetRef
from learnkernels.tasks.data.readers import arrays_of
from learnkernels.tasks.own import described
from learnkernels.tasks.store import atomic_path, digest, keep, kept, store_path
from learnkernels.tasks.workers.cluster import Advance, DaskPool

INDEX = "index.json"

TILE_BYTES = 4 << 20
"""Target size of one tile of all kernels, about a core's cache."""

STRIP_BYTES = 64 << 20
"""Target size of a strip of rows of all kernels: what a worker holds, and what a killed run loses of its work."""

STRIPS_PER_WORKER = 4
"""Strips for each worker after which the index is written again."""

RESERVE = 1.01
"""Free space required, as a multiple of the values that are still to be written."""

SYMMETRIC = 1e-6
"""Share of the largest value by which two halves of a matrix may differ."""

DECISIVE = ("data_digest", "n_rows", "dtype", "kernels", "families", "numerics")
"""Keys of the index that the values of matrices depend on."""

Dtype = Literal["float64", "float32"]


class MatrixIndex(BaseModel, frozen=True):
    """What a folder of matrices holds, written next to them as JSON.

    Attributes
    ----------
    dataset : str
        Name of the data set.
    data_digest : str
        Digest of the data set; row and column i of each matrix belong to its row i.
    n_rows : int
        n; each matrix has shape (n, n).
    families : list of dict
        The configured families with all their parameters.
    kernels : tuple of str
        Names of the base kernels, in the order of the files.
    dtype : {"float64", "float32"}
    numerics : int
        `kernels.NUMERICS_VERSION` of the program that computed the values.
    strip_rows : int
        Rows of every strip but the last.
    strips : dict of int to str
        SHA-256 of the values of each finished strip, one kernel after the other, by its first row.
    """

    format: Literal["learnkernels-matrices"] = "learnkernels-matrices"
    version: Literal[2] = 2
    dataset: str
    data_digest: str
    n_rows: PositiveInt
    families: list[dict[str, Any]]
    kernels: tuple[str, ...] = Field(min_length=1)
    dtype: Dtype
    numerics: int = NUMERICS_VERSION
    strip_rows: PositiveInt
    strips: dict[int, str] = {}

    @property
    def id(self) -> str:
        """Digest of all that the values depend on."""
        return digest(*(getattr(self, name) for name in DECISIVE))

    @property
    def starts(self) -> range:
        """The first rows of all strips, finished or not."""
        return range(0, self.n_rows, self.strip_rows)

    def rows(self, start: int) -> slice:
        """Return the rows of the strip that begins at a row."""
        return slice(start, min(start + self.strip_rows, self.n_rows))

    def matrices(self, folder: Path) -> list[np.ndarray]:
        """Return the matrices, mapped into memory for reading.

        Raises
        ------
        InputError
            A file is missing, or its size, shape or type are not those of the index.
        """
        mapped = []
        for path in self.files(folder):
            try:
                matrix = np.load(path, mmap_mode="r", allow_pickle=False)
                found = (matrix.shape, str(matrix.dtype), matrix.flags.c_contiguous)
                if found != ((self.n_rows, self.n_rows), self.dtype, True):
                    raise ValueError(f"it has shape {matrix.shape} and type {matrix.dtype}")
            except (OSError, ValueError) as error:
                said = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0][:80]
                raise _damaged(path, said or "it cannot be read") from None
            mapped.append(matrix)
        return mapped

    def files(self, folder: Path) -> list[Path]:
        """Return the files of the matrices in a folder."""
        return [folder / f"{k:03d}.npy" for k in range(len(self.kernels))]

    def write(self, folder: Path) -> None:
        """Write the index whole or not at all."""
        with atomic_path(folder / INDEX) as temporary:
            temporary.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")


def _damaged(path: Path, reason: str) -> InputError:
    return InputError(f"{path}: is damaged ({reason}); start the 'learnkernels gram' that made it again.")


def read_index(folder: Path) -> MatrixIndex:
    """Return the index of a folder of matrices.

    Raises
    ------
    InputError
        There is none, or it cannot be read.
    """
    path = folder / INDEX
    try:
        index = MatrixIndex.model_validate_json(path.read_bytes())
        if any(start not in index.starts for start in index.strips):
            raise ValueError("it lists strips of other rows")
    except FileNotFoundError:
        raise InputError(f"{folder}: there is no {INDEX}; make the matrices with 'learnkernels gram'.") from None
    except ValueError as error:
        raise InputError(
            f"{path}: is damaged ({cut(one_line(str(error)), 200)}); delete the folder, and run 'learnkernels gram' "
            "again."
        ) from None
    return index


class StoredMatrices(Sequence[np.ndarray]):
    """The matrices of a folder, mapped into memory; pickled as the folder's path.

    Raises
    ------
    InputError
        The folder has no index, strips are missing, or a file is damaged.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()
        self.about = index = read_index(self.folder)
        if len(index.strips) < len(index.starts):
            raise InputError(
                f"{self.folder}: is not complete, {len(index.strips)} of {len(index.starts)} strips are there; start "
                "the 'learnkernels gram' that began it again."
            )
        self._mapped = index.matrices(self.folder)

    def __len__(self) -> int:
        return len(self._mapped)

    def __getitem__(self, k: Any) -> Any:
        return self._mapped[k]

    def __reduce__(self) -> tuple[Callable[[Path, str], StoredMatrices], tuple[Path, str]]:
        return _opened_again, (self.folder, self.about.id)

    def require_whole(self) -> None:
        """Read all values, and raise InputError if they are not those that were written."""
        for start in self.about.starts:
            if _strip_digest(self, self.about.rows(start)) != self.about.strips[start]:
                last = self.about.rows(start).stop - 1
                raise _damaged(self.folder, f"the checksum of rows {start} to {last} is not that of {INDEX}")

    def family(self) -> PrecomputedFamily:
        """Return the base kernels over row positions.

        Raises
        ------
        InputError
            A matrix is not symmetric or not finite on a sample of entries.
        """
        with input_errors(self.folder):
            return PrecomputedFamily(self, self.about.kernels)


def _opened_again(folder: Path, of: str) -> StoredMatrices:
    stored = StoredMatrices(folder)
    if stored.about.id != of:
        raise InputError(f"{folder}: was replaced by other matrices while it was in use; start the run again.")
    return stored


def _strip_digest(matrices: Sequence[np.ndarray] | np.ndarray, rows: slice) -> str:
    sha = hashlib.sha256()
    for matrix in matrices:
        sha.update(matrix[rows].data)
    return sha.hexdigest()


# Writing -------------------------------------------------------------------------------------------------------------


def matrix_folder(output: str, name: str) -> Path:
    """Return the folder of a data set's matrices; raise InputError where the name cannot be that of a folder."""
    if name.startswith(".") or set(name) & set("/\\:\0") or not name:
        raise InputError(f"data set {name!r}: its matrices get a folder of this name; give it a plain 'name'.")
    return (Path(output) / name).absolute()


def own_matrices(path: Path, ref: DatasetRef) -> Path:
    """Return the folder, in the store, of the matrices in a user's file, with the index that `write_matrices` writes.

    Raises
    ------
    InputError
        The file cannot be read, or a matrix is not symmetric or finite, or has not a row for each of the data set.
    """
    found = f"data set {ref.name}: the matrices in {path}"
    given = {name: array for name, array in arrays_of(str(path), found).items() if array.ndim > 1}
    named: dict[str, np.ndarray] = {}
    for name, array in given.items():
        several = array if array.ndim == 3 else array[None]
        named |= {f"{name} {k}" if array.ndim == 3 else name: one for k, one in enumerate(several)}
    if not named:
        raise InputError(
            f"{found} are none: no array has two or three dimensions; write dense matrices by numpy.savez."
        )
    for name, K in named.items():
        if K.dtype.kind not in "biuf":
            raise InputError(f"{found} must hold real numbers, got {name!r} of {K.dtype}; convert it.")
        if K.shape != (ref.n_rows, ref.n_rows):
            raise InputError(
                f"{found} must have a row and a column for each of the {ref.n_rows} rows that are used, got {name!r} "
                f"of shape {K.shape}; rows without a target, or left out by 'where' or 'subsample', have none."
            )
        if not (np.isfinite(K).all() and np.allclose(K, K.T, rtol=0, atol=SYMMETRIC * np.abs(K).max())):
            raise InputError(f"{found} must be symmetric and finite, and {name!r} is not; correct it, or leave it out.")
    dtype: Dtype = "float32" if all(K.dtype == np.float32 for K in named.values()) else "float64"
    matrices = [np.ascontiguousarray(K, dtype) for K in named.values()]
    values = _strip_digest(matrices, slice(None))
    index = MatrixIndex(
        dataset=ref.name, data_digest=ref.digest, n_rows=ref.n_rows, families=[{"sha256": values}],
        kernels=tuple(named), dtype=dtype, strip_rows=ref.n_rows, strips={0: values},
    )  # fmt: skip
    folder = store_path("matrices", digest(index.id, ref.name))
    from learnkernels.tasks.data.ingest import warn  # here, because it brings Prefect along

    if not kept(folder, warn):
        with keep(folder) as aside:
            for file, K in zip(index.files(aside), matrices, strict=True):
                np.save(file, K)
            index.write(aside)
    return folder


def require_matrices(ref: DatasetRef, config: CompareConfig) -> None:
    """Raise InputError where the base kernels of a data set cannot be written as matrices."""
    if any(isinstance(family, PrecomputedConfig) for family in config.kernels):
        raise InputError("kernels: family precomputed is matrices already; name the families to compute.")
    if ref.in_parts:
        raise InputError(
            f"data set {ref.name}: is read in parts, and a matrix has an entry for every pair of its rows; take "
            "fewer rows, or set 'in_parts: false'."
        )
    if ref.by_training:
        raise InputError(
            f"data set {ref.name}: with 'scale_on: training' each trial has features of its own, and no one matrix "
            "serves them all; set 'scale_on: all'."
        )


def index_of(
    ref: DatasetRef, config: CompareConfig, family: KernelFamily, dtype: Dtype, strip_bytes: int = STRIP_BYTES
) -> MatrixIndex:
    """Return the index of the base kernels of a configuration over a data set, without strips."""
    row_bytes = family.n_kernels * ref.n_rows * np.dtype(dtype).itemsize
    return MatrixIndex(
        dataset=ref.name,
        data_digest=ref.digest,
        n_rows=ref.n_rows,
        families=described(config.kernels),
        kernels=family.names,
        dtype=dtype,
        strip_rows=min(max(1, strip_bytes // row_bytes), ref.n_rows),
    )


def begun(folder: Path, wanted: MatrixIndex) -> MatrixIndex:
    """Return the index of a folder in which the same matrices were begun, or the one that is wanted where none were.

    Raises
    ------
    InputError
        The folder holds matrices of something else, or its index is damaged.
    """
    if not any(os.path.lexists(folder / name) for name in (INDEX, "manifest.json")):
        return wanted
    found = read_index(folder)
    for key in DECISIVE:
        here, ours = (cut(str(getattr(index, key)), 100) for index in (found, wanted))
        if getattr(found, key) != getattr(wanted, key):
            raise InputError(
                f"{folder}: holds matrices whose {key} is {here}, not {ours}; choose another output folder, "
                "or delete this one."
            )
    return found


def require_space(places: Sequence[tuple[Path, MatrixIndex]]) -> None:
    """Raise InputError if strips that are missing need more room than is free where the first folder lies."""
    needed = 0.0
    for _, index in places:
        missing = 1 - len(index.strips) / len(index.starts)
        needed += RESERVE * missing * len(index.kernels) * index.n_rows**2 * np.dtype(index.dtype).itemsize
    place = next(parent for parent in places[0][0].parents if parent.is_dir())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise InputError(
            f"{place}: the matrices need {format_bytes(int(needed))} and {format_bytes(free)} are free; choose an "
            "output folder on a larger disk, halve them with dtype float32, or leave out kernels or rows."
        )


def write_matrices(
    folder: Path, index: MatrixIndex, family: KernelFamily, X: Rows, pool: DaskPool, advance: Advance
) -> str:
    """Compute and write the strips that a folder lacks, or that are damaged, and return a line for the report.

    Parameters
    ----------
    folder : Path
        Of this data set alone.
    index : MatrixIndex
        From `begun`.
    family : KernelFamily
        The p base kernels of the index.
    X : ndarray or CSR matrix of shape (n, d)
        The rows of the data set. Not modified.
    pool : DaskPool
        Where the strips are computed. Workers of this machine write them; those of a scheduler elsewhere, whose disk
        is another, send them here.
    advance : callable
        Is given shares that add up to one.

    Raises
    ------
    InputError
        A value is not finite in the type of the matrices, the folder cannot be written to, another run writes to it or
        has put other matrices there, or a worker ends again and again.

    Notes
    -----
    O(n^2 (d + p)) time; a worker holds one strip and one tile. The index is written after each `STRIPS_PER_WORKER`
    strips a worker: a run that is started again continues from there.
    """
    require_space([(folder, index)])
    try:
        with _only_writer(folder):
            index = begun(folder, index)
            index = index.model_copy(update={"strips": _whole_strips(folder, index)})
            missing = [start for start in index.starts if start not in index.strips]
            X = pool.workers.scatter_rows(X, None, np.zeros(X.shape[1]))
            at_once = max(1, STRIPS_PER_WORKER * pool.n_workers)
            for first in range(0, len(missing), at_once):
                starts = missing[first : first + at_once]
                made = pool.map(
                    _strip, starts, index=index, family=family, X=X, folder=None if pool.config.elsewhere else folder
                )
                strips = dict(index.strips)
                for start, strip in zip(starts, made, strict=True):
                    strips[start] = strip if isinstance(strip, str) else _write_strip(folder, index, start, strip)
                index = index.model_copy(update={"strips": dict(sorted(strips.items()))})
                index.write(folder)
                advance(len(starts) / len(missing))
    except OSError as error:
        if error.errno is None:  # of the network
            raise
        way = WAYS_OUT.get(error.errno or 0, "choose another output folder")
        raise InputError(
            f"{folder}: cannot be written to ({error.strerror}); {way}, and start the same run again."
        ) from None
    if not missing:
        advance(1.0)
    done, kept = len(missing), len(index.starts) - len(missing)
    strips_of = f"{done} strip{'' if done == 1 else 's'} written, {kept} kept"
    return f"{index.dataset}: {len(index.kernels)} matrices of {index.n_rows:,} rows, {strips_of}"


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the system gives back when a process ends, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    # Not truncated, and no link followed: what a link leads to is not ours.
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder}: another run is writing here; wait for it, or name another folder.") from None
        yield
    finally:
        os.close(lock)


def _whole_strips(folder: Path, index: MatrixIndex) -> dict[int, str]:
    """Return the finished strips of an index whose values are whole; files that are none of it are made again."""
    try:
        if any(path.is_symlink() for path in index.files(folder)):
            raise _damaged(folder, "a file is a link")
        matrices = index.matrices(folder)
    except InputError:
        for path in index.files(folder):
            path.unlink(missing_ok=True)
            np.lib.format.open_memmap(path, "w+", index.dtype, (index.n_rows, index.n_rows))
        matrices = index.matrices(folder)
        index.model_copy(update={"strips": {}}).write(folder)
    return {start: sha for start, sha in index.strips.items() if _strip_digest(matrices, index.rows(start)) == sha}


def _strip(start: int, index: MatrixIndex, family: KernelFamily, X: Any, folder: Path | None) -> str | np.ndarray:
    """Compute the p kernels between some rows and all rows by tiles, and write them where there is a folder.

    Returns
    -------
    strip : str or ndarray of shape (p, rows, n)
        The SHA-256 of the values that were written, or the values.
    """
    rows, n, step = index.rows(start), index.n_rows, max(32, math.isqrt(TILE_BYTES // (8 * family.n_kernels)))
    K = np.empty((family.n_kernels, rows.stop - start, n), index.dtype)
    # The columns are cut where the rows are, so that a tile on the diagonal is one of a block with itself.
    parts = ((0, start), (start, rows.stop), (rows.stop, n))
    spans = [(low, min(low + step, high)) for begin, high in parts for low in range(begin, high, step)]
    with one_blas_thread(), np.errstate(over="ignore"):
        for i, i_stop in (span for span in spans if start <= span[0] < rows.stop):
            A = X[i:i_stop]
            for j, j_stop in spans:
                K[:, i - start : i_stop - start, j:j_stop] = family.tile(A, A if i == j else X[j:j_stop])
    for name, matrix in zip(family.names, K, strict=True):
        if not np.isfinite(matrix).all():
            raise InputError(
                f"data set {index.dataset}: base kernel {name} has values that {index.dtype} cannot hold in rows "
                f"{start} to {rows.stop - 1}; scale the features, or change its parameters."
            )
    return K if folder is None else _write_strip(folder, index, start, K)


def _write_strip(folder: Path, index: MatrixIndex, start: int, K: np.ndarray) -> str:
    """Write a strip into the files of the matrices, and return the SHA-256 of its values."""
    for path, matrix in zip(index.files(folder), K, strict=True):
        with path.open("r+b") as file:  # and not by a mapping, where a full disk ends the process
            file.seek(path.stat().st_size - (index.n_rows - start) * matrix[0].nbytes)
            file.write(matrix.data)
            file.flush()
            os.fsync(file.fileno())
    return _strip_digest(K, slice(None))
