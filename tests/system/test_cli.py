"""The command line as a user meets it: real processes in empty folders."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import httpx
import pandas as pd
import pytest
from prefect.settings import PREFECT_API_URL
from typer.testing import CliRunner

from learnkernels.conf.loading import load_config, located
from learnkernels.flows.cli import TABLES, _is_table, _show, app
from learnkernels.kernels.learners import COLUMNS, LEARNERS
from learnkernels.tasks.data.streams import INPUTS
from learnkernels.tasks.environment import COLLECT_AFTER
from learnkernels.tasks.evidence.tables import display_table, summarise
from tests.unit.tasks.test_report import folds
from tests.user import COMMAND, ROOT, environment, key_of, learnkernels


def test_help_is_quick_to_import_and_names_the_commands(home: Path):
    shown = learnkernels(home, "--help")
    assert shown.returncode == 0
    assert "compare" in shown.stdout
    assert "ui" in shown.stdout
    heavy = ["prefect", "mlflow", "distributed", "sklearn", "pandas", "pyarrow", "numpy"]
    code = (
        f"import gc, learnkernels.__main__, learnkernels.flows.cli, sys; print([name for name in {heavy} if name in "
        "sys.modules], gc.get_threshold()[0])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], env=environment(home), capture_output=True, text=True)
    assert loaded.stdout.strip() == f"[] {COLLECT_AFTER[0]}"


def test_a_command_begins_with_every_table_that_can_be_read():
    assert set(TABLES) == set(INPUTS)


def test_tables_are_told_from_configurations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("mine[1].yaml").touch()
    Path("rows").mkdir()
    for one in ("rows.CSV", "rows", "rows/*", "rows/part-?", "rows/part-[12]"):
        assert _is_table(["conf.yaml", one])
    assert not _is_table(["conf.yaml", "quickstart", "mine[1].yaml"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing.yaml"], r"error: nothing.yaml: cannot be read .*, quickstart"),
        ([str(ROOT / "conf/quickstart.yaml"), "--set", "learners=[alingf]"], r"did you mean 'alignf'"),
        ([str(ROOT / "conf/ionosphere.yaml"), "--set", "data_dir=gone"], r"there is no file gone/ionosphere.parquet"),
    ],
)
def test_bad_input_is_one_sentence_at_once_and_writes_nothing(home: Path, arguments: list[str], sentence: str):
    run = learnkernels(home, "compare", *arguments)
    assert run.returncode == 2
    assert re.search(sentence, run.stderr)
    assert len(run.stderr.strip().splitlines()) == 1
    assert list((home / "work").iterdir()) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("learners=[{name: lq, params: {p: 2}}]", "learners: lq has no parameter 'p'; it takes q"),
        ("learners=[{name: lq, params: {q: 0.5}}]", "learners: lq: q must be a number from 1 to infinity, got 0.5"),
        ("learners='nowhere:Mine'", "learners: .*nowhere"),
        ("kernels={family: 'nowhere:Mine'}", "kernels: .*nowhere"),
        (
            "datasets={source: synthetic, name: friedman, params: {rows: 5}}",
            "'params.rows' of friedman must be a whole",
        ),
    ],
)
def test_parameters_that_are_not_taken_are_refused_before_a_run_begins(home: Path, change: str, sentence: str):
    conf = str(ROOT / "conf/quickstart.yaml")
    run = learnkernels(home, "compare", conf, "--set", change, PREFECT_API_URL="http://127.0.0.1:9/api")
    assert run.returncode == 2
    assert re.fullmatch(rf"error: .*{sentence}.*\n", run.stderr)
    assert not (home / "work" / "mlflow.db").exists()


def test_what_a_learner_refuses_is_one_sentence_too(home: Path, prefect_server: None):
    server = str(PREFECT_API_URL.value())
    dependent = "[linear, {family: polynomial, degrees: [1], coef0: 0}]"
    changes = ["--set", "learners=alignf-linear", "--set", f"kernels={dependent}", "--set", "dask.workers=0"]
    run = learnkernels(home, "compare", str(ROOT / "conf/quickstart.yaml"), *changes, PREFECT_API_URL=server)
    assert run.returncode == 2
    assert "Traceback" not in run.stderr
    (sentence,) = [line for line in run.stderr.splitlines() if "error:" in line]
    assert "data set breast_cancer: learner alignf-linear: base kernels must be independent" in sentence
    assert not (home / "work" / "results").exists()


def test_a_configuration_that_comes_along_is_found_by_its_name_and_a_file_here_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert located(Path("quickstart")) == ROOT / "learnkernels" / "conf" / "quickstart.yaml"
    assert load_config(Path("quickstart")) == load_config(ROOT / "conf/quickstart.yaml")
    (tmp_path / "quickstart").write_text("name: mine")
    assert located(Path("quickstart")) == Path("quickstart")


def test_examples_are_copied_whole_and_replace_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke(app, ["examples", "tried"])
    assert run.exit_code == 0, run.output
    ours = [*(ROOT / "conf").glob("*.yaml"), *(ROOT / "examples").glob("*.py")]
    assert {path.name: path.read_bytes() for path in Path("tried").iterdir()} == {
        path.name: path.read_bytes() for path in ours
    }
    assert load_config(Path("tried/quickstart.yaml")) == load_config(Path("quickstart"))
    assert Path(run.output.split()[-1]).is_file()  # the script that it says to run
    Path("tried/ionosphere.yaml").write_text("mine")
    again = CliRunner().invoke(app, ["examples", "tried"])
    assert again.exit_code == 2
    assert "is there already" in again.output
    assert Path("tried/ionosphere.yaml").read_text() == "mine"


def test_the_version_is_that_of_the_package():
    assert CliRunner().invoke(app, ["--version"]).output == f"learnkernels {version('learnkernels')}\n"


def test_learners_lists_every_learner_with_its_parameters(home: Path):
    run = learnkernels(home, "learners")
    assert (run.returncode, run.stderr) == (0, "")
    listed = [line.split()[0] for line in run.stdout.splitlines() if not line.startswith(" ")]
    assert listed == list(LEARNERS)
    entries = dict(zip(listed, re.split(r"\n(?=\S)", run.stdout), strict=True))
    for name, learner in LEARNERS.items():
        assert learner.summary in entries[name]
        assert learner.source in entries[name]
        assert all(f"{parameter}={default}" in entries[name] for parameter, default in learner().get_params().items())
    assert list((home / "work").iterdir()) == []


def test_learners_as_markdown_is_one_row_a_learner(home: Path):
    run = learnkernels(home, "learners", "--markdown")
    assert run.returncode == 0
    header, rule, *rows = run.stdout.strip().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (header, rule, *rows)]
    assert {len(row) for row in cells} == {len(COLUMNS)}
    assert cells[0] == COLUMNS
    assert [row[0].strip("`") for row in cells[2:]] == list(LEARNERS)


def test_a_piped_table_is_wide_enough_for_long_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    learner = "lp-svm with a norm of two and a half"
    summary = summarise(folds({"unif": [0.3, 0.2, 0.4], learner: [0.2, 0.15, 0.28]}, "breast_cancer"))
    summary.to_parquet(tmp_path / "summary.parquet")
    _show(load_config(ROOT / "conf/quickstart.yaml"), tmp_path, "chart")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    rows = display_table(summary)
    assert max(len("  ".join(row.values())) for row in rows) > 80  # as wide as a terminal is taken to be
    for row in rows:
        assert " ".join(row.values()).split() in lines


def test_a_label_in_brackets_is_no_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    summarise(folds({"unif": [0.3, 0.2, 0.4]}, "iris [/raw]")).to_parquet(tmp_path / "summary.parquet")
    _show(load_config(ROOT / "conf/quickstart.yaml"), tmp_path, "chart")
    assert "iris [/raw]" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [
        ["predict", "--model", "m", "--input", "s3://me:hidden@b/k.csv", "--output", "o.csv"],
        ["predict", "--model", "m", "--input", "i.csv", "--output", "s3://me:hid/den@b/k.csv"],
        ["deploy", str(ROOT / "conf/quickstart.yaml"), "--register", "m", "--input", "s3://me:hidden@b/k.csv"],
        ["compare", str(ROOT / "conf/letters.yaml"), "--set", "data_dir=s3://me:hidden@b/k"],
    ],
    ids=str,
)
def test_credentials_in_an_address_are_refused_before_anything_is_told_of_them(home: Path, command: list[str]):
    run = learnkernels(home, *command)
    assert (run.returncode, run.stdout) == (2, "")
    assert re.fullmatch(r"error: s3://\.\.\.: [^\n]*AWS_ACCESS_KEY_ID[^\n]*\.\n", run.stderr)
    assert list((home / "work").iterdir()) == []


@pytest.mark.slow(35)
def test_the_quickstart_runs_for_a_new_user_and_stays_in_its_folder(home: Path):
    run = learnkernels(home, "compare", "quickstart", LOKY_MAX_CPU_COUNT="2")
    assert run.returncode == 0, run.stderr
    assert "Traceback" not in run.stderr
    assert "INFO" not in run.stderr
    last = run.stdout.strip().splitlines()[-1]
    folder = home / "work" / last.removeprefix("results: ")
    summary = pd.read_parquet(folder / "summary.parquet")
    assert summary.groupby("dataset")["predictor"].first().to_dict() == {"breast_cancer": "svm", "diabetes": "krr"}
    assert len(summary) == 8
    assert (summary["relative_error"] < 0.9).all()
    for row in display_table(summary):
        assert any(line.split() == " ".join(row.values()).split() for line in run.stdout.splitlines()), row
    assert list((home / "home").iterdir()) == []
    assert {path.name for path in (home / "work").iterdir()} == {".learnkernels", "mlartifacts", "mlflow.db", "results"}


@pytest.mark.slow(30)
def test_ui_serves_both_dashboards_takes_runs_and_stops(home: Path, ports: tuple[int, int]):
    prefect_port, mlflow_port = ports
    options = ["--prefect-port", str(prefect_port), "--mlflow-port", str(mlflow_port)]
    with (home / "ui.log").open("w") as log:
        ui = subprocess.Popen(
            [*COMMAND, "ui", *options], cwd=home / "work", env=environment(home), stderr=log, stdout=log
        )
    try:
        note = home / "work" / ".learnkernels" / "ui.json"
        deadline = time.monotonic() + 180
        while not note.exists() and ui.poll() is None and time.monotonic() < deadline:
            time.sleep(0.5)
        said = (home / "ui.log").read_text()
        assert f"http://127.0.0.1:{prefect_port}" in said
        assert f"http://127.0.0.1:{mlflow_port}" in said
        key = key_of(home / "work")
        assert key[1] not in said  # which is no terminal: a journal is no place for it
        assert str(home / "work" / ".learnkernels" / "key") in said
        for port in ports:
            assert httpx.get(f"http://127.0.0.1:{port}/").status_code == 401
            assert httpx.get(f"http://127.0.0.1:{port}/", auth=key).status_code == 200

        again = learnkernels(home, "ui", *options)
        assert again.returncode == 0
        assert f"http://127.0.0.1:{prefect_port}" in again.stderr
        assert "both run already" in again.stderr
        other = learnkernels(home, "ui", "--prefect-port", str(mlflow_port), "--mlflow-port", str(prefect_port))
        assert other.returncode == 2
        assert f"port {mlflow_port} for Prefect is taken" in other.stderr

        changes = ["--set", "learners=[unif]", "--set", "dask.workers=0"]
        assert learnkernels(home, "compare", str(ROOT / "conf/quickstart.yaml"), *changes).returncode == 0
        (flow_run,) = httpx.post(f"http://127.0.0.1:{prefect_port}/api/flow_runs/filter", json={}, auth=key).json()
        assert flow_run["state_type"] == "COMPLETED"
        assert set(flow_run["tags"]) == {"learnkernels", "quickstart"}
    finally:
        ui.send_signal(signal.SIGINT)
        code = ui.wait(timeout=30)
    assert code == 130
    assert not note.exists()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", prefect_port)) != 0
