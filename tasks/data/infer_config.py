"""From a table and a column to predict to the configuration that compares learners on it."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import yaml
from joblib import cpu_count
from scipy.stats import spearmanr

from learnkernels.conf.errors import InputError, input_errors, listed, one_line, short
from learnkernels.conf.loading import validated
from learnkernels.conf.schema import DatasetConfig, ProtocolConfig, name_of_files
from learnkernels.kernels.column_encoding.columns import CategoryColumn, ColumnEncoding, DateColumn, NumberColumn
from learnkernels.kernels.column_encoding.encoding import DROPPED_BY_USER, FEW_ROWS, TableEncoding
from learnkernels.kernels.estimators import KernelLearningClassifier, KernelLearningRegressor, default_family
from learnkernels.kernels.estimators.supervised import nested_samples

from .dataset import Dataset, draw_folds, fold_seed, most_folds
from .headers import joint_title, require_names
from .ingest import load_source

MOST_ROWS = 10_000
"""Rows up to which all of them are folds; of more, some are drawn again in each of a few repeats."""

TRAIN = 5000
"""Rows that train in each repeat of a larger table, so that the search over one Gaussian kernel takes minutes."""

TEST_PER_TRAIN = {"validation": 0.4, "test": 0.6}
"""Rows of the other parts of a repeat, for each that trains."""

REPEATS = 3
"""Repeats where rows are drawn."""

PILOT_ROWS = 500
"""Rows of the fit whose seconds say how many rows a comparison of some minutes can take."""

FITS = 4.0
"""Seconds of a trial of all learners and baselines on one core, in units of those of a fit of `PILOT_ROWS` rows."""

POWER = 1.5
"""Power of the rows by which they grow, at most, up to ten thousand rows."""

STARTUP = 10.0
"""Seconds of a comparison that no trial takes."""

FOLDS = 5
"""Folds of a table of fewer rows."""

LEAST = 3
"""Rows of a class that is not left out: one to train, one to choose, one to test."""

LEAST_TRAIN = 50
"""Least rows that train in a repeat."""

NAMED = 12
"""Most columns of a kind that are named."""

LOOKED_AT = 10_000
"""Rows in which it is looked for what is odd."""

ALONE = 0.9995
"""Rank correlation with a target, or share of its variance, from which on a column alone counts as leaking it."""

MANY = 10
"""Different numbers that a column has at least to test whether it is a function of the target."""


SAMPLE_COLUMNS = {
    "groups": "grouped split: the rows of one {column} stay together",
    "time": (
        "split by time: earlier rows of {column} are for training, later ones for testing; {column} itself is no "
        "feature: copy it to another column to learn trends and seasons from it"
    ),
}
"""What is said of columns next to features and target."""

SAMPLE_KEYS = {"groups": "groups", "time": "times"}
"""What a data set calls these columns."""


@dataclass(frozen=True)
class Start:
    """Inferred configuration of a table.

    Attributes
    ----------
    lines : tuple of str
        Remarks, for users.
    text : str
        The configuration of the comparison, as YAML with comments.
    """

    lines: tuple[str, ...]
    text: str


def start(
    path: str | Sequence[str],
    target: str | Sequence[str] | None,
    sample_columns: Mapping[str, str | None] | None = None,
    metric: str | None = None,
    without: Sequence[str] = (),
    minutes: float | None = None,
    by_command: bool = True,
) -> Start:
    """Infer the column types of a table, and return the configuration that compares learners on it.

    Parameters
    ----------
    path : str or sequence of str
        Parquet, CSV, Arrow or Feather; a file, or several of the same columns, a folder or a pattern for such.
    target : str, sequence of str or None
        The column to predict, or several, of which each is compared by itself.
    sample_columns : mapping of str to str, optional
        The columns of `groups` and `time`, where there are some.
    metric : str, optional
        Of the protocol; the task's own by default.
    without : sequence of str, optional
        Baselines to leave out.
    minutes : float, optional
        Minutes that the comparison may take, about: it draws as many rows as that allows on this machine.
    by_command : bool
        Whether messages name the options of a command, or the arguments of a Python function.

    Raises
    ------
    InputError
        The file cannot be read, the target is not given or no column of it, nothing is left to learn from, or there is
        no such baseline.

    Notes
    -----
    The table is read as a whole.
    """
    paths = [path] if isinstance(path, str) else list(path)
    targets = [target] if isinstance(target, str) else list(target or ())
    require_names(paths, targets, sample_columns or {}, without, by_command)
    keys = {key: column for key, column in (sample_columns or {}).items() if column is not None}
    request = _TableRequest(paths, targets, keys, metric, without)
    messages: list[str] = []
    datasets = [request.read(name, {}, messages) for name in targets]
    drawn = _fewest_drawn_rows(datasets, minutes, "time" in keys)
    selection: dict[str, list[str]] = {}
    rare = _rare_classes(datasets[0], drawn) if len(datasets) == 1 else {}
    if rare:
        selection = {targets[0]: [name for name in datasets[0].target.classes if name not in rare]}
        messages = []
        datasets = [request.read(targets[0], selection, messages)]
    if drawn is None:
        folds, reason = _folds(datasets, keys, request.title)
        protocol = f"  folds: {folds}\n  refit: true  # what one fold has chosen is fitted on it too"
    else:
        protocol, reason = _split(drawn, "time" in keys)
        _require_split(datasets, protocol, keys, request.title)
    lines = [*_remarks(request, datasets, messages, rare), reason]
    if metric is not None:
        protocol += f"\n  metric: {_yaml(metric)}"
    return Start(tuple(filter(None, lines)), _text(request, datasets, selection, protocol))


@dataclass(frozen=True)
class _TableRequest:
    """The table and the columns that a user names.

    Attributes
    ----------
    paths : list of str
    targets : list of str
    sample_columns : dict of str to str
        Columns of `groups` and `time`.
    metric : str or None
    without : sequence of str
        Baselines to leave out.
    """

    paths: list[str]
    targets: list[str]
    sample_columns: dict[str, str]
    metric: str | None
    without: Sequence[str]

    @property
    def title(self) -> str:
        """Name of the files in messages."""
        return joint_title(self.paths)

    @property
    def label(self) -> str:
        """Name of the data set."""
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", name_of_files(self.paths)).strip("-.") or "table"

    def read(self, target: str, selection: Mapping[str, Sequence[str]], messages: list[str]) -> Dataset:
        """Return the data set of a target, of rows with some values in some columns; messages are appended."""
        config = {
            "source": "file",
            "path": self.paths[0] if len(self.paths) == 1 else self.paths,
            "label": self.label,
            "target": target,
            "drop": [other for other in self.targets if other != target],
            "scale": "standard",
            "columns": {},
            "where": selection,
            **self.sample_columns,
        }
        return load_source(validated(DatasetConfig.of, config, self.title), ".", 0, messages.append)


def _remarks(
    request: _TableRequest, datasets: Sequence[Dataset], messages: Sequence[str], rare: Mapping[str, int]
) -> Iterator[str]:
    """Give the remarks about columns, targets and rows."""
    table = datasets[0].table
    assert table is not None
    n_rows, n_features = datasets[0].X.shape
    yield f"{n_rows:,} rows, {len(table.columns)} columns that become {n_features} features"
    yield from _kinds(table, np.asarray(datasets[0].X[:LOOKED_AT]))
    for dataset, target in zip(datasets, request.targets, strict=True):
        yield _task(dataset, target, request.metric)
    for message in messages:
        if " is left out, as " not in message:
            yield message.removeprefix(f"data set {request.label}: ")
    if rare:
        of_group = f" of {request.sample_columns['groups']}" if "groups" in request.sample_columns else ""
        rows = listed([f"{name!r} ({count}{of_group})" for name, count in rare.items()], show=str)
        yield f"dropped: rows of {request.targets[0]} {rows}, too few for training, validation and test"
    for dataset, target in zip(datasets, request.targets, strict=True):
        yield from _oddities(dataset, target)
    for key, column in request.sample_columns.items():
        yield SAMPLE_COLUMNS[key].format(column=column)


def _fewest_drawn_rows(datasets: Sequence[Dataset], minutes: float | None, in_time: bool) -> int | None:
    """Return the least number of rows that data sets draw for training; None if folds take all rows of each."""
    counts = [_drawn_rows(dataset, minutes, in_time) for dataset in datasets]
    return min((count for count in counts if count is not None), default=None)


def _drawn_rows(dataset: Dataset, minutes: float | None, in_time: bool) -> int | None:
    """Return how many rows train in each repeat; None where folds take all rows.

    With `minutes` by the seconds that a fit of `PILOT_ROWS` rows takes here. In time, repeats test different rows.
    """
    n = len(dataset.target)
    tests = REPEATS if in_time else 1
    most = int(n / (1.0 + TEST_PER_TRAIN["validation"] + tests * TEST_PER_TRAIN["test"]))
    if minutes is None:
        return min(TRAIN, most) if n > MOST_ROWS else None
    rows = np.sort(nested_samples(dataset.target, seed=0)[:PILOT_ROWS])
    of = KernelLearningRegressor if dataset.target.task == "regression" else KernelLearningClassifier
    for _ in range(2):  # the first compiles
        begun = time.perf_counter()
        of(random_state=0).fit(dataset.X[rows], dataset.target.values[rows])
    took = time.perf_counter() - begun

    def affordable(trials: int) -> int:
        seconds = max(0.0, 60.0 * minutes - STARTUP) * cpu_count() / (trials * FITS)
        return int(len(rows) * (seconds / took) ** (1 / POWER))

    if affordable(FOLDS) >= n * (FOLDS - 1) // FOLDS:
        return None
    return max(LEAST_TRAIN, min(affordable(REPEATS), most))


def _rare_classes(dataset: Dataset, drawn: int | None) -> dict[str, int]:
    """Return the classes, and their rows, or groups, of too few for each to be in every part of the protocol."""
    of = dataset.target
    if of.task == "regression":
        return {}
    counts = np.bincount(of.values, minlength=len(of.classes))
    if dataset.groups is not None:  # which each part takes whole
        pairs = np.unique(np.column_stack([of.values, dataset.groups]), axis=0)
        counts = np.minimum(counts, np.bincount(pairs[:, 0], minlength=len(of.classes)))
    least = LEAST if drawn is None else max(LEAST, len(of) // (2 * drawn) + 1)
    rare = {name: int(count) for name, count in zip(of.classes, counts, strict=True) if count < least}
    return rare if len(rare) < len(of.classes) - 1 else {}


def _kinds(table: TableEncoding, X: np.ndarray) -> list[str]:
    """Return one line a kind of columns, with a value of each, one about gaps, and one per column that is left out."""
    gaps = [place for place, name in enumerate(table.features) if name.endswith((" missing", "=missing"))]
    row = X[(X[:, gaps] != 0).sum(axis=1).argmin()][None]
    values = {name: one[0] for name, one in table.decode(row).items()}
    kinds: dict[str, list[str]] = {}
    for column in table.columns:
        value = values[column.name]
        shown = f"{value:.6g}" if isinstance(value, float) else short(str(value), str)
        kinds.setdefault(_taken_for(column)[0], []).append(
            column.name if column.is_coded else f"{column.name} ({shown})"
        )
    lines = [f"{kind}: {_some(names)}" for kind, names in kinds.items()]
    if lacking := [column.name for column in table.columns if column.has_gaps]:
        lines.append(f"missing values, imputed, with an indicator feature: {_some(lacking)}")
    drop = {name or "the column without a name": why for name, why in table.left_out.items() if why != DROPPED_BY_USER}
    return [*lines, *(f"dropped: {name}, as {why}" for name, why in drop.items())]


def _taken_for(column: ColumnEncoding) -> tuple[str, str | tuple[str, ...]]:
    """Return what such columns are called where several are named, and what is said of one in `columns`."""
    if isinstance(column, NumberColumn):
        return ("ordered levels", column.levels) if column.levels else ("numbers", "number")
    if isinstance(column, CategoryColumn):
        many = "categories of many levels" if column.many else "categories"
        return many, "categorical" if column.levels else "code"
    return "times of day" if isinstance(column, DateColumn) and column.first == "time" else "dates", "date"


def _oddities(dataset: Dataset, target: str) -> list[str]:
    """Return what looks odd: columns that leak the target, and rows that repeat others."""
    assert dataset.table is not None
    X, y = np.asarray(dataset.X[:LOOKED_AT]), dataset.target.values[:LOOKED_AT]
    lines = []
    if leaks := leaking_columns(dataset):
        tell = "determines" if len(leaks) == 1 else "each determine"
        lines = [f"check: {_some(leaks)} alone {tell} {target}; drop columns that are unknown at prediction time"]
    if copies := len(y) - len(np.unique(np.column_stack([X, y]), axis=0)):
        rows = "1 row repeats another" if copies == 1 else f"{copies:,} rows repeat others"
        lines.append(f"check: {rows}, with the same {target}; 'distinct: true' keeps one of each")
    return lines


def leaking_columns(dataset: Dataset) -> list[str]:
    """Return the columns of which each alone determines the target of nearly all rows; none for a few rows."""
    y = dataset.target.values[:LOOKED_AT]
    if dataset.table is None or len(y) < FEW_ROWS:
        return []
    X, owners = np.asarray(dataset.X[:LOOKED_AT]), np.array(dataset.table.features.owners)
    leaks = []
    for column in dataset.table.columns:
        features = X[:, owners == column.name]
        ordered = isinstance(column, NumberColumn) or column.kind == "date"
        values = features[:, 0]
        if not ordered:
            values = np.unique(features, axis=0, return_inverse=True)[1].ravel()
        if _tells(values, y, ordered, dataset):
            leaks.append(column.name)
    return leaks


def _tells(values: np.ndarray, y: np.ndarray, ordered: bool, dataset: Dataset) -> bool:
    """Return whether the values of a column, in their order or as levels, determine the target of nearly all rows."""
    different = len(np.unique(values))
    if dataset.target.task == "regression" and ordered:
        return different > MANY and bool(abs(spearmanr(values, y).statistic) > ALONE)
    if different > (len(y) / 5 if not ordered else len(y)) or different < 2:
        return False
    if dataset.target.task == "regression":
        counts = np.bincount(values)
        within = y - (np.bincount(values, y) / counts)[values]
        return bool((within**2).sum() < (1 - ALONE) * ((y - y.mean()) ** 2).sum())
    order = np.lexsort((y, values))
    runs = 1 + int((np.diff(y[order]) != 0).sum())  # of a class, in the order of the values
    levels = np.unique(np.column_stack([values, y]), axis=0)
    return runs == len(dataset.target.classes) if ordered else len(levels) == different


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _task(dataset: Dataset, target: str, metric: str | None) -> str:
    of = dataset.target
    by = metric or ("root mean squared error" if of.task == "regression" else "misclassification rate")
    if of.task == "regression":
        values = of.values
        return f"regression of {target}, from {values.min():g} to {values.max():g}, metric: {by}"
    shares = np.bincount(of.values) / len(of)
    named = [f"{label} ({100 * share:.0f} %)" for label, share in zip(of.classes, shares, strict=True)]
    return f"classification of {target}, {listed(named, show=str)}, metric: {by}"


def _folds(datasets: Sequence[Dataset], sample_columns: Mapping[str, str], shown_as: str) -> tuple[int, str]:
    """Return how many folds all data sets allow, at most `FOLDS`, and why they are fewer.

    Raises
    ------
    InputError
        Some allows not even three.
    """
    _require_different(datasets, sample_columns, shown_as)
    n_folds, why = FOLDS, ""
    for dataset in datasets:
        allowed, reason = most_folds(dataset, n_folds, fold_seed(0, 0))
        if not allowed:
            raise InputError(f"{shown_as}: {reason}")
        if allowed < n_folds:
            n_folds, why = allowed, reason
    for column, different in _different_values(datasets, sample_columns):
        if different == n_folds < FOLDS:
            why = f"{column} has {different} different values"
    return n_folds, f"{n_folds} folds, as {why.rstrip('.')}" if why else ""


def _different_values(datasets: Sequence[Dataset], sample_columns: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return the columns of groups or time, and how many different values each has, in the data set of fewest."""
    return [
        (column, min(len(np.unique(dataset.sample_columns[SAMPLE_KEYS[key]])) for dataset in datasets))
        for key, column in sample_columns.items()
    ]


def _require_different(datasets: Sequence[Dataset], sample_columns: Mapping[str, str], shown_as: str) -> None:
    """Raise InputError if the rows that train, validate and test cannot have values of their own."""
    for column, different in _different_values(datasets, sample_columns):
        if different < LEAST:
            values = "value" if different == 1 else "different values"
            raise InputError(
                f"{shown_as}: {column} has {different} {values}, and rows of one value stay together: at least {LEAST} "
                "are needed, to train, to validate and to test; name another column, or none."
            )


def _require_split(
    datasets: Sequence[Dataset], protocol: str, sample_columns: Mapping[str, str], shown_as: str
) -> None:
    """Raise InputError if a data set does not allow the split of a protocol, as YAML."""
    _require_different(datasets, sample_columns, shown_as)
    split = ProtocolConfig.model_validate(yaml.safe_load(protocol))
    with input_errors(shown_as):
        for dataset in datasets:
            draw_folds(dataset, split, split.repeats - 1)


def _split(drawn: int, in_time: bool) -> tuple[str, str]:
    """Return the protocol that draws rows, as YAML, and what is to be said of it."""
    rows = {"train": drawn, **{part: int(share * drawn) for part, share in TEST_PER_TRAIN.items()}}
    parts = ", ".join(f"{part}: {n}" for part, n in rows.items())
    why = f"in each of {REPEATS} repeats {drawn:,} rows train; 'init' writes the file in which to take more"
    protocol = f"  split: {{{parts}}}\n  repeats: {REPEATS}"
    if in_time:  # else the newest rows before the test would only validate
        protocol += "  # each ends before the test rows of the one before\n  refit: true"
    return protocol, why


def _text(
    request: _TableRequest, datasets: Sequence[Dataset], selection: Mapping[str, Sequence[str]], protocol: str
) -> str:
    """Return the configuration as YAML with comments."""
    (dataset, *_) = datasets
    table = dataset.table
    assert table is not None
    tasks = {of.target.task for of in datasets}
    task = f"    task: {dataset.target.task}\n" if len(tasks) == 1 else ""
    lines = [
        f"      {_yaml(column.name)}: {_yaml(said)}"
        for column in table.columns
        if (said := _taken_for(column)[1]) != "number"
    ]
    lines += [f"      {_yaml(name)}: drop  # {why}" for name, why in table.left_out.items()]
    columns = "\n".join(["    columns:  # all others are numbers", *lines]) if lines else "    columns: {}"
    exponents = sorted(round(float(np.log2(gamma))) for gamma in default_family(dataset.X).gammas)
    divided = "".join(f"    {key}: {_yaml(column)}\n" for key, column in request.sample_columns.items())
    for name, values in selection.items():
        divided += f"    where: {{{_yaml(name)}: {_yaml(values)}}}  # the rows to take\n"
    left_out = f", without: {_yaml(request.without)}" if request.without else ""
    coded = [column.name for column in table.columns if column.is_coded]
    return f"""\
# Which way of learning the kernel predicts {one_line(", ".join(request.targets))} best, and is it worth it?
name: {_yaml(request.label)}

datasets:
  - source: file
    path: {_yaml(request.paths if len(request.paths) > 1 else request.paths[0])}
    label: {_yaml(request.label)}
    target: {_yaml(request.targets if len(request.targets) > 1 else request.targets[0])}
{task}{divided}    missing: impute  # or drop rows with gaps, or refuse them
    scale: standard  # or quantile, against outliers
    # scale_on: training  # units and fillings by the training rows of each trial alone
{columns}

kernels:  # that alignf weighs; rfm finds its own
  - family: gaussian
    gammas: {{base: 2, from: {exponents[0]}, to: {exponents[-1]}}}  # around the median distance
{"".join(f"  - {{family: categorical, gammas: 64, columns: {_yaml(name)}}}{chr(10)}" for name in coded)}
learners: [rfm, alignf]
baseline: {{boosting: true{left_out}}}  # a constant, a linear model, one tuned Gaussian kernel, boosted trees

protocol:
{protocol}
"""


def _yaml(value: str | Sequence[str]) -> str:
    """Return a text, or a list of texts, as YAML takes it for these."""
    texts = [value] if isinstance(value, str) else list(value)
    style = None if all(map(str.isprintable, texts)) else '"'  # others would go over several lines
    shown = str(yaml.safe_dump(texts, default_flow_style=True, default_style=style, allow_unicode=True, width=math.inf))
    return shown.strip()[1:-1] if isinstance(value, str) else shown.strip()
