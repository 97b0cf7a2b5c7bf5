"""Matrices of whole configurations, and learners that run from them: real Prefect, real data, real processes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.sorting import FlowRunSort
from prefect.settings import PREFECT_API_URL
from pydantic import ValidationError

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import CompareConfig
from learnkernels.flows.compare import compare
from learnkernels.flows.gram import gram
from learnkernels.tasks.data.dataset import DatasetRef
from learnkernels.tasks.data.ingest import ingest, load_source
from learnkernels.tasks.matrices.store import StorePlan, open_store
from learnkernels.tasks.measure.families import build_family
from learnkernels.tasks.measure.positions import plan_matrices, rows_for
from tests.system.conftest import home  # noqa: F401
from tests.user import ROOT, learnkernels

in_process = pytest.mark.usefixtures("prefect_server", "working_folder")

SHARD_BYTES = 400_000


def small(**keys: Any) -> CompareConfig:
    data = {
        "name": "small",
        "datasets": [
            {"source": "sklearn", "name": "wine", "scale": "standard"},
            {"source": "sklearn", "name": "diabetes", "scale": "standard", "subsample": 150},
        ],
        "kernels": [{"family": "gaussian", "gammas": {"from": -6, "to": -2}}, {"family": "linear", "columns": None}],
        "learners": ["single", "alignf"],
        "protocol": {"grid": {"from": -2, "to": 4}, "folds": 3},
        "dask": {"workers": 0},
    }
    return CompareConfig.model_validate(data | keys)


def precomputed(**keys: Any) -> CompareConfig:
    return small(**{"kernels": [{"family": "precomputed", "path": "grams"}], **keys})


def folds_of(config: CompareConfig) -> pd.DataFrame:
    return pd.read_parquet(Path(compare(config)["results"]) / "folds.parquet")


@pytest.fixture(scope="module")
def direct(prefect_server: None, module_folder: Path) -> pd.DataFrame:
    """Folds of the comparison that computes its kernels."""
    return folds_of(small())


@in_process
def test_every_data_set_gets_its_matrices():
    result = gram(small(), "grams", shard_bytes=SHARD_BYTES)
    assert result["folder"] == "grams"
    assert re.fullmatch(r"wine: 6 matrices of 178 rows, 4 shards written, 0 kept", result["stores"][0])
    for dataset in small().datasets:
        source = load_source(dataset)
        family = build_family(small().kernels, source.features)
        store = open_store(Path("grams") / dataset.label, verify="checksums")
        assert store.spec.kernels == family.names
        assert store.spec.families[0]["gammas"] == {"base": 2.0, "start": -6, "stop": -2}
        K = np.concatenate(list(store), axis=1)
        np.testing.assert_allclose(K, family.tile(source.X, source.X), rtol=0, atol=1e-12)
    with get_client(sync_client=True) as client:
        (run,) = [
            run
            for run in client.read_flow_runs(sort=FlowRunSort.EXPECTED_START_TIME_DESC)
            if run.name.startswith("small-gram-")
        ]
    assert run.state.type.value == "COMPLETED"
    again = gram(small(), "grams", shard_bytes=SHARD_BYTES)
    assert re.fullmatch(r"wine: 6 matrices of 178 rows, 0 shards written, 4 kept", again["stores"][0])


@in_process
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-6)])
def test_a_comparison_from_the_store_is_the_comparison(direct: pd.DataFrame, dtype: Any, tolerance: float):
    """In float32 a value has a relative rounding of 6e-8. Centering these kernels leaves more than a tenth of their
    norm, so that grows at most tenfold: 1e-6 is above it and far below what a wrong row would do."""
    gram(small(), "grams", dtype, shard_bytes=SHARD_BYTES)
    stored = folds_of(precomputed())
    for column in ("dataset", "learner", "fold", "kernels", "n_train", "predictor"):
        assert list(map(str, stored[column])) == list(map(str, direct[column]))
    for column in ("alignment", "error", "trivial_error"):
        np.testing.assert_allclose(stored[column], direct[column], rtol=tolerance, err_msg=column)
    weights = [np.stack(folds[folds["learner"] == "alignf"]["weights"]) for folds in (stored, direct)]
    # Of unit length, so an absolute tolerance is one relative to the largest.
    np.testing.assert_allclose(*weights, rtol=0, atol=tolerance)


@in_process
def test_a_new_store_in_the_same_place_is_computed_anew():
    one = small(datasets=[{"source": "sklearn", "name": "wine"}], kernels=[{"family": "linear"}], learners=["unif"])
    two = one.model_copy(update={"kernels": small().kernels})
    stored = precomputed(datasets=[{"source": "sklearn", "name": "wine"}], learners=["unif"])
    names = []
    for config in (one, two):
        gram(config, "grams")
        names.append(list(folds_of(stored)["kernels"][0]))
        shutil.rmtree("grams")
    assert names[0] == ["linear"]
    assert len(names[1]) == 6


@pytest.mark.slow(15)
@in_process
def test_workers_run_from_the_store(direct: pd.DataFrame, scheduler_elsewhere: str):
    wine = {"datasets": [{"source": "sklearn", "name": "wine", "scale": "standard"}], "learners": ["alignf"]}
    workers = {"dask": {"scheduler": scheduler_elsewhere, "super_tile": 64}}  # both flows: starting some takes seconds
    gram(small(**wine, **workers), "grams", shard_bytes=SHARD_BYTES)
    stored = folds_of(precomputed(**wine, **workers))
    expected = direct.query("dataset == 'wine' and learner == 'alignf'")
    np.testing.assert_allclose(stored["alignment"], expected["alignment"], rtol=1e-9)


def reference(config: CompareConfig) -> DatasetRef:
    """Return the first data set of a configuration as a run would store it."""
    return ingest.fn(config.datasets[0], config.data_dir, config.protocol.seed)


def planned(config: CompareConfig, output: str, dtype: Any = "float64") -> StorePlan:
    return plan_matrices(reference(config), config.kernels, output, dtype, SHARD_BYTES)


@in_process
def test_what_cannot_work_is_refused_with_one_sentence():
    wine = reference(small())
    with pytest.raises(InputError, match=r"wine: there is no manifest\.json; make .* with 'learnkernels gram'"):
        rows_for(precomputed(), wine)
    gram(small(), "grams", shard_bytes=SHARD_BYTES)
    other = small(datasets=[{"source": "sklearn", "name": "wine", "scale": "unit"}])
    with pytest.raises(InputError, match=r"data set wine: the matrices in .* were made from other data, wine with 178"):
        rows_for(precomputed(), reference(other))
    with pytest.raises(InputError, match="wine: holds matrices of other data"):
        planned(other, "grams")
    with pytest.raises(InputError, match="wine: holds matrices of float64, not float32"):
        planned(small(), "grams", "float32")
    with pytest.raises(InputError, match="family precomputed is matrices already"):
        planned(precomputed(), "again")
    pd.DataFrame({"a": range(20), "target": [0.5, 1.5] * 10}).to_csv("t.csv", index=False)
    unplain = small(datasets=[{"source": "file", "path": "t.csv", "name": "a/b"}], kernels=[{"family": "linear"}])
    with pytest.raises(InputError, match="data set 'a/b': its matrices get a folder of this name"):
        planned(unplain, "again")
    assert not Path("again").exists()
    shard = sorted(Path("grams/wine").glob("rows-*"))[1]
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(InputError, match=f"{shard.name}: is damaged: its checksum"):
        rows_for(precomputed(), wine)
    assert gram(small(), "grams")["stores"][0] == "wine: 6 matrices of 178 rows, 1 shard written, 3 kept"
    assert rows_for(precomputed(), wine)[0].n_features == 1


def test_matrices_are_the_only_family():
    both = [{"family": "precomputed", "path": "grams"}, {"family": "linear"}]
    with pytest.raises(ValidationError, match="family precomputed must be the only one"):
        small(kernels=both)
    with pytest.raises(ValidationError, match="unknown key 'columns'; valid keys: family, path"):
        small(kernels=[{"family": "precomputed", "path": "grams", "columns": ["a"]}])


@pytest.mark.slow(10)
def test_the_command_writes_matrices_and_names_folder_and_size(home: Path, prefect_server: None):  # noqa: F811
    conf = str(ROOT / "conf/quickstart.yaml")
    missing = learnkernels(home, "compare", conf, "--set", "kernels=[{family: precomputed, path: grams}]")
    assert missing.returncode == 2
    assert "there are no matrices in grams/breast_cancer" in missing.stderr
    options = ["--output", "grams", "--dtype", "float32", "--set", "dask.workers=0"]
    run = learnkernels(home, "gram", conf, *options, PREFECT_API_URL=str(PREFECT_API_URL.value()))
    assert run.returncode == 0, run.stderr
    assert "Traceback" not in run.stderr
    assert re.fullmatch(r"matrices: grams \([\d.]+ MiB\)", run.stdout.strip().splitlines()[-1])
    manifests = [json.loads(path.read_text()) for path in sorted((home / "work" / "grams").glob("*/manifest.json"))]
    assert [(manifest["dataset"]["name"], manifest["dtype"]) for manifest in manifests] == [
        ("breast_cancer", "float32"),
        ("diabetes", "float32"),
    ]
    (home / "work" / "few.yaml").write_text("name: few\ndatasets: [{source: sklearn, name: wine}]\n")
    none = learnkernels(home, "gram", "few.yaml", "--output", "grams")
    assert none.returncode == 2
    assert none.stderr.strip() == (
        "error: few.yaml: 'kernels' gives none whose matrices could be written; give families."
    )
    wrong = learnkernels(home, "gram", "nothing.yaml", "--output", "grams")
    assert (wrong.returncode, len(wrong.stderr.strip().splitlines())) == (2, 1)
