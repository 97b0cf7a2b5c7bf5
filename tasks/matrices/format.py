"""The files of a tile store: what a folder of base-kernel matrices holds, and how one shard of rows is laid out.

The format is described for readers outside this project in docs/tile-store.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from learnkernels.conf.errors import InputError, listed
from learnkernels.conf.schema import FamilyConfig
from learnkernels.kernels import NUMERICS_VERSION
from learnkernels.kernels.families import KernelFamily
from learnkernels.tasks.data.dataset import DatasetRef
from learnkernels.tasks.own import described
from learnkernels.tasks.store import atomic_path, digest, file_digest

FORMAT = "learnkernels-tiles"
VERSION = 1
MANIFEST = "manifest.json"

MOST_ROWS = 2**31 - 1
"""The longest row that Arrow's lists of fixed size hold."""

Dtype = Literal["float64", "float32"]


@dataclass(frozen=True)
class StoreSpec:
    """All that the content of a store depends on, and the data set's name.

    Attributes
    ----------
    dataset : dict
        ``name``, ``digest`` and ``rows`` of the data set.
    families : list of dict
        The configured families with all their parameters.
    kernels : tuple of str
        The base kernels, in order.
    dtype : {"float64", "float32"}
        What a value is stored as.
    numerics : int
        `kernels.NUMERICS_VERSION` of the program that computes the values.
    """

    dataset: dict[str, Any]
    families: list[dict[str, Any]]
    kernels: tuple[str, ...]
    dtype: Dtype
    numerics: int = NUMERICS_VERSION

    @classmethod
    def of(cls, ref: DatasetRef, configs: Sequence[FamilyConfig], family: KernelFamily, dtype: Dtype) -> StoreSpec:
        """Return the spec of the base kernels of some configured families over a data set."""
        dataset = {"name": ref.name, "digest": ref.digest, "rows": ref.n_rows}
        return cls(dataset, described(configs), family.names, dtype)

    @property
    def id(self) -> str:
        """The store's id: a digest of what the values depend on; not of the data set's name."""
        return digest(
            FORMAT, VERSION, self.numerics, self.dataset["digest"], self.families, self.kernels, self.dtype, self.n_rows
        )

    @property
    def n_rows(self) -> int:
        """n, the rows of the data set."""
        return int(self.dataset["rows"])

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of all the matrices."""
        return len(self.kernels) * self.n_rows * np.dtype(self.dtype).itemsize

    def difference(self, other: StoreSpec) -> str:
        """Return how the values of another spec differ, as a clause; empty where they do not."""
        if self.dataset["digest"] != other.dataset["digest"]:
            return f"of other data (digest {self.dataset['digest']}, not {other.dataset['digest']})"
        if self.n_rows != other.n_rows:
            return f"of {self.n_rows:,} rows, not {other.n_rows:,}"
        if self.dtype != other.dtype:
            return f"of {self.dtype}, not {other.dtype}"
        if (self.kernels, self.families) != (other.kernels, other.families):
            return f"of other kernels ({listed(self.kernels, 3, str)}; not {listed(other.kernels, 3, str)})"
        if self.numerics != other.numerics:
            return f"made by another version of the kernels' code (numerics {self.numerics}, not {other.numerics})"
        return ""


@dataclass(frozen=True)
class Shard:
    """One finished file: its name, the rows ``start`` to ``stop - 1``, its size and its checksum."""

    file: str
    start: int
    stop: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a store says about itself: spec, layout, and the shards that are finished."""

    spec: StoreSpec
    rows_per_shard: int
    shards: tuple[Shard, ...] = ()

    @property
    def starts(self) -> range:
        """The first rows of all shards, finished or not."""
        return range(0, self.spec.n_rows, self.rows_per_shard)

    def rows_from(self, start: int) -> tuple[int, int]:
        """Return the row range of the shard that begins at a row."""
        return start, min(start + self.rows_per_shard, self.spec.n_rows)

    @property
    def complete(self) -> bool:
        """Whether every shard is finished."""
        begun = [shard.start for shard in self.shards]
        return len(begun) == len(self.starts) and begun == list(self.starts)

    def with_shards(self, shards: Sequence[Shard]) -> Manifest:
        """Return the manifest of other finished shards."""
        return replace(self, shards=tuple(sorted(shards, key=lambda shard: shard.start)))

    def write(self, folder: Path) -> None:
        """Write the manifest whole or not at all."""
        spec = self.spec
        p, n = len(spec.kernels), spec.n_rows
        shards = [
            {"file": s.file, "rows": [s.start, s.stop], "bytes": s.bytes, "sha256": s.sha256} for s in self.shards
        ]
        content = {
            "format": FORMAT,
            "version": VERSION,
            "store": spec.id,
            **asdict(spec),
            "shape": [p, n, n],
            "rows_per_shard": self.rows_per_shard,
            "shards": shards,
            "complete": self.complete,
        }
        with atomic_path(folder / MANIFEST) as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a store.

    Raises
    ------
    InputError
        There is none, it cannot be read, or it is of another format or version.
    """
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder}: there is no {MANIFEST}; make the matrices with 'learnkernels gram'.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise _damaged_manifest(path, type(error).__name__) from None
    if not isinstance(content, dict) or (content.get("format"), content.get("version")) != (FORMAT, VERSION):
        raise InputError(f"{path}: is not of format {FORMAT}, version {VERSION}; make the store again.")
    try:
        dataset = {key: content["dataset"][key] for key in ("name", "digest", "rows")}
        kernels = tuple(map(str, content["kernels"]))
        spec = StoreSpec(dataset, content["families"], kernels, content["dtype"], content["numerics"])
        shards = [Shard(s["file"], int(s["rows"][0]), int(s["rows"][1]), s["bytes"], s["sha256"])
                  for s in content["shards"]]  # fmt: skip
        manifest = Manifest(spec, int(content["rows_per_shard"]), tuple(shards))
        sized = 0 < spec.n_rows <= MOST_ROWS and spec.row_bytes > 0 and manifest.rows_per_shard > 0
        sound = sized and spec.id == content["store"]
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise _damaged_manifest(path, f"{type(error).__name__}: {str(error)[:80]}") from None
    if not sound:
        raise _damaged_manifest(path, "its id does not follow from its content")
    for shard in shards:
        rows = (shard.start, shard.stop)
        known = shard.start in manifest.starts and rows == manifest.rows_from(shard.start)
        if not known or shard.file != shard_name(*rows):
            raise _damaged_manifest(path, f"it lists {str(shard.file)[:80]!r} for rows {rows[0]} to {rows[1] - 1}")
    return manifest


def _damaged_manifest(path: Path, reason: str) -> InputError:
    return InputError(f"{path}: is damaged ({reason}); delete this folder and make the matrices again.")


def shard_name(start: int, stop: int) -> str:
    """Return the file name of the rows ``start`` to ``stop - 1``."""
    return f"rows-{start:06d}-{stop - 1:06d}.arrow"


def write_shard(sink: Any, spec: StoreSpec, start: int, K: np.ndarray) -> None:
    """Write one shard, an Arrow IPC file, to an open file.

    Parameters
    ----------
    sink : binary file or pyarrow stream
        Open for writing.
    spec : StoreSpec
        Of the store.
    start : int
        The first row.
    K : ndarray of shape (p, rows, n)
        The values, of the store's type and C-contiguous. Not copied.
    """
    n = spec.n_rows
    schema = _schema(spec, start, start + K.shape[1])
    columns = [pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), n) for matrix in K]
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))


def _schema(spec: StoreSpec, start: int, stop: int) -> Any:
    row = pa.list_(pa.from_numpy_dtype(np.dtype(spec.dtype)), spec.n_rows)
    about = {"format": FORMAT, "version": VERSION, "store": spec.id, "row_start": start, "row_stop": stop}
    metadata = {f"learnkernels.{key}": str(value) for key, value in about.items()}
    return pa.schema([pa.field(name, row, nullable=False) for name in spec.kernels], metadata=metadata)


def map_shard(path: Path, spec: StoreSpec, start: int, stop: int) -> np.ndarray:
    """Return the values of a shard as a read-only view of the memory-mapped file.

    Returns
    -------
    K : ndarray of shape (p, stop - start, n)
        Not a copy: the pages are read when touched, and given back to the system under memory pressure.

    Raises
    ------
    ValueError
        The file is not a shard of this store and these rows; the message is a clause that says why.
    """
    try:
        with pa.memory_map(str(path)) as source:
            file = source.read_buffer()  # stays mapped as long as it is referred to; the descriptor is closed here
        reader = pa.ipc.open_file(pa.BufferReader(file))
        _require_schema(reader.schema, _schema(spec, start, stop))
        batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        for batch in batches:
            batch.validate()  # before its values are touched: lengths that are wrong lead outside the file
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"it cannot be read as Arrow ({str(error).splitlines()[0][:80]})") from None
    if len(batches) != 1 or batches[0].num_rows != stop - start:
        raise ValueError(f"it does not hold {stop - start} rows in one batch")
    values = [column.flatten().to_numpy(zero_copy_only=True) for column in batches[0].columns]
    first, *others = [value.__array_interface__["data"][0] - file.address for value in values]
    spacing = others[0] - first if others else values[0].nbytes
    if [first + k * spacing for k in range(len(values))] != [first, *others]:
        raise ValueError("its columns are not evenly spaced")
    n, item = spec.n_rows, values[0].itemsize
    return np.ndarray((len(values), stop - start, n), spec.dtype, file, first, (spacing, n * item, item))


def _require_schema(found: Any, expected: Any) -> None:
    about = found.metadata or {}
    for key, value in expected.metadata.items():
        if about.get(key) != value:
            name = key.decode().removeprefix("learnkernels.")
            given = about.get(key, b"nothing").decode(errors="replace")
            raise ValueError(f"its {name} is {given}, not {value.decode()}")
    if not found.equals(expected):
        raise ValueError("its columns are not those of the manifest")


def damage(folder: Path, spec: StoreSpec, shard: Shard, checksum: bool) -> str | None:
    """Return what is wrong with a shard, as a clause, or None.

    Notes
    -----
    Without `checksum` the size and the Arrow schema are read; with it the whole file, at the speed of SHA-256.
    """
    path = folder / shard.file
    if not path.is_file():
        return "the file is missing"
    size = path.stat().st_size
    if size != shard.bytes:
        return f"it has {size:,} bytes, not {shard.bytes:,}"
    try:
        map_shard(path, spec, shard.start, shard.stop)
    except ValueError as error:
        return str(error)
    if checksum and file_digest(path) != shard.sha256:
        return "its checksum is not that of the manifest"
    return None
