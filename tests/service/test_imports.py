"""What fresh processes import, and what they say where the pipeline's libraries are missing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from learnkernels.tasks.environment import COLLECT_AFTER

ROOT = Path(__file__).resolve().parents[2]

LIGHT = {
    "reproduction.command": [
        "prefect",
        "mlflow",
        "distributed",
        "sklearn",
        "pandas",
        "pyarrow",
        "numpy",
    ],
    "kernels": ["prefect", "mlflow", "dask", "distributed", "pyarrow"],
    "conf.loading": ["prefect", "mlflow", "dask", "distributed", "pyarrow"],
    "tasks.measure.trials": [
        "prefect",
        "mlflow",
    ],  # what workers do, who report to nobody but Dask
    "tasks.measure.baseline": ["prefect", "mlflow"],
    "tasks.data.parts": ["prefect", "mlflow"],
    "tasks.operate.recovery": [
        "mlflow"
    ],  # what `ui`, `up`, `deploy` and `gram` start with
}
"""Modules, imported one after the other, and what is not imported after each."""


def test_a_fresh_import_loads_nothing_heavy():
    code = f"""
import gc, importlib, sys, learnkernels.__main__
assert gc.get_threshold()[0] == {COLLECT_AFTER[0]}
for module, heavy in {LIGHT}.items():
    importlib.import_module(f"learnkernels.{{module}}")
    print(*[f"{{module}} loads {{name}}" for name in heavy if name in sys.modules], sep="\\n", end="")
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == ""


SETTINGS = """
import gc, os, signal, sys, warnings
import numba, numpy, pandas, scipy, sklearn.base  # which may have settings of their own

def settings():
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    of_numba = {name: value for name, value in vars(numba.config).items() if name.isupper()}
    of_python = list(sys.path), list(sys.argv), gc.get_threshold(), sys.getrecursionlimit(), sys.excepthook
    return {"python": of_python, "environment": dict(os.environ), "warnings": list(warnings.filters),
            "signals": handlers, "numba": of_numba, "numpy": numpy.geterr()}

before = settings()
import learnkernels
used = [getattr(learnkernels, name) for name in learnkernels.__all__] if NAMES else []
after = settings()
print(*[name for name in before if before[name] != after[name]])
"""


@pytest.mark.parametrize("names", [False, True], ids=["the package", "all names"])
@pytest.mark.parametrize("program", ["learnkernels", "script.py"])
def test_importing_the_package_changes_no_setting(
    tmp_path: Path, program: str, names: bool
):
    """The name of the program is that of the command, too, and its folder is on the path as one of PYTHONPATH."""
    (tmp_path / program).write_text(f"NAMES = {names}\n{SETTINGS}")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])
    }
    command = [sys.executable, program]
    run = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "\n"


def test_importing_the_flows_does_nothing(tmp_path: Path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import learnkernels.flows.compare"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(ROOT)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stdout) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_to_install_where_the_pipeline_is_not():
    # Python's own library, nothing installed
    bare = [
        sys.executable,
        "-S",
        "-m",
        "learnkernels",
        "--help",
    ]
    run = subprocess.run(bare, cwd=ROOT, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (1, "")
    assert re.fullmatch(
        r"error: .*\(boto3, .*, yaml\); .*pip install 'learnkernels\[pipeline\]'\n",
        run.stderr,
    )
