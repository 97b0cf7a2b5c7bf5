"""Balls cut by the orthant: projections meet the conditions that single them out, and the linear minimum its bound."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from learnkernels.kernels.solvers.projected_gradient import minimise_linear, project
from tests.refusals import refusal

NORMS = [1, 2]
# Of the point's distance from the set: sums of a few squares, and a root.
ROUNDING = 1e-12


@st.composite
def problems(draw):
    """Return a point, a centre and a radius; entries repeat, vanish, and differ by orders of magnitude."""
    p = draw(st.integers(1, 8))
    size = draw(st.sampled_from([1.0, 1e-3, 1e4]))
    entry = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 0.5]), st.floats(-3, 3, allow_subnormal=False))
    z = size * np.array(draw(st.lists(entry, min_size=p, max_size=p)))
    mu_0 = np.abs(draw(st.lists(entry, min_size=p, max_size=p)))
    return z, mu_0, draw(st.sampled_from([1e-3, 0.3, 1.0, 2.5, 40.0]))


@settings(max_examples=100)
@given(problems())
def test_projections_are_in_the_set_and_meet_the_optimality_conditions(problem):
    z, mu_0, radius = problem
    size = radius + np.abs(mu_0).max()
    for norm in NORMS:
        mu = project(z, mu_0, radius, norm)
        assert (mu >= 0).all()
        assert np.linalg.norm(mu - mu_0, norm) <= radius + ROUNDING * size
        np.testing.assert_allclose(project(mu, mu_0, radius, norm), mu, rtol=0, atol=ROUNDING * size)
    nu, carried = mu - mu_0, mu > 0  # of the 2-norm
    length = np.linalg.norm(nu)
    # A multiplier t of the ball, not negative, with z - mu = t nu where mu is positive, and z - mu <= t nu elsewhere.
    t = 0.0
    if length > radius * (1 - ROUNDING) and nu[carried].any():
        t = max((z - mu)[carried] @ nu[carried] / (nu[carried] @ nu[carried]), 0.0)
    rest = z - mu - t * nu
    scale = ROUNDING * (size + np.abs(z).max()) * (1 + t)
    assert np.abs(rest[carried]).max(initial=0.0) <= scale
    if carried.any() or not mu_0.any():
        assert rest[~carried].max(initial=0.0) <= scale


@settings(max_examples=40)
@given(problems())
def test_projections_onto_the_1_ball_meet_the_variational_inequality(problem):
    z, mu_0, radius = problem
    mu = project(z, mu_0, radius, 1)
    c = z - mu
    size = np.abs(c).max()
    if size == 0:
        return
    # The largest c . (x - mu) over the set, as a linear program in x = mu_0 + up - down.
    p = len(z)
    found = linprog(
        -np.concatenate([c, -c]) / size,
        A_ub=np.ones((1, 2 * p)),
        b_ub=[radius],
        bounds=[(0, None)] * p + [(0, float(most)) for most in mu_0],
    )
    # The solver's own feasibility and optimality are met to 1e-7.
    assert -found.fun - (c / size) @ (mu - mu_0) <= 1e-6 * (1 + radius)


@pytest.mark.parametrize("norm", NORMS)
def test_no_point_of_the_set_is_nearer_than_the_projection(norm):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        p, radius = int(rng.integers(1, 9)), rng.uniform(0.1, 2)
        z, mu_0 = rng.normal(scale=2, size=p), np.abs(rng.normal(size=p)) * (rng.random(p) < 0.7)
        mu = project(z, mu_0, radius, norm)
        # Points of the set on all scales around the projection: of the ball, moved towards it, and back again.
        for _ in range(100):
            x = project(mu + rng.normal(size=p) * 10.0 ** rng.uniform(-4, 0), mu_0, radius, norm)
            assert (z - mu) @ (x - mu) <= ROUNDING * (1 + np.linalg.norm(z - mu))


def test_far_points_keep_the_radius_scaling_is_another_point_and_other_norms_are_refused():
    z, mu_0 = np.array([3e150, 2e150, -1e150]), np.array([0.2, 0.0, 0.1])
    # The 1-norm moves the largest entry alone; the 2-norm moves all in proportion, downwards to zero at most.
    in_proportion = np.append(np.sqrt(0.99 / 13) * np.array([3.0, 2.0]), -0.1)
    for norm, expected in ((1, [1.0, 0.0, 0.0]), (2, in_proportion)):
        nu = project(z, mu_0, 1.0, norm) - mu_0
        assert np.linalg.norm(nu, norm) == pytest.approx(1.0, rel=1e-14)
        np.testing.assert_allclose(nu, expected, rtol=0, atol=1e-14)
    # After setting to zero, (0, 1.5), and scaling, both entries would be less than half a radius away.
    mu = project(np.array([-2.0, 1.5]), np.full(2, 0.5), 1.0, 2)
    np.testing.assert_allclose(mu, [0.0, 0.5 + np.sqrt(0.75)], rtol=1e-15)
    for call in (project, minimise_linear):
        assert "norm must be 1 or 2, got 3" in refusal(call, -np.ones(2), np.zeros(2), 1.0, 3)


@settings(max_examples=60)
@given(problems())
def test_the_linear_minimum_meets_the_bound_of_hoelder(problem):
    z, mu_0, radius = problem
    g = -np.abs(z)
    for norm in NORMS:
        mu = minimise_linear(g, mu_0, radius, norm)
        assert (mu >= 0).all()
        assert np.linalg.norm(mu - mu_0, norm) <= radius * (1 + 1e-13) + 1e-15 * np.abs(mu_0).max()
        bound = g @ mu_0 - radius * np.linalg.norm(g, np.inf if norm == 1 else 2)
        assert g @ mu == pytest.approx(bound, rel=1e-13)
