"""Run the benchmark on public data sets and write its tables:
`python -m dev.benchmarks.board --help`.

Every measurement is appended to a journal at once, so that a second run resumes an
interrupted one.
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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.progress import Progress
from threadpoolctl import threadpool_limits

from dev.benchmarks.board import Measurement

if TYPE_CHECKING:
    from dev.benchmarks.board.contestants import Contestant
    from dev.benchmarks.board.tables import Drawing, Table

THREADS = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)

DEFAULT_SECTIONS = ("small", "raw", "medium", "rare", "growth")
"""Sections of `make board`."""


def main() -> None:
    """Measure missing results, then write one page and one figure per section."""
    parser = argparse.ArgumentParser(
        prog="python -m dev.benchmarks.board", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results/board"),
        help="folder of journal and pages",
    )
    parser.add_argument(
        "--sections",
        nargs="+",
        default=DEFAULT_SECTIONS,
        help="sections to run; 'mnist' is not among the default",
    )
    parser.add_argument(
        "--drawings",
        type=int,
        help="random splits per data set; by default those of the section",
    )
    parser.add_argument(
        "--tables", nargs="+", help="names of data sets; by default all"
    )
    parser.add_argument(
        "--sizes", nargs="+", type=int, help="numbers of training rows; by default all"
    )
    parser.add_argument("--apart", action="store_true", help="only held-out data sets")
    parser.add_argument(
        "--contestants",
        nargs="+",
        help="names of methods; by default all that are installed",
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="number of processes"
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="threads per process, for our estimators"
    )
    parser.add_argument(
        "--minutes", type=float, default=120.0, help="start no fit after this time"
    )
    parser.add_argument(
        "--track",
        action="store_true",
        help="log the results in MLflow, one run per method",
    )
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    os.environ.update(dict.fromkeys(THREADS, str(options.threads)))

    from dev.benchmarks.board.sections import SECTIONS

    if unknown := set(options.sections) - set(SECTIONS):
        parser.error(
            f"Unknown sections {sorted(unknown)}. Available: {', '.join(SECTIONS)}."
        )
    journal = options.output / "journal.jsonl"
    _run_jobs(journal, _missing_jobs(journal, options), options)
    _write_pages(journal, options)


def measured(journal: Path) -> Iterator[Measurement]:
    """Return the measurements in a journal, without a truncated last line."""
    if not journal.exists():
        return
    for line in journal.read_text(encoding="utf-8").splitlines():
        try:
            yield Measurement(**json.loads(line))
        except (ValueError, TypeError):
            continue


@dataclass(frozen=True)
class Job:
    """Methods to measure on one random split of a data set."""

    section: str
    table: Table
    seed: int
    methods: list[str]


def _missing_jobs(journal: Path, options: argparse.Namespace) -> list[Job]:
    """Return the jobs that the options ask for and the journal lacks, the longest first."""
    from dev.benchmarks.board.sections import SECTIONS

    done = defaultdict(set)
    for row in measured(journal):
        done[row.section, row.task, row.table, row.size, row.drawing].add(
            (row.contestant, row.version)
        )
    jobs = []
    for name in options.sections:
        section = SECTIONS[name]
        methods = [
            method
            for method in section.contestants
            if method in (options.contestants or section.contestants)
        ]
        for table in section.tables():
            if not _is_asked(table, options):
                continue
            for seed in range(options.drawings or section.drawings):
                finished = done[name, table.task, table.name, table.split.most, seed]
                missing = [
                    method
                    for method in methods
                    if (method, section.contestants[method].version) not in finished
                ]
                if missing:
                    jobs.append(Job(name, table, seed, missing))
    return sorted(jobs, key=lambda job: (-job.table.split.most, job.seed))


def _is_asked(table: Table, options: argparse.Namespace) -> bool:
    """Return whether the options select a table."""
    if options.apart and not table.apart:
        return False
    if options.sizes and table.split.most not in options.sizes:
        return False
    return not options.tables or table.name in options.tables


def _run_jobs(journal: Path, jobs: list[Job], options: argparse.Namespace) -> None:
    deadline = time.monotonic() + 60 * options.minutes
    n_incomplete = 0
    with (
        ProcessPoolExecutor(options.jobs, initializer=_quiet) as pool,
        Progress() as progress,
    ):
        bar = progress.add_task("data sets", total=len(jobs))
        futures = {pool.submit(_run_job, journal, job, deadline): job for job in jobs}
        for future in as_completed(futures):
            job = futures[future]
            failures, is_incomplete = future.result()
            n_incomplete += is_incomplete
            for failure in failures:
                progress.console.print(
                    f"{job.section}, {job.table.name}, split {job.seed}: {failure}"
                )
            progress.update(
                bar,
                advance=1,
                description=f"{job.section}: {job.table.name} {job.seed}",
            )
    if n_incomplete:
        print(  # noqa: T201
            f"{n_incomplete} of {len(jobs)} splits lack methods of these versions, "
            "as the time was over: start again."
        )


def _write_pages(journal: Path, options: argparse.Namespace) -> None:
    from dev.benchmarks.board.sections import SECTIONS
    from dev.benchmarks.board.verdict import Board

    for name in options.sections:
        rows = [row for row in measured(journal) if row.section == name]
        if not rows:
            continue
        board = Board.from_measurements(rows, SECTIONS[name])
        page = options.output / f"{name}.md"
        page.write_text(board.page(), encoding="utf-8")
        board.picture(page.with_suffix(".png"))
        if options.track:
            board.track(name)
        print(f"page: {page}")  # noqa: T201


def _quiet() -> None:
    """Suppress output of the compared packages."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")


def _run_job(journal: Path, job: Job, deadline: float) -> tuple[list[str], bool]:
    """Measure the methods of a job; return failures, and whether there was no time."""
    from dev.benchmarks.board.sections import SECTIONS
    from learnkernels import KernelLearningRegressor

    if time.monotonic() > deadline:
        return [], True
    drawing = job.table.drawn(job.seed)
    failures = []
    is_incomplete = False
    if any(method.startswith("learnkernels") for method in job.methods):
        # Compiles once per process
        KernelLearningRegressor().fit(np.eye(20), np.arange(20.0))
    for method in job.methods:
        contestant = SECTIONS[job.section].contestants[method]
        if contestant.reason_to_skip(job.table.task, *drawing.X.shape) is not None:
            continue
        if time.monotonic() > deadline:
            is_incomplete = True
            continue
        # A forked process inherits the BLAS threads of its parent; other packages
        # change them.
        with threadpool_limits(int(os.environ[THREADS[0]])):
            try:
                measurement = _measure(job, drawing, method, contestant)
            except Exception as error:  # one method that fails does not stop the others
                failures.append(f"{method} failed: {type(error).__name__}: {error}")
                continue
        with journal.open(
            "a", encoding="utf-8"
        ) as file:  # one write per line: processes do not mix theirs
            file.write(json.dumps(asdict(measurement)) + "\n")
    return failures, is_incomplete


def _measure(
    job: Job, drawing: Drawing, method: str, contestant: Contestant
) -> Measurement:
    """Fit a method on the training rows and measure it on the test rows."""
    from dev.benchmarks.board.metrics import metrics

    n_train, n_features = drawing.X.shape
    model = contestant.make(job.table.task, n_features, job.seed)
    begin = time.process_time()
    model = model.fit(drawing.X, drawing.y)
    seconds = time.process_time() - begin
    return Measurement(
        section=job.section,
        table=job.table.name,
        task=job.table.task,
        apart=job.table.apart,
        size=job.table.split.most,
        drawing=job.seed,
        contestant=method,
        seconds=seconds,
        n_train=n_train,
        n_test=len(drawing.y_test),
        n_features=n_features,
        version=contestant.version,
        **metrics(model, job.table.task, drawing),
    )


if __name__ == "__main__":
    main()
