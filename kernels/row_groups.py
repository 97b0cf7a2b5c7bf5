"""Groups and times of rows, and splits that respect them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.cluster.hierarchy import linkage
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist, pdist

from .base import Value

FEWEST_CLUSTERED = 20
"""Fewest distinct rows to search for near-duplicates."""

MOST_CLUSTERED = 5000
"""Most rows to search for near-duplicates, by all pairs."""

NEAR = 0.15
"""Largest distance of near-duplicates, relative to the median distance."""

CLUSTERED_SHARE = 0.8
"""Smallest share of rows in isolated clusters that become groups."""

MOST_PANEL_CELLS = 1_000_000
"""Most cells to search for a panel."""


@dataclass(frozen=True, eq=False, repr=False)
class RowGroups(Value):
    """Group or time of each row, kept together by splits."""

    numbers: np.ndarray  # group of each row
    ordered: bool = False  # whether groups are points in time

    @property
    def n_groups(self) -> int:
        return len(np.unique(self.numbers))

    def take(self, rows: np.ndarray | Sequence[int] | slice) -> RowGroups:
        return RowGroups(self.numbers[rows], self.ordered)

    def sample(self, n_rows: int, seed: int) -> np.ndarray:
        """Draw about `n_rows` random rows, in whole groups unless these are large or ordered."""
        m = len(self.numbers)
        if m <= n_rows:
            return np.arange(m)
        rng = np.random.default_rng(seed)
        _, group_of_row, sizes = np.unique(
            self.numbers, return_inverse=True, return_counts=True
        )
        if self.ordered or sizes.max() > n_rows / 20:
            return np.sort(rng.choice(m, n_rows, replace=False))
        order = rng.permutation(len(sizes))
        is_drawn = np.zeros(len(sizes), dtype=bool)
        is_drawn[order[np.cumsum(sizes[order]) <= n_rows]] = True
        return np.flatnonzero(is_drawn[group_of_row])

    def splits(
        self, n_splits: int, seed: int = 0, classes: np.ndarray | None = None
    ) -> list[Split]:
        """Return cross-validation splits, as positions of training rows and test rows.

        Folds have whole groups and are stratified by `classes`. Ordered blocks are
        tested after training on all earlier rows.
        """
        if self.ordered:
            blocks = self.blocks(n_splits + 1)
            return [
                (np.flatnonzero(blocks < b), np.flatnonzero(blocks == b))
                for b in range(1, blocks.max() + 1)
            ]
        n_folds = min(n_splits, self.n_groups)
        if n_folds < 2:
            return []
        folds = draw_folds(len(self.numbers), n_folds, seed, self.numbers, classes)
        return [
            (np.flatnonzero(folds != fold), np.flatnonzero(folds == fold))
            for fold in np.unique(folds)
        ]

    def blocks(self, n_blocks: int) -> np.ndarray:
        """Return each row's block of time; blocks are consecutive and about equally large."""
        return consecutive_blocks(self.numbers, min(n_blocks, self.n_groups))

    def joined_by(self, which: np.ndarray) -> RowGroups:
        """Merge groups that share a label in `which`, such as copies.

        Ordered groups do not change, nor groups whose union has most rows.
        """
        if self.ordered:
            return self
        n_groups = int(self.numbers.max()) + 1
        shape = (n_groups, int(which.max()) + 1)
        links = sparse.coo_array(
            (np.ones(len(which)), (self.numbers, which)), shape=shape
        )
        bipartite = sparse.block_array([[None, links], [links.T, None]], format="csr")
        _, components = connected_components(bipartite, directed=False)
        joined = np.unique(components[self.numbers], return_inverse=True)[1]
        if np.bincount(joined).max() > len(joined) / 2:
            return self
        return RowGroups(joined)


@dataclass(frozen=True)
class Panel:
    """Rows of units, such as firms in several years, that are equal but in one column."""

    column: int
    n_units: int


Split = tuple[np.ndarray, np.ndarray]


def as_row_groups(groups: Any, time: Any, n_rows: int) -> RowGroups | None:
    """Convert `groups` or `time` of an estimator's `fit` to groups for cross-validation; None without either."""
    if groups is None and time is None:
        return None
    if groups is not None and time is not None:
        raise ValueError(
            "groups and time cannot be combined, got both; give time if predictions are for later rows, else groups."
        )
    name = "groups"
    values = groups
    if time is not None:
        name = "time"
        values = time
    values = np.asarray(values)
    if values.shape != (n_rows,):
        raise ValueError(
            f"{name} must have one entry per row, got shape {values.shape} for {n_rows} rows."
        )
    is_missing = _is_missing(values)
    if is_missing.any():
        raise ValueError(
            f"{name} must have no missing values, got {is_missing.sum()} of {n_rows}, the first in row "
            f"{is_missing.argmax()}; drop these rows."
        )
    if time is not None and (
        values.dtype.kind not in "iufMmO" or isinstance(values[0], str)
    ):
        raise ValueError(
            f"time must hold numbers or datetimes, got {values[0]!r:.60}; parse it first."
        )
    try:
        distinct, numbers = np.unique(values, return_inverse=True)
    except TypeError:
        kinds = sorted({type(value).__name__ for value in values})
        raise ValueError(
            f"{name} must hold values of one type, got {' and '.join(kinds)}."
        ) from None
    if len(distinct) < 2:
        raise ValueError(
            f"{name} must have at least two different values, got only {distinct[0]!s:.60}."
        )
    return RowGroups(numbers, time is not None)


def near_duplicates(X: Any, classes: np.ndarray | None = None) -> RowGroups | None:
    """Return clusters of near-duplicates as groups, or None if they have few rows.

    None also if many clusters have nearly all rows of a class.
    """
    m = X.shape[0]
    if sparse.issparse(X) or not FEWEST_CLUSTERED <= m <= MOST_CLUSTERED:
        return None
    spread = X.std(axis=0)
    varies = spread > 1e-12 * np.abs(X).max(axis=0)
    Z, which = np.unique(X[:, varies] / spread[varies], axis=0, return_inverse=True)
    if len(Z) < FEWEST_CLUSTERED or not _has_near_neighbors(Z):
        return None
    distances = pdist(Z)
    near = NEAR * float(np.median(distances))
    tree = linkage(distances, "single")
    ratio = min(0.5, 64.0 ** (-1 / Z.shape[1]))
    if np.mean(_isolated_clusters(tree, near, ratio) >= 0) < CLUSTERED_SHARE:
        return None
    clusters = _isolated_clusters(tree, near, max(ratio, 0.75))
    clusters = np.where(clusters < 0, np.arange(len(Z)), clusters)
    numbers = np.unique(clusters[np.ravel(which)], return_inverse=True)[1]
    if (
        classes is not None
        and _share_of_classes(numbers, classes) > 1 - CLUSTERED_SHARE
    ):
        return None
    return RowGroups(numbers)


def find_panel(
    X: Any, columns: Sequence[slice], are_numbers: Sequence[bool]
) -> Panel | None:
    """Return the panel with four fifths of the rows, or None.

    At least two columns must distinguish the units by numbers.
    """
    if sparse.issparse(X) or X.size > MOST_PANEL_CELLS or len(columns) < 3:
        return None
    hashes = _hashes_of_columns(X, columns)
    # Copies of rows are no second state of a unit
    whole_rows, first = np.unique(hashes.sum(axis=1), return_index=True)
    hashes = hashes[first]
    n_distinct = np.array([len(np.unique(column)) for column in hashes.T])
    panels = []
    for column in range(len(columns)):
        n_units = _number_of_units(whole_rows - hashes[:, column])
        is_equal = np.arange(len(columns)) != column
        distinguishes = (
            is_equal & are_numbers & (n_distinct >= CLUSTERED_SHARE * n_units)
        )
        if n_units >= FEWEST_CLUSTERED and distinguishes.sum() > 1:
            panels.append(Panel(column, n_units))
    if len(panels) != 1:
        return None
    return panels[0]


def _number_of_units(unit_hashes: np.ndarray) -> int:
    """Return the number of distinct units, or 0 if few rows share one."""
    _, unit_of_row, sizes = np.unique(
        unit_hashes, return_inverse=True, return_counts=True
    )
    if np.mean(sizes[unit_of_row] > 1) < CLUSTERED_SHARE:
        return 0
    return len(sizes)


def _hashes_of_columns(X: np.ndarray, columns: Sequence[slice]) -> np.ndarray:
    """Hash the adjacent features of each column; sums are hashes, too, (m, n_columns)."""
    rng = np.random.default_rng(0)
    multipliers = rng.integers(2**63, size=X.shape[1], dtype=np.uint64)
    codes = [np.unique(feature, return_inverse=True)[1] for feature in X.T]
    hashes = np.column_stack(codes).astype(np.uint64) * multipliers
    return np.column_stack([hashes[:, place].sum(axis=1) for place in columns])


def _share_of_classes(numbers: np.ndarray, classes: np.ndarray) -> float:
    """Return the share of rows in groups with nearly all rows of a class."""
    pairs = np.column_stack([classes, numbers])
    distinct, sizes = np.unique(pairs, axis=0, return_counts=True)
    sizes_of_classes = np.bincount(classes)[distinct[:, 0]]
    is_class = sizes > CLUSTERED_SHARE * sizes_of_classes
    return float(sizes[is_class].sum() / len(classes))


def _has_near_neighbors(Z: np.ndarray) -> bool:
    drawn = Z[np.linspace(0, len(Z) - 1, min(len(Z), 200)).astype(np.intp)]
    distances = cdist(drawn, Z)
    # Each row is its own first neighbor
    nearest = np.partition(distances, 1, axis=1)[:, 1]
    return bool(np.mean(nearest < NEAR * np.median(distances)) >= 0.5)


def _isolated_clusters(tree: np.ndarray, near: float, ratio: float) -> np.ndarray:
    """Return each row's largest isolated cluster, a node, or -1."""
    m = len(tree) + 1
    root = 2 * m - 2
    children = tree[:, :2].astype(np.intp)
    heights = np.concatenate([np.zeros(m), tree[:, 2]])
    sizes = np.concatenate([np.ones(m), tree[:, 3]])
    parents = np.full(root + 1, root)
    parents[children] = np.arange(m, root + 1)[:, None]
    is_isolated = (
        (heights < near)
        & (heights < ratio * heights[parents])
        & (sizes > 1)
        & (sizes <= max(2, m / 10))
    )
    clusters = np.full(root + 1, -1)
    for node in range(root - 1, -1, -1):  # parents come after their children
        clusters[node] = clusters[parents[node]]
        if clusters[node] < 0 and is_isolated[node]:
            clusters[node] = node
    return clusters[:m]


def _is_missing(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "O":
        return np.array(list(map(_is_gap, values)), dtype=bool)
    return np.asarray(values != values)


def _is_gap(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # NA of pandas
        return True


def draw_folds(
    m: int,
    n_folds: int,
    seed: int,
    groups: np.ndarray | None = None,
    classes: np.ndarray | None = None,
) -> np.ndarray:
    """Draw a fold for each row, stratified, with whole groups."""
    from sklearn.model_selection import (  # slow to import
        GroupKFold,
        KFold,
        StratifiedGroupKFold,
        StratifiedKFold,
    )

    if classes is None:
        splitter_class = KFold if groups is None else GroupKFold
    else:
        splitter_class = StratifiedKFold if groups is None else StratifiedGroupKFold
    splitter = splitter_class(n_folds, shuffle=True, random_state=seed)
    folds = np.empty(m, dtype=np.intp)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        for fold, (_, test) in enumerate(
            splitter.split(np.zeros((m, 1)), classes, groups)
        ):
            folds[test] = fold
    return folds


def consecutive_blocks(times: np.ndarray, n_blocks: int) -> np.ndarray:
    """Return each row's block of time; blocks are about equally large."""
    _, time_of_row, counts = np.unique(times, return_inverse=True, return_counts=True)
    ends = len(times) * np.arange(1, n_blocks + 1) / n_blocks
    return cut_in_parts(counts, ends)[time_of_row]


def cut_in_parts(sizes: np.ndarray, ends: Sequence[float] | np.ndarray) -> np.ndarray:
    """Divide a sequence of units (rows or groups) into parts; return each unit's part.

    `sizes` are rows per unit, and `ends` the desired rows before the end of each part.
    Later units have -1.
    """
    rows_before_end = np.cumsum(sizes)
    parts = np.full(len(sizes), -1, dtype=np.intp)
    start = 0
    for part, end in enumerate(ends):
        n_later_parts = len(ends) - 1 - part
        candidates = rows_before_end[start : len(sizes) - n_later_parts]
        stop = start + 1 + int(np.abs(candidates - end).argmin())
        parts[start:stop] = part
        start = stop
    return parts
