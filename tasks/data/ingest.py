"""Ingestion: any supported source becomes a checked, digested data set on disk."""

from __future__ import annotations

import hashlib
import itertools
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
import pyarrow as pa
from prefect import get_run_logger
from scipy import sparse

from learnkernels.conf.errors import InputError, input_errors, listed
from learnkernels.conf.files import ARRAYS
from learnkernels.conf.schema import DatasetConfig, PrecomputedConfig
from learnkernels.kernels.column_encoding import EncodingReport, TableEncoding, target_of
from learnkernels.kernels.column_encoding.encoding import DIFFERENT, DROPPED_BY_USER, FEW_ROWS, ColumnTypes
from learnkernels.kernels.column_encoding.quantities import BOOLEAN, CANONICAL_INTEGER
from learnkernels.kernels.column_encoding.reading import MISSING, column_of
from learnkernels.kernels.column_encoding.summary import ColumnSummary
from learnkernels.kernels.targets import FEW_VALUES, Target, all_whole, task_of
from learnkernels.kernels.weights import of_mean_one, relative_weights, too_small_to_count

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
    matrix_of,
    read_bundled,
    read_libsvm,
    require_room,
    rows_with,
    sample_columns_of,
    select_ngrams,
    target_column,
)
from .row_files import Readers
from .synthetic import read_synthetic
from .tables import FORMATS, Table, joint_name

WHOLE_LABEL = rf"{CANONICAL_INTEGER}(?:\.0*)?"
"""Pattern of a label of a CSV file that is a whole number, also with the decimals that other programs add."""


@step("ingest {config.label}", **TRIED_AGAIN)
def ingest(config: DatasetConfig, data_dir: str, seed: int, readers: Readers | None = None) -> DatasetRef:
    """Read, check and store one data set; return a reference to it.

    `readers` read a large one part by part, and the store then has everything of it but its features; by default this
    process does.

    Raises
    ------
    InputError
        The source is missing, a column is not numeric or not finite, the target does not suit the task.
    """
    dataset = load_source(config, data_dir, seed, warn, readers)
    pa.default_memory_pool().release_unused()  # what columns took as they were read, which Arrow would keep for others
    return store_dataset(dataset, config.label, _origin(config), warn)


def warn(sentence: str) -> None:
    """Write a warning into the log of the run."""
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
    """Return the data set of a configuration, read, checked, subsampled and scaled.

    Parameters
    ----------
    config : DatasetConfig
        What to read, and how.
    data_dir : str
        Where relative paths start.
    seed : int
        Draws the rows of `subsample`.
    tell : callable
        Is given a sentence where something is worth knowing and not wrong.
    readers : Readers, optional
        Who reads a table in parts; by default this process.

    Notes
    -----
    In this order: rows of `where`, rows with a target and a weight that counts, what each column is, rows without
    missing values, distinct rows, the most frequent n-grams of these rows, rows drawn by `subsample`, units of these,
    and weights of these, divided by their mean.
    """
    where = f"data set {config.label}"
    files = source_files(config, data_dir) if config.source == "file" else None
    with _opened(config, files, where, tell) as source:
        request = _Request(config, data_dir, seed, tell, where, readers)
        if source.table is None:
            X, features = source.matrix
            return _of_matrix(X, features, _known_rows(request, source, source.y, {}, None))
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


def _load_table(
    request: _Request, source: _Source, table: Table | pa.Table, files: Sequence[Location] | None
) -> Dataset:
    """Return the data set of a table."""
    config, where = request.config, request.where
    has_own_target = source.y is not None
    columns: Sequence[str] = table.schema.names
    if not has_own_target:
        columns = features_among(table, config, source.target, source.name, where)
    in_parts = files is not None and wanted_in_parts(config, files, table, where)
    n_columns_in_memory = 1 + len(config.sample_columns) if in_parts else len(columns)
    require_room(table.num_rows, n_columns_in_memory, source.name, where)
    selected = rows_with(table, config.where, "where", where)
    y = source.y if has_own_target else target_column(table, source.target, selected, where)
    if not table.num_rows:
        raise InputError(f"{where}: {source.name} has no rows.")
    has_matrices = any(isinstance(family, PrecomputedConfig) for family in config.kernels or ())
    if not (columns or has_matrices) or not len(y):
        raise InputError(
            f"{where}: {source.name} leaves {len(y)} rows and {len(columns)} feature columns; at least two rows and "
            "one column are needed."
        )
    sample_columns = sample_columns_of(table, selected, config, where)
    known = _known_rows(request, source, y, sample_columns, selected)
    if not columns:  # base kernels are matrices
        return _of_matrix(np.empty((len(y), 0)), (), known)
    if config.ngrams is not None or config.bytes is not None:
        X, features = matrix_of(table, columns, selected, config, where)
        return _of_matrix(X, features, known)
    is_used = np.ones(table.num_rows, dtype=bool) if selected is None else selected.copy()
    is_used[is_used] = known.usable
    column_types = config.columns
    if column_types is None and all(is_number(table.schema.field(name).type) for name in columns):
        column_types = dict.fromkeys(columns, "number")
    if in_parts:
        return _of_table(PartedTable(parts_of(table, is_used), request.readers), columns, column_types, known)
    rows = TableInMemory(table.select(columns).filter(pa.array(is_used)))
    return _of_table(rows, columns, column_types, known)


def _known_rows(
    request: _Request, source: _Source, y: Any, sample_columns: dict[str, np.ndarray], selected: np.ndarray | None
) -> _Known:
    """Return target, sample columns and usable rows of a source, or of its `selected` rows."""
    config, where, tell = request.config, request.where, request.tell
    if config.folds is not None:
        n_source_rows = len(y) if source.table is None else source.table.num_rows
        folds = folds_of(str(Path(request.data_dir, config.folds)), n_source_rows, where)
        sample_columns["folds"] = folds if selected is None else folds[selected]
    values = _column_values(y, config, source.is_typed, where, tell)
    usable = _usable(values, sample_columns, config, where, tell)
    known = _Known(config, where, request.seed, tell, values, sample_columns, usable)
    known.require_some(usable)
    return known


@dataclass(frozen=True)
class _Known:
    """What is requested, and what is known of m rows next to their features: target, groups and the like."""

    config: DatasetConfig
    where: str
    seed: int
    tell: Callable[[str], None]
    y: np.ndarray
    sample_columns: Mapping[str, np.ndarray]
    usable: np.ndarray

    def require_some(self, usable: np.ndarray) -> None:
        """Raise InputError where no row is usable."""
        if not usable.any():
            raise InputError(
                f"{self.where}: no row is complete, so 'missing: {self.config.missing}' leaves none; leave columns out "
                "with 'drop'."
            )

    def drawn(self, taken: np.ndarray) -> tuple[np.ndarray, Target, dict[str, Any]]:
        """Return which of some rows `subsample` draws, their target, and what else is known of them."""
        config, target, rows = self.config, _target(self.y[taken], self.config, self.where), np.arange(len(taken))
        if config.subsample is not None and config.subsample < len(target):
            rows = np.sort(np.random.default_rng(self.seed).choice(len(target), config.subsample, replace=False))
            target, taken = target.take(rows), taken[rows]
        known: dict[str, Any] = {name: of[taken] for name, of in self.sample_columns.items()}
        if "weights" in known:
            known["weights"] = of_mean_one(known["weights"])
        return rows, target, known

    def tell_all(self, sentences: Sequence[str]) -> None:
        """Report which columns were dropped, or which cells are not what their column holds."""
        for sentence in sentences:
            self.tell(f"{self.where}: {sentence}.")


def _of_table(
    rows: TableInMemory | PartedTable, columns: Sequence[str], column_types: ColumnTypes | None, known: _Known
) -> Dataset:
    """Return the data set of the usable rows of a table, in memory or in parts."""
    config = known.config
    with input_errors(known.where):
        rows, encoding = _complete_rows(rows, columns, column_types, known)
        known.tell_all(encoding.sentences((DROPPED_BY_USER,)))
        X, is_there, report = rows.encode(encoding)
    known.tell_all(report.sentences())
    usable = known.usable.copy()
    usable[usable] = is_there
    known.require_some(usable)
    taken = np.flatnonzero(usable)
    if isinstance(rows, PartedTable):  # whose configuration needs no rows to be left out any more
        _, target, sample_columns = known.drawn(taken)
        return Dataset(cast(Any, X), target, encoding.features, table=encoding, **sample_columns)
    distinct = np.arange(len(taken))
    if config.distinct:
        in_own_units, _, _ = rows.encode(encoding.learned_on(rows.columns, "none"))
        distinct = _first_of_equals(in_own_units, known.y[taken])
    drawn, target, sample_columns = known.drawn(taken[distinct])
    raw = rows.table.select(encoding.names)
    if len(drawn) < len(taken):
        raw = raw.take(distinct[drawn])
        encoding = encoding.learned_on(raw, config.scale)
        X = encoding.encode(raw)
    depends_on_rows = config.scale != "none" or any(column.has_gaps for column in encoding.columns)
    if config.scale_on == "training" and depends_on_rows:
        sample_columns |= {"raw": raw, "by_training": config.scale}
    return Dataset(cast(Any, X), target, encoding.features, table=encoding, **sample_columns)


def _complete_rows(
    rows: TableInMemory | PartedTable, columns: Sequence[str], column_types: ColumnTypes | None, known: _Known
) -> tuple[TableInMemory | PartedTable, TableEncoding]:
    """Return the rows that are used in spite of missing values, and the encoding of their columns.

    Raises
    ------
    InputError
        Values are missing, and the configuration refuses that.
    """
    config = known.config
    encoding, n_missing = rows.learn_encoding(columns, column_types, config.scale)
    if n_missing and config.missing == "refuse":
        named = listed([f"{name} ({count})" for name, count in n_missing.items()], show=str)
        raise InputError(
            f"{known.where}: missing values in column {named} of {known.usable.sum()} rows; set 'missing: impute' or "
            "'missing: drop', or leave columns out with 'drop'."
        )
    if config.missing != "drop":
        return rows, encoding
    rows = rows.complete(encoding)  # by the columns of all rows: in complete rows alone one may be constant
    if n_missing:
        types = {name: column_types[name] for name in encoding.names if name in column_types} if column_types else None
        encoding, _ = rows.learn_encoding(encoding.names, types, config.scale)
    return rows, encoding


def _of_matrix(X: Any, features: Sequence[str], known: _Known) -> Dataset:
    """Return the data set of rows that are no table: those of a LIBSVM file, counts of n-grams, bytes."""
    config, usable = known.config, known.usable
    if config.missing == "drop":
        usable = usable & ~np.isin(np.arange(X.shape[0]), _not_finite(X)[0])
        known.require_some(usable)
    taken = np.flatnonzero(usable)
    if config.distinct:
        taken = taken[_first_of_equals(X[taken], known.y[taken])]
    X = X if len(taken) == X.shape[0] else X[taken]
    if config.ngrams is not None:
        X, features = select_ngrams(X, tuple(features), config.ngrams)
    drawn, target, sample_columns = known.drawn(taken)
    bad = Counter(_not_finite(X)[1].tolist())
    if bad:
        named = listed([f"{features[c]} ({n})" for c, n in sorted(bad.items())], show=str)
        raise InputError(
            f"{known.where}: NaN, infinity or missing values in column {named} of {X.shape[0]} rows; set 'missing: "
            "impute' for what is missing, or 'missing: drop', correct infinities, or leave columns out with 'drop'."
        )
    X = X if len(drawn) == len(taken) else X[drawn]
    low, spread = scaling_of(X, config.scale, known.where)
    by_training = "" if low is None or config.scale_on != "training" else config.scale
    return Dataset(scaled(X, low, spread), target, features, low, spread, by_training=by_training, **sample_columns)


def _not_finite(X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return row and column of each entry that is not finite."""
    if sparse.issparse(X):
        entries = X.tocoo()
        bad = ~np.isfinite(entries.data)
        return entries.row[bad], entries.col[bad]
    rows, columns = np.nonzero(~np.isfinite(X))
    return rows, columns


class _Source(NamedTuple):
    """A table and the column to predict, or rows that are no table; `y` if the target is no column.

    Columns of a source that is not typed are text where they are not plainly numbers.
    """

    table: Table | pa.Table | None
    name: str = ""
    target: str = ""
    y: Any = None
    matrix: tuple[Any, Sequence[str]] = (None, ())
    is_typed: bool = True


@contextmanager
def _opened(
    config: DatasetConfig, files: Sequence[Location] | None, where: str, tell: Callable[[str], None]
) -> Iterator[_Source]:
    """Give what a configuration names."""
    if config.source == "openml":
        yield _Source(*read_openml(config, where, tell))
    elif files is None:
        X, y, names = (
            read_bundled(str(config.name))
            if config.source == "sklearn"
            else read_synthetic(str(config.name), config.params, config.seed, config.drop, where)
        )
        yield _Source(pa.table(dict(zip(names, X.T, strict=True))), str(config.name), y=y)
    elif files[0].suffix == ARRAYS[0]:
        arrays = arrays_of(files[0].path, f"{where}: {joint_name(files)}")
        columns = {name: array for name, array in arrays.items() if array.ndim == 1}
        yield _Source(pa.table(columns), joint_name(files), config.target)
    elif files[0].suffix not in FORMATS:
        X, y, numbered = read_libsvm(files, config, where)
        yield _Source(None, y=y, matrix=(X, numbered))
    else:
        with Table(files, where) as table:
            in_memory = table.in_memory(as_text=[config.target])
            for note in table.notes:
                tell(f"{where}: {note}.")
            yield _Source(in_memory, joint_name(files), config.target, is_typed=table.is_typed)


def _usable(
    y: np.ndarray,
    sample_columns: Mapping[str, np.ndarray],
    config: DatasetConfig,
    where: str,
    tell: Callable[[str], None],
) -> np.ndarray:
    """Return which rows have a target, known sample columns and a weight that counts, shape (m,)."""
    labeled = _present(y) | (config.missing == "refuse")
    if config.missing == "impute" and not labeled.all() and labeled.any():
        tell(f"{where}: {(~labeled).sum():,} of {len(labeled):,} rows have no target, and are left out.")
    there = [of >= 0 for name, of in sample_columns.items() if name != "folds"]  # which are all there
    usable = np.asarray(np.logical_and.reduce([labeled, *there]))
    if "weights" not in sample_columns:
        return usable
    weights = np.where(usable, sample_columns["weights"], 0.0)
    counts = relative_weights(weights) > 0
    if too_small := int(np.count_nonzero(weights) - np.count_nonzero(counts)):
        tell(f"{where}: column {config.weights!r} of 'weights' {too_small_to_count(too_small, len(weights))}.")
    return np.asarray(counts)


def _target(values: np.ndarray, config: DatasetConfig, where: str) -> Target:
    bad = int((~_present(values)).sum())
    if bad:
        raise InputError(
            f"{where}: target {config.target!r} is missing or not finite in {bad} of {len(values)} rows; drop "
            "them, or set 'missing: drop'."
        )
    if values.dtype.kind == "f" and config.task != "regression" and all_whole(values):
        values = values.astype(np.int64)
    if config.positive is not None:
        text = np.array([str(value) for value in values])
        positive = (config.positive,) if isinstance(config.positive, str) else config.positive
        hits = np.isin(text, positive)
        if hits.all() or not set(positive) <= set(text):
            raise InputError(
                f"{where}: 'positive' must be one of several values of the target, got "
                f"{listed(positive)}; the target holds {listed(sorted(set(text)))}."
            )
        values = np.where(hits, 1.0, -1.0)
        names = ("rest", ", ".join(positive))
        if config.task != "regression":
            return Target("classification", (values > 0).astype(np.intp), names)
    task = config.task or task_of(values)
    if values.dtype.kind == "O" and config.task is None and len(set(values)) > max(FEW_ROWS, DIFFERENT * len(values)):
        raise InputError(
            f"{where}: target {config.target!r} is text that differs in nearly all rows, such as {values[0]!r:.40}; "
            "name another column, or write it as numbers or as classes."
        )
    if task == "regression" and values.dtype.kind not in "iufb":
        raise InputError(
            f"{where}: target {config.target!r} is text ({listed(sorted(set(map(str, values))))}), which a regression "
            "cannot use; set 'positive' to code it as plus and minus one, or 'task: classification'."
        )
    if task == "regression" and values.size and (values == values[0]).all():
        raise InputError(
            f"{where}: target {config.target!r} is {np.ravel(values)[0]:g} in all rows, so that nothing can be "
            "learned; name another column, or other rows."
        )
    with input_errors(where):
        return Target.of(values, task)


def _column_values(
    y: Any, config: DatasetConfig, is_typed: bool, where: str, tell: Callable[[str], None]
) -> np.ndarray:
    """Return a target as numbers, NaN for missing ones, or as labels, None for missing ones."""
    if not isinstance(y, pa.ChunkedArray | pa.Array):
        values = np.asarray(y)
    elif pa.types.is_integer(y.type) or pa.types.is_floating(y.type) or pa.types.is_boolean(y.type):
        values = np.asarray(y.to_numpy(zero_copy_only=False))
    elif pa.types.is_dictionary(y.type) and not pa.types.is_string(y.type.value_type):
        return _column_values(y.dictionary_decode(), config, is_typed, where, tell)
    else:
        values = _target_of_texts(y, config, is_typed, where, tell)
    if values.dtype.kind == "f" and (infinite := np.isinf(values)).any():
        raise InputError(
            f"{where}: target {config.target!r} is infinite in {infinite.sum()} of {len(values)} rows, at first in row "
            f"{int(infinite.argmax())} (the first is row 0); correct these, or leave them empty."
        )
    if len(values) and not _present(values).any():
        raise InputError(f"{where}: target {config.target!r} has no value in any row; name another column.")
    return values


def _target_of_texts(
    y: Any, config: DatasetConfig, is_typed: bool, where: str, tell: Callable[[str], None]
) -> np.ndarray:
    """Return a target that is stored as text, decimals or dates as numbers or labels, and tell about odd cells."""
    report = EncodingReport()
    column = column_of(config.target, pa.chunked_array([y]))
    with input_errors(where):
        values = target_of(column, config.task, report, is_typed)
    for sentence in report.sentences():
        tell(f"{where}: {sentence}.")
    texts = y.cast(pa.string()).unique().to_pylist() if pa.types.is_string(y.type) else []
    if words := sorted(text.strip() for text in texts if text and text.strip().lower() in MISSING - {""}):
        tell(
            f"{where}: {listed(words)} in the target {config.target!r} denotes a missing value; give a class of "
            "that name another one."
        )
    if values.dtype.kind != "O":
        return values
    if not is_typed:
        return _labels_of_csv(values)
    classes = len(set(values.tolist()) - {None})
    if config.task is None and classes > FEW_VALUES and ColumnSummary.of(column).as_numbers() is not None:
        tell(
            f"{where}: target {config.target!r} is text, and its {classes:,} values are classes; set "
            "'task: regression' to read them as numbers."
        )
    return values


def _labels_of_csv(labels: np.ndarray) -> np.ndarray:
    """Return labels of a CSV file as whole numbers or Booleans if all of them are plainly such, else as they are."""
    texts = [label for label in labels.tolist() if label is not None]
    if all(re.fullmatch(WHOLE_LABEL, text) for text in texts):
        return np.array([np.nan if label is None else float(label) for label in labels.tolist()])
    if not all(re.fullmatch(BOOLEAN, text) for text in texts):
        return labels
    booleans = np.array([None if label is None else label.lower() == "true" for label in labels.tolist()], dtype=object)
    return booleans if len(texts) < len(labels) else booleans.astype(bool)


def _present(values: np.ndarray) -> np.ndarray:
    """Return whether each row of a target is there and finite, shape (m,)."""
    if values.dtype.kind == "f":
        present = np.isfinite(values)
    else:
        present = np.array([value is not None for value in values.flat], dtype=bool).reshape(values.shape)
    return np.asarray(present if present.ndim == 1 else present.all(axis=1))


def _first_of_equals(X: Any, y: np.ndarray) -> np.ndarray:
    """Return the positions, ascending, of the first of the rows that are equal in every feature and in the target."""
    if sparse.issparse(X):
        X = sparse.csr_matrix(X, copy=True)
        X.sum_duplicates()
        X.eliminate_zeros()
        rows = [X.indices[a:b].tobytes() + X.data[a:b].tobytes() for a, b in itertools.pairwise(X.indptr)]
    else:
        rows = [(row + 0.0).tobytes() for row in X]  # -0 is 0
    digests = [hashlib.sha256(row).digest() for row in rows]
    return np.flatnonzero(~pd.DataFrame({"row": digests, "target": [*map(str, y.tolist())]}).duplicated())
