"""What is known of a table from its blocks is what all of it tells."""

import itertools
from collections.abc import Iterable
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from learnkernels.kernels.tables import TableEncoding, summary
from learnkernels.kernels.tables.summary import KNOTS, NumberSummary, added, different, smallest, summarize_table
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


def known(blocks: Iterable[np.ndarray], all_kept: bool) -> NumberSummary:
    """Return what is known of numbers from their blocks."""
    return reduce(add, (NumberSummary.of(block, all_kept=all_kept) for block in blocks))


@pytest.mark.parametrize("all_kept", [True, False])
@pytest.mark.parametrize("name", NUMBERS)
def test_medians_quantiles_and_units_of_blocks_are_those_of_all(name: str, all_kept: bool):
    values = NUMBERS[name]
    held, found = np.sort(values[~np.isnan(values)]), known(np.array_split(values, 13), all_kept)
    assert (found.n, found.gaps) == (len(values), len(values) - len(held))
    assert (found.low, found.high) == (held[0], held[-1])
    knots, asked = np.array(found.knots()), np.linspace(0.0, 1.0, KNOTS)
    if all_kept:
        whole = NumberSummary.of(values)
        assert found.fill == np.median(held)
        for scale in ("unit", "max", "standard"):
            assert found.scaling(scale) == whole.scaling(scale)  # to the last bit
        np.testing.assert_array_equal(knots, np.quantile(held, asked))
    # What the points say is off by at most half a point in a block: 1 / 256 of the numbers.
    within = 1 / 256 + 1 / len(held)
    below, above = (np.searchsorted(held, [found.fill, *knots], side) / len(held) for side in ("left", "right"))
    assert ((below <= np.r_[0.5, asked] + within) & (above >= np.r_[0.5, asked] - within)).all()
    filled = np.where(np.isnan(values), found.fill, values)
    # Sums of 20,000 terms in another order.
    assert found.scaling("standard")[0] == pytest.approx(filled.mean(), rel=1e-11, abs=1e-12)
    assert found.scaling("standard")[1] == pytest.approx(filled.std(), rel=1e-11)


@pytest.mark.parametrize("order", ["as they come", "ascending", "by parts"])
def test_of_very_many_blocks_few_numbers_are_held_and_no_quantile_drifts(monkeypatch: pytest.MonkeyPatch, order: str):
    monkeypatch.setattr(summary, "MOST_HELD", 8192)
    values = RNG.normal(size=180_000)
    held, sizes = np.sort(values), list[int]()
    blocks = np.split(held if order == "ascending" else values, 600)

    def together(one: NumberSummary, other: NumberSummary) -> NumberSummary:
        sizes.append(len((found := one + other).points))
        return found

    parts = [NumberSummary.of(block, all_kept=False) for block in blocks]
    if order == "by parts":
        parts = [reduce(together, parts[part : part + 70]) for part in range(0, 600, 70)]
    found = reduce(together, parts)
    assert max(sizes) <= 8192
    assert found.weights.sum() == pytest.approx(180_000, rel=1e-12)
    asked = np.linspace(0.0, 1.0, KNOTS)
    np.testing.assert_allclose(np.searchsorted(held, found.knots()) / 180_000, asked, rtol=0, atol=1 / 256)
    assert abs(np.mean(held < found.fill) - 0.5) < 1 / 256


def test_counted_values_are_as_good_as_repeated_ones():
    values, counts = np.r_[RNG.normal(size=300), np.nan], RNG.integers(1, 40, 301)
    one, other = NumberSummary.of(values, counts), NumberSummary.of(np.repeat(values, counts))
    for name in ("n", "gaps", "infinite", "low", "high", "fill", "whole", "exact"):
        assert getattr(one, name) == getattr(other, name)
    assert one.scaling("standard") == pytest.approx(other.scaling("standard"), rel=1e-12)  # sums in another order


def test_statistics_of_blocks_are_those_of_all_rows():
    x = RNG.normal(1e6, 1.0, size=3000)  # a mean that would drown the squares
    x[RNG.random(3000) < 0.1] = np.nan
    found = reduce(add, (NumberSummary.of(x[rows]) for rows in np.array_split(np.arange(3000), [0, 1, 40, 2000])))
    assert found.gaps == np.isnan(x).sum()
    assert found.mean == pytest.approx(np.nanmean(x), rel=1e-14)
    assert np.sqrt(found.squares / found.finite) == pytest.approx(np.nanstd(x), rel=1e-10)


def test_different_values_are_told_from_few_codes():
    codes = RNG.random(50_000)
    joined = partial(reduce, lambda one, other: smallest(np.append(one, other)))
    many, once = (joined(np.array_split(of, 20)) for of in (np.r_[codes, codes], codes))
    assert different(many) == pytest.approx(50_000, rel=0.1)  # three deviations of 1,024 codes
    np.testing.assert_array_equal(once, many)
    assert different(smallest(np.array([0.5, 0.25, 0.5]))) == 2


MESSY = {
    "id": [str(i) for i in range(600)],
    "user id": RNG.integers(0, 10**9, 600),
    "code": RNG.integers(10**17, 10**17 + 40, 600),
    "zip": RNG.integers(10_000, 10_060, 600),
    "town": [f"town {j}" for j in np.minimum(RNG.geometric(0.02, 600), 200)],
    "user": [f"user {i % 300}" for i in range(600)],
    "price": RNG.exponential(size=600),
    "paid": [f"{one:,.2f}".translate(str.maketrans(",.", ".,")) for one in RNG.exponential(500, 600)],
    "cost": [f"${one:,.2f}" if i % 40 else "-" for i, one in enumerate(RNG.exponential(2000, 600))],
    "weight": [f"{one} kg" for one in RNG.integers(40, 90, 600)],
    "day": [f"{1 + i % 28}/{1 + i % 12}/{20 + i % 5}" for i in range(600)],
    "hour": [f"{i % 24}:{i % 60:02d}" for i in range(600)],
    "open": ["2024-01-31" if i % 3 else "9999-12-31" for i in range(600)],
}


@pytest.mark.parametrize("scale", ["standard", "quantile"])
@pytest.mark.parametrize("said", [{}, {"zip": "categorical", "id": "number", "town": "code"}])
def test_a_table_in_blocks_is_encoded_as_the_whole_to_the_last_bit(said: Any, scale: Any):
    table = pa.table(MESSY)
    levels = [name for name, kind in said.items() if kind != "number"]
    whole = TableEncoding.of(table, said, scale)
    for cuts in ([1, 2, 40, 333], range(25, 600, 25)):
        blocks = [table.slice(a, b - a) for a, b in itertools.pairwise([0, *cuts, 600])]
        encoding = TableEncoding.of(reduce(added, (summarize_table(block, levels) for block in blocks)), said, scale)
        assert encoding.to_dict() == whole.to_dict()
    assert whole.left_out.keys() == {"user id"} | ({"id"} - said.keys())


@pytest.mark.parametrize("said", [{}, {"zip": "categorical"}])
def test_many_rows_in_blocks_are_known_by_quantiles_and_frequent_levels(monkeypatch: pytest.MonkeyPatch, said: Any):
    for name, few in {"MOST_COUNTED": 50, "MOST_HELD": 150, "KEPT": 45}.items():
        monkeypatch.setattr(summary, name, few)
    n = 6000
    columns: dict[str, Any] = {"id": RNG.permutation(n), "zip": RNG.integers(0, 60, n) + 10_000}
    columns["town"] = [f"town {j}" for j in np.minimum(RNG.geometric(0.02, n), 200)]
    table = pa.table(columns | {"name": [f"name {i % 5800}" for i in range(n)], "price": RNG.exponential(size=n)})
    whole = TableEncoding.of(table, said)
    blocks = [summarize_table(table.slice(i, 250), said, all_kept=False) for i in range(0, n, 250)]
    encoding = TableEncoding.of(reduce(added, blocks), said)
    assert (dict(encoding.left_out), encoding.names) == (dict(whole.left_out), whole.names)
    ours, theirs = encoding.encode(table), whole.encode(table)
    exact = [name != "town" and name not in said for name in whole.features.owners]
    # Units of numbers: sums of 6,000 terms of 10,000 in another order, over deviations of 17.
    np.testing.assert_allclose(ours[:, exact], theirs[:, exact], rtol=1e-12, atol=1e-12)


def test_blocks_of_different_kinds_are_refused_unless_one_has_gaps_alone():
    held: tuple[Any, ...] = pa.nulls(3), [1.0, 2.0, 4.0], ["a", "b"]
    gaps, numbers, texts = (summarize_table(pa.table({"x": values})) for values in held)
    for one in (added(gaps, numbers), added(numbers, gaps)):
        assert (one["x"].kind, one["x"].gaps) == ("number", 3)
        assert TableEncoding.of(one).columns[0].fill == 2.0  # type: ignore[attr-defined]
    said = refusal(added, numbers, texts)
    assert "'x' must hold one kind of values, and levels in one order, in all its parts" in said
