"""Learned metrics: leave-one-out in closed form, gradients, and the learner that is made of them."""

from __future__ import annotations

import numpy as np
import pytest

from learnkernels import (
    GaussianFamily,
    KernelLearningClassifier,
    KernelLearningRegressor,
    center_gram,
    learn_kernel,
    load_kernel,
    save_kernel,
)
from learnkernels.kernels.families import FamilyUnion, LaplacianFamily, MetricFamily, NormalScoresFamily
from learnkernels.kernels.families.normal_scores import normal_scores, scores_beside
from learnkernels.kernels.learners import RFM, rfm
from learnkernels.kernels.learners.rfm import LAST
from learnkernels.kernels.moments.gram import gram_moments
from learnkernels.kernels.search.halves import ALONE, TOGETHER, Choice, Columns, Examples, Half, halves_of
from learnkernels.kernels.search.metric import (
    COMPONENTS,
    GAUSSIANS,
    KINDS,
    LAPLACIANS,
    RIDGES,
    Metric,
    components_of,
    gradient_outer_product,
    learned_metrics,
    left_out_gradients,
    median_distance,
    radial_kernel,
    spread_of,
)
from learnkernels.kernels.solvers import leave_one_out
from learnkernels.kernels.solvers.leave_one_out import LeaveOneOut
from learnkernels.kernels.targets import Target

# Solutions of systems of some thirty rows, of condition below 1e4, twice over.
SOLVED = 1e-9

# Three rounds, each of which solves with a ridge of down to 1e-9 of the trace.
NEARLY = 1e-4


def rows(m: int = 30, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and two targets that are smooth in the first two features alone."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, d))
    Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 0] * X[:, 1]])
    return X, Y + 0.1 * rng.normal(size=Y.shape)


def bordered(K: np.ndarray, Y: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and intercepts of a ridge regression on any Gram matrix, by the system with a border of ones."""
    m = len(K)
    system = np.zeros((m + 1, m + 1))
    system[:m, :m] = K + ridge * np.eye(m)
    system[m, :m] = system[:m, m] = 1.0
    solution = np.linalg.solve(system, np.vstack([Y, np.zeros(Y.shape[1])]))
    return solution[:m], solution[m]


def metrics(X: np.ndarray, Y: np.ndarray, kind: str, rounds: int = 3) -> list[Metric]:
    """The metrics of one kind, that to begin with first."""
    return [of.metrics[0] for of in learned_metrics(X, Y, [kind], rounds, 100)]


def base_kernels(Z: np.ndarray) -> list[tuple[object, float]]:
    """The kernels of `radial_kernel` as functions of a squared distance, each with its weight."""
    D = ((Z[:, None] - Z[None]) ** 2).sum(axis=2)
    median = median_distance(Z, "sqeuclidean")
    functions = [lambda s, g=factor / median: np.exp(-g * s) for factor in GAUSSIANS]
    functions += [lambda s, g=factor / median**0.5: np.exp(-g * np.sqrt(s)) for factor in LAPLACIANS]
    return [(of, 1 / (6 * np.trace(center_gram(of(D))) / len(Z))) for of in functions]


# Leave-one-out -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [1e-3, 0.3, 20.0])
def test_left_out_residuals_are_those_of_regressions_without_the_row(ridge: float):
    X, Y = rows()
    K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    fit = LeaveOneOut(center_gram(K), Y).at(ridge)
    np.testing.assert_allclose(fit.alpha, bordered(K, Y, ridge)[0], rtol=0, atol=SOLVED)
    for row in range(len(X)):
        kept = np.arange(len(X)) != row
        alpha, intercept = bordered(K[np.ix_(kept, kept)], Y[kept], ridge)
        np.testing.assert_allclose(fit.residuals[row], Y[row] - K[row, kept] @ alpha - intercept, rtol=0, atol=SOLVED)
        without = fit.alpha - fit.inverse[:, row, None] * fit.alpha[row] / fit.inverse[row, row]
        np.testing.assert_allclose(without[kept], alpha, rtol=0, atol=SOLVED)


def test_a_weight_counts_copies_that_are_left_out_together():
    X, Y = rows()
    w = np.random.default_rng(5).integers(1, 4, size=len(X))
    K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    fit, copies = LeaveOneOut(center_gram(K, w), Y, w.astype(float)).at(0.3), np.repeat(np.arange(len(X)), w)
    alpha, _ = bordered(K[np.ix_(copies, copies)], Y[copies], 0.3)
    summed = np.array([alpha[copies == row].sum(axis=0) for row in range(len(X))])
    np.testing.assert_allclose(fit.alpha, summed, rtol=0, atol=SOLVED)
    np.testing.assert_allclose(fit.inverse @ Y, summed, rtol=0, atol=SOLVED)
    for row in range(len(X)):
        kept = copies[copies != row]
        alpha, intercept = bordered(K[np.ix_(kept, kept)], Y[kept], 0.3)
        np.testing.assert_allclose(fit.residuals[row], Y[row] - K[row, kept] @ alpha - intercept, rtol=0, atol=SOLVED)
    assert fit.loss == pytest.approx(float(w @ (fit.residuals**2).sum(axis=1)), rel=1e-12)


def test_the_best_ridge_has_the_least_residuals(monkeypatch: pytest.MonkeyPatch):
    X, Y = rows(60)
    path, ridges = LeaveOneOut(radial_kernel(X)[0], Y), [10.0**exponent for exponent in range(-4, 4)]
    errors = [float((path.at(ridge).residuals ** 2).sum()) for ridge in ridges]
    np.testing.assert_allclose(path.losses(ridges), errors, rtol=1e-9)  # the same sums in another order
    monkeypatch.setattr(leave_one_out, "MOST_NUMBERS", 300)  # two ridges at a time
    np.testing.assert_allclose(path.losses(ridges), errors, rtol=1e-9)
    assert path.best(ridges).ridge == ridges[int(np.argmin(errors))]
    with pytest.raises(ValueError, match="ridge must be positive"):
        path.at(0.0)


# Gradients -----------------------------------------------------------------------------------------------------------


def test_the_kernel_and_its_slopes_are_those_of_their_sum():
    X, _ = rows()
    X = np.vstack([X, X[:1]])  # equal rows: a Laplacian has no gradient there
    K, slopes = radial_kernel(X)
    D = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    whole = lambda D: sum(weight * of(D) for of, weight in base_kernels(X))  # noqa: E731
    np.testing.assert_allclose(K, center_gram(whole(D)), rtol=0, atol=1e-12)
    assert np.trace(K) / len(K) == pytest.approx(1.0, rel=1e-12)
    apart, h = D > 0, 1e-6
    differences = (whole(D + h * D) - whole(D - h * D))[apart] / (2 * h * D[apart])
    np.testing.assert_allclose(slopes[apart], differences, rtol=1e-7)  # rounding of values over h
    assert not np.isnan(slopes).any()


def test_gradients_are_those_of_regressions_without_the_row():
    X, Y = rows()
    K, slopes = radial_kernel(X)
    fit, kernels, h = LeaveOneOut(K, Y).at(0.3), base_kernels(X), 1e-5
    found = list(left_out_gradients(X, slopes, fit))
    raw = sum(weight * of(((X[:, None] - X[None]) ** 2).sum(axis=2)) for of, weight in kernels)
    for row in (0, 7, 29):
        kept = np.arange(len(X)) != row
        alpha, _ = bordered(raw[np.ix_(kept, kept)], Y[kept], 0.3)

        def predicted(x: np.ndarray, kept=kept, alpha=alpha) -> np.ndarray:
            D = ((X[kept] - x) ** 2).sum(axis=1)
            return sum(weight * of(D) for of, weight in kernels) @ alpha

        for k, unit in enumerate(np.eye(3)):
            slope = (predicted(X[row] + h * unit) - predicted(X[row] - h * unit)) / (2 * h)
            np.testing.assert_allclose([of[row, k] for of in found], slope, rtol=0, atol=1e-7)


def test_weights_do_not_change_by_a_factor_what_gradients_teach():
    X, Y = rows(60)
    w = np.random.default_rng(7).uniform(0.5, 2.0, size=len(X))
    np.testing.assert_allclose(
        gradient_outer_product(X, Y, w), gradient_outer_product(X, Y, 8 * w), rtol=0, atol=SOLVED
    )
    np.testing.assert_allclose(
        gradient_outer_product(X, Y, np.ones(len(X))), gradient_outer_product(X, Y), rtol=0, atol=SOLVED
    )


def test_outer_products_know_rotations_and_name_what_the_target_depends_on():
    X, Y = rows(200, 4)
    M = gradient_outer_product(X, Y)
    assert np.trace(M) == pytest.approx(1.0, rel=1e-12)
    assert np.linalg.eigvalsh(M).min() >= -1e-12
    assert np.diag(M)[:2].min() > 5 * np.diag(M)[2:].max()
    Q, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))
    np.testing.assert_allclose(gradient_outer_product(X @ Q, Y), Q.T @ M @ Q, rtol=0, atol=1e-8)


def test_weights_are_copies_in_bandwidths_and_spread():
    X, _ = rows(25)
    w = np.random.default_rng(6).integers(1, 4, size=len(X))
    copies = np.repeat(X, w, axis=0)
    for of in ("sqeuclidean", "cityblock"):
        assert median_distance(X, of, w.astype(float)) == median_distance(copies, of)
    np.testing.assert_allclose(spread_of(X, w.astype(float)).map, spread_of(copies).map, rtol=1e-12)
    K, which = radial_kernel(X, w.astype(float))[0], np.repeat(np.arange(len(X)), w)
    # The distance of copies is the root of what rounding leaves of zero.
    np.testing.assert_allclose(K[np.ix_(which, which)], radial_kernel(copies)[0], rtol=0, atol=1e-6)


# Metrics -------------------------------------------------------------------------------------------------------------


def test_units_and_constants_do_not_matter():
    X, Y = rows(100)
    units = np.array([1e-3, 1.0, 1e5])
    with_constant = np.column_stack([X * units, np.full(len(X), 3.0)])
    for kind in ("diagonal", "full"):
        for one, other in zip(metrics(X, Y, kind), metrics(with_constant, Y, kind), strict=True):
            assert other.lengths()[3] == 0
            np.testing.assert_allclose(other.lengths()[:3] * units, one.lengths(), rtol=NEARLY)
            distances = [((metric.mapped(Z)[:50] - metric.mapped(Z)[50:]) ** 2).sum(axis=1)
                         for metric, Z in ((one, X), (other, with_constant))]  # fmt: skip
            np.testing.assert_allclose(*distances, rtol=NEARLY)


def test_rounds_sharpen_the_metric_on_what_matters():
    X, Y = rows(200, 10)
    for kind in ("diagonal", "full"):
        shares = [metric.lengths()[:2].sum() / metric.lengths().sum() for metric in metrics(X, Y, kind)]
        assert shares[1] > 0.3
        assert shares[3] > shares[1] > shares[0]


def test_each_kind_goes_its_own_way_from_round_to_round():
    X, Y = rows(60)
    together = list(learned_metrics(X, Y, ["diagonal", "full"], 2, 100))
    assert [of.number for of in together] == [0, 1, 2]
    for position, kind in enumerate(("diagonal", "full")):
        for of, alone in zip(together[1:], metrics(X, Y, kind, 2)[1:], strict=True):
            np.testing.assert_array_equal(of.metrics[position].map, alone.map)


def test_the_rank_is_that_asked_for():
    X, Y = rows(80, 6)
    _, (metric,) = (of.metrics for of in learned_metrics(X, Y, ["full"], 1, 2))
    assert metric.map.shape == (6, 2)
    assert spread_of(X).map == pytest.approx(1 / X.std(axis=0))


@pytest.mark.parametrize("map_", [np.array([0.5, 0.0, 2.0]), np.array([[1.0, 0.3], [0.0, -2.0], [0.4, 0.1]])])
def test_a_metric_is_the_base_kernels_on_mapped_rows(map_: np.ndarray):
    X, _ = rows()
    base = FamilyUnion([GaussianFamily([0.5, 1.0]), LaplacianFamily([0.7], 2), LaplacianFamily([0.7])])
    family, Z = MetricFamily(base, map_, "here"), X * map_ if map_.ndim == 1 else X @ map_
    np.testing.assert_allclose(family.tile(X[:9], X), base.tile(Z[:9], Z), rtol=0, atol=1e-13)
    assert family.names[-1] == "laplacian(gamma=0.7) in here"
    assert MetricFamily.from_dict(family.to_dict()) == family
    with pytest.raises(ValueError, match="the 3 features that the metric is for, got 2"):
        family.tile(X[:, :2], X[:, :2])


@pytest.mark.parametrize("map_", [[0.0, 0.0], [np.nan, 1.0], [[[1.0]]]])
def test_a_map_that_is_none_is_refused(map_: list):
    with pytest.raises(ValueError, match="map must hold one finite weight a feature"):
        MetricFamily(GaussianFamily([1.0]), map_)


# The learner ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "learner",
    [
        RFM(),
        RFM(rounds=2, weights="alignf"),
        RFM(metric="diagonal", weights="auto"),
        RFM(rounds=0, kernels="laplacian", weights="align"),
    ],
)
def test_what_is_found_is_an_ordinary_learned_kernel(learner: RFM):
    X, Y = rows(90)
    kernel = learn_kernel(learner, None, X[:70], Y[:70, 0])
    assert kernel.parameters.shape == (len(kernel.weights), 3)
    assert np.linalg.norm(kernel.weights) == pytest.approx(1.0, rel=1e-12)
    assert (kernel.weights > 0).all()
    K = kernel.gram()
    assert np.linalg.eigvalsh(K).min() >= -1e-10 * np.trace(K)
    np.testing.assert_allclose(kernel.cross_gram(X[:70]), K, rtol=0, atol=1e-6)  # Euclidean distances near zero
    moments = gram_moments(kernel.family, X[:70], Y[:70, :1])
    assert kernel.alignment == pytest.approx(moments.alignment(kernel.weights), rel=1e-8)


def test_sigma_is_where_a_base_kernel_has_fallen_to_one_over_e():
    X, Y = rows(90)
    kernel = learn_kernel(RFM(rounds=1, scores=False), None, X, Y[:, 0])
    for k, sigma in enumerate(kernel.parameters):
        only = kernel.family.subset([k])
        for unit, at in zip(np.eye(3), sigma, strict=True):
            ((value,),) = only.tile(at * unit[None], np.zeros((1, 3)))[0]
            assert value == pytest.approx(np.exp(-1), rel=1e-6)


def test_what_does_not_matter_is_left_out_and_prediction_gains():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 12))
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.05 * rng.normal(size=400)
    scores = {}
    for learner in (RFM(), RFM(rounds=0)):
        model = KernelLearningRegressor(learner=learner, alpha=1e-2).fit(X[:200], y[:200])
        scores[learner.rounds] = model.score(X[200:], y[200:])
    assert scores["auto"] > 0.85
    assert scores["auto"] > scores[0] + 0.15


def test_relevance_says_which_features_count_in_any_unit():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(200, 6))
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2
    relevance = learn_kernel(RFM(rounds=3), None, X, y).relevance
    assert relevance.sum() == pytest.approx(1.0, rel=1e-12)
    assert relevance[:2].min() > 2 * relevance[2:].max()
    units = np.array([1e3, 1e-3, 1.0, 10.0, 1.0, 1.0])
    np.testing.assert_allclose(learn_kernel(RFM(rounds=3), None, X * units, y).relevance, relevance, rtol=NEARLY)
    assert learn_kernel("alignf", GaussianFamily([0.1, 1.0]), X, y).relevance is None


def halves(X: np.ndarray, Y: np.ndarray) -> Half:
    """A half of some rows that tells of metrics that the other half has taught."""
    taught, told = (Examples(X[part::2], Y[part::2], None) for part in (0, 1))
    rounds = list(learned_metrics(taught.X, taught.Y, ["diagonal", "full"], 1, 100))
    return Half(taught, told, Columns.of(X.shape[1], ()), rounds)


@pytest.mark.parametrize(
    "choice",
    [
        *(Choice(rounds, kind) for rounds in ((0,), (0, 1)) for kind in TOGETHER),
        *(Choice((1,), kind, way) for kind in KINDS for way in (0, 1)),
    ],
    ids=str,
)
def test_a_half_tells_what_a_regression_of_the_other_errs_on_it(choice: Choice):
    X, Y = rows(60)
    half = halves(X, Y)
    K, cross = np.zeros((30, 30)), np.zeros((30, 30))
    taken = [metric for number in choice.rounds for metric in half.rounds[number].metrics]
    for metric in taken if choice.alone is None else [taken[choice.alone]]:
        family, _ = metric.base_kernels(half.taught.X, None, KINDS[choice.kind])
        for own, other in zip(
            family.tile(half.taught.X, half.taught.X), family.tile(half.told.X, half.taught.X), strict=True
        ):
            trace = np.trace(center_gram(own)) / 30
            K, cross = K + own / trace, cross + other / trace
    ridge = (
        LeaveOneOut(center_gram(K), half.taught.Y).best([ridge * np.trace(center_gram(K)) for ridge in RIDGES]).ridge
    )
    alpha, intercept = bordered(K, half.taught.Y, ridge)
    errors = half.told.Y - cross @ alpha - intercept
    assert half.errors([choice]) == pytest.approx([float((errors**2).sum())], rel=NEARLY)


def test_alignments_of_base_kernels_are_those_of_the_half_that_did_not_teach_them():
    X, Y = rows(60)
    half = halves(X, Y)
    M, a = half.products(Choice((1,), "both"))
    union, _ = half.columns.union(half.rounds[1].metrics, half.told, "both")
    moments = gram_moments(union, half.told.X, half.told.Y)
    scales = moments.centered_traces / 30
    np.testing.assert_allclose(M, moments.frobenius / np.outer(scales, scales), rtol=1e-8)
    np.testing.assert_allclose(a, moments.target / scales, rtol=1e-8)
    kernels = [radial_kernel(metric.mapped(half.told.X))[0] for metric in half.rounds[1].metrics]
    centered = half.told.Y - half.told.Y.mean(axis=0)
    K, L = sum(kernels), centered @ centered.T
    assert half.alignments[1] == pytest.approx(np.vdot(K, L) / (np.linalg.norm(K) * np.linalg.norm(L)), rel=1e-10)


def test_halves_have_much_the_same_targets_whatever_the_order_of_the_rows():
    X, Y = rows(41)
    w, order = np.random.default_rng(3).uniform(size=41), np.random.default_rng(4).permutation(41)
    for one, other in zip(Examples(X, Y, w).halves(0), Examples(X[order], Y[order], w[order]).halves(0), strict=True):
        for name in ("X", "Y", "w"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    classes = np.repeat([1.0, -1.0], [35, 6])[:, None]
    assert [(part.Y < 0).sum() for part in Examples(X, classes, None).halves(0)] == [3, 3]


def test_what_is_chosen_errs_least_on_halves_that_taught_nothing():
    X, Y = rows(80)
    examples, columns = Examples(X, Y[:, :1], None), Columns.of(3, ())
    kinds = ["diagonal", "full"]
    pair = halves_of(examples, columns, 0, lambda one: list(learned_metrics(one.X, one.Y, kinds, 3, 100)))
    choices = [Choice(rounds, kind) for rounds in ((0,), (0, 1), (0, 3), (0, 1, 3)) for kind in TOGETHER]
    best = min(choices, key=lambda one: sum(half.errors([one])[0] for half in pair))
    rounds = learned_metrics(X, Y[:, :1], kinds, 3, 100)
    taken = [metric for of in rounds if of.number in best.rounds for metric in of.metrics]
    found = RFM(scores=False).find(X, Target.of(Y[:, 0]))
    assert found.family.names == columns.union(taken, examples, best.kind)[0].names
    assert found.alignments == pytest.approx(np.mean([half.alignments for half in pair], axis=0), rel=1e-9)


@pytest.mark.parametrize("metric", ["both", "full"])
def test_of_one_metric_alone_whichever_errs_least_on_halves_is_taken(metric: str):
    X, Y = rows(80)
    examples, columns = Examples(X, Y[:, :1], None), Columns.of(3, ())
    kinds = ["diagonal", "full"] if metric == "both" else [metric]
    pair = halves_of(examples, columns, 0, lambda one: list(learned_metrics(one.X, one.Y, kinds, 3, 100)))
    choices = [Choice((0,), kind, 0) for kind in ALONE]
    choices += [Choice((3,), kind, way) for way in range(len(kinds)) for kind in ALONE]
    best = min(choices, key=lambda one: sum(half.errors([one])[0] for half in pair))
    taken = list(learned_metrics(X, Y[:, :1], kinds, 3, 100))[best.rounds[0]].metrics[best.alone]
    found = RFM(alone=True, metric=metric, scores=False).find(X, Target.of(Y[:, 0]))
    assert found.family.names == columns.union([taken], examples, best.kind)[0].names


def test_principal_components_are_directions_of_most_variance_in_units_as_they_come():
    X = np.random.default_rng(0).normal(size=(40, 6)) * [9.0, 5.0, 2.0, 1.0, 0.5, 0.0] + 3.0
    Z = X - X.mean(axis=0)
    _, _, directions = np.linalg.svd(Z, full_matrices=False)
    map_ = components_of(X, most=3).map
    np.testing.assert_allclose(map_ @ map_.T * np.abs(X).max() ** 2, directions[:3].T @ directions[:3], atol=1e-12)
    assert components_of(X).map.shape == (6, 5)  # a constant feature has no part
    w = np.array([1.0, 3.0] * 20)
    copies, weighted = components_of(np.repeat(X, w.astype(int), axis=0), most=2).map, components_of(X, w, 2).map
    np.testing.assert_allclose(np.abs(copies.T @ weighted) * np.abs(X).max() ** 2, np.eye(2), atol=1e-9)


def pixels(m: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Sixty features in one unit: three vary much, and the target depends on them; the others hold noise."""
    rng = np.random.default_rng(0)
    X = np.hstack([rng.normal(size=(m, 3)), 0.05 * rng.normal(size=(m, 57))]) @ rng.permutation(np.eye(60))
    return X, np.sin(2 * (X @ np.linalg.svd(X - X.mean(0))[2][:3].T).sum(axis=1))


@pytest.mark.parametrize("alone", [False, True])
def test_of_many_features_principal_components_are_one_metric_more_to_choose(alone: bool):
    X, y = pixels()
    X, X_new, y, y_new = X[:150], X[150:], y[:150], y[150:]

    def names(d: int = 60, **params) -> str:
        return " ".join(RFM(alone=alone, **params).find(X[:, :d], Target.of(y)).family.names)

    assert "principal components" in names()
    assert names().count("principal components") == len(names().split(" in ")) - 1  # in no other metric beside it
    for without in ({"rounds": 1}, {"metric": "diagonal"}, {"d": COMPONENTS}):
        assert "principal components" not in names(**without)
    found = RFM(alone=alone).find(X, Target.of(y))
    assert len(found.alignments) == LAST + 1  # of rounds, which components are not
    errors = [
        np.mean((KernelLearningRegressor(learner=RFM(alone=alone, rounds=r)).fit(X, y).predict(X_new) - y_new) ** 2)
        for r in ("auto", 0)
    ]
    assert errors[0] < 0.8 * errors[1]  # spread makes all features count alike, noise as well


def test_numbers_are_predicted_from_features_beside_their_normal_scores():
    X, Y = rows(80)
    X[:, 2] = X[:, 2] > 0
    y = Target.of(Y[:, 0])
    knots = normal_scores(X)
    assert [one is None for one in knots] == [False, False, True]  # of two values there is nothing more to tell
    inner = RFM(scores=False).find(scores_beside(X, knots), y)
    found = RFM().find(X, y)
    assert found.family == NormalScoresFamily(inner.family, knots)
    np.testing.assert_array_equal(found.weights, inner.weights)
    assert found.parameters.shape == (len(found.weights), 3)
    np.testing.assert_array_equal(found.parameters[:, 2], inner.parameters[:, 2])
    both = np.sqrt(inner.parameters[:, :2] ** -2 + (inner.parameters[:, 3:] * X[:, :2].std(axis=0)) ** -2)
    np.testing.assert_allclose(found.parameters[:, :2], 1 / both, rtol=1e-12)
    labels = Target.of((Y[:, 0] > 0).astype(str))
    for family in (
        RFM().find(X, labels).family,
        RFM(effects="auto", views=(("a", (0,)), ("b", (1, 2)))).find(X, y).family,
        RFM(rounds=0).find(np.random.default_rng(0).normal(size=(80, COMPONENTS + 1)), y).family,
    ):
        assert not isinstance(family, NormalScoresFamily)
    assert isinstance(RFM(scores=True).find(X, labels).family, NormalScoresFamily)


def test_codes_of_levels_have_no_ranks():
    X, Y = rows(80)
    X[:, 2] = np.arange(80) % 7
    found = RFM(codes=(2,)).find(X, Target.of(Y[:, 0]))
    assert isinstance(found.family, NormalScoresFamily)
    assert [one is None for one in found.family.knots] == [False, False, True]
    again = RFM(codes=(2,)).find(np.column_stack([X[:, :2], (X[:, 2] * 3) % 7]), Target.of(Y[:, 0]))
    np.testing.assert_allclose(again.family.tile(X[:5], X[:5])[-1], found.family.tile(X[:5], X[:5])[-1], atol=1e-12)


def test_numbers_of_many_rows_are_predicted_by_one_metric_alone(monkeypatch):
    monkeypatch.setattr(rfm, "MANY_ROWS", 120)
    X, Y = rows(120)
    labels = np.digitize(Y[:, 0], [0.0])

    def metrics(y, **params) -> int:
        names = learn_kernel(RFM(rounds=1, **params), None, X, y).family.names
        return len({name.split(" in ")[1] for name in names})

    assert metrics(Y[:, 0]) == metrics(labels, alone=True) == 1
    assert metrics(Y[:, 0], alone=False) == metrics(labels) == 3
    monkeypatch.setattr(rfm, "MANY_ROWS", 121)
    assert metrics(Y[:, 0]) == 3
    with pytest.raises(ValueError, match="scores must be false or auto where effects are additive, got true"):
        learn_kernel(RFM(scores=True, effects="additive"), None, X, Y[:, 0])
    with pytest.raises(ValueError, match="alone must be true, false or auto, got 'never'"):
        learn_kernel(RFM(alone="never"), None, X, Y[:, 0])


def test_the_way_to_the_kernel_is_told_and_kept(tmp_path):
    X, Y = rows(90)
    kernel = learn_kernel(RFM(rounds=2), None, X, Y[:, 0])
    assert len(kernel.history) == 3
    assert kernel.history[2] > kernel.history[0]
    save_kernel(kernel, tmp_path / "kernel.npz")
    assert load_kernel(tmp_path / "kernel.npz").history == kernel.history
    assert learn_kernel(RFM(), None, X[:15], Y[:15, 0]).history == ()  # too few to be halved


def test_a_kind_of_base_kernels_is_taken_alone_or_by_choice():
    X, Y = rows(80)
    families = {kind: learn_kernel(RFM(rounds=1, kernels=kind), None, X, Y[:, 0]).family.names
                for kind in (*KINDS, "auto")}  # fmt: skip
    assert {kind: len(names) for kind, names in families.items() if kind != "auto"} == {
        "gaussian": 9, "laplacian": 18, "both": 27, "wide": 6, "euclidean": 3, "cityblock": 3,
    }  # fmt: skip
    assert families["auto"] in [families[kind] for kind in TOGETHER]
    smooth = learn_kernel(RFM(rounds=0), None, X, np.sin(X[:, 0] / 2))  # without noise: Gaussians predict it best
    assert all(name.startswith("gaussian") for name in smooth.family.names)


def test_some_rows_are_searched_and_all_weighed():
    X, Y = rows(120)
    learner = RFM(search_rows=50, rounds=0, weights="alignf")
    one, two = (learner.find(X, Target.of(Y[:, 0])) for _ in range(2))
    assert one == two
    moments = gram_moments(one.family, X, Y[:, :1])
    best = learn_kernel("alignf", one.family, X, Y[:, 0])
    assert moments.alignment(one.weights) == pytest.approx(best.alignment, rel=1e-9)


def test_classes_are_learned_and_saved_bit_for_bit(tmp_path):
    X, Y = rows(120)
    labels = np.array(["a", "b", "c"])[np.digitize(Y[:, 0], [-0.5, 0.5])]
    model = KernelLearningClassifier(learner="rfm").fit(X[:80], labels[:80])
    assert model.score(X[80:], labels[80:]) > 0.6
    save_kernel(model.kernel_, tmp_path / "kernel.npz")
    again = load_kernel(tmp_path / "kernel.npz")
    np.testing.assert_array_equal(again.cross_gram(X[80:]), model.kernel_.cross_gram(X[80:]))


@pytest.mark.parametrize(
    ("learner", "reason"),
    [
        (RFM(rounds=-1), "rounds must be a whole number of at least 0, got -1"),
        (RFM(rounds=1.5), "rounds must be a whole number of at least 0, got 1.5"),
        (RFM(rank=0), "rank must be a whole number of at least 1, got 0"),
        (RFM(search_rows=3), "search_rows must be a whole number of at least 10, got 3"),
        (RFM(metric="round"), "metric must be one of both, diagonal, full, got 'round'"),
        (
            RFM(kernels="all"),
            "kernels must be one of auto, both, gaussian, laplacian, wide, euclidean, cityblock, got 'all'",
        ),
        (RFM(weights="best"), "weights must be one of auto, unif, align, alignf, got 'best'"),
    ],
)
def test_parameters_out_of_range_are_refused(learner: RFM, reason: str):
    X, Y = rows()
    with pytest.raises(ValueError, match=reason):
        learner.find(X, Target.of(Y[:, 0]))


def test_nothing_to_learn_from_is_refused():
    X, Y = rows()
    with pytest.raises(ValueError, match="got a constant target"):
        RFM().find(X, Target.of(np.ones(len(X)), "regression"))
    with pytest.raises(ValueError, match="all rows are equal"):
        RFM().find(np.ones_like(X), Target.of(Y[:, 0]))
