"""Workers on other machines: what they get of the rows, what they compute, which are refused, and what starts them."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from sklearn.datasets import load_diabetes

from dev.tools.waiting import within
from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import CompareConfig, DaskConfig
from learnkernels.flows.compare import compare
from learnkernels.kernels.engine.workers import SelectedRows, Threads, spans
from learnkernels.reproduction.flow import papers
from learnkernels.tasks.data import row_files
from learnkernels.tasks.data.row_files import RowFiles
from learnkernels.tasks.operate.servers import free_port
from learnkernels.tasks.workers.cluster import DaskPool
from tests.elsewhere import another_machine, hideable, served
from tests.service.conftest import S3, s3, s3_server  # noqa: F401
from tests.unit.test_containers import CONTAINERFILE, PAGE, SERVICES, SETTINGS
from tests.user import ROOT

X = np.random.default_rng(0).normal(size=(90, 5))


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """A folder that workers do not see, where one may hide it."""
    return hideable(tmp_path_factory.mktemp("here") / "hidden")


@pytest.fixture(scope="module")
def machine(tmp_path_factory, hidden, s3_server) -> Iterator[tuple[str, Path]]:  # noqa: F811
    """The address of a scheduler on another machine, and the folder of its workers, which have keys of their own."""
    folder = tmp_path_factory.mktemp("there") / "machine"
    keys = {
        "AWS_ACCESS_KEY_ID": "worker",
        "AWS_SECRET_ACCESS_KEY": "hidden",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (keys | {"AWS_ENDPOINT_URL": s3_server.url}).items():
            patch.setenv(name, value)
        with another_machine(folder, hidden=hidden) as address:
            yield address, folder


# Rows ----------------------------------------------------------------------------------------------------------------


def product(X: Any, V: np.ndarray, span: tuple[int, int]) -> np.ndarray:
    run = X[slice(*span)]
    return np.asarray(run.T @ (run @ V))


def require_working(pool: DaskPool) -> None:
    """Fail unless workers do a pass over rows."""
    total = pool.workers.total(
        product, pool.workers.broadcast(np.eye(3)), np.eye(3), [(0, 1), (1, 3)]
    )
    np.testing.assert_array_equal(total, np.eye(3))


@pytest.mark.parametrize("where", ["files", "objects"])
def test_rows_reach_workers_elsewhere_once_and_are_gone_at_the_end(
    s3,  # noqa: F811
    tmp_path,
    machine,
    where,
    monkeypatch,
):
    monkeypatch.setattr(row_files, "BLOCK_BYTES", 16 * 5 * 8)
    V, some, seen = (
        np.eye(5),
        np.random.default_rng(1).permutation(90)[:70],
        tmp_path / "seen",
    )
    place = str(seen) if where == "files" else "s3://rows/scratch"
    with DaskPool(DaskConfig(scheduler=machine[0], rows=place)) as pool:
        pool.require_usable()
        for origin in (np.zeros(5), np.full(5, 0.5)):
            held = pool.workers.scatter_rows(X, some, origin)
            assert isinstance(held, SelectedRows)
            assert isinstance(held.X, RowFiles)
            found = pool.workers.total(
                product, pool.workers.broadcast(held), V, spans(70, 7)
            )
            there = Threads(1).total(product, X[some] - origin, V, spans(70, 7))
            # Sums of 70 rows in another order
            np.testing.assert_allclose(found, there, rtol=1e-12)
        assert isinstance(
            pool.workers.scatter_rows(X.copy(), None, np.zeros(5)), RowFiles
        )
        written = [*map(str, seen.rglob("*")), *s3.keys()]
        # Of three times the same rows
        assert len([name for name in written if name.endswith(".rows")]) == 6
        files = pool.client.run(
            lambda dask_worker: [*Path(dask_worker.local_directory).rglob("*.rows")]
        )
        copied = [len(of) for of in files.values()]
        if where == "files":
            assert sum(copied) == 0
        else:
            assert max(copied) <= 6 <= sum(copied)
    left = [*map(str, seen.rglob("*")), *map(str, machine[1].rglob("*")), *s3.keys()]
    assert not [name for name in left if name.endswith(".rows")]


def test_a_place_that_workers_do_not_see_is_named(
    machine: tuple[str, Path], hidden: Path | None
):
    if hidden is None:
        pytest.skip(
            "folders cannot be hidden from a process here, for want of the right to mount"
        )
    sentence = r"^dask\.rows: the worker at tcp://.* cannot read there \(.*correct the path\); give a place"
    config = DaskConfig(scheduler=machine[0], rows=str(hidden))
    with DaskPool(config) as pool, pytest.raises(InputError, match=sentence):
        pool.workers.scatter_rows(X, None, np.zeros(5))
    assert not list(hidden.rglob("*.rows"))


# Comparisons ----------------------------------------------------------------------------------------------------------

flow = pytest.mark.usefixtures("prefect_server", "working_folder")

FOLDS = {"folds": 3, "grid": [0.1]}
SPLIT = {"split": {"train": 250, "validation": 90, "test": 90}, "grid": [0.1]}
KERNELS = [{"family": "gaussian", "gammas": [0.1, 1, 10]}]
NYSTROM = {"name": "nystroem", "n_components": 30}

RUNS: dict[str, dict[str, Any]] = {
    "exact": {"learners": ["alignf"], "predictor": "krr", "protocol": FOLDS},
    "sampled": {
        "learners": ["align"],
        "statistics": {"sample": 400},
        "predictor": NYSTROM,
        "protocol": FOLDS,
    },
    "iterated": {"learners": ["unif"], "predictor": "krr-cg", "protocol": SPLIT},
}


def folds_of(
    keys: dict[str, Any], workers: dict[str, Any], monkeypatch: Any, state: Path
) -> pd.DataFrame:
    monkeypatch.setenv("LEARNKERNELS_HOME", str(state))
    config = (
        {"name": "elsewhere", "datasets": ["diabetes"], "kernels": KERNELS}
        | keys
        | {"dask": workers}
    )
    return pd.read_parquet(
        Path(compare(config=CompareConfig.model_validate(config))["results"])
        / "folds.parquet"
    )


def require_same(theirs: pd.DataFrame, ours: pd.DataFrame, what: str) -> None:
    """Fail unless two fold tables have the same errors and alignments."""
    assert theirs["learner"].tolist() == ours["learner"].tolist(), what
    for column in ("error", "alignment", "validation_error"):
        np.testing.assert_allclose(
            theirs[column], ours[column], rtol=1e-12, err_msg=f"{what} {column}"
        )


def in_parts(folder: Path, table: pa.Table | None = None) -> dict[str, Any]:
    """Write a table, by default of diabetes, into three files of two row groups each, and name them as a data set."""
    if table is None:
        X, y = load_diabetes(return_X_y=True)
        table = pa.table({**{f"x{j}": X[:, j] for j in range(10)}, "y": y})
    folder.mkdir()
    for i in range(3):
        pq.write_table(
            table.slice(150 * i, 150), folder / f"{i}.parquet", row_group_size=80
        )
    return {"source": "file", "path": f"{folder}/", "target": "y", "in_parts": True}


@pytest.mark.slow(40)
@flow
@pytest.mark.parametrize("name", list(RUNS))
def test_workers_that_do_not_see_our_files_find_the_same(
    tmp_path, machine, hidden, name, monkeypatch
):
    keys, rows = RUNS[name], tmp_path / "rows"
    small = 4096 if name == "exact" else 100  # whole trials there, or passes over rows
    monkeypatch.setattr("learnkernels.tasks.measure.run_learner.PARALLEL_ROWS", small)
    ours = folds_of(keys, {"workers": 0}, monkeypatch, tmp_path / "here")
    there = {"scheduler": machine[0], "rows": str(rows)}
    theirs = folds_of(keys, there, monkeypatch, (hidden or tmp_path / "hidden") / name)
    require_same(theirs, ours, "rows")
    for one, other in zip(theirs["weights"], ours["weights"], strict=True):
        # Of a quadratic program
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    assert not list(rows.rglob("*"))
    # The same where workers read the rows themselves, and this process none
    if name != "exact":
        parts = {"datasets": [in_parts(tmp_path / "parts")]}
        theirs = folds_of(
            keys | parts, {"scheduler": machine[0]}, monkeypatch, tmp_path / "state"
        )
        require_same(theirs, ours, "parts")
        assert (
            max(
                [path.stat().st_size for path in (tmp_path / "state").rglob("*.npy")],
                default=0,
            )
            < 5000
        )


@pytest.mark.slow(20)
@flow
def test_a_table_with_categories_and_gaps_in_parts_has_the_numbers_of_one_in_memory(
    tmp_path, machine, monkeypatch
):
    monkeypatch.setattr("learnkernels.tasks.measure.run_learner.PARALLEL_ROWS", 100)
    rng, n = np.random.default_rng(0), 450
    site, x = rng.integers(0, 6, n), rng.normal(size=(n, 2))
    y = x[:, 0] + np.sin(site) + 0.1 * rng.normal(size=n)
    table = {
        "site": [f"s{i}" for i in site],
        "x": pa.array(np.where(rng.random(n) < 0.1, np.nan, x[:, 0]), from_pandas=True),
        "z": x[:, 1],
        "day": np.datetime64("2024-01-01") + rng.integers(0, 400, n),
        "y": y,
    }
    given = in_parts(tmp_path / "table", pa.table(table)) | {"scale": "standard"}
    keys = {
        "learners": ["alignf", "rfm"],
        "statistics": {"sample": "auto"},
        "predictor": NYSTROM,
        "protocol": SPLIT,
    }
    here, there = (
        keys | {"datasets": [given | {"in_parts": asked}]} for asked in (False, True)
    )
    ours = folds_of(here, {"workers": 0}, monkeypatch, tmp_path / "here")
    theirs = folds_of(there, {"scheduler": machine[0]}, monkeypatch, tmp_path / "there")
    require_same(theirs, ours, "parts")


@pytest.mark.slow(20)
@flow
def test_an_item_of_a_paper_on_parts_has_the_numbers_of_this_machine(
    tmp_path: Path, machine: tuple[str, Path]
):
    items, dataset = tmp_path / "items", in_parts(tmp_path / "table")
    items.mkdir()
    (items / "datasets.yaml").write_text(
        yaml.safe_dump({"data_dir": "none", "sets": {}})
    )
    for name, workers in (
        ("here", {"workers": 0}),
        ("parts", {"scheduler": machine[0]}),
    ):
        shared = {
            "kernels": KERNELS,
            "statistics": {"sample": 400},
            "predictor": NYSTROM,
            "protocol": SPLIT,
        }
        shared["dask"] = workers
        part = {
            "datasets": [dataset | {"in_parts": name == "parts"}],
            "learners": ["unif", "alignf"],
        }
        item = {
            "name": name,
            "paper": "JMLR 2012",
            "where": "Table 2",
            "title": "On parts",
            "setup": "One split.",
        }
        item["study"] = {"kind": "comparison", "shared": shared, "parts": [part]}
        (items / f"{name}.yaml").write_text(yaml.safe_dump(item))
        (outcome,) = papers([name], str(items))["outcomes"]
        assert outcome["status"] == "done", outcome["reason"]
    assert not list(machine[1].rglob("*parts-*"))  # trials have copied what they needed
    here, parts = (
        pd.read_parquet(f"results/papers/{name}/folds.parquet")
        for name in ("here", "parts")
    )
    require_same(parts, here, "parts")


# Who they are --------------------------------------------------------------------------------------------------------


@contextmanager
def ended_with(started: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """End the processes of a list with a block."""
    try:
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)


def test_a_worker_of_another_version_is_refused_when_it_joins_and_where_it_is_found(
    tmp_path, machine
):
    # By which a process takes its NumPy for an old one
    about = tmp_path / "other" / "numpy-1.0.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: numpy\nVersion: 1.0.0\n"
    )
    sentence = rf"^dask: the worker at tcp://.* has numpy 1\.0\.0 and not {np.__version__}; install there"
    newcomer: list[subprocess.Popen[bytes]] = []

    def join(share: float) -> None:
        if not newcomer:
            where = [
                "--host",
                "127.0.0.1",
                "--local-directory",
                str(tmp_path / "newcomer"),
            ]
            command = [
                sys.executable,
                "-m",
                "dask",
                "worker",
                machine[0],
                "--no-nanny",
                *where,
            ]
            env = os.environ | {"PYTHONPATH": f"{about.parent}:{ROOT}"}
            newcomer.append(
                subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
            )
            assert within(
                lambda: len(pool.client.scheduler_info(n_workers=-1)["workers"]) == 3,
                60,
            )

    with ended_with(newcomer), DaskPool(DaskConfig(scheduler=machine[0])) as pool:
        pool.require_usable()
        with pytest.raises(InputError, match=sentence):
            pool.map(abs, [-1, -2], join)
        with (
            pytest.warns(match="Mismatched versions found"),  # which Dask itself prints
            DaskPool(DaskConfig(scheduler=machine[0])) as later,
            pytest.raises(InputError, match=sentence),
        ):
            later.require_usable()


# Containers ----------------------------------------------------------------------------------------------------------


def keys_in(folder: Path) -> dict[str, str]:
    """Make a pair of keys by the command of the page, and say where they are."""
    (make,) = re.findall(r"openssl req .*?-out keys/cert\.pem", PAGE, re.DOTALL)
    (folder / "keys").mkdir(parents=True)
    subprocess.run(["sh", "-c", make], cwd=folder, check=True, capture_output=True)
    cert, key = (str(folder / "keys" / name) for name in ("cert.pem", "key.pem"))
    return {"ca": cert, "cert": cert, "key": key}


@pytest.mark.slow(15)
def test_containers_speak_with_who_has_their_key_and_nobody_else(tmp_path: Path):
    paths, others, port = keys_in(tmp_path), keys_in(tmp_path / "stranger"), free_port()
    config: dict[str, Any] = {"scheduler": f"tls://127.0.0.1:{port}", "timeout": 30.0}
    started: list[subprocess.Popen[bytes]] = []
    keys = str(tmp_path / "keys")
    here = {
        "/keys": keys,
        "/tmp/dask": keys,
        "scheduler:8786": f"127.0.0.1:{port}",
        "8786": str(port),
    }
    with ended_with(started):
        for service in ("scheduler", "worker"):
            words = [
                *SERVICES[service]["entrypoint"],
                *SERVICES[service]["command"],
                "--host",
                "127.0.0.1",
            ]
            words = [
                re.sub("|".join(here), lambda found: here[found.group()], word)
                for word in words
            ]
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", *words], stderr=subprocess.DEVNULL
                )
            )
        with DaskPool(DaskConfig(**config, certificates=paths)) as pool:
            pool.require_usable()
            require_working(pool)
        # Who trusts the containers is not trusted by them
        for stranger in (
            others,
            others | {"ca": paths["ca"]},
        ):
            with pytest.raises(
                InputError,
                match=r"^dask\.scheduler: no Dask scheduler answers at tls://",
            ):
                DaskPool(
                    DaskConfig(**config | {"timeout": 2.0}, certificates=stranger)
                ).require_usable()
        env = {
            k: v.replace("/keys", str(tmp_path / "keys"))
            for k, v in SERVICES["flows"]["environment"].items()
        }
        # As in their container
        of_flows = dask.config.collect_env(env)["distributed"]["comm"]
        comm = dask.config.merge(dask.config.get("distributed.comm"), of_flows)
        with (
            dask.config.set({"distributed.comm": comm}),
            DaskPool(DaskConfig(**config)) as pool,
        ):
            pool.require_usable()
            require_working(pool)


@pytest.mark.slow(20)
@pytest.mark.parametrize("service", ["prefect", "mlflow"])
def test_servers_of_containers_start_are_healthy_and_ask_who_is_there(
    tmp_path, empty_prefect, empty_mlflow, service
):
    """As they stand in the file, but for the host, the port, the database and the folder of this machine."""
    container, port = SERVICES[service], str(free_port())
    here = {
        container["ports"][0].rpartition(":")[2]: port,
        "0.0.0.0": "127.0.0.1",
        "/srv/learnkernels": str(tmp_path),
    }

    def at_home(text: str) -> str:
        return re.sub(
            "|".join(map(re.escape, here)), lambda found: here[found.group()], text
        )

    program = str(Path(sys.executable).with_name(container["entrypoint"][0]))
    command = [program, *map(at_home, container["command"])]
    env = {
        name: re.sub(r"\$\{\w+:.*?\}", "hidden" * 5, value)
        for name, value in container["environment"].items()
    }
    of_prefect = service == "prefect"
    database = (
        "PREFECT_SERVER_DATABASE_CONNECTION_URL"
        if of_prefect
        else "MLFLOW_BACKEND_STORE_URI"
    )
    assert env[database].startswith("postgresql")
    shutil.copy(empty_prefect if of_prefect else empty_mlflow, tmp_path / "tables.db")
    env[database] = f"sqlite{'+aiosqlite' * of_prefect}:///{tmp_path}/tables.db"
    env |= SETTINGS | {
        "PREFECT_HOME": str(tmp_path),
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
    }
    healthy = list(map(at_home, container["healthcheck"]["test"][1:]))
    with served(
        command,
        env,
        tmp_path,
        lambda: subprocess.run(healthy, capture_output=True).returncode == 0,
    ):
        page = (
            "/api/admin/version"
            if of_prefect
            else "/api/2.0/mlflow/experiments/get?experiment_id=0"
        )
        for auth, code in (
            (None, 401),
            (("admin", "wrong"), 401),
            (("admin", "hidden" * 5), 200),
        ):
            assert (
                httpx.get(
                    f"http://127.0.0.1:{port}{page}", auth=auth, timeout=60
                ).status_code
                == code
            ), auth


def test_an_image_has_the_commands_of_pods(tmp_path: Path):
    (make,) = re.findall(
        r"^RUN (for name in scheduler worker.*?done)$",
        CONTAINERFILE,
        re.MULTILINE | re.DOTALL,
    )
    subprocess.run(
        ["sh", "-c", make.replace("/usr/local/bin", str(tmp_path))], check=True
    )
    env = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    }
    for name in ("scheduler", "worker"):
        run = subprocess.run(
            [tmp_path / f"dask-{name}", "--help"],
            env=env,
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert f"Usage: dask {name}" in run.stdout, run.stderr
