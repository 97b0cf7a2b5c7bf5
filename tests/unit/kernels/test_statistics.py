"""First-stage statistics: one pass over tiles against textbook matrices, for every union of fold groups."""

import io
from copy import deepcopy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from learnkernels import (
    FamilyUnion,
    FeatureFamily,
    GaussianFamily,
    KernelLearningClassifier,
    LinearFamily,
    PolynomialFamily,
    alignment_test,
    gram_statistics,
    learn_kernel,
)
from learnkernels.kernels.engine.operators import gram_operator
from learnkernels.kernels.engine.passes import RowBlocks, TilePass, choose_shift
from learnkernels.kernels.engine.workers import BlockResults, Threads
from learnkernels.kernels.families import PrecomputedFamily
from learnkernels.kernels.learners import LEARNERS
from learnkernels.kernels.statistics import gram, sampled
from learnkernels.kernels.statistics.gram import AlignmentStatistics
from tests import reference
from tests.refusals import require_refusals
from tests.unit.kernels.conftest import CASES, assert_same_statistics

# Accumulated over tiles, against matrices in long double; the identities cancel a few
# digits at most.
TEXTBOOK = 1e-10

# Two ways of adding the same numbers.
REGROUPED = 1e-12

LABELS = np.array([-4, 0, 3, 17])


def targets(m: int, q: int, seed: int = 0) -> np.ndarray:
    Y = np.random.default_rng(seed).normal(size=(m, q)) + 0.8
    return Y[:, 0] if q == 1 else Y


def random_rows(m: int, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(m, d)), rng.normal(size=(m, 2))


def assert_textbook(
    statistics, Ks, Y: np.ndarray, centered: bool = True, rtol: float = TEXTBOOK
) -> None:
    """Compare with matrices in long double, explicitly centered or as they are."""
    L, within = reference.target_kernel(Y), {"rtol": 0.0, "atol": rtol}
    if centered:
        Ks, L, within = (
            [reference.centered(K) for K in Ks],
            reference.centered(L),
            {"rtol": rtol, "atol": 0.0},
        )
    M = np.array(
        [[reference.frobenius_product(K, other) for other in Ks] for K in Ks]
    ).astype(float)
    a = np.array([reference.frobenius_product(K, L) for K in Ks]).astype(float)
    # Kernels as they are may be nearly orthogonal, and cancel: relative to their norms.
    norms, norm = np.sqrt(np.diag(M)), float(np.sqrt(reference.frobenius_product(L, L)))
    pairs, got = np.outer(norms, norms), statistics.products(centered)
    np.testing.assert_allclose(got / pairs, M / pairs, **within)
    np.testing.assert_array_equal(got, got.T)
    np.testing.assert_allclose(statistics.squared_norms(centered), norms**2, rtol=rtol)
    alignments = statistics.alignments if centered else statistics.uncentered_alignments
    for aligned in (statistics.target_products(centered) / (norms * norm), alignments):
        np.testing.assert_allclose(aligned, a / (norms * norm), **within)
    np.testing.assert_allclose(
        statistics.traces(centered), [float(np.trace(K)) for K in Ks], rtol=rtol
    )
    assert statistics.target_norm(centered) == pytest.approx(norm, rel=rtol)
    assert not statistics.vanishing(centered).any()


def moved_grams(case, statistics: gram.GramStatistics) -> np.ndarray:
    """Return the kernels as the pass saw them: of the rows less the origin, where that changes no centered kernel."""
    if not statistics.origin.any():
        return case.grams
    return case.family.tile(case.X - statistics.origin, case.X - statistics.origin)


# One pass against matrices -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("q", "block_rows", "keep_origin"), [(1, None, False), (3, 7, True)]
)
def test_statistics_are_those_of_matrices(case, q, block_rows, keep_origin):
    Y = targets(case.X.shape[0], q)
    statistics = gram_statistics(
        case.family, case.X, Y, block_rows=block_rows, keep_origin=keep_origin
    )
    assert_textbook(statistics, case.grams, Y)
    for k, K in enumerate(moved_grams(case, statistics)):
        expected = K.mean(axis=1).astype(float) - statistics.shift[k]
        np.testing.assert_allclose(
            statistics.row_means[k], expected, rtol=0, atol=1e-12 * case.sizes[k, 0, 0]
        )
    mu = np.random.default_rng(1).random(case.family.n_kernels)
    K = sum(weight * K for weight, K in zip(mu, case.grams, strict=True))
    expected = reference.uncentered_alignment(
        reference.centered(K), reference.centered(reference.target_kernel(Y))
    )
    assert statistics.alignment(mu) == pytest.approx(expected, rel=TEXTBOOK)
    assert [statistics.alignment(unit) for unit in np.eye(len(mu))] == pytest.approx(
        statistics.alignments, rel=1e-12
    )
    if statistics.raw:
        assert_textbook(statistics, case.grams, Y, False)
        return
    assert not keep_origin
    for statistic in (
        statistics.products,
        statistics.squared_norms,
        statistics.target_products,
        statistics.traces,
    ):
        with pytest.raises(
            ValueError,
            match="moved to their mean; pass keep_origin=True to gram_statistics",
        ):
            statistic(centered=False)


def test_statistics_of_some_groups_are_those_of_their_rows_alone(case):
    m = case.X.shape[0]
    Y, groups = (
        targets(m, 2, seed=10),
        LABELS[np.random.default_rng(9).permutation(np.arange(m) % len(LABELS))],
    )
    given = case.family, case.X, Y, groups
    statistics, raw = (
        gram_statistics(*given, block_rows=4, keep_origin=keep)
        for keep in (False, True)
    )
    for kept in ([0], [17, -4], [3, 0, 17], [-4, 0, 3, 17]):
        held = np.isin(groups, kept)
        Ks, restricted = (
            [K[np.ix_(held, held)] for K in case.grams],
            statistics.restrict(kept),
        )
        assert_textbook(restricted, Ks, Y[held])
        assert_textbook(raw.restrict(kept), Ks, Y[held], False)
        assert (restricted.labels, restricted.n_rows) == (
            tuple(sorted(kept)),
            held.sum(),
        )
        np.testing.assert_array_equal(np.sort(restricted.rows), np.flatnonzero(held))
        np.testing.assert_array_equal(
            np.array(restricted.labels)[restricted.group], groups[restricted.rows]
        )
        np.testing.assert_allclose(
            restricted.targets, Y[restricted.rows] - Y.mean(axis=0), rtol=1e-14
        )
    for g, h in np.ndindex(4, 4):
        block = np.ix_(groups == LABELS[g], groups == LABELS[h])
        parts = [
            K[block] - shift
            for K, shift in zip(
                moved_grams(case, statistics), statistics.shift, strict=True
            )
        ]
        expected = np.array(
            [[reference.frobenius_product(K, L) for L in parts] for K in parts]
        ).astype(float)
        # Signed sums: relative to the norms of the two factors.
        norms = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
        np.testing.assert_allclose(
            statistics.block_products[g, h] / norms,
            expected / norms,
            rtol=0,
            atol=TEXTBOOK,
        )


def test_two_rows_are_enough():
    X, Y = np.array([[0.0, 1.0], [2.0, 0.5]]), np.array([1.0, -2.0])
    family = FamilyUnion([GaussianFamily([0.5]), LinearFamily()])
    Ks = [reference.gram(reference.gaussian(0.5), X), (X @ X.T).astype(np.longdouble)]
    for block_rows in (1, 2):
        statistics = gram_statistics(family, X, Y, block_rows=block_rows)
        assert_textbook(statistics, Ks, Y)
        # Two centered rows leave one direction, along which every kernel lies.
        np.testing.assert_allclose(statistics.alignments, 1.0, rtol=1e-12)


def test_rows_targets_and_groups_are_not_modified():
    (X, Y), groups = random_rows(30, seed=5), np.arange(30) % 3
    rows = sparse.csr_matrix(X)
    for given_array in (X, Y, groups, rows.data):
        given_array.flags.writeable = False
    for form in (X, rows):
        gram_statistics(GaussianFamily([0.5, 1.0]), form, Y, groups, block_rows=7)


# Uncentered ----------------------------------------------------------------------------------------------------------


def test_statistics_know_whether_their_kernels_are_those_of_the_rows_as_given():
    gaussians, linear, quadratic = (
        GaussianFamily([0.5]),
        LinearFamily(),
        PolynomialFamily([2]),
    )
    # A union with a kernel that moving changes is not moved at all.
    raw_families = [
        gaussians,
        PolynomialFamily([1], coef0=0.0),
        FamilyUnion([linear, quadratic]),
    ]
    raw_families.append(FamilyUnion([FeatureFamily(3)]))
    raw_families.append(FamilyUnion([gaussians, GaussianFamily([2.0])]))
    families = {linear: False, FamilyUnion([gaussians, linear]): False} | dict.fromkeys(
        raw_families, True
    )
    X, Y = np.random.default_rng(20).normal(size=(20, 3)), np.arange(20.0)
    for family, raw in families.items():
        assert gram_statistics(family, X, Y).raw == raw, family
        assert gram_statistics(family, X, Y, keep_origin=True).raw
        assert gram_statistics(family, sparse.csr_matrix(X), Y).raw
        whole = np.round(np.vstack([X, -X]))  # of mean zero
        assert gram_statistics(family, whole, np.arange(40.0)).raw


def test_statistics_follow_a_constant_added_to_the_targets():
    (X, spread), groups = random_rows(30, seed=21), np.arange(30) % 3
    gammas, held = [2.0**-12, 0.3, 9.0], groups != 1
    Ks = reference.grams([reference.gaussian(gamma) for gamma in gammas], X[held])
    for offset in (0.0, 1.0, -30.0, 1e4):
        Y = spread + offset
        statistics = gram_statistics(GaussianFamily(gammas), X, Y, groups).restrict(
            [0, 2]
        )
        assert_textbook(statistics, Ks, Y[held], False)
        # 1e4 rounds the targets to 1e-12 of their spread
        assert_textbook(statistics, Ks, Y[held])


def test_kernels_that_are_constant_up_to_rounding_are_marked_and_align_with_nothing():
    groups, x = np.arange(12) % 2, np.arange(12.0)
    X = np.column_stack([x, np.full(12, 0.1), np.where(groups == 1, 0.37, x), 0 * x])
    linear, parts = (
        LinearFamily(),
        [GaussianFamily([0.5]), PolynomialFamily([2]), PolynomialFamily([3])],
    )
    family = FamilyUnion([linear, linear, *parts], [[0], [3], [1], [1], [2]])
    statistics = gram_statistics(family, X, x, groups, keep_origin=True)
    np.testing.assert_array_equal(
        statistics.uncentered_alignments > 0, [True, False, True, True, True]
    )
    np.testing.assert_array_equal(
        statistics.vanishing(False), [False, True, False, False, False]
    )
    assert statistics.alignment(np.eye(5)[1]) == 0.0
    # The last kernel is constant on one group alone, far from what was subtracted from
    # it for all rows.
    for part, last in ((statistics, False), (statistics.restrict([1]), True)):
        np.testing.assert_array_equal(part.constant, [False, True, True, True, last])
        np.testing.assert_array_equal(part.alignments == 0, part.constant)
        with pytest.raises(
            ValueError,
            match=r"base kernel linear.*, gaussian.*, polynomial.* is constant on the",
        ):
            part.require_informative()


# Digits --------------------------------------------------------------------------------------------------------------


DIGITS = [
    # Nearly constant: M is 1e-12 for the smallest bandwidth, and accumulating exp would
    # leave one digit of it.
    ([2.0**-26], 0.0, 1e-9),
    ([2.0**g for g in range(-30, 11)], 0.0, 1e-9),
    ([2.0**g * 1.1 ** (g % 3) for g in range(-30, 11)], 0.0, 1e-9),
    ([8.0, 200.0], 0.0, TEXTBOOK),  # nearly the identity
    ([0.01, 0.02, 0.5], 1e4, TEXTBOOK),
]


@pytest.mark.parametrize(("gammas", "offset", "rtol"), DIGITS)
def test_gaussians_keep_their_digits(gammas, offset, rtol):
    X, Y = random_rows(50, d=5, seed=6)
    X += offset
    # The same once centered
    Ks = reference.grams([reference.gaussian_less_one(gamma) for gamma in gammas], X)
    assert_textbook(
        gram_statistics(GaussianFamily(gammas), X, Y, block_rows=13), Ks, Y, rtol=rtol
    )


# Fold groups ---------------------------------------------------------------------------------------------------------


def test_restricting_in_two_steps_is_restricting_once_and_changes_nothing():
    X, Y = random_rows(40, seed=11)
    statistics = gram_statistics(
        GaussianFamily([0.2, 0.9]), X, Y, np.arange(40) % 5, block_rows=6
    )
    before = deepcopy(statistics.to_arrays())
    assert_same_statistics(
        statistics.restrict([0, 2, 3, 4]).restrict([4, 2]),
        statistics.restrict([2, 4]),
        REGROUPED,
    )
    np.testing.assert_equal(statistics.to_arrays(), before)


# Parts ---------------------------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(data=st.data())
def test_parts_of_a_pass_may_be_added_in_any_order_and_grouping(data):
    (X, Y), groups = random_rows(31, seed=15), np.arange(31) % 3
    family, blocks = GaussianFamily([0.25, 0.5]), RowBlocks.of(groups, 4)
    whole = gram_statistics(family, X, Y, groups, block_rows=4)
    origin, target_mean = X.mean(axis=0), Y.mean(axis=0)
    X, Y = (X - origin)[blocks.order], (Y - target_mean)[blocks.order]
    shift = choose_shift(family, X)
    over, super_rows = (
        TilePass(family, X, Y, blocks, shift),
        data.draw(st.sampled_from([1, 9, 100])),
    )
    given = [over.part(None, pairs) for pairs in blocks.super_tiles(super_rows)]

    def finish(part: BlockResults) -> gram.GramStatistics:
        sums = [
            np.concatenate([part.arrays[b, g] for b in range(len(blocks))], axis=1)
            for g in range(3)
        ]
        products = {
            "block_products": part.arrays["products"],
            "block_targets": part.arrays["target products"],
        }
        return replace(
            whole,
            **products,
            block_traces=part.arrays["traces"],
            row_sums=np.stack(sums),
        )

    parts = data.draw(st.permutations([*given, BlockResults({})]))
    while len(parts) > 1:
        i = data.draw(st.integers(0, len(parts) - 2))
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    assert_same_statistics(finish(parts[0]), whole, REGROUPED)
    assert_same_statistics(
        finish(parts[0]).restrict([0, 2]), whole.restrict([0, 2]), REGROUPED
    )


class Backwards(Threads):
    """Workers that begin with the last of many small tasks."""

    def super_tile(self, n_rows, row_bytes):
        return 8

    def total(self, step, shared, argument, tasks):
        assert len(tasks) > 5
        return super().total(step, shared, argument, tasks[::-1])


def test_other_workers_may_do_the_pass():
    (X, Y), groups, family = (
        random_rows(30, seed=16),
        np.arange(30) % 2,
        GaussianFamily([0.3, 0.6]),
    )
    for w in (None, np.arange(1, 31)):
        there = gram_statistics(
            family, X, Y, groups, block_rows=5, workers=Backwards(), sample_weight=w
        )
        assert_same_statistics(
            there, gram_statistics(family, X, Y, groups, sample_weight=w), REGROUPED
        )


@settings(max_examples=60)
@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=60),
    st.integers(1, 25),
    st.integers(1, 70),
)
def test_blocks_hold_every_row_once_and_super_tiles_every_pair_of_blocks(
    groups, block_rows, super_rows
):
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
    pairs = [pair for tile in blocks.super_tiles(super_rows) for pair in tile]
    assert sorted(pairs) == [
        (i, j) for i in range(len(blocks)) for j in range(i, len(blocks))
    ]


# Files and errors ----------------------------------------------------------------------------------------------------


COUNTS = sparse.csr_matrix(
    np.random.default_rng(3).poisson(0.6, size=(24, 7)).astype(float)
)


FILED = [
    (case.family, case.X)
    for case in CASES
    if case.name in ("linear", "gaussian-csr", "union-on-columns")
]
FILED += [(FeatureFamily(7), COUNTS), (FeatureFamily(7), COUNTS.toarray())]
FILED += [(FeatureFamily(24), sparse.csc_array(COUNTS.T))]  # more features than rows


@pytest.mark.parametrize(("family", "X"), FILED)
def test_statistics_survive_a_file_without_pickle(family, X):
    m = X.shape[0]
    for w in (None, np.linspace(0.5, 4.0, m)):
        statistics = gram_statistics(
            family, X, targets(m, 2), LABELS[np.arange(m) % 4], sample_weight=w
        )
        np.savez(file := io.BytesIO(), **statistics.to_arrays())
        file.seek(0)
        stored = dict(np.load(file, allow_pickle=False))
        assert ("sample_weight" in stored) == (w is not None)
        back = sampled.statistics_from_arrays(stored)
        assert type(back) is type(statistics)
        raw = getattr(statistics, "raw", True)
        assert (back.names, back.labels, getattr(back, "raw", True)) == (
            statistics.names,
            statistics.labels,
            raw,
        )
        for one, other in (
            (back, statistics),
            (back.restrict([3, 17]), statistics.restrict([3, 17])),
        ):
            assert one.total_weight == other.total_weight
            assert_same_statistics(one, other, 0.0, (True, False) if raw else (True,))


def test_data_that_do_not_fit_together_are_refused():
    family, four, lengths = (
        GaussianFamily([1.0]),
        np.ones(4),
        "Y and groups must have one entry per row of X, got",
    )
    refused = [
        (1, np.ones(1), None, "X must have at least two rows, got 1"),
        (4, np.ones(3), None, f"{lengths} 3 and 4 for 4 rows"),
        (4, four, np.zeros(5, dtype=int), f"{lengths} 4 and 5 for 4 rows"),
        (
            4,
            np.array([1.0, np.nan, 0.0, 2.0]),
            None,
            "Y must be finite, got NaN or infinity",
        ),
        (
            4,
            np.array([1.0, np.inf, 0.0, 2.0]),
            None,
            "Y must be finite, got NaN or infinity",
        ),
    ]
    require_refusals(
        (partial(gram_statistics, family, np.ones((m, 2)), Y, of), said)
        for m, Y, of, said in refused
    )
    restrict = gram_statistics(family, *random_rows(9), np.arange(9) % 3).restrict
    said = r"groups must be some of \[0, 1, 2\], got \["
    require_refusals((partial(restrict, kept), said) for kept in ([], [7], [0, 7]))


# Matrices of extreme scale -------------------------------------------------------------------------------------------


EXTREMES = [2.0**996, 2.0**-996, 1e300, 1e-300]
WEIGHING = [
    name
    for name, learner in LEARNERS.items()
    if learner.learns_kernel and learner.takes_family
]


def three_matrices() -> tuple[np.ndarray, np.ndarray]:
    """Return matrices without values near zero, which have fewer digits where they are multiplied, and classes."""
    X, noise = (
        np.random.default_rng(0).normal(size=(60, 3)),
        np.random.default_rng(1).normal(size=60),
    )
    grams = np.concatenate(
        [GaussianFamily([0.05, 0.3]).tile(X, X), LinearFamily().tile(X, X) + 0.1]
    )
    return grams, np.where(X[:, 0] + 0.5 * noise > 0, "a", "b")


def fitted_on(matrices: np.ndarray, learner: str, normalize: str, y: np.ndarray):
    family = PrecomputedFamily(matrices)
    return KernelLearningClassifier(
        family=family, learner=learner, C=1.0, normalize=normalize
    ).fit(family.X[:40], y[:40])


@pytest.mark.parametrize("normalize", gram.NORMALIZATIONS)
@pytest.mark.parametrize("learner", WEIGHING)
def test_no_learner_depends_on_an_extreme_scale_of_matrices(learner, normalize):
    matrices, y = three_matrices()
    positions = np.arange(60.0)[:, None]
    model = fitted_on(matrices, learner, normalize, y)
    for factor in EXTREMES:
        # Without normalization the scale of one matrix among others counts, but not
        # that of all.
        factors = (
            np.full(3, factor) if normalize == "none" else np.array([1.0, factor, 1.0])
        )
        scaled = fitted_on(matrices * factors[:, None, None], learner, normalize, y)
        np.testing.assert_allclose(scaled.weights_, model.weights_, rtol=0, atol=1e-7)
        np.testing.assert_allclose(
            scaled.kernel_.alignments, model.kernel_.alignments, rtol=0, atol=1e-9
        )
        assert scaled.alignment_ == pytest.approx(model.alignment_, abs=1e-9)
        # Weights and machines within their tolerances; a decimal factor rounds the
        # matrices.
        for precision, tolerance in (("float64", 1e-6), ("float32", 1e-4)):
            scores = scaled.set_params(precision=precision).decision_function(positions)
            expected = model.set_params(precision="float64").decision_function(
                positions
            )
            np.testing.assert_allclose(scores, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("factor", EXTREMES[:2])
def test_statistics_of_extreme_matrices_are_those_of_the_matrices_but_for_a_power_of_two(
    factor, tmp_path
):
    matrices, y = three_matrices()
    np.save(tmp_path / "matrices.npy", matrices * factor)
    mapped = np.load(tmp_path / "matrices.npy", mmap_mode="r")
    Y, groups, w = (
        np.where(y == "a", 1.0, -1.0),
        np.arange(60) % 3,
        np.random.default_rng(2).uniform(0.5, 2.0, 60),
    )
    ordinary, extreme = PrecomputedFamily(matrices), PrecomputedFamily(mapped)
    for options in ({}, {"sample_weight": w}, {"block_rows": 7, "n_threads": 2}):
        one = gram_statistics(ordinary, ordinary.X, Y, groups, **options)
        other = gram_statistics(extreme, extreme.X, Y, groups, **options)
        assert one.divisors is None
        for of in (lambda s: s, lambda s: s.restrict([0, 2])):
            require_scaled(of(one), of(other), factor)
        again = sampled.statistics_from_arrays(other.to_arrays())
        assert again == other
    sample = {"sample": 30, "seed": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampled, "MIN_ROWS", 10)
        one = sampled.sample_statistics(ordinary, ordinary.X, Y, **sample)
        other = sampled.sample_statistics(extreme, extreme.X, Y, **sample)
    require_scaled(one, other, factor)


def cosines(statistics: AlignmentStatistics, centered: bool) -> np.ndarray:
    norms = np.sqrt(statistics.squared_norms(centered))
    return statistics.products(centered) / np.outer(norms, norms)


def require_scaled(
    one: AlignmentStatistics, other: AlignmentStatistics, factor: float
) -> None:
    """Require statistics of base kernels, and the same of these multiplied by a factor."""
    mu = np.array([0.3, 0.5, 0.2])
    for centered in (True, False):
        for normalize in ("trace", "frobenius"):
            expected = one.scales(normalize, centered) * factor
            np.testing.assert_allclose(
                other.scales(normalize, centered), expected, rtol=REGROUPED
            )
        np.testing.assert_allclose(
            other.traces(centered), one.traces(centered) * factor, rtol=REGROUPED
        )
        np.testing.assert_allclose(
            cosines(other, centered), cosines(one, centered), rtol=1e-9
        )
    np.testing.assert_allclose(other.alignments, one.alignments, rtol=1e-9)
    np.testing.assert_allclose(
        other.uncentered_alignments, one.uncentered_alignments, rtol=1e-9
    )
    assert other.alignment(mu / factor) == pytest.approx(one.alignment(mu), rel=1e-9)
    assert other.alignment(mu) == pytest.approx(one.alignment(mu), rel=1e-9)
    np.testing.assert_array_equal(other.constant, one.constant)
    W = one.total_weight
    # Another constant may be subtracted of the multiplied kernels.
    means = one.combined_row_means(mu) + mu @ one.shift
    other_means = other.combined_row_means(mu / factor) + mu @ (other.shift / factor)
    np.testing.assert_allclose(other_means, means, rtol=0, atol=1e-9 * W)


@pytest.mark.parametrize("factor", EXTREMES)
def test_operators_and_tests_of_extreme_matrices_are_those_of_the_matrices(factor):
    matrices, y = three_matrices()
    Y = np.where(y == "a", 1.0, -1.0)
    ordinary, extreme = (
        PrecomputedFamily(matrices),
        PrecomputedFamily(matrices * factor),
    )
    one, other = (
        alignment_test(family, family.X, Y, n_permutations=19)
        for family in (ordinary, extreme)
    )
    for name in ("alignments", "debiased", "low", "high"):
        np.testing.assert_allclose(
            getattr(other, name), getattr(one, name), rtol=0, atol=1e-9
        )
    np.testing.assert_array_equal(other.p_values, one.p_values)
    scales = gram_statistics(ordinary, ordinary.X, Y).traces()
    options = {"shift": np.zeros(3), "in_memory": 0}
    products = gram_operator(
        ordinary, ordinary.X, scales=scales, **options
    ).kernel_products()
    scaled = gram_operator(
        extreme, extreme.X, scales=scales * factor, **options
    ).kernel_products()
    np.testing.assert_allclose(scaled, products, rtol=1e-9)


def test_matrices_beyond_all_scales_are_refused():
    matrices, y = three_matrices()
    learn = partial(learn_kernel, learner="unif", X=np.arange(60.0)[:, None], y=y)
    mixed = PrecomputedFamily(matrices * np.array([1.0, 1e200, 1e-100])[:, None, None])
    require_refusals(
        [
            (
                partial(learn, family=mixed, normalize="none"),
                "matrix 1 and matrix 2 differ in size by more than 3e",
            ),
            (
                partial(learn, family=PrecomputedFamily(matrices * 1e307)),
                "matrix 0 has values of up to 1e\\+307, beyond",
            ),
            (
                partial(learn, family=PrecomputedFamily(matrices * 1e-307)),
                "matrix 0 has values of up to 1e-307, beyond",
            ),
        ]
    )
