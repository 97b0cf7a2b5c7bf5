"""A release: `python -m dev.tools.distributions build/dist [--tag v0.3.0]`, or
`make dist`.

Builds the source distribution and, from it, the wheel; installs each into a fresh
environment with the pins of `packaging/constraints.txt`; and tries there, in an empty
folder, what a user does first. With a tag, it must be that of the version, and
changelog and citation must have it too.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("learnkernels", "docs/examples", "kernels", "conf", "tasks", "flows")
FILES = ("pyproject.toml", "README.md", "LICENSE")

FIRST_FIT = """
from sklearn.datasets import load_wine
from learnkernels import KernelLearningClassifier
X, y = load_wine(return_X_y=True)
assert KernelLearningClassifier().fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9
"""
SMALL = [
    part
    for key in ("learners=[unif,alignf]", "datasets=wine", "dask.workers=0")
    for part in ("--set", key)
]


def version() -> str:
    """Return the version of the project."""
    return str(
        tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
            "version"
        ]
    )


def disagreements(tag: str) -> list[str]:
    """Return a sentence for each place that does not say what a tag says."""
    changes = (ROOT / "docs" / "changes.md").read_text(encoding="utf-8")
    said = {
        "pyproject.toml": version(),
        "CITATION.cff": re.search(
            r"^version: (\S+)$",
            (ROOT / "CITATION.cff").read_text(encoding="utf-8"),
            re.M,
        )[1],
        "docs/changes.md": re.search(r"^## \[(\d\S*)\]", changes, re.M)[1],
    }
    return [
        f"{name} says {one}, and the tag is {tag}"
        for name, one in said.items()
        if f"v{one}" != tag
    ]


def build_one(kind: str, tree: Path, folder: Path) -> Path:
    """Return the distribution that the build backend of this environment makes of a tree; without a network."""
    code = (
        f"from setuptools import build_meta; build_meta.build_{kind}({str(folder)!r})"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tree, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    (built,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


def build(folder: Path) -> tuple[Path, Path]:
    """Return source distribution and wheel, the second built from the first."""
    with tempfile.TemporaryDirectory() as aside:
        tree = Path(aside) / "tree"
        for name in FOLDERS:
            shutil.copytree(
                ROOT / name,
                tree / name,
                symlinks=True,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        for name in FILES:
            shutil.copy(ROOT / name, tree)
        source = build_one("sdist", tree, folder)
        with tarfile.open(source) as archive:
            archive.extractall(aside, filter="data")
        (unpacked,) = Path(aside).glob("learnkernels-*/")
        return source, build_one("wheel", unpacked, folder)


def try_fresh(distribution: Path) -> None:
    """Install a distribution into an environment of its own, and do there what a user does first."""
    with tempfile.TemporaryDirectory() as aside:
        folder, work = Path(aside) / "env", Path(aside) / "work"
        work.mkdir()
        venv.create(folder, with_pip=True)
        python, command = folder / "bin" / "python", folder / "bin" / "learnkernels"
        pins = ["-c", str(ROOT / "packaging" / "constraints.txt")]
        steps = [
            [python, "-m", "pip", "install", "--quiet", *pins, str(distribution)],
            [python, "-c", FIRST_FIT],
            [
                python,
                "-m",
                "pip",
                "install",
                "--quiet",
                *pins,
                f"{distribution}[pipeline]",
            ],
            [command, "--version"],
            [command, "examples", "first-steps"],
            [command, "compare", "quickstart", *SMALL],
        ]
        for step in steps:
            subprocess.run([str(part) for part in step], cwd=work, check=True)


def main() -> None:
    """Build and try; say where the files are."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the distributions go")
    parser.add_argument("--tag", help="what the release is called")
    asked = parser.parse_args()
    if asked.tag and (wrong := disagreements(asked.tag)):
        sys.exit("\n".join(wrong))
    shutil.rmtree(asked.folder, ignore_errors=True)
    asked.folder.mkdir(parents=True)
    for distribution in build(asked.folder.resolve()):
        try_fresh(distribution)
        sys.stdout.write(f"{distribution}\n")


if __name__ == "__main__":
    main()
