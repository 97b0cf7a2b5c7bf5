"""A fitted estimator as plain data and arrays: its parameters and labels of known kinds, nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..families import KernelFamily, family_from_dict
from ..learners import LEARNERS, Learner
from ..parameters import (
    Fields,
    Unfit,
    any_number,
    list_of,
    number,
    one_of,
    optional,
    refuse,
    text,
    truth,
    whole,
)
from ..predictors import PREDICTORS, Predictor
from ..tables import TableEncoding
from .kernel import kernel_from_arrays, kernel_to_arrays, take

if TYPE_CHECKING:
    from ..estimators import KernelLearningClassifier, KernelLearningRegressor

    Estimator: TypeAlias = KernelLearningClassifier | KernelLearningRegressor

LEFT_OUT = ("calibration", "residuals")
"""Arrays fitted on held-out scores, where they were requested."""

KERNEL = "kernel."
"""What the names of the kernel's arrays begin with."""


# Estimators ----------------------------------------------------------------------------------------------------------


def task_of(estimator: Estimator) -> str:
    """Return "classification" or "regression"."""
    return "classification" if hasattr(estimator, "classes_") else "regression"


def estimator_to_data(estimator: Any) -> dict[str, Any]:
    """Return what is no array of a fitted estimator as plain data; raise ValueError for objects."""
    names, table, task = getattr(estimator, "feature_names_in_", None), estimator.table_, task_of(estimator)
    return {
        "task": task,
        "parameters": {name: parameter_to_data(value, name) for name, value in estimator.get_params(False).items()},
        "learner_reason": estimator.learner_reason_,
        "predictor": estimator.predictor_,
        "predictor_reason": estimator.predictor_reason_,
        "C": estimator.C_,
        "n_samples_fit": estimator.n_samples_fit_,
        "names": None if names is None else names.tolist(),
        **({} if table is None else {"table": table.to_dict()}),
        **({"vector": estimator._vector} if task == "regression" else {"classes": labels_to_data(estimator.classes_)}),
    }


def coefficients(estimator: Estimator) -> dict[str, np.ndarray]:
    """Return the arrays of float64 of a fitted estimator without its kernel, by name."""
    names = "dual_coef", "intercept", *LEFT_OUT
    return {name: getattr(estimator, f"{name}_") for name in names if hasattr(estimator, f"{name}_")}


def estimator_to_arrays(estimator: Estimator) -> dict[str, np.ndarray]:
    """Return the arrays of a fitted estimator, those of its kernel under names of their own."""
    arrays = {name: np.asarray(array, dtype=np.float64) for name, array in coefficients(estimator).items()}
    return arrays | {f"{KERNEL}{name}": array for name, array in kernel_to_arrays(estimator.kernel_).items()}


def estimator_from(fields: Fields, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the fitted estimator of some data and arrays, or raise ValueError about what is wrong with them."""
    from ..estimators import (
        KernelLearningClassifier,
        KernelLearningRegressor,
        set_coefficients,
        set_table,
    )

    kinds = {"classification": KernelLearningClassifier, "regression": KernelLearningRegressor}
    task = fields.get("task", one_of(tuple(kinds)))
    parameters = Fields(fields.data.get("parameters"), "the parameters")
    estimator = kinds[task](**_parameters(kinds[task](), parameters))
    estimator.learner_reason_ = fields.get("learner_reason", text)
    estimator.predictor_ = fields.get("predictor", one_of(tuple(PREDICTORS)))
    estimator.predictor_reason_ = fields.get("predictor_reason", text)
    estimator.C_ = fields.get("C", number)
    estimator.n_samples_fit_ = fields.get("n_samples_fit", whole)
    if (names := fields.get("names", optional(list_of(text)))) is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    if task == "classification":
        estimator.classes_ = labels_from_data(fields.data.get("classes"))
    else:
        estimator._vector = fields.get("vector", truth)
    kernel = {name.removeprefix(KERNEL): array for name, array in arrays.items() if name.startswith(KERNEL)}
    set_coefficients(estimator, kernel_from_arrays(kernel), take(arrays, "dual_coef"), take(arrays, "intercept"))
    estimator.n_features_in_ = int(estimator.kernel_.X.shape[1])
    if (table := fields.get("table", optional(TableEncoding.from_dict))) is not None and (
        len(table.features) != estimator.n_features_in_
    ):
        fields.refuse("table", f"columns that become {estimator.n_features_in_} features", len(table.features))
    set_table(estimator, table)
    for name in LEFT_OUT:
        if name in arrays:
            setattr(estimator, f"{name}_", take(arrays, name))
    return estimator


# Parameters ----------------------------------------------------------------------------------------------------------


def parameter_to_data(value: object, where: str) -> Any:
    """Return a parameter of an estimator as plain data that `parameter_from_data` reads back to an equal one.

    Raises
    ------
    ValueError
        It is, or holds, something other than a family, a learner, a predictor, text, numbers, Booleans, None,
        lists, tuples and dictionaries.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"number": str(value)}
    if isinstance(value, KernelFamily):
        return {"family": value.to_dict()}
    if isinstance(value, Learner) and (value.name not in LEARNERS or type(value) is not LEARNERS[value.name]):
        return value.name  # of one's own: what it was told is not kept, and nothing of it is needed to predict
    if isinstance(value, Predictor) and type(value) not in PREDICTORS.values():
        raise ValueError(
            f"{where} must be one of {', '.join(PREDICTORS)} to be saved, got {type(value).__name__}, which no file "
            "can name; save the kernel alone, by save_kernel."
        )
    if isinstance(value, Learner | Predictor):
        kind = "learner" if isinstance(value, Learner) else "predictor"
        return {kind: {"name": value.name, "params": parameter_to_data(value.get_params(False), where)}}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [parameter_to_data(one, where) for one in value]}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"dict": {key: parameter_to_data(one, where) for key, one in value.items()}}
    if isinstance(value, Mapping):
        return {"pairs": [parameter_to_data(pair, where) for pair in value.items()]}
    raise ValueError(
        f"{where} must be a family, text, numbers, Booleans, lists, tuples or dictionaries of these to be saved, "
        f"got {type(value).__name__}; give it as one of them."
    )


def parameter_from_data(data: object, where: str) -> Any:
    """Return the parameter that `parameter_to_data` was called on; raise ValueError for data of none."""
    if data is None or isinstance(data, bool | int | float | str):
        return data

    def inner(one: object) -> Any:
        return parameter_from_data(one, where)

    def made(known: Mapping[str, Callable[[], Any]]) -> Callable[[object], Any]:
        def of(held: object) -> Any:
            named = Fields(held, where)  # of the table alone: nothing is imported because a file says so
            by_default = known[named.get("name", one_of(tuple(known)))]()
            params = Fields(named.data.get("params"), f"the parameters of {where}").data.get("dict")
            return by_default.set_params(**_parameters(by_default, Fields(params, f"the parameters of {where}")))

        return of

    readers: dict[str, Callable[[object], Any]] = {
        "number": any_number,
        "family": family_from_dict,
        "list": list_of(inner),
        "tuple": lambda held: tuple(list_of(inner)(held)),
        "dict": lambda held: {key: inner(one) for key, one in Fields(held, where).data.items()},
        "pairs": lambda held: _pairs(list_of(inner)(held)),
        "learner": made(LEARNERS),
        "predictor": made(PREDICTORS),
    }
    fields = Fields(data, where)
    kind = ", ".join(fields.data)
    if kind not in readers:
        fields.refuse("value", f"one of {', '.join(readers)}", fields.data)
    return fields.get(kind, readers[kind])


def _parameters(by_default: Any, fields: Fields) -> dict[str, Any]:
    """Return all parameters of an object from data that hold these and no others."""
    names = sorted(by_default.get_params(False))
    if sorted(fields.data) != names:
        refuse(f"{fields.where} must be {', '.join(names) or 'none'}, got {', '.join(sorted(fields.data)) or 'none'}")
    return {name: parameter_from_data(value, name) for name, value in fields.data.items()}


def _pairs(held: list[Any]) -> dict[Any, Any]:
    try:
        return dict(held)
    except (TypeError, ValueError):
        raise Unfit("pairs of a key and a value", held) from None


# Labels --------------------------------------------------------------------------------------------------------------

LABELS: dict[str, tuple[str, ...]] = {"boolean": ("b",), "integer": ("i", "u"), "number": ("f",), "text": ("U", "O")}
"""Kinds of class labels, and the kinds of dtype that hold them."""

DTYPES = re.compile(r"object|\|b1|[|<>](?:[iu][1248]|f[248]|U[1-9][0-9]{0,4})")
"""Names of the dtypes that labels may have."""


def labels_to_data(classes: np.ndarray) -> dict[str, Any]:
    """Return class labels as plain data that `labels_from_data` reads back, type and dtype included."""
    kind = next((kind for kind, held in LABELS.items() if classes.dtype.kind in held), None)
    values = classes.tolist()
    if kind is None or (kind == "text" and not all(type(value) is str for value in values)):
        raise ValueError(
            f"classes must be text, integers, numbers or Booleans to be saved, got {classes.dtype} such as "
            f"{classes[0]!r}; convert y to one of these."
        )
    return {"kind": kind, "dtype": "object" if classes.dtype == object else classes.dtype.str, "values": values}


def labels_from_data(data: object) -> np.ndarray:
    """Return the labels that `labels_to_data` was called on; raise ValueError for data of none."""
    fields = Fields(data, "the classes")
    kind = fields.get("kind", one_of(tuple(LABELS)))
    check: Callable[[object], Any] = {"boolean": truth, "integer": whole, "number": number, "text": text}[kind]
    values, name = fields.get("values", list_of(check)), fields.get("dtype", text)
    if DTYPES.fullmatch(name) is None or np.dtype(name).kind not in LABELS[kind]:
        fields.refuse("dtype", f"one of {kind} labels", name)
    try:
        classes = np.array(values, dtype=name)
    except OverflowError:
        fields.refuse("values", f"labels that fit {name}", values)
    if classes.tolist() != values:
        fields.refuse("values", f"labels that fit {name}", values)
    if len(values) < 2 or len(set(values)) < len(values):
        fields.refuse("values", "at least two different labels", values)
    return classes
