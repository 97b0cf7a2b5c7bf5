"""Kills, signals, damage, hostile input and two at once, by a seed:
`python -m dev.tools.chaos --help`.

Lanes make their tries side by side, each in its own folder; a journal notes every one,
so that a second start goes on.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from dev.tools.chaos.journal import Attempt, Journal, attempts_in, report, table


@dataclass(frozen=True)
class Kind:
    """A kind of tries: where they are, how many there are to be, and in which lane."""

    name: str
    module: str
    act: str
    target: int
    lane: str

    def function(self) -> Callable[..., None]:
        """Return what makes an attempt; imported late, in the environment of the lane."""
        module = __import__(f"dev.tools.chaos.{self.module}", fromlist=[self.act])
        found: Callable[..., None] = getattr(module, self.act)
        return found


KINDS = [
    Kind("configurations", "inputs", "configurations", 20_000, "files"),
    Kind("data files", "inputs", "data_files", 15_000, "files"),
    Kind("scored tables", "inputs", "scored_tables", 5_000, "files"),
    Kind("model files", "inputs", "model_files", 2_000, "files"),
    Kind("kills", "running", "kills", 200, "commands"),
    Kind("signals", "running", "signals", 100, "commands"),
    Kind("pairs", "running", "pairs", 300, "pairs"),
    Kind("damage", "running", "damage", 2_000, "files"),
    Kind("full disk", "places", "full_disk", 40, "files"),
    Kind("file sizes", "places", "file_sizes", 20, "files"),
    Kind("read-only", "places", "read_only", 20, "files"),
    Kind("hosts", "places", "hosts", 20, "files"),
    Kind("servers", "running", "servers", 12, "commands"),
    Kind("cron", "places", "cron", 1, "schedule"),
]
FAULT = "the try itself"
"""What fails where a try raises an error of its own; three of them end its kind."""

LANES = ("commands", "pairs", "files", "schedule")


def main() -> int:
    """Run lanes, or one attempt again; return 1 if anything failed."""
    asked = _arguments()
    folder = asked.resume.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if asked.again:
        return _again(folder, asked.again, asked.seed, asked.cron)
    if asked.lane:
        _work(folder / asked.lane, asked)
        return 0
    if not asked.report:
        _lanes(folder, asked)
    attempts = attempts_in(folder)
    (folder / "report.md").write_text(report(attempts, folder), encoding="utf-8")
    print("\n".join(table(attempts)))  # noqa: T201
    print(f"\nreport: {folder / 'report.md'}")  # noqa: T201
    return int(any(attempt.failures for attempt in attempts))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m dev.tools.chaos", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--seed", type=int, default=0, help="decides all that is drawn")
    parser.add_argument(
        "--minutes",
        type=float,
        default=120.0,
        help="how long this start goes on at most",
    )
    parser.add_argument(
        "--resume",
        type=Path,
        default=Path("build/chaos"),
        metavar="FOLDER",
        help="where tries are made and noted",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[kind.name for kind in KINDS],
        help="kinds; all by default",
    )
    parser.add_argument(
        "--share", type=float, default=1.0, help="of the number of tries of each kind"
    )
    parser.add_argument(
        "--cron",
        type=float,
        default=0.0,
        metavar="MINUTES",
        help="how long a schedule runs",
    )
    parser.add_argument(
        "--one-lane", action="store_true", help="one try after the other"
    )
    parser.add_argument(
        "--report", action="store_true", help="write the report again and try nothing"
    )
    parser.add_argument(
        "--again",
        metavar="KIND:NUMBER",
        help="make one attempt again, and print what comes of it",
    )
    parser.add_argument("--lane", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if (asked.again or "").startswith("cron:") and not asked.cron:
        parser.error(f"--again {asked.again} watches nothing: add --cron MINUTES.")
    return asked


def _lanes(folder: Path, asked: argparse.Namespace) -> None:
    """Start a process a lane, each in the environment of a new user, and wait for them; Ctrl-C ends them."""
    chosen = [kind for kind in KINDS if not asked.only or kind.name in asked.only]
    names = (
        ["all"]
        if asked.one_lane
        else [lane for lane in LANES if any(kind.lane == lane for kind in chosen)]
    )
    if not asked.cron and "schedule" in names:
        names.remove("schedule")
    from dev.tools.forked import die_with

    lanes = [
        subprocess.Popen(
            [sys.executable, "-m", "dev.tools.chaos", *sys.argv[1:], "--lane", name],
            preexec_fn=die_with,
        )
        for name in names
    ]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for name, lane in zip(names, lanes, strict=True):
            if code := lane.wait():
                print(  # noqa: T201
                    f"the lane {name} ended with {code}; start again to go on",
                    file=sys.stderr,
                )
    except KeyboardInterrupt:
        for lane in lanes:
            lane.send_signal(signal.SIGTERM)  # of Ctrl-C it knows
            lane.wait()


def _work(folder: Path, asked: argparse.Namespace) -> None:
    """Make attempts in one lane until the time is over or there are enough of each kind."""
    from dev.tools.chaos.lane import Lane

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    journal = Journal(folder / "journal.jsonl")
    kinds = [
        kind
        for kind in KINDS
        if folder.name in (kind.lane, "all")
        and (not asked.only or kind.name in asked.only)
        if kind.lane != "schedule" or asked.cron
    ]
    done: Counter[str] = Counter()
    number: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for attempt in journal.attempts():
        done[attempt.kind] += attempt.tries
        number[attempt.kind] = max(number[attempt.kind], attempt.number + 1)
    try:
        with Lane(folder).open() as lane:
            until = time.monotonic() + 60 * asked.minutes
            while time.monotonic() < until:
                left = [
                    kind
                    for kind in kinds
                    if done[kind.name] < asked.share * kind.target
                    and faults[kind.name] < 3
                ]
                if not left:
                    return
                kind = min(left, key=lambda kind: done[kind.name] / kind.target)
                attempt = _attempt(
                    lane, kind, number[kind.name], asked.seed, asked.cron
                )
                journal.add(attempt)
                done[kind.name] += attempt.tries
                number[kind.name] += 1
                faults[kind.name] += any(
                    failure.what == FAULT for failure in attempt.failures
                )
                _tell(attempt)
    except KeyboardInterrupt:
        print(  # noqa: T201
            f"the lane {folder.name} was interrupted; start again to go on",
            file=sys.stderr,
        )


def _attempt(
    lane: object, kind: Kind, number: int, seed: int, minutes: float
) -> Attempt:
    """Make one attempt; a fault of the try itself is a failure, too."""
    attempt = Attempt(kind.name, number, seed)
    act = kind.function()
    act = (
        partial(act, minutes=minutes)
        if kind.name == "cron"
        else partial(act, random=Random(f"{seed} {kind.name} {number}"))
    )
    begun = time.monotonic()
    try:
        act(lane, attempt)
    except Exception:
        attempt.failed(FAULT, traceback.format_exc())
    attempt.seconds = round(time.monotonic() - begun, 2)
    return attempt


def _again(folder: Path, which: str, seed: int, minutes: float) -> int:
    """Make one attempt again, in the lane that it was made in."""
    from dev.tools.chaos.lane import Lane

    name, _, number = which.rpartition(":")
    (kind,) = [kind for kind in KINDS if kind.name == name]
    place = folder / "all" if (folder / "all").is_dir() else folder / kind.lane
    with Lane(place).open() as lane:
        attempt = _attempt(lane, kind, int(number), seed, minutes)
    _tell(attempt)
    for failure in attempt.failures:
        print(f"\n{failure.what}: {failure.case}\n{failure.said}")  # noqa: T201
    return int(bool(attempt.failures))


def _tell(attempt: Attempt) -> None:
    counts = Counter(failure.what for failure in attempt.failures)
    failed = ", ".join(f"{what.upper()} ({count})" for what, count in counts.items())
    what = (
        failed
        or attempt.skipped
        or ", ".join(f"{how} ({count})" for how, count in attempt.outcomes.items())
    )
    said = f"{attempt.kind} {attempt.number}: {attempt.case}: {what} ({attempt.seconds:.1f} s)"
    print(said, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(main())
