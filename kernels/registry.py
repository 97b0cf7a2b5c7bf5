"""Learners, predictors and metrics by name, and what can be said of each before its module is imported.

Configurations read these tables too, so this module imports neither NumPy nor anything else of the package. A new
learner is one entry of `LEARNERS`; its class declares the rest.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Literal, NamedTuple


class LearnerEntry(NamedTuple):
    """Where the class of a learner is, and what a configuration needs to know of it.

    Attributes
    ----------
    path : str
        ``module:Class`` within `kernels.learners`.
    takes_family : bool
        Whether it weights given base kernels, or finds its own.
    takes_uncentered : bool
        Whether it can do with base kernels that are not centered.
    """

    path: str
    takes_family: bool = True
    takes_uncentered: bool = False


LEARNERS = {
    "unif": LearnerEntry("closed_form:Unif", takes_uncentered=True),
    "single": LearnerEntry("closed_form:Single"),
    "align": LearnerEntry("closed_form:Align", takes_uncentered=True),
    "alignf": LearnerEntry("alignf:Alignf"),
    "alignf-linear": LearnerEntry("alignf:AlignfLinear"),
    "lq": LearnerEntry("closed_form:Lq"),
    "align-uncentered": LearnerEntry("closed_form:AlignUncentered", takes_uncentered=True),
    "alignf-uncentered": LearnerEntry("alignf:AlignfUncentered", takes_uncentered=True),
    "single-stage": LearnerEntry("norm_ball:SingleStage"),
    "single-stage-svm": LearnerEntry("norm_ball:SingleStageSVM"),
    "l1-krr": LearnerEntry("norm_ball:L1KRR", takes_uncentered=True),
    "l2-krr": LearnerEntry("norm_ball:L2KRR", takes_uncentered=True),
    "lp-krr": LearnerEntry("norm_ball:LpKRR", takes_uncentered=True),
    "l1-svm": LearnerEntry("norm_ball:L1SVM", takes_uncentered=True),
    "lp-svm": LearnerEntry("norm_ball:LpSVM", takes_uncentered=True),
    "easymkl": LearnerEntry("easymkl:EasyMKL"),
    "nkrr": LearnerEntry("nkrr:NKRR", takes_uncentered=True),
    "ca": LearnerEntry("ca:CA", takes_family=False),
    "cr": LearnerEntry("cr:CR", takes_family=False),
    "ensemble": LearnerEntry("ensemble:Ensemble"),
    "rfm": LearnerEntry("rfm:RFM", takes_family=False),
}
"""The learners by name, in the order of the documentation."""

APPROXIMATION = ("landmarks", "memory", "loss", "tolerance")

PREDICTORS: dict[str, tuple[str, ...]] = {
    "auto": APPROXIMATION,
    "krr": (),
    "krr-cg": ("tolerance",),
    "nystrom": APPROXIMATION,
    "svm": (),
}
"""The predictors by name, and the options of each that a configuration sets; auto hands them on to what it chooses."""

Measured = Literal["predictions", "scores", "probabilities"]
"""What an error is measured on: predictions, scores of two classes that rank the rows, or a probability per class."""

METRICS: dict[str, Measured] = {
    "accuracy": "predictions",
    "balanced_accuracy": "predictions",
    "roc_auc": "scores",
    "roc_auc_ovr": "probabilities",
    "roc_auc_ovr_weighted": "probabilities",
    "roc_auc_ovo": "probabilities",
    "roc_auc_ovo_weighted": "probabilities",
    "average_precision": "scores",
    "f1": "predictions",
    "f1_macro": "predictions",
    "f1_weighted": "predictions",
    "precision": "predictions",
    "precision_macro": "predictions",
    "precision_weighted": "predictions",
    "recall": "predictions",
    "recall_macro": "predictions",
    "jaccard": "predictions",
    "jaccard_macro": "predictions",
    "jaccard_weighted": "predictions",
    "matthews_corrcoef": "predictions",
    "neg_log_loss": "probabilities",
    "neg_brier_score": "probabilities",
    "neg_root_mean_squared_error": "predictions",
    "neg_mean_absolute_error": "predictions",
    "neg_median_absolute_error": "predictions",
    "neg_mean_absolute_percentage_error": "predictions",
    "neg_max_error": "predictions",
    "neg_mean_squared_error": "predictions",
    "r2": "predictions",
    "explained_variance": "predictions",
}
"""Metrics by scikit-learn's names, and what each is measured on."""


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """Return a question that offers the known name nearest to a given one, and a space; nothing if none is near."""
    close = difflib.get_close_matches(given[:100], [*known], n=1) if isinstance(given, str) else []
    return f"did you mean {str(close[0])!r}? " if close else ""


def require_one_of(what: str, given: object, known: Iterable[str], others: str = "") -> None:
    """Raise ValueError, with the nearest name, for a value that is none of the known names."""
    names = [*known]
    if not (isinstance(given, str) and given in names):
        meant = f" ({question.strip()})" if (question := did_you_mean(given, names)) else ""
        allowed = f"one of {', '.join(names)}" if names else "left out"
        raise ValueError(f"{what} must be {allowed}{others}, got {given!r:.60}{meant}.")
