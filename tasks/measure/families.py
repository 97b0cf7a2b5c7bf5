"""Build families of base kernels from their configurations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from learnkernels.conf.errors import InputError, did_you_mean, input_errors, listed
from learnkernels.conf.schema import FamilyConfig, FeatureConfig, OwnConfig, grid_values
from learnkernels.kernels import families as kinds
from learnkernels.kernels.column_encoding import TableFeatures
from learnkernels.kernels.families import FeatureFamily, KernelFamily
from learnkernels.kernels.families.base import Rows

from ..plugins import custom_family
from .matrices import StoredMatrices

MOST_FEATURES_BY_TILES = 1000
"""Most rank-one kernels next to other families, which need matrices for fold pairs."""


def build_family(
    configs: Sequence[FamilyConfig], features: Sequence[str], where: str = "kernels"
) -> KernelFamily:
    """Build base kernels from their configurations; InputError for unknown features."""
    _require_known_columns(configs, features, where)
    if len(configs) == 1:
        config = configs[0]
        if isinstance(config, FeatureConfig):
            positions = _positions(config, features)
            return _feature_family(config)([features[c] for c in positions], positions)
        if config.columns is None:
            return _build(config, features, where)
    families = [_build(config, features, where) for config in configs]
    columns = [
        None if config.columns is None else _positions(config, features)
        for config in configs
    ]
    return kinds.FamilyUnion(
        families, columns, [_title_of_columns(config) for config in configs]
    )


def _require_known_columns(
    configs: Sequence[FamilyConfig], features: Sequence[str], where: str
) -> None:
    valid_names = positions_of(features)
    for config in configs:
        if config.columns is None:
            continue
        unknown = [name for name in config.columns if name not in valid_names]
        if unknown or not config.columns:
            hint = did_you_mean("".join(unknown[:1]), features)
            raise InputError(
                f"{where}: 'columns' of family {config.family} must be some of the features, got "
                f"{', '.join(map(repr, unknown)) or 'none'}; {hint}the features are {listed(features, show=str)}."
            )


def positions_of(features: Sequence[str]) -> dict[str, list[int]]:
    """Return positions of features, by name of a feature or its table column."""
    positions = {name: [c] for c, name in enumerate(features)}
    if isinstance(features, TableFeatures):
        positions |= positions_by_name(features.owners)
    return positions


def positions_by_name(names: Sequence[str]) -> dict[str, list[int]]:
    positions: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        positions.setdefault(name, []).append(position)
    return positions


def _positions(config: FamilyConfig, features: Sequence[str]) -> list[int]:
    if config.columns is None:
        return list(range(len(features)))
    positions_by_name = positions_of(features)
    positions = []
    for name in dict.fromkeys(config.columns):
        positions += positions_by_name[name]
    return positions


def require_varying(
    configs: Sequence[FamilyConfig], X: Rows, features: Sequence[str], where: str
) -> None:
    """Raise InputError if a feature is constant, or a row is all zeros with a cosine kernel."""
    highest = X.max(axis=0)
    lowest = X.min(axis=0)
    if sparse.issparse(highest):
        highest = highest.todense()
        lowest = lowest.todense()
    varies = np.asarray(highest != lowest).ravel()
    for config in configs:
        positions = _positions(config, features)
        if not varies[positions].any():
            names = listed([features[c] for c in positions], show=str)
            raise InputError(
                f"{where}: family {config.family} sees only constant features ({names}), so its "
                "kernels are constant; give it features that vary."
            )
        if config.family == "cosine":
            with input_errors(where):
                kinds.CosineFamily().check_rows(X[:, positions])


def _title_of_columns(config: FamilyConfig) -> str | None:
    if config.columns is None or isinstance(config, FeatureConfig):
        return None
    names = ", ".join(config.columns[:4])
    if len(config.columns) > 4:
        names += f", ... ({len(config.columns)})"
    return names


def _feature_family(config: FeatureConfig) -> Callable[..., FeatureFamily]:
    if config.constant:
        return FeatureFamily.with_constant
    return FeatureFamily


_BUILDERS: dict[str, Callable[[Any], KernelFamily]] = {
    "gaussian": lambda config: kinds.GaussianFamily(config.bandwidths()),
    "laplacian": lambda config: kinds.LaplacianFamily(config.bandwidths(), config.norm),
    "categorical": lambda config: kinds.CategoricalFamily(config.bandwidths()),
    "polynomial": lambda config: kinds.PolynomialFamily(
        config.degrees, config.gamma, config.coef0
    ),
    "dirichlet": lambda config: kinds.DirichletFamily(
        grid_values(config.frequencies), config.degree
    ),
    "linear": lambda config: kinds.LinearFamily(),
    "cosine": lambda config: kinds.CosineFamily(),
    "constant": lambda config: kinds.ConstantFamily(),
    "precomputed": lambda config: StoredMatrices(config.path).family(),
}


def _build(config: FamilyConfig, features: Sequence[str], where: str) -> KernelFamily:
    if isinstance(config, OwnConfig):
        return custom_family(config, where)
    if not isinstance(config, FeatureConfig):
        return _BUILDERS[config.family](config)
    names = [features[c] for c in _positions(config, features)]
    if len(names) > MOST_FEATURES_BY_TILES:
        raise InputError(
            f"{where}: family feature next to other families takes at most {MOST_FEATURES_BY_TILES} columns, got "
            f"{len(names)}; name fewer 'columns', or compare it in a run of its own, where any number works."
        )
    return _feature_family(config)(names)
