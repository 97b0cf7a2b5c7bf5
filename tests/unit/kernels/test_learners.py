"""Weights: what every learner promises, and the optimality of alignf."""

import importlib
import sys
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, nnls
from sklearn.datasets import load_breast_cancer

from learnkernels import GaussianFamily, gram_statistics, learn_kernel
from learnkernels.kernels.learners import LEARNERS, as_learner, learner_class
from learnkernels.kernels.learners.alignf import Alignf, AlignfLinear, kkt_certificate
from learnkernels.kernels.learners.base import (
    AlignmentLearner,
    JointLearner,
    KernelSearchLearner,
    Solution,
)
from learnkernels.kernels.learners.closed_form import Align, Lq, Single, Unif
from learnkernels.kernels.statistics.gram import GramStatistics
from tests.reference import alignment_of_weights, kkt_residual
from tests.refusals import require_refusals

# Optimality, relative to the problem's own size; a solver of the wrong problem misses
# it by orders of magnitude.
KKT = 1e-10


def gaussian_statistics(seed: int, gammas, m: int = 60) -> GramStatistics:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 4))
    y = np.sign(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=m))
    return gram_statistics(GaussianFamily(gammas), X, y)


def trace_one(statistics: GramStatistics) -> tuple[np.ndarray, np.ndarray]:
    """Return M and a of the base kernels scaled to trace one."""
    traces = statistics.traces()
    return statistics.products() / np.outer(
        traces, traces
    ), statistics.target_products() / traces


def rescaled(
    M: np.ndarray, a: np.ndarray, scales: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return M and a of base kernels that are multiplied by numbers."""
    return M * np.outer(scales, scales), a * scales


def unit(v: np.ndarray) -> np.ndarray:
    return v / np.linalg.norm(v)


GRID = [2.0**g for g in range(-6, 3)]
GRIDS = {
    f"grid-{seed}": trace_one(gaussian_statistics(seed, GRID)) for seed in range(4)
}
THREE = trace_one(gaussian_statistics(4, [0.05, 0.7, 3.0]))
PROBLEMS = GRIDS | {"three": THREE}
for M_, a_ in PROBLEMS.values():
    M_.flags.writeable = a_.flags.writeable = False
X, FAMILY = (
    np.random.default_rng(8).normal(size=(40, 3)),
    GaussianFamily([0.1, 0.5, 1.0]),
)
y = X[:, 0] * X[:, 1]


@pytest.fixture(params=PROBLEMS.values(), ids=PROBLEMS)
def problem(request) -> tuple[np.ndarray, np.ndarray]:
    return request.param


# The others learn from the kernels or the data themselves, not from (M, a).
TWO_STAGE = [name for name, learner in LEARNERS.items() if learner.two_stage]


@pytest.fixture(params=TWO_STAGE)
def learner(request) -> AlignmentLearner:
    return LEARNERS[request.param]()


# Every two-stage learner ---------------------------------------------------------------------------------------------


def test_weights_have_unit_norm_and_depend_on_neither_units_of_the_target_nor_order(
    learner,
):
    # M has a condition of 1e4 or so on the kernels that alignf takes, of 2e9 on all,
    # and rounding grows by that.
    tolerance = 1e-6 if learner.signed else 1e-9
    for M, a in PROBLEMS.values():
        mu = learner.fit_weights(M, a).weights
        assert learner.signed or (mu >= 0).all()
        assert np.linalg.norm(mu) == pytest.approx(1.0, rel=1e-14)
        for scale in (1e-6, 3.0, 1e6):
            np.testing.assert_allclose(
                learner.fit_weights(M, scale**2 * a).weights, mu, rtol=0, atol=1e-9
            )
        order = np.random.default_rng(0).permutation(len(a))
        reordered = learner.fit_weights(M[np.ix_(order, order)], a[order]).weights
        np.testing.assert_allclose(reordered, mu[order], rtol=0, atol=tolerance)


def test_one_kernel_gets_all_the_weight_and_a_perfect_one_no_less_than_noise(learner):
    np.testing.assert_array_equal(
        learner.fit_weights(np.array([[3.0]]), np.array([0.2])).weights, [1.0]
    )
    weights = learner.fit_weights(np.eye(3), np.array([0.1, 1.0, 0.2])).weights
    assert weights[1] == weights.max()


def test_the_table_says_what_each_learner_is_and_serves():
    for name, learner in LEARNERS.items():
        assert learner.name == name
        assert learner_class(name) is learner
        assert learner.summary
        assert learner.source
        both = ("classification", "regression")
        assert learner.tasks == (both[:1] if learner.predictor == "svm" else both)
    predictors = {
        name: learner.predictor
        for name, learner in LEARNERS.items()
        if learner.predictor
    }
    ridge = ("single-stage", "l1-krr", "l2-krr", "lp-krr", "nkrr", "cr", "ensemble")
    support = (
        "single-stage-svm",
        "single-stage-logistic",
        "l1-svm",
        "lp-svm",
        "easymkl",
    )
    assert predictors == dict.fromkeys(ridge, "krr") | dict.fromkeys(support, "svm")


# Names and objects ---------------------------------------------------------------------------------------------------

OWN = '''
from dataclasses import dataclass
import numpy as np
from learnkernels.kernels.learners import Solution, AlignmentLearner
@dataclass(frozen=True)
class Powers(AlignmentLearner):
    """Weights that are powers of the products with the target.
    Of a user.
    """
    power: float = 1.0
    def fit_weights(self, M, a):
        return Solution.of_direction(np.maximum(a, 0.0) ** self.power)
class Elsewhere(AlignmentLearner):
    fit_weights = Powers.fit_weights
    def __init__(self, power=1.0):
        self._power = power
class Demanding(Powers):  # without a docstring of its own
    def __init__(self, power):
        super().__init__(power)
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Return a module of a user's own, beside a configuration."""
    (tmp_path / "own_learners.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("own_learners")
    del sys.modules["own_learners"]


def test_a_learner_is_known_by_its_name_and_parameters_or_is_one_already():
    given = Lq(q=3.0)
    assert as_learner(given) is given
    assert as_learner(given, q=4.0) == Lq(q=4.0)
    assert as_learner("lq", q=3.0) == Lq(q=3.0) == given


def test_a_learner_of_ones_own_is_used_by_its_name_and_as_it_is(own):
    name = "own_learners:Powers"
    assert (own.Powers.name, own.Powers.summary) == (
        name,
        "Weights that are powers of the products with the target",
    )
    assert own.Demanding.summary == own.Demanding.name
    assert as_learner(name, power=2.0) == own.Powers(2.0)
    by_name, as_it_is = (
        learn_kernel(X, y, learner=learner, family=FAMILY)
        for learner in (name, own.Powers())
    )
    assert by_name.learner == as_it_is.learner == name
    np.testing.assert_array_equal(by_name.weights, as_it_is.weights)
    np.testing.assert_allclose(
        by_name.weights,
        learn_kernel(X, y, learner="lq", family=FAMILY).weights,
        rtol=1e-12,
    )


NO_LEARNERS = [
    (
        "best",
        {},
        "learner must be one of align, align-uncentered, alignf, .*, or module:Class, got 'best'",
    ),
    (
        "no_such_module:Best",
        {},
        "learner no_such_module:Best cannot be imported .*, put its file into",
    ),
    (":Best", {}, "learner :Best cannot be imported"),
    (
        "own_learners:Best",
        {},
        "learner own_learners:Best cannot be imported .*has no attribute 'Best'",
    ),
    (
        "own_learners:Solution",
        {},
        "learner own_learners:Solution must be a class below Learner, got <class",
    ),
    (
        "own_learners:np",
        {},
        "learner own_learners:np must be a class below Learner, got <module",
    ),
    (
        "own_learners:Elsewhere",
        {},
        "Elsewhere must keep each parameter .* and has no attribute 'power'",
    ),
    (
        "own_learners:AlignmentLearner",
        {},
        "AlignmentLearner must have what every Learner has, and lacks fit_weights;",
    ),
    (
        "own_learners:Demanding",
        {},
        "own_learners:Demanding cannot be made .*; give each parameter a default",
    ),
    (
        Alignf,
        {},
        r"learner must be a name such as 'alignf' or a Learner such as Alignf\(\), got",
    ),
    (None, {}, "learner must be a name such as 'alignf' or a Learner"),
    ("lq", {"learner": 2.0}, "Lq has no parameter 'learner'. Its parameters are q."),
    ("alignf", {"q": 2.0}, "Alignf takes no parameters, got 'q'."),
    (Lq(), {"r": 2.0}, "Lq has no parameter 'r'. Its parameters are q."),
]


def test_what_is_no_learner_gets_one_sentence(own):
    require_refusals(
        (partial(as_learner, learner, **params), said)
        for learner, params, said in NO_LEARNERS
    )
    unkept = "keep each parameter of its __init__ under the same name"
    require_refusals(
        (partial(used, own.Elsewhere()), unkept) for used in (as_learner, repr)
    )


NO_SOLUTIONS = [
    (Solution(np.ones(1)), r"weights of shape \(1,\)"),
    (Solution(np.ones((3, 1))), r"weights of shape \(3, 1\)"),
    (
        Solution(np.array([1.0, np.nan, 0.0])),
        r"weights of shape \(3,\), not all finite",
    ),
    (Solution.of_direction(np.array([1.0, np.nan, 0.0])), "not all finite"),
    (Solution([1.0, 0.0, 0.0]), "weights of type list"),
    (Solution(np.array(["a", "b", "c"])), "weights of type <U1"),
    (np.ones(3), "ndarray"),
    (None, "NoneType"),
]


def test_what_is_no_solution_is_one_sentence_that_names_the_learner():
    table = []
    for returned, got in NO_SOLUTIONS:

        def answer(*args, returned=returned, **params):
            return returned

        class TwoStage(AlignmentLearner):
            fit_weights = answer

        class OneStage(JointLearner):
            solve = answer

        class Search(KernelSearchLearner):
            find = answer

        said = f"must return a Solution whose weights are an array of 3 finite numbers.* got .*{got}"
        table += [
            (
                partial(learn_kernel, X, y, learner=TwoStage(), family=FAMILY),
                f"TwoStage {said}",
            ),
            (
                partial(learn_kernel, X, y, learner=OneStage(), family=FAMILY),
                f"OneStage {said}",
            ),
            (
                partial(learn_kernel, X, y, learner=Search(), family=None),
                "Search must return FoundKernels, got",
            ),
        ]
    require_refusals(table)


# Scaling of the base kernels -----------------------------------------------------------------------------------------


POWERS = [
    (Unif(), 0),
    (Single(), 0),
    (Align(), 0),
    (Alignf(), -1),
    (AlignfLinear(), -1),
]
POWERS += [(Lq(q=q), 1 / (q - 1)) for q in (1.5, 2.0, 4.0)]


@pytest.mark.parametrize(("learner", "power"), POWERS)
def test_a_kernel_multiplied_by_a_number_gets_its_weight_times_a_power_of_it(
    learner, power
):
    M, a = THREE
    mu = learner.fit_weights(M, a).weights
    multiples = [
        np.where(np.arange(3) == k, factor, 1.0)
        for k in range(3)
        for factor in (1e-3, 0.5, 7.0)
    ]
    for scales in [*multiples, np.array([1e-3, 1.0, 1e3])]:
        found = learner.fit_weights(*rescaled(M, a, scales)).weights
        np.testing.assert_allclose(found, unit(mu * scales**power), rtol=1e-12)


@pytest.mark.parametrize(
    "learner", [Single(), Alignf()], ids=lambda learner: learner.name
)
def test_these_combined_kernels_do_not_depend_on_the_scale_of_the_kernels(learner):
    scaled = [
        (M, a, 10.0 ** np.linspace(-3, 3, len(a)), 1e-9) for M, a in PROBLEMS.values()
    ]
    for M, a, scales, tolerance in [
        *scaled,
        (*THREE, np.array([1e-8, 1.0, 1e8]), 1e-10),
    ]:
        solution = learner.fit_weights(*rescaled(M, a, scales))
        combination, expected = (
            unit(solution.weights * scales),
            learner.fit_weights(M, a).weights,
        )
        np.testing.assert_allclose(combination, expected, rtol=0, atol=tolerance)
        assert solution.certificate is None or solution.certificate.residual <= KKT


# unif, single, align, lq ---------------------------------------------------------------------------------------------


def test_weights_in_closed_form_are_those_of_their_formulas(problem):
    M, a = problem
    norms = np.sqrt(np.diag(M))
    np.testing.assert_allclose(
        Unif().fit_weights(M, a).weights, np.full(len(a), len(a) ** -0.5), rtol=1e-14
    )
    assert np.flatnonzero(Single().fit_weights(M, a).weights).tolist() == [
        int((a / norms).argmax())
    ]
    aligned = Align().fit_weights(M, a).weights
    np.testing.assert_allclose(aligned, unit(a / norms), rtol=1e-12)
    # lq of order two on kernels of norm one.
    np.testing.assert_allclose(
        Lq().fit_weights(*rescaled(M, a, 1 / norms)).weights, aligned, rtol=1e-14
    )
    # Over weights of q-norm one, mu'a is at most the norm of a of the dual order, by
    # Hoelder's inequality.
    for q in (1.0, 1.05, 1.5, 2.0, 3.0, 40.0, np.inf):
        mu = Lq(q=q).fit_weights(M, a).weights
        dual = {1.0: np.inf, np.inf: 1.0}.get(q) or q / (q - 1)
        assert mu @ a / np.linalg.norm(mu, q) == pytest.approx(
            np.linalg.norm(a, dual), rel=1e-12
        )


def test_products_that_are_equal_or_zero_or_just_below_are_weighed_as_the_limits_say():
    np.testing.assert_array_equal(
        Align().fit_weights(np.eye(2), np.array([-1e-17, 0.3])).weights, [0.0, 1.0]
    )
    a = np.array([0.3, 0.9, 0.9, 0.1])
    for learner in (Single(), Lq(q=1)):
        np.testing.assert_array_equal(
            learner.fit_weights(np.eye(4), a).weights, [0, 1, 0, 0]
        )
    b = np.array([0.3, 0.0, 1e-9, -1e-17])
    # Just above one, what equals the largest shares with it and all else vanishes;
    # (1e-9)^(1e-12) is one up to 2e-11.
    limits = [(np.inf, b, [0.5, 0, 0.5, 0], 1e-15), (1e12, b, [0.5, 0, 0.5, 0], 1e-10)]
    for q, products, squares, tolerance in [
        (np.nextafter(1.0, 2.0), a, [0, 0.5, 0.5, 0], 1e-15),
        *limits,
    ]:
        weights = Lq(q=q).fit_weights(np.eye(4), products).weights
        np.testing.assert_allclose(weights, np.sqrt(squares), rtol=0, atol=tolerance)


@pytest.mark.parametrize("q", [1.0001, 1.01, 2.0, 1e6])
def test_no_order_and_no_size_of_the_products_overflows(q):
    for size in (1e-300, 1.0, 1e300):
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            weights = (
                Lq(q=q)
                .fit_weights(np.eye(3), size * np.array([0.2, 1.0, 0.999]))
                .weights
            )
        ratio = 0.999 ** (1 / (q - 1))
        # a power of 1e4 multiplies rounding by 1e4
        assert weights[2] / weights[1] == pytest.approx(ratio, rel=1e-11)
        assert weights.argmax() == 1


# alignf-linear -------------------------------------------------------------------------------------------------------


def test_alignf_linear_is_along_the_inverse_times_the_products():
    M, a = THREE
    v = np.linalg.solve(M, a)
    solution = AlignfLinear().fit_weights(M, a)
    assert (v < 0).any()
    np.testing.assert_allclose(solution.weights, unit(v), rtol=1e-12)
    assert solution.certificate.residual <= 1e-14
    np.testing.assert_array_equal(
        AlignfLinear().fit_weights(np.eye(2), np.array([-3.0, -4.0])).weights,
        [-0.6, -0.8],
    )


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), p=st.integers(1, 8), rank=st.integers(1, 9))
def test_a_subset_of_dependent_kernels_reaches_the_alignment_of_all(seed, p, rank):
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(p, rank)) * 10.0 ** rng.uniform(-3, 3, size=(p, 1))
    target = rng.normal(size=rank)
    M, a = V @ V.T, V @ target
    solution = AlignfLinear(dependent="subset").fit_weights(M, a)
    mu = solution.weights
    assert np.count_nonzero(mu) <= min(p, rank)
    assert mu @ a >= 0
    assert solution.certificate.converged
    # The best there is: the part of the target in the span of all kernels.
    reached = np.linalg.norm(np.linalg.lstsq(V.T, target, rcond=1e-11)[0] @ V)
    # Random kernels are at times nearly dependent: the root of the tolerance may be
    # lost.
    assert alignment_of_weights(M, a, mu) == pytest.approx(reached, rel=1e-5)


def test_copies_of_a_kernel_are_refused_or_left_out():
    for copies, at in (
        (2, "1"),
        (5, "1, 2, 3, 4"),
        (100, "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ..."),
    ):
        M, a = np.ones((copies, copies)), np.full(copies, 0.4)
        spanned = f"got {copies - 1} of {copies} in the span of the others (at {at}, counted from 0); "
        sentence = spanned + "pass dependent='subset' to leave them out, or use alignf"
        require_refusals(
            [(partial(AlignfLinear().fit_weights, M, a), sentence)], literal=True
        )
        np.testing.assert_array_equal(
            AlignfLinear(dependent="subset").fit_weights(M, a).weights,
            np.eye(copies)[0],
        )


@pytest.mark.parametrize(
    ("distance", "dependent"),
    [(1e-2, False), (1e-4, False), (1e-6, True), (1e-8, True)],
)
def test_kernels_closer_than_the_tolerance_count_as_dependent(distance, dependent):
    V = np.array([[1.0, 0.0, 0.0], [1.0, distance, 0.0], [0.0, 0.0, 1.0]])
    V /= np.linalg.norm(V, axis=1)[:, None]
    M, a = V @ V.T, V @ np.array([1.0, 0.2, 0.3])
    subset = AlignfLinear(dependent="subset").fit_weights(M, a).weights
    if not dependent:
        np.testing.assert_array_equal(AlignfLinear().fit_weights(M, a).weights, subset)
        assert (subset != 0).all()
    else:  # which is refused, as above
        np.testing.assert_allclose(
            subset, np.array([1.0, 0.0, 0.3]) / np.hypot(1.0, 0.3), rtol=1e-12
        )


# alignf --------------------------------------------------------------------------------------------------------------


def test_the_wrong_least_squares_problem_fails_those_conditions_where_a_weight_is_held_at_zero():
    for M, a in GRIDS.values():
        assert (Alignf().fit_weights(M, a).weights == 0).any()
        wrong = unit(nnls(M, a)[0])
        assert kkt_residual(M, a, wrong) > 1e4 * KKT
        assert (
            kkt_certificate(M, a, wrong * (wrong @ a) / (wrong @ M @ wrong)).residual
            > 1e4 * KKT
        )


@pytest.mark.parametrize("step", [0.5, 0.1, 0.02])
def test_alignf_meets_the_optimality_conditions_on_grids_so_dense_that_kernels_depend(
    step,
):
    """A solver that drops directions of M below rounding leaves 1e-9 to 1e-7 here."""
    for seed in range(5):
        statistics = gaussian_statistics(seed, 2.0 ** np.arange(-6, 2, step))
        assert np.linalg.cond(statistics.products()) > 1e12
        assert Alignf().fit_weights(*trace_one(statistics)).certificate.residual < 1e-13


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), p=st.integers(1, 7), rank=st.integers(1, 9))
def test_alignf_agrees_with_a_general_optimizer_on_random_problems(seed, p, rank):
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(p, rank)) + 0.3
    V /= np.linalg.norm(V, axis=1)[:, None]
    M, a = V @ V.T, V @ rng.normal(size=rank)
    assume(a.max() > 0.01)
    mu = Alignf().fit_weights(M, a).weights
    assert kkt_residual(M, a, mu) <= KKT
    with_gradient = {
        "fun": lambda v: (v @ M @ v - 2 * v @ a, 2 * (M @ v - a)),
        "jac": True,
    }
    options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 10_000, "maxfun": 100_000}
    found = minimize(
        x0=np.ones(p),
        bounds=[(0, None)] * p,
        method="L-BFGS-B",
        options=options,
        **with_gradient,
    )
    # The optimizer stops on a flat objective: its own error is the square root of its
    # tolerance, squared again.
    assert alignment_of_weights(M, a, found.x) == pytest.approx(
        alignment_of_weights(M, a, mu), rel=1e-7
    )
    assert alignment_of_weights(M, a, found.x) <= alignment_of_weights(M, a, mu) * (
        1 + 1e-12
    )


def test_copies_of_a_kernel_share_its_weight():
    once, twice = (
        trace_one(gaussian_statistics(6, gammas))
        for gammas in ([0.05, 0.7, 3.0], [0.05, 0.7, 0.7, 3.0])
    )
    mu, nu = Alignf().fit_weights(*once).weights, Alignf().fit_weights(*twice).weights
    # Up to length: both have unit norm, over three and over four weights. M of the
    # copies is singular.
    np.testing.assert_allclose(
        unit(np.array([nu[0], nu[1] + nu[2], nu[3]])), mu, rtol=0, atol=1e-9
    )
    for M, a in [twice] + [
        (np.ones((copies, copies)), np.full(copies, 0.4)) for copies in (2, 5, 20)
    ]:
        assert kkt_residual(M, a, Alignf().fit_weights(M, a).weights) <= KKT


@pytest.mark.parametrize("sign", [1, -1])
def test_nearly_equal_kernels_lose_no_alignment(sign):
    without = gaussian_statistics(7, [0.3, 2.0])
    best_without = without.alignment(
        Alignf().fit_weights(*trace_one(without)).weights / without.traces()
    )
    # Directions of M whose eigenvalue is below rounding are given up; the target's part
    # along them, and with it the alignment lost, is at most the root of that rounding.
    lost = np.sqrt(3 * np.finfo(float).eps)
    for relative in (1e-3, 1e-5, 1e-7, 1e-9, 1e-11):
        statistics = gaussian_statistics(7, [0.3, 0.3 * (1 + sign * relative), 2.0])
        mu = Alignf().fit_weights(*trace_one(statistics)).weights
        reached = statistics.alignment(mu / statistics.traces())
        assert reached >= max(statistics.alignments.max(), best_without) - lost


# Certificate ---------------------------------------------------------------------------------------------------------


def test_the_certificate_measures_each_broken_condition_on_kernels_of_any_scale():
    M, a = np.array([[1.0, 0.6], [0.6, 1.0]]), np.array([1.0, 0.2])
    optimum = np.array([1.0, 0.0])
    assert kkt_certificate(M, a, optimum).residual <= 1e-15
    # A negative weight, and a weight too short: its gradient is half the steepest, and
    # so is the product.
    assert kkt_certificate(M, a, np.linalg.solve(M, a)).residual > 0.1
    assert kkt_certificate(M, a, 0.5 * optimum).residual == pytest.approx(0.5)
    assert not kkt_certificate(M, a, 0.5 * optimum).converged
    v, scales = np.array([0.3, 0.1, 0.7]), np.array([1e-4, 1.0, 1e5])
    M, a = THREE
    scaled = kkt_certificate(*rescaled(M, 7 * a, scales), 7 * v / scales)
    assert scaled.residual == pytest.approx(kkt_certificate(M, a, v).residual)


# Known values --------------------------------------------------------------------------------------------------------


def test_breast_cancer_gives_the_weights_and_alignments_found_by_other_programs():
    # Standardized features, labels +-1, gamma = 2^-9 .. 2^-3, centered, trace one. The
    # weights of alignf are those of a general quadratic program over explicitly
    # centered matrices; all numbers hold to the digits given.
    data = load_breast_cancer()
    X = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    y = 2.0 * data.target - 1.0
    statistics = gram_statistics(GaussianFamily([2.0**g for g in range(-9, -2)]), X, y)
    M, a = trace_one(statistics)
    weights = {
        name: as_learner(name).fit_weights(M, a).weights
        for name in ("alignf", "align", "unif")
    }
    aligned = {
        name: statistics.alignment(mu / statistics.traces())
        for name, mu in weights.items()
    }
    np.testing.assert_allclose(
        weights["alignf"], [0.46215, 0, 0.09035, 0.88219, 0, 0, 0], rtol=0, atol=6e-6
    )
    np.testing.assert_allclose(
        weights["align"],
        [0.412, 0.420, 0.426, 0.418, 0.385, 0.317, 0.221],
        rtol=0,
        atol=6e-4,
    )
    assert aligned == pytest.approx(
        {"alignf": 0.616956, "align": 0.613322, "unif": 0.610595}, rel=0, abs=6e-7
    )
    assert (weights["alignf"][[1, 4, 5, 6]] == 0).all()
    assert kkt_residual(M, a, weights["alignf"]) <= KKT


# Refusals ------------------------------------------------------------------------------------------------------------

OUT_OF_RANGE = [
    ("lp-svm", {"norm": 0.9}, "norm must be at least 1, got 0.9"),
    ("lp-krr", {"norm": 0.0}, "norm must be at least 1"),
    ("l2-krr", {"center": -1.0}, "center must be zero or positive"),
    ("l2-krr", {"radius": 0.0}, "radius must be a positive, finite number"),
    ("nkrr", {"offset": -1.0}, "offset must be zero or positive"),
    ("single-stage", {"gamma": -1.0}, "gamma, gamma1 and gamma2 must not be negative"),
    ("single-stage", {"gamma2": 0.0}, "gamma1 or gamma2 must be positive"),
    (
        "single-stage-svm",
        {"least_alignment": 1.5},
        "least_alignment must be from 0 to 1",
    ),
    ("l2-krr", {"algorithm": "other"}, "algorithm must be newton or as-printed"),
    ("l2-krr", {"center": (1.0, -1.0)}, "center must be zero or positive, and finite"),
    ("nkrr", {"algorithm": "other"}, "algorithm must be spectral or as-printed"),
    ("ca", {"kind": "cauchy"}, "kind must be one of gaussian, laplacian, dirichlet"),
    ("ca", {"max_kernels": 0}, "max_kernels must be at least 1"),
    ("cr", {"tol": 0.0}, "tol must be a positive, finite number"),
    ("rfm", {"rank": 0}, "rank must be a whole number of at least 1"),
]


def test_a_parameter_out_of_its_range_is_found_without_rows():
    require_refusals(
        (as_learner(name, **params).require, said)
        for name, params, said in OUT_OF_RANGE
    )
    for name in LEARNERS:
        as_learner(name).require()


def test_what_cannot_be_weighed_or_does_not_fit_the_learner_is_refused():
    opposed, none = np.array([-1.0, 0.0, -0.2]), "no base kernel aligns with the target"
    order = "q must be a number from 1 to infinity, got"
    unheard = "normalize must be one of trace, frobenius, none, got 'unit'"
    table = [
        *((learner, opposed, none) for learner in (Align(), Alignf(), Lq())),
        (AlignfLinear(), np.zeros(3), none),
    ]
    require_refusals(
        (partial(learner.fit_weights, np.eye(3), a), said) for learner, a, said in table
    )
    out_of_range = [(Lq(q=q).require, order) for q in (0.999, 0.0, -np.inf, np.nan)]
    drop = AlignfLinear(dependent="drop").require
    require_refusals(
        [*out_of_range, (drop, "dependent must be error or subset, got 'drop'")]
    )
    taken = "ca finds its own base kernels and takes no family. Remove family; the parameters of CA"
    learn = partial(learn_kernel, learner="ca", X=X, y=y)
    require_refusals(
        [
            (partial(learn, family=FAMILY), taken),
            (partial(learn, family=None, normalize="unit"), unheard),
        ]
    )
