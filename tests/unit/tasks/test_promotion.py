"""What decides between two versions, from fold tables written for the purpose."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from learnkernels.tasks.data.dataset import DatasetRef
from learnkernels.tasks.measure.evaluation import FoldsRef, write_fold_table
from learnkernels.tasks.measure.t_tests import SIGNIFICANCE, corrected_p, paired_p
from learnkernels.tasks.models.promotion import Challenge, Contender, Decision, decide, describe_decision

CHAMPION = 0.5 + 0.01 * np.random.default_rng(0).normal(size=50)


def written(folder: Path, name: str, errors: np.ndarray) -> FoldsRef:
    """The results of ten repeats of five folds of a hundred rows."""
    rows = [
        {"error": error, "metric": "rmse", "repeat": i // 5, "fold": i % 5, "n_test": 20, "n_rows": 100}
        for i, error in enumerate(errors)
    ]
    folder.mkdir(exist_ok=True)
    path = folder / name
    write_fold_table(path, rows, [])
    return FoldsRef("d", name, name, "krr", str(path))


def decided(folder: Path, better_by: float) -> Decision:
    noise = 0.01 * np.random.default_rng(1).normal(size=50)
    results = written(folder, "challenger", CHAMPION - better_by + noise), written(folder, "champion", CHAMPION)
    ref = DatasetRef("d", "0" * 20, str(folder), "regression", "here", 100, 3)
    challenge = Challenge("m", Contender(2, "alignf"), Contender(1, "unif"), SIGNIFICANCE)
    return decide(challenge.measured(results, ref))


def test_a_win_of_the_corrected_test_moves_the_alias_and_one_of_the_plain_test_alone_does_not(tmp_path: Path):
    decision = decided(tmp_path / "slightly", 0.003)
    errors = np.array(decision.challenger.errors)
    assert decision.p == corrected_p(errors, CHAMPION, 20 / 80)
    assert decision.plain_p == paired_p(errors, CHAMPION)
    assert decision.plain_p < SIGNIFICANCE < decision.p
    assert (decision.moved, decision.champion) == (False, 1)
    assert f"p = {decision.p:.3g}, level 0.1" in decision.reason
    report = describe_decision(decision, {})
    assert f"decides: p = {decision.p:.3g}, level 0.1. The papers' plain paired t-test gives" in report
    assert f"p = {decision.plain_p:.3g}." in report
    better = decided(tmp_path / "clearly", 0.02)
    assert better.p < SIGNIFICANCE
    assert (better.moved, better.champion) == (True, 2)
