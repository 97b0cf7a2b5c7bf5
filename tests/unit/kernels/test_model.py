"""Saved models: the same predictions bit by bit, nothing unpickled, and one sentence about any changed byte."""

import json
from copy import copy
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from learnkernels import (
    FamilyUnion,
    GaussianFamily,
    LaplacianFamily,
    LearnedKernelTransformer,
    LinearFamily,
    load,
)
from learnkernels.kernels.estimators import (
    KernelLearningClassifier,
    KernelLearningRegressor,
    chunk_rows_for,
)
from learnkernels.kernels.files import from_bytes, to_bytes
from learnkernels.kernels.learners import CA, NKRR
from learnkernels.kernels.model import (
    INTERVAL_ALPHA,
    INTERVAL_BOUNDS,
    LEAST_BATCH_ROWS,
    Model,
)
from learnkernels.kernels.predictors import KRR, Auto, Nystroem
from tests.refusals import refusal, require_refusals
from tests.unit.kernels.conftest import sparse_rows
from tests.unit.kernels.test_serialization import (
    REPLACED,
    assert_same_kernel,
    changed,
    is_refused,
    not_finite,
    opened,
    places_in,
    reading,
    sealed,
)

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
        return KernelLearningRegressor(family=self.family).fit(
            X, y, sample_weight=weights
        )


def classifier(
    names, family=GAUSSIANS, X=None, **params
) -> tuple[object, object, np.ndarray]:
    X = rows() if X is None else X
    return KernelLearningClassifier(family=family, **params), X, labels(X, names)


def regressor(
    target=numbers, family=GAUSSIANS, X=None, **params
) -> tuple[object, object, np.ndarray]:
    X = rows() if X is None else X
    return KernelLearningRegressor(family=family, **params), X, target(X)


MU = "\N{GREEK SMALL LETTER MU}"
MIXED = FamilyUnion(
    [LaplacianFamily([0.2, 0.9]), LinearFamily()], [[0, 1], None], ["two", None]
)
FRAME = pd.DataFrame(rows(), columns=[f"width {MU}", "'\"\\", "a b"])

CASES = {
    "binary-svm": classifier(["no", "yes"]),
    "binary-krr-probability": classifier(
        ["no", "yes"], predictor="krr", probability=True, C=3
    ),
    "three-svm-probability": classifier(["a", "b", "c"], probability=True),
    "three-krr": classifier(["a", "b", "c"], predictor="krr"),
    "four-svm": classifier([-3, 0, 7, 2**40]),
    "small-integers": classifier(np.array([3, 200], dtype=np.uint8)),
    "truth-values": classifier([False, True], probability=True),
    "numbers-as-labels": classifier([1.0, 2.0, 4.0]),
    "text-as-objects": classifier(np.array(["", f"{MU} 'x'\n"], dtype=object)),
    "one-stage": classifier(["no", "yes"], MIXED, learner="l1-svm", C=0.3),
    "default-family": classifier(["no", "yes"], None),
    "named-columns": (
        KernelLearningClassifier(family=GAUSSIANS),
        FRAME,
        labels(FRAME.to_numpy(), ["no", "yes"]),
    ),
    "csr": classifier(
        ["no", "yes"], GaussianFamily([0.25, 0.5]), sparse_rows(60, 9, seed=9)
    ),
    "regression": regressor(),
    "regression-mixed": regressor(family=MIXED, alpha=0.05, normalize="frobenius"),
    "regression-column": regressor(lambda X: numbers(X)[:, None]),
    "two-outputs": regressor(lambda X: np.column_stack([numbers(X), X[:, 1] ** 2])),
    "automatic": regressor(alpha="auto"),
    "searched-per-feature": regressor(
        family=None, learner=CA(per_feature=True, max_kernels=3)
    ),
    "power": regressor(learner=NKRR(starts=1)),
    "uncentered": regressor(learner="align-uncentered"),
    "not-normalized": regressor(
        family=MIXED, learner="alignf-linear", normalize="none"
    ),
    "landmarks-probability": classifier(
        ["no", "yes"], predictor=Nystroem(n_components=12), probability=True
    ),
    "three-landmarks": classifier(
        ["a", "b", "c"], predictor=Nystroem(n_components=12, loss="logistic")
    ),
    "auto-landmarks": regressor(X=rows(60), predictor=Auto(memory=100_000)),
    "three-conjugate-gradients": classifier(["a", "b", "c"], predictor="krr-cg"),
    "weighted": (Weighted(family=GAUSSIANS), rows(), numbers(rows())),
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
    return Model(
        estimator.fit(X, y), names, np.zeros(d), np.ones(d), {"name": name}
    ), new


def small() -> Model:
    return made("binary-krr-probability")[0]


def test_what_is_kept_of_training_rows_comes_back_and_must_fit():
    model, X = small(), rows(600)
    kept = model.with_reference(X, X.min(axis=0), X.max(axis=0), 0)
    assert kept.reference.rows.shape == (500, 3)
    np.testing.assert_array_equal(
        kept.reference.scores[:, 0], model.columns(kept.reference.rows)["score"]
    )
    assert from_bytes(to_bytes(kept)).reference == kept.reference
    assert from_bytes(to_bytes(model)).reference is None
    with pytest.raises(ValueError, match=r"reference_low must have shape \(3,\)"):
        replace(kept, reference=replace(kept.reference, low=np.zeros(2)))


def bits(columns: dict[str, np.ndarray]) -> list[tuple[object, ...]]:
    held = {
        name: of.tolist() if of.dtype == object else of.tobytes()
        for name, of in columns.items()
    }
    return [(name, columns[name].dtype, values) for name, values in held.items()]


def assert_same_columns(got: Model, expected: Model, X) -> None:
    assert bits(got.columns(X)) == bits(expected.columns(X))


@pytest.mark.parametrize("probability", [False, True])
def test_scores_and_contributions_are_of_the_positive_class(probability: bool):
    estimator, X, y = classifier(
        ["malignant", "rest"], predictor="krr", probability=probability
    )
    estimator.fit(X, y)
    sorted_classes, model = (
        Model(estimator, ("a", "b", "c"), np.zeros(3), np.ones(3), about)
        for about in ({}, {"classes": ["rest", "malignant"]})
    )
    assert_same_columns(from_bytes(to_bytes(model)), model, X)
    columns, others = model.columns(X), sorted_classes.columns(X)
    assert bits(columns) == bits(others | {"score": -others["score"]})
    is_malignant = columns["prediction"] == "malignant"
    np.testing.assert_array_equal(columns["score"] > 0, is_malignant)
    name = "probability malignant" if probability else "score"
    assert model.explained_names[-1] == name
    explanation = model.explain(pd.DataFrame(X, columns=list("abc")), background=5)
    assert explanation.outputs[-1:] == ((name,) if probability else ())
    predictions = explanation.predictions.reshape(len(X), -1)
    np.testing.assert_allclose(predictions[:, -1], columns[name], rtol=1e-9)
    sums = explanation.base_values + explanation.contributions.sum(axis=1)
    np.testing.assert_allclose(sums, explanation.predictions, rtol=1e-9, atol=1e-9)


# Round trips ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_columns_say_what_the_estimator_says_and_a_loaded_model_is_the_one_saved_bit_by_bit(
    name,
):
    model, X = made(name)
    given = (
        pd.DataFrame(X, columns=list(model.features))
        if hasattr(model.estimator, "feature_names_in_")
        else X
    )
    columns = model.columns(X)
    assert {
        name: values.dtype for name, values in columns.items()
    } == model.column_types
    expected = {}
    if model.task == "regression":
        values = model.estimator.predict(given).reshape(9, -1)
        names = (
            ["prediction"] if values.shape[1] == 1 else ["prediction 0", "prediction 1"]
        )
        expected = dict(zip(names, values.T, strict=True))
        # Which tell nine of ten numbers
        if len(names) == 1 and len(getattr(model.estimator, "residuals_", ())) >= 9:
            bounds = model.estimator.predict_interval(given, INTERVAL_ALPHA).reshape(
                9, 2
            )
            expected |= dict(zip(INTERVAL_BOUNDS, bounds.T, strict=True))
    else:
        classes = model.estimator.classes_.tolist()
        expected["prediction"] = model.estimator.predict(given)
        scores = model.estimator.decision_function(given)
        many = scores.ndim > 1
        expected |= (
            dict(zip([f"score {c}" for c in classes], scores.T, strict=True))
            if many
            else {"score": scores}
        )
        if model.estimator.probability:
            P = model.estimator.predict_proba(given)
            expected |= {
                f"probability {c}": p for c, p in zip(classes, P.T, strict=True)
            }
    assert list(columns) == list(expected)
    for column, values in expected.items():
        np.testing.assert_array_equal(columns[column], values, strict=True)
    none = {name: (len(of), of.dtype) for name, of in model.columns(X[:0]).items()}
    assert none == {name: (0, dtype) for name, dtype in model.column_types.items()}
    content = to_bytes(model)
    back = from_bytes(content)
    assert_same_columns(back, model, X)
    assert content == to_bytes(model) == to_bytes(back)
    assert {array.dtype.kind for array in opened(content)[0].values()} <= {
        "f",
        "i",
        "u",
        "b",
    }
    ours, theirs = back.estimator, model.estimator
    assert (type(ours), set(vars(ours))) == (type(theirs), set(vars(theirs)))
    assert ours.get_params(False) == theirs.get_params(False)
    assert_same_kernel(ours.kernel_, theirs.kernel_)
    for field in ("weights_", "landmarks_"):  # coefficients and names are in the bytes
        if hasattr(theirs, field):
            assert getattr(ours, field).tobytes() == getattr(theirs, field).tobytes()
    if model.task == "classification":
        assert ours.classes_.dtype == theirs.classes_.dtype
        assert repr(ours.classes_.tolist()) == repr(theirs.classes_.tolist())


@pytest.mark.parametrize("name", CASES)
def test_an_estimator_alone_comes_back_and_predicts_the_same(name: str, tmp_path: Path):
    estimator, X = made(name)[0].estimator, CASES[name][1]
    path = tmp_path / "estimator.safetensors"
    estimator.save(path)
    back = load(path)
    assert type(back) is type(estimator)
    np.testing.assert_array_equal(back.predict(X), estimator.predict(X), strict=True)
    back.save(tmp_path / "again.safetensors")
    assert path.read_bytes() == (tmp_path / "again.safetensors").read_bytes()


@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize(
    "params",
    [{}, {"n_components": 7}, {"method": "eigen"}, {"learner": "l1-svm"}],
    ids=str,
)
def test_a_transformer_comes_back_and_gives_the_same_features(
    params: dict[str, Any], table: bool, tmp_path: Path
):
    X = (
        FRAME.assign(level=np.where(FRAME["a b"] > 1, "high", None))
        if table
        else rows()
    )
    transformer = LearnedKernelTransformer(**params).fit(
        X, labels(rows(), ["no", "yes"])
    )
    transformer.save(tmp_path / "features.safetensors")
    back = load(tmp_path / "features.safetensors")
    np.testing.assert_array_equal(
        back.transform(X), transformer.transform(X), strict=True
    )
    assert set(vars(back)) == set(vars(transformer))
    assert to_bytes(back) == to_bytes(transformer)
    n_kernels = sum(name.endswith(".X") for name in opened(to_bytes(transformer))[0])
    # One over all rows is in the file once
    assert n_kernels == (2 if "n_components" in params else 1)


def test_a_model_goes_through_a_file_and_other_objects_are_no_models(tmp_path: Path):
    model, X, path = small(), rows(5), tmp_path / "name without ending"
    model.save(path)
    assert path.read_bytes() == to_bytes(model)
    assert_same_columns(load(path), model, X)
    assert_same_columns(Model.load(str(path)), model, X)
    model.estimator.save(path)
    said = f"{path}: holds a KernelLearningClassifier and no Model; read it by learnkernels.load."
    assert refusal(Model.load, path) == said


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
    }
    held |= {"f": 10**30, 7: {True: "keys that are no text"}, "family": [GAUSSIANS]}
    back = from_bytes(to_bytes(with_parameters(held))).estimator.class_weight
    family = back.pop("family")[0]
    assert family == GAUSSIANS
    assert back == {key: value for key, value in held.items() if key != "family"}
    assert isinstance(back["a"], tuple)
    assert isinstance(back["b"][1], bool)


def test_arrays_of_keys_that_read_alike_come_back_apart():
    values = [np.full(2, value) for value in range(4)]
    about = {"a.b": values[0], "a": {"b": values[1], 1: values[2], "1": values[3]}}
    back = from_bytes(to_bytes(replace(small(), about=about))).about
    for array, value in zip(
        (back["a.b"], back["a"]["b"], back["a"][1], back["a"]["1"]), values, strict=True
    ):
        np.testing.assert_array_equal(array, value, strict=True)


def test_what_no_file_can_hold_is_refused_before_anything_is_written(tmp_path: Path):
    class Mine(KRR):
        pass

    own = copy(small().estimator)
    own.predictor = Mine()
    of_ones_own = "estimator.predictor must be numbers, texts"
    refused = [(replace(small(), estimator=own), of_ones_own)]
    objects = (
        {"a": np.array([1j])},
        {"a": print},
        {1: object()},
        {"a": {3}},
        {object(): 1},
    )
    refused += [(with_parameters(one), "class_weight") for one in objects]
    refused += [
        (replace(small(), about={"x": one}), "about.x")
        for one in ({1}, np.longdouble(1), object())
    ]
    require_refusals(
        (partial(model.save, tmp_path / "model"), said) for model, said in refused
    )
    assert not list(tmp_path.iterdir())


# Predictions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["three-svm-probability", "regression"])
def test_batches_of_whole_chunks_give_the_bits_of_all_rows_at_once(name):
    model = made(name)[0]
    step, chunk = model.batch_rows, chunk_rows_for(len(model.estimator.dual_coef_))
    assert step % chunk == 0
    assert LEAST_BATCH_ROWS <= step < LEAST_BATCH_ROWS + chunk
    X = rows(2 * step + 77, seed=8)
    parts = [model.columns(X[start : start + step]) for start in range(0, len(X), step)]
    whole = model.columns(X)
    assert bits(
        {name: np.concatenate([part[name] for part in parts]) for name in whole}
    ) == bits(whole)


def test_raw_columns_are_moved_and_divided_before_the_estimator_sees_them():
    low, spread, X = np.array([100.0, -3.0, 0.5]), np.array([10.0, 1e-3, 4.0]), rows(12)
    moved, raw = replace(small(), low=low, spread=spread), X * spread + low
    assert bits(moved.columns(raw)) == bits(small().columns((raw - low) / spread))
    assert_same_columns(from_bytes(to_bytes(moved)), moved, raw)
    # Rounding of raw values far from zero is all that is lost against the rows they
    # were made from.
    np.testing.assert_allclose(
        moved.columns(raw)["score"], small().columns(X)["score"], atol=1e-10
    )


def test_sparse_raw_rows_are_divided_without_losing_their_zeros():
    model = replace(made("csr")[0], spread=np.arange(1.0, 10.0))
    raw = sparse_rows(20, 9, seed=3)
    dense = model.columns(raw.toarray())
    for kind in (sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix):
        given = kind(raw.copy())
        # Distances of sparse and of dense rows are summed in another order.
        np.testing.assert_allclose(
            model.columns(given)["score"], dense["score"], atol=1e-12
        )
        assert (given != raw).nnz == 0
        assert "toarray" in refusal(replace(model, low=np.eye(9)[4]).columns, given)


def test_rows_and_parts_of_a_model_that_do_not_fit_are_refused():
    refused = [
        (rows(4, 2), "(4, 2)"),
        (rows(4)[0], "(3,)"),
        (np.where([0, 0, 1], np.nan, rows(4)), "'column 2' (4) of 4 rows"),
        (
            np.where(np.eye(3, dtype=bool), np.inf, rows(3)),
            "'column 0' (1), 'column 1' (1)",
        ),
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


def test_a_file_holds_landmarks_in_place_of_training_rows():
    training, X = rows(600), rows(9, seed=6)
    few, all_rows = (
        Model(
            estimator.fit(training, numbers(training)),
            ("a", "b", "c"),
            np.zeros(3),
            np.ones(3),
            {},
        )
        for estimator in (
            regressor(predictor=Nystroem(n_components=30))[0],
            regressor()[0],
        )
    )
    content = to_bytes(few)
    arrays = opened(content)[0]
    assert arrays["estimator.kernel_.X"].shape == (30, 3)
    sizes = {
        name: len(array) for name, array in arrays.items() if array.dtype == np.float64
    }
    for name in (
        "residuals_",
        "signed_residuals_",
        "residual_scale_.ratios",
        "residual_scale_.signed_ratios",
    ):
        assert sizes.pop(f"estimator.{name}") == 600  # at most 999
    assert max(sizes.values()) == 30
    # What does not grow with the rows: the text, and headers.
    assert len(content) < len(to_bytes(all_rows)) - 8 * 570 * 3
    assert few.batch_rows % chunk_rows_for(30) == 0
    assert_same_columns(from_bytes(content), few, X)


@pytest.mark.parametrize(
    "name", ["binary-krr-probability", "searched-per-feature", "named-columns"]
)
def test_a_file_changed_cut_or_continued_anywhere_is_refused(name: str):
    content = to_bytes(made(name)[0])
    for position in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        refusal(from_bytes, bytes(damaged))
    for stop in range(0, len(content), 101):
        refusal(from_bytes, content[:stop])


def test_arrays_that_were_changed_are_refused_by_name():
    X = rows(600)
    model = small().with_reference(X, X.min(axis=0), X.max(axis=0), 0)
    arrays, description = opened(to_bytes(model))
    wrong = [
        lambda array: array[:-1],
        lambda array: array[None],
        lambda array: array.astype(np.float32),
    ]
    fitted = {
        f"estimator.{name}" for name in ("dual_coef_", "intercept_", "calibration_")
    }
    references = {
        f"reference.{name}" for name in ("rows", "scores", "low", "high", "shares")
    }
    refused = []
    for name in ("low", "spread", *fitted, *references):
        changes = wrong if name in fitted else wrong[1:2]
        refused += [
            (reading({**arrays, name: change(arrays[name])}, description), "")
            for change in changes
        ]
    for name in (
        "low",
        "spread",
        "estimator.kernel_.X",
        "estimator.kernel_.weights",
        *fitted,
        *references,
    ):
        last = name.split(".")[-1]
        refused += [
            (reading(spoiled, description), last)
            for spoiled in not_finite(arrays, name)
        ]
    for name in arrays:
        refused.append(
            (
                reading(
                    {key: array for key, array in arrays.items() if key != name},
                    description,
                ),
                name,
            )
        )
    require_refusals(refused)


def classes(texts: list[object], width: int | None = 3) -> tuple[str, object]:
    return "estimator.classes_", {"texts": [width, texts]}


LQ = {"learner": ["lq", {}]}

REFUSED = [
    (("estimator", {"record": ["os.system", {}]}), "os.system"),
    (
        ("estimator", {"record": ["KernelLearningRegressor", {}, {}]}),
        "must have the parameters learner",
    ),
    (("estimator.family", {"family": ["os.system", {}]}), "os.system"),
    (("estimator.family", {"call": "os.system"}), "known kind"),
    (("estimator.C", {"number": "1"}), "known kind"),
    (("estimator.C", {"dict": [3]}), ""),
    (("estimator.C", {"dict": [[[], 1]]}), "unhashable"),
    (("estimator.sample", ...), "KernelLearningClassifier must have the parameters"),
    (("estimator.learner", LQ), "lq must have the parameters q, got"),
    (
        ("estimator.learner", {"learner": ["lq", {"dict": 1}]}),
        "lq must have the parameters q, got dict",
    ),
    (("estimator.learner", {"learner": ["os:x", {}]}), "os:x"),
    (("estimator.predictor_", "forest"), "predictor_ must be one of"),
    (("estimator.predictor_reason_", 3), "predictor_reason_"),
    (("estimator.kernel_", None), "kernel_"),
    (("estimator.table_", {"learner": ["lq", {"q": 2}]}), "table_"),
    (("estimator.n_features_in_", 4), "n_features_in_ must be 3"),
    (("features", "abc"), "features"),
    (("features", {"tuple": [1, 2, 3]}), "features"),
    (("features", {"tuple": ["a", "b"]}), "got 2 names"),
    (("about", []), "about"),
    (("about", {"dict": [[1, 2]]}), "about"),
    (("estimator.classes_", ...), "classes_"),
    (("estimator.classes_", {"array": "estimator.dual_coef_"}), "dual_coef_"),
    (classes(["no", "yes", "zzz"]), "dual_coef_ must have shape"),
    (classes(["no"]), "two different labels"),
    (classes(["no", "no"]), "two different labels"),
    (classes(["no", "yes"], 2), "do not fit"),
    (classes(["no", "yes"], 10**9), "do not fit"),
    (classes(["no", 1]), "texts"),
]


@pytest.mark.parametrize(("change", "said"), REFUSED, ids=str)
def test_a_description_that_was_changed_is_refused(
    change: tuple[str, object], said: str
):
    require_refusals([(changed(small(), change), said)], literal=True)


def test_the_shape_of_coefficients_follows_from_classes_and_predictor():
    four, two = made("four-svm")[0], made("two-outputs")[0]
    refused = [
        (
            changed(four, ("estimator.predictor_", "krr")),
            "dual_coef_ must have shape (48, 4)",
        )
    ]
    refused.append(
        (
            changed(two, ("estimator._vector", True)),
            "dual_coef_ must have shape (48, 1)",
        )
    )
    refused.append((changed(two, ("estimator._vector", 1)), "_vector"))
    require_refusals(refused, literal=True)


def test_attributes_that_no_fit_makes_are_refused():
    arrays, description = opened(to_bytes(small().estimator))
    description["content"]["record"][2]["predict"] = {"array": "dual_coef_"}
    assert "has no fitted attributes predict" in refusal(reading(arrays, description))


@pytest.mark.parametrize("replaced", REPLACED, ids=str)
def test_whatever_stands_in_a_place_of_a_file_it_is_refused_in_a_sentence_or_gives_a_model(
    replaced: Any,
):
    model, X = made("named-columns")
    arrays, description = opened(to_bytes(model))
    n_refused = 0
    for place, key in list(places_in(description["content"]["record"][1])):
        before = place[key]
        place[key] = replaced
        n_refused += is_refused(lambda: reading(arrays, description)().columns(X))
        place[key] = before
    assert n_refused > 20


def test_what_is_nested_without_end_is_refused():
    arrays, description = opened(to_bytes(small()))
    text = json.dumps({**description, "content": "HERE"})
    for depth in (300, 6000):
        nested = text.replace('"HERE"', "[" * depth + "1" + "]" * depth)
        refusal(from_bytes, sealed(arrays, nested))
