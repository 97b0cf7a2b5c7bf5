"""Register models and their versions in MLflow."""

from __future__ import annotations

import json
import logging
import re
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import mlflow
import numpy as np
import pandas as pd
from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput, Metric
from mlflow.entities.model_registry import ModelVersion as RegisteredVersion
from mlflow.exceptions import MlflowException
from mlflow.models import Model as ModelFolder
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, DataType, Schema

import learnkernels
from learnkernels.conf.errors import InputError, did_you_mean, listed
from learnkernels.kernels.files import ENDING
from learnkernels.kernels.model import Model

from ..databases import first_line, is_missing, mlflow_address, mlflow_store
from ..reporting.markdown import render
from ..reporting.mlflow_datasets import scored_input
from ..store import file_digest

if TYPE_CHECKING:
    from mlflow.pyfunc import PyFuncModel as PyFuncModel

CHAMPION, CHALLENGER = "champion", "challenger"
"""Aliases of the version in use, and of its possible successor."""

DIGEST = "learnkernels.digest"
"""Tag of a model and of a version: SHA-256 of the file."""

PLACE = "learnkernels.place"
"""Tag of a version: its data folder, workers and tracking, as JSON."""

RECIPE, COPIED = "learnkernels.recipe", "learnkernels.copied"
"""Tags of a version: digest of its recipe, and share of duplicate rows."""

LEAKS = "learnkernels.leaks"

SCORED = "scored.json"
"""Artifact of a training run: the input that its version scored last."""

REFERENCE, REJECTED = "learnkernels.reference", "learnkernels.rejected"
"""Tags of a version: reference for refreshes, and champion it lost to."""

MODEL = f"model{ENDING}"

ARTIFACT = f"artifacts/{MODEL}"

PACKAGES = (
    *("joblib", "llvmlite", "mlflow", "narwhals", "numba"),
    *(
        "numpy",
        "pandas",
        "safetensors",
        "scikit-learn",
        "scipy",
        "skops",
        "threadpoolctl",
    ),
)
"""Packages that serve a model: MLflow, and the imports of `kernels`."""

SCRIPT = Path(__file__).with_name("served_model.py")

MODEL_ADDRESS = re.compile(
    r"(?:models:/)?(?P<name>[^/@:]+)(?:@(?P<alias>[^/@:]+)|/(?P<version>[0-9]{1,9}))?"
)


@dataclass(frozen=True)
class ModelVersion:
    """Version of a registered model; no `tags` if another program registered it."""

    name: str
    version: int
    uri: str
    run_id: str
    tags: Mapping[str, str]

    @property
    def digest(self) -> str:
        """SHA-256 of the version's model file; empty for other programs' versions."""
        return self.tags.get(DIGEST, "")


# Output


def log_model(run_id: str, path: Path, *, example: pd.DataFrame) -> str:
    """Log a model file to an MLflow run, with all files for serving by MLflow.

    `path` is a file of `Model.save`; `example` has a few raw rows.
    """
    model = Model.load(path)
    with mlflow_store() as client:
        run = client.get_run(run_id)
        logged = client.create_logged_model(
            run.info.experiment_id,
            name="model",
            source_run_id=run_id,
            tags={DIGEST: file_digest(path)},
            params=run.data.params,
            model_type=model.task,
        )
        status: Literal["READY", "FAILED"] = "FAILED"
        try:
            with tempfile.TemporaryDirectory() as folder:
                _write_folder(
                    Path(folder),
                    model,
                    path,
                    example,
                    ModelFolder(
                        artifact_path=logged.artifact_location,
                        run_id=run_id,
                        model_id=logged.model_id,
                    ),
                )
                client.log_model_artifacts(logged.model_id, f"{folder}/model")
            client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, step=0)])
            _copy_metrics(client, run_id, tuple(run.data.metrics), logged.model_id)
            status = "READY"
        finally:
            client.finalize_logged_model(logged.model_id, status)
    return f"models:/{logged.model_id}"


def _write_folder(
    folder: Path, model: Model, path: Path, example: pd.DataFrame, about: ModelFolder
) -> None:
    package = Path(learnkernels.__file__).parent
    code = folder / package.name
    shutil.copytree(
        package / "kernels",
        code / "kernels",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copyfile(package / "__init__.py", code / "__init__.py")
    # MLflow warns if pip is missing, as in environments of uv
    logging.getLogger("mlflow.utils.environment").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow warns about itself
        from mlflow.pyfunc import save_model

        save_model(
            path=str(folder / "model"),
            python_model=str(SCRIPT),
            artifacts={"model": str(path)},
            code_paths=[str(code)],
            signature=signature_of(model),
            input_example=example[list(model.features)],
            pip_requirements=[
                f"{package}=={installed(package)}" for package in PACKAGES
            ],
            mlflow_model=about,
        )


def signature_of(model: Model) -> ModelSignature:
    """Return MLflow's signature of a model: names and types of its output columns.

    The signature has no inputs: MLflow would refuse integers for numbers, and dates for
    text.
    """
    return ModelSignature(
        outputs=Schema(
            [
                ColSpec(_type_of(dtype), name)
                for name, dtype in model.column_types.items()
            ]
        )
    )


def _type_of(dtype: np.dtype) -> DataType:
    if dtype.kind in "iu":
        fits_32_bits = dtype.itemsize + (dtype.kind == "u") <= 4
        return DataType.integer if fits_32_bits else DataType.long
    return {"b": DataType.boolean, "f": DataType.double}.get(
        dtype.kind, DataType.string
    )


def _copy_metrics(
    client: MlflowClient, run_id: str, names: Sequence[str], model_id: str
) -> None:
    dataset = _dataset_of_run(client, run_id)
    copies = []
    for name in names:
        if "/" in name:
            continue
        for point in client.get_metric_history(run_id, name):
            copies.append(
                Metric(
                    point.key,
                    point.value,
                    point.timestamp,
                    point.step,
                    model_id=model_id,
                    run_id=run_id,
                    **dataset,
                )
            )
    if copies:
        client.log_batch(run_id, metrics=copies)


def _dataset_of_run(client: MlflowClient, run_id: str) -> dict[str, str]:
    inputs = client.get_run(run_id).inputs
    if inputs is None or not inputs.dataset_inputs:
        return {}
    dataset = inputs.dataset_inputs[0].dataset
    return {"dataset_name": dataset.name, "dataset_digest": dataset.digest}


def register(
    model_uri: str, name: str, run_id: str, *, tags: Mapping[str, str], description: str
) -> ModelVersion:
    """Register a model as a new version, with the alias `challenger`."""
    model_id = model_uri.removeprefix("models:/")
    with mlflow_store() as client:
        digest = client.get_logged_model(model_id).tags.get(DIGEST)
        if digest is None:
            raise InputError(
                f"model {model_uri}: was not logged by this program; register what log_model returned."
            )
        with _ignoring_errors("RESOURCE_ALREADY_EXISTS"):
            client.create_registered_model(
                name, description=render("registered.md", name=name)
            )
        created = client.create_model_version(
            name,
            model_uri,
            run_id,
            tags={**tags, DIGEST: digest},
            description=description,
            model_id=model_id,
        )
        client.set_registered_model_alias(name, CHALLENGER, created.version)
    return _version_of(created)


def set_alias(name: str, alias: str, version: int) -> None:
    with mlflow_store() as client:
        client.set_registered_model_alias(name, alias, str(version))


def tag_version(name: str, version: int, tags: Mapping[str, str]) -> None:
    with mlflow_store() as client:
        for key, value in tags.items():
            client.set_model_version_tag(name, str(version), key, value)


def log_series(version: ModelVersion, metrics: Mapping[str, float]) -> None:
    """Append values to metrics of the MLflow run that trained a version."""
    with mlflow_store() as client:
        step = len(client.get_metric_history(version.run_id, next(iter(metrics))))
        now = int(time.time() * 1000)
        client.log_batch(
            version.run_id,
            [Metric(name, value, now, step) for name, value in metrics.items()],
        )


def log_scored(
    version: ModelVersion, source: str, columns: Sequence[str], n_rows: int
) -> None:
    """Log the input that a version scored last in its training run."""
    with mlflow_store() as client:
        client.log_inputs(version.run_id, [scored_input(source, columns, n_rows)])
        client.log_dict(
            version.run_id, {"input": source, "columns": list(columns)}, SCORED
        )


# Search


def find_version(model: str) -> ModelVersion:
    """Return a model version by name, with an alias or number.

    `model` is ``name``, for the champion or else the newest version; ``name@alias``; or
    ``name/3``.
    """
    match = MODEL_ADDRESS.fullmatch(model)
    if match is None:
        raise InputError(
            f"model {model!r}: expected 'name', 'name@alias' or 'name/version'; give one of these."
        )
    name = match["name"]
    versions = [] if is_missing(mlflow.get_tracking_uri()) else _versions(name)
    if not versions:
        raise InputError(_no_such_model(name))
    if match["version"] is not None:
        for version in versions:
            if version.version == int(match["version"]):
                return version
        valid = f"versions {', '.join(str(version.version) for version in versions)}"
    else:
        aliased = alias_of(name, match["alias"] or CHAMPION)
        if aliased is not None:
            return aliased
        if match["alias"] is None:
            return versions[-1]
        with mlflow_store() as client:
            valid = f"aliases {', '.join(sorted(client.get_registered_model(name).aliases)) or 'none'}"
    raise InputError(
        f"model {model!r}: there is none; {name} has {valid}; name one of these."
    )


def _no_such_model(name: str) -> str:
    names: list[str] = []
    if not is_missing(mlflow.get_tracking_uri()):
        with mlflow_store() as client:
            names = [model.name for model in client.search_registered_models()]
    if names:
        content = f"{did_you_mean(name, names)}it has {listed(names)}"
    else:
        content = (
            f"the registry is empty. Train it: learnkernels train CONFIG --model {name}"
        )
    return f"model {name!r} not found in {mlflow_address()}; {content}."


def as_served(version: ModelVersion) -> PyFuncModel:
    from mlflow.pyfunc import load_model as load_pyfunc  # imports many modules

    with mlflow_store():
        served: PyFuncModel = load_pyfunc(version.uri)
    return served


def newest_version(name: str) -> ModelVersion | None:
    return next(reversed(_versions(name)), None)


def alias_of(name: str, alias: str) -> ModelVersion | None:
    with (
        mlflow_store() as client,
        _ignoring_errors("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"),
    ):
        return _version_of(client.get_model_version_by_alias(name, alias))
    return None


def _versions(name: str) -> list[ModelVersion]:
    quote = '"' if "'" in name else "'"
    with mlflow_store() as client:
        versions = client.search_model_versions(f"name = {quote}{name}{quote}")
    return sorted(map(_version_of, versions), key=lambda version: version.version)


def _version_of(registered: RegisteredVersion) -> ModelVersion:
    return ModelVersion(
        name=registered.name,
        version=int(registered.version),
        uri=f"models:/{registered.name}/{registered.version}",
        run_id=registered.run_id or "",
        tags=dict(registered.tags),
    )


# Download


def load_version(version: ModelVersion) -> Model:
    """Download, verify and load the model file of a registered version."""
    where = f"model {version.name}/{version.version}"
    if not version.digest:
        raise InputError(
            f"{where}: was not registered by this program; make a version with 'learnkernels train'."
        )
    with mlflow_store() as client, tempfile.TemporaryDirectory() as folder:
        source = client.get_model_version_download_uri(
            version.name, str(version.version)
        )
        try:
            path = Path(
                mlflow.artifacts.download_artifacts(
                    f"{source}/{ARTIFACT}", dst_path=folder
                )
            )
        except (MlflowException, OSError) as error:
            raise InputError(
                f"{where}: its file {ARTIFACT} cannot be read from {source} ({first_line(error)}); restore the "
                "artifact store, or register the model again."
            ) from None
        if file_digest(path) != version.digest:
            raise InputError(
                f"{where}: its file is not the one that was registered (other SHA-256); restore it from a backup, or "
                "register the model again."
            )
        return Model.load(path)


def stored_folds(version: ModelVersion, learner: str) -> pd.DataFrame | None:
    """Return a version's results by fold from its training run; None if deleted."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = mlflow.artifacts.download_artifacts(
                run_id=version.run_id, artifact_path="folds.parquet", dst_path=folder
            )
        except (MlflowException, OSError):
            return None
        try:
            return pd.read_parquet(path, filters=[("learner", "==", learner)])
        except (OSError, ValueError) as error:
            raise InputError(
                f"model {version.uri}: its results by fold in run {version.run_id} are damaged ({first_line(error)}); "
                "restore folds.parquet in the artifact store, or remove it."
            ) from None


def last_scored(version: ModelVersion) -> tuple[str, list[str]] | None:
    """Return a version's last scored input and its columns; None if unknown."""
    try:
        with mlflow_store() as client:
            files = [file.path for file in client.list_artifacts(version.run_id)]
            # Loading a missing file would repeat requests
            if SCORED not in files:
                return None
            text = mlflow.artifacts.load_text(f"runs:/{version.run_id}/{SCORED}")
    except InputError:
        return None
    try:
        scored = json.loads(text)
        return scored["input"], scored["columns"]
    except (ValueError, LookupError, TypeError):
        raise InputError(
            f"model {version.uri}: {SCORED} in run {version.run_id} is damaged; restore it in the artifact store, or "
            "remove it."
        ) from None


@contextmanager
def _ignoring_errors(*codes: str) -> Iterator[None]:
    try:
        yield
    except MlflowException as error:
        if error.error_code not in codes:
            raise
