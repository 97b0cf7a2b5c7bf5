"""Published significance tests, repeated over the trials here."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pandas as pd

from learnkernels.tasks.measure.t_tests import SIGNIFICANCE, corrected_p, paired_p

from .item import PaperItem
from .trials import share_of_test_rows, values_by_trial


@dataclass(frozen=True)
class PublishedTest:
    """Paper's test that a learner has lower errors than another, and its result here.

    `p` and `paired` are as in `Evidence`.
    """

    dataset: str
    better: str
    than: str
    paper: bool
    p: float | None
    paired: float | None

    @property
    def reproduced(self) -> bool:
        """Whether the corrected t-test finds the difference significant here."""
        return self.p is not None and self.p < SIGNIFICANCE

    @property
    def agrees(self) -> bool:
        """Whether the corrected t-test here has the paper's result."""
        return self.p is not None and self.reproduced == self.paper

    @property
    def agrees_uncorrected(self) -> bool:
        """Whether the paper's uncorrected t-test, on the first repeat, has the paper's result."""
        return self.paired is not None and (self.paired < SIGNIFICANCE) == self.paper


def repeat_tests(item: PaperItem, folds: pd.DataFrame | None) -> list[PublishedTest]:
    """Repeat a paper's significance tests for pairs of learners with published errors."""
    if folds is None:
        return []
    tests = []
    for dataset, improves_on in item.significant.items():
        learners = [
            str(cell.learner)
            for cell in item.printed
            if cell.dataset == dataset and cell.error is not None
        ]
        for better, than in itertools.permutations(learners, 2):
            is_significant = than in improves_on.get(better, ())
            tests.append(_repeat_test(folds, dataset, better, than, is_significant))
    return tests


def _repeat_test(
    folds: pd.DataFrame, dataset: str, better: str, than: str, paper: bool
) -> PublishedTest:
    columns = [
        values_by_trial(folds, dataset, learner, "error") for learner in (better, than)
    ]
    table = pd.concat(columns, axis=1, join="inner")
    if table.empty:
        return PublishedTest(dataset, better, than, paper, None, None)
    errors = table.to_numpy()
    first_repeat = table[
        table.index.get_level_values("repeat") == table.index[0][0]
    ].to_numpy()
    return PublishedTest(
        dataset=dataset,
        better=better,
        than=than,
        paper=paper,
        p=corrected_p(errors[:, 0], errors[:, 1], share_of_test_rows(folds, dataset)),
        paired=paired_p(first_repeat[:, 0], first_repeat[:, 1]),
    )
