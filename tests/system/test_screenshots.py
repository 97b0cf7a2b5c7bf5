"""The dashboards as a user meets them: real runs, real servers, a real browser."""

from contextlib import suppress
from typing import Any

import pandas as pd
import pytest

from dev.tools.waiting import within
from docs import take_screenshots as shots
from tests.unit.test_docs import require_not_blank

LOOKED_AT = (
    "mlflow-chart",
    "mlflow-table",
    "mlflow-comparison",
    "prefect-run",
    "prefect-report",
)


@pytest.mark.slow(60)
def test_the_pages_show_what_they_must_lead_to_each_other_and_take_a_run(tmp_path):
    """A browser on both dashboards of a folder in which the first example was run."""
    if shots.chromium() is None:
        pytest.skip("there is no Chromium on the PATH")
    deploy = (
        "deploy",
        "conf/quickstart.yaml",
        "--dataset",
        "diabetes",
        "--model",
        "demo",
    )
    results = tmp_path / "results" / "quickstart"
    with (
        shots.dashboards(tmp_path, [shots.FIRST, deploy]) as places,
        shots.browser(places) as context,
    ):
        before = set(results.glob("*/folds.parquet"))
        for shot in (shot for shot in shots.PAGES if shot.name in LOOKED_AT):
            # Raises where its words are missing
            text = shots.take(context, places, shot, tmp_path / "pictures")
            assert "Something went wrong" not in text
            assert "Unable to connect" not in text
            require_not_blank(tmp_path / "pictures" / f"{shot.name}.png")
        find_the_chart_from_the_list_of_experiments(context, places)
        go_from_prefect_to_mlflow_and_back(context, places)
        submit_another_metric_folds_and_baseline(context, places)
        assert within(lambda: set(results.glob("*/folds.parquet")) - before, 300)
    (file,) = set(results.glob("*/folds.parquet")) - before
    folds = pd.read_parquet(file)
    assert (set(folds["dataset"]), set(folds["metric"])) == ({"diabetes"}, {"1 - r2"})
    assert folds["fold"].nunique() == 3
    assert "GridSearchCV" in set(folds["learner"])


def find_the_chart_from_the_list_of_experiments(
    context: Any, places: shots.Places
) -> None:
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


def submit_another_metric_folds_and_baseline(
    context: Any, places: shots.Places
) -> None:
    """Fill in the form of a deployment."""
    page = context.new_page()
    page.goto(places.form("compare", "demo"))
    page.wait_for_selector("text=The whole configuration")
    assert "Property is type" not in page.inner_text("body")
    for label, text in {"folds": "3", "dataset": "diabetes"}.items():
        page.get_by_label(label).fill(text)
    for label, choice in {"metric": "r2", "baseline": "one tuned kernel"}.items():
        assert within(
            lambda label=label, choice=choice: choose(page, label, choice), 90
        ), label
    page.click("role=button[name='Submit']")
    page.wait_for_url("**/deployments/deployment/*?tab=Runs")
    page.close()


def choose(page: Any, label: str, choice: str) -> bool:
    """Choose from a list, which may close while it is drawn; return whether the choice is shown."""
    # here: where there is no browser, the package may be missing
    from playwright.sync_api import (
        TimeoutError,
    )

    box = page.get_by_label(label)
    with suppress(TimeoutError):
        box.click(timeout=5000)
        page.get_by_role("option", name=choice, exact=True).click(timeout=5000)
    return box.inner_text().strip() == choice
