"""First-stage statistics: one pass over tiles against textbook matrices, for every union of fold groups."""

import io
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from learnkernels import FamilyUnion, GaussianFamily, LinearFamily, PolynomialFamily, gram_moments
from learnkernels.kernels.engine.passes import MomentsPart, RowBlocks, TilePass, choose_shift
from learnkernels.kernels.engine.workers import Threads
from learnkernels.kernels.moments.gram import GramMoments
from tests.reference import (
    centered,
    frobenius_product,
    gaussian,
    gaussian_less_one,
    gram,
    grams,
    moment_matrix,
    moment_target,
    target_kernel,
    uncentered_alignment,
)

# Accumulated over tiles, against matrices in long double; the identities cancel a few digits at most.
TEXTBOOK = 1e-10

# Two ways of adding the same numbers.
REGROUPED = 1e-12


def targets(m: int, q: int, seed: int = 0) -> np.ndarray:
    Y = np.random.default_rng(seed).normal(size=(m, q)) + 0.8
    return Y[:, 0] if q == 1 else Y


def assert_same_moments(got: GramMoments, expected: GramMoments, rtol: float = REGROUPED) -> None:
    """Compare every statistic, relative to its own size (that of the largest kernel's for signed quantities)."""
    assert got.names == expected.names
    np.testing.assert_allclose(got.frobenius, expected.frobenius, rtol=rtol)
    np.testing.assert_allclose(got.target, expected.target, rtol=rtol, atol=rtol * np.abs(expected.target).max())
    np.testing.assert_allclose(got.centered_traces, expected.centered_traces, rtol=rtol)
    assert got.target_norm == pytest.approx(expected.target_norm, rel=rtol)


def assert_textbook(moments: GramMoments, Ks, Y: np.ndarray, rtol: float = TEXTBOOK) -> None:
    """Compare with explicitly centered matrices in long double."""
    L = centered(target_kernel(Y))
    np.testing.assert_allclose(moments.frobenius, moment_matrix(Ks).astype(float), rtol=rtol)
    np.testing.assert_allclose(moments.target, moment_target(Ks, Y).astype(float), rtol=rtol)
    np.testing.assert_allclose(moments.centered_traces, [float(np.trace(centered(K))) for K in Ks], rtol=rtol)
    np.testing.assert_allclose(moments.alignments, [uncentered_alignment(centered(K), L) for K in Ks], rtol=rtol)
    assert moments.target_norm == pytest.approx(float(np.sqrt(frobenius_product(L, L))), rel=rtol)


# One pass against matrices -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("q", "block_rows"), [(1, None), (1, 7), (3, 16), (3, 1)])
def test_moments_are_those_of_explicitly_centered_matrices(case, q, block_rows):
    Y = targets(case.X.shape[0], q)
    assert_textbook(gram_moments(case.family, case.X, Y, block_rows=block_rows), case.grams, Y)


def moved_grams(case, moments: GramMoments) -> np.ndarray:
    """Return the kernels as the pass saw them: of the rows less the origin, where that changes no centered kernel."""
    if not moments.origin.any():
        return case.grams
    return case.family.tile(case.X - moments.origin, case.X - moments.origin)


def test_row_means_are_those_of_the_kernels_less_the_shift(case):
    moments = gram_moments(case.family, case.X, targets(case.X.shape[0], 1), block_rows=9)
    for k, K in enumerate(moved_grams(case, moments)):
        expected = K.mean(axis=1).astype(float) - moments.shift[k]
        np.testing.assert_allclose(moments.row_means[k], expected, rtol=0, atol=1e-12 * case.sizes[k, 0, 0])


def test_alignment_of_a_combination_is_that_of_the_combined_matrix(case):
    Y = targets(case.X.shape[0], 1)
    moments = gram_moments(case.family, case.X, Y, block_rows=11)
    mu = np.random.default_rng(1).random(case.family.n_kernels)
    K = sum(weight * K for weight, K in zip(mu, case.grams, strict=True))
    expected = uncentered_alignment(centered(K), centered(target_kernel(Y)))
    assert moments.alignment(mu) == pytest.approx(expected, rel=TEXTBOOK)
    for k in range(case.family.n_kernels):
        unit = np.eye(case.family.n_kernels)[k]
        assert moments.alignment(unit) == pytest.approx(moments.alignments[k], rel=1e-12)


@pytest.mark.parametrize("block_rows", [1, 2, 8, 40, 41, 1000])
def test_the_size_of_a_tile_does_not_matter(block_rows):
    rng = np.random.default_rng(2)
    X, Y = rng.normal(size=(41, 3)), rng.normal(size=41)
    family = GaussianFamily([0.2, 0.4, 3.0])
    assert_same_moments(gram_moments(family, X, Y, block_rows=block_rows), gram_moments(family, X, Y))


def test_M_is_exactly_symmetric_and_positive_semi_definite(case):
    M = gram_moments(case.family, case.X, targets(case.X.shape[0], 1), block_rows=8).frobenius
    np.testing.assert_array_equal(M, M.T)
    assert np.linalg.eigvalsh(M).min() >= -1e-12 * np.trace(M)


def test_the_order_of_the_rows_does_not_matter(case):
    m = case.X.shape[0]
    Y, order = targets(m, 2), np.random.default_rng(3).permutation(m)
    shuffled = gram_moments(case.family, case.X[order], Y[order], block_rows=10)
    # The sample that chooses the shift follows the rows' order, so other digits cancel.
    assert_same_moments(shuffled, gram_moments(case.family, case.X, Y, block_rows=10), rtol=TEXTBOOK)


def test_a_constant_added_to_the_targets_does_not_matter():
    rng = np.random.default_rng(4)
    X, Y = rng.normal(size=(35, 3)), rng.normal(size=(35, 2))
    family = GaussianFamily([0.3, 1.0])
    # Adding 1e3 rounds the targets to 1e-13 of their spread.
    assert_same_moments(gram_moments(family, X, Y + 1e3), gram_moments(family, X, Y), rtol=TEXTBOOK)


def test_two_rows_are_enough():
    X, Y = np.array([[0.0, 1.0], [2.0, 0.5]]), np.array([1.0, -2.0])
    family = FamilyUnion([GaussianFamily([0.5]), LinearFamily()])
    Ks = [gram(gaussian(0.5), X), (X @ X.T).astype(np.longdouble)]
    for block_rows in (1, 2):
        moments = gram_moments(family, X, Y, block_rows=block_rows)
        assert_textbook(moments, Ks, Y)
        # Two centered rows leave one direction, along which every kernel lies.
        np.testing.assert_allclose(moments.alignments, 1.0, rtol=1e-12)


def test_rows_targets_and_groups_are_not_modified():
    rng = np.random.default_rng(5)
    X, Y, groups = rng.normal(size=(30, 3)), rng.normal(size=(30, 2)), rng.integers(0, 3, size=30)
    for given_array in (X, Y, groups):
        given_array.flags.writeable = False
    gram_moments(GaussianFamily([0.5, 1.0]), X, Y, groups, block_rows=7)
    rows = sparse.csr_matrix(X)
    gram_moments(GaussianFamily([0.5, 1.0]), rows, Y, groups, block_rows=7)
    assert (rows != sparse.csr_matrix(X)).nnz == 0


# Uncentered ----------------------------------------------------------------------------------------------------------


def assert_textbook_uncentered(moments, Ks, Y: np.ndarray, rtol: float = TEXTBOOK) -> None:
    """Compare with products of matrices as they are, in long double."""
    L = target_kernel(Y)
    M = np.array([[frobenius_product(K, K_) for K_ in Ks] for K in Ks]).astype(float)
    norms = np.sqrt(np.diag(M))
    # Kernels that are nearly orthogonal cancel: relative to their norms.
    found = moments.uncentered_frobenius / np.outer(norms, norms)
    np.testing.assert_allclose(found, M / np.outer(norms, norms), rtol=0, atol=rtol)
    np.testing.assert_allclose(moments.uncentered_frobenius_diagonal, norms**2, rtol=rtol)
    a = np.array([frobenius_product(K, L) for K in Ks]).astype(float)
    norm = float(np.sqrt(frobenius_product(L, L)))
    assert moments.uncentered_target_norm == pytest.approx(norm, rel=rtol)
    np.testing.assert_allclose(moments.uncentered_target / (norms * norm), a / (norms * norm), rtol=0, atol=rtol)
    aligned = [uncentered_alignment(K, L) for K in Ks]
    np.testing.assert_allclose(moments.uncentered_alignments, aligned, rtol=0, atol=rtol)


@pytest.mark.parametrize(("q", "block_rows"), [(1, None), (3, 7)])
def test_uncentered_statistics_are_those_of_the_matrices_as_they_are(case, q, block_rows):
    Y = targets(case.X.shape[0], q)
    moments = gram_moments(case.family, case.X, Y, block_rows=block_rows, keep_origin=True)
    assert not moments.origin.any()
    assert_textbook_uncentered(moments, case.grams, Y)
    assert_textbook(moments, case.grams, Y)
    np.testing.assert_array_equal(moments.uncentered_frobenius, moments.uncentered_frobenius.T)


@pytest.mark.parametrize("kept", [[0], [17, -4], [-4, 0, 3, 17]])
def test_uncentered_statistics_of_some_groups_are_those_of_their_rows_alone(case, kept):
    m = case.X.shape[0]
    groups = LABELS[np.random.default_rng(9).permutation(np.arange(m) % len(LABELS))]
    Y, held = targets(m, 2, seed=10), np.isin(groups, kept)
    moments = gram_moments(case.family, case.X, Y, groups, block_rows=4, keep_origin=True)
    Ks = [K[np.ix_(held, held)] for K in case.grams]
    assert_textbook_uncentered(moments.restrict(kept), Ks, Y[held])


def test_rows_need_not_stay_where_moving_them_changes_no_kernel(case):
    Y = targets(case.X.shape[0], 1)
    moments = gram_moments(case.family, case.X, Y)
    if moments.raw:
        assert_textbook_uncentered(moments, case.grams, Y)
        return
    assert moments.origin.any()
    for name in ("frobenius", "frobenius_diagonal", "target", "alignments"):
        with pytest.raises(ValueError, match="moved to their mean; pass keep_origin=True to gram_moments"):
            getattr(moments, f"uncentered_{name}")


@pytest.mark.parametrize(
    ("family", "raw"),
    [
        (LinearFamily(), False),
        (GaussianFamily([0.5]), True),
        (PolynomialFamily([1], coef0=0.0), True),
        (FamilyUnion([GaussianFamily([0.5]), LinearFamily()]), False),
        (FamilyUnion([GaussianFamily([0.5]), GaussianFamily([2.0])]), True),
        # A union with a kernel that moving changes is not moved at all.
        (FamilyUnion([LinearFamily(), PolynomialFamily([2])]), True),
    ],
)
def test_moments_know_whether_their_kernels_are_those_of_the_rows_as_given(family, raw):
    X, Y = np.random.default_rng(20).normal(size=(20, 3)), np.arange(20.0)
    assert gram_moments(family, X, Y).raw == raw
    assert gram_moments(family, X, Y, keep_origin=True).raw
    assert gram_moments(family, sparse.csr_matrix(X), Y).raw
    assert gram_moments(family, np.round(np.vstack([X, -X])), np.arange(40.0)).raw  # the mean of whole numbers is zero


@pytest.mark.parametrize("offset", [0.0, 1.0, -30.0, 1e4])
def test_uncentered_statistics_follow_a_constant_added_to_the_targets(offset):
    rng = np.random.default_rng(21)
    X, Y = rng.normal(size=(30, 3)), rng.normal(size=(30, 2)) + offset
    groups = np.arange(30) % 3
    family, kernels = GaussianFamily([2.0**-12, 0.3, 9.0]), [gaussian(2.0**-12), gaussian(0.3), gaussian(9.0)]
    held = groups != 1
    moments = gram_moments(family, X, Y, groups).restrict([0, 2])
    assert_textbook_uncentered(moments, grams(kernels, X[held]), Y[held])


@pytest.mark.parametrize("ones", [1, 3, 10, 17, 19])
def test_two_points_align_without_centering_by_their_shares_alone(ones):
    """Figure 1 of JMLR 2012: K = x.x' + 1 on (-1, 0) with label -1 and (1, 0) with label +1."""
    y = np.where(np.arange(20) < ones, -1.0, 1.0)
    X = np.column_stack([y, np.zeros(20)])
    share = ones / 20
    moments = gram_moments(PolynomialFamily([1], gamma=1.0, coef0=1.0), X, y, np.arange(20) % 5)
    assert moments.uncentered_alignments[0] == pytest.approx(np.hypot(share, 1 - share), rel=1e-14)
    assert moments.alignments[0] == pytest.approx(1.0, rel=1e-14)


def test_a_kernel_that_is_zero_has_alignment_zero_with_and_without_centering():
    X, Y = np.column_stack([np.arange(8.0), np.zeros(8)]), np.arange(8.0)
    family = FamilyUnion([LinearFamily(), LinearFamily()], [[0], [1]])
    moments = gram_moments(family, X, Y, keep_origin=True)
    np.testing.assert_array_equal(moments.constant, [False, True])
    np.testing.assert_allclose(moments.alignments, [1, 0], rtol=1e-14)
    np.testing.assert_allclose(moments.uncentered_alignments, [1, 0], rtol=1e-14)


def test_kernels_that_are_constant_up_to_rounding_are_marked():
    groups, x = np.arange(12) % 2, np.arange(12.0)
    X = np.column_stack([x, np.full(12, 0.1), np.where(groups == 1, 0.37, x)])
    parts = [LinearFamily(), GaussianFamily([0.5]), PolynomialFamily([2]), PolynomialFamily([3])]
    moments = gram_moments(FamilyUnion(parts, [[0], [1], [1], [2]]), X, x, groups, keep_origin=True)
    # The last kernel is constant on one group alone, far from what was subtracted from it for all rows.
    for part, last in ((moments, False), (moments.restrict([1]), True)):
        np.testing.assert_array_equal(part.constant, [False, True, True, last])
        np.testing.assert_array_equal(part.alignments == 0, part.constant)
        with pytest.raises(ValueError, match=r"base kernel gaussian.*, polynomial.* is constant on the"):
            part.refuse_constants()


# Digits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gammas", [[2.0**-20], [2.0**-26], [2.0**-26, 2.0**-20, 2.0**-19, 1.0]])
def test_nearly_constant_kernels_keep_their_digits(gammas):
    rng = np.random.default_rng(6)
    X, Y = rng.normal(size=(60, 5)), rng.normal(size=60)
    moments = gram_moments(GaussianFamily(gammas), X, Y, block_rows=16)
    Ks = [gram(gaussian_less_one(gamma), X) for gamma in gammas]  # less a constant: the same once centered
    # Relative to M itself, which is 1e-12 for the smallest bandwidth: accumulating exp would leave one digit of it.
    assert_textbook(moments, Ks, Y, rtol=1e-9)


def test_kernels_that_are_nearly_the_identity_keep_their_digits():
    rng = np.random.default_rng(7)
    X, Y = rng.normal(size=(50, 6)), rng.normal(size=50)
    assert_textbook(gram_moments(GaussianFamily([8.0, 200.0]), X, Y), grams([gaussian(8.0), gaussian(200.0)], X), Y)


def test_gaussians_far_from_the_origin_keep_their_digits():
    rng = np.random.default_rng(8)
    X, Y = rng.normal(size=(50, 3)) + 1e4, rng.normal(size=50)
    gammas = [0.01, 0.02, 0.5]
    moments = gram_moments(GaussianFamily(gammas), X, Y, block_rows=13)
    assert_textbook(moments, grams([gaussian(gamma) for gamma in gammas], X), Y)


# Fold groups ---------------------------------------------------------------------------------------------------------

LABELS = np.array([-4, 0, 3, 17])


def grouped(case):
    """Return targets, groups with labels that are not contiguous, and the moments of all rows."""
    m = case.X.shape[0]
    groups = LABELS[np.random.default_rng(9).permutation(np.arange(m) % len(LABELS))]
    Y = targets(m, 2, seed=10)
    return Y, groups, gram_moments(case.family, case.X, Y, groups, block_rows=4)


def test_products_are_kept_apart_by_the_groups_of_rows_and_of_columns(case):
    _, groups, moments = grouped(case)
    for g, h in np.ndindex(4, 4):
        block = np.ix_(groups == LABELS[g], groups == LABELS[h])
        parts = [K[block] - shift for K, shift in zip(moved_grams(case, moments), moments.shift, strict=True)]
        expected = np.array([[frobenius_product(K, L) for L in parts] for K in parts]).astype(float)
        # Signed sums: relative to the norms of the two factors.
        norms = np.sqrt(np.diag(expected))
        np.testing.assert_allclose(
            moments.products[g, h] / norms[:, None] / norms, expected / norms[:, None] / norms, rtol=0, atol=TEXTBOOK
        )


@pytest.mark.parametrize("kept", [[0], [17, -4], [3, 0, 17], [-4, 0, 3, 17]])
def test_restricting_to_groups_gives_the_moments_of_their_rows_alone(case, kept):
    Y, groups, moments = grouped(case)
    held = np.isin(groups, kept)
    restricted = moments.restrict(kept)
    Ks = [K[np.ix_(held, held)] for K in case.grams]
    assert_textbook(restricted, Ks, Y[held])
    assert restricted.labels == tuple(sorted(kept))
    assert restricted.n_rows == held.sum()


def test_the_moments_of_all_groups_are_those_without_groups(case):
    Y, _, moments = grouped(case)
    assert_same_moments(moments, gram_moments(case.family, case.X, Y), rtol=TEXTBOOK)


def test_restricting_in_two_steps_is_restricting_once():
    rng = np.random.default_rng(11)
    X, Y, groups = rng.normal(size=(40, 3)), rng.normal(size=40), rng.integers(0, 5, size=40)
    moments = gram_moments(GaussianFamily([0.2, 0.9]), X, Y, groups, block_rows=6)
    assert_same_moments(moments.restrict([0, 2, 3, 4]).restrict([4, 2]), moments.restrict([2, 4]))


def test_a_restriction_names_its_rows_and_their_groups():
    groups = np.array([5, 2, 5, 9, 2, 9, 5])
    X = np.arange(14.0).reshape(7, 2)
    moments = gram_moments(GaussianFamily([0.01]), X, np.arange(7.0), groups, block_rows=2).restrict([9, 2])
    np.testing.assert_array_equal(moments.rows, [1, 4, 3, 5])
    np.testing.assert_array_equal(np.array(moments.labels)[moments.group], [2, 2, 9, 9])
    # Targets less the mean over all rows of the pass.
    np.testing.assert_array_equal(moments.targets[:, 0], np.array([1.0, 4.0, 3.0, 5.0]) - 3.0)


def test_restricting_leaves_the_whole_as_it_was():
    rng = np.random.default_rng(12)
    X, Y, groups = rng.normal(size=(30, 3)), rng.normal(size=30), np.arange(30) % 3
    moments = gram_moments(GaussianFamily([0.2, 0.9]), X, Y, groups)
    before = {name: value.copy() for name, value in moments.to_arrays().items()}
    moments.restrict([1])
    for name, value in moments.to_arrays().items():
        np.testing.assert_array_equal(value, before[name])


def test_groups_of_a_single_row_are_held_apart_too():
    rng = np.random.default_rng(13)
    X, Y = rng.normal(size=(12, 3)), rng.normal(size=12)
    family = GaussianFamily([0.3, 0.6])
    moments = gram_moments(family, X, Y, np.arange(12)[::-1])
    kept = [1, 4, 5, 11]
    rows = [11 - g for g in kept]
    assert_same_moments(moments.restrict(kept), gram_moments(family, X[rows], Y[rows]), rtol=TEXTBOOK)


def test_sparse_rows_give_the_moments_of_the_same_dense_rows():
    rng = np.random.default_rng(14)
    X = rng.normal(size=(40, 8)) * (rng.random((40, 8)) < 0.4)
    Y, groups = rng.normal(size=(40, 3)), np.arange(40) % 3
    family = FamilyUnion([GaussianFamily([0.2, 0.4]), LinearFamily(), PolynomialFamily([2])], [None, [0, 3], None])
    dense = gram_moments(family, X, Y, groups, block_rows=7)
    csr = gram_moments(family, sparse.csr_matrix(X), Y, groups, block_rows=7)
    assert_same_moments(csr, dense)
    assert_same_moments(csr.restrict([0, 2]), dense.restrict([0, 2]))


# Parts ---------------------------------------------------------------------------------------------------------------


def split_pass(super_rows: int, seed: int = 15):
    """Return a small pass cut into parts, and the moments of the whole."""
    rng = np.random.default_rng(seed)
    X, Y, groups = rng.normal(size=(31, 3)), rng.normal(size=(31, 2)), np.arange(31) % 3
    family = GaussianFamily([0.25, 0.5])
    whole = gram_moments(family, X, Y, groups, block_rows=4)
    blocks = RowBlocks.of(groups, 4)
    origin = X.mean(axis=0)
    target_mean = Y.mean(axis=0)
    X, Y = (X - origin)[blocks.order], (Y - target_mean)[blocks.order]
    shift = choose_shift(family, X)
    over = TilePass(family, X, Y, blocks, shift)
    parts = [over.part(None, pairs) for pairs in blocks.super_tiles(super_rows)]

    def finish(part: MomentsPart) -> GramMoments:
        return GramMoments.from_part(family, blocks, Y, target_mean, shift, origin, part)

    return parts, finish, whole


@pytest.mark.parametrize("super_rows", [1, 9, 100])
def test_super_tiles_added_up_are_the_whole_pass(super_rows):
    parts, finish, whole = split_pass(super_rows)
    assert_same_moments(finish(reduce(MomentsPart.__add__, parts)), whole)


@settings(max_examples=25)
@given(data=st.data())
def test_parts_may_be_added_in_any_order_and_grouping(data):
    parts, finish, whole = split_pass(super_rows=9)
    parts = data.draw(st.permutations(parts))
    while len(parts) > 1:
        i = data.draw(st.integers(0, len(parts) - 2))
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    assert_same_moments(finish(parts[0]), whole)
    assert_same_moments(finish(parts[0]).restrict([0, 2]), whole.restrict([0, 2]))


def test_adding_parts_changes_neither():
    parts, _, _ = split_pass(super_rows=9)
    first, second = parts[:2]
    products, sums = first.products.copy(), {block: value.copy() for block, value in second.row_sums.items()}
    first + second
    np.testing.assert_array_equal(first.products, products)
    assert second.row_sums.keys() == sums.keys()
    for block, value in sums.items():
        np.testing.assert_array_equal(second.row_sums[block], value)


def test_the_empty_part_adds_nothing():
    parts, finish, whole = split_pass(super_rows=100)
    zero = MomentsPart.zero(3, 2)
    assert_same_moments(finish(zero + reduce(MomentsPart.__add__, parts) + zero), whole)


class Backwards(Threads):
    """Workers that begin with the last of many small tasks."""

    def super_tile(self, n_rows, row_bytes):
        return 8

    def total(self, step, shared, argument, tasks):
        assert len(tasks) > 5
        return super().total(step, shared, argument, tasks[::-1])


@pytest.mark.parametrize("sample_weight", [None, np.arange(1, 31)])
def test_other_workers_may_do_the_pass(sample_weight):
    rng = np.random.default_rng(16)
    X, Y, groups = rng.normal(size=(30, 3)), rng.normal(size=30), np.arange(30) % 2
    family, weighted = GaussianFamily([0.3, 0.6]), {"sample_weight": sample_weight}
    there = gram_moments(family, X, Y, groups, block_rows=5, workers=Backwards(), **weighted)
    assert_same_moments(there, gram_moments(family, X, Y, groups, **weighted))


# Row blocks ----------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    groups=st.lists(st.integers(-3, 3), min_size=1, max_size=60),
    block_rows=st.integers(1, 25),
    super_rows=st.integers(1, 70),
)
def test_super_tiles_hold_every_unordered_pair_of_blocks_once(groups, block_rows, super_rows):
    blocks = RowBlocks.of(np.array(groups), block_rows)
    pairs = [pair for tile in blocks.super_tiles(super_rows) for pair in tile]
    assert sorted(pairs) == [(i, j) for i in range(len(blocks)) for j in range(i, len(blocks))]


@settings(max_examples=60)
@given(groups=st.lists(st.integers(-3, 3), min_size=1, max_size=60), block_rows=st.integers(1, 25))
def test_blocks_hold_every_row_once_and_straddle_no_groups(groups, block_rows):
    groups = np.array(groups)
    blocks = RowBlocks.of(groups, block_rows)
    rows = [blocks.order[blocks.rows(b)] for b in range(len(blocks))]
    assert sorted(np.concatenate(rows)) == list(range(len(groups)))
    for b, members in enumerate(rows):
        assert 1 <= len(members) <= block_rows
        assert set(groups[members]) == {blocks.labels[blocks.group[b]]}
    # Stable: within a group rows keep their order.
    for label in blocks.labels:
        members = blocks.order[groups[blocks.order] == label]
        np.testing.assert_array_equal(members, np.sort(members))


# Storing -------------------------------------------------------------------------------------------------------------


def test_moments_survive_a_file_without_pickle(case):
    _, _, moments = grouped(case)
    file = io.BytesIO()
    np.savez(file, **moments.to_arrays())
    file.seek(0)
    with np.load(file, allow_pickle=False) as stored:
        back = GramMoments.from_arrays({name: stored[name] for name in stored.files})
    assert (back.names, back.labels) == (moments.names, moments.labels)
    np.testing.assert_array_equal(back.frobenius, moments.frobenius)
    np.testing.assert_array_equal(back.target, moments.target)
    np.testing.assert_array_equal(back.restrict([3, 17]).frobenius, moments.restrict([3, 17]).frobenius)
    assert back.target_norm == moments.target_norm
    assert back.raw == moments.raw
    if moments.raw:
        np.testing.assert_array_equal(back.uncentered_target, moments.uncentered_target)


# Errors --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "Y", "groups", "sentence"),
    [
        (1, np.ones(1), None, "X must have at least two rows, got 1"),
        (4, np.ones(3), None, "Y and groups must have one entry a row of X, got 3 and 4 for 4 rows"),
        (4, np.ones(4), np.zeros(5, dtype=int), "Y and groups must have one entry a row of X, got 4 and 5 for 4 rows"),
        (4, np.array([1.0, np.nan, 0.0, 2.0]), None, "Y must be finite, got NaN or infinity"),
        (4, np.array([1.0, np.inf, 0.0, 2.0]), None, "Y must be finite, got NaN or infinity"),
    ],
)
def test_data_that_do_not_fit_together_are_refused(rows, Y, groups, sentence):
    with pytest.raises(ValueError, match=sentence):
        gram_moments(GaussianFamily([1.0]), np.ones((rows, 2)), Y, groups)


@pytest.mark.parametrize("kept", [[], [7], [0, 7]])
def test_only_groups_that_are_held_can_be_kept(kept):
    rng = np.random.default_rng(17)
    moments = gram_moments(GaussianFamily([1.0]), rng.normal(size=(9, 2)), rng.normal(size=9), np.arange(9) % 3)
    with pytest.raises(ValueError, match=r"groups must be some of \[0, 1, 2\], got \["):
        moments.restrict(kept)


def test_a_pass_with_blocks_missing_is_refused():
    parts, finish, _ = split_pass(super_rows=1)
    with pytest.raises(ValueError, match="part must cover every row block, 9 of 9 are missing"):
        finish(parts[1])
