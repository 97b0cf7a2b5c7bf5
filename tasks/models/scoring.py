"""Scoring: what a model says about every row of a table of any length, in bounded memory."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.fs

from learnkernels.conf.errors import InputError, listed
from learnkernels.conf.files import told_by_folders
from learnkernels.kernels.persistence.model import Model, load_model
from learnkernels.kernels.tables.reading import Column, Written, column_of
from learnkernels.tasks.data.locations import TRIED_AGAIN, Location, Told, explained, locate, written
from learnkernels.tasks.data.readers import refuse_repeated
from learnkernels.tasks.data.tables import FORMATS, Table, TableOutput, locations_of, telling
from learnkernels.tasks.models.registry import ModelVersion, fetch
from learnkernels.tasks.models.scores import Distribution, Scores, Tally
from learnkernels.tasks.naming import step

if TYPE_CHECKING:
    from learnkernels.tasks.workers.cluster import DaskPool

Missing = Literal["refuse", "null"]

SUCCESS = "_SUCCESS"
"""Says that an output in parts is complete, as the readers of Spark and others look for it."""

ROW = "row"
"""Name of the column that numbers the rows, where no ids are named."""


@step("score {source}", **TRIED_AGAIN)
def score_table(
    version: ModelVersion,
    source: str,
    output: str,
    ids: tuple[str, ...],
    missing: Missing,
    tell: Callable[[float, int], None],
    pool: DaskPool | None = None,
) -> Scores:
    """Score a table with a registered version into a file, or by the workers of a pool into a folder.

    See `score_with` and `score_parts_with`.
    """
    model, about = load_model(fetch(version)), {"model": version.uri, "version": str(version.version)}
    about["digest"] = version.digest
    if pool is None:
        return score_with(model, about, source, output, ids=ids, missing=missing, tell=tell)
    return score_parts_with(model, about, source, output, pool, ids=ids, missing=missing, tell=tell)


def score_with(
    model: Model,
    about: Mapping[str, str],
    source: str,
    output: str,
    *,
    ids: Sequence[str] = (),
    missing: Missing = "refuse",
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
    ids : sequence of str
        Columns copied as they are; without any, the output numbers the rows from 0.
    missing : {"refuse", "null"}
        What a row does that lacks a feature, or holds one that is not finite: stop, or get no prediction.
    tell : callable
        Told the share that is done and the rows so far, after every batch.

    Returns
    -------
    scores : Scores

    Raises
    ------
    InputError
        Source or output cannot be used, the columns do not fit the model, or a value is refused. No output is written.
    TransferError
        Something could not be read or written for now. No output is written.

    Notes
    -----
    Rows go through the model in batches of `Model.batch_rows`, so predictions are, bit by bit, those of all rows at
    once. Memory: some batches and blocks of the formats, whatever the length.
    """
    started = time.monotonic()
    before, after = _inputs_of(source, {*model.features, *ids}), table_location(output)
    require_output(before, after)
    plan = _scored(model, about, Table(before), after, ids, missing, source, tell)
    return plan.tally.scores(plan.schema.names, time.monotonic() - started)


def _scored(
    model: Model,
    about: Mapping[str, str],
    table: Table,
    output: Location,
    ids: Sequence[str],
    missing: Missing,
    where: str,
    tell: Callable[[float, int], None] = lambda share, rows: None,
    first: int = 0,
) -> ScoringPlan:
    """Score a table, which is closed, into one file; return what came of it. Its first row is row `first`."""
    with table:
        plan = ScoringPlan.of(model, about, table, ids, where, first)
        with written(output) as path, TableOutput(path, output, plan.schema) as out:
            for piece in table.tables(list(dict.fromkeys([*model.features, *plan.ids])), model.batch_rows):
                out.write(plan.score(piece, missing))
                tell(table.share_read, plan.tally.rows)
    return plan


def score_parts_with(
    model: Model,
    about: Mapping[str, str],
    source: str,
    output: str,
    pool: DaskPool,
    *,
    ids: Sequence[str] = (),
    missing: Missing = "refuse",
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
    ids, missing, tell
        As for `score_with`.

    Raises
    ------
    InputError
        As `score_with`; or the folder holds something else, or a complete output.
    TransferError
        Something could not be read or written for now.
    """
    started, inputs = time.monotonic(), _inputs_of(source, {*model.features, *ids})
    files = [location.text for location in inputs]
    folder = f"{output.rstrip('/')}/"
    parts = [f"{folder}part-{i:05d}.parquet" for i in range(len(files))]
    _require_own(locate(f"{folder}{SUCCESS}"), set(parts))
    counts = [0] * len(files) if ids else pool.map(_count, files)
    firsts = np.cumsum([0, *counts])[:-1].tolist()
    told = [0.0]

    def advance(share: float) -> None:
        told[0] += share
        tell(told[0], int(told[0] * sum(counts)))

    jobs = list(zip(files, [location.told for location in inputs], parts, firsts, strict=True))
    given = {"model": model, "about": about, "ids": tuple(ids), "missing": missing}
    found = pool.map(_score_part, jobs, advance, **given)
    entries = [
        {"file": part.rpartition("/")[2], "rows": tally.rows, "input": file}
        for (file, _, part, _), (tally, _) in zip(jobs, found, strict=True)
    ]
    total = reduce(lambda one, other: one + other, (tally for tally, _ in found))
    with written(locate(f"{folder}{SUCCESS}")) as path:
        path.write_text(json.dumps({**about, "rows": total.rows, "files": entries}, indent=1), encoding="utf-8")
    return total.scores(found[0][1], time.monotonic() - started)


def _count(file: str) -> int:
    with _input_of(file) as table:
        return table.num_rows


def _inputs_of(source: str, wanted: set[str]) -> tuple[Location, ...]:
    """Return the files that an input stands for, with those of some columns that all folders above them tell."""
    locations = [table_location(one.text) for one in locations_of(source)]
    told = [told_by_folders(location.text) for location in locations]
    return telling(locations, [{name: of for name, of in one.items() if name in wanted} for one in told])


def _input_of(file: str, told: Told = ()) -> Table:
    return Table([replace(table_location(file), told=told)])


def _score_part(
    job: tuple[str, tuple[tuple[str, Any], ...], str, int],
    model: Model,
    about: Mapping[str, str],
    ids: tuple[str, ...],
    missing: Missing,
) -> tuple[Tally, list[str]]:
    file, told, part, first = job
    plan = _scored(model, about, _input_of(file, told), locate(part), ids, missing, file, first=first)
    return plan.tally, plan.schema.names


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
        raise InputError(
            f"{where}: holds {listed(sorted(others))}, which this output would stand beside; give a folder of its own."
        )


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


def require_output(sources: Sequence[Location], output: Location) -> None:
    """Refuse an output that cannot be written, before any work.

    Raises
    ------
    InputError
        It is a source, its bucket does not exist, or it is a folder.
    """
    if any(output.is_same(source) for source in sources):
        raise InputError(f"{output.text}: the output would replace the input; give another name.")
    if output.remote:
        output.require_bucket()
    elif Path(output.path).is_dir():
        raise InputError(f"{output.text}: is a folder; give the name of a file.")


@dataclass
class ScoringPlan:
    """How the rows of one table are scored, and what came of it so far.

    Attributes
    ----------
    model : Model
    where : str
        The table, for sentences.
    ids : tuple of str
    schema : pyarrow.Schema
        Of the output.
    tally : Tally
        Of the rows so far.
    first : int
        Number of the first row.
    """

    model: Model
    where: str
    ids: tuple[str, ...]
    schema: Any
    tally: Tally
    first: int = 0

    @classmethod
    def of(
        cls, model: Model, about: Mapping[str, str], table: Table, ids: Sequence[str], where: str, first: int = 0
    ) -> ScoringPlan:
        """Check the columns of a table against a model.

        Raises
        ------
        InputError
            Columns are missing, not known to the model, twice there or not numeric, or an id has the name of an output.
        """
        _require_columns(model, table.schema, ids, where)
        fields = [table.schema.field(name) for name in ids]
        outputs = [pa.field(name, _arrow_type(dtype)) for name, dtype in model.column_types.items()]
        schema = pa.schema([*(fields or [pa.field(ROW, pa.int64())]), *outputs])
        predictions = [name for name in model.column_types if name.split()[0] == "prediction"]
        return cls(
            model=model,
            where=where,
            ids=tuple(ids),
            schema=schema.with_metadata({f"learnkernels.{key}": value for key, value in about.items()}),
            tally=Tally({name: Distribution() for name in predictions}),
            first=first,
        )

    @property
    def _next(self) -> int:
        """Number of the row that comes next."""
        return self.first + self.tally.rows

    def score(self, piece: Any, missing: Missing) -> Any:
        """Return the output of some rows, which follow those before.

        Raises
        ------
        InputError
            A value is missing and that is refused, or the model refuses a row.
        """
        n = piece.num_rows
        if self.model.table is not None:
            return self._output(piece, self._columns(piece.select(self.model.features), np.zeros(n, dtype=bool)))
        X = np.empty((n, len(self.model.features)))
        for c, name in enumerate(self.model.features):
            X[:, c] = self._numbers(column_of(name, piece.column(name)))
        lacks = ~np.isfinite(X)
        bad = np.asarray(lacks.any(axis=1))
        if bad.any():
            if missing == "refuse":
                first = int(bad.argmax())
                column = self.model.features[int(lacks[first].argmax())]
                raise InputError(
                    f"{self.where}: column {column!r} is missing or not finite in row {self._next + first:,} (the "
                    "first is row 0); impute it, or say missing 'null' to leave such rows without a prediction."
                )
            if not bad.all():
                X[bad] = X[bad.argmin()]  # any complete row: the others keep their places, and so their bits
        columns = self._columns(X, bad)
        self.tally.missing += int(bad.sum())
        return self._output(piece, columns)

    def _numbers(self, column: Column) -> np.ndarray:
        """Return the numbers of a column; raise InputError where a text is none."""
        numbers, _ = column.read_numbers(Written())
        if (wrong := np.isnan(numbers) & ~column.gaps).any():
            row = int(wrong.argmax())
            raise InputError(
                f"{self.where}: column {column.name!r} must hold numbers, got {str(column.values[row])!r:.40} in row "
                f"{self._next + row:,} (the first is row 0); correct it, or leave it empty."
            )
        return numbers

    def _output(self, piece: Any, columns: list[Any]) -> Any:
        """Return the output of a piece, of ids and columns, and count its rows."""
        n = piece.num_rows
        ids = [piece.column(name) for name in self.ids] or [pa.array(np.arange(self._next, self._next + n))]
        self.tally.rows += n
        return pa.table([*ids, *columns], schema=self.schema)

    def _columns(self, X: Any, bad: np.ndarray) -> list[Any]:
        """Return the columns of the model, with nulls in bad rows, which are not asked about if all are."""
        types = {name: _arrow_type(dtype) for name, dtype in self.model.column_types.items()}
        if bad.all():
            return [pa.nulls(len(X), kind) for kind in types.values()]
        try:
            self.tally.met.first = self._next
            columns = self.model.columns(X, self.tally.met)
        except ValueError as error:
            raise InputError(f"{self.where}: rows {self._next:,} to {self._next + len(X) - 1:,}: {error}") from None
        for name, distribution in self.tally.distributions.items():
            some = Distribution.of(columns[name][~bad], numbers=self.model.task == "regression")
            self.tally.distributions[name] = distribution + some
        return [pa.array(columns[name], type=kind, mask=bad) for name, kind in types.items()]


def _require_columns(model: Model, schema: Any, ids: Sequence[str], where: str) -> None:
    names, wanted = schema.names, {*model.features, *ids}
    refuse_repeated(names, f"{where}: column {{}} appears more than once; rename one.")
    refuse_repeated(ids, "id {} is given more than once; name it once.")
    ignored = {model.about.get("target"), *(model.about.get("drop") or ())}
    if model.table is not None:
        ignored |= set(model.table.left_out)
    absent = [name for name in dict.fromkeys([*model.features, *ids]) if name not in names]
    extra = [name for name in names if name not in wanted and name not in ignored]
    if absent or extra:
        faults = [f"{what} {listed(some)}" for what, some in (("missing", absent), ("unknown", extra)) if some]
        raise InputError(
            f"{where}: its columns are not those of the model: {'; '.join(faults)}; rename or remove columns, or name "
            "those to copy as ids."
        )
    clash = [name for name in ids if name in model.column_types]
    if clash:
        raise InputError(f"{where}: id {listed(clash)} has the name of a column of the output; rename it.")


def _arrow_type(dtype: np.dtype[Any]) -> Any:
    return pa.string() if dtype.kind in "UO" else pa.from_numpy_dtype(dtype)
