"""Estimators with scikit-learn's interface.

Imports: base, centering, column_encoding, engine, exporting, families, files,
learned_kernel, learners, predictors, row_groups, solvers, statistics, targets,
validation, weights.
"""

from .base import chunk_rows_for, default_family, set_table
from .counts import NGramTransformer, WeisfeilerLehmanTransformer
from .explanation import Explanation
from .supervised import (
    FeaturePredictor,
    KernelLearningClassifier,
    KernelLearningRegressor,
    fit_on_features,
    fit_on_kernel,
    keep_support,
    set_coefficients,
)
from .transformer import LearnedKernelTransformer

__all__ = [
    "Explanation",
    "FeaturePredictor",
    "KernelLearningClassifier",
    "KernelLearningRegressor",
    "LearnedKernelTransformer",
    "NGramTransformer",
    "WeisfeilerLehmanTransformer",
    "chunk_rows_for",
    "default_family",
    "fit_on_features",
    "fit_on_kernel",
    "keep_support",
    "set_coefficients",
    "set_table",
]
