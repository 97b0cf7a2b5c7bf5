"""Learners of kernel weights, one file per algorithm.

Imports: centering, engine, families, learned, parameters, registry, search, solvers, statistics, targets.
"""

from __future__ import annotations

from typing import Any, cast

from learnkernels.kernels import registry
from learnkernels.kernels.learners.alignf import kkt_certificate
from learnkernels.kernels.learners.base import (
    AlignmentLearner,
    JointLearner,
    KernelSearchLearner,
    Learner,
    LearningProblem,
    Products,
    Solution,
)
from learnkernels.kernels.learners.ensemble import KernelEnsemble
from learnkernels.kernels.parameters import as_object, imported, new_name
from learnkernels.kernels.registry import require_one_of
from learnkernels.kernels.solvers.certificate import Certificate

LEARNERS: dict[str, type[Learner]] = {
    name: imported(f"{__name__}.{path}", cast(Any, Learner), "learner") for name, path in registry.LEARNERS.items()
}
"""The learners by name, as configurations and `learn_kernel` call them."""

COLUMNS = ["name", "learns", "needs", "predictor", "tasks", "parameters", "source"]
"""Of `table`."""

_RENAMED = {
    "OneStageLearner": "JointLearner",
    "SearchingLearner": "KernelSearchLearner",
    "TwoStageLearner": "AlignmentLearner",
}
"""Names that this version still has, and what they are now."""


def __getattr__(name: str) -> Any:
    """Return the class of a learner by its own name, or what this version calls an older name."""
    if name in _RENAMED:
        return globals()[new_name(name, _RENAMED)]
    for learner in LEARNERS.values():
        if learner.__name__ == name:
            return learner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def as_learner(learner: str | Learner, /, **params: Any) -> Learner:
    """Return a learner by its name and parameters; a learner is returned as it is.

    Parameters
    ----------
    learner : str or Learner
        A name of the table `LEARNERS`, or ``module:Class`` for a custom learner, whose module can be imported.
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
        require_one_of("learner", name, sorted(LEARNERS), ", or module:Class")
    return imported(name, Learner, "learner")


def table() -> list[list[str]]:
    """Return the table of learners in Markdown, one row per learner."""
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
    "learner_class",
    "table",
]
