"""Learners of kernel weights, and functions that learn a kernel from data.

Imports: base, centering, engine, families, learned_kernel, registry, row_groups,
solvers, statistics, targets, validation, weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from .. import registry
from ..base import as_object, explain_unknown_arguments, import_class
from ..centering import Centering
from ..engine.workers import blas_threads_for
from ..families.base import KernelFamily, Rows, as_rows
from ..learned_kernel import LearnedKernel
from ..solvers.certificate import Certificate
from ..statistics.gram import (
    AlignmentStatistics,
    Normalization,
    gram_statistics,
    require_normalization,
)
from ..statistics.sampled import SampledStatistics, Sampling
from ..targets import Target, Task
from ..validation import require_one_of
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
    name: import_class(f"{__name__}.{path}", cast(Any, Learner), "learner")
    for name, path in registry.LEARNERS.items()
}

COLUMNS = ["name", "learns", "needs", "predictor", "tasks", "parameters", "source"]


def __getattr__(name: str) -> Any:
    for learner in LEARNERS.values():
        if learner.__name__ == name:
            return learner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def as_learner(learner: str | Learner, /, **params: Any) -> Learner:
    """Return a learner by name and parameters, or the learner that is passed.

    Parameters
    ----------
    learner : str or Learner
        Name in `LEARNERS`, ``module:Class`` for a custom learner, or a learner.
    **params
        Parameters of the learner.

    Returns
    -------
    learner : Learner
        Learner with these parameters.
    """
    example = "a name such as 'alignf' or a Learner such as Alignf()"
    if isinstance(learner, KernelFamily):
        raise ValueError(
            f"learner must be {example}, got {learner!r:.60}; pass base kernels as family."
        )
    return as_object(learner, params, Learner, learner_class, example)


def learner_class(name: str) -> type[Learner]:
    """Return the class of a learner by its name in `LEARNERS` or ``module:Class``."""
    if name in LEARNERS:
        return LEARNERS[name]
    if ":" not in name:
        require_one_of("learner", name, sorted(LEARNERS), ", or module:Class")
    return import_class(name, Learner, "learner")


def table() -> list[list[str]]:
    """Return the cells of the Markdown table of learners, one row per learner."""
    return [
        [
            f"`{name}`",
            learner.summary,
            learner.needs,
            f"`{learner.predictor}`" if learner.predictor else "any",
            " and ".join(learner.tasks),
            ", ".join(
                f"`{parameter}={default}`"
                for parameter, default in learner().get_params().items()
            ),
            learner.source,
        ]
        for name, learner in LEARNERS.items()
    ]


@explain_unknown_arguments
def learn_kernel(
    X: Rows,
    y: np.ndarray,
    *,
    learner: str | Learner,
    family: KernelFamily | None = None,
    sample_weight: np.ndarray | None = None,
    task: Task | None = None,
    C: float = 1.0,
    normalize: Normalization = "trace",
    centering: str = "center",
) -> LearnedKernel:
    """Learn a combination of base kernels from a data set.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (m, d)
        Training rows, finite. Not modified.
    y : ndarray of shape (m,) or (m, q)
        Labels or numbers. Not modified.
    learner : str or Learner
        Name in `LEARNERS`, or a learner such as ``LpKRR(norm=1.5)``.
    family : KernelFamily, optional
        The p base kernels; None for learners that find their own (`ca`, `cr`, `rfm`).
    sample_weight : ndarray of shape (m,), optional
        Weights of the rows, not negative, for two-stage learners and `rfm`. A weight
        has the effect of that number of copies.
    task : {"classification", "regression"}, optional
        Inferred by default.
    C : float, default 1
        Inverse regularization strength of one-stage learners.
    normalize : {"trace", "frobenius", "none"}, default "trace"
        Scaling of the base kernels before learning.
    centering : {"center", "target", "none"}, default "center"
        Whether to center the base kernels in feature space. With "none", predictors
        have no intercept; with "target", the intercept is the mean target. Supported
        without centering: `l1-krr`, `l2-krr`, `lp-krr`, `nkrr`, `l1-svm`, `lp-svm`,
        `unif`, `align` and learners of uncentered alignments.

    Returns
    -------
    kernel : LearnedKernel
        Kernel with `weights`, `alignment` and `certificate`.

    Notes
    -----
    O(m^2 (d + p^2)) time in one pass over tiles, O(p m) memory.

    Examples
    --------
    >>> import numpy as np
    >>> from learnkernels import GaussianFamily, learn_kernel
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 5))
    >>> y = np.sign(X[:, 0] * X[:, 1] + 0.5 * X[:, 2])
    >>> learn_kernel(X, y, learner="alignf", family=GaussianFamily([0.01, 0.1, 1.0])).shares.round(2)
    array([0.  , 0.28, 0.72])
    """
    X = as_rows(X)
    learner = as_learner(learner)
    target = Target.of(y, task)
    m = X.shape[0]
    if len(target) != m:
        raise ValueError(
            f"y must have one entry per row of X, got {len(target)} for {m} rows."
        )
    options: dict[str, Any] = {"C": C, "normalize": normalize, "centering": centering}
    all_weights = as_sample_weight(sample_weight, m, zero=True)
    if all_weights is None:
        return learn_from_rows(learner, family, X, target, None, **options)
    rows, weights = counting_rows(all_weights)
    if len(rows) == m:
        return learn_from_rows(learner, family, X, target, weights, **options)
    kernel = learn_from_rows(
        learner, family, X[rows], target.take(rows), weights, **options
    )
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
    """Learn a kernel from checked rows whose weights are positive with mean one."""
    checked_centering = Centering.of(centering)
    learner.check(family, sample_weight, checked_centering)
    require_normalization(normalize)
    if isinstance(learner, KernelSearchLearner):
        return learner.learn_from_rows(X, target, [C], None, sample_weight)[0]
    assert family is not None  # checked
    family.check_rows(X)
    keep_origin = not learner.centered or not checked_centering.subtracts
    statistics = gram_statistics(
        family, X, target.Y, sample_weight=sample_weight, keep_origin=keep_origin
    )
    grid = [C]
    return learn_path(
        learner,
        family,
        X,
        statistics,
        target,
        grid,
        normalize=normalize,
        centering=centering,
    )[0]


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
    """Learn a kernel from alignment statistics of the training rows.

    Parameters
    ----------
    learner : str or Learner
        As in `learn_kernel`.
    family : KernelFamily
        Base kernels of the statistics.
    X : ndarray or CSR matrix of shape (n, d)
        Data set with the training rows at ``statistics.rows``.
    statistics : GramStatistics, FeatureStatistics or SampledStatistics
        Statistics of the training rows, for example
        ``statistics.restrict(training_folds)``. One-stage learners use only rows of a
        sample.
    target : Target, optional
        Target of all n rows, required by one-stage learners.
    C, normalize, centering
        As in `learn_kernel`.

    Returns
    -------
    kernel : LearnedKernel

    Notes
    -----
    Two-stage learners take O(p^3 + p m) and compute no kernel matrix. Constant rank-one
    features get weight zero; other constant base kernels raise an error.
    """
    grid = [C]
    return learn_path(
        learner,
        family,
        X,
        statistics,
        target,
        grid,
        normalize=normalize,
        centering=centering,
    )[0]


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
    """Learn one kernel per value of C, or a single kernel for all values.

    Parameters
    ----------
    learner, family, X, statistics, target, normalize, centering
        As in `learn_from_statistics`.
    grid : sequence of float
        Values of C, ascending; each problem starts from the previous solution.

    Returns
    -------
    kernels : tuple of LearnedKernel
        One per value of C from a one-stage learner; a single one from a two-stage
        learner.
    """
    learner = as_learner(learner)
    checked_centering = Centering.of(centering)
    require_normalization(normalize)
    learner.check(
        family if learner.takes_family else None,
        statistics.sample_weight,
        checked_centering,
    )
    if not learner.learns_kernel:
        raise ValueError(
            f"{learner.name} learns hypotheses and not a kernel; use KernelEnsemble.fit."
        )
    with blas_threads_for(statistics.n_rows):  # results depend on the number of threads
        problem = LearningProblem(
            cast(KernelFamily, family),
            X,
            statistics,
            target,
            grid,
            normalize,
            checked_centering,
        )
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
