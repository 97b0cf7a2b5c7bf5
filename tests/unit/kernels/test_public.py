"""Architecture: what the package offers, what it loads, and what it keeps out."""

import ast
import doctest
import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import learnkernels

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "kernels"
FILES = sorted(PACKAGE.rglob("*.py"))

DOCUMENTED = [name for name in learnkernels.__all__ if callable(getattr(learnkernels, name))]

# Section titles of numpydoc that the package uses.
SECTION = re.compile(r"^(Parameters|Returns|Yields|Raises|Attributes|Notes|References|Examples|See Also)\n(-+)$", re.M)
PARAMETERS = re.compile(r"^Parameters\n-+\n(.*?)(?=\n\n[A-Z]\w+\n-+|\Z)", re.M | re.S)


# Names and documentation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", learnkernels.__all__)
def test_an_exported_name_exists(name):
    assert getattr(learnkernels, name) is not None


def test_exported_names_are_sorted_and_unique():
    constants, classes, functions = [], [], []
    for name in learnkernels.__all__:
        (constants if name.isupper() else classes if name[0].isupper() else functions).append(name)
    assert learnkernels.__all__ == sorted(constants) + sorted(classes) + sorted(functions)
    assert len(set(learnkernels.__all__)) == len(learnkernels.__all__)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_an_exported_function_or_class_has_its_own_numpydoc_docstring(name):
    thing = getattr(learnkernels, name)
    # A data class without a docstring is given its signature for one.
    assert thing.__doc__ is not None
    assert not thing.__doc__.startswith(f"{name}(")
    text = inspect.getdoc(thing)
    first, *rest = text.split("\n")
    assert re.fullmatch(r".*\.", first)
    assert not rest or rest[0] == ""
    sections = SECTION.findall(text)
    assert sections or inspect.isclass(thing)
    for title, underline in sections:
        assert len(title) == len(underline)


@pytest.mark.parametrize(
    "name", [name for name in DOCUMENTED if PARAMETERS.search(inspect.getdoc(getattr(learnkernels, name)))]
)
def test_a_parameters_section_names_the_parameters_of_the_signature(name):
    thing = getattr(learnkernels, name)
    lines = re.findall(r"^(\S.*)$", PARAMETERS.search(inspect.getdoc(thing))[1], re.M)
    named = [part.strip("* ") for line in lines for part in line.split(":")[0].split(",")]
    assert named == list(inspect.signature(thing).parameters)


# Layers --------------------------------------------------------------------------------------------------------------


def printed_by(code: str) -> str:
    """Return what some code prints in a fresh process."""
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def loaded_by(code: str) -> set[str]:
    """Return what of this project and of the mathematics' libraries a fresh process has loaded after some code."""
    names = json.loads(printed_by(f"{code}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"))
    rooms = {".".join(name.split(".")[:2]) for name in names if name.startswith("learnkernels.")}
    return {name.partition(".")[0] for name in names} & {
        "learnkernels",
        *ALLOWED - set(sys.stdlib_module_names),
    } | rooms


def test_importing_the_package_loads_nothing_else():
    assert loaded_by("import learnkernels; dir(learnkernels); hasattr(learnkernels, 'numpy')") == {"learnkernels"}
    assert Path(printed_by("import learnkernels; print(learnkernels.__file__)").strip()).parent == ROOT / "learnkernels"


@pytest.mark.parametrize(
    ("names", "libraries"),
    [
        (["center_gram", "centered_alignment"], {"numpy"}),
        ([name for name in learnkernels.__all__ if "Family" in name], {"numpy", "scipy"}),
    ],
)
def test_a_name_brings_along_what_it_needs_and_no_more(names: list[str], libraries: set[str]):
    loaded = loaded_by(f"from learnkernels import {', '.join(names)}")
    assert loaded == {"learnkernels", "learnkernels.kernels"} | libraries


def test_estimators_and_files_work_where_nothing_of_the_pipeline_can_be_imported(tmp_path: Path):
    code = f"""
import sys
from learnkernels.__main__ import PIPELINE
class Missing:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in PIPELINE:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing)
import numpy as np
from learnkernels import *
X = np.random.default_rng(0).normal(size=(60, 3))
kernel = learn_kernel("alignf", GaussianFamily([0.1, 1.0]), X, X[:, 0])
save_kernel(kernel, {str(tmp_path / "kernel.npz")!r})
assert np.array_equal(load_kernel({str(tmp_path / "kernel.npz")!r}).weights, kernel.weights)
for estimator in (KernelLearningRegressor(), KernelLearningClassifier(), LearnedKernelTransformer()):
    estimator.fit(X, X[:, 0] > 0)
print("learned")
"""
    assert printed_by(code) == "learned\n"


def test_the_package_lists_its_names_and_refuses_others():
    assert dir(learnkernels) == learnkernels.__all__ == sorted(learnkernels.__all__)
    with pytest.raises(AttributeError, match="module 'learnkernels' has no attribute 'GaussFamily'"):
        getattr(learnkernels, "Gauss" + "Family")


ALLOWED = set(sys.stdlib_module_names) | {"numpy", "scipy", "sklearn", "threadpoolctl", "numba", "joblib", "kernels"}

# Clocks, the environment, files, the console and shared random state stay outside the mathematics.
FORBIDDEN_MODULES = {"time", "datetime", "os", "pathlib", "io", "shutil", "subprocess", "logging", "random"}
FORBIDDEN_CALLS = {"print", "open", "input", "exec", "eval"}
FORBIDDEN_ATTRIBUTES = {"environ", "getenv", "seed", "set_printoptions"}

# The format of model files reads and writes the one file that it is given.
# What is compiled may have to be kept in a folder of this user's, which is looked at before anything there is trusted.
EXCEPTIONS = {
    "archive.py": {"import io", "open"},
    "compiler.py": {"import os"},
    "dates.py": {"import datetime"},
    "reading.py": {"import narwhals"},
    "threads.py": {"import os"},
    "vectors.py": {"import llvmlite"},
}


def trespasses(source: str) -> list[str]:
    """Return what a module of the package should not do."""
    found = []
    for node in ast.walk(ast.parse(source)):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = ["kernels" if node.level else node.module]
        roots = {module.removeprefix("learnkernels.").partition(".")[0] for module in modules}
        found += [f"import {root}" for root in roots if root not in ALLOWED or root in FORBIDDEN_MODULES]
        if isinstance(node, ast.Name) and node.id in FORBIDDEN_CALLS:
            found.append(node.id)
        if isinstance(node, ast.Attribute) and node.attr in FORBIDDEN_ATTRIBUTES and ast.unparse(node) != "self.seed":
            found.append(node.attr)
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_module_imports_mathematics_only_and_touches_nothing_outside(file):
    assert set(trespasses(file.read_text(encoding="utf-8"))) == EXCEPTIONS.get(file.name, set())


@pytest.mark.parametrize(
    "source",
    [
        "import pandas as pd",
        "from dask.distributed import Client",
        "from learnkernels.tasks.data.ingest import load",
        "def f():\n    import time",
        "import numpy, mlflow",
        "print(1)",
        "with open('x') as file: pass",
        "show = print",
        "import sys; sys.modules['os'].environ",
        "import numpy as np\nnp.random.seed(0)",
    ],
)
def test_the_walk_sees_a_trespass(source):
    assert trespasses(source)


def test_the_walk_covers_the_package():
    assert len(FILES) > 10
    assert {file.parent.name for file in FILES} >= {"kernels", "families", "learners", "predictors"}


def test_no_test_folder_shadows_the_package():
    here = Path(__file__).resolve().parent
    assert not list(here.parent.rglob("__init__.py"))
    assert here != PACKAGE


# Examples ------------------------------------------------------------------------------------------------------------


def examples_of(name: str) -> list[doctest.DocTest]:
    """Return the docstrings of a module that hold examples; importing by name, as functions hide modules of theirs."""
    module = importlib.import_module(name)
    return [found for found in doctest.DocTestFinder().find(module) if found.examples]


def module_of(file: Path) -> str:
    return ".".join(["learnkernels", *file.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")


WITH_EXAMPLES = [module_of(file) for file in FILES if ">>> " in file.read_text(encoding="utf-8")]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_in_docstrings_run_and_show_what_they_say(name, capsys):
    runner = doctest.DocTestRunner()
    for example in examples_of(name):
        runner.run(example)
    assert runner.summarize().attempted > 0
    assert runner.summarize().failed == 0, capsys.readouterr().out


def test_every_estimator_and_the_way_to_a_learned_kernel_have_an_example():
    shown = {example.name.rpartition(".")[2] for name in WITH_EXAMPLES for example in examples_of(name)}
    assert shown >= {name for name in learnkernels.__all__ if name.startswith(("KernelLearning", "LearnedKernelT"))}
    assert shown >= {"learn_kernel", "default_family"}
