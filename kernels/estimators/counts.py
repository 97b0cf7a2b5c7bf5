"""Transformers of texts and graphs to counts of their parts."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any, Literal, Self, get_args

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ..base import explain_unknown_arguments
from ..families import BlockFamily
from ..validation import entries_of, require_one_of, whole_number

Analyzer = Literal["word", "char", "char_wb"]

KIND_OF_GRAM = {"word": "word", "char": "character", "char_wb": "character"}

DIGEST_BYTES = 16
"""Length of a digest; of a billion, two collide with probability 1e-21."""


class CountTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of transformers of texts or graphs to counts of their parts."""

    vocabularies_: list[dict[str, int]]

    @property
    @abstractmethod
    def family(self) -> BlockFamily:
        """Kernel family for the rows that `transform` returns."""

    @abstractmethod
    def _counts(self, X: Iterable[Any]) -> list[list[Counter[str]]]:
        """Return counts of parts per base kernel and object."""

    def fit(self, X: Iterable[Any], y: Any = None) -> Self:
        """Learn the parts to count from training texts or graphs.

        Parameters
        ----------
        X : iterable
            Texts or graphs. Not modified.
        y : None
            Ignored.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            An object or a parameter is invalid, or a base kernel has no part in any
            object.
        """
        self._fit(self._counts(X))
        return self

    def fit_transform(self, X: Iterable[Any], y: Any = None) -> sparse.csr_matrix:
        """Learn the parts to count, and count them; see `fit` and `transform`."""
        counts = self._counts(X)
        self._fit(counts)
        return self._rows(counts)

    def transform(self, X: Iterable[Any]) -> sparse.csr_matrix:
        """Return counts of n-grams or subtrees, of unit norm over all of them per block.

        Parameters
        ----------
        X : iterable
            Texts or graphs. Not modified.

        Returns
        -------
        Z : CSR matrix of shape (n, d)
            One block of columns per base kernel, all of equal width. A block of a row
            has length one before parts that no training object has are dropped.

        Raises
        ------
        ValueError
            An object is invalid.
        """
        check_is_fitted(self)
        return self._rows(self._counts(X))

    def _fit(self, counts: list[list[Counter[str]]]) -> None:
        vocabularies = []
        for name, counters in zip(self.family.names, counts, strict=True):
            parts = sorted(set(chain.from_iterable(counters)))
            if not parts:
                raise ValueError(
                    f"no training object has {name}; allow fewer base kernels, or give other objects."
                )
            vocabularies.append({part: column for column, part in enumerate(parts)})
        self.vocabularies_ = vocabularies

    def _rows(self, counts: list[list[Counter[str]]]) -> sparse.csr_matrix:
        width = max(map(len, self.vocabularies_))
        blocks = [
            _unit_rows(counters, vocabulary, width)
            for counters, vocabulary in zip(counts, self.vocabularies_, strict=True)
        ]
        return sparse.hstack(blocks, format="csr")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.sparse = False
        return tags


@explain_unknown_arguments
class NGramTransformer(CountTransformer):
    r"""Transformer of texts to counts of n-grams, with a base kernel per length n.

    .. math:: K_n(x, x') = \frac{c_n(x) \cdot c_n(x')}{\lVert c_n(x) \rVert \, \lVert c_n(x') \rVert}

    where :math:`c_n(x)` are the counts of the n-grams in the text x.

    Parameters
    ----------
    max_length : int, default 3
        Largest length n. The base kernels have the lengths 1 to `max_length`.
    analyzer : {"word", "char", "char_wb"}, default "word"
        Whether n-grams consist of words, of characters, or of characters inside words;
        see scikit-learn's `CountVectorizer`.
    lowercase : bool, default True
        Whether upper and lower case are equal. Use False for sequences and formulas.

    Attributes
    ----------
    family : BlockFamily
        The base kernels, available before `fit`.
    vocabularies_ : list of dict
        Column of each n-gram of the training texts within its block, by length.

    Notes
    -----
    Rows are sparse, and each block of columns has length one. N-grams that no training
    text has are dropped, but count in this length: the kernel between any text and a
    training text is exact. A text without n-grams of a length has zeros there.

    The estimator's `save` does not store this transformer: pickle it.

    References
    ----------
    Leslie, Eskin, Noble (2002), The Spectrum Kernel, Pacific Symposium on Biocomputing
    7:564-575. Shawe-Taylor, Cristianini (2004), Kernel Methods for Pattern Analysis,
    section 11.2.

    Examples
    --------
    >>> from learnkernels import KernelLearningClassifier, NGramTransformer
    >>> from sklearn.pipeline import make_pipeline
    >>> texts = ["GATTACA", "GATTATA", "CCGCGG", "GCGCCG"] * 5
    >>> classes = ["poor", "poor", "rich", "rich"] * 5
    >>> ngrams = NGramTransformer(max_length=2, analyzer="char", lowercase=False)
    >>> ngrams.family.names
    ('character 1-grams', 'character 2-grams')
    >>> model = KernelLearningClassifier(family=ngrams.family, learner="alignf")
    >>> make_pipeline(ngrams, model).fit(texts, classes).predict(["TATTA"]).tolist()
    ['poor']
    """

    def __init__(
        self,
        max_length: int = 3,
        analyzer: Analyzer = "word",
        lowercase: bool = True,
    ) -> None:
        self.max_length = max_length
        self.analyzer = analyzer
        self.lowercase = lowercase

    @property
    def family(self) -> BlockFamily:
        require_one_of("analyzer", self.analyzer, get_args(Analyzer))
        kind = KIND_OF_GRAM[self.analyzer]
        return BlockFamily([f"{kind} {length}-grams" for length in self._lengths()])

    def _lengths(self) -> range:
        return range(1, whole_number("max_length", self.max_length, 1) + 1)

    def _counts(self, X: Iterable[Any]) -> list[list[Counter[str]]]:
        # Imported here because it imports pandas.
        from sklearn.feature_extraction.text import CountVectorizer

        require_one_of("analyzer", self.analyzer, get_args(Analyzer))
        texts = _objects(X, "texts")
        for position, text in enumerate(texts):
            if not isinstance(text, str):
                raise ValueError(
                    f"X must hold texts, got {text!r:.60} at position {position}; convert it to str or leave it out."
                )
        counts = []
        for length in self._lengths():
            vectorizer = CountVectorizer(
                analyzer=self.analyzer,
                lowercase=self.lowercase,
                ngram_range=(length, length),
            )
            ngrams_of = vectorizer.build_analyzer()
            counts.append([Counter(ngrams_of(text)) for text in texts])
        return counts

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        return tags


@explain_unknown_arguments
class WeisfeilerLehmanTransformer(CountTransformer):
    r"""Transformer of graphs to counts of Weisfeiler-Lehman node labels.

    .. math:: K_h(x, x') = \frac{c_h(x) \cdot c_h(x')}{\lVert c_h(x) \rVert \, \lVert c_h(x') \rVert}

    where :math:`c_h(x)` are the counts of the node labels of the graph x after h
    iterations. An iteration appends the labels of the neighbors to each node's label. A
    label after h iterations describes a subtree of depth h.

    Parameters
    ----------
    n_iterations : int, default 3
        Largest number of iterations H. The base kernels have h = 0 to H.

    Attributes
    ----------
    family : BlockFamily
        The base kernels, available before `fit`.
    vocabularies_ : list of dict
        Column of each label of the training graphs within its block, by iteration.

    Notes
    -----
    A graph is a pair ``(edges, labels)``. Edges are pairs of positions of nodes, without
    direction; an edge that is listed twice counts once. Labels hold one entry per node,
    which is compared as text; without labels, take the degrees of the nodes.

    Rows are sparse, and each block of columns has length one. Labels that no training
    graph has are dropped, but count in this length: the kernel between any graph and a
    training graph is exact. A graph of n nodes and e edges takes O(H (n + e)) time, and
    sorting of neighbors. Labels are digests of 128 bits.

    The estimator's `save` does not store this transformer: pickle it.

    References
    ----------
    Shervashidze, Schweitzer, van Leeuwen, Mehlhorn, Borgwardt (2011), Weisfeiler-Lehman
    Graph Kernels, JMLR 12:2539-2561: the subtree kernel is the sum of these kernels
    before they are normalized.

    Examples
    --------
    >>> from learnkernels import KernelLearningClassifier, WeisfeilerLehmanTransformer
    >>> from sklearn.pipeline import make_pipeline
    >>> path = [(0, 1), (1, 2), (2, 3)], ["C", "C", "C", "O"]
    >>> star = [(0, 1), (0, 2), (0, 3)], ["C", "C", "C", "O"]
    >>> subtrees = WeisfeilerLehmanTransformer(n_iterations=2)
    >>> rows = subtrees.fit_transform([path, star])
    >>> subtrees.family.tile(rows, rows)[:, 0, 1].round(3)
    array([1.   , 0.612, 0.   ])
    """

    def __init__(self, n_iterations: int = 3) -> None:
        self.n_iterations = n_iterations

    @property
    def family(self) -> BlockFamily:
        n_iterations = whole_number("n_iterations", self.n_iterations, 0)
        return BlockFamily(
            [f"labels of iteration {h}" for h in range(n_iterations + 1)]
        )

    def _counts(self, X: Iterable[Any]) -> list[list[Counter[str]]]:
        n_iterations = whole_number("n_iterations", self.n_iterations, 0)
        graphs = _objects(X, "graphs")
        counts: list[list[Counter[str]]] = [[] for _ in range(n_iterations + 1)]
        for position, graph in enumerate(graphs):
            neighbors, labels = _neighbors_and_labels(graph, position)
            counts[0].append(Counter(labels))
            for h in range(1, n_iterations + 1):
                labels = _labels_after_iteration(labels, neighbors)
                counts[h].append(Counter(labels))
        return counts


def _objects(X: Any, kind: str) -> list[Any]:
    """Return the objects as a list; ValueError without objects."""
    objects = entries_of("X", X, kind)
    if not objects:
        raise ValueError(f"X must hold {kind}, got none.")
    return objects


def _unit_rows(
    counters: Sequence[Counter[str]], vocabulary: dict[str, int], width: int
) -> sparse.csr_matrix:
    """Return counts by column of the vocabulary, divided by the norm of all counts."""
    columns: list[int] = []
    values: list[float] = []
    ends = [0]
    for counter in counters:
        length = math.sqrt(sum(count * count for count in counter.values()))
        for part, count in counter.items():
            column = vocabulary.get(part)
            if column is not None:
                columns.append(column)
                values.append(count / length)
        ends.append(len(columns))
    rows = sparse.csr_matrix(
        (np.array(values), np.array(columns, dtype=np.intp), ends),
        shape=(len(counters), width),
    )
    rows.sort_indices()
    return rows


def _neighbors_and_labels(
    graph: Any, position: int
) -> tuple[list[set[int]], list[str]]:
    try:
        edges, node_labels = graph
        pairs = np.asarray(edges)
        if isinstance(node_labels, Mapping):
            raise TypeError
        labels = list(map(str, entries_of("labels", node_labels, "labels")))
    except (TypeError, ValueError):
        raise ValueError(
            f"graph {position} must be a pair of edges and a list of labels, such as ([(0, 1)], ['C', 'O']), got "
            f"{graph!r:.60}."
        ) from None
    n_nodes = len(labels)
    if pairs.size and not _are_pairs_below(pairs, n_nodes):
        raise ValueError(
            f"edges of graph {position} must be pairs of positions of its {n_nodes} labels, from 0 to {n_nodes - 1}, "
            f"got {edges!r:.60}."
        )
    neighbors: list[set[int]] = [set() for _ in range(n_nodes)]
    for i, j in pairs.reshape(-1, 2).tolist():
        neighbors[i].add(j)
        neighbors[j].add(i)
    return neighbors, labels


def _are_pairs_below(pairs: np.ndarray, n_nodes: int) -> bool:
    is_matrix = pairs.ndim == 2 and pairs.shape[1] == 2
    if not is_matrix or pairs.dtype.kind not in "iu":
        return False
    return bool(pairs.min() >= 0 and pairs.max() < n_nodes)


def _labels_after_iteration(
    labels: Sequence[str], neighbors: Sequence[set[int]]
) -> list[str]:
    """Return digests of each node's label and sorted neighbor labels."""
    digests = [_digest(label) for label in labels]
    return [
        own_digest + _digest("".join(sorted(digests[j] for j in nodes)))
        for own_digest, nodes in zip(digests, neighbors, strict=True)
    ]


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()
