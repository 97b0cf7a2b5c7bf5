"""Boosted trees of scikit-learn in model files, in the format of skops."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

TRUSTED = (
    "functools.partial",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.utils.validation.check_array",
)
"""Types of histogram-based gradient boosting trusted in addition to skops.

A `partial` calls only trusted functions.
"""

SCHEMA = "schema.json"
"""Name of the description in a skops archive."""

LEAST_LIMIT = 16 << 20
"""Bytes to which any archive may decompress."""

LEAST_SCHEMA_LIMIT = 2 << 20

MOST_EXPANSION = 16
"""Most bytes per byte of an archive; trees have up to 7."""

MOST_SCHEMA_EXPANSION = 8
"""Most bytes of the description per byte of an archive; trees have up to 5."""

MOST_SCALAR_BYTES = 1024
"""Largest file of a scalar of NumPy."""


def estimator_to_array(estimator: BaseEstimator) -> np.ndarray:
    """Return an estimator as bytes of a skops file; ValueError for untrusted types."""
    import skops.io

    content = skops.io.dumps(estimator)
    unknown = sorted(set(skops.io.get_untrusted_types(data=content)) - set(TRUSTED))
    if unknown:
        raise ValueError(
            f"a {type(estimator).__name__} cannot be saved, as its parts {', '.join(unknown):.100} are not trusted in "
            "files; use boosted trees of scikit-learn."
        )
    members = _with_fixed_names(content)
    archive = _archive(members, ZIP_DEFLATED)
    if _is_too_large(members, len(archive)):
        archive = _archive(members, ZIP_STORED)
    return np.frombuffer(archive, dtype=np.uint8)


def estimator_from_array(content: np.ndarray) -> BaseEstimator:
    """Return the estimator in the bytes of a skops file; ValueError if untrusted."""
    import skops.io
    from sklearn.base import BaseEstimator

    archive = _bounded_archive(content.tobytes())
    estimator = skops.io.loads(archive, trusted=list(TRUSTED))
    if not isinstance(estimator, BaseEstimator):
        raise ValueError(f"an estimator is expected, got a {type(estimator).__name__}")
    return estimator


def _bounded_archive(content: bytes) -> bytes:
    """Return an archive uncompressed; ValueError if skops would take much memory."""
    members = _read_members(content)
    if _is_too_large(members, len(content)):
        raise ValueError("its trees have too long a description")
    _require_small_nodes(members)
    for name, member in members.items():
        if name != SCHEMA:
            _require_array(member)
    return _archive(members, ZIP_STORED)


def _read_members(content: bytes) -> dict[str, bytes]:
    limit = max(LEAST_LIMIT, MOST_EXPANSION * len(content))
    members = {}
    with ZipFile(BytesIO(content)) as archive:
        for entry in archive.infolist():
            # Other methods decompress without a limit
            if entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                raise ValueError("its trees are compressed by another method")
            # The size in the archive may be wrong
            with archive.open(entry) as file:
                member = file.read(limit + 1)
            limit -= len(member)
            if limit < 0:
                raise ValueError("its trees decompress to too many bytes")
            members[entry.filename] = member
    return members


def _is_too_large(members: Mapping[str, bytes], archive_bytes: int) -> bool:
    limit = max(LEAST_LIMIT, MOST_EXPANSION * archive_bytes)
    schema_limit = max(LEAST_SCHEMA_LIMIT, MOST_SCHEMA_EXPANSION * archive_bytes)
    return (
        sum(map(len, members.values())) > limit or len(members[SCHEMA]) > schema_limit
    )


def _require_array(member: bytes) -> None:
    """Raise ValueError unless a NumPy file has its header's number of bytes."""
    file = BytesIO(member)
    np.lib.format.read_magic(file)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    stated = math.prod(shape) * dtype.itemsize
    if not dtype.itemsize or file.tell() + stated != len(member):
        raise ValueError("its trees have an array of another size than stated")


def _require_small_nodes(members: Mapping[str, bytes]) -> None:
    """Raise ValueError if nodes would copy or repeat the content of others."""
    nodes = list(_nodes(json.loads(members[SCHEMA])))
    frequencies = Counter(node.get("__id__") for node in nodes)
    for node in nodes:
        if node["__loader__"] in ("MaskedArrayNode", "SparseMatrixNode"):
            raise ValueError("its trees have masked or sparse arrays")
        if node.get("type") == "json" and not _is_flat(node, frequencies):
            raise ValueError("its trees have a matrix of objects")
    _require_own_arrays([node for node in nodes if "file" in node], members)


def _require_own_arrays(
    nodes: Sequence[Mapping[str, Any]], members: Mapping[str, bytes]
) -> None:
    identities: dict[str, object] = {}
    for node in nodes:
        name, identity = node["file"], node.get("__id__")
        if identity is None or identities.setdefault(name, identity) != identity:
            raise ValueError("its trees have several nodes for one array")
        is_scalar = node["__class__"] != "ndarray"
        if is_scalar and len(members[name]) > MOST_SCALAR_BYTES:
            raise ValueError("its trees have an array in place of a scalar")


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    parts = [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts.extend(part)
        if isinstance(part, dict):
            parts.extend(part.values())
            if "__loader__" in part:
                yield part


def _is_flat(node: Mapping[str, Any], frequencies: Mapping[object, int]) -> bool:
    """Return whether an array of objects has one dimension."""
    shape = node["shape"]
    # Nodes of an earlier number are that node, whatever their content
    is_new = frequencies[shape.get("__id__")] == 1
    return is_new and len(shape["content"]) == 1


def _with_fixed_names(content: bytes) -> dict[str, bytes]:
    """Return the members of a skops archive with numbered names."""
    with ZipFile(BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    numbers: dict[str, str] = {}

    def numbered(match: re.Match[str]) -> str:
        return match[1] + numbers.setdefault(match[2], str(len(numbers)))

    schema = re.sub(
        r'("__id__": |"file": ")(\d+)', numbered, files.pop(SCHEMA).decode()
    )
    renamed = {
        f"{numbers[name.removesuffix('.npy')]}.npy": array
        for name, array in files.items()
    }
    members = {name: renamed[name] for name in sorted(renamed)}
    members[SCHEMA] = schema.encode()
    return members


def _archive(members: Mapping[str, bytes], compression: int) -> bytes:
    """Return members as a ZIP archive with a fixed date."""
    content = BytesIO()
    with ZipFile(content, "w") as archive:
        for name, member in members.items():
            archive.writestr(ZipInfo(name), member, compression)
    return content.getvalue()
