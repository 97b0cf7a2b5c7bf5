"""Boosted trees of scikit-learn as arrays, from a skops file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any
from zipfile import ZipFile

import numpy as np

from ..estimator_files import SCHEMA, estimator_to_array


class SkopsFile:
    """Reader of a skops file, as dictionaries, lists and arrays."""

    def __init__(self, content: bytes) -> None:
        self._archive = ZipFile(BytesIO(content))
        self._values: dict[int | str, Any] = {}

    def read(self) -> Any:
        return self._value(json.loads(self._archive.read(SCHEMA)))

    def _value(self, node: Mapping[str, Any]) -> Any:
        """Return a node's value; empty nodes repeat an earlier one."""
        identity = node.get("__id__")
        if "content" not in node and "file" not in node and identity in self._values:
            return self._values[identity]
        value = self._new_value(node)
        if identity is not None:
            self._values[identity] = value
        return value

    def _new_value(self, node: Mapping[str, Any]) -> Any:
        loader = node["__loader__"]
        if loader == "NdArrayNode" and "file" in node:
            return np.load(
                BytesIO(self._archive.read(node["file"])), allow_pickle=False
            )
        content: Any = node.get("content")
        if loader == "JsonNode":
            return json.loads(content)
        if loader == "DictNode":
            return {key: self._value(part) for key, part in content.items()}
        if loader in ("ListNode", "TupleNode"):
            return [self._value(part) for part in content]
        if isinstance(content, dict) and "__loader__" in content:
            return self._value(content)
        return None


def trees_as_parts(trees: Any, n_outputs: int) -> dict[str, Any]:
    """Return the nodes of histogram-based boosted trees as arrays.

    `left`, `right` and `roots` are positions of nodes, `output` the output that a tree
    adds to.
    """
    state = SkopsFile(estimator_to_array(trees).tobytes()).read()
    predictors = [
        predictor for iteration in state["_predictors"] for predictor in iteration
    ]
    sizes = [len(predictor["nodes"]) for predictor in predictors]
    roots = np.cumsum([0, *sizes[:-1]])
    n_bitsets = np.cumsum(
        [0, *(len(predictor["raw_left_cat_bitsets"]) for predictor in predictors[:-1])]
    )
    nodes = np.concatenate([predictor["nodes"] for predictor in predictors])
    first_node = np.repeat(roots, sizes)
    is_leaf = nodes["is_leaf"].astype(bool)
    is_categorical = nodes["is_categorical"].astype(bool)
    bitset = np.where(
        is_categorical, nodes["bitset_idx"] + np.repeat(n_bitsets, sizes), -1
    )
    categorical: list[int] = []
    if trees.is_categorical_ is not None:
        categorical = np.flatnonzero(trees.is_categorical_).tolist()
    return {
        "baseline": np.asarray(state["_baseline_prediction"], dtype=np.float64).reshape(
            -1
        ),
        "value": nodes["value"].astype(np.float64),
        "feature": nodes["feature_idx"].astype(np.int64),
        "threshold": nodes["num_threshold"].astype(np.float64),
        "gap_goes_left": nodes["missing_go_to_left"].astype(bool),
        "left": np.where(is_leaf, np.arange(len(nodes)), nodes["left"] + first_node),
        "right": np.where(is_leaf, np.arange(len(nodes)), nodes["right"] + first_node),
        "is_leaf": is_leaf,
        "bitset": bitset,
        "bitsets": np.concatenate(
            [predictor["raw_left_cat_bitsets"] for predictor in predictors]
        ).astype(np.uint32),
        "roots": roots,
        "output": np.arange(len(predictors)) % n_outputs,
        "classes": np.asarray(getattr(trees, "classes_", []), dtype=np.int64),
        "categorical": categorical,
        "categories": categories_of(state, len(categorical)),
    }


def categories_of(state: Mapping[str, Any], n_categorical: int) -> list[np.ndarray]:
    """Return the known values of each categorical feature."""
    if not n_categorical:
        return []
    encoder = state["_preprocessor"]["transformers_"][0][1]
    return [np.asarray(values, dtype=np.float64) for values in encoder["categories_"]]
