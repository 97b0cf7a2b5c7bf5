"""Machines and their weights on features and a diagonal, against the matrices that these stand for."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from learnkernels import (
    ConstantFamily,
    FamilyUnion,
    FeatureFamily,
    GaussianFamily,
    LinearFamily,
    gram_moments,
    learn_kernel,
)
from learnkernels.kernels.centering import Centering
from learnkernels.kernels.engine.operators import StackedGrams, TiledGrams, gram_operator
from learnkernels.kernels.families.base import move
from learnkernels.kernels.learners.lp_svm import L1SVM, LpSVM
from learnkernels.kernels.solvers import low_rank
from learnkernels.kernels.solvers.interior_point import machine_by_interior_point
from learnkernels.kernels.solvers.low_rank import LandmarkGrams, LowRankGram, among, combination, signed_solver, solver
from learnkernels.kernels.solvers.svm import SupportVectorProblem, machine_problem
from learnkernels.kernels.targets import Target

FAMILY = GaussianFamily([2.0**g for g in range(-6, 2)])
P = FAMILY.n_kernels


def problem(m: int = 220, classes: int = 2):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, 4))
    f = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=m)
    return X, np.digitize(f, np.linspace(-1, 1, classes + 1)[1:-1])


def tiled(X, y, centering=Centering.CENTER, family=FAMILY) -> tuple[TiledGrams, Target]:
    moments = gram_moments(family, X, Target.of(y).Y)
    center = centering.subtracts
    rows = move(X[moments.rows], moments.origin) if center else X[moments.rows]
    scales = moments.traces() / len(y) if center else np.ones(family.n_kernels)
    shift = moments.shift if center else np.zeros(family.n_kernels)
    grams = gram_operator(family, rows, shift=shift, scales=scales, in_memory=0, centering=centering)
    assert isinstance(grams, TiledGrams)
    return grams, Target.of(y).take(moments.rows)


def matrices_of(grams: LandmarkGrams) -> np.ndarray:
    """Each base kernel as an explicit matrix, from its definition."""
    ends = [*grams.starts[1:], grams.features.shape[1]]
    each = [grams.features[:, a:b] for a, b in zip(grams.starts, ends, strict=True)]
    return np.stack([F @ F.T + np.diag(own) for F, own in zip(each, grams.own, strict=True)])


@pytest.mark.parametrize("centering", Centering)
def test_products_are_those_of_the_matrices(centering):
    landmarks = LandmarkGrams.of(tiled(*problem(), centering)[0], 25)
    K, rng = matrices_of(landmarks), np.random.default_rng(1)
    mu, alpha, W = rng.random(P), rng.normal(size=(220, 3)), rng.normal(size=(220, 220))
    W = W + W.T
    close = {"rtol": 1e-11, "atol": 1e-11}  # rounding of sums over some hundred rows
    np.testing.assert_allclose(landmarks.combine(mu), np.tensordot(mu, K, 1), **close)
    np.testing.assert_allclose(landmarks.products(alpha), K @ alpha, **close)
    np.testing.assert_allclose(landmarks.quadratic_forms(alpha), np.einsum("iq,kij,jq->k", alpha, K, alpha), **close)
    np.testing.assert_allclose(landmarks.inner_products(W), np.einsum("kij,ij->k", K, W), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(landmarks.matvec(mu, alpha), np.tensordot(mu, K, 1) @ alpha, **close)
    np.testing.assert_allclose(landmarks.frobenius(), np.einsum("kij,lij->kl", K, K), **close)
    assert (landmarks.n_rows, landmarks.n_kernels) == (220, P)


def test_rows_keep_their_products_with_themselves_and_landmarks_theirs_with_each_other():
    family = FamilyUnion([FAMILY, LinearFamily(), ConstantFamily()])
    grams, _ = tiled(*problem(), Centering.NONE, family)
    K, approximate = np.stack([grams.combine(e) for e in np.eye(P + 2)]), LandmarkGrams.of(grams, 40)
    some = np.sort(np.random.default_rng(0).choice(220, 40, replace=False))
    ours = matrices_of(approximate)
    # Directions below 1e-5 of the largest, some 40, are left to the diagonal.
    np.testing.assert_allclose(np.einsum("kii->ki", ours), np.einsum("kii->ki", K), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(ours[:, some][:, :, some], K[:, some][:, :, some], rtol=0, atol=1e-3 * K.max())
    for exact, low, own in zip(K, ours, approximate.own, strict=True):  # the features alone are never more than it
        assert np.linalg.eigvalsh(exact - (low - np.diag(own))).min() > -1e-8 * exact.max()


def test_centered_kernels_on_all_rows_are_the_kernels_and_few_rows_are_learned_on_all_pairs():
    grams, target = tiled(*problem(60))
    exact = np.stack([grams.combine(e) for e in np.eye(P)])
    np.testing.assert_allclose(matrices_of(LandmarkGrams.of(grams, 60)), exact, rtol=0, atol=1e-3)
    assert machine_problem(grams, target, 1.0).grams is grams


@pytest.mark.parametrize("rows", [np.arange(220), np.arange(3, 219, 2)], ids=["all rows", "some"])
def test_a_system_is_solved_as_with_the_matrix(rows):
    grams, mu = LandmarkGrams.of(tiled(*problem())[0], 12), np.random.default_rng(1).random(P)
    gram, rng = combination(grams, mu), np.random.default_rng(2)
    part = among(gram, rows)
    assert isinstance(gram, LowRankGram)
    assert isinstance(part, LowRankGram)
    K = grams.combine(mu)[np.ix_(rows, rows)]
    y, B = np.where(rng.random(len(rows)) < 0.5, -1.0, 1.0), rng.normal(size=(len(rows), 2))
    d = 10.0 ** rng.uniform(-6, 6, len(rows))  # as near the end of an interior point's path
    exact = np.linalg.solve(3 * np.outer(y, y) * K + np.diag(d), B)
    np.testing.assert_allclose(signed_solver(part, 3.0, y, d)(B), exact, rtol=1e-6, atol=1e-9 * np.abs(exact).max())
    np.testing.assert_allclose(signed_solver(part, 3.0, y, d)(B[:, 0]), exact[:, 0], rtol=1e-6, atol=1e-9)
    assert part.trace() == pytest.approx(np.trace(K), rel=1e-12)
    np.testing.assert_allclose(part @ B, K @ B, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(K @ solver(part, 1e-12)(B), B, rtol=0, atol=1e-6)
    few = np.arange(1, 9)
    entries = among(part, few)
    assert isinstance(entries, np.ndarray)
    np.testing.assert_allclose(entries, K[np.ix_(few, few)], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("C", "classes", "centering"),
    [(0.05, 2, Centering.CENTER), (1.0, 3, Centering.NONE), (50.0, 2, Centering.NONE), (50.0, 3, Centering.CENTER)],
)
def test_machines_are_those_of_the_matrices(C, classes, centering):
    grams, target = tiled(*problem(160, classes), centering)
    landmarks = LandmarkGrams.of(grams, 12)
    stacked = StackedGrams(matrices_of(landmarks), centering)
    ours, theirs = SupportVectorProblem(landmarks, target, C), SupportVectorProblem(stacked, target, C)
    for mu in np.full(P, 0.3), np.array([0, 0.9, 0, 0.1, 0, 0, 0.4, 0]), np.array([0, 0.8, 0, 0.1, 0, 0, 0.5, 0]):
        one, other = ours.at(mu), theirs.at(mu)
        assert one.objective == pytest.approx(other.objective, rel=1e-9)
        np.testing.assert_allclose(one.forms, other.forms, rtol=1e-6)
        H = other.hessian(np.arange(P))
        np.testing.assert_allclose(one.hessian(np.arange(P)), H, rtol=0, atol=1e-5 * np.abs(H).max())


def test_interior_points_alone_find_the_machine():
    grams, target = tiled(*problem())
    landmarks, y = LandmarkGrams.of(grams, 12), np.where(target.values == 1, 1.0, -1.0)
    matrices = combination(landmarks, np.ones(P)), landmarks.combine(np.ones(P))
    found, exact = (machine_by_interior_point(of, y, 5.0, 1e-10) for of in matrices)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-6)


@pytest.fixture
def with_and_without_matrices(request):
    """Return what a learner finds with matrices of all pairs of rows, and without."""

    def learned(*of, **options):
        exact = learn_kernel(*of, task="classification", regularisation=1.0, **options)
        request.getfixturevalue("no_matrices")
        return exact, learn_kernel(*of, task="classification", regularisation=1.0, **options)

    return learned


@pytest.mark.parametrize(("learner", "classes"), [(L1SVM(), 2), (L1SVM(), 3), (LpSVM(), 3), (LpSVM(1.5), 2)], ids=str)
def test_weights_on_landmarks_are_near_those_without(learner, classes, with_and_without_matrices):
    exact, kernel = with_and_without_matrices(learner, FAMILY, *problem(150, classes))
    assert kernel.certificate.measure == "duality gap on landmarks"
    assert kernel.certificate.residual <= 1e-6
    # 150 landmarks, all rows: what is left out are directions below 1e-5 of the largest.
    cosine = exact.weights @ kernel.weights / (np.linalg.norm(exact.weights) * np.linalg.norm(kernel.weights))
    assert cosine > 0.999


@pytest.mark.parametrize(("seed", "C"), [(0, 1e3), (0, 1e6), (1, 1e4), (8, 1e4)])
def test_weights_of_kernels_of_low_rank_are_exact_whatever_C(seed, C):
    """Rows between the bounds have next to no diagonal of their own there, and no digits are left of a difference."""
    X = np.random.default_rng(seed).normal(size=(300, 3))
    family = FamilyUnion([LinearFamily()] * 3, [[0], [1], [2]])
    grams, target = tiled(X, (X[:, 0] + X[:, 1] > 0).astype(int), family=family)
    landmarks = LandmarkGrams.of(grams)
    ours = L1SVM().solve(landmarks, target, C)
    assert ours.certificate.converged
    theirs = L1SVM().solve(StackedGrams(matrices_of(landmarks), grams.centering), target, C)
    np.testing.assert_allclose(ours.weights, theirs.weights, rtol=0, atol=1e-6)  # as far as both gaps tell


@pytest.mark.parametrize(("place", "seed"), [(0, 0), (1, 1), (2, 2), (1, 3)])
def test_a_base_kernel_of_what_no_landmark_has_is_one_of_no_features(place, seed):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(300, 3)), np.zeros(300)])
    X[rng.choice(300, 2, replace=False), 3] = 1
    gammas, columns = [0.5, 2.0], [[0, 1], [2]]
    gammas.insert(place, 1.0)
    columns.insert(place, [3])
    family = FamilyUnion([GaussianFamily([gamma]) for gamma in gammas], columns)
    grams, target = tiled(X, X[:, 0] + 0.5 * rng.normal(size=300) > 0, family=family)
    landmarks = LandmarkGrams.of(grams, 30)
    ours = L1SVM().solve(landmarks, target, 1.0)
    stacked = StackedGrams(matrices_of(landmarks), grams.centering)
    np.testing.assert_allclose(ours.weights, L1SVM().solve(stacked, target, 1.0).weights, rtol=0, atol=1e-6)
    np.testing.assert_allclose(landmarks.frobenius(), stacked.frobenius(), rtol=1e-11, atol=1e-11)
    unit = np.eye(3)[place]
    B = rng.normal(size=(300, 2))
    np.testing.assert_allclose(stacked.combine(unit) @ B, combination(landmarks, unit) @ B, rtol=1e-11, atol=1e-11)
    assert np.isfinite(solver(combination(landmarks, unit), 1e-12)(B)).all()


@pytest.mark.parametrize(
    ("learner", "form", "centering"),
    [
        *((L1SVM(), np.asarray, "none"), (L1SVM(), sparse.csr_array, "center")),
        *((LpSVM(), np.asarray, "center"), (LpSVM(), sparse.csr_array, "none")),
    ],
)
def test_rank_one_base_kernels_are_their_own_features(learner, form, centering, with_and_without_matrices):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 6)) * (rng.random((100, 6)) < 0.6)
    y = np.digitize(X[:, 0] + X[:, 1] + 0.3 * rng.normal(size=100), [-0.5, 0.5])
    exact, kernel = with_and_without_matrices(learner, FeatureFamily(range(6)), form(X), y, centering=centering)
    assert kernel.certificate.measure == "duality gap"
    np.testing.assert_allclose(kernel.weights, exact.weights, rtol=0, atol=1e-5)


def test_features_that_take_too_much_memory_are_refused(monkeypatch, no_matrices):
    monkeypatch.setattr(low_rank, "LARGEST_FEATURES", 8 * 220 * 100)
    X, y = problem()
    with pytest.raises(ValueError, match=r"1,760 features of 8 base kernels of 220 rows .* sample of the rows"):
        learn_kernel(L1SVM(), FAMILY, X, y, task="classification", regularisation=1.0)
