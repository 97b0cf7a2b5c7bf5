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
from learnkernels.tasks.measure.matrices import (
    INDEX,
    MatrixIndex,
    StoredMatrices,
    require_space,
    write_matrices,
)
from learnkernels.tasks.store import CONTENTS
from learnkernels.tasks.workers.cluster import DaskPool
from tests.refusals import require_refusals
from tests.user import ROOT

N = 61
X = np.random.default_rng(0).normal(size=(N, 4))
FAMILY = GaussianFamily([0.1, 0.2, 1.5])
HERE = DaskPool(DaskConfig(workers=0))


def index_of(
    family: KernelFamily = FAMILY,
    dtype: Any = "float64",
    data: str = "d1",
    rows: int = N,
) -> MatrixIndex:
    made_of = {"families": [{"family": repr(family)}], "kernels": family.names}
    return MatrixIndex(
        dataset="toy", data_digest=data, n_rows=rows, dtype=dtype, **made_of
    )


def written(
    folder: Path,
    index: Any = None,
    rows: Any = X,
    family: KernelFamily = FAMILY,
    pool: Any = HERE,
) -> str:
    with disable_run_logger():
        return write_matrices(
            folder, index or index_of(family), family, rows, pool, lambda _: None
        )


def make(folder: Path, *args: Any, **keys: Any) -> StoredMatrices:
    written(folder, *args, **keys)
    stored = StoredMatrices(folder)
    stored.require_whole()
    return stored


@pytest.fixture(autouse=True)
def strips_of_seven_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrices, "STRIP_BYTES", 7 * 3 * N * 8)


@pytest.fixture
def stored(tmp_path: Path) -> StoredMatrices:
    return make(tmp_path / "toy")


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.npy")}


# Values --------------------------------------------------------------------------------------------------------------


def test_matrices_are_the_tile_of_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    some = sparse.csr_matrix(np.where(X > 0.3, X, 0.0))
    for family, rows in (
        (FAMILY, some),
        (LinearFamily(), X),
        (PolynomialFamily([3, 1]), some),
    ):
        found, expected = (
            np.stack(make(tmp_path / family.names[0], rows=rows, family=family)),
            family.tile(rows, rows),
        )
        # The same numbers from other blocks: rounding, relative to the largest value.
        np.testing.assert_allclose(
            found,
            expected,
            rtol=0,
            atol=1e-13 * np.abs(expected).max(),
            err_msg=str(family),
        )
    monkeypatch.setattr(matrices, "TILE_BYTES", 1)  # the smallest tiles
    rows = np.random.default_rng(1).normal(size=(150, 3))
    monkeypatch.setattr(matrices, "STRIP_BYTES", 70 * 3 * 150 * 8)
    found = np.stack(make(tmp_path / "toy", index_of(rows=150), rows))
    np.testing.assert_allclose(found, FAMILY.tile(rows, rows), rtol=0, atol=1e-13)
    np.testing.assert_array_equal(np.einsum("kaa->ka", found), 1.0)


def test_matrices_are_mapped_and_float32_is_the_rounding_of_float64(
    tmp_path: Path, stored: StoredMatrices
):
    narrow = make(tmp_path / "narrow", index_of(dtype="float32"))
    for opened in (stored, narrow):
        for k, matrix in enumerate(opened):
            assert isinstance(matrix, np.memmap)
            assert matrix.filename == opened.folder / f"{k:03d}.npy"
            assert not matrix.flags.writeable
    np.testing.assert_array_equal(np.stack(narrow), np.stack(stored).astype(np.float32))
    assert len(files_of(narrow.folder)["000.npy"]) < 0.7 * len(
        files_of(stored.folder)["000.npy"]
    )


def test_the_family_gives_the_values_and_is_pickled_as_a_path(stored: StoredMatrices):
    family, expected = stored.family(), np.stack(stored)
    assert family.names == FAMILY.names
    picked = np.array([3.0, 60.0, 8.0])[:, None]
    np.testing.assert_array_equal(
        family.tile(picked, family.X), expected[:, picked[:, 0].astype(int)]
    )
    sent = pickle.dumps(family.subset([2, 1]))
    assert len(sent) < 2000
    np.testing.assert_array_equal(
        pickle.loads(sent).tile(family.X, family.X), expected[[2, 1]]
    )
    shutil.rmtree(stored.folder)
    make(stored.folder, index_of(data="d2"))
    with pytest.raises(InputError, match="was replaced by other matrices"):
        pickle.loads(sent)


def test_matrices_are_the_only_family():
    data = {"name": "n", "datasets": ["wine"], "learners": ["unif"]}
    given = {"family": "precomputed", "path": "grams"}
    with pytest.raises(
        ValidationError, match="family precomputed must be the only one"
    ):
        CompareConfig.model_validate(data | {"kernels": [given, {"family": "linear"}]})
    with pytest.raises(
        ValidationError, match="unknown key 'columns'; valid keys: family, path"
    ):
        CompareConfig.model_validate(data | {"kernels": [given | {"columns": ["a"]}]})


def test_files_are_described_by_the_index_and_read_by_the_program_of_the_documentation(
    stored, tmp_path, monkeypatch
):
    text = (stored.folder / INDEX).read_text()
    content = json.loads(text)
    assert str(stored.folder.parent) not in text
    assert (content["n_rows"], content["kernels"]) == (N, list(FAMILY.names))
    assert {path.name for path in stored.folder.iterdir()} == {
        INDEX,
        CONTENTS,
        "000.npy",
        "001.npy",
        "002.npy",
    }
    expected = np.array(stored[0])
    (tmp_path / "grams").mkdir()
    stored.folder.rename(tmp_path / "grams" / "wine")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "tile-store.md").read_text(encoding="utf-8")
    (program,) = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    found: dict[str, Any] = {}
    exec(program, found)
    np.testing.assert_array_equal(found["K"], expected)


def test_a_run_that_failed_leaves_nothing_and_whole_matrices_are_not_computed_again(
    tmp_path: Path,
):
    class Failing(GaussianFamily):
        def tile(self, A, B, shift=None):
            if (A[0] == X[21]).all():
                raise InputError("no more.")
            return super().tile(A, B, shift)

    folder, failing = tmp_path / "toy", Failing(FAMILY.gammas)
    with pytest.raises(InputError, match=r"no more"):
        written(folder, index_of(), family=failing)
    assert list(tmp_path.iterdir()) == []
    assert written(folder) == "toy: 3 matrices of 61 rows, written"
    assert (
        written(folder, index_of(), family=failing)
        == "toy: 3 matrices of 61 rows, kept"
    )


# Damage --------------------------------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-N * 8 * 20] ^= 1  # in row 41
    path.write_bytes(content)


def save(path: Path, values: np.ndarray) -> None:
    path.unlink()
    np.save(path, values)


DAMAGED_FILES: list[tuple[Callable[[Path], object], str]] = [
    (flip, r"toy: is damaged .001.npy is damaged"),
    (Path.unlink, r"001.npy: is damaged .No such file"),
    (lambda path: os.truncate(path, 5000), r"001.npy: is damaged .mmap length"),
    (lambda path: path.write_bytes(bytes(5000)), r"001.npy: is damaged"),
    (
        lambda path: save(path, np.eye(N - 1)),
        r"001.npy: is damaged .it has shape .60, 60. and type float64",
    ),
    (
        lambda path: save(path, np.float32(np.eye(N))),
        r"001.npy: is damaged .it has shape .61, 61. and type flo",
    ),
]


@pytest.mark.parametrize(("harm", "sentence"), DAMAGED_FILES)
def test_a_damaged_file_is_refused_by_name_and_computed_anew(
    stored: StoredMatrices, harm, sentence
):
    expected = files_of(stored.folder)
    harm(stored.folder / "001.npy")
    require_refusals(
        [(lambda: StoredMatrices(stored.folder).require_whole(), sentence)],
        error=InputError,
    )
    assert written(stored.folder).endswith("written")
    assert files_of(stored.folder) == expected


def changed(**keys: Any) -> Callable[[Path], object]:
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | keys))


DAMAGED_INDEXES: list[tuple[Callable[[Path], object], str]] = [
    (Path.unlink, "there is no index.json; make the matrices with 'learnkernels gram'"),
    (lambda path: os.truncate(path, path.stat().st_size - 100), "is damaged"),
    (changed(version=2), "version Input should be 3"),
    (changed(kernels=[]), "kernels Tuple should have at least 1 item"),
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
        (
            index_of(data="d2"),
            "holds matrices whose data_digest is d1, not d2; choose another output folder",
        ),
        (index_of(dtype="float32"), "whose dtype is float64, not float32"),
        (index_of(LinearFamily()), r"whose kernels is .*gaussian.*, not .*linear.*"),
        (index_of().model_copy(update={"numerics": 0}), "whose numerics is"),
        (index_of(rows=10**9), "whose n_rows is 61, not 1000000000"),
    ]
    require_refusals(
        ((partial(written, stored.folder, other), said) for other, said in table),
        error=InputError,
    )
    assert files_of(stored.folder) == before


# What cannot work ----------------------------------------------------------------------------------------------------


def test_matrices_that_are_not_symmetric_and_values_that_float32_cannot_hold_are_refused(
    tmp_path: Path,
):
    class Skewed(GaussianFamily):
        def tile(self, A, B, shift=None):
            return super().tile(A, B, shift) * (1 + A[:, :1])

    skewed, steep = (
        make(tmp_path / "skewed", family=Skewed(FAMILY.gammas)),
        PolynomialFamily([30]),
    )
    with pytest.raises(InputError, match="is not symmetric"):
        skewed.family()
    with pytest.raises(
        InputError,
        match=r"data set toy: base kernel polynomial.* float32 cannot hold in rows 0 to",
    ):
        make(tmp_path / "steep", index_of(steep, "float32"), rows=1e3 * X, family=steep)


def test_a_disk_that_is_too_small_is_refused_before_anything_is_written(
    tmp_path, monkeypatch
):
    free = shutil.disk_usage(tmp_path)._replace(free=100_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    places = [(tmp_path / name, index_of()) for name in ("one", "two")]
    require_space(places[:1])  # 87 kiB each
    (tmp_path / "there").mkdir()
    require_space([*places[:1], (tmp_path / "there", index_of())])
    (tmp_path / "there").rmdir()
    with pytest.raises(
        InputError,
        match=r"the matrices need 176\.\d+ kiB and 97\.66 kiB are free; choose an output",
    ):
        require_space(places)
    free = free._replace(free=1000)
    with pytest.raises(
        InputError, match=r"need 88\.\d+ kiB and 0\.98 kiB are free|and 1000 B are free"
    ):
        make(tmp_path / "one")
    assert list(tmp_path.iterdir()) == []


def test_of_two_runs_in_one_folder_the_first_to_end_counts(tmp_path: Path):
    class Overtaken(GaussianFamily):
        def tile(self, A, B, shift=None):
            if not (tmp_path / "toy").exists():
                make(tmp_path / "toy")
            return super().tile(A, B, shift)

    written(tmp_path / "toy", index_of(), family=Overtaken(FAMILY.gammas))
    assert {path.name for path in tmp_path.iterdir()} == {"toy"}
    make(tmp_path / "toy")


def test_a_folder_of_something_else_is_not_touched_and_one_that_cannot_be_made_is_one_sentence(
    tmp_path: Path,
):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "photos").mkdir()
    refused = {
        "precious": r"precious: is there and has no index\.json; choose another output folder",
        "photos": r"photos: is there and has no index\.json; choose another output folder",
        "precious/below": r"cannot be written to \(.*\); give",
    }
    require_refusals(
        ((partial(make, tmp_path / name), said) for name, said in refused.items()),
        error=InputError,
    )
    assert (tmp_path / "precious").read_text() == "precious"
    assert (tmp_path / "photos").is_dir()
