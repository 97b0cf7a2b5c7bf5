"""The page docs/extending.md as it stands: its files, its Python and its configuration."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from sklearn.datasets import load_wine
from typer.testing import CliRunner

from learnkernels import GaussianFamily, KernelLearningClassifier, learn_kernel, load
from learnkernels.conf.errors import InputError
from learnkernels.conf.loading import load_config
from learnkernels.flows.cli import app
from learnkernels.flows.compare import compare
from learnkernels.flows.predict import predict
from learnkernels.flows.train import train
from learnkernels.kernels.families.base import KINDS
from learnkernels.kernels.model import Model
from learnkernels.kernels.model_selection.folds import assign_folds, trials
from learnkernels.kernels.targets import Target
from learnkernels.tasks.data.dataset import fold_seed
from learnkernels.tasks.measure.families import build_family
from learnkernels.tasks.plugins import as_learner, custom_family, sources
from learnkernels.tasks.reporting.mlflow_pages import LEVEL
from tests.pages import files_of, python_blocks
from tests.refusals import require_refusals

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "extending.md"
FILES = files_of(PAGE)
(SCRIPT,) = python_blocks(PAGE)
CHECKS = """
assert search.best_score_ > 0.95, search.best_score_
assert abs(np.linalg.norm(kernel.weights) - 1) < 1e-12
assert kernel.certificate.residual <= kernel.certificate.tolerance
assert load('softmax.safetensors').learner == 'softmax_learner:Softmax'
assert (load('softmax.safetensors').weights == kernel.weights).all()
"""
BUILT_IN = "kernels=[{family: gaussian, gammas: {from: -6, to: -4}}]"

ELSEWHERE = """
from learnkernels import GaussianFamily
from learnkernels.kernels.families import KernelFamily
from learnkernels.kernels.learners import Align
class Weights(Align):
    def __init__(self, power=1.0):
        self._power = power
class Mine(GaussianFamily):
    def __init__(self, width=1.0):
        super().__init__([width])
class Half(KernelFamily):
    pass
"""
"""Classes that lack what a learner and a family must have."""


def write_files(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")


def forget() -> None:
    """Let the page's modules be imported anew, from where the working folder is then."""
    for name in ("softmax_learner", "rational_quadratic"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def here(module_folder: Path) -> Iterator[Path]:
    """The working folder of this module, with the page's files in it."""
    write_files(module_folder)
    before = list(sys.path)
    forget()
    yield module_folder
    sys.path[:] = before
    forget()


@pytest.fixture(scope="module")
def compared(prefect_server: None, here: Path) -> dict[str, Any]:
    return dict(compare(config=load_config(here / "own.yaml", ["dask.workers=1"])))


def test_the_page_has_files_and_a_configuration_and_its_python_runs(tmp_path: Path):
    assert list(FILES) == ["softmax_learner.py", "rational_quadratic.py", "own.yaml"]
    for page in ("README.md", ".github/CONTRIBUTING.md"):
        assert "docs/extending.md" in (ROOT / page).read_text(encoding="utf-8")
    write_files(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT + CHECKS)
    command, environment = (
        [sys.executable, "-W", "error", "script.py"],
        os.environ | {"PYTHONPATH": os.fspath(ROOT)},
    )
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env=environment
    )
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.slow(10)
def test_weights_certificates_and_tuning_are_in_the_results_mlflow_and_the_report(
    compared: dict[str, Any],
):
    folds = pd.read_parquet(Path(compared["results"]) / "folds.parquet")
    assert set(folds["learner"]) == {"unif", "Softmax"}
    softmax = folds[folds["learner"] == "Softmax"]
    assert (set(softmax["algorithm"]), len(softmax)) == ({"softmax_learner:Softmax"}, 5)
    assert (softmax["certificate"] <= softmax["certificate_tolerance"]).all()
    assert set(softmax["certificate_measure"]) == {"KKT residual"}
    assert set(softmax["params"]) <= {
        f'{{"temperature": {value}}}' for value in (0.02, 0.1, 0.5)
    }
    assert [len(errors) for errors in softmax["candidate_errors"]] == [3] * 5
    assert list(softmax["kernels"].iloc[0][:2]) == [
        "rational(alpha=0.5)",
        "rational(alpha=2)",
    ]
    assert softmax["error"].mean() < 0.1
    # Every fold, recomputed by the classes themselves on its training rows.
    config, data = load_config(Path("own.yaml")), load_wine()
    X = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    family, target = (
        build_family(config.kernels, data.feature_names),
        Target.of(data.target),
    )
    groups = assign_folds(target, 5, fold_seed(0, 0))
    for trial in trials(5):
        row = softmax[softmax["fold"] == trial.index].iloc[0]
        rows = np.isin(groups, trial.training)
        kernel = learn_kernel(
            X[rows],
            data.target[rows],
            learner=as_learner(row.algorithm, json.loads(row.params)),
            family=family,
        )
        assert row.alignment == pytest.approx(kernel.alignment, rel=1e-9)
        np.testing.assert_allclose(row.weights, kernel.weights, rtol=0, atol=1e-9)

    client = MlflowClient()
    experiment = client.get_run(compared["mlflow_run"]).info.experiment_id
    only = f"tags.`{LEVEL}` = 'result' and params.learner = 'Softmax'"
    (run,) = client.search_runs([experiment], only)
    assert run.info.run_name == "wine Softmax"
    assert run.data.params["param.temperature"] == "one of [0.02, 0.1, 0.5]"
    assert run.data.metrics["certificate"] < 1e-8
    assert "Softmax" in (Path(compared["results"]) / "report.md").read_text(
        encoding="utf-8"
    )


def test_a_second_run_is_taken_from_the_store_and_a_changed_class_is_not(
    compared: dict[str, Any], here: Path
):
    def again(changed: str = "") -> tuple[int, int]:
        """Compare with another file of a class, and return how many folds and statistics are kept then."""
        if changed:
            (here / changed).write_text(FILES[changed] + "\n# changed\n")
            forget()
        compare(config=load_config(here / "own.yaml", ["dask.workers=0"]))
        return kept()

    def kept() -> tuple[int, int]:
        folds, statistics = (
            Path(os.environ["LEARNKERNELS_HOME"], "store", kind)
            for kind in ("folds", "statistics")
        )
        return len(list(folds.iterdir())), len(list(statistics.iterdir()))

    folds, statistics = kept()
    try:
        assert again() == (folds, statistics)
        # What does not use it stays
        assert again("softmax_learner.py") == (
            folds + 1,
            statistics,
        )
        assert again("rational_quadratic.py") == (folds + 3, statistics + 1)
    finally:
        write_files(here)
        forget()


def test_a_model_of_ones_own_learner_is_trained_saved_and_applied(
    prefect_server: None, here: Path
):
    done = train(
        config=load_config(here / "own.yaml", [BUILT_IN, "dask.workers=0"]),
        model="soft",
        learner="Softmax",
    )
    assert done["learner"] == "Softmax"
    forget()
    model = Model.load(Path(done["results"]) / "model.safetensors")
    # Reading a model imports nothing that is named in it
    assert "softmax_learner" not in sys.modules
    assert (
        model.estimator.kernel_.learner
        == model.estimator.learner
        == "softmax_learner:Softmax"
    )
    X, y = load_wine(return_X_y=True, as_frame=True)
    X.to_csv(here / "new.csv", index=False)
    predict("soft/1", "new.csv", "scored.parquet", [])
    names = load_wine().target_names
    assert (
        pd.read_parquet(here / "scored.parquet")["prediction"] == names[y]
    ).mean() > 0.9


def test_a_model_of_ones_own_family_is_refused_before_any_work(here: Path):
    refused = CliRunner().invoke(app, ["train", "own.yaml", "--model", "mine"])
    assert refused.exit_code == 2
    sentence = "a model holds numbers and no code, so none with family rational_quadratic:RationalQuadratic.*be kept"
    assert re.search(sentence, " ".join(refused.output.split()))


def test_a_family_that_has_a_kind_is_saved_where_it_is_imported(
    here: Path, tmp_path: Path
):
    own = custom_family(load_config(here / "own.yaml").kernels[0])
    X, y = load_wine(return_X_y=True)
    path = tmp_path / "kernel.safetensors"
    kernel = learn_kernel(X, y, learner="alignf", family=own)
    with pytest.raises(
        ValueError,
        match="got RationalQuadratic, which no file can hold; a custom family needs a",
    ):
        kernel.save(path)

    class Kept(type(own)):
        kind = "rational-quadratic"

        def subset(self, kernels: list[int]):
            return Kept([self.alphas[k] for k in kernels], self.length)

    kernel = learn_kernel(X, y, learner="alignf", family=Kept([0.5, 2.0], 3.0))
    kernel.save(path)
    loaded = load(path)
    assert loaded.family == kernel.family
    np.testing.assert_array_equal(loaded.cross_gram(X[:5]), kernel.cross_gram(X[:5]))
    del KINDS["rational-quadratic"]
    with pytest.raises(ValueError, match=r"holds no sound model .*rational-quadratic"):
        load(path)
    learner = as_learner("softmax_learner:Softmax", {"temperature": 0.5})
    machine = KernelLearningClassifier(
        family=GaussianFamily([1e-5, 1e-4]), learner=learner
    ).fit(X, y)
    machine.save(path)
    loaded = load(path)
    assert loaded.learner == "softmax_learner:Softmax"
    np.testing.assert_array_equal(
        loaded.decision_function(X), machine.decision_function(X)
    )


NUMBERS = "{name: 'softmax_learner:Softmax', params: {%s}}"
OWN_FAMILY = "{family: 'rational_quadratic:RationalQuadratic', params: {%s}}"
WRONG = {
    "learners=[%s]": {
        "'no_such_file:Softmax'": "learner no_such_file:Softmax cannot be imported .*No module named",
        "'broken:Softmax'": r"learner broken:Softmax cannot be imported \(ZeroDivisionError: ",
        NUMBERS % "heat: 1": "Softmax has no parameter 'heat'; it takes temperature",
        NUMBERS
        % "temperature: hot": "Softmax: temperature must be a number, got 'hot'",
        NUMBERS
        % "temperature: -1": "data set wine: learner Softmax: temperature must be a positive, finite .*got -1",
        "'elsewhere:Weights'": "learners: Weights must keep each parameter of its __init__ under the same",
    },
    "kernels=[%s]": {
        "{family: 'elsewhere:Mine'}": "elsewhere:Mine .* Mine must keep each parameter of its __init__",
        "{family: 'elsewhere:Half'}": "elsewhere:Half must have what every KernelFamily has, and lacks",
        "{family: 'softmax_learner:Softmax'}": "softmax_learner:Softmax must be a class below KernelFam",
        OWN_FAMILY
        % "alphas: [0]": "rational_quadratic:RationalQuadratic refuses its parameters: alphas must be a pos",
        OWN_FAMILY
        % "betas: [1]": "refuses its parameters: .*unexpected keyword argument 'betas'",
    },
    "kernels.1.columns=%s": {
        "[acohol]": "'columns' of family rational_quadratic:.* must be some of the features, got 'acohol'"
    },
}


def test_what_is_wrong_with_ones_own_is_one_sentence(prefect_server: None, here: Path):
    (here / "broken.py").write_text("1 / 0\n")
    (here / "elsewhere.py").write_text(ELSEWHERE)

    def compare_with(change: str) -> None:
        compare(config=load_config(here / "own.yaml", [change, "dask.workers=0"]))

    rows = [
        (form % part, said)
        for form, changes in WRONG.items()
        for part, said in changes.items()
    ]
    require_refusals(
        ((partial(compare_with, change), said) for change, said in rows),
        error=InputError,
    )


def test_the_working_folder_comes_last_and_only_for_a_name_of_ones_own(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        sys, "path", [entry for entry in sys.path if entry != str(here)]
    )
    (built_in, own) = load_config(here / "own.yaml").learners
    assert sources([built_in]) == []
    assert str(here) not in sys.path
    assert len(sources([own])) == 1
    assert sys.path[-1] == str(here)
