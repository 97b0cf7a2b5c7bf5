"""A kernel learned from data: weights, and all that is needed to apply it to new rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from learnkernels.kernels.centering import as_sample_weight, center_gram, mean_over, subtract_means, weighted_by_roots
from learnkernels.kernels.engine.combination import Combination
from learnkernels.kernels.engine.operators import entrywise_power, gram_operator
from learnkernels.kernels.engine.threads import blas_threads_for
from learnkernels.kernels.families.base import KernelFamily, Rows, as_rows, move
from learnkernels.kernels.families.cosine import require_directions
from learnkernels.kernels.learners import LEARNERS, Certificate, Learner, Solution
from learnkernels.kernels.moments.gram import gram_moments
from learnkernels.kernels.moments.normalisation import (
    NORMALISATIONS,
    Normalisation,
    NormalisedProducts,
    refuse_weights,
    require_informative,
)
from learnkernels.kernels.moments.protocol import Moments
from learnkernels.kernels.moments.sampled import SampledMoments, Sampling
from learnkernels.kernels.parameters import Value
from learnkernels.kernels.targets import Target, Task

SHOWN_WEIGHTS = 3
"""Largest weights that `repr` of a learned kernel shows."""


@dataclass(frozen=True, eq=False, repr=False)
class LearnedKernel(Value):
    r"""A weighted sum of centered, normalised base kernels, or a power of it.

    .. math:: K_\mu(x, x') = \Big( c + \sum_k \frac{\mu_k}{t_k} K_{kc}(x, x') \Big)^d

    where each base kernel is centered with the training rows' means and divided by its `scale` t_k. Where training rows
    have weights w, the mean feature is the weighted one: with W the sum of the weights,

    .. math:: K_{kc}(x, x') = K_k(x, x') - \tfrac1W \sum_i w_i K_k(x, x_i) - \tfrac1W \sum_i w_i K_k(x_i, x')
              + \tfrac1{W^2} \sum_{ij} w_i w_j K_k(x_i, x_j)

    Attributes
    ----------
    family : KernelFamily
        The p base kernels.
    learner : str
        Name of the learner, from the table of learners.
    weights : ndarray of shape (p,)
        mu; they apply to the base kernels as normalised. Of unit 2-norm from two-stage learners; of one-stage learners,
        the solution of their problem, length included.
    normalise : {"trace", "frobenius", "none"}
        How the base kernels were normalised.
    scales : ndarray of shape (p,)
        t, computed on the training rows; a feature that is constant there has scale and weight zero. For one-stage
        learners times one number, so that the normalised base kernels' mean diagonals have mean one.
    alignment : float
        Centered alignment of the kernel with the target kernel on the training rows.
    alignments : ndarray of shape (p,)
        The same for each base kernel.
    certificate : Certificate or None
        Evidence of optimality, where the learner solves an optimisation problem.
    X : ndarray or CSR matrix of shape (m, d)
        The training rows, less `origin`.
    rows : ndarray of shape (m,)
        Position of each training row in the data set that the moments were taken over.
    origin : ndarray of shape (d,)
        Subtracted from every row before a kernel sees it: the mean row where that changes no centered kernel, or zero.
    shift, row_means : ndarray of shape (p,) and (m,)
        Centering state: a constant subtracted from each base kernel, and the row means of the weighted sum of what is
        left; weighted means where rows have weights.
    degree : int
        d.
    offset : float
        c.
    regularisation : float or None
        For one-stage learners the regularisation that the weights were learned with: C, or 1 / lambda.
    parameters : ndarray of shape (p, r) or None
        The sigma that a continuous learner found for each base kernel.
    sample_weight : ndarray of shape (m,) or None
        Weight of each training row, one of weight w counting as w copies; None where each counts once.
    sampling : Sampling or None
        Where the training rows are a sample of more: error bars of `alignment`, `alignments` and `weights`. What a
        two-stage learner tells are then estimates for all rows, and so are the scales; the centering is the sample's.
    """

    family: KernelFamily
    learner: str
    weights: np.ndarray
    normalise: Normalisation
    scales: np.ndarray
    alignment: float
    alignments: np.ndarray
    certificate: Certificate | None
    X: Rows
    rows: np.ndarray
    origin: np.ndarray
    shift: np.ndarray
    row_means: np.ndarray
    degree: int = 1
    offset: float = 0.0
    regularisation: float | None = None
    parameters: np.ndarray | None = None
    sample_weight: np.ndarray | None = None
    sampling: Sampling | None = None

    def __repr__(self) -> str:
        largest = np.argsort(-np.abs(self.weights), kind="stable")[:SHOWN_WEIGHTS]
        shown = [f"{self.family.names[k]} {self.weights[k]:.3g}" for k in largest if self.weights[k]]
        shown += [f"{len(self.weights) - len(shown)} others"] * (len(shown) < len(self.weights))
        return (
            f"LearnedKernel({self.learner!r}, {len(self.weights)} kernels, {len(self.rows)} rows, "
            f"alignment={self.alignment:.3g}, weights: {', '.join(shown)})"
        )

    @property
    def shares(self) -> np.ndarray:
        """The weights as shares of the sum of their sizes, shape (p,)."""
        return self.weights / np.abs(self.weights).sum()

    @property
    def indefinite(self) -> bool:
        """Whether a weight is negative, so that the kernel may have negative eigenvalues."""
        return bool((self.weights < 0).any())

    @cached_property
    def combination(self) -> Combination:
        """The weighted sum of the base kernels less `shift`, of rows less `origin`, before it is centered."""
        used = self.weights != 0  # a feature that is constant has scale zero
        coefficients = np.divide(self.weights, self.scales, out=np.zeros(len(self.weights)), where=used)
        return Combination(self.family, coefficients, self.shift)

    @property
    def _grand_mean(self) -> float:
        return float(mean_over(self.row_means, self.sample_weight))

    def gram(self) -> np.ndarray:
        """Return the Gram matrix of the training rows, shape (m, m); centered before offset and power.

        Notes
        -----
        O(m^2) memory for the result alone; base kernels are formed by tiles and those of zero weight not at all.
        Rank-one features are not formed either: the result is one product of weighted features.
        """
        K = self._combine(self.X, self.X, symmetric=True)
        return self._power(subtract_means(K, self.row_means, self.row_means, self._grand_mean))

    def cross_gram(self, X_new: Rows) -> np.ndarray:
        """Return the kernel between new rows and the training rows, centered with the training rows alone.

        Parameters
        ----------
        X_new : ndarray or CSR matrix of shape (n, d)
            New rows. Not modified.

        Returns
        -------
        K_cross : ndarray of shape (n, m)

        Raises
        ------
        ValueError
            The number of features differs from that of the training rows, or a value is not finite.
        """
        X_new = as_rows(X_new)
        if X_new.shape[1] != self.X.shape[1]:
            raise ValueError(
                f"X_new must have the {self.X.shape[1]} features of the training rows, got {X_new.shape[1]}; "
                "give the same columns in the same order."
            )
        K = self._combine(move(X_new, self.origin), self.X)
        rows = mean_over(K, self.sample_weight, axis=1)
        return self._power(subtract_means(K, rows, self.row_means, self._grand_mean))

    def alignment_with(self, X_new: Rows, target: Target, sample_weight: np.ndarray | None = None) -> float:
        """Return the centered alignment of the kernel among new rows with their target kernel.

        Parameters
        ----------
        X_new : ndarray or CSR matrix of shape (n, d)
            New rows. Not modified.
        target : Target
            Of those rows.
        sample_weight : ndarray of shape (n,), optional
            Positive weights of the new rows; by default each counts once, whatever the training rows weigh.

        Notes
        -----
        Centered on the new rows themselves; O(n^2) memory.
        """
        X_new = move(as_rows(X_new), self.origin)
        w = as_sample_weight(sample_weight, X_new.shape[0])
        K = self._power(center_gram(self._combine(X_new, X_new, symmetric=True), w))
        return _alignment(K, target.Y - mean_over(target.Y, w), w)

    def _power(self, K: np.ndarray) -> np.ndarray:
        K += self.offset
        return K if self.degree == 1 else entrywise_power(K, self.degree)

    def _combine(self, A: Rows, B: Rows, symmetric: bool = False) -> np.ndarray:
        """Return the weighted sum of the shifted base kernels, shape (a, b), by tiles."""
        return self.combination.matrix(A, B, symmetric)


def _alignment(K: np.ndarray, Y: np.ndarray, w: np.ndarray | None) -> float:
    """Return the centered alignment of a kernel with ``Y Y'``, of targets less their mean, over rows of weights w."""
    K = weighted_by_roots(center_gram(K, w), w)
    Y = Y if w is None else Y * np.sqrt(w)[:, None]
    return float(np.vdot(Y, K @ Y) / (np.linalg.norm(K) * np.linalg.norm(Y.T @ Y)))


def learn_from_moments(
    name: str,
    family: KernelFamily,
    X: Rows,
    moments: Moments,
    *,
    target: Target | None = None,
    regularisation: float = 1.0,
    normalise: Normalisation = "trace",
    **params: Any,
) -> LearnedKernel:
    """Return the kernel that a learner finds for some rows, given their moments.

    Parameters
    ----------
    name : str
        A learner of the table.
    family : KernelFamily
        The base kernels of the moments.
    X : ndarray or CSR matrix of shape (n, d)
        The data set that ``moments.rows`` counts in. Not modified.
    moments : GramMoments, FeatureMoments or SampledMoments
        Statistics of the training rows, for example ``moments.restrict(training_folds)``. Where they are of weighted
        rows, the kernel is: two-stage learners alone take them. Of a sample they give the kernel error bars; other
        learners learn from the sampled rows alone.
    target : Target, optional
        Of all n rows; one-stage learners need it.
    regularisation : float, default 1
        Of the predictor that a one-stage learner learns together with the weights: C, or 1 / lambda, for a kernel of
        mean diagonal one. Not used by two-stage learners.
    normalise : {"trace", "frobenius", "none"}, default "trace"
        Scaling of the centered base kernels before the learner sees them.
    **params
        Parameters of the learner.

    Returns
    -------
    kernel : LearnedKernel

    Raises
    ------
    ValueError
        The learner or the normalisation is unknown, a base kernel or the target is constant on these rows, no base
        kernel aligns with the target, a one-stage learner is given no target, or a learner that does not learn from
        moments alone is given rows with weights.

    Notes
    -----
    For a two-stage learner O(p^3 + p m): no tile is computed, and M is formed for a learner that asks for more of it
    than its diagonal. For a one-stage learner see its own cost; base kernels are held where they fit into memory. A
    rank-one feature that is constant on these rows gets weight zero, without a word: n-grams that no training text
    holds are normal. Any other base kernel that is constant is refused.
    """
    return learn_path(name, family, X, moments, target, [regularisation], normalise=normalise, **params)[0]


def learn_path(
    name: str,
    family: KernelFamily,
    X: Rows,
    moments: Moments,
    target: Target | None,
    grid: Sequence[float],
    *,
    normalise: Normalisation = "trace",
    **params: Any,
) -> tuple[LearnedKernel, ...]:
    """Return the kernels that a learner finds along a path of regularisations.

    Parameters
    ----------
    name : str
        A learner of the table.
    family, X, moments, target
        As in `learn_from_moments`.
    grid : sequence of float
        Regularisations, ascending; each problem starts from the solution of the one before.
    normalise, **params
        As in `learn_from_moments`.

    Returns
    -------
    kernels : tuple of LearnedKernel
        One a regularisation from a one-stage learner; a single one from a two-stage learner, whose kernel does not
        depend on it.

    Raises
    ------
    ValueError
        As `learn_from_moments`.
    """
    if name not in LEARNERS:
        raise ValueError(f"learner must be one of {', '.join(sorted(LEARNERS))}, got {name!r}.")
    if normalise not in NORMALISATIONS:
        raise ValueError(f"normalise must be one of {', '.join(NORMALISATIONS)}, got {normalise!r}.")
    kernels = _learn_path(name, family, X, moments, target, grid, normalise, params)
    if isinstance(moments, SampledMoments):
        sampling = Sampling.of(moments, name, normalise, **params)
        kernels = tuple(replace(kernel, sampling=sampling) for kernel in kernels)
    return kernels


def _learn_path(
    name: str,
    family: KernelFamily,
    X: Rows,
    moments: Moments,
    target: Target | None,
    grid: Sequence[float],
    normalise: Normalisation,
    params: dict[str, Any],
) -> tuple[LearnedKernel, ...]:
    """Return the kernels of `learn_path`, without the error bars of a sample."""
    learner = LEARNERS[name]
    if "moments" not in learner.needs:
        refuse_weights(name, moments.sample_weight)
    if learner.needs == "continuous":
        return _learn_continuous(learner, name, as_rows(X), moments.rows, target, grid, params)
    if learner.needs == "rows":
        raise ValueError(f"{name} learns hypotheses and not a kernel; use KernelEnsemble.fit.")
    require_informative(moments)
    rows = TrainingRows.of(name, family, X, moments, normalise)
    if learner.needs != "grams":
        M = NormalisedProducts(moments, rows.varying, rows.scales[rows.varying], learner.needs == "moments")
        return (rows.kernel(learner.solve(M, M.target, **params)),)
    if target is None:
        raise ValueError(f"{name} learns weights and predictor together and needs the target; give target.")
    rows, training = rows.with_unit_diagonal(), target.take(moments.rows)
    with blas_threads_for(moments.n_rows):
        varying = rows.varying
        grams = gram_operator(
            family.subset(varying.tolist()), rows.X, shift=moments.shift[varying], scales=rows.scales[varying]
        )
        kernels, start = [], None
        for value in grid:
            solution = learner.solve(grams, training, regularisation=value, start=start, **params)
            kernels.append(rows.kernel(solution, regularisation=value))
            start = solution.weights
    return tuple(kernels)


def _learn_continuous(
    learner: Learner,
    name: str,
    X: Rows,
    rows: np.ndarray,
    target: Target | None,
    grid: Sequence[float],
    params: dict[str, Any],
) -> tuple[LearnedKernel, ...]:
    """Return the kernels of a learner that finds its own base kernels: one, or one a regularisation."""
    if target is None:
        raise ValueError(f"{name} searches base kernels for a target and needs it; give target.")
    training = target.take(rows)
    each: list[float | None] = list(grid) if learner.predictor else [None]
    kernels = []
    with blas_threads_for(len(rows)):
        for value in each:
            found = learner.solve(X[rows], training, **params, **({} if value is None else {"regularisation": value}))
            moments = gram_moments(found.family, X[rows], training.Y)
            taken = TrainingRows.of(name, found.family, X, replace(moments, rows=rows[moments.rows]), "none")
            weights = found.weights if value is not None else found.weights / np.linalg.norm(found.weights)
            kernel = taken.kernel(Solution(weights, found.certificate), regularisation=value)
            kernels.append(replace(kernel, parameters=found.parameters))
    return tuple(kernels)


@dataclass(frozen=True)
class TrainingRows:
    """What turns a learner's solution into a kernel: the rows it was learned on, and how base kernels were normalised.

    Attributes
    ----------
    learner : str
    family : KernelFamily
    X : ndarray or CSR matrix of shape (m, d)
        Training rows, less the moments' origin.
    moments : GramMoments or FeatureMoments
    normalise : {"trace", "frobenius", "none"}
    scales : ndarray of shape (p,)
    varying : ndarray of int of shape (k,)
        Positions of the base kernels that may carry weight.
    """

    learner: str
    family: KernelFamily
    X: Rows
    moments: Moments
    normalise: Normalisation
    scales: np.ndarray
    varying: np.ndarray

    @classmethod
    def of(
        cls, learner: str, family: KernelFamily, X: Rows, moments: Moments, normalise: Normalisation
    ) -> TrainingRows:
        """Take the training rows out of a data set, which may be mapped from a file."""
        X = move(as_rows(X[moments.rows]), moments.origin)
        return cls(
            learner,
            family,
            X,
            moments,
            normalise,
            NORMALISATIONS[normalise](moments),
            np.flatnonzero(~moments.constant),
        )

    def with_unit_diagonal(self) -> TrainingRows:
        """Return the same with all scales times one number: the mean diagonals of the base kernels get mean one."""
        diagonals = self.moments.centered_traces[self.varying] / self.scales[self.varying]
        diagonals /= self.moments.total_weight
        return replace(self, scales=self.scales * diagonals.mean())

    def kernel(self, solution: Solution, regularisation: float | None = None) -> LearnedKernel:
        """Return the kernel of a solution over the varying base kernels."""
        moments = self.moments
        weights, coefficients = np.zeros(moments.n_kernels), np.zeros(moments.n_kernels)
        weights[self.varying] = solution.weights
        coefficients[self.varying] = solution.weights / self.scales[self.varying]
        kernel = LearnedKernel(
            family=self.family,
            learner=self.learner,
            weights=weights,
            normalise=self.normalise,
            scales=self.scales,
            alignment=moments.alignment(coefficients),
            alignments=moments.alignments,
            certificate=solution.certificate,
            X=self.X,
            origin=moments.origin,
            rows=moments.rows,
            shift=moments.shift,
            row_means=moments.combined_row_means(coefficients),
            degree=solution.degree,
            offset=solution.offset,
            regularisation=regularisation,
            sample_weight=moments.sample_weight,
        )
        if kernel.degree == 1:
            return kernel
        w = moments.sample_weight
        Y = moments.targets - mean_over(moments.targets, w)
        return replace(kernel, alignment=_alignment(kernel.gram(), Y, w))


def learn_kernel(
    name: str,
    family: KernelFamily | None,
    X: Rows,
    y: np.ndarray,
    *,
    sample_weight: np.ndarray | None = None,
    task: Task | None = None,
    regularisation: float = 1.0,
    normalise: Normalisation = "trace",
    **params: Any,
) -> LearnedKernel:
    """Return the kernel that a learner finds for a data set.

    Parameters
    ----------
    name : str
        A learner of the table `LEARNERS`.
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
        By default numbers are a regression (their values are used as they are) and everything else a classification.
    regularisation : float, default 1
        Of the predictor that a one-stage learner learns together with the weights: C, or 1 / lambda.
    normalise : {"trace", "frobenius", "none"}, default "trace"
        Scaling of the centered base kernels before the learner sees them.
    **params
        Parameters of the learner.

    Returns
    -------
    kernel : LearnedKernel
        With `weights`, `alignment` and `certificate`.

    Raises
    ------
    ValueError
        As `gram_moments`, `Target.of` and `learn_from_moments`.

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
    X = as_rows(X)
    if name not in LEARNERS:
        raise ValueError(f"learner must be one of {', '.join(sorted(LEARNERS))}, got {name!r}.")
    if "moments" not in LEARNERS[name].needs:
        refuse_weights(name, sample_weight)
    target = Target.of(y, task)
    if LEARNERS[name].needs == "continuous":
        if len(target) != X.shape[0]:
            raise ValueError(f"y must have one entry a row of X, got {len(target)} for {X.shape[0]} rows.")
        rows = np.arange(X.shape[0])
        return _learn_continuous(LEARNERS[name], name, X, rows, target, [regularisation], params)[0]
    if family is None:
        raise ValueError(f"{name} weighs given base kernels; give family, or use ca or cr.")
    require_directions(family, X)
    keep_origin = LEARNERS[name].needs == "uncentered moments"
    moments = gram_moments(family, X, target.Y, sample_weight=sample_weight, keep_origin=keep_origin)
    return learn_from_moments(
        name, family, X, moments, target=target, regularisation=regularisation, normalise=normalise, **params
    )
