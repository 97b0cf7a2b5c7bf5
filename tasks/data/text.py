"""Texts and lists of tokens as sparse counts of n-grams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import NgramsConfig

JOIN = "_"
"""What joins the words of a token."""

CONSTANT = "constant"
"""Name of the feature that is one in every row."""


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
    columns = [_plain(table[name]) for name in config.column]
    listed = [_is_list(column.type) for column in columns]
    for name, column, is_list in zip(config.column, columns, listed, strict=True):
        if not is_list and not _is_text(column.type):
            raise InputError(
                f"{where}: column {name!r} of 'ngrams' is neither text nor a list of tokens ({column.type}); name "
                "another."
            )
        if is_list and len(columns) > 1:
            raise InputError(f"{where}: column {name!r} of 'ngrams' holds lists of tokens and must be the only one.")
    if any(listed):
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
        name = CONSTANT
        while name in names:
            name += JOIN
        ones = sparse.csr_matrix(np.ones((chosen.shape[0], 1)))
        chosen, names = sparse.csr_matrix(sparse.hstack([chosen, ones])), (*names, name)
    chosen.sort_indices()
    return chosen, names


def _plain(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind))


def _count_tokens(
    tokens: pa.Array, table: pa.Table, config: NgramsConfig, where: str
) -> tuple[sparse.csr_matrix, tuple[str, ...]] | None:
    """Count tokens whose words, joined by an underscore, are as many as requested; nothing where there are none."""
    name = config.column[0]
    if not _is_text(tokens.type.value_type):
        raise InputError(f"{where}: column {name!r} of 'ngrams' holds lists of {tokens.type.value_type}, not of text.")
    lengths = _lengths(tokens)
    counts = np.ones(int(lengths.sum()))
    if config.counts is not None:
        column = _plain(table[config.counts])
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
