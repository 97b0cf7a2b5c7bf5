"""The rule of the house: flows -> tasks -> kernels, never upward, never flow to flow."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import yaml

from learnkernels.__main__ import PIPELINE

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = ("kernels", "conf", "tasks", "flows")

ALLOWED = {
    "kernels": {"kernels"},
    "conf": {"conf"},
    "tasks": {"tasks", "conf", "kernels"},
    "flows": {"flows", "tasks", "conf", "kernels"},
}

THIRD_PARTY = {
    "kernels": {"numpy", "scipy", "sklearn", "threadpoolctl", "numba", "llvmlite", "joblib", "narwhals"},
    "conf": {"pydantic", "yaml"},
}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Every imported module of a file, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("learnkernels.") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield str(node.module).removeprefix("learnkernels.")


ALL_MODULES = [(package, path) for package in PACKAGES for path in modules(package)]


@pytest.mark.parametrize(("package", "path"), ALL_MODULES, ids=lambda value: getattr(value, "stem", value))
def test_imports_never_point_upward(package: str, path: Path):
    for name in imports(path):
        top = name.split(".")[0]
        if top in PACKAGES:
            assert top in ALLOWED[package], f"{path.name} imports {name}"
        elif package in THIRD_PARTY:
            assert top in THIRD_PARTY[package] | set(sys.stdlib_module_names), f"{path.name} imports {name}"


def test_no_flow_imports_another_flow():
    names = {path.stem for path in modules("flows")} - {"cli", "__init__"}
    for path in modules("flows"):
        if path.stem != "cli":
            assert not {name.removeprefix("flows.") for name in imports(path)} & names, path.name


ROOMED = ("kernels", "tasks")
"""Packages whose rooms say in the last line of their docstring what of the package they import."""


def named_parts(package: str) -> list[str]:
    """The rooms and the loose modules of a package."""
    inside = [path for path in (ROOT / package).iterdir() if path.name != "__init__.py"]
    return sorted(path.stem for path in inside if path.suffix == ".py" or (path / "__init__.py").is_file())


def imported_parts(package: str, part: str) -> set[str]:
    """The other rooms and loose modules of its package that a room or loose module imports."""
    room = ROOT / package / part
    files = sorted(room.rglob("*.py")) if room.is_dir() else [room.with_suffix(".py")]
    names = [name.split(".") for path in files for name in imports(path)]
    return {name[1] for name in names if name[0] == package and len(name) > 1} - {part}


def declared_parts(package: str, room: str) -> set[str]:
    """What the docstring of a room says that it imports of its package."""
    doc = ast.get_docstring(ast.parse((ROOT / package / room / "__init__.py").read_text(encoding="utf-8")))
    last = " ".join(str(doc).rpartition("\n\n")[2].split())
    found = re.fullmatch(r"Imports: (.+)\.", last)
    assert found, f"{package}/{room}: the docstring must end with 'Imports: ROOM, ROOM.', got {last!r}"
    return set() if found[1] == f"nothing of {package}" else set(found[1].split(", "))


@pytest.mark.parametrize(
    ("package", "room"),
    [(package, part) for package in ROOMED for part in named_parts(package) if (ROOT / package / part).is_dir()],
)
def test_a_room_imports_what_it_says_and_no_more(package: str, room: str):
    found = imported_parts(package, room)
    assert declared_parts(package, room) == found, f"its last line must be: Imports: {', '.join(sorted(found))}."


@pytest.mark.parametrize("package", ROOMED)
def test_rooms_and_loose_modules_import_each_other_in_no_circle(package: str):
    TopologicalSorter({part: imported_parts(package, part) for part in named_parts(package)}).prepare()


def test_few_modules_lie_loose_beside_the_rooms_of_tasks():
    assert len([part for part in named_parts("tasks") if not (ROOT / "tasks" / part).is_dir()]) <= 6


def test_only_tracking_registry_and_its_server_import_mlflow():
    users = {
        path.relative_to(ROOT).as_posix()
        for _, path in ALL_MODULES
        if any(name.split(".")[0] == "mlflow" for name in imports(path))
    }
    assert users == {
        "tasks/evidence/databases.py",
        "tasks/evidence/mlflow_store.py",
        "tasks/evidence/tracking.py",
        "tasks/models/registry.py",
        "tasks/models/served_model.py",
        "tasks/operate/serving.py",
    }


def test_what_mlflow_runs_to_serve_a_model_imports_nothing_but_kernels():
    names = {name.split(".")[0] for name in imports(ROOT / "tasks" / "models" / "served_model.py")}
    assert names & set(PACKAGES) == {"kernels"}
    assert names - set(PACKAGES) <= {"mlflow", "numpy", "pandas"} | set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("kernels", ["prefect", "mlflow", "dask", "distributed", "pyarrow"]),
        ("conf.loading", ["prefect", "mlflow", "dask", "distributed", "pyarrow"]),
        ("tasks.measure.trials", ["prefect", "mlflow"]),  # what workers do, who report to nobody but Dask
        ("tasks.measure.baseline", ["prefect", "mlflow"]),
        ("tasks.data.parts", ["prefect", "mlflow"]),
    ],
)
def test_a_fresh_import_loads_nothing_heavy(module: str, heavy: list[str]):
    code = f"import learnkernels.{module}, sys; print([name for name in {heavy} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_importing_the_flows_does_nothing(tmp_path: Path):
    code = "import sys; sys.path.insert(0, sys.argv[1]); import learnkernels.flows.compare"
    run = subprocess.run([sys.executable, "-c", code, str(ROOT)], cwd=tmp_path, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_the_version_has_its_entry_in_the_changelog():
    assert f"## [{PROJECT['project']['version']}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def required(extra: str | None = None) -> list[str]:
    """Names of the packages that the core requires, or one of its extras, as they are written."""
    wanted = PROJECT["project"]["optional-dependencies"][extra] if extra else PROJECT["project"]["dependencies"]
    return [re.match(r"[A-Za-z0-9._-]+", item).group() for item in wanted]


MODULES = {"scikit-learn": "sklearn", "pyyaml": "yaml"}
"""What is imported under another name than it is installed by."""


def libraries(*packages: str) -> set[str]:
    """What packages of this project import that is neither theirs nor Python's."""
    names = {name.split(".")[0] for package in packages for path in modules(package) for name in imports(path)}
    return names - set(sys.stdlib_module_names) - {*PACKAGES, "learnkernels"}


def test_the_core_requires_what_the_mathematics_import():
    assert {MODULES.get(name, name) for name in required()} == libraries("kernels")


def test_the_pipeline_requires_what_all_else_imports_and_the_command_looks_for_it():
    imported = libraries("conf", "tasks", "flows") - libraries("kernels")
    assert set(PIPELINE) == imported
    assert {MODULES.get(name, name) for name in required("pipeline")} == imported | {
        "fastapi",
        "cryptography",
    }  # of Prefect, Dask


def test_the_command_says_what_to_install_where_the_pipeline_is_not():
    bare = [sys.executable, "-S", "-m", "learnkernels", "--help"]  # Python's own library, nothing installed
    run = subprocess.run(bare, cwd=ROOT, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (1, "")
    assert re.fullmatch(r"error: .*\(boto3, .*, yaml\); .*pip install 'learnkernels\[pipeline\]'\n", run.stderr)


def test_every_dependency_has_its_reason():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if re.match(r'\s+"[\w\[\]-]+[<>=]', line)]
    assert len(lines) > 15
    assert [line for line in lines if "#" not in line] == []


def test_constraints_pin_versions_without_addresses():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [line for line in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!_]+", line)] == []
    pinned = {line.split("==")[0].lower() for line in pins}
    names = {name.lower() for name in (*required(), *required("pipeline"), *required("dev"))} - {"learnkernels"}
    assert names <= pinned


def test_the_wheel_is_built_by_the_same_version_in_tests_and_outside():
    assert PROJECT["build-system"]["requires"] == [
        line for line in PROJECT["project"]["optional-dependencies"]["dev"] if line.startswith("setuptools")
    ]


def test_the_pages_name_every_command_learner_and_configuration():
    from learnkernels.flows.cli import app
    from learnkernels.kernels.learners import LEARNERS

    commands = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    for command in app.registered_commands:
        assert f"| `learnkernels {command.callback.__name__}` |" in commands
    choose = (ROOT / "docs" / "choose.md").read_text(encoding="utf-8")
    for learner in LEARNERS:
        assert f"`{learner}`" in choose
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for path in re.findall(r"conf/[\w-]+\.yaml", page.read_text(encoding="utf-8")):
            assert yaml.safe_load((ROOT / path).read_text())["name"], page.name


def test_the_table_of_learners_in_the_documents_is_what_the_command_prints():
    from learnkernels.kernels.learners import COLUMNS, table

    text = (ROOT / "docs" / "learners.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- table: learnkernels learners --markdown -->\n(.*?)<!-- end -->", text, re.DOTALL)
    expected = [f"| {' | '.join(line)} |" for line in (COLUMNS, ["---"] * len(COLUMNS), *table())]
    assert shown is not None
    assert shown.group(1).splitlines() == expected, "run: learnkernels learners --markdown"
