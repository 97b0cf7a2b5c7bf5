"""What MLflow runs to serve a model: this script, logged as code beside the model's file and the package `kernels`.

It imports nothing of this project but `kernels`, so a model is served wherever MLflow and NumPy are.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel

from learnkernels.kernels.fields import listed
from learnkernels.kernels.persistence.model import load_model


class ServedModel(PythonModel):
    """A model as MLflow loads it: a frame of raw columns in, a frame of predictions out."""

    def load_context(self, context: Any) -> None:
        """Read the model's file."""
        self.model = load_model(context.artifacts["model"])

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return what `Model.columns` of `kernels.persistence` says of the rows of a frame, on the frame's index.

        Raises
        ------
        MlflowException
            With one sentence, and as HTTP status 400 from a server: a column is missing, unknown, not numeric or holds
            nulls.
        """
        try:
            rows = frame_rows(model_input, self.model.features, numbers=self.model.table is None)
            return pd.DataFrame(self.model.columns(rows), index=model_input.index)
        except ValueError as error:
            raise MlflowException.invalid_parameter_value(str(error)) from None


def frame_rows(frame: pd.DataFrame, features: tuple[str, ...], numbers: bool = True) -> np.ndarray | pd.DataFrame:
    """Return the columns of a frame, in any order, as raw rows of a model.

    Parameters
    ----------
    frame : DataFrame of n rows
        Columns of integers, numbers or truth values. Not modified.
    features : tuple of str
        Names of the d columns.
    numbers : bool, default True
        Whether all must be numbers; else the frame is returned as it is.

    Returns
    -------
    X_raw : ndarray of shape (n, d), or the frame

    Raises
    ------
    ValueError
        Columns are missing, unknown, given twice, not numeric, or hold nulls, NaN or infinity.
    """
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(
            f"the input must be a table with the columns {listed(features)}, got {type(frame).__name__}; give a pandas "
            "DataFrame, or post 'dataframe_split'."
        )
    names = [str(name) for name in frame.columns]
    position = {name: j for j, name in enumerate(names)}
    missing = [name for name in features if name not in position]
    extra = sorted(set(position) - set(features))
    if missing or extra:
        said = [f"{listed(missing)} missing"] if missing else []
        said += [f"{listed(extra)} unknown"] if extra else []
        raise ValueError(
            f"the input must have the {len(features)} columns that the model was trained on, got others: "
            f"{'; '.join(said)}; give {listed(features)}."
        )
    if len(names) > len(features):
        twice = [name for name, times in Counter(names).items() if times > 1]
        raise ValueError(f"the input must have each column once, got {listed(twice)} more than once; drop the others.")
    if not numbers:
        return frame
    X = np.empty((len(frame), len(features)))
    for j, name in enumerate(features):
        X[:, j] = _numbers(frame.iloc[:, position[name]], name)
    return X


def _numbers(column: pd.Series, name: str) -> np.ndarray:
    shown = column.infer_objects()
    if shown.dtype == object and not any(isinstance(value, str) for value in shown):
        with suppress(TypeError, ValueError):
            shown = pd.to_numeric(shown)  # None beside numbers, and decimals
    if not pd.api.types.is_numeric_dtype(shown.dtype) or shown.dtype.kind == "c":
        raise ValueError(
            f"column {name!r} must hold numbers, got {shown.dtype} such as {shown.iloc[0]!r:.40}; convert it."
        )
    values: np.ndarray = shown.to_numpy(dtype=np.float64, na_value=np.nan)
    bad = int((~np.isfinite(values)).sum())
    if bad:
        raise ValueError(
            f"column {name!r} must hold finite numbers, got null, NaN or infinity in {bad} of {len(values)} rows; "
            "impute or drop them."
        )
    return values


set_model(ServedModel())
