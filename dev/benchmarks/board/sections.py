"""Sections of the board: the data sets, the methods and the metrics of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dev.benchmarks.board.contestants import (
    CONTESTANTS,
    OURS,
    RAW_CONTESTANTS,
    TUNED,
    Contestant,
)
from dev.benchmarks.board.raw import raw_tables
from dev.benchmarks.board.tables import (
    Table,
    digit_tables,
    growing_tables,
    medium_tables,
    rare_tables,
    tables,
)

SHARED = Path("../shared/data")
"""Folder of ``mnist.parquet``, which no package contains."""


@dataclass(frozen=True)
class Section:
    """Data sets on which the same methods are compared.

    Attributes
    ----------
    tables : callable
        Returns the data sets.
    contestants : mapping
        The methods, by name.
    reference : str
        Method that geometric means are relative to.
    drawings : int
        Random splits per data set.
    measures : tuple of str
        Metrics for classification, the most important one first: keys of
        `verdict.MEASURES`.
    """

    tables: Callable[[], list[Table]]
    contestants: Mapping[str, Contestant]
    reference: str
    drawings: int = 2
    measures: tuple[str, ...] = ("error", "log_loss", "auc_loss")


def _methods(*names: str) -> dict[str, Contestant]:
    return {name: CONTESTANTS[name] for name in (OURS, *names)}


BOOSTING = ("HistGradientBoosting", "LightGBM", "CatBoost")
TUNED_DEFAULTS = ("RealMLP_TD", "CatBoost_TD", "LGBM_TD", "XGB_TD")

SECTIONS = {
    "small": Section(
        tables,
        _methods(
            "learnkernels, alignf",
            TUNED,
            "Gaussian process",
            "random forest",
            *BOOSTING,
            "xRFM",
        ),
        TUNED,
    ),
    "raw": Section(raw_tables, RAW_CONTESTANTS, "CatBoost"),
    "medium": Section(
        medium_tables, _methods(*BOOSTING, "xRFM", *TUNED_DEFAULTS), "CatBoost"
    ),
    "growth": Section(growing_tables, _methods(*BOOSTING), "CatBoost", drawings=1),
    "rare": Section(
        rare_tables,
        _methods("logistic regression", "HistGradientBoosting"),
        "logistic regression",
        measures=("auc_loss", "log_loss", "error"),
    ),
    "mnist": Section(lambda: digit_tables(SHARED), _methods(), OURS, drawings=1),
}
