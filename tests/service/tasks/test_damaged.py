"""Files from outside that are damaged or hostile: one sentence, in a process that lives on and stays small."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DatasetConfig
from learnkernels.tasks.data.dataset import dataset_digest, load_dataset, store_dataset
from learnkernels.tasks.data.ingest import load_source
from learnkernels.tasks.data.locations import locate
from learnkernels.tasks.data.readers import MOST_FEATURES, NumberedNames
from learnkernels.tasks.data.streams import INPUTS
from tools.mutations import fates, is_sentence, mutated

CASES = 250
"""Damaged files a format."""

MEMORY = 600 << 20
"""What a small file may take."""

CONFIGURATIONS: list[dict[str, Any]] = [
    {"drop": ["note", "words"], "where": {"group": "x"}, "missing": "drop"},
    {"drop": ["note", "words"], "test": {"group": "y"}, "missing": "drop", "scale": "unit"},
    {"ngrams": {"column": "note", "size": [1, 2]}},
    {"ngrams": {"column": "words"}},
]


def table(n: int = 300) -> pa.Table:
    a = np.random.default_rng(0).normal(size=n)
    return pa.table(
        {
            "a": a,
            "b": pa.array([i % 5 for i in range(n)]),
            "flag": pa.array([i % 2 == 0 for i in range(n)]),
            "gaps": pa.array([None if i % 17 == 3 else i / 2 for i in range(n)]),
            "group": pa.array(["xy"[i % 2] for i in range(n)]).dictionary_encode(),
            "note": [f"note {i % 7} text" for i in range(n)],
            "words": [[f"t_{i % 5}", "u"] for i in range(n)],
            "target": ["yes" if value > 0 else "no" for value in a],
        }
    )


def write_arrow(content: pa.Table, path: Path, compression: str | None = None) -> None:
    with pa.ipc.new_file(str(path), content.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as file:
        file.write_table(content, max_chunksize=100)


def write_csv(content: pa.Table, path: Path) -> None:
    plain = content.drop_columns(["words", "group"]).append_column("group", content["group"].cast(pa.string()))
    pa.csv.write_csv(plain, path)


def write_libsvm(content: pa.Table, path: Path) -> None:
    path.write_text(
        "".join(f"{1 if a > 0 else -1} 1:{a:.4f} 3:{i} 7:1e-3\n" for i, a in enumerate(content["a"].to_pylist()))
    )


WRITERS: dict[str, tuple[str, Callable[[pa.Table, Path], None]]] = {
    "parquet": (".parquet", lambda content, path: pa.parquet.write_table(content, path, row_group_size=100)),
    "parquet, plain": (".parquet", lambda content, path: pa.parquet.write_table(content, path, compression="none")),
    "arrow": (".arrow", write_arrow),
    "feather": (".feather", lambda content, path: write_arrow(content, path, "lz4")),
    "feather, zstd": (".feather", lambda content, path: write_arrow(content, path, "zstd")),
    "csv": (".csv", write_csv),
    "libsvm": (".libsvm", write_libsvm),
}


def config(path: str, **keys: object) -> DatasetConfig:
    return DatasetConfig.model_validate({"source": "file", "path": path, **keys})


def survive(act: Callable[[Any], Any], cases: Sequence[Any] = (0,), memory: int = MEMORY) -> list[Any]:
    """Return what became of all cases, each of which must have worked or ended in one sentence."""
    found = list(fates(cases, act, (InputError,), memory=memory))
    assert len(found) == len(cases)
    bad = [fate for fate in found if not fate.fine]
    assert not bad, "\n\n".join(f"{fate.case}: {fate.kind}: {fate.text[-2000:]}" for fate in bad[:5])
    return found


@pytest.mark.parametrize("kind", WRITERS)
def test_a_damaged_data_set_ends_in_one_sentence(tmp_path: Path, kind: str):
    ending, write = WRITERS[kind]
    write(table(), tmp_path / f"whole{ending}")
    whole = (tmp_path / f"whole{ending}").read_bytes()

    def read(seed: int) -> None:
        random = Random(seed)
        (tmp_path / f"data{ending}").write_bytes(mutated(whole, random))
        keys = {} if ending == ".libsvm" else dict(random.choice(CONFIGURATIONS))
        if ending == ".csv" and "words" in keys.get("drop", ()):
            keys["drop"] = ["note"]
        load_source(config(f"data{ending}", **keys), str(tmp_path), 0, lambda sentence: None)

    found = survive(read, range(CASES))
    assert {fate.kind for fate in found} == {"done", "sentence"}


@pytest.mark.parametrize("kind", [kind for kind in WRITERS if kind != "libsvm"])
def test_a_damaged_table_to_predict_from_ends_in_one_sentence(tmp_path: Path, kind: str):
    ending, write = WRITERS[kind]
    write(table(), tmp_path / f"whole{ending}")
    whole = (tmp_path / f"whole{ending}").read_bytes()

    def read(seed: int) -> None:
        (tmp_path / f"data{ending}").write_bytes(mutated(whole, Random(seed)))
        source = INPUTS[ending](locate(str(tmp_path / f"data{ending}")))
        for piece in source.tables(["a", "gaps"], ["group", "note"], 64):
            piece.to_pylist()
        source.close()

    found = survive(read, range(CASES))
    assert {fate.kind for fate in found} == {"done", "sentence"}


# Arrow ---------------------------------------------------------------------------------------------------------------


def wrong_columns() -> dict[str, pa.Array]:
    """Columns whose offsets or indices lead out of them."""
    offsets = pa.py_buffer(np.array([0, 3, 1 << 30, 5], dtype=np.int32))
    texts = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"abcde")])
    places = pa.array([0, 1 << 30, -5], pa.int32())
    return {
        "text": texts,
        "words": pa.Array.from_buffers(pa.list_(pa.string()), 3, [None, offsets], children=[pa.array(list("abcde"))]),
        "group": pa.DictionaryArray.from_arrays(places, pa.array(["x", "y"]), safe=False),
        "latin": pa.Array.from_buffers(
            pa.string(), 3, [None, pa.py_buffer(np.arange(4, dtype=np.int32)), pa.py_buffer(b"\xe9\xe8a")]
        ),
    }


@pytest.mark.parametrize("name", wrong_columns())
@pytest.mark.parametrize("use", ["target", "where", "ngrams", "drop"])
def test_a_column_that_leads_out_of_its_memory_is_refused(tmp_path: Path, name: str, use: str):
    columns = {"a": pa.array([1.0, 2.0, 3.0]), "target": pa.array([0, 1, 0]), name: wrong_columns()[name]}
    write_arrow(pa.table(columns), tmp_path / "data.arrow")
    keys = {
        "target": {"target": name},
        "where": {"where": {name: "x"}},
        "ngrams": {"ngrams": {"column": name}},
        "drop": {"drop": [name]},
    }[use]
    (fate,) = survive(lambda case: load_source(config("data.arrow", **keys), str(tmp_path)))
    assert fate.kind == "sentence"
    if use in ("target", "where") and name != "words":
        assert "data.arrow cannot be read as arrow (" in fate.text


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.struct([("x", pa.int64())]), pa.binary(), pa.map_(pa.string(), pa.int64())]
)
def test_a_target_of_nested_or_binary_values_is_refused(tmp_path: Path, kind: pa.DataType):
    values = {"list": [[1], [2]], "stru": [{"x": 1}, {"x": 2}], "bina": [b"1", b"2"], "map<": [[("a", 1)], [("b", 2)]]}
    pa.parquet.write_table(
        pa.table({"a": [1.0, 2.0], "target": pa.array(values[str(kind)[:4]], kind)}), tmp_path / "data.parquet"
    )
    with pytest.raises(InputError, match=r"target 'target' is .*; name a column of text or numbers"):
        load_source(config("data.parquet"), str(tmp_path))


def test_a_table_larger_than_memory_is_refused_before_any_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = 1 << 22
    content = pa.table({"a": np.zeros(rows), "b": np.zeros(rows), "target": np.zeros(rows)})
    pa.parquet.write_table(content, tmp_path / "data.parquet")
    assert (tmp_path / "data.parquet").stat().st_size < 100_000
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=8 * rows))
    (fate,) = survive(lambda case: load_source(config("data.parquet"), str(tmp_path)), memory=4 * rows)
    assert "data.parquet states 4,194,304 rows of 2 columns" in fate.text


def encoded(number: int) -> bytes:
    """Return how the footer of Parquet writes a whole number."""
    number, written = number << 1, bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    return bytes(written) + bytes([number])


@pytest.mark.parametrize("stated", [1010, 990])
def test_rows_that_are_stated_and_not_there_are_refused(tmp_path: Path, stated: int):
    content = pa.table({"a": np.arange(1000.0), "target": np.arange(1000) % 2})
    pa.parquet.write_table(content, tmp_path / "data.parquet", row_group_size=500)
    whole = (tmp_path / "data.parquet").read_bytes()
    assert whole.count(b"\x16" + encoded(1000)) == 1
    (tmp_path / "data.parquet").write_bytes(whole.replace(b"\x16" + encoded(1000), b"\x16" + encoded(stated)))
    with pytest.raises(InputError, match="cannot be read as parquet"):
        load_source(config("data.parquet"), str(tmp_path))
    with pytest.raises(InputError, match="cannot be read as parquet"):
        list(INPUTS[".parquet"](locate(str(tmp_path / "data.parquet"))).tables(["a"], [], 100))


# Text ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"\xe9t\xe9,target\n1,2\n2,3\n", "été,target\n1,2\n2,3\n".encode("utf-16")])
def test_a_table_that_is_not_utf8_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "data.csv").write_bytes(content)
    with pytest.raises(InputError, match=r"data\.csv (cannot be read as csv|leaves|.* is not a column)") as caught:
        load_source(config("data.csv"), str(tmp_path))
    assert is_sentence(str(caught.value))
    with pytest.raises(InputError) as caught:
        list(INPUTS[".csv"](locate(str(tmp_path / "data.csv"))).tables(["target"], [], 10))
    assert is_sentence(str(caught.value))


def test_a_number_in_hexadecimal_is_text_in_training_and_in_prediction(tmp_path: Path):
    (tmp_path / "data.csv").write_text("a,b,target\n" + "".join(f"{i},{hex(i)},{i % 2}\n" for i in range(20)))
    said: list[str] = []
    dataset = load_source(config("data.csv", columns={"a": "number"}), str(tmp_path), tell=said.append)
    assert dataset.features == ("a",)
    assert "column 'b' is left out, as nearly all of its texts differ" in said[0]
    dataset = load_source(config("data.csv", drop=["b"]), str(tmp_path))
    assert dataset.X[:, 0].tolist() == list(range(20))
    with pytest.raises(InputError, match="invalid value '0x0'"):
        list(INPUTS[".csv"](locate(str(tmp_path / "data.csv"))).tables(["b"], [], 10))


def test_long_names_and_values_are_cut(tmp_path: Path):
    (tmp_path / "data.csv").write_text("a" * 5000 + ',"b\nc",target\n' + "x" * 5000 + ",1,2\ny,2,3\n")
    for keys in (
        {"columns": {"a" * 5000: "number"}},
        {"target": "t" * 5000},
        {"where": {"a" * 5000: "z" * 5000}},
        {"drop": ["q" * 5000]},
    ):
        with pytest.raises(InputError) as caught:
            load_source(config("data.csv", **keys), str(tmp_path))
        assert is_sentence(str(caught.value)), str(caught.value)


# LIBSVM --------------------------------------------------------------------------------------------------------------


def test_many_hashed_features_take_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path / "state"))
    (tmp_path / "data.libsvm").write_text(f"1 1:1 5:2\n-1 3:1 {MOST_FEATURES}:1\n1 2:1\n-1 7:3\n")

    def work(case: int) -> None:
        ref = store_dataset(load_source(config("data.libsvm"), str(tmp_path)), "data", "data.libsvm")
        again = load_dataset(ref)
        assert again.X.shape == (4, MOST_FEATURES)
        assert again.features[MOST_FEATURES - 1] == f"f{MOST_FEATURES - 1}"
        assert dataset_digest(again) == ref.digest
        assert sum(file.stat().st_size for file in Path(ref.path).iterdir()) < 10_000

    (fate,) = survive(work)
    assert fate.kind == "done"


@pytest.mark.parametrize("index", [str(MOST_FEATURES + 1), "2000000000", "3000000000", "12345678901234", "9" * 30])
def test_an_index_that_was_mistyped_is_refused(tmp_path: Path, index: str):
    (tmp_path / "data.libsvm").write_text(f"1 1:1\n-1 {index}:1\n")
    (fate,) = survive(lambda case: load_source(config("data.libsvm"), str(tmp_path)), memory=200 << 20)
    assert fate.kind == "sentence"
    assert "data.libsvm" in fate.text


def test_numbered_names_are_those_of_a_tuple():
    names, plain = NumberedNames(12), tuple(f"f{i}" for i in range(12))
    assert names == plain
    assert plain == names
    assert list(names) == list(plain)
    assert names[3:5] == plain[3:5]
    assert names[-1] == plain[-1]
    assert names.index("f7") == 7
    for name in ("f12", "f07", "g1", "f", "f-1", 3):
        assert name not in names
    with pytest.raises(ValueError, match="is none of f0 to f11"):
        names.index("f12")
