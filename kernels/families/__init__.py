"""Families of base kernels, one file a family.

Imports: compiled, fields, parameters.
"""

from learnkernels.kernels.families.base import KernelFamily, family_from_dict
from learnkernels.kernels.families.categorical import CategoricalFamily
from learnkernels.kernels.families.constant import ConstantFamily
from learnkernels.kernels.families.cosine import CosineFamily
from learnkernels.kernels.families.dirichlet import DirichletFamily
from learnkernels.kernels.families.feature import FeatureFamily
from learnkernels.kernels.families.gaussian import GaussianFamily
from learnkernels.kernels.families.laplacian import LaplacianFamily
from learnkernels.kernels.families.linear import LinearFamily
from learnkernels.kernels.families.metric import MetricFamily
from learnkernels.kernels.families.normal_scores import NormalScoresFamily
from learnkernels.kernels.families.polynomial import PolynomialFamily
from learnkernels.kernels.families.precomputed import PrecomputedFamily
from learnkernels.kernels.families.scaled import ScaledFamily
from learnkernels.kernels.families.union import FamilyUnion

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
    "ScaledFamily",
    "family_from_dict",
]
