"""Encoding of texts by latent semantic analysis of hashed n-grams."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
from scipy import sparse

from ..validation import require_numbers, require_shape
from . import reading
from .columns import ColumnEncoding, EncodingReport, View, gap_feature
from .summary import ColumnSummary, Scale

MOST_TOPICS = 100
"""Most features of a text."""

TEXTS_PER_TOPIC = 10
"""Distinct training texts per feature."""

LEAST_TOPICS = 2
"""Fewest features, unless there are fewer distinct texts."""

WORD = re.compile(r"\w+|[^\w\s]+")
"""A word, or a run of other symbols."""

RUNS = (3, 4)
"""Lengths of character n-grams within words."""

LONGEST_WORD = 32

MOST_CHARACTERS = 5000

HASH_VALUES = 1 << 20

MOST_NGRAMS = 20_000
"""Number of n-grams to keep, the most frequent ones."""

LEAST_TEXTS = 2
"""Fewest distinct training texts of an n-gram to keep."""

MOST_LEARNED = 10_000
"""Most distinct training texts."""

BLOCK = 1024
"""Texts whose n-grams are in memory at once."""

SMALLEST_DEVIATION = 1e-5
"""Deviation of constant features, relative to the largest."""


@dataclass(frozen=True, eq=False, repr=False)
class TextColumn(ColumnEncoding):
    """Encoding of texts by latent semantic analysis, with mean features if missing."""

    gaps: bool
    ngrams: np.ndarray  # hash values, ascending
    weights: np.ndarray  # inverse document frequencies
    directions: np.ndarray  # shape (n_ngrams, n_topics)
    center: np.ndarray

    kind = "text"

    def __post_init__(self) -> None:
        is_hash_value = (self.ngrams >= 0) & (self.ngrams < HASH_VALUES)
        if self.ngrams.dtype.kind != "i" or not is_hash_value.all():
            raise ValueError(
                f"ngrams of column {self.name!r} must be integers from 0 to {HASH_VALUES - 1}."
            )
        n_ngrams = len(self.ngrams)
        n_topics = len(self.center)
        require_numbers(f"weights of column {self.name!r}", self.weights, (n_ngrams,))
        require_numbers(f"center of column {self.name!r}", self.center, (n_topics,))
        require_shape(
            f"directions of column {self.name!r}", self.directions, (n_ngrams, n_topics)
        )
        if not np.isfinite(self.directions).all():
            raise ValueError(f"directions of column {self.name!r} must be finite.")

    @classmethod
    def of(cls, column: ColumnSummary, scale: Scale) -> Self:
        n_texts = len(column.texts)
        n_topics = min(
            n_texts, MOST_TOPICS, max(LEAST_TOPICS, n_texts // TEXTS_PER_TOPIC)
        )
        return cls._learned(column.name, column.gaps > 0, column.texts, n_topics, scale)

    def learned_on(self, column: reading.Column, scale: Scale) -> Self:
        texts = column.as_texts()
        counts = Counter(texts[~column.gaps].tolist())
        if not counts:
            return replace(
                self,
                directions=np.zeros_like(self.directions),
                center=np.zeros_like(self.center),
            )
        return self._learned(self.name, self.gaps, counts, len(self.center), scale)

    @classmethod
    def _learned(
        cls,
        name: str,
        gaps: bool,
        counts: Mapping[str, int],
        n_topics: int,
        scale: Scale,
    ) -> Self:
        """Return the encoding of texts, from their numbers of rows."""
        texts = _sampled(list(counts))
        rows = np.array([counts[text] for text in texts], dtype=np.float64)
        N = sparse.vstack(
            [_count_ngrams(block) for block in _blocks(texts)], format="csr"
        )
        ngrams = _frequent_ngrams(N)
        N = N[:, ngrams]
        rows_of_ngram = (N > 0).T @ rows
        weights = 1.0 + np.log((1.0 + rows.sum()) / (1.0 + rows_of_ngram))
        X = _weighted_frequencies(N, weights)
        directions = np.zeros((len(ngrams), n_topics), dtype=np.float32)
        directions[:, : min(X.shape)] = _main_directions(X, rows, n_topics)
        topics = X @ directions.astype(np.float64)
        center = np.average(topics, axis=0, weights=rows)
        if scale in ("standard", "quantile"):
            variances = np.average((topics - center) ** 2, axis=0, weights=rows)
            scales = _topic_scales(np.sqrt(variances))
            directions *= scales
            center *= scales
        return cls(name, gaps, ngrams, weights, directions, center)

    @property
    def features(self) -> tuple[tuple[str, View], ...]:
        topics: list[tuple[str, View]] = []
        for number in range(1, len(self.center) + 1):
            topics.append((f"{self.name} topic {number}", "texts"))
        return (*topics, *gap_feature(self.name, self.gaps))

    @property
    def depends_on_rows(self) -> bool:
        return True

    @property
    def is_decodable(self) -> bool:
        return False

    @property
    def assumed(self) -> str:
        return "the mean of the texts"

    def encode(
        self, column: reading.Column, out: np.ndarray, report: EncodingReport
    ) -> None:
        self._require_plain(column, "texts", report)
        gaps = column.gaps
        texts = np.where(gaps, "", column.as_texts())
        topics = out[:, : len(self.center)]
        first = 0
        for block in _blocks(texts.tolist()):
            stop = first + len(block)
            N = _count_ngrams(block)[:, self.ngrams]
            X = _weighted_frequencies(N, self.weights)
            topics[first:stop] = X @ self.directions - self.center
            first = stop
        topics[gaps] = 0.0
        if self.gaps:
            out[:, -1] = gaps
        report.add(self.name, int(gaps.sum()), 0)

    def decode(self, Z: np.ndarray) -> list[Any]:
        """Return placeholders, as features determine no text."""
        return ["text"] * len(Z)

    def describe(self) -> str:
        return f"text of {len(self.center)} topics"


def _blocks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(texts), BLOCK):
        yield texts[first : first + BLOCK]


def _sampled(texts: Sequence[str]) -> list[str]:
    """Return at most `MOST_LEARNED` texts, independent of their order."""
    by_digest = dict(zip(texts, reading.codes_of(texts).tolist(), strict=True))
    return sorted(texts, key=lambda text: (by_digest[text], text))[:MOST_LEARNED]


def _count_ngrams(texts: Sequence[str]) -> sparse.csr_matrix:
    """Return the counts of n-grams by hash value, shape (n, HASH_VALUES)."""
    # Imported here because it imports pandas.
    from sklearn.feature_extraction import (
        FeatureHasher,
    )

    hasher = FeatureHasher(
        HASH_VALUES, input_type="string", dtype=np.float32, alternate_sign=False
    )
    return hasher.transform(map(_words_and_runs, texts))


def _words_and_runs(text: str) -> list[str]:
    ngrams: list[str] = []
    readable = text[:MOST_CHARACTERS].encode(errors="replace").decode()
    for word in WORD.findall(readable.lower()):
        for first in range(0, len(word), LONGEST_WORD):
            ngrams += _ngrams_of_word(word[first : first + LONGEST_WORD])
    return ngrams


@lru_cache(maxsize=1 << 14)
def _ngrams_of_word(word: str) -> tuple[str, ...]:
    """Return the word between spaces, and its character n-grams."""
    padded = f" {word} "
    ngrams = [padded]
    for length in RUNS:
        if length >= len(padded):
            continue
        for first in range(len(padded) - length + 1):
            ngrams.append(padded[first : first + length])
    return tuple(ngrams)


def _frequent_ngrams(N: sparse.csr_matrix) -> np.ndarray:
    """Return the most frequent hash values, ascending."""
    texts_of_ngram = np.bincount(N.indices, minlength=N.shape[1])
    least_texts = min(LEAST_TEXTS, int(texts_of_ngram.max()))
    ngrams = np.flatnonzero(texts_of_ngram >= least_texts)
    by_frequency = np.argsort(-texts_of_ngram[ngrams], kind="stable")
    most_frequent = ngrams[by_frequency[:MOST_NGRAMS]]
    return np.sort(most_frequent).astype(np.int64)


def _weighted_frequencies(
    N: sparse.csr_matrix, weights: np.ndarray
) -> sparse.csr_matrix:
    """Return normalized rows of weighted logarithms of counts."""
    from sklearn.preprocessing import normalize

    X = N.astype(np.float64)
    frequencies = 1.0 + np.log(X.data)
    X.data = frequencies * weights[X.indices]
    return normalize(X, copy=False)


def _main_directions(
    X: sparse.csr_matrix, rows: np.ndarray, n_topics: int
) -> np.ndarray:
    """Return the leading right singular vectors of weighted rows."""
    from sklearn.utils.extmath import randomized_svd

    repeated = sparse.diags_array(np.sqrt(rows)) @ X
    n_directions = min(n_topics, *X.shape)
    _, _, directions = randomized_svd(
        repeated.tocsr(), n_directions, transpose=False, random_state=0
    )
    return np.asarray(directions.T)


def _topic_scales(deviations: np.ndarray) -> np.ndarray:
    """Return a scale per topic, as `indicator_scales`; zero if constant."""
    varies = deviations > SMALLEST_DEVIATION * max(1e-3, deviations.max())
    total = float((deviations[varies] ** 2).sum())
    scales = np.zeros(len(deviations))
    scales[varies] = (total * deviations[varies] ** 2) ** -0.25
    return scales
