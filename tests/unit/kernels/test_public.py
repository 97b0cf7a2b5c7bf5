"""Architecture: what the package offers, what it imports, and what it keeps out."""

import ast
import doctest
import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest

import learnkernels

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "kernels"
FILES = sorted(PACKAGE.rglob("*.py"))

DOCUMENTED = {
    name: thing
    for name in learnkernels.__all__
    if callable(thing := getattr(learnkernels, name))
}

# Section titles of numpydoc that the package uses.
SECTION = re.compile(
    r"^(Parameters|Returns|Yields|Raises|Attributes|Notes|References|Examples|See Also)\n(-+)$",
    re.M,
)
PARAMETERS = re.compile(r"^Parameters\n-+\n(.*?)(?=\n\n[A-Z]\w+\n-+|\Z)", re.M | re.S)

ESTIMATORS = (
    "KernelLearningClassifier",
    "KernelLearningRegressor",
    "LearnedKernelTransformer",
)

# Names and documentation ---------------------------------------------------------------------------------------------


def test_exported_names_exist_are_sorted_and_unique_and_others_are_refused():
    names = learnkernels.__all__
    assert dir(learnkernels) == names == sorted(set(names))
    assert not [name for name in names if getattr(learnkernels, name, None) is None]
    with pytest.raises(
        AttributeError, match="module 'learnkernels' has no attribute 'GaussFamily'"
    ):
        getattr(learnkernels, "Gauss" + "Family")


def test_exported_functions_and_classes_have_their_own_numpydoc_docstrings():
    faults = []
    for name, thing in DOCUMENTED.items():
        # A data class without a docstring is given its signature for one.
        if thing.__doc__ is None or thing.__doc__.startswith(f"{name}("):
            faults.append(f"{name}: no docstring of its own")
            continue
        text = inspect.getdoc(thing)
        first, *rest = text.split("\n")
        if not first.endswith(".") or (rest and rest[0] != ""):
            faults.append(f"{name}: no sentence for a first line")
        sections = SECTION.findall(text)
        if not sections and not inspect.isclass(thing):
            faults.append(f"{name}: no section")
        faults += [
            f"{name}: {title} underlined by {line}"
            for title, line in sections
            if len(title) != len(line)
        ]
    assert not faults


def test_parameters_sections_name_the_parameters_of_the_signature():
    sections = {
        name: PARAMETERS.search(inspect.getdoc(thing))
        for name, thing in DOCUMENTED.items()
    }
    documented, signed = {}, {}
    for name in filter(sections.get, sections):
        lines = re.findall(r"^(\S.*)$", sections[name][1], re.M)
        documented[name] = [
            part.strip("* ") for line in lines for part in line.split(":")[0].split(",")
        ]
        signed[name] = list(inspect.signature(DOCUMENTED[name]).parameters)
    assert "learn_kernel" in documented
    for name in ESTIMATORS:  # keyword arguments, in the order of a reader
        documented[name].sort()
        signed[name].sort()
    assert documented == signed


# Layers --------------------------------------------------------------------------------------------------------------

ALLOWED = set(sys.stdlib_module_names) | {
    "numpy",
    "scipy",
    "sklearn",
    "threadpoolctl",
    "numba",
    "joblib",
}
ALLOWED |= {"safetensors", "skops", "kernels"}

# Clocks, the environment, files, the console and shared random state stay outside the
# mathematics.
FORBIDDEN_MODULES = {
    "time",
    "datetime",
    "os",
    "pathlib",
    "io",
    "shutil",
    "subprocess",
    "logging",
    "random",
}
FORBIDDEN_CALLS = {"print", "open", "input", "exec", "eval"}
FORBIDDEN_ATTRIBUTES = {"environ", "getenv", "seed", "set_printoptions"}

# Compiled code is cached by a digest of source files, and a variable of the environment
# replaces vector code.
EXCEPTIONS = {"dates.py": {"import datetime"}, "reading.py": {"import narwhals"}}
EXCEPTIONS |= {
    "cache.py": {"environ", "import os", "import pathlib"},
    "simd.py": {"import llvmlite"},
}
EXCEPTIONS["workers.py"] = {"import os"}
# time_limit and verbose, the type of a path
EXCEPTIONS["supervised.py"] = {
    "import time",
    "print",
    "import os",
}
# The one file that is saved or loaded
EXCEPTIONS["files.py"] = {
    "import os",
    "import pathlib",
}
EXCEPTIONS["estimator_files.py"] = {"import io"}  # an archive in memory
EXCEPTIONS["model.py"] = {"import os"}  # the type of a path
# An exported module
EXCEPTIONS["module_file.py"] = {
    "import io",
    "import os",
    "import pathlib",
}
# Its content in memory, and durations
EXCEPTIONS["numpy_model.py"] = {
    "import io",
    "import datetime",
}


def trespasses(source: str) -> set[str]:
    """Return what a module of the package should not do."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = ["kernels" if node.level else node.module]
        roots = {
            module.removeprefix("learnkernels.").partition(".")[0] for module in modules
        }
        found |= {
            f"import {root}"
            for root in roots
            if root not in ALLOWED or root in FORBIDDEN_MODULES
        }
        if isinstance(node, ast.Name) and node.id in FORBIDDEN_CALLS:
            found.add(node.id)
        if (
            isinstance(node, ast.Attribute)
            and node.attr in FORBIDDEN_ATTRIBUTES
            and ast.unparse(node) != "self.seed"
        ):
            found.add(node.attr)
    return found


def test_modules_import_mathematics_only_and_touch_nothing_outside():
    assert {file.parent.name for file in FILES} >= {
        "kernels",
        "families",
        "learners",
        "predictors",
    }
    found = {file: trespasses(file.read_text(encoding="utf-8")) for file in FILES}
    offenders = [
        (str(file), what)
        for file, what in found.items()
        if what != EXCEPTIONS.get(file.name, set())
    ]
    assert not offenders


def test_trespasses_of_all_kinds_are_found():
    sources = [
        "import pandas as pd",
        "from dask.distributed import Client",
        "import numpy, mlflow",
        "print(1)",
    ]
    sources += [
        "from learnkernels.tasks.data.ingest import load",
        "def f():\n    import time",
        "show = print",
    ]
    sources += ["with open('x') as file: pass", "import sys; sys.modules['os'].environ"]
    sources.append("import numpy as np\nnp.random.seed(0)")
    assert not [source for source in sources if not trespasses(source)]


def test_no_test_folder_shadows_the_package():
    assert not list((ROOT / "tests").rglob("__init__.py"))


# Examples ------------------------------------------------------------------------------------------------------------


def test_the_examples_in_docstrings_run_and_show_what_they_say(capsys):
    shown = set()
    for file in FILES:
        if ">>> " not in file.read_text(encoding="utf-8"):
            continue
        # By name, as functions hide modules of theirs.
        name = ".".join(
            ["learnkernels", *file.relative_to(ROOT).with_suffix("").parts]
        ).removesuffix(".__init__")
        examples = [
            found
            for found in doctest.DocTestFinder().find(importlib.import_module(name))
            if found.examples
        ]
        runner = doctest.DocTestRunner()
        for example in examples:
            runner.run(example)
        assert runner.summarize().attempted > 0, name
        assert runner.summarize().failed == 0, capsys.readouterr().out
        shown |= {example.name.rpartition(".")[2] for example in examples}
    assert shown >= {
        name
        for name in learnkernels.__all__
        if name.startswith(("KernelLearning", "LearnedKernelT"))
    }
    assert shown >= {"learn_kernel", "default_family"}
