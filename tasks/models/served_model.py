"""What MLflow runs to serve a model: this script, logged as code next to the model's file and the package `kernels`.

It imports nothing of this project but `kernels`, so a model is served wherever MLflow and NumPy are.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel

from learnkernels.kernels.model import Model
from learnkernels.kernels.validation import listed


class ServedModel(PythonModel):
    """A model as MLflow loads it: a frame of raw columns in, a frame of predictions out."""

    def load_context(self, context: Any) -> None:
        """Read the model's file."""
        self.model = Model.load(context.artifacts["model"])

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return what `Model.columns` of `kernels.model` says of the rows of a frame, on the frame's index.

        Columns may have any order and any type that holds their values; those that the model does not read are ignored.

        Raises
        ------
        MlflowException
            With one sentence, and as HTTP status 400 from a server: a column is missing, or holds what it must not.
        """
        frame = pd.DataFrame(model_input) if isinstance(model_input, dict | list) else model_input
        try:
            if not isinstance(frame, pd.DataFrame):
                raise ValueError(f"the input must be a table of named columns, got {type(frame).__name__}.")
            if not frame.columns.is_unique:
                twice = sorted({str(name) for name in frame.columns[frame.columns.duplicated()]})
                raise ValueError(f"the input must have each column once, got {listed(twice)} more than once.")
            names = [str(name) for name in frame.columns]
            if lacking := self.model.lacking(names, [name for name in names if name not in self.model.features]):
                raise ValueError(f"the input {lacking}")
            return pd.DataFrame(self.model.columns(self.model.raw_rows(frame)), index=frame.index)
        except ValueError as error:
            raise MlflowException.invalid_parameter_value(str(error)) from None


set_model(ServedModel())
