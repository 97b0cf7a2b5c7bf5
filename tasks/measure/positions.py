"""Between data sets and tile stores: making the matrices of a configuration, and running a configuration from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from prefect import get_run_logger

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import CompareConfig, FamilyConfig, PrecomputedConfig
from learnkernels.tasks.data.dataset import Dataset, DatasetRef, load_dataset, store_dataset
from learnkernels.tasks.data.ingest import warn
from learnkernels.tasks.matrices.format import Dtype, StoreSpec
from learnkernels.tasks.matrices.store import SHARD_BYTES, StorePlan, open_store, plan_store, write_store
from learnkernels.tasks.measure.families import build_family
from learnkernels.tasks.naming import step
from learnkernels.tasks.workers.cluster import DaskPool


@dataclass(frozen=True)
class MatricesRef:
    """Where the matrices of one data set lie."""

    dataset: str
    path: str
    store: str
    n_rows: int
    n_kernels: int
    n_bytes: int
    written: int
    kept: int

    @property
    def summary(self) -> str:
        """One line for people."""
        shards = f"{self.written} shard{'' if self.written == 1 else 's'} written, {self.kept} kept"
        return f"{self.dataset}: {self.n_kernels} matrices of {self.n_rows:,} rows, {shards}"


def plan_matrices(
    ref: DatasetRef, kernels: Sequence[FamilyConfig], output: str, dtype: Dtype, shard_bytes: int = SHARD_BYTES
) -> StorePlan:
    """Return what is to be done for the matrices of a data set, in its own folder below `output`.

    Raises
    ------
    InputError
        The kernels are matrices already or name an unknown column, the data set's name is no name of a folder, or the
        folder holds matrices of something else.
    """
    if any(isinstance(config, PrecomputedConfig) for config in kernels):
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
    family = build_family(kernels, load_dataset(ref).features, f"data set {ref.name}")
    return plan_store(own_folder(output, ref.name), StoreSpec.of(ref, kernels, family, dtype), shard_bytes)


def own_folder(output: str, name: str) -> Path:
    """Return the folder of a data set's matrices.

    Raises
    ------
    InputError
        The name of the data set cannot be that of a folder.
    """
    if name.startswith(".") or set(name) & set("/\\:\0") or not name:
        raise InputError(f"data set {name!r}: its matrices get a folder of this name; give it a plain 'name'.")
    return Path(output) / name


@step("matrices {ref.name}")
def materialise(
    ref: DatasetRef, kernels: Sequence[FamilyConfig], plan: StorePlan, pool: DaskPool, advance: Callable[[float], None]
) -> MatricesRef:
    """Compute and write what a plan says is missing, and return a reference.

    Raises
    ------
    InputError
        As `write_store`.
    """
    dataset = load_dataset(ref)
    manifest, written = write_store(plan, build_family(kernels, dataset.features), dataset.X, pool, advance)
    kept = len(manifest.shards) - written
    done = MatricesRef(
        dataset=ref.name,
        path=str(plan.folder),
        store=manifest.spec.id,
        n_rows=ref.n_rows,
        n_kernels=len(manifest.spec.kernels),
        n_bytes=sum(shard.bytes for shard in manifest.shards),
        written=written,
        kept=kept,
    )
    get_run_logger().info("%s: %d shards written, %d kept, %s", ref.name, done.written, kept, done.path)
    return done


def rows_for(config: CompareConfig, ref: DatasetRef) -> tuple[DatasetRef, CompareConfig]:
    """Return the rows that the base kernels of a configuration are functions of, and the configuration for them.

    For families that are computed these are the data set and the configuration as given. Matrices are functions of row
    positions: the rows are then a data set with the same target whose only feature is the position, and whose digest
    holds that of the store; the configuration names the data set's own folder.

    Raises
    ------
    InputError
        There is no whole store of this data set's name, or it was made from other data.

    Notes
    -----
    Reads the store once, for its checksums.
    """
    (first, *_) = config.kernels
    if not isinstance(first, PrecomputedConfig):
        return ref, config
    store = open_store(own_folder(first.path, ref.name), verify="checksums")
    made_from = store.spec.dataset
    if made_from["digest"] != ref.digest:
        raise InputError(
            f"data set {ref.name}: the matrices in {store.path} were made from other data, {made_from['name']} with "
            f"{made_from['rows']:,} rows and digest {made_from['digest']}, not {ref.n_rows:,} rows and {ref.digest}; "
            "make them again with 'learnkernels gram', or correct 'path' or the data set."
        )
    positions = np.arange(ref.n_rows, dtype=np.float64)[:, None]
    given = load_dataset(ref)
    rows = Dataset(positions, given.target, (f"row in store {store.spec.id}",), **given.beside)
    local = PrecomputedConfig(family="precomputed", path=str(store.path))
    return store_dataset(rows, ref.name, ref.source, warn), config.model_copy(update={"kernels": (local,)})
