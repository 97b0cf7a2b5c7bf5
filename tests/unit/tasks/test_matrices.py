"""Matrices of base kernels on real files: values, continuing after a failure, and damage that is named."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prefect.logging import disable_run_logger
from pydantic import ValidationError
from scipy import sparse

from learnkernels import GaussianFamily, LinearFamily, PolynomialFamily
from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import CompareConfig, DaskConfig
from learnkernels.kernels.families import KernelFamily
from learnkernels.tasks.measure import matrices
from learnkernels.tasks.measure.matrices import INDEX, MatrixIndex, StoredMatrices, begun, require_space, write_matrices
from learnkernels.tasks.workers.cluster import DaskPool
from tests.refusals import require_refusals
from tests.unit.conftest import peak_of
from tests.user import ROOT

N = 61
X = np.random.default_rng(0).normal(size=(N, 4))
FAMILY = GaussianFamily([0.1, 0.2, 1.5])
HERE = DaskPool(DaskConfig(workers=0))


def index_of(family: KernelFamily = FAMILY, dtype: Any = "float64", data: str = "d1", rows: int = N) -> MatrixIndex:
    """Strips of seven rows: nine of 61 rows, the last of five."""
    made_of = {"families": [{"family": repr(family)}], "kernels": family.names}
    return MatrixIndex(dataset="toy", data_digest=data, n_rows=rows, dtype=dtype, strip_rows=7, **made_of)


def written(folder: Path, index: Any = None, rows: Any = X, family: KernelFamily = FAMILY, pool: Any = HERE) -> str:
    with disable_run_logger():
        return write_matrices(folder, begun(folder, index or index_of(family)), family, rows, pool, lambda _: None)


def make(folder: Path, *args: Any, **keys: Any) -> StoredMatrices:
    written(folder, *args, **keys)
    stored = StoredMatrices(folder)
    stored.require_whole()
    return stored


@pytest.fixture
def stored(tmp_path: Path) -> StoredMatrices:
    return make(tmp_path / "toy")


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.npy")}


# Values --------------------------------------------------------------------------------------------------------------


def test_matrices_are_the_tile_of_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    some = sparse.csr_matrix(np.where(X > 0.3, X, 0.0))
    for family, rows in ((FAMILY, some), (LinearFamily(), X), (PolynomialFamily([3, 1]), some)):
        found, expected = np.stack(make(tmp_path / family.names[0], rows=rows, family=family)), family.tile(rows, rows)
        # The same numbers from other blocks: rounding, relative to the largest value.
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * np.abs(expected).max(), err_msg=str(family))
    monkeypatch.setattr(matrices, "TILE_BYTES", 1)  # the smallest tiles
    rows = np.random.default_rng(1).normal(size=(150, 3))
    found = np.stack(make(tmp_path / "toy", index_of(rows=150).model_copy(update={"strip_rows": 70}), rows))
    np.testing.assert_allclose(found, FAMILY.tile(rows, rows), rtol=0, atol=1e-13)
    np.testing.assert_array_equal(np.einsum("kaa->ka", found), 1.0)


def test_matrices_are_mapped_and_float32_is_the_rounding_of_float64(tmp_path: Path, stored: StoredMatrices):
    narrow = make(tmp_path / "narrow", index_of(dtype="float32"))
    for opened in (stored, narrow):
        for k, matrix in enumerate(opened):
            assert isinstance(matrix, np.memmap)
            assert matrix.filename == opened.folder / f"{k:03d}.npy"
            assert not matrix.flags.writeable
    np.testing.assert_array_equal(np.stack(narrow), np.stack(stored).astype(np.float32))
    assert len(files_of(narrow.folder)["000.npy"]) < 0.7 * len(files_of(stored.folder)["000.npy"])


def test_the_family_gives_the_values_and_is_pickled_as_a_path(stored: StoredMatrices):
    family, expected = stored.family(), np.stack(stored)
    assert family.names == FAMILY.names
    picked = np.array([3.0, 60.0, 8.0])[:, None]
    np.testing.assert_array_equal(family.tile(picked, family.X), expected[:, picked[:, 0].astype(int)])
    sent = pickle.dumps(family.subset([2, 1]))
    assert len(sent) < 2000
    np.testing.assert_array_equal(pickle.loads(sent).tile(family.X, family.X), expected[[2, 1]])
    shutil.rmtree(stored.folder)
    make(stored.folder, index_of(data="d2"))
    with pytest.raises(InputError, match="was replaced by other matrices"):
        pickle.loads(sent)


def test_matrices_are_the_only_family():
    data = {"name": "n", "datasets": ["wine"], "learners": ["unif"]}
    given = {"family": "precomputed", "path": "grams"}
    with pytest.raises(ValidationError, match="family precomputed must be the only one"):
        CompareConfig.model_validate(data | {"kernels": [given, {"family": "linear"}]})
    with pytest.raises(ValidationError, match="unknown key 'columns'; valid keys: family, path"):
        CompareConfig.model_validate(data | {"kernels": [given | {"columns": ["a"]}]})


def test_files_are_described_by_the_index_and_read_by_the_program_of_the_documentation(stored, tmp_path, monkeypatch):
    text = (stored.folder / INDEX).read_text()
    content = json.loads(text)
    assert str(stored.folder.parent) not in text
    assert (content["n_rows"], content["kernels"]) == (N, list(FAMILY.names))
    assert list(content["strips"]) == [str(start) for start in range(0, N, 7)]
    assert {path.name for path in stored.folder.iterdir()} == {INDEX, ".lock", "000.npy", "001.npy", "002.npy"}
    expected = np.array(stored[0])
    (tmp_path / "grams").mkdir()
    stored.folder.rename(tmp_path / "grams" / "wine")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "tile-store.md").read_text(encoding="utf-8")
    (program,) = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    found: dict[str, Any] = {}
    exec(program, found)
    np.testing.assert_array_equal(found["K"], expected)


def test_a_run_that_failed_continues_where_it_was(tmp_path: Path):
    computed: list[int] = []

    class Watched(GaussianFamily):
        def tile(self, A, B, shift=None):
            computed.append(int(np.flatnonzero((A[0] == X).all(axis=1))[0]))
            if computed[-1] == 21 and failing:
                raise InputError("no more.")
            return super().tile(A, B, shift)

    folder, family, failing = tmp_path / "toy", Watched(FAMILY.gammas), True
    with pytest.raises(InputError, match=r"no more"):
        written(folder, family=family, index=index_of())
    with pytest.raises(InputError, match="is not complete, 3 of 9 strips are there"):
        StoredMatrices(folder)
    failing = False
    computed.clear()
    said = written(folder, index_of().model_copy(update={"strip_rows": 10}), family=family)  # it keeps its own cut
    assert said == "toy: 3 matrices of 61 rows, 6 strips written, 3 kept"
    assert set(computed) == set(range(21, N, 7))
    assert files_of(folder) == files_of(make(tmp_path / "fresh").folder)
    assert written(folder, index_of()).endswith("0 strips written, 9 kept")


# Damage --------------------------------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-N * 8 * 20] ^= 1  # in row 41
    path.write_bytes(content)


def save(path: Path, values: np.ndarray) -> None:
    path.unlink()
    np.save(path, values)


DAMAGED_FILES: list[tuple[Callable[[Path], object], str, int]] = [
    (flip, r"toy: is damaged .the checksum of rows 35 to 41", 8),
    (Path.unlink, r"001.npy: is damaged .No such file", 0),
    (lambda path: os.truncate(path, 5000), r"001.npy: is damaged .mmap length", 0),
    (lambda path: path.write_bytes(bytes(5000)), r"001.npy: is damaged", 0),
    (lambda path: save(path, np.eye(N - 1)), r"001.npy: is damaged .it has shape .60, 60. and type float64", 0),
    (lambda path: save(path, np.float32(np.eye(N))), r"001.npy: is damaged .it has shape .61, 61. and type flo", 0),
]


def test_a_damaged_file_is_refused_by_name_and_computed_anew(stored: StoredMatrices):
    expected = files_of(stored.folder)
    for harm, sentence, kept in DAMAGED_FILES:
        harm(stored.folder / "001.npy")
        require_refusals([(lambda: StoredMatrices(stored.folder).require_whole(), sentence)], error=InputError)
        assert written(stored.folder).endswith(f" {kept} kept"), sentence
        assert files_of(stored.folder) == expected, sentence


def changed(**keys: Any) -> Callable[[Path], object]:
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | keys))


DAMAGED_INDEXES: list[tuple[Callable[[Path], object], str]] = [
    (Path.unlink, "there is no index.json; make the matrices with 'learnkernels gram'"),
    (lambda path: os.truncate(path, path.stat().st_size - 100), "is damaged"),
    (changed(version=3), "version Input should be 2"),
    (changed(kernels=[]), "kernels Tuple should have at least 1 item"),
    (changed(strip_rows=5), "it lists strips of other rows"),
    (changed(strips={"3": ""}), "it lists strips of other rows"),
    (changed(n_rows=-1), "n_rows Input should be greater than 0"),
    (changed(dtype="object"), "dtype Input should be 'float64' or 'float32'"),
    (lambda path: path.write_text("[" * 100_000), "recursion limit exceeded"),
]


def test_a_damaged_index_is_refused(stored: StoredMatrices):
    content = (stored.folder / INDEX).read_text()

    def harmed(harm: Callable[[Path], object]) -> None:
        (stored.folder / INDEX).write_text(content)
        harm(stored.folder / INDEX)
        StoredMatrices(stored.folder)

    table = [*((partial(harmed, harm), sentence) for harm, sentence in DAMAGED_INDEXES)]
    require_refusals(table, error=InputError)


def test_matrices_of_something_else_are_not_touched(stored: StoredMatrices):
    before = files_of(stored.folder)
    table = [
        (index_of(data="d2"), "holds matrices whose data_digest is d1, not d2; choose another output folder"),
        (index_of(dtype="float32"), "whose dtype is float64, not float32"),
        (index_of(LinearFamily()), r"whose kernels is .*gaussian.*, not .*linear.*"),
        (index_of().model_copy(update={"numerics": 0}), "whose numerics is"),
        (index_of(rows=10**9), "whose n_rows is 61, not 1000000000"),
    ]
    require_refusals(((partial(begun, stored.folder, other), said) for other, said in table), error=InputError)
    assert files_of(stored.folder) == before


# What cannot work ----------------------------------------------------------------------------------------------------


def test_matrices_that_are_not_symmetric_and_values_that_float32_cannot_hold_are_refused(tmp_path: Path):
    class Skewed(GaussianFamily):
        def tile(self, A, B, shift=None):
            return super().tile(A, B, shift) * (1 + A[:, :1])

    skewed, steep = make(tmp_path / "skewed", family=Skewed(FAMILY.gammas)), PolynomialFamily([30])
    with pytest.raises(InputError, match="is not symmetric"):
        skewed.family()
    with pytest.raises(InputError, match=r"data set toy: base kernel polynomial.* float32 cannot hold in rows 0 to"):
        make(tmp_path / "steep", index_of(steep, "float32"), rows=1e3 * X, family=steep)


def test_a_disk_that_is_too_small_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    free = shutil.disk_usage(tmp_path)._replace(free=100_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    places = [(tmp_path / name, index_of()) for name in ("one", "two")]
    require_space(places[:1])  # 87 kiB each
    begun_already = {start: "" for start in range(0, 35, 7)}  # five of nine strips
    require_space([(folder, index.model_copy(update={"strips": begun_already})) for folder, index in places])
    with pytest.raises(InputError, match=r"the matrices need 176\.\d+ kiB and 97\.66 kiB are free; choose an output"):
        require_space(places)
    free = free._replace(free=1000)
    with pytest.raises(InputError, match=r"need 88\.\d+ kiB and 0\.98 kiB are free|and 1000 B are free"):
        make(tmp_path / "one")
    assert list(tmp_path.iterdir()) == []


def test_what_another_run_writes_or_has_written_since_is_seen(tmp_path: Path):
    with matrices._only_writer(tmp_path / "toy"), pytest.raises(InputError, match="another run is writing here"):
        make(tmp_path / "toy")
    indexes = [begun(tmp_path / name, index_of()) for name in ("other", "same")]
    make(tmp_path / "other", index_of(dtype="float32"))
    make(tmp_path / "same")
    before = [files_of(tmp_path / name) for name in ("other", "same")]
    with pytest.raises(InputError, match="whose dtype is float32, not float64"):
        write_matrices(tmp_path / "other", indexes[0], FAMILY, X, HERE, lambda share: None)
    said = write_matrices(tmp_path / "same", indexes[1], FAMILY, X, HERE, lambda share: None)
    assert said.endswith("0 strips written, 9 kept")
    assert [files_of(tmp_path / name) for name in ("other", "same")] == before


def test_links_are_not_followed_and_a_folder_that_cannot_be_written_to_is_one_sentence(tmp_path, stored):
    precious, expected = tmp_path / "precious", files_of(stored.folder)
    shutil.copy(stored.folder / "001.npy", precious)
    flip(precious)
    content = precious.read_bytes()
    (stored.folder / "001.npy").unlink()
    (stored.folder / "001.npy").symlink_to(precious)
    make(stored.folder)
    assert files_of(stored.folder) == expected
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / ".lock").symlink_to(precious)
    (tmp_path / "locked" / ".lock").mkdir(parents=True)
    refused = {
        "linked": r"linked: cannot be written to \(Too many levels of symbolic links\); name another folder",
        "locked": r"locked: cannot be written to \(Is a directory\); give the name of a file",
        "precious": r"cannot be written to \(File exists\); give another name",
        "precious/below": r"cannot be written to \(Not a directory\); give a path whose folders",
    }
    require_refusals(((partial(make, tmp_path / name), said) for name, said in refused.items()), error=InputError)
    assert precious.read_bytes() == content


def test_a_small_index_of_many_rows_takes_no_memory(tmp_path: Path):
    index_of(rows=10**9).model_copy(update={"strip_rows": 1}).write(tmp_path / "toy")

    def read() -> None:
        with pytest.raises(InputError, match="is not complete, 0 of 1000000000 strips"):
            StoredMatrices(tmp_path / "toy")
        with pytest.raises(InputError, match="whose n_rows is"):
            begun(tmp_path / "toy", index_of())

    assert peak_of(read) < 1e6
