"""The table of (family, rows) that every generic test walks; a new family inherits all tests from a new line."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest
from scipy import sparse

from learnkernels.kernels import families
from learnkernels.kernels.centering import Centering
from learnkernels.kernels.engine import operators
from learnkernels.kernels.engine.operators import FeatureGrams, StackedGrams, TiledGrams
from learnkernels.kernels.solvers.ridge import RidgeProblem
from tests import reference


@dataclass(frozen=True)
class Case:
    """A family, the same kernels as functions of two rows, and rows to try them on."""

    name: str
    family: families.KernelFamily
    kernels: Sequence[reference.Kernel]
    X: object

    @cached_property
    def grams(self) -> list[np.ndarray]:
        """Base kernels over all rows by double loops, in long double."""
        return reference.grams(self.kernels, self.X)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Largest value of each base kernel, shape (p, 1, 1): what rounding is relative to."""
        return np.array([float(np.abs(K).max()) for K in self.grams])[:, None, None]

    def tile_error(
        self, tile: np.ndarray, rows=slice(None), columns=slice(None), shift=None
    ) -> float:
        """Return the largest deviation of a tile from the oracle, relative to each kernel's size."""
        expected = np.stack([K[rows][:, columns] for K in self.grams])
        if shift is not None:
            expected = expected - shift[:, None, None]
        return float((np.abs(tile - expected) / self.sizes).max())


def dense_rows(m: int, d: int, seed: int) -> np.ndarray:
    X = np.random.default_rng(seed).normal(size=(m, d))
    X.flags.writeable = False
    return X


def sparse_rows(m: int, d: int, seed: int, kind=sparse.csr_matrix):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, d)) * (rng.random((m, d)) < 0.3)
    X[3] = 0.0
    return kind(X)


def gaussians(gammas: Sequence[float]):
    return families.GaussianFamily(gammas), [
        reference.gaussian(gamma) for gamma in gammas
    ]


def polynomials(degrees: Sequence[int], gamma: float, coef0: float):
    family = families.PolynomialFamily(degrees, gamma=gamma, coef0=coef0)
    return family, [reference.polynomial(r, gamma, coef0) for r in degrees]


def linears():
    return families.LinearFamily(), [reference.linear()]


def laplacians(gammas: Sequence[float], norm: int = 1):
    oracle = reference.laplacian if norm == 1 else reference.euclidean_laplacian
    return families.LaplacianFamily(gammas, norm=norm), [
        oracle(gamma) for gamma in gammas
    ]


def dirichlets(frequencies: Sequence[float], degree: int = 1):
    return families.DirichletFamily(frequencies, degree), [
        reference.dirichlet(sigma, degree) for sigma in frequencies
    ]


def features(n: int):
    return families.FeatureFamily(n), [reference.feature(k) for k in range(n)]


def blocks(names: Sequence[str], kernels: Sequence[int], width: int):
    """Linear kernels on blocks of so many columns, in the order of `kernels`."""
    oracles = [
        reference.on_columns(
            reference.linear(), range(block * width, (block + 1) * width)
        )
        for block in kernels
    ]
    return families.BlockFamily(names, kernels), oracles


def union(parts, columns):
    kernels = []
    for (_, oracles), view in zip(parts, columns, strict=True):
        kernels += [
            oracle if view is None else reference.on_columns(oracle, view)
            for oracle in oracles
        ]
    return families.FamilyUnion([family for family, _ in parts], columns), kernels


def multiplied(part, powers: Sequence[Sequence[int]]):
    family, oracles = part

    def of(row):
        return lambda x, z: np.prod(
            [k(x, z) ** e for k, e in zip(oracles, row, strict=True)]
        )

    return families.ProductFamily(family, powers), [of(row) for row in powers]


def scaled(part, p: int, d: int, seed: int):
    """One kernel after p scalings of d features, the last as the first but in reverse."""
    family, [oracle] = part
    scales = np.exp(np.random.default_rng(seed).normal(scale=0.5, size=(p, d)))
    scales[-1] = scales[0, ::-1]
    return families.ScaledFamily(family, scales), [
        reference.on_scaled(oracle, row) for row in scales
    ]


def in_metric(part, d: int, r: int | None, seed: int):
    """The same kernels of d features that are weighed, one of them not at all, or mapped to r others."""
    family, oracles = part
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(d, r)) if r else np.append(0.0, rng.random(d - 1) + 0.5)
    oracle = reference.on_mapped if r else reference.on_scaled
    return families.MetricFamily(family, matrix), [
        oracle(kernel, matrix) for kernel in oracles
    ]


def matrices(family: families.KernelFamily, kernels, rows: np.ndarray):
    """The base kernels of some rows as matrices; a row is then its position."""
    K = family.tile(rows, rows)
    wide = reference.wide_rows(rows)
    oracles = [
        lambda x, z, kernel=kernel: kernel(wide[int(x[0])], wide[int(z[0])])
        for kernel in kernels
    ]
    return families.PrecomputedFamily(K, family.names), oracles


# Grid in shuffled order, with a gap: 2^2 has no half in the set.
POWERS_OF_TWO = [2.0**g for g in (-3, 0, -1, -6, 2, -2, -5)]
NESTED = union([gaussians([0.5, 0.25]), linears()], [[1, 0], None])
WITH_ONES = sparse.hstack([sparse_rows(34, 8, seed=14), np.ones((34, 1))]).tocsr()

CASES = [
    Case("gaussian-powers", *gaussians(POWERS_OF_TWO), dense_rows(41, 4, seed=0)),
    Case("gaussian-arbitrary", *gaussians([0.3, 0.07, 1.9]), dense_rows(37, 5, seed=1)),
    Case(
        "gaussian-mixed",
        *gaussians([0.4, 0.1, 1.7, 0.2, 0.5]),
        dense_rows(38, 3, seed=2),
    ),
    Case("gaussian-one", *gaussians([0.11]), dense_rows(20, 1, seed=3)),
    Case(
        "polynomial",
        *polynomials([3, 1, 2], gamma=0.3, coef0=0.7),
        dense_rows(36, 4, seed=4),
    ),
    Case(
        "product",
        *multiplied(NESTED, [[1, 1, 0], [0, 0, 2], [2, 0, 1]]),
        dense_rows(35, 3, seed=30),
    ),
    Case(
        "polynomial-homogeneous",
        *polynomials([2], gamma=1.0, coef0=0.0),
        dense_rows(35, 3, seed=5),
    ),
    Case("linear", *linears(), dense_rows(39, 6, seed=6)),
    Case(
        "union-on-columns",
        *union(
            [gaussians([0.5, 1.0, 0.3]), linears(), polynomials([2, 3], 0.5, 1.0)],
            [[0, 2], None, [3, 1, 0]],
        ),
        dense_rows(40, 4, seed=7),
    ),
    Case(
        "union-of-unions",
        *union([NESTED, linears()], [[2, 0, 1], [1]]),
        dense_rows(33, 4, seed=8),
    ),
    Case("gaussian-csr", *gaussians([0.25, 0.5, 0.13]), sparse_rows(37, 9, seed=9)),
    Case(
        "union-csr-array",
        *union(
            [linears(), gaussians([0.5, 0.25]), polynomials([2], 0.5, 1.0)],
            [None, [0, 3, 4, 7], [8, 2, 1]],
        ),
        sparse_rows(34, 9, seed=10, kind=sparse.csr_array),
    ),
    Case("laplacian-powers", *laplacians(POWERS_OF_TWO), dense_rows(36, 4, seed=11)),
    Case(
        "laplacian-mixed-csr",
        *laplacians([0.4, 0.1, 0.2, 1.7]),
        sparse_rows(35, 9, seed=12),
    ),
    Case(
        "laplacian-euclidean",
        *laplacians([0.25, 2.0, 0.5], norm=2),
        dense_rows(36, 4, seed=24),
    ),
    Case(
        "laplacian-euclidean-csr",
        *laplacians([0.4, 1.7], norm=2),
        sparse_rows(35, 9, seed=25),
    ),
    Case(
        "cosine",
        families.CosineFamily(),
        [reference.cosine()],
        dense_rows(34, 4, seed=13),
    ),
    Case("cosine-csr", families.CosineFamily(), [reference.cosine()], WITH_ONES),
    Case(
        "dirichlet-one-feature",
        *dirichlets([0.7, 2.1, 12.0]),
        dense_rows(36, 1, seed=15),
    ),
    Case(
        "dirichlet-features",
        *dirichlets([0.9, 0.3], degree=3),
        dense_rows(34, 3, seed=16),
    ),
    Case("dirichlet-csr", *dirichlets([1.3]), sparse_rows(33, 5, seed=17)),
    # Alone, features have no tiles: tests/unit/kernels/test_features.py.
    Case(
        "union-with-features",
        *union(
            [features(3), laplacians([0.5]), features(2)], [[0, 3, 1], None, [2, 4]]
        ),
        dense_rows(35, 6, seed=18),
    ),
    Case("blocks", *blocks(["a", "b"], [1, 0], 3), dense_rows(34, 6, seed=31) / 8),
    Case(
        "blocks-csr-array",
        *blocks(["a", "b", "c"], [0, 2], 4),
        sparse_rows(35, 12, seed=32, kind=sparse.csr_array) / 8,
    ),
    Case(
        "scaled-gaussian",
        *scaled(gaussians([0.3]), 4, 5, seed=20),
        dense_rows(37, 5, seed=20),
    ),
    Case(
        "scaled-polynomial",
        *scaled(polynomials([2], 0.4, 0.7), 2, 3, seed=21),
        dense_rows(34, 3, seed=21),
    ),
    Case(
        "scaled-laplacian-csr",
        *scaled(laplacians([0.5]), 3, 9, seed=22),
        sparse_rows(35, 9, seed=22),
    ),
    Case(
        "union-with-scaled-csr-array",
        *union(
            [scaled(gaussians([0.2]), 3, 9, seed=23), gaussians([0.5, 0.25])],
            [None, [0, 3, 4, 7]],
        ),
        sparse_rows(34, 9, seed=23, kind=sparse.csr_array),
    ),
    Case(
        "metric-weights",
        *in_metric(gaussians([0.3, 0.6]), 5, None, seed=26),
        dense_rows(34, 5, seed=26),
    ),
    Case(
        "metric-weights-csr",
        *in_metric(laplacians([0.4]), 9, None, seed=27),
        sparse_rows(33, 9, seed=27),
    ),
    Case(
        "metric-matrix",
        *in_metric(polynomials([2], 0.4, 0.7), 5, 3, seed=28),
        dense_rows(35, 5, seed=28),
    ),
    Case(
        "metric-matrix-csr",
        *in_metric(gaussians([0.2]), 9, 4, seed=29),
        sparse_rows(34, 9, seed=29),
    ),
    Case(
        "precomputed",
        *matrices(*gaussians([0.5, 0.2]), dense_rows(36, 3, seed=19)),
        np.arange(36.0)[:, None],
    ),
]


METHODS = ("products", "squared_norms", "target_products", "target_norm", "traces")
"""Of statistics, which take whether base kernels are centered."""


def assert_same_statistics(
    got, expected, rtol: float, centered: Sequence[bool] = (True,)
) -> None:
    """Compare relative to the largest value: signed numbers may cancel to nearly nothing."""
    pairs = [
        (name, *(getattr(of, name)(kind) for of in (got, expected)))
        for kind in centered
        for name in METHODS
    ]
    names = [
        name
        for kind in centered
        for name in (["alignments", "constant"] if kind else ["uncentered_alignments"])
    ]
    pairs += [(name, getattr(got, name), getattr(expected, name)) for name in names]
    for name, one, other in pairs:
        value = np.asarray(other, dtype=float)
        np.testing.assert_allclose(
            one,
            value,
            rtol=rtol,
            atol=rtol * np.abs(value).max(initial=0.0),
            err_msg=name,
        )


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request) -> Case:
    return request.param


@pytest.fixture
def no_matrices(monkeypatch):
    """Nothing of m by m may be formed."""
    monkeypatch.setattr(operators, "LARGEST_MATRIX", 0)
    monkeypatch.setattr(
        operators.gram_operator,
        "__kwdefaults__",
        {"in_memory": 0, "centering": Centering.CENTER},
    )
    for grams in (TiledGrams, StackedGrams, FeatureGrams):
        monkeypatch.setattr(grams, "combine", None)
    monkeypatch.setattr(RidgeProblem, "at", None)
