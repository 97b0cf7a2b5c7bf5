"""The commands that are tried, the folder that they work in, and the numbers that each must give."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

COMMANDS: dict[str, tuple[str, ...]] = {
    "compare": ("compare", "conf.yaml"),
    "compare on Dask": ("compare", "dask.yaml"),
    "gram": ("gram", "conf.yaml", "--output", "grams"),
    "train": ("train", "conf.yaml", "--model", "another"),
    "promote": ("promote", "model"),
    "predict": (
        *(
            "predict",
            "--model",
            "model/1",
            "--input",
            "new.parquet",
            "--output",
            "scored.parquet",
            "--id",
            "key",
        ),
    ),
    "papers": ("papers", "jmlr2012-small", "--quick", "--items", "items"),
    "deploy": ("deploy", "conf.yaml", "--model", "model", "--cron", "0 3 * * *"),
    "clean": ("clean", "--yes", "--keep-days", "0.00001"),
    "ui": ("ui",),
    "up": ("up",),
}
SERVERS = ("ui", "up")
"""Commands that go on until they are stopped."""

FROM_NOTHING = (
    "compare",
    "compare on Dask",
    "gram",
    "train",
    "papers",
    "clean",
    "ui",
    "up",
)
"""Commands that need no registered model and no server."""

PREPARATION = (
    ("train", "other.yaml", "--model", "model"),
    ("promote", "model"),
    ("train", "conf.yaml", "--model", "model"),
    ("gram", "conf.yaml", "--output", "earlier"),
)
"""What is run before: a champion and its challenger, and matrices."""

TIMES = ("seconds_weights", "seconds_fit", "seconds_pass", "stored")

CONF: dict[str, Any] = {
    "name": "small",
    "datasets": [
        {"source": "file", "path": "rows.parquet", "target": "y", "scale": "standard"}
    ],
    "kernels": [{"family": "gaussian", "gammas": {"base": 2, "from": -4, "to": 0}}],
    "learners": ["unif", "alignf"],
    "protocol": {"folds": 3, "grid": {"from": -2, "to": 2}},
    "dask": {"workers": 0},
}
OTHER = {"kernels": [{"family": "gaussian", "gammas": [0.001]}], "learners": ["unif"]}
DASK = {"name": "spread", "dask": {"workers": 1}}

ITEM: dict[str, Any] = {
    "name": "jmlr2012-small",
    "paper": "JMLR 2012",
    "where": "Table 1",
    "title": "Sixty rows",
    "setup": "Three folds.",
    "study": {
        "kind": "comparison",
        "shared": {key: CONF[key] for key in ("kernels", "protocol", "dask")},
        "parts": [{"datasets": [{"use": "rows"}], "learners": CONF["learners"]}],
    },
    "claims": [
        {
            "says": "alignf is better aligned.",
            "better": "alignf",
            "than": "unif",
            "measure": "alignment",
        }
    ],
    "quick": {
        "datasets": ["rows"],
        "checks": [{"dataset": "rows", "learner": "unif", "error": [0, 10]}],
    },
}
CATALOGUE = {
    "data_dir": "no-such-folder",
    "sets": {"rows": {"file": {"source": "synthetic", "name": "relevance"}}},
}
SYNTHETIC = {
    "source": "synthetic",
    "name": "relevance",
    "params": {"rows": 60, "features": 3},
}


def rows(n: int, seed: int) -> pa.Table:
    """Return rows whose target needs a bandwidth that a wide Gaussian does not have."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)
    return pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y})


def write_inputs(work: Path) -> None:
    """Write configurations and data of a new user."""
    pq.write_table(rows(60, 0), work / "rows.parquet")
    new = rows(40, 1).drop_columns(["y"])
    pq.write_table(
        new.append_column("key", pa.array([f"k{i}" for i in range(40)])),
        work / "new.parquet",
    )
    for name, config in {
        "conf": CONF,
        "dask": CONF | DASK,
        "other": CONF | OTHER,
    }.items():
        (work / f"{name}.yaml").write_text(
            yaml.safe_dump(config, sort_keys=False), encoding="utf-8"
        )
    (work / "items").mkdir()
    catalogue = CATALOGUE | {"sets": {"rows": {"file": SYNTHETIC}}}
    (work / "items" / "datasets.yaml").write_text(
        yaml.safe_dump(catalogue), encoding="utf-8"
    )
    (work / "items" / f"{ITEM['name']}.yaml").write_text(
        yaml.safe_dump(ITEM), encoding="utf-8"
    )


def numbers(command: str, work: Path, printed: str) -> dict[str, str]:
    """Return digests of the numbers that a command has left behind, but for how long things took."""
    if command in ("compare", "compare on Dask"):
        return {
            "folds": _of_table(_results(work, printed) / "folds.parquet", without=TIMES)
        }
    if command == "gram":
        return {
            path.name: _of(path.read_bytes())
            for path in sorted((work / "grams").rglob("*.npy"))
        }
    if command == "train":
        return {
            "model": _of((_results(work, printed) / "model.safetensors").read_bytes())
        }
    if command == "promote":
        decision = json.loads(
            (_results(work, printed) / "decision.json").read_text(encoding="utf-8")
        )
        measured = {
            name: decision[name]["errors"] for name in ("challenger", "defender")
        }
        contest = {
            name: _of(json.dumps(errors).encode())
            for name, errors in measured.items()
            if errors
        }
        return {
            "champion": str(decision["champion"])
        } | contest  # what won before has no contest any more
    if command == "predict":
        return {"scores": _of_table(work / "scored.parquet")}
    if command == "papers":
        folder = work / "results" / "papers-quick" / ITEM["name"]
        return {
            path.name: _of_table(path, without=TIMES)
            for path in sorted(folder.rglob("folds.parquet"))
        }
    return {}


def differing(found: dict[str, str], expected: dict[str, str]) -> list[str]:
    """Return the names of the numbers that are not as expected, or missing."""
    contest = {"challenger", "defender"} & set(expected)
    required = set(expected) - (contest if not contest & set(found) else set())
    return sorted(
        name for name in required | set(found) if found.get(name) != expected.get(name)
    )


def _results(work: Path, printed: str) -> Path:
    return work / re.findall(r"^results: +(.+)$", printed, re.MULTILINE)[-1]


def _of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _of_table(path: Path, without: Iterable[str] = ()) -> str:
    """Return the digest of the values of a table, to the last bit."""
    table = pq.read_table(path)
    kept = table.select(
        [name for name in table.column_names if name not in set(without)]
    )
    return _of(repr(kept.to_pylist()).encode())
