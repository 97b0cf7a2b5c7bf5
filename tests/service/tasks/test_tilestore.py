"""The tile store on real files: values, resuming after a kill, and damage that is named."""

from __future__ import annotations

import json
import math
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse

from learnkernels import GaussianFamily, LinearFamily, PolynomialFamily
from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DaskConfig
from learnkernels.kernels.families import KernelFamily
from learnkernels.tasks.matrices import store as tilestore
from learnkernels.tasks.matrices.format import MANIFEST, Manifest, StoreSpec
from learnkernels.tasks.matrices.store import TileStore, open_store, plan_store, require_space, write_store
from learnkernels.tasks.store import TEMPORARY
from learnkernels.tasks.workers.cluster import DaskPool

ROOT = Path(__file__).resolve().parents[3]
N = 61
X = np.random.default_rng(0).normal(size=(N, 4))
FAMILY = GaussianFamily([0.1, 0.2, 1.5])
SHARD = 7 * N * 3 * 8
"""Seven rows of three kernels in float64: nine shards, the last of five rows."""


def spec_of(family: KernelFamily = FAMILY, dtype: Any = "float64", data: str = "d1") -> StoreSpec:
    return StoreSpec({"name": "toy", "digest": data, "rows": N}, [{"family": repr(family)}], family.names, dtype)


def make(folder: Path, spec: StoreSpec | None = None, rows: Any = X, family: KernelFamily = FAMILY) -> TileStore:
    with DaskPool(DaskConfig(workers=0)) as pool:
        write_store(plan_store(folder, spec or spec_of(family), SHARD), family, rows, pool, lambda share: None)
    return open_store(folder, verify="checksums")


@pytest.fixture
def store(tmp_path: Path) -> TileStore:
    return make(tmp_path / "toy")


def whole(store: TileStore) -> np.ndarray:
    return np.concatenate(list(store), axis=1)


def shard_files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("rows-*.arrow")}


# Values --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize(
    "family", [FAMILY, LinearFamily(), PolynomialFamily([3, 1])], ids=["gaussian", "linear", "polynomial"]
)
def test_a_store_holds_the_tile_of_all_rows(tmp_path: Path, family: KernelFamily, kind: str):
    rows = X if kind == "dense" else sparse.csr_matrix(np.where(X > 0.3, X, 0.0))
    store = make(tmp_path / "toy", rows=rows, family=family)
    expected = family.tile(rows, rows)
    # The same numbers from other blocks: rounding, relative to the largest value.
    np.testing.assert_allclose(whole(store), expected, rtol=0, atol=1e-13 * np.abs(expected).max())
    for k in range(family.n_kernels):
        np.testing.assert_array_equal(np.concatenate([block[k] for block in store]), whole(store)[k])


def test_small_tiles_give_the_same_values_and_a_diagonal_of_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tilestore, "TILE_BYTES", 1)
    rows = np.random.default_rng(1).normal(size=(150, 3))
    spec = StoreSpec({"name": "toy", "digest": "d", "rows": 150}, [], FAMILY.names, "float64")
    with DaskPool(DaskConfig(workers=0)) as pool:
        write_store(plan_store(tmp_path / "toy", spec, 70 * spec.row_bytes), FAMILY, rows, pool, lambda share: None)
    store = open_store(tmp_path / "toy")
    np.testing.assert_allclose(whole(store), FAMILY.tile(rows, rows), rtol=0, atol=1e-13)
    np.testing.assert_array_equal(np.einsum("kaa->ka", whole(store)), 1.0)
    assert len(store) == 3


def test_float32_is_the_rounding_of_float64(tmp_path: Path, store: TileStore):
    narrow = make(tmp_path / "narrow", spec_of(dtype="float32"))
    assert narrow[0].dtype == np.float32
    np.testing.assert_array_equal(whole(narrow), whole(store).astype(np.float32))
    narrow_bytes, wide_bytes = (sum(shard.bytes for shard in of.manifest.shards) for of in (narrow, store))
    assert narrow_bytes < 0.7 * wide_bytes


def test_the_family_of_a_store_gives_its_values(store: TileStore):
    family = store.family()
    assert family.names == FAMILY.names
    picked = np.array([3.0, 60.0, 8.0])[:, None]
    i = picked[:, 0].astype(int)
    np.testing.assert_array_equal(family.tile(picked, family.X), whole(store)[:, i])


def test_a_pickled_family_is_a_path_and_maps_the_files_anew(store: TileStore, tmp_path: Path):
    family = store.family().subset([2, 1])
    sent = pickle.dumps(family)
    assert len(sent) < 2000
    np.testing.assert_array_equal(pickle.loads(sent).tile(family.X, family.X), whole(store)[[2, 1]])
    shutil.rmtree(store.path)
    make(store.path, spec_of(data="d2"))
    with pytest.raises(InputError, match="was replaced by another store"):
        pickle.loads(sent)


def test_matrices_that_are_not_symmetric_are_refused(tmp_path: Path):
    class Skewed(GaussianFamily):
        def tile(self, A, B, shift=None):
            return super().tile(A, B, shift) * (1 + A[:, :1])

    with pytest.raises(InputError, match="is not symmetric"):
        make(tmp_path / "toy", family=Skewed(FAMILY.gammas)).family()


# No copies -----------------------------------------------------------------------------------------------------------


def mapped_files() -> list[tuple[int, int, str]]:
    """The address ranges that the system has mapped to files."""
    rows = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    return [(*(int(end, 16) for end in row[0].split("-")), row[5]) for row in rows if len(row) == 6]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_views_lie_inside_the_mapped_files_and_cannot_be_written(tmp_path: Path, dtype: str):
    store = make(tmp_path / "toy", spec_of(dtype=dtype))
    reserved = pa.total_allocated_bytes()
    for s, shard in enumerate(store.manifest.shards):
        view = store[s]
        start, last = view.__array_interface__["data"][0], view[-1, -1, -1:].__array_interface__["data"][0]
        inside = [name for low, high, name in mapped_files() if low <= start and last < high]
        assert inside == [str(store.path / shard.file)]
        assert not view.flags.writeable
        assert view.flags.aligned
        assert np.shares_memory(store[s][1], view)
        with pytest.raises(ValueError, match="read-only"):
            view[0, 0, 0] = 1.0
    assert pa.total_allocated_bytes() == reserved


def test_open_stores_hold_no_file_open(store: TileStore):
    opened = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd.isdigit() and
              os.path.islink(f"/proc/self/fd/{fd}")]  # fmt: skip
    assert not [name for name in opened if name.endswith(".arrow")]


# What lies on the disk -----------------------------------------------------------------------------------------------


def test_the_manifest_describes_the_store_without_its_place(store: TileStore):
    text = (store.path / MANIFEST).read_text()
    content = json.loads(text)
    assert str(store.path.parent) not in text
    assert content["complete"] is True
    assert content["shape"] == [3, N, N]
    assert content["kernels"] == list(FAMILY.names)
    assert [shard["rows"] for shard in content["shards"]] == [[s, min(s + 7, N)] for s in range(0, N, 7)]
    assert content["shards"][1]["file"] == "rows-000007-000013.arrow"
    names = {path.name for path in store.path.iterdir()}
    assert names == {MANIFEST, ".lock", *(shard["file"] for shard in content["shards"])}


def test_a_shard_is_a_plain_arrow_file(store: TileStore):
    shard = store.manifest.shards[-1]
    with pa.memory_map(str(store.path / shard.file)) as file:
        reader = pa.ipc.open_file(file)
        assert reader.num_record_batches == 1
        batch = reader.get_batch(0)
    assert batch.schema.names == list(FAMILY.names)
    assert batch.schema.field(0).type == pa.list_(pa.float64(), N)
    assert batch.schema.metadata[b"learnkernels.store"].decode() == store.spec.id
    assert [batch.schema.metadata[f"learnkernels.row_{end}".encode()] for end in ("start", "stop")] == [b"56", b"61"]


def test_a_moved_store_is_the_same_store(store: TileStore, tmp_path: Path):
    expected = whole(store)
    store.path.rename(tmp_path / "elsewhere")
    np.testing.assert_array_equal(whole(open_store(tmp_path / "elsewhere", verify="checksums")), expected)


def test_the_program_of_the_documentation_reads_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = make(tmp_path / "grams" / "wine")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "tile-store.md").read_text(encoding="utf-8")
    (program,) = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    assert len([line for line in program.splitlines() if line.strip()]) <= 5
    found: dict[str, Any] = {}
    exec(program, found)
    np.testing.assert_array_equal(found["K"], whole(store)[0])


# Resuming ------------------------------------------------------------------------------------------------------------

KILLED = """
import sys, time
from pathlib import Path
from learnkernels.tasks.matrices import store as tilestore
from tests.service.tasks import test_tilestore as case

whole, count = tilestore.file_digest, 0

def half(path):
    global count
    count += 1
    if count == 5:
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)
        print("half", flush=True)
        time.sleep(600)
    return whole(path)

tilestore.file_digest = half
case.make(Path(sys.argv[1]))
"""


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A store whose process was killed while it wrote the fifth shard."""
    folder = tmp_path / "toy"
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder)],
        cwd=ROOT, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline().strip() == b"half"
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    child.stdout.close()
    return folder


def test_a_killed_run_goes_on_where_it_was(killed: Path):
    before = shard_files(killed)
    assert len(before) == 4
    assert [path for path in killed.iterdir() if path.name.startswith(TEMPORARY)]  # what the kill left half-written
    with pytest.raises(InputError, match="is not complete, 4 of 9 shards are there"):
        open_store(killed)
    store = make(killed)
    after = shard_files(killed)
    assert len(after) == 9
    assert {name: after[name] for name in before} == before
    assert {path.name for path in killed.iterdir()} == {*after, MANIFEST, ".lock"}
    np.testing.assert_array_equal(whole(store), whole(make(killed.parent / "fresh")))


def test_a_finished_store_is_left_as_it_is(store: TileStore):
    before = {path: path.stat().st_mtime_ns for path in store.path.iterdir()}
    make(store.path)
    assert {path: path.stat().st_mtime_ns for path in store.path.iterdir()} == before


def test_a_store_that_was_begun_keeps_its_cut(killed: Path):
    plan = plan_store(killed, spec_of(), shard_bytes=10 * SHARD)
    assert plan.manifest.rows_per_shard == 7
    assert plan.missing[0] == (28, 35)


def test_a_failure_leaves_no_half_written_file(tmp_path: Path):
    class Failing(GaussianFamily):
        def tile(self, A, B, shift=None):
            if (A[0] == X[21]).all():
                raise ValueError("no more")
            return super().tile(A, B, shift)

    with pytest.raises(InputError, match="data set toy: no more"):
        make(tmp_path / "toy", family=Failing(FAMILY.gammas))
    assert {path.name for path in (tmp_path / "toy").iterdir()} == {*shard_files(tmp_path / "toy"), MANIFEST, ".lock"}
    assert len(shard_files(tmp_path / "toy")) == 3


# Damage --------------------------------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def scramble(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def swap(path: Path) -> None:
    shutil.copyfile(path.with_name("rows-000007-000013.arrow"), path)


def replace_by_foreign(path: Path) -> None:
    shutil.copyfile(make(path.parents[1] / "foreign", spec_of(data="other")).path / path.name, path)


DAMAGE = [
    (Path.unlink, "sizes", "the file is missing"),
    (cut, "sizes", r"it has [\d,]+ bytes, not [\d,]+"),
    (lengthen, "sizes", r"it has [\d,]+ bytes, not [\d,]+"),
    (scramble, "sizes", r"it cannot be read as Arrow"),
    (swap, "sizes", "its row_start is 7, not 14"),
    (replace_by_foreign, "sizes", "its store is [0-9a-f]{20}, not [0-9a-f]{20}"),
    (flip, "checksums", "its checksum is not that of the manifest"),
]


@pytest.mark.parametrize(("harm", "verify", "sentence"), DAMAGE, ids=lambda value: getattr(value, "__name__", None))
def test_a_damaged_shard_is_refused_by_name_and_computed_anew(store: TileStore, harm, verify: Any, sentence: str):
    expected, before = whole(store), shard_files(store.path)
    harm(store.path / "rows-000014-000020.arrow")
    with pytest.raises(InputError, match=rf"rows-000014-000020\.arrow: is damaged: {sentence}"):
        open_store(store.path, verify=verify)
    np.testing.assert_array_equal(whole(make(store.path)), expected)
    after = shard_files(store.path)
    assert [name for name in before if after[name] != before[name]] == ["rows-000014-000020.arrow"]


def write_json(path: Path, **keys: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (Path.unlink, "there is no manifest.json; make the matrices with 'learnkernels gram'"),
        (cut, "is damaged"),
        (lambda path: write_json(path, version=2), "is not of format learnkernels-tiles, version 1"),
        (lambda path: write_json(path, kernels=["a", "b", "c"]), "its id does not follow from its content"),
        (lambda path: write_json(path, rows_per_shard=5), "it lists 'rows-000000-000006.arrow' for rows 0 to 6"),
        (
            lambda path: write_json(path, shards=[{"file": "../x", "rows": [0, 7], "bytes": 1, "sha256": ""}]),
            "it lists '../x' for rows 0 to 6",
        ),
        (lambda path: write_json(path, shards=[{}]), "is damaged .KeyError"),
        (
            lambda path: write_json(path, dataset={"name": "toy", "digest": "d1", "rows": 10**30}),
            "its id does not foll",
        ),
        (lambda path: write_json(path, dataset={"name": "", "digest": "", "rows": math.inf}), "is damaged .OverflowE"),
        (lambda path: path.write_text("[" * 100_000), "is damaged .RecursionError"),
    ],
)
def test_a_damaged_manifest_is_refused(store: TileStore, harm, sentence: str):
    harm(store.path / MANIFEST)
    with pytest.raises(InputError, match=sentence):
        open_store(store.path)


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (spec_of(data="d2"), "holds matrices of other data .digest d1, not d2.; name another folder with --output"),
        (spec_of(dtype="float32"), "holds matrices of float64, not float32"),
        (spec_of(LinearFamily()), r"of other kernels \(gaussian.*; not linear\)"),
        (StoreSpec(**{**vars(spec_of()), "numerics": 0}), "by another version of the kernels' code"),
    ],
)
def test_a_store_of_something_else_is_not_touched(store: TileStore, other: StoreSpec, sentence: str):
    before = shard_files(store.path)
    with pytest.raises(InputError, match=sentence):
        plan_store(store.path, other)
    assert shard_files(store.path) == before


# What cannot work ----------------------------------------------------------------------------------------------------


def test_values_that_float32_cannot_hold_are_refused(tmp_path: Path):
    family = PolynomialFamily([30])
    with pytest.raises(InputError, match=r"data set toy: base kernel polynomial.* float32 cannot hold in rows 0 to"):
        make(tmp_path / "toy", spec_of(family, "float32"), rows=1e3 * X, family=family)


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


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path):
    with tilestore._sole_writer(tmp_path / "toy"), pytest.raises(InputError, match="another run is writing here"):
        make(tmp_path / "toy")


def test_what_another_run_has_done_since_the_plan_is_seen(tmp_path: Path):
    plans = [plan_store(tmp_path / name, spec_of(), SHARD) for name in ("other", "same")]
    other = make(tmp_path / "other", spec_of(dtype="float32"))
    same = make(tmp_path / "same")
    before = [shard_files(store.path) for store in (other, same)]
    with DaskPool(DaskConfig(workers=0)) as pool:
        with pytest.raises(InputError, match="holds matrices of float32, not float64"):
            write_store(plans[0], FAMILY, X, pool, lambda share: None)
        assert write_store(plans[1], FAMILY, X, pool, lambda share: None) == (same.manifest, 0)
    assert [shard_files(store.path) for store in (other, same)] == before


def test_a_lock_that_is_a_link_leaves_its_target_as_it_is(tmp_path: Path):
    (tmp_path / "precious").write_text("all of it")
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match=r"toy: cannot be written to \(Too many levels of symbolic links\)"):
        make(tmp_path / "toy")
    assert (tmp_path / "precious").read_text() == "all of it"


def test_links_in_the_place_of_files_are_replaced_and_not_followed(tmp_path: Path, store: TileStore):
    (tmp_path / "precious").write_text("all of it")
    names = (MANIFEST, "rows-000014-000020.arrow")
    content = (store.path / MANIFEST).read_text()
    for name in names:
        (store.path / name).unlink()
        (store.path / name).symlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match="is damaged"):
        make(store.path)
    (store.path / MANIFEST).unlink()
    (store.path / MANIFEST).write_text(content)
    make(store.path)
    assert not any((store.path / name).is_symlink() for name in names)
    assert (tmp_path / "precious").read_text() == "all of it"


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path):
    (tmp_path / "toy").write_text("")
    for folder in (tmp_path / "toy", tmp_path / "toy" / "below"):
        with pytest.raises(InputError, match="is not a folder, or lies in none"):
            make(folder)


def test_a_folder_that_cannot_be_written_to_is_one_sentence(tmp_path: Path):
    (tmp_path / "toy" / ".lock").mkdir(parents=True)
    with pytest.raises(
        InputError, match=r"toy: cannot be written to \(Is a directory\); name another folder with --outp"
    ):
        make(tmp_path / "toy")


def test_a_small_manifest_of_many_rows_takes_no_memory(tmp_path: Path):
    spec = StoreSpec({"name": "toy", "digest": "d1", "rows": 10**9}, spec_of().families, FAMILY.names, "float64")
    Manifest(spec, 1).write(tmp_path / "toy")
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="is not complete, 0 of 1000000000 shards"):
            open_store(tmp_path / "toy")
        with pytest.raises(InputError, match="holds matrices of 1,000,000,000 rows, not 61"):
            plan_store(tmp_path / "toy", spec_of())
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()


# Workers -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pool() -> Iterator[DaskPool]:
    with DaskPool(DaskConfig.model_validate({"workers": 2, "memory": "1GiB"})) as pool:
        yield pool


@pytest.mark.parametrize("place", ["on this machine", "elsewhere"])
def test_workers_make_the_same_files(
    tmp_path: Path, store: TileStore, pool: DaskPool, scheduler_elsewhere: str, place: str
):
    shares: list[float] = []
    elsewhere = DaskPool(DaskConfig(scheduler=scheduler_elsewhere))
    with elsewhere if place == "elsewhere" else _Kept(pool) as workers:
        write_store(plan_store(tmp_path / "far", spec_of(), SHARD), FAMILY, X, workers, shares.append)
    assert open_store(tmp_path / "far", verify="checksums").manifest == store.manifest
    assert sum(shares) == pytest.approx(1.0)
    assert len(shares) == 9


def test_a_failure_on_a_worker_is_one_sentence(tmp_path: Path, pool: DaskPool):
    family = PolynomialFamily([30])
    with pytest.raises(InputError, match="float32 cannot hold"):
        write_store(
            plan_store(tmp_path / "toy", spec_of(family, "float32"), SHARD), family, 1e3 * X, pool, lambda share: None
        )


def test_workers_that_end_again_and_again_are_one_sentence(tmp_path: Path, pool: DaskPool):
    class Fatal(GaussianFamily):
        def tile(self, A, B, shift=None):
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(InputError, match="a shard ended its worker process, probably for want of memory"):
        write_store(plan_store(tmp_path / "toy", spec_of(), SHARD), Fatal(FAMILY.gammas), X, pool, lambda share: None)


def test_a_family_of_a_store_travels_to_workers(store: TileStore, pool: DaskPool):
    family = store.family()
    future = pool.client.submit(family.tile, family.X, family.X, pure=False)
    np.testing.assert_array_equal(future.result(timeout=60), whole(store))


class _Kept:
    """A pool that is not closed at the end of the block."""

    def __init__(self, pool: DaskPool) -> None:
        self._pool = pool

    def __enter__(self) -> DaskPool:
        return self._pool

    def __exit__(self, *_: Any) -> None:
        return None
