"""Learned kernels behind scikit-learn's interface: a classifier, a regressor and a transformer."""

from kernels.estimators.classifier import KernelLearningClassifier
from kernels.estimators.defaults import chunk_rows_for, default_family
from kernels.estimators.regressor import KernelLearningRegressor
from kernels.estimators.transformer import LearnedKernelTransformer

__all__ = [
    "KernelLearningClassifier",
    "KernelLearningRegressor",
    "LearnedKernelTransformer",
    "chunk_rows_for",
    "default_family",
]
