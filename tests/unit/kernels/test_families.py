"""Families of base kernels: values, and the properties that the engine relies on."""

import math
import re
import tempfile
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer
from sklearn.metrics.pairwise import cosine_similarity

from learnkernels import (
    FamilyUnion,
    GaussianFamily,
    KernelLearningRegressor,
    LaplacianFamily,
    LinearFamily,
    PrecomputedFamily,
    alignment,
    alignment_test,
    center_gram,
    centered_alignment,
    gram_statistics,
    learn_kernel,
)
from learnkernels.kernels import learners, targets
from learnkernels.kernels.families import (
    CategoricalFamily,
    CosineFamily,
    DirichletFamily,
    FeatureFamily,
)
from learnkernels.kernels.families.base import fill_seeds, n_mapped, sides_of_tile
from learnkernels.kernels.families.composed import (
    KNOTS,
    MetricFamily,
    NormalScoresFamily,
    ScaledFamily,
    normal_scores,
)
from learnkernels.kernels.families.products import PolynomialFamily, ProductFamily
from learnkernels.kernels.files import from_bytes, to_bytes
from learnkernels.kernels.learned_kernel import ALL_FEATURES
from tests import reference
from tests.refusals import refusal, require_refusals
from tests.unit.kernels.test_serialization import opened, reading, reread


def oracle(kernel, A, B=None) -> np.ndarray:
    return reference.gram(kernel, A, B).astype(float)


# Values on unit-scale data: a dozen operations of rounding, and the expanded squared
# distance loses eps |x|^2.
UNIT = 1e-12


# Every family --------------------------------------------------------------------------------------------------------


def test_tiles_are_the_kernels_of_each_pair_and_new(case):
    family, A, B = case.family, case.X[:13], case.X[13:]
    before = A.copy(), B.copy()
    first, rest = slice(0, 13), slice(13, None)
    shift = np.linspace(-0.7, 1.3, family.n_kernels)
    whole = family.tile(case.X, case.X)
    assert case.tile_error(whole) <= UNIT
    assert case.tile_error(family.tile(A, B), first, rest) <= UNIT
    assert case.tile_error(family.tile(A, B, shift), first, rest, shift) <= UNIT
    diagonal = np.einsum("kaa->ka", whole)
    np.testing.assert_allclose(
        family.diag(case.X), diagonal, rtol=0, atol=UNIT * case.sizes.max()
    )
    same, mapped = family.mapped_once(case.X)
    assert same.n_kernels == family.n_kernels
    assert n_mapped(family, case.X.shape[1]) == mapped.shape[1] or isinstance(
        family, FamilyUnion
    )
    np.testing.assert_allclose(same.tile(mapped, mapped), whole, rtol=0, atol=UNIT)
    for second in (A, B):
        kept = (first := family.tile(A, second)).copy()
        family.tile(A, second)[...] = np.nan
        np.testing.assert_array_equal(first, kept)
    assert [(now != then).sum() for now, then in zip((A, B), before, strict=True)] == [
        0,
        0,
    ]
    np.testing.assert_array_equal(shift, np.linspace(-0.7, 1.3, family.n_kernels))


def test_a_subset_keeps_the_kernels_named_in_the_order_named(case):
    family, A, B = case.family, case.X[:9], case.X[9:]
    p = family.n_kernels
    assert len(family.names) == len(set(family.names)) == p == len(case.kernels)
    whole = family.tile(A, B) / case.sizes
    # A bandwidth whose half is left out gets its own exponential, so values may move by
    # rounding.
    for kernels in (list(range(p))[::-1], [p - 1], list(range(0, p, 2))):
        part = family.subset(kernels)
        assert part.names == tuple(family.names[k] for k in kernels)
        np.testing.assert_allclose(
            part.tile(A, B) / case.sizes[kernels], whole[kernels], atol=UNIT
        )


def test_moving_all_rows_leaves_the_kernels_that_say_so_as_they_are(case):
    assert case.family.translates or not case.family.translation_invariant
    if sparse.issparse(case.X) or not case.family.translates:
        return
    moved = case.X + np.linspace(-1, 2, case.X.shape[1])
    as_they_were, now = (case.family.tile(rows, rows) for rows in (case.X, moved))
    if case.family.translation_invariant:
        np.testing.assert_allclose(
            now / case.sizes, as_they_were / case.sizes, rtol=0, atol=UNIT
        )
        return
    assert np.abs((now - as_they_were) / case.sizes).max() > 0.1
    for K, K_moved, size in zip(as_they_were, now, case.sizes[:, 0, 0], strict=True):
        np.testing.assert_allclose(
            center_gram(K_moved), center_gram(K), rtol=0, atol=UNIT * size
        )


def test_a_family_says_what_moving_all_rows_leaves_as_it_is():
    gaussian, dirichlet, linear = (
        GaussianFamily([0.5]),
        DirichletFamily([0.5]),
        LinearFamily(),
    )
    kernels = [gaussian, dirichlet, LaplacianFamily([0.5]), CategoricalFamily([0.5])]
    kernels.append(FamilyUnion([gaussian, dirichlet]))
    centered_alone = [linear, FamilyUnion([gaussian, linear])]
    kernels.append(ProductFamily.monomials(gaussian, 2))
    nothing = [
        PolynomialFamily([2]),
        CosineFamily(),
        FamilyUnion([linear, CosineFamily()]),
    ]
    nothing.append(ProductFamily.of(gaussian, linear))
    for families, expected in (
        (kernels, (True, True)),
        (centered_alone, (False, True)),
        (nothing, (False, False)),
    ):
        for family in families:
            assert (family.translation_invariant, family.translates) == expected, family


def test_products_are_those_of_the_values_and_monomials_make_up_the_power_of_the_sum():
    X = np.random.default_rng(0).normal(size=(9, 3))
    space, time = (
        FamilyUnion([GaussianFamily([0.2, 1.0])], [[0, 1]]),
        FamilyUnion([LaplacianFamily([0.5])], [[2]]),
    )
    by_pairs = ProductFamily.of(space, time)
    np.testing.assert_allclose(
        by_pairs.tile(X, X[:4]), space.tile(X, X[:4]) * time.tile(X, X[:4]), rtol=1e-14
    )
    assert (
        by_pairs.names[0]
        == "gaussian(gamma=0.2) on columns 0, 1 * laplacian(gamma=0.5) on columns 2"
    )
    base, mu = GaussianFamily([0.1, 0.5, 2.0]), np.array([0.3, 0.2, 0.5])
    for degree in (1, 2, 3):
        all_of, up_to = (
            ProductFamily.monomials(base, degree, lower=lower)
            for lower in (False, True)
        )
        assert (all_of.n_kernels, up_to.n_kernels) == (
            math.comb(2 + degree, degree),
            math.comb(3 + degree, degree) - 1,
        )
        counts = [
            math.factorial(degree) / np.prod([math.factorial(e) for e in row])
            for row in all_of.powers
        ]
        weights = np.array(counts) * (mu ** np.array(all_of.powers)).prod(axis=1)
        power = np.tensordot(mu, base.tile(X, X), axes=1) ** degree
        np.testing.assert_allclose(
            np.tensordot(weights, all_of.tile(X, X), axes=1), power, rtol=1e-13
        )
    kernel = learn_kernel(X, np.arange(9.0), learner="alignf", family=up_to)
    assert 0 < kernel.alignment <= 1
    assert reread(up_to) == up_to
    bad = [[], [[1, 0]], [[0, 0, 0]], [[1, -1, 1]], [[0.5, 1, 0]]]
    require_refusals(
        (partial(ProductFamily, base, powers), "powers must hold rows of 3 whole")
        for powers in bad
    )


def test_rows_are_mapped_by_the_one_metric_that_there_is():
    X, map_ = (
        np.random.default_rng(0).normal(size=(6, 5)),
        np.random.default_rng(1).normal(size=(3, 2)),
    )
    metric = MetricFamily(GaussianFamily([1.0]), map_)
    alone = FamilyUnion([metric], [[0, 2, 4]])
    family, mapped = alone.mapped_once(X)
    assert family == GaussianFamily([1.0])
    np.testing.assert_array_equal(mapped, X[:, [0, 2, 4]] @ map_)
    two = FamilyUnion([metric, metric], [[0, 2, 4], [1, 2, 3]])
    assert two.mapped_once(X)[0] is two
    beside = FamilyUnion([metric, GaussianFamily([1.0])], [[0, 2, 4], None])
    assert [n_mapped(one, 5) for one in (alone, two, beside)] == [2, 2, 5]
    weighed = FamilyUnion([MetricFamily(GaussianFamily([1.0]), [1.0, 2.0, 0.0])])
    # Which cost little, and leave sparse rows sparse
    assert weighed.mapped_once(X[:, :3])[0] is weighed


def test_normal_scores_are_those_of_ranks_and_know_copies_by_weights():
    rng = np.random.default_rng(3)
    X = np.column_stack(
        [
            rng.exponential(size=60),
            np.arange(60) % 3,
            np.zeros(60),
            rng.normal(size=60) > 0,
        ]
    )
    knots = normal_scores(X)
    np.testing.assert_array_equal(knots[0][:, 0], np.sort(X[:, 0]))
    np.testing.assert_allclose(
        knots[0][:, 1], norm.ppf((np.arange(60) + 0.5) / 60), rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(
        knots[1],
        [[0, norm.ppf(1 / 6)], [1, 0], [2, norm.ppf(5 / 6)]],
        rtol=0,
        atol=1e-12,
    )
    assert knots[2] is knots[3] is None
    w = rng.integers(1, 4, 60)
    for one, other in zip(
        normal_scores(X, w.astype(float)),
        normal_scores(np.repeat(X, w, axis=0)),
        strict=True,
    ):
        np.testing.assert_allclose(
            one, other, rtol=0, atol=1e-12
        ) if one is not None else None
    units = np.array([3.0, 0.1, 1.0, 5.0])
    moved = normal_scores(units * X - 7.0)
    np.testing.assert_array_equal(moved[0][:, 1], knots[0][:, 1])
    many = normal_scores(rng.normal(size=(5000, 1)))[0]
    assert len(many) == KNOTS
    # Of equal distance in rank
    assert np.abs(np.diff(norm.cdf(many[:, 1])) * (KNOTS - 1) - 1).max() < 0.05


def test_kernels_of_normal_scores_are_those_of_features_beside_them():
    X = np.random.default_rng(3).normal(size=(12, 3))
    knots = normal_scores(X[:8])
    base = GaussianFamily([0.3, 1.2])
    family = NormalScoresFamily(base, [knots[0], None, knots[2]])
    beside = np.column_stack(
        [X, *(np.interp(X[:, j], knots[j][:, 0], knots[j][:, 1]) for j in (0, 2))]
    )
    np.testing.assert_allclose(
        family.tile(X, X[:5]), base.tile(beside, beside[:5]), rtol=0, atol=UNIT
    )
    assert not family.translation_invariant
    assert not family.takes_sparse
    assert n_mapped(family, 3) == 5
    said = refusal(family.tile, X[:, :2], X[:, :2])
    assert said.startswith("X must have the 3 features that there are knots for, got 2")


# Accuracy ------------------------------------------------------------------------------------------------------------


LESS_ONE = [
    # The closest rows lose a factor ten of a squared distance; distances lose nothing.
    (GaussianFamily, reference.gaussian_less_one, 1e-12),
    (LaplacianFamily, reference.laplacian_less_one, 1e-13),
]


@pytest.mark.parametrize(("kind", "less_one", "rounding"), LESS_ONE)
def test_nearly_constant_kernels_less_one_keep_their_digits(kind, less_one, rounding):
    X = np.random.default_rng(0).normal(size=(24, 3))
    # A plain exp(-gamma D) - 1 would be off by 1e-9 or more. Doubling up a long grid
    # does not pile up errors.
    long = [2.0**g for g in range(-26, 5)]
    for gammas in (
        [2.0**-26],
        [2.0**-20, 2.0**-26, 2.0**-25, 2.0**-24],
        [3e-8, 1e-12],
        long,
    ):
        E = kind(gammas).tile(X[:10], X[10:], shift=np.ones(len(gammas)))
        for k, gamma in enumerate(gammas):
            np.testing.assert_allclose(
                E[k], oracle(less_one(gamma), X[:10], X[10:]), rtol=rounding
            )


def test_kernels_of_a_row_with_itself_and_its_copies_are_exactly_one():
    X = 1e3 * np.random.default_rng(2).normal(size=(20, 4))
    gaussians, laplacians = (
        GaussianFamily([0.7, 1.4, 5.0]),
        LaplacianFamily([0.7, 1.4, 5.0]),
    )
    union, thin = FamilyUnion([gaussians], [[2, 0]]), sparse.csr_matrix(X)
    given = [
        (gaussians, X),
        (union, X),
        (union, thin),
        (laplacians, X),
        (laplacians, thin),
    ]
    for family, rows in [*given, (laplacians, sparse.csr_matrix((5, 4)))]:
        np.testing.assert_array_equal(
            np.einsum("kaa->ka", family.tile(rows, rows)), 1.0
        )
    X = np.repeat(10 * np.random.default_rng(5).normal(size=(40, 7)), 3, axis=0)
    seeds = np.empty((gaussians.n_seeds, *2 * (len(X),)))
    for rows in (X, X.copy()):
        fill_seeds(*sides_of_tile(gaussians.operands, X, rows, np.zeros(3)), seeds)
        assert seeds.max() == 0


def test_rows_far_from_the_origin_and_of_very_different_scales_keep_their_distances():
    X, angles = (
        np.random.default_rng(3).normal(size=(30, 4)),
        np.random.default_rng(19).normal(size=(20, 2)),
    )
    gaussians = [(gamma, reference.gaussian(gamma)) for gamma in (0.1, 0.2, 1.0)]
    raw = load_breast_cancer().data[:60]
    for kind, kernels, rows in (
        # The expanded distance without moving the rows would lose eps * offset^2, 1e-4
        # for the larger offset.
        (GaussianFamily, gaussians, X + 1e2),
        (GaussianFamily, gaussians, X + 1e6),
        # Without moving the rows the angles would lose eps * 2e6, 4e-10.
        (DirichletFamily, [(2.0, reference.dirichlet(2.0))], angles + 1e6),
        # gamma eps |x|^2 with centered rows of length about 3e3, and a few operations.
        (GaussianFamily, [(1e-5, reference.gaussian(1e-5))], raw),
    ):
        half = len(rows) // 2
        A, B = rows[:half], rows[half:]
        tile = kind([parameter for parameter, _ in kernels]).tile(A, B)
        np.testing.assert_allclose(
            tile, [oracle(kernel, A, B) for _, kernel in kernels], rtol=0, atol=1e-13
        )


@pytest.mark.parametrize("far", [1e5, 2e8, 1e12])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_gaussians_of_rows_near_and_far_are_those_of_their_differences(kind, far):
    X = np.random.default_rng(4).normal(size=(30, 4))
    X[3] = far
    family, B = GaussianFamily([0.5, 1.0, 2.0, 0.3]), kind(X)
    seeds = np.empty((family.n_seeds, 30, 30))
    fill_seeds(*sides_of_tile(family.operands, kind(X.copy()), B, np.zeros(4)), seeds)
    tile = family.tile(kind(X.copy()), B)
    # The mean of rows, by which dense ones are moved, has the rounding of a thirtieth
    # of the far one.
    near = 1e-15 * far if kind is np.asarray else 1e-13
    for k, gamma in enumerate(family.gammas):
        np.testing.assert_allclose(
            tile[k], oracle(reference.gaussian(gamma), X), rtol=0, atol=near
        )
    np.testing.assert_allclose(seeds[1] + 1, tile[0], rtol=0, atol=1e-15)
    for values in (tile, seeds + 1):
        assert values.max() <= 1
        np.testing.assert_array_equal(np.einsum("kaa->ka", values), 1.0)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_cosines_do_not_depend_on_lengths_and_are_zero_without_a_direction(kind):
    X = np.random.default_rng(14).normal(size=(20, 3))
    K = CosineFamily().tile(X[:8], X[8:])
    for scale in (1e-200, 1e-3, 1e200):
        rows = kind(X * scale * np.linspace(1, 2, 20)[:, None])
        np.testing.assert_allclose(
            CosineFamily().tile(rows[:8], rows[8:]), K, rtol=0, atol=1e-14
        )
    X[[4, 11]] = 0.0
    for A, B in ((kind(X), kind(X[2:])), (rows := kind(X), rows)):
        np.testing.assert_allclose(
            CosineFamily().tile(A, B)[0], cosine_similarity(A, B), rtol=0, atol=1e-15
        )
    np.testing.assert_array_equal(CosineFamily().diag(kind(X))[0], X.any(axis=1))
    assert "got only zeros in row 4, 11 of the 20 given" in refusal(
        CosineFamily().check_rows, kind(X)
    )


# Unions and names ----------------------------------------------------------------------------------------------------


def test_names_of_a_union_differ_and_name_views_as_told_in_subsets_too():
    family = FamilyUnion([LinearFamily(), GaussianFamily([0.125])], [None, [0, 3]])
    assert family.names[0] == "linear"
    assert re.fullmatch(r"gaussian\(gamma=2\^-3\) on columns 0, ?3", family.names[1])
    twice = FamilyUnion([GaussianFamily([0.5]), GaussianFamily([0.5, 0.5])])
    of = FamilyUnion([twice, twice.subset([1, 0]), GaussianFamily([0.5])])
    assert len(set(of.names)) == of.n_kernels == 6
    family = FamilyUnion(
        [LinearFamily(), GaussianFamily([0.1, 0.3])],
        [[0], [1]],
        views=["age", "income"],
    )
    assert family.names == (
        "linear on age",
        "gaussian(gamma=0.1) on income",
        "gaussian(gamma=0.3) on income",
    )
    assert family.subset([2, 0]).names == (
        "gaussian(gamma=0.3) on income",
        "linear on age",
    )


# Errors --------------------------------------------------------------------------------------------------------------


REFUSED = [
    (lambda: GaussianFamily([]), "gammas must hold at least one number"),
    *(
        (
            partial(GaussianFamily, [1.0, g]),
            f"gammas must be positive and finite, got {g}",
        )
        for g in (0, -0.5, np.nan)
    ),
    (lambda: PolynomialFamily([]), "degrees must name at least one degree"),
    (
        lambda: PolynomialFamily([2, 0]),
        r"degrees must be whole numbers of at least 1, got \[2, 0\]",
    ),
    (
        lambda: PolynomialFamily([2.5]),
        r"degrees must be whole numbers of at least 1, got \[2\.5\]",
    ),
    (
        lambda: PolynomialFamily([2], gamma=0.0),
        "gamma must be a positive, finite number, got 0",
    ),
    (
        lambda: PolynomialFamily([2], coef0=-1.0),
        "coef0 must be finite and not negative, got -1",
    ),
    (
        lambda: PolynomialFamily([2], coef0=np.inf),
        "coef0 must be finite and not negative, got inf",
    ),
    (
        lambda: LaplacianFamily([1.0, -2.0]),
        "gammas must be positive and finite, got -2",
    ),
    (
        lambda: CosineFamily().subset([0, 0]),
        r"kernels must be \[0\].*cosine.*got \[0, 0\]",
    ),
    (lambda: DirichletFamily([]), "frequencies must hold at least one number"),
    (lambda: DirichletFamily([0.0]), "frequencies must be positive and finite, got 0"),
    *(
        (
            partial(DirichletFamily, [1.0], r),
            f"degree must be a whole number of at least 1, got {r}",
        )
        for r in (0, 1.5)
    ),
    (
        lambda: DirichletFamily([1.0]).diag(np.ones((2, 700))),
        "must see at most 637 features.*got 700",
    ),
    (lambda: LinearFamily().subset([]), r"kernels must be \[0\].*got \[\]"),
    (lambda: FamilyUnion([]), "families must hold at least one kernel family"),
    (
        lambda: FamilyUnion([LinearFamily()], [None, [0]]),
        "columns must have one entry per family, got 2 for 1",
    ),
    (
        lambda: FamilyUnion([LinearFamily()], [[0]], views=[]),
        "views must have one entry per family, got 0 for 1",
    ),
]


def test_a_parameter_outside_its_range_is_refused():
    wrong = [
        [[1.0, 2.0]],
        [[[1.0, 0.0]]],
        [[[1.0, 0.0], [1.0, 0.5]]],
        [[[1.0, np.nan], [2.0, 1.0]]],
    ]
    said = "two and more ascending values with their scores, not so for feature 0"
    knots = [
        (partial(NormalScoresFamily, GaussianFamily([1.0]), of), said) for of in wrong
    ]
    require_refusals(REFUSED + knots)


NUMBERS_OF = {
    "gammas": (GaussianFamily, LaplacianFamily, CategoricalFamily),
    "weights": (partial(CategoricalFamily, [1.0]),),
    "frequencies": (DirichletFamily,),
}


def test_a_list_of_numbers_that_is_something_else_is_refused():
    table = []
    for name, makers in NUMBERS_OF.items():
        expected = f"{name} must be a sequence of positive, finite numbers, got "
        wrong = [
            (0.1, "0.1; write [0.1]."),
            (np.float64(2), "2.0; write [2.0]."),
            ("0.1", "'0.1'."),
            (b"1", "b'1'."),
        ]
        wrong += [(object, "<class 'object'>."), (np.ones((1, 1)), "array([[1.]]).")]
        entries = [("a", "'a'."), (None, "None."), (True, "True."), ([1.0], "[1.0].")]
        for make in makers:
            table += [(partial(make, value), expected + got) for value, got in wrong]
            table += [
                (
                    partial(make, [1.0, entry]),
                    f"{name} must be positive, finite numbers, got {got}",
                )
                for entry, got in entries
            ]
            assert make(np.array([1.0, 2.0])) == make(number for number in (1, 2))
    whole = "degrees must be a sequence of whole numbers of at least 1, got "
    table += [
        (lambda: PolynomialFamily(2), whole + "2; write [2]."),
        (lambda: PolynomialFamily("ab"), whole + "'ab'."),
        (
            lambda: PolynomialFamily(["a"]),
            "degrees must be whole numbers of at least 1, got ['a'].",
        ),
        (
            lambda: PolynomialFamily([2], coef0="a"),
            "coef0 must be finite and not negative, got 'a'.",
        ),
        (
            lambda: DirichletFamily([1.0], "a"),
            "degree must be a whole number of at least 1, got 'a'.",
        ),
    ]
    require_refusals(table, literal=True)


def test_families_made_of_something_else_are_refused():
    base = GaussianFamily([1.0])
    some = (
        "must be a family of base kernels, such as GaussianFamily([0.1, 1.0]), got 0.5."
    )
    table = [
        (partial(make, 0.5, of), f"base {some}")
        for make, of in ((MetricFamily, [1.0]), (NormalScoresFamily, []))
    ]
    table += [
        (partial(make, 0.5, [[1]]), f"base {some}")
        for make in (ScaledFamily, ProductFamily)
    ]
    exponents = "powers must hold rows of 1 whole exponents, one per base kernel, not negative and not all zero, got "
    views = "columns must hold for each family None or positions of features, such as [0, 2], got "
    table += [
        (partial(FamilyUnion, [base, 0.5]), f"families[1] {some}"),
        (
            partial(FamilyUnion, base),
            "families must be a sequence of families of base kernels, got GaussianFamily([1.0]).",
        ),
        (partial(FamilyUnion, [base], columns=[0]), views + "0."),
        (partial(FamilyUnion, [base], columns=[["a"]]), views + "['a']."),
        (
            partial(FamilyUnion, [base], columns=[[True, False]]),
            views + "[True, False].",
        ),
        (partial(FamilyUnion, [base], columns=[[0.5]]), views + "[0.5]."),
        (
            partial(FamilyUnion, [base], views="all"),
            "views must be a sequence of names, got 'all'.",
        ),
        (partial(MetricFamily, base, "a"), "map must hold numbers, got 'a'."),
        (partial(ScaledFamily, base, "a"), "scales must hold numbers, got 'a'."),
        (partial(ProductFamily, base, 1), exponents + "1.0."),
        (
            partial(FeatureFamily, 1.5),
            "features must be a number of features or a sequence of names, got 1.5.",
        ),
    ]
    require_refusals(table, literal=True)
    assert FeatureFamily("age").names == ("age",)


def test_rows_that_lack_what_base_kernels_read_are_refused_by_their_whole_shape():
    X, y = RNG.normal(size=(90, 13)), RNG.normal(size=90)
    beyond = "columns[1] must be positions of the 13 features of X, 0 to 12, got 40."
    stored = "X must be a column of row positions, shape (m, 1), as the kernels are matrices; got shape (90, 13)."
    base = GaussianFamily([1.0])
    table = []
    for family, sentence in (
        (FamilyUnion([base, base], [None, [0, 40]]), beyond),
        (PrecomputedFamily(np.eye(90)[None]), stored),
        (FamilyUnion([PrecomputedFamily(np.eye(90)[None])]), stored),
    ):
        table.append(
            (partial(learn_kernel, X, y, learner="alignf", family=family), sentence)
        )
        table.append(
            (partial(KernelLearningRegressor(family=family).fit, X, y), sentence)
        )
    require_refusals(table, literal=True)


def test_categories_in_sparse_rows_are_refused():
    X = sparse.csr_matrix(np.eye(12)[:, :5])
    y = np.arange(12.0)
    family = FamilyUnion([GaussianFamily([1.0]), CategoricalFamily([1.0])])
    calls = [
        partial(learn_kernel, X, y, learner="unif", family=family),
        partial(gram_statistics, family, X, y),
        partial(alignment_test, family, X, y),
        partial(family.tile, X, X),
    ]
    sentence = "CategoricalFamily needs dense rows, got sparse ones; use X.toarray()."
    require_refusals([(call, sentence) for call in calls], literal=True)


# What base kernels of some columns have of a learned kernel ----------------------------------------------------------


X = np.random.default_rng(0).normal(size=(160, 5))
Y = np.sin(2 * X[:, 0]) + X[:, 3]
FAMILY = FamilyUnion(
    [GaussianFamily([0.1, 1.0]), GaussianFamily([0.3])],
    [[0, 1], [2, 3, 4]],
    ["numbers", "levels"],
)


def test_shares_of_views_are_those_of_weights_and_traces_for_every_learner():
    for normalize in ("trace", "frobenius", "none"):
        kernel = learn_kernel(X, Y, learner="unif", family=FAMILY, normalize=normalize)
        grams = [center_gram(K) for K in FAMILY.tile(X, X)]
        held = np.abs(kernel.weights / kernel.scales) * [np.trace(K) for K in grams]
        oracle = {
            "numbers": held[:2].sum() / held.sum(),
            "levels": held[2] / held.sum(),
        }
        assert kernel.view_shares == pytest.approx(oracle, rel=1e-9)
    assert learn_kernel(
        X, Y, learner="unif", family=GaussianFamily([0.1, 1.0])
    ).view_shares == {ALL_FEATURES: 1.0}


def test_shares_of_views_are_kept_in_files():
    kernel = learn_kernel(X, Y, learner="unif", family=FAMILY)
    content = to_bytes(kernel)
    assert from_bytes(content).view_shares == kernel.view_shares
    arrays, description = opened(content)
    with pytest.raises(ValueError, match="traces must have shape"):
        reading({**arrays, "traces": kernel.traces[:1]}, description)()


def test_kernels_of_codes_are_called_by_their_columns():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"size": np.where(rng.random(90) < 0.2, np.nan, rng.normal(size=90))}
    )
    table["color"] = rng.choice(["red", "blue"], 90)
    table["day"] = pd.date_range("2024-01-01", periods=90, freq="D")
    table["shop"] = [f"shop {i}" for i in rng.integers(0, 40, 90)]
    y = table["size"].fillna(0) + (table["color"] == "red") + 0.02 * np.arange(90)
    model = KernelLearningRegressor().fit(table, y)
    assert set(model.kernel_.view_shares) == {ALL_FEATURES, "shop"}
    assert set(model.relevance_) == {"size", "color", "day", "shop"}
    assert model.score(table, y) > 0.9
    with pytest.raises(
        ValueError, match="code_names must have one entry per code, got 2 for 1"
    ):
        learners.RFM(codes=(1,), code_names=("shop", "color")).find(
            X, targets.Target.of(Y)
        )


# Base kernels given as matrices: the entries at row positions, and one sentence for the rest -------------------------


RNG = np.random.default_rng(0)
N = 23
ROWS = RNG.normal(size=(N, 3))
SOURCE = GaussianFamily([0.1, 0.2, 1.5])
MATRICES = SOURCE.tile(ROWS, ROWS)
MATRICES.flags.writeable = False


def at(*positions: int) -> np.ndarray:
    return np.array(positions, dtype=np.float64)[:, None]


SELECTED = [
    range(N),
    range(5, 17),
    range(0, N, 3),
    RNG.permutation(N),
    [4, 4, 0, 22, 9, 4],
    [8],
    [],
]
SELECTIONS = [np.array(rows, dtype=int) for rows in SELECTED]


@pytest.mark.parametrize("given", [MATRICES, list(MATRICES)], ids=["array", "list"])
def test_a_tile_is_the_entries_at_the_positions(given):
    family, shift = PrecomputedFamily(given), np.array([0.5, -1.0, 0.0])
    part = family.subset([2, 0]).subset([1])
    np.testing.assert_array_equal(part.tile(part.X, part.X), MATRICES[:1])
    for i, j in product(SELECTIONS, SELECTIONS):
        expected = MATRICES[:, i][:, :, j]
        np.testing.assert_array_equal(family.tile(at(*i), at(*j)), expected)
        np.testing.assert_array_equal(
            family.tile(at(*i), at(*j), shift), expected - shift[:, None, None]
        )
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


LABELS = [f"row {i}" for i in range(N)]


def as_memory_map(K: np.ndarray) -> np.ndarray:
    with tempfile.TemporaryFile() as file:
        mapped = np.memmap(file, np.float64, "w+", shape=K.shape)
    mapped[:] = K
    return mapped


CONTAINERS = {
    "DataFrame": pd.DataFrame,
    "DataFrame with labels": lambda K: pd.DataFrame(K, LABELS, LABELS),
    "DataFrame with numbers as texts": lambda K: pd.DataFrame(
        K, range(N), list(map(str, range(N)))
    ),
    "DataFrame with labels of columns": lambda K: pd.DataFrame(K, columns=LABELS),
    "nullable DataFrame": lambda K: pd.DataFrame(K).convert_dtypes(),
    "DataFrame of objects": lambda K: pd.DataFrame(K).astype(object),
    "polars": lambda K: pl.DataFrame(K, schema=LABELS),
    "Arrow": lambda K: pa.table(list(K.T), names=LABELS),
    "csr": sparse.csr_matrix,
    "coo": sparse.coo_matrix,
    "sparse array": sparse.csc_array,
    "lists": np.ndarray.tolist,
    "tuples": lambda K: tuple(map(tuple, K.tolist())),
    "masked": np.ma.masked_invalid,
    "memory map": as_memory_map,
    "columns first": np.asfortranarray,
    "other byte order": lambda K: K.astype(">f8"),
}
"""Containers of a matrix of whole numbers, and what makes each of an array of float64."""

TYPES = ["float64", "float32", "float16", "int64", "int8", "uint8", "bool"]


@pytest.mark.parametrize("put", CONTAINERS.values(), ids=CONTAINERS)
def test_matrices_may_be_in_any_container(put):
    rows = np.random.default_rng(0).integers(0, 2, size=(2, N, 5)).astype(np.float64)
    matrices = rows @ rows.transpose(0, 2, 1)
    first, second = (put(K) for K in matrices)
    family = PrecomputedFamily([first, second])
    np.testing.assert_array_equal(family.tile(family.X, family.X), matrices)
    np.testing.assert_array_equal(
        family.diag(family.X), matrices[:, range(N), range(N)]
    )
    # Sums of another order differ by rounding
    for measure in (
        centered_alignment,
        alignment,
    ):
        assert measure(first, second) == pytest.approx(measure(*matrices), rel=1e-12)
    np.testing.assert_allclose(
        center_gram(first), center_gram(matrices[0]), rtol=0, atol=1e-14
    )
    learned = learn_kernel(family.X, rows[0, :, 0], learner="alignf", family=family)
    expected = learn_kernel(
        family.X, rows[0, :, 0], learner="alignf", family=PrecomputedFamily(matrices)
    )
    np.testing.assert_array_equal(learned.weights, expected.weights)


@pytest.mark.parametrize("dtype", TYPES)
def test_matrices_may_be_of_any_type_of_numbers(dtype: str):
    matrices = np.stack([np.eye(N), np.ones((N, N))]).astype(dtype)
    for given in (matrices, list(matrices), [pd.DataFrame(K) for K in matrices]):
        family = PrecomputedFamily(given)
        np.testing.assert_array_equal(
            family.tile(family.X, family.X), matrices.astype(np.float64)
        )


def changed(k: int, i: int, j: int, value: float) -> np.ndarray:
    matrices = MATRICES.copy()
    matrices[k, i, j] = value
    return matrices


NO_KERNELS = [
    (lambda: PrecomputedFamily([]), "matrices must be an array of shape"),
    (
        lambda: PrecomputedFamily(MATRICES[0]),
        r"got one of shape \(23, 23\); put a single matrix into a list",
    ),
    (
        lambda: PrecomputedFamily(pd.DataFrame(MATRICES[0])),
        r"got one of shape \(23, 23\)",
    ),
    (
        lambda: PrecomputedFamily(sparse.csr_array(MATRICES[0])),
        r"got one of shape \(23, 23\)",
    ),
    (
        lambda: PrecomputedFamily([MATRICES[0], pd.DataFrame(MATRICES[1]).iloc[1:]]),
        r"got shape \(22, 23\) of matrix 1 ",
    ),
    (
        lambda: PrecomputedFamily([MATRICES[0], [[1.0], [1.0, 2.0]]]),
        "matrix 1 must have rows of one length",
    ),
    (
        lambda: PrecomputedFamily([pd.DataFrame(MATRICES[0], LABELS, LABELS[::-1])]),
        "got row 'row 0' and column 'row 22'",
    ),
    (
        lambda: PrecomputedFamily(
            [pd.DataFrame(MATRICES[0], LABELS, LABELS).iloc[::-1]]
        ),
        "one order of rows and columns",
    ),
    (
        lambda: PrecomputedFamily(
            [
                pd.DataFrame(K, of, of)
                for K, of in zip(MATRICES[:2], [LABELS, LABELS[::-1]], strict=True)
            ]
        ),
        "matrix 1 must have the labels of matrix 0 in the same order",
    ),
    (
        lambda: centered_alignment(MATRICES[0], MATRICES[1].astype(str)),
        "L must hold real numbers",
    ),
    (lambda: PrecomputedFamily(MATRICES[:0]), "give at least one matrix"),
    (
        lambda: PrecomputedFamily([MATRICES[0], MATRICES[1, :2, :2]]),
        "or p arrays of shape .n, n.",
    ),
    (lambda: PrecomputedFamily(MATRICES[:, :9]), r"got shape \(9, 23\) of matrix 0"),
    (lambda: PrecomputedFamily(np.zeros((1, 0, 0))), "give at least one matrix"),
    (
        lambda: PrecomputedFamily([MATRICES[0], MATRICES[1] * 1j]),
        "matrix 1 must hold real numbers, got complex128",
    ),
    (
        lambda: PrecomputedFamily([np.full((4, 4), "a", object)]),
        "matrix 0 must hold real numbers, got object",
    ),
    (
        lambda: PrecomputedFamily(MATRICES, ["a"]),
        "names must have one entry per matrix, got 1 for 3",
    ),
    (lambda: PrecomputedFamily(changed(1, 0, 22, 0.9)), "'matrix 1' is not symmetric"),
    (
        lambda: PrecomputedFamily(changed(2, 4, 5, np.nan)),
        "'matrix 2' holds NaN or infinity",
    ),
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
    for ask in (
        family.diag,
        lambda Z: family.tile(Z, one),
        lambda Z: family.tile(one, Z),
    ):
        require_refusals((partial(ask, X), said) for X, said in NO_POSITIONS)


def test_what_is_not_finite_is_refused_when_it_is_read():
    matrices = np.tile(np.eye(400), (2, 1, 1))
    family = PrecomputedFamily(matrices)
    matrices[1, 7, 8] = np.inf  # outside the sample that is checked at the start
    assert np.isfinite(family.tile(at(0), family.X)).all()
    require_refusals(
        [(lambda: family.tile(at(7), family.X), "'matrix 1' holds NaN or infinity")]
    )


def test_matrices_that_are_no_family_are_refused_and_what_the_sentence_says_works():
    y = RNG.normal(size=N)
    said = r"family must be a family .* or None, got (list|ndarray); .* matrices .*PrecomputedFamily\("
    for wrong in ([MATRICES[0], MATRICES[1]], MATRICES):
        model = KernelLearningRegressor(family=wrong, learner="alignf")
        require_refusals(
            [
                (partial(learn_kernel, ROWS, y, learner="alignf", family=wrong), said),
                (partial(model.fit, ROWS, y), said),
            ]
        )
    learned = learn_kernel(
        np.arange(N)[:, None],
        y,
        learner="alignf",
        family=PrecomputedFamily(np.stack(list(MATRICES))),
    )
    np.testing.assert_allclose(
        learned.weights,
        learn_kernel(ROWS, y, learner="alignf", family=SOURCE).weights,
        rtol=1e-9,
    )
