"""Write and read base kernels as matrices on disk; see docs/tile-store.md."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
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

from ..data.dataset import DatasetRef
from ..data.readers import arrays_of
from ..plugins import described
from ..store import digest, file_digest, harm_of, is_stored, keep, store_path
from ..workers.cluster import Advance, DaskPool

INDEX = "index.json"

TILE_BYTES = 4 << 20
"""Size of a tile of all kernels, about a core's cache."""

STRIP_BYTES = 64 << 20

Dtype = Literal["float64", "float32"]


class MatrixIndex(BaseModel, frozen=True):
    """Description of the kernel matrices in a folder, written there as JSON."""

    format: Literal["learnkernels-matrices"] = "learnkernels-matrices"
    version: Literal[3] = 3
    dataset: str
    data_digest: str
    n_rows: PositiveInt
    dtype: Dtype
    kernels: tuple[str, ...] = Field(min_length=1)
    families: list[dict[str, Any]]
    numerics: int = NUMERICS_VERSION

    @property
    def decisive(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude={"format", "version", "dataset"})

    @property
    def id(self) -> str:
        return digest(self.decisive)

    @property
    def n_bytes(self) -> int:
        return len(self.kernels) * self.n_rows**2 * np.dtype(self.dtype).itemsize

    def files(self, folder: Path) -> list[Path]:
        return [folder / f"{k:03d}.npy" for k in range(len(self.kernels))]


def read_index(folder: Path) -> MatrixIndex:
    path = folder / INDEX
    try:
        return MatrixIndex.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise InputError(
            f"{folder}: there is no {INDEX}; make the matrices with 'learnkernels gram'."
        ) from None
    except ValueError as error:
        raise _damaged(path, cut(one_line(str(error)), 200)) from None


def _damaged(path: Path, reason: str) -> InputError:
    return InputError(
        f"{path}: is damaged ({reason}); delete the folder, and run 'learnkernels gram' again."
    )


class StoredMatrices(Sequence[np.ndarray]):
    """Base kernel matrices in a folder, memory-mapped."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()
        self.about = read_index(self.folder)
        self._matrices = [
            _open_matrix(path, self.about) for path in self.about.files(self.folder)
        ]

    def __len__(self) -> int:
        return len(self._matrices)

    def __getitem__(self, k: Any) -> Any:
        return self._matrices[k]

    def __reduce__(
        self,
    ) -> tuple[Callable[[Path, str], StoredMatrices], tuple[Path, str]]:
        return _reopen, (self.folder, self.about.id)

    def require_whole(self) -> None:
        """Raise InputError if a matrix file has changed since it was written."""
        harm = harm_of(self.folder)
        if harm is not None:
            raise _damaged(self.folder, harm)

    def family(self) -> PrecomputedFamily:
        """Return the matrices as a family of base kernels; check some entries."""
        with input_errors(self.folder):
            return PrecomputedFamily(self, self.about.kernels)


def _reopen(folder: Path, index_id: str) -> StoredMatrices:
    stored = StoredMatrices(folder)
    if stored.about.id != index_id:
        raise InputError(
            f"{folder}: was replaced by other matrices while it was in use; start the run again."
        )
    return stored


def _open_matrix(path: Path, index: MatrixIndex) -> np.ndarray:
    try:
        matrix: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise _damaged(path, error.strerror or "it cannot be read") from None
    except ValueError as error:
        raise _damaged(path, str(error).splitlines()[0][:80]) from None
    shape = (index.n_rows, index.n_rows)
    if (
        matrix.shape != shape
        or matrix.dtype != index.dtype
        or not matrix.flags.c_contiguous
    ):
        raise _damaged(path, f"it has shape {matrix.shape} and type {matrix.dtype}")
    return matrix


# Output


def matrix_folder(output: str, name: str) -> Path:
    """Return the folder in `output` for the kernel matrices of a data set."""
    if not name or name.startswith(".") or set(name) & set("/\\:\0"):
        raise InputError(
            f"data set {name!r}: its matrices get a folder of this name; give it a plain 'name'."
        )
    return (Path(output) / name).absolute()


def import_matrices(path: Path, ref: DatasetRef) -> Path:
    """Copy a user's kernel matrices into the state folder; return the copy's folder.

    InputError if a matrix is not finite, symmetric and of the size of the data set.
    """
    source = f"data set {ref.name}: the matrices in {path}"
    matrices = _named_matrices(arrays_of(str(path), source))
    if not matrices:
        raise InputError(
            f"{source} are none: no array has two or three dimensions; write dense matrices by numpy.savez."
        )
    for name, K in matrices.items():
        _require_kernel_matrix(name, K, ref, source)
    all_single = all(K.dtype == np.float32 for K in matrices.values())
    index = MatrixIndex(
        dataset=ref.name,
        data_digest=ref.digest,
        n_rows=ref.n_rows,
        families=[{"sha256": file_digest(path)}],
        kernels=tuple(matrices),
        dtype="float32" if all_single else "float64",
    )
    folder = store_path("matrices", digest(index.id, ref.name))
    from ..data.ingest import warn  # imports Prefect

    if not is_stored(folder, warn):
        with keep(folder) as temporary:
            for file, K in zip(index.files(temporary), matrices.values(), strict=True):
                np.save(file, np.ascontiguousarray(K, index.dtype))
            _write_index(temporary, index)
    return folder


def _named_matrices(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    matrices = {}
    for name, array in arrays.items():
        if array.ndim == 3:
            for k, matrix in enumerate(array):
                matrices[f"{name} {k}"] = matrix
        elif array.ndim > 1:
            matrices[name] = array
    return matrices


def _require_kernel_matrix(
    name: str, K: np.ndarray, ref: DatasetRef, source: str
) -> None:
    if K.dtype.kind not in "biuf":
        raise InputError(
            f"{source} must hold real numbers, got {name!r} of {K.dtype}; convert it."
        )
    if K.shape != (ref.n_rows, ref.n_rows):
        raise InputError(
            f"{source} must have a row and a column for each of the {ref.n_rows} rows that are used, got {name!r} "
            f"of shape {K.shape}; rows without a target, or left out by 'where' or 'subsample', have none."
        )
    tolerance = 1e-6 * np.abs(K).max()
    if not np.isfinite(K).all() or not np.allclose(K, K.T, rtol=0, atol=tolerance):
        raise InputError(
            f"{source} must be symmetric and finite, and {name!r} is not; correct it, or leave it out."
        )


def _write_index(folder: Path, index: MatrixIndex) -> None:
    (folder / INDEX).write_text(index.model_dump_json(indent=1), encoding="utf-8")


def require_matrices(ref: DatasetRef, config: CompareConfig) -> None:
    if any(isinstance(family, PrecomputedConfig) for family in config.kernels):
        raise InputError(
            "kernels: family precomputed is matrices already; name the families to compute."
        )
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
    ref: DatasetRef, config: CompareConfig, family: KernelFamily, dtype: Dtype
) -> MatrixIndex:
    return MatrixIndex(
        dataset=ref.name,
        data_digest=ref.digest,
        n_rows=ref.n_rows,
        families=described(config.kernels),
        kernels=family.names,
        dtype=dtype,
    )


def require_place(folder: Path, index: MatrixIndex) -> None:
    """Raise InputError if a folder has other kernel matrices than `index` describes."""
    if not os.path.lexists(folder):
        return
    if not (folder / INDEX).exists():
        raise InputError(
            f"{folder}: is there and has no {INDEX}; choose another output folder, or delete this one."
        )
    present = read_index(folder).decisive
    for key, value in index.decisive.items():
        if present[key] != value:
            raise InputError(
                f"{folder}: holds matrices whose {key} is {cut(str(present[key]), 100)}, not {cut(str(value), 100)}; "
                "choose another output folder, or delete this one."
            )


def require_space(places: Sequence[tuple[Path, MatrixIndex]]) -> None:
    missing_bytes = sum(
        index.n_bytes for folder, index in places if not folder.exists()
    )
    needed = 1.01 * missing_bytes
    first_folder, _ = places[0]
    place = next(parent for parent in first_folder.parents if parent.is_dir())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise InputError(
            f"{place}: the matrices need {format_bytes(int(needed))} and {format_bytes(free)} are free; choose an "
            "output folder on a larger disk, halve them with dtype float32, or leave out kernels or rows."
        )


def write_matrices(
    folder: Path,
    index: MatrixIndex,
    family: KernelFamily,
    X: Rows,
    pool: DaskPool,
    advance: Advance,
) -> str:
    """Write base kernel matrices unless they exist; return a line for the report.

    Workers write strips of rows, and need the folder under the same path.
    """
    report = f"{index.dataset}: {len(index.kernels)} matrices of {index.n_rows:,} rows"
    require_place(folder, index)
    try:
        if folder.exists():
            if harm_of(folder) is None:
                advance(1.0)
                return f"{report}, kept"
            shutil.rmtree(folder)
        require_space([(folder, index)])
        with keep(folder) as temporary:
            for path in index.files(temporary):
                np.lib.format.open_memmap(
                    path, "w+", index.dtype, (index.n_rows, index.n_rows)
                )
            X = pool.workers.scatter_rows(X, None, np.zeros(X.shape[1]))
            pool.map(
                _write_strip,
                _strips(index),
                advance,
                index=index,
                family=family,
                X=X,
                folder=temporary,
            )
            _write_index(temporary, index)
    except OSError as error:
        if error.errno is None:  # error of the network, not of the disk
            raise
        remedy = WAYS_OUT.get(error.errno, "choose another output folder")
        raise InputError(
            f"{folder}: cannot be written to ({error.strerror}); {remedy}, and start the same run again."
        ) from None
    return f"{report}, written"


def _strips(index: MatrixIndex) -> list[tuple[int, int]]:
    size = max(1, STRIP_BYTES * index.n_rows // index.n_bytes)
    return _blocks(0, index.n_rows, size)


def _write_strip(
    rows: tuple[int, int],
    index: MatrixIndex,
    family: KernelFamily,
    X: Any,
    folder: Path,
) -> None:
    start, stop = rows
    tile_rows = max(32, math.isqrt(TILE_BYTES // (8 * family.n_kernels)))
    # Equal row and column blocks: a diagonal tile compares a block with itself
    row_blocks = _blocks(start, stop, tile_rows)
    column_blocks = [
        *_blocks(0, start, tile_rows),
        *row_blocks,
        *_blocks(stop, index.n_rows, tile_rows),
    ]
    strip = np.empty((family.n_kernels, stop - start, index.n_rows), index.dtype)
    with one_blas_thread(), np.errstate(over="ignore"):
        for i, i_stop in row_blocks:
            A = X[i:i_stop]
            for j, j_stop in column_blocks:
                B = A if i == j else X[j:j_stop]
                strip[:, i - start : i_stop - start, j:j_stop] = family.tile(A, B)
    for name, path, K in zip(family.names, index.files(folder), strip, strict=True):
        if not np.isfinite(K).all():
            raise InputError(
                f"data set {index.dataset}: base kernel {name} has values that {index.dtype} cannot hold in rows "
                f"{start} to {stop - 1}; scale the features, or change its parameters."
            )
        # With a memory map, a full disk would kill the process
        with path.open("r+b") as file:
            file.seek(path.stat().st_size - (index.n_rows - start) * K[0].nbytes)
            file.write(K.data)


def _blocks(start: int, stop: int, size: int) -> list[tuple[int, int]]:
    return [(first, min(first + size, stop)) for first in range(start, stop, size)]
