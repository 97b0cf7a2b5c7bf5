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


X, ADDING, JOINT = rows()


def learned(y: np.ndarray = ADDING, X: np.ndarray = X, sample_weight=None, **params: object) -> LearnedKernel:
    """Return what rfm learns with few base kernels."""
    learner = RFM(rounds=1, kernels="gaussian", scores=False, **params)
    return learn_kernel(learner, None, X, y, task="regression", sample_weight=sample_weight)


@pytest.fixture(scope="module")
def additive() -> LearnedKernel:
    return learned(views=VIEWS, effects="additive")


def test_effects_of_views_add_up(additive):
    assert set(additive.family.kernel_views) == {"numbers", "levels"}
    at, other = X[:40], X[40:80]
    mixed, crossed = (np.hstack([one[:, :2], two[:, 2:]]) for one, two in ((at, other), (other, at)))

    def interaction(kernel: LearnedKernel) -> float:
        left, right = kernel.cross_gram(at) + kernel.cross_gram(other), kernel.cross_gram(mixed)
        return np.abs(left - right - kernel.cross_gram(crossed)).max() / np.abs(left).max()

    assert interaction(additive) < 1e-12
    assert interaction(learned(views=VIEWS, effects="joint")) > 0.01


def test_what_adds_up_is_taken_where_it_predicts_better():
    for y, takes in ((ADDING, True), (JOINT, False)):
        kernels = {effects: learned(y, views=VIEWS, effects=effects) for effects in ("auto", "joint", "additive")}
        losses = {effects: best_left_out(kernel.gram(), y[:, None]).loss for effects, kernel in kernels.items()}
        assert losses["auto"] <= min(losses.values()) * (1 + 1e-9)
        assert (losses["auto"] < losses["joint"]) == takes
        assert (kernels["auto"].view_shares != {TOGETHER: 1.0}) == takes


def test_one_view_changes_nothing():
    expected = learned()
    for params in ({"views": VIEWS[:1]}, {"views": VIEWS, "effects": "joint"}):
        kernel = learned(**params)
        assert kernel.family == expected.family
        np.testing.assert_array_equal(kernel.weights, expected.weights)
        assert kernel.view_shares == {TOGETHER: 1.0}


def test_base_kernels_of_a_view_have_equal_traces_and_the_distances_of_all_features(additive):
    shares, family = additive.view_shares, additive.family
    assert sum(shares.values()) == pytest.approx(1.0, rel=1e-12)
    grams = family.tile(additive.X, additive.X)
    traces = np.array([np.trace(center_gram(K)) for K in grams]) * additive.weights
    for view, share in shares.items():
        of = np.array(family.kernel_views) == view
        np.testing.assert_allclose(traces[of], traces[of][0], rtol=1e-9)
        assert traces[of].sum() / traces.sum() == pytest.approx(share, rel=1e-9)
        # The widest of three Gaussians around the median distance, at which it is exp(-1/4), is so in each view, too.
        apart = grams[of][0][np.triu_indices(len(X), 1)]
        assert np.median(apart[apart < 1]) == pytest.approx(np.exp(-0.25), rel=1e-6)  # a mean of two middle ones


def test_a_row_of_weight_two_is_two_rows():
    few, y, _ = rows(60)
    w = np.random.default_rng(1).integers(1, 4, 60)
    copies = np.repeat(np.arange(60), w)
    weighted = learned(y, few, w.astype(float), views=VIEWS, effects="additive")
    repeated = learned(y[copies], few[copies], views=VIEWS, effects="additive")
    assert weighted.view_shares == pytest.approx(repeated.view_shares, rel=1e-6)
    K, L = weighted.cross_gram(few)[:, :5], repeated.cross_gram(few)[:, np.searchsorted(copies, np.arange(5))]
    np.testing.assert_allclose(K / np.abs(K).max(), L / np.abs(L).max(), atol=1e-6)  # the eigenvectors of a full metric


def test_shares_of_views_are_those_of_weights_and_traces_for_every_learner():
    parts = [GaussianFamily([0.1, 1.0]), GaussianFamily([0.3])]
    family = FamilyUnion(parts, [[0, 1], [2, 3, 4]], ["numbers", "levels"])
    for normalise in ("trace", "frobenius", "none"):
        kernel = learn_kernel("unif", family, X, ADDING, normalise=normalise)
        grams = [center_gram(K) for K in family.tile(X, X)]
        held = np.abs(kernel.weights / kernel.scales) * [np.trace(K) for K in grams]
        oracle = {"numbers": held[:2].sum() / held.sum(), "levels": held[2] / held.sum()}
        assert kernel.view_shares == pytest.approx(oracle, rel=1e-9)
    assert learn_kernel("unif", GaussianFamily([0.1, 1.0]), X, ADDING).view_shares == {TOGETHER: 1.0}


def test_shares_of_views_are_kept_in_files_and_older_files_are_read(additive):
    file = io.BytesIO()
    save_kernel(additive, file)
    file.seek(0)
    assert load_kernel(file).view_shares == additive.view_shares
    arrays = kernel_to_arrays(additive)
    del arrays["traces"]
    older = kernel_from_arrays(arrays)
    assert older.traces is None
    np.testing.assert_array_equal(older.gram(), additive.gram())
    with pytest.raises(ValueError, match="traces must have shape"):
        kernel_from_arrays({**arrays, "traces": additive.traces[:1]})


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
    with pytest.raises(ValueError, match="views must hold columns of X, which has 5"):
        learned(views=(("numbers", (0, 5)),))
    with pytest.raises(ValueError, match="effects must be one of auto, joint, additive, got 'both'"):
        learned(views=VIEWS, effects="both")
