"""C and alpha that are left to the data."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.metrics import log_loss

from learnkernels import (
    GaussianFamily,
    KernelLearningClassifier,
    KernelLearningRegressor,
    learn_kernel,
)
from learnkernels.kernels.learners import NKRR
from learnkernels.kernels.predictors import KRR, ConjugateGradients, TrainingSet, choice
from learnkernels.kernels.predictors.calibration import (
    calibrated_log_loss,
    fit_calibration,
    probabilities,
)
from learnkernels.kernels.predictors.choice import GRID, RIDGES, ROUGH, best_on_grid
from learnkernels.kernels.targets import Target
from tests.reference import bordered

FAMILY = GaussianFamily([0.25, 1.0, 4.0])
MOONS, SIDES = make_moons(500, noise=0.3, random_state=0)


def waves(m: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(m, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=m)


def held_out_scores(
    X: np.ndarray, y: np.ndarray, Y: np.ndarray, alpha: float
) -> np.ndarray:
    """The prediction of Y for each row by a ridge regression that is fitted without it, on one kernel."""
    kernel = learn_kernel(X, y, learner="alignf", family=FAMILY)
    K, m = kernel.gram(), len(X)
    K, scores = K / (np.trace(K) / m), np.empty(Y.shape)
    for row in range(m):
        kept = np.arange(m) != row
        dual, intercept = bordered(K[np.ix_(kept, kept)], Y[kept], alpha)
        scores[row] = K[row, kept] @ dual + intercept
    return scores


def test_alpha_has_the_least_leave_one_out_residuals():
    X, y = waves(60)
    model = KernelLearningRegressor(family=FAMILY, alpha="auto").fit(X, y)
    alpha = model.alpha_
    assert alpha == 1 / model.C_
    position = RIDGES.index(alpha)
    assert 0 < position < len(RIDGES) - 1
    ridges = [RIDGES[position + step] for step in (-1, 0, 1)]
    errors = [
        np.square(y - held_out_scores(X, y, y[:, None], ridge)[:, 0]).sum()
        for ridge in ridges
    ]
    assert errors[1] == min(errors)
    same = KernelLearningRegressor(family=FAMILY, alpha=alpha).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), same.predict(X))
    assert same.C_ == model.C_


def test_the_ridge_of_a_power_has_the_least_residuals_around_the_means_of_the_other_targets():
    X, y = waves(60)
    kernel = replace(
        learn_kernel(X, y, learner=NKRR(degree=2, offset=1.0), family=FAMILY, C=1.0),
        C=None,
    )
    K = kernel.gram() / (np.trace(kernel.gram()) / 60)

    def error(ridge: float) -> float:
        residuals = np.empty(60)
        for row in range(60):
            others = np.delete(np.arange(60), row)
            mean = y[others].mean()
            dual = np.linalg.solve(
                K[np.ix_(others, others)] + ridge * np.eye(59), y[others] - mean
            )
            residuals[row] = y[row] - K[row, others] @ dual - mean
        return float(np.square(residuals).sum())

    chosen = choice.best_C(
        TrainingSet.of(kernel, None, np.arange(60)),
        Target.of(y, "regression"),
        KRR(),
        0,
    )
    position = RIDGES.index(1 / chosen)
    assert 0 < position < len(RIDGES) - 1
    errors = [error(RIDGES[position + step]) for step in (-1, 0, 1)]
    assert errors[1] == min(errors)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_ridge_of_a_classifier_has_the_least_log_loss_of_rows_that_are_left_out(
    n_classes: int,
):
    X = np.random.default_rng(0).normal(size=(90, 2))
    noise = 0.5 * np.random.default_rng(1).normal(size=90)
    y = np.digitize(X[:, 0] + X[:, 1] ** 2 + noise, [0.0, 1.5][: n_classes - 1])
    Y = np.eye(3)[y] if n_classes == 3 else np.where(y, 1.0, -1.0)[:, None]
    model = KernelLearningClassifier(family=FAMILY, predictor="krr").fit(X, y)
    position = RIDGES.index(1 / model.C_)
    assert 0 < position < len(RIDGES) - 1

    def loss(ridge: float) -> float:
        scores = held_out_scores(X, y, Y, ridge)
        scores = scores[:, 0] if n_classes == 2 else scores
        return float(
            log_loss(y, probabilities(scores, fit_calibration(scores, y, None)))
        )

    losses = [loss(RIDGES[position + step]) for step in (-1, 0, 1)]
    assert losses[1] == min(losses)


def test_the_log_loss_of_copies_is_that_of_the_shares_of_their_classes():
    rng = np.random.default_rng(0)
    for n_classes in (2, 3):
        scores, counts = (
            rng.normal(size=(40, 1 if n_classes == 2 else 3)),
            rng.integers(1, 4, (40, n_classes)),
        )
        rows = np.repeat(np.arange(40), counts.sum(axis=1))
        codes = np.concatenate([np.repeat(range(n_classes), c) for c in counts])
        copies = scores[rows] if n_classes == 3 else scores[rows, 0]
        P = probabilities(copies, fit_calibration(copies, codes, None))
        weights = counts.sum(axis=1).astype(float)
        found = calibrated_log_loss(scores, counts / weights[:, None], weights)
        # Newton's method stops at 1e-13
        assert found == pytest.approx(log_loss(codes, P, normalize=False), rel=1e-9)


@pytest.mark.parametrize("predictor", ["svm", "krr"])
def test_an_automatic_c_errs_no_more_than_most_of_the_grid(predictor: str):
    models = [
        KernelLearningClassifier(family=FAMILY, C=C, predictor=predictor)
        for C in ("auto", *GRID)
    ]
    auto, *scores = [
        model.fit(MOONS[:150], SIDES[:150]).score(MOONS[150:], SIDES[150:])
        for model in models
    ]
    assert models[0].C_ in (
        GRID if predictor == "svm" else {1 / ridge for ridge in RIDGES}
    )
    assert auto >= np.median(scores)


def test_the_least_error_is_looked_for_among_neighbors():
    table = [
        ([9, 5, 2, 4, 9], 2),
        ([9, 5, 1, 9, 9, 3, 3, 3, 9], 6),  # neighbors speak against one that was lucky
        (
            [9, 5, 1, 1, 1, 1, 1, 1, 1],
            6,
        ),  # of equal ones, which stand beside others no more, that in the middle
        ([0, 0, 0, 0], 2),
        ([0.1 * 3, 0.3, 0.3, 9], 1),  # equal but for rounding
    ]
    found = [
        best_on_grid(np.array([errors], dtype=float), smooth=True)
        for errors, _ in table
    ]
    assert found == [(0, position) for _, position in table]


def test_all_predictors_of_one_loss_choose_alike():
    numbers = (KernelLearningRegressor(family=FAMILY, alpha="auto"), *waves())
    for model, X, y in (
        numbers,
        (KernelLearningClassifier(family=FAMILY, C="auto"), MOONS[:150], SIDES[:150]),
    ):
        models = [
            clone(model).set_params(predictor=name).fit(X, y)
            for name in ("krr", "krr-cg", "nystroem")
        ]
        assert len({model.C_ for model in models}) == 1


def test_a_weight_of_two_is_two_copies_and_weights_are_taken_by_ridge_regressions():
    X, y = MOONS[:80], SIDES[:80]
    # Of mean 4, by which a grid of powers of 4 is still itself
    w = np.where(np.arange(80) % 2 == 0, 7.0, 1.0)
    copies = np.repeat(np.arange(80), w.astype(int))
    weighted = KernelLearningClassifier(family=FAMILY, C="auto").fit(
        X, y, sample_weight=w
    )
    repeated = KernelLearningClassifier(family=FAMILY, C="auto").fit(
        X[copies], y[copies]
    )
    assert weighted.C_ == 4 * repeated.C_
    ridge = KernelLearningClassifier(
        family=FAMILY, C="auto", predictor="krr", class_weight={0: 1, 1: 3}
    ).fit(X, y)
    assert 1 / ridge.C_ in RIDGES
    assert ridge.score(X, y) > 0.8


def test_many_rows_are_told_by_some(monkeypatch: pytest.MonkeyPatch):
    X, y = waves(200)
    whole = KernelLearningRegressor(family=FAMILY, alpha="auto").fit(X, y)
    monkeypatch.setattr(choice, "SELECTION_ROWS", 100)
    part, again = (
        KernelLearningRegressor(family=FAMILY, alpha="auto").fit(X, y) for _ in range(2)
    )
    assert part.C_ == again.C_
    assert 1 / 8 <= part.C_ / whole.C_ <= 8
    assert part.dual_coef_.shape == (200, 1)


def test_probabilities_are_those_of_the_c_that_was_chosen():
    auto = KernelLearningClassifier(family=FAMILY, C="auto", probability=True).fit(
        MOONS[:120], SIDES[:120]
    )
    same = clone(auto).set_params(C=auto.C_).fit(MOONS[:120], SIDES[:120])
    np.testing.assert_array_equal(auto.predict_proba(MOONS), same.predict_proba(MOONS))


def test_ridges_of_classes_that_are_told_roughly_stay_above_a_least_one():
    X = np.random.default_rng(0).normal(size=(200, 2))
    y = X[:, 0] > 0  # without noise the least ridge errs least
    predictors = [ConjugateGradients(tolerance) for tolerance in (None, 1e-3, ROUGH)]
    models = [
        KernelLearningClassifier(family=FAMILY, predictor=predictor).fit(X, y)
        for predictor in predictors
    ]
    usual, loose, decided = (1 / model.C_ for model in models)
    assert usual == loose < choice.LEAST_DECIDED == decided


def test_classes_of_many_rows_are_told_by_all_of_them(monkeypatch: pytest.MonkeyPatch):
    X, y = make_moons(500, noise=0.2, random_state=0)
    exact = KernelLearningClassifier(family=FAMILY).fit(X[:300], y[:300])
    monkeypatch.setattr(choice, "EXACT_ROWS", 200)
    monkeypatch.setattr(choice, "SINGLE_ROWS", 250)
    many = KernelLearningClassifier(family=FAMILY).fit(X[:300], y[:300])
    assert (exact.predictor_, many.predictor_) == ("svm", "krr-cg")
    assert "more than the 250 up to which" in many.predictor_reason_
    assert many.score(X[300:], y[300:]) > exact.score(X[300:], y[300:]) - 0.02
