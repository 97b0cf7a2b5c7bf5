"""Reading configurations: what is accepted, and the one sentence for what is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from conf.errors import InputError
from conf.loading import load_config
from conf.schema import CompareConfig, DatasetConfig, LearnerName, PredictorName, grid_values
from kernels import LEARNERS, PREDICTORS

CONF = Path(__file__).resolve().parents[2] / "conf"

MINIMAL = {
    "name": "small",
    "datasets": [{"source": "sklearn", "name": "diabetes"}],
    "kernels": [{"family": "gaussian", "gammas": {"base": 2, "from": -3, "to": 3}}],
    "learners": ["unif", "alignf"],
}


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(MINIMAL))
    return path


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.name)
def test_every_shipped_configuration_is_valid(path: Path):
    assert load_config(path).name == path.stem


def test_powers_include_both_ends_and_a_list_is_kept(conf: Path):
    assert grid_values(load_config(conf).kernels[0].gammas) == [2.0**g for g in range(-3, 4)]
    assert grid_values(load_config(conf, ["kernels.0.gammas=[0.5, 0.1]"]).kernels[0].gammas) == [0.5, 0.1]


def test_changes_reach_nested_keys_list_entries_and_keys_the_file_does_not_have(conf: Path):
    config = load_config(conf, ["protocol.folds=10", "datasets.0.scale=unit", "dask.workers=0", "learners=[align]"])
    assert (config.protocol.folds, config.datasets[0].scale, config.dask.workers) == (10, "unit", 0)
    assert [learner.name for learner in config.learners] == ["align"]


def test_numbers_that_yaml_takes_for_text_are_numbers(conf: Path):
    assert grid_values(load_config(conf, ["kernels.0.gammas=[1e-3]"]).kernels[0].gammas) == [1e-3]


def test_parameters_of_a_learner_are_numbers_where_they_look_like_some(conf: Path):
    nkrr = "learners=[{name: nkrr, params: {tolerance: 1e-7}, tune: {radius: [1, 1e2]}}]"
    (learner,) = load_config(conf, [nkrr]).learners
    assert learner.settings() == [{"tolerance": 1e-7, "radius": 1}, {"tolerance": 1e-7, "radius": 100.0}]
    (learner,) = load_config(conf, ["learners=[{name: l2-krr, params: {algorithm: newton}}]"]).learners
    assert learner.settings() == [{"algorithm": "newton"}]


@pytest.mark.parametrize(
    "learners", ["[unif]", "[{name: lq, params: {q: .inf}}]", "[{name: lq, tune: {q: [1, .inf]}}]"]
)
def test_a_configuration_survives_its_own_dump(conf: Path, learners: str):
    config = load_config(conf, [f"learners={learners}"])
    assert CompareConfig.model_validate_json(config.model_dump_json()) == config
    for by_alias in (False, True):
        assert CompareConfig.model_validate(config.model_dump(mode="json", by_alias=by_alias)) == config


def test_configurations_are_frozen(conf: Path):
    with pytest.raises(ValidationError, match="frozen"):
        load_config(conf).name = "other"


def test_names_in_the_schema_are_those_of_the_tables():
    assert set(LearnerName.__args__) == set(LEARNERS)
    assert set(PredictorName.__args__) == {"auto", *PREDICTORS}


def test_every_key_is_described():
    schema = CompareConfig.model_json_schema()
    undescribed = [
        f"{owner}.{key}"
        for owner, model in {"CompareConfig": schema, **schema["$defs"]}.items()
        for key, item in model.get("properties", {}).items()
        if "description" not in item and "const" not in item
    ]
    assert undescribed == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("datasets.0.sclae=unit", r"datasets.0: unknown key 'sclae'; did you mean 'scale'\? valid keys: source, name"),
        (
            "learners=[alingf]",
            r"learners.0: 'alingf' is not valid, did you mean 'alignf'\? expected 'align', 'align-uncentered'",
        ),
        ("learners=[unif, unif]", "learner unif appears more than once; list it once"),
        (
            "learners=[{name: lq, label: a}, {name: lp-svm, label: a}]",
            "learners: learner a appears more than once; list it once, or give each setting its own 'label'",
        ),
        ("learners=[{name: lq, label: unif}, unif]", "learner unif appears more than once"),
        (
            "learners=[{name: lq, params: {q: 2}, tune: {q: [1, 2]}}]",
            r"learners.0: parameter q is in both 'params' and 'tune'; give it in one of them",
        ),
        ("learners=[{name: lq, tune: {q: []}}]", "learners.0.tune.q: List should have at least 1 item"),
        ("learners=[{name: lq, label: a/b}]", "learners.0.label: String should match pattern"),
        ("datasets.0.missing=ignore", "datasets.0.missing: 'ignore' is not valid; expected 'refuse' or 'drop'"),
        ("kernels.0.gammas=[0]", r"kernels.0.gammas.0: Input should be greater than 0, got 0\.$"),
        ("kernels.0.gammas=[.inf]", "kernels.0.gammas.0: Input should be a finite number"),
        ("kernels.0.gammas.from=9", "kernels.0.gammas: 'to' must not be below 'from', got from 9 to 3"),
        ("kernels.0.family=gausian", "'gausian' is not valid, did you mean 'gaussian'"),
        ("kernels.0={family: polynomial}", "kernels.0.degrees: is required and missing"),
        ("kernels.0={gammas: [1]}", "kernels.0: needs 'family', one of"),
        ("predictor=svr", "predictor: 'svr' is not valid, did you mean 'svm'"),
        ("protocol.folds=2", "protocol.folds: Input should be greater than or equal to 3, got 2"),
        ("protocol.grid=[2, 1]", "the grid must ascend without repetition"),
        ("datasets.0.name=foo", "needs 'name', one of: breast_cancer, diabetes"),
        ("datasets.0={source: file}", "source 'file' needs 'path'"),
        ("datasets.0.path=x.csv", "'path' goes with source 'file'"),
        ("datasets=[]", "datasets: Tuple should have at least 1 item"),
        ("datasets.7.name=x", r"datasets holds entries 0 to 0, got '7'"),
        ("name.x.y=1", "name is a single value"),
        ("folds", "expected key=value"),
        ("name=[", "the value is not valid YAML"),
        ("name=a/b", "name: String should match pattern"),
    ],
)
def test_a_wrong_change_gets_one_sentence(conf: Path, change: str, sentence: str):
    with pytest.raises(InputError, match=sentence) as caught:
        load_config(conf, [change])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [1", "is not valid YAML at line 1"),
        ("- 1", "must hold keys such as name, datasets, kernels, learners; got list"),
        ("name: x", r"datasets: is required and missing \(and 2 more\)"),
    ],
)
def test_a_wrong_file_gets_one_sentence(tmp_path: Path, text: str, sentence: str):
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}: .*{sentence}"):
        load_config(path)


def test_a_missing_or_binary_file_gets_one_sentence(tmp_path: Path):
    with pytest.raises(InputError, match=r"nothing\.yaml: cannot be read \(No such file"):
        load_config(tmp_path / "nothing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8 text"):
        load_config(tmp_path / "binary.yaml")


def test_two_data_sets_may_not_share_a_name():
    twice = {**MINIMAL, "datasets": [{"source": "file", "path": "a/x.csv"}, {"source": "file", "path": "b/x.parquet"}]}
    with pytest.raises(ValidationError, match="data set x appears more than once; give each its own 'name'"):
        CompareConfig.model_validate(twice)


def test_a_numeric_positive_label_is_text():
    assert DatasetConfig(source="file", path="x.csv", positive=2).positive == "2"
