"""The compiled pass: equal to sums of matrices, exact where kernels nearly vanish, and blind to how work is cut."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnkernels import (
    FamilyUnion,
    LinearFamily,
    center_gram,
    gram_statistics,
    learn_kernel,
)
from learnkernels.kernels.compiled.distances import (
    as_distance_sides,
    pack_columns,
    pack_rows,
)
from learnkernels.kernels.compiled.loops import empty_vectors
from learnkernels.kernels.engine.tiles import TileSums, runs
from learnkernels.kernels.families import (
    CategoricalFamily,
    GaussianFamily,
    LaplacianFamily,
    PolynomialFamily,
)
from learnkernels.kernels.families.base import TilePlan, fill_seeds, sides_of_tile
from learnkernels.kernels.statistics.gram import GramStatistics
from tests import reference

FAMILIES = {
    "grid": GaussianFamily([2.0**g for g in (-1, 1, -3, 0, -2)]),
    "any bandwidths": GaussianFamily([0.3, 0.11, 0.7, 0.6]),
    "one": GaussianFamily([0.2]),
    "eleven": GaussianFamily([2.0**g for g in range(-8, 3)]),
    "doubled twice": GaussianFamily([0.5, 1.0, 1.0, 2.0, 2.0, 0.25]),
    "categories": CategoricalFamily([0.25, 0.5, 1.5]),
    "laplacian": LaplacianFamily([0.25, 0.5, 1.5]),
    "euclidean": LaplacianFamily([0.25, 0.5, 1.5], norm=2),
    "polynomial": PolynomialFamily([1, 2, 3], gamma=0.3),
    "union": FamilyUnion(
        [GaussianFamily([0.5, 0.25]), LinearFamily(), GaussianFamily([1.0])],
        [[0, 1], None, [2]],
    ),
}


def problem(
    m: int, q: int = 1, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 3))
    Y = rng.normal(size=(m, q)) + np.sin(X[:, :1])
    return X, Y, rng.integers(0, 5, m)


def assert_equal_up_to_rounding(
    one: GramStatistics, other: GramStatistics, rtol: float = 1e-11
) -> None:
    """Compare statistics relative to the norms of the kernels and targets they are made of."""
    norms = np.sqrt(np.einsum("ghkk->k", other.block_products))
    np.testing.assert_allclose(
        one.products(),
        other.products(),
        rtol=0,
        atol=rtol * np.outer(norms, norms).max(),
    )
    size = norms.max() * other.target_norm()
    np.testing.assert_allclose(
        one.target_products(), other.target_products(), rtol=0, atol=rtol * size
    )
    np.testing.assert_allclose(one.traces(), other.traces(), rtol=rtol)
    np.testing.assert_allclose(one.alignments, other.alignments, rtol=0, atol=rtol)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_tiles_on_the_diagonal_are_those_that_take_no_half_from_the_other(dtype):
    family, shift = FAMILIES["eleven"], np.ones(11)
    for n, weighted in product((5, 97, 311), (False, True)):
        X, Y, _ = problem(n, 2)
        X, Y, w = (
            X.astype(dtype),
            Y.astype(dtype),
            np.random.default_rng(1).random(n) + 0.1 if weighted else None,
        )
        sums = TileSums(family.plan(shift), np.dtype(dtype))
        seeds = empty_vectors(n * n, dtype)[: n * n].reshape(1, n, n)
        fill_seeds(*sides_of_tile(family.operands, X, X, shift), seeds)
        half, whole = (
            sums.of(seeds, Y, Y, w, w, mirrored) for mirrored in (True, False)
        )
        # Sums of n terms each, in another order
        rounding = 20 * n * np.finfo(dtype).eps
        for one, other in zip(half, whole, strict=True):
            np.testing.assert_allclose(
                one, other, rtol=0, atol=rounding * np.abs(other).max()
            )


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_seeds_made_a_few_rows_at_a_time_have_the_sums_of_those_of_a_whole_tile(family):
    shift = np.linspace(0, 1, family.n_kernels)
    for (a, b), dtype in product(
        ((1, 1), (5, 97), (150, 311)), (np.float64, np.float32)
    ):
        X, Y, _ = problem(a + b, 2)
        A, B, w = (
            X[:a].astype(dtype),
            X[a:].astype(dtype),
            np.random.default_rng(1).random(a + b) + 0.1,
        )
        of = [as_distance_sides(family.operands(side, shift)) for side in (A, B)]
        if None in of:
            assert not family.translation_invariant
            continue
        size = family.n_seeds * a * b
        seeds = empty_vectors(size, dtype)[:size].reshape(-1, a, b)
        fill_seeds(*sides_of_tile(family.operands, A, B, shift), seeds)
        sums = TileSums(family.plan(shift), np.dtype(dtype), of[0])
        rows = pack_rows(of[0], np.dtype(dtype)), pack_columns(of[1], np.dtype(dtype))
        made, given = (
            sums.of(one, Y[:a], Y[a:], w[:a], w[a:]) for one in (rows, seeds)
        )
        # Each seed has the same bits, or is that of rows less a mean
        for one, other in zip(made, given, strict=True):
            np.testing.assert_allclose(
                one, other, rtol=0, atol=50 * np.finfo(dtype).eps * np.abs(other).max()
            )


@settings(max_examples=25)
@given(data=st.data())
def test_nothing_depends_on_how_the_work_is_cut(data):
    m = data.draw(st.integers(3, 70))
    X, Y, _ = problem(m, data.draw(st.integers(1, 3)), seed=m)
    copies = data.draw(st.integers(0, 3))
    X[:copies] = X[-1]  # duplicated rows
    groups = np.array(data.draw(st.lists(st.integers(-2, 3), min_size=m, max_size=m)))
    family = FAMILIES[data.draw(st.sampled_from(sorted(FAMILIES)))]
    w = data.draw(st.sampled_from([None, np.random.default_rng(m).random(m) + 0.1]))
    whole = gram_statistics(
        family, X, Y, groups, block_rows=m, n_threads=1, sample_weight=w
    )
    block_rows = data.draw(st.integers(1, 80))
    cut = gram_statistics(
        family, X, Y, groups, block_rows=block_rows, n_threads=3, sample_weight=w
    )
    assert_equal_up_to_rounding(cut, whole)
    order = np.array(data.draw(st.permutations(range(m))))
    shuffled = gram_statistics(
        family, X[order], Y[order], sample_weight=None if w is None else w[order]
    )
    assert_equal_up_to_rounding(shuffled, whole)


@pytest.mark.parametrize(
    "family", [FAMILIES["grid"], LinearFamily()], ids=["gaussian", "linear"]
)
def test_rows_a_million_away_from_the_origin_lose_only_what_the_rows_lost(family):
    X, Y, groups = problem(90)
    X = np.round(X, 6)
    far = X + 1e6
    near = far - 1e6  # what is left of the rows once the offset has rounded them
    assert_equal_up_to_rounding(
        *(gram_statistics(family, rows, Y, groups) for rows in (far, near)), rtol=1e-9
    )
    kernels = [
        learn_kernel(rows, Y[:, 0], learner="alignf", family=family)
        for rows in (far, near)
    ]
    new = near[:7] * 0.9
    crossed = [
        kernel.cross_gram(rows)
        for kernel, rows in zip(kernels, (new + 1e6, new), strict=True)
    ]
    # The new rows are rounded to 1e-10 by their offset.
    np.testing.assert_allclose(
        crossed[0], crossed[1], rtol=0, atol=1e-8 * np.abs(crossed[1]).max()
    )


def test_single_precision_tiles_give_six_digits_where_kernels_are_not_nearly_constant():
    X, Y, groups = problem(400)
    family, weights = (
        GaussianFamily([2.0**g for g in range(-6, 4)]),
        np.random.default_rng(1).integers(1, 6, 400),
    )
    for w in (None, weights):
        of = {"sample_weight": w}
        single, double = (
            gram_statistics(family, X, Y, groups, dtype=d, **of)
            for d in (np.float32, np.float64)
        )
        # Rounding of 6e-8 a value, less cancellation of the centering: kernels here
        # have at least 1 % of spread.
        np.testing.assert_allclose(single.alignments, double.alignments, rtol=1e-5)


NUMBERS = [*range(1, 14), 21, 32]
COMPILED = FAMILIES | {
    f"{p} doubled": GaussianFamily([2.0 ** (k - 8) for k in range(p)]) for p in NUMBERS
}
COMPILED |= {
    f"{p} apart": GaussianFamily([0.1 + 0.07 * k for k in range(p)]) for p in NUMBERS
}


@pytest.mark.parametrize(("q", "weighted"), [(1, False), (3, True)])
def test_compiled_sums_are_those_of_numpy(q, weighted, subtests):
    (X, Y, groups), w = problem(83, q), np.random.default_rng(1).random(83) + 0.1
    for name, family in COMPILED.items():
        fast = gram_statistics(
            family, X, Y, groups, block_rows=16, sample_weight=w if weighted else None
        )
        slow, kept = reference.summed_by_numpy(fast, family, X), fast.labels[1:4]
        with subtests.test(name):
            assert_equal_up_to_rounding(fast, slow)
            assert_equal_up_to_rounding(fast.restrict(kept), slow.restrict(kept))
            np.testing.assert_allclose(fast.products(), slow.products(), rtol=1e-9)
            assert np.diff(runs(family.n_kernels)).sum() == family.n_kernels


def test_a_plan_makes_each_bandwidth_from_half_of_it_and_joins_families():
    plan = GaussianFamily([4.0, 1.0, 0.3, 2.0]).plan(np.zeros(4))
    assert (plan.half.tolist(), plan.n_seeds) == ([3, -1, -1, 1], 2)
    joined = TilePlan.joined([plan, TilePlan.identity(2), plan])
    assert (joined.half.tolist(), joined.n_seeds) == (
        [3, -1, -1, 1, -1, -1, 9, -1, -1, 7],
        6,
    )
    assert sorted(kernel for kernel, _ in joined.order) == list(range(10))
    assert sorted(seed for _, seed in joined.order if seed >= 0) == list(range(6))


def test_kernels_of_a_union_do_not_depend_on_the_order_of_its_families():
    rng = np.random.default_rng(0)
    # Most values of a column are equal, so that Gaussians read only the others.
    X = (rng.random((200, 20)) < 0.15).astype(float)
    X_new = X[:30][::-1]
    y = np.where(X.sum(axis=1) > 3, 1.0, -1.0)
    categorical = CategoricalFamily([0.2])
    gaussian = GaussianFamily([0.1])
    K = categorical.tile(X, X)[0] + gaussian.tile(X, X)[0]
    for families in ([categorical, gaussian], [gaussian, categorical]):
        kernel = learn_kernel(
            X, y, learner="unif", family=FamilyUnion(families), normalize="none"
        )
        expected = kernel.weights[0] * center_gram(K)
        np.testing.assert_allclose(kernel.gram(), expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            kernel.cross_gram(X_new), expected[:30][::-1], rtol=0, atol=1e-12
        )
