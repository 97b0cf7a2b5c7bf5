"""Draw figures of held-out predictions by scikit-learn's displays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from learnkernels.conf.schema.compare import FiguresConfig

from ..measure.held_out import HeldOutPredictions, read_predictions
from ..measure.run_learner import FoldsRef
from ..naming import file_name
from ..store import checked
from . import tables
from .figures import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FOLDER = "predictions"

MOST_CLASSES = 8

MOST_TRIALS = 10

MOST_OUTPUTS = 4


class Predicted(NamedTuple):
    """Held-out predictions of a method on each split, with a title."""

    title: str
    trials: list[HeldOutPredictions]


class CurveKind(NamedTuple):
    display: Any
    score: Callable[[np.ndarray, np.ndarray], float]
    score_name: str
    xlabel: str
    ylabel: str
    legend_corner: str


def prediction_figures(ref: FoldsRef) -> dict[str, Figure]:
    """Return figures of a method's predictions by file name; empty without any."""
    trials = read_predictions(checked(Path(ref.path)))
    if not trials:
        return {}
    predicted = Predicted(_title(ref, trials), trials)
    figures: dict[str, Figure | None]
    if trials[0].task == "regression":
        figures = {
            "predicted_vs_measured": error_figure(predicted, "actual_vs_predicted"),
            "residuals": error_figure(predicted, "residual_vs_predicted"),
        }
    else:
        figures = {
            "confusion_matrix": confusion_figure(predicted),
            "roc_curve": curves_figure(predicted, _roc()),
            "precision_recall_curve": curves_figure(predicted, _precision_recall()),
            "calibration_curve": calibration_figure(predicted),
        }
    return {name: figure for name, figure in figures.items() if figure is not None}


def write_prediction_figures(
    folder: Path, ref: FoldsRef, config: FiguresConfig | None
) -> list[str]:
    """Write figures of a method's predictions; return names of PNG files."""
    names = []
    for name, figure in prediction_figures(ref).items():
        folder.mkdir(parents=True, exist_ok=True)
        save_figure(figure, folder / name, config)
        names.append(f"{name}.png")
    return names


def figures_folder(results: Path, dataset: str, method: str) -> Path:
    return results / FOLDER / file_name(dataset) / file_name(method)


def best_results(summary: pd.DataFrame, refs: Sequence[FoldsRef]) -> list[FoldsRef]:
    """Return the method with the lowest mean error on each data set."""
    best = summary[summary["best"]].drop_duplicates("dataset")
    winners = set(zip(best["dataset"], best["learner"], strict=True))
    return [ref for ref in refs if (ref.dataset, ref.learner) in winners]


def _title(ref: FoldsRef, trials: Sequence[HeldOutPredictions]) -> str:
    folds = tables.read_folds([ref])
    n_rows = sum(map(len, trials))
    n_test = int(folds["n_test"].sum())
    predictions = f"{n_rows:,} predictions for test rows"
    if n_rows < n_test:
        predictions = f"a sample of {n_rows:,} of {n_test:,} predictions for test rows"
    error = f"{folds['metric'].iloc[0]} {_mean_and_sd(folds['error'].to_list())}"
    plural = "s" if len(trials) > 1 else ""
    return f"{ref.dataset}: {ref.learner}, {error}\n{predictions} in {len(trials)} trial{plural}"


def _new_figure(
    title: str, width: float, height: float, n_panels: int = 1
) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure  # most commands draw nothing

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, fontsize="medium", parse_math=False)
    return figure, list(figure.subplots(1, n_panels, squeeze=False)[0])


# Classification


def confusion_figure(predicted: Predicted) -> Figure:
    from sklearn.metrics import ConfusionMatrixDisplay

    classes = predicted.trials[0].classes
    size = float(np.clip(2.5 + 0.45 * len(classes), 4.0, 11.0))
    figure, (axis,) = _new_figure(predicted.title, size + 1.2, size)
    display = ConfusionMatrixDisplay.from_predictions(
        np.concatenate([trial.measured for trial in predicted.trials]),
        np.concatenate([trial.predicted for trial in predicted.trials]),
        labels=range(len(classes)),
        include_values=len(classes) <= 15,
        values_format=",d",
        cmap="Blues",
        ax=axis,
    )
    if len(classes) <= 40:
        axis.set(xlabel="predicted class", ylabel="true class")
        names = [_shortened(name) for name in classes]
        axis.set_xticks(range(len(classes)), names, parse_math=False)
        axis.set_yticks(range(len(classes)), names, parse_math=False)
        if max(map(len, names)) * len(names) > 10 * size:
            axis.tick_params(axis="x", rotation=90)
    else:
        axis.set(
            xlabel="position of the predicted class",
            ylabel="position of the true class",
        )
    display.im_.colorbar.set_label("test rows")
    return figure


def _shortened(name: str) -> str:
    if len(name) <= 20:
        return name
    return f"{name[:19]}…"


def _roc() -> CurveKind:
    from sklearn.metrics import RocCurveDisplay, roc_auc_score

    return CurveKind(
        RocCurveDisplay,
        roc_auc_score,
        score_name="AUC",
        xlabel="false positive rate",
        ylabel="true positive rate",
        legend_corner="lower right",
    )


def _precision_recall() -> CurveKind:
    from sklearn.metrics import PrecisionRecallDisplay, average_precision_score

    return CurveKind(
        PrecisionRecallDisplay,
        average_precision_score,
        score_name="AP",
        xlabel="recall",
        ylabel="precision",
        legend_corner="lower left",
    )


def shown_classes(trials: Sequence[HeldOutPredictions]) -> list[int]:
    """Return the classes to draw: the second of two, or the most frequent."""
    n_classes = len(trials[0].classes)
    if n_classes == 2:
        return [1]
    measured = np.concatenate([trial.measured for trial in trials])
    counts = np.bincount(measured, minlength=n_classes)
    most_frequent = np.argsort(-counts, kind="stable")[:MOST_CLASSES]
    return sorted(most_frequent.tolist())


def _scored_trials(
    trials: Sequence[HeldOutPredictions], k: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for trial in trials:
        scores = trial.class_scores(k)
        if scores is None or not np.isfinite(scores).all():
            continue
        positive = trial.measured == k
        if positive.any() and not positive.all():
            yield positive, scores


def curves_figure(predicted: Predicted, kind: CurveKind) -> Figure | None:
    """Draw a curve such as ROC per class and split; None without class scores."""
    from matplotlib import colormaps
    from matplotlib.lines import Line2D

    classes = predicted.trials[0].classes
    palette = colormaps["tab10"].colors  # type: ignore[attr-defined]
    handles = []
    n_trials = 0
    figure, (axis,) = _new_figure(predicted.title, 6.4, 5.6)
    for k, color in zip(shown_classes(predicted.trials), palette, strict=False):
        scored = list(_scored_trials(predicted.trials, k))
        if not scored:
            continue
        for positive, scores in scored[:MOST_TRIALS]:
            display = kind.display.from_predictions(positive, scores, ax=axis)
            display.line_.set(color=color, linewidth=1, alpha=0.6, label="_nolegend_")
        values = [kind.score(positive, scores) for positive, scores in scored]
        label = f"{_shortened(classes[k])}: {kind.score_name} {_mean_and_sd(values)}"
        handles.append(Line2D([], [], color=color, label=label))
        n_trials = max(n_trials, len(scored))
    if not handles:
        return None
    lines = "a line per trial"
    if n_trials > MOST_TRIALS:
        lines = f"lines of the first {MOST_TRIALS} trials"
    title = f"class: mean {kind.score_name} over {n_trials} trials,\n{lines}"
    if len(classes) > len(handles) > 1:
        title += f"; {len(handles)} of {len(classes)} classes"
    _add_legend(
        axis,
        handles=handles,
        title=title,
        loc=kind.legend_corner,
        title_fontsize="small",
    )
    axis.set(xlabel=kind.xlabel, ylabel=kind.ylabel)
    axis.grid(alpha=0.3)
    return figure


def _mean_and_sd(numbers: Sequence[float]) -> str:
    sd = np.nan
    if len(numbers) > 1:
        sd = float(np.std(numbers, ddof=1))
    return tables.mean_and_sd(float(np.mean(numbers)), sd)


def calibration_figure(predicted: Predicted) -> Figure | None:
    """Draw calibration curves of all splits; None without probabilities."""
    from sklearn.calibration import CalibrationDisplay

    trials = []
    probabilities_of_trials = []
    for trial in predicted.trials:
        if trial.probabilities is not None and np.isfinite(trial.probabilities).all():
            trials.append(trial)
            probabilities_of_trials.append(trial.probabilities)
    if not trials:
        return None
    measured = np.concatenate([trial.measured for trial in trials])
    probabilities = np.concatenate(probabilities_of_trials)
    n_bins = int(np.clip(len(measured) // 30, 2, 10))  # at least 30 rows per bin
    figure, (axis,) = _new_figure(predicted.title, 6.4, 5.6)
    for k in shown_classes(trials):
        positive = measured == k
        if not positive.any() or positive.all():
            continue
        name = _shortened(trials[0].classes[k])
        CalibrationDisplay.from_predictions(
            positive,
            probabilities[:, k],
            n_bins=n_bins,
            strategy="quantile",
            name=name,
            ax=axis,
        )
    if len(axis.lines) < 2:  # only the diagonal
        return None
    axis.set(
        xlabel="mean predicted probability of the class",
        ylabel="share of test rows of the class",
    )
    _add_legend(axis, loc="upper left", title=f"{n_bins} bins of equal size")
    axis.grid(alpha=0.3)
    return figure


def _add_legend(axis: Axes, **options: Any) -> None:
    legend = axis.legend(fontsize="small", **options)
    for text in legend.get_texts():
        text.set_parse_math(False)


# Regression


def error_figure(predicted: Predicted, kind: str) -> Figure | None:
    """Draw targets or residuals against predictions; None without finite predictions."""
    from matplotlib.ticker import AutoLocator
    from sklearn.metrics import PredictionErrorDisplay

    measured = np.concatenate([trial.measured for trial in predicted.trials])
    values = np.concatenate([trial.predicted for trial in predicted.trials])
    measured = measured.reshape(len(measured), -1)
    values = values.reshape(len(values), -1)
    finite = np.isfinite(values).all(axis=1)
    if not finite.any():
        return None
    measured = measured[finite]
    values = values[finite]
    n_outputs = measured.shape[1]
    n_panels = min(n_outputs, MOST_OUTPUTS)
    figure, axes = _new_figure(predicted.title, max(5.6, 4.4 * n_panels), 5.2, n_panels)
    for column, axis in enumerate(axes):
        PredictionErrorDisplay.from_predictions(
            measured[:, column],
            values[:, column],
            kind=kind,
            subsample=None,
            scatter_kwargs={"s": 14, "alpha": 0.4, "linewidth": 0},
            ax=axis,
        )
        axis.xaxis.set_major_locator(AutoLocator())  # round numbers
        axis.yaxis.set_major_locator(AutoLocator())
        axis.set_xlabel("predicted value")
        if kind == "actual_vs_predicted":
            axis.set_ylabel("measured value")
        else:
            axis.set_ylabel("residual: measured - predicted value")
        axis.grid(alpha=0.3)
        if n_outputs > 1:
            axis.set_title(
                f"column {column + 1} of {n_outputs} of the target", fontsize="medium"
            )
    return figure
