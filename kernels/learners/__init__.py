"""Learners of kernel weights, one file per algorithm; learned kernels of a data set, or of its statistics.

Imports: centering, engine, families, learned, parameters, registry, search, solvers, statistics, targets, weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from .. import registry
from ..centering import Centering
from ..engine.workers import blas_threads_for
from ..families.base import KernelFamily, Rows, as_rows
from ..learned import LearnedKernel
from ..parameters import as_object, explain_unknown_arguments, imported, require_one_of
from ..solvers.certificate import Certificate
from ..statistics.gram import (
    AlignmentStatistics,
    Normalization,
    gram_statistics,
    require_normalization,
)
from ..statistics.sampled import SampledStatistics, Sampling
from ..targets import Target, Task
from ..weights import as_sample_weight, counting_rows
from .alignf import kkt_certificate
from .base import (
    AlignmentLearner,
    JointLearner,
    KernelSearchLearner,
    Learner,
    LearningProblem,
    Products,
    Solution,
)
from .ensemble import KernelEnsemble

LEARNERS: dict[str, type[Learner]] = {
    name: imported(f"{__name__}.{path}", cast(Any, Learner), "learner") for name, path in registry.LEARNERS.items()
}
"""The learners by name, as configurations and `learn_kernel` call them."""

COLUMNS = ["name", "learns", "needs", "predictor", "tasks", "parameters", "source"]
"""Of `table`."""


def __getattr__(name: str) -> Any:
    """Return the class of a learner by its own name."""
    for learner in LEARNERS.values():
        if learner.__name__ == name:
            return learner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def as_learner(learner: str | Learner, /, **params: Any) -> Learner:
    """Return a learner by its name and parameters; a learner is returned as it is.

    Parameters
    ----------
    learner : str or Learner
        A name of the table `LEARNERS`, or ``module:Class`` for a custom learner, whose module can be imported.
    **params
        Its parameters.

    Raises
    ------
    ValueError
        The name is unknown, no learner can be imported under it, it has no such parameter, or does not keep those it
        takes.
    """
    example = "a name such as 'alignf' or a Learner such as Alignf()"
    if isinstance(learner, KernelFamily):
        raise ValueError(f"learner must be {example}, got {learner!r:.60}; pass base kernels as family.")
    return as_object(learner, params, Learner, learner_class, example)


def learner_class(name: str) -> type[Learner]:
    """Return the class of learners of a name, imported where it is ``module:Class``.

    Raises
    ------
    ValueError
        The name is unknown, or no learner can be imported under it.
    """
    if name in LEARNERS:
        return LEARNERS[name]
    if ":" not in name:
        require_one_of("learner", name, sorted(LEARNERS), ", or module:Class")
    return imported(name, Learner, "learner")


def table() -> list[list[str]]:
    """Return the table of learners in Markdown, one row per learner."""
    return [
        [
            f"`{name}`",
            learner.summary,
            learner.needs,
            f"`{learner.predictor}`" if learner.predictor else "any",
            " and ".join(learner.tasks),
            ", ".join(f"`{parameter}={default}`" for parameter, default in learner().get_params().items()),
            learner.source,
        ]
        for name, learner in LEARNERS.items()
    ]


@explain_unknown_arguments
def learn_kernel(
    learner: str | Learner,
    family: KernelFamily | None,
    X: Rows,
    y: np.ndarray,
    *,
    sample_weight: np.ndarray | None = None,
    task: Task | None = None,
    C: float = 1.0,
    normalize: Normalization = "trace",
    centering: str = "center",
) -> LearnedKernel:
    """Return the combination of base kernels that fits a data set best.

    Parameters
    ----------
    learner : str or Learner
        How base kernels are combined: a name of the table `LEARNERS`, or a learner with its parameters, such as
        ``LpKRR(norm=1.5)``.
    family : KernelFamily or None
        p base kernels; None for a learner that finds its own (`ca`, `cr`).
    X : ndarray or CSR matrix of shape (m, d)
        Training rows, finite. Not modified.
    y : ndarray of shape (m,) or (m, q)
        Labels or numbers. Not modified.
    sample_weight : ndarray of shape (m,), optional
        Weights of the rows, not negative. Only their ratios count: each is divided by the mean, and then counts as so
        many copies of the row, in the weights of the kernels and in their centering. Rows of weight zero are left out,
        see ``kernel.rows``. For two-stage learners and `rfm`; by default each row counts once. Not modified.
    task : {"classification", "regression"}, optional
        By default as `Target.of` infers it.
    C : float, default 1
        Of the predictor that a one-stage learner learns together with the weights: C, or 1 / lambda.
    normalize : {"trace", "frobenius", "none"}, default "trace"
        Scaling of the base kernels, centered or not, before the learner sees them.
    centering : {"center", "target", "none"}, default "center"
        Whether base kernels are taken less the mean feature of the training rows, or as they are. With "none"
        predictors on the kernel have no intercept: a constant base kernel (`ConstantFamily`) takes its place; with
        "target" it is the mean of the targets. For learners of a predictor's own objective (`l1-krr`, `l2-krr`,
        `lp-krr`, `nkrr`, `l1-svm`, `lp-svm`), `unif`, `align` and those of uncentered alignments.

    Returns
    -------
    kernel : LearnedKernel
        With `weights`, `alignment` and `certificate`.

    Raises
    ------
    ValueError
        As `gram_statistics`, `Target.of` and `learn_from_statistics`, and for a family that the learner would not use.

    Warns
    -----
    UserWarning
        Weights are too small to count, at most 2.2e-16 of the sum of all; these rows are left out.

    Notes
    -----
    O(m^2 (d + p^2)) time in one pass over tiles, O(p m) memory; for a `FeatureFamily` the cost of its features alone.

    Examples
    --------
    >>> import numpy as np
    >>> from learnkernels import GaussianFamily, learn_kernel
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 5))
    >>> y = np.sign(X[:, 0] * X[:, 1] + 0.5 * X[:, 2])
    >>> learn_kernel("alignf", GaussianFamily([0.01, 0.1, 1.0]), X, y).shares.round(2)
    array([0.  , 0.28, 0.72])
    """
    X, learner, target = as_rows(X), as_learner(learner), Target.of(y, task)
    m = X.shape[0]
    if len(target) != m:
        raise ValueError(f"y must have one entry per row of X, got {len(target)} for {m} rows.")
    options: dict[str, Any] = {"C": C, "normalize": normalize, "centering": centering}
    given = as_sample_weight(sample_weight, m, zero=True)
    if given is None:
        return learn_from_rows(learner, family, X, target, None, **options)
    rows, weights = counting_rows(given)
    if len(rows) == m:
        return learn_from_rows(learner, family, X, target, weights, **options)
    kernel = learn_from_rows(learner, family, X[rows], target.take(rows), weights, **options)
    return replace(kernel, rows=rows[kernel.rows])


def learn_from_rows(
    learner: Learner,
    family: KernelFamily | None,
    X: Rows,
    target: Target,
    sample_weight: np.ndarray | None,
    *,
    C: float,
    normalize: Normalization,
    centering: str,
) -> LearnedKernel:
    """Return what `learn_kernel` does, of rows that all count, with weights as they are."""
    learner.check(family, sample_weight, Centering.of(centering))
    require_normalization(normalize)
    if isinstance(learner, KernelSearchLearner):
        return learner.learn_from_rows(X, target, [C], None, sample_weight)[0]
    assert family is not None  # checked
    family.check_rows(X)
    keep_origin = not learner.centered or not Centering.of(centering).subtracts
    statistics = gram_statistics(family, X, target.Y, sample_weight=sample_weight, keep_origin=keep_origin)
    grid = [C]
    return learn_path(learner, family, X, statistics, target, grid, normalize=normalize, centering=centering)[0]


@explain_unknown_arguments
def learn_from_statistics(
    learner: str | Learner,
    family: KernelFamily,
    X: Rows,
    statistics: AlignmentStatistics,
    *,
    target: Target | None = None,
    C: float = 1.0,
    normalize: Normalization = "trace",
    centering: str = "center",
) -> LearnedKernel:
    """Return the kernel that a learner finds for some rows, given their statistics.

    Parameters
    ----------
    learner : str or Learner
        As in `learn_kernel`.
    family : KernelFamily
        The base kernels of the statistics.
    X : ndarray or CSR matrix of shape (n, d)
        The data set that ``statistics.rows`` counts in. Not modified.
    statistics : GramStatistics, FeatureStatistics or SampledStatistics
        Statistics of the training rows, for example ``statistics.restrict(training_folds)``. Where they are of weighted
        rows, the kernel is: two-stage learners alone take them. Of a sample they are estimates for all rows; other
        learners learn from the sampled rows alone.
    target : Target, optional
        Of all n rows; one-stage learners need it.
    C : float, default 1
        Of the predictor that a one-stage learner learns together with the weights: C, or 1 / lambda, for a kernel of
        mean diagonal one. Not used by two-stage learners.
    normalize : {"trace", "frobenius", "none"}, default "trace"
        Scaling of the base kernels, centered or not, before the learner sees them.
    centering : {"center", "target", "none"}, default "center"
        Whether base kernels are taken less the mean feature of the training rows, or as they are. With "none"
        predictors on the kernel have no intercept: a constant base kernel (`ConstantFamily`) takes its place; with
        "target" it is the mean of the targets. For learners of a predictor's own objective (`l1-krr`, `l2-krr`,
        `lp-krr`, `nkrr`, `l1-svm`, `lp-svm`), `unif`, `align` and those of uncentered alignments.

    Returns
    -------
    kernel : LearnedKernel

    Raises
    ------
    ValueError
        The learner or the normalization is unknown, a base kernel or the target is constant on these rows, no base
        kernel aligns with the target, a one-stage learner is given no target, or a learner that does not learn from
        statistics alone is given rows with weights.

    Notes
    -----
    For a two-stage learner O(p^3 + p m): no tile is computed, and M is formed for a learner that needs more of it
    than its diagonal. For a one-stage learner see its own cost; base kernels are held where they fit into memory. A
    rank-one feature that is constant on these rows gets weight zero, without a warning: n-grams that no training text
    holds are normal. Any other base kernel that is constant is refused.
    """
    grid = [C]
    return learn_path(learner, family, X, statistics, target, grid, normalize=normalize, centering=centering)[0]


def learn_path(
    learner: str | Learner,
    family: KernelFamily | None,
    X: Rows,
    statistics: AlignmentStatistics,
    target: Target | None,
    grid: Sequence[float],
    *,
    normalize: Normalization = "trace",
    centering: str = "center",
) -> tuple[LearnedKernel, ...]:
    """Return the kernels that a learner finds along a path of values of C.

    Parameters
    ----------
    learner, family, X, statistics, target
        As in `learn_from_statistics`.
    grid : sequence of float
        Regularizations, ascending; each problem starts from the solution of the one before.
    normalize, centering
        As in `learn_from_statistics`.

    Returns
    -------
    kernels : tuple of LearnedKernel
        One per value of C from a one-stage learner; a single one from a two-stage learner, whose kernel does not
        depend on it.

    Raises
    ------
    ValueError
        As `learn_from_statistics`, and for a learner that learns no kernel.
    """
    learner = as_learner(learner)
    seen = Centering.of(centering)
    require_normalization(normalize)
    learner.check(family if learner.takes_family else None, statistics.sample_weight, seen)
    if not learner.learns_kernel:
        raise ValueError(f"{learner.name} learns hypotheses and not a kernel; use KernelEnsemble.fit.")
    with blas_threads_for(statistics.n_rows):  # whose number would show in the last bits
        problem = LearningProblem(cast(KernelFamily, family), X, statistics, target, grid, normalize, seen)
        kernels: tuple[LearnedKernel, ...] = learner.learn(problem)
    if isinstance(statistics, SampledStatistics):
        sampling = Sampling(statistics.n_rows, statistics.total_rows)
        kernels = tuple(replace(kernel, sampling=sampling) for kernel in kernels)
    return kernels


__all__ = [
    "COLUMNS",
    "LEARNERS",
    "AlignmentLearner",
    "Certificate",
    "JointLearner",
    "KernelEnsemble",
    "KernelSearchLearner",
    "Learner",
    "LearningProblem",
    "Products",
    "Solution",
    "as_learner",
    "kkt_certificate",
    "learn_from_statistics",
    "learn_kernel",
    "learn_path",
    "learner_class",
    "table",
]
