"""Predictors on a learned kernel, one file each.

Imports: base, centering, engine, families, learned_kernel, registry, row_groups,
solvers, targets, validation, weights.
"""

from __future__ import annotations

from typing import Any

from ..base import as_object
from ..validation import require_one_of
from .base import Predictor, PredictorChoice, RegularizationPath, TrainingSet
from .choice import Auto
from .krr import KRR, ridge_path
from .krr_cg import ConjugateGradients
from .nystroem import Nystroem
from .svm import SVM

PREDICTORS: dict[str, type[Predictor]] = {
    predictor.name: predictor
    for predictor in (KRR, ConjugateGradients, Nystroem, SVM, Auto)
}


def as_predictor(predictor: str | Predictor, /, **options: Any) -> Predictor:
    """Return the named predictor, or a copy of a predictor, with changed options.

    Parameters
    ----------
    predictor : str or Predictor
        Name, or predictor to copy.
    **options : dict
        Parameters of the predictor.

    Returns
    -------
    predictor : Predictor
    """
    example = "a name such as 'auto' or a Predictor such as Nystroem(n_components=1000)"
    return as_object(predictor, options, Predictor, _predictor_class, example)


def _predictor_class(name: str) -> type[Predictor]:
    require_one_of("predictor", name, sorted(PREDICTORS))
    return PREDICTORS[name]


__all__ = [
    "KRR",
    "PREDICTORS",
    "SVM",
    "Auto",
    "ConjugateGradients",
    "Nystroem",
    "Predictor",
    "PredictorChoice",
    "RegularizationPath",
    "TrainingSet",
    "as_predictor",
    "ridge_path",
]
