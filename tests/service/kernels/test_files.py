"""Files of models in other processes: the same bytes, few imports, and little memory for hostile ones."""

import json
import struct
import subprocess
import sys
import tracemalloc
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZipFile

import numpy as np
import pytest

from dev.tools.mutations import fates
from learnkernels.kernels.files import FORMAT, VERSION, from_bytes, to_bytes
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


def list_node(*parts: dict[str, Any]) -> dict[str, Any]:
    """Return the node of a list in a skops archive."""
    kind = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode"}
    return {**kind, "content": list(parts), "protocol": 2}


def array_node(identity: int, **state: Any) -> dict[str, Any]:
    """Return the node of an array in a skops archive, by default in the member 0.npy."""
    kind = {"__class__": "ndarray", "__module__": "numpy", "__loader__": "NdArrayNode"}
    return {
        **kind,
        "type": "numpy",
        "file": "0.npy",
        "__id__": identity,
        **state,
    }


def zeros(megabytes: int) -> bytes:
    """Return a file of NumPy, of zeros."""
    file = BytesIO()
    np.save(file, np.zeros(megabytes << 20, np.uint8))
    return file.getvalue()


def trees_of(
    schema: bytes, member: bytes = zeros(0), compression: int = ZIP_DEFLATED
) -> bytes:
    """Return a model file whose trees are a skops archive of a description and an array."""
    file = BytesIO()
    with ZipFile(file, "w", compression) as archive:
        archive.writestr("0.npy", member)
        archive.writestr("schema.json", schema)
    return model_file(file.getvalue())


def model_file(archive: bytes) -> bytes:
    content = {"estimator": {"array": "trees"}}
    description = {"format": FORMAT, "version": VERSION, "content": content}
    return sealed({"trees": np.frombuffer(archive, np.uint8)}, json.dumps(description))


def with_small_sizes(content: bytes, size: int) -> bytes:
    """Return a model file whose archive says that a member of some size has 1,000 bytes."""
    arrays, _ = opened(content)
    archive = arrays["trees"].tobytes()
    said = struct.pack("<L", size)
    assert archive.count(said) == 2
    return model_file(archive.replace(said, struct.pack("<L", 1000)))


def nested_lists(depth: int, *said: dict[str, Any]) -> dict[str, Any]:
    """Return the node of an array of lists, each of which has the next one 300 times.

    With parts `said`, its shape seems to be these, and is that of an earlier node.
    """
    number = {"__class__": "int", "__module__": "builtins", "__loader__": "JsonNode"}
    lists = list_node({**number, "content": "1", "is_json": True})
    lists["__id__"] = 1
    for level in range(2, depth + 1):
        lists = list_node(lists, *[{"__id__": level - 1}] * 299)
        lists["__id__"] = level
    shape = {**list_node(*[list_node()] * depth), "__id__": "shape"}
    array = array_node(depth + 1, type="json", content=[lists], shape=shape)
    if not said:
        return array
    return list_node(shape, {**array, "shape": {**shape, "content": said}})


def of(node: dict[str, Any]) -> bytes:
    """Return the description of a skops archive."""
    return json.dumps({**node, "protocol": 2}).encode()


def deflated_zeros() -> bytes:
    """Return the compressed file of a sparse matrix."""
    file = BytesIO()
    np.savez_compressed(file, format=b"csr", data=np.zeros(120 << 20, np.uint8))
    return file.getvalue()


MASKED = {"__class__": "MaskedArray", "__module__": "numpy.ma", "__loader__": "MaskedArrayNode"}  # fmt: skip
SPARSE = {"__class__": "spmatrix", "__module__": "scipy.sparse._matrix", "__loader__": "SparseMatrixNode",
          "type": "scipy", "file": "0.npy"}  # fmt: skip

HOSTILE_TREES = {
    "array": lambda: trees_of(of(array_node(1)), zeros(120)),
    "several nodes": lambda: trees_of(
        of(list_node(*map(array_node, range(15)))), zeros(10)
    ),
    "nodes without numbers": lambda: trees_of(
        of(list_node(*[array_node(None)] * 15)), zeros(10)
    ),
    "description": lambda: trees_of(b"[" + b"{}," * (2 << 20) + b"{}]"),
    "sizes": lambda: with_small_sizes(
        trees_of(of(array_node(1)), zeros(120)), len(zeros(120))
    ),
    "bzip2": lambda: trees_of(of(array_node(1)), zeros(120), ZIP_BZIP2),
    "header": lambda: trees_of(
        of(array_node(1)), zeros(1).replace(b"(1048576,)", b"(104857600000,)")
    ),
    "no bytes": lambda: trees_of(
        of(array_node(1, __class__="void")),
        zeros(0).replace(b"|u1", b"|S0").replace(b"(0,)", b"(1048576000,)"),
    ),
    "sparse": lambda: trees_of(of(SPARSE), deflated_zeros()),
    "masks": lambda: trees_of(
        of(
            list_node(
                *[{**MASKED, "content": {"data": array_node(1), "mask": array_node(1)}}]
                * 15
            )
        ),
        zeros(10),
    ),
    "lists of lists": lambda: trees_of(of(nested_lists(4))),
    "a shape twice": lambda: trees_of(of(nested_lists(4, list_node()))),
    "objects": lambda: trees_of(of(array_node(1, __class__="object_")), zeros(15)),
}
"""Small model files whose trees would take hundreds of megabytes."""


@pytest.mark.parametrize("name", HOSTILE_TREES)
def test_trees_that_take_much_memory_are_refused_in_little(name: str):
    content = HOSTILE_TREES[name]()
    assert len(content) < 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(
            ValueError, match=r"holds no sound model \((its trees|Bad CRC-32) "
        ) as caught:
            from_bytes(content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 << 20, caught.value
