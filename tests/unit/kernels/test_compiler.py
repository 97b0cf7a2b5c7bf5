"""What is compiled: nothing on import, kept where that can be, and done without where it cannot."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import learnkernels
from learnkernels.kernels.compiled import compiler

PACKAGE = Path(learnkernels.__file__).parent / "kernels"
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))

FIT = """
import learnkernels
X = np.random.default_rng(0).normal(size=(40, 3))
learnkernels.KernelLearningRegressor(learnkernels.GaussianFamily([0.5, 1.0]), "align").fit(X, X[:, 0])
from learnkernels.kernels.engine.tiles import add_tile as one
"""

CALL = """
from learnkernels.kernels.engine.sparse_passes import add_outer_products, forms
add_outer_products(np.array([0, 1]), np.array([0]), np.ones(1), np.ones(1), np.zeros((2, 2)))
from learnkernels.kernels.engine.sparse_passes import add_outer_products as one
"""

SHOW = """
assert one.__module__.startswith("learnkernels.")
assert sys.modules[one.__module__].__file__.startswith(sys.argv[1])
print(one.stats.cache_path)
"""


def test_no_module_loads_the_compiler_when_it_is_imported():
    names = [".".join(["learnkernels.kernels", *path.with_suffix("").parts]) for path in MODULES]
    names = [name.removesuffix(".__init__") for name in names]
    assert "learnkernels.kernels.engine.tiles" in names
    code = f"import sys; [__import__(name) for name in {names}]; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return the folder of a copy of the package whose folders take no file, not even one of root."""
    shutil.copytree(
        PACKAGE.parent, tmp_path / "learnkernels", ignore=shutil.ignore_patterns("__pycache__", "tasks", "flows")
    )
    for folder in {path.parent for path in (tmp_path / "learnkernels").rglob("*.py")}:
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
    assert said == compiler.NOTICE
    assert run(installed, tmp_path, tmp_path, CALL) == (folder, "")


def test_without_a_home_it_is_kept_in_a_temporary_folder_that_is_the_users_alone(installed: Path, tmp_path: Path):
    folder, _ = run(installed, "/dev/null", tmp_path, CALL)
    private = tmp_path / f"learnkernels-{os.getuid()}"
    assert folder.startswith(str(private))
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert list(private.rglob("*.nbi"))


def test_with_no_folder_to_write_to_a_fit_works_and_nothing_is_kept(installed: Path):
    nowhere = "\nimport tempfile; tempfile.gettempdir = lambda: '/dev/null/none'"
    assert run(installed, "/dev/null", "/dev/null", nowhere + FIT) == ("None", compiler.NOTICE)


def test_what_is_kept_is_made_anew_when_code_that_another_file_emits_changes(installed: Path, tmp_path: Path):
    again = "\nfrom learnkernels.kernels.compiled.distances import distances"
    again += "\ndistances(np.ones((1, 1)), np.ones((1, 1)), 'squared')"
    again += "\nfrom learnkernels.kernels.compiled.distances import fill_between as one"
    again += "\nsys.stderr.write(str(sum(one.stats.cache_hits.values())))"
    assert [run(installed, tmp_path, tmp_path, again)[1][-1] for _ in range(2)] == ["0", "1"]
    with (installed / "learnkernels" / "kernels" / "compiled" / "vectors.py").open("a") as emitting:
        emitting.write("# changed")
    assert run(installed, tmp_path, tmp_path, again)[1][-1] == "0"


@pytest.mark.parametrize("wrong", ["link", "file", "open", "missing"])
def test_a_temporary_folder_that_is_not_the_users_alone_is_not_used(tmp_path, monkeypatch, wrong):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing" if wrong == "missing" else tmp_path))
    folder = tmp_path / f"learnkernels-{os.getuid()}"
    if wrong == "link":
        (tmp_path / "other").mkdir(0o700)
        folder.symlink_to(tmp_path / "other")
    elif wrong == "file":
        folder.touch(0o700)
    elif wrong == "open":
        folder.mkdir()
        folder.chmod(0o770)
    assert compiler._private_folder() is None
