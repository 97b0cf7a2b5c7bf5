"""Sample weights: their ratios alone count, and a row of integer weight w is w copies of it in statistics and files."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from learnkernels import centered_alignment, gram_statistics, learn_kernel
from learnkernels.kernels.centering import center_cross_gram, center_gram
from learnkernels.kernels.families import (
    FamilyUnion,
    FeatureFamily,
    GaussianFamily,
    LaplacianFamily,
    LinearFamily,
)
from learnkernels.kernels.files import from_bytes, to_bytes
from learnkernels.kernels.learned_kernel import LearnedKernel
from learnkernels.kernels.learners import (
    LEARNERS,
    LearningProblem,
    Solution,
    learn_from_statistics,
    learn_path,
)
from learnkernels.kernels.learners.ensemble import KernelEnsemble
from learnkernels.kernels.statistics import gram
from learnkernels.kernels.targets import Target
from tests.reference import Wide, frobenius_product
from tests.refusals import require_refusals
from tests.unit.kernels import test_serialization as files
from tests.unit.kernels.conftest import CASES, assert_same_statistics

# The same sums in another order, of kernels around another shift and origin; centering
# cancels a digit or two.
REPEATED = 1e-11

# Weights of a learner: its conditioning, of a few hundred here, times the rounding of M
# and a.
LEARNED = 1e-8


def draw_weights(m: int, seed: int = 0) -> np.ndarray:
    """Return whole numbers of copies, some of them one."""
    return np.random.default_rng(seed).integers(1, 6, size=m)


def copies(w: np.ndarray) -> np.ndarray:
    """Return the position of the row that each repeated row is a copy of."""
    return np.repeat(np.arange(len(w)), w)


def assert_close(got, expected, rtol: float = REPEATED) -> None:
    """Compare relative to the largest value: signed numbers may cancel to nearly nothing."""
    np.testing.assert_allclose(
        got, expected, rtol=rtol, atol=rtol * np.abs(expected).max(initial=0.0)
    )


def counts(m: int, p: int, seed: int) -> np.ndarray:
    X = np.random.default_rng(seed).poisson(0.6, size=(m, p)).astype(float)
    X[np.arange(p) % m, np.arange(p)] += 1.0
    return X


NORMAL = np.random.default_rng(1).normal(size=(26, 5))
COUNTS = counts(24, 7, seed=3)
FEATURES = {
    "dense": NORMAL,
    "dense-far": NORMAL + np.array([0.0, 1e2, -1e2, 5.0, 30.0]),
    "csr": sparse.csr_matrix(COUNTS),
    "csr-array": sparse.csr_array(COUNTS),
    # 15 rows, 25 features, more than 25 copies: norms by rows on one side and by
    # features on the other.
    "csr-wide": sparse.csr_matrix(counts(15, 25, seed=4)),
    "dense-wide": counts(15, 25, seed=5),
}


# Statistics ----------------------------------------------------------------------------------------------------------


TILES = {
    "gaussian-powers",
    "polynomial",
    "linear",
    "union-with-features",
    "union-csr-array",
    "cosine-csr",
}
TILES |= {"precomputed"}
KERNELS = {case.name: (case.family, case.X) for case in CASES if case.name in TILES}
KERNELS |= {
    f"features-{name}": (FeatureFamily(X.shape[1]), X) for name, X in FEATURES.items()
}


@pytest.mark.parametrize("name", KERNELS)
def test_integer_weights_are_repeated_rows(name):
    family, X = KERNELS[name]
    m, p = X.shape[0], family.n_kernels
    for q, options in ((1, {}), (3, {"block_rows": 7}), (2, {"keep_origin": True})):
        w, Y = (
            draw_weights(m, seed=q),
            np.random.default_rng(q).normal(size=(m, q)) + 0.8,
        )
        index, groups = copies(w), np.arange(m) % 3
        weighted = gram_statistics(family, X, Y, groups, sample_weight=w, **options)
        repeated = gram_statistics(family, X[index], Y[index], groups[index], **options)
        for kept in ([0, 1, 2], [0, 2], [1]):
            part, whole = weighted.restrict(kept), repeated.restrict(kept)
            assert_same_statistics(part, whole, REPEATED)
            assert part.total_weight == whole.total_weight == whole.n_rows
            np.testing.assert_array_equal(part.sample_weight, w[part.rows])
            np.testing.assert_array_equal(
                part.targets, (Y - weighted.target_mean)[part.rows]
            )
        assert repeated.sample_weight is None
        for name in ("target_mean", "origin"):
            assert_close(getattr(weighted, name), getattr(repeated, name))
        np.testing.assert_array_equal(weighted.products(), weighted.products().T)
        assert (weighted.n_rows, weighted.total_weight) == (m, w.sum())
        for active in (p, 3):
            mu = np.random.default_rng(2).random(p) * (np.arange(p) < active)
            assert weighted.alignment(mu) == pytest.approx(
                repeated.alignment(mu), rel=REPEATED
            )
    assert_same_statistics(weighted, repeated, REPEATED, [False])
    assert isinstance(weighted, gram.FeatureStatistics) == isinstance(
        family, FeatureFamily
    )
    both = (weighted, repeated)
    means, expected = (
        np.stack([of.combined_row_means(u) for u in np.eye(p)]) + of.shift[:, None]
        for of in both
    )
    means, expected = (
        means[:, np.argsort(weighted.rows)][:, index],
        expected[:, np.argsort(repeated.rows)],
    )
    # Of dense features less their mean these are rounding; a value of the kernel as
    # given is what that is relative to.
    atol = REPEATED * np.abs(expected).max() + 1e-14 * np.abs(X).max() ** 2
    np.testing.assert_allclose(means, expected, rtol=REPEATED, atol=atol)


@pytest.mark.parametrize(
    "family", [GaussianFamily([0.3, 0.6]), LinearFamily(), FeatureFamily(3)], ids=str
)
def test_weights_that_are_no_integers_are_those_of_the_definition(family):
    """``M = tr(D K_c D L_c)`` and so on, of matrices in long double."""
    rng = np.random.default_rng(7)
    X, Y, w = (
        rng.normal(size=(20, 3)),
        rng.normal(size=(20, 2)) + 0.8,
        rng.gamma(0.7, size=20) + 0.01,
    )
    statistics = gram_statistics(family, X, Y, sample_weight=w)
    D = np.diag(w.astype(Wide))
    H = (
        np.eye(20, dtype=Wide)
        - np.outer(np.ones(20, dtype=Wide), w.astype(Wide)) / w.astype(Wide).sum()
    )
    grams = [H @ K.astype(Wide) @ H.T for K in (*family.tile(X, X), Y @ Y.T)]
    products = np.array(
        [[frobenius_product(D @ K @ D, L) for K in grams] for L in grams]
    ).astype(float)
    assert_close(statistics.products(), products[:-1, :-1])
    assert_close(statistics.target_products(), products[:-1, -1])
    assert_close(
        statistics.traces(),
        np.array([(w * np.diag(K)).sum() for K in grams[:-1]]).astype(float),
    )
    assert statistics.target_norm() == pytest.approx(
        np.sqrt(products[-1, -1]), rel=REPEATED
    )


def test_what_is_constant_is_found_under_weights_too():
    rng = np.random.default_rng(14)
    X, w, groups = rng.normal(size=(30, 2)), rng.random(30) + 1e-5, np.arange(30) % 2
    Y = np.where(groups == 0, 0.3, X[:, 0])
    X[groups == 1, 0] = 0.7
    # The shift of its kernel up to rounding
    X[:, 1] = np.where(groups, 0.7, np.nextafter(0.7, 1.0))
    first, second = (
        FamilyUnion([GaussianFamily([0.3]), FeatureFamily(1)], [[0], [column]])
        for column in (0, 1)
    )
    for size in (1e-6, 1.0, 1e6):
        statistics = gram_statistics(second, X, Y, sample_weight=size * w)
        np.testing.assert_array_equal(statistics.constant, [False, True])
    parts = [
        gram_statistics(first, X, Y, groups, sample_weight=1e4 * w).restrict([group])
        for group in (0, 1)
    ]
    equal = np.full((30, 30), 0.3)
    refused = [
        (parts[0].require_informative, "the target is constant on the training rows"),
        (
            parts[1].require_informative,
            "feature 0 on columns 0 is constant on the 15 training rows",
        ),
        (
            partial(centered_alignment, equal, np.eye(30), 1e6 * w),
            "K is constant after centering",
        ),
    ]
    require_refusals(refused)


# Learned kernels -----------------------------------------------------------------------------------------------------


def problem(m: int = 40, seed: int = 20) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 4)) + 1.0
    return X, np.sin(2 * X[:, 0]) + X[:, 0] * X[:, 1] + 0.4 * X[
        :, 3
    ] + 0.2 * rng.normal(size=m)


UNION = FamilyUnion(
    [GaussianFamily([0.05, 0.5]), LinearFamily(), LaplacianFamily([0.3])],
    [None, [0, 1], [2, 3]],
)
FAMILIES = {
    "tiles": (UNION, lambda X: X),
    "features": (FeatureFamily(4), lambda X: X),
    "sparse-features": (
        FeatureFamily(4),
        lambda X: sparse.csr_matrix(np.where(X > 0.4, X, 0.0)),
    ),
}
TWO_STAGE = [name for name, learner in LEARNERS.items() if learner.two_stage]
PAIRS = [
    (i + j, learner, name)
    for i, learner in enumerate(TWO_STAGE)
    for j, name in enumerate(FAMILIES)
]
CROSSED = [
    (learner, name, list(gram.NORMALIZATIONS)[k % len(gram.NORMALIZATIONS)])
    for k, learner, name in PAIRS
]
"""Every learner with every family and with every normalization."""


@pytest.mark.parametrize(("learner", "name", "normalize"), CROSSED)
def test_a_kernel_of_weighted_rows_is_that_of_the_repeated_rows(
    learner, name, normalize
):
    (X, y), (family, form) = problem(80), FAMILIES[name]
    w, groups, folds = draw_weights(len(X)), np.arange(len(X)) % 4, [0, 3]
    index, X, X_new = copies(w), form(X), form(problem(seed=21)[0][:9])
    raw = learner.endswith("uncentered")
    weighted = gram_statistics(
        family, X, y, groups, sample_weight=w, keep_origin=raw
    ).restrict(folds)
    repeated = gram_statistics(
        family, X[index], y[index], groups[index], keep_origin=raw
    ).restrict(folds)
    one = learn_from_statistics(learner, family, X, weighted, normalize=normalize)
    other = learn_from_statistics(
        learner, family, X[index], repeated, normalize=normalize
    )
    np.testing.assert_array_equal(one.sample_weight, w[one.rows])
    # The repeated rows are sorted by group too, so that copies lie side by side.
    own = copies(one.sample_weight.astype(int))
    np.testing.assert_array_equal(one.rows[own], index[other.rows])
    np.testing.assert_allclose(one.weights, other.weights, atol=LEARNED)
    assert one.alignment == pytest.approx(other.alignment, rel=LEARNED)
    assert_close(one.alignments, other.alignments)
    assert_close(one.scales, other.scales)
    assert_close(one.gram()[np.ix_(own, own)], other.gram(), rtol=LEARNED)
    assert_close(one.cross_gram(X_new)[:, own], other.cross_gram(X_new), rtol=LEARNED)
    one, heavier = (
        learn_kernel(X, y, learner=learner, family=family, sample_weight=size * w)
        for size in (1.0, 1e3)
    )
    np.testing.assert_allclose(one.weights, heavier.weights, atol=LEARNED)
    assert one.alignment == pytest.approx(heavier.alignment, rel=LEARNED)
    assert_close(one.alignments, heavier.alignments)
    assert_close(one.gram(), heavier.gram(), rtol=LEARNED)


def power_of(family, X, y, w, degree: int) -> LearnedKernel:
    """Return a polynomial of a sum of base kernels, as some learners find."""
    statistics = gram_statistics(family, X, y, sample_weight=w)
    solution = Solution(np.arange(1.0, family.n_kernels + 1), degree=degree, offset=0.5)
    return LearningProblem(family, X, statistics, normalize="frobenius").kernel(
        "nkrr", solution
    )


def test_alignments_under_weights_are_those_of_the_repeated_rows():
    (X, y), (X_new, y_new) = problem(), problem(15, seed=23)
    w, w_new = draw_weights(len(X)), draw_weights(15, seed=1)
    index = copies(w)
    for degree in (1, 2, 3):
        weighted, repeated = (
            power_of(UNION, X, y, w, degree),
            power_of(UNION, X[index], y[index], None, degree),
        )
        assert weighted.alignment == pytest.approx(repeated.alignment, rel=LEARNED)
        assert_close(
            weighted.gram()[np.ix_(index, index)], repeated.gram(), rtol=LEARNED
        )
        # On its own training rows, with their weights, the alignment is the one stated.
        assert weighted.alignment_with(X, Target.of(y), w) == pytest.approx(
            weighted.alignment, rel=LEARNED
        )
    index, kernel = (
        copies(w_new),
        learn_kernel(X, y, learner="alignf", family=UNION, sample_weight=w),
    )
    aligned = kernel.alignment_with(X_new, Target.of(y_new), w_new)
    assert aligned == pytest.approx(
        kernel.alignment_with(X_new[index], Target.of(y_new[index])), rel=LEARNED
    )
    assert aligned != pytest.approx(
        kernel.alignment_with(X_new, Target.of(y_new)), rel=1e-3
    )


def test_matrices_of_weighted_samples_are_those_of_the_repeated_ones():
    rng = np.random.default_rng(24)
    A, B, new = (
        rng.normal(size=(12, 6)),
        rng.normal(size=(12, 4)),
        rng.normal(size=(5, 6)),
    )
    w = draw_weights(12)
    index = copies(w)
    square = np.ix_(index, index)
    K, L = A @ A.T + 3.0, B @ B.T
    assert_close(center_gram(K, w)[square], center_gram(K[square]))
    assert_close(
        center_cross_gram(new @ A.T, K, w)[:, index],
        center_cross_gram((new @ A.T)[:, index], K[square]),
    )
    alignment = centered_alignment(K, L, w)
    assert alignment == pytest.approx(
        centered_alignment(K[square], L[square]), rel=REPEATED
    )
    assert alignment == pytest.approx(centered_alignment(K, L, 1e5 * w), rel=REPEATED)


# Files ---------------------------------------------------------------------------------------------------------------


def test_a_kernel_of_weighted_rows_survives_a_file_bit_by_bit_and_another_has_no_weights():
    (X, y), w = problem(), np.linspace(0.5, 4.0, 40)
    kernel = learn_kernel(X, y, learner="alignf", family=UNION, sample_weight=w)
    gram = kernel.gram()
    np.testing.assert_array_equal(w, np.linspace(0.5, 4.0, 40))
    w[:] = 1.0  # which the kernel does not hold
    files.assert_same_kernel(from_bytes(to_bytes(kernel)), kernel)
    np.testing.assert_array_equal(kernel.gram(), gram)
    content = to_bytes(learn_kernel(X, y, learner="alignf", family=UNION))
    assert "sample_weight" not in files.opened(content)[0]
    assert from_bytes(content).sample_weight is None


WRONG = (0.0, -2.0, np.nan, np.inf)


def with_one(w: np.ndarray, value: float) -> np.ndarray:
    return np.where(np.arange(len(w)) == 3, value, w)


def test_saved_weights_of_another_kind_or_number_are_refused(tmp_path: Path):
    kernel = learn_kernel(
        *problem(),
        learner="alignf",
        family=UNION,
        sample_weight=np.linspace(0.5, 4.0, 40),
    )
    w, (arrays, description) = kernel.sample_weight, files.opened(to_bytes(kernel))
    wrong = [
        (with_one(w, value), f"be finite and positive, got {value:g} for ro")
        for value in WRONG
    ]
    refused = [
        (partial(replace(kernel, sample_weight=w).save, tmp_path / "k"), "be finite")
        for w, _ in wrong
    ]
    wrong += [
        (np.ones(39), "have one entry per row"),
        (np.ones((40, 1)), "have one entry per row"),
    ]
    for weights, said in wrong:
        reading = files.reading({**arrays, "sample_weight": weights}, description)
        refused.append((reading, f"sample_weight must {said}"))
    without = {name: array for name, array in arrays.items() if name != "sample_weight"}
    refused += [
        (files.reading(without, description), "sample_weight"),
        (files.changed(kernel, ("sample_weight", ...)), "parameters"),
        (
            files.changed(kernel, ("sample_weight", {"texts": [1, ["1"] * 40]})),
            "sample_weight must hold numbers",
        ),
    ]
    require_refusals(refused, by=files.refusal)


# Refusals ------------------------------------------------------------------------------------------------------------


def test_weights_must_be_finite_and_positive_and_one_a_row():
    X, y = problem()
    kernel = learn_kernel(X, y, learner="align", family=UNION)
    uses = [
        *(
            lambda w, of=of: gram_statistics(of, X, y, sample_weight=w)
            for of in (UNION, FeatureFamily(4))
        ),
        lambda w: center_gram(X @ X.T, w),
        lambda w: kernel.alignment_with(X, Target.of(y), w),
    ]
    said = "^sample_weight must be finite and positive, got"
    wrong = [
        (with_one(np.ones(40), value), rf"{said} {value:g} for row \d+; drop")
        for value in WRONG
    ]
    said = "^sample_weight must have one entry per row, got shape .* for 40 rows; "
    wrong += [(np.ones(shape), said) for shape in ((39,), (41,), (40, 1), ())]
    refused = [(partial(use, w), said) for use in uses for w, said in wrong]
    learn = partial(learn_kernel, X, y, learner="align", family=UNION)
    for w, said in wrong[1:]:  # zero leaves a row out
        said = said.replace("positive", "not negative").replace("; drop", "")
        refused.append((partial(learn, sample_weight=w), said))
    refused.append(
        (
            partial(learn, sample_weight=np.zeros(40)),
            "sample_weight must be positive for at least 2 rows",
        )
    )
    for size in (1e-300, 1e300, 1.7e308):
        said = "sample_weight must have a mean between .*, as statistics are products of two weights, got a mean of"
        refused.append(
            (
                partial(gram_statistics, UNION, X, y, sample_weight=np.full(40, size)),
                said,
            )
        )
    require_refusals(refused)


def test_learners_of_the_rows_themselves_refuse_weights():
    X, y = problem()
    w, target = draw_weights(len(X)), Target.of(np.where(y > 0, "a", "b"))
    statistics = gram_statistics(UNION, X, target.Y, sample_weight=w)
    learn = partial(learn_kernel, task="classification", sample_weight=w)
    refused = [
        (
            partial(KernelEnsemble.fit, UNION, X, statistics, Target.of(y), [1.0]),
            "^ensemble",
        )
    ]
    for learner in [
        name for name, learner in LEARNERS.items() if not learner.takes_weights
    ]:
        refused.append(
            (
                partial(learn, X, target.values, learner=learner, family=UNION),
                f"^{learner}",
            )
        )
        refused.append(
            (
                partial(learn_path, learner, UNION, X, statistics, target, [1.0]),
                f"^{learner}",
            )
        )
    said = " does not support sample_weight or class_weight. Use a learner that does: rfm, or a two-stage learner"
    require_refusals((act, learner + said) for act, learner in refused)
