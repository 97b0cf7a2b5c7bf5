"""From a data set, or its statistics, to a learned kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from learnkernels.kernels.centering import Centering
from learnkernels.kernels.engine.threads import blas_threads_for
from learnkernels.kernels.families.base import KernelFamily, Rows, as_rows
from learnkernels.kernels.families.products import require_directions
from learnkernels.kernels.learned import LearnedKernel
from learnkernels.kernels.learners import KernelSearchLearner, Learner, LearningProblem, as_learner
from learnkernels.kernels.parameters import old_names
from learnkernels.kernels.statistics.base import AlignmentStatistics, Normalization, require_normalization
from learnkernels.kernels.statistics.gram import gram_statistics
from learnkernels.kernels.statistics.sampled import SampledStatistics, Sampling
from learnkernels.kernels.targets import Target, Task


@old_names({"regularisation": "C", "normalise": "normalize"})
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
        Weights of the rows, positive: one of weight w counts as w copies of it, in the weights of the kernels and in
        their centering. For two-stage learners; by default each row counts once. Not modified.
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
    learner.check(family, sample_weight, Centering.of(centering))
    require_normalization(normalize)
    if isinstance(learner, KernelSearchLearner):
        if len(target) != X.shape[0]:
            raise ValueError(f"y must have one entry per row of X, got {len(target)} for {X.shape[0]} rows.")
        return learner.learn_from_rows(X, target, [C], None, sample_weight)[0]
    assert family is not None  # checked
    require_directions(family, X)
    keep_origin = not learner.centered or not Centering.of(centering).subtracts
    statistics = gram_statistics(family, X, target.Y, sample_weight=sample_weight, keep_origin=keep_origin)
    grid = [C]
    return learn_path(learner, family, X, statistics, target, grid, normalize=normalize, centering=centering)[0]


@old_names({"regularisation": "C", "normalise": "normalize"})
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
