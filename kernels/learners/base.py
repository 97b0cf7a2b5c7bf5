"""Base classes of learners, and the problem that a learner solves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy import sparse

from ..centering import Centering, alignment_of_matrix, mean_over
from ..engine.operators import GramOperator, gram_operator
from ..engine.workers import blas_threads_for
from ..families.base import KernelFamily, Rows, as_rows, move
from ..learned import LearnedKernel
from ..parameters import Parameterized, Value
from ..registry import LEARNERS, UNCENTERED
from ..solvers.certificate import Certificate, indefinite_kernels
from ..statistics.gram import AlignmentStatistics, Normalization, NormalizedProducts, gram_statistics
from ..targets import Target, Task


def require_family(family: object) -> None:
    """Raise ValueError for what is neither a family of base kernels nor None."""
    if family is None or isinstance(family, KernelFamily):
        return
    if isinstance(family, Learner) or (isinstance(family, str) and (family in LEARNERS or ":" in family)):
        raise ValueError(f"family must be a family of base kernels or None, got a learner; write learner={family!r}.")
    if isinstance(family, str):
        got, advice = repr(family), "give an object such as GaussianFamily([0.1, 1.0])"
    elif isinstance(family, type):
        got, advice = f"the class {family.__name__}", "give an object such as GaussianFamily([0.1, 1.0])"
    else:
        got = type(family).__name__
        advice = (
            "give for example GaussianFamily([0.1, 1.0]), or for matrices K1 and K2 over n rows "
            "PrecomputedFamily(numpy.stack([K1, K2])) with numpy.arange(n)[:, None] in place of X"
        )
    raise ValueError(f"family must be a family of base kernels or None, got {got}; {advice}.")


class Products(Protocol):
    """The matrix M of products of base kernels: an array, or formed when its entries are requested.

    A learner that calls `diagonal` alone costs no p by p matrix; one that needs the entries takes ``np.asarray(M)``.
    """

    def diagonal(self) -> np.ndarray:
        """Return the squared norms of the centered base kernels, shape (p,)."""

    def __array__(self, dtype: Any = None, /) -> np.ndarray:
        """Return all entries, shape (p, p)."""


@dataclass(frozen=True)
class Solution:
    """Weights of the base kernels, and the evidence that they are optimal.

    Attributes
    ----------
    weights : ndarray of shape (p,)
        mu; they apply to the base kernels as normalized by the caller. Two-stage learners give a direction, of unit
        2-norm; of one-stage learners the length is part of the solution.
    certificate : Certificate or None
        Evidence of optimality, where the learner solves an optimization problem.
    degree : int
        The kernel is ``offset + sum_k mu_k K_k`` raised to this power, entry by entry.
    offset : float
        Added before the power.
    """

    weights: np.ndarray
    certificate: Certificate | None = None
    degree: int = 1
    offset: float = 0.0

    @classmethod
    def of_direction(cls, v: np.ndarray, certificate: Certificate | None = None) -> Solution:
        """Return the solution along `v`; alignment does not depend on the length.

        Raises
        ------
        ValueError
            v is zero: no base kernel has a positive product with the target.
        """
        norm = np.linalg.norm(v)
        if norm == 0:
            raise ValueError("no base kernel aligns with the target (all weights are zero); try other base kernels.")
        return cls(v / norm, certificate)


def center_weights(center: float | Sequence[float], p: int, norm: float) -> np.ndarray:
    """Return mu_0 of p base kernels, given or as a multiple of the uniform weights of unit norm.

    Raises
    ------
    ValueError
        A weight is negative or not finite, or there is not one per base kernel.
    """
    given = np.asarray(center, dtype=np.float64)
    if not ((given >= 0) & (given < np.inf)).all():
        raise ValueError(f"center must be zero or positive, and finite, got {center}.")
    if given.ndim and given.shape != (p,):
        raise ValueError(f"center must be a number or {p} weights, one per base kernel, got shape {given.shape}.")
    return given.copy() if given.ndim else np.full(p, float(given) * float(p) ** (-1 / norm))


def require_solution(solution: Any, learner: str, n_kernels: int) -> Solution:
    """Return what a learner returned, or raise ValueError if it is no solution over so many base kernels."""
    if not isinstance(solution, Solution):
        got = type(solution).__name__
    elif not isinstance(weights := solution.weights, np.ndarray) or weights.dtype.kind not in "fiu":
        got = f"weights of type {getattr(weights, 'dtype', type(weights).__name__)}"
    elif weights.shape != (n_kernels,) or not np.isfinite(weights).all():
        got = f"weights of shape {weights.shape}" + ", not all finite" * (weights.shape == (n_kernels,))
    else:
        return solution
    raise ValueError(
        f"learner {learner} must return a Solution whose weights are an array of {n_kernels} finite numbers, one a "
        f"base kernel that is not constant, got {got}; correct its class."
    )


@dataclass(frozen=True, eq=False)
class LearningProblem:
    """Learning problem: training rows, their statistics, and the normalization of base kernels.

    Attributes
    ----------
    family : KernelFamily
        p base kernels; of no use to a learner that finds its own.
    X : ndarray or CSR matrix of shape (n, d)
        The data set that training rows are counted in; may be mapped from a file.
    statistics : AlignmentStatistics
        Of the training rows; a learner that finds its own base kernels takes the rows and their weights from them.
    target : Target or None
        Of all n rows; two-stage learners need none.
    grid : sequence of float, default (1.0,)
        Regularizations, ascending: C, or 1 / lambda.
    normalize : {"trace", "frobenius", "none"}, default "trace"
    centering : Centering
    """

    family: KernelFamily
    X: Rows
    statistics: AlignmentStatistics
    target: Target | None = None
    grid: Sequence[float] = (1.0,)
    normalize: Normalization = "trace"
    centering: Centering = Centering.CENTER

    @cached_property
    def scales(self) -> np.ndarray:
        """What each base kernel is divided by, shape (p,)."""
        return self.statistics.scales(self.normalize, self.centering.subtracts)

    @cached_property
    def usable(self) -> np.ndarray:
        """Positions of the base kernels that may carry weight."""
        return np.flatnonzero(~self.statistics.vanishing(self.centering.subtracts))

    @property
    def origin(self) -> np.ndarray:
        """What rows are moved by, shape (d,); zeros where that would change a kernel."""
        origin = self.statistics.origin
        moved = self.centering.subtracts or self.family.translation_invariant
        return origin if moved else np.zeros_like(origin)

    @cached_property
    def training_rows(self) -> Rows:
        """The training rows less `origin`, shape (m, d)."""
        return move(as_rows(self.X[self.statistics.rows]), self.origin)

    @property
    def shift(self) -> np.ndarray:
        """Constant that is subtracted from each base kernel, which centering does not see; zero without, shape (p,)."""
        statistics = self.statistics
        return statistics.shift if self.centering.subtracts else np.zeros(statistics.n_kernels)

    def kernel(
        self, learner: str, solution: Solution, scales: np.ndarray | None = None, C: float | None = None
    ) -> LearnedKernel:
        """Return the kernel of a solution over the usable base kernels; ValueError for what is no such solution."""
        statistics, solution = self.statistics, require_solution(solution, learner, len(self.usable))
        scales = self.scales if scales is None else scales
        weights, coefficients = np.zeros((2, statistics.n_kernels))
        weights[self.usable] = solution.weights
        coefficients[self.usable] = solution.weights / scales[self.usable]
        row_means = statistics.combined_row_means(coefficients)
        kernel = LearnedKernel(
            family=self.family,
            learner=learner,
            weights=weights,
            normalize=self.normalize,
            scales=scales,
            alignment=statistics.alignment(coefficients),
            alignments=statistics.alignments,
            certificate=solution.certificate,
            X=self.training_rows,
            origin=self.origin,
            rows=statistics.rows,
            shift=self.shift,
            row_means=row_means if self.centering.subtracts else np.zeros_like(row_means),
            degree=solution.degree,
            offset=solution.offset,
            C=C,
            sample_weight=statistics.sample_weight,
            traces=statistics.traces(self.centering.subtracts) if any(self.family.kernel_views) else None,
            centering=self.centering,
        )
        if kernel.degree == 1:
            return kernel
        w = statistics.sample_weight
        Y = statistics.targets - mean_over(statistics.targets, w)
        return replace(kernel, alignment=alignment_of_matrix(kernel.gram(), Y, w))


class Learner(Parameterized, ABC):
    """Algorithm that determines the weights of base kernels; its parameters are its fields.

    A custom learner is a frozen data class below `AlignmentLearner`, `JointLearner` or `KernelSearchLearner`, with
    one method. It is used wherever the name of a built-in one is; configurations call it ``module:Class``.

    Attributes
    ----------
    name : str
        As tables, reports and configurations call it.
    summary : str
        What it does, for help pages; by default the first line of the docstring, or the name where there is none.
    source : str
        Paper and equation.
    tasks : tuple of str
        The tasks it serves.
    suited : str or None
        The predictor that ``predictor="auto"`` takes on few rows where the learner solves no problem of one; None for
        that of the task.
    predictor : str or None
        The predictor whose problem it solves, krr or svm, which ``predictor="auto"`` takes; None for learners of
        weights alone.
    needs : str
        What it is given, for help pages.
    centered : bool
        Whether its alignments are those of centered base kernels, or of base kernels as they are.
    takes_uncentered : bool
        Whether it can do with base kernels that are not centered, for a predictor without intercept.
    two_stage : bool
        Whether its weights follow from alignments alone, which may be estimates from a sample of the rows.
    takes_weights : bool
        Whether rows may have weights.
    takes_family : bool
        Whether it weights given base kernels, or finds its own.
    signed : bool
        Whether weights may be negative.
    learns_kernel : bool
        Whether it learns a kernel, or hypotheses.
    sampled_by_default : bool
        Whether estimators sample many rows by default.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str] = ""
    tasks: ClassVar[tuple[Task, ...]] = ("classification", "regression")
    predictor: ClassVar[str | None] = None
    suited: ClassVar[str | None] = None
    needs: ClassVar[str]
    centered: ClassVar[bool] = True
    takes_uncentered: ClassVar[bool] = False
    two_stage: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False
    takes_family: ClassVar[bool] = True
    signed: ClassVar[bool] = False
    learns_kernel: ClassVar[bool] = True
    sampled_by_default: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in vars(cls):
            cls.name = f"{cls.__module__}:{cls.__qualname__}"
        elif cls.name in LEARNERS:
            cls.takes_uncentered = cls.name in UNCENTERED
        if "summary" not in vars(cls):
            cls.summary = (cls.__doc__ or cls.name).strip().partition("\n")[0].rstrip(".")

    @abstractmethod
    def learn(self, problem: LearningProblem) -> Any:
        """Return the kernels along the grid of a problem: one, or one each; see `learn_path`."""

    def require(self) -> None:
        """Raise ValueError if a parameter is out of its range; what can be said without rows."""

    def for_features(self, features: Any) -> Learner:
        """Return the learner for the features of a table, `TableFeatures`; the same unless it asks what they are."""
        return self

    def searches_sample(self, statistics: AlignmentStatistics) -> bool:
        """Return whether all that it learns of these rows comes from a random sample of them."""
        return False

    def takes_sparse(self, family: KernelFamily | None) -> bool:
        """Return whether sparse rows will do for its base kernels, given or found."""
        return getattr(family, "takes_sparse", True)

    def check(
        self,
        family: KernelFamily | None,
        sample_weight: np.ndarray | None = None,
        centering: Centering = Centering.CENTER,
    ) -> None:
        """Raise ValueError for a parameter out of its range, or what this learner does not take.

        It is called before any learning: base kernels, weights of rows and a centering must suit the learner.
        """
        self.require()
        if sample_weight is not None and not self.takes_weights:
            raise ValueError(
                f"{self.name} does not support sample_weight or class_weight. Use a learner that does: rfm, or a "
                "two-stage learner such as alignf."
            )
        require_family(family)
        if family is not None and not self.takes_family:
            raise ValueError(
                f"{self.name} finds its own base kernels and takes no family. Remove family; the parameters of "
                f"{type(self).__name__} restrict the kernels."
            )
        if family is None and self.takes_family:
            raise ValueError(f"{self.name} weighs given base kernels; give family, or use ca, cr or rfm.")
        if not centering.subtracts and not self.takes_uncentered:
            raise ValueError(
                f"{self.name} requires centering='center', got {centering.value!r}. These learners do not: "
                f"{', '.join(UNCENTERED)}."
            )


class AlignmentLearner(Learner):
    """Base of two-stage learners: weights from alignments alone; any predictor follows.

    A subclass has `fit_weights`. Its cost is that of (M, a): no tile is computed, whatever the number of rows.
    """

    needs = "alignments"
    two_stage = takes_weights = True

    @abstractmethod
    def fit_weights(self, M: Products, a: np.ndarray) -> Solution:
        """Return the weights of p base kernels.

        Parameters
        ----------
        M : ndarray or Products of shape (p, p)
            Frobenius products of the base kernels, centered unless `centered` is false: symmetric, positive
            semi-definite, diagonal positive. One that only calls ``M.diagonal()`` costs no p by p matrix.
        a : ndarray of shape (p,)
            Products with the target kernel; not negative, up to rounding.

        Returns
        -------
        solution : Solution
            Of unit 2-norm: alignment does not depend on the length.

        Raises
        ------
        ValueError
            No base kernel aligns with the target.
        """

    def learn(self, problem: LearningProblem) -> tuple[LearnedKernel, ...]:
        """Return one kernel for the whole grid."""
        statistics, usable = problem.statistics, problem.usable
        statistics.require_informative(problem.centering.subtracts)
        # Of kernels that are not centered a constant one may be used, but has no centered alignment.
        aligned = ~statistics.vanishing(self.centered)[usable]
        M = NormalizedProducts(statistics, usable[aligned], problem.scales[usable[aligned]], self.centered)
        solution = self.fit_weights(M, M.target)
        if not aligned.all():
            weights = np.zeros(len(usable))
            weights[aligned] = solution.weights
            solution = replace(solution, weights=weights)
        return (problem.kernel(self.name, solution),)


class JointLearner(Learner):
    """Base of one-stage learners: weights together with a predictor, for each value of C.

    A subclass has `solve`, and says whose problem it solves in `predictor`.
    """

    needs = "base kernels, for each C"

    @abstractmethod
    def solve(self, grams: GramOperator, target: Target, C: float = 1.0, start: np.ndarray | None = None) -> Solution:
        """Return the weights of p base kernels.

        Parameters
        ----------
        grams : GramOperator
            p base kernels over m rows, scaled so that their mean diagonals have mean one; less the mean feature unless
            their `centering` says otherwise.
        target : Target
            Of those rows.
        C : float, default 1
            C, or 1 / lambda.
        start : ndarray of shape (p,), optional
            Feasible weights to begin with, such as those of a neighboring regularization.

        Returns
        -------
        solution : Solution
            mu, whose length matters, and a certificate.

        Raises
        ------
        ValueError
            A parameter is out of its range, or the target is not of the learner's tasks.

        Warns
        -----
        ConvergenceWarning
            The certificate stays above the tolerance.
        """

    def learn(self, problem: LearningProblem) -> tuple[LearnedKernel, ...]:
        """Return one kernel per value of C; each problem starts from the solution of the one before."""
        usable, statistics = problem.usable, problem.statistics
        statistics.require_informative(problem.centering.subtracts)
        if problem.target is None:
            raise ValueError(f"{self.name} learns weights and predictor together and needs the target; give target.")
        training, kernels, start = problem.target.take(statistics.rows), [], None
        # One number for all: the mean diagonals of the normalized base kernels get mean one.
        traces = statistics.traces(problem.centering.subtracts)[usable]
        diagonals = traces / problem.scales[usable] / statistics.total_weight
        scales = problem.scales * diagonals.mean()
        with blas_threads_for(statistics.n_rows):
            grams = gram_operator(
                problem.family.subset(usable.tolist()),
                problem.training_rows,
                shift=problem.shift[usable],
                scales=scales[usable],
                centering=problem.centering,
            )
            for value in problem.grid:
                solution = self._solve_naming_indefinite(grams, training, value, start)
                kernels.append(problem.kernel(self.name, solution, scales, value))
                start = solution.weights
        return tuple(kernels)

    def _solve_naming_indefinite(
        self, grams: GramOperator, target: Target, C: float, start: np.ndarray | None
    ) -> Solution:
        """Return what `solve` does; ValueError that names a base kernel which is not positive semi-definite."""
        try:
            return self.solve(grams, target, C, start)
        except ArithmeticError:
            indefinite = indefinite_kernels(grams)
            if not indefinite:
                raise
            raise ValueError(f"{indefinite}.") from None


class KernelSearchLearner(Learner):
    """Base of learners that find their own base kernels in a continuous family.

    A subclass has `find`; with a `predictor`, it learns again for each regularization. Its `row_limits` are the most
    rows of a search that give medians of distances, and units of base kernels.
    """

    needs = "the rows"
    takes_family = False
    row_limits: ClassVar[dict[str, int]] = {}

    @abstractmethod
    def find(self, X: Rows, target: Target, C: float = 1.0) -> FoundKernels:
        """Return base kernels and their weights.

        Parameters
        ----------
        X : ndarray or CSR matrix of shape (m, d)
            Training rows. Not modified.
        target : Target
            Of those rows.
        C : float, default 1
            C, or 1 / lambda, for centered kernels as they are; for learners with a `predictor`.
        sample_weight : ndarray of shape (m,), optional
            Weights of the rows; given to learners alone that have `takes_weights`, where there are some.

        Returns
        -------
        found : FoundKernels

        Raises
        ------
        ValueError
            A parameter is out of its range.
        """

    def learn(self, problem: LearningProblem) -> tuple[LearnedKernel, ...]:
        """Return one kernel, or one per value of C; of the statistics of a problem the rows and weights alone count."""
        if problem.target is None:
            raise ValueError(f"{self.name} searches base kernels for a target and needs the target; give target.")
        statistics = problem.statistics
        return self.learn_from_rows(problem.X, problem.target, problem.grid, statistics.rows, statistics.sample_weight)

    def learn_from_rows(
        self,
        X: Rows,
        target: Target,
        grid: Sequence[float],
        rows: np.ndarray | None = None,
        weights: np.ndarray | None = None,
    ) -> tuple[LearnedKernel, ...]:
        """Return one kernel, or one per value of C, from some rows of a data set, all by default, and their weights."""
        if sparse.issparse(X) and not self.takes_sparse(None):
            raise ValueError(f"{self.name} needs dense rows, got sparse ones. Use X.toarray(), or learner='alignf'.")
        rows = np.arange(X.shape[0]) if rows is None else rows
        taken, training, kernels = as_rows(X[rows]), target.take(rows), []
        if not np.ptp(training.Y, axis=0).any():
            raise ValueError("Y must vary, got a constant target, from which no kernel can be learned.")
        weighted = {} if weights is None else {"sample_weight": weights}
        with blas_threads_for(min(len(rows), getattr(self, "search_rows", len(rows)))):
            for value in grid if self.predictor else [None]:
                found = self.find(taken, training, 1.0 if value is None else value, **weighted)
                if not isinstance(found, FoundKernels):
                    raise ValueError(
                        f"learner {self.name} must return FoundKernels, got {type(found).__name__}; correct its class."
                    )
                of_found = gram_statistics(found.family, taken, training.Y, sample_weight=weights)
                of_found = replace(of_found, rows=rows[of_found.rows])
                make = Solution.of_direction if value is None else Solution
                solution = make(found.weights, found.certificate)
                kernel = LearningProblem(found.family, X, of_found, normalize="none").kernel(
                    self.name, solution, C=value
                )
                kernels.append(replace(kernel, parameters=found.parameters, history=found.alignments))
        return tuple(kernels)


@dataclass(frozen=True, eq=False, repr=False)
class FoundKernels(Value):
    """Base kernels that a continuous learner found, and their weights.

    Attributes
    ----------
    family : KernelFamily
        The t base kernels found.
    weights : ndarray of shape (t,)
        mu, for the centered base kernels as they are.
    parameters : ndarray of shape (t, r)
        sigma of each.
    alignments : tuple of float
        Alignment after each addition, where it never falls; of learned metrics that of each round, from round 0 on, on
        rows that were not used to learn it.
    certificate : Certificate or None
        Evidence of optimality, where there is any.
    """

    family: KernelFamily
    weights: np.ndarray
    parameters: np.ndarray
    alignments: tuple[float, ...]
    certificate: Certificate | None = None
