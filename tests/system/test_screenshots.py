"""The dashboards as a user meets them: real runs, real servers, a real browser."""

from typing import Any

import pandas as pd
import pytest

from dev.tools.waiting import within
from docs import take_screenshots as shots
from tests.unit.test_docs import require_not_blank

LOOKED_AT = ("mlflow-chart", "mlflow-table", "mlflow-comparison", "prefect-run", "prefect-report")


@pytest.mark.slow(60)
def test_the_pages_show_what_they_must_lead_to_each_other_and_take_a_run(tmp_path):
    """A browser on both dashboards of a folder in which the first example was run."""
    if shots.chromium() is None:
        pytest.skip("there is no Chromium on the PATH")
    deploy = ("deploy", "conf/quickstart.yaml", "--dataset", "diabetes", "--register", "demo")
    results = tmp_path / "results" / "quickstart"
    with shots.dashboards(tmp_path, [shots.FIRST, deploy]) as places, shots.browser(places) as context:
        before = set(results.glob("*/folds.parquet"))
        for shot in (shot for shot in shots.PAGES if shot.name in LOOKED_AT):
            text = shots.take(context, places, shot, tmp_path / "pictures")  # raises where its words are missing
            assert "Something went wrong" not in text
            assert "Unable to connect" not in text
            require_not_blank(tmp_path / "pictures" / f"{shot.name}.png")
        find_the_chart_from_the_list_of_experiments(context, places)
        go_from_prefect_to_mlflow_and_back(context, places)
        submit_the_form(context, places)
        assert within(lambda: set(results.glob("*/folds.parquet")) - before, 300)
    (file,) = set(results.glob("*/folds.parquet")) - before
    folds = pd.read_parquet(file)
    assert set(folds["dataset"]) == {"breast_cancer", "diabetes"}
    assert folds["fold"].nunique() == 5
    assert "GridSearchCV" in set(folds["learner"])


def find_the_chart_from_the_list_of_experiments(context: Any, places: shots.Places) -> None:
    """Two clicks: the experiment, and *chart* in its note."""
    page = context.new_page()
    page.goto(f"{places.mlflow}/#/experiments?workflowType=machine_learning")
    page.click("role=link[name='quickstart']")
    with context.expect_page() as opened:
        page.click("role=link[name='chart'] >> nth=0")
    chart = opened.value
    chart.wait_for_selector("text=Alignment against test error")
    chart.wait_for_selector("text=test_error/diabetes >> nth=0")
    chart.close()
    page.close()


def go_from_prefect_to_mlflow_and_back(context: Any, places: shots.Places) -> None:
    """From the artifact of a run to its comparison in MLflow, and from there to the run."""
    page = context.new_page()
    page.goto(places.artifact("mlflow-chart"))
    address = page.get_attribute("role=link[name='MLflow comparison']", "href")
    assert address.startswith(f"{places.mlflow}/#/experiments/")
    page.goto(address)
    back = page.get_attribute("role=link[name='Prefect']", "href")
    assert back.startswith(places.prefect)
    page.goto(back)
    page.wait_for_selector("text=comparison-report")
    page.close()


def submit_the_form(context: Any, places: shots.Places) -> None:
    """Submit the form of a deployment with its configuration."""
    page = context.new_page()
    page.goto(places.form("compare-kernel-learners", "demo"))
    page.wait_for_selector("text=The whole configuration")
    assert "Property is type" not in page.inner_text("body")
    page.click("role=button[name='Submit']")
    page.wait_for_url("**/deployments/deployment/*?tab=Runs")
    page.close()
