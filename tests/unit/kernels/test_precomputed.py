"""Base kernels given as matrices: the entries at row positions, whatever the blocks, and one sentence for the rest."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

from learnkernels import GaussianFamily, KernelLearningRegressor, PrecomputedFamily, gram_moments, learn_kernel

RNG = np.random.default_rng(0)
N = 23
ROWS = RNG.normal(size=(N, 3))
SOURCE = GaussianFamily([0.1, 0.2, 1.5])
MATRICES = SOURCE.tile(ROWS, ROWS)
MATRICES.flags.writeable = False

CUTS = {"whole": [0, N], "uneven": [0, 1, 9, 22, N], "rows": list(range(N + 1))}


def blocks(cut: str) -> list[np.ndarray]:
    bounds = CUTS[cut]
    return [MATRICES[:, start:stop] for start, stop in pairwise(bounds)]


def at(*positions: int) -> np.ndarray:
    return np.array(positions, dtype=np.float64)[:, None]


SELECTIONS = {
    "all": np.arange(N),
    "run": np.arange(5, 17),
    "every third": np.arange(0, N, 3),
    "shuffled": RNG.permutation(N),
    "repeated": np.array([4, 4, 0, 22, 9, 4]),
    "one": np.array([8]),
    "none": np.array([], dtype=int),
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("rows", SELECTIONS)
@pytest.mark.parametrize("columns", SELECTIONS)
def test_a_tile_is_the_entries_at_the_positions(cut: str, rows: str, columns: str):
    family = PrecomputedFamily(blocks(cut))
    i, j = SELECTIONS[rows], SELECTIONS[columns]
    shift = np.array([0.5, -1.0, 0.0])
    expected = MATRICES[:, i][:, :, j]
    np.testing.assert_array_equal(family.tile(at(*i), at(*j)), expected)
    np.testing.assert_array_equal(family.tile(at(*i), at(*j), shift), expected - shift[:, None, None])
    np.testing.assert_array_equal(family.diag(at(*i)), MATRICES[:, i, i])


def test_a_plain_array_is_one_block_and_is_not_copied():
    matrices = MATRICES.copy()
    family = PrecomputedFamily(matrices)
    matrices[0, 2, 3] = 7.0
    assert family.tile(at(2), at(3))[0, 0, 0] == 7.0


def test_tiles_are_fresh_float64_also_from_float32():
    given = MATRICES.astype(np.float32)
    family = PrecomputedFamily(given)
    tile = family.tile(family.X, family.X)
    assert tile.dtype == np.float64
    np.testing.assert_array_equal(tile, given)
    tile[:] = 0
    np.testing.assert_array_equal(family.tile(family.X, family.X), given)


def test_names_and_subsets():
    family = PrecomputedFamily(blocks("uneven"), ["a", "b", "c"])
    part = family.subset([2, 0]).subset([1])
    assert (family.names, part.names, part.n_kernels) == (("a", "b", "c"), ("a",), 1)
    np.testing.assert_array_equal(part.tile(part.X, part.X), MATRICES[:1])
    assert PrecomputedFamily(MATRICES).names == ("matrix 0", "matrix 1", "matrix 2")


def test_rows_that_are_not_asked_for_are_not_read():
    class Watched(list):
        def __getitem__(self, index):
            read.add(index)
            return super().__getitem__(index)

    read: set[int] = set()
    family = PrecomputedFamily(Watched(blocks("uneven")))
    read.clear()
    family.tile(at(2, 3, 22), family.X)
    assert read == {1, 3}


def test_moments_and_learned_kernels_are_those_of_the_family_that_the_matrices_are_of():
    y, groups = np.sign(ROWS[:, 0]), np.arange(N) % 3
    family = PrecomputedFamily(blocks("uneven"), SOURCE.names)
    there, here = (gram_moments(f, X, y, groups).restrict([0, 2]) for f, X in ((family, family.X), (SOURCE, ROWS)))
    # The halves of a matrix differ by rounding, and so do the sums.
    np.testing.assert_allclose(there.frobenius, here.frobenius, rtol=1e-11)
    np.testing.assert_allclose(there.alignments, here.alignments, rtol=1e-11)
    one, two = (learn_kernel("alignf", f, X[5:], y[5:]) for f, X in ((family, family.X), (SOURCE, ROWS)))
    np.testing.assert_allclose(one.weights, two.weights, atol=1e-9)
    np.testing.assert_allclose(one.cross_gram(family.X[:5]), two.cross_gram(ROWS[:5]), atol=1e-9)


def changed(k: int, i: int, j: int, value: float) -> np.ndarray:
    matrices = MATRICES.copy()
    matrices[k, i, j] = value
    return matrices


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: PrecomputedFamily([]), "blocks must be an array of shape"),
        (lambda: PrecomputedFamily(MATRICES[0]), r"blocks must be an array .*got shapes \[\(23, 23\)\]"),
        (lambda: PrecomputedFamily(MATRICES[:0]), "give at least one matrix"),
        (lambda: PrecomputedFamily([MATRICES[:, :9], MATRICES[:2, 9:]]), "with the same p and n"),
        (lambda: PrecomputedFamily(MATRICES[:, :9]), "must make up square matrices, got 9 rows of 23 columns"),
        (lambda: PrecomputedFamily(np.zeros((1, 0, 0))), "must make up square matrices, got 0 rows"),
        (lambda: PrecomputedFamily(np.eye(4, dtype=int)[None]), "must be of float32 or float64, got int64"),
        (lambda: PrecomputedFamily(MATRICES, ["a"]), "names must have one entry a matrix, got 1 for 3"),
        (lambda: PrecomputedFamily(changed(1, 0, 22, 0.9)), "'matrix 1' is not symmetric"),
        (lambda: PrecomputedFamily(changed(2, 4, 5, np.nan)), "'matrix 2' holds NaN or infinity"),
    ],
)
def test_matrices_that_are_no_kernels_are_refused(make, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        make()


@pytest.mark.parametrize(
    ("X", "sentence"),
    [
        (at(0.5), "whole numbers from 0 to 22, got 0.5"),
        (at(1, 23), "whole numbers from 0 to 22, got 23"),
        (at(-1), "got -1"),
        (at(np.nan), "got nan"),
        (at(np.inf), "got inf"),
        (ROWS, r"must be a column of row positions, shape \(m, 1\).* got shape \(23, 3\)"),
        (sparse.csr_matrix(at(1)), "must be a column of row positions"),
    ],
)
def test_rows_that_are_no_positions_are_refused(X, sentence: str):
    family = PrecomputedFamily(MATRICES)
    for ask in (family.diag, lambda Z: family.tile(Z, at(1)), lambda Z: family.tile(at(1), Z)):
        with pytest.raises(ValueError, match=sentence):
            ask(X)


def test_what_is_not_finite_is_refused_when_it_is_read():
    size = 400
    matrices = np.tile(np.eye(size), (2, 1, 1))
    family = PrecomputedFamily(matrices)
    matrices[1, 7, 8] = np.inf  # outside the sample that is checked at the start
    assert np.isfinite(family.tile(at(0), family.X)).all()
    with pytest.raises(ValueError, match="'matrix 1' holds NaN or infinity"):
        family.tile(at(7), family.X)


@pytest.mark.parametrize("given", [[MATRICES[0], MATRICES[1]], MATRICES, "gaussian"], ids=["list", "array", "name"])
def test_matrices_that_are_no_family_are_refused_in_one_sentence_that_names_it(given: object):
    y = RNG.normal(size=N)
    said = r"family must be a family .* or None, got (list|ndarray|str); .* matrices .*PrecomputedFamily\("
    with pytest.raises(ValueError, match=said):
        learn_kernel("alignf", given, ROWS, y)
    with pytest.raises(ValueError, match=said):
        KernelLearningRegressor(given, "alignf").fit(ROWS, y)


def test_what_the_sentence_says_works():
    y = RNG.normal(size=N)
    learned = learn_kernel("alignf", PrecomputedFamily(np.stack(list(MATRICES))), np.arange(N)[:, None], y)
    np.testing.assert_allclose(learned.weights, learn_kernel("alignf", SOURCE, ROWS, y).weights, rtol=1e-9)
