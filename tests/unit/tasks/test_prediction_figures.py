"""Figures of held-out predictions of unusual trials: many classes, one class, several columns, few rows, no file."""

from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from learnkernels.tasks.measure.held_out import HeldOutPredictions, read_predictions
from learnkernels.tasks.measure.run_learner import TABLE, FoldsRef, write_fold_table
from learnkernels.tasks.measure.trials import HELD_OUT
from learnkernels.tasks.reporting import prediction_figures as drawing
from learnkernels.tasks.reporting.tables import summarize
from tests.unit.tasks.test_report import folds as fold_table
from tests.unit.tasks.test_report import trial as trial_row


def stored(
    folder: Path, trials: list[HeldOutPredictions | None], n_test: int | None = None
) -> FoldsRef:
    """Return the stored results of a method with some predictions."""
    rows: list[dict[str, Any]] = []
    for fold, held_out in enumerate(trials):
        row = trial_row(
            fold=fold, n_rows=9999, n_test=n_test or (len(held_out) if held_out else 3)
        )
        row = {
            key: None if isinstance(value, float) and np.isnan(value) else value
            for key, value in row.items()
        }
        rows.append(row | {HELD_OUT: held_out})
    write_fold_table(folder / "results", rows, [], n_parallel=1)
    return FoldsRef("d", "unif", "unif", "svm", str(folder / "results"))


def labeled(
    measured: list[int], n_classes: int = 2, seed: int = 0, scored: bool = True
) -> HeldOutPredictions:
    """Return predictions and probabilities of classes, at random."""
    likely = np.random.default_rng(seed).dirichlet(np.ones(n_classes), len(measured))
    classes = tuple(f"$c_{k}$" for k in range(n_classes))
    rows, codes = np.arange(len(measured)), np.array(measured)
    scores = likely[:, 1] - 0.5 if n_classes == 2 else likely
    given = (scores, likely) if scored else (None, None)
    return HeldOutPredictions(
        "classification", classes, rows, codes, likely.argmax(axis=1), *given
    )


def numbers(n_rows: int, n_columns: int) -> HeldOutPredictions:
    Y = np.random.default_rng(0).normal(size=(2, n_rows, n_columns))
    return HeldOutPredictions("regression", (), np.arange(n_rows), *Y)


def broken(held_out: HeldOutPredictions) -> HeldOutPredictions:
    """Return predictions that are not finite."""
    if held_out.task == "regression":
        return replace(held_out, predicted=np.full_like(held_out.predicted, np.nan))
    nothing = np.full_like(held_out.probabilities, np.nan)
    return replace(held_out, probabilities=nothing, scores=nothing[:, 0])


CURVES = {"roc_curve", "precision_recall_curve", "calibration_curve"}
CASES = {
    "two classes": ([labeled([0, 1] * 20), labeled([1, 0] * 20)], CURVES),
    "a trial of one class": ([labeled([0, 1] * 20), labeled([1] * 9)], CURVES),
    "trials of one class": (
        [labeled([0] * 9), labeled([1] * 9)],
        {"calibration_curve"},
    ),
    "one class in all trials": ([labeled([0] * 9), labeled([0] * 9)], set()),
    "one row per trial": ([labeled([k % 2]) for k in range(30)], {"calibration_curve"}),
    "no scores": ([labeled([0, 1, 2] * 5, 3, scored=False)], set()),
    "scores in one trial": (
        [labeled([0, 1, 2] * 5, 3, scored=False), labeled([0, 1, 2] * 5, 3)],
        CURVES,
    ),
    "classes that never test": ([labeled([0, 1] * 9, 5)], CURVES),
    "scores that are not finite": ([broken(labeled([0, 1] * 9))], set()),
    "scores that are not finite in one trial": (
        [broken(labeled([0, 1] * 9)), labeled([0, 1] * 9)],
        CURVES,
    ),
    "many classes": ([labeled(list(range(60)) * 2, 60)], CURVES),
}


@pytest.mark.parametrize("case", CASES)
def test_unusual_trials_of_classes_have_the_figures_that_are_defined(
    case: str, tmp_path: Path
):
    trials, expected = CASES[case]
    drawn = drawing.prediction_figures(stored(tmp_path, trials))
    assert set(drawn) == {"confusion_matrix"} | expected
    for figure in drawn.values():
        figure.savefig(BytesIO())


def test_curves_are_of_the_most_frequent_classes_and_of_the_first_trials(
    tmp_path: Path,
):
    frequent = [3, 4, 5, 6, 7, 8, 9, 10]
    trials = [labeled([*range(12), *frequent], 12, seed) for seed in range(14)]
    figure = drawing.prediction_figures(stored(tmp_path, trials))["roc_curve"]
    (axis,) = figure.axes
    names = [
        text.get_text().partition(":")[0] for text in axis.get_legend().get_texts()
    ]
    assert names == [f"$c_{k}$" for k in frequent]
    assert len(axis.lines) == drawing.MOST_CLASSES * drawing.MOST_TRIALS
    said = axis.get_legend().get_title().get_text()
    assert (
        said
        == "class: mean AUC over 14 trials,\nlines of the first 10 trials; 8 of 12 classes"
    )


@pytest.mark.parametrize(
    ("n_columns", "panels"), [(1, 1), (3, 3), (9, drawing.MOST_OUTPUTS)]
)
def test_each_column_of_a_target_has_a_panel(
    n_columns: int, panels: int, tmp_path: Path
):
    held_out = numbers(7, n_columns)
    drawn = drawing.prediction_figures(stored(tmp_path, [held_out]))
    for figure in drawn.values():
        assert len(figure.axes) == panels
        figure.savefig(BytesIO())
    shown = [
        axis.collections[0].get_offsets()
        for axis in drawn["predicted_vs_measured"].axes
    ]
    for column, offsets in enumerate(shown):
        np.testing.assert_array_equal(offsets[:, 0], held_out.predicted[:, column])


def test_predictions_that_are_not_finite_are_left_out(tmp_path: Path):
    whole = numbers(7, 2)
    some = replace(
        whole, predicted=np.where(np.arange(7)[:, None] == 3, np.nan, whole.predicted)
    )
    (tmp_path / "some").mkdir()
    drawn = drawing.prediction_figures(stored(tmp_path / "some", [some]))["residuals"]
    assert len(drawn.axes[0].collections[0].get_offsets()) == 6
    assert drawing.prediction_figures(stored(tmp_path, [broken(whole)])) == {}


def test_a_sample_is_called_a_sample(tmp_path: Path):
    figure = drawing.prediction_figures(
        stored(tmp_path, [labeled([0, 1] * 20)] * 2, n_test=700)
    )["roc_curve"]
    assert figure.get_suptitle().endswith(
        "\na sample of 80 of 1,400 predictions for test rows in 2 trials"
    )


def test_results_of_earlier_versions_have_no_figures_and_no_error(tmp_path: Path):
    ref = stored(tmp_path, [None, None])
    assert {path.name for path in (tmp_path / "results").iterdir()} == {
        TABLE,
        "entry.json",
    }
    assert drawing.write_prediction_figures(tmp_path / "figures", ref, None) == []
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize(
    "held_out",
    [labeled([0, 1, 1]), labeled([2, 0, 1], 3), numbers(4, 1), numbers(4, 3)],
)
def test_predictions_are_read_as_they_were_written(
    held_out: HeldOutPredictions, tmp_path: Path
):
    ref = stored(tmp_path, [held_out, held_out])
    again = read_predictions(Path(ref.path))
    assert len(again) == 2
    assert (again[0].task, again[0].classes) == (held_out.task, held_out.classes)
    for name in ("rows", "measured", "predicted", "scores", "probabilities"):
        expected, values = getattr(held_out, name), getattr(again[1], name)
        if expected is None:
            assert values is None
        else:
            np.testing.assert_array_equal(
                values, expected.reshape(values.shape), err_msg=name
            )


def test_the_best_method_of_each_data_set_is_drawn_once(tmp_path: Path):
    equal = fold_table({"a/b": [0.1, 0.2], "unif": [0.1, 0.2], "alignf": [0.3, 0.4]})
    summary = summarize(
        pd.concat(
            [equal, fold_table({"unif": [0.3, 0.3], "alignf": [0.1, 0.1]}, "../e")]
        )
    )
    refs = [
        FoldsRef(row.dataset, row.learner, row.algorithm, "svm", "")
        for row in summary.itertuples()
    ]
    best = drawing.best_results(summary, refs)
    assert [(ref.dataset, ref.learner) for ref in best] == [
        ("d", "a/b"),
        ("../e", "alignf"),
    ]
    places = [
        drawing.figures_folder(tmp_path, ref.dataset, ref.learner) for ref in best
    ]
    assert all(place.parent.parent == tmp_path / drawing.FOLDER for place in places)
