"""Weights: what every learner promises, and the optimality of alignf."""

import importlib
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, nnls
from sklearn.datasets import load_breast_cancer

from learnkernels import GaussianFamily, gram_moments, learn_kernel
from learnkernels.kernels.learners import (
    LEARNERS,
    Align,
    Alignf,
    AlignfLinear,
    Lq,
    OneStageLearner,
    SearchingLearner,
    Single,
    Solution,
    TwoStageLearner,
    Unif,
    as_learner,
    kkt_certificate,
    learner_class,
)
from learnkernels.kernels.moments.gram import GramMoments
from tests.reference import alignment_of_weights, kkt_residual

# Optimality, relative to the problem's own size; a solver of the wrong problem misses it by orders of magnitude.
KKT = 1e-10


def gaussian_moments(seed: int, gammas, m: int = 60) -> GramMoments:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 4))
    y = np.sign(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=m))
    return gram_moments(GaussianFamily(gammas), X, y)


def trace_one(moments: GramMoments) -> tuple[np.ndarray, np.ndarray]:
    """Return M and a of the base kernels scaled to trace one."""
    traces = moments.centered_traces
    return moments.frobenius / np.outer(traces, traces), moments.target / traces


GRID = [2.0**g for g in range(-6, 3)]
PROBLEMS = {f"grid-{seed}": trace_one(gaussian_moments(seed, GRID)) for seed in range(4)}
PROBLEMS["three"] = trace_one(gaussian_moments(4, [0.05, 0.7, 3.0]))
for M_, a_ in PROBLEMS.values():
    M_.flags.writeable = a_.flags.writeable = False


@pytest.fixture(params=PROBLEMS.values(), ids=PROBLEMS)
def problem(request) -> tuple[np.ndarray, np.ndarray]:
    return request.param


# The others learn from the kernels or the data themselves, not from (M, a).
TWO_STAGE = [name for name, learner in LEARNERS.items() if learner.two_stage]


@pytest.fixture(params=TWO_STAGE)
def learner(request) -> TwoStageLearner:
    return LEARNERS[request.param]()


# Every two-stage learner ---------------------------------------------------------------------------------------------


def test_weights_are_finite_and_not_negative_and_have_unit_norm(learner, problem):
    mu = learner.weigh(*problem).weights
    assert mu.shape == problem[1].shape
    assert np.isfinite(mu).all()
    assert learner.signed or (mu >= 0).all()
    assert np.linalg.norm(mu) == pytest.approx(1.0, rel=1e-14)


@pytest.mark.parametrize("scale", [1e-6, 3.0, 1e6])
def test_weights_do_not_depend_on_the_scale_of_the_targets(learner, problem, scale):
    M, a = problem
    np.testing.assert_allclose(learner.weigh(M, scale**2 * a).weights, learner.weigh(M, a).weights, rtol=0, atol=1e-9)


def test_weights_follow_the_kernels_when_these_are_reordered(learner, problem):
    M, a = problem
    order = np.random.default_rng(0).permutation(len(a))
    reordered = learner.weigh(M[np.ix_(order, order)], a[order]).weights
    # M has a condition of 1e4 or so on the kernels that alignf takes, of 2e9 on all, and rounding grows by that.
    tolerance = 1e-6 if learner.signed else 1e-9
    np.testing.assert_allclose(reordered, learner.weigh(M, a).weights[order], rtol=0, atol=tolerance)


def test_one_kernel_gets_all_the_weight(learner):
    solution = learner.weigh(np.array([[3.0]]), np.array([0.2]))
    np.testing.assert_array_equal(solution.weights, [1.0])


def test_a_perfect_kernel_among_noise_is_never_ranked_below_the_noise(learner):
    M, a = np.diag([1.0, 1.0, 1.0]), np.array([0.1, 1.0, 0.2])
    assert learner.weigh(M, a).weights[1] == learner.weigh(M, a).weights.max()


def test_no_learner_aligns_better_than_alignf_but_with_negative_weights(learner, problem):
    M, a = problem
    best, reached = (alignment_of_weights(M, a, one.weigh(M, a).weights) for one in (Alignf(), learner))
    if learner.signed:
        assert reached >= best
        return
    assert reached <= best * (1 + 1e-12)


def test_the_table_says_what_each_learner_is_and_serves():
    for learner in LEARNERS.values():
        assert learner.summary
        assert learner.source
        assert set(learner.tasks) <= {"classification", "regression"}
        assert learner.tasks


# Names and objects ---------------------------------------------------------------------------------------------------

OWN = '''
from dataclasses import dataclass

import numpy as np

from learnkernels.kernels.learners import Solution, TwoStageLearner


@dataclass(frozen=True)
class Powers(TwoStageLearner):
    """Weights that are powers of the products with the target.

    Of a user.
    """

    power: float = 1.0

    def weigh(self, M, a):
        return Solution.of_direction(np.maximum(a, 0.0) ** self.power)


class Nothing:
    pass


class Elsewhere(TwoStageLearner):
    def __init__(self, power=1.0):
        self._power = power

    def weigh(self, M, a):
        return Solution.of_direction(a)


class Unfinished(TwoStageLearner):
    pass


class Demanding(Powers):
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
    assert as_learner("lq", q=3.0) == Lq(q=3.0)
    given = Lq(q=3.0)
    assert as_learner(given) is given
    assert as_learner(given, q=4.0) == Lq(q=4.0)
    assert given == Lq(q=3.0)
    for name, learner in LEARNERS.items():
        assert learner.name == name
        assert learner_class(name) is learner


def test_a_learner_of_ones_own_is_used_by_its_name_and_as_it_is(own):
    name = "own_learners:Powers"
    assert (own.Powers.name, own.Powers.summary) == (name, "Weights that are powers of the products with the target")
    assert as_learner(name, power=2.0) == own.Powers(2.0)
    rng = np.random.default_rng(8)
    X, family = rng.normal(size=(40, 3)), GaussianFamily([0.1, 1.0])
    y = X[:, 0] * X[:, 1]
    by_name, as_it_is = (learn_kernel(learner, family, X, y) for learner in (name, own.Powers()))
    assert by_name.learner == as_it_is.learner == name
    np.testing.assert_array_equal(by_name.weights, as_it_is.weights)
    np.testing.assert_allclose(by_name.weights, learn_kernel("lq", family, X, y).weights, rtol=1e-12)


@pytest.mark.parametrize(
    ("learner", "params", "said"),
    [
        ("best", {}, "learner must be one of align, align-uncentered, alignf, .*, or module:Class, got 'best'"),
        (
            "no_such_module:Best",
            {},
            "learner no_such_module:Best cannot be imported .*, put its file into",
        ),
        (":Best", {}, "learner :Best cannot be imported"),
        ("own_learners:Best", {}, "learner own_learners:Best cannot be imported .*has no attribute 'Best'"),
        ("own_learners:Nothing", {}, "learner own_learners:Nothing must be a class below Learner, got <class"),
        ("own_learners:OWN", {}, "learner own_learners:OWN cannot be imported"),
        ("own_learners:np", {}, "learner own_learners:np must be a class below Learner, got <module"),
        ("own_learners:Elsewhere", {}, "Elsewhere must keep each parameter .* and has no attribute 'power'"),
        ("own_learners:Unfinished", {}, "own_learners:Unfinished must have what every Learner has, and lacks weigh;"),
        ("own_learners:Demanding", {}, "own_learners:Demanding cannot be made .*; give each parameter a default"),
        (Alignf, {}, r"learner must be a name such as 'alignf' or a Learner such as Alignf\(\), got"),
        (None, {}, "learner must be a name such as 'alignf' or a Learner"),
        ("lq", {"learner": 2.0}, "parameters of Lq must be among its own, q, got 'learner'"),
        ("lq", {"r": 2.0}, "parameters of Lq must be among its own, q, got 'r'"),
        ("alignf", {"q": 2.0}, "parameters of Alignf must be among its own, none, got 'q'"),
        (Lq(), {"r": 2.0}, "parameters of Lq must be among its own, q, got 'r'"),
    ],
)
def test_what_is_no_learner_gets_one_sentence(own, learner, params, said):
    with pytest.raises(ValueError, match=said) as refusal:
        as_learner(learner, **params)
    assert str(refusal.value).endswith(".")


def test_an_object_that_keeps_no_parameter_is_refused_as_its_name_is(own):
    for used in (as_learner, repr):
        with pytest.raises(ValueError, match="keep each parameter of its __init__ under the same name"):
            used(own.Elsewhere())


def test_a_class_without_a_docstring_is_summed_up_by_its_name_and_not_by_its_base():
    @dataclass(frozen=True)
    class Bare(Lq):
        other: float = 1.0

    assert Bare.summary == Bare.name
    assert Lq.summary != Bare.summary


@pytest.mark.parametrize(
    ("returned", "got"),
    [
        (Solution(np.ones(1)), r"weights of shape \(1,\)"),
        (Solution(np.ones((3, 1))), r"weights of shape \(3, 1\)"),
        (Solution(np.array([1.0, np.nan, 0.0])), r"weights of shape \(3,\), not all finite"),
        (Solution.of_direction(np.array([1.0, np.nan, 0.0])), "not all finite"),
        (Solution([1.0, 0.0, 0.0]), "weights of type list"),
        (Solution(np.array(["a", "b", "c"])), "weights of type <U1"),
        (np.ones(3), "ndarray"),
        (None, "NoneType"),
    ],
)
def test_what_is_no_solution_is_one_sentence_that_names_the_learner(returned, got):
    class TwoStage(TwoStageLearner):
        def weigh(self, M, a):
            return returned

    class OneStage(OneStageLearner):
        def solve(self, grams, target, regularisation=1.0, start=None):
            return returned

    class Search(SearchingLearner):
        def find(self, X, target, regularisation=1.0):
            return returned

    X = np.random.default_rng(8).normal(size=(40, 3))
    y, family = X[:, 0] * X[:, 1], GaussianFamily([0.1, 0.5, 1.0])
    said = f"must return a Solution whose weights are an array of 3 finite numbers.* got .*{got}"
    for learner in (TwoStage(), OneStage()):
        with pytest.raises(ValueError, match=f"{type(learner).__name__} {said}"):
            learn_kernel(learner, family, X, y)
    with pytest.raises(ValueError, match=said):
        TwoStage().finder("trace")(gram_moments(family, X, y))
    with pytest.raises(ValueError, match="Search must return FoundKernels, got"):
        learn_kernel(Search(), None, X, y)


def test_a_learner_that_finds_its_own_kernels_takes_no_family_and_a_normalisation_that_there_is():
    X = np.random.default_rng(8).normal(size=(30, 2))
    with pytest.raises(ValueError, match="ca finds its own base kernels and takes no family; leave family=None"):
        learn_kernel("ca", GaussianFamily([1.0]), X, X[:, 0])
    with pytest.raises(ValueError, match="normalise must be one of trace, frobenius, none, got 'unit'"):
        learn_kernel("ca", None, X, X[:, 0], normalise="unit")


# Scaling of the base kernels -----------------------------------------------------------------------------------------

SCALES = np.array([1e-3, 1.0, 1e3])


@pytest.mark.parametrize("learner", [Unif(), Single(), Align()], ids=lambda learner: learner.name)
def test_these_weights_do_not_depend_on_the_scale_of_the_kernels(learner):
    M, a = PROBLEMS["three"]
    rescaled = learner.weigh(M * np.outer(SCALES, SCALES), a * SCALES).weights
    np.testing.assert_allclose(rescaled, learner.weigh(M, a).weights, rtol=1e-12)


@pytest.mark.parametrize("learner", [Alignf(), AlignfLinear()], ids=lambda learner: learner.name)
@pytest.mark.parametrize("factor", [1e-3, 0.5, 7.0])
def test_a_kernel_multiplied_by_a_number_gets_its_weight_divided_by_it(learner, factor):
    M, a = PROBLEMS["three"]
    for k in range(3):
        scales = np.where(np.arange(3) == k, factor, 1.0)
        expected = learner.weigh(M, a).weights / scales
        found = learner.weigh(M * np.outer(scales, scales), a * scales).weights
        np.testing.assert_allclose(found, expected / np.linalg.norm(expected), rtol=1e-12)


@pytest.mark.parametrize("q", [1.5, 2.0, 4.0])
def test_a_kernel_multiplied_by_a_number_counts_a_power_of_it_in_lq(q):
    M, a = PROBLEMS["three"]
    expected = Lq(q=q).weigh(M, a).weights * SCALES ** (1 / (q - 1))
    found = Lq(q=q).weigh(M * np.outer(SCALES, SCALES), a * SCALES).weights
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected), rtol=1e-12)


@pytest.mark.parametrize("learner", [Single(), Alignf()], ids=lambda learner: learner.name)
def test_these_combined_kernels_do_not_depend_on_the_scale_of_the_kernels(learner, problem):
    M, a = problem
    scales = 10.0 ** np.linspace(-3, 3, len(a))
    combination = learner.weigh(M * np.outer(scales, scales), a * scales).weights * scales
    combination /= np.linalg.norm(combination)
    np.testing.assert_allclose(combination, learner.weigh(M, a).weights, rtol=0, atol=1e-9)


# unif, single, align -------------------------------------------------------------------------------------------------


def test_unif_weighs_all_kernels_alike(problem):
    M, a = problem
    np.testing.assert_allclose(Unif().weigh(M, a).weights, np.full(len(a), len(a) ** -0.5), rtol=1e-14)


def test_single_takes_the_kernel_of_highest_alignment_and_the_first_of_equals(problem):
    M, a = problem
    weights = Single().weigh(M, a).weights
    assert np.flatnonzero(weights).tolist() == [int((a / np.sqrt(np.diag(M))).argmax())]
    np.testing.assert_array_equal(Single().weigh(np.eye(3), np.array([0.1, 0.5, 0.5])).weights, [0, 1, 0])


def test_align_weighs_each_kernel_by_its_own_alignment():
    moments = gaussian_moments(5, GRID)
    mu = Align().weigh(moments.frobenius, moments.target).weights
    np.testing.assert_allclose(mu, moments.alignments / np.linalg.norm(moments.alignments), rtol=1e-12)


def test_align_takes_a_product_just_below_zero_as_zero():
    np.testing.assert_array_equal(Align().weigh(np.eye(2), np.array([-1e-17, 0.3])).weights, [0.0, 1.0])


@pytest.mark.parametrize("learner", [Unif(), Align(), Lq()], ids=lambda learner: learner.name)
def test_equal_kernels_get_equal_weights_where_the_weights_are_unique(learner):
    M, a = trace_one(gaussian_moments(6, [0.05, 0.7, 0.7, 3.0]))
    weights = learner.weigh(M, a).weights
    # The two are computed alike but summed in different places.
    assert weights[1] == pytest.approx(weights[2], rel=1e-13)


# lq ------------------------------------------------------------------------------------------------------------------


def test_lq_of_order_two_on_kernels_of_norm_one_is_align(problem):
    M, a = problem
    norms = np.sqrt(np.diag(M))
    found = Lq().weigh(M / np.outer(norms, norms), a / norms).weights
    np.testing.assert_allclose(found, Align().weigh(M, a).weights, rtol=1e-14)


@pytest.mark.parametrize("q", [1.0, 1.05, 1.5, 2.0, 3.0, 40.0, np.inf])
def test_lq_reaches_the_bound_of_hoelder(problem, q):
    """Over weights of q-norm one, mu'a is at most the norm of a of the dual order."""
    M, a = problem
    mu = Lq(q=q).weigh(M, a).weights
    dual = {1.0: np.inf, np.inf: 1.0}.get(q) or q / (q - 1)
    assert mu @ a / np.linalg.norm(mu, q) == pytest.approx(np.linalg.norm(a, dual), rel=1e-12)


def test_lq_of_order_one_takes_the_first_of_the_largest_products():
    a = np.array([0.3, 0.9, 0.9, 0.1])
    np.testing.assert_array_equal(Lq(q=1).weigh(np.eye(4), a).weights, [0, 1, 0, 0])
    # Just above one, what equals the largest shares with it and all else vanishes.
    np.testing.assert_allclose(
        Lq(q=np.nextafter(1.0, 2.0)).weigh(np.eye(4), a).weights, np.sqrt([0, 0.5, 0.5, 0]), rtol=1e-15
    )


def test_lq_of_infinite_order_weighs_alike_what_has_a_product_with_the_target():
    a = np.array([0.3, 0.0, 1e-9, -1e-17])
    np.testing.assert_allclose(Lq(q=np.inf).weigh(np.eye(4), a).weights, np.sqrt([0.5, 0, 0.5, 0]), rtol=1e-15)
    # The limit of large orders: (1e-9)^(1e-12) is one up to 2e-11.
    np.testing.assert_allclose(Lq(q=1e12).weigh(np.eye(4), a).weights, np.sqrt([0.5, 0, 0.5, 0]), rtol=0, atol=1e-10)


@pytest.mark.parametrize("q", [1.0001, 1.01, 2.0, 1e6])
@pytest.mark.parametrize("size", [1e-300, 1.0, 1e300])
def test_no_order_and_no_size_of_the_products_overflows(q, size):
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        weights = Lq(q=q).weigh(np.eye(3), size * np.array([0.2, 1.0, 0.999])).weights
    ratio = 0.999 ** (1 / (q - 1))
    assert weights[2] / weights[1] == pytest.approx(ratio, rel=1e-11)  # a power of 1e4 multiplies rounding by 1e4
    assert weights.argmax() == 1


@pytest.mark.parametrize("q", [0.999, 0.0, -np.inf, np.nan])
def test_an_order_below_one_is_refused(q):
    with pytest.raises(ValueError, match="q must be a number from 1 to infinity, got"):
        Lq(q=q).weigh(np.eye(2), np.ones(2))


# alignf-linear -------------------------------------------------------------------------------------------------------


def test_alignf_linear_is_along_the_inverse_times_the_products():
    M, a = PROBLEMS["three"]
    v = np.linalg.solve(M, a)
    solution = AlignfLinear().weigh(M, a)
    assert (v < 0).any()
    np.testing.assert_allclose(solution.weights, v / np.linalg.norm(v), rtol=1e-12)
    assert solution.certificate.residual <= 1e-14
    assert alignment_of_weights(M, a, solution.weights) == pytest.approx(np.sqrt(a @ v), rel=1e-12)


def test_alignf_linear_beats_random_weightings_of_either_sign(problem):
    M, a = problem
    best = alignment_of_weights(M, a, AlignfLinear().weigh(M, a).weights)
    candidates = np.random.default_rng(1).normal(size=(2000, len(a)))
    assert max(alignment_of_weights(M, a, mu) for mu in candidates) <= best


def test_alignf_linear_solves_the_equations_of_grids_of_any_scale(problem):
    M, a = problem
    scales = 10.0 ** np.linspace(-6, 6, len(a))
    for solution in (AlignfLinear().weigh(M, a), AlignfLinear().weigh(M * np.outer(scales, scales), a * scales)):
        # Weights of up to thousands of times the largest product cancel to it.
        assert solution.certificate.residual <= 1e-11
        assert solution.certificate.converged


def test_alignf_linear_is_alignf_where_no_constraint_is_active():
    M, a = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([1.0, 1.0])
    np.testing.assert_allclose(AlignfLinear().weigh(M, a).weights, Alignf().weigh(M, a).weights, rtol=1e-14)


def test_a_kernel_that_opposes_the_target_gets_a_negative_weight():
    np.testing.assert_array_equal(AlignfLinear().weigh(np.eye(2), np.array([-3.0, -4.0])).weights, [-0.6, -0.8])


def test_products_of_zero_leave_alignf_linear_nothing_to_weigh():
    with pytest.raises(ValueError, match="no base kernel aligns with the target"):
        AlignfLinear().weigh(np.eye(3), np.zeros(3))


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), p=st.integers(1, 8), rank=st.integers(1, 9))
def test_a_subset_of_dependent_kernels_reaches_the_alignment_of_all(seed, p, rank):
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(p, rank)) * 10.0 ** rng.uniform(-3, 3, size=(p, 1))
    target = rng.normal(size=rank)
    M, a = V @ V.T, V @ target
    solution = AlignfLinear(dependent="subset").weigh(M, a)
    mu = solution.weights
    assert np.count_nonzero(mu) <= min(p, rank)
    assert mu @ a >= 0
    assert solution.certificate.converged
    # The best there is: the part of the target in the span of all kernels.
    reached = np.linalg.norm(np.linalg.lstsq(V.T, target, rcond=1e-11)[0] @ V)
    # Random kernels are at times nearly dependent: the root of the tolerance may be lost.
    assert alignment_of_weights(M, a, mu) == pytest.approx(reached, rel=1e-5)


@pytest.mark.parametrize("copies", [2, 5, 100])
def test_copies_of_a_kernel_are_refused_or_left_out(copies):
    M, a = np.ones((copies, copies)), np.full(copies, 0.4)
    at = ", ".join(map(str, range(1, min(copies, 11)))) + (", ..." if copies > 11 else "")
    sentence = rf"got {copies - 1} of {copies} in the span of the others \(at {at}, counted from 0\)"
    with pytest.raises(ValueError, match=sentence + "; pass dependent='subset' to leave them out, or use alignf"):
        AlignfLinear().weigh(M, a)
    np.testing.assert_array_equal(AlignfLinear(dependent="subset").weigh(M, a).weights, np.eye(copies)[0])


def test_a_kernel_given_twice_keeps_the_weights_of_the_others():
    once, twice = (trace_one(gaussian_moments(6, gammas)) for gammas in ([0.05, 0.7, 3.0], [0.05, 0.7, 0.7, 3.0]))
    with pytest.raises(ValueError, match="got 1 of 4 in the span"):
        AlignfLinear().weigh(*twice)
    nu = AlignfLinear(dependent="subset").weigh(*twice).weights
    assert (nu[1] == 0) != (nu[2] == 0)
    np.testing.assert_allclose([nu[0], nu[1] + nu[2], nu[3]], AlignfLinear().weigh(*once).weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize("distance", [1e-2, 1e-4, 1e-6, 1e-8])
def test_kernels_closer_than_the_tolerance_count_as_dependent(distance):
    V = np.array([[1.0, 0.0, 0.0], [1.0, distance, 0.0], [0.0, 0.0, 1.0]])
    V /= np.linalg.norm(V, axis=1)[:, None]
    M, a = V @ V.T, V @ np.array([1.0, 0.2, 0.3])
    subset = AlignfLinear(dependent="subset").weigh(M, a).weights
    if distance**2 > 1e-10:
        np.testing.assert_array_equal(AlignfLinear().weigh(M, a).weights, subset)
        assert (subset != 0).all()
        return
    with pytest.raises(ValueError, match=r"got 1 of 3 in the span of the others \(at 1, counted from 0\)"):
        AlignfLinear().weigh(M, a)
    np.testing.assert_allclose(subset, np.array([1.0, 0.0, 0.3]) / np.hypot(1.0, 0.3), rtol=1e-12)


def test_dependent_has_two_values():
    with pytest.raises(ValueError, match="dependent must be error or subset, got 'drop'"):
        AlignfLinear(dependent="drop").weigh(np.eye(2), np.ones(2))


# alignf --------------------------------------------------------------------------------------------------------------


def test_alignf_meets_the_optimality_conditions(problem):
    M, a = problem
    solution = Alignf().weigh(M, a)
    assert kkt_residual(M, a, solution.weights) <= KKT
    assert solution.certificate.residual <= KKT


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name.startswith("grid")])
def test_the_wrong_least_squares_problem_fails_those_conditions_where_a_weight_is_held_at_zero(name):
    M, a = PROBLEMS[name]
    right = Alignf().weigh(M, a).weights
    assert (right == 0).any()
    wrong, _ = nnls(M, a)
    wrong /= np.linalg.norm(wrong)
    assert kkt_residual(M, a, wrong) > 1e4 * KKT
    assert kkt_certificate(M, a, wrong * (wrong @ a) / (wrong @ M @ wrong)).residual > 1e4 * KKT


@pytest.mark.parametrize("step", [0.5, 0.1, 0.02])
@pytest.mark.parametrize("seed", range(5))
def test_alignf_meets_the_optimality_conditions_on_grids_so_dense_that_kernels_depend(step, seed):
    """A solver that drops directions of M below rounding leaves 1e-9 to 1e-7 here."""
    moments = gaussian_moments(seed, 2.0 ** np.arange(-6, 2, step))
    assert np.linalg.cond(moments.frobenius) > 1e12
    assert Alignf().weigh(*trace_one(moments)).certificate.residual < 1e-13


def test_alignf_beats_random_weightings(problem):
    M, a = problem
    best = alignment_of_weights(M, a, Alignf().weigh(M, a).weights)
    rng = np.random.default_rng(1)
    candidates = np.vstack([rng.dirichlet(np.full(len(a), shape), size=1000) for shape in (0.2, 1.0)])
    assert max(alignment_of_weights(M, a, mu) for mu in candidates) <= best * (1 + 1e-12)


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), p=st.integers(1, 7), rank=st.integers(1, 9))
def test_alignf_agrees_with_a_general_optimiser_on_random_problems(seed, p, rank):
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(p, rank)) + 0.3
    V /= np.linalg.norm(V, axis=1)[:, None]
    M, a = V @ V.T, V @ rng.normal(size=rank)
    assume(a.max() > 0.01)
    mu = Alignf().weigh(M, a).weights
    assert kkt_residual(M, a, mu) <= KKT
    found = minimize(
        lambda v: v @ M @ v - 2 * v @ a,
        np.ones(p),
        jac=lambda v: 2 * (M @ v - a),
        method="L-BFGS-B",
        bounds=[(0, None)] * p,
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 10_000, "maxfun": 100_000},
    )
    # The optimiser stops on a flat objective: its own error is the square root of its tolerance, squared again.
    assert alignment_of_weights(M, a, found.x) == pytest.approx(alignment_of_weights(M, a, mu), rel=1e-7)
    assert alignment_of_weights(M, a, found.x) <= alignment_of_weights(M, a, mu) * (1 + 1e-12)


def test_alignf_on_orthogonal_kernels_is_product_over_squared_norm():
    M, a = np.diag([4.0, 1.0, 9.0]), np.array([2.0, -1.0, 3.0])
    expected = np.array([0.5, 0.0, 1 / 3])
    np.testing.assert_allclose(Alignf().weigh(M, a).weights, expected / np.linalg.norm(expected), rtol=1e-12)


def test_alignf_puts_all_weight_on_the_target_kernel_itself():
    rng = np.random.default_rng(2)
    V = rng.normal(size=(4, 12))
    V[2] = rng.normal(size=12)
    # The products of four vectors with the third of them: alignment one is reached there and nowhere else.
    weights = Alignf().weigh(V @ V.T, V @ V[2]).weights
    np.testing.assert_allclose(weights, [0, 0, 1, 0], rtol=0, atol=1e-10)


def test_without_active_constraints_alignf_solves_the_linear_system():
    M, a = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([1.0, 1.0])
    v = np.linalg.solve(M, a)
    assert (v > 0).all()
    np.testing.assert_allclose(Alignf().weigh(M, a).weights, v / np.linalg.norm(v), rtol=1e-12)


def test_a_kernel_given_twice_changes_neither_combination_nor_alignment():
    once, twice = (gaussian_moments(6, gammas) for gammas in ([0.05, 0.7, 3.0], [0.05, 0.7, 0.7, 3.0]))
    mu, nu = Alignf().weigh(*trace_one(once)).weights, Alignf().weigh(*trace_one(twice)).weights
    merged = np.array([nu[0], nu[1] + nu[2], nu[3]])
    # Up to length: both have unit norm, over three and over four weights. M of the copies is singular.
    np.testing.assert_allclose(merged / np.linalg.norm(merged), mu, rtol=0, atol=1e-9)
    assert twice.alignment(nu / twice.centered_traces) == pytest.approx(
        once.alignment(mu / once.centered_traces), rel=1e-12
    )
    assert kkt_residual(*trace_one(twice), nu) <= KKT


@pytest.mark.parametrize("copies", [2, 5, 20])
def test_many_copies_of_one_kernel_align_as_one(copies):
    M, a = np.ones((copies, copies)), np.full(copies, 0.4)
    mu = Alignf().weigh(M, a).weights
    assert alignment_of_weights(M, a, mu) == pytest.approx(0.4, rel=1e-12)
    assert kkt_residual(M, a, mu) <= KKT


@pytest.mark.parametrize("relative", [1e-3, 1e-5, 1e-7, 1e-9, 1e-11])
@pytest.mark.parametrize("sign", [1, -1])
def test_nearly_equal_kernels_lose_no_alignment(relative, sign):
    gammas = [0.3, 0.3 * (1 + sign * relative), 2.0]
    moments = gaussian_moments(7, gammas)
    mu = Alignf().weigh(*trace_one(moments)).weights
    reached = moments.alignment(mu / moments.centered_traces)
    assert np.isfinite(mu).all()
    # Directions of M whose eigenvalue is below rounding are given up; the target's part along them, and with it the
    # alignment lost, is at most the root of that rounding.
    lost = np.sqrt(len(mu) * np.finfo(float).eps)
    assert reached >= moments.alignments.max() - lost
    without = gaussian_moments(7, [0.3, 2.0])
    assert reached >= without.alignment(Alignf().weigh(*trace_one(without)).weights / without.centered_traces) - lost


def test_kernels_of_very_different_scales_are_weighed_as_if_scaled_alike():
    M, a = PROBLEMS["three"]
    scales = np.array([1e-8, 1.0, 1e8])
    solution = Alignf().weigh(M * np.outer(scales, scales), a * scales)
    combination = solution.weights * scales
    np.testing.assert_allclose(
        combination / np.linalg.norm(combination), Alignf().weigh(M, a).weights, rtol=0, atol=1e-10
    )
    assert solution.certificate.residual <= KKT


@pytest.mark.parametrize("learner", [Align(), Alignf(), Lq()], ids=lambda learner: learner.name)
def test_kernels_that_all_oppose_the_target_are_refused(learner):
    with pytest.raises(ValueError, match="no base kernel aligns with the target"):
        learner.weigh(np.eye(3), np.array([-1.0, 0.0, -0.2]))


# Certificate ---------------------------------------------------------------------------------------------------------


def test_the_certificate_measures_each_broken_condition():
    M, a = np.array([[1.0, 0.6], [0.6, 1.0]]), np.array([1.0, 0.2])
    optimum = np.array([1.0, 0.0])
    assert kkt_certificate(M, a, optimum).residual <= 1e-15
    # A negative weight, and a weight too short: its gradient is half the steepest, and so is the product.
    assert kkt_certificate(M, a, np.linalg.solve(M, a)).residual > 0.1
    assert kkt_certificate(M, a, 0.5 * optimum).residual == pytest.approx(0.5)
    assert not kkt_certificate(M, a, 0.5 * optimum).converged


def test_the_certificate_does_not_depend_on_scales():
    M, a = PROBLEMS["three"]
    v, scales = np.array([0.3, 0.1, 0.7]), np.array([1e-4, 1.0, 1e5])
    plain = kkt_certificate(M, a, v)
    scaled = kkt_certificate(M * np.outer(scales, scales), 7 * a * scales, 7 * v / scales)
    assert scaled.residual == pytest.approx(plain.residual)


# Known values --------------------------------------------------------------------------------------------------------


def test_breast_cancer_gives_the_weights_and_alignments_found_by_other_programs():
    # Standardised features, labels +-1, gamma = 2^-9 .. 2^-3, centered, trace one. The weights of alignf are those of
    # a general quadratic programme over explicitly centered matrices; all numbers hold to the digits given.
    data = load_breast_cancer()
    X = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    y = 2.0 * data.target - 1.0
    moments = gram_moments(GaussianFamily([2.0**g for g in range(-9, -2)]), X, y)
    M, a = trace_one(moments)
    weights = {name: as_learner(name).weigh(M, a).weights for name in ("alignf", "align", "unif")}
    aligned = {name: moments.alignment(mu / moments.centered_traces) for name, mu in weights.items()}
    np.testing.assert_allclose(weights["alignf"], [0.46215, 0, 0.09035, 0.88219, 0, 0, 0], rtol=0, atol=6e-6)
    np.testing.assert_allclose(weights["align"], [0.412, 0.420, 0.426, 0.418, 0.385, 0.317, 0.221], rtol=0, atol=6e-4)
    assert aligned["alignf"] == pytest.approx(0.616956, rel=0, abs=6e-7)
    assert aligned["align"] == pytest.approx(0.613322, rel=0, abs=6e-7)
    assert aligned["unif"] == pytest.approx(0.610595, rel=0, abs=6e-7)
    assert (weights["alignf"][[1, 4, 5, 6]] == 0).all()
    assert kkt_residual(M, a, weights["alignf"]) <= KKT


@pytest.mark.parametrize(
    ("name", "params", "sentence"),
    [
        ("lq", {"q": 0.5}, "q must be a number from 1 to infinity, got 0.5"),
        ("alignf-linear", {"dependent": "all"}, "dependent must be error or subset"),
        ("lp-svm", {"norm": 0.9}, "norm must be at least 1, got 0.9"),
        ("lp-krr", {"norm": 0.0}, "norm must be at least 1"),
        ("l2-krr", {"center": -1.0}, "center must be zero or positive"),
        ("l2-krr", {"radius": 0.0}, "radius must be positive and finite"),
        ("nkrr", {"degree": 9}, "degree must be a whole number from 1 to"),
        ("nkrr", {"offset": -1.0}, "offset must be zero or positive"),
        ("nkrr", {"radius": 0.0, "center": 0.0}, "radius and center must not both be zero"),
        ("single-stage", {"gamma": -1.0}, "gamma, gamma1 and gamma2 must not be negative"),
        ("single-stage", {"gamma2": 0.0}, "gamma1 or gamma2 must be positive"),
        ("easymkl", {"tradeoff": 2.0}, "tradeoff must be between 0 and 1"),
        ("ca", {"kind": "cauchy"}, "kind must be gaussian, laplacian or dirichlet"),
        ("ca", {"max_kernels": 0}, "max_kernels must be at least 1"),
        ("cr", {"tolerance": 0.0}, "tolerance and max_iterations must be positive"),
        ("rfm", {"rank": 0}, "rank must be a whole number of at least 1"),
        ("rfm", {"weights": "best"}, "weights must be one of auto, "),
    ],
)
def test_a_parameter_out_of_its_range_is_found_without_rows(name, params, sentence):
    with pytest.raises(ValueError, match=sentence):
        as_learner(name, **params).require()
    as_learner(name).require()
