"""How many training rows serve each step of a fit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from ..families import FeatureFamily
from ..families.base import KernelFamily
from ..learners import KernelSearchLearner, Learner
from ..parameters import warn_caller
from ..statistics.sampled import SAMPLE_ROWS, require_sample

MOST_ROWS = 20_000
"""Rows up to which a pass over all pairs of them is made without a warning: ten seconds or so."""

SEARCHED_ROWS = 5_000
"""Default number of rows for finding base kernels: of rfm where there are more rows, of others by `MOST_ROWS`."""

BANDWIDTH_ROWS = 1024
"""Most distinct rows whose distances give the default bandwidths."""


@dataclass(frozen=True)
class FitSampling:
    """Numbers of training rows that the steps of a fit use.

    Attributes
    ----------
    n_rows : int
        Training rows with a weight; the predictor is fitted on all of them.
    kernel : int
        Rows that the kernel is learned from, drawn at random if they are not all.
    search : int or None
        Most rows of these that base kernels are searched on, such as the metrics of rfm, drawn at random; None if the
        learner weights the base kernels of a family.
    medians : int or None
        Most rows whose distances give bandwidths, at even steps of the rows of a search; None if bandwidths are given.
    units : int or None
        Most rows whose kernels give units of base kernels, at even steps of the rows of a search; None without units.
    C : int or None
        Most rows that C or alpha is selected on, drawn at random; None if it is given.
    """

    n_rows: int
    kernel: int
    search: int | None = None
    medians: int | None = None
    units: int | None = None
    C: int | None = None

    @classmethod
    def of(cls, learner: Learner, family: KernelFamily | None, n_rows: int, n_kernel_rows: int) -> FitSampling:
        """Return the numbers of rows of a learner, and of a family that is given."""
        if isinstance(learner, KernelSearchLearner):
            n_searched = min(n_kernel_rows, getattr(learner, "search_rows", n_kernel_rows))
            limits = {step: min(n_searched, limit) for step, limit in learner.row_limits.items()}
            return cls(n_rows, n_kernel_rows, n_searched, **limits)
        medians = min(n_rows, BANDWIDTH_ROWS) if family is None else None
        return cls(n_rows, n_kernel_rows, medians=medians)

    def __str__(self) -> str:
        steps = {step: n for step, n in asdict(self).items() if step != "n_rows" and n is not None}
        return f"{self.n_rows:,} rows, of which " + ", ".join(f"{step} {n:,}" for step, n in steps.items())


def kernel_rows(
    sample: Literal["auto", "all"] | int | None,
    learner: Learner,
    family: KernelFamily | None,
    n_rows: int,
    has_weights: bool,
) -> int:
    """Return the number of rows that the kernel is learned from.

    Parameters
    ----------
    sample : {"auto", "all"}, int or None
        The parameter of an estimator.
    learner : Learner
        What learns the kernel.
    family : KernelFamily or None
        The parameter of the estimator.
    n_rows : int
        Training rows.
    has_weights : bool
        Whether these have weights.

    Raises
    ------
    ValueError
        `sample` is out of its range, or a number where all rows are needed.

    Warns
    -----
    UserWarning
        Without a `sample`, there are more than `MOST_ROWS` rows.
    """
    n_by_default = SEARCHED_ROWS if isinstance(learner, KernelSearchLearner) else SAMPLE_ROWS
    has_features = isinstance(family, FeatureFamily)
    obstacle = None
    if has_weights:
        obstacle = "rows have weights"
    elif has_features:
        obstacle = "statistics of rank-one features cost less than a sample"
    if sample == "all":
        return n_rows
    if sample is not None and not (has_features and sample == "auto"):
        if obstacle is not None:
            raise ValueError(f"sample must be None where {obstacle}, got {sample!r}; learn from all rows.")
        require_sample(sample)
        return min(n_rows, n_by_default if sample == "auto" else int(sample))
    if learner.sampled_by_default and not has_weights and n_rows > SEARCHED_ROWS:
        return n_by_default  # the learner searches fewer rows yet
    if n_rows <= MOST_ROWS or (has_features and learner.two_stage):
        return n_rows
    many = f"X has {n_rows:,} rows, more than {MOST_ROWS:,}"
    if obstacle is not None:
        cost = "a matrix of all pairs of them may be formed" if has_features else "a pass goes over all pairs of them"
        warn_caller(f"{many}: as {obstacle}, {cost}; sample='all' says that this is meant.")
        return n_rows
    warn_caller(
        f"{many}: the kernel is learned from a sample of them; sample='auto' says that this is meant, 'all' no."
    )
    return n_by_default
