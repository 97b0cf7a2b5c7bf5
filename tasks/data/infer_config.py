"""Infer the configuration of a comparison from a table."""

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
from learnkernels.conf.schema.base import several
from learnkernels.kernels.column_encoding.columns import (
    CategoryColumn,
    ColumnEncoding,
    DateColumn,
    NumberColumn,
)
from learnkernels.kernels.column_encoding.encoding import (
    DROPPED_BY_USER,
    FEW_ROWS,
    FREE_TEXT,
    TableEncoding,
    setting_of_text,
)
from learnkernels.kernels.column_encoding.text import TextColumn
from learnkernels.kernels.estimators import (
    KernelLearningClassifier,
    KernelLearningRegressor,
    default_family,
)
from learnkernels.kernels.estimators.supervised import nested_samples
from learnkernels.kernels.targets import Target

from .dataset import Dataset, draw_folds, fold_seed, most_folds
from .headers import joint_title, require_names
from .ingest import load_source

MOST_ROWS = 10_000
"""Largest number of rows for cross-validation; larger tables are sampled."""

TRAINING_ROWS = 5000
"""Training rows per repeat of a larger table, for tuning in minutes."""

VALIDATION_SHARE = 0.4
TEST_SHARE = 0.6
"""Validation and test rows of a repeat, per training row."""

REPEATS = 3

FOLDS = 5

LEAST_TRAIN = 50

PILOT_ROWS = 500
"""Rows of the fit that is timed to choose training rows."""

MOST_NAMED = 12

CHECKED_ROWS = 10_000
"""Rows that are searched for leaking columns and duplicates."""

LEAKING_SHARE = 0.9995
"""Rank correlation or share of variance above which a column leaks the target."""


@dataclass(frozen=True)
class InferredConfig:
    """YAML configuration inferred from a table, its label, and remarks for the user."""

    lines: tuple[str, ...]
    text: str
    label: str


def infer_config(
    path: str | Sequence[str],
    target: str | Sequence[str] | None,
    sample_columns: Mapping[str, str | None] | None = None,
    metric: str | None = None,
    without: Sequence[str] = (),
    minutes: float | None = None,
    by_command: bool = True,
) -> InferredConfig:
    """Infer a configuration that compares learners on a table.

    Several targets are compared separately; `minutes` limits the rows.
    """
    paths = several(path)
    targets = several(target or ())
    require_names(paths, targets, sample_columns or {}, without, by_command)
    named_columns = {
        key: column
        for key, column in (sample_columns or {}).items()
        if column is not None
    }
    request = _TableRequest(list(paths), list(targets), named_columns, metric, without)
    messages: list[str] = []
    datasets = [request.read(name, {}, messages) for name in targets]
    n_training = _training_rows_for_all(datasets, minutes, request.in_time)
    selection: dict[str, list[str]] = {}
    rare_classes: dict[str, int] = {}
    if len(datasets) == 1:
        rare_classes = _rare_classes(datasets[0], n_training)
    if rare_classes:
        frequent_classes = [
            name for name in datasets[0].target.classes if name not in rare_classes
        ]
        selection = {targets[0]: frequent_classes}
        messages.clear()
        datasets = [request.read(targets[0], selection, messages)]
    if n_training is None:
        protocol, reason = _cross_validation(datasets, request)
    else:
        protocol, reason = _repeated_splits(n_training, datasets, request)
    if metric is not None:
        protocol.append(f"metric: {_yaml_value(metric)}")
    lines = [*_remarks(request, datasets, messages, rare_classes), reason]
    return InferredConfig(
        tuple(filter(None, lines)),
        _config_text(request, datasets, selection, protocol),
        request.label,
    )


@dataclass(frozen=True)
class _TableRequest:
    paths: list[str]
    targets: list[str]
    sample_columns: dict[str, str]
    metric: str | None
    without: Sequence[str]

    @property
    def title(self) -> str:
        return joint_title(self.paths)

    @property
    def label(self) -> str:
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", name_of_files(self.paths))
        return name.strip("-._")[:64].rstrip("-._") or "table"

    @property
    def in_time(self) -> bool:
        return "time" in self.sample_columns

    def read(
        self, target: str, selection: Mapping[str, Sequence[str]], messages: list[str]
    ) -> Dataset:
        """Return the data set of a target; append remarks to `messages`."""
        config = {
            "source": "file",
            "path": _only_item_or_all(self.paths),
            "label": self.label,
            "target": target,
            "drop": [other for other in self.targets if other != target],
            "scale": "standard",
            "columns": {},
            "where": selection,
            **self.sample_columns,
        }
        return load_source(
            validated(DatasetConfig.of, config, self.title), ".", 0, messages.append
        )


def _only_item_or_all(values: list[str]) -> str | list[str]:
    if len(values) == 1:
        return values[0]
    return values


# Protocol


def _training_rows_for_all(
    datasets: Sequence[Dataset], minutes: float | None, in_time: bool
) -> int | None:
    counts = [
        _training_rows_per_repeat(dataset, minutes, in_time) for dataset in datasets
    ]
    return min((count for count in counts if count is not None), default=None)


def _training_rows_per_repeat(
    dataset: Dataset, minutes: float | None, in_time: bool
) -> int | None:
    n_rows = len(dataset.target)
    test_sets = 1
    if in_time:  # each repeat tests other rows
        test_sets = REPEATS
    largest = int(n_rows / (1.0 + VALIDATION_SHARE + test_sets * TEST_SHARE))
    if minutes is None:
        return min(TRAINING_ROWS, largest) if n_rows > MOST_ROWS else None
    pilot_rows = np.sort(nested_samples(dataset.target, seed=0)[:PILOT_ROWS])
    seconds = _seconds_to_fit(dataset, pilot_rows)
    if (
        _affordable_rows(minutes, FOLDS, len(pilot_rows), seconds)
        >= n_rows * (FOLDS - 1) // FOLDS
    ):
        return None
    affordable = _affordable_rows(minutes, REPEATS, len(pilot_rows), seconds)
    return max(LEAST_TRAIN, min(affordable, largest))


def _seconds_to_fit(dataset: Dataset, rows: np.ndarray) -> float:
    estimator_class = (
        KernelLearningRegressor
        if dataset.target.task == "regression"
        else KernelLearningClassifier
    )
    for _ in range(2):  # the first fit compiles
        start = time.perf_counter()
        estimator_class(random_state=0).fit(
            dataset.X[rows], dataset.target.values[rows]
        )
    return time.perf_counter() - start


def _affordable_rows(
    minutes: float, n_trials: int, n_pilot_rows: int, pilot_seconds: float
) -> int:
    startup_seconds = 10.0
    # All learners and baselines on one core, relative to one fit
    fits_per_trial = 5.0
    growth = 1.5
    seconds = (
        max(0.0, 60.0 * minutes - startup_seconds)
        * cpu_count()
        / (n_trials * fits_per_trial)
    )
    return int(n_pilot_rows * (seconds / pilot_seconds) ** (1 / growth))


def _rare_classes(dataset: Dataset, n_training: int | None) -> dict[str, int]:
    """Return classes too rare for the protocol, with their counts."""
    target = dataset.target
    if target.task == "regression":
        return {}
    counts = np.bincount(target.values, minlength=len(target.classes))
    if dataset.groups is not None:  # groups are not divided
        pairs = np.unique(np.column_stack([target.values, dataset.groups]), axis=0)
        counts = np.minimum(
            counts, np.bincount(pairs[:, 0], minlength=len(target.classes))
        )
    fewest_rows = 3  # one each for training, validation and test
    if n_training is not None:
        fewest_rows = max(fewest_rows, len(target) // (2 * n_training) + 1)
    rare = {
        name: int(count)
        for name, count in zip(target.classes, counts, strict=True)
        if count < fewest_rows
    }
    if len(rare) >= len(target.classes) - 1:
        return {}
    return rare


def _cross_validation(
    datasets: Sequence[Dataset], request: _TableRequest
) -> tuple[list[str], str]:
    """Return YAML lines of cross-validation, and why folds are few."""
    _require_three_values(datasets, request)
    n_folds = FOLDS
    reason = ""
    for dataset in datasets:
        allowed, limit = most_folds(dataset, n_folds, fold_seed(0, 0))
        if not allowed:
            raise InputError(f"{request.title}: {limit}")
        if allowed < n_folds:
            n_folds = allowed
            reason = limit.rstrip(".")
    for column, n_values in _n_sample_values(datasets, request.sample_columns).items():
        if n_values == n_folds < FOLDS:
            reason = f"{column} has {n_values} different values"
    if reason:
        reason = f"{n_folds} folds, as {reason}"
    return [
        f"folds: {n_folds}",
        "refit: true  # refit the selected model on training and validation rows",
    ], reason


def _repeated_splits(
    n_training: int, datasets: Sequence[Dataset], request: _TableRequest
) -> tuple[list[str], str]:
    n_validation = int(VALIDATION_SHARE * n_training)
    n_test = int(TEST_SHARE * n_training)
    protocol = [
        f"split: {{train: {n_training}, validation: {n_validation}, test: {n_test}}}",
        f"repeats: {REPEATS}",
    ]
    if request.in_time:
        protocol[-1] += "  # each ends before the test rows of the one before"
        # The newest rows before the test rows would otherwise only validate
        protocol.append("refit: true")
    _require_three_values(datasets, request)
    config = ProtocolConfig.model_validate(yaml.safe_load("\n".join(protocol)))
    with input_errors(request.title):
        for dataset in datasets:
            draw_folds(dataset, config, REPEATS - 1)
    remark = f"in each of {REPEATS} repeats {n_training:,} rows train; 'init' writes the file in which to take more"
    return protocol, remark


def _n_sample_values(
    datasets: Sequence[Dataset], sample_columns: Mapping[str, str]
) -> dict[str, int]:
    counts = {}
    for key, column in sample_columns.items():
        attribute = "times" if key == "time" else key
        counts[column] = min(
            len(np.unique(getattr(dataset, attribute))) for dataset in datasets
        )
    return counts


def _require_three_values(datasets: Sequence[Dataset], request: _TableRequest) -> None:
    for column, n_values in _n_sample_values(datasets, request.sample_columns).items():
        if n_values < 3:
            values = "value" if n_values == 1 else "different values"
            raise InputError(
                f"{request.title}: {column} has {n_values} {values}, and rows of one value stay together: at least "
                "3 are needed, to train, to validate and to test; name another column, or none."
            )


# Remarks


def _remarks(
    request: _TableRequest,
    datasets: Sequence[Dataset],
    messages: Sequence[str],
    rare_classes: Mapping[str, int],
) -> Iterator[str]:
    table = datasets[0].table
    assert table is not None
    n_rows, n_features = datasets[0].X.shape
    yield f"{n_rows:,} rows, {len(table.columns)} columns that become {n_features} features"
    yield from _column_remarks(table, np.asarray(datasets[0].X[:CHECKED_ROWS]))
    for dataset, target in zip(datasets, request.targets, strict=True):
        yield _target_remark(dataset.target, target, request.metric)
    for message in messages:
        if " is left out, as " not in message:
            yield message.removeprefix(f"data set {request.label}: ")
    if rare_classes:
        unit = (
            f" of {request.sample_columns['groups']}"
            if "groups" in request.sample_columns
            else ""
        )
        rows = listed(
            [f"{name!r} ({count}{unit})" for name, count in rare_classes.items()],
            show=str,
        )
        yield f"dropped: rows of {request.targets[0]} {rows}, too few for training, validation and test"
    for dataset, target in zip(datasets, request.targets, strict=True):
        yield from _warnings(dataset, target)
    for key, column in request.sample_columns.items():
        if key == "groups":
            yield f"grouped split: the rows of one {column} stay together"
        else:
            yield (
                f"split by time: earlier rows of {column} are for training, later ones for testing; {column} itself "
                "is no feature: copy it to another column to learn trends and seasons from it"
            )


def _column_remarks(table: TableEncoding, X: np.ndarray) -> Iterator[str]:
    example = table.decode(_most_complete_row(table, X))
    names_by_kind: dict[str, list[str]] = {}
    for column in table.columns:
        name = column.name
        if not column.is_coded and not isinstance(column, TextColumn):
            name += f" ({_value_in_remark(example[name][0])})"
        names_by_kind.setdefault(_kind_of(column), []).append(name)
    for kind, names in names_by_kind.items():
        yield f"{kind}: {_shortened_list(names)}"
    with_gaps = [column.name for column in table.columns if column.has_gaps]
    if with_gaps:
        yield f"missing values, imputed, with an indicator feature: {_shortened_list(with_gaps)}"
    for name, reason in table.left_out.items():
        if reason != DROPPED_BY_USER:
            remedy = ""
            if reason == FREE_TEXT:
                remedy = f"; {setting_of_text(name)} learns from it"
            yield f"dropped: {name or 'the column without a name'}, as {reason}{remedy}"


def _most_complete_row(table: TableEncoding, X: np.ndarray) -> np.ndarray:
    is_indicator = [name.endswith((" missing", "=missing")) for name in table.features]
    n_missing = (X[:, is_indicator] != 0).sum(axis=1)
    return np.asarray(X[[n_missing.argmin()]])


def _value_in_remark(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return short(str(value), str)


def _kind_of(column: ColumnEncoding) -> str:
    if isinstance(column, NumberColumn):
        return "ordered levels" if column.levels else "numbers"
    if isinstance(column, CategoryColumn):
        return "categories of many levels" if column.many else "categories"
    if isinstance(column, DateColumn) and column.first == "time":
        return "times of day"
    if isinstance(column, TextColumn):
        return "texts"
    return "dates"


def _type_of(column: ColumnEncoding) -> str | tuple[str, ...]:
    if isinstance(column, NumberColumn):
        return column.levels or "number"
    if isinstance(column, CategoryColumn):
        return "categorical" if column.levels else "code"
    if isinstance(column, TextColumn):
        return "text"
    return "date"


def _target_remark(target: Target, name: str, metric: str | None) -> str:
    if target.task == "regression":
        metric = metric or "root mean squared error"
        return f"regression of {name}, from {target.values.min():g} to {target.values.max():g}, metric: {metric}"
    shares = np.bincount(target.values) / len(target)
    classes = [
        f"{label} ({100 * share:.0f} %)"
        for label, share in zip(target.classes, shares, strict=True)
    ]
    return f"classification of {name}, {listed(classes, show=str)}, metric: {metric or 'misclassification rate'}"


def _warnings(dataset: Dataset, target: str) -> Iterator[str]:
    leaks = leaking_columns(dataset)
    if leaks:
        verb = "determines" if len(leaks) == 1 else "each determine"
        yield f"check: {_shortened_list(leaks)} alone {verb} {target}; drop columns that are unknown at prediction time"
    rows = np.column_stack(
        [dataset.X[:CHECKED_ROWS], dataset.target.values[:CHECKED_ROWS]]
    )
    n_copies = len(rows) - len(np.unique(rows, axis=0))
    if n_copies:
        copies = (
            "1 row repeats another"
            if n_copies == 1
            else f"{n_copies:,} rows repeat others"
        )
        yield f"check: {copies}, with the same {target}; 'distinct: true' keeps one of each"


def _shortened_list(names: Sequence[str]) -> str:
    text = ", ".join(names[:MOST_NAMED])
    if len(names) > MOST_NAMED:
        text += f" and {len(names) - MOST_NAMED} more"
    return text


# Leakage


def leaking_columns(dataset: Dataset) -> list[str]:
    """Return the columns that determine nearly all targets by themselves.

    Empty for several outputs.
    """
    y = dataset.target.values[:CHECKED_ROWS]
    if dataset.table is None or len(y) < FEW_ROWS or y.ndim == 2:
        return []
    X = np.asarray(dataset.X[:CHECKED_ROWS])
    owners = np.array(dataset.table.features.owners)
    leaks = []
    for column in dataset.table.columns:
        features = X[:, owners == column.name]
        is_ordered = isinstance(column, NumberColumn) or column.kind == "date"
        values = features[:, 0]
        if not is_ordered:
            values = np.unique(features, axis=0, return_inverse=True)[1].ravel()
        if _determines_target(values, is_ordered, y, dataset.target):
            leaks.append(column.name)
    return leaks


def _determines_target(
    values: np.ndarray, is_ordered: bool, y: np.ndarray, target: Target
) -> bool:
    n_values = len(np.unique(values))
    if target.task == "regression" and is_ordered:
        return n_values > 10 and bool(
            abs(spearmanr(values, y).statistic) > LEAKING_SHARE
        )
    # Levels of a few rows determine every target
    most_values = len(y) if is_ordered else len(y) / 5
    if not 2 <= n_values <= most_values:
        return False
    if target.task == "regression":
        level_means = np.bincount(values, y) / np.bincount(values)
        residual_variance = ((y - level_means[values]) ** 2).sum()
        return bool(
            residual_variance < (1 - LEAKING_SHARE) * ((y - y.mean()) ** 2).sum()
        )
    if is_ordered:
        labels = y[np.lexsort((y, values))]
        n_intervals = 1 + int(np.count_nonzero(np.diff(labels)))
        return n_intervals == len(target.classes)
    return len(np.unique(np.column_stack([values, y]), axis=0)) == n_values


# YAML


def _config_text(
    request: _TableRequest,
    datasets: Sequence[Dataset],
    selection: Mapping[str, Sequence[str]],
    protocol: Sequence[str],
) -> str:
    dataset = datasets[0]
    table = dataset.table
    assert table is not None
    without = f", without: {_yaml_value(request.without)}" if request.without else ""
    lines = [
        f"# Comparison of methods for predicting {one_line(', '.join(request.targets))}",
        f"name: {_yaml_value(request.label)}",
        "",
        "datasets:",
        "  - source: file",
        f"    path: {_yaml_value(_only_item_or_all(request.paths))}",
        f"    label: {_yaml_value(request.label)}",
        f"    target: {_yaml_value(_only_item_or_all(request.targets))}",
        *_row_lines(request, datasets, selection),
        "    missing: impute  # or drop rows with missing values, or refuse them",
        "    scale: standard  # or quantile, against outliers",
        "    # scale_on: training  # fit scaling and imputation on the training rows of each trial",
        *_column_lines(table),
        "",
        "kernels:  # base kernels of alignf; rfm ignores them",
        "  - family: gaussian",
        f"    gammas: {_gamma_range(dataset)}  # around the median distance",
    ]
    for column in table.columns:
        if column.is_coded:
            lines.append(
                f"  - {{family: categorical, gammas: 64, columns: {_yaml_value(column.name)}}}"
            )
    lines += [
        "",
        "learners: [rfm, alignf]",
        "# constant, linear model, one tuned Gaussian kernel, boosted trees, default estimator",
        f"baseline: {{boosting: true, estimator: true{without}}}",
        "",
        "protocol:",
        *(f"  {line}" for line in protocol),
    ]
    return "\n".join(lines) + "\n"


def _row_lines(
    request: _TableRequest,
    datasets: Sequence[Dataset],
    selection: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    tasks = {dataset.target.task for dataset in datasets}
    if len(tasks) == 1:
        yield f"    task: {datasets[0].target.task}"
    for key, column in request.sample_columns.items():
        yield f"    {key}: {_yaml_value(column)}"
    for name, values in selection.items():
        yield f"    where: {{{_yaml_value(name)}: {_yaml_value(values)}}}  # rows to use"


def _column_lines(table: TableEncoding) -> list[str]:
    lines = []
    for column in table.columns:
        column_type = _type_of(column)
        if column_type != "number":
            lines.append(
                f"      {_yaml_value(column.name)}: {_yaml_value(column_type)}"
            )
    for name, reason in table.left_out.items():
        lines.append(f"      {_yaml_value(name)}: drop  # {reason}")
    if not lines:
        return ["    columns: {}"]
    return ["    columns:  # all others are numbers", *lines]


def _gamma_range(dataset: Dataset) -> str:
    exponents = [
        round(float(np.log2(gamma))) for gamma in default_family(dataset.X).gammas
    ]
    return f"{{base: 2, from: {min(exponents)}, to: {max(exponents)}}}"


def _yaml_value(value: str | Sequence[str]) -> str:
    texts = several(value)
    # Other styles would take several lines
    style = None if all(map(str.isprintable, texts)) else '"'
    yaml_list = yaml.safe_dump(
        list(texts),
        default_flow_style=True,
        default_style=style,
        allow_unicode=True,
        width=math.inf,
    )
    text = str(yaml_list).strip()
    if isinstance(value, str):
        return text[1:-1]
    return text
