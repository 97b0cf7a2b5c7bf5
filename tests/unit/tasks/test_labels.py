"""Labels of classes: the same texts in a file, in training, in predictions, and in a model that is read again."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from learnkernels import GaussianFamily, KernelLearningClassifier
from learnkernels.conf.errors import InputError
from learnkernels.kernels.column_encoding.dates import PLACEHOLDER_DATE
from learnkernels.kernels.column_encoding.reading import MISSING
from learnkernels.kernels.estimators import set_table
from learnkernels.kernels.model import Model
from learnkernels.tasks.data.dataset import load_dataset, store_dataset
from learnkernels.tasks.data.tables import Table, locations_of
from learnkernels.tasks.models.scoring import ScoringOptions, score_with
from tests.sources import ENDINGS, load, read, write

CODES = [
    ["01234", "10001", "00077"],
    ["1e3", "10e2", "7"],
    ["1", "01", "001"],
    ["5 kg", "10 kg", "5.0 kg"],
    ["3M", "3000000", "3m"],
    ["E11.9", "250.00", "250.0"],
    ["True", "yes", "1"],
    ["$5", "$5.00", "5 USD"],
    ["1,5", "1.5", "15"],
    ["inf", "-inf", "infinite"],
    ["50 %", "0.5", "½"],
]
"""Labels that are equal as numbers, or look like numbers."""


def rows_with(labels: list[str], repeats: int = 8) -> pd.DataFrame:
    """Rows of which one feature determines the label."""
    place = np.tile(np.arange(len(labels)), repeats)
    wave = np.sin(np.arange(len(place)))
    return pd.DataFrame(
        {
            "a": 3.0 * place + 0.1 * wave,
            "b": wave,
            "y": np.array(labels, dtype=object)[place],
        }
    )


def predicted(
    folder: Path, rows: pd.DataFrame, ending: str, **keys: Any
) -> tuple[list[str], list[Any]]:
    """Train on a file, score it with the model that was saved, and return the classes and the predictions."""
    dataset = read(
        folder, rows, f"data{ending}", target="y", tell=lambda sentence: None, **keys
    )
    estimator = KernelLearningClassifier(
        family=GaussianFamily([0.5]), learner="unif", C=100.0
    )
    estimator.fit(dataset.X, dataset.target.given)
    set_table(estimator, dataset.table)
    Model.of_table(estimator, {}).save(folder / "model.safetensors")
    model = Model.load(folder / "model.safetensors")
    score_with(
        model,
        {},
        str(folder / f"data{ending}"),
        str(folder / f"scored{ending}"),
        ScoringOptions(escape_formulas=False),
    )
    with Table(locations_of(str(folder / f"scored{ending}"))) as table:
        predictions = table.select(["prediction"])["prediction"].to_pylist()
    return list(dataset.target.classes), predictions


@pytest.mark.parametrize("task", [None, "classification"])
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("labels", CODES, ids=lambda labels: labels[0])
def test_labels_come_back_as_the_file_has_them(
    tmp_path: Path, labels: list[str], ending: str, task: str | None
):
    rows = rows_with(labels)
    classes, predictions = predicted(
        tmp_path, rows, ending, **({} if task is None else {"task": task})
    )
    assert classes == sorted(labels)
    assert predictions == rows["y"].tolist()


LABELS = st.text(
    st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=6
).filter(
    lambda text: (
        text == text.strip()
        and text.lower() not in MISSING
        and not PLACEHOLDER_DATE.fullmatch(text)
    )
)


@settings(max_examples=25, deadline=None)
@given(st.lists(LABELS, min_size=2, max_size=4, unique=True), st.sampled_from(ENDINGS))
@example(["0", "="], ".csv")
def test_labels_of_any_text_survive(labels: list[str], ending: str):
    rows = rows_with(labels)
    in_memory = KernelLearningClassifier(
        family=GaussianFamily([0.5]), learner="unif", C=100.0
    ).fit(rows[["a", "b"]], rows["y"])
    assert in_memory.predict(rows[["a", "b"]]).tolist() == rows["y"].tolist()
    with TemporaryDirectory() as folder:
        classes, predictions = predicted(
            Path(folder), rows, ending, task="classification"
        )
    assert classes == sorted(labels)
    assert list(map(str, predictions)) == rows["y"].tolist()


def test_a_data_set_keeps_its_labels_in_the_store(tmp_path: Path, state: Path):
    rows = rows_with(CODES[0])
    dataset = read(tmp_path, rows, "data.csv", target="y")
    stored = load_dataset(store_dataset(dataset, "data", "somewhere"))
    assert stored.target.given.tolist() == rows["y"].tolist()


CSV_TARGETS = [
    (["1", "2", "3"], "classification", ["1", "2", "3"]),
    (["1.0", "2.0", "2.0"], "classification", ["1", "2"]),
    (["0.5", "1.5", "2"], "regression", []),
    (["1,5", "2,5", "3,0"], "regression", []),
    (["0.5", "1.5", "n.v."], "classification", ["0.5", "1.5", "n.v."]),
    (["1,500", "2,500"], "classification", ["1,500", "2,500"]),
    (["0.5 kg", "1.5 kg"], "classification", ["0.5 kg", "1.5 kg"]),
    ([f"{n}" for n in range(60)], "regression", []),
    ([f"{n} kg" for n in range(60)], "regression", []),
    ([f"{n} kg" for n in range(4)], "classification", ["0 kg", "1 kg", "2 kg", "3 kg"]),
    (
        [f"{n:03d}" for n in range(40)] * 2,
        "classification",
        [f"{n:03d}" for n in range(40)],
    ),
    ([*(f"{n}" for n in range(950, 1150)), "0077"], "regression", []),
    (
        ["0077", *map(str, range(1000, 1090))] * 2,
        "classification",
        ["0077", *map(str, range(1000, 1090))],
    ),
    (["True", "FALSE"], "classification", ["False", "True"]),
]


@pytest.mark.parametrize(("values", "task", "classes"), CSV_TARGETS)
def test_a_target_of_a_csv_file_is_numbers_where_it_plainly_is(
    tmp_path: Path, values: list[str], task: str, classes: list[str]
):
    column = values * (1 + 60 // len(values))
    target = read(
        tmp_path,
        pd.DataFrame({"a": np.arange(len(column)), "y": column}),
        "t.csv",
        target="y",
    ).target
    assert (target.task, list(target.classes)) == (task, classes)


@pytest.mark.parametrize("values", [["0.5", "1.5", "2"], ["1,5", "2,5", "3,0"]])
def test_a_rare_word_leaves_a_target_of_few_decimals_numbers(
    tmp_path: Path, values: list[str]
):
    rows = pd.DataFrame({"a": np.arange(100), "y": [*values * 33, "n.v."]})
    path = write(rows, tmp_path / "t.csv")
    told: list[str] = []
    target = load(tmp_path, path, target="y", tell=told.append).target
    assert (target.task, len(target)) == ("regression", 99)
    assert "holds numbers, but 'n.v.' in row 99" in told[0]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
)
def test_texts_of_a_typed_source_are_never_numbers(tmp_path: Path, kind: pa.DataType):
    texts = [f"{n / 2}" for n in range(60)]
    table = pa.table({"a": np.arange(120.0) ** 2, "y": pa.array(texts * 2).cast(kind)})
    told: list[str] = []
    path = write(table, tmp_path / "t.parquet")
    target = load(tmp_path, path, target="y", tell=told.append).target
    assert (target.task, len(target.classes)) == ("classification", 60)
    if not pa.types.is_dictionary(kind):
        assert (
            "is text, and its 60 values are classes; set 'task: regression' to read them as numbers"
            in told[0]
        )
    numbers = load(tmp_path, path, target="y", task="regression").target.values
    np.testing.assert_array_equal(numbers, [float(text) for text in texts * 2])
    with pytest.raises(InputError, match="is text that differs in nearly all rows"):
        load(
            tmp_path,
            write(table.slice(0, 60), tmp_path / "differs.parquet"),
            target="y",
            tell=told.append,
        )


INTEGERS = {
    "int64": [2**53, 2**53 + 1, 2**53 + 2],
    "uint64": [7, 2**63, 2**63 + 5],
    "int8": [-1, 0, 1],
}


@pytest.mark.parametrize("n_missing", [0, 2])
@pytest.mark.parametrize("kind", INTEGERS)
def test_integer_labels_are_exact_next_to_missing_ones(
    tmp_path: Path, kind: str, n_missing: int
):
    labels = INTEGERS[kind] * 20
    y = pa.array([None] * n_missing + labels[n_missing:], kind)
    table = pa.table({"x": np.arange(60) / 7, "y": y})
    dataset = read(tmp_path, table, target="y", missing="drop")
    given = dataset.target.given
    assert given.dtype.kind == ("u" if kind == "uint64" else "i")
    assert given.tolist() == labels[n_missing:]


MARKED = {
    "text": pa.string(),
    "large text": pa.large_string(),
    "category": pa.dictionary(pa.int8(), pa.large_string()),
}


@pytest.mark.parametrize("kind", MARKED.values(), ids=MARKED)
def test_a_class_that_denotes_a_missing_value_is_reported(
    tmp_path: Path, kind: pa.DataType
):
    y = pa.array(["None", "low", "high"] * 20).cast(kind)
    table = pa.table({"x": np.arange(60) / 7, "y": y})
    told: list[str] = []
    dataset = read(tmp_path, table, target="y", missing="drop", tell=told.append)
    assert dataset.target.classes == ("high", "low")
    assert told == [
        "data set data: 'None' in the target 'y' denotes a missing value; give a class of that name another one."
    ]
