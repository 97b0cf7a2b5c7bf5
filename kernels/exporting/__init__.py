"""Fitted models as Python modules that predict with only NumPy.

Imports: column_encoding, families, files, learned_kernel, predictors.
"""

from .module_file import write_module

__all__ = ["write_module"]
