"""Stored data sets, with their scaling and folds."""

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
from safetensors.numpy import load_file, save_file
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

from ..store import Tell, checked, is_stored, keep, store_path
from .parts import parts_from_json, parts_to_json
from .readers import names_from_data, names_to_data
from .row_files import RowFiles

TABLE_ARRAYS = "table.safetensors"

RAW = "raw.arrow"

PARTS = "parts.json"

SAMPLE_COLUMNS = ("held_out", "groups", "times", "weights", "folds")
"""Attributes of a data set with one entry per row."""


@dataclass(frozen=True)
class DatasetRef:
    """Reference to a data set on disk, passed between tasks."""

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
    n_outputs: int = 1
    sparse: bool = False


@dataclass(frozen=True)
class Dataset:
    """Features, target and sample columns of a data set in memory.

    X has features ``(raw - low) / spread``. Rows with equal `groups` or `times` stay
    together. `weights` have mean one. `folds`, shape (n, repeats), is None if the
    protocol draws them. `raw` has the columns before encoding, if `table` cannot decode
    them or trials learn the encoding with the scale `by_training`.
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
        """Return the data set scaled and imputed with statistics of the given rows."""
        if self.table is not None and self.raw is not None:
            table = self.table.learned_on(
                self.raw.take(rows), cast(Any, self.by_training)
            )
            return replace(
                self,
                X=table.encode(self.raw),
                features=table.features,
                table=table,
                raw=None,
                by_training="",
            )
        low, spread = scaling_of(self.X[rows], self.by_training, "rows that train")
        X = scaled(self.X if sparse.issparse(self.X) else np.array(self.X), low, spread)
        if low is not None and spread is not None:
            low_of_all, spread_of_all = self.scaling
            low = low_of_all + spread_of_all * low
            spread = spread * spread_of_all
        return replace(self, X=X, low=low, spread=spread, by_training="")

    @property
    def sample_columns(self) -> dict[str, Any]:
        columns = {name: getattr(self, name) for name in SAMPLE_COLUMNS}
        return {name: values for name, values in columns.items() if values is not None}

    @property
    def scaling(self) -> tuple[np.ndarray, np.ndarray]:
        """Scaling of features: `low`, subtracted from raw values, and `spread`, their divisor."""
        if self.low is None or self.spread is None:
            return np.zeros(len(self.features)), np.ones(len(self.features))
        return self.low, self.spread


def store_dataset(
    dataset: Dataset, name: str, source: str, tell: Tell = warnings.warn
) -> DatasetRef:
    """Write a data set to disk unless already there; return a reference."""
    key = dataset_digest(dataset)
    path = store_path("datasets", key)
    folds = None
    if dataset.folds is not None:
        folds = int(dataset.folds.max()) + 1, dataset.folds.shape[1]
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
        folds=folds,
        n_outputs=1
        if dataset.target.task == "classification"
        else dataset.target.Y.shape[1],
        sparse=sparse.issparse(dataset.X),
    )
    if not is_stored(path, tell):
        with keep(path) as folder:
            _write_dataset(dataset, ref, folder)
    return ref


def _write_dataset(dataset: Dataset, ref: DatasetRef, folder: Path) -> None:
    if isinstance(dataset.X, RowFiles):
        (folder / PARTS).write_text(parts_to_json(dataset.X), encoding="utf-8")
    elif sparse.issparse(dataset.X):
        sparse.save_npz(folder / "X.npz", dataset.X)
    else:
        np.save(folder / "X.npy", dataset.X, allow_pickle=False)
    np.save(folder / "y.npy", dataset.target.values, allow_pickle=False)
    for name, values in dataset.sample_columns.items():
        np.save(folder / f"{name}.npy", values, allow_pickle=False)
    if dataset.spread is not None:
        np.save(folder / "scaling.npy", np.stack(dataset.scaling), allow_pickle=False)
    if dataset.raw is not None:
        pyarrow.feather.write_feather(
            dataset.raw, folder / RAW, compression="uncompressed"
        )
    about = {
        **asdict(ref),
        "scale": dataset.by_training,
        "features": names_to_data(dataset.features),
        "labels": dataset.target.labels,
    }
    if dataset.table is not None:
        arrays: dict[str, np.ndarray] = {}
        about["table"] = to_data(dataset.table, arrays, "table")
        if arrays:
            save_file(arrays, folder / TABLE_ARRAYS)
    (folder / "about.json").write_text(json.dumps(about, indent=1), encoding="utf-8")


def load_dataset(ref: DatasetRef) -> Dataset:
    """Return a data set from disk; dense features are memory-mapped."""
    folder = checked(Path(ref.path))
    about = _load_about(folder)
    optional: dict[str, Any] = {"by_training": about["scale"]}
    for name in SAMPLE_COLUMNS:
        file = folder / f"{name}.npy"
        if file.exists():
            optional[name] = np.load(file, allow_pickle=False)
    if (folder / "scaling.npy").exists():
        optional["low"], optional["spread"] = np.load(
            folder / "scaling.npy", allow_pickle=False
        )
    if (folder / RAW).exists():
        optional["raw"] = pyarrow.feather.read_table(folder / RAW, memory_map=True)
    features = names_from_data(about["features"])
    if "table" in about:
        arrays = {}
        if (folder / TABLE_ARRAYS).exists():
            arrays = load_file(folder / TABLE_ARRAYS)
        optional["table"] = from_data(about["table"], arrays)
        features = optional["table"].features
    target = _load_target(folder, about)
    return Dataset(_load_features(folder), target, features, **optional)


def load_target(folder: Path) -> Target:
    return _load_target(folder, _load_about(folder))


def _load_about(folder: Path) -> Any:
    return json.loads((folder / "about.json").read_text(encoding="utf-8"))


def _load_target(folder: Path, about: dict[str, Any]) -> Target:
    values = np.load(folder / "y.npy", allow_pickle=False)
    return Target(about["task"], values, tuple(about["classes"]), about["labels"])


def _load_features(folder: Path) -> Rows:
    if (folder / PARTS).exists():
        return parts_from_json((folder / PARTS).read_text(encoding="utf-8"))
    if (folder / "X.npz").exists():
        return sparse.load_npz(folder / "X.npz")
    return np.load(folder / "X.npy", mmap_mode="r", allow_pickle=False).view(np.ndarray)


def copied_share(ref: DatasetRef) -> float:
    """Return the share of a data set's rows that repeat an earlier row."""
    dataset = load_dataset(ref)
    # Random projections differ unless rows are equal
    rng = np.random.default_rng(0)
    projected = dataset.X @ rng.normal(size=ref.n_features)
    y = dataset.target.values
    if y.ndim == 2:
        y = y @ rng.normal(size=y.shape[1])
    return 1 - len(np.unique(projected + 1j * y)) / ref.n_rows


def stored_bytes(ref: DatasetRef) -> int:
    if ref.in_parts:
        return 8 * ref.n_rows * ref.n_features
    return sum(file.stat().st_size for file in Path(ref.path).glob("X.*"))


def dataset_digest(dataset: Dataset) -> str:
    """Return the digest that identifies a data set on disk."""
    X = dataset.X
    target = dataset.target
    about = [
        target.task,
        target.classes,
        target.labels,
        names_to_data(dataset.features),
        X.shape,
        bool(sparse.issparse(X)),
    ]
    table_arrays: dict[str, np.ndarray] = {}
    if dataset.table is not None:
        about.append(to_data(dataset.table, table_arrays, "table"))
    if isinstance(X, RowFiles):
        about += ["in parts", X.name]
    if dataset.by_training or dataset.raw is not None:
        raw = {} if dataset.raw is None else read_columns(dataset.raw)
        about += [
            dataset.by_training,
            [[name, column.values.tolist()] for name, column in raw.items()],
        ]
    sha = hashlib.sha256(json.dumps(about, default=str).encode())
    for array in (*_arrays_of_features(X), *dataset.scaling, target.values):
        _update_digest(sha, "", array)
    for name, values in {**table_arrays, **dataset.sample_columns}.items():
        _update_digest(sha, name, values)
    return sha.hexdigest()[:20]


def _arrays_of_features(X: Rows) -> list[np.ndarray]:
    if isinstance(X, RowFiles):
        return []
    if sparse.issparse(X):  # files may change the width of the indices
        return [X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)]
    return [X]


def _update_digest(sha: Any, name: str, array: np.ndarray) -> None:
    sha.update(f"{name}{array.dtype}".encode())
    sha.update(np.ascontiguousarray(array).data)


# Scaling


def scaling_of(
    X: Any, scale: str, where: str
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the values by which each feature is shifted and divided."""
    if scale == "none":
        return None, None
    low = np.zeros(X.shape[1])
    if sparse.issparse(X):
        if scale != "max" and (scale != "unit" or X.data.min(initial=0.0) < 0):
            raise InputError(
                f"{where}: scale {scale!r} would fill this sparse data set's zeros; use 'scale: none', 'max', or "
                "'unit' with features that are not negative."
            )
        spread = np.asarray(abs(X).max(axis=0).todense()).ravel()
    elif scale == "max":
        spread = np.maximum(X.max(axis=0), -X.min(axis=0))
    elif scale == "unit":
        low = X.min(axis=0)
        spread = np.ptp(X, axis=0)
    else:
        low = X.mean(axis=0)
        spread = X.std(axis=0)
    return low, np.where(spread > 0, spread, 1.0)  # constant columns are not divided


def scaled(X: Any, low: np.ndarray | None, spread: np.ndarray | None) -> Any:
    """Return shifted and divided features; dense arrays change in place."""
    if low is None or spread is None:
        return X
    if sparse.issparse(X):
        return sparse.csr_matrix(
            (X.data / spread[X.indices], X.indices, X.indptr), shape=X.shape
        )
    X -= low
    X /= spread
    return X


# Folds


def fold_seed(seed: int, repeat: int) -> int:
    return int(np.random.SeedSequence([seed, repeat]).generate_state(1)[0])


def draw_folds(dataset: Dataset, protocol: ProtocolConfig, repeat: int) -> np.ndarray:
    """Return each row's fold, or its side of a split; -1 for unused rows.

    Held-out rows are the test rows. ValueError if the data set does not allow these
    folds.
    """
    if dataset.folds is not None:
        assert protocol.folds is not None  # see `config_on`
        return given_folds(dataset.target, dataset.folds[:, repeat], protocol.folds)
    seed = fold_seed(protocol.seed, repeat)
    if protocol.split is None:
        assert protocol.folds is not None  # the schema requires folds or a split
        return _draw_cross_validation(dataset, protocol.folds, seed)
    if dataset.times is not None and repeat > 0:
        return _earlier_split(dataset, protocol, repeat)
    split = protocol.split
    columns = {
        name: values
        for name, values in dataset.sample_columns.items()
        if name != "weights"
    }
    if split.validation is not None:
        return assign_split(
            dataset.target, split.train, split.validation, split.test, seed, **columns
        )
    assert (
        protocol.choose is not None
    )  # the schema requires validation rows or inner folds
    return assign_nested_split(
        dataset.target, split.train, split.test, protocol.choose.folds, seed, **columns
    )


def _draw_cross_validation(dataset: Dataset, n_folds: int, seed: int) -> np.ndarray:
    try:
        return _folds_of(dataset, n_folds, seed)
    except ValueError as error:
        reason = str(error).rstrip(".")
    fewer, _ = most_folds(dataset, n_folds - 1, seed)
    remedy = "at least 3 are needed: one to test, one to validate, one to train"
    if fewer:
        from ..naming import by_deployment  # imports Prefect

        remedy = f"set 'protocol.folds' to {fewer}"
        if not by_deployment():
            remedy += f" (--set protocol.folds={fewer})"
    raise ValueError(f"{reason}; {remedy}.")


def _earlier_split(
    dataset: Dataset, protocol: ProtocolConfig, repeat: int
) -> np.ndarray:
    assert dataset.times is not None
    later_folds = draw_folds(dataset, protocol, repeat - 1)
    is_test = later_folds == later_folds.max()
    earlier = np.flatnonzero(dataset.times < dataset.times[is_test].min())
    past = Dataset(
        np.empty((len(earlier), 0)),
        dataset.target.take(earlier),
        (),
        times=dataset.times[earlier],
    )
    folds = np.full(len(later_folds), -1, dtype=later_folds.dtype)
    try:
        folds[earlier] = draw_folds(past, protocol, 0)
    except ValueError as error:
        raise ValueError(f"repeat {repeat + 1} of a split in time: {error}") from None
    return folds


def most_folds(dataset: Dataset, n_wanted: int, seed: int) -> tuple[int, str]:
    """Return the largest feasible number of folds, and why it is below `n_wanted`."""
    reason = ""
    for n_folds in range(n_wanted, 2, -1):
        try:
            _folds_of(dataset, n_folds, seed)
        except ValueError as error:
            reason = str(error)
        else:
            return n_folds, reason
    return 0, reason


def _folds_of(dataset: Dataset, n_folds: int, seed: int) -> np.ndarray:
    if dataset.times is not None:
        return assign_blocks(dataset.target, n_folds, dataset.times)
    return assign_folds(dataset.target, n_folds, seed, dataset.groups)
