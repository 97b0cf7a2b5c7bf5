"""Script by which MLflow serves a model; it imports only `kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel

from learnkernels.kernels.model import Model
from learnkernels.kernels.validation import listed


class ServedModel(PythonModel):
    """Model of MLflow that predicts from raw columns."""

    def load_context(self, context: Any) -> None:
        self.model = Model.load(context.artifacts["model"])

    def predict(
        self,
        context: Any,
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> pd.DataFrame:
        """Return predictions for rows of a frame; see `Model.columns`.

        MlflowException (HTTP status 400) if a column is missing or has an invalid value.
        """
        frame = model_input
        if isinstance(model_input, dict | list):
            frame = pd.DataFrame(model_input).map(_plain)
        try:
            if not isinstance(frame, pd.DataFrame):
                raise ValueError(
                    f"the input must be a table of named columns, got {type(frame).__name__}."
                )
            if not frame.columns.is_unique:
                repeated = set(map(str, frame.columns[frame.columns.duplicated()]))
                raise ValueError(
                    f"the input must have each column once, got {listed(sorted(repeated))} more than once."
                )
            names = list(map(str, frame.columns))
            unknown = [name for name in names if name not in self.model.features]
            problem = self.model.lacking(names, unknown)
            if problem:
                raise ValueError(f"the input {problem}")
            return pd.DataFrame(
                self.model.columns(self.model.raw_rows(frame)), index=frame.index
            )
        except ValueError as error:
            raise MlflowException.invalid_parameter_value(str(error)) from None


def _plain(cell: Any) -> Any:
    # MLflow makes arrays of cells
    if isinstance(cell, np.ndarray) and not cell.ndim:
        return cell.item()
    return cell


set_model(ServedModel())
