"""Tables with categories, dates and missing values, as rows of numbers.

Imports: base, families, registry, targets, validation.
"""

from .columns import EncodingReport
from .encoding import TableEncoding, TableFeatures, shares_by_column, target_of
from .reading import is_table

__all__ = [
    "EncodingReport",
    "TableEncoding",
    "TableFeatures",
    "is_table",
    "shares_by_column",
    "target_of",
]
