"""`compare`, `train` and `predict` as functions of Python, and what they share with the commands of these names."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import current_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

from learnkernels.conf.errors import InputError, did_you_mean, option
from learnkernels.conf.files import ending_of
from learnkernels.tasks.environment import lacking_libraries, prepare_environment, running_server

if TYPE_CHECKING:
    import pandas as pd

    from learnkernels.conf.schema import CompareConfig
    from learnkernels.tasks.models.registry import PyFuncModel
    from learnkernels.tasks.operate.servers import Service

TABLES = (".csv", ".parquet", ".arrow", ".feather")
"""Endings of tables."""

KEYS = {
    "target": "datasets.0.target",
    "group": "datasets.0.groups",
    "time": "datasets.0.time",
    "metric": "protocol.metric",
    "without": "baseline.without",
    "minutes": "protocol.split",
}
"""Options of tables, and the keys of a configuration that are for the same."""

MAIN_GUARD = (
    "this function was called in a worker process, in which Python imports your script; put the call below "
    "if __name__ == '__main__':"
)
"""The message of a call in a script that lacks the usual condition."""

_servers: list[Service] = []
"""The Prefect server of this process, where it has one of its own."""


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
    """Compare learners of the kernel on a table or on the data sets of a configuration, and leave the evidence.

    Does what the command ``learnkernels compare`` does, and writes into the working directory: ``results/``, MLflow's
    ``mlflow.db`` and ``mlartifacts/``, and ``.learnkernels/``, in which Prefect has its home.

    Parameters
    ----------
    table : path, sequence of paths or mapping
        Parquet, CSV, Arrow or Feather; several files or a folder of them; or a configuration: a YAML file, or a mapping
        with its keys. In a mapping, learners and families may be objects, and data sets, folds and kernel matrices
        may be arrays (:doc:`../study`).
    target : str or sequence of str, optional
        Columns of a table to predict.
    group, time : str, optional
        Columns of a table: groups that are never divided; time, in which earlier rows train and later ones test.
    metric : str, optional
        Evaluation metric, such as ``roc_auc``.
    without : str or sequence of str
        Baselines of a table to leave out, such as ``boosting``.
    minutes : float, optional
        About how long comparing a table may take.
    changes : str or sequence of str
        Keys of the configuration to change, such as ``protocol.folds=10``.

    Returns
    -------
    summary : pandas.DataFrame
        One row per data set and method. ``summary.attrs`` has ``results``, the folder of the report.

    Raises
    ------
    InputError
        The table, an argument or the configuration cannot be used.
    """
    with _own_environment():
        options = {"group": group, "time": time, "metric": metric, "without": without, "minutes": minutes}
        config = configuration(table, {"target": target, **options}, changes)
        from .compare import compare as flow

        with prefect_runs(config.name, reload=True):
            open_mlflow()
            result = flow(config=config)
        import pandas as pd

        summary = pd.read_parquet(Path(result["results"], "summary.parquet"))
    summary.attrs = {"results": result["results"]}
    return summary


def train(
    table: str | Path | Sequence[str | Path] | Mapping[str, Any],
    target: str | Sequence[str] | None = None,
    *,
    register: str | None = None,
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
        As of `compare`.
    target : str or sequence of str, optional
        Columns of a table to predict.
    register : str, optional
        Name of the registered model; by default that of the table or configuration.
    dataset : str, optional
        The data set to learn from, where a configuration has several.
    group, time, metric : str, optional
        As of `compare`.
    changes : str or sequence of str
        Keys of the configuration to change.

    Returns
    -------
    model : mlflow.pyfunc.PyFuncModel
        The registered version: ``model.predict(frame)`` predicts the rows of a DataFrame.

    Raises
    ------
    InputError
        The table, an argument or the configuration cannot be used.
    """
    with _own_environment():
        options = {"target": target, "group": group, "time": time, "metric": metric}
        config = configuration(table, options, changes)
        from learnkernels.tasks.models.registry import as_served, find_version
        from learnkernels.tasks.models.training import training_config

        from .train import train as flow

        training_config(config, dataset, None)  # refuses before a server is waited for
        name = register or config.name
        with prefect_runs(name, reload=True):
            open_mlflow()
            result = flow(model=name, dataset=dataset, config=config)
        return as_served(find_version(result["uri"]))


def predict(model: str, table: str | Path | pd.DataFrame, *, id: str | Sequence[str] = ()) -> pd.DataFrame:
    """Predict the rows of a table by a registered model; the command of this name writes more than memory holds.

    Parameters
    ----------
    model : str
        ``NAME`` for its champion, ``NAME@ALIAS`` or ``NAME/VERSION``.
    table : path or pandas.DataFrame
        The rows; a file, or a folder or pattern of files, here or on S3.
    id : str or sequence of str
        Columns to copy into the predictions; without any, rows are numbered.

    Returns
    -------
    predictions : pandas.DataFrame
        One row for each row of the table, in their order.

    Raises
    ------
    InputError
        There is no such model, or the table does not fit it.
    """
    with _own_environment(), tempfile.TemporaryDirectory() as aside:
        import pandas as pd

        from learnkernels.conf.schema.base import several

        if not isinstance(table, pd.DataFrame):
            require_files([str(table)])
        set_up()
        from learnkernels.tasks.models.registry import find_version

        from .predict import predict as flow

        rows, predictions = (str(Path(aside, name)) for name in ("rows.parquet", "predictions.parquet"))
        if isinstance(table, pd.DataFrame):
            table.to_parquet(rows, index=False)
        else:
            rows = str(table)
        find_version(model)
        with prefect_runs(model, reload=True):
            drift = flow(model=model, input=rows, output=predictions, id=list(several(id)))["drift"]
        for sentence in drift["warnings"]:
            warnings.warn(f"drift: {sentence}", stacklevel=2)
        return pd.read_parquet(predictions)


def configuration(
    given: str | Path | Sequence[str | Path] | Mapping[str, Any],
    options: Mapping[str, Any],
    changes: str | Sequence[str],
    verbose: bool = False,
    say: Callable[[str], object] = lambda line: None,
    by_command: bool = False,
) -> CompareConfig:
    """Return the configuration of data files, or that of a YAML file or a mapping, and set up the run.

    Parameters
    ----------
    given : path, sequence of paths or mapping
        As of `compare`.
    options : mapping of str to object
        ``target``, ``group``, ``time``, ``metric``, ``without`` and ``minutes``, which only apply to data files.
    changes : str or sequence of str
        Keys to change.
    verbose : bool
        Whether the log of every step is printed.
    say : callable
        Is given each line about what was inferred from data files.
    by_command : bool
        Whether messages name the options of a command, or the arguments of a Python function.

    Raises
    ------
    InputError
        The files, an option or the configuration cannot be used.
    """
    from learnkernels.conf.schema.base import several

    changes = several(changes)
    files = [str(given)] if isinstance(given, str | Path) else list(map(str, given))
    if isinstance(given, Mapping) or not is_table(files):
        where = "the mapping" if isinstance(given, Mapping) else files[0]
        if len(files) > 1 and not isinstance(given, Mapping):
            raise InputError(f"{where}: one configuration is run at a time, got {len(files)}; give one.")
        if refused := [name for name, value in options.items() if value]:
            name, change = option(refused[0], by_command), f"{KEYS[refused[0]]}=VALUE"
            raise InputError(
                f"{where}: {name} only applies to data files ({', '.join(TABLES)}). In a configuration, use "
                f"{option('set' if by_command else 'changes', by_command, change)}."
            )
        return prepare(given if isinstance(given, Mapping) else Path(where), changes, verbose, say=say)
    from learnkernels.conf.loading import config_of_text

    require_files(files)
    from learnkernels.tasks.data.headers import joint_title, require_keys, require_names

    roles = {"groups": options["group"], "time": options["time"]}
    without, minutes = several(options.get("without") or ()), options.get("minutes")
    targets = several(options["target"] or ())
    columns = require_names(files, targets, roles, without, by_command)
    require_keys(files, targets, roles, options["metric"], without, changes)
    say(f"{joint_title(files)}: {len(columns)} columns, to predict {', '.join(targets)}")
    set_up(verbose, say=say)
    from learnkernels.tasks.data.starting import start

    found = start(files, options["target"], roles, options["metric"], without, minutes, by_command)
    for line in found.lines:
        say(line)
    return config_of_text(found.text, Path(files[0]), list(changes))


def require_files(paths: Sequence[str]) -> None:
    """Raise InputError if a path of this machine refers to nothing; objects on servers are not looked for."""
    from learnkernels.conf.files import files_of, is_remote, require_place

    for path in paths:
        require_place(path)
        if not is_remote(path) and files_of(path) is None:
            meant = did_you_mean(path, [here.name for here in Path().iterdir()])
            raise InputError(f"file not found: {path} (working directory: {Path.cwd()}); {meant}correct the path.")


def is_table(files: Sequence[str]) -> bool:
    """Return whether arguments name tables, folders or patterns, and not a configuration."""
    return any(
        ending_of(one) in TABLES
        or Path(one).is_dir()
        or one.endswith("/")
        or (set(one) & set("*?[") and not Path(one).is_file())
        for one in files
    )


def prepare(
    conf: Path | Mapping[str, Any],
    changes: Sequence[str],
    verbose: bool = False,
    deploy: bool = False,
    say: Callable[[str], object] = lambda line: None,
) -> CompareConfig:
    """Return the configuration, checked as far as can be at once, and set up what a flow run needs.

    Raises
    ------
    InputError
        It cannot be read, or names what is not there.
    """
    from learnkernels.conf.loading import config_of, load_config

    if isinstance(conf, Mapping):
        from learnkernels.tasks.own import as_configuration

        config = config_of(as_configuration(conf), "the configuration", changes)
    else:
        config = load_config(conf, changes)
    _require_files(config)
    set_up(verbose, deploy, say)
    _require_params(config)
    return config


def set_up(verbose: bool = False, deploy: bool = False, say: Callable[[str], object] = lambda line: None) -> None:
    """Set up what a flow run needs, before prefect and mlflow are imported, and start a server for it while they are.

    What is deployed goes to a server that stays. `say` is given a line where a server starts, which takes seconds.
    """
    prepare_environment()
    from learnkernels.tasks.operate.servers import temporary_prefect

    _servers.clear()
    if not verbose:
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    if "PREFECT_API_URL" not in os.environ and (address := running_server("prefect_api")):
        os.environ["PREFECT_API_URL"] = address
    if "PREFECT_API_URL" not in os.environ and not deploy:
        say("starting Prefect ...")
        _servers.append(temporary_prefect())


@contextmanager
def prefect_runs(label: str, reload: bool = False) -> Iterator[None]:
    """Wait for the Prefect server, and give the runs of this process their tags.

    Parameters
    ----------
    label : str
        A tag.
    reload : bool
        Whether Prefect may have been imported with another environment, and reads that of now.

    Raises
    ------
    InputError
        Prefect does not answer, or no longer.
    """
    from prefect import tags
    from prefect.context import SettingsContext, get_settings_context
    from prefect.settings import Profile, Settings

    from learnkernels.tasks.operate.servers import answering

    for server in _servers:
        server.wait_until_up()
    context = get_settings_context()
    profile, settings = context.profile, context.settings
    if reload:
        profile, settings = Profile(name="learnkernels", settings={}), Settings()
    if _servers:  # they do nothing about heartbeats, and a flow waits up to a second for the thread that sends them
        flows = settings.flows.model_copy(update={"heartbeat_frequency": None})
        settings = settings.model_copy(update={"flows": flows})  # `temporary_settings` would read all, which is slow
    with SettingsContext(profile=profile, settings=settings), answering(), tags("learnkernels", label):
        yield


def open_mlflow() -> None:
    """Make and open MLflow's store before a flow begins, which takes seconds.

    A flow run whose process is killed before it has a run in MLflow is not recognized at the next start.

    Raises
    ------
    InputError
        The store cannot be used.
    """
    from learnkernels.tasks.evidence.databases import mlflow_store

    with mlflow_store():
        pass


@contextmanager
def _own_environment() -> Iterator[None]:
    """Give this process its environment back, whatever is set within.

    Raises
    ------
    ImportError
        Libraries of the extra `pipeline` are missing.
    RuntimeError
        A worker process imports the user's script, and with it makes the call again.
    """
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


def _require_files(config: CompareConfig) -> None:
    """Refuse missing files before anything heavy is imported."""
    from learnkernels.conf.loading import existing_files
    from learnkernels.conf.schema import PrecomputedConfig

    for dataset in config.datasets:
        if dataset.source == "file":
            existing_files(dataset, config.data_dir)
        for family in config.on(dataset).kernels:
            if not isinstance(family, PrecomputedConfig):
                continue
            place = Path(config.data_dir, family.path) if family.own else Path(family.path, dataset.label, "index.json")
            if not place.is_file():
                raise InputError(
                    f"data set {dataset.label}: there are no matrices in {place if family.own else place.parent} (seen "
                    f"from {Path.cwd()}); make them with 'learnkernels gram', or correct 'path'."
                )
        if dataset.folds is not None and not (place := Path(config.data_dir, dataset.folds)).is_file():
            raise InputError(f"data set {dataset.label}: 'folds' {place} is no file (seen from {Path.cwd()}).")


def _require_params(config: CompareConfig) -> None:
    """Refuse parameters of learners, synthetic sets and custom families, while a server starts."""
    from learnkernels.conf.schema import OwnConfig
    from learnkernels.tasks.data.synthetic import require_params as require_params_of_set
    from learnkernels.tasks.own import own_family, require_params

    for dataset in config.datasets:
        if dataset.source == "synthetic":
            require_params_of_set(str(dataset.name), dataset.params, f"data set {dataset.label}")
    for learner in config.learners:
        require_params(learner)
    for family in (family for dataset in config.datasets for family in config.on(dataset).kernels):
        if isinstance(family, OwnConfig):
            own_family(family)
