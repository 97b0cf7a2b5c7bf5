"""Tries of what comes from outside: configurations and data files, thousands of them, each in a forked process."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq
from sklearn.datasets import dump_svmlight_file

from dev.tools.chaos.commands import rows
from dev.tools.chaos.journal import Attempt
from dev.tools.chaos.lane import LONGEST, ROOT, Lane
from dev.tools.mutations import fates, mutated, mutated_text

BATCH = 250
"""Tries of an attempt."""

MEMORY = 1 << 30
"""Bytes that a small file may take."""

ENDINGS = (".parquet", ".feather", ".arrow", ".csv", ".svm")


def configurations(lane: Lane, attempt: Attempt, random: Random) -> None:
    """Read configurations of which words and lines were changed, with changes of keys of the same kind."""
    from learnkernels.conf.errors import InputError
    from learnkernels.conf.loading import load_config

    paths = sorted(
        [*(ROOT / "conf").glob("*.yaml"), *(ROOT / "conf" / "examples").iterdir()]
    )
    texts = [path.read_text(encoding="utf-8") for path in paths]
    path = lane.folder / "failures" / "conf.yaml"
    path.parent.mkdir(exist_ok=True)

    def act(case: tuple[str, list[str]]) -> None:
        path.write_bytes(case[0].encode("utf-8", "surrogatepass"))
        load_config(path, case[1])

    cases = []
    for _ in range(BATCH):
        text = random.choice(texts)
        if random.random() < 0.8:
            cases.append((mutated_text(text, random), []))
        else:
            cases.append((text, [mutated_text(random.choice(CHANGES), random)]))
    _try(
        lane,
        attempt,
        cases,
        act,
        (InputError,),
        10,
        lambda case: (case[0].encode("utf-8", "surrogatepass"), ".yaml"),
    )


CHANGES = (
    "protocol.folds=10",
    "datasets.0.scale=unit",
    "kernels=[{family: gaussian, gammas: {base: 2, from: -4, to: 4}}]",
    "learners=[{name: lq, params: {q: 2}}]",
    "protocol.split={train: 10, validation: 5, test: 5}",
    "dask.memory=512MiB",
    "statistics={sample: auto}",
    "predictor={name: nystroem, n_components: 100}",
    "tracking.experiment=x",
)


def data_files(lane: Lane, attempt: Attempt, random: Random) -> None:
    """Read damaged tables as data sets."""
    from learnkernels.conf.errors import InputError
    from learnkernels.conf.schema import CompareConfig
    from learnkernels.tasks.data.ingest import load_source
    from learnkernels.tasks.data.locations import TransferError

    ending = random.choice(ENDINGS)
    content = of_format(_mixed(), ending)
    path = _folder(lane) / f"damaged{ending}"
    target = {} if ending == ".svm" else {"target": "y"}
    config = CompareConfig.model_validate(
        {
            "name": "fuzz",
            "datasets": [
                {"source": "file", "path": str(path), "missing": "drop"} | target
            ],
            "kernels": [{"family": "linear"}],
            "learners": ["unif"],
        }
    ).datasets[0]

    def act(damaged: bytes) -> None:
        path.write_bytes(damaged)
        load_source(config, str(path.parent), 0, lambda sentence: None)

    attempt.case = f"data set {ending}"
    _try(
        lane,
        attempt,
        _damaged(content, random),
        act,
        (InputError, TransferError),
        60,
        lambda case: (case, ending),
    )


def scored_tables(lane: Lane, attempt: Attempt, random: Random) -> None:
    """Score damaged tables with a model."""
    from learnkernels.conf.errors import InputError
    from learnkernels.kernels.model import Model
    from learnkernels.tasks.data.locations import TransferError
    from learnkernels.tasks.models.scoring import ScoringOptions, score_with

    ending = random.choice(ENDINGS[:-1])
    content = of_format(rows(60, 2).drop_columns(["y"]), ending)
    path = _folder(lane) / f"damaged{ending}"
    stored = _stored_model(lane)
    model = Model.load(stored)

    def act(damaged: bytes) -> None:
        path.write_bytes(damaged)
        score_with(
            model,
            {},
            str(path),
            str(path.with_name("scores.parquet")),
            ScoringOptions(),
        )

    attempt.case = f"table to score {ending}"
    _try(
        lane,
        attempt,
        _damaged(content, random),
        act,
        (InputError, TransferError),
        60,
        lambda case: (case, ending),
    )


def model_files(lane: Lane, attempt: Attempt, random: Random) -> None:
    """Load damaged model files: refused, whatever was changed."""
    from learnkernels.kernels.model import Model

    stored = _stored_model(lane)
    content = stored.read_bytes()
    path = _folder(lane) / "damaged.safetensors"

    def act(damaged: bytes) -> None:
        path.write_bytes(damaged)
        Model.load(path)
        if damaged != content:
            raise AssertionError("a changed model was loaded")

    _try(
        lane,
        attempt,
        _damaged(content, random),
        act,
        (ValueError,),
        60,
        lambda case: (case, ".safetensors"),
    )


def _stored_model(lane: Lane) -> Path:
    """Return the file of a model that was trained here."""
    return min(
        (lane.folder / "prepared" / ".learnkernels" / "store" / "models").rglob(
            "*.safetensors"
        )
    )


def of_format(table: pa.Table, ending: str) -> bytes:
    """Return a table as the content of a file of a format."""
    sink = io.BytesIO()
    if ending == ".parquet":
        pq.write_table(table, sink, row_group_size=20)
    elif ending == ".feather":
        pyarrow.feather.write_feather(table, sink, compression="lz4")
    elif ending == ".arrow":
        with pyarrow.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=20)
    elif ending == ".csv":
        pyarrow.csv.write_csv(table, sink)
    else:
        X = np.column_stack([table["a"].to_numpy(), table["b"].to_numpy()])
        dump_svmlight_file(X, table["i"].to_numpy(), sink)
    return sink.getvalue()


def _mixed() -> pa.Table:
    """Return sixty rows with columns of several types, some values missing, and a target of text."""
    table, whole = rows(60, 3), np.arange(60)
    return pa.table(
        {
            "a": table["a"],
            "b": table["b"],
            "f": table["c"].cast(pa.float32()),
            "i": pa.array(whole % 4),
            "t": pa.array(whole % 2 == 0),
            "w": pa.array([None if i % 7 == 0 else float(i) for i in whole]),
            "y": pa.array([f"class {i % 2}" for i in whole]).dictionary_encode(),
        }
    )


def _damaged(content: bytes, random: Random) -> list[bytes]:
    return [mutated(content, random) for _ in range(BATCH)]


def _folder(lane: Lane) -> Path:
    folder = lane.folder / "failures"
    folder.mkdir(exist_ok=True)
    return folder


def _try(
    lane: Lane,
    attempt: Attempt,
    cases: Sequence[Any],
    act: Callable[[Any], None],
    errors: tuple[type[Exception], ...],
    seconds: int,
    as_file: Callable[[Any], tuple[bytes, str]],
) -> None:
    """Try all cases, and keep those that fail as files."""
    attempt.tries = len(cases)
    for number, fate in enumerate(fates(cases, act, errors, seconds, MEMORY, LONGEST)):
        if fate.fine:
            attempt.ended({"done": "taken", "sentence": "one sentence"}[fate.kind])
            continue
        content, ending = as_file(fate.case)
        kept = (
            lane.folder
            / "failures"
            / f"{attempt.kind.replace(' ', '-')}-{attempt.number}-{number}{ending}"
        )
        kept.write_bytes(content)
        what = {
            "long": "not one sentence",
            "error": "traceback",
            "memory": "memory",
            "died": fate.text,
        }[fate.kind]
        what = "hangs" if fate.text == "SIGALRM" else what
        changes = (
            f" with {fate.case[1]}"
            if isinstance(fate.case, tuple) and fate.case[1]
            else ""
        )
        attempt.failed(
            what,
            fate.text[-1500:],
            f"{attempt.case or attempt.kind}: {kept.name}{changes}",
        )
