"""Balls cut by the orthant: projections meet the conditions that single them out, and the linear minimum its bound."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnkernels.kernels.solvers.projected_gradient import minimize_linear, project

NORMS = [1, 2]
# Of the point's distance from the set: sums of a few squares, and a root.
ROUNDING = 1e-12


@st.composite
def problems(draw):
    """Return a point, a center and a radius; entries repeat, vanish, and differ by orders of magnitude."""
    p = draw(st.integers(1, 8))
    size = draw(st.sampled_from([1.0, 1e-3, 1e4]))
    entry = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 0.5]), st.floats(-3, 3, allow_subnormal=False))
    z = size * np.array(draw(st.lists(entry, min_size=p, max_size=p)))
    mu_0 = np.abs(draw(st.lists(entry, min_size=p, max_size=p)))
    return z, mu_0, draw(st.sampled_from([1e-3, 0.3, 1.0, 2.5, 40.0]))


@settings(max_examples=100)
@given(problems())
def test_projections_are_in_the_set_and_meet_the_optimality_conditions(problem):
    z, _, radius = problem
    z = np.abs(z)
    size = radius + z.max()
    for norm in NORMS:
        nu = project(z, radius, norm)
        assert (nu >= 0).all()
        assert np.linalg.norm(nu, norm) <= radius * (1 + ROUNDING)
        np.testing.assert_allclose(project(nu, radius, norm), nu, rtol=0, atol=ROUNDING * radius)
        # The largest product of a point of the set with what is left is that of the projection itself.
        left = z - nu
        bound = radius * np.linalg.norm(np.maximum(left, 0), np.inf if norm == 1 else 2)
        assert bound - left @ nu <= ROUNDING * size**2


def test_far_points_keep_the_radius():
    z = np.array([3e150, 2e150, 0.0])
    # The 1-norm moves the largest entry alone; the 2-norm moves all in proportion.
    for norm, expected in ((1, [1.0, 0.0, 0.0]), (2, z / np.hypot(3e150, 2e150))):
        np.testing.assert_allclose(project(z, 1.0, norm), expected, rtol=0, atol=1e-14)


@settings(max_examples=60)
@given(problems())
def test_the_linear_minimum_meets_the_bound_of_hoelder(problem):
    z, mu_0, radius = problem
    g = -np.abs(z)
    for norm in NORMS:
        mu = minimize_linear(g, mu_0, radius, norm)
        assert (mu >= 0).all()
        assert np.linalg.norm(mu - mu_0, norm) <= radius * (1 + 1e-13) + 1e-15 * np.abs(mu_0).max()
        bound = g @ mu_0 - radius * np.linalg.norm(g, np.inf if norm == 1 else 2)
        assert g @ mu == pytest.approx(bound, rel=1e-13)
