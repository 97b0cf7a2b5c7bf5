"""Error bars of alignments and weights that come from a sample of rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from learnkernels.kernels.moments.sampled import SampledMoments
from learnkernels.kernels.parameters import Value

CAUTION = 1.15
"""What error bars are multiplied by, for two reasons to be too small: alignments are skewed, and a sample stops growing
when they come out small. Without it about 94 in 100 intervals of 95% hold, 92 where the tolerance is just reached."""

Statistic = Callable[[SampledMoments], np.ndarray]
"""What has error bars: numbers that follow from first-stage statistics."""

FindWeights = Callable[[SampledMoments], tuple[np.ndarray, np.ndarray]]
"""What a two-stage learner makes of statistics: its weights, and what these make of the base kernels as given."""


@dataclass(frozen=True, eq=False, repr=False)
class Sampling(Value):
    r"""What a kernel learned from a sample of rows is known by: half widths of intervals around what it tells.

    Attributes
    ----------
    n_rows, of_rows : int
        Sampled rows, and the rows they stand for.
    confidence : float
        Probability that an interval contains what all rows would give, each on its own.
    alignment : float or None
        Half width of the alignment of the learned kernel. None where the weights do not come from statistics alone.
    alignments : ndarray of shape (p,) or None
        The same of each base kernel; None where the learner finds its base kernels itself.
    weights : ndarray of shape (p,) or None
        The same of each weight.
    bound : float or None
        What a theorem promises in place of `alignment`, for any distribution: `alignment_concentration` at the sample's
        size and ``delta = 1 - confidence``. None for kernels that it does not cover, those with negative weights.

    Notes
    -----
    Intervals are from the sample's own parts, see `half_width`; infinite ones say that it is too small to tell. Those
    of weights that a learner moves in and out of zero, or between kernels that are nearly equal, hold less often than
    the others: for `alignf` on Gaussians of neighbouring widths half the time, at worst.

    The bound is of an independent sample of a distribution, for a kernel fixed beforehand, with upper bounds R^2 of
    K(x, x) of the kernel before centering. To move all features by one vector changes no alignment, so the R^2 here is
    that of features less their mean, and the largest over the sample stands for the largest of all. It is far wider
    than the interval, and says nothing above one.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, Theorem 12 (the bound).
    """

    n_rows: int
    of_rows: int
    confidence: float
    alignment: float | None = None
    alignments: np.ndarray | None = None
    weights: np.ndarray | None = None
    bound: float | None = None

    @classmethod
    def of(cls, moments: SampledMoments, find: FindWeights | None = None) -> Sampling:
        """Return the error bars of what a learner finds from sampled moments.

        Parameters
        ----------
        moments : SampledMoments
            Statistics of the sample.
        find : callable, optional
            ``find(moments) -> weights, coefficients``, both of shape (p,): the weights, and what they make of the base
            kernels as given. None for a learner that needs more than moments: only the base kernels' alignments then
            have error bars.
        """
        only = cls(moments.n_rows, moments.total_rows, moments.confidence)
        if find is None:
            return replace(only, alignments=half_width(moments, lambda part: part.alignments))

        def found(part: SampledMoments) -> np.ndarray:
            weights, coefficients = find(part)
            return np.concatenate([[alignment_of(part, coefficients)], part.alignments, weights])

        p, widths = moments.n_kernels, half_width(moments, found)
        return replace(
            only,
            alignment=float(widths[0]),
            alignments=widths[1 : p + 1],
            weights=widths[p + 1 :],
            bound=concentration(moments, find(moments)[1]),
        )


def alignment_of(moments: SampledMoments, coefficients: np.ndarray) -> float:
    """Return the alignment of a weighted sum of base kernels; zero where all weights are, its limit."""
    return moments.alignment(coefficients) if coefficients.any() else 0.0


def half_width(moments: SampledMoments, statistic: Statistic) -> np.ndarray:
    r"""Return the half width of the interval around a statistic that is to contain its value of all rows.

    With the statistic :math:`\theta`, that without part g :math:`\theta_g`, n_g rows of that part and
    :math:`h_g = n / n_g`, the jackknife's mean and variance and the half width are

    .. math:: \theta_J = G \theta - \sum_g \big(1 - \tfrac{1}{h_g}\big) \theta_g, \qquad
              v = \frac1G \sum_g \frac{(h_g \theta - (h_g - 1) \theta_g - \theta_J)^2}{h_g - 1}
    .. math:: c \, t_{G-1} \sqrt{(1 - n / m) \, v} + (1 - n / m) \, | \theta - \theta_J |

    where :math:`t_{G-1}` is the quantile of Student's distribution, c is `CAUTION` and the last term the bias of a
    ratio, which for very narrow kernels is larger than its spread.

    Parameters
    ----------
    moments : SampledMoments
        Statistics of the sample.
    statistic : callable
        ``statistic(moments)`` returns a number or an array.

    Returns
    -------
    widths : ndarray
        Of the shape of the statistic. Zero where the sample holds all rows, infinite where the target is constant
        without some part of it.

    Notes
    -----
    G times the cost of the statistic, and O(G p n).

    References
    ----------
    Busing, Meijer, van der Leeden (1999), Statistics and Computing 9:3-8 (the jackknife with parts of unequal
    size). Cochran (1977), Sampling Techniques, section 2.6 (the factor 1 - n / m).
    """
    theta = np.asarray(statistic(moments), dtype=np.float64)
    if moments.exact:
        return np.zeros_like(theta)
    values, G = [], len(moments.sample.labels)
    for part in moments.replicates() if G > 1 else ():
        if not np.ptp(part.targets, axis=0).any():
            return np.full_like(theta, np.inf)
        values.append(np.asarray(statistic(part), dtype=np.float64))
    if not values:
        return np.full_like(theta, np.inf)
    without = np.stack(values)
    h = (moments.n_rows / np.bincount(moments.sample.group)).reshape(G, *[1] * theta.ndim)
    centre = G * theta - ((1 - 1 / h) * without).sum(axis=0)
    variance = ((h * theta - (h - 1) * without - centre) ** 2 / (h - 1)).mean(axis=0)
    left_out = 1 - moments.n_rows / moments.total_rows
    spread = CAUTION * _t_quantile(moments.confidence, G - 1) * np.sqrt(left_out * variance)
    return np.asarray(spread + left_out * np.abs(theta - centre))


def _t_quantile(confidence: float, freedom: int) -> float:
    from scipy.stats import t  # here, because it takes as long to import as all else

    return float(t.ppf((1 + confidence) / 2, freedom))


def concentration(moments: SampledMoments, coefficients: np.ndarray) -> float | None:
    """Return Theorem 12's bound for ``sum_k coefficients_k K_k``, see `Sampling`; None if one is negative."""
    if moments.exact:
        return 0.0
    squared_norm = float(coefficients @ moments.frobenius @ coefficients)
    if (coefficients < 0).any() or not squared_norm > 0:
        return None
    radius = float((coefficients @ moments.centered_diagonals).max())
    other = float(moments.target_diagonal.max())
    m = moments.total_rows
    # No kernel within R^2 has a mean square above R^4; its estimate may have, by its error.
    squares = min(squared_norm / m**2, radius**2), min((moments.target_norm / m) ** 2, other**2)
    return alignment_concentration(moments.n_rows, 1 - moments.confidence, radius, other, *squares)


def alignment_concentration(
    sample_size: int,
    delta: float,
    radius_squared: float,
    other_radius_squared: float,
    expected_square: float,
    other_expected_square: float,
) -> float:
    r"""Return how far the alignment of a sample may lie from the population's, whatever the distribution.

    .. math:: |\rho - \hat\rho| \le 18 \beta \left[ \frac{3}{m} + 4 \sqrt{\frac{\log(6 / \delta)}{2 m}} \right],
              \qquad \beta = \max \left( \frac{R^4}{E[K_c^2]}, \frac{R'^4}{E[K_c'^2]} \right)

    Parameters
    ----------
    sample_size : int
        m; the sample is independent and identically distributed.
    delta : float
        Probability that the bound may fail, in (0, 1).
    radius_squared, other_radius_squared : float
        R^2 and R'^2, positive: upper bounds of K(x, x) and K'(x, x), of the kernels before centering.
    expected_square, other_expected_square : float
        E[K_c^2] and E[K_c'^2], positive, of the centered kernels; at most R^4 and R'^4.

    Returns
    -------
    bound : float
        Dimensionless, unchanged when a kernel is scaled. Above one it says nothing.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, Theorem 12, as it holds; docs/bounds.md has what is printed.
    """
    beta = max(radius_squared**2 / expected_square, other_radius_squared**2 / other_expected_square)
    return 18.0 * beta * (3.0 / sample_size + 4.0 * math.sqrt(math.log(6.0 / delta) / (2.0 * sample_size)))
