"""Learn the kernel from data: estimators for scikit-learn, and the parts that they are made of.

The names below are for everyone; what is for some is imported from the rooms of `learnkernels.kernels`. Importing this
package loads nothing: each name brings along what it needs when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from learnkernels.kernels import (
        CosineFamily,
        FamilyUnion,
        FeatureFamily,
        GaussianFamily,
        KernelLearningClassifier,
        KernelLearningRegressor,
        LaplacianFamily,
        LearnedKernelTransformer,
        LinearFamily,
        PolynomialFamily,
        PrecomputedFamily,
        center_gram,
        centered_alignment,
        gram_moments,
        learn_kernel,
        load_kernel,
        save_kernel,
    )

__all__ = [
    "CosineFamily",
    "FamilyUnion",
    "FeatureFamily",
    "GaussianFamily",
    "KernelLearningClassifier",
    "KernelLearningRegressor",
    "LaplacianFamily",
    "LearnedKernelTransformer",
    "LinearFamily",
    "PolynomialFamily",
    "PrecomputedFamily",
    "center_gram",
    "centered_alignment",
    "gram_moments",
    "learn_kernel",
    "load_kernel",
    "save_kernel",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module("learnkernels.kernels"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
