"""Measure the second stage at 10^5 rows and the sampled first stage at 10^6, in one run
on one machine.

Tables: `landmarks`, against scikit-learn's Nystroem and Ridge on the same landmarks,
medians of REPEATS paired runs; `pipeline`, from rows to predictions, with the
regression of a tenth of the rows; `residuals`, steps and residual of conjugate
gradients where kernels are nearly constant; `sampled`, weights of 10^6 rows from some
thousands; `spread`, how far these are from the weights of all rows; and `diagnostics`,
linear CKA and tests by permutation. Memory is that of a process per case.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import kernel_approximation
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge

from dev.benchmarks.alignment_statistics import REPEATS, timed
from dev.benchmarks.history import tell
from dev.benchmarks.own_process import in_own_process, peak_gib
from learnkernels import (
    GaussianFamily,
    alignment_test,
    gram_statistics,
    learn_kernel,
    linear_cka,
)
from learnkernels.kernels.learned_kernel import LearnedKernel
from learnkernels.kernels.learners import learn_from_statistics
from learnkernels.kernels.model_selection.evaluation import KernelPredictors
from learnkernels.kernels.predictors import ConjugateGradients, Nystroem, Predictor
from learnkernels.kernels.statistics.gram import GramStatistics
from learnkernels.kernels.statistics.sampled import (
    SAMPLE_ROWS,
    SampledStatistics,
    sample_statistics,
)
from learnkernels.kernels.targets import Target
from learnkernels.tasks.data.synthetic import friedman

COLUMNS = [
    "table",
    "case",
    "m",
    "p",
    "landmarks",
    "seconds",
    "ratio",
    "error",
    "steps",
    "residual",
    "note",
]

Case = tuple[Any, ...]
"""Function and arguments."""

D = 20
GRID = [2.0**g for g in range(-2, 13, 2)]


def row(table: str, case: str, m: int, p: int, **measured: Any) -> dict[str, Any]:
    """Return a row with all columns."""
    return (
        dict.fromkeys(COLUMNS)
        | {"table": table, "case": case, "m": m, "p": p}
        | measured
    )


def rows_and_target(m: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows, five of whose twenty features matter, and a noisy target."""
    return friedman(np.random.default_rng(seed), m, D - 5)


def bandwidths(p: int, top: int = -4) -> list[float]:
    """Return a power-of-two grid up to ``2**top``; one over the number of features is about 2^-4."""
    return [2.0**g for g in range(top + 1 - p, top + 1)]


def rmse(predictions: np.ndarray, y: np.ndarray) -> float:
    """Return the root mean squared error."""
    return float(np.sqrt(np.mean((predictions - y) ** 2)))


def peak() -> str:
    return f"{peak_gib():.2f} GiB at most"


def landmarks(m: int, M: int, repeats: int) -> list[dict[str, Any]]:
    """Compare one bandwidth and ridge with scikit-learn on the same landmarks, in turns."""
    X, y = rows_and_target(m, 0)
    X_new, y_new = rows_and_target(m // 5, 1)
    gamma, C, target = 0.25, 1024.0, Target.of(y)
    sample = np.arange(0, m, max(1, m // 2000))
    learned = learn_kernel(
        X[sample],
        y[sample],
        learner="unif",
        family=GaussianFamily([gamma]),
        normalize="none",
    )
    kernel = replace(learned, rows=sample[learned.rows])

    def fit(seed: int = 0) -> KernelPredictors:
        return KernelPredictors(
            (kernel,),
            target,
            Nystroem(n_components=M, random_state=seed),
            [C],
            X=X,
            training=np.arange(m),
        )

    Z = fit().paths[0].kernel.rows  # type: ignore[union-attr]
    unit = np.trace(learned.gram()) / len(sample)  # about that of all rows
    ridge = unit / C / float(kernel.combination.coefficients[0])

    def theirs() -> np.ndarray:
        features = kernel_approximation.Nystroem(gamma=gamma, n_components=M).fit(X[Z])
        model = Ridge(alpha=ridge).fit(features.transform(X), y)
        return np.asarray(model.predict(features.transform(X_new)))

    def ours() -> np.ndarray:
        return np.asarray(fit().predict(X_new)[0])

    times: dict[str, list[float]] = {"Nystroem + Ridge": [], "nystroem": []}
    errors = {}
    cases: dict[str, Callable[[], np.ndarray]] = {
        "Nystroem + Ridge": theirs,
        "nystroem": ours,
    }
    for _ in range(repeats):
        for case, work in cases.items():
            started = time.perf_counter()
            errors[case] = rmse(work(), y_new)
            times[case].append(time.perf_counter() - started)
    ratio = statistics.median(b / a for a, b in zip(*times.values(), strict=True))
    ratios = {"Nystroem + Ridge": 1.0, "nystroem": ratio}
    return [
        row(
            "landmarks", case, m, 1, landmarks=M, error=errors[case], ratio=ratios[case],
            seconds=statistics.median(times[case]),
        )
        for case in cases
    ]  # fmt: skip


def pipeline(m: int, M: int, p: int, top: int) -> list[dict[str, Any]]:
    """Time statistics, then weights and predictors of two learners, and predictions.

    The grid of bandwidths ends at ``2**top``: of the smooth kernels of a low one few
    landmarks span most.
    """
    X, y = rows_and_target(m, 0)
    family = GaussianFamily(bandwidths(p, top))
    grid = f"grid to 2^{top}"
    started = time.perf_counter()
    stats = gram_statistics(family, X, y)
    seconds = time.perf_counter() - started
    rows = [row("pipeline", f"{grid}: statistics", m, p, seconds=seconds, note=peak())]
    for name in ("align", "alignf"):
        learn = partial(learn_from_statistics, name, family, X, stats)
        measured = _fitted_and_tested(learn, Target.of(y), Nystroem(n_components=M), m)
        case = f"{grid}: {name}, nystroem"
        rows.append(row("pipeline", case, m, p, landmarks=M, **measured))
    total = time.perf_counter() - started
    rows.append(
        row("pipeline", f"{grid}: all of the above", m, p, seconds=total, note=peak())
    )
    return rows


def pipeline_of_a_tenth(m: int, p: int, top: int) -> list[dict[str, Any]]:
    X, y = rows_and_target(m, 0)
    some = np.random.default_rng(0).choice(m, m // 10, replace=False)
    family = GaussianFamily(bandwidths(p, top))
    learn = partial(learn_kernel, X[some], y[some], learner="alignf", family=family)
    measured = _fitted_and_tested(learn, Target.of(y).take(some), "krr-cg", m)
    case = f"grid to 2^{top}: alignf, krr-cg on a tenth"
    return [row("pipeline", case, m // 10, p, **measured)]


def _fitted_and_tested(
    learn: Callable[[], LearnedKernel],
    target: Target,
    predictor: Predictor | str,
    m: int,
) -> dict[str, Any]:
    held_out = rows_and_target(m // 10, 2), rows_and_target(m // 5, 1)
    started = time.perf_counter()
    fitted = KernelPredictors((learn(),), target, predictor, GRID)
    fitted_at = time.perf_counter()
    error = _test_error(fitted, *held_out)
    predicting = time.perf_counter() - fitted_at
    note = f"{predicting:.1f} s of predictions; {peak()}"
    return {"seconds": fitted_at - started, "error": error, "note": note}


Drawn = tuple[np.ndarray, np.ndarray]


def _test_error(fitted: KernelPredictors, validation: Drawn, test: Drawn) -> float:
    """Return the test error at the regularization of the lowest validation error."""
    best = int(
        np.argmin([rmse(one, validation[1]) for one in fitted.predict(validation[0])])
    )
    return rmse(fitted.predict(test[0])[best], test[1])


def residuals(m: int, M: int) -> list[dict[str, Any]]:
    """Say how conjugate gradients end on a kernel of bandwidth 2^-12, nearly constant, and on the pipeline's."""
    X, y = rows_and_target(m, 0)
    rows = []
    for case, gammas in (("gamma 2^-12", [2.0**-12]), ("grid", bandwidths(10))):
        kernel, target = (
            learn_kernel(X, y, learner="unif", family=GaussianFamily(gammas)),
            Target.of(y),
        )
        for predictor, used in (
            (ConjugateGradients(), None),
            (Nystroem(n_components=M), M),
        ):
            for C in (1.0, 2.0**12, 2.0**24):
                fitted, seconds = _fitted(kernel, target, predictor, C)
                ended = fitted.paths[0].solutions
                assert ended is not None
                rows.append(
                    row(
                        "residuals", f"{predictor.name}, {case}, C {C:g}", m, len(gammas), seconds=seconds,
                        landmarks=used, steps=ended.iterations,
                        residual=float(ended.residuals.max()), note="" if ended.converged else "warned",
                    )
                )  # fmt: skip
    return rows


def _fitted(
    kernel: LearnedKernel, target: Target, predictor: Predictor, C: float
) -> tuple[KernelPredictors, float]:
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = KernelPredictors((kernel,), target, predictor, [C])
    return fitted, time.perf_counter() - started


def sampled(m: int, p: int) -> list[dict[str, Any]]:
    """Time the weights of many rows from a sample of them."""
    X, y = rows_and_target(m, 0)
    family = GaussianFamily(bandwidths(p, 2))
    started = time.perf_counter()
    stats = sample_statistics(family, X, y)
    kernels = [
        learn_from_statistics(name, family, X, stats) for name in ("align", "alignf")
    ]
    seconds = time.perf_counter() - started
    note = f"{stats.n_rows:,} rows; alignf {kernels[1].alignment:.4f}; {peak()}"
    return [row("sampled", "align, alignf", m, p, seconds=seconds, note=note)]


def spread(m: int, p: int, trials: int, n: int) -> list[dict[str, Any]]:
    """Measure how far alignments and weights of samples are from those of all rows, root mean squares over seeds."""
    X, y = rows_and_target(m, 0)
    family, learners = GaussianFamily(bandwidths(p, 2)), ("align", "alignf")

    def learned(stats: GramStatistics | SampledStatistics) -> np.ndarray:
        kernels = [learn_from_statistics(name, family, X, stats) for name in learners]
        return np.concatenate(
            [stats.alignments, *([one.alignment, *one.weights] for one in kernels)]
        )

    exact = learned(gram_statistics(family, X, y))
    off = [
        learned(sample_statistics(family, X, y, sample=n, seed=seed)) - exact
        for seed in range(trials)
    ]
    errors = np.sqrt(np.mean(np.square(off), axis=0))
    of = {"largest of an alignment of a base kernel": errors[:p].max()}
    for i, name in enumerate(learners):
        of[f"alignment of {name}"] = errors[p + i * (p + 1)]
        of[f"largest of a weight of {name}"] = errors[p + i * (p + 1) + 1 :][:p].max()
    return [
        row(
            "spread", case, m, p, error=float(error), note=f"{trials} seeds, {n:,} rows"
        )
        for case, error in of.items()
    ]


def similarity(m: int, d: int) -> list[dict[str, Any]]:
    """Time linear CKA of two representations with d features each."""
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(2, m, d))
    B += A
    work = partial(linear_cka, A, B)
    return [_diagnostic(f"linear CKA, {d} features each", work, m)]


def permuted(
    case: str, m: int, outputs: int, permutations: int
) -> list[dict[str, Any]]:
    """Time a test of three Gaussians by permutations."""
    X, y = rows_and_target(m, 0)
    noise = np.random.default_rng(0).normal(size=(m, outputs))
    work = partial(
        alignment_test,
        GaussianFamily(bandwidths(3)),
        X,
        np.squeeze(y[:, None] + 100 * noise),
        task="regression",
        n_permutations=permutations,
    )
    return [_diagnostic(case, work, m)]


def _diagnostic(case: str, work: Callable[[], Any], m: int) -> dict[str, Any]:
    started = time.perf_counter()
    busy = time.process_time()
    work()
    note = f"{time.process_time() - busy:.1f} CPU seconds, {peak()}"
    seconds = time.perf_counter() - started
    return row("diagnostics", case, m, 3, seconds=seconds, note=note)


TABLES = ("landmarks", "pipeline", "residuals", "sampled", "spread", "diagnostics")


def main() -> None:
    """Run the tables, print them, and write them to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument(
        "--fast", action="store_true", help="small sizes, to see that all runs"
    )
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument(
        "--output", type=Path, default=Path("results/benchmarks/scale.parquet")
    )
    options = parser.parse_args()
    fast = options.fast
    m, M = (2000, 60) if fast else (100_000, 2000)
    rows_of_residuals, landmarks_of_residuals = (400, 50) if fast else (8000, 1000)
    spread_of = (1500, 4, 3, 300) if fast else (40_000, 10, 20, SAMPLE_ROWS)
    n, d, permutations = (1500, 8, 9) if fast else (m, 512, 99)
    work: dict[str, list[Case]] = {
        "landmarks": [(landmarks, m, M, 1 if fast else options.repeats)],
        "pipeline": [
            case
            for top in (-4, 0)
            for case in ((pipeline, m, M, 10, top), (pipeline_of_a_tenth, m, 10, top))
        ],
        "residuals": [(residuals, rows_of_residuals, landmarks_of_residuals)],
        "sampled": [(sampled, 5000 if fast else 1_000_000, 10)],
        "spread": [(spread, *spread_of)],
        "diagnostics": [
            (similarity, n, d),
            (permuted, "alignment test, one output", n, 1, permutations),
            (permuted, "alignment test, three outputs", n, 3, permutations),
        ],
    }
    # Loads and compiles
    timed(
        lambda: gram_statistics(GaussianFamily([0.5]), np.eye(60), np.arange(60.0)), 1
    )
    rows = []
    for table in options.tables:
        found = []
        for function, *arguments in work[table]:
            found += in_own_process(function, *arguments)
        show(found)
        rows += found
    tell(rows, options.output)


def show(rows: list[dict[str, Any]]) -> None:
    """Print the columns that a table has."""
    for one in rows:
        held = {key: value for key, value in one.items() if value not in (None, "")}
        cells = [
            f"{key} {value:.4g}" if isinstance(value, float) else str(value)
            for key, value in held.items()
        ]
        print(*cells, sep="  ", flush=True)  # noqa: T201
    print()  # noqa: T201


if __name__ == "__main__":
    main()
