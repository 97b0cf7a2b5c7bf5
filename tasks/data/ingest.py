"""Ingestion: any supported source becomes a checked, digested data set on disk."""

from __future__ import annotations

import hashlib
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
from prefect import get_run_logger
from scipy import sparse

from learnkernels.conf.errors import InputError, listed
from learnkernels.conf.loading import existing_files
from learnkernels.conf.schema import DatasetConfig
from learnkernels.kernels.tables import Met, TableEncoding, target_of
from learnkernels.kernels.tables.encoding import AS_SAID, DIFFERENT, FEW_ROWS, Said
from learnkernels.kernels.tables.reading import MISSING, column_of
from learnkernels.kernels.targets import Target, all_whole, task_of
from learnkernels.tasks.data.dataset import BLOCK_BYTES, Dataset, DatasetRef, scaled, scaling_of, store_dataset
from learnkernels.tasks.data.locations import TRIED_AGAIN
from learnkernels.tasks.data.openml import read_openml
from learnkernels.tasks.data.parts import HeldRows, Readers, RowsOfParts, ThisProcess, parts_of, wanted_in_parts
from learnkernels.tasks.data.readers import (
    beside_of,
    features_among,
    is_number,
    matrix_of,
    missing_values,
    read_bundled,
    read_libsvm,
    require_features,
    require_room,
    rows_where,
    target_column,
)
from learnkernels.tasks.data.synthetic import read_synthetic
from learnkernels.tasks.data.tables import FORMATS, Files, Table, locations_of
from learnkernels.tasks.data.text import select_ngrams
from learnkernels.tasks.naming import step


def source_files(config: DatasetConfig, data_dir: str) -> Files:
    """Return where the files of a data set lie.

    Raises
    ------
    InputError
        There is no such file or object, its ending is not one that can be read, or its server cannot be used.
    """
    addresses = existing_files(config, data_dir)
    try:
        locations = locations_of(*addresses)
        for location in locations:
            if location.remote:
                location.size()
    except InputError as error:
        raise type(error)(f"data set {config.label}: {error}") from None
    return Files(locations)


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
    In this order: rows of `where`, rows with a target and a weight above zero, what each column is, rows without
    missing values, distinct rows, the most frequent n-grams of these rows, rows drawn by `subsample`, units of these.
    """
    where = f"data set {config.label}"
    files = source_files(config, data_dir) if config.source == "file" else None
    with _opened(config, files, where, tell) as source:
        table, name = source.table, source.name
        columns: Sequence[str] = ()
        if table is not None:
            own = source.y is not None  # and no column to predict
            columns = table.schema.names if own else features_among(table, config, source.target, name, where)
        in_parts = table is not None and files is not None and wanted_in_parts(config, files, table, where)
        kept, y, beside = None, source.y, {}
        if table is not None:
            require_room(table.num_rows, 1 + len(config.beside) if in_parts else len(columns), name, where)
            kept = rows_where(table, config, where)
            y = target_column(table, source.target, kept, where) if y is None else y
            require_features(columns, len(y), name, where)
            beside = beside_of(table, kept, config, where)
        y = _column_values(y, config, where, tell)
        usable = _usable(y, beside, config, where, tell)
        _require_rows(usable, config, where)
        if table is None or config.ngrams is not None or config.bytes is not None:
            X, features = source.matrix if table is None else matrix_of(table, columns, kept, config, where)
            return _of_matrix(X, features, y, usable, beside, config, seed, where)
        used = np.ones(table.num_rows, dtype=bool) if kept is None else kept.copy()
        used[used] = usable
        rows: HeldRows | RowsOfParts
        if in_parts:
            rows = RowsOfParts(parts_of(table, used), readers or ThisProcess())
        else:
            rows = HeldRows(table.select(columns).filter(pa.array(used)))
        numbers = config.columns is None and all(is_number(table.schema.field(name).type) for name in columns)
        said = dict.fromkeys(columns, "number") if numbers else config.columns
        return _of_table(rows, columns, said, y, usable, beside, config, seed, where, tell)


def _of_table(
    rows: HeldRows | RowsOfParts,
    columns: Sequence[str],
    said: Said | None,
    y: np.ndarray,
    usable: np.ndarray,
    beside: dict[str, np.ndarray],
    config: DatasetConfig,
    seed: int,
    where: str,
    tell: Callable[[str], None],
) -> Dataset:
    """Return the data set of the usable rows of a table, in memory or in parts."""
    try:
        encoding, complete = _encoding_of(rows, columns, said, config, int(usable.sum()), where)
        _tell_all(encoding.sentences((AS_SAID,)), where, tell)
        X, there, met = rows.encoded(encoding, complete)
    except ValueError as error:
        raise error if isinstance(error, InputError) else InputError(f"{where}: {error}") from None
    _tell_all(met.sentences(), where, tell)
    usable = usable.copy()
    usable[usable] = there
    _require_rows(usable, config, where)
    y, taken = y[usable], np.arange(usable.sum())
    if config.distinct and isinstance(rows, HeldRows):
        plain, _, _ = rows.encoded(encoding.learned_on(rows.columns, "none"), complete)
        taken = _first_of_equals(plain, y)
    target, taken = _drawn(_target(y[taken], config, where), taken, config, seed)
    known = {name: of[usable][taken] for name, of in beside.items()}
    own: dict[str, Any] = {}
    fewer, anew = len(taken) < len(y), config.scale != "none" or any(one.has_gaps for one in encoding.columns)
    by_training = config.scale_on == "training" and anew
    if isinstance(rows, HeldRows) and (fewer or by_training):  # of parts, no configuration asks for either
        raw = rows.table.select(encoding.names).take(np.flatnonzero(there)[taken])
        if fewer:
            encoding = encoding.learned_on(raw, config.scale)
            X = encoding.encode(raw)
        if by_training:
            own = {"raw": raw, "by_training": config.scale}
    if config.class_weight is not None:
        own["class_weight"] = _class_weights(config, target, known.get("weights"), where)
    return Dataset(cast(Any, X), target, encoding.features, table=encoding, **known, **own)


def _encoding_of(
    rows: HeldRows | RowsOfParts, columns: Sequence[str], said: Said | None, config: DatasetConfig, n: int, where: str
) -> tuple[TableEncoding, TableEncoding | None]:
    """Return what columns of n rows become, and by which encoding rows are complete, where the others are left out.

    The second is that of all rows: of complete rows alone a column may be constant, and no feature.
    """
    encoding, lacking = rows.learned(columns, said, config.scale)
    if lacking and config.missing == "refuse":
        raise missing_values(lacking, n, where)
    if config.missing != "drop":
        return encoding, None
    complete = encoding
    if lacking:
        known = None if said is None else {name: kind for name, kind in said.items() if name in encoding.names}
        encoding, _ = rows.learned(encoding.names, known, config.scale, complete)
    return encoding, complete


def _of_matrix(
    X: Any,
    features: Sequence[str],
    y: np.ndarray,
    usable: np.ndarray,
    beside: dict[str, np.ndarray],
    config: DatasetConfig,
    seed: int,
    where: str,
) -> Dataset:
    """Return the data set of rows that are no table: those of a LIBSVM file, counts of n-grams, bytes."""
    if config.missing == "drop":
        usable = usable & _complete_rows(X)
        _require_rows(usable, config, where)
    taken = np.flatnonzero(usable)
    if config.distinct:
        taken = taken[_first_of_equals(X[taken], y[taken])]
    X = X if len(taken) == X.shape[0] else X[taken]
    if config.ngrams is not None:
        X, features = select_ngrams(X, tuple(features), config.ngrams)
    target = _target(y[taken], config, where)
    _require_finite(X, features, where)
    target, drawn = _drawn(target, np.arange(len(taken)), config, seed)
    if len(drawn) < len(taken):
        X, taken = X[drawn], taken[drawn]
    known: dict[str, Any] = {name: of[taken] for name, of in beside.items()}
    if config.class_weight is not None:
        known["class_weight"] = _class_weights(config, target, known.get("weights"), where)
    low, spread = scaling_of(X, config.scale, where)
    known["by_training"] = "" if low is None or config.scale_on != "training" else config.scale
    return Dataset(scaled(X, low, spread), target, features, low, spread, **known)


def _drawn(target: Target, taken: np.ndarray, config: DatasetConfig, seed: int) -> tuple[Target, np.ndarray]:
    """Return the target, and the positions, of the rows that `subsample` draws."""
    if config.subsample is None or config.subsample >= len(target):
        return target, taken
    rows = np.sort(np.random.default_rng(seed).choice(len(target), config.subsample, replace=False))
    return target.take(rows), taken[rows]


class _Source(NamedTuple):
    """A table and the column to predict, or rows that are none; `y` where the target is no column."""

    table: Table | None
    name: str = ""
    target: str = ""
    y: Any = None
    matrix: tuple[Any, Sequence[str]] = (None, ())


@contextmanager
def _opened(config: DatasetConfig, files: Files | None, where: str, tell: Callable[[str], None]) -> Iterator[_Source]:
    """Give what a configuration names."""
    if config.source == "openml":
        yield _Source(*read_openml(config, where, tell))
    elif files is None:
        X, y, names = (
            read_bundled(str(config.name))
            if config.source == "sklearn"
            else read_synthetic(str(config.name), config.params, config.seed, config.drop, where)
        )
        yield _Source(Table.of(pa.table(dict(zip(names, X.T, strict=True)))), str(config.name), y=y)
    elif files.suffix not in FORMATS:
        X, y, numbered = read_libsvm(files, config, where)
        yield _Source(None, y=y, matrix=(X, numbered))
    else:
        with Table(files.locations, where) as table:
            for note in table.notes:
                tell(f"{where}: {note}.")
            yield _Source(table.in_memory(), files.name, config.target)


def _usable(
    y: np.ndarray, beside: Mapping[str, np.ndarray], config: DatasetConfig, where: str, tell: Callable[[str], None]
) -> np.ndarray:
    """Return which rows have a target, and what is known of them beside, and a weight above zero, shape (m,)."""
    taught = _present(y) | (config.missing == "refuse")
    if config.missing == "impute" and not taught.all() and taught.any():
        tell(f"{where}: {(~taught).sum():,} of {len(taught):,} rows have no target, and are left out.")
    counting = [beside["weights"] > 0] if "weights" in beside else []
    return np.asarray(np.logical_and.reduce([taught, *counting, *(of >= 0 for of in beside.values())]))


def _require_rows(usable: np.ndarray, config: DatasetConfig, where: str) -> None:
    """Raise InputError where no row is usable."""
    if not usable.any():
        raise InputError(
            f"{where}: no row is complete, so 'missing: {config.missing}' leaves none; leave columns out with 'drop'."
        )


def _tell_all(sentences: Sequence[str], where: str, tell: Callable[[str], None]) -> None:
    """Tell what columns were left out, or which cells are not what their column holds."""
    for sentence in sentences:
        tell(f"{where}: {sentence}.")


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
    try:
        return Target.of(values, task)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None


def _class_weights(config: DatasetConfig, target: Target, weights: np.ndarray | None, where: str) -> tuple[float, ...]:
    """Return what the rows of each class count in learning."""
    if target.task != "classification":
        raise InputError(f"{where}: 'class_weight' goes with a classification, and this is a regression; leave it out.")
    if isinstance(config.class_weight, dict):
        if unknown := sorted(set(config.class_weight) - set(target.classes)):
            raise InputError(
                f"{where}: 'class_weight' has {listed(unknown)}, and the classes are {listed(target.classes)}; correct "
                "it."
            )
        return tuple(config.class_weight.get(name, 1.0) for name in target.classes)
    counts = np.bincount(target.values, weights, len(target.classes))
    return tuple((counts.sum() / (len(counts) * np.maximum(counts, np.finfo(float).tiny))).tolist())


def _column_values(y: Any, config: DatasetConfig, where: str, tell: Callable[[str], None]) -> np.ndarray:
    """Return a target as numbers, NaN where one is missing, or as texts, None where one is missing."""
    if not isinstance(y, pa.ChunkedArray | pa.Array):
        values = np.asarray(y)
    elif pa.types.is_integer(y.type) or pa.types.is_floating(y.type) or pa.types.is_boolean(y.type):
        values = np.asarray(y.to_numpy(zero_copy_only=False))
    elif pa.types.is_dictionary(y.type) and not pa.types.is_string(y.type.value_type):
        return _column_values(y.dictionary_decode(), config, where, tell)
    else:
        met, column = Met(), column_of(config.target, pa.chunked_array([y]))
        try:
            values = target_of(column, config.task, met)
        except ValueError as error:
            raise InputError(f"{where}: {error}") from None
        _tell_all(met.sentences(), where, tell)
        held = y.cast(pa.string()).unique().to_pylist() if pa.types.is_string(y.type) else []
        if words := sorted(word.strip() for word in held if word and word.strip().lower() in MISSING - {""}):
            tell(
                f"{where}: {listed(words)} in the target {config.target!r} stands for a missing value; give a class of "
                "that name another one."
            )
    present = _present(values)
    if values.dtype.kind == "f" and (infinite := np.isinf(values)).any():
        raise InputError(
            f"{where}: target {config.target!r} is infinite in {infinite.sum()} of {len(values)} rows, at first in row "
            f"{int(infinite.argmax())} (the first is row 0); correct these, or leave them empty."
        )
    if len(values) and not present.any():
        raise InputError(f"{where}: target {config.target!r} has no value in any row; name another column.")
    return values


def _present(values: np.ndarray) -> np.ndarray:
    """Return whether each row of a target is there and finite, shape (m,)."""
    if values.dtype.kind == "f":
        present = np.isfinite(values)
    else:
        present = np.array([value is not None for value in values.flat], dtype=bool).reshape(values.shape)
    return np.asarray(present if present.ndim == 1 else present.all(axis=1))


def _complete_rows(X: Any) -> np.ndarray:
    """Return whether every feature of each row is finite, shape (m,)."""
    if sparse.issparse(X):
        incomplete = np.unique(X.tocoo().row[~np.isfinite(X.tocoo().data)])
        return ~np.isin(np.arange(X.shape[0]), incomplete)
    complete = [np.isfinite(X[run]).all(axis=1) for run in _runs(len(X), X.shape[1])]
    return np.concatenate([np.empty(0, dtype=bool), *complete])


def _runs(length: int, width: int) -> Iterator[slice]:
    """Give the runs, of nearly equal length, of as many rows or columns, of that many numbers each, as a block has."""
    pieces = max(1, -(-length * width * 8 // BLOCK_BYTES))
    for i in range(pieces):
        yield slice(length * i // pieces, length * (i + 1) // pieces)


def _first_of_equals(X: Any, y: np.ndarray) -> np.ndarray:
    """Return the positions, ascending, of the first of the rows that are equal in every feature and in the target."""
    labels = [str(value).encode() for value in y.tolist()]
    if sparse.issparse(X):
        X = sparse.csr_matrix(X, copy=True)
        X.sum_duplicates()
        X.eliminate_zeros()
        rows = ((X.indices[a:b].tobytes(), X.data[a:b].tobytes()) for a, b in itertools.pairwise(X.indptr))
    else:
        rows = (((row + 0.0).tobytes(), b"") for row in X)  # -0 is 0
    seen: dict[bytes, int] = {}
    for position, (label, (one, other)) in enumerate(zip(labels, rows, strict=True)):
        key = hashlib.sha256(b"%d,%d," % (len(one), len(other)) + one + other + label).digest()
        seen.setdefault(key, position)
    return np.fromiter(seen.values(), dtype=np.intp, count=len(seen))


def _require_finite(X: Any, features: Sequence[str], where: str) -> None:
    if sparse.issparse(X):
        bad_entry = ~np.isfinite(X.data)
        bad = np.bincount(X.indices[bad_entry], minlength=X.shape[1]) if bad_entry.any() else np.zeros(X.shape[1], int)
    else:
        bad = sum((~np.isfinite(X[run])).sum(axis=0) for run in _runs(len(X), X.shape[1]))
    _require_no_gaps(np.asarray(bad), features, X.shape[0], where)


def _require_no_gaps(bad: np.ndarray, features: Sequence[str], rows: int, where: str) -> None:
    """Raise InputError if features have entries that are not finite, shape (d,)."""
    columns = np.flatnonzero(bad)
    if len(columns):
        named = listed([f"{features[int(c)]} ({bad[c]})" for c in columns], show=str)
        raise InputError(
            f"{where}: NaN, infinity or missing values in column {named} of {rows} rows; set 'missing: impute' "
            "for what is missing, or 'missing: drop', correct infinities, or leave columns out with 'drop'."
        )
