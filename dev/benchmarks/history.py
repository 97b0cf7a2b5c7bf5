"""What the benchmarks of a folder of results have measured over time, and what became slower."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

KEYS = ("table", "case", "data", "m", "p", "d", "landmarks", "regularization")
"""Columns of a row that tell what was measured; others hold what was found."""

SLOWER = 1.2
"""How many times as long as before is told."""

RUNS = 5
"""Runs before, the newest ones, whose median is what a run is compared with."""


def keep(rows: Sequence[dict[str, Any]], output: Path) -> list[str]:
    """Write the rows of a run, add their seconds to the history beside them, and return
    what became slower.

    Parameters
    ----------
    rows : sequence of dict
        With "seconds" where something was timed.
    output : Path
        File of this run's rows; the history is ``history.parquet`` in its folder.

    Returns
    -------
    slower : list of str
        A sentence each, against earlier runs of the same benchmark on the same machine.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), output)
    file = output.with_name("history.parquet")
    before = pq.read_table(file).to_pylist() if file.exists() else []
    run = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": f"{_processor()}, {os.cpu_count()} cores",
        "benchmark": output.stem,
    }
    now = [
        {**run, "what": _what(row), "seconds": row["seconds"]}
        for row in rows
        if row.get("seconds") is not None
    ]
    aside = file.with_suffix(".new")
    pq.write_table(pa.Table.from_pylist([*before, *now]), aside)
    aside.replace(file)
    return [sentence for one in now if (sentence := _slower(one, before)) is not None]


def tell(rows: Sequence[dict[str, Any]], output: Path) -> None:
    """Do what `keep` does, and print what became slower."""
    slower = keep(rows, output)
    print(  # noqa: T201
        f"written to {output}; {len(slower)} became slower by more than {SLOWER - 1:.0%}",
        *slower,
        sep="\n",
    )


def _what(row: dict[str, Any]) -> str:
    return ", ".join(
        f"{key} {row[key]}" for key in KEYS if row.get(key) not in (None, "")
    )


def _slower(one: dict[str, Any], before: Sequence[dict[str, Any]]) -> str | None:
    same = ("machine", "benchmark", "what")
    seconds = [
        old["seconds"] for old in before if all(old[key] == one[key] for key in same)
    ][-RUNS:]
    if not seconds or one["seconds"] <= SLOWER * (usual := statistics.median(seconds)):
        return None
    return f"slower: {one['what']}: {one['seconds']:.3g} s, {one['seconds'] / usual:.2f} times the {usual:.3g} s before"


def _commit() -> str:
    """Return the commit of this checkout, with a star where files differ from it; nothing where there is none."""
    here = Path(__file__).parent
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty=*"],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def _processor() -> str:
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text(encoding="utf-8").splitlines() if cpus.exists() else []
    named = [
        line.partition(":")[2].strip()
        for line in lines
        if line.startswith("model name")
    ]
    return named[0] if named else platform.processor() or platform.machine()
