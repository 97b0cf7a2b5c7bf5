"""What is filled in beside a whole configuration: what it changes, and what is said where it does not fit."""

from typing import Any

import pytest
from prefect.utilities.callables import parameter_schema

from learnkernels.conf.errors import InputError
from learnkernels.conf.loading import filled_in
from learnkernels.conf.schema import CompareConfig
from learnkernels.flows.compare import compare
from learnkernels.flows.train import train


def config(**keys: Any) -> CompareConfig:
    data = {
        "name": "form",
        "datasets": ["diabetes"],
        "kernels": [{"family": "gaussian", "gammas": [0.1, 1]}],
        "learners": ["unif", {"name": "lq", "tune": {"q": [1.5, 2]}}],
    }
    return CompareConfig.model_validate(data | keys)


def test_what_is_filled_in_goes_before_the_configuration_and_what_is_left_empty_stays():
    plain = config(protocol={"split": {"train": 100, "validation": 50, "test": 50}, "repeats": 3})
    assert filled_in(plain) is plain
    asked = filled_in(plain, folds=4, metric="r2", baseline="one tuned kernel and boosting", learners=["lq", "alignf"])
    assert (asked.protocol.folds, asked.protocol.split, asked.protocol.repeats) == (4, None, 3)
    assert asked.protocol.metric == "r2"
    assert asked.baseline.boosting
    assert asked.learners[0] == plain.learners[1]  # with its parameters
    assert asked.learners[1].name == "alignf"
    assert filled_in(asked, baseline="none").baseline is None
    table = filled_in(plain, table="rows.csv", target="y", folds=5)
    (dataset,) = table.datasets
    assert (dataset.source, dataset.paths, dataset.target) == ("file", ("rows.csv",), "y")


def test_what_does_not_fit_is_one_sentence():
    two = config(datasets=["diabetes", "iris"])
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"dataset": "wine"}, r"^dataset wine: the configuration has diabetes, iris; name one of them\.$"),
        ({"target": "y"}, r"^table and target are those of one data set, .*diabetes, iris; name one as dataset\.$"),
        ({"learners": ["lq", "lq"]}, r"^the form: learner lq appears"),
        ({"folds": 2}, r"^the form: protocol\.folds: must be at least 3"),
    ]
    for filled, sentence in wrong:
        with pytest.raises(InputError, match=sentence) as caught:
            filled_in(two, **filled)
        assert len(str(caught.value)) < 400


def test_the_form_has_a_handful_of_fields_and_one_of_json():
    for flow in (compare, train):
        schema = parameter_schema(flow).model_dump()
        assert len(schema["properties"]) <= 8
        assert all(of["description"] for of in schema["properties"].values())
        config = schema["properties"]["config"]
        assert config["type"] == "object"
        assert "properties" not in config
    fields = parameter_schema(compare).model_dump()["properties"]
    assert fields["baseline"]["enum"] == ["as configured", "none", "one tuned kernel", "one tuned kernel and boosting"]
    assert "roc_auc" in str(fields["metric"])
    assert (fields["folds"]["minimum"], fields["folds"]["maximum"], fields["folds"]["default"]) == (0, 1000, 0)
    assert fields["table"] == fields["table"] | {"type": "string", "default": ""}  # and not one of two types
