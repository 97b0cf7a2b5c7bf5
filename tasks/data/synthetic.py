"""Synthetic data sets from known distributions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from learnkernels.conf.errors import InputError, did_you_mean

DISTANCE = 1.75
"""Distance of each class mean of `relevance` from zero."""

Drawn = tuple[np.ndarray, np.ndarray]
"""X of shape (m, d) and y of shape (m,)."""


def three_sines(rng: np.random.Generator, rows: int = 2000) -> Drawn:
    r"""Draw one feature from :math:`[-10, 10]`, labeled by the sign of a sum of sines.

    .. math:: y(x) = \mathrm{sign}\bigl(\sin(\sqrt{2} x) + \sin(\sqrt{12} x)
        + \sin(\sqrt{60} x)\bigr)

    See Afkanpour, Szepesvari, Bowling (2013), section 3.1.
    """
    x = rng.uniform(-10.0, 10.0, rows)
    sines = np.sin(np.sqrt(2) * x) + np.sin(np.sqrt(12) * x) + np.sin(np.sqrt(60) * x)
    return x[:, None], np.where(sines > 0, 1, -1)


def relevance(
    rng: np.random.Generator, rows: int = 2050, gamma: float = 0.0, features: int = 50
) -> Drawn:
    r"""Draw two Gaussian classes whose means differ by each feature's relevance.

    .. math:: x \mid y \sim N(y \rho \theta / \lVert \theta \rVert, I),
        \qquad \theta_i = (i / d)^\gamma

    With :math:`\rho = 1.75`, the Bayes error is 0.040. See Afkanpour, Szepesvari,
    Bowling (2013), section 3.1.
    """
    theta = relevances(gamma, features)
    direction = theta / np.linalg.norm(theta)
    y = np.where(rng.random(rows) < 0.5, 1, -1)
    noise = rng.standard_normal((rows, features))
    return noise + DISTANCE * np.outer(y, direction), y


def relevances(gamma: float, features: int) -> np.ndarray:
    """Relevance theta of each feature, with which its class means differ."""
    return (np.arange(1, features + 1) / features) ** gamma


def friedman(rng: np.random.Generator, rows: int = 2000, irrelevant: int = 15) -> Drawn:
    r"""Draw rows from a unit cube, and targets that depend on the first five features.

    .. math:: y(x) = 10 \sin(\pi x_1 x_2) + 20 (x_3 - 1/2)^2 + 10 x_4 + 5 x_5 + N(0, 1)

    See Friedman (1991), Annals of Statistics 19:1-67, section 4.3.
    """
    X = rng.random((rows, 5 + irrelevant))
    y = (
        10 * np.sin(np.pi * X[:, 0] * X[:, 1])
        + 20 * (X[:, 2] - 0.5) ** 2
        + 10 * X[:, 3]
        + 5 * X[:, 4]
    )
    return X, y + rng.standard_normal(rows)


SYNTHETIC: dict[str, Callable[..., Drawn]] = {
    "three_sines": three_sines,
    "relevance": relevance,
    "friedman": friedman,
}

_PARAMS: dict[str, tuple[type, int]] = {
    "rows": (int, 10),
    "features": (int, 1),
    "gamma": (float, 0),
    "irrelevant": (int, 0),
}
"""Type and lowest value of each parameter."""


def read_synthetic(
    name: str, params: Mapping[str, Any], seed: int, drop: tuple[str, ...], where: str
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Draw a synthetic data set; return rows, target and feature names."""
    require_params(name, params, where)
    X, y = SYNTHETIC[name](np.random.default_rng(seed), **params)
    features = tuple(f"x{c}" for c in range(1, X.shape[1] + 1))
    positions = [
        position for position, feature in enumerate(features) if feature not in drop
    ]
    if not positions or not set(drop) <= set(features):
        raise InputError(
            f"{where}: 'drop' must leave out some of the features x1 to x{len(features)}, got {', '.join(drop)}; "
            "correct it."
        )
    return X[:, positions], y, tuple(features[position] for position in positions)


def require_params(name: str, params: Mapping[str, Any], where: str) -> None:
    """Raise InputError for an unknown synthetic data set or invalid parameters."""
    if name not in SYNTHETIC:
        raise InputError(
            f"{where}: there is no synthetic data set {name!r}; choose one of {', '.join(SYNTHETIC)}."
        )
    _, *valid = inspect.signature(
        SYNTHETIC[name]
    ).parameters  # the first is the generator
    for key, value in params.items():
        if key not in valid:
            meant = did_you_mean(key, valid)
            raise InputError(
                f"{where}: {name} has no parameter {key!r}; {meant}it takes {', '.join(valid)}."
            )
        kind, lowest = _PARAMS[key]
        is_number = isinstance(value, int | kind) and not isinstance(value, bool)
        if not is_number or not lowest <= value < np.inf:
            description = "a whole number" if kind is int else "a number"
            raise InputError(
                f"{where}: 'params.{key}' of {name} must be {description} of at least {lowest}, got {value!r}; "
                "correct it."
            )
