"""Time predictions of new rows, in turns with another version of this project and
beside scikit-learn.

Fits take place before the clock starts. With ``--before FOLDER``, a checkout of another
version, a second process imports that one; both are asked in turns for the same case,
and `ratio` is the median over the turns of its seconds in units of this version's,
`cores` the same of the seconds of all cores, which other work on the machine changes
less. Of scikit-learn and of single precision both are the time of this version's double
precision in units of theirs. `difference` is the largest one of both versions'
predictions, or of single precision's to double's, in units of the largest prediction.
One row is predicted some hundred times a turn, of which the median counts.

With ``--boosting``, default estimators are compared with boosted trees, CatBoost among
them if it is installed, by CPU seconds of predictions: of rows of numbers, and of a
table with dates and categories. Set the environment variables ``OMP_NUM_THREADS``,
``OPENBLAS_NUM_THREADS`` and ``NUMBA_NUM_THREADS`` to 1 for one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

REPEATS = 7
ONE = 200
COLUMNS = ["case", "m", "n", "seconds", "ratio", "cores", "difference", "note"]
PLAIN = "scikit-learn"

Cases = dict[str, tuple[Callable[[], Any], str]]
"""By name what is timed, and a note."""


def targets(X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return two classes, five classes and numbers, all smooth in a few features."""
    f = np.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2]
    return (
        (X[:, :4].sum(axis=1) > 0).astype(int),
        np.digitize(f, [-1.0, -0.3, 0.3, 1.0]),
        f,
    )


def cases(m: int, n: int, p: int, d: int, svm_C: float = 1.0) -> Cases:
    """Return what can be timed, with fits already made."""
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.svm import SVC

    from learnkernels import (
        GaussianFamily,
        KernelLearningClassifier,
        KernelLearningRegressor,
    )
    from learnkernels import LearnedKernelTransformer as Transformer
    from learnkernels.kernels.predictors import Nystroem

    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(m, d)), rng.normal(size=(n, d))
    two, five, numbers = targets(X)
    family, gamma = GaussianFamily([2.0**-e for e in range(p, 0, -1)]), 1.0 / d
    svm = KernelLearningClassifier(
        family=family, learner="alignf", C=svm_C, predictor="svm"
    ).fit(X, two)
    pairs = KernelLearningClassifier(
        family=family, learner="alignf", C=svm_C, predictor="svm"
    ).fit(X, five)
    krr = KernelLearningRegressor(
        family=family, learner="alignf", alpha=0.1, predictor="krr"
    ).fit(X, numbers)
    landmarks = KernelLearningRegressor(
        family=family,
        learner="alignf",
        alpha=0.1,
        predictor=Nystroem(n_components=min(m, 1000)),
    )
    landmarks.fit(X, numbers)
    features = Transformer(family=family, n_components=100).fit(X, numbers)
    used = int(np.count_nonzero(svm.dual_coef_.any(axis=1)))
    found: Cases = {
        "svm": (
            lambda: svm.decision_function(new),
            f"{used} support vectors, {len(_file(svm))} bytes",
        ),
        "svm, one row": (lambda: svm.decision_function(new[:1]), ""),
        "svm, five classes": (lambda: pairs.decision_function(new), ""),
        "krr": (lambda: krr.predict(new), ""),
        "krr, one row": (lambda: krr.predict(new[:1]), ""),
        "landmarks": (lambda: landmarks.predict(new), f"{min(m, 1000)} landmarks"),
        "features": (lambda: features.transform(new), "100 landmarks"),
    }
    if hasattr(svm, "precision"):
        for name, model in ("svm, float32", svm), ("krr, float32", krr):
            found[name] = (_single(model, new), "")
    machine, ridge = (
        SVC(gamma=gamma, C=svm_C).fit(X, two),
        KernelRidge(kernel="rbf", gamma=gamma, alpha=0.1),
    )
    ridge.fit(X, numbers)
    note = f"{len(machine.support_)} support vectors"
    found[f"{PLAIN}, svm"] = (lambda: machine.decision_function(new), note)
    found[f"{PLAIN}, svm, one row"] = (lambda: machine.decision_function(new[:1]), note)
    found[f"{PLAIN}, krr"] = (lambda: ridge.predict(new), "")
    found[f"{PLAIN}, krr, one row"] = (lambda: ridge.predict(new[:1]), "")
    return found


def _single(model: Any, new: np.ndarray) -> Callable[[], Any]:
    """Return what predicts in single precision."""

    def predict() -> Any:
        model.set_params(precision="float32")
        try:
            return (
                model.decision_function(new)
                if hasattr(model, "classes_")
                else model.predict(new)
            )
        finally:
            model.set_params(precision="float64")

    return predict


def numbers_and_target(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of sixteen numbers, and a smooth target of a few of them with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 16))
    _, _, signal = targets(X)
    return X, signal + 0.3 * rng.normal(size=n)


def table_and_target(n: int, seed: int) -> tuple[Any, np.ndarray]:
    """Return a table of two dates, five categories of 5 to 200 levels and ten numbers, and a target of all kinds."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    effects = np.random.default_rng(0)  # the same for every seed
    first_day = np.datetime64("2015-01-01") + rng.integers(0, 1500, n).astype(
        "timedelta64[D]"
    )
    columns: dict[str, Any] = {
        "arrival": first_day,
        "departure": first_day + rng.integers(1, 30, n).astype("timedelta64[D]"),
    }
    day_of_year = pd.DatetimeIndex(first_day).day_of_year.to_numpy()
    y = np.sin(2 * np.pi * day_of_year / 365) + 0.3 * rng.normal(size=n)
    for n_levels in (5, 12, 40, 100, 200):
        codes = np.minimum(rng.gamma(1.0, n_levels / 4, n).astype(int), n_levels - 1)
        columns[f"category of {n_levels}"] = np.array(
            [f"level {code}" for code in range(n_levels)]
        )[codes]
        y += 0.5 * effects.normal(size=n_levels)[codes]
    for position in range(10):
        columns[f"number {position}"] = rng.normal(size=n)
    y += columns["number 0"] * columns["number 1"] + np.sin(columns["number 2"])
    return pd.DataFrame(columns), y


def with_plain_columns(X: Any) -> Any:
    """Return a table with dates as days, as boosted trees read no dates; other rows unchanged."""
    if isinstance(X, np.ndarray):
        return X
    days = {name: X[name].astype("int64") for name in X if X[name].dtype.kind == "M"}
    return X.assign(**days)


def boosted_trees(X: Any, y: np.ndarray) -> dict[str, Callable[[Any], Any]]:
    """Return functions that predict by boosted trees fitted with one thread, by name; CatBoost if it is installed."""
    import pandas as pd
    from sklearn.ensemble import HistGradientBoostingRegressor

    X = with_plain_columns(X)
    categories = []
    if not isinstance(X, np.ndarray):
        categories = [name for name in X if not pd.api.types.is_numeric_dtype(X[name])]
    types = {name: pd.CategoricalDtype(sorted(X[name].unique())) for name in categories}

    def with_types(rows: Any) -> Any:
        known = {
            name: rows[name].where(rows[name].isin(kind.categories)).astype(kind)
            for name, kind in types.items()
        }
        return rows.assign(**known) if known else rows

    histograms = HistGradientBoostingRegressor(categorical_features="from_dtype").fit(
        with_types(X), y
    )
    predictors = {
        "HistGradientBoosting": lambda rows: histograms.predict(
            with_types(with_plain_columns(rows))
        )
    }
    try:
        from catboost import CatBoostRegressor
    except ImportError:
        return predictors
    trees = CatBoostRegressor(thread_count=1, verbose=0, allow_writing_files=False)
    trees.fit(X, y, cat_features=categories)
    predictors["CatBoost"] = lambda rows: trees.predict(
        with_plain_columns(rows), thread_count=1
    )
    return predictors


def compared_with_boosting(
    sizes: tuple[int, ...], repeats: int
) -> list[dict[str, Any]]:
    """Return CPU seconds of predictions of 1,000 rows and of one row by default estimators and boosted trees."""
    from learnkernels import KernelLearningRegressor

    rows: list[dict[str, Any]] = []
    for name, drawn in (("numbers", numbers_and_target), ("table", table_and_target)):
        for m in sizes:
            X, y = drawn(m, 0)
            new, _ = drawn(1000, 1)
            predictors = {
                "learnkernels": KernelLearningRegressor().fit(X, y).predict,
                **boosted_trees(X, y),
            }
            for n in (len(new), 1):
                part = new[:n]
                _add_times(
                    rows, {"case": name, "m": m, "n": n}, predictors, part, repeats
                )
    return rows


def _add_times(
    rows: list[dict[str, Any]],
    case: dict[str, Any],
    predictors: dict[str, Callable[[Any], Any]],
    new: Any,
    repeats: int,
) -> None:
    """Add a row per predictor, with the median of its CPU seconds and its share of those of the first predictor."""
    times: dict[str, list[float]] = {name: [] for name in predictors}
    for _ in range(repeats):
        for name, predict in predictors.items():
            _, cores = seconds(lambda predict=predict: predict(new), 1)
            times[name].append(cores)
    first = statistics.median(next(iter(times.values())))
    for name, taken in times.items():
        median = statistics.median(taken)
        rows.append({**case, "note": name, "seconds": median, "ratio": first / median})


def _file(estimator: Any) -> bytes:
    """Return the file of a model, as training writes it."""
    from learnkernels.kernels.estimators import keep_support
    from learnkernels.kernels.files import to_bytes
    from learnkernels.kernels.model import Model

    d = estimator.n_features_in_
    return to_bytes(
        Model(
            keep_support(estimator),
            tuple(f"x{j}" for j in range(d)),
            np.zeros(d),
            np.ones(d),
            {},
        )
    )


def seconds(work: Callable[[], Any], times: int) -> tuple[float, float]:
    """Return the median time of some runs, by the clock and of all cores."""
    taken = []
    for _ in range(times):
        started, used = time.perf_counter(), time.process_time()
        work()
        taken.append((time.perf_counter() - started, time.process_time() - used))
    by_clock, of_cores = zip(*taken, strict=True)
    return statistics.median(by_clock), statistics.median(of_cores)


def serve(m: int, n: int, p: int, d: int, folder: Path) -> None:
    """Fit, name the cases, and time each that a line of the input asks for; predictions are left in a folder."""
    found = cases(m, n, p, d)
    for name, (work, _) in found.items():
        np.save(folder / f"{name}.npy", work())
    print(json.dumps({name: note for name, (_, note) in found.items()}), flush=True)  # noqa: T201
    for line in sys.stdin:
        name = line.strip()
        print(*seconds(found[name][0], ONE if "one row" in name else 1), flush=True)  # noqa: T201


class Version:
    """A process that has imported one version."""

    def __init__(self, root: Path, options: argparse.Namespace, folder: Path) -> None:
        sizes = [
            f"--{name}={getattr(options, name)}"
            for name in ("rows", "new", "kernels", "features")
        ]
        command = [
            sys.executable,
            str(Path(__file__).resolve()),
            "--serve",
            str(folder),
            *sizes,
        ]
        folder.mkdir()
        self.folder = folder
        self._process = subprocess.Popen(
            command,
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.notes: dict[str, str] = json.loads(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"the process of {self.folder.name} ended, with status {self._process.wait()}."
            )
        return line

    def seconds(self, case: str) -> np.ndarray:
        """Return what a case takes now, by the clock and of all cores."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{case}\n")
        self._process.stdin.flush()
        return np.array([float(number) for number in self._line().split()])

    def predictions(self, case: str) -> np.ndarray:
        """Return what came of a case."""
        values: np.ndarray = np.load(self.folder / f"{case}.npy")
        return values

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measured(
    now: Version, before: Version | None, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Return a row a case."""
    rows = []
    for case, note in now.notes.items():
        ours, ratios = [], []
        beside = case.removesuffix(", float32").removeprefix(f"{PLAIN}, ")
        other = (
            before
            if before is not None and case in before.notes and case == beside
            else None
        )
        for _ in range(options.repeats):
            ours.append(now.seconds(case))
            if other is not None:
                ratios.append(other.seconds(case) / ours[-1])
            elif beside != case:
                ratios.append(now.seconds(beside) / ours[-1])
        compared = (
            other.predictions(case) if other is not None else now.predictions(beside)
        )
        values = now.predictions(case)
        comparable = case != "features" and not case.startswith(PLAIN)
        difference = (
            float(np.abs(values - compared).max() / np.abs(compared).max())
            if comparable
            else None
        )
        ratio, cores = np.median(ratios, axis=0).tolist() if ratios else (None, None)
        told = (
            note
            if other is None or other.notes[case] == note
            else f"{note} (before: {other.notes[case]})"
        )
        row = {
            "case": case,
            "m": options.rows,
            "n": 1 if "one row" in case else options.new,
            "note": told,
        }
        rows.append(
            {
                **row,
                "seconds": float(np.median(ours, axis=0)[0]),
                "ratio": ratio,
                "cores": cores,
            }
        )
        rows[-1]["difference"] = difference
    return rows


def main() -> None:
    """Read the command line, print the table and store it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--before", type=Path, help="a checkout of another version to compare with"
    )
    parser.add_argument("--rows", type=int, default=6000, help="training rows")
    parser.add_argument("--new", type=int, default=20_000, help="new rows")
    parser.add_argument("--kernels", type=int, default=10, help="base kernels")
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument(
        "--fast", action="store_true", help="tiny sizes, to see that it runs"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("results/benchmarks/predictions.parquet")
    )
    parser.add_argument(
        "--boosting",
        action="store_true",
        help="compare default estimators with boosted trees",
    )
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(
            options.rows, options.new, options.kernels, options.features, options.serve
        )
        return
    if options.fast:
        options.rows, options.new, options.repeats = 200, 300, 2
    if options.boosting:
        sizes = (options.rows,) if options.fast else (500, 4000)
        write_rows(compared_with_boosting(sizes, options.repeats), options.output)
        return
    with tempfile.TemporaryDirectory() as folder:
        now = Version(
            Path(__file__).resolve().parents[2], options, Path(folder) / "now"
        )
        before = (
            Version(options.before.resolve(), options, Path(folder) / "before")
            if options.before
            else None
        )
        rows = measured(now, before, options)
        for version in (now, before):
            if version is not None:
                version.close()
    write_rows(rows, options.output)


def write_rows(rows: list[dict[str, Any]], output: Path) -> None:
    """Print the table and store it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    print(" | ".join(COLUMNS))  # noqa: T201
    for row in rows:
        cells = [row.get(key) for key in COLUMNS]
        print(  # noqa: T201
            " | ".join(
                f"{c:.3g}" if isinstance(c, float) else str(c or "") for c in cells
            )
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), output)


if __name__ == "__main__":
    main()
