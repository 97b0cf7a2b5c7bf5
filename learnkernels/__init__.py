"""Learn the kernel from data: estimators for scikit-learn, and the parts that they are made of.

The names below are for everyone; what is for some is imported from the rooms of `learnkernels.kernels`. Importing this
package loads nothing: each name brings along what it needs when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from learnkernels.kernels.centering import center_gram, centered_alignment
    from learnkernels.kernels.estimators import (
        KernelLearningClassifier,
        KernelLearningRegressor,
        LearnedKernelTransformer,
    )
    from learnkernels.kernels.families import (
        CategoricalFamily,
        ConstantFamily,
        CosineFamily,
        FamilyUnion,
        FeatureFamily,
        GaussianFamily,
        LaplacianFamily,
        LinearFamily,
        PolynomialFamily,
        PrecomputedFamily,
    )
    from learnkernels.kernels.learning import learn_kernel
    from learnkernels.kernels.moments.gram import gram_moments
    from learnkernels.kernels.persistence.kernel import load_kernel, save_kernel

_ROOMS = {
    "CategoricalFamily": "families",
    "ConstantFamily": "families",
    "CosineFamily": "families",
    "FamilyUnion": "families",
    "FeatureFamily": "families",
    "GaussianFamily": "families",
    "KernelLearningClassifier": "estimators",
    "KernelLearningRegressor": "estimators",
    "LaplacianFamily": "families",
    "LearnedKernelTransformer": "estimators",
    "LinearFamily": "families",
    "PolynomialFamily": "families",
    "PrecomputedFamily": "families",
    "center_gram": "centering",
    "centered_alignment": "centering",
    "gram_moments": "moments.gram",
    "learn_kernel": "learning",
    "load_kernel": "persistence.kernel",
    "save_kernel": "persistence.kernel",
}

__all__ = [
    "CategoricalFamily",
    "ConstantFamily",
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
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.kernels.{_ROOMS[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
