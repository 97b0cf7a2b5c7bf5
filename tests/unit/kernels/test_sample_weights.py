"""Sample weights: a row of integer weight w is w copies of it, in statistics, weights, centering and files."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import sparse

from learnkernels import (
    FamilyUnion,
    FeatureFamily,
    GaussianFamily,
    LaplacianFamily,
    LinearFamily,
    PolynomialFamily,
    center_gram,
    centered_alignment,
    gram_moments,
    learn_kernel,
    load_kernel,
    save_kernel,
)
from learnkernels.kernels.centering import center_cross_gram
from learnkernels.kernels.learned import LearnedKernel
from learnkernels.kernels.learners import LEARNERS, Solution
from learnkernels.kernels.learners.base import TrainingRows
from learnkernels.kernels.learners.ensemble import KernelEnsemble
from learnkernels.kernels.learning import learn_from_moments, learn_path
from learnkernels.kernels.moments.features import FeatureMoments
from learnkernels.kernels.moments.gram import GramMoments
from learnkernels.kernels.moments.normalisation import NORMALISATIONS, require_informative
from learnkernels.kernels.persistence.kernel import DESCRIPTION, kernel_from_arrays, kernel_to_arrays
from learnkernels.kernels.targets import Target
from tests.reference import Wide, frobenius_product
from tests.unit.kernels.test_learners import TWO_STAGE

# The same sums in another order, of kernels around another shift and origin; centering cancels a digit or two.
REPEATED = 1e-11

# Weights of a learner: its conditioning, of a few hundred here, times the rounding of M and a.
LEARNED = 1e-8

STATISTICS = ["frobenius", "frobenius_diagonal", "target", "centered_traces", "alignments"]
RAW = ["uncentered_frobenius", "uncentered_frobenius_diagonal", "uncentered_target", "uncentered_alignments"]


def draw_weights(m: int, seed: int = 0) -> np.ndarray:
    """Return whole numbers of copies, some of them one."""
    return np.random.default_rng(seed).integers(1, 6, size=m)


def copies(w: np.ndarray) -> np.ndarray:
    """Return the position of the row that each repeated row is a copy of."""
    return np.repeat(np.arange(len(w)), w)


def targets(m: int, q: int, seed: int = 0) -> np.ndarray:
    Y = np.random.default_rng(seed).normal(size=(m, q)) + 0.8
    return Y[:, 0] if q == 1 else Y


def assert_close(got, expected, rtol: float = REPEATED) -> None:
    """Compare relative to the largest value: signed numbers may cancel to nearly nothing."""
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol * np.abs(expected).max(initial=0.0))


def assert_same_statistics(got, expected, names=(*STATISTICS, "target_norm")) -> None:
    for name in names:
        assert_close(getattr(got, name), getattr(expected, name))


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
    # 15 rows, 25 features, more than 25 copies: norms by rows on one side and by features on the other.
    "csr-wide": sparse.csr_matrix(counts(15, 25, seed=4)),
    "dense-wide": counts(15, 25, seed=5),
}


@pytest.fixture(params=FEATURES.values(), ids=FEATURES)
def features(request):
    return request.param


# Statistics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("q", "block_rows"), [(1, None), (3, 7)])
def test_integer_weights_are_repeated_rows(case, q, block_rows):
    m = case.X.shape[0]
    w, Y = draw_weights(m), targets(m, q)
    index = copies(w)
    weighted = gram_moments(case.family, case.X, Y, sample_weight=w, block_rows=block_rows)
    repeated = gram_moments(case.family, case.X[index], Y[index], block_rows=block_rows)
    assert_same_statistics(weighted, repeated)
    assert (weighted.n_rows, weighted.total_weight, repeated.total_weight) == (m, w.sum(), w.sum())
    mu = np.random.default_rng(1).random(case.family.n_kernels)
    assert weighted.alignment(mu) == pytest.approx(repeated.alignment(mu), rel=REPEATED)


def test_integer_weights_are_repeated_rows_without_centering(case):
    m = case.X.shape[0]
    w, Y = draw_weights(m, seed=1), targets(m, 2)
    index = copies(w)
    weighted = gram_moments(case.family, case.X, Y, sample_weight=w, keep_origin=True)
    repeated = gram_moments(case.family, case.X[index], Y[index], keep_origin=True)
    assert_same_statistics(weighted, repeated, [*RAW, "uncentered_target_norm"])
    shifts = weighted.shift[:, None], repeated.shift[:, None]
    assert_close((weighted.row_means + shifts[0])[:, index], repeated.row_means + shifts[1])


def test_integer_weights_of_features_are_repeated_rows(features):
    m, p = features.shape
    w, Y = draw_weights(m), targets(m, 2)
    index = copies(w)
    weighted = gram_moments(FeatureFamily(p), features, Y, sample_weight=w)
    repeated = gram_moments(FeatureFamily(p), features[index], Y[index])
    assert isinstance(weighted, FeatureMoments)
    assert_same_statistics(weighted, repeated, [*STATISTICS, "target_norm", *RAW, "uncentered_target_norm"])
    # Of dense features less their mean these are rounding; a value of the kernel as given is what that is relative to.
    size = np.abs(features).max() ** 2
    np.testing.assert_allclose(weighted.row_means[:, index], repeated.row_means, rtol=0, atol=1e-14 * size)
    np.testing.assert_array_equal(weighted.frobenius, weighted.frobenius.T)
    for active in (p, 3):
        mu = np.random.default_rng(2).random(p) * (np.arange(p) < active)
        assert weighted.alignment(mu) == pytest.approx(repeated.alignment(mu), rel=REPEATED)


@settings(max_examples=40)
@given(data=st.data(), weights=st.lists(st.integers(1, 9), min_size=4, max_size=14), kind=st.sampled_from("tfs"))
def test_repeated_rows_of_any_small_problem(data, weights, kind):
    """Tiles (t), features (f) and sparse features (s), in fold groups, restricted to any of them."""
    w, m = np.array(weights), len(weights)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    groups = np.array(data.draw(st.lists(st.integers(0, 2), min_size=m, max_size=m)))
    held = data.draw(st.sets(st.sampled_from(sorted(set(groups))), min_size=1))
    assume(np.isin(groups, list(held)).sum() >= 3)
    X, Y, index = rng.normal(size=(m, 3)), rng.normal(size=(m, 2)), copies(w)
    if kind == "t":
        family = FamilyUnion([GaussianFamily([0.25, 0.5]), LinearFamily(), PolynomialFamily([2]), FeatureFamily(2)])
    else:
        family = FeatureFamily(3)
    X = sparse.csr_matrix(X * (rng.random(X.shape) < 0.6)) if kind == "s" else X
    weighted = gram_moments(family, X, Y, groups, sample_weight=w)
    repeated = gram_moments(family, X[index], Y[index], groups[index])
    for part, whole in ((weighted, repeated), (weighted.restrict(sorted(held)), repeated.restrict(sorted(held)))):
        assert_same_statistics(part, whole, ["frobenius", "target", "centered_traces", "target_norm"])
        np.testing.assert_array_equal(part.constant, whole.constant)
        assert part.total_weight == whole.total_weight == whole.n_rows


@pytest.mark.parametrize("family", [GaussianFamily([0.3, 0.6]), LinearFamily(), FeatureFamily(3)], ids=str)
def test_weights_that_are_no_integers_are_those_of_the_definition(family):
    """``M = tr(D K_c D L_c)`` and so on, of matrices in long double."""
    rng = np.random.default_rng(7)
    X, Y, w = rng.normal(size=(20, 3)), rng.normal(size=(20, 2)), rng.gamma(0.7, size=20) + 0.01
    moments = gram_moments(family, X, Y, sample_weight=w)
    D = np.diag(w.astype(Wide))
    H = np.eye(20, dtype=Wide) - np.outer(np.ones(20, dtype=Wide), w.astype(Wide)) / w.astype(Wide).sum()
    grams = [H @ K.astype(Wide) @ H.T for K in (*family.tile(X, X), Y @ Y.T)]
    products = np.array([[frobenius_product(D @ K @ D, L) for K in grams] for L in grams]).astype(float)
    assert_close(moments.frobenius, products[:-1, :-1])
    assert_close(moments.target, products[:-1, -1])
    assert_close(moments.centered_traces, np.array([(w * np.diag(K)).sum() for K in grams[:-1]]).astype(float))
    assert moments.target_norm == pytest.approx(np.sqrt(products[-1, -1]), rel=REPEATED)


@pytest.mark.parametrize("family", [GaussianFamily([0.3, 0.6]), FeatureFamily(3)], ids=str)
@pytest.mark.parametrize("factor", [1e-6, 2.5, 1e6])
def test_multiplying_all_weights_scales_sums_over_pairs_by_the_square(family, factor):
    rng = np.random.default_rng(8)
    X, Y, w = rng.normal(size=(25, 3)), rng.normal(size=25), rng.random(25) + 0.1
    one = gram_moments(family, X, Y, sample_weight=w)
    other = gram_moments(family, X, Y, sample_weight=factor * w)
    assert_close(other.frobenius, factor**2 * one.frobenius)
    assert_close(other.target, factor**2 * one.target)
    assert_close(other.centered_traces, factor * one.centered_traces)
    assert_close(other.alignments, one.alignments)
    np.testing.assert_allclose(other.row_means, one.row_means, rtol=0, atol=1e-13)  # of kernels up to about ten
    require_informative(other)


@pytest.mark.parametrize("family", [GaussianFamily([0.3, 0.6]), FeatureFamily(3)], ids=str)
@pytest.mark.parametrize("m", [30, 300])
def test_weights_of_one_are_no_weights(family, m):
    rng = np.random.default_rng(9)
    X, Y = rng.normal(size=(m, 3)), rng.normal(size=m)
    ones, none = gram_moments(family, X, Y, sample_weight=np.ones(m)), gram_moments(family, X, Y)
    assert_same_statistics(ones, none)
    assert none.sample_weight is None
    assert none.total_weight == m


def test_weights_follow_their_rows():
    rng = np.random.default_rng(10)
    X, Y, w, groups = rng.normal(size=(40, 3)), rng.normal(size=40), rng.random(40) + 0.1, rng.integers(0, 3, size=40)
    order = rng.permutation(40)
    for family in (GaussianFamily([0.3, 0.6]), FeatureFamily(3)):
        one = gram_moments(family, X, Y, groups, sample_weight=w)
        other = gram_moments(family, X[order], Y[order], groups[order], sample_weight=w[order])
        np.testing.assert_array_equal(one.sample_weight, w[one.rows])
        for part in (one.restrict([2, 0]), one.restrict([1])):
            np.testing.assert_array_equal(part.sample_weight, w[part.rows])
        assert_same_statistics(one.restrict([0, 2]), other.restrict([0, 2]))


@pytest.mark.parametrize("block_rows", [1, 5, 64])
def test_tiles_and_threads_do_not_matter(block_rows):
    rng = np.random.default_rng(11)
    X, Y, w = rng.normal(size=(41, 3)), rng.normal(size=41), rng.random(41) + 0.1
    family = GaussianFamily([0.2, 0.4, 3.0])
    cut = gram_moments(family, X, Y, sample_weight=w, block_rows=block_rows, n_threads=2)
    assert_same_statistics(cut, gram_moments(family, X, Y, sample_weight=w))


def test_single_precision_keeps_what_it_promises():
    rng = np.random.default_rng(13)
    X, Y, w = rng.normal(size=(60, 3)), rng.normal(size=60), draw_weights(60)
    family = GaussianFamily([0.25, 0.5])
    single = gram_moments(family, X, Y, sample_weight=w, dtype=np.float32)
    double = gram_moments(family, X, Y, sample_weight=w)
    # Documented: alignments of single precision are good to 1e-6.
    np.testing.assert_allclose(single.alignments, double.alignments, rtol=1e-5)


def test_a_constant_kernel_or_target_is_refused_under_weights_too():
    rng = np.random.default_rng(14)
    X, w, groups = rng.normal(size=(30, 3)), 1e4 * rng.random(30) + 0.1, np.arange(30) % 2
    Y = np.where(groups == 0, 0.3, rng.normal(size=30))
    family = FamilyUnion([GaussianFamily([0.3]), FeatureFamily(1)], [None, [0]])
    X[groups == 1, 0] = 0.7
    moments = gram_moments(family, X, Y, groups, sample_weight=w)
    with pytest.raises(ValueError, match="the target is constant on the training rows"):
        require_informative(moments.restrict([0]))
    with pytest.raises(ValueError, match="base kernel feature 0 on columns 0 is constant on the 15 training rows"):
        require_informative(moments.restrict([1]))


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_a_kernel_that_is_its_shift_up_to_rounding_is_constant_under_weights_of_any_size(size):
    rng = np.random.default_rng(15)
    X, w = rng.normal(size=(30, 2)), size * (rng.random(30) + 0.1)
    X[:, 1] = np.where(np.arange(30) % 2, 0.7, np.nextafter(0.7, 1.0))
    family = FamilyUnion([GaussianFamily([0.3]), FeatureFamily(1)], [None, [1]])
    moments = gram_moments(family, X, X[:, 0], sample_weight=w)
    np.testing.assert_array_equal(moments.constant, [False, True])


@pytest.mark.parametrize("family", [GaussianFamily([0.3, 0.6]), FeatureFamily(3)], ids=str)
def test_rows_and_targets_are_moved_by_their_weighted_means(family):
    rng = np.random.default_rng(16)
    X, Y, w = rng.normal(size=(30, 3)) + 5.0, rng.normal(size=(30, 2)), 10.0 * rng.random(30) + 0.1
    moments = gram_moments(family, X, Y, sample_weight=w)
    np.testing.assert_allclose(moments.origin, np.average(X, axis=0, weights=w), rtol=1e-14)
    np.testing.assert_allclose(moments.target_mean, np.average(Y, axis=0, weights=w), atol=1e-14)
    np.testing.assert_allclose(moments.targets, (Y - moments.target_mean)[moments.rows], rtol=0, atol=0)


# Learned kernels -----------------------------------------------------------------------------------------------------


def problem(m: int = 40, seed: int = 20) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 4)) + 1.0
    return X, np.sin(2 * X[:, 0]) + X[:, 0] * X[:, 1] + 0.4 * X[:, 3] + 0.2 * rng.normal(size=m)


UNION = FamilyUnion([GaussianFamily([0.05, 0.5]), LinearFamily(), LaplacianFamily([0.3])], [None, [0, 1], [2, 3]])
FAMILIES = {
    "tiles": (UNION, lambda X: X),
    "features": (FeatureFamily(4), lambda X: X),
    "sparse-features": (FeatureFamily(4), lambda X: sparse.csr_matrix(np.where(X > 0.4, X, 0.0))),
}


@pytest.mark.parametrize("normalise", NORMALISATIONS)
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("learner", TWO_STAGE)
def test_a_kernel_of_weighted_rows_is_that_of_the_repeated_rows(learner, name, normalise):
    (X, y), (family, form) = problem(), FAMILIES[name]
    w = draw_weights(len(X))
    index, X, X_new = copies(w), form(X), form(problem(seed=21)[0][:9])
    weighted = learn_kernel(learner, family, X, y, sample_weight=w, normalise=normalise)
    repeated = learn_kernel(learner, family, X[index], y[index], normalise=normalise)
    np.testing.assert_allclose(weighted.weights, repeated.weights, atol=LEARNED)
    assert weighted.alignment == pytest.approx(repeated.alignment, rel=LEARNED)
    assert_close(weighted.alignments, repeated.alignments)
    assert_close(weighted.scales, repeated.scales)
    K = weighted.gram()
    assert_close(K[np.ix_(index, index)], repeated.gram(), rtol=LEARNED)
    assert_close(weighted.cross_gram(X_new)[:, index], repeated.cross_gram(X_new), rtol=LEARNED)
    # Sums over copies are sums over weighted rows: the kernel is centered by the weighted mean.
    np.testing.assert_allclose(K @ w, 0, atol=1e-10 * np.abs(K).max() * w.sum())
    assert (weighted.sample_weight == w).all()


@pytest.mark.parametrize("learner", TWO_STAGE)
@pytest.mark.parametrize("name", FAMILIES)
def test_learned_weights_do_not_depend_on_the_scale_of_the_sample_weights(learner, name):
    (X, y), (family, form) = problem(), FAMILIES[name]
    w = np.random.default_rng(22).random(len(X)) + 0.05
    one = learn_kernel(learner, family, form(X), y, sample_weight=w)
    other = learn_kernel(learner, family, form(X), y, sample_weight=1e3 * w)
    np.testing.assert_allclose(one.weights, other.weights, atol=LEARNED)
    assert one.alignment == pytest.approx(other.alignment, rel=LEARNED)
    assert_close(one.alignments, other.alignments)
    # Scales are traces, and grow with the weights: the kernel shrinks by what its unit of trace grew.
    assert_close(1e-3 * one.gram(), other.gram(), rtol=LEARNED)


def test_sample_weights_change_what_is_learned():
    X, y = problem()
    heavy = np.where(X[:, 0] > 1.0, 20.0, 1.0)
    weighted, plain = (learn_kernel("alignf", UNION, X, y, sample_weight=w) for w in (heavy, None))
    assert np.abs(weighted.weights - plain.weights).max() > 0.05


@pytest.mark.parametrize("name", FAMILIES)
def test_kernels_of_weighted_folds_are_those_of_the_repeated_rows(name):
    (X, y), (family, form) = problem(), FAMILIES[name]
    w, groups, X = draw_weights(len(X)), np.arange(len(X)) % 4, form(X)
    index = copies(w)
    weighted = gram_moments(family, X, y, groups, sample_weight=w).restrict([0, 3])
    repeated = gram_moments(family, X[index], y[index], groups[index]).restrict([0, 3])
    one = learn_from_moments("alignf", family, X, weighted)
    other = learn_from_moments("alignf", family, X[index], repeated)
    np.testing.assert_allclose(one.weights, other.weights, atol=LEARNED)
    np.testing.assert_array_equal(one.sample_weight, w[one.rows])
    # The repeated rows are sorted by group too, so that copies lie side by side.
    np.testing.assert_array_equal(one.rows[copies(w[one.rows])], index[other.rows])
    assert_close(one.gram()[np.ix_(*2 * [copies(w[one.rows])])], other.gram(), rtol=LEARNED)


def power_of(family, X, y, w, degree: int) -> LearnedKernel:
    """Return a polynomial of a sum of base kernels, as some learners find."""
    moments = gram_moments(family, X, y, sample_weight=w)
    rows = TrainingRows.of("nkrr", family, X, moments, "frobenius")
    return rows.kernel(Solution(np.arange(1.0, family.n_kernels + 1), degree=degree, offset=0.5))


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_a_power_of_a_kernel_of_weighted_rows_is_that_of_the_repeated_rows(degree):
    X, y = problem()
    w = draw_weights(len(X))
    index = copies(w)
    weighted, repeated = power_of(UNION, X, y, w, degree), power_of(UNION, X[index], y[index], None, degree)
    assert weighted.alignment == pytest.approx(repeated.alignment, rel=LEARNED)
    assert_close(weighted.gram()[np.ix_(index, index)], repeated.gram(), rtol=LEARNED)
    # On its own training rows, with their weights, the alignment is the one stated.
    assert weighted.alignment_with(X, Target.of(y), w) == pytest.approx(weighted.alignment, rel=LEARNED)


def test_alignment_with_weighted_new_rows_is_that_with_the_repeated_ones():
    X, y = problem()
    X_new, y_new = problem(15, seed=23)
    w, w_new = draw_weights(len(X)), draw_weights(15, seed=1)
    index = copies(w_new)
    kernel = learn_kernel("alignf", UNION, X, y, sample_weight=w)
    weighted = kernel.alignment_with(X_new, Target.of(y_new), w_new)
    assert weighted == pytest.approx(kernel.alignment_with(X_new[index], Target.of(y_new[index])), rel=LEARNED)
    assert weighted != pytest.approx(kernel.alignment_with(X_new, Target.of(y_new)), rel=1e-3)


# Centering -----------------------------------------------------------------------------------------------------------


def test_matrices_of_weighted_samples_are_those_of_the_repeated_ones():
    rng = np.random.default_rng(24)
    A, B, new = rng.normal(size=(12, 6)), rng.normal(size=(12, 4)), rng.normal(size=(5, 6))
    w = draw_weights(12)
    index = copies(w)
    square = np.ix_(index, index)
    K, L = A @ A.T + 3.0, B @ B.T
    assert_close(center_gram(K, w)[square], center_gram(K[square]))
    np.testing.assert_allclose(w @ center_gram(K, w), 0, atol=1e-12 * np.abs(K).max() * w.sum())
    assert_close(center_cross_gram(new @ A.T, K, w)[:, index], center_cross_gram((new @ A.T)[:, index], K[square]))
    alignment = centered_alignment(K, L, w)
    assert alignment == pytest.approx(centered_alignment(K[square], L[square]), rel=REPEATED)
    assert alignment == pytest.approx(centered_alignment(K, L, 1e5 * w), rel=REPEATED)


def test_a_matrix_that_is_constant_is_refused_under_weights_too():
    w = np.random.default_rng(25).random(9) * 1e6 + 0.1
    with pytest.raises(ValueError, match="K is constant after centering"):
        centered_alignment(np.full((9, 9), 0.3), np.eye(9), w)


# Files ---------------------------------------------------------------------------------------------------------------


def weighted_kernel() -> LearnedKernel:
    X, y = problem()
    return learn_kernel("alignf", UNION, X, y, sample_weight=np.linspace(0.5, 4.0, len(X)))


@pytest.mark.parametrize("family", [GaussianFamily([0.3, 0.6]), FeatureFamily(4)], ids=str)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_moments_of_weighted_rows_survive_a_file(family, form):
    X, y = problem()
    for w in (np.linspace(0.5, 4.0, len(X)), None):
        moments = gram_moments(family, form(X), y, np.arange(len(X)) % 3, sample_weight=w)
        file = io.BytesIO()
        np.savez(file, **moments.to_arrays())
        file.seek(0)
        with np.load(file, allow_pickle=False) as stored:
            assert ("sample_weight" in stored) == (w is not None)
            read = FeatureMoments.from_arrays if FeatureMoments.wrote(stored) else GramMoments.from_arrays
            back = read(dict(stored))
        for part, old in ((back, moments), (back.restrict([0, 2]), moments.restrict([0, 2]))):
            np.testing.assert_array_equal(part.frobenius, old.frobenius)
            np.testing.assert_array_equal(part.target, old.target)
            assert part.total_weight == old.total_weight


def test_a_kernel_of_weighted_rows_survives_a_file_bit_by_bit():
    kernel, X_new = weighted_kernel(), problem(seed=26)[0]
    file = io.BytesIO()
    save_kernel(kernel, file)
    back = load_kernel(file)
    np.testing.assert_array_equal(back.sample_weight, kernel.sample_weight)
    np.testing.assert_array_equal(back.gram(), kernel.gram())
    np.testing.assert_array_equal(back.cross_gram(X_new), kernel.cross_gram(X_new))


def test_a_kernel_of_rows_without_weights_is_written_without():
    arrays = kernel_to_arrays(learn_kernel("alignf", UNION, *problem()))
    assert "sample_weight" not in arrays
    assert "weighted" not in json.loads(arrays[DESCRIPTION].tobytes())
    assert kernel_from_arrays(arrays).sample_weight is None


def refusal(*changes, **arrays) -> str:
    """Return the sentence about the arrays of a kernel with others in their place, and without those of `changes`."""
    given = {**kernel_to_arrays(weighted_kernel()), **arrays}
    with pytest.raises(ValueError, match=r"^[^\n]*; [^\n]*\.$") as caught:
        kernel_from_arrays({name: array for name, array in given.items() if name not in changes})
    return str(caught.value)


def described(**changes) -> np.ndarray:
    description = json.loads(kernel_to_arrays(weighted_kernel())[DESCRIPTION].tobytes())
    description = {name: value for name, value in {**description, **changes}.items() if value is not None}
    return np.frombuffer(json.dumps(description).encode(), dtype=np.uint8)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_saved_weights_that_are_none_are_refused(value):
    sample_weight = weighted_kernel().sample_weight
    sample_weight[3] = value
    assert f"sample_weight must be finite and positive, got {value:g} for row 3" in refusal(sample_weight=sample_weight)
    with pytest.raises(ValueError, match="sample_weight must be finite and positive"):
        save_kernel(replace(weighted_kernel(), sample_weight=sample_weight), io.BytesIO())


def test_saved_weights_of_other_rows_or_another_type_are_refused():
    assert "sample_weight must have one entry a row" in refusal(sample_weight=np.ones(39))
    assert "sample_weight must have one entry a row" in refusal(sample_weight=np.ones((40, 1)))
    assert "sample_weight must hold numbers" in refusal(sample_weight=np.full(40, "1"))


def test_saved_weights_neither_vanish_nor_appear():
    assert "must hold 'sample_weight'" in refusal("sample_weight")
    assert "sample_weight must be there only where" in refusal(**{DESCRIPTION: described(weighted=None)})
    assert "weighted of description must be true or false" in refusal(**{DESCRIPTION: described(weighted="yes")})


# Refusals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -2.0, np.nan, np.inf])
@pytest.mark.parametrize("family", [GaussianFamily([0.3]), FeatureFamily(4)], ids=str)
def test_weights_must_be_finite_and_positive(family, value):
    X, y = problem()
    w = np.ones(len(X))
    w[5] = value
    said = rf"^sample_weight must be finite and positive, got {float(value):g} for row \d+; drop rows of weight zero\.$"
    with pytest.raises(ValueError, match=said):
        gram_moments(family, X, y, sample_weight=w)
    with pytest.raises(ValueError, match=said):
        learn_kernel("align", family, X, y, sample_weight=w)
    with pytest.raises(ValueError, match=said):
        center_gram(X @ X.T, w)


@pytest.mark.parametrize("shape", [(39,), (41,), (40, 1), ()])
def test_weights_must_be_one_a_row(shape):
    X, y = problem()
    with pytest.raises(ValueError, match=r"^sample_weight must have one entry a row, got shape .* for 40 rows; .*\.$"):
        gram_moments(UNION, X, y, sample_weight=np.ones(shape))
    kernel = learn_kernel("align", UNION, X, y)
    with pytest.raises(ValueError, match=r"^sample_weight must have one entry a row"):
        kernel.alignment_with(X, Target.of(y), np.ones(shape))


def test_weights_are_not_modified_and_not_held():
    X, y = problem()
    w = draw_weights(len(X)).astype(float)
    before = w.copy()
    kernel = learn_kernel("alignf", UNION, X, y, sample_weight=w)
    gram = kernel.gram()
    np.testing.assert_array_equal(w, before)
    w[:] = 1.0
    np.testing.assert_array_equal(kernel.gram(), gram)


@pytest.mark.parametrize("learner", sorted(name for name, learner in LEARNERS.items() if not learner.takes_weights))
def test_learners_of_the_rows_themselves_refuse_weights(learner):
    X, y = problem()
    w, target = draw_weights(len(X)), Target.of(np.where(y > 0, "a", "b"))
    said = rf"^{learner} learns from rows that count once each, got sample_weight or class_weight; .*\.$"
    with pytest.raises(ValueError, match=said):
        learn_kernel(learner, UNION, X, target.values, task="classification", sample_weight=w)
    with pytest.raises(ValueError, match=said):
        learn_path(learner, UNION, X, gram_moments(UNION, X, target.Y, sample_weight=w), target, [1.0])


def test_the_ensemble_refuses_weights():
    X, y = problem()
    moments = gram_moments(UNION, X, y, sample_weight=draw_weights(len(X)))
    with pytest.raises(ValueError, match="ensemble learns from rows that count once each"):
        KernelEnsemble.fit(UNION, X, moments, Target.of(y), [1.0])
