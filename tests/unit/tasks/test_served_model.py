"""A model as MLflow serves it: the rows that it takes from a frame, its signature and its answers."""

import io
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

from learnkernels import (
    GaussianFamily,
    KernelLearningClassifier,
    KernelLearningRegressor,
)
from learnkernels.kernels.model import Model
from learnkernels.tasks.models.registry import signature_of
from tests.refusals import require_refusals

# MLflow's about its own, on import
pytestmark = pytest.mark.filterwarnings("ignore:.*type hint.*:UserWarning")

COLUMNS = ("height", "depth in m", "N \N{GREEK SMALL LETTER MU}")
LOW, SPREAD = np.array([150.0, -2.0, 0.0]), np.array([40.0, 0.25, 1.0])


def raw_rows(n: int, seed: int = 0) -> pd.DataFrame:
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return pd.DataFrame(X * SPREAD + LOW, columns=list(COLUMNS))


def trained(names: Any = ("stays", "leaves"), **params: Any) -> Model:
    features = ((raw_rows(60) - LOW) / SPREAD).to_numpy()
    y = np.asarray(names)[
        (features[:, 0] * features[:, 1] > 0).astype(int) % len(names)
    ]
    estimator = KernelLearningClassifier(
        family=GaussianFamily([0.1, 0.7]), C=10, **params
    ).fit(features, y)
    return Model(estimator, COLUMNS, LOW, SPREAD, {"name": "churn"})


def of_a_table(table: pd.DataFrame, y: Any) -> Model:
    return Model.of_table(KernelLearningClassifier().fit(table, y), {"name": "plans"})


def predictions(model: Model, frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(model.columns(frame.to_numpy()))


def served(model: Model) -> Callable[[Any], pd.DataFrame]:
    """Return what MLflow calls with a frame."""
    # here: MLflow warns on import
    from learnkernels.tasks.models.served_model import (
        ServedModel,
    )

    of = ServedModel()
    of.model = model
    return partial(of.predict, None)


def test_frames_of_many_kinds_and_types_give_the_same_rows():
    frame, model = raw_rows(4), trained()
    for number, one in enumerate(
        (
            frame,
            frame[list(COLUMNS[::-1])].assign(more="text"),
            frame.set_index(np.arange(4)[::-1]),
            frame.convert_dtypes(),
            frame.astype(object),
            frame.astype("category"),
            frame.astype(str),
            pd.DataFrame(np.asfortranarray(frame.to_numpy()), columns=frame.columns),
            frame.to_dict("list"),
            frame.to_dict("records"),
        )
    ):
        given = served(model)(one).reset_index(drop=True)
        pd.testing.assert_frame_equal(
            given, predictions(model, frame), obj=str(number), check_exact=True
        )
    for dtype in (
        "int64",
        "int8",
        "uint16",
        "float32",
        "Int64",
        "Float32",
        "bool",
        "boolean",
    ):
        rows = model.raw_rows(
            pd.DataFrame({name: pd.array([0, 1, 1], dtype=dtype) for name in COLUMNS})
        )
        np.testing.assert_array_equal(
            rows, np.repeat([[0.0], [1.0], [1.0]], 3, axis=1), err_msg=dtype
        )


def test_frames_that_do_not_suit_are_refused():
    from mlflow.exceptions import MlflowException

    frame, ages = (
        raw_rows(4),
        pd.DataFrame({"age": np.arange(40.0) % 7, "city": ["York", "Bath"] * 20}),
    )
    ages["day"] = pd.date_range("2024-01-01", periods=40)
    ask, of_table = served(trained()), served(of_a_table(ages, ages["age"] > 3))
    heights = [
        ("tall", "column 'height' must hold finite numbers, got 'tall' in row 0"),
        (np.array([1.0, 2.0, "3", None], dtype=object), "got a missing value in row 3"),
        ([1, None, np.nan, 2], "got a missing value in row 1"),
        (np.inf, "got 'inf' in row 0"),
        (1j, "must hold finite numbers, got '1j'"),
        (
            pd.Timestamp(0),
            "must hold finite numbers, got '1970-01-01T00:00:00.000000' in row 0",
        ),
        ([[1]] * 4, "must hold finite numbers, got other in row 0"),
    ]
    frames = [
        (partial(ask, frame.assign(height=values)), said) for values, said in heights
    ] + [
        (
            partial(ask, frame.drop(columns="height")),
            "the input lacks columns that the model reads: 'height'; rename",
        ),
        (
            partial(ask, frame.rename(columns={"height": "H"})),
            "'height'; the model does not read 'H'; rename",
        ),
        (
            partial(ask, pd.concat([frame, frame[["height"]]], axis=1)),
            "'height' more than once",
        ),
        (partial(ask, frame.to_numpy()), "a table of named columns, got ndarray"),
        (
            partial(of_table, ages[[]]),
            "reads: 'age' (without values: 3, the median), 'city' (without values: none of its categories), 'day' "
            "(without values: 2024-01-20T12:00:00, the median); rename a column, or add the column without values to",
        ),
    ]

    def sentence(act: Callable[[], object]) -> str:
        with pytest.raises(MlflowException) as refused:
            act()
        return str(refused.value)

    require_refusals(frames, literal=True, by=sentence)


TYPES = [
    ("numbers", {"whole": "int64", "real": "float64", "truth": "bool"}),
    (
        "numbers of few values",
        {"whole": "category", "real": "category", "truth": "boolean"},
    ),
    ("categories", {"plan": "category", "code": "int64"}),
    ("texts", {"plan": "string", "code": "object"}),
    ("dates", {"day": "datetime64[ns]"}),
    ("dates as texts", {"day": "string"}),
]


@pytest.mark.parametrize(("kind", "others"), TYPES)
def test_every_type_of_pandas_json_and_csv_gives_the_same_predictions(
    kind: str, others: dict[str, str]
):
    """Training rows are texts of a CSV; new rows have the types that readers give them."""
    from mlflow.pyfunc import scoring_server

    i = np.arange(60)
    texts = pd.DataFrame({
        "whole": (i % 7).astype(str), "real": (i / 8).astype(str), "truth": np.where(i % 3, "True", "False"),
        "plan": np.where(i % 5, "basic", "full"), "code": [f"{n % 4:03d}" for n in i],
        "day": [str(day)[:10] for day in pd.date_range("2024-01-01", periods=60, freq="5D")],
    })  # fmt: skip
    model = of_a_table(texts, i % 7 > 3)
    ask, expected = served(model), pd.DataFrame(model.columns(texts))
    read = pd.read_csv(io.StringIO(texts.to_csv(index=False)))
    typed = read.astype(others) if kind != "texts" else texts.astype(others)
    if "day" in others:
        typed["day"] = pd.to_datetime(read["day"]).astype(others["day"])
    split = json.dumps(
        {
            "dataframe_split": json.loads(
                typed.to_json(orient="split", date_format="iso")
            )
        }
    )
    posted = scoring_server.infer_and_parse_data(json.loads(split), None)
    by_csv = scoring_server.parse_csv_input(
        io.StringIO(typed.to_csv(index=False)), None
    )
    for frame in (typed, posted, by_csv):
        pd.testing.assert_frame_equal(ask(frame), expected, check_exact=True)


def test_records_and_columns_of_mlflow_are_the_same_rows():
    """Without a signature, MLflow makes an array of each cell of a record."""
    from mlflow.exceptions import MlflowException
    from mlflow.pyfunc import scoring_server

    i = np.arange(60)
    table = pd.DataFrame(
        {"city": np.array(["York", "Bath"])[i % 2], "age": i % 7 * 1.0}
    )
    model = of_a_table(table, i % 2 > 0)
    expected = pd.DataFrame(model.columns(table[:4]))
    for cells in (table[:4].to_dict("records"), table[:4].to_dict("list")):
        posted = scoring_server.infer_and_parse_data({"inputs": cells}, None)
        pd.testing.assert_frame_equal(served(model)(posted), expected, check_exact=True)
    lists = [{"city": ["York"], "age": 3.0}]
    posted = scoring_server.infer_and_parse_data({"inputs": lists}, None)
    with pytest.raises(MlflowException, match="'city' must hold categories"):
        served(model)(posted)


def test_integers_that_json_or_csv_rounds_are_refused():
    from mlflow.exceptions import MlflowException
    from mlflow.pyfunc import scoring_server

    i = np.arange(60)
    table = pd.DataFrame({"account": 2**53 + i % 3, "x": i % 7 * 1.0})
    model = of_a_table(table, i % 3 > 1)
    rows = [{"account": 2**53 + 1, "x": 1.0}, {"account": None, "x": 1.0}]
    parse = partial(scoring_server.infer_and_parse_data, schema=None)
    by_csv = scoring_server.parse_csv_input(
        io.StringIO("account,x\n9007199254740993,1.0\n,1.0\n"), None
    )
    for posted in (parse({"dataframe_records": rows}), by_csv):
        with pytest.raises(MlflowException, match="'account' must hold all digits"):
            served(model)(posted)
    texts = [{**rows[0], "account": str(2**53 + 1)}, rows[1]]
    expected = pd.DataFrame(model.columns(pd.DataFrame(texts)))
    assert not expected["prediction"][0]
    answer = served(model)(parse({"dataframe_records": texts}))
    pd.testing.assert_frame_equal(answer, expected, check_exact=True)


def test_the_signature_names_columns_and_types():
    kinds = [
        (("no", "yes"), "string"),
        ((False, True), "boolean"),
        ((3, 2**40), "long"),
    ]
    kinds += [(np.array(["no", "yes"], dtype=object), "string")]
    kinds += [(np.int32([1, 2]), "integer"), (np.uint32([1, 2]), "long")]
    for names, expected in kinds:
        signature = signature_of(trained(names, probability=True))
        assert signature.inputs is None  # which the model checks itself
        numbers = [
            "score",
            *(
                f"probability {label}"
                for label in np.unique(np.asarray(names)).tolist()
            ),
        ]
        outputs = [(column.name, column.type.name) for column in signature.outputs]
        assert outputs == [
            ("prediction", expected),
            *((name, "double") for name in numbers),
        ]


def test_several_outputs_are_served_as_several_columns():
    X = raw_rows(40)
    Y = np.column_stack([np.sin(X["height"]), X["depth in m"] ** 2])
    estimator = KernelLearningRegressor(family=GaussianFamily([0.1])).fit(
        (X - LOW).to_numpy() / SPREAD, Y
    )
    model = Model(estimator, COLUMNS, LOW, SPREAD, {})
    frame = raw_rows(5, seed=3).set_index(pd.Index(list("vwxyz")))
    got = served(model)(frame)
    assert (list(got.columns), list(got.index)) == (
        ["prediction 0", "prediction 1"],
        list("vwxyz"),
    )
    np.testing.assert_array_equal(got.to_numpy(), predictions(model, frame).to_numpy())
    assert [column.name for column in signature_of(model).outputs] == [
        "prediction 0",
        "prediction 1",
    ]
