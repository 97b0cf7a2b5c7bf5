"""What decides between two versions, from errors written for the purpose."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from prefect.logging import disable_run_logger
from scipy import stats

from learnkernels import GaussianFamily, KernelLearningClassifier
from learnkernels.conf import errors, schema
from learnkernels.kernels.estimators import fit_on_features
from learnkernels.kernels.model import Model
from learnkernels.kernels.targets import Target
from learnkernels.tasks.data.dataset import DatasetRef, load_dataset
from learnkernels.tasks.data.ingest import ingest
from learnkernels.tasks.measure.run_learner import FoldsRef, write_fold_table
from learnkernels.tasks.measure.t_tests import (
    SIGNIFICANCE,
    corrected_p,
    higher_p,
    paired_p,
)
from learnkernels.tasks.models import lifecycle, registry
from learnkernels.tasks.models.newest import (
    NewestRows,
    appended_rows,
    compare_losses,
    errors_on_newest_rows,
)
from learnkernels.tasks.models.promotion import (
    Challenge,
    Contender,
    decide,
    describe_decision,
)
from learnkernels.tasks.models.training import (
    choose,
    describe_training,
    training_config,
)
from tests.refusals import require_refusals
from tests.sources import write

CHAMPION = 0.5 + 0.01 * np.random.default_rng(0).normal(size=50)
NOISE = 0.01 * np.random.default_rng(1).normal(size=50)
COLUMNS = {"a": "number", "b": "category"}


def contender(
    version: int, errors: np.ndarray, recipe: str = "one", **facts: Any
) -> Contender:
    """A version with errors of ten repeats of five folds of a hundred rows, in training and on common folds."""
    folds = pd.DataFrame({"error": errors, "n_test": 20, "n_rows": 100})
    found = Contender(
        version,
        "unif",
        float(errors.mean()),
        "rmse",
        (recipe,),
        str(version),
        columns=COLUMNS,
    )
    return replace(
        found.with_errors(folds, in_training=True).with_errors(folds), **facts
    )


def decided(
    challenger: Contender, defender: Contender | None = None, **changes: Any
) -> Challenge:
    defender = defender or contender(1, CHAMPION)
    given = {
        "reference": defender,
        "level": SIGNIFICANCE,
        "margin": 0.05,
        "refresh": True,
    } | changes
    return decide(Challenge("m", challenger, defender, **given))


def test_another_recipe_takes_over_by_the_corrected_test_and_not_by_the_uncorrected_test_alone():
    errors = CHAMPION - 0.003 + NOISE
    decision = decided(contender(2, errors, "two"))
    assert decision.p == corrected_p(errors, CHAMPION, 20 / 80)
    assert decision.uncorrected_p == paired_p(errors, CHAMPION)
    assert decision.uncorrected_p < SIGNIFICANCE < decision.p
    assert (decision.moved, decision.champion, decision.test) == (False, 1, "better")
    assert f"p = {decision.p:.3g}, level 0.1" in decision.reason
    report = describe_decision(decision, {})
    assert (
        f"is better: corrected p = {decision.p:.3g}, level 0.1. The uncorrected p of a paired t-test"
        in report
    )
    assert f"is {decision.uncorrected_p:.3g}." in report
    better = decided(contender(2, CHAMPION - 0.02 + NOISE, "two"))
    assert better.p < SIGNIFICANCE
    assert (better.moved, better.champion) == (True, 2)


REFRESHES = [
    (0.0, 0.05, "not worse", True),
    (0.01, 0.05, "not worse", True),
    (0.02, 0.05, "not worse", False),
    (0.04, 0.05, "worse than before", False),
    (0.04, 0.1, "not worse", True),
]


@pytest.mark.parametrize(("above", "margin", "test", "moved"), REFRESHES)
def test_a_refresh_takes_over_unless_it_is_worse_by_the_margin(
    above: float, margin: float, test: str, moved: bool
):
    errors = CHAMPION + above + NOISE
    decision = decided(contender(2, errors), margin=margin)
    assert (decision.test, decision.moved) == (test, moved)
    if test == "not worse":
        assert decision.p == corrected_p(
            errors - margin * CHAMPION.mean(), CHAMPION, 20 / 80
        )
    else:
        assert decision.p == higher_p(errors, (1 + margin) * CHAMPION, 20 / 80)
    assert f"margin {100 * margin:g} %, level 0.1" in decision.reason
    assert decision.p < SIGNIFICANCE or not moved


def test_equal_errors_are_not_worse_however_few_and_a_single_trial_is_compared_without_a_test():
    none, one = np.zeros(50), CHAMPION[:1]
    assert decided(contender(2, none), contender(1, none)).moved
    assert decided(contender(2, one), contender(1, one)).moved
    worse = decided(contender(2, 1.1 * one), contender(1, one))
    assert (worse.moved, worse.p, worse.test) == (False, None, "worse than before")


def test_refreshes_are_held_to_the_best_of_their_line_and_not_to_the_last_alone():
    last = contender(5, 1.04 * CHAMPION)
    challenger = contender(6, 1.08 * CHAMPION)
    assert decided(challenger, last).moved
    decision = decided(challenger, last, reference=contender(1, CHAMPION))
    assert (decision.moved, decision.champion) == (False, 5)
    assert "expected error 0.5414 against 0.5013 of version 1" in decision.reason


def test_after_a_change_of_the_metric_refreshes_are_held_to_versions_of_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
):
    champion = contender(2, CHAMPION, metric="log_loss")
    earlier = replace(champion, version=1, digest="1", expected=0.05, metric="rate")
    run: Any = SimpleNamespace(run_id="r")
    tags: dict[str, str] = {}
    monkeypatch.setattr(registry, "set_alias", lambda *alias: None)
    monkeypatch.setattr(registry, "tag_version", lambda *of: tags.update(of[2]))
    first = decided(champion, earlier)
    assert first.moved
    lifecycle._tag_challenger(first, run)
    assert registry.REFERENCE not in tags
    worse = replace(contender(3, 4 * CHAMPION), errors=champion.errors)
    worse = replace(worse, metric="log_loss")
    for reference in (champion, earlier):  # an earlier release tagged such a version
        decision = decided(worse, champion, reference=reference)
        assert not decision.moved
        assert "expected error 2.005 against 0.5013 of version 2" in decision.reason
    equal = replace(worse, stored=champion.stored, expected=1.01 * champion.expected)
    lifecycle._tag_challenger(decided(equal, champion, reference=earlier), run)
    assert tags[registry.REFERENCE] == "2"


WORSE = [
    (
        {"columns": {"a": "number"}},
        {},
        "version 2 learned without 'b', so version 1 stays",
    ),
    (
        {"columns": COLUMNS | {"a": "category"}},
        {},
        "learned 'a' as category in place of number",
    ),
    (
        {"spreads": {"a": 2e3}},
        {"spreads": {"a": 2.0}},
        "learned 'a' with a spread of 2e+03 in place of 2, so",
    ),
    ({"classes": ("x", "y")}, {"classes": ("x", "y", "z")}, "has no rows of class 'z'"),
    ({}, {"classes": ("x", "y")}, "learned a regression in place of a classification"),
    ({"copied": 0.5}, {"copied": 0.1}, "learned from rows of which 50% repeat others"),
    ({"n_rows": 300}, {"n_rows": 575}, "learned from 300 rows in place of 575"),
]


@pytest.mark.parametrize(("facts", "champion", "said"), WORSE)
def test_a_refresh_of_worse_rows_is_refused_whatever_its_error(
    facts: Any, champion: Any, said: str
):
    better = contender(2, 0.5 * CHAMPION, **facts)
    decision = decided(better, contender(1, CHAMPION, **champion))
    assert not decision.moved
    assert said in decision.reason
    assert (
        "expected error 0.2506 against 0.5013 of version 1 (-50 %, p = 1 that it is higher,"
        in decision.reason
    )
    assert (decision.p, decision.test) == (pytest.approx(1), "worse than before")
    assert not Challenge(
        "m", better, contender(1, CHAMPION, **champion), None, 0.1, 0.05, True
    ).measurable
    other = decided(
        replace(better, recipes=("two",)), contender(1, CHAMPION, **champion)
    )
    assert other.moved  # by a recipe that asked for it


DANGERS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"leaks": ("c",)}, {"leaks": ()}, "reads 'c', which alone determines the target"),
    (
        {"leaks": ("c", "d")},
        {},
        "reads 'c', 'd', which alone each determine the target",
    ),
    ({}, {"scored": ("a", "id")}, "reads 'b', which the rows to score lack"),
]


@pytest.mark.parametrize("recipe", ["one", "two"])
@pytest.mark.parametrize(("facts", "champion", "said"), DANGERS)
def test_a_column_that_leaks_or_cannot_be_scored_is_refused_in_every_recipe(
    recipe: str, facts: Any, champion: Any, said: str
):
    better = contender(2, 0.5 * CHAMPION, recipe, **facts)
    defender = contender(1, CHAMPION, **champion)
    assert not Challenge("m", better, defender, None, 0.1, 0.05, True).measurable
    decision = decided(better, defender)
    assert (decision.moved, decision.champion) == (False, 1)
    assert f"version 2 {said}, so version 1 stays" in decision.reason
    assert decision.reason.endswith(
        "drop such columns, or set the alias champion in MLflow"
    )
    # After the alias was set by hand, the same columns are no news.
    later = decided(
        replace(better, version=3, digest="3"), replace(better, scored=("a", "b"))
    )
    assert later.moved


def test_rows_to_score_have_every_column_of_their_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = str(tmp_path / "new")
    write(pd.DataFrame({"a": [1.0]}), tmp_path / "new/year=2025/k=/rows.parquet")
    monkeypatch.setattr(registry, "last_scored", lambda version: (source, ["a"]))
    version: Any = None
    scored = lifecycle._columns_to_score(version)
    assert scored == ("a", "year", "k")
    champion = contender(1, CHAMPION, columns={"a": "number"}, scored=scored)
    reads_folder = contender(2, CHAMPION, columns={"a": "number", "year": "number"})
    assert reads_folder.dangers(champion) == []


def test_the_first_champion_says_which_column_leaks():
    found = decide(
        Challenge(
            "m", contender(1, CHAMPION, leaks=("c",)), None, None, 0.1, 0.05, True
        )
    )
    assert found.moved
    assert found.reason.endswith(
        "there was none to beat (check: 'c' alone determines the target)"
    )


@pytest.mark.parametrize(("share", "refused"), [(0.0, True), (0.2, True), (0.3, False)])
def test_an_error_that_falls_further_than_is_plausible_is_refused(
    share: float, refused: bool
):
    decision = decided(contender(2, share * CHAMPION))
    assert decision.moved is not refused
    assert (
        "has less than 25% of its error, as if a column held the target"
        in decision.reason
    ) is refused
    # Small errors vary by such factors from night to night.
    varying = np.array([0.02, 0.0, 0.02, 0.0, 0.01])
    assert decided(contender(2, share * varying), contender(1, varying)).moved


@pytest.mark.parametrize(
    ("n_rows", "remark"),
    [(1000, ""), (910, ""), (890, " (from 890 rows in place of 1,000)")],
)
def test_a_tenth_fewer_rows_are_said_and_no_reason_to_refuse(n_rows: int, remark: str):
    decision = decided(
        contender(2, CHAMPION, n_rows=n_rows), contender(1, CHAMPION, n_rows=1000)
    )
    assert decision.moved
    assert f"of the same recipe on other rows{remark}, is not worse" in decision.reason


def test_columns_that_were_added_are_measured_and_said():
    decision = decided(contender(2, CHAMPION, columns={**COLUMNS, "c": "number"}))
    assert decision.moved
    assert (
        "of the same recipe on other rows (with 'c'), is not worse" in decision.reason
    )


def test_versions_that_one_configuration_chose_are_of_one_recipe_whichever_learner_it_chose():
    ours, theirs = contender(2, CHAMPION), contender(1, CHAMPION)
    found = decided(
        replace(ours, recipes=("alignf", "both")),
        replace(theirs, recipes=("unif", "both")),
    )
    assert (found.test, found.moved) == ("worse than before", True)


@pytest.mark.parametrize(
    "newest", [None, NewestRows(25, "misclassification rate", 0.12, 0.16, 0.3)]
)
def test_a_recipe_is_not_tested_against_itself(newest: NewestRows | None):
    ours, theirs = contender(2, CHAMPION), contender(1, CHAMPION)
    ours = replace(ours, stored=tuple(1.02 * CHAMPION), expected=0.51)
    decision = decided(ours, theirs, newest=newest)
    assert decision.moved
    assert decision.p == higher_p(np.array(ours.stored), 1.05 * CHAMPION, 20 / 80)
    page = describe_decision(decision, {})
    assert (
        f"p = {decision.p:.3g} of Welch's t-test that the challenger's exceed" in page
    )
    assert "corrected" not in page
    assert "on the same folds" not in decision.reason
    assert decision.reason.count("p = ") == 1 + (newest is not None)
    assert (
        "expected error 0.51 against 0.5013 of version 1 (+1.7 %, p = "
        in decision.reason
    )
    said = (
        "; on 25 rows that version 1 has not seen, misclassification rate 0.12 against 0.16 of version 1 as it is in "
        "use (-25 %, p = 0.3)"
    )
    assert (said in decision.reason) is (newest is not None)


@pytest.mark.parametrize("earlier", [[0, 1, 0, 1] * 10, [0] * 20 + [1] * 20, [1]])
def test_only_rows_after_the_ones_of_the_champion_are_new(earlier: list[int]):
    rng = np.random.default_rng(0)
    target = Target("classification", rng.integers(0, 2, 60), ("x", "y"))
    for lost, kept in ((0, 40), (15, 40)):
        values = np.concatenate([rng.integers(0, 2, lost), target.values[:kept]])
        for stored in (
            replace(target, values=values),
            replace(target, values=1 - values, classes=("y", "x")),
        ):
            assert appended_rows(stored, target).tolist() == list(range(kept, 60))
    other_table = replace(target, values=np.array(earlier))
    assert len(appended_rows(other_table, target)) == 0


def test_rows_in_another_order_are_not_new_however_rare_a_class():
    rng = np.random.default_rng(0)
    stored = np.zeros(100_000, dtype=int)
    stored[rng.choice(np.arange(50, 99_950), 1000, replace=False)] = 1
    values = rng.permutation(stored)
    values[:40] = 0
    target = Target("classification", values, ("no", "yes"))
    assert len(appended_rows(replace(target, values=stored), target)) == 0


def test_losses_of_rows_are_paired():
    y, ours, theirs = (
        np.array(["a", "b"] * 10),
        np.array(["a", "b"] * 10),
        np.array(["a"] * 20),
    )
    found = compare_losses(y, ours, theirs, "classification")
    assert (found.n_rows, found.challenger, found.champion) == (20, 0.0, 0.5)
    assert found.p == pytest.approx(stats.ttest_1samp(ours != theirs, 0).pvalue)
    numbers = np.arange(20.0)
    found = compare_losses(numbers, numbers + 2, numbers[:, None] - 2, "regression")
    assert (found.challenger, found.champion, found.p) == (2.0, 2.0, None)


def test_versions_that_no_error_tells_apart_stay():
    for changes, facts, said in (
        ({}, {"digest": "1"}, "learned from the same rows; version 1 stays"),
        ({"refresh": False}, {}, "version 1 stays (refresh lets newer rows take over)"),
        ({}, {"version": 1}, "version 1 is the champion already"),
    ):
        decision = decided(replace(contender(2, CHAMPION), **facts), **changes)
        assert (decision.moved, decision.p) == (False, None)
        assert said in decision.reason


def test_names_of_columns_and_classes_are_no_markup_on_pages(
    monkeypatch: pytest.MonkeyPatch,
):
    columns = COLUMNS | {"<age>": "number", "a*b": "number", "[c](http://d)": "number"}
    ours = contender(2, CHAMPION, metric="1 - f1 of <b>")
    decision = decided(ours, contender(1, CHAMPION, columns=columns))
    escaped = r"without '\<age>', 'a\*b', '\[c\](http\://d)'"
    assert escaped in describe_decision(decision, {})
    shown: list[str] = []

    def keep(*content: Any, key: str, description: str) -> None:
        shown.append(description)

    def version(name: str) -> Any:
        return SimpleNamespace(run_id="r")

    monkeypatch.setattr(registry, "find_version", version)
    monkeypatch.setattr(lifecycle, "log_run", lambda *facts, **content: None)
    monkeypatch.setattr(lifecycle, "create_table_artifact", keep)
    monkeypatch.setattr(lifecycle, "create_markdown_artifact", keep)
    run: Any = SimpleNamespace(run_id="r", url="http://localhost")
    lifecycle._log_decision(decision, run, Path("results"))
    assert len(shown) == 2
    assert all(escaped in description for description in shown)


def test_metrics_with_names_of_classes_are_no_markup_on_pages():
    metric = "1 - f1 of <b>"
    ours, theirs = (contender(version, CHAMPION, metric=metric) for version in (2, 1))
    page = describe_decision(decided(ours, theirs), {})
    assert r"Test error (1 - f1 of \<b>) on" in page
    about = {
        **{"predictor": "krr", "n_rows": 10, "dataset": "d", "metric": metric},
        **{"test_error": 0.5, "test_error_sd": None, "alignment": 0.5},
        **{"sampling": None, "predictor_reason": ""},
    }
    learner = SimpleNamespace(title="unif")
    choice: Any = SimpleNamespace(learner=learner, C=1.0, candidates=())
    page = describe_training(choice, about, "m", 1, {})
    assert r"Expected 1 - f1 of \<b> on new rows: 0.5, the mean" in page


# What the validation folds choose, from fold tables written for the purpose ------------------------------------------


LQ: dict[str, Any] = {"name": "lq", "tune": {"q": [1.5, 2, 4]}}


def config(**keys: Any) -> schema.CompareConfig:
    data = {
        "name": "small",
        "datasets": ["wine"],
        "learners": ["unif", LQ],
        "protocol": {"grid": [0.5, 1, 2]},
    }
    data |= {"kernels": [{"family": "gaussian", "gammas": [0.1, 1.0]}]}
    return schema.CompareConfig.model_validate(data | keys)


def written(
    folder: Path, learner: str, tables: list[list[list[float]]], error: float = 0.5
) -> FoldsRef:
    same = {
        "dataset": "wine",
        "task": "classification",
        "learner": learner,
        "algorithm": learner,
        "predictor": "svm",
    }
    same |= {
        "repeat": 0,
        "alignment": 0.5,
        "metric": "misclassification",
        "seconds_weights": 0.1,
        "seconds_fit": 0.1,
    }
    same |= {
        "n_train": 100,
        "n_kernels": 2,
        "weights": [0.6, 0.8],
        "kernels": ["a", "b"],
        "trivial_error": 0.6,
    }
    same |= {"regularization": 1.0, "grid_edge": False, "params": "{}"}
    rows = []
    for fold, table in enumerate(tables):
        own = {
            "fold": fold,
            "error": error + fold / 100,
            "validation_error": float(np.nanmin(table)),
        }
        rows.append(same | own | {"candidate_errors": table})
    path = folder / learner
    write_fold_table(path, rows, [], n_parallel=1)
    return FoldsRef("wine", learner, learner, "svm", str(path))


def test_the_lowest_mean_validation_error_decides_and_not_the_test_error(
    tmp_path: Path,
):
    # unif has the lower test error; lq with its second q at C 2 the lower mean
    # validation error.
    of_lq = [
        [[0.00, 0.4, 0.4], [0.3, 0.3, 0.1], [0.3, 0.3, 0.3]],
        [[0.35, 0.4, 0.4], [0.3, 0.3, 0.2], [0.3, 0.3, 0.3]],
    ]
    of_unif = [[[0.3, 0.2, 0.3]], [[0.3, 0.2, 0.4]]]
    results = [
        written(tmp_path, "unif", of_unif, error=0.01),
        written(tmp_path, "lq", of_lq),
    ]
    choice = choose(config(), results)
    assert (choice.learner.name, choice.learner.params, choice.learner.tune) == (
        "lq",
        {"q": 2},
        {},
    )
    assert choice.C == 2.0
    assert choice.validation_error == pytest.approx(0.15)
    assert choice.about["test_error"] == pytest.approx(0.505)
    assert [row["learner"] for row in choice.candidates] == ["unif", "lq *"]


def test_ties_go_to_the_first_learner_the_smallest_lambda_and_the_first_setting(
    tmp_path: Path,
):
    same = [[[0.2, 0.2, 0.2]] * 3]
    choice = choose(
        config(),
        [written(tmp_path, "unif", [[[0.2, 0.2, 0.2]]]), written(tmp_path, "lq", same)],
    )
    assert (choice.learner.name, choice.C) == ("unif", 0.5)
    alone = config(learners=[LQ])
    choice = choose(
        alone,
        [
            written(
                tmp_path / "alone",
                "lq",
                [[[0.3, 0.2, 0.2], [0.3, 0.2, 0.1], [0.3, 0.3, 0.1]]],
            )
        ],
    )
    assert (choice.learner.params, choice.C) == ({"q": 2}, 2.0)


def test_a_choice_by_alignment_takes_the_setting_of_most_trials(tmp_path: Path):
    none = [np.nan] * 3
    tables = [
        [none, [0.3, 0.2, 0.3], none],
        [none, [0.3, 0.4, 0.5], none],
        [[0.0, 0.0, 0.0], none, none],
    ]
    alone = config(learners=[LQ | {"tune_by": "alignment"}])
    choice = choose(alone, [written(tmp_path, "lq", tables)])
    assert (choice.learner.params, choice.C) == ({"q": 2}, 0.5)
    assert choice.validation_error == pytest.approx(0.3)


TWO = ["wine", "iris"]


def test_one_data_set_and_the_learners_asked_for_are_left():
    of = training_config(config(datasets=TWO), "iris", "lq")
    assert [data.label for data in of.datasets] == ["iris"]
    assert [learner.title for learner in of.learners] == ["lq"]
    assert [
        learner.title for learner in training_config(config(), None, None).learners
    ] == ["unif", "lq"]


REFUSED: list[tuple[dict[str, Any], str | None, str | None, str]] = [
    (
        {"datasets": TWO},
        None,
        None,
        "a model learns from one data set, got wine, iris; name one with dataset=.",
    ),
    (
        {"datasets": TWO},
        "whine",
        None,
        "dataset='whine': did you mean 'wine'. the configuration has wine, iris",
    ),
    ({}, None, "alignf", "learner='alignf': the configuration has unif, lq"),
    ({"learners": ["unif", "ensemble"]}, None, None, "ensemble learns no kernel"),
    (
        {"kernels": [{"family": "mine:Mine"}]},
        None,
        None,
        "family mine:Mine, which is your own, can be kept; take",
    ),
    (
        {"learners": ["no_such:Mine"]},
        None,
        None,
        "learner no_such:Mine cannot be imported",
    ),
    (
        {"kernels": [{"family": "precomputed", "path": "grams"}]},
        None,
        None,
        "no values for new rows",
    ),
]


def test_what_leads_to_no_model_is_refused():
    acts = (
        (partial(training_config, config(**keys), *given), sentence)
        for keys, *given, sentence in REFUSED
    )
    require_refusals(acts, error=errors.InputError)


# Appended rows -------------------------------------------------------------------------------------------------------


def reviews(n: int) -> pd.DataFrame:
    """Rows whose class depends on the words of a text, and on a number with gaps."""
    rng = np.random.default_rng(0)
    positive = rng.random(n) < 0.5
    words = np.array(["fine", "lovely", "great", "poor", "broken", "late"])
    texts = []
    for is_positive in positive:
        mood = rng.choice(words[:3] if is_positive else words[3:], 3)
        texts.append(f"the parcel was {' '.join(mood)} on day {rng.integers(10_000)}")
    size = positive + rng.normal(size=n)
    return pd.DataFrame(
        {
            "review": texts,
            "size": np.where(rng.random(n) < 0.1, np.nan, size),
            "weight": rng.normal(size=n),
            "y": np.where(positive, "good", "bad"),
        }
    )


def ingested(**keys: Any) -> DatasetRef:
    data = {"source": "file", "path": "rows.csv", "target": "y", "missing": "impute"}
    config = schema.CompareConfig.model_validate(
        {"name": "reviews", "datasets": data | keys}
    )
    with disable_run_logger():
        return ingest.fn(config.datasets[0], ".", 0)


def model_on(ref: DatasetRef) -> Model:
    dataset = load_dataset(ref)
    if dataset.by_training:
        dataset = dataset.learned_on(np.arange(len(dataset.target)))
    estimator = KernelLearningClassifier(
        family=GaussianFamily([0.1]), learner="unif", predictor="krr", boost=False
    )
    fit_on_features(estimator, dataset.X, dataset.target.given, dataset.table)
    return Model.of_table(estimator, {"digest": ref.digest})


def scored_on_appended_rows(
    rows: pd.DataFrame, **keys: Any
) -> tuple[Model, DatasetRef, NewestRows]:
    """Return a model of the first 120 rows, the data set of all, and errors on the others."""
    rows[:120].to_csv("rows.csv", index=False)
    champion = model_on(ingested(**keys))
    rows.to_csv("rows.csv", index=False)
    ref = ingested(**keys)
    newest = errors_on_newest_rows(model_on(ref), champion, ref, ref)
    assert newest is not None
    return champion, ref, newest


TEXT = {"columns": {"review": "text", "size": "number", "weight": "number"}}
NUMBERS = {"columns": {"size": "number", "weight": "number"}, "drop": ["review"]}


@pytest.mark.parametrize("scale_on", ["all", "training"])
@pytest.mark.parametrize("recipe", [TEXT, NUMBERS], ids=["text", "numbers"])
@pytest.mark.usefixtures("state")
def test_a_champion_is_scored_on_appended_rows_of_every_kind_of_column(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recipe: dict[str, Any],
    scale_on: str,
):
    monkeypatch.chdir(tmp_path)
    rows = reviews(150)
    keys = recipe | {"scale": "standard", "scale_on": scale_on}
    champion, _, newest = scored_on_appended_rows(rows, **keys)
    assert (newest.n_rows, newest.measure) == (30, "misclassification rate")
    predicted = champion.columns(champion.raw_rows(rows[120:]))["prediction"]
    assert newest.champion == np.mean(predicted != rows["y"][120:])
    if recipe is TEXT:
        assert newest.challenger <= 0.1


@pytest.mark.usefixtures("state")
def test_a_champion_is_scored_on_appended_rows_of_rare_levels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    small = [f"{first}{second}ton" for first in "ABCDEFGHIJ" for second in "aeiouy"]
    city = rng.choice(small, 150)
    city[:120][rng.random(120) < 0.4] = "Metro"
    rows = pd.DataFrame({"city": city, "size": rng.normal(size=150)})
    rows["y"] = np.where(rows["city"] == "Metro", "bad", "good")
    keys = {"columns": {"city": "categorical", "size": "number"}, "scale": "standard"}
    champion, ref, newest = scored_on_appended_rows(rows, **keys)
    assert load_dataset(ref).table.columns[0].many
    predicted = champion.columns(champion.raw_rows(rows[120:]))["prediction"]
    assert newest.champion == np.mean(predicted != "good") < 0.5


@pytest.mark.usefixtures("state")
def test_a_champion_is_scored_on_appended_rows_with_missing_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    size = rng.normal(size=150)
    size[:120][rng.random(120) < 0.4] = np.nan
    size[120:] = np.nan
    rows = pd.DataFrame({"size": size, "weight": rng.normal(size=150)})
    rows["y"] = np.where(rows["size"].isna(), "good", "bad")
    _, _, newest = scored_on_appended_rows(rows, scale="standard")
    assert newest.champion == 0.0


@pytest.mark.usefixtures("state")
def test_rows_are_appended_whichever_class_is_positive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    keys = NUMBERS | {"positive": "bad"}
    champion, ref, newest = scored_on_appended_rows(reviews(150), **keys)
    assert champion.estimator.classes_.tolist() == ["bad", "rest"]
    assert ref.classes == ("rest", "bad")
    assert newest.n_rows == 30
    assert newest.champion < 0.5


@pytest.mark.usefixtures("state")
def test_a_champion_is_scored_with_its_own_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    rows = reviews(150)
    rows[:120].to_csv("rows.csv", index=False)
    champion = model_on(ingested(**TEXT))
    rows.to_csv("rows.csv", index=False)
    without_text = ingested(**NUMBERS)
    challenger = model_on(without_text)
    newest = errors_on_newest_rows(challenger, champion, without_text, ingested(**TEXT))
    assert newest is not None
    assert newest.champion < newest.challenger
    assert (
        errors_on_newest_rows(challenger, champion, without_text, without_text) is None
    )
