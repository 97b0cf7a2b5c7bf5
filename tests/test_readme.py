"""The README as a stranger follows it: its Python and every command, run in an empty folder in the order they stand."""

from __future__ import annotations

import ast
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from prefect.settings import PREFECT_API_URL
from sklearn.datasets import load_breast_cancer

from tests.commands import commands, not_covered
from tests.flows.test_cli import ROOT, environment, ports  # noqa: F401
from tests.waiting import within

README, CONTRIBUTING, TILE_STORE = (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "docs/tile-store.md"))
PYTHON = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
INLINE = re.findall(r"`(learnkernels (?:compare|gram) \w+\.yaml[^`]*)`", README.read_text(encoding="utf-8"))

SERVERS = ["learnkernels up"]
INSTALL = ["pip install .", "pip install -c constraints.txt '.[pipeline]'"]  # tests/test_packaging.py installs a wheel
MAKE = ["make run", "make ui", "make test", "make bench", "make board", "make docs"]
MANY_ROWS = ["learnkernels compare conf/many_rows.yaml"]  # minutes; tests/flows/test_samples.py runs such a comparison
PAPERS = [  # up to an hour; tests/test_reproduction.py runs the reduced forms
    "learnkernels papers jmlr2012-table2",
    "learnkernels papers --quick",
    "learnkernels papers --report docs/reproduction.md",
]
DEVELOPERS = [
    "make check",
    "make test",
    ".venv/bin/ruff format .",
    "make bench",
    "make chaos",
    "make docs",
]


def plain(page: Path) -> list[str]:
    """The commands of a page that end by themselves within minutes and are not make's."""
    return [line for line in commands(page) if line not in [*MAKE, *SERVERS, *PAPERS, *MANY_ROWS, *INSTALL]]


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the README takes for granted: configurations, measurements, rows to score."""
    folder = tmp_path_factory.mktemp("stranger")
    (folder / "home").mkdir()
    work = folder / "work"
    work.mkdir()
    shutil.copytree(ROOT / "conf", work / "conf", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (yaml,) = re.findall(r"```yaml\n# mine.yaml\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (work / "mine.yaml").write_text(yaml)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3))
    measured = pd.DataFrame(X, columns=["temperature", "pressure", "flow"])
    measured["yield"] = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=90)
    measured.loc[3, "flow"] = np.nan
    measured.insert(0, "id", np.arange(90))
    measured.to_parquet(work / "measurements.parquet")
    table = measured.rename(columns={"flow": "spent"}).assign(city=rng.choice(["here", "there", None], 90))
    table["churn"] = np.where(table.pop("yield") + (table["city"] == "here") > 0, "yes", "no")
    table.to_csv(work / "table.csv", index=False)
    rows = load_breast_cancer(as_frame=True).data
    rows.insert(0, "sample", [f"s{i}" for i in range(len(rows))])
    rows.to_parquet(work / "new.parquet")
    return folder


def shell(command: str, folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    env = environment(folder)
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    return subprocess.run(
        command, shell=True, cwd=folder / "work", env=env | settings, capture_output=True, text=True, timeout=600
    )


@pytest.mark.parametrize("block", PYTHON, ids=range(len(PYTHON)))
def test_python_says_what_the_comments_say(block: str):
    names: dict[str, object] = {}
    lines, checked = block.splitlines(), 0
    for node in ast.parse(block).body:
        source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        claim = re.search(r"  # (\d+\.\d+|array\(.*\))$", source)
        if not isinstance(node, ast.Expr) or claim is None:
            exec(source, names)
            continue
        value, said = eval(source, names), eval(claim.group(1), {"array": np.array})
        np.testing.assert_allclose(value, said, atol=0.0051)  # told to two digits
        checked += 1
    assert checked


def test_every_command_is_run():
    assert INLINE == ["learnkernels gram mine.yaml --output grams"]
    assert not_covered(README, [*plain(README), *SERVERS, *MAKE, *PAPERS, *MANY_ROWS, *INSTALL]) == []
    assert not_covered(TILE_STORE, plain(TILE_STORE)) == []
    assert not_covered(CONTRIBUTING, DEVELOPERS) == []


@pytest.mark.parametrize("target", sorted([*MAKE, "make check", "make chaos"]))
def test_what_make_runs_is_there(target: str):
    shown = subprocess.run(["make", "-n", "-B", target.split()[1]], cwd=ROOT, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    expected = {
        "make run": "learnkernels compare conf/quickstart.yaml",
        "make ui": "learnkernels ui",
        "make check": "tests/kernels tests/conf",
        "make test": "-m pytest",
        "make bench": "-m benchmarks.moments",
        "make board": "-m benchmarks.board",
        "make chaos": "-m tests.chaos",
        "make docs": "build_reference.py",
    }
    assert expected[target] in shown.stdout


@pytest.mark.slow
def test_the_commands_do_what_they_say(stranger: Path, prefect_server: None):
    server = {"PREFECT_API_URL": str(PREFECT_API_URL.value()), "MLFLOW_TRACKING_URI": f"sqlite:///{stranger}/mlflow.db"}
    deployed = [line for line in plain(README) if line.startswith("learnkernels deploy")]
    work, said = stranger / "work", {}
    for command in [*INLINE, *(line for line in plain(README) if line not in deployed), *plain(TILE_STORE)]:
        if command.startswith("learnkernels gram"):
            shutil.rmtree(work / "grams", ignore_errors=True)  # two pages make matrices of different data there
        run = shell(command, stranger, **server)
        assert run.returncode == 0, (command, run.stderr)
        said[command] = run.stdout
    assert (work / "results" / "mine").is_dir()
    assert (work / "results" / "tumours").is_dir()
    (won,) = [text for command, text in said.items() if command.startswith("learnkernels compare table.csv")]
    assert "HistGradientBoosting" in won
    assert set(pd.read_csv(work / "scored.csv")["prediction"]) == {"yes", "no"}
    (promoted,) = [text for command, text in said.items() if "promote" in command]
    assert "champion: version 1" in promoted
    scored = pd.read_parquet(work / "scored.parquet")
    assert list(scored.columns) == ["sample", "prediction", "score"]
    truth = load_breast_cancer().target_names[load_breast_cancer().target]
    assert np.mean(scored["prediction"] == truth) > 0.95  # the rows that it learned from


@pytest.mark.slow
def test_up_takes_the_deployment(stranger: Path, ports: tuple[int, int]):  # noqa: F811
    (deploy,) = [line for line in plain(README) if line.startswith("learnkernels deploy")]
    env = environment(stranger)
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    command = ["learnkernels", "up", "--prefect-port", str(ports[0]), "--mlflow-port", str(ports[1])]
    with (stranger / "up.log").open("w") as log:
        up = subprocess.Popen(command, cwd=stranger / "work", env=env, stdout=log, stderr=log)
        try:
            assert within(lambda: "Ctrl-C" in (stranger / "up.log").read_text(), 180), (stranger / "up.log").read_text()
            run = shell(deploy, stranger)
            assert run.returncode == 0, run.stderr
            for step in ("compare-kernel-learners", "train-kernel-model", "promote-challenger", "score-rows"):
                assert f"{step}/tumours" in run.stdout
            assert "03:00" in run.stdout
        finally:
            up.send_signal(signal.SIGINT)
            up.wait(timeout=120)
