"""Saved models: the same predictions bit by bit, nothing unpickled, and one sentence about any changed byte."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from learnkernels import FamilyUnion, GaussianFamily, LaplacianFamily, LinearFamily, save_kernel
from learnkernels.kernels.estimators import KernelLearningClassifier, KernelLearningRegressor, chunk_rows_for
from learnkernels.kernels.families import KernelFamily
from learnkernels.kernels.learners import CA, NKRR, Lq
from learnkernels.kernels.persistence.archive import SEAL, SEAL_LENGTH, _seal, pack, unpack
from learnkernels.kernels.persistence.model import BATCH, TEXT, Model, load_model, save_model
from learnkernels.kernels.predictors import KRR, Auto, Nystrom
from tests.unit.kernels.conftest import sparse_rows
from tools.mutations import fates

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


@dataclass(frozen=True)
class Case:
    """A way to come to a model."""

    name: str
    make: Callable[[], tuple[object, object, object]]

    @cached_property
    def made(self) -> tuple[Model, object]:
        """The model, and rows that it was not trained on."""
        estimator, X, y = self.make()
        d = X.shape[1]
        names = tuple(X.columns) if isinstance(X, pd.DataFrame) else tuple(f"column {j}" for j in range(d))
        new = X.iloc[:9].to_numpy() if isinstance(X, pd.DataFrame) else X[:9] * 0.9
        return Model(estimator.fit(X, y), names, np.zeros(d), np.ones(d), {"name": self.name}), new


def classifier(names, family=GAUSSIANS, X=None, **params) -> Case:
    X = rows() if X is None else X
    return lambda: (KernelLearningClassifier(family, **params), X, labels(X, names))


def regressor(target=numbers, family=GAUSSIANS, X=None, **params) -> Case:
    X = rows() if X is None else X
    return lambda: (KernelLearningRegressor(family, **params), X, target(X))


MIXED = FamilyUnion([LaplacianFamily([0.2, 0.9]), LinearFamily()], [[0, 1], None], ["two", None])
FRAME = pd.DataFrame(rows(), columns=["width \N{GREEK SMALL LETTER MU}", "'\"\\", "a b"])

CASES = [
    Case("binary-svm", classifier(["no", "yes"])),
    Case("binary-krr-probability", classifier(["no", "yes"], predictor="krr", probability=True, C=3)),
    Case("three-svm-probability", classifier(["a", "b", "c"], probability=True)),
    Case("three-krr", classifier(["a", "b", "c"], predictor="krr")),
    Case("four-svm", classifier([-3, 0, 7, 2**40])),
    Case("small-integers", classifier(np.array([3, 200], dtype=np.uint8))),
    Case("truth-values", classifier([False, True], probability=True)),
    Case("numbers-as-labels", classifier([1.0, 2.0, 4.0])),
    Case("text-as-objects", classifier(np.array(["", "\N{GREEK SMALL LETTER MU} 'x'\n"], dtype=object))),
    Case("one-stage", classifier(["no", "yes"], MIXED, learner="l1-svm", C=0.5)),
    Case("default-family", classifier(["no", "yes"], None)),
    Case(
        "named-columns", lambda: (KernelLearningClassifier(GAUSSIANS), FRAME, labels(FRAME.to_numpy(), ["no", "yes"]))
    ),
    Case("csr", classifier(["no", "yes"], GaussianFamily([0.25, 0.5]), sparse_rows(60, 9, seed=9))),
    Case("regression", regressor()),
    Case("regression-mixed", regressor(family=MIXED, alpha=0.05, normalise="frobenius")),
    Case("regression-column", regressor(lambda X: numbers(X)[:, None])),
    Case("two-outputs", regressor(lambda X: np.column_stack([numbers(X), X[:, 1] ** 2]))),
    Case("automatic", regressor(alpha="auto")),
    Case("searched", regressor(family=None, learner=CA(max_kernels=3))),
    Case("power", regressor(learner=NKRR(starts=1))),
    Case(
        "landmarks-probability",
        classifier(["no", "yes"], predictor=Nystrom(landmarks=12), probability=True),
    ),
    Case(
        "three-landmarks",
        classifier(["a", "b", "c"], predictor=Nystrom(landmarks=12, loss="logistic")),
    ),
    Case("auto-landmarks", regressor(X=rows(60), predictor=Auto(memory=100_000))),
    Case("three-conjugate-gradients", classifier(["a", "b", "c"], predictor="krr-cg")),
    Case("weighted", lambda: (Weighted(GAUSSIANS), rows(), numbers(rows()))),
]


class Weighted(KernelLearningRegressor):
    def fit(self, X, y):
        weights = np.arange(len(y)) % 3 + 1.0
        return KernelLearningRegressor(self.family).fit(X, y, sample_weight=weights)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def model_and_rows(request) -> tuple[Model, object]:
    return request.param.made


def small() -> Model:
    return CASES[1].made[0]


def saved(model: Model) -> bytes:
    file = io.BytesIO()
    save_model(model, file)
    return file.getvalue()


def loaded(content: bytes) -> Model:
    return load_model(io.BytesIO(content))


def resealed(content: bytes) -> bytes:
    """Return an archive with a checksum of whatever it holds now."""
    return content[:-SEAL_LENGTH] + _seal(memoryview(content)[:-SEAL_LENGTH])


def refusal(read, *args) -> str:
    """Return the one sentence that something is refused with."""
    with pytest.raises(ValueError, match=r"^[^\n]*\.$") as caught:
        read(*args)
    assert type(caught.value) is ValueError
    return str(caught.value)


def assert_same_columns(got: Model, expected: Model, X) -> None:
    ours, theirs = got.columns(X), expected.columns(X)
    assert list(ours) == list(theirs)
    for name, values in theirs.items():
        assert ours[name].dtype == values.dtype
        if values.dtype == object:
            assert ours[name].tolist() == values.tolist()
        else:
            assert ours[name].tobytes() == values.tobytes()


def plain(parameters: dict) -> dict:
    return {key: one.to_dict() if isinstance(one, KernelFamily) else one for key, one in parameters.items()}


# Round trips ---------------------------------------------------------------------------------------------------------


def test_a_loaded_model_predicts_the_same_bits(model_and_rows):
    model, X = model_and_rows
    assert_same_columns(loaded(saved(model)), model, X)


def test_a_loaded_estimator_has_all_that_was_fitted_and_its_parameters(model_and_rows):
    model, X = model_and_rows
    back = loaded(saved(model))
    ours, theirs = back.estimator, model.estimator
    assert type(ours) is type(theirs)
    assert set(vars(ours)) == set(vars(theirs))
    assert plain(ours.get_params(False)) == plain(theirs.get_params(False))
    assert (ours.predictor_, ours.predictor_reason_) == (theirs.predictor_, theirs.predictor_reason_)
    for name in ("weights_", "dual_coef_", "intercept_", "calibration_", "landmarks_"):
        if hasattr(theirs, name):
            assert getattr(ours, name).tobytes() == getattr(theirs, name).tobytes()
    if model.task == "classification":
        assert ours.classes_.dtype == theirs.classes_.dtype
        assert list(map(type, ours.classes_.tolist())) == list(map(type, theirs.classes_.tolist()))
        assert ours.classes_.tolist() == theirs.classes_.tolist()
    assert (back.features, back.about, back.task) == (model.features, model.about, model.task)
    if "feature_names_in_" in vars(theirs):
        frame = pd.DataFrame(X, columns=list(model.features))
        assert ours.predict(frame).tolist() == theirs.predict(frame).tolist()


def test_the_same_model_gives_the_same_bytes(model_and_rows):
    model, _ = model_and_rows
    content = saved(model)
    assert content == saved(model)
    assert content == saved(loaded(content))


def test_a_file_holds_plain_arrays_that_numpy_reads(model_and_rows):
    with np.load(io.BytesIO(saved(model_and_rows[0])), allow_pickle=False) as arrays:
        assert {array.dtype.kind for array in arrays.values()} <= {"f", "i", "u"}
        assert json.loads(arrays[TEXT].tobytes(), parse_constant=pytest.fail)["format"] == "learnkernels model"


def test_bytes_do_not_depend_on_clock_machine_or_process(tmp_path: Path):
    path, again = tmp_path / "m.npz", tmp_path / "again.npz"
    save_model(small(), path)
    with zipfile.ZipFile(path) as archive:
        assert {(one.date_time, one.create_system) for one in archive.infolist()} == {((1980, 1, 1, 0, 0, 0), 3)}
    imported = "import sys; from learnkernels.kernels.persistence.model import load_model, save_model"
    code = f"{imported}; save_model(load_model(sys.argv[1]), sys.argv[2])"
    subprocess.run([sys.executable, "-c", code, str(path), str(again)], cwd=Path(__file__).parents[3], check=True)
    assert again.read_bytes() == path.read_bytes()


def test_a_model_goes_through_a_path_and_an_open_file(tmp_path: Path):
    model, X = small(), rows(5)
    path = tmp_path / "name without ending"
    save_model(model, path)
    assert path.read_bytes() == saved(model)
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
    held = {
        "a": (1, 2.5, "x"),
        "b": [None, True, float("inf"), []],
        "c": {"d": (-np.inf,)},
        "e": np.float64(0.1),
        "f": 10**30,
        7: {True: "keys that are no text"},
    }
    back = loaded(saved(with_parameters(held))).estimator.class_weight
    assert back == held
    assert isinstance(back["a"], tuple)
    assert isinstance(back["b"][1], bool)
    family = loaded(saved(with_parameters({"family": [GAUSSIANS]}))).estimator.class_weight["family"][0]
    assert family.to_dict() == GAUSSIANS.to_dict()


@pytest.mark.parametrize("held", [{"a": np.ones(3)}, {"a": print}, {1: object()}, {"a": {3}}])
def test_parameters_that_are_objects_are_not_saved(held):
    file = io.BytesIO()
    assert "class_weight" in refusal(save_model, with_parameters(held), file)
    assert file.getvalue() == b""


def test_a_predictor_of_ones_own_is_not_saved_as_no_file_can_name_it():
    class Mine(KRR):
        pass

    estimator = copy(small().estimator)
    estimator.predictor = Mine()
    file = io.BytesIO()
    said = "predictor must be one of krr, krr-cg, nystrom, svm, auto to be saved, got Mine"
    assert said in refusal(save_model, replace(small(), estimator=estimator), file)
    assert file.getvalue() == b""


def test_importing_models_loads_no_scikit_learn():
    heavy = "('sklearn', 'pandas', 'mlflow')"
    code = (
        f"import learnkernels.kernels.persistence.model, sys; print([name for name in {heavy} if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


# Predictions ---------------------------------------------------------------------------------------------------------


def test_columns_say_what_the_estimator_says(model_and_rows):
    model, X = model_and_rows
    given = pd.DataFrame(X, columns=list(model.features)) if hasattr(model.estimator, "feature_names_in_") else X
    columns = model.columns(X)
    assert {name: values.dtype for name, values in columns.items()} == model.column_types
    expected = {}
    if model.task == "regression":
        values = model.estimator.predict(given).reshape(9, -1)
        names = ["prediction"] if values.shape[1] == 1 else ["prediction 0", "prediction 1"]
        expected = dict(zip(names, values.T, strict=True))
    else:
        classes = model.estimator.classes_.tolist()
        expected["prediction"] = model.estimator.predict(given)
        scores = model.estimator.decision_function(given)
        expected |= (
            {"score": scores} if scores.ndim == 1 else {f"score {c}": s for c, s in zip(classes, scores.T, strict=True)}
        )
        if model.estimator.probability:
            P = model.estimator.predict_proba(given)
            expected |= {f"probability {c}": p for c, p in zip(classes, P.T, strict=True)}
    assert list(columns) == list(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(columns[name], values, strict=True)


def test_no_rows_give_no_predictions_of_the_same_types(model_and_rows):
    model, X = model_and_rows
    assert {name: (len(of), of.dtype) for name, of in model.columns(X[:0]).items()} == {
        name: (0, dtype) for name, dtype in model.column_types.items()
    }


@pytest.mark.parametrize("name", ["three-svm-probability", "regression"])
def test_batches_give_the_bits_of_all_rows_at_once(name):
    model = next(case for case in CASES if case.name == name).made[0]
    X, step = rows(2 * model.batch_rows + 77, seed=8), model.batch_rows
    whole = model.columns(X)
    parts = [model.columns(X[start : start + step]) for start in range(0, len(X), step)]
    for column, values in whole.items():
        assert np.concatenate([part[column] for part in parts]).tobytes() == values.tobytes()


def test_a_batch_is_a_whole_number_of_chunks_and_not_small():
    model = small()
    assert model.batch_rows % chunk_rows_for(len(model.estimator.dual_coef_)) == 0
    assert BATCH <= model.batch_rows < BATCH + chunk_rows_for(len(model.estimator.dual_coef_))


def test_raw_columns_are_moved_and_divided_before_the_estimator_sees_them():
    low, spread = np.array([100.0, -3.0, 0.5]), np.array([10.0, 1e-3, 4.0])
    X = rows(12)
    moved = replace(small(), low=low, spread=spread)
    raw = X * spread + low
    expected = small().columns((raw - low) / spread)
    for name, values in moved.columns(raw).items():
        np.testing.assert_array_equal(values, expected[name])
    assert_same_columns(loaded(saved(moved)), moved, raw)
    # Rounding of raw values far from zero is all that is lost against the rows they were made from.
    np.testing.assert_allclose(moved.columns(raw)["score"], small().columns(X)["score"], atol=1e-10)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix])
def test_sparse_raw_rows_are_divided_without_losing_their_zeros(kind):
    model = next(case for case in CASES if case.name == "csr").made[0]
    model = replace(model, spread=np.arange(1.0, 10.0))
    raw = sparse_rows(20, 9, seed=3)
    before = raw.copy()
    dense, got = model.columns(raw.toarray()), model.columns(kind(raw))
    # Distances of sparse and of dense rows are summed in another order.
    np.testing.assert_allclose(got["score"], dense["score"], atol=1e-12)
    assert (raw != before).nnz == 0
    assert "toarray" in refusal(replace(model, low=np.eye(9)[4]).columns, kind(raw))


@pytest.mark.parametrize(
    ("X", "said"),
    [
        (rows(4, 2), "(4, 2)"),
        (rows(4)[0], "(3,)"),
        (np.where([0, 0, 1], np.nan, rows(4)), "'column 2' (4) of 4 rows"),
        (np.where(np.eye(3, dtype=bool), np.inf, rows(3)), "'column 0' (1), 'column 1' (1)"),
    ],
)
def test_rows_that_do_not_suit_are_refused(X, said):
    assert said in refusal(small().columns, X)


# Parts that do not fit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"estimator": KernelLearningClassifier()}, "must be fitted"),
        ({"features": ("a", "b")}, "got 2"),
        ({"features": ("a", "b", "a")}, "'a' more than once"),
        ({"features": ["a", "b", "c"]}, "a tuple"),
        ({"features": ("a", "b", 3)}, "texts"),
        ({"low": np.zeros(2)}, "low must have shape (3,)"),
        ({"low": np.array([0, np.nan, 0])}, "low must be finite"),
        ({"spread": np.ones((3, 1))}, "spread must have shape (3,)"),
        ({"spread": np.array([1.0, 0.0, 1.0])}, "spread must be positive"),
        ({"spread": np.array([1.0, -1.0, 1.0])}, "spread must be positive"),
        ({"spread": np.array([1.0, np.inf, 1.0])}, "spread must be finite"),
    ],
)
def test_a_model_of_parts_that_do_not_fit_is_refused(changes, said):
    assert said in refusal(lambda: replace(small(), **changes))


@pytest.mark.parametrize("held", [{"x": {1, 2}}, {"x": float("nan")}, {"x": np.float32(1)}, {"x": object()}])
def test_what_json_cannot_hold_is_refused_before_anything_is_written(held):
    file = io.BytesIO()
    assert "'about'" in refusal(save_model, replace(small(), about=held), file)
    assert file.getvalue() == b""


# What cannot be read -------------------------------------------------------------------------------------------------


def test_every_changed_byte_is_refused():
    content = saved(small())
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 1 << position % 8
        refusal(loaded, bytes(changed))


def test_a_file_cut_or_continued_anywhere_is_refused():
    content = saved(small())
    for stop in range(0, len(content), 11):
        refusal(loaded, content[:stop])
    refusal(loaded, content + b"\0")
    refusal(loaded, b"\0" + content)


def model_or_error(content: bytes) -> Model | ValueError:
    try:
        return loaded(content)
    except ValueError as error:
        return error


def test_a_changed_byte_under_a_new_checksum_gives_one_sentence_or_a_model():
    content, rng = saved(small()), np.random.default_rng(1)
    errors = []
    for position in rng.choice(len(content) - SEAL_LENGTH, 1500, replace=False):
        changed = bytearray(content)
        changed[position] ^= 1 << int(rng.integers(8))
        outcome = model_or_error(resealed(bytes(changed)))
        errors += [outcome] if isinstance(outcome, ValueError) else []
    assert {type(error) for error in errors} == {ValueError}
    assert not [error for error in errors if "\n" in str(error)]
    assert len(errors) > 500


def test_a_name_of_an_array_that_was_changed_is_refused():
    arrays = unpack(saved(small()))
    for name in arrays:
        held = {("x" + key if key == name else key): value for key, value in arrays.items()}
        if name == "calibration":
            assert "calibration" not in loaded(pack(held)).column_types
        else:
            refusal(loaded, pack(held))


@pytest.mark.parametrize("name", [name for name in unpack(saved(small())) if "." not in name])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda array: array[:-1],
        lambda array: array[None],
        lambda array: array.astype("U"),
        lambda array: array.astype(complex),
        lambda array: array.astype(np.float32),
        lambda array: array.astype(">f8"),
    ],
    ids=["short", "deep", "text", "complex", "single", "swapped"],
)
def test_an_array_of_another_shape_or_type_is_named(name, wrong):
    arrays = unpack(saved(small()))
    arrays[name] = wrong(arrays[name])
    assert name in refusal(loaded, pack(arrays))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "name", ["low", "spread", "dual_coef", "intercept", "calibration", "kernel.X", "kernel.weights"]
)
def test_values_that_are_not_finite_are_refused(name, value):
    arrays = unpack(saved(small()))
    arrays[name] = arrays[name].copy()
    arrays[name].flat[0] = value
    assert f"{name.removeprefix('kernel.')} must be finite" in refusal(loaded, pack(arrays))


def with_text(model: Model, **changes) -> bytes:
    """Return a file whose text has other entries; an ellipsis takes one out."""
    arrays = unpack(saved(model))
    text = json.loads(arrays[TEXT].tobytes())
    text = {key: value for key, value in {**text, **changes}.items() if value is not ...}
    return pack({**arrays, TEXT: np.frombuffer(json.dumps(text).encode(), dtype=np.uint8)})


def test_a_file_from_before_there_were_options_of_predictors_is_read():
    for name in ("binary-krr-probability", "two-outputs"):
        model, X = next(case for case in CASES if case.name == name).made
        held = json.loads(unpack(saved(model))[TEXT].tobytes())["parameters"]
        later = {"sample", "random_state", "n_jobs", "predictor" if model.task == "regression" else "class_weight"}
        then = {key: value for key, value in held.items() if key not in later} | {"learner_params": None}
        assert len(then) == len(held) - len(later) + 1
        back = loaded(with_text(model, parameters=then, predictor_reason=...))
        assert_same_columns(back, model, X)
        assert plain(back.estimator.get_params(False)) == plain(model.estimator.get_params(False))
        assert back.estimator.predictor_reason_ == ""
        fewer = {key: value for key, value in then.items() if key != "normalise"}
        assert "parameters" in refusal(loaded, with_text(model, parameters=fewer))


def test_a_file_of_the_first_release_keeps_what_its_predictor_was_told_and_none_was_the_default():
    held = {**PARAMETERS, "predictor": "nystrom", "learner": "lq", "learner_params": {"dict": {"q": 3.0}}}
    told = {"dict": {"landmarks": 30, "memory": None, "seed": 2}}
    back = loaded(with_text(small(), parameters={**held, "predictor_params": told})).estimator
    assert (back.learner, back.predictor) == (Lq(q=3.0), Nystrom(landmarks=30, seed=2))
    back = loaded(with_text(small(), parameters={**held, "predictor_params": {"dict": {"memory": None}}})).estimator
    assert back.predictor == "nystrom"


def test_a_file_holds_landmarks_in_place_of_training_rows():
    training, X = rows(600), rows(9, seed=6)
    few = KernelLearningRegressor(GAUSSIANS, predictor=Nystrom(landmarks=30))
    few, all_rows = (
        Model(estimator.fit(training, numbers(training)), ("a", "b", "c"), np.zeros(3), np.ones(3), {})
        for estimator in (few, KernelLearningRegressor(GAUSSIANS))
    )
    content = saved(few)
    arrays = unpack(content)
    assert arrays["kernel.X"].shape == (30, 3)
    assert max(len(array) for name, array in arrays.items() if array.dtype == np.float64) == 30
    # What does not grow with the rows: the text, and headers.
    assert len(content) < len(saved(all_rows)) - 8 * 570 * 3
    assert few.batch_rows % chunk_rows_for(30) == 0
    assert_same_columns(loaded(content), few, X)
    # Thirty landmarks tell a smooth function of three features to a few tenths of its spread.
    assert np.corrcoef(few.columns(X)["prediction"], all_rows.columns(X)["prediction"])[0, 1] > 0.8


PARAMETERS = {
    "family": None,
    "learner": "alignf",
    "C": 1.0,
    "predictor": "auto",
    "learner_params": None,
    "normalise": "trace",
    "probability": True,
}


def of_learner(data: object) -> dict[str, object]:
    return {"parameters": {**PARAMETERS, "learner": {"learner": data}}}


def of_predictor(data: object) -> dict[str, object]:
    return {"parameters": {**PARAMETERS, "predictor": {"predictor": data}}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": "learnkernels kernel"}, "format"),
        ({"format": ...}, "format"),
        ({"version": 2}, "version of a saved model must be 1, got 2"),
        ({"version": True}, "version"),
        ({"version": ...}, "release"),
        ({"task": "os.system"}, "task"),
        ({"task": ...}, "task"),
        ({"task": "regression"}, "parameters"),
        ({"parameters": ...}, "parameters"),
        ({"parameters": {**PARAMETERS, "extra": 1}}, "parameters"),
        ({"parameters": {**PARAMETERS, "family": {"family": {"kind": "os.system"}}}}, "os.system"),
        ({"parameters": {**PARAMETERS, "family": {"call": "os.system"}}}, "family"),
        ({"parameters": {**PARAMETERS, "C": {"number": "1"}}}, "number"),
        ({"parameters": {**PARAMETERS, "C": []}}, "C"),
        ({"parameters": {**PARAMETERS, "C": {}}}, "C"),
        ({"parameters": {**PARAMETERS, "learner_params": {"dict": []}}}, "learner_params"),
        ({"parameters": {**PARAMETERS, "learner_params": 3}}, "learner_params"),
        ({"parameters": {**PARAMETERS, "learner_params": {"list": []}}}, "learner_params"),
        ({"parameters": {**PARAMETERS, "learner": "os:x", "learner_params": {"dict": {"q": 1}}}}, "name of learner"),
        (of_learner({"name": "lq"}), "the parameters of learner must be an object with named fields, got nothing"),
        (of_learner({"name": "lq", "params": []}), "the parameters of learner"),
        (of_learner({"name": "lq", "params": {"list": []}}), "the parameters of learner"),
        (of_learner({"name": "lq", "params": {"pairs": [{"tuple": [1, 2]}]}}), "the parameters of learner"),
        (of_learner({"name": "lq", "params": {"dict": {"learner": 1}}}), "got 'learner'"),
        (of_learner({"name": "lq", "params": {"dict": {"kind": 1}}}), "got 'kind'"),
        (of_learner({"name": "os:x", "params": {"dict": {}}}), "name of learner"),
        (of_predictor({"name": "krr", "params": {"dict": {"predictor": 1}}}), "got 'predictor'"),
        ({"parameters": {**PARAMETERS, "C": {"pairs": [3]}}}, "pairs of a key and a value"),
        ({"parameters": {**PARAMETERS, "C": {"pairs": [{"list": [{"list": []}, 1]}]}}}, "pairs of a key and a value"),
        ({"parameters": {**PARAMETERS, "sample": None, "more": None}}, "parameters"),
        ({"predictor": "forest"}, "predictor"),
        ({"predictor_reason": 3}, "predictor_reason"),
        ({"predictor": ["krr"]}, "predictor"),
        ({"names": "abc"}, "names"),
        ({"names": ["a", "b", "c"]}, "names that the estimator"),
        ({"features": ["a", "b"]}, "features"),
        ({"features": ["a", "b", "a"]}, "more than once"),
        ({"features": [1, 2, 3]}, "features"),
        ({"features": ...}, "features"),
        ({"about": ...}, "about"),
        ({"about": []}, "about"),
        ({"classes": ...}, "classes"),
        ({"classes": {"kind": "text", "dtype": "<U3", "values": ["no", "yes", "zzz"]}}, "dual_coef must have shape"),
        ({"classes": {"kind": "text", "dtype": "<U3", "values": ["no"]}}, "two different labels"),
        ({"classes": {"kind": "text", "dtype": "<U3", "values": ["no", "no"]}}, "two different labels"),
        ({"classes": {"kind": "text", "dtype": "<U2", "values": ["no", "yes"]}}, "fit <U2"),
        ({"classes": {"kind": "text", "dtype": "<i8", "values": ["1", "2"]}}, "dtype"),
        ({"classes": {"kind": "text", "dtype": "<U999999999", "values": ["no", "yes"]}}, "dtype"),
        ({"classes": {"kind": "text", "dtype": "builtins.object", "values": ["no", "yes"]}}, "dtype"),
        ({"classes": {"kind": "text", "dtype": "object", "values": ["no", 1]}}, "a text"),
        ({"classes": {"kind": "integer", "dtype": "|u1", "values": [1, 300]}}, "fit"),
        ({"classes": {"kind": "integer", "dtype": "<i8", "values": [1, True]}}, "whole number"),
        ({"classes": {"kind": "boolean", "dtype": "|b1", "values": [0, 1]}}, "true or false"),
        ({"classes": {"kind": "number", "dtype": "<f4", "values": [0.1, 0.2]}}, "fit"),
        ({"classes": {"kind": "complex", "dtype": "<c16", "values": [0, 1]}}, "kind"),
    ],
)
def test_a_text_that_was_changed_is_refused(changes, said):
    assert said in refusal(loaded, with_text(small(), **changes))


def test_the_shape_of_coefficients_follows_from_classes_and_predictor():
    four = next(case for case in CASES if case.name == "four-svm").made[0]
    assert "dual_coef must have shape (48, 4)" in refusal(loaded, with_text(four, predictor="krr"))
    two = next(case for case in CASES if case.name == "two-outputs").made[0]
    assert "dual_coef must have shape (48, 1)" in refusal(loaded, with_text(two, vector=True))
    assert "vector" in refusal(loaded, with_text(two, vector=1))


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"\xff\xfe", b"[1]", b"null", b'{"a": NaN}', b"[" * 100_000, b"1" * 5000],
    ids=lambda text: repr(text[:8]),
)
def test_a_text_that_is_none_is_refused(text):
    refusal(loaded, pack({**unpack(saved(small())), TEXT: np.frombuffer(text, dtype=np.uint8)}))


def test_parameters_in_parameters_without_end_give_one_sentence_or_a_model():
    arrays = unpack(saved(small()))
    text = json.loads(arrays[TEXT].tobytes())
    text["parameters"]["class_weight"] = "HERE"
    errors = []
    for n in range(10, 6000, 97):
        nested = json.dumps(text).replace('"HERE"', '{"list": [' * n + "1" + "]}" * n)
        outcome = model_or_error(pack({**arrays, TEXT: np.frombuffer(nested.encode(), dtype=np.uint8)}))
        errors += [outcome] if isinstance(outcome, ValueError) else []
    assert {type(error) for error in errors} == {ValueError}
    assert not [error for error in errors if "\n" in str(error)]


@pytest.mark.parametrize("name", ["dual_coef", "extra", TEXT, "kernel.X"])
def test_pickled_objects_are_never_loaded(name):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("it was unpickled",))

    arrays = {**unpack(saved(small())), name: np.array([Trap(), None], dtype=object)}
    file = io.BytesIO()
    np.savez(file, **arrays)
    with zipfile.ZipFile(file, "a") as archive:
        archive.comment = SEAL + bytes(64)
    said = refusal(loaded, resealed(file.getvalue()))
    assert name in said
    assert "never loaded" in said
    with pytest.raises(ValueError, match="allow_pickle"):
        pack(arrays)


def test_an_array_that_is_there_twice_is_refused():
    file = io.BytesIO(saved(small()))
    with zipfile.ZipFile(file, "a") as archive:
        content = archive.read("spread.npy")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("spread.npy", content)
    assert "once" in refusal(loaded, resealed(file.getvalue()))


def test_files_of_other_kinds_are_refused(tmp_path: Path):
    for content in (b"", b"hello", bytes(1000), SEAL + bytes(64), resealed(b"no archive" + bytes(SEAL_LENGTH))):
        refusal(loaded, content)
    file = io.BytesIO()
    save_kernel(small().estimator.kernel_, file)
    assert "save_model" in refusal(loaded, file.getvalue())
    assert "save_model" in refusal(loaded, pack({"weights": np.ones(3)}))
    assert "'rb'" in refusal(load_model, io.StringIO("text"))
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "none.npz")
    with pytest.raises(IsADirectoryError):
        load_model(tmp_path)


def test_a_small_file_takes_little_memory():
    """Compressed, sealed as `pack` seals: refused by its list of members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("low.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array(member, np.zeros(1 << 26))
        archive.comment = bytes(SEAL_LENGTH)
    assert len(file.getvalue()) < 1 << 20
    (fate,) = fates([resealed(file.getvalue())], loaded, (ValueError,), memory=100 << 20)
    assert (fate.kind, fate.text) == (
        "sentence",
        "file must hold arrays as they are, got compressed ones; write it by save_model.",
    )
