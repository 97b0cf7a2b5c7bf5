"""Families of base kernels, one file a family."""

from kernels.families.base import KernelFamily
from kernels.families.gaussian import GaussianFamily
from kernels.families.linear import LinearFamily
from kernels.families.polynomial import PolynomialFamily
from kernels.families.union import FamilyUnion

__all__ = ["FamilyUnion", "GaussianFamily", "KernelFamily", "LinearFamily", "PolynomialFamily"]
