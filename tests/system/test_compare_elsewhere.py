"""A comparison on workers of another machine: the numbers of this one, and nothing left there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from sklearn.datasets import load_diabetes

from learnkernels.conf.schema import CompareConfig
from learnkernels.flows.compare import compare
from learnkernels.flows.papers import papers
from tests.elsewhere import another_machine, hideable

pytestmark = pytest.mark.usefixtures("prefect_server", "working_folder")

RUNS: dict[str, dict[str, Any]] = {
    "exact": {"learners": ["alignf"], "predictor": "krr"},
    "sampled": {"learners": ["align"], "moments": {"sample": 400}, "predictor": {"name": "nystrom", "landmarks": 30}},
    "iterated": {"learners": ["unif"], "predictor": "krr-cg"},
}


def folds_of(keys: dict[str, Any], dask: dict[str, Any], monkeypatch: pytest.MonkeyPatch, state: Path) -> pd.DataFrame:
    monkeypatch.setenv("LEARNKERNELS_HOME", str(state))
    config: dict[str, Any] = {
        "name": "elsewhere",
        "datasets": ["diabetes"],
        "kernels": [{"family": "gaussian", "gammas": [0.1, 1, 10]}],
        "protocol": {"folds": 3, "grid": [0.1]},
    }
    run = compare(CompareConfig.model_validate(config | keys | {"dask": dask}))
    return pd.read_parquet(Path(run["results"]) / "folds.parquet")


def in_parts(folder: Path) -> list[dict[str, Any]]:
    """Write a data set into three files of two row groups each."""
    X, y = load_diabetes(return_X_y=True)
    folder.mkdir()
    for i in range(3):
        of = slice(i * 150, (i + 1) * 150)
        table = pa.table({**{f"x{j}": X[of, j] for j in range(10)}, "y": y[of]})
        pq.write_table(table, folder / f"{i}.parquet", row_group_size=80)
    return [{"source": "file", "path": f"{folder}/", "target": "y", "in_parts": True}]


def test_workers_that_do_not_see_our_files_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hidden, rows = hideable(tmp_path / "hidden"), tmp_path / "rows"
    with another_machine(tmp_path / "machine", hidden=hidden) as address:
        for name, keys in RUNS.items():
            small = 4096 if name == "exact" else 100  # whole trials there, or passes over rows
            monkeypatch.setattr("learnkernels.tasks.measure.evaluation.PARALLEL_ROWS", small)
            there = {"scheduler": address, "rows": str(rows)}
            ours = folds_of(keys, {"workers": 0}, monkeypatch, tmp_path / "here" / name)
            theirs = folds_of(keys, there, monkeypatch, (hidden or tmp_path / "hidden") / name)
            for column in ("error", "alignment", "validation_error"):
                np.testing.assert_allclose(theirs[column], ours[column], rtol=1e-12, err_msg=f"{name} {column}")
            for one, other in zip(theirs["weights"], ours["weights"], strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)  # of a quadratic programme
            if name != "exact":  # the same where workers read the rows themselves, and this process none
                datasets = {"datasets": in_parts(tmp_path / f"parts of {name}")}
                state = tmp_path / "parts" / name
                theirs = folds_of(keys | datasets, {"scheduler": address}, monkeypatch, state)
                for column in ("error", "alignment", "validation_error"):
                    np.testing.assert_allclose(theirs[column], ours[column], rtol=1e-12, err_msg=f"{name} {column}")
                assert not list(state.rglob("*.npy")) or max(of.stat().st_size for of in state.rglob("*.npy")) < 5000
    assert not list(rows.rglob("*"))


def test_a_table_with_categories_and_gaps_in_parts_has_the_numbers_of_one_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("learnkernels.tasks.measure.evaluation.PARALLEL_ROWS", 100)
    (tmp_path / "table").mkdir()
    rng, n = np.random.default_rng(0), 450
    site, x = rng.integers(0, 6, n), rng.normal(size=(n, 2))
    y = x[:, 0] + np.sin(site) + 0.1 * rng.normal(size=n)
    table = pa.table(
        {
            "site": [f"s{i}" for i in site],
            "x": pa.array(np.where(rng.random(n) < 0.1, np.nan, x[:, 0]), from_pandas=True),
            "z": x[:, 1],
            "day": np.datetime64("2024-01-01") + rng.integers(0, 400, n),
            "y": y,
        }
    )
    for i in range(3):
        pq.write_table(table.slice(150 * i, 150), tmp_path / "table" / f"{i}.parquet", row_group_size=80)
    given = {"source": "file", "path": f"{tmp_path / 'table'}/", "target": "y", "scale": "standard"}
    keys = RUNS["sampled"] | {"learners": ["alignf", "rfm"], "moments": {"sample": "auto"}}
    here = keys | {"datasets": [given | {"in_parts": False}]}
    ours = folds_of(here, {"workers": 0}, monkeypatch, tmp_path / "here")
    with another_machine(tmp_path / "machine") as address:
        there = keys | {"datasets": [given | {"in_parts": True}]}
        theirs = folds_of(there, {"scheduler": address}, monkeypatch, tmp_path / "there")
    assert ours["learner"].tolist() == theirs["learner"].tolist()
    for column in ("error", "alignment", "validation_error"):
        np.testing.assert_allclose(theirs[column], ours[column], rtol=1e-12, err_msg=column)


def test_an_item_of_a_paper_on_parts_has_the_numbers_of_this_machine(tmp_path: Path):
    items, datasets = tmp_path / "items", in_parts(tmp_path / "table")
    items.mkdir()
    (items / "datasets.yaml").write_text(yaml.safe_dump({"data_dir": "none", "sets": {}}))
    with another_machine(tmp_path / "machine") as address:
        for name, given, dask in (
            ("here", [{**datasets[0], "in_parts": False}], {"workers": 0}),
            ("parts", datasets, {"scheduler": address}),
        ):
            shared = {
                "kernels": [{"family": "gaussian", "gammas": [0.1, 1, 10]}],
                "moments": {"sample": 400},
                "predictor": {"name": "nystrom", "landmarks": 30},
                "protocol": {"folds": 3, "grid": [0.1]},
                "dask": dask,
            }
            part = {"datasets": given, "learners": ["unif", "alignf"]}
            item = {
                "name": name,
                "paper": "JMLR 2012",
                "where": "Table 2",
                "title": "On parts",
                "setup": "Three folds.",
            }
            item |= {"study": {"kind": "comparison", "shared": shared, "parts": [part]}}
            (items / f"{name}.yaml").write_text(yaml.safe_dump(item))
            (outcome,) = papers([name], str(items))["outcomes"]
            assert outcome["status"] == "done", outcome["reason"]
        assert not list((tmp_path / "machine").rglob("*parts-*"))  # trials have copied what they needed
    here, parts = (pd.read_parquet(f"results/papers/{name}/folds.parquet") for name in ("here", "parts"))
    assert here["learner"].tolist() == parts["learner"].tolist()
    for column in ("error", "alignment"):
        np.testing.assert_allclose(parts[column], here[column], rtol=1e-12, err_msg=column)
