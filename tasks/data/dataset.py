"""A data set as everything else uses it: rows, target and names, and where the store has them."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.feather
from scipy import sparse

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import ProtocolConfig
from learnkernels.kernels.column_encoding import TableEncoding
from learnkernels.kernels.column_encoding.reading import read_columns
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.files import from_data, to_data
from learnkernels.kernels.model_selection.folds import (
    assign_blocks,
    assign_folds,
    assign_nested_split,
    assign_split,
    given_folds,
)
from learnkernels.kernels.targets import Target, Task

from ..store import Tell, checked, keep, kept, store_path
from .parts import parts_from_json, parts_to_json
from .readers import names_from_data, names_to_data
from .row_files import RowFiles

RAW = "raw.arrow"
"""What holds the columns of a table as they are."""

PARTS = "parts.json"
"""What says where the parts of a table lie, in place of its features."""

SAMPLE_COLUMNS = ("held_out", "groups", "times", "weights", "folds")
"""What a data set may say of each row next to features and target."""


@dataclass(frozen=True)
class DatasetRef:
    """What travels between tasks instead of a data set: its name, digest, place and size."""

    name: str
    digest: str
    path: str
    task: Task
    source: str
    n_rows: int
    n_features: int
    classes: tuple[str, ...] = ()
    ordered: bool = False
    weighted: bool = False
    by_training: bool = False
    in_parts: bool = False
    folds: tuple[int, int] | None = None
    """Numbers of folds and of repeats that it brings."""


@dataclass(frozen=True)
class Dataset:
    """Rows, target and names of one data set.

    Attributes
    ----------
    X : ndarray, CSR matrix or RowFiles of float64 of shape (n, d)
        ``(raw - low) / spread``.
    target : Target
    features : sequence of str
    low, spread : ndarray of shape (d,) or None
        How the features were scaled; None where they are raw.
    held_out : ndarray of bool of shape (n,) or None
        Rows that test and do nothing else; None where the data set does not say.
    table : TableEncoding or None
        How columns that are not all numbers became the features, scaled where that is requested.
    groups, times : ndarray of int of shape (n,) or None
        Numbers of the group and of the time of each row, of which rows of one number are never divided; None where
        the data set does not say.
    weights : ndarray of shape (n,) or None
        Positive, of mean one; None where each row counts once.
    folds : ndarray of int of shape (n, repeats) or None
        The fold of each row in each repeat, as a user has drawn them; None where the protocol draws them.
    raw : pyarrow.Table or None
        The columns of a table as they are, where its encoding is learned again in each trial.
    by_training : str
        The scale that each trial learns again on its training rows; empty where that of all rows serves them all.
    """

    X: Rows
    target: Target
    features: Sequence[str]
    low: np.ndarray | None = None
    spread: np.ndarray | None = None
    held_out: np.ndarray | None = None
    table: TableEncoding | None = None
    groups: np.ndarray | None = None
    times: np.ndarray | None = None
    weights: np.ndarray | None = None
    folds: np.ndarray | None = None
    raw: pa.Table | None = None
    by_training: str = ""

    def learned_on(self, rows: np.ndarray) -> Dataset:
        """Return all rows in the units, and with the gaps filled, that some of them alone suggest.

        Parameters
        ----------
        rows : ndarray of int
            Positions of the training rows of a trial.
        """
        if self.table is not None and self.raw is not None:
            table = self.table.learned_on(self.raw.take(rows), cast(Any, self.by_training))
            return replace(
                self, X=table.encode(self.raw), features=table.features, table=table, raw=None, by_training=""
            )
        low, spread = scaling_of(self.X[rows], self.by_training, "rows that train")
        X = scaled(self.X if sparse.issparse(self.X) else np.array(self.X), low, spread)
        if low is not None and spread is not None:  # of what was scaled by all rows before
            (first, unit), own = self.scaling, spread
            low, spread = first + unit * low, unit * own
        return replace(self, X=X, low=low, spread=spread, by_training="")

    @property
    def sample_columns(self) -> dict[str, Any]:
        """What it says of each row next to features and target."""
        said = {name: getattr(self, name) for name in SAMPLE_COLUMNS}
        return {name: values for name, values in said.items() if values is not None}

    @property
    def scaling(self) -> tuple[np.ndarray, np.ndarray]:
        """What to subtract from each raw feature, and then to divide it by, each of shape (d,)."""
        d = len(self.features)
        return (np.zeros(d) if self.low is None else self.low, np.ones(d) if self.spread is None else self.spread)


def store_dataset(dataset: Dataset, name: str, source: str, tell: Tell = warnings.warn) -> DatasetRef:
    """Write a data set under its digest, unless it is there already, and return a reference to it.

    `tell` is given a sentence where what is there is damaged.
    """
    key = dataset_digest(dataset)
    path = store_path("datasets", key)
    ref = DatasetRef(
        name=name,
        digest=key,
        path=str(path),
        task=dataset.target.task,
        source=source,
        n_rows=dataset.X.shape[0],
        n_features=dataset.X.shape[1],
        classes=dataset.target.classes,
        ordered=dataset.times is not None,
        weighted=dataset.weights is not None,
        by_training=bool(dataset.by_training),
        in_parts=isinstance(dataset.X, RowFiles),
        folds=None if dataset.folds is None else (int(dataset.folds.max()) + 1, dataset.folds.shape[1]),
    )
    if not kept(path, tell):
        with keep(path) as folder:
            if isinstance(dataset.X, RowFiles):
                (folder / PARTS).write_text(parts_to_json(dataset.X), encoding="utf-8")
            elif sparse.issparse(dataset.X):
                sparse.save_npz(folder / "X.npz", dataset.X)
            else:
                np.save(folder / "X.npy", dataset.X, allow_pickle=False)
            np.save(folder / "y.npy", dataset.target.values, allow_pickle=False)
            for name, of in dataset.sample_columns.items():
                np.save(folder / f"{name}.npy", of, allow_pickle=False)
            if dataset.spread is not None:
                np.save(folder / "scaling.npy", np.stack(dataset.scaling), allow_pickle=False)
            if dataset.raw is not None:
                pyarrow.feather.write_feather(dataset.raw, folder / RAW, compression="uncompressed")
            own = {"scale": dataset.by_training, "features": names_to_data(dataset.features)}
            about = {**asdict(ref), **own, "labels": dataset.target.labels}
            if dataset.table is not None:
                about["table"] = to_data(dataset.table, {}, "table")
            (folder / "about.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
    return ref


def load_dataset(ref: DatasetRef) -> Dataset:
    """Return the data set of a reference; dense rows are memory-mapped.

    Raises
    ------
    InputError
        The store has lost or damaged it since the run began.
    """
    folder = checked(Path(ref.path))
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    if (folder / PARTS).exists():
        X = parts_from_json((folder / PARTS).read_text(encoding="utf-8"))
    elif (folder / "X.npz").exists():
        X = sparse.load_npz(folder / "X.npz")
    else:
        X = np.load(folder / "X.npy", mmap_mode="r", allow_pickle=False).view(np.ndarray)
    values = np.load(folder / "y.npy", allow_pickle=False)
    scaling = folder / "scaling.npy"
    low, spread = np.load(scaling, allow_pickle=False) if scaling.exists() else (None, None)
    target = Target(about["task"], values, tuple(about["classes"]), about["labels"])
    files = {name: folder / f"{name}.npy" for name in SAMPLE_COLUMNS}
    held: dict[str, Any] = {name: np.load(file, allow_pickle=False) for name, file in files.items() if file.exists()}
    table = from_data(about["table"], {}) if "table" in about else None
    features = names_from_data(about["features"]) if table is None else table.features
    raw = pyarrow.feather.read_table(folder / RAW, memory_map=True) if (folder / RAW).exists() else None
    held["by_training"] = about["scale"]
    return Dataset(X, target, features, low, spread, table=table, raw=raw, **held)


def copied_share(ref: DatasetRef) -> float:
    """Return the share of the rows of a table in memory that equal an earlier one in every feature and the target."""
    dataset = load_dataset(ref)
    projected = dataset.X @ np.random.default_rng(0).normal(size=ref.n_features)  # tells all but equal rows apart
    return 1 - len(np.unique(projected + 1j * dataset.target.values)) / ref.n_rows


def stored_bytes(ref: DatasetRef) -> int:
    """Return how many bytes the features of a stored data set take."""
    if ref.in_parts:
        return 8 * ref.n_rows * ref.n_features
    return sum(file.stat().st_size for file in Path(ref.path).glob("X.*"))


def dataset_digest(dataset: Dataset) -> str:
    """Return the digest of the content of a data set; not of where it came from.

    Rows, target, names, scaling and task, and what the data set says of its rows next to these.
    """
    X = dataset.X
    # The width of a CSR matrix's index integers is not content; writing and reading changes it.
    arrays = [X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)] if sparse.issparse(X) else [X]
    if isinstance(X, RowFiles):
        arrays = []
    target = dataset.target
    about = [
        target.task,
        target.classes,
        target.labels,
        names_to_data(dataset.features),
        X.shape,
        bool(sparse.issparse(X)),
    ]
    if dataset.table is not None:
        about.append(to_data(dataset.table, {}, "table"))
    if isinstance(X, RowFiles):
        about += ["in parts", X.name]
    if dataset.by_training:
        raw = {} if dataset.raw is None else read_columns(dataset.raw)
        about += [dataset.by_training, [[name, column.values.tolist()] for name, column in raw.items()]]
    sha = hashlib.sha256(json.dumps(about, default=str).encode())
    unnamed = [("", array) for array in (*arrays, *dataset.scaling, target.values)]
    for name, array in (*unnamed, *dataset.sample_columns.items()):
        sha.update(f"{name}{array.dtype}".encode())
        sha.update(np.ascontiguousarray(array).data)
    return sha.hexdigest()[:20]


# Units ---------------------------------------------------------------------------------------------------------------


def scaling_of(X: Any, scale: str, where: str) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return what to subtract from each feature, and to divide it by; nothing for raw features."""
    if scale == "none":
        return None, None
    if sparse.issparse(X):
        if scale != "max" and (scale != "unit" or X.data.min(initial=0.0) < 0):
            raise InputError(
                f"{where}: scale {scale!r} would fill this sparse data set's zeros; use 'scale: none', 'max', or "
                "'unit' with features that are not negative."
            )
        low, spread = np.zeros(X.shape[1]), np.asarray(abs(X).max(axis=0).todense()).ravel()
    elif scale == "max":
        low, spread = np.zeros(X.shape[1]), np.maximum(X.max(axis=0), -X.min(axis=0))
    elif scale == "unit":
        low, spread = X.min(axis=0), np.ptp(X, axis=0)
    else:
        low, spread = X.mean(axis=0), X.std(axis=0)
    # A constant column has no spread; it becomes zero, of its largest size one.
    return low, np.where(spread > 0, spread, 1.0)


def scaled(X: Any, low: np.ndarray | None, spread: np.ndarray | None) -> Any:
    """Return scaled features; dense ones are scaled where they are."""
    if low is None or spread is None:
        return X
    if not sparse.issparse(X):
        X -= low
        X /= spread
        return X
    return sparse.csr_matrix((X.data / spread[X.indices], X.indices, X.indptr), shape=X.shape)


# Folds ---------------------------------------------------------------------------------------------------------------


def fold_seed(seed: int, repeat: int) -> int:
    """Return the seed of the folds of one repeat, spawned from the run's root seed."""
    return int(np.random.SeedSequence([seed, repeat]).generate_state(1)[0])


def draw_folds(dataset: Dataset, protocol: ProtocolConfig, repeat: int) -> np.ndarray:
    """Return the fold of each row, or of a split what each row is drawn for; -1 for rows that are not used.

    Where the data set says which rows test, these do, and the others of a split are drawn among the rest. No group is
    divided. Nothing is drawn of a data set with folds of its own, or in time, where folds are blocks of time, and where
    each repeat of a split ends before the test rows of the repeat before it.

    Raises
    ------
    ValueError
        The data set does not allow these folds or this split.
    """
    if dataset.folds is not None:
        assert protocol.folds is not None  # see `config_on`
        return given_folds(dataset.target, dataset.folds[:, repeat], protocol.folds)
    target, roles = dataset.target, {name: of for name, of in dataset.sample_columns.items() if name != "weights"}
    seed = fold_seed(protocol.seed, repeat)
    if dataset.times is not None and protocol.split is not None and repeat > 0:
        return _earlier_split(dataset, protocol, repeat)
    if protocol.split is not None:
        split = protocol.split
        if split.validation is None:
            assert protocol.choose is not None  # the schema has one of both
            return assign_nested_split(target, split.train, split.test, protocol.choose.folds, seed, **roles)
        return assign_split(target, split.train, split.validation, split.test, seed, **roles)
    assert protocol.folds is not None  # the schema has one of both
    try:
        return _folds_of(dataset, protocol.folds, seed)
    except ValueError as error:
        fewer, _ = most_folds(dataset, protocol.folds - 1, seed)
        way_out = "at least 3 are needed: one to test, one to validate, one to train"
        if fewer:
            from ..naming import by_deployment  # brings Prefect along

            way_out = f"set 'protocol.folds' to {fewer}"
            if not by_deployment():
                way_out += f" (--set protocol.folds={fewer})"
        raise ValueError(f"{str(error).rstrip('.')}; {way_out}.") from None


def _earlier_split(dataset: Dataset, protocol: ProtocolConfig, repeat: int) -> np.ndarray:
    """Return the split in time of a repeat: that of the rows before the test rows of the repeat before it."""
    assert dataset.times is not None
    later = draw_folds(dataset, protocol, repeat - 1)
    earlier = np.flatnonzero(dataset.times < dataset.times[later == later.max()].min())
    past = Dataset(
        np.empty((len(earlier), 0)), dataset.target.take(earlier), (), groups=None, times=dataset.times[earlier]
    )
    folds = np.full(len(later), -1, dtype=later.dtype)
    try:
        folds[earlier] = draw_folds(past, protocol, 0)
    except ValueError as error:
        raise ValueError(f"repeat {repeat + 1} of a split in time: {error}") from None
    return folds


def most_folds(dataset: Dataset, most: int, seed: int) -> tuple[int, str]:
    """Return the largest number of folds, from `most` down to three, that a data set allows, and why not one more.

    Zero where it allows none.
    """
    why = ""
    for n_folds in range(most, 2, -1):
        try:
            _folds_of(dataset, n_folds, seed)
        except ValueError as error:
            why = str(error)
        else:
            return n_folds, why
    return 0, why


def _folds_of(dataset: Dataset, n_folds: int, seed: int) -> np.ndarray:
    if dataset.times is not None:
        return assign_blocks(dataset.target, n_folds, dataset.times)
    return assign_folds(dataset.target, n_folds, seed, dataset.groups)
