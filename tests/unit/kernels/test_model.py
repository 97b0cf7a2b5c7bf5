"""Saved models: the same predictions bit by bit, nothing unpickled, and one sentence about any changed byte."""

import io
import json
import zipfile
from copy import copy
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from learnkernels import FamilyUnion, GaussianFamily, LaplacianFamily, LinearFamily, load_kernel, save_kernel
from learnkernels.kernels.estimators import KernelLearningClassifier, KernelLearningRegressor, chunk_rows_for
from learnkernels.kernels.families import KernelFamily
from learnkernels.kernels.learners import CA, NKRR
from learnkernels.kernels.persistence.estimator import parameter_to_data
from learnkernels.kernels.persistence.kernel import SEAL, SEAL_LENGTH, _seal, pack, unpack
from learnkernels.kernels.persistence.model import BATCH, BOUNDS, OUTSIDE, TEXT, Model, load_model, save_model
from learnkernels.kernels.predictors import KRR, Auto, Nystrom
from tests.refusals import refusal, require_refusals
from tests.unit.kernels.conftest import sparse_rows
from tests.unit.kernels.test_serialization import NO_TEXTS, as_text, assert_same_kernel, not_finite

GAUSSIANS = GaussianFamily([0.1, 0.7])


def rows(m: int = 48, d: int = 3, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(m, d)) + 1.0


def numbers(X) -> np.ndarray:
    X = X.toarray() if sparse.issparse(X) else X
    return np.sin(2 * X[:, 0]) + X[:, 0] * X[:, 1] + 0.3 * X[:, 2]


def labels(X, names) -> np.ndarray:
    """Return one of some labels a row, by quantiles of a number."""
    names = np.asarray(names)
    order = np.argsort(np.argsort(numbers(X)))
    return names[order * len(names) // len(order)]


class Weighted(KernelLearningRegressor):
    def fit(self, X, y):
        weights = np.arange(len(y)) % 3 + 1.0
        return KernelLearningRegressor(self.family).fit(X, y, sample_weight=weights)


def classifier(names, family=GAUSSIANS, X=None, **params) -> tuple[object, object, np.ndarray]:
    X = rows() if X is None else X
    return KernelLearningClassifier(family, **params), X, labels(X, names)


def regressor(target=numbers, family=GAUSSIANS, X=None, **params) -> tuple[object, object, np.ndarray]:
    X = rows() if X is None else X
    return KernelLearningRegressor(family, **params), X, target(X)


MU = "\N{GREEK SMALL LETTER MU}"
MIXED = FamilyUnion([LaplacianFamily([0.2, 0.9]), LinearFamily()], [[0, 1], None], ["two", None])
FRAME = pd.DataFrame(rows(), columns=[f"width {MU}", "'\"\\", "a b"])

CASES = {
    "binary-svm": classifier(["no", "yes"]),
    "binary-krr-probability": classifier(["no", "yes"], predictor="krr", probability=True, C=3),
    "three-svm-probability": classifier(["a", "b", "c"], probability=True),
    "three-krr": classifier(["a", "b", "c"], predictor="krr"),
    "four-svm": classifier([-3, 0, 7, 2**40]),
    "small-integers": classifier(np.array([3, 200], dtype=np.uint8)),
    "truth-values": classifier([False, True], probability=True),
    "numbers-as-labels": classifier([1.0, 2.0, 4.0]),
    "text-as-objects": classifier(np.array(["", f"{MU} 'x'\n"], dtype=object)),
    "one-stage": classifier(["no", "yes"], MIXED, learner="l1-svm", C=0.3),
    "default-family": classifier(["no", "yes"], None),
    "named-columns": (KernelLearningClassifier(GAUSSIANS), FRAME, labels(FRAME.to_numpy(), ["no", "yes"])),
    "csr": classifier(["no", "yes"], GaussianFamily([0.25, 0.5]), sparse_rows(60, 9, seed=9)),
    "regression": regressor(),
    "regression-mixed": regressor(family=MIXED, alpha=0.05, normalize="frobenius"),
    "regression-column": regressor(lambda X: numbers(X)[:, None]),
    "two-outputs": regressor(lambda X: np.column_stack([numbers(X), X[:, 1] ** 2])),
    "automatic": regressor(alpha="auto"),
    "searched-per-feature": regressor(family=None, learner=CA(per_feature=True, max_kernels=3)),
    "power": regressor(learner=NKRR(starts=1)),
    "uncentered": regressor(learner="align-uncentered"),
    "not-normalized": regressor(family=MIXED, learner="alignf-linear", normalize="none"),
    "landmarks-probability": classifier(["no", "yes"], predictor=Nystrom(landmarks=12), probability=True),
    "three-landmarks": classifier(["a", "b", "c"], predictor=Nystrom(landmarks=12, loss="logistic")),
    "auto-landmarks": regressor(X=rows(60), predictor=Auto(memory=100_000)),
    "three-conjugate-gradients": classifier(["a", "b", "c"], predictor="krr-cg"),
    "weighted": (Weighted(GAUSSIANS), rows(), numbers(rows())),
}
"""An estimator, rows and targets, by name."""


@cache
def made(name: str) -> tuple[Model, object]:
    """Return the model of a case, and rows that it was not trained on."""
    estimator, X, y = CASES[name]
    d = X.shape[1]
    framed = isinstance(X, pd.DataFrame)
    names = tuple(X.columns) if framed else tuple(f"column {j}" for j in range(d))
    new = X.iloc[:9].to_numpy() if framed else X[:9] * 0.9
    return Model(estimator.fit(X, y), names, np.zeros(d), np.ones(d), {"name": name}), new


def small() -> Model:
    return made("binary-krr-probability")[0]


def saved(model: Model) -> bytes:
    file = io.BytesIO()
    save_model(model, file)
    return file.getvalue()


def test_what_is_kept_of_training_rows_comes_back_and_must_fit():
    model, X = small(), rows(600)
    kept = model.with_reference(X, X.min(axis=0), X.max(axis=0), 0)
    assert kept.reference.rows.shape == (500, 3)
    np.testing.assert_array_equal(kept.reference.scores[:, 0], model.columns(kept.reference.rows)["score"])
    assert load_model(io.BytesIO(saved(kept))).reference == kept.reference
    assert load_model(io.BytesIO(saved(model))).reference is None
    with pytest.raises(ValueError, match=r"reference_low must have shape \(3,\)"):
        replace(kept, reference=replace(kept.reference, low=np.zeros(2)))


def loaded(content: bytes) -> Model:
    return load_model(io.BytesIO(content))


def resealed(content: bytes) -> bytes:
    """Return an archive with a checksum of whatever it holds now."""
    return content[:-SEAL_LENGTH] + _seal(memoryview(content)[:-SEAL_LENGTH])


def bits(columns: dict[str, np.ndarray]) -> list[tuple[object, ...]]:
    held = {name: of.tolist() if of.dtype == object else of.tobytes() for name, of in columns.items()}
    return [(name, columns[name].dtype, values) for name, values in held.items()]


def assert_same_columns(got: Model, expected: Model, X) -> None:
    assert bits(got.columns(X)) == bits(expected.columns(X))


def plain(parameters: dict) -> dict:
    return {key: one.to_dict() if isinstance(one, KernelFamily) else one for key, one in parameters.items()}


# Round trips ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_columns_say_what_the_estimator_says_and_a_loaded_model_is_the_one_saved_bit_by_bit(name):
    model, X = made(name)
    given = pd.DataFrame(X, columns=list(model.features)) if hasattr(model.estimator, "feature_names_in_") else X
    columns = model.columns(X)
    assert {name: values.dtype for name, values in columns.items()} == model.column_types
    expected = {}
    if model.task == "regression":
        values = model.estimator.predict(given).reshape(9, -1)
        names = ["prediction"] if values.shape[1] == 1 else ["prediction 0", "prediction 1"]
        expected = dict(zip(names, values.T, strict=True))
        if len(names) == 1 and len(getattr(model.estimator, "residuals_", ())) >= 9:  # which tell nine of ten numbers
            bounds = model.estimator.predict_interval(given, OUTSIDE).reshape(9, 2)
            expected |= dict(zip(BOUNDS, bounds.T, strict=True))
    else:
        classes = model.estimator.classes_.tolist()
        expected["prediction"] = model.estimator.predict(given)
        scores = model.estimator.decision_function(given)
        many = scores.ndim > 1
        expected |= dict(zip([f"score {c}" for c in classes], scores.T, strict=True)) if many else {"score": scores}
        if model.estimator.probability:
            P = model.estimator.predict_proba(given)
            expected |= {f"probability {c}": p for c, p in zip(classes, P.T, strict=True)}
    assert list(columns) == list(expected)
    for column, values in expected.items():
        np.testing.assert_array_equal(columns[column], values, strict=True)
    none = {name: (len(of), of.dtype) for name, of in model.columns(X[:0]).items()}
    assert none == {name: (0, dtype) for name, dtype in model.column_types.items()}
    content = saved(model)
    back = loaded(content)
    assert_same_columns(back, model, X)
    assert content == saved(model) == saved(back)
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        assert {array.dtype.kind for array in arrays.values()} <= {"f", "i", "u"}
        assert json.loads(arrays[TEXT].tobytes(), parse_constant=pytest.fail)["format"] == "learnkernels model"
    ours, theirs = back.estimator, model.estimator
    assert (type(ours), set(vars(ours))) == (type(theirs), set(vars(theirs)))
    assert plain(ours.get_params(False)) == plain(theirs.get_params(False))
    assert_same_kernel(ours.kernel_, theirs.kernel_)
    for field in ("weights_", "landmarks_"):  # coefficients and names are in the bytes
        if hasattr(theirs, field):
            assert getattr(ours, field).tobytes() == getattr(theirs, field).tobytes()
    if model.task == "classification":
        assert ours.classes_.dtype == theirs.classes_.dtype
        assert repr(ours.classes_.tolist()) == repr(theirs.classes_.tolist())


def test_a_model_goes_through_a_path_and_an_open_file(tmp_path):
    model, X = small(), rows(5)
    path = tmp_path / "name without ending"
    save_model(model, path)
    assert path.read_bytes() == saved(model)
    with zipfile.ZipFile(path) as archive:
        assert {(one.date_time, one.create_system) for one in archive.infolist()} == {((1980, 1, 1, 0, 0, 0), 3)}
    assert_same_columns(load_model(path), model, X)
    assert_same_columns(load_model(str(path)), model, X)
    with path.open("rb") as file:
        assert_same_columns(load_model(file), model, X)
        assert not file.closed


def with_parameters(held: object) -> Model:
    """Return a model whose estimator says that it was given some parameters."""
    estimator = copy(small().estimator)
    estimator.class_weight = held
    return replace(small(), estimator=estimator)


def test_parameters_of_many_kinds_come_back_equal():
    held = {"a": (1, 2.5, "x"), "b": [None, True, float("inf"), []], "c": {"d": (-np.inf,)}, "e": np.float64(0.1)}
    held |= {"f": 10**30, 7: {True: "keys that are no text"}, "family": [GAUSSIANS]}
    back = loaded(saved(with_parameters(held))).estimator.class_weight
    family = back.pop("family")[0]
    assert family.to_dict() == GAUSSIANS.to_dict()
    assert back == {key: value for key, value in held.items() if key != "family"}
    assert isinstance(back["a"], tuple)
    assert isinstance(back["b"][1], bool)


def test_what_no_file_can_hold_is_refused_before_anything_is_written():
    class Mine(KRR):
        pass

    file, own = io.BytesIO(), copy(small().estimator)
    own.predictor = Mine()
    of_ones_own = "predictor must be one of krr, krr-cg, nystrom, svm, auto to be saved, got Mine"
    refused = [(replace(small(), estimator=own), of_ones_own)]
    objects = ({"a": np.ones(3)}, {"a": print}, {1: object()}, {"a": {3}})
    refused += [(with_parameters(one), "class_weight") for one in objects]
    refused += [(replace(small(), about={"x": one}), "'about'") for one in ({1}, np.nan, np.float32(1), object())]
    require_refusals((lambda model=model: save_model(model, file), said) for model, said in refused)
    assert file.getvalue() == b""


# Predictions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["three-svm-probability", "regression"])
def test_batches_of_whole_chunks_give_the_bits_of_all_rows_at_once(name):
    model = made(name)[0]
    step, chunk = model.batch_rows, chunk_rows_for(len(model.estimator.dual_coef_))
    assert step % chunk == 0
    assert BATCH <= step < BATCH + chunk
    X = rows(2 * step + 77, seed=8)
    parts = [model.columns(X[start : start + step]) for start in range(0, len(X), step)]
    whole = model.columns(X)
    assert bits({name: np.concatenate([part[name] for part in parts]) for name in whole}) == bits(whole)


def test_raw_columns_are_moved_and_divided_before_the_estimator_sees_them():
    low, spread, X = np.array([100.0, -3.0, 0.5]), np.array([10.0, 1e-3, 4.0]), rows(12)
    moved, raw = replace(small(), low=low, spread=spread), X * spread + low
    assert bits(moved.columns(raw)) == bits(small().columns((raw - low) / spread))
    assert_same_columns(loaded(saved(moved)), moved, raw)
    # Rounding of raw values far from zero is all that is lost against the rows they were made from.
    np.testing.assert_allclose(moved.columns(raw)["score"], small().columns(X)["score"], atol=1e-10)


def test_sparse_raw_rows_are_divided_without_losing_their_zeros():
    model = replace(made("csr")[0], spread=np.arange(1.0, 10.0))
    raw = sparse_rows(20, 9, seed=3)
    dense = model.columns(raw.toarray())
    for kind in (sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix):
        given = kind(raw.copy())
        # Distances of sparse and of dense rows are summed in another order.
        np.testing.assert_allclose(model.columns(given)["score"], dense["score"], atol=1e-12)
        assert (given != raw).nnz == 0
        assert "toarray" in refusal(replace(model, low=np.eye(9)[4]).columns, given)


def test_rows_and_parts_of_a_model_that_do_not_fit_are_refused():
    refused = [
        (rows(4, 2), "(4, 2)"),
        (rows(4)[0], "(3,)"),
        (np.where([0, 0, 1], np.nan, rows(4)), "'column 2' (4) of 4 rows"),
        (np.where(np.eye(3, dtype=bool), np.inf, rows(3)), "'column 0' (1), 'column 1' (1)"),
    ]
    rows_refused = [(partial(small().columns, X), said) for X, said in refused]
    parts = [
        ({"estimator": KernelLearningClassifier()}, "must be fitted"),
        ({"features": ("a", "b")}, "got 2"),
        ({"features": ("a", "b", "a")}, "'a' more than once"),
        ({"features": ["a", "b", "c"]}, "a tuple"),
        ({"features": ("a", "b", 3)}, "texts"),
        ({"spread": np.array([1.0, 0.0, 1.0])}, "spread must be positive"),
    ]
    parts_refused = [(partial(replace, small(), **of), said) for of, said in parts]
    require_refusals(rows_refused + parts_refused, literal=True)


# What cannot be read -------------------------------------------------------------------------------------------------


def test_a_file_changed_cut_or_continued_anywhere_is_refused():
    content = saved(small())
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 1 << position % 8
        refusal(loaded, bytes(changed))
    for stop in range(0, len(content), 11):
        refusal(loaded, content[:stop])
    refusal(loaded, content + b"\0")
    refusal(loaded, b"\0" + content)


def test_arrays_that_were_changed_are_refused_by_name():
    arrays = unpack(saved(small()))
    wrong = [lambda array: array[:-1], lambda array: array[None]]  # another shape
    wrong += [lambda array, dtype=dtype: array.astype(dtype) for dtype in ("U", complex, np.float32, ">f8")]
    refused = [({**arrays, n: change(array)}, n) for n, array in arrays.items() if "." not in n for change in wrong]
    for name in ("low", "spread", "dual_coef", "intercept", "calibration", "kernel.X", "kernel.weights"):
        said = f"{name.removeprefix('kernel.')} must be finite"
        refused += [(spoiled, said) for spoiled in not_finite(arrays, name)]
    for name in arrays.keys() - {"calibration"}:
        refused.append(({"x" + key if key == name else key: value for key, value in arrays.items()}, ""))
    require_refusals((lambda held=held: loaded(pack(held)), said) for held, said in refused)
    del arrays["calibration"]
    assert "calibration" not in loaded(pack(arrays)).column_types


def text_of(arrays: dict[str, np.ndarray]) -> dict:
    return json.loads(arrays[TEXT].tobytes())


def with_text(model: Model, **changes) -> bytes:
    """Return a file whose text has other entries; an ellipsis takes one out."""
    arrays = unpack(saved(model))
    text = {key: value for key, value in {**text_of(arrays), **changes}.items() if value is not ...}
    return pack({**arrays, TEXT: as_text(json.dumps(text).encode())})


@pytest.mark.parametrize(
    "other", [{"removed": 1}, {"sample": ...}, {"learner": {"learner": {"name": "lq", "params": {"dict": {}}}}}]
)
def test_parameters_that_lack_one_or_have_another_are_refused(other: dict):
    model = small()
    held = text_of(unpack(saved(model)))["parameters"] | other
    parameters = {name: value for name, value in held.items() if value is not ...}
    said = (
        "the parameters of learner must be q, got none" if "learner" in other else "the parameters must be C, centering"
    )
    assert said in refusal(loaded, with_text(model, parameters=parameters))


def test_a_file_holds_landmarks_in_place_of_training_rows():
    training, X = rows(600), rows(9, seed=6)
    few, all_rows = (
        Model(estimator.fit(training, numbers(training)), ("a", "b", "c"), np.zeros(3), np.ones(3), {})
        for estimator in (regressor(predictor=Nystrom(landmarks=30))[0], regressor()[0])
    )
    arrays = unpack(content := saved(few))
    assert arrays["kernel.X"].shape == (30, 3)
    sizes = {name: len(array) for name, array in arrays.items() if array.dtype == np.float64}
    assert sizes.pop("residuals") == 600  # at most 999
    assert max(sizes.values()) == 30
    # What does not grow with the rows: the text, and headers.
    assert len(content) < len(saved(all_rows)) - 8 * 570 * 3
    assert few.batch_rows % chunk_rows_for(30) == 0
    assert_same_columns(loaded(content), few, X)


PARAMETERS = {
    name: parameter_to_data(value, name)
    for name, value in KernelLearningClassifier(learner="alignf", C=1.0, probability=True).get_params(False).items()
}


def given(**changes: object) -> dict[str, object]:
    return {"parameters": {**PARAMETERS, **changes}}


def of_learner(data: object) -> dict[str, object]:
    return given(learner={"learner": data})


def of_classes(kind: str, dtype: str, values: list[object]) -> dict[str, object]:
    return {"classes": {"kind": kind, "dtype": dtype, "values": values}}


REFUSED = [
    ({"format": "learnkernels kernel"}, "format"),
    ({"version": 2}, "version of a saved model must be 1, got 2; read it with the release that wrote it"),
    ({"version": True}, "version"),
    ({"task": "os.system"}, "task"),
    ({"task": "regression"}, "the parameters must be alpha, centering"),
    ({"parameters": ...}, "parameters"),
    (given(family={"family": {"kind": "os.system"}}), "os.system"),
    (given(family={"call": "os.system"}), "family"),
    (given(C={"number": "1"}), "number"),
    (given(C=[]), "C"),
    (of_learner({"name": "lq"}), "the parameters of learner must be an object with named fields, got nothing"),
    (of_learner({"name": "lq", "params": {"pairs": [{"tuple": [1, 2]}]}}), "the parameters of learner"),
    (of_learner({"name": "os:x", "params": {"dict": {}}}), "name of learner"),
    *((given(C={"pairs": [of]}), "pairs of a key and a value") for of in (3, {"list": [{"list": []}, 1]})),
    ({"predictor": "forest"}, "predictor"),
    ({"predictor_reason": 3}, "predictor_reason"),
    ({"names": "abc"}, "names"),
    ({"names": ["a", "b", "c"]}, "names that the estimator"),
    ({"features": [1, 2, 3]}, "features"),
    ({"about": []}, "about"),
    ({"classes": ...}, "classes"),
    (of_classes("text", "<U3", ["no", "yes", "zzz"]), "dual_coef must have shape"),
    *((of_classes("text", "<U3", of), "two different labels") for of in (["no"], ["no", "no"])),
    (of_classes("text", "<U2", ["no", "yes"]), "fit <U2"),
    *((of_classes("text", dtype, ["1", "2"]), "dtype") for dtype in ("<i8", "<U999999999", "builtins.object")),
    (of_classes("text", "object", ["no", 1]), "a text"),
    (of_classes("integer", "|u1", [1, 300]), "fit"),
    (of_classes("integer", "<i8", [1, True]), "whole number"),
    (of_classes("boolean", "|b1", [0, 1]), "true or false"),
    (of_classes("number", "<f4", [0.1, 0.2]), "fit"),
    (of_classes("complex", "<c16", [0, 1]), "kind"),
]


def test_a_text_that_was_changed_is_refused():
    four, two = made("four-svm")[0], made("two-outputs")[0]
    refused = [(with_text(small(), **of), said) for of, said in REFUSED]
    # The shape of coefficients follows from classes and predictor.
    refused.append((with_text(four, predictor="krr"), "dual_coef must have shape (48, 4)"))
    refused.append((with_text(two, vector=True), "dual_coef must have shape (48, 1)"))
    refused.append((with_text(two, vector=1), "vector"))
    require_refusals(((partial(loaded, content), said) for content, said in refused), literal=True)


def test_a_text_that_is_none_or_nested_without_end_is_refused():
    arrays = unpack(saved(small()))
    text = text_of(arrays)
    text["parameters"]["class_weight"] = "HERE"

    def nested(n: int) -> bytes:
        return json.dumps(text).replace('"HERE"', '{"list": [' * n + "1" + "]}" * n).encode()

    texts = (*NO_TEXTS, nested(300), nested(6000))
    require_refusals((lambda text=text: loaded(pack({**arrays, TEXT: as_text(text)})), "") for text in texts)
    loaded(pack({**arrays, TEXT: as_text(nested(10))}))


def test_pickled_objects_are_never_loaded():
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("it was unpickled",))

    for name in ("dual_coef", "extra", TEXT, "kernel.X"):
        arrays = {**unpack(saved(small())), name: np.array([Trap(), None], dtype=object)}
        file = io.BytesIO()
        np.savez(file, **arrays)
        of_kernel = refusal(load_kernel, io.BytesIO(file.getvalue()))
        with zipfile.ZipFile(file, "a") as archive:
            archive.comment = SEAL + bytes(64)
        for said in (of_kernel, refusal(loaded, resealed(file.getvalue()))):
            assert name in said
            assert "never loaded" in said
        with pytest.raises(ValueError, match="allow_pickle"):
            pack(arrays)


def test_files_of_other_kinds_are_refused(tmp_path):
    kernel, twice = io.BytesIO(), io.BytesIO(saved(small()))
    save_kernel(small().estimator.kernel_, kernel)
    with zipfile.ZipFile(twice, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("spread.npy", archive.read("spread.npy"))
    none = (b"", b"hello", bytes(1000), SEAL + bytes(64), resealed(b"no archive" + bytes(SEAL_LENGTH)))
    refused = [(content, "") for content in none]
    refused += [(kernel.getvalue(), "save_model"), (pack({"weights": np.ones(3)}), "save_model")]
    refused += [(resealed(twice.getvalue()), "once")]
    require_refusals((partial(loaded, content), said) for content, said in refused)
    assert "'rb'" in refusal(load_model, io.StringIO("text"))
    for path, kind in ((tmp_path / "none.npz", FileNotFoundError), (tmp_path, IsADirectoryError)):
        with pytest.raises(kind):
            load_model(path)
