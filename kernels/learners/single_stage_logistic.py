"""single-stage-logistic: logistic regression loss and alignment in one objective."""

from __future__ import annotations

from dataclasses import dataclass

from ..engine.operators import GramOperator
from ..solvers.logistic import LogisticProblem
from ..targets import Target
from .norm_ball import InnerProblem, SingleStage


@dataclass(frozen=True, eq=False, repr=False)
class SingleStageLogistic(SingleStage):
    r"""Learn weights that balance the fit of logistic regression and the alignment.

    The loss in the objective of `SingleStage` is :math:`J(\mu) / J(0)`, with

    .. math:: J(\mu) = \min_{\beta, b} \; \beta^\top K_\mu \beta + 2 C \sum_i \log(1 + e^{-y_i f_i})

    for :math:`f = K_\mu \beta + b`.

    Parameters
    ----------
    gamma, gamma1, gamma2, least_alignment, radius, tol, max_iter
        As in `SingleStage`.

    Notes
    -----
    A logistic regression takes five to ten Cholesky factors. Several classes are
    handled one-vs-one.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 3.4.
    """

    name = "single-stage-logistic"
    summary = "logistic regression loss and alignment in one objective"
    source = "JMLR 2012, section 3.4"
    tasks = ("classification",)
    predictor = "svm"

    def problem(
        self, grams: GramOperator, target: Target, C: float
    ) -> tuple[InnerProblem, float]:
        problem = LogisticProblem(grams, target, C)
        return problem, problem.zero_value()
