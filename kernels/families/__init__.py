"""Families of base kernels: exponentials of distances, profiles of products, and what is composed of others.

Imports: centering, compiled, parameters.
"""

from learnkernels.kernels.families.base import KernelFamily, family_from_dict
from learnkernels.kernels.families.composed import FamilyUnion, MetricFamily, NormalScoresFamily, ScaledFamily
from learnkernels.kernels.families.distances import CategoricalFamily, GaussianFamily, LaplacianFamily
from learnkernels.kernels.families.feature import FeatureFamily
from learnkernels.kernels.families.precomputed import PrecomputedFamily
from learnkernels.kernels.families.products import (
    ConstantFamily,
    CosineFamily,
    DirichletFamily,
    LinearFamily,
    PolynomialFamily,
    ProductFamily,
)

__all__ = [
    "CategoricalFamily",
    "ConstantFamily",
    "CosineFamily",
    "DirichletFamily",
    "FamilyUnion",
    "FeatureFamily",
    "GaussianFamily",
    "KernelFamily",
    "LaplacianFamily",
    "LinearFamily",
    "MetricFamily",
    "NormalScoresFamily",
    "PolynomialFamily",
    "PrecomputedFamily",
    "ProductFamily",
    "ScaledFamily",
    "family_from_dict",
]
