"""The compiled pass: equal to sums of matrices, exact where kernels nearly vanish, and blind to how work is cut."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnkernels import (
    CategoricalFamily,
    FamilyUnion,
    GaussianFamily,
    LaplacianFamily,
    LinearFamily,
    PolynomialFamily,
    gram_moments,
    learn_kernel,
)
from learnkernels.kernels.compiled.distances import all_side_by_side, one_after_another
from learnkernels.kernels.compiled.vectors import room
from learnkernels.kernels.engine.sums import runs
from learnkernels.kernels.engine.tiles import Opposite, TileSums
from learnkernels.kernels.families.base import TilePlan
from learnkernels.kernels.moments.gram import GramMoments
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
    "union": FamilyUnion([GaussianFamily([0.5, 0.25]), LinearFamily(), GaussianFamily([1.0])], [[0, 1], None, [2]]),
}


def problem(m: int, q: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 3))
    Y = rng.normal(size=(m, q)) + np.sin(X[:, :1])
    return X, Y, rng.integers(0, 5, m)


def assert_equal_up_to_rounding(one: GramMoments, other: GramMoments, rtol: float = 1e-11) -> None:
    """Compare statistics relative to the norms of the kernels and targets they are made of."""
    norms = np.sqrt(np.einsum("ghkk->k", other.products))
    np.testing.assert_allclose(one.frobenius, other.frobenius, rtol=0, atol=rtol * np.outer(norms, norms).max())
    np.testing.assert_allclose(one.target, other.target, rtol=0, atol=rtol * norms.max() * other.target_norm)
    np.testing.assert_allclose(one.centered_traces, other.centered_traces, rtol=rtol)
    np.testing.assert_allclose(one.alignments, other.alignments, rtol=0, atol=rtol)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
@pytest.mark.parametrize("q", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_compiled_sums_are_those_of_numpy(family, q, weighted):
    X, Y, groups = problem(83, q)
    weights = np.random.default_rng(1).random(83) + 0.1 if weighted else None
    fast = gram_moments(family, X, Y, groups, block_rows=16, sample_weight=weights)
    slow = reference.summed_by_numpy(fast, family, X)
    assert_equal_up_to_rounding(fast, slow)
    kept = fast.labels[1:4]
    assert_equal_up_to_rounding(fast.restrict(kept), slow.restrict(kept))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [5, 97, 311])
def test_tiles_on_the_diagonal_are_those_that_take_no_half_from_the_other(dtype, weighted, n):
    family, shift = FAMILIES["eleven"], np.ones(11)
    X, Y, _ = problem(n, 2)
    X, Y, w = X.astype(dtype), Y.astype(dtype), np.random.default_rng(1).random(n) + 0.1 if weighted else None
    sums = TileSums(family.plan(shift), np.dtype(dtype))
    seeds = room(n * n, dtype)[: n * n].reshape(1, n, n)
    family.fill_seeds(X, X, shift, seeds)
    half, whole = (sums.of(seeds, Y, Y, w, w, mirrored) for mirrored in (True, False))
    rounding = 20 * n * np.finfo(dtype).eps  # sums of n terms each, in another order
    for one, other in zip(half, whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=rounding * np.abs(other).max())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
@pytest.mark.parametrize(("a", "b"), [(1, 1), (5, 97), (150, 311)])
def test_seeds_made_a_few_rows_at_a_time_have_the_sums_of_those_of_a_whole_tile(family, dtype, a, b):
    X, Y, _ = problem(a + b, 2)
    A, B, w = X[:a].astype(dtype), X[a:].astype(dtype), np.random.default_rng(1).random(a + b) + 0.1
    of = [family.differences(side) for side in (A, B)]
    shift = np.linspace(0, 1, family.n_kernels)
    if None in of:
        assert not family.translation_invariant
        return
    size = family.n_seeds * a * b
    seeds = room(size, dtype)[:size].reshape(-1, a, b)
    family.fill_seeds(A, B, shift, seeds)
    sums = TileSums(family.plan(shift), np.dtype(dtype), of[0])
    rows = Opposite(one_after_another(of[0], np.dtype(dtype)), all_side_by_side(of[1], np.dtype(dtype)))
    made, given = (sums.of(one, Y[:a], Y[a:], w[:a], w[a:]) for one in (rows, seeds))
    for one, other in zip(made, given, strict=True):  # each seed has the same bits, or is that of rows less a mean
        np.testing.assert_allclose(one, other, rtol=0, atol=50 * np.finfo(dtype).eps * np.abs(other).max())


@settings(max_examples=40)
@given(data=st.data())
def test_nothing_depends_on_how_the_work_is_cut(data):
    m = data.draw(st.integers(3, 70))
    X, Y, _ = problem(m, data.draw(st.integers(1, 3)), seed=m)
    copies = data.draw(st.integers(0, 3))
    X[:copies] = X[-1]  # duplicated rows
    groups = np.array(data.draw(st.lists(st.integers(-2, 3), min_size=m, max_size=m)))
    family = FAMILIES[data.draw(st.sampled_from(sorted(FAMILIES)))]
    whole = gram_moments(family, X, Y, groups, block_rows=m, n_threads=1)
    cut = gram_moments(family, X, Y, groups, block_rows=data.draw(st.integers(1, 80)), n_threads=3)
    assert_equal_up_to_rounding(cut, whole)
    permutation = np.array(data.draw(st.permutations(range(m))))
    assert_equal_up_to_rounding(gram_moments(family, X[permutation], Y[permutation]), whole)


@pytest.mark.parametrize("family", [FAMILIES["grid"], LinearFamily()], ids=["gaussian", "linear"])
def test_rows_a_million_away_from_the_origin_lose_only_what_the_rows_lost(family):
    X, Y, groups = problem(90)
    X = np.round(X, 6)
    far = X + 1e6
    near = far - 1e6  # what is left of the rows once the offset has rounded them
    assert_equal_up_to_rounding(gram_moments(family, far, Y, groups), gram_moments(family, near, Y, groups), rtol=1e-9)
    kernels = [learn_kernel("alignf", family, rows, Y[:, 0]) for rows in (far, near)]
    new = near[:7] * 0.9
    crossed = [kernel.cross_gram(rows) for kernel, rows in zip(kernels, (new + 1e6, new), strict=True)]
    # The new rows are rounded to 1e-10 by their offset.
    np.testing.assert_allclose(crossed[0], crossed[1], rtol=0, atol=1e-8 * np.abs(crossed[1]).max())


def longdouble_alignments(X: np.ndarray, y: np.ndarray, gammas: list[float]) -> np.ndarray:
    """Alignments in extended precision, from kernels less the value that keeps most digits."""
    X = X.astype(np.longdouble)
    D = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    y = y.astype(np.longdouble) - y.astype(np.longdouble).mean()
    result = []
    for gamma in gammas:
        E = np.expm1(-np.longdouble(gamma) * D)
        E = E - E.mean(axis=0) - E.mean(axis=1)[:, None] + E.mean()
        result.append(float(y @ E @ y / (np.sqrt((E * E).sum()) * (y @ y))))
    return np.array(result)


EXPONENTS = list(range(-30, 11))


@pytest.mark.parametrize("grid", ["powers of two", "any"])
def test_alignments_are_exact_from_nearly_constant_to_nearly_diagonal_kernels(grid):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 20))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = np.sign(X[:, 0] + X[:, 1] ** 2 - 1 + 0.3 * rng.normal(size=300))
    gammas = [2.0**g * (1.0 if grid == "powers of two" else 1.1 ** (g % 3)) for g in EXPONENTS]
    found, expected = gram_moments(GaussianFamily(gammas), X, y), longdouble_alignments(X, y, gammas)
    for moments in (found, reference.summed_by_numpy(found, GaussianFamily(gammas), X)):
        np.testing.assert_allclose(moments.alignments, expected, rtol=1e-9)


def test_single_precision_tiles_give_six_digits_where_kernels_are_not_nearly_constant():
    X, Y, groups = problem(400)
    family = GaussianFamily([2.0**g for g in range(-6, 4)])
    single, double = (gram_moments(family, X, Y, groups, dtype=dtype) for dtype in (np.float32, np.float64))
    # Rounding of 6e-8 a value, less cancellation of the centering: kernels here have at least 1 % of spread.
    np.testing.assert_allclose(single.alignments, double.alignments, rtol=2e-5)


@pytest.mark.parametrize("p", [*range(1, 14), 21, 32])
@pytest.mark.parametrize("doubled", [False, True])
def test_products_are_right_for_every_number_of_kernels(p, doubled):
    X, Y, _ = problem(37)
    family = GaussianFamily([2.0 ** (k - p) if doubled else 0.1 + 0.07 * k for k in range(p)])
    fast = gram_moments(family, X, Y, block_rows=10)
    np.testing.assert_allclose(fast.frobenius, reference.summed_by_numpy(fast, family, X).frobenius, rtol=1e-9)
    assert np.diff(runs(p)).sum() == p


def test_a_plan_makes_each_bandwidth_from_half_of_it_and_joins_families():
    plan = GaussianFamily([4.0, 1.0, 0.3, 2.0]).plan(np.zeros(4))
    assert plan.half.tolist() == [3, -1, -1, 1]
    assert plan.n_seeds == 2
    joined = TilePlan.joined([plan, TilePlan.identity(2), plan])
    assert joined.half.tolist() == [3, -1, -1, 1, -1, -1, 9, -1, -1, 7]
    assert joined.n_seeds == 6
    assert sorted(kernel for kernel, _ in joined.order) == list(range(10))
    assert sorted(seed for _, seed in joined.order if seed >= 0) == list(range(6))
