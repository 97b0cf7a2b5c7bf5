"""Sizes of samples under a time limit, for known times of fits."""

from collections.abc import Callable

import numpy as np
import pytest

from learnkernels.kernels.estimators.time_budget import (
    FIRST_ROWS,
    MOST_GROWTH,
    MeasuredFits,
)

TIMES: dict[str, Callable[[float], float]] = {
    "mostly constant": lambda n: 0.5 + 1e-4 * n,
    "linear": lambda n: 1e-3 * n,
    "quadratic": lambda n: 1e-6 * n**2,
    "cubic": lambda n: 1e-9 * n**3,
    "constant, then cubic": lambda n: 0.3 + 1e-9 * n**3,
    # A default regressor: metrics of at most 1,500 rows, and a factorization.
    "search and factorization": lambda n: 2e-6 * min(n, 1500) ** 2 + 2e-11 * n**3,
}


def simulated_fits(
    seconds_of: Callable[[float], float], limit: float, n_all: int
) -> tuple[int, float]:
    """Return the number of rows of the last fit under a time limit, and the time of all fits."""
    fits = MeasuredFits()
    n_rows = min(FIRST_ROWS, n_all)
    total = 0.0
    while True:
        total += seconds_of(n_rows)
        if n_rows == n_all:
            return n_rows, total
        fits = fits.plus(n_rows, seconds_of(n_rows))
        n_next = fits.next_rows(limit - total, n_all)
        if n_next is None:
            return n_rows, total
        assert n_next > n_rows
        n_rows = n_next


@pytest.mark.parametrize("kind", TIMES)
@pytest.mark.parametrize("limit", [3.0, 20.0, 300.0])
def test_samples_use_the_time_approximately(kind: str, limit: float):
    _, total = simulated_fits(TIMES[kind], limit, n_all=10**7)
    # A sample is too large where the time begins to grow faster, and too small where
    # the most growth ends it.
    assert 0.35 * limit <= total <= 2.0 * limit
    n_rows, _ = simulated_fits(TIMES[kind], limit, n_all=FIRST_ROWS + 50)
    assert n_rows == FIRST_ROWS + 50


@pytest.mark.parametrize("power", [1.5, 2.0, 2.5, 3.0])
@pytest.mark.parametrize("seconds_left", [1.0, 3.0, 10.0])
def test_the_next_sample_is_the_largest_that_fits(power: float, seconds_left: float):
    unit = 0.1 / 500**power
    fits = MeasuredFits().plus(250, unit * 250**power).plus(500, unit * 500**power)
    n_next = fits.next_rows(seconds_left, n_all=10**6)
    assert n_next is not None
    assert n_next <= MOST_GROWTH * 500
    assert fits.expected_seconds(n_next) == pytest.approx(unit * n_next**power)
    assert fits.expected_seconds(n_next) <= seconds_left * (1 + 1e-9)
    assert (
        n_next == MOST_GROWTH * 500 or fits.expected_seconds(n_next + 1) > seconds_left
    )
    assert fits.next_rows(seconds_left, n_all=600) == 600


def test_few_rows_more_are_not_worth_a_fit_unless_they_are_all():
    fits = MeasuredFits().plus(250, 1.0).plus(500, 4.0)
    seconds = 4.0 * 1.2**2
    assert fits.next_rows(seconds, n_all=10_000) is None
    assert fits.next_rows(seconds * 1.01, n_all=600) == 600
    assert fits.next_rows(-1.0, n_all=600) is None
    assert fits.next_rows(0.0, n_all=600) is None


def test_the_time_of_all_rows_is_extrapolated_by_the_growth_of_the_last_two_fits():
    one_fit = MeasuredFits().plus(250, 1.0)
    assert one_fit.expected_seconds(1000) == pytest.approx(16.0)
    assert one_fit.next_rows(100.0, n_all=1000) == 500
    fits = one_fit.plus(500, 2.0 ** np.array(2.5))
    assert fits.exponent == pytest.approx(2.5)
    assert fits.expected_seconds(1000) == pytest.approx(2.0**5)
    # Part of the time of small fits is constant
    assert one_fit.plus(500, 1.0).exponent == 1.5
    assert one_fit.plus(500, 100.0).exponent == 3.0
