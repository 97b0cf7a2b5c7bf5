"""Learned kernels: what they are made of, and how they apply to new rows."""

from dataclasses import replace

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
    centered_alignment,
    gram_moments,
    learn_kernel,
)
from learnkernels.kernels.learned import LearnedKernel
from learnkernels.kernels.learners import CA, LEARNERS, as_learner
from learnkernels.kernels.learners.ensemble import KernelEnsemble
from learnkernels.kernels.learning import learn_from_moments
from learnkernels.kernels.moments.normalisation import NORMALISATIONS
from learnkernels.kernels.moments.sampling import sample_moments
from learnkernels.kernels.targets import Target
from tests.reference import combined, combined_cross, gaussian, grams, kkt_residual, normalisers, target_kernel

# Centering with means accumulated over tiles, against explicit matrices, relative to the largest entry.
TEXTBOOK = 1e-10


def regression_targets(X) -> np.ndarray:
    """Return targets of which every family can explain something."""
    dense = X.toarray() if sparse.issparse(X) else X
    first, last = dense[:, 0], dense[:, -1]
    return np.sin(2 * first) + first * last + 0.5 * last + 2.0


def targets_for(learner: str, X) -> np.ndarray:
    """Return targets that the learner serves: numbers, or two classes."""
    y = regression_targets(X)
    return y if "regression" in LEARNERS[learner].tasks else np.where(y > np.median(y), "high", "low")


KERNEL_LEARNERS = [name for name, learner in LEARNERS.items() if learner.takes_family and learner.learns_kernel]
TASKS = {name: "regression" if "regression" in LEARNERS[name].tasks else "classification" for name in LEARNERS}
PARAMS = {"alignf-linear": {"dependent": "subset"}, "nkrr": {"starts": 1}}


def small_problem(seed: int = 0, m: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 3))
    return X, np.sign(X[:, 0] * X[:, 1] + 0.2 * rng.normal(size=m))


def assert_close_to(got: np.ndarray, expected: np.ndarray, tolerance: float = TEXTBOOK) -> None:
    np.testing.assert_allclose(got, expected.astype(float), rtol=0, atol=tolerance * float(np.abs(expected).max()))


# The kernel on training rows and on new rows -------------------------------------------------------------------------


@pytest.mark.parametrize("normalise", NORMALISATIONS)
def test_gram_is_the_weighted_sum_of_centered_normalised_matrices(case, normalise):
    kernel = learn_kernel("align", case.family, case.X, regression_targets(case.X), normalise=normalise)
    assert kernel.normalise == normalise
    np.testing.assert_allclose(kernel.scales, np.array(normalisers(case.grams, normalise), dtype=float), rtol=TEXTBOOK)
    assert_close_to(kernel.gram(), combined(case.grams, kernel.weights, normalise))


@pytest.mark.parametrize("learner", KERNEL_LEARNERS)
def test_new_rows_are_centered_by_training_statistics_alone(case, learner):
    X, X_new = case.X[8:], case.X[:8]
    kernel = learn_kernel(as_learner(learner, **PARAMS.get(learner, {})), case.family, X, targets_for(learner, X))
    Ks = [K[8:, 8:] for K in case.grams]
    crosses = [K[:8, 8:] for K in case.grams]
    expected = combined_cross(crosses, Ks, kernel.weights, "trace")
    if kernel.regularisation is not None:
        expected = expected * X.shape[0]  # a mean diagonal of one in place of a trace of one
    assert_close_to(kernel.cross_gram(X_new), expected**kernel.degree)


def test_training_rows_taken_as_new_rows_give_the_gram(case):
    kernel = learn_kernel("unif", case.family, case.X, regression_targets(case.X))
    assert_close_to(kernel.cross_gram(case.X), kernel.gram(), 1e-12)


def test_gram_is_symmetric_positive_semi_definite_and_centered(case):
    K = learn_kernel("alignf", case.family, case.X, regression_targets(case.X)).gram()
    np.testing.assert_allclose(K, K.T, rtol=0, atol=1e-12 * np.abs(K).max())
    assert np.linalg.eigvalsh(K).min() >= -1e-12 * np.trace(K)
    np.testing.assert_allclose(K.sum(axis=0), 0.0, atol=1e-10 * np.trace(K))


def test_a_new_row_does_not_depend_on_which_others_come_with_it(case):
    kernel = learn_kernel("unif", case.family, case.X[8:], regression_targets(case.X)[8:])
    together = kernel.cross_gram(case.X[:8])
    one_by_one = np.vstack([kernel.cross_gram(case.X[i : i + 1]) for i in range(8)])
    # A product of one row takes another path through BLAS.
    np.testing.assert_allclose(one_by_one, together, rtol=0, atol=1e-12 * np.abs(together).max())


def test_more_rows_than_one_tile_holds_make_no_difference():
    # 80 kernels leave 80 rows a tile, so 200 rows take several, the last one ragged.
    gammas = [0.02 * 1.05**k for k in range(80)]
    X, y = small_problem(1, m=200)
    X_new = np.random.default_rng(2).normal(size=(90, 3))
    kernel = learn_kernel("unif", GaussianFamily(gammas), X, y)
    apart = [learn_kernel("unif", GaussianFamily([gamma]), X, y) for gamma in gammas]
    share = kernel.weights[0]
    assert_close_to(kernel.gram(), share * sum(one.gram() for one in apart), 1e-11)
    assert_close_to(kernel.cross_gram(X_new), share * sum(one.cross_gram(X_new) for one in apart), 1e-11)


def test_no_new_rows_give_an_empty_cross_gram():
    X, y = small_problem()
    assert learn_kernel("unif", GaussianFamily([0.5]), X, y).cross_gram(X[:0]).shape == (0, 60)


@pytest.mark.parametrize("normalise", NORMALISATIONS)
def test_kernels_of_zero_weight_are_skipped_without_change(normalise):
    X, y = small_problem(3)
    gammas = [2.0**g for g in range(-6, 3)]
    kernel = learn_kernel("alignf", GaussianFamily(gammas), X, y, normalise=normalise)
    active = np.flatnonzero(kernel.weights)
    assert 0 < len(active) < len(gammas)
    asked = []

    class Watched(GaussianFamily):
        def subset(self, kernels):
            asked.append(list(kernels))
            return super().subset(kernels)

    watched = replace(kernel, family=Watched(gammas))
    Ks = grams([gaussian(gamma) for gamma in gammas], X)
    assert_close_to(watched.gram(), combined(Ks, kernel.weights, normalise))
    assert asked == [active.tolist()]


def test_held_out_rows_do_not_see_a_shift_of_all_features():
    X, y = small_problem(4)
    X_new, move = np.random.default_rng(5).normal(size=(10, 3)), np.array([20.0, -5.0, 7.0])
    for family in (GaussianFamily([0.1, 0.2, 1.0]), LinearFamily()):
        kernel, moved = learn_kernel("align", family, X, y), learn_kernel("align", family, X + move, y)
        np.testing.assert_allclose(moved.weights, kernel.weights, rtol=0, atol=1e-9)
        # The moved linear kernel has values near 500: three digits of double precision go.
        np.testing.assert_allclose(moved.cross_gram(X_new + move), kernel.cross_gram(X_new), rtol=0, atol=1e-9)


def test_a_nearly_constant_kernel_keeps_its_digits_on_new_rows():
    X, y = small_problem(6)
    X_new = np.random.default_rng(7).normal(size=(9, 3))
    gammas = [2.0**-26, 2.0**-25]
    kernel = learn_kernel("unif", GaussianFamily(gammas), X, y)
    kernels = [gaussian(gamma) for gamma in gammas]
    Ks, crosses = grams(kernels, X), grams(kernels, X_new, X)
    # Values within 1e-6 of one: centering plain double values would leave 1e-9 of them.
    assert_close_to(kernel.gram(), combined(Ks, kernel.weights, "trace"), 1e-10)
    assert_close_to(kernel.cross_gram(X_new), combined_cross(crosses, Ks, kernel.weights, "trace"), 1e-10)


def test_applying_a_kernel_modifies_nothing():
    X, y = small_problem(8)
    X_new = X[:5].copy()
    for array in (X, y, X_new):
        array.flags.writeable = False
    kernel = learn_kernel("alignf", GaussianFamily([0.1, 0.5]), X, y)
    first = kernel.cross_gram(X_new)
    kernel.gram()
    np.testing.assert_array_equal(kernel.cross_gram(X_new), first)


# Weights and alignment -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalise", NORMALISATIONS)
@pytest.mark.parametrize("learner", KERNEL_LEARNERS)
def test_alignment_is_that_of_the_gram_matrix(learner, normalise):
    X, y = small_problem(9)
    kernel = learn_kernel(learner, GaussianFamily([0.05, 0.3, 2.0]), X, y, task=TASKS[learner], normalise=normalise)
    expected = centered_alignment(kernel.gram(), np.outer(y, y))
    assert kernel.alignment == pytest.approx(expected, rel=0, abs=1e-10)
    if kernel.degree == 1 and not kernel.indefinite:  # within what alignf maximises over
        assert kernel.alignment <= learn_kernel("alignf", kernel.family, X, y).alignment + 1e-12
    assert np.abs(kernel.shares).sum() == pytest.approx(1.0, rel=1e-14)


def test_alignments_of_the_base_kernels_are_those_of_each_alone():
    X, y = small_problem(10)
    gammas = [0.05, 0.3, 2.0]
    kernel = learn_kernel("unif", GaussianFamily(gammas), X, y)
    alone = [learn_kernel("unif", GaussianFamily([gamma]), X, y).alignment for gamma in gammas]
    np.testing.assert_allclose(kernel.alignments, alone, rtol=0, atol=1e-10)


def test_what_alignf_and_single_find_does_not_depend_on_the_normalisation():
    X, y = small_problem(11)
    family = FamilyUnion([GaussianFamily([0.1, 0.5, 2.0]), PolynomialFamily([2, 3])])
    for learner in ("alignf", "single"):
        found = [learn_kernel(learner, family, X, y, normalise=normalise) for normalise in NORMALISATIONS]
        for kernel in found[1:]:
            assert kernel.alignment == pytest.approx(found[0].alignment, rel=0, abs=1e-10)
            assert centered_alignment(kernel.gram(), found[0].gram()) == pytest.approx(1.0, rel=0, abs=1e-10)


@pytest.mark.parametrize("normalise", NORMALISATIONS)
def test_alignf_is_optimal_for_the_normalised_kernels(normalise):
    X, y = small_problem(12)
    family = GaussianFamily([2.0**g for g in range(-5, 2)])
    kernel = learn_kernel("alignf", family, X, y, normalise=normalise)
    moments = gram_moments(family, X, y)
    M, a = moments.frobenius / np.outer(kernel.scales, kernel.scales), moments.target / kernel.scales
    assert (kernel.weights == 0).any()
    assert kkt_residual(M, a, kernel.weights) <= 1e-10
    assert kernel.certificate.residual <= 1e-10


def test_only_an_optimising_learner_certifies():
    X, y = small_problem(13)
    family = GaussianFamily([0.1, 1.0])
    certified = {
        name: learn_kernel(name, family, X, y, task=TASKS[name]).certificate is not None for name in KERNEL_LEARNERS
    }
    closed = {"unif", "single", "align", "lq", "align-uncentered"}
    assert certified == {name: name not in closed for name in KERNEL_LEARNERS}


def test_the_one_informative_view_gets_the_weight():
    rng = np.random.default_rng(14)
    X = rng.normal(size=(150, 3))
    kernel = learn_kernel("alignf", FamilyUnion([LinearFamily()] * 3, [[0], [1], [2]]), X, np.sign(X[:, 1]))
    assert kernel.shares[1] > 0.95


# Training rows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", KERNEL_LEARNERS)
def test_learning_on_some_folds_of_a_pass_is_learning_on_their_rows(case, learner):
    y = targets_for(learner, case.X)
    target, params = Target.of(y), PARAMS.get(learner, {})
    groups = np.random.default_rng(15).permutation(np.arange(case.X.shape[0]) % 4)
    held = np.isin(groups, [0, 1, 3])
    raw = not LEARNERS[learner].centered
    moments = gram_moments(case.family, case.X, target.Y, groups, block_rows=6, keep_origin=raw).restrict([0, 1, 3])
    from_pass = learn_from_moments(as_learner(learner, **params), case.family, case.X, moments, target=target)
    alone = learn_kernel(as_learner(learner, **params), case.family, case.X[held], y[held])
    # Weights of either sign of nearly dependent kernels: the condition of M itself, up to 1e9.
    assert_same_kernel(from_pass, alone, case.X[~held], 1e-6 if learner == "alignf-linear" else 1e-8)
    np.testing.assert_array_equal(np.sort(from_pass.rows), np.flatnonzero(held))


def assert_same_kernel(kernel: LearnedKernel, other: LearnedKernel, X_new, tolerance: float = 1e-8) -> None:
    """Compare two kernels whose training rows may be in another order."""
    assert kernel.alignment == pytest.approx(other.alignment, rel=0, abs=1e-10)
    # Other digits of M, times its condition of 1e4 or so.
    np.testing.assert_allclose(kernel.weights, other.weights, rtol=0, atol=tolerance)
    first, second = np.sort(kernel.cross_gram(X_new), axis=1), np.sort(other.cross_gram(X_new), axis=1)
    np.testing.assert_allclose(first, second, rtol=0, atol=tolerance * np.abs(second).max())


def test_rows_of_the_gram_follow_the_rows_named():
    X, y = small_problem(16)
    groups = np.random.default_rng(17).integers(0, 3, size=60)
    family = GaussianFamily([0.3, 0.9])
    kernel = learn_from_moments("align", family, X, gram_moments(family, X, y, groups).restrict([0, 2]))
    np.testing.assert_array_equal(kernel.X, X[kernel.rows] - kernel.origin)
    Ks = grams([gaussian(0.3), gaussian(0.9)], X[kernel.rows])
    assert_close_to(kernel.gram(), combined(Ks, kernel.weights, "trace"))


def test_sparse_rows_give_the_kernel_of_the_same_dense_rows():
    rng = np.random.default_rng(18)
    X = rng.normal(size=(50, 6)) * (rng.random((50, 6)) < 0.5)
    y = X[:, 0] + X[:, 1] * X[:, 2]
    family = FamilyUnion([GaussianFamily([0.2, 0.4]), LinearFamily()])
    dense, csr = (learn_kernel("alignf", family, rows, y) for rows in (X, sparse.csr_matrix(X)))
    np.testing.assert_allclose(csr.weights, dense.weights, rtol=0, atol=1e-9)
    np.testing.assert_allclose(csr.gram(), dense.gram(), rtol=0, atol=1e-9 * np.abs(dense.gram()).max())


# Targets -------------------------------------------------------------------------------------------------------------


def test_string_labels_of_two_classes_count_as_minus_and_plus_one():
    X, y = small_problem(19)
    names = np.where(y > 0, "malignant", "benign")
    family = GaussianFamily([0.1, 0.5, 2.0])
    by_name, by_sign = learn_kernel("alignf", family, X, names), learn_kernel("alignf", family, X, y)
    np.testing.assert_array_equal(by_name.weights, by_sign.weights)
    assert by_name.alignment == by_sign.alignment


def test_three_classes_align_with_the_kernel_of_equal_labels():
    X, _ = small_problem(20, m=75)
    names = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    kernel = learn_kernel("alignf", GaussianFamily([0.1, 0.5, 2.0]), X, names)
    same = (names[:, None] == names).astype(float)
    np.testing.assert_array_equal(same, target_kernel(Target.of(names).Y).astype(float))
    assert kernel.alignment == pytest.approx(centered_alignment(kernel.gram(), same), rel=0, abs=1e-10)


def test_several_outputs_align_with_the_sum_of_their_kernels():
    X, _ = small_problem(21)
    Y = np.column_stack([X[:, 0], np.sin(X[:, 1]), X[:, 2] ** 2]) + 3.0
    kernel = learn_kernel("align", GaussianFamily([0.1, 0.5, 2.0]), X, Y)
    assert kernel.alignment == pytest.approx(centered_alignment(kernel.gram(), Y @ Y.T), rel=0, abs=1e-10)


# Errors --------------------------------------------------------------------------------------------------------------


def test_an_unknown_learner_is_refused_by_name():
    X, y = small_problem()
    with pytest.raises(ValueError, match=r"learner must be one of align, align-uncentered, .*unif.*, got 'best'"):
        learn_kernel("best", GaussianFamily([0.5]), X, y)


def test_an_unknown_normalisation_is_refused_by_name():
    X, y = small_problem()
    with pytest.raises(ValueError, match="normalise must be one of trace, frobenius, none, got 'unit'"):
        learn_kernel("unif", GaussianFamily([0.5]), X, y, normalise="unit")


CONSTANT_FAMILIES = [GaussianFamily([0.5]), LinearFamily(), PolynomialFamily([3], gamma=0.3, coef0=0.7)]


@pytest.mark.parametrize("learner", KERNEL_LEARNERS)
@pytest.mark.parametrize("family", CONSTANT_FAMILIES, ids=["gaussian", "linear", "polynomial"])
@pytest.mark.parametrize("value", [0.0, 0.1, -7.7, 123456.789])
def test_a_kernel_that_is_constant_on_the_training_rows_is_refused_by_name(learner, family, value):
    X, y = small_problem()
    X = np.column_stack([X, np.full((60, 2), value)])
    both = FamilyUnion([GaussianFamily([1.0]), family], [None, [3, 4]])
    with pytest.raises(ValueError, match=r"base kernel \w+.* on columns 3, ?4 is constant on the 60 training rows"):
        learn_kernel(learner, both, X, y)


@pytest.mark.parametrize("learner", KERNEL_LEARNERS)
@pytest.mark.parametrize("value", [0.0, 1.0, -2.5])
def test_a_constant_target_is_refused(learner, value):
    X, _ = small_problem()
    with pytest.raises(ValueError, match="Y must vary, got a constant target"):
        learn_kernel(learner, GaussianFamily([0.5, 1.0]), X, np.full(60, value), task="regression")


def test_new_rows_need_the_features_of_the_training_rows():
    X, y = small_problem()
    kernel = learn_kernel("unif", GaussianFamily([0.5]), X, y)
    with pytest.raises(ValueError, match="X_new must have the 3 features of the training rows, got 2"):
        kernel.cross_gram(X[:, :2])


def test_targets_and_rows_must_match():
    X, y = small_problem()
    with pytest.raises(ValueError, match="Y and groups must have one entry a row of X, got 59"):
        learn_kernel("unif", GaussianFamily([0.5]), X, y[:-1])
    with pytest.raises(ValueError, match="y must hold at least two classes"):
        learn_kernel("unif", GaussianFamily([0.5]), X, np.full(60, "same"))


def test_a_target_that_is_constant_on_the_training_rows_alone_is_refused():
    rng = np.random.default_rng(0)
    X, family = rng.normal(size=(37, 3)), GaussianFamily([0.5, 1.0])
    groups = (np.arange(37) >= 29).astype(int)
    moments = gram_moments(family, X, np.where(groups == 0, 1.0, -1.0), groups)
    with pytest.raises(ValueError, match="the target is constant on the training rows"):
        learn_from_moments("alignf", family, X, moments.restrict([0]))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_that_are_not_finite_are_refused_in_training_and_in_use(value):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), rng.normal(size=20)
    kernel = learn_kernel("align", GaussianFamily([0.5]), X, y)
    X[3, 1] = value
    with pytest.raises(ValueError, match="X must be finite"):
        learn_kernel("align", GaussianFamily([0.5]), X, y)
    with pytest.raises(ValueError, match="X must be finite"):
        kernel.cross_gram(X)


def test_a_row_without_a_direction_is_named_by_its_position_in_the_data_set():
    X, y = small_problem(m=300)
    X[271, :2] = 0.0
    kernel = learn_kernel("align", CosineFamily(), X, y)
    others = kernel.cross_gram(np.vstack([X[:4], np.zeros(3)]))  # a new row without one spoils no other
    np.testing.assert_allclose(others[:4], kernel.cross_gram(X[:4]), rtol=0, atol=1e-14)
    family = FamilyUnion([LinearFamily(), FamilyUnion([CosineFamily()], [[1, 0]])])
    with pytest.raises(ValueError, match="got only zeros in row 271 of the 300 given"):
        learn_kernel("align", family, X, y)


def test_whole_numbers_are_rows_too():
    X = np.arange(30).reshape(10, 3)
    y = np.arange(10.0) ** 2
    whole = learn_kernel("unif", LinearFamily(), X, y)
    np.testing.assert_array_equal(whole.gram(), learn_kernel("unif", LinearFamily(), X.astype(float), y).gram())


# As values -----------------------------------------------------------------------------------------------------------


def records() -> list:
    """Return one of each record that holds arrays, new at each call."""
    X, y = small_problem()
    family = GaussianFamily([0.25, 0.5, 1.0])
    many, signs = small_problem(m=400)
    sampled = sample_moments(family, many, signs, np.arange(400) % 3, sample=256)
    V = FeatureFamily(3)
    return [
        learn_kernel("alignf", family, X, y),
        learn_kernel("align", V, sparse.csr_matrix(X), y),
        learn_kernel(CA(max_kernels=2), None, X, y),
        learn_kernel("l2-krr", family, X, y),
        learn_kernel("l2-krr", family, X, y).certificate,
        learn_from_moments("alignf", family, many, sampled),
        sampled,
        gram_moments(family, X, y),
        gram_moments(V, sparse.csr_matrix(X), y),
        Target.of(y),
        KernelEnsemble.fit(family, X, gram_moments(family, X, y), Target.of(y, "regression"), [1.0]),
    ]


def test_records_are_equal_by_what_they_hold_and_told_apart():
    ones, twos = records(), records()
    for one, two in zip(ones, twos, strict=True):
        assert one == two
        assert hash(one) == hash(two)
        assert one in {two}
    assert len(set(ones + twos)) == len(ones)
    assert ones[0] != replace(ones[0], weights=ones[0].weights * 2)


def test_records_read_in_one_line_without_their_rows():
    for one in records():
        said = repr(one)
        assert "\n" not in said
        assert len(said) < 1000
        assert said.startswith(type(one).__name__)
    X, y = small_problem()
    kernel = learn_kernel("align", GaussianFamily([0.25, 0.5, 1.0, 2.0, 4.0]), X, y)
    kernel = replace(kernel, weights=np.array([0.5, 0.0, 0.25, 0.1, 2.0]), alignment=0.12345)
    assert repr(kernel) == (
        "LearnedKernel('align', 5 kernels, 60 rows, alignment=0.123, weights: gaussian(gamma=2^2) 2, "
        "gaussian(gamma=2^-2) 0.5, gaussian(gamma=1) 0.25, 2 others)"
    )
