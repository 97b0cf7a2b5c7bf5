"""Predictions of an exported model with only NumPy.

Exported files copy these definitions, so that names are imported, not modules.
"""

from __future__ import annotations

import json
import warnings
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from io import BytesIO
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..column_encoding.columns import (
    indicator_scales,
    is_among,
    levels_of_numbers,
    places_of,
    ranks_among,
    require_all_digits,
)
from ..column_encoding.dates import (
    CALENDAR,
    CYCLES,
    days_of,
    local_times,
    without_placeholders,
)
from ..column_encoding.quantities import POINT
from ..column_encoding.reading import (
    LARGEST,
    Column,
    as_texts,
    codes_of,
    is_container,
)
from ..families.composed import scores_beside
from ..predictors.calibration import class_scores, conformal_quantile

PAIRS = 1 << 16
"""Number of pairs of rows whose kernels are computed together."""

NEAR = 1e-4
"""Relative squared distance below which differences are used."""


# Content -------------------------------------------------------------------------------------------------------------


def read_parts(text: str) -> SimpleNamespace:
    """Return the parts of a model from its text; ValueError if damaged."""
    checksum, _, encoded = text.strip().partition("\n")
    try:
        content = b64decode(encoded)
    except ValueError:
        content = b""
    if sha256(content).hexdigest() != checksum:
        raise ValueError(
            "this file is damaged: its content does not have its checksum; export the model again."
        )
    with np.load(BytesIO(content), allow_pickle=False) as archive:
        arrays = dict(archive)
    description = arrays.pop("description").tobytes().decode()
    parts: SimpleNamespace = decoded(json.loads(description), arrays)
    return parts


def decoded(data: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the exported value from JSON data, with dictionaries as namespaces."""
    if isinstance(data, list):
        return [decoded(entry, arrays) for entry in data]
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    if kind == "number":
        return float(content)
    if kind == "centering":
        return content
    if kind == "array":
        return arrays[content]
    if kind == "transposed":
        return arrays[content].T
    if kind == "texts":
        width, texts = content
        dtype = "O"
        if width is not None:
            dtype = f"U{width}"
        return np.array(texts, dtype=dtype)
    if kind == "tuple":
        return tuple(decoded(entry, arrays) for entry in content)
    if kind == "dict":
        return SimpleNamespace(
            **{key: decoded(value, arrays) for key, value in content}
        )
    name, parameters = content
    return SimpleNamespace(
        kind=name, **{key: decoded(value, arrays) for key, value in parameters.items()}
    )


# Columns of a table --------------------------------------------------------------------------------------------------


def column_of(name: str, values: Any) -> Column:
    """Return the values of a column, as numbers, dates or texts."""
    dtype = getattr(values, "dtype", None)
    if getattr(dtype, "tz", None):  # pandas
        return column_of_instants(
            name, values.dt.tz_convert(None), str(values.dtype.tz)
        )
    if getattr(dtype, "time_zone", None):  # polars
        return column_of_instants(name, values, values.dtype.time_zone)
    if str(dtype) == "category":  # pandas
        return Column(name, "text", as_texts(list(values)), is_category=True)
    array = values
    if isinstance(values, list | tuple):
        array = np.empty(len(values), dtype=object)
        array[:] = values
    array = np.asarray(array)
    if array.ndim != 1:
        raise ValueError(
            f"column {name!r} must hold one value for each row, got an array of shape {array.shape}."
        )
    if array.dtype.kind == "M":
        return Column(
            name, "date", without_placeholders(array.astype("datetime64[us]"))
        )
    if array.dtype.kind == "m":
        seconds = array.astype("timedelta64[us]").astype(np.float64) / 1e6
        return Column(name, "number", np.where(np.isnat(array), np.nan, seconds))
    if has_lost_digits(dtype, array):
        return column_of_objects(name, list(values))
    if array.dtype.kind in "biuf":
        return column_of_numbers(name, array)
    return column_of_objects(name, array.tolist())


def has_lost_digits(dtype: Any, array: np.ndarray) -> bool:
    """Return whether NumPy made floats of large integers."""
    if array.dtype.kind != "f" or "int" not in str(dtype).lower():
        return False
    return bool((np.abs(array) > LARGEST).any())


def column_of_instants(name: str, values: Any, zone: str) -> Column:
    """Return moments in UTC as dates in the time zone `zone`."""
    instants = without_placeholders(np.asarray(values).astype("datetime64[us]"))
    return Column(name, "date", instants, local=local_times(instants, zone), zone=zone)


def column_of_objects(name: str, cells: Sequence[Any]) -> Column:
    """Return a column of numbers, or of texts if that fails."""
    if any(map(is_container, cells)):
        return Column(name, "other", np.full(len(cells), np.nan))
    numbers = np.empty(len(cells))
    for row, cell in enumerate(cells):
        if is_missing(cell):
            numbers[row] = np.nan
        elif isinstance(cell, timedelta):
            numbers[row] = cell.total_seconds()
        elif isinstance(cell, np.timedelta64):
            numbers[row] = cell / np.timedelta64(1, "us") / 1e6
        elif isinstance(cell, int | float | np.number):
            numbers[row] = float(cell)
        else:
            return Column(name, "text", as_texts(cells))
    exact = None
    if (np.abs(numbers) >= LARGEST).any():
        exact = as_texts(cells)
    return Column(name, "number", numbers, exact=exact)


def column_of_numbers(name: str, array: np.ndarray) -> Column:
    """Return a column of numbers; large integers are also texts."""
    numbers = array.astype(np.float64)
    exact = None
    if array.dtype.kind in "iu" and (np.abs(numbers) > LARGEST).any():
        exact = as_texts(array.tolist())
    return Column(name, "number", numbers, exact=exact)


def is_missing(cell: Any) -> bool:
    """Return whether a cell is None, NaN or pandas' NA."""
    if isinstance(cell, str):
        return False
    try:
        return cell is None or bool(cell != cell)
    except (TypeError, ValueError):
        return type(cell).__name__ == "NAType"


def columns_of_rows(
    rows: Any, encodings: Sequence[Any], all_names: Sequence[str] = ()
) -> list[Column]:
    """Return the columns of a DataFrame or dictionary, in the order of `encodings`.

    Arrays of `all_names` must be numbers.
    """
    if isinstance(rows, Mapping) or hasattr(rows, "columns"):
        # Names may be integers.
        keys = {str(key): key for key in getattr(rows, "columns", rows)}
        lacking = [encoding.name for encoding in encodings if encoding.name not in keys]
        if lacking:
            raise ValueError(
                f"the rows lack the columns {lacking}; add them, their cells may be empty."
            )
        columns = [
            column_of(encoding.name, rows[keys[encoding.name]])
            for encoding in encodings
        ]
    elif all(is_of_numbers(encoding) for encoding in encodings):
        array = array_of_numbers(rows, len(all_names))
        columns = [
            Column(encoding.name, "number", array[:, all_names.index(encoding.name)])
            for encoding in encodings
        ]
    else:
        raise ValueError(
            "rows must be a DataFrame or a dictionary of columns, as some columns are not numbers."
        )
    lengths = {len(column.values) for column in columns}
    if len(lengths) > 1:
        raise ValueError(f"the columns must have one length, got {sorted(lengths)}.")
    return columns


def is_of_numbers(encoding: Any) -> bool:
    if encoding.kind == "CategoryColumn":
        return bool(encoding.numeric)
    if encoding.kind == "DateColumn" or encoding.levels:
        return False
    return bool(encoding.written.mark == "." and not encoding.written.unit)


def array_of_numbers(rows: Any, n_features: int) -> np.ndarray:
    try:
        array = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"rows must hold numbers: {error}.") from None
    if array.ndim != 2 or array.shape[1] != n_features:
        raise ValueError(
            f"rows must have {n_features} columns, got shape {array.shape}."
        )
    return array


# Features of a column ------------------------------------------------------------------------------------------------


def encode_column(encoding: Any, column: Column) -> np.ndarray:
    if column.kind == "other" and len(column.values):
        raise ValueError(
            f"column {column.name!r} must hold numbers, texts or dates, got lists, records or bytes; convert it, or "
            "leave it empty."
        )
    if encoding.kind == "NumberColumn":
        return encode_numbers(encoding, column)
    if encoding.kind == "CategoryColumn":
        return encode_levels(encoding, column)
    return encode_dates(encoding, column)


def encode_numbers(encoding: Any, column: Column) -> np.ndarray:
    """Encode a numerical column: scaled values, and a missing-value indicator."""
    if encoding.levels:
        numbers = places_of(column.as_levels(), encoding.levels)
    else:
        numbers = column.read_numbers(encoding.written).values
        check_cells(column, "numbers", np.isnan(numbers), encoding.unreadable)
    if np.isinf(numbers).any():
        raise ValueError(
            f"column {column.name!r} must hold finite numbers or gaps, got infinity; correct it."
        )
    gaps = np.isnan(numbers)
    filled = np.where(gaps, encoding.fill, numbers)
    if encoding.knots:
        scaled = normal_scores(filled, encoding.knots)
    else:
        scaled = (filled - encoding.low) / encoding.spread
    features = [scaled]
    if encoding.gaps:
        features.append(gaps)
    return np.column_stack(features)


def normal_scores(values: np.ndarray, knots: Sequence[float]) -> np.ndarray:
    """Return normal scores of values, from training quantiles (knots)."""
    normal = NormalDist()
    return np.array(
        [normal.inv_cdf(rank) for rank in ranks_among(values, knots).tolist()]
    )


def encode_levels(encoding: Any, column: Column) -> np.ndarray:
    """Encode a categorical column: an indicator per level; if many, also a code."""
    if not encoding.numeric:
        require_all_digits(column, encoding.levels)
    texts = texts_of_levels(encoding, column).tolist()
    features = np.zeros((len(texts), len(encoding.levels) + encoding.many))
    place_of_level = {level: place for place, level in enumerate(encoding.levels)}
    for row, text in enumerate(texts):
        place = place_of_level.get(text)
        if place is not None:
            features[row, place] = encoding.scales[place]
    if encoding.many:
        features[:, -1] = codes_of(texts)
    return features


def texts_of_levels(encoding: Any, column: Column) -> np.ndarray:
    """Return category names, spelled as in the training rows."""
    texts = column.as_levels()
    if encoding.numeric and column.kind == "text":
        numbers = column.read_numbers(POINT).values
        keeps_text = np.isnan(numbers) | (np.abs(numbers) > LARGEST)
        return np.where(keeps_text, texts, as_texts(numbers.tolist()))
    if encoding.numeric or column.kind != "number":
        return texts
    return levels_of_numbers(texts, encoding.levels, encoding.width)


def encode_dates(encoding: Any, column: Column) -> np.ndarray:
    """Encode a date column: time, cycles, and a missing-value indicator."""
    column = column.without_placeholder_digits(encoding.first)
    moments = column.read_dates(encoding.first).in_zone(encoding.zone)
    missing = np.isnat(moments.instants)
    check_cells(column, "dates", missing, encoding.unreadable)
    days = days_of(moments.instants)
    gaps = np.isnan(days)
    local_days = np.where(gaps, encoding.fill, days_of(moments.local))
    features = [(np.where(gaps, encoding.fill, days) - encoding.low) / encoding.spread]
    for cycle in encoding.cycles:
        if cycle in CALENDAR:
            features += list(indicators_of_dates(cycle, local_days, encoding.scaled).T)
        else:
            angle = 2.0 * np.pi * CYCLES[cycle](local_days)
            features += [np.sin(angle), np.cos(angle)]
    if encoding.gaps:
        features.append(gaps)
    return np.column_stack(features)


def indicators_of_dates(cycle: str, local_days: np.ndarray, scaled: bool) -> np.ndarray:
    """Return indicators of months or weekdays, shape (n, levels)."""
    _, levels, level_of = CALENDAR[cycle]
    indicators = np.eye(len(levels))[level_of(local_days)]
    if scaled:
        equal_counts: dict[str | None, int] = dict.fromkeys(levels, 1)
        scale, *_ = indicator_scales(equal_counts, len(levels), levels, "standard")
        indicators *= scale
    return indicators


def check_cells(
    column: Column,
    expected: str,
    is_missing_cell: np.ndarray,
    accepted: Sequence[str],
) -> None:
    """Warn of a column's cells of the wrong kind; raise ValueError if all are."""
    unread = is_missing_cell & ~column.gaps
    if not unread.any():
        return
    example = f"{str(column.values[int(unread.argmax())])!r:.42} in row {int(unread.argmax())}"
    is_refused = unread.sum() == (~column.gaps).sum()
    if is_refused and not (unread & is_among(column, accepted)).any():
        raise ValueError(
            f"column {column.name!r} must hold {expected}, got {example} (from 0); convert it, or leave it empty."
        )
    warnings.warn(
        f"column {column.name!r} holds {expected}, but {example} (from 0) and {int(unread.sum()) - 1} more rows; taken "
        "as missing.",
        stacklevel=2,
    )


def features_for_trees(encoding: Any, features: np.ndarray) -> np.ndarray:
    """Convert a column's features for trees: NaN if missing, one number per category."""
    if encoding.kind == "CategoryColumn":
        if encoding.many:
            return features
        has_level = features.max(axis=1, initial=0.0) > 0
        return np.where(has_level, features.argmax(axis=1), np.nan)[:, None]
    parts = [features[:, :1]]
    start = 1
    for cycle in getattr(encoding, "cycles", ()):
        if cycle in CALENDAR:
            _, levels, _ = CALENDAR[cycle]
            indicators = features[:, start : start + len(levels)]
            parts.append(indicators.argmax(axis=1)[:, None].astype(np.float64))
            start += len(levels)
        else:
            parts.append(features[:, start : start + 2])
            start += 2
    values = np.hstack(parts)
    if encoding.gaps:
        values[features[:, -1] > 0] = np.nan
    return values


# Kernels -------------------------------------------------------------------------------------------------------------


def linear_scores(scores: Any, X: np.ndarray) -> np.ndarray:
    values = np.empty((len(X), scores.coefficients.shape[1]))
    training = [
        (family, np.asfortranarray(rows))
        for family, rows in mapped_rows(scores.family, scores.X)
    ]
    n_together = max(1, PAIRS // max(1, len(scores.X)))
    for start in range(0, len(X), n_together):
        rows = slice(start, start + n_together)
        K = combined_kernel(
            scores, mapped_rows(scores.family, X[rows] - scores.origin), training
        )
        values[rows] = K @ scores.coefficients + scores.constant
    return values


def combined_kernel(
    scores: Any, left: Sequence[Any], right: Sequence[Any]
) -> np.ndarray:
    """Return the learned kernel between new rows and training rows."""
    _, first_rows = left[0]
    K = np.zeros((len(first_rows), len(scores.X)))
    if scores.family.kind == "feature":
        features = features_of(scores.family, first_rows) * scores.weights
        K = (
            features @ features_of(scores.family, scores.X).T
            - scores.weights @ scores.shift
        )
    else:
        base_kernels = kernels_between(left, right)
        for weight, shift, (values, added) in zip(
            scores.weights, scores.shift, base_kernels, strict=True
        ):
            K += weight * values
            K += weight * (added - shift)
    if scores.power is None:
        return K
    K = (
        K
        - (K @ scores.power.shares)[:, None]
        - scores.power.row_means
        + scores.power.constant
    )
    return np.asarray(K**scores.power.degree)


def mapped_rows(family: Any, rows: np.ndarray) -> list[tuple[Any, np.ndarray]]:
    """Return the families inside a composed family, with their mapped rows."""
    kind = family.kind
    if kind == "union":
        parts = []
        for part, columns in zip(
            family.families,
            family.columns or [None] * len(family.families),
            strict=True,
        ):
            if columns is None:
                parts += mapped_rows(part, rows)
            else:
                parts += mapped_rows(part, rows[:, columns])
        return parts
    if kind == "metric" and family.map.ndim == 1:
        return mapped_rows(family.base, rows * family.map)
    if kind == "metric":
        return mapped_rows(family.base, rows @ family.map)
    if kind == "normal-scores":
        return mapped_rows(
            family.base, scores_beside(rows, family.knots, family.origin)
        )
    if kind == "scaled":
        return [
            part
            for scale in family.scales
            for part in mapped_rows(family.base, rows * scale)
        ]
    return [(family, rows)]


def kernels_between(
    left: Sequence[Any], right: Sequence[Any]
) -> Iterator[tuple[np.ndarray, float]]:
    """Yield each base kernel as a matrix and a constant to add."""
    for (family, A), (_, B) in zip(left, right, strict=True):
        if family.kind == "product":
            yield from products_of_kernels(family, A, B)
        elif family.kind in ("gaussian", "laplacian", "categorical"):
            yield from exponentials(family, A, B)
        else:
            for K in kernels_of_products(family, A, B):
                yield K, 0.0


def products_of_kernels(
    family: Any, A: np.ndarray, B: np.ndarray
) -> Iterator[tuple[np.ndarray, float]]:
    pairs = kernels_between(mapped_rows(family.base, A), mapped_rows(family.base, B))
    base_kernels = [values + added for values, added in pairs]
    for powers in family.powers:
        product = np.ones((len(A), len(B)))
        for K, power in zip(base_kernels, powers, strict=True):
            product *= K**power
        yield product, 0.0


def kernels_of_products(
    family: Any, A: np.ndarray, B: np.ndarray
) -> Iterator[np.ndarray]:
    if family.kind == "constant":
        yield np.ones((len(A), len(B)))
    elif family.kind == "linear":
        yield A @ B.T
    elif family.kind == "cosine":
        yield unit_rows(A) @ unit_rows(B).T
    elif family.kind == "polynomial":
        base = family.gamma * (A @ B.T) + family.coef0
        for degree in family.degrees:
            yield base**degree
    elif family.kind == "feature":
        for left, right in zip(
            features_of(family, A).T, features_of(family, B).T, strict=True
        ):
            yield np.outer(left, right)
    else:
        for frequency in family.frequencies:
            yield dirichlet_kernel(frequency, family.degree, A, B)


def features_of(family: Any, A: np.ndarray) -> np.ndarray:
    """Return the feature of each rank-one kernel; column -1 means a constant."""
    if family.columns is None:
        return A
    with_ones = np.column_stack([A, np.ones(len(A))])
    return with_ones[:, family.columns]


def unit_rows(A: np.ndarray) -> np.ndarray:
    for _ in range(2):  # the first time avoids squares that overflow
        largest = np.abs(A).max(axis=1, initial=0.0)
        A = A / np.where(largest > 0, largest, 1.0)[:, None]
        lengths = np.sqrt(np.einsum("ij,ij->i", A, A))
        A = A / np.where(lengths > 0, lengths, 1.0)[:, None]
    return A


def dirichlet_kernel(
    frequency: float, degree: int, A: np.ndarray, B: np.ndarray
) -> np.ndarray:
    K = np.ones((len(A), len(B)))
    for left, right in zip(A.T, B.T, strict=True):
        angle = frequency * np.subtract.outer(left, right)
        K *= 1.0 + 2.0 * sum(
            np.cos(harmonic * angle) for harmonic in range(1, degree + 1)
        )
    return K


def exponentials(
    family: Any, A: np.ndarray, B: np.ndarray
) -> Iterator[tuple[np.ndarray, float]]:
    """Yield each ``exp(-gamma D)`` as a matrix and a constant to add."""
    distance = distances(family, A, B)
    by_gamma: dict[float, np.ndarray] = {}
    for gamma in sorted(set(family.gammas)):
        half = by_gamma.get(gamma / 2)
        if half is None:
            by_gamma[gamma] = np.expm1(-gamma * distance)
        else:
            by_gamma[gamma] = half * (half + 2.0)
    for gamma in family.gammas:
        yield by_gamma[gamma], 1.0


def distances(family: Any, A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return the distances whose exponentials are kernels, shape (a, b)."""
    if family.kind == "categorical":
        weights = family.weights or np.ones(A.shape[1])
        return sums_of_differences(A, B, is_not_zero, weights)
    if family.kind == "laplacian" and family.norm == 1:
        return sums_of_differences(A, B, np.abs)
    D = squared_distances(A, B)
    if family.kind == "laplacian":
        return np.sqrt(D)
    return D


def is_not_zero(difference: np.ndarray, out: np.ndarray) -> None:
    """Write 1 for each difference that is not zero, otherwise 0."""
    out[...] = difference != 0


def sums_of_differences(
    A: np.ndarray, B: np.ndarray, function: Any, weights: Any = None
) -> np.ndarray:
    """Return the sum over features of ``function(difference)``, shape (a, b)."""
    sums = np.zeros((len(A), len(B)))
    difference = np.empty_like(sums)
    for j, (left, right) in enumerate(zip(A.T, B.T, strict=True)):
        np.subtract.outer(left, right, out=difference)
        function(difference, out=difference)
        if weights is not None:
            difference *= weights[j]
        sums += difference
    return sums


def squared_distances(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return squared Euclidean distances, exact for nearly equal rows."""
    if not len(B):
        return np.zeros((len(A), 0))
    center = B.mean(axis=0)
    left = A - center
    right = B - center
    norms = np.add.outer(
        np.einsum("ij,ij->i", left, left), np.einsum("ij,ij->i", right, right)
    )
    D = norms - 2.0 * (left @ right.T)
    rows, columns = np.nonzero(NEAR * norms > D)
    D[rows, columns] = np.square(A[rows] - B[columns]).sum(axis=1)
    return D


# Trees ---------------------------------------------------------------------------------------------------------------


def tree_sums(trees: Any, X: np.ndarray) -> np.ndarray:
    rows = features_of_trees(trees, X)
    sums = np.tile(np.asarray(trees.baseline, dtype=np.float64), (len(rows), 1))
    n_together = max(1, PAIRS // len(trees.roots))
    for start in range(0, len(rows), n_together):
        block = rows[start : start + n_together]
        values = trees.value[leaves_of(trees, block)]
        for output in range(sums.shape[1]):
            sums[start : start + n_together, output] += values[
                :, trees.output == output
            ].sum(axis=1)
    return sums


def tree_probabilities(trees: Any, X: np.ndarray) -> np.ndarray:
    sums = tree_sums(trees, X)
    if sums.shape[1] > 1:
        return softmax(sums)
    second = np.exp(-np.logaddexp(0.0, -sums[:, 0]))
    return np.column_stack([1.0 - second, second])


def features_of_trees(trees: Any, X: np.ndarray) -> np.ndarray:
    """Return features as trees expect: categories first, then numbers."""
    columns = []
    for j, levels in zip(trees.categorical, trees.categories, strict=True):
        place_of_level = {
            level: float(place) for place, level in enumerate(levels.tolist())
        }
        columns.append(
            np.array([place_of_level.get(level, np.nan) for level in X[:, j].tolist()])
        )
    others = [j for j in range(X.shape[1]) if j not in trees.categorical]
    return np.column_stack([*columns, X[:, others]])


def leaves_of(trees: Any, rows: np.ndarray) -> np.ndarray:
    positions = np.arange(len(rows))[:, None]
    nodes = np.tile(trees.roots, (len(rows), 1))
    while not trees.is_leaf[nodes].all():
        values = rows[positions, trees.feature[nodes]]
        is_gap = np.isnan(values)
        goes_left = values <= trees.threshold[nodes]
        if trees.bitset.max(initial=-1) >= 0:
            level = np.where(is_gap, 0, values).astype(np.int64).clip(0, 255)
            words = trees.bitsets[trees.bitset[nodes].clip(min=0), level // 32]
            is_member = (words >> (level % 32).astype(np.uint32)) & np.uint32(1)
            goes_left = np.where(trees.bitset[nodes] >= 0, is_member > 0, goes_left)
        goes_left = np.where(is_gap, trees.gap_goes_left[nodes], goes_left)
        nodes = np.where(goes_left, trees.left[nodes], trees.right[nodes])
    return nodes


# Models --------------------------------------------------------------------------------------------------------------


class ExportedModel:
    def __init__(self, parts: SimpleNamespace) -> None:
        self._parts = parts

    def _features(self, rows: Any) -> tuple[np.ndarray, np.ndarray]:
        if self._parts.table is None:
            X = array_of_numbers(rows, self._parts.n_features)
            if not np.isfinite(X).all():
                raise ValueError(
                    "rows must be finite, got NaN or infinity; impute them, or drop the rows."
                )
            return X, X
        encodings = self._parts.table.columns
        columns = columns_of_rows(rows, encodings, self._parts.names)
        features = [
            encode_column(encoding, column)
            for encoding, column in zip(encodings, columns, strict=True)
        ]
        if self._parts.trees is None:
            return np.hstack(features), np.empty(0)
        pairs = zip(encodings, features, strict=True)
        return np.hstack(features), np.hstack(
            [features_for_trees(encoding, part) for encoding, part in pairs]
        )


class ExportedRegressor(ExportedModel):
    """Regressor that predicts with only NumPy."""

    def predict(self, rows: Any) -> np.ndarray:
        """Return predictions for a DataFrame, a dictionary of columns or an array."""
        return self._shaped(self._values(*self._features(rows)))

    def predict_interval(self, rows: Any, alpha: float = 0.1) -> np.ndarray:
        """Return interval bounds with coverage ``1 - alpha``, shape (n, 2)."""
        residuals = self._parts.residuals
        if residuals is None:
            raise ValueError(
                "intervals are only available for a model that was fitted with intervals=True."
            )
        quantile = conformal_quantile(residuals, alpha)
        if quantile is None:
            raise ValueError(
                f"alpha must be between {1 / (len(residuals) + 1):.3g} and 1, got {alpha!r}."
            )
        X, X_trees = self._features(rows)
        values = self._values(X, X_trees)
        scale = self._parts.scale
        half_widths = np.broadcast_to(quantile, values.shape)
        if scale is not None:
            sizes = np.clip(
                linear_scores(scale.scores, X), scale.smallest, scale.largest
            )
            half_widths = sizes * quantile
        return self._shaped(
            np.stack([values - half_widths, values + half_widths], axis=1)
        )

    def _values(self, X: np.ndarray, X_trees: np.ndarray) -> np.ndarray:
        values = linear_scores(self._parts.scores, X)
        if self._parts.trees is None:
            return values
        share = self._parts.share
        return np.asarray(
            (1.0 - share) * values + share * tree_sums(self._parts.trees, X_trees)
        )

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        """Remove the axis of outputs if the target had none."""
        if self._parts.vector:
            return values[..., 0]
        return values


class ExportedClassifier(ExportedModel):
    """Classifier that predicts with only NumPy."""

    @property
    def classes_(self) -> np.ndarray:
        return np.asarray(self._parts.classes)

    def predict(self, rows: Any) -> np.ndarray:
        """Return classes for a DataFrame, a dictionary of columns or an array."""
        decisions = self.decision_function(rows)
        if decisions.ndim == 1:
            return self.classes_[(decisions > 0).astype(np.intp)]
        return self.classes_[decisions.argmax(axis=1)]

    def predict_proba(self, rows: Any) -> np.ndarray:
        """Return the probability of each class, in the order of `classes_`."""
        if self._parts.calibration is None:
            raise ValueError(
                "probabilities are only available for a model that was fitted with probability=True."
            )
        _, probabilities = self._decisions_and_probabilities(rows)
        return probabilities

    def decision_function(self, rows: Any) -> np.ndarray:
        """Return the score of each class; for two classes, only of the second."""
        decisions, _ = self._decisions_and_probabilities(rows)
        return decisions

    def _decisions_and_probabilities(self, rows: Any) -> tuple[np.ndarray, np.ndarray]:
        X, X_trees = self._features(rows)
        n_classes = len(self.classes_)
        decisions = class_scores(
            linear_scores(self._parts.scores, X), n_classes, self._parts.of_pairs
        )
        if self._parts.calibration is None:
            return decisions, np.empty(0)
        slope, offset = self._parts.calibration
        logarithms = -np.logaddexp(0.0, -(slope * decisions + offset))
        if decisions.ndim == 1:
            second = np.exp(logarithms)
            probabilities = np.column_stack([1.0 - second, second])
        else:
            probabilities = softmax(logarithms)
        if self._parts.trees is None:
            return decisions, probabilities
        share = self._parts.share
        by_trees = np.zeros_like(probabilities)
        by_trees[:, self._parts.trees.classes] = tree_probabilities(
            self._parts.trees, X_trees
        )
        probabilities = (1.0 - share) * probabilities + share * by_trees
        logarithms = np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))
        if n_classes == 2:
            return logarithms[:, 1] - logarithms[:, 0], probabilities
        return logarithms, probabilities


def softmax(logarithms: np.ndarray) -> np.ndarray:
    exponentials_of_row = np.exp(logarithms - logarithms.max(axis=1, keepdims=True))
    return np.asarray(
        exponentials_of_row / exponentials_of_row.sum(axis=1, keepdims=True)
    )
