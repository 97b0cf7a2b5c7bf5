"""Items of papers, run whole: real Prefect, real MLflow, real data, and the command as it is typed."""

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from mlflow import MlflowClient
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.settings import PREFECT_API_URL
from typer.testing import CliRunner, Result

from learnkernels.reproduction.command import app
from learnkernels.reproduction.flow import papers
from learnkernels.tasks.reporting.mlflow_pages import LEVEL
from learnkernels.tasks.reporting.tables import summarize

pytestmark = pytest.mark.usefixtures("prefect_server")

SETS = {"wine": {"source": "sklearn", "name": "wine", "scale": "standard"}}
SETS["bio"] = {"source": "file", "path": "bio.csv"}
CATALOGUE = {
    "data_dir": "no-such-folder",
    "sets": {name: {"file": of} for name, of in SETS.items()},
}
SHARED = {
    "kernels": [
        {"family": "gaussian", "gammas": {"from": -6, "to": -2}},
        {"family": "linear"},
    ],
    "protocol": {"folds": 3, "grid": {"from": -2, "to": 4}},
    "dask": {"workers": 0},
}


def comparison(*parts: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "comparison",
        "shared": SHARED,
        "parts": [{"learners": ["unif"]} | part for part in parts],
    }


WINE = {"datasets": [{"use": "wine"}]}
ITEMS: dict[str, dict[str, Any]] = {
    "jmlr2012-wine": {
        "paper": "JMLR 2012",
        "study": comparison(
            WINE
            | {
                "learners": ["unif", "alignf"],
                "baseline": {"gammas": [1], "grid": [1]},
            },
            {"datasets": [{"use": "wine", "name": "half", "subsample": 90}]},
        ),
        "printed": [
            {
                "dataset": "wine",
                "learner": "alignf",
                "error": [0.02, 0.02],
                "alignment": [0.2, 0.01],
            }
        ],
        "claims": [
            {
                "says": "alignf is better aligned.",
                "better": "alignf",
                "than": "unif",
                "measure": "alignment",
            }
        ],
        "quick": {
            "datasets": ["wine"],
            "checks": [
                {"dataset": "wine", "learner": "unif", "error": [0, 0.2]},
                {"dataset": "wine", "learner": "alignf", "error": [0.9, 1]},
            ],
        },
    },
    "jmlr2012-point": {
        "paper": "JMLR 2012",
        "study": {"kind": "two-point", "points": 9},
        "claims": [
            {"says": "A falls to .71.", "value": "A at alpha = 1/2", "below": 0.72}
        ],
    },
    "nips2009-bio": {
        "paper": "NIPS 2009",
        "study": comparison({"datasets": [{"use": "bio"}]}),
    },
    "uai2009-gone": {
        "paper": "UAI 2009",
        "study": comparison({"datasets": [{"source": "file", "path": "gone.csv"}]}),
    },
}
WRONG = comparison(WINE | {"learners": [{"name": "alignf", "params": {"q": 2}}]})
ITEMS["uai2009-wrong"] = {"paper": "UAI 2009", "study": WRONG}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("items")
    (folder / "datasets.yaml").write_text(yaml.safe_dump(CATALOGUE))
    for name, keys in ITEMS.items():
        data = {
            "name": name,
            "where": "Table 1",
            "title": f"About {name}",
            "setup": "Three folds.",
            **keys,
        }
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(data))
    return folder


@pytest.fixture(scope="module")
def finished(prefect_server: None, module_folder: Path, folder: Path) -> dict[str, Any]:
    """One run of all items; tests that use it share its working folder, store and MLflow database."""
    result: dict[str, Any] = papers([], str(folder))
    return result


def command(*arguments: str) -> Result:
    return CliRunner().invoke(
        app, ["papers", *arguments], env={"PREFECT_API_URL": PREFECT_API_URL.value()}
    )


def test_items_are_run_one_by_one_and_one_that_cannot_be_does_not_stop_the_others(
    finished: dict[str, Any],
):
    status = {
        one["item"]: (one["status"], one["reason"]) for one in finished["outcomes"]
    }
    gone = f"data set gone: there is no file gone.csv (seen from {Path.cwd()}); correct 'path' or 'data_dir'."
    assert status == {
        "jmlr2012-point": ("done", ""),
        "jmlr2012-wine": ("done", ""),
        "nips2009-bio": (
            "not run",
            "data set bio is not on OpenML; give the folder that has bio.csv as --data-dir.",
        ),
        "uai2009-gone": ("failed", gone),
        "uai2009-wrong": (
            "failed",
            "learners: alignf has no parameter 'q'; it takes none.",
        ),
    }
    report = Path(finished["report"]).read_text(encoding="utf-8")
    assert "2 of 5 items" in report
    # a report is read elsewhere
    assert "failed: data set gone: there is no file gone.csv; correct" in report
    assert "not run: data set bio is not on OpenML" in report
    assert "failed: learners: alignf has no parameter 'q'" in report
    assert "(reproduction/jmlr2012-wine.md)" in report
    assert "(reproduction/nips2009" not in report


def test_an_item_leaves_its_trials_judgement_section_and_figures(
    finished: dict[str, Any],
):
    folder = Path("results/papers/jmlr2012-wine")
    assert {path.name for path in folder.iterdir()} == {
        "folds.parquet",
        "result.json",
        "section.md",
        "alignment.png",
    }
    folds = pd.read_parquet(folder / "folds.parquet")
    assert folds.groupby(["dataset", "learner"]).size().to_dict() == {
        ("half", "unif"): 3, ("wine", "GridSearchCV"): 3, ("wine", "alignf"): 3, ("wine", "unif"): 3,
    }  # fmt: skip
    stored = json.loads((folder / "result.json").read_text())
    assert stored["summary"] == next(
        one["summary"] for one in finished["outcomes"] if one["item"] == "jmlr2012-wine"
    )
    error, alignment = stored["cells"]
    aligned = folds.query("learner == 'alignf'")
    assert error["here"] == pytest.approx(aligned["error"].mean())
    assert alignment["apart"] == pytest.approx(
        (aligned["alignment"].mean() - 0.2) / 0.01
    )
    # Alignf maximizes alignment
    assert stored["claims"][0]["word"] in (
        "holds",
        "not significant",
    )
    section = (folder / "section.md").read_text()
    assert "![Table 1: alignment](alignment.png)" in section
    assert "data from scikit-learn." in section
    point = Path("results/papers/jmlr2012-point")
    assert {path.name for path in point.iterdir()} == {
        "result.json",
        "section.md",
        "two_point.png",
    }
    assert (
        json.loads((point / "result.json").read_text())["claims"][0]["word"] == "holds"
    )


def test_the_evidence_is_in_mlflow_one_experiment_a_paper_one_comparison_an_item(
    finished: dict[str, Any],
):
    client = MlflowClient()
    experiment = client.get_experiment_by_name("papers: JMLR 2012")
    of_item = "tags.item = 'jmlr2012-wine'"
    (comparison,) = client.search_runs(
        [experiment.experiment_id], f"{of_item} and tags.`{LEVEL}` = 'comparison'"
    )
    results = client.search_runs(
        [experiment.experiment_id], f"{of_item} and tags.`{LEVEL}` = 'result'"
    )
    shown = {
        (run.data.params["dataset"], run.data.params["learner"]) for run in results
    }
    assert shown == {
        ("wine", "unif"),
        ("wine", "alignf"),
        ("wine", "GridSearchCV"),
        ("half", "unif"),
    }
    assert {run.data.tags["mlflow.parentRunId"] for run in results} == {
        comparison.info.run_id
    }
    assert {run.data.tags["paper"] for run in results} == {"JMLR 2012"}
    notes = [run.data.tags["mlflow.note.content"] for run in results]
    assert not any("learnkernels train" in note for note in notes)  # lacks a file
    summary = summarize(pd.read_parquet("results/papers/jmlr2012-wine/folds.parquet"))
    above = {
        (row.dataset, row.learner): pytest.approx(row.percent_above_best, nan_ok=True)
        for row in summary.itertuples()
    }
    assert above == {
        (run.data.params["dataset"], run.data.params["learner"]): run.data.metrics.get(
            "percent_above_best", math.nan
        )
        for run in results
    }
    artifacts = {file.path for file in client.list_artifacts(comparison.info.run_id)}
    assert artifacts == {"folds.parquet", "result.json", "section.md", "alignment.png"}
    assert (
        f"get-artifact?path=alignment.png&run_uuid={comparison.info.run_id}"
        in comparison.data.tags["mlflow.note.content"]
    )
    assert comparison.data.metrics["claims"] == 1
    assert sorted(given.dataset.name for given in comparison.inputs.dataset_inputs) == [
        "half",
        "wine",
    ]
    wrong = client.get_experiment_by_name("papers: UAI 2009")
    (failed,) = client.search_runs([wrong.experiment_id], "tags.item = 'uai2009-wrong'")
    assert failed.info.status == "FAILED"

    with get_client(sync_client=True) as prefect:
        flow_run = prefect.read_flow_run(comparison.data.tags["prefect.flow_run_id"])
        assert flow_run.name.startswith("jmlr2012-wine-")
        of = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run.id]))
        artifacts = {
            artifact.key: artifact
            for artifact in prefect.read_artifacts(flow_run_filter=of)
        }
        assert (
            prefect.read_flow_run(
                failed.data.tags["prefect.flow_run_id"]
            ).state.type.value
            == "FAILED"
        )
    assert "data:image/png;base64," in artifacts["paper-jmlr2012-wine"].data
    assert "paper-progress" in artifacts


def test_a_second_run_takes_all_from_the_store_and_keeps_how_long_it_took(
    finished: dict[str, Any], folder: Path
):
    before = json.loads(Path("results/papers/jmlr2012-wine/result.json").read_text())
    done = command(
        "jmlr2012-wine", "--items", str(folder), "--report", "kept/reproduction.md"
    )
    assert done.exit_code == 0, done.output
    assert (
        json.loads(Path("results/papers/jmlr2012-wine/result.json").read_text())
        == before
    )
    assert "numbers " in done.output
    assert re.search(r"\b[01] of 1 .*One sentence of a paper", done.output)
    assert done.stdout.splitlines()[-1] == "report: kept/reproduction.md"
    report = Path("kept/reproduction.md").read_text(encoding="utf-8")
    assert "](reproduction/jmlr2012-wine.md)" in report
    pages = {"jmlr2012-wine": "alignment", "jmlr2012-point": "two_point"}
    found = {path.name for path in Path("kept/reproduction").iterdir()}
    assert found == {
        name
        for page, figure in pages.items()
        for name in (f"{page}.md", f"{page}.{figure}.png")
    }
    for page, figure in pages.items():
        assert f"]({page}.{figure}.png)" in Path(
            "kept/reproduction", f"{page}.md"
        ).read_text(encoding="utf-8")


def test_the_report_is_assembled_again_without_a_run(
    finished: dict[str, Any], folder: Path, tmp_path: Path
):
    items = shutil.copytree(folder, tmp_path / "items")
    point = items / "jmlr2012-point.yaml"
    point.write_text(point.read_text().replace("points: 9", "points: 8"))
    done = command(
        "--only-report", "--items", str(items), "--report", str(tmp_path / "r.md")
    )
    assert done.exit_code == 0, done.output
    report = (tmp_path / "r.md").read_text(encoding="utf-8")
    assert "1 of 5 items" in report  # results of another study are not this item's
    assert re.search(
        r"\| jmlr2012-point \| JMLR 2012, Table 1 (\|  )+\| not run: no results of this configuration \|",
        report,
    )


def test_the_reduced_form_checks_its_numbers_and_overwrites_no_results(
    finished: dict[str, Any], folder: Path
):
    before = Path("results/papers/jmlr2012-wine/result.json").read_bytes()
    done = command("--quick", "--items", str(folder))
    assert done.exit_code == 1
    (failing,) = [
        line for line in done.output.splitlines() if line.startswith("check fails")
    ]
    assert failing.startswith("check fails: jmlr2012-wine: wine, alignf: error is ")
    assert failing.endswith("expected 0.9 to 1.")
    assert (
        done.stdout.splitlines()[-1] == "report: results/papers-quick/reproduction.md"
    )
    assert set(
        pd.read_parquet("results/papers-quick/jmlr2012-wine/folds.parquet")["dataset"]
    ) == {"wine"}
    assert Path("results/papers/jmlr2012-wine/result.json").read_bytes() == before
    assert (
        MlflowClient().get_experiment_by_name("papers: JMLR 2012 (quick)") is not None
    )


def test_the_list_names_the_items_and_what_cannot_work_is_one_sentence(
    working_folder: Path, folder: Path
):
    done = command("--list", "--items", str(folder))
    assert done.exit_code == 0
    assert [
        line.split()[0]
        for line in done.stdout.splitlines()
        if "2009" in line or "2012" in line
    ] == sorted(ITEMS)
    for arguments, sentence in [
        (
            ["jmlr2012-vine"],
            "error: there is no item 'jmlr2012-vine'; did you mean 'jmlr2012-wine'?",
        ),
        (
            ["jmlr2012-point", "--quick"],
            "error: jmlr2012-point has no reduced form; leave --quick out.",
        ),
        (
            ["--data-dir", "nowhere"],
            "error: --data-dir nowhere: there is no such folder",
        ),
        (["--items", "nowhere"], "error: nowhere: there is no such folder of items"),
    ]:
        done = command("--items", str(folder), *arguments)
        assert done.exit_code == 2
        assert sentence in done.output
    assert not Path("results").exists()
