"""Paired tests against their definitions and against simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, special

from learnkernels.tasks.measure.t_tests import SIGNIFICANCE, corrected_p, paired_p, share_of_test


def student_cdf(t: float, n: int) -> float:
    """The distribution function of Student's t by integrating its density."""
    scale = np.exp(special.gammaln((n + 1) / 2) - special.gammaln(n / 2)) / np.sqrt(n * np.pi)
    return integrate.quad(lambda x: scale * (1 + x * x / n) ** (-(n + 1) / 2), -np.inf, t, epsabs=1e-12)[0]


def test_the_plain_test_is_student_s():
    ours, theirs = np.array([0.10, 0.12, 0.08, 0.15, 0.11]), np.array([0.12, 0.13, 0.11, 0.14, 0.13])
    d = ours - theirs
    t = d.mean() / (d.std(ddof=1) / np.sqrt(5))
    assert paired_p(ours, theirs) == pytest.approx(student_cdf(t, 4), abs=1e-9)


def test_the_corrected_test_adds_the_share_of_test_rows_to_the_variance():
    ours, theirs = np.array([0.10, 0.12, 0.08, 0.15, 0.11]), np.array([0.12, 0.13, 0.11, 0.14, 0.13])
    d = ours - theirs
    t = d.mean() / np.sqrt((1 / 5 + 1 / 3) * d.var(ddof=1))
    assert corrected_p(ours, theirs, 1 / 3) == pytest.approx(student_cdf(t, 4), abs=1e-9)
    assert corrected_p(ours, theirs, 0.0) == pytest.approx(paired_p(ours, theirs))
    assert corrected_p(ours, theirs, 1 / 3) > paired_p(ours, theirs)


@pytest.mark.parametrize("test", [paired_p, lambda a, b: corrected_p(a, b, 0.25)])
def test_differences_without_variance_and_missing_pairs(test):
    errors = np.array([0.1, 0.2, 0.3])
    assert test(errors, errors) == 1.0
    assert test(errors - 0.25, errors - 0.25 + 0.125) == 0.0
    assert test(errors[:1], errors[:1]) is None
    assert test(errors, errors[:2]) is None


def test_a_true_null_is_rejected_as_often_as_the_level_says():
    rng = np.random.default_rng(0)
    rejected = [paired_p(*rng.normal(size=(2, 5))) < 0.1 for _ in range(2000)]
    # Standard deviation of the share: sqrt(.1 * .9 / 2000) = .0067.
    assert np.mean(rejected) == pytest.approx(0.1, abs=0.025)


def test_of_recipes_that_are_alike_the_corrected_test_seldom_finds_one_better_and_the_plain_one_often_does():
    """Differences of 10 x 5 folds: the variance of each is one, and any two share the part that their training rows do.

    That part is the share of rows which test, as Nadeau and Bengio put it: the correlation for which the correction is
    right.
    """
    rng, trials, share = np.random.default_rng(0), 50, 1 / 5
    shared, own = rng.normal(size=(1000, 1)), rng.normal(size=(1000, trials))
    differences = np.sqrt(share) * shared + np.sqrt(1 - share) * own
    even = np.zeros(trials)
    test_share = share_of_test(np.full(trials, 20), np.full(trials, 100))
    corrected = np.mean([corrected_p(one, even, test_share) < SIGNIFICANCE for one in differences])
    plain = np.mean([paired_p(one, even) < SIGNIFICANCE for one in differences])
    # Standard deviation of a share at the level: sqrt(.1 * .9 / 1000) = .0095.
    assert corrected <= SIGNIFICANCE + 2 * 0.0095
    assert plain > 3 * SIGNIFICANCE


def test_the_share_of_test_rows_counts_all_that_do_not_test():
    assert share_of_test(np.array([20, 20]), np.array([100, 100])) == 0.25
    assert share_of_test(np.array([10, 30]), np.array([100, 100])) == pytest.approx((10 / 90 + 30 / 70) / 2)


@pytest.mark.parametrize("n_rows", [60, 600])
def test_the_corrected_test_of_drawn_rows_rejects_a_true_null_no_more_often_than_the_level_says(n_rows: int):
    """Two learners of the same error, means of 20 training rows either of noise, on 20 drawn test rows of `n_rows`."""
    rng, rejected = np.random.default_rng(1), []
    for _ in range(400):
        noise = rng.normal(size=(2, n_rows))
        differences = []
        for _ in range(10):
            rows = rng.permutation(n_rows)[:40]
            ours, theirs = noise[:, rows[:20]].mean(axis=1)
            differences.append([(ours - noise[0, rows[20:]].mean()) ** 2, (theirs - noise[0, rows[20:]].mean()) ** 2])
        ours, theirs = np.array(differences).T
        # The second learner saw features that have nothing to do with the target: it is no better in expectation.
        rejected.append(corrected_p(theirs, ours, share_of_test(np.array([20]), np.array([n_rows]))) < 0.1)
    # Standard deviation of the share: sqrt(.1 * .9 / 400) = .015.
    assert np.mean(rejected) < 0.1 + 3 * 0.015
