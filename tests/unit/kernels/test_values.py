"""Targets: coding of labels and numbers, and predictions back in their own terms."""

from dataclasses import dataclass, fields
from functools import cached_property, partial

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris

from learnkernels import center_gram, centered_alignment
from learnkernels.kernels.base import Parameterized
from learnkernels.kernels.centering import center_cross_gram
from learnkernels.kernels.learners import LEARNERS
from learnkernels.kernels.predictors import PREDICTORS
from learnkernels.kernels.targets import Target, task_of
from tests import reference
from tests.refusals import require_refusals

TWO = np.array(["yes", "no", "no", "yes", "no"])
THREE = np.array(["b", "a", "c", "b", "b", "a"])


# Coding --------------------------------------------------------------------------------------------------------------


CODED = [
    (TWO, None, ("no", "yes"), [[1.0], [-1.0], [-1.0], [1.0], [-1.0]]),
    (THREE, None, ("a", "b", "c"), np.eye(3)[[1, 0, 2, 1, 1, 0]]),
    (
        np.array([7, -1, 7, 3]),
        "classification",
        ("-1", "3", "7"),
        np.eye(3)[[2, 0, 2, 1]],
    ),
    (np.array([1, 4, 2]), "regression", (), [[1.0], [4.0], [2.0]]),
    (np.arange(6.0).reshape(3, 2), None, (), np.arange(6.0).reshape(3, 2)),
]


@pytest.mark.parametrize(("y", "task", "classes", "Y"), CODED)
def test_two_classes_are_signs_more_are_indicators_and_numbers_are_themselves(
    y, task, classes, Y
):
    target = Target.of(y, task)
    assert (target.task, target.classes) == (
        "classification" if classes else "regression",
        classes,
    )
    np.testing.assert_array_equal(target.Y, np.array(Y), strict=True)


def test_labels_are_told_from_numbers():
    for y, task in (
        (TWO, "classification"),
        (np.array([True, False]), "classification"),
        (load_iris().target, "classification"),
        (load_iris().target.astype(float), "classification"),
        (np.array([0.0, 1.0, 1.0]), "classification"),
        (np.arange(20), "classification"),
        (np.arange(21), "regression"),
        (load_diabetes().target, "regression"),  # 214 whole numbers
        (load_diabetes().target.astype(int), "regression"),
        (np.array([0.5, 1.0]), "regression"),
        (np.array([[0, 1], [1, 0], [1, 1]]), "regression"),
    ):
        assert task_of(y) == Target.of(y).task == task, y


def test_taking_rows_keeps_the_classes_of_the_whole():
    part = Target.of(THREE).take([1, 5])
    assert (len(part), part.classes) == (2, ("a", "b", "c"))
    np.testing.assert_array_equal(part.Y, [[1.0, 0.0, 0.0]] * 2)


# Decoding ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "y", [TWO, THREE, np.array([0.5, -2.0, 7.0]), np.arange(8.0).reshape(4, 2)]
)
def test_decoding_the_coding_gives_the_values_back_also_along_a_leading_axis(y):
    target = Target.of(y)
    np.testing.assert_array_equal(target.decode(target.Y), target.values)
    assert target.error(target.decode(target.Y)) == 0.0
    decoded = target.decode(np.stack([target.Y, 2 * target.Y]))
    np.testing.assert_array_equal(decoded[0], target.values)
    assert decoded.shape[:2] == (2, len(y))


def test_scores_decode_to_the_likelier_class():
    np.testing.assert_array_equal(
        Target.of(TWO).decode(np.array([[0.1], [-0.1], [3.0]])), [1, 0, 1]
    )
    np.testing.assert_array_equal(
        Target.of(THREE).decode(np.array([[0.1, 0.4, 0.3], [0.9, 1.0, 1.1]])), [1, 2]
    )


def test_errors_are_shares_of_misclassified_rows_and_rmse_in_units_of_y():
    assert Target.of(TWO).error(np.array([1, 0, 1, 0, 0])) == pytest.approx(2 / 5)
    assert Target.of(np.array([1.0, 2.0, 3.5])).error(
        np.array([1.0, 2.0, 6.5])
    ) == pytest.approx(np.sqrt(3.0))
    assert Target.of(np.zeros((2, 2))).error(
        np.array([[2.0, 0.0], [0.0, 0.0]])
    ) == pytest.approx(1.0)


def test_a_target_that_does_not_fit_its_task_is_refused():
    labels = np.array(["a", "b"])
    table = [
        (labels[[0, 0]], None, r"y must hold at least two classes, got only \['a'\]"),
        (
            np.ones(3),
            "classification",
            r"y must hold at least two classes, got only \[1\.0\]",
        ),
        (
            np.array([labels, labels[::-1]]),
            None,
            r"y must be one column of labels.*got shape \(2, 2\)",
        ),
        (
            labels,
            "regression",
            "y must be numeric for regression, got .*; use task='classification'",
        ),
    ]
    require_refusals((partial(Target.of, y, task), said) for y, task, said in table)


# Centering in feature space and the alignment of two matrices --------------------------------------------------------


def random_gram(m: int, seed: int) -> np.ndarray:
    """Return a positive semi-definite matrix that is far from centered."""
    V = np.random.default_rng(seed).normal(size=(m, 6)) + 1.5
    return V @ V.T


# Centering -----------------------------------------------------------------------------------------------------------

MATRICES = {
    "gram": random_gram(30, seed=0),
    "large-values": 1e8 * random_gram(20, seed=2),
}
MATRICES["asymmetric"] = np.random.default_rng(1).normal(size=(25, 25))
MATRICES["two-rows"] = np.array([[2.0, 0.5], [0.5, 3.0]])


@pytest.mark.parametrize("name", MATRICES)
def test_centering_is_multiplication_by_H_on_both_sides(name):
    K = MATRICES[name].copy()
    Kc, size = center_gram(K), np.abs(K).max()
    np.testing.assert_allclose(
        Kc, reference.centered(K).astype(float), rtol=0, atol=1e-12 * size
    )
    np.testing.assert_allclose(
        center_gram(K + 3.0 * size), Kc, rtol=0, atol=3e-12 * size
    )
    np.testing.assert_allclose(center_cross_gram(K, K), Kc, rtol=0, atol=1e-12 * size)
    np.testing.assert_array_equal(K, MATRICES[name])


# New rows ------------------------------------------------------------------------------------------------------------


def test_new_rows_are_centered_by_the_training_rows_mean_feature_entry_by_entry():
    rng = np.random.default_rng(6)
    X, X_new = rng.normal(size=(20, 4)) + 1.0, rng.normal(size=(7, 4)) - 2.0
    expected = reference.centered_linear_features(X_new, X).astype(float)
    np.testing.assert_allclose(
        center_cross_gram(X_new @ X.T, X @ X.T), expected, rtol=0, atol=1e-12
    )
    K, K_cross = (
        reference.gram(reference.gaussian(0.3), X),
        reference.gram(reference.gaussian(0.3), X_new, X),
    )
    got = center_cross_gram(K_cross.astype(float), K.astype(float))
    np.testing.assert_allclose(
        got, reference.centered_cross(K_cross, K).astype(float), rtol=0, atol=1e-12
    )


# Alignment -----------------------------------------------------------------------------------------------------------


def test_alignment_is_that_of_explicitly_centered_matrices():
    pairs = [
        (random_gram(25, seed), random_gram(25, seed + 100)) for seed in range(12, 22)
    ]
    own = random_gram(25, seed=31)
    for K, L in [*pairs, (own, own), (own, -own)]:
        assert centered_alignment(K, L) == pytest.approx(
            reference.alignment(K, L), rel=0, abs=1e-12
        )
        assert centered_alignment(L, K) == centered_alignment(K, L)
        assert abs(centered_alignment(K, L)) <= 1.0


def test_alignment_does_not_see_scale_an_added_constant_or_the_order_of_the_samples():
    K, L = random_gram(25, seed=14), random_gram(25, seed=15)
    order = np.random.default_rng(20).permutation(25)
    same = [(scale * K, L) for scale in (1e-300, 1e-150, 1e-8, 3.0, 1e8, 1e300)]
    same += [(K, scale * L) for scale in (1e-150, 1e8)]
    same += [(K + 70.0, L - 3.0), (K[np.ix_(order, order)], L[np.ix_(order, order)])]
    for A, B in same:
        assert centered_alignment(A, B) == pytest.approx(
            centered_alignment(K, L), rel=0, abs=1e-12
        )


def test_a_nearly_constant_matrix_still_has_an_alignment():
    X = np.random.default_rng(33).normal(size=(25, 3))
    K, L = (reference.gram(reference.gaussian(gamma), X) for gamma in (2.0**-26, 0.5))
    # K - 1 is about 1e-7, so double precision leaves 1e-9 of it.
    aligned = centered_alignment(K.astype(float), L.astype(float))
    assert aligned == pytest.approx(reference.alignment(K, L), rel=0, abs=1e-7)


# Errors --------------------------------------------------------------------------------------------------------------


def test_matrices_that_do_not_fit_or_have_no_alignment_are_refused():
    three, eye = np.ones((2, 3)), np.eye(3)
    said = r"K_cross must have one column a training row, got .* 3 training"
    refused = [
        (center_cross_gram, (np.ones(shape), eye), said) for shape in ((5, 4), (3,))
    ]
    for shape in ((3, 4), (3,), (2, 2, 2)):
        K = np.ones(shape)
        refused += [
            (
                center_gram,
                (K,),
                r"K must be square, got shape .*; for test rows use center_cross_gram",
            ),
            (center_cross_gram, (three, K), "K must be square"),
            (centered_alignment, (eye, K), "L must be square"),
            (centered_alignment, (K, eye), "K must be square"),
        ]
    samples = r"K and L must be over the same samples, got shapes \(3, 3\) and \(4, 4\)"
    refused += [(centered_alignment, (eye, np.eye(4)), samples)]
    for bad in (np.nan, np.inf):
        K = np.where(np.arange(9).reshape(3, 3) == 1, bad, eye)
        refused += [
            (centered_alignment, (K, eye), "K must be finite"),
            (centered_alignment, (eye, K), "L must be fin"),
        ]
    rows, columns = np.arange(20) / 3, np.arange(20) / 7
    constants = [np.full((20, 20), value) for value in (0.0, 0.1, 1e9 / 3)] + [
        np.add.outer(rows, columns)
    ]
    constants += [np.full((20, 20), value, np.float32) for value in (0.1, 1e9 / 3)]
    for K in constants:
        other = np.diag(np.arange(1.0, 21.0))
        refused += [
            (
                centered_alignment,
                (K, other),
                "K is constant after centering, so its alignment is undefined",
            ),
            (centered_alignment, (other, K), "L is constant after centering"),
        ]
    refused += [
        (
            centered_alignment,
            (np.ones((1, 1)), np.ones((1, 1))),
            "K is constant after centering",
        )
    ]
    require_refusals(
        (partial(function, *given), sentence) for function, given, sentence in refused
    )


# Parameters of objects: read, set and searched as scikit-learn does, and equality that arrays do not break -----------


@dataclass(frozen=True, eq=False, repr=False)
class Learner(Parameterized):
    """A frozen dataclass."""

    norm: int = 2
    start: np.ndarray | None = None
    options: dict[str, float] | None = None

    def __post_init__(self) -> None:
        if self.norm < 1:
            raise ValueError(f"norm must be at least 1, got {self.norm}.")

    @cached_property
    def dual(self) -> float:
        return np.inf if self.norm == 1 else self.norm / (self.norm - 1)


class Several(Parameterized):
    """A plain class around others."""

    def __init__(self, learners, shift=0.0) -> None:
        self.learners = tuple(learners)
        self.shift = shift


def test_parameters_are_those_of_the_constructor_and_what_is_derived_follows_them():
    assert list(Learner(3).get_params()) == ["norm", "start", "options"]
    assert Several([Learner()], 1.0).get_params(deep=False) == {
        "learners": (Learner(),),
        "shift": 1.0,
    }
    learner = Learner(3)
    assert learner.dual == 1.5
    assert learner.set_params(norm=2) is learner == Learner(2)
    assert learner.dual == 2.0


def test_parameters_of_parameters_have_names_of_their_own():
    several = Several([Learner(1), Learner(2)])
    assert several.get_params()["learners__1__norm"] == 2
    before = several.learners
    several.set_params(learners__1__norm=3, learners__0=Learner(4), shift=2.0)
    assert several == Several([Learner(4), Learner(3)], 2.0)
    assert before == (Learner(1), Learner(2))  # others may hold them
    # First the new, then of it
    several.set_params(learners__0__norm=5, learners=[Learner(7, np.ones(2))])
    assert several == Several([Learner(5, np.ones(2))], 2.0)


def test_what_cannot_be_set_is_refused_and_changes_nothing():
    learner, several = Learner(), Several([Learner()])
    table = [
        (
            learner,
            {"norms": 1},
            "Learner has no parameter 'norms'. Did you mean 'norm'[?] Its parameters are norm, start, options.",
        ),
        (learner, {"norm__p": 1}, "norm of Learner takes no parameters, got 'p'."),
        (
            several,
            {"learners__1__norm": 1},
            "learners of Several has no parameter '1'. Its parameters are 0",
        ),
        (
            several,
            {"learners__0__p": 1},
            "Learner has no parameter 'p'. Did you mean 'norm'[?]",
        ),
        (learner, {"norm": 0}, "norm must be at least 1"),
    ]
    require_refusals(
        (partial(given.set_params, **params), said) for given, params, said in table
    )
    assert (repr(learner), repr(several)) == ("Learner()", "Several([Learner()])")


def test_arrays_sparse_rows_and_missing_numbers_are_compared():
    assert Learner(2, np.array([np.nan, 1.0])) == Learner(2, np.array([np.nan, 1.0]))
    assert Learner(2, sparse.csr_matrix(np.eye(2))) == Learner(
        2, sparse.csr_matrix(np.eye(2))
    )
    assert Learner(2, sparse.csr_matrix(np.eye(2))) != Learner(
        2, sparse.csr_matrix(2 * np.eye(2))
    )
    assert Learner(options={"a": 1, "b": [2]}) == Learner(options={"b": [2], "a": 1})
    # Another type, shape, entry, or none
    for other in (
        np.arange(3),
        np.arange(3.0)[None],
        np.zeros(3),
        None,
    ):
        assert Learner(2, np.arange(3.0)) != Learner(2, other)
    assert Learner(2, np.arange(3.0)) not in (Several([]), 2)


def test_repr_is_one_line_without_what_is_as_by_default():
    assert repr(Learner()) == "Learner()"
    assert (
        repr(Learner(1, np.zeros(100)))
        == "Learner(norm=1, start=<array of shape (100,)>)"
    )
    assert (
        repr(Several([Learner(np.int64(3))], shift=np.ones(2)))
        == "Several([Learner(norm=3)], shift=[1.0, 1.0])"
    )
    assert repr(Several([Learner()] * 99)) == "Several(<99 values>)"


def test_learners_and_predictors_are_their_parameters():
    classes = [*LEARNERS.values(), *PREDICTORS.values()]
    assert len({made() for made in classes}) == len(classes)
    for made in classes:
        one = made()
        assert repr(one) == f"{made.__name__}()"
        assert one == made() == clone(one)
        assert clone(one) is not one
        assert hash(one) == hash(made())
        assert one.get_params() == {
            field.name: field.default for field in fields(made) if field.init
        }
        for name in one.get_params():
            other = clone(one).set_params(**{name: 0.625})
            assert other.get_params() == one.get_params() | {name: 0.625}
            assert other == made(**{name: 0.625}) == clone(other) != one
            assert repr(other) == f"{made.__name__}({name}=0.625)"
        assert one == made()
        with pytest.raises(
            ValueError,
            match=f"^{made.__name__} (has no parameter|takes no parameters, got) 'unheard_of'",
        ):
            one.set_params(unheard_of=1)
