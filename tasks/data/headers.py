"""Names of the columns of tables, and whether a user's names are among them: checked before a run starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy

from learnkernels.conf.errors import InputError, did_you_mean, option, short
from learnkernels.conf.loading import config_of, existing_files
from learnkernels.conf.schema import BASELINE_TITLES, DatasetConfig

from .locations import Location
from .tables import FORMATS, Table, joint_name, locations_of

NAMED = 12
"""Most columns that a sentence names."""

PROTOCOLS: tuple[dict[str, object], ...] = (
    {"folds": 5, "refit": True},
    {"split": {"train": 1000, "validation": 400, "test": 600}, "repeats": 3},
)
"""Protocols of a small and of a large table."""


def source_files(config: DatasetConfig, data_dir: str) -> tuple[Location, ...]:
    """Return where the files of a data set lie.

    Raises
    ------
    InputError
        There is no such file or object, its ending is not one that can be read, or its server cannot be used.
    """
    addresses = existing_files(config, data_dir)
    try:
        locations = locations_of(*addresses)
        for location in locations:
            if location.remote:
                location.size()
    except InputError as error:
        raise type(error)(f"data set {config.label}: {error}") from None
    return locations


def columns_of(path: str | Sequence[str]) -> list[str]:
    """Return the names of the columns of a table; InputError if it is none."""
    given = path if isinstance(path, str) else tuple(path)
    files = source_files(DatasetConfig.of({"source": "file", "path": given}), ".")
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
    """Return the columns of a table; raise InputError where an option names no column, or no baseline."""
    if others := [name for name in without if name not in BASELINE_TITLES]:
        meant = did_you_mean(others[0], BASELINE_TITLES)
        shown = option("without", by_command, others[0])
        raise InputError(f"{shown}: {meant}the baselines are {', '.join(BASELINE_TITLES)}.")
    names = columns_of(paths)
    shown = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
    where = joint_title(paths)
    if not targets:
        asked = option("target", by_command)
        raise InputError(f"{where}: name the column to predict with {asked}; its columns are {shown}.")
    for name in (*targets, *sample_columns.values()):
        if name is not None and name not in names:
            meant = did_you_mean(name, names)
            raise InputError(f"{where}: it has no column {short(name)}; {meant}its columns are {shown}.")
    return names


def require_keys(
    paths: Sequence[str],
    targets: Sequence[str],
    sample_columns: Mapping[str, str | None],
    metric: str | None,
    without: Sequence[str],
    changes: Sequence[str] = (),
) -> None:
    """Refuse a metric, or a change, that fits no configuration of a table, before its rows are read.

    What follows from the rows is not known: both kinds of protocol are tried, and changes of single kernels are left.

    Raises
    ------
    InputError
        The metric or a change is refused.
    """
    dataset: dict[str, object] = {
        "source": "file",
        "path": list(paths),
        "target": list(targets),
        "missing": "impute",
        "scale": "standard",
        "columns": {},
    }
    dataset |= {role: column for role, column in sample_columns.items() if column is not None}
    known = [change for change in changes if not str(change).strip().startswith("kernels.")]
    refusals = []
    for protocol in PROTOCOLS:
        table = {
            "name": "table",
            "datasets": [dict(dataset)],
            "kernels": [{"family": "gaussian", "gammas": [1.0]}],
            "learners": ["rfm", "alignf"],
            "baseline": {"boosting": True, "without": list(without)},
            "protocol": deepcopy(protocol) | ({} if metric is None else {"metric": metric}),
        }
        try:
            config_of(table, paths[0], known)
        except InputError as error:
            refusals.append(error)
    if len(refusals) == len(PROTOCOLS):
        raise refusals[0]


def joint_title(paths: Sequence[str]) -> str:
    """Return what sentences call some files."""
    return ", ".join(paths[:2]) + (", ..." if len(paths) > 2 else "")
