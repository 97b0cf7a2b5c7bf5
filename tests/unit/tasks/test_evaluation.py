"""Which predictor a learner is evaluated with, and under which name its results are stored."""

from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import CompareConfig
from learnkernels.kernels.predictors.choice import ROUGH
from learnkernels.tasks.data.dataset import DatasetRef
from learnkernels.tasks.measure.evaluation import FIRST_COLUMNS, predictor_for, predictor_memory, predictor_options
from learnkernels.tasks.store import digest


def config(learner: str = "alignf", predictor: Any = "auto", **keys: Any) -> CompareConfig:
    data = {"name": "small", "datasets": ["wine"], "kernels": ["linear"], "learners": [learner], "predictor": predictor}
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
    with pytest.raises(InputError, match="predictor svm does not serve regression"):
        chosen("alignf", "svm", "regression")
    with pytest.raises(InputError, match="l1-svm serves classification"):
        chosen("l1-svm", "auto", "regression")
    with pytest.raises(InputError, match="loss hinge is for classification"):
        chosen("alignf", {"name": "nystrom", "loss": "hinge"}, "regression")
    sampled = config("ensemble", statistics={"sample": "auto"})
    with pytest.raises(InputError, match="ensemble learns from all rows and not from a sample"):
        predictor_for(sampled, sampled.learners[0], rows())


def test_auto_takes_landmarks_where_a_matrix_has_no_room_and_says_so():
    of = config(predictor={"memory": "1MB"})
    small, large = (predictor_for(of, of.learners[0], rows(n_rows=n)) for n in (100, 100_000))
    assert (small.predictor.name, large.predictor.name) == ("svm", "nystrom")
    assert "60,000 training rows" in large.reason
    named = config(predictor="nystrom")
    assert predictor_for(named, named.learners[0], rows()).reason == ""
    assert "100,000" in predictor_for(of, of.learners[0], rows(n_rows=100_000), 100_000).reason  # a model's


def test_a_predictor_gets_the_options_that_are_its_own(monkeypatch: pytest.MonkeyPatch):
    of = config(predictor={"landmarks": 50, "memory": "2GB", "tolerance": 1e-5}, protocol={"seed": 3})
    assert predictor_options(of, "svm") == {}
    assert predictor_options(of, "krr-cg") == {"tolerance": 1e-5, "seed": 3}
    assert predictor_options(of, "nystrom") == {"landmarks": 50, "tolerance": 1e-5, "seed": 3}
    assert predictor_options(config(), "krr-cg")["tolerance"] == ROUGH  # as in the estimators
    assert "tolerance" not in predictor_options(config(predictor="krr-cg"), "krr-cg")
    memory = predictor_options(config(predictor="nystrom"), "nystrom")["memory"]
    assert memory == predictor_memory(None)
    assert memory & (memory - 1) == 0
    assert memory < psutil.virtual_memory().total
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1 << 27, total=1 << 34))
    assert predictor_memory(None) == memory  # whatever else is running
    assert predictor_options(config(predictor={"name": "nystrom", "memory": "2GB"}), "nystrom")["memory"] == 2 * 10**9


def test_landmarks_and_loss_of_a_configuration_count_in_the_choice():
    for asked, expected in (({}, "krr-cg"), ({"landmarks": 50}, "nystrom"), ({"loss": "hinge"}, "nystrom")):
        of = config("rfm", {"memory": "4GB", **asked})
        assert predictor_for(of, of.learners[0], rows(n_rows=30_000)).predictor.name == expected
    numbers = config("rfm", {"memory": "4GB", "loss": "hinge"})  # which serves classes, and landmarks alone
    assert predictor_for(numbers, numbers.learners[0], rows("regression", 200)).predictor.name == "krr"


def test_columns_that_came_later_are_no_part_of_the_names_of_stored_results():
    assert digest([column.name for column in FIRST_COLUMNS]) == "5e29d58a528e8ac3daf7"
