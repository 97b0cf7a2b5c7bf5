"""Boosted trees of scikit-learn in model files, in the format of skops."""

from __future__ import annotations

import re
from io import BytesIO
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

TRUSTED = (
    "functools.partial",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.utils.validation.check_array",
)
"""Types of histogram-based gradient boosting trusted in addition to skops.

A `partial` calls only trusted functions.
"""

SCHEMA = "schema.json"
"""Name of the description in a skops archive."""


def estimator_to_array(estimator: BaseEstimator) -> np.ndarray:
    """Return an estimator as bytes of a skops file; ValueError for untrusted types."""
    import skops.io

    content = skops.io.dumps(estimator)
    unknown = sorted(set(skops.io.get_untrusted_types(data=content)) - set(TRUSTED))
    if unknown:
        raise ValueError(
            f"a {type(estimator).__name__} cannot be saved, as its parts {', '.join(unknown):.100} are not trusted in "
            "files; use boosted trees of scikit-learn."
        )
    return np.frombuffer(_with_fixed_names(content), dtype=np.uint8)


def estimator_from_array(content: np.ndarray) -> BaseEstimator:
    """Return the estimator in the bytes of a skops file; ValueError if untrusted."""
    import skops.io
    from sklearn.base import BaseEstimator

    estimator = skops.io.loads(content.tobytes(), trusted=list(TRUSTED))
    if not isinstance(estimator, BaseEstimator):
        raise ValueError(f"an estimator is expected, got a {type(estimator).__name__}")
    return estimator


def _with_fixed_names(content: bytes) -> bytes:
    """Return a skops archive with numbered names and a fixed date."""
    with ZipFile(BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    numbers: dict[str, str] = {}

    def numbered(match: re.Match[str]) -> str:
        return match[1] + numbers.setdefault(match[2], str(len(numbers)))

    schema = re.sub(
        r'("__id__": |"file": ")(\d+)', numbered, files.pop(SCHEMA).decode()
    )
    renamed = {
        f"{numbers[name.removesuffix('.npy')]}.npy": array
        for name, array in files.items()
    }
    fixed = BytesIO()
    with ZipFile(fixed, "w", ZIP_DEFLATED) as archive:
        for name in sorted(renamed):
            archive.writestr(ZipInfo(name), renamed[name], ZIP_DEFLATED)
        archive.writestr(ZipInfo(SCHEMA), schema, ZIP_DEFLATED)
    return fixed.getvalue()
