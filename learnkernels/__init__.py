"""Learn kernels from data: estimators for scikit-learn, and their parts.

Names are loaded on first use. Subpackages of `learnkernels.kernels` have specialized
parts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from learnkernels.flows.functions import compare, predict, train
    from learnkernels.kernels.centering import (
        alignment,
        center_gram,
        centered_alignment,
    )
    from learnkernels.kernels.estimators import (
        KernelLearningClassifier,
        KernelLearningRegressor,
        LearnedKernelTransformer,
        NGramTransformer,
        WeisfeilerLehmanTransformer,
    )
    from learnkernels.kernels.families import (
        BlockFamily,
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
        ProductFamily,
    )
    from learnkernels.kernels.files import load
    from learnkernels.kernels.hypothesis_tests.dependence import (
        alignment_test,
        independence_test,
        linear_cka,
    )
    from learnkernels.kernels.learners import learn_kernel
    from learnkernels.kernels.statistics.gram import gram_statistics

    from .displays import (
        ExplanationDisplay,
        InteractionDisplay,
        KernelWeightsDisplay,
        LearningHistoryDisplay,
        RegularizationDisplay,
        RelevanceDisplay,
    )

_MODULES = {
    "BlockFamily": "kernels.families",
    "CategoricalFamily": "kernels.families",
    "ConstantFamily": "kernels.families",
    "CosineFamily": "kernels.families",
    "ExplanationDisplay": "displays",
    "FamilyUnion": "kernels.families",
    "FeatureFamily": "kernels.families",
    "GaussianFamily": "kernels.families",
    "InteractionDisplay": "displays",
    "KernelLearningClassifier": "kernels.estimators",
    "KernelLearningRegressor": "kernels.estimators",
    "KernelWeightsDisplay": "displays",
    "LaplacianFamily": "kernels.families",
    "LearnedKernelTransformer": "kernels.estimators",
    "LearningHistoryDisplay": "displays",
    "LinearFamily": "kernels.families",
    "NGramTransformer": "kernels.estimators",
    "PolynomialFamily": "kernels.families",
    "PrecomputedFamily": "kernels.families",
    "ProductFamily": "kernels.families",
    "RegularizationDisplay": "displays",
    "RelevanceDisplay": "displays",
    "WeisfeilerLehmanTransformer": "kernels.estimators",
    "alignment": "kernels.centering",
    "alignment_test": "kernels.hypothesis_tests.dependence",
    "center_gram": "kernels.centering",
    "centered_alignment": "kernels.centering",
    "compare": "flows.functions",
    "gram_statistics": "kernels.statistics.gram",
    "independence_test": "kernels.hypothesis_tests.dependence",
    "learn_kernel": "kernels.learners",
    "linear_cka": "kernels.hypothesis_tests.dependence",
    "load": "kernels.files",
    "predict": "flows.functions",
    "train": "flows.functions",
}

__all__ = [
    "BlockFamily",
    "CategoricalFamily",
    "ConstantFamily",
    "CosineFamily",
    "ExplanationDisplay",
    "FamilyUnion",
    "FeatureFamily",
    "GaussianFamily",
    "InteractionDisplay",
    "KernelLearningClassifier",
    "KernelLearningRegressor",
    "KernelWeightsDisplay",
    "LaplacianFamily",
    "LearnedKernelTransformer",
    "LearningHistoryDisplay",
    "LinearFamily",
    "NGramTransformer",
    "PolynomialFamily",
    "PrecomputedFamily",
    "ProductFamily",
    "RegularizationDisplay",
    "RelevanceDisplay",
    "WeisfeilerLehmanTransformer",
    "alignment",
    "alignment_test",
    "center_gram",
    "centered_alignment",
    "compare",
    "gram_statistics",
    "independence_test",
    "learn_kernel",
    "linear_cka",
    "load",
    "predict",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        from learnkernels.kernels.registry import did_you_mean

        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}; {did_you_mean(name, __all__)}".rstrip(
                "; "
            )
        )
    value = globals()[name] = getattr(
        import_module(f"{__name__}.{_MODULES[name]}"), name
    )
    return value


def __dir__() -> list[str]:
    return __all__
