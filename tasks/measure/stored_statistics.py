"""Moments of base kernels where the store has them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from learnkernels.kernels.statistics.base import AlignmentStatistics
from learnkernels.kernels.statistics.features import FeatureStatistics
from learnkernels.kernels.statistics.gram import GramStatistics
from learnkernels.kernels.statistics.sampled import statistics_from_arrays
from learnkernels.tasks.data.dataset import DatasetRef
from learnkernels.tasks.store import checked, keep

ARRAYS = "moments.npz"
"""What holds the statistics, in their entry of the store."""

PASS_SECONDS = "pass_seconds"
"""Name of the time of a pass among them."""


@dataclass(frozen=True)
class StatisticsRef:
    """Where the statistics of one data set, one set of base kernels and one drawing of the folds lie.

    Where each trial scales the features by its own training rows, they are those of one trial alone, `trial`, over its
    own data set, `rows`.
    """

    key: str
    path: str
    repeat: int
    trial: int | None = None
    rows: DatasetRef | None = None


def save_statistics(ref: StatisticsRef, statistics: AlignmentStatistics, folds: np.ndarray, seconds: float) -> None:
    """Write statistics, the fold of each row, and the seconds that the pass took."""
    with keep(Path(ref.path)) as folder:
        arrays = {"folds": folds, PASS_SECONDS: np.asarray(seconds), **statistics.to_arrays()}
        np.savez(folder / ARRAYS, **arrays)  # type: ignore[arg-type]


def share_of_pass(seconds: float | None, whole: AlignmentStatistics, training: AlignmentStatistics) -> float | None:
    """Return what of a pass a user pays who needs some training rows alone; None where its time is not known.

    That of their pairs, where statistics are of pairs; of rank-one features that of the rows, and a sample whole.
    """
    if seconds is None:
        return None
    power = {GramStatistics: 2, FeatureStatistics: 1}.get(type(whole), 0)
    return seconds * (training.n_rows / whole.n_rows) ** power


class StoredStatistics(NamedTuple):
    """Moments, of tiles, a sample or rank-one features, the fold of each row, and what the pass over the rows took.

    The seconds are None where an earlier release did not keep them.
    """

    statistics: AlignmentStatistics
    folds: np.ndarray
    seconds: float | None


def load_statistics(ref: StatisticsRef) -> StoredStatistics:
    """Return the statistics of a reference.

    Raises
    ------
    InputError
        The store has lost or damaged them since the run began.
    """
    with np.load(checked(Path(ref.path)) / ARRAYS, allow_pickle=False) as arrays:
        seconds = float(arrays[PASS_SECONDS]) if PASS_SECONDS in arrays else None
        return StoredStatistics(statistics_from_arrays(arrays), arrays["folds"], seconds)


def load_folds(ref: StatisticsRef) -> np.ndarray:
    """Return the fold of each row of a reference, and nothing else."""
    with np.load(checked(Path(ref.path)) / ARRAYS, allow_pickle=False) as arrays:
        return np.asarray(arrays["folds"])
