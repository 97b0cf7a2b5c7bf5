"""Targets: coding of labels and numbers, and predictions back in their own terms."""

from functools import partial

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris

from learnkernels.kernels.targets import Target, task_of
from tests.refusals import require_refusals

TWO = np.array(["yes", "no", "no", "yes", "no"])
THREE = np.array(["b", "a", "c", "b", "b", "a"])


# Coding --------------------------------------------------------------------------------------------------------------


CODED = [
    (TWO, None, ("no", "yes"), [[1.0], [-1.0], [-1.0], [1.0], [-1.0]]),
    (THREE, None, ("a", "b", "c"), np.eye(3)[[1, 0, 2, 1, 1, 0]]),
    (np.array([7, -1, 7, 3]), "classification", ("-1", "3", "7"), np.eye(3)[[2, 0, 2, 1]]),
    (np.array([1, 4, 2]), "regression", (), [[1.0], [4.0], [2.0]]),
    (np.arange(6.0).reshape(3, 2), None, (), np.arange(6.0).reshape(3, 2)),
]


@pytest.mark.parametrize(("y", "task", "classes", "Y"), CODED)
def test_two_classes_are_signs_more_are_indicators_and_numbers_are_themselves(y, task, classes, Y):
    target = Target.of(y, task)
    assert (target.task, target.classes) == ("classification" if classes else "regression", classes)
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


@pytest.mark.parametrize("y", [TWO, THREE, np.array([0.5, -2.0, 7.0]), np.arange(8.0).reshape(4, 2)])
def test_decoding_the_coding_gives_the_values_back_also_along_a_leading_axis(y):
    target = Target.of(y)
    np.testing.assert_array_equal(target.decode(target.Y), target.values)
    assert target.error(target.decode(target.Y)) == 0.0
    decoded = target.decode(np.stack([target.Y, 2 * target.Y]))
    np.testing.assert_array_equal(decoded[0], target.values)
    assert decoded.shape[:2] == (2, len(y))


def test_scores_decode_to_the_likelier_class():
    np.testing.assert_array_equal(Target.of(TWO).decode(np.array([[0.1], [-0.1], [3.0]])), [1, 0, 1])
    np.testing.assert_array_equal(Target.of(THREE).decode(np.array([[0.1, 0.4, 0.3], [0.9, 1.0, 1.1]])), [1, 2])


def test_errors_are_shares_of_misclassified_rows_and_rmse_in_units_of_y():
    assert Target.of(TWO).error(np.array([1, 0, 1, 0, 0])) == pytest.approx(2 / 5)
    assert Target.of(np.array([1.0, 2.0, 3.5])).error(np.array([1.0, 2.0, 6.5])) == pytest.approx(np.sqrt(3.0))
    assert Target.of(np.zeros((2, 2))).error(np.array([[2.0, 0.0], [0.0, 0.0]])) == pytest.approx(1.0)


def test_a_target_that_does_not_fit_its_task_is_refused():
    labels = np.array(["a", "b"])
    table = [
        (labels[[0, 0]], None, r"y must hold at least two classes, got only \['a'\]"),
        (np.ones(3), "classification", r"y must hold at least two classes, got only \[1\.0\]"),
        (np.array([labels, labels[::-1]]), None, r"y must be one column of labels.*got shape \(2, 2\)"),
        (labels, "regression", "y must be numeric for regression, got .*; use task='classification'"),
    ]
    require_refusals((partial(Target.of, y, task), said) for y, task, said in table)
