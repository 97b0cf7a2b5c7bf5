"""The examples run as a reader runs them, print what they found, and what they tell is so."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


@functools.cache
def told(name: str) -> tuple[Any, str]:
    """Return what the main function of an example returns and what it prints; each runs once."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = importlib.import_module(f"examples.{name}").main()
    return result, printed.getvalue()


def standard_error(differences: np.ndarray) -> float:
    return float(differences.std(ddof=1) / np.sqrt(len(differences)))


# All of them ---------------------------------------------------------------------------------------------------------


def test_there_are_the_five():
    assert NAMES == ["feature_relevance", "grid_search", "multi_view", "regression", "text_ngrams"]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_asks_its_question_first_and_names_its_command(name: str):
    text = importlib.import_module(f"examples.{name}").__doc__
    assert re.match(r"[A-Z].*\?\n\n", text)
    assert f"python examples/{name}.py" in text


def test_importing_the_examples_does_nothing(tmp_path: Path):
    code = "import sys; sys.path.insert(0, sys.argv[1]); import " + ", ".join(f"examples.{name}" for name in NAMES)
    command = [sys.executable, "-W", "error", "-c", code, str(ROOT)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_an_example_run_as_a_script_elsewhere_prints_the_same_and_writes_nothing(tmp_path: Path):
    script, printed = ROOT / "examples" / "multi_view.py", told("multi_view")[1]  # and so compiled already
    run = subprocess.run([sys.executable, "-W", "error", script], cwd=tmp_path, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == printed
    assert list(tmp_path.iterdir()) == []


# multi_view ----------------------------------------------------------------------------------------------------------


def test_the_view_that_tells_least_alone_carries_least_weight():
    result, _ = told("multi_view")
    assert sum(result.view_weights.values()) == pytest.approx(1)
    alone = {view: result.errors[f"view '{view}' alone"].mean() for view in result.view_weights}
    assert max(alone, key=alone.get) == min(result.view_weights, key=result.view_weights.get) == "standard error"
    # 0.126 against 0.045 and 0.033, with standard errors of 0.01: twice as large is far from chance.
    assert alone["standard error"] > 2 * max(alone["mean"], alone["worst"])
    assert max(result.view_weights, key=result.view_weights.get) == "worst"


def test_learned_views_do_no_worse_than_the_best_single_view():
    result, _ = told("multi_view")
    learned = result.errors["three views, learned weights"]
    for view in result.view_weights:
        differences = learned - result.errors[f"view '{view}' alone"]
        # Ten folds: two standard errors are about what chance does once in twenty.
        assert differences.mean() <= 2 * standard_error(differences)


def test_the_views_are_printed_with_what_was_found():
    result, printed = told("multi_view")
    for name, errors in result.errors.items():
        assert re.search(rf"^  {re.escape(name)} +{errors.mean():.3f} \+- {errors.std():.3f}$", printed, re.M)
    for view, weight in result.view_weights.items():
        assert re.search(rf"^  {view} +{weight:.2f} ", printed, re.M)
    means = {name: errors.mean() for name, errors in result.errors.items()}
    assert f"Lowest error: {min(means, key=means.get)}." in printed
    for name, weight in result.kernel_weights.items():
        assert (name in printed) == (weight > 0)
    assert "Learned views against all columns in one:" in printed


# text_ngrams ---------------------------------------------------------------------------------------------------------


def test_texts_stay_sparse_from_end_to_end():
    result, printed = told("text_ngrams")
    assert result.n_texts > 500
    assert result.n_ngrams > 1000
    assert result.density < 0.05
    assert result.sparse_end_to_end
    assert f"{result.n_texts} texts, {result.n_ngrams} n-grams" in printed


def test_weights_of_ngrams_follow_from_how_often_each_class_has_them():
    result, printed = told("text_ngrams")
    # The alignment of an n-gram is its squared correlation with the classes, which the printed shares alone give.
    pi = result.positive
    expected = []
    for name, _, inside, outside in result.heaviest:
        q = pi * inside + (1 - pi) * outside
        expected.append((inside - outside) ** 2 / (q * (1 - q)))
        assert re.search(rf"^  {re.escape(name)} ", printed, re.M)
    weights = np.array([weight for _, weight, _, _ in result.heaviest])
    np.testing.assert_allclose(weights / weights[0], np.array(expected) / expected[0], rtol=1e-9)
    assert (np.diff(weights) <= 0).all()


def test_the_heaviest_ngrams_are_those_of_statistics():
    result, _ = told("text_ngrams")
    names = [name for name, *_ in result.heaviest]
    assert {"distribution", "random variable"} <= set(names)
    assert all(inside > outside for _, _, inside, outside in result.heaviest)
    # Weighed together, phrases that say the same need not all have weight.
    assert result.n_ngrams / 2 < result.n_zero < result.n_ngrams


def test_the_errors_on_texts_are_near_those_of_the_linear_machine():
    result, printed = told("text_ngrams")
    errors = result.errors
    one = np.sqrt(errors["linear SVM"] * (1 - errors["linear SVM"]) / result.n_test)
    for name in ("align", "alignf"):
        assert errors[name] < errors["most frequent class"] / 2
        # Three standard errors of a difference of two shares.
        assert errors[name] <= errors["linear SVM"] + 3 * np.sqrt(2) * one
    for name, error in errors.items():
        assert re.search(rf"^  {name} +{error:.3f} ", printed, re.M)


# regression ----------------------------------------------------------------------------------------------------------


def test_the_learned_grid_takes_fewer_fits_for_an_error_of_the_same_size():
    (measured, _), printed = told("regression")
    learned, tuned = measured["learned grid of bandwidths"], measured["one tuned bandwidth"]
    # (values x 3 inner folds + 1) x 5 outer folds
    assert (learned.fits, tuned.fits) == ((7 * 3 + 1) * 5, (7 * 7 * 3 + 1) * 5)
    # One unit is 2 % of the error, and twice the spread of the difference over folds.
    assert abs(learned.errors.mean() - tuned.errors.mean()) < 1
    for way in measured.values():
        # Predicting the mean has an error of 77, and a third of the variance is explained by any sound regression.
        assert way.errors.mean() < 77 * np.sqrt(2 / 3)
    assert "110 fits" in printed
    assert "740 fits" in printed


def test_the_regression_prints_what_was_found_and_chosen():
    (measured, shares), printed = told("regression")
    for name, way in measured.items():
        line = re.search(rf"^  {name} +{way.errors.mean():.2f} \+- {way.errors.std():.2f} .* s a fold$", printed, re.M)
        assert line
        assert len(way.errors) == len(way.seconds) == len(way.chosen) == 5
    assert sum(shares.values()) == pytest.approx(1)
    for name, share in shares.items():
        assert re.search(rf"^  {re.escape(name)} +{share:.2f}$", printed, re.M)
    for name in ("learned grid of bandwidths", "one tuned bandwidth"):
        # A choice at the end of a grid would say that the grid is too short for a fair comparison.
        assert all(1e-3 < choice["alpha"] < 1e3 for choice in measured[name].chosen)
    assert "Learned against tuned: " in printed


# feature_relevance ---------------------------------------------------------------------------------------------------


def test_weights_find_the_features_that_matter_in_a_known_problem():
    results, _ = told("feature_relevance")
    result = results["Friedman's function (x0 to x4 matter)"]
    for shares in result.relevance.values():
        assert shares.sum() == pytest.approx(1)
        assert (shares >= 0).all()
    assert result.overlooked("weights") == []
    weights = result.relevance["weights"]
    # 0.039 of the least relevant feature against 0.009 of noise: twice as much leaves room for another library version.
    assert weights[:5].min() > 2 * weights[5:].max()
    assert result.r2["weights"] > 0.8


def test_bandwidths_find_them_too_and_a_search_that_ends_early_misses_one():
    results, printed = told("feature_relevance")
    result = results["Friedman's function (x0 to x4 matter)"]
    bandwidths = result.relevance["bandwidths"]
    # 0.010 of noise against 0.082: twice as much leaves room for another library version.
    assert bandwidths[:5].min() > 2 * bandwidths[5:].max()
    assert result.overlooked("bandwidths") == result.overlooked("bandwidths shuffled") == []
    assert result.overlooked("coarse bandwidths") == ["x2"]
    assert re.search("overlooked though they matter, coarse bandwidths +x2$", printed, re.M)
    assert re.search("overlooked though they matter, weights +none$", printed, re.M)
    # x0 and x1 act through each other, which a sum of kernels of one feature each cannot see.
    assert result.r2["bandwidths"] > result.r2["weights"]


def test_the_answers_on_diabetes_agree_about_the_first_two():
    results, printed = told("feature_relevance")
    result = results["diabetes"]
    for method in result.relevance:
        assert set(result.ranking(method)[:2]) == {"s5", "bmi"}
        assert f"the five largest, {method} " in printed
    for method, rho in result.agreement.items():
        # Above what chance gives once in twenty for ten ranks.
        assert rho > 0.564
        assert f"{method}: rank correlation with shuffling {rho:.2f}" in printed


# grid_search ---------------------------------------------------------------------------------------------------------


def test_the_table_holds_every_learner_and_family_once_the_best_first():
    result, printed = told("grid_search")
    pairs = list(zip(result.table["learner"], result.table["family"], strict=True))
    assert len(set(pairs)) == len(pairs) == 9
    assert result.table["error"].is_monotonic_increasing
    assert result.table["error"].iloc[0] == pytest.approx(result.best_error)
    assert set(result.table["C"]) <= {0.1, 1.0, 10.0}
    for learner, family in pairs:
        assert re.search(rf"^ *{learner} +{re.escape(family)} ", printed, re.M)


def test_nested_folds_and_the_features_give_errors_of_a_sound_classifier():
    result, printed = told("grid_search")
    for errors in (result.nested_errors, result.logistic_errors, result.plain_logistic_errors):
        assert len(errors) == 5
        # The most frequent class errs on 60 %; five times what is measured would be a broken model.
        assert errors.mean() < 0.1
    # Three wines more or less is what the assignment to folds does.
    assert result.logistic_errors.mean() <= result.plain_logistic_errors.mean() + 3 / 178
    assert f"the least of 27: {result.best_error:.3f}" in printed
    assert f"{result.nested_errors.mean():.3f} +- {result.nested_errors.std():.3f}" in printed
    assert f"then logistic regression: {result.logistic_errors.mean():.3f}" in printed
