"""What the validation folds choose, from fold tables written for the purpose."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learnkernels.conf import errors, schema
from learnkernels.tasks.measure.evaluation import FoldsRef, write_fold_table
from learnkernels.tasks.models.training import choose, training_config
from tests.refusals import require_refusals

LQ: dict[str, Any] = {"name": "lq", "tune": {"q": [1.5, 2, 4]}}


def config(**keys: Any) -> schema.CompareConfig:
    data = {"name": "small", "datasets": ["wine"], "learners": ["unif", LQ], "protocol": {"grid": [0.5, 1, 2]}}
    data |= {"kernels": [{"family": "gaussian", "gammas": [0.1, 1.0]}]}
    return schema.CompareConfig.model_validate(data | keys)


def written(folder: Path, learner: str, tables: list[list[list[float]]], error: float = 0.5) -> FoldsRef:
    same = {"dataset": "wine", "task": "classification", "learner": learner, "algorithm": learner, "predictor": "svm"}
    same |= {"repeat": 0, "alignment": 0.5, "metric": "misclassification", "seconds_weights": 0.1, "seconds_fit": 0.1}
    same |= {"n_train": 100, "n_kernels": 2, "weights": [0.6, 0.8], "kernels": ["a", "b"], "trivial_error": 0.6}
    same |= {"regularisation": 1.0, "grid_edge": False, "params": "{}"}
    rows = []
    for fold, table in enumerate(tables):
        own = {"fold": fold, "error": error + fold / 100, "validation_error": float(np.nanmin(table))}
        rows.append(same | own | {"candidate_errors": table})
    path = folder / learner
    write_fold_table(path, rows, [])
    return FoldsRef("wine", learner, learner, "svm", str(path))


def test_the_lowest_mean_validation_error_decides_and_not_the_test_error(tmp_path: Path):
    # unif has the lower test error; lq with its second q at C 2 the lower mean validation error.
    of_lq = [[[0.00, 0.4, 0.4], [0.3, 0.3, 0.1], [0.3, 0.3, 0.3]], [[0.35, 0.4, 0.4], [0.3, 0.3, 0.2], [0.3, 0.3, 0.3]]]
    of_unif = [[[0.3, 0.2, 0.3]], [[0.3, 0.2, 0.4]]]
    results = [written(tmp_path, "unif", of_unif, error=0.01), written(tmp_path, "lq", of_lq)]
    choice = choose(config(), results)
    assert (choice.learner.name, choice.learner.params, choice.learner.tune) == ("lq", {"q": 2}, {})
    assert choice.C == 2.0
    assert choice.validation_error == pytest.approx(0.15)
    assert choice.about["test_error"] == pytest.approx(0.505)
    assert [row["learner"] for row in choice.candidates] == ["unif", "lq *"]


def test_ties_go_to_the_first_learner_the_smallest_lambda_and_the_first_setting(tmp_path: Path):
    same = [[[0.2, 0.2, 0.2]] * 3]
    choice = choose(config(), [written(tmp_path, "unif", [[[0.2, 0.2, 0.2]]]), written(tmp_path, "lq", same)])
    assert (choice.learner.name, choice.C) == ("unif", 0.5)
    alone = config(learners=[LQ])
    choice = choose(alone, [written(tmp_path / "alone", "lq", [[[0.3, 0.2, 0.2], [0.3, 0.2, 0.1], [0.3, 0.3, 0.1]]])])
    assert (choice.learner.params, choice.C) == ({"q": 2}, 2.0)


def test_a_choice_by_alignment_takes_the_setting_of_most_trials(tmp_path: Path):
    none = [np.nan] * 3
    tables = [[none, [0.3, 0.2, 0.3], none], [none, [0.3, 0.4, 0.5], none], [[0.0, 0.0, 0.0], none, none]]
    alone = config(learners=[LQ | {"tune_by": "alignment"}])
    choice = choose(alone, [written(tmp_path, "lq", tables)])
    assert (choice.learner.params, choice.C) == ({"q": 2}, 0.5)
    assert choice.validation_error == pytest.approx(0.3)


TWO = ["wine", "iris"]


def test_one_data_set_and_the_learners_asked_for_are_left():
    of = training_config(config(datasets=TWO), "iris", "lq")
    assert [data.label for data in of.datasets] == ["iris"]
    assert [learner.title for learner in of.learners] == ["lq"]
    assert [learner.title for learner in training_config(config(), None, None).learners] == ["unif", "lq"]


REFUSED: list[tuple[dict[str, Any], str | None, str | None, str]] = [
    ({"datasets": TWO}, None, None, "a model learns from one data set, got wine, iris; name one with --dataset"),
    ({"datasets": TWO}, "whine", None, "--dataset whine: did you mean 'wine'. the configuration has wine, iris"),
    ({}, None, "alignf", "--learner alignf: the configuration has unif, lq"),
    ({"learners": ["unif", "ensemble"]}, None, None, "ensemble learns no kernel"),
    ({"kernels": [{"family": "mine:Mine"}]}, None, None, "family mine:Mine, which is your own, can be kept; take"),
    ({"learners": ["no_such:Mine"]}, None, None, "learner no_such:Mine cannot be imported"),
    ({"kernels": [{"family": "precomputed", "path": "grams"}]}, None, None, "no values for new rows"),
]


def test_what_leads_to_no_model_is_refused():
    acts = ((partial(training_config, config(**keys), *given), sentence) for keys, *given, sentence in REFUSED)
    require_refusals(acts, error=errors.InputError)
