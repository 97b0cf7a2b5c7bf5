"""Reading configurations: what is accepted, and the one sentence for what is not."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import get_args

import pytest
import yaml
from pydantic import TypeAdapter, ValidationError

from learnkernels.conf.errors import InputError
from learnkernels.conf.loading import config_of_text, existing_files, load_config
from learnkernels.conf.schema import (
    PRESETS,
    CompareConfig,
    DatasetConfig,
    FamilyConfig,
    LearnerConfig,
    LearnerName,
    PredictorName,
    PresetName,
    grid_values,
)
from learnkernels.conf.schema.datasets import ColumnKind
from learnkernels.conf.schema.learners import SEARCHING
from learnkernels.kernels.learners import LEARNERS
from learnkernels.kernels.predictors import PREDICTORS
from learnkernels.kernels.tables.encoding import KINDS

CONF = Path(__file__).resolve().parents[3] / "conf"

MINIMAL = {
    "name": "small",
    "datasets": [{"source": "sklearn", "name": "diabetes"}],
    "kernels": [{"family": "gaussian", "gammas": {"base": 2, "from": -3, "to": 3}}],
    "learners": ["unif", "alignf"],
}

GRIDS = ["a list such as [0.1, 1, 10]", "{base: 2, from: -3, to: 3}", "{from: 0.1, to: 10, count: 5, spacing: log}"]
PROTOCOL = ["folds", "seed", "repeats", "grid", "split"]


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


@pytest.mark.parametrize(
    ("grid", "values"),
    [
        ("{from: 1, to: 9, count: 9}", [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("{from: 0.1, to: 0.7, count: 2}", [0.1, 0.7]),
        ("{from: 500, to: 50000, count: 3, spacing: linear}", [500, 25250, 50000]),
        ("{from: 1e-3, to: 1e3, count: 7, spacing: log}", [1e-3, 1e-2, 1e-1, 1, 10, 100, 1e3]),
        ("{from: 1e-300, to: 1e300, count: 3, spacing: log}", [1e-300, 1, 1e300]),
    ],
)
def test_a_number_of_values_between_two_includes_both(conf: Path, grid: str, values: list[float]):
    config = load_config(conf, [f"kernels.0.gammas={grid}", f"protocol.grid={grid}"])
    for got in (grid_values(config.kernels[0].gammas), grid_values(config.protocol.grid)):
        # A power of ten is rounded in the exponent, which may be 300 times the last digit.
        assert got == pytest.approx(values, rel=1e-13)
        assert (got[0], got[-1]) == (values[0], values[-1])
    (dirichlet,) = load_config(conf, [f"kernels=[{{family: dirichlet, frequencies: {grid}}}]"]).kernels
    assert grid_values(dirichlet.frequencies) == grid_values(config.protocol.grid)


def test_bandwidths_are_given_as_gamma_or_as_sigma(conf: Path):
    def gammas(family: str) -> list[float]:
        (config,) = load_config(conf, [f"kernels=[{{family: {family}, sigmas: [0.5, 4, 1e-150, 1e150]}}]"]).kernels
        return config.bandwidths()

    assert gammas("gaussian") == pytest.approx([4, 1 / 16, 1e300, 1e-300])
    assert gammas("laplacian") == pytest.approx([2, 1 / 4, 1e150, 1e-150])
    assert load_config(conf).kernels[0].bandwidths() == [2.0**g for g in range(-3, 4)]


PAPER = {
    "CA-1D": {"name": "ca"},
    "CA-nD": {"name": "ca", "params": {"per_feature": True}},
    "CR": {"name": "cr"},
    "DA": {"name": "alignf"},
    "D1": {"name": "lp-svm", "params": {"norm": 1}},
    "D2": {"name": "lp-svm", "params": {"norm": 2}},
    "DU": {"name": "unif"},
}


def test_the_methods_of_the_paper_stand_for_learners_with_parameters_and_label(conf: Path):
    short = load_config(conf, [f"learners=[{', '.join(PAPER)}]"]).learners
    assert short == tuple(LearnerConfig.model_validate({"label": label, **keys}) for label, keys in PAPER.items())
    assert [learner.title for learner in short] == list(PAPER)
    assert set(PAPER) == set(PRESETS) == set(PresetName.__args__)
    assert not set(PRESETS) & set(LearnerName.__args__)


def test_what_is_given_beside_a_method_of_the_paper_goes_first(conf: Path):
    def learner(text: str) -> LearnerConfig:
        return load_config(conf, [f"learners=[{text}]"]).learners[0]

    both = learner("{name: CA-nD, params: {kind: dirichlet}, tune: {shrinkage: [0, 1e3]}, tune_by: alignment}")
    assert (both.name, both.title, both.tune_by) == ("ca", "CA-nD", "alignment")
    assert both.params == {"per_feature": True, "kind": "dirichlet"}
    assert both.settings() == [{**both.params, "shrinkage": 0}, {**both.params, "shrinkage": 1e3}]
    assert learner("{name: D1, params: {norm: 1.5}, label: D1.5}").params == {"norm": 1.5}
    assert learner("{name: D1, params: {norm: 1.5}, label: D1.5}").title == "D1.5"
    assert learner("{name: D1, tune: {norm: [1, 2]}}").settings() == [{"norm": 1}, {"norm": 2}]
    assert learner("{name: DU, label: null}").title == "DU"


def test_a_split_takes_the_place_of_folds(conf: Path):
    assert (load_config(conf).protocol.folds, load_config(conf).protocol.split) == (5, None)
    split = "protocol.split={train: 20, validation: 30, test: 40}"
    for protocol in (
        load_config(conf, [split]).protocol,
        load_config(conf, ["protocol.folds=7", split, "protocol.folds=null"]).protocol,
    ):
        assert protocol.folds is None
        assert (protocol.split.train, protocol.split.validation, protocol.split.test) == (20, 30, 40)


def test_synthetic_sets_are_told_apart_by_their_parameters():
    config = {
        **MINIMAL,
        "datasets": [
            {"source": "synthetic", "name": "relevance"},
            {"source": "synthetic", "name": "relevance", "params": {"gamma": 5}},
            {"source": "synthetic", "name": "relevance", "params": {"gamma": 5}, "seed": 1},
        ],
    }
    labels = [dataset.label for dataset in CompareConfig.model_validate(config).datasets]
    assert labels == ["relevance", "relevance gamma=5", "relevance gamma=5 seed=1"]


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
    "change",
    [
        "learners=[unif]",
        "learners=[{name: lq, params: {q: .inf}}]",
        "learners=[{name: lq, tune: {q: [1, .inf]}, tune_by: alignment}]",
        "learners=[CA-nD, D1]",
        "learners=[{name: 'mine:Mine', params: {a: [1e-3]}}, 'a.b:Mine2']",
        "kernels.0={family: 'a.b:Mine', params: {alphas: [1e-3, 1]}, columns: [age]}",
        "kernels.0={family: laplacian, sigmas: {from: 1e-3, to: 10, count: 5, spacing: log}}",
        "protocol.split={train: 10, validation: 10, test: 20}",
        "datasets.0={source: synthetic, name: relevance, params: {gamma: 1e-1}, seed: 3}",
        "datasets.0={source: openml, name: kin8nm, version: 1, label: kinematics, distinct: true}",
        "datasets.0={source: file, path: x.csv, where: {a: 1, b: [x, 2.5], c: true}, bytes: image}",
        "datasets.0={source: file, path: x.csv, ngrams: {column: t, counts: n, size: 2, most_frequent: 9}}",
        "datasets.0={source: file, path: x.csv, ngrams: {column: [t, u], size: [1, 2], constant: true}}",
        "predictor={name: nystrom, memory: 2 GiB, sampling: leverage, loss: hinge}",
        "predictor={memory: 1000000000, tolerance: 1e-6}",
        "moments={sample: auto, tolerance: 0.005}",
        "moments={sample: 4096, confidence: 0.99}",
        "moments.confidence=0.9",
    ],
)
def test_a_configuration_survives_its_own_dump(conf: Path, change: str):
    config = load_config(conf, [change])
    assert CompareConfig.model_validate_json(config.model_dump_json()) == config
    for by_alias in (False, True):
        assert CompareConfig.model_validate(config.model_dump(mode="json", by_alias=by_alias)) == config


def test_defaults_leave_dumps_and_the_digests_made_of_them_as_they_were(conf: Path):
    """What is stored under them is found again: a plain predictor is its name, and exact moments are not mentioned."""
    plain = load_config(conf, ["predictor=krr"])
    assert load_config(conf, ["predictor={name: krr}", "moments={sample: none}"]) == plain
    assert plain.model_dump(mode="json")["predictor"] == "krr"
    assert "moments" not in plain.model_dump(mode="json", by_alias=True)
    text = json.dumps(plain.model_dump(mode="json", by_alias=True), sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest()[:20] == "c332f17de7d76bc4e4c3"


def test_the_second_stage_has_the_options_that_are_given(conf: Path):
    stage = load_config(conf, ["predictor={name: nystrom, landmarks: 500, loss: squared}"]).second_stage
    assert (stage.name, stage.options()) == ("nystrom", {"landmarks": 500, "loss": "squared"})
    assert load_config(conf).second_stage.options() == {}


def test_classes_of_ones_own_are_named_by_module_and_class(conf: Path):
    config = load_config(conf, ["learners=['a.b:Mine', unif]", "kernels.0={family: 'a:F', params: {alphas: [1e-3]}}"])
    assert [(one.name, one.title) for one in config.learners] == [("a.b:Mine", "Mine"), ("unif", "unif")]
    assert (config.kernels[0].family, config.kernels[0].params) == ("a:F", {"alphas": [0.001]})


def test_the_form_still_lists_the_learners_and_tells_them_from_ones_own():
    listed, own = CompareConfig.model_json_schema()["$defs"]["LearnerConfig"]["properties"]["name"]["oneOf"]
    assert set(listed["enum"]) == {*LEARNERS, *PRESETS}
    assert not any(re.match(own["pattern"], name) for name in listed["enum"])


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
        ("learners=[{name: lq, tune: {q: []}}]", r"learners.0.tune.q: must be a list of 1 or more, got \[\]"),
        ("learners=[{name: lq, label: a/b}]", "learners.0.label: String should match pattern"),
        (
            "datasets.0.missing=ignore",
            "datasets.0.missing: 'ignore' is not valid; expected 'impute', 'refuse' or 'drop'",
        ),
        ("kernels.0.gammas=[0]", r"kernels.0.gammas.0: Input should be greater than 0, got 0\.$"),
        ("kernels.0.gammas=[.inf]", "kernels.0.gammas.0: Input should be a finite number"),
        (
            "kernels.0.gammas={from: 1, to: 5, cuont: 3}",
            "unknown key 'cuont'; did you mean 'count'.*from, to, count, sp",
        ),
        (
            "kernels.0.gammas={base: 2, from: 1, to: 5, count: 3}",
            "kernels.0.gammas: unknown key 'base'; valid keys: from",
        ),
        ("kernels.0.gammas={from: 3, to: 3, count: 3}", "kernels.0.gammas: 'to' must be above 'from', got from 3 to 3"),
        ("kernels.0.gammas={from: 3, to: 4, count: 1}", "kernels.0.gammas.count: .* greater than or equal to 2, got 1"),
        ("kernels.0.gammas={from: 3, to: 4, spacing: log}", "kernels.0.gammas.count: is required and missing"),
        (
            "kernels.0.gammas={from: 0, to: 4, count: 3, spacing: log}",
            "kernels.0.gammas.from: .* greater than 0, got 0",
        ),
        ("kernels.0.gammas={from: -1, to: 4, count: 3}", "kernels.0.gammas.from: .* greater than 0, got -1"),
        ("kernels.0.gammas={from: 1, to: 4, count: 3, spacing: lgo}", "kernels.0.gammas.spacing: 'lgo' is not valid"),
        ("kernels.0.sigmas=[1]", "kernels.0: family gaussian needs either 'gammas' or 'sigmas', got both; give one of"),
        ("kernels.0={family: laplacian}", "kernels.0: family laplacian needs either 'gammas' or 'sigmas', got neither"),
        ("kernels.0={family: gaussian, sigmas: [1, 1e-200]}", "'sigmas' must be from 1e-150 to 1e.150.*, got 1e-200"),
        ("learners=[CA1D]", r"learners.0: 'CA1D' is not valid, did you mean 'CA-1D'\? expected 'align'.* or 'DU'"),
        ("learners=[{name: CA-nd}]", r"learners.0.name: 'CA-nd' is not valid, did you mean 'CA-nD'\?"),
        ("learners=[DA, {name: alignf, label: DA}]", "learner DA appears more than once"),
        ("learners=[{name: D1, parms: {norm: 2}}]", r"learners.0: unknown key 'parms'; did you mean 'params'\?"),
        ("learners=[{name: D1, params: 2}]", "learners.0.params: must be a mapping of keys to values, got 2"),
        (
            "learners=[{name: lq, tune_by: error rate}]",
            "learners.0.tune_by: 'error rate' is not valid, did you mean 'e",
        ),
        (
            "protocol={folds: 5, split: {train: 9, validation: 9, test: 9}}",
            "protocol: 'folds' and 'split' exclude each",
        ),
        (
            "protocol.metric=entropy",
            "protocol.metric: 'entropy' is not valid; expected 'accuracy', 'balanced",
        ),
        (
            "protocol={split: {train: 9, test: 9}, choose: {folds: 3}, refit: true}",
            "protocol: 'refit' goes with validation rows, and with 'choose' there are none",
        ),
        ("protocol.folds=null", "protocol: 'folds' is null and there is no 'split'; give one of them"),
        ("protocol.split={train: 1, validation: 9, test: 9}", "protocol.split.train: .* than or equal to 2, got 1"),
        (
            "datasets.0={source: file, path: a.csv, test: {part: x}}",
            "data set a: 'test' says which rows test, and goes with 'protocol.split'",
        ),
        (
            "datasets.0.test={part: x}",
            "'test' goes with sources 'file' and 'openml', got source 'sklearn'; leave it out",
        ),
        (
            "protocol.split={train: 9, validation: 9}",
            "protocol.split needs 'test', a number of rows, for data set diabetes",
        ),
        (
            "datasets.0={source: synthetic, name: sines}",
            "source 'synthetic' needs 'name', one of: three_sines, relevance",
        ),
        (
            "datasets.0={source: synthetic, name: relevance, path: x.csv}",
            "'path' goes with source 'file'; for source 's",
        ),
        ("datasets.0.params={rows: 10}", "datasets.0: 'params' goes with source 'synthetic', got source 'sklearn'"),
        ("datasets.0.seed=1", "datasets.0: 'seed' goes with source 'synthetic', got source 'sklearn'; leave it out"),
        (
            "datasets.0={source: openml, version: 1}",
            "source 'openml' needs 'name', a set's as OpenML writes it; got None",
        ),
        ("datasets.0={source: openml, name: ../x, version: 1}", "source 'openml' needs 'name', .*; got '../x'"),
        ("datasets.0={source: openml, name: kin8nm}", "source 'openml' needs 'version', a whole number from 1"),
        ("datasets.0={source: openml, name: kin8nm, version: 0}", "datasets.0.version: .* than or equal to 1, got 0"),
        (
            "datasets.0={source: openml, name: kin8nm, version: active}",
            "datasets.0.version: must be a whole number, got 'active'",
        ),
        (
            "datasets.0={source: openml, name: x, version: 1, path: x.csv}",
            "'path' goes with source 'file'; for source 'op",
        ),
        (
            "datasets.0={source: file, path: x.csv, version: 1}",
            "'version' goes with source 'openml', got source 'file'; l",
        ),
        (
            "datasets.0.where={a: 1}",
            "'where' goes with sources 'file' and 'openml', got source 'sklearn'; leave it out",
        ),
        ("datasets.0.ngrams={column: a}", "'ngrams' goes with sources 'file' and 'openml', got source 'sklearn'"),
        ("datasets.0.bytes=a", "'bytes' goes with sources 'file' and 'openml', got source 'sklearn'"),
        ("datasets.0={source: file, path: x.csv, where: {a: []}}", "datasets.0.where.a: must be a list of 1 or"),
        (
            "datasets.0={source: file, path: x.csv, where: {a: [{}]}}",
            "datasets.0.where.a.0: must be text, in quotes where",
        ),
        (
            "datasets.0={source: file, path: x.csv, where: a}",
            "datasets.0.where: must be a mapping of keys to values, got 'a'",
        ),
        ("datasets.0={source: file, path: x.csv, ngrams: {}}", "datasets.0.ngrams.column: is required and missing"),
        (
            "datasets.0={source: file, path: x.csv, ngrams: {column: a, sise: 2}}",
            "datasets.0.ngrams: unknown key 'sise'; did you mean 'size'",
        ),
        (
            "datasets.0={source: file, path: x.csv, ngrams: {column: a, size: [1, 2, 3]}}",
            r"datasets.0.ngrams.size: must be one number, or two: \[from, to\]; got \[1, 2, 3\]",
        ),
        (
            "datasets.0={source: file, path: x.csv, ngrams: {column: a, size: [3, 2]}}",
            "datasets.0.ngrams: 'size' must not fall, got from 3 to 2 words",
        ),
        (
            "datasets.0={source: file, path: x.csv, ngrams: {column: a, size: 0}}",
            "datasets.0.ngrams.size: .* greater than or equal to 1, got 0",
        ),
        (
            "datasets.0={source: file, path: x.csv, ngrams: {column: [a, b], counts: n}}",
            "'counts' is a column beside the only column of tokens, got 'n' beside a, b; leave it out, or name one",
        ),
        (
            "datasets.0={source: file, path: x.csv, ngrams: {column: target}}",
            "column 'target' of 'ngrams' is in 'target' as well; name it in one of them",
        ),
        (
            "datasets.0={source: file, path: x.csv, bytes: a, drop: [a]}",
            "column 'a' of 'bytes' is in 'drop' as well; name it in one of them",
        ),
        (
            "datasets.0={source: file, path: x.csv, bytes: a, ngrams: {column: b}}",
            "'ngrams' are the only features, so 'bytes' adds none; leave one of them out",
        ),
        ("kernels.0.gammas.from=9", "kernels.0.gammas: 'to' must not be below 'from', got from 9 to 3"),
        ("kernels.0.family=gausian", "'gausian' is not valid, did you mean 'gaussian'"),
        ("kernels.0={family: polynomial}", "kernels.0.degrees: is required and missing"),
        (
            "kernels.0={gammas: [1]}",
            "kernels.0: needs 'family', one of 'gaussian', 'laplacian', 'categorical', 'polynomial', 'linear', "
            "'cosine', 'dirichlet', 'feature', 'constant', 'precomputed', 'module:Class'",
        ),
        ("kernels.0=gaussian", "kernels.0: family gaussian needs either 'gammas' or 'sigmas', got neither"),
        ("kernels.0={family: 'my file:Mine'}", "kernels.0.family: must be module:Class .*, got 'my file:Mine'"),
        ("kernels.0={family: 'mine:Mine', gammas: [1]}", "kernels.0: unknown key 'gammas'; valid keys: family, params"),
        ("learners=['mine:']", "learners.0: must be module:Class for one of your own, such as .*, got 'mine:'"),
        ("learners=[{name: ':Mine'}]", "learners.0.name: must be module:Class .*, got ':Mine'"),
        ("learners=['a:Mine', 'b:Mine']", "learner Mine appears more than once; list it once, or give each setting"),
        ("predictor=svr", "predictor: 'svr' is not valid, did you mean 'svm'"),
        ("predictor={name: nystorm}", "predictor.name: 'nystorm' is not valid, did you mean 'nystrom'"),
        ("predictor={name: nystrom, landmark: 50}", "predictor: unknown key 'landmark'; did you mean 'landmarks'"),
        ("predictor={name: nystrom, landmarks: 9}", "predictor.landmarks: .* greater than or equal to 10, got 9"),
        ("predictor={name: nystrom, tolerance: 0}", "predictor.tolerance: .* greater than 0, got 0"),
        (
            "predictor={name: nystrom, memory: 2 GBX}",
            "predictor.memory: must be a size such as 2GB or 512MiB, got '2 GBX'",
        ),
        ("predictor={memory: 0GB}", "predictor.memory: must be a size such as 2GB or 512MiB, got '0GB'"),
        ("predictor={name: nystrom, landmarks: 50, memory: 2GB}", "predictor: 'landmarks' and 'memory'.* exclude each"),
        (
            "predictor={name: svm, loss: hinge}",
            "predictor: 'loss' goes with predictor auto or nystrom, got svm; leave it",
        ),
        ("predictor={name: krr-cg, landmarks: 50}", "'landmarks' goes with predictor auto or nystrom, got krr-cg"),
        (
            "predictor={name: krr, tolerance: 1e-3}",
            "'tolerance' goes with predictor auto or krr-cg or nystrom, got krr",
        ),
        ("moments.sample=some", "moments.sample: must be none, auto, or a whole number of rows from 256, got 'some'"),
        ("moments.sample=255", "moments.sample: must be none, auto, or a whole number of rows from 256, got 255"),
        ("moments.tolerance=1", "moments.tolerance: .* less than 1, got 1"),
        ("moments={sampel: 300}", "moments: unknown key 'sampel'; did you mean 'sample'"),
        ("protocol.grid=[2, 1]", "the grid must ascend without repetition"),
        ("datasets.0.name=foo", "needs 'name', one of: breast_cancer, diabetes"),
        ("datasets.0={source: file}", "source 'file' needs 'path'"),
        ("datasets.0.path=x.csv", "'path' goes with source 'file'"),
        ("datasets=[]", r"datasets: must be a list of 1 or more, got \[\]"),
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
    ("change", "phrases"),
    [
        ("kernels={gammas: [1]}", ["kernels: needs 'family', one of"]),
        ("kernels=[{}]", ["kernels.0: needs 'family', one of"]),
        ("kernels=null", ["kernels: must be a list, got None"]),
        ("kernels=5", ["kernels: needs 'family', one of"]),
        ("kernels.0.family=rbf", ["'rbf' is not valid, did you mean 'gaussian'?"]),
        ("kernels=RBF", ["kernels: 'RBF' is not valid, did you mean 'gaussian'?"]),
        ("kernels={family: squared_exponential}", ["'squared_exponential' is not valid, did you mean 'gaussian'?"]),
        ("kernels={family: poly, degree: 3}", ["'poly' is not valid, did you mean 'polynomial'?"]),
        ("kernels.0.family=sigmoid", ["'sigmoid' is not valid; expected 'gaussian'", "'module:Class'"]),
        ("predictor=ridge", ["did you mean 'krr'?"]),
        ("predictor=SVC", ["did you mean 'svm'?"]),
        ("learners=average", ["did you mean 'unif'?"]),
        ("learners=5", ["learners: must be a mapping, with keys of name, label", "got 5"]),
        ("learners=[]", ["learners: must be a list of 1 or more, got []"]),
        ("datasets=[iris, iris]", ["data set iris appears more than once; give each its own 'label'"]),
        ("datasets=diabets", ["datasets: got 'diabets'; did you mean 'diabetes'?", "relevance", ".parquet", "openml"]),
        ("datasets=[kin8nm]", ["datasets.0: got 'kin8nm'; give the name of a set", "{source: openml, name: kin8nm"]),
        ("datasets=x.xlsx", ["got 'x.xlsx'; give the name of a set", ".libsvm"]),
        ("datasets={path: x.csv}", ["datasets: needs 'source': sklearn, file, synthetic or openml"]),
        ("datasets=5", ["datasets: must be a mapping, with keys of source, name"]),
        ("datasets.0.drop=[[a]]", ["datasets.0.drop.0: must be text, in quotes", "got ['a']"]),
        ("kernels.0.gammas=auto", ["kernels.0.gammas: ", *GRIDS, "got 'auto'"]),
        ("kernels.0.gammas=true", [*GRIDS, "got True"]),
        ("kernels.0.gammas=[]", [*GRIDS, "got []"]),
        ("protocol.grid=auto", ["protocol.grid: ", *GRIDS, "got 'auto'"]),
        ("protocol.grid=null", [*GRIDS, "got None"]),
        ("protocol.grid={min: 1, max: 2}", [*GRIDS, "got {'max': 2, 'min': 1}"]),
        ("kernels.0={family: dirichlet, frequencies: all}", ["kernels.0.frequencies: ", *GRIDS]),
        ("kernels.0.gammas=[a]", ["kernels.0.gammas.0: must be a number, got 'a'"]),
        ("kernels.0={family: polynomial, degrees: 1.5}", ["kernels.0.degrees: must be a whole number, got 1.5"]),
        (
            "protocol.split={train: 0.6}",
            ["protocol.split.train: must be a whole number of rows", "train: 600", "got 0.6"],
        ),
        (
            "protocol.split={train: 9, validation: 9, test: 20%}",
            ["split.test: must be a whole number of rows", "'20%'"],
        ),
        ("protocol.split=0.6", ["protocol.split: must be a mapping, with keys of train, validation, test; got 0.6"]),
        (
            "protocol.folds=2",
            ["folds: must be at least 3, as one fold tests, one validates and the others train, got 2"],
        ),
        ("protocol.seed=-1", ["protocol.seed: must be at least 0, as no random numbers follow from a negative one"]),
        ("protocol.repeats=0", ["protocol.repeats: must be at least 1, as one draws the folds, or the split, once"]),
        ("protocol.repeats=two", ["protocol.repeats: must be a whole number, got 'two'"]),
        *[(f"{key}=1", [f"unknown key '{key}'; it belongs under 'protocol'; valid keys"]) for key in PROTOCOL],
        ("workers=2", ["unknown key 'workers'; it belongs under 'dask'"]),
        ("dask=2", ["dask: must be a mapping, with keys of scheduler, certificates, cluster", "got 2"]),
        ("dask.memory=lots", ["dask.memory: must be auto, or a size such as 4GiB, got 'lots'"]),
        ("dask.rows=/seen", ["dask: 'rows' goes with a 'scheduler' or 'cluster'"]),
        ("dask.options={queue: long}", ["'options' are those of a 'cluster'; say which: ssh, slurm, kubernetes"]),
        ("dask={cluster: slurm, scheduler: 'tcp://a:1'}", ["has both 'scheduler', which runs already, and 'cluster'"]),
        ("dask={cluster: slurm}", ["'cluster: slurm' needs 'workers', how many of them to start"]),
        ("dask={cluster: ssh}", ["'cluster: ssh' needs 'options: {hosts: [...]}'"]),
        (
            "dask={cluster: ssh, options: {hosts: [a, b], connect_options: [{password: x}]}}",
            ["'options' holds a password, token or key, which would be shown with the run"],
        ),
        ("dask.scheduler='tls://user:hidden@a:1'", ["dask.scheduler: must be tcp://HOST:PORT or tls://HOST:PORT"]),
        ("dask.scheduler='http://a:8787'", ["dask.scheduler: must be tcp://HOST:PORT or tls://HOST:PORT"]),
        ("dask={scheduler: 'a:1', rows: 's3://me:hidden@rows/x'}", ["dask.rows: s3://...: an address holds a bucket"]),
        (
            "dask={scheduler: 'a:1', rows: 'gs://rows/x'}",
            ["dask.rows: gs://...: files are those of local paths and of"],
        ),
        (
            "dask={scheduler: 'tcp://a:1', certificates: {ca: a, cert: b, key: c}}",
            ["goes with a 'scheduler' at tls://"],
        ),
        ("dask.cluster=mesos", ["dask.cluster: ", "'ssh', 'slurm' or 'kubernetes'"]),
        ("dask.memory='0'", ["dask.memory: must be auto, or a size", "got '0'"]),
        ("dask.memory=1e999", ["dask.memory: must be auto, or a size", "got '1e999'"]),
        ("dask.memory=-1GB", ["dask.memory: must be auto, or a size", "got '-1GB'"]),
        ("name=2026", ["name: must be text, in quotes where YAML takes it for something else, got 2026"]),
        ("centering=mean", ["centering: 'mean' is not valid; expected 'center', 'target' or 'none'"]),
        ("centering=none", ["is defined by base kernels that are centered", "take one of align-uncentered"]),
        ("kernels=constant", ["a constant base kernel is zero once base kernels are centered; set 'centering: none'"]),
        ("kernels={family: feature, constant: true}", ["a constant base kernel is zero once base kernels are"]),
        ("datasets.0.distinct=maybe", ["datasets.0.distinct: must be true or false, got 'maybe'"]),
    ],
)
def test_a_mistake_is_told_with_what_to_write_instead(conf: Path, change: str, phrases: list[str]):
    with pytest.raises(InputError) as caught:
        load_config(conf, [change])
    sentence = str(caught.value).removeprefix(f"{conf}: ")
    assert [phrase for phrase in phrases if phrase not in sentence] == [], sentence
    assert "\n" not in sentence
    assert len(sentence) < 400 - 60  # of which the path takes some


SECRETS = [
    "{env: {AWS_SECRET_ACCESS_KEY: hidden}}",
    "{env: {AWS_ACCESS_KEY_ID: 7}}",
    "{env: [{name: AWS_SECRET_ACCESS_KEY, value: hidden}]}",
    "{env: {HTTPS_PROXY: 'http://me:hidden@proxy:80'}}",
    "{job_script_prologue: ['export AWS_SECRET_ACCESS_KEY=hidden']}",
    "{job_script_prologue: ['module load s3', \"export DB_PASSWORD='hidden'\"]}",
    "{job_extra_directives: ['--export=ALL,MY_TOKEN=hidden']}",
    "{worker_extra_args: ['--api-key   hidden']}",
    "{worker_extra_args: [--nthreads, '1', --access-key, hidden]}",
    "{worker_options: {credential: [hidden]}}",
    "{security: {tls_worker_key: '-----BEGIN PRIVATE KEY-----'}}",
    '{env: {SETTINGS: \'{"password": "hidden"}\'}}',
]

NO_SECRETS = [
    "{queue: long, cores: 1, security: true, shared_temp_directory: /shared/keys}",
    "{connect_options: {client_keys: [/home/me/.ssh/id], known_hosts: null, passphrase: null}}",
    "{job_script_prologue: ['export AWS_SECRET_ACCESS_KEY=$(cat /shared/key)', \"export TOKEN='$TOKEN'\"]}",
    "{job_script_prologue: ['export AWS_SHARED_CREDENTIALS_FILE=/shared/keys/s3', 'echo a token is asked for']}",
    "{env: [{name: AWS_SECRET_ACCESS_KEY, valueFrom: {secretKeyRef: {name: s3, key: secret}}}]}",
    "{custom_cluster_spec: {spec: {automountServiceAccountToken: false, volumes: [{secret: {secretName: s3}}]}}}",
    "{job_extra_directives: ['--container-mounts=/run/secret:/keys'], image: 'registry:5000/learnkernels:0.2.0'}",
]


@pytest.mark.parametrize("options", SECRETS)
def test_options_of_a_cluster_hold_no_secret_which_is_not_repeated(conf: Path, options: str):
    with pytest.raises(InputError, match="'options' holds a password, token or key") as caught:
        load_config(conf, [f"dask={{cluster: slurm, workers: 1, options: {options}}}"])
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("options", NO_SECRETS)
def test_options_of_a_cluster_say_where_secrets_are(conf: Path, options: str):
    assert load_config(conf, [f"dask={{cluster: slurm, workers: 1, options: {options}}}"]).dask.options


def test_an_address_of_a_scheduler_is_one_of_dask_s(conf: Path):
    for address in ("tls://10.0.0.1:8786", "tcp://[::1]:8786", "scheduler:8786", "wss://proxy:443"):
        assert load_config(conf, [f"dask.scheduler='{address}'"]).dask.scheduler == address
    for address in ("tls://me:hidden@a:1", "me:hidden@a:1", "ftp://a:1", "tls://", ""):
        with pytest.raises(InputError, match=r"dask\.scheduler: must be tcp://HOST:PORT or tls://") as caught:
            load_config(conf, [f"dask.scheduler='{address}'"])
        assert "hidden" not in str(caught.value)


def test_an_item_without_a_family_is_told_all_of_them(conf: Path):
    with pytest.raises(InputError) as caught:
        load_config(conf, ["kernels=[{gammas: [1]}]"])
    keys = [of["properties"] for of in TypeAdapter(FamilyConfig).json_schema()["$defs"].values()]
    families = {of["family"].get("const", "module:Class") for of in keys if "family" in of}
    assert len(families) == 11
    assert set(re.findall(r"'([\w:]+)'", str(caught.value))) == {"family", *families}


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("learners=alignf", "learners=[{name: alignf}]"),
        ("learners={name: lq, params: {q: 2}}", "learners=[{name: lq, params: {q: 2}}]"),
        ("learners={name: lq, tune: {q: 1e3}}", "learners=[{name: lq, tune: {q: [1000.0]}}]"),
        ("datasets=diabetes", "datasets=[{source: sklearn, name: diabetes}]"),
        (
            "datasets=[wine, relevance]",
            "datasets=[{source: sklearn, name: wine}, {source: synthetic, name: relevance}]",
        ),
        ("datasets=a/x.csv", "datasets=[{source: file, path: a/x.csv}]"),
        ("datasets=['s3://b/x.PARQUET']", "datasets=[{source: file, path: 's3://b/x.PARQUET'}]"),
        ("datasets={source: sklearn, name: wine}", "datasets=[{source: sklearn, name: wine}]"),
        ("datasets.0.drop=id", "datasets.0.drop=[id]"),
        ("kernels={family: gaussian, gammas: [1]}", "kernels=[{family: gaussian, gammas: [1]}]"),
        ("kernels=linear", "kernels=[{family: linear}]"),
        ("kernels=[cosine, feature]", "kernels=[{family: cosine}, {family: feature}]"),
        ("kernels.0.gammas=0.5", "kernels.0.gammas=[0.5]"),
        ("kernels.0.gammas=1e-3", "kernels.0.gammas=[0.001]"),
        ("kernels.0.columns=age", "kernels.0.columns=[age]"),
        ("kernels.0={family: feature, columns: age}", "kernels.0={family: feature, columns: [age]}"),
        ("kernels.0={family: polynomial, degrees: 2}", "kernels.0={family: polynomial, degrees: [2]}"),
        ("kernels.0={family: dirichlet, frequencies: 2}", "kernels.0={family: dirichlet, frequencies: [2]}"),
        ("protocol.grid=1", "protocol.grid=[1]"),
        ("baseline={gammas: 1}", "baseline={gammas: [1]}"),
        ("dask.memory=4000000000", "dask.memory='4000000000'"),
    ],
)
def test_one_value_stands_for_a_list_of_it_and_is_dumped_as_that(conf: Path, short: str, long: str):
    one, several = load_config(conf, [short]), load_config(conf, [long])
    assert one == several
    assert one.model_dump_json(by_alias=True) == several.model_dump_json(by_alias=True)


@pytest.mark.parametrize("memory", ["auto", "4GiB", "4 gb", "1e9", ".5TB", "512MiB", "100B"])
def test_sizes_are_those_that_dask_reads(conf: Path, memory: str):
    assert load_config(conf, [f"dask.memory='{memory}'"]).dask.memory == memory


@pytest.mark.parametrize(
    ("path", "data_dir", "sentence"),
    [
        (
            "https://x.org/a.csv",
            ".",
            r"https://\.\.\.: files are those of local paths and of s3://bucket/key; download",
        ),
        ("a.csv", "gs://rows", r"gs://\.\.\.: files are those of local paths and of s3://bucket/key; download"),
        ("a.xlsx", ".", r"data set a: cannot read a\.xlsx; supported endings: \.parquet, \.csv"),
        (".csv", ".", r"data set files: cannot read \.csv; supported endings"),
        ("a.csv", ".", r"data set a: there is no file a\.csv \(seen from"),
    ],
)
def test_a_file_that_cannot_be_read_from_there_is_refused(path: str, data_dir: str, sentence: str):
    with pytest.raises(InputError, match=f"^{sentence}"):
        existing_files(DatasetConfig(source="file", path=path), data_dir)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [1", "is not valid YAML at line 1"),
        ("- 1", "must hold keys such as name, datasets, kernels, learners; got list"),
        ("name: x", r"datasets: is required and missing"),
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
    with pytest.raises(ValidationError, match="data set x appears more than once; give each its own 'label'"):
        CompareConfig.model_validate(twice)


def test_a_set_is_called_by_its_label_its_name_or_its_file():
    def label(**keys: object) -> str:
        return DatasetConfig.model_validate(keys).label

    assert label(source="openml", name="kin8nm", version=1) == "kin8nm"
    assert label(source="openml", name="kin8nm", version=1, label="kinematics") == "kinematics"
    assert label(source="file", path="a/x.csv") == "x"
    assert label(source="file", path="a/x.csv", name="y", label="z") == "z"
    assert label(source="synthetic", name="relevance", params={"gamma": 5}, label="five") == "five"


def test_values_of_where_are_text_as_columns_are_compared():
    where = {"a": 1, "b": [2.0, 2.5], "c": True, "d": "x", "e": ["x", 7]}
    config = DatasetConfig.model_validate({"source": "file", "path": "x.csv", "where": where})
    assert config.where == {"a": ("1",), "b": ("2", "2.5"), "c": ("True",), "d": ("x",), "e": ("x", "7")}


def test_a_numeric_positive_label_is_text():
    assert DatasetConfig(source="file", path="x.csv", positive=2).positive == "2"


def test_a_configuration_of_data_sets_alone_compares_what_finds_its_own_kernels(tmp_path: Path):
    path = tmp_path / "few.yaml"
    path.write_text("name: few\ndatasets: [{source: sklearn, name: wine}]\n")
    config = load_config(path)
    assert [learner.name for learner in config.learners] == ["rfm"]
    assert CompareConfig.model_validate(config.model_dump(by_alias=True)) == config
    assert {name for name, learner in LEARNERS.items() if not learner.takes_family} == set(SEARCHING)
    with pytest.raises(InputError, match="learner unif weighs base kernels, and 'kernels' gives none; give families"):
        load_config(path, ["learners=[rfm, unif]"])


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        (
            {"class_weight": "even"},
            "must be balanced, or a number above zero by class, as in {ill: 5, well: 1}, got 'even'",
        ),
        ({"class_weight": {"ill": 0}}, "class_weight: must be balanced, or a number above zero by class"),
        ({"class_weight": "balanced", "task": "regression"}, "'class_weight' goes with a classification"),
    ],
)
def test_class_weights_that_are_none_are_refused(keys, sentence):
    data = {"name": "n", "datasets": {"source": "file", "path": "a.csv", **keys}}
    with pytest.raises(InputError, match=sentence):
        config_of_text(yaml.safe_dump(data), Path("n.yaml"))
    ones = DatasetConfig.model_validate({"source": "file", "path": "a.csv", "class_weight": {0: 1, 1.0: 5}})
    assert ones.class_weight == {"0": 1.0, "1": 5.0}


@pytest.mark.parametrize(
    ("protocol", "sentence"),
    [
        ({"metric": "f1_micro"}, "f1_micro is the accuracy where each row has one class; take accuracy"),
        ({"metric": "neg_mean_poisson_deviance"}, "is for predictions that are positive, which those of a kernel need"),
        ({"metric": "rand_score"}, "rand_score compares groupings"),
        ({"metric": "log_loss"}, "'log_loss' is not valid, did you mean 'neg_log_loss'"),
        (
            {"metric": "neg_log_loss", "split": {"train": 9, "test": 9}, "choose": {"once": True}},
            "with 'choose.once' none do after the first repeat",
        ),
    ],
)
def test_metrics_that_are_none_are_refused_with_the_reason(protocol, sentence):
    with pytest.raises(InputError, match=sentence):
        config_of_text(yaml.safe_dump({"name": "n", "datasets": "iris", "protocol": protocol}), Path("n.yaml"))


def test_columns_can_be_said_to_be_what_tables_know():
    assert get_args(ColumnKind) == KINDS
