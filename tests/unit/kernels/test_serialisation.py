"""Saved kernels: the same values bit by bit, plain data alone, and one sentence about what cannot be read."""

import io
import json
import zipfile
from copy import copy
from dataclasses import fields, replace

import numpy as np
import pytest
from scipy import sparse

from learnkernels import (
    CategoricalFamily,
    ConstantFamily,
    CosineFamily,
    FamilyUnion,
    FeatureFamily,
    GaussianFamily,
    LaplacianFamily,
    LinearFamily,
    PolynomialFamily,
    PrecomputedFamily,
    learn_kernel,
    load_kernel,
    save_kernel,
)
from learnkernels.kernels.families import (
    DirichletFamily,
    MetricFamily,
    NormalScoresFamily,
    ScaledFamily,
    family_from_dict,
)
from learnkernels.kernels.families.base import KINDS
from learnkernels.kernels.fields import Fields, to_text
from learnkernels.kernels.learned import LearnedKernel
from learnkernels.kernels.learners import CA, NKRR, AlignfLinear, Certificate
from learnkernels.kernels.persistence.kernel import (
    DESCRIPTION,
    kernel_from_arrays,
    kernel_to_arrays,
)
from tests.unit.kernels.conftest import CASES
from tools.mutations import fates

COMPUTED = [case for case in CASES if not isinstance(case.family, PrecomputedFamily)]


def problem(m: int = 40, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(m, d)) + 1.0
    return X, np.sin(2 * X[:, 0]) + X[:, 0] * X[:, 1] + 0.3 * X[:, 2]


def classes() -> tuple[np.ndarray, np.ndarray]:
    X, y = problem()
    return X, np.where(y > np.median(y), "high", "low")


def gaussian_kernel() -> LearnedKernel:
    return learn_kernel("alignf", GaussianFamily([0.1, 0.7]), *problem())


def saved(kernel: LearnedKernel) -> bytes:
    file = io.BytesIO()
    save_kernel(kernel, file)
    return file.getvalue()


def loaded(content: bytes) -> LearnedKernel:
    return load_kernel(io.BytesIO(content))


def assert_same_bits(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()


def assert_same_kernel(got: LearnedKernel, expected: LearnedKernel) -> None:
    for item in fields(LearnedKernel):
        new, old = getattr(got, item.name), getattr(expected, item.name)
        assert type(new) is type(old) or isinstance(old, np.generic), item.name
        if item.name == "family":
            assert new.names == old.names
            assert new.to_dict() == old.to_dict()
        elif sparse.issparse(old):
            assert new.shape == old.shape
            for part in ("data", "indices", "indptr"):
                assert_same_bits(getattr(new, part), getattr(old, part))
        elif isinstance(old, np.ndarray):
            assert_same_bits(new, old)
        else:
            assert new == old, item.name


def assert_applies_alike(got: LearnedKernel, expected: LearnedKernel, X_new) -> None:
    assert_same_bits(got.gram(), expected.gram())
    assert_same_bits(got.cross_gram(X_new), expected.cross_gram(X_new))


def refusal(read, *args) -> str:
    """Return the one sentence that something is refused with."""
    with pytest.raises(ValueError, match=r"^[^\n]*; [^\n]*\.$") as caught:
        read(*args)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


def kernel_or_reason(content: bytes) -> LearnedKernel | str:
    try:
        return loaded(content)
    except ValueError as error:
        return str(error)


def described(content: dict) -> np.ndarray:
    return np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)


def description(arrays: dict[str, np.ndarray]) -> dict:
    return json.loads(arrays[DESCRIPTION].tobytes())


def with_description(kernel: LearnedKernel, **changes) -> dict[str, np.ndarray]:
    """Return the arrays of a kernel with other entries in the description; an ellipsis takes one out."""
    arrays = kernel_to_arrays(kernel)
    content = {name: value for name, value in {**description(arrays), **changes}.items() if value is not ...}
    return {**arrays, DESCRIPTION: described(content)}


# Round trips ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", COMPUTED, ids=lambda case: case.name)
def test_a_kernel_of_every_family_comes_back_bit_by_bit(case):
    X, X_new = case.X[6:], case.X[:6]
    dense = X.toarray() if sparse.issparse(X) else X
    y = np.sin(2 * dense[:, 0]) + dense[:, 0] * dense[:, -1] + 0.5 * dense[:, -1]
    try:
        kernel = learn_kernel("alignf", case.family, X, y)
    except ValueError:
        kernel = learn_kernel(AlignfLinear(dependent="subset"), case.family, X, y)
    back = loaded(saved(kernel))
    assert_same_kernel(back, kernel)
    assert_applies_alike(back, kernel, X_new)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csr_array])
def test_a_kernel_of_features_comes_back_bit_by_bit(kind):
    rng = np.random.default_rng(3)
    V = rng.poisson(0.6, size=(30, 40)).astype(float)
    X = kind(V)
    family = FeatureFamily([f"n-gram {k} \N{GREEK SMALL LETTER MU} '\"\\" for k in range(39)], np.arange(39)[::-1])
    kernel = learn_kernel("align", family, X, V[:, 0] - V[:, 3])
    back = loaded(saved(kernel))
    assert sparse.issparse(back.X) == sparse.issparse(X)
    assert_same_kernel(back, kernel)
    assert_applies_alike(back, kernel, X[:4])


@pytest.mark.parametrize(
    ("learner", "data", "options"),
    [
        (NKRR(starts=1), problem, {}),
        ("l1-svm", classes, {"regularisation": 0.3}),
        ("l2-krr", problem, {"regularisation": 2.5, "normalise": "frobenius"}),
        ("alignf-linear", problem, {"normalise": "none"}),
        ("align-uncentered", problem, {}),
    ],
)
def test_a_kernel_of_other_learners_comes_back_with_all_that_they_found(learner, data, options):
    X, y = data()
    family = FamilyUnion([LaplacianFamily([0.2, 0.9]), LinearFamily()], [[0, 1], None], ["two", None])
    kernel = learn_kernel(learner, family, X[5:], y[5:], **options)
    if kernel.learner == "nkrr":
        assert kernel.degree > 1
    if learner == "l1-svm":
        assert kernel.regularisation is not None
        assert kernel.certificate is not None
    back = loaded(saved(kernel))
    assert_same_kernel(back, kernel)
    assert_applies_alike(back, kernel, X[:5])


@pytest.mark.parametrize("per_feature", [False, True])
def test_a_kernel_of_searched_base_kernels_comes_back_with_their_parameters(per_feature):
    X, y = problem()
    kernel = learn_kernel(CA(per_feature=per_feature, max_kernels=3), None, X[5:], y[5:])
    assert kernel.parameters is not None
    back = loaded(saved(kernel))
    assert_same_kernel(back, kernel)
    assert_applies_alike(back, kernel, X[:5])


def test_numbers_outside_json_and_awkward_floats_come_back():
    certificate = Certificate("duality gap", np.inf, 5e-324, 7, (np.inf, 0.1 + 0.2, -np.inf, 1 / 3))
    kernel = replace(gaussian_kernel(), certificate=certificate, regularisation=np.nextafter(1.0, 2.0))
    back = loaded(saved(kernel))
    assert_same_kernel(back, kernel)
    nan = loaded(saved(replace(kernel, alignment=float("nan")))).alignment
    assert np.isnan(nan)
    # Other readers of JSON know no infinity.
    json.loads(kernel_to_arrays(kernel)[DESCRIPTION].tobytes(), parse_constant=pytest.fail)


def test_rows_in_another_memory_order_come_back_bit_by_bit():
    X, y = problem()
    kernel = learn_kernel("alignf", GaussianFamily([0.1, 0.7]), np.asfortranarray(X), y)
    kernel = replace(kernel, X=np.asfortranarray(kernel.X))
    back = loaded(saved(kernel))
    assert back.X.flags.f_contiguous
    assert_applies_alike(back, kernel, X[:5])


def test_a_kernel_goes_through_a_path_and_an_open_file(tmp_path):
    kernel = gaussian_kernel()
    path = tmp_path / "kernel.npz"
    save_kernel(kernel, path)
    assert_same_kernel(load_kernel(path), kernel)
    assert_same_kernel(load_kernel(str(path)), kernel)
    with path.open("wb") as file:
        save_kernel(kernel, file)
    with path.open("rb") as file:
        assert_same_kernel(load_kernel(file), kernel)
        assert not file.closed


def test_the_same_kernel_gives_the_same_bytes_and_no_object():
    kernel = gaussian_kernel()
    content = saved(kernel)
    assert content == saved(loaded(content))
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        assert {array.dtype.kind for array in arrays.values()} <= {"f", "i", "u"}


def test_arrays_beside_those_of_the_kernel_are_left_alone():
    kernel = gaussian_kernel()
    arrays = {**kernel_to_arrays(kernel), "folds": np.zeros(3, dtype=int)}
    assert_same_kernel(kernel_from_arrays(arrays), kernel)


# Families ------------------------------------------------------------------------------------------------------------

FAMILIES = [
    CategoricalFamily([0.1 + 0.2, 64.0]),
    CategoricalFamily([1.0], [1 / 3, 2.0]),
    ConstantFamily(),
    CosineFamily(),
    DirichletFamily([0.1, 1e-300], 3),
    FeatureFamily(["a", "b"], [4, 0]),
    FeatureFamily.with_constant(2),
    GaussianFamily([0.1 + 0.2, 1e308, 5e-324]),
    LaplacianFamily([2.0**-3, 1 / 3]),
    LaplacianFamily([1 / 3], norm=2),
    LinearFamily(),
    MetricFamily(LaplacianFamily([0.3], norm=2), [0.1, 0.0, 1 / 3], "one"),
    MetricFamily(LinearFamily(), [[0.1, 1e300], [1 / 3, -0.2]]),
    NormalScoresFamily(GaussianFamily([0.1, 3.0]), [[[-0.1, -1 / 3], [1e9, 0.7]], None]),
    PolynomialFamily([3, 1], 0.1, 0.0),
    ScaledFamily(DirichletFamily([1.0], 2), [[0.1, 3.0], [1 / 3, 2.0]], ["same", "same"]),
    FamilyUnion(
        [FamilyUnion([LinearFamily(), CosineFamily()], [[1], None]), LinearFamily()], [None, [2, 0]], ["a", None]
    ),
]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: type(family).__name__)
def test_a_family_comes_back_from_its_json_text(family):
    back = family_from_dict(json.loads(json.dumps(family.to_dict(), allow_nan=False)))
    assert type(back) is type(family)
    assert back.names == family.names
    assert repr(back) == repr(family)
    assert back.to_dict() == family.to_dict()


def test_every_family_that_can_be_written_is_tried():
    ours = {kind for kind in KINDS.values() if kind.__module__.startswith("learnkernels.")}  # tests add their own
    assert {type(family) for family in FAMILIES} == ours


@pytest.mark.parametrize("inside", [lambda family: family, lambda family: FamilyUnion([LinearFamily(), family])])
def test_matrices_are_not_saved(inside):
    family = inside(PrecomputedFamily(np.eye(4)[None]))
    assert "matrices" in refusal(family.to_dict)


def test_a_kernel_on_matrices_is_refused_before_anything_is_written():
    X, y = problem()
    K = GaussianFamily([0.1, 1.0]).tile(X, X)
    kernel = learn_kernel("alignf", PrecomputedFamily(K), np.arange(40.0)[:, None], y)
    file = io.BytesIO()
    assert "matrices" in refusal(save_kernel, kernel, file)
    assert file.getvalue() == b""


def test_a_family_of_another_class_is_not_saved():
    class Own(LinearFamily):
        pass

    assert "Own" in refusal(Own().to_dict)


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
        assert family_from_dict(json.loads(json.dumps(union.to_dict()))) == union
    finally:
        del KINDS["own"]


def test_a_kind_of_this_package_cannot_be_taken():
    class Own(LinearFamily):
        kind = "gaussian"

    assert KINDS["gaussian"] is GaussianFamily
    assert "Own" in refusal(Own().to_dict)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "an object"),
        ([], "an object"),
        ({}, "kind"),
        ({"kind": "os.system"}, "os.system"),
        ({"kind": ["gaussian"]}, "one of"),
        ({"kind": "precomputed"}, "one of"),
        ({"kind": "gaussian"}, "gammas"),
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
    ],
)
def test_data_of_no_family_are_refused(data, said):
    with pytest.raises(ValueError, match=r"^[^\n]*\.$") as caught:
        family_from_dict(data)
    assert said in str(caught.value)
    assert said in refusal(kernel_from_arrays, with_description(gaussian_kernel(), family=data))


# What cannot be read -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": "another"}, "format"),
        ({"format": ...}, "format"),
        ({"version": 0}, "version of a saved kernel must be 1 or 2, got 0"),
        ({"version": 3}, "release"),
        ({"version": True}, "version"),
        ({"version": ...}, "got nothing"),
        ({"learner": ...}, "learner"),
        ({"learner": 3}, "learner"),
        ({"normalise": "length"}, "trace, frobenius, none"),
        ({"alignment": "high"}, "alignment"),
        ({"degree": 0}, "degree"),
        ({"degree": 1.5}, "degree"),
        ({"offset": "inf"}, "offset must be finite"),
        ({"regularisation": []}, "regularisation"),
        ({"storage": "csr_matrix"}, "X_data"),
        ({"storage": "numpy.matrix"}, "storage"),
        ({"certificate": "good"}, "certificate"),
        ({"certificate": {}}, "measure"),
        (
            {"certificate": {"measure": "x", "residual": 0, "tolerance": 0, "iterations": 0, "objectives": [{}]}},
            "objec",
        ),
        ({"family": ...}, "family"),
        ({"family": {"kind": "gaussian", "gammas": [1.0]}}, "weights must have shape (1,)"),
        (
            {
                "family": {
                    "kind": "union",
                    "families": [{"kind": "linear"}] * 2,
                    "columns": [[0], [99]],
                    "views": [None, None],
                }
            },
            "must fit",
        ),
    ],
)
def test_a_description_that_was_changed_is_refused(changes, said):
    assert said in refusal(kernel_from_arrays, with_description(gaussian_kernel(), **changes))


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"\xff\xfe", b"[1]", b"null", b'{"a": NaN}', b"[" * 100_000, b"1" * 5000],
    ids=lambda text: repr(text[:8]),
)
def test_a_description_that_is_none_is_refused(text):
    arrays = {**kernel_to_arrays(gaussian_kernel()), DESCRIPTION: np.frombuffer(text, dtype=np.uint8)}
    assert DESCRIPTION in refusal(kernel_from_arrays, arrays)


def test_unions_in_unions_without_end_are_refused():
    text, n = json.dumps(description(kernel_to_arrays(gaussian_kernel()))), 400
    start = text.index('"family"')
    nested = '{"kind": "union", "columns": [null], "views": [null], "families": [' * n + '{"kind": "linear"}' + "]}" * n
    raw = np.frombuffer(f'{text[:start]}"family": {nested}}}'.encode(), dtype=np.uint8)
    assert refusal(kernel_from_arrays, {**kernel_to_arrays(gaussian_kernel()), DESCRIPTION: raw})


@pytest.mark.parametrize("name", sorted(kernel_to_arrays(gaussian_kernel())))
def test_a_missing_array_is_named(name):
    arrays = kernel_to_arrays(gaussian_kernel())
    del arrays[name]
    assert f"must hold {name!r}" in refusal(kernel_from_arrays, arrays)


@pytest.mark.parametrize("name", sorted(kernel_to_arrays(gaussian_kernel())))
@pytest.mark.parametrize(
    "wrong",
    [
        lambda array: array[:-1],
        lambda array: array[None],
        lambda array: array.astype("U"),
        lambda array: array.astype(object),
        lambda array: array.astype(complex),
    ],
    ids=["short", "deep", "text", "object", "complex"],
)
def test_an_array_of_another_shape_or_type_is_named(name, wrong):
    arrays = kernel_to_arrays(gaussian_kernel())
    arrays[name] = wrong(arrays[name])
    said = refusal(kernel_from_arrays, arrays)
    assert name in said or name == "X"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["weights", "scales", "shift", "origin", "row_means", "X"])
def test_values_that_are_not_finite_are_refused(name, value):
    arrays = kernel_to_arrays(gaussian_kernel())
    arrays[name] = arrays[name].copy()
    arrays[name].flat[0] = value
    assert f"{name} must be finite" in refusal(kernel_from_arrays, arrays)


def test_a_weight_without_a_scale_is_refused():
    kernel = gaussian_kernel()
    assert "scales" in refusal(save_kernel, replace(kernel, scales=np.zeros(2)), io.BytesIO())


def test_parameters_of_another_shape_are_refused():
    kernel = gaussian_kernel()
    for wrong in (np.ones(2), np.ones((3, 1)), np.ones((2, 1, 1))):
        assert "(2, r)" in refusal(save_kernel, replace(kernel, parameters=wrong), io.BytesIO())


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("X_indices", lambda array: array + 1_000_000),
        ("X_indices", lambda array: -1 - array),
        ("X_indices", lambda array: array[:-1]),
        ("X_indices", lambda array: array.astype(float)),
        ("X_indptr", lambda array: array[::-1].copy()),
        ("X_indptr", lambda array: array + 1),
        ("X_indptr", lambda array: array[:-1]),
        ("X_shape", lambda array: array[:1]),
        ("X_shape", lambda array: -array),
        ("X_shape", lambda array: array * 2**40),
        ("X_data", lambda array: array[:-1]),
        ("X_data", lambda array: array.reshape(1, -1)),
    ],
)
def test_sparse_rows_that_point_outside_are_refused(name, wrong):
    V = np.random.default_rng(0).poisson(0.5, size=(20, 6)).astype(float)
    arrays = kernel_to_arrays(learn_kernel("align", GaussianFamily([0.1]), sparse.csr_matrix(V), V[:, 0]))
    arrays[name] = wrong(arrays[name])
    refusal(kernel_from_arrays, arrays)


def test_a_file_cut_anywhere_is_refused(tmp_path):
    content = saved(gaussian_kernel())
    for stop in range(0, len(content), 23):
        refusal(loaded, content[:stop])
    path = tmp_path / "cut.npz"
    path.write_bytes(content[: len(content) // 2])
    assert "npz" in refusal(load_kernel, path)


def test_a_file_with_a_changed_byte_gives_one_sentence_or_the_same_kernel():
    kernel = gaussian_kernel()
    content, rng = saved(kernel), np.random.default_rng(1)
    outcomes = []
    for position in rng.choice(len(content), 300, replace=False):
        changed = bytearray(content)
        changed[position] ^= 1 << int(rng.integers(8))
        outcomes.append(kernel_or_reason(bytes(changed)))
    for back in outcomes:
        if isinstance(back, str):
            assert "\n" not in back
        else:
            assert_same_kernel(back, kernel)
    assert sum(isinstance(back, str) for back in outcomes) > 200


@pytest.mark.parametrize("name", ["weights", "extra"])
def test_pickled_objects_are_never_loaded(name):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("it was unpickled",))

    arrays = {**kernel_to_arrays(gaussian_kernel()), name: np.array([Trap(), None], dtype=object)}
    file = io.BytesIO()
    np.savez(file, **arrays)
    said = refusal(loaded, file.getvalue())
    assert name in said
    assert "never loaded" in said


def test_files_of_other_kinds_are_refused(tmp_path):
    file = io.BytesIO()
    np.save(file, np.ones(3))
    refusal(loaded, file.getvalue())
    file = io.BytesIO()
    np.savez(file, weights=np.ones(3))
    assert DESCRIPTION in refusal(loaded, file.getvalue())
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("readme.txt", "not an array")
    assert "readme.txt" in refusal(loaded, file.getvalue())
    refusal(load_kernel, io.StringIO("text"))
    with pytest.raises(FileNotFoundError):
        load_kernel(tmp_path / "none.npz")


def test_compressed_arrays_are_refused_before_they_take_memory():
    file = io.BytesIO()
    np.savez_compressed(file, **{**kernel_to_arrays(gaussian_kernel()), "X": np.zeros((1 << 27, 1))})
    assert len(file.getvalue()) < 2 << 20

    def load(case: int) -> None:
        loaded(file.getvalue())

    (fate,) = fates([0], load, (ValueError,), memory=100 << 20)
    assert (fate.kind, fate.text) == (
        "sentence",
        "file must hold arrays as they are, got compressed ones; write it by save_kernel.",
    )


def test_members_that_share_their_bytes_are_refused():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        with archive.open("a.npy", "w") as member:
            np.lib.format.write_array(member, np.zeros(1000))
        for i in range(100):
            other = copy(archive.filelist[0])
            archive.filelist.append(other)
            other.filename = f"b{i}.npy"
    assert "overlap" in refusal(loaded, file.getvalue())


def test_an_array_that_states_more_than_is_there_is_refused():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 8)})
        archive.writestr("X.npy", header.getvalue() + bytes(800))

    def load(case: int) -> None:
        loaded(file.getvalue())

    (fate,) = fates([0], load, (ValueError,), memory=100 << 20)
    assert fate.kind == "sentence"
    assert "'X.npy' of the file must be a plain array" in fate.text


def test_a_family_beyond_the_numbers_of_a_computer_is_refused():
    arrays = kernel_to_arrays(gaussian_kernel())
    said = Fields.of_text(arrays[DESCRIPTION], "it").data
    family = {"kind": "dirichlet", "frequencies": [1.0] * len(arrays["weights"]), "degree": 10**18}
    X = np.zeros((len(arrays["rows"]), 50))
    changed = {**arrays, DESCRIPTION: to_text({**said, "family": family}, "it"), "X": X, "origin": np.zeros(50)}
    assert "the family must fit training rows of 50 features" in refusal(kernel_from_arrays, changed)
