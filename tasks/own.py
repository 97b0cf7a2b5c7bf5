"""Learners by name, their parameters, and learners and families of a user's own, called ``module:Class``.

Modules of the latter are looked for where Python looks, and then in the working directory: last, so that no file there
takes the place of an installed module.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from learnkernels.conf.errors import InputError, did_you_mean
from learnkernels.conf.schema import FamilyConfig, LearnerConfig, OwnConfig
from learnkernels.conf.schema.base import several
from learnkernels.kernels import learners
from learnkernels.kernels.families import KernelFamily
from learnkernels.kernels.learners import Learner
from learnkernels.kernels.parameters import imported
from learnkernels.kernels.tables import TableFeatures

from .store import digest, keep, kept, store_path


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
            raise InputError(
                f"learners: {learner.title} has no parameter {name!r}; {did_you_mean(name, taken)}{valid}."
            )
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


def as_configuration(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration of plain values, in which learners and families are named, and arrays are files.

    Parameters
    ----------
    given : mapping of str to object
        The keys of a YAML file. A learner or a family may be a class or an object. A data set may have ``X`` and ``y``,
        arrays or a DataFrame and a Series, in place of ``source`` and ``path``. Its ``folds`` may be an array, and
        its ``kernels`` a mapping of names to matrices.

    Raises
    ------
    InputError
        A class cannot be imported by a worker process, as it is defined in a script, a notebook or a function.
    """
    data = {key: _named(value) for key, value in given.items() if key != "datasets"}
    datasets = several(given.get("datasets", ()))
    for position, dataset in enumerate(datasets):
        _require_arrays(dataset, f"the configuration: datasets.{position}")
    return {**data, "datasets": [_as_files(dataset) for dataset in datasets]}


def _require_arrays(dataset: Any, where: str) -> None:
    """Refuse a data set of arrays that lacks one, or whose arrays differ in length."""
    if not isinstance(dataset, Mapping) or not {"X", "y"} & dataset.keys():
        return
    if dataset.get("y") is None:
        raise InputError(f"{where}: has 'X' and no 'y'; give the target of each row as 'y'.")
    if dataset.get("X") is None and "kernels" not in dataset:
        raise InputError(f"{where}: has 'y' and no 'X'; give the rows as 'X', or matrices as 'kernels'.")
    if dataset.get("X") is not None and len(pd.DataFrame(dataset["X"])) != len(dataset["y"]):
        raise InputError(
            f"{where}: 'X' has {len(pd.DataFrame(dataset['X']))} rows and 'y' has {len(dataset['y'])}; give one target "
            "per row."
        )


def _named(given: Any) -> Any:
    """Return learners and families as a configuration names them, by themselves, in lists or as values of keys."""
    if isinstance(given, list | tuple):
        return [_named(one) for one in given]
    if isinstance(given, Mapping):
        kept = {key: _named(value) for key, value in given.items()}
        made = next((of for of in (kept.get("name"), kept.get("family")) if isinstance(of, dict)), {})
        return {**kept, **made, **({"params": {**made["params"], **kept.get("params", {})}} if made else {})}
    kind = given if isinstance(given, type) else type(given)
    if not issubclass(kind, Learner | KernelFamily):
        return given.tolist() if isinstance(given, np.ndarray | np.generic) else given
    if kind.__module__ == "__main__" or "." in kind.__qualname__:
        raise InputError(
            f"{kind.__qualname__} is defined in {kind.__module__}, from where no worker process imports it; put it "
            "into a file, such as my_learner.py, and import it from there."
        )
    name, params = f"{kind.__module__}:{kind.__qualname__}", {} if given is kind else given.get_params(deep=False)
    params = {key: _named(value) for key, value in params.items()}
    if not issubclass(kind, Learner):
        return {"family": name, "params": params}
    changed = {key: value for key, value in params.items() if value != kind().get_params(deep=False)[key]}
    return {"name": kind.name if kind.__module__.startswith(learners.__name__) else name, "params": changed}


def _as_files(given: Any) -> Any:
    """Return a data set with its arrays as files in the store."""
    if not isinstance(given, Mapping):
        return given
    data = {key: value for key, value in given.items() if key not in ("X", "y")}
    if "y" in given:
        rows = pd.DataFrame(given.get("X", np.empty((len(given["y"]), 0))))
        rows.columns = [name if isinstance(name, str) else f"x{name}" for name in rows.columns]
        target = next(name for name in ("y", "target", "the target") if name not in rows)
        table = rows.assign(**{target: np.asarray(given["y"])}).to_parquet(index=False)
        path = _file("rows.parquet", [table], lambda to: to.write_bytes(table))
        data |= {"source": "file", "path": path, "target": target}
    if "folds" in given and not isinstance(given["folds"], str | Path):
        folds = np.asarray(given["folds"])
        data["folds"] = _file("folds.npy", [folds], lambda to: np.save(to, folds))
    if isinstance(kernels := given.get("kernels"), Mapping) and all(np.ndim(of) > 1 for of in kernels.values()):
        matrices = {name: np.asarray(of) for name, of in kernels.items()}
        path = _file("kernels.npz", [*map(str, matrices), *matrices.values()], lambda to: np.savez(to, **matrices))  # type: ignore[arg-type]
        data["kernels"] = {"family": "precomputed", "path": path}
    return {key: str(value) if isinstance(value, Path) else _named(value) for key, value in data.items()}


def _file(name: str, content: Sequence[Any], write: Callable[[Path], object]) -> str:
    """Return the path of a file in the store, named by its content, which is written unless it is there."""
    known = [[np.shape(one), hashlib.sha256(np.asarray(one).tobytes()).hexdigest()] for one in content]
    path = store_path("given", digest(known))
    if not kept(path, warnings.warn):
        with keep(path) as folder:
            write(folder / name)
    return str(path / name)


def own_family(config: OwnConfig, where: str = "kernels") -> KernelFamily:
    """Return the base kernels of a custom family.

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
    """Return families as plain data with all that their values depend on: of custom ones, the source too."""
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
            "be treated as its own; put it into a file."
        ) from None
