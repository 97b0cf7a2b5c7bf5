"""Families of base kernels: values, and the properties that the engine relies on."""

import re

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer
from sklearn.metrics.pairwise import cosine_similarity

from learnkernels import (
    CategoricalFamily,
    CosineFamily,
    FamilyUnion,
    GaussianFamily,
    LaplacianFamily,
    LinearFamily,
    PolynomialFamily,
    center_gram,
)
from learnkernels.kernels.families import DirichletFamily, MetricFamily, NormalScoresFamily
from learnkernels.kernels.families.cosine import require_directions
from learnkernels.kernels.families.normal_scores import KNOTS, normal_scores
from tests.reference import (
    absolute_distance,
    centered,
    dirichlet,
    gaussian,
    gaussian_less_one,
    gram,
    laplacian_less_one,
    linear,
    squared_distance,
)

# Values on unit-scale data: a dozen operations of rounding, and the expanded squared distance loses eps |x|^2.
UNIT = 1e-12


def snapshot(X):
    return X.copy() if sparse.issparse(X) else np.array(X)


def same_rows(X, Z) -> bool:
    return (X != Z).nnz == 0 if sparse.issparse(X) else np.array_equal(X, Z)


# Every family --------------------------------------------------------------------------------------------------------


def test_tile_of_two_blocks_is_the_kernel_of_each_pair(case):
    tile = case.family.tile(case.X[:13], case.X[13:])
    assert case.tile_error(tile, slice(0, 13), slice(13, None)) <= UNIT


def test_tile_of_one_block_is_the_kernel_of_each_pair(case):
    assert case.tile_error(case.family.tile(case.X, case.X)) <= UNIT


def test_kernels_of_mapped_rows_are_those_of_the_rows(case):
    family, mapped = case.family.mapped_once(case.X)
    assert family.n_kernels == case.family.n_kernels
    assert case.family.n_mapped(case.X.shape[1]) == mapped.shape[1] or isinstance(case.family, FamilyUnion)
    np.testing.assert_allclose(family.tile(mapped, mapped), case.family.tile(case.X, case.X), rtol=0, atol=UNIT)


def test_rows_are_mapped_by_the_one_metric_that_there_is():
    X, map_ = np.random.default_rng(0).normal(size=(6, 5)), np.random.default_rng(1).normal(size=(3, 2))
    metric = MetricFamily(GaussianFamily([1.0]), map_)
    alone = FamilyUnion([metric], [[0, 2, 4]])
    family, mapped = alone.mapped_once(X)
    assert family == GaussianFamily([1.0])
    np.testing.assert_array_equal(mapped, X[:, [0, 2, 4]] @ map_)
    two = FamilyUnion([metric, metric], [[0, 2, 4], [1, 2, 3]])
    assert two.mapped_once(X)[0] is two
    assert (
        alone.n_mapped(5),
        two.n_mapped(5),
        FamilyUnion([metric, GaussianFamily([1.0])], [[0, 2, 4], None]).n_mapped(5),
    ) == (
        2,
        2,
        5,
    )
    weighed = FamilyUnion([MetricFamily(GaussianFamily([1.0]), [1.0, 2.0, 0.0])])
    assert weighed.mapped_once(X[:, :3])[0] is weighed  # which cost little, and leave sparse rows sparse


def test_normal_scores_are_those_of_ranks_and_know_copies_by_weights():
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.exponential(size=60), np.arange(60) % 3, np.zeros(60), rng.normal(size=60) > 0])
    knots = normal_scores(X)
    np.testing.assert_array_equal(knots[0][:, 0], np.sort(X[:, 0]))
    np.testing.assert_allclose(knots[0][:, 1], norm.ppf((np.arange(60) + 0.5) / 60), rtol=0, atol=1e-12)
    np.testing.assert_allclose(knots[1], [[0, norm.ppf(1 / 6)], [1, 0], [2, norm.ppf(5 / 6)]], rtol=0, atol=1e-12)
    assert knots[2] is knots[3] is None
    w = rng.integers(1, 4, 60)
    for one, other in zip(normal_scores(X, w.astype(float)), normal_scores(np.repeat(X, w, axis=0)), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12) if one is not None else None
    units = np.array([3.0, 0.1, 1.0, 5.0])
    moved = normal_scores(units * X - 7.0)
    np.testing.assert_array_equal(moved[0][:, 1], knots[0][:, 1])
    many = normal_scores(rng.normal(size=(5000, 1)))[0]
    assert len(many) == KNOTS
    assert np.abs(np.diff(norm.cdf(many[:, 1])) * (KNOTS - 1) - 1).max() < 0.05  # of equal distance in rank


def test_kernels_of_normal_scores_are_those_of_features_beside_them():
    X = np.random.default_rng(3).normal(size=(12, 3))
    knots = normal_scores(X[:8])
    base = GaussianFamily([0.3, 1.2])
    family = NormalScoresFamily(base, [knots[0], None, knots[2]])
    beside = np.column_stack([X, *(np.interp(X[:, j], knots[j][:, 0], knots[j][:, 1]) for j in (0, 2))])
    np.testing.assert_allclose(family.tile(X, X[:5]), base.tile(beside, beside[:5]), rtol=0, atol=UNIT)
    assert not family.translation_invariant
    assert not family.takes_sparse
    assert family.n_mapped(3) == 5
    with pytest.raises(ValueError, match="X must have the 3 features that there are knots for, got 2"):
        family.tile(X[:, :2], X[:, :2])


@pytest.mark.parametrize(
    "knots", [[[1.0, 2.0]], [[[1.0, 0.0]]], [[[1.0, 0.0], [1.0, 0.5]]], [[[1.0, np.nan], [2.0, 1.0]]]]
)
def test_knots_that_are_none_are_refused(knots):
    with pytest.raises(ValueError, match="two and more ascending values with their scores, not so for feature 0"):
        NormalScoresFamily(GaussianFamily([1.0]), knots)


def test_a_shift_is_subtracted_from_each_kernel(case):
    shift = np.linspace(-0.7, 1.3, case.family.n_kernels)
    tile = case.family.tile(case.X[:13], case.X[13:], shift)
    assert case.tile_error(tile, slice(0, 13), slice(13, None), shift) <= UNIT


def test_diag_is_the_diagonal_of_a_tile(case):
    diagonal = np.einsum("kaa->ka", case.family.tile(case.X, case.X))
    np.testing.assert_allclose(case.family.diag(case.X), diagonal, rtol=0, atol=UNIT * case.sizes.max())


def test_a_subset_keeps_the_kernels_named_in_the_order_named(case):
    p = case.family.n_kernels
    whole = case.family.tile(case.X[:9], case.X[9:])
    # A bandwidth whose half is left out gets its own exponential, so values may move by rounding.
    for kernels in (list(range(p))[::-1], [p - 1], list(range(0, p, 2))):
        part = case.family.subset(kernels)
        assert part.names == tuple(case.family.names[k] for k in kernels)
        np.testing.assert_allclose(
            part.tile(case.X[:9], case.X[9:]) / case.sizes[kernels], whole[kernels] / case.sizes[kernels], atol=UNIT
        )


def test_each_kernel_has_its_own_name(case):
    assert len(case.family.names) == case.family.n_kernels == len(case.kernels)
    assert len(set(case.family.names)) == case.family.n_kernels


def test_centered_gram_is_positive_semi_definite(case):
    for K in case.family.tile(case.X, case.X):
        assert np.linalg.eigvalsh(center_gram(K)).min() >= -1e-12 * np.trace(K)


def test_exchanging_the_blocks_transposes_the_tile(case):
    A, B = case.X[:13], case.X[13:]
    forward, backward = case.family.tile(A, B), case.family.tile(B, A)
    np.testing.assert_allclose(forward / case.sizes, backward.transpose(0, 2, 1) / case.sizes, rtol=0, atol=UNIT)


def test_moving_all_rows_leaves_the_kernels_that_say_so_as_they_are(case):
    assert case.family.translates or not case.family.translation_invariant
    if sparse.issparse(case.X) or not case.family.translates:
        return
    moved = case.X + np.linspace(-1, 2, case.X.shape[1])
    as_they_were, now = (case.family.tile(rows, rows) for rows in (case.X, moved))
    if case.family.translation_invariant:
        np.testing.assert_allclose(now / case.sizes, as_they_were / case.sizes, rtol=0, atol=UNIT)
        return
    assert np.abs((now - as_they_were) / case.sizes).max() > 0.1
    for K, K_moved, size in zip(as_they_were, now, case.sizes[:, 0, 0], strict=True):
        np.testing.assert_allclose(center_gram(K_moved), center_gram(K), rtol=0, atol=UNIT * size)


@pytest.mark.parametrize(
    ("family", "kernels_stay", "centered_kernels_stay"),
    [
        (GaussianFamily([0.5]), True, True),
        (LaplacianFamily([0.5]), True, True),
        (CategoricalFamily([0.5]), True, True),
        (DirichletFamily([0.5]), True, True),
        (LinearFamily(), False, True),
        (PolynomialFamily([2]), False, False),
        (CosineFamily(), False, False),
        (FamilyUnion([GaussianFamily([0.5]), DirichletFamily([0.5])]), True, True),
        (FamilyUnion([GaussianFamily([0.5]), LinearFamily()]), False, True),
        (FamilyUnion([LinearFamily(), CosineFamily()]), False, False),
    ],
)
def test_a_family_says_what_moving_all_rows_leaves_as_it_is(family, kernels_stay, centered_kernels_stay):
    assert (family.translation_invariant, family.translates) == (kernels_stay, centered_kernels_stay)


def test_rows_and_shift_are_not_modified(case):
    A, B, shift = case.X[:13], case.X[13:], np.full(case.family.n_kernels, 0.3)
    before = snapshot(A), snapshot(B)
    for second in (A, B):
        case.family.tile(A, second, shift)
        case.family.tile(A, second)
    case.family.diag(A)
    assert same_rows(A, before[0])
    assert same_rows(B, before[1])
    np.testing.assert_array_equal(shift, 0.3)


def test_a_tile_is_freshly_allocated(case):
    first = case.family.tile(case.X, case.X)
    kept = first.copy()
    second = case.family.tile(case.X, case.X)
    second[...] = np.nan
    np.testing.assert_array_equal(first, kept)


# Accuracy ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gammas", [[2.0**-26], [2.0**-20, 2.0**-26, 2.0**-25, 2.0**-24], [3e-8, 1e-12]])
def test_a_nearly_constant_gaussian_less_one_keeps_its_digits(gammas):
    X = np.random.default_rng(0).normal(size=(30, 6))
    E = GaussianFamily(gammas).tile(X[:12], X[12:], shift=np.ones(len(gammas)))
    for k, gamma in enumerate(gammas):
        D = gram(squared_distance(), X[:12], X[12:])
        series = -gamma * D + (gamma * D) ** 2 / 2 - (gamma * D) ** 3 / 6  # the next term is below 1e-19 of the first
        # Relative to the small number itself: plain exp(-gamma D) - 1 would be off by 1e-9 or more here.
        np.testing.assert_allclose(E[k], series.astype(float), rtol=1e-12)


def test_doubling_up_a_long_grid_does_not_pile_up_errors():
    gammas = [2.0**g for g in range(-26, 5)]
    X = np.random.default_rng(1).normal(size=(24, 3))
    E = GaussianFamily(gammas).tile(X[:10], X[10:], shift=np.ones(31))
    for k, gamma in enumerate(gammas):
        exact = gram(gaussian_less_one(gamma), X[:10], X[10:]).astype(float)
        # Relative to K - 1 itself, whose smallest values are 1e-9; the closest rows here lose a factor ten of D.
        np.testing.assert_allclose(E[k], exact, rtol=1e-12)


def test_gaussian_of_a_row_with_itself_is_exactly_one():
    X = 1e3 * np.random.default_rng(2).normal(size=(20, 4))
    tile = GaussianFamily([0.7, 1.4, 5.0]).tile(X, X)
    np.testing.assert_array_equal(np.einsum("kaa->ka", tile), 1.0)


def test_gaussian_of_a_row_with_itself_is_exactly_one_on_columns_too():
    X = 1e3 * np.random.default_rng(2).normal(size=(20, 4))
    for rows in (X, sparse.csr_matrix(X)):
        tile = FamilyUnion([GaussianFamily([0.7, 5.0])], [[2, 0]]).tile(rows, rows)
        np.testing.assert_array_equal(np.einsum("kaa->ka", tile), 1.0)


@pytest.mark.parametrize("offset", [1e2, 1e6])
def test_rows_far_from_the_origin_keep_their_distances(offset):
    X = np.random.default_rng(3).normal(size=(30, 4)) + offset
    gammas = [0.1, 0.2, 1.0]
    tile = GaussianFamily(gammas).tile(X[:14], X[14:])
    for k, gamma in enumerate(gammas):
        # The expanded distance without moving the rows would lose eps * offset^2, 1e-4 for the larger offset.
        np.testing.assert_allclose(tile[k], gram(gaussian(gamma), X[:14], X[14:]).astype(float), rtol=0, atol=1e-13)


@pytest.mark.parametrize("far", [1e5, 2e8, 1e12])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_gaussians_of_rows_near_and_far_are_those_of_their_differences(kind, far):
    X = np.random.default_rng(4).normal(size=(30, 4))
    X[3] = far
    family, B = GaussianFamily([0.5, 1.0, 2.0, 0.3]), kind(X)
    seeds = np.empty((family.n_seeds, 30, 30))
    family.fill_seeds(kind(X.copy()), B, np.zeros(4), seeds)
    tile = family.tile(kind(X.copy()), B)
    # The mean of rows, by which dense ones are moved, has the rounding of a thirtieth of the far one.
    near = 1e-15 * far if kind is np.asarray else 1e-13
    for k, gamma in enumerate(family.gammas):
        exact = gram(gaussian(gamma), X, X).astype(float)
        np.testing.assert_allclose(tile[k], exact, rtol=0, atol=near)
    np.testing.assert_allclose(seeds[1] + 1, tile[0], rtol=0, atol=1e-15)
    for values in (tile, seeds + 1):
        assert values.max() <= 1
        np.testing.assert_array_equal(np.einsum("kaa->ka", values), 1.0)


def test_gaussians_of_equal_rows_are_not_above_one():
    X = np.repeat(10 * np.random.default_rng(5).normal(size=(40, 7)), 3, axis=0)
    family = GaussianFamily([0.7, 1.4, 5.0])
    seeds = np.empty((family.n_seeds, *2 * (len(X),)))
    for rows in (X, X.copy()):
        family.fill_seeds(X, rows, np.zeros(3), seeds)
        assert seeds.max() == 0


def test_raw_features_of_very_different_scales_are_accurate():
    X = load_breast_cancer().data[:60]
    gamma = 1e-5
    tile = GaussianFamily([gamma])
    # gamma eps |x|^2 with centered rows of length about 3e3, and a few operations.
    np.testing.assert_allclose(
        tile.tile(X[:30], X[30:])[0], gram(gaussian(gamma), X[:30], X[30:]).astype(float), rtol=0, atol=1e-13
    )


def test_gaussians_do_not_change_when_features_are_moved():
    rng = np.random.default_rng(4)
    X, move = rng.normal(size=(30, 4)), 50 * rng.normal(size=4)
    family = GaussianFamily([0.1, 0.2, 0.7])
    moved = X + move
    # Moving rounds each feature to eps * 50 or so.
    np.testing.assert_allclose(family.tile(moved[:9], moved[9:]), family.tile(X[:9], X[9:]), rtol=0, atol=1e-12)


def test_the_centered_linear_kernel_does_not_change_when_features_are_moved_but_polynomials_do():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(25, 3))
    moved = X + np.array([1.0, -2.0, 0.5])
    for family, unchanged in ((LinearFamily(), True), (PolynomialFamily([2]), False)):
        before, after = (center_gram(family.tile(Z, Z)[0]) for Z in (X, moved))
        assert np.allclose(before, after, rtol=0, atol=1e-12 * np.abs(before).max()) is unchanged


def test_dense_and_sparse_rows_give_the_same_kernels():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(30, 8)) * (rng.random((30, 8)) < 0.4)
    family = FamilyUnion([GaussianFamily([0.2, 0.4]), LinearFamily(), PolynomialFamily([2])], [[1, 5], None, [0, 7]])
    csr = sparse.csr_matrix(X)
    np.testing.assert_allclose(family.tile(csr[:9], csr[9:]), family.tile(X[:9], X[9:]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("gammas", [[2.0**-26], [2.0**-20, 2.0**-26, 2.0**-25, 2.0**-24], [3e-8, 1e-12]])
def test_a_nearly_constant_laplacian_less_one_keeps_its_digits(gammas):
    X = np.random.default_rng(10).normal(size=(30, 6))
    E = LaplacianFamily(gammas).tile(X[:12], X[12:], shift=np.ones(len(gammas)))
    for k, gamma in enumerate(gammas):
        D = gram(absolute_distance(), X[:12], X[12:])
        series = -gamma * D + (gamma * D) ** 2 / 2 - (gamma * D) ** 3 / 6
        # Relative to the small number itself, as for Gaussians; distances lose nothing here.
        np.testing.assert_allclose(E[k], series.astype(float), rtol=1e-13)


def test_doubling_up_a_long_grid_of_laplacians_does_not_pile_up_errors():
    gammas = [2.0**g for g in range(-26, 5)]
    X = np.random.default_rng(11).normal(size=(24, 3))
    E = LaplacianFamily(gammas).tile(X[:10], X[10:], shift=np.ones(31))
    for k, gamma in enumerate(gammas):
        exact = gram(laplacian_less_one(gamma), X[:10], X[10:]).astype(float)
        np.testing.assert_allclose(E[k], exact, rtol=1e-13)


def test_laplacian_of_a_row_with_itself_is_exactly_one():
    X = 1e3 * np.random.default_rng(12).normal(size=(20, 4))
    for rows in (X, sparse.csr_matrix(X), sparse.csr_matrix((5, 4))):
        tile = LaplacianFamily([0.7, 1.4, 5.0]).tile(rows, rows)
        np.testing.assert_array_equal(np.einsum("kaa->ka", tile), 1.0)


def test_a_laplacian_factorises_over_the_features():
    X = np.random.default_rng(13).normal(size=(15, 3))
    factors = FamilyUnion([LaplacianFamily([0.4])] * 3, [[0], [1], [2]]).tile(X, X)
    np.testing.assert_allclose(LaplacianFamily([0.4]).tile(X, X)[0], factors.prod(axis=0), rtol=1e-13)


@pytest.mark.parametrize("scale", [1e-200, 1e-3, 1e200])
def test_cosines_do_not_depend_on_the_length_of_a_row(scale):
    X = np.random.default_rng(14).normal(size=(20, 3))
    lengths = scale * np.linspace(1, 2, 20)[:, None]
    for kind in (np.asarray, sparse.csr_matrix):
        rows = kind(X * lengths)
        K, K_scaled = CosineFamily().tile(X[:8], X[8:]), CosineFamily().tile(rows[:8], rows[8:])
        np.testing.assert_allclose(K_scaled, K, rtol=0, atol=1e-14)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_a_row_without_a_direction_has_a_cosine_of_zero_and_is_named_beforehand(kind):
    X = np.random.default_rng(15).normal(size=(20, 3))
    X[[4, 11]] = 0.0
    for A, B in ((kind(X), kind(X[2:])), (rows := kind(X), rows)):
        np.testing.assert_allclose(CosineFamily().tile(A, B)[0], cosine_similarity(A, B), rtol=0, atol=1e-15)
    np.testing.assert_array_equal(CosineFamily().diag(kind(X))[0], X.any(axis=1))
    with pytest.raises(ValueError, match="got only zeros in row 4, 11 of the 20 given"):
        require_directions(CosineFamily(), kind(X))


@pytest.mark.parametrize("degree", [1, 2, 5])
def test_a_dirichlet_kernel_is_the_ratio_of_two_sines(degree):
    rng = np.random.default_rng(16)
    A, B, frequency = rng.normal(size=(9, 1)), rng.normal(size=(11, 1)), 1.7
    angle = frequency * (A - B.T)
    ratio = np.sin((degree + 0.5) * angle) / np.sin(angle / 2)
    np.testing.assert_allclose(DirichletFamily([frequency], degree).tile(A, B)[0], ratio, rtol=0, atol=1e-11)


def test_the_dirichlet_kernel_is_the_paper_s_on_one_feature_and_a_product_on_several():
    X = np.random.default_rng(17).uniform(-10, 10, size=(20, 3))
    frequency = np.sqrt(60)
    for c in range(3):
        paper = 1 + 2 * np.cos(frequency * np.abs(X[:, [c]] - X[:, c]))
        np.testing.assert_allclose(DirichletFamily([frequency]).tile(X[:, [c]], X[:, [c]])[0], paper, atol=1e-12)
    factors = FamilyUnion([DirichletFamily([frequency])] * 3, [[0], [1], [2]]).tile(X, X)
    np.testing.assert_allclose(DirichletFamily([frequency]).tile(X, X)[0], factors.prod(axis=0), rtol=0, atol=1e-11)


def test_the_dirichlet_product_is_positive_semi_definite_where_a_function_of_the_distance_is_not():
    X = np.random.default_rng(18).uniform(-3, 3, size=(60, 2))
    distances = np.linalg.norm(X[:, None] - X, axis=2)
    for frequency in (0.5, 1.0, 2.0):
        of_distance = np.linalg.eigvalsh(1 + 2 * np.cos(frequency * distances))
        product = np.linalg.eigvalsh(DirichletFamily([frequency]).tile(X, X)[0])
        assert of_distance.min() < -1e-3 * of_distance.max()
        assert product.min() >= -1e-13 * product.max()


def test_dirichlet_rows_far_from_the_origin_keep_their_differences():
    X = np.random.default_rng(19).normal(size=(20, 2)) + 1e6
    tile = DirichletFamily([2.0]).tile(X[:8], X[8:])[0]
    # Without moving the rows the angles would lose eps * 2e6, 4e-10.
    np.testing.assert_allclose(tile, gram(dirichlet(2.0), X[:8], X[8:]).astype(float), rtol=0, atol=1e-13)


# Unions and names ----------------------------------------------------------------------------------------------------


def test_a_union_names_the_columns_of_a_view():
    family = FamilyUnion([LinearFamily(), GaussianFamily([0.125])], [None, [0, 3]])
    assert family.names[0] == "linear"
    assert re.fullmatch(r"gaussian\(gamma=2\^-3\) on columns 0, ?3", family.names[1])


def test_names_of_a_union_differ_whatever_is_in_it():
    twice = FamilyUnion([GaussianFamily([0.5]), GaussianFamily([0.5, 0.5])])
    of = FamilyUnion([twice, twice.subset([1, 0]), GaussianFamily([0.5])])
    assert len(set(of.names)) == of.n_kernels == 6


def test_a_union_names_views_as_it_is_told_and_keeps_that_in_subsets():
    family = FamilyUnion([LinearFamily(), GaussianFamily([0.1, 0.3])], [[0], [1]], views=["age", "income"])
    assert family.names == ("linear on age", "gaussian(gamma=0.1) on income", "gaussian(gamma=0.3) on income")
    assert family.subset([2, 0]).names == ("gaussian(gamma=0.3) on income", "linear on age")


def test_a_union_on_columns_does_not_see_the_other_columns():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(20, 4))
    other = X.copy()
    other[:, 1] = rng.normal(size=20)
    family = FamilyUnion([GaussianFamily([0.5])], [[0, 2, 3]])
    np.testing.assert_array_equal(family.tile(X, X), family.tile(other, other))


def test_a_union_of_feature_views_sums_to_the_linear_kernel():
    X = np.random.default_rng(8).normal(size=(18, 3))
    family = FamilyUnion([LinearFamily()] * 3, [[0], [1], [2]])
    np.testing.assert_allclose(family.tile(X, X).sum(axis=0), gram(linear(), X).astype(float), rtol=0, atol=1e-13)


def test_the_degree_one_polynomial_centers_to_the_scaled_linear_kernel():
    X = np.random.default_rng(9).normal(size=(18, 3))
    K = PolynomialFamily([1], gamma=2.5, coef0=4.0).tile(X, X)[0]
    np.testing.assert_allclose(center_gram(K), 2.5 * centered(gram(linear(), X)).astype(float), rtol=0, atol=1e-12)


# Errors --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: GaussianFamily([]), "gammas must name at least one bandwidth"),
        (lambda: GaussianFamily([1.0, 0.0]), "gammas must be positive and finite, got 0"),
        (lambda: GaussianFamily([-0.5]), r"gammas must be positive and finite, got -0\.5"),
        (lambda: GaussianFamily([np.inf]), "gammas must be positive and finite, got inf"),
        (lambda: GaussianFamily([np.nan]), "gammas must be positive and finite, got nan"),
        (lambda: PolynomialFamily([]), "degrees must name at least one degree"),
        (lambda: PolynomialFamily([2, 0]), r"degrees must be whole numbers of at least 1, got \[2, 0\]"),
        (lambda: PolynomialFamily([2.5]), r"degrees must be whole numbers of at least 1, got \[2\.5\]"),
        (lambda: PolynomialFamily([2], gamma=0.0), "gamma must be positive and finite, got 0"),
        (lambda: PolynomialFamily([2], gamma=np.nan), "gamma must be positive and finite, got nan"),
        (lambda: PolynomialFamily([2], coef0=-1.0), "coef0 must be finite and not negative, got -1"),
        (lambda: PolynomialFamily([2], coef0=np.inf), "coef0 must be finite and not negative, got inf"),
        (lambda: LaplacianFamily([]), "gammas must name at least one bandwidth"),
        (lambda: LaplacianFamily([1.0, -2.0]), "gammas must be positive and finite, got -2"),
        (lambda: CosineFamily().subset([0, 0]), r"kernels must be \[0\].*cosine.*got \[0, 0\]"),
        (lambda: DirichletFamily([]), "frequencies must name at least one frequency"),
        (lambda: DirichletFamily([0.0]), "frequencies must be positive and finite, got 0"),
        (lambda: DirichletFamily([np.nan]), "frequencies must be positive and finite, got nan"),
        (lambda: DirichletFamily([1.0], degree=0), "degree must be a whole number of at least 1, got 0"),
        (lambda: DirichletFamily([1.0], degree=1.5), r"degree must be a whole number of at least 1, got 1\.5"),
        (lambda: DirichletFamily([1.0]).diag(np.ones((2, 700))), "must see at most 637 features.*got 700"),
        (lambda: LinearFamily().subset([]), r"kernels must be \[0\].*got \[\]"),
        (lambda: FamilyUnion([]), "families must hold at least one kernel family"),
        (lambda: FamilyUnion([LinearFamily()], [None, [0]]), "columns must have one entry a family, got 2 for 1"),
        (lambda: FamilyUnion([LinearFamily()], [[0]], views=[]), "views must have one entry a family, got 0 for 1"),
    ],
)
def test_a_parameter_outside_its_range_is_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
