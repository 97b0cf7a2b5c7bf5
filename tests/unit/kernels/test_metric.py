"""Learned metrics: leave-one-out in closed form, gradients, and the learner that is made of them."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_friedman1
from sklearn.metrics import log_loss

from learnkernels import (
    KernelLearningClassifier,
    KernelLearningRegressor,
    learn_kernel,
    load,
)
from learnkernels.kernels.centering import Centering, center_gram
from learnkernels.kernels.estimators import fit_on_kernel
from learnkernels.kernels.estimators.supervised import GAIN_OF_ALL_ROWS
from learnkernels.kernels.families import (
    FamilyUnion,
    GaussianFamily,
    LaplacianFamily,
    MetricFamily,
    NormalScoresFamily,
)
from learnkernels.kernels.families.composed import normal_scores, scores_beside
from learnkernels.kernels.learners import RFM, rfm, rfm_metrics
from learnkernels.kernels.learners.rfm import MOST_ROUNDS
from learnkernels.kernels.learners.rfm_metrics import (
    COMBINED_KERNELS,
    KINDS,
    LEAST,
    Examples,
    FeatureColumns,
    KernelChoice,
    SplitHalf,
    learned_metrics,
    median_distance,
    radial_kernel,
    spread_of,
)
from learnkernels.kernels.solvers.factor import (
    SINGLE_ROWS,
    LeaveOneOut,
    least_along,
)
from learnkernels.kernels.statistics.gram import gram_statistics
from learnkernels.kernels.targets import Target
from tests.reference import bordered
from tests.refusals import require_refusals
from tests.unit.conftest import peak_of
from tests.unit.kernels.test_serialization import reread

# Solutions of systems of some thirty rows, of condition below 1e4, twice over.
SOLVED = 1e-9

# Three rounds, each of which solves with a ridge of down to 1e-9 of the trace.
NEARLY = 1e-4


@pytest.fixture
def radial_only(monkeypatch):
    """No linear kernel is added."""
    monkeypatch.setattr(rfm, "LINEAR_SHARES", (0.0,))


def rows(m: int = 30, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and two targets that are smooth in the first two features alone."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, d))
    Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 0] * X[:, 1]])
    return X, Y + 0.1 * rng.normal(size=Y.shape)


def squares(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Squared distances of rows."""
    return ((A[:, None] - B[None]) ** 2).sum(axis=2)


def repeats(m: int, seed: int) -> np.ndarray:
    """How many times each of some rows is there."""
    return np.random.default_rng(seed).integers(1, 4, size=m)


def metrics(
    X: np.ndarray, Y: np.ndarray, kind: str, rounds: int = 3
) -> list[rfm_metrics.RfmMetric]:
    """The metrics of one kind, that to begin with first."""
    return [of.metrics[0] for of in learned_metrics(X, Y, [kind], rounds, 100)]


def whole(Z: np.ndarray):
    """The sum of the kernels of `radial_kernel` as a function of squared distances."""
    D, median = squares(Z, Z), median_distance(Z, "sqeuclidean")
    functions = [
        lambda s, g=factor / median: np.exp(-g * s) for factor in rfm_metrics.GAUSSIANS
    ]
    functions += [
        lambda s, g=factor / median**0.5: np.exp(-g * np.sqrt(s))
        for factor in rfm_metrics.LAPLACIANS
    ]
    weights = [1 / (6 * np.trace(center_gram(of(D))) / len(Z)) for of in functions]
    return lambda s: sum(
        weight * of(s) for of, weight in zip(functions, weights, strict=True)
    )


# Leave-one-out -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ridge", "weighted"), [(1e-3, False), (0.3, False), (20.0, False), (0.3, True)]
)
def test_left_out_residuals_are_those_of_regressions_without_the_row_and_its_copies(
    ridge, weighted
):
    X, Y = rows()
    K, w = (
        np.exp(-0.5 * squares(X, X)),
        repeats(30, 5) if weighted else np.ones(30, dtype=int),
    )
    given = w.astype(float) if weighted else None
    fit, copies = (
        LeaveOneOut(center_gram(K, given), Y, given).at(ridge),
        np.repeat(np.arange(30), w),
    )

    def without(row: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients, summed over copies, and intercepts of a regression without the copies of a row."""
        kept = copies[copies != row]
        alpha, intercept = bordered(K[np.ix_(kept, kept)], Y[kept], ridge)
        return np.array(
            [alpha[kept == one].sum(axis=0) for one in range(30)]
        ), intercept

    alpha, _ = without(None)
    np.testing.assert_allclose(fit.alpha, alpha, rtol=0, atol=SOLVED)
    np.testing.assert_allclose(fit.inverse @ Y, alpha, rtol=0, atol=SOLVED)
    for row in range(30):
        alpha, intercept = without(row)
        np.testing.assert_allclose(
            fit.residuals[row], Y[row] - K[row] @ alpha - intercept, rtol=0, atol=SOLVED
        )
        if not weighted:
            left = (
                fit.alpha
                - fit.inverse[:, row, None] * fit.alpha[row] / fit.inverse[row, row]
            )
            np.testing.assert_allclose(left, alpha, rtol=0, atol=SOLVED)
    assert fit.loss == pytest.approx(
        float(w @ (fit.residuals**2).sum(axis=1)), rel=1e-12
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_of_the_last_rows_is_the_sum_of_their_squared_residuals(weighted):
    X, Y = rows(60)
    w = np.arange(1.0, 61.0) % 3 + 1.0 if weighted else None
    fit = LeaveOneOut(radial_kernel(X, w)[0], Y, w).at(0.3)
    squares = np.square(fit.residuals).sum(axis=1)
    if weighted:
        squares = w * squares
    for start in (0, 30, 59):
        assert fit.loss_from(start) == pytest.approx(squares[start:].sum(), rel=1e-12)


def test_residuals_of_many_rows_use_a_factor_inverted_in_single_precision():
    X, Y = rows(SINGLE_ROWS + 1)
    fit = LeaveOneOut(radial_kernel(X)[0], Y).at(0.3)
    expected = fit.alpha / fit.inverse.diagonal()[:, None]
    # The rounding of float32 times the root of the condition number, about 60
    np.testing.assert_allclose(fit.residuals, expected, rtol=1e-5, atol=1e-6)
    # Far beyond the range of float32
    large = LeaveOneOut(1e100 * radial_kernel(X)[0], Y).at(0.3e100)
    np.testing.assert_allclose(large.residuals, fit.residuals, rtol=1e-5, atol=1e-6)


def test_residuals_of_many_rows_are_in_double_precision_if_the_ridge_is_small():
    X, Y = rows(SINGLE_ROWS + 1)
    K = np.exp(-0.5 * squares(X, X))
    fit = LeaveOneOut(K, Y, centering=Centering.NONE).at(1e-9)
    expected = fit.alpha / fit.inverse.diagonal()[:, None]
    # Both are computed from the same factor.
    np.testing.assert_allclose(fit.residuals, expected, rtol=1e-10)


def test_a_factor_that_overwrites_the_matrix_gives_the_same_regression():
    X, Y = rows(60)
    K = radial_kernel(X)[0]
    expected = LeaveOneOut(K, Y).at(0.3)
    fit = LeaveOneOut(K.copy(), Y, overwrite=True).at(0.3)
    np.testing.assert_array_equal(fit.alpha, expected.alpha)
    np.testing.assert_array_equal(fit.residuals, expected.residuals)


@pytest.mark.parametrize("weighted", [False, True])
def test_regressions_in_single_precision_are_those_in_double_precision(weighted):
    X, Y = rows(60)
    w = np.arange(1.0, 61.0) % 3 + 1.0 if weighted else None
    # Rows far from the origin lose digits unless they are centered
    X = X + 1000.0
    double = radial_kernel(X, w)
    single = radial_kernel(X, w, np.float32)
    # Three digits more than the rounding of sums of 60 values in float32
    for matrix, expected in zip(single, double, strict=True):
        assert matrix.dtype == np.float32
        np.testing.assert_allclose(matrix, expected, rtol=0, atol=1e-4)
    fits = [LeaveOneOut(K, Y, w).at(0.3) for K, _ in (single, double)]
    assert fits[0].inverse.dtype == np.float32
    np.testing.assert_allclose(fits[0].residuals, fits[1].residuals, rtol=0, atol=1e-4)
    products = [
        rfm_metrics.gradient_outer_product(X, Y, w, precision=precision)[0]
        for precision in (np.float32, np.float64)
    ]
    np.testing.assert_allclose(products[0], products[1], rtol=0, atol=1e-3)


def test_the_best_ridge_has_the_least_residuals_wherever_the_search_begins():
    X, Y = rows(60)
    path, ridges = (
        LeaveOneOut(radial_kernel(X)[0], Y),
        [2.0**exponent for exponent in range(-12, 8)],
    )
    errors = [float((path.at(ridge).residuals ** 2).sum()) for ridge in ridges]
    least = ridges[int(np.argmin(errors))]
    for near in (None, ridges[0], least, ridges[-1]):
        assert (
            path.best(ridges, near).ridge
            == path.best(ridges[::-1], near).ridge
            == least
        )
    require_refusals([(partial(path.at, 0.0), "ridge must be positive")])
    singular = LeaveOneOut(
        center_gram(np.outer(Y[:, 0], Y[:, 0])), Y, centering=Centering.NONE
    )
    # Of the others rounding leaves no factor
    assert singular.best([1e-30, 1.0, 1e-30]).ridge == 1.0
    require_refusals(
        [
            (
                partial(singular.at, 1e-30),
                "the kernel plus a ridge of 1.0e-30 is not positive definite",
            )
        ]
    )


@pytest.mark.parametrize("n", [1, 2, 5, 31])
def test_a_search_along_a_grid_finds_the_least_value_of_a_valley(n: int):
    for least in range(n):
        for start in (None, *range(n)):
            asked: list[int] = []

            def value(
                position: int, least: int = least, asked: list[int] = asked
            ) -> float:
                asked.append(position)
                return abs(position - least)

            assert least_along(value, n, start) == least
            assert len(set(asked)) == len(asked) <= n


@pytest.mark.parametrize("start", [None, *range(31)])
def test_a_search_passes_positions_without_a_value(start):
    def value(position: int) -> float:
        return np.inf if position < 12 else abs(position - 13)

    assert least_along(value, 31, start) == 13


def test_a_search_from_a_distant_start_takes_few_values():
    values = [abs(position - 150) for position in range(200)]
    calls: list[int] = []

    def value(position: int) -> float:
        calls.append(position)
        return values[position]

    assert least_along(value, 200, 3) == 150
    assert len(calls) < 30  # one step at a time takes 149 values


def test_regressions_search_from_given_ridges():
    X, Y = rows(60)
    rounds = list(learned_metrics(X, Y, ("diagonal", "full"), 2, 100))
    best = {number: rounds[number].ridges for number in (1, 2)}
    # One regression per metric of the round before
    assert [len(best[number]) for number in (1, 2)] == [
        1,
        2,
    ]
    near = {number: [4 * ridge for ridge in ridges] for number, ridges in best.items()}
    searched = list(learned_metrics(X, Y, ("diagonal", "full"), 2, 100, near=near))
    assert searched[1].ridges == best[1]
    np.testing.assert_allclose(searched[2].ridges, best[2], rtol=1e-9)


# Gradients -----------------------------------------------------------------------------------------------------------


def test_the_kernel_and_its_slopes_are_those_of_their_sum():
    X, _ = rows()
    X = np.vstack([X, X[:1]])  # equal rows: a Laplacian has no gradient there
    K, slopes = radial_kernel(X)
    D, kernel = squares(X, X), whole(X)
    np.testing.assert_allclose(K, center_gram(kernel(D)), rtol=0, atol=1e-12)
    assert np.trace(K) / len(K) == pytest.approx(1.0, rel=1e-12)
    apart, h = D > 0, 1e-6
    differences = (kernel(D + h * D) - kernel(D - h * D))[apart] / (2 * h * D[apart])
    # Rounding of values over h
    np.testing.assert_allclose(slopes[apart], differences, rtol=1e-7)
    assert not np.isnan(slopes).any()


def test_gradients_are_those_of_regressions_without_the_row():
    X, Y = rows()
    K, slopes = radial_kernel(X)
    fit, kernel, h = LeaveOneOut(K, Y).at(0.3), whole(X), 1e-5
    found = list(rfm_metrics.left_out_gradients(X, slopes, fit))
    for row in (0, 7, 29):
        kept = X[np.arange(len(X)) != row]
        alpha, _ = bordered(kernel(squares(kept, kept)), np.delete(Y, row, axis=0), 0.3)
        for k, unit in enumerate(np.eye(3)):
            apart = squares(X[row] + h * np.array([unit, -unit]), kept)
            up, down = kernel(apart) @ alpha
            np.testing.assert_allclose(
                [of[row, k] for of in found], (up - down) / (2 * h), rtol=0, atol=1e-7
            )


def test_outer_products_know_rotations_and_no_unit_of_weights_and_name_what_the_target_depends_on():
    X, Y = rows(200, 4)
    M, ridge = rfm_metrics.gradient_outer_product(X, Y)
    K = radial_kernel(X)[0]
    assert ridge == LeaveOneOut(K, Y).best(rfm_metrics.ridges_of(K)).ridge
    assert np.trace(M) == pytest.approx(1.0, rel=1e-12)
    assert np.linalg.eigvalsh(M).min() >= -1e-12
    assert np.diag(M)[:2].min() > 5 * np.diag(M)[2:].max()
    Q, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))
    np.testing.assert_allclose(
        rfm_metrics.gradient_outer_product(X @ Q, Y)[0], Q.T @ M @ Q, rtol=0, atol=1e-8
    )
    X, Y = rows(60)
    w = np.random.default_rng(7).uniform(0.5, 2.0, size=60)
    for one, other in ((w, 8 * w), (np.ones(60), None)):
        M, expected = (
            rfm_metrics.gradient_outer_product(X, Y, of)[0] for of in (one, other)
        )
        np.testing.assert_allclose(M, expected, rtol=0, atol=SOLVED)


def test_weights_are_copies_in_bandwidths_and_spread():
    X, _ = rows(25)
    w = repeats(len(X), 6)
    copies = np.repeat(X, w, axis=0)
    for of in ("sqeuclidean", "cityblock"):
        assert median_distance(X, of, w.astype(float)) == median_distance(copies, of)
    np.testing.assert_allclose(
        spread_of(X, w.astype(float)).map, spread_of(copies).map, rtol=1e-12
    )
    K, which = radial_kernel(X, w.astype(float))[0], np.repeat(np.arange(len(X)), w)
    # The distance of copies is the root of what rounding leaves of zero.
    np.testing.assert_allclose(
        K[np.ix_(which, which)], radial_kernel(copies)[0], rtol=0, atol=1e-6
    )


# Metrics -------------------------------------------------------------------------------------------------------------


def test_units_and_constants_do_not_matter():
    X, Y = rows(100)
    units = np.array([1e-3, 1.0, 1e5])
    with_constant = np.column_stack([X * units, np.full(len(X), 3.0)])
    for kind in ("diagonal", "full"):
        for one, other in zip(
            metrics(X, Y, kind), metrics(with_constant, Y, kind), strict=True
        ):
            assert other.lengths()[3] == 0
            np.testing.assert_allclose(
                other.lengths()[:3] * units, one.lengths(), rtol=NEARLY
            )
            mapped = [
                metric.mapped(Z) for metric, Z in ((one, X), (other, with_constant))
            ]
            distances = [((Z[:50] - Z[50:]) ** 2).sum(axis=1) for Z in mapped]
            np.testing.assert_allclose(*distances, rtol=NEARLY)


@pytest.mark.parametrize("weighted", [False, True])
def test_of_more_features_than_rows_metrics_are_those_of_matrices_of_all_features(
    weighted: bool,
):
    X, Y = rows(40, 60)
    w = np.random.default_rng(3).uniform(0.5, 2.0, size=40) if weighted else None
    Z, kinds = X * spread_of(X, w).map, ("diagonal", "full")
    maps, ridge = [np.eye(60)] * 2, None
    for of in list(learned_metrics(X, Y, kinds, 3, 100, w))[1:]:
        products = []
        for A in maps if of.number > 1 else maps[:1]:
            M, ridge = gradient_outer_product_of_all(Z @ A, Y, w, ridge)
            products.append(A @ M @ A.T)
        # Of which some hardly count
        eigenvalues, directions = np.linalg.eigh(products[-1])
        roots = np.sqrt(
            np.where(eigenvalues > LEAST * eigenvalues[-1], eigenvalues, 0.0)
        )
        maps = [
            np.diag(np.sqrt(np.diag(products[0]))),
            (directions * roots) @ directions.T,
        ]
        maps = [A * np.sqrt(60 / np.square(A).sum()) for A in maps]
        assert of.ridges[-1] == pytest.approx(ridge, rel=1e-12)
        for metric, A in zip(of.metrics, maps, strict=True):
            expected, found = Z @ A, metric.mapped(X)
            np.testing.assert_allclose(
                squares(found, found),
                squares(expected, expected),
                rtol=1e-7,
                atol=SOLVED,
            )
            np.testing.assert_allclose(
                metric.lengths(),
                np.linalg.norm(A, axis=1) * spread_of(X, w).map,
                rtol=1e-7,
            )


def gradient_outer_product_of_all(
    Z: np.ndarray, Y: np.ndarray, w: np.ndarray | None, near: float | None
):
    """The average outer product of the gradients, of as many rows and columns as there are features."""
    K, slopes = radial_kernel(Z, w)
    fit = LeaveOneOut(K, Y, w).best(rfm_metrics.ridges_of(K, w), near)
    M = sum(
        (of.T * fit.sample_weight) @ of
        for of in rfm_metrics.left_out_gradients(Z, slopes, fit)
    )
    return M / np.trace(M), fit.ridge


def test_of_many_features_and_few_rows_no_matrix_of_all_pairs_of_features_is_formed():
    X, Y = rows(40, 3000)
    *_, last = learned_metrics(X, Y, ["diagonal", "full"], 2, 100)
    diagonal, full = last.metrics
    assert diagonal.map.shape == (3000,)
    assert full.map.shape[1] <= 40
    peak = peak_of(lambda: list(learned_metrics(X, Y, ["diagonal", "full"], 2, 100)))
    assert peak < X.shape[1] ** 2 * X.itemsize / 4


def test_each_kind_goes_its_own_way_from_round_to_round_and_has_the_rank_asked_for():
    X, Y = rows(60)
    together = list(learned_metrics(X, Y, ["diagonal", "full"], 2, 100))
    assert [of.number for of in together] == [0, 1, 2]
    for position, kind in enumerate(("diagonal", "full")):
        for of, alone in zip(together[1:], metrics(X, Y, kind, 2)[1:], strict=True):
            np.testing.assert_array_equal(of.metrics[position].map, alone.map)
    _, last = learned_metrics(X, Y, ["full"], 1, 2)
    assert last.metrics[0].map.shape == (3, 2)
    assert spread_of(X).map == pytest.approx(1 / X.std(axis=0))


def test_a_metric_is_the_base_kernels_on_mapped_rows():
    X, _ = rows()
    base = FamilyUnion(
        [GaussianFamily([0.5, 1.0]), LaplacianFamily([0.7], 2), LaplacianFamily([0.7])]
    )
    weights, matrix = (
        np.array([0.5, 0.0, 2.0]),
        np.array([[1.0, 0.3], [0.0, -2.0], [0.4, 0.1]]),
    )
    for map_, Z in ((weights, X * weights), (matrix, X @ matrix)):
        family = MetricFamily(base, map_, "here")
        np.testing.assert_allclose(
            family.tile(X[:9], X), base.tile(Z[:9], Z), rtol=0, atol=1e-13
        )
        assert family.names[-1] == "laplacian(gamma=0.7) in here"
        assert reread(family) == family
    refused = [
        (
            partial(family.tile, X[:, :2], X[:, :2]),
            "the 3 features that the metric is for, got 2",
        )
    ]
    for map_ in ([0.0, 0.0], [np.nan, 1.0], [[[1.0]]]):
        refused.append(
            (
                partial(MetricFamily, base, map_),
                "map must hold one finite weight per feature",
            )
        )
    require_refusals(refused)


# The learner ---------------------------------------------------------------------------------------------------------


PARAMS = [
    {},
    {"metric": "diagonal"},
    {"rounds": 1, "normal_scores": False},
    {"rounds": 2, "weights": "alignf"},
]
PARAMS += [{"rounds": 0, "kernels": "laplacian", "weights": "alignf"}]


@pytest.mark.parametrize("params", PARAMS)
def test_what_is_found_is_an_ordinary_learned_kernel(params, radial_only):
    X, Y = rows(90)
    kernel = learn_kernel(X[:70], Y[:70, 0], learner=RFM(**params))
    assert kernel.parameters.shape == (len(kernel.weights), 3)
    assert np.linalg.norm(kernel.weights) == pytest.approx(1.0, rel=1e-12)
    assert (kernel.weights > 0).all()
    K = kernel.gram()
    assert np.linalg.eigvalsh(K).min() >= -1e-10 * np.trace(K)
    # Euclidean distances near zero
    np.testing.assert_allclose(kernel.cross_gram(X[:70]), K, rtol=0, atol=1e-6)
    statistics = gram_statistics(kernel.family, X[:70], Y[:70, :1])
    assert kernel.alignment == pytest.approx(
        statistics.alignment(kernel.weights), rel=1e-8
    )
    # Base kernels fall to one over e at a distance of sigma
    if not isinstance(kernel.family, NormalScoresFamily):
        for k, sigma in enumerate(kernel.parameters):
            tile = kernel.family.subset([k]).tile(np.diag(sigma), np.zeros((1, 3)))
            np.testing.assert_allclose(tile, np.exp(-1), rtol=1e-6)


def test_relevance_says_which_features_count_in_any_unit():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(200, 6))
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2
    relevance = learn_kernel(X, y, learner=RFM(rounds=3)).relevance
    assert relevance.sum() == pytest.approx(1.0, rel=1e-12)
    assert relevance[:2].min() > 2 * relevance[2:].max()
    units = np.array([1e3, 1e-3, 1.0, 10.0, 1.0, 1.0])
    np.testing.assert_allclose(
        learn_kernel(X * units, y, learner=RFM(rounds=3)).relevance,
        relevance,
        rtol=NEARLY,
    )
    assert (
        learn_kernel(
            X, y, learner="alignf", family=GaussianFamily([0.1, 1.0])
        ).relevance
        is None
    )


def telling_half() -> SplitHalf:
    """A half of sixty rows that tells of metrics that the other half has taught."""
    X, Y = rows(60)
    supervised, told = (Examples(X[part::2], Y[part::2], None) for part in (0, 1))
    learned = learned_metrics(supervised.X, supervised.Y, ["diagonal", "full"], 9, 100)
    half = SplitHalf(supervised, told, FeatureColumns.of(X.shape[1], ()), learned)
    half.learn(1)
    assert list(half.rounds) == [0, 1]  # and no further
    return half


def test_a_half_tells_what_a_regression_of_the_other_errs_on_it():
    half = telling_half()
    choices = [
        KernelChoice(rounds, kind)
        for rounds in ((0,), (0, 1))
        for kind in COMBINED_KERNELS
    ]
    least_errors, relative_errors = [], []
    for choice in choices:
        K, cross = np.zeros((30, 30)), np.zeros((30, 30))
        taken = [
            metric for number in choice.rounds for metric in half.rounds[number].metrics
        ]
        for metric in taken:
            family, _ = metric.base_kernels(
                metric.medians(half.train.X), KINDS[choice.kind]
            )
            tiles = (family.tile(Z, half.train.X) for Z in (half.train.X, half.test.X))
            for own, other in zip(*tiles, strict=True):
                trace = np.trace(center_gram(own)) / 30
                K, cross = K + own / trace, cross + other / trace
        centered = center_gram(K)
        ridges = [ridge * np.trace(centered) for ridge in rfm_metrics.RIDGES]
        errors, left_out_errors = [], []
        for ridge in ridges:
            alpha, intercept = bordered(K, half.train.Y, ridge)
            errors.append(((half.test.Y - cross @ alpha - intercept) ** 2).sum())
            left_out_errors.append(squared_left_out_residuals(K, half.train.Y, ridge))
        least_errors.append(min(errors))
        best = int(np.argmin(left_out_errors))
        relative_errors.append(
            (
                errors[best] / squares_around_mean(half.test.Y),
                left_out_errors[best] / squares_around_mean(half.train.Y),
            )
        )
    np.testing.assert_allclose(
        [half.errors([choice])[0] for choice in choices], least_errors, rtol=NEARLY
    )
    np.testing.assert_allclose(
        [half.relative_errors(choice) for choice in choices],
        relative_errors,
        rtol=NEARLY,
    )


def squares_around_mean(Y: np.ndarray) -> float:
    return float(((Y - Y.mean(axis=0)) ** 2).sum())


def squared_left_out_residuals(K: np.ndarray, Y: np.ndarray, ridge: float) -> float:
    """Sum over rows of the squared error of a regression on all other rows."""
    total = 0.0
    for i in range(len(K)):
        others = np.delete(np.arange(len(K)), i)
        alpha, intercept = bordered(K[np.ix_(others, others)], Y[others], ridge)
        total += float(((Y[i] - K[i, others] @ alpha - intercept) ** 2).sum())
    return total


def test_alignments_of_base_kernels_are_those_of_the_half_that_did_not_teach_them():
    half = telling_half()
    M, a = half.products(KernelChoice((1,), "both"))
    union, _ = half.columns.union(half.rounds[1].metrics, half.test, "both")
    statistics = gram_statistics(union, half.test.X, half.test.Y)
    scales = statistics.traces() / 30
    np.testing.assert_allclose(
        M, statistics.products() / np.outer(scales, scales), rtol=1e-8
    )
    np.testing.assert_allclose(a, statistics.target_products() / scales, rtol=1e-8)
    kernels = [
        radial_kernel(metric.mapped(half.test.X))[0]
        for metric in half.rounds[1].metrics
    ]
    centered = half.test.Y - half.test.Y.mean(axis=0)
    K, L = sum(kernels), centered @ centered.T
    assert half.alignments[1] == pytest.approx(
        np.vdot(K, L) / (np.linalg.norm(K) * np.linalg.norm(L)), rel=1e-10
    )


def test_halves_have_much_the_same_targets_whatever_the_order_of_the_rows():
    X, Y = rows(41)
    w, order = (
        np.random.default_rng(3).uniform(size=41),
        np.random.default_rng(4).permutation(41),
    )
    for one, other in zip(
        Examples(X, Y, w).halves(0),
        Examples(X[order], Y[order], w[order]).halves(0),
        strict=True,
    ):
        for name in ("X", "Y", "w"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    classes = np.repeat([1.0, -1.0], [35, 6])[:, None]
    assert [(part.Y < 0).sum() for part in Examples(X, classes, None).halves(0)] == [
        3,
        3,
    ]


def test_metrics_of_two_rounds_must_save_a_share_of_the_error_of_a_sample(
    monkeypatch: pytest.MonkeyPatch,
):
    errors = {
        (0,): 4.0,
        (0, 1): 3.0,
        (0, 2): 2.0,
        (0, 1, 2): 1.99,
        (0, 3): 1.9,
        (0, 1, 3): 1.88,
    }
    monkeypatch.setattr(rfm, "GAIN", 0.02)

    class Told:
        def __init__(self) -> None:
            self.rounds: dict[int, Any] = {}

        def learn(self, number: int) -> None:
            assert number <= 3

        def errors(self, choices) -> np.ndarray:
            return np.array([errors[one.rounds] for one in choices])

    assert rfm._best_metrics([Told(), Told()], "both", 0.0).rounds == (0, 1, 3)
    assert rfm._best_metrics([Told(), Told()], "both", 0.02).rounds == (0, 3)
    assert rfm._best_metrics([Told(), Told()], "both", 0.005).rounds == (0, 1, 3)


@pytest.mark.parametrize(
    ("metric", "gain", "last"),
    [("both", 0.0, 3), ("full", 1.0, 2), ("diagonal", 0.01, None)],
)
def test_what_is_chosen_errs_least_on_halves_that_taught_nothing(
    metric, gain, last, monkeypatch, radial_only
):
    monkeypatch.setattr(rfm, "GAIN", gain)
    X, Y = rows(80)
    y, kinds = Y[:, :1], ["diagonal", "full"] if metric == "both" else [metric]
    examples, columns = Examples(X, y, None), FeatureColumns.of(3, ())
    learned = partial(learned_metrics, kinds=kinds, rounds=3, rank=100)
    split = examples.halves(0)
    pair = [
        SplitHalf(
            one,
            other,
            columns,
            learned(one.X, one.Y),
        )
        for one, other in (split, split[::-1])
    ]
    for half in pair:
        half.learn(3)

    def error(*choice) -> float:
        return sum(half.errors([KernelChoice(*choice)])[0] for half in pair)

    # A further round is learned as long as the one before was worth it, and taken where
    # it errs less.
    best, enough, n_learned = (
        min([(0,), (0, 1)], key=lambda one: error(one, "both")),
        False,
        1,
    )
    for number in (2, 3):
        if not enough:
            further = min(
                [(0, number), (0, 1, number)], key=lambda one: error(one, "both")
            )
            enough = error(further, "both") > (1 - gain) * error(best, "both")
            best, n_learned = (
                min(best, further, key=lambda one: error(one, "both")),
                number,
            )
    assert last in (None, n_learned)
    kind = min(COMBINED_KERNELS, key=lambda one: error(best, one))
    first, second = (half.ridges for half in pair)
    ridges = {
        number: np.sqrt(np.multiply(first[number], second[number])) for number in first
    }
    rounds = learned(X, y, near=ridges)
    union, _ = columns.union(
        [one for of in rounds if of.number in best for one in of.metrics],
        examples,
        kind,
    )
    found = RFM(metric=metric, normal_scores=False).find(X, Target.of(y[:, 0]))
    assert found.family.names == union.names
    expected = np.mean([half.alignments[: n_learned + 1] for half in pair], axis=0)
    assert found.alignments == pytest.approx(expected, rel=1e-9)


def test_principal_components_are_directions_of_most_variance_in_units_as_they_come(
    monkeypatch: pytest.MonkeyPatch,
):
    X = (
        np.random.default_rng(0).normal(size=(40, 6)) * [9.0, 5.0, 2.0, 1.0, 0.5, 0.0]
        + 3.0
    )
    Z = X - X.mean(axis=0)
    _, _, directions = np.linalg.svd(Z, full_matrices=False)
    # a constant feature has no part
    assert rfm_metrics.components_of(X).map.shape == (6, 5)
    monkeypatch.setattr(rfm_metrics, "COMPONENTS", 3)
    map_ = rfm_metrics.components_of(X).map
    np.testing.assert_allclose(
        map_ @ map_.T * np.abs(X).max() ** 2,
        directions[:3].T @ directions[:3],
        atol=1e-12,
    )
    monkeypatch.setattr(rfm_metrics, "COMPONENTS", 2)
    w = np.array([1.0, 3.0] * 20)
    given = (np.repeat(X, w.astype(int), axis=0), None), (X, w)
    copies, weighted = (rfm_metrics.components_of(*of).map for of in given)
    np.testing.assert_allclose(
        np.abs(copies.T @ weighted) * np.abs(X).max() ** 2, np.eye(2), atol=1e-9
    )


def test_of_many_features_principal_components_are_one_metric_more_to_choose():
    # Sixty features in one unit: three vary much, and the target depends on them; the
    # others hold noise.
    rng = np.random.default_rng(0)
    X = np.hstack(
        [rng.normal(size=(250, 3)), 0.05 * rng.normal(size=(250, 57))]
    ) @ rng.permutation(np.eye(60))
    y = np.sin(2 * (X @ np.linalg.svd(X - X.mean(0))[2][:3].T).sum(axis=1))
    X, X_new, y, y_new = X[:125], X[125:], y[:125], y[125:]

    def find(d: int = 60, **params):
        found = RFM(**params).find(X[:, :d], Target.of(y))
        return found, " ".join(found.family.names)

    found, names = find()
    assert "principal components" in names
    # In no other metric beside it
    assert names.count("principal components") == len(names.split(" in ")) - 1
    # Of rounds, which components are not
    assert len(found.alignments) in (
        MOST_ROUNDS,
        MOST_ROUNDS + 1,
    )
    for without in (
        {"rounds": 1},
        {"metric": "diagonal"},
        {"d": rfm_metrics.COMPONENTS // 2},
    ):
        assert "principal components" not in find(**without)[1]
    models = [
        KernelLearningRegressor(learner=RFM(rounds=rounds)) for rounds in ("auto", 0)
    ]
    errors = [
        np.mean((model.fit(X, y).predict(X_new) - y_new) ** 2) for model in models
    ]
    # Spread makes all features count alike, noise as well
    assert errors[0] < 0.8 * errors[1]


def test_features_stand_beside_normal_scores_which_codes_of_levels_have_not(
    radial_only,
):
    X, Y = rows(80)
    X[:, 2] = X[:, 2] > 0
    y = Target.of(Y[:, 0])
    knots = normal_scores(X)
    # Of two values there is nothing more to tell
    assert [one is None for one in knots] == [
        False,
        False,
        True,
    ]
    origin = X.mean(axis=0)
    inner = RFM(normal_scores=False).find(scores_beside(X, knots, origin), y)
    found = RFM().find(X, y)
    np.testing.assert_allclose(found.family.origin, origin, rtol=1e-12)
    assert found.family == NormalScoresFamily(inner.family, knots, found.family.origin)
    np.testing.assert_array_equal(found.weights, inner.weights)
    assert found.parameters.shape == (len(found.weights), 3)
    np.testing.assert_allclose(
        found.parameters[:, 2], inner.parameters[:, 2], rtol=1e-15
    )
    both = np.sqrt(
        inner.parameters[:, :2] ** -2
        + (inner.parameters[:, 3:] * X[:, :2].std(axis=0)) ** -2
    )
    np.testing.assert_allclose(found.parameters[:, :2], 1 / both, rtol=1e-12)
    labels = Target.of((Y[:, 0] > 0).astype(str))
    wide = np.random.default_rng(0).normal(size=(80, rfm_metrics.COMPONENTS + 1))
    for family in (
        RFM(normal_scores=False).find(X, labels).family,
        RFM(rounds=0).find(wide, y).family,
    ):
        assert not isinstance(family, NormalScoresFamily)
    assert isinstance(RFM().find(X, labels).family, NormalScoresFamily)
    # Which do not count
    indicators = np.random.default_rng(1).integers(0, 2, (80, rfm_metrics.COMPONENTS))
    assert isinstance(
        RFM(rounds=0).find(np.hstack([X, indicators]), y).family, NormalScoresFamily
    )
    coded = [
        np.column_stack([X[:, :2], factor * np.arange(80) % 7]) for factor in (1, 3)
    ]
    found, again = (RFM(codes=(2,)).find(of, y) for of in coded)
    assert [one is None for one in found.family.knots] == [False, False, True]
    tiles = [of.family.tile(coded[0][:5], coded[0][:5])[-1] for of in (again, found)]
    np.testing.assert_allclose(*tiles, atol=1e-12)


def test_a_kind_of_base_kernels_is_taken_alone_or_by_choice():
    X, Y = rows(80)
    kinds = (*KINDS, "auto")
    families = {
        kind: learn_kernel(X, Y[:, 0], learner=RFM(rounds=1, kernels=kind)).family.names
        for kind in kinds
    }
    expected = {"gaussian": 9, "laplacian": 18, "both": 27, "wide": 6}
    assert {kind: len(families[kind]) for kind in KINDS} == expected
    assert families["auto"] in [families[kind] for kind in COMBINED_KERNELS]
    # Without noise: Gaussians predict it best
    smooth = learn_kernel(X, np.sin(X[:, 0] / 2), learner=RFM(rounds=0))
    assert all(name.startswith("gaussian") for name in smooth.family.names)


def test_some_rows_are_searched_and_all_weighed():
    X, Y = rows(120)
    learner = RFM(search_rows=50, rounds=0, weights="alignf")
    one, two = (learner.find(X, Target.of(Y[:, 0])) for _ in range(2))
    assert one == two
    statistics = gram_statistics(one.family, X, Y[:, :1])
    best = learn_kernel(X, Y[:, 0], learner="alignf", family=one.family)
    assert statistics.alignment(one.weights) == pytest.approx(best.alignment, rel=1e-9)


def test_classes_are_learned_and_saved_bit_for_bit_with_the_way_to_the_kernel(tmp_path):
    X, Y = rows(120)
    labels = np.array(["a", "b", "c"])[np.digitize(Y[:, 0], [-0.5, 0.5])]
    model = KernelLearningClassifier(learner=RFM(rounds=2)).fit(X[:80], labels[:80])
    kernel = model.kernel_
    assert model.score(X[80:], labels[80:]) > 0.6
    assert len(kernel.history) == 3
    assert kernel.history[2] > kernel.history[0]
    kernel.save(tmp_path / "kernel.safetensors")
    again = load(tmp_path / "kernel.safetensors")
    np.testing.assert_array_equal(again.cross_gram(X[80:]), kernel.cross_gram(X[80:]))
    assert again.history == kernel.history
    # Too few to be halved
    assert learn_kernel(X[:15], Y[:15, 0], learner=RFM()).history == ()


def test_of_more_features_than_rows_directions_do_not_matter():
    X, Y = rows(80, 120)
    kernel = learn_kernel(X[:60], Y[:60, 0], learner=RFM(rounds=2, kernels="both"))
    assert [family.map.shape[:1] for family in kernel.family.families] == [(120,)] * 3
    Q, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(121, 121)))
    full = RFM(rounds=2, metric="full", kernels="gaussian", scaled=True)
    turned, more = (
        learn_kernel(X[:60] @ Q[:120], Y[:60, 0], learner=full),
        learn_kernel(X[:60], Y[:60, 0], learner=full),
    )
    np.testing.assert_allclose(
        turned.cross_gram(X[60:] @ Q[:120]), more.cross_gram(X[60:]), rtol=0, atol=1e-6
    )


def test_parameters_out_of_range_and_nothing_to_learn_from_are_refused():
    X, Y = rows()
    y, kinds = Target.of(Y[:, 0]), "auto, both, gaussian, laplacian, wide"
    refused = [
        ({"rounds": -1}, "rounds must be a whole number of at least 0, got -1"),
        ({"rounds": 1.5}, "rounds must be a whole number of at least 0, got 1.5"),
        (
            {"search_rows": 3},
            "search_rows must be a whole number of at least 10, got 3",
        ),
        (
            {"metric": "round"},
            "metric must be one of both, diagonal, full, got 'round'",
        ),
        ({"kernels": "all"}, f"kernels must be one of {kinds}, got 'all'"),
        ({"weights": "best"}, "weights must be one of unif, alignf, got 'best'"),
        (
            {"normal_scores": "never"},
            "normal_scores must be true, false or auto, got 'never'",
        ),
    ]
    table = [(RFM(**params).require, reason) for params, reason in refused]
    require_refusals(
        [*table, (partial(RFM().find, np.ones_like(X), y), "all rows are equal")]
    )


# Errors of halves ----------------------------------------------------------------------------------------------------


def test_intervals_cover_new_rows_if_a_metric_of_many_features_is_learned_from_few_rows():
    covered = []
    for seed in range(3):
        X, y = make_friedman1(600, n_features=200, noise=1.0, random_state=seed)
        model = KernelLearningRegressor(boost=False).fit(X[:100], y[:100])
        low, high = model.predict_interval(X[100:], alpha=0.1).T
        covered.append(float(np.mean((low <= y[100:]) & (y[100:] <= high))))
    # Residuals of the rows that trained the metric cover 0.42 to 0.53 of new rows.
    assert min(covered) > 0.75


def test_probabilities_are_of_new_rows_if_a_metric_of_many_features_is_learned_from_few_rows():
    X, y = make_friedman1(1300, n_features=100, noise=1.0, random_state=1)
    is_large = y > np.median(y)
    model = KernelLearningClassifier(boost=False).fit(X[:300], is_large[:300])
    corrected, uncorrected = (
        log_loss(
            is_large[300:],
            fit_on_kernel(model, kernel, is_large[:300]).predict_proba(X[300:]),
        )
        for kernel in (model.kernel_, replace(model.kernel_, errors_of_halves=None))
    )
    assert corrected < uncorrected - 0.05


def test_only_residuals_of_rows_that_trained_the_kernel_are_scaled():
    X, Y = rows(80)
    kernel = learn_kernel(X[:40], Y[:40, 0], learner=RFM(rounds=1))
    residuals = []
    for errors in (None, (4e9, 1e9)):
        model = KernelLearningRegressor(alpha=1.0, predictor="krr")
        fit_on_kernel(model, replace(kernel, errors_of_halves=errors), Y[:, 0], X)
        residuals.append(model.signed_residuals_.ravel())
    left_out = residuals[0]
    # Half of the rows trained the kernel; the ratio of both errors doubles their residuals.
    is_kept = np.isin(left_out, residuals[1])
    assert is_kept.sum() == 40
    np.testing.assert_allclose(
        np.sort(np.append(left_out[is_kept], 2 * left_out[~is_kept])), residuals[1]
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_residuals_have_at_most_the_error_of_halves(weighted: bool):
    X, Y = rows(60)
    w = np.random.default_rng(0).uniform(0.5, 2.0, 60) if weighted else None
    kernel = learn_kernel(X, Y[:, 0], learner=RFM(rounds=1), sample_weight=w)
    model = KernelLearningRegressor(alpha=1.0, predictor="krr")
    fit_on_kernel(model, replace(kernel, errors_of_halves=(5.0, 1e-6)), Y[:, 0])
    fitted = model.signed_residuals_.ravel()
    fit_on_kernel(model, replace(kernel, errors_of_halves=None), Y[:, 0])
    ratios = fitted / model.signed_residuals_.ravel()
    np.testing.assert_allclose(ratios, ratios[0])
    if not weighted:
        error = np.mean(fitted**2) / np.var(Y[:, 0])
        assert error == pytest.approx(5.0 / GAIN_OF_ALL_ROWS)


@pytest.mark.parametrize(
    ("learner", "reason"),
    [
        (RFM(rounds=0), "no metric is learned"),
        (RFM(search_rows=60), "other rows trained the metric"),
        (RFM(), "halves have no linear kernel"),
    ],
)
def test_errors_of_halves_are_unknown_if_they_are_not_of_the_kernel(
    learner: RFM, reason: str
):
    X, Y = rows(90)
    y = Y[:, 0]
    if "linear" in reason:
        y = X[:, 0] + 0.01 * Y[:, 0]
    assert learner.find(X, Target.of(y)).errors_of_halves is None


def test_errors_of_halves_are_saved_and_damaged_ones_refused():
    X, Y = rows(80)
    kernel = learn_kernel(X, Y[:, 0], learner=RFM(rounds=1))
    assert kernel.errors_of_halves is not None
    assert reread(kernel).errors_of_halves == kernel.errors_of_halves
    damaged = replace(kernel, errors_of_halves=(np.nan, 1.0))
    require_refusals([(partial(reread, damaged), "errors_of_halves")])


# Linear kernel -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_a_linear_kernel_is_added_where_the_target_is_linear(offset, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5)) * [1.0, 10.0, 0.1, 1.0, 1.0] + offset
    coefficients = np.array([1.0, 0.05, 5.0, 0.0, -1.0])
    y = (X - offset) @ coefficients + 0.3 * rng.normal(size=200)
    X_new = rng.normal(size=(500, 5)) * [1.0, 10.0, 0.1, 1.0, 1.0] + offset

    def error() -> float:
        model = KernelLearningRegressor().fit(X, y)
        assert any(name.startswith("linear") for name in model.family_.names) == bool(
            rfm.LINEAR_SHARES[1:]
        )
        assert set(model.relevance_) == {"x0", "x1", "x2", "x3", "x4"}
        np.testing.assert_array_equal(
            reread(model).predict(X_new), model.predict(X_new)
        )
        return float(
            np.sqrt(
                np.mean((model.predict(X_new) - (X_new - offset) @ coefficients) ** 2)
            )
        )

    with_linear = error()
    monkeypatch.setattr(rfm, "LINEAR_SHARES", (0.0,))
    assert with_linear < 0.8 * error()


def test_no_linear_kernel_is_added_where_it_gains_little_nor_for_classes():
    X, _ = rows(90)
    bumps = np.cos(3 * X).sum(axis=1)
    for learner, target in (
        (RFM(), Target.of(bumps)),
        (RFM(kernels="both"), Target.of(X[:, 0])),
        (RFM(weights="alignf"), Target.of(X[:, 0])),
        (RFM(), Target.of(np.where(X[:, 0] > 0, "a", "b"))),
    ):
        assert not any(
            name.startswith("linear") for name in learner.find(X, target).family.names
        )


def test_features_in_their_units_are_learned_in_double_precision_if_their_sizes_differ():
    X, y = make_friedman1(800, n_features=6, noise=1.0, random_state=0)
    X[:, 0] *= 1e25
    model = KernelLearningRegressor(learner=RFM(scaled=True), boost=False).fit(X, y)
    # In single precision, squares of the large feature overflow.
    assert model.score(X, y) > 0.7


@pytest.mark.parametrize("offset", [2.0**20, 2.0**31])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_fits_do_not_depend_on_the_offset_of_features(task: str, offset: float):
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(160, 2)) * 1024) / 1024  # exact next to an offset
    y = np.sin(2 * X[:, 0]) + 3 * X[:, 1] + 0.1 * rng.normal(size=160)
    model: Any = KernelLearningRegressor()
    if task == "classification":
        model = KernelLearningClassifier()
        y = y > 0
    scores = []
    for shift in (0.0, offset):
        moved = X + np.array([shift, -shift])
        model.fit(moved[:120], y[:120])
        assert isinstance(model.kernel_.family, NormalScoresFamily)
        if task == "classification":
            scores.append(model.decision_function(moved[120:]))
        else:
            scores.append(model.predict(moved[120:]))
    # Only the mean row is rounded otherwise
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-6, atol=1e-6)


def test_the_origin_of_normal_scores_needs_a_number_per_feature():
    knots = normal_scores(rows(80)[0])
    with pytest.raises(ValueError, match=r"origin must have a number for each of the"):
        NormalScoresFamily(GaussianFamily([1.0]), knots, [0.0])
