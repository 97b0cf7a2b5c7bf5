"""Sections, figures and the report, from constructed trials."""

import re
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from learnkernels.conf.schema import GRID_SEARCH_TITLE
from learnkernels.reproduction import report
from learnkernels.reproduction.cells import compare_cells
from learnkernels.reproduction.counts import (
    count_rows,
    distinct_findings,
    sum_summaries,
    summarize,
)
from learnkernels.reproduction.figures import (
    FIGURE_BYTES,
    item_figures,
    png,
    weights_figure,
)
from learnkernels.reproduction.item import PaperItem
from learnkernels.reproduction.judge import (
    ReproducedItem,
    StudyResult,
    compare_with_search,
    judge_claims,
)
from tests.unit.reproduction.test_judge import BETTER, UNIF, item, table

FACTS = {
    "seconds": 90.0, "cores": 2, "data": "files", "date": "2026-01-02", "quick": False,
    "environment": {"python": "3.11", "machine": "Linux", "numpy": "2", "learnkernels": "1"},
}  # fmt: skip
ALIGNED = {("d", "unif"): UNIF, ("d", "alignf"): UNIF + 0.3}
FOLDS = table(
    {
        ("d", "unif"): UNIF,
        ("d", "alignf"): BETTER,
        ("d", GRID_SEARCH_TITLE): UNIF + 0.001,
    },
    ALIGNED,
)
FULL = {
    "choices": ["The seed is 0."],
    "printed": [
        {"dataset": "d", "learner": "alignf", "error": [0.25, 0.05], "alignment": [0.6]}
    ],
    "claims": [
        {"says": "alignf | is better.", "better": "alignf", "than": "unif"},
        {"says": "unif is better.", "better": "unif", "than": "alignf"},
    ],
    "tried": "More seeds.",
}


def kept(
    folds: pd.DataFrame | None = FOLDS, result: StudyResult | None = None, **keys: Any
) -> ReproducedItem:
    made: PaperItem = item(**(FULL | keys))
    return ReproducedItem(
        made, result or StudyResult(folds), ("alignment.png",), FACTS, Path("results")
    )


def test_a_section_has_set_up_tables_figure_claims_and_what_was_tried():
    text = report.item_section(kept(), {"alignment.png": "there/alignment.png"})
    assert text.startswith("# JMLR 2012, Table 0: Made up\n")
    assert "took 1.5 min (30 trials, 1.8 min of computing); data from files." in text
    assert "- The seed is 0." in text
    apart = (BETTER.mean() - 0.25) / 0.05
    assert (
        f"| d | alignf | 0.25 ± 0.05 | {BETTER.mean():.3f} ± {BETTER.std(ddof=1):.3f} | {apart:+.1f}, "
        in text
    )
    # Of the alignment, for which the paper prints no deviation
    assert "of ours" in text
    assert f"| d | {GRID_SEARCH_TITLE} |" in text
    assert "![Table 0: alignment](there/alignment.png)" in text
    better = r"\| alignf \\\| is better. \| significantly \| holds \| d: [^\n]*; p < 0.01 \(uncorrected: below 0.1 in"
    worse = r"\| unif is better. \| significantly \| not reproduced \|"
    worth = rf"Comparison of the best learner with {GRID_SEARCH_TITLE}.*\| d \| alignf \|.*\| yes \|"
    for pattern in (better, worse, worth):
        assert re.search(pattern, text, re.DOTALL), pattern
    assert "Possible causes: More seeds." in text


def test_a_special_study_shows_its_numbers_and_tables():
    values = {"rho d": 0.9, "rho d sd": 0.1, "A d": 0.7}
    result = StudyResult(
        values=values, tables=[("Correlations.", [{"data set": "d", "rho": "0.9"}])]
    )
    keys = {"claims": [{"says": "rho is above A.", "value": "rho d", "above": "A d"}]}
    keys["printed"] = [{"name": "rho d", "value": [0.8, 0.05]}]
    text = report.item_section(kept(result=result, **keys), {})
    head = "| measure | paper | here | apart |\n| --- | --- | --- | --- |"
    assert f"{head}\n| rho d | 0.8 ± 0.05 | 0.90 ± 0.10 | +2.0 |" in text
    assert "Correlations.\n\n| data set | rho |" in text
    assert "| rho is above A. |  | holds | rho d above A d: 0.9, 0.7 |" in text


def test_curves_are_a_table_a_panel_and_a_line_a_learner():
    panels = {
        (f"{name} {x}", learner): UNIF + 0.001 * x
        for name in ("k", "b")
        for x in (10, 2)
        for learner in "pq"
    }
    folds = table(panels, panels)
    curves = item(figure={"kind": "curves", "x": "bigrams", "log": True})
    drawn = item_figures(curves, folds)
    assert set(drawn) == {"curves", "alignment"}
    axes = drawn["curves"].axes
    assert [axis.get_title() for axis in axes if axis.get_title()] == ["k", "b"]
    (line, *_), _labels = axes[0].get_legend_handles_labels()
    np.testing.assert_array_equal(line[0].get_xdata(), [2, 10])
    np.testing.assert_allclose(
        line[0].get_ydata(), [UNIF.mean() + 0.002, UNIF.mean() + 0.01]
    )
    text = report.item_section(
        ReproducedItem(curves, StudyResult(folds), (), FACTS, Path()), {}
    )
    assert (
        "k: test error along bigrams\n\n|  | p | q |\n| --- | --- | --- |\n| 2 |"
        in text
    )


def test_weights_are_shares_learner_against_learner():
    folds = table({("d", learner): UNIF for learner in ("a", "b", "c")})
    figure = weights_figure(folds, ["a", "b", "c"])
    titles = [axis.get_title() for axis in figure.axes if axis.get_title()]
    assert titles == ["d: a, b", "d: a, c", "d: b, c"]
    points = figure.axes[0].collections[0].get_offsets()
    np.testing.assert_allclose(points, [[0.6 / 1.4] * 2, [0.8 / 1.4] * 2])


def test_figures_by_kind_always_have_the_same_bytes():
    for kind, names in {
        "scatter": {"alignment"},
        "ranks": {"alignment", "ranks"},
        "none": {"alignment"},
    }.items():
        drawn = {
            name: png(figure)
            for name, figure in item_figures(item(figure=kind), FOLDS).items()
        }
        assert set(drawn) == names, kind
        assert all(
            len(content) <= FIGURE_BYTES and b"Software" not in content
            for content in drawn.values()
        ), kind
        assert {
            name: png(figure)
            for name, figure in item_figures(item(figure=kind), FOLDS).items()
        } == drawn, kind


def test_a_large_figure_is_drawn_coarser():
    figure = Figure(figsize=(9, 9))
    figure.subplots().scatter(*np.random.default_rng(0).random((2, 9000)), s=4)
    buffer = BytesIO()
    figure.savefig(buffer, dpi=100, format="png")
    assert len(png(figure)) <= FIGURE_BYTES < buffer.tell()


def test_the_report_says_first_what_does_not_hold_and_what_was_not_run():
    one, other = kept(), item(name="uai2009-other", paper="UAI 2009")
    failed = {other.name: "failed: no | file"}
    text = report.report_text(
        [other, one.item], {one.item.name: one}, failed, False, "pages"
    )
    assert "1 of 2 items:\n\n<!-- counts -->\n\n| count | here | % | rule |\n" in text
    assert "| printed numbers within two standard deviations | 2 of 2 | 100 | " in text
    assert "| checks of errors and alignments that hold | 1 of 2 | 50 | " in text
    assert "| claims on them that hold | 1 of 2 | 50 | " in text
    assert (
        "| all learners | 1 | 0 | 0 |\n| learners of the papers | 1 | 0 | 0 |" in text
    )
    assert "- The items took 1.5 minutes" in text
    assert (
        "| uai2009-other | UAI 2009, Table 0 |  |  |  |  |  |  |  |  |  |  | failed: no \\| file |"
        in text
    )
    row = "| 2 | 1 | 2 | 0 |  | 1 of 2 | 1 of 2 |  |  | 1.5 | done |"
    assert (
        f"| [jmlr2012-made](pages/jmlr2012-made.md) | JMLR 2012, Table 0 {row}" in text
    )
    assert (
        "- [JMLR 2012, Table 0](pages/jmlr2012-made.md): unif is better. Here: not reproduced.\n"
        in text
    )
    assert "## Numbers beyond" not in text
    assert (
        "Environment: 2 cores (Linux), Python 3.11, numpy 2, learnkernels 1, 2026-01-02."
        in text
    )
    for block in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(counts) == 1, block
    nothing = report.report_text([other], {}, {}, True, "pages")
    assert "in reduced form" in nothing
    assert "not run: no results of this configuration" in nothing


def test_what_two_papers_print_counts_once():
    proof = {
        "says": "By definition.",
        "better": "alignf",
        "than": "unif",
        "expected": "direction",
        "identity": True,
    }
    other = FULL["printed"] + [
        {"dataset": "d", "learner": "unif", "error": [0.9, 0.01]}
    ]
    both = [
        kept(),
        kept(name="icml2010-again", printed=other, claims=[*FULL["claims"], proof]),
    ]
    first, second = (found.summary() for found in distinct_findings(both))
    assert (
        first["numbers"],
        first["within_two"],
        first["checks"],
        first["checks_hold"],
    ) == (2, 2, 2, 1)
    assert (
        second["numbers"],
        second["within_two"],
        second["checks"],
        second["claims"],
    ) == (1, 0, 0, 0)
    assert (second["identities"], second["printed_before"]) == (1, 2)
    assert distinct_findings(both[1:])[0].summary()["claims"] == 2
    text = report.report_text(
        [one.item for one in both],
        {one.item.name: one for one in both},
        {},
        False,
        "pages",
    )
    assert "| printed numbers within two standard deviations | 2 of 3 | 67 | " in text
    assert "| identities | 1 |  | " in text
    assert re.search(
        r"## Numbers beyond two.*icml2010-again.md\): d unif error \(-\d",
        text,
        re.DOTALL,
    )


def test_a_check_of_two_claims_counts_once_and_belongs_to_both():
    best = {"says": "alignf is best.", "better": "alignf", "than": "unif"}
    reproduced = kept(claims=[best, best | {"says": "unif is worst."}])
    (found,) = distinct_findings([reproduced])
    assert [*found.claims] == ["alignf is best.", "unif is worst."]
    assert {len(checks) for checks in found.claims.values()} == {1}
    counts = found.summary()
    assert (counts["checks"], counts["claims"]) == (1, 2)
    # A claim goes if earlier items had all its checks, and stays whole otherwise.
    both = ["alignf", "unif"]
    more = {"says": "more", "better": both, "than": both}
    again = kept(name="icml2010-again", claims=[best, more])
    _, later = distinct_findings([reproduced, again])
    assert {claim: len(checks) for claim, checks in later.claims.items()} == {"more": 2}
    assert later.summary()["checks"] == 1


def test_a_section_names_the_test_behind_its_p_values():
    claim = {"says": "alignf is best.", "better": "alignf", "than": "unif"}
    two_datasets = pd.concat([FOLDS, FOLDS.assign(dataset="e")])
    texts = {}
    for across in (False, True):
        reproduced = kept(two_datasets, claims=[claim | {"across": across}])
        texts[across] = report.item_section(reproduced, {})
    assert "p is that of a one-sided corrected resampled t-test" in texts[False]
    assert "signed-rank" not in texts[False]
    assert "p is that of a one-sided signed-rank test" in texts[True]
    assert "p is that of a one-sided corrected" not in texts[True]


def test_a_number_printed_for_several_learners_counts_once_and_must_be_near_for_each():
    printed = {"dataset": "d", "learner": "unif", "also": ["alignf"]}
    for error, deviation, is_near in ((0.3, 0.2, True), (UNIF.mean(), 0.01, False)):
        shared = kept(printed=[printed | {"error": [error, deviation]}], claims=[])
        counts = summarize(shared)
        assert (counts["numbers"], counts["within_two"]) == (1, is_near)
    text = report.report_text(
        [shared.item], {shared.item.name: shared}, {}, False, "pages"
    )
    assert re.search(r"\): d alignf error \(-[^;]*\)\.\n", text), (
        "the cell that is far, and no other"
    )
    assert "| d | alignf | " in report.item_section(shared, {})


def test_checks_of_seconds_and_published_tests_are_counted_apart():
    quicker = {
        "says": "unif is as quick.",
        "better": "unif",
        "than": "alignf",
        "expected": "none",
        "measure": "seconds",
    }
    printed = [
        {"dataset": "d", "learner": learner, "error": [0.3, 0.1]}
        for learner in ("unif", "alignf")
    ]
    made = kept(
        printed=printed,
        significant={"d": {"unif": "alignf"}},
        claims=[*FULL["claims"], quicker],
    )
    counts = summarize(made)
    assert (counts["checks"], counts["checks_hold"], counts["claims"]) == (2, 1, 2)
    assert (
        counts["checks_of_seconds"],
        counts["checks_of_seconds_hold"],
        counts["claims_of_seconds"],
    ) == (1, 1, 1)
    assert (counts["tests"], counts["tests_agree"]) == (2, 0)
    titles = [row["count"] for row in count_rows(counts)]
    assert titles[3:] == [
        "published tests that agree",
        "checks of errors and alignments that hold",
        "claims on them that hold",
        "checks of seconds that hold",
        "claims on seconds that hold",
    ]
    text = report.item_section(made, {})
    assert "| d | unif | alignf | 1 | 0 | > 0.99 |" in text.replace("1.00", "> 0.99")
    assert (
        "0 of 2 entries agree by the corrected test over all trials: 0 of 1 ones and 0 of 1 zeros."
        in text
    )


def test_other_readings_stand_beside_the_chosen_one():
    reading = {"says": "kernels are raw.", "set": {"parts.0.normalize": "none"}}
    chosen = kept(
        readings={"raw": reading},
        study={"kind": "comparison", "parts": [{"normalize": "trace"}]},
    )
    other = ReproducedItem(
        chosen.item.as_reading("raw"), StudyResult(FOLDS), (), FACTS, Path()
    )
    text = report.item_section(chosen, {}, {"raw": other})
    assert "| chosen | as above | 2 | 1 | 2 | 0 |  | 1 of 2 |" in text
    assert "| raw | kernels are raw. | 2 | 1 | 2 | 0 |  | 1 of 2 |" in text
    assert "Other readings" not in report.item_section(chosen, {})


def test_what_does_not_hold_says_on_how_many_data_sets_it_does():
    folds = pd.concat([FOLDS, table({("e", "unif"): UNIF, ("e", "alignf"): UNIF})])
    (line, _) = report.claims_not_reproduced(kept(folds))
    assert line.startswith("alignf | is better. Here: not reproduced (1 of 2) (e: ")
    assert not re.search(r"\bd: ", line)


def test_the_reduced_form_leaves_out_what_it_cannot_judge():
    asked = {"On both.": ["d", "e"], "On e.": ["e"]}
    keys = {
        "claims": [
            {"says": says, "better": "alignf", "than": "unif", "on": on}
            for says, on in asked.items()
        ]
    }
    keys["printed"] = [
        {"dataset": name, "learner": "unif", "error": [0.3, 0.1]} for name in "de"
    ]
    full = kept(**keys)
    assert [verdict.word for verdict in full.claims()] == ["cannot be judged"] * 2
    assert [cell.here is None for cell in full.cells()] == [False, True]
    quick = ReproducedItem(
        full.item, full.result, (), FACTS | {"quick": True}, full.folder
    )
    (only,) = quick.claims()
    assert (only.says, only.word, [one.on for one in only.evidence]) == (
        "On both.",
        "holds",
        ["d"],
    )
    assert [cell.dataset for cell in quick.cells()] == ["d"]
    assert "This is the reduced form" in report.item_section(quick, {})


def test_tables_are_empty_where_there_is_nothing_to_say():
    folds = table({("d", "unif"): UNIF})
    assert compare_with_search(folds) == []
    assert report.claims_table(judge_claims(item(), folds, {})) == []
    assert compare_cells(item(), folds, {}) == []
    assert sum_summaries([])["numbers"] == 0
    assert report.minutes(1.0) == "0.1"


def test_results_belong_to_the_study_that_they_were_computed_for():
    digest = report.study_digest(item(), False)
    assert (
        report.study_digest(item(title="Another", claims=FULL["claims"]), False)
        == digest
    )
    assert (
        report.study_digest(
            item(study={"kind": "comparison", "parts": [{"seed": 1}]}), False
        )
        != digest
    )
    check = {"dataset": "d", "learner": "unif", "error": [0, 1]}
    quick = [item(quick=of) for of in ({}, {"checks": [check]}, {"datasets": ["d"]})]
    assert [report.study_digest(one, False) == digest for one in quick] == [True] * 3
    digests = [report.study_digest(one, True) for one in quick]
    assert digests[0] == digests[1] != digests[2]
