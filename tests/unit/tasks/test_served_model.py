"""A model as MLflow serves it: the rows that it takes from a frame, its signature and its answers."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from learnkernels import GaussianFamily, KernelLearningClassifier, KernelLearningRegressor
from learnkernels.kernels.persistence.model import Model, save_model
from learnkernels.tasks.models.registry import signature_of
from tests.refusals import require_refusals

pytestmark = pytest.mark.filterwarnings("ignore:.*type hint.*:UserWarning")  # MLflow's about its own, on import

COLUMNS = ("height", "depth in m", "N \N{GREEK SMALL LETTER MU}")
LOW, SPREAD = np.array([150.0, -2.0, 0.0]), np.array([40.0, 0.25, 1.0])


def raw_rows(n: int, seed: int = 0) -> pd.DataFrame:
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return pd.DataFrame(X * SPREAD + LOW, columns=list(COLUMNS))


def trained(names: Any = ("stays", "leaves"), **params: Any) -> Model:
    features = ((raw_rows(60) - LOW) / SPREAD).to_numpy()
    y = np.asarray(names)[(features[:, 0] * features[:, 1] > 0).astype(int) % len(names)]
    estimator = KernelLearningClassifier(GaussianFamily([0.1, 0.7]), C=10, **params).fit(features, y)
    return Model(estimator, COLUMNS, LOW, SPREAD, {"name": "churn"})


def of_a_table(table: pd.DataFrame, y: Any) -> Model:
    return Model.of_table(KernelLearningClassifier().fit(table, y), {"name": "plans"})


def predictions(model: Model, frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(model.columns(frame.to_numpy()))


def rows_of(frame: Any) -> Any:
    from learnkernels.tasks.models.served_model import frame_rows  # here: MLflow warns on import

    return frame_rows(frame, COLUMNS)


def test_frames_of_many_kinds_and_types_give_the_same_rows():
    frame = raw_rows(4)
    kinds = [frame, frame[list(COLUMNS[::-1])], frame.set_index(np.arange(4)[::-1])]
    kinds += [frame.convert_dtypes(), frame.astype(object)]
    kinds.append(pd.DataFrame(np.asfortranarray(frame.to_numpy()), columns=frame.columns))
    for number, one in enumerate(kinds):
        rows = rows_of(one)
        assert rows.flags.c_contiguous, number
        np.testing.assert_array_equal(rows, frame.to_numpy(), err_msg=str(number))
    for dtype in ("int64", "int8", "uint16", "float32", "Int64", "Float32", "bool", "boolean"):
        rows = rows_of(pd.DataFrame({name: pd.array([0, 1, 1], dtype=dtype) for name in COLUMNS}))
        np.testing.assert_array_equal(rows, np.repeat([[0.0], [1.0], [1.0]], 3, axis=1), err_msg=dtype)


def test_frames_that_do_not_suit_are_refused():
    frame = raw_rows(4)
    heights = [
        ("tall", "column 'height' must hold numbers, got str such as 'tall'"),
        (["1.5", "2", "3", "4"], "must hold numbers, got str such as '1.5'"),
        (np.array([1.0, 2.0, "3", None], dtype=object), "must hold numbers"),
        ([1, None, np.nan, 2], "NaN or infinity in 2 of 4 rows"),
        (np.inf, "NaN or infinity in 4 of 4 rows"),
        (pd.array([1, None, 2, 3], dtype="Int64"), "in 1 of 4 rows"),
        (1j, "must hold numbers, got complex128"),
        (pd.Timestamp(0), "must hold numbers, got datetime64"),
    ]
    frames = [(frame.assign(height=values), said) for values, said in heights] + [
        (frame.drop(columns="height"), "got others: 'height' missing; give 'height', 'depth in m', "),
        (frame.assign(id=1), "'id' unknown"),
        (frame.rename(columns={"height": "Height"}), "'height' missing; 'Height' unknown"),
        (pd.concat([frame, frame[["height"]]], axis=1), "'height' more than once"),
        (frame.to_numpy(), "got ndarray; give a pandas DataFrame"),
    ]
    require_refusals(((partial(rows_of, one), said) for one, said in frames), literal=True)


def test_the_signature_names_columns_and_types():
    kinds = [(("no", "yes"), "string"), ((False, True), "boolean"), ((3, 2**40), "long")]
    kinds += [(np.array(["no", "yes"], dtype=object), "string")]
    kinds += [(np.int32([1, 2]), "integer"), (np.uint32([1, 2]), "long")]
    for names, expected in kinds:
        signature = signature_of(trained(names, probability=True))
        inputs = [(column.name, column.type.name, column.required) for column in signature.inputs]
        assert inputs == [(name, "double", True) for name in COLUMNS]
        numbers = ["score", *(f"probability {label}" for label in np.unique(np.asarray(names)).tolist())]
        outputs = [(column.name, column.type.name) for column in signature.outputs]
        assert outputs == [("prediction", expected), *((name, "double") for name in numbers)]
    table = pd.DataFrame({"age": np.arange(40.0) % 7, "city": ["York", "Bath"] * 20})
    inputs = json.loads(signature_of(of_a_table(table, table["age"] > 3)).to_dict()["inputs"])
    assert {column["name"]: column["type"] for column in inputs} == {"age": "double", "city": "string"}


def test_several_outputs_are_served_as_several_columns(tmp_path: Path):
    from learnkernels.tasks.models.served_model import ServedModel

    X = raw_rows(40)
    Y = np.column_stack([np.sin(X["height"]), X["depth in m"] ** 2])
    estimator = KernelLearningRegressor(GaussianFamily([0.1])).fit((X - LOW).to_numpy() / SPREAD, Y)
    model = Model(estimator, COLUMNS, LOW, SPREAD, {})
    save_model(model, tmp_path / "m.npz")
    served, frame = ServedModel(), raw_rows(5, seed=3).set_index(pd.Index(list("vwxyz")))
    served.load_context(SimpleNamespace(artifacts={"model": str(tmp_path / "m.npz")}))
    got = served.predict(None, frame)
    assert list(got.columns) == ["prediction 0", "prediction 1"]
    assert list(got.index) == list("vwxyz")
    np.testing.assert_array_equal(got.to_numpy(), predictions(model, frame).to_numpy())
    assert [column.name for column in signature_of(model).outputs] == ["prediction 0", "prediction 1"]
