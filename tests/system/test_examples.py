"""The examples and the chapters of the guide run, in their small form, and what they tell is so."""

import contextlib
import functools
import io
import os
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import matplotlib
import numpy as np
import pytest

from learnkernels import linear_cka

pytestmark = pytest.mark.slow(4)

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = {
    path.stem: path
    for folder in ("docs/examples", "docs/chapters")
    for path in sorted((ROOT / folder).glob("*.py"))
}

SMALL = {
    "grid_search": {"StratifiedKFold(5,": "StratifiedKFold(3,"},
    "many_rows": {
        "ROWS = 20_000": "ROWS = 2_500",
        "ROWS + 5_000": "ROWS + 1_000",
        "(100, 300, 1000)": "(25, 100, 400)",
    },
    "5_many_rows": {"ROWS = 16_000": "ROWS = 2_500"},
    "regression": {"KFold(5,": "KFold(3,"},
}
"""What is written otherwise in the small form: everything that is slow in full."""


@functools.cache
def told(name: str) -> Any:
    """Return the names that a script leaves and what it printed; it prints and draws
    something.

    Each runs once, in this process and in a folder that is thrown away.
    """
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    source = SCRIPTS[name].read_text(encoding="utf-8")
    for full, small in SMALL.get(name, {}).items():
        assert source.count(full) == 1, f"{name}: the small form replaces {full!r}"
        source = source.replace(full, small)
    module = sys.modules[f"story_{name}"] = ModuleType(f"story_{name}")
    names: dict[str, Any] = vars(module)
    before, printed = os.getcwd(), io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(printed),
        warnings.catch_warnings(),
    ):
        # Where there is a display
        warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")
        os.chdir(folder)
        try:
            exec(compile(source, str(SCRIPTS[name]), "exec"), names)
            assert any(plt.figure(number).axes for number in plt.get_fignums())
            assert list(Path(folder).iterdir()) == []
        finally:
            os.chdir(before)
            plt.close("all")
    assert printed.getvalue().strip()
    return SimpleNamespace(**names | {"printed": printed.getvalue()})


def standard_error(differences: np.ndarray) -> float:
    return float(differences.std(ddof=1) / np.sqrt(len(differences)))


# All of them ---------------------------------------------------------------------------------------------------------


def test_every_script_has_a_test_of_what_it_tells():
    assert set(
        re.findall(r'told\("(\w+)"\)', Path(__file__).read_text(encoding="utf-8"))
    ) == set(SCRIPTS)


def test_an_example_run_as_a_script_elsewhere_prints_the_same_and_writes_nothing(
    tmp_path: Path,
):
    command = [sys.executable, "-W", "error", SCRIPTS["features_for_others"]]
    environment = os.environ | {"MPLBACKEND": "template"}
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env=environment
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == told("features_for_others").printed
    assert list(tmp_path.iterdir()) == []


# First steps ---------------------------------------------------------------------------------------------------------


def test_a_table_is_taken_as_it_comes():
    story = told("first_table")
    assert "category of 3 levels: contract" in story.printed
    # A third of the most frequent class's error; boosting within three standard errors
    # of a difference of shares.
    assert story.errors["learnkernels"] < story.errors["most frequent class"] / 3
    assert (
        story.errors["learnkernels"]
        < story.errors["gradient boosting"] + 3 * np.sqrt(2) * 0.025
    )
    # Of no effect
    assert min(story.model.relevance_, key=story.model.relevance_.get) in (
        "region",
        "spent",
    )


def test_learned_bandwidths_err_as_one_tuned_bandwidth_does():
    story = told("regression")
    learned, tuned = (
        story.errors["learned bandwidths"],
        story.errors["one tuned bandwidth"],
    )
    # One unit is 2 % of the error, and twice the spread of the difference over folds.
    assert abs(learned.mean() - tuned.mean()) < 1
    assert np.count_nonzero(story.kernel.shares > 0.01) <= 3


def test_the_search_holds_every_learner_and_family_once_the_best_first():
    story = told("grid_search")
    pairs = list(zip(story.table["learner"], story.table["family"], strict=True))
    assert len(set(pairs)) == len(pairs) == 9
    assert story.table["error"].is_monotonic_increasing
    assert story.table["error"].iloc[0] == pytest.approx(1 - story.search.best_score_)
    assert story.nested.mean() >= 1 - story.search.best_score_


def test_alignments_and_errors_have_ranks_that_agree():
    story = told("alignment_and_error")
    assert story.rank < -0.7
    assert (
        story.learned.alignment_
        >= max(max(a) for a, _ in [story.points["gaussian"]]) - 1e-9
    )


# Kinds of data -------------------------------------------------------------------------------------------------------


def test_the_view_that_tells_least_alone_carries_least_weight():
    story = told("multi_view")
    alone = {view: story.errors[f"view '{view}' alone"].mean() for view in story.shares}
    assert (
        max(alone, key=alone.get)
        == min(story.shares, key=story.shares.get)
        == "standard error"
    )
    # Ten folds: two standard errors are about what chance does once in twenty.
    differences = story.errors["three views"] - story.errors["all columns in one"]
    assert abs(differences.mean()) <= 2 * standard_error(differences)


def test_words_tell_more_than_long_phrases_and_carry_the_weight():
    story = told("text_ngrams")
    mean = {name: error.mean() for name, error in story.errors.items()}
    alone = [mean[f"word {length}-grams"] for length in (1, 2, 3)]
    assert alone == sorted(alone)
    assert story.learned.shares[2] < 0.05
    # Three standard errors of a difference of two shares
    assert mean["alignf"] < min(alone[0], mean["linear SVM"]) + 0.04


def test_few_genes_are_found_by_the_norm_of_one_and_many_are_not():
    story = told("genes")
    few, many = story.effects
    assert (
        story.scores[few, "l1-krr"]
        > story.scores[few, "l2-krr"] + 0.2
        > story.scores[few, "equal weights"] + 0.4
    )
    assert story.scores[many, "l2-krr"] > story.scores[many, "l1-krr"] + 0.1
    sparse, dense = (story.kernels[few, name].shares for name in ("l1-krr", "align"))
    assert np.count_nonzero(sparse) < 200 < np.count_nonzero(dense)
    assert (sparse[np.flatnonzero(story.effects[few])] > 0).all()


def test_the_sensors_that_tell_carry_the_weight():
    story = told("sensors")
    assert max(story.shares, key=story.shares.get) == "vibration: spectrum"
    assert (
        sum(
            share
            for name, share in story.shares.items()
            if name.startswith(("vibration", "heat"))
        )
        > 0.95
    )
    assert (
        story.errors["views, learned weights"].mean()
        < story.errors["all columns in one"].mean() - 0.05
    )


def test_the_graph_kernels_between_too_shallow_and_too_deep_are_best():
    story = told("graphs")
    mean = {name: error.mean() for name, error in story.errors.items()}
    assert mean["labels of iteration 0"] > 0.4  # degrees tell nothing
    assert mean["labels of iteration 3"] < min(
        mean["labels of iteration 1"], mean["labels of iteration 4"]
    )
    assert mean["alignf"] <= mean["labels of iteration 2"] + 0.02
    assert story.learned.shares[0] < 0.05


# What was learned ----------------------------------------------------------------------------------------------------


def test_every_answer_puts_the_features_that_matter_first():
    story = told("feature_relevance")
    for name, shares in story.relevance.items():
        assert shares.sum() == pytest.approx(1)
        assert set(np.argsort(-shares)[:5]) == set(range(5)), name
    assert min(story.scores.values()) > 0.8
    np.testing.assert_allclose(
        story.relevance["held-out rows"], story.relevance["permutation"], atol=0.05
    )
    assert story.selected.tolist() == ["x0", "x1", "x2", "x3", "x4"]
    assert next(iter(story.models["metric"].interactions_)) == ("x0", "x1")


def test_contributions_of_columns_are_those_of_the_rule():
    story = told("explain")
    total = story.everyone.base_values + story.everyone.contributions.sum(axis=1)
    np.testing.assert_allclose(total, story.model.predict(story.flats[400:]), atol=1e-8)
    by_size = [story.everyone.columns[j] for j in np.argsort(-story.sizes)]
    assert by_size[0] == "area"
    assert by_size[-1] == "doors"
    assert story.slope == pytest.approx(10, abs=2)
    assert (
        story.more.standard_errors.sum() < 0.7 * story.explanation.standard_errors.sum()
    )


def test_a_metric_that_turns_features_sees_the_slanted_direction():
    scores = told("learned_metric").scores
    assert (
        scores["Gaussians, alignf"]
        < scores["weighed features"]
        < scores["turned features"]
    )
    assert scores["as it comes"] > scores["weighed features"]


def test_features_of_a_learned_kernel_serve_a_linear_model():
    plain, curved = told("features_for_others").errors.values()
    # Three wines are what the assignment to folds does
    assert curved.mean() <= plain.mean() + 3 / 178


def test_layers_of_two_networks_are_alike_and_the_last_says_most_of_the_digits():
    story = told("representations")
    assert story.table.min() > 0.3
    assert (
        abs(linear_cka(story.A, story.B, debiased=True))
        < 0.05
        < 0.8
        < linear_cka(story.A, story.B)
    )
    assert story.printed.count("p = 0.01") == 3
    assert story.test.debiased[0] > 0.6  # of the last layer


def test_the_norm_of_one_keeps_few_kernels_along_the_path():
    story = told("weights_along_lambda")
    for kernels in story.paths.values():
        # What the learners promise
        assert max(kernel.certificate.residual for kernel in kernels) <= 1e-6
    few, many = (
        max(np.count_nonzero(kernel.shares > 1e-6) for kernel in path)
        for path in story.paths.values()
    )
    assert few <= 4 < many == 8


# Protocols -----------------------------------------------------------------------------------------------------------


def test_weights_of_classes_raise_the_recall_and_cost_accuracy():
    plain, some, balanced = told("imbalanced").found.values()
    assert plain["recall"] <= some["recall"] < balanced["recall"]
    assert plain["accuracy"] > balanced["accuracy"]
    assert plain["average precision"] > balanced["average precision"]


def test_probabilities_are_calibrated_and_intervals_cover_what_is_asked():
    story = told("probabilities")
    assert min(story.losses, key=story.losses.get) == "learnkernels"
    # A share of 500 rows has a standard error of at most .022, of which the mean gap is
    # some .018.
    assert story.gaps["learnkernels"] < 0.04
    # The coverage of one fit on 500 rows has a standard error of at most .022.
    np.testing.assert_allclose(story.covered, story.asked, rtol=0, atol=0.066)


def test_folds_that_divide_patients_flatter():
    mixed, whole = told("groups").errors.values()
    assert mixed.mean() + 0.1 < whole.mean() < told("groups").guess


def test_rows_to_come_are_harder_than_rows_between():
    mixed, later = told("time_order").errors.values()
    assert mixed.mean() < 2.5  # the noise has 2
    assert later.mean() > 1.5 * mixed.mean()


# Use -----------------------------------------------------------------------------------------------------------------


def test_more_landmarks_come_nearer():
    story = told("many_rows")
    scores = [score for name, (score, _) in story.found.items() if "landmarks" in name]
    assert scores == sorted(scores)
    assert (story.sampling.n_rows, story.sampling.of_rows) == (625, 2_500)


def test_a_learner_of_ones_own_is_searched():
    story = told("own_learner")
    assert np.count_nonzero(story.kernels["BestFew(3)"].weights) == 3
    assert (
        story.kernels["unif"].alignment
        < story.kernels["BestFew(3)"].alignment
        <= story.kernels["alignf"].alignment
    )


def test_a_file_without_pickle_predicts_the_same_and_is_refused_when_changed():
    story = told("keep_a_model")
    assert story.same == 1
    assert story.sizes["support.safetensors"] < story.sizes["all.safetensors"]
    assert "checksum" in story.refused


def test_a_challenger_is_promoted_where_it_wins():
    history = told("nightly").history
    assert [one[-1] for one in history] == [False, False, True, False, False]
    assert told("nightly").champion == "rfm"


# The guide -----------------------------------------------------------------------------------------------------------


def test_alignment_by_hand_is_that_of_the_library_and_knows_no_constants():
    story = told("1_alignment")
    np.testing.assert_allclose(story.by_hand, story.by_function, rtol=1e-12)
    np.testing.assert_allclose(np.ptp(story.centered, axis=1), 0, atol=1e-12)
    assert np.ptp(story.plain, axis=1).max() > 0.1
    assert 3 <= story.best <= 15  # between too wide and too narrow


def test_alignf_has_the_highest_alignment_and_finds_the_view():
    story = told("2_combination")
    alignments = {name: kernel.alignment for name, kernel in story.kernels.items()}
    assert max(alignments, key=alignments.get) == "alignf"
    learned, equal, one = (story.errors[name] for name in reversed(story.errors))
    assert learned < equal - 0.05 < one - 0.05
    assert story.shares["view 0"] > 0.5


def test_gradients_tell_the_features_that_matter_and_no_metric_is_learned_where_none_does():
    story = told("3_metric")
    assert set(np.argsort(-story.G.diagonal())[:5]) == set(range(5))
    assert story.scores["as it comes (rfm)"] == max(story.scores.values())
    np.testing.assert_allclose(story.alike.kernel_.relevance, 1 / 6, atol=0.01)


def test_choosing_on_all_rows_fools_and_the_plain_test_is_too_sure():
    story = told("4_protocol")
    assert story.fooled.mean() < 0.3 < 0.4 < story.honest.mean()
    assert story.p_uncorrected < 0.1 < story.p_corrected


def test_landmarks_approach_the_predictor_of_all_pairs():
    story = told("5_many_rows")
    assert story.scores == sorted(story.scores)
    assert (
        story.exact.predictor_,
        story.model.predictor_,
        len(story.model.landmarks_),
    ) == ("krr", "nystroem", 400)
