"""Measure all contestants on all tables, and say who wins: `python -m benchmarks.board --help`.

A journal notes each measurement, so that a second start goes on where the first was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.progress import Progress
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from benchmarks.board.tables import Table

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Measurement:
    """The error of a contestant on one drawing: the share of wrong classes, or the RMSE over y's deviation.

    `cpu` are the seconds that a processor worked for the fit, and `megabytes` the most memory that the process held.
    """

    table: str
    task: str
    apart: bool
    drawing: int
    contestant: str
    error: float
    seconds: float
    n_train: int
    n_test: int
    n_features: int
    cpu: float = float("nan")
    megabytes: float = float("nan")


def main() -> None:
    """Measure what is missing, then write the page and its picture."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.board", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--output", type=Path, default=Path("results/board"), help="folder of journal, page and picture"
    )
    parser.add_argument("--drawings", type=int, help="of each table; 2 by default, 10 of anchors, 1 of large ones")
    parser.add_argument("--tables", nargs="+", help="names; all by default")
    parser.add_argument("--raw", action="store_true", help="tables with categories and gaps, as they are")
    parser.add_argument("--anchors", action="store_true", help="seven sets with up to 3,000 training rows")
    parser.add_argument("--large", action="store_true", help="three sets with 16,000 training rows and more")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of their Parquet files")
    parser.add_argument("--apart", action="store_true", help="only the half of the tables that chose nothing")
    parser.add_argument("--contestants", nargs="+", help="names; all that are installed by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes, each of one thread")
    parser.add_argument("--threads", type=int, default=1, help="of each of our estimators")
    parser.add_argument("--minutes", type=float, default=120.0, help="after which nothing more is begun")
    parser.add_argument("--track", action="store_true", help="also log a run a contestant in MLflow")
    asked = parser.parse_args()
    section = next((name for name in ("raw", "anchors", "large") if getattr(asked, name)), "")
    asked.output /= section
    asked.drawings = asked.drawings or {"anchors": 10, "large": 1}.get(section, 2)
    asked.output.mkdir(parents=True, exist_ok=True)
    os.environ.update(dict.fromkeys(THREADS, str(asked.threads)))

    from benchmarks.board.tables import anchors, large_tables, raw_tables, tables
    from benchmarks.board.verdict import Board

    journal = asked.output / "journal.jsonl"
    of_section = {
        "": tables, "raw": raw_tables, "anchors": lambda: anchors(asked.data), "large": lambda: large_tables(asked.data)
    }  # fmt: skip
    chosen = [
        table
        for table in of_section[section]()
        if (not asked.tables or table.name in asked.tables) and table.apart >= asked.apart
    ]
    for group in [[table] for table in chosen] if asked.large else [chosen]:  # processes of its own tell its memory
        _measure(journal, group, asked)
    board = Board.of(list(measured(journal)))
    page = board.anchors() if section in ("anchors", "large") else board.page()
    (asked.output / "board.md").write_text(page, encoding="utf-8")
    if section in ("", "raw"):
        board.picture(asked.output / "ranks.png")
    if asked.track:
        board.track()
    print(f"page: {asked.output / 'board.md'}")  # noqa: T201


def measured(journal: Path) -> Iterator[Measurement]:
    """Give what a journal notes, but for a last line that was cut off."""
    if not journal.exists():
        return
    for line in journal.read_text(encoding="utf-8").splitlines():
        try:
            yield Measurement(**json.loads(line))
        except (ValueError, TypeError):
            continue


def _measure(journal: Path, chosen: Iterable[Table], asked: argparse.Namespace) -> None:
    done = defaultdict(set)
    for one in measured(journal):
        done[one.task, one.table, one.drawing].add(one.contestant)
    jobs = [
        (table, drawing, asked.contestants, frozenset(done[table.task, table.name, drawing]))
        for drawing in range(asked.drawings)
        for table in chosen
    ]
    until = time.monotonic() + 60 * asked.minutes
    with ProcessPoolExecutor(asked.jobs) as pool, Progress() as progress, journal.open("a", encoding="utf-8") as sink:
        bar = progress.add_task("tables", total=len(jobs))
        futures = {pool.submit(_one, *job, until): job for job in jobs}
        for future in as_completed(futures):
            for one in future.result():
                sink.write(json.dumps(asdict(one)) + "\n")
            sink.flush()
            table, drawing, *_ = futures[future]
            progress.update(bar, advance=1, description=f"{table.name} {drawing}")


def _one(table: Table, drawing: int, wanted: list[str] | None, done: frozenset[str], until: float) -> list[Measurement]:
    """Measure the contestants that are missing on one drawing of one table."""
    from benchmarks.board.contestants import CONTESTANTS, RAW_CONTESTANTS
    from learnkernels import KernelLearningRegressor

    contestants = RAW_CONTESTANTS if table.raw else CONTESTANTS
    missing = [key for key in contestants if key not in done and (wanted is None or key in wanted)]
    if not missing or time.monotonic() > until:
        return []
    warnings.simplefilter("ignore")  # of many libraries, about convergence and names of features
    rows, task = table.drawn(drawing), table.task
    found = []
    KernelLearningRegressor().fit(np.eye(20), np.arange(20.0))  # compiled once a process, and kept on disk
    # A process that is forked has the threads of BLAS of the one before it, whatever is set.
    threadpool_limits(int(os.environ[THREADS[0]]))
    for key in missing:
        contestant = contestants[key]
        if contestant.reason_to_skip(task, rows.X.shape[1]):
            continue
        begun, worked = time.perf_counter(), time.process_time()
        model = contestant.make(task, rows.X.shape[1], drawing).fit(rows.X, rows.y)
        seconds, cpu = time.perf_counter() - begun, time.process_time() - worked
        predicted = np.asarray(model.predict(rows.X_test)).ravel()
        if task == "classification":
            error = float(np.mean(predicted != rows.y_test))
        else:
            error = float(np.sqrt(np.mean((predicted - rows.y_test) ** 2)) / rows.unit)
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        found.append(
            Measurement(table.name, task, table.apart, drawing, key, error, seconds, len(rows.y), len(rows.y_test),
                        rows.X.shape[1], cpu, held)
        )  # fmt: skip
    return found


if __name__ == "__main__":
    main()
