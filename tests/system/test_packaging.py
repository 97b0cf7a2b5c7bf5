"""The project as it is installed: one import name, beside a package `kernels` of others and a user's own modules."""

import re
import subprocess
import sysconfig
import venv
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL

from dev.tools.distributions import build
from tests.pages import python_blocks
from tests.unit.test_architecture import PACKAGES, required
from tests.user import ROOT, environment

OWN = ("kernels", "tasks", "flows", "conf")
"""Modules that a user has in her working folder."""

SMALL = """
name: small
datasets: [{source: sklearn, name: diabetes}]
kernels: [{family: gaussian, gammas: [0.1, 1.0]}]
learners: [unif, alignf]
protocol: {folds: 3, grid: [1]}
dask: {workers: 0}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built from the source distribution, without a network."""
    return build(tmp_path_factory.mktemp("built"))[1]


@dataclass(frozen=True)
class Installed:
    """An environment with this project and another one, `kernels`, and a working folder with modules of its own."""

    folder: Path
    wheels: dict[str, Path]

    @property
    def packages(self) -> Path:
        (found,) = (self.folder / "env").glob("lib/python*/site-packages")
        return found

    def run(self, *command: str, **settings: str) -> str:
        """Return what a command of the environment prints in the working folder."""
        env = environment(self.folder) | settings
        del env["PYTHONPATH"]
        program = [str(self.folder / "env" / "bin" / command[0]), *command[1:]]
        run = subprocess.run(
            program, cwd=self.folder / "work", env=env, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        return run.stdout

    def pip(self, *arguments: str) -> None:
        self.run(
            "python", "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments
        )

    def install(self, *names: str) -> None:
        self.pip(
            "install",
            "--no-deps",
            "--no-index",
            *(str(self.wheels[name]) for name in names),
        )

    def files(self, name: str) -> set[str]:
        """Return the modules of an installed package."""
        return {
            str(path.relative_to(self.packages))
            for path in (self.packages / name).rglob("*")
            if path.is_file()
        }


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Both wheels, installed by pip; all other libraries are those of the environment that runs the tests."""
    folder = tmp_path_factory.mktemp("user")
    for name in ("home", "work"):
        (folder / name).mkdir()
    for name in OWN:
        (folder / "work" / f"{name}.py").write_text(f"MINE = {name!r}\n")
    (folder / "work" / "small.yaml").write_text(SMALL)
    venv.create(folder / "env", symlinks=True, with_pip=True)
    env = Installed(folder, {"learnkernels": wheel, "kernels": other_wheel(folder)})
    env.install(*env.wheels)
    (env.packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    return env


def other_wheel(folder: Path) -> Path:
    """Return a wheel of another project that has a package `kernels`, as one on the package index does."""
    about, path = "kernels-9.0.dist-info", folder / "kernels-9.0-py3-none-any.whl"
    files = {
        "kernels/__init__.py": "OTHER = True\n",
        "kernels/layer/__init__.py": "",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: kernels\nVersion: 9.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{about}/RECORD"] = "".join(
        f"{name},,\n" for name in [*files, f"{about}/RECORD"]
    )
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def test_the_wheel_holds_the_package_its_command_and_what_the_mathematics_require(
    wheel: Path,
):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (points,) = [name for name in names if name.endswith("entry_points.txt")]
        assert (
            "learnkernels = learnkernels.__main__:main" in archive.read(points).decode()
        )
        about = Parser().parsestr(
            archive.read(points.replace("entry_points.txt", "METADATA")).decode()
        )
    wanted = [
        re.match(r"[\w.-]+", line).group()
        for line in about.get_all("Requires-Dist")
        if "extra ==" not in line
    ]
    assert sorted(wanted) == sorted(required())
    assert {name.split("/")[0] for name in names} == {
        "learnkernels",
        points.split("/")[0],
    }
    ours = {
        f"learnkernels/{package}/{path.relative_to(ROOT / 'learnkernels' / package)}"
        for package in PACKAGES
        for path in (ROOT / "learnkernels" / package).rglob("*")
        if path.suffix in (".py", ".yaml", ".service")
        or path.parent.name == "templates"
    }
    here = {
        f"learnkernels/{name}"
        for name in ("__init__.py", "__main__.py", "displays.py", "py.typed")
    }
    examples = {
        f"learnkernels/examples/{path.name}"
        for path in (ROOT / "docs" / "examples").glob("*.py")
    }
    assert {
        name for name in names if name.startswith("learnkernels/")
    } == ours | here | examples
    assert len({name for name in ours if name.endswith(".yaml")}) > 10


@pytest.mark.slow(25)
def test_the_project_is_found_beside_modules_of_the_same_names(
    installed: Installed, prefect_server: None
):
    """By the README's Python, by what loads the flows of scheduled runs, and by the command."""
    steps = ["compare", "train", "promote", "predict"]
    code = f"""
import sys
assert sys.path[0] == ""  # as where a worker runs: python -m prefect has the working folder first on its path
for block in {python_blocks(ROOT / "README.md")}:
    exec(block, {{}})
import learnkernels, kernels, tasks
assert (kernels.MINE, tasks.MINE) == ("kernels", "tasks")
print(learnkernels.__file__)
from prefect.flows import load_flow_from_entrypoint
for step in {steps}:
    flow = load_flow_from_entrypoint(f"learnkernels.flows.{{step}}.{{step}}")
    print(sys.modules[flow.fn.__module__].__file__)
"""
    here = installed.packages / "learnkernels"
    expected = [
        here / "__init__.py",
        *(here / "flows" / f"{step}.py" for step in steps),
    ]
    assert installed.run("python", "-c", code).split() == [
        str(path) for path in expected
    ]
    assert "compare" in installed.run("learnkernels", "--help")
    server = {"PREFECT_API_URL": str(PREFECT_API_URL.value())}
    assert "has the lowest root mean squared error" in installed.run(
        "learnkernels", "compare", "small.yaml", **server
    )


def test_either_project_leaves_the_other_whole(installed: Installed):
    for leaves, stays in (("kernels", "learnkernels"), ("learnkernels", "kernels")):
        before = installed.files(stays)
        installed.pip("uninstall", "--yes", leaves)
        # What Numba has compiled may stay
        left = [name for name in installed.files(leaves) if name.endswith(".py")]
        assert left == []
        assert installed.files(stays) == before
        installed.run("python", "-c", f"import sys; sys.path.pop(0); import {stays}")
        installed.install(leaves)
