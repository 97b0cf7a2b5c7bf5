"""What was tried and what came of it: lines of JSON that a second start goes on from, and the report made of them."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

SHOWN = 300
"""Characters of a failure in the report's list; the journal has all."""


@dataclass(frozen=True)
class Failure:
    """Something that must not happen.

    Attributes
    ----------
    what : str
        In a few words, so that failures can be counted by them.
    case : str
        What it happened to.
    said : str
        What the command printed, or the traceback.
    """

    what: str
    case: str
    said: str = ""


@dataclass
class Attempt:
    """One line of the journal: an attempt may be many tries, where each takes
    milliseconds.

    Attributes
    ----------
    kind : str
    number : int
        With the seed it decides everything that is drawn.
    seed : int
    tries : int
    case : str
    failures : list of Failure
    outcomes : dict of str to int
        How many tries ended in which way, of those that did not fail.
    skipped : str
        Why it was not made.
    figures : dict of str to float
        What was measured.
    seconds : float
        How long it took.
    minutes : float
        Of a schedule.
    """

    kind: str
    number: int
    seed: int
    tries: int = 1
    case: str = ""
    failures: list[Failure] = field(default_factory=list)
    outcomes: dict[str, int] = field(default_factory=dict)
    skipped: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    minutes: float = 0.0

    def failed(self, what: str, said: str = "", case: str = "") -> None:
        """Note a failure."""
        self.failures.append(Failure(what, case or self.case, said))

    def ended(self, how: str) -> None:
        """Note how a try ended that did not fail."""
        self.outcomes[how] = self.outcomes.get(how, 0) + 1


class Journal:
    """The attempts of one lane, in a file that only grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, attempt: Attempt) -> None:
        """Append a line and let it reach the disk."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(attempt)) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def attempts(self) -> Iterator[Attempt]:
        """Give what was done so far; a line that a kill has cut off is none."""
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                data: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            yield Attempt(
                **data | {"failures": [Failure(**one) for one in data["failures"]]}
            )


def attempts_in(folder: Path) -> list[Attempt]:
    """Return what all lanes of a folder did."""
    return [
        attempt
        for path in sorted(folder.glob("*/journal.jsonl"))
        for attempt in Journal(path).attempts()
    ]


def table(attempts: Sequence[Attempt]) -> list[str]:
    """Return one row a kind: tries, failures, what happened."""
    lines = ["| kind | tries | failures | what happened |", "|---|---|---|---|"]
    for kind in dict.fromkeys(attempt.kind for attempt in attempts):
        of = [attempt for attempt in attempts if attempt.kind == kind]
        tries = sum(attempt.tries for attempt in of if not attempt.skipped)
        failed = sum(len(attempt.failures) for attempt in of)
        lines.append(f"| {kind} | {tries:,} | {failed:,} | {_happened(of)} |")
    return lines


def _happened(of: Sequence[Attempt]) -> str:
    """Return how tries ended, failures and figures in one cell."""
    parts = []
    outcomes: Counter[str] = Counter()
    for attempt in of:
        outcomes.update(attempt.outcomes)
    parts += [f"{how}: {count:,}" for how, count in outcomes.most_common()]
    failures = Counter(failure.what for attempt in of for failure in attempt.failures)
    parts += [f"**{what}: {count:,}**" for what, count in failures.most_common()]
    for name in dict.fromkeys(name for attempt in of for name in attempt.figures):
        values = [attempt.figures[name] for attempt in of if name in attempt.figures]
        shown = (
            f"{median(values):.3g}, at most {max(values):.3g}"
            if len(values) > 1
            else f"{values[0]:.4g}"
        )
        parts.append(f"{name}: {shown}")
    parts += [
        f"skipped: {reason}"
        for reason in dict.fromkeys(one.skipped for one in of if one.skipped)
    ]
    return "; ".join(parts).replace("|", "\\|")


def report(attempts: Sequence[Attempt], folder: Path) -> str:
    """Return the report: the table, and every failure with the command that repeats it."""
    lines = ["# Kills, signals, damage, two at once", "", *table(attempts), ""]
    failed = [attempt for attempt in attempts if attempt.failures]
    if failed:
        lines += ["## Failures", ""]
    alike: dict[tuple[str, str, str], list[str]] = {}
    for attempt in failed:
        again = _repeating_command(attempt, folder)
        for failure in attempt.failures:
            said = " ".join(failure.said.split())[-SHOWN:]
            line = f"- {failure.what}. {failure.case}. `{again}`" + (
                f": {said}" if said else ""
            )
            alike.setdefault(
                (
                    attempt.kind,
                    failure.what,
                    re.sub(r"[0-9a-f]*\d[0-9a-f]*", "0", said),
                ),
                [],
            ).append(line)
    for first, *further in alike.values():
        lines.append(first + (f" And {len(further):,} alike." if further else ""))
    return "\n".join(lines) + "\n"


def _repeating_command(attempt: Attempt, folder: Path) -> str:
    words = ["python", "-m", "dev.tools.chaos", "--resume", str(folder)]
    words += ["--seed", str(attempt.seed)]
    words += ["--again", f"{attempt.kind}:{attempt.number}"]
    if attempt.minutes:
        words += ["--cron", f"{attempt.minutes:g}"]
    return shlex.join(words)
