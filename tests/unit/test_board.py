"""The board's arithmetic, the history of benchmarks, and journals that go on after a line that was cut off."""

import json
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from pandas.api.types import is_datetime64_any_dtype
from sklearn.dummy import DummyRegressor

from dev.benchmarks import history
from dev.benchmarks.board import Measurement, contestants
from dev.benchmarks.board import __main__ as board_command
from dev.benchmarks.board.__main__ import measured
from dev.benchmarks.board.contestants import (
    CONTESTANTS,
    OURS,
    RAW_CONTESTANTS,
    TUNED,
    XRFM,
    Contestant,
    dates_as_numbers,
    tuned_rbf,
)
from dev.benchmarks.board.metrics import (
    SMALLEST_PROBABILITY,
    expected_calibration_error,
    expected_errors,
    metrics,
)
from dev.benchmarks.board.raw import HELD_OUT, LARGE_NAMES, SOURCES, raw_tables
from dev.benchmarks.board.sections import SECTIONS, Section
from dev.benchmarks.board.synthetic import GENERATORS, generate
from dev.benchmarks.board.tables import (
    FEWEST,
    GROWING,
    LARGE,
    Drawing,
    Split,
    Table,
    numbers,
)
from dev.benchmarks.board.verdict import Board, improvability, win_rates
from dev.tools.chaos.__main__ import KINDS
from dev.tools.chaos.journal import Attempt, Failure, Journal, attempts_in, report


def board(
    errors: dict[str, list[list[float]]],
    task: str = "regression",
    sizes: tuple[int, ...] = (500,),
) -> Board:
    """A board of some contestants: errors by table and drawing."""
    rows = []
    for name, tables in errors.items():
        drawn = [
            (table, *one)
            for table, drawings in enumerate(tables)
            for one in enumerate(drawings)
        ]
        for (table, drawing, error), size in product(drawn, sizes):
            told = error, 2 * error, 1 - error, 1.0, size, 100, 7
            rows.append(
                Measurement(
                    "small", f"t{table}", task, True, size, drawing, name, *told
                )
            )
    return Board.from_measurements(rows, SECTIONS["small"])


def test_the_board_has_ranks_means_and_wins():
    tuned = [[1.0, 1.1, 1.05], [2.0, 2.1, 2.05], [0.5, 0.5, 0.5]]
    ours = [[0.5, 0.56, 0.52], [1.0, 1.04, 1.03], [0.6, 0.61, 0.62]]
    found = board(
        {OURS: ours, TUNED: tuned, "LightGBM": [[1.5] * 3, [3.0] * 3, [0.4] * 3]}
    )
    summary = found.summary("regression", True)
    assert summary["mean rank"].to_dict() == pytest.approx(
        {OURS: 5 / 3, TUNED: 2.0, "LightGBM": 7 / 3}
    )
    ratios = [np.mean(a) / np.mean(b) for a, b in zip(ours, tuned, strict=True)]
    assert summary.loc[OURS, "error / tuned RBF"] == pytest.approx(
        np.prod(ratios) ** (1 / 3)
    )
    assert summary.loc[TUNED, ["wins", "losses", "significant"]].tolist() == [
        2,
        1,
        "2 : 1",
    ]
    # Demsar 2006, table 5: q of three classifiers at 5 % is 2.343.
    assert found.critical_difference("regression", True) == pytest.approx(
        2.343 * np.sqrt(3 * 4 / (6 * 3)), rel=1e-3
    )
    assert found.losses("regression", True).index.tolist() == ["t2"]
    page = found.page()
    places = [
        page.index(text)
        for text in ("largest ratios", "Critical difference", "Regression, held")
    ]
    assert places == sorted(places)
    assert "| t2 | held-out | error | 0.610 | 0.400 | LightGBM | 1.525 |" in page
    # No wrong row counts as one.
    found = board({OURS: [[0.0, 0.0]], TUNED: [[0.02, 0.02]]}, "classification")
    ratio = found.summary("classification", True).loc[OURS, "error / tuned RBF"]
    assert ratio == pytest.approx((1 / 200) / 0.02)


def test_the_board_compares_splits_that_all_methods_of_a_data_set_have():
    found = board({OURS: [[0.1, 0.2], [0.3, 0.5]], TUNED: [[0.11], [0.4, 0.6]]})
    assert found.values("regression", True).to_numpy() == pytest.approx(
        np.array([[0.1, 0.11], [0.4, 0.5]])
    )
    # A method that has no split of a data set removes none
    found = board({OURS: [[0.1, 0.2], [0.3]], TUNED: [[0.2, 0.4], []]})
    assert found.values("regression", True)[OURS].tolist() == pytest.approx([0.15, 0.3])


@pytest.mark.parametrize(
    ("measure", "title", "smallest"),
    [
        ("log_loss", "log loss", SMALLEST_PROBABILITY / 0.008),
        ("auc_loss", "1 - AUC", (1 / (2 * 50**2)) / 0.004),
    ],
)
def test_ratios_of_small_probabilistic_losses_are_exact(
    measure: str, title: str, smallest: float
):
    found = board({OURS: [[0.001] * 2], TUNED: [[0.004] * 2]}, "classification")
    ratios = found.summary("classification", True, measure)[f"{title} / tuned RBF"]
    assert ratios[OURS] == pytest.approx(1 / 4)
    found = board({OURS: [[0.0] * 2], TUNED: [[0.004] * 2]}, "classification")
    ratios = found.summary("classification", True, measure)[f"{title} / tuned RBF"]
    assert ratios[OURS] == pytest.approx(smallest)


@pytest.mark.parametrize(
    ("ours", "significant"),
    [
        ([0.1, 0.2], "0 : 0"),
        ([0.1, 0.2, 0.3], "0 : 0"),
        ([0.1, 0.201, 0.302], "1 : 0"),
    ],
)
def test_equal_differences_are_not_significant(ours: list[float], significant: str):
    theirs = [0.2, 0.3, 0.4][: len(ours)]
    summary = board({OURS: [ours], TUNED: [theirs]}).summary("regression", True)
    assert summary.loc[TUNED, "significant"] == significant


def test_two_splits_are_too_few_for_significance():
    found = board({OURS: [[0.1, 0.2]], TUNED: [[0.2, 0.300001]]})
    assert found.summary("regression", True).loc[TUNED, "significant"] == "0 : 0"


def test_overall_ratios_are_of_as_many_data_sets_as_their_number():
    errors = {
        OURS: [[0.1], [0.1], [0.1]],
        TUNED: [[0.2], [0.2], [0.8]],
        "LightGBM": [[0.4], [0.4], []],
        "CatBoost": [[0.4], [], []],
    }
    overall = board(errors).overall().loc["held-out data sets"]
    assert overall.to_dict() == pytest.approx(
        {"number": 2, TUNED: 0.5, "LightGBM": 0.25}
    )


def test_the_board_compares_sizes_apart_and_works_without_us():
    errors = {OURS: [[0.1, 0.1]], TUNED: [[0.2, 0.2]]}
    page = board(errors, "classification", (500, 4000)).page()
    for measure in ("error", "log loss", "1 - AUC"):
        for size in ("500", "4,000"):
            assert (
                f"### Classification, 1 held-out data sets, at most {size} training rows: {measure}\n"
                in page
            )
    assert "| t0, 4,000 rows | 0.1000 | 0.2000 |" in page
    assert "| t0, 4,000 rows | 0.2000 | 0.4000 |" in page
    page = board(
        {TUNED: [[0.2, 0.2]], "LightGBM": [[0.3, 0.3]]}, "classification"
    ).page()
    assert "| tuned RBF | 1.000 | 1.000 | 1.000 | 1 | 1.000 | 0.000 |  |  |  |" in page
    assert "largest ratios" not in page


def test_metrics_count_classes_that_were_not_seen_and_need_no_probabilities():
    X = np.array([[0.1], [0.7], [0.2]])
    of_two = SimpleNamespace(
        classes_=np.array([0, 2]), predict=lambda X: np.where(X[:, 0] > 0.5, 2, 0)
    )
    of_two.predict_proba = lambda X: np.column_stack([1 - X[:, 0], X[:, 0]])
    scores = SimpleNamespace(
        predict=lambda X: (X[:, 0] > 0.5).astype(int),
        decision_function=lambda X: X[:, 0] - 0.5,
    )
    found = metrics(
        of_two,
        "classification",
        Drawing(X, np.array([0, 2]), X, np.array([0, 2, 1]), 1.0),
    )
    assert found["error"] == pytest.approx(1 / 3)
    assert found["log_loss"] == pytest.approx(
        -np.log([0.9, 0.7, SMALLEST_PROBABILITY]).mean()
    )
    assert np.isnan(found["auc"])
    found = metrics(
        scores,
        "classification",
        Drawing(X, np.array([0, 1]), X, np.array([0, 1, 1]), 1.0),
    )
    assert found["auc"] == 1.0
    assert np.isnan(found["log_loss"])
    found = metrics(
        scores, "regression", Drawing(X, X[:, 0], X, np.array([2.0, 3.0, 2.0]), 2.0)
    )
    assert found["error"] == pytest.approx(1.0)


def test_sizes_of_a_data_set_share_their_test_rows():
    splits = [Split(0.8, 0.2, size, 300) for size in (100, 4000)]
    (few, test), (many, same) = (split.draw(1000, 3) for split in splits)
    assert (len(few), len(many), len(test)) == (100, 800, 200)
    np.testing.assert_array_equal(test, same)
    np.testing.assert_array_equal(few, many[:100])
    assert not set(many) & set(test)
    assert set(GROWING) <= set(LARGE)


def test_tables_become_numbers_and_drawings_their_own_units():
    given = pd.DataFrame(
        {
            "a": ["1", "2", "?", "4"],
            "b": ["x", "y", "x", "y"],
            "c": ["q"] * 4,
            "d": list("klmk"),
        }
    )
    np.testing.assert_array_equal(
        numbers(given),
        [[1, 1, 1, 0, 0], [2, 0, 0, 1, 0], [2, 1, 0, 0, 1], [4, 0, 1, 0, 0]],
    )
    rng = np.random.default_rng(0)
    X, y = np.column_stack([rng.normal(5, 3, 100), np.ones(100)]), rng.normal(size=100)
    drawing = Table("t", "regression", True, lambda: (X, y)).drawn(1)
    assert (drawing.X.shape, drawing.X_test.shape) == ((70, 1), (30, 1))
    assert (drawing.X.mean(), drawing.X.std()) == (
        pytest.approx(0, abs=1e-12),
        pytest.approx(1),
    )
    as_it_is = Table(
        "t", "regression", True, lambda: (X, y), split=Split(scaled=False)
    ).drawn(1)
    np.testing.assert_allclose(
        (as_it_is.X - as_it_is.X.mean()) / as_it_is.X.std(),
        drawing.X,
        rtol=0,
        atol=1e-12,
    )
    assert set(as_it_is.X.ravel()) < set(X.ravel())


def test_the_history_keeps_every_run_and_tells_what_became_slower(
    tmp_path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(history, "_commit", lambda: "0123abc")  # which asks git
    output = tmp_path / "results" / "alignment_statistics.parquet"
    row = {
        "table": "speed",
        "case": "engine",
        "m": 9,
        "p": 2,
        "d": None,
        "seconds": 1.0,
        "note": "a",
    }
    slow = {**row, "seconds": 1.5, "note": "b"}
    assert (
        history.keep([row, {**row, "case": "skipped", "seconds": None}], output) == []
    )
    assert history.keep([{**row, "seconds": 1.1}], output) == []
    assert history.keep([{**slow, "m": 10}], output) == []  # another problem
    (sentence,) = history.keep([slow], output)
    assert (
        sentence
        == "slower: table speed, case engine, m 9, p 2: 1.5 s, 1.43 times the 1.05 s before"
    )
    monkeypatch.setattr(history, "_processor", lambda: "another")
    assert history.keep([{**slow, "seconds": 9.0}], output) == []
    kept = pq.read_table(output.with_name("history.parquet")).to_pylist()
    assert [one["seconds"] for one in kept] == [1.0, 1.1, 1.5, 1.5, 9.0]
    assert pq.read_table(output).to_pylist()[0]["note"] == "b"


def test_a_journal_of_the_board_goes_on_after_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "journal.jsonl"
    assert list(measured(path)) == []
    told = Measurement(
        "small", "t", "regression", True, 9, 0, "x", 1.0, np.nan, np.nan, 1.0, 1, 1, 1
    )
    line = json.dumps(asdict(told))
    path.write_text(f"{line}\n{line[:-20]}")
    assert [one.contestant for one in measured(path)] == ["x"]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Namespace:
    """Options of a board of one method on one split, which threads measure."""
    line = np.arange(40.0)
    table = Table("line", "regression", True, lambda: (line[:, None], line))
    methods = {"mean": Contestant(lambda task, d, seed: DummyRegressor())}
    section = Section(lambda: [table], methods, "mean", drawings=1)
    monkeypatch.setitem(SECTIONS, "tiny", section)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    threads = ThreadPoolExecutor(1)
    monkeypatch.setattr(
        board_command, "ProcessPoolExecutor", lambda jobs, initializer: threads
    )
    selected = dict.fromkeys(("contestants", "drawings", "tables", "sizes"))
    return Namespace(**selected, sections=["tiny"], apart=False, jobs=1, minutes=1.0)


def test_the_board_measures_other_versions_again(tmp_path: Path, tiny: Namespace):
    path = tmp_path / "journal.jsonl"
    board_command._run_jobs(path, board_command._missing_jobs(path, tiny), tiny)
    (row,) = measured(path)
    assert row.version == version("scikit-learn")
    assert board_command._missing_jobs(path, tiny) == []
    path.write_text(json.dumps(asdict(row) | {"version": "0.1"}))
    (job,) = board_command._missing_jobs(path, tiny)
    assert job.methods == ["mean"]


def test_the_board_counts_splits_for_which_there_was_no_time(
    tmp_path: Path, tiny: Namespace, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "journal.jsonl"
    tiny.minutes = -1.0
    board_command._run_jobs(path, board_command._missing_jobs(path, tiny), tiny)
    assert list(measured(path)) == []
    assert "1 of 1 splits lack methods" in capsys.readouterr().out


def test_a_journal_of_injected_faults_goes_on_after_a_line_that_was_cut_off(tmp_path):
    journal = Journal(tmp_path / "lane" / "journal.jsonl")
    first = Attempt("kills", 0, 7, case="compare", outcomes={"as if never killed": 1})
    second = Attempt(
        "data files",
        3,
        7,
        tries=250,
        failures=[Failure("traceback", "x.csv", "ValueError: no")],
    )
    journal.add(first)
    journal.add(second)
    with journal.path.open("a") as file:
        file.write('{"kind": "kills", "num')
    assert attempts_in(tmp_path) == [first, second]
    text = report([first, second], tmp_path)
    assert "| kills | 1 | 0 | as if never killed: 1 |" in text
    assert "| data files | 250 | 1 | **traceback: 1** |" in text
    assert (
        f"`python -m dev.tools.chaos --resume {tmp_path} --seed 7 --again 'data files:3'`: ValueError: no"
        in text
    )


def test_each_kind_of_fault_has_its_function():
    assert all(callable(kind.function()) for kind in KINDS)


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scikit-learn's trees start a process that counts cores, which unit tests must not, unless this is set."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def read_or_skip(table: Table) -> tuple[pd.DataFrame, np.ndarray]:
    try:
        return table.read()
    except SystemExit as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_unchanged_tables_have_targets_dates_and_the_rows_of_their_sizes(name: str):
    source = SOURCES[name]
    X, y = read_or_skip(Table(name, source.task, False, partial(source.read, raw=True)))
    assert len(X) == len(y) >= 140
    assert len(np.unique(y)) > 1
    assert np.isfinite(y).all()
    assert not set(source.without) & set(X)
    assert {column for column in X if is_datetime64_any_dtype(X[column])} == set(
        source.dates
    ) - set(source.without)
    assert (len(y) >= FEWEST) == (name in LARGE_NAMES)


ORIGINS = {"crx": "australian", "flare": "flare-F"}
"""Names of one origin in two sections."""


def test_data_sets_are_held_out_in_all_sections_or_in_none():
    try:
        tables = [table for section in SECTIONS.values() for table in section.tables()]
    except SystemExit as missing:
        pytest.skip(str(missing))
    halves: dict[str, set[bool]] = {}
    for table in tables:
        halves.setdefault(ORIGINS.get(table.name, table.name), set()).add(table.apart)
        if table.name.startswith(("river", "synthetic")):
            assert not table.apart
    assert [name for name, apart in halves.items() if len(apart) > 1] == []


def test_every_held_out_table_is_in_the_section_of_unchanged_tables():
    try:
        names = {table.name for table in raw_tables()}
    except SystemExit as missing:
        pytest.skip(str(missing))
    assert len(names) >= 30
    assert names > HELD_OUT


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_synthetic_tables_are_the_same_each_time(name: str):
    X, y = generate(name, 400)
    again, same = generate(name, 400)
    pd.testing.assert_frame_equal(X, again)
    np.testing.assert_array_equal(y, same)
    assert len(X) == len(y) >= 390
    assert len(np.unique(y)) > 1


@pytest.mark.usefixtures("one_thread")
def test_methods_for_unchanged_tables_take_dates_gaps_and_new_levels():
    X, y = generate("synthetic_reports", 300)
    X.loc[5, "reported"] = pd.NaT
    training, test = X.iloc[:200], X.iloc[200:].assign(district="elsewhere")
    numeric = dates_as_numbers(X)
    assert numeric["reported"].isna().sum() == 1
    assert numeric["reported"][0] == pytest.approx(
        X["reported"][0].timestamp() / 86_400, abs=1e-4
    )
    for name, contestant in RAW_CONTESTANTS.items():
        if contestant.reason_to_skip("classification", *training.shape) is None:
            predicted = (
                contestant.make("classification", X.shape[1], 0)
                .fit(training, y[:200])
                .predict(test)
            )
            assert set(np.ravel(predicted)) <= {0, 1}, name


def test_xrfm_gets_standardized_targets_and_predicts_in_their_units(
    monkeypatch: pytest.MonkeyPatch,
):
    received = []

    def fit(model: XRFM, X: np.ndarray, y: np.ndarray) -> XRFM:
        received.append(y)
        return model

    monkeypatch.setattr(XRFM, "fit", fit)
    monkeypatch.setattr(XRFM, "predict", lambda model, X: np.zeros(len(X)))
    X = np.arange(6.0)[:, None]
    y = 1e6 + 100 * np.arange(6.0)
    fitted = CONTESTANTS["xRFM"].make("regression", 1, 0).fit(X, y)
    assert (received[0].mean(), received[0].std()) == pytest.approx((0, 1))
    assert fitted.predict(X) == pytest.approx(np.full(6, y.mean()))
    labels = np.array([0, 1, 1, 0, 1, 0])
    CONTESTANTS["xRFM"].make("classification", 1, 0).fit(X, labels)
    assert received[1] is labels


class RecordingTrees(SimpleNamespace):
    def set_params(self, **params: object) -> "RecordingTrees":
        return self

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> "RecordingTrees":
        self.types = X.dtypes
        return self


@pytest.mark.parametrize(
    ("name", "function", "is_limited"),
    [("HistGradientBoosting", "boosting", True), ("LightGBM", "lightgbm", False)],
)
def test_only_trees_of_scikit_learn_get_codes_of_many_levels(
    name: str, function: str, is_limited: bool, monkeypatch: pytest.MonkeyPatch
):
    trees = RecordingTrees()
    monkeypatch.setattr(contestants, function, lambda task, d, seed: trees)
    X = pd.DataFrame({"few": ["a", "b"] * 150, "many": [f"n{i}" for i in range(300)]})
    X = X.astype(object)
    RAW_CONTESTANTS[name].make("regression", 2, 0).fit(X, np.arange(300.0))
    few, many = (isinstance(t, pd.CategoricalDtype) for t in trees.types)
    assert few
    assert many != is_limited


def test_a_method_for_few_rows_is_skipped_on_many():
    limited = Contestant(tuned_rbf, most_rows=500)
    assert limited.reason_to_skip("regression", 500, 3) is None
    assert (
        limited.reason_to_skip("regression", 501, 3)
        == "takes minutes with more than 500 rows"
    )


@pytest.mark.usefixtures("one_thread")
def test_intervals_are_measured_in_all_rows_and_in_the_hardest_fifth():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(2000, 1))
    is_hard = X[:, 0] > 0.8
    y = rng.normal(0, np.where(is_hard, 5.0, 1.0))
    model = SimpleNamespace(predict=lambda X: np.zeros(len(X)))
    model.predict_interval = lambda X, alpha: np.tile([-2.0, 2.0], (len(X), 1))
    values = metrics(model, "regression", Drawing(X, y, X, y, 2.0))
    is_covered = np.abs(y) <= 2
    assert values["coverage"] == is_covered.mean()
    hardest = np.argsort(expected_errors(X, y))[-400:]
    assert is_hard[hardest].mean() > 0.9  # 20 % of the rows are hard
    assert values["hard_coverage"] == pytest.approx(
        is_covered[is_hard].mean(), abs=0.05
    )
    penalties = [10 * max(abs(value) - 2, 0) for value in y]  # 2 / alpha, alpha 0.2
    assert values["interval_score"] == pytest.approx(
        np.mean([4 + penalty for penalty in penalties]) / 2
    )
    assert values["predict_seconds"] >= 0


def test_the_calibration_error_is_the_gap_between_confidence_and_accuracy():
    y = np.array([0] * 8 + [1] * 2)
    assert expected_calibration_error(np.tile([0.8, 0.2], (10, 1)), y) == pytest.approx(
        0
    )
    assert expected_calibration_error(np.tile([1.0, 0.0], (10, 1)), y) == pytest.approx(
        0.2
    )
    two_bins = np.array([[0.9, 0.1]] * 5 + [[0.6, 0.4]] * 5)  # accuracies 1 and 0.6
    assert expected_calibration_error(two_bins, y) == pytest.approx(0.05)


def test_old_lines_of_a_journal_stay_readable(tmp_path):
    path = tmp_path / "journal.jsonl"
    new = Measurement(
        "small",
        "t",
        "regression",
        True,
        9,
        0,
        "x",
        1.0,
        np.nan,
        np.nan,
        1.0,
        1,
        1,
        1,
        coverage=0.8,
    )
    columns_of_today = asdict(new)
    old = {name: columns_of_today[name] for name in list(columns_of_today)[:14]}
    path.write_text(json.dumps(old) + "\n" + json.dumps(columns_of_today) + "\n")
    first, second = measured(path)
    assert np.isnan(first.coverage)
    assert second.coverage == 0.8


def test_win_rates_and_improvability_are_means_over_data_sets():
    errors = pd.DataFrame({"a": [0.1, 0.4], "b": [0.2, 0.4], "c": [0.4, 0.2]})
    # a beats b and c on the first data set; on the second it ties with b and loses to
    # c.
    assert win_rates(errors).to_dict() == pytest.approx(
        {"a": (1 + 0.25) / 2, "b": (0.5 + 0.25) / 2, "c": (0 + 1) / 2}
    )
    expected = {"a": (0 + 50) / 2, "b": (50 + 50) / 2, "c": (75 + 0) / 2}
    assert improvability(errors).to_dict() == pytest.approx(expected)
    assert win_rates(errors[["a"]]).isna().all()


def test_the_page_summarizes_the_data_sets_of_tabarena_in_a_line():
    rows = [
        Measurement(
            "small",
            table,
            "regression",
            True,
            500,
            0,
            name,
            error,
            np.nan,
            np.nan,
            1.0,
            500,
            100,
            7,
        )
        for table in ("airfoil", "other")
        for name, error in ((OURS, 0.1), (TUNED, 0.2))
    ]
    page = Board.from_measurements(rows, SECTIONS["small"]).page()
    assert (
        "Data sets of TabArena (airfoil): our error is 0.500 of tuned RBF (geometric means)."
        in page
    )
    assert "| airfoil (TabArena) | 0.1000 | 0.2000 |" in page
    assert "| other | 0.1000 | 0.2000 |" in page
