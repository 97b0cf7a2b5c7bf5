"""Commands of `learnkernels`, with late imports of heavy libraries."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from learnkernels.conf.errors import InputError, listed, without_passwords
from learnkernels.conf.files import require_place
from learnkernels.tasks.environment import (
    AS_SHOWN,
    explain,
    folder_key,
    key_file,
    prepare_environment,
    use_running_prefect,
)
from learnkernels.tasks.signals import Stopped, set_stop_message, stop_requested

from .functions import (
    EXPLAINED_ROWS,
    Caller,
    TableOptions,
    configuration,
    infer,
    is_table,
    prefect_runs,
    prepare,
    require_one_target,
    require_table,
    run_comparison,
    run_scoring,
    run_training,
    set_up,
)

if TYPE_CHECKING:
    from learnkernels.conf.schema import CompareConfig
    from learnkernels.tasks.operate.retention import Old

PIPED_WIDTH = 120

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

Conf = Annotated[
    Path,
    typer.Argument(help="YAML file, or a bundled one: quickstart.", metavar="CONF"),
]
Files = Annotated[
    list[str],
    typer.Argument(
        help="CSV, Parquet, Arrow or Feather file (or several, or a folder), or a YAML file.",
        metavar="FILE",
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key, e.g. protocol.folds=10. Repeatable.",
    ),
]
KeepDays = Annotated[
    float,
    typer.Option(
        help="Delete cached files not used for so many days (0: never).", min=0
    ),
]
KeepRuns = Annotated[
    float,
    typer.Option(
        help="Delete results of deployments after so many days (0: never).", min=0
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="COLUMN",
        help="Column to predict; only for data files. Repeatable.",
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Group column, e.g. patient; folds do not split a group."
    ),
]
Time = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Time column: train on the past, test on the future."
    ),
]
MetricOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Evaluation metric, e.g. roc_auc (see protocol.metric)."
    ),
]
Without = Annotated[
    list[str] | None,
    typer.Option(
        metavar="BASELINE",
        help="Drop a baseline: constant, linear, grid-search, boosting or estimator. Repeatable.",
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        metavar="M",
        min=0,
        help="Sample the rows so that it takes about so many minutes.",
    ),
]
PrefectPort = Annotated[int, typer.Option(help="Port of Prefect.", min=1, max=65535)]
MlflowPort = Annotated[int, typer.Option(help="Port of MLflow.", min=1, max=65535)]
Refresh = Annotated[
    bool, typer.Option(help="Promote the same recipe on new rows unless it is worse.")
]
OnlyDataset = Annotated[
    str | None,
    typer.Option(metavar="D", help="Data set to train on, if there are several."),
]
Ids = Annotated[
    list[str] | None,
    typer.Option(
        "--id",
        metavar="COLUMN",
        help="Column to copy unchanged to the output. Repeatable.",
    ),
]
EscapeFormulas = Annotated[
    bool,
    typer.Option(
        help="Lead texts of a CSV output that look like formulas with an apostrophe."
    ),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print the log of every step.")
]

BAD_INPUT = 2

UI_SHOWS = (
    "learnkernels ui     shows this run in Prefect and MLflow; this then prints where:"
)

CHART = (
    "the chart of this comparison, on the MLflow server that MLFLOW_TRACKING_URI names:"
)

GOES_ON = "the same command resumes from there"


def _print_version(is_asked: bool) -> None:
    if is_asked:
        say(f"learnkernels {version('learnkernels')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Accept `--version`, the only option before a command."""


@app.command()
def compare(
    files: Files,
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

    For a data file, only the target column is needed: learnkernels compare table.csv
    --target churn

    Write results to results/NAME/RUN, to MLflow (mlflow.db, or MLFLOW_TRACKING_URI) and
    to Prefect (a temporary server, `learnkernels ui`, or PREFECT_API_URL).
    """
    options = TableOptions(
        target, group, time, metric, _split_at_commas(without), minutes
    )
    caller = _caller(verbose)
    with user_errors(f"what was computed is kept, {GOES_ON}"):
        config = configuration(files, options, changes or (), caller)
        result = run_comparison(config, caller)
    command = ""
    if is_table(files):
        command = _init_command(files, options)
    _print_comparison(config, Path(result["results"]), result["mlflow_chart"], command)


def _init_command(files: Sequence[str], options: TableOptions) -> str:
    words = ["learnkernels", "init", *files]
    for name in options.set_names:
        value = getattr(options, name)
        for part in value if isinstance(value, list) else [value]:
            words += [f"--{name}", f"{part:g}" if isinstance(part, float) else part]
    return shlex.join(words)


@app.command()
def init(
    files: Annotated[
        list[str],
        typer.Argument(
            help="CSV, Parquet, Arrow or Feather file (or several, or a folder).",
            metavar="TABLE",
        ),
    ],
    target: Annotated[
        list[str], typer.Option(metavar="COLUMN", help="Column to predict. Repeatable.")
    ],
    group: Group = None,
    time: Time = None,
    metric: MetricOption = None,
    without: Without = None,
    minutes: Minutes = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Configuration to write; TABLE.yaml by default."
        ),
    ] = None,
) -> None:
    """Write the configuration of `compare TABLE --target COLUMN` to a YAML file."""
    options = TableOptions(
        target, group, time, metric, _split_at_commas(without), minutes
    )
    caller = Caller(by_command=True)
    with user_errors("nothing was written"):
        from learnkernels.conf.schema import name_of_files

        name = name_of_files(files)
        path = output or Path(f"{name}.yaml")
        if path.exists():
            raise InputError(f"{path}: is there already; name another with --output.")
        require_table(files, options, caller)
        prepare_environment()
        from learnkernels.tasks.store import atomic_path

        inferred = infer(files, options, caller)
        with atomic_path(path) as aside:
            aside.write_text(inferred.text, encoding="utf-8")
    quoted = shlex.quote(str(path))
    say(
        *inferred.lines,
        "",
        f"next:    learnkernels compare {quoted}",
        f"         learnkernels train {quoted} --model {inferred.label}",
        f"written: {path}",
    )


def _split_at_commas(values: Sequence[str] | None) -> list[str]:
    return [name.strip() for value in values or () for name in value.split(",")]


def _caller(verbose: bool) -> Caller:
    return Caller(by_command=True, verbose=verbose, say=_print_to_stderr)


@contextmanager
def user_errors(after_stop: str) -> Iterator[None]:
    """Print errors without traceback; if the command is stopped, print `after_stop`."""
    set_stop_message(after_stop)
    try:
        yield
    except InputError as error:
        _print_to_stderr(f"error: {error}")
        raise typer.Exit(BAD_INPUT) from None
    except typer.Exit:
        raise
    except Exception as error:
        if stop_requested():  # a library has replaced the error of the signal
            raise Stopped from error
        is_of_the_machine, sentence = explain(error)
        _print_to_stderr(f"error: {sentence}")
        exit_code = 1
        if is_of_the_machine:
            exit_code = BAD_INPUT
        raise typer.Exit(exit_code) from None


def say(*lines: str) -> None:
    """Print lines to the terminal without wrapping them."""
    out = Console(highlight=False)
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)


def _print_comparison(
    config: CompareConfig, results: Path, chart: str, init_command: str = ""
) -> None:
    import pandas as pd

    from learnkernels.tasks.reporting.report import measures, verdicts
    from learnkernels.tasks.reporting.tables import (
        P_VALUES,
        display_table,
        seconds_line,
    )

    summary = pd.read_parquet(results / "summary.parquet")
    rows = display_table(summary)
    say(f"{config.name}: comparison of methods", "", *verdicts(summary), "")
    show_table(rows, folded=("dataset", "method"), numbers=True)
    say("", f"test error: {measures(summary)}; * marks the lowest")
    if "p" in rows[0]:
        say(P_VALUES)
    if seconds := seconds_line(summary):
        say(seconds)
    say("")
    steps = []
    if init_command:
        steps.append(
            f"{init_command}     writes this configuration, for editing and training"
        )
    if os.environ.get("MLFLOW_TRACKING_URI", "").startswith("http"):
        steps += [CHART, chart]
    else:
        steps += [UI_SHOWS, f"learnkernels open {shlex.quote(str(results))}"]
    for label, step in zip(["next:", *[""] * len(steps)], steps, strict=False):
        say(f"{label:9}{step}")
    say(f"report:  {results / 'report.md'}", f"results: {results}")


@app.command()
def gram(
    conf: Conf,
    output: Annotated[
        Path, typer.Option(help="Folder to write to, one sub-folder per data set.")
    ],
    dtype: Annotated[Dtype, typer.Option(help="Data type of the values.")] = "float64",
    changes: Changes = None,
    verbose: Verbose = False,
) -> None:
    """Write the base kernel matrices, neither centered nor scaled.

    The files are NumPy arrays; use them in `compare` with {family: precomputed, path:
    OUTPUT}.
    """
    caller = Caller(by_command=True, verbose=verbose)
    with user_errors(f"finished folders are kept, {GOES_ON}"):
        config = prepare(conf, changes or (), caller)
        if "kernels" not in config.model_fields_set and not all(
            dataset.kernels for dataset in config.datasets
        ):
            raise InputError(
                f"{conf}: 'kernels' gives none whose matrices could be written; give families."
            )
        _print_to_stderr(
            f"{conf}: matrices of {', '.join(dataset.label for dataset in config.datasets)}"
        )
        from .gram import gram as flow

        with prefect_runs(config.name, caller):
            result = flow(output=str(output), dtype=dtype, config=config)
    say(*result["stores"], f"matrices: {output} ({result['size']})")


@app.command()
def train(
    files: Files,
    target: Targets = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Registered model to add a version to; named after FILE by default.",
        ),
    ] = None,
    dataset: OnlyDataset = None,
    learner: Annotated[
        str | None, typer.Option(help="Restrict to this learner.")
    ] = None,
    group: Group = None,
    time: Time = None,
    metric: MetricOption = None,
    changes: Changes = None,
    verbose: Verbose = False,
) -> None:
    """Train a model on all rows and register it in MLflow as challenger.

    For a data file, only the target column is needed: learnkernels train table.csv
    --target churn

    Learner, parameters and C are selected on the validation folds.
    """
    caller = _caller(verbose)
    with user_errors(f"what was computed is kept, {GOES_ON}"):
        require_one_target(target, dataset, caller)
        config = configuration(
            files, TableOptions(target, group, time, metric), changes or (), caller
        )
        result = run_training(config, model, dataset, learner, caller)
    name = result["model"]
    unchanged = " (unchanged)"
    if result["new"]:
        unchanged = ""
    say(
        f"{name} version {result['version']}{unchanged}: {result['learner']}, C = {result['C']:g}, "
        f"expected test error {result['test_error']:.4g}, alignment {result['alignment']:.3f}",
        "",
        f"next:    learnkernels promote {name}     makes it champion, if it is fit to replace the one in use",
        f"         learnkernels predict --model {name}/{result['version']} --input FILE --output FILE",
        f"report:  {Path(result['results']) / 'report.md'}",
        f"results: {result['results']}",
    )


@app.command()
def predict(
    model: Annotated[
        str,
        typer.Option(
            help="NAME (its champion), NAME@ALIAS, NAME/VERSION or models:/ URI."
        ),
    ],
    input: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="CSV, Parquet or Arrow: file, folder, pattern, or s3://bucket/key.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="File or s3://bucket/key; a folder (scored/) gets one file per input file.",
        ),
    ],
    id: Ids = None,
    scheduler: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Dask scheduler, for output to a folder."),
    ] = "",
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse columns that the model does not use."),
    ] = False,
    escape_formulas: EscapeFormulas = True,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Write the contributions of columns to predictions next to the output.",
        ),
    ] = False,
    explain_rows: Annotated[
        int,
        typer.Option(help="Largest number of rows to explain, the first.", min=1),
    ] = EXPLAINED_ROWS,
    verbose: Verbose = False,
) -> None:
    """Score new rows with a registered model, and check them for drift."""
    with user_errors(f"no output was written, {GOES_ON}"):
        result = run_scoring(
            model,
            input,
            output,
            id=id or [],
            scheduler=scheduler,
            strict=strict,
            escape_formulas=escape_formulas,
            explain=explain,
            explain_rows=explain_rows,
            caller=Caller(by_command=True, verbose=verbose),
        )
    say(*_scoring_lines(result), f"output: {result['output']}")
    if "contributions" in result:
        say(f"contributions: {result['contributions']} ({result['explained']:,} rows)")


def _scoring_lines(result: Mapping[str, Any]) -> Iterator[str]:
    yield f"{result['rows']:,} rows scored with {result['model']}"
    if result["ignored"]:
        yield f"ignored, as the model does not read them: {listed(result['ignored'])}"
    unusual = {
        "missing values": result["gaps"],
        "categories that no training row had": result["new_levels"],
    }
    for kind, columns in unusual.items():
        if columns:
            yield f"{kind}: {', '.join(f'{name} ({count:,})' for name, count in columns.items())}"
    yield from result["cells"]
    for warning in result["drift"]["warnings"]:
        yield f"drift: {warning}"
    if result["drift"]["note"]:
        yield f"drift: {result['drift']['note']}"


@app.command()
def promote(
    model: Annotated[
        str, typer.Argument(help="Name of the registered model.", metavar="NAME")
    ],
    challenger: Annotated[
        int | None,
        typer.Option(help="Version to test; the alias challenger by default."),
    ] = None,
    level: Annotated[
        float, typer.Option(help="Significance level.", min=0.0001, max=0.9999)
    ] = 0.1,
    refresh: Refresh = True,
    verbose: Verbose = False,
) -> None:
    """Compare challenger and champion on the same folds, and promote the better.

    Another recipe must be significantly better. The same recipe on new rows must not be
    worse by more than promotion_margin, and must keep columns and classes.
    """
    caller = Caller(by_command=True, verbose=verbose)
    with user_errors(f"what was computed is kept, the champion stays, {GOES_ON}"):
        set_up(caller)
        from .promote import promote as flow

        with prefect_runs(model, caller):
            result = flow(
                model=model, challenger=challenger, level=level, refresh=refresh
            )
    say(
        f"{model}: {result['reason']}",
        f"champion: version {result['champion']}",
        f"results:  {result['results']}",
    )


def show_table(
    rows: Sequence[Mapping[str, str]],
    title: str = "",
    folded: Sequence[str] = (),
    numbers: bool = False,
) -> None:
    """Print mappings as rows of a table in which only the `folded` columns wrap."""
    console = Console(
        highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH
    )
    table = Table(
        title=title or None,
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
        show_edge=False,
    )
    for column in rows[0]:
        is_whole = column not in folded
        side: Literal["left", "right"] = "left"
        if numbers and is_whole:
            side = "right"
        table.add_column(column, justify=side, no_wrap=is_whole, overflow="fold")
    for row, following in zip(rows, [*rows[1:], {}], strict=True):
        is_best = row.get("method", "").endswith("*")
        is_last = row.get("dataset") != following.get("dataset", row.get("dataset"))
        cells = [
            Text(cell.encode(console.encoding, AS_SHOWN).decode(console.encoding))
            for cell in row.values()
        ]
        # No markup in cells
        table.add_row(*cells, style="bold" if is_best else None, end_section=is_last)
    console.print(table)


@app.command()
def learners(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the table as Markdown.")
    ] = False,
) -> None:
    """List the learners, with their parameters and sources."""
    from learnkernels.kernels.learners import COLUMNS, table

    rows = table()
    if markdown:
        from learnkernels.tasks.reporting.markdown import Markdown, markdown_table

        cells = [dict(zip(COLUMNS, map(Markdown, row), strict=True)) for row in rows]
        typer.echo("\n".join(markdown_table(cells)))
        return
    for name, learns, needs, predictor, tasks, parameters, source in rows:
        typer.echo(f"{name.strip('`'):<18} {learns}")
        details = [
            f"needs {needs}; for {tasks}; predictor {predictor}",
            f"takes {parameters}",
            source,
        ]
        if not parameters:
            del details[1]
        for detail in details:
            typer.echo(" " * 19 + detail.replace("`", ""))


@app.command()
def examples(
    folder: Annotated[Path, typer.Argument(help="Folder to copy to.", metavar="DIR")],
) -> None:
    """Copy the bundled configurations, scripts and operations files to a folder."""
    from learnkernels.conf.loading import shipped
    from learnkernels.tasks.store import atomic_path

    package = Path(__file__).parents[1]
    files = [*shipped().values(), *sorted(package.glob("examples/*.py"))]
    with user_errors("nothing was written"):
        copies = {folder / file.name: file for file in files}
        copies |= {
            folder / "operations" / file.name: file
            for file in sorted(package.glob("conf/operations/*"))
        }
        existing = [path for path in copies if path.exists()]
        if existing:
            raise InputError(
                f"{existing[0]}: is there already, and nothing is replaced; name another folder."
            )
        for path, file in copies.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(path) as aside:
                aside.write_bytes(file.read_bytes())
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

        serve(prefect_port, mlflow_port, _print_to_stderr)


@app.command("open")
def open_run(
    run: Annotated[
        str,
        typer.Argument(help="Folder of results, or the name of a run.", metavar="RUN"),
    ],
) -> None:
    """Print the addresses of a run in MLflow and Prefect, and open the first.

    The servers are those of `learnkernels ui` or `up` in this folder, or of
    MLFLOW_TRACKING_URI and PREFECT_API_URL.
    """
    with user_errors("nothing was changed"):
        prepare_environment()
        use_running_prefect()  # Prefect derives its pages' address from it
        from learnkernels.tasks.reporting.places import pages_of_run

        pages = pages_of_run(run)
    for name, address in pages.items():
        say(f"{name + ':':14}{address}")
    if sys.stdout.isatty() and (
        sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ)
    ):
        typer.launch(next(iter(pages.values())))


@app.command()
def up(
    prefect_port: PrefectPort = 4200,
    mlflow_port: MlflowPort = 5000,
    keep_days: KeepDays = 30,
    keep_runs: KeepRuns = 0,
) -> None:
    """Run schedules: serve Prefect and MLflow with one worker; stop with Ctrl-C.

    Servers named by PREFECT_API_URL or MLFLOW_TRACKING_URI (http) are used instead of
    new ones. Once a day, `learnkernels clean --yes` runs, and Prefect deletes runs
    older than --keep-days.
    """
    with user_errors("the runs are kept, schedules go on with the next start"):
        prepare_environment()
        from learnkernels.tasks.operate.retention import LASTING_LEASES, retention, tend
        from learnkernels.tasks.operate.servers import serve

        for name, value in (LASTING_LEASES | retention(keep_days)).items():
            os.environ.setdefault(name, value)
        tend(keep_days, keep_runs, _print_to_stderr)
        serve(prefect_port, mlflow_port, _print_to_stderr, schedules=True)


def _print_to_stderr(line: str) -> None:
    err.print(line, markup=False, soft_wrap=True)


@app.command()
def clean(
    keep_days: KeepDays = 30,
    keep_runs: KeepRuns = 0,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete; otherwise list only.")
    ] = False,
) -> None:
    """List, or with --yes delete, old, damaged and abandoned files.

    Cached files are deleted --keep-days after their last use. Results and MLflow runs
    are kept, except those of deployments older than --keep-runs that no registered
    version refers to.
    """
    from learnkernels.tasks.operate.retention import NotRemoved
    from learnkernels.tasks.operate.retention import clean as clean_up

    with user_errors(f"what was removed can be computed again, {GOES_ON}"):
        prepare_environment()
        try:
            old_files = clean_up(keep_days, keep_runs, yes)
        except NotRemoved as error:
            _show_old_files(error.removed, yes)
            raise
    if not old_files:
        say("nothing is old")
        return
    _show_old_files(old_files, yes)


def _show_old_files(old_files: Sequence[Old], yes: bool) -> None:
    from dask.utils import format_bytes

    show_table(_rows_of_old_files(old_files), folded=("where", "why"), numbers=True)
    total = format_bytes(sum(old.bytes for old in old_files))
    if yes:
        say(f"removed: {total}")
    else:
        say(f"would go: {total}; remove it with --yes")


def _rows_of_old_files(old_files: Iterable[Old]) -> list[dict[str, str]]:
    from dask.utils import format_bytes

    sizes: dict[tuple[str, str], list[int]] = {}
    for old in old_files:
        sizes.setdefault((str(old.path.parent), old.why), []).append(old.bytes)
    return [
        {
            "where": where,
            "why": why,
            "entries": str(len(group)),
            "size": format_bytes(sum(group)),
        }
        for (where, why), group in sorted(sizes.items())
    ]


@app.command()
def deploy(
    conf: Conf,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the registered model.")
    ],
    cron: Annotated[
        str | None,
        typer.Option(
            help="Schedule, e.g. '0 3 * * *'; unchanged by default.", metavar="CRON"
        ),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(help="Time zone of --cron; Etc/UTC by default.", metavar="ZONE"),
    ] = None,
    dataset: OnlyDataset = None,
    refresh: Refresh = True,
    read: Annotated[
        str | None,
        typer.Option(
            "--input", metavar="FILE", help="Rows to score after each promotion."
        ),
    ] = None,
    write: Annotated[
        str | None,
        typer.Option("--output", metavar="FILE", help="File for the predictions."),
    ] = None,
    columns: Ids = None,
    pool: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Prefect work pool (process, Docker or Kubernetes)."
        ),
    ] = "learnkernels",
    variables: Annotated[
        list[str] | None,
        typer.Option(
            "--job-variable",
            metavar="KEY=VALUE",
            help="Job variable of the pool, e.g. image=NAME. Repeatable.",
        ),
    ] = None,
    print_yaml: Annotated[
        bool,
        typer.Option(
            "--print-yaml", help="Print the deployments as prefect.yaml and exit."
        ),
    ] = False,
    changes: Changes = None,
) -> None:
    """Deploy a model to Prefect: compare, train, promote and predict on a schedule.

    The server is that of `learnkernels up` in this folder, or PREFECT_API_URL. Run the
    command again to update the deployments; pause schedules and add notifications in
    Prefect.
    """
    with user_errors(f"what was deployed is kept, {GOES_ON}"):
        require_place(read or "")
        require_place(write or "")
        config = prepare(conf, changes or (), Caller(by_command=True), deploy=True)
        from learnkernels.tasks.operate.deployments import Plan, job_variables, printed
        from learnkernels.tasks.operate.deployments import deploy as deploy_plan

        plan = Plan(
            model=model,
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
        deployed = deploy_plan(plan)
    show_table(
        [{"deployment": row["deployment"], "starts": row["starts"]} for row in deployed]
    )
    for row in deployed:
        say(f"{row['page']}  {row['deployment']}")
    say(
        "",
        f"run one now:  {_access()} prefect deployment run '{deployed[1]['deployment']}'",
    )


def _access() -> str:
    """Return shell variables for Prefect's command, without secrets."""
    from prefect.settings import PREFECT_API_URL

    access = f"PREFECT_API_URL={without_passwords(str(PREFECT_API_URL.value()))}"
    if os.environ.get("PREFECT_API_AUTH_STRING") == folder_key():
        access += f' PREFECT_API_AUTH_STRING="$(cat {shlex.quote(str(key_file()))})"'
    return access
