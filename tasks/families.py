"""From configured families to families of base kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from conf.errors import InputError
from conf.schema import FamilyConfig, GaussianConfig, PolynomialConfig, grid_values
from kernels import FamilyUnion, GaussianFamily, KernelFamily, LinearFamily, PolynomialFamily
from kernels.families.base import Rows


def build_family(configs: Sequence[FamilyConfig], features: Sequence[str], where: str = "kernels") -> KernelFamily:
    """Return the base kernels of a configuration over named features.

    Raises
    ------
    InputError
        A family names a column that is not a feature.
    """
    position = {name: c for c, name in enumerate(features)}
    for config in configs:
        unknown = [name for name in config.columns or () if name not in position]
        if unknown or config.columns == ():
            raise InputError(
                f"{where}: 'columns' of family {config.family} must be some of the features, got "
                f"{', '.join(map(repr, unknown)) or 'none'}; the features are {_shown(features, 12)}."
            )
    families = [_build(config) for config in configs]
    if len(configs) == 1 and configs[0].columns is None:
        return families[0]
    columns = [None if config.columns is None else [position[name] for name in config.columns] for config in configs]
    views = [None if config.columns is None else _shown(config.columns, 4) for config in configs]
    return FamilyUnion(families, columns, views)


def require_varying(configs: Sequence[FamilyConfig], X: Rows, features: Sequence[str], where: str) -> None:
    """Raise InputError if a family sees only features that never vary: its kernels would be constant."""
    extremes = [X.max(axis=0), X.min(axis=0)]
    high, low = (e.todense() if sparse.issparse(e) else e for e in extremes)
    varies = np.asarray(high != low).ravel()
    for config in configs:
        seen = list(features) if config.columns is None else list(config.columns)
        if not any(varies[list(features).index(name)] for name in seen):
            raise InputError(
                f"{where}: family {config.family} sees only constant features ({_shown(seen, 5)}), so its kernels are "
                "constant; give it features that vary."
            )


def _shown(names: Sequence[str], most: int) -> str:
    more = f", ... ({len(names)})" if len(names) > most else ""
    return ", ".join(list(names)[:most]) + more


def _build(config: FamilyConfig) -> KernelFamily:
    if isinstance(config, GaussianConfig):
        return GaussianFamily(grid_values(config.gammas))
    if isinstance(config, PolynomialConfig):
        return PolynomialFamily(config.degrees, config.gamma, config.coef0)
    return LinearFamily()
