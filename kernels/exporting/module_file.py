"""The text of a Python module that predicts with only NumPy."""

from __future__ import annotations

import json
from base64 import encodebytes
from copy import copy
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import version
from io import BytesIO
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import sparse

from .. import families
from ..column_encoding import TableEncoding
from ..families.base import KernelFamily
from ..files import to_data, write_file
from ..learned_kernel import LearnedKernel, LinearScores
from ..predictors import PREDICTORS
from . import numpy_model
from .definitions import Definition, copied_source
from .trees import trees_as_parts

FIRST_LINE = '"""A model that learnkernels exported:'
"""Beginning of exported files, which an export may replace."""

METHODS = {
    "ExportedClassifier": ("predict", "predict_proba", "decision_function"),
    "ExportedRegressor": ("predict", "predict_interval"),
}
"""Functions of an exported module, by model class."""

SUPPORTED = (
    families.CategoricalFamily,
    families.ConstantFamily,
    families.CosineFamily,
    families.DirichletFamily,
    families.FamilyUnion,
    families.FeatureFamily,
    families.GaussianFamily,
    families.LaplacianFamily,
    families.LinearFamily,
    families.MetricFamily,
    families.NormalScoresFamily,
    families.PolynomialFamily,
    families.ProductFamily,
    families.ScaledFamily,
)
"""Families with NumPy code; not their subclasses."""

CHECKED_ROWS = 50
"""Number of training rows for the check of predictions."""

LARGEST_DIFFERENCE = 1e-6
"""Largest relative difference of predictions."""

MODULE = '''{first_line} {summary}

It needs Python 3.11 or later and NumPy, and no other package. ``predict`` and the functions at the end take rows as in
training: a DataFrame, a dictionary of columns, or an array for a model that was fitted on numbers. Predictions equal
the ones of the estimator up to rounding.
"""

{source}

CONTENT = """
{content}"""

model = {exported_class}(read_parts(CONTENT))
{functions}
'''


def write_module(estimator: Any, path: str | PathLike[str]) -> None:
    """Write a fitted estimator as a Python module that needs only NumPy."""
    path = Path(path)
    require_module_path(path)
    content = text_of_parts(parts_of(estimator))
    require_equal_predictions(estimator, numpy_model.read_parts(content))
    write_file(path, module_text(estimator, content).encode())


def require_module_path(path: Path) -> None:
    """Raise ValueError unless `path` is a new Python file or an export."""
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise ValueError(
            f"path must name a Python module, such as model.py, got {path.name!r}."
        )
    if path.exists() and not path.read_bytes().startswith(FIRST_LINE.encode()):
        raise ValueError(
            f"{path} exists and is no exported model; choose another name, or delete the file."
        )


def module_text(estimator: Any, content: str) -> str:
    exported_class = "ExportedRegressor"
    if hasattr(estimator, "classes_"):
        exported_class = "ExportedClassifier"
    roots = [
        Definition(numpy_model.__name__, name)
        for name in ("read_parts", exported_class)
    ]
    kernel = estimator.kernel_
    summary = (
        f"{type(estimator).__name__} of learnkernels {version('learnkernels')}, {kernel.learner} and "
        f"{estimator.predictor_}, {estimator.n_samples_fit_:,} rows."
    )
    functions = [f"{name} = model.{name}" for name in METHODS[exported_class]]
    if exported_class == "ExportedClassifier":
        functions.append("classes_ = model.classes_")
    return MODULE.format(
        first_line=FIRST_LINE,
        summary=summary,
        source=copied_source(roots),
        content=content,
        exported_class=exported_class,
        functions="\n".join(functions),
    )


def text_of_parts(parts: dict[str, Any]) -> str:
    """Return the parts of a model as text: a checksum, and arrays in base 64."""
    arrays: dict[str, np.ndarray] = {}
    description = json.dumps(to_data(parts, arrays, "model"), allow_nan=False)
    entries: dict[str, Any] = {
        "description": np.frombuffer(description.encode(), dtype=np.uint8),
        **arrays,
    }
    archive = BytesIO()
    np.savez_compressed(archive, **entries)
    content = archive.getvalue()
    return f"{sha256(content).hexdigest()}\n{encodebytes(content).decode()}"


def parts_of(estimator: Any) -> dict[str, Any]:
    """Return the parts of a model for predictions."""
    require_exportable(estimator)
    parts: dict[str, Any] = {
        "n_features": estimator.n_features_in_,
        "table": None,
        "names": [],
        "scores": parts_of_scores(estimator._linear),
        "trees": None,
        "share": float(estimator.boost_share_),
    }
    if estimator.table_ is not None:
        parts["table"] = replace(estimator.table_, left_out={})
        parts["names"] = list(map(str, estimator.feature_names_in_))
    if estimator.boost_ is not None:
        parts["trees"] = parts_of_trees(estimator)
    if hasattr(estimator, "classes_"):
        parts["classes"] = estimator.classes_
        parts["calibration"] = getattr(estimator, "calibration_", None)
        parts["of_pairs"] = PREDICTORS[estimator.predictor_].one_vs_one
        return parts
    parts["vector"] = estimator._vector
    parts["residuals"] = None
    parts["scale"] = None
    if hasattr(estimator, "residuals_"):
        parts["residuals"] = estimator._relative_residuals
        parts["scale"] = parts_of_scale(getattr(estimator, "residual_scale_", None))
    return parts


def require_exportable(estimator: Any) -> None:
    if getattr(estimator, "multilabel_", False):
        raise ValueError(
            "a model of several labels per row cannot be exported; use save, or export one classifier per label."
        )
    require_no_text(estimator.table_)
    kernel = estimator.kernel_
    if sparse.issparse(kernel.X):
        raise ValueError(
            "a model of sparse rows cannot be exported; fit it on dense rows, or use save."
        )
    require_supported(kernel.family)


def require_no_text(table: TableEncoding | None) -> None:
    if table is None:
        return
    for column in table.columns:
        if column.kind == "text":
            raise ValueError(
                f"a model of the text column {column.name!r} cannot be exported; use save, or drop the column with "
                f"columns={{{column.name!r}: 'drop'}}."
            )


def require_supported(family: KernelFamily) -> None:
    """Raise ValueError for base kernels without NumPy code."""
    if type(family) not in SUPPORTED:
        raise ValueError(
            f"a model with the base kernels {type(family).__name__} cannot be exported, as there is no NumPy code for "
            "them; use others of learnkernels."
        )
    for inner in [*getattr(family, "families", ()), getattr(family, "base", None)]:
        if inner is not None:
            require_supported(inner)


def parts_of_scores(linear: LinearScores) -> dict[str, Any]:
    """Return base kernels, training rows and coefficients of linear scores."""
    kernel = linear.kernel
    combination = kernel.combination
    active = np.flatnonzero(combination.coefficients)
    if not len(active):
        active = np.arange(1)
    parts: dict[str, Any] = {
        "family": kernel.family.subset(active.tolist()),
        "weights": combination.coefficients[active],
        "shift": combination.shift[active],
    }
    if kernel.degree != 1:
        return parts | parts_of_power(linear)
    expansion = linear.expansion
    return parts | {
        "X": np.asarray(expansion.X),
        "origin": expansion.origin,
        "coefficients": expansion.V,
        "constant": expansion.constant,
        "power": None,
    }


def parts_of_power(linear: LinearScores) -> dict[str, Any]:
    """Return the parts of a model whose kernel is a power."""
    kernel = linear.kernel
    power = {
        "degree": kernel.degree,
        "shares": kernel.centering.shares(len(kernel.rows), kernel.sample_weight),
        "row_means": kernel.row_means,
        "constant": float(kernel._grand_mean + kernel.offset),
    }
    return {
        "X": np.asarray(kernel.X),
        "origin": kernel.origin,
        "coefficients": linear.dual,
        "constant": linear.intercept,
        "power": power,
    }


def parts_of_scale(scale: Any) -> dict[str, Any] | None:
    """Return the scale of residuals, None for intervals of one width."""
    if scale is None:
        return None
    return {
        "scores": parts_of_scores(scale.scores),
        "smallest": scale.smallest,
        "largest": scale.largest,
    }


def parts_of_trees(estimator: Any) -> dict[str, Any]:
    """Return boosted trees as arrays; ValueError for other estimators."""
    trees = estimator.boost_
    obstacle = (
        f"a model that is combined with a {type(trees).__name__} cannot be exported; fit it with boost=False, or use "
        "save."
    )
    n_outputs = getattr(trees, "n_trees_per_iteration_", None)
    if n_outputs is None:
        raise ValueError(obstacle)
    try:
        return trees_as_parts(trees, n_outputs)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(obstacle) from error


def require_equal_predictions(estimator: Any, parts: SimpleNamespace) -> None:
    """Raise ValueError if the export and the estimator predict differently."""
    kernel: LearnedKernel = estimator.kernel_
    features = np.asarray(kernel.X[:CHECKED_ROWS]) + kernel.origin
    in_float64 = copy(estimator)
    in_float64.precision = "float64"
    require_equal(
        in_float64._scores(features), numpy_model.linear_scores(parts.scores, features)
    )
    trees = estimator.boost_
    if trees is None:
        return
    X_trees = features
    if estimator.table_ is not None:
        X_trees, _ = estimator.table_.for_trees(features)
    if hasattr(estimator, "classes_"):
        require_equal(
            trees.predict_proba(X_trees),
            numpy_model.tree_probabilities(parts.trees, X_trees),
        )
    else:
        require_equal(
            trees.predict(X_trees)[:, None], numpy_model.tree_sums(parts.trees, X_trees)
        )


def require_equal(expected: np.ndarray, computed: np.ndarray) -> None:
    """Raise ValueError if arrays differ by more than rounding."""
    largest = max(1.0, float(np.abs(expected).max(initial=0.0)))
    if not np.abs(expected - computed).max(initial=0.0) <= LARGEST_DIFFERENCE * largest:
        raise ValueError(
            "the exported model does not predict the training rows as the estimator does; fit it with boost=False, or "
            "use save."
        )
