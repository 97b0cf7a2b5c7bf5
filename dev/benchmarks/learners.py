"""Time one-stage learners against the plain predictors they contain, in one run on one
machine, and count iterations.

A solve is timed with the base kernels in memory, as the predictor is with its kernel;
figures are medians of REPEATS runs after a warm-up. `ratio` is the time in units of the
predictor's fit beside it. Iterations are the median over the sets of JMLR 2012, Table
2, where their folder is given, and over the generated problem otherwise; `matrices` is
the most memory that a solve takes beyond the p base kernels, in matrices of m by m.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC

from dev.benchmarks.alignment_statistics import REPEATS, problem, timed
from dev.benchmarks.history import tell
from dev.benchmarks.own_process import in_own_process, peak_gib
from learnkernels import FeatureFamily, GaussianFamily, gram_statistics
from learnkernels.kernels.engine.operators import (
    FeatureGrams,
    GramOperator,
    StackedGrams,
    TiledGrams,
    gram_operator,
)
from learnkernels.kernels.engine.workers import blas_threads_for
from learnkernels.kernels.families.base import move
from learnkernels.kernels.learners import (
    CA,
    CR,
    LEARNERS,
    NKRR,
    Alignf,
    EasyMKL,
    JointLearner,
    as_learner,
)
from learnkernels.kernels.learners.base import Solution
from learnkernels.kernels.learners.norm_ball import (
    L1SVM,
    L2KRR,
    MOST_ITERATIONS,
    InnerProblem,
    solve_on_ball,
)
from learnkernels.kernels.predictors import ridge_path
from learnkernels.kernels.solvers.certificate import Certificate
from learnkernels.kernels.solvers.minimax import solve_minimax
from learnkernels.kernels.solvers.ridge import (
    RidgeProblem,
    StreamedRidge,
    on_drawn_rows,
)
from learnkernels.kernels.solvers.svm import SupportVectorProblem
from learnkernels.kernels.targets import Target
from learnkernels.tasks.data.synthetic import friedman

COLUMNS = [
    "table",
    "case",
    "data",
    "m",
    "p",
    "regularization",
    "seconds",
    "ratio",
    "iterations",
    "residual",
    "matrices",
    "apart",
    "gib",
]

TABLE_2 = {
    "kinematics": ("kin8nm.parquet", "l2-krr", None, "none", (-3, 3)),
    "ionosphere": ("ionosphere.parquet", "l2-krr", "g", "none", (-3, 3)),
    "german": ("raetsch_german.parquet", "l2-krr", None, "unit", (-4, 3)),
    "spambase": ("spambase.parquet", "l2-krr", None, "none", (-12, -7)),
    "splice": ("splice_libsvm.parquet", "l2-krr", None, "none", (-9, -3)),
}
"""File, learner, positive label, scaling and bandwidths of each set of JMLR 2012, Table 2."""

MACHINES = ("l1-svm", "lp-svm")

GAP = 1e-4
"""What is asked for of many rows."""

SCALED_ON = 4000
"""Rows of them on which the mean diagonal of base kernels is taken."""

C_VALUES = [2.0**-3, 2.0**3, 2.0**9]


def operator(
    X: np.ndarray, target: Target, gammas: list[float]
) -> tuple[GramOperator, Target]:
    """Return the base kernels in memory, of mean diagonal one, and the target in their order."""
    family = GaussianFamily(gammas)
    stats = gram_statistics(family, X, target.Y)
    scales = stats.traces() / len(X)
    grams = gram_operator(
        family,
        move(X[stats.rows], stats.origin),
        shift=stats.shift,
        scales=scales,
        in_memory=2**40,
    )
    return grams, target.take(stats.rows)


def speed(m: int, p: int, name: str, repeats: int) -> list[dict[str, Any]]:
    """Compare a learner with the fit of its predictor on the uniform combination, at several regularizations."""
    X, y, gammas = problem(m, p, 8)
    grams, target = operator(X, Target.of(y, "classification"), gammas)
    uniform = np.full(p, 1 / p)
    K, labels = grams.combine(uniform), target.Y[:, 0]
    rows = []
    for value in C_VALUES:
        if LEARNERS[name].predictor == "svm":
            plain = {
                "SVC": lambda C=value: SVC(kernel="precomputed", C=C).fit(K, labels)
            }
        else:
            plain = {
                "KernelRidge": lambda C=value: KernelRidge(
                    kernel="precomputed", alpha=1 / C
                ).fit(K, labels),
                "ridge_path": lambda: ridge_path(K, target, C_VALUES),
            }
        # As the project runs them: BLAS has one thread on so few rows.
        with blas_threads_for(m):
            fits = {
                case: statistics.median(timed(work, repeats))
                for case, work in plain.items()
            }
            seconds = statistics.median(
                timed(lambda C=value: solve(name, grams, target, C), repeats)
            )
            tracemalloc.start()
            certificate = solve(name, grams, target, value).certificate
            extra = tracemalloc.get_traced_memory()[1] / (8 * m * m)
            tracemalloc.stop()
        unit = next(iter(fits.values()))
        first = next(iter(plain))
        fits[f"{first}, all cores"] = statistics.median(timed(plain[first], repeats))
        for case, taken in fits.items():
            rows.append(
                row(
                    "speed",
                    case,
                    "generated",
                    m,
                    p,
                    value,
                    seconds=taken,
                    ratio=taken / unit,
                )
            )
        measured = {"seconds": seconds, "ratio": seconds / unit, "matrices": extra}
        found = {"iterations": certificate.iterations, "residual": certificate.residual}
        rows.append(row("speed", name, "generated", m, p, value, **measured, **found))
    return rows


def iterations(data_dir: Path | None, m: int) -> list[dict[str, Any]]:
    """Count the iterations of every iterative learner that serves each set, at several regularizations."""
    rows = []
    for data, (X, target, gammas) in _sets(data_dir, m).items():
        grams, training = operator(X, target, gammas)
        names = [
            name
            for name, learner in LEARNERS.items()
            if issubclass(learner, JointLearner)
            and learner not in (NKRR, EasyMKL)
            and target.task in learner.tasks
        ]
        for name in names:
            for value in C_VALUES:
                with blas_threads_for(m):
                    certificate = solve(name, grams, training, value).certificate
                found = {
                    "iterations": certificate.iterations,
                    "residual": certificate.residual,
                }
                rows.append(
                    row("iterations", name, data, len(X), len(gammas), value, **found)
                )
    return rows


def continuous(
    data_dir: Path | None, sizes: list[int], repeats: int
) -> list[dict[str, Any]]:
    """Compare the search of continuous families with alignf on a grid of twenty bandwidths, from rows to weights."""
    rows = []
    for data, (X, target) in _binary_problems(data_dir, max(sizes)).items():
        sigmas = np.linspace(
            *{"mnist": (500, 50_000), "letter": (1, 200)}.get(data, (0.5, 20)), 20
        )
        family = GaussianFamily((1 / sigmas**2).tolist())
        for m in (size for size in sizes if size <= len(X)):
            part, labels = X[:m], target.take(np.arange(m))

            def by_alignf(part: np.ndarray = part, Y: np.ndarray = labels.Y) -> Any:
                stats = gram_statistics(family, part, Y)  # noqa: B023
                return Alignf().fit_weights(stats.products(), stats.target_products())

            cases: dict[str, Callable[[], Any]] = {
                "alignf, 20 kernels": by_alignf,
            }
            searching = {
                "ca": CA(),
                "cr": CR(),
                "cr, not corrective": CR(corrective=False, max_iter=50),
            }
            for case, learner in searching.items():
                cases[case] = lambda learner=learner, part=part, labels=labels: (
                    learner.find(part, labels)
                )
            with warnings.catch_warnings(), blas_threads_for(m):
                warnings.simplefilter("ignore", ConvergenceWarning)
                taken = {
                    case: statistics.median(
                        timed(work, 1 if case.startswith("cr") else repeats)
                    )
                    for case, work in cases.items()
                }
            for case, seconds in taken.items():
                ratio = seconds / taken["alignf, 20 kernels"]
                rows.append(
                    row(
                        "continuous",
                        case,
                        data,
                        m,
                        20,
                        None,
                        seconds=seconds,
                        ratio=ratio,
                    )
                )
    return rows


def rank_one(m: int, p: int, repeats: int) -> list[dict[str, Any]]:
    """Compare learners of bounded sum with `l2-krr` on thousands of rank-one kernels, such as n-grams of texts."""
    rng = np.random.default_rng(0)
    X = sparse.random_array(
        (m, p),
        density=0.01,
        rng=rng,
        data_sampler=lambda size: rng.integers(1, 4, size),
    ).tocsr()
    target = Target.of(
        X @ (rng.normal(size=p) * (rng.random(p) < 0.05)) + rng.normal(size=m) > 0,
        "classification",
    )
    family = FeatureFamily([f"f{k}" for k in range(p)])
    stats = gram_statistics(family, X, target.Y)
    varying = np.flatnonzero(~stats.constant)
    scales = stats.traces()[varying] / m
    grams = gram_operator(
        family.subset(varying.tolist()),
        X[stats.rows],
        shift=stats.shift[varying],
        scales=scales,
    )
    target, rows = target.take(stats.rows), []
    for value in (0.125, 1.0, 8.0, 100.0):
        taken = {}
        with blas_threads_for(m):
            for name in ("l2-krr", "l1-krr", "l1-svm"):
                taken[name] = statistics.median(
                    timed(lambda n=name, C=value: solve(n, grams, target, C), repeats)
                )
        for name, seconds in taken.items():
            certificate = solve(name, grams, target, value).certificate
            found = {
                "iterations": certificate.iterations,
                "residual": certificate.residual,
            }
            measured = {"seconds": seconds, "ratio": seconds / taken["l2-krr"]}
            rows.append(
                row(
                    "rank one",
                    name,
                    "generated",
                    m,
                    len(varying),
                    value,
                    **measured,
                    **found,
                )
            )
    return rows


def routes(m: int, p: int, repeats: int) -> list[dict[str, Any]]:
    """Compare what the special routes take with the general one: `ratio` is that of its
    seconds to theirs.

    Learners on rank-one kernels, beside the same kernels as matrices (`nkrr` on eight
    of them), and `l1-svm` on linear kernels of three features each, beside Newton's
    method without interior points, whose gap is the last column.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, p))
    score = X[:, : p // 20 + 3].sum(axis=1) + rng.normal(size=m)
    target = Target.of(score > 0, "classification")
    Z = X - X.mean(axis=0)
    some = {"l1-krr": p, "l2-krr": p, "l1-svm": p, "nkrr": 8}
    solves: dict[str, list[Callable[[float], Certificate]]] = {}
    for name, k in some.items():
        held = (
            FeatureGrams(Z[:, :k]),
            StackedGrams(np.einsum("ik,jk->kij", Z[:, :k], Z[:, :k])),
        )
        solves[f"{name}, rank one"] = [
            lambda C, n=name, g=g: solve(n, g, target, C).certificate for g in held
        ]  # type: ignore[misc]
    views = StackedGrams(
        np.stack(
            [V @ V.T / 3 for V in np.split(Z[:, : p // 3 * 3], p // 3, axis=1)][:20]
        )
    )
    outer = L1SVM().ball(views.n_kernels)

    def alone(C: float) -> Certificate:
        problem = SupportVectorProblem(views, target, C)
        return solve_minimax(
            problem.at, outer, outer.start(views.n_kernels), 1e-6, MOST_ITERATIONS
        )[1]

    solves["l1-svm, low rank"] = [
        lambda C: solve("l1-svm", views, target, C).certificate,
        alone,
    ]
    rows = []
    for value in (0.1, 1.0, 10.0, 100.0):
        for case, ways in solves.items():
            with blas_threads_for(m):
                route, general = (
                    statistics.median(timed(lambda way=way: way(value), repeats))  # noqa: B023
                    for way in ways
                )
                ended = [way(value) for way in ways]
            found = {
                "seconds": route,
                "iterations": ended[0].iterations,
                "residual": ended[0].residual,
            }
            measured = {"ratio": general / route, "apart": ended[1].residual}
            rows.append(
                row(
                    "routes",
                    case,
                    "generated",
                    m,
                    some.get(case.split(",")[0], 20),
                    value,
                    **measured,
                    **found,
                )
            )
    return rows


def streamed(
    name: str,
    m: int,
    p: int,
    repeats: int,
    values: Sequence[float] = C_VALUES,
    with_matrices: bool = True,
) -> list[dict[str, Any]]:
    """Time a learner without matrices of all pairs of rows: beside the one that forms
    them, or alone and once.

    All are asked for a gap of `GAP`; `apart` is by how much weights differ, of the
    largest, and `gib` what its own process has taken at most. `l2-krr` learns by tiles,
    on all pairs; machines, of a target above its median, on half of the rows, and on
    5,000 where no matrix of all fits.
    """
    without = f"{name}, tiles" if name == "l2-krr" else f"{name}, sample"
    kinds = {f"{name}, matrices": 2**40, without: 0}
    if not with_matrices:
        kinds = {without: 0}
    found = []
    for value in values:
        fits = {}
        for case, in_memory in kinds.items():
            fit = StreamedFit(name, m, p, value, in_memory, not with_matrices)
            fits[case] = in_own_process(fit.measure, repeats)
        first_weights, first = next(iter(fits.values()))
        for case, (weights, measured) in fits.items():
            apart = np.abs(weights - first_weights).max() / weights.max()
            compared = {
                "ratio": measured["seconds"] / first["seconds"],
                "apart": float(apart),
            }
            found.append(
                row("streamed", case, "generated", m, p, value, **measured, **compared)
            )
    return found


@dataclass(frozen=True)
class StreamedFit:
    """A case of `streamed`, with the bytes that matrices may take."""

    name: str
    m: int
    p: int
    C: float
    in_memory: int
    is_alone: bool

    def measure(self, repeats: int) -> tuple[np.ndarray, dict[str, float]]:
        """Return weights and measurements."""
        fit = self._prepared()
        started = time.perf_counter()
        weights, certificate = fit()
        seconds = time.perf_counter() - started
        if not self.is_alone:
            seconds = statistics.median(timed(fit, repeats))
        return weights, {
            "seconds": seconds,
            "gib": peak_gib(),
            "iterations": certificate.iterations,
            "residual": certificate.residual,
        }

    def _prepared(self) -> Callable[[], tuple[np.ndarray, Certificate]]:
        X, y = friedman(np.random.default_rng(0), self.m, 15)
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        family = GaussianFamily([2.0**g for g in range(1 - self.p, 1)])
        target = Target.of(y > np.median(y), "classification")
        if self.name == "l2-krr":
            target = Target.of(y, "regression")
        n_scaled = min(self.m, SCALED_ON)
        drawn = np.random.default_rng(0).choice(self.m, n_scaled, replace=False)
        rows = np.sort(drawn)
        stats = gram_statistics(family, X[rows], target.Y[rows])
        make_grams = partial(
            gram_operator,
            family,
            move(X, stats.origin),
            shift=stats.shift,
            scales=stats.traces() / n_scaled,
            in_memory=self.in_memory,
        )
        return partial(self._fit, make_grams, target)

    def _fit(
        self, make_grams: Callable[[], GramOperator], target: Target
    ) -> tuple[np.ndarray, Certificate]:
        grams = make_grams()
        if self.name != "l2-krr":
            return self._fit_machine(grams, target)
        inner: InnerProblem = RidgeProblem(grams, target, self.C)
        if isinstance(grams, TiledGrams):
            inner = StreamedRidge(grams, target, self.C, GAP)
        return solve_on_ball(inner, L2KRR().ball(self.p), None, GAP, MOST_ITERATIONS)

    def _fit_machine(
        self, grams: GramOperator, target: Target
    ) -> tuple[np.ndarray, Certificate]:
        C = self.C
        if not self.is_alone and isinstance(grams, TiledGrams):
            grams, target = on_drawn_rows(grams, target, self.m // 2)
            C = 2 * self.C
        solution: Solution = as_learner(self.name, tol=GAP).solve(grams, target, C)
        assert solution.certificate is not None
        return solution.weights, solution.certificate


def _binary_problems(
    data_dir: Path | None, m: int
) -> dict[str, tuple[np.ndarray, Target]]:
    """Return two classes of letters and of digits, or generated rows."""
    if data_dir is None:
        X, y, _ = problem(m, 1, 16)
        return {"generated": (X, Target.of(y, "classification"))}
    letters = pq.read_table(data_dir / "letter_recognition.parquet").to_pandas()
    digits = pq.read_table(data_dir / "mnist.parquet").to_pandas()
    found = {}
    for name, table, pair in (
        ("letter", letters, ("B", "E")),
        ("mnist", digits, (3, 8)),
    ):
        chosen = table[table["target"].isin(pair)].sample(m, random_state=0)
        if "image" in chosen:
            X = np.stack(
                [np.frombuffer(image, np.uint8) for image in chosen["image"]]
            ).astype(float)
        else:
            X = chosen.drop(columns="target").to_numpy(float)
        found[name] = (X, Target.of(chosen["target"].to_numpy(), "classification"))
    return found


def solve(name: str, grams: GramOperator, target: Target, C: float) -> Any:
    """Return the solution of a learner, converged or not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return as_learner(name).solve(grams, target, C)


def _sets(
    data_dir: Path | None, m: int
) -> dict[str, tuple[np.ndarray, Target, list[float]]]:
    if data_dir is None:
        X, y, gammas = problem(m, 8, 8)
        return {"generated": (X, Target.of(y, "classification"), gammas)}
    from learnkernels.conf.schema import DatasetConfig
    from learnkernels.tasks.data.ingest import load_source

    sets = {}
    for name, (path, _, positive, scale, (first, last)) in TABLE_2.items():
        config = DatasetConfig.of(
            {
                "source": "file",
                "path": path,
                "name": name,
                "positive": positive,
                "scale": scale,
                "subsample": m,
            }
            | (
                {"task": "regression"}
                if name in ("kinematics", "ionosphere")
                else {"task": "classification"}
            )
            | ({"drop": ["part"]} if name == "splice" else {})
        )
        data = load_source(config, str(data_dir))
        sets[name] = (data.X, data.target, [2.0**g for g in range(first, last + 1)])
    return sets


def row(
    table: str, case: str, data: str, m: int, p: int, C: float | None, **others: Any
) -> dict[str, Any]:
    """Return a row, empty where not measured."""
    return dict.fromkeys(COLUMNS) | {
        "table": table, "case": case, "data": data, "m": m, "p": p, "regularization": C, **others,
    }  # fmt: skip


def main() -> None:
    """Run the tables, print them, and write them to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--fast", action="store_true", help="small sizes, for a check that it runs"
    )
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument(
        "--data-dir", type=Path, help="folder of the data sets of JMLR 2012, Table 2"
    )
    parser.add_argument(
        "--tables",
        default="speed,iterations,rank-one,routes,streamed,sample,continuous",
        help="which tables; many-rows, of 50,000, takes some fifteen minutes",
    )
    parser.add_argument(
        "--output", type=Path, default=Path("results/benchmarks/learners.parquet")
    )
    options = parser.parse_args()
    small = options.fast
    repeats, p = 1 if small else options.repeats, 3 if small else 10
    tables: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "speed": lambda: (
            speed(80 if small else 1000, p, "l2-krr", repeats)
            + speed(80 if small else 600, p, "l1-svm", repeats)
        ),
        "iterations": lambda: iterations(options.data_dir, 100 if small else 1000),
        "rank-one": lambda: rank_one(
            60 if small else 1200, 200 if small else 4000, repeats
        ),
        "streamed": lambda: streamed("l2-krr", 300 if small else 5000, p, repeats),
        "routes": lambda: routes(60 if small else 500, 12 if small else 300, repeats),
        "sample": lambda: [
            row
            for name in MACHINES
            for row in streamed(name, 300 if small else 4000, p, repeats, [1.0, 32.0])
        ],
        "many-rows": lambda: [
            row
            for name in ("l2-krr", *MACHINES)
            for row in streamed(
                name, 600 if small else 50_000, p, 1, [8.0], with_matrices=False
            )
        ],
        "continuous": lambda: continuous(
            options.data_dir, [60] if small else [500, 1000, 1500], repeats
        ),
    }
    rows = [row for name in options.tables.split(",") for row in tables[name]()]
    show(rows)
    tell(rows, options.output)


def show(rows: list[dict[str, Any]]) -> None:
    """Print the tables; of the iterations the median over sets and regularizations."""
    print(  # noqa: T201
        f"{'case':<24}{'m':>6}{'C':>9}{'seconds':>10}{'ratio':>8}{'iterations':>12}{'gap':>10}{'matrices':>10}"
    )
    for r in (r for r in rows if r["table"] in ("speed", "rank one", "routes")):
        gap = "" if r["residual"] is None else f"{r['residual']:.0e}"
        # The gap of the general route
        other = "" if r["apart"] is None else f"{r['apart']:.0e}"
        matrices = other if r["matrices"] is None else f"{r['matrices']:.1f}"
        print(  # noqa: T201
            f"{r['case']:<24}{r['m']:>6}{r['regularization']:>9g}{r['seconds']:>10.4f}{r['ratio']:>8.2f}"
            f"{r['iterations'] or '':>12}{gap:>10}{matrices:>10}"
        )
    print(  # noqa: T201
        f"\n{'no matrices':<24}{'m':>6}{'C':>9}{'seconds':>10}{'ratio':>8}{'gap':>10}{'apart':>8}{'GiB':>6}"
    )
    for r in (r for r in rows if r["table"] == "streamed"):
        print(  # noqa: T201
            f"{r['case']:<24}{r['m']:>6}{r['regularization']:>9g}{r['seconds']:>10.1f}{r['ratio']:>8.2f}"
            f"{r['residual']:>10.0e}{r['apart']:>8.0e}{r['gib']:>6.1f}"
        )
    print(  # noqa: T201
        f"\n{'from rows to weights':<24}{'data':>12}{'m':>6}{'seconds':>10}{'ratio':>8}"
    )
    for r in (r for r in rows if r["table"] == "continuous"):
        print(  # noqa: T201
            f"{r['case']:<24}{r['data']:>12}{r['m']:>6}{r['seconds']:>10.4f}{r['ratio']:>8.2f}"
        )
    print(  # noqa: T201
        f"\n{'learner':<24}{'sets':>6}{'iterations, median':>20}{'most':>6}{'largest gap':>14}"
    )
    counted = [r for r in rows if r["table"] == "iterations"]
    for case in dict.fromkeys(r["case"] for r in counted):
        of = [r for r in counted if r["case"] == case]
        counts = [r["iterations"] for r in of]
        print(  # noqa: T201
            f"{case:<24}{len({r['data'] for r in of}):>6}{statistics.median(counts):>20g}{max(counts):>6}"
            f"{max(r['residual'] for r in of):>14.0e}"
        )


if __name__ == "__main__":
    main()
