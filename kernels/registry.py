"""Names of learners, predictors and metrics, and their options.

Configurations read this module, so it imports neither NumPy nor other modules.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Literal

LEARNERS = {
    "unif": "closed_form:Unif",
    "single": "closed_form:Single",
    "align": "closed_form:Align",
    "alignf": "alignf:Alignf",
    "alignf-linear": "alignf:AlignfLinear",
    "lq": "closed_form:Lq",
    "align-uncentered": "closed_form:AlignUncentered",
    "alignf-uncentered": "alignf:AlignfUncentered",
    "single-stage": "norm_ball:SingleStage",
    "single-stage-svm": "norm_ball:SingleStageSVM",
    "single-stage-logistic": "single_stage_logistic:SingleStageLogistic",
    "l1-krr": "norm_ball:L1KRR",
    "l2-krr": "norm_ball:L2KRR",
    "lp-krr": "norm_ball:LpKRR",
    "l1-svm": "norm_ball:L1SVM",
    "lp-svm": "norm_ball:LpSVM",
    "easymkl": "easymkl:EasyMKL",
    "nkrr": "nkrr:NKRR",
    "ca": "ca:CA",
    "cr": "cr:CR",
    "ensemble": "ensemble:Ensemble",
    "rfm": "rfm:RFM",
}
"""Learners as ``module:Class`` in `kernels.learners`, in documentation order."""

SEARCHING = ("ca", "cr", "rfm")
"""Learners that find their base kernels and take no family."""

UNCENTERED = (
    "unif", "align", "align-uncentered", "alignf-uncentered", "l1-krr", "l2-krr", "lp-krr", "l1-svm", "lp-svm", "nkrr",
)  # fmt: skip
"""Learners that support base kernels without centering."""

APPROXIMATION = ("n_components", "memory", "loss", "tol")

PREDICTORS: dict[str, tuple[str, ...]] = {
    "auto": APPROXIMATION,
    "krr": (),
    "krr-cg": ("tol",),
    "nystroem": APPROXIMATION,
    "svm": (),
}
"""Predictors and the options that a configuration sets."""

CLASSIFIERS = ("svm",)
"""Predictors that support only classification."""

Measured = Literal["predictions", "scores", "probabilities"]
"""Predicted labels, scores of two classes, or class probabilities."""

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
"""Metrics of scikit-learn, and the predictions that they evaluate."""


OTHER_NAMES: dict[str, tuple[str, ...]] = {
    # scales of features
    "unit": ("minmax", "min-max", "minmaxscaler", "min-max-scaler"),
    "max": ("maxabs", "max-abs", "maxabsscaler", "max-abs-scaler"),
    "standard": (
        "zscore",
        "z-score",
        "standardize",
        "standardise",
        "standardscaler",
        "standard-scaler",
    ),
    "quantile": (
        "rank",
        "normal-scores",
        "quantiletransformer",
        "quantile-transformer",
    ),
    # base kernels
    "gaussian": ("rbf", "squared-exponential"),
    "linear": ("dot", "dot-product"),
    "polynomial": ("poly",),
    # learners
    "alignf": ("mkl", "two-stage"),
    "unif": ("average", "mean", "sum", "uniform"),
    "single": ("best",),
    "l1-svm": ("svm", "simplemkl"),
    "l2-krr": ("krr", "ridge", "kernel-ridge"),
    # predictors
    "krr": ("ridge", "kernel-ridge", "svr"),
    "svm": ("svc",),
    "nystroem": ("nystrom",),
    # metrics
    "accuracy": ("acc", "error", "error-rate", "misclassification", "zero-one-loss"),
    "average_precision": ("ap", "auprc", "pr-auc"),
    "f1": ("f1-score",),
    "matthews_corrcoef": ("mcc",),
    "neg_brier_score": ("brier", "brier-score"),
    "neg_log_loss": ("logloss", "log-loss", "cross-entropy"),
    "neg_mean_absolute_error": ("mae",),
    "neg_mean_absolute_percentage_error": ("mape",),
    "neg_mean_squared_error": ("mse",),
    "neg_root_mean_squared_error": ("rmse",),
    "roc_auc": ("auc", "auroc"),
    # parameters
    "norm": ("p", "q"),
    "q": ("p", "norm"),
    "gammas": ("gamma",),
    "degrees": ("degree",),
}
"""Synonyms of the names, in lower case with dashes."""


def did_you_mean(value: object, known_names: Iterable[str]) -> str:
    """Return a suggestion such as "did you mean 'rfm'? "; empty if no name is close.

    Synonyms take precedence over similar spellings.
    """
    if not isinstance(value, str):
        return ""
    names = [str(name) for name in known_names]
    name = value[:100].lower()
    elsewhere = name.replace("_", "-").replace(" ", "-")
    meant = [
        own_name
        for own_name, others in OTHER_NAMES.items()
        if elsewhere in others and own_name in names
    ]
    if not meant:
        by_lower_case = {known_name.lower(): known_name for known_name in names}
        meant = [
            by_lower_case[close]
            for close in difflib.get_close_matches(name, by_lower_case, n=1)
        ]
    return f"did you mean {meant[0]!r}? " if meant else ""
