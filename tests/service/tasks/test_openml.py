"""Sets of OpenML: what scikit-learn fetches is kept, checked and read again without a network."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import _openml

from learnkernels.conf.schema import DatasetConfig
from learnkernels.tasks.data.dataset import Dataset
from learnkernels.tasks.data.ingest import load_source
from learnkernels.tasks.data.locations import TransferError
from tests.sources import require_equal, require_refusals

NOMINAL = {"letter": ["a", "b", "c"], "grade": ["low", "high"], "digit": ["0", "1", "2"], "words": ["'a b'", "'c d'"]}

SETS: dict[str, tuple[dict[str, str], tuple[str, ...], str]] = {
    "plain": (
        {"width": "numeric", "digit": "nominal", "part": "string", "grade": "nominal"},
        ("grade",),
        "4,0,x,low\n5.5,1,y,high\n6,2,x,low\n-7,1,x,high\n4,0,x,low\n",
    ),
    "letters": (
        {"width": "numeric", "letter": "nominal", "digit": "nominal", "grade": "nominal"},
        ("grade",),
        "4,a,1,low\n5.5,b,?,high\n6,c,0,low\n1,c,0,high\n",
    ),
    "words": ({"width": "numeric", "words": "nominal"}, ("words",), "4,'a b'\n5.5,'c d'\n"),
    "two": (dict.fromkeys(["width", "here", "there"], "numeric"), ("here", "there"), "4,1.5,1\n5,2.5,2\n6,3.5,4\n"),
    "sparse": ({"width": "numeric", "here": "numeric"}, ("here",), "{0 1}\n"),
    "old": ({"width": "numeric", "grade": "nominal"}, ("grade",), "4,low\n5,high\n"),
}
"""For each set its columns, its targets and its rows."""

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
            "status": "deactivated" if name == "old" else "active",
            "format": "Sparse_ARFF" if name == "sparse" else "ARFF",
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
    columns, targets, _ = SETS[name]
    found = []
    for i, (column, kind) in enumerate(columns.items()):
        about = {"index": str(i), "name": column, "data_type": kind, "is_target": str(column in targets).lower()}
        about |= {"is_ignore": "false", "is_row_identifier": "false", "number_of_missing_values": "0"}
        found.append(about | ({"nominal_value": NOMINAL[column]} if kind == "nominal" else {}))
    return {"data_features": {"feature": found}}


def qualities(name: str) -> dict[str, Any]:
    return {"data_qualities": {"quality": [{"name": "NumberOfInstances", "value": str(SETS[name][2].count("\n"))}]}}


def arff(name: str, spoiled: bool) -> bytes:
    columns, _, rows = SETS[name]
    lines = [f"@RELATION {name}"]
    for column, kind in columns.items():
        values = "{" + ",".join(NOMINAL[column]) + "}" if kind == "nominal" else kind.upper()
        lines.append(f"@ATTRIBUTE {column} {values}")
    text = "\n".join([*lines, "@DATA", rows])
    return (text.replace("4", "9") if spoiled else text).encode()


@pytest.fixture
def openml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    """A server on loopback that scikit-learn takes for OpenML, and an empty store."""
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path / "state"))
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


def load(name: str, tell: Callable[[str], object] = warnings.warn, **keys: object) -> Dataset:
    given = {"source": "openml", "name": name, "version": 1, "drop": ["part"] if name.lower() == "plain" else []}
    return load_source(DatasetConfig.model_validate(given | keys), tell=tell)


def test_a_set_is_fetched_once_and_read_from_the_store_afterwards(openml, monkeypatch: pytest.MonkeyPatch):
    first = load("Plain")
    np.testing.assert_array_equal(first.X, [[4, 0], [5.5, 1], [6, 2], [-7, 1], [4, 0]])
    assert (first.features, first.target.classes) == (("width", "digit"), ("high", "low"))
    assert [first.target.classes[value] for value in first.target.values] == ["low", "high", "low", "high", "low"]
    assert sum("download" in path for path in openml.asked) == 1
    asked = len(openml.asked)
    unreachable(monkeypatch)
    again = load("plain")
    require_equal(again, first)
    np.testing.assert_array_equal(again.X, first.X)
    other = load("plain", drop=["part", "grade"], target="width", task="regression")
    np.testing.assert_array_equal(other.target.values, first.X[:, 0])
    # Rows are chosen as from a file.
    distinct = load("plain", drop=[], where={"part": "x", "target": ["low", "high"]}, distinct=True)
    np.testing.assert_array_equal(distinct.X, [[4, 0], [6, 2], [-7, 1]])
    low = load("plain", drop=[], where={"part": "x", "grade": "low"}, target="width", task="regression")
    assert low.features == ("digit",)
    assert len(openml.asked) == asked


def test_categories_are_features_or_dropped_or_a_target_without_quotes_and_a_warning_is_told(openml):
    assert {"letter=a", "letter=b"} <= set(load("letters").features)
    np.testing.assert_array_equal(load("letters", drop=["letter"], missing="drop").X, [[4, 1], [6, 0], [1, 0]])
    assert load("words").target.classes == ("a b", "c d")
    one_of_two = load("two", target="there", task="regression")
    assert one_of_two.features == ("width", "here")
    np.testing.assert_array_equal(one_of_two.target.values, [1, 2, 4])
    told: list[str] = []
    load("old", told.append)
    (sentence,) = told
    assert sentence.startswith("data set old: Version 1 of dataset old is inactive")


@pytest.mark.parametrize("fault", ["changed", "cut", "no contents", "empty folder"])
def test_a_damaged_copy_is_told_and_fetched_anew(openml, tmp_path: Path, fault: str):
    first = load("plain")
    (folder,) = (tmp_path / "state" / "store" / "openml").iterdir()
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
    again = load("plain", told.append)
    require_equal(again, first)
    np.testing.assert_array_equal(again.X, first.X)
    (sentence,) = told
    assert sentence.startswith(f"{folder}: ")
    assert sentence.endswith("and is made again.")
    assert table.read_bytes() == whole
    told.clear()
    load("plain", told.append)
    assert told == []


@pytest.mark.parametrize("kept", [False, True])
def test_without_a_network_one_sentence_says_what_to_do(openml, monkeypatch, tmp_path: Path, kept: bool):
    if kept:
        load("plain")
        (table,) = (tmp_path / "state" / "store" / "openml").glob("*/data.parquet")
        table.write_bytes(b"damaged")
    unreachable(monkeypatch)
    told: list[str] = []
    with pytest.raises(TransferError) as caught:
        load("plain", told.append, label="mine")
    sentence = str(caught.value)
    assert "data set mine: the copy of set 'plain', version 1, in " in sentence
    lacking = "is damaged" if kept else "is missing"
    assert f"{lacking}, and OpenML cannot be asked for it (Connection refused); " in sentence
    assert sentence.endswith("start again with a network, or give the set as a file with 'source: file'.")
    assert "\n" not in sentence
    assert len(told) == kept


def test_a_set_that_does_not_fit_gets_one_sentence(openml):
    of = "of OpenML"
    refused: list[tuple[str, dict[str, object], str]] = [
        ("nothing", {}, "data set nothing: OpenML has no set 'nothing' of version 1; correct 'name' or 'version'"),
        ("plain", {"version": 7}, "OpenML has no set 'plain' of version 7"),
        ("two", {}, f"set 'two' {of} has the targets here, there; name one column with 'target'"),
        ("two", {"target": "gone"}, f"target 'gone' is not a column of set 'two' {of}; it has width, here, there"),
        ("sparse", {}, f"set 'sparse' {of} is sparse, which is not supported; give it as a LIBSVM file"),
    ]
    require_refusals((partial(load, name, **keys), sentence) for name, keys, sentence in refused)


def test_what_arrives_with_another_checksum_is_refused_and_not_kept(openml, tmp_path: Path):
    openml.spoiled = True
    said = "what arrived of set 'plain' does not have the checksum that OpenML states"
    with pytest.raises(TransferError, match=said):
        load("plain")
    assert not (tmp_path / "state" / "store" / "openml").exists()
    assert list((tmp_path / "state").rglob("*.arff*")) == []
