"""Verdicts on constructed trials, against SciPy's tests and numbers worked out by hand."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from learnkernels.conf.schema import GRID_SEARCH_TITLE
from learnkernels.reproduction import cells, derived, judge, published_tests, trials
from learnkernels.reproduction.item import CellConfig, PaperItem
from learnkernels.tasks.measure.baseline import GRID_SEARCH
from tests.unit.tasks.test_report import trial

N_TRAIN, N_TEST, N_ROWS = 60, 20, 100


def table(
    errors: Mapping[tuple[str, str], Any],
    alignments: Mapping[tuple[str, str], Any] | None = None,
):
    """A fold table; of each (data set, learner) the errors of shape (repeats, folds)."""
    rows = []
    for (dataset, learner), values in errors.items():
        algorithm = GRID_SEARCH if learner == GRID_SEARCH_TITLE else learner
        values = np.atleast_2d(np.asarray(values, dtype=float))
        aligned = np.atleast_2d(
            np.asarray(
                (alignments or {}).get(
                    (dataset, learner), np.full(values.shape, np.nan)
                )
            )
        )
        for (repeat, fold), error in np.ndenumerate(values):
            of = {
                "dataset": dataset,
                "learner": learner,
                "algorithm": algorithm,
                "predictor": "krr",
                "repeat": repeat,
            }
            of |= {
                "fold": fold,
                "error": error,
                "alignment": aligned[repeat, fold],
                "test_alignment": np.nan,
            }
            of |= {"seconds_weights": 1.0 + fold, "seconds_fit": 0.5}
            rows.append(trial(**of, n_train=N_TRAIN, n_test=N_TEST, n_rows=N_ROWS))
    return pd.DataFrame(rows)


def item(**keys: Any) -> PaperItem:
    data = {
        "name": "jmlr2012-made", "paper": "JMLR 2012", "where": "Table 0", "title": "Made up", "setup": "None.",
        "study": {"kind": "comparison", "parts": [{}]},
    }  # fmt: skip
    return PaperItem.model_validate(data | keys)


def verdict(
    folds: pd.DataFrame, values: Mapping[str, float] | None = None, **keys: Any
) -> Any:
    (only,) = judge.judge_claims(
        item(claims=[{"says": "So it is.", **keys}]), folds, values or {}
    )
    return only


rng = np.random.default_rng(0)
UNIF = 0.3 + 0.05 * rng.random((2, 5))
BETTER = UNIF - 0.05 + 0.01 * rng.standard_normal((2, 5))
CLOSE = UNIF - 0.004 + 0.02 * rng.standard_normal((2, 5))
FOLDS = table({("d", "unif"): UNIF, ("d", "alignf"): BETTER, ("d", "align"): CLOSE})


def corrected(first: np.ndarray, second: np.ndarray) -> float:
    """Nadeau and Bengio's test, written out."""
    difference = (first - second).ravel()
    n = len(difference)
    t = difference.mean() / np.sqrt(
        (1 / n + N_TEST / (N_ROWS - N_TEST)) * difference.var(ddof=1)
    )
    return float(stats.t(n - 1).cdf(t))


def test_the_corrected_test_over_all_paired_trials_decides_and_the_plain_one_stands_beside_it():
    found = verdict(FOLDS, better="alignf", than="unif")
    (one,) = found.evidence
    assert (found.word, one.on) == ("holds", "d")
    assert (one.better, one.than) == pytest.approx((BETTER.mean(), UNIF.mean()))
    assert one.p == pytest.approx(corrected(BETTER, UNIF))
    plain = [
        stats.ttest_rel(BETTER[r], UNIF[r], alternative="less").pvalue for r in (0, 1)
    ]
    assert one.paired == pytest.approx(plain[0])
    assert (one.below, one.repeats) == (sum(p < 0.1 for p in plain), 2)
    shuffled = FOLDS.sample(frac=1, random_state=1).reset_index(drop=True)
    assert verdict(shuffled, better="alignf", than="unif") == found
    lacking = FOLDS.drop(
        FOLDS[(FOLDS["learner"] == "alignf") & (FOLDS["repeat"] == 1)].index
    )
    (one,) = verdict(lacking, better="alignf", than="unif").evidence
    assert one.p == pytest.approx(corrected(BETTER[:1], UNIF[:1]))


def test_words_follow_from_what_is_expected():
    assert 0.1 < corrected(CLOSE, UNIF) < 0.5
    words = {
        ("alignf", "unif", "significant"): "holds",
        ("align", "unif", "significant"): "not significant",
        ("unif", "alignf", "significant"): "not reproduced",
        ("align", "unif", "direction"): "holds",
        ("unif", "align", "direction"): "not reproduced",
        ("align", "unif", "none"): "holds",
        (
            "unif",
            "alignf",
            "none",
        ): "holds",  # what is worse is not significantly better
        ("alignf", "unif", "none"): "not reproduced",
        ("l2-krr", "unif", "significant"): "cannot be judged",
    }
    found = {
        key: verdict(FOLDS, better=key[0], than=key[1], expected=key[2], on=["d"]).word
        for key in words
    }
    assert found == words


def test_learners_that_are_alike_are_one_check_in_both_directions():
    one_way = verdict(FOLDS, better="align", than="unif", expected="none").evidence[0].p
    other_way = (
        verdict(FOLDS, better="unif", than="align", expected="none").evidence[0].p
    )
    for first, second in (("align", "unif"), ("unif", "align")):
        both = verdict(FOLDS, better=first, than=second, expected="alike")
        assert both.evidence[0].p == min(one_way, other_way)
        assert both.word == "holds"
    learners = ["unif", "align", "alignf"]
    claim = {
        "says": "All are alike.",
        "better": learners,
        "than": learners,
        "expected": "alike",
    }
    checks = judge.judge_claims(item(claims=[claim]), FOLDS, {})
    assert [check.learners for check in checks] == [
        "unif, align",
        "unif, alignf",
        "align, alignf",
    ]
    assert [check.word for check in checks] == [
        "holds",
        "not reproduced",
        "not reproduced",
    ]
    across = pd.concat([FOLDS.assign(dataset=f"d{i}") for i in range(6)])
    assert (
        verdict(
            across, better="unif", than="alignf", expected="alike", across=True
        ).word
        == "not reproduced"
    )


def test_a_claim_holds_where_it_does_on_every_data_set():
    folds = pd.concat(
        [
            FOLDS,
            table(
                {
                    ("e 10", "unif"): UNIF,
                    ("e 10", "alignf"): UNIF + 0.01 * rng.random((2, 5)),
                }
            ),
        ]
    )
    found = verdict(folds, better="alignf", than="unif")
    assert [one.word for one in found.evidence] == ["holds", "not reproduced"]
    assert found.word == "not reproduced"
    assert verdict(folds, better="alignf", than="unif", on=["d"]).word == "holds"
    assert [
        one.on
        for one in verdict(folds, better="alignf", than="unif", on=["e"]).evidence
    ] == ["e 10"]  # a panel
    missing = verdict(folds, better="alignf", than="unif", on=["d", "f"])
    assert missing.word == "cannot be judged"
    # By default a claim speaks of the data sets that have both learners.
    assert [one.on for one in verdict(folds, better="align", than="unif").evidence] == [
        "d"
    ]


def test_a_claim_has_a_check_for_each_pair_of_learners():
    claim = {"says": "So.", "better": ["alignf", "align"], "than": ["unif", "align"]}
    proof = {
        "says": "By definition.",
        "better": "alignf",
        "than": "unif",
        "identity": True,
    }
    checks = judge.judge_claims(item(claims=[claim, proof]), FOLDS, {})
    assert [one.learners for one in checks] == [
        "alignf, unif",
        "alignf, align",
        "align, unif",
        "",
    ]
    claims = judge.group_by_claim(checks)
    assert [len(of) for of in claims.values()] == [3, 1]
    assert judge.overall_word(claims["So."]) == "not significant"  # align, unif
    assert [one.identity for one in checks] == [False] * 3 + [True]


def test_the_detectable_difference_is_found_with_a_power_of_four_fifths():
    """By simulation: normal differences of that mean and of the deviation of the trials."""
    (one,) = verdict(FOLDS, better="align", than="unif", expected="none").evidence
    deviation, n, share = (
        (CLOSE - UNIF).std(ddof=1),
        CLOSE.size,
        N_TEST / (N_ROWS - N_TEST),
    )
    means = np.random.default_rng(3).normal(
        one.detectable, deviation * np.sqrt(1 / n + share), 20_000
    )
    spread = deviation * np.sqrt(
        np.random.default_rng(4).chisquare(n - 1, 20_000) / (n - 1)
    )
    found = means / (spread * np.sqrt(1 / n + share)) > stats.t.ppf(0.9, n - 1)
    # The noncentral t, to its usual approximation
    assert found.mean() == pytest.approx(0.8, abs=0.02)
    assert verdict(FOLDS, better="align", than="unif").evidence[0].detectable is None


def test_numbers_all_on_one_side_are_named():
    def cell(dataset: str, apart: float) -> cells.Cell:
        return cells.Cell(dataset, "unif", "error", 1.0, 0.1, 1.0, 0.1, apart, "rmse")

    low = [cell("kin", apart) for apart in (-1.2, -1.6, -1.8)]
    assert cells.systematic_deviations(low) == [
        "kin: all 3 values of error are below the paper's, by 1.2 to 1.8 deviations."
    ]
    assert cells.systematic_deviations([*low, cell("kin", 0.0)]) == []
    all_high = [cell(f"d{i}", 0.1 + i / 10) for i in range(8)]
    assert cells.systematic_deviations(all_high) == [
        "Data sets measured by rmse: all 8 values of error are above the paper's, by 0.1 to 0.8 deviations."
    ]


def test_alignment_is_better_when_higher_and_cannot_be_judged_without_a_kernel():
    aligned = {
        ("d", "unif"): UNIF,
        ("d", "alignf"): UNIF + 0.1 + 0.01 * rng.standard_normal((2, 5)),
    }
    folds = table(
        {**dict.fromkeys(aligned, UNIF), ("d", GRID_SEARCH_TITLE): UNIF}, aligned
    )
    (one,) = verdict(folds, better="alignf", than="unif", measure="alignment").evidence
    assert one.word == "holds"
    assert one.p == pytest.approx(
        corrected(-aligned["d", "alignf"], -aligned["d", "unif"])
    )
    assert (
        verdict(folds, better=GRID_SEARCH_TITLE, than="unif", measure="alignment").word
        == "cannot be judged"
    )


def test_a_split_is_tested_over_its_repeats_and_one_trial_not_at_all():
    split = table(
        {("d", "unif"): UNIF.reshape(10, 1), ("d", "alignf"): BETTER.reshape(10, 1)}
    )
    (one,) = verdict(split, better="alignf", than="unif").evidence
    assert one.paired == pytest.approx(
        stats.ttest_rel(BETTER.ravel(), UNIF.ravel(), alternative="less").pvalue
    )
    assert one.repeats == 1
    single = table({("d", "unif"): [[0.3]], ("d", "alignf"): [[0.2]]})
    found = verdict(single, better="alignf", than="unif")
    assert (found.word, found.evidence[0].p) == ("not significant", None)
    assert (
        verdict(single, better="alignf", than="unif", expected="none").word
        == "cannot be judged"
    )


def test_across_data_sets_there_is_one_signed_rank_test():
    a, b = np.random.default_rng(5).random((2, 8))
    errors = {(f"d{i}", "a"): [a[i] - 0.01, a[i] + 0.01] for i in range(8)}
    folds = table(
        errors | {(f"d{i}", "b"): [b[i] - 0.01, b[i] + 0.01] for i in range(8)}
    )
    (one,) = verdict(folds, better="a", than="b", across=True).evidence
    assert one.p == pytest.approx(stats.wilcoxon(a, b, alternative="less").pvalue)
    assert one.on == "8 data sets"
    assert one.signed_rank
    assert one.detectable is None  # its formula is that of the t-test
    (ranked,) = verdict(
        folds, better="a", than="b", measure="rank", expected="direction"
    ).evidence
    assert ranked.better == np.median(np.where(a < b, 1, 2))


def test_the_signed_rank_test_leaves_out_what_does_not_differ():
    a, b = np.array([0.1, 0.2, 0.3, 0.45]), np.array([0.3, 0.5, 0.3, 0.4])
    assert judge.signed_rank_p(a, b) == pytest.approx(
        stats.wilcoxon([-0.2, -0.3, 0.05], alternative="less").pvalue
    )
    assert judge.signed_rank_p(a, a) == 1.0
    assert judge.signed_rank_p(a[:1], b[:1]) is None
    # All differences tie
    assert 0 < judge.signed_rank_p(np.zeros(6), np.ones(6)) < 0.05


def test_ranks_are_among_the_learners_of_the_paper_and_ties_share_theirs():
    folds = table(
        {("d", "a"): [0.1, 0.2], ("d", "b"): [0.2, 0.1], ("d", "c"): [0.4, 0.4]}
    )
    assert judge.ranks(folds, ["a", "b", "c"]).loc["d"].to_dict() == {
        "a": 1.5,
        "b": 1.5,
        "c": 3.0,
    }
    folds = table(
        {
            ("d", GRID_SEARCH_TITLE): [0.1],
            ("d", "extra"): [0.2],
            ("d", "a"): [0.3],
            ("d", "b"): [0.4],
        }
    )
    printed = [{"learner": "a", "rank": [1]}, {"learner": "b", "rank": [1]}]
    assert [
        cell.here for cell in cells.compare_cells(item(printed=printed), folds, {})
    ] == [1.0, 2.0]
    (one,) = verdict(
        folds, better="a", than="b", measure="rank", expected="direction"
    ).evidence
    # All but the search, where none is printed
    assert (one.better, one.than, one.word) == (
        2.0,
        3.0,
        "holds",
    )


def test_cells_stand_beside_what_was_measured():
    printed = [
        {"dataset": "d", "learner": "unif", "error": [0.4, 0.05]},
        {"dataset": "d", "learner": "alignf", "error": [0.3]},
        {"dataset": "d", "learner": "l2-krr", "error": [0.3, 0.1]},
        {"learner": "alignf", "rank": [1]},
        {"name": "rho", "value": [0.5, 0.1]},
        {"name": "other", "value": [0.5]},
    ]
    found = cells.compare_cells(item(printed=printed), FOLDS, {"rho": 0.75})
    unif, alignf, missing, rank, rho, other = found
    assert unif.apart == pytest.approx((UNIF.mean() - 0.4) / 0.05)
    assert unif.here_sd == pytest.approx(UNIF.std(ddof=1))
    assert unif.within(2) is (abs(unif.apart) <= 2)
    # The paper prints no deviation
    assert alignf.apart == pytest.approx((BETTER.mean() - 0.3) / BETTER.std(ddof=1))
    assert (missing.here, missing.apart, missing.within(2)) == (None, None, False)
    assert (rank.here, rank.apart) == (1.0, None)
    assert (rho.measure, rho.apart, rho.within(2), rho.within(3)) == (
        "rho",
        pytest.approx(2.5),
        False,
        True,
    )
    assert other.here is None


@pytest.mark.parametrize(
    ("keys", "error", "unit", "deviation", "variance_of_paper"),
    [
        ({"trials": 5}, [0.4, 0.05], "paper", 0.05, 0.05**2 / 5),
        ({}, [0.4, 0.05], "paper", 0.05, 0.0),
        (
            {"test_rows": 1000},
            [0.4],
            "binomial",
            np.sqrt(0.4 * 0.6 / 1000),
            0.4 * 0.6 / 1000,
        ),
        ({"trials": 5}, [0.4], "here", UNIF.std(ddof=1), UNIF.var(ddof=1) / 5),
        ({}, [0.4], "here", UNIF.std(ddof=1), 0.0),
    ],
)
def test_distances_are_in_deviations_and_in_standard_errors(
    keys, error, unit, deviation, variance_of_paper
):
    printed = [{"dataset": "d", "learner": "unif", "error": error}]
    (cell,) = cells.compare_cells(item(printed=printed, **keys), FOLDS, {})
    distance = UNIF.mean() - 0.4
    assert (cell.unit, cell.apart) == (unit, pytest.approx(distance / deviation))
    assert cell.standard_errors == pytest.approx(
        distance / np.sqrt(UNIF.var(ddof=1) / 10 + variance_of_paper)
    )
    assert cell.within_errors(abs(cell.standard_errors) + 0.1)
    assert not cell.within_errors(abs(cell.standard_errors) - 0.1)


def test_a_standard_error_is_that_of_simulated_differences():
    """Means of 5 trials in the paper and of 10 here, of one distribution: 95 % within 1.96 standard errors."""
    draws = np.random.default_rng(2)
    within = 0
    for _ in range(400):
        paper = draws.normal(0.3, 0.05, 5)
        here = draws.normal(0.3, 0.05, (2, 5))
        numbers = [paper.mean(), 0.05]
        measured = cells.Measured(here.mean(), 0.05, here.size)
        within += cells._compare_number(
            item(trials=5), "error", numbers, measured
        ).within_errors(1.96)
    assert 0.92 < within / 400 < 0.98  # three binomial deviations of 0.011


def test_published_tests_are_of_all_ordered_pairs_of_published_learners():
    printed = [
        {"dataset": "d", "learner": name, "error": [0.3]}
        for name in ("unif", "alignf", "align", "l2-krr")
    ]
    made = item(
        printed=printed,
        significant={"d": {"alignf": "unif", "align": ["unif", "l2-krr"]}},
    )
    tests = {
        (test.better, test.than): test
        for test in published_tests.repeat_tests(made, FOLDS)
    }
    assert len(tests) == 12
    assert [pair for pair, test in tests.items() if test.paper] == [
        ("alignf", "unif"),
        ("align", "unif"),
        ("align", "l2-krr"),
    ]
    test = tests["alignf", "unif"]
    assert test.p == pytest.approx(corrected(BETTER, UNIF))
    assert test.paired == pytest.approx(
        stats.ttest_rel(BETTER[0], UNIF[0], alternative="less").pvalue
    )
    assert (test.reproduced, test.agrees, test.agrees_uncorrected) == (True, True, True)
    assert (tests["unif", "alignf"].agrees, tests["align", "unif"].agrees) == (
        True,
        False,
    )
    assert not tests["align", "l2-krr"].agrees, "without trials an entry cannot agree"
    assert not tests["l2-krr", "unif"].agrees
    assert published_tests.repeat_tests(made, None) == []


def test_numbers_lie_above_or_below_numbers_and_mean_errors():
    numbers = {"rho": 0.75, "A": 0.6}
    claimed = [
        ({"value": "rho", "above": 0.7}, "holds"),
        ({"value": "rho", "above": "A"}, "holds"),
        ({"value": "rho", "below": "A"}, "not reproduced"),
        ({"value": "rho", "above": 0.5, "below": 0.7}, "not reproduced"),
        ({"value": "rho", "above": "B"}, "cannot be judged"),
        ({"value": "tau", "above": 0}, "cannot be judged"),
    ]
    found = judge.judge_claims(
        item(claims=[{"says": "So.", **keys} for keys, _ in claimed]), None, numbers
    )
    assert [one.word for one in found] == [word for _, word in claimed]
    numbers = derived.derived_values(item(), FOLDS)
    assert numbers["error of unif on d"] == pytest.approx(UNIF.mean())
    rises = {"value": "error of unif on d", "above": "error of alignf on d"}
    assert verdict(FOLDS, numbers, **rises).word == "holds"


def test_the_best_learner_stands_beside_the_search_over_one_kernel():
    folds = table(
        {
            ("d", "unif"): UNIF,
            ("d", "alignf"): BETTER,
            ("d", GRID_SEARCH_TITLE): UNIF,
            ("e", "unif"): UNIF,
        }
    )
    (one,) = judge.compare_with_search(folds)
    assert one["data set"] == "d"
    assert (one["best learner"], one["error"], one["worth it"]) == (
        "alignf",
        f"{BETTER.mean():.4g}",
        "yes",
    )
    assert one["p, learner better"] == "< 0.01"
    assert corrected(BETTER, UNIF) < 0.01
    # Weights and fit, over trials
    assert (one["seconds"], one[f"{GRID_SEARCH_TITLE}: seconds"]) == (
        "3.5",
        "3.5",
    )
    (lost,) = judge.compare_with_search(
        table({("d", "unif"): UNIF, ("d", GRID_SEARCH_TITLE): BETTER})
    )
    assert lost["worth it"] == "no, the search is better"
    (even,) = judge.compare_with_search(
        table({("d", "unif"): UNIF, ("d", GRID_SEARCH_TITLE): CLOSE})
    )
    assert even["worth it"] == "no difference"


def test_checks_name_what_lies_outside():
    checks = [
        {"dataset": "d", "learner": "unif", "error": [0.3, 0.35]},
        {"dataset": "d", "learner": "unif", "error": [0.1, 0.2]},
        {"dataset": "d", "learner": "l2-krr", "error": [0, 1]},
        {"name": "rho", "value": [0, 0.5]},
    ]
    sentences = judge.failing_checks(
        [CellConfig.model_validate(check) for check in checks], FOLDS, {"rho": 0.75}
    )
    expected = [f"d, unif: error is {UNIF.mean():.4g}, expected 0.1 to 0.2."]
    expected += [
        "d, l2-krr: error is missing, expected 0 to 1.",
        "rho is 0.75, expected 0 to 0.5.",
    ]
    assert sentences == expected


def test_measured_leaves_out_what_is_missing():
    assert trials.values_by_trial(FOLDS, "d", "unif", "alignment").empty
    without = trials.values_by_trial(FOLDS, "d", "unif", "seconds")
    assert len(without) == 10
    passed = FOLDS.assign(
        seconds_pass=np.where(FOLDS["learner"] == "unif", 2.0, np.nan)
    )
    np.testing.assert_array_equal(
        trials.values_by_trial(passed, "d", "unif", "seconds"), without + 2.0
    )
    assert not trials.values_by_trial(passed, "d", "alignf", "seconds").isna().any()


def test_cosines_are_those_of_mean_shares():
    folds = table(
        {("d", "a"): [0.1, 0.2], ("d", "b"): [0.1, 0.2], ("d", "c"): [0.1, 0.2]}
    )
    folds["weights"] = [
        np.array(weights)
        for weights in ([3.0, 1], [1, 0], [0, 2], [0, 5], [1, 1], [1, 1])
    ]
    found = derived.weight_cosines(
        item(figure={"kind": "weights", "learners": ["a", "b"]}), folds
    )
    shares = np.mean([[0.75, 0.25], [1, 0]], axis=0)
    assert found == {
        "cosine of a and b on d": pytest.approx(shares[1] / np.linalg.norm(shares)),
        "cosine of b and a on d": pytest.approx(shares[1] / np.linalg.norm(shares)),
    }


def test_found_parameters_are_compared_with_the_nearest_in_order():
    """Of the two heaviest of three; the lightest is far off and does not matter."""
    folds = table({("d", "ca"): [0.1, 0.2], ("d", "unif"): [0.1, 0.2]})
    folds["weights"] = [
        np.array(weights) for weights in ([1.0, 9, 5], [4, 3, 0.1], [1, 1], [1, 1])
    ]
    folds["parameters"] = [[[50.0], [4.4], [2.0]], [[2.1], [4.0], [9.0]], None, None]
    found = derived.parameter_deviations(item(found=[4.0, 2.0]), folds)
    assert found == {"found by ca on d, apart": pytest.approx(0.1)}


def aligned_trials(
    seed: int,
) -> tuple[pd.DataFrame, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return trials of four learners whose errors fall with their alignments, and both measures by learner."""
    draws = np.random.default_rng(seed)
    learners = ("unif", "l2-krr", "align", "alignf")
    errors = {
        name: 0.4 - 0.02 * k + 0.02 * draws.normal(size=(2, 5))
        for k, name in enumerate(learners)
    }
    alignments = {
        name: 0.1 + 0.03 * k + 0.02 * draws.normal(size=(2, 5))
        for k, name in enumerate(learners)
    }
    keys = {name: ("d", name) for name in learners}
    folds = table(
        {keys[n]: errors[n] for n in learners},
        {keys[n]: alignments[n] for n in learners},
    )
    return folds, errors, alignments


def test_alignment_and_accuracy_are_correlated_over_the_published_learners():
    folds, errors, alignments = aligned_trials(0)
    printed = [
        {
            "dataset": "d",
            "learner": name,
            "error": [0.4 - 0.1 * k],
            "alignment": [0.1 * k**2],
        }
        for k, name in enumerate(("unif", "align", "alignf"))
    ]
    made = item(printed=printed)
    (found,) = derived.alignment_correlations(made, folds)
    accuracy = [-errors[name].mean() for name in ("unif", "align", "alignf")]
    alignment = [alignments[name].mean() for name in ("unif", "align", "alignf")]
    assert found.reproduced == pytest.approx(np.corrcoef(accuracy, alignment)[0, 1])
    assert found.paper == pytest.approx(np.corrcoef([0, 0.1, 0.2], [0, 0.1, 0.4])[0, 1])
    assert (found.dataset, found.n_learners) == ("d", 3)
    # Each draw, one after another.
    rng = np.random.default_rng(0)
    for draw, value in zip(
        rng.integers(10, size=(1000, 10))[:20], found.resampled, strict=False
    ):
        accuracy = [
            -errors[name].ravel()[draw].mean() for name in ("unif", "align", "alignf")
        ]
        alignment = [
            alignments[name].ravel()[draw].mean()
            for name in ("unif", "align", "alignf")
        ]
        assert value == pytest.approx(np.corrcoef(accuracy, alignment)[0, 1])
    values = derived.derived_values(made, folds)
    assert (
        values["correlation on d"]
        == values["correlation, least"]
        == values["correlation, mean"]
        == found.reproduced
    )
    assert values["correlation, mean, lower end"] == pytest.approx(
        np.quantile(found.resampled, 0.05)
    )
    assert derived.alignment_correlations(item(printed=printed[:2]), folds) == [], (
        "two learners always correlate"
    )
    assert derived.alignment_correlations(made, FOLDS) == [], "no alignments"


def test_a_learner_of_constant_alignment_has_no_correlation():
    rows = np.array([[1.0, 2, 4], [1, 1, 1]])
    np.testing.assert_allclose(
        derived._row_correlations(rows, np.array([[2.0, 4, 8], [1, 2, 3]])), [1, 0]
    )


def test_iterations_and_added_kernels_are_counted_over_all_trials():
    folds = table(
        {
            ("d", "cr"): [0.1, 0.2, 0.3],
            ("e", "ca"): [0.1, 0.2],
            ("e", "unif"): [0.1, 0.2],
        }
    )
    folds["iterations"] = [10.0, 20.0, 60.0, np.nan, np.nan, np.nan, np.nan]
    folds["history"] = [
        None,
        None,
        None,
        np.array([0.1, 0.2]),
        np.array([0.1, 0.2, 0.3, 0.4]),
        None,
        np.nan,
    ]
    assert derived.iteration_counts(folds) == {
        "iterations of cr, mean": 30.0,
        "iterations of cr, median": 20.0,
        "iterations of cr, most": 60.0,
        "additions of ca, mean": 3.0,
        "additions of ca, median": 3.0,
        "additions of ca, most": 4.0,
    }
