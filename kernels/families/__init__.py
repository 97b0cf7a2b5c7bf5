"""Families of base kernels.

Imports: base, centering, compiled, validation.
"""

from .base import KernelFamily
from .blocks import BlockFamily
from .composed import FamilyUnion, MetricFamily, NormalScoresFamily, ScaledFamily
from .distances import CategoricalFamily, GaussianFamily, LaplacianFamily
from .feature import FeatureFamily
from .precomputed import PrecomputedFamily
from .products import (
    ConstantFamily,
    CosineFamily,
    DirichletFamily,
    LinearFamily,
    PolynomialFamily,
    ProductFamily,
)

__all__ = [
    "BlockFamily",
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
]
