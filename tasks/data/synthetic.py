"""Data sets that are drawn from a known distribution, where it is known what a learner should find."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from learnkernels.conf.errors import InputError, did_you_mean

FEWEST_ROWS = 10

FREQUENCIES = (2.0**0.5, 12.0**0.5, 60.0**0.5)
"""Of the sines whose sum has the sign that `three_sines` is labeled with."""

DISTANCE = 1.75
"""Of the mean of each class of `relevance` from zero."""

Drawn = tuple[np.ndarray, np.ndarray]
"""X (m, d), and labels of minus and plus one or numbers (m,)."""


def three_sines(rng: np.random.Generator, rows: int = 2000) -> Drawn:
    r"""Return numbers of :math:`[-10, 10]` with the sign of a sum of three sines, a task without noise.

    .. math:: y(x) = \mathrm{sign}\bigl(\sin(\sqrt{2} x) + \sin(\sqrt{12} x) + \sin(\sqrt{60} x)\bigr)

    References
    ----------
    Afkanpour, Szepesvari, Bowling (2013), Machine Learning 91:305-324, section 3.1.
    """
    x = rng.uniform(-10.0, 10.0, rows)
    return x[:, None], np.where(sum(np.sin(sigma * x) for sigma in FREQUENCIES) > 0, 1, -1)


def relevance(rng: np.random.Generator, rows: int = 2050, gamma: float = 0.0, features: int = 50) -> Drawn:
    r"""Return two equally likely Gaussian classes whose means differ by as much as each feature is relevant.

    .. math:: x \mid y \sim N(y \rho \theta / \lVert \theta \rVert, I), \qquad \theta_i = (i / d)^\gamma

    With :math:`\rho = 1.75`; the best rule, the sign of :math:`\theta \cdot x`, errs with probability
    :math:`\Phi(-\rho) = 0.040` whatever gamma.

    References
    ----------
    Afkanpour, Szepesvari, Bowling (2013), Machine Learning 91:305-324, section 3.1.
    """
    theta = relevances(gamma, features)
    y = np.where(rng.random(rows) < 0.5, 1, -1)
    return rng.standard_normal((rows, features)) + DISTANCE * np.outer(y, theta / np.linalg.norm(theta)), y


def relevances(gamma: float, features: int) -> np.ndarray:
    """Return theta of `relevance`, shape (d,), in (0, 1] and 1 for the last feature."""
    return (np.arange(1, features + 1) / features) ** gamma


def friedman(rng: np.random.Generator, rows: int = 2000, irrelevant: int = 15) -> Drawn:
    r"""Return rows of a unit cube, of whose features five matter, and numbers with noise of deviation one.

    .. math:: y(x) = 10 \sin(\pi x_1 x_2) + 20 (x_3 - 1/2)^2 + 10 x_4 + 5 x_5 + N(0, 1)

    References
    ----------
    Friedman (1991), Multivariate Adaptive Regression Splines, Annals of Statistics 19:1-67, section 4.3.
    """
    X = rng.random((rows, 5 + irrelevant))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    return X, y + rng.standard_normal(rows)


SYNTHETIC: dict[str, Callable[..., Drawn]] = {"three_sines": three_sines, "relevance": relevance, "friedman": friedman}

_LEAST: dict[str, tuple[bool, float, str]] = {
    "rows": (True, FEWEST_ROWS, f"a whole number of at least {FEWEST_ROWS}"),
    "features": (True, 1, "a whole number of at least 1"),
    "gamma": (False, 0.0, "a number of at least 0"),
    "irrelevant": (True, 0, "a whole number of at least 0"),
}
"""Whether a parameter is a whole number, its least value, and what a user calls that."""


def read_synthetic(
    name: str, params: Mapping[str, Any], seed: int, drop: tuple[str, ...], where: str
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Return rows, labels of minus and plus one or numbers, and the features' names, x1 to xd, of a synthetic data set.

    Raises
    ------
    InputError
        The name or a parameter is unknown, a parameter is out of its range, or `drop` names no feature or all of them.
    """
    require_params(name, params, where)
    X, y = SYNTHETIC[name](np.random.default_rng(seed), **params)
    features = tuple(f"x{c}" for c in range(1, X.shape[1] + 1))
    kept = [c for c, feature in enumerate(features) if feature not in drop]
    if not kept or not set(drop) <= set(features):
        raise InputError(
            f"{where}: 'drop' must leave out some of the features x1 to x{len(features)}, got {', '.join(drop)}; "
            "correct it."
        )
    return X[:, kept], y, tuple(features[c] for c in kept)


def require_params(name: str, params: Mapping[str, Any], where: str) -> None:
    """Refuse the name of a synthetic data set, or a parameter, that is unknown, or a parameter out of its range.

    Raises
    ------
    InputError
    """
    if name not in SYNTHETIC:
        raise InputError(f"{where}: there is no synthetic data set {name!r}; choose one of {', '.join(SYNTHETIC)}.")
    taken = list(inspect.signature(SYNTHETIC[name]).parameters)[1:]
    for key, value in params.items():
        if key not in taken:
            raise InputError(
                f"{where}: {name} has no parameter {key!r}; {did_you_mean(key, taken)}it takes {', '.join(taken)}."
            )
        whole, least, expected = _LEAST[key]
        number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not number or not least <= value < np.inf:
            raise InputError(f"{where}: 'params.{key}' of {name} must be {expected}, got {value!r}; correct it.")
