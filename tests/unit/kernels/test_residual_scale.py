"""Intervals of locally varying width: the size of the residual at each row."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge

from learnkernels import KernelLearningRegressor, load
from learnkernels.kernels.estimators import (
    fit_on_kernel,
    keep_support,
    set_coefficients,
)
from learnkernels.kernels.families import GaussianFamily
from learnkernels.kernels.predictors import ConjugateGradients, Nystroem
from learnkernels.kernels.predictors.residual_scale import (
    FEWEST_ROWS,
    RIDGES,
    ResidualScale,
    feature_basis,
    ridge_leaving_out,
    ridge_over_splits,
)
from learnkernels.kernels.row_groups import RowGroups
from tests.refusals import require_refusals

FAMILY = GaussianFamily([0.1, 0.4, 1.6])


def noisy_rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, noisy targets, and the size of their noise: from 0.1 where the first column is zero to 1.6."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    size = 0.1 * 4 ** np.abs(X[:, 0])
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + size * rng.normal(size=n), size


def coverage_by_fifth(
    model, X: np.ndarray, y: np.ndarray, size: np.ndarray, alpha: float
) -> np.ndarray:
    """Return the coverage from the least to the most noisy fifth of the rows."""
    low, high = model.predict_interval(X, alpha).T
    is_covered = (low <= y) & (y <= high)
    return np.array(
        [is_covered[rows].mean() for rows in np.array_split(np.argsort(size), 5)]
    )


KINDS = {
    "krr": {"predictor": "krr"},
    "krr, default family": {"family": None},
    "krr-cg": {"predictor": ConjugateGradients(tol=1e-3)},
    "nystroem": {"predictor": Nystroem(n_components=100)},
    "uncentered": {"learner": "l2-krr", "centering": "none", "alpha": 1.0},
    "float32": {"precision": "float32"},
}


@pytest.mark.parametrize("params", KINDS.values(), ids=KINDS)
def test_intervals_hold_as_many_targets_where_noise_is_large_as_where_it_is_small(
    params,
):
    X, y, _ = noisy_rows(2000, seed=0)
    X_new, y_new, size = noisy_rows(4000, seed=1)
    model = KernelLearningRegressor(**{"family": FAMILY, **params}).fit(X, y)
    # Intervals of one width hold all targets of the first fifth and less than half of
    # the last. krr-cg knows the residuals of 400 rows.
    np.testing.assert_allclose(
        coverage_by_fifth(model, X_new, y_new, size, 0.2), 0.8, rtol=0, atol=0.15
    )
    low, high = model.predict_interval(X_new, 0.2).T
    np.testing.assert_allclose(
        (low + high) / 2, model.predict(X_new), rtol=0, atol=1e-9
    )
    assert np.corrcoef(high - low, size)[0, 1] > 0.9


def test_weights_a_learned_kernel_and_sparse_rows_have_local_widths_too():
    X, y, _ = noisy_rows(500, seed=0)
    model = KernelLearningRegressor(family=FAMILY, alpha=1.0).fit(X, y)
    on_kernel = fit_on_kernel(
        KernelLearningRegressor(family=FAMILY, alpha=1.0), model.kernel_, y
    )
    on_sparse = KernelLearningRegressor(family=FAMILY, alpha=1.0).fit(
        sparse.csr_matrix(X), y
    )
    weighted = KernelLearningRegressor(family=FAMILY, alpha=1.0).fit(
        X, y, np.full(500, 3.0)
    )
    expected = model.predict_interval(X)
    assert np.ptp(expected[:, 1] - expected[:, 0]) > 1
    # The kernels are centered around other origins, so that only rounding differs.
    for other in (on_kernel, weighted):
        np.testing.assert_allclose(
            other.predict_interval(X), expected, rtol=0, atol=1e-6
        )
    np.testing.assert_allclose(
        on_sparse.predict_interval(sparse.csr_matrix(X)), expected, rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_left_out_predictions_are_those_of_regressions_without_the_row(weighted: bool):
    rng = np.random.default_rng(0)
    F, weights = rng.normal(size=(25, 6)) + 1, np.ones(25)
    if weighted:
        weights = rng.integers(1, 4, size=25) * 1.0
    Y = np.column_stack([F[:, 0] + 0.1 * rng.normal(size=25), rng.normal(size=25)])
    centered = F - np.average(F, axis=0, weights=weights)
    ridges = RIDGES * np.average(np.square(centered).sum(axis=1), weights=weights)
    everywhere = np.empty((len(ridges), 25, 2))
    for place, ridge in enumerate(ridges):
        for row in range(25):
            others = np.arange(25) != row
            regression = Ridge(alpha=ridge).fit(
                F[others], Y[others], sample_weight=weights[others]
            )
            everywhere[place, row] = regression.predict(F[[row]])[0]
    best = np.argmin(np.einsum("n,lnq->lq", weights, np.square(Y - everywhere)), axis=0)
    assert best[0] < best[1]  # one output follows from the features, and one does not
    left_out, coefficients, intercept = ridge_leaving_out(F, Y, weights)
    for output in range(2):
        np.testing.assert_allclose(
            left_out[:, output], everywhere[best[output], :, output], rtol=0, atol=1e-9
        )
        regression = Ridge(alpha=ridges[best[output]]).fit(
            F, Y[:, output], sample_weight=weights
        )
        np.testing.assert_allclose(
            F @ coefficients[:, output] + intercept[output],
            regression.predict(F),
            atol=1e-9,
        )


@pytest.mark.parametrize("ordered", [False, True])
def test_predictions_over_splits_are_those_of_regressions_on_the_training_rows(
    ordered: bool,
):
    rng = np.random.default_rng(1)
    F, weights = rng.normal(size=(40, 6)) + 1, rng.integers(1, 4, size=40) * 1.0
    Y = np.column_stack([F[:, 0] + 0.1 * rng.normal(size=40), rng.normal(size=40)])
    splits = RowGroups(np.arange(40) // 4, ordered).splits(5)
    centered = F - np.average(F, axis=0, weights=weights)
    ridges = RIDGES * np.average(np.square(centered).sum(axis=1), weights=weights)
    everywhere = np.full((len(ridges), 40, 2), np.nan)
    for place, ridge in enumerate(ridges):
        for training, test in splits:
            regression = Ridge(alpha=ridge).fit(
                F[training], Y[training], sample_weight=weights[training]
            )
            everywhere[place, test] = regression.predict(F[test])
    best = np.argmin(
        np.nansum(weights[:, None] * np.square(Y - everywhere), axis=1), axis=0
    )
    left_out, coefficients, intercept = ridge_over_splits(F, Y, weights, splits)
    for output in range(2):
        np.testing.assert_allclose(
            left_out[:, output], everywhere[best[output], :, output], rtol=0, atol=1e-9
        )
        regression = Ridge(alpha=ridges[best[output]]).fit(
            F, Y[:, output], sample_weight=weights
        )
        np.testing.assert_allclose(
            F @ coefficients[:, output] + intercept[output],
            regression.predict(F),
            atol=1e-9,
        )
    assert np.isnan(left_out).any() == ordered  # the first rows are in no test


def test_intervals_hold_targets_of_new_groups():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(225), 4)
    X = rng.normal(size=(225, 5))[group] + 0.05 * rng.normal(size=(900, 5))
    y = X[:, 0] + rng.normal(size=225)[group] + 0.3 * rng.normal(size=900)
    model = KernelLearningRegressor().fit(X[:600], y[:600], groups=group[:600])
    low, high = model.predict_interval(X[600:], 0.2).T
    is_covered = (low <= y[600:]) & (y[600:] <= high)
    # 75 groups: two standard errors; 0.68 if sizes have seen the groups
    assert 0.7 < is_covered.mean() < 0.9


def test_sizes_are_predicted_without_the_residuals_of_copies():
    X, _, size = noisy_rows(100, seed=0)
    kernel = KernelLearningRegressor(family=FAMILY, alpha=1.0).fit(X, size).kernel_
    rows = np.repeat(np.arange(100), 2)
    residuals = np.random.default_rng(0).exponential(size=(200, 1))
    scale = ResidualScale.fit(kernel, kernel.X[rows], residuals)
    changed = residuals.copy()
    changed[:2] *= [[1.1], [0.9]]
    # The mean of the copies stays
    changed[:2] *= residuals[:2].sum() / changed[:2].sum()
    np.testing.assert_allclose(
        ResidualScale.fit(kernel, kernel.X[rows], changed).dual, scale.dual, rtol=1e-6
    )
    F = kernel.over(np.arange(100)).cross_gram(X) @ feature_basis(
        kernel.over(np.arange(100))
    )
    left_out, _, _ = ridge_leaving_out(
        F, residuals.reshape(100, 2).mean(axis=1)[:, None], np.full(100, 2.0)
    )
    sizes = np.clip(left_out[rows], scale.smallest, scale.largest)
    np.testing.assert_allclose(
        scale.ratios, np.sort(residuals / sizes, axis=0), rtol=1e-6
    )


@pytest.mark.parametrize("repeats", [1, 2])
def test_few_distinct_rows_have_intervals_of_one_width(repeats: int):
    n = FEWEST_ROWS - 1
    X, y, _ = noisy_rows(n + 1, seed=0)
    for n_rows in (n, n + 1):
        rows = np.tile(np.arange(n_rows), repeats)
        model = KernelLearningRegressor(family=FAMILY, alpha=1.0).fit(X[rows], y[rows])
        low, high = model.predict_interval(X).T
        if n_rows == n:
            assert model.residual_scale_ is None
            np.testing.assert_allclose(high - low, (high - low)[0], rtol=1e-12)
        else:
            assert np.ptp(high - low) > 0.01


@pytest.mark.parametrize("unit", [2.0**-900, 1.0, 2.0**400])
def test_each_output_has_a_scale_in_its_unit(unit: float):
    X, y, _ = noisy_rows(300, seed=0)
    kernel = KernelLearningRegressor(family=FAMILY, alpha=1.0).fit(X, y).kernel_
    first = np.abs(y - X[:, 1])[:, None]
    alone = ResidualScale.fit(kernel, kernel.X, first)
    together = ResidualScale.fit(
        kernel, kernel.X, np.hstack([unit * first, first[::-1], 0 * first])
    )
    np.testing.assert_allclose(
        together.dual[:, 0] / unit, alone.dual[:, 0], rtol=1e-9, atol=0
    )
    np.testing.assert_allclose(together.ratios[:, 0], alone.ratios[:, 0], rtol=1e-9)
    # An output without residuals has intervals without width, and not of 0 / 0.
    assert not together.ratios[:, 2].any()
    assert together.smallest[2] == together.largest[2] == 1.0


def test_a_target_that_is_constant_in_one_output_has_no_width_there():
    X, y, _ = noisy_rows(100, seed=0)
    model = KernelLearningRegressor(family=FAMILY, alpha=1.0).fit(
        X, np.column_stack([y, np.full(100, 3.0)])
    )
    low, high = np.moveaxis(model.predict_interval(X), 1, 0)
    assert (high[:, 0] - low[:, 0] > 0.1).all()
    np.testing.assert_allclose(high[:, 1] - low[:, 1], 0.0, atol=1e-9)


def test_support_and_files_keep_intervals_and_earlier_files_have_one_width(tmp_path):
    X, y, _ = noisy_rows(100, seed=0)
    model = KernelLearningRegressor(family=FAMILY, alpha=1.0).fit(X, y)
    dual = model.dual_coef_.copy()
    dual[:50] = 0
    dual[50] -= dual.sum()
    set_coefficients(model, model.kernel_, dual, model.intercept_)
    smaller = keep_support(model)
    assert smaller.kernel_.X.shape == (50, 2)
    np.testing.assert_allclose(
        smaller.predict_interval(X), model.predict_interval(X), rtol=0, atol=1e-9
    )
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))
    del model.residual_scale_
    model.save(tmp_path / "earlier.safetensors")
    low, high = load(tmp_path / "earlier.safetensors").predict_interval(X).T
    # The 91st of 100
    np.testing.assert_allclose((high - low) / 2, model.residuals_[90, 0], rtol=1e-9)


# Quantiles -----------------------------------------------------------------------------------------------------------

LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])


def skewed_rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of `noisy_rows` with exponential noise of the same size, which is positive."""
    X, _, size = noisy_rows(n, seed)
    noise = np.random.default_rng(seed + 100).exponential(size=n)
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + size * noise, size


def shares_below(model, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the share of targets below each of the quantiles `LEVELS`."""
    return (y[:, None] <= model.predict_quantiles(X, LEVELS)).mean(axis=0)


QUANTILE_KINDS = {
    **KINDS,
    "boosted": {"boost": HistGradientBoostingRegressor(max_iter=30, random_state=0)},
    "one width": {},
}


@pytest.mark.parametrize("draw", [noisy_rows, skewed_rows])
@pytest.mark.parametrize("kind", QUANTILE_KINDS)
def test_as_many_targets_are_below_each_quantile_as_it_says(kind: str, draw):
    X, y, _ = draw(1200, seed=0)
    X_new, y_new, size = draw(4000, seed=1)
    model = KernelLearningRegressor(**{"family": FAMILY, **QUANTILE_KINDS[kind]}).fit(
        X, y
    )
    n_residuals = 400 if kind == "krr-cg" else 1200
    if kind == "one width":
        model.residual_scale_ = None
    # Three standard deviations of the difference of a share of the residuals and a
    # share of the new rows.
    spread = 3 * np.sqrt(LEVELS * (1 - LEVELS) * (1 / n_residuals + 1 / 4000))
    assert (np.abs(shares_below(model, X_new, y_new) - LEVELS) <= spread).all()
    if kind == "one width":
        return
    for rows in np.array_split(np.argsort(size), 5):
        # Quantiles of one width are wrong by 0.25 where there is little noise.
        np.testing.assert_allclose(
            shares_below(model, X_new[rows], y_new[rows]), LEVELS, rtol=0, atol=0.2
        )


def test_quantiles_never_cross_and_follow_a_skewed_noise():
    X, y, _ = skewed_rows(1200, seed=0)
    model = KernelLearningRegressor(family=FAMILY).fit(X, y)
    levels = np.sort(
        np.r_[np.random.default_rng(0).uniform(0.001, 0.999, size=2000), 0.001, 0.999]
    )
    values = model.predict_quantiles(X[:50], levels)
    assert values.shape == (50, 2002)
    assert (np.diff(values, axis=1) >= 0).all()
    np.testing.assert_array_equal(
        model.predict_quantiles(X[:50], levels[::-1]), values[:, ::-1]
    )
    low, median, high = model.predict_quantiles(X).T
    assert (high - median > 2 * (median - low)).all()
    assert (median < model.predict(X)).all()  # the mean
    interval = model.predict_interval(X, alpha=0.2)
    assert (interval.mean(axis=1) < (low + high) / 2).all()


def test_quantiles_of_symmetric_residuals_are_the_bounds_of_intervals():
    X, y, _ = noisy_rows(99, seed=0)
    model = KernelLearningRegressor(family=FAMILY, alpha=1.0).fit(X, y)
    scale = model.residual_scale_
    # Each twice, except for the first
    ratios = np.repeat(scale.ratios[:50], 2, axis=0)[1:]
    signed = np.sort(np.concatenate([-scale.ratios[:49], scale.ratios[:50]]), axis=0)
    model.residual_scale_ = replace(scale, ratios=ratios, signed_ratios=signed)
    for alpha in (0.1, 0.5):
        bounds = model.predict_quantiles(X, [alpha / 2, 1 - alpha / 2])
        # Ranks of an interval are whole, and of a quantile are between two: at most a
        # step of the ratios apart.
        step = np.diff(ratios[:, 0]).max() * scale.sizes(
            model._scores_of(scale.scores, X)
        )
        assert (np.abs(bounds - model.predict_interval(X, alpha)) <= 2 * step).all()


def test_quantiles_are_order_statistics_of_the_signed_residuals():
    X, y, _ = noisy_rows(FEWEST_ROWS - 1, seed=0)
    model = KernelLearningRegressor(family=FAMILY, alpha=1.0).fit(X, y)
    n = len(y)
    assert model.residual_scale_ is None
    np.testing.assert_allclose(
        np.sort(np.abs(model.signed_residuals_), axis=0),
        model.residuals_,
        rtol=0,
        atol=0,
    )
    ranks = np.arange(1, n + 1)
    expected = model.predict(X)[:, None] + model.signed_residuals_[:, 0]
    np.testing.assert_allclose(
        model.predict_quantiles(X, ranks / (n + 1)), expected, rtol=0, atol=1e-9
    )
    between = model.predict_quantiles(X, (ranks[:-1] + 0.5) / (n + 1))
    np.testing.assert_allclose(
        between, (expected[:, :-1] + expected[:, 1:]) / 2, rtol=0, atol=1e-9
    )


def test_each_output_has_quantiles_of_its_own():
    X, y, _ = noisy_rows(300, seed=0)
    Y = np.column_stack([y, -y, np.full(300, 3.0)])
    values = (
        KernelLearningRegressor(family=FAMILY, alpha=1.0)
        .fit(X, Y)
        .predict_quantiles(X, [0.2, 0.8])
    )
    assert values.shape == (300, 2, 3)
    np.testing.assert_allclose(values[:, :, 1], -values[:, ::-1, 0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(values[:, :, 2], 3.0, rtol=0, atol=1e-9)


def test_quantiles_hold_for_targets_of_new_groups_and_later_times():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(225), 4)
    X = rng.normal(size=(225, 5))[group] + 0.05 * rng.normal(size=(900, 5))
    y = X[:, 0] + rng.exponential(size=225)[group] + 0.3 * rng.normal(size=900)
    for name in ("groups", "time"):
        model = KernelLearningRegressor().fit(X[:600], y[:600], **{name: group[:600]})
        below = (y[600:, None] <= model.predict_quantiles(X[600:], [0.2, 0.8])).mean(
            axis=0
        )
        # 75 groups: about two standard errors
        np.testing.assert_allclose(below, [0.2, 0.8], rtol=0, atol=0.12)


def test_files_keep_quantiles_and_refits_without_intervals_drop_them(tmp_path):
    X, y, _ = skewed_rows(100, seed=0)
    model = KernelLearningRegressor(family=FAMILY, alpha=1.0).fit(X, y)
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        again.predict_quantiles(X), model.predict_quantiles(X)
    )
    np.testing.assert_allclose(
        keep_support(model).predict_quantiles(X),
        model.predict_quantiles(X),
        rtol=0,
        atol=1e-9,
    )
    with pytest.warns(UserWarning, match="constant"):
        constant = KernelLearningRegressor().fit(X, np.full(100, 2.0))
    np.testing.assert_array_equal(constant.predict_quantiles(X), np.full((100, 3), 2.0))
    without = model.set_params(intervals=False).fit(X, y)
    assert not hasattr(without, "signed_residuals_")
    assert not hasattr(without, "predict_quantiles")


def test_quantiles_that_the_residuals_cannot_tell_are_refused():
    X, y, _ = noisy_rows(99, seed=0)
    model = KernelLearningRegressor(family=FAMILY, alpha=1.0).fit(X, y)
    assert model.predict_quantiles(X, (0.01, 0.99)).shape == (99, 2)
    wrong = [
        0.5,
        "0.5",
        [0.5, "a"],
        [[0.5]],
        [0.5, np.nan],
        [0.0],
        [1.0],
        [0.009],
        [0.991],
        [50],
        [True],
        None,
        [None],
    ]
    sentence = "quantiles must be a sequence of numbers from 1/100 to 99/100, as 99 residuals are known, got"
    require_refusals(
        [
            (partial(model.predict_quantiles, X, quantiles), sentence)
            for quantiles in wrong
        ]
    )
    with pytest.raises(NotFittedError):
        KernelLearningRegressor().predict_quantiles(X)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array])
def test_intervals_of_sparse_rows_are_saved(kind, tmp_path):
    X, y, _ = noisy_rows(60, seed=0)
    model = KernelLearningRegressor(family=FAMILY, alpha=1.0).fit(kind(X), y)
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        again.predict_interval(kind(X)), model.predict_interval(kind(X))
    )


def test_a_scale_that_does_not_fit_the_model_is_refused(tmp_path):
    X, y, _ = noisy_rows(60, seed=0)
    model = KernelLearningRegressor(family=FAMILY, alpha=1.0).fit(X, y)
    scale = model.residual_scale_
    unordered = r"must have bounds with 0 < smallest <= largest"
    wrong = {
        "ratios": (scale.ratios[:, [0, 0]], "^ratios of .* must have shape"),
        "signed_ratios": (
            scale.signed_ratios[1:],
            "^signed_ratios of .* must have shape",
        ),
        "dual": (scale.dual[1:], "^X of residual_scale_ must have shape"),
        "intercept": (np.array([np.nan]), "^intercept of .* must be finite"),
        "smallest": (np.zeros(1), unordered),
        "largest": (scale.smallest / 2, unordered),
        "kernel": (
            replace(scale.kernel, X=scale.kernel.X[:, :1]),
            "^origin must have shape",
        ),
    }

    def save_with(name: str, value: object):
        def save() -> None:
            model.residual_scale_ = replace(scale, **{name: value})
            model.save(tmp_path / "model.safetensors")

        return save

    require_refusals(
        [(save_with(name, value), pattern) for name, (value, pattern) in wrong.items()]
    )
