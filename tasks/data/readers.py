"""Read features, targets and sample columns from tables, NumPy and LIBSVM files."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
from numpy.lib.npyio import NpzFile
from scipy import sparse
from sklearn import datasets as bundled
from sklearn.feature_extraction.text import CountVectorizer

from learnkernels.conf.errors import InputError, cut, did_you_mean, listed, one_line
from learnkernels.conf.files import ARRAYS
from learnkernels.conf.schema import DatasetConfig, NgramsConfig
from learnkernels.kernels.column_encoding.dates import moment_of
from learnkernels.kernels.column_encoding.quantities import POINT
from learnkernels.kernels.column_encoding.reading import (
    ZERO_DECIMALS,
    Column,
    as_texts,
    column_of,
)
from learnkernels.kernels.column_encoding.summary import ColumnSummary

from ..processes.memory import free_memory
from .locations import Location, transferring
from .tables import Table, first_of, is_text, joint_name, locations_of, stripped_texts

MOST_FEATURES = 1 << 24
"""Largest feature index of a LIBSVM file; larger ones are probably errors."""

JOIN = "_"

CONSTANT_NGRAM = "constant"

YEAR_OR_SHORTER = "^[0-9]{1,4}$"


def read_bundled(name: str) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    bunch = getattr(bundled, f"load_{name}")()
    y = bunch.target
    labels = getattr(bunch, "target_names", ())
    if y.ndim == 1 and y.dtype.kind in "iu" and len(labels) == len(np.unique(y)):
        y = np.asarray([str(label) for label in labels])[y]
    return (
        np.asarray(bunch.data, dtype=np.float64),
        y,
        tuple(map(str, bunch.feature_names)),
    )


def sample_columns_of(
    table: Table | pa.Table,
    selected: np.ndarray | None,
    config: DatasetConfig,
    where: str,
) -> dict[str, np.ndarray]:
    """Return groups, times and sample weights of the selected rows of a table.

    ``groups`` and ``times`` are ranks. Missing values are -1, or NaN for weights.
    """
    sample_columns = {}
    for key, name in config.sample_columns.items():
        column = _without_dictionary(_filtered(table.select([name]), selected)[name])
        if is_text(column.type):
            column = stripped_texts(column)
        place = f"{where}: column {name!r} of {key!r}"
        numbers = _PARSERS[key](column, place)
        n_missing = int((~(numbers >= 0)).sum())
        if n_missing and config.missing != "drop":
            raise InputError(
                f"{place} is missing in {n_missing} of {len(numbers)} rows; set 'missing: drop'."
            )
        attribute = "times" if key == "time" else key
        sample_columns[attribute] = numbers
    if config.test:
        held_out = rows_with(table, config.test, "test", where, selected)
        if held_out is None:
            raise InputError(
                f"{where}: every row has the values of 'test', so none is left to learn from; name fewer."
            )
        sample_columns["held_out"] = held_out
    return sample_columns


def arrays_of(path: str, title: str) -> dict[str, np.ndarray]:
    """Return the arrays of a NumPy file by name; ``.npy`` uses the file's name."""
    try:
        with open(path, "rb") as file:
            content = np.load(file, allow_pickle=False)
            if isinstance(content, NpzFile):
                return dict(content)
            return {Path(path).stem: content}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise InputError(
            f"{title} cannot be read ({one_line(str(error))}); write it by numpy.save, savez."
        ) from None


def require_equal_lengths(arrays: Iterable[Any], title: str) -> None:
    """Raise InputError if arrays have different numbers of rows."""
    lengths = list(dict.fromkeys(map(len, arrays)))
    if len(lengths) > 1:
        raise InputError(
            f"{title} has arrays of {' and '.join(map(str, lengths))} rows; write equally many."
        )


def folds_of(path: str, n_rows: int, where: str) -> np.ndarray:
    """Read the fold of each row from a file, shape (n, repeats)."""
    title = f"{where}: 'folds' {path}"
    try:
        repeats = np.column_stack(
            [to_numbers(column) for column in _columns_of_file(path, title)]
        )
    except (LookupError, pa.ArrowInvalid) as error:
        raise InputError(
            f"{title} must be a table or an array of numbers alone ({one_line(str(error))})."
        ) from None
    folds = np.empty(repeats.shape, dtype=np.int64)
    fold_counts = set()
    for column, values in enumerate(repeats.T):
        different, folds[:, column] = np.unique(values, return_inverse=True)
        fold_counts.add(len(different))
    if (
        len(repeats) != n_rows
        or len(fold_counts) != 1
        or min(fold_counts) < 3
        or not np.isfinite(repeats).all()
    ):
        raise InputError(
            f"{title} must have the number of a fold in each row, {n_rows} as the data set, and equally many folds in "
            f"each column, at least 3; got {len(repeats)} rows with {' and '.join(map(str, sorted(fold_counts)))} "
            "folds."
        )
    return folds


def _columns_of_file(path: str, title: str) -> list[pa.Array | pa.ChunkedArray]:
    if not path.lower().endswith(ARRAYS):
        with Table(locations_of(path), title) as table:
            return list(table.in_memory().select(table.schema.names).columns)
    columns = []
    for array in arrays_of(path, title).values():
        columns += [pa.array(column) for column in np.atleast_2d(array.T)]
    require_equal_lengths(columns, title)
    return columns


def _groups(column: pa.Array, place: str) -> np.ndarray:
    """Number the values by first appearance; -1 for missing values."""
    if pa.types.is_nested(column.type):
        raise InputError(f"{place} is {column.type}; name one of text or numbers.")
    return _numbers_of_values(column, lambda values: values.dictionary_encode().indices)


def _times(column: pa.Array, place: str) -> np.ndarray:
    """Return the dense rank of each time; -1 for missing values."""
    if is_text(column.type):
        column = _instants_or_numbers(column, place)
    is_number = is_numeric(column.type) and not pa.types.is_boolean(column.type)
    if not (pa.types.is_temporal(column.type) or is_number):
        raise InputError(f"{place} is {column.type}; name one of numbers, or of dates.")
    return _numbers_of_values(
        column, lambda values: pc.subtract(pc.rank(values, tiebreaker="dense"), 1)
    )


def _instants_or_numbers(column: pa.Array, place: str) -> pa.Array:
    if pc.all(pc.match_substring_regex(column, YEAR_OR_SHORTER)).as_py():
        return column.cast(pa.int64())
    texts = Column("time", "text", as_texts(column.to_pylist()))
    if texts.gaps.all():
        raise InputError(
            f"{place} has no date or time in any row; name another column."
        )
    dates = ColumnSummary.of(texts).as_dates()
    if dates is None:
        wrong = next(
            (text for text in texts.texts() if moment_of(text, "day") is None), None
        )
        if wrong is None:  # all are dates, though some look like numbers
            return pa.array(texts.read_dates("day").instants)
        raise InputError(
            f"{place} has text that is no date or time, such as {cut(one_line(wrong), 40)!r}; write 2026-01-31 or "
            "2026-01-31T12:00."
        )
    order, _ = dates
    if order is None:
        raise InputError(
            f"{place} has dates that may begin with the day or with the month, such as {texts.texts()[0]!r}; write "
            "2026-01-31."
        )
    return pa.array(texts.read_dates(order).instants)


def _weights(column: pa.Array, place: str) -> np.ndarray:
    if is_text(column.type):
        weights = _numbers_in_texts(column, place)
    elif is_numeric(column.type) and not pa.types.is_boolean(column.type):
        weights = to_numbers(column)
    else:
        raise InputError(f"{place} is {column.type}; name one of numbers.")
    wrong = weights[(weights < 0) | np.isinf(weights)]
    if len(wrong):
        raise InputError(
            f"{place} must be finite and not negative, got {wrong[0]:g} among {len(wrong)} such rows; correct "
            "them, or give them weight 0, which leaves them out."
        )
    if not (weights > 0).any():
        raise InputError(
            f"{place} has no weight above zero, so that no row is left; name another column."
        )
    return weights


def _numbers_in_texts(column: pa.Array, place: str) -> np.ndarray:
    """Parse a text column of numbers; NaN for missing values."""
    texts = column_of("", pa.chunked_array([column]))
    numbers = texts.read_numbers(POINT).values
    wrong = np.flatnonzero(np.isnan(numbers) & ~texts.gaps)
    if len(wrong):
        raise InputError(
            f"{place} must hold numbers, got {texts.values[wrong[0]]!r:.40} in row {wrong[0]} (from 0); correct it, or "
            "leave it empty."
        )
    return np.asarray(numbers)


_PARSERS: dict[str, Callable[[pa.Array, str], np.ndarray]] = {
    "groups": _groups,
    "time": _times,
    "weights": _weights,
}


def _without_dictionary(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _numbers_of_values(
    column: pa.Array, number: Callable[[pa.Array], pa.Array]
) -> np.ndarray:
    """Apply `number` to values that are present; -1 for missing values."""
    is_there = ~column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    numbers = np.full(len(column), -1, dtype=np.int64)
    numbers[is_there] = number(column.filter(pa.array(is_there))).to_numpy(
        zero_copy_only=False
    )
    return numbers


def matrix_of(
    table: Table | pa.Table,
    columns: Sequence[str],
    selected: np.ndarray | None,
    config: DatasetConfig,
    where: str,
) -> tuple[Any, Sequence[str]]:
    """Return features and their names: numbers, bytes or n-gram counts of selected rows."""
    rows = _filtered(table.select(columns), selected)
    if config.ngrams is not None:
        return count_ngrams(rows, config.ngrams, where)
    parts: list[np.ndarray] = []
    features: list[str] = []
    for name in columns:
        if name == config.bytes:
            parts.append(_bytes(rows[name], name, where))
            features += [f"{name}_{position}" for position in range(parts[-1].shape[1])]
        elif is_numeric(rows[name].type):
            parts.append(to_numbers(rows[name])[:, None])
            features.append(name)
        else:
            raise _not_numeric(rows[name], name, config, where)
    refuse_repeated(
        features,
        f"{where}: column {{}} has the name of a feature that {config.bytes!r} becomes; rename it, or leave it out "
        "with 'drop'.",
    )
    return np.hstack(parts, dtype=np.float64), tuple(features)


def _not_numeric(
    column: pa.ChunkedArray, name: str, config: DatasetConfig, where: str
) -> InputError:
    example = ""
    for value in column.drop_null().slice(0, 1).to_pylist():
        example = f", such as {cut(one_line(str(value)), 40)!r}"
    remedy = "encode it as numbers"
    if is_binary(column.type):
        remedy = f"take each byte as a feature with 'bytes: {name}',"
    return InputError(
        f"{where}: column {name!r} is not numeric ({column.type}{example}); {remedy} or leave it out with "
        f"'drop: [{', '.join([*config.drop, name])}]'."
    )


def is_read(config: DatasetConfig, name: str) -> bool:
    """Return whether the configuration uses a column."""
    others_read = {
        config.target,
        config.bytes,
        *config.where,
        *config.test,
        *config.sample_columns.values(),
    }
    if config.ngrams is not None:
        others_read.update(config.ngrams.columns)
    if name in others_read:
        return True
    if name in config.drop:
        return False
    return not config.features or name in config.features


def features_among(
    names: Sequence[str], config: DatasetConfig, target: str, title: str, where: str
) -> list[str]:
    """Return feature columns, without target and sample columns."""
    refuse_repeated(
        names, f"{where}: {title} has column {{}} more than once; rename one."
    )
    for key, columns in _named_columns(config, target).items():
        for column in columns:
            if column not in names:
                meant = did_you_mean(column, names)
                raise InputError(
                    f"{where}: {key} {column!r} is not a column of {title}; {meant}it has {first_of(names)}."
                )
    if config.ngrams is not None:
        return list(config.ngrams.columns)
    others = {
        target,
        *config.drop,
        *config.where,
        *config.test,
        *config.sample_columns.values(),
    }
    return [column for column in config.features or names if column not in others]


def _named_columns(config: DatasetConfig, target: str) -> dict[str, Sequence[str]]:
    named: dict[str, Sequence[str]] = {
        "target": [target],
        "drop": config.drop,
        "features": config.features,
        "columns": list(config.columns or ()),
        "where": list(config.where),
        "test": list(config.test),
    }
    for key, column in config.sample_columns.items():
        named[key] = [column]
    if config.ngrams is not None:
        named["ngrams"] = config.ngrams.columns
    if config.bytes is not None:
        named["bytes"] = [config.bytes]
    return named


def target_column(
    table: Table | pa.Table, target: str, selected: np.ndarray | None, where: str
) -> pa.Array:
    y = _filtered(table.select([target]), selected)[target].combine_chunks()
    kind = y.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if (
        pa.types.is_nested(kind)
        or is_binary(kind)
        or isinstance(kind, pa.BaseExtensionType)
    ):
        remedy = "name a column of text or numbers"
        if pa.types.is_nested(kind):
            remedy += "; for several labels per row fit KernelLearningClassifier on a column of 0 and 1 per label"
        raise InputError(f"{where}: target {target!r} is {kind}; {remedy}.")
    return y


def require_room(rows: int, columns: int, title: str, where: str) -> None:
    """Raise InputError if a matrix exceeds free memory."""
    needed = 8 * rows * (columns + 1)
    free = free_memory()
    if not 0 <= needed <= free:
        raise InputError(
            f"{where}: {title} states {rows:,} rows of {columns:,} columns, {needed / 2**30:,.0f} GiB as numbers, and "
            f"{free / 2**30:,.0f} GiB are free on this machine; take rows or columns out of the file."
        )


def refuse_repeated(names: Sequence[str], sentence: str) -> None:
    """Raise InputError if names repeat; ``{}`` in the message lists them."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(sentence.replace("{}", listed(repeated)))


def _filtered(rows: Any, selected: np.ndarray | None) -> Any:
    if selected is None:
        return rows
    return rows.filter(pa.array(selected))


def is_number(kind: pa.DataType) -> bool:
    """Return whether a pyarrow type is integer, floating or Boolean."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
    )


def is_numeric(kind: pa.DataType) -> bool:
    """Return whether a pyarrow type is a number, a Boolean or a decimal."""
    return is_number(kind) or bool(pa.types.is_decimal(kind))


def is_binary(kind: pa.DataType) -> bool:
    checks = (
        pa.types.is_fixed_size_binary,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
    )
    return any(check(kind) for check in checks)


def to_numbers(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Return a pyarrow column as a float64 array; missing values become NaN."""
    return np.asarray(
        column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False),
        dtype=np.float64,
    )


def rows_with(
    table: Table | pa.Table,
    selection: Mapping[str, Sequence[str]],
    key: str,
    where: str,
    among: np.ndarray | None = None,
) -> np.ndarray | None:
    """Return a mask of the rows with the selected values; None if all have them.

    `among` masks the rows to consider.
    """
    if not selection:
        return None
    rows = _filtered(table.select(list(selection)), among)
    is_selected = np.ones(rows.num_rows, dtype=bool)
    for name, values in selection.items():
        is_selected &= _has_value(
            rows[name], values, f"column {name!r} of {key!r}", where
        )
    if is_selected.all():
        return None
    if not is_selected.any():
        raise InputError(
            f"{where}: no row has the values of {key!r} in all its columns; take one of them out."
        )
    return is_selected


def _has_value(
    column: pa.ChunkedArray, values: Sequence[str], title: str, where: str
) -> np.ndarray:
    if pa.types.is_nested(column.type):
        raise InputError(
            f"{where}: {title} is {column.type}; name one of text or numbers."
        )
    column = column.combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    texts_of_levels = [_text(value) for value in column.dictionary.to_pylist()]
    names_of_levels = [_without_zero_decimals(text) for text in texts_of_levels]
    all_names = {*texts_of_levels, *names_of_levels}
    unknown = [value for value in values if value not in all_names]
    if unknown:
        texts = sorted({value for value in texts_of_levels if value is not None})
        raise InputError(
            f"{where}: no row has {listed(unknown)} in {title}; it holds {listed(texts)}."
        )
    is_wanted = [
        text in values or name in values
        for text, name in zip(texts_of_levels, names_of_levels, strict=True)
    ]
    is_wanted.append(False)  # for missing values
    positions = column.indices.cast(pa.int64()).fill_null(len(texts_of_levels))
    return np.asarray(np.array(is_wanted)[np.asarray(positions)])


def _text(value: Any) -> str | None:
    """Return a value as text; integers without a decimal point."""
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _without_zero_decimals(text: str | None) -> str | None:
    """Return "1" for "1.0"."""
    match = ZERO_DECIMALS.fullmatch(text or "")
    if match is None:
        return text
    return match[1]


def _bytes(column: pa.ChunkedArray, name: str, where: str) -> np.ndarray:
    """Return equally long binary values as bytes, shape (m, length)."""
    kind = column.type
    if not is_binary(kind):
        raise InputError(
            f"{where}: column {name!r} of 'bytes' is not binary ({kind}); name a binary column."
        )
    if column.null_count:
        raise InputError(
            f"{where}: column {name!r} of 'bytes' is missing in {column.null_count} of {len(column)} rows; leave them "
            "out of the file."
        )
    values = column.to_pylist()
    lengths = sorted({len(value) for value in values})
    if len(lengths) > 1 or not lengths[0]:
        raise InputError(
            f"{where}: column {name!r} of 'bytes' holds values of {lengths[0]} to {lengths[-1]} bytes; all must have "
            "one length of at least one."
        )
    return np.frombuffer(b"".join(values), dtype=np.uint8).reshape(
        len(values), lengths[0]
    )


# Texts


def count_ngrams(
    table: pa.Table, config: NgramsConfig, where: str
) -> tuple[sparse.csr_matrix, tuple[str, ...]]:
    """Count the n-grams of each text; n-grams are in alphabetical order.

    InputError if a column has the wrong type, or no n-gram of these sizes.
    """
    columns = [_without_dictionary(table[name]) for name in config.column]
    has_lists = False
    for name, column in zip(config.column, columns, strict=True):
        if _is_list(column.type):
            has_lists = True
        elif not (is_text(column.type) or pa.types.is_null(column.type)):
            raise InputError(
                f"{where}: column {name!r} of 'ngrams' is neither text nor a list of tokens ({column.type}); name "
                "another."
            )
        if _is_list(column.type) and len(columns) > 1:
            raise InputError(
                f"{where}: column {name!r} of 'ngrams' holds lists of tokens and must be the only one."
            )
    if has_lists:
        counts, ngrams = _count_tokens(columns[0], table, config, where)
    elif config.counts is not None:
        raise InputError(
            f"{where}: 'counts' of 'ngrams' goes with a column of lists of tokens, and {config.column[0]!r} is text; "
            "leave it out."
        )
    else:
        counts, ngrams = _count_texts(columns, config)
    if not ngrams:
        low, high = config.size
        words = f"{low} words" if low == high else f"{low} to {high} words"
        raise InputError(
            f"{where}: column {', '.join(config.column)} holds no n-gram of {words}; change 'size'."
        )
    return counts, ngrams


def select_ngrams(
    counts: sparse.csr_matrix, ngrams: tuple[str, ...], config: NgramsConfig
) -> tuple[sparse.csr_matrix, tuple[str, ...]]:
    """Keep the most frequent n-grams; add a constant feature if requested.

    Ties are in alphabetical order, so a smaller `most_frequent` selects a prefix.
    """
    totals = np.asarray(counts.sum(axis=0)).ravel()
    # Stable, for ties
    order = np.argsort(-totals, kind="stable")
    order = order[totals[order] > 0][: config.most_frequent]
    selected = sparse.csr_matrix(counts[:, order])
    names = [ngrams[position] for position in order]
    if config.constant:
        constant = CONSTANT_NGRAM
        while constant in names:
            constant += JOIN
        names.append(constant)
        selected = sparse.csr_matrix(
            sparse.hstack([selected, np.ones((selected.shape[0], 1))])
        )
    selected.sort_indices()
    return selected, tuple(names)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _count_tokens(
    tokens: pa.Array, table: pa.Table, config: NgramsConfig, where: str
) -> tuple[sparse.csr_matrix, tuple[str, ...]]:
    name = config.column[0]
    kind = tokens.type.value_type
    if not (is_text(kind) or pa.types.is_null(kind)):
        raise InputError(
            f"{where}: column {name!r} of 'ngrams' holds lists of {kind}, not of text."
        )
    lengths = _lengths(tokens)
    counts = np.ones(int(lengths.sum()))
    if config.counts is not None:
        counts = _counts_of_tokens(
            _without_dictionary(table[config.counts]),
            lengths,
            name,
            config.counts,
            where,
        )
    encoded = tokens.flatten().dictionary_encode()
    vocabulary = encoded.dictionary
    low, high = config.size
    sizes = np.asarray(
        pc.count_substring_regex(vocabulary, f"[^{JOIN}]+").to_numpy(
            zero_copy_only=False
        )
    )
    used = np.flatnonzero((sizes >= low) & (sizes <= high))
    used = used[np.asarray(pc.sort_indices(vocabulary.take(pa.array(used))))]
    feature_of = np.full(
        len(vocabulary) + 1, -1
    )  # the last entry is for missing tokens
    feature_of[used] = np.arange(len(used))
    features = feature_of[np.asarray(pc.fill_null(encoded.indices, len(vocabulary)))]
    rows = np.repeat(np.arange(len(tokens)), lengths)
    is_counted = (features >= 0) & (counts > 0)
    entries = (counts[is_counted], (rows[is_counted], features[is_counted]))
    matrix = sparse.csr_matrix(
        sparse.coo_matrix(entries, shape=(len(tokens), len(used)))
    )
    return matrix, tuple(vocabulary.take(pa.array(used)).to_pylist())


def _counts_of_tokens(
    column: pa.Array, lengths: np.ndarray, tokens: str, name: str, where: str
) -> np.ndarray:
    is_numeric_list = _is_list(column.type) and (
        pa.types.is_integer(column.type.value_type)
        or pa.types.is_floating(column.type.value_type)
    )
    if not is_numeric_list:
        raise InputError(
            f"{where}: 'counts' of 'ngrams', column {name!r}, must hold lists of numbers, got {column.type}."
        )
    n_counts = _lengths(column)
    different = np.flatnonzero(n_counts != lengths)
    if len(different):
        row = different[0]
        raise InputError(
            f"{where}: columns {tokens!r} and {name!r} must be lists of one length in every row; row {row} "
            f"of those that are read has {lengths[row]} and {n_counts[row]}."
        )
    counts = to_numbers(column.flatten())
    if not (counts >= 0).all():  # missing counts are NaN
        raise InputError(
            f"{where}: column {name!r} has a count that is missing or negative; correct it."
        )
    return counts


def _lengths(lists: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0))


def _count_texts(
    columns: list[pa.Array], config: NgramsConfig
) -> tuple[sparse.csr_matrix, tuple[str, ...]]:
    ngrams_of = CountVectorizer(ngram_range=config.size).build_analyzer()

    def analyze(texts: tuple[Any, ...]) -> list[str]:
        return [
            ngram for text in texts if text is not None for ngram in ngrams_of(text)
        ]

    vectorizer = CountVectorizer(analyzer=analyze, dtype=np.float64)
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
    try:
        counts = sparse.csr_matrix(vectorizer.fit_transform(rows))
    except ValueError as error:
        if "empty vocabulary" not in str(error):
            raise
        return sparse.csr_matrix((len(rows), 0)), ()
    counts.sort_indices()
    return counts, tuple(vectorizer.get_feature_names_out())


# LIBSVM


def read_libsvm(
    files: Sequence[Location], config: DatasetConfig, where: str
) -> tuple[Any, np.ndarray, Sequence[str]]:
    for key in (
        "drop",
        "features",
        "columns",
        "where",
        "test",
        *config.sample_columns,
        "ngrams",
        "bytes",
    ):
        if getattr(config, key):
            raise InputError(
                f"{where}: {key!r} does not go with {joint_name(files)}, whose columns have no names."
            )
    parts = []
    targets = []
    for location in files:
        with (
            transferring(location, called=f"{where}: {location.name}"),
            io.BufferedReader(location.open_text()) as lines,
        ):
            X, y = bundled.load_svmlight_file(lines, dtype=np.float64, zero_based=True)
        parts.append(X)
        targets.append(y)
    _number_from_zero(parts)
    for location, part in zip(files, parts, strict=True):
        if part.shape[1] > MOST_FEATURES:
            raise InputError(
                f"{where}: {location.name} has a feature of index {part.shape[1]:,}, where {MOST_FEATURES:,} is the "
                "largest; correct it, or hash features into fewer."
            )
    n_features = max(part.shape[1] for part in parts)
    for part in parts:
        part.resize(part.shape[0], n_features)
    X = parts[0] if len(parts) == 1 else sparse.vstack(parts, "csr")
    return X, np.concatenate(targets), NumberedNames(n_features)


def _number_from_zero(parts: Sequence[Any]) -> None:
    """Subtract one from all feature numbers, in place, unless one is zero."""
    most_features = max(part.shape[1] for part in parts)
    lowest = min(part.indices.min(initial=most_features - 1) for part in parts)
    if lowest == 0:
        return
    for part in parts:
        part.indices -= 1
        part.resize(part.shape[0], max(1, part.shape[1] - 1))


@dataclass(frozen=True)
class NumberedNames(Sequence[str]):
    """Sequence of feature names f0, f1, ..., generated on access."""

    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, position: Any) -> Any:
        numbers = range(self.size)[position]
        if isinstance(numbers, range):
            return tuple(f"f{number}" for number in numbers)
        return f"f{numbers}"


def names_to_data(names: Sequence[str]) -> Any:
    if isinstance(names, NumberedNames):
        return {"numbered": len(names)}
    return list(names)


def names_from_data(data: Any) -> Sequence[str]:
    if isinstance(data, dict):
        return NumberedNames(data["numbered"])
    return tuple(data)
