"""Batch scoring of tables of any length, with constant memory: predictions, drift, and the report in Prefect."""

from __future__ import annotations

import json
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.fs
from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact

from learnkernels.conf.errors import InputError, did_you_mean, input_errors, listed
from learnkernels.conf.files import compression_of, told_by_folders
from learnkernels.conf.schema import DriftConfig
from learnkernels.kernels.drift import FEWEST_ROWS, Drift, NewRows, drift_of
from learnkernels.kernels.model import Model
from learnkernels.kernels.tables import EncodingReport
from learnkernels.kernels.tables.summary import NumberSummary

from ..data.locations import TRIED_AGAIN, Location, Told, explained, locate, written
from ..data.readers import refuse_repeated
from ..data.tables import FORMATS, Table, TableOutput, locations_of, telling
from ..evidence.databases import first_line, mlflow_ui
from ..evidence.markdown import Markdown, code, link, plain, render
from ..evidence.progress import RunProgress
from ..naming import step
from .registry import PLACE, ModelVersion, load_version, log_scored, log_series

if TYPE_CHECKING:
    from ..workers.cluster import DaskPool


LINE_SECONDS = 5.0
"""Least time between two lines of progress where there is no terminal."""

SHOWN = 20
"""How many labels the report shows before it only counts."""


Distribution = Counter[str] | NumberSummary
"""What one column of predictions looks like: how often each label occurs, or the summary of numbers; two add up."""


def distribution_of(values: np.ndarray, numbers: bool) -> Distribution:
    """Return the distribution of some numbers or labels, shape (n,)."""
    return NumberSummary.of(values, all_kept=False) if numbers else Counter(map(str, values))


def shown_distribution(of: Distribution) -> dict[str, float]:
    """Return counts by label, or mean, sd, min and max; nothing for no rows."""
    if isinstance(of, Counter):
        return {label: of[label] for label in sorted(of)}
    sd = float(np.sqrt(of.squares / (of.finite - 1))) if of.finite > 1 else 0.0
    return {"mean": of.mean, "sd": sd, "min": of.low, "max": of.high} if of.finite else {}


@dataclass
class Tally:
    """What was counted of the rows that were scored; those of two parts of a table add up.

    Attributes
    ----------
    rows : int
        How many there are.
    distributions : dict of str to Distribution
        Of each column of predictions.
    new : NewRows or None
        What is compared with the training rows; None for a model that keeps none.
    report : EncodingReport
        Missing values and new levels.
    columns, ignored : list of str
        Of the output; and those of the input that the model does not read.
    input_columns : list of str
        All columns of the input.
    notes : list of str
        Remarks about the files of the input.
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
        joined = {name: one + other.distributions[name] for name, one in self.distributions.items()}
        new = None if self.new is None or other.new is None else self.new + other.new
        notes = list(dict.fromkeys([*self.notes, *other.notes]))
        rows, report = self.rows + other.rows, self.report + other.report
        return Tally(joined, new, rows, report, self.columns, self.ignored, notes, self.input_columns)


@dataclass(frozen=True)
class DriftReport:
    """How rows that were scored differ from the training rows, as plain data.

    Attributes
    ----------
    warnings : list of str
        What exceeds a threshold; empty where nothing does.
    note : str
        Why the rows were not compared; empty where they were.
    metrics : dict of str to float
        For MLflow: `p`, `mmd2`, and the largest of the columns' shares.
    columns : list of dict
        One row per column: shares of missing values (now and at training), of unknown categories, and of rows outside
        of the range, and the p-value, None where it is not tested.
    """

    warnings: list[str] = field(default_factory=list)
    note: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    columns: list[dict[str, Any]] = field(default_factory=list)


class Drifted(InputError):
    """Rows that differ from the training rows by more than is allowed; `scores` say how."""

    def __init__(self, sentence: str, scores: Scores) -> None:
        super().__init__(sentence)
        self.scores = scores


def drift_config(version: ModelVersion) -> DriftConfig:
    """Return what the configuration of a version's latest training says of drift."""
    try:
        return DriftConfig.model_validate(json.loads(version.tags.get(PLACE, "{}")).get("drift", {}))
    except (AttributeError, ValueError) as error:
        raise InputError(
            f"model {version.uri}: what it says of drift cannot be read ({first_line(error)}); train it again."
        ) from None


def drift_report(model: Model, tally: Tally, config: DriftConfig) -> DriftReport:
    """Compare the rows that were scored with what a model keeps of its training rows."""
    if model.reference is None or tally.new is None:
        return DriftReport(note="the model keeps no training rows; train it again to have new rows compared with them")
    if tally.rows < FEWEST_ROWS:
        return DriftReport(note=f"not tested, as {FEWEST_ROWS} rows are needed and the input has {tally.rows}")
    found = drift_of(model.estimator.kernel_, model.feature_columns, model.reference, tally.new, config.ignore)
    at_training = model.missing_at_training
    columns: list[dict[str, Any]] = [
        {
            "column": name,
            "missing": tally.report.gaps.get(name, 0) / tally.rows,
            "missing_at_training": at_training.get(name, 0.0),
            "unknown": tally.report.levels.get(name, 0) / tally.rows,
            "outside": found.outside.get(name, 0.0),
            "p": found.p_columns.get(name),
        }
        for name in model.features
    ]
    dates = {name for name, view in model.feature_columns if view == "dates"}
    counted = [one for one in columns if one["column"] not in config.ignore]
    warnings = _tested(found, config.level)
    largest = {}
    for what, (said, share) in EXCEEDING.items():
        shares = {one["column"]: share(one) for one in counted if what != "outside" or one["column"] not in dates}
        most, largest[what] = getattr(config, what), max(shares.values(), default=0.0)
        if over := [f"{name!r} ({share:.0%})" for name, share in shares.items() if share > most]:
            warnings.append(f"{said}: column {listed(over, show=str)}; the limit is {most:.0%}")
    tests = {"p": found.p, "mmd2": found.mmd2, "score": max(found.scores)}
    return DriftReport(warnings, "", {**tests, **largest, "warnings": len(warnings)}, columns)


EXCEEDING: dict[str, tuple[str, Callable[[dict[str, Any]], float]]] = {
    "missing": ("more values are missing than at training", lambda one: one["missing"] - one["missing_at_training"]),
    "unknown": ("rows have categories that no training row had", lambda one: one["unknown"]),
    "outside": ("rows are outside of the range of the training rows", lambda one: one["outside"]),
}
"""Thresholds of a configuration: what is said where the share of a column exceeds one, and that share."""


def _tested(found: Drift, level: float) -> list[str]:
    """Return the sentence that says which columns differ from the training rows; none where the tests find nothing."""
    if found.p > level:
        return []
    moved = [name for name, p in found.p_columns.items() if p <= level / 2]
    where = f"column {listed(moved)}" if moved else "no column alone, but their combination"
    return [f"the rows differ from the training rows (p = {found.p:.2g}): {where}"]


@dataclass(frozen=True)
class Scores:
    """What scoring a table gave, as plain data.

    Attributes
    ----------
    rows : int
        How many rows there are.
    columns : list of str
        Of the output.
    distribution : dict
        Of each column of predictions: counts by label, or mean, sd, min and max.
    seconds : float
    gaps, new_levels : dict of str to int
        Of each column of a table, rows with a gap that was filled, and with a level that no training row had.
    cells : list of str
        Remarks about the files of the input, and about cells that are none of what their column holds.
    ignored : list of str
        Columns of the input that the model does not read.
    drift : DriftReport
        How the rows differ from the training rows.
    input_columns : list of str
        All columns of the input.
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


def progress_lines(progress: RunProgress) -> Callable[[float, int], None]:
    """Return what shows how far a scoring is, of 100 steps; after a second attempt began, it goes back with it."""
    done, said = 0.0, time.monotonic()

    def advance(share: float, rows: int) -> None:
        """Report the share that is done, and the number of rows, zero where it is unknown."""
        nonlocal done, said
        progress.advance(100 * (share - done))
        done = share
        if time.monotonic() - said > LINE_SECONDS:
            progress.start(f"{rows:,} rows scored" if rows else "scoring")
            said = time.monotonic()

    return advance


def publish_scores(version: ModelVersion, source: str, output: str, scores: Scores) -> None:
    """Show in Prefect what was scored, with which version, and what rows and predictions look like.

    How rows differ from the training rows goes to MLflow as well, as metrics of the run that trained the version.
    """
    log, drift = get_run_logger(), scores.drift
    if scores.ignored:
        log.info("columns that %s does not read are ignored: %s", version.uri, listed(scores.ignored))
    for sentence in (*drift.warnings, *([drift.note] if drift.note else [])):
        log.warning("drift: %s", sentence)
    try:
        log_scored(version, source, scores.input_columns, scores.rows)
        if drift.metrics:
            log_series(version, {f"drift/{name}": value for name, value in drift.metrics.items()})
    except InputError as error:  # the predictions are there, and no reason to have none
        log.warning("columns and drift are not in MLflow: %s", error)
    page = f"{mlflow_ui()}/#/models/{quote(version.name, safe='')}/versions/{version.version}"
    facts: dict[str, Any] = {
        "input": code(source),
        "output": code(output),
        "columns": Markdown(", ".join(map(code, scores.columns))),
        **({"columns that were ignored": Markdown(", ".join(map(code, scores.ignored)))} if scores.ignored else {}),
        **_counted("missing values", scores.gaps),
        **_counted("categories that no training row had", scores.new_levels),
        **{f"remark {i}": plain(sentence) for i, sentence in enumerate(scores.cells, 1)},
        "rows a second": f"{scores.rows / max(scores.seconds, 1e-9):,.0f}",
        "digest of the model": code(version.digest),
    }
    differing = sorted(drift.columns, key=lambda one: (1.0 if one["p"] is None else one["p"], -one["missing"]))
    columns = [
        {
            "column": code(one["column"]),
            "missing": f"{one['missing']:.1%}",
            "at training": f"{one['missing_at_training']:.1%}",
            "unknown categories": f"{one['unknown']:.1%}",
            "outside of the range": f"{one['outside']:.1%}",
            "p": "not tested" if one["p"] is None else f"{one['p']:.2g}",
        }
        for one in differing[:SHOWN]
    ]
    report = render(
        "scoring.md",
        scores=scores,
        version=link(f"{version.name} version {version.version}", page),
        facts=[{"": what, " ": fact} for what, fact in facts.items()],
        predictions={name: _rows(values, scores.rows) for name, values in scores.distribution.items()},
        columns=columns,
    )
    create_markdown_artifact(report, key="scoring", description=f"Scores of {code(source)}")


def _counted(what: str, columns: dict[str, int]) -> dict[str, Markdown]:
    """Return the rows of each column of which there are some, as a fact; nothing where there are none."""
    named = ", ".join(f"{code(name)} {count:,}" for name, count in columns.items())
    return {f"rows with {what}": Markdown(named)} if columns else {}


def _rows(values: dict[str, float], scored: int) -> list[dict[str, str]]:
    """Return what predictions look like as rows of a table: the most frequent labels, or the numbers in one row."""
    if not values:
        return []
    if not all(isinstance(value, int) for value in values.values()):
        return [{name: f"{value:.6g}" for name, value in values.items()}]
    most = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    if most[SHOWN:]:
        most[SHOWN:] = [(f"{len(most) - SHOWN} others", sum(count for _, count in most[SHOWN:]))]
    return [{"class": label, "rows": f"{count:,}", "share": f"{count / scored:.1%}"} for label, count in most]


SUCCESS = "_SUCCESS"
"""Says that an output in parts is complete, as the readers of Spark and others look for it."""


@dataclass(frozen=True)
class Asked:
    """Options of a scoring.

    Parameters
    ----------
    ids : tuple of str
        Columns copied unchanged; without any, the output has row numbers from 0.
    strict : bool
        Whether columns that the model does not read are refused; else they are ignored.
    drift : DriftConfig
        When rows differ too much from the training rows, and whether no output is written then.
    escape_formulas : bool
        Whether an apostrophe leads texts of a CSV output that a spreadsheet would run as formulas.
    """

    ids: tuple[str, ...] = ()
    strict: bool = False
    drift: DriftConfig = field(default_factory=lambda: DriftConfig.model_validate({}))
    escape_formulas: bool = True


ROW = "row"
"""Name of the column of row numbers, where no ids are given."""


@step("score {source}", **TRIED_AGAIN)
def score_table(
    version: ModelVersion,
    source: str,
    output: str,
    asked: Asked,
    tell: Callable[[float, int], None],
    pool: DaskPool | None = None,
) -> Scores:
    """Score a table with a registered version into a file, or by the workers of a pool into a folder.

    See `score_with` and `score_parts_with`.
    """
    about = {"model": version.uri, "version": str(version.version), "digest": version.digest}
    model = load_version(version)
    if pool is None:
        return score_with(model, about, source, output, asked, tell)
    return score_parts_with(model, about, source, output, pool, asked, tell)


def score_with(
    model: Model,
    about: Mapping[str, str],
    source: str,
    output: str,
    asked: Asked,
    tell: Callable[[float, int], None] = lambda share, rows: None,
) -> Scores:
    """Score a table with a model and write the predictions.

    Parameters
    ----------
    model : Model
        What scores them.
    about : mapping of str to str
        What the metadata of a Parquet or Arrow output says about the model.
    source, output : str
        Parquet, CSV or Arrow; a path, or ``s3://bucket/key``. The source may be a folder or a pattern, for several
        files of the same columns, by name.
    asked : Asked
        What is copied, refused and compared.
    tell : callable
        Told the share that is done and the rows so far, after every batch.

    Returns
    -------
    scores : Scores

    Raises
    ------
    InputError
        Source or output cannot be used, the columns do not fit the model, a value is refused, or rows have drifted
        (`Drifted`). No output is written.
    TransferError
        Something could not be read or written for now. No output is written.

    Notes
    -----
    Rows go through the model in batches of `Model.batch_rows`, so predictions are, bit by bit, those of all rows at
    once. Memory: some batches and blocks of the formats, whatever the length.
    """
    started = time.monotonic()
    before, after = _inputs_of(source, {*model.features, *asked.ids}), output_location(output)
    if any(after.is_same(one) for one in before):
        raise InputError(f"{output}: the output would replace the input; give another name.")
    with _scored(model, about, Table(before), after, asked, source, tell) as tally:
        return _settled(model, tally, source, asked.drift, started)


@contextmanager
def _scored(
    model: Model,
    about: Mapping[str, str],
    table: Table,
    output: Location,
    asked: Asked,
    where: str,
    tell: Callable[[float, int], None] = lambda share, rows: None,
    first: int = 0,
) -> Iterator[Tally]:
    """Score a table, which is closed, into one file, and give what came of it before the file is put in place.

    Raises
    ------
    InputError
        Columns do not fit the model, or it refuses a row.
    """
    with table:
        ignored = _ignored_columns(model, table.schema.names, asked, where)
        ids = [table.schema.field(name) for name in asked.ids] or [pa.field(ROW, pa.int64())]
        outputs = [pa.field(name, _arrow_type(dtype)) for name, dtype in model.column_types.items()]
        schema = pa.schema([*ids, *outputs], metadata={f"learnkernels.{key}": value for key, value in about.items()})
        predicted = {name: of for name, of in model.column_types.items() if name.split()[0] == "prediction"}
        numbers = model.task == "regression"
        distributions = {name: distribution_of(np.empty(0, of), numbers) for name, of in predicted.items()}
        nothing = np.empty((0, len(model.feature_columns))), np.empty((0, len(model.score_names)))
        new = None if model.reference is None else NewRows.of(*nothing, model.reference, [0])
        tally = Tally(
            distributions,
            new,
            columns=schema.names,
            ignored=ignored,
            input_columns=list(table.schema.names),
        )
        with written(output) as path:
            with TableOutput(path, output, schema, asked.escape_formulas) as out:
                for piece in table.tables(list(dict.fromkeys([*model.features, *asked.ids])), model.batch_rows):
                    start = first + tally.rows
                    columns = _predictions(model, piece, tally, where, start)
                    kept = [piece.column(name) for name in asked.ids] or [np.arange(start, start + piece.num_rows)]
                    values = [pa.array(columns[of.name], type=of.type) for of in outputs]
                    out.write(pa.table([*kept, *values], schema=schema))
                    tell(table.share_read, tally.rows)
            tally.notes = table.notes
            yield tally


def _predictions(model: Model, piece: Any, tally: Tally, where: str, first: int) -> dict[str, np.ndarray]:
    """Return what a model says of some rows, of which `first` is the number of the first one; add them to the tally."""
    tally.report.first = first
    with input_errors(where):
        X = model.encoded(model.raw_rows(piece, first), tally.report)
        columns = model.columns_of(X)
    for name in tally.distributions:
        tally.distributions[name] += distribution_of(columns[name], model.task == "regression")
    if model.reference is not None and tally.new is not None:
        seed = [zlib.crc32(where.encode()), first]
        tally.new += NewRows.of(X, model.scores_in(columns), model.reference, seed)
    tally.rows += piece.num_rows
    return columns


def _settled(model: Model, tally: Tally, source: str, drift: DriftConfig, started: float) -> Scores:
    """Return what scoring gave, compared with the training rows; raise Drifted where no output may be written."""
    scores = Scores(
        rows=tally.rows,
        columns=tally.columns,
        distribution={name: shown_distribution(of) for name, of in tally.distributions.items()},
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


def score_parts_with(
    model: Model,
    about: Mapping[str, str],
    source: str,
    output: str,
    pool: DaskPool,
    asked: Asked,
    tell: Callable[[float, int], None] = lambda share, rows: None,
) -> Scores:
    """Score each file of a table with a model on the workers of a pool, into a file of a folder.

    Files of the output are named part-00000.parquet and so on, in the order of those of the input. Each is there whole
    or not at all, and when all are, `_SUCCESS` says with which model they were made, from what, and how many rows each
    has; until then the folder is not to be read.

    Parameters
    ----------
    model : Model
        What scores them.
    about : mapping of str to str
        What `_SUCCESS` and the metadata of each file say about the model.
    source : str
        As for `score_with`; usually a folder.
    output : str
        A folder, or ``s3://bucket/prefix/``, that all workers see.
    pool : DaskPool
        Whose workers do it.
    asked, tell
        As for `score_with`; where rows have drifted too far, `_SUCCESS` is not written.

    Raises
    ------
    InputError
        As `score_with`; or the folder holds something else, or a complete output.
    TransferError
        Something could not be read or written for now.
    """
    started, inputs = time.monotonic(), _inputs_of(source, {*model.features, *asked.ids})
    files = [location.text for location in inputs]
    folder = f"{output.rstrip('/')}/"
    parts = [f"{folder}part-{i:05d}.parquet" for i in range(len(files))]
    _require_own(locate(f"{folder}{SUCCESS}"), set(parts))
    counts = [0] * len(files) if asked.ids else pool.map(_count, files)
    firsts = np.cumsum([0, *counts])[:-1].tolist()
    told = [0.0]

    def advance(share: float) -> None:
        told[0] += share
        tell(told[0], int(told[0] * sum(counts)))

    jobs = list(zip(files, [location.told for location in inputs], parts, firsts, strict=True))
    found = pool.map(_score_part, jobs, advance, model=model, about=about, asked=asked)
    entries = [
        {"file": part.rpartition("/")[2], "rows": tally.rows, "input": file}
        for file, part, tally in zip(files, parts, found, strict=True)
    ]
    total = reduce(add, found)
    scores = _settled(model, total, source, asked.drift, started)
    with written(locate(f"{folder}{SUCCESS}")) as path:
        path.write_text(json.dumps({**about, "rows": total.rows, "files": entries}, indent=1), encoding="utf-8")
    return scores


def _count(file: str) -> int:
    with _input_of(file) as table:
        return table.num_rows


def _inputs_of(source: str, wanted: set[str]) -> tuple[Location, ...]:
    """Return the files that an input refers to, with those of some columns that all folders above them tell."""
    locations = [table_location(one.text) for one in locations_of(source)]
    told = [told_by_folders(location.text) for location in locations]
    return telling(locations, [{name: of for name, of in one.items() if name in wanted} for one in told])


def input_columns(source: str, wanted: set[str]) -> list[str]:
    """Return the columns of an input, with those wanted that its folders tell; InputError where it is none."""
    with Table(_inputs_of(source, wanted)[:1]) as table:
        return list(table.schema.names)


def _input_of(file: str, told: Told = ()) -> Table:
    return Table([replace(table_location(file), told=told)])


def _score_part(job: tuple[str, Told, str, int], model: Model, about: Mapping[str, str], asked: Asked) -> Tally:
    file, told, part, first = job
    with _scored(model, about, _input_of(file, told), locate(part), asked, file, first=first) as tally:
        return tally


def _require_own(success: Location, parts: set[str]) -> None:
    """Refuse a folder for parts that holds other things than parts of an output that is not complete.

    Raises
    ------
    InputError
        It does, or its bucket does not exist.
    """
    if success.remote:
        success.require_bucket()
    folder, where = success.path.rpartition("/")[0], success.text.rpartition("/")[0]
    with explained(success):
        there = success.filesystem.get_file_info(pyarrow.fs.FileSelector(folder, allow_not_found=True))
    names = {info.base_name for info in there if info.type != pyarrow.fs.FileType.Directory or not success.remote}
    if SUCCESS in names:
        raise InputError(f"{where}: holds a complete output, as {SUCCESS} says; give another folder, or remove it.")
    others = names - {part.rpartition("/")[2] for part in parts}
    if others:
        raise InputError(f"{where}: holds {listed(sorted(others))}, which is not of this output; give an empty folder.")


def table_location(text: str) -> Location:
    """Return the place of a table; its ending says its format.

    Raises
    ------
    InputError
        The address or its ending is not supported.
    """
    location = locate(text)
    if location.suffix not in FORMATS:
        raise InputError(f"{text}: the ending says the format, and must be one of {', '.join(FORMATS)}.")
    return location


def output_location(text: str) -> Location:
    """Return the place of a table that is written; InputError as `table_location`, and for compressed files."""
    location = table_location(text)
    if compression_of(text) is not None:
        raise InputError(f"{text}: is written without compression; leave out the ending {Path(text).suffix}.")
    return location


def _ignored_columns(model: Model, names: Sequence[str], asked: Asked, where: str) -> list[str]:
    """Return the columns of a table that a model does not read, but for those that it knows.

    Raises
    ------
    InputError
        Columns that it reads are missing, one is there twice, an id has the name of an output, or others are refused.
    """
    refuse_repeated(names, f"{where}: column {{}} appears more than once; rename one.")
    refuse_repeated(asked.ids, "id {} is given more than once; name it once.")
    known = {model.about.get("target"), *(model.about.get("drop") or ()), *model.features, *asked.ids}
    if model.table is not None:
        known |= set(model.table.left_out)
    others = [name for name in names if name not in known]
    if lacking := model.lacking(names, others):
        raise InputError(f"{where}: {lacking}")
    if absent := [name for name in asked.ids if name not in names]:
        raise InputError(
            f"{where}: id {listed(absent)} is no column; {did_you_mean(absent[0], names)}correct the name."
        )
    if others and asked.strict:
        raise InputError(
            f"{where}: has columns that the model does not read: {listed(others)}; remove them, name those to copy as "
            "ids, or do without 'strict'."
        )
    if clash := [name for name in asked.ids if name in model.column_types]:
        raise InputError(f"{where}: id {listed(clash)} has the name of a column of the output; rename it.")
    return others


def _arrow_type(dtype: np.dtype[Any]) -> Any:
    return pa.string() if dtype.kind in "UO" else pa.from_numpy_dtype(dtype)
