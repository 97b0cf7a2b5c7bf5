"""Summaries and reports, against numbers worked out by hand."""

from __future__ import annotations

import base64
import json
import re
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from scipy import stats

from learnkernels.conf.schema import CompareConfig
from learnkernels.kernels.learners import LEARNERS
from learnkernels.tasks.evidence.figures import (
    alignment_figure,
    history_figure,
    learner_colors,
    parts_figure,
    shares_figure,
)
from learnkernels.tasks.evidence.markdown import markdown_table
from learnkernels.tasks.evidence.notes import NOTE_CHARACTERS, experiment_note, run_note, sweep_note
from learnkernels.tasks.evidence.report import markdown_report, verdicts
from learnkernels.tasks.evidence.report import measures as describe_measures
from learnkernels.tasks.evidence.saved_view import HISTORY, MODELS, NEWEST, View, view_path, view_tag
from learnkernels.tasks.evidence.tables import (
    RELEVANCE,
    VIEW_SHARES,
    display_table,
    parts_table,
    stored_line,
    summarise,
)
from learnkernels.tasks.evidence.tracking import _metrics
from learnkernels.tasks.measure.baseline import GRID_SEARCH
from learnkernels.tasks.measure.t_tests import SIGNIFICANCE

ERRORS = {"unif": [0.30, 0.20, 0.40], "alignf": [0.20, 0.15, 0.28], "single": [0.30, 0.20, 0.40]}


def folds(errors: dict[str, list[float]] = ERRORS, dataset: str = "d") -> pd.DataFrame:
    rows = [
        {
            "dataset": dataset, "task": "classification", "learner": learner, "algorithm": learner, "predictor": "svm",
            "repeat": 0, "certificate": None, "certificate_measure": None, "certificate_tolerance": None,
            "iterations": None, "objectives": None,
            "fold": fold, "alignment": 0.5 + 0.1 * fold, "test_alignment": 0.4, "error": error,
            "metric": "misclassification",
            "seconds_weights": 0.1, "seconds_fit": 0.2, "n_train": 6, "n_test": 3, "n_rows": 15,
            "n_kernels": 2, "weights": np.array([0.6, 0.8]),
            "trivial_error": 0.5, "grid_edge": fold == 0, "kernels": ["k1", "k2"],
        }
        for learner, values in errors.items()
        for fold, error in enumerate(values)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_a_summary_is_mean_and_deviation_over_folds_with_the_corrected_and_the_plain_test():
    row = summarise(folds()).set_index("learner").loc["alignf"]
    assert row.error_mean == pytest.approx(0.21)
    assert row.error_sd == pytest.approx(np.std([0.20, 0.15, 0.28], ddof=1))
    assert row.relative_error == pytest.approx(0.42)
    assert row.alignment_mean == pytest.approx(0.6)
    assert row.seconds_fit == pytest.approx(0.6)
    assert row.weights == pytest.approx([0.6 / 1.4, 0.8 / 1.4])
    # By hand: the differences are -.10, -.05, -.12.
    difference = np.array([-0.10, -0.05, -0.12])
    plain, corrected = (difference.mean() / np.sqrt((1 / 3 + share) * difference.var(ddof=1)) for share in (0, 3 / 12))
    assert row.plain_p_better_than_unif == pytest.approx(stats.t.cdf(plain, df=2))
    assert row.p_better_than_unif == pytest.approx(stats.t.cdf(corrected, df=2))
    assert row.grid_edge == 1


def test_equal_errors_are_not_significant_and_the_lowest_is_marked():
    summary = summarise(folds()).set_index("learner")
    assert summary.loc["single", "p_better_than_unif"] == 1.0
    assert summary["best"].to_dict() == {"unif": False, "alignf": True, "single": False}


def test_seconds_of_results_from_the_store_say_since_when():
    table = folds().assign(stored=None)
    assert stored_line(summarise(table)) == ""
    table.loc[table["learner"] == "alignf", "stored"] = "2026-05-01 17:30"
    summary = summarise(table)
    seconds = {row["learner"].removesuffix(" *"): row["seconds"] for row in display_table(summary)}
    assert seconds == {"unif": "0.90", "alignf": "0.90 †", "single": "0.90"}
    assert stored_line(summary) == "† from the store: computed, and its seconds measured, 2026-05-01 17:30"
    table.loc[table["learner"] == "unif", "stored"] = "2026-05-02 09:00"
    assert stored_line(summarise(table)).endswith("between 2026-05-01 17:30 and 2026-05-02 09:00")


def test_a_result_is_told_beside_the_best_of_its_own_data_set():
    easy, hard = folds(), folds({"unif": [0.5], "alignf": [0.4]}, "hard")
    hard["alignment"] = [0.1, 0.2]
    rows = summarise(pd.concat([easy, hard])).set_index(["dataset", "learner"])
    assert rows["percent_above_best"]["hard"].to_dict() == {"unif": pytest.approx(25.0), "alignf": 0.0}
    assert rows["alignment_over_best"]["hard"].to_dict() == {"unif": 0.5, "alignf": 1.0}
    assert rows["percent_above_best"]["d"]["alignf"] == 0.0
    perfect = summarise(folds({"unif": [0.1], "alignf": [0.0]})).set_index("learner")["percent_above_best"]
    assert perfect["alignf"] == 0.0
    assert np.isnan(perfect["unif"])  # no percent of nothing


def test_without_the_baseline_there_is_no_test():
    summary = summarise(folds({"alignf": ERRORS["alignf"]}))
    assert summary["p_better_than_unif"].isna().all()
    assert verdicts(summary) == ["d: alignf has the lowest misclassification, 0.210 ± 0.066."]


def test_verdicts_say_who_wins_and_whether_it_is_significant():
    assert verdicts(summarise(folds())) == [
        "d: alignf has the lowest misclassification, 0.210 ± 0.066, significantly better than unif's 0.30 ± 0.10 "
        "(p = 0.04; plain p = 0.02)."
    ]
    assert verdicts(summarise(folds({"unif": [0.1, 0.1, 0.1], "align": [0.2, 0.1, 0.2]})))[0].endswith(
        "no learner beats the uniform combination."
    )


def test_a_baseline_below_all_learners_makes_none_of_them_the_lowest():
    below = folds(ERRORS | {"svc": [0.1, 0.1, 0.1]})
    below.loc[below["learner"] == "svc", "algorithm"] = GRID_SEARCH
    (said,) = verdicts(summarise(below))
    assert said.startswith("d: of the learners, alignf has the lowest misclassification, 0.210 ± 0.066, ")
    assert "One tuned Gaussian kernel (svc) has 0.1000" in said


def test_what_the_plain_test_alone_calls_significant_is_not():
    table = folds({"unif": [0.30, 0.20, 0.40], "alignf": [0.20, 0.19, 0.30]})
    (row,) = [row for row in summarise(table).itertuples() if row.learner == "alignf"]
    assert row.plain_p_better_than_unif < SIGNIFICANCE < row.p_better_than_unif
    assert "not significantly better than unif's" in verdicts(summarise(table))[0]


def test_the_table_shows_as_many_digits_as_the_deviation_allows():
    table = display_table(summarise(folds({"unif": [54.1, 50.2, 58.9], "align": [0.1, 0.1, 0.1]})))
    assert [row["test error"] for row in table] == ["54.4 ± 4.4", "0.1000 ± 0.0000"]
    assert table[0]["p vs unif"] == ""


def test_measures_name_the_error_of_each_data_set():
    both = pd.concat([folds(), folds(dataset="e").assign(metric="rmse")])
    assert describe_measures(summarise(both)) == "misclassified share (d); root mean squared error (e)"


def config(**protocol: object) -> CompareConfig:
    return CompareConfig.model_validate(
        {
            "name": "small",
            "datasets": [{"source": "sklearn", "name": "wine", "scale": "standard"}],
            "kernels": [{"family": "linear"}],
            "learners": ["unif", "alignf"],
            "protocol": protocol,
        }
    )


SPLIT = {"train": 40, "validation": 30, "test": 50}


def as_repeats(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(repeat=table["fold"], fold=0)


def test_a_report_says_what_its_means_are_over():
    table = folds()
    of_folds = markdown_report(config(folds=3, repeats=2), table, summarise(table), {})
    assert "over 3 folds x 2 repeats (seed 0); in each trial one fold tests" in of_folds
    assert "in 3 of 9 folds: widen" in of_folds
    of_split = markdown_report(config(split=SPLIT, repeats=3), as_repeats(table), summarise(as_repeats(table)), {})
    assert "over 3 repeats (seed 0); each draws 40 rows to train, 30 to choose Lambda and 50 to test" in of_split
    assert "over repeats, corrected for rows that these share; it decides at 0.1. Plain p: the papers'" in of_split
    assert "in 3 of 9 repeats: widen" in of_split
    assert "fold" not in of_split.replace("folds.parquet", "")
    assert (
        summarise(as_repeats(table))["p_better_than_unif"].tolist() == summarise(table)["p_better_than_unif"].tolist()
    )


def test_one_trial_has_a_mean_and_no_deviation_and_no_test():
    once = as_repeats(folds({"unif": [0.3], "alignf": [0.2]}))
    summary = summarise(once)
    assert verdicts(summary) == [
        "d: alignf has the lowest misclassification, 0.2000, against unif's 0.3000; no test without pairs of at least "
        "two trials."
    ]
    report = markdown_report(config(split=SPLIT), once, summary, {})
    assert "Of 1 draw (seed 0); each draws 40 rows" in report
    assert "| d | alignf * | 0.2000 | 0.500 |" in report
    assert "nan" not in report.lower()


def test_the_baseline_has_the_name_that_the_run_gave_it():
    table = folds()
    table.loc[table["learner"] == "unif", "learner"] = "DU"
    assert "significantly better than DU's 0.30 ± 0.10" in verdicts(summarise(table))[0]


def test_a_learner_has_its_own_colour_in_every_run():
    small, large = {"alignf": "alignf"}, {name: name for name in LEARNERS}
    assert learner_colors(small)["alignf"] == learner_colors(large)["alignf"]
    assert len(set(learner_colors(large).values())) == len(LEARNERS)
    twice = learner_colors({"lq": "lq", "steep": "lq", "unif": "unif", "flat": "lq"})
    assert len(set(twice.values())) == 4
    assert twice["lq"] == learner_colors(large)["lq"]
    assert twice["unif"] == learner_colors(large)["unif"]


def test_more_learners_than_colours_still_have_one_each_time():
    many = learner_colors({f"lq {i}": "lq" for i in range(40)})
    assert len(many) == 40
    assert len(set(many.values())) == 26


@pytest.mark.parametrize(("datasets", "rows", "columns"), [(1, 1, 1), (2, 1, 2), (3, 1, 3), (7, 3, 3)])
def test_figures_put_a_few_data_sets_side_by_side(datasets: int, rows: int, columns: int):
    table = pd.concat([folds(dataset=f"d{i}") for i in range(datasets)])
    figure = alignment_figure(table, summarise(table))
    titles = [axis.get_title() for axis in figure.axes]
    assert [title.splitlines()[0] for title in titles if title] == [f"d{i}" for i in range(datasets)]
    grid = figure.axes[0].get_subplotspec().get_gridspec()
    assert (grid.nrows, grid.ncols) == (rows, columns)


def test_the_first_figure_names_who_wins_each_data_set():
    turned = folds({"unif": ERRORS["alignf"], "alignf": ERRORS["unif"]}, dataset="b $x$")
    table = pd.concat([folds(dataset="a"), turned])
    summary = summarise(table)
    figure = alignment_figure(table, summary)
    for axis, (dataset, group) in zip(figure.axes, summary.groupby("dataset"), strict=True):
        best = group.loc[group["error_mean"].idxmin()]
        assert axis.get_title() == f"{dataset}\nlowest error: {best.learner}"
        (ring,) = [one for one in axis.collections if one.get_sizes().tolist() == [360]]
        np.testing.assert_allclose(ring.get_offsets(), [[best.alignment_mean, best.error_mean]])
    assert len({axis.get_title().splitlines()[1] for axis in figure.axes}) == 2
    figure.savefig(BytesIO())  # no name is taken for a formula


def test_alignments_on_the_way_to_base_kernels_are_a_figure_of_those_that_tell():
    table = folds({name: ERRORS[name] for name in ("unif", "alignf")})
    assert history_figure(table, {}) is None
    history = [
        np.array([0.1, 0.3, 0.4][: 2 + i % 2]) if learner == "alignf" else None
        for i, learner in enumerate(table["learner"])
    ]
    table = table.assign(history=history)
    (axis,) = history_figure(table, {"alignf": "red"}).axes
    (line,) = axis.lines
    np.testing.assert_allclose(line.get_ydata(), [0.1, 0.3, 0.4])
    np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3])


def test_a_report_shows_a_figure_only_where_it_has_an_address():
    table = folds()
    links = {"results": "results/small/1", "MLflow chart": "http://127.0.0.1:5000/#/x"}
    plain = markdown_report(config(), table, summarise(table), links)
    assert "![" not in plain
    assert "- results: `results/small/1`" in plain
    assert "- [MLflow chart](http://127.0.0.1:5000/#/x)" in plain
    assert "![alignment against error](data:image/png" in markdown_report(
        config(), table, summarise(table), links, "data:image/png;base64,AA"
    )


def of_a_sample(**columns: object) -> pd.DataFrame:
    """Three trials of two learners, measured on 900 of 6,000 training rows."""
    table = folds({name: ERRORS[name] for name in ("unif", "alignf")}).assign(
        n_train=6000, n_sampled=900, confidence=0.95, alignment_error=[0.010, 0.012, 0.014] * 2, alignment_bound=2.5,
    )  # fmt: skip
    table["weights_error"] = [np.array([1e-16, 0.07])] * len(table)
    return table.assign(**columns)


def test_a_sample_has_its_error_beside_the_deviation_over_folds():
    summary = summarise(of_a_sample())
    (row, _) = display_table(summary)
    assert (row["alignment"], row["sampling error"]) == ("0.600 ± 0.100", "± 0.012 (95 %, 900 of 6,000 rows)")
    report = markdown_report(config(), of_a_sample(), summary, {})
    assert "| d | unif | 900 of 6,000 | 0.600 | ± 0.012 | 95 % | ± 0.050 | ± 2.5 |" in report
    assert "| k1 | 0.429 ± 0.000 | 0.429 ± 0.000 |\n| k2 | 0.571 ± 0.050 | 0.571 ± 0.050 |" in report
    exact = summarise(folds())
    assert "sampling error" not in display_table(exact)[0]
    assert "sample" not in markdown_report(config(), folds(), exact, {}).lower()


def test_what_a_sample_cannot_tell_is_said_and_not_a_number():
    unknown = of_a_sample(alignment_error=np.inf)
    assert display_table(summarise(unknown))[0]["sampling error"] == "± unknown (95 %, 900 of 6,000 rows)"
    none = of_a_sample(alignment_error=np.nan, alignment_bound=np.nan, weights_error=None)
    summary = summarise(none)
    assert display_table(summary)[0]["sampling error"] == "900 of 6,000 rows"
    report = markdown_report(config(), none, summary, {})
    assert "| d | unif | 900 of 6,000 | 0.600 |  | 95 % |  |  |" in report
    assert "nan" not in report.lower()
    assert shares_figure(none, summary) is None


def test_figures_show_the_intervals_of_a_sample():
    table, exact = of_a_sample(), folds()
    (axis,) = alignment_figure(table, summarise(table)).axes
    (plain,) = alignment_figure(exact, summarise(exact)).axes
    assert len(axis.containers) == 4  # of two learners the trials, and the mean
    assert len(plain.containers) == 0
    (axis,) = shares_figure(table, summarise(table)).axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["k1", "k2"]
    assert shares_figure(exact, summarise(exact)) is None


def test_predictors_say_why_they_were_taken_and_how_they_ended():
    notes = [["50 landmarks", "conjugate gradients: 9 steps"]] * 9
    table = folds().assign(notes=notes, predictor="nystrom", predictor_reason="nystrom: too many rows")
    report = markdown_report(config(), table, summarise(table), {})
    assert "- d, unif: nystrom: too many rows. 50 landmarks. Conjugate gradients: 9 steps." in report
    assert "## Predictors" not in markdown_report(config(), folds(), summarise(folds()), {})


def unpacked(tag: tuple[str, str]) -> dict[str, Any]:
    packed = json.loads(tag[1])["state"].removeprefix("deflate;")
    return json.loads(zlib.decompress(base64.b64decode(packed)))


@pytest.mark.parametrize("view", [NEWEST, HISTORY, MODELS], ids=lambda view: view.key)
def test_a_saved_view_is_what_mlflow_can_keep_and_filter_by(view: View, working_folder: Path):
    key, value = view_tag(view, "20261121-133018-6a18")
    assert len(value) < 5_000  # MLflow's limit of an experiment tag
    assert key == f"mlflow.sharedViewState.{view.key}"
    assert f"viewStateShareKey={view.key}&" in view_path("1", view)
    client = MlflowClient(f"sqlite:///{working_folder / 'mlflow.db'}")
    experiment = client.create_experiment("x")
    mine, level = {"learnkernels.run": "20261121-133018-6a18"}, "learnkernels.level"
    shown = client.create_run(experiment, tags={level: view.level} | mine).info.run_id
    older = client.create_run(experiment, tags={level: view.level, "learnkernels.run": "older"}).info.run_id
    client.create_run(experiment, tags={level: "sweep"} | mine)
    found = client.search_runs([experiment], unpacked((key, value))["searchFilter"])
    assert [run.info.run_id for run in found] == [shown]
    every = client.search_runs([experiment], unpacked(view_tag(view))["searchFilter"])
    assert {run.info.run_id for run in every} == {shown, older}


def test_notes_stay_below_what_mlflow_keeps():
    verdict = "d: alignf has the lowest misclassification, 0.210 ± 0.066, " + "significantly better " * 20
    note = sweep_note("1", "abc", [verdict] * 500, ["report.md", "folds.parquet"], "http://127.0.0.1:4200/run")
    assert len(note) <= NOTE_CHARACTERS
    assert "report.md](#/experiments/1/runs/abc/artifacts/report.md" in note
    assert "folds.parquet" not in note
    report = "\n".join(f"line {i} of a long report" for i in range(2_000))
    cut = run_note(report, {"chart": "#/x"})
    assert len(cut) <= NOTE_CHARACTERS
    assert cut.startswith("[chart](#/x)\n\nline 0 ")
    assert cut.endswith("of a long report\n\n... the whole report is among the artifacts.")
    assert run_note("short", {"chart": "#/x"}) == "[chart](#/x)\n\nshort"
    assert len(experiment_note("123456789")) <= NOTE_CHARACTERS


def test_every_metric_that_a_note_names_is_one_that_runs_have():
    named = set(re.findall(r"`([a-z_]+)`", experiment_note("1")))
    columns = {column.removeprefix("metrics.") for column in NEWEST.columns if column.startswith("metrics.")}
    assert columns - {"test_error_sd"} <= named


def test_a_bar_or_a_line_break_in_a_cell_parts_no_table():
    rows = [{"learner": "a|b", "says": "one\ntwo"}, {"learner": "c"}]
    assert markdown_table(rows)[2:] == [r"| a\|b | one<br>two |", "| c |  |"]


def test_features_that_count_are_in_table_and_figure():
    table = folds({"rfm": [0.2, 0.3], "unif": [0.2, 0.3]})
    told = {"rfm": [[0.7, 0.1, 0.2], [0.5, 0.1, 0.4]]}
    table["relevance"] = [told["rfm"][row.fold] if row.learner == "rfm" else None for row in table.itertuples()]
    table["features"] = [["a", "b", "price in $"] if row.learner == "rfm" else None for row in table.itertuples()]
    assert parts_table(table, RELEVANCE, "feature") == [
        {"dataset": "d", "feature": "a", "rfm": "0.60 ± 0.14"},
        {"dataset": "d", "feature": "price in $", "rfm": "0.30 ± 0.14"},
        {"dataset": "d", "feature": "b", "rfm": "0.1000 ± 0.0000"},
    ]
    (axis,) = parts_figure(table, {"rfm": "#000000"}, RELEVANCE, "share").axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["a", "price in $", "b"]
    report = markdown_report(config(), table, summarise(table), {})
    assert "## How much features count" in report
    assert "over folds" in report.partition("## How much features count")[2]
    table["relevance"] = None
    assert parts_table(table, RELEVANCE, "feature") == []
    assert parts_figure(table, {}, RELEVANCE, "share") is None


def test_a_view_that_a_trial_leaves_out_has_nothing_there():
    table = folds({"rfm": [0.2, 0.3], "unif": [0.2, 0.3]})
    told = [{"all features": 0.5, "numbers": 0.3, "categories": 0.2}, {"all features": 1.0}]
    of_rfm = [told[row.fold] if row.learner == "rfm" else None for row in table.itertuples()]
    table["view_shares"] = [None if of is None else list(of.values()) for of in of_rfm]
    table["views"] = [None if of is None else list(of) for of in of_rfm]
    assert parts_table(table, VIEW_SHARES, "view") == [
        {"dataset": "d", "view": "all features", "rfm": "0.75 ± 0.35"},
        {"dataset": "d", "view": "numbers", "rfm": "0.15 ± 0.21"},
        {"dataset": "d", "view": "categories", "rfm": "0.10 ± 0.14"},
    ]
    summary = summarise(table)
    report = markdown_report(config(), table, summary, {})
    assert "## What views have of the kernel" in report
    of_rfm, rows = (
        summary["learner"] == "rfm",
        table[table["learner"] == "rfm"].assign(regularisation=1.0, parameters=None),
    )
    logged = {one.key: one.value for one in _metrics(next(summary[of_rfm].itertuples()), rows, 2)}
    assert {key: value for key, value in logged.items() if key.startswith("view/")} == {
        "view/all features": 0.75,
        "view/numbers": 0.15,
        "view/categories": 0.1,
    }
    (axis,) = parts_figure(table, {"rfm": "#000000"}, VIEW_SHARES, "share").axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["all features", "numbers", "categories"]
