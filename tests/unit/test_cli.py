"""The command line within this process: what it reads, refuses and prints."""

import re
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import Result
from typer.testing import CliRunner

from learnkernels import compare, predict, train
from learnkernels.conf.errors import InputError
from learnkernels.conf.loading import load_config, resolve_bundled
from learnkernels.flows.cli import _print_comparison, app
from learnkernels.flows.functions import TABLES, TableOptions, configuration, is_table
from learnkernels.kernels.learners import COLUMNS, LEARNERS
from learnkernels.tasks.data import tables
from learnkernels.tasks.data.headers import require_keys
from learnkernels.tasks.data.tables import FORMATS
from learnkernels.tasks.plugins import as_configuration
from learnkernels.tasks.reporting.tables import display_table, summarize
from tests.refusals import require_refusals
from tests.unit.tasks.test_report import folds
from tests.user import ROOT

CONF = str(ROOT / "conf/quickstart.yaml")


@pytest.fixture
def here(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, for runs that would go to a server that is not there."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    # Which commands set
    monkeypatch.setenv("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    return tmp_path / "work"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_a_command_begins_with_every_table_that_can_be_read(here: Path):
    assert set(TABLES) == set(FORMATS)
    Path("mine[1].yaml").touch()
    Path("rows").mkdir()
    for one in ("rows.CSV", "rows", "rows/*", "rows/part-?", "rows/part-[12]"):
        assert is_table(["conf.yaml", one])
    assert not is_table(["conf.yaml", "quickstart", "mine[1].yaml"])


def test_bad_input_is_one_sentence_at_once_and_writes_nothing(here: Path):
    failures = []
    learners = "learners: lq"
    for arguments, sentence in (
        (["nothing.yaml"], r"nothing.yaml: cannot be read .*, quickstart"),
        (["quickstrt"], "quickstrt: cannot be read .*did you mean 'quickstart'"),
        (["rows.csv"], "file not found: rows.csv"),
        ([CONF, "--set", "learners=[alingf]"], "did you mean 'alignf'"),
        (
            [CONF, "--set", "data_dir=gone", "--set", "datasets=[ionosphere.parquet]"],
            "there is no file gone/ionosphere.parquet",
        ),
        (
            [CONF, "--set", "learners=[{name: lq, params: {p: 2}}]"],
            f"{learners} has no parameter 'p'; .*'q'. it takes q",
        ),
        (
            [CONF, "--set", "learners=[{name: lq, params: {q: 0.5}}]"],
            f"{learners}: q must be a number from 1 to inf",
        ),
        (
            [CONF, "--without", "boosting"],
            r"--without only applies to data files .*\. In a configuration, use --set baseline\.without=VALUE",
        ),
        ([CONF, "--set", "learners='nowhere:Mine'"], "learners: .*nowhere"),
        ([CONF, "--set", "kernels={family: 'nowhere:Mine'}"], "kernels: .*nowhere"),
        (
            [
                CONF,
                "--set",
                "datasets={source: synthetic, name: friedman, params: {rows: 5}}",
            ],
            "'params.rows' of fried",
        ),
    ):
        done = run("compare", *arguments)
        one = re.fullmatch(rf"error: [^\n]*{sentence}[^\n]*\n", done.stderr)
        if done.exit_code != 2 or one is None or list(here.iterdir()):
            failures.append((arguments, done.output))
    assert not failures


def test_no_columns_stay_in_memory_of_a_table_that_is_refused(here: Path):
    pd.DataFrame({"a": [1.5, 2.5, 3.5], "churn": ["no", "no", "no"]}).to_csv(
        "table.csv", index=False
    )
    with pytest.raises(InputError, match="at least two classes"):
        compare("table.csv", "churn")
    assert tables._REMEMBERED == {}
    assert not tables._remembers.is_set()


def test_functions_name_their_arguments_and_commands_their_options(here: Path):
    pd.DataFrame({"a": [1.5, 2.5, 3.5], "churn": ["no", "yes", "no"]}).to_csv(
        "table.csv", index=False
    )
    pd.DataFrame({"a": [], "churn": []}).to_csv("header.csv", index=False)
    mapping = {
        "datasets": ["iris"],
        "kernels": [{"family": "linear"}],
        "learners": ["unif"],
    }
    quick = str(ROOT / "conf/quickstart.yaml")
    data_files = "only applies to data files (.csv, .parquet, .arrow, .feather). In a configuration, use "
    columns = "its columns are a, churn."
    baselines = "did you mean 'boosting'? the baselines are constant, linear, grid-search, boosting, estimator."
    several = "datasets: a model learns from one data set, got breast_cancer, diabetes; name one with"
    labels = (
        "a registered model predicts one column, got 'red', 'blue'; name one, or for several labels per row fit "
        "KernelLearningClassifier on their columns of 0 and 1."
    )
    table = [
        (
            partial(compare, "table.csv"),
            f"table.csv: name the column to predict with target=; {columns}",
        ),
        (
            partial(train, "table.csv"),
            f"table.csv: name the column to predict with target=; {columns}",
        ),
        (
            partial(compare, "table.csv", "churn", without="bosting"),
            f"without='bosting': {baselines}",
        ),
        (
            partial(compare, "table.csv", "churn", without=["bosting"]),
            f"without='bosting': {baselines}",
        ),
        (
            partial(compare, mapping, metric="f1"),
            f"the mapping: metric= {data_files}changes='protocol.metric=VALUE'.",
        ),
        (
            partial(compare, mapping, "y"),
            f"the mapping: target= {data_files}changes='datasets.0.target=VALUE'.",
        ),
        (
            partial(compare, mapping, changes="protocol.folds"),
            "change 'protocol.folds': expected key=value, such as protocol.folds=10.",
        ),
        (
            partial(compare, mapping, changes={"protocol.folds": 5}),
            "change {'protocol.folds': 5}: expected a text, such as 'protocol.folds=10'.",
        ),
        (
            partial(compare, "header.csv", "churn"),
            "data set header: header.csv has no rows.",
        ),
        (
            partial(compare, "none/"),
            f"file not found: none/ (working directory: {here}); correct the path.",
        ),
        (
            partial(predict, "m", "none.csv"),
            f"file not found: none.csv (working directory: {here}); correct the path.",
        ),
        (partial(train, quick), f"{several} dataset=."),
        (
            partial(train, "none.csv", ["red", "blue"]),
            f"target=: {labels}",
        ),
    ]
    require_refusals(table, literal=True, error=InputError)
    commands = [
        (
            ["compare", "table.csv"],
            f"table.csv: name the column to predict with --target; {columns}",
        ),
        (
            ["compare", "table.csv", "--target", "churn", "--without", "bosting"],
            f"--without bosting: {baselines}",
        ),
        (
            ["compare", quick, "--target", "y"],
            f"{quick}: --target {data_files}--set datasets.0.target=VALUE.",
        ),
        (
            ["compare", quick, "--minutes", "3"],
            f"{quick}: --minutes {data_files}--set protocol.split=VALUE.",
        ),
        (["train", quick, "--model", "m"], f"{several} --dataset."),
        (
            ["train", "table.csv"],
            f"table.csv: name the column to predict with --target; {columns}",
        ),
        (
            ["train", "none.csv", "--target", "red", "--target", "blue"],
            f"--target: {labels}",
        ),
        (
            ["train", quick, "--metric", "f1"],
            f"{quick}: --metric {data_files}--set protocol.metric=VALUE.",
        ),
        (
            ["predict", "--model", "m", "--input", "tabel.csv", "--output", "o.csv"],
            f"file not found: tabel.csv (working directory: {here}); did you mean 'table.csv'? correct the path.",
        ),
    ]
    for arguments, sentence in commands:
        assert run(*arguments).stderr == f"error: {sentence}\n"


def test_a_text_is_a_list_of_one(here: Path):
    rows = pd.DataFrame({"a": np.arange(40.0) % 7, "y": ["no", "yes"] * 20})
    rows.to_csv("rows.csv", index=False)
    for without, changes in (
        ("estimator", "protocol.folds=4"),
        (["estimator"], ["protocol.folds=4"]),
    ):
        config = configuration("rows.csv", TableOptions("y", without=without), changes)
        assert (config.protocol.folds, config.baseline.kinds) == (
            4,
            ["constant", "linear", "grid-search", "boosting"],
        )


@pytest.mark.parametrize(
    ("metric", "changes"),
    [
        (
            None,
            ["protocol.split.train=500", "protocol.repeats=2"],
        ),  # of a table with more rows
        (None, ["protocol.folds=10", "kernels.1.gammas=[1]", "kernels.0.gammas=[1]"]),
        ("roc_auc", ["learners=[unif]", "learners.0=lq"]),
        (
            "r2",
            [
                "datasets.0.columns.city=categorical",
                "datasets.0.where.y=[1, 2]",
                "baseline=null",
            ],
        ),
        (
            None,
            [
                "protocol={split: {train: 40, validation: 20, test: 20}}",
                "dask.workers=0",
                "kernels=[linear]",
            ],
        ),
        (
            None,
            [
                "data_dir=elsewhere",
                "figures.format=pdf",
                "predictor.name=nystroem",
                "tracking.experiment=mine",
            ],
        ),
    ],
)
def test_what_some_table_takes_is_not_refused_before_its_rows_are_read(
    metric: str | None, changes: list[str]
):
    roles = {"groups": "patient", "time": None}
    require_keys(["rows.csv"], ["y"], roles, metric, ["boosting"], changes)
    require_keys(
        ["a.csv", "b.csv"],
        ["y", "z"],
        {"groups": None, "time": "day"},
        metric,
        [],
        changes,
    )


def test_arrays_that_lack_their_other_half_are_refused():
    X, y = np.ones((5, 2)), np.arange(5)
    first, second = (
        "the configuration: datasets.0: ",
        "the configuration: datasets.1: ",
    )
    target, rows = (
        "has 'X' and no 'y'; give the target of each row as 'y'.",
        "has 'y' and no 'X'; give the rows as 'X', or matrices as 'kernels'.",
    )
    lengths = "'X' has 5 rows and 'y' has 4; give one target per row."
    table = [
        ({"X": X}, first + target),
        ({"X": X, "y": None}, first + target),
        ({"X": pd.DataFrame(X), "Y": y}, first + target),
        (["iris", {"X": X}], second + target),
        ({"y": y}, first + rows),
        ({"X": X, "y": y[:4]}, first + lengths),
    ]
    acts = (
        (partial(as_configuration, {"datasets": datasets}), sentence)
        for datasets, sentence in table
    )
    require_refusals(acts, literal=True, error=InputError)


def test_credentials_in_an_address_are_refused_before_anything_is_told_of_them(
    here: Path,
):
    for command in (
        [
            "predict",
            "--model",
            "m",
            "--input",
            "s3://me:hidden@b/k.csv",
            "--output",
            "o.csv",
        ],
        [
            "predict",
            "--model",
            "m",
            "--input",
            "i.csv",
            "--output",
            "s3://me:hid/den@b/k.csv",
        ],
        ["deploy", CONF, "--model", "m", "--input", "s3://me:hidden@b/k.csv"],
        [
            "compare",
            CONF,
            "--set",
            "data_dir=s3://me:hidden@b/k",
            "--set",
            "datasets=[letters.parquet]",
        ],
    ):
        done = run(*command)
        assert (done.exit_code, done.stdout) == (2, ""), command
        assert re.fullmatch(
            r"error: s3://\.\.\.: [^\n]*AWS_ACCESS_KEY_ID[^\n]*\.\n", done.stderr
        ), command
        assert list(here.iterdir()) == []


def test_a_configuration_that_comes_along_is_found_by_its_name_and_a_file_here_comes_first(
    here: Path,
):
    assert (
        resolve_bundled(Path("quickstart"))
        == ROOT / "learnkernels" / "conf" / "quickstart.yaml"
    )
    assert load_config(Path("quickstart")) == load_config(Path(CONF))
    Path("quickstart").write_text("name: mine")
    assert resolve_bundled(Path("quickstart")) == Path("quickstart")


def test_examples_are_copied_whole_and_replace_nothing(here: Path):
    done = run("examples", "tried")
    assert done.exit_code == 0, done.output
    ours = [
        *(ROOT / "conf").glob("*.yaml"),
        *(ROOT / "conf/examples").iterdir(),
        *(ROOT / "docs" / "examples").glob("*.py"),
        *(ROOT / "conf/operations").iterdir(),
    ]
    copied = {path.name: path.read_bytes() for path in Path("tried").rglob("*.*")}
    assert copied == {path.name: path.read_bytes() for path in ours}
    assert load_config(Path("tried/quickstart.yaml")) == load_config(Path("quickstart"))
    assert Path(done.output.split()[-1]).is_file()  # the script that it says to run
    Path("tried/ionosphere.yaml").write_text("mine")
    again = run("examples", "tried")
    assert again.exit_code == 2
    assert "is there already" in again.output
    assert Path("tried/ionosphere.yaml").read_text() == "mine"


def test_the_version_is_that_of_the_package():
    assert run("--version").output == f"learnkernels {version('learnkernels')}\n"


def test_learners_lists_every_learner_with_its_parameters(here: Path):
    done = run("learners")
    assert (done.exit_code, done.stderr) == (0, "")
    listed = [
        line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")
    ]
    assert listed == list(LEARNERS)
    entries = dict(zip(listed, re.split(r"\n(?=\S)", done.stdout), strict=True))
    for name, learner in LEARNERS.items():
        takes = [
            f"{parameter}={default}"
            for parameter, default in learner().get_params().items()
        ]
        assert all(
            part in entries[name] for part in [learner.summary, learner.source, *takes]
        ), name

    header, _, *rows = run("learners", "--markdown").stdout.strip().splitlines()
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (header, *rows)
    ]
    assert {len(row) for row in cells} == {len(COLUMNS)}
    assert cells[0] == COLUMNS
    assert [row[0].strip("`") for row in cells[1:]] == list(LEARNERS)
    assert list(here.iterdir()) == []


def test_a_piped_table_is_wide_enough_for_long_names_and_shows_brackets_as_they_are(
    tmp_path, capsys, monkeypatch
):
    errors = {
        "unif": [0.3, 0.2, 0.4],
        "lp-svm with a norm of two and a half": [0.2, 0.15, 0.28],
    }
    summary = summarize(folds(errors, "iris [/raw]"))
    summary.to_parquet(tmp_path / "summary.parquet")
    _print_comparison(load_config(Path(CONF)), tmp_path, "chart")
    said = capsys.readouterr().out
    rows = display_table(summary)
    # As wide as a terminal is taken to be
    assert max(len("  ".join(row.values())) for row in rows) > 80
    lines = [line.split() for line in said.splitlines()]
    assert all(" ".join(row.values()).split() in lines for row in rows)
    assert "iris [/raw]" in said
    assert (
        "next:    learnkernels ui     shows this run in Prefect and MLflow; this then prints where:\n"
        in said
    )
    assert f"         learnkernels open {tmp_path}\n" in said
    # Which `learnkernels ui` refuses
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    _print_comparison(load_config(Path(CONF)), tmp_path, "chart")
    said = capsys.readouterr().out
    assert "learnkernels ui" not in said
    assert "next:    the chart of this comparison, on the MLflow server" in said
