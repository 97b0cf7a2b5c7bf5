"""Processes of one's own: what they compile is kept where that can be, and they share the cores."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import joblib
import pytest

import learnkernels
from learnkernels.kernels import compiled
from learnkernels.kernels.engine.workers import available_threads
from tests.service.kernels.test_files import output_of

PACKAGE = Path(learnkernels.__file__).parent

FIT = """
import learnkernels
X = np.random.default_rng(0).normal(size=(40, 3))
learnkernels.KernelLearningRegressor(learnkernels.GaussianFamily([0.5, 1.0]), "align").fit(X, X[:, 0])
from learnkernels.kernels.engine.tiles import add_tile as one
"""

CALL = """
from learnkernels.kernels.engine import operators
operators.add_outer_products(np.array([0, 1]), np.array([0]), np.ones(1), np.ones(1), np.zeros((2, 2)))
one = operators.add_outer_products
"""

HITS = f"""{CALL}
sys.stderr.write(str(sum(one.stats.cache_hits.values())))
"""

SHOW = """
assert one.__module__.startswith("learnkernels.")
assert sys.modules[one.__module__].__file__.startswith(sys.argv[1])
print(one.stats.cache_path)
"""


# Compiled code -------------------------------------------------------------------------------------------------------


def test_no_module_loads_the_compiler_when_it_is_imported():
    paths = [path.relative_to(PACKAGE.parent).with_suffix("") for path in (PACKAGE / "kernels").rglob("*.py")]
    names = [".".join(path.parts).removesuffix(".__init__") for path in paths]
    assert "learnkernels.kernels.engine.tiles" in names
    assert output_of(f"import sys; [__import__(name) for name in {names}]; print('numba' in sys.modules)") == "False"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return the folder of a copy of the package whose folders take no file, not even one of root."""
    copy = tmp_path / "learnkernels"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "tasks", "flows"))
    for folder in {path.parent for path in copy.rglob("*.py")}:
        (folder / "__pycache__").write_bytes(b"")  # in the place of the folder that would be made
    return tmp_path


def run(installed: Path, home: object, temporary: object, code: str) -> tuple[str, str]:
    """Return the folder of what was compiled and what was said, by a process with this home and temporary folder."""
    dropped = {"NUMBA_CACHE_DIR", "XDG_CACHE_HOME"}
    env = {key: value for key, value in os.environ.items() if key not in dropped}
    env |= {"PYTHONPATH": str(installed), "HOME": str(home), "TMPDIR": str(temporary)}
    command = [sys.executable, "-W", "error", "-c", f"import sys, numpy as np{code}{SHOW}", str(installed)]
    done = subprocess.run(command, env=env, cwd=installed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_an_installation_that_is_read_only_keeps_it_in_the_folder_of_the_user(installed: Path, tmp_path: Path):
    folder, said = run(installed, tmp_path, tmp_path, CALL)
    assert folder.startswith(str(tmp_path / ".cache"))
    assert said == compiled.NOTICE
    assert run(installed, tmp_path, tmp_path, CALL) == (folder, "")


@pytest.mark.parametrize(("name", "value"), [("NUMBA_DISABLE_JIT", "1"), ("NUMBA_NUM_THREADS", "0")])
def test_a_setting_of_numba_with_which_nothing_can_be_compiled_is_one_sentence(tmp_path: Path, name: str, value: str):
    env = os.environ | {name: value, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", f"import numpy as np{FIT}"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith(f"ValueError: {name} must be ")


def test_with_no_folder_to_write_to_a_fit_works_and_nothing_is_kept(installed: Path):
    assert run(installed, "/dev/null", "/dev/null", FIT) == ("None", compiled.NOTICE)


def test_what_is_kept_is_made_anew_when_code_that_another_file_emits_changes(installed: Path, tmp_path: Path):
    assert [run(installed, tmp_path, tmp_path, HITS)[1][-1] for _ in range(2)] == ["0", "1"]
    with (installed / "learnkernels" / "kernels" / "compiled.py").open("a") as emitting:
        emitting.write("# changed")
    assert run(installed, tmp_path, tmp_path, HITS)[1][-1] == "0"


# Modules of the working folder ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["-m", "-Bm"])
def test_modules_beside_a_package_that_imports_this_one_are_found_and_not_beside_the_command(tmp_path, option):
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "__init__.py").write_text("import learnkernels, sibling")
    (tmp_path / "sibling.py").touch()
    (tmp_path / "typer.py").write_text("raise SystemExit('not this one')")

    def printed(module: str, *arguments: str) -> str:
        command = [sys.executable, option, module, *arguments]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    (tmp_path / "tool" / "__main__.py").write_text("import tool\nprint(tool.sibling.__name__)")
    assert printed("tool").strip() == "sibling"
    assert printed("learnkernels", "--version").startswith("learnkernels ")


# Threads -------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no process to a core")
def test_no_more_threads_than_the_cores_that_the_process_may_use():
    bound = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])"
    threads = "from learnkernels.kernels.engine.workers import available_threads; print(available_threads())"
    assert output_of(f"{bound}\n{threads}") == "1"


def test_processes_of_joblib_start_no_more_threads_than_there_are_cores():
    jobs, each = joblib.cpu_count(), joblib.delayed(available_threads)
    assert jobs * max(joblib.Parallel(n_jobs=-1)(each() for _ in range(2 * jobs))) <= jobs
    with joblib.parallel_config("loky", inner_max_num_threads=1):
        assert joblib.Parallel(n_jobs=2)(each() for _ in range(4)) == [1] * 4
