"""The tile store on real files: values, resuming after a failure, and damage that is named."""

from __future__ import annotations

import json
import math
import os
import pickle
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError
from scipy import sparse

from learnkernels import GaussianFamily, LinearFamily, PolynomialFamily
from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import CompareConfig, DaskConfig
from learnkernels.kernels.families import KernelFamily
from learnkernels.tasks.matrices import store as tilestore
from learnkernels.tasks.matrices.format import MANIFEST, Manifest, StoreSpec
from learnkernels.tasks.matrices.store import TileStore, open_store, plan_store, require_space, write_store
from learnkernels.tasks.workers.cluster import DaskPool
from tests.user import ROOT

N = 61
X = np.random.default_rng(0).normal(size=(N, 4))
FAMILY = GaussianFamily([0.1, 0.2, 1.5])
SHARD = 7 * N * 3 * 8
"""Seven rows of three kernels in float64: nine shards, the last of five rows."""

HERE = DaskPool(DaskConfig(workers=0))
SECOND, THIRD = "rows-000007-000013.arrow", "rows-000014-000020.arrow"


def spec_of(family: KernelFamily = FAMILY, dtype: Any = "float64", data: str = "d1", rows: int = N) -> StoreSpec:
    return StoreSpec({"name": "toy", "digest": data, "rows": rows}, [{"family": repr(family)}], family.names, dtype)


def make(folder: Path, spec: StoreSpec | None = None, rows: Any = X, family: KernelFamily = FAMILY) -> TileStore:
    write_store(plan_store(folder, spec or spec_of(family), SHARD), family, rows, HERE, lambda share: None)
    return open_store(folder, verify="checksums")


@pytest.fixture
def store(tmp_path: Path) -> TileStore:
    return make(tmp_path / "toy")


def whole(store: TileStore) -> np.ndarray:
    return np.concatenate(list(store), axis=1)


def shard_files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("rows-*.arrow")}


# Values --------------------------------------------------------------------------------------------------------------


def test_a_store_holds_the_tile_of_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    some = sparse.csr_matrix(np.where(X > 0.3, X, 0.0))
    for family, rows in ((FAMILY, some), (LinearFamily(), X), (PolynomialFamily([3, 1]), some)):
        found, expected = whole(make(tmp_path / family.names[0], rows=rows, family=family)), family.tile(rows, rows)
        # The same numbers from other blocks: rounding, relative to the largest value.
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * np.abs(expected).max(), err_msg=str(family))
    monkeypatch.setattr(tilestore, "TILE_BYTES", 1)  # the smallest tiles
    rows = np.random.default_rng(1).normal(size=(150, 3))
    spec = spec_of(rows=150)
    write_store(plan_store(tmp_path / "toy", spec, 70 * spec.row_bytes), FAMILY, rows, HERE, lambda share: None)
    store = open_store(tmp_path / "toy")
    np.testing.assert_allclose(whole(store), FAMILY.tile(rows, rows), rtol=0, atol=1e-13)
    np.testing.assert_array_equal(np.einsum("kaa->ka", whole(store)), 1.0)
    assert len(store) == 3


def mapped_file(start: int, last: int) -> str:
    """The file that the system has mapped to two addresses."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, *_, name = line.split(maxsplit=5)
        low, high = (int(end, 16) for end in addresses.split("-"))
        if low <= start and last < high:
            return name
    return "none"


def test_views_lie_in_mapped_files_and_float32_is_the_rounding_of_float64(tmp_path: Path, store: TileStore):
    narrow = make(tmp_path / "narrow", spec_of(dtype="float32"))
    reserved = pa.total_allocated_bytes()
    for opened in (store, narrow):
        for s, shard in enumerate(opened.manifest.shards):
            view = opened[s]
            start, last = view.__array_interface__["data"][0], view[-1, -1, -1:].__array_interface__["data"][0]
            assert mapped_file(start, last) == str(opened.path / shard.file)
            assert not view.flags.writeable
            assert view.flags.aligned
            assert np.shares_memory(opened[s][1], view)
            with pytest.raises(ValueError, match="read-only"):
                view[0, 0, 0] = 1.0
    assert pa.total_allocated_bytes() == reserved  # no copy
    assert not [link for link in Path("/proc/self/fd").iterdir() if os.path.realpath(link).endswith(".arrow")]
    assert narrow[0].dtype == np.float32
    np.testing.assert_array_equal(whole(narrow), whole(store).astype(np.float32))
    narrow_bytes, wide_bytes = (sum(shard.bytes for shard in of.manifest.shards) for of in (narrow, store))
    assert narrow_bytes < 0.7 * wide_bytes


def test_the_family_of_a_store_gives_its_values_and_is_pickled_as_a_path(store: TileStore):
    family = store.family()
    assert family.names == FAMILY.names
    picked = np.array([3.0, 60.0, 8.0])[:, None]
    np.testing.assert_array_equal(family.tile(picked, family.X), whole(store)[:, picked[:, 0].astype(int)])
    sent = pickle.dumps(family.subset([2, 1]))
    assert len(sent) < 2000
    np.testing.assert_array_equal(pickle.loads(sent).tile(family.X, family.X), whole(store)[[2, 1]])
    shutil.rmtree(store.path)
    make(store.path, spec_of(data="d2"))
    with pytest.raises(InputError, match="was replaced by another store"):
        pickle.loads(sent)


def test_matrices_are_the_only_family():
    data = {"name": "n", "datasets": ["wine"], "learners": ["unif"]}
    stored = {"family": "precomputed", "path": "grams"}
    with pytest.raises(ValidationError, match="family precomputed must be the only one"):
        CompareConfig.model_validate(data | {"kernels": [stored, {"family": "linear"}]})
    with pytest.raises(ValidationError, match="unknown key 'columns'; valid keys: family, path"):
        CompareConfig.model_validate(data | {"kernels": [stored | {"columns": ["a"]}]})


# What lies on the disk -----------------------------------------------------------------------------------------------


def test_plain_arrow_files_are_described_by_a_manifest_and_read_elsewhere_by_the_program_of_the_documentation(
    store: TileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    text = (store.path / MANIFEST).read_text()
    content = json.loads(text)
    assert str(store.path.parent) not in text
    assert (content["complete"], content["shape"]) == (True, [3, N, N])
    assert content["kernels"] == list(FAMILY.names)
    assert [shard["rows"] for shard in content["shards"]] == [[s, min(s + 7, N)] for s in range(0, N, 7)]
    assert content["shards"][1]["file"] == SECOND
    names = {path.name for path in store.path.iterdir()}
    assert names == {MANIFEST, ".lock", *(shard["file"] for shard in content["shards"])}
    with pa.memory_map(str(store.path / content["shards"][-1]["file"])) as file:
        reader = pa.ipc.open_file(file)
        assert reader.num_record_batches == 1
        batch = reader.get_batch(0)
    assert batch.schema.names == list(FAMILY.names)
    assert batch.schema.field(0).type == pa.list_(pa.float64(), N)
    about = {key.decode().removeprefix("learnkernels."): of.decode() for key, of in batch.schema.metadata.items()}
    assert (about["store"], about["row_start"], about["row_stop"]) == (store.spec.id, "56", "61")

    expected = whole(store)
    (tmp_path / "grams").mkdir()
    store.path.rename(tmp_path / "grams" / "wine")
    np.testing.assert_array_equal(whole(open_store(tmp_path / "grams" / "wine", verify="checksums")), expected)
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "tile-store.md").read_text(encoding="utf-8")
    (program,) = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    assert len([line for line in program.splitlines() if line.strip()]) <= 5
    found: dict[str, Any] = {}
    exec(program, found)
    np.testing.assert_array_equal(found["K"], expected[0])


def test_a_run_that_failed_goes_on_where_it_was_and_keeps_its_cut(tmp_path: Path):
    class Failing(GaussianFamily):
        def tile(self, A, B, shift=None):
            if (A[0] == X[21]).all():
                raise ValueError("no more")
            return super().tile(A, B, shift)

    folder = tmp_path / "toy"
    with pytest.raises(InputError, match="data set toy: no more"):
        make(folder, spec_of(), family=Failing(FAMILY.gammas))
    before = shard_files(folder)
    assert len(before) == 3
    assert {path.name for path in folder.iterdir()} == {*before, MANIFEST, ".lock"}  # none half-written
    plan = plan_store(folder, spec_of(), shard_bytes=10 * SHARD)
    assert plan.manifest.rows_per_shard == 7
    assert plan.missing[0] == (21, 28)
    make(folder)
    after = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert {name: after[folder / name] for name in before} == before
    make(folder)  # a finished one is left as it is
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == after


# Damage --------------------------------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 100)


def replace_by_foreign(path: Path) -> None:
    shutil.copyfile(make(path.parents[1] / "foreign", spec_of(data="other")).path / path.name, path)


DAMAGED_SHARDS: list[tuple[Callable[[Path], object], Any, str]] = [
    (Path.unlink, "sizes", "the file is missing"),
    (cut, "sizes", r"it has [\d,]+ bytes, not [\d,]+"),
    (lambda path: path.write_bytes(path.read_bytes() + b"more"), "sizes", r"it has [\d,]+ bytes, not [\d,]+"),
    (lambda path: path.write_bytes(bytes(path.stat().st_size)), "sizes", r"it cannot be read as Arrow"),
    (lambda path: shutil.copyfile(path.with_name(SECOND), path), "sizes", "its row_start is 7, not 14"),
    (replace_by_foreign, "sizes", "its store is [0-9a-f]{20}, not [0-9a-f]{20}"),
    (flip, "checksums", "its checksum is not that of the manifest"),
]


def test_a_damaged_shard_is_refused_by_name_and_computed_anew(store: TileStore, subtests: pytest.Subtests):
    expected = whole(store)
    for harm, verify, sentence in DAMAGED_SHARDS:
        with subtests.test(sentence):
            before = shard_files(store.path)
            harm(store.path / THIRD)
            with pytest.raises(InputError, match=rf"{THIRD}: is damaged: {sentence}"):
                open_store(store.path, verify=verify)
            np.testing.assert_array_equal(whole(make(store.path)), expected)
            after = shard_files(store.path)
            assert [name for name in before if after[name] != before[name]] == [THIRD]


def changed(**keys: Any) -> Callable[[Path], object]:
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | keys))


FOREIGN_SHARD = {"file": "../x", "rows": [0, 7], "bytes": 1, "sha256": ""}

DAMAGED_MANIFESTS: list[tuple[Callable[[Path], object], str]] = [
    (Path.unlink, "there is no manifest.json; make the matrices with 'learnkernels gram'"),
    (cut, "is damaged"),
    (changed(version=2), "is not of format learnkernels-tiles, version 1"),
    (changed(kernels=["a", "b", "c"]), "its id does not follow from its content"),
    (changed(rows_per_shard=5), "it lists 'rows-000000-000006.arrow' for rows 0 to 6"),
    (changed(shards=[FOREIGN_SHARD]), "it lists '../x' for rows 0 to 6"),
    (changed(shards=[{}]), "is damaged .KeyError"),
    (changed(dataset={"name": "toy", "digest": "d1", "rows": 10**30}), "its id does not foll"),
    (changed(dataset={"name": "", "digest": "", "rows": math.inf}), "is damaged .OverflowE"),
    (lambda path: path.write_text("[" * 100_000), "is damaged .RecursionError"),
]


def test_a_damaged_manifest_is_refused(store: TileStore, subtests: pytest.Subtests):
    content = (store.path / MANIFEST).read_text()
    for harm, sentence in DAMAGED_MANIFESTS:
        with subtests.test(sentence):
            (store.path / MANIFEST).write_text(content)
            harm(store.path / MANIFEST)
            with pytest.raises(InputError, match=sentence):
                open_store(store.path)


def test_a_store_of_something_else_is_not_touched(store: TileStore, subtests: pytest.Subtests):
    before = shard_files(store.path)
    for other, sentence in [
        (spec_of(data="d2"), "holds matrices of other data .digest d1, not d2.; name another folder with --output"),
        (spec_of(dtype="float32"), "holds matrices of float64, not float32"),
        (spec_of(LinearFamily()), r"of other kernels \(gaussian.*; not linear\)"),
        (StoreSpec(**{**vars(spec_of()), "numerics": 0}), "by another version of the kernels' code"),
    ]:
        with subtests.test(sentence), pytest.raises(InputError, match=sentence):
            plan_store(store.path, other)
    assert shard_files(store.path) == before


# What cannot work ----------------------------------------------------------------------------------------------------


def test_matrices_that_are_not_symmetric_and_values_that_float32_cannot_hold_are_refused(tmp_path: Path):
    class Skewed(GaussianFamily):
        def tile(self, A, B, shift=None):
            return super().tile(A, B, shift) * (1 + A[:, :1])

    skewed, steep = make(tmp_path / "skewed", family=Skewed(FAMILY.gammas)), PolynomialFamily([30])
    with pytest.raises(InputError, match="is not symmetric"):
        skewed.family()
    with pytest.raises(InputError, match=r"data set toy: base kernel polynomial.* float32 cannot hold in rows 0 to"):
        make(tmp_path / "steep", spec_of(steep, "float32"), rows=1e3 * X, family=steep)


def test_a_disk_that_is_too_small_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    free = shutil.disk_usage(tmp_path)._replace(free=100_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    plans = [plan_store(tmp_path / name, spec_of(), SHARD) for name in ("one", "two")]
    require_space(plans[:1])  # 87 kiB each
    with pytest.raises(InputError, match=r"the matrices need 176\.\d+ kiB and 97\.66 kiB are free; name a larger disk"):
        require_space(plans)
    free = free._replace(free=1000)
    with pytest.raises(InputError, match=r"need 88\.\d+ kiB and 0\.98 kiB are free|and 1000 B are free"):
        make(tmp_path / "one")
    assert list(tmp_path.iterdir()) == []


def test_what_another_run_writes_or_has_written_since_the_plan_is_seen(tmp_path: Path):
    with tilestore._sole_writer(tmp_path / "toy"), pytest.raises(InputError, match="another run is writing here"):
        make(tmp_path / "toy")
    plans = [plan_store(tmp_path / name, spec_of(), SHARD) for name in ("other", "same")]
    other = make(tmp_path / "other", spec_of(dtype="float32"))
    same = make(tmp_path / "same")
    before = [shard_files(store.path) for store in (other, same)]
    with pytest.raises(InputError, match="holds matrices of float32, not float64"):
        write_store(plans[0], FAMILY, X, HERE, lambda share: None)
    assert write_store(plans[1], FAMILY, X, HERE, lambda share: None) == (same.manifest, 0)
    assert [shard_files(store.path) for store in (other, same)] == before


def test_links_are_not_followed_and_a_folder_that_cannot_be_written_to_is_one_sentence(
    tmp_path: Path, store: TileStore
):
    precious = tmp_path / "precious"
    precious.write_text("all of it")
    files = [store.path / MANIFEST, store.path / THIRD]
    content = files[0].read_text()
    for file in files:
        file.unlink()
        file.symlink_to(precious)
    with pytest.raises(InputError, match="is damaged"):
        make(store.path)
    files[0].unlink()
    files[0].write_text(content)
    make(store.path)
    assert not any(file.is_symlink() for file in files)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / ".lock").symlink_to(precious)
    (tmp_path / "locked" / ".lock").mkdir(parents=True)
    for name, sentence in {
        "linked": r"linked: cannot be written to \(Too many levels of symbolic links\)",
        "locked": r"locked: cannot be written to \(Is a directory\); name another folder with --outp",
        "precious": "is not a folder, or lies in none",
        "precious/below": "is not a folder, or lies in none",
    }.items():
        with pytest.raises(InputError, match=sentence):
            make(tmp_path / name)
    assert precious.read_text() == "all of it"


def test_a_small_manifest_of_many_rows_takes_no_memory(tmp_path: Path):
    Manifest(spec_of(rows=10**9), 1).write(tmp_path / "toy")
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="is not complete, 0 of 1000000000 shards"):
            open_store(tmp_path / "toy")
        with pytest.raises(InputError, match="holds matrices of 1,000,000,000 rows, not 61"):
            plan_store(tmp_path / "toy", spec_of())
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()
