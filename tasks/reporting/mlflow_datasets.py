"""Log data sets as inputs of MLflow runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from mlflow.data.code_dataset_source import CodeDatasetSource
from mlflow.entities import Dataset as TrackedDataset
from mlflow.entities import DatasetInput, InputTag
from mlflow.types import ColSpec, DataType, Schema
from mlflow.types.schema import AnyType

from learnkernels.conf.schema import CompareConfig

from ..data.dataset import DatasetRef, load_dataset
from ..store import digest

Context = Literal["training", "validation"]

CONTEXT = "mlflow.data.context"
"""Tag of an input: its use by the run."""

SCHEMA_COLUMNS = 2_000
"""Largest number of columns of a schema: MLflow's limit is a megabyte."""


def dataset_inputs(
    refs: Sequence[DatasetRef], context: Context, config: CompareConfig
) -> list[DatasetInput]:
    """Return data sets as inputs of an MLflow run, for training or validation."""
    targets = {dataset.label: dataset.target for dataset in config.datasets}
    inputs = []
    for ref in refs:
        source = _source(ref.source, Path(config.data_dir))
        schema = _schema_of(ref, targets.get(ref.name) or "target")
        sizes = {"num_rows": ref.n_rows, "num_features": ref.n_features}
        inputs.append(_run_input(ref.name, ref.digest, source, schema, sizes, context))
    return inputs


def scored_input(source: str, columns: Sequence[str], n_rows: int) -> DatasetInput:
    """Return scored rows as an input of an MLflow run, without reading them."""
    path = Path(source)
    changed = 0
    if path.exists():
        changed = path.stat().st_mtime_ns
    of_any_type = AnyType()  # type: ignore[no-untyped-call]
    schema = Schema([ColSpec(of_any_type, name) for name in columns[:SCHEMA_COLUMNS]])
    key = digest(source, changed, list(columns), n_rows)
    sizes = {"num_rows": n_rows, "num_features": len(columns)}
    return _run_input(
        path.name, key, _source(source, Path()), _as_json(schema), sizes, "scoring"
    )


def _run_input(
    name: str,
    digest: str,
    source: tuple[str, str],
    schema: str | None,
    sizes: dict[str, int],
    context: str,
) -> DatasetInput:
    kind, place = source
    tracked = TrackedDataset(
        name, digest, kind, place, schema=schema, profile=json.dumps(sizes)
    )
    return DatasetInput(tracked, [InputTag(CONTEXT, context)])


def _as_json(schema: Schema) -> str:
    return json.dumps({"mlflow_colspec": schema.to_dict()})


def _source(source: str, folder: Path) -> tuple[str, str]:
    """Return type and JSON of a source; several files are their common folder."""
    places = source.split(", ")
    if len(places) == 1:
        scheme = urlsplit(source).scheme
        if scheme in ("http", "https"):
            return "http", json.dumps({"url": source})
        if scheme == "s3":
            return "s3", json.dumps({"uri": source})
    paths = [folder / place for place in places]
    if all(path.exists() for path in paths):
        path = paths[0]
        if len(paths) > 1:
            path = _common_folder(paths)
        return "local", json.dumps({"uri": str(path.resolve())})
    return "code", CodeDatasetSource(tags={"mlflow.source.name": source}).to_json()


def _common_folder(paths: Sequence[Path]) -> Path:
    resolved = [path.resolve() for path in paths]
    parents = resolved[0].parents
    return next(
        folder
        for folder in parents
        if all(path.is_relative_to(folder) for path in resolved)
    )


@cache
def _schema_of(ref: DatasetRef, target: str) -> str | None:
    """Return columns as JSON, the target last; None for too many."""
    dataset = load_dataset(ref)
    if dataset.table is not None:
        kinds = {column.name: column.kind for column in dataset.table.columns}
    elif len(dataset.features) <= SCHEMA_COLUMNS:
        kinds = dict.fromkeys(dataset.features, "number")
    else:
        return None
    if len(kinds) > SCHEMA_COLUMNS:
        return None
    types = {
        "number": DataType.double,
        "category": DataType.string,
        "date": DataType.datetime,
        "text": DataType.string,
    }
    columns = [ColSpec(types[kind], name) for name, kind in kinds.items()]
    target_type = DataType.double
    if dataset.target.task == "classification":
        target_type = DataType.string
    return _as_json(Schema([*columns, ColSpec(target_type, target)]))
