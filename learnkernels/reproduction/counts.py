"""Counts of reproduced numbers, checks and claims, each with its rule."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from .cells import Cell
from .judge import ReproducedItem, Verdict, group_by_claim, overall_word
from .published_tests import PublishedTest

PrintedNumber = tuple[Cell, ...]
"""Cells of one printed number, one for each learner."""


class Summary(TypedDict):
    """Counts of a paper's numbers, significance tests and claims, and of reproduced ones.

    Identities are not checks. Claims about seconds are counted separately.
    `printed_before` counts numbers of an earlier item.
    """

    numbers: int
    within_one: int
    within_two: int
    within_two_errors: int
    tests: int
    tests_agree: int
    checks: int
    checks_hold: int
    claims: int
    claims_hold: int
    checks_of_seconds: int
    checks_of_seconds_hold: int
    claims_of_seconds: int
    claims_of_seconds_hold: int
    identities: int
    printed_before: int
    seconds: float


@dataclass(frozen=True)
class Findings:
    """Results of a paper's table or figure, without results of earlier ones."""

    numbers: list[PrintedNumber]
    tests: list[PublishedTest]
    checks: list[Verdict]
    claims: dict[str, list[Verdict]]
    printed_before: int
    seconds: float

    def summary(self) -> Summary:
        evidence = [check for check in self.checks if not check.identity]
        timed = [check for check in evidence if check.of_seconds]
        measured = [check for check in evidence if not check.of_seconds]
        timed_claims = _only_checks(self.claims, of_seconds=True)
        measured_claims = _only_checks(self.claims, of_seconds=False)
        return Summary(
            numbers=len(self.numbers),
            within_one=sum(is_within(number, 1) for number in self.numbers),
            within_two=sum(is_within(number, 2) for number in self.numbers),
            within_two_errors=sum(
                all(cell.within_errors(2) for cell in number) for number in self.numbers
            ),
            tests=len(self.tests),
            tests_agree=sum(test.agrees for test in self.tests),
            checks=len(measured),
            checks_hold=_count_holding(measured),
            claims=len(measured_claims),
            claims_hold=_count_holding_claims(measured_claims),
            checks_of_seconds=len(timed),
            checks_of_seconds_hold=_count_holding(timed),
            claims_of_seconds=len(timed_claims),
            claims_of_seconds_hold=_count_holding_claims(timed_claims),
            identities=len(self.checks) - len(evidence),
            printed_before=self.printed_before,
            seconds=self.seconds,
        )


def is_within(number: PrintedNumber, deviations: float) -> bool:
    """Return whether a published number is reproduced within `deviations` standard deviations."""
    return all(cell.within(deviations) for cell in number)


def _count_holding(checks: Sequence[Verdict]) -> int:
    return sum(check.word == "holds" for check in checks)


def _only_checks(
    claims: Mapping[str, Sequence[Verdict]], of_seconds: bool
) -> dict[str, list[Verdict]]:
    selected: dict[str, list[Verdict]] = {}
    for claim, checks in claims.items():
        same_kind = [check for check in checks if check.of_seconds == of_seconds]
        if same_kind:
            selected[claim] = same_kind
    return selected


def _count_holding_claims(claims: Mapping[str, Sequence[Verdict]]) -> int:
    return sum(overall_word(checks) == "holds" for checks in claims.values())


def summarize(reproduced: ReproducedItem) -> Summary:
    (findings,) = distinct_findings([reproduced])
    return findings.summary()


def distinct_findings(items: Sequence[ReproducedItem]) -> list[Findings]:
    """Return each table's or figure's results, without results of earlier ones."""
    seen: set[Any] = set()
    findings = []
    for reproduced in items:
        numbers = {}
        for number in _printed_numbers(reproduced.cells()):
            numbers[tuple(_identity(cell) for cell in number)] = number
        tests = {
            (test.dataset, test.better, test.than, test.p): test
            for test in reproduced.tests()
        }
        verdicts = reproduced.claims()
        checks = {_check_identity(verdict): verdict for verdict in verdicts}
        new_numbers = [number for key, number in numbers.items() if key not in seen]
        findings.append(
            Findings(
                numbers=new_numbers,
                tests=[test for key, test in tests.items() if key not in seen],
                checks=[check for key, check in checks.items() if key not in seen],
                claims=_new_claims(verdicts, seen),
                printed_before=len(numbers) - len(new_numbers),
                seconds=float(reproduced.facts["seconds"]),
            )
        )
        seen.update(numbers, tests, checks)
    return findings


def _check_identity(verdict: Verdict) -> Hashable:
    return verdict.pair, verdict.expected, verdict.evidence


def _new_claims(
    verdicts: Sequence[Verdict], seen: Collection[Hashable]
) -> dict[str, list[Verdict]]:
    """Return claims, unless earlier items had all their checks."""
    evidence = [verdict for verdict in verdicts if not verdict.identity]
    return {
        claim: checks
        for claim, checks in group_by_claim(evidence).items()
        if any(_check_identity(check) not in seen for check in checks)
    }


def _printed_numbers(cells: Sequence[Cell]) -> list[PrintedNumber]:
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        if cell.apart is not None:
            learners = cell.shared_by or (cell.learner,)
            groups.setdefault(
                (cell.dataset, learners, cell.measure, cell.paper), []
            ).append(cell)
    return [tuple(group) for group in groups.values()]


def _identity(cell: Cell) -> tuple[Any, ...]:
    """Return the attributes that identify a number in two papers."""
    return (
        cell.dataset,
        cell.learner,
        cell.measure,
        cell.paper,
        cell.paper_sd,
        cell.here,
    )


def sum_summaries(summaries: Sequence[Summary]) -> Summary:
    sums: dict[str, Any] = {}
    for key in Summary.__annotations__:
        sums[key] = sum(summary[key] for summary in summaries)  # type: ignore
    total: Summary = Summary(**sums)  # type: ignore
    return total


def count_rows(total: Summary) -> list[dict[str, str]]:
    """Return a table row for each count of reproduced results, with its rule."""
    numbers = total["numbers"]
    rows = [
        (
            "printed numbers within one standard deviation",
            total["within_one"],
            numbers,
            NUMBER_RULE,
        ),
        (
            "printed numbers within two standard deviations",
            total["within_two"],
            numbers,
            DEVIATION_RULE,
        ),
        (
            "printed numbers within two standard errors",
            total["within_two_errors"],
            numbers,
            ERROR_RULE,
        ),
        ("published tests that agree", total["tests_agree"], total["tests"], TEST_RULE),
        (
            "checks of errors and alignments that hold",
            total["checks_hold"],
            total["checks"],
            CHECK_RULE,
        ),
        ("claims on them that hold", total["claims_hold"], total["claims"], CLAIM_RULE),
        (
            "checks of seconds that hold",
            total["checks_of_seconds_hold"],
            total["checks_of_seconds"],
            SECONDS_RULE,
        ),
        (
            "claims on seconds that hold",
            total["claims_of_seconds_hold"],
            total["claims_of_seconds"],
            CLAIM_RULE,
        ),
    ]
    counted = []
    for title, part, n_counted, rule in rows:
        if n_counted:
            counted.append(
                {
                    "count": title,
                    "here": f"{part} of {n_counted}",
                    "%": f"{100 * part / n_counted:.0f}",
                    "rule": rule,
                }
            )
    if total["identities"]:
        counted.append(
            {
                "count": "identities",
                "here": str(total["identities"]),
                "%": "",
                "rule": IDENTITY_RULE,
            }
        )
    return counted


NUMBER_RULE = (
    "A number that two papers print, or that one paper prints for several learners, counts once; then it must be near "
    "for each of them. Ranks and seconds do not count."
)
DEVIATION_RULE = (
    "The deviation is the printed one, over folds or repeats; binomial where a paper tests once; of these trials where "
    "neither is known."
)
ERROR_RULE = (
    "The error is that of the difference of two means, with all trials as independent; a paper that does not say how "
    "many it has counts as exact."
)
TEST_RULE = "An entry of a table of significance, 0 or 1, and the corrected test over all trials at 0.1."
CHECK_RULE = "One pair of learners, on all data sets that the claim names, or one number; several claims count it once."
CLAIM_RULE = "One sentence of a paper; it holds if all its checks hold, also if other claims share them."
SECONDS_RULE = (
    "The same for computing times, which depend on the programs and the computer."
)
IDENTITY_RULE = "They hold by construction and are neither checks nor claims."
