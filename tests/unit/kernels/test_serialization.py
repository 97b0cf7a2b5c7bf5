"""Saved kernels: the same values bit by bit, plain data alone, and one sentence about a file that cannot be read."""

import hashlib
import io
import json
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load as tensors_of
from safetensors.numpy import save as tensors_to_bytes
from scipy import sparse

from learnkernels import (
    FamilyUnion,
    GaussianFamily,
    KernelLearningRegressor,
    LinearFamily,
    learn_kernel,
    load,
)
from learnkernels.kernels import families, learners
from learnkernels.kernels.families.base import KINDS
from learnkernels.kernels.files import from_bytes, from_data, to_bytes, to_data
from learnkernels.kernels.learned_kernel import LearnedKernel
from tests.refusals import require_refusals
from tests.unit.kernels.conftest import CASES

SAVED = ("gaussian-powers", "union-of-unions", "union-csr-array", "laplacian-euclidean-csr", "dirichlet-features",
         "union-with-features", "scaled-polynomial", "metric-matrix-csr")  # fmt: skip


def problem(m: int = 40, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(m, d)) + 1.0
    return X, np.sin(2 * X[:, 0]) + X[:, 0] * X[:, 1] + 0.3 * X[:, 2]


def gaussian_kernel() -> LearnedKernel:
    return learn_kernel(*problem(), learner="alignf", family=GaussianFamily([0.1, 0.7]))


def reread(value: Any) -> Any:
    """Return what comes back of a value that is written without a file of its own."""
    arrays: dict[str, np.ndarray] = {}
    return from_data(
        json.loads(json.dumps(to_data(value, arrays, "value"), allow_nan=False)), arrays
    )


def assert_same_bits(got: np.ndarray, expected: np.ndarray) -> None:
    assert (got.dtype, got.shape, got.tobytes()) == (
        expected.dtype,
        expected.shape,
        expected.tobytes(),
    )


def assert_same_kernel(got: LearnedKernel, expected: LearnedKernel) -> None:
    for item in fields(LearnedKernel):
        new, old = getattr(got, item.name), getattr(expected, item.name)
        assert type(new) is type(old) or isinstance(old, np.generic), item.name
        if item.name == "family":
            assert (new.names, new) == (old.names, old)
        elif sparse.issparse(old):
            assert new.shape == old.shape
            for part in ("data", "indices", "indptr"):
                assert_same_bits(getattr(new, part), getattr(old, part))
        elif isinstance(old, np.ndarray):
            assert_same_bits(new, old)
        else:
            assert new == old, item.name


def refusal(read, *args) -> str:
    """Return the sentence that says what to do, and hides no other error."""
    with pytest.raises(ValueError, match=r"^[^\n]*\.$") as caught:
        read(*args)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


def opened(content: bytes) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays of a file, and its description."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return tensors_of(content), json.loads(header["__metadata__"]["learnkernels"][64:])


def sealed(arrays: dict[str, np.ndarray], text: str) -> bytes:
    """Return a file of arrays and a text with its checksum, as whoever wants to deceive can write it."""
    unsealed = tensors_to_bytes(arrays, {"learnkernels": "0" * 64 + text})
    return unsealed.replace(b"0" * 64, hashlib.sha256(unsealed).hexdigest().encode(), 1)


def reading(
    arrays: dict[str, np.ndarray], description: dict[str, Any]
) -> Callable[[], Any]:
    return partial(from_bytes, sealed(arrays, json.dumps(description)))


def changed(value: Any, *changes: tuple[str, Any]) -> Callable[[], Any]:
    """Return the reading of an object of which some parameters, by dotted path, are other data in the file."""
    arrays, description = opened(to_bytes(value))
    for path, data in changes:
        *before, last = path.split(".")
        states = [description["content"]]
        for name in before:
            states = [state[name] for state in states_in(states) if name in state]
        (state,) = [state for state in states_in(states) if last in state]
        if data is ...:
            del state[last]
        else:
            state[last] = data
    return reading(arrays, description)


def states_in(objects: list[Any]) -> list[dict[str, Any]]:
    """Return the named parts of objects in a description: parameters, and fitted attributes."""
    ((content,),) = [tuple(data.values()) for data in objects]
    return content[1:]


def not_finite(
    arrays: dict[str, np.ndarray], name: str
) -> Iterator[dict[str, np.ndarray]]:
    """Yield arrays of which one has a value that is not finite."""
    for value in (np.nan, np.inf, -np.inf):
        array = arrays[name].copy()
        array.flat[0] = value
        yield {**arrays, name: array}


# Round trips ---------------------------------------------------------------------------------------------------------


def of_case(name: str) -> tuple[LearnedKernel, object]:
    case = next(case for case in CASES if case.name == name)
    X, X_new = case.X[6:], case.X[:6]
    dense = X.toarray() if sparse.issparse(X) else X
    y = np.sin(2 * dense[:, 0]) + dense[:, 0] * dense[:, -1] + 0.5 * dense[:, -1]
    return learn_kernel(
        X, y, learner=learners.AlignfLinear(dependent="subset"), family=case.family
    ), X_new


def of_features(kind) -> tuple[LearnedKernel, object]:
    V = np.random.default_rng(3).poisson(0.6, size=(30, 40)).astype(float)
    names = [f"n-gram {k} \N{GREEK SMALL LETTER MU} '\"\\" for k in range(39)]
    family = families.FeatureFamily(names, np.arange(39)[::-1])
    return learn_kernel(
        kind(V), V[:, 0] - V[:, 3], learner="align", family=family
    ), kind(V)[:4]


MADE = {name: partial(of_case, name) for name in SAVED} | {
    kind.__name__: partial(of_features, kind)
    for kind in (np.asarray, sparse.csr_matrix, sparse.csr_array)
}
"""Makers of a learned kernel and new rows, by name."""


@pytest.mark.parametrize("name", MADE)
def test_a_kernel_comes_back_bit_by_bit(name):
    kernel, X_new = MADE[name]()
    back = from_bytes(to_bytes(kernel))
    assert_same_kernel(back, kernel)
    assert_same_bits(back.gram(), kernel.gram())
    assert_same_bits(back.cross_gram(X_new), kernel.cross_gram(X_new))


def test_numbers_outside_json_and_rows_in_another_memory_order_come_back():
    certificate = learners.Certificate(
        "duality gap", np.inf, 5e-324, 7, (np.inf, 0.1 + 0.2, -np.inf, 1 / 3)
    )
    kernel = replace(
        gaussian_kernel(), certificate=certificate, C=np.nextafter(1.0, 2.0)
    )
    kernel = replace(kernel, X=np.asfortranarray(kernel.X))
    back = from_bytes(to_bytes(kernel))
    assert_same_kernel(back, kernel)
    assert back.X.flags.f_contiguous
    assert_same_bits(back.gram(), kernel.gram())
    assert_same_bits(back.cross_gram(kernel.X[:5]), kernel.cross_gram(kernel.X[:5]))
    assert np.isnan(
        from_bytes(to_bytes(replace(kernel, alignment=float("nan")))).alignment
    )


def test_a_kernel_goes_through_a_file_as_plain_arrays(tmp_path: Path):
    kernel, path = gaussian_kernel(), tmp_path / "name without ending"
    kernel.save(str(path))
    assert_same_kernel(load(path), kernel)
    first = path.read_bytes()
    load(str(path)).save(path)
    assert path.read_bytes() == first == to_bytes(kernel)
    arrays, description = opened(first)
    assert {array.dtype.kind for array in arrays.values()} <= {"f", "i"}
    # Other readers of JSON know no infinity.
    json.loads(json.dumps(description), parse_constant=pytest.fail)


def test_a_file_is_written_as_a_whole_and_for_whom_other_files_are(tmp_path: Path):
    path, plain = tmp_path / "kernel.safetensors", tmp_path / "plain"
    gaussian_kernel().save(path)
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    before, reader = path.read_bytes(), path.open("rb")
    with reader:
        replace(gaussian_kernel(), C=3.0).save(path)
        # Who has opened the earlier file goes on reading it
        assert reader.read() == before
    assert sorted(tmp_path.iterdir()) == [path, plain]
    with pytest.raises(ValueError, match="must be finite"):
        replace(gaussian_kernel(), offset=np.nan).save(path)
    assert load(path).C == 3.0
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        gaussian_kernel().save(folder / "inner")
    assert os.listdir(folder) == ["inner"]


# Families ------------------------------------------------------------------------------------------------------------

FAMILIES = [case.family for case in CASES if case.name != "precomputed"] + [
    families.CategoricalFamily([0.1 + 0.2, 64.0]),
    families.CategoricalFamily([1.0], [1 / 3, 2.0]),
    families.ConstantFamily(),
    families.DirichletFamily([0.1, 1e-300], 3),
    families.FeatureFamily(["a'b", "b"], [4, 0]),
    families.FeatureFamily.with_constant(2),
    GaussianFamily([0.1 + 0.2, 1e308, 5e-324, 2.0**-20, 2.0**40]),
    families.MetricFamily(
        families.LaplacianFamily([0.3], norm=2), [0.1, 0.0, 1 / 3], "one"
    ),
    families.MetricFamily(LinearFamily(), [[0.1, 1e300], [1 / 3, -0.2]]),
    families.NormalScoresFamily(
        GaussianFamily([0.1, 3.0]), [[[-0.1, -1 / 3], [1e9, 0.7]], None]
    ),
    families.ScaledFamily(
        families.DirichletFamily([1.0], 2), [[0.1, 3.0], [1 / 3, 2.0]], ["same", "same"]
    ),
    FamilyUnion(
        [LinearFamily(), FamilyUnion([LinearFamily()], [[1]])],
        [None, [2, 0]],
        ["a", None],
    ),
]


def test_a_family_comes_back_from_its_json_text():
    # Tests add their own
    ours = {
        kind for kind in KINDS.values() if kind.__module__.startswith("learnkernels.")
    }
    assert {type(family) for family in FAMILIES} == ours
    for family in FAMILIES:
        back = reread(family)
        assert type(back) is type(family)
        assert back.names == family.names
        assert repr(back) == repr(family)
        assert back == family


def test_what_no_file_can_hold_is_not_saved(tmp_path: Path):
    class Own(LinearFamily):
        pass

    class Gaussian(LinearFamily):
        kind = "gaussian"

    assert KINDS["gaussian"] is GaussianFamily
    matrices = families.PrecomputedFamily(np.eye(4)[None])
    refused = [
        (partial(to_data, family, {}, ""), type(family).__name__)
        for family in (Own(), Gaussian(), matrices)
    ]
    refused.append(
        (
            partial(to_data, FamilyUnion([LinearFamily(), matrices]), {}, ""),
            "families.1 must be",
        )
    )
    kernel, path = gaussian_kernel(), tmp_path / "kernel.safetensors"
    precomputed = families.PrecomputedFamily(np.stack([np.eye(40)] * 2))
    changes = [
        (
            {
                "family": precomputed,
                "X": np.arange(40.0)[:, None],
                "origin": np.zeros(1),
            },
            "matrices",
        )
    ]
    changes += [
        ({"scales": np.zeros(2)}, "scales"),
        ({"learner": b"bytes"}, "learner must be numbers, texts"),
    ]
    changes += [
        ({"parameters": np.ones(shape)}, "parameters")
        for shape in ((2,), (3, 1), (2, 1, 1))
    ]
    changes += [
        (
            {"alignments": np.ones(2, dtype=np.longdouble)},
            "alignments must hold numbers",
        )
    ]
    refused += [
        (partial(replace(kernel, **fields).save, path), said)
        for fields, said in changes
    ]
    require_refusals(refused, literal=True, by=refusal)
    assert not list(tmp_path.iterdir())


def test_a_family_of_another_class_with_its_own_kind_comes_back():
    class Own(LinearFamily):
        kind = "own"

        def __init__(self, note: str = "") -> None:
            self.note = note

    union = FamilyUnion([LinearFamily(), Own("of mine")])
    try:
        assert reread(union) == union
    finally:
        del KINDS["own"]


NO_FAMILIES = [
    (None, "family of LearnedKernel cannot be None"),
    ({}, "unpack"),
    ({"family": ["os.system", {}]}, "os.system"),
    ({"family": [["gaussian"], {}]}, "known kind"),
    ({"family": ["precomputed", {}]}, "precomputed"),
    ({"os.system": ["true"]}, "known kind"),
    ({"record": ["Certificate", {}]}, "must have the parameters"),
    ({"family": ["gaussian", {"gammas": 1.0}]}, "gammas must be a sequence"),
    ({"family": ["gaussian", {"gammas": [True]}]}, "gammas must be positive"),
    ({"family": ["gaussian", {"gammas": ["1"]}]}, "gammas must be positive"),
    ({"family": ["gaussian", {"gammas": [-1.0]}]}, "positive"),
    ({"family": ["gaussian", {"gammas": [1.0], "more": 1}]}, "parameters gammas"),
    ({"family": ["laplacian", {"gammas": [10**400], "norm": 1}]}, "too large"),
    (
        {"family": ["polynomial", {"degrees": [2.5], "gamma": 1.0, "coef0": 1.0}]},
        "whole number",
    ),
    (
        {"family": ["polynomial", {"degrees": [2], "gamma": None, "coef0": 1.0}]},
        "gamma",
    ),
    ({"family": ["dirichlet", {"frequencies": [1.0], "degree": "x"}]}, "degree"),
    (
        {
            "family": [
                "scaled",
                {
                    "base": {"family": ["linear", {}]},
                    "scales": [[1.0], [1.0, 2.0]],
                    "names": None,
                },
            ]
        },
        "sca",
    ),
    ({"family": ["scaled", {"scales": [[1.0]], "names": ["a"]}]}, "parameters base"),
    (
        {
            "family": [
                "union",
                {
                    "families": [{"family": ["linear", {}]}],
                    "columns": [[0.5]],
                    "views": None,
                },
            ]
        },
        "columns",
    ),
]


def test_data_of_no_family_are_refused():
    refused = [
        (changed(gaussian_kernel(), ("family", data)), said)
        for data, said in NO_FAMILIES
    ]
    require_refusals(refused, literal=True, by=refusal)


# What cannot be read -------------------------------------------------------------------------------------------------

LINEAR = {"family": ["linear", {}]}

CERTIFICATE = {
    "measure": "x",
    "residual": 0,
    "tol": 0,
    "iterations": 0,
    "objectives": {"tuple": [{}]},
}

CHANGED = [
    ("learner", 3, "learner"),
    ("learner", ..., "parameters"),
    ("normalize", "length", "normalize"),
    ("centering", {"centering": "left"}, "left"),
    ("alignment", "high", "alignment"),
    ("degree", 0, "degree"),
    ("degree", 1.5, "degree"),
    ("degree", True, "degree"),
    ("offset", {"number": "inf"}, "offset must be finite"),
    ("offset", {"number": "1"}, "known kind"),
    ("C", [], "C of"),
    ("certificate", "good", "certificate"),
    ("certificate", {"record": ["Certificate", {}]}, "measure"),
    ("certificate", {"record": ["Certificate", CERTIFICATE]}, "unpack"),
    ("X", {"array": "none"}, "none"),
    ("X", {"csr_matrix": []}, "missing"),
    (
        "family",
        {"family": ["gaussian", {"gammas": {"tuple": [1.0]}}]},
        "weights must have shape (1,)",
    ),
    (
        "family",
        {
            "family": [
                "union",
                {"families": [LINEAR] * 2, "columns": [[0], [99]], "views": None},
            ]
        },
        "must fit",
    ),
]


def test_a_description_that_was_changed_is_refused():
    kernel = gaussian_kernel()
    refused = [(changed(kernel, (name, data)), said) for name, data, said in CHANGED]
    # Beyond the numbers of a computer.
    beyond = {
        "family": [
            "dirichlet",
            {"frequencies": [1.0] * len(kernel.weights), "degree": 10**18},
        ]
    }
    wide = replace(kernel, X=np.zeros((len(kernel.rows), 50)), origin=np.zeros(50))
    refused.append(
        (
            changed(wide, ("family", beyond)),
            "the family must fit training rows of 50 features",
        )
    )
    require_refusals(refused, literal=True, by=refusal)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        "null",
        '{"version": 2}',
        "[" * 100_000,
        '{"version": ' + "1" * 5000,
    ],
)
def test_a_text_that_describes_nothing_is_refused(text: str):
    refusal(from_bytes, sealed({}, text))


def test_unions_in_unions_without_end_are_refused():
    union = '{"family": ["union", {"columns": null, "views": null, "families": ['
    nested = union * 400 + '{"family": ["linear", {}]}' + "]}]}" * 400
    refusal(
        from_bytes,
        sealed({}, f'{{"format": "learnkernels", "version": 2, "content": {nested}}}'),
    )


@pytest.mark.parametrize("version", [1, 3, 0, "2", None, 1.5])
def test_a_file_of_another_version_is_refused(version: object):
    arrays, description = opened(to_bytes(gaussian_kernel()))
    said = refusal(reading(arrays, {**description, "version": version}))
    assert (
        f"has version {version!r}, and this release reads version 2; load it with the release that wrote it"
        in said
    )


def test_arrays_that_are_missing_or_changed_are_refused():
    arrays, description = opened(to_bytes(gaussian_kernel()))
    wrong = [
        lambda array: array[:-1],
        lambda array: array[None],
        lambda array: array.astype(bool),
    ]
    refused = []
    for name, array in arrays.items():
        missing = {key: other for key, other in arrays.items() if key != name}
        refused.append((reading(missing, description), name))
        refused += [
            (reading({**arrays, name: change(array)}, description), "")
            for change in wrong
        ]
    for name in ("weights", "scales", "shift", "origin", "row_means", "X"):
        refused += [
            (reading(spoiled, description), f"{name} must be finite")
            for spoiled in not_finite(arrays, name)
        ]
    require_refusals(refused, literal=True, by=refusal)


def test_sparse_rows_that_point_outside_are_refused():
    V = np.random.default_rng(0).poisson(0.5, size=(20, 6)).astype(float)
    kernel = learn_kernel(
        sparse.csr_matrix(V), V[:, 0], learner="align", family=GaussianFamily([0.1])
    )
    arrays, description = opened(to_bytes(kernel))
    data, indices, indptr = (arrays[f"X.{part}"] for part in range(3))
    wrong = {
        "X.0": [data[:-1], data.reshape(1, -1)],
        "X.1": [
            indices + 1_000_000,
            -1 - indices,
            indices[:-1],
            indices.reshape(1, -1),
        ],
        "X.2": [indptr[::-1].copy(), indptr + 1, indptr[:-1]],
    }
    refused = [
        (reading({**arrays, name: array}, description), "")
        for name, others in wrong.items()
        for array in others
    ]
    parts = [{"array": f"X.{part}"} for part in range(3)]
    for shape in ([20], [-20, 6], [20 * 2**40, 6], [20, 2**70]):
        refused.append(
            (changed(kernel, ("X", {"csr_matrix": [*parts, {"tuple": shape}]})), "")
        )
    require_refusals(refused, by=refusal)


REPLACED = [
    None,
    True,
    7,
    -1.5,
    "text",
    [],
    [[]],
    {},
    {"tuple": []},
    {"dict": []},
    {"number": "nan"},
    LINEAR,
]
REPLACED += [
    {"texts": [2, ["no"]]},
    {"texts": [None, [1]]},
    {"array": "X"},
    {"centering": "none"},
]


def places_in(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in a description: a list or a dictionary, and a position or key in it."""
    for key in data if isinstance(data, dict) else range(len(data)):
        yield data, key
        if isinstance(data[key], dict | list):
            yield from places_in(data[key])


def is_refused(act: Callable[[], object]) -> bool:
    """Return whether something is refused, in one line."""
    try:
        act()
    except ValueError as error:
        return "\n" not in str(error)
    return False


@pytest.mark.parametrize("replaced", REPLACED, ids=str)
def test_whatever_stands_in_a_place_of_a_file_it_is_refused_in_a_sentence_or_gives_a_kernel(
    replaced: Any,
):
    kernel = replace(
        gaussian_kernel(),
        certificate=learners.Certificate("duality gap", 0.0, 1e-6, 1, (1.0, 0.5)),
    )
    arrays, description = opened(to_bytes(kernel))
    n_refused = 0
    for place, key in list(places_in(description["content"]["record"][1])):
        before = place[key]
        place[key] = replaced
        n_refused += is_refused(
            lambda: reading(arrays, description)().cross_gram(kernel.X[:2])
        )
        place[key] = before
    assert n_refused > 10


def test_a_file_that_is_cut_changed_or_continued_anywhere_is_refused(tmp_path: Path):
    content = to_bytes(gaussian_kernel())
    for stop in range(0, len(content), 23):
        refusal(from_bytes, content[:stop])
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        refusal(from_bytes, bytes(damaged))
    refusal(from_bytes, content + b"\0")
    refusal(from_bytes, b"\0" + content)
    path = tmp_path / "cut.safetensors"
    path.write_bytes(content[: len(content) // 2])
    assert f"{path}: is damaged" in refusal(load, path)


def test_files_of_other_kinds_are_refused(tmp_path: Path):
    pickled, arrays = io.BytesIO(), io.BytesIO()
    np.save(pickled, np.array([None]), allow_pickle=True)
    np.savez(arrays, weights=np.ones(3))
    family = {"format": "learnkernels", "version": 2, "content": LINEAR}
    contents = {
        "nothing": b"",
        "text": b"hello",
        "zeros": bytes(1000),
        "pickle": pickled.getvalue(),
        "npz": arrays.getvalue(),
        "tensors": tensors_to_bytes({"weights": np.ones(3)}),
        "described": tensors_to_bytes({"weights": np.ones(3)}, {"learnkernels": "{}"}),
        "other": tensors_to_bytes({"weights": np.ones(3)}, {"format": "pt"}),
        "family": sealed({}, json.dumps(family)),
    }
    refused = []
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        said = (
            "holds no sound model (it is a LinearFamily)"
            if name == "family"
            else "is damaged"
        )
        refused.append((partial(load, tmp_path / name), f"{tmp_path / name}: {said}"))
    require_refusals(refused, literal=True, by=refusal)
    for path, kind in (
        (tmp_path / "none.safetensors", FileNotFoundError),
        (tmp_path, IsADirectoryError),
    ):
        with pytest.raises(kind):
            load(path)


def test_an_estimator_that_is_not_fitted_is_not_saved(tmp_path: Path):
    assert "not fitted" in refusal(
        KernelLearningRegressor().save, tmp_path / "model.safetensors"
    )
    assert not list(tmp_path.iterdir())
