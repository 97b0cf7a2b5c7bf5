"""Boosted trees of scikit-learn as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np


def trees_as_parts(trees: Any, n_outputs: int) -> dict[str, Any]:
    """Return the nodes of histogram-based boosted trees as arrays.

    `left`, `right` and `roots` are positions of nodes, `output` the output that a tree
    adds to.
    """
    state = trees.__getstate__()
    predictors = [
        predictor for iteration in state["_predictors"] for predictor in iteration
    ]
    sizes = [len(predictor.nodes) for predictor in predictors]
    roots = np.cumsum([0, *sizes[:-1]])
    n_bitsets = np.cumsum(
        [0, *(len(predictor.raw_left_cat_bitsets) for predictor in predictors[:-1])]
    )
    nodes = np.concatenate([predictor.nodes for predictor in predictors])
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
            [predictor.raw_left_cat_bitsets for predictor in predictors]
        ).astype(np.uint32),
        "roots": roots,
        "output": np.arange(len(predictors)) % n_outputs,
        "classes": np.asarray(getattr(trees, "classes_", []), dtype=np.int64),
        "categorical": categorical,
        "categories": categories_of(state["_preprocessor"]),
    }


def categories_of(preprocessor: Any) -> list[np.ndarray]:
    """Return the known values of each categorical feature."""
    if preprocessor is None:
        return []
    encoder = preprocessor.named_transformers_["encoder"]
    return [np.asarray(values, dtype=np.float64) for values in encoder.categories_]
