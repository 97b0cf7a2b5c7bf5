"""Special studies of the papers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.linalg import cho_solve

from learnkernels.conf.errors import InputError, input_errors
from learnkernels.conf.schema import FamilyConfig, ProtocolConfig, grid_values
from learnkernels.kernels.engine.operators import FeatureGrams
from learnkernels.kernels.families import PolynomialFamily
from learnkernels.kernels.families.base import KernelFamily
from learnkernels.kernels.learners import LearningProblem, Solution
from learnkernels.kernels.learners.ca import CA, SETTLED, Ascent
from learnkernels.kernels.learners.continuous import RadialPairs
from learnkernels.kernels.learners.nkrr import PolynomialRidge
from learnkernels.kernels.model_selection.evaluation import Evaluation, KernelPredictors
from learnkernels.kernels.model_selection.folds import Trial, assign_folds, trials
from learnkernels.kernels.model_selection.metrics import metric_for
from learnkernels.kernels.predictors.base import DEFAULTS
from learnkernels.kernels.solvers.factor import factored_with_ridge
from learnkernels.kernels.solvers.projected_gradient import Iterate
from learnkernels.kernels.statistics.gram import AlignmentStatistics, gram_statistics
from learnkernels.tasks.data.dataset import Dataset, fold_seed, load_dataset
from learnkernels.tasks.data.ingest import ingest
from learnkernels.tasks.measure.families import build_family, require_varying
from learnkernels.tasks.reporting.figures import add_legend, panels
from learnkernels.tasks.workers.cluster import Advance

from .item import BaseKernelsStudy, LocalMinimaStudy, SurfaceStudy, TwoPointStudy
from .judge import StudyResult

CENTERED = "rho"
UNCENTERED = "A"
"""The papers' letters for alignment with and without centering."""

COLORS = {CENTERED: "tab:blue", UNCENTERED: "tab:orange"}


# Single base kernels


def base_kernels(
    study: BaseKernelsStudy, data_dir: str | None, advance: Advance
) -> StudyResult:
    """Correlate the accuracy with the training alignment of single base kernels.

    ``"rho NAME"`` and ``"A NAME"`` are correlations of means over trials.
    """
    protocol = study.protocol
    n_draws = protocol.repeats * sum(len(part.datasets) for part in study.parts)
    rows: list[dict[str, Any]] = []
    for part in study.parts:
        for dataset in part.datasets:
            for repeat in range(protocol.repeats):
                ref = ingest(dataset, data_dir or ".", protocol.seed)
                rows += measure_base_kernels(
                    load_dataset(ref), ref.name, part.kernels, protocol, repeat
                )
                advance(1 / n_draws)
    return correlations(pd.DataFrame(rows))


def measure_base_kernels(
    dataset: Dataset,
    name: str,
    kernels: Sequence[FamilyConfig],
    protocol: ProtocolConfig,
    repeat: int,
) -> list[dict[str, Any]]:
    """Return table rows with each base kernel's accuracy and alignment on each split."""
    where = f"data set {name}"
    require_varying(kernels, dataset.X, dataset.features, where)
    family = build_family(kernels, dataset.features, where)
    assert protocol.folds is not None, "the schema requires folds"
    rows = []
    with input_errors(where):
        folds = assign_folds(
            dataset.target, protocol.folds, fold_seed(protocol.seed, repeat)
        )
        statistics = gram_statistics(
            family, dataset.X, dataset.target.Y, folds, keep_origin=True
        )
        for trial in trials(protocol.folds):
            for row in _rows_of_trial(
                dataset, family, statistics, folds, trial, grid_values(protocol.grid)
            ):
                rows.append({"dataset": name, "repeat": repeat, **row})
    return rows


def _rows_of_trial(
    dataset: Dataset,
    family: KernelFamily,
    statistics: AlignmentStatistics,
    folds: np.ndarray,
    trial: Trial,
    grid: Sequence[float],
) -> list[dict[str, Any]]:
    training = statistics.restrict(trial.training)
    training.require_informative()
    problem = LearningProblem(family, dataset.X, training)
    evaluation = Evaluation(
        dataset.X, dataset.target, folds, metric_for(None, dataset.target)
    )
    rows = []
    for k, unit in enumerate(np.eye(family.n_kernels)):
        kernel = problem.kernel("one base kernel", Solution(unit[problem.usable]))
        predictors = KernelPredictors(
            [kernel], dataset.target, DEFAULTS[dataset.target.task], grid
        )
        result = evaluation.result([predictors], training.rows, trial)
        rows.append(
            {
                "kernel": family.names[k],
                "fold": trial.index,
                "accuracy": 1 - result.error,
                CENTERED: float(training.alignments[k]),
                UNCENTERED: float(training.uncentered_alignments[k]),
            }
        )
    return rows


def correlations(measured: pd.DataFrame) -> StudyResult:
    """Return the correlation of accuracy and alignment on each data set, with a figure.

    Columns of `measured`: `dataset`, `kernel`, `repeat`, `fold`, `accuracy`, `rho`,
    `A`.
    """
    values: dict[str, float] = {}
    rows = []
    smallest = {"rho": np.inf, "A": np.inf, "rho - A": np.inf}
    for dataset, group in measured.groupby("dataset", sort=False):
        means = _means_by_kernel(group)
        rho = correlation(means["accuracy"], means[CENTERED])
        uncentered = correlation(means["accuracy"], means[UNCENTERED])
        values[f"rho {dataset}"] = rho
        values[f"rho {dataset} sd"] = _sd_over_trials(group, CENTERED)
        values[f"A {dataset}"] = uncentered
        values[f"A {dataset} sd"] = _sd_over_trials(group, UNCENTERED)
        values[f"rho - A {dataset}"] = rho - uncentered
        smallest["rho"] = min(smallest["rho"], rho)
        smallest["A"] = min(smallest["A"], uncentered)
        smallest["rho - A"] = min(smallest["rho - A"], rho - uncentered)
        for kernel, mean in means.iterrows():
            numbers = {column: f"{mean[column]:.4f}" for column in means.columns}
            rows.append(
                {"data set": str(dataset), "base kernel": str(kernel), **numbers}
            )
    for name, value in smallest.items():
        values[f"{name}, least"] = value
    values["trials"] = float(len(measured.drop_duplicates(["repeat", "fold"])))
    tables = [
        (
            "Each base kernel alone, means over trials; alignments are those of the training folds.",
            rows,
        )
    ]
    return StudyResult(
        values=values,
        tables=tables,
        figures={"base_kernels": _base_kernels_figure(measured)},
    )


def _sd_over_trials(rows: pd.DataFrame, letter: str) -> float:
    correlations_of_trials = []
    for _, trial in rows.groupby(["repeat", "fold"]):
        correlations_of_trials.append(correlation(trial["accuracy"], trial[letter]))
    if len(correlations_of_trials) == 1:
        return 0.0
    return float(np.std(correlations_of_trials, ddof=1))


def _means_by_kernel(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.groupby("kernel", sort=False)[["accuracy", CENTERED, UNCENTERED]].mean()


def correlation(
    a: Sequence[float] | pd.Series, b: Sequence[float] | pd.Series
) -> float:
    """Return Pearson's correlation of two sequences, or zero if one is constant."""
    a = np.asarray(a, dtype=np.float64)
    b = np.asarray(b, dtype=np.float64)
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _base_kernels_figure(measured: pd.DataFrame) -> Figure:
    datasets = list(measured["dataset"].unique())
    figure, axes = panels(datasets)
    for axis, dataset in zip(axes, datasets, strict=False):
        means = _means_by_kernel(measured[measured["dataset"] == dataset])
        for letter, marker in ((CENTERED, "o"), (UNCENTERED, "s")):
            axis.scatter(
                means["accuracy"],
                means[letter],
                color=COLORS[letter],
                marker=marker,
                label=letter,
            )
        axis.set(xlabel="accuracy", ylabel="alignment")
    add_legend(figure, axes)
    return figure


# Two points


def two_point(
    study: TwoPointStudy, data_dir: str | None = None, advance: Advance | None = None
) -> StudyResult:
    r"""Compute the alignment of :math:`x \cdot x' + 1` with labels at two points.

    A share alpha of the rows is (-1, 0) with label -1, the others are (1, 0) with label
    +1.

    .. math:: A = \sqrt{\alpha^2 + (1 - \alpha)^2}, \qquad \rho = 1
    """
    shares = np.arange(1, study.points + 1) / (study.points + 1)
    alignments = np.array([two_point_alignments(share) for share in shares])
    rho = alignments[:, 0]
    uncentered = alignments[:, 1]
    closed_form = np.sqrt(shares**2 + (1 - shares) ** 2)
    rho_at_half, uncentered_at_half = two_point_alignments(0.5)
    values = {
        "A, largest deviation from the closed form": float(
            np.abs(uncentered - closed_form).max()
        ),
        "rho, largest deviation from one": float(np.abs(rho - 1).max()),
        "A, largest": float(uncentered.max()),
        "A at alpha = 1/2": uncentered_at_half,
        "rho at alpha = 1/2": rho_at_half,
    }
    figure = Figure(figsize=(6.0, 4.2), layout="constrained")
    axis = figure.subplots()
    axis.plot(shares, uncentered, color="black", label="A, without centering")
    axis.plot(shares, rho, color=COLORS[CENTERED], ls=":", lw=2, label="rho, centered")
    axis.set(
        xlabel="alpha, the share of points at (-1, 0)",
        ylabel="alignment with the labels",
        ylim=(0.6, 1.05),
    )
    axis.legend(loc="lower right")
    return StudyResult(values=values, figures={"two_point": figure})


def two_point_alignments(share: float) -> tuple[float, float]:
    """Return centered and uncentered alignment if the first of two points has weight `share`."""
    X = np.array([[-1.0, 0.0], [1.0, 0.0]])
    y = np.array([-1.0, 1.0])
    family = PolynomialFamily([1], coef0=1.0)
    statistics = gram_statistics(
        family, X, y, sample_weight=np.array([share, 1 - share]), keep_origin=True
    )
    return float(statistics.alignments[0]), float(statistics.uncentered_alignments[0])


# Objective of a bandwidth


def local_minima(
    study: LocalMinimaStudy, data_dir: str | None, advance: Advance
) -> StudyResult:
    r"""Count the local minima, over the bandwidth, of the alignment objective of learner `ca`.

    .. math:: h(\sigma) = -\langle K_\sigma, F'(K_{t-1,c}) \rangle_F
    """
    figure, axes = panels([dataset.label for dataset in study.datasets])
    minima: list[int] = []
    for config, axis in zip(study.datasets, axes, strict=False):
        dataset = load_dataset(ingest(config, data_dir or ".", study.seed))
        for draw in range(study.draws):
            rng = np.random.default_rng([study.seed, draw])
            rows = rng.permutation(dataset.target.values.size)[: study.rows]
            sigmas, objectives = _step_objectives(
                dataset.X[rows], dataset.target.Y[rows], study
            )
            minima += [count_minima(h) for h in objectives]
            if draw == 0:
                for step, h in enumerate(objectives, start=1):
                    axis.plot(sigmas, h / np.abs(h).max(), label=f"step {step}")
        axis.set(xscale="log", xlabel="sigma", ylabel="h, over its largest size")
        advance(1 / len(study.datasets))
    add_legend(figure, axes)
    values = {
        "local minima, most": float(max(minima)),
        "objectives": float(len(minima)),
    }
    for n in sorted(set(minima)):
        values[f"objectives with {n} local minima"] = float(minima.count(n))
    return StudyResult(values=values, figures={"objectives": figure})


def _step_objectives(
    X: np.ndarray, Y: np.ndarray, study: LocalMinimaStudy
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return bandwidths, and the objective at each step of `ca`."""
    pairs = RadialPairs("gaussian", X)
    ascent = Ascent(pairs, Y - Y.mean(axis=0), CA.eps)
    log_sigmas = np.linspace(pairs.candidates[0], pairs.candidates[-1], study.points)
    objectives = []
    for _ in range(study.steps):
        P = ascent.gradient()
        products = [
            pairs.value_and_gradient(np.array([log_sigma]), P)[0]
            for log_sigma in log_sigmas
        ]
        objectives.append(-np.array(products))
        steepest = np.atleast_1d(pairs.steepest(P, settled=SETTLED))
        ascent.add(steepest, CA.largest_step)
    return np.exp(log_sigmas), objectives


def count_minima(h: np.ndarray) -> int:
    """Count the local minima of function values; ignore rounding errors."""
    steps = np.diff(h)
    rounding = 1e-9 * np.ptp(h)
    steps = steps[np.abs(steps) > rounding]
    return int(np.sum((steps[:-1] < 0) & (steps[1:] > 0)))


# Objective of a polynomial kernel


def surface(study: SurfaceStudy, data_dir: str | None, advance: Advance) -> StudyResult:
    r"""Check whether learner `nkrr`'s objective of degree two is convex in two weights.

    .. math:: F(\mu) = y^\top (K_\mu \circ K_\mu + \lambda I)^{-1} y, \qquad
             K_\mu = \mu_1 z_1 z_1^\top + \mu_2 z_2 z_2^\top
    """
    ref = ingest(study.datasets[0], data_dir or ".", 0)
    dataset = load_dataset(ref)
    unknown = [name for name in study.columns if name not in dataset.features]
    if unknown:
        raise InputError(
            f"data set {ref.name}: 'columns' of the surface must be two of the features, got "
            f"{', '.join(map(repr, unknown))}; correct the names."
        )
    columns = [dataset.features.index(name) for name in study.columns]
    Z = np.asarray(dataset.X[:, columns], dtype=np.float64)
    grams = FeatureGrams(Z - Z.mean(axis=0))
    weights = np.linspace(0.0, study.upper, study.points)
    values: dict[str, float] = {}
    surfaces = []
    for ridge in study.ridges:
        name = f"lambda = {ridge:g}"
        objective = PolynomialRidge(grams, dataset.target, 1 / ridge, degree=2)
        objective_values, smallest_eigenvalues = _values_and_curvatures(
            objective, weights
        )
        not_convex = smallest_eigenvalues < 0
        for measure, value in _convexity_measures(
            weights, not_convex, study.upper
        ).items():
            values[f"{measure}, {name}"] = value
        at_zero = hessian_eigenvalues(objective, objective.at(np.zeros(2)))
        relative = float(at_zero[-1] / np.abs(at_zero).max())
        if np.isfinite(relative):
            values[
                f"largest eigenvalue at zero over the size of the smallest, {name}"
            ] = relative
        surfaces.append((name, objective_values, not_convex))
        advance(1 / len(study.ridges))
    return StudyResult(
        values=values,
        figures={"surface": _surface_figure(weights, surfaces, study.columns)},
    )


def _convexity_measures(
    weights: np.ndarray, not_convex: np.ndarray, upper: float
) -> dict[str, float]:
    lengths = np.hypot(*np.meshgrid(weights, weights, indexing="ij"))
    measures = {
        "share not convex": float(not_convex.mean()),
        "share not convex within a tenth of the range": float(
            not_convex[lengths <= upper / 10].mean()
        ),
        "mean length where not convex": 0.0,
    }
    if not_convex.any():
        measures["mean length where not convex"] = float(lengths[not_convex].mean())
    if not not_convex.all():
        measures["mean length where convex"] = float(lengths[~not_convex].mean())
    return measures


def _values_and_curvatures(
    objective: PolynomialRidge, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return F and its Hessian's smallest eigenvalue, at most zero."""
    values = np.empty((len(weights), len(weights)))
    smallest_eigenvalues = np.empty_like(values)
    for position in np.ndindex(values.shape):
        iterate = objective.at(weights[list(position)])
        values[position] = iterate.value
        smallest_eigenvalues[position] = hessian_eigenvalues(objective, iterate)[0]
    return values, np.minimum(smallest_eigenvalues, 0.0)


def _surface_figure(
    weights: np.ndarray,
    surfaces: Sequence[tuple[str, np.ndarray, np.ndarray]],
    columns: Sequence[str],
) -> Figure:
    figure, axes = panels([f"F, {name}; hatched: not convex" for name, *_ in surfaces])
    for axis, (_, values, not_convex) in zip(axes, surfaces, strict=True):
        contours = axis.contourf(weights, weights, values.T, levels=24, cmap="viridis")
        figure.colorbar(contours, ax=axis)
        if not_convex.any() and not not_convex.all():
            region = not_convex.T.astype(float)
            axis.contourf(
                weights,
                weights,
                region,
                levels=[0.5, 1.5],
                colors="none",
                hatches=["//"],
            )
            axis.contour(weights, weights, region, levels=[0.5], colors="white")
        axis.set(xlabel=f"mu of {columns[0]}", ylabel=f"mu of {columns[1]}")
    return figure


def hessian_eigenvalues(objective: PolynomialRidge, iterate: Iterate) -> np.ndarray:
    r"""Return eigenvalues of the Hessian of learner `nkrr`'s objective of degree two.

    .. math:: \partial_k \partial_l F(\mu) =
        8 \operatorname{tr} \alpha^\top (K_\mu \circ K_k) V (K_\mu \circ K_l) \alpha
        - 2 \operatorname{tr} \alpha^\top (K_k \circ K_l) \alpha,
        \qquad V = (K_\mu \circ K_\mu + \lambda I)^{-1}

    They are ascending. Printed errors of Cortes, Mohri, Rostamizadeh (2009), NIPS 22:
    in (19), the right side is half the quadratic form on its left; in (20), the last
    two factors are :math:`[K_\mu]_{lj} [K_u]_{lj}`; below (21), the factor 4 of N is
    missing; before (22), V is that of (19) with the squared kernel.
    """
    grams = objective.grams
    p = grams.n_kernels
    m, q = objective.Y.shape
    K = grams.combine(iterate.mu)
    factor = factored_with_ridge(K**2, objective.ridge)
    assert factor is not None, "the fit has factored the same matrix"
    alpha = cho_solve(factor, objective.Y, check_finite=False)
    W = alpha @ alpha.T
    products = np.empty((m, p, q))
    curvature = np.empty((p, p))
    for k, unit in enumerate(np.eye(p)):
        K_k = grams.combine(unit)
        products[:, k] = (K * K_k) @ alpha
        curvature[k] = grams.inner_products(K_k * W)
    solved = cho_solve(factor, products.reshape(m, p * q), check_finite=False).reshape(
        m, p, q
    )
    H = 8 * np.einsum("ikq,ilq->kl", products, solved, optimize=True) - 2 * curvature
    eigenvalues = np.linalg.eigvalsh((H + H.T) / 2)
    rounding = np.sqrt(np.finfo(np.float64).eps) * np.abs(eigenvalues).max()
    return np.where(np.abs(eigenvalues) <= rounding, 0.0, eigenvalues)


STUDIES: dict[str, Callable[..., StudyResult]] = {
    "base-kernels": base_kernels,
    "local-minima": local_minima,
    "surface": surface,
    "two-point": two_point,
}
