"""Take the pictures of docs/dashboards.md: run the examples in a temporary folder, open
both dashboards, look.

    python docs/take_screenshots.py [--output docs/screenshots] [--pages NAME ...]

Needs playwright (`pip install -e '.[dev]'`) and a Chromium on the PATH;
nothing is downloaded, and the browser reaches this machine alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image
from sklearn.datasets import load_breast_cancer

from learnkernels.tasks.operate.servers import free_port
from learnkernels.tasks.reporting.mlflow_pages import RUN, runs_path

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

ROOT = Path(__file__).resolve().parents[1]
LOOPBACK = "127.0.0.1"
CHROMIUM = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
)
SIZE = {"width": 1440, "height": 900}
START_SECONDS = 180
WAIT_MILLISECONDS = 180_000
SETTLE_MILLISECONDS = 400
"""Between two looks at a page: it is ready when they are equal."""
SETTLE_LOOKS = 40

LARGE_BYTES = 150_000
"""A larger picture is kept with 256 colors."""

TRAIN = (
    "train",
    "conf/quickstart.yaml",
    "--model",
    "tumours",
    "--dataset",
    "breast_cancer",
    "--learner",
)
FIRST = ("compare", "conf/quickstart.yaml")
COMMANDS = (
    ("compare", "conf/examples/all_learners.yaml"),
    FIRST,
    (*TRAIN, "rfm"),
    ("promote", "tumours"),
    (*TRAIN, "alignf"),
    ("promote", "tumours"),
    (
        "predict",
        "--model",
        "tumours@champion",
        "--input",
        "new.parquet",
        "--output",
        "scored.parquet",
    ),
    (
        "deploy",
        "conf/quickstart.yaml",
        "--model",
        "tumours",
        "--dataset",
        "breast_cancer",
        "--cron",
        "0 3 * * *",
        "--input",
        "new.parquet",
        "--output",
        "scored.parquet",
    ),
)
"""What is run in the temporary folder, in order, as `learnkernels ...`."""


class Places:
    """Addresses of pages, found by the names that people see."""

    def __init__(self, prefect: str, mlflow: str, key: str) -> None:
        self.prefect = f"{prefect}/v2"
        self.mlflow = mlflow
        self.key = key

    def flow_run(self, flow: str, tab: str = "Logs") -> str:
        """Return the page of the newest run of a flow."""
        return f"{self.prefect}/runs/flow-run/{self._flow_run(flow)['id']}?tab={tab}"

    def flow(self, flow: str) -> str:
        """Return the page of a flow."""
        return f"{self.prefect}/flows/flow/{self._flow_run(flow)['flow_id']}"

    def form(self, flow: str, deployment: str) -> str:
        """Return the page with the form of a deployment's parameters."""
        wanted = {
            "flows": {"name": {"any_": [flow]}},
            "deployments": {"name": {"any_": [deployment]}},
            "limit": 1,
        }
        return f"{self.prefect}/deployments/deployment/{self._ask_prefect('deployments', wanted)[0]['id']}/run"

    def artifact(self, key: str) -> str:
        """Return the page of the newest artifact of a key."""
        wanted = {
            "artifacts": {"key": {"any_": [key]}},
            "sort": "CREATED_DESC",
            "limit": 1,
        }
        return f"{self.prefect}/artifacts/artifact/{self._ask_prefect('artifacts', wanted)[0]['id']}"

    def saved_view(self, experiment: str, *, charts: bool) -> str:
        """Return the page of the newest comparison of an experiment, in its saved view."""
        found = self._experiment_of(experiment)
        tags = {tag["key"]: tag["value"] for tag in found["tags"]}
        return f"{self.mlflow}/{runs_path(found['experiment_id'], run=tags[RUN], charts=charts)}"

    def run(self, experiment: str, query: str, tab: str = "") -> str:
        """Return the page of the newest run that a query finds."""
        run = self._runs(experiment, query)[0]
        page = f"experiments/{self._experiment(experiment)}/runs/{run}{tab}"
        return f"{self.mlflow}/#/{page}?workflowType=machine_learning"

    def compare(self, experiment: str, query: str) -> str:
        """Return the page that puts the runs of a query side by side."""
        runs, of = (
            json.dumps(self._runs(experiment, query)),
            json.dumps([self._experiment(experiment)]),
        )
        return f"{self.mlflow}/#/compare-runs?runs={runs}&experiments={of}&workflowType=machine_learning"

    def _flow_run(self, flow: str) -> dict[str, Any]:
        wanted = {
            "flows": {"name": {"any_": [flow]}},
            "flow_runs": {
                "state": {"type": {"any_": ["COMPLETED"]}}
            },  # others may be scheduled for the night
            "sort": "START_TIME_DESC",
            "limit": 1,
        }
        run: dict[str, Any] = self._ask_prefect("flow_runs", wanted)[0]
        return run

    def _ask_prefect(self, what: str, wanted: dict[str, Any]) -> Any:
        return self._ask(
            f"{self.prefect.removesuffix('/v2')}/api/{what}/filter", wanted
        )

    def _experiment(self, name: str) -> str:
        return str(self._experiment_of(name)["experiment_id"])

    def _experiment_of(self, name: str) -> dict[str, Any]:
        wanted = {"max_results": 1, "filter": f"name = '{name}'"}
        found: list[dict[str, Any]] = self._ask(
            f"{self.mlflow}/api/2.0/mlflow/experiments/search", wanted
        )["experiments"]
        return found[0]

    def _runs(self, experiment: str, query: str) -> list[str]:
        wanted = {
            "experiment_ids": [self._experiment(experiment)],
            "filter": query,
            "max_results": 20,
        }
        found = self._ask(f"{self.mlflow}/api/2.0/mlflow/runs/search", wanted)["runs"]
        return [run["info"]["run_id"] for run in found]

    def _ask(self, address: str, body: dict[str, Any]) -> Any:
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Basic {b64encode(self.key.encode()).decode()}",
        }
        request = urllib.request.Request(address, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)


@dataclass(frozen=True)
class Shot:
    """One picture.

    Attributes
    ----------
    name : str
        Of the file, without its ending.
    address : callable
        Of the page, from the places.
    wait : str
        Selector of what must be there before the picture is taken.
    words : tuple of str
        What the page must say.
    caption : str
    clicks : tuple of str
        Selectors, clicked in order before the wait.
    height : int
        Of the window.
    """

    name: str
    address: Callable[[Places], str]
    wait: str
    words: tuple[str, ...]
    caption: str
    clicks: tuple[str, ...] = ()
    height: int = SIZE["height"]


BREAST = "tags.`learnkernels.level` = 'result' and params.dataset = 'breast_cancer'"
COMPARISON = "tags.`learnkernels.level` = 'comparison'"

PAGES = (
    Shot(
        "mlflow-start", lambda at: f"{at.mlflow}/#/", "text=quickstart", ("Recent Experiments", "quickstart"),
        "MLflow's start page: an experiment a configuration",
    ),
    Shot(
        "mlflow-chart", lambda at: at.saved_view("quickstart", charts=True), ".js-plotly-plot .point >> nth=3",
        ("Alignment against test error", "Test error", "diabetes alignf", "breast_cancer GridSearchCV"),
        "Alignment against test error, one click from the experiment", height=1100,
    ),
    Shot(
        "mlflow-table", lambda at: at.saved_view("quickstart", charts=False), "text=diabetes alignf",
        ("test_error", "alignment", "seconds", "diabetes HistGradientBoosting"),
        "The results of a comparison as a table",
    ),
    Shot(
        "mlflow-figure", lambda at: at.run("all_learners", COMPARISON), "text=Show less",
        ("ionosphere: ", "german: "), "The report's first figure names who wins",
        clicks=("text=Show more",), height=1300,
    ),
    Shot(
        "mlflow-result", lambda at: at.run("quickstart", f"{BREAST} and params.learner = 'alignf'"), "text=test_error",
        ("breast_cancer alignf", "alignment"), "A result: what was measured, on what, and where it comes from",
    ),
    Shot(
        "mlflow-folds", lambda at: at.run("quickstart", f"{BREAST} and params.learner = 'alignf'", "/model-metrics"),
        ".js-plotly-plot .point, .js-plotly-plot .js-line", ("fold", "alignment"), "The same, trial by trial",
    ),
    Shot(
        "mlflow-compare", lambda at: at.compare("quickstart", BREAST),
        "text=Run details", ("Comparing 4 Runs", "learner"), "Four results side by side", height=1200,
    ),
    Shot(
        "mlflow-comparison", lambda at: at.run("quickstart", COMPARISON), "text=Show less",
        ("has the lowest", "report.md"), "A comparison: who wins, the figure, and the way to everything else",
        clicks=("text=Show more",),
    ),
    Shot(
        "mlflow-registry", lambda at: f"{at.mlflow}/#/models/tumours?workflowType=machine_learning", "text=champion",
        ("Version 2", "alignf"), "The versions of a model, and who is champion",
    ),
    Shot(
        "mlflow-decision", lambda at: at.run("quickstart", "tags.`learnkernels.level` = 'decision'"),
        "text=challenger/test_error", ("promote tumours",), "A decision, with its evidence",
    ),
    Shot(
        "prefect-runs", lambda at: f"{at.prefect}/runs", "text=compare", ("quickstart-", "Completed"),
        "Prefect's list of runs",
    ),
    Shot(
        "prefect-run", lambda at: at.flow_run("compare", "Artifacts"), "text=comparison-report",
        ("quickstart-", "mlflow-chart"), "A run: its steps in time, and its artifacts", height=1100,
    ),
    Shot(
        "prefect-log", lambda at: at.flow_run("compare"), "text=Beginning flow run",
        ("statistics of 7 kernels",), "The log of a run tells who won",
    ),
    Shot(
        "prefect-report", lambda at: at.artifact("comparison-report"), "img[alt='errors of all methods']",
        ("comparison of methods", "has the lowest"), "The report of a run", height=1100,
    ),
    Shot(
        "prefect-table", lambda at: at.artifact("comparison"), "text=alignf *", ("test error", "alignment"),
        "The table of a run",
    ),
    Shot(
        "prefect-links", lambda at: at.artifact("mlflow-chart"), "text=This comparison in MLflow", ("MLflow chart",),
        "The way from Prefect to MLflow",
    ),
    Shot(
        "prefect-training", lambda at: at.artifact("training-report"), "text=Use it",
        ("tumours version 2", "lowest mean validation error"), "What was chosen for a model, and what to expect of it",
    ),
    Shot(
        "prefect-scores", lambda at: at.artifact("scoring"), "text=new.parquet", ("tumours", "malignant"),
        "What was scored, with which version, and what came out",
    ),
    Shot(
        "prefect-deployments", lambda at: f"{at.prefect}/deployments", "text=train",
        ("predict", "promote"), "The deployments of a model",
    ),
    Shot(
        "prefect-form", lambda at: at.form("compare", "tumours"), "text=Parameters",
        ("Number of folds",), "A run by hand: the form of a deployment's parameters", height=1300,
    ),
)  # fmt: skip
"""The pictures; one more is one more line."""


def chromium() -> str | None:
    """Return the path of a Chromium, if there is one on the PATH."""
    return next((path for name in CHROMIUM if (path := shutil.which(name))), None)


@contextmanager
def dashboards(
    folder: Path, commands: Sequence[Sequence[str]] = COMMANDS
) -> Iterator[Places]:
    """Start both dashboards over a folder, run the commands in it, and give the places; stop them at the end."""
    shutil.copytree(
        ROOT / "conf",
        folder / "conf",
        ignore=shutil.ignore_patterns("*.py", "__pycache__"),
    )
    load_breast_cancer(as_frame=True).data.to_parquet(folder / "new.parquet")
    ours = ("PREFECT_", "MLFLOW_", "LEARNKERNELS_")
    env = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    command = [sys.executable, "-m", "learnkernels"]
    ports = free_port(), free_port()
    options = ["--prefect-port", str(ports[0]), "--mlflow-port", str(ports[1])]
    with (folder / "up.log").open("wb") as log:
        up = subprocess.Popen(
            [*command, "up", *options], cwd=folder, env=env, stdout=log, stderr=log
        )
    try:
        _wait_for_line(up, folder / "up.log", "Ctrl-C")
        for arguments in commands:
            run = subprocess.run(
                [*command, *arguments],
                cwd=folder,
                env=env,
                capture_output=True,
                text=True,
            )
            if run.returncode:
                raise RuntimeError(
                    f"learnkernels {' '.join(arguments)} failed:\n{run.stderr[-2000:]}"
                )
        key = (folder / ".learnkernels" / "key").read_text(encoding="utf-8")
        yield Places(*(f"http://{LOOPBACK}:{port}" for port in ports), key)
    finally:
        up.terminate()
        up.wait(timeout=START_SECONDS)


def _wait_for_line(process: subprocess.Popen[bytes], log: Path, line: str) -> None:
    for _ in range(START_SECONDS * 2):
        if line in log.read_text(encoding="utf-8"):
            return
        try:
            process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            continue
        break
    raise RuntimeError(
        f"the dashboards did not start:\n{log.read_text(encoding='utf-8')[-2000:]}"
    )


@contextmanager
def browser(places: Places) -> Iterator[BrowserContext]:
    """Give a browser that reaches this machine alone, with MLflow set to model training and its assistant closed."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        application = playwright.chromium.launch(
            executable_path=chromium(), args=arguments
        )
        user, _, secret = places.key.partition(":")
        context = application.new_context(
            viewport=SIZE,  # type: ignore[arg-type]
            color_scheme="light",
            timezone_id="UTC",
            locale="en-GB",
            http_credentials={"username": user, "password": secret},
        )
        context.set_default_timeout(WAIT_MILLISECONDS)
        context.route(
            lambda address: (
                not address.startswith((f"http://{LOOPBACK}:", "data:", "blob:"))
            ),
            lambda route: route.abort(),
        )
        # As the page of Prefect keeps the password, and before its first script asks
        # for it.
        password = json.dumps(b64encode(places.key.encode()).decode())
        context.add_init_script(f"localStorage.setItem('prefect-password', {password})")
        page = context.new_page()
        page.goto(places.prefect)
        page.wait_for_selector("text=Dashboard >> nth=0")
        page.goto(places.mlflow)
        page.click("text=Model training")
        page.click("[data-component-id='mlflow.assistant.chat_panel.close']")
        page.click("[aria-label='Close alert']")
        page.close()
        yield context
        application.close()


def take(context: BrowserContext, places: Places, shot: Shot, output: Path) -> str:
    """Take one picture and return the text of the page.

    Raises
    ------
    RuntimeError
        The page does not say what it must.
    """
    page = context.new_page()
    page.set_viewport_size({"width": SIZE["width"], "height": shot.height})
    page.goto(shot.address(places))
    for selector in shot.clicks:
        page.click(selector)
    page.wait_for_selector(shot.wait)
    picture = _settled(page)
    text = page.inner_text("body")
    page.close()
    missing = [word for word in shot.words if word not in text]
    if missing:
        raise RuntimeError(f"{shot.name}: the page does not say {', '.join(missing)}")
    output.mkdir(parents=True, exist_ok=True)
    file, image = (
        output / f"{shot.name}.png",
        Image.open(BytesIO(picture)).convert("RGB"),
    )
    image.save(file, optimize=True)
    if file.stat().st_size > LARGE_BYTES:
        image.quantize(
            colors=256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
        ).save(file, optimize=True)
    return text


def _settled(page: Page) -> bytes:
    """Return the picture of a page that has stopped moving; of one that never does, the last."""
    before = b""
    for _ in range(SETTLE_LOOKS):
        picture = page.screenshot()
        if picture == before:
            break
        before = picture
        page.wait_for_timeout(SETTLE_MILLISECONDS)
    return before


def main() -> None:
    """Take the pictures that were asked for, all by default."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "docs" / "screenshots",
        help="folder of the pictures",
    )
    parser.add_argument(
        "--pages", nargs="+", choices=[shot.name for shot in PAGES], help="only these"
    )
    options = parser.parse_args()
    if chromium() is None:
        sys.exit(
            f"no Chromium on the PATH (looked for {', '.join(CHROMIUM)}); install one, then run this again."
        )
    # So that the dashboards are stopped
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    wanted = [shot for shot in PAGES if not options.pages or shot.name in options.pages]
    with (
        tempfile.TemporaryDirectory(prefix="learnkernels-pictures-") as folder,
        dashboards(Path(folder)) as places,
        browser(places) as context,
    ):
        failed = [
            shot.name
            for shot in wanted
            if not _taken(context, places, shot, options.output)
        ]
    if failed:
        sys.exit(f"not taken: {', '.join(failed)}")


def _taken(context: BrowserContext, places: Places, shot: Shot, output: Path) -> bool:
    """Take one picture and say so, or why not."""
    try:
        take(context, places, shot, output)
    except Exception as error:  # a page that is missing should not cost the others
        sys.stdout.write(f"{shot.name}: {error}\n")
        return False
    finally:
        for page in context.pages:
            page.close()
    sys.stdout.write(f"{output / shot.name}.png\n")
    sys.stdout.flush()
    return True


if __name__ == "__main__":
    main()
