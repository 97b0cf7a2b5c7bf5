"""Numbers of training rows for the steps of a fit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from ..base import warn_caller
from ..families import FeatureFamily
from ..families.base import KernelFamily
from ..learners import KernelSearchLearner, Learner
from ..statistics.sampled import SAMPLE_ROWS, require_sample

MOST_ROWS = 20_000
"""Most rows whose pairs are all used without a warning."""

SEARCHED_ROWS = 5_000

BANDWIDTH_ROWS = 1024


@dataclass(frozen=True)
class FitSampling:
    """Number of training rows for each step of a fit; None for unused steps."""

    n_rows: int  # with positive weight
    kernel: int  # for learning the kernel
    search: int | None = None  # for finding base kernels
    medians: int | None = None  # for bandwidths
    units: int | None = None  # for scales of base kernels
    C: int | None = None  # for selecting C or alpha

    @classmethod
    def of(
        cls,
        learner: Learner,
        family: KernelFamily | None,
        n_rows: int,
        n_kernel_rows: int,
    ) -> FitSampling:
        """Return the number of training rows per step."""
        if isinstance(learner, KernelSearchLearner):
            n_searched = min(
                n_kernel_rows, getattr(learner, "search_rows", n_kernel_rows)
            )
            limits = {
                step: min(n_searched, limit)
                for step, limit in learner.row_limits.items()
            }
            return cls(n_rows, n_kernel_rows, n_searched, **limits)
        medians = None
        if family is None:
            medians = min(n_rows, BANDWIDTH_ROWS)
        return cls(n_rows, n_kernel_rows, medians=medians)

    def __str__(self) -> str:
        steps = {
            step: n
            for step, n in asdict(self).items()
            if step != "n_rows" and n is not None
        }
        return f"{self.n_rows:,} rows, of which " + ", ".join(
            f"{step} {n:,}" for step, n in steps.items()
        )


def kernel_rows(
    sample: Literal["auto", "all"] | int | None,
    learner: Learner,
    family: KernelFamily | None,
    n_rows: int,
    has_weights: bool,
) -> int:
    """Return the number of rows to learn the kernel from; warn for many rows."""
    has_features = isinstance(family, FeatureFamily)
    obstacle = None
    if has_weights:
        obstacle = "rows have weights"
    elif has_features:
        obstacle = "statistics of rank-one features cost less than a sample"
    n_by_default = SAMPLE_ROWS
    if isinstance(learner, KernelSearchLearner):
        n_by_default = SEARCHED_ROWS

    if sample == "all":
        return n_rows
    if sample is not None and not (has_features and sample == "auto"):
        if obstacle is not None:
            raise ValueError(
                f"sample must be None where {obstacle}, got {sample!r}; learn from all rows."
            )
        require_sample(sample)
        if sample == "auto":
            return min(n_rows, n_by_default)
        return min(n_rows, int(sample))
    if learner.sampled_by_default and not has_weights and n_rows > SEARCHED_ROWS:
        return n_by_default
    if n_rows <= MOST_ROWS or (has_features and learner.two_stage):
        return n_rows
    many = f"X has {n_rows:,} rows, more than {MOST_ROWS:,}"
    if obstacle is None:
        warn_caller(
            f"{many}: the kernel is learned from a sample of them; sample='auto' says that this is meant, 'all' no."
        )
        return n_by_default
    cost = "a pass goes over all pairs of them"
    if has_features:
        cost = "a matrix of all pairs of them may be formed"
    warn_caller(f"{many}: as {obstacle}, {cost}; sample='all' says that this is meant.")
    return n_rows
