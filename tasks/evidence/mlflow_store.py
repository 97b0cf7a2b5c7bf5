"""MLflow's store as this process reaches it, and where its pages are."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import mlflow
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from learnkernels.conf.errors import InputError, without_passwords
from learnkernels.tasks.environment import running_server
from learnkernels.tasks.evidence.databases import prepare_mlflow

UI = "http://127.0.0.1:5000"
"""Where `learnkernels ui` shows the store of the working directory, by default."""


def mlflow_ui() -> str:
    """Return where the pages of MLflow are; for a local store, where `learnkernels ui` shows it."""
    uri = mlflow.get_tracking_uri()
    return without_passwords(uri).rstrip("/") if uri.startswith("http") else running_server("mlflow") or UI


@contextmanager
def mlflow_store() -> Iterator[MlflowClient]:
    """Give a client of MLflow's store; what that refuses becomes one sentence, an `InputError`."""
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it prints what it raises, too
    prepare_mlflow(mlflow.get_tracking_uri())
    try:
        yield MlflowClient()
    except (MlflowException, SQLAlchemyError, OSError) as error:
        raise InputError(
            f"MLflow store {mlflow_address()}: cannot be used ({first_line(error)}); check MLFLOW_TRACKING_URI and "
            "what is named."
        ) from None


def mlflow_address() -> str:
    """Return the address of MLflow's store, to be shown."""
    return without_passwords(mlflow.get_registry_uri())


def first_line(error: Exception) -> str:
    """Return what an error says first, to be shown."""
    return without_passwords(str(error).splitlines()[0])[:200]
