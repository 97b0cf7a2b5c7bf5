"""Columns of free text: equal texts have equal features, whatever else the table holds, and files keep them."""

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from learnkernels import KernelLearningClassifier, KernelLearningRegressor, load
from learnkernels.kernels.column_encoding import EncodingReport, TableEncoding, text
from learnkernels.kernels.column_encoding.text import TextColumn
from learnkernels.kernels.hypothesis_tests.drift import NewRows, drift_of
from learnkernels.kernels.model import Model
from tests.refusals import require_refusals
from tests.unit.conftest import peak_of
from tests.unit.kernels.test_serialization import reread

TEXT = {"review": "text"}
PRAISE = ("great", "lovely", "excellent", "superb")
BLAME = ("awful", "poor", "broken", "useless")
OTHER = (
    "the",
    "a",
    "film",
    "plot",
    "actor",
    "scene",
    "music",
    "end",
    "time",
    "people",
    "story",
    "camera",
)
M = 300


def reviews(m: int = M, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Reviews of eight words, two of which praise or blame, next to a number without influence."""
    draw = np.random.default_rng(seed)
    is_good = draw.random(m) < 0.5
    texts = []
    for good in is_good:
        words = [*draw.choice(OTHER, 6), *draw.choice(PRAISE if good else BLAME, 2)]
        texts.append(" ".join(draw.permutation(words)))
    return pd.DataFrame({"review": texts, "size": draw.normal(size=m)}), np.where(
        is_good, "good", "bad"
    )


def frame_of(texts: list[Any]) -> pd.DataFrame:
    return pd.DataFrame({"review": pd.Series(texts, dtype=object)})


def encoding_of(texts: list[Any], scale: Any = "standard") -> TableEncoding:
    return TableEncoding.of(frame_of(texts), TEXT, scale)


def encoded(encoding: TableEncoding, texts: list[Any]) -> np.ndarray:
    return encoding.encode(frame_of(texts))


# Features ------------------------------------------------------------------------------------------------------------


def test_equal_texts_have_equal_features_in_any_order_and_any_company():
    texts = reviews()[0]["review"].tolist()
    encoding = encoding_of(texts)
    X = encoded(encoding, texts)
    order = np.random.default_rng(1).permutation(M)
    shuffled = [texts[row] for row in order]
    assert encoding_of(shuffled) == encoding
    np.testing.assert_array_equal(encoded(encoding, shuffled), X[order])
    np.testing.assert_array_equal(
        np.vstack([encoded(encoding, [one]) for one in texts[:5]]), X[:5]
    )
    np.testing.assert_array_equal(encoded(encoding, [texts[3]] * 3), X[[3, 3, 3]])
    # The order of words does not count
    bags = {" ".join(sorted(one.split())) for one in texts}
    assert len(np.unique(X, axis=0)) == len(bags)


def test_blocks_do_not_change_features(monkeypatch: pytest.MonkeyPatch):
    texts = [*reviews()[0]["review"], None]
    encoding = encoding_of(texts)
    X = encoded(encoding, texts)
    monkeypatch.setattr(text, "BLOCK", 7)
    assert encoding_of(texts) == encoding
    np.testing.assert_array_equal(encoded(encoding, texts), X)


def test_distances_are_those_of_weighted_words_if_no_direction_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
):
    """With as many directions as texts, the decomposition only rotates the frequencies, which numpy computes here."""
    texts = ["red wine red", "white wine", "red beer", "white beer white beer", "wine"]
    monkeypatch.setattr(text, "RUNS", ())
    monkeypatch.setattr(text, "LEAST_TEXTS", 1)
    monkeypatch.setattr(text, "LEAST_TOPICS", len(texts))
    text._ngrams_of_word.cache_clear()
    try:
        X = encoded(encoding_of(texts, "none"), texts)
    finally:
        text._ngrams_of_word.cache_clear()
    words = sorted({word for one in texts for word in one.split()})
    counts = np.array([[one.split().count(word) for word in words] for one in texts])
    rarity = 1 + np.log((1 + len(texts)) / (1 + (counts > 0).sum(axis=0)))
    expected = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0) * rarity
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    # Directions are stored as float32.
    np.testing.assert_allclose(
        X @ X.T, _centered(expected) @ _centered(expected).T, atol=1e-6
    )


def _centered(X: np.ndarray) -> np.ndarray:
    return np.asarray(X - X.mean(axis=0))


def test_texts_with_shared_words_are_nearer_than_others():
    texts = reviews()[0]["review"].tolist()
    encoding = encoding_of(texts)
    praise, blame, praise_misspelled = encoded(
        encoding, ["great superb", "awful useless", "Great, superbb!"]
    )
    assert np.linalg.norm(praise - praise_misspelled) < 0.8 * np.linalg.norm(
        praise - blame
    )


@pytest.mark.parametrize("scale", ["standard", "quantile"])
def test_the_variance_of_a_text_is_between_that_of_one_number_and_of_one_per_feature(
    scale: str,
):
    X = encoded(
        encoding_of(reviews()[0]["review"].tolist(), scale),
        reviews()[0]["review"].tolist(),
    )
    # Directions are stored as float32
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-5)
    assert 1 < X.var(axis=0).sum() < X.shape[1]
    # The singular values descend; the first is before centering
    assert np.all(np.diff(X.var(axis=0)[1:]) < 0.02)


def test_repeated_texts_count_as_often_as_they_occur():
    texts = reviews(60)[0]["review"].tolist()
    once, repeated = encoding_of(texts, "none"), encoding_of([*texts, *texts], "none")
    np.testing.assert_allclose(encoded(once, texts) @ encoded(once, texts).T,
                               encoded(repeated, texts) @ encoded(repeated, texts).T, atol=0.02)  # fmt: skip
    placeholder = encoding_of([*texts, *["no comment was given"] * 600], "none")
    # Near the mean, as nearly all rows are
    assert np.abs(encoded(placeholder, ["no comment was given"])).max() < 0.2


def test_missing_unknown_and_constant_texts():
    texts: list[Any] = reviews()[0]["review"].tolist()
    texts[3] = None
    texts[5] = ""
    texts[7] = "  "
    encoding = encoding_of(texts)
    (column,) = encoding.columns
    report = EncodingReport()
    X = encoding.encode(pd.DataFrame({"review": texts}), report)
    assert report.gaps == {"review": 3}
    assert encoding.features[-1] == "review missing"
    assert set(encoding.features.owners) == {"review"}
    np.testing.assert_array_equal(np.flatnonzero(X[:, -1]), [3, 5, 7])
    assert not X[[3, 5, 7], :-1].any()
    trees, is_level = encoding.for_trees(X)
    assert (trees.shape, is_level.any()) == ((M, X.shape[1] - 1), False)
    np.testing.assert_array_equal(
        np.flatnonzero(np.isnan(trees).all(axis=1)), [3, 5, 7]
    )
    unknown = encoded(encoding, ["zzzz", "日本語", "qqq qq"])
    np.testing.assert_array_equal(unknown[0], unknown[1])
    np.testing.assert_array_equal(unknown[0], unknown[2])
    assert np.isfinite(unknown).all()
    assert not encoded(encoding, [None, None])[:, :-1].any()
    constant = encoding_of(["always the same"] * 30)
    assert not encoded(constant, ["always the same", "other words"]).any()
    learned = encoding.learned_on(
        pd.DataFrame({"review": pd.Series([None, None], dtype=object)}), "standard"
    )
    assert learned.features == encoding.features
    assert not encoded(learned, texts)[:, :-1].any()
    assert isinstance(column, TextColumn)
    assert column.describe() == f"text of {X.shape[1] - 1} topics"


def test_features_are_learned_again_from_other_rows_with_the_same_names():
    table, _ = reviews()
    texts = table["review"].tolist()
    encoding = encoding_of(texts)
    learned = encoding.learned_on(pd.DataFrame({"review": texts[:40]}), "standard")
    assert learned.features == encoding.features
    assert learned == encoding.learned_on(
        pd.DataFrame({"review": texts[:40][::-1]}), "standard"
    )
    assert learned != encoding
    fewer = encoding.learned_on(pd.DataFrame({"review": texts[:3]}), "standard")
    X = encoded(fewer, texts)
    assert np.isfinite(X).all()
    assert not X[:, 3:].any()  # three texts have three directions


HOSTILE = [
    "\x00 NUL \x00",
    "\ud800 half of a surrogate pair",
    "👍🏽 👎 🇩🇪",
    "!!!",
    "x" * 1_000_000,
    "word " * 200_000,
    "‮ right to left",
    "日本語のテキスト",
    "a\u0301 İ ß ﬁ",
    "<script>alert(1)</script>",
    "=1+1",
    "-",
]


@pytest.mark.parametrize("scale", ["none", "standard"])
def test_hostile_texts_have_finite_features(scale: str):
    texts = [*HOSTILE, *(f"{one} again" for one in HOSTILE)]
    encoding = encoding_of(texts, scale)
    X = encoded(encoding, texts)
    assert np.isfinite(X).all()
    np.testing.assert_array_equal(encoded(reread(encoding), texts), X)
    for one in HOSTILE:
        pair = [one, "zebra"]
        assert len(np.unique(encoded(encoding_of(pair, scale), pair), axis=0)) == 2
    long = "x" * 1_000_000
    np.testing.assert_array_equal(
        encoded(encoding, [long]), encoded(encoding, [long[: text.MOST_CHARACTERS]])
    )


def test_ten_thousand_texts_that_all_differ():
    table, _ = reviews(10_000)
    texts = [f"{one} {row}" for row, one in enumerate(table["review"])]
    encoding = encoding_of(texts)
    assert len(encoding.features) == text.MOST_TOPICS
    assert np.isfinite(encoded(encoding, texts[:100])).all()
    assert encoding == encoding_of(texts[::-1])


@pytest.mark.slow(20)
def test_memory_is_bounded_by_blocks_of_texts(monkeypatch: pytest.MonkeyPatch):
    """Apart from the features, four times as many texts take little more memory to learn from and to encode."""
    monkeypatch.setattr(text, "MOST_LEARNED", 100)
    monkeypatch.setattr(text, "BLOCK", 50)
    draw = np.random.default_rng(0)
    vocabulary = [f"{word}{number}" for word in OTHER for number in range(100)]
    texts = np.array(
        [" ".join(draw.choice(vocabulary, 30)) for _ in range(800)], dtype=object
    )
    encoding = encoding_of(texts.tolist())
    columns = {
        name: pd.DataFrame({"review": texts[:rows]})
        for name, rows in {"few": 200, "many": 800}.items()
    }
    few, many = (peak_of(encoding.encode, columns[name]) for name in ("few", "many"))
    own = 600 * (8 * len(encoding.features) + 200)  # features, and the arrays of texts
    assert many - few < own + 2**19  # their n-grams would take 3 MB
    learn = partial(encoding.learned_on, scale="standard")
    few, many = (peak_of(learn, columns[name]) for name in ("few", "many"))
    assert many - few < 600 * 1000 + 2**19  # counters of the texts


# Estimators ----------------------------------------------------------------------------------------------------------


def test_a_classifier_learns_from_the_words_and_a_file_keeps_it(tmp_path: Path):
    table, y = reviews()
    table.loc[4, "review"] = None
    train, test = table.iloc[:200], table.iloc[200:]
    model = KernelLearningClassifier(columns=TEXT).fit(train, y[:200])
    assert model.score(test, y[200:]) > 0.95
    assert max(model.relevance_, key=lambda name: model.relevance_[name]) == "review"
    assert set(model.relevance_) == {"review", "size"}
    again = KernelLearningClassifier(columns=TEXT).fit(train, y[:200])
    np.testing.assert_array_equal(again.predict_proba(test), model.predict_proba(test))
    model.save(tmp_path / "model.safetensors")
    again.save(tmp_path / "again.safetensors")
    assert (tmp_path / "model.safetensors").read_bytes() == (
        tmp_path / "again.safetensors"
    ).read_bytes()
    back = load(tmp_path / "model.safetensors")
    assert back.table_ == model.table_
    np.testing.assert_array_equal(back.predict_proba(test), model.predict_proba(test))
    np.testing.assert_array_equal(
        back.predict_proba(pl.DataFrame(test)), model.predict_proba(test)
    )
    content = (tmp_path / "model.safetensors").read_bytes()
    # n-grams are hashed
    assert not any(word.encode() in content for word in (*PRAISE, *BLAME))


def test_boosted_trees_get_the_features_of_texts(tmp_path: Path):
    table, y = reviews()
    table.loc[4, "review"] = None
    trees = HistGradientBoostingClassifier(max_iter=20, random_state=0)
    model = KernelLearningClassifier(columns=TEXT, boost=trees).fit(table, y)
    assert model.score(table, y) > 0.95
    model.save(tmp_path / "model.safetensors")
    back = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(back.predict_proba(table), model.predict_proba(table))


def test_a_regression_on_text_alone_needs_no_other_column():
    table, y = reviews()
    model = KernelLearningRegressor(columns=TEXT).fit(
        table[["review"]], (y == "good") * 2.0
    )
    assert model.score(table[["review"]], (y == "good") * 2.0) > 0.8


def test_new_words_are_drift_and_the_same_words_are_not():
    table, y = reviews(400)
    train = table.iloc[:200]
    estimator = KernelLearningClassifier(columns=TEXT).fit(train, y[:200])
    X = estimator.table_.encode(train)
    model = Model.of_table(estimator, {}).with_reference(
        X, X.min(axis=0), X.max(axis=0), 0
    )
    p_values = []
    for new in (
        table.iloc[200:],
        table.iloc[200:].assign(review="great plot and a superb scene at the end"),
    ):
        features = model.encoded(model.raw_rows(new))
        rows = NewRows.of(
            features, model.scores_in(model.columns_of(features)), model.reference, [0]
        )
        drift = drift_of(
            estimator.kernel_, model.feature_columns, model.reference, rows
        )
        assert set(drift.p_columns) == {"review", "size"}
        p_values.append(drift.p_columns["review"])
    assert p_values[0] > 0.05 > 1e-6 > p_values[1]


# Messages ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["review", 'say "it"', "Größe"])
def test_the_line_about_dropped_free_text_gives_the_setting_that_keeps_it(name: str):
    table, y = reviews()
    table = table.rename(columns={"review": name})
    with pytest.warns(
        UserWarning, match="is left out, as it is free text; set columns="
    ) as caught:
        KernelLearningClassifier().fit(table, y)
    (message,) = [str(warning.message) for warning in caught]
    setting = message.partition("; set ")[2].partition(" to learn from it")[0]
    columns = eval(setting.removeprefix("columns="))
    assert columns == {name: "text"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = KernelLearningClassifier(columns=columns).fit(table, y)
    assert set(model.relevance_) == {name, "size"}


def test_texts_that_cannot_be_read_are_refused_in_one_sentence():
    table, _ = reviews(30)
    encoding = TableEncoding.of(table, TEXT)
    column = encoding.columns[0]
    parameters = {
        name: getattr(column, name)
        for name in ("name", "gaps", "ngrams", "weights", "directions", "center")
    }
    lists = table.assign(review=[["a", "list"]] * len(table))
    cases = [
        (
            partial(encoding.encode, lists),
            "column 'review' must hold texts, .* got lists, records or bytes; convert it",
        ),
        (
            partial(TextColumn, **{**parameters, "ngrams": column.ngrams - 2**20}),
            "ngrams of column 'review' must be integers from 0",
        ),
        (
            partial(TextColumn, **{**parameters, "ngrams": column.ngrams + 0.5}),
            "ngrams of column 'review' must be integers from 0",
        ),
        (
            partial(TextColumn, **{**parameters, "weights": column.weights[1:]}),
            "weights of column 'review' must have shape",
        ),
        (
            partial(TextColumn, **{**parameters, "center": column.center[None]}),
            "center of column 'review' must have shape",
        ),
        (
            partial(TextColumn, **{**parameters, "center": column.center * np.nan}),
            "center of column 'review' must be finite",
        ),
    ]
    require_refusals(cases)
