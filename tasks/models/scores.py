"""What scoring a table gave: how far it is, what the predictions look like, and the report of it in Prefect."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import numpy as np
from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact

from learnkernels.conf.errors import InputError, listed
from learnkernels.conf.schema import DriftConfig
from learnkernels.kernels.drift import FEWEST_ROWS, Drift, NewRows, drift_of
from learnkernels.kernels.persistence.model import Model
from learnkernels.kernels.tables import EncodingReport
from learnkernels.kernels.tables.summary import NumberSummary
from learnkernels.tasks.evidence.databases import first_line, mlflow_ui
from learnkernels.tasks.evidence.markdown import Markdown, code, link, plain, render
from learnkernels.tasks.evidence.progress import RunProgress
from learnkernels.tasks.models.registry import PLACE, ModelVersion, log_series

LINE_SECONDS = 5.0
"""Least time between two lines of progress where there is no terminal."""

SHOWN = 20
"""How many labels the report shows before it only counts."""


Distribution = Counter[str] | NumberSummary
"""What one column of predictions looks like: how often each label occurs, or the summary of numbers; two add up."""


def distribution_of(values: np.ndarray, numbers: bool) -> Distribution:
    """Return the distribution of some numbers or labels, shape (n,)."""
    return NumberSummary.of(values, all_kept=False) if numbers else Counter(map(str, values))


def shown_distribution(of: Distribution) -> dict[str, float]:
    """Return counts by label, or mean, sd, min and max; nothing for no rows."""
    if isinstance(of, Counter):
        return {label: of[label] for label in sorted(of)}
    sd = float(np.sqrt(of.squares / (of.finite - 1))) if of.finite > 1 else 0.0
    return {"mean": of.mean, "sd": sd, "min": of.low, "max": of.high} if of.finite else {}


@dataclass
class Tally:
    """What was counted of the rows that were scored; those of two parts of a table add up.

    Attributes
    ----------
    rows : int
        How many there are.
    distributions : dict of str to Distribution
        Of each column of predictions.
    new : NewRows or None
        What is compared with the training rows; None for a model that keeps none.
    report : EncodingReport
        Missing values and new levels.
    columns, ignored : list of str
        Of the output; and those of the input that the model does not read.
    """

    distributions: dict[str, Any]
    new: NewRows | None
    rows: int = 0
    report: EncodingReport = field(default_factory=EncodingReport)
    columns: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)

    def __add__(self, other: Tally) -> Tally:
        joined = {name: one + other.distributions[name] for name, one in self.distributions.items()}
        new = None if self.new is None or other.new is None else self.new + other.new
        return Tally(joined, new, self.rows + other.rows, self.report + other.report, self.columns, self.ignored)


@dataclass(frozen=True)
class DriftReport:
    """How rows that were scored differ from the training rows, as plain data.

    Attributes
    ----------
    warnings : list of str
        What exceeds a threshold; empty where nothing does.
    note : str
        Why the rows were not compared; empty where they were.
    metrics : dict of str to float
        For MLflow: `p`, `mmd2`, and the largest of the columns' shares.
    columns : list of dict
        One row per column: shares of missing values (now and at training), of unknown categories, and of rows outside
        of the range, and the p-value, None where it is not tested.
    """

    warnings: list[str] = field(default_factory=list)
    note: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    columns: list[dict[str, Any]] = field(default_factory=list)


class Drifted(InputError):
    """Rows that differ from the training rows by more than is allowed; `scores` say how."""

    def __init__(self, sentence: str, scores: Scores) -> None:
        super().__init__(sentence)
        self.scores = scores


def drift_config(version: ModelVersion) -> DriftConfig:
    """Return what the configuration of a version's latest training says of drift."""
    try:
        return DriftConfig.model_validate(json.loads(version.tags.get(PLACE, "{}")).get("drift", {}))
    except (AttributeError, ValueError) as error:
        raise InputError(
            f"model {version.uri}: what it says of drift cannot be read ({first_line(error)}); train it again."
        ) from None


def drift_report(model: Model, tally: Tally, config: DriftConfig) -> DriftReport:
    """Compare the rows that were scored with what a model keeps of its training rows."""
    if model.reference is None or tally.new is None:
        return DriftReport(note="the model keeps no training rows; train it again to have new rows compared with them")
    if tally.rows < FEWEST_ROWS:
        return DriftReport(note=f"not tested, as {FEWEST_ROWS} rows are needed and the input has {tally.rows}")
    found = drift_of(model.estimator.kernel_, model.feature_columns, model.reference, tally.new, config.ignore)
    at_training = model.missing_at_training
    columns: list[dict[str, Any]] = [
        {
            "column": name,
            "missing": tally.report.gaps.get(name, 0) / tally.rows,
            "missing_at_training": at_training.get(name, 0.0),
            "unknown": tally.report.levels.get(name, 0) / tally.rows,
            "outside": found.outside.get(name, 0.0),
            "p": found.p_columns.get(name),
        }
        for name in model.features
    ]
    dates = {name for name, view in model.feature_columns if view == "dates"}
    counted = [one for one in columns if one["column"] not in config.ignore]
    warnings = _tested(found, config.level)
    largest = {}
    for what, (said, share) in EXCEEDING.items():
        shares = {one["column"]: share(one) for one in counted if what != "outside" or one["column"] not in dates}
        most, largest[what] = getattr(config, what), max(shares.values(), default=0.0)
        if over := [f"{name!r} ({share:.0%})" for name, share in shares.items() if share > most]:
            warnings.append(f"{said}: column {listed(over, show=str)}; the limit is {most:.0%}")
    tests = {"p": found.p, "mmd2": found.mmd2, "score": max(found.scores)}
    return DriftReport(warnings, "", {**tests, **largest, "warnings": len(warnings)}, columns)


EXCEEDING: dict[str, tuple[str, Callable[[dict[str, Any]], float]]] = {
    "missing": ("more values are missing than at training", lambda one: one["missing"] - one["missing_at_training"]),
    "unknown": ("rows have categories that no training row had", lambda one: one["unknown"]),
    "outside": ("rows are outside of the range of the training rows", lambda one: one["outside"]),
}
"""Thresholds of a configuration: what is said where the share of a column exceeds one, and that share."""


def _tested(found: Drift, level: float) -> list[str]:
    """Return the sentence that says which columns differ from the training rows; none where the tests find nothing."""
    if found.p > level:
        return []
    moved = [name for name, p in found.p_columns.items() if p <= level / 2]
    where = f"column {listed(moved)}" if moved else "no column alone, but their combination"
    return [f"the rows differ from the training rows (p = {found.p:.2g}): {where}"]


@dataclass(frozen=True)
class Scores:
    """What scoring a table gave, as plain data.

    Attributes
    ----------
    rows : int
        How many rows there are.
    columns : list of str
        Of the output.
    distribution : dict
        Of each column of predictions: counts by label, or mean, sd, min and max.
    seconds : float
    gaps, new_levels : dict of str to int
        Of each column of a table, rows with a gap that was filled, and with a level that no training row had.
    cells : list of str
        What is to be said of single cells that are none of what their column holds.
    ignored : list of str
        Columns of the input that the model does not read.
    drift : DriftReport
        How the rows differ from the training rows.
    """

    rows: int
    columns: list[str]
    distribution: dict[str, dict[str, float]]
    seconds: float
    gaps: dict[str, int]
    new_levels: dict[str, int]
    cells: list[str]
    ignored: list[str]
    drift: DriftReport


def progress_lines(progress: RunProgress) -> Callable[[float, int], None]:
    """Return what shows how far a scoring is, of 100 steps; after a second attempt began, it goes back with it."""
    done, said = 0.0, time.monotonic()

    def advance(share: float, rows: int) -> None:
        """Report the share that is done, and the number of rows, zero where it is unknown."""
        nonlocal done, said
        progress.advance(100 * (share - done))
        done = share
        if time.monotonic() - said > LINE_SECONDS:
            progress.start(f"{rows:,} rows scored" if rows else "scoring")
            said = time.monotonic()

    return advance


def publish_scores(version: ModelVersion, source: str, output: str, scores: Scores) -> None:
    """Show in Prefect what was scored, with which version, and what rows and predictions look like.

    How rows differ from the training rows goes to MLflow as well, as metrics of the run that trained the version.
    """
    log, drift = get_run_logger(), scores.drift
    if scores.ignored:
        log.info("columns that %s does not read are ignored: %s", version.uri, listed(scores.ignored))
    for sentence in (*drift.warnings, *([drift.note] if drift.note else [])):
        log.warning("drift: %s", sentence)
    if drift.metrics:
        try:
            log_series(version, {f"drift/{name}": value for name, value in drift.metrics.items()})
        except InputError as error:  # the predictions are there, and no reason to have none
            log.warning("drift is not in MLflow: %s", error)
    page = f"{mlflow_ui()}/#/models/{quote(version.name, safe='')}/versions/{version.version}"
    facts: dict[str, Any] = {
        "input": code(source),
        "output": code(output),
        "columns": Markdown(", ".join(map(code, scores.columns))),
        **({"columns that were ignored": Markdown(", ".join(map(code, scores.ignored)))} if scores.ignored else {}),
        **_counted("missing values", scores.gaps),
        **_counted("categories that no training row had", scores.new_levels),
        **{f"cell {i}": plain(sentence) for i, sentence in enumerate(scores.cells, 1)},
        "rows a second": f"{scores.rows / max(scores.seconds, 1e-9):,.0f}",
        "digest of the model": code(version.digest),
    }
    differing = sorted(drift.columns, key=lambda one: (1.0 if one["p"] is None else one["p"], -one["missing"]))
    columns = [
        {
            "column": code(one["column"]),
            "missing": f"{one['missing']:.1%}",
            "at training": f"{one['missing_at_training']:.1%}",
            "unknown categories": f"{one['unknown']:.1%}",
            "outside of the range": f"{one['outside']:.1%}",
            "p": "not tested" if one["p"] is None else f"{one['p']:.2g}",
        }
        for one in differing[:SHOWN]
    ]
    report = render(
        "scoring.md",
        scores=scores,
        version=link(f"{version.name} version {version.version}", page),
        facts=[{"": what, " ": fact} for what, fact in facts.items()],
        predictions={name: _rows(values, scores.rows) for name, values in scores.distribution.items()},
        columns=columns,
    )
    create_markdown_artifact(report, key="scoring", description=f"Scores of {code(source)}")


def _counted(what: str, columns: dict[str, int]) -> dict[str, Markdown]:
    """Return the rows of each column of which there are some, as a fact; nothing where there are none."""
    named = ", ".join(f"{code(name)} {count:,}" for name, count in columns.items())
    return {f"rows with {what}": Markdown(named)} if columns else {}


def _rows(values: dict[str, float], scored: int) -> list[dict[str, str]]:
    """Return what predictions look like as rows of a table: the most frequent labels, or the numbers in one row."""
    if not values:
        return []
    if not all(isinstance(value, int) for value in values.values()):
        return [{name: f"{value:.6g}" for name, value in values.items()}]
    most = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    if most[SHOWN:]:
        most[SHOWN:] = [(f"{len(most) - SHOWN} others", sum(count for _, count in most[SHOWN:]))]
    return [{"class": label, "rows": f"{count:,}", "share": f"{count / scored:.1%}"} for label, count in most]
