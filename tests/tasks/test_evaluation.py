"""Which predictor a learner is evaluated with."""

from __future__ import annotations

import pytest

from conf.errors import InputError
from conf.schema import CompareConfig
from tasks.data import DatasetRef
from tasks.evaluation import predictor_for


def chosen(learner: str, predictor: str, task: str = "classification") -> str:
    config = CompareConfig.model_validate(
        {
            "name": "small",
            "datasets": [{"source": "sklearn", "name": "wine"}],
            "kernels": [{"family": "linear"}],
            "learners": [learner],
            "predictor": predictor,
        }
    )
    return predictor_for(config, config.learners[0], DatasetRef("wine", "d", "p", task, "s", 178, 13))


@pytest.mark.parametrize(
    ("learner", "predictor", "expected"),
    [
        ("alignf", "auto", "svm"),
        ("alignf", "krr", "krr"),
        ("l2-krr", "auto", "krr"),
        ("l2-krr", "svm", "svm"),
        ("ensemble", "auto", "krr"),
        ("ensemble", "svm", "krr"),  # it combines ridge regressions, whatever the others are followed by
    ],
)
def test_a_learner_is_followed_by_its_predictor_or_the_one_named(learner: str, predictor: str, expected: str):
    assert chosen(learner, predictor) == expected


def test_what_does_not_serve_the_task_is_refused():
    assert chosen("ensemble", "svm", "regression") == "krr"
    with pytest.raises(InputError, match="predictor svm does not serve regression"):
        chosen("alignf", "svm", "regression")
    with pytest.raises(InputError, match="l1-svm serves classification"):
        chosen("l1-svm", "auto", "regression")
