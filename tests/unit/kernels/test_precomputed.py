"""Base kernels given as matrices: the entries at row positions, and one sentence for the rest."""

from functools import partial
from itertools import pairwise, product

import numpy as np
import pytest
from scipy import sparse

from learnkernels import GaussianFamily, KernelLearningRegressor, PrecomputedFamily, learn_kernel
from tests.refusals import require_refusals

RNG = np.random.default_rng(0)
N = 23
ROWS = RNG.normal(size=(N, 3))
SOURCE = GaussianFamily([0.1, 0.2, 1.5])
MATRICES = SOURCE.tile(ROWS, ROWS)
MATRICES.flags.writeable = False


def at(*positions: int) -> np.ndarray:
    return np.array(positions, dtype=np.float64)[:, None]


SELECTED = [range(N), range(5, 17), range(0, N, 3), RNG.permutation(N), [4, 4, 0, 22, 9, 4], [8], []]
SELECTIONS = [np.array(rows, dtype=int) for rows in SELECTED]


@pytest.mark.parametrize("given", [MATRICES, list(MATRICES)], ids=["array", "list"])
def test_a_tile_is_the_entries_at_the_positions(given):
    family, shift = PrecomputedFamily(given), np.array([0.5, -1.0, 0.0])
    part = family.subset([2, 0]).subset([1])
    np.testing.assert_array_equal(part.tile(part.X, part.X), MATRICES[:1])
    for i, j in product(SELECTIONS, SELECTIONS):
        expected = MATRICES[:, i][:, :, j]
        np.testing.assert_array_equal(family.tile(at(*i), at(*j)), expected)
        np.testing.assert_array_equal(family.tile(at(*i), at(*j), shift), expected - shift[:, None, None])
        np.testing.assert_array_equal(family.diag(at(*i)), MATRICES[:, i, i])


def test_arrays_are_not_copied_and_tiles_are_fresh_float64():
    given = MATRICES.astype(np.float32)
    family = PrecomputedFamily(given)
    assert family.names == ("matrix 0", "matrix 1", "matrix 2")
    given[0, 2, 3] = 7.0
    tile = family.tile(family.X, family.X)
    assert tile.dtype == np.float64
    np.testing.assert_array_equal(tile, given)
    tile[:] = 0
    np.testing.assert_array_equal(family.tile(family.X, family.X), given)


def test_kernels_that_are_not_asked_for_are_not_read():
    class Watched(list):
        def __getitem__(self, index):
            read.add(index)
            return super().__getitem__(index)

    read: set[int] = set()
    family = PrecomputedFamily(Watched(MATRICES)).subset([2, 0])
    read.clear()
    family.tile(at(2, 3, 22), family.X)
    assert read == {0, 2}


def test_blocks_of_rows_are_deprecated():
    for blocks in ([MATRICES[:, start:stop] for start, stop in pairwise([0, 1, 9, 22, N])], MATRICES):
        with pytest.warns(FutureWarning, match=r"deprecated since version 0\.3"):
            family = PrecomputedFamily(blocks=blocks)
        np.testing.assert_array_equal(family.tile(family.X, family.X), MATRICES)
    with pytest.warns(FutureWarning, match="give matrices"):
        assert PrecomputedFamily([MATRICES[:, :9], MATRICES[:, 9:]]).n_rows == N


def changed(k: int, i: int, j: int, value: float) -> np.ndarray:
    matrices = MATRICES.copy()
    matrices[k, i, j] = value
    return matrices


NO_KERNELS = [
    (lambda: PrecomputedFamily([]), "matrices must be an array of shape"),
    (lambda: PrecomputedFamily(MATRICES[0]), r"matrices must be an array .*got shapes \[\(23,\), "),
    (lambda: PrecomputedFamily(MATRICES[:0]), "give at least one matrix"),
    (lambda: PrecomputedFamily([MATRICES[0], MATRICES[1, :2, :2]]), "or p arrays of shape .n, n."),
    (lambda: PrecomputedFamily(MATRICES[:, :9]), r"got shapes \[\(9, 23\), "),
    (lambda: PrecomputedFamily(np.zeros((1, 0, 0))), "give at least one matrix"),
    (lambda: PrecomputedFamily(np.eye(4, dtype=int)[None]), "must be of float32 or float64, got int64"),
    (lambda: PrecomputedFamily(MATRICES, ["a"]), "names must have one entry per matrix, got 1 for 3"),
    (lambda: PrecomputedFamily(changed(1, 0, 22, 0.9)), "'matrix 1' is not symmetric"),
    (lambda: PrecomputedFamily(changed(2, 4, 5, np.nan)), "'matrix 2' holds NaN or infinity"),
]

NO_POSITIONS = [
    (at(0.5), "whole numbers from 0 to 22, got 0.5"),
    (at(1, 23), "whole numbers from 0 to 22, got 23"),
    (at(-1), "got -1"),
    (at(np.nan), "got nan"),
    (at(np.inf), "got inf"),
    (ROWS, r"must be a column of row positions, shape \(m, 1\).* got shape \(23, 3\)"),
    (sparse.csr_matrix(at(1)), "must be a column of row positions"),
]


def test_matrices_that_are_no_kernels_and_rows_that_are_no_positions_are_refused():
    require_refusals(NO_KERNELS)
    family, one = PrecomputedFamily(MATRICES), at(1)
    for ask in (family.diag, lambda Z: family.tile(Z, one), lambda Z: family.tile(one, Z)):
        require_refusals((partial(ask, X), said) for X, said in NO_POSITIONS)


def test_what_is_not_finite_is_refused_when_it_is_read():
    matrices = np.tile(np.eye(400), (2, 1, 1))
    family = PrecomputedFamily(matrices)
    matrices[1, 7, 8] = np.inf  # outside the sample that is checked at the start
    assert np.isfinite(family.tile(at(0), family.X)).all()
    require_refusals([(lambda: family.tile(at(7), family.X), "'matrix 1' holds NaN or infinity")])


def test_matrices_that_are_no_family_are_refused_and_what_the_sentence_says_works():
    y = RNG.normal(size=N)
    said = r"family must be a family .* or None, got (list|ndarray|str); .* matrices .*PrecomputedFamily\("
    for given in ([MATRICES[0], MATRICES[1]], MATRICES, "gaussian"):
        model = KernelLearningRegressor(given, "alignf")
        require_refusals([(partial(learn_kernel, "alignf", given, ROWS, y), said), (partial(model.fit, ROWS, y), said)])
    learned = learn_kernel("alignf", PrecomputedFamily(np.stack(list(MATRICES))), np.arange(N)[:, None], y)
    np.testing.assert_allclose(learned.weights, learn_kernel("alignf", SOURCE, ROWS, y).weights, rtol=1e-9)
