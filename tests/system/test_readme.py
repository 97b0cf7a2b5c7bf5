"""README and pages as a stranger follows them: their Python and every command, in an empty folder and in order."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from prefect.settings import PREFECT_API_URL
from sklearn.datasets import load_breast_cancer

from tests.commands import commands, not_covered
from tests.pages import check, files_of, python_blocks
from tests.user import ROOT, environment
from tools.forked import Commands
from tools.waiting import within

README, CONTRIBUTING = ROOT / "README.md", ROOT / "CONTRIBUTING.md"
PAGES = {path.stem: path for path in sorted((ROOT / "docs").glob("*.md"))}
FOLLOWED = [README, *(PAGES[name] for name in ("start", "configurations", "lifecycle", "papers", "tile-store"))]
"""Pages whose commands are run, in the order in which a stranger comes to them."""

RUN_ELSEWHERE = {"operations": "tests/system/test_operations.py", "extending": "tests/system/test_extending.py"}
PYTHON = {
    block: f"{page.stem}-{number}"
    for page in [*PAGES.values(), README]
    if page.stem not in (*RUN_ELSEWHERE, "tile-store")
    for number, block in enumerate(python_blocks(page))
}
"""Blocks of Python, each once, and where they stand: the README shows some that a page has too."""

PROTOCOL = ROOT / "docs" / "chapters" / "4_protocol.py"
INLINE = ["learnkernels gram mine.yaml --output grams", "learnkernels compare protocol.yaml"]
"""Commands that stand within a sentence."""

SERVERS = ["learnkernels up"]
INSTALL = [
    "pip install .",
    "pip install -c constraints.txt '.[pipeline]'",
]  # test_packaging.py installs a wheel
MAKE = ["make run", "make ui", "make test", "make bench", "make board", "make docs"]
MANY_ROWS = ["learnkernels compare conf/many_rows.yaml"]  # minutes; test_samples.py runs such a comparison
PAPERS = [  # up to an hour; tests/system/test_reproduction.py runs the reduced forms
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
    "make dist",
    "pre-commit install",
]


def plain(*pages: Path) -> list[str]:
    """The commands of pages, each once, that end by themselves within minutes and are not make's."""
    said = dict.fromkeys(line for page in pages for line in commands(page))
    return [line for line in said if line not in [*MAKE, *SERVERS, *PAPERS, *MANY_ROWS, *INSTALL]]


def configuration_of_the_guide() -> str:
    """The configuration that a chapter shows, as a file."""
    (block,) = re.findall(r"^# \.\. code-block:: yaml\n#\n((?:#    .*\n)+)", PROTOCOL.read_text(encoding="utf-8"), re.M)
    return re.sub(r"^#    ", "", block, flags=re.M)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages take for granted: configurations, measurements, rows to score."""
    folder = tmp_path_factory.mktemp("stranger")
    (folder / "home").mkdir()
    work = folder / "work"
    work.mkdir()
    shutil.copytree(ROOT / "conf", work / "conf", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (work / "mine.yaml").write_text(files_of(PAGES["configurations"])["mine.yaml"])
    (work / "protocol.yaml").write_text(configuration_of_the_guide())
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


def test_the_readme_is_short_and_shows_what_the_pages_show():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 200
    assert files_of(README) == files_of(PAGES["configurations"])


@pytest.mark.parametrize("block", PYTHON, ids=PYTHON.values())
def test_python_says_what_the_comments_say(block: str):
    assert check(block)


def test_every_command_is_run():
    text = "\n".join(page.read_text(encoding="utf-8") for page in [*FOLLOWED, PROTOCOL])
    inline = re.findall(r"`(learnkernels (?:compare|gram) \w+\.yaml[^`]*)`", text)
    assert list(dict.fromkeys(inline)) == INLINE
    for page in [README, *PAGES.values()]:
        if page.stem not in RUN_ELSEWHERE:
            run = plain(*FOLLOWED)
            assert not_covered(page, [*run, *SERVERS, *MAKE, *PAPERS, *MANY_ROWS, *INSTALL]) == [], page.name
    assert not_covered(CONTRIBUTING, DEVELOPERS) == []


@pytest.mark.parametrize("target", sorted([*MAKE, "make check", "make chaos", "make dist"]))
def test_what_make_runs_is_there(target: str):
    shown = subprocess.run(["make", "-n", "-B", target.split()[1]], cwd=ROOT, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    expected = {
        "make run": "learnkernels compare conf/quickstart.yaml",
        "make ui": "learnkernels ui",
        "make check": "tests/unit/kernels tests/unit/conf",
        "make test": "-m pytest",
        "make bench": "-m benchmarks.moments",
        "make board": "-m benchmarks.board",
        "make chaos": "-m tools.chaos",
        "make docs": "-m sphinx -b html",
        "make dist": "-m tools.distributions",
    }
    assert expected[target] in shown.stdout


@pytest.mark.slow(200)
def test_the_commands_do_what_they_say(stranger: Path, prefect_server: None):
    server = {"PREFECT_API_URL": str(PREFECT_API_URL.value()), "MLFLOW_TRACKING_URI": f"sqlite:///{stranger}/mlflow.db"}
    work, said = stranger / "work", {}
    with closing(Commands(work, environment(stranger) | server)) as commands:
        for command in [*INLINE, *(line for line in plain(*FOLLOWED) if not line.startswith("learnkernels deploy"))]:
            if command.startswith("learnkernels gram"):
                shutil.rmtree(work / "grams", ignore_errors=True)  # two pages make matrices of different data there
            run = commands.run(command)
            assert run.returncode == 0, (command, run.stderr)
            said[command] = run.stdout
    assert (work / "results" / "mine").is_dir()
    assert (work / "results" / "tumours").is_dir()
    assert "GridSearchCV" in said["learnkernels compare protocol.yaml"]
    (won,) = [text for command, text in said.items() if command.startswith("learnkernels compare table.csv")]
    assert "HistGradientBoosting" in won
    assert set(pd.read_csv(work / "scored.csv")["prediction"]) == {"yes", "no"}
    (promoted,) = [text for command, text in said.items() if "promote" in command]
    assert "champion: version 1" in promoted
    scored = pd.read_parquet(work / "scored.parquet")
    assert list(scored.columns) == ["sample", "prediction", "score"]
    truth = load_breast_cancer().target_names[load_breast_cancer().target]
    assert np.mean(scored["prediction"] == truth) > 0.95  # the rows that it learned from


@pytest.mark.slow(30)
def test_up_takes_the_deployment(stranger: Path, ports: tuple[int, int]):
    (deploy,) = [line for line in plain(*FOLLOWED) if line.startswith("learnkernels deploy")]
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
