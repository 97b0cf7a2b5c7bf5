"""Run the benchmark on public data sets and write its tables: `python -m dev.benchmarks.board --help`.

Every measurement is appended to a journal at once, so that a second run resumes an interrupted one.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.progress import Progress
from threadpoolctl import threadpool_limits

from dev.benchmarks.board import Measurement

if TYPE_CHECKING:
    from dev.benchmarks.board.contestants import Contestant
    from dev.benchmarks.board.tables import Drawing, Table

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

DEFAULT = ("small", "raw", "medium", "rare", "growth")
"""Sections of `make board`."""

LEAST = 1e-6
"""Smallest predicted probability that the log loss counts."""


def main() -> None:
    """Measure what is missing, then write one page and one figure per section."""
    parser = argparse.ArgumentParser(prog="python -m dev.benchmarks.board", description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("results/board"), help="folder of journal and pages")
    parser.add_argument(
        "--sections", nargs="+", default=DEFAULT, help="sections to run; 'mnist' is not among the default"
    )
    parser.add_argument("--drawings", type=int, help="random splits per data set; by default those of the section")
    parser.add_argument("--tables", nargs="+", help="names of data sets; by default all")
    parser.add_argument("--apart", action="store_true", help="only held-out data sets")
    parser.add_argument("--contestants", nargs="+", help="names of methods; by default all that are installed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes")
    parser.add_argument("--threads", type=int, default=1, help="threads per process, for our estimators")
    parser.add_argument("--minutes", type=float, default=120.0, help="start no fit after this time")
    parser.add_argument("--track", action="store_true", help="log the results in MLflow, one run per method")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    os.environ.update(dict.fromkeys(THREADS, str(asked.threads)))

    from dev.benchmarks.board.sections import SECTIONS
    from dev.benchmarks.board.verdict import Board

    if unknown := set(asked.sections) - set(SECTIONS):
        parser.error(f"Unknown sections {sorted(unknown)}. Available: {', '.join(SECTIONS)}.")
    journal = asked.output / "journal.jsonl"
    _measure(journal, asked)
    for name in asked.sections:
        found = [one for one in measured(journal) if one.section == name]
        if found:
            board = Board.of(found, SECTIONS[name])
            page = asked.output / f"{name}.md"
            page.write_text(board.page(), encoding="utf-8")
            board.picture(page.with_suffix(".png"))
            if asked.track:
                board.track(name)
            print(f"page: {page}")  # noqa: T201


def measured(journal: Path) -> Iterator[Measurement]:
    """Return the measurements in a journal, without a truncated last line."""
    if not journal.exists():
        return
    for line in journal.read_text(encoding="utf-8").splitlines():
        try:
            yield Measurement(**json.loads(line))
        except (ValueError, TypeError):
            continue


def _measure(journal: Path, asked: argparse.Namespace) -> None:
    from dev.benchmarks.board.sections import SECTIONS

    done = defaultdict(set)
    for one in measured(journal):
        done[one.section, one.task, one.table, one.size, one.drawing].add(one.contestant)
    jobs = []
    for name in asked.sections:
        section = SECTIONS[name]
        for table in section.tables():
            for drawing in range(asked.drawings or section.drawings):
                missing = [
                    key
                    for key in section.contestants
                    if key not in done[name, table.task, table.name, table.split.most, drawing]
                    and (not asked.contestants or key in asked.contestants)
                ]
                if missing and (not asked.tables or table.name in asked.tables) and table.apart >= asked.apart:
                    jobs.append((name, table, drawing, missing))
    jobs.sort(key=lambda job: (-job[1].split.most, job[2]))  # the longest first: no process waits for the last one
    until = time.monotonic() + 60 * asked.minutes
    with ProcessPoolExecutor(asked.jobs, initializer=_quiet) as pool, Progress() as progress:
        bar = progress.add_task("data sets", total=len(jobs))
        futures = {pool.submit(_split, journal, *job, until): job for job in jobs}
        for future in as_completed(futures):
            name, table, drawing, _ = futures[future]
            for failure in future.result():
                progress.console.print(f"{name}, {table.name}, split {drawing}: {failure}")
            progress.update(bar, advance=1, description=f"{name}: {table.name} {drawing}")


def _quiet() -> None:
    """Suppress what the compared packages print and log."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")


def _split(journal: Path, section: str, table: Table, drawing: int, missing: list[str], until: float) -> list[str]:
    """Measure some methods on one split of a data set; return a line per failure."""
    from dev.benchmarks.board.sections import SECTIONS
    from learnkernels import KernelLearningRegressor

    if time.monotonic() > until:
        return []
    rows, failures = table.drawn(drawing), []
    if any(key.startswith("learnkernels") for key in missing):
        KernelLearningRegressor().fit(np.eye(20), np.arange(20.0))  # compiles once per process
    for key in missing:
        contestant = SECTIONS[section].contestants[key]
        if contestant.reason_to_skip(table.task, *rows.X.shape) or time.monotonic() > until:
            continue
        # A forked process inherits the BLAS threads of its parent; other packages change them.
        with threadpool_limits(int(os.environ[THREADS[0]])):
            try:
                found, seconds = _fitted(contestant, table.task, rows, drawing)
            except Exception as error:  # one method that fails does not stop the others
                failures.append(f"{key} failed: {type(error).__name__}: {error}")
                continue
        n_train, n_features = rows.X.shape
        of_split = (section, table.name, table.task, table.apart, table.split.most, drawing, key)
        one = Measurement(
            *of_split, **found, seconds=seconds, n_train=n_train, n_test=len(rows.y_test), n_features=n_features
        )
        with journal.open("a", encoding="utf-8") as sink:  # one write per line: processes do not mix theirs
            sink.write(json.dumps(asdict(one)) + "\n")
    return failures


def _fitted(contestant: Contestant, task: str, rows: Drawing, seed: int) -> tuple[dict[str, float], float]:
    model = contestant.make(task, rows.X.shape[1], seed)
    begun = time.process_time()
    model = model.fit(rows.X, rows.y)
    seconds = time.process_time() - begun
    return metrics(model, task, rows), seconds


def metrics(model: Any, task: str, rows: Drawing) -> dict[str, float]:
    """Return the test metrics of a fitted model: error, log loss and AUC, NaN where one is not defined."""
    from sklearn.metrics import roc_auc_score

    predicted = np.asarray(model.predict(rows.X_test)).ravel()
    found = dict.fromkeys(("error", "log_loss", "auc"), float("nan"))
    if task == "regression":
        return found | {"error": float(np.sqrt(np.mean((predicted - rows.y_test) ** 2)) / rows.unit)}
    found["error"] = float(np.mean(predicted != rows.y_test))
    scores = None
    if hasattr(model, "predict_proba"):
        P = np.zeros((len(rows.y_test), 1 + int(max(rows.y.max(), rows.y_test.max()))))
        P[:, np.asarray(model.classes_, dtype=int)] = model.predict_proba(rows.X_test)
        found["log_loss"] = float(-np.log(P[np.arange(len(P)), rows.y_test].clip(LEAST, 1)).mean())
        scores = P[:, -1]
    elif hasattr(model, "decision_function"):
        scores = model.decision_function(rows.X_test)
    if scores is not None and np.array_equal(np.unique(rows.y_test), [0, 1]) and rows.y.max() == 1:
        found["auc"] = float(roc_auc_score(rows.y_test, scores))
    return found


if __name__ == "__main__":
    main()
