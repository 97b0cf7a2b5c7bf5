"""Learning kernels from data: arrays in, results out.

Base kernels come in families, one pass over tiles gives their alignment statistics for every union of folds,
learners turn those into weights, predictors use the learned kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from learnkernels.kernels.centering import center_cross_gram, center_gram, centered_alignment
from learnkernels.kernels.ensemble import KernelEnsemble
from learnkernels.kernels.families import (
    CosineFamily,
    DirichletFamily,
    FamilyUnion,
    FeatureFamily,
    GaussianFamily,
    KernelFamily,
    LaplacianFamily,
    LinearFamily,
    PolynomialFamily,
    PrecomputedFamily,
    ScaledFamily,
)
from learnkernels.kernels.feature_moments import FeatureMoments
from learnkernels.kernels.learned import LearnedKernel, learn_from_moments, learn_kernel, learn_path
from learnkernels.kernels.learners import LEARNERS, Certificate, align, alignf, kkt_certificate, single, unif
from learnkernels.kernels.moments import GramMoments, gram_moments
from learnkernels.kernels.moments_protocol import Moments
from learnkernels.kernels.operators import GramOperator, gram_operator
from learnkernels.kernels.passes import MomentsPart, RowBlocks, moments_part
from learnkernels.kernels.predictors import PREDICTORS, KernelRidgePath, SupportVectorPath, resolve_predictor
from learnkernels.kernels.protocol import (
    FoldResult,
    Hypotheses,
    KernelPredictors,
    Trial,
    assign_folds,
    evaluate,
    trials,
)
from learnkernels.kernels.sampled_moments import SampledMoments, Sampling, sample_moments
from learnkernels.kernels.serialisation import load_kernel, save_kernel
from learnkernels.kernels.targets import Target

if TYPE_CHECKING:
    from learnkernels.kernels.estimators import (
        KernelLearningClassifier,
        KernelLearningRegressor,
        LearnedKernelTransformer,
        default_family,
    )

NUMERICS_VERSION = 3
"""Raised whenever a weight or score may move by more than rounding; stored results of another version are not used."""

__all__ = [
    "LEARNERS",
    "NUMERICS_VERSION",
    "PREDICTORS",
    "Certificate",
    "CosineFamily",
    "DirichletFamily",
    "FamilyUnion",
    "FeatureFamily",
    "FeatureMoments",
    "FoldResult",
    "GaussianFamily",
    "GramMoments",
    "GramOperator",
    "Hypotheses",
    "KernelEnsemble",
    "KernelFamily",
    "KernelLearningClassifier",
    "KernelLearningRegressor",
    "KernelPredictors",
    "KernelRidgePath",
    "LaplacianFamily",
    "LearnedKernel",
    "LearnedKernelTransformer",
    "LinearFamily",
    "Moments",
    "MomentsPart",
    "PolynomialFamily",
    "PrecomputedFamily",
    "RowBlocks",
    "SampledMoments",
    "Sampling",
    "ScaledFamily",
    "SupportVectorPath",
    "Target",
    "Trial",
    "align",
    "alignf",
    "assign_folds",
    "center_cross_gram",
    "center_gram",
    "centered_alignment",
    "default_family",
    "evaluate",
    "gram_moments",
    "gram_operator",
    "kkt_certificate",
    "learn_from_moments",
    "learn_kernel",
    "learn_path",
    "load_kernel",
    "moments_part",
    "resolve_predictor",
    "sample_moments",
    "save_kernel",
    "single",
    "trials",
    "unif",
]

LATE = {
    "KernelLearningClassifier": "learnkernels.kernels.estimators",
    "KernelLearningRegressor": "learnkernels.kernels.estimators",
    "LearnedKernelTransformer": "learnkernels.kernels.estimators",
    "default_family": "learnkernels.kernels.estimators",
}
"""Exported names that are imported with their first use: they bring scikit-learn along, and that pandas."""


def __getattr__(name: str) -> Any:
    if name not in LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(LATE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(LATE))
