"""Files of kernels and models in other processes: the same bytes, few imports, and little memory for hostile ones."""

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np

from dev.tools.mutations import Fate, fates
from learnkernels.kernels.persistence.kernel import SEAL_LENGTH
from learnkernels.kernels.persistence.model import save_model
from tests.unit.kernels.test_model import loaded, resealed, small
from tests.unit.kernels.test_serialization import loaded as kernel_loaded

ROOT = Path(__file__).resolve().parents[3]
COMPRESSED = "the file was not written by save_{}: its arrays are compressed."


def output_of(code: str, *arguments: object) -> str:
    """Return what some code prints in a fresh process."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def fate_of(content: bytes, read) -> Fate:
    """Return what becomes of a process of little memory that reads a file."""
    (fate,) = fates([content], read, (ValueError,), memory=100 << 20)
    return fate


def test_bytes_of_a_model_do_not_depend_on_the_process(tmp_path: Path):
    path, again = tmp_path / "m.npz", tmp_path / "again.npz"
    save_model(small(), path)
    imported = "import sys; from learnkernels.kernels.persistence.model import load_model, save_model"
    output_of(f"{imported}; save_model(load_model(sys.argv[1]), sys.argv[2])", path, again)
    assert again.read_bytes() == path.read_bytes()


def test_importing_models_loads_no_scikit_learn():
    heavy = ("sklearn", "pandas", "mlflow")
    code = f"import learnkernels.kernels.persistence.model, sys; print([one for one in {heavy} if one in sys.modules])"
    assert output_of(code) == "[]"


def test_compressed_arrays_are_refused_before_they_take_memory():
    file = io.BytesIO()
    np.savez_compressed(file, X=np.zeros((1 << 26, 1)))
    assert len(file.getvalue()) < 1 << 20
    fate = fate_of(file.getvalue(), kernel_loaded)
    assert (fate.kind, fate.text) == ("sentence", COMPRESSED.format("kernel"))
    with zipfile.ZipFile(file, "a") as archive:
        archive.comment = bytes(SEAL_LENGTH)
    # Sealed as `pack` seals, it is refused by its list of members.
    fate = fate_of(resealed(file.getvalue()), loaded)
    assert (fate.kind, fate.text) == ("sentence", COMPRESSED.format("model"))


def test_an_array_that_states_more_than_is_there_is_refused():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 8)})
        archive.writestr("X.npy", header.getvalue() + bytes(800))
    fate = fate_of(file.getvalue(), kernel_loaded)
    assert fate.kind == "sentence"
    assert "'X.npy' of the file must be a plain array" in fate.text
