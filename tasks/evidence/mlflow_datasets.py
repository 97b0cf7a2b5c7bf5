"""Data sets as MLflow records them: where they come from, their columns, and the use that a run makes of them."""

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
"""Use of a data set by a run."""

CONTEXT = "mlflow.data.context"
"""Tag of an input: its use by the run."""

SCHEMA_COLUMNS = 2_000
"""Columns up to which a schema is recorded; MLflow refuses a schema of more than a megabyte."""

COLUMN_TYPES = {"number": DataType.double, "category": DataType.string, "date": DataType.datetime}


def dataset_inputs(refs: Sequence[DatasetRef], context: Context, config: CompareConfig) -> list[DatasetInput]:
    """Return data sets as the inputs of a run.

    Parameters
    ----------
    refs : sequence of DatasetRef
        The data sets, in the store.
    context : {"training", "validation"}
        Use that the run makes of them.
    config : CompareConfig
        Configuration with the folder of relative paths and the targets.
    """
    targets = {dataset.label: dataset.target for dataset in config.datasets}
    inputs = []
    for ref in refs:
        source = _source(ref.source, Path(config.data_dir))
        schema = _schema_of(ref, targets.get(ref.name) or "target")
        sizes = {"num_rows": ref.n_rows, "num_features": ref.n_features}
        inputs.append(_input(ref.name, ref.digest, source, schema, sizes, context))
    return inputs


def scored_input(source: str, columns: Sequence[str], n_rows: int) -> DatasetInput:
    """Return rows that a model has scored as an input of its run.

    Its digest is of place, time of change, columns and number of rows, as the rows may not fit into memory.
    """
    changed = Path(source).stat().st_mtime_ns if Path(source).exists() else 0
    of_any_type = AnyType()  # type: ignore[no-untyped-call]
    schema = Schema([ColSpec(of_any_type, name) for name in columns[:SCHEMA_COLUMNS]])
    key = digest(source, changed, list(columns), n_rows)
    sizes = {"num_rows": n_rows, "num_features": len(columns)}
    return _input(Path(source).name, key, _source(source, Path()), _as_json(schema), sizes, "scoring")


def _input(
    name: str,
    digest: str,
    source: tuple[str, str],
    schema: str | None,
    sizes: dict[str, int],
    context: str,
) -> DatasetInput:
    """Return an input of a run from what MLflow keeps of it; the source is its type and its JSON."""
    kind, place = source
    tracked = TrackedDataset(name, digest, kind, place, schema=schema, profile=json.dumps(sizes))
    return DatasetInput(tracked, [InputTag(CONTEXT, context)])


def _as_json(schema: Schema) -> str:
    return json.dumps({"mlflow_colspec": schema.to_dict()})


def _source(source: str, folder: Path) -> tuple[str, str]:
    """Return the type and the JSON of a source, which `mlflow.data.get_source` loads where there is one place."""
    places = source.split(", ")
    scheme = urlsplit(places[0]).scheme
    if len(places) == 1 and scheme in ("http", "https"):
        return "http", json.dumps({"url": source})
    if len(places) == 1 and scheme == "s3":
        return "s3", json.dumps({"uri": source})
    paths = [folder / place for place in places]
    if all(path.exists() for path in paths):
        one = paths[0] if len(paths) == 1 else _common_folder(paths)
        return "local", json.dumps({"uri": str(one.resolve())})
    return "code", CodeDatasetSource(tags={"mlflow.source.name": source}).to_json()


def _common_folder(paths: Sequence[Path]) -> Path:
    """Return the deepest folder that holds all paths."""
    first = paths[0].resolve()
    return next(folder for folder in first.parents if all(path.resolve().is_relative_to(folder) for path in paths))


@cache
def _schema_of(ref: DatasetRef, target: str) -> str | None:
    """Return names and types of the columns as JSON, the target last; None where they are too many.

    It is kept, as a comparison logs a data set once per method, and each reading of it verifies files.
    """
    dataset = load_dataset(ref)
    if dataset.table is not None:
        kinds = {column.name: column.kind for column in dataset.table.columns}
    else:
        if len(dataset.features) > SCHEMA_COLUMNS:
            return None
        kinds = {name: "number" for name in dataset.features}
    if len(kinds) > SCHEMA_COLUMNS:
        return None
    columns = [ColSpec(COLUMN_TYPES[kind], name) for name, kind in kinds.items()]
    of_target = DataType.string if dataset.target.task == "classification" else DataType.double
    return _as_json(Schema([*columns, ColSpec(of_target, target)]))
