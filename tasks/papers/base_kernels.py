"""The base kernels of a data set one by one: how their alignment goes together with what they are good for."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure

from learnkernels.conf.errors import InputError
from learnkernels.conf.papers.studies import BaseKernelsStudy
from learnkernels.conf.schema import FamilyConfig, ProtocolConfig, grid_values
from learnkernels.kernels import NUMERICS_VERSION
from learnkernels.kernels.families.base import KernelFamily
from learnkernels.kernels.learners import Problem, Solution
from learnkernels.kernels.predictors.base import DEFAULTS
from learnkernels.kernels.protocol.evaluation import Evaluation, KernelPredictors
from learnkernels.kernels.protocol.folds import Trial, assign_folds, trials
from learnkernels.kernels.statistics.base import AlignmentStatistics
from learnkernels.kernels.statistics.gram import gram_moments
from learnkernels.tasks.data.dataset import Dataset, DatasetRef, load_dataset
from learnkernels.tasks.data.ingest import ingest
from learnkernels.tasks.evidence.figures import add_legend, panels
from learnkernels.tasks.measure.families import build_family, require_varying
from learnkernels.tasks.measure.moments import Advance, fold_seed
from learnkernels.tasks.own import described
from learnkernels.tasks.papers.result import StudyResult
from learnkernels.tasks.store import checked, digest, keep, kept, store_path
from learnkernels.tasks.workers.cluster import DaskPool, map_here

CENTERED, UNCENTERED = "rho", "A"
"""The papers' letters for alignment with and without centering."""

COLORS = {CENTERED: "tab:blue", UNCENTERED: "tab:orange"}


def quiet(_: float) -> None:
    """Tell nobody how far a study is."""


_TABLE = "trials.parquet"

_TRIALS = pa.schema(
    [
        ("dataset", pa.string()),
        ("kernel", pa.string()),
        ("repeat", pa.int32()),
        ("fold", pa.int32()),
        ("accuracy", pa.float64()),
        (CENTERED, pa.float64()),
        (UNCENTERED, pa.float64()),
    ]
)


@dataclass(frozen=True)
class RepeatJob:
    """One data set, its base kernels and one drawing of the folds, small enough to travel."""

    ref: DatasetRef
    kernels: tuple[FamilyConfig, ...]
    protocol: ProtocolConfig
    repeat: int


def base_kernels(
    study: BaseKernelsStudy, data_dir: str | None = None, pool: DaskPool | None = None, advance: Advance = quiet
) -> StudyResult:
    """Return accuracy and alignments of each base kernel alone, and how they correlate over the base kernels.

    Parameters
    ----------
    study : BaseKernelsStudy
        Data sets, base kernels and protocol.
    data_dir : str, optional
        Folder of the data files.
    pool : DaskPool, optional
        Workers, each of which takes one drawing of the folds at a time; without them all runs in this process.
    advance : callable, optional
        Is told of each drawing's share of the whole.

    Returns
    -------
    result : StudyResult
        Values ``"rho NAME"`` and ``"A NAME"``, the correlations of mean accuracy with mean alignment over the base
        kernels of a data set, with ``"rho NAME sd"``, their deviation over trials; the least and the difference too.

    Raises
    ------
    InputError
        A data set cannot be read, or does not allow these base kernels or folds.

    Notes
    -----
    Accuracy is one less the test error: the misclassified share or, in regression, the root mean squared error.
    Alignments are those on the training folds. What the store has is not computed again.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 2.3, Table 1, Figure 2.
    """
    seed = study.protocol.seed
    jobs = []
    for part in study.parts:
        for dataset in part.datasets:
            ref = ingest(dataset, data_dir or ".", seed)
            loaded = load_dataset(ref)
            require_varying(part.kernels, loaded.X, loaded.features, f"data set {ref.name}")
            jobs += [RepeatJob(ref, part.kernels, study.protocol, repeat) for repeat in range(study.protocol.repeats)]
    paths = [_trials_path(job) for job in jobs]
    missing = [(job, path) for job, path in zip(jobs, paths, strict=True) if not kept(path, warnings.warn)]
    run_all = pool.map if pool is not None and pool.local and len(missing) > 1 else map_here
    tables = run_all(measure_base_kernels, [job for job, _ in missing], advance)
    for (_, path), rows in zip(missing, tables, strict=True):
        with keep(path) as folder:
            pq.write_table(pa.Table.from_pylist(rows, schema=_TRIALS), folder / _TABLE)
    found = [pq.read_table(checked(path) / _TABLE, schema=_TRIALS) for path in paths]
    return correlations(pa.concat_tables(found).to_pandas())


def _trials_path(job: RepeatJob) -> Path:
    protocol = job.protocol
    key = digest(
        NUMERICS_VERSION, _TRIALS.names, job.ref.name, job.ref.digest, described(job.kernels), protocol.folds,
        protocol.seed, job.repeat, grid_values(protocol.grid),
    )  # fmt: skip
    return store_path("base-kernels", key)


def measure_base_kernels(job: RepeatJob) -> list[dict[str, Any]]:
    """Return one row a base kernel and trial of one drawing of the folds.

    Raises
    ------
    InputError
        The data set does not allow these base kernels or folds.
    """
    dataset = load_dataset(job.ref)
    where = f"data set {job.ref.name}"
    family = build_family(job.kernels, dataset.features, where)
    assert job.protocol.folds is not None  # the schema has them
    try:
        folds = assign_folds(dataset.target, job.protocol.folds, fold_seed(job.protocol.seed, job.repeat))
        moments = gram_moments(family, dataset.X, dataset.target.Y, folds, keep_origin=True)
        return [
            {"dataset": job.ref.name, "repeat": job.repeat, **row}
            for trial in trials(job.protocol.folds)
            for row in _one_by_one(dataset, family, moments, folds, trial, grid_values(job.protocol.grid))
        ]
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None


def _one_by_one(
    dataset: Dataset,
    family: KernelFamily,
    moments: AlignmentStatistics,
    folds: np.ndarray,
    trial: Trial,
    grid: Sequence[float],
) -> list[dict[str, Any]]:
    """Return one row a base kernel of one trial."""
    training, target = moments.restrict(trial.training), dataset.target
    training.require_informative()
    problem = Problem(family, dataset.X, training)
    found = []
    for k, unit in enumerate(np.eye(family.n_kernels)):
        kernel = problem.kernel("one base kernel", Solution(unit[problem.usable]))
        predictors = KernelPredictors([kernel], target, DEFAULTS[target.task], grid)
        result = Evaluation(dataset.X, target, folds).result([predictors], training.rows, trial)
        found.append(
            {
                "kernel": family.names[k],
                "fold": trial.index,
                "accuracy": 1 - result.error,
                CENTERED: float(training.alignments[k]),
                UNCENTERED: float(training.uncentered_alignments[k]),
            }
        )
    return found


def correlations(measured: pd.DataFrame) -> StudyResult:
    """Return how accuracy and alignment go together over the base kernels of each data set.

    Parameters
    ----------
    measured : DataFrame
        One row a data set, base kernel and trial: `dataset`, `kernel`, `repeat`, `fold`, `accuracy`, `rho`, `A`.
    """
    values: dict[str, float] = {}
    rows, each = [], []
    for dataset, of in measured.groupby("dataset", sort=False):
        means = of.groupby("kernel", sort=False)[["accuracy", CENTERED, UNCENTERED]].mean()
        row = {"data set": str(dataset), "base kernels": str(len(means))}
        for letter in (CENTERED, UNCENTERED):
            by_trial = [correlation(one["accuracy"], one[letter]) for _, one in of.groupby(["repeat", "fold"])]
            values[f"{letter} {dataset}"] = correlation(means["accuracy"], means[letter])
            values[f"{letter} {dataset} sd"] = float(np.std(by_trial, ddof=1)) if len(by_trial) > 1 else 0.0
            row[letter] = f"{values[f'{letter} {dataset}']:.4f} ± {values[f'{letter} {dataset} sd']:.4f}"
        values[f"rho - A {dataset}"] = values[f"rho {dataset}"] - values[f"A {dataset}"]
        rows.append(row)
        each += [
            {
                "data set": str(dataset),
                "base kernel": str(name),
                "accuracy": f"{one['accuracy']:.4f}",
                "rho": f"{one[CENTERED]:.4f}",
                "A": f"{one[UNCENTERED]:.4f}",
            }
            for name, one in means.iterrows()
        ]
    for start in ("rho", "A", "rho - A"):
        found = [values[f"{start} {row['data set']}"] for row in rows]
        values[f"{start}, least"] = float(np.min(found))
    tables = [
        ("Correlation of accuracy with alignment over the base kernels; the deviation is that over trials.", rows),
        ("Each base kernel alone, means over trials; alignments are those of the training folds.", each),
    ]
    return StudyResult(values=values, tables=tables, figures={"base_kernels": _base_kernels_figure(measured)})


def correlation(a: Sequence[float] | pd.Series, b: Sequence[float] | pd.Series) -> float:
    """Return Pearson's correlation, zero where one of both is constant."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _base_kernels_figure(measured: pd.DataFrame) -> Figure:
    """Return both alignments against accuracy, a panel a data set and a point a base kernel."""
    names = list(measured["dataset"].unique())
    figure, axes = panels(names)
    for axis, name in zip(axes, names, strict=False):
        of = measured[measured["dataset"] == name]
        means = of.groupby("kernel", sort=False)[["accuracy", CENTERED, UNCENTERED]].mean()
        for letter, marker in ((CENTERED, "o"), (UNCENTERED, "s")):
            axis.scatter(means["accuracy"], means[letter], color=COLORS[letter], marker=marker, label=letter)
        axis.set(xlabel="accuracy", ylabel="alignment")
    add_legend(figure, axes)
    return figure
