"""Training, scoring and promotion: real Prefect, real MLflow registry, real data."""

import json
import os
import re
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient
from mlflow.models import get_model_info
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from sklearn.datasets import load_diabetes, load_wine

from dev.tools.waiting import within
from learnkernels import GaussianFamily, learn_kernel
from learnkernels.conf.errors import InputError
from learnkernels.conf.loading import load_config
from learnkernels.conf.schema import CompareConfig
from learnkernels.flows.compare import compare
from learnkernels.flows.predict import predict
from learnkernels.flows.promote import promote
from learnkernels.flows.train import train
from learnkernels.kernels import estimators, learners
from learnkernels.kernels.model import Model
from learnkernels.tasks.models import lifecycle, registry, scoring, training
from learnkernels.tasks.models.registry import find_version, load_version
from learnkernels.tasks.store import file_digest
from tests.refusals import require_refusals
from tests.service.flows.test_notifications import sends, told_of
from tests.unit.tasks.test_comparison import DIABETES, WINE
from tests.unit.tasks.test_comparison import small as comparison
from tests.unit.tasks.test_promotion import reviews as parcels

pytestmark = pytest.mark.usefixtures("prefect_server")
alone = pytest.mark.usefixtures("working_folder")

ROOT = Path(__file__).resolve().parents[3]
GAUSSIANS = [{"family": "gaussian", "gammas": {"from": -6, "to": -2}}]
small = partial(
    comparison, datasets=WINE, kernels=GAUSSIANS, learners=["unif", "alignf"]
)


@pytest.fixture(scope="module")
def trained(prefect_server: None, module_folder: Path) -> dict[str, Any]:
    """One finished training on wine; tests that use it share its working folder and registry."""
    return dict(train(config=small(), model="wine"))


def test_a_training_registers_a_challenger_with_its_evidence(trained: dict[str, Any]):
    client = MlflowClient()
    version = client.get_model_version_by_alias("wine", "challenger")
    assert (trained["version"], int(version.version), trained["new"]) == (1, 1, True)
    assert (version.tags["dataset"], version.tags["learner"]) == (
        "wine",
        trained["learner"],
    )
    run = client.get_run(trained["mlflow_run"])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["test_error"] == pytest.approx(trained["test_error"])
    assert run.data.metrics["alignment"] == pytest.approx(trained["alignment"])
    (used,) = run.inputs.dataset_inputs
    model = load_version(find_version("wine/1"))
    assert (used.dataset.name, used.dataset.digest) == ("wine", model.about["digest"])
    assert model.reference.rows.shape == (178, 13)
    assert {path.name for path in Path(trained["results"]).iterdir()} == {
        "report.md", "about.json", "model.safetensors", "folds.parquet", "predictions",
    }  # fmt: skip
    report = (Path(trained["results"]) / "report.md").read_text(encoding="utf-8")
    assert "[model.safetensors](model.safetensors)" in report
    assert f"`learnkernels open {trained['results']}`" in report
    assert "http://127.0.0.1" not in report
    drawn = {
        f"predictions/{path.name}"
        for path in Path(trained["results"]).glob("predictions/*")
    }
    assert {"predictions/confusion_matrix.png", "predictions/roc_curve.png"} <= drawn
    artifacts = {item.path for item in client.list_artifacts(trained["mlflow_run"])}
    # The logged model has the file
    assert artifacts == {
        "report.md",
        "about.json",
        "folds.parquet",
        "predictions",
    }
    assert {
        item.path
        for item in client.list_artifacts(trained["mlflow_run"], "predictions")
    } == drawn
    assert (
        file_digest(Path(trained["results"]) / "model.safetensors")
        == find_version("wine/1").digest
    )
    about = get_model_info("models:/wine@challenger")
    assert None not in (about.signature, about.saved_input_example_info)


def test_the_model_is_the_one_that_the_chosen_settings_give_on_all_rows(
    trained: dict[str, Any],
):
    model = load_version(find_version("wine/1"))
    X, y = load_wine(return_X_y=True)
    raw, names = X, load_wine().target_names
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    kernel = learn_kernel(
        X,
        names[y],
        learner=trained["learner"],
        family=GaussianFamily([2.0**g for g in range(-6, -1)]),
    )
    # Rows are added up fold by fold there, and in the order of the file here.
    np.testing.assert_allclose(model.estimator.weights_, kernel.weights, atol=1e-9)
    assert model.estimator.alignment_ == pytest.approx(kernel.alignment, rel=1e-10)
    assert np.mean(model.columns(raw)["prediction"] == names[y]) > 0.97


def test_the_same_training_again_registers_nothing_and_computes_nothing(
    trained: dict[str, Any],
):
    store = Path(os.environ["LEARNKERNELS_HOME"]) / "store"
    before = {
        path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()
    }
    again = train(config=small(), model="wine")
    assert (again["version"], again["new"], again["digest"]) == (
        1,
        False,
        trained["digest"],
    )
    assert {
        path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()
    } == before
    assert len(MlflowClient().search_model_versions("name = 'wine'")) == 1


@alone
def test_the_same_model_from_another_place_is_no_new_version_and_promote_finds_it_there():
    done = []
    for number, folder in enumerate(("here", "there"), 1):
        Path(folder).mkdir()
        load_wine(as_frame=True).frame.to_parquet(f"{folder}/wine.parquet")
        datasets = [{"source": "file", "path": "wine.parquet", "scale": "standard"}]
        dask = {"workers": 0, "super_tile": 64 * number}
        place: dict[str, Any] = {
            "data_dir": folder,
            "tracking": {"experiment": folder},
            "dask": dask,
        }
        done.append(train(config=small(datasets=datasets, **place), model="moved"))
    version = find_version("moved/1")
    assert [(one["version"], one["new"]) for one in done] == [(1, True), (1, False)]
    recipe = training.recipe_of(load_version(version), version)
    assert (recipe.data_dir, recipe.tracking.experiment, recipe.dask.super_tile) == (
        "there",
        "there",
        128,
    )


@alone
def test_regression_with_a_tuned_one_stage_learner_and_a_split():
    config = small(
        datasets=DIABETES,
        learners=[{"name": "l2-krr", "tune": {"center": [0, 1]}}],
        protocol={
            "split": {"train": 150, "validation": 80, "test": 80},
            "repeats": 2,
            "grid": {"from": -3, "to": 3},
        },
    )
    done = train(config=config, model="diabetes")
    model = Model.load(Path(done["results"]) / "model.safetensors")
    assert model.about["n_rows"] == 442
    # All rows, and not those of a split alone
    assert len(model.estimator.kernel_.X) == 442
    recipe = model.about["config"]["learners"][0]
    assert recipe["tune"] == {}
    X, y = load_diabetes(return_X_y=True)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    fitted = estimators.KernelLearningRegressor(
        family=GaussianFamily([2.0**g for g in range(-6, -1)]),
        learner=learners.L2KRR(**recipe["params"]),
        alpha=1 / done["C"],
    ).fit(Z, y)
    np.testing.assert_allclose(
        model.columns(X)["prediction"], fitted.predict(Z), rtol=1e-6
    )


def test_what_cannot_be_trained_is_refused_before_a_run_begins():
    ensemble = small(learners=["ensemble"])
    refused = [
        (small(), "a/b", "a registered model's name has up to 64"),
        (ensemble, "wine", "learns no kernel"),
    ]
    require_refusals(
        (
            (partial(train.fn, config=config, model=name), said)
            for config, name, said in refused
        ),
        error=InputError,
    )


@alone
def test_limits_of_drift_make_no_other_version_and_are_those_of_the_latest_training():
    with pytest.raises(
        InputError,
        match=r"drift\.ignore: data set wine has no column 'ahs'; did you mean 'ash'\? ",
    ):
        train(config=small(drift={"ignore": ["ahs"]}), model="wine")
    drift = {"on_drift": "fail", "ignore": ["ash"]}
    done = [
        train(config=small(learners=["unif"], **keys), model="wine")
        for keys in ({}, {"drift": drift})
    ]
    assert [(one["version"], one["new"]) for one in done] == [(1, True), (1, False)]
    found = scoring.drift_config(find_version("wine"))
    assert (found.on_drift, found.ignore, found.level) == ("fail", ("ash",), 0.05)


# Promotion -----------------------------------------------------------------------------------------------------------


def noise_and_signal(path: Path) -> Path:
    """A table whose target needs a bandwidth that a wide Gaussian does not have."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(300, 2))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=300)
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": y}), path)
    return path


def recipe(path: Path, gammas: list[float], **data: Any) -> CompareConfig:
    return small(
        datasets=[{"source": "file", "path": str(path), "target": "y"} | data],
        kernels=[{"family": "gaussian", "gammas": gammas}],
        learners=["unif"],
    )


@sends
@pytest.mark.slow(20)
def test_the_alias_moves_only_on_a_significant_win(working_folder: Path):
    path = noise_and_signal(working_folder / "rows.parquet")
    train(config=recipe(path, [0.001]), model="sine")
    with told_of() as told:
        first = promote("sine")
        train(config=recipe(path, [1.0, 2.0]), model="sine")
        better = promote("sine")
        assert (
            "significantly better"
            in MlflowClient().get_model_version("sine", "2").tags["decision"]
        )
        train(config=recipe(path, [0.002]), model="sine")
        worse = promote("sine")
        again = promote("sine", challenger=2)
        assert within(lambda: len(told) >= 3, 60), told
    assert (first["moved"], first["champion"]) == (True, 1)
    assert (better["moved"], better["champion"]) == (True, 2)
    assert better["p"] < 1e-3
    decision = json.loads((Path(better["results"]) / "decision.json").read_text())
    ours = pd.read_parquet(Path(better["results"]) / "folds_challenger.parquet")
    theirs = pd.read_parquet(Path(better["results"]) / "folds_champion.parquet")
    assert decision["challenger"]["errors"] == ours["error"].tolist()
    assert decision["defender"]["errors"] == theirs["error"].tolist()
    assert (ours["n_train"] == theirs["n_train"]).all()
    assert (
        ours["trivial_error"] == theirs["trivial_error"]
    ).all()  # of the same test rows
    artifacts = {
        file.path for file in MlflowClient().list_artifacts(better["mlflow_run"])
    }
    assert {"decision.json", "report.md"} <= artifacts
    assert (worse["moved"], worse["champion"], worse["challenger"]) == (False, 2, 3)
    assert worse["p"] > 0.9
    assert (again["moved"], find_version("sine@champion").version) == (False, 2)
    assert "already" in again["reason"]
    subjects = sorted(one["title"].removeprefix("sine: challenger ") for one in told)
    # a champion that challenges itself is no news
    assert subjects == [
        "promoted",
        "promoted",
        "rejected",
    ]
    reasons = {f"sine: {each['reason']}." for each in (first, better, worse)}
    assert {one["message"].splitlines()[0] for one in told} == reasons


@pytest.mark.slow(15)
def test_recipes_meet_on_the_same_rows_and_newer_rows_take_over(working_folder: Path):
    path = noise_and_signal(working_folder / "rows.parquet")
    train(config=recipe(path, [1.0], scale="standard"), model="sine")
    for name, challenger, sentence in [
        ("sine", 9, "sine.*9"),
        ("cosine", None, "cosine"),
    ]:
        with pytest.raises(InputError, match=sentence):
            lifecycle.rivals(name, challenger)
    promote("sine")
    # Folds are shared by recipes of other columns and scaling, and not by those of
    # another target.
    train(config=recipe(path, [1.0], target="a"), model="sine")
    with pytest.raises(InputError, match="share no folds"):
        promote("sine")

    def decided(**options: bool) -> tuple[bool, int]:
        return promote("sine", **options)["moved"], find_version(
            "sine@champion"
        ).version

    train(config=recipe(path, [1.0], drop=["b"]), model="sine")
    assert decided() == (True, 3)  # the dropped column is noise
    pq.write_table(pq.read_table(path).slice(0, 250), path)
    assert train(config=recipe(path, [1.0], drop=["b"]), model="sine")["version"] == 4
    assert [decided(refresh=False), decided()] == [(False, 3), (True, 4)]
    # Refreshes are held to the champion once the file of their best version is lost.
    registry.tag_version("sine", 4, {registry.REFERENCE: "3"})
    lost = [
        file
        for file in working_folder.rglob(registry.ARTIFACT)
        if file_digest(file) == find_version("sine/3").digest
    ]
    assert lost
    for file in lost:
        file.unlink()
    pq.write_table(pq.read_table(path).slice(0, 240), path)
    train(config=recipe(path, [1.0], drop=["b"]), model="sine")
    assert "of version 4 (" in promote("sine")["reason"]


def rows_of(night: int) -> pd.DataFrame:
    """The table of a night: ten more rows than before, of three species by two measures and a place."""
    rng = np.random.default_rng(0)
    n = 240 + 10 * night
    frame = pd.DataFrame(rng.normal(size=(600, 2)), columns=["width", "depth"])
    frame["place"] = rng.choice(["shore", "wood"], 600)
    score = (
        frame["width"]
        + frame["depth"]
        + 0.3 * rng.normal(size=600)
        + (frame["place"] == "wood")
    )
    frame["species"] = np.select([score < -0.5, score < 1.2], ["ash", "birch"], "cedar")
    return frame[:n]


def mistaken(frame: pd.DataFrame, share: float) -> pd.DataFrame:
    """The same table with a share of its species drawn at random."""
    rng = np.random.default_rng(1)
    drawn = rng.choice(frame["species"].unique(), len(frame))
    return frame.assign(
        species=np.where(rng.random(len(frame)) < share, drawn, frame["species"])
    )


def hinted(frame: pd.DataFrame) -> pd.DataFrame:
    """The same table with a column that nearly repeats the species, but for every fiftieth row."""
    return frame.assign(
        hint=np.where(np.arange(len(frame)) % 50 == 0, "oak", frame["species"])
    )


EVENTS: dict[int, tuple[str, Callable[[pd.DataFrame], pd.DataFrame], str]] = {
    1: ("the first night", lambda of: of, "first champion"),
    3: (
        "half of the rows are lost",
        lambda of: of[: len(of) // 2],
        "learned from 135 rows in place of 260",
    ),
    5: (
        "a column is lost",
        lambda of: of.drop(columns="width"),
        "learned without 'width', so version 4",
    ),
    7: (
        "a column determines the target",
        lambda of: of.assign(
            code=of["species"].map({"ash": 1, "birch": 2, "cedar": 3})
        ),
        "reads 'code', which alone determines the target",
    ),
    8: (
        "a column has values of another kind",
        lambda of: of.assign(width=np.where(of["width"] > 0, "wide", "slim")),
        "learned 'width' as category in place of number",
    ),
    10: (
        "a column has other units",
        lambda of: of.assign(width=1000 * of["width"]),
        "'width' with a spread of 99",
    ),
    11: (
        "the rows to score lack a column",
        lambda of: of.assign(height=np.sin(np.arange(len(of)))),
        "reads 'height', which the rows to score lack, so version",
    ),
    12: (
        "all values of a column are missing",
        lambda of: of.assign(depth=np.nan),
        "learned without 'depth'",
    ),
    13: (
        "errors fall further than is plausible",
        hinted,
        "has less than 25% of its error, as if a column held",
    ),
    14: (
        "a class has no rows",
        lambda of: of[of["species"] != "cedar"],
        "has no rows of class 'cedar'",
    ),
    15: (
        "a tenth of the rows is lost",
        lambda of: of[:290],
        "(from 290 rows in place of 330)",
    ),
    16: (
        "rows are there twice",
        lambda of: pd.concat([of, of]),
        "from rows of which 50% repeat others",
    ),
    18: ("errors are higher", lambda of: mistaken(of, 0.5), "is worse, so version"),
    20: (
        "a category is new",
        lambda of: of.assign(place=[*of["place"][:-9], *["moor"] * 9]),
        "not worse and takes",
    ),
    21: (
        "a column is added",
        lambda of: of,
        "(with 'length'), is not worse and takes over",
    ),
    23: (
        "another recipe is better",
        lambda of: of,
        "is significantly better and takes over",
    ),
}
"""What happens to the table of a night, and what the decision says of it."""


@pytest.mark.slow(90)
@sends
def test_a_month_of_nights_promotes_what_is_sound_and_says_once_what_is_not(
    working_folder: Path,
):
    page = (ROOT / "docs" / "lifecycle.md").read_text(encoding="utf-8")
    outcomes = dict(
        re.findall(r"^\| ([^|]+) \| (promoted|stays)\b", page, re.MULTILINE)
    )
    assert outcomes.keys() == {event for event, *_ in EVENTS.values()} | {
        "more rows",
        "errors rise night by night",
    }
    texts: list[str] = []
    with (
        told_of() as told,
        temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
    ):
        for night in range(1, 31):
            event, change, said = EVENTS.get(
                night, ("more rows", lambda of: of, "not worse and takes over")
            )
            if night == 6:  # nobody has mended what was wrong the night before
                event, change, said = EVENTS[5]
            sound = rows_of(5 if night == 6 else night)
            if night >= 21:  # the column that is added says something of the species
                noise = np.random.default_rng(2).normal(size=len(sound))
                sound = sound.assign(length=(sound["species"] == "ash") + 0.3 * noise)
            frame = (
                mistaken(sound, 0.05 * (night - 23)) if night >= 24 else change(sound)
            )
            if night >= 26:
                event, said = "errors rise night by night", "is worse, so version"
            frame.to_csv("trees.csv", index=False)
            sound.drop(columns="species").to_csv("new.csv", index=False)
            data = {
                "source": "file",
                "path": "trees.csv",
                "target": "species",
                "scale": "standard",
            }
            kernels = [{"family": "gaussian", "gammas": [3.0 if night < 23 else 0.1]}]
            train(
                config=small(
                    datasets=[data], kernels=kernels, learners=["unif"], predictor="krr"
                ),
                model="trees",
            )
            done = promote("trees")
            assert predict("trees", "new.csv", "scored.csv")["rows"] == len(sound)
            assert (said in done["reason"], done["moved"]) == (
                True,
                outcomes[event] == "promoted",
            ) or night == 25, done
            kept = load_version(find_version("trees@champion"))
            predicted = kept.columns(sound[list(kept.features)])["prediction"]
            # Of rows as they should be
            assert np.mean(predicted != sound["species"]) < 0.1, night
            measured = MlflowClient().get_run(done["mlflow_run"]).data.metrics
            assert {
                "challenger/test_error",
                "champion/test_error",
                "p",
            } <= measured.keys() or night == 1
            texts += [f"trees: {done['reason']}."] * (night != 6)
        assert within(lambda: len(told) >= len(texts), 60), told
    assert sorted(one["message"].splitlines()[0] for one in told) == sorted(texts)


@pytest.mark.slow(60)
@alone
def test_twenty_clean_nights_raise_no_alarm():
    rng = np.random.default_rng(3)
    rows = pd.DataFrame(rng.normal(size=(400, 3)), columns=["width", "depth", "height"])
    rows["weight"] = (
        rows["width"] * rows["depth"] + rows["height"] + 0.3 * rng.normal(size=400)
    )
    data = {
        "source": "file",
        "path": "rows.csv",
        "target": "weight",
        "scale": "standard",
    }
    night = partial(
        small,
        datasets=[data],
        kernels=[{"family": "gaussian", "gammas": [0.2]}],
        learners=["unif"],
    )
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        for number in range(1, 21):  # new rows come, and the oldest go
            rows[5 * number : 200 + 10 * number].to_csv("rows.csv", index=False)
            train(config=night(predictor="krr"), model="rows")
            done = promote("rows")
            assert (done["moved"], done["champion"]) == (True, number), done["reason"]
            in_use = f"on 10 rows that version {number - 1} has not seen, root mean squared error "
            assert (in_use in done["reason"]) is (number > 1)
            assert predict("rows", "rows.csv", "scored.csv")["rows"] == 200 + 5 * number


@pytest.mark.slow(15)
@alone
def test_a_model_is_chosen_and_challenged_by_the_metric_on_rows_of_the_same_weights():
    rng = np.random.default_rng(0)
    patient = np.repeat(np.arange(60), 5)
    frame = pd.DataFrame(
        rng.normal(size=(60, 4))[patient] + 0.01 * rng.normal(size=(300, 4)),
        columns=list("abcd"),
    )
    frame["target"] = np.where(frame["a"] + frame["b"] > 0.5, "ill", "well")
    w = 1.0 + np.arange(300) % 3
    frame.assign(patient=patient, w=w, less=1e-12 * w).to_csv(
        "patients.csv", index=False
    )
    gammas = [{"family": "gaussian", "gammas": [0.1, 1]}]
    protocol = {"metric": "average_precision", "folds": 3, "grid": [1, 16]}
    patients = partial(
        small, learners=["unif"], predictor="krr", protocol=protocol, kernels=gammas
    )
    features = {"features": ["a", "b", "c", "d"]}
    weighed = {
        "source": "file",
        "path": "patients.csv",
        "groups": "patient",
        "weights": "w",
    } | features
    first = train(config=patients(datasets=[weighed]), model="patients")
    model = Model.load(Path(first["results"]) / "model.safetensors")
    assert (model.about["metric"], model.about["drop"]) == (
        "1 - average_precision of well",
        ["patient", "w"],
    )
    assert model.about["test_error"] < 0.1
    # Divided by their mean
    assert sorted(set(model.estimator.kernel_.sample_weight)) == [
        0.5,
        1.0,
        1.5,
    ]
    scaled = train(
        config=patients(datasets=[weighed | {"weights": "less"}]), model="scaled"
    )
    same = Model.load(Path(scaled["results"]) / "model.safetensors")
    assert same.about["test_error"] == pytest.approx(
        model.about["test_error"], rel=1e-9
    )
    scores = [
        of.scores_in(of.columns(frame[["a", "b", "c", "d"]])) for of in (model, same)
    ]
    np.testing.assert_allclose(*scores, rtol=0, atol=1e-9 * np.ptp(scores[0]))
    promote("patients")
    train(
        config=patients(
            datasets=[weighed | {"weights": "less"}], kernels=[{"family": "linear"}]
        ),
        model="patients",
    )
    decided = promote("patients")
    report = (Path(decided["results"]) / "report.md").read_text(encoding="utf-8")
    assert "Test error (1 - average_precision of well) on patients" in report
    assert f"`learnkernels open {decided['results']}`" in report
    assert "[decision.json](decision.json)" in report
    unweighed = weighed | {"weights": None}
    train(config=patients(datasets=[unweighed]), model="patients")
    with pytest.raises(
        InputError,
        match="model patients: the recipes of champion and challenger weigh the rows of",
    ):
        promote("patients")


@pytest.mark.slow(15)
@alone
def test_a_model_on_landmarks_from_a_sample_is_trained_used_and_challenged(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
):
    split = {
        "split": {"train": 320, "validation": 60, "test": 60},
        "repeats": 2,
        "grid": [1, 8],
    }
    keys = {"datasets": DIABETES, "learners": ["alignf"], "protocol": split}
    config = small(
        **keys,
        predictor={"name": "nystroem", "n_components": 50},
        statistics={"sample": 300},
    )
    done = train(config=config, model="scaled")
    fits = [text for text in caplog.messages if "held-out rows" in text]
    assert fits[0].startswith("diabetes, alignf: fitting ")
    model = Model.load(Path(done["results"]) / "model.safetensors")
    assert model.estimator.dual_coef_.shape[0] == 50
    assert (
        model.about["predictor"],
        model.about["predictor_options"]["n_components"],
    ) == ("nystroem", 50)
    assert (model.about["sampling"]["n_rows"], model.about["sampling"]["of_rows"]) == (
        300,
        442,
    )
    folds = pd.read_parquet(Path(done["results"]) / "folds.parquet")
    assert folds[["n_sampled", "n_train"]].to_numpy().tolist() == [[300, 320]] * 2
    assert "from 300 of 442 rows" in (Path(done["results"]) / "report.md").read_text()
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    X.to_parquet(tmp_path / "new.parquet")
    predict("scaled", str(tmp_path / "new.parquet"), str(tmp_path / "scored.parquet"))
    scored = pq.read_table(tmp_path / "scored.parquet")["prediction"].to_numpy()
    np.testing.assert_array_equal(scored, model.columns(X.to_numpy())["prediction"])
    assert np.sqrt(np.mean((scored - y) ** 2)) < 0.75 * y.std()
    assert promote("scaled")["champion"] == 1
    train(config=small(**keys, predictor="krr"), model="scaled")
    decision = promote("scaled")
    # Two recipes, learned anew
    assert (decision["challenger"], decision["p"] is None) == (
        2,
        False,
    )


# Labels --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow(15)
@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_labels_pass_through_training_the_registry_pyfunc_and_scoring(
    working_folder: Path, ending: str
):
    labels = ["00077", "77", "1e3", "5 kg"]
    place = np.arange(80) % 4
    wave = np.sin(np.arange(80))
    rows = pd.DataFrame(
        {
            "a": 3.0 * place + 0.1 * wave,
            "b": wave,
            "y": np.array(labels, dtype=object)[place],
        }
    )
    file = f"rows{ending}"
    if ending == ".csv":
        rows.to_csv(file, index=False)
    else:
        rows.to_parquet(file)
    done = train(config=recipe(Path(file), [0.5]), model="codes")
    assert done["new"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of MLflow, about its own type hints
        from mlflow import pyfunc
    served = pyfunc.load_model("models:/codes/1").predict(rows[["a", "b"]])
    assert served["prediction"].tolist() == rows["y"].tolist()
    assert [name for name in served if name.startswith("score ")] == [
        f"score {label}" for label in sorted(labels)
    ]
    predict("codes/1", file, "scored.parquet")
    assert (
        pq.read_table("scored.parquet")["prediction"].to_pylist() == rows["y"].tolist()
    )


@pytest.mark.slow(15)
def test_scores_are_of_the_positive_class(working_folder: Path):
    is_malignant = np.arange(80) % 2 > 0
    wave = np.sin(np.arange(80))
    rows = pd.DataFrame({"a": 3.0 * is_malignant + 0.1 * wave, "b": wave})
    rows["y"] = np.where(is_malignant, "malignant", "benign")
    rows.to_parquet("rows.parquet")
    train(
        config=recipe(Path("rows.parquet"), [0.5], positive="malignant"), model="tumors"
    )
    predict("tumors/1", "rows.parquet", "scored.parquet", explain=True)
    scored = pd.read_parquet("scored.parquet")
    assert set(scored["prediction"]) == {"malignant", "rest"}
    np.testing.assert_array_equal(scored["score"] > 0, is_malignant)
    contributions = pd.read_parquet("scored.contributions.parquet")
    assert set(contributions["explains"]) == {"score"}
    sums = contributions["base"] + contributions.filter(like="contribution ").sum(
        axis=1
    )
    np.testing.assert_allclose(sums, scored["score"], rtol=1e-9, atol=1e-9)


TEXTS = """
name: reviews
datasets:
  - {source: file, path: reviews.csv, target: kind, scale: standard, columns: {review: text}}
kernels: [{family: gaussian, gammas: [0.03, 0.3]}]
learners: [rfm, unif]
baseline: {without: [grid-search]}
protocol: {folds: 3}
dask: {workers: 0}
"""


def reviews(m: int) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    kinds = draw.choice(["good", "bad"], m)
    words = {"good": ["great", "lovely", "superb"], "bad": ["awful", "poor", "useless"]}
    other = [
        "the",
        "a",
        "film",
        "plot",
        "actor",
        "scene",
        "music",
        "end",
        "time",
        "people",
        "story",
        "camera",
    ]
    texts = [
        " ".join(
            draw.permutation([*draw.choice(other, 7), *draw.choice(words[kind], 2)])
        )
        for kind in kinds
    ]
    table = pd.DataFrame(
        {"review": texts, "size": draw.normal(size=m).round(3), "kind": kinds}
    )
    table.loc[3, "review"] = None
    return table


@pytest.mark.slow(30)
def test_a_column_of_text_is_compared_trained_served_and_promoted(working_folder: Path):
    reviews(150).to_csv("reviews.csv", index=False)
    Path("reviews.yaml").write_text(TEXTS)
    config = load_config(Path("reviews.yaml"))
    folds = pd.read_parquet(Path(compare(config=config)["results"]) / "folds.parquet")
    errors = folds.groupby("algorithm")["error"].mean()
    assert max(errors["rfm"], errors["unif"]) < 0.05 < 0.2 < errors["constant"]
    assert train(config=config, model="reviews")["new"]
    assert promote("reviews")["champion"] == 1
    new = reviews(250)[150:].drop(columns="kind").reset_index(drop=True)
    new.loc[0, "review"] = None
    new.loc[1, "review"] = "zzz 🎬"
    new.to_csv("new.csv", index=False)
    scored = predict("reviews", "new.csv", "scored.csv")
    predictions = pd.read_csv("scored.csv")["prediction"]
    assert (predictions[2:] == reviews(250)["kind"][152:].to_numpy()).mean() > 0.95
    assert scored["gaps"] == {"review": 1}
    reviews(200).to_csv("reviews.csv", index=False)
    assert train(config=config, model="reviews")["version"] == 2
    assert promote("reviews")["challenger"] == 2


@pytest.mark.slow(30)
@alone
def test_a_champion_that_reads_texts_is_scored_on_appended_rows():
    rows = parcels(180)
    data = {
        **{"source": "file", "path": "rows.csv", "target": "y", "missing": "impute"},
        "columns": {"review": "text", "size": "number", "weight": "number"},
    }
    recipe = partial(
        small,
        kernels=[{"family": "gaussian", "gammas": [0.1]}],
        learners=["unif"],
        predictor="krr",
    )
    with_text = recipe(datasets=[data])
    rows[:120].to_csv("rows.csv", index=False)
    train(config=with_text, model="reviews")
    assert promote("reviews")["champion"] == 1
    rows[:150].to_csv("rows.csv", index=False)
    train(config=with_text, model="reviews")
    refreshed = promote("reviews")
    assert refreshed["champion"] == 2
    rate = "has not seen, misclassification rate "
    assert f"on 30 rows that version 1 {rate}" in refreshed["reason"]
    # Another recipe, without a column of the champion
    del data["columns"]["review"]
    rows.to_csv("rows.csv", index=False)
    train(config=recipe(datasets=[data | {"drop": ["review"]}]), model="reviews")
    stays = promote("reviews")
    assert (stays["champion"], stays["moved"]) == (2, False)
    assert f"on 30 rows that version 2 {rate}" in stays["reason"]
