"""Summaries and reports, against numbers worked out by hand."""

import base64
import json
import re
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure
from scipy import stats

from learnkernels.conf.schema import CompareConfig
from learnkernels.kernels.learners import LEARNERS
from learnkernels.tasks.measure.run_learner import COLUMNS, INTEGER
from learnkernels.tasks.measure.t_tests import SIGNIFICANCE
from learnkernels.tasks.reporting import figures
from learnkernels.tasks.reporting.markdown import render
from learnkernels.tasks.reporting.mlflow_pages import (
    NOTE_CHARACTERS,
    TAG_CHARACTERS,
    comparison_note,
    comparison_view,
    cut,
    experiment_note,
    metric_name,
    metric_of_dataset,
    weight_metrics,
)
from learnkernels.tasks.reporting.report import (
    _rank_values,
    report_values,
    verdicts,
)
from learnkernels.tasks.reporting.report import measures as describe_measures
from learnkernels.tasks.reporting.tables import (
    STORED,
    RunTables,
    display_table,
    mean_and_sd,
    mean_history,
    ranks,
    relevance_table,
    stored_line,
    summarize,
)
from learnkernels.tasks.reporting.tracking import _metrics_of_result

ERRORS = {
    "unif": [0.30, 0.20, 0.40],
    "alignf": [0.20, 0.15, 0.28],
    "single": [0.30, 0.20, 0.40],
}


BLANK = {
    of.name: np.nan if pa.types.is_floating(of.type) or of.type == INTEGER else None
    for of in COLUMNS
}


def trial(**keys: object) -> dict[str, object]:
    """Return a row of a fold table: one trial of a learner of two kernels."""
    return BLANK | {
        "dataset": "d", "task": "classification", "learner": "unif", "algorithm": "unif", "predictor": "svm",
        "repeat": 0, "fold": 0, STORED: None, "alignment": 0.5, "test_alignment": 0.4, "error": 0.3,
        "metric": "misclassification", "seconds_weights": 0.1, "seconds_fit": 0.2, "n_train": 6, "n_test": 3,
        "n_rows": 15, "n_kernels": 2, "weights": np.array([0.6, 0.8]), "trivial_error": 0.5, "grid_edge": False,
        "kernels": ["k1", "k2"],
    } | keys  # fmt: skip


def folds(errors: dict[str, list[float]] = ERRORS, dataset: str = "d") -> pd.DataFrame:
    return pd.DataFrame(
        trial(dataset=dataset, learner=learner, algorithm=learner, fold=fold, error=error, alignment=0.5 + 0.1 * fold,
              grid_edge=fold == 0)
        for learner, values in errors.items()
        for fold, error in enumerate(values)
    )  # fmt: skip


def report_of(
    table: pd.DataFrame,
    links: object = None,
    figures: object = None,
    *,
    baseline: object = None,
    **protocol: object,
) -> str:
    keys = {
        "name": "small",
        "datasets": "wine",
        "kernels": "linear",
        "learners": ["unif", "alignf"],
    }
    config = CompareConfig.model_validate(
        keys | {"baseline": baseline, "protocol": protocol}
    )
    return rendered(config, table, links, figures)


def rendered(
    config: CompareConfig, table: pd.DataFrame, links: Any = None, figures: Any = None
) -> str:
    """Return the report of the trials of a run."""
    values = report_values(config, RunTables.of(table), links or {})
    return render("comparison.md", figures=figures or {}, predictions={}, **values)


def labels(figure: Figure, axis: str = "y") -> list[str]:
    """Return the names along the only axis of a figure."""
    (only,) = figure.axes
    return [label.get_text() for label in getattr(only, f"get_{axis}ticklabels")()]


def test_a_summary_is_mean_and_deviation_over_folds_with_the_corrected_and_the_plain_test():
    rows = summarize(folds()).set_index("learner")
    row = rows.loc["alignf"]
    assert row.error_mean == pytest.approx(0.21)
    assert row.error_sd == pytest.approx(np.std([0.20, 0.15, 0.28], ddof=1))
    assert row.relative_error == pytest.approx(0.42)
    assert row.alignment_mean == pytest.approx(0.6)
    assert row.seconds_fit == pytest.approx(0.6)
    assert row.weights == pytest.approx([0.6 / 1.4, 0.8 / 1.4])
    # By hand: the differences are -.10, -.05, -.12.
    difference = np.array([-0.10, -0.05, -0.12])
    plain, corrected = (
        difference.mean() / np.sqrt((1 / 3 + share) * difference.var(ddof=1))
        for share in (0, 3 / 12)
    )
    assert row.plain_p_better_than_unif == pytest.approx(stats.t.cdf(plain, df=2))
    assert row.p_better_than_unif == pytest.approx(stats.t.cdf(corrected, df=2))
    assert row.grid_edge == 1
    assert rows.loc["single", "p_better_than_unif"] == 1.0  # equal errors
    assert rows["best"].to_dict() == {"unif": False, "alignf": True, "single": False}


def test_a_mean_of_rising_histories_rises():
    histories = [[0.5, 0.6], [0.2, 0.25, 0.26], None]
    means = mean_history(pd.DataFrame({"history": histories}))
    assert means == pytest.approx([0.35, 0.425, 0.43])


@pytest.mark.parametrize(
    ("mean", "sd", "text"),
    [
        (0.21, np.nan, "0.2100"),
        (3.2e-6, np.nan, "3.2e-06"),
        (8.1e-6, 0.0, "8.1e-06 ± 0.0000"),
        (0.0, np.nan, "0.0000"),
        (12345678.9, np.nan, "1.235e+07"),
        (0.21, 0.02, "0.210 ± 0.020"),
    ],
)
def test_means_of_any_size_have_digits(mean: float, sd: float, text: str):
    assert mean_and_sd(mean, sd) == text


def test_large_differences_are_whole_percents():
    errors = {"unif": [0.2, 0.22, 0.21], "alignf": [0.0, 0.0, 0.0]}
    assert "(-100 %, p" in report_of(folds(errors))


def test_ranks_that_are_all_tied_have_a_p_value():
    equal = [0.1, 0.1, 0.1]
    errors = {"unif": equal, "alignf": equal, "single": equal}
    both = pd.concat([folds(errors), folds(errors, "other")])
    assert _rank_values(ranks(both))["friedman"] == "= 1.00"


def test_seconds_of_results_from_the_store_say_since_when():
    table = folds().assign(stored=None)
    assert stored_line(summarize(table)) == ""
    table.loc[table["learner"] == "alignf", "stored"] = "2026-05-01 17:30"
    summary = summarize(table)
    seconds = {
        row["method"].removesuffix(" *"): row["seconds"]
        for row in display_table(summary)
    }
    assert seconds == {"unif": "0.90", "alignf": "0.90 †", "single": "0.90"}
    assert (
        stored_line(summary)
        == "† from the store: computed, and its seconds measured, 2026-05-01 17:30"
    )
    table.loc[table["learner"] == "unif", "stored"] = "2026-05-02 09:00"
    assert stored_line(summarize(table)).endswith(
        "between 2026-05-01 17:30 and 2026-05-02 09:00"
    )


def test_a_result_is_told_beside_the_best_of_its_own_data_set():
    easy, hard = folds(), folds({"unif": [0.5], "alignf": [0.4]}, "hard")
    hard["alignment"] = [0.1, 0.2]
    summary = summarize(pd.concat([easy, hard.assign(metric="rmse")]))
    assert (
        describe_measures(summary)
        == "misclassification rate (d); root mean squared error (hard)"
    )
    rows = summary.set_index(["dataset", "learner"])
    assert rows["percent_above_best"]["hard"].to_dict() == {
        "unif": pytest.approx(25.0),
        "alignf": 0.0,
    }
    assert rows["alignment_over_best"]["hard"].to_dict() == {"unif": 0.5, "alignf": 1.0}
    assert rows["percent_above_best"]["d"]["alignf"] == 0.0
    perfect = summarize(folds({"unif": [0.1], "alignf": [0.0]})).set_index("learner")[
        "percent_above_best"
    ]
    assert perfect["alignf"] == 0.0
    assert np.isnan(perfect["unif"])  # no percent of nothing


def test_verdicts_compare_the_best_two_and_say_whether_to_use_the_learned_kernel():
    lowest = "d: alignf has the lowest misclassification rate, 0.210 ± 0.066"
    python = "; in Python: KernelLearningClassifier(learner='alignf')."
    tested = f"(-30 %, p = 0.08){python}"
    assert verdicts(summarize(folds())) == [
        f"{lowest}, significantly lower than that of unif, 0.30 ± 0.10 (-30 %, p = 0.08).",
        f"d: use the learned kernel? Yes: alignf is significantly better than unif {tested}",
    ]
    named = verdicts(
        summarize(
            folds().assign(learner=lambda table: table["learner"].replace("unif", "DU"))
        )
    )
    assert named[1].endswith(f"better than DU {tested}")
    alone = summarize(folds({"alignf": ERRORS["alignf"]}))
    assert alone["p_better_than_unif"].isna().all()
    unknown = (
        "d: use the learned kernel? Unknown: no baseline took part; add 'baseline: {}'."
    )
    assert verdicts(alone) == [f"{lowest}.", unknown]
    # No kernel is learned
    assert len(verdicts(summarize(folds({"unif": [0.1, 0.2]})))) == 1
    # What the uncorrected test alone calls significant is not.
    summary = summarize(
        folds({"unif": [0.30, 0.20, 0.40], "alignf": [0.20, 0.19, 0.30]})
    )
    row = summary.set_index("learner").loc["alignf"]
    assert row.plain_p_better_than_unif < SIGNIFICANCE < row.p_better_than_unif
    won, use = verdicts(summary)
    assert "not significantly lower than that of unif" in won
    assert won.endswith("; 2 methods tie, of which unif is the simplest.")
    assert "kernel? Optional: alignf is not significantly better than unif (" in use


def test_the_verdict_is_about_the_default_estimator_and_names_a_better_learner():
    table = folds(
        {
            "unif": [0.40, 0.41, 0.43],
            "rfm": [0.30, 0.32, 0.31],
            "alignf": [0.25, 0.24, 0.26],
        }
    )
    _, use = verdicts(summarize(table))
    assert use.startswith(
        "d: use the learned kernel? Yes: rfm is significantly better than unif (-25 %, p "
    )
    better = "KernelLearningClassifier(learner='alignf') has 0.250 ± 0.010 (-19 %, p = 0.05)."
    assert use.endswith(f"; in Python: KernelLearningClassifier(); {better}")
    _, use = verdicts(
        summarize(table.assign(task="regression")[table["learner"] != "alignf"])
    )
    assert use.endswith("; in Python: KernelLearningRegressor().")


def test_a_verdict_quotes_python_code_only_for_learners_without_parameters():
    errors = {"unif": [0.40, 0.41, 0.43], "rfm": [0.30, 0.32, 0.31]}
    table = folds(errors | {"ca": [0.25, 0.24, 0.26]}).assign(params="{}")
    table.loc[table["learner"] == "ca", "params"] = '{"per_feature": true}'
    _, use = verdicts(summarize(table))
    assert "; in Python: KernelLearningClassifier(); ca has 0.250" in use
    table["params"] = ['{"rounds": 1}', *table["params"][1:]]
    table.loc[table["learner"] == "rfm", "params"] = '{"rounds": 1}'
    _, use = verdicts(summarize(table[table["learner"] != "ca"]))
    assert use.endswith("; as a model: learnkernels train.")


def test_names_that_differ_only_in_special_characters_are_different_metrics():
    table = folds({"unif": [0.3, 0.2]})
    table["features"] = [["größe", "grüße"]] * 2
    table["relevance"] = [[0.7, 0.3]] * 2
    row = next(summarize(table).itertuples())
    metrics = _metrics_of_result(row, table, 3)
    shares = {m.key: m.value for m in metrics if m.key.startswith("relevance/")}
    assert sorted(shares.values()) == [0.3, 0.7]
    # A learner that ranks the features in another order has the same names.
    other = _metrics_of_result(row, table.assign(relevance=[[0.3, 0.7]] * 2), 3)
    swapped = {m.key: m.value for m in other if m.key in shares}
    assert swapped == {key: pytest.approx(1 - value) for key, value in shares.items()}
    assert metric_of_dataset("sales €") != metric_of_dataset("sales $")
    assert metric_of_dataset("sales") == "test_error/sales"


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_verdict_is_about_the_row_of_the_default_estimator_if_there_is_one(
    task: str,
):
    errors = {
        "unif": [0.40, 0.41, 0.43],
        "rfm": [0.30, 0.32, 0.31],
        "estimator": [0.25, 0.24, 0.26],
    }

    def advice(**changes: list[float]) -> str:
        table = folds(errors | changes).assign(task=task)
        table["learner"] = table["learner"].replace("estimator", "default estimator")
        return verdicts(summarize(table))[1]

    call = (
        "KernelLearningClassifier"
        if task == "classification"
        else "KernelLearningRegressor"
    )
    better = advice()
    assert (
        "kernel? Yes: the default estimator is significantly better than unif (-40 %, p < 0.01)"
        in better
    )
    assert better.endswith(f"; in Python: {call}().")
    behind = advice(rfm=[0.20, 0.21, 0.19])
    assert "kernel? Yes: the default estimator is" in behind
    assert (
        f"; in Python: {call}(); {call}(learner='rfm') has 0.200 ± 0.010 (-20 %, p "
        in behind
    )
    worse = advice(boosting=[0.10, 0.11, 0.10])
    assert (
        "kernel? No: the default estimator is significantly worse than HistGradientBoosting ("
        in worse
    )
    assert worse.endswith("; use gradient boosting.")


def test_a_default_estimator_of_the_lowest_error_wins():
    table = among(estimator=[0.1, 0.1, 0.2]).replace(
        {"learner": {"estimator": "default estimator"}}
    )
    won, _ = verdicts(summarize(table))
    assert won.startswith(
        "d: the default estimator has the lowest misclassification rate, 0.133 ± 0.058, signif"
    )


def test_a_tie_with_the_constant_says_that_nothing_beats_it():
    won, _ = verdicts(
        summarize(among(constant=[0.19, 0.20, 0.29], linear=[0.2, 0.2, 0.29]))
    )
    assert won.endswith("; nothing beats the best constant.")
    won, _ = verdicts(
        summarize(among(constant=[0.5, 0.5, 0.5], linear=[0.21, 0.15, 0.28]))
    )
    assert won.endswith("; 2 methods tie, of which the linear model is the simplest.")


@pytest.mark.parametrize(
    ("n_rows", "said"), [(15, "d: "), (27_178, "d, on 9 of 27,178 rows: ")]
)
def test_a_verdict_on_a_sample_says_how_many_rows_train(n_rows: int, said: str):
    found = verdicts(summarize(folds().assign(n_rows=n_rows, n_train=9)))
    assert [sentence.startswith(said) for sentence in found] == [True, True]


def test_the_table_the_verdicts_and_the_pairwise_tests_say_one_p():
    table = among(constant=[0.5, 0.5, 0.6], boosting=[0.22, 0.16, 0.29])
    run = RunTables.of(table)
    shown = {
        row["method"].removesuffix(" *"): row["p"] for row in display_table(run.summary)
    }
    pairs = run.pairwise_texts["d"].loc["alignf"].to_dict()
    assert shown == pairs
    won, use = verdicts(run.summary)
    second = "HistGradientBoosting" if "HistGradientBoosting" in pairs else "boosting"
    assert f"p = {pairs[second]})" in won
    assert f"p = {pairs[second]})" in use


def among(**errors: list[float]) -> pd.DataFrame:
    """Three learners, and baselines by their names, with underscores."""
    return folds(ERRORS | {name.replace("_", "-"): of for name, of in errors.items()})


BASELINES = [
    ("constant", "the best constant", "look for features"),
    ("linear", "the linear model", "use RidgeCV or LogisticRegression"),
    ("grid_search", "GridSearchCV's tuned RBF kernel", "use SVC or KernelRidge"),
    ("boosting", "HistGradientBoosting", "use gradient boosting"),
]


@pytest.mark.parametrize(("name", "what", "instead"), BASELINES)
def test_a_baseline_of_the_lowest_error_wins_and_says_what_to_use_instead(
    name: str, what: str, instead: str
):
    won, use = verdicts(summarize(among(**{name: [0.1, 0.1, 0.2]})))
    assert won.startswith(
        f"d: {what} has the lowest misclassification rate, 0.133 ± 0.058, significantly lower than"
    )
    assert (
        f"kernel? No: alignf is significantly worse than {what} (+57 %, p = 0.06)"
        in use
    )
    assert f"; {instead}" in use
    won, use = verdicts(summarize(among(**{name: [0.2, 0.1, 0.28]})))
    assert f"kernel? Not needed: alignf is not better than {what} (" in use
    won, use = verdicts(summarize(among(**{name: ERRORS["alignf"]})))
    assert (
        f"d: alignf has the lowest misclassification rate, 0.210 ± 0.066, equal to that of {what}"
        in won
    )
    assert "(+0 %, p = 1.00); in Python:" in use


def test_verdicts_of_one_trial_are_the_same_from_a_file(tmp_path: Path):
    summary = summarize(folds({"unif": [0.3], "alignf": [0.2]}))
    summary.to_parquet(tmp_path / "summary.parquet")
    found = verdicts(pd.read_parquet(tmp_path / "summary.parquet"))
    assert found == verdicts(summary)
    assert found[0].endswith(
        "lower than that of unif, 0.3000 (-33 %, one trial, no test)."
    )


def test_each_method_is_tested_against_every_other():
    rows = summarize(among(constant=ERRORS["unif"], linear=ERRORS["unif"])).set_index(
        "learner"
    )
    of = rows.loc["alignf"]
    assert (
        of.p_better_than_constant
        == of.p_better_than_linear
        == of.p_better_than_unif
        < 0.05
    )
    absent = [
        "p_better_than_grid_search",
        "p_better_than_boosting",
        "p_better_than_estimator",
    ]
    assert rows[absent].isna().all(axis=None)
    p = of.p_better_than_unif
    np.testing.assert_allclose(of.p_each, [2 * p, 1.0, 2 * p, 2 * p, 2 * p])
    np.testing.assert_allclose(rows.loc["unif"].p_each, [1.0, 2 * p, 1.0, 1.0, 1.0])


def test_the_table_begins_with_the_best_and_has_no_empty_column():
    table = display_table(
        summarize(folds({"unif": [54.1, 50.2, 58.9], "align": [0.1, 0.1, 0.1]}))
    )
    assert [row["method"] for row in table] == ["align *", "unif"]
    assert [row["test error"] for row in table] == ["0.1000 ± 0.0000", "54.4 ± 4.4"]
    assert [row["p"] for row in table] == ["", "< 0.01"]
    (row,) = display_table(
        summarize(folds({"unif": [0.1, 0.2]}).assign(alignment=np.nan))
    )
    assert [*row] == ["dataset", "method", "test error", "seconds"]


SPLIT = {"train": 40, "validation": 30, "test": 50}


def as_repeats(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(repeat=table["fold"], fold=0)


def test_a_report_says_what_its_means_are_over():
    table, repeats = folds(), as_repeats(folds())
    of_folds = report_of(table, folds=3, repeats=2)
    assert (
        "over 3 folds x 2 repeats (seed 0). In each trial, one fold is for testing"
        in of_folds
    )
    assert "in 3 of 9 folds: extend" in of_folds
    assert "## Predictors" not in of_folds
    of_split = report_of(repeats, split=SPLIT, repeats=3)
    assert (
        "over 3 repeats (seed 0). Each repeat draws 40 training rows, 30 validation rows that select C"
        in of_split
    )
    assert "corrected p (Nadeau-Bengio)" in of_split
    assert "in 3 of 9 repeats: extend" in of_split
    assert "fold" not in of_split.replace("folds.parquet", "")
    assert (
        summarize(repeats)["p_better_than_unif"].tolist()
        == summarize(table)["p_better_than_unif"].tolist()
    )


def test_one_trial_has_a_mean_and_no_deviation_and_no_test():
    once = as_repeats(folds({"unif": [0.3], "alignf": [0.2]}))
    assert verdicts(summarize(once)) == [
        "d: alignf has the lowest misclassification rate, 0.2000, lower than that of unif, 0.3000 (-33 %, one "
        "trial, no test).",
        "d: use the learned kernel? Optional: alignf is not significantly better than unif (-33 %, one trial, no "
        "test); in Python: KernelLearningClassifier(learner='alignf').",
    ]
    report = report_of(once, split=SPLIT)
    assert "One draw (seed 0). Each repeat draws 40 training rows" in report
    assert "| d | alignf * | 0.2000 | 0.500 |" in report
    assert "corrected p" not in report
    assert "nan" not in report.lower()


def test_a_report_has_links_predictors_and_a_figure_where_it_has_an_address():
    notes = [["50 landmarks", "conjugate gradients: 9 steps"]] * 9
    table = folds().assign(
        notes=notes, predictor="nystroem", predictor_reason="nystroem: too many rows"
    )
    links = {"results": "results/small/1", "MLflow chart": "http://127.0.0.1:5000/#/x"}
    report = report_of(table, links)
    assert (
        "- d, unif: nystroem: too many rows. 50 landmarks. Conjugate gradients: 9 steps."
        in report
    )
    assert "![" not in report
    assert "- results: `results/small/1`" in report
    assert "- [MLflow chart](http://127.0.0.1:5000/#/x)" in report
    address = "data:image/png;base64,AA"
    shown = {
        "errors of all methods": address,
        "alignment against error": "alignment_vs_error.png",
    }
    first, second = re.findall(r"!\[.*\)", report_of(table, links, shown))
    assert first == f"![errors of all methods]({address})"
    assert second == "![alignment against error](alignment_vs_error.png)"


def test_a_learner_has_its_own_color_in_every_run():
    large, many = (
        {name: name for name in LEARNERS},
        {f"lq {i}": "lq" for i in range(40)},
    )
    own = figures.learner_colors(large)
    assert len(set(own.values())) == len(LEARNERS)
    assert figures.learner_colors({"alignf": "alignf"}) == {"alignf": own["alignf"]}
    twice = figures.learner_colors(
        {"lq": "lq", "steep": "lq", "unif": "unif", "flat": "lq"}
    )
    assert len(set(twice.values())) == 4
    assert (twice["lq"], twice["unif"]) == (own["lq"], own["unif"])
    assert (
        len(figures.learner_colors(many)),
        len(set(figures.learner_colors(many).values())),
    ) == (40, 26)


def panel_marks(axis: Any, size: float) -> np.ndarray:
    """Return the positions of the marks of a panel of one size."""
    marks = [
        of
        for of in axis.collections
        if isinstance(of, PathCollection) and of.get_sizes().tolist() == [size]
    ]
    return np.concatenate([of.get_offsets() for of in marks])


METHODS = {
    "alignf": [0.20, 0.15, 0.28], "unif": [0.30, 0.20, 0.40], "GridSearchCV": [0.25, 0.18, 0.30],
    "best constant": [0.5, 0.45, 0.55],
}  # fmt: skip


def with_baselines(
    dataset: str = "d", methods: dict[str, list[float]] = METHODS
) -> pd.DataFrame:
    """Return trials of two learners, and of two baselines, which have no alignment."""
    table = folds(methods, dataset).replace(
        {"algorithm": {"GridSearchCV": "grid-search", "best constant": "constant"}}
    )
    table["alignment"] += np.where(table["learner"] == "unif", 0.2, 0.0)
    table.loc[table["algorithm"].isin(["grid-search", "constant"]), "alignment"] = (
        np.nan
    )
    return table.assign(trivial_error=np.tile(METHODS["best constant"], len(methods)))


@pytest.mark.parametrize("learners", [2, 15])
def test_errors_of_all_methods_are_sorted_with_every_trial_the_means_and_the_constant(
    learners: int,
):
    drawn = np.random.default_rng(0).uniform(0.1, 0.4, (learners, 3))
    many = {f"learner {k}": errors.tolist() for k, errors in enumerate(drawn)} | METHODS
    table = pd.concat([with_baselines("b $x$"), with_baselines("many", many)])
    summary = summarize(table)
    figure = figures.errors_figure(table, summary)
    assert [axis.get_title() for axis in figure.axes] == ["b $x$", "many"]
    for axis, dataset in zip(figure.axes, ["b $x$", "many"], strict=True):
        methods = summary[
            (summary["dataset"] == dataset) & (summary["algorithm"] != "constant")
        ]
        ranked = methods.sort_values("error_mean", kind="stable")
        assert [label.get_text() for label in axis.get_yticklabels()] == ranked[
            "learner"
        ].to_list()
        assert axis.yaxis_inverted()
        means = [
            [row.error_mean, place] for place, row in enumerate(ranked.itertuples())
        ]
        np.testing.assert_array_equal(panel_marks(axis, figures.MEAN_SIZE), means)
        errors = table[table["dataset"] == dataset].set_index("learner")["error"]
        trials = [
            [error, place]
            for place, name in enumerate(ranked["learner"])
            for error in errors[name]
        ]
        np.testing.assert_array_equal(panel_marks(axis, figures.TRIAL_SIZE), trials)
        (line,) = axis.lines
        assert line.get_xdata() == pytest.approx([0.5, 0.5])
        assert axis.get_xlim()[0] < 0.5 < axis.get_xlim()[1]
    (legend,) = figure.legends
    named = [text.get_text() for text in legend.get_texts()]
    assert named == ["mean over trials", "one trial (fold or repeat)", "best constant"]
    figure.savefig(BytesIO())


@pytest.mark.parametrize("constant", [90.0, -90.0])
def test_a_constant_far_from_all_errors_is_in_the_label_of_the_axis(constant: float):
    table = folds().assign(trivial_error=constant)
    (axis,) = figures.errors_figure(table, summarize(table)).axes
    low, high = axis.get_xlim()
    assert -0.1 < low < 0.15
    assert 0.40 < high < 0.5
    side = "best constant: 90 →" if constant > 0 else "← best constant: -90"
    assert axis.get_xlabel() == f"test error (misclassification)\n{side}"


def test_harder_folds_are_no_trend_of_alignment_against_error():
    table = with_baselines()
    summary = summarize(table).set_index("learner")
    figure = figures.alignment_figure(table, summary.reset_index())
    (axis,) = figure.axes
    expected = summary.loc[["alignf", "unif"], ["alignment_mean", "error_mean"]]
    np.testing.assert_allclose(panel_marks(axis, figures.MEAN_SIZE), expected)
    alignf, unif = np.array(METHODS["alignf"]), np.array(METHODS["unif"])
    # By hand: the mean of a fold lies in the middle of two
    half = np.std((unif - alignf) / 2, ddof=1) / 3**0.5
    bars = [
        bar.get_segments()[0][:, 1]
        for bar in axis.collections
        if isinstance(bar, LineCollection)
    ]
    np.testing.assert_allclose(
        bars, [[mean - half, mean + half] for mean in expected["error_mean"]]
    )
    lines = [line.get_ydata()[0] for line in axis.lines if len(line.get_ydata()) == 2]
    assert {
        summary.loc["GridSearchCV", "error_mean"],
        summary.loc["best constant", "error_mean"],
    } <= {*lines}
    assert {text.get_text() for text in axis.texts} == {
        "GridSearchCV",
        "best constant 0.5 ↑",
    }
    named = {
        text.get_text() for legend in figure.legends for text in legend.get_texts()
    }
    assert {
        "mean over trials",
        "lowest mean error",
        "method without an alignment",
    } <= named
    figure.savefig(BytesIO())


@pytest.mark.parametrize(
    "table",
    [
        with_baselines().assign(alignment=np.nan),
        folds({"unif": [0.3]}),
        folds({"unif": [0.0, 0.0]}),
        folds().assign(trivial_error=np.nan),
        folds().assign(trivial_error=np.inf),
        with_baselines().assign(
            error=lambda table: table["error"].mask(table["learner"] == "unif")
        ),
        with_baselines().assign(
            error=lambda table: table["error"].mask(table["learner"] == "GridSearchCV")
        ),
    ],
    ids=[
        "no kernel",
        "one trial",
        "zeros",
        "no constant",
        "infinite",
        "no error",
        "no baseline",
    ],
)
def test_figures_of_unusual_results_are_drawn(table: pd.DataFrame):
    summary = summarize(table)
    for figure in (
        figures.errors_figure(table, summary),
        figures.alignment_figure(table, summary),
    ):
        figure.savefig(BytesIO())


def test_labels_of_lines_that_are_close_are_spread_apart():
    for positions in ([0.5, 0.5, 0.5, 0.51], [0.0, 1.0], [0.3], [], [1.0, 1.0, 1.0]):
        places = figures.spread_apart(positions, 0.1)
        assert np.all(np.diff(places) > 0.099)
        assert np.mean(places or [0.0]) == pytest.approx(np.mean(positions or [0.0]))


def test_alignment_against_error_has_a_panel_a_data_set_that_names_who_wins():
    for datasets, shape in {1: (1, 1), 2: (1, 2), 3: (1, 3), 7: (3, 3)}.items():
        table = pd.concat([folds(dataset=f"d{i}") for i in range(datasets)])
        figure = figures.alignment_figure(table, summarize(table))
        titles = [axis.get_title() for axis in figure.axes]
        assert [title.splitlines()[0] for title in titles if title] == [
            f"d{i}" for i in range(datasets)
        ]
        grid = figure.axes[0].get_subplotspec().get_gridspec()
        assert (grid.nrows, grid.ncols) == shape
    turned = folds(
        {"unif": ERRORS["alignf"], "alignf": ERRORS["unif"]}, dataset="b $x$"
    )
    table = pd.concat([folds(dataset="a"), turned])
    summary = summarize(table)
    figure = figures.alignment_figure(table, summary)
    for axis, (dataset, group) in zip(
        figure.axes, summary.groupby("dataset"), strict=True
    ):
        best = group.loc[group["error_mean"].idxmin()]
        assert axis.get_title() == f"{dataset}\nlowest error: {best.learner}"
        np.testing.assert_allclose(
            panel_marks(axis, 360), [[best.alignment_mean, best.error_mean]]
        )
    assert len({axis.get_title().splitlines()[1] for axis in figure.axes}) == 2
    figure.savefig(BytesIO())  # no name is taken for a formula


def test_mean_ranks_of_two_data_sets_are_drawn_with_room_for_names():
    named = folds(ERRORS | {"a learner with a long label": [0.25, 0.2, 0.3]})
    figure = figures.ranks_figure(ranks(pd.concat([named, named.assign(dataset="e")])))
    figure.savefig(BytesIO())  # a warning is an error


def test_alignments_on_the_way_to_base_kernels_are_a_figure_of_those_that_tell():
    table = folds({"unif": ERRORS["unif"], "alignf": ERRORS["alignf"]})
    assert figures.history_figure(table, {}) is None
    told = [np.array([0.1, 0.3]), np.array([0.1, 0.3, 0.4]), np.array([0.1, 0.3])]
    (axis,) = figures.history_figure(
        table.assign(history=[None] * 3 + told), {"alignf": "red"}
    ).axes
    (line,) = axis.lines
    np.testing.assert_allclose(line.get_ydata(), [0.1, 0.3, 1 / 3])
    np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3])


def test_a_sample_is_reported_next_to_the_alignment():
    table = folds({name: ERRORS[name] for name in ("unif", "alignf")}).assign(
        n_train=6000, n_sampled=900
    )
    (row, _) = display_table(summarize(table))
    assert (row["alignment"], row["weights from"]) == ("0.600", "900 of 6,000 rows")
    assert "are estimated on a sample of the training rows" in report_of(table)
    assert "weights from" not in display_table(summarize(folds()))[0]
    assert "sample" not in report_of(folds()).lower()


def test_notes_stay_below_what_mlflow_keeps_and_name_metrics_that_runs_have():
    verdict = (
        "d: alignf has the lowest misclassification, 0.210 ± 0.066, "
        + "significantly better " * 20
    )
    files = ["report.md", "folds.parquet"]
    note = comparison_note(
        "1", "abc", "20261121", [verdict] * 500, files, "http://127.0.0.1:4200/run"
    )
    assert len(note) <= NOTE_CHARACTERS
    assert "report.md](#/experiments/1/runs/abc/artifacts/report.md" in note
    assert "folds.parquet" not in note
    report = "\n".join(f"line {i} of a long report" for i in range(2_000))
    kept = cut(report)
    assert len(kept) <= NOTE_CHARACTERS
    assert kept.startswith("line 0 ")
    assert kept.endswith(
        "of a long report\n\n... the whole report is among the artifacts."
    )
    assert cut("short") == "short"
    assert len(experiment_note("123456789", "20261121-133018-6a18")) <= NOTE_CHARACTERS
    named = set(re.findall(r"`([a-z_]+)`", experiment_note("1")))
    assert {
        "percent_above_best",
        "alignment_over_best",
        "test_error",
        "relative_error",
        "alignment",
    } <= named


def test_a_note_links_the_newest_comparison_where_there_is_one():
    newest = "20261121-133018-6a18"
    with_newest, without = experiment_note("1", newest), experiment_note("1")
    assert ("Newest comparison" in with_newest, newest in with_newest) == (True, True)
    assert "Newest comparison" not in without


def test_features_that_count_are_in_table_figure_and_metrics():
    table = folds({"rfm": [0.2, 0.3], "unif": [0.2, 0.3]})
    table["relevance"] = [[0.7, 0.1, 0.2], [0.5, 0.1, 0.4], None, None]
    table["features"] = [["a", "b", "price in $"]] * 2 + [None] * 2
    assert relevance_table(table) == [
        {"dataset": "d", "feature": "a", "rfm": "0.60 ± 0.14"},
        {"dataset": "d", "feature": "price in $", "rfm": "0.30 ± 0.14"},
        {"dataset": "d", "feature": "b", "rfm": "0.1000 ± 0.0000"},
    ]
    assert labels(figures.relevance_figure(table, {"rfm": "#000000"})) == [
        "a",
        "price in $",
        "b",
    ]
    report = report_of(table)
    section = report.partition("## Feature relevance")[2]
    assert "test rows of the first trial" in section
    assert "Share" not in section.partition("\n## ")[0]
    rows = table[:2].assign(regularization=1.0, parameters=None)
    (summary,) = summarize(rows).itertuples()
    logged = {
        one.key: one.value
        for one in _metrics_of_result(summary, rows, 2)
        if one.key.startswith("relevance/")
    }
    assert logged == {
        "relevance/a": 0.6,
        "relevance/price in _": 0.3,
        "relevance/b": 0.1,
    }
    table["relevance"] = [[0.7, 0.1, -0.2], None, None, None]
    assert [row["rfm"] for row in relevance_table(table)] == [
        "0.7000",
        "0.1000",
        "-0.2000",
    ]
    assert figures.relevance_figure(table, {"rfm": "#000000"}) is not None
    table["relevance"] = None
    assert relevance_table(table) == []
    assert figures.relevance_figure(table, {}) is None


def test_every_name_of_a_column_is_one_of_a_metric():
    names = {"x (a,b)": "x _a_b_", "": "_", " . ": "_", "..": "_", "a.b": "a.b"}
    assert {text: metric_name(text) for text in names} == names


@pytest.mark.parametrize("count", [1, 2, 40, 400])
def test_a_saved_view_charts_as_many_data_sets_as_a_tag_holds(count: int):
    view = comparison_view(
        "20261121-133018-6a18",
        [f"a data set with the number {i * i}" for i in range(count)],
    )
    assert len(view.value) <= TAG_CHARACTERS
    kinds = [chart["type"] for chart in view.state["compareRunCharts"]]
    assert kinds.count("SCATTER") == kinds.count("BAR") >= min(count, 10)
    state = json.loads(view.value)["state"].removeprefix("deflate;")
    assert json.loads(zlib.decompress(base64.b64decode(state))) == view.state


def test_shares_of_kernels_are_metrics_of_their_own_whatever_the_names():
    names = ["gaussian(gamma=2^-9)", "gaussian(gamma=2^-8)"]
    assert list(weight_metrics(names, [0.25, 0.75]).values()) == [0.25, 0.75]
    same = weight_metrics(["a(b)", "a[b]", "x" * 300, "x" * 301], [0.1, 0.2, 0.3, 0.4])
    assert list(same.values()) == [0.1, 0.2, 0.3, 0.4]
