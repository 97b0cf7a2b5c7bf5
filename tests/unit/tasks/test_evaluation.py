"""Which predictor a learner is evaluated with, and under which name its results are stored."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from pydantic import TypeAdapter, ValidationError
from scipy import integrate, sparse, special, stats

from learnkernels import CosineFamily, FeatureFamily, LaplacianFamily, gram_statistics
from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import CompareConfig, FamilyConfig
from learnkernels.kernels.families import DirichletFamily
from learnkernels.kernels.predictors.choice import ROUGH
from learnkernels.tasks.data.dataset import DatasetRef
from learnkernels.tasks.measure import t_tests, trials
from learnkernels.tasks.measure.families import (
    MOST_FEATURES_BY_TILES,
    build_family,
    require_varying,
)
from learnkernels.tasks.measure.run_learner import (
    predictor_for,
    predictor_memory,
    predictor_options,
)


def config(
    learner: str = "alignf", predictor: Any = "auto", **keys: Any
) -> CompareConfig:
    data = {
        "name": "small",
        "datasets": ["wine"],
        "kernels": ["linear"],
        "learners": [learner],
        "predictor": predictor,
    }
    return CompareConfig.model_validate(data | keys)


def rows(task: str = "classification", n_rows: int = 178) -> DatasetRef:
    return DatasetRef("wine", "d", "p", task, "s", n_rows, 13)


def chosen(learner: str, predictor: Any, task: str = "classification") -> str:
    of = config(learner, predictor)
    return predictor_for(of, of.learners[0], rows(task)).predictor.name


def test_a_learner_is_followed_by_its_predictor_or_the_one_named():
    expected = {("alignf", "auto"): "svm", ("alignf", "krr"): "krr"}
    expected |= {("l2-krr", "auto"): "krr", ("l2-krr", "svm"): "svm"}
    # It combines ridge regressions, whatever the others are followed by.
    expected |= {("ensemble", "auto"): "krr", ("ensemble", "svm"): "krr"}
    assert {asked: chosen(*asked) for asked in expected} == expected


def test_what_does_not_serve_the_task_is_refused():
    assert chosen("ensemble", "svm", "regression") == "krr"
    with pytest.raises(InputError, match="predictor 'svm' does not support regression"):
        chosen("alignf", "svm", "regression")
    with pytest.raises(InputError, match="l1-svm serves classification"):
        chosen("l1-svm", "auto", "regression")
    with pytest.raises(InputError, match="loss hinge is for classification"):
        chosen("alignf", {"name": "nystroem", "loss": "hinge"}, "regression")
    sampled = config("ensemble", statistics={"sample": "auto"})
    with pytest.raises(
        InputError, match="ensemble learns from all rows and not from a sample"
    ):
        predictor_for(sampled, sampled.learners[0], rows())


def test_auto_takes_landmarks_where_a_matrix_has_no_room_and_says_so():
    of = config(predictor={"memory": "1MB"})
    small, large = (
        predictor_for(of, of.learners[0], rows(n_rows=n)) for n in (100, 100_000)
    )
    assert (small.predictor.name, large.predictor.name) == ("svm", "nystroem")
    assert "60,000 training rows" in large.reason
    named = config(predictor="nystroem")
    assert predictor_for(named, named.learners[0], rows()).reason == ""
    # a model's
    assert (
        "100,000"
        in predictor_for(of, of.learners[0], rows(n_rows=100_000), 100_000).reason
    )


def test_a_predictor_gets_the_options_that_are_its_own(monkeypatch: pytest.MonkeyPatch):
    of = config(
        predictor={"n_components": 50, "memory": "2GB", "tol": 1e-5},
        protocol={"seed": 3},
    )
    assert predictor_options(of, "svm") == {}
    assert predictor_options(of, "krr-cg") == {"tol": 1e-5, "random_state": 3}
    assert predictor_options(of, "nystroem") == {
        "n_components": 50,
        "tol": 1e-5,
        "random_state": 3,
    }
    assert predictor_options(config(), "krr-cg")["tol"] == ROUGH  # as in the estimators
    assert "tol" not in predictor_options(config(predictor="krr-cg"), "krr-cg")
    memory = predictor_options(config(predictor="nystroem"), "nystroem")["memory"]
    assert memory == predictor_memory(None)
    assert memory & (memory - 1) == 0
    assert memory < psutil.virtual_memory().total
    monkeypatch.setattr(
        psutil,
        "virtual_memory",
        lambda: SimpleNamespace(available=1 << 27, total=1 << 34),
    )
    assert predictor_memory(None) == memory  # whatever else is running
    assert (
        predictor_options(
            config(predictor={"name": "nystroem", "memory": "2GB"}), "nystroem"
        )["memory"]
        == 2 * 10**9
    )


def test_landmarks_and_loss_of_a_configuration_count_in_the_choice():
    for asked, expected in (
        ({}, "krr-cg"),
        ({"n_components": 50}, "nystroem"),
        ({"loss": "hinge"}, "nystroem"),
    ):
        of = config("rfm", {"memory": "4GB", **asked})
        assert (
            predictor_for(of, of.learners[0], rows(n_rows=30_000)).predictor.name
            == expected
        )
    # Which serves classes, and landmarks alone
    numbers = config("rfm", {"memory": "4GB", "loss": "hinge"})
    assert (
        predictor_for(
            numbers, numbers.learners[0], rows("regression", 200)
        ).predictor.name
        == "krr"
    )


# Paired tests against their definitions and against simulation -------------------------------------------------------


def student_cdf(t: float, n: int) -> float:
    """The distribution function of Student's t by integrating its density."""
    scale = np.exp(special.gammaln((n + 1) / 2) - special.gammaln(n / 2)) / np.sqrt(
        n * np.pi
    )
    return integrate.quad(
        lambda x: scale * (1 + x * x / n) ** (-(n + 1) / 2), -np.inf, t, epsabs=1e-12
    )[0]


def test_the_corrected_test_adds_the_share_of_test_rows_to_the_variance_of_student_s():
    ours, theirs = (
        np.array([0.10, 0.12, 0.08, 0.15, 0.11]),
        np.array([0.12, 0.13, 0.11, 0.14, 0.13]),
    )
    d = ours - theirs
    plain, adjusted = (
        d.mean() / np.sqrt((1 / 5 + share) * d.var(ddof=1)) for share in (0, 1 / 3)
    )
    assert t_tests.paired_p(ours, theirs) == pytest.approx(
        student_cdf(plain, 4), abs=1e-9
    )
    assert t_tests.corrected_p(ours, theirs, 1 / 3) == pytest.approx(
        student_cdf(adjusted, 4), abs=1e-9
    )
    assert t_tests.corrected_p(ours, theirs, 0.0) == pytest.approx(
        t_tests.paired_p(ours, theirs)
    )
    assert t_tests.corrected_p(ours, theirs, 1 / 3) > t_tests.paired_p(ours, theirs)
    assert t_tests.share_of_test(np.array([20, 20]), np.array([100, 100])) == 0.25
    assert t_tests.share_of_test(
        np.array([10, 30]), np.array([100, 100])
    ) == pytest.approx((10 / 90 + 30 / 70) / 2)


def test_errors_on_other_rows_are_compared_by_welch_s_test_with_the_corrected_variance():
    ours, others = (
        np.array([0.14, 0.12, 0.18, 0.15, 0.11]),
        np.array([0.12, 0.13, 0.11, 0.10]),
    )
    welch = stats.ttest_ind(ours, others, equal_var=False, alternative="greater").pvalue
    assert t_tests.higher_p(ours, others, 0.0) == pytest.approx(welch, abs=1e-12)
    assert welch < t_tests.higher_p(ours, others, 1 / 3) < 0.5
    assert t_tests.higher_p(ours[:1], others, 1 / 3) is None
    same = np.full(3, 0.1)
    assert [
        t_tests.higher_p(same, same, 0.25),
        t_tests.higher_p(same + 0.2, same, 0.25),
    ] == [1.0, 0.0]


def test_tests_of_pairs_are_two_sided_and_ranks_have_the_printed_critical_difference():
    ours, theirs = (
        np.array([0.10, 0.12, 0.08, 0.15, 0.11]),
        np.array([0.12, 0.13, 0.11, 0.14, 0.13]),
    )
    both = t_tests.two_sided_p(ours, theirs, 0.25)
    assert (
        both
        == t_tests.two_sided_p(theirs, ours, 0.25)
        == 2 * t_tests.corrected_p(ours, theirs, 0.25)
    )
    assert t_tests.two_sided_p(ours, theirs, 0.0) == pytest.approx(
        stats.ttest_rel(ours, theirs).pvalue, abs=1e-12
    )
    assert t_tests.two_sided_p(ours, ours, 0.25) == 1.0
    assert np.isnan(t_tests.two_sided_p(ours[:1], theirs[:1], 0.25))
    expected = 2.569 * np.sqrt(4 * 5 / (6 * 14))  # Demsar (2006)
    assert t_tests.critical_difference(14, 4) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    "test", [t_tests.paired_p, partial(t_tests.corrected_p, test_share=0.25)]
)
def test_differences_without_variance_and_missing_pairs(test):
    errors = np.array([0.1, 0.2, 0.3])
    assert test(errors, errors) == 1.0
    assert test(errors - 0.25, errors - 0.25 + 0.125) == 0.0
    assert test(errors, errors + 0.2) == 0.0  # but for rounding
    assert test(errors + 0.2, errors) == test((errors + 0.2) - 0.2, errors) == 1.0
    assert test(errors[:1], errors[:1]) is None
    assert test(errors, errors[:2]) is None


# Configured families become the base kernels that they describe ------------------------------------------------------


FEATURES = ("age", "height", "weight")


def parsed(**keys: object) -> FamilyConfig:
    return TypeAdapter(FamilyConfig).validate_python(keys)


def test_each_family_is_the_one_described():
    described = [
        (
            {"family": "laplacian", "gammas": {"from": -2, "to": 0}},
            LaplacianFamily([0.25, 0.5, 1.0]),
        ),
        (
            {"family": "laplacian", "norm": 2, "gammas": [0.5]},
            LaplacianFamily([0.5], norm=2),
        ),
        ({"family": "cosine"}, CosineFamily()),
        (
            {"family": "dirichlet", "frequencies": [1.5, 2.0], "degree": 3},
            DirichletFamily([1.5, 2.0], 3),
        ),
        ({"family": "feature"}, FeatureFamily(FEATURES)),
        (
            {"family": "feature", "columns": ["weight", "age"]},
            FeatureFamily(["weight", "age"], [2, 0]),
        ),
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
        tiles = build_family(
            [parsed(family=family, sigmas=[0.3, 2.0, 7.0])], FEATURES
        ).tile(X, X)
        # Rounded beside one
        np.testing.assert_allclose(tiles, kernels, rtol=0, atol=1e-15, err_msg=family)


def test_features_beside_other_families_keep_their_names_and_columns():
    family = build_family(
        [parsed(family="linear"), parsed(family="feature", columns=["weight", "age"])],
        FEATURES,
    )
    assert family.names == ("linear", "weight", "age")
    X = np.random.default_rng(1).normal(size=(6, 3))
    np.testing.assert_allclose(
        family.tile(X, X)[1:], [np.outer(v, v) for v in (X[:, 2], X[:, 0])]
    )


def test_thousands_of_features_beside_other_families_are_refused():
    features = [f"f{c}" for c in range(MOST_FEATURES_BY_TILES + 1)]
    assert build_family([parsed(family="feature")], features).n_kernels == len(features)
    with pytest.raises(
        InputError,
        match="family feature next to other families takes at most 1000 columns, got 1001",
    ):
        build_family([parsed(family="feature"), parsed(family="linear")], features)


def test_a_row_of_zeros_is_named_before_a_cosine_kernel_is_computed():
    X = np.random.default_rng(2).normal(size=(30, 3))
    X[17, :2] = 0.0
    some = [parsed(family="cosine", columns=["age", "height"])]
    for rows in (X, sparse.csr_matrix(X)):
        require_varying([parsed(family="cosine")], rows, FEATURES, "data set d")
        with pytest.raises(
            InputError,
            match=r"data set d: each row must have a direction.* row 17 of the 30",
        ):
            require_varying(some, rows, FEATURES, "data set d")


def test_a_family_out_of_its_range_is_refused(subtests: pytest.Subtests):
    for keys, sentence in [
        ({"family": "dirichlet", "frequencies": [0]}, "greater than 0"),
        (
            {"family": "dirichlet", "frequencies": [1], "degree": 0},
            "greater than or equal to 1",
        ),
        ({"family": "laplacian", "gammas": []}, "a list"),
        ({"family": "cosine", "gamma": 1}, "unknown key 'gamma'"),
    ]:
        with subtests.test(sentence), pytest.raises(ValidationError, match=sentence):
            parsed(**keys)


@pytest.mark.parametrize("family", ["feature", "linear"])
def test_both_kinds_of_statistics_are_read_back(family: str, tmp_path):
    X, y, folds = (
        np.random.default_rng(3).normal(size=(20, 3)),
        np.arange(20.0),
        np.arange(20) % 4,
    )
    statistics = gram_statistics(
        build_family([parsed(family=family)], FEATURES), X, y, folds
    )
    ref = trials.StatisticsRef("key", str(tmp_path / "key"), 0)
    trials.save_statistics(ref, statistics, folds, 3.0)
    back, folds_back, seconds = trials.load_statistics(ref)
    assert type(back) is type(statistics)
    np.testing.assert_array_equal(
        *(of.restrict([0, 2]).target_products() for of in (back, statistics))
    )
    np.testing.assert_array_equal(folds_back, folds)
    # Of 20 rows, 3 seconds: 10 of them have a quarter of the pairs, or half of the
    # rows' features.
    share = trials.share_of_pass(seconds, back, back.restrict([0, 2]))
    assert share == pytest.approx(1.5 if family == "feature" else 0.75)
