"""Ridge regression on rank-one kernels with weights in balls: the same as on matrices, in few factors."""

import numpy as np
import pytest
from scipy import sparse

from learnkernels.kernels.engine.operators import FeatureGrams, StackedGrams
from learnkernels.kernels.learners import L2KRR, LpKRR
from learnkernels.kernels.solvers.rank_one.ridge import FeatureRidge
from learnkernels.kernels.solvers.ridge import RidgeProblem
from learnkernels.kernels.targets import Target


def sparse_counts(m: int, p: int, seed: int = 0) -> np.ndarray:
    """Return counts of which no column is constant, in units in which the mean diagonal is one."""
    Z = np.random.default_rng(seed).poisson(0.3, size=(m, p)).astype(float)
    Z[0] += 1
    return Z / np.sqrt(((Z - Z.mean(axis=0)) ** 2).mean())


@pytest.mark.parametrize(("m", "p", "regularisation"), [(60, 8, 30.0), (60, 40, 0.1), (30, 90, 30.0)])
def test_a_ridge_regression_on_features_is_that_on_matrices(m, p, regularisation):
    Z = sparse_counts(m, p)
    rng = np.random.default_rng(1)
    y = Z[:, 0] - Z[:, 1] + rng.normal(size=len(Z))
    target, mu = Target.of(y), rng.uniform(0, 1, p)
    mu[1] = 0.0
    centered = Z - Z.mean(axis=0)
    expected = RidgeProblem(StackedGrams(np.einsum("ik,jk->kij", centered, centered)), target, regularisation).at(mu)
    for rows in (centered, sparse.csr_matrix(Z)):
        found = FeatureRidge(FeatureGrams(rows), y - y.mean(), 1 / regularisation).at(mu)
        # Rounding, times a condition of at most 1e5.
        assert found.objective == pytest.approx(expected.objective, rel=1e-10)
        assert found.constant == pytest.approx(expected.constant, rel=1e-10)
        np.testing.assert_allclose(found.forms, expected.forms, rtol=1e-7, atol=1e-9 * expected.forms.max())
        np.testing.assert_allclose(found.dual, expected.dual, rtol=0, atol=1e-9 * np.abs(expected.dual).max())
        kernels = np.array([0, 3, 5])
        np.testing.assert_allclose(found.hessian(kernels), expected.hessian(kernels), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(("m", "p", "power"), [(60, 8, 0.5), (60, 8, 3.0), (60, 40, 1.0), (30, 90, 0.5), (30, 90, 3.0)])
def test_newtons_step_solves_its_system(m, p, power):
    Z = sparse_counts(m, p)
    rng = np.random.default_rng(2)
    y, mu = rng.normal(size=m), rng.uniform(0.1, 1, p)
    inner = FeatureRidge(FeatureGrams(sparse.csr_matrix(Z)), y - y.mean(), 0.3).at(mu)
    v, w, g = inner.forms, rng.uniform(0, 1, p), rng.normal(size=p)
    t = v**power / np.linalg.norm(v**power, 1 + 1 / power)
    N = float(np.linalg.norm(v, 1 + power))
    x = inner.curvature.newton(w, t, N, power, g)
    system = np.eye(len(v)) + power * (np.diag(w / v) - np.outer(w, t) / N) @ inner.hessian(np.arange(len(v)))
    # Backward error: that of a product with the matrix.
    np.testing.assert_allclose(system @ x, g, rtol=0, atol=1e-9 * np.abs(system).sum(axis=1).max() * np.abs(x).max())


@pytest.mark.parametrize(
    ("m", "p", "center", "regularisation"),
    [(60, 8, 0.0, 10.0), (60, 40, 1.0, 0.1), (30, 90, 0.0, 0.1), (30, 90, 1.0, 10.0)],
)
def test_l2_krr_on_features_has_the_weights_of_matrices(m, p, center, regularisation):
    Z = sparse_counts(m, p, seed=3)
    target = Target.of(Z[:, :4].sum(axis=1) + np.random.default_rng(3).normal(size=len(Z)))
    centered = Z - Z.mean(axis=0)
    learner = L2KRR(center=center, tolerance=1e-11)
    expected = learner.solve(StackedGrams(np.einsum("ik,jk->kij", centered, centered)), target, regularisation)
    for rows in (centered, sparse.csr_matrix(Z)):
        found = learner.solve(FeatureGrams(rows), target, regularisation)
        assert found.certificate.converged
        # A gap of 1e-11 is a distance of its root.
        np.testing.assert_allclose(found.weights, expected.weights, rtol=0, atol=1e-5)
        assert found.certificate.objectives[-1] == pytest.approx(expected.certificate.objectives[-1], rel=1e-10)


@pytest.mark.parametrize("norm", [1.2, 1.5, 2.0, 4.0, np.inf])
def test_lp_krr_on_features_reaches_its_tolerance_in_few_factors(norm):
    for p, regularisation in ((40, 10.0), (300, 0.1), (300, 10.0)):
        Z = sparse_counts(80, p, seed=4)
        y = Z[:, :4].sum(axis=1) + np.random.default_rng(4).normal(size=80)
        grams = FeatureGrams(sparse.csr_matrix(Z))
        certificate = LpKRR(norm=norm).solve(grams, Target.of(y), regularisation).certificate
        assert certificate.converged
        assert certificate.residual <= 1e-6
        assert certificate.iterations <= 40
