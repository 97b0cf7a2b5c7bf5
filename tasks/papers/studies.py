"""Studies of the papers that compare no learners: alignment on two points, base kernels, an objective."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from learnkernels.conf.errors import InputError
from learnkernels.conf.papers.studies import SurfaceStudy, TwoPointStudy
from learnkernels.kernels.engine.operators import FeatureGrams
from learnkernels.kernels.families import PolynomialFamily
from learnkernels.kernels.learners.nkrr import PolynomialRidge
from learnkernels.kernels.statistics.gram import gram_moments
from learnkernels.tasks.data.dataset import load_dataset
from learnkernels.tasks.data.ingest import ingest
from learnkernels.tasks.evidence.figures import panels
from learnkernels.tasks.measure.moments import Advance
from learnkernels.tasks.papers.base_kernels import CENTERED, COLORS, base_kernels, quiet
from learnkernels.tasks.papers.convexity import bend
from learnkernels.tasks.papers.result import StudyResult

__all__ = ["base_kernels", "surface", "two_point", "two_point_alignments"]

# Two points -----------------------------------------------------------------------------------------------------------


def two_point(study: TwoPointStudy) -> StudyResult:
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
    rows = [
        {"alpha": f"{share:g}", "A": f"{a:.4f}", "closed form": f"{np.hypot(share, 1 - share):.4f}", "rho": f"{r:.4f}"}
        for share in (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
        for r, a in [two_point_alignments(share)]
    ]
    caption = "Alignment with the labels by the share of points at (-1, 0)."
    return StudyResult(values=values, tables=[(caption, rows)], figures={"two_point": figure})


def two_point_alignments(share: float) -> tuple[float, float]:
    """Return centered and uncentered alignment where a share of the rows is the first of two points."""
    X, y = np.array([[-1.0, 0.0], [1.0, 0.0]]), np.array([-1.0, 1.0])
    moments = gram_moments(
        PolynomialFamily([1], coef0=1.0), X, y, sample_weight=np.array([share, 1 - share]), keep_origin=True
    )
    return float(moments.alignments[0]), float(moments.uncentered_alignments[0])


# The objective of a polynomial kernel ---------------------------------------------------------------------------------


def surface(study: SurfaceStudy, data_dir: str | None = None, advance: Advance = quiet) -> StudyResult:
    r"""Return the objective of degree two over the weights of two features, and where it is not convex.

    .. math:: F(\mu) = y^\top (K_\mu \circ K_\mu + \lambda I)^{-1} y, \qquad
              K_\mu = \mu_1 z_1 z_1^\top + \mu_2 z_2 z_2^\top

    Parameters
    ----------
    study : SurfaceStudy
        Data set, features, values of lambda and the grid of weights.
    data_dir : str, optional
        Folder of the data files.
    advance : callable, optional
        Is told of each panel's share of the whole.

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
    rows, found_panels = [], []
    for ridge in study.ridges:
        name = f"lambda = {ridge:g}"
        length = np.hypot(*np.meshgrid(weights, weights, indexing="ij"))
        objective = PolynomialRidge(grams, dataset.target, 1 / ridge, degree=2)
        found = _bends(objective, weights)
        bent = found["smallest"] < 0
        at_zero = bend(objective, objective.at(np.zeros(2)))
        numbers = {
            f"share not convex, {name}": float(bent.mean()),
            f"share not convex within a tenth of the range, {name}": float(bent[length <= study.upper / 10].mean()),
            f"mean length where not convex, {name}": float(length[bent].mean()) if bent.any() else 0.0,
            f"mean length where convex, {name}": float(length[~bent].mean()) if not bent.all() else np.inf,
            f"largest eigenvalue at zero over the size of the smallest, {name}": at_zero.largest
            / max(abs(at_zero.smallest), abs(at_zero.largest)),
        }
        values |= {key: value for key, value in numbers.items() if np.isfinite(value)}
        rows.append(
            {
                "lambda": f"{ridge:g}",
                "share of the grid not convex": f"{bent.mean():.3f}",
                "mean |mu| there": f"{length[bent].mean():.2f}" if bent.any() else "",
                "mean |mu| elsewhere": f"{length[~bent].mean():.2f}" if not bent.all() else "",
                "eigenvalues at zero": f"{at_zero.smallest:.3g}, {at_zero.largest:.3g}",
            }
        )
        found_panels.append((name, found["value"], bent))
        advance(1 / len(study.ridges))
    caption = f"Where the Hessian has a negative eigenvalue, weights from 0 to {study.upper:g}, {ref.name}."
    return StudyResult(
        values=values,
        tables=[(caption, rows)],
        figures={"surface": _surface_figure(weights, found_panels, study.columns)},
    )


def _bends(objective: PolynomialRidge, weights: np.ndarray) -> dict[str, np.ndarray]:
    """Return F and the smallest eigenvalue of its Hessian over a grid; rounding around zero counts as zero."""
    value, smallest = np.empty((len(weights),) * 2), np.empty((len(weights),) * 2)
    for i, first in enumerate(weights):
        for j, second in enumerate(weights):
            at = objective.at(np.array([first, second]))
            value[i, j], bent = at.value, bend(objective, at)
            smallest[i, j] = 0.0 if bent.convex else bent.smallest
    return {"value": value, "smallest": smallest}


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
