"""What is known of a table from its blocks is what all of it tells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from learnkernels.kernels.tables import TableEncoding, summary
from learnkernels.kernels.tables.known import KNOTS
from learnkernels.kernels.tables.summary import Different, NumberSummary, Sums, TableSummary, Within, answers_of
from tests.refusals import refusal

RNG = np.random.default_rng(0)

NUMBERS = {
    "sorted": np.sort(RNG.normal(size=20_001)),
    "even": RNG.normal(size=20_000),
    "ties": RNG.integers(0, 500, 20_000) * 1.0,
    "two halves": np.repeat([0.0, 1.0], 10_000) + np.r_[np.zeros(10_000), np.linspace(0, 1, 10_000)],
    "mostly one": np.where(RNG.random(20_000) < 0.7, 3.0, RNG.normal(size=20_000)),
    "heavy tails": RNG.standard_cauchy(20_000),
    "gaps": np.where(RNG.random(20_000) < 0.6, np.nan, RNG.exponential(size=20_000)),
    "few": np.array([2.0, np.nan, 1.0]),
}


def known(blocks: Iterable[np.ndarray]) -> NumberSummary:
    """Return what is known of numbers from their blocks."""
    return reduce(add, map(NumberSummary.of, blocks))


def looked_up(found: NumberSummary, blocks: Sequence[np.ndarray]) -> tuple[NumberSummary, int]:
    """Return the same with the median, and how often all blocks were looked at for it."""
    looks = 0
    while not found.exact and found.median is None:
        found, looks = found.answered(reduce(add, (Within.of(block, *found.bracket) for block in blocks))), looks + 1
    return found, looks


def encoded(blocks: Sequence[pa.Table], said: Any, scale: Any = "standard") -> tuple[TableEncoding, set[str]]:
    """Return the encoding of a table in blocks, and the columns of which blocks were looked at again."""
    codes = [name for name, kind in said.items() if kind == "categorical"]
    found: TableSummary = reduce(add, (TableSummary.of(block, codes) for block in blocks))
    encoding, again = TableEncoding.of(found, said, scale), set[str]()
    while questions := found.open(encoding.columns):
        asked = [column for column in encoding.columns if column.name in questions]
        answers = [answers_of(asked, questions, block) for block in blocks]
        found = found.answered(asked, {name: reduce(add, (one[name] for one in answers)) for name in questions})
        encoding, again = TableEncoding.of(found, said, scale), again | questions.keys()
    return encoding, again


@pytest.mark.parametrize("name", NUMBERS)
def test_medians_quantiles_and_units_of_blocks_are_those_of_all(name: str):
    values = NUMBERS[name]
    blocks = np.array_split(values, 13)
    held, first = np.sort(values[~np.isnan(values)]), known(blocks)
    if not first.exact:
        # What the points say is off by at most half a point in a block: 1 / 256 of the numbers.
        assert abs(np.mean(held < first.fill) - 0.5) <= 1 / 256 or np.mean(held == first.fill) > 1 / 256
    found, looks = looked_up(first, blocks)
    assert looks <= 2
    assert (found.n, found.gaps) == (len(values), len(values) - len(held))
    assert (found.low, found.fill, found.high) == (held[0], np.median(held), held[-1])
    filled = np.where(np.isnan(values), np.median(held), values)
    low, spread = found.scaling("standard")
    # Sums of 20,000 terms in another order.
    assert low == pytest.approx(filled.mean(), rel=1e-11, abs=1e-12)
    assert spread == pytest.approx(filled.std(), rel=1e-11)
    knots, asked = np.array(first.knots()), np.linspace(0.0, 1.0, KNOTS)
    assert (knots[0], knots[-1]) == (held[0], held[-1])
    assert (np.diff(knots) >= 0).all()
    if first.exact:
        np.testing.assert_allclose(knots, np.quantile(held, asked), rtol=1e-13)
    # A knot lies among the numbers whose ranks are its own, to half a point in a block: 1 / 256 of the numbers.
    below, above = (np.searchsorted(held, knots, side) / len(held) for side in ("left", "right"))
    within = 1 / 256 + 1 / len(held)
    assert ((below <= asked + within) & (above >= asked - within)).all()


@pytest.mark.parametrize("order", ["as they come", "ascending", "by parts"])
def test_of_very_many_blocks_few_numbers_are_held_and_no_quantile_drifts(order: str):
    values = RNG.normal(size=180_000)
    held, sizes = np.sort(values), list[int]()
    blocks = np.split(held if order == "ascending" else values, 600)

    def together(one: NumberSummary, other: NumberSummary) -> NumberSummary:
        sizes.append(len((found := one + other).points))
        return found

    parts = list(map(NumberSummary.of, blocks))
    if order == "by parts":
        parts = [reduce(together, parts[part : part + 70]) for part in range(0, 600, 70)]
    found = reduce(together, parts)
    # 76,800 points of blocks, of which 4,096 of each age are held: halved as often as they can be.
    assert max(sizes) <= summary.MOST_POINTS * np.log2(2 * 76_800 / summary.MOST_POINTS)
    assert found.weights.sum() == pytest.approx(180_000, rel=1e-12)
    asked = np.linspace(0.0, 1.0, KNOTS)
    np.testing.assert_allclose(np.searchsorted(held, found.knots()) / 180_000, asked, rtol=0, atol=1 / 256)
    low, high = found.bracket
    assert np.mean((held >= low) & (held <= high)) < 0.01
    found, looks = looked_up(found, blocks)
    assert looks == 1
    assert found.fill == np.median(held)


def test_the_numbers_of_few_blocks_are_all_that_stand_for_these():
    blocks = np.split(RNG.normal(size=9600), 32)
    found = known(blocks)
    points = [NumberSummary.of(block).points for block in blocks]
    np.testing.assert_array_equal(found.points, np.sort(np.concatenate(points)))
    np.testing.assert_array_equal(found.weights, 300 / summary.POINTS)
    reach = 2.0 / np.sqrt(summary.POINTS * len(found.points))  # on each side: of blocks of one size errors even out
    places = 32 * summary.POINTS * np.array([0.5 - reach, 0.5 + reach])
    assert found.bracket == tuple(found.points[places.astype(int)])


def test_many_numbers_that_are_all_known_are_known_no_longer_at_last(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(summary, "MOST_HELD", 1000)
    monkeypatch.setattr(summary, "MOST_POINTS", 512)
    values = np.repeat(np.arange(2000.0), 3)  # ascending: each block has few of them
    found = known(np.split(values[:3000], 30))
    assert found.exact
    np.testing.assert_allclose(found.knots(), np.quantile(values[:3000], np.linspace(0.0, 1.0, KNOTS)), rtol=1e-13)
    found = known(np.split(values, 60))
    assert not found.exact
    assert len(found.points) < 1500
    assert found.answered(Within.of(values, *found.bracket)).median == np.median(values)


@pytest.mark.parametrize("most", [summary.MOST_COUNTED, 50])
def test_many_ordered_levels_have_the_median_and_the_ranks_of_the_whole(monkeypatch: pytest.MonkeyPatch, most: int):
    monkeypatch.setattr(summary, "MOST_COUNTED", most)
    monkeypatch.setattr(summary, "KEPT", 45)
    said: Any = {"grade": [f"{i:03d}" for i in range(200)]}
    places = np.minimum(RNG.geometric(0.01, 3000), 198)  # neither the first nor the last level is there
    table = pa.table({"grade": [None if i % 9 == 0 else f"{j:03d}" for i, j in enumerate(places.tolist())]})
    blocks = [table.slice(i, 500) for i in range(0, 3000, 500)]
    for scale in ("unit", "quantile"):
        whole, (encoding, asked) = TableEncoding.of(table, said, scale), encoded(blocks, said, scale)
        assert asked == ({"grade"} if most == 50 else set())
        assert encoding.columns[0].fill == whole.columns[0].fill  # type: ignore[attr-defined]
        np.testing.assert_allclose(encoding.encode(table), whole.encode(table), rtol=1e-12)


def test_a_median_that_is_missed_is_looked_for_wider():
    values = np.sort(RNG.normal(size=5000))
    found = NumberSummary.of(values)
    apart = Within.of(values, 2.0, 3.0)
    wider = found.answered(apart)
    assert wider.median is None
    assert wider.bracket[0] < found.bracket[0] < np.median(values) < found.bracket[1] < wider.bracket[1]
    for _ in range(4):
        wider = wider.answered(apart)
    assert wider.bracket == (-np.inf, np.inf)
    assert wider.answered(Within.of(values, *wider.bracket)).median == np.median(values)


def test_counted_values_are_as_good_as_repeated_ones():
    values, counts = np.r_[RNG.normal(size=300), np.nan], RNG.integers(1, 40, 301)
    one, other = NumberSummary.of(values, counts), NumberSummary.of(np.repeat(values, counts))
    for name in ("n", "gaps", "infinite", "low", "high", "fill", "whole", "exact"):
        assert getattr(one, name) == getattr(other, name)
    assert one.scaling("standard") == pytest.approx(other.scaling("standard"), rel=1e-12)  # sums in another order


def test_sums_of_blocks_are_those_of_all_rows():
    X = RNG.normal(1e6, 1.0, size=(3000, 4))  # a mean that would drown the squares
    X[RNG.random(X.shape) < 0.1] = np.nan
    found = reduce(add, (Sums.of(X[rows]) for rows in np.array_split(np.arange(3000), [0, 1, 40, 2000])))
    np.testing.assert_array_equal(found.gaps, np.isnan(X).sum(axis=0))
    np.testing.assert_allclose(found.mean, np.nanmean(X, axis=0), rtol=1e-14)
    np.testing.assert_allclose(np.sqrt(found.squares / found.n), np.nanstd(X, axis=0), rtol=1e-10)


def test_different_values_are_told_from_few_codes():
    codes = RNG.random(50_000)
    many, once = (reduce(add, map(Different.of, np.array_split(of, 20))) for of in (np.r_[codes, codes], codes))
    assert many.count == pytest.approx(50_000, rel=0.1)  # three deviations of 1,024 codes
    assert once.count == many.count
    few = Different.of(np.array([0.5, 0.25])) + Different.of(np.array([0.5]))
    assert (few.count, few.repeated, many.repeated, once.repeated) == (2, True, True, False)


@pytest.mark.parametrize("said", [{}, {"zip": "categorical", "id": "number"}])
def test_a_table_in_blocks_is_encoded_as_the_whole(monkeypatch: pytest.MonkeyPatch, said: Any):
    monkeypatch.setattr(summary, "MOST_COUNTED", 50)
    monkeypatch.setattr(summary, "MOST_HELD", 150)
    monkeypatch.setattr(summary, "KEPT", 45)
    n = 6000
    table = pa.table(
        {
            "id": RNG.permutation(n),
            "user id": RNG.integers(0, 10**9, n),
            "zip": RNG.integers(0, 60, n) + 10_000,
            "town": [f"town {j}" for j in np.minimum(RNG.geometric(0.02, n), 200)],
            "name": [f"name {i % 5800}" for i in range(n)],
            "user": [f"user {i % 3000}" for i in range(n)],
            "price": RNG.exponential(size=n),
        }
    )
    whole = TableEncoding.of(table, said)
    encoding, asked = encoded([table.slice(i, 250) for i in range(0, n, 250)], said)
    assert asked >= {"town", "user", "price"}
    assert dict(encoding.left_out) == dict(whole.left_out)
    assert whole.left_out.keys() == ({"name"} if said else {"id", "name"}) | {"user id"}
    ours, theirs = encoding.encode(table), whole.encode(table)
    town = [name == "town" for name in whole.features.owners]
    np.testing.assert_allclose(ours[:, town], theirs[:, town], rtol=1e-12)
    others = [name not in ("town", "user") for name in whole.features.owners]  # users are equally frequent
    # Units of numbers: sums of 6,000 terms of 10,000 in another order, over deviations of 17.
    np.testing.assert_allclose(ours[:, others], theirs[:, others], rtol=1e-12, atol=1e-12)
    assert [*encoding.names] == [*whole.names]


def test_blocks_of_different_kinds_are_refused_unless_one_has_gaps_alone():
    gaps, numbers = pa.table({"x": pa.nulls(3)}), pa.table({"x": [1.0, 2.0, 4.0]})
    for one in (TableSummary.of(gaps) + TableSummary.of(numbers), TableSummary.of(numbers) + TableSummary.of(gaps)):
        assert (one.columns["x"].kind, one.columns["x"].gaps) == ("number", 3)
        assert TableEncoding.of(one).columns[0].fill == 2.0  # type: ignore[attr-defined]
    said = refusal(add, TableSummary.of(numbers), TableSummary.of(pa.table({"x": ["a", "b"]})))
    assert "'x' must hold one kind of values, and levels in one order, in all its parts" in said
