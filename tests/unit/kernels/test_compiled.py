"""Compiled distances and exponentials: equal to SciPy's and to extended precision, for every shape and precision."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from scipy.spatial.distance import cdist

from learnkernels.kernels.compiled import cache
from learnkernels.kernels.compiled.distances import (
    DistanceSide,
    distances,
    exponentiate,
)

SHAPES = [(1, 1, 1), (4, 64, 3), (5, 37, 20), (9, 131, 70), (3, 2, 0)]
"""Rows, other rows and features: whole vectors and parts of them, whole runs of rows and parts."""

THEIRS = {"squared": "sqeuclidean", "euclidean": "euclidean", "cityblock": "cityblock"}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("metric", [*THEIRS, "differing"])
def test_distances_are_those_of_differences(metric, dtype):
    for a, b, d in SHAPES:
        rng = np.random.default_rng(0)
        A, B = (rng.integers(0, 3, size=(n, d)).astype(dtype) for n in (a, b))
        weights = rng.random(d) + 0.5
        if metric == "differing":
            expected = ((A[:, None] != B) * weights).sum(axis=2)
        else:
            A += rng.normal(size=A.shape).astype(dtype)
            expected = cdist(A, B, THEIRS[metric]) if d else np.zeros((a, b))
        found = distances(A, B, metric, weights)
        assert found.dtype == dtype
        rounding = (d + 4) * np.finfo(dtype).eps
        np.testing.assert_allclose(found, expected, rtol=rounding)
        gammas, out, same = [0.3, 0.01], *np.empty((2, 2, a, b), dtype=dtype)
        DistanceSide(B, metric, gammas, weights).fill(
            DistanceSide(A, metric, gammas, weights), out
        )
        for E, gamma in zip(out, gammas, strict=True):
            # The derivative of exp(-x) times x is at most 1/e.
            np.testing.assert_allclose(
                E, np.expm1(-gamma * expected), rtol=2 * rounding, atol=2 * rounding
            )
        exponentiate(expected, gammas, same)
        np.testing.assert_allclose(same, out, rtol=2 * rounding, atol=2 * rounding)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_exponentials_less_one_keep_their_digits_from_nearly_zero_to_minus_one(dtype):
    rng = np.random.default_rng(0)
    small = rng.random(2000) * 10.0 ** rng.integers(-30, 3, 2000)
    D = np.concatenate([small, np.linspace(0, 60, 2001), [1e300, np.inf]])
    with np.errstate(over="ignore"):
        D = D.astype(dtype)
    out = np.empty((1, 1, len(D)), dtype=dtype)
    for values in D, np.sort(D):  # vectors of near and far values, and of one kind
        exponentiate(values, [1.0], out)
        exact = np.expm1(-values.astype(np.longdouble))
        units = np.abs(out.ravel() - exact) / np.spacing(np.abs(exact).astype(dtype))
        assert units.max() < 2
        assert (out.min(), out.max()) == (-1, 0)
    exponentiate(np.array([0.5, np.nan], dtype=dtype), [1.0], out[..., :2])
    assert np.isnan(out[0, 0, 1])


def test_equal_rows_are_exactly_at_zero_however_far_out():
    X = 1e9 * np.random.default_rng(0).normal(size=(11, 5))
    for metric in THEIRS:
        np.testing.assert_array_equal(np.diag(distances(X, X.copy(), metric)), 0)


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (numba, "version_info", SimpleNamespace(short=(0, 62))),
        (numba, "version_info", SimpleNamespace(short=(1, 0))),
        (numba.config, "DISABLE_JIT", 1),
        (cache, "WITHOUT_SIMD", True),
    ],
)
def test_vector_code_is_not_used_where_it_was_not_tested_or_is_switched_off(
    monkeypatch, owner, name, value
):
    monkeypatch.setattr(owner, name, value)
    monkeypatch.delitem(
        sys.modules, "learnkernels.kernels.compiled.simd", raising=False
    )
    with pytest.raises(ImportError, match="vector code"):
        importlib.import_module("learnkernels.kernels.compiled.simd")


# The contents of the cache of compiled code ---------------------------------------------------------------------------


def test_code_that_was_compiled_for_a_class_of_another_name_is_not_read(
    tmp_path: Path, monkeypatch
):
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("Before", "After"):
        monkeypatch.delitem(sys.modules, "doubling", raising=False)
        (tmp_path / "doubling.py").write_text(
            "from typing import NamedTuple\nfrom learnkernels.kernels.compiled.cache import compiled\n\n"
            f"class {name}(NamedTuple):\n    number: int\n\n"
            "@compiled()\ndef double(one):\n    return 2 * one.number\n"
        )
        importlib.invalidate_caches()
        module = importlib.import_module("doubling")
        assert module.double(getattr(module, name)(21)) == 42


def test_code_that_was_compiled_for_a_package_of_another_name_is_not_read(
    tmp_path: Path, monkeypatch
):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "increment.py").write_text(
        "from learnkernels.kernels.compiled.cache import compiled\n\n"
        "@compiled()\ndef increment(number):\n    return number + 1\n"
    )
    names = set()
    for name in (cache.__name__, "kernels.compiled.cache"):
        monkeypatch.setattr(cache, "__name__", name)
        monkeypatch.delitem(sys.modules, "increment", raising=False)
        module = importlib.import_module("increment")
        names.add(module.increment.py_func.__qualname__)
    assert len(names) == 2
