"""The papers, made again: reduced forms on the real files, and the report that is part of the project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL

from learnkernels.conf.papers.loading import item_names, load_item

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "docs" / "reproduction.md"
FIGURE = re.compile(r"!\[[^\]]*\]\(([^)]+)\)")


@pytest.mark.slow(130)
def test_the_reduced_forms_have_the_numbers_they_should(shared_data: Path, tmp_path: Path, prefect_server: None):
    """Every cell of `checks` in its interval, in a process that starts from nothing but a server."""
    learnkernels = str(Path(sys.executable).with_name("learnkernels"))
    env = os.environ | {"LEARNKERNELS_HOME": str(tmp_path / "state"), "PREFECT_API_URL": str(PREFECT_API_URL.value())}
    env["MLFLOW_TRACKING_URI"] = f"sqlite:///{tmp_path / 'mlflow.db'}"
    done = subprocess.run(
        [learnkernels, "papers", "--quick", "--data-dir", str(shared_data), "--report", "quick.md"],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    reduced = [name for name in item_names() if load_item(name).quick is not None]
    assert len(reduced) >= 10
    for name in reduced:
        assert f"{name} " in done.stdout
        assert (tmp_path / "results" / "papers-quick" / name / "result.json").is_file()
    report = (tmp_path / "quick.md").read_text(encoding="utf-8")
    shown = FIGURE.findall(report)
    assert shown
    assert all((tmp_path / path).is_file() for path in shown)


def test_the_report_in_docs_has_every_item_and_its_figures():
    report = REPORT.read_text(encoding="utf-8")
    for name in item_names():
        item = load_item(name)
        assert f"(#{name})" in report
        assert item.title in report
    assert "not run" not in report
    shown = {(REPORT.parent / path).resolve() for path in FIGURE.findall(report)}
    assert shown == set((REPORT.parent / "reproduction").glob("*.png"))


def test_no_item_leaves_a_cell_or_a_claim_without_a_judgement():
    report = REPORT.read_text(encoding="utf-8")
    assert "cannot be judged" not in report
