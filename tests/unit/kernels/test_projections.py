"""Balls cut by the orthant: projections meet the conditions that single them out, and the linear minimum its bound."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, linprog, minimize

from learnkernels.kernels.solvers.projected_gradient import minimise_linear, project

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


def seeded(seed: int):
    rng = np.random.default_rng(seed)
    p = int(rng.integers(1, 9))
    return rng.normal(scale=2, size=p), np.abs(rng.normal(size=p)) * (rng.random(p) < 0.7), rng.uniform(0.1, 2)


@settings(max_examples=100)
@given(problems(), st.sampled_from(NORMS))
def test_projections_are_in_the_set_and_those_of_its_points_are_the_points(problem, norm):
    z, mu_0, radius = problem
    mu = project(z, mu_0, radius, norm)
    assert (mu >= 0).all()
    size = radius + np.abs(mu_0).max()
    assert np.linalg.norm(mu - mu_0, norm) <= radius + ROUNDING * size
    np.testing.assert_allclose(project(mu, mu_0, radius, norm), mu, rtol=0, atol=ROUNDING * size)


@settings(max_examples=100)
@given(problems())
def test_projections_onto_the_2_ball_meet_the_optimality_conditions(problem):
    z, mu_0, radius = problem
    mu = project(z, mu_0, radius, 2)
    size = np.abs(z).max() + np.abs(mu_0).max() + radius
    nu, carried = mu - mu_0, mu > 0
    length = np.linalg.norm(nu)
    # A multiplier t of the ball, not negative, with z - mu = t nu where mu is positive, and z - mu <= t nu elsewhere.
    t = 0.0
    if length > radius * (1 - ROUNDING) and nu[carried].any():
        t = max((z - mu)[carried] @ nu[carried] / (nu[carried] @ nu[carried]), 0.0)
    rest = z - mu - t * nu
    scale = ROUNDING * size * (1 + t)
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


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("norm", NORMS)
def test_no_point_of_the_set_is_nearer_than_the_projection(seed, norm):
    z, mu_0, radius = seeded(seed)
    mu = project(z, mu_0, radius, norm)
    rng = np.random.default_rng(seed)
    # Points of the set on all scales around the projection: any point of the ball, moved towards it, and back again.
    for _ in range(100):
        x = project(mu + rng.normal(size=len(z)) * 10.0 ** rng.uniform(-4, 0), mu_0, radius, norm)
        assert (z - mu) @ (x - mu) <= ROUNDING * (1 + np.linalg.norm(z - mu))


@pytest.mark.parametrize("seed", range(8))
def test_projections_are_those_of_a_general_solver(seed):
    z, mu_0, radius = seeded(seed)
    p = len(z)
    options = {"ftol": 1e-14, "maxiter": 500}
    ball = {
        "type": "ineq",
        "fun": lambda mu: radius**2 - (mu - mu_0) @ (mu - mu_0),
        "jac": lambda mu: -2 * (mu - mu_0),
    }
    found = minimize(
        lambda mu: ((mu - z) @ (mu - z), 2 * (mu - z)),
        mu_0,
        jac=True,
        method="SLSQP",
        bounds=[(0, None)] * p,
        constraints=[ball],
        options=options,
    )
    # A general solver stops near the root of its tolerance.
    np.testing.assert_allclose(project(z, mu_0, radius, 2), found.x, rtol=0, atol=1e-6)

    def split(x):
        rest = mu_0 + x[:p] - x[p:] - z
        return rest @ rest, 2 * np.concatenate([rest, -rest])

    found = minimize(
        split,
        np.zeros(2 * p),
        jac=True,
        method="SLSQP",
        bounds=[(0, None)] * p + [(0, most) for most in mu_0],
        constraints=[LinearConstraint(np.ones((1, 2 * p)), -np.inf, radius)],
        options=options,
    )
    expected = mu_0 + found.x[:p] - found.x[p:]
    np.testing.assert_allclose(project(z, mu_0, radius, 1), expected, rtol=0, atol=1e-6)


def test_setting_to_zero_and_scaling_is_another_point():
    z, mu_0 = np.array([-2.0, 1.5]), np.array([0.5, 0.5])
    clipped = np.maximum(z, 0)
    scaled = mu_0 + (clipped - mu_0) / np.linalg.norm(clipped - mu_0)
    mu = project(z, mu_0, 1.0, 2)
    assert np.linalg.norm(mu - z) < np.linalg.norm(scaled - z) - 0.01
    np.testing.assert_allclose(mu, [0.0, 0.5 + np.sqrt(0.75)], rtol=1e-15)


@pytest.mark.parametrize("norm", NORMS)
def test_far_points_keep_the_radius(norm):
    z, mu_0 = np.array([3e150, 2e150, -1e150]), np.array([0.2, 0.0, 0.1])
    nu = project(z, mu_0, 1.0, norm) - mu_0
    assert np.linalg.norm(nu, norm) == pytest.approx(1.0, rel=1e-14)
    # The 1-norm moves the largest entry alone; the 2-norm moves all in proportion, downwards to zero at most.
    expected = [1.0, 0.0, 0.0] if norm == 1 else np.append(np.sqrt(0.99 / 13) * np.array([3.0, 2.0]), -0.1)
    np.testing.assert_allclose(nu, expected, rtol=0, atol=1e-14)


@settings(max_examples=60)
@given(problems(), st.sampled_from(NORMS))
def test_the_linear_minimum_meets_the_bound_of_hoelder(problem, norm):
    z, mu_0, radius = problem
    g = -np.abs(z)
    mu = minimise_linear(g, mu_0, radius, norm)
    assert (mu >= 0).all()
    assert np.linalg.norm(mu - mu_0, norm) <= radius * (1 + 1e-13) + 1e-15 * np.abs(mu_0).max()
    bound = g @ mu_0 - radius * np.linalg.norm(g, np.inf if norm == 1 else 2)
    assert g @ mu == pytest.approx(bound, rel=1e-13)


def test_other_norms_are_refused():
    for call in (project, minimise_linear):
        with pytest.raises(ValueError, match="norm must be 1 or 2, got 3"):
            call(-np.ones(2), np.zeros(2), 1.0, 3)
