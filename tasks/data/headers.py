"""Checks of files, column names and keys before a run starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from learnkernels.conf.errors import InputError, did_you_mean, option, short
from learnkernels.conf.loading import config_of, existing_files
from learnkernels.conf.schema import BASELINE_TITLES, DatasetConfig

from .locations import Location
from .tables import FORMATS, Table, first_of, joint_name, locations_of


def source_files(config: DatasetConfig, data_dir: str) -> tuple[Location, ...]:
    """Return the locations of a data set's files from its configuration."""
    addresses = existing_files(config, data_dir)
    try:
        locations = locations_of(*addresses)
        for location in locations:
            if location.remote:
                location.size()  # fails if there is no such object
    except InputError as error:
        raise type(error)(f"data set {config.label}: {error}") from None
    return locations


def columns_of(paths: Sequence[str]) -> list[str]:
    """Return the column names of a table; InputError for formats without names."""
    files = source_files(
        DatasetConfig.of({"source": "file", "path": tuple(paths)}), "."
    )
    if files[0].suffix not in FORMATS:
        raise InputError(
            f"{joint_name(files)}: has no names of columns; write a configuration for it, with 'source: file'."
        )
    with Table(files[:1]) as table:
        return list(table.schema.names)


def require_names(
    paths: Sequence[str],
    targets: Sequence[str],
    sample_columns: Mapping[str, str | None],
    without: Sequence[str],
    by_command: bool,
) -> list[str]:
    """Return a table's columns; InputError if an option names no column or baseline."""
    for name in without:
        if name not in BASELINE_TITLES:
            meant = did_you_mean(name, BASELINE_TITLES)
            option_text = option("without", by_command, name)
            raise InputError(
                f"{option_text}: {meant}the baselines are {', '.join(BASELINE_TITLES)}."
            )
    names = columns_of(paths)
    columns = first_of(names)
    where = joint_title(paths)
    if not targets:
        target_option = option("target", by_command)
        raise InputError(
            f"{where}: name the column to predict with {target_option}; its columns are {columns}."
        )
    for column in (*targets, *sample_columns.values()):
        if column is not None and column not in names:
            meant = did_you_mean(column, names)
            raise InputError(
                f"{where}: it has no column {short(column)}; {meant}its columns are {columns}."
            )
    return names


def require_keys(
    paths: Sequence[str],
    targets: Sequence[str],
    sample_columns: Mapping[str, str | None],
    metric: str | None,
    without: Sequence[str],
    changes: Sequence[str] = (),
) -> None:
    """Raise InputError if the metric or a changed option does not fit a table.

    Changes of single kernels are not checked.
    """
    dataset: dict[str, object] = {
        "source": "file",
        "path": list(paths),
        "target": list(targets),
        "missing": "impute",
        "scale": "standard",
        "columns": {},
    }
    dataset |= {
        key: column for key, column in sample_columns.items() if column is not None
    }
    protocols: tuple[dict[str, object], ...] = (
        {"folds": 5, "refit": True},
        {"split": {"train": 1000, "validation": 400, "test": 600}, "repeats": 3},
    )
    checked_changes = [
        change for change in changes if not str(change).strip().startswith("kernels.")
    ]
    errors = []
    for protocol in protocols:
        if metric is not None:
            protocol["metric"] = metric
        config = {
            "name": "table",
            "datasets": [dict(dataset)],
            "kernels": [{"family": "gaussian", "gammas": [1.0]}],
            "learners": ["rfm", "alignf"],
            "baseline": {"boosting": True, "estimator": True, "without": list(without)},
            "protocol": protocol,
        }
        try:
            config_of(config, paths[0], checked_changes)
        except InputError as error:
            errors.append(error)
    if len(errors) == len(protocols):
        raise errors[0]


def joint_title(paths: Sequence[str]) -> str:
    return first_of(paths, 2)
