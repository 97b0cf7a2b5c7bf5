"""Reading configurations: what is accepted, and the one sentence for what is not."""

import re
import string
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prefect.utilities.callables import parameter_schema
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import make_url

from dev.tools.mutations import is_sentence
from learnkernels.conf.errors import (
    LONGEST,
    InputError,
    cut,
    did_you_mean,
    listed,
    one_line,
    short,
    without_passwords,
)
from learnkernels.conf.forms import BASELINES, with_form_fields
from learnkernels.conf.loading import config_of_text, existing_files, load_config
from learnkernels.conf.schema import (
    BASELINE_TITLES,
    CompareConfig,
    DatasetConfig,
    FamilyConfig,
    LearnerConfig,
    grid_values,
)
from learnkernels.conf.schema.base import LearnerName, PredictorName
from learnkernels.conf.schema.datasets import ColumnKind, FileConfig
from learnkernels.conf.schema.learners import (
    PRESETS,
    SEARCHING,
    PredictorConfig,
    PresetName,
)
from learnkernels.flows.compare import compare
from learnkernels.flows.train import train
from learnkernels.kernels import registry
from learnkernels.kernels.column_encoding.encoding import KINDS
from learnkernels.kernels.learners import LEARNERS, as_learner
from learnkernels.kernels.predictors import PREDICTORS, as_predictor
from tests.refusals import refusal, require_refusals

CONF = Path(__file__).resolve().parents[3] / "conf"

MINIMAL = {
    "name": "small",
    "datasets": [{"source": "sklearn", "name": "diabetes"}],
    "kernels": [{"family": "gaussian", "gammas": {"base": 2, "from": -3, "to": 3}}],
    "learners": ["unif", "alignf"],
}


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("small.yaml")
    path.write_text(yaml.safe_dump(MINIMAL))
    return path


def labels(*datasets: dict[str, object]) -> list[str]:
    return [
        one.label
        for one in CompareConfig.model_validate(
            {**MINIMAL, "datasets": datasets}
        ).datasets
    ]


# What is accepted ----------------------------------------------------------------------------------------------------


def test_every_shipped_configuration_is_valid():
    paths = sorted(CONF.glob("*.yaml"))
    assert (
        [load_config(path).name for path in paths]
        == [path.stem for path in paths]
        != []
    )
    assert {
        learner.name
        for learner in load_config(CONF / "examples" / "all_learners.yaml").learners
    } == set(LEARNERS)


def test_changes_reach_nested_keys_list_entries_and_keys_the_file_does_not_have(
    conf: Path,
):
    config = load_config(
        conf,
        [
            "protocol.folds=10",
            "datasets.0.scale=unit",
            "dask.workers=0",
            "learners=[align]",
        ],
    )
    assert (config.protocol.folds, config.datasets[0].scale, config.dask.workers) == (
        10,
        "unit",
        0,
    )
    assert [learner.name for learner in config.learners] == ["align"]
    with pytest.raises(ValidationError, match="frozen"):
        config.name = "other"


def test_a_grid_is_a_list_powers_or_a_number_of_values_between_two(conf: Path):
    assert grid_values(load_config(conf).kernels[0].gammas) == [
        2.0**g for g in range(-3, 4)
    ]
    cases = {
        "[0.5, 0.1]": [0.5, 0.1],
        "[1e-3]": [1e-3],  # which YAML takes for text
        "{from: 1, to: 9, count: 9}": [1, 2, 3, 4, 5, 6, 7, 8, 9],
        "{from: 0.1, to: 0.7, count: 2}": [0.1, 0.7],
        "{from: 500, to: 50000, count: 3, spacing: linear}": [500, 25250, 50000],
        "{from: 1e-3, to: 1e3, count: 7, spacing: log}": [
            1e-3,
            1e-2,
            1e-1,
            1,
            10,
            100,
            1e3,
        ],
        "{from: 1e-300, to: 1e300, count: 3, spacing: log}": [1e-300, 1, 1e300],
    }
    for grid, values in cases.items():
        got = grid_values(
            load_config(conf, [f"kernels.0.gammas={grid}"]).kernels[0].gammas
        )
        # A power of ten is rounded in the exponent, which may be 300 times the last
        # digit.
        assert got == pytest.approx(values, rel=1e-13), grid
        assert (got[0], got[-1]) == (values[0], values[-1]), grid
        if values == sorted(values):
            assert (
                grid_values(load_config(conf, [f"protocol.grid={grid}"]).protocol.grid)
                == got
            )
            (dirichlet,) = load_config(
                conf, [f"kernels=[{{family: dirichlet, frequencies: {grid}}}]"]
            ).kernels
            assert grid_values(dirichlet.frequencies) == got
    for at_the_limit in (
        "{base: 2, from: -499, to: 500}",
        "{from: 1, to: 2, count: 1000}",
    ):
        assert load_config(conf, [f"kernels.0.gammas={at_the_limit}"]).kernels


def test_bandwidths_are_given_as_gamma_or_as_sigma(conf: Path):
    def gammas(family: str) -> list[float]:
        (config,) = load_config(
            conf, [f"kernels=[{{family: {family}, sigmas: [0.5, 4, 1e-150, 1e150]}}]"]
        ).kernels
        return config.bandwidths()

    assert gammas("gaussian") == pytest.approx([4, 1 / 16, 1e300, 1e-300])
    assert gammas("laplacian") == pytest.approx([2, 1 / 4, 1e150, 1e-150])
    assert load_config(conf).kernels[0].bandwidths() == [2.0**g for g in range(-3, 4)]


PAPER = {
    "CA-1D": {"name": "ca"},
    "CA-nD": {"name": "ca", "params": {"per_feature": True}},
    "CR": {"name": "cr"},
}
PAPER |= {"DA": {"name": "alignf"}, "DU": {"name": "unif"}}
PAPER |= {f"D{norm}": {"name": "lp-svm", "params": {"norm": norm}} for norm in (1, 2)}


def test_the_methods_of_the_paper_stand_for_learners_with_parameters_and_label(
    conf: Path,
):
    short = load_config(conf, [f"learners=[{', '.join(PAPER)}]"]).learners
    assert short == tuple(
        LearnerConfig.model_validate({"label": label, **keys})
        for label, keys in PAPER.items()
    )
    assert [learner.title for learner in short] == list(PAPER)
    assert set(PAPER) == set(PRESETS) == set(PresetName.__args__)
    assert not set(PRESETS) & set(LearnerName.__args__)


def test_parameters_of_a_learner_are_given_or_tuned_and_go_before_those_of_a_method_of_the_paper(
    conf: Path,
):
    def learner(text: str) -> LearnerConfig:
        return load_config(conf, [f"learners=[{text}]"]).learners[0]

    both = learner(
        "{name: CA-nD, params: {kind: dirichlet}, tune: {shrinkage: [0, 1e3]}, tune_by: alignment}"
    )
    assert (both.name, both.title, both.tune_by) == ("ca", "CA-nD", "alignment")
    assert both.params == {"per_feature": True, "kind": "dirichlet"}
    assert both.settings() == [
        {**both.params, "shrinkage": 0},
        {**both.params, "shrinkage": 1e3},
    ]
    other = learner("{name: D1, params: {norm: 1.5}, label: D1.5}")
    assert (other.params, other.title) == ({"norm": 1.5}, "D1.5")
    assert learner("{name: D1, tune: {norm: [1, 2]}}").settings() == [
        {"norm": 1},
        {"norm": 2},
    ]
    assert learner("{name: DU, label: null}").title == "DU"
    nkrr = learner("{name: nkrr, params: {tol: 1e-7}, tune: {radius: [1, 1e2]}}")
    assert nkrr.settings() == [
        {"tol": 1e-7, "radius": 1},
        {"tol": 1e-7, "radius": 100.0},
    ]
    assert learner("{name: l2-krr, params: {algorithm: newton}}").settings() == [
        {"algorithm": "newton"}
    ]


def test_a_split_takes_the_place_of_folds(conf: Path):
    assert (load_config(conf).protocol.folds, load_config(conf).protocol.split) == (
        5,
        None,
    )
    split = "protocol.split={train: 20, validation: 30, test: 40}"
    for changes in ([split], ["protocol.folds=7", split, "protocol.folds=null"]):
        protocol = load_config(conf, changes).protocol
        assert protocol.folds is None
        assert (
            protocol.split.train,
            protocol.split.validation,
            protocol.split.test,
        ) == (20, 30, 40)


def test_a_set_is_called_by_its_label_its_name_or_its_file_and_its_parameters():
    openml, file = (
        {"source": "openml", "name": "kin8nm", "version": 1},
        {"source": "file", "path": "a/x.csv"},
    )
    assert labels(openml, file, openml | {"label": "kinematics"}) == [
        "kin8nm",
        "x",
        "kinematics",
    ]
    assert labels(file | {"name": "y", "label": "z"}) == ["z"]
    plain = {"source": "synthetic", "name": "relevance"}
    other = {**plain, "params": {"gamma": 5}}
    assert labels(plain, other, {**other, "seed": 1}) == [
        "relevance",
        "relevance gamma=5",
        "relevance gamma=5 seed=1",
    ]
    assert labels({**other, "label": "five"}) == ["five"]
    with pytest.raises(
        ValidationError,
        match="data set x appears more than once; give each its own 'label'",
    ):
        labels(file, {"source": "file", "path": "b/x.parquet"})


def test_a_data_set_has_the_keys_of_its_source_and_takes_those_of_others_where_they_say_nothing():
    earlier = {
        "version": None,
        "path": None,
        "params": {},
        "seed": 0,
        "where": {},
        "ngrams": None,
        "bytes": None,
    }
    wine = DatasetConfig.of({"source": "sklearn", "name": "wine", **earlier})
    assert wine == DatasetConfig.of("wine")
    assert (wine.paths, wine.sample_columns, wine.features, wine.time) == (
        (),
        {},
        (),
        None,
    )
    assert not set(wine.model_dump()) & set(earlier)
    with pytest.raises(AttributeError, match="pth"):
        wine.pth  # noqa: B018


def test_values_that_columns_are_compared_with_are_text():
    where = {"a": 1, "b": [2.0, 2.5], "c": True, "d": "x", "e": ["x", 7]}
    keys = {"where": where, "positive": 2}
    config = DatasetConfig.of({"source": "file", "path": "x.csv", **keys})
    assert config.where == {
        "a": ("1",),
        "b": ("2", "2.5"),
        "c": ("True",),
        "d": ("x",),
        "e": ("x", "7"),
    }
    assert config.positive == "2"


def test_a_configuration_survives_its_own_dump(conf: Path):
    for change in (
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
        "predictor={name: nystroem, memory: 2 GiB, loss: hinge}",
        "predictor={memory: 1000000000, tol: 1e-6}",
        "statistics={sample: auto}",
        "statistics={sample: 4096}",
    ):
        config = load_config(conf, [change])
        assert CompareConfig.model_validate_json(config.model_dump_json()) == config, (
            change
        )
        for by_alias in (False, True):
            dumped = config.model_dump(mode="json", by_alias=by_alias)
            assert CompareConfig.model_validate(dumped) == config, change


def test_a_default_that_is_given_changes_nothing(conf: Path):
    plain = load_config(conf, ["predictor=krr"])
    given = load_config(conf, ["predictor={name: krr}", "statistics={sample: none}"])
    assert given == plain
    assert given.model_dump() == plain.model_dump()


def test_second_stages_have_the_options_that_are_given_and_classes_of_ones_own_a_module(
    conf: Path,
):
    stage = load_config(
        conf, ["predictor={name: nystroem, n_components: 500, loss: squared}"]
    ).predictor
    assert (stage.name, stage.options()) == (
        "nystroem",
        {"n_components": 500, "loss": "squared"},
    )
    config = load_config(
        conf,
        [
            "learners=['a.b:Mine', unif]",
            "kernels.0={family: 'a:F', params: {alphas: [1e-3]}}",
        ],
    )
    assert config.predictor.options() == {}
    assert [(one.name, one.title) for one in config.learners] == [
        ("a.b:Mine", "Mine"),
        ("unif", "unif"),
    ]
    assert (config.kernels[0].family, config.kernels[0].params) == (
        "a:F",
        {"alphas": [0.001]},
    )


def test_data_sets_alone_are_compared_by_what_finds_its_own_kernels(tmp_path: Path):
    text, path = (
        "name: few\ndatasets: [{source: sklearn, name: wine}]\n",
        tmp_path / "few.yaml",
    )
    path.write_text(text)
    config = load_config(path)
    assert [learner.name for learner in config.learners] == ["rfm"]
    assert (
        CompareConfig.model_validate(config.model_dump(by_alias=True))
        == config
        == config_of_text(text, path)
    )
    assert {
        name for name, learner in LEARNERS.items() if not learner.takes_family
    } == set(SEARCHING)
    with pytest.raises(
        InputError,
        match="learner unif weighs base kernels, and 'kernels' gives none; give families",
    ):
        load_config(path, ["learners=[rfm, unif]"])


SAME = {
    "learners=alignf": "learners=[{name: alignf}]",
    "learners={name: lq, params: {q: 2}}": "learners=[{name: lq, params: {q: 2}}]",
    "learners={name: lq, tune: {q: 1e3}}": "learners=[{name: lq, tune: {q: [1000.0]}}]",
    "datasets=diabetes": "datasets=[{source: sklearn, name: diabetes}]",
    "datasets=[wine, relevance]": "datasets=[{source: sklearn, name: wine}, {source: synthetic, name: relevance}]",
    "datasets=a/x.csv": "datasets=[{source: file, path: a/x.csv}]",
    "datasets=['s3://b/x.PARQUET']": "datasets=[{source: file, path: 's3://b/x.PARQUET'}]",
    "datasets={source: sklearn, name: wine}": "datasets=[{source: sklearn, name: wine}]",
    "datasets.0.drop=id": "datasets.0.drop=[id]",
    "kernels={family: gaussian, gammas: [1]}": "kernels=[{family: gaussian, gammas: [1]}]",
    "kernels=linear": "kernels=[{family: linear}]",
    "kernels=[cosine, feature]": "kernels=[{family: cosine}, {family: feature}]",
    "kernels.0.gammas=0.5": "kernels.0.gammas=[0.5]",
    "kernels.0.gammas=1e-3": "kernels.0.gammas=[0.001]",
    "kernels.0.columns=age": "kernels.0.columns=[age]",
    "kernels.0={family: feature, columns: age}": "kernels.0={family: feature, columns: [age]}",
    "kernels.0={family: polynomial, degrees: 2}": "kernels.0={family: polynomial, degrees: [2]}",
    "kernels.0={family: dirichlet, frequencies: 2}": "kernels.0={family: dirichlet, frequencies: [2]}",
    "protocol.grid=1": "protocol.grid=[1]",
    "baseline={gammas: 1}": "baseline={gammas: [1]}",
    "dask.memory=4000000000": "dask.memory='4000000000'",
}
"""One value, and the list of it for which it stands."""


def test_one_value_stands_for_a_list_of_it_and_is_dumped_as_that(conf: Path):
    for brief, long in SAME.items():
        one, several = load_config(conf, [brief]), load_config(conf, [long])
        assert one == several, brief
        assert one.model_dump_json(by_alias=True) == several.model_dump_json(
            by_alias=True
        ), brief


# The schema ----------------------------------------------------------------------------------------------------------


def test_names_in_the_schema_are_those_of_the_tables():
    assert set(LearnerName.__args__) == set(LEARNERS)
    assert set(PredictorName.__args__) == {"auto", *PREDICTORS}
    assert get_args(ColumnKind) == KINDS
    known, own = CompareConfig.model_json_schema()["$defs"]["LearnerConfig"][
        "properties"
    ]["name"]["oneOf"]
    assert set(known["enum"]) == {*LEARNERS, *PRESETS}
    assert not any(re.match(own["pattern"], name) for name in known["enum"])


def test_every_key_is_described():
    schema = CompareConfig.model_json_schema()
    for owner, model in {"CompareConfig": schema, **schema["$defs"]}.items():
        for key, item in model.get("properties", {}).items():
            assert "description" in item or "const" in item, f"{owner}.{key}"


def test_an_item_without_a_family_is_told_all_of_them(conf: Path):
    with pytest.raises(InputError) as caught:
        load_config(conf, ["kernels=[{gammas: [1]}]"])
    keys = [
        of["properties"]
        for of in TypeAdapter(FamilyConfig).json_schema()["$defs"].values()
    ]
    found = [of["family"] for of in keys if "family" in of]
    families = {
        name
        for of in found
        for name in of.get("enum", [of.get("const", "module:Class")])
    }
    assert len(families) == 11
    assert set(re.findall(r"'([\w:]+)'", str(caught.value))) == {"family", *families}


# What is refused -----------------------------------------------------------------------------------------------------


def test_a_wrong_change_is_told_in_one_sentence_with_what_to_write_instead(conf: Path):
    lines = (
        (Path(__file__).parent / "refused.txt").read_text(encoding="utf-8").splitlines()
    )
    table = [line for line in lines if line and not line.startswith("#")]
    assert len(table) > 320

    def told(act: Callable[[], object]) -> str:
        said = refusal(act, error=InputError).removeprefix(f"{conf}: ")
        # After which follows all that is
        assert len(said) <= 340 or "is not valid" in said, said
        assert "hidden" not in said, said
        return said

    changes = (partial(load_config, conf, [change]) for change in table[::2])
    sentences = (
        ".*".join(re.escape(phrase.strip()) for phrase in line.split("…"))
        for line in table[1::2]
    )
    require_refusals(zip(changes, sentences, strict=True), by=told)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "name: a\ndatasets: [iris]\nname: b\n",
            r"key 'name' is there twice, first in line 1",
        ),
        (
            "name: a\ndatasets:\n  - {use: iris, drop: [id], target: y, drop: [z]}\n",
            r"line 3, column 40 \(key 'drop' is there twice, first in line 3\)",
        ),
    ],
)
def test_a_key_that_is_there_twice_is_refused(text: str, said: str, tmp_path: Path):
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        load_config(path)


def test_merged_keys_may_be_replaced():
    text = """
name: merged
datasets:
  - &first {source: file, path: a.csv, target: y, columns: {zip: categorical}}
  - {<<: *first, path: b.csv, label: b}
"""
    config = config_of_text(text, Path("merged.yaml"))
    assert [dataset.paths for dataset in config.datasets] == [("a.csv",), ("b.csv",)]
    # A change of the first data set leaves the values that the second shares.
    changed = config_of_text(text, Path("merged.yaml"), ["datasets.0.columns.zip=drop"])
    kinds = [dataset.columns for dataset in changed.datasets]
    assert kinds == [{"zip": "drop"}, {"zip": "categorical"}]


def test_memory_and_addresses_of_workers(conf: Path):
    for memory in ("auto", "4GiB", "4 gb", "1e9", ".5TB", "512MiB", "100B"):
        assert load_config(conf, [f"dask.memory='{memory}'"]).dask.memory == memory
    for address in (
        "tls://10.0.0.1:8786",
        "tcp://[::1]:8786",
        "scheduler:8786",
        "wss://proxy:443",
    ):
        assert (
            load_config(conf, [f"dask.scheduler='{address}'"]).dask.scheduler == address
        )


def test_files_that_cannot_be_read_and_places_without_one_are_refused(tmp_path: Path):
    elsewhere = "files are those of local paths and of s3://bucket/key; download"
    for path, data_dir, sentence in (
        ("https://x.org/a.csv", ".", f"https://...: {elsewhere}"),
        ("a.csv", "gs://rows", f"gs://...: {elsewhere}"),
        (
            "a.xlsx",
            ".",
            "data set a: cannot read a.xlsx; supported endings: .parquet, .csv",
        ),
        (".csv", ".", "data set files: cannot read .csv; supported endings"),
        ("a.csv", ".", "data set a: there is no file a.csv (seen from"),
    ):
        with pytest.raises(InputError, match=f"^{re.escape(sentence)}"):
            existing_files(FileConfig(source="file", path=path), data_dir)
    places = {tmp_path: "Is a directory", tmp_path / "gone.yaml": "No such file"}
    places |= {
        Path("/dev/zero"): "more than 4 MiB",
        Path("n" * 5000): "File name too long",
    }
    for path, reason in places.items():
        with pytest.raises(InputError, match=rf"cannot be read \({reason}"):
            load_config(path)


# What is filled in beside a whole configuration: what it changes, and what is said where it does not fit -------------


def test_the_form_has_a_handful_of_fields_and_one_of_json():
    for flow in (compare, train):
        schema = parameter_schema(flow).model_dump()
        assert len(schema["properties"]) <= 8
        assert all(of["description"] for of in schema["properties"].values())
        whole = schema["properties"]["config"]
        assert whole["type"] == "object"
        assert "properties" not in whole
        in_order = sorted(
            schema["properties"],
            key=lambda name: schema["properties"][name]["position"],
        )
        # One interface of Prefect follows the one, one the other
        assert in_order == list(schema["properties"])
        assert in_order[-1] == "config"
    fields = parameter_schema(compare).model_dump()["properties"]
    assert fields["baseline"]["enum"] == ["as configured", "none", *list(BASELINES)[1:]]
    assert "roc_auc" in str(fields["metric"])
    assert (
        fields["folds"]["minimum"],
        fields["folds"]["maximum"],
        fields["folds"]["default"],
    ) == (0, 100, 0)
    # One type: no choice of types
    assert (fields["table"]["type"], fields["table"]["default"]) == (
        "string",
        "",
    )


def form_config(**keys: Any) -> CompareConfig:
    """A configuration beside which fields of a form are filled in."""
    data = {
        "name": "form",
        "datasets": ["diabetes"],
        "kernels": [{"family": "gaussian", "gammas": [0.1, 1]}],
        "learners": ["unif", {"name": "lq", "tune": {"q": [1.5, 2]}}],
    }
    return CompareConfig.model_validate(data | keys)


def test_fields_of_the_form_replace_parts_of_the_configuration_and_empty_ones_change_nothing():
    plain = form_config(
        protocol={"split": {"train": 100, "validation": 50, "test": 50}, "repeats": 3}
    )
    assert with_form_fields(plain) is plain
    filled = with_form_fields(
        plain,
        folds=4,
        metric="r2",
        baseline="one tuned kernel and boosting",
        learners=["lq", "alignf"],
    )
    assert (filled.protocol.folds, filled.protocol.split, filled.protocol.repeats) == (
        4,
        None,
        3,
    )
    assert filled.protocol.metric == "r2"
    assert filled.baseline is not None
    assert filled.baseline.boosting
    assert filled.learners[0] == plain.learners[1]  # with its parameters
    assert filled.learners[1].name == "alignf"
    labeled = form_config(
        learners=["unif", {"name": "lq", "label": "tuned", "tune": {"q": [1.5, 2]}}]
    )
    by_name = with_form_fields(labeled, learners=["lq"]).learners
    assert by_name == with_form_fields(labeled, learners=["tuned"]).learners
    assert by_name == labeled.learners[1:]
    assert with_form_fields(filled, baseline="none").baseline is None
    with_all = with_form_fields(plain, baseline="all").baseline
    assert with_all is not None
    assert with_all.kinds == list(BASELINE_TITLES)
    (table,) = with_form_fields(plain, table="rows.csv", target="y", folds=5).datasets
    assert (table.source, table.paths, table.target) == ("file", ("rows.csv",), "y")
    (target,) = with_form_fields(
        form_config(datasets=["iris", table]), dataset="rows", target="z"
    ).datasets
    assert (target.paths, target.target) == (("rows.csv",), "z")


def test_fields_of_the_form_that_do_not_fit_are_refused_in_one_sentence():
    two = form_config(datasets=["diabetes", "iris"])
    table: list[tuple[dict[str, Any], str]] = [
        (
            {"dataset": "wine"},
            r"^dataset wine: the configuration has diabetes, iris; name one of them\.$",
        ),
        (
            {"target": "y"},
            r"^table and target belong to one data set, .*diabetes, iris; name one as dataset\.$",
        ),
        ({"learners": ["lq", "lq"]}, r"^the form: learner lq appears"),
        ({"folds": 2}, r"^the form: protocol\.folds: must be at least 3"),
    ]
    for filled, sentence in table:
        with pytest.raises(InputError, match=sentence) as caught:
            with_form_fields(two, **filled)
        assert len(str(caught.value)) < 400


# Sentences are one line of some length, and show no passwords in whatever form an address holds them -----------------


ADDRESSES = {
    "postgresql://ann:secret@db:5432/mlflow": "postgresql://db:5432/mlflow",
    "postgresql://ann:pa/ss@db/mlflow": "postgresql://db/mlflow",
    "postgresql://ann:pa?s#s@db/mlflow": "postgresql://db/mlflow",
    "postgresql://ann:12345/6@db/mlflow": "postgresql://db/mlflow",
    "postgresql://:secret@db/mlflow": "postgresql://db/mlflow",
    "postgresql://ann:p@ss@db/mlflow": "postgresql://db/mlflow",
    "postgresql+psycopg2://ann:p%40ss@/mlflow?host=/run": "postgresql+psycopg2:///mlflow?host=/run",
    "mysql://db/x?user=ann&password=s3cret&ssl=1": "mysql://db/x?user=ann&password=***&ssl=1",
    "mysql://db/x?pass%77ord=s3cret": "mysql://db/x?pass%77ord=***",
    "mssql:///?odbc_connect=PWD%3Ds3cret": "mssql:///?odbc_connect=***",
    "host=db password='a b' dbname=x": "host=db password=*** dbname=x",
    "https://host/page?token=abc&id=3": "https://host/page?token=***&id=3",
    "s3://AKIA123:abc/def+g@bucket/key.csv": "s3://bucket/key.csv",
    "s3://bucket/key?X-Amz-Signature=abc&X-Amz-Credential=d": "s3://bucket/key?X-Amz-Signature=***&X-Amz-Credential=***",
    "s3://bucket/k?access_key=AKIA&secret_key=abc": "s3://bucket/k?access_key=***&secret_key=***",
    "http://ann:se:cret@host/path@x": "http://host/path@x",
    "cannot reach https://ann@host: refused": "cannot reach https://host: refused",
    "sqlite:////home/ann@work/mlflow.db": "sqlite:////home/ann@work/mlflow.db",
    "http://127.0.0.1:5000": "http://127.0.0.1:5000",
    "http://127.0.0.1:5000/#/a@b": "http://127.0.0.1:5000/#/a@b",
    "set kernels=3 and tokens apart: a@b": "set kernels=3 and tokens apart: a@b",
}  # fmt: skip
"""What a sentence may hold, and what of it is shown."""


def test_users_and_passwords_are_left_out():
    for address, shown in ADDRESSES.items():
        assert without_passwords(address) == shown
        assert str(InputError(f"{address} cannot be used.")).startswith(shown)


PASSWORDS = st.text(
    string.ascii_letters + string.digits + "/:@?&#%=+;,.!$'()*[]~|-_",
    min_size=8,
    max_size=24,
)
MARK = "Zq7Zq7"
SCHEMES = ("postgresql", "mysql+pymysql", "mssql+pyodbc", "s3", "http")


@given(PASSWORDS, PASSWORDS, st.booleans(), st.sampled_from(SCHEMES))
def test_no_form_of_a_password_is_left(
    before: str, after: str, encoded: bool, scheme: str
):
    password = f"{before}{MARK}{after}"
    if not encoded and scheme == "http":
        # What follows is a path there, and a number a port
        before = before.replace("@", "").lstrip(string.digits)
        password = f"{before}{MARK}"
    written = quote(password, safe="") if encoded else password
    assert MARK not in without_passwords(
        f"cannot open {scheme}://ann:{written}@db.example/mlflow?a=b: refused"
    )
    query = f"{scheme}://db.example/mlflow?ssl=1&password={quote(password, safe='')}"
    assert MARK not in without_passwords(query)
    if scheme != "http" and encoded:
        assert (
            make_url(f"{scheme}://ann:{written}@db.example/mlflow").password == password
        )


def test_a_sentence_is_one_line_and_keeps_its_end():
    sentence = str(
        InputError("data set " + "x" * 5000 + " is\n\x00\u202e wrong;\n  rename it.")
    )
    assert is_sentence(sentence)
    assert len(sentence) == LONGEST
    assert sentence.endswith(r"is \x00\u202e wrong; rename it.")


def test_a_value_of_any_length_is_shown_in_short():
    nested, large = {"a": {"b": list(range(5000))}}, 1 << 100_000
    for value in (
        "x" * 5000,
        "a\nb",
        "\udc80",
        ["a" * 5000] * 5000,
        nested,
        large,
        10.0,
        None,
        b"x" * 999,
    ):
        shown = short(value)
        assert len(shown) <= 62
        assert shown.isprintable()
    assert [short(value) for value in ("a b", 3, 0.5, ["a", 1], None)] == [
        "'a b'",
        "3",
        "0.5",
        "['a', 1]",
        "None",
    ]
    assert one_line(" a\n b ") == "a b"
    assert cut("abcdef", 6) == "abcdef"
    assert listed(["a" * 100] * 50).endswith(" and 47 more")


def test_options_of_a_predictor_are_kept_whatever_auto_takes(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(registry.PREDICTORS, "auto", ())
    assert PredictorConfig(name="nystroem", n_components=50).options() == {
        "n_components": 50
    }


def test_names_from_elsewhere_mean_the_same_for_the_estimators():
    for name, others in registry.OTHER_NAMES.items():
        for other in others:
            assert (
                did_you_mean(other.upper().replace("-", "_"), ["align", name])
                == f"did you mean {name!r}? "
            )
            assert other != name
    made = [
        (as_learner, "mkl", "alignf"),
        (as_predictor, "SVC", "svm"),
        (as_predictor, "ridge", "krr"),
    ]
    table = (
        (partial(make, name), f"got {name!r} (did you mean {meant!r}?).")
        for make, name, meant in made
    )
    require_refusals(table, literal=True)


def test_the_registry_knows_the_predictors_of_classes_alone():
    of_classes = [
        name
        for name, predictor in PREDICTORS.items()
        if predictor.tasks == ("classification",)
    ]
    assert of_classes == list(registry.CLASSIFIERS)
