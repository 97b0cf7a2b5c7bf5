"""Scoring: the bits of all rows at once, from any format to any format, and one sentence for what cannot be scored."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest

from learnkernels import GaussianFamily
from learnkernels.conf.errors import InputError
from learnkernels.kernels.estimators import KernelLearningClassifier, KernelLearningRegressor
from learnkernels.kernels.persistence.model import Model
from learnkernels.tasks.data.locations import locate
from learnkernels.tasks.data.streams import INPUTS
from learnkernels.tasks.models.scores import Distribution, Scores
from learnkernels.tasks.models.scoring import score_with
from tests.service.conftest import S3

ROOT = Path(__file__).resolve().parents[3]

ABOUT = {"model": "models:/flowers/3", "version": "3", "digest": "ab" * 32}

FEATURES = ("b", "a", "c d")

ENDINGS = (".parquet", ".csv", ".arrow", ".feather")


def features_of(n: int, seed: int) -> np.ndarray:
    """Rows whose first feature is whole."""
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(-3, 4, n), rng.normal(size=(n, 2))])


def model_of(kind: str, family: Any = None) -> Model:
    X = features_of(90, 0)
    family = family or GaussianFamily([0.1, 1.0])
    low, spread = np.array([0.5, 0.0, -1.0]), np.array([2.0, 1.0, 3.0])
    value = X[:, 0] + X[:, 1] * X[:, 2]
    about = {"target": "y", "drop": ["comment", "key"]}
    if kind == "regression":
        estimator: Any = KernelLearningRegressor(family, "align").fit((X - low) / spread, value)
    else:
        y = {"text": np.where(value > 0, "yes", "no"), "whole": np.digitize(value, [-1, 1]), "truth": value > 0}[kind]
        estimator = KernelLearningClassifier(family, "align", predictor="krr").fit((X - low) / spread, y)
    return Model(estimator, FEATURES, low, spread, about)


@pytest.fixture(scope="module")
def model() -> Model:
    return model_of("text")


def table_of(n: int, seed: int = 1) -> pa.Table:
    """Columns in another order than the model's, with the target and a dropped column."""
    X = features_of(n, seed)
    return pa.table(
        {
            "a": X[:, 1],
            "key": pa.array([f"0{i:04d}" for i in range(n)]),
            "y": pa.array(["?"] * n),
            "c d": X[:, 2],
            "comment": pa.array(["text, with a comma"] * n),
            "b": X[:, 0].astype(np.int64),
        }
    )


def write(table: pa.Table, path: Path, rows: int = 1000) -> str:
    """Write a table in pieces of some rows."""
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path, row_group_size=rows)
    elif path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    else:
        pa.feather.write_feather(table, str(path), chunksize=rows)
    return str(path)


def read(path: str | Path) -> pa.Table:
    path = Path(path)
    if path.suffix == ".csv":
        text = pa.csv.ConvertOptions(column_types={"key": pa.string()})
        return pa.csv.read_csv(path, convert_options=text)
    return pa.parquet.read_table(path) if path.suffix == ".parquet" else pa.feather.read_table(path, memory_map=False)


def expected(model: Model, table: pa.Table) -> dict[str, np.ndarray]:
    X = np.column_stack([table[name].to_numpy() for name in FEATURES]).astype(np.float64)
    return model.columns(X)


def score(model: Model, source: str, output: str | Path, **keys: Any) -> Scores:
    return score_with(model, ABOUT, source, str(output), **keys)


@pytest.mark.parametrize("output", ENDINGS)
@pytest.mark.parametrize("source", ENDINGS)
def test_every_format_gives_the_bits_of_all_rows_at_once(model: Model, tmp_path: Path, source: str, output: str):
    n = 2 * model.batch_rows + 77  # batches of the model straddle pieces of the file
    table = table_of(n)
    scores = score(model, write(table, tmp_path / f"in{source}"), tmp_path / f"out{output}", ids=["key"])
    result, whole = read(tmp_path / f"out{output}"), expected(model, table)
    assert result.column_names == ["key", *whole] == list(scores.columns)
    assert (scores.rows, scores.missing) == (n, 0)
    assert result["key"].to_pylist() == table["key"].to_pylist()
    for name, values in whole.items():
        np.testing.assert_array_equal(result[name].to_numpy(), values, err_msg=name)
    labels, counts = np.unique(whole["prediction"], return_counts=True)
    assert scores.distribution == {"prediction": dict(zip(labels, counts, strict=True))}


@pytest.mark.parametrize("kind", ["text", "whole", "truth", "regression"])
def test_predictions_keep_their_type(tmp_path: Path, kind: str):
    model, table = model_of(kind), table_of(50)
    scores = score(model, write(table, tmp_path / "in.parquet"), tmp_path / "out.parquet")
    result, whole = read(tmp_path / "out.parquet"), expected(model, table)
    types = {"text": pa.string(), "whole": pa.int64(), "truth": pa.bool_(), "regression": pa.float64()}
    assert result.schema.field("prediction").type == types[kind]
    assert result["row"].to_pylist() == list(range(50))
    assert result.schema.field("row").type == pa.int64()
    for name, values in whole.items():
        assert result[name].to_pylist() == values.tolist()
    if kind == "regression":
        values = whole["prediction"]
        summary = {"mean": values.mean(), "sd": values.std(ddof=1), "min": values.min(), "max": values.max()}
        assert scores.distribution["prediction"] == pytest.approx(summary, rel=1e-12)


@pytest.mark.parametrize("output", [".parquet", ".arrow"])
def test_the_output_says_which_model_it_was(model: Model, tmp_path: Path, output: str):
    score(model, write(table_of(5), tmp_path / "in.csv"), tmp_path / f"out{output}")
    metadata = read(tmp_path / f"out{output}").schema.metadata
    assert {key.decode(): value.decode() for key, value in metadata.items()} == {
        f"learnkernels.{key}": value for key, value in ABOUT.items()
    }


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv"])
def test_no_rows_give_an_output_without_rows(model: Model, tmp_path: Path, ending: str):
    full, empty = table_of(5), table_of(5).slice(0, 0)
    told: list[float] = []
    for name, table in (("full", full), ("empty", empty)):
        source = write(table, tmp_path / f"{name}-in{ending}")
        scores = score(model, source, tmp_path / f"{name}.parquet", ids=["key"], tell=lambda *now: told.append(now[0]))
    assert (scores.rows, scores.distribution) == (0, {"prediction": {}})
    assert read(tmp_path / "empty.parquet").schema == read(tmp_path / "full.parquet").schema
    assert read(tmp_path / "empty.parquet").num_rows == 0
    score(model, source, tmp_path / "empty.csv", ids=["key"])
    assert (tmp_path / "empty.csv").read_text() == '"key","prediction","score"\n'


# Columns -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.bool_(), pa.uint8(), pa.int16(), pa.float16(), pa.float32()])
@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_numbers_of_every_type_are_features(model: Model, tmp_path: Path, kind: pa.DataType, ending: str):
    table = table_of(40)
    b = (np.arange(40) % 2).astype(kind.to_pandas_dtype())
    table = table.set_column(table.column_names.index("b"), "b", pa.array(b, kind))
    score(model, write(table, tmp_path / f"in{ending}"), tmp_path / "out.parquet")
    whole = expected(model, table.set_column(table.column_names.index("b"), "b", pa.array(b.astype(float))))
    np.testing.assert_array_equal(read(tmp_path / "out.parquet")["score"].to_numpy(), whole["score"])


def test_a_csv_may_begin_with_whole_numbers_truth_or_nothing(model: Model, tmp_path: Path):
    """Types of a CSV come from its first block of 1 MiB; here the later rows are of another one."""
    n, path = 60_000, tmp_path / "in.csv"
    X = np.zeros((n, 3))
    X[n - 1] = [-3, 0.25, 1e-3]
    lines = [f"{i % 2 == 0},0,".lower() for i in range(n - 1)] + ["true,0.25,0.001"]
    path.write_text("b,a,c d\n" + "\n".join(lines) + "\n")
    scores = score(model, str(path), tmp_path / "out.parquet", missing="null")
    result = read(tmp_path / "out.parquet")
    assert (scores.rows, scores.missing) == (n, n - 1)
    last = model.columns(np.array([[1.0, 0.25, 0.001]]))
    # Another place in a batch may round otherwise.
    assert result["score"][n - 1].as_py() == pytest.approx(last["score"][0], rel=1e-12)


@pytest.mark.parametrize("output", [".parquet", ".arrow"])
def test_ids_of_every_type_are_copied(model: Model, tmp_path: Path, output: str):
    n, table = 300, table_of(300)
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    keys = {
        "when": pa.array([start + datetime.timedelta(hours=i) for i in range(n)], pa.timestamp("ns", "UTC")),
        "day": pa.array([start.date()] * n),
        "whole": pa.array([None if i % 7 == 0 else i for i in range(n)], pa.uint32()),
        "truth": pa.array([i % 2 == 0 for i in range(n)]),
        "real": pa.array(np.arange(n) / 3, pa.float32()),
        "raw": pa.array([bytes([i % 256]) for i in range(n)]),
        "two": pa.array([[i, i + 1] for i in range(n)]),
        "word": pa.array([None if i % 9 == 0 else f"w{i // 40}" for i in range(n)]).dictionary_encode(),
    }
    for name, values in keys.items():
        table = table.append_column(name, values)
    score(model, write(table, tmp_path / "in.parquet", 64), tmp_path / f"out{output}", ids=list(keys))
    result = read(tmp_path / f"out{output}")
    for name, values in keys.items():
        assert result.schema.field(name).type == values.type
        assert result[name].to_pylist() == values.to_pylist()


def test_dictionaries_of_an_arrow_file_may_grow(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("learnkernels.tasks.data.streams.GROUP_ROWS", 1)  # every batch is written on its own
    n = 3 * model.batch_rows
    words = [None if i % 11 == 0 else f"w{i // 1000}" for i in range(n)]
    table = table_of(n).append_column("word", pa.array(words).dictionary_encode())
    score(model, write(table, tmp_path / "in.parquet", 1500), tmp_path / "out.arrow", ids=["word"])
    result = read(tmp_path / "out.arrow")
    assert result["word"].num_chunks == 3
    assert pa.types.is_dictionary(result.schema.field("word").type)
    assert result["word"].to_pylist() == words


def test_an_id_may_be_the_target_or_a_feature(model: Model, tmp_path: Path):
    score(model, write(table_of(9), tmp_path / "in.parquet"), tmp_path / "out.parquet", ids=["y", "b"])
    result = read(tmp_path / "out.parquet")
    assert result.column_names == ["y", "b", "prediction", "score"]
    assert result["b"].to_pylist() == table_of(9)["b"].to_pylist()


def renamed(table: pa.Table, **names: str) -> pa.Table:
    return table.rename_columns([names.get(name, name) for name in table.column_names])


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".arrow"])
@pytest.mark.parametrize(
    ("change", "keys", "sentence"),
    [
        (lambda t: renamed(t, a="x", b="z"), {}, "missing 'b', 'a'; unknown 'x', 'z'; rename or remove"),
        (lambda t: renamed(t, key="who"), {}, "not those of the model: unknown 'who'; .*name those to copy as ids"),
        (lambda t: t, {"ids": ["key", "gone"]}, "not those of the model: missing 'gone'"),
        (lambda t: t, {"ids": ["key", "key"]}, "id 'key' is given more than once"),
        (lambda t: renamed(t, key="b"), {}, "column 'b' appears more than once"),
        (lambda t: renamed(t, key="score"), {"ids": ["score"]}, "id 'score' has the name of a column of the output"),
        (
            lambda t: renamed(t, key="b", b="key").set_column(1, "b", pa.array(["red"] * t.num_rows)),
            {"ids": ["key"]},
            r"not numeric: column 'b' \((large_)?string\); encode as in training",
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    model: Model, tmp_path: Path, ending: str, change: Any, keys: dict[str, Any], sentence: str
):
    source = tmp_path / f"in{ending}"
    table = change(table_of(20))
    if ending == ".arrow":
        with pa.ipc.new_file(str(source), table.schema) as writer:
            writer.write_table(table)
    else:
        write(table, source)
    output = tmp_path / "new" / "out.parquet"
    with pytest.raises(InputError, match=sentence) as caught:
        score(model, str(source), output, **keys)
    assert "\n" not in str(caught.value)
    assert not output.parent.exists()


# Values --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".arrow"])
def test_missing_values_stop_or_get_no_prediction(model: Model, tmp_path: Path, ending: str):
    n = model.batch_rows + 500
    table = table_of(n)
    a, b = table["a"].to_pylist(), table["b"].to_pylist()
    a[n - 3], a[n - 2], b[n - 7] = None, float("inf"), None
    holes = table.set_column(0, "a", pa.array(a)).set_column(5, "b", pa.array(b))
    source = write(holes, tmp_path / f"in{ending}")
    with pytest.raises(InputError, match=rf"column 'b' is missing or not finite in row {n - 7:,} \(the first is row 0"):
        score(model, source, tmp_path / "out.parquet", ids=["key"])
    assert [path.name for path in tmp_path.iterdir()] == [f"in{ending}"]
    scores = score(model, source, tmp_path / "out.parquet", ids=["key"], missing="null")
    result, whole = read(tmp_path / "out.parquet"), expected(model, table)
    assert (scores.rows, scores.missing) == (n, 3)
    assert sum(scores.distribution["prediction"].values()) == n - 3
    assert result["key"].to_pylist() == table["key"].to_pylist()
    gone = [n - 7, n - 3, n - 2]
    for name, values in whole.items():
        got = result[name].to_pylist()
        assert [got[i] for i in gone] == [None] * 3
        assert np.delete(np.array(got, dtype=object), gone).tolist() == np.delete(values, gone).tolist()


def test_a_table_without_a_complete_row_has_no_predictions(model: Model, tmp_path: Path):
    table = table_of(30).set_column(0, "a", pa.nulls(30))
    source = write(table, tmp_path / "in.parquet")
    scores = score(model, source, tmp_path / "out.parquet", ids=["key"], missing="null")
    assert (scores.rows, scores.missing, scores.distribution) == (30, 30, {"prediction": {}})
    result = read(tmp_path / "out.parquet")
    assert result["prediction"].null_count == result["score"].null_count == 30
    assert result.schema.field("prediction").type == pa.string()


def test_a_row_that_the_model_refuses_is_a_sentence(tmp_path: Path):
    model = model_of("text")
    table = table_of(10).set_column(0, "a", pa.array([np.inf] * 10))
    with pytest.raises(InputError, match=r"in\.parquet: column 'a' is missing or not finite in row 0"):
        score(model, write(table, tmp_path / "in.parquet"), tmp_path / "out.parquet", ids=["key"])
    assert not (tmp_path / "out.parquet").exists()


# Places --------------------------------------------------------------------------------------------------------------


def test_faulty_files_and_places_get_one_sentence(model: Model, tmp_path: Path):
    source = write(table_of(9), tmp_path / "in.parquet")
    (tmp_path / "folder.parquet").mkdir()
    (tmp_path / "link.parquet").symlink_to(source)
    (tmp_path / "text.parquet").write_text("hello")
    (tmp_path / "text.arrow").write_text("hello")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "ragged.csv").write_text("a,b,c d\n1,2,3\n1,2\n")
    (tmp_path / "late.csv").write_text("a,b,c d\n" + "1,2,3\n" * 400_000 + "1,red,3\n")
    cut = (tmp_path / "in.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(cut[: len(cut) // 2])
    (tmp_path / "file").write_text("")
    cases = [
        ("gone.parquet", "out.parquet", r"gone\.parquet: there is no such file"),
        ("in.xlsx", "out.parquet", r"in\.xlsx: the ending says the format, and must be one of \.parquet, \.csv"),
        ("in.parquet", "out.txt", r"out\.txt: the ending says the format"),
        ("in.parquet", "in.parquet", r"in\.parquet: the output would replace the input"),
        ("in.parquet", "link.parquet", "the output would replace the input"),
        ("in.parquet", "folder.parquet", r"folder\.parquet: is a folder"),
        ("folder.parquet", "out.parquet", r"folder\.parquet: holds no table, whose endings are \.parquet"),
        ("text.parquet", "out.parquet", r"text\.parquet: cannot be read as parquet"),
        ("cut.parquet", "out.parquet", r"cut\.parquet: cannot be read as parquet"),
        ("text.arrow", "out.parquet", r"text\.arrow: cannot be read as arrow"),
        ("empty.csv", "out.parquet", r"empty\.csv: cannot be read as csv \(Empty CSV file\)"),
        ("ragged.csv", "out.parquet", r"ragged\.csv: cannot be read as csv \(CSV parse error: Expected 3 columns"),
        ("late.csv", "out.parquet", r"late\.csv: cannot be read as csv \(.*invalid value 'red'"),
    ]
    before = sorted(tmp_path.iterdir())
    for name, output, sentence in cases:
        with pytest.raises(InputError, match=sentence) as caught:
            score(model, str(tmp_path / name), tmp_path / output, ids=["key"] if name == "in.parquet" else [])
        assert "\n" not in str(caught.value), name
    assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(InputError, match=r"file/out\.parquet: File exists; give another name"):
        score(model, source, tmp_path / "file" / "out.parquet", ids=["key"])


@pytest.mark.parametrize("ending", ENDINGS)
def test_from_server_to_server_is_from_disk_to_disk(s3: S3, model: Model, tmp_path: Path, ending: str):
    source = write(table_of(2 * model.batch_rows), tmp_path / f"in{ending}")
    score(model, source, tmp_path / f"out{ending}", ids=["key"])
    remote = s3.put(f"folder/in{ending}", Path(source))
    score(model, remote, f"s3://rows/new/out{ending}", ids=["key"])
    with locate(f"s3://rows/new/out{ending}").open_input() as file:
        assert file.read() == (tmp_path / f"out{ending}").read_bytes()


def test_a_scoring_that_fails_leaves_no_object(s3: S3, model: Model, tmp_path: Path):
    table = table_of(2 * model.batch_rows)
    a = table["a"].to_pylist()
    a[-1] = None
    remote = s3.put("in.parquet", Path(write(table.set_column(0, "a", pa.array(a)), tmp_path / "in.parquet")))
    for output, sentence in (
        ("s3://rows/out.parquet", "column 'a' is missing or not finite"),
        ("s3://rows/in.parquet", "the output would replace the input"),
        ("s3://nowhere/out.parquet", "there is no bucket 'nowhere'"),
    ):
        with pytest.raises(InputError, match=sentence):
            score(model, remote, output, ids=["key"])
    with pytest.raises(InputError, match=r"s3://rows/gone\.csv: there is no such object in the bucket"):
        score(model, "s3://rows/gone.csv", "s3://rows/out.parquet")
    assert s3.keys() == ["rows/in.parquet"]


# Length --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ENDINGS)
def test_pieces_have_the_rows_that_were_asked_for_and_nothing_is_read_whole(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
):
    # pyarrow asks for some 32 blocks of a CSV ahead.
    monkeypatch.setattr("learnkernels.tasks.data.streams.READ_BYTES", 2**12)
    table = table_of(50_000)
    with closing(INPUTS[ending](locate(write(table, tmp_path / f"in{ending}")))) as source:
        shares, sizes = [], []
        for piece in source.tables(FEATURES, ["key"], 7_000):
            sizes.append(piece.num_rows)
            shares.append(source.share_read)
    assert sizes == [7_000] * 7 + [1_000]
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.4
    assert shares[-1] == 1.0


def test_numbers_are_summarised_as_if_at_once():
    values = np.random.default_rng(0).normal(size=1000) + 1e6
    one, parts = Distribution(), Distribution()
    one.add_numbers(values)
    for part in np.split(values, [1, 1, 400, 999]):
        parts.add_numbers(part)
    for of in (one, parts):
        # A deviation of one beside a mean of 1e6 loses six digits.
        assert of.summary() == pytest.approx(
            {"mean": values.mean(), "sd": values.std(ddof=1), "min": values.min(), "max": values.max()}, rel=1e-9
        )
    assert Distribution().summary() == {}


MEMORY = """
import json, resource, sys
import numpy as np, pyarrow as pa, pyarrow.parquet
from learnkernels import GaussianFamily
from learnkernels.kernels.estimators import KernelLearningClassifier
from learnkernels.kernels.persistence.model import Model
from learnkernels.tasks.models.scoring import score_with

rng, names, n = np.random.default_rng(0), [f"x{c}" for c in range(10)], int(sys.argv[3])
X = rng.normal(size=(200, 10))
estimator = KernelLearningClassifier(GaussianFamily([0.05, 0.2]), "alignf").fit(X, X[:, 0] * X[:, 1] > 0)
model = Model(estimator, tuple(names), np.zeros(10), np.ones(10), {})
writer = None
for _ in range(10):
    piece = pa.table({name: rng.normal(size=n // 10) for name in names})
    writer = writer or pa.parquet.ParquetWriter(sys.argv[1], piece.schema)
    writer.write_table(piece)
writer.close()
scores = score_with(model, {}, sys.argv[1], sys.argv[2])
print(json.dumps([scores.rows, scores.seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


@pytest.mark.slow(20)
@pytest.mark.skipif(sys.platform != "linux", reason="getrusage counts in KiB on Linux alone")
def test_a_million_rows_take_bounded_memory(tmp_path: Path):
    """80 MB of numbers; K_cross alone would be 1.6 GB, so that no part of it may be there as a whole."""
    files = [str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet")]
    command = [sys.executable, "-c", MEMORY, *files, "1000000"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    rows, _, peak = json.loads(run.stdout)
    assert rows == 1_000_000
    assert peak * 1024 < 1.5e9
    result = read(files[1])
    assert result["row"].to_numpy()[[0, -1]].tolist() == [0, rows - 1]
