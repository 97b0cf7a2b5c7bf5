"""Processes of one's own: what they compile is kept where that can be, and they share the cores."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest

import learnkernels
from learnkernels.kernels.compiled.cache import NOTICE
from learnkernels.kernels.engine.workers import available_threads
from tests.service.kernels.test_files import output_of

PACKAGE = Path(learnkernels.__file__).parent
ROOT = Path(__file__).resolve().parents[3]

FIT = """
import learnkernels
X = np.random.default_rng(0).normal(size=(40, 3))
learnkernels.KernelLearningRegressor(family=learnkernels.GaussianFamily([0.5, 1.0]), learner="align").fit(X, X[:, 0])
from learnkernels.kernels.engine.tiles import add_tile as one
"""

CALL = """
from learnkernels.kernels.engine import operators
starts, positions = np.array([0, 1, 1]), np.array([0])
operators.add_outer_products(starts, positions, starts[:2], positions, np.ones(1), np.ones(1), np.zeros((2, 2)))
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


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return the folder of a copy of the package whose folders take no file, not even one of root."""
    copy = tmp_path / "learnkernels"
    shutil.copytree(
        PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "tasks", "flows")
    )
    for folder in {path.parent for path in copy.rglob("*.py")}:
        # In the place of the folder that would be made
        (folder / "__pycache__").write_bytes(b"")
    return tmp_path


def run(installed: Path, home: object, temporary: object, code: str) -> tuple[str, str]:
    """Return the folder of what was compiled and what was said, by a process with this home and temporary folder."""
    dropped = {"NUMBA_CACHE_DIR", "XDG_CACHE_HOME"}
    env = {key: value for key, value in os.environ.items() if key not in dropped}
    env |= {"PYTHONPATH": str(installed), "HOME": str(home), "TMPDIR": str(temporary)}
    command = [
        sys.executable,
        "-W",
        "error",
        "-c",
        f"import sys, numpy as np{code}{SHOW}",
        str(installed),
    ]
    done = subprocess.run(
        command, env=env, cwd=installed, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_an_installation_that_is_read_only_keeps_it_in_the_folder_of_the_user(
    installed: Path, tmp_path: Path
):
    folder, said = run(installed, tmp_path, tmp_path, CALL)
    assert folder.startswith(str(tmp_path / ".cache"))
    assert said == NOTICE
    assert run(installed, tmp_path, tmp_path, CALL) == (folder, "")


@pytest.mark.parametrize("module", ["compiled", "engine"])
def test_the_tests_of_compiled_loops_pass_without_vector_code(
    tmp_path: Path, module: str
):
    env = os.environ | {"LEARNKERNELS_SIMD": "0"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--basetemp={tmp_path / 'pytest'}",
    ]
    command.append(f"tests/unit/kernels/test_{module}.py")
    done = subprocess.run(
        command, env=env, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


SUMS = """
import sys
import numpy as np
from learnkernels import FamilyUnion, GaussianFamily, LaplacianFamily, gram_statistics
from learnkernels.kernels.compiled import loops
from learnkernels.kernels.engine.combination import Combination

X, Y, w = np.split(np.random.default_rng(0).normal(size=(37, 7)), [4, 6], axis=1)
family = FamilyUnion([GaussianFamily([0.25, 0.5, 2.0]), LaplacianFamily([0.5]), LaplacianFamily([0.3], norm=2)])
statistics = gram_statistics(family, X, Y, sample_weight=np.exp(w[:, 0]))
combined = Combination(family, np.arange(5.0), np.ones(5)).matrix(X[:9], X)
np.savez(sys.argv[1], M=statistics.products(), a=statistics.target_products(), K=combined)
print(loops.add_chain.__module__)
"""


@pytest.mark.parametrize(
    ("name", "value"), [("LEARNKERNELS_SIMD", "0"), ("NUMBA_DISABLE_JIT", "1")]
)
def test_vector_code_and_plain_loops_give_the_same_numbers(
    tmp_path: Path, name: str, value: str
):
    modules, sums = [], []
    for setting in ({}, {name: value}):
        path = tmp_path / f"{len(sums)}.npz"
        command = [sys.executable, "-c", SUMS, str(path)]
        done = subprocess.run(
            command,
            env=os.environ | setting,
            capture_output=True,
            text=True,
            check=True,
        )
        modules.append(done.stdout.strip().rpartition(".")[2])
        sums.append(dict(np.load(path)))
    assert modules == ["simd", "plain"]
    for key, vectors in sums[0].items():
        # Exponentials differ by two units in the last place, and sums of some hundred
        # terms by their order.
        np.testing.assert_allclose(
            sums[1][key], vectors, rtol=1e-12, atol=1e-13 * np.abs(vectors).max()
        )


def test_with_no_folder_to_write_to_a_fit_works_and_nothing_is_kept(installed: Path):
    assert run(installed, "/dev/null", "/dev/null", FIT) == ("None", NOTICE)


def test_what_is_kept_is_made_anew_when_code_that_another_file_emits_changes(
    installed: Path, tmp_path: Path
):
    assert [run(installed, tmp_path, tmp_path, HITS)[1][-1] for _ in range(2)] == [
        "0",
        "1",
    ]
    with (installed / "learnkernels" / "kernels" / "compiled" / "simd.py").open(
        "a"
    ) as emitting:
        emitting.write("# changed")
    assert run(installed, tmp_path, tmp_path, HITS)[1][-1] == "0"


# Modules of the working folder ---------------------------------------------------------------------------------------


def test_modules_beside_a_package_that_imports_this_one_are_found_and_not_beside_the_command(
    tmp_path,
):
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "__init__.py").write_text("import learnkernels, sibling")
    (tmp_path / "sibling.py").touch()
    (tmp_path / "typer.py").write_text("raise SystemExit('not this one')")

    def printed(*command: str) -> str:
        return subprocess.run(
            command, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    (tmp_path / "tool" / "__main__.py").write_text(
        "import tool\nprint(tool.sibling.__name__)"
    )
    assert printed(sys.executable, "-m", "tool").strip() == "sibling"
    installed = str(Path(sys.executable).with_name("learnkernels"))
    # Plain -m looks beside first, as Python says
    for command in (
        [installed],
        [sys.executable, "-Pm", "learnkernels"],
    ):
        assert printed(*command, "--version").startswith("learnkernels ")


# Threads -------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"),
    reason="this system binds no process to a core",
)
def test_no_more_threads_than_the_cores_that_the_process_may_use():
    bound = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])"
    threads = "from learnkernels.kernels.engine.workers import available_threads; print(available_threads())"
    assert output_of(f"{bound}\n{threads}") == "1"


def test_processes_of_joblib_start_no_more_threads_than_there_are_cores():
    jobs, each = joblib.cpu_count(), joblib.delayed(available_threads)
    assert (
        jobs * max(joblib.Parallel(n_jobs=-1)(each() for _ in range(2 * jobs))) <= jobs
    )
    with joblib.parallel_config("loky", inner_max_num_threads=1):
        assert joblib.Parallel(n_jobs=2)(each() for _ in range(4)) == [1] * 4
