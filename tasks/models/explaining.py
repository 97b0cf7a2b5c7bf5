"""Write contributions of columns next to the predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from learnkernels import ExplanationDisplay
from learnkernels.conf.errors import InputError, input_errors, listed
from learnkernels.kernels.estimators import Explanation
from learnkernels.kernels.model import Model

from ..data.locations import TRIED_AGAIN, locate, written
from ..data.tables import Table, TableOutput
from ..naming import step
from ..reporting.figures import inline
from .registry import ModelVersion, load_version
from .scoring import (
    ROW,
    ScoringOptions,
    ignore_progress,
    inputs_of,
    metadata_of,
    output_location,
    version_metadata,
)

BATCH_ROWS = 500
"""Rows explained at once; the figure shows the first batch."""

EXPLAINED = "explains"
"""Output column with the name of the explained prediction."""

BASE = "base"
"""Output column with the mean prediction of background rows."""

PREFIX = "contribution "
"""Prefix of contributions' column names."""


@dataclass(frozen=True)
class Explained:
    """Written contributions of columns to predictions: file, mean sizes and figure."""

    output: str
    rows: int
    mean_sizes: Mapping[str, float]
    figure: str | None


def contributions_file(output: str) -> str:
    """Return the file for contributions of columns, next to the predictions."""
    if output.endswith("/"):
        return f"{output.rstrip('/')}.contributions.parquet"
    stem, _, ending = output.rpartition(".")
    return f"{stem}.contributions.{ending}"


def require_explainable(
    model: Model, source: str, output: str, ids: Sequence[str]
) -> None:
    """Raise InputError if contributions of columns cannot be written."""
    columns = [EXPLAINED, BASE, *(f"{PREFIX}{name}" for name in model.features)]
    clashing = [name for name in ids if name in columns]
    if clashing:
        raise InputError(
            f"{source}: id {listed(clashing)} has the name of a column of the contributions; rename it."
        )
    if not output.endswith("/"):
        output_location(output)
    destination = locate(contributions_file(output))
    needed = {*model.features, *ids}
    inputs = inputs_of(source, needed)
    if any(destination.is_same(location) for location in inputs):
        raise InputError(
            f"{destination.text}: the contributions would replace the input; give another output."
        )
    # Refuses files of different columns
    Table(inputs, is_needed=needed.__contains__).close()


@step("explain {source}", **TRIED_AGAIN)
def explain_table(
    version: ModelVersion,
    source: str,
    output: str,
    options: ScoringOptions,
    most_rows: int,
    on_progress: Callable[[int], None],
) -> Explained:
    """Write contributions of columns to a registered version's predictions."""
    return explain_with(
        load_version(version),
        version_metadata(version),
        source,
        output,
        options,
        most_rows,
        on_progress,
    )


def explain_with(
    model: Model,
    about: Mapping[str, str],
    source: str,
    output: str,
    options: ScoringOptions,
    most_rows: int,
    on_progress: Callable[[int], None] = ignore_progress,
) -> Explained:
    """Write contributions of columns to a model's predictions for the first rows.

    `on_progress` receives the number of explained rows. Contributions and base value
    sum to the prediction.
    """
    destination = locate(contributions_file(output))
    total = np.zeros(len(model.features))
    n_rows = 0
    figure = None
    needed = {*model.features, *options.ids}
    with Table(inputs_of(source, needed), is_needed=needed.__contains__) as table:
        schema = _schema(model, table, options.ids, about)
        with (
            written(destination) as path,
            TableOutput(path, destination, schema, options.escape_formulas) as out,
        ):
            for batch in _first_rows(table, model, options.ids, most_rows):
                with input_errors(source):
                    explanation = model.explain(batch)
                out.write(
                    _as_table(explanation, model, batch, options.ids, n_rows, schema)
                )
                if not n_rows:
                    figure = _figure(explanation)
                total += _sizes(explanation)
                n_rows += batch.num_rows
                on_progress(n_rows)
    mean_sizes = total / max(1, n_rows)
    order = np.argsort(-mean_sizes, kind="stable")
    return Explained(
        destination.text,
        n_rows,
        {model.features[j]: float(mean_sizes[j]) for j in order},
        figure,
    )


def _first_rows(
    table: Table, model: Model, ids: Sequence[str], most_rows: int
) -> Iterator[pa.Table]:
    n_remaining = most_rows
    names = list(dict.fromkeys([*model.features, *ids]))
    for batch in table.tables(names, min(BATCH_ROWS, most_rows)):
        yield batch.slice(0, n_remaining)
        n_remaining -= batch.num_rows
        if n_remaining <= 0:
            return


def _schema(
    model: Model, table: Table, ids: Sequence[str], about: Mapping[str, str]
) -> pa.Schema:
    fields = [table.schema.field(name) for name in ids]
    if not ids:
        fields = [pa.field(ROW, pa.int64())]
    fields += [pa.field(EXPLAINED, pa.string()), pa.field(BASE, pa.float64())]
    for name in model.features:
        fields.append(pa.field(f"{PREFIX}{name}", pa.float64()))
    return pa.schema(fields, metadata=metadata_of(about))


def _as_table(
    explanation: Explanation,
    model: Model,
    batch: pa.Table,
    ids: Sequence[str],
    first: int,
    schema: pa.Schema,
) -> pa.Table:
    n, d = explanation.data.shape
    names = model.explained_names
    base_values = explanation.base_values.reshape(n, -1)
    contributions = explanation.contributions.reshape(n, d, -1)
    if model.task == "classification" and len(names) == 2:
        names = names[1:]
        base_values = base_values[:, 1:]
        contributions = contributions[:, :, 1:]
    of_row = np.repeat(np.arange(n), len(names))
    columns = [batch.column(name).take(pa.array(of_row)) for name in ids]
    if not ids:
        columns = [pa.array(first + of_row)]
    columns += [pa.array(names * n, pa.string()), pa.array(base_values.ravel())]
    columns += [pa.array(contributions[:, j].ravel()) for j in range(d)]
    return pa.table(columns, schema=schema)


def _sizes(explanation: Explanation) -> np.ndarray:
    """Return absolute contributions, summed over rows, mean over outputs."""
    sizes = np.abs(explanation.contributions)
    if explanation.outputs:
        sizes = sizes.mean(axis=2)
    return np.asarray(sizes.sum(axis=0))


def _figure(explanation: Explanation) -> str | None:
    return inline(ExplanationDisplay(explanation).plot().figure_)
