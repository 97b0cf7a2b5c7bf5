"""From configured families to families of base kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from learnkernels.conf.errors import InputError, did_you_mean, input_errors, listed
from learnkernels.conf.schema import FamilyConfig, FeatureConfig, OwnConfig, grid_values
from learnkernels.kernels import families as kinds
from learnkernels.kernels.families import FeatureFamily, KernelFamily
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.tables import TableFeatures

from ..own import own_family
from .matrices import StoredMatrices

MOST_FEATURES_BY_TILES = 1000
"""Rank-one kernels next to other families, whose statistics come from tiles and hold a matrix per pair of folds."""


def build_family(configs: Sequence[FamilyConfig], features: Sequence[str], where: str = "kernels") -> KernelFamily:
    """Return the base kernels of a configuration over named features.

    Raises
    ------
    InputError
        A family names a column that is not a feature, or too many features are kernels next to other families.
    """
    named = [config for config in configs if config.columns is not None]
    position = positions_of(features) if named else {}
    for config in named:
        unknown = [name for name in config.columns or () if name not in position]
        if unknown or config.columns == ():
            meant = did_you_mean("".join(unknown[:1]), features)
            raise InputError(
                f"{where}: 'columns' of family {config.family} must be some of the features, got "
                f"{', '.join(map(repr, unknown)) or 'none'}; {meant}the features are {listed(features, show=str)}."
            )
    if len(configs) == 1 and isinstance(configs[0], FeatureConfig):
        seen = _seen(configs[0], features)
        return _features(configs[0])([features[c] for c in seen], seen)
    families = [_build(config, features, where) for config in configs]
    if len(configs) == 1 and configs[0].columns is None:
        return families[0]
    columns = [None if config.columns is None else _seen(config, features) for config in configs]
    views = [
        None if config.columns is None or isinstance(config, FeatureConfig) else _view(config.columns)
        for config in configs
    ]
    return kinds.FamilyUnion(families, columns, views)


def positions_of(features: Sequence[str]) -> dict[str, list[int]]:
    """Return the positions of each feature by name, and by the name of a table's column those that it became."""
    position = {name: [c] for c, name in enumerate(features)}
    if isinstance(features, TableFeatures):
        of_columns: dict[str, list[int]] = {}
        for c, owner in enumerate(features.owners):
            of_columns.setdefault(owner, []).append(c)
        position |= of_columns
    return position


def _seen(config: FamilyConfig, features: Sequence[str]) -> list[int]:
    """Return the positions of the features that a family sees."""
    if config.columns is None:
        return list(range(len(features)))
    position = positions_of(features)
    return [c for name in dict.fromkeys(config.columns) for c in position[name]]


def require_varying(configs: Sequence[FamilyConfig], X: Rows, features: Sequence[str], where: str) -> None:
    """Raise InputError if a family sees only features that never vary, or a cosine kernel a row of zeros."""
    extremes = [X.max(axis=0), X.min(axis=0)]
    high, low = (e.todense() if sparse.issparse(e) else e for e in extremes)
    varies = np.asarray(high != low).ravel()
    for config in configs:
        seen = _seen(config, features)
        if not varies[seen].any():
            named = listed([features[c] for c in seen], show=str)
            raise InputError(
                f"{where}: family {config.family} sees only constant features ({named}), so its "
                "kernels are constant; give it features that vary."
            )
        if config.family == "cosine":
            with input_errors(where):
                kinds.CosineFamily().check_rows(X[:, seen])


def _view(columns: Sequence[str]) -> str:
    """Return what a family's columns are called in the names of its base kernels."""
    return ", ".join(columns[:4]) + (f", ... ({len(columns)})" if len(columns) > 4 else "")


def _features(config: FeatureConfig) -> Callable[..., FeatureFamily]:
    return FeatureFamily.with_constant if config.constant else FeatureFamily


_MADE: dict[str, Callable[[Any], KernelFamily]] = {
    "gaussian": lambda config: kinds.GaussianFamily(config.bandwidths()),
    "laplacian": lambda config: kinds.LaplacianFamily(config.bandwidths(), config.norm),
    "categorical": lambda config: kinds.CategoricalFamily(config.bandwidths()),
    "polynomial": lambda config: kinds.PolynomialFamily(config.degrees, config.gamma, config.coef0),
    "dirichlet": lambda config: kinds.DirichletFamily(grid_values(config.frequencies), config.degree),
    "linear": lambda config: kinds.LinearFamily(),
    "cosine": lambda config: kinds.CosineFamily(),
    "constant": lambda config: kinds.ConstantFamily(),
    "precomputed": lambda config: StoredMatrices(config.path).family(),
}
"""How the family of a configuration is made."""


def _build(config: FamilyConfig, features: Sequence[str], where: str) -> KernelFamily:
    if isinstance(config, OwnConfig):
        return own_family(config, where)
    if not isinstance(config, FeatureConfig):
        return _MADE[config.family](config)
    seen = [features[c] for c in _seen(config, features)]
    if len(seen) > MOST_FEATURES_BY_TILES:
        raise InputError(
            f"{where}: family feature next to other families takes at most {MOST_FEATURES_BY_TILES} columns, got "
            f"{len(seen)}; name fewer 'columns', or compare it in a run of its own, where any number works."
        )
    return _features(config)(seen)
