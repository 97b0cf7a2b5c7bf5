"""Studies of the papers that compare no learners: alignment on two points, base kernels, an objective."""

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
from learnkernels.kernels.learners.nkrr import PolynomialRidge
from learnkernels.kernels.predictors.base import DEFAULTS
from learnkernels.kernels.protocol.evaluation import Evaluation, KernelPredictors
from learnkernels.kernels.protocol.folds import Trial, assign_folds, trials
from learnkernels.kernels.search.pairs import RadialPairs
from learnkernels.kernels.solvers.factor import factored_with_ridge
from learnkernels.kernels.solvers.projected_gradient import Iterate
from learnkernels.kernels.statistics.gram import AlignmentStatistics, gram_statistics
from learnkernels.tasks.data.dataset import Dataset, fold_seed, load_dataset
from learnkernels.tasks.data.ingest import ingest
from learnkernels.tasks.evidence.figures import add_legend, panels
from learnkernels.tasks.measure.families import build_family, require_varying
from learnkernels.tasks.workers.cluster import Advance

from .item import BaseKernelsStudy, LocalMinimaStudy, SurfaceStudy, TwoPointStudy
from .judge import StudyResult

CENTERED, UNCENTERED = "rho", "A"
"""The papers' letters for alignment with and without centering."""

COLORS = {CENTERED: "tab:blue", UNCENTERED: "tab:orange"}

MINIMA_ROUNDING = 1e-9
"""Share of the range of a function below which a step of it is rounding."""


def base_kernels(study: BaseKernelsStudy, data_dir: str | None, advance: Advance) -> StudyResult:
    """Return accuracy and alignments of each base kernel alone, and how they correlate over the base kernels.

    Parameters
    ----------
    study : BaseKernelsStudy
        Data sets, base kernels and protocol.
    data_dir : str or None
        Folder of the data files.
    advance : callable
        Called with each drawing's share of the whole.

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
    Accuracy is one less the test error: the misclassification rate or, in regression, the root mean squared error.
    Alignments are those on the training folds.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 2.3, Table 1, Figure 2.
    """
    protocol, rows = study.protocol, list[dict[str, Any]]()
    drawings = [
        (of, part.kernels, repeat) for part in study.parts for of in part.datasets for repeat in range(protocol.repeats)
    ]
    for of, kernels, repeat in drawings:
        ref = ingest(of, data_dir or ".", protocol.seed)
        rows += measure_base_kernels(load_dataset(ref), ref.name, kernels, protocol, repeat)
        advance(1 / len(drawings))
    return correlations(pd.DataFrame(rows))


def measure_base_kernels(
    dataset: Dataset, name: str, kernels: Sequence[FamilyConfig], protocol: ProtocolConfig, repeat: int
) -> list[dict[str, Any]]:
    """Return one row per base kernel and trial of one drawing of the folds.

    Raises
    ------
    InputError
        The data set does not allow these base kernels or folds.
    """
    where = f"data set {name}"
    require_varying(kernels, dataset.X, dataset.features, where)
    family = build_family(kernels, dataset.features, where)
    assert protocol.folds is not None  # the schema has them
    with input_errors(where):
        folds = assign_folds(dataset.target, protocol.folds, fold_seed(protocol.seed, repeat))
        statistics = gram_statistics(family, dataset.X, dataset.target.Y, folds, keep_origin=True)
        return [
            {"dataset": name, "repeat": repeat, **row}
            for trial in trials(protocol.folds)
            for row in _one_by_one(dataset, family, statistics, folds, trial, grid_values(protocol.grid))
        ]


def _one_by_one(
    dataset: Dataset,
    family: KernelFamily,
    statistics: AlignmentStatistics,
    folds: np.ndarray,
    trial: Trial,
    grid: Sequence[float],
) -> list[dict[str, Any]]:
    """Return one row per base kernel of one trial."""
    training, target = statistics.restrict(trial.training), dataset.target
    training.require_informative()
    problem = LearningProblem(family, dataset.X, training)
    found = []
    for k, unit in enumerate(np.eye(family.n_kernels)):
        kernel = problem.kernel("one base kernel", Solution(unit[problem.usable]))
        predictors = KernelPredictors([kernel], target, DEFAULTS[target.task], grid)
        result = Evaluation(dataset.X, target, folds).result([predictors], training.rows, trial)
        alignments = {CENTERED: training.alignments[k], UNCENTERED: training.uncentered_alignments[k]}
        row = {"kernel": family.names[k], "fold": trial.index, "accuracy": 1 - result.error}
        found.append(row | {letter: float(of) for letter, of in alignments.items()})
    return found


def correlations(measured: pd.DataFrame) -> StudyResult:
    """Return how accuracy and alignment go together over the base kernels of each data set.

    Parameters
    ----------
    measured : DataFrame
        One row per data set, base kernel and trial: `dataset`, `kernel`, `repeat`, `fold`, `accuracy`, `rho`, `A`.
    """
    values: dict[str, float] = {}
    each, names = [], list(measured["dataset"].unique())
    for dataset, of in measured.groupby("dataset", sort=False):
        means = of.groupby("kernel", sort=False)[["accuracy", CENTERED, UNCENTERED]].mean()
        for letter in (CENTERED, UNCENTERED):
            by_trial = [correlation(one["accuracy"], one[letter]) for _, one in of.groupby(["repeat", "fold"])]
            values[f"{letter} {dataset}"] = correlation(means["accuracy"], means[letter])
            values[f"{letter} {dataset} sd"] = float(np.std(by_trial, ddof=1)) if len(by_trial) > 1 else 0.0
        values[f"rho - A {dataset}"] = values[f"rho {dataset}"] - values[f"A {dataset}"]
        for name, one in means.iterrows():
            numbers = {key: f"{one[key]:.4f}" for key in ("accuracy", CENTERED, UNCENTERED)}
            each.append({"data set": str(dataset), "base kernel": str(name), **numbers})
    for start in ("rho", "A", "rho - A"):
        values[f"{start}, least"] = min(values[f"{start} {name}"] for name in names)
    tables = [("Each base kernel alone, means over trials; alignments are those of the training folds.", each)]
    return StudyResult(values=values, tables=tables, figures={"base_kernels": _base_kernels_figure(measured)})


def correlation(a: Sequence[float] | pd.Series, b: Sequence[float] | pd.Series) -> float:
    """Return Pearson's correlation, zero where one of both is constant."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _base_kernels_figure(measured: pd.DataFrame) -> Figure:
    """Return both alignments against accuracy, a panel per data set and a point per base kernel."""
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


# Two points -----------------------------------------------------------------------------------------------------------


def two_point(study: TwoPointStudy, data_dir: str | None = None, advance: Advance | None = None) -> StudyResult:
    r"""Return the alignment of :math:`K(x, x') = x \cdot x' + 1` with the labels of two points, for each share of one.

    A share alpha of all rows is (-1, 0) with the label -1, the others are (1, 0) with +1: two rows with these weights.

    Notes
    -----
    .. math:: A = \sqrt{\alpha^2 + (1 - \alpha)^2}, \qquad \rho = 1

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 2.3, Figure 1.
    """
    shares = np.arange(1, study.points + 1) / (study.points + 1)
    measured = np.array([two_point_alignments(share) for share in shares])
    closed = np.sqrt(shares**2 + (1 - shares) ** 2)
    rho, uncentered = measured.T
    values = {
        "A, largest deviation from the closed form": float(np.abs(uncentered - closed).max()),
        "rho, largest deviation from one": float(np.abs(rho - 1).max()),
        "A, largest": float(uncentered.max()),
        "A at alpha = 1/2": float(two_point_alignments(0.5)[1]),
        "rho at alpha = 1/2": float(two_point_alignments(0.5)[0]),
    }
    figure = Figure(figsize=(6.0, 4.2), layout="constrained")
    axis = figure.subplots()
    axis.plot(shares, uncentered, color="black", label="A, without centering")
    axis.plot(shares, rho, color=COLORS[CENTERED], ls=":", lw=2, label="rho, centered")
    axis.set(xlabel="alpha, the share of points at (-1, 0)", ylabel="alignment with the labels", ylim=(0.6, 1.05))
    axis.legend(loc="lower right")
    return StudyResult(values=values, figures={"two_point": figure})


def two_point_alignments(share: float) -> tuple[float, float]:
    """Return centered and uncentered alignment where a share of the rows is the first of two points."""
    X, y = np.array([[-1.0, 0.0], [1.0, 0.0]]), np.array([-1.0, 1.0])
    statistics = gram_statistics(
        PolynomialFamily([1], coef0=1.0), X, y, sample_weight=np.array([share, 1 - share]), keep_origin=True
    )
    return float(statistics.alignments[0]), float(statistics.uncentered_alignments[0])


# The objective of a bandwidth -----------------------------------------------------------------------------------------


def local_minima(study: LocalMinimaStudy, data_dir: str | None, advance: Advance) -> StudyResult:
    r"""Return the objective of steps of `ca` over the bandwidth, and how many local minima each has.

    .. math:: h(\sigma) = -\langle K_\sigma, F'(K_{t-1,c}) \rangle_F

    Parameters
    ----------
    study : LocalMinimaStudy
        Data sets, rows, draws, steps and bandwidths.
    data_dir : str or None
        Folder of the data files.
    advance : callable
        Is called with each data set's share of the whole.

    Returns
    -------
    result : StudyResult
        Value ``"local minima, most"``, how many objectives have how many, and a figure of the first draw.

    Raises
    ------
    InputError
        A data set cannot be read.

    References
    ----------
    Afkanpour, Szepesvari, Bowling (2013), Machine Learning, appendix B.1, Figure 3.
    """
    figure, axes = panels([of.label for of in study.datasets])
    every = list[int]()
    for dataset, axis in zip(study.datasets, axes, strict=False):
        loaded = load_dataset(ingest(dataset, data_dir or ".", study.seed))
        for draw in range(study.draws):
            rng = np.random.default_rng([study.seed, draw])
            chosen = rng.permutation(loaded.target.values.size)[: study.rows]
            Y, pairs = loaded.target.Y[chosen], RadialPairs("gaussian", loaded.X[chosen])
            ascent = Ascent(pairs, Y - Y.mean(axis=0), CA.eps)
            grid = np.linspace(pairs.candidates[0], pairs.candidates[-1], study.points)
            for step in range(1, study.steps + 1):
                P = ascent.gradient()
                h = -np.array([pairs.value_and_gradient(np.array([u]), P)[0] for u in grid])
                every.append(count_minima(h))
                if draw == 0:
                    axis.plot(np.exp(grid), h / np.abs(h).max(), label=f"step {step}")
                ascent.add(np.atleast_1d(pairs.steepest(P, settled=SETTLED)), CA.largest_step)
        axis.set(xscale="log", xlabel="sigma", ylabel="h, over its largest size")
        advance(1 / len(study.datasets))
    add_legend(figure, axes)
    values = {"local minima, most": float(max(every)), "objectives": float(len(every))}
    values |= {f"objectives with {n} local minima": float(every.count(n)) for n in sorted(set(every))}
    return StudyResult(values=values, figures={"objectives": figure})


def count_minima(h: np.ndarray) -> int:
    """Return how many local minima a sampled function has inside its range; steps of rounding are none."""
    steps = np.diff(h)
    steps = steps[np.abs(steps) > MINIMA_ROUNDING * np.ptp(h)]
    return int(np.sum((steps[:-1] < 0) & (steps[1:] > 0)))


# The objective of a polynomial kernel ---------------------------------------------------------------------------------


def surface(study: SurfaceStudy, data_dir: str | None, advance: Advance) -> StudyResult:
    r"""Return the objective of degree two over the weights of two features, and where it is not convex.

    .. math:: F(\mu) = y^\top (K_\mu \circ K_\mu + \lambda I)^{-1} y, \qquad
              K_\mu = \mu_1 z_1 z_1^\top + \mu_2 z_2 z_2^\top

    Parameters
    ----------
    study : SurfaceStudy
        Data set, features, values of lambda and the grid of weights.
    data_dir : str or None
        Folder of the data files.
    advance : callable
        Called with each panel's share of the whole.

    Returns
    -------
    result : StudyResult
        For each lambda the share of the grid where the Hessian has a negative eigenvalue, how far from zero these
        points are, and whether the objective is concave at zero itself.

    Raises
    ------
    InputError
        The data set cannot be read, or has no such features.

    Notes
    -----
    F for lambda at mu is F for 1 at :math:`\mu / \sqrt\lambda`, over lambda: a larger lambda shows the same surface
    nearer to zero.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), *Learning non-linear combinations of kernels*, NIPS 22, section 3.2, Figure 1.
    """
    ref = ingest(study.datasets[0], data_dir or ".", 0)
    dataset = load_dataset(ref)
    unknown = [name for name in study.columns if name not in dataset.features]
    if unknown:
        raise InputError(
            f"data set {ref.name}: 'columns' of the surface must be two of the features, got "
            f"{', '.join(map(repr, unknown))}; correct the names."
        )
    Z = np.asarray(dataset.X[:, [dataset.features.index(name) for name in study.columns]], dtype=np.float64)
    grams = FeatureGrams(Z - Z.mean(axis=0))
    weights = np.linspace(0.0, study.upper, study.points)
    values: dict[str, float] = {}
    found_panels = []
    for ridge in study.ridges:
        name = f"lambda = {ridge:g}"
        length = np.hypot(*np.meshgrid(weights, weights, indexing="ij"))
        objective = PolynomialRidge(grams, dataset.target, 1 / ridge, degree=2)
        value, smallest = _bends(objective, weights)
        bent = smallest < 0
        at_zero = bend(objective, objective.at(np.zeros(2)))
        numbers = {
            f"share not convex, {name}": float(bent.mean()),
            f"share not convex within a tenth of the range, {name}": float(bent[length <= study.upper / 10].mean()),
            f"mean length where not convex, {name}": float(length[bent].mean()) if bent.any() else 0.0,
            f"mean length where convex, {name}": float(length[~bent].mean()) if not bent.all() else np.inf,
            f"largest eigenvalue at zero over the size of the smallest, {name}": at_zero[-1] / np.abs(at_zero).max(),
        }
        values |= {key: float(value) for key, value in numbers.items() if np.isfinite(value)}
        found_panels.append((name, value, bent))
        advance(1 / len(study.ridges))
    return StudyResult(values=values, figures={"surface": _surface_figure(weights, found_panels, study.columns)})


def _bends(objective: PolynomialRidge, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return F and the smallest eigenvalue of its Hessian over a grid; rounding around zero counts as zero."""
    value, smallest = np.empty((2, len(weights), len(weights)))
    for place in np.ndindex(value.shape):
        at = objective.at(weights[list(place)])
        value[place], smallest[place] = at.value, bend(objective, at)[0]
    return value, np.minimum(smallest, 0.0)


def _surface_figure(
    weights: np.ndarray, surfaces: Sequence[tuple[str, np.ndarray, np.ndarray]], columns: Sequence[str]
) -> Figure:
    """Return contours of the objective, hatched where it is not convex, a panel a lambda."""
    figure, axes = panels([f"F, {name}; hatched: not convex" for name, *_ in surfaces])
    for axis, (_, value, bent) in zip(axes, surfaces, strict=True):
        drawn = axis.contourf(weights, weights, value.T, levels=24, cmap="viridis")
        figure.colorbar(drawn, ax=axis)
        if bent.any() and not bent.all():
            axis.contourf(weights, weights, bent.T.astype(float), levels=[0.5, 1.5], colors="none", hatches=["//"])
            axis.contour(weights, weights, bent.T.astype(float), levels=[0.5], colors="white")
        axis.set(xlabel=f"mu of {columns[0]}", ylabel=f"mu of {columns[1]}")
    return figure


def bend(objective: PolynomialRidge, at: Iterate) -> np.ndarray:
    r"""Return how the objective of `nkrr` for degree 2, without an offset, bends at some weights.

    .. math:: \partial_k \partial_l F(\mu) =
              8 \operatorname{tr} \alpha^\top (K_\mu \circ K_k) V (K_\mu \circ K_l) \alpha
              - 2 \operatorname{tr} \alpha^\top (K_k \circ K_l) \alpha, \qquad V = (K_\mu \circ K_\mu + \lambda I)^{-1}

    Parameters
    ----------
    objective : PolynomialRidge
        Of p base kernels over m rows.
    at : Fit
        ``objective.at(mu)``.

    Returns
    -------
    eigenvalues : ndarray of shape (p,)
        Of the Hessian, ascending, in units of F per squared weight; zero within rounding of the largest. F is convex
        on a convex set where and only where none is negative at any of its points.

    Notes
    -----
    O(p^2 m^2 + m^3) time, O(p m q + m^2) memory: p times the operator's `combine` and `inner_products`.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), *Learning non-linear combinations of kernels*, NIPS 22, Proposition 4 and
    equations (19) and (23). The right side of (19) is half the quadratic form on its left; in (20) the last two factors
    are meant to be :math:`[K_\mu]_{lj} [K_u]_{lj}`; the 4 of N is missing below (21); and V before (22) is meant to be
    that of (19), with the square of the kernel, without which the threshold :math:`\sqrt{\lambda / 3}` for diagonal
    base kernels does not follow from (23).
    """
    grams = objective.grams
    K, p, (m, q) = grams.combine(at.mu), grams.n_kernels, objective.Y.shape
    factor = factored_with_ridge(K**2, objective.ridge)
    assert factor is not None, "the fit has factored the same matrix"
    alpha = cho_solve(factor, objective.Y, check_finite=False)
    products, curvature = np.empty((m, p, q)), np.empty((p, p))
    W = alpha @ alpha.T
    for k, unit in enumerate(np.eye(p)):
        K_k = grams.combine(unit)
        products[:, k] = (K * K_k) @ alpha
        curvature[k] = grams.inner_products(K_k * W)
    flat = products.reshape(m, p * q)
    solved = cho_solve(factor, flat, check_finite=False).reshape(m, p, q)
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
"""Kind -> what makes it, of a study, the folder of the data and a function that advances the progress."""
