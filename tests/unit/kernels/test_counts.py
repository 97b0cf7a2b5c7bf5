"""Texts and graphs: base kernels of common n-grams and of common subtrees, against slow counting."""

import math
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

from learnkernels import (
    BlockFamily,
    KernelLearningClassifier,
    NGramTransformer,
    WeisfeilerLehmanTransformer,
    learn_kernel,
    load,
)
from tests.refusals import require_refusals

# A quotient of whole numbers and square roots, and a sum of a few dozen products.
ROUNDING = 1e-14

N_TRAINING = 30

# Slow counting -------------------------------------------------------------------------------------------------------


def n_equal_pairs(parts, other_parts) -> int:
    """Pairs of equal entries, which is the inner product of counts."""
    return sum(part == other for part in parts for other in other_parts)


def normalized_matrix(parts, other_parts) -> list[list[float]]:
    """Common parts of two objects over those with themselves; zero without any parts."""
    matrix = []
    for x in parts:
        row = []
        for z in other_parts:
            own = n_equal_pairs(x, x) * n_equal_pairs(z, z)
            row.append(n_equal_pairs(x, z) / math.sqrt(own) if own else 0.0)
        matrix.append(row)
    return matrix


def ngrams(text: str, length: int, analyzer: str) -> list:
    """All runs of words of at least two letters, or of characters."""
    units = text.lower()
    if analyzer == "word":
        units = [word for word in units.split() if len(word) > 1]
    return [units[i : i + length] for i in range(len(units) - length + 1)]


def subtree_of(node: int, graph, depth: int) -> str:
    """The text of the tree of neighbors below a node, written in full."""
    edges, labels = graph
    if not depth:
        return str(labels[node])
    neighbors = {j for i, j in edges if i == node} | {i for i, j in edges if j == node}
    below = sorted(subtree_of(other, graph, depth - 1) for other in neighbors)
    return f"<{subtree_of(node, graph, depth - 1)}:{','.join(below)}>"


def subtrees(graph, depth: int) -> list[str]:
    return [subtree_of(node, graph, depth) for node in range(len(graph[1]))]


# Objects -------------------------------------------------------------------------------------------------------------


def random_texts(n: int, seed: int) -> list[str]:
    """Texts of zero to eight words; the second half also has words of its own."""
    rng = np.random.default_rng(seed)
    words = ["ab", "Ba", "abba", "cab", "a", "bc", "zz", "zab"]
    texts = []
    for position in range(n):
        known = words[: 6 if position < n // 2 else 8]
        texts.append(" ".join(rng.choice(known, rng.integers(0, 9))))
    return texts


def random_graphs(n: int, seed: int) -> list:
    """Graphs of one to nine nodes, with isolated nodes, loops and edges in both directions."""
    rng = np.random.default_rng(seed)
    graphs = []
    for position in range(n):
        n_nodes = int(rng.integers(1, 10))
        edges = rng.integers(0, n_nodes, (int(rng.integers(0, 9)), 2)).tolist()
        edges += [[j, i] for i, j in edges[:2]]
        alphabet = ["C", "N", 1] if position < n // 2 else ["C", "N", 1, "O"]
        labels = [alphabet[k] for k in rng.integers(0, len(alphabet), n_nodes)]
        graphs.append((edges, labels))
    return graphs


TEXTS = random_texts(2 * N_TRAINING, seed=0)
GRAPHS = random_graphs(2 * N_TRAINING, seed=1)

KINDS = {
    "words": (
        NGramTransformer(),
        TEXTS,
        [partial(ngrams, length=n, analyzer="word") for n in (1, 2, 3)],
    ),
    "characters": (
        NGramTransformer(max_length=4, analyzer="char"),
        TEXTS,
        [partial(ngrams, length=n, analyzer="char") for n in (1, 2, 3, 4)],
    ),
    "graphs": (
        WeisfeilerLehmanTransformer(n_iterations=3),
        GRAPHS,
        [partial(subtrees, depth=h) for h in range(4)],
    ),
}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def kind(request):
    transformer, objects, parts = request.param
    return clone(transformer), objects, parts


# Values --------------------------------------------------------------------------------------------------------------


def test_kernels_count_common_parts_also_of_objects_with_unknown_parts(kind):
    transformer, objects, parts = kind
    training, others = objects[:N_TRAINING], objects[N_TRAINING:]
    X = transformer.fit_transform(training)
    new = transformer.transform(others)
    assert sparse.issparse(X)
    assert X.dtype == np.float64
    family = transformer.family
    assert family.n_kernels == len(parts) == len(set(family.names))
    for rows, known_objects in ((X, training), (new, others)):
        expected = [
            normalized_matrix(list(map(part, known_objects)), list(map(part, training)))
            for part in parts
        ]
        np.testing.assert_allclose(
            family.tile(rows, X), np.array(expected), rtol=0, atol=ROUNDING
        )
    # The second half has parts that the first half lacks, and they count in its length.
    assert (family.diag(new) < 1 - ROUNDING).any()
    family.check_rows(X)
    family.check_rows(new)


def test_an_edge_counts_once_in_any_direction_and_nodes_in_any_order():
    edges = [(0, 1), (1, 2), (3, 3)]
    graph = (edges, ["a", "b", "a", "b"])
    variants = [
        ([(1, 0), (0, 1), (2, 1), (3, 3)], ["a", "b", "a", "b"]),
        (np.array([(3, 2), (2, 1), (0, 0)]), np.array(["b", "a", "b", "a"])),
        (edges, ("a", "b", "a", "b")),
    ]
    rows = WeisfeilerLehmanTransformer().fit_transform([graph, *variants]).toarray()
    np.testing.assert_array_equal(rows, np.tile(rows[0], (4, 1)))
    # The three-cycle twice and the six-cycle are the known pair that no iteration tells apart.
    triangles = [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)]
    hexagon = [(i, (i + 1) % 6) for i in range(6)]
    path = hexagon[:5]
    rows = WeisfeilerLehmanTransformer().fit_transform(
        [(edges, [1] * 6) for edges in (triangles, hexagon, path)]
    )
    assert (rows[0] != rows[1]).nnz == 0
    assert (rows[0] != rows[2]).nnz > 0


def test_case_counts_if_it_should():
    texts = ["CC(=O)c", "cc(=o)C"]
    for lowercase, n_equal in ((True, 2), (False, 1)):
        transformer = NGramTransformer(2, "char", lowercase)
        rows = transformer.fit_transform(texts).toarray()
        assert len(np.unique(rows, axis=0)) == 3 - n_equal


def test_containers_of_texts_are_equal():
    expected = NGramTransformer(2).fit_transform(TEXTS).toarray()
    for container in (tuple, np.array, pd.Series, partial(np.array, dtype=object)):
        rows = NGramTransformer(2).fit(container(TEXTS)).transform(iter(TEXTS))
        np.testing.assert_array_equal(rows.toarray(), expected)


# In use --------------------------------------------------------------------------------------------------------------


def planted_classes(objects, part) -> np.ndarray:
    """Whether an object has more parts of the first kind than the median object."""
    counts = np.array([part(x) for x in objects])
    return counts > np.median(counts)


@pytest.mark.parametrize(
    ("transformer", "objects", "part"),
    [
        (NGramTransformer(2), random_texts(120, 3), lambda text: text.count("ab")),
        (
            WeisfeilerLehmanTransformer(2),
            random_graphs(120, 4),
            lambda graph: graph[1].count("C") / len(graph[1]),
        ),
    ],
    ids=["texts", "graphs"],
)
def test_a_pipeline_learns_searches_and_is_saved(
    transformer, objects, part, tmp_path: Path
):
    y = planted_classes(objects, part)
    training, others = objects[::2], objects[1::2]
    model = KernelLearningClassifier(family=transformer.family, learner="alignf")
    pipeline = make_pipeline(transformer, model).fit(training, y[::2])
    assert pipeline.score(others, y[1::2]) > 0.7
    search = GridSearchCV(
        make_pipeline(clone(transformer), model),
        {
            "kernellearningclassifier__family": [
                transformer.family,
                transformer.family.subset([0]),
            ]
        },
        cv=3,
    ).fit(training, y[::2])
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()

    path = tmp_path / "model.safetensors"
    pipeline[-1].save(path)
    rows = pipeline[0].transform(others)
    np.testing.assert_array_equal(
        load(path).decision_function(rows), pipeline.decision_function(others)
    )


def test_learned_weights_are_those_of_the_matrices():
    transformer = NGramTransformer(3, "char")
    X = transformer.fit_transform(TEXTS)
    y = planted_classes(TEXTS, lambda text: text.count("ab"))
    kernel = learn_kernel(X, y, learner="alignf", family=transformer.family)
    dense = learn_kernel(X.toarray(), y, learner="alignf", family=transformer.family)
    # Sums of the same products in another order
    np.testing.assert_allclose(kernel.weights, dense.weights, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        kernel.cross_gram(X[:5]), dense.cross_gram(X[:5].toarray()), atol=1e-11
    )


# Input ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_estimator_tags_renamed,
        estimator_checks.check_valid_tag_types,
    ],
)
@pytest.mark.parametrize(
    "transformer", [NGramTransformer(), WeisfeilerLehmanTransformer()]
)
def test_checks_of_scikit_learn_that_need_no_numbers_pass(transformer, check):
    check(type(transformer).__name__, transformer)


def test_wrong_input_is_refused_in_one_sentence():
    fit_texts = NGramTransformer().fit
    fit_graphs = WeisfeilerLehmanTransformer().fit
    X = NGramTransformer(3).fit_transform(["to be or not to be", "or not to be"])
    refused = [
        (partial(fit_texts, texts), said)
        for texts, said in [
            ("a text", "X must be a sequence of texts"),
            (np.array([["a text"]]), "X must be a sequence of texts"),
            ([], "X must hold texts, got none"),
            (["a text", None], "got None at position 1"),
            (["a text", math.nan], "got nan at position 1"),
            (["one two", "two three"], "no training object has word 3-grams"),
        ]
    ]
    refused += [
        (partial(fit_graphs, [([(0, 1)], ["C", "O"]), graph]), "graph 1 must be a pair")
        for graph in (
            None,
            [(0, 1)],
            ([(0, 1)],),
            ([(0, 1)], {0: "C", 1: "O"}),
            ([(0, 1)], 2),
            ([(0, 1)], "CO"),
            ([(0, 1), (0,)], ["C", "O"]),
        )
    ]
    refused += [
        (partial(fit_graphs, [(edges, ["C", "O"])]), "edges of graph 0 must be pairs")
        for edges in ([(0, 2)], [(-1, 0)], [(0.0, 1.0)], [("C", "O")], [[0, 1, 0]], [0])
    ]
    refused += [
        (partial(NGramTransformer(0).fit, TEXTS), "max_length must be a whole number"),
        (partial(NGramTransformer(2, "words").fit, TEXTS), "analyzer must be one of"),
        (partial(WeisfeilerLehmanTransformer(-1).fit, GRAPHS), "n_iterations must be"),
        (partial(BlockFamily, []), "blocks must hold distinct names"),
        (partial(BlockFamily, ["a", "a"]), "blocks must hold distinct names"),
        (partial(BlockFamily, ["a"], [1]), "kernels must be positions of blocks"),
        (partial(BlockFamily, ["a"], []), "kernels must be positions of blocks"),
    ]
    refused += [
        (
            partial(
                learn_kernel,
                X,
                [0, 1],
                learner="unif",
                family=NGramTransformer(length).family,
            ),
            said,
        )
        for length, said in [
            (5, "X must have 5 blocks of columns of equal width, got 12 columns"),
            (1, "rows must have length one in each block of columns, got 1.73"),
        ]
    ]
    require_refusals(refused)


def test_a_transformer_without_fit_says_so():
    with pytest.raises(NotFittedError):
        NGramTransformer().transform(TEXTS)
