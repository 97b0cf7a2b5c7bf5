"""Texts: counts of n-grams, on which a slow counter agrees, and columns of free text in data sets."""

import re
from collections import Counter
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from learnkernels.conf.errors import InputError
from learnkernels.conf.loading import config_of_text
from learnkernels.conf.schema import NgramsConfig
from learnkernels.tasks.data.dataset import (
    Dataset,
    dataset_digest,
    load_dataset,
    store_dataset,
)
from learnkernels.tasks.data.infer_config import infer_config
from learnkernels.tasks.data.readers import count_ngrams, select_ngrams
from tests.refusals import require_refusals
from tests.sources import load as load_from
from tests.sources import read, require_equal

TEXTS = [
    "The cat, the DOG and a cat",
    None,
    "dog and cat and dog",
    "Über-cat: the cat",
    "",
    "the the the",
]
TITLES = ["Cat and", "and dog", None, "x", "the", "dog"]


def ngrams(**keys: object) -> NgramsConfig:
    return NgramsConfig.model_validate(keys)


def counted(found: tuple[sparse.csr_matrix, tuple[str, ...]]) -> list[Counter[str]]:
    """Each row as a counter of what is not zero."""
    counts, names = found
    assert sparse.issparse(counts)
    assert (counts.format, counts.dtype, counts.has_sorted_indices) == (
        "csr",
        np.float64,
        True,
    )
    assert len(set(names)) == len(names) == counts.shape[1]
    return [
        Counter({name: n for name, n in zip(names, row, strict=True) if n})
        for row in counts.toarray()
    ]


def slowly(texts: list[str | None], sizes: tuple[int, int]) -> Counter[str]:
    """The n-grams of some texts; none reaches from one to the next."""
    found: Counter[str] = Counter()
    for text in texts:
        words = re.findall(r"\w\w+", (text or "").lower())
        for n in range(sizes[0], sizes[1] + 1):
            found.update(" ".join(words[i : i + n]) for i in range(len(words) - n + 1))
    return found


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_texts_are_counted_as_by_a_slow_counter(kind: pa.DataType):
    table = pa.table(
        {"text": pa.array(TEXTS).cast(kind), "title": pa.array(TITLES).cast(kind)}
    )
    for columns, sizes in product(
        (["text"], ["title", "text"]), ((1, 1), (1, 2), (2, 3))
    ):
        found = count_ngrams(table, ngrams(column=columns, size=sizes), "here")
        rows = zip(*(table[name].to_pylist() for name in columns), strict=True)
        assert counted(found) == [slowly(list(row), sizes) for row in rows]
        assert list(found[1]) == sorted(found[1])


words = st.lists(st.sampled_from(["a", "b", "ab", "ö"]), min_size=1, max_size=3).map(
    "_".join
)
rows = st.lists(
    st.lists(st.tuples(words, st.integers(0, 3)), max_size=6) | st.none(),
    min_size=1,
    max_size=6,
)


@settings(max_examples=40)
@given(
    rows=rows,
    size=st.sampled_from([(1, 1), (2, 2), (1, 2), (2, 3)]),
    with_counts=st.booleans(),
)
def test_tokens_are_counted_as_by_a_slow_counter(
    rows: list, size: tuple[int, int], with_counts: bool
):
    expected = []
    for row in rows:
        found: Counter[str] = Counter()
        for token, n in row or []:
            if size[0] <= len(token.split("_")) <= size[1]:
                found[token] += n if with_counts else 1
        expected.append(+found)
    tokens = pa.array(
        [row and [token for token, _ in row] for row in rows], pa.list_(pa.string())
    )
    counts = pa.array(
        [row and [n for _, n in row] for row in rows], pa.list_(pa.int16())
    )
    table = pa.table({"tokens": tokens, "counts": counts})
    config = ngrams(
        column="tokens", size=size, counts="counts" if with_counts else None
    )
    if not any(
        len(token.split("_")) in range(size[0], size[1] + 1)
        for row in rows
        for token, _ in row or []
    ):
        with pytest.raises(
            InputError, match=f"here: column tokens holds no n-gram of {size[0]} "
        ):
            count_ngrams(table, config, "here")
        return
    found = count_ngrams(table, config, "here")
    assert counted(found) == expected
    pieces = pa.concat_tables([table[:1], table[1:]])
    assert counted(count_ngrams(pieces, config, "here")) == expected


def test_underscores_at_the_ends_of_a_token_join_nothing():
    table = pa.table({"tokens": [["_a", "b_", "a__b", "_", "a_b", None]]})
    assert counted(count_ngrams(table, ngrams(column="tokens", size=2), "here")) == [
        Counter({"a__b": 1, "a_b": 1})
    ]
    assert counted(count_ngrams(table, ngrams(column="tokens"), "here")) == [
        Counter({"_a": 1, "b_": 1})
    ]


@settings(max_examples=50)
@given(
    st.lists(
        st.lists(st.integers(0, 2), min_size=6, max_size=6), min_size=1, max_size=5
    ),
    st.integers(0, 7),
)
def test_the_most_frequent_come_first_and_of_equals_the_first_text(
    counts: list, most: int | None
):
    names, most = ("a", "b", "ba", "c", "d", "z"), most or None
    config = ngrams(column="text", most_frequent=most)
    chosen, order = select_ngrams(
        sparse.csr_matrix(np.array(counts, dtype=float)), names, config
    )
    totals = dict(zip(names, np.sum(counts, axis=0), strict=True))
    expected = sorted(
        (name for name in names if totals[name]), key=lambda name: (-totals[name], name)
    )[:most]
    assert list(order) == expected
    np.testing.assert_array_equal(
        chosen.toarray(), np.array(counts)[:, [names.index(name) for name in expected]]
    )


def test_the_constant_feature_is_one_and_has_a_name_of_its_own():
    counts = sparse.csr_matrix([[1.0, 0.0], [0.0, 2.0]])
    chosen, names = select_ngrams(
        counts, ("a b", "c d"), ngrams(column="text", constant=True)
    )
    assert names == ("c d", "a b", "constant")
    np.testing.assert_array_equal(chosen.toarray(), [[0, 1, 1], [2, 0, 1]])
    assert chosen.format == "csr"
    assert (
        select_ngrams(counts, ("a", "constant"), ngrams(column="text", constant=True))[
            1
        ][-1]
        == "constant_"
    )


# In a data set --------------------------------------------------------------------------------------------------------


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    pairs = [f"{a}_{b}" for a, b in product("abcdefgh", repeat=2)]
    tokens = [sorted(rng.choice(pairs, 6, replace=False)) for _ in range(80)]
    frame = pd.DataFrame(
        {"tokens": tokens, "counts": rng.integers(1, 4, (80, 6)).tolist()}
    )
    title = [f"{row[0]} {row[1]}" for row in tokens]
    return frame.assign(
        part=["x", "y"] * 40, stars=[1, 2, 4, 5] * 19 + [None] * 4, title=title
    )


def load(
    frame: pd.DataFrame, folder: Path, most: int | None = 20, **keys: object
) -> Dataset:
    ngrams = {"column": "tokens", "counts": "counts", "size": 2, "most_frequent": most}
    given = {
        "target": "stars",
        "task": "regression",
        "missing": "drop",
        "ngrams": ngrams,
    }
    return read(folder, frame, **(given | keys))


def test_ngrams_are_the_only_features_and_are_chosen_over_the_rows_that_are_kept(
    frame: pd.DataFrame, tmp_path: Path
):
    kept = frame[(frame["part"] == "y") & frame["stars"].notna()]
    counters = [
        Counter(dict(zip(*row, strict=True)))
        for row in zip(kept["tokens"], kept["counts"], strict=True)
    ]
    totals = sum(counters, Counter())
    expected = sorted(totals, key=lambda token: (-totals[token], token))[:20]
    dataset = load(frame, tmp_path, where={"part": "y"})
    assert dataset.features == tuple(expected)
    np.testing.assert_array_equal(
        dataset.X.toarray(), [[row[token] for token in expected] for row in counters]
    )
    np.testing.assert_array_equal(dataset.target.values, kept["stars"])
    few = load(frame, tmp_path, where={"part": "y"}, subsample=15)
    assert (few.features, few.X.shape) == (dataset.features, (15, 20))
    scaled = load(frame, tmp_path, scale="unit")
    back = load_dataset(store_dataset(scaled, "data", "somewhere"))
    assert back.features == scaled.features
    np.testing.assert_array_equal(back.X.toarray(), scaled.X.toarray())
    assert back.X.max() == 1


def test_equal_rows_have_equal_counts_of_all_ngrams(
    frame: pd.DataFrame, tmp_path: Path
):
    turned = frame.assign(
        tokens=frame["tokens"].str[::-1], counts=frame["counts"].str[::-1]
    )
    both = pd.concat([frame, turned], ignore_index=True)
    once, twice, distinct = (
        load(frame, tmp_path, 3),
        load(both, tmp_path, 3),
        load(both, tmp_path, 3, distinct=True),
    )
    assert twice.X.shape[0] == 2 * once.X.shape[0]
    np.testing.assert_array_equal(distinct.X.toarray(), once.X.toarray())
    assert distinct.features == once.features


NO_NGRAMS = [
    (
        {"column": "part", "counts": "counts"},
        "'counts' of .* goes with a column of lists .*, and 'part' is text",
    ),
    (
        {"column": "counts"},
        "column 'counts' of 'ngrams' holds lists of int64, not of text",
    ),
    (
        {"column": ["title", "tokens"]},
        "column 'tokens' of 'ngrams' holds lists of tokens and must be the only one",
    ),
    ({"column": "stars2"}, "ngrams 'stars2' is not a column of data.parquet"),
    (
        {"column": "number"},
        r"column 'number' of 'ngrams' is neither text nor a list of tokens \(int64\)",
    ),
    (
        {"column": "tokens", "counts": "part"},
        "'counts' .*, column 'part', must hold lists of numbers, got ",
    ),
    (
        {"column": "tokens", "counts": "tokens2"},
        "must hold lists of numbers, got list<",
    ),
    (
        {"column": "tokens", "counts": "short"},
        "'tokens' and 'short' must be lists of one length .* row 2 .* 6 and 5",
    ),
    (
        {"column": "tokens", "counts": "negative"},
        "column 'negative' has a count that is missing or negative",
    ),
    (
        {"column": "tokens", "size": 3},
        "column tokens holds no n-gram of 3 words; change 'size'",
    ),
    (
        {"column": "part", "size": [2, 3]},
        "column part holds no n-gram of 2 to 3 words; change 'size'",
    ),
]


def test_columns_that_hold_no_ngrams_get_one_sentence(
    frame: pd.DataFrame, tmp_path: Path
):
    short, negative = frame["counts"].copy(), frame["counts"].copy()
    short[2] = short[2][:5]
    negative[2] = [1, 1, None, 1, 1, -1]
    more = frame.assign(
        number=range(80), tokens2=frame["tokens"], short=short, negative=negative
    )
    refused = (
        (partial(load, more, tmp_path, ngrams=keys), f"^data set data: .*{said}")
        for keys, said in NO_NGRAMS
    )
    require_refusals(refused, error=InputError)


def test_bigrams_of_real_reviews(shared_data: Path):
    ngrams = {"column": "tokens", "counts": "counts", "size": 2, "most_frequent": 4000}
    keys = {"where": {"domain": "kitchen"}, "target": "rating", "task": "regression"}
    dataset = load_from(shared_data, "sentiment.parquet", ngrams=ngrams, **keys)
    assert dataset.X.shape == (2000, 4000)
    assert [(dataset.target.values == stars).sum() for stars in (1, 2, 4, 5)] == [
        687,
        313,
        246,
        754,
    ]
    totals = np.asarray(dataset.X.sum(axis=0)).ravel()
    assert (np.diff(totals) <= 0).all()
    assert all(
        len([word for word in name.split("_") if word]) == 2
        for name in dataset.features
    )


# Columns of free text ------------------------------------------------------------------------------------------------


def comments(m: int = 120) -> pd.DataFrame:
    """Comments of five words, a third of them one placeholder, next to a number and a target."""
    draw = np.random.default_rng(0)
    words = [
        "red",
        "blue",
        "green",
        "small",
        "large",
        "late",
        "early",
        "wet",
        "dry",
        "old",
        "new",
        "fine",
    ]
    texts = [" ".join(draw.permutation(words)[:5]) for _ in range(m)]
    texts[::3] = ["nothing to say here"] * len(texts[::3])
    kinds = np.where(
        [("red" in text) or ("late" in text) for text in texts], "yes", "no"
    )
    return pd.DataFrame(
        {"comment": texts, "size": draw.normal(size=m), "target": kinds}
    )


@pytest.mark.parametrize("scale", ["none", "unit", "standard", "quantile"])
def test_a_data_set_with_texts_is_stored_whole(tmp_path: Path, state: Path, scale: str):
    keys = {"columns": {"comment": "text"}, "scale": scale}
    dataset = read(tmp_path, comments(), **keys)
    back = load_dataset(store_dataset(dataset, "data", "somewhere"))
    require_equal(back, dataset)
    assert back.table == dataset.table
    assert (
        dataset_digest(back)
        == dataset_digest(dataset)
        == dataset_digest(read(tmp_path, comments(), **keys))
    )
    np.testing.assert_array_equal(back.table.encode(comments()), dataset.X)
    assert set(dataset.features.owners) == {"comment", "size"}
    changed = comments()
    changed.loc[1, "comment"] += " indeed"
    assert dataset_digest(read(tmp_path, changed, **keys)) != dataset_digest(dataset)


@pytest.mark.parametrize("scale_on", ["all", "training"])
def test_words_without_features_distinguish_stored_data_sets(
    tmp_path: Path, state: Path, scale_on: str
):
    keys = {"columns": {"comment": "text"}, "scale_on": scale_on}
    changed = comments()
    refs = []
    for word in ("zqvv", "zxvx"):  # leave the order of texts in the encoding
        changed.loc[1, "comment"] = f"red blue green small {word}"
        dataset = read(tmp_path, changed, **keys)
        refs.append(store_dataset(dataset, "data", "somewhere"))
        stored = load_dataset(refs[-1])
        assert stored.raw["comment"][1].as_py() == changed.loc[1, "comment"]
        assert dataset_digest(stored) == refs[-1].digest
    np.testing.assert_array_equal(*[load_dataset(ref).X for ref in refs])


@pytest.mark.parametrize("scale", ["none", "standard"])
def test_each_trial_learns_texts_from_its_training_rows(
    tmp_path: Path, state: Path, scale: str
):
    dataset = read(
        tmp_path,
        comments(),
        columns={"comment": "text"},
        scale=scale,
        scale_on="training",
    )
    training = np.arange(60)
    learned = load_dataset(store_dataset(dataset, "data", "somewhere")).learned_on(
        training
    )
    expected = dataset.table.learned_on(comments().iloc[training], scale)
    assert (learned.table, learned.features) == (expected, dataset.features)
    np.testing.assert_array_equal(learned.X, expected.encode(comments()))
    assert learned.table != dataset.table


def test_rows_are_distinct_if_their_texts_are(tmp_path: Path):
    table = comments(30).assign(size=0.0, target=["yes", "no"] * 15)
    keys = {"columns": {"comment": "text", "size": "drop"}, "distinct": True}
    dataset = read(tmp_path, table, **keys)
    assert dataset.X.shape[0] == len(table.drop_duplicates(["comment", "target"]))


def test_texts_need_the_whole_table(tmp_path: Path):
    said = "'in_parts' does not go with 'columns: text', which needs all rows at once; leave it out"
    keys = {"columns": {"comment": "text"}, "in_parts": True}
    require_refusals(
        [(partial(read, tmp_path, comments(), **keys), said)], error=InputError
    )


def test_an_inferred_configuration_tells_how_free_text_is_kept(tmp_path: Path):
    path = tmp_path / "data.csv"
    comments().assign(
        comment=[f"{text} {row}" for row, text in enumerate(comments()["comment"])]
    ).to_csv(path)
    inferred = infer_config(str(path), "target")
    remark = 'dropped: comment, as it is free text; columns={"comment": "text"} learns from it'
    assert remark in inferred.lines
    assert "comment: drop  # it is free text" in inferred.text
    config = config_of_text(
        inferred.text.replace("comment: drop", "comment: text"), path
    )
    assert config.datasets[0].columns["comment"] == "text"
