"""Views of a table by themselves: effects that add up, taken where they predict better, and what each has."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

from learnkernels import KernelLearningRegressor, learn_kernel
from learnkernels.kernels.centering import center_gram
from learnkernels.kernels.families import FamilyUnion, GaussianFamily
from learnkernels.kernels.learned import TOGETHER, LearnedKernel
from learnkernels.kernels.learners import RFM
from learnkernels.kernels.persistence.kernel import kernel_from_arrays, kernel_to_arrays, load_kernel, save_kernel
from learnkernels.kernels.search.metric import best_left_out
from learnkernels.kernels.tables import TableEncoding

VIEWS = (("numbers", (0, 1)), ("levels", (2, 3, 4)))


def rows(m: int = 160) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows of two numbers and three indicators, and targets with effects that add up, and that do not."""
    rng = np.random.default_rng(0)
    numbers, level = rng.normal(size=(m, 2)), rng.integers(0, 3, m)
    X = np.column_stack([numbers, level[:, None] == np.arange(3)]).astype(float)
    wave, noise = np.sin(2 * numbers[:, 0]), 0.2 * rng.normal(size=m)
    return X, wave + np.array([-1.0, 0.0, 1.0])[level] + noise, wave * np.array([-1.0, 0.2, 1.0])[level] + noise


def learned(y: np.ndarray, X: np.ndarray, **params: object) -> LearnedKernel:
    """Return what rfm learns with few base kernels."""
    return learn_kernel(RFM(rounds=1, kernels="gaussian", scores=False, **params), None, X, y, task="regression")


def test_effects_of_views_add_up():
    X, y, _ = rows()
    kernel = learned(y, X, views=VIEWS, effects="additive")
    assert set(kernel.family.kernel_views) == {"numbers", "levels"}
    at = X[:40].copy()
    other = X[40:80].copy()
    mixed, crossed = at.copy(), other.copy()
    mixed[:, 2:], crossed[:, 2:] = other[:, 2:], at[:, 2:]
    left = kernel.cross_gram(at) + kernel.cross_gram(other)
    np.testing.assert_allclose(
        left, kernel.cross_gram(mixed) + kernel.cross_gram(crossed), atol=1e-12 * np.abs(left).max()
    )
    joint = learned(y, X, views=VIEWS, effects="joint")
    left = joint.cross_gram(at) + joint.cross_gram(other)
    assert np.abs(left - joint.cross_gram(mixed) - joint.cross_gram(crossed)).max() > 0.01 * np.abs(left).max()


def test_what_adds_up_is_taken_where_it_predicts_better():
    X, adding, joint = rows()
    for y, takes in ((adding, True), (joint, False)):
        kernels = {effects: learned(y, X, views=VIEWS, effects=effects) for effects in ("auto", "joint", "additive")}
        losses = {effects: best_left_out(kernel.gram(), y[:, None]).loss for effects, kernel in kernels.items()}
        assert losses["auto"] <= min(losses.values()) * (1 + 1e-9)
        assert (losses["auto"] < losses["joint"]) == takes
        assert (kernels["auto"].view_shares != {TOGETHER: 1.0}) == takes


def test_one_view_changes_nothing():
    X, y, _ = rows()
    expected = learned(y, X)
    for params in ({"views": VIEWS[:1]}, {"views": VIEWS, "effects": "joint"}):
        kernel = learned(y, X, **params)
        assert kernel.family == expected.family
        np.testing.assert_array_equal(kernel.weights, expected.weights)
        assert kernel.view_shares == {TOGETHER: 1.0}


def test_base_kernels_of_a_view_have_equal_traces_and_the_distances_of_all_features():
    X, y, _ = rows()
    kernel = learned(y, X, views=VIEWS, effects="additive")
    shares = kernel.view_shares
    assert sum(shares.values()) == pytest.approx(1.0, rel=1e-12)
    for view, share in shares.items():
        of = [k for k, name in enumerate(kernel.family.kernel_views) if name == view]
        grams = kernel.family.subset(of).tile(kernel.X, kernel.X)
        traces = np.array([np.trace(center_gram(K)) for K in grams]) * kernel.weights[of]
        np.testing.assert_allclose(traces, traces[0], rtol=1e-9)
        everything = (
            np.array([np.trace(center_gram(K)) for K in kernel.family.tile(kernel.X, kernel.X)]) @ kernel.weights
        )
        assert traces.sum() / everything == pytest.approx(share, rel=1e-9)
        # The widest of three Gaussians around the median distance, at which it is exp(-1/4), is so in each view, too.
        apart = grams[0][np.triu_indices(len(X), 1)]
        assert np.median(apart[apart < 1]) == pytest.approx(np.exp(-0.25), rel=1e-6)  # a mean of two middle ones


def test_a_row_of_weight_two_is_two_rows():
    X, y, _ = rows(60)
    w = np.random.default_rng(1).integers(1, 4, 60).astype(float)
    copies = np.repeat(np.arange(60), w.astype(int))
    learner = RFM(rounds=1, kernels="gaussian", views=VIEWS, effects="additive")
    weighted = learn_kernel(learner, None, X, y, task="regression", sample_weight=w)
    repeated = learn_kernel(learner, None, X[copies], y[copies], task="regression")
    assert weighted.view_shares == pytest.approx(repeated.view_shares, rel=1e-6)
    K, L = weighted.cross_gram(X)[:, :5], repeated.cross_gram(X)[:, np.searchsorted(copies, np.arange(5))]
    np.testing.assert_allclose(K / np.abs(K).max(), L / np.abs(L).max(), atol=1e-6)  # the eigenvectors of a full metric


def test_shares_of_views_are_those_of_weights_and_traces_for_every_learner():
    X, y, _ = rows()
    family = FamilyUnion(
        [GaussianFamily([0.1, 1.0]), GaussianFamily([0.3])], [[0, 1], [2, 3, 4]], ["numbers", "levels"]
    )
    for normalise in ("trace", "frobenius", "none"):
        kernel = learn_kernel("unif", family, X, y, normalise=normalise)
        grams = [center_gram(K) for K in family.tile(X, X)]
        held = np.abs(kernel.weights / kernel.scales) * [np.trace(K) for K in grams]
        oracle = {"numbers": held[:2].sum() / held.sum(), "levels": held[2] / held.sum()}
        assert kernel.view_shares == pytest.approx(oracle, rel=1e-9)
    assert learn_kernel("unif", GaussianFamily([0.1, 1.0]), X, y).view_shares == {TOGETHER: 1.0}


def test_shares_of_views_are_kept_in_files_and_older_files_are_read():
    X, y, _ = rows()
    kernel = learned(y, X, views=VIEWS, effects="additive")
    file = io.BytesIO()
    save_kernel(kernel, file)
    file.seek(0)
    assert load_kernel(file).view_shares == kernel.view_shares
    arrays = kernel_to_arrays(kernel)
    del arrays["traces"]
    older = kernel_from_arrays(arrays)
    assert older.traces is None
    np.testing.assert_array_equal(older.gram(), kernel.gram())
    with pytest.raises(ValueError, match="traces must have shape"):
        kernel_from_arrays({**arrays, "traces": kernel.traces[:1]})


def test_a_table_names_its_views():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "size": np.where(rng.random(90) < 0.2, np.nan, rng.normal(size=90)),
            "color": rng.choice(["red", "blue"], 90),
            "day": pd.date_range("2024-01-01", periods=90, freq="D"),
            "shop": [f"shop {i}" for i in rng.integers(0, 40, 90)],
        }
    )
    features = TableEncoding.of(table).features
    assert [name for name, _ in features.views] == ["numbers", "gaps", "categories", "dates", "shop"]
    assert sorted(place for _, places in features.views for place in places) == list(range(len(features)))
    y = table["size"].fillna(0) + (table["color"] == "red") + 0.02 * np.arange(90)
    model = KernelLearningRegressor(learner=RFM(effects="additive")).fit(table, y)
    assert set(model.kernel_.view_shares) <= {"numbers", "gaps", "categories", "dates", "shop"}
    assert sum(model.relevance_.values()) == pytest.approx(1.0, rel=1e-12)
    assert model.score(table, y) > 0.9


def test_views_and_effects_are_checked():
    X, y, _ = rows()
    with pytest.raises(ValueError, match="views must hold columns of X, which has 5"):
        learned(y, X, views=(("numbers", (0, 5)),))
    with pytest.raises(ValueError, match="effects must be one of auto, joint, additive, got 'both'"):
        learned(y, X, views=VIEWS, effects="both")
