"""Parameters of objects: read, set and searched as scikit-learn does, and equality that arrays do not break."""

from dataclasses import dataclass, fields
from functools import cached_property, partial

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from learnkernels.kernels.learners import LEARNERS
from learnkernels.kernels.parameters import Parameterized
from learnkernels.kernels.predictors import PREDICTORS
from tests.refusals import require_refusals


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
    assert Several([Learner()], 1.0).get_params(deep=False) == {"learners": (Learner(),), "shift": 1.0}
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
    several.set_params(learners__0__norm=5, learners=[Learner(7, np.ones(2))])  # first the new, then of it
    assert several == Several([Learner(5, np.ones(2))], 2.0)


def test_what_cannot_be_set_is_refused_and_changes_nothing():
    learner, several = Learner(), Several([Learner()])
    table = [
        (learner, {"norms": 1}, "parameters of Learner must be one of norm, start, options, got 'norms'"),
        (learner, {"norm__p": 1}, "parameters of norm of Learner must be left out, got 'p'"),
        (several, {"learners__1__norm": 1}, "parameters of learners of Several must be one of 0,"),
        (several, {"learners__0__p": 1}, "parameters of Learner must be one of"),
        (learner, {"norm": 0}, "norm must be at least 1"),
    ]
    require_refusals((partial(given.set_params, **params), said) for given, params, said in table)
    assert (repr(learner), repr(several)) == ("Learner()", "Several([Learner()])")


def test_arrays_sparse_rows_and_missing_numbers_are_compared():
    assert Learner(2, np.array([np.nan, 1.0])) == Learner(2, np.array([np.nan, 1.0]))
    assert Learner(2, sparse.csr_matrix(np.eye(2))) == Learner(2, sparse.csr_matrix(np.eye(2)))
    assert Learner(2, sparse.csr_matrix(np.eye(2))) != Learner(2, sparse.csr_matrix(2 * np.eye(2)))
    assert Learner(options={"a": 1, "b": [2]}) == Learner(options={"b": [2], "a": 1})
    for other in (np.arange(3), np.arange(3.0)[None], np.zeros(3), None):  # another type, shape, entry, or none
        assert Learner(2, np.arange(3.0)) != Learner(2, other)
    assert Learner(2, np.arange(3.0)) not in (Several([]), 2)


def test_repr_is_one_line_without_what_is_as_by_default():
    assert repr(Learner()) == "Learner()"
    assert repr(Learner(1, np.zeros(100))) == "Learner(norm=1, start=<array of shape (100,)>)"
    assert repr(Several([Learner(np.int64(3))], shift=np.ones(2))) == "Several([Learner(norm=3)], shift=[1.0, 1.0])"
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
        assert one.get_params() == {field.name: field.default for field in fields(made) if field.init}
        for name in one.get_params():
            other = clone(one).set_params(**{name: 0.625})
            assert other.get_params() == one.get_params() | {name: 0.625}
            assert other == made(**{name: 0.625}) == clone(other) != one
            assert repr(other) == f"{made.__name__}({name}=0.625)"
        assert one == made()
        with pytest.raises(ValueError, match=f"parameters of {made.__name__} must be (one of|left out)"):
            one.set_params(unheard_of=1)
