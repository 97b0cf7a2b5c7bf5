"""Learned kernels: what they are made of, and how they apply to new rows."""

import re
from dataclasses import replace
from functools import partial
from itertools import cycle

import numpy as np
import pytest
from scipy import sparse

from learnkernels import (
    CosineFamily,
    FamilyUnion,
    FeatureFamily,
    GaussianFamily,
    LinearFamily,
    PolynomialFamily,
)
from learnkernels.kernels.centering import centered_alignment
from learnkernels.kernels.learners import (
    CA,
    LEARNERS,
    as_learner,
    learn_from_statistics,
    learn_kernel,
)
from learnkernels.kernels.learners.ensemble import KernelEnsemble
from learnkernels.kernels.statistics.gram import NORMALIZATIONS, gram_statistics
from learnkernels.kernels.statistics.sampled import sample_statistics
from learnkernels.kernels.targets import Target
from tests.reference import combined, combined_cross, gaussian, grams, normalizers
from tests.refusals import require_refusals
from tests.unit.kernels.conftest import CASES

# Centering with means accumulated over tiles, against explicit matrices, relative to
# the largest entry.
TEXTBOOK = 1e-10

KERNEL_LEARNERS = [
    name
    for name, learner in LEARNERS.items()
    if learner.takes_family and learner.learns_kernel
]
# Regression where it is served
TASKS = {name: LEARNERS[name].tasks[-1] for name in KERNEL_LEARNERS}
PARAMS = {"alignf-linear": {"dependent": "subset"}, "nkrr": {"starts": 1}}

# Each learner on dense rows, sparse rows and a union, and each case with a learner of
# either stage.
DENSE_SPARSE_UNION = ("gaussian-mixed", "laplacian-mixed-csr", "union-on-columns")
PAIRS = [
    (learner, case)
    for learner in KERNEL_LEARNERS
    for case in CASES
    if case.name in DENSE_SPARSE_UNION
]
PAIRS += [
    (of, case)
    for of in ("alignf", "l2-krr")
    for case in CASES
    if case.name not in DENSE_SPARSE_UNION
]


def name_of(value) -> str:
    return getattr(value, "name", value)


def regression_targets(X) -> np.ndarray:
    """Return targets of which every family can explain something."""
    dense = X.toarray() if sparse.issparse(X) else X
    first, last = dense[:, 0], dense[:, -1]
    return np.sin(2 * first) + first * last + 0.5 * last + 2.0


def small_problem(seed: int = 0, m: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and labels that must not be written to."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 3))
    y = np.sign(X[:, 0] * X[:, 1] + 0.2 * rng.normal(size=m))
    X.flags.writeable = y.flags.writeable = False
    return X, y


X, y = small_problem()
X_NEW = np.random.default_rng(5).normal(size=(90, 3))


def assert_close_to(
    got: np.ndarray, expected: np.ndarray, tolerance: float = TEXTBOOK
) -> None:
    np.testing.assert_allclose(
        got,
        expected.astype(float),
        rtol=0,
        atol=tolerance * float(np.abs(expected).max()),
    )


# The kernel on training rows and on new rows -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "normalize"), list(zip(CASES, cycle(NORMALIZATIONS))), ids=name_of
)
def test_gram_is_the_weighted_sum_of_centered_normalized_matrices(case, normalize):
    kernel = learn_kernel(
        case.X,
        regression_targets(case.X),
        learner="align",
        family=case.family,
        normalize=normalize,
    )
    assert kernel.normalize == normalize
    np.testing.assert_allclose(
        kernel.scales,
        np.array(normalizers(case.grams, normalize), dtype=float),
        rtol=TEXTBOOK,
    )
    cross, K = kernel.cross_gram(case.X), kernel.gram()
    assert_close_to(K, combined(case.grams, kernel.weights, normalize))
    assert np.linalg.eigvalsh(K).min() >= -1e-12 * np.trace(K)
    # Training rows as new rows: all at once, again, one by one, and none.
    assert_close_to(cross, K, 1e-12)
    np.testing.assert_array_equal(kernel.cross_gram(case.X), cross)
    one_by_one = np.vstack([kernel.cross_gram(case.X[i : i + 1]) for i in range(8)])
    # A product of one row takes another path through BLAS.
    assert_close_to(one_by_one, cross[:8], 1e-12)
    assert kernel.cross_gram(case.X[:0]).shape == (0, len(K))


@pytest.mark.parametrize(("learner", "case"), PAIRS, ids=name_of)
def test_learning_on_some_folds_of_a_pass_is_learning_on_their_rows(learner, case):
    learner, y = (
        as_learner(learner, **PARAMS.get(learner, {})),
        regression_targets(case.X),
    )
    if "regression" not in learner.tasks:
        y = np.where(y > np.median(y), "high", "low")
    target = Target.of(y)
    groups = np.random.default_rng(15).permutation(np.arange(case.X.shape[0]) % 4)
    held = np.isin(groups, [0, 1, 3])
    statistics = gram_statistics(
        case.family,
        case.X,
        target.Y,
        groups,
        block_rows=6,
        keep_origin=not learner.centered,
    )
    alone = learn_kernel(case.X[held], y[held], learner=learner, family=case.family)
    kernel = learn_from_statistics(
        learner, case.family, case.X, statistics.restrict([0, 1, 3]), target=target
    )
    assert kernel.alignment == pytest.approx(alone.alignment, rel=0, abs=1e-10)
    # Other digits of M times its condition: 1e4 or so, and up to 1e9 with weights of
    # either sign.
    tolerance = 1e-6 if learner.signed else 1e-8
    np.testing.assert_allclose(kernel.weights, alone.weights, rtol=0, atol=tolerance)
    # Its rows are in the order of the groups.
    order, new = np.argsort(kernel.rows), case.X[~held]
    np.testing.assert_array_equal(kernel.rows[order], np.flatnonzero(held))
    assert_close_to(kernel.gram()[np.ix_(order, order)], alone.gram(), tolerance)
    assert_close_to(kernel.cross_gram(new)[:, order], alone.cross_gram(new), tolerance)
    # New rows are centered by statistics of the training rows alone.
    Ks, crosses = (
        [K[held][:, held] for K in case.grams],
        [K[~held][:, held] for K in case.grams],
    )
    expected = combined_cross(crosses, Ks, alone.weights, "trace")
    if alone.C is not None:
        # a mean diagonal of one in place of a trace of one
        expected = expected * held.sum()
    assert_close_to(alone.cross_gram(new), expected**alone.degree)


def test_more_rows_than_one_tile_holds_make_no_difference():
    # A tile of so many kernels has 128 rows, so 170 rows take several, the last one
    # ragged.
    gammas = [0.02 * 1.05**k for k in range(80)]
    X, y = small_problem(1, m=170)
    kernel = learn_kernel(X, y, learner="unif", family=GaussianFamily(gammas))
    apart = [
        learn_kernel(X, y, learner="unif", family=GaussianFamily([gamma]))
        for gamma in gammas
    ]
    share = kernel.weights[0]
    assert_close_to(kernel.gram(), share * sum(one.gram() for one in apart), 1e-11)
    assert_close_to(
        kernel.cross_gram(X_NEW),
        share * sum(one.cross_gram(X_NEW) for one in apart),
        1e-11,
    )


def test_kernels_of_zero_weight_are_skipped_without_change():
    X, y = small_problem(3)
    gammas, asked = [2.0**g for g in range(-6, 3)], []

    class Watched(GaussianFamily):
        def subset(self, kernels):
            asked.append(list(kernels))
            return super().subset(kernels)

    kernel = learn_kernel(X, y, learner="alignf", family=GaussianFamily(gammas))
    active = np.flatnonzero(kernel.weights).tolist()
    assert 0 < len(active) < len(gammas)
    np.testing.assert_array_equal(
        replace(kernel, family=Watched(gammas)).gram(), kernel.gram()
    )
    assert asked == [active]
    Ks = grams([gaussian(gammas[k]) for k in active], X)
    assert_close_to(kernel.gram(), combined(Ks, kernel.weights[active], "trace"))


def test_a_nearly_constant_kernel_keeps_its_digits_on_new_rows():
    gammas = [2.0**-26, 2.0**-25]
    kernel = learn_kernel(X, y, learner="unif", family=GaussianFamily(gammas))
    Ks, crosses = (
        grams([gaussian(gamma) for gamma in gammas], rows, X) for rows in (X, X_NEW[:9])
    )
    # Values within 1e-6 of one: centering plain double values would leave 1e-9 of them.
    assert_close_to(kernel.gram(), combined(Ks, kernel.weights, "trace"))
    assert_close_to(
        kernel.cross_gram(X_NEW[:9]),
        combined_cross(crosses, Ks, kernel.weights, "trace"),
    )


# Weights and alignment -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", KERNEL_LEARNERS)
def test_alignment_is_that_of_the_gram_matrix(learner):
    family, L = GaussianFamily([0.05, 0.3, 2.0]), np.outer(y, y)
    best = learn_kernel(X, y, learner="alignf", family=family).alignment
    alone = [centered_alignment(K, L) for K in family.tile(X, X)]
    for normalize in NORMALIZATIONS:
        kernel = learn_kernel(
            X,
            y,
            learner=learner,
            family=family,
            task=TASKS[learner],
            normalize=normalize,
        )
        assert kernel.alignment == pytest.approx(
            centered_alignment(kernel.gram(), L), rel=0, abs=1e-10
        )
        np.testing.assert_allclose(kernel.alignments, alone, rtol=0, atol=1e-10)
        # Within what alignf maximizes over
        if kernel.degree == 1 and not kernel.indefinite:
            assert kernel.alignment <= best + 1e-12
        # However base kernels are scaled
        assert learner != "alignf" or kernel.alignment >= best - 1e-12
        assert np.abs(kernel.shares).sum() == pytest.approx(1.0, rel=1e-14)
        assert (kernel.certificate is None) == (
            learner in ("unif", "single", "align", "lq", "align-uncentered")
        )


def test_whole_numbers_are_rows_too():
    X, y = np.arange(30).reshape(10, 3), np.arange(10.0) ** 2
    whole, floats = (
        learn_kernel(rows, y, learner="unif", family=LinearFamily())
        for rows in (X, X.astype(float))
    )
    np.testing.assert_array_equal(whole.gram(), floats.gram())


# Refusals ------------------------------------------------------------------------------------------------------------


def test_what_is_constant_on_the_training_rows_is_refused_whatever_the_learner():
    families = [
        GaussianFamily([0.5]),
        LinearFamily(),
        PolynomialFamily([3], gamma=0.3, coef0=0.7),
    ]
    of_kernels = (
        r"base kernel \w+.* on columns 3, ?4 is constant on the 60 training rows"
    )
    table = []
    # Sixteen learners take every pair of a family and a value.
    for k, learner in enumerate(KERNEL_LEARNERS):
        rows = np.column_stack(
            [X, np.full((60, 2), [0.0, 0.1, -7.7, 123456.789][k % 4])]
        )
        both = FamilyUnion([GaussianFamily([1.0]), families[k % 3]], [None, [3, 4]])
        table.append(
            (partial(learn_kernel, rows, y, learner=learner, family=both), of_kernels)
        )
        on = partial(
            learn_kernel,
            X,
            learner=learner,
            family=GaussianFamily([0.5, 1.0]),
            task="regression",
        )
        table.append(
            (
                partial(on, np.full(60, [0.0, 1.0, -2.5][k % 3])),
                "Y must vary, got a constant target",
            )
        )
    for learner in ("ca", "cr", "rfm"):
        same = partial(
            learn_kernel,
            X,
            np.ones(60),
            learner=learner,
            family=None,
            task="regression",
        )
        table.append((same, "Y must vary, got a constant target"))
    require_refusals(table)


def test_what_does_not_fit_together_is_refused():
    family = GaussianFamily([0.5])
    kernel = learn_kernel(X, y, learner="align", family=family)
    groups = (np.arange(60) >= 47).astype(int)
    statistics = gram_statistics(
        family, X, np.where(groups == 0, 1.0, -1.0), groups
    ).restrict([0])
    one_of = "normalize must be one of trace, frobenius, none, got 'unit'"
    table = [
        (
            lambda: learn_kernel(X, y, learner="best", family=family),
            "learner must be one of align, .*unif.*, got 'best'",
        ),
        (
            lambda: learn_kernel(X, y, learner="unif", family=family, normalize="unit"),
            one_of,
        ),
        (
            lambda: kernel.cross_gram(X[:, :2]),
            "X_new must have the 3 features of the training rows, got 2",
        ),
        (
            lambda: learn_kernel(X, y[:-1], learner="unif", family=family),
            "y must have one entry per row of X, got 59 for 60 rows",
        ),
        (
            lambda: learn_kernel(X, np.full(60, "same"), learner="unif", family=family),
            "y must hold at least two classes",
        ),
        (
            lambda: learn_from_statistics("alignf", family, X, statistics),
            "the target is constant on the training rows",
        ),
    ]
    for value in (np.nan, np.inf):
        rows = np.vstack([X[1:], [0.0, value, 1.0]])
        uses = (
            partial(learn_kernel, rows, y, learner="align", family=family),
            partial(kernel.cross_gram, rows),
        )
        table += [(use, "X must be finite") for use in uses]
    require_refusals(table)


def test_a_row_without_a_direction_is_named_by_its_position_in_the_data_set():
    X, y = small_problem(m=300)
    X = X.copy()
    X[271, :2] = 0.0
    kernel = learn_kernel(X, y, learner="align", family=CosineFamily())
    # a new row without one spoils no other
    others = kernel.cross_gram(np.vstack([X[:4], np.zeros(3)]))
    np.testing.assert_allclose(others[:4], kernel.cross_gram(X[:4]), rtol=0, atol=1e-14)
    family = FamilyUnion([LinearFamily(), FamilyUnion([CosineFamily()], [[1, 0]])])
    with pytest.raises(ValueError, match="got only zeros in row 271 of the 300 given"):
        learn_kernel(X, y, learner="align", family=family)


# As values -----------------------------------------------------------------------------------------------------------


def records() -> list:
    """Return one of each record that holds arrays, new at each call."""
    many, signs = small_problem(m=400)
    family, V = GaussianFamily([0.25, 0.5, 1.0]), FeatureFamily(3)
    sampled = sample_statistics(family, many, signs, np.arange(400) % 3, sample=256)
    kernels = [
        learn_kernel(X, y, learner="alignf", family=family),
        learn_kernel(sparse.csr_matrix(X), y, learner="align", family=V),
    ]
    kernels += [
        learn_kernel(X, y, learner=CA(max_kernels=2)),
        learn_from_statistics("alignf", family, many, sampled),
    ]
    kernels.append(learn_kernel(X, y, learner="l2-krr", family=family))
    statistics, target = gram_statistics(family, X, y), Target.of(y)
    ensemble = KernelEnsemble.fit(
        family, X, statistics, Target.of(y, "regression"), [1.0]
    )
    of_features = gram_statistics(V, sparse.csr_matrix(X), y)
    return [
        *kernels,
        kernels[-1].certificate,
        sampled,
        statistics,
        of_features,
        target,
        ensemble,
    ]


def test_records_are_equal_by_what_they_hold_and_read_in_one_line_without_their_rows():
    ones, twos = records(), records()
    for one, two in zip(ones, twos, strict=True):
        assert one == two
        assert hash(one) == hash(two)
        assert re.fullmatch(rf"{type(one).__name__}.{{1,960}}", repr(one)), repr(one)
    assert len(set(ones + twos)) == len(ones)
    assert ones[0] != replace(ones[0], weights=ones[0].weights * 2)


def test_a_kernel_reads_as_its_largest_weights():
    kernel = learn_kernel(
        X, y, learner="align", family=GaussianFamily([0.25, 0.5, 1.0, 2.0, 4.0])
    )
    kernel = replace(
        kernel, weights=np.array([0.5, 0.0, 0.25, 0.1, 2.0]), alignment=0.12345
    )
    largest = "gaussian(gamma=2^2) 2, gaussian(gamma=2^-2) 0.5, gaussian(gamma=1) 0.25, 2 others"
    assert (
        repr(kernel)
        == f"LearnedKernel('align', 5 kernels, 60 rows, alignment=0.123, weights: {largest})"
    )
