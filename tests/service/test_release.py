"""What steps of the release do on a branch."""

import os
import subprocess
from pathlib import Path

import yaml

WORKFLOW = Path(__file__).resolve().parents[2] / ".github/workflows/release.yml"


def test_the_documentation_of_a_branch_with_a_slash_is_packed(tmp_path: Path):
    jobs = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]
    steps = [step.get("run", "") for step in jobs["build"]["steps"]]
    (pack,) = (step for step in steps if step.startswith("tar "))
    (tmp_path / "build" / "dist").mkdir(parents=True)
    (tmp_path / "build" / "site").mkdir()
    env = os.environ | {"GITHUB_REF_NAME": "fix/a"}
    words = ["bash", "-c", pack.replace("${{ github.ref_name }}", "fix/a")]
    subprocess.run(words, cwd=tmp_path, env=env, check=True)
    (packed,) = (tmp_path / "build" / "dist").iterdir()
    assert packed.name == "learnkernels-docs-fix-a.tar.gz"
