"""What the three estimators share: parameters as the learners want them, and the kernel that is learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from multiprocessing import cpu_count
from numbers import Real
from typing import Any, Literal, cast

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from learnkernels.kernels.engine.threads import one_blas_thread
from learnkernels.kernels.estimators.defaults import chunk_rows_for, default_family
from learnkernels.kernels.families import FamilyUnion, KernelFamily, PrecomputedFamily
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.families.cosine import require_directions
from learnkernels.kernels.learned import LearnedKernel, learn_from_moments, learn_kernel
from learnkernels.kernels.learners import LEARNERS
from learnkernels.kernels.moments.normalisation import NORMALISATIONS, Normalisation
from learnkernels.kernels.moments.sampled import sample_moments
from learnkernels.kernels.targets import Target, Task

MOST_THREADS = 4
"""Chunks of new rows taken at the same time; each has a matrix of its own in memory."""

READ_AS = (np.float64, np.float32)
"""Types of new rows that are taken as they are, and made float64 chunk by chunk."""


class KernelLearner(BaseEstimator):  # type: ignore[misc]
    """Base of the estimators: learns a kernel, and applies it to new rows by chunks.

    A subclass has the parameters `family`, `learner`, `learner_params`, `normalise` and `sample`.
    """

    family: KernelFamily | None
    learner: str
    learner_params: Mapping[str, Any] | None
    normalise: Normalisation
    sample: Literal["auto"] | int | None

    kernel_: LearnedKernel
    weights_: np.ndarray
    alignment_: float
    family_: KernelFamily
    n_features_in_: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = bool(self._sparse_formats())
        tags.target_tags.required = True
        return tags

    def _validated(self, X: Any, y: Any, **checks: Any) -> tuple[Rows, np.ndarray]:
        """Return training rows as float64 and their targets, and take note of the features."""
        formats = self._sparse_formats()
        X, y = validate_data(self, X, y, accept_sparse=formats, dtype=np.float64, ensure_min_samples=2, **checks)
        return X, y

    def _sparse_formats(self) -> str | Literal[False]:
        return "csr" if takes_sparse(self.family, self.learner, self.learner_params or {}) else False

    def _learned(
        self, X: Rows, values: np.ndarray, task: Task, regularisation: float, sample_weight: np.ndarray | None
    ) -> LearnedKernel:
        """Return the kernel learned from rows or a sample of them and their target, positions of classes or numbers."""
        params = dict(self.learner_params or {})
        self._require_learner(task, params)
        continuous = LEARNERS[self.learner].needs == "continuous"
        family = None if continuous else default_family(X) if self.family is None else copy(self.family)
        if self.sample is not None:
            if family is None or sample_weight is not None:
                why = "rows have weights" if sample_weight is not None else f"{self.learner} finds its own base kernels"
                raise ValueError(f"sample must be None where {why}, got {self.sample!r}; learn from all rows.")
            return self._learned_from_sample(family, X, Target.of(values, task), regularisation, params)
        weighted = {} if sample_weight is None else {"sample_weight": sample_weight}
        return learn_kernel(
            self.learner,
            family,
            X,
            values,
            task=task,
            regularisation=regularisation,
            normalise=self.normalise,
            **weighted,
            **params,
        )

    def _learned_from_sample(
        self, family: KernelFamily, X: Rows, target: Target, regularisation: float, params: dict[str, Any]
    ) -> LearnedKernel:
        require_directions(family, X)
        moments = sample_moments(
            family,
            X,
            target.Y,
            learners=[(self.learner, params)],
            sample=cast(Any, self.sample),
            keep_origin=LEARNERS[self.learner].needs == "uncentered moments",
            normalise=self.normalise,
        )
        return learn_from_moments(
            self.learner,
            family,
            X,
            moments,
            target=target,
            regularisation=regularisation,
            normalise=self.normalise,
            **params,
        )

    def _require_learner(self, task: Task, params: dict[str, Any]) -> None:
        """Raise ValueError for a learner that is unknown, learns no kernel, or cannot do what it is asked."""
        kernel_learners = sorted(name for name, learner in LEARNERS.items() if learner.needs != "rows")
        if self.learner not in LEARNERS:
            raise ValueError(f"learner must be one of {', '.join(kernel_learners)}, got {self.learner!r}.")
        learner = LEARNERS[self.learner]
        if learner.needs == "rows":
            raise ValueError(
                f"{self.learner} learns hypotheses and not a kernel, so it is no learner of this estimator; use one of "
                f"{', '.join(kernel_learners)}."
            )
        if task not in learner.tasks:
            others = [name for name in kernel_learners if task in LEARNERS[name].tasks]
            raise ValueError(f"{self.learner} does not serve {task}; use one of {', '.join(others)}.")
        unknown = sorted(set(params) - set(learner.params))
        if unknown:
            known = ", ".join(learner.params) or "none"
            raise ValueError(f"{self.learner} has no parameter {unknown[0]!r} in learner_params; it has {known}.")
        if self.normalise not in NORMALISATIONS:
            raise ValueError(f"normalise must be one of {', '.join(NORMALISATIONS)}, got {self.normalise!r}.")
        if self.family is not None and not isinstance(self.family, KernelFamily):
            raise ValueError(
                f"family must be a family of base kernels or None, got {type(self.family).__name__}; give for example "
                "GaussianFamily([0.1, 1.0])."
            )
        if learner.needs == "continuous" and self.family is not None:
            raise ValueError(
                f"{self.learner} finds its own base kernels and takes no family; leave family=None, and choose among "
                "gaussian, laplacian and dirichlet by learner_params={'kind': ...}."
            )

    def _take_kernel(self, kernel: LearnedKernel) -> None:
        """Keep a learned kernel and what is shown of it."""
        self.kernel_, self.weights_, self.family_ = kernel, kernel.weights, kernel.family
        self.alignment_ = float(kernel.alignment)

    def _by_chunks(self, X: Any, of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return what a function makes of the kernel between new rows and training rows, chunk by chunk, in order."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse=self._sparse_formats(), dtype=READ_AS, reset=False)
        step = chunk_rows_for(self.kernel_.X.shape[0])
        starts = range(0, X.shape[0], step)

        def made(start: int) -> np.ndarray:
            chunk = X[start : start + step]
            if not sparse.issparse(chunk):
                # One layout, so that the bits of a product do not depend on how the rows came.
                chunk = np.ascontiguousarray(chunk, dtype=np.float64)
            return of(self.kernel_.cross_gram(chunk))

        with one_blas_thread(), ThreadPoolExecutor(min(len(starts), cpu_count(), MOST_THREADS)) as threads:
            return np.concatenate(list(threads.map(made, starts)))


def takes_sparse(family: KernelFamily | None, learner: str, params: Mapping[str, Any]) -> bool:
    """Return whether sparse rows will do for the base kernels, given or found by a learner with these parameters."""
    if learner in LEARNERS and LEARNERS[learner].needs == "continuous":
        return params.get("kind", "gaussian") == "gaussian" and not params.get("per_feature", False)
    if isinstance(family, FamilyUnion):
        return all(takes_sparse(part, learner, params) for part in family.families)
    return not isinstance(family, PrecomputedFamily)


def positive(name: str, value: Any) -> float:
    """Return a parameter that must be positive and finite.

    Raises
    ------
    ValueError
        It is not.
    """
    if isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < np.inf:
        return float(value)
    raise ValueError(f"{name} must be a positive, finite number, got {value!r}.")


def checked_weights(sample_weight: Any, m: int) -> np.ndarray | None:
    """Return sample weights as float64, shape (m,), or None where all are one.

    Raises
    ------
    ValueError
        They are not one number a row, one is negative or not finite, or all are zero.
    """
    if sample_weight is None:
        return None
    w = np.asarray(sample_weight, dtype=np.float64)
    if w.shape != (m,):
        raise ValueError(f"sample_weight must be one number a row, shape ({m},), got shape {w.shape}.")
    wrong = ~(np.isfinite(w) & (w >= 0))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"sample_weight must be finite and not negative, got {w[row]:g} for row {row}.")
    if not w.any():
        raise ValueError("sample_weight must be positive for some rows, got zero for every row (all are zero).")
    return None if (w == 1).all() else w
