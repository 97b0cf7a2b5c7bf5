"""Files from outside that are damaged or hostile: one sentence, in a process that lives on and stays small."""

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pytest

from dev.tools.mutations import fates, mutated
from learnkernels.conf.errors import InputError
from learnkernels.tasks.data import dataset, locations, readers, tables
from tests.sources import load, write

CASES = 250
"""Damaged files a format."""

MEMORY = 600 << 20
"""What a small file may take."""

CONFIGURATIONS: list[dict[str, Any]] = [
    {"drop": ["note", "words"], "where": {"group": "x"}, "missing": "drop"},
    {
        "drop": ["note", "words"],
        "test": {"group": "y"},
        "missing": "drop",
        "scale": "unit",
    },
    {"ngrams": {"column": "note", "size": [1, 2]}},
    {"ngrams": {"column": "words"}},
]


def table() -> pd.DataFrame:
    i = np.arange(300)
    frame = pd.DataFrame(
        {"a": np.random.default_rng(0).normal(size=300), "b": i % 5, "flag": i % 2 == 0}
    )
    frame["gaps"] = np.where(i % 17 == 3, np.nan, i / 2)
    frame["group"] = pd.Categorical(np.where(i % 2, "y", "x"))
    frame["note"] = [f"note {j % 7} text" for j in i]
    frame["words"] = [[f"t_{j % 5}", "u"] for j in i]
    return frame.assign(target=np.where(frame["a"] > 0, "yes", "no"))


KINDS = [
    (".parquet", None),
    (".parquet", "none"),
    (".arrow", None),
    (".feather", None),
    (".feather", "zstd"),
]
"""Endings and compressions."""


def survive(
    act: Callable[[Any], Any], cases: Sequence[Any] = (0,), memory: int = MEMORY
) -> list[Any]:
    """Return what became of all cases, each of which must have worked or ended in one sentence."""
    found = list(fates(cases, act, (InputError,), memory=memory))
    assert len(found) == len(cases)
    bad = [fate for fate in found if not fate.fine]
    assert not bad, "\n\n".join(
        f"{fate.case}: {fate.kind}: {fate.text[-2000:]}" for fate in bad[:5]
    )
    return found


@pytest.mark.parametrize(
    ("ending", "packed"), [*KINDS, (".csv", None), (".libsvm", None)]
)
def test_a_damaged_table_ends_in_one_sentence(
    tmp_path: Path, ending: str, packed: str | None
):
    content = table().drop(columns=["words"]) if ending == ".csv" else table()
    if ending == ".libsvm":
        content = pd.DataFrame(
            {
                "a": content["a"].round(4),
                "b": 0,
                "c": range(300),
                "target": content["a"] > 0,
            }
        )
    whole = Path(write(content, tmp_path / f"whole{ending}", 100, packed)).read_bytes()
    damaged = tmp_path / f"data{ending}"

    def learn(seed: int) -> None:
        random = Random(seed)
        damaged.write_bytes(mutated(whole, random))
        keys = {} if ending == ".libsvm" else dict(random.choice(CONFIGURATIONS))
        if ending == ".csv" and "words" in keys.get("drop", ()):
            keys["drop"] = ["note"]
        load(tmp_path, damaged.name, tell=str, **keys)

    def predict(seed: int) -> None:
        damaged.write_bytes(mutated(whole, Random(seed)))
        with tables.Table([locations.locate(str(damaged))]) as source:
            for piece in source.tables(["a", "gaps", "group", "note"], 64):
                piece.to_pylist()

    for act in (learn,) if ending == ".libsvm" else (learn, predict):
        assert {fate.kind for fate in survive(act, range(CASES))} == {
            "done",
            "sentence",
        }


# Arrow ---------------------------------------------------------------------------------------------------------------


def wrong_columns() -> dict[str, pa.Array]:
    """Columns whose offsets or indices lead out of them."""
    offsets = pa.py_buffer(np.array([0, 3, 1 << 30, 5], dtype=np.int32))
    runs, latin = pa.py_buffer(np.arange(4, dtype=np.int32)), pa.py_buffer(b"\xe9\xe8a")
    places = pa.array([0, 1 << 30, -5], pa.int32())
    return {
        "text": pa.Array.from_buffers(
            pa.string(), 3, [None, offsets, pa.py_buffer(b"abcde")]
        ),
        "words": pa.Array.from_buffers(
            pa.list_(pa.string()),
            3,
            [None, offsets],
            children=[pa.array(list("abcde"))],
        ),
        "group": pa.DictionaryArray.from_arrays(
            places, pa.array(["x", "y"]), safe=False
        ),
        "latin": pa.Array.from_buffers(pa.string(), 3, [None, runs, latin]),
    }


def test_a_column_that_leads_out_of_its_memory_is_refused(tmp_path: Path):
    for name, column in wrong_columns().items():
        write(
            pa.table({"a": [1.0, 2.0, 3.0], "target": [0, 1, 0], name: column}),
            tmp_path / f"{name}.arrow",
        )

    def read(case: tuple[str, str]) -> None:
        name, use = case
        uses = {
            "target": name,
            "where": {name: "x"},
            "ngrams": {"column": name},
            "drop": [name],
        }
        load(tmp_path, f"{name}.arrow", **{use: uses[use]})

    for fate in survive(
        read, list(product(wrong_columns(), ["target", "where", "ngrams", "drop"]))
    ):
        name, use = fate.case
        # What is dropped is not read
        assert fate.kind == ("done" if use == "drop" else "sentence"), fate
        if use in ("target", "where") and name != "words":
            assert f"{name}.arrow cannot be read as arrow (" in fate.text


def test_a_table_larger_than_memory_is_refused_before_any_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rows = 1 << 24
    write(
        pa.table(dict.fromkeys(["a", "b", "target"], np.zeros(rows))),
        tmp_path / "data.parquet",
        rows,
    )
    assert (tmp_path / "data.parquet").stat().st_size < rows / 40
    monkeypatch.setattr(
        psutil, "virtual_memory", lambda: SimpleNamespace(available=8 * rows)
    )
    (fate,) = survive(lambda case: load(tmp_path, "data.parquet"), memory=4 * rows)
    assert "data.parquet states 16,777,216 rows of 2 columns" in fate.text


# LIBSVM --------------------------------------------------------------------------------------------------------------


def test_many_hashed_features_take_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path / "state"))
    (tmp_path / "data.libsvm").write_text(
        f"1 1:1 5:2\n-1 3:1 {readers.MOST_FEATURES}:1\n1 2:1\n-1 7:3\n"
    )

    def work(case: int) -> None:
        ref = dataset.store_dataset(
            load(tmp_path, "data.libsvm"), "data", "data.libsvm"
        )
        again = dataset.load_dataset(ref)
        assert again.X.shape == (4, readers.MOST_FEATURES)
        assert (
            again.features[readers.MOST_FEATURES - 1] == f"f{readers.MOST_FEATURES - 1}"
        )
        assert dataset.dataset_digest(again) == ref.digest
        assert sum(file.stat().st_size for file in Path(ref.path).iterdir()) < 10_000

    (fate,) = survive(work)
    assert fate.kind == "done"


def test_an_index_that_was_mistyped_is_refused(tmp_path: Path):
    def read(index: str) -> None:
        (tmp_path / "data.libsvm").write_text(f"1 1:1\n-1 {index}:1\n")
        load(tmp_path, "data.libsvm")

    indices = [
        str(readers.MOST_FEATURES + 1),
        "2000000000",
        "3000000000",
        "12345678901234",
        "9" * 30,
    ]
    for fate in survive(read, indices, 200 << 20):
        assert fate.kind == "sentence", fate
        assert "data.libsvm" in fate.text
