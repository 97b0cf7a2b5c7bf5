"""Learning kernels from data: arrays in, results out.

Base kernels come in families, one pass over tiles gives their alignment statistics for every union of folds,
learners turn those into weights, predictors use the learned kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernels.centering import center_cross_gram, center_gram, centered_alignment
from kernels.ensemble import KernelEnsemble
from kernels.families import (
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
from kernels.feature_moments import FeatureMoments
from kernels.learned import LearnedKernel, learn_from_moments, learn_kernel, learn_path
from kernels.learners import LEARNERS, Certificate, align, alignf, kkt_certificate, single, unif
from kernels.moments import GramMoments, gram_moments
from kernels.moments_protocol import Moments
from kernels.operators import GramOperator, gram_operator
from kernels.passes import MomentsPart, RowBlocks, moments_part
from kernels.predictors import PREDICTORS, KernelRidgePath, SupportVectorPath, resolve_predictor
from kernels.protocol import FoldResult, Hypotheses, KernelPredictors, Trial, assign_folds, evaluate, trials
from kernels.sampled_moments import SampledMoments, Sampling, sample_moments
from kernels.serialisation import load_kernel, save_kernel
from kernels.targets import Target

if TYPE_CHECKING:
    from kernels.estimators import (
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
    "KernelLearningClassifier": "kernels.estimators",
    "KernelLearningRegressor": "kernels.estimators",
    "LearnedKernelTransformer": "kernels.estimators",
    "default_family": "kernels.estimators",
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
