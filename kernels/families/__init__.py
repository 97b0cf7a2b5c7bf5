"""Families of base kernels, one file a family."""

from kernels.families.base import KernelFamily
from kernels.families.cosine import CosineFamily
from kernels.families.dirichlet import DirichletFamily
from kernels.families.feature import FeatureFamily
from kernels.families.gaussian import GaussianFamily
from kernels.families.laplacian import LaplacianFamily
from kernels.families.linear import LinearFamily
from kernels.families.polynomial import PolynomialFamily
from kernels.families.precomputed import PrecomputedFamily
from kernels.families.scaled import ScaledFamily
from kernels.families.union import FamilyUnion

__all__ = [
    "CosineFamily",
    "DirichletFamily",
    "FamilyUnion",
    "FeatureFamily",
    "GaussianFamily",
    "KernelFamily",
    "LaplacianFamily",
    "LinearFamily",
    "PolynomialFamily",
    "PrecomputedFamily",
    "ScaledFamily",
]
