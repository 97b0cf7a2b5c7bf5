"""Saved kernels: the same values bit by bit, plain data alone, and one sentence about what cannot be read."""

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import fields, replace
from functools import partial

import numpy as np
import pytest
from scipy import sparse

from learnkernels import (
    FamilyUnion,
    GaussianFamily,
    KernelLearningRegressor,
    LinearFamily,
    learn_kernel,
    load_kernel,
    save_kernel,
)
from learnkernels.kernels import families, learners
from learnkernels.kernels.families.base import KINDS
from learnkernels.kernels.learned import LearnedKernel
from learnkernels.kernels.persistence.kernel import DESCRIPTION, kernel_from_arrays, kernel_to_arrays
from tests.refusals import require_refusals
from tests.unit.kernels.conftest import CASES

SAVED = ("gaussian-powers", "union-of-unions", "union-csr-array", "laplacian-euclidean-csr", "dirichlet-features",
         "union-with-features", "scaled-polynomial", "metric-matrix-csr")  # fmt: skip


def problem(m: int = 40, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(m, d)) + 1.0
    return X, np.sin(2 * X[:, 0]) + X[:, 0] * X[:, 1] + 0.3 * X[:, 2]


def gaussian_kernel() -> LearnedKernel:
    return learn_kernel("alignf", GaussianFamily([0.1, 0.7]), *problem())


def saved(kernel: LearnedKernel) -> bytes:
    file = io.BytesIO()
    save_kernel(kernel, file)
    return file.getvalue()


def loaded(content: bytes) -> LearnedKernel:
    return load_kernel(io.BytesIO(content))


def assert_same_bits(got: np.ndarray, expected: np.ndarray) -> None:
    assert (got.dtype, got.shape, got.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


def assert_same_kernel(got: LearnedKernel, expected: LearnedKernel) -> None:
    for item in fields(LearnedKernel):
        new, old = getattr(got, item.name), getattr(expected, item.name)
        assert type(new) is type(old) or isinstance(old, np.generic), item.name
        if item.name == "family":
            assert (new.names, new.to_dict()) == (old.names, old.to_dict())
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


NO_TEXTS = (b"", b"{", b"\xff\xfe", b"[1]", b"null", b'{"a": NaN}', b"[" * 100_000, b"1" * 5000)


def as_text(content: bytes) -> np.ndarray:
    return np.frombuffer(content, dtype=np.uint8)


def description(arrays: dict[str, np.ndarray]) -> dict:
    return json.loads(arrays[DESCRIPTION].tobytes())


def of_arrays(arrays: dict[str, np.ndarray]) -> Callable[[], LearnedKernel]:
    return partial(kernel_from_arrays, arrays)


def not_finite(arrays: dict[str, np.ndarray], name: str) -> Iterator[dict[str, np.ndarray]]:
    """Yield arrays of which one has a value that is not finite."""
    for value in (np.nan, np.inf, -np.inf):
        array = arrays[name].copy()
        array.flat[0] = value
        yield {**arrays, name: array}


def changed(kernel: LearnedKernel, **changes) -> Callable[[], LearnedKernel]:
    """Return the reading of a kernel with other entries in its description; an ellipsis takes one out."""
    arrays = kernel_to_arrays(kernel)
    content = {name: value for name, value in {**description(arrays), **changes}.items() if value is not ...}
    return of_arrays({**arrays, DESCRIPTION: as_text(json.dumps(content).encode())})


# Round trips ---------------------------------------------------------------------------------------------------------


def of_case(name: str) -> tuple[LearnedKernel, object]:
    case = next(case for case in CASES if case.name == name)
    X, X_new = case.X[6:], case.X[:6]
    dense = X.toarray() if sparse.issparse(X) else X
    y = np.sin(2 * dense[:, 0]) + dense[:, 0] * dense[:, -1] + 0.5 * dense[:, -1]
    return learn_kernel(learners.AlignfLinear(dependent="subset"), case.family, X, y), X_new


def of_features(kind) -> tuple[LearnedKernel, object]:
    V = np.random.default_rng(3).poisson(0.6, size=(30, 40)).astype(float)
    names = [f"n-gram {k} \N{GREEK SMALL LETTER MU} '\"\\" for k in range(39)]
    family = families.FeatureFamily(names, np.arange(39)[::-1])
    return learn_kernel("align", family, kind(V), V[:, 0] - V[:, 3]), kind(V)[:4]


MADE = {name: partial(of_case, name) for name in SAVED} | {
    kind.__name__: partial(of_features, kind) for kind in (np.asarray, sparse.csr_matrix, sparse.csr_array)
}
"""Makers of a learned kernel and new rows, by name."""


@pytest.mark.parametrize("name", MADE)
def test_a_kernel_comes_back_bit_by_bit(name):
    kernel, X_new = MADE[name]()
    back = loaded(saved(kernel))
    assert_same_kernel(back, kernel)
    assert_same_bits(back.gram(), kernel.gram())
    assert_same_bits(back.cross_gram(X_new), kernel.cross_gram(X_new))


def test_numbers_outside_json_and_rows_in_another_memory_order_come_back():
    certificate = learners.Certificate("duality gap", np.inf, 5e-324, 7, (np.inf, 0.1 + 0.2, -np.inf, 1 / 3))
    kernel = replace(gaussian_kernel(), certificate=certificate, C=np.nextafter(1.0, 2.0))
    kernel = replace(kernel, X=np.asfortranarray(kernel.X))
    back = loaded(saved(kernel))
    assert_same_kernel(back, kernel)
    assert back.X.flags.f_contiguous
    assert_same_bits(back.gram(), kernel.gram())
    assert_same_bits(back.cross_gram(kernel.X[:5]), kernel.cross_gram(kernel.X[:5]))
    assert np.isnan(loaded(saved(replace(kernel, alignment=float("nan")))).alignment)
    # Other readers of JSON know no infinity.
    json.loads(kernel_to_arrays(kernel)[DESCRIPTION].tobytes(), parse_constant=pytest.fail)


def test_a_kernel_goes_through_a_path_and_an_open_file_as_plain_arrays(tmp_path):
    kernel = gaussian_kernel()
    path = tmp_path / "kernel.npz"
    save_kernel(kernel, path)
    assert_same_kernel(load_kernel(path), kernel)
    with path.open("wb") as file:
        save_kernel(kernel, file)
    assert path.read_bytes() == saved(kernel) == saved(load_kernel(path))
    with np.load(path, allow_pickle=False) as arrays:
        assert {array.dtype.kind for array in arrays.values()} <= {"f", "i", "u"}
        more = {**arrays, "folds": np.zeros(3, dtype=int)}
    assert_same_kernel(kernel_from_arrays(more), kernel)  # what is beside the kernel is left alone


# Families ------------------------------------------------------------------------------------------------------------

FAMILIES = [case.family for case in CASES if case.name != "precomputed"] + [
    families.CategoricalFamily([0.1 + 0.2, 64.0]),
    families.CategoricalFamily([1.0], [1 / 3, 2.0]),
    families.ConstantFamily(),
    families.DirichletFamily([0.1, 1e-300], 3),
    families.FeatureFamily(["a'b", "b"], [4, 0]),
    families.FeatureFamily.with_constant(2),
    GaussianFamily([0.1 + 0.2, 1e308, 5e-324, 2.0**-20, 2.0**40]),
    families.MetricFamily(families.LaplacianFamily([0.3], norm=2), [0.1, 0.0, 1 / 3], "one"),
    families.MetricFamily(LinearFamily(), [[0.1, 1e300], [1 / 3, -0.2]]),
    families.NormalScoresFamily(GaussianFamily([0.1, 3.0]), [[[-0.1, -1 / 3], [1e9, 0.7]], None]),
    families.ScaledFamily(families.DirichletFamily([1.0], 2), [[0.1, 3.0], [1 / 3, 2.0]], ["same", "same"]),
    FamilyUnion([LinearFamily(), FamilyUnion([LinearFamily()], [[1]])], [None, [2, 0]], ["a", None]),
]


def test_a_family_comes_back_from_its_json_text():
    ours = {kind for kind in KINDS.values() if kind.__module__.startswith("learnkernels.")}  # tests add their own
    assert {type(family) for family in FAMILIES} == ours
    for family in FAMILIES:
        back = families.family_from_dict(json.loads(json.dumps(family.to_dict(), allow_nan=False)))
        assert type(back) is type(family)
        assert back.names == family.names
        assert repr(back) == repr(family)
        assert back.to_dict() == family.to_dict()


def test_what_no_file_can_hold_is_not_saved():
    class Own(LinearFamily):
        pass

    class Gaussian(LinearFamily):
        kind = "gaussian"

    assert KINDS["gaussian"] is GaussianFamily
    for own in (Own, Gaussian):
        assert own.__name__ in refusal(own().to_dict)
    matrices = families.PrecomputedFamily(np.eye(4)[None])
    for family in (matrices, FamilyUnion([LinearFamily(), matrices])):
        assert "matrices" in refusal(family.to_dict)
    kernel, file = gaussian_kernel(), io.BytesIO()
    given = families.PrecomputedFamily(np.stack([np.eye(40)] * 2))
    refused = [({"family": given, "X": np.arange(40.0)[:, None], "origin": np.zeros(1)}, "matrices")]
    refused += [({"scales": np.zeros(2)}, "scales")]
    refused += [({"parameters": np.ones(shape)}, "(2, r)") for shape in ((2,), (3, 1), (2, 1, 1))]
    rows = ((partial(save_kernel, replace(kernel, **of), file), said) for of, said in refused)
    require_refusals(rows, literal=True, by=refusal)
    assert file.getvalue() == b""


def test_a_family_of_another_class_with_its_own_kind_comes_back():
    class Own(LinearFamily):
        kind = "own"

        def __init__(self, note: str = "") -> None:
            self.note = note

        @classmethod
        def from_dict(cls, data):
            return cls(data["note"])

    union = FamilyUnion([LinearFamily(), Own("of mine")])
    try:
        assert families.family_from_dict(json.loads(json.dumps(union.to_dict()))) == union
    finally:
        del KINDS["own"]


NO_FAMILIES = [
    (None, "an object"),
    ({}, "kind"),
    ({"kind": "os.system"}, "os.system"),
    ({"kind": ["gaussian"]}, "one of"),
    ({"kind": "precomputed"}, "one of"),
    ({"kind": "gaussian", "gammas": 1.0}, "a list"),
    ({"kind": "gaussian", "gammas": [True]}, "a finite number"),
    ({"kind": "gaussian", "gammas": ["1"]}, "a finite number"),
    ({"kind": "gaussian", "gammas": [-1.0]}, "positive"),
    ({"kind": "laplacian", "gammas": [10**400]}, "a finite number"),
    ({"kind": "polynomial", "degrees": [2.0], "gamma": 1.0, "coef0": 1.0}, "a whole number"),
    ({"kind": "polynomial", "degrees": [2], "gamma": None, "coef0": 1.0}, "gamma"),
    ({"kind": "dirichlet", "frequencies": [1.0], "degree": True}, "degree"),
    ({"kind": "feature", "features": 3, "columns": [0, 1, 2]}, "features"),
    ({"kind": "feature", "features": [1], "columns": [0]}, "a text"),
    ({"kind": "feature", "features": ["a"], "columns": [10**30]}, "columns"),
    ({"kind": "scaled", "base": {"kind": "linear"}, "scales": [[1.0], [1.0, 2.0]], "names": ["a", "b"]}, "length"),
    ({"kind": "scaled", "scales": [[1.0]], "names": ["a"]}, "an object"),
    ({"kind": "union", "families": [{"kind": "x"}], "columns": [None], "views": [None]}, "one of"),
    ({"kind": "union", "families": [{"kind": "linear"}], "columns": [[0.5]], "views": [None]}, "whole number"),
]


def test_data_of_no_family_are_refused():
    kernel = gaussian_kernel()
    require_refusals(((partial(families.family_from_dict, data), said) for data, said in NO_FAMILIES), literal=True)
    require_refusals(((changed(kernel, family=data), said) for data, said in NO_FAMILIES), literal=True, by=refusal)


# What cannot be read -------------------------------------------------------------------------------------------------


UNION_OUTSIDE = {"kind": "union", "families": [{"kind": "linear"}] * 2, "columns": [[0], [99]], "views": [None, None]}

CHANGED = [
    ({"format": "another"}, "format"),
    ({"version": 3}, "version of a saved kernel must be 1, got 3; read it with the release"),
    ({"version": True}, "version"),
    ({"version": ...}, "got nothing"),
    ({"learner": 3}, "learner"),
    ({"normalize": "length"}, "trace, frobenius, none"),
    ({"alignment": "high"}, "alignment"),
    ({"degree": 0}, "degree"),
    ({"degree": 1.5}, "degree"),
    ({"offset": "inf"}, "offset must be finite"),
    ({"C": []}, "C of"),
    ({"storage": "csr_matrix"}, "X_data"),
    ({"storage": "numpy.matrix"}, "storage"),
    ({"certificate": "good"}, "certificate"),
    ({"certificate": {}}, "measure"),
    ({"certificate": {"measure": "x", "residual": 0, "tolerance": 0, "iterations": 0, "objectives": [{}]}}, "objec"),
    ({"family": ...}, "family"),
    ({"family": {"kind": "gaussian", "gammas": [1.0]}}, "weights must have shape (1,)"),
    ({"family": UNION_OUTSIDE}, "must fit"),
]


def test_a_description_that_was_changed_is_refused():
    kernel = gaussian_kernel()
    arrays = kernel_to_arrays(kernel)
    # Unions in unions without end.
    union = '{"kind": "union", "columns": [null], "views": [null], "families": ['
    text = json.dumps(description(arrays) | {"family": "HERE"})
    text = text.replace('"HERE"', union * 400 + '{"kind": "linear"}' + "]}" * 400)
    texts = [*((content, DESCRIPTION) for content in NO_TEXTS), (text.encode(), "family")]
    refused = [(of_arrays({**arrays, DESCRIPTION: as_text(content)}), said) for content, said in texts]
    refused += [(changed(kernel, **changes), said) for changes, said in CHANGED]
    # Beyond the numbers of a computer.
    beyond = {"kind": "dirichlet", "frequencies": [1.0] * len(kernel.weights), "degree": 10**18}
    wide = replace(kernel, X=np.zeros((len(kernel.rows), 50)), origin=np.zeros(50))
    refused.append((changed(wide, family=beyond), "the family must fit training rows of 50 features"))
    require_refusals(refused, literal=True, by=refusal)


def test_arrays_that_are_missing_or_changed_are_named():
    arrays = kernel_to_arrays(gaussian_kernel())
    wrong = [lambda array: array[:-1], lambda array: array[None]]  # another shape
    wrong += [lambda array, dtype=dtype: array.astype(dtype) for dtype in ("U", object, complex)]
    refused = []
    for name, array in arrays.items():
        missing = {key: one for key, one in arrays.items() if key != name}
        refused.append((of_arrays(missing), f"must hold {name!r}"))
        refused += [(of_arrays({**arrays, name: change(array)}), "" if name == "X" else name) for change in wrong]
    for name in ("weights", "scales", "shift", "origin", "row_means", "X"):
        refused += [(of_arrays(spoiled), f"{name} must be finite") for spoiled in not_finite(arrays, name)]
    require_refusals(refused, literal=True, by=refusal)


def test_sparse_rows_that_point_outside_are_refused():
    V = np.random.default_rng(0).poisson(0.5, size=(20, 6)).astype(float)
    arrays = kernel_to_arrays(learn_kernel("align", GaussianFamily([0.1]), sparse.csr_matrix(V), V[:, 0]))
    data, indices, indptr, shape = (arrays[f"X_{part}"] for part in ("data", "indices", "indptr", "shape"))
    wrong = {
        "X_data": [data[:-1], data.reshape(1, -1)],
        "X_indices": [indices + 1_000_000, -1 - indices, indices[:-1], indices.astype(float)],
        "X_indptr": [indptr[::-1].copy(), indptr + 1, indptr[:-1]],
        "X_shape": [shape[:1], -shape, shape * 2**40],
    }
    refused = [(of_arrays({**arrays, name: array}), "") for name, given in wrong.items() for array in given]
    require_refusals(refused, by=refusal)


def test_a_file_that_is_cut_is_refused_and_a_changed_byte_gives_one_sentence_or_the_same_kernel(tmp_path):
    kernel = gaussian_kernel()
    content, rng = saved(kernel), np.random.default_rng(1)
    for stop in range(0, len(content), 23):
        refusal(loaded, content[:stop])
    path = tmp_path / "cut.npz"
    path.write_bytes(content[: len(content) // 2])
    assert "npz" in refusal(load_kernel, path)
    said = []
    for position in rng.choice(len(content), 300, replace=False):
        damaged = bytearray(content)
        damaged[position] ^= 1 << int(rng.integers(8))
        try:
            back = loaded(bytes(damaged))
        except ValueError as error:
            said.append(str(error))
        else:
            assert_same_kernel(back, kernel)
    assert len(said) > 200
    assert not [one for one in said if "\n" in one]


def test_files_of_other_kinds_are_refused(tmp_path):
    array, arrays, other, shared = files = [io.BytesIO() for _ in range(4)]
    np.save(array, np.ones(3))
    np.savez(arrays, weights=np.ones(3))
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("readme.txt", "not an array")
    with zipfile.ZipFile(shared, "w") as archive:  # members of the same bytes
        with archive.open("a.npy", "w") as member:
            np.lib.format.write_array(member, np.zeros(1000))
        for i in range(100):
            again = copy(archive.filelist[0])
            archive.filelist.append(again)
            again.filename = f"b{i}.npy"
    said = ["", "is not a learnkernels kernel", "readme.txt", "overlap"]
    refused = [(partial(loaded, file.getvalue()), sentence) for file, sentence in zip(files, said, strict=True)]
    require_refusals([*refused, (partial(load_kernel, io.StringIO("text")), "")], by=refusal)
    with pytest.raises(FileNotFoundError):
        load_kernel(tmp_path / "none.npz")


def test_a_path_to_another_file_is_named(tmp_path):
    plain, small, note = (tmp_path / name for name in ("x.npz", "small.npz", "note.txt"))
    np.savez(plain, a=np.ones(3))
    np.savez_compressed(small, a=np.ones(3))
    note.write_text("text")
    what = f"{plain} is not a learnkernels kernel: it holds arrays 'a'. Give a file that save_kernel wrote."
    damaged = f"{note} was not written by save_kernel, or is damaged: it is no readable npz archive (BadZipFile)."
    table = [
        (partial(load_kernel, plain), what),
        (partial(load_kernel, str(plain)), what),
        (partial(load_kernel, small), f"{small} was not written by save_kernel: its arrays are compressed."),
        (partial(load_kernel, note), damaged),
    ]
    require_refusals(table, literal=True)
    with plain.open("rb") as file:
        require_refusals([(partial(load_kernel, file), what)], literal=True)


def test_something_other_than_a_kernel_is_not_saved(tmp_path):
    path, expected = tmp_path / "k.npz", "kernel must be a LearnedKernel, got "
    advice = ". Save that of a fitted estimator by save_kernel(estimator.kernel_, file)."
    table = [
        (partial(save_kernel, KernelLearningRegressor(), path), f"{expected}KernelLearningRegressor{advice}"),
        (partial(save_kernel, GaussianFamily([1.0]), path), f"{expected}GaussianFamily."),
        (partial(save_kernel, None, path), f"{expected}NoneType."),
    ]
    require_refusals(table, literal=True)
    assert not path.exists()
