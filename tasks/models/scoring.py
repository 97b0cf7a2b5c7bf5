"""Score tables of any length in constant memory; report drift."""

from __future__ import annotations

import json
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.ipc
import pyarrow.parquet
from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact

from learnkernels.conf.errors import InputError, did_you_mean, input_errors, listed
from learnkernels.conf.files import columns_in_folders, compression_of
from learnkernels.conf.schema import DriftConfig
from learnkernels.kernels.column_encoding import EncodingReport
from learnkernels.kernels.column_encoding.summary import NumberSummary
from learnkernels.kernels.hypothesis_tests.drift import (
    FEWEST_ROWS,
    Drift,
    NewRows,
    drift_of,
)
from learnkernels.kernels.model import Model

from ..data.locations import (
    TRIED_AGAIN,
    FolderColumns,
    Location,
    explained,
    locate,
    written,
)
from ..data.readers import refuse_repeated
from ..data.tables import (
    FORMATS,
    Table,
    TableOutput,
    locations_of,
    one_schema,
    with_folder_columns,
)
from ..databases import first_line, mlflow_ui
from ..measure.progress import RunProgress
from ..naming import step
from ..reporting.markdown import Markdown, code, link, plain, render
from .registry import PLACE, ModelVersion, load_version, log_scored, log_series

if TYPE_CHECKING:
    from ..workers.cluster import DaskPool
    from .explaining import Explained


MAX_SHOWN = 20
"""Most classes and columns in the report."""

SUCCESS = "_SUCCESS"
"""File that marks an output in parts as complete."""

ROW = "row"
"""Column of row numbers in an output without ids."""

OnProgress = Callable[[float, int], None]
"""Function of the finished share, and the number of rows (0: unknown)."""

Distribution = Counter[str] | NumberSummary
"""Counts of labels, or a summary of numbers; both support addition."""


def distribution_of(values: np.ndarray, numbers: bool) -> Distribution:
    """Summarize predicted numbers, or count each predicted label."""
    if numbers:
        return NumberSummary.of(values, keep_all_numbers=False)
    return Counter(map(str, values))


def shown_distribution(distribution: Distribution) -> dict[str, float]:
    """Return label counts, or mean, sd, min and max of numbers; empty without rows."""
    if isinstance(distribution, Counter):
        return {label: distribution[label] for label in sorted(distribution)}
    n = distribution.finite
    if not n:
        return {}
    sd = float(np.sqrt(distribution.squares / (n - 1))) if n > 1 else 0.0
    return {
        "mean": distribution.mean,
        "sd": sd,
        "min": distribution.low,
        "max": distribution.high,
    }


@dataclass
class Tally:
    """Counts and statistics of scored rows, added over pieces of a table.

    `new` is None if the model has no training rows.
    """

    distributions: dict[str, Any]
    new: NewRows | None
    rows: int = 0
    report: EncodingReport = field(default_factory=EncodingReport)
    columns: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    input_columns: list[str] = field(default_factory=list)

    def __add__(self, other: Tally) -> Tally:
        new = None
        if self.new is not None and other.new is not None:
            new = self.new + other.new
        return replace(
            self,
            distributions={
                name: distribution + other.distributions[name]
                for name, distribution in self.distributions.items()
            },
            new=new,
            rows=self.rows + other.rows,
            report=self.report + other.report.moved(self.rows),
            ignored=list(dict.fromkeys([*self.ignored, *other.ignored])),
            notes=list(dict.fromkeys([*self.notes, *other.notes])),
        )


@dataclass(frozen=True)
class DriftReport:
    """Drift of scored rows from training rows, as plain data.

    `note` is the reason why rows were not compared. p-values are None if untested.
    """

    warnings: list[str] = field(default_factory=list)
    note: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    columns: list[dict[str, Any]] = field(default_factory=list)


class Drifted(InputError):
    """Error for scored rows that drifted too far; `scores` has the results."""

    def __init__(self, sentence: str, scores: Scores) -> None:
        super().__init__(sentence)
        self.scores = scores


def drift_config(version: ModelVersion) -> DriftConfig:
    """Return the drift limits in the latest training of a version."""
    try:
        return DriftConfig.model_validate(
            json.loads(version.tags.get(PLACE, "{}")).get("drift", {})
        )
    except (AttributeError, ValueError) as error:
        raise InputError(
            f"model {version.uri}: what it says of drift cannot be read ({first_line(error)}); train it again."
        ) from None


def drift_report(model: Model, tally: Tally, config: DriftConfig) -> DriftReport:
    """Compare scored rows with the training rows of a model."""
    if model.reference is None or tally.new is None:
        return DriftReport(
            note="the model keeps no training rows; train it again to have new rows compared with them"
        )
    if tally.rows < FEWEST_ROWS:
        return DriftReport(
            note=f"not tested, as {FEWEST_ROWS} rows are needed and the input has {tally.rows}"
        )
    drift = drift_of(
        model.estimator.kernel_,
        model.feature_columns,
        model.reference,
        tally.new,
        config.ignore,
    )
    columns: list[dict[str, Any]] = [
        {
            "column": name,
            "missing": tally.report.gaps.get(name, 0) / tally.rows,
            "missing_at_training": model.missing_at_training.get(name, 0.0),
            "unknown": tally.report.levels.get(name, 0) / tally.rows,
            "outside": max(
                drift.outside.get(name, 0.0),
                tally.report.outside[name] / tally.rows,
            ),
            "p": drift.p_columns.get(name),
        }
        for name in model.features
    ]
    monitored = [row for row in columns if row["column"] not in config.ignore]
    dates = {name for name, view in model.feature_columns if view == "dates"}
    shares = {
        "missing": {
            row["column"]: row["missing"] - row["missing_at_training"]
            for row in monitored
        },
        "unknown": {row["column"]: row["unknown"] for row in monitored},
        "outside": {
            row["column"]: row["outside"]
            for row in monitored
            if row["column"] not in dates
        },
    }
    warnings = _test_warnings(drift, config.level)
    for threshold, shares_of_columns in shares.items():
        warnings += _threshold_warnings(
            threshold, shares_of_columns, getattr(config, threshold)
        )
    metrics = {
        "p": drift.p,
        "mmd2": drift.mmd2,
        "score": max(drift.scores),
        **{
            threshold: max(by_column.values(), default=0.0)
            for threshold, by_column in shares.items()
        },
        "warnings": len(warnings),
    }
    return DriftReport(warnings, "", metrics, columns)


def _threshold_warnings(
    threshold: str, shares: Mapping[str, float], limit: float
) -> list[str]:
    sentences = {
        "missing": "more values are missing than at training",
        "unknown": "rows have categories that no training row had",
        "outside": "rows are outside of the range of the training rows",
    }
    exceeding = [
        f"{name!r} ({share:.0%})" for name, share in shares.items() if share > limit
    ]
    if not exceeding:
        return []
    return [
        f"{sentences[threshold]}: column {listed(exceeding, show=str)}; the limit is {limit:.0%}"
    ]


def _test_warnings(drift: Drift, level: float) -> list[str]:
    if drift.p > level:
        return []
    changed = [name for name, p in drift.p_columns.items() if p <= level / 2]
    where = (
        f"column {listed(changed)}"
        if changed
        else "no column alone, but their combination"
    )
    return [f"the rows differ from the training rows (p = {drift.p:.2g}): {where}"]


@dataclass(frozen=True)
class Scores:
    """Counts and statistics of a scored table, as plain data.

    By column: `distribution` has counts by label, or mean, sd, min and max; `gaps` and
    `new_levels` count rows. `cells` are remarks about files and invalid cells.
    """

    rows: int
    columns: list[str]
    distribution: dict[str, dict[str, float]]
    seconds: float
    gaps: dict[str, int]
    new_levels: dict[str, int]
    cells: list[str]
    ignored: list[str]
    drift: DriftReport
    input_columns: list[str]


class ScoringProgress:
    """Progress of scoring a table: a percentage, or lines every five seconds."""

    def __init__(self, progress: RunProgress) -> None:
        self.progress = progress
        self.share = 0.0
        self.shown_at = time.monotonic()

    def __call__(self, share: float, rows: int) -> None:
        """Report the finished share, and the number of rows (0: unknown)."""
        self.progress.advance(100 * (share - self.share))
        self.share = share
        if time.monotonic() - self.shown_at > 5.0:
            self.progress.start(f"{rows:,} rows scored" if rows else "scoring")
            self.shown_at = time.monotonic()


def publish_scores(
    version: ModelVersion,
    source: str,
    output: str,
    scores: Scores,
    explained: Explained | None = None,
) -> None:
    """Publish statistics of a scored table in Prefect, and drift in MLflow."""
    log = get_run_logger()
    drift = scores.drift
    if scores.ignored:
        log.info(
            "columns that %s does not read are ignored: %s",
            version.uri,
            listed(scores.ignored),
        )
    for sentence in drift.warnings:
        log.warning("drift: %s", sentence)
    if drift.note:
        log.warning("drift: %s", drift.note)
    try:
        log_scored(version, source, scores.input_columns, scores.rows)
        if drift.metrics:
            log_series(
                version,
                {f"drift/{name}": value for name, value in drift.metrics.items()},
            )
    except InputError as error:  # the predictions are written
        log.warning("columns and drift are not in MLflow: %s", error)
    page = f"{mlflow_ui()}/#/models/{quote(version.name, safe='')}/versions/{version.version}"
    facts = _facts(version, source, output, scores)
    report = render(
        "scoring.md",
        scores=scores,
        version=link(f"{version.name} version {version.version}", page),
        facts=[{"": name, " ": fact} for name, fact in facts.items()],
        predictions={
            name: _prediction_rows(values, scores.rows)
            for name, values in scores.distribution.items()
        },
        columns=_drift_rows(drift),
        explained=explained,
        contributions=_contribution_rows(explained),
    )
    create_markdown_artifact(
        report, key="scoring", description=f"Scores of {code(source)}"
    )


def _facts(
    version: ModelVersion, source: str, output: str, scores: Scores
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "input": code(source),
        "output": code(output),
        "columns": Markdown(", ".join(map(code, scores.columns))),
    }
    if scores.ignored:
        facts["columns that were ignored"] = Markdown(
            ", ".join(map(code, scores.ignored))
        )
    if scores.gaps:
        facts["rows with missing values"] = _column_counts(scores.gaps)
    if scores.new_levels:
        facts["rows with categories that no training row had"] = _column_counts(
            scores.new_levels
        )
    for i, remark in enumerate(scores.cells, 1):
        facts[f"remark {i}"] = plain(remark)
    facts["rows a second"] = f"{scores.rows / max(scores.seconds, 1e-9):,.0f}"
    facts["digest of the model"] = code(version.digest)
    return facts


def _column_counts(counts: dict[str, int]) -> Markdown:
    return Markdown(
        ", ".join(f"{code(name)} {count:,}" for name, count in counts.items())
    )


def _contribution_rows(explained: Explained | None) -> list[dict[str, str]]:
    if explained is None:
        return []
    return [
        {"column": code(name), "mean absolute contribution": f"{size:.4g}"}
        for name, size in list(explained.mean_sizes.items())[:MAX_SHOWN]
    ]


def _drift_rows(drift: DriftReport) -> list[dict[str, str]]:
    def order(column: dict[str, Any]) -> tuple[float, float]:
        p = 1.0 if column["p"] is None else column["p"]
        return p, -column["missing"]

    return [
        {
            "column": code(column["column"]),
            "missing": f"{column['missing']:.1%}",
            "at training": f"{column['missing_at_training']:.1%}",
            "unknown categories": f"{column['unknown']:.1%}",
            "outside of the range": f"{column['outside']:.1%}",
            "p": "not tested" if column["p"] is None else f"{column['p']:.2g}",
        }
        for column in sorted(drift.columns, key=order)[:MAX_SHOWN]
    ]


def _prediction_rows(
    distribution: dict[str, float], n_rows: int
) -> list[dict[str, str]]:
    """Return the most frequent labels, or one row for numbers."""
    if not distribution:
        return []
    if not all(isinstance(value, int) for value in distribution.values()):
        return [{name: f"{value:.6g}" for name, value in distribution.items()}]
    counts = sorted(distribution.items(), key=lambda item: (-item[1], item[0]))
    others = counts[MAX_SHOWN:]
    if others:
        counts = [
            *counts[:MAX_SHOWN],
            (f"{len(others)} others", sum(count for _, count in others)),
        ]
    return [
        {"class": label, "rows": f"{count:,}", "share": f"{count / n_rows:.1%}"}
        for label, count in counts
    ]


@dataclass(frozen=True)
class ScoringOptions:
    """Options of scoring a table: columns to copy, and handling of drift.

    Without `ids`, the output has row numbers from 0. `strict` rejects columns that the
    model does not read.
    """

    ids: tuple[str, ...] = ()
    strict: bool = False
    drift: DriftConfig = field(default_factory=lambda: DriftConfig.model_validate({}))
    escape_formulas: bool = True


@step("score {source}", **TRIED_AGAIN)
def score_table(
    version: ModelVersion,
    source: str,
    output: str,
    options: ScoringOptions,
    on_progress: OnProgress,
    pool: DaskPool | None = None,
) -> Scores:
    """Score a table with a registered version; on workers if the output is a folder."""
    about = version_metadata(version)
    model = load_version(version)
    if pool is None:
        return score_with(model, about, source, output, options, on_progress)
    return score_parts_with(model, about, source, output, pool, options, on_progress)


def version_metadata(version: ModelVersion) -> dict[str, str]:
    """Return a version's URI, number and digest as metadata for output files."""
    return {
        "model": version.uri,
        "version": str(version.version),
        "digest": version.digest,
    }


def metadata_of(about: Mapping[str, str]) -> dict[str, str]:
    """Return metadata for Parquet and Arrow outputs, with a prefix added to each key."""
    return {f"learnkernels.{key}": value for key, value in about.items()}


def ignore_progress(*_: float) -> None:
    pass


def score_with(
    model: Model,
    about: Mapping[str, str],
    source: str,
    output: str,
    options: ScoringOptions,
    on_progress: OnProgress = ignore_progress,
) -> Scores:
    """Score a table with a model and write the predictions.

    `source` and `output` are paths or ``s3://bucket/key``. InputError if columns or
    values do not fit, or rows have drifted (`Drifted`); TransferError if a file is
    unavailable at present. An error leaves no output.
    """
    started = time.monotonic()
    needed = {*model.features, *options.ids}
    inputs = inputs_of(source, needed)
    destination = output_apart_from(output, inputs)
    table = Table(inputs, is_needed=needed.__contains__)
    with _scored(
        model, about, table, destination, options, source, on_progress
    ) as tally:
        return _result(model, tally, source, options.drift, started)


@contextmanager
def _scored(
    model: Model,
    about: Mapping[str, str],
    table: Table,
    output: Location,
    options: ScoringOptions,
    where: str,
    on_progress: OnProgress = ignore_progress,
    first: int = 0,
) -> Iterator[Tally]:
    """Score a table into a file with rows numbered from `first`; yield the tally.

    The file is moved into place, and the table closed, when the context ends.
    """
    with table:
        ignored = _ignored_columns(model, table.all_names, options, where)
        schema = _output_schema(model, table, options, about)
        tally = _empty_tally(model)
        tally.columns = schema.names
        tally.ignored = ignored
        tally.input_columns = _all_columns(table)
        needed_columns = list(dict.fromkeys([*model.features, *options.ids]))
        with written(output) as path:
            with TableOutput(path, output, schema, options.escape_formulas) as out:
                for batch in table.tables(needed_columns, model.batch_rows):
                    start = first + tally.rows
                    predictions = _score_batch(model, batch, tally, where)
                    ids = [batch.column(name) for name in options.ids]
                    if not ids:
                        ids = [np.arange(start, start + batch.num_rows)]
                    values = [
                        pa.array(predictions[name], type=schema.field(name).type)
                        for name in model.column_types
                    ]
                    out.write(pa.table([*ids, *values], schema=schema))
                    on_progress(table.share_read, tally.rows)
            tally.notes = table.notes
            yield tally


def _output_schema(
    model: Model, table: Table, options: ScoringOptions, about: Mapping[str, str]
) -> Any:
    ids = [table.schema.field(name) for name in options.ids]
    if not ids:
        ids = [pa.field(ROW, pa.int64())]
    predictions = [
        pa.field(name, _arrow_type(dtype)) for name, dtype in model.column_types.items()
    ]
    return pa.schema([*ids, *predictions], metadata=metadata_of(about))


def _empty_tally(model: Model) -> Tally:
    distributions = {
        name: distribution_of(np.empty(0, dtype), model.task == "regression")
        for name, dtype in model.column_types.items()
        if name.split()[0] == "prediction"
    }
    new = None
    if model.reference is not None:
        no_rows = np.empty((0, len(model.feature_columns)))
        no_scores = np.empty((0, len(model.score_names)))
        new = NewRows.of(no_rows, no_scores, model.reference, [0])
    return Tally(distributions, new, report=EncodingReport(is_of_blocks=True))


def _score_batch(
    model: Model, batch: Any, tally: Tally, where: str
) -> dict[str, np.ndarray]:
    """Return predictions; add them to the tally."""
    first = tally.rows
    tally.report.first = first
    with input_errors(where):
        X = model.encoded(model.raw_rows(batch, first), tally.report)
        columns = model.columns_of(X)
    for name in tally.distributions:
        tally.distributions[name] += distribution_of(
            columns[name], model.task == "regression"
        )
    if model.reference is not None and tally.new is not None:
        seed = [zlib.crc32(where.encode()), first]
        tally.new += NewRows.of(X, model.scores_in(columns), model.reference, seed)
    tally.rows += batch.num_rows
    return columns


def _result(
    model: Model, tally: Tally, source: str, drift: DriftConfig, started: float
) -> Scores:
    """Return the result; InputError for unreadable columns or drift."""
    with input_errors(source):
        tally.report.require_read()
    scores = Scores(
        rows=tally.rows,
        columns=tally.columns,
        distribution={
            name: shown_distribution(distribution)
            for name, distribution in tally.distributions.items()
        },
        seconds=time.monotonic() - started,
        gaps=dict(tally.report.gaps),
        new_levels=dict(tally.report.levels),
        cells=[*tally.notes, *tally.report.sentences()],
        ignored=tally.ignored,
        drift=drift_report(model, tally, drift),
        input_columns=tally.input_columns,
    )
    if scores.drift.warnings and drift.on_drift == "fail":
        raise Drifted(
            f"{source}: {'; '.join(scores.drift.warnings)}; correct the rows, train on newer ones, or set "
            "'drift.on_drift: warn' and train again.",
            scores,
        )
    return scores


@dataclass
class PartsProgress:
    """Progress of scoring a table, summed over workers."""

    on_progress: OnProgress
    rows: int
    share: float = 0.0

    def __call__(self, share: float) -> None:
        self.share += share
        self.on_progress(self.share, int(self.share * self.rows))


def score_parts_with(
    model: Model,
    about: Mapping[str, str],
    source: str,
    output: str,
    pool: DaskPool,
    options: ScoringOptions,
    on_progress: OnProgress = ignore_progress,
) -> Scores:
    """Score each file of a table on workers, into a file of an output folder.

    `_SUCCESS` follows. InputError as in `score_with`, or if the folder has inputs or
    other files.
    """
    started = time.monotonic()
    inputs = inputs_of(source, {*model.features, *options.ids})
    files = [location.text for location in inputs]
    folder = f"{output.rstrip('/')}/"
    parts = [f"{folder}part-{i:05d}.parquet" for i in range(len(files))]
    success = locate(f"{folder}{SUCCESS}")
    _require_no_input(success, inputs)
    _require_own(success, parts)
    # Row numbers replace missing ids
    n_rows = [0] * len(files) if options.ids else pool.map(_count, files)
    first_rows = np.cumsum([0, *n_rows])[:-1].tolist()
    folder_columns = [location.folder_columns for location in inputs]
    joint = None
    if options.ids:
        joint = _joint_schema_of_ids(files, folder_columns, options.ids, source, pool)
    jobs = list(zip(files, folder_columns, parts, first_rows, strict=True))
    progress = PartsProgress(on_progress, sum(n_rows))
    tallies = pool.map(
        _score_part,
        jobs,
        progress,
        model=model,
        about=about,
        options=options,
        joint=joint,
    )
    total = reduce(add, tallies)
    try:
        scores = _result(model, total, source, options.drift, started)
    except InputError:
        _remove(parts)
        raise
    entries = [
        {"file": part.rpartition("/")[2], "rows": tally.rows, "input": file}
        for file, part, tally in zip(files, parts, tallies, strict=True)
    ]
    facts = {**about, "rows": total.rows, "files": entries}
    with written(success) as path:
        path.write_text(json.dumps(facts, indent=1), encoding="utf-8")
    return scores


def _joint_schema_of_ids(
    files: Sequence[str],
    folder_columns: Sequence[FolderColumns],
    ids: Sequence[str],
    source: str,
    pool: DaskPool,
) -> bytes:
    parts = list(zip(files, folder_columns, strict=True))
    schemas = [
        pyarrow.ipc.read_schema(pa.py_buffer(serialized))
        for serialized in pool.map(_schema_of_ids, parts, ids=ids)
    ]
    joint = one_schema(list(zip(files, schemas, strict=True)), source)
    return bytes(joint.serialize())


def _schema_of_ids(part: tuple[str, FolderColumns], ids: Sequence[str]) -> bytes:
    with _input_of(*part) as table:
        fields = [field for field in table.schema if field.name in ids]
    return bytes(pa.schema(fields).serialize())


def _count(file: str) -> int:
    with _input_of(file) as table:
        return table.num_rows


def inputs_of(source: str, needed: set[str]) -> tuple[Location, ...]:
    """Return a table's files; folder names such as year=2024 give `needed` columns."""
    locations = [table_location(location.text) for location in locations_of(source)]
    folder_values = []
    for location in locations:
        values = columns_in_folders(location.text)
        folder_values.append(
            {name: value for name, value in values.items() if name in needed}
        )
    return with_folder_columns(locations, folder_values)


def input_columns(source: str) -> list[str]:
    """Return a table's columns, including those in folder names."""
    with Table(inputs_of(source, set())[:1]) as table:
        return _all_columns(table)


def _all_columns(table: Table) -> list[str]:
    folder_columns = columns_in_folders(table.location.text)
    return list(dict.fromkeys([*table.all_names, *folder_columns]))


def _input_of(
    file: str, folder_columns: FolderColumns = (), joint: bytes | None = None
) -> Table:
    location = replace(table_location(file), folder_columns=folder_columns)
    return Table([location], joint=joint)


def _score_part(
    job: tuple[str, FolderColumns, str, int],
    model: Model,
    about: Mapping[str, str],
    options: ScoringOptions,
    joint: bytes | None,
) -> Tally:
    file, folder_columns, part, first = job
    with _scored(
        model,
        about,
        _input_of(file, folder_columns, joint),
        locate(part),
        options,
        file,
        first=first,
    ) as tally:
        return tally


def _require_no_input(success: Location, inputs: Sequence[Location]) -> None:
    folder = replace(success, path=success.path.rpartition("/")[0])
    where = success.text.rpartition("/")[0]
    for location in inputs:
        if folder.holds(location):
            raise InputError(
                f"{where}: the output folder has the input {location.text}; give another folder."
            )


def _require_own(success: Location, parts: Sequence[str]) -> None:
    """Raise InputError for files that are not parts of incomplete output."""
    if success.remote:
        success.require_bucket()
    folder = success.path.rpartition("/")[0]
    where = success.text.rpartition("/")[0]
    with explained(success):
        entries = success.filesystem.get_file_info(
            pyarrow.fs.FileSelector(folder, allow_not_found=True)
        )
    # In a bucket, folders are only prefixes of names
    names = {
        entry.base_name
        for entry in entries
        if entry.type != pyarrow.fs.FileType.Directory or not success.remote
    }
    if SUCCESS in names:
        raise InputError(
            f"{where}: holds a complete output, as {SUCCESS} says; give another folder, or remove it."
        )
    part_of_name = {part.rpartition("/")[2]: part for part in parts}
    others = [
        name
        for name in names
        if name not in part_of_name or not _has_predictions(locate(part_of_name[name]))
    ]
    if others:
        raise InputError(
            f"{where}: holds {listed(sorted(others))}, which is not of this output; give an empty folder."
        )


def _has_predictions(location: Location) -> bool:
    with explained(location):
        try:
            with location.open_input() as file:
                metadata = pa.parquet.read_schema(file).metadata or {}
        except pa.ArrowException:  # another format
            return False
    return b"learnkernels.model" in metadata


def _remove(parts: Sequence[str]) -> None:
    for part in parts:
        location = locate(part)
        with suppress(OSError):  # incomplete without `_SUCCESS`
            location.filesystem.delete_file(location.path)


def table_location(text: str) -> Location:
    """Return the location of an input table; InputError for other formats."""
    location = locate(text)
    if location.suffix not in FORMATS:
        raise InputError(
            f"{text}: the ending says the format, and must be one of {', '.join(FORMATS)}."
        )
    return location


def output_location(text: str) -> Location:
    """Return the location of an output table; InputError if compressed."""
    location = table_location(text)
    if compression_of(text) is not None:
        raise InputError(
            f"{text}: is written without compression; leave out the ending {Path(text).suffix}."
        )
    return location


def output_apart_from(text: str, inputs: Sequence[Location]) -> Location:
    """Return the location of an output table; InputError if it is an input."""
    location = output_location(text)
    if any(location.is_same(source) for source in inputs):
        raise InputError(
            f"{text}: the output would replace the input; give another name."
        )
    return location


def _ignored_columns(
    model: Model, names: Sequence[str], options: ScoringOptions, where: str
) -> list[str]:
    """Return the input's columns that are unknown to the model and its training.

    InputError for missing, repeated or, if `strict`, ignored columns.
    """
    refuse_repeated(names, f"{where}: column {{}} appears more than once; rename one.")
    refuse_repeated(options.ids, "id {} is given more than once; name it once.")
    expected_names = {
        model.about.get("target"),
        *(model.about.get("drop") or ()),
        *model.features,
        *options.ids,
    }
    if model.table is not None:
        expected_names |= set(model.table.left_out)
    ignored = [name for name in names if name not in expected_names]
    missing_sentence = model.lacking(names, ignored)
    if missing_sentence:
        raise InputError(f"{where}: {missing_sentence}")
    absent = [name for name in options.ids if name not in names]
    if absent:
        raise InputError(
            f"{where}: id {listed(absent)} is no column; {did_you_mean(absent[0], names)}correct the name."
        )
    if ignored and options.strict:
        raise InputError(
            f"{where}: has columns that the model does not read: {listed(ignored)}; remove them, name those to copy as "
            "ids, or do without 'strict'."
        )
    clashing = [name for name in options.ids if name in model.column_types]
    if clashing:
        raise InputError(
            f"{where}: id {listed(clashing)} has the name of a column of the output; rename it."
        )
    return ignored


def _arrow_type(dtype: np.dtype[Any]) -> Any:
    return pa.string() if dtype.kind in "UO" else pa.from_numpy_dtype(dtype)
