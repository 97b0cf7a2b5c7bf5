"""Synthetic data sets: what is drawn is what was described, and a seed repeats it."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema.datasets import DatasetConfig, SyntheticName
from learnkernels.tasks.data.dataset import Dataset, dataset_digest, load_dataset
from learnkernels.tasks.data.ingest import ingest, load_source
from learnkernels.tasks.data.synthetic import (
    DISTANCE,
    SYNTHETIC,
    read_synthetic,
    relevances,
)
from tests.refusals import require_refusals


def loaded(name: str, seed: int = 0, protocol_seed: int = 0, **keys: Any) -> Dataset:
    config = {"source": "synthetic", "name": name, "params": {}, "seed": seed, **keys}
    return load_source(DatasetConfig.of(config), seed=protocol_seed)


def labels(dataset: Dataset) -> np.ndarray:
    return dataset.target.Y[:, 0]


@pytest.mark.parametrize(
    ("name", "shape"), [("three_sines", (2000, 1)), ("relevance", (2050, 50))]
)
def test_a_set_has_the_rows_of_the_paper_and_its_own_seed(
    name: str, shape: tuple[int, int]
):
    one, again, other = (loaded(name, seed) for seed in (0, 0, 1))
    assert (one.X.shape, one.features) == (
        shape,
        tuple(f"x{c}" for c in range(1, shape[1] + 1)),
    )
    assert (one.target.task, one.target.classes) == ("classification", ("-1", "1"))
    assert (
        dataset_digest(one)
        == dataset_digest(again)
        == dataset_digest(loaded(name, protocol_seed=9))
    )
    assert not np.isin(one.X, other.X).any()
    # Both classes are about equally likely: half the rows within four deviations of a
    # fair coin.
    assert abs(labels(one).mean()) < 4 / np.sqrt(shape[0])


def test_three_sines_are_labeled_by_the_sign_of_their_sum():
    dataset = loaded("three_sines", params={"rows": 500})
    assert dataset.X.shape == (500, 1)
    assert (np.abs(dataset.X) <= 10).all()
    assert np.ptp(dataset.X) > 19.5
    for x, label in zip(dataset.X[:, 0], labels(dataset), strict=True):
        assert label == np.sign(
            np.sin(np.sqrt(2) * x) + np.sin(np.sqrt(12) * x) + np.sin(np.sqrt(60) * x)
        )


def test_five_features_of_friedman_tell_all_but_the_noise():
    dataset = loaded("friedman", params={"rows": 4000, "irrelevant": 3})
    assert (dataset.X.shape, dataset.target.task) == ((4000, 8), "regression")
    assert ((dataset.X >= 0) & (dataset.X < 1)).all()
    x = dataset.X.T
    noise = dataset.target.values - (
        10 * np.sin(np.pi * x[0] * x[1]) + 20 * (x[2] - 0.5) ** 2 + 10 * x[3] + 5 * x[4]
    )
    # Four standard errors of a mean and of a deviation of 4,000 normal numbers.
    assert abs(noise.mean()) < 4 / np.sqrt(4000)
    assert abs(noise.std() - 1) < 4 / np.sqrt(8000)
    assert np.abs(np.corrcoef(noise, dataset.X.T)[0, 1:]).max() < 0.08


@pytest.mark.parametrize("gamma", [0, 1, 5, 40])
def test_means_differ_by_the_relevance_of_each_feature_and_nothing_else_does(
    gamma: float,
):
    dataset = loaded("relevance", params={"gamma": gamma, "rows": 40000, "features": 8})
    assert dataset.X.shape == (40000, 8)
    theta = (np.arange(1, 9) / 8) ** gamma
    np.testing.assert_allclose(relevances(gamma, 8), theta, rtol=1e-12)
    means = (dataset.X * labels(dataset)[:, None]).mean(axis=0)
    deviation = 1 / np.sqrt(40000)
    np.testing.assert_allclose(
        means, DISTANCE * theta / np.linalg.norm(theta), rtol=0, atol=5 * deviation
    )
    assert np.linalg.norm(means) == pytest.approx(1.75, abs=5 * deviation)
    noise = dataset.X - labels(dataset)[:, None] * means
    np.testing.assert_allclose(
        np.cov(noise.T), np.eye(8), rtol=0, atol=6 * np.sqrt(2) * deviation
    )
    # The best rule, and one that takes all features for equally relevant, err as often
    # as theory says.
    for rule in (theta, np.ones(8)):
        expected = norm.cdf(
            -1.75 * theta @ rule / np.linalg.norm(theta) / np.linalg.norm(rule)
        )
        error = np.mean(np.sign(dataset.X @ rule) != labels(dataset))
        assert error == pytest.approx(
            expected, abs=4 * np.sqrt(expected * (1 - expected) / 40000)
        )


def test_the_keys_of_other_data_sets_work_here_too():
    small = partial(loaded, "relevance", params={"rows": 200, "features": 4})
    positive = small(positive="-1")
    assert positive.target.classes == ("rest", "-1")
    np.testing.assert_array_equal(labels(positive), -labels(small()))
    some = small(drop=["x2"], scale="unit", missing="drop")
    assert some.features == ("x1", "x3", "x4")
    np.testing.assert_allclose(
        [some.X.min(axis=0), some.X.max(axis=0)], [[0] * 3, [1] * 3]
    )
    few, others = (
        loaded("three_sines", protocol_seed=seed, subsample=20) for seed in (0, 1)
    )
    assert few.X.shape == (20, 1)
    assert not np.array_equal(few.X, others.X)
    numbers = loaded("three_sines", task="regression").target
    assert (numbers.task, set(numbers.values)) == ("regression", {-1.0, 1.0})


def test_a_reference_says_where_the_rows_come_from():
    config = DatasetConfig.of(
        {"source": "synthetic", "name": "relevance", "params": {"gamma": 5}}
    )
    ref = ingest.fn(config, ".", 0)
    assert (ref.name, ref.source, ref.n_rows) == (
        "relevance gamma=5",
        "synthetic:relevance gamma=5",
        2050,
    )
    np.testing.assert_array_equal(
        load_dataset(ref).X, loaded("relevance", params={"gamma": 5}).X
    )


WHOLE = "must be a whole number of at least 10, got"
POSITIVE = "'positive' must be one of several values of the target, got '2'.*'-1', '1'"
FAULTY: list[tuple[str, dict[str, Any], str]] = [
    (
        "relevance",
        {"params": {"gama": 1}},
        "relevance has no parameter .gama.; did you mean .gamma.[?] it takes ro",
    ),
    (
        "three_sines",
        {"params": {"gamma": 1}},
        "three_sines has no parameter 'gamma'; it takes rows",
    ),
    ("three_sines", {"params": {"rows": 9}}, f"'params.rows' of three_sines {WHOLE} 9"),
    ("three_sines", {"params": {"rows": 50.5}}, f"{WHOLE} 50.5"),
    ("three_sines", {"params": {"rows": True}}, f"{WHOLE} True"),
    (
        "relevance",
        {"params": {"features": 0}},
        "'params.features' of relevance must be .* at least 1, got 0",
    ),
    (
        "relevance",
        {"params": {"gamma": -1}},
        "'params.gamma' of relevance must be a number of at least 0, got -1",
    ),
    (
        "relevance",
        {"params": {"gamma": "much"}},
        "must be a number of at least 0, got 'much'",
    ),
    (
        "relevance",
        {"params": {"gamma": float("inf")}},
        "must be a number of at least 0, got inf",
    ),
    (
        "three_sines",
        {"drop": ["x1"]},
        "'drop' must leave out some of the features x1 to x1, got x1",
    ),
    (
        "relevance",
        {"drop": ["x51"]},
        "'drop' must leave out some of the features x1 to x50, got x51",
    ),
    ("relevance", {"positive": "2"}, POSITIVE),
]


def test_a_faulty_description_gets_one_sentence():
    assert set(SyntheticName.__args__) == set(SYNTHETIC)
    refused = [(partial(loaded, name, **keys), said) for name, keys, said in FAULTY]
    unknown = partial(read_synthetic, "sines", {}, 0, (), "data set d")
    said = (
        r"data set d: .* no synthetic data set 'sines'; choose one of three_sines, rel"
    )
    require_refusals([*refused, (unknown, said)], error=InputError)
