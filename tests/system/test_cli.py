"""The command line as a user meets it: a process in an empty folder, and what it says where it cannot go on."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from prefect.settings import PREFECT_API_URL

from tests.pages import check, commands, files_of, python_blocks
from tests.user import ROOT, User, environment, learnkernels

CONF = str(ROOT / "conf/quickstart.yaml")
NOBODY = "http://127.0.0.1:9/api"


FUNCTIONS = """
import asyncio, os, pandas as pd
from learnkernels import compare, predict, train

async def cell():  # a notebook has a running event loop
    quick = ["learners=[unif]", "kernels=[{family: gaussian, gammas: [0.1, 1.0]}]", "dask.workers=2"]
    summary = compare("rows.csv", "y", without=["linear", "grid-search", "boosting", "estimator"], changes=quick)
    print(*summary["algorithm"], os.path.exists(os.path.join(summary.attrs["results"], "report.md")))
    rows = pd.read_csv("rows.csv").drop(columns="y").head(3)
    direct = train("rows.csv", "y", model="demo", changes=quick).predict(rows)
    scored = predict("demo", rows, id="z")
    print(*scored.columns[:2])
    print(direct["score"].equals(scored["score"]), *scored["prediction"])

if __name__ == "__main__":
    before = dict(os.environ)
    asyncio.run(cell())
    print(before == dict(os.environ))
"""


@pytest.mark.slow(40)
def test_functions_set_themselves_up_in_a_script_and_in_a_running_event_loop(home):
    x = np.repeat(np.arange(3.0), 20)
    rows = pd.DataFrame(
        {"x": x, "z": np.sin(np.arange(60)), "y": np.where(x > 0, "yes", "no")}
    )
    rows.to_csv(home / "work" / "rows.csv", index=False)
    (home / "work" / "script.py").write_text(FUNCTIONS)
    run = partial(
        subprocess.run,
        cwd=home / "work",
        env=environment(home),
        capture_output=True,
        text=True,
    )
    done = run([sys.executable, "script.py"])
    assert done.stdout.splitlines() == [
        "unif constant True",
        "z prediction",
        "True no no no",
        "True",
    ], done.stderr
    assert list((home / "home").iterdir()) == []
    without = "import sys; sys.modules['prefect'] = None; from learnkernels import compare; compare('rows.csv', 'y')"
    refused = run([sys.executable, "-c", without])
    sentence = "runs on libraries that are not installed (prefect); install them with: pip install 'learnkernels[pipe"
    assert sentence in refused.stderr


@pytest.mark.slow(30)
def test_a_script_without_the_usual_condition_is_told_what_it_lacks(home: Path):
    (home / "work" / "rows.csv").write_text("x,y\n" + "1,a\n2,b\n" * 30)
    (home / "work" / "script.py").write_text(
        "from learnkernels import compare\n"
        "compare('rows.csv', 'y', without=['linear', 'grid-search', 'boosting', 'estimator'],\n"
        "        changes=['learners=[unif]', 'dask.workers=1'])\n"
    )
    command = [sys.executable, "script.py"]
    done = subprocess.run(
        command,
        cwd=home / "work",
        env=environment(home),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "put the call below if __name__ == '__main__':" in done.stderr


NAMES = [
    (["--target", "z"], "rows.csv: it has no column 'z'; its columns are a, b, y."),
    (
        ["--target", "y", "--group", "gruop"],
        "rows.csv: it has no column 'gruop'; its columns are a, b, y.",
    ),
    (
        ["--target", "y", "--time", "day"],
        "rows.csv: it has no column 'day'; its columns are a, b, y.",
    ),
    (
        ["--target", "y", "--metric", "auk"],
        "rows.csv: protocol.metric: 'auk' is not valid; expected 'accuracy', ",
    ),
    (
        ["--target", "y", "--without", "bosting"],
        "--without bosting: did you mean 'boosting'? the baselines are ",
    ),
]

IMPORTED = """
import sys
from typer.testing import CliRunner
from learnkernels.flows.cli import app
print(CliRunner().invoke(app, sys.argv[1:]).stderr)
print(sorted({"prefect", "mlflow", "sklearn", "numba"} & set(sys.modules)))
"""


def require_early_refusal(
    home: Path, command: str, options: list[str], sentence: str
) -> None:
    """Run a command on a table, and see that it is refused before libraries are imported and files are written."""
    (home / "work" / "rows.csv").write_text("a,b,y\n1,2,3\n", encoding="utf-8")
    arguments = [sys.executable, "-c", IMPORTED, command, "rows.csv", *options]
    done = subprocess.run(
        arguments,
        cwd=home / "work",
        env=environment(home),
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith(f"error: {sentence}")
    assert done.stdout.endswith("\n[]\n")
    assert [path.name for path in (home / "work").iterdir()] == ["rows.csv"]


@pytest.mark.parametrize("command", ["compare", "init"])
@pytest.mark.parametrize(("options", "sentence"), NAMES)
def test_names_are_checked_before_anything_heavy_is_imported(
    home: Path, command: str, options: list[str], sentence: str
):
    require_early_refusal(home, command, options, sentence)


CHANGES = [
    (
        "protocol.fold=3",
        "rows.csv: protocol: unknown key 'fold'; did you mean 'folds'?",
    ),
    ("protocol.folds=x", "rows.csv: protocol.folds: must be a whole number, got 'x'."),
    (
        "learners=[alingf]",
        "rows.csv: learners.0: 'alingf' is not valid, did you mean 'alignf'?",
    ),
    (
        "datasets.0.scael=quantile",
        "rows.csv: datasets.0: unknown key 'scael'; did you mean 'scale'?",
    ),
    ("dask.worker=0", "rows.csv: dask: unknown key 'worker'; did you mean 'workers'?"),
    (
        "protocol.folds",
        "change 'protocol.folds': expected key=value, such as protocol.folds=10.",
    ),
]


@pytest.mark.parametrize(("change", "sentence"), CHANGES)
def test_changes_of_a_table_are_checked_before_anything_heavy_is_imported(
    home: Path, change: str, sentence: str
):
    require_early_refusal(home, "compare", ["--target", "y", "--set", change], sentence)


@pytest.mark.slow(60)
def test_the_page_on_studies_gives_the_same_tables_from_yaml_and_from_python(
    home: Path,
):
    page, work, env = ROOT / "docs" / "study.md", home / "work", environment(home)
    for name, text in {
        **files_of(ROOT / "docs" / "extending.md"),
        **files_of(page),
    }.items():
        (work / name).write_text(text)

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=work,
            env=env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("prepare.py")
    (command,) = commands(page)
    folders = [
        work / run("-m", *command.split()).splitlines()[-1].removeprefix("results: ")
    ]
    folders.append(work / run("study.py").splitlines()[-1])
    written = [
        {path.relative_to(folder) for path in folder.rglob("*.*")} for folder in folders
    ]
    assert (
        written[0]
        == written[1]
        >= {
            Path(name)
            for name in ("ranks.pdf", "pairwise.parquet", "rows/graphs.parquet")
        }
    )
    yaml, python = (pd.read_parquet(folder / "folds.parquet") for folder in folders)
    pd.testing.assert_series_equal(yaml["error"], python["error"])
    assert yaml.groupby(["dataset", "learner"]).size().eq(10).all()
    skipped = "Skipped: data set diabetes: learner easymkl serves classification, and this is a regression"
    given = pd.read_csv(work / "wine_folds.csv").to_numpy()
    for folder in folders:
        assert skipped in (folder / "report.md").read_text(encoding="utf-8")
        assert (folder / "ranks.pdf").read_bytes().startswith(b"%PDF")
        lines = (folder / "results.tex").read_text(encoding="utf-8").splitlines()
        assert lines[1:3] == [
            "\\toprule",
            " & unif & align & alignf & easymkl & Softmax \\\\",
        ]
        assert "".join(lines).count("textbf") >= 3
        assert (
            pd.read_parquet(folder / "rows" / "wine.parquet").to_numpy() == given
        ).all()
    (block,) = python_blocks(page)
    assert check(block) == 2


HOSTILE = {
    **{name: "socks5://127.0.0.1:9" for name in ("all_proxy", "ALL_PROXY")},
    **{
        name: "http://127.0.0.1:9"
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    },
    **{"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONWARNINGS": "error"},
    **{
        "NUMBA_DISABLE_JIT": "1",
        "NUMBA_CACHE_DIR": "/proc/missing",
        "TMPDIR": "/proc/missing",
        "TZ": "No/Where",
    },
    **{
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "0",
        "MPLBACKEND": "none",
        "PREFECT_API_AUTH_STRING": "of:another",
    },
}
"""Settings that a shell may have, none of which a command needs to end by."""

OWN = (
    "logging.py",
    "random.py",
    "numpy.py",
    "uvicorn.py",
    "prefect.py",
    "kernels/__init__.py",
    "conf/__init__.py",
)


@pytest.mark.slow(30)
def test_a_comparison_runs_beside_any_modules_and_under_settings_that_a_shell_may_have(
    home,
):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(60, 2)), columns=["größe", "价"])
    table["klasse"] = np.where(table["größe"] > 0, "schön", "so")
    table.to_csv(home / "work" / "maße.csv", index=False)
    for name in OWN:
        (home / "work" / name).parent.mkdir(exist_ok=True)
        (home / "work" / name).write_text("raise SystemError('of the working folder')")
    asked = ("maße.csv", "--target", "klasse", "--without", "boosting,grid-search")
    done = learnkernels(home, "compare", *asked, **HOSTILE)
    assert done.returncode == 0, done.stderr
    assert "classification of klasse, schon (" in done.stderr
    assert "+-" in done.stdout
    assert (done.stdout + done.stderr).isascii()
    (report,) = (home / "work" / "results").rglob("report.md")
    assert "±" in report.read_text(encoding="utf-8")
    missing = learnkernels(home, "compare", "maße.csv", "--target", "große", **HOSTILE)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert (
        "error: masse.csv: it has no column 'grosse'; did you mean 'grosse'? its columns are"
        in missing.stderr
    )


@pytest.mark.slow(25)
def test_what_stops_a_command_is_one_sentence(user: User, prefect_server: None):
    database = user.work / ".learnkernels" / "prefect" / "prefect.db"

    def refused(sentence: str, *arguments: str, **settings: str) -> None:
        done = user.run(*arguments, **settings)
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        (said,) = [line for line in done.stderr.splitlines() if "error:" in line]
        assert sentence in said
        assert not (user.work / "results").exists()

    deploy = ("deploy", CONF, "--model", "demo")
    refused(
        "error: there is no Prefect server to deploy to: start 'learnkernels up'",
        *deploy,
    )
    for command in (deploy, ("compare", CONF)):
        refused(
            f"error: no Prefect server answers at {NOBODY} (",
            *command,
            PREFECT_API_URL=NOBODY,
        )

    refused(
        "error: PREFECT_LOGGING_LEVEL is 'NOPE' in the environment",
        "compare",
        CONF,
        PREFECT_LOGGING_LEVEL="NOPE",
    )

    dependent = "kernels=[linear, {family: polynomial, degrees: [1], coef0: 0}]"
    changes = [
        part
        for one in ("learners=alignf-linear", dependent, "dask.workers=0")
        for part in ("--set", one)
    ]
    learner = "data set breast_cancer: learner alignf-linear: base kernels must be independent"
    refused(
        learner, "compare", CONF, *changes, PREFECT_API_URL=str(PREFECT_API_URL.value())
    )

    database.write_bytes(b"no database " * 99)
    refused(f"error: {database}: is no database of SQLite's", "compare", CONF)
