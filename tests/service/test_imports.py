"""What fresh processes import, and what they say where the pipeline's libraries are missing."""

import re
import subprocess
import sys
from pathlib import Path

from learnkernels.tasks.environment import COLLECT_AFTER

ROOT = Path(__file__).resolve().parents[2]

LIGHT = {
    "reproduction.command": ["prefect", "mlflow", "distributed", "sklearn", "pandas", "pyarrow", "numpy"],
    "kernels": ["prefect", "mlflow", "dask", "distributed", "pyarrow"],
    "conf.loading": ["prefect", "mlflow", "dask", "distributed", "pyarrow"],
    "tasks.measure.trials": ["prefect", "mlflow"],  # what workers do, who report to nobody but Dask
    "tasks.measure.baseline": ["prefect", "mlflow"],
    "tasks.data.parts": ["prefect", "mlflow"],
    "tasks.operate.recovery": ["mlflow"],  # what `ui`, `up`, `deploy` and `gram` start with
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
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout == ""


def test_importing_the_flows_does_nothing(tmp_path: Path):
    code = "import sys; sys.path.insert(0, sys.argv[1]); import learnkernels.flows.compare"
    run = subprocess.run([sys.executable, "-c", code, str(ROOT)], cwd=tmp_path, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_to_install_where_the_pipeline_is_not():
    bare = [sys.executable, "-S", "-m", "learnkernels", "--help"]  # Python's own library, nothing installed
    run = subprocess.run(bare, cwd=ROOT, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (1, "")
    assert re.fullmatch(r"error: .*\(boto3, .*, yaml\); .*pip install 'learnkernels\[pipeline\]'\n", run.stderr)
