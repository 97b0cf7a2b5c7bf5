"""Scoring: the bits of all rows at once, from any format to any format, and one sentence for what cannot be scored."""

from __future__ import annotations

import csv
import datetime
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from learnkernels import GaussianFamily
from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DaskConfig, DriftConfig
from learnkernels.kernels.column_encoding import EncodingReport, TableEncoding
from learnkernels.kernels.estimators import (
    KernelLearningClassifier,
    KernelLearningRegressor,
    fit_on_features,
)
from learnkernels.kernels.model import Model
from learnkernels.tasks.data import locations, tables
from learnkernels.tasks.data.tables import Table
from learnkernels.tasks.models.explaining import (
    Explained,
    contributions_file,
    explain_with,
    require_explainable,
)
from learnkernels.tasks.models.scoring import (
    Drifted,
    DriftReport,
    Scores,
    ScoringOptions,
    distribution_of,
    score_parts_with,
    score_with,
    shown_distribution,
)
from learnkernels.tasks.reporting.markdown import render
from learnkernels.tasks.workers.cluster import DaskPool
from tests.refusals import require_refusals
from tests.sources import ENDINGS, write

ABOUT = {"model": "models:/flowers/3", "version": "3", "digest": "ab" * 32}
FEATURES = ("b", "a", "c d")

HERE = DaskPool(DaskConfig(workers=0))


by_ending = pytest.mark.parametrize("ending", ENDINGS[:2] + ENDINGS[3:])


def features_of(n: int, seed: int) -> np.ndarray:
    """Rows whose first feature is whole."""
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(-3, 4, n), rng.normal(size=(n, 2))])


def model_of(kind: str, calibrated: bool = False) -> Model:
    X = features_of(90, 0)
    low, spread = np.array([0.5, 0.0, -1.0]), np.array([2.0, 1.0, 3.0])
    value = X[:, 0] + X[:, 1] * X[:, 2]
    labels = {
        "text": np.where(value > 0, "yes", "no"),
        "whole": np.digitize(value, [-1, 1]),
        "truth": value > 0,
        "numbers": np.column_stack([value, X[:, 1]]),
    }
    classifier = partial(
        KernelLearningClassifier, predictor="krr", probability=calibrated
    )
    is_regression = kind in ("regression", "numbers")
    of = KernelLearningRegressor if is_regression else classifier
    fitted = of(family=GaussianFamily([0.1, 1.0]), learner="align").fit(
        (X - low) / spread, labels.get(kind, value)
    )
    return Model(
        fitted, FEATURES, low, spread, {"target": "y", "drop": ["comment", "key"]}
    )


@pytest.fixture(scope="module")
def model() -> Model:
    return model_of("text")


def table_of(n: int) -> pa.Table:
    """Columns in another order than the model's, with the target and a dropped column."""
    X, keys = features_of(n, 1), [f"0{i:04d}" for i in range(n)]
    columns = {
        "a": X[:, 1],
        "key": keys,
        "y": ["?"] * n,
        "c d": X[:, 2],
        "comment": ["text, with a comma"] * n,
    }
    return pa.table(columns | {"b": X[:, 0].astype(np.int64)})


def replaced(table: pa.Table, **columns: Any) -> pa.Table:
    """Return a table with other values in some columns, which stay where they were."""
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    return table


def read(path: Path) -> pa.Table:
    if path.suffix == ".csv":
        return pa.csv.read_csv(
            path,
            convert_options=pa.csv.ConvertOptions(column_types={"key": pa.string()}),
        )
    return (
        pa.parquet.read_table(path, partitioning=None)
        if path.suffix == ".parquet"
        else pa.feather.read_table(path, memory_map=False)
    )


def expected(model: Model, table: pa.Table) -> dict[str, np.ndarray]:
    return model.columns(
        np.column_stack([table[name].to_numpy() for name in FEATURES]).astype(
            np.float64
        )
    )


def summary(values: np.ndarray) -> dict[str, float]:
    return {
        "mean": values.mean(),
        "sd": values.std(ddof=1),
        "min": values.min(),
        "max": values.max(),
    }


def score(
    model: Model,
    source: Any,
    output: Any,
    tell: Any = lambda share, rows: None,
    **asked: Any,
) -> Scores:
    return score_with(
        model, ABOUT, str(source), str(output), ScoringOptions(**asked), tell
    )


def scored(
    model: Model,
    table: Any,
    folder: Path,
    source: str = ".parquet",
    output: str = ".parquet",
    **keys: Any,
):
    """Score a table, in files of these endings; return what is said and what is written."""
    scores = score(
        model,
        write(table, folder / f"in{source}", keys.pop("rows", 1000)),
        folder / f"out{output}",
        **keys,
    )
    return scores, read(folder / f"out{output}")


@pytest.mark.parametrize(
    ("source", "output"), [*pairwise(ENDINGS), (ENDINGS[-1], ENDINGS[0])]
)
def test_every_format_gives_the_bits_of_all_rows_at_once(
    model: Model, tmp_path: Path, source: str, output: str
):
    n = 2 * model.batch_rows + 77  # batches of the model straddle pieces of the file
    table = table_of(n)
    scores, result = scored(model, table, tmp_path, source, output, ids=["key"])
    whole = expected(model, table)
    assert result.column_names == ["key", *whole] == list(scores.columns)
    assert scores.rows == n
    assert result["key"].to_pylist() == table["key"].to_pylist()
    for name, values in whole.items():
        np.testing.assert_array_equal(result[name].to_numpy(), values, err_msg=name)
    labels, counts = np.unique(whole["prediction"], return_counts=True)
    assert scores.distribution == {"prediction": dict(zip(labels, counts, strict=True))}
    if output in (".parquet", ".arrow"):
        said = {
            f"learnkernels.{key}".encode(): value.encode()
            for key, value in ABOUT.items()
        }
        assert result.schema.metadata == said


FORMULAS = {
    **{
        text: f"'{text}"
        for text in (
            "=1+2",
            "=HYPERLINK(0)",
            "+cmd",
            "-cmd",
            "+1 555",
            "-",
            "--1",
            "@SUM(A1)",
        )
    },
    **{text: f"'{text}" for text in ("\t=1", "\r=1", "-1\n=2")},
    **{
        text: text
        for text in (
            "-1",
            "+1",
            "-1.5e-3",
            "-.5E2",
            "-inf",
            "+491701234",
            "",
            "1=2",
            "a@b",
            "'=1",
            " x",
            "x\n=1",
        )
    },
}
"""Texts, and how a CSV file has them."""


@by_ending
@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_texts_of_a_csv_file_that_look_like_formulas_are_escaped_and_no_others(
    model: Model, tmp_path: Path, ending: str, kind: pa.DataType
):
    texts = list(FORMULAS)
    table = replaced(table_of(len(texts)), key=texts)
    table = table.set_column(1, "=key", table["key"].cast(kind))
    table = table.append_column("minus", pa.array(-np.arange(len(texts))))
    pa.parquet.write_table(table, tmp_path / "in.parquet")
    ids = ["=key", "minus"]
    score(model, tmp_path / "in.parquet", tmp_path / f"out{ending}", ids=ids)
    score(
        model,
        tmp_path / "in.parquet",
        tmp_path / f"as-they-are{ending}",
        ids=ids,
        escape_formulas=False,
    )
    if ending == ".csv":
        escaped, plain = (
            _cells(tmp_path / f"{name}.csv") for name in ("out", "as-they-are")
        )
        assert escaped["'=key"] == [FORMULAS[text] for text in texts]
        assert plain["=key"] == texts
        assert (
            escaped["minus"] == plain["minus"] == [str(-i) for i in range(len(texts))]
        )
        assert escaped["prediction"] == plain["prediction"]
    else:
        assert read(tmp_path / f"out{ending}").equals(
            read(tmp_path / f"as-they-are{ending}")
        )
        assert (
            read(tmp_path / f"out{ending}")["=key"].cast(pa.string()).to_pylist()
            == texts
        )


def _cells(path: Path) -> dict[str, list[str]]:
    """The columns of a CSV file as texts, by Python's own reader."""
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


def test_labels_of_a_csv_file_that_look_like_formulas_are_escaped(tmp_path: Path):
    X = features_of(60, 0)
    labels = np.where(X[:, 0] > 0, "=yes", "-1")
    fitted = KernelLearningClassifier(
        family=GaussianFamily([0.1]), learner="unif", predictor="krr", probability=False
    ).fit(X, labels)
    of_formulas = Model(
        fitted,
        FEATURES,
        np.zeros(3),
        np.ones(3),
        {"target": "y", "drop": ["comment", "key"]},
    )
    score(
        of_formulas,
        write(table_of(60), tmp_path / "in.parquet", 60),
        tmp_path / "out.csv",
    )
    cells = _cells(tmp_path / "out.csv")
    assert set(cells["prediction"]) == {"'=yes", "-1"}


@pytest.mark.parametrize("kind", ["text", "whole", "truth", "regression"])
def test_predictions_keep_their_type(tmp_path: Path, kind: str):
    model, table = model_of(kind), table_of(50)
    scores, result = scored(model, table, tmp_path)
    whole = expected(model, table)
    types = {
        "text": pa.string(),
        "whole": pa.int64(),
        "truth": pa.bool_(),
        "regression": pa.float64(),
    }
    assert [result.schema.field(name).type for name in ("prediction", "row")] == [
        types[kind],
        pa.int64(),
    ]
    assert result["row"].to_pylist() == list(range(50))
    for name, values in whole.items():
        assert result[name].to_pylist() == values.tolist()
    if kind == "regression":
        assert scores.distribution["prediction"] == pytest.approx(
            summary(whole["prediction"]), rel=1e-12
        )


@by_ending
def test_no_rows_give_an_output_without_rows(model: Model, tmp_path: Path, ending: str):
    keys = {"ids": ["key"], "tell": lambda *now: None}
    (_, full), (scores, empty) = (
        scored(model, table_of(5).slice(0, n), tmp_path, ending, **keys) for n in (5, 0)
    )
    assert (scores.rows, scores.distribution) == (0, {"prediction": {}})
    assert (empty.schema, empty.num_rows) == (full.schema, 0)
    score(model, tmp_path / f"in{ending}", tmp_path / "empty.csv", ids=["key"])
    assert (tmp_path / "empty.csv").read_text() == '"key","prediction","score"\n'


# Columns -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_numbers_of_every_type_are_features(model: Model, tmp_path: Path, ending: str):
    b = np.arange(40) % 2
    whole = expected(model, replaced(table_of(40), b=b.astype(float)))
    for kind in (pa.bool_(), pa.uint8(), pa.int16(), pa.float16(), pa.float32()):
        table = replaced(
            table_of(40), b=pa.array(b.astype(kind.to_pandas_dtype()), kind)
        )
        found = scored(model, table, tmp_path, ending)[1]["score"].to_numpy()
        np.testing.assert_array_equal(found, whole["score"], err_msg=str(kind))


def test_types_of_a_csv_may_change(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Types of a CSV come from its first block; here the later rows are of another one."""
    monkeypatch.setattr(tables, "BLOCK_BYTES", 2**12)
    lines = [f"{i % 2 == 0},0,1".lower() for i in range(1999)]
    text = "\n".join(["b,a,c d", *lines, "true,0.25,0.001\n"])
    _, result = scored(model, text, tmp_path, ".csv")
    assert len(result) == 2000
    last = model.columns(np.array([[1.0, 0.25, 0.001]]))["score"][0]
    # Another place in a batch may round otherwise.
    assert result["score"][1999].as_py() == pytest.approx(last, rel=1e-12)


@pytest.mark.parametrize("output", [".parquet", ".arrow"])
def test_ids_of_every_type_are_copied(model: Model, tmp_path: Path, output: str):
    n, table = 300, table_of(300)
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    more = {
        "when": pa.array(
            [start + datetime.timedelta(hours=i) for i in range(n)],
            pa.timestamp("ns", "UTC"),
        ),
        "day": pa.array([start.date()] * n),
        "whole": pa.array([None if i % 7 == 0 else i for i in range(n)], pa.uint32()),
        "truth": pa.array([i % 2 == 0 for i in range(n)]),
        "real": pa.array(np.arange(n) / 3, pa.float32()),
        "raw": pa.array([bytes([i % 256]) for i in range(n)]),
        "two": pa.array([[i, i + 1] for i in range(n)]),
        "word": pa.array(
            [None if i % 9 == 0 else f"w{i // 40}" for i in range(n)]
        ).dictionary_encode(),
    }
    for name, values in more.items():
        table = table.append_column(name, values)
    keys = ["y", "b", *more]  # the target, a feature and what is neither
    _, result = scored(model, table, tmp_path, output=output, rows=64, ids=keys)
    assert result.column_names == [*keys, "prediction", "score"]
    for name in keys:
        assert result.schema.field(name).type == table[name].type
        assert result[name].to_pylist() == table[name].to_pylist()


def test_dictionaries_of_an_arrow_file_may_grow(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tables, "GROUP_ROWS", 1)  # every batch is written on its own
    n = 3 * model.batch_rows
    words = [None if i % 11 == 0 else f"w{i // 1000}" for i in range(n)]
    table = table_of(n).append_column("word", pa.array(words).dictionary_encode())
    _, result = scored(model, table, tmp_path, output=".arrow", rows=1500, ids=["word"])
    assert result["word"].num_chunks == 3
    assert pa.types.is_dictionary(result.schema.field("word").type)
    assert result["word"].to_pylist() == words


def renamed(**names: str) -> pa.Table:
    table = table_of(20)
    return table.rename_columns([names.get(name, name) for name in table.column_names])


@by_ending
def test_columns_that_do_not_fit_are_refused(model: Model, tmp_path: Path, ending: str):
    refused = []
    for i, (table, ids, said) in enumerate(
        [
            (
                renamed(a="x", b="z"),
                [],
                "reads: 'b', 'a'; the model does not read 'x', 'z'; rename a column",
            ),
            (
                renamed(key="who"),
                [],
                "does not read: 'who'; remove them, name those to copy as ids",
            ),
            (renamed(), ["key", "gone"], "id 'gone' is no column; correct the name"),
            (renamed(), ["key", "key"], "id 'key' is given more than once"),
            (renamed(key="b"), [], "column 'b' appears more than once"),
            (
                renamed(key="score"),
                ["score"],
                "id 'score' has the name of a column of the output",
            ),
        ]
    ):
        source = write(table, tmp_path / f"{i}{ending}")
        refused.append(
            (
                partial(
                    score,
                    model,
                    source,
                    tmp_path / "new" / "out.parquet",
                    ids=ids,
                    strict=True,
                ),
                said,
            )
        )
    require_refusals(refused, error=InputError)
    assert not (tmp_path / "new").exists()


# Values --------------------------------------------------------------------------------------------------------------


@by_ending
def test_missing_values_stop_a_model_without_a_table(
    model: Model, tmp_path: Path, ending: str
):
    n = model.batch_rows + 500
    table = table_of(n)
    for value, said in ((None, "a missing value"), (float("inf"), "'inf'")):
        b = table["b"].to_pylist()
        b[n - 7] = value
        said = rf"column 'b' must hold finite numbers, got {said} in row {n - 7:,} \(the first is row 0"
        with pytest.raises(InputError, match=said):
            scored(model, replaced(table, b=b), tmp_path, ending, ids=["key"])
        assert [path.name for path in tmp_path.iterdir()] == [f"in{ending}"]


# Places --------------------------------------------------------------------------------------------------------------


def test_faulty_files_and_places_get_one_sentence(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tables, "BLOCK_BYTES", 2**12)
    source = Path(write(table_of(9), tmp_path / "in.parquet"))
    write(replaced(table_of(10), a=[np.inf] * 10), tmp_path / "in-infinite.parquet")
    (tmp_path / "folder.parquet").mkdir()
    (tmp_path / "link.parquet").symlink_to(source)
    contents = {
        "text.parquet": "hello",
        "text.arrow": "hello",
        "empty.csv": "",
        "file": "",
    }
    contents |= {
        "ragged.csv": "a,b,c d\n1,2,3\n1,2\n",
        "late.csv": "a,b,c d\n" + "1,2,3\n" * 4000 + "1,red,3\n",
    }
    for name, text in contents.items():
        write(text, tmp_path / name)
    (tmp_path / "cut.parquet").write_bytes(
        source.read_bytes()[: source.stat().st_size // 2]
    )
    before = sorted(tmp_path.iterdir())
    given = "in.parquet"
    refused = [
        (given, "out.txt", r"out\.txt: the ending says the format"),
        (
            given,
            "out.csv.gz",
            r"out\.csv\.gz: is written without compression; leave out the ending \.gz",
        ),
        (given, given, r"in\.parquet: the output would replace the input"),
        (given, "link.parquet", "the output would replace the input"),
        (given, "folder.parquet", r"folder\.parquet: is a folder"),
        (
            given,
            "file/out.parquet",
            r"file/out\.parquet: File exists; give another name",
        ),
    ]
    inputs = {
        "gone.parquet": r"gone\.parquet: there is no such file",
        "in.xlsx": r"in\.xlsx: the ending says the format, and must be one of \.parquet, \.csv",
        "in-infinite.parquet": r"infinite\.parquet: column 'a' must hold finite numbers, got 'inf' in row 0",
        "folder.parquet": r"folder\.parquet: holds no table, whose endings are \.parquet",
        "text.parquet": r"text\.parquet: cannot be read as parquet",
        "cut.parquet": r"cut\.parquet: cannot be read as parquet",
        "text.arrow": r"text\.arrow: cannot be read as arrow",
        "empty.csv": r"empty\.csv: cannot be read as csv \(it is empty\)",
        "ragged.csv": r"ragged\.csv: cannot be read as csv \(CSV parse error: Row #3: Expected 3 columns",
        "late.csv": r"late\.csv: column 'b' must hold finite numbers, got 'red' in row 4,000 \(the first is row 0\)",
    }
    table = []
    for name, output, said in [
        *refused,
        *((name, "out.parquet", said) for name, said in inputs.items()),
    ]:
        ids = ["key"] if name.startswith("in") else []
        table.append(
            (partial(score, model, tmp_path / name, tmp_path / output, ids=ids), said)
        )
    require_refusals(table, error=InputError)
    assert sorted(tmp_path.iterdir()) == before


# Length --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ENDINGS)
def test_pieces_have_the_rows_asked_for(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
):
    # pyarrow asks for some 32 blocks of a CSV ahead.
    monkeypatch.setattr(tables, "BLOCK_BYTES", 2**12)
    with Table(
        [locations.locate(write(table_of(50_000), tmp_path / f"in{ending}"))]
    ) as source:
        pieces = [
            (piece.num_rows, source.share_read)
            for piece in source.tables([*FEATURES, "key"], 7_000)
        ]
    sizes, shares = zip(*pieces, strict=True)
    assert sizes == (*[7_000] * 7, 1_000)
    assert list(shares) == sorted(shares)
    assert 0 < shares[0] < 0.4
    assert shares[-1] == 1.0


def test_columns_of_an_input_include_all_of_its_folders(model: Model, tmp_path: Path):
    source = write(table_of(3), tmp_path / "day=1/in.parquet")
    scores = score(model, source, tmp_path / "out.parquet")
    assert scores.input_columns == [*table_of(3).column_names, "day"]
    assert "day" not in scores.ignored


@pytest.mark.parametrize("below", ["", "year=2024/"])
def test_predictions_in_parts_replace_no_input(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "rows" / below / "part-00000.parquet"
    file.parent.mkdir(parents=True)
    write(table_of(3), file)
    Path("link").symlink_to("rows")
    into = partial(score_parts_with, model, ABOUT, options=ScoringOptions())
    no_pool: Any = None
    said = "the output folder has the input rows/.*parquet; give another folder"
    require_refusals(
        [
            (partial(into, "rows/", "rows/", no_pool), said),
            (partial(into, "rows/", "link/", no_pool), said),
            (partial(into, f"rows/{below}*.parquet", "rows/", no_pool), said),
        ],
        error=InputError,
    )
    assert read(file).equals(table_of(3))


def model_of_ages() -> Model:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"age": rng.integers(20, 60, 80), "size": rng.normal(size=80)})
    estimator = KernelLearningRegressor(boost=False)
    estimator.fit(rows, rows["age"] + rows["size"])
    return Model.of_table(estimator, {"target": "y", "drop": []})


def months(folder: Path, ages: list[list[object]]) -> str:
    """Write a CSV file for each month, of twenty rows a file."""
    folder.mkdir()
    for month, values in enumerate(ages):
        sizes = np.arange(20) / 20 + month
        rows = pd.DataFrame({"age": pd.Series(values * 20, dtype=object)[:20]})
        rows.assign(size=sizes).to_csv(folder / f"{month}.csv", index=False)
    return f"{folder}/"


@pytest.mark.parametrize("ids", [(), ("size",)])
def test_a_file_without_readable_cells_is_scored_in_parts_as_in_one_file(
    tmp_path: Path, ids: tuple[str, ...]
):
    model, options = model_of_ages(), ScoringOptions(ids)
    source = months(tmp_path / "months", [[31, 40], ["unknown"], [50, "?!"]])
    whole = score_with(model, ABOUT, source, str(tmp_path / "whole.parquet"), options)
    parts = f"{tmp_path}/scored/"
    ours = score_parts_with(model, ABOUT, source, parts, HERE, options)
    (sentence,) = whole.cells
    assert "'unknown' in row 20 (from 0) and 29 more rows" in sentence
    assert ours.cells == whole.cells
    np.testing.assert_allclose(
        pyarrow.parquet.read_table(parts)["prediction"].to_numpy(),
        read(tmp_path / "whole.parquet")["prediction"].to_numpy(),
        rtol=1e-12,
    )


JOINED_IDS = {
    "empty and text": ([None] * 20, list("abcdefghijklmnopqrst"), pa.string()),
    "whole and not": (list(range(20)), [i + 0.5 for i in range(20)], pa.float64()),
}


@pytest.mark.parametrize(
    ("first", "second", "kind"), JOINED_IDS.values(), ids=JOINED_IDS
)
def test_predictions_in_parts_have_ids_of_one_type(
    tmp_path: Path, first: list[Any], second: list[Any], kind: pa.DataType
):
    model = model_of_ages()
    source = tmp_path / "months"
    for name, ids in (("0", first), ("1", second)):
        rows = {"age": np.arange(20) + 30, "size": np.arange(20) / 20, "id": ids}
        write(pa.table(rows), source / f"{name}.parquet")
    parts = f"{tmp_path}/scored/"
    score_parts_with(model, ABOUT, f"{source}/", parts, HERE, ScoringOptions(("id",)))
    ids = pyarrow.parquet.read_table(parts)["id"]
    assert ids.type == kind
    assert ids.to_pylist() == [*first, *second]


def test_ids_in_parts_of_types_that_do_not_match_are_refused_before_scoring(
    tmp_path: Path,
):
    source = tmp_path / "months"
    for name, ids in (("0", list(range(20))), ("1", [f"s{i}" for i in range(20)])):
        rows = {"age": np.arange(20) + 30, "size": np.arange(20) / 20, "id": ids}
        write(pa.table(rows), source / f"{name}.parquet")
    parts = f"{tmp_path}/scored/"
    with pytest.raises(InputError, match=r"column 'id' is string in .*1\.parquet and"):
        score_parts_with(
            model_of_ages(), ABOUT, f"{source}/", parts, HERE, ScoringOptions(("id",))
        )
    assert not Path(parts).exists()


def test_a_column_without_readable_cells_in_any_file_is_refused(tmp_path: Path):
    model, options = model_of_ages(), ScoringOptions()
    source = months(tmp_path / "months", [[None], ["unknown"]])
    said = "months/: column 'age' must hold numbers, .* such as 'unknown' in row 20"
    into = partial(score_with, model, ABOUT, source, options=options)
    in_parts = partial(score_parts_with, model, ABOUT, source, options=options)
    require_refusals(
        [
            (partial(into, str(tmp_path / "whole.parquet")), said),
            (partial(in_parts, f"{tmp_path}/scored/", pool=HERE), said),
        ],
        error=InputError,
    )
    assert not (tmp_path / "whole.parquet").exists()
    assert not (tmp_path / "scored/_SUCCESS").exists()


def test_messages_in_parts_have_the_rows_of_their_file_and_columns_of_all_files(
    model: Model, tmp_path: Path
):
    into = partial(score_parts_with, model, ABOUT, pool=HERE, options=ScoringOptions())
    for name in ("x", "z"):
        rows = table_of(30).append_column(name, pa.array(range(30)))
        write(rows, tmp_path / f"rows/{name}.parquet")
    scores = into(f"{tmp_path}/rows/", f"{tmp_path}/scored/")
    assert scores.ignored == ["x", "z"]
    infinite = [*range(4), np.inf, *range(25)]
    write(replaced(table_of(30), a=infinite), tmp_path / "rows/z.parquet")
    said = r"rows/z\.parquet: column 'a' must hold finite numbers, got 'inf' in row 4 "
    with pytest.raises(InputError, match=said):
        into(f"{tmp_path}/rows/", f"{tmp_path}/other/")


def test_rows_that_drift_too_far_leave_no_predictions_in_parts(tmp_path: Path):
    model = model_of("text")
    X = model.scaled(features_of(90, 0))
    low, high = X.min(axis=0), X.max(axis=0)
    model = model.with_reference(X, low, high, 0)
    rows = replaced(table_of(40), a=np.full(40, 99.0))
    for name in ("1", "2"):
        write(rows, tmp_path / f"rows/{name}.parquet")
    options = ScoringOptions(drift=DriftConfig.model_validate({"on_drift": "fail"}))
    source, output = f"{tmp_path}/rows/", tmp_path / "scored"
    with pytest.raises(Drifted, match="outside of the range of the training rows"):
        score_parts_with(model, ABOUT, source, f"{output}/", HERE, options)
    assert list(output.iterdir()) == []


@pytest.mark.parametrize("is_table", [True, False])
def test_predictions_in_parts_replace_only_predictions(
    model: Model, tmp_path: Path, is_table: bool
):
    write(table_of(3), tmp_path / "rows/in.parquet")
    output = tmp_path / "scored"
    file = output / "part-00000.parquet"
    into = partial(score_parts_with, model, ABOUT, f"{tmp_path}/rows/", f"{output}/")
    into(HERE, ScoringOptions())
    predictions = file.read_bytes()
    (output / "_SUCCESS").unlink()
    into(HERE, ScoringOptions())
    assert file.read_bytes() == predictions
    (output / "_SUCCESS").unlink()
    write(table_of(3) if is_table else "hello", file)
    other = file.read_bytes()
    said = r"scored: holds 'part-00000\.parquet', which is not of this output; give an"
    with pytest.raises(InputError, match=said):
        into(HERE, ScoringOptions())
    assert file.read_bytes() == other


def test_a_bucket_or_folder_holds_what_is_below_it():
    def at(text: str) -> locations.Location:
        return locations.Location(text, None, text.removeprefix("s3://"))

    folder = at("s3://rows/new")
    assert folder.holds(at("s3://rows/new/year=2024/part-00000.parquet"))
    assert not folder.holds(at("s3://rows/newer/part-00000.parquet"))
    assert not folder.holds(at("/rows/new/part-00000.parquet"))


def test_numbers_are_summarized_as_if_at_once():
    values = np.random.default_rng(0).normal(size=1000) + 1e6
    one, parts = (
        distribution_of(values, numbers=True),
        distribution_of(values[:0], numbers=True),
    )
    assert shown_distribution(parts) == {}
    for part in np.split(values, [1, 1, 400, 999]):
        parts += distribution_of(part, numbers=True)
    for of in (one, parts):
        # A deviation of one beside a mean of 1e6 loses six digits.
        assert shown_distribution(of) == pytest.approx(summary(values), rel=1e-9)


def test_values_beyond_the_quantiles_of_training_are_outside(tmp_path: Path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.uniform(18, 90, 200), "size": rng.normal(size=200)}
    )
    encoding = TableEncoding.of(frame, scale="quantile")
    X = encoding.encode(frame)
    estimator = KernelLearningRegressor(boost=False)
    fit_on_features(estimator, X, frame["age"] + frame["size"], encoding)
    model = Model.of_table(estimator, {"target": "y", "drop": []})
    model = model.with_reference(X, X.min(axis=0), X.max(axis=0), 0)
    new = frame[:40].assign(age=[900.0] * 25 + [-1.0] * 5 + [50.0] * 9 + [None])
    scores, _ = scored(model, new, tmp_path)
    shares = {row["column"]: row["outside"] for row in scores.drift.columns}
    assert shares == {"age": 0.75, "size": 0.0}
    assert scores.drift.metrics["outside"] == 0.75
    report = EncodingReport()
    encoding.encode(new, report)
    assert (report + report).outside == {"age": 60}
    assert scored(model, frame, tmp_path)[0].drift.metrics["outside"] == 0.0


# Contributions -------------------------------------------------------------------------------------------------------


def explained(
    model: Model, source: str, output: Path, n_rows: int, **options: Any
) -> tuple[Explained, pa.Table]:
    """Explain the first rows of a table; return the summary, and the contributions that are written."""
    summary_of_columns = explain_with(
        model, ABOUT, source, str(output), ScoringOptions(**options), n_rows
    )
    return summary_of_columns, read(Path(summary_of_columns.output))


@pytest.mark.parametrize(
    ("kind", "calibrated"),
    [
        *product(("text", "whole", "truth"), (False, True)),
        ("regression", False),
        ("numbers", False),
    ],
)
def test_contributions_join_the_predictions_and_add_up_to_them(
    tmp_path: Path, kind: str, calibrated: bool
):
    model = model_of(kind, calibrated)
    source = write(table_of(700), tmp_path / "in.parquet")
    output = tmp_path / "out.parquet"
    score(model, source, output, ids=["key"])
    about, contributions = explained(model, source, output, 600, ids=["key"])
    assert about.output == str(tmp_path / "out.contributions.parquet")
    assert about.rows == 600
    assert about.figure is not None
    rows = contributions.to_pandas()
    joined = read(output).to_pandas().merge(rows, on="key")
    assert len(joined) == len(rows)
    assert list(dict.fromkeys(rows["key"])) == table_of(600)["key"].to_pylist()
    sums = rows["base"] + rows.filter(like="contribution ").sum(axis=1)
    predictions = [
        joined.loc[position, name] for position, name in rows["explains"].items()
    ]
    # Sums of at most four numbers of the size of the prediction
    np.testing.assert_allclose(sums, predictions, rtol=1e-9, atol=1e-9)
    first_names = {
        ("text", False): ["score"],
        ("text", True): ["probability yes"],
        ("truth", True): ["probability True"],
        ("whole", True): [f"probability {label}" for label in range(3)],
        ("numbers", False): ["prediction 0", "prediction 1"],
    }
    names = first_names.get((kind, calibrated))
    assert names is None or rows["explains"].tolist() == names * 600
    sizes = rows.filter(like="contribution ").abs().mean().sort_values(ascending=False)
    np.testing.assert_allclose(list(about.mean_sizes.values()), sizes, rtol=1e-9)


@pytest.mark.parametrize("calibrated", [False, True])
def test_contributions_are_to_the_positive_class(tmp_path: Path, calibrated: bool):
    of_text = model_of("text", calibrated)
    model = replace(of_text, about={**of_text.about, "classes": ["yes", "no"]})
    source = write(table_of(30), tmp_path / "in.parquet")
    score(model, source, tmp_path / "out.parquet")
    _, contributions = explained(model, source, tmp_path / "out.parquet", 30)
    rows = contributions.to_pandas()
    name = "probability no" if calibrated else "score"
    assert set(rows["explains"]) == {name}
    sums = rows["base"] + rows.filter(like="contribution ").sum(axis=1)
    columns = read(tmp_path / "out.parquet").to_pandas()
    np.testing.assert_allclose(sums, columns[name], rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(columns["score"] > 0, columns["prediction"] == "no")


def test_contributions_are_those_of_the_estimator_however_rows_are_batched(
    tmp_path: Path,
):
    model = model_of("regression")
    rows = table_of(700)
    X_raw = np.column_stack([rows[name].to_numpy() for name in FEATURES])
    direct = model.estimator.explain(model.scaled(X_raw.astype(np.float64)))
    source = write(rows, tmp_path / "in.csv")
    _, written = explained(model, source, tmp_path / "out.arrow", 10_000)
    assert written["row"].to_pylist() == list(range(700))
    names = [f"contribution {name}" for name in FEATURES]
    assert written.column_names == ["row", "explains", "base", *names]
    assert written.schema.metadata[b"learnkernels.version"] == b"3"
    values = np.column_stack([written[name].to_numpy() for name in names])
    # Sums over kernel rows in another order
    np.testing.assert_allclose(values, direct.contributions, rtol=1e-8, atol=1e-10)


def test_contributions_of_a_table_are_one_per_original_column(tmp_path: Path):
    rng = np.random.default_rng(0)
    n = 80
    frame = pd.DataFrame(
        {
            "city": rng.choice(["Rome", "Oslo", "Bern"], n),
            "since": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(n), "D"),
            "size": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
        }
    )
    y = (frame["city"] == "Rome") + frame["size"].fillna(0)
    estimator = KernelLearningRegressor(boost=False).fit(frame, y)
    model = Model.of_table(estimator, {"target": "y", "drop": []})
    X = estimator.table_.encode(frame)
    reference = model.with_reference(X, X.min(axis=0), X.max(axis=0), 0)
    frame.to_parquet(tmp_path / "in.parquet")
    for of in (model, reference):
        about, written = explained(
            of, str(tmp_path / "in.parquet"), tmp_path / "out.csv", 5
        )
        assert sorted(about.mean_sizes) == ["city", "since", "size"]
        assert about.output.endswith("out.contributions.csv")
        rows = written.to_pandas()
        assert rows["row"].tolist() == list(range(5))
        sums = rows["base"] + rows.filter(like="contribution ").sum(axis=1)
        np.testing.assert_allclose(
            sums, estimator.predict(frame[:5]), rtol=1e-9, atol=1e-9
        )


def test_contributions_that_could_not_be_written_are_refused_before_any_work(
    model: Model, tmp_path: Path
):
    rows = table_of(3).append_column("base", pa.array([1, 2, 3]))
    source = write(rows, tmp_path / "in.contributions.parquet")
    check = partial(require_explainable, model, source)
    require_refusals(
        [
            (
                partial(check, str(tmp_path / "out.parquet"), ["base"]),
                "id 'base' has the name of a column of the contributions; rename it",
            ),
            (
                partial(check, str(tmp_path / "in.parquet"), []),
                "the contributions would replace the input",
            ),
        ],
        error=InputError,
    )
    write(rows, tmp_path / "days/1.parquet")
    write(rows.drop_columns(FEATURES[0]), tmp_path / "days/2.parquet")
    days = partial(require_explainable, model, str(tmp_path / "days"))
    require_refusals(
        [
            (
                partial(days, f"{tmp_path}/scored/", []),
                f"2.parquet has no column '{FEATURES[0]}'",
            )
        ],
        error=InputError,
    )
    check(f"{tmp_path}/folder/", ["key"])
    assert contributions_file("s3://rows/a.b/scored/") == (
        "s3://rows/a.b/scored.contributions.parquet"
    )


def test_files_may_differ_in_columns_that_no_contribution_needs(
    model: Model, tmp_path: Path
):
    rows = table_of(6)
    write(rows.slice(0, 3), tmp_path / "days/1.parquet")
    other = rows.slice(3).append_column("other", pa.array([1, 2, 3]))
    write(other, tmp_path / "days/2.parquet")
    output = tmp_path / "scored"
    require_explainable(model, f"{tmp_path}/days", f"{output}/", ["key"])
    about = explain_with(
        model, ABOUT, f"{tmp_path}/days", f"{output}/", ScoringOptions(("key",)), 9
    )
    keys = read(Path(about.output))["key"].to_pylist()
    assert list(dict.fromkeys(keys)) == rows["key"].to_pylist()


def test_a_report_shows_paths_of_contributions_as_they_are():
    output = "out_[1]~/new.contributions.parquet"
    page = render(
        "scoring.md",
        scores=SimpleNamespace(rows=3, drift=DriftReport(note="not tested")),
        version="m version 1",
        facts=[],
        predictions={},
        columns=[],
        explained=Explained(output, 3, {}, None),
        contributions=[],
    )
    assert f"first 3 rows, in `{output}`:" in page
