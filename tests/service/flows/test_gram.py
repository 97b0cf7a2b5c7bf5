"""Matrices of whole configurations, and learners that run from them: real Prefect, real data, real workers."""

import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.sorting import FlowRunSort

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import CompareConfig
from learnkernels.flows.compare import compare
from learnkernels.flows.gram import gram
from learnkernels.tasks.data.dataset import DatasetRef
from learnkernels.tasks.data.ingest import ingest, load_source
from learnkernels.tasks.measure import families, matrices
from learnkernels.tasks.measure.comparison import rows_for
from tests.refusals import require_refusals
from tests.unit.tasks.test_comparison import DIABETES, WINE
from tests.unit.tasks.test_comparison import small as comparison

pytestmark = pytest.mark.usefixtures("prefect_server", "module_folder")

SETS = [*WINE, DIABETES[0] | {"subsample": 150}]
FOLDS = {"grid": {"from": -2, "to": 4}, "folds": 3}
small = partial(
    comparison, datasets=SETS, learners=["single", "alignf"], protocol=FOLDS
)


def precomputed(path: str = "grams", **keys: Any) -> CompareConfig:
    return small(**{"kernels": [{"family": "precomputed", "path": path}], **keys})


def folds_of(config: CompareConfig) -> pd.DataFrame:
    return pd.read_parquet(Path(compare(config=config)["results"]) / "folds.parquet")


@pytest.fixture(scope="module")
def made(prefect_server: None, module_folder: Path) -> dict[str, Any]:
    """What the run says that has written the matrices in ``grams``."""
    return gram(config=small(), output="grams")


@pytest.fixture(scope="module")
def direct(prefect_server: None, module_folder: Path) -> pd.DataFrame:
    """Folds of the comparison that computes its kernels."""
    return folds_of(small())


def test_every_data_set_gets_its_matrices(made: dict[str, Any]):
    assert made["folder"] == "grams"
    assert re.fullmatch(r"wine: 6 matrices of 178 rows, written", made["stores"][0])
    for dataset in small().datasets:
        source = load_source(dataset)
        family = families.build_family(small().kernels, source.features)
        stored = matrices.StoredMatrices(Path("grams") / dataset.label)
        stored.require_whole()
        assert stored.about.kernels == family.names
        assert stored.about.families[0]["gammas"] == {
            "base": 2.0,
            "start": -6,
            "stop": -2,
        }
        np.testing.assert_allclose(
            np.stack(stored), family.tile(source.X, source.X), rtol=0, atol=1e-12
        )
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(sort=FlowRunSort.EXPECTED_START_TIME_DESC)
    assert {
        run.state.type.value for run in runs if run.name.startswith("small-gram-")
    } == {"COMPLETED"}
    again = gram(config=small(), output="grams")
    assert re.fullmatch(r"wine: 6 matrices of 178 rows, kept", again["stores"][0])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-6)])
def test_a_comparison_from_matrices_is_the_comparison(made, direct, dtype, tolerance):
    """In float32 a value has a relative rounding of 6e-8. Centering these kernels
    leaves more than a tenth of their norm, so that grows at most tenfold: 1e-6 is above
    it and far below what a wrong row would do.
    """
    path = "grams"
    if dtype == "float32":
        path = gram(config=small(), output="narrow", dtype=dtype)["folder"]
    stored = folds_of(precomputed(path))
    for column in ("dataset", "learner", "fold", "kernels", "n_train", "predictor"):
        assert list(map(str, stored[column])) == list(map(str, direct[column]))
    for column in ("alignment", "error", "trivial_error"):
        np.testing.assert_allclose(
            stored[column], direct[column], rtol=tolerance, err_msg=column
        )
    weights = [
        np.stack(folds[folds["learner"] == "alignf"]["weights"])
        for folds in (stored, direct)
    ]
    # Of unit length, so an absolute tolerance is one relative to the largest.
    np.testing.assert_allclose(*weights, rtol=0, atol=tolerance)


def test_new_matrices_in_the_same_place_is_computed_anew():
    one = small(datasets=WINE, kernels=[{"family": "linear"}], learners=["unif"])
    names = []
    for config in (one, one.model_copy(update={"kernels": small().kernels})):
        gram(config=config, output="anew")
        names.append(
            list(
                folds_of(precomputed("anew", datasets=WINE, learners=["unif"]))[
                    "kernels"
                ][0]
            )
        )
        shutil.rmtree("anew")
    assert (names[0], len(names[1])) == (["linear"], 6)


@pytest.mark.slow(15)
def test_workers_run_from_matrices(direct: pd.DataFrame, scheduler_elsewhere: str):
    wine = {
        "datasets": WINE,
        "learners": ["alignf"],
        "dask": {"scheduler": scheduler_elsewhere, "super_tile": 64},
    }
    gram(config=small(**wine), output="by workers")
    stored = folds_of(precomputed("by workers", **wine))
    expected = direct.query("dataset == 'wine' and learner == 'alignf'")
    np.testing.assert_allclose(stored["alignment"], expected["alignment"], rtol=1e-9)


def reference(config: CompareConfig) -> DatasetRef:
    """Return the first data set of a configuration as a run would store it."""
    return ingest.fn(config.datasets[0], config.data_dir, config.protocol.seed)


def test_what_cannot_work_is_refused_with_one_sentence(made: dict[str, Any]):
    wine, other = reference(small()), small(datasets=[WINE[0] | {"scale": "unit"}])
    pd.DataFrame({"a": range(20), "target": [0.5, 1.5] * 10}).to_csv(
        "t.csv", index=False
    )
    unplain = small(
        datasets=[{"source": "file", "path": "t.csv", "name": "a/b"}],
        kernels=[{"family": "linear"}],
    )
    table = [
        (
            lambda: rows_for(precomputed("gone"), wine),
            r"wine: there is no index\.json; make .* 'learnkernels gram'",
        ),
        (
            lambda: rows_for(precomputed(), reference(other)),
            r"the matrices in .* were made from other data, wine with",
        ),
        (
            lambda: gram(config=other, output="grams"),
            "wine: holds matrices whose data_digest",
        ),
        (
            lambda: gram(config=small(), output="grams", dtype="float32"),
            "wine: holds matrices whose dtype is float64, not float32",
        ),
        (
            lambda: gram(config=precomputed(), output="again"),
            "family precomputed is matrices already",
        ),
        (
            lambda: gram(config=unplain, output="again"),
            "data set 'a/b': its matrices get a folder of this name",
        ),
    ]
    require_refusals(table, error=InputError)
    assert not Path("again").exists()
    file = Path("grams/wine/001.npy")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"wine: is damaged .001\.npy is damaged"):
        rows_for(precomputed(), wine)
    assert (
        gram(config=small(), output="grams")["stores"][0]
        == "wine: 6 matrices of 178 rows, written"
    )
    assert rows_for(precomputed(), wine)[0].n_features == 1
