"""Read, check, encode and store data sets."""

from __future__ import annotations

import hashlib
import itertools
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from prefect import get_run_logger
from scipy import sparse

from learnkernels.conf.errors import InputError, input_errors, listed
from learnkernels.conf.files import ARRAYS
from learnkernels.conf.schema import DatasetConfig, PrecomputedConfig
from learnkernels.conf.schema.base import several
from learnkernels.kernels.column_encoding import (
    EncodingReport,
    TableEncoding,
    target_of,
)
from learnkernels.kernels.column_encoding.encoding import (
    DIFFERENT,
    DROPPED_BY_USER,
    FEW_ROWS,
    ColumnTypes,
    as_levels,
)
from learnkernels.kernels.column_encoding.quantities import BOOLEAN, CANONICAL_INTEGER
from learnkernels.kernels.column_encoding.reading import LARGEST, MISSING, column_of
from learnkernels.kernels.column_encoding.summary import ColumnSummary
from learnkernels.kernels.targets import (
    FEW_VALUES,
    Target,
    all_whole,
    as_integers,
    task_of,
)
from learnkernels.kernels.weights import (
    of_mean_one,
    relative_weights,
    too_small_to_count,
)

from ..naming import step
from .dataset import Dataset, DatasetRef, scaled, scaling_of, store_dataset
from .headers import source_files
from .locations import TRIED_AGAIN, Location
from .openml import read_openml
from .parts import PartedTable, TableInMemory, parts_of, wanted_in_parts
from .readers import (
    arrays_of,
    features_among,
    folds_of,
    is_number,
    is_read,
    matrix_of,
    read_bundled,
    read_libsvm,
    require_equal_lengths,
    require_room,
    rows_with,
    sample_columns_of,
    select_ngrams,
    target_column,
)
from .row_files import Readers
from .synthetic import read_synthetic
from .tables import FORMATS, Table, is_text, joint_name


@step("ingest {config.label}", **TRIED_AGAIN)
def ingest(
    config: DatasetConfig, data_dir: str, seed: int, readers: Readers | None = None
) -> DatasetRef:
    """Read and check a data set, and write it to disk; return a reference."""
    dataset = load_source(config, data_dir, seed, warn, readers)
    pa.default_memory_pool().release_unused()  # Arrow would keep memory
    return store_dataset(dataset, config.label, _origin(config), warn)


def warn(sentence: str) -> None:
    get_run_logger().warning("%s", sentence)


def _origin(config: DatasetConfig) -> str:
    if config.source == "openml":
        return f"openml:{config.name} version {config.version}"
    return ", ".join(config.paths) or f"{config.source}:{config.label}"


def load_source(
    config: DatasetConfig,
    data_dir: str = ".",
    seed: int = 0,
    tell: Callable[[str], None] = warnings.warn,
    readers: Readers | None = None,
) -> Dataset:
    """Read the data set of a configuration into memory, without a copy on disk.

    `tell` receives remarks and warnings. Order of the steps: rows of `where`, rows with
    target and weight, column types, rows without missing values, distinct rows,
    n-grams, `subsample`, scaling, weights.
    """
    request = _Request(
        config, data_dir, seed, tell, f"data set {config.label}", readers
    )
    files = source_files(config, data_dir) if config.source == "file" else None
    with _opened_source(request, files) as source:
        if source.table is None:
            X, features = source.matrix
            return _dataset_of_matrix(
                X, features, _labeled_rows(request, source, source.y, {}, None)
            )
        return _load_table(request, source, source.table, files)


@dataclass(frozen=True)
class _Request:
    """The arguments of `load_source`, and the beginning of messages."""

    config: DatasetConfig
    data_dir: str
    seed: int
    tell: Callable[[str], None]
    where: str
    readers: Readers | None

    def tell_all(self, sentences: Sequence[str]) -> None:
        for sentence in sentences:
            self.tell(f"{self.where}: {sentence}.")


def _load_table(
    request: _Request,
    source: _Source,
    table: Table | pa.Table,
    files: Sequence[Location] | None,
) -> Dataset:
    config = request.config
    where = request.where
    columns: Sequence[str] = table.schema.names
    if source.y is None:
        names = source.columns or columns
        columns = features_among(names, config, source.target, source.name, where)
    in_parts = files is not None and wanted_in_parts(config, files, table, where)
    n_columns_in_memory = len(columns)
    if in_parts:
        n_columns_in_memory = 1 + len(config.sample_columns)
    require_room(table.num_rows, n_columns_in_memory, source.name, where)
    selected = rows_with(table, config.where, "where", where)
    y = source.y
    if y is None:
        y = target_column(table, source.target, selected, where)
    if not table.num_rows:
        raise InputError(f"{where}: {source.name} has no rows.")
    has_matrices = any(
        isinstance(family, PrecomputedConfig) for family in config.kernels or ()
    )
    if not (columns or has_matrices) or not len(y):
        raise InputError(
            f"{where}: {source.name} leaves {len(y)} rows and {len(columns)} feature columns; at least two rows and "
            "one column are needed."
        )
    sample_columns = sample_columns_of(table, selected, config, where)
    labeled = _labeled_rows(request, source, y, sample_columns, selected)
    if not columns:  # base kernels are matrices
        return _dataset_of_matrix(np.empty((len(y), 0)), (), labeled)
    if config.ngrams is not None or config.bytes is not None:
        X, features = matrix_of(table, columns, selected, config, where)
        return _dataset_of_matrix(X, features, labeled)
    is_used = labeled.usable
    if selected is not None:
        is_used = selected.copy()
        is_used[selected] = labeled.usable
    column_types = config.columns
    if column_types is None and all(
        is_number(table.schema.field(name).type) for name in columns
    ):
        column_types = dict.fromkeys(columns, "number")
    rows: TableInMemory | PartedTable
    if in_parts:
        rows = PartedTable(parts_of(table, is_used), request.readers)
    else:
        rows = TableInMemory(table.select(columns).filter(pa.array(is_used)))
    return _dataset_of_table(rows, columns, column_types, labeled)


def _labeled_rows(
    request: _Request,
    source: _Source,
    y: Any,
    sample_columns: dict[str, np.ndarray],
    selected: np.ndarray | None,
) -> _LabeledRows:
    config = request.config
    if config.folds is not None:
        n_source_rows = len(y) if source.table is None else source.table.num_rows
        folds = folds_of(
            str(Path(request.data_dir, config.folds)), n_source_rows, request.where
        )
        sample_columns["folds"] = folds if selected is None else folds[selected]
    values = _target_values(y, request, source.is_typed)
    usable = _usable_rows(values, sample_columns, request)
    labeled = _LabeledRows(request, values, sample_columns, usable)
    labeled.require_some(usable)
    return labeled


@dataclass(frozen=True)
class _LabeledRows:
    """Target and sample columns of m rows, and a mask of usable rows."""

    request: _Request
    y: np.ndarray
    sample_columns: Mapping[str, np.ndarray]
    usable: np.ndarray

    def require_some(self, usable: np.ndarray) -> None:
        if not usable.any():
            raise InputError(
                f"{self.request.where}: no row is complete, so 'missing: {self.request.config.missing}' leaves none; "
                "leave columns out with 'drop'."
            )

    def draw(self, positions: np.ndarray) -> tuple[np.ndarray, Target, dict[str, Any]]:
        """Draw the rows of `subsample`; return indices into `positions` and targets."""
        n_drawn = self.request.config.subsample
        target = _target(self.y[positions], self.request.config, self.request.where)
        drawn = np.arange(len(positions))
        if n_drawn is not None and n_drawn < len(target):
            rng = np.random.default_rng(self.request.seed)
            drawn = np.sort(rng.choice(len(target), n_drawn, replace=False))
            target = target.take(drawn)
        sample_columns: dict[str, Any] = {}
        for name, values in self.sample_columns.items():
            sample_columns[name] = values[positions[drawn]]
        if "weights" in sample_columns:
            sample_columns["weights"] = of_mean_one(sample_columns["weights"])
        return drawn, target, sample_columns


def _dataset_of_table(
    rows: TableInMemory | PartedTable,
    columns: Sequence[str],
    column_types: ColumnTypes | None,
    labeled: _LabeledRows,
) -> Dataset:
    request = labeled.request
    config = request.config
    with input_errors(request.where):
        rows, encoding = _complete_rows(rows, columns, column_types, labeled)
        request.tell_all(encoding.sentences((DROPPED_BY_USER,)))
        X, is_there, report = rows.encode(encoding)
    request.tell_all(report.sentences())
    usable = labeled.usable.copy()
    usable[usable] = is_there
    labeled.require_some(usable)
    positions = np.flatnonzero(usable)
    # Tables in parts have neither `distinct` nor `subsample`
    if isinstance(rows, PartedTable):
        _, target, sample_columns = labeled.draw(positions)
        return Dataset(
            cast(Any, X), target, encoding.features, table=encoding, **sample_columns
        )
    distinct = np.arange(len(positions))
    if config.distinct:
        X_unscaled, _, _ = rows.encode(encoding.learned_on(rows.columns, "none"))
        distinct = _first_of_equals(X_unscaled, labeled.y[positions])
    drawn, target, sample_columns = labeled.draw(positions[distinct])
    raw = rows.table.select(encoding.names)
    if len(drawn) < len(positions):
        raw = raw.take(distinct[drawn])
        encoding = encoding.learned_on(raw, config.scale)
        X = encoding.encode(raw)
    depends_on_rows = config.scale != "none" or any(
        column.depends_on_rows for column in encoding.columns
    )
    if config.scale_on == "training" and depends_on_rows:
        sample_columns |= {"raw": raw, "by_training": config.scale}
    elif not encoding.is_decodable:
        sample_columns["raw"] = raw
    return Dataset(
        cast(Any, X), target, encoding.features, table=encoding, **sample_columns
    )


def _complete_rows(
    rows: TableInMemory | PartedTable,
    columns: Sequence[str],
    column_types: ColumnTypes | None,
    labeled: _LabeledRows,
) -> tuple[TableInMemory | PartedTable, TableEncoding]:
    config = labeled.request.config
    encoding, n_missing = rows.learn_encoding(columns, column_types, config.scale)
    if n_missing and config.missing == "refuse":
        counts = listed(
            [f"{name} ({count})" for name, count in n_missing.items()], show=str
        )
        raise InputError(
            f"{labeled.request.where}: missing values in column {counts} of {labeled.usable.sum()} rows; set "
            "'missing: impute' or 'missing: drop', or leave columns out with 'drop'."
        )
    if config.missing != "drop":
        return rows, encoding
    # Columns that vary in all rows stay, even if then constant
    rows = rows.complete(encoding)
    if n_missing:
        remaining_types = None
        if column_types:
            remaining_types = {
                name: column_types[name]
                for name in encoding.names
                if name in column_types
            }
        encoding, _ = rows.learn_encoding(encoding.names, remaining_types, config.scale)
    return rows, encoding


def _dataset_of_matrix(
    X: Any, features: Sequence[str], labeled: _LabeledRows
) -> Dataset:
    request = labeled.request
    config = request.config
    usable = labeled.usable
    if config.missing == "drop":
        rows_with_gaps, _ = _entries_not_finite(X)
        usable = usable & ~np.isin(np.arange(X.shape[0]), rows_with_gaps)
        labeled.require_some(usable)
    positions = np.flatnonzero(usable)
    if config.distinct:
        positions = positions[_first_of_equals(X[positions], labeled.y[positions])]
    if len(positions) < X.shape[0]:
        X = X[positions]
    if config.ngrams is not None:
        X, features = select_ngrams(X, tuple(features), config.ngrams)
    drawn, target, sample_columns = labeled.draw(positions)
    _, columns_with_gaps = _entries_not_finite(X)
    if len(columns_with_gaps):
        gaps = sorted(Counter(columns_with_gaps.tolist()).items())
        counts = listed(
            [f"{features[column]} ({count})" for column, count in gaps], show=str
        )
        raise InputError(
            f"{request.where}: NaN, infinity or missing values in column {counts} of {X.shape[0]} rows; set 'missing: "
            "impute' for what is missing, or 'missing: drop', correct infinities, or leave columns out with 'drop'."
        )
    if len(drawn) < len(positions):
        X = X[drawn]
    low, spread = scaling_of(X, config.scale, request.where)
    by_training = ""
    if low is not None and config.scale_on == "training":
        by_training = config.scale
    return Dataset(
        scaled(X, low, spread),
        target,
        features,
        low,
        spread,
        by_training=by_training,
        **sample_columns,
    )


def _entries_not_finite(X: Any) -> tuple[np.ndarray, np.ndarray]:
    if sparse.issparse(X):
        entries = X.tocoo()
        bad = ~np.isfinite(entries.data)
        return entries.row[bad], entries.col[bad]
    rows, columns = np.nonzero(~np.isfinite(X))
    return rows, columns


class _Source(NamedTuple):
    """Table, or a matrix if `table` is None.

    `y` is the target of a source without the column `target`; `columns` names all.
    """

    table: Table | pa.Table | None
    name: str = ""
    target: str = ""
    y: Any = None
    matrix: tuple[Any, Sequence[str]] = (None, ())
    is_typed: bool = True
    columns: Sequence[str] = ()


@contextmanager
def _opened_source(
    request: _Request, files: Sequence[Location] | None
) -> Iterator[_Source]:
    config = request.config
    where = request.where
    if config.source == "openml":
        yield _Source(*read_openml(config, where, request.tell))
    elif config.source == "sklearn":
        yield _source_of_arrays(str(config.name), *read_bundled(str(config.name)))
    elif files is None:
        arrays = read_synthetic(
            str(config.name), config.params, config.seed, config.drop, where
        )
        yield _source_of_arrays(str(config.name), *arrays)
    elif files[0].suffix == ARRAYS[0]:
        title = f"{where}: {joint_name(files)}"
        named_arrays = arrays_of(files[0].path, title)
        columns = {
            name: array for name, array in named_arrays.items() if array.ndim == 1
        }
        require_equal_lengths(columns.values(), title)
        yield _Source(pa.table(columns), joint_name(files), config.target)
    elif files[0].suffix not in FORMATS:
        X, y, features = read_libsvm(files, config, where)
        yield _Source(None, y=y, matrix=(X, features))
    else:
        with Table(files, where, is_needed=partial(is_read, config)) as table:
            in_memory = table.in_memory([config.target], _columns_of_levels(config))
            request.tell_all(table.notes)
            yield _Source(
                in_memory,
                joint_name(files),
                config.target,
                is_typed=table.is_typed,
                columns=table.all_names,
            )


def _columns_of_levels(config: DatasetConfig) -> list[str]:
    columns = [*config.where, *config.test]
    for name, column_type in (config.columns or {}).items():
        if as_levels(column_type):
            columns.append(name)
    if config.groups is not None:
        columns.append(config.groups)
    return columns


def _source_of_arrays(
    name: str, X: np.ndarray, y: np.ndarray, features: Sequence[str]
) -> _Source:
    return _Source(pa.table(dict(zip(features, X.T, strict=True))), name, y=y)


def _usable_rows(
    y: np.ndarray, sample_columns: Mapping[str, np.ndarray], request: _Request
) -> np.ndarray:
    config = request.config
    usable = _rows_with_finite_values(y) | (config.missing == "refuse")
    if config.missing == "impute" and not usable.all() and usable.any():
        request.tell(
            f"{request.where}: {(~usable).sum():,} of {len(usable):,} rows have no target, and are left out."
        )
    for name, values in sample_columns.items():
        if name != "folds":  # the file of folds has no missing values
            usable = usable & (values >= 0)
    if "weights" not in sample_columns:
        return usable
    weights = np.where(usable, sample_columns["weights"], 0.0)
    counts = relative_weights(weights) > 0
    n_too_small = int(np.count_nonzero(weights) - np.count_nonzero(counts))
    if n_too_small:
        sentence = too_small_to_count(n_too_small, len(weights))
        request.tell(
            f"{request.where}: column {config.weights!r} of 'weights' {sentence}."
        )
    return np.asarray(counts)


def _target(values: np.ndarray, config: DatasetConfig, where: str) -> Target:
    title = f"{where}: target {config.target!r}"
    n_missing = int((~_rows_with_finite_values(values)).sum())
    if n_missing:
        raise InputError(
            f"{title} is missing or not finite in {n_missing} of {len(values)} rows; drop them, or set 'missing: drop'."
        )
    if config.task != "regression" and _are_integers(values):
        values = values.astype(np.int64)
    if values.dtype.kind == "O" and set(map(type, values.flat)) == {bool}:
        values = values.astype(bool)
    if values.dtype.kind == "O" and set(map(type, values.flat)) == {int}:
        values = as_integers(values.tolist())
    if config.positive is not None:
        is_positive, name = _positive_rows(values, config.positive, where)
        if config.task != "regression":
            return Target("classification", is_positive.astype(np.intp), ("rest", name))
        values = np.where(is_positive, 1.0, -1.0)
    most_classes = max(FEW_ROWS, DIFFERENT * len(values))
    if (
        values.dtype.kind == "O"
        and config.task is None
        and len(set(values)) > most_classes
    ):
        raise InputError(
            f"{title} is text that differs in nearly all rows, such as {values[0]!r:.40}; name another column, or "
            "write it as numbers or as classes."
        )
    task = config.task or task_of(values)
    if task == "regression" and values.dtype.kind not in "iufb":
        raise InputError(
            f"{title} is text ({listed(sorted(set(map(str, values))))}), which a regression cannot use; set 'positive' "
            "to code it as plus and minus one, or 'task: classification'."
        )
    if task == "regression" and values.size and (values == values[0]).all():
        raise InputError(
            f"{title} is {np.ravel(values)[0]:g} in all rows, so that nothing can be learned; name another column, or "
            "other rows."
        )
    with input_errors(where):
        return Target.of(values, task)


def _are_integers(values: np.ndarray) -> bool:
    """Return whether floats are whole and within 64 bits."""
    if values.dtype.kind != "f" or not all_whole(values):
        return False
    return bool(np.abs(values).max(initial=0.0) < 2.0**63)


def _positive_rows(
    values: np.ndarray, positive: str | Sequence[str], where: str
) -> tuple[np.ndarray, str]:
    positive = several(positive)
    texts = np.array([str(value) for value in values])
    is_positive = np.isin(texts, positive)
    if is_positive.all() or not set(positive) <= set(texts):
        raise InputError(
            f"{where}: 'positive' must be one of several values of the target, got {listed(positive)}; the target "
            f"holds {listed(sorted(set(texts)))}."
        )
    return is_positive, ", ".join(positive)


def _target_values(y: Any, request: _Request, is_typed: bool) -> np.ndarray:
    """Return a target as numbers or labels; missing values are NaN or None."""
    title = f"{request.where}: target {request.config.target!r}"
    is_arrow = isinstance(y, pa.ChunkedArray | pa.Array)
    if (
        is_arrow
        and pa.types.is_dictionary(y.type)
        and not pa.types.is_string(y.type.value_type)
    ):
        y = y.dictionary_decode()
    if not is_arrow:
        values = np.asarray(y)
    elif pa.types.is_integer(y.type) and y.null_count:
        values = _integers_with_gaps(y)
    elif is_number(y.type):
        values = np.asarray(y.to_numpy(zero_copy_only=False))
    else:
        values = _target_of_texts(y, request, is_typed)
    if values.dtype.kind == "f" and np.isinf(values).any():
        is_infinite = np.isinf(values)
        raise InputError(
            f"{title} is infinite in {is_infinite.sum()} of {len(values)} rows, at first in row "
            f"{int(is_infinite.argmax())} (the first is row 0); correct these, or leave them empty."
        )
    if len(values) and not _rows_with_finite_values(values).any():
        raise InputError(f"{title} has no value in any row; name another column.")
    return values


def _integers_with_gaps(y: Any) -> np.ndarray:
    """Return integers as floats, or as objects if floats would round them."""
    extremes = [value for value in pc.min_max(y).as_py().values() if value is not None]
    if max(map(abs, extremes), default=0) <= LARGEST:
        return np.asarray(y.to_numpy(zero_copy_only=False))
    return np.array(y.to_pylist(), dtype=object)


def _target_of_texts(y: Any, request: _Request, is_typed: bool) -> np.ndarray:
    config = request.config
    report = EncodingReport()
    column = column_of(config.target, pa.chunked_array([y]))
    with input_errors(request.where):
        values = target_of(column, config.task, report, is_typed)
    request.tell_all(report.sentences())
    words = _missing_markers(y)
    if words:
        request.tell(
            f"{request.where}: {listed(words)} in the target {config.target!r} denotes a missing value; give a class "
            "of that name another one."
        )
    if values.dtype.kind != "O":
        return values
    if not is_typed:
        return _labels_of_csv(values)
    n_classes = len(set(values.tolist()) - {None})
    if (
        config.task is None
        and n_classes > FEW_VALUES
        and ColumnSummary.of(column).as_numbers() is not None
    ):
        request.tell(
            f"{request.where}: target {config.target!r} is text, and its {n_classes:,} values are classes; set "
            "'task: regression' to read them as numbers."
        )
    return values


def _missing_markers(y: Any) -> list[str]:
    if pa.types.is_dictionary(y.type):
        y = y.dictionary_decode()
    if not is_text(y.type):
        return []
    markers = MISSING - {""}
    texts = [(text or "").strip() for text in y.unique().to_pylist()]
    return sorted(text for text in texts if text.lower() in markers)


def _labels_of_csv(labels: np.ndarray) -> np.ndarray:
    """Return labels as integers or Booleans if all are, else unchanged."""
    values = labels.tolist()
    texts = [label for label in values if label is not None]
    if all(re.fullmatch(rf"{CANONICAL_INTEGER}(?:\.0*)?", text) for text in texts):
        return np.array([np.nan if label is None else float(label) for label in values])
    if not all(re.fullmatch(BOOLEAN, text) for text in texts):
        return labels
    booleans = [None if label is None else label.lower() == "true" for label in values]
    if None in booleans:
        return np.array(booleans, dtype=object)
    return np.array(booleans, dtype=bool)


def _rows_with_finite_values(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "f":
        is_there = np.isfinite(values)
    else:
        is_there = np.array([value is not None for value in values.flat], dtype=bool)
    columns = tuple(range(1, values.ndim))
    return np.asarray(is_there.reshape(values.shape).all(axis=columns))


def _first_of_equals(X: Any, y: np.ndarray) -> np.ndarray:
    """Return positions of rows that equal no earlier row and target."""
    if sparse.issparse(X):
        X = sparse.csr_matrix(X, copy=True)
        X.sum_duplicates()
        X.eliminate_zeros()
        slices = [slice(start, stop) for start, stop in itertools.pairwise(X.indptr)]
        rows = [
            X.indices[entries].tobytes() + X.data[entries].tobytes()
            for entries in slices
        ]
    else:
        rows = [(row + 0.0).tobytes() for row in X]  # -0.0 becomes 0.0
    digests = [hashlib.sha256(row).digest() for row in rows]
    is_copy = pd.DataFrame(
        {"row": digests, "target": [*map(str, y.tolist())]}
    ).duplicated()
    return np.flatnonzero(~is_copy)
