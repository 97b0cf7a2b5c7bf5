"""Readers of data sources, one function a format; each gives rows, the target and the names of the features."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import psutil
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
from learnkernels.kernels.column_encoding.reading import Column, as_texts, column_of
from learnkernels.kernels.column_encoding.summary import ColumnSummary

from .locations import Location, transferring
from .tables import Table, held_texts, joint_name, locations_of

MOST_FEATURES = 1 << 24
"""Features of a LIBSVM text: arrays of one number per feature stay small, and an index that was mistyped shows."""

JOIN = "_"
"""What joins the words of a token."""

CONSTANT_NGRAM = "constant"
"""Name of the feature of n-grams that is one in every row."""


def read_bundled(name: str) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Return rows, target and names of the features of a data set that comes with scikit-learn."""
    loader = getattr(bundled, f"load_{name}")
    raw = loader()
    labels = getattr(raw, "target_names", None)
    y = raw.target
    if labels is not None and y.ndim == 1 and y.dtype.kind in "iu" and len(labels) == len(np.unique(y)):
        y = np.asarray([str(label) for label in labels])[y]
    return np.asarray(raw.data, dtype=np.float64), y, tuple(str(feature) for feature in raw.feature_names)


def sample_columns_of(
    table: Table | pa.Table, kept: np.ndarray | None, config: DatasetConfig, where: str
) -> dict[str, np.ndarray]:
    """Return the sample columns of a table: groups, time, weights and held-out rows.

    Returns
    -------
    sample_columns : dict of ndarray of shape (n,)
        ``groups``, the number of each row's group, ``times``, that of its time, ascending, ``weights``, and
        ``held_out``, whether a row tests: those that the configuration needs. -1, or NaN for a weight, where the
        column is missing.

    Raises
    ------
    InputError
        A column has a type that does not serve, or lacks values that are not to be dropped; or no row, or every row,
        has the values of 'test'.
    """
    sample_columns = {}
    for key, name in config.sample_columns.items():
        column = _decoded(_only(table.select([name]), kept)[name])
        if _is_text(column.type):
            column = held_texts(column)
        found = f"{where}: column {name!r} of {key!r}"
        numbers = _PARSERS[key](column, found)
        lacking = int((~(numbers >= 0)).sum())
        if lacking and config.missing != "drop":
            raise InputError(f"{found} is missing in {lacking} of {len(numbers)} rows; set 'missing: drop'.")
        sample_columns["times" if key == "time" else key] = numbers
    if config.test:
        held_out = rows_with(table, config.test, "test", where, kept)
        if held_out is None:
            raise InputError(f"{where}: every row has the values of 'test', so none is left to learn from; name fewer.")
        sample_columns["held_out"] = held_out
    return sample_columns


def arrays_of(path: str, found: str) -> dict[str, np.ndarray]:
    """Return the arrays of a NumPy file by name; of an ``.npy`` file by that of the file. `found` begins a sentence."""
    try:
        with open(path, "rb") as file:
            read = np.load(file, allow_pickle=False)
            return {name: read[name] for name in read} if isinstance(read, NpzFile) else {Path(path).stem: read}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise InputError(f"{found} cannot be read ({one_line(str(error))}); write it by numpy.save, savez.") from None


def folds_of(path: str, n_rows: int, where: str) -> np.ndarray:
    """Return the fold of each row of a source in each repeat from a file, numbered from 0, shape (n, repeats).

    Raises
    ------
    InputError
        The file cannot be read, has other rows, lacks values, or its columns hold different numbers of folds.
    """
    found = f"{where}: 'folds' {path}"
    try:
        if path.lower().endswith(ARRAYS):
            columns = [pa.array(one) for of in arrays_of(path, found).values() for one in np.atleast_2d(of.T)]
        else:
            with Table(locations_of(path), found) as table:
                columns = table.in_memory().select(table.schema.names).columns
        given = np.column_stack([to_numbers(column) for column in columns])
    except (LookupError, pa.ArrowInvalid) as error:
        raise InputError(f"{found} must be a table or an array of numbers alone ({one_line(str(error))}).") from None
    numbered = [np.unique(column, return_inverse=True) for column in given.T]
    counts = sorted({len(numbers) for numbers, _ in numbered})
    if len(given) != n_rows or len(counts) != 1 or counts[0] < 3 or not np.isfinite(given).all():
        raise InputError(
            f"{found} must have the number of a fold in each row, {n_rows} as the data set, and equally many folds in "
            f"each column, at least 3; got {len(given)} rows with {' and '.join(map(str, counts))} folds."
        )
    return np.stack([folds for _, folds in numbered], axis=1)


def _groups(column: pa.Array, found: str) -> np.ndarray:
    """Return the number of each value in the order in which they appear, -1 where it is missing."""
    if pa.types.is_nested(column.type):
        raise InputError(f"{found} is {column.type}; name one of text or numbers.")
    return _numbered(column, lambda held: held.dictionary_encode().indices)


def _times(column: pa.Array, found: str) -> np.ndarray:
    """Return the place of each time among the different ones, -1 where it is missing."""
    if _is_text(column.type):
        texts = Column("time", "text", as_texts(column.to_pylist()))
        known = ColumnSummary.of(texts).as_dates()
        if known is None:
            wrong = next(text for text in texts.texts() if moment_of(text, "day") is None)
            raise InputError(
                f"{found} has text that is no date or time, such as {cut(one_line(wrong), 40)!r}; write 2026-01-31 or "
                "2026-01-31T12:00."
            )
        if known[0] is None:
            raise InputError(
                f"{found} has dates that may begin with the day or with the month, such as {texts.texts()[0]!r}; write "
                "2026-01-31."
            )
        column = pa.array(texts.read_dates(known[0]).instants)
    if not (pa.types.is_temporal(column.type) or is_numeric(column.type)) or pa.types.is_boolean(column.type):
        raise InputError(f"{found} is {column.type}; name one of numbers, or of dates.")
    return _numbered(column, lambda held: pc.subtract(pc.rank(held, tiebreaker="dense"), 1))


def _weights(column: pa.Array, found: str) -> np.ndarray:
    """Return each weight, NaN where it is missing."""
    if _is_text(column.type):
        read = column_of("", pa.chunked_array([column]))
        weights = read.read_numbers(POINT).values
        if (none := np.isnan(weights) & ~read.gaps).any():
            row = int(none.argmax())
            raise InputError(
                f"{found} must hold numbers, got {read.values[row]!r:.40} in row {row} (from 0); correct it, or leave "
                "it empty."
            )
    elif is_numeric(column.type) and not pa.types.is_boolean(column.type):
        weights = to_numbers(column)
    else:
        raise InputError(f"{found} is {column.type}; name one of numbers.")
    wrong = np.flatnonzero((weights < 0) | np.isinf(weights))
    if len(wrong):
        raise InputError(
            f"{found} must be finite and not negative, got {weights[wrong[0]]:g} among {len(wrong)} such rows; correct "
            "them, or give them weight 0, which leaves them out."
        )
    if not (weights > 0).any():
        raise InputError(f"{found} has no weight above zero, so that no row is left; name another column.")
    return weights


_PARSERS: dict[str, Callable[[pa.Array, str], np.ndarray]] = {"groups": _groups, "time": _times, "weights": _weights}


def _decoded(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece, with values in place of a dictionary."""
    array = column.combine_chunks()
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _numbered(column: pa.Array, number: Callable[[pa.Array], pa.Array]) -> np.ndarray:
    """Return the numbers of values that are there, and -1 for those that are not."""
    there = ~column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    numbers = np.full(len(column), -1, dtype=np.int64)
    numbers[there] = number(column.filter(pa.array(there))).to_numpy(zero_copy_only=False)
    return numbers


def matrix_of(
    table: Table | pa.Table, columns: Sequence[str], kept: np.ndarray | None, config: DatasetConfig, where: str
) -> tuple[Any, Sequence[str]]:
    """Return counts of n-grams, or the bytes of a column and the numbers next to them, of the rows that are kept.

    Returns
    -------
    X : CSR matrix or ndarray of shape (n, d)
    features : sequence of str
    """
    read = _only(table.select(columns), kept)
    if config.ngrams is not None:
        return count_ngrams(read, config.ngrams, where)
    parts, names = list[np.ndarray](), list[str]()
    for name in columns:
        kind = read[name].type
        if name == config.bytes:
            parts.append(_bytes(read[name], name, where))
            names += [f"{name}_{j}" for j in range(parts[-1].shape[1])]
        elif is_numeric(kind):
            parts.append(to_numbers(read[name])[:, None])
            names.append(name)
        else:
            held = read[name].drop_null().slice(0, 1).to_pylist()
            example = f", such as {cut(one_line(str(held[0])), 40)!r}" if held else ""
            way = f"take each byte as a feature with 'bytes: {name}'," if is_binary(kind) else "encode it as numbers"
            raise InputError(
                f"{where}: column {name!r} is not numeric ({kind}{example}); {way} or leave it out with "
                f"'drop: [{', '.join([*config.drop, name])}]'."
            )
    refuse_repeated(
        names,
        f"{where}: column {{}} has the name of a feature that {config.bytes!r} becomes; rename it, or leave it out "
        "with 'drop'.",
    )
    return np.hstack(parts, dtype=np.float64), tuple(names)


def features_among(table: Table | pa.Table, config: DatasetConfig, target: str, name: str, where: str) -> list[str]:
    """Return the columns of a table that are features.

    Raises
    ------
    InputError
        A column that is named is missing or there more than once.
    """
    names = table.schema.names
    refuse_repeated(names, f"{where}: {name} has column {{}} more than once; rename one.")
    named = {
        "target": [target],
        "drop": config.drop,
        "features": config.features,
        "columns": config.columns or (),
        "where": config.where,
        "test": config.test,
        **{key: [column] for key, column in config.sample_columns.items()},
        "ngrams": config.ngrams.columns if config.ngrams else (),
        "bytes": [config.bytes] if config.bytes else (),
    }
    for key, columns in named.items():
        for column in columns:
            if column not in names:
                shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
                raise InputError(
                    f"{where}: {key} {column!r} is not a column of {name}; {did_you_mean(column, names)}it has {shown}."
                )
    others = {target, *config.drop, *config.where, *config.test, *config.sample_columns.values()}
    features = [column for column in config.features or names if column not in others]
    return features if config.ngrams is None else list(config.ngrams.columns)


def target_column(table: Table | pa.Table, target: str, kept: np.ndarray | None, where: str) -> pa.Array:
    """Return the target of the rows that are kept.

    Raises
    ------
    InputError
        It is of a type that no target can be.
    """
    y = _only(table.select([target]), kept)[target].combine_chunks()
    kind = y.type.value_type if pa.types.is_dictionary(y.type) else y.type
    if pa.types.is_nested(kind) or is_binary(kind) or isinstance(kind, pa.BaseExtensionType):
        raise InputError(f"{where}: target {target!r} is {kind}; name a column of text or numbers.")
    return y


def require_room(rows: int, columns: int, name: str, where: str) -> None:
    """Refuse what a file states to hold, before that memory is allocated, where there is not so much."""
    needed, free = 8 * rows * (columns + 1), psutil.virtual_memory().available
    if not 0 <= needed <= free:
        raise InputError(
            f"{where}: {name} states {rows:,} rows of {columns:,} columns, {needed / 2**30:,.0f} GiB as numbers, and "
            f"{free / 2**30:,.0f} GiB are free on this machine; take rows or columns out of the file."
        )


def refuse_repeated(names: Sequence[str], sentence: str) -> None:
    """Raise InputError, with those that repeat in the braces of a sentence, unless all names differ."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(sentence.replace("{}", listed(repeated)))


def _only(part: Any, kept: np.ndarray | None) -> Any:
    """Return the rows of a table or batch that are kept; all of them where that is None."""
    return part if kept is None else part.filter(pa.array(kept))


def is_number(kind: pa.DataType) -> bool:
    """Return whether a column of this type can be a feature."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def is_numeric(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds numbers, decimals among them."""
    return is_number(kind) or bool(pa.types.is_decimal(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds bytes."""
    held = (pa.types.is_fixed_size_binary, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return any(one(kind) for one in held)


def to_numbers(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Return a column of numbers as float64, shape (m,); what is missing becomes NaN."""
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def rows_with(
    table: Table | pa.Table,
    wanted_of: Mapping[str, Sequence[str]],
    key: str,
    where: str,
    among: np.ndarray | None = None,
) -> np.ndarray | None:
    """Return which rows, of all or `among` some, have one of the requested values in each column; None where all have.

    Values are compared as text; `key` of the configuration needs them.

    Raises
    ------
    InputError
        No row has, or a value is that of no row.
    """
    if not wanted_of:
        return None
    held = _only(table.select(list(wanted_of)), among)
    kept = np.ones(held.num_rows, dtype=bool)
    for name, values in wanted_of.items():
        kind = held[name].type
        if pa.types.is_nested(kind):
            raise InputError(f"{where}: column {name!r} of {key!r} is {kind}; name one of text or numbers.")
        column = held[name].combine_chunks()
        column = column if pa.types.is_dictionary(kind) else column.dictionary_encode()
        known = [_text(value) for value in column.dictionary.to_pylist()]
        unknown = [value for value in values if value not in known]
        if unknown:
            raise InputError(
                f"{where}: no row has {listed(unknown)} in column {name!r} of {key!r}; it holds "
                f"{listed(sorted({value for value in known if value is not None}))}."
            )
        wanted = np.array([*(value in values for value in known), False])  # the last one is that of missing values
        kept &= wanted[np.asarray(column.indices.cast(pa.int64()).fill_null(len(known)))]
    if not kept.any() and held.num_rows:
        raise InputError(f"{where}: no row has the values of {key!r} in all its columns; take one of them out.")
    return None if kept.all() else kept


def _text(value: Any) -> str | None:
    """Return a value as text; whole numbers without a point, as the target's are."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return None if value is None else str(value).strip()


def _bytes(column: pa.ChunkedArray, name: str, where: str) -> np.ndarray:
    """Return binary values of one length as a matrix of bytes, shape (m, length)."""
    kind = column.type
    if not is_binary(kind):
        raise InputError(f"{where}: column {name!r} of 'bytes' is not binary ({kind}); name a binary column.")
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
    return np.frombuffer(b"".join(values), dtype=np.uint8).reshape(len(values), lengths[0])


# Texts ---------------------------------------------------------------------------------------------------------------


def count_ngrams(table: pa.Table, config: NgramsConfig, where: str) -> tuple[sparse.csr_matrix, tuple[str, ...]]:
    """Return how often each n-gram occurs in each row, and the n-grams.

    Parameters
    ----------
    table : pyarrow.Table
        Holds the columns of `config`.
    config : NgramsConfig
        Which columns, and what to count.
    where : str
        The data set, for sentences.

    Returns
    -------
    counts : CSR matrix of float64 of shape (m, d)
        All n-grams of the requested sizes, in the order of their text.
    ngrams : tuple of str

    Raises
    ------
    InputError
        A column is neither text nor a list of tokens, `counts` does not fit it, or there is no such n-gram.
    """
    columns = [_decoded(table[name]) for name in config.column]
    are_lists = [_is_list(column.type) for column in columns]
    for name, column, is_list in zip(config.column, columns, are_lists, strict=True):
        if not is_list and not (_is_text(column.type) or pa.types.is_null(column.type)):
            raise InputError(
                f"{where}: column {name!r} of 'ngrams' is neither text nor a list of tokens ({column.type}); name "
                "another."
            )
        if is_list and len(columns) > 1:
            raise InputError(f"{where}: column {name!r} of 'ngrams' holds lists of tokens and must be the only one.")
    if any(are_lists):
        found = _count_tokens(columns[0], table, config, where)
    elif config.counts is not None:
        raise InputError(
            f"{where}: 'counts' of 'ngrams' goes with a column of lists of tokens, and {config.column[0]!r} is text; "
            "leave it out."
        )
    else:
        found = _count_texts(columns, config)
    if found is None or not found[1]:
        words = f"{config.size[0]} words" if config.size[0] == config.size[1] else "{} to {} words".format(*config.size)
        raise InputError(f"{where}: column {', '.join(config.column)} holds no n-gram of {words}; change 'size'.")
    return found


def select_ngrams(
    counts: sparse.csr_matrix, ngrams: tuple[str, ...], config: NgramsConfig
) -> tuple[sparse.csr_matrix, tuple[str, ...]]:
    """Return the most frequent n-grams, the most frequent first, and the constant feature where it is requested.

    Frequent is what has a large sum over the rows given; of equal sums the first n-gram in the order of the text goes
    first, so a smaller `most_frequent` takes the first of the columns of a larger one.
    """
    totals = np.asarray(counts.sum(axis=0)).ravel()
    order = np.argsort(-totals, kind="stable")  # the n-grams come in the order of their text
    order = order[totals[order] > 0][: config.most_frequent]
    chosen, names = sparse.csr_matrix(counts[:, order]), tuple(ngrams[j] for j in order)
    if config.constant:
        name = CONSTANT_NGRAM
        while name in names:
            name += JOIN
        ones = sparse.csr_matrix(np.ones((chosen.shape[0], 1)))
        chosen, names = sparse.csr_matrix(sparse.hstack([chosen, ones])), (*names, name)
    chosen.sort_indices()
    return chosen, names


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _count_tokens(
    tokens: pa.Array, table: pa.Table, config: NgramsConfig, where: str
) -> tuple[sparse.csr_matrix, tuple[str, ...]] | None:
    """Count tokens whose words, joined by an underscore, are as many as requested; nothing where there are none."""
    name, kind = config.column[0], tokens.type.value_type
    if not (_is_text(kind) or pa.types.is_null(kind)):
        raise InputError(f"{where}: column {name!r} of 'ngrams' holds lists of {kind}, not of text.")
    lengths = _lengths(tokens)
    counts = np.ones(int(lengths.sum()))
    if config.counts is not None:
        column = _decoded(table[config.counts])
        kind = column.type.value_type if _is_list(column.type) else None
        if kind is None or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise InputError(
                f"{where}: 'counts' of 'ngrams', column {config.counts!r}, must hold lists of numbers, got "
                f"{column.type}."
            )
        different = np.flatnonzero(_lengths(column) != lengths)
        if len(different):
            row = different[0]
            raise InputError(
                f"{where}: columns {name!r} and {config.counts!r} must be lists of one length in every row; row {row} "
                f"of those that are read has {lengths[row]} and {_lengths(column)[row]}."
            )
        counts = np.asarray(column.flatten().cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
        if not (counts >= 0).all():  # a missing count is NaN here
            raise InputError(f"{where}: column {config.counts!r} has a count that is missing or negative; correct it.")
    flat = tokens.flatten().dictionary_encode()
    words = flat.dictionary
    sizes = np.asarray(pc.count_substring_regex(words, f"[^{JOIN}]+").to_numpy(zero_copy_only=False))
    used = np.flatnonzero((sizes >= config.size[0]) & (sizes <= config.size[1]))
    if not len(used):
        return None
    used = used[np.asarray(pc.sort_indices(words.take(pa.array(used))))]
    place = np.full(len(words) + 1, -1)  # the last one is that of missing tokens
    place[used] = np.arange(len(used))
    columns = place[np.asarray(pc.fill_null(flat.indices, len(words)))]
    rows = np.repeat(np.arange(len(tokens)), lengths)
    kept = (columns >= 0) & (counts > 0)
    found = sparse.coo_matrix((counts[kept], (rows[kept], columns[kept])), shape=(len(tokens), len(used))).tocsr()
    return sparse.csr_matrix(found), tuple(words.take(pa.array(used)).to_pylist())


def _lengths(lists: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0))


def _count_texts(columns: list[pa.Array], config: NgramsConfig) -> tuple[sparse.csr_matrix, tuple[str, ...]] | None:
    """Count with scikit-learn's rules of what a word is; no n-gram reaches from one column into the next."""
    ngrams_of = CountVectorizer(ngram_range=config.size).build_analyzer()

    def analyze(parts: tuple[Any, ...]) -> list[str]:
        return [ngram for part in parts if part is not None for ngram in ngrams_of(part)]

    vectorizer = CountVectorizer(analyzer=analyze, dtype=np.float64)
    texts = list(zip(*(column.to_pylist() for column in columns), strict=True))
    try:
        counts = sparse.csr_matrix(vectorizer.fit_transform(texts))
    except ValueError as error:
        if "empty vocabulary" not in str(error):
            raise
        return None
    counts.sort_indices()
    return counts, tuple(vectorizer.get_feature_names_out())


# LIBSVM --------------------------------------------------------------------------------------------------------------


def read_libsvm(files: Sequence[Location], config: DatasetConfig, where: str) -> tuple[Any, np.ndarray, Sequence[str]]:
    """Return the sparse rows, the target and the names of features of a LIBSVM / SVMlight text."""
    for key in ("drop", "features", "columns", "where", "test", *config.sample_columns, "ngrams", "bytes"):
        if getattr(config, key):
            raise InputError(f"{where}: {key!r} does not go with {joint_name(files)}, whose columns have no names.")
    parts, targets = [], []
    for location in files:
        with (
            transferring(location, called=f"{where}: {location.name}"),
            io.BufferedReader(location.open_text()) as lines,
        ):
            X, y = bundled.load_svmlight_file(lines, dtype=np.float64)
        if X.shape[1] > MOST_FEATURES:
            raise InputError(
                f"{where}: {location.name} has a feature of index {X.shape[1]:,}, where {MOST_FEATURES:,} is the "
                "largest; correct it, or hash features into fewer."
            )
        parts.append(X)
        targets.append(y)
    width = max(part.shape[1] for part in parts)
    for part in parts:
        part.resize(part.shape[0], width)
    X = parts[0] if len(parts) == 1 else sparse.vstack(parts, "csr")
    return X, np.concatenate(targets), NumberedNames(width)


@dataclass(frozen=True)
class NumberedNames(Sequence[str]):
    """The names f0, f1, ... of features that have none; each is made when it is requested.

    Attributes
    ----------
    size : int
    """

    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, place: Any) -> Any:
        found = range(self.size)[place]
        return tuple(f"f{c}" for c in found) if isinstance(place, slice) else f"f{found}"


def names_to_data(names: Sequence[str]) -> Any:
    """Return the names of features as JSON holds them."""
    return {"numbered": len(names)} if isinstance(names, NumberedNames) else list(names)


def names_from_data(data: Any) -> Sequence[str]:
    """Return the names that `names_to_data` was called on."""
    return NumberedNames(data["numbered"]) if isinstance(data, dict) else tuple(data)
