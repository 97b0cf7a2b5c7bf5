"""Configured families become the base kernels that they describe."""

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from scipy import sparse

from learnkernels import CosineFamily, FeatureFamily, LaplacianFamily, gram_statistics
from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import FamilyConfig
from learnkernels.kernels.families import DirichletFamily
from learnkernels.tasks.measure import trials
from learnkernels.tasks.measure.families import MOST_FEATURES_BY_TILES, build_family, require_varying

FEATURES = ("age", "height", "weight")


def parsed(**keys: object) -> FamilyConfig:
    return TypeAdapter(FamilyConfig).validate_python(keys)


def test_each_family_is_the_one_described():
    described = [
        ({"family": "laplacian", "gammas": {"from": -2, "to": 0}}, LaplacianFamily([0.25, 0.5, 1.0])),
        ({"family": "laplacian", "norm": 2, "gammas": [0.5]}, LaplacianFamily([0.5], norm=2)),
        ({"family": "cosine"}, CosineFamily()),
        ({"family": "dirichlet", "frequencies": [1.5, 2.0], "degree": 3}, DirichletFamily([1.5, 2.0], 3)),
        ({"family": "feature"}, FeatureFamily(FEATURES)),
        ({"family": "feature", "columns": ["weight", "age"]}, FeatureFamily(["weight", "age"], [2, 0])),
    ]
    for keys, family in described:
        assert build_family([parsed(**keys)], FEATURES) == family


def test_sigmas_are_bandwidths_in_units_of_the_features():
    sigmas = np.array([0.3, 2.0, 7.0])[:, None, None]
    X = np.random.default_rng(4).normal(size=(5, 3))
    distances = X[:, None] - X[None]
    expected = {"gaussian": np.exp(-np.square(distances).sum(axis=-1) / sigmas**2)}
    expected["laplacian"] = np.exp(-np.abs(distances).sum(axis=-1) / sigmas)
    for family, kernels in expected.items():
        tiles = build_family([parsed(family=family, sigmas=[0.3, 2.0, 7.0])], FEATURES).tile(X, X)
        np.testing.assert_allclose(tiles, kernels, rtol=0, atol=1e-15, err_msg=family)  # rounded beside one


def test_features_beside_other_families_keep_their_names_and_columns():
    family = build_family([parsed(family="linear"), parsed(family="feature", columns=["weight", "age"])], FEATURES)
    assert family.names == ("linear", "weight", "age")
    X = np.random.default_rng(1).normal(size=(6, 3))
    np.testing.assert_allclose(family.tile(X, X)[1:], [np.outer(v, v) for v in (X[:, 2], X[:, 0])])


def test_thousands_of_features_beside_other_families_are_refused():
    features = [f"f{c}" for c in range(MOST_FEATURES_BY_TILES + 1)]
    assert build_family([parsed(family="feature")], features).n_kernels == len(features)
    with pytest.raises(InputError, match="family feature next to other families takes at most 1000 columns, got 1001"):
        build_family([parsed(family="feature"), parsed(family="linear")], features)


def test_a_row_of_zeros_is_named_before_a_cosine_kernel_is_computed():
    X = np.random.default_rng(2).normal(size=(30, 3))
    X[17, :2] = 0.0
    some = [parsed(family="cosine", columns=["age", "height"])]
    for rows in (X, sparse.csr_matrix(X)):
        require_varying([parsed(family="cosine")], rows, FEATURES, "data set d")
        with pytest.raises(InputError, match=r"data set d: each row must have a direction.* row 17 of the 30"):
            require_varying(some, rows, FEATURES, "data set d")


def test_a_family_out_of_its_range_is_refused(subtests: pytest.Subtests):
    for keys, sentence in [
        ({"family": "dirichlet", "frequencies": [0]}, "greater than 0"),
        ({"family": "dirichlet", "frequencies": [1], "degree": 0}, "greater than or equal to 1"),
        ({"family": "laplacian", "gammas": []}, "a list"),
        ({"family": "cosine", "gamma": 1}, "unknown key 'gamma'"),
    ]:
        with subtests.test(sentence), pytest.raises(ValidationError, match=sentence):
            parsed(**keys)


@pytest.mark.parametrize("family", ["feature", "linear"])
def test_both_kinds_of_statistics_are_read_back(family: str, tmp_path):
    X, y, folds = np.random.default_rng(3).normal(size=(20, 3)), np.arange(20.0), np.arange(20) % 4
    statistics = gram_statistics(build_family([parsed(family=family)], FEATURES), X, y, folds)
    ref = trials.StatisticsRef("key", str(tmp_path / "key"), 0)
    trials.save_statistics(ref, statistics, folds, 3.0)
    back, folds_back, seconds = trials.load_statistics(ref)
    assert type(back) is type(statistics)
    np.testing.assert_array_equal(*(of.restrict([0, 2]).target_products() for of in (back, statistics)))
    np.testing.assert_array_equal(folds_back, folds)
    # Of 20 rows, 3 seconds: 10 of them have a quarter of the pairs, or half of the rows' features.
    share = trials.share_of_pass(seconds, back, back.restrict([0, 2]))
    assert share == pytest.approx(1.5 if family == "feature" else 0.75)
