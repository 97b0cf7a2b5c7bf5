"""Exported models in a process without the packages that they were fitted with."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.unit.kernels.test_exporting import (
    CLOSE,
    boosted_model,
    new_rows,
    table_of_rows,
)

ALONE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"{name} is blocked")

BLOCKED = {"learnkernels", "numba", "llvmlite", "scipy", "sklearn", "narwhals", "pandas", "polars", "skops"}
sys.meta_path.insert(0, Blocked())
sys.path.insert(0, sys.argv[1])
import numpy as np
import exported_model
rows = np.load(sys.argv[1] + "/rows.npz", allow_pickle=False)
np.save(sys.argv[1] + "/predicted.npy", exported_model.predict({name: rows[name] for name in rows}))
assert not BLOCKED & {name.partition(".")[0] for name in sys.modules}
"""


def test_no_other_package_than_numpy_is_imported(tmp_path: Path):
    table = table_of_rows(300)[
        ["size", "age", "color", "street", "weight", "day", "written"]
    ]
    model = boosted_model(table, 1)
    model.export(tmp_path / "exported_model.py")
    rows = new_rows()[table.columns]
    arrays = {
        name: rows[name].fillna("").to_numpy("U40")
        for name in ("color", "street", "weight", "written")
    }
    arrays |= {name: rows[name].to_numpy(np.float64) for name in ("size", "age")}
    arrays["day"] = rows["day"].to_numpy("M8[us]")
    np.savez(tmp_path / "rows.npz", **arrays)
    subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", ALONE, str(tmp_path)], check=True
    )
    np.testing.assert_allclose(
        np.load(tmp_path / "predicted.npy"), model.predict(rows), **CLOSE
    )
