"""README and pages as a stranger follows them: their Python and every command, in an empty folder and in order."""

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

from dev.tools.forked import Commands
from dev.tools.waiting import within
from tests.pages import check, commands, not_covered, python_blocks
from tests.system.test_journeys import JOURNEY
from tests.user import ROOT, environment

README, CONTRIBUTING = ROOT / "README.md", ROOT / ".github" / "CONTRIBUTING.md"
PAGES = {path.stem: path for path in sorted((ROOT / "docs").glob("*.md"))}
FOLLOWED = [
    README,
    *(
        PAGES[name]
        for name in ("start", "configurations", "lifecycle", "papers", "tile-store")
    ),
]
"""Pages whose commands are run, in the order in which a stranger comes to them."""

RUN_ELSEWHERE = {
    "operations": "tests/system/test_operations.py",
    "stack": "tests/system/test_operations.py",
}
RUN_ELSEWHERE |= {
    "extending": "tests/service/flows/test_extending.py",
    "study": "tests/system/test_cli.py",
}
PYTHON = {
    block: f"{page.stem}-{number}"
    for page in [*PAGES.values(), README]
    if page.stem not in (*RUN_ELSEWHERE, "tile-store")
    for number, block in enumerate(python_blocks(page))
}
"""Blocks of Python, each once, and where they stand: the README shows some that a page has too."""

PROTOCOL = ROOT / "docs" / "chapters" / "4_protocol.py"
INLINE = [
    "learnkernels gram mine.yaml --output grams",
    "learnkernels compare protocol.yaml",
]
"""Commands that stand within a sentence."""

SERVERS = ["learnkernels up"]
# test_packaging.py installs a wheel.
INSTALL = [
    "pip install .",
    "pip install -c packaging/constraints.txt '.[pipeline]'",
]
MAKE = ["make run", "make ui", "make test", "make bench", "make board", "make docs"]
# minutes; test_train.py trains such a model
MANY_ROWS = ["learnkernels compare conf/examples/many_rows.yaml"]
PAPERS = [  # up to an hour; tests/system/test_reproduction.py runs the reduced forms
    "learnkernels papers jmlr2012-table2",
    "learnkernels papers nips2009-table1.as-printed",
    "learnkernels papers --quick",
    "learnkernels papers --report docs/reproduction.md",
]
TARGETS = (
    "check",
    "test",
    "test-system",
    "test-pages",
    "coverage",
    "bench",
    "chaos",
    "docs",
)
DEVELOPERS = [f"make {target}" for target in TARGETS]
DEVELOPERS += ["make dist", ".venv/bin/ruff format .", "pre-commit install"]


def plain(*pages: Path) -> list[str]:
    """The commands of pages, each once, that end by themselves within minutes and are not make's."""
    said = dict.fromkeys(line for page in pages for line in commands(page))
    return [
        line
        for line in said
        if line not in [*MAKE, *SERVERS, *PAPERS, *MANY_ROWS, *INSTALL]
    ]


@pytest.fixture(scope="module")
def stranger(newcomer: Path) -> Path:
    """The newcomer's folder with a configuration of the guide and rows to score."""
    work = newcomer / "work"
    (block,) = re.findall(
        r"^# \.\. code-block:: yaml\n#\n((?:#    .*\n)+)",
        PROTOCOL.read_text(encoding="utf-8"),
        re.M,
    )
    (work / "protocol.yaml").write_text(re.sub(r"^#    ", "", block, flags=re.M))
    rows = load_breast_cancer(as_frame=True).data
    rows.insert(0, "sample", [f"s{i}" for i in range(len(rows))])
    rows.to_parquet(work / "new.parquet")
    return newcomer


def shell(
    command: str, folder: Path, **settings: str
) -> subprocess.CompletedProcess[str]:
    env = environment(folder)
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    pipes = {"capture_output": True, "text": True, "timeout": 600}
    return subprocess.run(
        command, shell=True, cwd=folder / "work", env=env | settings, **pipes
    )


def test_the_readme_is_short():
    assert len(README.read_text(encoding="utf-8").split()) <= 750


@pytest.mark.parametrize("block", PYTHON, ids=PYTHON.values())
def test_python_says_what_the_comments_say(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)  # some blocks write files
    assert check(block)


def test_every_command_is_run():
    text = "\n".join(page.read_text(encoding="utf-8") for page in [*FOLLOWED, PROTOCOL])
    inline = re.findall(r"`(learnkernels (?:compare|gram) \w+\.yaml[^`]*)`", text)
    assert list(dict.fromkeys(inline)) == INLINE
    for page in [README, *PAGES.values()]:
        if page.stem not in RUN_ELSEWHERE:
            run = plain(*FOLLOWED)
            assert (
                not_covered(
                    page, [*run, *SERVERS, *MAKE, *PAPERS, *MANY_ROWS, *INSTALL]
                )
                == []
            ), page.name
    assert not_covered(CONTRIBUTING, DEVELOPERS) == []


def test_make_runs_what_the_pages_say():
    expected = {
        "run": ["learnkernels compare conf/quickstart.yaml"],
        "ui": ["learnkernels ui"],
        "test-unit": [" tests/unit\n"],
        "check": ["ruff check", "mypy", "-m pytest", " tests/unit\n"],
        "test": [
            "ruff check",
            "mypy",
            " tests/unit tests/service tests/system/test_journeys.py\n",
        ],
        "test-system": [
            " tests/system --ignore tests/system/test_journeys.py --ignore tests/system/test_screenshots.py"
        ],
        "test-pages": [
            " -n 0 tests/system/test_screenshots.py tests/system/test_serving.py\n"
        ],
        "coverage": ["-m coverage run -m pytest", " tests\n", "-m coverage combine"],
        "bench": ["-m dev.benchmarks.alignment_statistics"],
        "board": ["-m dev.benchmarks.board"],
        "chaos": ["-m dev.tools.chaos"],
        "docs": ["-m sphinx -b html"],
        "dist": ["-m dev.tools.distributions"],
    }
    assert {f"make {target}" for target in expected} >= {
        line for line in MAKE + DEVELOPERS if line.startswith("make")
    }
    wrong = []
    for target, texts in expected.items():
        shown = subprocess.run(
            ["make", "-n", "-B", target], cwd=ROOT, capture_output=True, text=True
        )
        wrong += [
            (target, text, shown.stderr)
            for text in texts
            if shown.returncode or text not in shown.stdout
        ]
    assert wrong == []


@pytest.mark.slow(80)
def test_the_commands_do_what_they_say(stranger: Path, prefect_server: None):
    server = {
        "PREFECT_API_URL": str(PREFECT_API_URL.value()),
        "MLFLOW_TRACKING_URI": f"sqlite:///{stranger}/mlflow.db",
    }
    work, said = stranger / "work", {}
    with closing(Commands(work, environment(stranger) | server)) as commands:
        for command in [*INLINE, *plain(*FOLLOWED)]:
            if command in JOURNEY:
                continue
            if command.startswith("learnkernels gram"):
                # Two pages make matrices of different data there
                shutil.rmtree(work / "grams", ignore_errors=True)
            run = commands.run(command)
            assert run.returncode == 0, (command, run.stderr)
            said[command] = run.stdout
    assert (work / "results" / "tumours").is_dir()
    assert (work / "results" / "mine").is_dir()
    assert re.search(r"^alignf\b", said["learnkernels learners"], re.MULTILINE)
    assert "GridSearchCV" in said["learnkernels compare protocol.yaml"]
    (promoted,) = [text for command, text in said.items() if "promote" in command]
    assert "champion: version 1" in promoted
    scored = pd.read_parquet(work / "scored.parquet")
    assert list(scored.columns) == ["sample", "prediction", "score"]
    truth = load_breast_cancer().target_names[load_breast_cancer().target]
    # The rows that it learned from
    assert np.mean(scored["prediction"] == truth) > 0.95


@pytest.mark.slow(30)
def test_up_takes_the_deployment(stranger: Path, ports: tuple[int, int]):
    (deploy,) = [
        line
        for line in plain(PAGES["operations"])
        if line.startswith("learnkernels deploy conf/quickstart.yaml --model demo")
    ]
    env = environment(stranger)
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    command = [
        "learnkernels",
        "up",
        "--prefect-port",
        str(ports[0]),
        "--mlflow-port",
        str(ports[1]),
    ]
    with (stranger / "up.log").open("w") as log:
        up = subprocess.Popen(
            command, cwd=stranger / "work", env=env, stdout=log, stderr=log
        )
        try:
            assert within(lambda: "Ctrl-C" in (stranger / "up.log").read_text(), 180), (
                stranger / "up.log"
            ).read_text()
            run = shell(deploy, stranger)
            assert run.returncode == 0, run.stderr
            for step in ("compare", "train", "promote", "predict"):
                assert f"{step}/demo" in run.stdout
            assert "0 3 * * *" in run.stdout
        finally:
            up.send_signal(signal.SIGINT)
            up.wait(timeout=120)
