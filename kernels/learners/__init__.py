"""Learners of kernel weights, one file an algorithm, and the table that lists them.

Imports: centering, engine, families, learned, parameters, search, solvers, statistics, targets.
"""

from __future__ import annotations

from typing import Any

from learnkernels.kernels.learners.alignf import Alignf, AlignfLinear, AlignfUncentered, kkt_certificate
from learnkernels.kernels.learners.base import (
    Learner,
    OneStageLearner,
    Products,
    SearchingLearner,
    Solution,
    TwoStageLearner,
)
from learnkernels.kernels.learners.ca import CA
from learnkernels.kernels.learners.closed_form import Align, AlignUncentered, Lq, Single, Unif
from learnkernels.kernels.learners.cr import CR
from learnkernels.kernels.learners.easymkl import EasyMKL
from learnkernels.kernels.learners.ensemble import Ensemble, KernelEnsemble
from learnkernels.kernels.learners.lp_krr import L1KRR, L2KRR, LpKRR
from learnkernels.kernels.learners.lp_svm import L1SVM, LpSVM
from learnkernels.kernels.learners.nkrr import NKRR
from learnkernels.kernels.learners.rfm import RFM
from learnkernels.kernels.learners.single_stage import SingleStage
from learnkernels.kernels.parameters import as_object, imported
from learnkernels.kernels.solvers.certificate import Certificate

LEARNERS: dict[str, type[Learner]] = {
    learner.name: learner
    for learner in (
        Unif,
        Single,
        Align,
        Alignf,
        AlignfLinear,
        Lq,
        AlignUncentered,
        AlignfUncentered,
        SingleStage,
        L1KRR,
        L2KRR,
        LpKRR,
        L1SVM,
        LpSVM,
        EasyMKL,
        NKRR,
        CA,
        CR,
        Ensemble,
        RFM,
    )
}
"""The learners by name, as configurations and `learn_kernel` call them."""

COLUMNS = ["name", "learns", "needs", "predictor", "tasks", "parameters", "source"]
"""Of `table`."""


def as_learner(learner: str | Learner, /, **params: Any) -> Learner:
    """Return a learner by its name and parameters; a learner is returned as it is.

    Parameters
    ----------
    learner : str or Learner
        A name of the table `LEARNERS`, or ``module:Class`` for a learner of your own, whose module can be imported.
    **params
        Its parameters.

    Raises
    ------
    ValueError
        The name is unknown, no learner can be imported under it, it has no such parameter, or does not keep those it
        takes.
    """
    example = "a name such as 'alignf' or a Learner such as Alignf()"
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
        raise ValueError(f"learner must be one of {', '.join(sorted(LEARNERS))}, or module:Class, got {name!r}.")
    return imported(name, Learner, "learner")


def table() -> list[list[str]]:
    """Return the table of learners as people read it, one row each, in Markdown."""
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


__all__ = [
    "CA",
    "COLUMNS",
    "CR",
    "L1KRR",
    "L1SVM",
    "L2KRR",
    "LEARNERS",
    "NKRR",
    "RFM",
    "Align",
    "AlignUncentered",
    "Alignf",
    "AlignfLinear",
    "AlignfUncentered",
    "Certificate",
    "EasyMKL",
    "Ensemble",
    "KernelEnsemble",
    "Learner",
    "LpKRR",
    "LpSVM",
    "Lq",
    "OneStageLearner",
    "Products",
    "SearchingLearner",
    "Single",
    "SingleStage",
    "Solution",
    "TwoStageLearner",
    "Unif",
    "as_learner",
    "kkt_certificate",
    "learner_class",
    "table",
]
