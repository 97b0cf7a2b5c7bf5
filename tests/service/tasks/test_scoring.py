"""Scoring on a server of objects, and with bounded memory in a child process."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from dev.tools.mutations import fates
from learnkernels import GaussianFamily
from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DaskConfig, DriftConfig
from learnkernels.kernels.estimators import KernelLearningClassifier
from learnkernels.kernels.model import Model
from learnkernels.tasks.data.locations import locate
from learnkernels.tasks.models.scoring import Drifted, ScoringOptions, score_parts_with
from learnkernels.tasks.workers.cluster import DaskPool
from tests.refusals import require_refusals
from tests.sources import ENDINGS, write
from tests.unit.tasks.test_scoring import (
    ABOUT,
    features_of,
    model_of,
    read,
    replaced,
    score,
    table_of,
)

if TYPE_CHECKING:
    from tests.service.conftest import S3


def test_from_server_to_server_is_from_disk_to_disk_and_a_failure_leaves_no_object(
    s3: S3, tmp_path: Path
):
    model = model_of("text")
    table = table_of(model.batch_rows + 77)
    for ending in ENDINGS:
        source = write(table, tmp_path / f"in{ending}")
        score(model, source, tmp_path / f"out{ending}", ids=["key"])
        remote = s3.put(f"folder/in{ending}", Path(source))
        score(model, remote, f"s3://rows/new/out{ending}", ids=["key"])
        with locate(f"s3://rows/new/out{ending}").open_input() as file:
            assert file.read() == (tmp_path / f"out{ending}").read_bytes()
    before = s3.keys()
    gap = replaced(table, a=[*table["a"].to_pylist()[:-1], None])
    remote = s3.put("in.parquet", Path(write(gap, tmp_path / "in.parquet")))
    gone = r"s3://rows/gone\.parquet: there is no such object in the bucket"
    refused = [
        (
            remote,
            "rows/out.parquet",
            "column 'a' must hold finite numbers, got a missing value",
        ),
        (remote, "rows/in.parquet", "the output would replace the input"),
        (remote, "nowhere/out.parquet", "there is no bucket 'nowhere'"),
        ("s3://rows/gone.parquet", "rows/out.parquet", gone),
    ]
    asked = [
        (partial(score, model, of, f"s3://{output}", ids=["key"]), said)
        for of, output, said in refused
    ]
    require_refusals(asked, error=InputError)
    assert s3.keys() == sorted([*before, "rows/in.parquet"])


def test_predictions_in_a_bucket_replace_only_predictions_and_go_after_drift(
    s3: S3, tmp_path: Path
):
    model = model_of("text")
    X = model.scaled(features_of(90, 0))
    model = model.with_reference(X, X.min(axis=0), X.max(axis=0), 0)
    rows = replaced(table_of(40), a=np.full(40, 99.0))
    source = write(rows, tmp_path / "in.parquet")
    output = "s3://rows/scored/"
    into = partial(score_parts_with, model, ABOUT, source, output)
    pool = DaskPool(DaskConfig(workers=0))
    fails = ScoringOptions(drift=DriftConfig.model_validate({"on_drift": "fail"}))
    part = "rows/scored/part-00000.parquet"
    into(pool, ScoringOptions())
    keys = s3.keys()
    assert part in keys
    success = locate(f"{output}_SUCCESS")
    success.filesystem.delete_file(success.path)
    with pytest.raises(Drifted):
        into(pool, fails)
    keys = s3.keys()
    assert part not in keys
    s3.put("scored/part-00000.parquet", Path(source))
    with pytest.raises(InputError, match=r"holds 'part-00000\.parquet', which is not"):
        into(pool, ScoringOptions())


def test_many_rows_take_bounded_memory(tmp_path: Path):
    """Of 400,000 rows K_cross would take 640 MB, so that no part of it may be there as a whole."""
    rng, names = np.random.default_rng(0), tuple(f"x{c}" for c in range(10))
    X = rng.normal(size=(200, 10))
    fitted = KernelLearningClassifier(
        family=GaussianFamily([0.05, 0.2]), learner="alignf"
    ).fit(X, X[:, 0] * X[:, 1] > 0)
    model = Model(fitted, names, np.zeros(10), np.ones(10), {})
    source, output = tmp_path / "in.parquet", tmp_path / "out.parquet"
    write(pa.table({name: rng.normal(size=400_000) for name in names}), source, 100_000)
    (fate,) = fates(
        [0], lambda case: score(model, source, output), (), memory=300 << 20
    )
    assert fate.kind == "done", fate.text
    assert read(output)["row"].to_numpy()[[0, -1]].tolist() == [0, 399_999]
