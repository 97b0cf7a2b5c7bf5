"""Learners by name, their parameters, and learners and families of a user's own, called ``module:Class``.

Modules of the latter are looked for where Python looks, and then in the working directory: last, so that no file there
takes the place of an installed module.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import FamilyConfig, LearnerConfig, OwnConfig
from learnkernels.kernels import learners
from learnkernels.kernels.families import KernelFamily
from learnkernels.kernels.learners import Learner
from learnkernels.kernels.parameters import imported
from learnkernels.kernels.tables import TableFeatures
from learnkernels.tasks.store import digest


def learner_class(name: str) -> type[Learner]:
    """Return the class of learners of a name, or raise InputError; see `kernels.learners.learner_class`."""
    _look_here(name)
    try:
        return learners.learner_class(name)
    except ValueError as error:
        raise InputError(str(error)) from None


def as_learner(name: str, params: Mapping[str, Any] | None = None, features: Sequence[str] = ()) -> Learner:
    """Return a learner by its name and parameters, for the features of a data set; see `learners.as_learner`."""
    _look_here(name)
    learner = learners.as_learner(name, **params or {})
    return learner.for_features(features) if isinstance(features, TableFeatures) else learner


def require_params(learner: LearnerConfig) -> None:
    """Raise InputError if a learner does not take a parameter, or one of that type, or cannot be tuned as asked."""
    try:
        found = as_learner(learner.name)
        taken = found.get_params(deep=False)
    except ValueError as error:
        raise InputError(f"learners: {str(error).rstrip('.')}.") from None
    if learner.tune_by == "alignment" and not found.learns_kernel:
        raise InputError(
            f"learners: {learner.title} learns no kernel that 'tune_by: alignment' could compare; set 'tune_by: error'."
        )
    for name, values in [*((name, [value]) for name, value in learner.params.items()), *learner.tune.items()]:
        if name not in taken:
            valid = f"it takes {', '.join(taken)}" if taken else "it takes none"
            raise InputError(f"learners: {learner.title} has no parameter {name!r}; {valid}.")
        default = taken[name]
        kinds, expected = _AUTO if default == "auto" else _KINDS.get(type(default), ((object,), ""))
        for value in values:
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                raise InputError(f"learners: {learner.title}: {name} must be {expected}, got {value!r}.")
    for setting in learner.settings():
        try:
            as_learner(learner.name, setting).require()
        except ValueError as error:
            raise InputError(f"learners: {learner.title}: {str(error).rstrip('.')}.") from None


_KINDS: dict[type, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    bool: ((bool,), "true or false"),
    str: ((str,), "text"),
}
"""Types that a parameter may have for that of its default, and what a user calls them."""

_AUTO = (str, int, float), "auto or a number"
"""The same for a parameter that is chosen where it is not given."""


def own_family(config: OwnConfig, where: str = "kernels") -> KernelFamily:
    """Return the base kernels of a family of one's own.

    Raises
    ------
    InputError
        It cannot be imported, is no class below `KernelFamily`, or refuses its parameters.
    """
    try:
        family = _family_class(config.family)(**config.params)
        family.get_params(False)  # which every later step reads
        return family
    except (TypeError, ValueError) as error:
        named = "" if config.family in str(error) else f"family {config.family} refuses its parameters: "
        raise InputError(f"{where}: {named}{str(error).rstrip('.')}.") from None


def described(configs: Iterable[FamilyConfig]) -> list[dict[str, Any]]:
    """Return families as plain data that tell all that their values depend on: of one's own, the source too."""
    return [
        config.model_dump(mode="json")
        | ({"source": _source(_family_class(config.family))} if isinstance(config, OwnConfig) else {})
        for config in configs
    ]


def sources(configs: Iterable[LearnerConfig]) -> list[str]:
    """Return a digest of the source of each learner that is one's own, for keys of the store; often there is none."""
    return [_source(learner_class(config.name)) for config in configs if ":" in config.name]


def _family_class(name: str) -> type[KernelFamily]:
    _look_here(name)
    return imported(name, KernelFamily, "family")


def _look_here(name: str) -> None:
    """Let modules of the working directory be found, after all others, where a name is one's own."""
    if ":" in name and (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # which worker processes that are started from here are given
        importlib.invalidate_caches()


@cache
def _source(owner: type) -> str:
    """Return a digest of the source of the modules of a class and of what it is derived from, less this package."""
    modules = {base.__module__ for base in owner.__mro__}
    known = {"learnkernels", *sys.stdlib_module_names}
    try:
        return digest(
            [inspect.getsource(sys.modules[name]) for name in sorted(modules) if name.split(".")[0] not in known]
        )
    except (OSError, TypeError):
        raise InputError(
            f"{owner.__module__}:{owner.__qualname__}: its source cannot be read, so results of another version could "
            "be taken for its own; put it into a file."
        ) from None
