"""Continuous families: kernels over pairs by bandwidth, their search by alignment and by risk, scaled families."""

import warnings
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize, minimize_scalar
from sklearn.exceptions import ConvergenceWarning

from learnkernels import (
    GaussianFamily,
    LinearFamily,
    center_gram,
    centered_alignment,
    gram_statistics,
    learn_kernel,
)
from learnkernels.kernels.engine.operators import StackedGrams
from learnkernels.kernels.families import ScaledFamily
from learnkernels.kernels.learners import (
    CA,
    CR,
    L1KRR,
    cr,
    learn_from_statistics,
    learn_path,
)
from learnkernels.kernels.learners.ca import Ascent, best_step
from learnkernels.kernels.learners.continuous import (
    FeaturePairs,
    RadialPairs,
    radial_kernels,
    scaled_gaussians,
)
from learnkernels.kernels.targets import Target
from tests.refusals import refusal, require_refusals
from tests.unit.conftest import peak_of

KINDS = ["gaussian", "laplacian", "dirichlet"]


def data(kind: str, m: int = 60, seed: int = 0) -> tuple[np.ndarray, Target]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 1 if kind == "dirichlet" else 3))
    return X, Target.of(
        np.where(np.sin(3 * X[:, 0]) + 0.3 * rng.normal(size=m) > 0, "a", "b")
    )


def centered_targets(target: Target) -> np.ndarray:
    return target.Y - target.Y.mean(axis=0)


SHAPES = ((1, 2), (2, 1), (7, 3), (64, 5), (65, 4), (150, 2))

# Relative to the largest kernel value: some operations of rounding a feature, and the
# expanded squared distance.
UNIT = 1e-12


def problem(m: int, d: int, seed: int = 0):
    """Rows, a point, and a symmetric P that is not positive definite; kernels neither all zero nor all alike."""
    rng = np.random.default_rng([seed, m, d])
    X = rng.normal(size=(m, d)) * np.exp(rng.normal(size=d)) + 5
    u = rng.normal(scale=0.3, size=d) + np.log((X.std(axis=0) + (m == 1)) * d**0.5)
    P = rng.normal(size=(m, m))
    P = P + P.T
    for array in (X, u, P):
        array.flags.writeable = False
    return X, u, P


# Pairs ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_matrices_and_derivatives_are_those_of_the_finite_family_and_of_differences(
    kind,
):
    X, _ = data(kind)
    pairs, h = RadialPairs(kind, X), 1e-5
    P = np.random.default_rng(1).normal(size=(60, 60))
    P += P.T
    for u in (-1.5, -0.2, 0.9):
        K = pairs.matrix(np.array([u]))
        np.testing.assert_array_equal(K, K.T)
        np.testing.assert_allclose(
            K, radial_kernels(kind, np.array([[u]])).tile(X, X)[0], rtol=0, atol=1e-12
        )
        value, slope = pairs.value_and_gradient(np.array([u]), P)
        assert value == pytest.approx(float(np.vdot(P, K)), rel=1e-10, abs=1e-9)
        ends = [pairs.value_and_gradient(np.array([u + s * h]), P)[0] for s in (1, -1)]
        # Central differences: h^2 and rounding / h.
        assert slope[0] == pytest.approx(
            (ends[0] - ends[1]) / (2 * h), rel=1e-6, abs=1e-6 * np.abs(P).max()
        )


@pytest.mark.parametrize("kind", KINDS)
def test_candidates_on_bins_are_close_to_exact_ones(kind):
    X, target = data(kind, m=150)
    pairs, Y = RadialPairs(kind, X), centered_targets(target)
    u, P = pairs.candidates[::7], Y @ Y.T
    exact = np.array([pairs.value_and_gradient([one], P)[0] for one in u])
    binned = pairs.values_on_bins(u, pairs.binned(P)) + pairs.diagonal * np.trace(P)
    # A bin of equal ratio is 2 % wide, 1e-3 of a value where few pairs share one;
    # frequencies turn by 1/4 in one.
    assert (
        np.abs(binned - exact).max()
        <= (2e-2 if kind == "dirichlet" else 2e-3) * exact.max()
    )


# One bandwidth a feature ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "d"), SHAPES)
def test_matrices_values_and_gradients_are_those_of_each_pair(m, d):
    X, u, P = problem(m, d)
    pairs = FeaturePairs(X)
    K, Z = pairs.matrix(u), (X[:, None] - X) * np.exp(-u)
    np.testing.assert_allclose(K, np.exp(-(Z**2).sum(axis=2)), rtol=0, atol=UNIT)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_array_equal(np.diag(K), 1.0)
    U, kept = np.stack([u, u + 0.1, u[::-1]]), K.copy()
    pairs.matrix(u)[...] = np.nan
    np.testing.assert_array_equal(K, kept)
    for tile, one in zip(scaled_gaussians(U).tile(X, X), U, strict=True):
        np.testing.assert_allclose(pairs.matrix(one), tile, rtol=0, atol=UNIT)
    for weights in (P, P @ P / m):
        value, gradient = pairs.value_and_gradient(u, weights)
        assert abs(value - np.vdot(weights, K)) <= UNIT * np.abs(weights).sum()
        terms = (weights * K)[:, :, None] * 2 * Z**2
        assert (
            np.abs(gradient - terms.sum(axis=(0, 1)))
            <= 1e-12 * np.abs(terms).sum(axis=(0, 1))
        ).all()


def test_narrow_gaussians_keep_the_digits_of_their_gradient():
    rng = np.random.default_rng(1)
    near = np.repeat(rng.normal(size=(20, 2)), 2, axis=0)
    step, P = rng.normal(size=(20, 2)), np.ones((40, 40))
    for narrow in (1e-2, 1e-3):
        X, u = near.copy(), np.full(2, np.log(narrow))
        X[1::2] += narrow * step
        _, gradient = FeaturePairs(X).value_and_gradient(u, P)
        Z = (X[:, None] - X) / narrow
        expected = (2 * Z**2 * np.exp(-(Z**2).sum(axis=2))[:, :, None]).sum(axis=(0, 1))
        # Expanded squares of size narrow^-2 cancel to ones.
        np.testing.assert_allclose(gradient, expected, rtol=1e-14 / narrow**2)


def test_a_constant_feature_has_no_derivative_and_the_widest_range_and_nothing_is_modified():
    X, u, P = problem(61, 4)
    X = X.copy()
    X[:, 2] = 0.1  # the mean of 61 of these is not 0.1
    X.flags.writeable = False  # as those of the point and of P are
    pairs = FeaturePairs(X)
    _, gradient = pairs.value_and_gradient(u, P)
    assert gradient[2] == 0.0
    assert (gradient[[0, 1, 3]] != 0).all()
    low, high = pairs.bounds
    assert (low[2], high[2]) == (low.min(), high.max())
    pairs.matrix(u), scaled_gaussians(u[None])


def test_bounds_follow_units_and_hold_isotropic_bandwidths_around_the_median_distance():
    rows = problem(50, 4)[0]
    for spread in (1.0, 1e9):
        low, high = FeaturePairs(
            rows * np.array([1.0, 1.0 / spread, spread, 1.0])
        ).bounds
        assert np.isfinite([low, high]).all()
        assert (low < high).all()
    X, factor = rows / rows.std(axis=0), np.array([1.0, 2.0, 4.0, 1.0])
    for one, two in zip(
        FeaturePairs(X).bounds, FeaturePairs(X * factor).bounds, strict=True
    ):
        np.testing.assert_allclose(two - one, np.log(factor), rtol=0, atol=1e-12)
    # Distances are 0, 5, 5, 5, 5 and 10; ten thousand deviations of the second feature
    # are fewer than four medians.
    X = np.array([[0.0, 0.0], [3.0, 4e-9], [3.0, 4e-9], [6.0, 8e-9]])
    assert np.exp(FeaturePairs(X).bounds[1][1]) == pytest.approx(12)


def test_kernels_found_have_different_names_of_the_range_of_their_parameters():
    U = np.log([[0.3, 1.0, 4.1], [2.0, 2.0, 2.0], [0.3, 4.1, 0.3]])
    family = scaled_gaussians(U)
    assert family.names == (
        "gaussian(sigma 0.3..4.1)",
        "gaussian(sigma 2)",
        "gaussian(sigma 0.3..4.1) (2)",
    )
    assert family.subset([2, 1]).names == (
        "gaussian(sigma 0.3..4.1) (2)",
        "gaussian(sigma 2)",
    )
    names = ScaledFamily(
        LinearFamily(), np.ones((5, 1)), ["a", "a", "a (2)", "a", "b"]
    ).names
    assert names == ("a", "a (3)", "a (2)", "a (4)", "b")
    again = (
        ScaledFamily(LinearFamily(), np.ones((2, 1)), ["a", "a (2)"])
        .subset([0, 0, 1, 1])
        .names
    )
    assert len(set(again)) == 4


def test_a_nearly_constant_scaled_gaussian_less_one_keeps_its_digits_and_its_scales():
    X = np.random.default_rng(4).normal(size=(20, 3))
    scales = np.array([[1e-5, 3e-5, 2e-5]])
    D = (((X[:8, None] - X[8:]) * scales[0]) ** 2).sum(axis=2)
    family = ScaledFamily(GaussianFamily([1.0]), scales)
    scales[:] = 0.0
    np.testing.assert_allclose(
        family.tile(X[:8], X[8:], shift=np.ones(1))[0], np.expm1(-D), rtol=1e-12
    )


# The alignment's ascent ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_the_growth_of_the_alignment_and_no_direction_is_steeper(kind):
    """<F'(K_c), K_sigma> is the derivative of the centered alignment along K_sigma (Proposition 1)."""
    X, target = data(kind)
    pairs, Y = RadialPairs(kind, X), centered_targets(target)
    ascent = Ascent(pairs, Y, 1.0)
    ascent.add(np.array([0.1]), 1.0)
    direction, h, K = pairs.matrix(np.array([0.7])), 1e-6, ascent.K
    growth = [centered_alignment(K + s * h * direction, Y @ Y.T) for s in (1, -1)]
    expected = (growth[0] - growth[1]) / (2 * h)
    # Rounding / h
    assert float(np.vdot(ascent.gradient(), direction)) == pytest.approx(
        expected, rel=1e-5
    )

    ascent = Ascent(pairs, Y, 1e-10)
    for _ in range(4):
        P = ascent.gradient()
        u = np.array([pairs.steepest(P, 1e-3)])
        reached, ends = (
            pairs.value_and_gradient(u, P)[0],
            [(pairs.candidates[0], pairs.candidates[-1])],
        )
        best = minimize(
            lambda v, P=P: -pairs.value_and_gradient(v, P)[0],
            u,
            method="L-BFGS-B",
            bounds=ends,
        ).x
        # No candidate, nor what L-BFGS-B makes of the best, grows faster.
        for other in (*pairs.candidates[:, None], best):
            assert reached >= pairs.value_and_gradient(other, P)[0] - 1e-6 * abs(
                reached
            )
        ascent.add(u, 1.0)
    assert ascent.alignment == pytest.approx(
        centered_alignment(ascent.K, Y @ Y.T), rel=1e-10
    )


def test_the_step_is_that_of_a_bounded_optimizer():
    rng = np.random.default_rng(2)
    for _ in range(200):
        a, b, c, e = rng.uniform(0.1, 3, 4)
        d = rng.uniform(-0.9, 1) * np.sqrt(c * e)
        step = best_step(a, b, c, d, e, 1.0)

        def negative(eta, a=a, b=b, c=c, d=d, e=e):
            return -(a + b * eta) / np.sqrt(c + 2 * d * eta + e * eta**2)

        found = minimize_scalar(
            negative, bounds=(0, 1), method="bounded", options={"xatol": 1e-10}
        )
        assert negative(step) <= min(found.fun, negative(0.0), negative(1.0)) + 1e-9


def test_the_alignment_never_falls():
    X, target = data("gaussian", m=80)
    for per_feature in (False, True):
        one = CA(threshold=1e-5, max_kernels=8, per_feature=per_feature).find(X, target)
        assert len(one.alignments) > 1
        assert (np.diff(one.alignments) >= 0).all()
        assert (one.weights > 0).all()


def algorithm_as_printed(
    X: np.ndarray, y: np.ndarray, threshold: float, sigmas: np.ndarray
) -> list[float]:
    """Return the alignments after each addition of Algorithm 1, over a grid of Gaussians and of step sizes."""
    m = len(y)
    H = np.eye(m) - 1 / m
    grams = [
        H @ np.exp(-((X[:, None] - X) ** 2).sum(axis=2) / sigma**2) @ H
        for sigma in sigmas
    ]
    L = H @ np.outer(y, y) @ H

    def alignment(K: np.ndarray) -> float:
        return float((K * L).sum() / np.linalg.norm(K) / np.linalg.norm(L))

    K = 1e-10 * H
    alignments = []
    while True:
        before = alignment(K)
        P = L - (K * L).sum() / (K * K).sum() * K
        steepest = max(grams, key=lambda gram: (gram * P).sum())
        candidates = [K + eta * steepest for eta in (0, *np.geomspace(1e-14, 1, 2000))]
        K = max(candidates, key=alignment)
        alignments.append(alignment(K))
        if alignments[-1] <= before + threshold:
            return alignments


@pytest.mark.parametrize("threshold", [1e-3, 0.05, 0.9])
def test_the_first_kernel_stops_by_the_threshold_as_printed(threshold):
    """With 0.9 the first step is the last. The oracle's grids are finer than what changes an alignment by 1e-3."""
    X, target = data("gaussian", m=40, seed=4)
    found = CA(threshold=threshold).find(X, target)
    expected = algorithm_as_printed(
        X, target.Y[:, 0], threshold, np.geomspace(0.05, 50, 400)
    )
    assert len(found.alignments) == len(expected)
    np.testing.assert_allclose(found.alignments, expected, atol=1e-3)


def test_the_first_gain_is_over_the_identity_on_all_rows():
    """The alignment of the identity falls with the number of rows: on 30 rows it exceeds that of the first kernel."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 2))
    target = Target.of(X[:, 0] + 2 * rng.normal(size=900), "regression")
    found = CA(search_rows=30, threshold=0.01).find(X, target)
    assert 1 / np.sqrt(899) + 0.01 < found.alignments[0] < 1 / np.sqrt(29)
    assert len(found.alignments) > 1


def test_the_three_sines_are_found():
    for seed in range(2):
        x = np.random.default_rng(seed).uniform(-10, 10, 500)
        f = sum(np.sin(np.sqrt(k) * x) for k in (2, 12, 60))
        found = (
            CA(kind="dirichlet")
            .find(x[:, None], Target.of(np.where(f > 0, "up", "down")))
            .parameters[:3, 0]
        )
        # The target is the sign of the sum alone.
        np.testing.assert_allclose(np.sort(found), np.sqrt([2, 12, 60]), rtol=0.05)


def test_a_search_on_some_rows_weighs_on_all():
    X, target = data("gaussian", m=300)
    whole, part = CA().find(X, target), CA(search_rows=120).find(X, target)
    # Two rows of five have another best bandwidth.
    assert part.parameters[0, 0] == pytest.approx(whole.parameters[0, 0], rel=0.3)
    again = CA(search_rows=120).find(X, target)
    np.testing.assert_array_equal(part.parameters, again.parameters)
    statistics = gram_statistics(part.family, X, target.Y)
    # The alignment counts the identity of K_0 too, which the learned kernel is without.
    assert part.alignments[-1] == pytest.approx(
        statistics.alignment(part.weights), rel=1e-6
    )


@pytest.mark.parametrize("kind", ["gaussian", "laplacian"])
def test_a_search_on_all_rows_but_one_finds_what_one_on_all_rows_finds(kind):
    X = np.random.default_rng(0).normal(size=(700, 2))
    target = Target.of(np.sign(X[:, 0] * X[:, 1]), "regression")
    whole, part = CA(kind).find(X, target), CA(kind, search_rows=699).find(X, target)
    # One row moves the least of the alignments by some 1e-4 of itself, and so the best
    # bandwidths and weights.
    np.testing.assert_allclose(part.parameters, whole.parameters, rtol=0.02)
    np.testing.assert_allclose(
        part.weights / part.weights.sum(),
        whole.weights / whole.weights.sum(),
        atol=0.02,
    )
    assert (whole.weights > 1e-6 * whole.weights.max()).all()
    assert part.alignments[-1] == pytest.approx(whole.alignments[-1], rel=1e-3)


def test_relevant_features_get_narrow_bandwidths_and_shrinkage_draws_them_together():
    X = np.random.default_rng(3).normal(size=(150, 4))
    target = Target.of(np.where(np.sin(2 * X[:, 1]) > 0, "a", "b"))
    found = [
        CA(per_feature=True, shrinkage=value).find(X, target).parameters
        for value in (0.0, 1e2, 1e14)
    ]
    assert found[0][0, 1] < 0.5 * np.delete(found[0][0], 1).min()
    spreads = [np.ptp(parameters[-1]) for parameters in found]
    assert spreads[0] > spreads[1] > spreads[2]


def test_the_shrunk_objective_has_the_derivative_of_finite_differences():
    X, target = data("gaussian", m=50)
    pairs = FeaturePairs(X)
    ascent = Ascent(pairs, centered_targets(target), 1.0)
    ascent.add(np.array([0.1, 0.4, -0.2]), 1.0)
    P, u, h = ascent.gradient(), np.array([0.3, -0.1, 0.2]), 1e-6
    _, slope = pairs.value_and_gradient_shrunk(u, P, 0.3)
    for k, unit in enumerate(np.eye(3)):
        ends = [
            pairs.value_and_gradient_shrunk(u + s * h * unit, P, 0.3)[0]
            for s in (1, -1)
        ]
        assert slope[k] == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-6)


# The learned kernel --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "learner",
    [CA(), CA(per_feature=True), CR(tol=0.01)],
    ids=["ca", "per-feature", "cr"],
)
def test_what_is_found_is_an_ordinary_learned_kernel(learner):
    X, target = data("gaussian", m=90)
    y = np.array(target.classes)[target.values]
    kernel = learn_kernel(X[:70], y[:70], learner=learner)
    assert kernel.parameters.shape == (
        len(kernel.weights),
        3 if getattr(learner, "per_feature", False) else 1,
    )
    K = kernel.gram()
    np.testing.assert_allclose(K.sum(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(
        kernel.cross_gram(X[:70])[:, np.argsort(kernel.rows)], K, rtol=0, atol=1e-10
    )
    Y = target.take(kernel.rows).Y
    assert kernel.alignment == pytest.approx(centered_alignment(K, Y @ Y.T), rel=1e-8)
    assert kernel.alignment_with(X[:70], target.take(np.arange(70))) == pytest.approx(
        kernel.alignment, rel=1e-8
    )


def test_some_folds_of_a_pass_name_the_training_rows_and_a_path_has_a_kernel_a_regularization():
    (X, target), groups, family = (
        data("gaussian", m=60),
        np.arange(60) % 3,
        GaussianFamily([1.0]),
    )
    statistics = gram_statistics(family, X, target.Y, groups).restrict([0, 2])
    kernel = learn_from_statistics("ca", family, X, statistics, target=target)
    assert sorted(kernel.rows) == np.flatnonzero(groups != 1).tolist()
    kernels = learn_path(CR(tol=0.01), family, X, statistics, target, [0.5, 5.0])
    assert [kernel.C for kernel in kernels] == [0.5, 5.0]
    with pytest.warns(
        ConvergenceWarning,
        match="cr stopped after 2 iterations at a relative duality gap of",
    ):
        CR(max_iter=2, tol=1e-9).find(X, target, C=10.0)


# The risk ------------------------------------------------------------------------------------------------------------


def test_the_risk_is_below_that_of_any_grid():
    X, target = data("gaussian", m=60)
    sigmas = np.geomspace(0.05, 50, 40)
    grams = np.stack(
        [center_gram(K) for K in GaussianFamily((1 / sigmas**2).tolist()).tile(X, X)]
    )
    grid = L1KRR().solve(
        StackedGrams((grams + grams.transpose(0, 2, 1)) / 2), target, C=5.0
    )
    for corrective in (False, True):
        found = CR(corrective=corrective, tol=1e-3).find(X, target, C=5.0)
        assert found.certificate.residual <= 1e-3
        assert (np.diff(found.certificate.objectives) <= 1e-9).all()
        assert found.weights.sum() == pytest.approx(1.0, rel=1e-12)
        # The grid's optimum is in the hull: the gap is all that the found one may be
        # above it.
        assert found.certificate.objectives[-1] <= grid.certificate.objectives[-1] * (
            1 + 1e-3
        )


@pytest.mark.parametrize(("kind", "C"), [("gaussian", 8.0), ("dirichlet", 0.05)])
def test_cr_without_matrices_finds_what_it_finds_with_them(
    kind, C, request, monkeypatch
):
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, size=(100, 1 if kind == "dirichlet" else 2))
    target = Target.of(
        np.sin(3 * X[:, 0]) + 0.2 * X[:, -1] + 0.1 * rng.normal(size=100), "regression"
    )
    exact = CR(kind).find(X, target, C)
    request.getfixturevalue("no_matrices")
    found = CR(kind).find(X, target, C)
    assert found.certificate.measure == "duality gap on a sample"
    assert found.certificate.residual <= 1e-4
    # Both values are within a gap of the least one.
    assert found.certificate.objectives[-1] == pytest.approx(
        exact.certificate.objectives[-1], rel=2e-4
    )
    # With a sample the value is that of the kernels found, on all rows
    monkeypatch.setattr(cr, "SEARCH_ROWS", 60)
    sampled = CR(kind).find(X, target, C)
    assert sampled.certificate.objectives[-1] >= found.certificate.objectives[-1] * (
        1 - 2e-4
    )
    assert sampled.certificate.objectives[-1] <= found.certificate.objectives[-1] * 1.05
    said = refusal(CR(kind, corrective=False).find, X, target, C)
    assert "100 rows are too many for them; leave corrective out" in said


@pytest.mark.parametrize(("corrective", "matrices"), [(True, 16), (False, 9)])
def test_the_risk_takes_a_matrix_a_kernel_and_a_few_more(corrective, matrices):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    target = Target.of(
        np.sin(3 * X[:, 0])
        + np.sin(8 * X[:, 1])
        + X[:, 2] ** 2
        + 0.1 * rng.normal(size=300)
    )
    learner = CR(corrective=corrective, tol=1e-12, max_iter=10)  # nine additions
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        peak = peak_of(learner.find, X, target, 50.0)
    assert peak < matrices * 8 * 300**2


ROWS = np.arange(12.0).reshape(4, 3)
CSR = sparse.csr_matrix(ROWS)
ONE = GaussianFamily([1.0])


REFUSED = [
    (
        lambda: FeaturePairs(CSR),
        "needs dense rows, got sparse ones; give X.toarray(), or search one Gaussian",
    ),
    (
        lambda: FeaturePairs(np.full((5, 3), 0.1)).bounds,
        "all 5 rows are equal, so no kernel varies",
    ),
    (
        lambda: ScaledFamily(ONE, [[1.0, 0.0]]),
        "must be positive and finite, got 0 for feature 1 of kernel 0",
    ),
    (lambda: ScaledFamily(ONE, [[1.0], [-2.0]]), "got -2 for feature 0 of kernel 1"),
    (
        lambda: ScaledFamily(ONE, [[np.inf]]),
        "scales must be positive and finite, got inf",
    ),
    *(
        (
            partial(ScaledFamily, ONE, np.ones(of)),
            f"kernels by features, got shape {of}.",
        )
        for of in ((0, 2), (3,))
    ),
    (
        lambda: ScaledFamily(GaussianFamily([1.0, 2.0]), [[1.0]]),
        "base must hold exactly one kernel, got 2",
    ),
    (
        lambda: ScaledFamily(ONE, [[1.0]], ["a", "b"]),
        "names must have one entry per kernel, got 2 for 1.",
    ),
    (
        lambda: ScaledFamily(ONE, [[1.0, 1.0]]).tile(ROWS, ROWS),
        "X must have the 2 features that the kernels have sc",
    ),
    (
        lambda: ScaledFamily(ONE, [[1.0, 1.0]]).diag(CSR),
        "X must have the 2 features that the kernels have scales",
    ),
]


def test_bad_input_gets_one_sentence():
    X, target = data("gaussian")
    require_refusals(
        [
            (CA(threshold=-1.0).require, "threshold must be at least 0"),
            (CA(eps=0.0).require, "eps must be a positive"),
            (lambda: CA(kind="dirichlet").find(X, target), "needs one feature, got 3"),
            (
                CA(kind="laplacian", per_feature=True).require,
                "per_feature is for kind gaussian alone",
            ),
            (lambda: CA().find(np.ones((60, 3)), target), "all rows are equal"),
            (lambda: CR().find(X, target, 0.0), "C must be a positive"),
            (
                lambda: learn_kernel(X, target.Y, learner="alignf"),
                "alignf weighs given base kernels; give family, or",
            ),
        ]
    )
    require_refusals(REFUSED, literal=True)
