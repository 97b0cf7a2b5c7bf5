"""Paired tests against their definitions and against simulation."""

from functools import partial

import numpy as np
import pytest
from scipy import integrate, special, stats

from learnkernels.tasks.measure import t_tests


def student_cdf(t: float, n: int) -> float:
    """The distribution function of Student's t by integrating its density."""
    scale = np.exp(special.gammaln((n + 1) / 2) - special.gammaln(n / 2)) / np.sqrt(n * np.pi)
    return integrate.quad(lambda x: scale * (1 + x * x / n) ** (-(n + 1) / 2), -np.inf, t, epsabs=1e-12)[0]


def test_the_corrected_test_adds_the_share_of_test_rows_to_the_variance_of_student_s():
    ours, theirs = np.array([0.10, 0.12, 0.08, 0.15, 0.11]), np.array([0.12, 0.13, 0.11, 0.14, 0.13])
    d = ours - theirs
    plain, adjusted = (d.mean() / np.sqrt((1 / 5 + share) * d.var(ddof=1)) for share in (0, 1 / 3))
    assert t_tests.paired_p(ours, theirs) == pytest.approx(student_cdf(plain, 4), abs=1e-9)
    assert t_tests.corrected_p(ours, theirs, 1 / 3) == pytest.approx(student_cdf(adjusted, 4), abs=1e-9)
    assert t_tests.corrected_p(ours, theirs, 0.0) == pytest.approx(t_tests.paired_p(ours, theirs))
    assert t_tests.corrected_p(ours, theirs, 1 / 3) > t_tests.paired_p(ours, theirs)
    assert t_tests.share_of_test(np.array([20, 20]), np.array([100, 100])) == 0.25
    assert t_tests.share_of_test(np.array([10, 30]), np.array([100, 100])) == pytest.approx((10 / 90 + 30 / 70) / 2)


def test_errors_on_other_rows_are_compared_by_welch_s_test_with_the_corrected_variance():
    ours, others = np.array([0.14, 0.12, 0.18, 0.15, 0.11]), np.array([0.12, 0.13, 0.11, 0.10])
    welch = stats.ttest_ind(ours, others, equal_var=False, alternative="greater").pvalue
    assert t_tests.higher_p(ours, others, 0.0) == pytest.approx(welch, abs=1e-12)
    assert welch < t_tests.higher_p(ours, others, 1 / 3) < 0.5
    assert t_tests.higher_p(ours[:1], others, 1 / 3) is None
    same = np.full(3, 0.1)
    assert [t_tests.higher_p(same, same, 0.25), t_tests.higher_p(same + 0.2, same, 0.25)] == [1.0, 0.0]


def test_tests_of_pairs_are_two_sided_and_adjusted_and_ranks_have_the_printed_critical_difference():
    ours, theirs = np.array([0.10, 0.12, 0.08, 0.15, 0.11]), np.array([0.12, 0.13, 0.11, 0.14, 0.13])
    both = t_tests.two_sided_p(ours, theirs, 0.25)
    assert both == t_tests.two_sided_p(theirs, ours, 0.25) == 2 * t_tests.corrected_p(ours, theirs, 0.25)
    assert t_tests.two_sided_p(ours, theirs, 0.0) == pytest.approx(stats.ttest_rel(ours, theirs).pvalue, abs=1e-12)
    assert t_tests.two_sided_p(ours, ours, 0.25) == 1.0
    assert np.isnan(t_tests.two_sided_p(ours[:1], theirs[:1], 0.25))
    np.testing.assert_allclose(t_tests.holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])  # Holm (1979)
    assert t_tests.holm([0.6, 0.7]).tolist() == [1.0, 1.0]
    expected = 2.569 * np.sqrt(4 * 5 / (6 * 14))  # Demsar (2006)
    assert t_tests.critical_difference(14, 4) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("test", [t_tests.paired_p, partial(t_tests.corrected_p, test_share=0.25)])
def test_differences_without_variance_and_missing_pairs(test):
    errors = np.array([0.1, 0.2, 0.3])
    assert test(errors, errors) == 1.0
    assert test(errors - 0.25, errors - 0.25 + 0.125) == 0.0
    assert test(errors, errors + 0.2) == 0.0  # but for rounding
    assert test(errors + 0.2, errors) == test((errors + 0.2) - 0.2, errors) == 1.0
    assert test(errors[:1], errors[:1]) is None
    assert test(errors, errors[:2]) is None
