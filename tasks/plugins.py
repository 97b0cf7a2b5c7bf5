"""Load built-in learners and families, and custom ones named ``module:Class``.

Custom modules are on Python's path or in the working directory.
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
from learnkernels.kernels.base import import_class
from learnkernels.kernels.column_encoding import TableFeatures
from learnkernels.kernels.families import KernelFamily
from learnkernels.kernels.learners import Learner

from .store import digest, is_stored, keep, store_path


def learner_class(name: str) -> type[Learner]:
    _search_working_directory(name)
    try:
        return learners.learner_class(name)
    except ValueError as error:
        raise InputError(str(error)) from None


def as_learner(
    name: str, params: Mapping[str, Any] | None = None, features: Sequence[str] = ()
) -> Learner:
    """Return a learner by name, with parameters, for a data set's features."""
    _search_working_directory(name)
    learner = learners.as_learner(name, **params or {})
    return (
        learner.for_features(features)
        if isinstance(features, TableFeatures)
        else learner
    )


def require_params(learner: LearnerConfig) -> None:
    try:
        default_learner = as_learner(learner.name)
        defaults = default_learner.get_params(deep=False)
    except ValueError as error:
        raise InputError(f"learners: {str(error).rstrip('.')}.") from None
    if learner.tune_by == "alignment" and not default_learner.learns_kernel:
        raise InputError(
            f"learners: {learner.title} learns no kernel that 'tune_by: alignment' could compare; set 'tune_by: error'."
        )
    values_of_params = {name: [value] for name, value in learner.params.items()}
    for name, values in [*values_of_params.items(), *learner.tune.items()]:
        _require_values(learner, name, values, defaults)
    for setting in learner.settings():
        try:
            as_learner(learner.name, setting).require()
        except ValueError as error:
            raise InputError(
                f"learners: {learner.title}: {str(error).rstrip('.')}."
            ) from None


def _require_values(
    learner: LearnerConfig,
    name: str,
    values: Sequence[Any],
    defaults: Mapping[str, Any],
) -> None:
    if name not in defaults:
        valid = "it takes none"
        if defaults:
            valid = f"it takes {', '.join(defaults)}"
        raise InputError(
            f"learners: {learner.title} has no parameter {name!r}; {did_you_mean(name, defaults)}{valid}."
        )
    default = defaults[name]
    types, expected = _TYPES.get(type(default), ((object,), ""))
    if default == "auto":
        types, expected = (str, int, float), "auto or a number"
    for value in values:
        is_unwanted_bool = isinstance(value, bool) and bool not in types
        if not isinstance(value, types) or is_unwanted_bool:
            raise InputError(
                f"learners: {learner.title}: {name} must be {expected}, got {value!r}."
            )


_TYPES: dict[type, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    bool: ((bool,), "true or false"),
    str: ((str,), "text"),
}
"""Accepted types by type of the default, with names for messages."""


def as_configuration(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with learner objects as names, and arrays as files.

    Data sets may have ``X`` and ``y``, and arrays as ``folds`` and ``kernels``.
    InputError if a worker cannot import a class.
    """
    data = {key: _convert(value) for key, value in mapping.items() if key != "datasets"}
    datasets = several(mapping.get("datasets", ()))
    for position, dataset in enumerate(datasets):
        _require_arrays(dataset, f"the configuration: datasets.{position}")
    data["datasets"] = [_with_arrays_as_files(dataset) for dataset in datasets]
    return data


def _require_arrays(dataset: Any, where: str) -> None:
    if not isinstance(dataset, Mapping) or not {"X", "y"} & dataset.keys():
        return
    if dataset.get("y") is None:
        raise InputError(
            f"{where}: has 'X' and no 'y'; give the target of each row as 'y'."
        )
    if dataset.get("X") is None and "kernels" not in dataset:
        raise InputError(
            f"{where}: has 'y' and no 'X'; give the rows as 'X', or matrices as 'kernels'."
        )
    if dataset.get("X") is None:
        return
    n_rows = len(pd.DataFrame(dataset["X"]))
    n_targets = len(dataset["y"])
    if n_rows != n_targets:
        raise InputError(
            f"{where}: 'X' has {n_rows} rows and 'y' has {n_targets}; give one target per row."
        )


def _convert(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_convert(item) for item in value]
    if isinstance(value, Mapping):
        return _convert_mapping(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    cls = value if isinstance(value, type) else type(value)
    if issubclass(cls, Learner | KernelFamily):
        return _name_and_params(value, cls)
    return value


def _convert_mapping(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a mapping; objects under ``name`` or ``family`` become two keys."""
    plain = {key: _convert(value) for key, value in mapping.items()}
    for key in ("name", "family"):
        described = plain.get(key)
        if isinstance(described, dict):
            params = {**described["params"], **plain.get("params", {})}
            return {**plain, **described, "params": params}
    return plain


def _name_and_params(value: Any, cls: type) -> dict[str, Any]:
    if cls.__module__ == "__main__" or "." in cls.__qualname__:
        raise InputError(
            f"{cls.__qualname__} is defined in {cls.__module__}, from where no worker process imports it; put it "
            "into a file, such as my_learner.py, and import it from there."
        )
    name = f"{cls.__module__}:{cls.__qualname__}"
    params: dict[str, Any] = {}
    if value is not cls:
        params = {
            key: _convert(param) for key, param in value.get_params(deep=False).items()
        }
    if not issubclass(cls, Learner):
        return {"family": name, "params": params}
    if cls.__module__.startswith(learners.__name__):
        name = cls.name
    if params:
        defaults = cls().get_params(deep=False)
        params = {key: param for key, param in params.items() if param != defaults[key]}
    return {"name": name, "params": params}


def _with_arrays_as_files(dataset: Any) -> Any:
    if not isinstance(dataset, Mapping):
        return dataset
    data = {key: value for key, value in dataset.items() if key not in ("X", "y")}
    if "y" in dataset:
        data |= _rows_as_file(dataset)
    folds = dataset.get("folds")
    if "folds" in dataset and not isinstance(folds, str | Path):
        folds = np.asarray(folds)
        data["folds"] = _store_file(
            "folds.npy", [folds], lambda path: np.save(path, folds)
        )
    kernels = dataset.get("kernels")
    if isinstance(kernels, Mapping) and all(
        np.ndim(matrix) > 1 for matrix in kernels.values()
    ):
        data["kernels"] = _kernels_as_file(kernels)
    return {
        key: str(value) if isinstance(value, Path) else _convert(value)
        for key, value in data.items()
    }


def _rows_as_file(dataset: Mapping[str, Any]) -> dict[str, str]:
    features = dataset.get("X", np.empty((len(dataset["y"]), 0)))
    rows = pd.DataFrame(features)
    rows.columns = [
        name if isinstance(name, str) else f"x{name}" for name in rows.columns
    ]
    target = next(name for name in ("y", "target", "the target") if name not in rows)
    table = rows.assign(**{target: np.asarray(dataset["y"])}).to_parquet(index=False)
    path = _store_file("rows.parquet", [table], lambda path: path.write_bytes(table))
    return {"source": "file", "path": path, "target": target}


def _kernels_as_file(kernels: Mapping[Any, Any]) -> dict[str, str]:
    matrices = {name: np.asarray(matrix) for name, matrix in kernels.items()}
    content = [*map(str, matrices), *matrices.values()]
    path = _store_file("kernels.npz", content, lambda path: np.savez(path, **matrices))  # type: ignore[arg-type]
    return {"family": "precomputed", "path": path}


def _store_file(
    name: str, content: Sequence[Any], write: Callable[[Path], object]
) -> str:
    key = [
        [np.shape(part), hashlib.sha256(np.asarray(part).tobytes()).hexdigest()]
        for part in content
    ]
    path = store_path("given", digest(key))
    if not is_stored(path, warnings.warn):
        with keep(path) as folder:
            write(folder / name)
    return str(path / name)


def custom_family(config: OwnConfig, where: str = "kernels") -> KernelFamily:
    try:
        family = _family_class(config.family)(**config.params)
        family.get_params(False)  # fails here rather than in a later step
    except (TypeError, ValueError) as error:
        reason = str(error).rstrip(".")
        if config.family not in reason:
            reason = f"family {config.family} refuses its parameters: {reason}"
        raise InputError(f"{where}: {reason}.") from None
    return family


def described(configs: Iterable[FamilyConfig]) -> list[dict[str, Any]]:
    """Return kernel configurations for cache keys, with digests of custom code."""
    descriptions = []
    for config in configs:
        description = config.model_dump(mode="json")
        if isinstance(config, OwnConfig):
            description["source"] = _source(_family_class(config.family))
        descriptions.append(description)
    return descriptions


def sources(configs: Iterable[LearnerConfig]) -> list[str]:
    """Return digests of the code of custom learners, for cache keys."""
    return [
        _source(learner_class(config.name)) for config in configs if ":" in config.name
    ]


def _family_class(name: str) -> type[KernelFamily]:
    _search_working_directory(name)
    return import_class(name, KernelFamily, "family")


def _search_working_directory(name: str) -> None:
    """Let Python find a custom class in the working directory."""
    folder = str(Path.cwd())
    if ":" in name and folder not in sys.path:
        sys.path.append(folder)  # worker processes inherit the path
        importlib.invalidate_caches()


@cache
def _source(cls: type) -> str:
    """Return a digest of the modules of a custom class."""
    excluded = {"learnkernels", *sys.stdlib_module_names}
    modules = {base.__module__ for base in cls.__mro__}
    custom_modules = sorted(
        name for name in modules if name.split(".")[0] not in excluded
    )
    try:
        return digest([inspect.getsource(sys.modules[name]) for name in custom_modules])
    except (OSError, TypeError):
        raise InputError(
            f"{cls.__module__}:{cls.__qualname__}: its source cannot be read, so results of another version could "
            "be treated as its own; put it into a file."
        ) from None
