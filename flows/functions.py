"""Functions `compare`, `train` and `predict`, and code shared with commands."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import current_process
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, overload

from learnkernels.conf.errors import InputError, did_you_mean, listed, option
from learnkernels.conf.files import ending_of
from learnkernels.tasks.environment import (
    lacking_libraries,
    prepare_environment,
    use_running_prefect,
)

if TYPE_CHECKING:
    import pandas as pd

    from learnkernels.conf.schema import CompareConfig, DatasetConfig, PrecomputedConfig
    from learnkernels.tasks.data.infer_config import InferredConfig
    from learnkernels.tasks.models.registry import PyFuncModel
    from learnkernels.tasks.operate.servers import Service

Files = str | Path | Sequence[str | Path]

TABLES = (".csv", ".parquet", ".arrow", ".feather")

KEYS = {
    "target": "datasets.0.target",
    "group": "datasets.0.groups",
    "time": "datasets.0.time",
    "metric": "protocol.metric",
    "without": "baseline.without",
    "minutes": "protocol.split",
}
"""Configuration key of each option of a table."""

EXPLAINED_ROWS = 1000
"""Default number of explained rows, the first of a table."""

MAIN_GUARD = (
    "this function was called in a worker process, in which Python imports your script; put the call below "
    "if __name__ == '__main__':"
)

_servers: list[Service] = []


@dataclass(frozen=True)
class TableOptions:
    """Options of commands on tables: target, groups, time, metric, omitted baselines."""

    target: str | Sequence[str] | None = None
    group: str | None = None
    time: str | None = None
    metric: str | None = None
    without: str | Sequence[str] = ()
    minutes: float | None = None

    @property
    def set_names(self) -> list[str]:
        return [name for name in KEYS if getattr(self, name)]

    @property
    def sample_columns(self) -> dict[str, str | None]:
        """Names of the columns of groups and time, by configuration key."""
        return {"groups": self.group, "time": self.time}


@dataclass(frozen=True)
class Caller:
    """Kind of caller (command line or Python), and the function that prints its messages."""

    by_command: bool = False
    verbose: bool = False
    say: Callable[[str], object] = lambda line: None


PROGRAM = Caller()


def compare(
    table: str | Path | Sequence[str | Path] | Mapping[str, Any],
    target: str | Sequence[str] | None = None,
    *,
    group: str | None = None,
    time: str | None = None,
    metric: str | None = None,
    without: str | Sequence[str] = (),
    minutes: float | None = None,
    changes: str | Sequence[str] = (),
) -> pd.DataFrame:
    """Cross-validate kernel learners on a table, or on the data sets of a configuration.

    Like the command ``learnkernels compare``, it writes ``results/``, ``mlflow.db``,
    ``mlartifacts/`` and ``.learnkernels/`` into the working directory.

    Parameters
    ----------
    table : path, sequence of paths or mapping
        Parquet, CSV, Arrow or Feather; several files or a folder of them; or a
        configuration: a YAML file, or a mapping with its keys. In a mapping, learners
        and families may be objects, and data sets, folds and kernel matrices may be
        arrays (:doc:`../study`).
    target : str or sequence of str, optional
        Columns of a table to predict.
    group, time : str, optional
        Columns of a table: groups that are never divided; time, to train on earlier
        rows and test on later ones.
    metric : str, optional
        Evaluation metric, such as ``roc_auc``.
    without : str or sequence of str
        Baselines of a table to leave out, such as ``boosting``.
    minutes : float, optional
        Approximate duration of the comparison of a table.
    changes : str or sequence of str
        Keys of the configuration to change, such as ``protocol.folds=10``.

    Returns
    -------
    summary : pandas.DataFrame
        One row per data set and method. ``summary.attrs`` has ``results``, the folder
        of the report.

    Raises
    ------
    InputError
        The table, an argument or the configuration is invalid.
    """
    with _own_environment():
        options = TableOptions(target, group, time, metric, without, minutes)
        result = run_comparison(configuration(table, options, changes))
        import pandas as pd

        summary = pd.read_parquet(Path(result["results"], "summary.parquet"))
    summary.attrs = {"results": result["results"]}
    return summary


def train(
    table: str | Path | Sequence[str | Path] | Mapping[str, Any],
    target: str | Sequence[str] | None = None,
    *,
    model: str | None = None,
    dataset: str | None = None,
    group: str | None = None,
    time: str | None = None,
    metric: str | None = None,
    changes: str | Sequence[str] = (),
) -> PyFuncModel:
    """Train a model on all rows of a table or data set, and register it in MLflow.

    Parameters
    ----------
    table : path, sequence of paths or mapping
        See `compare`.
    target : str or sequence of str, optional
        Columns of a table to predict.
    model : str, optional
        Name of the registered model; the table's or configuration's by default.
    dataset : str, optional
        Data set to learn from, if a configuration has several.
    group, time, metric : str, optional
        See `compare`.
    changes : str or sequence of str
        Keys of the configuration to change.

    Returns
    -------
    model : mlflow.pyfunc.PyFuncModel
        The registered version: ``model.predict(frame)`` predicts the rows of a
        DataFrame.

    Raises
    ------
    InputError
        The table, an argument or the configuration is invalid.
    """
    require_one_target(target, dataset, PROGRAM)
    with _own_environment():
        config = configuration(
            table, TableOptions(target, group, time, metric), changes
        )
        result = run_training(config, model, dataset)
        from learnkernels.tasks.models.registry import as_served, find_version

        return as_served(find_version(result["uri"]))


@overload
def predict(
    model: str,
    table: str | Path | pd.DataFrame,
    *,
    id: str | Sequence[str] = ...,
    explain: Literal[False] = ...,
    explain_rows: int = ...,
) -> pd.DataFrame: ...


@overload
def predict(
    model: str,
    table: str | Path | pd.DataFrame,
    *,
    id: str | Sequence[str] = ...,
    explain: Literal[True],
    explain_rows: int = ...,
) -> tuple[pd.DataFrame, pd.DataFrame]: ...


def predict(
    model: str,
    table: str | Path | pd.DataFrame,
    *,
    id: str | Sequence[str] = (),
    explain: bool = False,
    explain_rows: int = EXPLAINED_ROWS,
) -> pd.DataFrame | tuple[pd.DataFrame, pd.DataFrame]:
    """Predict the rows of a table with a registered model.

    For output larger than memory, use the command ``learnkernels predict``.

    Parameters
    ----------
    model : str
        ``NAME`` for its champion, ``NAME@ALIAS`` or ``NAME/VERSION``.
    table : path or pandas.DataFrame
        Rows: a DataFrame, a file, or a folder or pattern of files, local or on S3.
    id : str or sequence of str
        Columns to copy into the predictions; by default, rows are numbered.
    explain : bool, default False
        Whether to also return the contributions of columns.
    explain_rows : int, default 1000
        Largest number of rows to explain, the first of the table.

    Returns
    -------
    predictions : pandas.DataFrame
        One row per row of the table, in order.
    contributions : pandas.DataFrame
        Only with ``explain=True``: ids or `row`, the explained column of the
        predictions (`explains`), the base value (`base`), and a column
        ``contribution NAME`` for each column of the model.

    Raises
    ------
    InputError
        There is no such model, or the table does not fit it.
    """
    with _own_environment(), tempfile.TemporaryDirectory() as aside:
        import pandas as pd

        from learnkernels.conf.schema.base import several

        rows = str(table)
        if isinstance(table, pd.DataFrame):
            rows = str(Path(aside, "rows.parquet"))
            table.to_parquet(rows, index=False)
        output = str(Path(aside, "predictions.parquet"))
        result = run_scoring(
            model,
            rows,
            output,
            id=several(id),
            explain=explain,
            explain_rows=explain_rows,
        )
        for sentence in result["drift"]["warnings"]:
            warnings.warn(f"drift: {sentence}", stacklevel=2)
        predictions = pd.read_parquet(output)
        if not explain:
            return predictions
        return predictions, pd.read_parquet(result["contributions"])


def require_one_target(
    target: str | Sequence[str] | None, dataset: str | None, caller: Caller
) -> None:
    """Raise InputError for several targets, since a registered model has only one."""
    if dataset is not None or target is None or isinstance(target, str):
        return
    if len(target) > 1:
        name = option("target", caller.by_command)
        raise InputError(
            f"{name}: a registered model predicts one column, got {listed(target)}; name one, or for several labels "
            "per row fit KernelLearningClassifier on their columns of 0 and 1."
        )


def run_comparison(config: CompareConfig, caller: Caller = PROGRAM) -> dict[str, str]:
    from .compare import compare as flow

    learners = ", ".join(learner.title for learner in config.learners)
    caller.say(
        f"{config.name}: {learners} on {', '.join(dataset.label for dataset in config.datasets)}"
    )
    with prefect_runs(config.name, caller):
        open_mlflow()
        return flow(config=config)


def run_training(
    config: CompareConfig,
    model: str | None = None,
    dataset: str | None = None,
    learner: str | None = None,
    caller: Caller = PROGRAM,
) -> dict[str, Any]:
    """Run the Prefect flow `train`; return facts on the registered model version."""
    from learnkernels.tasks.models.training import training_config

    from .train import train as flow

    name = model or config.name
    # Fails before waiting for a server
    considered = training_config(config, dataset, learner, caller.by_command)
    caller.say(
        f"{name}: selected from {', '.join(learner.title for learner in considered.learners)}"
    )
    with prefect_runs(name, caller):
        open_mlflow()
        return flow(model=name, dataset=dataset, learner=learner, config=config)


def run_scoring(
    model: str,
    input: str,
    output: str,
    *,
    id: Sequence[str] = (),
    scheduler: str = "",
    strict: bool = False,
    escape_formulas: bool = True,
    explain: bool = False,
    explain_rows: int = EXPLAINED_ROWS,
    caller: Caller = PROGRAM,
) -> dict[str, Any]:
    from learnkernels.conf.files import require_place

    require_place(output)
    require_files([input])
    if explain_rows < 1:
        raise InputError(
            f"explain_rows: must be at least 1, got {explain_rows}; give the largest number of rows to explain."
        )
    set_up(caller)
    from learnkernels.kernels.engine.combination import compile_combinations
    from learnkernels.tasks.models.registry import find_version

    from .predict import predict as flow
    from .predict import workers_at

    # The flow would show credentials in the address
    workers_at(scheduler)
    find_version(model)  # refuses a missing model early
    Thread(target=compile_combinations).start()  # while the server starts
    with prefect_runs(model, caller):
        return flow(
            model=model,
            input=input,
            output=output,
            id=list(id),
            scheduler=scheduler,
            strict=strict,
            escape_formulas=escape_formulas,
            explain=explain,
            explain_rows=explain_rows,
        )


def configuration(
    source: Files | Mapping[str, Any],
    options: TableOptions,
    changes: str | Sequence[str] = (),
    caller: Caller = PROGRAM,
) -> CompareConfig:
    """Return the configuration for files or a mapping, and prepare Prefect for the run.

    `options` apply to data files only. InputError for unusable input.
    """
    from learnkernels.conf.schema.base import several

    if isinstance(source, Mapping):
        _require_no_options("the mapping", options, caller)
        return prepare(source, several(changes), caller)
    files = _paths(source)
    if is_table(files):
        return _configuration_of_table(files, options, several(changes), caller)
    if len(files) > 1:
        raise InputError(
            f"{files[0]}: one configuration is run at a time, got {len(files)}; give one."
        )
    _require_no_options(files[0], options, caller)
    return prepare(Path(files[0]), several(changes), caller)


def _paths(source: Files) -> list[str]:
    if isinstance(source, str | Path):
        return [str(source)]
    return [str(path) for path in source]


def _require_no_options(where: str, options: TableOptions, caller: Caller) -> None:
    if not options.set_names:
        return
    name = options.set_names[0]
    refused = option(name, caller.by_command)
    change = f"{KEYS[name]}=VALUE"
    instead = option("changes", False, change)
    if caller.by_command:
        instead = option("set", True, change)
    raise InputError(
        f"{where}: {refused} only applies to data files ({', '.join(TABLES)}). In a configuration, use {instead}."
    )


def _configuration_of_table(
    files: Sequence[str], options: TableOptions, changes: Sequence[str], caller: Caller
) -> CompareConfig:
    require_table(files, options, caller, changes)
    set_up(caller)
    from learnkernels.conf.loading import config_of_text
    from learnkernels.tasks.data.tables import remember_columns

    with remember_columns():  # until the flow ingests them
        inferred = infer(files, options, caller)
        for line in inferred.lines:
            caller.say(line)
        return config_of_text(inferred.text, Path(files[0]), list(changes))


def require_table(
    files: Sequence[str],
    options: TableOptions,
    caller: Caller = PROGRAM,
    changes: Sequence[str] = (),
) -> None:
    """Raise InputError for missing files, missing columns or unknown keys."""
    from learnkernels.conf.schema.base import several

    require_files(files)
    from learnkernels.tasks.data.headers import joint_title, require_keys, require_names

    targets = several(options.target or ())
    without = several(options.without)
    columns = require_names(
        files, targets, options.sample_columns, without, caller.by_command
    )
    require_keys(
        files, targets, options.sample_columns, options.metric, without, changes
    )
    caller.say(
        f"{joint_title(files)}: {len(columns)} columns, to predict {', '.join(targets)}"
    )


def infer(
    files: Sequence[str], options: TableOptions, caller: Caller = PROGRAM
) -> InferredConfig:
    from learnkernels.conf.schema.base import several
    from learnkernels.tasks.data.infer_config import infer_config

    without = several(options.without)
    return infer_config(
        files,
        options.target,
        options.sample_columns,
        options.metric,
        without,
        options.minutes,
        caller.by_command,
    )


def require_files(paths: Sequence[str]) -> None:
    from learnkernels.conf.files import files_of, is_remote, require_place

    for path in paths:
        require_place(path)
        if not is_remote(path) and files_of(path) is None:
            meant = did_you_mean(path, [entry.name for entry in Path().iterdir()])
            raise InputError(
                f"file not found: {path} (working directory: {Path.cwd()}); {meant}correct the path."
            )


def is_table(files: Sequence[str]) -> bool:
    """Return whether any argument names a data file, folder or pattern."""
    return any(map(_is_table, files))


def _is_table(path: str) -> bool:
    if ending_of(path) in TABLES or path.endswith("/") or Path(path).is_dir():
        return True
    return bool(set(path) & set("*?[")) and not Path(path).is_file()


def prepare(
    conf: Path | Mapping[str, Any],
    changes: Sequence[str],
    caller: Caller = PROGRAM,
    deploy: bool = False,
) -> CompareConfig:
    """Return the validated configuration, and prepare Prefect for its run."""
    from learnkernels.conf.loading import config_of, load_config

    if isinstance(conf, Mapping):
        from learnkernels.tasks.plugins import as_configuration

        config = config_of(as_configuration(conf), "the configuration", changes)
    else:
        config = load_config(conf, changes)
    for dataset in config.datasets:
        _require_files_of(dataset, config)
    set_up(caller, deploy)
    _require_params(config)
    return config


def set_up(caller: Caller = PROGRAM, deploy: bool = False) -> None:
    """Set environment variables before Prefect is imported, and start a Prefect server."""
    prepare_environment()
    from learnkernels.tasks.operate.servers import temporary_prefect

    _servers.clear()
    if not caller.verbose:
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    use_running_prefect()
    if "PREFECT_API_URL" not in os.environ and not deploy:
        caller.say("starting Prefect ...")
        _servers.append(temporary_prefect())


@contextmanager
def prefect_runs(label: str, caller: Caller = PROGRAM) -> Iterator[None]:
    """Wait for the Prefect server, and tag flow runs that start within the context.

    Prefect, if imported earlier, reads its settings again. InputError if it does not
    answer.
    """
    from prefect import tags
    from prefect.context import SettingsContext, get_settings_context
    from prefect.settings import Profile, Settings

    from learnkernels.tasks.operate.servers import answering

    for server in _servers:
        server.wait_until_up()
    context = get_settings_context()
    profile = context.profile
    settings = context.settings
    if not caller.by_command:
        profile = Profile(name="learnkernels", settings={})
        settings = Settings()
    # Heartbeats, which temporary servers ignore, delay flows by up to a second
    if _servers:
        flows = settings.flows.model_copy(update={"heartbeat_frequency": None})
        # `temporary_settings` is slow
        settings = settings.model_copy(update={"flows": flows})
    with (
        SettingsContext(profile=profile, settings=settings),
        answering(),
        tags("learnkernels", label),
    ):
        yield


def open_mlflow() -> None:
    """Open MLflow's store, and create it if missing; InputError if it fails."""
    from learnkernels.tasks.databases import mlflow_store

    with mlflow_store():
        pass


@contextmanager
def _own_environment() -> Iterator[None]:
    """Restore the environment of this process at the end."""
    if current_process().name != "MainProcess":
        raise RuntimeError(MAIN_GUARD)
    if lacking := lacking_libraries("this function of learnkernels"):
        raise ImportError(lacking)
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _require_files_of(dataset: DatasetConfig, config: CompareConfig) -> None:
    from learnkernels.conf.loading import existing_files
    from learnkernels.conf.schema import PrecomputedConfig

    if dataset.source == "file":
        existing_files(dataset, config.data_dir)
    for family in config.on(dataset).kernels:
        if isinstance(family, PrecomputedConfig):
            _require_matrices(family, dataset, config.data_dir)
    if dataset.folds is None:
        return
    folds = Path(config.data_dir, dataset.folds)
    if not folds.is_file():
        raise InputError(
            f"data set {dataset.label}: 'folds' {folds} is no file (seen from {Path.cwd()})."
        )


def _require_matrices(
    family: PrecomputedConfig, dataset: DatasetConfig, data_dir: str
) -> None:
    if family.own:
        place = Path(data_dir, family.path)
        exists = place.is_file()
    else:
        place = Path(family.path, dataset.label)
        exists = Path(place, "index.json").is_file()
    if not exists:
        raise InputError(
            f"data set {dataset.label}: there are no matrices in {place} (seen from {Path.cwd()}); make them with "
            "'learnkernels gram', or correct 'path'."
        )


def _require_params(config: CompareConfig) -> None:
    from learnkernels.conf.schema import OwnConfig
    from learnkernels.tasks.data.synthetic import (
        require_params as require_params_of_set,
    )
    from learnkernels.tasks.plugins import custom_family, require_params

    for dataset in config.datasets:
        if dataset.source == "synthetic":
            require_params_of_set(
                str(dataset.name), dataset.params, f"data set {dataset.label}"
            )
    for learner in config.learners:
        require_params(learner)
    for family in (
        family for dataset in config.datasets for family in config.on(dataset).kernels
    ):
        if isinstance(family, OwnConfig):
            custom_family(family)
