"""Sets of OpenML: scikit-learn keeps and checks them, and reads them again without a network."""

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

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DatasetConfig
from learnkernels.tasks.data import dataset, ingest, locations
from tests.refusals import require_refusals
from tests.sources import require_equal

ADDRESS = "https://www.openml.org/api/v1/json/"
KINDS = {
    "letter": "{a,b,c}",
    "grade": "{low,high}",
    "digit": "{0,1,2}",
    "words": "{'a b','c d'}",
    "part": "STRING",
}
"""Types of columns in the words of ARFF; all others are numeric."""

SETS = {
    "plain": (
        "width digit part grade",
        "grade",
        "4,0,x,low\n5.5,1,y,high\n6,2,x,low\n-7,1,x,high\n4,0,x,low\n",
    ),
    "letters": (
        "width letter digit grade",
        "grade",
        "4,a,1,low\n5.5,b,?,high\n6,c,0,low\n1,c,0,high\n",
    ),
    "words": ("width words", "words", "4,'a b'\n5.5,'c d'\n"),
    "two": ("width here there", "here there", "4,1.5,1\n5,2.5,2\n6,3.5,4\n"),
    "sparse": ("width here", "here", "{0 1}\n"),
    "old": ("width grade", "grade", "4,low\n5,high\n"),
}
"""For each set its columns, its targets and its rows."""


def answers(name: str, columns: str, targets: str, rows: str) -> dict[str, Any]:
    """Return what OpenML answers about a set, by path; its identifier is its name."""
    head, features = f"@RELATION {name}\n", []
    for i, column in enumerate(columns.split()):
        kind = KINDS.get(column, "NUMERIC")
        head += f"@ATTRIBUTE {column} {kind}\n"
        about = {
            "index": str(i),
            "name": column,
            "is_target": str(column in targets.split()).lower(),
        }
        about |= (
            {"data_type": "nominal", "nominal_value": kind[1:-1].split(",")}
            if "{" in kind
            else {}
        )
        constant = {
            "is_ignore": "false",
            "is_row_identifier": "false",
            "number_of_missing_values": "0",
        }
        features.append({"data_type": kind.lower()} | about | constant)
    table = f"{head}@DATA\n{rows}"
    status, kind = (
        "deactivated" if name == "old" else "active",
        "Sparse_ARFF" if name == "sparse" else "ARFF",
    )
    about = {
        "id": name,
        "name": name,
        "version": "1",
        "status": status,
        "format": kind,
        "description": "made up",
    }
    about |= {
        "url": f"{ADDRESS}download/{name}",
        "md5_checksum": hashlib.md5(table.encode()).hexdigest(),
    }
    qualities = [{"name": "NumberOfInstances", "value": str(rows.count("\n"))}]
    found = [{"did": name, "version": 1, "status": "active"}]
    return {
        f"data/list/data_name/{name}/limit/2/data_version/1": {
            "data": {"dataset": found}
        },
        f"data/{name}": {"data_set_description": about},
        f"data/features/{name}": {"data_features": {"feature": features}},
        f"data/qualities/{name}": {"data_qualities": {"quality": qualities}},
        f"download/{name}": table,
    }


ANSWERS = {
    path: answer
    for name, about in SETS.items()
    for path, answer in answers(name, *about).items()
}


class Handler(BaseHTTPRequestHandler):
    """Answers what scikit-learn asks OpenML, in OpenML's words."""

    def do_GET(self):
        path = self.path.removeprefix("/")
        self.server.asked.append(path)
        content = ANSWERS.get(path, {"error": {"code": "372", "message": "No results"}})
        spoiled = self.server.spoiled and isinstance(content, str)
        text = (
            json.dumps(content).replace(ADDRESS, self.server.address)
            if isinstance(content, dict)
            else content
        )
        body = (text.replace("4", "9") if spoiled else text).encode()
        self.send_response(200 if path in ANSWERS else 412)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object):
        pass


def direct(
    monkeypatch: pytest.MonkeyPatch, address: str, before: str = ADDRESS
) -> None:
    """Let scikit-learn ask another server."""
    for name in ("_SEARCH_NAME", "_DATA_INFO", "_DATA_FEATURES", "_DATA_QUALITIES"):
        monkeypatch.setattr(
            _openml, name, getattr(_openml, name).replace(before, address)
        )


@pytest.fixture
def openml(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[ThreadingHTTPServer]:
    """A server on loopback that scikit-learn takes for OpenML, and an empty store."""
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path / "state"))
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.address, server.asked, server.spoiled = (
            f"http://127.0.0.1:{server.server_port}/",
            [],
            False,
        )
        thread = threading.Thread(
            target=server.serve_forever, args=(0.02,), daemon=True
        )
        thread.start()
        direct(monkeypatch, server.address)
        yield server
        server.shutdown()
        thread.join()


def load(
    name: str, tell: Callable[[str], object] = warnings.warn, **keys: object
) -> dataset.Dataset:
    given = {
        "source": "openml",
        "name": name,
        "version": 1,
        "drop": ["part"] if name.lower() == "plain" else [],
    }
    return ingest.load_source(DatasetConfig.of(given | keys), tell=tell)


def test_a_set_is_fetched_once_and_read_from_the_store_afterwards(
    openml: ThreadingHTTPServer,
):
    first = load("Plain")
    np.testing.assert_array_equal(first.X, [[4, 0], [5.5, 1], [6, 2], [-7, 1], [4, 0]])
    assert (first.features, first.target.classes) == (
        ("width", "digit"),
        ("high", "low"),
    )
    assert [first.target.classes[value] for value in first.target.values] == [
        "low",
        "high",
        "low",
        "high",
        "low",
    ]
    assert sum("download" in path for path in openml.asked) == 1
    asked = len(openml.asked)
    again = load("plain")
    require_equal(again, first)
    np.testing.assert_array_equal(again.X, first.X)
    other = load("plain", drop=["part", "grade"], target="width", task="regression")
    np.testing.assert_array_equal(other.target.values, first.X[:, 0])
    # Rows are chosen as from a file.
    distinct = load(
        "plain", drop=[], where={"part": "x", "target": ["low", "high"]}, distinct=True
    )
    np.testing.assert_array_equal(distinct.X, [[4, 0], [6, 2], [-7, 1]])
    low = load(
        "plain",
        drop=[],
        where={"part": "x", "grade": "low"},
        target="width",
        task="regression",
    )
    assert low.features == ("digit",)
    # Weights of zero leave out rows.
    marked = load("plain", drop=[], weights="digit", groups="part", test={"part": "y"})
    assert (marked.features, marked.X[:, 0].tolist()) == (("width",), [5.5, 6, -7])
    assert (marked.weights.tolist(), marked.held_out.tolist()) == (
        [0.75, 1.5, 0.75],
        [True, False, False],
    )
    assert marked.groups[0] != marked.groups[1] == marked.groups[2]
    assert len(openml.asked) == asked


def test_categories_are_features_or_dropped_or_a_target_without_quotes_and_warnings_are_told(
    openml,
):
    assert {"letter=a", "letter=b"} <= set(load("letters").features)
    np.testing.assert_array_equal(
        load("letters", drop=["letter"], missing="drop").X, [[4, 1], [6, 0], [1, 0]]
    )
    assert load("words").target.classes == ("a b", "c d")
    one_of_two = load("two", target="there", task="regression")
    assert one_of_two.features == ("width", "here")
    np.testing.assert_array_equal(one_of_two.target.values, [1, 2, 4])
    told: list[str] = []
    load("old", told.append)
    (sentence,) = told
    assert sentence.startswith("data set old: Version 1 of dataset old is inactive")


def table_of(state: Path, name: str) -> Path:
    """Return the file in which scikit-learn keeps the rows of a set."""
    (path,) = (state / "openml").rglob(f"download/{name}.gz")
    return path


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[:60] + bytes([whole[60] ^ 1]) + whole[61:],
        lambda whole: whole[:-9],
        lambda whole: b"",
    ],
    ids=["changed", "cut", "empty"],
)
def test_a_damaged_copy_is_replaced(openml, tmp_path, damage):
    first = load("plain")
    table = table_of(tmp_path / "state", "plain")
    table.write_bytes(damage(table.read_bytes()))
    told: list[str] = []
    again = load("plain", told.append)
    require_equal(again, first)
    np.testing.assert_array_equal(again.X, first.X)
    load("plain", told.append)
    (sentence,) = told
    assert sentence.startswith("data set plain: Invalid cache, redownloading file to ")


@pytest.mark.parametrize("kept", [False, True])
def test_without_a_network_one_sentence_says_what_to_do(
    openml, monkeypatch, tmp_path, kept
):
    if kept:
        load("plain")
        table_of(tmp_path / "state", "plain").write_bytes(b"damaged")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        direct(
            monkeypatch, f"http://127.0.0.1:{free.getsockname()[1]}/", openml.address
        )
        openml.shutdown()
        openml.server_close()
    with pytest.raises(locations.TransferError) as caught:
        load("plain", label="mine")
    sentence = str(caught.value)
    assert (
        f"data set mine: {tmp_path / 'state' / 'openml'} has no copy of set 'plain', version 1, and"
        in sentence
    )
    assert "OpenML cannot be reached (Connection refused); " in sentence
    assert sentence.endswith(
        "start again with a network, or give the set as a file with 'source: file'."
    )
    assert "\n" not in sentence


def test_a_set_that_does_not_fit_gets_one_sentence(openml: ThreadingHTTPServer):
    of = "of OpenML"
    refused: list[tuple[str, dict[str, object], str]] = [
        (
            "nothing",
            {},
            "data set nothing: OpenML has no set 'nothing' of version 1; correct 'name' or 'version'",
        ),
        ("plain", {"version": 7}, "OpenML has no set 'plain' of version 7"),
        (
            "two",
            {},
            f"set 'two' {of} has the targets here, there; name one column with 'target'",
        ),
        (
            "two",
            {"target": "gone"},
            f"target 'gone' is not a column of set 'two' {of}; it has width, here, there",
        ),
        (
            "sparse",
            {},
            f"set 'sparse' {of} is sparse, which is not supported; give it as a LIBSVM file",
        ),
    ]
    require_refusals(
        ((partial(load, name, **keys), sentence) for name, keys, sentence in refused),
        error=InputError,
    )


def test_a_download_with_another_checksum_is_refused_and_not_used_later(
    openml: ThreadingHTTPServer,
):
    openml.spoiled = True
    with pytest.raises(
        locations.TransferError,
        match="set 'plain' does not have the checksum that OpenML states",
    ):
        load("plain")
    openml.spoiled = False
    np.testing.assert_array_equal(load("plain", str).X[:, 0], [4, 5.5, 6, -7, 4])
