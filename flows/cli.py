"""The command line. Heavy libraries are imported inside the commands, so that help and errors come at once."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from learnkernels.conf.errors import InputError, listed
from learnkernels.conf.files import require_place
from learnkernels.tasks.environment import (
    AS_SHOWN,
    folder_key,
    key_file,
    prepare_environment,
    running_server,
    told,
)
from learnkernels.tasks.stopping import Stopped, keep, requested

from .functions import (
    configuration,
    is_table,
    open_mlflow,
    prefect_runs,
    prepare,
    require_files,
    set_up,
)

if TYPE_CHECKING:
    from learnkernels.conf.schema import CompareConfig

PIPED_WIDTH = 120
"""Columns of a table that is not printed on a terminal."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Learn kernels from data, and compare the methods under one protocol.",
    epilog="Try: learnkernels compare quickstart. With your data: learnkernels compare table.csv --target COLUMN",
)
err = Console(stderr=True, highlight=False)

Dtype = Literal["float64", "float32"]

Conf = Annotated[Path, typer.Argument(help="YAML file, or a bundled one: quickstart.", metavar="CONF")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key, e.g. protocol.folds=10. Repeatable."),
]
KeepDays = Annotated[float, typer.Option(help="Delete cached files not used for so many days (0: never).", min=0)]
KeepRuns = Annotated[float, typer.Option(help="Delete results of deployments after so many days (0: never).", min=0)]
Targets = Annotated[
    list[str] | None,
    typer.Option("--target", metavar="COLUMN", help="Column to predict; only for data files. Repeatable."),
]
Group = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Group column, e.g. patient; folds do not split a group.")
]
Time = Annotated[str | None, typer.Option(metavar="COLUMN", help="Time column: train on the past, test on the future.")]
MetricOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Evaluation metric, e.g. roc_auc (see protocol.metric).")
]
Without = Annotated[
    list[str] | None,
    typer.Option(metavar="BASELINE", help="Drop a baseline: constant, linear, grid-search or boosting. Repeatable."),
]
Minutes = Annotated[
    float | None, typer.Option(metavar="M", min=0, help="Sample the rows so that it takes about so many minutes.")
]
PrefectPort = Annotated[int, typer.Option(help="Port of Prefect.", min=1, max=65535)]
MlflowPort = Annotated[int, typer.Option(help="Port of MLflow.", min=1, max=65535)]
Refresh = Annotated[bool, typer.Option(help="Promote the same recipe on new rows unless it is worse.")]
OnlyDataset = Annotated[str | None, typer.Option(metavar="D", help="Data set to train on, if there are several.")]
Ids = Annotated[
    list[str] | None, typer.Option("--id", metavar="COLUMN", help="Column to copy unchanged to the output. Repeatable.")
]
EscapeFormulas = Annotated[
    bool, typer.Option(help="Lead texts of a CSV output that look like formulas with an apostrophe.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print the log of every step.")]

BAD_INPUT = 2

UI_SHOWS = "learnkernels ui     shows this run in Prefect and MLflow; this then prints where:"

CHART = "the chart of this comparison, on the MLflow server that MLFLOW_TRACKING_URI names:"

GOES_ON = "the same command resumes from there"


def _version(asked: bool) -> None:
    if asked:
        say(f"learnkernels {version('learnkernels')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Set up what all commands share."""


@app.command()
def compare(
    conf: Annotated[
        list[str],
        typer.Argument(
            help="CSV, Parquet, Arrow or Feather file (or several, or a folder), or a YAML file.", metavar="FILE"
        ),
    ],
    target: Targets = None,
    group: Group = None,
    time: Time = None,
    metric: MetricOption = None,
    without: Without = None,
    minutes: Minutes = None,
    changes: Changes = None,
    verbose: Verbose = False,
) -> None:
    """Compare methods on data sets: test errors, alignments, significance.

    For a data file, only the target column is needed: learnkernels compare table.csv --target churn

    Write results to results/NAME/RUN, to MLflow (mlflow.db, or MLFLOW_TRACKING_URI) and to Prefect (a temporary
    server, `learnkernels ui`, or PREFECT_API_URL).
    """
    options: dict[str, Any] = {"target": target, "group": group, "time": time, "metric": metric}
    options |= {"without": _separate(without), "minutes": minutes}
    with user_errors(f"what was computed is kept, {GOES_ON}"):
        config = configuration(conf, options, changes or (), verbose, _report, by_command=True)
        names = ", ".join(learner.title for learner in config.learners)
        err.print(f"{conf[0]}: {names} on {', '.join(data.label for data in config.datasets)}", markup=False)
        from .compare import compare as flow

        with prefect_runs(config.name):
            open_mlflow()
            result = flow(config=config)
    again = ["learnkernels", "init", *conf]
    for name, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            again += [] if one is None else [f"--{name}", f"{one:g}" if isinstance(one, float) else one]
    _show(config, Path(result["results"]), result["mlflow_chart"], shlex.join(again) if is_table(conf) else "")


@app.command()
def init(
    table: Annotated[
        list[str],
        typer.Argument(help="CSV, Parquet, Arrow or Feather file (or several, or a folder).", metavar="TABLE"),
    ],
    target: Annotated[list[str], typer.Option(metavar="COLUMN", help="Column to predict. Repeatable.")],
    group: Group = None,
    time: Time = None,
    metric: MetricOption = None,
    without: Without = None,
    minutes: Minutes = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Configuration to write; TABLE.yaml by default.")
    ] = None,
) -> None:
    """Write the configuration of `compare TABLE --target COLUMN` to a YAML file."""
    with user_errors("nothing was written"):
        from learnkernels.conf.schema import name_of_files

        name = name_of_files(table)
        path = output or Path(f"{name}.yaml")
        if path.exists():
            raise InputError(f"{path}: is there already; name another with --output.")
        from learnkernels.tasks.data.headers import require_keys, require_names

        roles = {"groups": group, "time": time}
        baselines = _separate(without)
        require_names(table, target, roles, baselines, by_command=True)
        require_keys(table, target, roles, metric, baselines)
        prepare_environment()
        from learnkernels.tasks.data.starting import start
        from learnkernels.tasks.store import atomic_path

        found = start(table, target, roles, metric, baselines, minutes)
        with atomic_path(path) as aside:
            aside.write_text(found.text, encoding="utf-8")
    say(
        *found.lines,
        "",
        f"next:    learnkernels compare {path}",
        f"         learnkernels train {path} --register {name}",
        f"written: {path}",
    )


def _separate(given: Sequence[str] | None) -> list[str]:
    """Return the names of a repeatable option, of which each value may hold several with commas."""
    return [name.strip() for value in given or () for name in value.split(",")]


@contextmanager
def user_errors(kept: str) -> Iterator[None]:
    """Turn a user's error into one sentence; `kept` says what a stopped command keeps."""
    keep(kept)
    try:
        yield
    except InputError as error:
        err.print(f"error: {error}", markup=False, soft_wrap=True)
        raise typer.Exit(BAD_INPUT) from None
    except typer.Exit:
        raise
    except Exception as error:
        if requested():  # a library has made another error of the signal
            raise Stopped from error
        machine, sentence = told(error)
        err.print(f"error: {sentence}", markup=False, soft_wrap=True)
        raise typer.Exit(BAD_INPUT if machine else 1) from None


def say(*lines: str) -> None:
    """Print plain lines; folders and addresses stay whole."""
    out = Console(highlight=False)
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)


def _show(config: CompareConfig, results: Path, chart: str, again: str = "") -> None:
    """Print the verdicts, the table and where everything lies; the results folder comes last.

    `again` is the command that writes the configuration, where there is none yet.
    """
    import pandas as pd

    from learnkernels.tasks.evidence.report import measures, verdicts
    from learnkernels.tasks.evidence.tables import P_VALUES, display_table, seconds_line

    summary = pd.read_parquet(results / "summary.parquet")
    rows, served = display_table(summary), os.environ.get("MLFLOW_TRACKING_URI", "").startswith("http")
    where = chart if served else f"learnkernels open {shlex.quote(str(results))}"
    say(f"{config.name}: comparison of methods", "", *verdicts(summary), "")
    show_table(rows, folded=("dataset", "method"), numbers=True)
    say(
        "",
        f"test error: {measures(summary)}; * marks the lowest",
        *([P_VALUES] if "p" in rows[0] else []),
        *([said] if (said := seconds_line(summary)) else []),
        "",
        *([f"next:    {again}     writes this configuration, for editing and training"] if again else []),
        f"{'        ' if again else 'next:   '} {CHART if served else UI_SHOWS}",
        f"         {where}",
        f"report:  {results / 'report.md'}",
        f"results: {results}",
    )


@app.command()
def gram(
    conf: Conf,
    output: Annotated[Path, typer.Option(help="Folder to write to, one sub-folder per data set.")],
    dtype: Annotated[Dtype, typer.Option(help="Data type of the values.")] = "float64",
    changes: Changes = None,
    verbose: Verbose = False,
) -> None:
    """Write the base kernel matrices, neither centered nor scaled.

    The files are NumPy arrays; use them in `compare` with {family: precomputed, path: OUTPUT}.
    """
    with user_errors(f"finished folders are kept, {GOES_ON}"):
        config = prepare(conf, changes or (), verbose)
        if "kernels" not in config.model_fields_set and not all(of.kernels for of in config.datasets):
            raise InputError(f"{conf}: 'kernels' gives none whose matrices could be written; give families.")
        err.print(f"{conf}: matrices of {', '.join(data.label for data in config.datasets)}", markup=False)
        from .gram import gram as flow

        with prefect_runs(config.name):
            result = flow(output=str(output), dtype=dtype, config=config)
    say(*result["stores"], f"matrices: {output} ({result['size']})")


@app.command()
def train(
    conf: Conf,
    register: Annotated[str, typer.Option(metavar="NAME", help="Registered model to add a version to.")],
    dataset: OnlyDataset = None,
    learner: Annotated[str | None, typer.Option(help="Restrict to this learner.")] = None,
    changes: Changes = None,
    verbose: Verbose = False,
) -> None:
    """Train a model on all rows and register it in MLflow as challenger.

    Learner, parameters and C are selected on the validation folds.
    """
    with user_errors(f"what was computed is kept, {GOES_ON}"):
        config = prepare(conf, changes or (), verbose)
        from learnkernels.tasks.models.training import training_config

        considered = ", ".join(one.title for one in training_config(config, dataset, learner, True).learners)
        err.print(f"{conf}: {register} from {considered}", markup=False)
        from .train import train as flow

        with prefect_runs(register):
            open_mlflow()
            result = flow(model=register, dataset=dataset, learner=learner, config=config)
    name, version = result["model"], result["version"]
    say(
        f"{name} version {version}{'' if result['new'] else ' (unchanged)'}: {result['learner']}, "
        f"C = {result['C']:g}, expected test error {result['test_error']:.4g}, "
        f"alignment {result['alignment']:.3f}",
        "",
        f"next:    learnkernels promote {name}     makes it champion, if it is fit to replace the one in use",
        f"         learnkernels predict --model {name}/{version} --input FILE --output FILE",
        f"report:  {Path(result['results']) / 'report.md'}",
        f"results: {result['results']}",
    )


@app.command()
def predict(
    model: Annotated[str, typer.Option(help="NAME (its champion), NAME@ALIAS, NAME/VERSION or models:/ URI.")],
    input: Annotated[
        str, typer.Option(metavar="FILE", help="CSV, Parquet or Arrow: file, folder, pattern, or s3://bucket/key.")
    ],
    output: Annotated[
        str,
        typer.Option(metavar="FILE", help="File or s3://bucket/key; a folder (scored/) gets one file per input file."),
    ],
    id: Ids = None,
    scheduler: Annotated[str, typer.Option(metavar="ADDRESS", help="Dask scheduler, for output to a folder.")] = "",
    strict: Annotated[bool, typer.Option("--strict", help="Refuse columns that the model does not use.")] = False,
    escape_formulas: EscapeFormulas = True,
    verbose: Verbose = False,
) -> None:
    """Score new rows with a registered model, and check them for drift."""
    with user_errors(f"no output was written, {GOES_ON}"):
        require_place(input)
        require_place(output)
        require_files([input])
        set_up(verbose)

        from learnkernels.kernels.engine.combination import compile_combinations
        from learnkernels.tasks.models.registry import find_version

        from .predict import predict as flow
        from .predict import workers_at

        workers_at(scheduler)  # before the flow shows it as a parameter
        find_version(model)  # while a server starts: one that is missing is refused before a flow begins
        Thread(target=compile_combinations).start()  # while the server is waited for
        with prefect_runs(model):
            result = flow(
                model=model,
                input=input,
                output=output,
                id=id or [],
                scheduler=scheduler,
                strict=strict,
                escape_formulas=escape_formulas,
            )
    met = {"missing values": result["gaps"], "categories that no training row had": result["new_levels"]}
    ignored = f"ignored, as the model does not read them: {listed(result['ignored'])}"
    drift = [*result["drift"]["warnings"], *filter(None, [result["drift"]["note"]])]
    counted = [
        f"{what}: {', '.join(f'{name} ({count:,})' for name, count in columns.items())}"
        for what, columns in met.items()
        if columns
    ]
    say(
        f"{result['rows']:,} rows scored with {result['model']}",
        *([ignored] if result["ignored"] else []),
        *counted,
        *result["cells"],
        *(f"drift: {sentence}" for sentence in drift),
        f"output: {result['output']}",
    )


@app.command()
def promote(
    model: Annotated[str, typer.Argument(help="Name of the registered model.", metavar="NAME")],
    challenger: Annotated[int | None, typer.Option(help="Version to test; the alias challenger by default.")] = None,
    level: Annotated[float, typer.Option(help="Significance level.", min=0.0001, max=0.9999)] = 0.1,
    refresh: Refresh = True,
    verbose: Verbose = False,
) -> None:
    """Compare challenger and champion on the same folds, and promote the better.

    Another recipe must be significantly better. The same recipe on new rows must not be worse by more than
    promotion_margin, and must keep columns and classes.
    """
    with user_errors(f"what was computed is kept, the champion stays, {GOES_ON}"):
        set_up(verbose)
        from .promote import promote as flow

        with prefect_runs(model):
            result = flow(model=model, challenger=challenger, level=level, refresh=refresh)
    say(f"{model}: {result['reason']}", f"champion: version {result['champion']}", f"results:  {result['results']}")


def show_table(
    rows: Sequence[Mapping[str, str]], title: str = "", folded: Sequence[str] = (), numbers: bool = False
) -> None:
    """Print rows as a table: some columns may be folded, the others stay whole, and to the right if they are numbers.

    The row of a method with a star is bold, and a line separates data sets.
    """
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)
    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, padding=(0, 0, 0, 1), show_edge=False)
    for column in rows[0]:
        whole = column not in folded
        table.add_column(column, justify="right" if numbers and whole else "left", no_wrap=whole, overflow="fold")
    for row, following in zip(rows, [*rows[1:], {}], strict=True):
        best = row.get("method", "").endswith("*")
        last = row.get("dataset") != following.get("dataset", row.get("dataset"))
        cells = (Text(cell.encode(console.encoding, AS_SHOWN).decode(console.encoding)) for cell in row.values())
        table.add_row(*cells, style="bold" if best else None, end_section=last)  # no markup in cells
    console.print(table)


@app.command()
def learners(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
) -> None:
    """List the learners, with their parameters and sources."""
    from learnkernels.kernels.learners import COLUMNS, table

    rows = table()
    if markdown:
        from learnkernels.tasks.evidence.markdown import Markdown, markdown_table

        cells = [dict(zip(COLUMNS, map(Markdown, row), strict=True)) for row in rows]
        typer.echo("\n".join(markdown_table(cells)))
        return
    for name, learns, needs, predictor, tasks, parameters, source in rows:
        typer.echo(f"{name.strip('`'):<18} {learns}")
        takes = [f"takes {parameters}"] if parameters else []
        for detail in (f"needs {needs}; for {tasks}; predictor {predictor}", *takes, source):
            typer.echo(" " * 19 + detail.replace("`", ""))


@app.command()
def examples(folder: Annotated[Path, typer.Argument(help="Folder to copy to.", metavar="DIR")]) -> None:
    """Copy the bundled configurations, scripts and operations files to a folder."""
    from learnkernels.conf.loading import shipped
    from learnkernels.tasks.store import atomic_path

    ours = Path(__file__).parents[1]
    scripts = sorted(ours.glob("examples/*.py"))
    with user_errors("nothing was written"):
        copies = {folder / one.name: one for one in (*shipped().values(), *scripts)}
        copies |= {folder / "operations" / one.name: one for one in sorted(ours.glob("conf/operations/*"))}
        if there := [path for path in copies if path.exists()]:
            raise InputError(f"{there[0]}: is there already, and nothing is replaced; name another folder.")
        for path, one in copies.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(path) as aside:
                aside.write_bytes(one.read_bytes())
    say(
        *map(str, copies),
        "",
        f"next:    learnkernels compare {shlex.quote(str(folder / 'quickstart.yaml'))}",
        f"         python {shlex.quote(str(folder / 'first_table.py'))}",
    )


@app.command()
def ui(prefect_port: PrefectPort = 4200, mlflow_port: MlflowPort = 5000) -> None:
    """Serve Prefect and MLflow for the runs of this folder; stop with Ctrl-C."""
    with user_errors("the runs are kept"):
        prepare_environment()
        from learnkernels.tasks.operate.servers import serve

        serve(prefect_port, mlflow_port, _report)


@app.command("open")
def open_run(
    run: Annotated[str, typer.Argument(help="Folder of results, or the name of a run.", metavar="RUN")],
) -> None:
    """Show a comparison, training or decision in MLflow and Prefect: print its addresses, and open the first.

    The servers are those of `learnkernels ui` or `up` in this folder, or those that MLFLOW_TRACKING_URI and
    PREFECT_API_URL name.
    """
    with user_errors("nothing was changed"):
        prepare_environment()
        if "PREFECT_API_URL" not in os.environ and (address := running_server("prefect_api")):
            os.environ["PREFECT_API_URL"] = address  # from which Prefect derives the address of its pages
        from learnkernels.tasks.evidence.places import pages_of_run

        pages = pages_of_run(run)
    for name, address in pages.items():
        say(f"{name + ':':14}{address}")
    if sys.stdout.isatty() and (sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ)):
        typer.launch(next(iter(pages.values())))


@app.command()
def up(
    prefect_port: PrefectPort = 4200, mlflow_port: MlflowPort = 5000, keep_days: KeepDays = 30, keep_runs: KeepRuns = 0
) -> None:
    """Run schedules: serve Prefect and MLflow with one worker; stop with Ctrl-C.

    Servers named by PREFECT_API_URL or MLFLOW_TRACKING_URI (http) are used instead of new ones. Once a day,
    `learnkernels clean --yes` runs, and Prefect deletes runs older than --keep-days.
    """
    with user_errors("the runs are kept, schedules go on with the next start"):
        prepare_environment()
        from learnkernels.tasks.operate.servers import serve
        from learnkernels.tasks.operate.upkeep import LASTING_LEASES, retention, tend

        for name, value in (LASTING_LEASES | retention(keep_days)).items():
            os.environ.setdefault(name, value)
        tend(keep_days, keep_runs, _report)
        serve(prefect_port, mlflow_port, _report, schedules=True)


def _report(line: str) -> None:
    err.print(line, markup=False, soft_wrap=True)


@app.command()
def clean(
    keep_days: KeepDays = 30,
    keep_runs: KeepRuns = 0,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; otherwise list only.")] = False,
) -> None:
    """List, or with --yes delete, old, damaged and abandoned files.

    Cached files are deleted --keep-days after their last use. Results and MLflow runs are kept, except those of
    deployments older than --keep-runs that no registered version refers to.
    """
    from learnkernels.tasks.operate.upkeep import clean as clean_up

    with user_errors(f"what was removed can be computed again, {GOES_ON}"):
        prepare_environment()
        found = clean_up(keep_days, keep_runs, yes)
    if not found:
        say("nothing is old")
        return
    from dask.utils import format_bytes

    sizes: dict[tuple[str, str], list[int]] = {}
    for old in found:
        sizes.setdefault((str(old.path.parent), old.why), []).append(old.bytes)
    shown = [
        {"where": where, "why": why, "entries": str(len(of)), "size": format_bytes(sum(of))}
        for (where, why), of in sorted(sizes.items())
    ]
    show_table(shown, folded=("where", "why"), numbers=True)
    total = format_bytes(sum(old.bytes for old in found))
    say(f"removed: {total}" if yes else f"would go: {total}; remove it with --yes")


@app.command()
def deploy(
    conf: Conf,
    register: Annotated[str, typer.Option(metavar="NAME", help="Name of the registered model.")],
    cron: Annotated[
        str | None, typer.Option(help="Schedule, e.g. '0 3 * * *'; unchanged by default.", metavar="CRON")
    ] = None,
    timezone: Annotated[str, typer.Option(help="Time zone of --cron.", metavar="ZONE")] = "Etc/UTC",
    dataset: OnlyDataset = None,
    refresh: Refresh = True,
    read: Annotated[
        str | None, typer.Option("--input", metavar="FILE", help="Rows to score after each promotion.")
    ] = None,
    write: Annotated[str | None, typer.Option("--output", metavar="FILE", help="File for the predictions.")] = None,
    columns: Ids = None,
    pool: Annotated[
        str, typer.Option(metavar="NAME", help="Prefect work pool (process, Docker or Kubernetes).")
    ] = "learnkernels",
    variables: Annotated[
        list[str] | None,
        typer.Option(
            "--job-variable", metavar="KEY=VALUE", help="Job variable of the pool, e.g. image=NAME. Repeatable."
        ),
    ] = None,
    print_yaml: Annotated[
        bool, typer.Option("--print-yaml", help="Print the deployments as prefect.yaml and exit.")
    ] = False,
    changes: Changes = None,
) -> None:
    """Deploy a model to Prefect: compare, train, promote and predict on a schedule.

    The server is that of `learnkernels up` in this folder, or PREFECT_API_URL. Run the command again to update the
    deployments; pause schedules and add notifications in Prefect.
    """
    with user_errors(f"what was deployed is kept, {GOES_ON}"):
        require_place(read or "")
        require_place(write or "")
        config = prepare(conf, changes or (), deploy=True)
        from learnkernels.tasks.operate.deployments import Plan, job_variables, printed
        from learnkernels.tasks.operate.deployments import deploy as apply

        plan = Plan(
            model=register,
            config=config,
            cron=cron,
            timezone=timezone,
            dataset=dataset,
            refresh=refresh,
            input=read,
            output=write,
            id=columns or (),
            pool=pool,
            job_variables=job_variables(variables or ()),
        )
        if print_yaml:
            typer.echo(printed(plan), nl=False)
            return
        deployed = apply(plan)
    show_table([{"deployment": one["deployment"], "starts": one["starts"]} for one in deployed])
    say(
        *(f"{one['page']}  {one['deployment']}" for one in deployed),
        "",
        f"run one now:  {_access()} prefect deployment run '{deployed[1]['deployment']}'",
    )


def _access() -> str:
    """Return the variables by which Prefect's own command reaches the server, as a shell reads them; no secret."""
    access = f"PREFECT_API_URL={os.environ['PREFECT_API_URL']}"
    if os.environ.get("PREFECT_API_AUTH_STRING") == folder_key():
        access += f' PREFECT_API_AUTH_STRING="$(cat {shlex.quote(str(key_file()))})"'
    return access
