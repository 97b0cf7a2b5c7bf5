"""Several files of the same columns are one table: found by name, compared, joined, read piece by piece."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

from learnkernels.conf.errors import InputError
from learnkernels.conf.files import chosen, files_of, folder_of, matching, told_by_folders
from learnkernels.conf.loading import existing_files
from learnkernels.conf.schema import DatasetConfig
from learnkernels.kernels.estimators import KernelLearningRegressor
from learnkernels.kernels.persistence.model import Model
from learnkernels.tasks.data.dataset import dataset_digest
from learnkernels.tasks.data.ingest import load_source
from learnkernels.tasks.data.opening import OpenTable
from learnkernels.tasks.data.readers import columns_beside
from learnkernels.tasks.data.starting import start
from learnkernels.tasks.models.scoring import score_with

PARTS = [slice(0, 50), slice(50, 80), slice(80, 120)]


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "a": rng.normal(size=120),
            "n": rng.integers(0, 9, 120),
            "c": rng.choice(["x", "y"], 120),
            "y": rng.random(120),
        }
    )


def write(frame: pd.DataFrame, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        (frame.to_parquet if path.suffix == ".parquet" else frame.to_feather)(path)


def divided(folder: Path, ending: str, frame: pd.DataFrame) -> None:
    """Write a table as three files, the middle one with its columns in another order."""
    for name, part in zip(("a", "b", "c"), PARTS, strict=True):
        some = frame.iloc[part].reset_index(drop=True)
        write(some[some.columns[::-1]] if name == "b" else some, folder / f"{name}{ending}")


def config(path: Any, **keys: Any) -> DatasetConfig:
    return DatasetConfig.model_validate({"source": "file", "path": path, "target": "y", **keys})


def quiet(of: DatasetConfig, folder: Path) -> Any:
    return load_source(of, str(folder), tell=lambda sentence: None)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".feather"])
def test_files_in_pieces_are_the_file_as_a_whole(tmp_path: Path, ending: str):
    write(rows(), tmp_path / f"whole{ending}")
    divided(tmp_path / "parts", ending, rows())
    write(rows(), tmp_path / "parts" / ".hidden" / f"z{ending}")
    (tmp_path / "parts" / "README.txt").write_text("three parts")
    keys = {"weights": "n", "groups": "c", "columns": {"a": "number"}}
    whole = quiet(config(f"whole{ending}", **keys), tmp_path)
    names = [f"parts/{name}{ending}" for name in ("a", "b", "c")]
    for path in ("parts", f"parts/*{ending}", f"**/[abc]{ending}", names):
        dataset = quiet(config(path, **keys), tmp_path)
        assert dataset_digest(dataset) == dataset_digest(whole), path
    turned = quiet(config(names[::-1], **keys), tmp_path)
    assert dataset_digest(turned) != dataset_digest(whole)


@pytest.mark.parametrize("path", ["", "*.parquet", "part-*.parquet", ["a.parquet", "b.parquet"], "a.parquet"])
def test_files_are_called_by_what_their_names_share(path: Any):
    expected = {"": "data", "*.parquet": "data", "part-*.parquet": "part", "a.parquet": "a"}
    full = [f"data/{one}" for one in path] if isinstance(path, list) else f"data/{path}"
    assert config(full).label == ("a" if isinstance(path, list) else expected[path])
    assert DatasetConfig.model_validate("data/").path == "data/"


def test_types_of_a_column_that_go_together_are_joined(tmp_path: Path):
    frame = rows()
    frame["when"] = "2024-01-01"
    divided(tmp_path, ".csv", frame)
    text = (tmp_path / "b.csv").read_text().splitlines()
    (tmp_path / "b.csv").write_text("\n".join([text[0], *(line.replace(",x,", ",?,", 1) for line in text[1:])]))
    other = pd.read_csv(tmp_path / "c.csv")
    other["n"] = other["n"] + 0.5
    other.loc[0, "a"] = None
    other["a"] = other["a"].astype(object).where(other["a"].notna(), "?")
    other["when"] = "2024-01-01 12:00:00"
    other.to_csv(tmp_path / "c.csv", index=False)
    dataset = quiet(config("*.csv"), tmp_path)
    assert {"a", "a missing", "n", "c=x", "c=missing", "when"} <= set(dataset.features)
    assert dataset.X[80:, dataset.features.index("n")].tolist() == (frame["n"][80:] + 0.5).tolist()
    for name, kind in {"d": pa.int64(), "e": pa.float64(), "f": pa.null()}.items():
        column = pa.array([None] * 20 if name == "f" else range(20), kind)
        pa.parquet.write_table(pa.table({"a": column, "y": np.arange(20.0)}), tmp_path / f"{name}.parquet")
    joined = quiet(config("*.parquet"), tmp_path)
    assert joined.X[:40, 0].tolist() == [*range(20), *range(20)]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: t.drop(columns="n"), "data set parts: b.parquet has no column 'n', which a.parquet has; give files"),
        (lambda t: t.assign(m=1), "data set parts: b.parquet has the column 'm', which a.parquet does not have; give"),
        (
            lambda t: t.assign(n="many"),
            "column 'n' is .*string in b.parquet and int64 in a.parquet; write it as",
        ),
    ],
)
def test_a_file_that_differs_is_named(tmp_path: Path, change: Any, sentence: str):
    divided(tmp_path / "parts", ".parquet", rows())
    write(change(rows()), tmp_path / "parts" / "b.parquet")
    with pytest.raises(InputError, match=sentence):
        quiet(config("parts"), tmp_path)


def test_a_damaged_file_is_named(tmp_path: Path):
    divided(tmp_path / "parts", ".parquet", rows())
    (tmp_path / "parts" / "b.parquet").write_bytes(b"PAR1 nothing of a table")
    with pytest.raises(InputError, match=r"data set parts: b\.parquet cannot be read as parquet"):
        quiet(config("parts"), tmp_path)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("none/*.csv", "data set none: .*none/.*csv: holds no table, whose endings are"),
        ("both", r"both: holds files of several formats \(\.csv, \.parquet\), which may be copies"),
        (["both/a.csv", "both/a.csv"], "'.*a.csv' is in 'path' more than once; name each file once"),
        (["both/a.csv", "both/a.parquet"], "'path' names files of several formats"),
        (["both/a.csv", "gone.csv"], "there is no file .*gone.csv"),
    ],
)
def test_what_stands_for_no_files_of_one_format_is_refused(tmp_path: Path, path: Any, sentence: str):
    for name in ("both/a.csv", "both/a.parquet"):
        write(rows(), tmp_path / name)
    with pytest.raises(InputError, match=sentence):
        existing_files(config(path), str(tmp_path))


def parted(folder: Path, ending: str) -> pd.DataFrame:
    """Write a table into folders whose names tell three columns; return it with these."""
    told = [
        ("site=north%20east/year=2023/share=0.5", "north east", 2023, 0.5),
        ("site=north%20east/year=2024/share=1", "north east", 2024, 1.0),
        ("site=__HIVE_DEFAULT_PARTITION__/year=2024/share=2", None, 2024, 2.0),
    ]
    pieces = []
    for (place, site, year, share), part in zip(told, [slice(40, 80), slice(80, 120), slice(0, 40)], strict=True):
        piece = rows().iloc[part].reset_index(drop=True)
        write(piece, folder / place / f"rows{ending}")
        pieces.append(piece.assign(site=site, year=year, share=share))
    return pd.concat([pieces[2], *pieces[:2]], ignore_index=True)  # by name, _ comes before n


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".feather"])
@pytest.mark.parametrize(
    "keys", [{}, {"groups": "site", "where": {"year": 2024}, "missing": "drop"}, {"time": "share"}]
)
def test_names_of_folders_tell_columns(tmp_path: Path, ending: str, keys: dict[str, Any]):
    whole = parted(tmp_path / "day=3" / "parted", ending)  # what stands above the folder tells nothing
    write(whole, tmp_path / f"whole{ending}")
    expected = quiet(config(f"whole{ending}", **keys), tmp_path)
    for path in ("day=3/parted", f"day=3/parted/site=*/**/*{ending}"):
        dataset = quiet(config(path, **keys), tmp_path)
        assert dataset.features == expected.features
        np.testing.assert_array_equal(dataset.X, expected.X)
        assert {name: of.tolist() for name, of in dataset.beside.items()} == {
            name: of.tolist() for name, of in expected.beside.items()
        }


def test_columns_of_files_go_before_those_of_their_folders(tmp_path: Path):
    write(rows(), tmp_path / "n=1" / "k=a" / "rows.csv")
    write(rows(), tmp_path / "n=2" / "k=3" / "rows.csv")
    dataset = quiet(config("."), tmp_path)
    assert dataset.X[:120, dataset.features.index("n")].tolist() == rows()["n"].tolist()
    assert {"k=a", "k=3"} <= set(dataset.features)
    write(rows(), tmp_path / "beside.csv")
    with pytest.raises(InputError, match=r"rows\.csv has the column 'k', which beside\.csv does not have"):
        quiet(config("."), tmp_path)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".feather"])
def test_a_model_finds_what_folders_tell_above_what_it_scores(tmp_path: Path, ending: str):
    whole = parted(tmp_path / "new", ending)
    write(whole, tmp_path / f"whole{ending}")
    X = whole[["year", "a", "share"]]
    fitted = KernelLearningRegressor(learner="unif").fit(X.to_numpy(), whole["y"])
    model = Model(fitted, ("year", "a", "share"), np.zeros(3), np.ones(3), {"target": "y", "drop": ["n", "c", "site"]})

    def scored(source: str) -> pd.DataFrame:
        score_with(model, {}, str(tmp_path / source), str(tmp_path / "out.parquet"), ids=["site"])
        return pd.read_parquet(tmp_path / "out.parquet")

    expected = scored(f"whole{ending}")
    assert expected["prediction"].tolist() == fitted.predict(X.to_numpy()).tolist()
    found = scored("new")
    assert found["prediction"].tolist() == expected["prediction"].tolist()
    assert found["site"].fillna("").tolist() == expected["site"].fillna("").tolist()  # gaps of a CSV are empty texts
    one = scored(f"new/site=north%20east/year=2024/share=1/rows{ending}")
    assert one["prediction"].tolist() == expected["prediction"][80:].tolist()
    write(whole[["a", "n", "c"]], tmp_path / f"plain{ending}")
    with pytest.raises(InputError, match="year"):
        scored(f"plain{ending}")


def test_folders_on_a_server_are_searched_by_the_same_rules():
    files = ["s3://b/d/a.csv", "s3://b/d/e/b.csv", "s3://b/d/_log/c.csv", "s3://b/d/notes.txt"]
    assert chosen(files, "s3://b/d/", "s3://b/d") == files[:2]
    assert matching(files, "s3://b/d/*.csv") == files[:1]
    assert matching(files, "s3://b/**/*.csv") == files[:3]
    assert existing_files(config("s3://b/d/*.csv"), ".") == ["s3://b/d/*.csv"]
    assert existing_files(config("d/"), "s3://b") == ["s3://b/d/"]
    assert told_by_folders("s3://b/x=1/d/y=2/a.csv", folder_of("s3://b/x=1/d/*/a.csv")) == {"y": "2"}
    assert told_by_folders("s3://b/x=1/d/y=2/a.csv") == {"x": "1", "y": "2"}
    assert files_of("nowhere.csv") is None


def test_libsvm_texts_of_different_widths_are_one(tmp_path: Path):
    X = sparse.random(40, 6, 0.5, "csr", random_state=0)
    for name, part in {"a": X[:20, :4], "b": X[20:]}.items():
        dump_svmlight_file(part, np.arange(part.shape[0]) % 2, str(tmp_path / f"{name}.svm"), zero_based=False)
    dataset = load_source(config(["a.svm", "b.svm"]), str(tmp_path))
    expected = X.toarray()
    expected[:20, 4:] = 0
    np.testing.assert_allclose(dataset.X.toarray(), expected, atol=1e-6)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".feather"])
def test_several_files_are_scored_as_one(tmp_path: Path, ending: str):
    frame = rows()
    model = Model.of_table(
        KernelLearningRegressor(learner="alignf", alpha=1.0).fit(frame.drop(columns="y"), frame["y"]), {"target": "y"}
    )
    write(frame, tmp_path / f"whole{ending}")
    divided(tmp_path / "new", ending, frame)
    score_with(model, {}, str(tmp_path / f"whole{ending}"), str(tmp_path / "one.parquet"), ids=["c"])
    shares: list[float] = []
    scored = score_with(
        model, {}, str(tmp_path / "new"), str(tmp_path / "many.parquet"), ids=["c"], tell=lambda s, n: shares.append(s)
    )
    assert (scored.rows, shares[-1]) == (120, 1.0)
    one, many = (pa.parquet.read_table(tmp_path / f"{name}.parquet") for name in ("one", "many"))
    assert one.equals(many)
    with pytest.raises(InputError, match="the output would replace the input"):
        score_with(model, {}, str(tmp_path / "new"), str(tmp_path / "new" / f"b{ending}"))
    write(frame.drop(columns="n"), tmp_path / "new" / f"b{ending}")
    with pytest.raises(InputError, match=rf"b{ending} has no column 'n', which .*a{ending} has"):
        score_with(model, {}, str(tmp_path / "new"), str(tmp_path / "other.parquet"))


def test_a_folder_and_several_targets_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from learnkernels.conf.loading import config_of_text

    monkeypatch.chdir(tmp_path)
    divided(tmp_path / "parts", ".csv", rows())
    found = start("parts", ["y", "c"], metric=None)
    of = config_of_text(found.text, Path("parts.yaml"))
    assert [(data.label, data.target, data.drop) for data in of.datasets] == [
        ("parts y", "y", ("c",)), ("parts c", "c", ("y",)),
    ]  # fmt: skip
    assert [quiet(data, tmp_path).target.task for data in of.datasets] == ["regression", "classification"]
    assert [line for line in found.lines if " of " in line][:2] == [
        line for line in found.lines if line.startswith(("regression of y", "classification of c"))
    ]
    assert "# class_weight: balanced" in found.text
    several = start(["parts/a.csv", "parts/c.csv"], "y").text
    assert config_of_text(several, Path("n.yaml")).datasets[0].path == ("parts/a.csv", "parts/c.csv")
    with pytest.raises(InputError, match="parts: it has no column 'z'; its columns are a, n, c, y"):
        start("parts", ["y", "z"])


def test_a_set_of_openml_says_of_its_rows_what_a_file_does():
    keys = {"groups": "c", "weights": "n", "test": {"c": "x"}, "missing": "drop"}
    of = DatasetConfig.model_validate({"source": "openml", "name": "set", "version": 1, "target": "y", **keys})
    frame = rows()
    read, beside = columns_beside(OpenTable.of(pa.Table.from_pandas(frame)), of, "y", "set", "data set set")
    assert tuple(read.features) == ("a",)
    assert beside["held_out"].tolist() == (frame["c"] == "x").tolist()
    assert beside["weights"].tolist() == frame["n"].tolist()
    assert len(set(zip(beside["groups"].tolist(), frame["c"], strict=True))) == 2
