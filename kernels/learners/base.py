"""Base classes of learners, and the problem that a learner solves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol, cast

import numpy as np
from scipy import sparse

from ..base import Parameterized, Value
from ..centering import Centering, alignment_of_matrix, mean_over
from ..engine.operators import GramOperator, gram_operator
from ..engine.workers import blas_threads_for
from ..families.base import KernelFamily, Rows, as_rows, move
from ..learned_kernel import LearnedKernel
from ..registry import LEARNERS, UNCENTERED
from ..solvers.certificate import Certificate, indefinite_kernels
from ..statistics.gram import (
    AlignmentStatistics,
    Normalization,
    NormalizedProducts,
    gram_statistics,
)
from ..targets import Target, Task


def require_family(family: object) -> None:
    if family is None or isinstance(family, KernelFamily):
        return
    names_learner = isinstance(family, str) and (family in LEARNERS or ":" in family)
    if names_learner or isinstance(family, Learner):
        raise ValueError(
            f"family must be a family of base kernels or None, got a learner; write learner={family!r}."
        )
    if isinstance(family, str | type):
        description = (
            repr(family) if isinstance(family, str) else f"the class {family.__name__}"
        )
        raise ValueError(
            f"family must be a family of base kernels or None, got {description}; give an object such as "
            "GaussianFamily([0.1, 1.0])."
        )
    raise ValueError(
        f"family must be a family of base kernels or None, got {type(family).__name__}; give for example "
        "GaussianFamily([0.1, 1.0]), or for matrices K1 and K2 over n rows PrecomputedFamily(numpy.stack([K1, K2])) "
        "with numpy.arange(n)[:, None] in place of X."
    )


class Products(Protocol):
    """Matrix of the Frobenius products of base kernels, possibly computed on request.

    ``M.diagonal()`` needs no p by p matrix; ``np.asarray(M)`` forms all entries.
    """

    def diagonal(self) -> np.ndarray:
        """Return the squared norms of the base kernels, shape (p,)."""

    def __array__(self, dtype: Any = None, /) -> np.ndarray:
        """Return all entries, shape (p, p)."""


@dataclass(frozen=True)
class Solution:
    """Result of a learner: weights of base kernels and a certificate of optimality.

    Attributes
    ----------
    weights : ndarray of shape (p,)
        Weights mu of the normalized base kernels; two-stage learners give unit 2-norm.
    certificate : Certificate or None
        None if the learner solves no optimization problem.
    degree : int
        Entrywise power of the kernel ``offset + sum_k mu_k K_k``.
    offset : float
        Constant added before the power.
    """

    weights: np.ndarray
    certificate: Certificate | None = None
    degree: int = 1
    offset: float = 0.0

    @classmethod
    def of_direction(
        cls, v: np.ndarray, certificate: Certificate | None = None
    ) -> Solution:
        """Return a solution with weights `v`, scaled to unit norm; ValueError if zero."""
        norm = np.linalg.norm(v)
        if norm == 0:
            raise ValueError(
                "no base kernel aligns with the target (all weights are zero); try other base kernels."
            )
        return cls(v / norm, certificate)


def center_weights(center: float | Sequence[float], p: int, norm: float) -> np.ndarray:
    """Return the p center weights of a norm ball; a number is the norm of equal weights."""
    mu_0 = np.asarray(center, dtype=np.float64)
    if not ((mu_0 >= 0) & (mu_0 < np.inf)).all():
        raise ValueError(f"center must be zero or positive, and finite, got {center}.")
    if mu_0.ndim == 0:
        return np.full(p, float(mu_0) * float(p) ** (-1 / norm))
    if mu_0.shape != (p,):
        raise ValueError(
            f"center must be a number or {p} weights, one per base kernel, got shape {mu_0.shape}."
        )
    return mu_0.copy()


def require_solution(solution: Any, learner: str, n_kernels: int) -> Solution:
    """Return a learner's solution; ValueError if it is invalid."""
    defect = _defect_of(solution, n_kernels)
    if not defect:
        return cast(Solution, solution)
    raise ValueError(
        f"learner {learner} must return a Solution whose weights are an array of {n_kernels} finite numbers, one per "
        f"base kernel that is not constant, got {defect}; correct its class."
    )


def _defect_of(solution: Any, n_kernels: int) -> str:
    if not isinstance(solution, Solution):
        return type(solution).__name__
    weights: Any = solution.weights
    if not isinstance(weights, np.ndarray):
        return f"weights of type {getattr(weights, 'dtype', type(weights).__name__)}"
    if weights.dtype.kind not in "fiu":
        return f"weights of type {weights.dtype}"
    if weights.shape != (n_kernels,):
        return f"weights of shape {weights.shape}"
    if not np.isfinite(weights).all():
        return f"weights of shape {weights.shape}, not all finite"
    return ""


@dataclass(frozen=True, eq=False)
class LearningProblem:
    """Input of a learner: training rows, their alignment statistics, and base kernels.

    Attributes
    ----------
    family : KernelFamily
        The p base kernels; ignored by learners that find their own.
    X : ndarray or CSR matrix of shape (n, d)
        Data set with the training rows.
    statistics : AlignmentStatistics
        Statistics of the training rows.
    target : Target or None
        Target of all n rows; not needed by two-stage learners.
    grid : sequence of float, default (1.0,)
        Values of C, ascending.
    normalize : {"trace", "frobenius", "none"}, default "trace"
        Scaling of the base kernels.
    centering : Centering
        Whether to center the base kernels.
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
        """Divisors that normalize the base kernels, shape (p,)."""
        return self.statistics.scales(self.normalize, self.centering.subtracts)

    @cached_property
    def usable(self) -> np.ndarray:
        """Positions of the base kernels that are not zero, after centering if any."""
        return np.flatnonzero(~self.statistics.vanishing(self.centering.subtracts))

    @property
    def origin(self) -> np.ndarray:
        """Row to subtract from all rows, or zeros if this would change the kernel."""
        if self.centering.subtracts or self.family.translation_invariant:
            return self.statistics.origin
        return np.zeros_like(self.statistics.origin)

    @cached_property
    def training_rows(self) -> Rows:
        """Training rows minus `origin`, shape (m, d)."""
        return move(as_rows(self.X[self.statistics.rows]), self.origin)

    @property
    def shift(self) -> np.ndarray:
        """Constant to subtract from each base kernel before centering, shape (p,)."""
        if self.centering.subtracts:
            return self.statistics.shift
        return np.zeros(self.statistics.n_kernels)

    def kernel(
        self,
        learner: str,
        solution: Solution,
        scales: np.ndarray | None = None,
        C: float | None = None,
    ) -> LearnedKernel:
        """Return the learned kernel with the weights of a solution."""
        statistics = self.statistics
        solution = require_solution(solution, learner, len(self.usable))
        if scales is None:
            scales = self.scales
        weights = np.zeros(statistics.n_kernels)
        weights[self.usable] = solution.weights
        coefficients = np.zeros(statistics.n_kernels)
        coefficients[self.usable] = solution.weights / scales[self.usable]
        row_means = statistics.combined_row_means(coefficients)
        if not self.centering.subtracts:
            row_means = np.zeros_like(row_means)
        traces = None
        if any(self.family.kernel_views):
            traces = statistics.traces(self.centering.subtracts)
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
            row_means=row_means,
            degree=solution.degree,
            offset=solution.offset,
            C=C,
            sample_weight=statistics.sample_weight,
            traces=traces,
            centering=self.centering,
        )
        if kernel.degree == 1:
            return kernel
        w = statistics.sample_weight
        Y = statistics.targets - mean_over(statistics.targets, w)
        return replace(kernel, alignment=alignment_of_matrix(kernel.gram(), Y, w))


class Learner(Parameterized, ABC):
    """Base class of learners, which learn the weights of base kernels.

    A custom learner is a frozen data class derived from `AlignmentLearner`,
    `JointLearner` or `KernelSearchLearner`. In configurations, its name is
    ``module:Class``.

    Attributes
    ----------
    name : str
        Name in tables, reports and configurations.
    summary : str
        Description for help pages; by default the first line of the docstring.
    source : str
        Paper and equation.
    tasks : tuple of str
        Supported tasks.
    suited : str or None
        Automatic predictor with few rows, if `predictor` is None.
    predictor : str or None
        Optimized predictor, krr or svm; None for two-stage learners.
    needs : str
        Input, for help pages.
    centered : bool
        Whether alignments are centered.
    takes_uncentered : bool
        Whether base kernels may be uncentered.
    two_stage : bool
        Whether weights depend only on alignments.
    takes_weights : bool
        Whether rows may have weights.
    takes_family : bool
        Whether a family of base kernels is required.
    signed : bool
        Whether weights may be negative.
    learns_kernel : bool
        Whether the result is a kernel, not hypotheses.
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
            cls.summary = (
                (cls.__doc__ or cls.name).strip().partition("\n")[0].rstrip(".")
            )

    @abstractmethod
    def learn(self, problem: LearningProblem) -> Any:
        """Return one kernel for all values of C, or one per value."""

    def require(self) -> None:
        """Raise ValueError if a parameter of the learner is out of its range."""

    def for_features(self, features: Any) -> Learner:
        """Return this learner, or a copy with settings for the features of a table."""
        return self

    def searches_sample(self, statistics: AlignmentStatistics) -> bool:
        """Return whether the learner uses only a random sample of the training rows."""
        return False

    def takes_sparse(self, family: KernelFamily | None) -> bool:
        return getattr(family, "takes_sparse", True)

    def check(
        self,
        family: KernelFamily | None,
        sample_weight: np.ndarray | None = None,
        centering: Centering = Centering.CENTER,
    ) -> None:
        """Raise ValueError for invalid parameters or unsupported options."""
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
            raise ValueError(
                f"{self.name} weighs given base kernels; give family, or use ca, cr or rfm."
            )
        if not centering.subtracts and not self.takes_uncentered:
            raise ValueError(
                f"{self.name} requires centering='center', got {centering.value!r}. These learners do not: "
                f"{', '.join(UNCENTERED)}."
            )


class AlignmentLearner(Learner):
    """Base class of two-stage learners, which learn weights from alignments.

    Subclasses implement `fit_weights`, which needs no kernel matrix.
    """

    needs = "alignments"
    two_stage = takes_weights = True

    @abstractmethod
    def fit_weights(self, M: Products, a: np.ndarray) -> Solution:
        """Return weights from Frobenius products: M between base kernels, a with the target.

        Parameters
        ----------
        M : ndarray or Products of shape (p, p)
            Frobenius products of the base kernels, centered unless `centered` is false.
        a : ndarray of shape (p,)
            Products with the target kernel; not negative, up to rounding.

        Returns
        -------
        solution : Solution
            Weights of unit 2-norm.
        """

    def learn(self, problem: LearningProblem) -> tuple[LearnedKernel, ...]:
        statistics = problem.statistics
        usable = problem.usable
        statistics.require_informative(problem.centering.subtracts)
        # Without centering, a constant base kernel is usable, but not aligned.
        aligned = ~statistics.vanishing(self.centered)[usable]
        M = NormalizedProducts(
            statistics, usable[aligned], problem.scales[usable[aligned]], self.centered
        )
        solution = self.fit_weights(M, M.target)
        if not aligned.all():
            weights = np.zeros(len(usable))
            weights[aligned] = solution.weights
            solution = replace(solution, weights=weights)
        return (problem.kernel(self.name, solution),)


class JointLearner(Learner):
    """Base class of one-stage learners, which learn weights and predictor jointly.

    Subclasses implement `solve` and name the predictor in `predictor`.
    """

    needs = "base kernels, for each C"

    @abstractmethod
    def solve(
        self,
        grams: GramOperator,
        target: Target,
        C: float = 1.0,
        start: np.ndarray | None = None,
    ) -> Solution:
        """Return the optimal weights of base kernels for one C.

        Parameters
        ----------
        grams : GramOperator
            The p base kernels over m rows; their mean diagonals have mean one.
        target : Target
            Target of these rows.
        C : float, default 1
            Inverse regularization strength of the predictor.
        start : ndarray of shape (p,), optional
            Feasible initial weights, such as those for a similar C.

        Returns
        -------
        solution : Solution
            Weights mu, of any length, and their certificate.
        """

    def learn(self, problem: LearningProblem) -> tuple[LearnedKernel, ...]:
        """Learn one kernel per value of C; each fit starts from the previous solution."""
        statistics = problem.statistics
        usable = problem.usable
        statistics.require_informative(problem.centering.subtracts)
        if problem.target is None:
            raise ValueError(
                f"{self.name} learns weights and predictor together and needs the target; give target."
            )
        target = problem.target.take(statistics.rows)
        # Scale the mean diagonals of the normalized base kernels to mean one.
        traces = statistics.traces(problem.centering.subtracts)[usable]
        diagonals = traces / problem.scales[usable] / statistics.total_weight
        scales = problem.scales * diagonals.mean()
        kernels = []
        start = None
        with blas_threads_for(statistics.n_rows):
            grams = gram_operator(
                problem.family.subset(usable.tolist()),
                problem.training_rows,
                shift=problem.shift[usable],
                scales=scales[usable],
                centering=problem.centering,
            )
            for C in problem.grid:
                solution = self._solve_naming_indefinite(grams, target, C, start)
                kernels.append(problem.kernel(self.name, solution, scales, C))
                start = solution.weights
        return tuple(kernels)

    def _solve_naming_indefinite(
        self, grams: GramOperator, target: Target, C: float, start: np.ndarray | None
    ) -> Solution:
        """Call `solve`; if it fails, name the indefinite base kernels."""
        try:
            return self.solve(grams, target, C, start)
        except ArithmeticError:
            indefinite = indefinite_kernels(grams)
            if not indefinite:
                raise
            raise ValueError(f"{indefinite}.") from None


class KernelSearchLearner(Learner):
    """Base class of learners that find base kernels in a continuous family.

    Subclasses implement `find`; it is called for each C if `predictor` is set.
    `row_limits` are the largest numbers of rows for medians of distances and for units
    of base kernels.
    """

    needs = "the rows"
    takes_family = False
    row_limits: ClassVar[dict[str, int]] = {}

    @abstractmethod
    def find(self, X: Rows, target: Target, C: float = 1.0) -> FoundKernels:
        """Search base kernels for the training rows X; return them with weights.

        Parameters
        ----------
        X : ndarray or CSR matrix of shape (m, d)
            Training rows. Not modified.
        target : Target
            Target of these rows.
        C : float, default 1
            Inverse regularization strength, only used with a `predictor`.
        sample_weight : ndarray of shape (m,), optional
            Weights of the rows, only passed if `takes_weights` is true.

        Returns
        -------
        found_kernels : FoundKernels
        """

    def learn(self, problem: LearningProblem) -> tuple[LearnedKernel, ...]:
        if problem.target is None:
            raise ValueError(
                f"{self.name} searches base kernels for a target and needs the target; give target."
            )
        statistics = problem.statistics
        return self.learn_from_rows(
            problem.X,
            problem.target,
            problem.grid,
            statistics.rows,
            statistics.sample_weight,
        )

    def learn_from_rows(
        self,
        X: Rows,
        target: Target,
        grid: Sequence[float],
        rows: np.ndarray | None = None,
        weights: np.ndarray | None = None,
    ) -> tuple[LearnedKernel, ...]:
        """Return one kernel for all values of C, or one per value."""
        if sparse.issparse(X) and not self.takes_sparse(None):
            raise ValueError(
                f"{self.name} needs dense rows, got sparse ones. Use X.toarray(), or learner='alignf'."
            )
        if rows is None:
            rows = np.arange(X.shape[0])
        training_rows = as_rows(X[rows])
        training_target = target.take(rows)
        if not np.ptp(training_target.Y, axis=0).any():
            raise ValueError(
                "Y must vary, got a constant target, from which no kernel can be learned."
            )
        kernels = []
        with blas_threads_for(min(len(rows), getattr(self, "search_rows", len(rows)))):
            for C in grid if self.predictor else [None]:
                found_kernels = self._find(training_rows, training_target, C, weights)
                statistics = gram_statistics(
                    found_kernels.family,
                    training_rows,
                    training_target.Y,
                    sample_weight=weights,
                )
                statistics = replace(statistics, rows=rows[statistics.rows])
                problem = LearningProblem(
                    found_kernels.family, X, statistics, normalize="none"
                )
                if C is None:
                    solution = Solution.of_direction(
                        found_kernels.weights, found_kernels.certificate
                    )
                else:
                    solution = Solution(
                        found_kernels.weights, found_kernels.certificate
                    )
                kernel = problem.kernel(self.name, solution, C=C)
                kernels.append(
                    replace(
                        kernel,
                        parameters=found_kernels.parameters,
                        history=found_kernels.alignments,
                        errors_of_halves=found_kernels.errors_of_halves,
                    )
                )
        return tuple(kernels)

    def _find(
        self, X: Rows, target: Target, C: float | None, weights: np.ndarray | None
    ) -> FoundKernels:
        options = {} if weights is None else {"sample_weight": weights}
        found_kernels = self.find(X, target, 1.0 if C is None else C, **options)
        if isinstance(found_kernels, FoundKernels):
            return found_kernels
        raise ValueError(
            f"learner {self.name} must return FoundKernels, got {type(found_kernels).__name__}; correct its class."
        )


@dataclass(frozen=True, eq=False, repr=False)
class FoundKernels(Value):
    """Base kernels that a search found, and their weights.

    `weights` are those of centered, unscaled kernels, and `parameters` have shape (t,
    r). `alignments` follow each addition, or each round, on held-out rows.
    `errors_of_halves` are those of `LearnedKernel`.
    """

    family: KernelFamily
    weights: np.ndarray
    parameters: np.ndarray
    alignments: tuple[float, ...]
    certificate: Certificate | None = None
    errors_of_halves: tuple[float, float] | None = None
