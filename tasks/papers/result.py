"""What a study of a paper's item gives, whatever its kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class StudyResult:
    """Numbers, tables and figures of one item.

    Attributes
    ----------
    folds : DataFrame or None
        The fold table, with the columns of `tasks.measure.evaluation.COLUMNS`, where learners were compared.
    values : dict of str to float
        Named numbers, such as ``"rho kinematics"``, that claims and printed cells speak of; ``"rho kinematics sd"`` is
        the deviation of that one.
    tables : list of (str, list of dict)
        Caption and rows of tables to show as they are; the columns are the keys, in order.
    figures : dict of str to Figure
        File name without its ending -> figure, drawn by `matplotlib.figure.Figure` alone.
    """

    folds: pd.DataFrame | None = None
    values: dict[str, float] = field(default_factory=dict)
    tables: list[tuple[str, list[dict[str, Any]]]] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)
