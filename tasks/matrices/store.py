"""The tile store: base-kernel matrices of one data set on disk, written shard by shard, read without a copy."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import pyarrow as pa
from dask.utils import format_bytes
from distributed import as_completed

from learnkernels.conf.errors import InputError
from learnkernels.kernels.engine.threads import one_blas_thread
from learnkernels.kernels.families import KernelFamily, PrecomputedFamily
from learnkernels.kernels.families.base import Rows
from learnkernels.tasks.matrices.format import (
    MANIFEST,
    Manifest,
    Shard,
    StoreSpec,
    damage,
    map_shard,
    read_manifest,
    shard_name,
    write_shard,
)
from learnkernels.tasks.store import atomic_path, file_digest
from learnkernels.tasks.workers.cluster import DaskPool

TILE_BYTES = 4 << 20
"""Target size of one tile of all kernels, about a core's cache."""

SHARD_BYTES = 64 << 20
"""Target size of a shard: what a worker holds, and what a killed run loses of each worker's work."""

RESERVE = 1.01
"""Free space asked for, as a multiple of the values that are still to be written: metadata, and a block a file."""

Range = tuple[int, int]


@dataclass(frozen=True)
class StorePlan:
    """What is there of a store, and what is to be done.

    Attributes
    ----------
    folder : Path
    manifest : Manifest
        With the shards that are finished and whole.
    missing : tuple of (int, int)
        The row ranges to compute.
    found : Manifest, optional
        What the folder's manifest said then.
    """

    folder: Path
    manifest: Manifest
    missing: tuple[Range, ...]
    found: Manifest | None = None

    @property
    def bytes_needed(self) -> int:
        """Bytes of the values to write."""
        return self.manifest.spec.row_bytes * sum(stop - start for start, stop in self.missing)


def plan_store(folder: Path, spec: StoreSpec, shard_bytes: int = SHARD_BYTES) -> StorePlan:
    """Return what is to be done so that a folder holds the matrices of a spec.

    Parameters
    ----------
    folder : Path
        Of this data set alone; it need not exist.
    spec : StoreSpec
        What the folder is to hold.
    shard_bytes : int
        Target size of a shard. A store that was begun keeps its own cut.

    Returns
    -------
    plan : StorePlan

    Raises
    ------
    InputError
        The folder holds matrices of something else, or its manifest is damaged.

    Notes
    -----
    Finished shards are read once, for their checksums; damaged ones count as missing.
    """
    folder = folder.absolute()
    found = _found(folder)
    if found is None:
        rows = min(max(1, shard_bytes // spec.row_bytes), spec.n_rows)
        manifest = Manifest(spec, rows)
    else:
        difference = found.spec.difference(spec)
        if difference:
            raise InputError(
                f"{folder}: holds matrices {difference}; name another folder with --output, or delete this one."
            )
        manifest = found.with_shards([s for s in found.shards if damage(folder, spec, s, checksum=True) is None])
    held = {shard.start for shard in manifest.shards}
    missing = (manifest.rows_from(start) for start in manifest.starts if start not in held)
    return StorePlan(folder, manifest, tuple(missing), found)


def _found(folder: Path) -> Manifest | None:
    """Return what the manifest of a folder says, if there is one."""
    return read_manifest(folder) if os.path.lexists(folder / MANIFEST) else None


def require_space(plans: Sequence[StorePlan]) -> None:
    """Refuse, before any long work, what the disk has no room for.

    Raises
    ------
    InputError
        The values still to be written need more than is free where the first plan's folder lies.
    """
    needed = int(RESERVE * sum(plan.bytes_needed for plan in plans))
    place = next(parent for parent in plans[0].folder.parents if parent.is_dir())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise InputError(
            f"{place}: the matrices need {format_bytes(needed)} and {format_bytes(free)} are free; name a larger disk "
            "with --output, halve them with --dtype float32, or leave out kernels or rows."
        )


def write_store(
    plan: StorePlan, family: KernelFamily, X: Rows, pool: DaskPool, advance: Callable[[float], None]
) -> tuple[Manifest, int]:
    """Compute and write the missing shards of a store.

    Parameters
    ----------
    plan : StorePlan
        From `plan_store`.
    family : KernelFamily
        The p base kernels of the plan's spec.
    X : ndarray or CSR matrix of shape (n, d)
        The rows of the data set. Not modified.
    pool : DaskPool
        Where the shards are computed. Workers of this machine write them; those of a scheduler elsewhere, whose disk
        is another, send them here.
    advance : callable
        Told the share that each finished shard adds; together one.

    Returns
    -------
    manifest : Manifest
        Complete.
    written : int
        How many of its shards were computed.

    Raises
    ------
    InputError
        A value is not finite in the store's type, the folder cannot be written to, another run writes to it or has put
        other matrices there, or a worker ends again and again.

    Notes
    -----
    O(n^2 (d + p)) time; a worker holds one shard and one tile. The manifest is written after each shard. What another
    run has done since the plan was made is seen when the folder is locked.
    """
    require_space([plan])
    if not plan.missing:
        advance(1.0)
        return plan.manifest, 0
    folder, spec = plan.folder, plan.manifest.spec
    try:
        with _sole_writer(folder):
            if _found(folder) != plan.found:
                plan = plan_store(folder, spec, plan.manifest.rows_per_shard * spec.row_bytes)
            manifest = plan.manifest
            manifest.write(folder)
            for shard in _finished(plan, family, X, pool):
                manifest = manifest.with_shards([*manifest.shards, shard])
                manifest.write(folder)
                advance(1 / len(plan.missing))
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"data set {spec.dataset['name']}: {error}") from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise InputError(f"{folder}: the disk is full; free some space and start the same command again.") from None
        raise InputError(
            f"{folder}: cannot be written to ({error.strerror or type(error).__name__}); name another folder with "
            "--output, or let this one be written to."
        ) from None
    return manifest, len(plan.missing)


def _finished(plan: StorePlan, family: KernelFamily, X: Rows, pool: DaskPool) -> Iterator[Shard]:
    """Yield the missing shards as they are finished and in place."""
    spec, folder = plan.manifest.spec, plan.folder
    if pool.in_process:
        yield from (_make_file((family, X, spec), rows, folder) for rows in plan.missing)
        return
    client = pool.client
    context = client.scatter((family, X, spec), broadcast=True, hash=False)
    shared_disk = pool.config.scheduler is None

    def submit(rows: Range) -> Any:
        make = (_make_file, context, rows, folder) if shared_disk else (_make_bytes, context, rows)
        return client.submit(*make, pure=False)

    # Twice as many in flight as there are threads: none waits, and bytes that come back do not pile up.
    waiting = iter(plan.missing)
    in_flight = 2 * sum(client.nthreads().values())
    flying = [submit(rows) for rows in islice(waiting, in_flight)]
    with pool.finishing(flying, "a shard"):
        running = as_completed(flying, loop=client.loop)
        for future in running:
            made = future.result()
            flying.remove(future)
            for rows in islice(waiting, 1):
                flying.append(submit(rows))
                running.add(flying[-1])
            yield made if shared_disk else _put(folder, made[0], partial(Path.write_bytes, data=made[1]))


Context = tuple[KernelFamily, Rows, StoreSpec]


def _make_file(context: Context, rows: Range, folder: Path) -> Shard:
    """Compute a shard and put its file in place."""
    family, X, spec = context
    K = _shard_values(family, X, rows, spec.dtype)

    def write(path: Path) -> None:
        with path.open("wb") as file:
            write_shard(file, spec, rows[0], K)

    return _put(folder, rows, write)


def _make_bytes(context: Context, rows: Range) -> tuple[Range, bytes]:
    """Compute a shard and return what its file holds."""
    family, X, spec = context
    sink = pa.BufferOutputStream()
    write_shard(sink, spec, rows[0], _shard_values(family, X, rows, spec.dtype))
    return rows, sink.getvalue().to_pybytes()


def _put(folder: Path, rows: Range, write: Callable[[Path], object]) -> Shard:
    """Let a shard be written beside its place, take its size and checksum, and move it there."""
    name = shard_name(*rows)
    with atomic_path(folder / name) as temporary:
        write(temporary)
        return Shard(name, *rows, temporary.stat().st_size, file_digest(temporary))


def _shard_values(family: KernelFamily, X: Rows, rows: Range, dtype: str) -> np.ndarray:
    """Return the p kernels between some rows and all rows, shape (p, stop - start, n), by tiles."""
    start, stop = rows
    n, step = X.shape[0], max(32, math.isqrt(TILE_BYTES // (8 * family.n_kernels)))
    K = np.empty((family.n_kernels, stop - start, n), dtype)
    # The columns are cut where the rows are, so that a tile on the diagonal is one of a block with itself.
    parts = ((0, start), rows, (stop, n))
    spans = [(low, min(low + step, high)) for begin, high in parts for low in range(begin, high, step)]
    with one_blas_thread(), np.errstate(over="ignore"):
        for i, i_stop in (span for span in spans if start <= span[0] < stop):
            A = X[i:i_stop]
            for j, j_stop in spans:
                B = A if i == j else X[j:j_stop]
                K[:, i - start : i_stop - start, j:j_stop] = family.tile(A, B)
    for name, matrix in zip(family.names, K, strict=True):
        if not np.isfinite(matrix).all():
            raise ValueError(
                f"base kernel {name} has values that {dtype} cannot hold in rows {start} to {stop - 1}; scale the "
                "features, or change its parameters."
            )
    return K


@contextmanager
def _sole_writer(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the system gives back when a process ends, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{folder}: is not a folder, or lies in none; name another with --output.") from None
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


class TileStore(Sequence[np.ndarray]):
    """The base-kernel matrices of one data set: its shards in order, read-only views of files, of shape (p, rows, n).

    Pickled, it is its path and not its values; another process maps the files anew.

    Attributes
    ----------
    path : Path
        The folder.
    manifest : Manifest
    spec : StoreSpec
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest, self.spec = path, manifest, manifest.spec
        self._views = [map_shard(path / s.file, manifest.spec, s.start, s.stop) for s in manifest.shards]

    def __len__(self) -> int:
        return len(self._views)

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[np.ndarray]: ...
    def __getitem__(self, index: int | slice) -> np.ndarray | Sequence[np.ndarray]:
        return self._views[index]

    def __reduce__(self) -> tuple[Callable[[str, str], TileStore], tuple[str, str]]:
        return _mapped_again, (str(self.path), self.spec.id)

    def family(self) -> PrecomputedFamily:
        """Return the base kernels over row positions.

        Raises
        ------
        InputError
            A matrix is not symmetric or not finite on a sample of entries.
        """
        try:
            return PrecomputedFamily(self, self.spec.kernels)
        except ValueError as error:
            raise InputError(f"{self.path}: {error}") from None


def _mapped_again(path: str, store: str) -> TileStore:
    found = open_store(path)
    if found.spec.id != store:
        raise InputError(f"{path}: was replaced by another store while it was in use; start the run again.")
    return found


def open_store(path: str | Path, verify: Literal["sizes", "checksums"] = "sizes") -> TileStore:
    """Return a store, memory-mapped: nothing is read but manifest and schemas until values are touched.

    Parameters
    ----------
    path : str or Path
        The folder of one data set.
    verify : {"sizes", "checksums"}, default "sizes"
        What is checked of each file beside its schema and the store's id: its size, or all its bytes.

    Returns
    -------
    store : TileStore

    Raises
    ------
    InputError
        There is no store, it is not complete, or a shard is missing, damaged or of another store.
    """
    folder = Path(path).absolute()
    manifest = read_manifest(folder)
    for shard in manifest.shards:
        wrong = damage(folder, manifest.spec, shard, checksum=verify == "checksums")
        if wrong:
            raise InputError(
                f"{folder / shard.file}: is damaged: {wrong}; the 'learnkernels gram' that made it, started again, "
                "computes it anew."
            )
    if not manifest.complete:
        raise InputError(
            f"{folder}: is not complete, {len(manifest.shards)} of {len(manifest.starts)} shards are there; start the "
            "'learnkernels gram' that began it again."
        )
    return TileStore(folder, manifest)
