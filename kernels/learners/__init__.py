"""Learners of kernel weights, one file per algorithm, each imported when it is first named.

Imports: centering, engine, families, learned, parameters, registry, search, solvers, statistics, targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from learnkernels.kernels import registry
from learnkernels.kernels.learners.base import (
    AlignmentLearner,
    JointLearner,
    KernelSearchLearner,
    Learner,
    LearningProblem,
    Products,
    Solution,
)
from learnkernels.kernels.parameters import as_object, imported, renamed
from learnkernels.kernels.registry import require_one_of
from learnkernels.kernels.solvers.certificate import Certificate


class _Learners(Mapping[str, type[Learner]]):
    """The classes of `registry.LEARNERS` by name; the module of one is imported when it is looked up."""

    def __getitem__(self, name: str) -> type[Learner]:
        module, _, attribute = registry.LEARNERS[name].path.partition(":")
        found: type[Learner] = getattr(import_module(f"{__name__}.{module}"), attribute)
        return found

    def __contains__(self, name: object) -> bool:
        return name in registry.LEARNERS

    def __iter__(self) -> Iterator[str]:
        return iter(registry.LEARNERS)

    def __len__(self) -> int:
        return len(registry.LEARNERS)


LEARNERS = _Learners()
"""The learners by name, as configurations and `learn_kernel` call them."""

_NAMES = {entry.path.partition(":")[2]: name for name, entry in registry.LEARNERS.items()}

COLUMNS = ["name", "learns", "needs", "predictor", "tasks", "parameters", "source"]
"""Of `table`."""


_OTHERS = {"KernelEnsemble": "ensemble", "kkt_certificate": "alignf"}
"""Names of modules of learners that belong to no learner."""


_RENAMED = {
    "OneStageLearner": "JointLearner",
    "SearchingLearner": "KernelSearchLearner",
    "TwoStageLearner": "AlignmentLearner",
}
"""Names that this version still has, and what they are now."""


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        return globals()[next(iter(renamed({name: None}, _RENAMED)))]
    if name in _OTHERS:
        return getattr(import_module(f".{_OTHERS[name]}", __name__), name)
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return LEARNERS[_NAMES[name]]


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
    "KernelSearchLearner",
    "Learner",
    "LearningProblem",
    "Products",
    "Solution",
    "as_learner",
    "learner_class",
    "table",
]
