"""Sets of OpenML: what scikit-learn fetches is kept, checked and read again without a network."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import _openml

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DatasetConfig
from learnkernels.tasks.data.dataset import Dataset
from learnkernels.tasks.data.ingest import load_source
from learnkernels.tasks.data.locations import TransferError

NOMINAL = {"letter": ["a", "b", "c"], "grade": ["low", "high"], "digit": ["0", "1", "2"], "words": ["'a b'", "'c d'"]}

SETS: dict[str, dict[str, Any]] = {
    "plain": {
        "columns": {"width": "numeric", "digit": "nominal", "part": "string", "grade": "nominal"},
        "targets": ["grade"],
        "rows": "4,0,x,low\n5.5,1,y,high\n6,2,x,low\n-7,1,x,high\n4,0,x,low\n",
    },
    "letters": {
        "columns": {"width": "numeric", "letter": "nominal", "digit": "nominal", "grade": "nominal"},
        "targets": ["grade"],
        "rows": "4,a,1,low\n5.5,b,?,high\n6,c,0,low\n1,c,0,high\n",
    },
    "words": {
        "columns": {"width": "numeric", "words": "nominal"},
        "targets": ["words"],
        "rows": "4,'a b'\n5.5,'c d'\n",
    },
    "two": {
        "columns": {"width": "numeric", "here": "numeric", "there": "numeric"},
        "targets": ["here", "there"],
        "rows": "4,1.5,1\n5,2.5,2\n6,3.5,4\n",
    },
    "sparse": {
        "columns": {"width": "numeric", "here": "numeric"},
        "targets": ["here"],
        "rows": "{0 1}\n",
        "sparse": True,
    },
    "old": {
        "columns": {"width": "numeric", "grade": "nominal"},
        "targets": ["grade"],
        "rows": "4,low\n5,high\n",
        "status": "deactivated",
    },
}  # fmt: skip
IDS = {name: 40 + i for i, name in enumerate(SETS)}


class Handler(BaseHTTPRequestHandler):
    """Answers what scikit-learn asks OpenML, in OpenML's words."""

    def do_GET(self):
        self.server.asked.append(self.path)
        parts = self.path.strip("/").split("/")
        if "data_name" in parts:
            name = parts[parts.index("data_name") + 1]
            if name not in SETS or parts[parts.index("data_version") + 1] != "1":
                return self.answer(412, {"error": {"code": "372", "message": "No results"}})
            return self.answer(200, {"data": {"dataset": [{"did": IDS[name], "version": 1, "status": "active"}]}})
        name = next(name for name, number in IDS.items() if number == int(parts[-1]))
        if parts[0] == "download":
            return self.answer(200, arff(name, self.server.spoiled))
        kind = parts[-2]
        return self.answer(200, {"features": features, "qualities": qualities}.get(kind, self.description)(name))

    def description(self, name: str) -> dict[str, Any]:
        about = {
            "id": str(IDS[name]),
            "name": name,
            "version": "1",
            "status": SETS[name].get("status", "active"),
            "format": "Sparse_ARFF" if SETS[name].get("sparse") else "ARFF",
            "description": "made up",
            "url": f"{self.server.address}/download/{IDS[name]}",
            "md5_checksum": hashlib.md5(arff(name, False)).hexdigest(),
        }
        return {"data_set_description": about}

    def answer(self, status: int, content: Any):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object):
        pass


def features(name: str) -> dict[str, Any]:
    columns = [
        {
            "index": str(i),
            "name": column,
            "data_type": kind,
            "is_target": str(column in SETS[name]["targets"]).lower(),
            "is_ignore": "false",
            "is_row_identifier": "false",
            "number_of_missing_values": "0",
            **({"nominal_value": NOMINAL[column]} if kind == "nominal" else {}),
        }
        for i, (column, kind) in enumerate(SETS[name]["columns"].items())
    ]
    return {"data_features": {"feature": columns}}


def qualities(name: str) -> dict[str, Any]:
    number = str(SETS[name]["rows"].count("\n"))
    return {"data_qualities": {"quality": [{"name": "NumberOfInstances", "value": number}]}}


def arff(name: str, spoiled: bool) -> bytes:
    kinds = {"numeric": "NUMERIC", "string": "STRING"}
    lines = [
        f"@ATTRIBUTE {column} {kinds.get(kind) or '{' + ','.join(NOMINAL[column]) + '}'}"
        for column, kind in SETS[name]["columns"].items()
    ]
    text = f"@RELATION {name}\n" + "\n".join(lines) + "\n@DATA\n" + SETS[name]["rows"]
    return (text.replace("4", "9") if spoiled else text).encode()


@pytest.fixture
def openml(monkeypatch: pytest.MonkeyPatch, working_folder: Path) -> Iterator[ThreadingHTTPServer]:
    """A server on loopback that scikit-learn takes for OpenML, and an empty store."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.address, server.asked, server.spoiled = f"http://127.0.0.1:{server.server_port}", [], False
    direct(monkeypatch, server.address)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def direct(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Let scikit-learn ask another server."""
    for name in ("_SEARCH_NAME", "_DATA_INFO", "_DATA_FEATURES", "_DATA_QUALITIES"):
        path = getattr(_openml, name).split("//", 1)[1].partition("/")[2]
        monkeypatch.setattr(_openml, name, f"{address}/{path}")


def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        direct(monkeypatch, f"http://127.0.0.1:{free.getsockname()[1]}")


def config(name: str, **keys: object) -> DatasetConfig:
    return DatasetConfig.model_validate({"source": "openml", "name": name, "version": 1, **keys})


def same(one: Dataset, other: Dataset) -> bool:
    return (
        np.array_equal(one.X, other.X)
        and one.features == other.features
        and np.array_equal(one.target.values, other.target.values)
    )


def test_a_set_is_fetched_once_and_read_from_the_store_afterwards(openml, monkeypatch: pytest.MonkeyPatch):
    first = load_source(config("Plain", drop=["part"]))
    np.testing.assert_array_equal(first.X, [[4, 0], [5.5, 1], [6, 2], [-7, 1], [4, 0]])
    assert first.features == ("width", "digit")
    assert first.target.classes == ("high", "low")
    assert [first.target.classes[value] for value in first.target.values] == ["low", "high", "low", "high", "low"]
    assert sum("download" in path for path in openml.asked) == 1
    asked = len(openml.asked)
    unreachable(monkeypatch)
    assert same(load_source(config("plain", drop=["part"])), first)
    other = load_source(config("plain", drop=["part", "grade"], target="width", task="regression"))
    np.testing.assert_array_equal(other.target.values, first.X[:, 0])
    assert len(openml.asked) == asked


def test_rows_are_chosen_as_from_a_file(openml):
    dataset = load_source(config("plain", where={"part": "x", "target": ["low", "high"]}, distinct=True))
    np.testing.assert_array_equal(dataset.X, [[4, 0], [6, 2], [-7, 1]])
    dataset = load_source(config("plain", where={"part": "x", "grade": "low"}, target="width", task="regression"))
    assert dataset.features == ("digit",)


def test_categories_of_text_become_features_or_are_dropped(openml):
    assert {"letter=a", "letter=b"} <= set(load_source(config("letters")).features)
    dataset = load_source(config("letters", drop=["letter"], missing="drop"))
    np.testing.assert_array_equal(dataset.X, [[4, 1], [6, 0], [1, 0]])


def test_quotes_are_no_part_of_a_category(openml):
    assert load_source(config("words")).target.classes == ("a b", "c d")


@pytest.mark.parametrize("fault", ["changed", "cut", "no contents", "empty folder"])
def test_a_damaged_copy_is_told_and_fetched_anew(openml, working_folder: Path, fault: str):
    keys = {"drop": ["part"]}
    first = load_source(config("plain", **keys))
    (folder,) = (working_folder / "state" / "store" / "openml").iterdir()
    table, contents = folder / "data.parquet", folder / "entry.json"
    whole = table.read_bytes()
    if fault == "changed":
        table.write_bytes(whole[:60] + bytes([whole[60] ^ 1]) + whole[61:])
    elif fault == "cut":
        table.write_bytes(whole[:-9])
    elif fault == "no contents":
        contents.unlink()
    else:
        table.unlink()
        contents.unlink()
    told: list[str] = []
    assert same(load_source(config("plain", **keys), tell=told.append), first)
    (sentence,) = told
    assert sentence.startswith(f"{folder}: ")
    assert sentence.endswith("and is made again.")
    assert table.read_bytes() == whole
    told.clear()
    load_source(config("plain", **keys), tell=told.append)
    assert told == []


@pytest.mark.parametrize("kept", [False, True])
def test_without_a_network_one_sentence_says_what_to_do(openml, monkeypatch, working_folder: Path, kept: bool):
    if kept:
        load_source(config("plain", drop=["part"]))
        (table,) = (working_folder / "state" / "store" / "openml").glob("*/data.parquet")
        table.write_bytes(b"damaged")
    unreachable(monkeypatch)
    told: list[str] = []
    with pytest.raises(TransferError) as caught:
        load_source(config("plain", label="mine", drop=["part"]), tell=told.append)
    sentence = str(caught.value)
    assert "data set mine: the copy of set 'plain', version 1, in " in sentence
    assert (
        f"{'is damaged' if kept else 'is missing'}, and OpenML cannot be asked for it (Connection refused); "
        in sentence
    )
    assert sentence.endswith("start again with a network, or give the set as a file with 'source: file'.")
    assert "\n" not in sentence
    assert len(told) == kept


@pytest.mark.parametrize(
    ("name", "keys", "sentence"),
    [
        ("nothing", {}, "data set nothing: OpenML has no set 'nothing' of version 1; correct 'name' or 'version'"),
        ("plain", {"version": 7}, "OpenML has no set 'plain' of version 7"),
        ("two", {}, "set 'two' of OpenML has the targets here, there; name one column with 'target'"),
        ("two", {"target": "gone"}, "target 'gone' is not a column of set 'two' of OpenML; it has width, here, there"),
        ("sparse", {}, "set 'sparse' of OpenML is sparse, which is not supported; give it as a LIBSVM file"),
    ],
)
def test_a_set_that_does_not_fit_gets_one_sentence(openml, name: str, keys: dict[str, object], sentence: str):
    with pytest.raises(InputError, match=sentence) as caught:
        load_source(config(name, **keys))
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, TransferError)


def test_one_of_several_targets_can_be_named(openml):
    dataset = load_source(config("two", target="there", task="regression"))
    assert dataset.features == ("width", "here")
    np.testing.assert_array_equal(dataset.target.values, [1, 2, 4])


def test_what_arrives_with_another_checksum_is_refused_and_not_kept(openml, working_folder: Path):
    openml.spoiled = True
    with pytest.raises(
        TransferError, match="what arrived of set 'plain' does not have the checksum that OpenML states"
    ):
        load_source(config("plain"))
    assert not (working_folder / "state" / "store" / "openml").exists()
    assert list((working_folder / "state").rglob("*.arff*")) == []


def test_what_openml_warns_about_is_told(openml):
    told: list[str] = []
    load_source(config("old"), tell=told.append)
    (sentence,) = told
    assert sentence.startswith("data set old: Version 1 of dataset old is inactive")
