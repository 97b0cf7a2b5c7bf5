"""nkrr: derivatives, optimality on both balls, and the same weights however the kernels are held."""

from dataclasses import replace
from functools import partial
from itertools import cycle, product

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.special import comb
from sklearn.exceptions import ConvergenceWarning

from learnkernels import FeatureFamily, GaussianFamily, learn_kernel
from learnkernels.kernels.engine.operators import (
    FeatureGrams,
    StackedGrams,
    TiledGrams,
    gram_operator,
)
from learnkernels.kernels.learners import NKRR, Solution, nkrr
from learnkernels.kernels.predictors import TrainingSet, ridge_path
from learnkernels.kernels.predictors.krr import KRR, few_monomials
from learnkernels.kernels.solvers.monomial_ridge import (
    Monomials,
    has_few_monomials,
    monomial_ridge,
)
from learnkernels.kernels.targets import Target
from tests.refusals import require_refusals

GAP = 1e-6
DEGREES = [1, 2, 3, 4]

# Each degree with both norms, but for pairs that another degree has.
DEGREES_AND_NORMS = [(1, 1), (2, 1), (2, 2), (3, 2), (4, 1)]


def features(m: int = 40, p: int = 5, seed: int = 0) -> np.ndarray:
    """Return centered features of unequal size, the mean of the mean diagonals of their kernels being one."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(m, p)) * np.linspace(0.5, 1.5, p)
    Z -= Z.mean(axis=0)
    return Z / np.sqrt((Z**2).mean())


def labels(Z: np.ndarray, seed: int = 0) -> Target:
    rng = np.random.default_rng(seed + 1)
    return Target.of(Z[:, 0] * Z[:, 1] + 0.5 * Z[:, 2] + 0.3 * rng.normal(size=len(Z)))


def stacked(Z: np.ndarray) -> StackedGrams:
    return StackedGrams(np.einsum("ik,jk->kij", Z, Z))


def gaussians(m: int = 35, seed: int = 3) -> tuple[StackedGrams, Target]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 3))
    grams = gram_operator(
        GaussianFamily([0.05, 0.3, 1.5, 4.0]),
        X,
        shift=np.zeros(4),
        scales=np.full(4, 0.7),
    )
    return grams, Target.of(np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=m))


Z, Z_OF_NINE = features(), features(p=9, seed=2)
PROBLEMS = {"features": (stacked(Z), labels(Z)), "gaussians": gaussians()}
PROBLEMS["more"] = stacked(Z_OF_NINE), labels(Z_OF_NINE, seed=2)


def on_problems(names: str, levels):
    """Return the cases of a test: each of the levels with one of the problems, in turn."""
    cases = [
        (*level, *problem) for level, problem in zip(levels, cycle(PROBLEMS.values()))
    ]
    return pytest.mark.parametrize((*names.split(), "grams", "target"), cases)


def value(
    grams: StackedGrams, target: Target, mu: np.ndarray, degree: int, C: float = 1.0
) -> float:
    """Return F by the definition."""
    K = sum(weight * K_k for weight, K_k in zip(mu, grams.grams, strict=True)) ** degree
    Y = target.Y - target.Y.mean(axis=0)
    return float(np.trace(Y.T @ np.linalg.inv(K + np.eye(len(K)) / C) @ Y))


def ball_center(p: int, norm: int, center: float = 1.0) -> np.ndarray:
    return np.full(p, center / p ** (1 / norm))


def require_stationary(
    solution: Solution,
    grams,
    target: Target,
    mu_0: np.ndarray,
    norm: int,
    offset: float = 0.0,
):
    """Require weights on the ball's boundary, and a certificate of the gap over it: the gradient's dual norm."""
    mu, certificate = solution.weights, solution.certificate
    assert certificate.converged
    assert certificate.residual <= GAP
    assert (mu >= mu_0).all()
    assert np.linalg.norm(mu - mu_0, norm) == pytest.approx(1.0, rel=1e-12)
    objective = nkrr.PolynomialRidge(grams, target, 1.0, solution.degree, offset)
    at = objective.at(mu)
    g = at.gradient()
    gap = g @ (mu - mu_0) + np.linalg.norm(g, np.inf if norm == 1 else 2)
    assert certificate.residual == pytest.approx(gap / at.value, abs=1e-9)


# Derivatives ---------------------------------------------------------------------------------------------------------


@on_problems("degree", product(DEGREES + DEGREES))
def test_the_gradient_is_that_of_finite_differences(degree, grams, target):
    rng = np.random.default_rng(degree)
    for of in (target, Target.of(rng.normal(size=(grams.n_rows, 3)))):
        mu = rng.uniform(0.2, 1, grams.n_kernels)
        objective, with_offset = (
            nkrr.PolynomialRidge(grams, of, 1.0, degree, offset)
            for offset in (0.0, 0.6)
        )
        assert objective.at(mu).value == pytest.approx(
            value(grams, of, mu, degree), rel=1e-10
        )
        by_definition = partial(value, grams, of, degree=degree)
        for one, F in (
            (objective, by_definition),
            (with_offset, lambda nu, one=with_offset: one.at(nu).value),
        ):
            g = one.at(mu).gradient()
            # Central differences: h^2 and rounding / h.
            expected = [
                (F(mu + step) - F(mu - step)) / 2e-5 for step in 1e-5 * np.eye(len(mu))
            ]
            np.testing.assert_allclose(
                g, expected, rtol=1e-6, atol=1e-7 * np.abs(g).max()
            )


# Optimality ----------------------------------------------------------------------------------------------------------


@on_problems("degree norm center", product(DEGREES, [1, 2], [0.0, 1.0]))
def test_nothing_in_the_ball_is_better_and_the_certificate_says_so(
    degree, norm, center, grams, target
):
    p = grams.n_kernels
    solution = NKRR(degree=degree, norm=norm, center=center).solve(grams, target)
    mu, mu_0, certificate = (
        solution.weights,
        ball_center(p, norm, center),
        solution.certificate,
    )
    F = value(grams, target, mu, degree)
    assert (solution.degree, certificate.measure) == (degree, "stationarity gap")
    assert certificate.objectives[-1] == pytest.approx(F, rel=1e-9)
    assert len(certificate.objectives) <= certificate.iterations
    require_stationary(solution, grams, target, mu_0, norm)
    # Points of the ball that are not negative: those below the center too.
    steps = np.random.default_rng(degree).normal(size=(20, p))
    others = (
        mu_0
        + steps
        * (np.linspace(0.2, 1, 20) / np.linalg.norm(steps, norm, axis=1))[:, None]
    )
    for other in (ball_center(p, norm, center + 1), *np.maximum(others, 0)):
        assert value(grams, target, other, degree) * (1 + GAP) >= F


@on_problems("center C", product([0.0, 1.0], [0.1, 10.0]))
def test_degree_one_is_ridge_regression_with_weights_in_a_ball(
    center, C, grams, target
):
    p = grams.n_kernels
    mu_0, Y = ball_center(p, 2, center), target.Y - target.Y.mean(axis=0)
    mu = mu_0 + ball_center(p, 2)
    for _ in range(400):
        alpha = np.linalg.solve(
            np.tensordot(mu, grams.grams, axes=1) + np.eye(len(Y)) / C, Y
        )
        v = np.array([np.trace(alpha.T @ K @ alpha) for K in grams.grams])
        mu = (mu + mu_0 + v / np.linalg.norm(v)) / 2
    learners = (
        NKRR(degree=1, center=center, tol=tolerance) for tolerance in (1e-12, 0.1)
    )
    exact, rough = (learner.solve(grams, target, C=C) for learner in learners)
    # A gap of 1e-12 is a distance of its root, times that of the objective over the
    # gradient's norm.
    np.testing.assert_allclose(exact.weights, mu, rtol=0, atol=1e-4)
    lowest = value(grams, target, mu, 1, C)
    assert value(grams, target, exact.weights, 1, C) == pytest.approx(lowest, rel=1e-11)
    # The objective is convex: less the gap it bounds the minimum.
    assert rough.certificate.objectives[-1] * (
        1 - rough.certificate.residual
    ) <= lowest * (1 + 1e-12)


@pytest.mark.parametrize(
    ("degree", "center"), [(1, 1.0), (2, 0.0), (2, (0.1, 0.5, 0.0, 0.3, 0.0))]
)
def test_steps_as_printed_end_where_spectral_ones_do(degree, center):
    grams, target = PROBLEMS["features"]
    learners = (
        NKRR(degree, center=center, algorithm=of) for of in ("spectral", "as-printed")
    )
    spectral, printed = (learner.solve(grams, target) for learner in learners)
    assert printed.certificate.residual <= GAP
    assert printed.certificate.objectives[-1] == pytest.approx(
        spectral.certificate.objectives[-1], rel=10 * GAP
    )
    assert (np.diff(printed.certificate.objectives) <= 0).all()
    assert printed.certificate.iterations >= spectral.certificate.iterations


def test_sonar_takes_few_iterations(shared_data):
    data = pd.read_parquet(shared_data / "sonar.parquet")
    Z = data.drop(columns="target").to_numpy(float)
    Z = Z - Z.mean(axis=0)
    grams, target = (
        FeatureGrams(Z / np.sqrt((Z**2).mean())),
        Target.of(data["target"].to_numpy()),
    )
    for degree in (1, 2, 4):
        certificate = NKRR(degree=degree).solve(grams, target).certificate
        assert certificate.residual <= GAP
        # Of the paper, to an accuracy that it does not give
        assert certificate.iterations <= 25
        assert np.all(np.diff(certificate.objectives) < 0)


@on_problems("", [()] * 3)
def test_more_starts_are_never_worse_and_any_start_that_is_not_negative_is_used(
    grams, target
):
    values = [
        NKRR(norm=1, starts=starts).solve(grams, target).certificate.objectives[-1]
        for starts in (1, 2, 6)
    ]
    assert values[1] <= values[0] * (1 + 1e-15)
    assert values[2] <= values[1] * (1 + 1e-15)
    one, two = (NKRR(starts=5, random_state=4).solve(grams, target) for _ in range(2))
    np.testing.assert_array_equal(one.weights, two.weights)
    again = NKRR(starts=1).solve(grams, target, start=one.weights)
    assert again.certificate.iterations == 1
    np.testing.assert_allclose(again.weights, one.weights, rtol=1e-14)
    p = grams.n_kernels
    starts = (None, np.zeros(p), np.full(p, 9.0), np.eye(p)[3])
    ends = [
        NKRR(starts=1).solve(grams, target, start=start).certificate.objectives[-1]
        for start in starts
    ]
    assert ends == pytest.approx([ends[0]] * 4, rel=2 * GAP)


# Invariances ---------------------------------------------------------------------------------------------------------


def test_equal_kernels_get_equal_weights():
    for degree in (1, 2, 3):
        mu = (
            NKRR(degree=degree, starts=1)
            .solve(stacked(np.hstack([Z, Z[:, [0, 2]]])), labels(Z))
            .weights
        )
        np.testing.assert_allclose(mu[[5, 6]], mu[[0, 2]], rtol=1e-12)


@on_problems("degree norm", DEGREES_AND_NORMS)
def test_weights_follow_reordered_kernels_and_do_not_depend_on_the_units_of_the_target(
    degree, norm, grams, target
):
    learner, order = (
        NKRR(norm=norm, degree=degree, starts=2),
        np.random.default_rng(0).permutation(grams.n_kernels),
    )
    weights = learner.solve(grams, target).weights
    reordered = learner.solve(StackedGrams(grams.grams[order]), target).weights
    # The same steps, but for rounding, which the steps along a curved valley magnify.
    np.testing.assert_allclose(reordered, weights[order], rtol=0, atol=1e-6)
    for scale in (1e-6, 1e6):
        scaled = learner.solve(grams, Target.of(scale * target.Y + 7.0 * scale)).weights
        np.testing.assert_allclose(scaled, weights, rtol=0, atol=1e-8)


@pytest.mark.parametrize(("degree", "norm"), DEGREES_AND_NORMS)
def test_matrices_tiles_and_features_give_the_same(degree, norm):
    X = np.random.default_rng(5).normal(size=(45, 6)) + 1.0
    scales = ((X - X.mean(axis=0)) ** 2).mean(axis=0)
    target, learner = labels(X), NKRR(degree=degree, norm=norm)
    tiles = TiledGrams(FeatureFamily(6), X, np.zeros(6), scales)
    rank_one = gram_operator(FeatureFamily(6), X, shift=np.zeros(6), scales=scales)
    assert isinstance(rank_one, FeatureGrams)
    expected = learner.solve(
        stacked((X - X.mean(axis=0)) / np.sqrt(scales)), target
    ).weights
    for grams in (tiles, rank_one):
        found = learner.solve(grams, target).weights
        # Rounding, magnified by the steps
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


# Few monomials -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 0.7])
@pytest.mark.parametrize("degree", DEGREES)
def test_monomials_give_the_objective_and_the_gradient_of_the_power(degree, offset):
    Z = features(m=30, p=4)
    operators = [
        FeatureGrams(rows)
        for rows in (Z, sparse.csr_matrix(Z + np.array([1.0, 0.0, -2.0, 0.5])))
    ]
    weights = (
        np.array([0.3, 1.2, 0.8, 0.1]),
        np.array([0.0, 2.0, 0.0, 0.5]),
        np.zeros(4),
    )
    # Sparse ones are centered on the way
    for q, mu, grams in product((1, 3), weights, operators):
        target = Target.of(np.random.default_rng(q).normal(size=(30, q)))
        power = nkrr.PolynomialRidge(stacked(Z), target, 5.0, degree, offset)
        expected = power.at(mu)
        found = monomial_ridge(grams, power.Y, power.ridge, degree, offset)(mu)
        # Rounding, times the condition of the power: at most some 1e4.
        assert found.value == pytest.approx(expected.value, rel=1e-11)
        g = expected.gradient()
        np.testing.assert_allclose(
            found.gradient(), g, rtol=1e-9, atol=1e-10 * (np.abs(g).max() + 1)
        )


@pytest.mark.parametrize("degree", DEGREES)
def test_monomials_are_as_many_as_they_are_counted_and_make_up_the_power(degree):
    Z, mu = features(m=30, p=3), np.array([0.3, 1.2, 0.8])
    for offset in (0.0, 0.7):
        monomials = Monomials(FeatureGrams(Z), degree, offset)
        counted = comb(3 + degree - (offset == 0), degree, exact=True)
        assert monomials.Phi.shape[1] == len(monomials.exponents) == counted
        K = (offset + (Z * mu) @ Z.T) ** degree
        found = (monomials.Phi * monomials.scales(mu)) @ monomials.Phi.T
        np.testing.assert_allclose(found, K, rtol=0, atol=1e-13 * K.max())  # rounding
        assert monomials.largest_entry(mu) == pytest.approx(np.abs(K).max(), rel=1e-12)


@pytest.mark.parametrize(("degree", "norm"), DEGREES_AND_NORMS)
def test_few_monomials_end_at_the_same_weights_with_the_same_certificate(degree, norm):
    Z = features(m=160, p=4, seed=7)
    target, learner = labels(Z, 7), NKRR(degree=degree, norm=norm, offset=0.5)
    assert has_few_monomials(FeatureGrams(Z), degree, 0.5)
    found, expected = (
        learner.solve(FeatureGrams(Z), target),
        learner.solve(stacked(Z), target),
    )
    # Rounding, magnified by the steps
    np.testing.assert_allclose(found.weights, expected.weights, rtol=0, atol=1e-6)
    assert found.certificate.residual == pytest.approx(
        expected.certificate.residual, abs=1e-8
    )
    assert found.certificate.objectives[-1] == pytest.approx(
        expected.certificate.objectives[-1], rel=1e-9
    )


def test_few_monomials_take_a_small_ridge_and_refuse_one_below_their_rounding():
    Z = features(m=60, p=4)
    # The products of independent monomials are definite by themselves, those of a
    # feature that is there twice are not.
    assert NKRR().solve(FeatureGrams(Z), labels(Z), C=1e14).certificate.converged
    with pytest.raises(ValueError, match="not positive definite up to rounding"):
        NKRR().solve(FeatureGrams(Z[:, [0, 1, 2, 2]]), labels(Z), C=1e17)


@pytest.mark.parametrize(
    ("centering", "offset"),
    [("center", 0.0), ("center", 0.7), ("target", 0.0), ("none", 0.7)],
)
def test_the_regression_on_a_power_of_few_monomials_is_that_on_its_matrix(
    centering: str, offset: float
):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(90, 3)) + 0.4
    y = X[:, 0] * X[:, 1] + 0.1 * rng.normal(size=90)
    kernel = learn_kernel(
        X,
        y,
        learner=NKRR(degree=3, offset=offset),
        family=FeatureFamily(3),
        centering=centering,
    )
    grid, target, K = (
        [0.1, 1.0, 30.0],
        Target.of(y[kernel.rows], "regression"),
        kernel.gram(),
    )
    on = TrainingSet.of(kernel, None, kernel.rows)
    few = KRR().fit(on, target, grid)
    whole = ridge_path(K, target, grid, None, kernel.centering)
    new = rng.normal(size=(7, 3))
    np.testing.assert_allclose(
        few.predict(new),
        whole.predict_from(kernel.cross_gram(new)),
        rtol=1e-6,
        atol=1e-8,
    )
    # A kernel that was learned for no regularization in particular is scaled to a mean
    # diagonal of one.
    free = TrainingSet.of(replace(kernel, C=None), None, kernel.rows)
    expected = ridge_path(
        K / np.trace(K) * 90, target, grid, None, kernel.centering
    ).dual
    np.testing.assert_allclose(
        KRR().fit(free, target, grid).dual * np.trace(K) / 90,
        expected,
        rtol=1e-6,
        atol=1e-8,
    )
    w, factor = rng.uniform(0.5, 2.0, 90), few_monomials(on)
    one = ridge_path(factor, target, grid, w, kernel.centering, factor=True)
    other = ridge_path(factor @ factor.T, target, grid, w, kernel.centering)
    np.testing.assert_allclose(one.dual, other.dual, rtol=1e-6, atol=1e-8)


# Thousands of kernels ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("center", [0.0, 1.0])
def test_norm_one_on_many_kernels_reaches_its_tolerance(center):
    rng = np.random.default_rng(11)
    counts = rng.poisson(0.15, size=(50, 300)).astype(float)
    counts[0] += 1  # no feature is constant
    y = (
        counts[:, :6].sum(axis=1)
        - counts[:, 6:12].sum(axis=1)
        + 0.3 * rng.normal(size=50)
    )
    grams, target = (
        FeatureGrams(sparse.csr_matrix(counts / np.sqrt(counts.var(axis=0).mean()))),
        Target.of(y),
    )
    mu_0 = ball_center(300, 1, center)
    for degree in (1, 2):
        solution = NKRR(
            norm=1, center=center, degree=degree, offset=1.0, starts=1
        ).solve(grams, target)
        require_stationary(solution, grams, target, mu_0, 1, 1.0)


# Nothing to learn, and refusals --------------------------------------------------------------------------------------


def test_radius_zero_is_the_uniform_polynomial():
    for norm, expected in ((1, 2.0 / 5), (2, 2.0 / np.sqrt(5))):
        solution = NKRR(norm=norm, center=2.0, radius=0.0, degree=3, offset=0.5).solve(
            *PROBLEMS["features"]
        )
        np.testing.assert_array_equal(solution.weights, np.full(5, expected))
        assert (solution.certificate, solution.degree, solution.offset) == (
            None,
            3,
            0.5,
        )


def test_the_square_of_two_centered_rows_is_constant_and_aligns_with_nothing():
    kernel = learn_kernel(
        features(m=2, p=3),
        np.array([0.0, 1.0]),
        learner="nkrr",
        family=FeatureFamily(range(3)),
        task="regression",
    )
    assert kernel.alignment == 0.0  # without a warning, which would be an error


def test_too_few_iterations_warn_and_name_the_gap():
    with pytest.warns(
        ConvergenceWarning,
        match="nkrr stopped after 2 iterations at a relative stationarity gap of",
    ):
        solution = NKRR(norm=1, starts=1, max_iter=2).solve(*PROBLEMS["more"])
    assert not solution.certificate.converged
    # Without a warning, which would be an error
    NKRR(norm=1, starts=1).solve(*PROBLEMS["more"])


def test_bad_parameters_and_constant_targets_are_refused():
    grams, target = PROBLEMS["features"]
    table = [
        ({"degree": 0}, {}, "degree must be a whole number from 1 to 4, got 0"),
        ({"degree": 5}, {}, "degree must be a whole number from 1 to 4, got 5"),
        ({"degree": 1.5}, {}, "degree must be a whole number"),
        ({"norm": 3}, {}, "norm must be 1 or 2, got 3"),
        ({"radius": -1.0}, {}, "radius must be zero or positive"),
        ({"radius": np.inf}, {}, "radius must be zero or positive and finite"),
        ({"radius": 0.0, "center": 0.0}, {}, "radius and center must not both be zero"),
        ({"starts": 0}, {}, "starts must be a whole number of at least 1, got 0"),
        ({}, {"C": np.inf}, "C must be a positive, finite number"),
        ({}, {"C": 1e17}, "not positive definite up to rounding"),
    ]
    given = {"grams": grams, "target": target}
    for params, others, said in table:
        learner = NKRR(**params)
        require_refusals(
            [
                (
                    partial(learner.solve, **(given | others))
                    if others
                    else learner.require,
                    said,
                )
            ]
        )
