"""The benchmark completes, has its columns, and all contestants agree; never a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.moments import COLUMNS

ROOT = Path(__file__).resolve().parents[1]


def test_the_benchmark_of_moments_completes(tmp_path: Path):
    output = tmp_path / "moments.parquet"
    command = [sys.executable, "-m", "benchmarks.moments", "--fast", "--output", str(output)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    table = pq.read_table(output)
    assert table.column_names == COLUMNS
    assert set(table["contestant"].to_pylist()) == {"textbook", "blocked", "learnkernels"}
    # Unshifted sums of the oracles lose digits to cancellation; 1e-9 is far below any wrong formula.
    assert max(table["error"].to_pylist()) < 1e-9
