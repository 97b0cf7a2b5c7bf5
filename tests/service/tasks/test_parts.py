"""Tables in parts on workers elsewhere, and predictions in parts."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DaskConfig
from learnkernels.kernels.estimators import KernelLearningRegressor
from learnkernels.kernels.model import Model
from learnkernels.tasks.data.dataset import load_dataset
from learnkernels.tasks.data.ingest import ingest
from learnkernels.tasks.data.row_files import RowFiles
from learnkernels.tasks.models.scoring import (
    ScoringOptions,
    score_parts_with,
    score_with,
)
from learnkernels.tasks.workers.cluster import DaskPool
from tests.sources import config
from tests.unit.tasks.test_parts import M, load, table, written

if TYPE_CHECKING:
    from tests.service.conftest import S3


def product(X: Any, V: np.ndarray, span: tuple[int, int]) -> np.ndarray:
    run = X[slice(*span)]
    return np.asarray(run.T @ (run @ V))


def set_variables(variables: dict[str, str]) -> None:
    os.environ.update(variables)


def files_of_rows(dask_worker: Any) -> dict[str, float]:
    """Return the copies that a worker holds, and when each was written."""
    return {
        str(file): file.stat().st_mtime
        for file in Path(dask_worker.local_directory).rglob("*.rows")
    }


def test_workers_read_each_part_once(
    s3: S3, tmp_path: Path, scheduler_elsewhere: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path / "state"))
    for i, file in enumerate(
        sorted(Path(written(tmp_path / "table", table())).iterdir())
    ):
        folder = tmp_path / "table" / f"half={i // 2}"
        folder.mkdir(exist_ok=True)
        s3.put(f"table/{folder.name}/{file.name}", file.rename(folder / file.name))
    keys = {
        "target": "y",
        "missing": "drop",
        "drop": ["site", "day", "w"],
        "scale": "unit",
    }
    given = config("s3://rows/table/", in_parts=True, **keys)
    whole = np.asarray(load(f"{tmp_path / 'table'}/", scale="unit").X)
    some = np.random.default_rng(1).permutation(600)[:300]
    with DaskPool(
        DaskConfig.model_validate({"scheduler": scheduler_elsewhere})
    ) as pool:
        pool.client.run(
            set_variables,
            {name: of for name, of in os.environ.items() if name.startswith("AWS_")},
        )
        before = pool.client.run(files_of_rows)
        assert not any(before.values())
        read: Any = pool.workers.local_view(
            load_dataset(ingest.fn(given, ".", 0, pool)).X
        )
        assert isinstance(read, RowFiles)
        assert read.readers is pool
        copied: dict[str, dict[str, float]] = pool.client.run(files_of_rows)
        assert sum(map(len, copied.values())) == 12  # one worker each
        np.testing.assert_array_equal(read[some], whole[some])
        np.testing.assert_array_equal(read[20:400], whole[20:400])
        held = pool.workers.scatter_rows(read, some, np.full(5, 0.5))
        found = pool.workers.total(
            product,
            pool.workers.broadcast(held),
            np.eye(5),
            [(0, 90), (90, 200), (200, 300)],
        )
        rows = whole[some] - 0.5
        # Sums of 300 rows in another order
        np.testing.assert_allclose(found, rows.T @ rows, rtol=1e-12)
        later = pool.client.run(files_of_rows)
        for worker, files in copied.items():
            assert files.items() <= later[worker].items()  # none was read again
    # Copies go with the run
    assert not any(Path(file).exists() for files in later.values() for file in files)
    assert not list(tmp_path.glob("state/**/parts-*"))  # nothing of it in this process


def test_predictions_in_parts_are_those_of_one_file_and_complete_or_said_not_to_be(
    tmp_path: Path,
):
    X, about = (
        np.random.default_rng(3).normal(size=(60, 3)),
        {"model": "models:/flowers/3", "digest": "ab"},
    )
    fitted = KernelLearningRegressor(learner="unif").fit(X, X[:, 0])
    of = Model(
        fitted,
        ("x0", "x1", "x2"),
        np.zeros(3),
        np.ones(3),
        {"target": "y", "drop": ["day"]},
    )
    new = table(gaps=False).select(["x0", "x1", "x2", "day"])
    source, scored = written(tmp_path / "new", new), tmp_path / "scored"
    whole = score_with(
        of, about, source, str(tmp_path / "whole.parquet"), ScoringOptions(("day",))
    )
    with DaskPool(DaskConfig.model_validate({"workers": 0})) as pool:
        score = partial(
            score_parts_with, of, about, pool=pool, options=ScoringOptions()
        )
        ours = score(source, f"{scored}/", options=ScoringOptions(("day",)))
        parts = [f"part-{i:05d}.parquet" for i in range(4)]
        assert sorted(path.name for path in scored.iterdir()) == ["_SUCCESS", *parts]
        for i, part in enumerate(parts):
            score_with(
                of,
                about,
                f"{source}{i}.parquet",
                str(tmp_path / "one.parquet"),
                ScoringOptions(("day",)),
            )
            assert pq.read_table(scored / part).equals(
                pq.read_table(tmp_path / "one.parquet")
            )
        np.testing.assert_array_equal(
            pq.read_table(scored)["day"],
            pq.read_table(tmp_path / "whole.parquet")["day"],
        )
        assert (ours.rows, ours.columns) == (whole.rows, whole.columns)
        for name, value in whole.distribution["prediction"].items():
            # Sums in another order
            assert ours.distribution["prediction"][name] == pytest.approx(
                value, rel=1e-12
            )
        said = json.loads((scored / "_SUCCESS").read_text())
        assert said["model"] == "models:/flowers/3"
        assert [one["rows"] for one in said["files"]] == [M // 4] * 4
        with pytest.raises(
            InputError,
            match="scored: holds a complete output, as _SUCCESS says; give another folder",
        ):
            score(source, f"{scored}/")
        (scored / "_SUCCESS").unlink()
        numbered = score(source, f"{scored}/")  # what was left unfinished is done again
        assert numbered.rows == M
        np.testing.assert_array_equal(pq.read_table(scored)["row"], np.arange(M))
        (scored / "_SUCCESS").unlink()
        (scored / "notes.txt").touch()
        with pytest.raises(
            InputError, match=r"scored: holds 'notes\.txt', which is not of this output"
        ):
            score(source, f"{scored}/")
        gaps = pa.table(
            {
                **{name: new[name] for name in ("x0", "x1", "day")},
                "x2": pa.array([None] * M, pa.float64()),
            }
        )
        half = written(tmp_path / "half", gaps)
        with pytest.raises(
            InputError,
            match=r"column 'x2' must hold finite numbers, got a missing value in row 0",
        ):
            score(half, f"{tmp_path / 'none'}/")
        assert not (tmp_path / "none" / "_SUCCESS").exists()
