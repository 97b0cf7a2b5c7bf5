"""Score new rows with a registered model."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from prefect import flow
from pydantic import ValidationError

from learnkernels.conf.errors import InputError
from learnkernels.conf.forms import drawn_as, form_field
from learnkernels.conf.loading import describe
from learnkernels.conf.schema import DaskConfig
from learnkernels.tasks.measure.progress import RunProgress
from learnkernels.tasks.models import explaining, scoring
from learnkernels.tasks.models.registry import (
    ModelVersion,
    find_version,
    load_version,
)
from learnkernels.tasks.naming import run_name
from learnkernels.tasks.operate.events import announce

from .functions import EXPLAINED_ROWS


def workers_at(scheduler: str) -> DaskConfig:
    """Return the configuration of the workers of a Dask scheduler, or of local workers.

    InputError if the address is invalid or holds credentials.
    """
    try:
        return DaskConfig.model_validate({"scheduler": scheduler or None})
    except ValidationError as error:
        raise InputError(describe(error, {"scheduler": scheduler})) from None


@flow(
    name="predict",
    flow_run_name=run_name("predict-{model}"),
    persist_result=True,
    result_serializer="json",
)
def predict(
    model: Annotated[
        str,
        drawn_as(
            "NAME (its champion), NAME@ALIAS, NAME/VERSION or a models:/ URI.",
            type="string",
            minLength=1,
        ),
    ],
    input: Annotated[
        str,
        drawn_as(
            "Rows to score: .parquet, .csv, .arrow or .feather; a file, folder or pattern, here or s3://bucket/key.",
            type="string",
            minLength=1,
        ),
    ],
    output: Annotated[
        str,
        drawn_as(
            "Written atomically; the same endings, a path or s3://bucket/key. Of a folder, such as scored/, a "
            "file for each of the input, side by side by workers, and _SUCCESS when all are there.",
            type="string",
            minLength=1,
        ),
    ],
    id: Annotated[
        list[str],
        form_field("Columns copied to the output; without any, the rows are numbered."),
    ] = [],  # noqa: B006
    scheduler: Annotated[
        str,
        form_field(
            "Dask scheduler whose workers score into a folder; by default one process per core, here."
        ),
    ] = "",
    strict: Annotated[
        bool,
        form_field(
            "Refuse columns that the model does not read; else they are ignored."
        ),
    ] = False,
    escape_formulas: Annotated[
        bool,
        form_field(
            "Write an apostrophe before texts of a CSV output that a spreadsheet would run as formulas."
        ),
    ] = True,
    explain: Annotated[
        bool,
        form_field(
            "Write the contribution of each column to the predictions next to the output, as "
            "NAME.contributions of its format."
        ),
    ] = False,
    explain_rows: Annotated[
        int,
        form_field("Largest number of rows to explain, the first of the input.", ge=1),
    ] = EXPLAINED_ROWS,
) -> dict[str, Any]:
    """Score the rows of a file with a registered model, in constant memory.

    1. Fetch the file of the model's version, and check its digest.
    2. Check the columns of *input* before any row is scored: refuse an input that lacks
       a column of the model, and ignore columns that the model does not read.
    3. Score batches of rows, bit-for-bit equal to scoring all rows at once.
    4. Compare the rows with the training rows; end here if they differ too much and
       `drift.on_drift` is *fail*.
    5. Put the complete *output* in place: columns of *id* (text in a CSV), or `row`
       from 0, then the predictions. Parquet and Arrow files name the version; in CSV
       files, texts that look like formulas are escaped.
    6. With *explain*, write the contributions of columns for the first rows next to
       *output*. 1,000 rows of ten columns take about ten seconds.
    7. Report and return the scored rows, their drift, and the distribution of
       predictions.

    Reading and writing are retried; a wrong model, column or value ends the run.
    """
    workers = workers_at(scheduler)
    if scheduler and not output.endswith("/"):
        raise InputError(
            f"scheduler: its workers score into a folder, and the output {output} is a file; add a slash."
        )
    version = find_version(model)
    options = scoring.ScoringOptions(
        tuple(id), strict, scoring.drift_config(version), escape_formulas
    )
    if explain:
        explaining.require_explainable(load_version(version), input, output, id)
    explained = None
    with RunProgress(100, "scoring-progress", "the scoring") as progress:
        progress.start(f"{input} with {version.uri}")
        on_progress = scoring.ScoringProgress(progress)

        def show_explained(rows: int) -> None:
            progress.start(f"{rows:,} rows explained")

        try:
            if output.endswith("/"):
                # a file needs no Dask, which takes time to import
                from learnkernels.tasks.workers.cluster import (
                    DaskPool,
                )

                with DaskPool(workers) as pool:
                    pool.require_usable()
                    scores = scoring.score_table(
                        version, input, output, options, on_progress, pool
                    )
            else:
                scores = scoring.score_table(
                    version, input, output, options, on_progress
                )
        except scoring.Drifted as drifted:
            _report(version, input, output, drifted.scores)
            raise
        if explain:
            explained = explaining.explain_table(
                version, input, output, options, explain_rows, show_explained
            )
    _report(version, input, output, scores, explained)
    if not scores.rows:
        announce(
            "empty", version.name, f"{input} has no rows, and so {output} has none."
        )
    about: dict[str, Any] = {
        "output": output,
        "model": version.uri,
        "version": version.version,
        "digest": version.digest,
    }
    if explained is not None:
        about["contributions"] = explained.output
        about["explained"] = explained.rows
    return about | asdict(scores)


def _report(
    version: ModelVersion,
    input: str,
    output: str,
    scores: scoring.Scores,
    explained: explaining.Explained | None = None,
) -> None:
    scoring.publish_scores(version, input, output, scores, explained)
    if scores.drift.warnings:
        announce(
            "drifted", version.name, f"{input}: {'; '.join(scores.drift.warnings)}."
        )
