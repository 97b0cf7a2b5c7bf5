"""The dashboards as a user meets them: real runs, real servers, a real browser."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from PIL import Image

from tools.waiting import within

DOCS = Path(__file__).resolve().parents[2] / "docs"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("take_screenshots", DOCS / "take_screenshots.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


shots = script()
BY_NAME = {shot.name: shot for shot in shots.PAGES}


def require_not_blank(picture: Path) -> None:
    """A blank page, or one that is still loading, has a handful of grey tones; text alone has dozens."""
    with Image.open(picture) as image:
        colors = image.convert("RGB").getcolors(maxcolors=2**24)
    assert colors is not None
    assert len(colors) >= 40


def test_every_picture_is_shown_and_every_picture_shown_is_there():
    shown = re.findall(r"!\[[^\]]*\]\(screenshots/([a-z-]+)\.png\)", (DOCS / "dashboards.md").read_text("utf-8"))
    assert len(shown) == len(set(shown))
    assert set(shown) == set(BY_NAME) == {path.stem for path in (DOCS / "screenshots").iterdir()}


@pytest.mark.parametrize("name", BY_NAME)
def test_pictures_are_small_and_not_blank(name: str):
    picture = DOCS / "screenshots" / f"{name}.png"
    assert picture.stat().st_size <= 250_000
    require_not_blank(picture)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """A browser on both dashboards of a folder in which the first example was run."""
    if shots.chromium() is None:
        pytest.skip("there is no Chromium on the PATH")
    folder = tmp_path_factory.mktemp("pictures")
    deploy = ("deploy", "conf/quickstart.yaml", "--dataset", "diabetes", "--register", "demo", "--paused")
    with shots.dashboards(folder, [shots.FIRST, deploy]) as places, shots.browser(places) as context:
        places.folder, places.before = folder, list(folder.glob("results/quickstart/*/folds.parquet"))
        yield context, places


@pytest.mark.slow(15)
@pytest.mark.parametrize("name", ["mlflow-chart", "mlflow-sweep", "prefect-run", "prefect-report"])
def test_a_page_shows_what_it_must(opened: tuple[Any, Any], tmp_path: Path, name: str):
    context, places = opened
    text = shots.take(context, places, BY_NAME[name], tmp_path)  # raises where its words are missing
    assert "Something went wrong" not in text
    assert "Unable to connect" not in text
    require_not_blank(tmp_path / f"{name}.png")


@pytest.mark.slow(5)
def test_the_chart_is_two_clicks_from_the_start_page(opened: tuple[Any, Any]):
    context, places = opened
    page = context.new_page()
    page.goto(f"{places.mlflow}/#/")
    page.click("role=link[name='quickstart']")
    with context.expect_page() as chart:
        page.click("role=link[name='chart'] >> nth=0")
    chart.value.wait_for_selector(shots.POINT)
    titles = chart.value.locator("text=alignment_over_best vs. percent_above_best")
    titles.first.wait_for()
    page.close()
    chart.value.close()


@pytest.mark.slow(5)
def test_the_way_leads_from_prefect_to_mlflow_and_back(opened: tuple[Any, Any]):
    context, places = opened
    page = context.new_page()
    page.goto(places.artifact("mlflow-chart"))
    address = page.get_attribute("role=link[name='MLflow sweep']", "href")
    assert address.startswith(f"{places.mlflow}/#/experiments/")
    page.goto(address)
    back = page.get_attribute("role=link[name='Prefect']", "href")
    assert back.startswith(places.prefect)
    page.goto(back)
    page.wait_for_selector("text=comparison-report")
    page.close()


@pytest.mark.slow(35)
def test_a_run_with_another_metric_folds_and_baseline_is_submitted_in_the_form(opened: tuple[Any, Any]):
    context, places = opened
    page = context.new_page()
    page.goto(places.form("compare-kernel-learners", "demo"))
    page.wait_for_selector("text=The whole configuration")
    assert "Property is type" not in page.inner_text("body")
    for label, text in {"folds": "3", "dataset": "diabetes"}.items():
        page.get_by_label(label).fill(text)
    for label, choice in {"metric": "r2", "baseline": "one tuned kernel"}.items():
        page.get_by_label(label).click()
        page.get_by_role("option", name=choice, exact=True).click()
    page.click("role=button[name='Submit']")
    page.wait_for_url("**/deployments/deployment/*?tab=Runs")
    page.close()
    results = places.folder / "results" / "quickstart"
    before = set(places.before)
    assert within(lambda: set(results.glob("*/folds.parquet")) - before, 300)
    (file,) = set(results.glob("*/folds.parquet")) - before
    folds = pd.read_parquet(file)
    assert set(folds["dataset"]) == {"diabetes"}
    assert set(folds["metric"]) == {"1 - r2"}
    assert folds["fold"].nunique() == 3
    assert "GridSearchCV" in set(folds["learner"])
