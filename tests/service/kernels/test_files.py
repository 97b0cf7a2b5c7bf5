"""Files of models in other processes: the same bytes, few imports, and little memory for hostile ones."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dev.tools.mutations import fates
from learnkernels.kernels.files import from_bytes, to_bytes
from tests.unit.kernels.test_model import small
from tests.unit.kernels.test_serialization import opened, sealed

ROOT = Path(__file__).resolve().parents[3]


def output_of(code: str, *arguments: object) -> str:
    """Return what some code prints in a fresh process."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_bytes_of_a_model_do_not_depend_on_the_process(tmp_path: Path):
    path, again = tmp_path / "m.safetensors", tmp_path / "again.safetensors"
    small().save(path)
    output_of(
        "import sys, learnkernels; learnkernels.load(sys.argv[1]).save(sys.argv[2])",
        path,
        again,
    )
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("module", ["files", "model"])
def test_importing_models_loads_no_scikit_learn(module: str):
    heavy = ("sklearn", "pandas", "mlflow")
    code = f"import learnkernels.kernels.{module}, sys; print([name for name in {heavy} if name in sys.modules])"
    assert output_of(code) == "[]"


def header_of(shape: list[int], end: int) -> bytes:
    """Return the header of a file of one array that is said to be of some shape, and to end somewhere."""
    tensor = {"dtype": "F64", "shape": shape, "data_offsets": [0, end]}
    header = json.dumps(
        {"__metadata__": {"learnkernels": "0" * 64 + "{}"}, "X": tensor}
    ).encode()
    return len(header).to_bytes(8, "little") + header


LARGE = 8 << 30
LABELS = {"texts": [99_999, ["no", "yes"] * 5_000]}


def described(place: str, data: object) -> bytes:
    """Return a model file whose description says something else of its estimator."""
    arrays, description = opened(to_bytes(small().estimator))
    for state in description["content"]["record"][1:]:
        if place in state:
            state[place] = data
    return sealed(arrays, json.dumps(description))


@pytest.mark.parametrize(
    "content",
    [
        header_of([10**9], 8 * 10**9) + bytes(800),
        header_of([100], 800) + bytes(792),
        header_of([2**61], 0),
        LARGE.to_bytes(8, "little") + b"{}",
        b"\xff" * 64,
        described("classes_", LABELS),
    ],
    ids=["larger", "shorter", "overflow", "long header", "ones", "labels"],
)
def test_a_file_that_states_more_than_is_there_is_refused_in_little_memory(
    content: bytes,
):
    (fate,) = fates([content], from_bytes, (ValueError,), memory=100 << 20)
    assert fate.kind == "sentence", fate
